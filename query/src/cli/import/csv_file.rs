//! CSV files: read twice, once to learn what the columns hold, once for the rows.

use super::infer::{self, Kind, Seen};
use super::{Layout, Rows, Source};
use crate::cli::Failure;
use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Array, Int64Builder, RecordBatch, StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, TimeUnit};
use ebbtide_ttl::Precision;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;

/// How the cells of a file are to be read.
#[derive(Debug, Clone)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    pub(super) nulls: Vec<Vec<u8>>,
}

type CsvReader = Reader<Box<dyn Read>>;

impl Dialect {
    fn is_null(&self, cell: &[u8]) -> bool {
        cell.is_empty() || self.nulls.iter().any(|n| n == cell)
    }

    fn reader(&self, source: &Source) -> Result<(CsvReader, Vec<String>), Failure> {
        let mut reader = ReaderBuilder::new().delimiter(self.delimiter).from_reader(source.open()?);
        let fail = |e: csv::Error| failure(source, &e);
        let header = reader.byte_headers().map_err(fail)?.clone();
        let mut names = Vec::with_capacity(header.len());
        for name in &header {
            let name = std::str::from_utf8(name).map_err(|_| {
                Failure::new(format!("{}:1: the header is not UTF-8 text: is it a CSV file?", source.name))
            })?;
            let name = name.trim_start_matches('\u{feff}').trim();
            if name.is_empty() {
                let what = format!("{}:1: a column has no name; the first line must name the columns", source.name);
                return Err(Failure::new(what));
            }
            if names.iter().any(|n| n == name) {
                return Err(Failure::new(format!("{}:1: two columns are called '{name}'", source.name)));
            }
            names.push(name.to_owned());
        }
        if names.is_empty() {
            return Err(Failure::new(format!(
                "{} is empty: a header line with the columns' names is expected",
                source.name
            )));
        }
        Ok((reader, names))
    }
}

fn failure(source: &Source, error: &csv::Error) -> Failure {
    let line = error.position().map_or(0, csv::Position::line);
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => Failure::new(format!(
            "{}:{line}: the line has {len} columns, the header {expected_len}; mend the line (an open quote?) or check --delimiter",
            source.name
        )),
        ErrorKind::Io(error) => Failure::new(format!("cannot read {}: {error}", source.name)),
        _ => Failure::new(format!("{}: {error}", source.name)),
    }
}

/// Looks at every cell of a file.
pub(super) fn look(source: &Source, dialect: &Dialect, columns: &mut Vec<Seen>) -> Result<u64, Failure> {
    let (mut reader, names) = dialect.reader(source)?;
    let at: Vec<usize> = names
        .iter()
        .map(|name| {
            columns.iter().position(|c| c.name == *name).unwrap_or_else(|| {
                columns.push(Seen::new(name));
                columns.len() - 1
            })
        })
        .collect();
    let mut record = ByteRecord::new();
    let mut rows = 0;
    while reader.read_byte_record(&mut record).map_err(|e| failure(source, &e))? {
        rows += 1;
        let line = record.position().map_or(0, csv::Position::line);
        for (cell, at) in record.iter().zip(&at) {
            let cell = cell.trim_ascii();
            if !dialect.is_null(cell) {
                columns[*at].look(cell, &source.name, line);
            }
        }
    }
    Ok(rows)
}

enum Cells {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Double(Float64Builder),
    Time(Vec<Option<i64>>),
    Text(StringBuilder),
}

impl Cells {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Cells::Bool(BooleanBuilder::new()),
            Kind::Int => Cells::Int(Int64Builder::new()),
            Kind::Double => Cells::Double(Float64Builder::new()),
            Kind::Time => Cells::Time(Vec::new()),
            Kind::Text => Cells::Text(StringBuilder::new()),
        }
    }

    fn null(&mut self) {
        match self {
            Cells::Bool(cells) => cells.append_null(),
            Cells::Int(cells) => cells.append_null(),
            Cells::Double(cells) => cells.append_null(),
            Cells::Time(cells) => cells.push(None),
            Cells::Text(cells) => cells.append_null(),
        }
    }

    /// Takes a cell; `None` if it does not fit, which the first reading has ruled out unless the file changed.
    fn push(&mut self, cell: &[u8], precision: Precision) -> Option<()> {
        match self {
            Cells::Bool(cells) => cells.append_value(infer::boolean(cell)?),
            Cells::Int(cells) => cells.append_value(infer::int(cell)?),
            Cells::Double(cells) => cells.append_value(infer::double(cell)?),
            Cells::Time(cells) => cells.push(Some(infer::time(cell)?.to_units(precision)?)),
            Cells::Text(cells) => cells.append_value(std::str::from_utf8(cell).ok()?),
        }
        Some(())
    }

    fn finish(&mut self, precision: Precision) -> Result<ArrayRef, Failure> {
        Ok(match self {
            Cells::Bool(cells) => Arc::new(cells.finish()),
            Cells::Int(cells) => Arc::new(cells.finish()),
            Cells::Double(cells) => Arc::new(cells.finish()),
            Cells::Text(cells) => Arc::new(cells.finish()),
            Cells::Time(cells) => {
                let units: ArrayRef = Arc::new(Int64Array::from(std::mem::take(cells)));
                let unit = match precision {
                    Precision::Ms => TimeUnit::Millisecond,
                    Precision::Us => TimeUnit::Microsecond,
                    Precision::Ns => TimeUnit::Nanosecond,
                };
                let ty = DataType::Timestamp(unit, Some("UTC".into()));
                cast(&units, &ty).map_err(crate::QueryError::from)?
            }
        })
    }
}

/// Reads the rows of a file in batches.
pub(super) fn read(
    source: &Source,
    dialect: &Dialect,
    kinds: &[(String, Kind)],
    layout: &Layout,
    batch_rows: usize,
    give: &mut dyn FnMut(Rows<'_>) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let (mut reader, names) = dialect.reader(source)?;
    let kind = |name: &String| kinds.iter().find(|(n, _)| n == name).map(|(_, k)| *k);
    // Columns without a single value have no type and are left out.
    let wanted: Vec<(usize, &String, Kind)> =
        names.iter().enumerate().filter_map(|(i, name)| kind(name).map(|k| (i, name, k))).collect();
    let mut cells: Vec<Cells> = wanted.iter().map(|(_, _, k)| Cells::new(*k)).collect();
    let mut record = ByteRecord::new();
    let mut lines: Vec<u64> = Vec::new();
    loop {
        let more = reader.read_byte_record(&mut record).map_err(|e| failure(source, &e))?;
        if more {
            let line = record.position().map_or(0, csv::Position::line);
            for ((at, name, kind), cells) in wanted.iter().zip(&mut cells) {
                let cell = record.get(*at).unwrap_or_default().trim_ascii();
                if dialect.is_null(cell) {
                    cells.null();
                } else if cells.push(cell, layout.precision).is_none() {
                    let value = String::from_utf8_lossy(cell);
                    let what = match kind {
                        Kind::Text => "UTF-8 text".to_owned(),
                        Kind::Time => format!("a time that {} can hold", layout.precision.name()),
                        other => other.name().to_owned(),
                    };
                    let message = format!("{}:{line}: column '{name}': '{value}' is not {what}", source.name);
                    return Err(Failure::new(message));
                }
            }
            lines.push(line);
        }
        if lines.len() >= batch_rows || (!more && !lines.is_empty()) {
            let mut columns = Vec::with_capacity(cells.len());
            let mut fields = Vec::with_capacity(cells.len());
            for ((_, name, _), cells) in wanted.iter().zip(&mut cells) {
                let column = cells.finish(layout.precision)?;
                fields.push(Field::new(*name, column.data_type().clone(), true));
                columns.push(column);
            }
            let batch =
                RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns).map_err(crate::QueryError::from)?;
            let batch = layout.arrange(&batch, &source.name)?;
            let rows = Rows { batch, source: &source.name, lines: std::mem::take(&mut lines) };
            if give(rows)?.is_break() {
                return Ok(());
            }
        }
        if !more {
            return Ok(());
        }
    }
}
