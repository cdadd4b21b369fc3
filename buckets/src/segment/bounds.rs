//! Skipping buckets that statistics rule out.

use super::directory::Directory;
use super::stats::{FieldStats, Numbers};

/// Bounds of numeric fields, ready to be compared with the buckets of one directory.
#[derive(Debug)]
pub struct BoundsCheck<'a> {
    bounds: Vec<(&'a FieldStats, Option<f64>, Option<f64>)>,
}

impl<'a> BoundsCheck<'a> {
    /// For each field the minimum and maximum that are selected. Fields without statistics exclude nothing.
    #[must_use]
    pub fn new<'f>(
        directory: &'a Directory,
        bounds: impl Iterator<Item = (&'f str, Option<f64>, Option<f64>)>,
    ) -> BoundsCheck<'a> {
        let known = bounds.filter_map(|(field, min, max)| {
            Some((directory.stats(field)?, min.map(|m| m + 0.0), max.map(|m| m + 0.0)))
        });
        BoundsCheck { bounds: known.collect() }
    }

    /// Whether some row of a bucket may meet all the bounds; a null meets none.
    #[must_use]
    pub fn may_match(&self, bucket: usize) -> bool {
        self.bounds.iter().all(|(stats, min, max)| {
            let entry = if stats.per_bucket { bucket } else { 0 };
            stats.counts.get(entry).is_none_or(|count| {
                *count > 0
                    && min.is_none_or(|min| at(&stats.max, entry).is_none_or(|max| max.total_cmp(&min).is_ge()))
                    && max.is_none_or(|max| at(&stats.min, entry).is_none_or(|min| min.total_cmp(&max).is_le()))
            })
        })
    }
}

/// A number as a double. Beyond 2^53 rounding could move it past a bound that it meets, so then it rules nothing out.
#[expect(clippy::cast_precision_loss, reason = "only whole numbers that a double holds are turned into one")]
fn at(numbers: &Numbers, entry: usize) -> Option<f64> {
    match numbers {
        Numbers::Int(values) => values.get(entry).filter(|v| v.unsigned_abs() < 1 << 53).map(|v| *v as f64),
        // Minus zero and zero are equal to a query, but not to the total order.
        Numbers::Double(values) => values.get(entry).map(|v| v + 0.0),
    }
}
