//! Reads expressions.

mod fold;
mod named;

use super::attempt::Attempt;
use super::operators::{Operator, operator};
use super::{Constants, ExpressionError, Node, Result, Variable, is_part_of_date, reach};
use crate::paths::is_operator;
use crate::raw::{owned, type_name};
use bson::RawDocument;
use bson::raw::{CString, RawBson, RawBsonRef};

/// Levels that an expression may have.
const DEPTH_MAX: usize = 100;
/// The variable that paths without one begin at: the document, unless it is bound.
pub(super) const CURRENT: &str = "CURRENT";
/// Names that a path may have, as in MongoDB.
pub(crate) const PATH_NAMES_MAX: usize = 200;

/// What can be seen where an expression is read.
#[derive(Debug)]
pub(super) struct Parser<'a> {
    constants: &'a Constants,
    /// The variables that are bound, innermost last.
    variables: Vec<String>,
    /// How deep that is.
    depth: usize,
}

fn failed(message: impl Into<String>) -> ExpressionError {
    ExpressionError::new(9, message)
}

impl<'a> Parser<'a> {
    pub(super) fn new(constants: &'a Constants) -> Parser<'a> {
        Parser::with_variables(constants, Vec::new())
    }

    /// For an expression for which these variables are bound, from the slot 0 on.
    pub(super) fn with_variables(constants: &'a Constants, variables: Vec<String>) -> Parser<'a> {
        Parser { constants, variables, depth: 0 }
    }

    /// Any value as an expression.
    pub(super) fn any(&mut self, value: RawBsonRef<'_>) -> Result<Node> {
        if self.depth == DEPTH_MAX {
            return Err(ExpressionError::new(15, format!("an expression is nested deeper than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        let before = self.constants.placed();
        let node = match value {
            RawBsonRef::String(text) if text.starts_with('$') => self.path(text),
            RawBsonRef::Array(list) => {
                let elements = list.into_iter().map_while(std::result::Result::ok);
                Ok(Node::List(elements.map(|element| self.any(element)).collect::<Result<_>>()?))
            }
            RawBsonRef::Document(object) => self.object(object),
            other => Ok(Node::Constant(Some(owned(other)))),
        };
        self.depth -= 1;
        node.map(|node| fold::simplified(node, self.constants, before))
    }

    /// A variable that is bound around the expression, within it or by a `$lookup`.
    fn variable(&self, name: &str) -> Option<Variable> {
        let slot = self.variables.iter().rposition(|bound| bound == name);
        slot.map(Variable::Slot).or_else(|| self.constants.outer(name).map(Variable::Outer))
    }

    /// What `$$CURRENT` is.
    fn current(&self) -> Variable {
        self.variable(CURRENT).unwrap_or(Variable::Root)
    }

    /// `$a.b` or `$$variable.b`.
    fn path(&self, text: &str) -> Result<Node> {
        let names = |path: &str| path.split('.').map(str::to_owned).collect::<Vec<_>>();
        let (variable, names) = match text.strip_prefix("$$") {
            None => {
                let path = &text[1..];
                if path.is_empty() {
                    return Err(ExpressionError::new(16872, "'$' by itself is not a valid FieldPath"));
                }
                (self.current(), names(path))
            }
            Some(rest) => {
                let mut names = names(rest);
                let name = names.remove(0);
                match name.as_str() {
                    "" => return Err(failed("empty variable names are not allowed")),
                    "ROOT" => (Variable::Root, names),
                    CURRENT => (self.current(), names),
                    "NOW" => (Variable::Now, names),
                    "REMOVE" => return Ok(Node::Constant(None)),
                    name => match self.variable(name) {
                        Some(variable) => (variable, names),
                        None => {
                            let unknown = || ExpressionError::new(17276, format!("Use of undefined variable: {name}"));
                            let constant = self.constants.get(name).ok_or_else(unknown)?;
                            check_names(text, &names)?;
                            let reached = constant.as_ref().and_then(|value| reach(value.as_raw_bson_ref(), &names));
                            self.constants.place(&reached, self.constants.placed())?;
                            return Ok(Node::Constant(reached));
                        }
                    },
                }
            }
        };
        check_names(text, &names)?;
        Ok(Node::Path(variable, names))
    }

    fn object(&mut self, object: &RawDocument) -> Result<Node> {
        let members: Vec<(&str, RawBsonRef<'_>)> = members(object);
        match members.as_slice() {
            [(name, argument)] if name.starts_with('$') => return self.call(name, *argument),
            members if members.iter().any(|(name, _)| name.starts_with('$')) => {
                let names: Vec<_> = members.iter().map(|(name, _)| *name).collect();
                let message = format!(
                    "an object representing an expression must have exactly one field: {{{}}}",
                    names.join(", ")
                );
                return Err(ExpressionError::new(15983, message));
            }
            _ => {}
        }
        let mut nodes = Vec::new();
        for (name, value) in members {
            if name.contains('.') {
                let message = format!(
                    "FieldPath field names may not contain '.': '{name}'. Consider using $getField or $setField."
                );
                return Err(ExpressionError::new(16412, message));
            }
            let name = CString::try_from(name).map_err(|e| failed(e.to_string()))?;
            nodes.push((name, self.any(value)?));
        }
        Ok(Node::Object(nodes))
    }

    /// An operator with its argument.
    pub(super) fn call(&mut self, name: &str, argument: RawBsonRef<'_>) -> Result<Node> {
        match name {
            "$literal" | "$const" => Ok(Node::Constant(Some(owned(argument)))),
            "$and" => Ok(Node::And(self.arguments(argument)?)),
            "$or" => Ok(Node::Or(self.arguments(argument)?)),
            "$cond" => self.cond(argument),
            "$ifNull" => {
                let nodes = self.arguments(argument)?;
                if nodes.len() < 2 {
                    let message = format!("$ifNull needs at least two arguments, had: {}", nodes.len());
                    return Err(ExpressionError::new(1_257_300, message));
                }
                Ok(Node::IfNull(nodes))
            }
            "$switch" => self.switch(argument),
            "$let" => self.bind(argument),
            "$map" | "$filter" => self.each(name, argument),
            "$reduce" => self.reduce(argument),
            "$getField" => self.field(argument),
            "$regexMatch" | "$regexFind" | "$regexFindAll" => self.search(name, argument),
            "$sortArray" => self.sorted(name, argument),
            "$zip" => self.zip(name, argument),
            _ => {
                let unknown = || ExpressionError::new(168, format!("Unrecognized expression '{name}'"));
                let operator = operator(name).ok_or_else(unknown)?;
                let nodes = match (operator.named, argument) {
                    (Some((names, required)), _) => self.named(name, names, required, argument)?,
                    (None, RawBsonRef::Document(object)) if is_part_of_date(name) && !is_expression(object) => {
                        return Ok(Node::Call(operator, self.named(name, &["date", "timezone"], 1, argument)?));
                    }
                    (None, _) if operator.is_random() => {
                        named::check_no_arguments(name, argument)?;
                        Vec::new()
                    }
                    (None, _) => self.arguments(argument)?,
                };
                check_count(operator, nodes.len())?;
                Ok(match name {
                    "$convert" | "$dateFromString" => Node::Attempt(Box::new(Attempt::new(operator, nodes))),
                    _ => Node::Call(operator, nodes),
                })
            }
        }
    }

    /// The arguments of an operator: a list of them, or one alone.
    fn arguments(&mut self, argument: RawBsonRef<'_>) -> Result<Vec<Node>> {
        match argument {
            RawBsonRef::Array(list) => {
                list.into_iter().map_while(std::result::Result::ok).map(|one| self.any(one)).collect()
            }
            one => Ok(vec![self.any(one)?]),
        }
    }

    fn cond(&mut self, argument: RawBsonRef<'_>) -> Result<Node> {
        let nodes = match argument {
            RawBsonRef::Document(object) => {
                let mut parts = [None, None, None];
                for (name, value) in members(object) {
                    let at = ["if", "then", "else"].iter().position(|known| *known == name);
                    let unknown = || ExpressionError::new(17083, format!("Unrecognized parameter to $cond: {name}"));
                    parts[at.ok_or_else(unknown)?] = Some(self.any(value)?);
                }
                let missing = |code, name| ExpressionError::new(code, format!("Missing '{name}' parameter to $cond"));
                let [condition, yes, no] = parts;
                vec![
                    condition.ok_or_else(|| missing(17080, "if"))?,
                    yes.ok_or_else(|| missing(17081, "then"))?,
                    no.ok_or_else(|| missing(17082, "else"))?,
                ]
            }
            other => self.arguments(other)?,
        };
        let count = nodes.len();
        let parts: [Node; 3] = nodes.try_into().map_err(|_| {
            let message = format!("Expression $cond takes exactly 3 arguments. {count} were passed in.");
            ExpressionError::new(16020, message)
        })?;
        Ok(Node::Cond(Box::new(parts)))
    }

    fn switch(&mut self, argument: RawBsonRef<'_>) -> Result<Node> {
        let RawBsonRef::Document(object) = argument else {
            let message = format!("$switch requires an object as an argument, found: {}", type_name(argument));
            return Err(ExpressionError::new(40060, message));
        };
        let (mut branches, mut default) = (Vec::new(), None);
        for (name, value) in members(object) {
            match (name, value) {
                ("default", value) => default = Some(Box::new(self.any(value)?)),
                ("branches", RawBsonRef::Array(list)) => {
                    for branch in list.into_iter().map_while(std::result::Result::ok) {
                        branches.push(self.branch(branch)?);
                    }
                }
                ("branches", other) => {
                    let message = format!("$switch expected an array for 'branches', found: {}", type_name(other));
                    return Err(ExpressionError::new(40061, message));
                }
                (other, _) => {
                    return Err(ExpressionError::new(40067, format!("$switch found an unknown argument: {other}")));
                }
            }
        }
        if branches.is_empty() {
            return Err(ExpressionError::new(40068, "$switch requires at least one branch."));
        }
        Ok(Node::Switch(branches, default))
    }

    fn branch(&mut self, branch: RawBsonRef<'_>) -> Result<(Node, Node)> {
        let RawBsonRef::Document(object) = branch else {
            let message = format!("$switch expected each branch to be an object, found: {}", type_name(branch));
            return Err(ExpressionError::new(40062, message));
        };
        let (mut case, mut then) = (None, None);
        for (name, value) in members(object) {
            match name {
                "case" => case = Some(self.any(value)?),
                "then" => then = Some(self.any(value)?),
                other => {
                    let message = format!("$switch found an unknown argument to a branch: {other}");
                    return Err(ExpressionError::new(40063, message));
                }
            }
        }
        let missing =
            |code, name| ExpressionError::new(code, format!("$switch requires each branch have a '{name}' expression"));
        Ok((case.ok_or_else(|| missing(40064, "case"))?, then.ok_or_else(|| missing(40065, "then"))?))
    }

    /// Reads `within` with these variables bound, from the slot that is returned on.
    fn within(&mut self, names: &[&str], within: RawBsonRef<'_>) -> Result<(usize, Node)> {
        let slot = self.variables.len();
        self.variables.extend(names.iter().map(|name| (*name).to_owned()));
        let node = self.any(within);
        self.variables.truncate(slot);
        Ok((slot, node?))
    }

    fn bind(&mut self, argument: RawBsonRef<'_>) -> Result<Node> {
        let RawBsonRef::Document(object) = argument else {
            return Err(ExpressionError::new(
                16874,
                format!("$let only supports an object as its argument, not {}", type_name(argument)),
            ));
        };
        let (mut vars, mut within) = (None, None);
        for (name, value) in members(object) {
            match name {
                "vars" => vars = Some(value),
                "in" => within = Some(value),
                other => return Err(ExpressionError::new(16875, format!("Unrecognized parameter to $let: {other}"))),
            }
        }
        let vars = vars.ok_or_else(|| ExpressionError::new(16876, "Missing 'vars' parameter to $let"))?;
        let within = within.ok_or_else(|| ExpressionError::new(16877, "Missing 'in' parameter to $let"))?;
        let RawBsonRef::Document(vars) = vars else {
            return Err(ExpressionError::new(
                10065,
                format!("invalid parameter: expected an object (vars), not {}", type_name(vars)),
            ));
        };
        let vars = members(vars);
        let names: Vec<&str> = vars.iter().map(|(name, _)| *name).collect();
        names.iter().try_for_each(|name| check_bound(name))?;
        let values = vars.iter().map(|(_, value)| self.any(*value)).collect::<Result<Vec<_>>>()?;
        let (slot, node) = self.within(&names, within)?;
        Ok(Node::Let(values, slot, Box::new(node)))
    }

    /// `$map` and `$filter`.
    fn each(&mut self, operator: &str, argument: RawBsonRef<'_>) -> Result<Node> {
        let is_map = operator == "$map";
        let code = |map: i32, filter: i32| if is_map { map } else { filter };
        let RawBsonRef::Document(object) = argument else {
            let message = format!("{operator} only supports an object as its argument");
            return Err(ExpressionError::new(code(16878, 28646), message));
        };
        let (mut input, mut variable, mut within, mut limit) = (None, "this", None, None);
        for (name, value) in members(object) {
            match (name, value) {
                ("input", value) => input = Some(value),
                ("as", RawBsonRef::String(name)) => variable = name,
                ("in", value) if is_map => within = Some(value),
                ("cond", value) if !is_map => within = Some(value),
                ("limit", value) if !is_map => limit = Some(value),
                (other, _) => {
                    let message = format!("Unrecognized parameter to {operator}: {other}");
                    return Err(ExpressionError::new(code(16879, 28647), message));
                }
            }
        }
        check_bound(variable)?;
        let missing =
            |code, name: &str| ExpressionError::new(code, format!("Missing '{name}' parameter to {operator}"));
        let input = self.any(input.ok_or_else(|| missing(code(16880, 28648), "input"))?)?;
        let within = within.ok_or_else(|| missing(code(16882, 28650), if is_map { "in" } else { "cond" }))?;
        let limit = limit.map(|limit| self.any(limit)).transpose()?.map(Box::new);
        let (slot, within) = self.within(&[variable], within)?;
        Ok(match is_map {
            true => Node::Map(Box::new(input), slot, Box::new(within)),
            false => Node::Filter(Box::new(input), slot, Box::new(within), limit),
        })
    }

    fn reduce(&mut self, argument: RawBsonRef<'_>) -> Result<Node> {
        let RawBsonRef::Document(object) = argument else {
            let message = format!("$reduce requires an object as an argument, found: {}", type_name(argument));
            return Err(ExpressionError::new(40075, message));
        };
        let (mut input, mut initial, mut within) = (None, None, None);
        for (name, value) in members(object) {
            match name {
                "input" => input = Some(value),
                "initialValue" => initial = Some(value),
                "in" => within = Some(value),
                other => {
                    return Err(ExpressionError::new(40076, format!("$reduce found an unknown argument: {other}")));
                }
            }
        }
        let missing =
            |code, name: &str| ExpressionError::new(code, format!("$reduce requires '{name}' to be specified"));
        let input = self.any(input.ok_or_else(|| missing(40077, "input"))?)?;
        let initial = self.any(initial.ok_or_else(|| missing(40078, "initialValue"))?)?;
        let (slot, within) = self.within(&["value", "this"], within.ok_or_else(|| missing(40079, "in"))?)?;
        Ok(Node::Reduce(Box::new(input), Box::new(initial), slot, Box::new(within)))
    }

    fn field(&mut self, argument: RawBsonRef<'_>) -> Result<Node> {
        let Some(object) = argument.as_document().filter(|object| !is_expression(object)) else {
            let current = Node::Path(self.current(), Vec::new());
            return Ok(Node::Field(Box::new(self.any(argument)?), Box::new(current)));
        };
        let (mut field, mut input) = (None, None);
        for (name, value) in members(object) {
            match name {
                "field" => field = Some(self.any(value)?),
                "input" => input = Some(self.any(value)?),
                other => {
                    let message = format!("$getField found an unknown argument: {other}");
                    return Err(ExpressionError::new(3_041_701, message));
                }
            }
        }
        let missing = |code, name| ExpressionError::new(code, format!("$getField requires '{name}' to be specified"));
        let field = field.ok_or_else(|| missing(3_041_702, "field"))?;
        let input = input.ok_or_else(|| missing(3_041_703, "input"))?;
        Ok(Node::Field(Box::new(field), Box::new(input)))
    }
}

/// Checks how many arguments an operator is given.
fn check_count(operator: &Operator, count: usize) -> Result<()> {
    let (name, (least, most)) = (operator.name, operator.arguments);
    if (least..=most).contains(&count) {
        return Ok(());
    }
    let wanted = match most {
        most if most == least => format!("exactly {least} arguments. {count} were passed in."),
        most => format!("at least {least} arguments, and at most {most}. {count} were passed in."),
    };
    let code = match name {
        "$toBool" | "$toDate" | "$toDecimal" | "$toDouble" | "$toInt" | "$toLong" | "$toObjectId" | "$toString" => {
            50723
        }
        "$setEquals" => 17045,
        name if is_part_of_date(name) => 40536,
        _ if most == least => 16020,
        _ => 28667,
    };
    Err(ExpressionError::new(code, format!("Expression {name} takes {wanted}")))
}

/// Checks the names of a path.
fn check_names(path: &str, names: &[String]) -> Result<()> {
    if names.len() > PATH_NAMES_MAX {
        let message = format!("FieldPath is too long: it has more than {PATH_NAMES_MAX} names");
        return Err(ExpressionError::new(15, message));
    }
    if names.iter().any(String::is_empty) {
        let code = if path.ends_with('.') { 40353 } else { 15998 };
        return Err(ExpressionError::new(code, format!("FieldPath field names may not be empty strings: '{path}'")));
    }
    if let Some(name) = names.iter().find(|name| is_operator(name)) {
        let message = format!("FieldPath field names may not start with '$': '{name}'. Consider using $getField.");
        return Err(ExpressionError::new(16410, message));
    }
    Ok(())
}

/// Checks the name of a variable within an expression or a pipeline.
pub(super) fn check_bound(name: &str) -> Result<()> {
    if name == CURRENT { Ok(()) } else { check_variable(name) }
}

/// Checks the name of a variable of a command.
pub(super) fn check_variable(name: &str) -> Result<()> {
    let mut characters = name.chars();
    let begins = |c: char| c.is_ascii_lowercase() || !c.is_ascii();
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
    if characters.next().is_some_and(begins) && characters.all(goes_on) {
        return Ok(());
    }
    Err(failed(format!(
        "'{name}' is not a valid variable name: it must start with a lowercase letter and contain only letters, digits and '_'"
    )))
}

/// The members of an object. Commands were checked to their depth.
pub(crate) fn members(object: &RawDocument) -> Vec<(&str, RawBsonRef<'_>)> {
    object.iter().map_while(std::result::Result::ok).map(|(name, value)| (name.as_str(), value)).collect()
}

/// Whether an object is an operator with its argument.
fn is_expression(object: &RawDocument) -> bool {
    members(object).first().is_some_and(|(name, _)| name.starts_with('$'))
}

/// The constant that stands for an argument that was left out.
fn nothing() -> Node {
    Node::Constant(Some(RawBson::Undefined))
}
