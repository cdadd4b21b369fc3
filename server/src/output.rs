//! `$out` and `$merge`: results of a pipeline that are written into an ordinary collection.
//!
//! 1. `$out` fills a collection of its own, which then takes the place of the old one in one step: readers see the old documents
//!    or the new ones, and a pipeline that fails changes nothing. What a crash leaves of it is removed when the database is opened.
//! 2. `$merge` writes batch by batch, each of them atomic; what was written before an error stays.

use crate::admission::wait_for_room;
use crate::collections::ensure_collection;
use crate::command::{Command, mismatch};
use crate::cursors::Results;
use crate::databases::{check_collection, unfinished_name};
use crate::error::{CommandError, Result};
use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use ebbtide::{Database, Documents, DocumentsOptions, UpdateRequest, WriteOutcome};
use ebbtide_documents::Pipeline;
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

/// Takes the last stage off if it writes. A mistake in the outline of the pipeline comes before all others.
pub(crate) fn split<'a>(command: &Command<'a>, stages: &'a RawArray) -> Result<Option<(Output<'a>, RawArrayBuf)>> {
    Pipeline::check_outline(stages)?;
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

fn parse_out<'a>(command: &Command<'a>, argument: RawBsonRef<'a>) -> Result<Output<'a>> {
    let (database, collection) = match argument {
        RawBsonRef::Document(target) => {
            let text = |name: &str| target.get(name).ok().flatten().and_then(RawBsonRef::as_str).unwrap_or_default();
            (text("db"), text("coll"))
        }
        name => (command.database, name.as_str().unwrap_or_default()),
    };
    if collection.starts_with("system.") {
        return Err(of_number(17385, format!("Can't $out to special collection: {collection}")));
    }
    Ok(Output { database, collection, how: How::Replace })
}

/// Where a `$merge` writes.
fn merge_target<'a>(command: &Command<'a>, into: RawBsonRef<'a>) -> Result<(&'a str, &'a str)> {
    match into {
        RawBsonRef::String("") => Err(of_number(5_786_800, "$merge 'into' field cannot be an empty string")),
        RawBsonRef::String(name) => Ok((command.database, name)),
        RawBsonRef::Document(target) => {
            let (mut database, mut collection) = (command.database, "");
            for (name, value) in target.iter().filter_map(std::result::Result::ok) {
                match (name.as_str(), value) {
                    ("db", RawBsonRef::String(text)) => database = text,
                    ("coll", RawBsonRef::String(text)) => collection = text,
                    ("db" | "coll", RawBsonRef::Null) => {}
                    (name @ ("db" | "coll"), other) => {
                        return Err(mismatch(&format!("into.{name}"), "a string", other));
                    }
                    (unknown, _) => {
                        let what = format!("BSON field 'into.{unknown}' is an unknown field.");
                        return Err(CommandError::new(Code::IDLUnknownField, what));
                    }
                }
            }
            if collection.is_empty() {
                return Err(of_number(5_786_801, "$merge 'into' field must specify a 'coll' that is not empty"));
            }
            Ok((database, collection))
        }
        other => {
            let given = ebbtide_documents::type_name(other);
            let what = format!("$merge 'into' field must be either a string or an object, but found {given}");
            Err(of_number(51178, what))
        }
    }
}

fn when_matched(value: RawBsonRef<'_>) -> Result<WhenMatched> {
    match value {
        RawBsonRef::String("replace") => Ok(WhenMatched::Replace),
        RawBsonRef::String("merge") => Ok(WhenMatched::Merge),
        RawBsonRef::String("keepExisting") => Ok(WhenMatched::Keep),
        RawBsonRef::String("fail") => Ok(WhenMatched::Fail),
        RawBsonRef::String(_) => Err(CommandError::new(Code::BadValue, "whenMatched of $merge has an unknown value")),
        RawBsonRef::Array(_) => {
            let what = "a pipeline in whenMatched of $merge is not available: use replace, merge, keepExisting or fail";
            Err(of_number(115, what))
        }
        other => {
            let given = ebbtide_documents::type_name(other);
            Err(of_number(51191, format!("$merge 'whenMatched' must be a string or an array, but found {given}")))
        }
    }
}

fn when_not_matched(value: RawBsonRef<'_>) -> Result<WhenNotMatched> {
    match value {
        RawBsonRef::String("insert") => Ok(WhenNotMatched::Insert),
        RawBsonRef::String("discard") => Ok(WhenNotMatched::Discard),
        RawBsonRef::String("fail") => Ok(WhenNotMatched::Fail),
        RawBsonRef::String(_) => {
            Err(CommandError::new(Code::BadValue, "whenNotMatched of $merge has an unknown value"))
        }
        other => Err(mismatch("whenNotMatched of $merge", "a string", other)),
    }
}

/// Refuses to find documents by anything but their `_id`.
fn check_on(on: RawBsonRef<'_>) -> Result<()> {
    let fields = match on {
        RawBsonRef::String(_) => vec![on],
        RawBsonRef::Array(list) => list.into_iter().filter_map(std::result::Result::ok).collect(),
        other => {
            let given = ebbtide_documents::type_name(other);
            let what = format!("$merge 'on' field must be either a string or an array of strings, but found {given}");
            return Err(of_number(51186, what));
        }
    };
    if fields.is_empty() {
        return Err(of_number(51187, "If explicitly specifying $merge 'on', must include at least one field"));
    }
    if let Some(other) = fields.iter().find(|field| field.as_str().is_none()) {
        let given = ebbtide_documents::type_name(*other);
        return Err(of_number(51134, format!("$merge 'on' array elements must be strings, but found {given}")));
    }
    if let Some(repeated) = fields.iter().enumerate().find(|(at, field)| fields[..*at].contains(field)) {
        let what = format!("Found a duplicate field '{}'", repeated.1.as_str().unwrap_or_default());
        return Err(of_number(31465, what));
    }
    if fields == [RawBsonRef::String("_id")] {
        return Ok(());
    }
    let what = "$merge finds documents by their _id alone: other fields are not unique here";
    Err(of_number(51183, what))
}

fn parse_merge<'a>(command: &Command<'a>, argument: RawBsonRef<'a>) -> Result<Output<'a>> {
    let (mut into, mut matched, mut not_matched) = (None, WhenMatched::Merge, WhenNotMatched::Insert);
    let options = match argument {
        RawBsonRef::Document(options) => options,
        name => {
            into = Some(merge_target(command, name)?);
            crate::reply::empty()
        }
    };
    let mut has_variables = false;
    for (name, value) in options.iter().filter_map(std::result::Result::ok) {
        match (name.as_str(), value) {
            ("into", value) => into = Some(merge_target(command, value)?),
            ("on" | "let" | "whenNotMatched", RawBsonRef::Null) => {}
            ("on", value) => check_on(value)?,
            ("whenMatched", value) => matched = when_matched(value)?,
            ("whenNotMatched", value) => not_matched = when_not_matched(value)?,
            ("let", RawBsonRef::Document(_)) => has_variables = true,
            ("let", other) => return Err(mismatch("let of $merge", "an object", other)),
            (other, _) => {
                let what = format!("BSON field '$merge.{other}' is an unknown field.");
                return Err(CommandError::new(Code::IDLUnknownField, what));
            }
        }
    }
    if has_variables {
        return Err(of_number(51199, "'let' of $merge needs a pipeline in whenMatched, which is not available"));
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
