//! Lines with documents: NDJSON and line protocol.

use super::decoder::{Decoder, Input, RowSpec};
use super::layout::Layout;
use super::learnt::LearnedColumns;
use super::source::{self, Source};
use super::{Job, Rows};
use crate::Failure;
use crate::args::InputFormat;
use crate::batching::INSERT_BYTES;
use ebbtide::line_protocol::{self, Point};
use ebbtide_buckets::{DOCUMENT_BYTES_MAX, FieldType, Schema, batch_from_documents};
use ebbtide_query::text_table::infer::{finer, finest};
use ebbtide_query::text_table::split::Record;
use ebbtide_ttl::{Name, Precision, Timestamp, Value};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::rc::Rc;

/// The length of a date such as `2024-01-01`: shorter texts are not taken for times.
const DATE_LENGTH: usize = 10;

/// Turns documents into batches.
pub(super) struct Documents<'a> {
    input: Input<'a>,
    format: InputFormat,
    settled: Option<Rc<RowSpec>>,
    documents: Vec<Value>,
    lines: Vec<u64>,
    /// The text of the lines, for the file of bad lines.
    texts: Vec<String>,
    bytes: usize,
    /// Hashes of the paths of all fields: a batch has a column for each of them, however few rows have a value.
    paths: HashSet<u64>,
}

impl<'a> Documents<'a> {
    pub(super) fn new(input: Input<'a>, format: InputFormat) -> Self {
        Documents {
            input,
            format,
            settled: None,
            documents: Vec::new(),
            lines: Vec::new(),
            texts: Vec::new(),
            bytes: 0,
            paths: HashSet::new(),
        }
    }

    fn set_aside(&self, line: u64, reason: &str, text: &str) -> Result<(), Failure> {
        self.input.job.bad.borrow_mut().row(&self.input.name, line, reason, text)
    }

    /// Reads a line; `None` if it belongs to another collection.
    fn read(&self, line: &[u8]) -> Result<Option<TimedDocument>, String> {
        let (job, constants) = (&self.input.job, &self.input.constants);
        let Some(settled) = &self.settled else { return members_of(line).map(|_| None) };
        if self.format != InputFormat::Influx {
            return of_json(line, job, &settled.layout, constants).map(Some);
        }
        match line_protocol::parse(line) {
            Ok(Some(point)) if job.measurement.as_ref().is_some_and(|m| *m != point.measurement) => Ok(None),
            Ok(Some(point)) => of_point(point, job, &settled.layout, constants).map(Some),
            // A malformed line, which belongs to no measurement, is reported by only one of the jobs that read it.
            Err(reason) if job.tells_misformed.get() => Err(reason),
            _ => Ok(None),
        }
    }

    /// Whether a document has only its time and meta.
    fn is_empty(&self, document: &Value) -> bool {
        let (Value::Object(members), Some(settled)) = (document, &self.settled) else { return false };
        let layout = &settled.layout;
        members.iter().all(|(n, v)| {
            matches!(v, Value::Null) || *n == layout.time_field || layout.meta_field.as_deref() == Some(n.as_str())
        })
    }
}

impl Documents<'_> {
    fn add_document(&mut self, row: &Record<'_>) -> Result<(), Failure> {
        let job = Rc::clone(&self.input.job);
        match self.read(row.cell(0)) {
            Ok(None) => Ok(()),
            Ok(Some((_, document))) if job.args.skip_empty && self.is_empty(&document) => {
                job.empty.set(job.empty.get() + 1);
                Ok(())
            }
            Ok(Some((time, document))) => {
                job.finest.set(finer(job.finest.get(), time.map_or(Precision::Ms, finest)));
                self.bytes += row.bytes();
                add_paths(&document, 0, &mut self.paths);
                self.documents.push(document);
                self.lines.push(row.line);
                self.texts.push(if job.bad.borrow().lenient() { row.text() } else { String::new() });
                Ok(())
            }
            Err(reason) => self.set_aside(row.line, &reason, &row.text()),
        }
    }
}

impl Decoder for Documents<'_> {
    fn is_row(&mut self, _: &Record<'_>) -> Result<bool, Failure> {
        Ok(true)
    }

    /// Learns the names of the first document; the types are in each document.
    fn learn(&mut self, rows: &[Record<'_>], learnt: &mut LearnedColumns) -> Result<ControlFlow<()>, Failure> {
        if self.format == InputFormat::Influx {
            return Ok(ControlFlow::Break(()));
        }
        for row in rows {
            match named(row, &self.input.job) {
                Ok(members) => {
                    let is_time = |value: &Value| match value {
                        Value::String(text) => text.len() >= DATE_LENGTH && Timestamp::parse(text).is_ok(),
                        Value::Date(_) => true,
                        _ => false,
                    };
                    let times = members.iter().filter(|(_, value)| is_time(value)).map(|(name, _)| name.clone());
                    learnt.times.extend(times);
                    learnt.names.extend(members.into_iter().map(|(name, _)| name));
                    learnt.names.extend(self.input.constants.iter().map(|(name, _)| name.clone()));
                    return Ok(ControlFlow::Break(()));
                }
                // It is set aside when rows are made.
                Err(_) if self.input.job.bad.borrow().lenient() => {}
                Err(reason) => return Err(Failure::new(format!("{}:{}: {reason}", self.input.name, row.line))),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn begin(&mut self, settled: &Rc<RowSpec>) {
        self.settled = Some(Rc::clone(settled));
    }

    fn pass_over(&mut self, rows: &[Record<'_>]) {
        if self.input.job.cells.times.decides() {
            // Whether they are imported was decided before.
            rows.iter().for_each(|row| drop(self.read(row.cell(0))));
        }
    }

    fn room(&self, _: &[Record<'_>]) -> usize {
        1
    }

    fn add(&mut self, rows: &[Record<'_>]) -> Result<(), Failure> {
        rows.iter().try_for_each(|row| self.add_document(row))
    }

    fn is_full(&self) -> bool {
        let rows = self.documents.len();
        let cells = rows.saturating_mul(self.paths.len());
        rows >= self.input.job.batch_rows || self.bytes >= INSERT_BYTES || cells >= INSERT_BYTES / size_of::<i64>()
    }

    /// Documents that do not fit the schema are set aside; the others extend it.
    fn finish(&mut self, end: u64) -> Result<Option<Rows>, Failure> {
        let Some(settled) = self.settled.clone() else { return Ok(None) };
        let mut schema = settled.schema.borrow_mut();
        loop {
            if self.documents.is_empty() {
                return Ok(None);
            }
            match batch_from_documents(&self.documents, &schema) {
                Ok(accepted) => {
                    *schema = accepted.schema;
                    self.documents.clear();
                    self.texts.clear();
                    self.bytes = 0;
                    self.paths.clear();
                    let (lines, source) = (std::mem::take(&mut self.lines), Rc::clone(&self.input.name));
                    return Ok(Some(Rows { batch: accepted.batch, source, lines, end }));
                }
                Err(error) => {
                    let at = error.index.min(self.documents.len() - 1);
                    if read_not_finite(&mut self.documents, at, &schema) {
                        continue;
                    }
                    let index = format!("index {}: ", error.index);
                    let message = error.error.message.strip_prefix(&index).unwrap_or(&error.error.message);
                    self.documents.remove(at);
                    let (line, text) = (self.lines.remove(at), self.texts.remove(at));
                    self.set_aside(line, message, &text)?;
                }
            }
        }
    }
}

/// JSON has no NaN and no infinities: an export writes them as texts. Replaces such texts in the fields of document `at`, in all documents,
/// if the other values of the field are numbers. Returns whether there were any.
fn read_not_finite(documents: &mut [Value], at: usize, schema: &Schema) -> bool {
    let Some(Value::Object(members)) = documents.get(at) else { return false };
    let is_number = |value: &Value| matches!(value, Value::Int(_) | Value::Double(_));
    let names: Vec<Name> = members
        .iter()
        .filter(|(_, value)| is_number(value) || not_finite(value).is_some())
        .map(|(name, _)| name.clone())
        .collect();
    let mut found = false;
    for name in names {
        let known = schema.field_type(&name);
        let mut has_numbers = matches!(known, Some(FieldType::Double | FieldType::Int64));
        let mut values: Vec<&mut Value> = documents
            .iter_mut()
            .filter_map(|document| match document {
                Value::Object(members) => members.iter_mut().find(|(n, _)| *n == name).map(|(_, value)| value),
                _ => None,
            })
            .collect();
        has_numbers |= known.is_none() && values.iter().any(|value| is_number(value));
        let is_text = |value: &Value| matches!(value, Value::String(_)) && not_finite(value).is_none();
        if !has_numbers || values.iter().any(|value| is_text(value)) {
            continue;
        }
        for value in &mut values {
            if let Some(number) = not_finite(value) {
                **value = Value::Double(number);
                found = true;
            }
        }
    }
    found
}

/// The number that the text `NaN`, `inf` or `-inf` stands for.
fn not_finite(value: &Value) -> Option<f64> {
    let Value::String(text) = value else { return None };
    match text.as_str() {
        "NaN" => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn add_paths(value: &Value, parent: u64, paths: &mut HashSet<u64>) {
    let Value::Object(members) = value else { return };
    for (name, member) in members {
        let mut hasher = DefaultHasher::new();
        (parent, name).hash(&mut hasher);
        let path = hasher.finish();
        paths.insert(path);
        add_paths(member, path, paths);
    }
}

type TimedDocument = (Option<Timestamp>, Value);

/// Reads a line. A line with more values than a measurement may have is refused, since it would take many times its
/// length in memory.
fn members_of(line: &[u8]) -> Result<Vec<(Name, Value)>, String> {
    if line.len() > DOCUMENT_BYTES_MAX / size_of::<i64>() && marks_in(line) > DOCUMENT_BYTES_MAX / size_of::<i64>() {
        return Err(format!("a measurement of more than {DOCUMENT_BYTES_MAX} bytes"));
    }
    if line.trim_ascii_start().starts_with(b"[") {
        return Err(
            "expected a JSON object on each line, not a list; jq -c '.[]' FILE writes its items as lines".to_owned()
        );
    }
    match ebbtide::json::from_slice(line).map_err(|e| e.to_string())? {
        Value::Object(members) => Ok(members),
        _ => Err("expected a JSON object on each line".to_owned()),
    }
}

/// Number of commas and opening brackets outside texts: at least the number of values minus one.
fn marks_in(json: &[u8]) -> usize {
    let mut count = 0;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b',' | b'[' | b'{' => count += 1,
            b'"' => {
                while let Some(inside) = bytes.next() {
                    match inside {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    count
}

/// Members of a document that are parts of its time or meta.
#[derive(Default)]
struct Members {
    time: Value,
    /// Parts of the time, by position.
    parts: Vec<(usize, String)>,
    meta: Vec<(Name, Value)>,
    others: Vec<(Name, Value)>,
}

impl Members {
    fn add(&mut self, name: Name, value: Value, job: &Job<'_>, layout: &Layout) -> Result<(), String> {
        let times = &job.shape.time;
        if let Some(at) = times.iter().position(|t| times.len() > 1 && *t == name) {
            match value {
                Value::String(text) => self.parts.push((at, text)),
                Value::Int(number) => self.parts.push((at, number.to_string())),
                _ => return Err(format!("field '{name}' is a part of the time and must be text")),
            }
        } else if name == layout.time_column {
            if !matches!(std::mem::replace(&mut self.time, value), Value::Null) {
                return Err(format!("field '{name}' is there twice"));
            }
        } else if layout.meta_columns.iter().any(|n| *n == name) {
            if self.meta.iter().any(|(known, _)| *known == name) {
                return Err(format!("field '{name}' is there twice"));
            }
            self.meta.push((name, value));
        } else {
            self.others.push((name, value));
        }
        Ok(())
    }

    /// The document's time.
    fn time(&mut self, job: &Job<'_>) -> Value {
        if let Some(at) = &job.shape.at {
            return Value::String(at.clone());
        }
        if job.shape.time.len() > 1 && self.parts.len() == job.shape.time.len() {
            self.parts.sort_by_key(|(at, _)| *at);
            let parts: Vec<String> = self.parts.drain(..).map(|(_, text)| text).collect();
            return Value::String(parts.join(" "));
        }
        std::mem::replace(&mut self.time, Value::Null)
    }
}

/// A value with markers of missing values replaced by null.
fn unmarked(value: Value, job: &Job<'_>) -> Value {
    match value {
        Value::String(text) if !text.is_empty() && job.cells.nulls.has(text.as_bytes()) => Value::Null,
        #[expect(clippy::cast_precision_loss, reason = "markers are small")]
        Value::Int(i) if job.cells.nulls.has_number(i as f64) => Value::Null,
        Value::Double(d) if job.cells.nulls.has_number(d) => Value::Null,
        other => other,
    }
}

fn of_json(
    line: &[u8],
    job: &Job<'_>,
    layout: &Layout,
    constants: &[(String, String)],
) -> Result<TimedDocument, String> {
    let mut found = Members::default();
    for (name, value) in members_of(line)? {
        let name = Name::from(job.shape.rename(&name));
        if constants.iter().any(|(n, _)| *n == name) {
            return Err(format!("the document already has a field '{name}'"));
        }
        if !job.shape.without.iter().any(|n| *n == name) {
            found.add(name, unmarked(value, job), job, layout)?;
        }
    }
    for (name, text) in constants {
        found.add(name.as_str().into(), job.constant(name, text).value(), job, layout)?;
    }
    let mut time = found.time(job);
    let name = &layout.time_column;
    let text = match (&time, job.cells.times.is_general()) {
        (Value::String(text), _) => Some(text.trim().to_owned()),
        (Value::Int(number), false) => Some(number.to_string()),
        (Value::Double(number), false) => Some(number.to_string()),
        (Value::Int(_) | Value::Double(_), true) => {
            return Err(format!("field '{name}' is a number: add --time-format s, ms, us or ns"));
        }
        (Value::Null, _) => return Err(format!("the time is missing: there is no field '{name}'")),
        _ => None,
    };
    if let Some(text) = text {
        let key = if job.cells.times.decides() { format!("{:?}", found.meta) } else { String::new() };
        let read = job.cells.times.read_in(text.as_bytes(), job.folds.borrow_mut().series(key.as_bytes()));
        time = Value::Date(read.map_err(|e| format!("field '{name}': {e}"))?);
    }
    let instant = match &time {
        Value::Date(instant) => Some(*instant),
        _ => None,
    };
    let Members { mut meta, others: mut object, .. } = found;
    object.insert(0, (layout.time_field.as_str().into(), time));
    if let Some(field) = &layout.meta_field {
        let value = match layout.meta_columns.len() {
            1 => meta.pop().map_or(Value::Null, |(_, v)| v),
            _ => Value::Object(meta),
        };
        object.insert(1, (field.into(), value));
    }
    Ok((instant, Value::Object(object)))
}

fn of_point(
    point: Point<'_>,
    job: &Job<'_>,
    layout: &Layout,
    constants: &[(String, String)],
) -> Result<TimedDocument, String> {
    let time = match (point.time, job.now.get()) {
        (Some(text), _) => job.cells.times.read(text.as_bytes())?,
        (None, Some(now)) => now,
        (None, None) => return Err("the point has no time; only points from standard input get the present one".into()),
    };
    let mut object = vec![(layout.time_field.as_str().into(), Value::Date(time))];
    let mut meta = Vec::with_capacity(point.tags.len() + 1);
    if job.measurement.is_none() {
        meta.push(("measurement".into(), Value::String(point.measurement.into_owned())));
    }
    let constants = constants.iter().map(|(name, value)| (name.as_str().into(), value.clone()));
    let tags = point.tags.into_iter().map(|(name, value)| (Name::from(job.shape.rename(&name)), value.into_owned()));
    for (name, value) in tags.chain(constants) {
        if meta.iter().any(|(n, _)| *n == name) {
            return Err(format!("there are two tags '{name}'"));
        }
        if !job.shape.without.iter().any(|n| *n == name) {
            meta.push((name, Value::String(value)));
        }
    }
    if let Some(field) = layout.meta_field.as_ref().filter(|_| !meta.is_empty()) {
        object.push((field.into(), Value::Object(meta)));
    }
    for (name, value) in point.fields {
        let name = Name::from(job.shape.rename(&name));
        if name == layout.time_field || layout.meta_field.as_deref() == Some(name.as_str()) {
            return Err(format!(
                "field '{name}' has the name of the time or meta field; give it another one with --rename"
            ));
        }
        if object.iter().any(|(n, _)| *n == name) {
            return Err(format!("there are two fields '{name}'"));
        }
        if !job.shape.without.iter().any(|n| *n == name) {
            object.push((name, value.into()));
        }
    }
    Ok((Some(time), Value::Object(object)))
}

/// A document's fields after renaming.
fn named(record: &Record<'_>, job: &Job<'_>) -> Result<Vec<(String, Value)>, String> {
    let members = members_of(record.cell(0))?;
    let renamed = |(name, value): (Name, Value)| (job.shape.rename(&name).to_owned(), value);
    let mut members: Vec<(String, Value)> = members.into_iter().map(renamed).collect();
    if job.shape.time.len() > 1 {
        members.push((job.shape.time_field(), Value::Null));
    }
    Ok(members)
}

/// The names of the measurements in a file of line protocol, in order of appearance, and its first bad line.
pub(super) fn measurements(
    source: &Source,
    job: &Job<'_>,
    (all, bad): (&mut Vec<String>, &mut Option<String>),
) -> Result<(), Failure> {
    source::blocks(source, &job.split(source), &mut |block| {
        for record in block.records() {
            match line_protocol::parse(record.cell(0)) {
                Ok(Some(point)) if !all.iter().any(|known| *known == point.measurement) => {
                    all.push(point.measurement.into_owned());
                }
                Ok(_) => {}
                // Bad lines beside good ones are reported when the points are read.
                Err(reason) => drop(bad.get_or_insert_with(|| format!("{}:{}: {reason}", source.name, record.line))),
            }
        }
        Ok(ControlFlow::Continue(()))
    })
}
