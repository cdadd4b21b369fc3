//! Runs of rows in order: where they are in the batches, and in what order they belong.

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::compute::{BatchCoalescer, interleave, interleave_record_batch, partition};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::Result;
use datafusion::physical_expr::LexOrdering;
use ebbtide_buckets::time_values;
use std::ops::Range;

/// Rows in runs that are shorter on average are sorted row by row.
const SHORTEST_AVERAGE: usize = 8;

/// Rows of a batch that are equal in all columns of the order but the last, which is a time, and in order of that.
#[derive(Debug)]
struct Run {
    batch: usize,
    rows: Range<usize>,
}

/// Batches and the runs in them.
#[derive(Debug, Default)]
pub(super) struct Runs {
    batches: Vec<RecordBatch>,
    /// The values by which the rows of each batch are ordered.
    keys: Vec<Vec<ArrayRef>>,
    runs: Vec<Run>,
    rows: usize,
}

impl Runs {
    /// Adds a batch; `false` if its times have nulls.
    pub(super) fn add(&mut self, batch: RecordBatch, order: &LexOrdering) -> Result<bool> {
        let rows = batch.num_rows();
        let keys = order.iter().map(|by| by.expr.evaluate(&batch)?.into_array(rows));
        let keys = keys.collect::<Result<Vec<ArrayRef>>>()?;
        let number = self.batches.len();
        self.batches.push(batch);
        self.rows += rows;
        if let Some((time, others)) = keys.split_last()
            && rows > 0
        {
            if time.null_count() > 0 {
                return Ok(false);
            }
            let times = time_values(time)?;
            let ranges =
                if others.is_empty() { std::iter::once(0..rows).collect() } else { partition(others)?.ranges() };
            for range in ranges {
                let mut start = range.start;
                for row in range.start + 1..range.end {
                    if times[row] < times[row - 1] {
                        self.runs.push(Run { batch: number, rows: start..row });
                        start = row;
                    }
                }
                self.runs.push(Run { batch: number, rows: start..range.end });
            }
        }
        self.keys.push(keys);
        Ok(true)
    }

    /// Whether sorting whole runs pays.
    pub(super) fn are_long(&self) -> bool {
        self.rows / SHORTEST_AVERAGE >= self.runs.len()
    }

    /// The number of runs.
    pub(super) fn count(&self) -> usize {
        self.runs.len()
    }

    /// The batches as they came.
    pub(super) fn into_batches(self) -> Vec<RecordBatch> {
        self.batches
    }

    /// Sorts the runs, and groups those that overlap.
    pub(super) fn sorted(self, order: &LexOrdering) -> Result<SortedRuns> {
        let first = self.sort_keys(order, |run| run.rows.start)?;
        let last = self.sort_keys(order, |run| run.rows.end - 1)?;
        let mut sorted: Vec<usize> = (0..self.runs.len()).collect();
        sorted.sort_by_key(|run| first.row(*run));
        let mut groups: Vec<Range<usize>> = Vec::new();
        // The run of the last group that ends last.
        let mut ends_last = 0;
        for (place, run) in sorted.iter().enumerate() {
            match groups.last_mut() {
                Some(group) if first.row(*run) < last.row(ends_last) => {
                    group.end = place + 1;
                    if last.row(*run) > last.row(ends_last) {
                        ends_last = *run;
                    }
                }
                _ => {
                    groups.push(place..place + 1);
                    ends_last = *run;
                }
            }
        }
        let overlapping = groups.iter().filter(|group| group.len() > 1).flat_map(|group| &sorted[group.clone()]);
        let overlapping = overlapping.map(|run| self.runs[*run].rows.len()).sum();
        Ok(SortedRuns { runs: self, sorted, groups, overlapping })
    }

    /// One row of each run, comparable by bytes.
    fn sort_keys(&self, order: &LexOrdering, row_of: impl Fn(&Run) -> usize) -> Result<Rows> {
        let rows: Vec<(usize, usize)> = self.runs.iter().map(|run| (run.batch, row_of(run))).collect();
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for (at, by) in order.iter().enumerate() {
            let arrays: Vec<&dyn Array> = self.keys.iter().map(|keys| keys[at].as_ref()).collect();
            let column = interleave(&arrays, &rows)?;
            fields.push(SortField::new_with_options(column.data_type().clone(), by.options));
            columns.push(column);
        }
        Ok(RowConverter::new(fields)?.convert_columns(&columns)?)
    }
}

/// Runs in the order of their first rows.
#[derive(Debug)]
pub(super) struct SortedRuns {
    runs: Runs,
    /// The numbers of the runs.
    sorted: Vec<usize>,
    /// Places in `sorted`: runs of different groups do not overlap.
    groups: Vec<Range<usize>>,
    overlapping: usize,
}

impl SortedRuns {
    /// The number of rows that have to be merged.
    pub(super) fn overlapping(&self) -> usize {
        self.overlapping
    }

    /// The bytes that merging the largest group takes beside the batches.
    pub(super) fn merge_bytes(&self) -> usize {
        let rows = |group: &Range<usize>| -> usize {
            self.sorted[group.clone()].iter().map(|run| self.runs.runs[*run].rows.len()).sum()
        };
        let largest = self.groups.iter().filter(|group| group.len() > 1).map(rows).max().unwrap_or(0);
        largest * (size_of::<(i64, (usize, usize))>() + size_of::<(usize, usize)>())
    }

    pub(super) fn into_runs(self) -> Runs {
        self.runs
    }

    /// The rows in order, in batches of about this many.
    pub(super) fn into_sorted_batches(self, schema: SchemaRef, batch_rows: usize) -> SortedBatches {
        let output = BatchCoalescer::new(schema, batch_rows).with_biggest_coalesce_batch_size(Some(batch_rows));
        SortedBatches { runs: self, next: 0, merged: Vec::new().into_iter(), batch_rows, output }
    }
}

/// Sorted batches, one after the other.
#[derive(Debug)]
pub(super) struct SortedBatches {
    runs: SortedRuns,
    /// The group to be copied next.
    next: usize,
    /// Rows of the group before it that remain.
    merged: std::vec::IntoIter<(usize, usize)>,
    batch_rows: usize,
    output: BatchCoalescer,
}

impl SortedBatches {
    /// The next batch, `None` at the end.
    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.output.next_completed_batch() {
                return Ok(Some(batch));
            }
            let merged: Vec<(usize, usize)> = self.merged.by_ref().take(self.batch_rows).collect();
            if !merged.is_empty() {
                let batches: Vec<&RecordBatch> = self.runs.runs.batches.iter().collect();
                self.output.push_batch(interleave_record_batch(&batches, &merged)?)?;
                continue;
            }
            let Some(group) = self.runs.groups.get(self.next).cloned() else {
                self.output.finish_buffered_batch()?;
                return Ok(self.output.next_completed_batch());
            };
            self.next += 1;
            match self.runs.sorted[group.clone()] {
                [run] => {
                    let Run { batch, rows } = &self.runs.runs.runs[run];
                    self.output.push_batch(self.runs.runs.batches[*batch].slice(rows.start, rows.len()))?;
                }
                _ => self.merged = self.merge(group)?.into_iter(),
            }
        }
    }

    /// The rows of runs that are equal in all columns but the time, in order of it. Standard sorting merges what is in order.
    fn merge(&self, group: Range<usize>) -> Result<Vec<(usize, usize)>> {
        let mut rows = Vec::new();
        for run in &self.runs.sorted[group] {
            let Run { batch, rows: of_run } = &self.runs.runs.runs[*run];
            if let Some(time) = self.runs.runs.keys[*batch].last() {
                let times = time_values(time)?;
                rows.extend(of_run.clone().map(|row| (times[row], (*batch, row))));
            }
        }
        rows.sort_by_key(|(time, _)| *time);
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }
}
