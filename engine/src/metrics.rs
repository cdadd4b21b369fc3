//! Counters since the database was opened. They only grow.

pub(crate) mod prometheus;
#[cfg(test)]
mod tests;

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
    /// Buckets that were due and stayed, because a hold covers something in them; each is counted in every pass.
    pub held_buckets: u64,
    /// Visits to a rule that failed, and segments that no visit could read.
    pub failed_rules: u64,
    /// Time spent in passes, in microseconds.
    pub duration_micros: u64,
}

impl TtlMetrics {
    /// Adds the counts of a pass.
    pub(crate) fn add(&mut self, pass: &TtlMetrics) {
        self.passes += pass.passes;
        self.sub_passes += pass.sub_passes;
        self.deleted_documents += pass.deleted_documents;
        self.deleted_buckets += pass.deleted_buckets;
        self.deleted_bytes += pass.deleted_bytes;
        self.reclaimed_files += pass.reclaimed_files;
        self.held_buckets += pass.held_buckets;
        self.failed_rules += pass.failed_rules;
        self.duration_micros += pass.duration_micros;
    }
}

/// A snapshot of all counters since the open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MetricsSnapshot {
    /// Measurements that were acknowledged.
    pub inserted: u64,
    /// Atomic inserts that they came in.
    pub batches: u64,
    /// Bytes appended to the log.
    pub log_bytes: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Times that the open buckets of a collection were sealed.
    pub seals: u64,
    /// Times that small segments were merged into larger ones.
    pub compactions: u64,
    /// Segment files written, by both.
    pub segments_written: u64,
    /// Bytes of them.
    pub segment_bytes_written: u64,
    /// Segment files that are held open for reading: not a counter, it falls too.
    pub open_files: u64,
    /// The sweeper's counters.
    pub ttl: TtlMetrics,
}

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    inserted: AtomicU64,
    batches: AtomicU64,
    log_bytes: AtomicU64,
    log_syncs: AtomicU64,
    seals: AtomicU64,
    compactions: AtomicU64,
    segments_written: AtomicU64,
    segment_bytes_written: AtomicU64,
    ttl: Mutex<TtlMetrics>,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Metrics {
    /// An insert became visible.
    pub(crate) fn inserted(&self, rows: u64) {
        add(&self.inserted, rows);
        add(&self.batches, 1);
    }

    pub(crate) fn logged(&self, bytes: u64) {
        add(&self.log_bytes, bytes);
    }

    pub(crate) fn synced(&self) {
        add(&self.log_syncs, 1);
    }

    pub(crate) fn sealed(&self) {
        add(&self.seals, 1);
    }

    pub(crate) fn compacted(&self) {
        add(&self.compactions, 1);
    }

    pub(crate) fn segment_written(&self, bytes: u64) {
        add(&self.segments_written, 1);
        add(&self.segment_bytes_written, bytes);
    }

    pub(crate) fn swept(&self, pass: &TtlMetrics) {
        self.ttl.lock().add(pass);
    }

    pub(crate) fn snapshot(&self, open_files: u64) -> MetricsSnapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MetricsSnapshot {
            inserted: get(&self.inserted),
            batches: get(&self.batches),
            log_bytes: get(&self.log_bytes),
            log_syncs: get(&self.log_syncs),
            seals: get(&self.seals),
            compactions: get(&self.compactions),
            segments_written: get(&self.segments_written),
            segment_bytes_written: get(&self.segment_bytes_written),
            open_files,
            ttl: *self.ttl.lock(),
        }
    }
}
