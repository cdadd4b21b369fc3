//! `$match` with `$expr` or `$sampleRate`, at its top or within `$and`, `$or` and `$nor`.
//!
//! Only stages ask it: an expression can fail, and a filter that collections are asked cannot. `$sampleRate` is the expression that
//! compares a random number with it.

use super::Result;
use crate::expression::{Constants, Expression, Moment, is_true, members};
use crate::json::DEPTH_MAX;
use crate::order::Number;
use crate::raw::{owned, type_name};
use crate::{ExpressionError, Filter, Purpose};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;

/// What a document must meet.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    Filter(Box<Filter>),
    Expression(Expression),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
}

/// Splits a filter in two: the members that a [`Filter`] can hold, and those that are `$expr` or `$sampleRate` or contain them within
/// `$and`, `$or` and `$nor`. A document matches the filter if it matches both. An `$and` is split too.
///
/// ```
/// use ebbtide_documents::{bson::rawdoc, split_expressions};
///
/// let filter = rawdoc! { "a": 1, "$or": [{ "b": 1 }, { "$expr": { "$gt": ["$b", "$c"] } }] };
/// let (asked, computed) = split_expressions(&filter);
/// assert_eq!(asked, rawdoc! { "a": 1 });
/// assert_eq!(computed, rawdoc! { "$or": [{ "b": 1 }, { "$expr": { "$gt": ["$b", "$c"] } }] });
/// ```
#[must_use]
pub fn split_expressions(filter: &RawDocument) -> (RawDocumentBuf, RawDocumentBuf) {
    let (mut asked, mut computed) = (RawDocumentBuf::new(), RawDocumentBuf::new());
    for (name, value) in filter.iter().map_while(std::result::Result::ok) {
        match value {
            _ if !has_expression(name.as_str(), value, 1) => asked.append(name, value),
            RawBsonRef::Array(clauses) if name.as_str() == "$and" => {
                let is_computed = |clause: &RawBsonRef<'_>| clause.as_document().is_some_and(has_expressions);
                let clauses = clauses.into_iter().map_while(std::result::Result::ok);
                let (with, without): (Vec<_>, Vec<_>) = clauses.partition(is_computed);
                if !without.is_empty() {
                    asked.append(name, RawArrayBuf::from_iter(without));
                }
                computed.append(name, RawArrayBuf::from_iter(with));
            }
            value => computed.append(name, value),
        }
    }
    (asked, computed)
}

/// Whether a filter has `$expr` or `$sampleRate` at its top or within `$and`, `$or` and `$nor`.
#[must_use]
pub fn has_expressions(filter: &RawDocument) -> bool {
    filter.iter().map_while(std::result::Result::ok).any(|(name, value)| has_expression(name.as_str(), value, 1))
}

/// What is too deep is left to the filter, which refuses it.
fn has_expression(name: &str, value: RawBsonRef<'_>, level: usize) -> bool {
    match (name, value) {
        ("$expr" | "$sampleRate", _) => true,
        ("$and" | "$or" | "$nor", RawBsonRef::Array(clauses)) if level < DEPTH_MAX => {
            clauses.into_iter().map_while(std::result::Result::ok).filter_map(RawBsonRef::as_document).any(|clause| {
                let mut members = clause.iter().map_while(std::result::Result::ok);
                members.any(|(name, value)| has_expression(name.as_str(), value, level + 1))
            })
        }
        _ => false,
    }
}

impl Condition {
    /// Reads a filter that may have `$expr` and `$sampleRate`.
    pub(super) fn parse(filter: &RawDocument, constants: &Constants) -> Result<Condition> {
        Condition::parse_at(filter, constants, 1)
    }

    fn parse_at(filter: &RawDocument, constants: &Constants, level: usize) -> Result<Condition> {
        if level > DEPTH_MAX {
            return Err(ExpressionError::new(2, format!("a filter nests deeper than {DEPTH_MAX} levels")));
        }
        let clauses = |name: &str, value| clauses(name, value, constants, level);
        let (asked, computed) = split_expressions(filter);
        let mut all = Vec::new();
        // An expression that fails is not asked for a document that does not match the rest.
        if !asked.is_empty() || computed.is_empty() {
            all.push(Condition::Filter(Box::new(Filter::parse(&asked, Purpose::Find)?)));
        }
        for (name, value) in members(&computed) {
            all.push(match name {
                "$and" => Condition::All(clauses(name, value)?),
                "$or" => Condition::Any(clauses(name, value)?),
                "$nor" => Condition::Not(Box::new(Condition::Any(clauses(name, value)?))),
                "$sampleRate" => Condition::Expression(sample(value, constants)?),
                _ => Condition::Expression(constants.expression(value)?),
            });
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Condition::All(all) })
    }

    pub(super) fn check_constants(&self) -> Result<()> {
        match self {
            Condition::Filter(_) => Ok(()),
            Condition::Expression(expression) => expression.check_constants(),
            Condition::All(parts) | Condition::Any(parts) => parts.iter().try_for_each(Condition::check_constants),
            Condition::Not(inner) => inner.check_constants(),
        }
    }

    /// Adds the top-level fields that it needs; whether these are known.
    pub(super) fn add_fields(&self, fields: &mut Vec<String>) -> bool {
        match self {
            Condition::Filter(filter) => {
                fields.extend(filter.fields());
                true
            }
            Condition::Expression(expression) => expression.add_fields(fields),
            Condition::All(parts) | Condition::Any(parts) => parts.iter().all(|part| part.add_fields(fields)),
            Condition::Not(inner) => inner.add_fields(fields),
        }
    }

    /// Whether a document meets it.
    pub(super) fn holds(&self, document: &RawDocument, moment: Moment<'_>) -> Result<bool> {
        match self {
            Condition::Filter(filter) => Ok(filter.matches(document)),
            Condition::Expression(expression) => Ok(is_true(&expression.evaluate_at(document, moment)?)),
            Condition::All(parts) => Ok(!Condition::some(parts, false, document, moment)?),
            Condition::Any(parts) => Condition::some(parts, true, document, moment),
            Condition::Not(inner) => Ok(!inner.holds(document, moment)?),
        }
    }

    /// Whether a document meets one of the parts, or does not meet one of them.
    fn some(parts: &[Condition], wanted: bool, document: &RawDocument, moment: Moment<'_>) -> Result<bool> {
        for part in parts {
            if part.holds(document, moment)? == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The expression for `$sampleRate`, which holds for this part of all documents, chosen at random.
fn sample(rate: RawBsonRef<'_>, constants: &Constants) -> Result<Expression> {
    let wrong = |what: &str| ExpressionError::new(2, what);
    let part = Number::of(rate).ok_or_else(|| wrong("argument to $sampleRate must be a numeric type"))?;
    if part.is_nan() || part.compare(Number::Int(0)).is_lt() || part.compare(Number::Int(1)).is_gt() {
        return Err(wrong("numeric argument to $sampleRate must be in [0, 1]"));
    }
    constants.expression(RawBsonRef::Document(&rawdoc! { "$lt": [{ "$rand": {} }, owned(rate)] }))
}

/// The filters of `$and`, `$or` or `$nor`: first those that cannot fail.
fn clauses(operator: &str, value: RawBsonRef<'_>, constants: &Constants, level: usize) -> Result<Vec<Condition>> {
    let RawBsonRef::Array(list) = value else { return Ok(Vec::new()) };
    let clause = |clause| match clause {
        RawBsonRef::Document(clause) => Condition::parse_at(clause, constants, level + 1),
        other => {
            let message = format!("{operator}: each filter must be an object, not {}", type_name(other));
            Err(ExpressionError::new(2, message))
        }
    };
    let mut clauses =
        list.into_iter().map_while(std::result::Result::ok).map(clause).collect::<Result<Vec<Condition>>>()?;
    clauses.sort_by_key(|clause| !matches!(clause, Condition::Filter(_)));
    Ok(clauses)
}
