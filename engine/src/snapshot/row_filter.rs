//! Which rows of a bucket a reader gets: those within the wanted times that have not expired.

use crate::segment::bounds::BucketBounds;
use ebbtide_ttl::Cutoff;

/// Instants from the first to the last, inclusive, in units of the collection's precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimeRange {
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl TimeRange {
    pub(crate) fn contains(self, t: i64) -> bool {
        self.first <= t && t <= self.last
    }

    /// Whether some instant from `first` to `last` may be in it.
    pub(crate) fn overlaps(self, first: i64, last: i64) -> bool {
        self.first <= last && first <= self.last
    }
}

/// What a row has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowFilter {
    pub(crate) time: TimeRange,
    pub(crate) cutoff: Cutoff,
}

/// What a filter lets through of one bucket.
pub(super) enum Selection {
    All,
    Some,
    /// Nothing: all of it is expired.
    Hidden,
    /// Nothing: no row lies within the times.
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

    /// Bounds of the times that it lets through of a bucket, of which it lets some through.
    pub(super) fn bounds(self, bucket: &BucketBounds) -> (i64, i64) {
        let visible = self.cutoff.first_visible().unwrap_or(i64::MAX);
        (bucket.first.max(self.time.first).max(visible), bucket.last.min(self.time.last))
    }

    /// The part of ascending times that it lets through, and how many of them are hidden because they are expired.
    pub(super) fn cut(self, ascending: &[i64]) -> (std::ops::Range<usize>, usize) {
        let hidden = self.cutoff.split(ascending);
        let start = ascending.partition_point(|t| *t < self.time.first).max(hidden);
        let end = ascending.partition_point(|t| *t <= self.time.last);
        (start..end.max(start), hidden)
    }
}
