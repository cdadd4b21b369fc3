//! Updates of single documents: a new document, or operators such as `$set` and `$push`.
//!
//! 1. An update is read once and applied to any number of documents. Applying it to a document gives a new document or an
//!    error; nothing is changed in place.
//! 2. What an update does not name is copied byte for byte. A result that equals the document as bytes is reported as no
//!    change, unless a `$push` has inserted, sorted or cut off elements.
//! 3. All operators act on the document in the order of their paths, whatever the order in which they are written: names
//!    in the order of their bytes, numbers by value. So new fields are appended in that order, as in MongoDB since 5.0.
//! 4. The `_id` of a document never changes.

mod apply;
mod list;
mod number;
mod parse;
mod path;
mod tree;
mod upsert;

pub(crate) use list::{ElementSort, WrongSort};

use crate::json::relaxed_value_text;
use crate::paths::member;
use crate::raw::type_name;
use crate::validate::check;
use crate::{Code, Result, RuleError};
use apply::{Change, Occasion};
use bson::RawDocument;
use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};
use std::cell::Cell;
use tree::{Node, Room, damaged};
use upsert::Wanted;

/// An update of documents, as `update` and `findAndModify` take it.
///
/// ```
/// use ebbtide_documents::{Update, bson::rawdoc};
///
/// let update = Update::parse((&rawdoc! { "$inc": { "visits": 1 } }).into(), false)?;
/// let document = rawdoc! { "_id": 7, "visits": 4 };
/// assert_eq!(update.apply(&document, 0)?, Some(rawdoc! { "_id": 7, "visits": 5 }));
/// # Ok::<(), ebbtide_documents::RuleError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Update(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// The new document; without an `_id` it keeps that of the old one.
    Replacement(RawDocumentBuf),
    /// In the order of their paths.
    Operators(Vec<Change>),
}

impl Update {
    /// Reads an update: a document whose first name starts with `$` holds operators, any other replaces the document.
    /// `multi` says that all documents that match will be updated.
    ///
    /// # Errors
    /// `FailedToParse` for other operators, for `$`, `$[]` and `$[x]` in paths, for a pipeline (a list) and for a
    /// replacement of many documents; `DollarPrefixedFieldName` for a top-level name that starts with `$`;
    /// `ConflictingUpdateOperators` for two operators at one path or within each other's; `EmptyFieldName`, `BadValue`,
    /// `TypeMismatch` for paths and arguments that cannot be.
    pub fn parse(update: RawBsonRef<'_>, multi: bool) -> Result<Update> {
        let refused = |message: String| Err(RuleError::new(Code::FailedToParse, message));
        let update = match update {
            RawBsonRef::Document(update) => update,
            RawBsonRef::Array(_) => {
                return refused(
                    "u: an update as a pipeline (a list) is not available; use operators such as $set".into(),
                );
            }
            other => {
                let message =
                    format!("u: expected a document or update operators, got a value of type {}", type_name(other));
                return refused(message);
            }
        };
        let names: Vec<_> = update
            .iter()
            .map(|member| member.map(|(name, _)| name.as_str()))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| damaged(&error))?;
        if names.first().is_some_and(|name| name.starts_with('$')) {
            return parse::operators(update).map(|changes| Update(Kind::Operators(changes)));
        }
        if let Some(name) = names.iter().find(|name| name.starts_with('$')) {
            let message =
                format!("u: '{name}' in a document that replaces another; write fields or operators, not both");
            return Err(RuleError::new(Code::DollarPrefixedFieldName, message));
        }
        if multi {
            return refused(
                "u: a document can replace one document only; use operators such as $set with multi".into(),
            );
        }
        Ok(Update(Kind::Replacement(update.to_owned())))
    }

    /// The document after the update; `None` if that changes nothing. What a `$push` inserts, sorts or cuts off is a change even if
    /// every byte is as it was, as in MongoDB. `now_ms` is what `$currentDate` writes,
    /// in milliseconds since 1970.
    ///
    /// # Errors
    /// `ImmutableField` for a change of `_id`; `PathNotViable`, `TypeMismatch`, `BadValue` and `CannotBackfillArray` where
    /// an operator does not fit what the document holds; `BSONObjectTooLarge`, and `BadValue` for too many levels, of the
    /// result. The message names the operator and the path.
    pub fn apply(&self, document: &RawDocument, now_ms: i64) -> Result<Option<RawDocumentBuf>> {
        let (room, is_change) = (Room::new(), Cell::new(false));
        let occasion = Occasion { now_ms, is_insert: false, room: &room, is_change: &is_change };
        let updated = self.updated(document, occasion)?;
        if updated.as_bytes() == document.as_bytes() && !is_change.get() {
            return Ok(None);
        }
        check(&updated)?;
        Ok(Some(updated))
    }

    /// The document that an upsert inserts when none matches its query: what the query says that fields are equal to, and
    /// the update with `$setOnInsert`. A replacement takes `_id` alone from the query.
    ///
    /// The query's equalities are implicit ones, `$eq`, `$in` with one value, `$all`, those within `$and` and those of an
    /// `$or` with one alternative. `_id` comes first; where neither query nor update gives it, the caller adds one.
    ///
    /// # Errors
    /// As [`Update::apply`]; `NotSingleValueField` if the query gives two values for a field, `NotExactValueField` if it
    /// gives a part of the `_id` of a replacement.
    pub fn upsert(&self, query: &RawDocument, now_ms: i64) -> Result<RawDocumentBuf> {
        let wanted = match &self.0 {
            Kind::Replacement(_) => Wanted::Id,
            Kind::Operators(_) => Wanted::All,
        };
        let seed = upsert::seed(query, wanted)?;
        let (room, is_change) = (Room::new(), Cell::new(false));
        let document = self.updated(&seed, Occasion { now_ms, is_insert: true, room: &room, is_change: &is_change })?;
        check(&document)?;
        Ok(document)
    }

    /// Whether it replaces the whole document.
    #[must_use]
    pub fn is_replacement(&self) -> bool {
        matches!(self.0, Kind::Replacement(_))
    }

    fn updated(&self, document: &RawDocument, occasion: Occasion<'_>) -> Result<RawDocumentBuf> {
        match &self.0 {
            Kind::Replacement(new) => replaced(document, new),
            Kind::Operators(changes) => {
                let mut tree = Node::document(document)?;
                for change in changes {
                    change.apply(&mut tree, occasion)?;
                }
                let updated = tree.into_document();
                match (member(document, "_id"), member(&updated, "_id")) {
                    (None, Some(id)) => Ok(with_id_first(id, &updated)),
                    (Some(old), new) if !new.is_some_and(|new| same_bytes(old, new)) => Err(changed_id(changes, old)),
                    _ => Ok(updated),
                }
            }
        }
    }
}

/// The new document, with the old one's `_id` where it has none.
fn replaced(old: &RawDocument, new: &RawDocument) -> Result<RawDocumentBuf> {
    match (member(old, "_id"), member(new, "_id")) {
        (Some(id), None) => Ok(with_id_first(id, new)),
        (Some(old_id), Some(new_id)) if crate::compare(old_id, new_id).is_ne() => {
            crate::id_key(new_id)?;
            let message = format!(
                "u: the replacement has the _id {}, and the document has {}; leave _id out, or delete and insert",
                relaxed_value_text(new_id),
                relaxed_value_text(old_id)
            );
            Err(RuleError::new(Code::ImmutableField, message))
        }
        (_, Some(id)) => Ok(with_id_first(id, new)),
        (None, None) => Ok(new.to_owned()),
    }
}

/// The document with this `_id` as its first member.
fn with_id_first(id: RawBsonRef<'_>, document: &RawDocument) -> RawDocumentBuf {
    let mut result = RawDocumentBuf::new();
    result.append(cstr!("_id"), id);
    for (name, value) in document.iter().map_while(std::result::Result::ok).filter(|(name, _)| name.as_str() != "_id") {
        result.append(name, value);
    }
    result
}

fn same_bytes(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> bool {
    let bytes = |value| {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!(""), value);
        document
    };
    bytes(a) == bytes(b)
}

fn changed_id(changes: &[Change], id: RawBsonRef<'_>) -> RuleError {
    let culprit = changes.iter().find(|change| change.paths().any(|path| path.field() == "_id"));
    let id = relaxed_value_text(id);
    let message = format!("would change the _id {id}, which never changes; delete the document and insert another");
    match culprit {
        Some(change) => change.error(Code::ImmutableField, &message),
        None => RuleError::new(Code::ImmutableField, format!("the update {message}")),
    }
}

#[cfg(test)]
mod tests;
