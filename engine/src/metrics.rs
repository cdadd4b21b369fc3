//! Counters since the database was opened. They only grow.

use crate::sync::{AtomicU64, Mutex, Ordering};
use serde::Serialize;

/// A snapshot of the sweeper's counters since the open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TtlMetrics {
    /// Passes that ran to their end or to their bound.
    pub passes: u64,
    /// Sub-passes of them.
    pub sub_passes: u64,
    /// Measurements that were dropped with their buckets.
    pub deleted_documents: u64,
    /// Buckets dropped.
    pub deleted_buckets: u64,
    /// Bytes on disk that they took.
    pub deleted_bytes: u64,
    /// Files that were no longer needed after a drop.
    pub reclaimed_files: u64,
    /// Visits to a rule that failed.
    pub failed_rules: u64,
    /// Time spent in passes, in microseconds.
    pub duration_micros: u64,
}

/// A snapshot of all counters since the open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct MetricsSnapshot {
    /// Measurements that were acknowledged.
    pub inserted: u64,
    /// The sweeper's counters.
    pub ttl: TtlMetrics,
}

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    inserted: AtomicU64,
    ttl: Mutex<TtlMetrics>,
}

impl Metrics {
    pub(crate) fn inserted(&self, rows: u64) {
        self.inserted.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn swept(&self, pass: &TtlMetrics) {
        let mut all = self.ttl.lock();
        all.passes += pass.passes;
        all.sub_passes += pass.sub_passes;
        all.deleted_documents += pass.deleted_documents;
        all.deleted_buckets += pass.deleted_buckets;
        all.deleted_bytes += pass.deleted_bytes;
        all.reclaimed_files += pass.reclaimed_files;
        all.failed_rules += pass.failed_rules;
        all.duration_micros += pass.duration_micros;
    }

    pub(crate) fn snapshot(&self) -> MetricsSnapshot {
        MetricsSnapshot { inserted: self.inserted.load(Ordering::Relaxed), ttl: *self.ttl.lock() }
    }
}
