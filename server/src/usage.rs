//! How often each collection was asked for what, and how long that took: what `top` shows.

use crate::operations::Operation;
use crate::reply;
use bson::raw::RawDocumentBuf;
use bson::rawdoc;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Collections that are counted at most, since a client may ask for any name.
const NAMESPACES_MAX: usize = 10_000;
/// The columns of `top`.
const COLUMNS: [&str; 9] =
    ["total", "readLock", "writeLock", "queries", "getmore", "insert", "update", "remove", "commands"];

/// Time and number of commands.
#[derive(Debug, Default, Clone, Copy)]
struct Total {
    time: Duration,
    count: u64,
}

/// What was asked of each collection since the start.
#[derive(Debug, Default)]
pub(crate) struct Usage(Mutex<BTreeMap<String, [Total; COLUMNS.len()]>>);

impl Usage {
    /// Counts a command that ended.
    pub(crate) fn add(&self, operation: &Operation, time: Duration) {
        let kind = match operation.kind() {
            "query" => "queries",
            "command" => "commands",
            other => other,
        };
        let lock = if operation.writes { "writeLock" } else { "readLock" };
        let mut all = self.0.lock();
        if !all.contains_key(&operation.namespace) {
            if all.len() >= NAMESPACES_MAX {
                return;
            }
            all.insert(operation.namespace.clone(), Default::default());
        }
        let Some(totals) = all.get_mut(&operation.namespace) else { return };
        for (column, total) in COLUMNS.iter().zip(totals) {
            if ["total", kind, lock].contains(column) {
                *total = Total { time: total.time.saturating_add(time), count: total.count + 1 };
            }
        }
    }

    /// The totals, times in microseconds.
    pub(crate) fn to_document(&self) -> RawDocumentBuf {
        let mut shown = rawdoc! { "note": "all times in microseconds" };
        for (namespace, totals) in self.0.lock().iter() {
            let mut one = RawDocumentBuf::new();
            for (column, total) in COLUMNS.iter().zip(totals) {
                let time = u64::try_from(total.time.as_micros()).unwrap_or(u64::MAX);
                let total = rawdoc! { "time": reply::count(time), "count": reply::count(total.count) };
                reply::append(&mut one, column, total);
            }
            reply::append(&mut shown, namespace, one);
        }
        shown
    }
}
