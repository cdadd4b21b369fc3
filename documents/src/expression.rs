//! Expressions of aggregation pipelines, with the meaning and the error codes that MongoDB gives them.
//!
//! 1. An expression is read once and asked of each document. A value may be missing, which is not null.
//! 2. Operators of fixed arguments are functions of their values, in a table by name (`operators`). Those that do not evaluate
//!    all of their arguments, or that bind variables, are nodes of their own.
//! 3. An unknown operator is an error that names it.

pub(crate) mod accumulator;
mod arithmetic;
mod arranged;
mod attempt;
mod compare;
mod constants;
mod convert;
mod date;
mod error;
pub(crate) mod figure;
mod list;
mod object;
mod operators;
mod parse;
mod real;
mod scope;
mod search;
mod set;
mod text;
pub(crate) mod total;

pub use constants::Constants;
pub use error::ExpressionError;

pub(crate) use date::{Distance, date_width, gcd, is_date_operator, is_part_of_date};

pub(crate) use arithmetic::{decimal_of, divide, multiply, real_of, subtract, sum};
pub(crate) use parse::{PATH_NAMES_MAX, members};
pub(crate) use scope::{Moment, Scope, check_document};

use crate::raw::element::get;
use crate::raw::owned;
use crate::update::ElementSort;
use arranged::Zip;
use attempt::Attempt;
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use operators::Operator;
use search::Search;

/// The result of an expression.
pub(crate) type Result<T> = std::result::Result<T, ExpressionError>;

/// A value, or none where it is missing.
pub(crate) type Value = Option<RawBson>;

/// An expression such as `{$add: ["$a", 1]}`.
#[derive(Debug, Clone)]
pub struct Expression(Node);

#[derive(Debug, Clone)]
pub(crate) enum Node {
    /// A value that is the same for all documents.
    Constant(Value),
    /// What fails for all documents.
    Wrong(ExpressionError),
    /// What a path reaches from a variable.
    Path(Variable, Vec<String>),
    /// An object of expressions; members that are missing are left out.
    Object(Vec<(CString, Node)>),
    /// A list of expressions; what is missing becomes null.
    List(Vec<Node>),
    /// A function of values.
    Call(&'static Operator, Vec<Node>),
    /// `$and`, `$or`.
    And(Vec<Node>),
    Or(Vec<Node>),
    /// `$cond`.
    Cond(Box<[Node; 3]>),
    /// `$ifNull`.
    IfNull(Vec<Node>),
    /// `$switch`: branches, and the default.
    Switch(Vec<(Node, Node)>, Option<Box<Node>>),
    /// `$let`: variables by their slots, and the expression that uses them.
    Let(Vec<Node>, usize, Box<Node>),
    /// `$map`: the list, the slot of its variable, the expression.
    Map(Box<Node>, usize, Box<Node>),
    /// `$filter`: the list, the slot of its variable, the condition, the limit.
    Filter(Box<Node>, usize, Box<Node>, Option<Box<Node>>),
    /// `$reduce`: the list, the initial value, the slot of `$$value` (that of `$$this` is the next), the expression.
    Reduce(Box<Node>, Box<Node>, usize, Box<Node>),
    /// `$getField`.
    Field(Box<Node>, Box<Node>),
    /// `$convert`, `$dateFromString`.
    Attempt(Box<Attempt>),
    /// `$regexMatch`, `$regexFind`, `$regexFindAll`.
    Search(Box<Search>),
    /// `$sortArray`.
    Sorted(Box<Node>, ElementSort),
    /// `$zip`.
    Zip(Box<Zip>),
}

/// Where a path begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variable {
    /// `$$ROOT` and `$$CURRENT`.
    Root,
    /// `$$NOW`.
    Now,
    /// One of the `let` of a `$lookup` around the pipeline, by its number.
    Outer(usize),
    /// One that `$let`, `$map` and their kind bind.
    Slot(usize),
}

/// What a path reaches: through objects by name, and in each element of a list that is an object.
pub(crate) fn reach(value: RawBsonRef<'_>, names: &[String]) -> Value {
    let Some((name, rest)) = names.split_first() else { return Some(owned(value)) };
    match value {
        RawBsonRef::Document(document) => reach(get(document, name)?, rest),
        RawBsonRef::Array(list) => {
            let elements = list.into_iter().map_while(std::result::Result::ok);
            let reached = elements.filter_map(|element| match element {
                RawBsonRef::Document(_) => reach(element, names),
                _ => None,
            });
            Some(RawBson::Array(reached.collect()))
        }
        _ => None,
    }
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// Those of MongoDB: an unknown operator, wrong arguments, an unknown variable.
    pub fn parse(expression: RawBsonRef<'_>) -> std::result::Result<Expression, ExpressionError> {
        Constants::default().expression(expression)
    }

    /// The value for a document; nothing where it is missing. `now_ms` is the instant of `$$NOW`.
    ///
    /// # Errors
    /// Those of MongoDB's operators, for values that they do not take.
    pub fn evaluate(
        &self,
        document: &RawDocument,
        now_ms: i64,
    ) -> std::result::Result<Option<RawBson>, ExpressionError> {
        self.evaluate_at(document, Moment::at(now_ms))
    }

    /// The value for a document at a moment.
    pub(crate) fn evaluate_at(&self, document: &RawDocument, moment: Moment<'_>) -> Result<Value> {
        self.0.evaluate(&mut Scope::new(document, moment))
    }

    pub(crate) fn node(&self) -> &Node {
        &self.0
    }

    /// Fails if a part that is the same for all documents fails, as in MongoDB, whether or not it is ever asked for.
    pub(crate) fn check_constants(&self) -> Result<()> {
        self.0.check_constants()
    }

    pub(crate) fn of_node(node: Node) -> Expression {
        Expression(node)
    }

    /// Adds the top-level fields that it needs; whether these are known.
    pub(crate) fn add_fields(&self, fields: &mut Vec<String>) -> bool {
        self.0.add_fields(fields)
    }

    /// The value for an object, which the expression of [`Constants::redaction`] sees as `$$CURRENT`.
    pub(crate) fn evaluate_for(&self, current: &RawDocument, scope: &mut Scope<'_>) -> Result<Value> {
        let (before, current) = (scope.kept(), Some(RawBson::Document(current.to_owned())));
        scope.keep(&current)?;
        scope.bind(0, current);
        let value = self.0.evaluate(scope)?;
        scope.unbind(0);
        scope.let_go(before);
        Ok(value)
    }

    /// The value in a scope.
    pub(crate) fn evaluate_in(&self, scope: &mut Scope<'_>) -> Result<Value> {
        self.0.evaluate(scope)
    }

    /// The value of an expression that is the same for all documents.
    pub(crate) fn constant(&self) -> Option<&Value> {
        match &self.0 {
            Node::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The path within the document that it is, if it is one.
    pub(crate) fn as_path(&self) -> Option<&[String]> {
        match &self.0 {
            Node::Path(Variable::Root, names) => Some(names),
            _ => None,
        }
    }
}

impl Node {
    /// The nodes that it is made of.
    pub(crate) fn children(&self) -> Vec<&Node> {
        match self {
            Node::Constant(_) | Node::Wrong(_) | Node::Path(..) => Vec::new(),
            Node::Object(members) => members.iter().map(|(_, node)| node).collect(),
            Node::List(nodes) | Node::Call(_, nodes) | Node::And(nodes) | Node::Or(nodes) | Node::IfNull(nodes) => {
                nodes.iter().collect()
            }
            Node::Cond(parts) => parts.iter().collect(),
            Node::Switch(branches, default) => {
                // In the order in which MongoDB looks for what is constant.
                let branches = branches.iter().flat_map(|(case, then)| [case, then]);
                default.as_deref().into_iter().chain(branches).collect()
            }
            Node::Let(values, _, within) => values.iter().chain([&**within]).collect(),
            Node::Map(input, _, within) => vec![input, within],
            Node::Filter(input, _, condition, limit) => {
                [&**input, &**condition].into_iter().chain(limit.as_deref()).collect()
            }
            Node::Reduce(input, initial, _, within) => vec![input, initial, within],
            Node::Field(name, input) => vec![name, input],
            Node::Attempt(attempt) => attempt.children(),
            Node::Search(search) => search.children(),
            Node::Sorted(input, _) => vec![input],
            Node::Zip(zip) => zip.children(),
        }
    }

    /// See [`Expression::check_constants`].
    pub(crate) fn check_constants(&self) -> Result<()> {
        self.children().iter().try_for_each(|child| child.check_constants())?;
        match self {
            Node::Wrong(error) => Err(error.clone()),
            Node::Search(search) => search.check(),
            _ => Ok(()),
        }
    }

    /// See [`Expression::add_fields`].
    fn add_fields(&self, fields: &mut Vec<String>) -> bool {
        match self {
            Node::Path(Variable::Root, names) => match names.first() {
                Some(name) => {
                    fields.push(name.clone());
                    true
                }
                None => false,
            },
            _ => self.children().into_iter().all(|child| child.add_fields(fields)),
        }
    }

    pub(crate) fn evaluate(&self, scope: &mut Scope<'_>) -> Result<Value> {
        scope.step()?;
        match self {
            Node::Constant(value) => {
                scope.copied(value);
                Ok(value.clone())
            }
            Node::Wrong(error) => Err(error.clone()),
            Node::Path(variable, names) => {
                let value = scope.path(*variable, names);
                scope.copied(&value);
                Ok(value)
            }
            Node::Object(members) => {
                let (before, mut object) = (scope.kept(), RawDocumentBuf::new());
                for (name, node) in members {
                    let value = node.evaluate(scope)?;
                    scope.keep(&value)?;
                    if let Some(value) = value {
                        object.append(name, value);
                    }
                }
                scope.let_go(before);
                Ok(Some(RawBson::Document(object)))
            }
            Node::List(nodes) => {
                let (before, mut list) = (scope.kept(), RawArrayBuf::new());
                for node in nodes {
                    let value = node.evaluate(scope)?;
                    scope.keep(&value)?;
                    list.push(value.unwrap_or(RawBson::Null));
                }
                scope.let_go(before);
                Ok(Some(RawBson::Array(list)))
            }
            Node::Call(operator, nodes) => call(operator, nodes, scope),
            Node::And(nodes) => all(nodes, scope).map(boolean),
            Node::Or(nodes) => any(nodes, scope).map(boolean),
            Node::Cond(parts) => {
                let [condition, yes, no] = &**parts;
                if is_true(&condition.evaluate(scope)?) { yes.evaluate(scope) } else { no.evaluate(scope) }
            }
            Node::IfNull(nodes) => {
                let mut value = None;
                for node in nodes {
                    value = node.evaluate(scope)?;
                    if !is_nothing(&value) {
                        break;
                    }
                }
                Ok(value)
            }
            Node::Switch(branches, default) => {
                for (case, then) in branches {
                    if is_true(&case.evaluate(scope)?) {
                        return then.evaluate(scope);
                    }
                }
                match default {
                    Some(default) => default.evaluate(scope),
                    None => Err(ExpressionError::new(
                        40066,
                        "$switch could not find a matching branch for an input, and no default was specified.",
                    )),
                }
            }
            Node::Let(values, slot, within) => {
                let (before, mut bound) = (scope.kept(), Vec::with_capacity(values.len()));
                for value in values {
                    let value = value.evaluate(scope)?;
                    scope.keep(&value)?;
                    bound.push(value);
                }
                bound.into_iter().enumerate().for_each(|(i, value)| scope.bind(slot + i, value));
                let result = within.evaluate(scope)?;
                scope.unbind(*slot);
                scope.let_go(before);
                Ok(result)
            }
            Node::Map(..) | Node::Filter(..) | Node::Reduce(..) => self.evaluate_over_list(scope),
            Node::Field(name, input) => field(&name.evaluate(scope)?, &input.evaluate(scope)?),
            Node::Attempt(attempt) => attempt.evaluate(scope),
            Node::Search(search) => search.evaluate(scope),
            Node::Sorted(input, sort) => arranged::sorted(&input.evaluate(scope)?, sort, scope),
            Node::Zip(zip) => zip.evaluate(scope),
        }
    }

    fn evaluate_over_list(&self, scope: &mut Scope<'_>) -> Result<Value> {
        let (operator, code, input, slot) = match self {
            Node::Map(input, slot, _) => ("$map", 16883, input, *slot),
            Node::Filter(input, slot, ..) => ("$filter", 28651, input, *slot),
            Node::Reduce(input, _, slot, _) => ("$reduce", 40080, input, *slot),
            _ => return Ok(None),
        };
        let input = input.evaluate(scope)?;
        let Some(list) = list::input(operator, code, &input)? else { return null() };
        let before = scope.kept();
        scope.keep(&input)?;
        let result = self.over_elements(list, slot, scope)?;
        scope.unbind(slot);
        scope.let_go(before);
        Ok(result)
    }

    /// `$map`, `$filter` and `$reduce` of the elements of their list.
    fn over_elements(&self, list: Vec<RawBson>, slot: usize, scope: &mut Scope<'_>) -> Result<Value> {
        match self {
            Node::Map(_, _, within) => {
                let mut mapped = RawArrayBuf::new();
                for element in list {
                    scope.bind(slot, Some(element));
                    let before = mapped.as_bytes().len();
                    mapped.push(within.evaluate(scope)?.unwrap_or(RawBson::Null));
                    scope.keep_bytes(mapped.as_bytes().len() - before)?;
                }
                Ok(Some(RawBson::Array(mapped)))
            }
            Node::Filter(_, _, condition, limit) => {
                let limit = limit.as_ref().map(|limit| limit.evaluate(scope)).transpose()?.flatten();
                let limit = limit.map(|limit| list::limit(&limit)).transpose()?.flatten().unwrap_or(usize::MAX);
                let (mut kept, mut count) = (RawArrayBuf::new(), 0);
                for element in list {
                    if count == limit {
                        break;
                    }
                    scope.bind(slot, Some(element.clone()));
                    if is_true(&condition.evaluate(scope)?) {
                        kept.push(element);
                        count += 1;
                    }
                }
                Ok(Some(RawBson::Array(kept)))
            }
            Node::Reduce(_, initial, _, within) => {
                let (before, mut value) = (scope.kept(), initial.evaluate(scope)?);
                for element in list {
                    scope.let_go(before);
                    scope.keep(&value)?;
                    scope.bind(slot, value);
                    scope.bind(slot + 1, Some(element));
                    value = within.evaluate(scope)?;
                    scope::check_levels(&value)?;
                }
                Ok(value)
            }
            _ => Ok(None),
        }
    }
}

/// An operator of the values of its arguments.
fn call(operator: &Operator, nodes: &[Node], scope: &mut Scope<'_>) -> Result<Value> {
    let (before, mut values) = (scope.kept(), Vec::with_capacity(nodes.len()));
    for node in nodes {
        if !operator.needs_next(&values, scope)? {
            values.push(Some(RawBson::Undefined));
            continue;
        }
        match node.evaluate(scope) {
            Ok(value) => {
                scope.keep(&value)?;
                values.push(value);
            }
            // What is wrong with those before comes first, and after a null no more are asked for.
            Err(error) if operator.stops_at_null() => {
                (operator.run)(operator.name, &values)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        if operator.stops_at_null() && values.last().is_some_and(is_nothing) {
            break;
        }
    }
    scope.keep_bytes(operator.work_bytes(&values))?;
    scope.let_go(before);
    let value = (operator.run)(operator.name, &values)?;
    scope.copied(&value);
    Ok(value)
}

fn all(nodes: &[Node], scope: &mut Scope<'_>) -> Result<bool> {
    for node in nodes {
        if !is_true(&node.evaluate(scope)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn any(nodes: &[Node], scope: &mut Scope<'_>) -> Result<bool> {
    for node in nodes {
        if is_true(&node.evaluate(scope)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn field(name: &Value, input: &Value) -> Result<Value> {
    let Some(RawBson::String(name)) = name else {
        let message = format!("$getField requires 'field' to evaluate to type String, but got {}", type_of(name));
        return Err(ExpressionError::new(3_041_704, message));
    };
    Ok(match input {
        Some(RawBson::Document(document)) => document.get(name).ok().flatten().map(owned),
        None => None,
        Some(RawBson::Null) => Some(RawBson::Null),
        Some(_) => None,
    })
}

pub(crate) fn boolean(b: bool) -> Value {
    Some(RawBson::Boolean(b))
}

pub(crate) fn null() -> Result<Value> {
    Ok(Some(RawBson::Null))
}

/// Whether a value counts as true: all but false, zero, null, undefined and missing.
pub(crate) fn is_true(value: &Value) -> bool {
    match value {
        None
        | Some(RawBson::Null | RawBson::Undefined | RawBson::Boolean(false) | RawBson::Int32(0) | RawBson::Int64(0)) => {
            false
        }
        Some(RawBson::Double(d)) => *d != 0.0,
        Some(RawBson::Decimal128(d)) => !crate::Decimal::decode(*d).is_zero(),
        Some(_) => true,
    }
}

/// Whether a value is missing, null or undefined.
pub(crate) fn is_nothing(value: &Value) -> bool {
    matches!(value, None | Some(RawBson::Null | RawBson::Undefined))
}

/// The name of a value's type, for messages.
pub(crate) fn type_of(value: &Value) -> &'static str {
    value.as_ref().map_or("missing", |value| crate::raw::type_name(value.as_raw_bson_ref()))
}

#[cfg(test)]
mod tests;
