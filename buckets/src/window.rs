//! Windows: the aligned ranges of time that buckets cover.

use crate::meta::MetaKey;
use serde::{Deserialize, Serialize};

/// A half-open range of time `[start, end)` in units of the collection's precision, one span wide and aligned to the
/// epoch. At the two ends of the range of `i64` it is cut short, and the last one holds `i64::MAX` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// The first time inside.
    pub start: i64,
    /// The first time after it: the bucket's upper bound.
    pub end: i64,
}

impl Window {
    /// The window that holds `t`, for windows of `span` units, floored towards minus infinity.
    #[must_use]
    pub fn of(t: i64, span: i64) -> Window {
        let span = span.max(1);
        let index = t.div_euclid(span);
        Window { start: index.saturating_mul(span), end: index.saturating_add(1).saturating_mul(span) }
    }
}

/// The key of a bucket within its collection. Sorts by meta, then by time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId {
    /// The meta value's key.
    pub meta: MetaKey,
    /// The aligned range of time.
    pub window: Window,
}
