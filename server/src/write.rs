//! Commands that write: insert, update, delete, findAndModify.
//!
//! What is wrong with one write of several is told in `writeErrors` of a reply with `ok: 1`, the form that drivers turn into
//! their exceptions. What is wrong with the server, as a full disk, is an error of the command.

use crate::collections::ensure_collection;
use crate::command::{Command, is_simple, mismatch, missing, switch};
use crate::error::{CommandError, Result, ServerCode, write_errors};
use crate::reply;
use crate::shared::add;
use crate::source::{check_hint, plan_of_documents, wrong_hint};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use ebbtide::{Collection, Database, DeleteRequest, Documents, Stop, UpdateRequest, WriteOutcome, value_of_bson};
use ebbtide_ttl::{Code, Filter};

pub(crate) const INSERT: &[&str] = &["documents", "ordered", "bypassDocumentValidation"];
pub(crate) const UPDATE: &[&str] = &["updates", "ordered", "bypassDocumentValidation", "let"];
pub(crate) const DELETE: &[&str] = &["deletes", "ordered", "let"];
pub(crate) const FIND_AND_MODIFY: &[&str] = &[
    "query",
    "sort",
    "update",
    "remove",
    "new",
    "upsert",
    "fields",
    "bypassDocumentValidation",
    "arrayFilters",
    "collation",
    "hint",
    "let",
];

/// A collection that a write goes to.
enum Target {
    Documents(Documents),
    Measurements(Collection),
    /// None of this name.
    Missing,
}

impl Target {
    fn of(command: &Command<'_>, database: &Database, name: &str) -> Result<Target> {
        match database.documents(name) {
            Ok(documents) => Ok(Target::Documents(documents.with_stop(command.deadline.stop()))),
            Err(error) if error.code() == Code::NamespaceNotFound => Ok(Target::Missing),
            Err(_) => Ok(Target::Measurements(database.collection(name)?.with_stop(command.deadline.stop()))),
        }
    }
}

/// The collection of a write; with `create` one that is missing is made.
fn target(command: &Command<'_>, create: bool) -> Result<Target> {
    let name = command.collection()?;
    let database = match command.existing()? {
        Some(database) => database,
        None if create => command.shared.databases.get_or_create(command.database)?,
        None => return Ok(Target::Missing),
    };
    if create {
        ensure_collection(command, &database, name)?;
    }
    Target::of(command, &database, name)
}

/// Notes how the first query of a write finds its documents.
fn note_plan(command: &Command<'_>, target: &Target, query: Option<&RawDocument>) {
    command.note_plan(|| match (target, query) {
        (Target::Documents(target), Some(query)) => {
            target.snapshot().map_or_else(|_| String::new(), |snapshot| plan_of_documents(&snapshot, query))
        }
        (Target::Missing, _) => "EOF".to_owned(),
        _ => String::new(),
    });
}

/// The query of the first of several writes.
fn first_query<'a>(list: &[&'a RawDocument]) -> Option<&'a RawDocument> {
    list.first()?.get_document("q").ok()
}

/// The reply to several writes.
fn answer(command: &Command<'_>, outcome: WriteOutcome, counts_modified: bool) -> Result<RawDocumentBuf> {
    let mut reply = rawdoc! { "n": reply::count(outcome.n) };
    if counts_modified {
        reply.append(cstr!("nModified"), reply::count(outcome.modified));
    }
    if !outcome.upserted.is_empty() {
        let mut upserted = RawArrayBuf::new();
        for (index, id) in outcome.upserted {
            let mut one = rawdoc! { "index": reply::count(index as u64) };
            one.append(cstr!("_id"), id);
            upserted.push(one);
        }
        reply.append(cstr!("upserted"), &upserted);
    }
    let namespace = command.namespace(command.collection()?);
    let of_write = |(index, error)| (index, CommandError::of_write(error, &namespace));
    let refused: Vec<(usize, CommandError)> = outcome.refused.into_iter().map(of_write).collect();
    Ok(with_errors(reply, &refused))
}

fn with_errors(mut reply: RawDocumentBuf, refused: &[(usize, CommandError)]) -> RawDocumentBuf {
    if !refused.is_empty() {
        let errors = write_errors(refused.iter().map(|(index, error)| (*index, error)));
        reply.append(cstr!("writeErrors"), &errors);
    }
    reply::finished(reply)
}

/// The members of one write of several, and how they are read.
struct One<'a> {
    what: String,
    members: &'a RawDocument,
}

impl<'a> One<'a> {
    fn new(list: &str, index: usize, members: &'a RawDocument, known: &[&str]) -> Result<One<'a>> {
        let what = format!("{list} at index {index}");
        for (name, _) in members.iter().filter_map(std::result::Result::ok) {
            if !known.contains(&name.as_str()) {
                let shown: String = name.as_str().chars().take(60).collect();
                let message = format!("unknown option '{}' of {what}", shown.escape_debug());
                return Err(CommandError::new(Code::IDLUnknownField, message));
            }
        }
        Ok(One { what, members })
    }

    fn get(&self, option: &str) -> Option<RawBsonRef<'a>> {
        self.members.get(option).ok().flatten()
    }

    fn query(&self) -> Result<&'a RawDocument> {
        match self.get("q") {
            Some(RawBsonRef::Document(query)) => Ok(query),
            Some(other) => Err(mismatch(&format!("q of {}", self.what), "an object", other)),
            None => Err(missing("q", &self.what)),
        }
    }

    /// True or false; null counts as not given.
    fn switch(&self, option: &str) -> Result<bool> {
        let given = self.get(option).filter(|value| *value != RawBsonRef::Null);
        Ok(given.map(|value| switch(option, value)).transpose()?.unwrap_or(false))
    }

    /// Why an option that is not here refuses the write.
    fn refused(&self, options: &[&str]) -> Option<ebbtide::Error> {
        let asks = |option: &&&str| match self.get(option) {
            None | Some(RawBsonRef::Null) => false,
            Some(RawBsonRef::Document(document)) => !document.is_empty() && !is_simple(document),
            Some(RawBsonRef::Array(list)) => !list.is_empty(),
            Some(_) => true,
        };
        let option = options.iter().find(asks)?;
        let what = format!("'{option}' of {} is not available: leave it out", self.what);
        Some(ebbtide::Error::new(Code::FailedToParse, what))
    }
}

/// Refuses a write of nothing.
fn refuse_none(list: &str, writes: &[&RawDocument]) -> Result<()> {
    match writes.is_empty() {
        true => Err(CommandError::of_server(ServerCode::InvalidLength, format!("{list} is empty: give at least one"))),
        false => Ok(()),
    }
}

pub(crate) fn insert(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let documents = command.list("documents")?;
    refuse_none("documents", &documents)?;
    let ordered = command.switch("ordered")?.unwrap_or(true);
    add(&command.shared.counters.inserts, documents.len() as u64);
    match target(command, true)? {
        Target::Documents(target) => {
            let documents = documents.into_iter().map(|document| Ok(document.to_owned())).collect();
            answer(command, target.insert_many(documents, ordered)?, false)
        }
        Target::Measurements(target) => insert_measurements(&target, &documents, ordered),
        Target::Missing => {
            Err(CommandError::new(Code::NamespaceNotFound, "the collection was dropped while it was written to"))
        }
    }
}

/// Stores measurements: all or none if they are ordered, else those that can be stored.
fn insert_measurements(target: &Collection, documents: &[&RawDocument], ordered: bool) -> Result<RawDocumentBuf> {
    let (stored, refused) = match ordered {
        true => match target.insert_bson(documents) {
            Ok(stored) => (stored, Vec::new()),
            Err(error) => {
                let error = CommandError::from(error);
                let Some(index) = error.index.filter(|_| error.is_mistake) else { return Err(error) };
                (0, vec![(index, error)])
            }
        },
        false => {
            let lenient = target.insert_bson_lenient(documents)?;
            (lenient.stored, lenient.errors.into_iter().map(|(index, error)| (index, error.into())).collect())
        }
    };
    Ok(with_errors(rawdoc! { "n": reply::count(stored) }, &refused))
}

fn one_update(
    command: &Command<'_>,
    index: usize,
    update: &RawDocument,
) -> Result<std::result::Result<UpdateRequest, ebbtide::Error>> {
    let refused = ["arrayFilters", "collation", "c", "sort"];
    let one = One::new("updates", index, update, &[&["q", "u", "multi", "upsert", "hint"], &refused[..]].concat())?;
    let (multi, upsert) = (one.switch("multi")?, one.switch("upsert")?);
    let query = one.query()?.to_owned();
    let change = one.get("u").ok_or_else(|| missing("u", &one.what))?;
    if !matches!(change, RawBsonRef::Document(_) | RawBsonRef::Array(_)) {
        let given = ebbtide_documents::type_name(change);
        let what = format!("u of {} must be an object or a list, not {given}", one.what);
        return Err(CommandError::new(Code::FailedToParse, what));
    }
    if let Some(error) = one.refused(&refused).or_else(|| wrong_hint(command, one.get("hint"))) {
        return Ok(Err(error));
    }
    Ok(UpdateRequest::new(query, change, multi, upsert))
}

pub(crate) fn update(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.refuse(&["let"])?;
    let updates = command.list("updates")?;
    refuse_none("updates", &updates)?;
    let ordered = command.switch("ordered")?.unwrap_or(true);
    let creates = updates.iter().any(|update| {
        let upsert = update.get("upsert").ok().flatten();
        upsert == Some(RawBsonRef::Boolean(true))
    });
    let first = first_query(&updates);
    let read = updates.iter().enumerate().map(|(index, update)| one_update(command, index, update));
    let updates = read.collect::<Result<Vec<_>>>()?;
    let target = target(command, creates)?;
    note_plan(command, &target, first);
    match target {
        Target::Documents(target) => answer(command, target.update_many(updates, ordered)?, true),
        Target::Measurements(_) => Ok(with_errors(rawdoc! { "n": 0, "nModified": 0 }, &[(0, for_documents("update"))])),
        Target::Missing => {
            // Nothing matches, and still what is wrong is told.
            let refused = updates.into_iter().enumerate().filter_map(|(index, one)| Some((index, one.err()?)));
            let refused = refused.take(if ordered { 1 } else { usize::MAX }).collect();
            answer(command, WriteOutcome { refused, ..WriteOutcome::default() }, true)
        }
    }
}

fn for_documents(command: &str) -> CommandError {
    let what = format!(
        "{command} does not work on a time-series collection: insert the corrected measurement, and delete the wrong one by \
         its meta and time"
    );
    CommandError::new(Code::InvalidOptions, what)
}

/// One delete: its filter, and whether it takes one document alone.
fn one_delete<'a>(
    command: &Command<'_>,
    index: usize,
    delete: &'a RawDocument,
) -> Result<(&'a RawDocument, bool, Option<ebbtide::Error>)> {
    let refused = ["collation"];
    let one = One::new("deletes", index, delete, &["q", "limit", "hint", "collation"])?;
    let limit = one.get("limit").ok_or_else(|| missing("limit", &one.what))?;
    let only_one = match ebbtide_documents::whole_number(limit) {
        Some(0) => false,
        Some(1) => true,
        _ => {
            let what = "limit of a delete must be 0, for all that match, or 1, for one of them";
            return Err(CommandError::new(Code::FailedToParse, what));
        }
    };
    let wrong = one.refused(&refused).or_else(|| wrong_hint(command, one.get("hint")));
    Ok((one.query()?, only_one, wrong))
}

pub(crate) fn delete(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.refuse(&["let"])?;
    let deletes = command.list("deletes")?;
    refuse_none("deletes", &deletes)?;
    let ordered = command.switch("ordered")?.unwrap_or(true);
    let first = first_query(&deletes);
    let read = deletes.iter().enumerate().map(|(index, delete)| one_delete(command, index, delete));
    let deletes = read.collect::<Result<Vec<_>>>()?;
    let target = target(command, false)?;
    note_plan(command, &target, first);
    match target {
        Target::Measurements(target) => delete_measurements(&target, deletes, ordered),
        target => {
            let requests = deletes.into_iter().map(|(query, only_one, wrong)| match wrong {
                Some(error) => Err(error),
                None => DeleteRequest::new(query, only_one),
            });
            let requests: Vec<_> = requests.collect();
            if let Target::Documents(target) = target {
                return answer(command, target.delete_many(requests, ordered)?, false);
            }
            let refused = requests.into_iter().enumerate().filter_map(|(index, one)| Some((index, one.err()?)));
            let refused = refused.take(if ordered { 1 } else { usize::MAX }).collect();
            answer(command, WriteOutcome { refused, ..WriteOutcome::default() }, false)
        }
    }
}

fn delete_measurements(
    target: &Collection,
    deletes: Vec<(&RawDocument, bool, Option<ebbtide::Error>)>,
    ordered: bool,
) -> Result<RawDocumentBuf> {
    let (mut removed, mut refused) = (0, Vec::new());
    for (index, (query, only_one, wrong)) in deletes.into_iter().enumerate() {
        let one = || -> Result<u64> {
            if let Some(error) = wrong {
                return Err(error.into());
            }
            if only_one {
                let what =
                    "a delete of one measurement is not possible: limit must be 0, for all that match (deleteMany)";
                return Err(CommandError::new(Code::InvalidOptions, what));
            }
            let filter = Filter::parse_query(&value_of_bson(RawBsonRef::Document(query))?)?;
            // The first alone may be stopped: then nothing was deleted, as the reply says.
            let target = if index == 0 { target.clone() } else { target.clone().with_stop(Stop::default()) };
            Ok(target.delete(&filter)?)
        };
        match one() {
            Ok(n) => removed += n,
            Err(error) if !error.is_mistake => return Err(error),
            Err(error) => {
                refused.push((index, error));
                if ordered {
                    break;
                }
            }
        }
    }
    Ok(with_errors(rawdoc! { "n": reply::count(removed) }, &refused))
}

pub(crate) fn find_and_modify(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.refuse(&["arrayFilters", "collation", "let"])?;
    check_hint(command, command.get("hint"))?;
    let (remove, upsert) = (command.flag("remove")?.unwrap_or(false), command.flag("upsert")?.unwrap_or(false));
    let request = ebbtide::FindAndModify::new(&ebbtide::FindAndModifyOptions {
        query: command.document("query")?.unwrap_or_else(|| reply::empty()),
        sort: command.document("sort")?,
        update: command.get("update"),
        remove,
        new: command.flag("new")?.unwrap_or(false),
        upsert,
        fields: command.document("fields")?,
    })?;
    let target = target(command, upsert)?;
    note_plan(command, &target, command.document("query")?);
    let done = match target {
        Target::Documents(target) => {
            let namespace = command.namespace(command.collection()?);
            target.find_and_modify(request).map_err(|error| CommandError::of_write(error, &namespace))?
        }
        Target::Measurements(_) => return Err(for_documents("findAndModify")),
        Target::Missing => ebbtide::FoundAndModified { value: None, updated_existing: false, upserted: None },
    };
    let found = done.updated_existing || done.upserted.is_some() || done.value.is_some();
    let mut last = rawdoc! { "n": i32::from(found) };
    if !remove {
        last.append(cstr!("updatedExisting"), done.updated_existing);
    }
    if let Some(id) = done.upserted {
        last.append(cstr!("upserted"), id);
    }
    let mut reply = rawdoc! { "lastErrorObject": last };
    reply.append(cstr!("value"), done.value.map_or(RawBson::Null, RawBson::Document));
    Ok(reply::finished(reply))
}
