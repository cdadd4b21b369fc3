//! Filters of finds on measurements that have conditions which cannot be evaluated on columns.
//!
//! 1. Every condition that can be evaluated on columns is: times are compared at full precision, objects regardless of the order of
//!    their members, and all numbers are one type. So a condition has the same meaning with any other condition beside it.
//! 2. The others ($regex, $mod, $size, $elemMatch and some values of $all, $in and $type) are evaluated on the document. If a condition
//!    contains objects, the members of its objects and of the document's are sorted first.

use crate::error::Result;
use bson::raw::{CStr, RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use ebbtide::value_of_bson;
use ebbtide_documents::Purpose;
use ebbtide_ttl::{Filter, Value};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;

/// What a measurement must meet.
#[derive(Debug)]
pub(crate) enum Condition {
    Columns(Filter),
    /// Evaluated on the document; if it contains objects, on the document with sorted members.
    Document {
        filter: Box<ebbtide_documents::Filter>,
        has_objects: bool,
    },
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
}

/// A row as conditions see it.
struct Row<'a, 'v> {
    column: &'a dyn Fn(&str) -> Cow<'v, Value>,
    document: &'a RawDocument,
    /// The document with the members of its objects sorted, once it is needed.
    in_order: OnceCell<RawDocumentBuf>,
}

/// A filter that can be evaluated on columns alone.
pub(crate) fn of_columns(filter: &RawDocument) -> Result<Filter> {
    Ok(Filter::parse_query(&value_of_bson(RawBsonRef::Document(filter))?)?)
}

/// Splits a filter into the part that is evaluated on columns and the other conditions. A row matches if both parts hold.
pub(crate) fn split(filter: &RawDocument) -> Result<(Filter, Vec<Condition>)> {
    let refused = match of_columns(filter) {
        Ok(columns) => return Ok((columns, Vec::new())),
        Err(refused) => refused,
    };
    // The operand of an operator that columns do not support may be invalid.
    ebbtide_documents::Filter::parse(filter, Purpose::Find)?;
    let Some(all) = conjuncts(filter) else { return Err(refused) };
    let (mut columns, mut others) = (Vec::new(), Vec::new());
    for condition in all {
        match condition {
            Condition::Columns(filter) => columns.push(filter),
            other => others.push(other),
        }
    }
    Ok((Filter::and(columns), others))
}

/// Whether a row meets all conditions. `document` has the fields that they read.
pub(crate) fn all_hold<'v>(
    conditions: &[Condition],
    column: &dyn Fn(&str) -> Cow<'v, Value>,
    document: &RawDocument,
) -> bool {
    let row = Row { column, document, in_order: OnceCell::new() };
    conditions.iter().all(|condition| condition.holds(&row))
}

/// The conditions of a valid filter; `None` if one of them is not supported.
fn conjuncts(filter: &RawDocument) -> Option<Vec<Condition>> {
    let mut all = Vec::new();
    for (name, value) in filter.iter().map_while(std::result::Result::ok) {
        let member = one(name, value);
        if let Ok(columns) = of_columns(&member) {
            all.push(Condition::Columns(columns));
            continue;
        }
        match (name.as_str(), value) {
            ("$comment", _) => {}
            ("$and", RawBsonRef::Array(list)) => {
                for clause in list.into_iter().map_while(std::result::Result::ok) {
                    all.extend(conjuncts(clause.as_document()?)?);
                }
            }
            ("$or", RawBsonRef::Array(list)) => all.push(Condition::Any(clauses(list)?)),
            ("$nor", RawBsonRef::Array(list)) => {
                all.push(Condition::Not(Box::new(Condition::Any(clauses(list)?))));
            }
            (_, RawBsonRef::Document(object)) if has_operators(object) => match operators(name, object) {
                Some(each) => all.extend(each),
                // A DBRef.
                None => all.push(of_document(&member)?),
            },
            _ => all.push(of_document(&member)?),
        }
    }
    Some(all)
}

fn clauses(list: &RawArray) -> Option<Vec<Condition>> {
    let clause = |clause: RawBsonRef<'_>| Some(Condition::All(conjuncts(clause.as_document()?)?));
    list.into_iter().map_while(std::result::Result::ok).map(clause).collect()
}

/// The conditions of an object of operators, one for each operator; `None` if one of them is not supported.
fn operators(path: &CStr, object: &RawDocument) -> Option<Vec<Condition>> {
    let mut all = Vec::new();
    for (operator, operand) in object.iter().map_while(std::result::Result::ok) {
        match (operator.as_str(), operand) {
            ("$options", _) => continue,
            ("$all", RawBsonRef::Array(values)) if !values.is_empty() => {
                for value in values.into_iter().map_while(std::result::Result::ok) {
                    all.push(of_value(path, value)?);
                }
                continue;
            }
            _ => {}
        }
        let mut alone = one(operator, operand);
        if operator.as_str() == "$regex"
            && let Ok(Some(options)) = object.get("$options")
        {
            alone.append(bson::raw::cstr!("$options"), options);
        }
        let member = one(path, RawBsonRef::Document(&alone));
        all.push(match (of_columns(&member), operator.as_str(), operand) {
            (Ok(columns), ..) => Condition::Columns(columns),
            (_, "$not", RawBsonRef::Document(negated)) => {
                Condition::Not(Box::new(Condition::All(operators(path, negated)?)))
            }
            (_, "$in" | "$type", RawBsonRef::Array(values)) => any_of(path, operator, values)?,
            (_, "$nin", RawBsonRef::Array(values)) => {
                Condition::Not(Box::new(any_of(path, bson::raw::cstr!("$in"), values)?))
            }
            _ => of_document(&member)?,
        });
    }
    Some(all)
}

/// `$in` or `$type` of a list of which some values cannot be evaluated on columns: the others can.
fn any_of(path: &CStr, operator: &CStr, values: &RawArray) -> Option<Condition> {
    let of = |values: &RawArrayBuf| one(path, RawBsonRef::Document(&one(operator, RawBsonRef::Array(values))));
    let (mut columns, mut others) = (RawArrayBuf::new(), RawArrayBuf::new());
    for value in values.into_iter().map_while(std::result::Result::ok) {
        let is_of_columns = of_columns(&of(&RawArrayBuf::from_iter([value]))).is_ok();
        if is_of_columns { columns.push(value) } else { others.push(value) }
    }
    let mut parts = vec![of_document(&of(&others))?];
    if !columns.is_empty() {
        parts.insert(0, Condition::Columns(of_columns(&of(&columns)).ok()?));
    }
    Some(Condition::Any(parts))
}

/// The condition of one value of `$all`: the field, or an element of it, equals the value.
fn of_value(path: &CStr, value: RawBsonRef<'_>) -> Option<Condition> {
    let equals = one(bson::raw::cstr!("$eq"), value);
    let columns = match value {
        RawBsonRef::RegularExpression(_) => None,
        RawBsonRef::Document(object) if has_operators(object) => None,
        _ => of_columns(&one(path, RawBsonRef::Document(&equals))).ok(),
    };
    if let Some(columns) = columns {
        return Some(Condition::Columns(columns));
    }
    let values = RawArrayBuf::from_iter([value]);
    let all = one(bson::raw::cstr!("$all"), RawBsonRef::Array(&values));
    of_document(&one(path, RawBsonRef::Document(&all)))
}

fn of_document(condition: &RawDocument) -> Option<Condition> {
    let has_objects = condition.iter().map_while(std::result::Result::ok).any(|(_, value)| match value {
        RawBsonRef::Document(object) if has_operators(object) => {
            object.iter().map_while(std::result::Result::ok).any(|(_, operand)| has_object(operand))
        }
        value => has_object(value),
    });
    let condition: Cow<'_, RawDocument> =
        if has_objects { Cow::Owned(in_order(condition)) } else { Cow::Borrowed(condition) };
    let filter = Box::new(ebbtide_documents::Filter::parse(&condition, Purpose::Find).ok()?);
    Some(Condition::Document { filter, has_objects })
}

/// A document of one member.
fn one(name: &CStr, value: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut member = RawDocumentBuf::new();
    member.append(name, value);
    member
}

fn has_operators(object: &RawDocument) -> bool {
    object.iter().next().and_then(std::result::Result::ok).is_some_and(|(name, _)| name.as_str().starts_with('$'))
}

fn has_object(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(_) => true,
        RawBsonRef::Array(list) => list.into_iter().map_while(std::result::Result::ok).any(has_object),
        _ => false,
    }
}

/// A document with the members of all objects sorted. Names that begin with '$' come last: an object that begins with one may
/// be read as operators.
fn in_order(document: &RawDocument) -> RawDocumentBuf {
    let mut members: Vec<_> = document.iter().map_while(std::result::Result::ok).collect();
    members.sort_by(|(a, _), (b, _)| {
        let (a, b) = (a.as_str(), b.as_str());
        (a.starts_with('$'), a).cmp(&(b.starts_with('$'), b))
    });
    let mut ordered = RawDocumentBuf::new();
    members.into_iter().for_each(|(name, value)| ordered.append(name, value_in_order(value)));
    ordered
}

fn value_in_order(value: RawBsonRef<'_>) -> RawBson {
    match value {
        RawBsonRef::Document(object) => RawBson::Document(in_order(object)),
        RawBsonRef::Array(list) => {
            RawBson::Array(list.into_iter().map_while(std::result::Result::ok).map(value_in_order).collect())
        }
        other => RawBson::from(other),
    }
}

impl Condition {
    fn holds(&self, row: &Row<'_, '_>) -> bool {
        match self {
            Condition::Columns(filter) => filter.matches(row.column),
            Condition::Document { filter, has_objects: false } => filter.matches(row.document),
            Condition::Document { filter, has_objects: true } => {
                filter.matches(row.in_order.get_or_init(|| in_order(row.document)))
            }
            Condition::All(parts) => parts.iter().all(|part| part.holds(row)),
            Condition::Any(parts) => parts.iter().any(|part| part.holds(row)),
            Condition::Not(inner) => !inner.holds(row),
        }
    }

    /// Adds the top-level fields that it asks for.
    pub(crate) fn add_fields(&self, fields: &mut BTreeSet<String>) {
        match self {
            Condition::Columns(filter) => fields.extend(filter.fields().into_iter().map(str::to_owned)),
            Condition::Document { filter, .. } => fields.extend(filter.fields()),
            Condition::All(parts) | Condition::Any(parts) => parts.iter().for_each(|part| part.add_fields(fields)),
            Condition::Not(inner) => inner.add_fields(fields),
        }
    }
}
