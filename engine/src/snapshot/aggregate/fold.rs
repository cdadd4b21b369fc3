//! Reads what the directory does not answer: columns in their stored form, folded directly into the states of groups.

use super::groups::{Shape, State, Table};
use super::guard::{AggregateGuard, refused};
use super::tables::{Tables, each};
use crate::error::{Error, Result};
use crate::snapshot::row_filter::RowFilter;
use crate::sync::{AtomicU64, Ordering};
use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int64Type;
use ebbtide_buckets::{
    Chunk, Run, SegmentReader, accumulate_doubles, accumulate_ints, cores, double_at, time_values, to_number, to_usize,
};
use ebbtide_ttl::Code;
use std::ops::Range;
use std::sync::Arc;

/// Rows read at a time.
const BATCH_ROWS: usize = 8192;
/// Fewer rows are read by the caller's thread alone, since starting others takes as long as the work.
const PARALLEL_ROWS_MIN: u64 = 1 << 15;

/// The properties that the rows of one bucket share.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// Number of the meta in the answer.
    pub(super) meta: u32,
    /// The filter of its rows; `None` if all of them are selected.
    pub(super) filter: Option<RowFilter>,
    /// The group of all of them, if they are in one.
    pub(super) group: Option<i64>,
    /// Bounds of the times of the selected rows.
    pub(super) times: (i64, i64),
}

/// Some rows of a segment.
pub(super) struct SealedUnit {
    reader: SegmentReader,
    pieces: Vec<(Piece, u64)>,
    ranges: Vec<Range<u64>>,
    pub(super) rows: u64,
}

impl SealedUnit {
    pub(super) fn new(reader: SegmentReader) -> Self {
        SealedUnit { reader, pieces: Vec::new(), ranges: Vec::new(), rows: 0 }
    }

    /// Appends rows, in ascending order.
    pub(super) fn push(&mut self, piece: Piece, rows: Range<u64>) {
        let count = rows.end - rows.start;
        self.rows += count;
        self.pieces.push((piece, count));
        match self.ranges.last_mut() {
            Some(last) if last.end == rows.start => last.end = rows.end,
            _ => self.ranges.push(rows),
        }
    }
}

/// Some rows of a chunk in memory.
pub(super) struct OpenUnit {
    chunk: Arc<Chunk>,
    pieces: Vec<(Piece, u64)>,
    rows: Vec<u32>,
}

impl OpenUnit {
    pub(super) fn new(chunk: Arc<Chunk>) -> Self {
        OpenUnit { chunk, pieces: Vec::new(), rows: Vec::new() }
    }

    /// Appends rows of a bucket, in order of time.
    pub(super) fn push(&mut self, piece: Piece, rows: &[u32]) {
        self.pieces.push((piece, rows.len() as u64));
        self.rows.extend(rows);
    }
}

/// A piece of work for one thread.
pub(super) enum Unit {
    Sealed(SealedUnit),
    Open(OpenUnit),
}

impl Unit {
    fn rows(&self) -> u64 {
        match self {
            Unit::Sealed(unit) => unit.rows,
            Unit::Open(unit) => unit.rows.len() as u64,
        }
    }

    fn pieces(&self) -> &[(Piece, u64)] {
        match self {
            Unit::Sealed(unit) => &unit.pieces,
            Unit::Open(unit) => &unit.pieces,
        }
    }
}

/// Folds all units into the tables, on all cores if there are rows enough to be worth the threads.
pub(super) fn fold_all(shape: &Shape, units: &[Unit], tables: &mut Tables, guard: &dyn AggregateGuard) -> Result<()> {
    let rows: u64 = units.iter().map(Unit::rows).sum();
    if !guard.may_read(rows) {
        return Err(refused());
    }
    let threads = if rows < PARALLEL_ROWS_MIN { 1 } else { cores().min(units.len()) };
    let hidden = AtomicU64::new(0);
    let shared = tables.shared();
    each(threads, units, |unit| {
        if !guard.may_go_on() {
            return Err(refused());
        }
        let folded = fold(shape, unit)?;
        hidden.fetch_add(folded.hidden, Ordering::Relaxed);
        shared.merge(&folded.table, Some(&folded.metas));
        Ok(())
    })?;
    drop(shared);
    tables.hidden += hidden.into_inner();
    Ok(())
}

/// The groups of one unit.
struct Folded {
    table: Table,
    /// The numbers of its metas in the result.
    metas: Vec<u32>,
    /// Rows that were skipped because they are expired.
    hidden: u64,
}

fn fold(shape: &Shape, unit: &Unit) -> Result<Folded> {
    let mut metas: Vec<u32> = Vec::new();
    let mut local = Vec::with_capacity(unit.pieces().len());
    let mut times: Option<(i64, i64)> = None;
    for (piece, rows) in unit.pieces() {
        if metas.last() != Some(&piece.meta) {
            metas.push(piece.meta);
        }
        let meta = to_number(metas.len() - 1);
        local.push((Piece { meta, ..*piece }, *rows));
        times = Some(times.map_or(piece.times, |(a, b)| (a.min(piece.times.0), b.max(piece.times.1))));
    }
    let table = Table::new(shape, metas.len(), times.unwrap_or((0, 0)));
    let mut folding = Folding { shape, table, pieces: local, at: 0, used: 0, runs: Vec::new(), hidden: 0 };
    let needs_times = shape.edges || folding.pieces.iter().any(|(p, _)| p.filter.is_some() || p.group.is_none());
    match unit {
        Unit::Sealed(unit) => folding.sealed(unit, needs_times)?,
        Unit::Open(unit) => folding.open(unit)?,
    }
    Ok(Folded { table: folding.table, metas, hidden: folding.hidden })
}

struct Folding<'a> {
    shape: &'a Shape,
    table: Table,
    /// Pieces with their rows, in the order in which the rows come.
    pieces: Vec<(Piece, u64)>,
    /// The piece of the next row, and how many of the piece's rows were folded.
    at: usize,
    used: u64,
    runs: Vec<Run>,
    hidden: u64,
}

impl Folding<'_> {
    fn sealed(&mut self, unit: &SealedUnit, needs_times: bool) -> Result<()> {
        let schema = unit.reader.schema();
        let present = |name: &String| schema.field_type(name).is_some();
        let mut columns: Vec<String> =
            self.shape.fields.iter().map(|f| &f.name).filter(|name| present(name)).cloned().collect();
        if needs_times {
            columns.push(schema.time.clone());
        }
        if columns.is_empty() {
            return self.batch(None, &[], to_usize(unit.rows));
        }
        for batch in unit.reader.read_stored(&columns, &unit.ranges, BATCH_ROWS)? {
            let mut stored = batch?;
            let rows = stored.first().map_or(0, |column| column.len());
            let times = stored.pop_if(|_| needs_times);
            let mut stored = stored.into_iter();
            let of_fields: Vec<Option<ArrayRef>> =
                self.shape.fields.iter().map(|f| present(&f.name).then(|| stored.next()).flatten()).collect();
            self.batch(times.as_ref().map(|times| time_values(times)).transpose()?, &of_fields, rows)?;
        }
        Ok(())
    }

    fn open(&mut self, unit: &OpenUnit) -> Result<()> {
        let rows = UInt32Array::from(unit.rows.clone());
        let batch = &unit.chunk.batch;
        let times = take(batch.column(0), &rows, None)?;
        let of_fields = self
            .shape
            .fields
            .iter()
            .map(|f| Ok(batch.column_by_name(&f.name).map(|c| take(c, &rows, None)).transpose()?))
            .collect::<Result<Vec<_>>>()?;
        self.batch(Some(time_values(&times)?), &of_fields, unit.rows.len())
    }

    /// Folds further rows of the unit; a field that its source lacks has no column.
    fn batch(&mut self, times: Option<&[i64]>, of_fields: &[Option<ArrayRef>], rows: usize) -> Result<()> {
        let mut runs = std::mem::take(&mut self.runs);
        runs.clear();
        let mut start = 0;
        while start < rows {
            let Some((piece, count)) = self.pieces.get(self.at).copied() else {
                return Err(Error::internal("more rows were read than requested"));
            };
            let take = to_usize(count - self.used).min(rows - start);
            self.used += take as u64;
            if self.used == count {
                (self.at, self.used) = (self.at + 1, 0);
            }
            self.cut(&piece, times, start..start + take, &mut runs)?;
            start += take;
        }
        for (slot, from, to) in &runs {
            self.table.rows[*slot as usize] += u64::from(to - from);
        }
        for (state, column) in self.table.states.iter_mut().zip(of_fields) {
            let Some(column) = column else { continue };
            match state {
                State::Int(states) => accumulate_ints(column, &runs, states),
                State::Double(states) => accumulate_doubles(column, &runs, states),
            }
        }
        if let Some(times) = times.filter(|_| self.shape.edges) {
            self.edges(times, of_fields, &runs);
        }
        self.runs = runs;
        Ok(())
    }

    /// Cuts rows of one piece into runs of one group.
    fn cut(&mut self, piece: &Piece, times: Option<&[i64]>, rows: Range<usize>, runs: &mut Vec<Run>) -> Result<()> {
        #[expect(clippy::cast_possible_truncation, reason = "a batch holds fewer than 2^32 rows")]
        let mut push = |slot: u32, rows: Range<usize>| runs.push((slot, rows.start as u32, rows.end as u32));
        let (Some(times), None) = (times, piece.group) else {
            push(self.table.slot(piece.meta, piece.group.unwrap_or(0)), rows);
            return Ok(());
        };
        let (mut start, mut end) = (rows.start, rows.end);
        if let Some(filter) = piece.filter {
            let (kept, hidden) = filter.cut(&times[rows.clone()]);
            self.hidden += hidden as u64;
            (start, end) = (rows.start + kept.start, rows.start + kept.end);
        }
        while start < end {
            if times[start] < piece.times.0 || times[start] > piece.times.1 {
                let what = "the times of a bucket's rows are not within the bounds that its directory says";
                return Err(Error::new(Code::DataCorruptionDetected, what));
            }
            let group = self.shape.group(times[start]);
            let last = self.shape.bins.as_ref().map_or(i64::MAX, |bins| bins.last(times[start]));
            let next = first_after(&times[..end], start + 1, last);
            push(self.table.slot(piece.meta, group), start..next);
            start = next;
        }
        Ok(())
    }

    fn edges(&mut self, times: &[i64], of_fields: &[Option<ArrayRef>], runs: &[Run]) {
        let fields = self.table.edges.iter_mut().zip(of_fields).zip(&self.shape.fields);
        for ((edges, column), field) in fields {
            let bits = |row: usize| match (column, field.int) {
                (None, _) => None,
                (Some(column), true) => {
                    let ints = column.as_primitive_opt::<Int64Type>()?;
                    arrow::array::Array::is_valid(ints, row).then(|| ints.value(row).cast_unsigned())
                }
                (Some(column), false) => double_at(column, row).map(f64::to_bits),
            };
            for (slot, from, to) in runs {
                let (first, last) = (*from as usize, *to as usize - 1);
                edges[*slot as usize].add((times[first], bits(first)), (times[last], bits(last)));
            }
        }
    }
}

/// The first row from `start` on with a time after `last`, or the end. The search assumes that it is near.
fn first_after(times: &[i64], start: usize, last: i64) -> usize {
    let mut step = 1;
    let mut low = start;
    while low + step <= times.len() && times[low + step - 1] <= last {
        low += step;
        step *= 2;
    }
    let high = (low + step).min(times.len());
    low + times[low..high].partition_point(|t| *t <= last)
}
