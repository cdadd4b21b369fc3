//! Documents to columns: the rules of types, checked measurement by measurement.

mod infer;

use crate::build::{build_array, member_columns, timestamps};
use crate::limits::check_document;
use crate::schema::{FieldType, Schema};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::error::ArrowError;
use ebbtide_ttl::{Code, RuleError, Value};
use infer::{Infer, Limits, Members};
use std::fmt;

/// Measurements in canonical columns.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The measurements, canonical under `schema`.
    pub batch: RecordBatch,
    /// The collection's schema with what these measurements add. Where a field was int64 and is double here, the caller
    /// checks that what is stored fits.
    pub schema: Schema,
}

/// Why measurements were refused, and which one is the first bad one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchError {
    /// The zero-based index of the measurement.
    pub index: usize,
    /// What is wrong with it; the message names the index too.
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
    let mut meta = schema.meta_type.as_ref().map_or(Infer::Unknown, Infer::of);
    let mut fields = Members::of(&schema.fields);
    let mut limits = Limits::new(schema);
    let mut times = Vec::with_capacity(docs.len());
    for (index, doc) in docs.iter().enumerate() {
        let time = take_document(doc, schema, &mut meta, &mut fields, &mut limits);
        times.push(Some(time.map_err(|error| BatchError::new(index, error))?));
    }

    let schema = Schema {
        meta_type: meta.field_type(),
        fields: fields.field_types(),
        time: schema.time.clone(),
        meta: schema.meta.clone(),
        precision: schema.precision,
    };
    let precision = schema.precision;
    let mut columns: Vec<(&str, &FieldType)> = Vec::with_capacity(schema.fields.len() + 1);
    if let (Some(name), Some(ty)) = (&schema.meta, &schema.meta_type) {
        columns.push((name, ty));
    }
    columns.extend(schema.fields.iter().map(|(name, ty)| (name.as_str(), ty)));
    let values = member_columns(columns.iter().map(|(name, _)| *name), &docs.iter().collect::<Vec<_>>());
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len() + 1);
    arrays.push(timestamps(times.into_iter(), precision));
    arrays.extend(columns.iter().zip(&values).map(|((_, ty), values)| build_array(ty, values, precision)));
    let batch = RecordBatch::try_new(schema.arrow(), arrays).map_err(|e| BatchError::from_arrow(&e))?;
    Ok(Accepted { batch, schema })
}

/// Checks one document, lets the types grow by it, and returns its time.
fn take_document(
    doc: &Value,
    schema: &Schema,
    meta: &mut Infer,
    fields: &mut Members,
    limits: &mut Limits,
) -> Result<i64, RuleError> {
    let bad = |message: String| Err(RuleError::new(Code::BadValue, message));
    let Value::Object(members) = doc else {
        return bad(format!("a measurement is an object, this is {}", infer::a_value(doc)));
    };
    check_document(doc)?;
    let mut time = None;
    let mut has_meta = false;
    fields.begin();
    for (name, value) in members {
        if *name == schema.time {
            if time.is_some() {
                return bad(format!("field '{name}' is there twice"));
            }
            time = Some(match value {
                Value::Date(t) => limits.units(*t, name)?,
                Value::Null => return bad(format!("the time field '{name}' is null")),
                other => {
                    return bad(format!("the time field '{name}' must be a date, it is {}", infer::a_value(other)));
                }
            });
        } else if schema.meta.as_ref() == Some(name) {
            if std::mem::replace(&mut has_meta, true) {
                return bad(format!("field '{name}' is there twice"));
            }
            limits.depth(value, name)?;
            meta.take(value, name, limits)?;
        } else {
            limits.depth(value, name)?;
            fields.take(name, value, None, limits)?;
        }
    }
    match time {
        Some(time) => Ok(time),
        None => bad(format!("the time field '{}' is missing", schema.time)),
    }
}

#[cfg(test)]
mod tests;
