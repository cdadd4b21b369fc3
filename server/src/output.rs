//! `$out` and `$merge`: results of a pipeline that are written into an ordinary collection.
//!
//! 1. `$out` fills a collection of its own, which then takes the place of the old one in one step: readers see the old documents
//!    or the new ones, and a pipeline that fails changes nothing. What a crash leaves of it is removed when the database is opened.
//! 2. `$merge` writes batch by batch, each of them atomic; what was written before an error stays.

use crate::admission::wait_for_room;
use crate::collections::ensure_collection;
use crate::command::Command;
use crate::cursors::Results;
use crate::databases::{check_collection, unfinished_name};
use crate::error::{CommandError, Result};
use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use ebbtide::{Database, Documents, DocumentsOptions, UpdateRequest, WriteOutcome};
use ebbtide_ttl::Code;

/// Documents that are written at a time.
const BATCH: usize = 1000;
/// Bytes of them.
const BATCH_BYTES: usize = 16 << 20;

/// Where results go.
pub(crate) struct Output<'a> {
    database: &'a str,
    collection: &'a str,
    how: How,
}

#[derive(Debug, Clone, Copy)]
enum How {
    Replace,
    Merge(WhenMatched, WhenNotMatched),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhenMatched {
    Replace,
    Merge,
    Keep,
    Fail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhenNotMatched {
    Insert,
    Discard,
    Fail,
}

fn failed(message: impl Into<String>) -> CommandError {
    CommandError::new(Code::FailedToParse, message)
}

fn of_number(code: i32, message: impl Into<String>) -> CommandError {
    ebbtide_documents::ExpressionError::new(code, message).into()
}

/// Takes the last stage off if it writes.
pub(crate) fn split<'a>(command: &Command<'a>, stages: &'a RawArray) -> Result<Option<(Output<'a>, RawArrayBuf)>> {
    let all: Vec<RawBsonRef<'a>> = stages.into_iter().filter_map(std::result::Result::ok).collect();
    let Some((RawBsonRef::Document(last), before)) = all.split_last().map(|(last, before)| (*last, before)) else {
        return Ok(None);
    };
    let Some((name, argument)) = last.iter().next().and_then(std::result::Result::ok) else { return Ok(None) };
    let output = match name.as_str() {
        "$out" => parse_out(command, argument)?,
        "$merge" => parse_merge(command, argument)?,
        _ => return Ok(None),
    };
    Ok(Some((output, before.iter().copied().collect())))
}

/// `db` and `coll`, or a name.
fn target<'a>(command: &Command<'a>, stage: &str, value: RawBsonRef<'a>) -> Result<(&'a str, &'a str)> {
    let (database, collection) = match value {
        RawBsonRef::String(name) => (command.database, name),
        RawBsonRef::Document(object) => {
            let text = |name: &str| object.get(name).ok().flatten().and_then(RawBsonRef::as_str);
            let unknown = object.iter().filter_map(std::result::Result::ok).map(|(name, _)| name.as_str());
            if let Some(unknown) = unknown.into_iter().find(|name| !matches!(*name, "db" | "coll")) {
                let what = format!("BSON field '{stage}.{unknown}' is an unknown field.");
                return Err(CommandError::new(Code::IDLUnknownField, what));
            }
            (text("db").unwrap_or(command.database), text("coll").unwrap_or_default())
        }
        other => {
            let given = ebbtide_documents::type_name(other);
            return Err(of_number(16990, format!("{stage} only supports a string or object argument, not {given}")));
        }
    };
    if collection.is_empty() {
        let what = format!("{stage} must name a collection");
        return Err(CommandError::new(Code::InvalidNamespace, what));
    }
    Ok((database, collection))
}

fn parse_out<'a>(command: &Command<'a>, argument: RawBsonRef<'a>) -> Result<Output<'a>> {
    let (database, collection) = target(command, "$out", argument)?;
    Ok(Output { database, collection, how: How::Replace })
}

fn parse_merge<'a>(command: &Command<'a>, argument: RawBsonRef<'a>) -> Result<Output<'a>> {
    let (mut into, mut matched, mut not_matched) = (None, WhenMatched::Merge, WhenNotMatched::Insert);
    let options = match argument {
        RawBsonRef::String(_) => {
            into = Some(target(command, "$merge", argument)?);
            crate::reply::empty()
        }
        RawBsonRef::Document(options) => options,
        other => {
            let given = ebbtide_documents::type_name(other);
            return Err(of_number(51182, format!("$merge requires a string or object argument, but found {given}")));
        }
    };
    for (name, value) in options.iter().filter_map(std::result::Result::ok) {
        match (name.as_str(), value) {
            ("into", value) => into = Some(target(command, "$merge", value)?),
            ("on", RawBsonRef::String("_id")) => {}
            ("on", RawBsonRef::Array(list)) if is_id_alone(list) => {}
            ("on", _) => {
                let what = "$merge finds documents by their _id alone: other fields are not unique here";
                return Err(of_number(51183, what));
            }
            ("whenMatched", RawBsonRef::String("replace")) => matched = WhenMatched::Replace,
            ("whenMatched", RawBsonRef::String("merge")) => matched = WhenMatched::Merge,
            ("whenMatched", RawBsonRef::String("keepExisting")) => matched = WhenMatched::Keep,
            ("whenMatched", RawBsonRef::String("fail")) => matched = WhenMatched::Fail,
            ("whenMatched", RawBsonRef::Array(_)) | ("let", _) => {
                let what =
                    "a pipeline in whenMatched of $merge is not available: use replace, merge, keepExisting or fail";
                return Err(of_number(115, what));
            }
            ("whenNotMatched", RawBsonRef::String("insert")) => not_matched = WhenNotMatched::Insert,
            ("whenNotMatched", RawBsonRef::String("discard")) => not_matched = WhenNotMatched::Discard,
            ("whenNotMatched", RawBsonRef::String("fail")) => not_matched = WhenNotMatched::Fail,
            (name @ ("whenMatched" | "whenNotMatched"), _) => {
                return Err(CommandError::new(Code::BadValue, format!("{name} of $merge has an unknown value")));
            }
            (other, _) => {
                let what = format!("BSON field '$merge.{other}' is an unknown field.");
                return Err(CommandError::new(Code::IDLUnknownField, what));
            }
        }
    }
    let insert_alone = matches!(matched, WhenMatched::Keep | WhenMatched::Fail);
    if insert_alone && not_matched != WhenNotMatched::Insert {
        let what = "Combination of $merge modes whenMatched and whenNotMatched is not supported";
        return Err(of_number(51181, what));
    }
    let missing = || of_number(40414, "BSON field '$merge.into' is missing but a required field");
    let (database, collection) = into.ok_or_else(missing)?;
    Ok(Output { database, collection, how: How::Merge(matched, not_matched) })
}

fn is_id_alone(list: &RawArray) -> bool {
    let mut fields = list.into_iter().filter_map(std::result::Result::ok);
    fields.next() == Some(RawBsonRef::String("_id")) && fields.next().is_none()
}

impl Output<'_> {
    /// Writes all results.
    pub(crate) fn write(&self, command: &Command<'_>, results: &mut dyn Results) -> Result<()> {
        let database = command.shared.databases.get_or_create(self.database)?;
        check_collection(self.collection)?;
        match self.how {
            How::Replace => self.replace(command, &database, results),
            How::Merge(matched, not_matched) => {
                ensure_collection(command, &database, self.collection)?;
                let target = database.documents(self.collection)?;
                while let Some(batch) = next(command, &database, results)? {
                    merge(&target, batch, matched, not_matched)?;
                }
                Ok(())
            }
        }
    }

    fn replace(&self, command: &Command<'_>, database: &Database, results: &mut dyn Results) -> Result<()> {
        let options = match database.snapshot().documents(self.collection) {
            Ok(old) => old.options().clone(),
            Err(error) if error.code() == Code::NamespaceNotFound => DocumentsOptions::default(),
            Err(_) => {
                let what = format!("$out cannot replace the time-series collection '{}'", self.collection);
                return Err(CommandError::new(Code::InvalidOptions, what));
            }
        };
        let name = unfinished_name();
        let fresh = database.create_documents(&name, options)?;
        let done = fill(command, database, &fresh, results).and_then(|()| {
            database.replace_collection(&name, self.collection)?;
            Ok(())
        });
        if done.is_err()
            && let Err(error) = database.drop_collection(&name)
        {
            tracing::warn!(%error, name, "what a $out that failed had written was not removed");
        }
        done
    }
}

fn fill(command: &Command<'_>, database: &Database, fresh: &Documents, results: &mut dyn Results) -> Result<()> {
    while let Some(batch) = next(command, database, results)? {
        check(fresh.insert_many(batch.into_iter().map(Ok).collect(), true)?)?;
    }
    Ok(())
}

/// The next documents; nothing at the end.
fn next(command: &Command<'_>, database: &Database, results: &mut dyn Results) -> Result<Option<Vec<RawDocumentBuf>>> {
    command.deadline.check()?;
    let batch = results.next_batch(BATCH, BATCH_BYTES, command.deadline)?;
    if batch.is_empty() {
        return Ok(None);
    }
    wait_for_room(command, database)?;
    Ok(Some(batch))
}

fn check(outcome: WriteOutcome) -> Result<WriteOutcome> {
    let WriteOutcome { ref refused, .. } = outcome;
    match refused.first() {
        None => Ok(outcome),
        Some(_) => {
            let first = outcome.refused.into_iter().next();
            Err(first.map_or_else(|| failed("a write was refused"), |(_, error)| error.into()))
        }
    }
}

fn merge(
    target: &Documents,
    batch: Vec<RawDocumentBuf>,
    matched: WhenMatched,
    not_matched: WhenNotMatched,
) -> Result<()> {
    // A document without an _id is a new one.
    let is_new = |document: &RawDocumentBuf| matches!(document.get("_id"), Ok(None));
    let (new, known): (Vec<_>, Vec<_>) =
        batch.into_iter().partition(|document| matched == WhenMatched::Fail || is_new(document));
    if !new.is_empty() {
        if not_matched == WhenNotMatched::Fail {
            return Err(none_matched());
        }
        if not_matched == WhenNotMatched::Insert {
            check(target.insert_many(new.into_iter().map(Ok).collect(), false)?)?;
        }
    }
    let count = known.len() as u64;
    let one = |document: RawDocumentBuf| {
        let id = document.get("_id").ok().flatten().map_or(RawBson::Null, RawBson::from);
        let mut query = RawDocumentBuf::new();
        query.append(cstr!("_id"), rawdoc! { "$eq": id });
        let change = match matched {
            WhenMatched::Replace => document,
            WhenMatched::Keep => rawdoc! { "$setOnInsert": without_id(&document) },
            _ => rawdoc! { "$set": without_id(&document) },
        };
        let upsert = not_matched == WhenNotMatched::Insert;
        UpdateRequest::new(query, RawBsonRef::Document(&change), false, upsert)
    };
    let outcome = check(target.update_many(known.into_iter().map(one).collect(), false)?)?;
    if not_matched == WhenNotMatched::Fail && outcome.n < count {
        return Err(none_matched());
    }
    Ok(())
}

fn none_matched() -> CommandError {
    of_number(13113, "$merge could not find a matching document in the target collection")
}

fn without_id(document: &RawDocument) -> RawDocumentBuf {
    let mut rest = RawDocumentBuf::new();
    for (name, value) in document.iter().filter_map(std::result::Result::ok) {
        if name.as_str() != "_id" {
            rest.append(name, value);
        }
    }
    rest
}
