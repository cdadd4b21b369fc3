//! Rows of cells: which column each is of, what it holds, and batches of them.

use super::infer::{self, Cells, Kind, Seen};
use super::layout::{Layout, Shape};
use super::source::Source;
use super::text::{self, Block, Record};
use super::{Job, Rows};
use crate::Failure;
use crate::batching::INSERT_BYTES;
use arrow::array::{
    ArrayRef, BooleanArray, BooleanBuilder, Float64Builder, Int64Builder, RecordBatch, StringViewBuilder,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema as ArrowSchema};
use ebbtide_buckets::{FIELDS_MAX, timestamps};
use ebbtide_ttl::Precision;
use std::ops::ControlFlow;
use std::sync::Arc;

/// More columns than a collection has fields are taken for a mistake: some may be metas, parts of the time or left out.
const COLUMNS_MAX: usize = 2 * FIELDS_MAX;

/// The columns of a file.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    /// Names and the cells that each is made of: several are joined by a space.
    pub(super) columns: Vec<(String, Vec<usize>)>,
    /// Cells that every record must have.
    width: usize,
    /// Which one holds the time, as far as names tell.
    time: Option<usize>,
    /// The time of all rows, if the file has none: the column without cells.
    at: Vec<u8>,
}

impl Columns {
    /// From the first record of a file. It is data if there is no header.
    pub(super) fn new(first: &Record<'_>, shape: &Shape, file: &str) -> Result<Self, Failure> {
        let here = |what: &str| Failure::new(format!("{file}:{}: {what}", first.line));
        if first.cells > COLUMNS_MAX {
            let what =
                format!("the line has {} columns, at most {COLUMNS_MAX} are read: check --delimiter", first.cells);
            return Err(here(&what));
        }
        let mut names = Vec::with_capacity(first.cells);
        if !shape.columns.is_empty() {
            if shape.columns.len() != first.cells {
                let what = format!("--columns names {} columns, the line has {}", shape.columns.len(), first.cells);
                return Err(here(&what));
            }
            names.clone_from(&shape.columns);
        } else if shape.no_header {
            names.extend((1..=first.cells).map(|i| format!("c{i}")));
        } else {
            for i in 0..first.cells {
                let name = std::str::from_utf8(first.cell(i)).map_err(|_| {
                    here("the header is not UTF-8 text: is it a CSV file? --encoding latin-1 reads older ones")
                })?;
                let name = name.trim_start_matches('\u{feff}').trim();
                if name.is_empty() {
                    let what =
                        format!("column {} has no name; the first line must name the columns (see --columns)", i + 1);
                    return Err(here(&what));
                }
                names.push(name.to_owned());
            }
        }
        let names = shape.renamed(names, file)?;
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                return Err(here(&format!("two columns are named '{name}'; rename them with --columns")));
            }
        }
        let mut columns: Vec<(String, Vec<usize>)> = Vec::new();
        let joined = shape.time.len() > 1;
        for (i, name) in names.iter().enumerate() {
            let is_part = joined && shape.time.contains(name);
            if !is_part && !shape.without.contains(name) {
                columns.push((name.clone(), vec![i]));
            }
        }
        let time = if joined || shape.at.is_some() {
            let parts: Result<Vec<usize>, Failure> = shape
                .time
                .iter()
                .map(|t| names.iter().position(|n| n == t).ok_or_else(|| shape.unknown("time", t, &names)))
                .collect();
            let name = shape.time_field();
            if columns.iter().any(|(n, _)| *n == name) {
                return Err(Failure::usage(format!(
                    "column '{name}' is in the way of the time: give it another name with --rename, or leave \
                     it out with --without"
                )));
            }
            columns.insert(0, (name, parts?));
            Some(0)
        } else {
            let names: Vec<String> = columns.iter().map(|(n, _)| n.clone()).collect();
            shape.time_by_name(&names).and_then(|name| names.iter().position(|n| *n == name))
        };
        let at = shape.at.clone().unwrap_or_default().into_bytes();
        Ok(Columns { columns, width: first.cells, time, at })
    }

    /// Whether a record has the right number of cells; if not, it goes where bad lines go.
    pub(super) fn check(&self, record: &Record<'_>, job: &Job<'_>, file: &str) -> Result<bool, Failure> {
        match self.misfit(record) {
            Some(reason) => job.bad.borrow_mut().row(file, record.line, &reason, &record.text()).map(|()| false),
            None => Ok(true),
        }
    }

    /// Why a record has not the right number of cells.
    fn misfit(&self, record: &Record<'_>) -> Option<String> {
        (record.cells != self.width).then(|| {
            format!(
                "the line has {} columns, the header {}; fix the line (an open quote?) or check --delimiter",
                record.cells, self.width
            )
        })
    }
}

fn cell<'a>(record: &Record<'a>, parts: &[usize], at: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
    match parts {
        [] => return at,
        [one] => return record.cell(*one),
        _ => {}
    }
    scratch.clear();
    for part in parts {
        let cell = record.cell(*part);
        if cell.is_empty() {
            return &[];
        }
        if !scratch.is_empty() {
            scratch.push(b' ');
        }
        scratch.extend_from_slice(cell);
    }
    scratch
}

/// Looks at every cell of some records; gives how many of them are rows.
pub(super) fn look_at<'a>(
    records: impl Iterator<Item = Record<'a>>,
    columns: &Columns,
    at: &[usize],
    job: &Job<'_>,
    seen: &mut [Seen],
    file: &str,
) -> Result<u64, Failure> {
    let mut rows = 0;
    let mut scratch = Vec::new();
    for record in records {
        if let Some(reason) = columns.misfit(&record) {
            if job.bad.borrow().lenient() {
                // Set aside when rows are made.
                continue;
            }
            return Err(Failure::new(format!("{file}:{}: {reason}", record.line)));
        }
        rows += 1;
        for (i, ((_, parts), at)) in columns.columns.iter().zip(at).enumerate() {
            let mut held = std::mem::take(&mut scratch);
            {
                let cell = cell(&record, parts, &columns.at, &mut held);
                if !job.cells.nulls.has(cell) {
                    seen[*at].look(cell, &job.cells, columns.time == Some(i), file, record.line);
                }
            }
            scratch = held;
        }
    }
    Ok(rows)
}

/// The places of a file's columns among all columns that were seen; new ones are added.
pub(super) fn places(columns: &Columns, seen: &mut Vec<Seen>) -> Vec<usize> {
    let place = |(name, _): &(String, Vec<usize>)| {
        seen.iter().position(|c| c.name == *name).unwrap_or_else(|| {
            seen.push(Seen::new(name));
            seen.len() - 1
        })
    };
    columns.columns.iter().map(place).collect()
}

/// Looks at every cell of a file.
pub(super) fn look(source: &Source, job: &Job<'_>, seen: &mut Vec<Seen>, tick: &dyn Fn(u64)) -> Result<u64, Failure> {
    let mut columns: Option<(Columns, Vec<usize>)> = None;
    let mut rows = 0;
    text::blocks(source, &job.split(source), &mut |block| {
        let mut records = block.records();
        let (columns, at) = match &columns {
            Some(known) => known,
            None => {
                let Some(first) = block.records().next() else { return Ok(ControlFlow::Continue(())) };
                let found = Columns::new(&first, &job.shape, &source.name)?;
                if job.shape.has_header() {
                    records.next();
                }
                let at = places(&found, seen);
                columns.insert((found, at))
            }
        };
        rows += look_at(records, columns, at, job, seen, &source.name)?;
        tick(rows);
        Ok(ControlFlow::Continue(()))
    })?;
    if columns.is_none() {
        let what = format!("{} is empty: a header line with the columns' names is expected", source.name);
        return Err(Failure::new(what));
    }
    Ok(rows)
}

enum Cell {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Double(Float64Builder),
    Time(Vec<Option<i64>>),
    Text(StringViewBuilder),
}

impl Cell {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Cell::Bool(BooleanBuilder::new()),
            Kind::Int => Cell::Int(Int64Builder::new()),
            Kind::Double => Cell::Double(Float64Builder::new()),
            Kind::Time => Cell::Time(Vec::new()),
            Kind::Text => Cell::Text(StringViewBuilder::new()),
        }
    }

    fn null(&mut self) {
        match self {
            Cell::Bool(cells) => cells.append_null(),
            Cell::Int(cells) => cells.append_null(),
            Cell::Double(cells) => cells.append_null(),
            Cell::Time(cells) => cells.push(None),
            Cell::Text(cells) => cells.append_null(),
        }
    }

    /// Takes a cell, or says why it does not fit.
    fn push(&mut self, cell: &[u8], is_time: bool, cells: &Cells, precision: Precision) -> Result<(), String> {
        let not = |what: &str| format!("'{}' is not {what}", String::from_utf8_lossy(cell));
        match self {
            Cell::Bool(out) => out.append_value(infer::boolean(cell).ok_or_else(|| not("bool"))?),
            Cell::Int(out) => out.append_value(infer::int(cell).ok_or_else(|| not("int64"))?),
            Cell::Double(_) if infer::is_rounded(cell) => return Err(not("exact as a double")),
            Cell::Double(out) => out.append_value(cells.double(cell).ok_or_else(|| not("double"))?),
            Cell::Text(out) => {
                let text = std::str::from_utf8(cell);
                out.append_value(text.map_err(|_| not("UTF-8 text; --encoding latin-1 reads older files"))?);
            }
            Cell::Time(out) => {
                let time = if is_time { cells.times.read(cell) } else { cells.general.read(cell) }?;
                let units = time.to_units(precision);
                out.push(Some(units.ok_or_else(|| not(&format!("a time that {} can hold", precision.name())))?));
            }
        }
        Ok(())
    }

    fn finish(&mut self, precision: Precision) -> ArrayRef {
        match self {
            Cell::Bool(cells) => Arc::new(cells.finish()),
            Cell::Int(cells) => Arc::new(cells.finish()),
            Cell::Double(cells) => Arc::new(cells.finish()),
            Cell::Text(cells) => Arc::new(cells.finish()),
            Cell::Time(cells) => timestamps(std::mem::take(cells), precision),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Time,
    Meta,
    Field,
}

/// A column that is imported. Columns without a single value have no type and are left out.
struct Wanted {
    name: String,
    parts: Vec<usize>,
    role: Role,
    cells: Cell,
    /// Whether leading zeros mean nothing.
    number: bool,
}

/// Makes batches of records.
pub(super) struct Assembler<'a> {
    columns: &'a Columns,
    wanted: Vec<Wanted>,
    job: &'a Job<'a>,
    layout: &'a Layout,
    lines: Vec<u64>,
    /// Whether each row that was begun is to be kept.
    keep: Vec<bool>,
    /// What the next batch takes, about.
    bytes: usize,
    scratch: Vec<u8>,
}

impl<'a> Assembler<'a> {
    pub(super) fn new(columns: &'a Columns, kinds: &[(String, Kind)], job: &'a Job<'a>, layout: &'a Layout) -> Self {
        let wanted = columns.columns.iter().filter_map(|(name, parts)| {
            let kind = kinds.iter().find(|(n, _)| n == name)?.1;
            let role = if *name == layout.time_column {
                Role::Time
            } else if layout.meta_columns.contains(name) {
                Role::Meta
            } else {
                Role::Field
            };
            let number = job.args.number.contains(name);
            Some(Wanted { name: name.clone(), parts: parts.clone(), role, cells: Cell::new(kind), number })
        });
        let wanted = wanted.collect();
        Assembler { columns, wanted, job, layout, lines: Vec::new(), keep: Vec::new(), bytes: 0, scratch: Vec::new() }
    }

    /// Rows that the next batch has so far.
    pub(super) fn rows(&self) -> usize {
        self.lines.len()
    }

    fn is_full(&self) -> bool {
        self.lines.len() >= self.job.batch_rows || self.bytes >= INSERT_BYTES
    }

    pub(super) fn add(&mut self, record: &Record<'_>, file: &str) -> Result<(), Failure> {
        if !self.columns.check(record, self.job, file)? {
            return Ok(());
        }
        self.bytes += record.bytes() + 8 * self.wanted.len();
        let cells = &self.job.cells;
        let mut wrong: Option<String> = None;
        let mut values = 0;
        for column in &mut self.wanted {
            let mut held = std::mem::take(&mut self.scratch);
            let cell = cell(record, &column.parts, &self.columns.at, &mut held);
            let whole = if column.number { infer::unpadded(cell) } else { None };
            let cell = whole.as_deref().unwrap_or(cell);
            let is_time = column.role == Role::Time;
            if wrong.is_some() || cells.nulls.has(cell) {
                if is_time && wrong.is_none() {
                    wrong = Some(format!("the time is missing: column '{}' is empty", column.name));
                }
                column.cells.null();
            } else {
                values += usize::from(column.role == Role::Field);
                if let Err(reason) = column.cells.push(cell, is_time, cells, self.layout.precision) {
                    column.cells.null();
                    wrong = Some(format!("column '{}': {reason}", column.name));
                }
            }
            self.scratch = held;
        }
        let empty = self.job.args.skip_empty && values == 0;
        self.keep.push(wrong.is_none() && !empty);
        match wrong {
            Some(reason) => self.job.bad.borrow_mut().row(file, record.line, &reason, &record.text()),
            None if empty => {
                self.job.empty.set(self.job.empty.get() + 1);
                Ok(())
            }
            None => {
                self.lines.push(record.line);
                Ok(())
            }
        }
    }

    /// The batch of what was added.
    pub(super) fn finish<'n>(&mut self, file: &'n str, end: u64) -> Result<Rows<'n>, Failure> {
        let mut columns = Vec::with_capacity(self.wanted.len());
        let mut fields = Vec::with_capacity(self.wanted.len());
        for wanted in &mut self.wanted {
            let column = wanted.cells.finish(self.layout.precision);
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
        let batch = self.layout.arrange(&batch, file)?;
        Ok(Rows { batch, source: file, lines: std::mem::take(&mut self.lines), end })
    }
}

/// Reads the rows of a file in batches.
pub(super) fn read(
    source: &Source,
    job: &Job<'_>,
    kinds: &[(String, Kind)],
    layout: &Layout,
    from: u64,
    give: &mut dyn FnMut(Rows<'_>) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let Some(columns) = first_columns(source, job)? else { return Ok(()) };
    let mut assembler = Assembler::new(&columns, kinds, job, layout);
    let mut at = 0;
    let mut header = job.shape.has_header();
    let mut stopped = false;
    text::blocks(source, &job.split(source), &mut |block: &Block| {
        for record in block.records() {
            if std::mem::take(&mut header) {
                continue;
            }
            at += 1;
            if at <= from {
                continue;
            }
            assembler.add(&record, &source.name)?;
            if assembler.is_full() {
                let rows = assembler.finish(&source.name, at)?;
                if give(rows)?.is_break() {
                    stopped = true;
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if !stopped && !assembler.keep.is_empty() {
        let _ = give(assembler.finish(&source.name, at)?)?;
    }
    Ok(())
}

/// The columns of a file; `None` if there is not one record in it.
fn first_columns(source: &Source, job: &Job<'_>) -> Result<Option<Columns>, Failure> {
    let mut columns = None;
    text::blocks(source, &job.split(source), &mut |block| {
        if let Some(first) = block.records().next() {
            columns = Some(Columns::new(&first, &job.shape, &source.name)?);
        }
        Ok(ControlFlow::Break(()))
    })?;
    Ok(columns)
}
