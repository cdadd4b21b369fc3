//! Measurements from BSON: values, and documents that are read in place.

use crate::error::{Error, Result};
use crate::json;
use ebbtide_buckets::{Cell, Measurement};
use ebbtide_documents::bson::error::Error as BsonError;
use ebbtide_documents::bson::raw::{CStr, RawBsonRef, RawDocument};
use ebbtide_documents::bson::spec::ElementType;
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
        let rest = self.document.as_bytes().get(4..).unwrap_or_default();
        Ok(Members { measurement: self, rest, read: 0, others: None })
    }
}

type MemberOfBson<'a> = std::result::Result<(&'a CStr, RawBsonRef<'a>), BsonError>;

/// The members of a document. Numbers, texts, dates, truth values, nulls and objects are read here, since a bulk insert spends much of its
/// time on them. From the first member on that is something else, or not BSON, the crate's iterator takes over.
struct Members<'a> {
    measurement: RawMeasurement<'a>,
    rest: &'a [u8],
    read: usize,
    others: Option<Box<dyn Iterator<Item = MemberOfBson<'a>> + 'a>>,
}

/// What comes next in a document.
enum Next<'a> {
    Member(&'a str, Cell<'a>, &'a [u8]),
    /// An ObjectId that is not stored.
    Dropped(&'a [u8]),
    End,
}

impl<'a> Members<'a> {
    /// `None` if the crate's iterator must look at it.
    fn next_here(&self) -> Option<Next<'a>> {
        let (kind, named) = self.rest.split_first()?;
        if *kind == 0 {
            return named.is_empty().then_some(Next::End);
        }
        let (name, value) = named.split_at_checked(named.iter().position(|byte| *byte == 0)?)?;
        let (name, value) = (std::str::from_utf8(name).ok()?, value.get(1..)?);
        let (cell, rest) = match ElementType::from(*kind)? {
            ElementType::Double => {
                value.split_first_chunk().map(|(d, rest)| (Cell::Double(f64::from_le_bytes(*d)), rest))?
            }
            ElementType::Int32 => {
                value.split_first_chunk().map(|(i, rest)| (Cell::Int(i32::from_le_bytes(*i).into()), rest))?
            }
            ElementType::Int64 => {
                value.split_first_chunk().map(|(i, rest)| (Cell::Int(i64::from_le_bytes(*i)), rest))?
            }
            ElementType::DateTime => value
                .split_first_chunk()
                .map(|(ms, rest)| (Cell::Date(Timestamp::from_millis(i64::from_le_bytes(*ms))), rest))?,
            ElementType::Null => (Cell::Null, value),
            ElementType::Boolean => match value.split_first()? {
                (0, rest) => (Cell::Bool(false), rest),
                (1, rest) => (Cell::Bool(true), rest),
                _ => return None,
            },
            ElementType::String => {
                let (length, rest) = value.split_first_chunk()?;
                let length = usize::try_from(i32::from_le_bytes(*length)).ok()?;
                let (text, rest) = rest.split_at_checked(length)?;
                let (0, text) = text.split_last()? else { return None };
                (Cell::String(Cow::Borrowed(std::str::from_utf8(text).ok()?)), rest)
            }
            ElementType::EmbeddedDocument => {
                let length = usize::try_from(i32::from_le_bytes(*value.first_chunk()?)).ok()?;
                let (document, rest) = value.split_at_checked(length)?;
                (cell(RawBsonRef::Document(RawDocument::from_bytes(document).ok()?)).ok()?, rest)
            }
            ElementType::ObjectId if self.measurement.ids == IdPolicy::Drop && name == "_id" => {
                return Some(Next::Dropped(value.get(12..)?));
            }
            _ => return None,
        };
        Some(Next::Member(name, cell, rest))
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
            match self.next_here() {
                Some(Next::Member(name, cell, rest)) => {
                    (self.rest, self.read) = (rest, self.read + 1);
                    return Some(Ok((name, cell)));
                }
                Some(Next::Dropped(rest)) => (self.rest, self.read) = (rest, self.read + 1),
                Some(Next::End) => return None,
                None => break,
            }
        }
        self.next_other()
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
