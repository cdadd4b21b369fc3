//! Lines that are documents: NDJSON and line protocol.

use super::infer::{finer, finest};
use super::layout::Layout;
use super::line_protocol::{self, Point};
use super::source::Source;
use super::text::{self, Record};
use super::{Job, Rows};
use crate::Failure;
use crate::args::InputFormat;
use crate::batching::INSERT_BYTES;
use ebbtide_buckets::{DOCUMENT_BYTES_MAX, Schema, batch_from_documents};
use ebbtide_ttl::{Name, Precision, Timestamp, Value};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

/// Gathers documents for a batch.
#[derive(Default)]
pub(super) struct Gathered {
    documents: Vec<Value>,
    lines: Vec<u64>,
    /// The lines' text, for the file of bad lines.
    texts: Vec<String>,
    bytes: usize,
    /// Hashes of the paths of all fields: a batch has a column for each, however few rows have a value in it.
    paths: HashSet<u64>,
    /// The unit that holds the times exactly.
    pub(super) finest: Precision,
}

impl Gathered {
    pub(super) fn rows(&self) -> usize {
        self.documents.len()
    }

    /// Whether one insert should hold no more.
    fn is_full(&self, job: &Job<'_>) -> bool {
        let cells = self.rows().saturating_mul(self.paths.len());
        self.rows() >= job.batch_rows || self.bytes >= INSERT_BYTES || cells >= INSERT_BYTES / size_of::<i64>()
    }

    /// Reads a line; a bad one goes where bad lines go. `now` is the time of points that name none.
    pub(super) fn add(
        &mut self,
        record: &Record<'_>,
        format: InputFormat,
        job: &Job<'_>,
        layout: &Layout,
        file: &str,
        now: Option<Timestamp>,
    ) -> Result<(), Failure> {
        let line = record.cell(0);
        let read = match format {
            InputFormat::Influx => match line_protocol::parse(line) {
                Ok(Some(point)) if job.measurement.as_ref().is_some_and(|m| *m != point.measurement) => Ok(None),
                Ok(Some(point)) => of_point(point, job, layout, now).map(Some),
                // A line that is of no measurement is told by one of those that look at it.
                Err(reason) if job.tells_misformed => Err(reason),
                _ => Ok(None),
            },
            _ => of_json(line, job, layout).map(Some),
        };
        match read {
            Ok(None) => Ok(()),
            Ok(Some((time, document))) => {
                let lonely = |members: &[(Name, Value)]| {
                    members.iter().all(|(n, v)| {
                        matches!(v, Value::Null)
                            || *n == layout.time_field
                            || layout.meta_field.as_deref() == Some(n.as_str())
                    })
                };
                if job.args.skip_empty && matches!(&document, Value::Object(members) if lonely(members)) {
                    job.empty.set(job.empty.get() + 1);
                    return Ok(());
                }
                self.finest = finer(self.finest, time.map_or(Precision::Ms, finest));
                self.bytes += record.bytes();
                add_paths(&document, 0, &mut self.paths);
                self.documents.push(document);
                self.lines.push(record.line);
                self.texts.push(if job.bad.borrow().lenient() { record.text() } else { String::new() });
                Ok(())
            }
            Err(reason) => job.bad.borrow_mut().row(file, record.line, &reason, &record.text()),
        }
    }

    /// The batch of what was gathered, without documents that do not fit the schema, which grows with the others.
    pub(super) fn finish<'n>(
        &mut self,
        schema: &mut Schema,
        job: &Job<'_>,
        file: &'n str,
        end: u64,
    ) -> Result<Option<Rows<'n>>, Failure> {
        loop {
            if self.documents.is_empty() {
                return Ok(None);
            }
            match batch_from_documents(&self.documents, schema) {
                Ok(accepted) => {
                    *schema = accepted.schema;
                    self.documents.clear();
                    self.texts.clear();
                    self.bytes = 0;
                    self.paths.clear();
                    let lines = std::mem::take(&mut self.lines);
                    return Ok(Some(Rows { batch: accepted.batch, source: file, lines, end }));
                }
                Err(error) => {
                    let at = error.index.min(self.documents.len() - 1);
                    let index = format!("index {}: ", error.index);
                    let message = error.error.message.strip_prefix(&index).unwrap_or(&error.error.message);
                    self.documents.remove(at);
                    let (line, text) = (self.lines.remove(at), self.texts.remove(at));
                    job.bad.borrow_mut().row(file, line, message, &text)?;
                }
            }
        }
    }
}

/// Reads a file of documents. `schema` is what is known of the collection and grows with what is found.
pub(super) fn read(
    source: &Source,
    job: &Job<'_>,
    layout: &Layout,
    schema: &mut Schema,
    from: u64,
    give: &mut dyn FnMut(Rows<'_>) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let mut gathered = Gathered::default();
    let mut at = 0;
    let mut stopped = false;
    text::blocks(source, &job.split(source), &mut |block| {
        for record in block.records() {
            at += 1;
            if at <= from {
                continue;
            }
            gathered.add(&record, source.format, job, layout, &source.name, None)?;
            if gathered.is_full(job) {
                let rows = gathered.finish(schema, job, &source.name, at)?;
                if let Some(rows) = rows
                    && give(rows)?.is_break()
                {
                    stopped = true;
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    job.finest.set(finer(job.finest.get(), gathered.finest));
    if !stopped && let Some(rows) = gathered.finish(schema, job, &source.name, at)? {
        let _ = give(rows)?;
    }
    Ok(())
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

/// Reads a line. One with more values than a measurement may have would take many times its length in memory.
fn members_of(line: &[u8]) -> Result<Vec<(Name, Value)>, String> {
    if line.len() > DOCUMENT_BYTES_MAX / size_of::<i64>() && marks_in(line) > DOCUMENT_BYTES_MAX / size_of::<i64>() {
        return Err(format!("a measurement of more than {DOCUMENT_BYTES_MAX} bytes"));
    }
    match ebbtide::json::from_slice(line).map_err(|e| e.to_string())? {
        Value::Object(members) => Ok(members),
        _ => Err("a JSON object is expected on each line".to_owned()),
    }
}

/// Commas and opening brackets outside of texts: no fewer than there are values, but for one.
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

fn of_json(line: &[u8], job: &Job<'_>, layout: &Layout) -> Result<TimedDocument, String> {
    let members = members_of(line)?;
    let mut object = Vec::with_capacity(members.len());
    let mut meta: Vec<(Name, Value)> = Vec::new();
    let mut time = Value::Null;
    let mut parts: Vec<(usize, String)> = Vec::new();
    for (name, value) in members {
        let name = Name::from(job.shape.rename(&name));
        let value = match value {
            Value::String(text) if !text.is_empty() && job.cells.nulls.has(text.as_bytes()) => Value::Null,
            #[expect(clippy::cast_precision_loss, reason = "markers are small")]
            Value::Int(i) if job.cells.nulls.has_number(i as f64) => Value::Null,
            Value::Double(d) if job.cells.nulls.has_number(d) => Value::Null,
            other => other,
        };
        if job.shape.without.iter().any(|n| *n == name) {
            continue;
        }
        if let Some(at) = job.shape.time.iter().position(|t| job.shape.time.len() > 1 && *t == name) {
            match value {
                Value::String(text) => parts.push((at, text)),
                Value::Int(number) => parts.push((at, number.to_string())),
                _ => return Err(format!("field '{name}' is a part of the time and no text")),
            }
        } else if name == layout.time_column {
            time = value;
        } else if layout.meta_columns.iter().any(|n| *n == name) {
            meta.push((name, value));
        } else {
            object.push((name, value));
        }
    }
    if job.shape.time.len() > 1 && parts.len() == job.shape.time.len() {
        parts.sort_by_key(|(at, _)| *at);
        let parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
        time = Value::String(parts.join(" "));
    }
    if let Some(at) = &job.shape.at {
        time = Value::String(at.clone());
    }
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
        time = Value::Date(job.cells.times.read(text.as_bytes()).map_err(|e| format!("field '{name}': {e}"))?);
    }
    let instant = match &time {
        Value::Date(instant) => Some(*instant),
        _ => None,
    };
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

fn of_point(point: Point, job: &Job<'_>, layout: &Layout, now: Option<Timestamp>) -> Result<TimedDocument, String> {
    let time = match (point.time, now) {
        (Some(text), _) => job.cells.times.read(text.as_bytes())?,
        (None, Some(now)) => now,
        (None, None) => return Err("the point has no time; only points from standard input get the present one".into()),
    };
    let mut object = vec![(layout.time_field.as_str().into(), Value::Date(time))];
    let mut meta = Vec::with_capacity(point.tags.len() + 1);
    if job.measurement.is_none() {
        meta.push(("measurement".into(), Value::String(point.measurement)));
    }
    for (name, value) in point.tags {
        let name = Name::from(job.shape.rename(&name));
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
            object.push((name, value));
        }
    }
    Ok((Some(time), Value::Object(object)))
}

/// The names of the fields of a file's first document.
pub(super) fn first_names(source: &Source, job: &Job<'_>) -> Result<Vec<String>, Failure> {
    let mut names = None;
    text::blocks(source, &job.split(source), &mut |block| {
        for record in block.records() {
            if let Ok(found) = names_of(&record, job) {
                names = Some(found);
                break;
            }
            if !job.bad.borrow().lenient() {
                return names_of(&record, job)
                    .map(|_| ControlFlow::Break(()))
                    .map_err(|e| Failure::new(format!("{}:{}: {e}", source.name, record.line)));
            }
        }
        Ok(ControlFlow::Break(()))
    })?;
    names.ok_or_else(|| Failure::new(format!("{} is empty", source.name)))
}

/// The names of the fields of a document, as the user wants them.
pub(super) fn names_of(record: &Record<'_>, job: &Job<'_>) -> Result<Vec<String>, String> {
    let members = members_of(record.cell(0))?;
    let mut names: Vec<String> = members.into_iter().map(|(name, _)| job.shape.rename(&name).to_owned()).collect();
    if job.shape.time.len() > 1 {
        names.push(job.shape.time_field());
    }
    Ok(names)
}

/// The measurements that a file of line protocol has points of, in order of appearance.
pub(super) fn measurements(source: &Source, job: &Job<'_>, all: &mut Vec<String>) -> Result<(), Failure> {
    text::blocks(source, &job.split(source), &mut |block| {
        for record in block.records() {
            // Bad lines are told when the points are read.
            if let Ok(Some(point)) = line_protocol::parse(record.cell(0))
                && !all.contains(&point.measurement)
            {
                all.push(point.measurement);
            }
        }
        Ok(ControlFlow::Continue(()))
    })
}
