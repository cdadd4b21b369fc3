//! Commands that change documents: insert, update, delete, findAndModify.

use super::{document, filter, flag, parse_filter};
use crate::commands::args::{Args, mismatch};
use crate::commands::reply;
use crate::db::{Documents, duplicate, id_of};
use crate::documents::memtable::Stored;
use crate::documents::snapshot::{Hidden, Match, raw, sorted};
use crate::documents::transaction::{Modification, Transaction};
use crate::error::{Error, Result};
use ebbtide_documents::bson::{RawDocument, RawDocumentBuf};
use ebbtide_documents::json::{document_from_json, to_relaxed, to_relaxed_value, value_from_json};
use ebbtide_documents::{Filter, Projection, Sort, Update, check_ttl};
use ebbtide_ttl::Code;
use serde_json::{Map, Value as Json, json};

/// What refuses one of several writes: which, and why.
type Refused = (usize, Error);

/// What several writes did before the first that was refused, or all of them.
#[derive(Default)]
struct Outcome {
    n: u64,
    modified: u64,
    upserted: Vec<Json>,
    refused: Vec<Refused>,
}

impl Outcome {
    /// Does every write in turn; an ordered command ends with the first that is refused.
    fn of(ordered: bool, count: usize, mut write: impl FnMut(&mut Outcome, usize) -> Result<()>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for index in 0..count {
            match write(&mut outcome, index) {
                Ok(()) => {}
                // What could not be read or stored is no mistake of the write's.
                Err(error) if error.kind() != crate::ErrorKind::Invalid => return Err(error),
                Err(error) => {
                    outcome.refused.push((index, error));
                    if ordered {
                        break;
                    }
                }
            }
        }
        Ok(outcome)
    }

    fn reply(self, counts_modified: bool) -> Map<String, Json> {
        let mut answer = reply([("n", Json::from(self.n))]);
        if counts_modified {
            answer.insert("nModified".to_owned(), Json::from(self.modified));
        }
        if !self.upserted.is_empty() {
            answer.insert("upserted".to_owned(), Json::Array(self.upserted));
        }
        if !self.refused.is_empty() {
            answer.insert("writeErrors".to_owned(), self.refused.iter().map(write_error).collect());
        }
        answer
    }
}

fn write_error((index, error): &Refused) -> Json {
    let code = error.code();
    json!({"index": index, "code": code.number(), "codeName": code.name(), "errmsg": error.to_string()})
}

pub(in crate::commands) fn insert(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let given = args.required_array("documents")?;
    let ordered = args.bool("ordered")?.unwrap_or(true);
    if let Some((index, other)) = given.iter().enumerate().find(|(_, d)| !d.is_object()) {
        return Err(mismatch(&format!("documents: the document at index {index}"), "an object", other));
    }
    let read = |json: &Json| documents.with_id(document_from_json(json)?);
    let mut ready = given.iter().map(|json| Some(read(json))).collect::<Vec<_>>();
    let outcome = documents.write(move |transaction| {
        Outcome::of(ordered, ready.len(), |outcome, index| {
            let prepared = ready.get_mut(index).and_then(Option::take);
            let (document, key) = prepared.ok_or_else(|| Error::internal("a document was inserted before"))??;
            check_ttl(&document, transaction.options().default_ttl)?;
            if transaction.get(&key)?.is_some() {
                return Err(duplicate(&document));
            }
            transaction.put(key, document.into_bytes().into())?;
            outcome.n += 1;
            Ok(())
        })
    })?;
    Ok(outcome.reply(false))
}

/// One entry of `updates`.
struct OneUpdate {
    query: RawDocumentBuf,
    filter: Filter,
    update: Modification,
    multi: bool,
    upsert: bool,
}

impl OneUpdate {
    fn parse(index: usize, json: &Json) -> Result<OneUpdate> {
        let known = ["q", "u", "multi", "upsert", "arrayFilters", "collation", "hint", "c"];
        let args = Args::nested(format!("updates at index {index}"), json, &known)?;
        if let Some(option) =
            ["arrayFilters", "collation", "hint", "c"].iter().find(|option| args.get(option).is_some())
        {
            return Err(Error::new(
                Code::FailedToParse,
                format!("'{option}' of an update is not supported: leave it out"),
            ));
        }
        let (multi, upsert) = (flag(&args, "multi")?, flag(&args, "upsert")?);
        let query = document(args.required("q")?, "q")?;
        let filter = parse_filter(args.required("q")?, "q")?;
        let update = Modification::parse(value_from_json(args.required("u")?)?.as_raw_bson_ref(), multi)?;
        Ok(OneUpdate { query, filter, update, multi, upsert })
    }

    fn run(&self, transaction: &mut Transaction<'_>, outcome: &mut Outcome, index: usize) -> Result<()> {
        let limit = (!self.multi).then_some(1);
        let found = transaction.matching(&self.filter, Hidden::LeftOut, limit)?;
        if found.is_empty() && self.upsert {
            let made = upsert(transaction, &self.query, &self.update.update)?;
            outcome.n += 1;
            outcome.upserted.push(json!({"index": index, "_id": to_relaxed_value(id_of(&made))}));
            return Ok(());
        }
        for found in found {
            let changed = transaction.update(found.key, &found.stored, &self.update)?;
            outcome.n += 1;
            outcome.modified += u64::from(changed);
        }
        Ok(())
    }
}

/// Stores the document that an upsert makes where nothing matches.
fn upsert(transaction: &mut Transaction<'_>, query: &RawDocument, update: &Update) -> Result<RawDocumentBuf> {
    let (document, key) = transaction.with_id(update.upsert(query, transaction.written())?)?;
    check_ttl(&document, transaction.options().default_ttl)?;
    // The query matched nothing, and still a document may have this _id.
    if transaction.get(&key)?.is_some() {
        return Err(duplicate(&document));
    }
    transaction.put(key, document.clone().into_bytes().into())?;
    Ok(document)
}

pub(in crate::commands) fn update(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let ordered = args.bool("ordered")?.unwrap_or(true);
    let updates = args.required_array("updates")?;
    let updates = updates.iter().enumerate().map(|(index, json)| OneUpdate::parse(index, json));
    let updates = updates.collect::<Result<Vec<_>>>()?;
    let outcome = documents.write(move |transaction| {
        Outcome::of(ordered, updates.len(), |outcome, index| updates[index].run(transaction, outcome, index))
    })?;
    Ok(outcome.reply(true))
}

pub(in crate::commands) fn delete(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let ordered = args.bool("ordered")?.unwrap_or(true);
    let deletes = args.required_array("deletes")?;
    let one = |(index, json): (usize, &Json)| -> Result<(Filter, bool)> {
        let args = Args::nested(format!("deletes at index {index}"), json, &["q", "limit"])?;
        let limit = match args.count("limit") {
            Ok(limit) if limit <= 1 && args.get("limit").is_some() => limit,
            _ => {
                let what = "limit of a delete must be 0, for all that match, or 1, for one of them";
                return Err(Error::new(Code::FailedToParse, what));
            }
        };
        Ok((parse_filter(args.required("q")?, "q")?, limit == 1))
    };
    let deletes = deletes.iter().enumerate().map(one).collect::<Result<Vec<_>>>()?;
    let outcome = documents.write(move |transaction| {
        Outcome::of(ordered, deletes.len(), |outcome, index| {
            let (filter, only_one) = &deletes[index];
            outcome.n += remove(transaction, filter, *only_one)?;
            Ok(())
        })
    })?;
    Ok(outcome.reply(false))
}

/// Removes what matches for good, with the expired documents that do, and counts the visible ones.
fn remove(transaction: &mut Transaction<'_>, filter: &Filter, only_one: bool) -> Result<u64> {
    let (mut removed, mut one_is_gone) = (0, false);
    for found in transaction.matching(filter, Hidden::Included, None)? {
        if found.is_visible && only_one && one_is_gone {
            continue;
        }
        one_is_gone |= found.is_visible;
        removed += u64::from(found.is_visible);
        transaction.remove(found.key)?;
    }
    Ok(removed)
}

/// The options of findAndModify.
pub(in crate::commands) const FIND_AND_MODIFY: &[&str] =
    &["query", "sort", "update", "remove", "new", "upsert", "fields"];

pub(in crate::commands) fn find_and_modify(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let query = args.get("query").map_or(Ok(RawDocumentBuf::new()), |json| document(json, "query"))?;
    let filter = filter(args, "query")?;
    let sort = args.get("sort").map(|json| Ok::<_, Error>(Sort::parse(&document(json, "sort")?)?)).transpose()?;
    let fields = args.get("fields").map(|json| Ok::<_, Error>(Projection::parse(&document(json, "fields")?)?));
    let fields = fields.transpose()?;
    let (remove, new, upsert) = (flag(args, "remove")?, flag(args, "new")?, flag(args, "upsert")?);
    let parse = |json: &Json| Modification::parse(value_from_json(json)?.as_raw_bson_ref(), false);
    let update = args.get("update").map(parse).transpose()?;
    let wrong = match (&update, remove) {
        (None, false) => Some("findAndModify needs either update or remove"),
        (Some(_), true) => Some("findAndModify cannot both update and remove: give one of them"),
        (None, true) if new => Some("findAndModify cannot return the new document of a remove: leave out new"),
        (None, true) if upsert => Some("findAndModify cannot both remove and upsert: leave out upsert"),
        _ => None,
    };
    if let Some(what) = wrong {
        return Err(Error::new(Code::FailedToParse, what));
    }
    let command = FindAndModify { query, filter, sort, update, new, upsert };
    let (value, updated_existing, upserted) = documents.write(move |transaction| command.run(transaction))?;
    let shown = |(written, document): (i64, RawDocumentBuf)| match &fields {
        Some(fields) => to_relaxed(&fields.apply(&document, written)),
        None => to_relaxed(&document),
    };
    let found = value.is_some();
    let mut last = reply([("n", Json::from(u64::from(found || upserted.is_some())))]);
    if !remove {
        last.insert("updatedExisting".to_owned(), Json::from(updated_existing));
    }
    if let Some(id) = &upserted {
        last.insert("upserted".to_owned(), id.clone());
    }
    let value = value.map_or(Json::Null, shown);
    Ok(reply([("lastErrorObject", Json::Object(last)), ("value", value)]))
}

struct FindAndModify {
    query: RawDocumentBuf,
    filter: Filter,
    sort: Option<Sort>,
    /// `None` to remove the document.
    update: Option<Modification>,
    new: bool,
    upsert: bool,
}

/// The document to reply with its `_ts`, whether an existing one was updated, and the `_id` of one that was made.
type Modified = (Option<(i64, RawDocumentBuf)>, bool, Option<Json>);

impl FindAndModify {
    fn run(&self, transaction: &mut Transaction<'_>) -> Result<Modified> {
        let found = transaction.matching(&self.filter, Hidden::Included, None)?;
        let (mut visible, expired): (Vec<Match>, Vec<Match>) = found.into_iter().partition(|found| found.is_visible);
        for found in expired {
            transaction.remove(found.key)?;
        }
        if let Some(sort) = &self.sort {
            visible = sorted(visible, sort)?;
        }
        let Some(first) = visible.into_iter().next() else { return self.nothing_found(transaction) };
        let before = (first.stored.written, raw(&first.stored.document).to_owned());
        let Some(update) = &self.update else {
            transaction.remove(first.key)?;
            return Ok((Some(before), false, None));
        };
        transaction.update(first.key.clone(), &first.stored, update)?;
        let after = || -> Result<Option<(i64, RawDocumentBuf)>> {
            let stored: Option<Stored> = transaction.stored(&first.key)?;
            Ok(stored.map(|stored| (stored.written, raw(&stored.document).to_owned())))
        };
        let value = if self.new { after()? } else { Some(before) };
        Ok((value, true, None))
    }

    fn nothing_found(&self, transaction: &mut Transaction<'_>) -> Result<Modified> {
        match &self.update {
            Some(update) if self.upsert => {
                let made = upsert(transaction, &self.query, &update.update)?;
                let id = to_relaxed_value(id_of(&made));
                let value = self.new.then(|| (transaction.written(), made));
                Ok((value, false, Some(id)))
            }
            _ => Ok((None, false, None)),
        }
    }
}
