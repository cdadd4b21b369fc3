//! Rows whose times and fields are within bounds, found before the other columns are read.

use super::FieldBound;
use crate::error::Result;
use crate::snapshot::row_filter::RowFilter;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Float64Type, Int64Type};
use ebbtide_buckets::{Schema, SegmentReader, time_values, to_usize};
use std::ops::Range;

/// Rows are skipped only if at most one row in this number is within the bounds of fields.
const ROWS_A_MATCH_MIN: u64 = 8;
/// The same without bounds of fields: the rows of a bucket within a range of time are contiguous, so reading them costs less.
const ROWS_A_TIME_MIN: u64 = 2;
/// More pieces than this must have [`PIECE_ROWS_MIN`] rows on average, unless there are bounds.
const PIECES_MAX: u64 = 1024;
const PIECE_ROWS_MIN: u64 = 8;

/// 2^53. Every whole number with a smaller absolute value is exactly a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The rows of a unit that are within bounds and visible.
pub(super) struct Found {
    pub(super) ranges: Vec<Range<u64>>,
    /// Rows that are hidden because they are expired.
    pub(super) hidden: u64,
    /// Visible rows outside of the bounds.
    pub(super) outside: u64,
}

/// Finds the rows in these ranges that pass the filter and whose fields are within the bounds. Returns `None` if more than one row in
/// [`ROWS_A_MATCH_MIN`], or [`ROWS_A_TIME_MIN`] without bounds, is found, or if they are many short pieces: all rows are read then.
pub(super) fn find(
    reader: &SegmentReader,
    schema: &Schema,
    bounds: &[FieldBound],
    filter: Option<RowFilter>,
    ranges: &[Range<u64>],
) -> Result<Option<Found>> {
    let mut columns: Vec<String> = Vec::new();
    let time = filter.map(|_| schema.time.clone());
    for name in bounds.iter().map(|bound| bound.field.clone()).chain(time) {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    let rows_a_match_min = if bounds.is_empty() { ROWS_A_TIME_MIN } else { ROWS_A_MATCH_MIN };
    let mut rest = ranges.iter().cloned();
    let mut range = rest.next().unwrap_or_default();
    let mut found = Found { ranges: Vec::new(), hidden: 0, outside: 0 };
    let (mut seen, mut visible_rows, mut kept) = (0, 0, 0);
    for batch in reader.read(&columns, schema, ranges, super::BATCH_ROWS)? {
        let batch = batch?;
        let mut matching = within_all(&batch, bounds);
        if let Some(filter) = filter {
            let times = batch.column_by_name(&schema.time).map(time_values).transpose()?.unwrap_or_default();
            let (visible, hidden) = filter.mask(times);
            found.hidden += hidden;
            visible_rows += visible.count_set_bits() as u64;
            matching = &matching & &visible;
        } else {
            visible_rows += batch.num_rows() as u64;
        }
        let mut at = 0;
        while at < batch.num_rows() {
            while range.is_empty() {
                let Some(next) = rest.next() else { return Ok(None) };
                range = next;
            }
            let count = to_usize(range.end - range.start).min(batch.num_rows() - at);
            for (start, end) in matching.slice(at, count).set_slices() {
                kept += (end - start) as u64;
                let rows = range.start + start as u64..range.start + end as u64;
                match found.ranges.last_mut() {
                    Some(last) if last.end == rows.start => last.end = rows.end,
                    _ => found.ranges.push(rows),
                }
            }
            range.start += count as u64;
            at += count;
        }
        seen += batch.num_rows() as u64;
        if kept * rows_a_match_min > seen {
            return Ok(None);
        }
    }
    let pieces = found.ranges.len() as u64;
    if bounds.is_empty() && pieces > PIECES_MAX && kept < pieces * PIECE_ROWS_MIN {
        return Ok(None);
    }
    found.outside = visible_rows - kept;
    Ok(Some(found))
}

/// Which rows are within all of the bounds.
fn within_all(batch: &RecordBatch, bounds: &[FieldBound]) -> BooleanBuffer {
    let mut all: Option<BooleanBuffer> = None;
    for bound in bounds {
        let Some(column) = batch.column_by_name(&bound.field) else { continue };
        let within = within(column, bound);
        all = Some(all.map_or_else(|| within.clone(), |all| &all & &within));
    }
    all.unwrap_or_else(|| BooleanBuffer::new_set(batch.num_rows()))
}

/// Marks the values that may be within a bound. It keeps every value that the statistics of buckets would keep: NaN is within every
/// bound, -0.0 equals 0.0, and nulls are outside.
fn within(column: &ArrayRef, bound: &FieldBound) -> BooleanBuffer {
    let rows = column.len();
    let within = if let Some(doubles) = column.as_primitive_opt::<Float64Type>() {
        let (min, max) = (bound.min.unwrap_or(f64::NEG_INFINITY), bound.max.unwrap_or(f64::INFINITY));
        let values = doubles.values();
        BooleanBuffer::collect_bool(rows, |row| {
            let outside = (values[row] < min) | (values[row] > max);
            !outside
        })
    } else if let Some(ints) = column.as_primitive_opt::<Int64Type>() {
        let (min, max) = whole_bounds(bound);
        let values = ints.values();
        BooleanBuffer::collect_bool(rows, |row| (min <= values[row]) & (values[row] <= max))
    } else {
        return BooleanBuffer::new_set(rows);
    };
    match column.nulls() {
        Some(nulls) => &within & nulls.inner(),
        None => within,
    }
}

/// A bound as whole numbers. A bound of [`EXACT`] or more may have been rounded, so it is treated as no bound.
#[expect(clippy::cast_possible_truncation, reason = "bounds below 2^53, rounded to whole numbers")]
fn whole_bounds(bound: &FieldBound) -> (i64, i64) {
    let exact = |bound: &f64| bound.abs() < EXACT;
    let min = bound.min.filter(exact).map_or(i64::MIN, |min| min.ceil() as i64);
    let max = bound.max.filter(exact).map_or(i64::MAX, |max| max.floor() as i64);
    (min, max)
}
