//! What is known about segments and buckets without reading them: bounds, counts, and what deletes and drops have left.

use ebbtide_buckets::{ChunkBucket, SegmentMeta, Window};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};

/// Bounds and counts of a bucket, or of the part of it in one segment or chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketBounds {
    pub(crate) window: Window,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) rows: u64,
    pub(crate) out_of_range: u64,
}

impl From<&ChunkBucket> for BucketBounds {
    fn from(open: &ChunkBucket) -> Self {
        BucketBounds {
            window: open.id.window,
            first: open.first,
            last: open.last,
            rows: open.rows.len() as u64,
            out_of_range: u64::from(open.out_of_range),
        }
    }
}

/// The rule that all metas of a segment shared when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClassStamp {
    pub(crate) rules_epoch: u64,
    /// Index of the effective rule in the rule set; `None` if no rule matches.
    pub(crate) rule: Option<u32>,
}

/// A segment, and what is left of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentRecord {
    pub(crate) id: u64,
    pub(crate) meta: SegmentMeta,
    pub(crate) class: Option<ClassStamp>,
    pub(crate) state: SegmentState,
}

/// What deletes and drops have left of a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentState {
    /// Ordinals of dropped buckets.
    pub(crate) dropped: RoaringBitmap,
    /// Rows that were deleted one by one.
    pub(crate) deleted: RoaringBitmap,
    /// Buckets that lost some of their rows, with their present bounds.
    pub(crate) changed: Vec<ChangedBucket>,
    pub(crate) live: LiveSummary,
}

impl SegmentState {
    /// The state after further drops.
    pub(crate) fn without_buckets(&self, dropped: &RoaringBitmap, live: LiveSummary) -> SegmentState {
        let dropped = &self.dropped | dropped;
        let changed = self.changed.iter().filter(|c| !dropped.contains(c.ordinal)).copied().collect();
        SegmentState { deleted: self.deleted.clone(), changed, dropped, live }
    }
}

/// A bucket that lost some of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangedBucket {
    pub(crate) ordinal: u32,
    pub(crate) rows: u64,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) out_of_range: u64,
}

/// Sums and bounds over the live buckets of a segment: enough to tell what is due without its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiveSummary {
    pub(crate) rows: u64,
    pub(crate) buckets: u32,
    pub(crate) out_of_range: u64,
    pub(crate) first_min: i64,
    pub(crate) last_min: i64,
    pub(crate) last_max: i64,
    pub(crate) window_start_min: i64,
    pub(crate) window_end_min: i64,
    pub(crate) window_end_max: i64,
}

impl LiveSummary {
    /// The summary of no buckets.
    pub(crate) const EMPTY: LiveSummary = LiveSummary {
        rows: 0,
        buckets: 0,
        out_of_range: 0,
        first_min: i64::MAX,
        last_min: i64::MAX,
        last_max: i64::MIN,
        window_start_min: i64::MAX,
        window_end_min: i64::MAX,
        window_end_max: i64::MIN,
    };

    /// Adds one bucket.
    pub(crate) fn add(&mut self, bucket: &BucketBounds) {
        self.rows += bucket.rows;
        self.buckets += 1;
        self.out_of_range += bucket.out_of_range;
        self.first_min = self.first_min.min(bucket.first);
        self.last_min = self.last_min.min(bucket.last);
        self.last_max = self.last_max.max(bucket.last);
        self.window_start_min = self.window_start_min.min(bucket.window.start);
        self.window_end_min = self.window_end_min.min(bucket.window.end);
        self.window_end_max = self.window_end_max.max(bucket.window.end);
    }
}
