//! Reads filters. All faults are met in one walk, and the gravest is reported: an operator that is not to be had first,
//! then a wrong operand, then a field or an emptiness; of equal ones the first in the text.

use super::node::{Node, Test};
use super::{Comparison, FILTER_DEPTH_MAX};
use crate::code::{Code, RuleError};
use crate::value::{Name, TypeClass, Value, exact_int};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Operator,
    Operand,
    Field,
}

/// Which filters are read.
#[derive(Debug, Clone, Copy)]
enum Kind<'a> {
    /// `partialFilterExpression`, with the collection's meta field.
    Partial(Option<&'a str>),
    Query,
}

struct Parser<'a> {
    kind: Kind<'a>,
    fault: Option<(Rank, RuleError)>,
}

pub(super) fn partial(filter: &Value, meta_field: Option<&str>) -> Result<Node, RuleError> {
    let members = members_of(filter, "partialFilterExpression")?;
    let mut parser = Parser { kind: Kind::Partial(meta_field), fault: None };
    if members.is_empty() {
        parser.fault(Rank::Field, Code::InvalidOptions, "the condition of a TTL index must name the meta field");
    }
    parser.finish(members)
}

pub(super) fn query(filter: &Value) -> Result<Node, RuleError> {
    let members = members_of(filter, "a filter")?;
    Parser { kind: Kind::Query, fault: None }.finish(members)
}

fn members_of<'v>(filter: &'v Value, what: &str) -> Result<&'v [(Name, Value)], RuleError> {
    let Value::Object(members) = filter else {
        let message = format!("{what} must be an object, not {}", filter.class().name());
        return Err(RuleError::new(Code::TypeMismatch, message));
    };
    // Before anything walks it: the walk recurses.
    if filter.depth(FILTER_DEPTH_MAX + 1) > FILTER_DEPTH_MAX {
        let message = format!("{what} may not nest deeper than {FILTER_DEPTH_MAX}");
        return Err(RuleError::new(Code::BadValue, message));
    }
    Ok(members)
}

impl Parser<'_> {
    fn finish(mut self, members: &[(Name, Value)]) -> Result<Node, RuleError> {
        let node = self.object(members);
        match self.fault {
            Some((_, error)) => Err(error),
            None => Ok(node),
        }
    }

    fn fault(&mut self, rank: Rank, code: Code, message: impl Into<String>) {
        if self.fault.as_ref().is_none_or(|(old, _)| rank < *old) {
            self.fault = Some((rank, RuleError::new(code, message)));
        }
    }

    /// An operator that filters of this kind do not have.
    fn no_operator(&mut self, operator: &str) {
        let (code, what, more) = match self.kind {
            Kind::Partial(_) => (Code::CannotCreateIndex, "the condition of a TTL index", "$exists: true"),
            Kind::Query => (Code::BadValue, "a filter", "$ne, $nin, $not, $nor, $exists"),
        };
        let known = "$eq, $in, $gt, $gte, $lt, $lte, $type, $and, $or";
        self.fault(Rank::Operator, code, format!("{what} cannot have the operator {operator}; it has {known}, {more}"));
    }

    fn bad_operand(&mut self, message: impl Into<String>) {
        self.fault(Rank::Operand, Code::BadValue, message);
    }

    fn is_partial(&self) -> bool {
        matches!(self.kind, Kind::Partial(_))
    }

    /// An object of fields and of `$and`, `$or`, `$nor`: an implicit and.
    fn object(&mut self, members: &[(Name, Value)]) -> Node {
        let mut parts = Vec::with_capacity(members.len());
        for (name, value) in members {
            match name.as_str() {
                "$and" => parts.push(Node::and(self.clauses(name, value))),
                "$or" => parts.push(Node::or(self.clauses(name, value))),
                "$nor" if !self.is_partial() => parts.push(Node::not(Node::or(self.clauses(name, value)))),
                operator if operator.starts_with('$') => self.no_operator(operator),
                path => {
                    self.check_path(path);
                    parts.push(self.field(path, value));
                }
            }
        }
        Node::and(parts)
    }

    fn clauses(&mut self, operator: &str, value: &Value) -> Vec<Node> {
        let Value::Array(clauses) = value else {
            self.bad_operand(format!("{operator} needs a list of filters"));
            return Vec::new();
        };
        if clauses.is_empty() {
            self.bad_operand(format!("{operator} needs at least one filter"));
        }
        let mut nodes = Vec::with_capacity(clauses.len());
        for clause in clauses {
            match clause {
                Value::Object(members) => {
                    if members.is_empty() && self.is_partial() {
                        let message = format!("an empty filter in {operator} matches everything; leave it out");
                        self.fault(Rank::Field, Code::InvalidOptions, message);
                    }
                    nodes.push(self.object(members));
                }
                other => self.bad_operand(format!("{operator} needs filters, not {}", other.class().name())),
            }
        }
        nodes
    }

    fn check_path(&mut self, path: &str) {
        if path.split('.').any(str::is_empty) {
            let code = if self.is_partial() { Code::InvalidOptions } else { Code::BadValue };
            self.fault(Rank::Field, code, format!("'{path}' is not a field's path"));
        }
        let Kind::Partial(meta) = self.kind else { return };
        match meta {
            None => {
                let message = "a partial TTL index needs a collection with a metaField";
                self.fault(Rank::Field, Code::InvalidOptions, message);
            }
            Some(meta) if path.split('.').next() != Some(meta) => {
                let message =
                    format!("the condition of a TTL index may use only the meta field '{meta}', not '{path}'");
                self.fault(Rank::Field, Code::InvalidOptions, message);
            }
            Some(_) => {}
        }
    }

    /// `path: value`, where the value is a constant or an object of operators.
    fn field(&mut self, path: &str, value: &Value) -> Node {
        match value {
            Value::Object(members) if members.iter().any(|(name, _)| name.starts_with('$')) => {
                self.operators(path, members)
            }
            constant => Node::condition(path, Test::Eq(constant.normalized())),
        }
    }

    fn operators(&mut self, path: &str, members: &[(Name, Value)]) -> Node {
        let mut parts = Vec::with_capacity(members.len());
        for (operator, operand) in members {
            parts.extend(self.operator(path, operator, operand));
        }
        Node::and(parts)
    }

    fn operator(&mut self, path: &str, operator: &str, operand: &Value) -> Option<Node> {
        let query = !self.is_partial();
        let test = match operator {
            "$eq" => Test::Eq(operand.normalized()),
            "$in" => self.list(operator, operand)?,
            "$gt" => self.comparison(Comparison::Gt, operand)?,
            "$gte" => self.comparison(Comparison::Gte, operand)?,
            "$lt" => self.comparison(Comparison::Lt, operand)?,
            "$lte" => self.comparison(Comparison::Lte, operand)?,
            "$exists" => return self.exists(path, operand),
            "$type" => self.types(operand)?,
            "$ne" if query => return Some(Node::not(Node::condition(path, Test::Eq(operand.normalized())))),
            "$nin" if query => return Some(Node::not(Node::condition(path, self.list(operator, operand)?))),
            "$not" if query => return self.not(path, operand),
            other if other.starts_with('$') => {
                self.no_operator(other);
                return None;
            }
            other => {
                self.bad_operand(format!("'{other}' stands among the operators on '{path}' but is none"));
                return None;
            }
        };
        Some(Node::condition(path, test))
    }

    fn not(&mut self, path: &str, operand: &Value) -> Option<Node> {
        match operand {
            Value::Object(members) if !members.is_empty() => Some(Node::not(self.operators(path, members))),
            _ => {
                self.bad_operand("$not needs an object of operators");
                None
            }
        }
    }

    fn list(&mut self, operator: &str, operand: &Value) -> Option<Test> {
        let Value::Array(values) = operand else {
            self.bad_operand(format!("{operator} needs a list, not {}", operand.class().name()));
            return None;
        };
        let operator_inside = values.iter().find_map(|value| match value {
            Value::Object(members) => members.iter().map(|(name, _)| name).find(|name| name.starts_with('$')),
            _ => None,
        });
        if let Some(name) = operator_inside {
            self.bad_operand(format!("{operator} takes values; {name} cannot stand in its list"));
        }
        Some(Test::one_of(values))
    }

    fn comparison(&mut self, comparison: Comparison, operand: &Value) -> Option<Test> {
        if let class @ (TypeClass::Object | TypeClass::Array | TypeClass::Null) = operand.class() {
            let code = if self.is_partial() { Code::CannotCreateIndex } else { Code::BadValue };
            let message = format!("{} cannot compare with {}", comparison.operator(), class.name());
            self.fault(Rank::Operand, code, message);
            return None;
        }
        Some(Test::Compare(comparison, operand.normalized()))
    }

    fn exists(&mut self, path: &str, operand: &Value) -> Option<Node> {
        let wanted = match operand {
            Value::Bool(wanted) => *wanted,
            Value::Int(i) => *i != 0,
            Value::Double(d) => *d != 0.0,
            other => {
                self.bad_operand(format!("$exists needs true or false, not {}", other.class().name()));
                return None;
            }
        };
        let there = Node::condition(path, Test::Exists);
        match (wanted, self.kind) {
            (true, _) => Some(there),
            (false, Kind::Query) => Some(Node::not(there)),
            (false, Kind::Partial(_)) => {
                self.no_operator("$exists: false");
                None
            }
        }
    }

    fn types(&mut self, operand: &Value) -> Option<Test> {
        let one = std::slice::from_ref(operand);
        let given = if let Value::Array(given) = operand { given.as_slice() } else { one };
        if given.is_empty() {
            self.bad_operand("$type needs at least one type");
        }
        let mut classes = BTreeSet::new();
        for value in given {
            match type_class(value) {
                Some(class) => {
                    classes.insert(class);
                }
                None => self.bad_operand(
                    "$type takes number, string, bool, date, object, array, binData or the code of one of these",
                ),
            }
        }
        Some(Test::Type(classes))
    }
}

fn type_class(value: &Value) -> Option<TypeClass> {
    let code = match value {
        Value::Int(code) => Some(*code),
        Value::Double(code) => exact_int(*code),
        Value::String(name) => {
            return match name.as_str() {
                "number" | "int" | "long" | "double" | "decimal" => Some(TypeClass::Number),
                "string" => Some(TypeClass::String),
                "bool" => Some(TypeClass::Bool),
                "date" => Some(TypeClass::Date),
                "object" => Some(TypeClass::Object),
                "array" => Some(TypeClass::Array),
                "binData" => Some(TypeClass::Binary),
                _ => None,
            };
        }
        _ => None,
    };
    match code? {
        1 | 16 | 18 | 19 => Some(TypeClass::Number),
        2 => Some(TypeClass::String),
        3 => Some(TypeClass::Object),
        4 => Some(TypeClass::Array),
        5 => Some(TypeClass::Binary),
        8 => Some(TypeClass::Bool),
        9 => Some(TypeClass::Date),
        _ => None,
    }
}
