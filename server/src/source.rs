//! The collection that a command reads, and how its documents are found.

use crate::collections::indexes_of;
use crate::command::{Command, refuse_buckets};
use crate::error::Result;
use crate::profiler;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use ebbtide::{CollectionSnapshot, DocumentsSnapshot, Snapshot};
use ebbtide_documents::compare;
use ebbtide_ttl::Code;

/// A collection as it is now.
pub(crate) enum Source {
    Documents(DocumentsSnapshot),
    Measurements(CollectionSnapshot),
    /// The records of the profiler.
    Profile,
    /// None of this name, which reads as an empty one.
    Missing,
}

impl Source {
    pub(crate) fn of(command: &Command<'_>) -> Result<Source> {
        let name = command.collection()?;
        Source::within(command.existing()?.map(|database| database.snapshot()).as_ref(), name)
    }

    /// A collection of a database, if that exists.
    pub(crate) fn within(database: Option<&Snapshot>, name: &str) -> Result<Source> {
        refuse_buckets(name)?;
        let Some(snapshot) = database else { return Ok(Source::Missing) };
        if name == profiler::COLLECTION {
            return Ok(Source::Profile);
        }
        match snapshot.documents(name) {
            Ok(documents) => Ok(Source::Documents(documents)),
            Err(error) if error.code() == Code::NamespaceNotFound => Ok(Source::Missing),
            Err(_) => Ok(Source::Measurements(snapshot.collection(name)?)),
        }
    }
}

/// How a filter finds its documents, in MongoDB's words.
pub(crate) fn plan_of(source: &Source, filter: &RawDocument) -> String {
    match source {
        Source::Documents(snapshot) => plan_of_documents(snapshot, filter),
        Source::Measurements(_) => "TS_SCAN".to_owned(),
        Source::Profile => "COLLSCAN".to_owned(),
        Source::Missing => "EOF".to_owned(),
    }
}

pub(crate) fn plan_of_documents(snapshot: &DocumentsSnapshot, filter: &RawDocument) -> String {
    // One that is wrong has no plan.
    let Ok(name) = snapshot.index_for(filter) else { return String::new() };
    let key = snapshot.options().indexes.iter().find(|index| Some(&index.name) == name.as_ref());
    match (name.as_deref(), key) {
        (Some("_id_"), _) => "IDHACK".to_owned(),
        (Some(_), Some(index)) => {
            let parts: Vec<_> = index.key.iter().map(|(path, direction)| format!("{path}: {direction}")).collect();
            format!("IXSCAN {{ {} }}", parts.join(", "))
        }
        _ => "COLLSCAN".to_owned(),
    }
}

/// Checks that the index of a hint exists, as [`wrong_hint`] says.
pub(crate) fn check_hint(command: &Command<'_>, hint: Option<RawBsonRef<'_>>) -> Result<()> {
    wrong_hint(command, hint).map_or(Ok(()), |error| Err(error.into()))
}

/// What is wrong with a hint: it is the name or the key of an index that exists, or `$natural`. Which index is used is decided
/// without it.
pub(crate) fn wrong_hint(command: &Command<'_>, hint: Option<RawBsonRef<'_>>) -> Option<ebbtide::Error> {
    let is_named = |name: &str, wanted: RawBsonRef<'_>| -> bool {
        // Compared as numbers, since a direction of 1.0 is that of 1.
        let has =
            |index: &RawDocumentBuf| index.get(name).ok().flatten().is_some_and(|known| compare(known, wanted).is_eq());
        // A collection that does not exist has no documents to look for.
        indexes_of(command).map_or(true, |indexes| indexes.iter().any(has))
    };
    let wrong = match hint? {
        RawBsonRef::String("$natural") => return None,
        RawBsonRef::Document(key) if key.is_empty() => return None,
        RawBsonRef::Document(key) if key.get("$natural").is_ok_and(|n| n.is_some()) => {
            let direction = key.get("$natural").ok().flatten().and_then(ebbtide_documents::whole_number);
            if direction == Some(1) {
                return None;
            }
            "a hint of $natural must be 1: for the other direction sort by a field, as in {_id: -1}"
        }
        name @ RawBsonRef::String(_) if is_named("name", name) => return None,
        key @ RawBsonRef::Document(_) if is_named("key", key) => return None,
        RawBsonRef::String(_) | RawBsonRef::Document(_) => {
            "hint provided does not correspond to an existing index: listIndexes names those that exist"
        }
        _ => {
            let what = "hint must be the name of an index, or its key";
            return Some(ebbtide::Error::new(Code::FailedToParse, what));
        }
    };
    Some(ebbtide::Error::new(Code::BadValue, wrong))
}
