//! Which buckets may contain the first rows of an order.
//!
//! A bucket whose rows are all visible has one row at the best of its bounds, and all others no later than the worst. The bounds of all
//! buckets give, before any row is read, the last value that the first rows can have: buckets that begin after it are skipped.

use super::request::FirstRows;
use super::selection::SelectedBucket;
use crate::segment::Segment;
use ebbtide_buckets::{ChunkBucket, FieldType, Numbers, Schema, SegmentReader};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Time,
    Int,
    Double,
}

/// Finds the buckets that may contain the first rows. A key is greater the earlier its row comes.
pub(super) struct FirstBuckets<'a> {
    order: &'a FirstRows,
    kind: Kind,
    /// Keys, and for each a number of rows that come no later: the greatest keys that are needed for enough rows.
    sure: BinaryHeap<Reverse<(i64, u64)>>,
    /// The sum of these numbers.
    rows: u64,
}

/// What is known about the rows of a bucket.
pub(super) struct Keys {
    /// No row has a greater key; `None` if a row may have any.
    first: Option<i64>,
    /// Keys, and for each a number of visible rows that come no later.
    sure: Option<[(i64, u64); 2]>,
}

impl<'a> FirstBuckets<'a> {
    /// `None` if nothing is known about the values of this column.
    pub(super) fn new(order: &'a FirstRows, schema: &Schema) -> Option<Self> {
        let kind = match schema.field_type(&order.column) {
            _ if order.column == schema.time => Kind::Time,
            Some(FieldType::Int64) => Kind::Int,
            Some(FieldType::Double) => Kind::Double,
            _ => return None,
        };
        Some(FirstBuckets { order, kind, sure: BinaryHeap::new(), rows: 0 })
    }

    /// The keys of a bucket of a segment.
    pub(super) fn sealed(&self, segment: &Segment, reader: &SegmentReader, bucket: &SelectedBucket) -> Keys {
        self.of_sealed(segment, reader, bucket).unwrap_or(Keys { first: None, sure: None })
    }

    /// `None` if nothing is known about the values.
    fn of_sealed(&self, segment: &Segment, reader: &SegmentReader, bucket: &SelectedBucket) -> Option<Keys> {
        let whole = bucket.filter.is_none() && segment.is_unchanged(bucket.ordinal);
        if self.kind == Kind::Time {
            let rows = if whole { bucket.bounds.rows } else { 0 };
            return Some(self.keys(bucket.bounds.first, bucket.bounds.last, rows));
        }
        let last = Keys { first: Some(i64::MIN), sure: None };
        let Some(stats) = reader.directory().stats(&self.order.column) else {
            let without_values = reader.schema().field_type(&self.order.column).is_none() && !self.order.nulls_first;
            return without_values.then_some(last);
        };
        let entry = if stats.per_bucket { bucket.ordinal } else { 0 };
        let (values, nulls) = (*stats.counts.get(entry)?, *stats.nulls.get(entry)?);
        let nulls_come_first = self.order.nulls_first && nulls > 0;
        if values == 0 {
            return (!nulls_come_first).then_some(last);
        }
        let (least, greatest) = (self.number(&stats.min, entry)?, self.number(&stats.max, entry)?);
        let rows = if whole && stats.per_bucket { values.min(bucket.bounds.rows) } else { 0 };
        let keys = self.keys(least, greatest, rows);
        Some(Keys { first: keys.first.filter(|_| !nulls_come_first), ..keys })
    }

    /// The keys of a bucket in memory. `visible` is the number of its rows that are visible.
    pub(super) fn open(&self, bucket: &ChunkBucket, visible: usize) -> Keys {
        let rows = if visible == bucket.rows.len() { visible as u64 } else { 0 };
        match self.kind {
            Kind::Time => self.keys(bucket.first, bucket.last, rows),
            Kind::Int | Kind::Double => Keys { first: None, sure: None },
        }
    }

    /// The keys for these bounds of values. `rows` is the number of visible rows that are known to have such a value.
    fn keys(&self, least: i64, greatest: i64, rows: u64) -> Keys {
        // `!` turns the order around, and no number overflows.
        let (best, worst) = if self.order.descending { (greatest, least) } else { (!least, !greatest) };
        Keys { first: Some(best), sure: (rows > 0).then_some([(best, 1), (worst, rows.saturating_sub(1))]) }
    }

    /// Takes the rows of a bucket into account.
    pub(super) fn add(&mut self, keys: &Keys) {
        for (key, rows) in keys.sure.into_iter().flatten() {
            self.sure.push(Reverse((key, rows)));
            self.rows = self.rows.saturating_add(rows);
            while let Some(Reverse((_, least))) = self.sure.peek().copied()
                && self.rows - least >= self.order.rows
            {
                self.sure.pop();
                self.rows -= least;
            }
        }
    }

    /// Whether a bucket may contain some of the first rows, once all buckets are taken into account.
    pub(super) fn keeps(&self, keys: &Keys) -> bool {
        // There may be fewer rows than are asked for.
        let last = self.sure.peek().filter(|_| self.rows >= self.order.rows);
        keys.first.is_none_or(|first| last.is_none_or(|Reverse((last, _))| first >= *last))
    }

    /// A number as one that has the same order; `None` for one whose place is not known.
    fn number(&self, numbers: &Numbers, entry: usize) -> Option<i64> {
        #[expect(clippy::cast_precision_loss, reason = "only whole numbers that a double holds are turned into one")]
        let double = match (self.kind, numbers) {
            (Kind::Int, Numbers::Int(values)) => return values.get(entry).copied(),
            (Kind::Double, Numbers::Int(values)) => *values.get(entry).filter(|v| v.unsigned_abs() < 1 << 53)? as f64,
            (Kind::Double, Numbers::Double(values)) => *values.get(entry)?,
            _ => return None,
        };
        // Minus zero equals zero; the sign of NaN says nothing.
        let bits = (double + 0.0).to_bits().cast_signed();
        (!double.is_nan()).then_some(bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed())
    }
}
