//! Measurements from BSON: values, and documents that are read in place.

use crate::error::{Error, Result};
use crate::json;
use ebbtide_buckets::{Cell, Measurement};
use ebbtide_documents::bson::error::Error as BsonError;
use ebbtide_documents::bson::raw::{CStr, RawBsonRef, RawDocument};
use ebbtide_documents::json::to_canonical_value;
use ebbtide_documents::{Element, Elements, NextElement};
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
    let malformed = |e: BsonError| Error::new(Code::BadValue, format!("not BSON: {e}"));
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
        Ok(Members { measurement: self, rest: Elements::of(self.document), read: 0, others: None })
    }
}

type MemberOfBson<'a> = std::result::Result<(&'a CStr, RawBsonRef<'a>), BsonError>;

/// The members of a document. From the first one on that [`Elements`] do not read, the crate's iterator takes over: it is slow, and a bulk
/// insert spends much of its time on members.
struct Members<'a> {
    measurement: RawMeasurement<'a>,
    rest: Elements<'a>,
    read: usize,
    others: Option<Box<dyn Iterator<Item = MemberOfBson<'a>> + 'a>>,
}

impl<'a> Members<'a> {
    /// Whether an element is an ObjectId that is not stored.
    fn drops(&self, element: &Element<'_>) -> bool {
        self.measurement.ids == IdPolicy::Drop && element.is_object_id() && element.name == b"_id"
    }

    /// The next member by the crate's iterator.
    fn next_other(&mut self) -> Option<std::result::Result<(&'a str, Cell<'a>), RuleError>> {
        let RawMeasurement { document, ids } = self.measurement;
        let others = self.others.get_or_insert_with(|| Box::new(document.iter().skip(self.read)));
        others.find_map(|member| match member {
            Ok((name, RawBsonRef::ObjectId(_))) if ids == IdPolicy::Drop && name.as_str() == "_id" => None,
            Ok((name, value)) => Some(cell(value).map(|cell| (name.as_str(), cell))),
            Err(error) => Some(Err(RuleError::new(Code::BadValue, format!("not a BSON document: {error}")))),
        })
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = std::result::Result<(&'a str, Cell<'a>), RuleError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.others.is_none() {
            match self.rest.next_element() {
                NextElement::Member(element) if self.drops(&element) => self.read += 1,
                NextElement::Member(element) => {
                    let Some(member) = member_of(&element) else { break };
                    self.read += 1;
                    return Some(Ok(member));
                }
                NextElement::End => return None,
                NextElement::Other => break,
            }
        }
        self.next_other()
    }
}

/// The name and the cell of an element; `None` if the crate's iterator must look at it.
#[inline]
fn member_of<'a>(element: &Element<'a>) -> Option<(&'a str, Cell<'a>)> {
    Some((std::str::from_utf8(element.name).ok()?, cell(element.value()?).ok()?))
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
