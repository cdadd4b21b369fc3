//! Rows of cells: the types of their columns, and batches of them.

use super::columns::{Column, Columns, Origin};
use super::decoder::{Decoder, Input, LearnedColumns, RowSpec};
use super::{Failure, Rows};
use crate::batching::INSERT_BYTES;
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema as ArrowSchema};
use ebbtide_query::text_table::cells;
use ebbtide_query::text_table::column::ColumnBuilder;
use ebbtide_query::text_table::infer::ColumnStats;
use ebbtide_query::text_table::split::Record;
use ebbtide_ttl::{Precision, Timestamp};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Time,
    Meta,
    Field,
}

/// A column to import. Columns without any value have no type and are skipped.
struct ImportedColumn {
    name: String,
    origin: Origin,
    role: Role,
    cells: ColumnBuilder,
    /// Whether leading zeros are ignored.
    number: bool,
}

/// Makes batches of the lines of a table.
pub(super) struct Table<'a> {
    input: Input<'a>,
    columns: Option<Columns>,
    /// The last of the lines below the header that are no rows.
    head_end: u64,
    /// The indices of the columns among all columns of the file.
    places: Vec<usize>,
    settled: Option<Rc<RowSpec>>,
    wanted: Vec<ImportedColumn>,
    lines: Vec<u64>,
    /// Whether to keep each row that was started.
    keep: Vec<bool>,
    /// Approximate bytes of the next batch.
    bytes: usize,
    scratch: Vec<u8>,
    /// The key of a row's series.
    key: Vec<u8>,
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
            scratch: Vec::new(),
            key: Vec::new(),
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
            })
        };
        self.wanted = columns.columns.iter().filter_map(wanted).collect();
    }

    /// Writes the key of a row's series if times depend on earlier rows.
    fn note_series(&mut self, record: &Record<'_>) {
        self.key.clear();
        for column in self.wanted.iter().filter(|c| c.role == Role::Meta) {
            self.key.extend_from_slice(column.origin.cell(record, &mut self.scratch));
            self.key.push(0);
        }
    }

    /// Reads a time, which may depend on earlier rows; with `other`, the time of another column than that of the
    /// measurements.
    fn read_time(&self, cell: &[u8], other: Option<&str>) -> Result<Timestamp, String> {
        let cells = &self.input.job.cells;
        let reader = if other.is_none() { &cells.times } else { &cells.general };
        if !reader.decides() {
            return reader.read(cell);
        }
        let key = [self.key.as_slice(), other.unwrap_or_default().as_bytes()].concat();
        reader.read_in(cell, self.input.job.folds.borrow_mut().series(&key))
    }

    /// Adds the cells of a row and returns the number of fields with a value; an error says why it cannot be imported.
    fn push(&mut self, record: &Record<'_>) -> Result<usize, String> {
        if self.input.job.cells.times.decides() {
            self.note_series(record);
        }
        let Some(settled) = self.settled.clone() else { return Ok(0) };
        let precision = settled.layout.precision;
        let mut wanted = std::mem::take(&mut self.wanted);
        let mut scratch = std::mem::take(&mut self.scratch);
        let (mut wrong, mut values) = (None, 0);
        for column in &mut wanted {
            let cells = &self.input.job.cells;
            let cell = column.origin.cell(record, &mut scratch);
            let whole = if column.number { cells::unpadded(cell) } else { None };
            let cell = whole.as_deref().unwrap_or(cell);
            if wrong.is_some() || cells.is_null(cell) {
                if column.role == Role::Time && wrong.is_none() {
                    wrong = Some(format!("the time is missing: column '{}' is empty", column.name));
                }
                column.cells.push_null();
                continue;
            }
            values += usize::from(column.role == Role::Field);
            let time = match (column.cells.is_time(), column.role) {
                (true, Role::Time) => self.read_time(cell, None).map(Some),
                (true, _) => self.read_time(cell, Some(&column.name)).map(Some),
                _ => Ok(None),
            };
            if let Err(reason) = time.and_then(|time| column.cells.push(cell, time, cells, precision)) {
                column.cells.push_null();
                wrong = Some(format!("column '{}': {reason}", column.name));
            }
        }
        (self.wanted, self.scratch) = (wanted, scratch);
        wrong.map_or(Ok(values), Err)
    }
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

    fn learn(&mut self, row: &Record<'_>, learnt: &mut LearnedColumns) -> Result<ControlFlow<()>, Failure> {
        let Some(columns) = &self.columns else { return Ok(ControlFlow::Continue(())) };
        if learnt.seen.is_empty() || self.places.is_empty() {
            let place = |column: &Column| {
                learnt.seen.iter().position(|c| c.name == column.name).unwrap_or_else(|| {
                    learnt.seen.push(ColumnStats::new(&column.name));
                    learnt.seen.len() - 1
                })
            };
            self.places = columns.columns.iter().map(place).collect();
        }
        let (job, name) = (&self.input.job, &self.input.name);
        if let Some(reason) = columns.misfit(row) {
            // With --bad-lines it is set aside when rows are made.
            return match job.bad.borrow().lenient() {
                true => Ok(ControlFlow::Continue(())),
                false => Err(Failure::new(format!("{name}:{}: {reason}", row.line))),
            };
        }
        columns.check_nameless(row, name)?;
        learnt.rows += 1;
        for (i, (column, at)) in columns.columns.iter().zip(&self.places).enumerate() {
            let cell = column.origin.cell(row, &mut self.scratch);
            if !job.cells.is_null(cell) {
                learnt.seen[*at].look(cell, &job.cells, columns.time == Some(i), name, row.line);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn begin(&mut self, settled: &Rc<RowSpec>) {
        self.settled = Some(Rc::clone(settled));
        self.want();
    }

    fn pass_over(&mut self, row: &Record<'_>) {
        if self.input.job.cells.times.decides() && self.columns.as_ref().is_some_and(|c| c.misfit(row).is_none()) {
            // Whether it is imported was decided before.
            let _ = self.push(row);
            for column in &mut self.wanted {
                column.cells.finish(Precision::Ms);
            }
        }
    }

    fn add(&mut self, row: &Record<'_>) -> Result<(), Failure> {
        if let Some(reason) = self.columns.as_ref().and_then(|c| c.misfit(row)) {
            return self.set_aside(row, &reason);
        }
        self.bytes += row.bytes() + 8 * self.wanted.len();
        let pushed = self.push(row);
        let is_empty = self.input.job.args.skip_empty && pushed == Ok(0);
        self.keep.push(pushed.is_ok() && !is_empty);
        match pushed {
            Err(reason) => self.set_aside(row, &reason),
            Ok(_) if is_empty => {
                self.input.job.empty.set(self.input.job.empty.get() + 1);
                Ok(())
            }
            Ok(_) => {
                self.lines.push(row.line);
                Ok(())
            }
        }
    }

    fn is_full(&self) -> bool {
        self.lines.len() >= self.input.job.batch_rows || self.bytes >= INSERT_BYTES
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
