//! CSV files: what their columns are, and their rows.
//!
//! Columns are whole numbers, doubles, truth values, times (as an import reads them; UTC without a zone) or text, by what all
//! values of the first [`SAMPLE_ROWS`] rows are. Empty cells are null. Numbers with leading zeros are codes, and stay text.

use super::text::{BATCH_ROWS, Rows, TextTable};
use super::{Result, reader, wrong};
use csv::{ByteRecord, Reader, ReaderBuilder};
use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, RecordBatch, RecordBatchOptions, StringBuilder,
    new_null_array,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::DataFusionError;
use ebbtide_buckets::timestamps;
use ebbtide_ttl::{Precision, Timestamp};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows that decide what the columns of a file are.
const SAMPLE_ROWS: usize = 200_000;

/// How files are written.
#[derive(Debug, Clone)]
pub(super) struct Dialect {
    delimiter: Option<u8>,
    header: Option<bool>,
    skip: u64,
    nulls: Vec<String>,
    all_text: bool,
    comment: Option<u8>,
    latin1: bool,
    decimal_comma: bool,
}

/// What the values of a column have been so far.
#[derive(Debug, Clone, Copy)]
struct Seen {
    any: bool,
    whole: bool,
    number: bool,
    truth: bool,
    time: bool,
    precision: Precision,
}

/// Opens files with the same columns, or some of them.
pub(super) fn open(files: &[PathBuf], options: &Map<String, Value>) -> Result<Arc<TextTable<Dialect>>> {
    let dialect = Dialect::of(options)?;
    let mut columns: Vec<(String, Seen)> = Vec::new();
    for path in files {
        for (name, seen) in dialect.columns(path)? {
            match columns.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => known.join(seen),
                None => columns.push((name, seen)),
            }
        }
    }
    let fields: Vec<Field> =
        columns.iter().map(|(name, seen)| Field::new(name, seen.data_type(dialect.all_text), true)).collect();
    Ok(Arc::new(TextTable { schema: Arc::new(Schema::new(fields)), files: files.to_vec(), rows: Arc::new(dialect) }))
}

impl Dialect {
    fn of(options: &Map<String, Value>) -> Result<Dialect> {
        let text = |name: &str| options.get(name).and_then(Value::as_str);
        let byte = |name: &str| match text(name) {
            None if options.contains_key(name) => Err(wrong(format!("read_csv: {name} is one character, such as ';'"))),
            None => Ok(None),
            Some("\\t" | "tab") => Ok(Some(b'\t')),
            Some(text) => match text.as_bytes() {
                [one] => Ok(Some(*one)),
                _ => Err(wrong(format!("read_csv: {name} is one ASCII character, not '{text}'"))),
            },
        };
        let truth = |name: &str| match options.get(name) {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(*truth)),
            Some(other) => Err(wrong(format!("read_csv: {name} is true or false, not {other}"))),
        };
        let nulls = match options.get("nullstr") {
            None => Vec::new(),
            Some(Value::Array(all)) => all.iter().filter_map(|null| Some(null.as_str()?.to_owned())).collect(),
            Some(Value::String(one)) => vec![one.clone()],
            Some(other) => vec![other.to_string()],
        };
        let latin1 = match text("encoding").map(str::to_lowercase).as_deref() {
            None | Some("utf-8" | "utf8") => false,
            Some("latin-1" | "latin1" | "iso-8859-1") => true,
            Some(other) => return Err(wrong(format!("read_csv: encoding is 'utf-8' or 'latin-1', not '{other}'"))),
        };
        let decimal_comma = match text("decimal_separator") {
            None | Some(".") => false,
            Some(",") => true,
            Some(other) => return Err(wrong(format!("read_csv: decimal_separator is ',' or '.', not '{other}'"))),
        };
        let skip =
            options.get("skip").map(|skip| skip.as_u64().ok_or_else(|| wrong("read_csv: skip is a number of lines")));
        Ok(Dialect {
            delimiter: byte("delim")?,
            header: truth("header")?,
            skip: skip.transpose()?.unwrap_or_default(),
            nulls,
            all_text: truth("all_varchar")?.unwrap_or_default(),
            comment: byte("comment")?,
            latin1,
            decimal_comma,
        })
    }

    /// A reader behind the header, and the names of the columns.
    fn start(&self, path: &Path) -> Result<(Reader<impl Read>, Vec<String>)> {
        let mut input = reader(path)?;
        let fail = |error: std::io::Error| wrong(format!("cannot read {}: {error}", path.display()));
        let mut head = Vec::new();
        let mut skipped = 0;
        // The lines to skip, and the one that tells the delimiter.
        let mut byte = [0_u8];
        while input.read(&mut byte).map_err(fail)? == 1 {
            head.push(byte[0]);
            if byte[0] != b'\n' {
                continue;
            }
            let is_comment = self.comment.is_some_and(|comment| head.first() == Some(&comment));
            if skipped < self.skip || is_comment {
                skipped += u64::from(!is_comment);
                head.clear();
                continue;
            }
            break;
        }
        let head = head.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(head);
        if head.is_empty() {
            return Err(wrong(format!("{} is empty", path.display())));
        }
        let tab = path.to_string_lossy().to_lowercase().contains(".tsv");
        let delimiter = self.delimiter.unwrap_or_else(|| if tab { b'\t' } else { delimiter_of(&head) });
        let first = ReaderBuilder::new().has_headers(false).delimiter(delimiter).from_reader(head.as_slice());
        let first = first.into_byte_records().next().and_then(std::result::Result::ok).unwrap_or_default();
        let cells: Vec<String> = first.iter().map(|cell| self.text(cell).unwrap_or_default().into_owned()).collect();
        let is_data = |cell: &String| cell.parse::<f64>().is_ok() || time(cell).is_some();
        let header = self.header.unwrap_or_else(|| !cells.iter().any(is_data));
        let names = if header { unique(&cells) } else { (1..=cells.len()).map(|n| format!("c{n}")).collect() };
        let rest: Box<dyn Read + Send> = match header {
            true => input,
            false => Box::new(std::io::Cursor::new(head).chain(input)),
        };
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .delimiter(delimiter)
            .comment(self.comment)
            .flexible(true)
            .from_reader(rest);
        Ok((reader, names))
    }

    /// The columns of a file.
    fn columns(&self, path: &Path) -> Result<Vec<(String, Seen)>> {
        let (mut reader, names) = self.start(path)?;
        let mut columns: Vec<(String, Seen)> = names.into_iter().map(|name| (name, Seen::NOTHING)).collect();
        if self.all_text {
            return Ok(columns);
        }
        let mut record = ByteRecord::new();
        for _ in 0..SAMPLE_ROWS {
            if !reader.read_byte_record(&mut record).map_err(|e| wrong(format!("{}: {e}", path.display())))? {
                break;
            }
            for ((_, seen), cell) in columns.iter_mut().zip(&record) {
                if let Some(text) = self.text(cell).filter(|text| !self.is_null(text)) {
                    seen.note(&text, self.decimal_comma);
                }
            }
        }
        Ok(columns)
    }

    fn is_null(&self, text: &str) -> bool {
        text.is_empty() || self.nulls.iter().any(|null| null == text)
    }

    /// The text of a cell; `None` if it is not in the encoding.
    fn text<'a>(&self, cell: &'a [u8]) -> Option<Cow<'a, str>> {
        match std::str::from_utf8(cell) {
            Ok(text) if !self.latin1 || text.is_ascii() => Some(Cow::Borrowed(text)),
            _ if self.latin1 => Some(Cow::Owned(cell.iter().map(|byte| char::from(*byte)).collect())),
            _ => None,
        }
    }
}

impl Rows for Dialect {
    fn read(
        &self,
        path: &Path,
        schema: &SchemaRef,
        give: &mut dyn FnMut(datafusion::common::Result<RecordBatch>) -> bool,
    ) -> datafusion::common::Result<()> {
        let external = |error| DataFusionError::External(Box::new(error));
        let (mut reader, names) = self.start(path).map_err(external)?;
        let at = |field: &Arc<Field>| names.iter().position(|name| name == field.name());
        let places: Vec<Option<usize>> = schema.fields().iter().map(at).collect();
        let mut record = ByteRecord::new();
        loop {
            let mut columns: Vec<Column> = schema.fields().iter().map(|field| Column::new(field.data_type())).collect();
            let mut rows = 0;
            while rows < BATCH_ROWS {
                let more = reader.read_byte_record(&mut record);
                let more = more.map_err(|e| external(wrong(format!("{}: {e}", path.display()))))?;
                if !more {
                    break;
                }
                if record.len() != names.len() && !(record.len() == 1 && record[0].is_empty()) {
                    let what = format!("the line has {} columns, the first one {}", record.len(), names.len());
                    return Err(external(self.at(path, &record, &what)));
                }
                if record.len() != names.len() {
                    continue; // An empty line.
                }
                rows += 1;
                for ((column, place), field) in columns.iter_mut().zip(&places).zip(schema.fields()) {
                    let cell = place.and_then(|place| record.get(place)).unwrap_or_default();
                    let Some(text) = self.text(cell) else {
                        let what = "the text is not UTF-8; read_csv takes encoding = 'latin-1'";
                        return Err(external(self.at(path, &record, what)));
                    };
                    let text = (!self.is_null(&text)).then_some(text);
                    if !column.push(text.as_deref(), self.decimal_comma) {
                        let (name, kind) = (field.name(), column.kind());
                        let cell = text.unwrap_or_default();
                        let what = format!(
                            "column '{name}' holds {kind}, but '{cell}' is none; nullstr = '{cell}' makes it null, \
                             all_varchar = true reads all columns as text"
                        );
                        return Err(external(self.at(path, &record, &what)));
                    }
                }
            }
            if rows == 0 {
                return Ok(());
            }
            let columns = columns.into_iter().map(|column| column.finish(rows)).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
            if !give(Ok(batch)) {
                return Ok(());
            }
        }
    }
}

impl Dialect {
    fn at(&self, path: &Path, record: &ByteRecord, what: &str) -> crate::QueryError {
        // Lines are counted from the one behind the header.
        let before = self.skip + 1;
        let line = record.position().map_or(0, csv::Position::line) + before;
        wrong(format!("{}:{line}: {what}", path.display()))
    }
}

impl Seen {
    const NOTHING: Seen =
        Seen { any: false, whole: true, number: true, truth: true, time: true, precision: Precision::Ms };

    fn note(&mut self, text: &str, decimal_comma: bool) {
        self.any = true;
        self.whole &= self.number && !is_code(text) && text.parse::<i64>().is_ok();
        self.number &= !is_code(text) && number(text, decimal_comma).is_some();
        self.truth &= truth(text).is_some();
        if self.time {
            match time(text) {
                Some(time) => self.precision = finer(self.precision, precision_of(time)),
                None => self.time = false,
            }
        }
    }

    fn join(&mut self, other: Seen) {
        if !other.any {
            return;
        }
        if !self.any {
            *self = other;
            return;
        }
        self.whole &= other.whole;
        self.number &= other.number;
        self.truth &= other.truth;
        self.time &= other.time;
        self.precision = finer(self.precision, other.precision);
    }

    fn data_type(self, all_text: bool) -> DataType {
        match self {
            _ if all_text => DataType::Utf8,
            Seen { any: false, .. } => DataType::Utf8,
            Seen { whole: true, .. } => DataType::Int64,
            Seen { number: true, .. } => DataType::Float64,
            Seen { truth: true, .. } => DataType::Boolean,
            Seen { time: true, precision, .. } => {
                let unit = match precision {
                    Precision::Ms => TimeUnit::Millisecond,
                    Precision::Us => TimeUnit::Microsecond,
                    Precision::Ns => TimeUnit::Nanosecond,
                };
                DataType::Timestamp(unit, Some("UTC".into()))
            }
            _ => DataType::Utf8,
        }
    }
}

/// The character that most parts a line into cells.
fn delimiter_of(line: &[u8]) -> u8 {
    let count = |delimiter: u8| {
        let mut quoted = false;
        let outside = |byte: &&u8| {
            quoted ^= **byte == b'"';
            !quoted && **byte == delimiter
        };
        line.iter().filter(outside).count()
    };
    let [first, rest @ ..] = [b',', b';', b'\t', b'|'];
    rest.into_iter()
        .fold((first, count(first)), |best, next| if count(next) > best.1 { (next, count(next)) } else { best })
        .0
}

/// Names of columns, each once; those without one are named by their place.
fn unique(cells: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(cells.len());
    for (at, cell) in cells.iter().enumerate() {
        let cell = cell.trim();
        let plain = if cell.is_empty() { format!("c{}", at + 1) } else { cell.to_owned() };
        let numbered = |n: usize| if n == 0 { plain.clone() } else { format!("{plain}_{n}") };
        names.push((0..).map(numbered).find(|name| !names.contains(name)).unwrap_or(plain.clone()));
    }
    names
}

/// Digits that begin with a zero are a code: `03772`.
fn is_code(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit()
}

fn number(text: &str, decimal_comma: bool) -> Option<f64> {
    match decimal_comma {
        true if text.contains('.') => None,
        true => text.replacen(',', ".", 1).parse().ok(),
        false => text.parse().ok(),
    }
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

fn time(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 10 && bytes[4] == b'-' && bytes[7] == b'-';
    if shaped { Timestamp::parse(text).ok() } else { None }
}

fn finer(a: Precision, b: Precision) -> Precision {
    if a.per_second() >= b.per_second() { a } else { b }
}

fn precision_of(time: Timestamp) -> Precision {
    match time.nanos() {
        nanos if nanos % 1_000_000 == 0 => Precision::Ms,
        nanos if nanos % 1000 == 0 => Precision::Us,
        _ => Precision::Ns,
    }
}

/// Values of a column on their way into a batch.
enum Column {
    Whole(Int64Builder),
    Number(Float64Builder),
    Truth(BooleanBuilder),
    Time(Precision, Vec<Option<i64>>),
    Text(StringBuilder),
    Nothing(DataType),
}

impl Column {
    fn new(kind: &DataType) -> Column {
        match kind {
            DataType::Int64 => Column::Whole(Int64Builder::new()),
            DataType::Float64 => Column::Number(Float64Builder::new()),
            DataType::Boolean => Column::Truth(BooleanBuilder::new()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => Column::Time(Precision::Us, Vec::new()),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Column::Time(Precision::Ns, Vec::new()),
            DataType::Timestamp(..) => Column::Time(Precision::Ms, Vec::new()),
            DataType::Utf8 => Column::Text(StringBuilder::new()),
            other => Column::Nothing(other.clone()),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Column::Whole(_) => "whole numbers",
            Column::Number(_) => "numbers",
            Column::Truth(_) => "true and false",
            Column::Time(..) => "times",
            Column::Text(_) | Column::Nothing(_) => "text",
        }
    }

    /// Adds a cell; `false` if it is not of the column's type.
    fn push(&mut self, text: Option<&str>, decimal_comma: bool) -> bool {
        fn given<T>(text: Option<&str>, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
            text.map_or(Some(None), |text| read(text).map(Some))
        }
        match self {
            Column::Whole(cells) => given(text, |t| t.parse().ok()).map(|cell| cells.append_option(cell)),
            Column::Number(cells) => given(text, |t| number(t, decimal_comma)).map(|cell| cells.append_option(cell)),
            Column::Truth(cells) => given(text, truth).map(|cell| cells.append_option(cell)),
            Column::Time(precision, cells) => {
                given(text, |t| time(t)?.to_units(*precision)).map(|cell| cells.push(cell))
            }
            Column::Text(cells) => {
                cells.append_option(text);
                Some(())
            }
            Column::Nothing(_) => Some(()),
        }
        .is_some()
    }

    fn finish(self, rows: usize) -> ArrayRef {
        match self {
            Column::Whole(mut cells) => Arc::new(cells.finish()),
            Column::Number(mut cells) => Arc::new(cells.finish()),
            Column::Truth(mut cells) => Arc::new(cells.finish()),
            Column::Time(precision, cells) => timestamps(cells, precision),
            Column::Text(mut cells) => Arc::new(cells.finish()),
            Column::Nothing(kind) => new_null_array(&kind, rows),
        }
    }
}
