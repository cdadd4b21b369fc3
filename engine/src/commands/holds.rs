//! Commands on legal holds: createHold, dropHold, listHolds.

use super::args::Args;
use super::replies::{cursor, done};
use crate::db::Database;
use crate::db::HoldOptions;
use crate::error::{Error, Result};
use crate::json::{json_of, value_of};
use crate::snapshot::HoldInfo;
use ebbtide_ttl::{Code, Filter, Timestamp, Value};
use serde_json::{Map, Value as Json, json};

pub(super) const CREATE_OPTIONS: &[&str] = &["collection", "filter", "from", "to", "reason"];

pub(super) fn create(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    let name = name_of(args)?;
    args.required("collection")?;
    let collection = args.string("collection")?.unwrap_or_default();
    args.required("reason")?;
    let mut options = HoldOptions::new(args.string("reason")?.unwrap_or_default());
    if let Some(filter) = args.get("filter") {
        let meta = db.snapshot().collection(collection)?.options().meta_field.clone();
        options.filter = Filter::parse_partial(&value_of(filter)?, meta.as_deref())?;
    }
    options.from = instant(args, "from")?;
    options.to = instant(args, "to")?;
    db.create_hold(name, collection, options)?;
    Ok(done())
}

pub(super) fn drop(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    db.lift_hold(name_of(args)?)?;
    Ok(done())
}

pub(super) fn list(db: &Database, _args: &Args<'_>) -> Result<Map<String, Json>> {
    let holds = db.snapshot().holds()?;
    Ok(cursor("$cmd.listHolds", holds.into_iter().map(listed).collect()))
}

/// The name of a hold, which is the value of the command's own key.
fn name_of<'a>(args: &Args<'a>) -> Result<&'a str> {
    let named = args.subject();
    named.as_str().ok_or_else(|| {
        let what = format!("the name of a hold must be a string, not {}", super::args::kind(named));
        Error::new(Code::TypeMismatch, what)
    })
}

/// An instant: a date, or a text that is one.
fn instant(args: &Args<'_>, option: &str) -> Result<Option<Timestamp>> {
    match args.value(option)? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Date(instant)) => Ok(Some(instant)),
        Some(Value::String(text)) => Timestamp::parse(&text).map(Some).map_err(|e| Error::new(Code::BadValue, e)),
        Some(_) => Err(args.mismatch(option, "a date", args.get(option).unwrap_or(&Json::Null))),
    }
}

fn listed(hold: HoldInfo) -> Json {
    let date = |instant: Option<Timestamp>| instant.map(|instant| json_of(&Value::Date(instant)));
    json!({
        "name": hold.name,
        "collection": hold.collection,
        "filter": hold.filter.as_ref().map(json_of),
        "from": date(hold.from),
        "to": date(hold.to),
        "reason": hold.reason,
        "madeAt": date(Some(hold.made_at)),
        "liftedAt": date(hold.lifted_at),
        "measurements": hold.measurements,
    })
}
