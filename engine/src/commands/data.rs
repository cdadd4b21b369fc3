//! Commands that change measurements: insert and delete.

use super::args::{Args, mismatch};
use super::documents;
use super::replies::reply;
use crate::db::Database;
use crate::error::{Error, Result};
use crate::json::value_of;
use ebbtide_documents::bson::oid::ObjectId;
use ebbtide_ttl::{Code, Filter, IdPolicy, Value, exact_int};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

pub(super) fn insert(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if let Some(documents) = documents::of(db, args)? {
        return documents::write::insert(&documents, args);
    }
    let collection = db.collection(args.collection()?)?;
    let documents = args.required_array("documents")?;
    let ordered = args.bool("ordered")?.unwrap_or(true);
    if let Some((index, other)) = documents.iter().enumerate().find(|(_, d)| !d.is_object()) {
        return Err(mismatch(&format!("documents: the measurement at index {index}"), "an object", other));
    }
    let ids = collection.snapshot()?.options().ids;
    let read = |(index, json): (usize, &Json)| measurement(json, ids).map_err(|error| about(index, &error));
    if ordered {
        let mut readable = Vec::with_capacity(documents.len());
        for (index, json) in documents.iter().enumerate() {
            match read((index, json)) {
                Ok(document) => readable.push(document),
                Err(error) => return Err(collection.fault_before(&readable, error)),
            }
        }
        let stored = if readable.is_empty() { 0 } else { collection.insert_documents(&readable)? };
        return Ok(reply([("n", Json::from(stored))]));
    }
    let mut errors: Vec<(usize, Error)> = Vec::new();
    let (mut readable, mut indexes) = (Vec::new(), Vec::new());
    for (index, json) in documents.iter().enumerate() {
        match read((index, json)) {
            Ok(document) => {
                readable.push(document);
                indexes.push(index);
            }
            Err(error) => errors.push((index, error)),
        }
    }
    let mut stored = 0;
    if !readable.is_empty() {
        let lenient = collection.insert_documents_lenient(&readable)?;
        stored = lenient.stored;
        errors.extend(lenient.errors.into_iter().map(|(at, error)| (indexes.get(at).copied().unwrap_or(at), error)));
    }
    errors.sort_by_key(|(index, _)| *index);
    let mut answer = reply([("n", Json::from(stored))]);
    if !errors.is_empty() {
        answer.insert("writeErrors".to_owned(), errors.iter().map(write_error).collect());
    }
    Ok(answer)
}

/// A document as a measurement, without its ObjectId if that is not stored.
fn measurement(json: &Json, ids: IdPolicy) -> Result<Value> {
    let mut value = value_of(json)?;
    if let Value::Object(members) = &mut value
        && ids == IdPolicy::Drop
        && json.get("_id").is_some_and(is_object_id)
    {
        members.retain(|(name, _)| *name != "_id");
    }
    Ok(value)
}

fn is_object_id(json: &Json) -> bool {
    let digits = json.as_object().filter(|members| members.len() == 1).and_then(|members| members.get("$oid"));
    digits.and_then(Json::as_str).is_some_and(|digits| ObjectId::parse_str(digits).is_ok())
}

fn about(index: usize, error: &Error) -> Error {
    Error::new(error.code(), format!("measurement at index {index}: {error}")).with_index(index)
}

fn write_error((index, error): &(usize, Error)) -> Json {
    let code = error.code();
    json!({"index": index, "code": code.number(), "codeName": code.name(), "errmsg": error.to_string()})
}

pub(super) fn update(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    match documents::of(db, args)? {
        Some(documents) => documents::write::update(&documents, args),
        None => Err(not_for_measurements(db, args, "update")?),
    }
}

pub(super) fn find_and_modify(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    match documents::of(db, args)? {
        Some(documents) => documents::write::find_and_modify(&documents, args),
        None => Err(not_for_measurements(db, args, "findAndModify")?),
    }
}

/// The error about a command that measurements do not have, if the collection exists.
fn not_for_measurements(db: &Database, args: &Args<'_>, command: &str) -> Result<Error> {
    db.collection(args.collection()?)?;
    let what = format!(
        "{command} does not work on a time-series collection: insert the corrected measurement, and delete the wrong one by its \
         meta and time"
    );
    Ok(Error::new(Code::InvalidOptions, what))
}

pub(super) fn delete(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if let Some(documents) = documents::of(db, args)? {
        return documents::write::delete(&documents, args);
    }
    let collection = db.collection(args.collection()?)?;
    args.bool("ordered")?;
    let deletes = args.required_array("deletes")?;
    let filters = deletes.iter().enumerate().map(|(i, d)| one_delete(i, d)).collect::<Result<Vec<_>>>()?;
    let has_ladder = collection.snapshot()?.ladder().is_some();
    let into_ladder = args.bool("ladder")? == Some(false);
    if into_ladder && !has_ladder {
        let what =
            "ladder: false lets what is deleted decay into the rungs of a ladder, which the collection does not have";
        return Err(Error::new(Code::InvalidOptions, what));
    }
    let (mut deleted, mut kept) = (0, BTreeMap::new());
    for filter in &filters {
        if into_ladder {
            deleted += collection.delete_into_ladder(filter)?;
            continue;
        }
        let one = collection.delete_with_bins(filter)?;
        deleted += one.measurements;
        one.kept_bins.into_iter().for_each(|(step, bins)| *kept.entry(step.to_string()).or_insert(0) += bins);
    }
    let mut reply = reply([("n", Json::from(deleted))]);
    if has_ladder && !into_ladder {
        reply.insert("keptBins".to_owned(), json!(kept));
    }
    Ok(reply)
}

fn one_delete(index: usize, json: &Json) -> Result<Filter> {
    let args = Args::nested(format!("deletes at index {index}"), json, &["q", "limit"])?;
    let limit = value_of(args.required("limit")?)?;
    let whole = match &limit {
        Value::Int(i) => Some(*i),
        Value::Double(d) => exact_int(*d),
        _ => return Err(args.mismatch("limit", "a number", args.required("limit")?)),
    };
    match whole {
        Some(0) => Ok(Filter::parse_query(&value_of(args.required("q")?)?)?),
        Some(1) => {
            let what = "a delete of one measurement is not possible: limit must be 0, for all that match";
            Err(Error::new(Code::InvalidOptions, what))
        }
        _ => Err(Error::new(Code::FailedToParse, "limit of a delete must be 0, for all that match")),
    }
}
