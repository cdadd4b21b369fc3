//! Documents to columns: the rules of types, checked measurement by measurement.

mod cell;
mod column;
mod infer;
mod parts;
mod room;
mod shared;

pub use cell::{Cell, Measurement};

use crate::build::timestamps;
use crate::schema::Schema;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::error::ArrowError;
use column::Column;
use ebbtide_ttl::{Code, RuleError, Value};
use infer::{Infer, Limits, Members};
use parts::in_parts;
use room::DocumentRoom;
use shared::{SharedMetas, Size};
use std::fmt;

/// Measurements in canonical columns.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The measurements, canonical under `schema`.
    pub batch: RecordBatch,
    /// The collection's schema extended by these measurements. If a field was int64 and is double here, the caller
    /// checks that no stored value loses precision.
    pub schema: Schema,
    /// A number for each row that is equal only where the metas are, if that is known without looking at them.
    pub meta_numbers: Option<Vec<u32>>,
}

/// Why measurements were refused, and which one is the first bad one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchError {
    /// The zero-based index of the measurement.
    pub index: usize,
    /// The error; its message includes the index.
    pub error: RuleError,
}

impl BatchError {
    pub(crate) fn new(index: usize, error: RuleError) -> BatchError {
        let message = format!("index {index}: {}", error.message);
        BatchError { index, error: RuleError::new(error.code, message) }
    }

    pub(crate) fn bad_value(index: usize, message: impl Into<String>) -> BatchError {
        BatchError::new(index, RuleError::new(Code::BadValue, message))
    }

    pub(crate) fn from_arrow(error: &ArrowError) -> BatchError {
        BatchError::new(0, RuleError::new(Code::BadValue, error.to_string()))
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for BatchError {}

/// Makes a canonical batch of documents: all of them, or none.
///
/// # Errors
/// Names the first measurement that breaks a rule: no time, a value of another type, a name that is not allowed.
pub fn batch_from_documents(docs: &[Value], schema: &Schema) -> Result<Accepted, BatchError> {
    batch_from_measurements(&docs.iter().collect::<Vec<_>>(), schema)
}

/// Makes a canonical batch of documents that are read in place: all of them, or none.
///
/// # Errors
/// As for [`batch_from_documents`]. What makes a document unreadable is reported before what makes it unfit for the schema.
pub fn batch_from_measurements<'a>(docs: &[impl Measurement<'a>], schema: &Schema) -> Result<Accepted, BatchError> {
    match in_parts(docs, schema) {
        Some(accepted) => Ok(accepted),
        None => convert(docs, schema, |_| Ok(())).map(|(accepted, _)| accepted),
    }
}

/// Converts documents; also returns what counts towards limits. `goes_on` is asked after each document, and its error ends the work.
fn convert<'a, E: From<BatchError>>(
    docs: &[impl Measurement<'a>],
    schema: &Schema,
    goes_on: impl Fn(&Limits) -> Result<(), E>,
) -> Result<(Accepted, Limits), E> {
    let mut reading = Reading {
        schema,
        meta: schema.meta_type.as_ref().map_or(Infer::Unknown, Infer::of),
        fields: Members::of(&schema.fields),
        limits: Limits::new(schema),
        metas: schema.meta_type.as_ref().map_or(Column::Empty, |ty| Column::of(ty, docs.len())),
        shared: SharedMetas::default(),
        columns: schema.fields.iter().map(|(_, ty)| Column::of(ty, docs.len())).collect(),
    };
    let mut times = Vec::with_capacity(docs.len());
    for (row, doc) in docs.iter().enumerate() {
        let time = reading.take(row, *doc).map_err(|error| BatchError::new(row, unreadable(*doc).unwrap_or(error)))?;
        times.push(Some(time));
        goes_on(&reading.limits)?;
    }

    let Reading { meta, fields, limits, metas, shared, columns, .. } = reading;
    let precision = schema.precision;
    let meta_type = meta.field_type();
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len() + 2);
    arrays.push(timestamps(times.into_iter(), precision));
    let mut meta_numbers = None;
    if let (Some(_), Some(ty)) = (&schema.meta, &meta_type) {
        let shared = shared.finish(ty, docs.len(), precision).map_err(|e| BatchError::from_arrow(&e))?;
        let (column, numbers) = shared.unzip();
        arrays.push(column.unwrap_or_else(|| metas.finish(ty, docs.len(), precision)));
        meta_numbers = numbers;
    }
    let mut types = Vec::with_capacity(columns.len());
    for ((name, ty), values) in fields.into_types().zip(columns) {
        let Some(ty) = ty else { continue };
        arrays.push(values.finish(&ty, docs.len(), precision));
        types.push((name, ty));
    }
    let schema = Schema {
        meta_type,
        fields: types,
        time: schema.time.clone(),
        meta: schema.meta.clone(),
        precision: schema.precision,
    };
    let batch = RecordBatch::try_new(schema.arrow(), arrays).map_err(|e| BatchError::from_arrow(&e))?;
    Ok((Accepted { batch, schema, meta_numbers }, limits))
}

/// Why a document cannot be read to its end, if it cannot.
fn unreadable<'a>(doc: impl Measurement<'a>) -> Option<RuleError> {
    match doc.members() {
        Ok(mut members) => members.find_map(Result::err),
        Err(error) => Some(error),
    }
}

/// Documents that are converted to columns.
struct Reading<'s, 'a> {
    schema: &'s Schema,
    meta: Infer,
    fields: Members,
    limits: Limits,
    metas: Column<'a>,
    shared: SharedMetas<'a>,
    columns: Vec<Column<'a>>,
}

impl<'a> Reading<'_, 'a> {
    /// Checks one document, lets the types grow by it, and returns its time.
    fn take(&mut self, row: usize, doc: impl Measurement<'a>) -> Result<i64, RuleError> {
        let bad = |message: String| Err(RuleError::new(Code::BadValue, message));
        let precision = self.schema.precision;
        let mut room = DocumentRoom::new();
        let mut time = None;
        let mut has_meta = false;
        if let Some(meta) = doc.shared_meta() {
            self.take_shared(row, meta, &mut room)?;
            has_meta = true;
        }
        self.fields.begin();
        for member in doc.members()? {
            let (name, value) = member?;
            room.take(name, &value)?;
            // Time and meta are not fields, so an expected name need not be compared with theirs.
            if let Some(at) = self.fields.expected(name) {
                self.limits.depth(&value, name)?;
                self.fields.take_at(at, &value, None, &mut self.limits)?;
                self.columns[at].put(row, value, precision);
            } else if name == self.schema.time {
                if time.is_some() {
                    return bad(format!("field '{name}' is there twice"));
                }
                time = Some(match value {
                    Cell::Date(t) => self.limits.units(t, name)?,
                    Cell::Null => return bad(format!("the time field '{name}' is null")),
                    other => {
                        return bad(format!(
                            "the time field '{name}' must be a date, it is {}",
                            other.type_with_article()
                        ));
                    }
                });
            } else if self.schema.meta.as_deref() == Some(name) {
                if std::mem::replace(&mut has_meta, true) {
                    return bad(format!("field '{name}' is there twice"));
                }
                self.limits.depth(&value, name)?;
                self.meta.take(&value, name, &mut self.limits)?;
                if !matches!(value, Cell::Null) {
                    self.shared.mix();
                }
                self.metas.put(row, value, precision);
            } else {
                self.limits.depth(&value, name)?;
                let at = self.fields.take(name, &value, None, &mut self.limits)?;
                if at == self.columns.len() {
                    self.columns.push(Column::default());
                }
                self.columns[at].put(row, value, precision);
            }
        }
        match time {
            Some(time) => Ok(time),
            None => bad(format!("the time field '{}' is missing", self.schema.time)),
        }
    }

    /// Takes the meta of a document that shares it with others: it is checked where it comes first.
    fn take_shared(&mut self, row: usize, meta: &'a Value, room: &mut DocumentRoom) -> Result<(), RuleError> {
        let Some(name) = self.schema.meta.as_deref() else {
            return Err(RuleError::new(Code::BadValue, "the collection has no meta field"));
        };
        let value = Cell::from(meta);
        let number = match self.shared.find(meta) {
            Some((number, size)) => {
                room.take_bytes(size.bytes)?;
                self.limits.add_items(size.items, name)?;
                number
            }
            None => {
                let (left, items) = (room.left(), self.limits.items());
                room.take(name, &value)?;
                self.limits.depth(&value, name)?;
                self.meta.take(&value, name, &mut self.limits)?;
                self.shared.add(meta, Size { bytes: left - room.left(), items: self.limits.items() - items })
            }
        };
        self.shared.put(row, number);
        self.metas.put(row, value, self.schema.precision);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
