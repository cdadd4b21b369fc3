//! What the query of an upsert says of the document that it makes.

use super::path::UpdatePath;
use super::tree::{Node, Reached, Room, damaged};
use crate::{Code, Result, RuleError};
use bson::RawDocument;
use bson::raw::{CStr, RawBsonRef, RawDocumentBuf};

/// Which of the query's equalities count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All, for update operators.
    All,
    /// That of `_id`, for a replacement.
    Id,
}

type Equality<'a> = (&'a CStr, RawBsonRef<'a>);

/// The document that the query describes, `_id` first and other fields in the order of their paths.
pub(super) fn seed(query: &RawDocument, wanted: Wanted) -> Result<RawDocumentBuf> {
    let mut equalities = Vec::new();
    collect(query, &mut equalities)?;
    if wanted == Wanted::Id {
        equalities.retain(|(path, _)| path.as_str().split('.').next() == Some("_id"));
        if let Some((path, _)) = equalities.iter().find(|(path, _)| path.as_str() != "_id") {
            let message = format!(
                "the upsert of a replacement needs the whole _id, and its query gives '{path}'; write {{_id: {{...}}}}"
            );
            return Err(RuleError::new(Code::NotExactValueField, message));
        }
    }
    refuse_two_values(&equalities)?;
    equalities.sort_by_key(|(path, _)| (path.as_str().split('.').next() != Some("_id"), path.as_str()));
    let paths: Vec<UpdatePath> =
        equalities.iter().map(|(path, _)| UpdatePath::of_query(path)).collect::<Result<_>>()?;
    let (mut document, room) = (Node::Object(Vec::new()), Room::new());
    for (path, (_, value)) in paths.iter().zip(&equalities) {
        if let Reached::Missing(parent, from) = document.reach(path, path.names().len())? {
            parent.create(path, from, Node::Value(*value), &room)?;
        }
    }
    Ok(document.into_document())
}

/// Collects what the query says that fields are equal to.
fn collect<'a>(query: &'a RawDocument, equalities: &mut Vec<Equality<'a>>) -> Result<()> {
    for member in query {
        let (name, condition) = member.map_err(|error| damaged(&error))?;
        match (name.as_str(), condition) {
            ("$and", RawBsonRef::Array(parts)) => {
                for part in objects(parts) {
                    collect(part?, equalities)?;
                }
            }
            ("$or", RawBsonRef::Array(parts)) => {
                // Of several alternatives none is known to hold.
                let parts: Vec<_> = objects(parts).collect::<Result<_>>()?;
                if let [part] = parts.as_slice() {
                    collect(part, equalities)?;
                }
            }
            (operator, _) if operator.starts_with('$') => {}
            (_, RawBsonRef::RegularExpression(_)) => {}
            (_, RawBsonRef::Document(object)) if has_operators(object) => of_operators(name, object, equalities)?,
            (_, value) => equalities.push((name, value)),
        }
    }
    Ok(())
}

fn objects(parts: &bson::RawArray) -> impl Iterator<Item = Result<&RawDocument>> {
    parts.into_iter().filter_map(|part| match part {
        Ok(RawBsonRef::Document(object)) => Some(Ok(object)),
        Ok(_) => None,
        Err(error) => Some(Err(damaged(&error))),
    })
}

/// Whether it holds operators, and is no value. The names of a reference to another collection are none.
fn has_operators(object: &RawDocument) -> bool {
    let first = object.iter().next().and_then(std::result::Result::ok);
    first.is_some_and(|(name, _)| name.as_str().starts_with('$') && !matches!(name.as_str(), "$ref" | "$id" | "$db"))
}

fn of_operators<'a>(name: &'a CStr, operators: &'a RawDocument, equalities: &mut Vec<Equality<'a>>) -> Result<()> {
    for member in operators {
        let (operator, value) = member.map_err(|error| damaged(&error))?;
        match (operator.as_str(), value) {
            ("$eq", value) => equalities.push((name, value)),
            ("$in", RawBsonRef::Array(values)) => {
                let mut values = values.into_iter().filter_map(std::result::Result::ok);
                if let Some(first) = values.next()
                    && !matches!(first, RawBsonRef::RegularExpression(_))
                    && values.all(|value| crate::compare(first, value).is_eq())
                {
                    equalities.push((name, first));
                }
            }
            ("$all", RawBsonRef::Array(values)) => {
                let is_condition = |value: &RawBsonRef<'_>| match value {
                    RawBsonRef::RegularExpression(_) => true,
                    RawBsonRef::Document(object) => has_operators(object),
                    _ => false,
                };
                let values =
                    values.into_iter().filter_map(std::result::Result::ok).filter(|value| !is_condition(value));
                equalities.extend(values.map(|value| (name, value)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses two values for one path, and for a path and one within it.
fn refuse_two_values(equalities: &[Equality<'_>]) -> Result<()> {
    let mut paths: Vec<Vec<&str>> = equalities.iter().map(|(path, _)| path.as_str().split('.').collect()).collect();
    paths.sort();
    // Paths within a path follow it in this order.
    for pair in paths.windows(2) {
        if let [path, other] = pair
            && other.starts_with(path)
        {
            let message = format!(
                "the upsert's query gives values for '{}' and for '{}'; give one, and set the rest with $setOnInsert",
                path.join("."),
                other.join(".")
            );
            return Err(RuleError::new(Code::NotSingleValueField, message));
        }
    }
    Ok(())
}
