//! Reads filters. The whole filter is walked, and of several faults the gravest is reported: an operator that is not to be
//! had first, then a wrong operand, then an emptiness; of equal ones the first in the text.

use super::Purpose;
use super::node::{Comparison, Condition, Node, Test};
use super::operands;
use super::pattern::Pattern;
use crate::json::DEPTH_MAX;
use crate::order::compare;
use crate::paths::Path;
use crate::raw::{list_as_object, owned, type_name};
use crate::{Code, Result, RuleError};
use bson::RawDocument;
use bson::raw::RawBsonRef;

/// Operators on paths, for the message about an unknown one.
const OPERATORS: &str =
    "$eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists, $type, $all, $size, $elemMatch, $regex, $mod and $not";
/// What a partial filter may have.
const PARTIAL_OPERATORS: &str = "$eq, $gt, $gte, $lt, $lte, $in, $type, $exists: true, $and and $or";

pub(super) fn filter(filter: &RawDocument, purpose: Purpose) -> Result<Node> {
    let mut parser = Parser { purpose, fault: None };
    parser.check_bytes(filter, 1);
    if parser.fault.is_none() {
        if purpose == Purpose::Partial && filter.is_empty() {
            let message = "an empty partialFilterExpression matches every document; omit it, or give a condition";
            parser.report(Rank::Emptiness, Code::InvalidOptions, message);
        }
        let node = parser.object(filter);
        if parser.fault.is_none() {
            return Ok(node);
        }
    }
    match parser.fault {
        Some((_, error)) => Err(error),
        None => Ok(Node::Never),
    }
}

/// The gravity of a fault; the least is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Bytes,
    Operator,
    Operand,
    Emptiness,
}

struct Parser {
    purpose: Purpose,
    fault: Option<(Rank, RuleError)>,
}

/// What `object` holds under a name that begins with `$`, if it is an object of operators and no `DBRef`.
fn operators<'a>(value: RawBsonRef<'a>) -> Option<&'a RawDocument> {
    let RawBsonRef::Document(object) = value else { return None };
    let mut names = object.iter_elements().map_while(std::result::Result::ok).map(|member| member.key().as_str());
    let is_operator = names.next().is_some_and(|name| name.starts_with('$'));
    (is_operator && !is_reference(object, References::Whole)).then_some(object)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum References {
    /// With `$ref` and `$id`.
    Whole,
    /// With one of `$ref`, `$id` and `$db`.
    Partly,
}

fn is_reference(object: &RawDocument, references: References) -> bool {
    let has = |name: &str| matches!(object.get(name), Ok(Some(_)));
    match references {
        References::Whole => has("$ref") && has("$id"),
        References::Partly => has("$ref") || has("$id") || has("$db"),
    }
}

impl Parser {
    fn report(&mut self, rank: Rank, code: Code, message: impl Into<String>) {
        if self.fault.as_ref().is_none_or(|(worst, _)| rank < *worst) {
            self.fault = Some((rank, RuleError::new(code, message)));
        }
    }

    fn bad(&mut self, message: impl Into<String>) {
        self.report(Rank::Operand, Code::BadValue, message);
    }

    /// Refuses what cannot be read or is too deep, so that the walk need not look at it again.
    fn check_bytes(&mut self, object: &RawDocument, level: usize) {
        if level > DEPTH_MAX {
            self.report(Rank::Bytes, Code::BadValue, format!("the filter nests deeper than {DEPTH_MAX} levels"));
            return;
        }
        for member in object {
            let inner = match member {
                Ok((_, RawBsonRef::Document(object))) => Some(object),
                Ok((_, RawBsonRef::Array(list))) => list_as_object(list),
                Ok((_, RawBsonRef::JavaScriptCodeWithScope(code))) => Some(code.scope),
                Ok(_) => None,
                Err(e) => {
                    self.report(Rank::Bytes, Code::BadValue, format!("the filter is not a BSON document: {e}"));
                    return;
                }
            };
            if let Some(inner) = inner {
                self.check_bytes(inner, level + 1);
            }
        }
    }

    fn no_operator(&mut self, name: &str, path: Option<&Path>) {
        let place = path.map_or(String::new(), |path| format!("field '{path}': "));
        match self.purpose {
            Purpose::Partial => {
                let message =
                    format!("{place}a partialFilterExpression cannot have {name}; it takes {PARTIAL_OPERATORS}");
                self.report(Rank::Operator, Code::CannotCreateIndex, message);
            }
            Purpose::Find => {
                let message = match path {
                    Some(_) => format!("{place}unknown operator {name}; operators on a field are {OPERATORS}"),
                    None if matches!(name, "$expr" | "$sampleRate") => format!(
                        "{name} is not available here: a $match takes it, and a find, count and distinct of a server, at \
                         the top and within $and, $or and $nor"
                    ),
                    None => format!("unknown operator {name}; operators on no field are $and, $or and $nor"),
                };
                self.report(Rank::Operator, Code::BadValue, message);
            }
        }
    }

    fn object(&mut self, filter: &RawDocument) -> Node {
        let mut parts = Vec::new();
        for (name, value) in filter.iter().map_while(std::result::Result::ok) {
            match name.as_str() {
                "$and" => parts.push(Node::And(self.clauses("$and", value))),
                "$or" => parts.push(Node::Or(self.clauses("$or", value))),
                "$nor" if self.purpose == Purpose::Find => {
                    parts.push(Node::Not(Box::new(Node::Or(self.clauses("$nor", value)))));
                }
                "$comment" if self.purpose == Purpose::Find => {}
                // What a DBRef is made of.
                name @ ("$ref" | "$id" | "$db") if self.purpose == Purpose::Find => {
                    parts.push(Node::Field(Path::new(name), Test::Compare(Comparison::Eq, owned(value))));
                }
                operator if operator.starts_with('$') => self.no_operator(operator, None),
                path => parts.push(self.field(&Path::new(path), value)),
            }
        }
        match parts.len() {
            1 => parts.remove(0),
            _ => Node::And(parts),
        }
    }

    fn clauses(&mut self, operator: &str, value: RawBsonRef<'_>) -> Vec<Node> {
        let RawBsonRef::Array(clauses) = value else {
            self.bad(format!("{operator} needs a list of filters, not {}", type_name(value)));
            return Vec::new();
        };
        if clauses.is_empty() {
            self.bad(format!("{operator} needs a list of at least one filter"));
        }
        let mut nodes = Vec::new();
        for (i, clause) in clauses.into_iter().map_while(std::result::Result::ok).enumerate() {
            match clause {
                RawBsonRef::Document(clause) => {
                    if clause.is_empty() && self.purpose == Purpose::Partial {
                        let message =
                            format!("{operator}, filter {i}: an empty filter matches every document; omit it");
                        self.report(Rank::Emptiness, Code::InvalidOptions, message);
                    }
                    nodes.push(self.object(clause));
                }
                other => self.bad(format!("{operator}, filter {i}: must be an object, not {}", type_name(other))),
            }
        }
        nodes
    }

    /// `path: value`, where the value is a constant or an object of operators.
    fn field(&mut self, path: &Path, value: RawBsonRef<'_>) -> Node {
        if let Some(operators) = operators(value) {
            return self.conditions(path, operators).on(path);
        }
        let condition = match value {
            RawBsonRef::RegularExpression(regex) => self.regex(path, regex.pattern.as_str(), regex.options.as_str()),
            constant => self.comparison(path, Comparison::Eq, constant),
        };
        condition.on(path)
    }

    /// All operators of an object.
    fn conditions(&mut self, path: &Path, operators: &RawDocument) -> Condition {
        let mut all = Vec::new();
        for (name, operand) in operators.iter().map_while(std::result::Result::ok) {
            all.extend(self.operator(path, operators, name.as_str(), operand));
        }
        Condition::All(all)
    }

    fn operator(&mut self, path: &Path, all: &RawDocument, name: &str, operand: RawBsonRef<'_>) -> Option<Condition> {
        match name {
            "$eq" => return Some(self.comparison(path, Comparison::Eq, operand)),
            "$gt" => return Some(self.comparison(path, Comparison::Gt, operand)),
            "$gte" => return Some(self.comparison(path, Comparison::Gte, operand)),
            "$lt" => return Some(self.comparison(path, Comparison::Lt, operand)),
            "$lte" => return Some(self.comparison(path, Comparison::Lte, operand)),
            "$in" => return Some(self.list_of_values(path, name, operand)),
            "$exists" => {
                let test = Condition::Test(Test::Exists);
                if operands::is_true(operand) {
                    return Some(test);
                }
                if self.purpose == Purpose::Partial {
                    self.no_operator("$exists: false", Some(path));
                }
                return Some(Condition::Not(Box::new(test)));
            }
            "$type" => {
                return Some(match operands::types(operand) {
                    Ok(types) => Condition::Test(Test::Type(types)),
                    Err((code, message)) => {
                        self.report(Rank::Operand, code, format!("field '{path}': {message}"));
                        Condition::Never
                    }
                });
            }
            _ => {}
        }
        if self.purpose == Purpose::Partial {
            self.no_operator(name, Some(path));
            return None;
        }
        self.find_operator(path, all, name, operand)
    }

    /// An operator that partial filters do not have.
    fn find_operator(
        &mut self,
        path: &Path,
        all: &RawDocument,
        name: &str,
        operand: RawBsonRef<'_>,
    ) -> Option<Condition> {
        let condition = match name {
            "$ne" => {
                if matches!(operand, RawBsonRef::RegularExpression(_)) {
                    self.bad(format!("field '{path}': $ne takes no regular expression; use $not"));
                }
                Condition::Not(Box::new(self.comparison(path, Comparison::Eq, operand)))
            }
            "$nin" => Condition::Not(Box::new(self.list_of_values(path, name, operand))),
            "$not" => Condition::Not(Box::new(self.negated(path, operand))),
            "$all" => self.all(path, operand),
            "$elemMatch" => self.element(path, operand),
            "$size" => self.tested(path, operands::size(operand).map(Test::Size)),
            "$mod" => self.tested(path, operands::modulo(operand).map(|(d, r)| Test::Mod(d, r))),
            "$regex" => match operands::regex(all) {
                Ok((pattern, options)) => self.regex(path, &pattern, &options),
                Err(message) => self.tested(path, Err(message)),
            },
            "$options" if matches!(all.get("$regex"), Ok(Some(_))) => return None,
            "$options" => self.tested(path, Err("$options needs a $regex beside it".to_owned())),
            _ => {
                self.no_operator(name, Some(path));
                Condition::Never
            }
        };
        Some(condition)
    }

    /// A test, or the fault of its operand.
    fn tested(&mut self, path: &Path, test: std::result::Result<Test, String>) -> Condition {
        match test {
            Ok(test) => Condition::Test(test),
            Err(message) => {
                self.bad(format!("field '{path}': {message}"));
                Condition::Never
            }
        }
    }

    fn comparison(&mut self, path: &Path, comparison: Comparison, operand: RawBsonRef<'_>) -> Condition {
        let refused = match operand {
            RawBsonRef::Undefined => Some("undefined"),
            RawBsonRef::RegularExpression(_) if comparison != Comparison::Eq => Some("a regular expression"),
            _ => None,
        };
        if let Some(what) = refused {
            self.bad(format!("field '{path}': {} cannot compare with {what}", comparison.operator()));
        }
        Condition::Test(Test::Compare(comparison, owned(operand)))
    }

    fn regex(&mut self, path: &Path, pattern: &str, options: &str) -> Condition {
        if self.purpose == Purpose::Partial {
            self.no_operator("$regex", Some(path));
        }
        match Pattern::new(pattern, options) {
            Ok(pattern) => Condition::Test(Test::Regex(pattern)),
            Err((code, message)) => {
                self.report(Rank::Operand, code, format!("field '{path}': {message}"));
                Condition::Never
            }
        }
    }

    /// The list of `$in` and `$nin`.
    fn list_of_values(&mut self, path: &Path, operator: &str, operand: RawBsonRef<'_>) -> Condition {
        let RawBsonRef::Array(list) = operand else {
            self.bad(format!("field '{path}': {operator} needs a list, not {}", type_name(operand)));
            return Condition::Never;
        };
        let (mut values, mut patterns) = (Vec::new(), Vec::new());
        for value in list.into_iter().map_while(std::result::Result::ok) {
            match value {
                RawBsonRef::RegularExpression(regex) => {
                    let condition = self.regex(path, regex.pattern.as_str(), regex.options.as_str());
                    if let Condition::Test(Test::Regex(pattern)) = condition {
                        patterns.push(pattern);
                    }
                }
                RawBsonRef::Undefined => self.bad(format!("field '{path}': {operator} cannot compare with undefined")),
                _ if operators(value).is_some() => {
                    self.bad(format!("field '{path}': {operator} takes values; its list cannot hold operators"));
                }
                _ => values.push(owned(value)),
            }
        }
        values.sort_by(|a, b| compare(a.as_raw_bson_ref(), b.as_raw_bson_ref()));
        Condition::Test(Test::In(values, patterns))
    }

    fn negated(&mut self, path: &Path, operand: RawBsonRef<'_>) -> Condition {
        match operand {
            RawBsonRef::RegularExpression(regex) => self.regex(path, regex.pattern.as_str(), regex.options.as_str()),
            RawBsonRef::Document(object) if !object.is_empty() => self.conditions(path, object),
            _ => {
                let message = format!("field '{path}': $not needs a regular expression or an object of operators");
                self.bad(message);
                Condition::Never
            }
        }
    }

    fn all(&mut self, path: &Path, operand: RawBsonRef<'_>) -> Condition {
        let RawBsonRef::Array(list) = operand else {
            self.bad(format!("field '{path}': $all needs a list, not {}", type_name(operand)));
            return Condition::Never;
        };
        let elements = || list.into_iter().map_while(std::result::Result::ok);
        let element_match = |value| match value {
            RawBsonRef::Document(object) => match object.iter().next() {
                Some(Ok((name, operand))) if name.as_str() == "$elemMatch" => Some(operand),
                _ => None,
            },
            _ => None,
        };
        let has_element_matches = elements().next().is_some_and(|first| element_match(first).is_some());
        let mut all = Vec::new();
        for value in elements() {
            let condition = match (value, element_match(value)) {
                (_, Some(operand)) if has_element_matches => self.element(path, operand),
                _ if has_element_matches => {
                    self.bad(format!("field '{path}': if $all has one $elemMatch, all its elements must be one"));
                    continue;
                }
                (RawBsonRef::RegularExpression(regex), _) => {
                    self.regex(path, regex.pattern.as_str(), regex.options.as_str())
                }
                _ if operators(value).is_some() => {
                    self.bad(format!("field '{path}': $all takes values or $elemMatch, no other operators"));
                    continue;
                }
                _ => self.comparison(path, Comparison::Eq, value),
            };
            all.push(condition);
        }
        if all.is_empty() { Condition::Never } else { Condition::All(all) }
    }

    /// `$elemMatch`: with operators on the element itself, or a filter on elements that are objects.
    fn element(&mut self, path: &Path, operand: RawBsonRef<'_>) -> Condition {
        let RawBsonRef::Document(object) = operand else {
            self.bad(format!("field '{path}': $elemMatch needs an object, not {}", type_name(operand)));
            return Condition::Never;
        };
        let first = match object.iter().next() {
            Some(Ok((name, _))) => name.as_str(),
            _ => "",
        };
        let is_filter = !first.starts_with('$')
            || matches!(first, "$and" | "$or" | "$nor" | "$comment")
            || is_reference(object, References::Partly);
        Condition::Test(if is_filter {
            Test::ElementObject(Box::new(self.object(object)))
        } else {
            Test::ElementValue(Box::new(self.conditions(path, object)))
        })
    }
}
