//! The profiler: which commands are recorded, and their records.
//!
//! The records of a database are in memory, the newest of them within a limit of bytes. While no database is profiled, a command
//! costs one look at a flag.

use crate::client::Client;
use crate::operations::Operation;
use crate::reply;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use ebbtide::{Database, SweepRecord};
use ebbtide_ttl::Timestamp;
use parking_lot::Mutex;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// The collection that the records are read from.
pub(crate) const COLLECTION: &str = "system.profile";
/// Bytes of the records of one database.
const BYTES_MAX: usize = 1 << 20;

/// What is recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Levels {
    /// Of one database: 0 for nothing, 1 for slow commands, 2 for all.
    pub(crate) level: i32,
    /// Above this many milliseconds a command is slow.
    pub(crate) slow_ms: i64,
    /// The part of the slow commands that is recorded, from 0 to 1.
    pub(crate) sample_rate: f64,
}

#[derive(Debug, Default)]
struct Profiled {
    level: i32,
    records: VecDeque<RawDocumentBuf>,
    bytes: usize,
    /// Deletions of the sweeper that are recorded, or were there before.
    sweeps_seen: u64,
}

impl Profiled {
    fn add(&mut self, record: RawDocumentBuf) {
        self.bytes += record.as_bytes().len();
        self.records.push_back(record);
        while self.bytes > BYTES_MAX {
            let Some(oldest) = self.records.pop_front() else { return };
            self.bytes -= oldest.as_bytes().len();
        }
    }
}

#[derive(Debug)]
struct State {
    sample_rate: f64,
    databases: BTreeMap<String, Profiled>,
}

/// Which commands are recorded, and their records.
#[derive(Debug)]
pub(crate) struct Profiler {
    /// Whether any database is profiled.
    is_on: AtomicBool,
    slow_ms: AtomicI64,
    state: Mutex<State>,
}

impl Profiler {
    pub(crate) fn new() -> Profiler {
        let state = State { sample_rate: 1.0, databases: BTreeMap::new() };
        Profiler { is_on: AtomicBool::new(false), slow_ms: AtomicI64::new(100), state: Mutex::new(state) }
    }

    pub(crate) fn levels(&self, database: &str) -> Levels {
        let state = self.state.lock();
        let level = state.databases.get(database).map_or(0, |profiled| profiled.level);
        Levels { level, slow_ms: self.slow_ms(), sample_rate: state.sample_rate }
    }

    /// Sets the level of a database, and for all of them what is slow and how much of it is recorded. `sweeps_seen` deletions of
    /// the sweeper were before.
    pub(crate) fn set(&self, database: &str, levels: Levels, sweeps_seen: u64) {
        let mut state = self.state.lock();
        self.slow_ms.store(levels.slow_ms, Ordering::Relaxed);
        state.sample_rate = levels.sample_rate;
        let profiled = state.databases.entry(database.to_owned()).or_default();
        if profiled.level == 0 {
            profiled.sweeps_seen = sweeps_seen;
        }
        profiled.level = levels.level;
        self.is_on.store(state.databases.values().any(|profiled| profiled.level > 0), Ordering::Relaxed);
    }

    /// Whether commands on a database may be recorded.
    pub(crate) fn is_on(&self, database: &str) -> bool {
        self.is_on.load(Ordering::Relaxed) && self.levels(database).level > 0
    }

    fn slow_ms(&self) -> i64 {
        self.slow_ms.load(Ordering::Relaxed)
    }

    /// Whether a command that took so long was slow.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        i64::try_from(took.as_millis()).unwrap_or(i64::MAX) > self.slow_ms()
    }

    /// Records a command that ended, if it is to be.
    pub(crate) fn note(
        &self,
        client: &Client,
        operation: &Operation,
        (now, took): (Timestamp, Duration),
        reply: &RawDocument,
    ) {
        let mut state = self.state.lock();
        let sample_rate = state.sample_rate;
        let Some(profiled) = state.databases.get_mut(&operation.database) else { return };
        let millis = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
        let is_chosen = match profiled.level {
            0 => false,
            1 => self.is_slow(took) && chance() < sample_rate,
            _ => true,
        };
        if is_chosen {
            profiled.add(record(client, operation, (now, millis), reply));
        }
    }

    /// Records what the sweeper deleted since the last time in the databases that are profiled.
    pub(crate) fn note_sweeps(&self, databases: impl FnOnce() -> Vec<(String, Database)>) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        for (name, database) in databases() {
            let mut state = self.state.lock();
            let Some(profiled) = state.databases.get_mut(&name).filter(|profiled| profiled.level > 0) else { continue };
            let (sweeps, seen) = database.sweeps_after(profiled.sweeps_seen);
            profiled.sweeps_seen = seen;
            sweeps.iter().for_each(|swept| profiled.add(record_of_sweep(&name, swept)));
        }
    }

    /// The records of a database, oldest first.
    pub(crate) fn records(&self, database: &str) -> Vec<RawDocumentBuf> {
        let state = self.state.lock();
        state.databases.get(database).map(|profiled| profiled.records.iter().cloned().collect()).unwrap_or_default()
    }

    /// Forgets the records of a database.
    pub(crate) fn clear(&self, database: &str) {
        if let Some(profiled) = self.state.lock().databases.get_mut(database) {
            (profiled.records, profiled.bytes) = (VecDeque::new(), 0);
        }
    }
}

/// A random number from 0 to below 1.
fn chance() -> f64 {
    // A fresh RandomState has random keys.
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}

fn record(
    client: &Client,
    operation: &Operation,
    (now, millis): (Timestamp, i64),
    reply: &RawDocument,
) -> RawDocumentBuf {
    let mut record = rawdoc! {
        "op": operation.kind(), "ns": operation.namespace.as_str(), "command": operation.command.clone(),
    };
    append_counts(&mut record, operation.name, reply);
    if let (Ok(message), Ok(name), Ok(code)) =
        (reply.get_str("errmsg"), reply.get_str("codeName"), reply.get_i32("code"))
    {
        record.append(cstr!("ok"), 0.0);
        record.append(cstr!("errMsg"), message);
        record.append(cstr!("errName"), name);
        record.append(cstr!("errCode"), code);
    }
    record.append(cstr!("responseLength"), reply::count(reply.as_bytes().len() as u64));
    record.append(cstr!("millis"), reply::number(millis));
    if let Some(plan) = operation.plan.lock().as_deref() {
        record.append(cstr!("planSummary"), plan);
    }
    record.append(cstr!("ts"), reply::date(now));
    record.append(cstr!("client"), client.peer.ip().to_canonical().to_string());
    if let Some(name) = client.app_name.get() {
        record.append(cstr!("appName"), name.as_str());
    }
    let user = operation.user.as_ref();
    let all: bson::RawArrayBuf = user.iter().map(|user| rawdoc! { "user": user.as_str(), "db": "admin" }).collect();
    record.append(cstr!("allUsers"), &all);
    record.append(cstr!("user"), user.map(|user| format!("{user}@admin")).unwrap_or_default());
    record
}

/// What a reply says of the documents that a command returned or changed.
fn append_counts(record: &mut RawDocumentBuf, name: &str, reply: &RawDocument) {
    let number = |document: &RawDocument, name: &str| {
        document.get(name).ok().flatten().and_then(ebbtide_documents::whole_number).unwrap_or_default()
    };
    if let Ok(cursor) = reply.get_document("cursor") {
        let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"));
        let returned = batch.map_or(0, |batch| batch.into_iter().count());
        record.append(cstr!("nreturned"), reply::count(returned as u64));
        match cursor.get_i64("id") {
            Ok(id @ 1..) => record.append(cstr!("cursorid"), id),
            _ => record.append(cstr!("cursorExhausted"), true),
        }
    }
    let upserted = match reply.get("upserted") {
        Ok(Some(RawBsonRef::Array(list))) => list.into_iter().count() as u64,
        _ => 0,
    };
    let counted = number(reply, "n");
    match (name, reply.get_document("lastErrorObject")) {
        ("insert", _) => record.append(cstr!("ninserted"), reply::number(counted)),
        ("delete", _) => record.append(cstr!("ndeleted"), reply::number(counted)),
        ("update", _) => {
            record.append(cstr!("nMatched"), reply::number(counted.saturating_sub_unsigned(upserted)));
            record.append(cstr!("nModified"), reply::number(number(reply, "nModified")));
            record.append(cstr!("nUpserted"), reply::count(upserted));
        }
        ("findAndModify", Ok(done)) => match done.get_bool("updatedExisting") {
            Ok(existed) => {
                record.append(cstr!("nMatched"), i32::from(existed));
                record.append(cstr!("nUpserted"), i32::from(matches!(done.get("upserted"), Ok(Some(_)))));
            }
            Err(_) => record.append(cstr!("ndeleted"), reply::number(number(done, "n"))),
        },
        _ => {}
    }
}

/// A deletion by the sweeper.
fn record_of_sweep(database: &str, swept: &SweepRecord) -> RawDocumentBuf {
    rawdoc! {
        "op": "remove",
        "ns": format!("{database}.{}", swept.collection),
        "desc": "TTLMonitor",
        "command": {
            "rule": swept.rule.as_str(),
            "expireAfterSeconds": reply::number(swept.expire_after_seconds),
            "cutoff": reply::date(swept.cutoff),
        },
        "ndeleted": reply::count(swept.measurements),
        "bucketsDeleted": reply::count(swept.buckets),
        "bytesDeleted": reply::count(swept.bytes),
        "ts": reply::date(swept.at),
        "allUsers": [],
        "user": "",
    }
}
