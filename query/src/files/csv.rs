//! CSV files: the types of their columns, and their rows.
//!
//! Encoding, delimiter, header, decimal mark and types are found as in an import, except that the first [`SAMPLE_ROWS`]
//! rows decide. Values that an import would ask about are errors that name the option to say.

mod form;
mod options;

use super::reader::{Result, wrong};
use super::text::{BATCH_ROWS, Rows, TextTable};
use crate::text_table::cells::{Cells, unpadded};
use crate::text_table::column::ColumnBuilder;
use crate::text_table::infer::{ColumnStats, Doubt, Kind, Place, finer, finest};
use crate::text_table::split::Record;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::DataFusionError;
use ebbtide_ttl::Precision;
use form::{Form, Visitor};
use options::{Options, quoted};
use serde_json::{Map, Value};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows that decide the types of a file's columns.
const SAMPLE_ROWS: usize = 200_000;

/// Files and how each is written.
#[derive(Debug)]
pub(super) struct Csv {
    forms: Vec<Form>,
}

/// Opens files with the same columns, or some of them.
pub(super) fn open(files: &[PathBuf], options: &Map<String, Value>) -> Result<Arc<TextTable<Csv>>> {
    let options = Options::new(options)?;
    let forms: Vec<Form> = files.iter().map(|path| Form::find(path, &options)).collect::<Result<_>>()?;
    let mut columns: Vec<ColumnStats> = Vec::new();
    for form in &forms {
        let rows = if options.all_text { 0 } else { SAMPLE_ROWS };
        form.read(&mut Learner {
            form,
            name: form.path.display().to_string(),
            columns: &mut columns,
            places: Vec::new(),
            rows,
        })?;
    }
    for name in options.text.iter().chain(&options.cells.numbers) {
        if !columns.iter().any(|column| column.name == *name) {
            let hint = ebbtide::suggest::hint(name, columns.iter().map(|column| column.name.as_str()));
            return Err(wrong(format!("read_csv: no column is called '{name}'{hint}")));
        }
    }
    let (mut fields, mut doubts) = (Vec::new(), Vec::new());
    for column in &columns {
        let is_text = options.all_text || options.text.contains(&column.name);
        match column.kind(None, is_text, false) {
            Ok(kind) => fields.push(Field::new(&column.name, data_type(kind, column.finest()), true)),
            Err(doubt) => doubts.push(question(&column.name, &doubt)),
        }
    }
    if !doubts.is_empty() {
        return Err(wrong(doubts.join("\n")));
    }
    Ok(Arc::new(TextTable {
        schema: Arc::new(Schema::new(fields)),
        files: files.to_vec(),
        rows: Arc::new(Csv { forms }),
    }))
}

/// Examines the values of the first rows of a file.
struct Learner<'a> {
    form: &'a Form,
    name: String,
    columns: &'a mut Vec<ColumnStats>,
    /// The indices of the file's columns in `columns`.
    places: Vec<usize>,
    /// Number of rows still to examine.
    rows: usize,
}

impl Visitor for Learner<'_> {
    fn begin(&mut self, names: &[String]) {
        for name in names {
            let known = self.columns.iter().position(|column| column.name == *name);
            self.places.push(known.unwrap_or(self.columns.len()));
            if known.is_none() {
                self.columns.push(ColumnStats::new(name));
            }
        }
    }

    fn row(&mut self, record: &Record<'_>) -> Result<ControlFlow<()>, String> {
        if self.rows == 0 {
            return Ok(ControlFlow::Break(()));
        }
        self.rows -= 1;
        let cells = &self.form.cells;
        for (at, place) in self.places.iter().enumerate() {
            let cell = record.cell(at);
            if !cells.is_null(cell) {
                self.columns[*place].look(cell, cells, false, &self.name, record.line);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl Rows for Csv {
    fn read(
        &self,
        path: &Path,
        schema: &SchemaRef,
        give: &mut dyn FnMut(datafusion::common::Result<RecordBatch>) -> bool,
    ) -> datafusion::common::Result<()> {
        let Some(form) = self.forms.iter().find(|form| form.path == path) else { return Ok(()) };
        let column = |field: &Arc<Field>| Column::new(field, form);
        let columns = schema.fields().iter().map(column).collect();
        let mut reader = BatchReader { form, schema, columns, rows: 0, give, failed: None, wants_more: true };
        form.read(&mut reader).map_err(|error| DataFusionError::External(Box::new(error)))?;
        if reader.rows > 0 && reader.failed.is_none() && reader.wants_more {
            reader.hand_on();
        }
        reader.failed.map_or(Ok(()), Err)
    }
}

/// A column that is read.
struct Column {
    name: String,
    /// Its index in the file, if the file has it.
    at: Option<usize>,
    /// Whether leading zeros are ignored.
    number: bool,
    precision: Precision,
    values: ColumnBuilder,
}

impl Column {
    fn new(field: &Field, form: &Form) -> Column {
        let (kind, precision) = match field.data_type() {
            DataType::Int64 => (Kind::Int, Precision::Ms),
            DataType::Float64 => (Kind::Double, Precision::Ms),
            DataType::Boolean => (Kind::Bool, Precision::Ms),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => (Kind::Time, Precision::Ns),
            DataType::Timestamp(TimeUnit::Microsecond, _) => (Kind::Time, Precision::Us),
            DataType::Timestamp(..) => (Kind::Time, Precision::Ms),
            _ => (Kind::Text, Precision::Ms),
        };
        let name = field.name().clone();
        let number = form.cells.numbers.contains(&name);
        Column { name, at: None, number, precision, values: ColumnBuilder::new(kind) }
    }

    /// Adds the cell of a row; an error says why it does not fit.
    fn push(&mut self, record: &Record<'_>, cells: &Cells) -> Result<(), String> {
        let cell = self.at.map_or(&[][..], |at| record.cell(at));
        let whole = if self.number { unpadded(cell) } else { None };
        let cell = whole.as_deref().unwrap_or(cell);
        if cells.is_null(cell) {
            self.values.push_null();
            return Ok(());
        }
        let time = if self.values.is_time() { Some(cells.general.read(cell)?) } else { None };
        if time.is_some_and(|time| finer(self.precision, finest(time)) != self.precision) {
            let cell = String::from_utf8_lossy(cell);
            return Err(format!("'{cell}' is finer than {}, the unit of the first rows", self.precision.name()));
        }
        self.values.push(cell, time, cells, self.precision)
    }
}

/// Makes batches of the rows of a file.
struct BatchReader<'a> {
    form: &'a Form,
    schema: &'a SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    give: &'a mut dyn FnMut(datafusion::common::Result<RecordBatch>) -> bool,
    failed: Option<DataFusionError>,
    wants_more: bool,
}

impl BatchReader<'_> {
    fn hand_on(&mut self) {
        let columns = self.columns.iter_mut().map(|column| column.values.finish(column.precision)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        match RecordBatch::try_new_with_options(Arc::clone(self.schema), columns, &options) {
            Ok(batch) => self.wants_more = (self.give)(Ok(batch)),
            Err(error) => self.failed = Some(error.into()),
        }
    }
}

impl Visitor for BatchReader<'_> {
    fn begin(&mut self, names: &[String]) {
        for column in &mut self.columns {
            column.at = names.iter().position(|name| *name == column.name);
        }
    }

    fn row(&mut self, record: &Record<'_>) -> Result<ControlFlow<()>, String> {
        for column in &mut self.columns {
            column.push(record, &self.form.cells).map_err(|reason| {
                let name = &column.name;
                format!("column '{name}': {reason}; {}", remedy(&self.form.path.display().to_string(), name, None))
            })?;
        }
        self.rows += 1;
        if self.rows == BATCH_ROWS {
            self.hand_on();
        }
        let goes_on = self.wants_more && self.failed.is_none();
        Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }
}

fn data_type(kind: Option<Kind>, precision: Precision) -> DataType {
    match kind {
        Some(Kind::Bool) => DataType::Boolean,
        Some(Kind::Int) => DataType::Int64,
        Some(Kind::Double) => DataType::Float64,
        Some(Kind::Time) => {
            let unit = match precision {
                Precision::Ms => TimeUnit::Millisecond,
                Precision::Us => TimeUnit::Microsecond,
                Precision::Ns => TimeUnit::Nanosecond,
            };
            DataType::Timestamp(unit, Some("UTC".into()))
        }
        Some(Kind::Text) | None => DataType::Utf8View,
    }
}

/// Why the type of a column is ambiguous, with the options that decide it.
fn question(column: &str, doubt: &Doubt) -> String {
    let null = |place: &Place| remedy(&place.file, column, Some(&place.value));
    let (place, what, remedy) = match doubt {
        Doubt::Padded(place) => {
            let call = format!("read_csv({}, number = {})", quoted(&place.file), quoted(column));
            let what = format!("contains numbers, and '{}' with leading zeros", place.value);
            (place, what, format!("{call} reads a number; {}", remedy(&place.file, column, None)))
        }
        Doubt::Foreign(place) => {
            let what = format!("contains numbers, but '{}' is not a readable number", place.value);
            let marks = if place.value.contains([',', '.']) {
                "decimal_separator and thousands read other notations; "
            } else {
                ""
            };
            (place, what, format!("{marks}{}", null(place)))
        }
        Doubt::Rounded(place) => {
            let what = format!("becomes double, which cannot hold '{}' exactly", place.value);
            (place, what, remedy(&place.file, column, None))
        }
        Doubt::NoNumber(place) => (place, format!("contains numbers, but '{}' is not one", place.value), null(place)),
        Doubt::NoTime(place) => (place, format!("contains times, but '{}' is not one", place.value), null(place)),
        Doubt::Nul(place) => {
            let what = format!("has a NUL byte in '{}'", place.value);
            (place, what, "the file is damaged, or was not written to its end".to_owned())
        }
        Doubt::Refused(name) => return format!("column '{column}' cannot be {name}"),
    };
    format!("{}:{}: column '{column}' {what}; {remedy}", place.file, place.line)
}

/// The calls that read a column as text, or a value as null.
fn remedy(file: &str, column: &str, null: Option<&str>) -> String {
    let file = quoted(file);
    let text = format!("read_csv({file}, text = {}) reads the column as text", quoted(column));
    match null {
        Some(null) => format!("if it marks a missing value, read_csv({file}, nullstr = {}); {text}", quoted(null)),
        None => text,
    }
}
