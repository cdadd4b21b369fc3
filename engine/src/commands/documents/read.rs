//! Commands that read documents: find, count, distinct.

use super::document;
use crate::commands::args::Args;
use crate::commands::replies::{cursor, reply};
use crate::db::Documents;
use crate::documents::find::FindRequest;
use crate::error::Result;
use ebbtide_documents::bson::RawDocumentBuf;
use ebbtide_documents::json::{to_relaxed, to_relaxed_value};
use serde_json::{Map, Value as Json};

/// The object in an option of a command; an empty one without it.
fn object(args: &Args<'_>, option: &str) -> Result<RawDocumentBuf> {
    args.get(option).map_or(Ok(RawDocumentBuf::new()), |json| document(json, option))
}

pub(in crate::commands) fn find(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let mut request = FindRequest::new(&object(args, "filter")?)?.sort(&object(args, "sort")?)?;
    request = request.projection(&object(args, "projection")?)?;
    request.skip = args.count("skip")?;
    request.limit = Some(args.count("limit")?).filter(|limit| *limit > 0);
    let found = documents.snapshot()?.find(request).next_batch(usize::MAX, usize::MAX)?;
    Ok(cursor(documents.name(), found.iter().map(|document| to_relaxed(document)).collect()))
}

pub(in crate::commands) fn count(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let (skip, limit) = (args.count("skip")?, Some(args.count("limit")?).filter(|limit| *limit > 0));
    let found = documents.snapshot()?.count_where(&object(args, "query")?)?;
    let counted = found.saturating_sub(skip).min(limit.unwrap_or(u64::MAX));
    Ok(reply([("n", Json::from(counted))]))
}

pub(in crate::commands) fn distinct(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let key = args.required("key")?.as_str();
    let path = key.ok_or_else(|| args.mismatch("key", "a string", args.get("key").unwrap_or(&Json::Null)))?;
    let values = documents.snapshot()?.distinct(path, &object(args, "query")?)?;
    Ok(reply([("values", values.iter().map(|value| to_relaxed_value(value.as_raw_bson_ref())).collect())]))
}
