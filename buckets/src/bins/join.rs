//! Results of several batches in one order.

use crate::columns::times;
use crate::meta::{MetaKey, keys_of_column, value_at};
use crate::schema::Schema;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::error::ArrowError;
use ebbtide_ttl::Value;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Consecutive rows of a batch with one meta: in the order of their metas and first times.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) key: MetaKey,
    start: i64,
    /// The batch by its number.
    pub(super) batch: usize,
    first: usize,
    len: usize,
}

impl Run {
    pub(super) fn rows(&self) -> Range<usize> {
        self.first..self.first + self.len
    }

    /// Cuts off the rows after the first that are not before a time.
    fn cut(&mut self, times: &[i64], at: i64) -> Option<Run> {
        let kept = times[self.rows()].partition_point(|time| *time < at).max(1);
        let (first, len) = (self.first + kept, self.len - kept);
        self.len = kept;
        (len > 0).then(|| Run { key: self.key.clone(), start: times[first], batch: self.batch, first, len })
    }
}

fn meta_of<'a>(batch: &'a RecordBatch, of: &Schema) -> Option<&'a ArrayRef> {
    of.meta.as_ref().and_then(|meta| batch.column_by_name(meta))
}

/// All rows of batches of different bins, in order of meta and time; `of` has the name of the meta.
pub(super) fn runs(batches: &[RecordBatch], of: &Schema) -> Result<Vec<Run>, ArrowError> {
    let mut left = BinaryHeap::new();
    for (number, batch) in batches.iter().enumerate() {
        let starts = times(batch)?;
        let (keys, places) = keys_of_column(meta_of(batch, of), starts.len());
        let mut first = 0;
        for of_meta in places.chunk_by(|a, b| a == b) {
            let key = keys[of_meta[0] as usize].clone();
            left.push(Reverse(Run { key, start: starts[first], batch: number, first, len: of_meta.len() }));
            first += of_meta.len();
        }
    }
    let mut runs = Vec::with_capacity(left.len());
    while let Some(Reverse(mut run)) = left.pop() {
        let next = left.peek().filter(|Reverse(next)| next.key == run.key).map(|Reverse(next)| next.start);
        if let Some(next) = next {
            left.extend(run.cut(times(&batches[run.batch])?, next).map(Reverse));
        }
        runs.push(run);
    }
    Ok(runs)
}

/// Batches of [`crate::Bins::results`] that have different bins, in order of meta and time from batch to batch; `of` has the
/// name of the meta.
///
/// # Errors
/// None that these columns can meet.
pub fn results_in_order(batches: Vec<RecordBatch>, of: &Schema) -> Result<Vec<RecordBatch>, ArrowError> {
    if are_in_order(&batches, of)? {
        return Ok(batches);
    }
    let runs = runs(&batches, of)?;
    let slices: Vec<RecordBatch> = runs.iter().map(|run| batches[run.batch].slice(run.first, run.len)).collect();
    Ok(vec![concat_batches(&batches[0].schema(), &slices)?])
}

/// Whether each batch ends before the next begins.
fn are_in_order(batches: &[RecordBatch], of: &Schema) -> Result<bool, ArrowError> {
    let mut end = None;
    for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
        let (starts, meta) = (times(batch)?, meta_of(batch, of));
        let at = |row: usize| {
            let key = MetaKey::of(&meta.map_or(Value::Null, |meta| value_at(meta, row)));
            (key, starts[row])
        };
        if end.is_some_and(|end| at(0) <= end) {
            return Ok(false);
        }
        end = Some(at(starts.len() - 1));
    }
    Ok(true)
}
