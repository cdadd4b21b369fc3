//! Which rows of a bucket a reader gets: those within the requested times that have not expired.

use crate::segment::bounds::BucketBounds;
use arrow::buffer::BooleanBuffer;
use ebbtide_ttl::Cutoff;

/// Instants from the first to the last, inclusive, in units of the collection's precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StoredRange {
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl StoredRange {
    /// No time at all.
    pub(crate) const NONE: StoredRange = StoredRange { first: i64::MAX, last: i64::MIN };

    pub(crate) fn contains(self, t: i64) -> bool {
        self.first <= t && t <= self.last
    }

    /// Whether the range overlaps `first` to `last`.
    pub(crate) fn overlaps(self, first: i64, last: i64) -> bool {
        self.first <= last && first <= self.last
    }
}

/// The condition on a row: within the requested times, and not expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowFilter {
    pub(crate) time: StoredRange,
    pub(crate) cutoff: Cutoff,
}

/// Which rows of a bucket a filter selects.
pub(super) enum Selection {
    All,
    Some,
    /// None: all of them are expired.
    Hidden,
    /// None: no row is within the times.
    Pruned,
}

impl RowFilter {
    pub(crate) fn keeps(self, t: i64) -> bool {
        self.time.contains(t) && !self.cutoff.hides(t)
    }

    pub(super) fn select(self, bucket: &BucketBounds) -> Selection {
        if self.cutoff.hides(bucket.last) {
            Selection::Hidden
        } else if !self.time.overlaps(bucket.first, bucket.last) {
            Selection::Pruned
        } else if self.keeps(bucket.first) && self.time.contains(bucket.last) {
            Selection::All
        } else {
            Selection::Some
        }
    }

    /// Bounds of the times of the selected rows of a bucket, of which some are selected.
    pub(super) fn bounds(self, bucket: &BucketBounds) -> (i64, i64) {
        let visible = self.cutoff.first_visible().unwrap_or(i64::MAX);
        (bucket.first.max(self.time.first).max(visible), bucket.last.min(self.time.last))
    }

    /// Which times are selected, and how many of them are expired.
    pub(super) fn mask(self, times: &[i64]) -> (BooleanBuffer, u64) {
        let mut expired = 0;
        let keeps = |row: usize| {
            let is_expired = self.cutoff.hides(times[row]);
            expired += u64::from(is_expired);
            !is_expired && self.time.contains(times[row])
        };
        (BooleanBuffer::collect_bool(times.len(), keeps), expired)
    }

    /// The part of ascending times that is selected, and how many of them are expired.
    pub(crate) fn cut(self, ascending: &[i64]) -> (std::ops::Range<usize>, usize) {
        let hidden = self.cutoff.split(ascending);
        let start = ascending.partition_point(|t| *t < self.time.first).max(hidden);
        let end = ascending.partition_point(|t| *t <= self.time.last);
        (start..end.max(start), hidden)
    }
}
