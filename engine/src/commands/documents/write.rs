//! Commands that change documents: insert, update, delete, findAndModify.

use super::{document, flag};
use crate::commands::args::{Args, mismatch};
use crate::commands::replies::reply;
use crate::db::{DeleteRequest, Documents, FindAndModify, FindAndModifyOptions, UpdateRequest, WriteOutcome};
use crate::error::{Error, Result};
use ebbtide_documents::bson::RawDocumentBuf;
use ebbtide_documents::json::{document_from_json, to_relaxed, to_relaxed_value, value_from_json};
use ebbtide_ttl::Code;
use serde_json::{Map, Value as Json, json};

fn answer(outcome: WriteOutcome, counts_modified: bool) -> Map<String, Json> {
    let mut answer = reply([("n", Json::from(outcome.n))]);
    if counts_modified {
        answer.insert("nModified".to_owned(), Json::from(outcome.modified));
    }
    if !outcome.upserted.is_empty() {
        let shown = |(index, id): &(usize, _)| json!({"index": index, "_id": to_relaxed_value(as_ref(id))});
        answer.insert("upserted".to_owned(), outcome.upserted.iter().map(shown).collect());
    }
    if !outcome.refused.is_empty() {
        answer.insert("writeErrors".to_owned(), outcome.refused.iter().map(write_error).collect());
    }
    answer
}

fn as_ref(value: &ebbtide_documents::bson::raw::RawBson) -> ebbtide_documents::bson::raw::RawBsonRef<'_> {
    value.as_raw_bson_ref()
}

fn write_error((index, error): &(usize, Error)) -> Json {
    let code = error.code();
    json!({"index": index, "code": code.number(), "codeName": code.name(), "errmsg": error.to_string()})
}

pub(in crate::commands) fn insert(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let given = args.required_array("documents")?;
    let ordered = args.bool("ordered")?.unwrap_or(true);
    if let Some((index, other)) = given.iter().enumerate().find(|(_, d)| !d.is_object()) {
        return Err(mismatch(&format!("documents: the document at index {index}"), "an object", other));
    }
    let ready = given.iter().map(|json| Ok(document_from_json(json)?)).collect();
    Ok(answer(documents.insert_many(ready, ordered)?, false))
}

fn one_update(index: usize, json: &Json) -> Result<UpdateRequest> {
    let refused = ["arrayFilters", "collation", "hint", "c"];
    let args = Args::nested(
        format!("updates at index {index}"),
        json,
        &[&["q", "u", "multi", "upsert"], &refused[..]].concat(),
    )?;
    if let Some(option) = refused.iter().find(|option| args.get(option).is_some()) {
        let what = format!("'{option}' of an update is not supported: leave it out");
        return Err(Error::new(Code::FailedToParse, what));
    }
    let (multi, upsert) = (flag(&args, "multi")?, flag(&args, "upsert")?);
    let query = document(args.required("q")?, "q")?;
    UpdateRequest::new(query, value_from_json(args.required("u")?)?.as_raw_bson_ref(), multi, upsert)
}

pub(in crate::commands) fn update(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let ordered = args.bool("ordered")?.unwrap_or(true);
    let updates = args.required_array("updates")?;
    let updates = updates.iter().enumerate().map(|(index, json)| Ok(Ok(one_update(index, json)?)));
    let updates = updates.collect::<Result<Vec<_>>>()?;
    Ok(answer(documents.update_many(updates, ordered)?, true))
}

fn one_delete(index: usize, json: &Json) -> Result<DeleteRequest> {
    let args = Args::nested(format!("deletes at index {index}"), json, &["q", "limit"])?;
    let limit = match args.count("limit") {
        Ok(limit) if limit <= 1 && args.get("limit").is_some() => limit,
        _ => {
            let what = "limit of a delete must be 0, for all that match, or 1, for one of them";
            return Err(Error::new(Code::FailedToParse, what));
        }
    };
    DeleteRequest::new(&document(args.required("q")?, "q")?, limit == 1)
}

pub(in crate::commands) fn delete(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let ordered = args.bool("ordered")?.unwrap_or(true);
    let deletes = args.required_array("deletes")?;
    let deletes = deletes.iter().enumerate().map(|(index, json)| Ok(Ok(one_delete(index, json)?)));
    let deletes = deletes.collect::<Result<Vec<_>>>()?;
    Ok(answer(documents.delete_many(deletes, ordered)?, false))
}

/// The options of findAndModify.
pub(in crate::commands) const FIND_AND_MODIFY: &[&str] =
    &["query", "sort", "update", "remove", "new", "upsert", "fields"];

pub(in crate::commands) fn find_and_modify(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let given = |option: &str| args.get(option).map(|json| document(json, option)).transpose();
    let (query, sort, fields) = (given("query")?, given("sort")?, given("fields")?);
    let update = args.get("update").map(value_from_json).transpose()?;
    let remove = flag(args, "remove")?;
    let command = FindAndModify::new(&FindAndModifyOptions {
        query: &query.unwrap_or_else(RawDocumentBuf::new),
        sort: sort.as_deref(),
        update: update.as_ref().map(as_ref),
        remove,
        new: flag(args, "new")?,
        upsert: flag(args, "upsert")?,
        fields: fields.as_deref(),
    })?;
    let done = documents.find_and_modify(command)?;
    let found = done.updated_existing || done.upserted.is_some() || done.value.is_some();
    let mut last = reply([("n", Json::from(u64::from(found)))]);
    if !remove {
        last.insert("updatedExisting".to_owned(), Json::from(done.updated_existing));
    }
    if let Some(id) = &done.upserted {
        last.insert("upserted".to_owned(), to_relaxed_value(as_ref(id)));
    }
    let value = done.value.as_deref().map_or(Json::Null, to_relaxed);
    Ok(reply([("lastErrorObject", Json::Object(last)), ("value", value)]))
}
