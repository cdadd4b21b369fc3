//! Commands on collections: create, drop, collMod, listCollections, collStats, compact.

use super::args::Args;
use super::documents;
use super::replies::{cursor, done, reply};
use crate::archive::parse_expire_into;
use crate::db::Database;
use crate::error::{Error, Result};
use crate::hand_off::sink::parse_hand_off;
use crate::json::{json_of, value_of};
use crate::options::{CollectionChange, CollectionOptions};
use crate::snapshot::{CollectionSnapshot, RungInfo};
use ebbtide_ttl::{
    Bucketing, Code, ExpireAfterContext, ExpiryMode, Filter, IdPolicy, Ladder, OutOfRange, Precision, RuleChange,
    Timestamp, Value, parse_expire_after, parse_expire_after_or_off, parse_grace, parse_keep, parse_max_bytes,
};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// Options of `create`: those from the ninth on are MongoDB's, or of ordinary collections, and refused on a time-series collection.
pub(super) const CREATE_OPTIONS: &[&str] = &[
    "timeseries",
    "expireAfterSeconds",
    "graceSeconds",
    "maxBytes",
    "handOff",
    "expireInto",
    "keepSeconds",
    "ladder",
    "capped",
    "size",
    "max",
    "validator",
    "validationLevel",
    "validationAction",
    "viewOn",
    "pipeline",
    "clusteredIndex",
    "collation",
    "storageEngine",
    "indexOptionDefaults",
    "changeStreamPreAndPostImages",
    "defaultTTL",
];
/// Options of `create` that are refused on a time-series collection.
pub const REFUSED_OPTIONS: &[&str] = CREATE_OPTIONS.split_at(8).1;

/// Options of `collMod`: those from the eleventh on are MongoDB's, and refused on a time-series collection.
pub(super) const MODIFY_OPTIONS: &[&str] = &[
    "timeseries",
    "expireAfterSeconds",
    "index",
    "graceSeconds",
    "maxBytes",
    "handOff",
    "expireInto",
    "keepSeconds",
    "ladder",
    "force",
    "capped",
    "cappedSize",
    "cappedMax",
    "validator",
    "validationLevel",
    "validationAction",
    "viewOn",
    "pipeline",
    "clusteredIndex",
    "changeStreamPreAndPostImages",
    "defaultTTL",
];
const MODIFY_TAKES: usize = 10;

/// Options of the `timeseries` object of `create`; all others are options of `create` itself.
pub const TIMESERIES_OPTIONS: &[&str] = &[
    "timeField",
    "metaField",
    "granularity",
    "bucketMaxSpanSeconds",
    "bucketRoundingSeconds",
    "precision",
    "expiry",
    "outOfRange",
    "ids",
];

fn check_refused(args: &Args<'_>, refused: &[&str]) -> Result<()> {
    match refused.iter().find(|option| args.get(option).is_some()) {
        None => Ok(()),
        Some(option) => {
            let what = format!("a time-series collection cannot have the option '{option}'; leave it out");
            Err(Error::new(Code::InvalidOptions, what))
        }
    }
}

pub(super) fn create(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    let name = args.collection()?;
    let Some(timeseries) = args.get("timeseries") else { return documents::settings::create(db, args) };
    check_refused(args, REFUSED_OPTIONS)?;
    let timeseries = Args::nested("timeseries".to_owned(), timeseries, TIMESERIES_OPTIONS)?;
    let Some(time_field) = timeseries.string("timeField")? else {
        return Err(Error::new(Code::InvalidOptions, "timeseries lacks timeField, the field that holds the time"));
    };
    let mut options = CollectionOptions::new(time_field);
    options.meta_field = timeseries.string("metaField")?.map(str::to_owned);
    options.bucketing = {
        let (granularity, span, rounding) = bucketing(&timeseries)?;
        Bucketing::parse(granularity.as_ref(), span.as_ref(), rounding.as_ref())?
    };
    options.precision = precision(&timeseries)?.unwrap_or_default();
    options.expiry = expiry(&timeseries)?.unwrap_or_default();
    options.out_of_range = out_of_range(&timeseries)?.unwrap_or_default();
    options.ids = ids(&timeseries)?.unwrap_or_default();
    options.expire_after_seconds = match args.value("expireAfterSeconds")? {
        Some(value) => Some(parse_expire_after(&value, ExpireAfterContext::Create)?),
        None => None,
    };
    options.grace_seconds = grace(args)?.unwrap_or_default();
    options.max_bytes = max_bytes(args, false)?.flatten();
    options.hand_off = hand_off(args)?.unwrap_or_default();
    options.expire_into = expire_into(args)?.flatten();
    options.keep_seconds = keep(args)?.flatten();
    options.ladder = ladder(args)?.flatten();
    db.create_collection(name, options)?;
    Ok(done())
}

type OptionValue = Option<ebbtide_ttl::Value>;

fn bucketing(timeseries: &Args<'_>) -> Result<(OptionValue, OptionValue, OptionValue)> {
    let value = |option| timeseries.value(option);
    Ok((value("granularity")?, value("bucketMaxSpanSeconds")?, value("bucketRoundingSeconds")?))
}

fn precision(timeseries: &Args<'_>) -> Result<Option<Precision>> {
    let Some(word) = timeseries.string("precision")? else { return Ok(None) };
    word.parse().map(Some).map_err(|e: String| Error::new(Code::BadValue, e))
}

fn expiry(timeseries: &Args<'_>) -> Result<Option<ExpiryMode>> {
    let value = timeseries.value("expiry")?;
    Ok(value.map(|v| ExpiryMode::from_value(&v)).transpose()?)
}

fn out_of_range(timeseries: &Args<'_>) -> Result<Option<OutOfRange>> {
    let value = timeseries.value("outOfRange")?;
    Ok(value.map(|v| OutOfRange::from_value(&v)).transpose()?)
}

fn ids(timeseries: &Args<'_>) -> Result<Option<IdPolicy>> {
    let value = timeseries.value("ids")?;
    Ok(value.map(|v| IdPolicy::from_value(&v)).transpose()?)
}

fn grace(args: &Args<'_>) -> Result<Option<i64>> {
    Ok(args.value("graceSeconds")?.map(|value| parse_grace(&value)).transpose()?)
}

fn max_bytes(args: &Args<'_>, may_be_off: bool) -> Result<Option<Option<u64>>> {
    Ok(args.value("maxBytes")?.map(|value| parse_max_bytes(&value, may_be_off)).transpose()?)
}

fn hand_off(args: &Args<'_>) -> Result<Option<bool>> {
    args.value("handOff")?.map(|value| parse_hand_off(&value)).transpose()
}

fn expire_into(args: &Args<'_>) -> Result<Option<Option<String>>> {
    args.value("expireInto")?.map(|value| parse_expire_into(&value)).transpose()
}

fn keep(args: &Args<'_>) -> Result<Option<Option<i64>>> {
    Ok(args.value("keepSeconds")?.map(|value| parse_keep(&value)).transpose()?)
}

fn ladder(args: &Args<'_>) -> Result<Option<Option<Ladder>>> {
    Ok(args.value("ladder")?.map(|value| Ladder::parse_or_off(&value)).transpose()?)
}

pub(super) fn drop(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    let name = args.collection()?;
    db.drop_collection(name)?;
    Ok(reply([("ns", Json::from(name))]))
}

/// Options of `renameCollection`; `dropTarget` may only be false.
pub(super) const RENAME_OPTIONS: &[&str] = &["to", "dropTarget"];

pub(super) fn rename(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    let from = args.collection()?;
    args.required("to")?;
    let to = args.string("to")?.unwrap_or_default();
    if args.bool("dropTarget")? == Some(true) {
        let what = format!("dropTarget may only be false: to replace '{to}', send {{\"drop\": \"{to}\"}} first");
        return Err(Error::new(Code::InvalidOptions, what));
    }
    db.rename_collection(from, to)?;
    Ok(done())
}

pub(super) fn modify(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if let Some(documents) = documents::of(db, args)? {
        return documents::settings::modify(db, &documents, args);
    }
    let name = args.collection()?;
    let snapshot = db.snapshot().collection(name)?;
    check_refused(args, &MODIFY_OPTIONS[MODIFY_TAKES..])?;
    let mut change = CollectionChange::default();
    if let Some(timeseries) = args.get("timeseries") {
        change_timeseries(&mut change, snapshot.options(), timeseries)?;
    }
    if let Some(value) = args.value("expireAfterSeconds")? {
        change.expire_after_seconds = Some(parse_expire_after_or_off(&value)?);
    }
    change.grace_seconds = grace(args)?;
    change.max_bytes = max_bytes(args, true)?;
    change.hand_off = hand_off(args)?;
    change.expire_into = expire_into(args)?;
    change.keep_seconds = keep(args)?;
    change.ladder = ladder(args)?;
    change.force = args.bool("force")?.unwrap_or_default();
    if change.force && change.ladder.is_none() {
        let what = "force is about rungs that hold what is stored nowhere else: it goes with the option ladder";
        return Err(Error::new(Code::InvalidOptions, what));
    }
    let mut answer = done();
    let rule = match args.value("index")? {
        None => None,
        Some(index) => {
            let change = RuleChange::parse(&index, &snapshot.options().time_field)?;
            if let Some(seconds) = change.expire_after_seconds {
                let old = snapshot.rules().select(&change.selector)?.expire_after_seconds;
                answer = reply([("expireAfterSeconds_old", old.into()), ("expireAfterSeconds_new", seconds.into())]);
            }
            Some(change)
        }
    };
    db.modify_collection(name, &change, rule.as_ref())?;
    Ok(answer)
}

/// The changes in `timeseries` of a collMod. Options that can never change may be repeated with their present values.
fn change_timeseries(change: &mut CollectionChange, now: &CollectionOptions, timeseries: &Json) -> Result<()> {
    let timeseries = Args::nested("timeseries".to_owned(), timeseries, TIMESERIES_OPTIONS)?;
    let fixed = |option: &str, same: bool| match same {
        true => Ok(()),
        false => {
            let what = format!("{option} of a collection never changes: create another collection and copy the data");
            Err(Error::new(Code::InvalidOptions, what))
        }
    };
    if let Some(given) = timeseries.string("timeField")? {
        fixed("timeField", given == now.time_field)?;
    }
    if let Some(given) = timeseries.string("metaField")? {
        fixed("metaField", Some(given) == now.meta_field.as_deref())?;
    }
    if let Some(given) = precision(&timeseries)? {
        fixed("precision", given == now.precision)?;
    }
    let (granularity, span, rounding) = bucketing(&timeseries)?;
    if granularity.is_some() || span.is_some() || rounding.is_some() {
        let bucketing = now.bucketing.changed(granularity.as_ref(), span.as_ref(), rounding.as_ref())?;
        change.bucketing = Some(bucketing);
    }
    change.expiry = expiry(&timeseries)?;
    change.out_of_range = out_of_range(&timeseries)?;
    change.ids = ids(&timeseries)?;
    Ok(())
}

pub(super) fn list(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    let filter = match args.value("filter")? {
        Some(filter) => Filter::parse_query(&filter)?,
        None => Filter::everything(),
    };
    let name_only = args.bool("nameOnly")?.unwrap_or(false);
    let snapshot = db.snapshot();
    let mut batch = Vec::new();
    let measurements = snapshot.collections().into_iter().map(|name| (name, "timeseries"));
    let ordinary = snapshot.document_collections().into_iter().map(|name| (name, "collection"));
    let names: BTreeMap<String, &str> = measurements.chain(ordinary).collect();
    for (name, kind) in names {
        let options = match kind {
            "timeseries" => options_of(&snapshot.collection(&name)?),
            _ => documents::settings::options_of(&snapshot.documents(&name)?),
        };
        let listed = json!({"name": name, "type": kind, "options": options, "info": {"readOnly": db.is_read_only()}});
        if !filter.matches_document(&value_of(&listed)?) {
            continue;
        }
        batch.push(if name_only { json!({"name": listed["name"], "type": listed["type"]}) } else { listed });
    }
    Ok(cursor("$cmd.listCollections", batch))
}

/// Lists the rungs of all ladders.
pub(super) fn list_ladders(db: &Database, _args: &Args<'_>) -> Result<Map<String, Json>> {
    let date = |instant: Option<Timestamp>| instant.map(|instant| json_of(&Value::Date(instant)));
    let listed = |rung: RungInfo| {
        json!({
            "collection": rung.collection,
            "step": rung.step_seconds,
            "expireAfterSeconds": rung.expire_after_seconds,
            "fields": rung.fields,
            "bins": rung.bins,
            "bytes": rung.bytes,
            "firstBin": date(rung.first_bin),
            "lastBin": date(rung.last_bin),
            "nextExpiry": date(rung.next_expiry),
        })
    };
    Ok(cursor("$cmd.listLadders", db.snapshot().ladders()?.into_iter().map(listed).collect()))
}

impl CollectionSnapshot {
    /// The command document that makes a collection with this one's name and options.
    #[must_use]
    pub fn create_command(&self) -> Json {
        let mut create = reply([("create", Json::from(self.name()))]);
        if let Json::Object(options) = options_of(self) {
            create.extend(options);
        }
        Json::Object(create)
    }
}

/// Every effective option, in the form of `create`.
fn options_of(collection: &CollectionSnapshot) -> Json {
    let options = collection.options();
    let mut timeseries = reply([("timeField", Json::from(options.time_field.as_str()))]);
    if let Some(meta) = &options.meta_field {
        timeseries.insert("metaField".to_owned(), Json::from(meta.as_str()));
    }
    if let Some(granularity) = options.bucketing.granularity() {
        timeseries.insert("granularity".to_owned(), Json::from(granularity.name()));
    }
    let span = options.bucketing.span_seconds();
    timeseries.insert("bucketMaxSpanSeconds".to_owned(), Json::from(span));
    if options.bucketing.granularity().is_none() {
        timeseries.insert("bucketRoundingSeconds".to_owned(), Json::from(span));
    }
    timeseries.extend(reply([
        ("precision", Json::from(options.precision.name())),
        ("expiry", Json::from(options.expiry.name())),
        ("outOfRange", Json::from(options.out_of_range.name())),
        ("ids", Json::from(options.ids.name())),
    ]));
    let mut listed = reply([("timeseries", Json::Object(timeseries))]);
    if let Some(seconds) = collection.rules().collection() {
        listed.insert("expireAfterSeconds".to_owned(), Json::from(seconds));
    }
    if options.grace_seconds > 0 {
        listed.insert("graceSeconds".to_owned(), Json::from(options.grace_seconds));
    }
    if let Some(bytes) = options.max_bytes {
        listed.insert("maxBytes".to_owned(), Json::from(bytes));
    }
    if options.hand_off {
        listed.insert("handOff".to_owned(), Json::from("required"));
    }
    if let Some(url) = &options.expire_into {
        listed.insert("expireInto".to_owned(), Json::from(url.as_str()));
    }
    if let Some(seconds) = options.keep_seconds {
        listed.insert("keepSeconds".to_owned(), Json::from(seconds));
    }
    if let Some(ladder) = collection.ladder() {
        listed.insert("ladder".to_owned(), json_of(&ladder.document()));
    }
    Json::Object(listed)
}

pub(super) fn stats(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if let Some(documents) = documents::of(db, args)? {
        return documents::settings::stats(&documents);
    }
    let name = args.collection()?;
    let collection = db.snapshot().collection(name)?;
    let info = collection.info()?;
    let timeseries = json!({
        "bucketCount": info.buckets,
        "expirySuspended": collection.suspended().is_some(),
        "outOfRangeMeasurements": collection.state.out_of_range(),
    });
    let members = [("ns", Json::from(name)), ("count", info.measurements.into()), ("size", info.bytes.into())];
    let mut reply = reply(members);
    reply.insert("timeseries".to_owned(), timeseries);
    Ok(reply)
}

pub(super) fn compact(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    let name = args.collection()?;
    let bytes = || -> Result<u64> {
        let snapshot = db.snapshot();
        match snapshot.documents(name) {
            Ok(documents) => Ok(documents.segment_bytes()),
            Err(_) => Ok(snapshot.collection(name)?.segments().iter().map(|s| s.bytes).sum()),
        }
    };
    let before = bytes()?;
    db.compact(Some(name))?;
    Ok(reply([("bytesFreed", Json::from(before.saturating_sub(bytes()?)))]))
}
