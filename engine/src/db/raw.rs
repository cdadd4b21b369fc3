//! Measurements from BSON: values, and documents that are read in place.

use crate::error::{Error, Result};
use crate::json;
use ebbtide_buckets::{Cell, Measurement};
use ebbtide_documents::bson::raw::{RawBsonRef, RawDocument};
use ebbtide_documents::json::to_canonical_value;
use ebbtide_ttl::{Code, IdPolicy, Name, RuleError, Timestamp, Value};
use std::borrow::Cow;

/// A value of BSON as a value of a column or of a filter: an ObjectId is its text, a decimal128 a double if that is exact, and
/// binary values lose their subtype.
///
/// # Errors
/// [`Code::BadValue`] for a type that no column has, for what is not BSON, and for nesting beyond [`json::DEPTH_MAX`].
pub fn value_of_bson(value: RawBsonRef<'_>) -> Result<Value> {
    value_at_depth(value, 0)
}

fn value_at_depth(value: RawBsonRef<'_>, depth: usize) -> Result<Value> {
    if depth > json::DEPTH_MAX {
        return Err(Error::new(Code::BadValue, format!("nested deeper than {} levels", json::DEPTH_MAX)));
    }
    let malformed = |e: ebbtide_documents::bson::error::Error| Error::new(Code::BadValue, format!("not BSON: {e}"));
    Ok(match value {
        RawBsonRef::Null => Value::Null,
        RawBsonRef::Boolean(b) => Value::Bool(b),
        RawBsonRef::Int32(i) => Value::Int(i.into()),
        RawBsonRef::Int64(i) => Value::Int(i),
        RawBsonRef::Double(d) => Value::Double(d),
        RawBsonRef::String(text) => Value::String(text.to_owned()),
        RawBsonRef::DateTime(date) => Value::Date(Timestamp::from_millis(date.timestamp_millis())),
        RawBsonRef::Binary(binary) => Value::Binary(binary.bytes.to_vec()),
        RawBsonRef::ObjectId(id) => Value::String(id.to_hex()),
        RawBsonRef::Array(list) => {
            let values = list.into_iter().map(|value| value_at_depth(value.map_err(malformed)?, depth + 1));
            Value::Array(values.collect::<Result<_>>()?)
        }
        RawBsonRef::Document(document) => {
            let members = document.iter().map(|member| {
                let (name, value) = member.map_err(malformed)?;
                Ok((Name::from(name.as_str()), value_at_depth(value, depth + 1)?))
            });
            Value::Object(members.collect::<Result<_>>()?)
        }
        // Decimals, and the errors about all others.
        other => json::value_of(&to_canonical_value(other))?,
    })
}

/// A document of BSON, read in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawMeasurement<'a> {
    pub(crate) document: &'a RawDocument,
    /// Whether an ObjectId as `_id` is stored.
    pub(crate) ids: IdPolicy,
}

impl<'a> Measurement<'a> for RawMeasurement<'a> {
    fn members(
        self,
    ) -> std::result::Result<impl Iterator<Item = std::result::Result<(&'a str, Cell<'a>), RuleError>>, RuleError> {
        let drops = self.ids == IdPolicy::Drop;
        Ok(self.document.iter().filter_map(move |member| match member {
            Ok((name, RawBsonRef::ObjectId(_))) if drops && name.as_str() == "_id" => None,
            Ok((name, value)) => Some(cell(value).map(|cell| (name.as_str(), cell))),
            Err(error) => Some(Err(RuleError::new(Code::BadValue, format!("not a BSON document: {error}")))),
        }))
    }
}

fn cell(value: RawBsonRef<'_>) -> std::result::Result<Cell<'_>, RuleError> {
    Ok(match value {
        RawBsonRef::Null => Cell::Null,
        RawBsonRef::Boolean(b) => Cell::Bool(b),
        RawBsonRef::Int32(i) => Cell::Int(i.into()),
        RawBsonRef::Int64(i) => Cell::Int(i),
        RawBsonRef::Double(d) => Cell::Double(d),
        RawBsonRef::String(text) => Cell::String(Cow::Borrowed(text)),
        RawBsonRef::DateTime(date) => Cell::Date(Timestamp::from_millis(date.timestamp_millis())),
        RawBsonRef::Binary(binary) => Cell::Binary(Cow::Borrowed(binary.bytes)),
        other => value_of_bson(other).map_err(|error| RuleError::new(error.code(), error.to_string()))?.into(),
    })
}

#[cfg(test)]
mod tests;
