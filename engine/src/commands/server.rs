//! Commands on the database as a whole: state, parameters, the clock.

use super::args::Args;
use super::replies::{done, reply};
use crate::db::Database;
use crate::error::{Error, Result};
use crate::json::{json_of, value_of};
use ebbtide_ttl::{Code, Value};
use serde_json::{Map, Value as Json, json};

pub(super) fn ping(_: &Database, _: &Args<'_>) -> Result<Map<String, Json>> {
    Ok(done())
}

pub(super) fn server_status(db: &Database, _: &Args<'_>) -> Result<Map<String, Json>> {
    let metrics = db.metrics();
    let counters = serde_json::to_value(metrics.ttl).map_err(|e| Error::internal(format!("counters: {e}")))?;
    let snapshot = db.snapshot();
    let mut suspended = Map::new();
    for name in snapshot.collections() {
        if let Some(measurements) = snapshot.collection(&name)?.suspended() {
            suspended.insert(name, Json::from(measurements));
        }
    }
    let held = db.clock_held();
    Ok(reply([
        ("process", Json::from("ebbtide")),
        ("version", Json::from(env!("CARGO_PKG_VERSION"))),
        ("localTime", json_of(&Value::Date(snapshot.now()))),
        ("readOnly", Json::from(db.is_read_only())),
        ("metrics", json!({"document": {"inserted": metrics.inserted}, "ttl": counters})),
        // How far the database is shipped, or what it follows and how far.
        ("copies", json!({"shipped": db.ship_status(), "replica": db.replica_status()})),
        // Why nothing is dropped, if nothing is: a suspect clock, or collections with times out of range.
        ("ttl", json!({"held": held.is_some(), "heldReason": held, "suspendedCollections": suspended})),
    ]))
}

pub(super) fn current_op(db: &Database, _: &Args<'_>) -> Result<Map<String, Json>> {
    let running = db.current_operation().map(|pass| {
        json!({
            "type": "op",
            "desc": "TTLMonitor",
            "active": true,
            "ns": pass.collection,
            "rule": pass.rule,
            "started": json_of(&Value::Date(pass.started)),
            "progress": {"deletedBuckets": pass.buckets, "deletedDocuments": pass.measurements},
        })
    });
    Ok(reply([("inprog", running.into_iter().collect())]))
}

/// Sets one or several parameters: all of them or none.
pub(super) fn set_parameter(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    let mut was: Vec<(&str, Value)> = Vec::new();
    for (name, json) in args.others() {
        match value_of(json).and_then(|value| db.set_parameter(name, &value)) {
            Ok(old) => was.push((name, old)),
            Err(error) => {
                for (name, old) in was.iter().rev() {
                    db.set_parameter(name, old)?;
                }
                return Err(error);
            }
        }
    }
    let Some((_, first)) = was.first() else {
        return Err(Error::new(Code::InvalidOptions, format!("no parameter is named; {}", names(db))));
    };
    tracing::info!(parameters = ?args.others().map(|(name, _)| name).collect::<Vec<_>>(), "parameters were set");
    Ok(reply([("was", json_of(first))]))
}

pub(super) fn get_parameter(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if args.subject().as_str() == Some("*") {
        if let Some((name, _)) = args.others().next() {
            let what = format!("getParameter: '*' names all parameters already; leave '{name}' out");
            return Err(Error::new(Code::InvalidOptions, what));
        }
        return Ok(db.parameters().iter().map(|(name, value)| ((*name).to_owned(), json_of(value))).collect());
    }
    let mut answer = done();
    for (name, _) in args.others() {
        answer.insert(name.to_owned(), json_of(&db.parameter(name)?));
    }
    if answer.is_empty() {
        return Err(Error::new(Code::InvalidOptions, format!("no parameter is named; {}", names(db))));
    }
    Ok(answer)
}

fn names(db: &Database) -> String {
    let names: Vec<_> = db.parameters().into_iter().map(|(name, _)| name).collect();
    format!("the parameters are {}", names.join(", "))
}

pub(super) fn confirm_clock(db: &Database, _: &Args<'_>) -> Result<Map<String, Json>> {
    let held = db.clock_held();
    db.confirm_clock();
    Ok(reply([("wasHeld", Json::from(held.is_some()))]))
}
