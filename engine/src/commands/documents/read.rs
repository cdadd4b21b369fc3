//! Commands that read documents: find, count, distinct.

use super::{document, filter};
use crate::commands::args::Args;
use crate::commands::{cursor, reply};
use crate::db::Documents;
use crate::documents::snapshot::{Match, raw, sorted};
use crate::error::{Error, Result};
use ebbtide_buckets::to_usize;
use ebbtide_documents::json::{to_relaxed, to_relaxed_value};
use ebbtide_documents::{Distinct, Projection, Sort};
use serde_json::{Map, Value as Json};

pub(in crate::commands) fn find(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let filter = filter(args, "filter")?;
    let sort = args.get("sort").map(|json| Ok::<_, Error>(Sort::parse(&document(json, "sort")?)?)).transpose()?;
    let projection = args.get("projection").map(|json| {
        let projection = document(json, "projection")?;
        Ok::<_, Error>(Projection::parse(&projection)?)
    });
    let projection = projection.transpose()?;
    let (skip, limit) = (args.count("skip")?, Some(args.count("limit")?).filter(|limit| *limit > 0));
    let snapshot = documents.snapshot()?;
    let enough = limit.and_then(|limit| usize::try_from(skip.saturating_add(limit)).ok());
    // Without an order asked for, the order of the _id is kept, so that a seal or a compaction does not change what comes.
    let mut found = snapshot.matching(&filter, if sort.is_none() { enough } else { None })?;
    if let Some(sort) = &sort {
        found = sorted(found, sort)?;
    }
    let wanted = found.iter().skip(to_usize(skip)).take(limit.map_or(usize::MAX, to_usize));
    let show = |found: &Match| match &projection {
        Some(projection) => to_relaxed(&projection.apply(raw(&found.stored.document), found.stored.written)),
        None => to_relaxed(raw(&found.stored.document)),
    };
    Ok(cursor(documents.name(), wanted.map(show).collect()))
}

pub(in crate::commands) fn count(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let filter = filter(args, "query")?;
    let (skip, limit) = (args.count("skip")?, Some(args.count("limit")?).filter(|limit| *limit > 0));
    let found = documents.snapshot()?.count_matching(&filter)?;
    let counted = found.saturating_sub(skip).min(limit.unwrap_or(u64::MAX));
    Ok(reply([("n", Json::from(counted))]))
}

pub(in crate::commands) fn distinct(documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let filter = filter(args, "query")?;
    let key = args.required("key")?.as_str();
    let path = key.ok_or_else(|| args.mismatch("key", "a string", args.get("key").unwrap_or(&Json::Null)))?;
    let mut values = Distinct::new(path)?;
    documents.snapshot()?.for_each_match(&filter, &mut |found| values.add(raw(&found.stored.document)))?;
    Ok(reply([(
        "values",
        values.into_values().iter().map(|value| to_relaxed_value(value.as_raw_bson_ref())).collect(),
    )]))
}
