//! Commands about the server: its state, its parameters, what it can do.

use crate::command::{Command, flag, mismatch};
use crate::error::{CommandError, Result};
use crate::handshake::now;
use crate::{json, reply};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf, cstr};
use bson::rawdoc;
use ebbtide_ttl::{Code, Value};
use serde_json::{Map, Value as Json};
use std::sync::atomic::{AtomicU64, Ordering};

/// Parameters of MongoDB that clients read to find out what a server can do.
fn server_parameter(name: &str) -> Option<RawBson> {
    match name {
        "featureCompatibilityVersion" => Some(RawBson::Document(rawdoc! { "version": "8.0" })),
        "authenticationMechanisms" => Some(RawBson::Array(["SCRAM-SHA-256"].into_iter().collect())),
        _ => None,
    }
}

pub(crate) fn get_parameter(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let known = command.shared.databases.parameters();
    let mut answer = RawDocumentBuf::new();
    let mut all = command.subject() == RawBsonRef::String("*");
    if let RawBsonRef::Document(options) = command.subject() {
        let wants_all = options.get("allParameters").ok().flatten();
        all |= wants_all.map(|value| flag("allParameters", value)).transpose()?.unwrap_or(false);
    }
    if all {
        for (name, value) in &known {
            reply::append(&mut answer, name, json::of_value(value)?);
        }
        return Ok(reply::finished(answer));
    }
    for (name, _) in command.options() {
        let found =
            known.iter().find(|(known, _)| *known == name).map(|(_, value)| json::of_value(value)).transpose()?;
        let value = found.or_else(|| server_parameter(name)).ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
            CommandError::new(
                Code::InvalidOptions,
                format!("no option found to get; the parameters are {}", names.join(", ")),
            )
        })?;
        reply::append(&mut answer, name, value);
    }
    if answer.is_empty() {
        return Err(CommandError::new(
            Code::InvalidOptions,
            "no option found to get: name a parameter, or '*' for all",
        ));
    }
    Ok(reply::finished(answer))
}

pub(crate) fn set_parameter(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let read = |(name, value): (&str, RawBsonRef<'_>)| {
        let value = ebbtide::json::value_of(&ebbtide_documents::json::to_canonical_value(value))?;
        Ok((name.to_owned(), value))
    };
    let parameters = command.options().map(read).collect::<Result<Vec<(String, Value)>>>()?;
    let Some(was) = command.shared.databases.set_parameters(&parameters)? else {
        return Err(CommandError::new(Code::InvalidOptions, "no option found to set: name a parameter"));
    };
    let names: Vec<_> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    tracing::info!(parameters = names.join(", "), peer = %command.client.peer, "parameters were set");
    let mut answer = RawDocumentBuf::new();
    reply::append(&mut answer, "was", json::of_value(&was)?);
    Ok(reply::finished(answer))
}

/// Adds the numbers of one object to those of another, at every depth; what is no number is kept from the first.
fn add_up(total: &mut Map<String, Json>, more: Map<String, Json>) {
    for (name, value) in more {
        match (total.get_mut(&name), value) {
            (None, value) => drop(total.insert(name, value)),
            (Some(Json::Object(total)), Json::Object(more)) => add_up(total, more),
            (Some(Json::Number(total)), Json::Number(more)) => {
                if let (Some(a), Some(b)) = (total.as_i64(), more.as_i64()) {
                    *total = a.saturating_add(b).into();
                }
            }
            (Some(Json::Bool(total)), Json::Bool(more)) => *total |= more,
            (Some(kept @ Json::Null), value) => *kept = value,
            _ => {}
        }
    }
}

pub(crate) fn server_status(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let shared = command.shared;
    let mut engines = Map::new();
    for (_, database) in shared.databases.all() {
        let status: Map<_, _> = [("serverStatus".to_owned(), Json::from(1))].into_iter().collect();
        add_up(&mut engines, json::run(&database, &shared.settings.files, status)?);
    }
    let get = |counter: &AtomicU64| reply::count(counter.load(Ordering::Relaxed));
    let counters = &shared.counters;
    let [logins, refused] = [&counters.logins, &counters.logins_refused].map(|counter| counter.load(Ordering::Relaxed));
    let open = counters.connections.load(Ordering::Relaxed);
    let uptime = shared.now().saturating_sub(shared.started);
    let metrics = match engines.remove("metrics") {
        Some(Json::Object(metrics)) => metrics,
        _ => empty_metrics(),
    };
    let mut metrics = json::to_bson(&metrics)?;
    metrics.append(
        cstr!("cursor"),
        rawdoc! {
            "timedOut": reply::count(shared.cursors.timed_out()),
            "open": { "total": reply::count(shared.cursors.len() as u64) },
        },
    );
    let mut answer = rawdoc! {
        "host": shared.address.to_string().as_str(),
        "version": env!("CARGO_PKG_VERSION"),
        "process": "ebbtide",
        "pid": i64::from(std::process::id()),
        "uptime": uptime.as_secs_f64().floor(),
        "uptimeMillis": i64::try_from(uptime.as_millis()).unwrap_or(i64::MAX),
        "localTime": now(command),
        "connections": {
            "current": reply::count(open as u64),
            "available": reply::count(shared.settings.connections_max.saturating_sub(open) as u64),
            "totalCreated": get(&counters.connections_made),
            "rejected": get(&counters.connections_refused),
        },
        "network": {
            "bytesIn": get(&counters.bytes_in), "bytesOut": get(&counters.bytes_out), "numRequests": get(&counters.requests),
        },
        "opcounters": {
            "insert": get(&counters.inserts), "query": get(&counters.queries), "update": get(&counters.updates),
            "delete": get(&counters.deletes), "getmore": get(&counters.get_mores), "command": get(&counters.commands),
        },
        "security": { "authentication": { "mechanisms": { "SCRAM-SHA-256": { "authenticate": {
            "received": reply::count(logins + refused), "successful": reply::count(logins),
        } } } } },
        "storageEngine": { "name": "ebbtide", "readOnly": false, "persistent": true },
        "metrics": metrics,
    };
    if let Some(Json::Object(ttl)) = engines.get("ttl") {
        answer.append(cstr!("ttl"), json::to_bson(ttl)?);
    }
    Ok(reply::finished(answer))
}

/// The counters of a server without a database.
fn empty_metrics() -> Map<String, Json> {
    let ttl = serde_json::to_value(ebbtide::TtlMetrics::default()).unwrap_or_default();
    [("document".to_owned(), serde_json::json!({"inserted": 0})), ("ttl".to_owned(), ttl)].into_iter().collect()
}

/// The collections that were asked for since the start.
pub(crate) fn top(command: &Command<'_>) -> Result<RawDocumentBuf> {
    Ok(reply::finished(rawdoc! { "totals": command.shared.usage.to_document() }))
}

pub(crate) fn command_line(_: &Command<'_>) -> Result<RawDocumentBuf> {
    let mut arguments = RawArrayBuf::new();
    std::env::args_os().for_each(|argument| arguments.push(argument.to_string_lossy().as_ref()));
    Ok(reply::finished(rawdoc! { "argv": arguments, "parsed": {} }))
}

/// No log is kept in memory: it goes to standard error.
pub(crate) fn log(command: &Command<'_>) -> Result<RawDocumentBuf> {
    match command.subject() {
        RawBsonRef::String("*") => Ok(reply::finished(rawdoc! { "names": ["global", "startupWarnings"] })),
        RawBsonRef::String("global" | "startupWarnings") => {
            Ok(reply::finished(rawdoc! { "totalLinesWritten": 0, "log": [] }))
        }
        RawBsonRef::String(other) => {
            let what = format!("no log named '{other}': there are global and startupWarnings, both empty");
            Err(CommandError::new(Code::BadValue, what))
        }
        other => Err(mismatch("getLog", "a string", other)),
    }
}

pub(crate) fn host_info(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(reply::finished(rawdoc! {
        "system": {
            "currentTime": now(command),
            "hostname": command.shared.address.to_string().as_str(),
            "cpuAddrSize": i32::try_from(usize::BITS).unwrap_or(64),
            "numCores": reply::count(cores as u64),
            "cpuArch": std::env::consts::ARCH,
        },
        "os": { "type": std::env::consts::OS },
        "extra": {},
    }))
}
