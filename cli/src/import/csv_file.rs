//! Rows of cells: the types of their columns, and batches of them.

use super::columns::{Column, Columns, Origin};
use super::decoder::{Decoder, Input, RowSpec};
use super::learnt::LearnedColumns;
use super::{Failure, Rows};
use crate::batching::INSERT_BYTES;
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema as ArrowSchema};
use ebbtide_buckets::{cores, parallel};
use ebbtide_query::text_table::cells::{self, Cells};
use ebbtide_query::text_table::column::ColumnBuilder;
use ebbtide_query::text_table::infer::ColumnStats;
use ebbtide_query::text_table::split::Record;
use ebbtide_ttl::{Precision, Timestamp};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Time,
    Meta,
    Field,
}

/// Rows whose cells are examined column by column before those of the next rows, so that the processor's cache holds them.
const TILE_ROWS: usize = 256;

/// Divides columns among all cores.
fn groups_of<T>(columns: impl Iterator<Item = T>) -> Vec<Mutex<Vec<T>>> {
    let mut left: Vec<T> = columns.collect();
    let each = left.len().div_ceil(cores()).max(1);
    let mut groups = Vec::new();
    while !left.is_empty() {
        let next = left.split_off(each.min(left.len()));
        groups.push(Mutex::new(std::mem::replace(&mut left, next)));
    }
    groups
}

/// The cell of a column in a row; with `number`, without leading zeros.
fn cell_of<'r>(origin: &'r Origin, number: bool, row: &Record<'r>, scratch: &'r mut Vec<u8>) -> Cow<'r, [u8]> {
    let cell = origin.cell(row, scratch);
    match if number { cells::unpadded(cell) } else { None } {
        Some(whole) => Cow::Owned(whole),
        None => Cow::Borrowed(cell),
    }
}

/// Reads the time in a cell of a row.
type ReadTime<'a> = dyn Fn(&Record<'_>, &[u8]) -> Result<Timestamp, String> + 'a;

/// A column to import. Columns without any value have no type and are skipped.
struct ImportedColumn {
    name: String,
    origin: Origin,
    role: Role,
    cells: ColumnBuilder,
    /// Whether leading zeros are ignored.
    number: bool,
    /// The rows whose cells cannot be imported, by their numbers among the rows of one call, and why.
    wrong: Vec<(usize, String)>,
}

impl ImportedColumn {
    /// Adds the cells of rows. `first` is the number of the first row. Rows in `bad` get no value.
    fn fill(
        &mut self,
        first: usize,
        rows: &[Record<'_>],
        cells: &Cells,
        precision: Precision,
        bad: &BTreeMap<usize, String>,
        read_time: &ReadTime<'_>,
    ) {
        let mut scratch = Vec::new();
        for (at, row) in (first..).zip(rows) {
            let cell = &*cell_of(&self.origin, self.number, row, &mut scratch);
            if cells.is_null(cell) || bad.contains_key(&at) {
                if self.role == Role::Time && !bad.contains_key(&at) {
                    self.wrong.push((at, format!("the time is missing: column '{}' is empty", self.name)));
                }
                self.cells.push_null();
                continue;
            }
            let time = if self.cells.is_time() { read_time(row, cell).map(Some) } else { Ok(None) };
            if let Err(reason) = time.and_then(|time| self.cells.push(cell, time, cells, precision)) {
                self.cells.push_null();
                self.wrong.push((at, format!("column '{}': {reason}", self.name)));
            }
        }
    }
}

/// Makes batches of the lines of a table.
pub(super) struct Table<'a> {
    input: Input<'a>,
    columns: Option<Columns>,
    /// The last of the lines below the header that are no rows.
    head_end: u64,
    /// The number of the file's column for each of the columns that are learnt; `None` for those of other files.
    places: Vec<Option<usize>>,
    settled: Option<Rc<RowSpec>>,
    wanted: Vec<ImportedColumn>,
    lines: Vec<u64>,
    /// Whether to keep each row that was started.
    keep: Vec<bool>,
    /// Approximate bytes of the next batch.
    bytes: usize,
}

impl<'a> Table<'a> {
    pub(super) fn new(input: Input<'a>) -> Self {
        Table {
            input,
            columns: None,
            head_end: 0,
            places: Vec::new(),
            settled: None,
            wanted: Vec::new(),
            lines: Vec::new(),
            keep: Vec::new(),
            bytes: 0,
        }
    }

    fn set_aside(&self, record: &Record<'_>, reason: &str) -> Result<(), Failure> {
        self.input.job.bad.borrow_mut().row(&self.input.name, record.line, reason, &record.text())
    }

    /// Determines the columns to import, once the file's columns and their types are known.
    fn want(&mut self) {
        let (Some(columns), Some(settled)) = (&self.columns, &self.settled) else { return };
        let wanted = |Column { name, origin }: &Column| {
            let kind = settled.kinds.iter().find(|(n, _)| n == name)?.1;
            let role = if *name == settled.layout.time_column {
                Role::Time
            } else if settled.layout.meta_columns.contains(name) {
                Role::Meta
            } else {
                Role::Field
            };
            let number = self.input.job.args.number.contains(name);
            Some(ImportedColumn {
                name: name.clone(),
                origin: origin.clone(),
                role,
                cells: ColumnBuilder::new(kind),
                number,
                wrong: Vec::new(),
            })
        };
        self.wanted = columns.columns.iter().filter_map(wanted).collect();
    }

    /// Adds the cells of rows, and returns the numbers of those that cannot be imported, with the reason of each.
    fn fill(&mut self, rows: &[Record<'_>]) -> Result<BTreeMap<usize, String>, Failure> {
        let Some(settled) = self.settled.clone() else { return Ok(BTreeMap::new()) };
        let precision = settled.layout.precision;
        let cells = &self.input.job.cells;
        let reader = |role: Role| if role == Role::Time { &cells.times } else { &cells.general };
        let mut bad = BTreeMap::new();
        if cells.times.decides() {
            // Times depend on earlier rows: one column after the other, without the rows that are not imported.
            let metas: Vec<Origin> =
                self.wanted.iter().filter(|c| c.role == Role::Meta).map(|c| c.origin.clone()).collect();
            let folds = &self.input.job.folds;
            for column in &mut self.wanted {
                let (reader, name) = (reader(column.role), column.name.clone());
                let other = if column.role == Role::Time { "" } else { name.as_str() };
                column.fill(0, rows, cells, precision, &bad, &|row, cell| {
                    reader.read_in(cell, folds.borrow_mut().series(&series_key(row, &metas, other)))
                });
                bad.extend(column.wrong.drain(..));
            }
            return Ok(bad);
        }
        let count = rows.len() * self.wanted.len();
        let groups = groups_of(self.wanted.iter_mut());
        parallel(count as u64, groups.len(), &|| true, |at| {
            let mut columns = groups[at].lock().unwrap_or_else(PoisonError::into_inner);
            for (first, tile) in (0..).step_by(TILE_ROWS).zip(rows.chunks(TILE_ROWS)) {
                for column in &mut *columns {
                    let reader = reader(column.role);
                    column.fill(first, tile, cells, precision, &BTreeMap::new(), &|_, cell| reader.read(cell));
                }
            }
            Ok::<_, Failure>(())
        })?;
        for column in &mut self.wanted {
            // The reason is that of the first column.
            for (at, reason) in column.wrong.drain(..) {
                bad.entry(at).or_insert(reason);
            }
        }
        Ok(bad)
    }

    /// Whether no field of a row has a value.
    fn is_empty(&self, row: &Record<'_>) -> bool {
        let mut scratch = Vec::new();
        let mut fields = self.wanted.iter().filter(|column| column.role == Role::Field);
        fields.all(|column| self.input.job.cells.is_null(&cell_of(&column.origin, column.number, row, &mut scratch)))
    }

    /// Approximate bytes of a row in a batch.
    fn bytes_of(&self, row: &Record<'_>) -> usize {
        row.bytes() + 8 * self.wanted.len()
    }
}

/// The key of a row's series: its metas, and the name of the column, if it is not that of the time.
fn series_key(row: &Record<'_>, metas: &[Origin], other: &str) -> Vec<u8> {
    let (mut key, mut scratch) = (Vec::new(), Vec::new());
    for meta in metas {
        key.extend_from_slice(meta.cell(row, &mut scratch));
        key.push(0);
    }
    key.extend_from_slice(other.as_bytes());
    key
}

impl Decoder for Table<'_> {
    fn is_row(&mut self, record: &Record<'_>) -> Result<bool, Failure> {
        if self.columns.is_some() {
            return Ok(record.line > self.head_end);
        }
        let shape = &self.input.job.shape;
        self.columns = Some(Columns::new(record, shape, &self.input.constants, &self.input.name)?);
        let has_header = shape.has_header();
        if let Some(below) = self.input.job.args.skip_after_header.filter(|_| has_header) {
            self.head_end = record.line + below;
        }
        self.want();
        Ok(!has_header)
    }

    fn learn(&mut self, rows: &[Record<'_>], learnt: &mut LearnedColumns) -> Result<ControlFlow<()>, Failure> {
        let Some(columns) = &self.columns else { return Ok(ControlFlow::Continue(())) };
        if learnt.seen.is_empty() || self.places.is_empty() {
            for (at, column) in columns.columns.iter().enumerate() {
                let place = learnt.seen.iter().position(|c| c.name == column.name).unwrap_or_else(|| {
                    learnt.seen.push(ColumnStats::new(&column.name));
                    learnt.seen.len() - 1
                });
                self.places.resize(learnt.seen.len(), None);
                self.places[place] = Some(at);
            }
        }
        let (job, name) = (&self.input.job, &*self.input.name);
        let mut fitting = Vec::with_capacity(rows.len());
        for row in rows {
            match columns.misfit(row) {
                Some(reason) if !job.bad.borrow().lenient() => {
                    return Err(Failure::new(format!("{name}:{}: {reason}", row.line)));
                }
                // It is set aside when rows are made.
                Some(_) => {}
                None => {
                    columns.check_nameless(row, name)?;
                    fitting.push(*row);
                }
            }
        }
        learnt.rows += fitting.len() as u64;
        let count = fitting.len() * columns.columns.len();
        let seen = learnt.seen.iter_mut().zip(&self.places);
        let groups = groups_of(seen.filter_map(|(seen, at)| Some((seen, (*at)?))));
        let cells = &job.cells;
        parallel(count as u64, groups.len(), &|| true, |group| {
            let mut group = groups[group].lock().unwrap_or_else(PoisonError::into_inner);
            let mut scratch = Vec::new();
            for tile in fitting.chunks(TILE_ROWS) {
                for (seen, at) in &mut *group {
                    let (origin, is_time) = (&columns.columns[*at].origin, columns.time == Some(*at));
                    for row in tile {
                        let cell = origin.cell(row, &mut scratch);
                        if !cells.is_null(cell) {
                            seen.look(cell, cells, is_time, name, row.line);
                        }
                    }
                }
            }
            Ok::<_, Failure>(())
        })?;
        Ok(ControlFlow::Continue(()))
    }

    fn begin(&mut self, settled: &Rc<RowSpec>) {
        self.settled = Some(Rc::clone(settled));
        self.want();
    }

    fn pass_over(&mut self, rows: &[Record<'_>]) {
        let Some(columns) = self.columns.as_ref().filter(|_| self.input.job.cells.times.decides()) else { return };
        let fitting: Vec<_> = rows.iter().filter(|row| columns.misfit(row).is_none()).copied().collect();
        // Whether they are imported was decided before.
        let _ = self.fill(&fitting);
        for column in &mut self.wanted {
            column.cells.finish(Precision::Ms);
        }
    }

    fn room(&self, rows: &[Record<'_>]) -> usize {
        let mut bytes = self.bytes;
        let left = self.input.job.batch_rows.saturating_sub(self.keep.len()).max(1);
        let more = rows.iter().take(left).take_while(|row| {
            let fits = bytes < INSERT_BYTES;
            bytes += self.bytes_of(row);
            fits
        });
        more.count().max(1)
    }

    fn add(&mut self, rows: &[Record<'_>]) -> Result<(), Failure> {
        let mut fitting = Vec::with_capacity(rows.len());
        let mut misfits = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            match self.columns.as_ref().and_then(|columns| columns.misfit(row)) {
                Some(reason) => drop(misfits.insert(at, reason)),
                None => fitting.push(*row),
            }
        }
        self.bytes += fitting.iter().map(|row| self.bytes_of(row)).sum::<usize>();
        let bad = self.fill(&fitting)?;
        let mut fitting = 0..fitting.len();
        for (at, row) in rows.iter().enumerate() {
            if let Some(reason) = misfits.get(&at) {
                self.set_aside(row, reason)?;
                continue;
            }
            let reason = fitting.next().and_then(|number| bad.get(&number));
            let is_empty = reason.is_none() && self.input.job.args.skip_empty && self.is_empty(row);
            self.keep.push(reason.is_none() && !is_empty);
            match reason {
                Some(reason) => self.set_aside(row, reason)?,
                None if is_empty => self.input.job.empty.set(self.input.job.empty.get() + 1),
                None => self.lines.push(row.line),
            }
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.keep.len() >= self.input.job.batch_rows || self.bytes >= INSERT_BYTES
    }

    fn finish(&mut self, end: u64) -> Result<Option<Rows>, Failure> {
        let Some(settled) = self.settled.as_ref().filter(|_| !self.keep.is_empty()) else { return Ok(None) };
        let mut columns = Vec::with_capacity(self.wanted.len());
        let mut fields = Vec::with_capacity(self.wanted.len());
        for wanted in &mut self.wanted {
            let column = wanted.cells.finish(settled.layout.precision);
            fields.push(Field::new(&wanted.name, column.data_type().clone(), true));
            columns.push(column);
        }
        let mut batch = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns)
            .map_err(ebbtide_query::QueryError::from)?;
        self.bytes = 0;
        let keep = std::mem::take(&mut self.keep);
        if keep.contains(&false) {
            batch = filter_record_batch(&batch, &BooleanArray::from(keep)).map_err(ebbtide_query::QueryError::from)?;
        }
        let batch = settled.layout.arrange(&batch, &self.input.name)?;
        Ok(Some(Rows { batch, source: Rc::clone(&self.input.name), lines: std::mem::take(&mut self.lines), end }))
    }
}
