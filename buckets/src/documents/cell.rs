//! A member's value while documents are read.

use crate::schema::with_article;
use ebbtide_ttl::{RuleError, Timestamp, Value};
use std::borrow::Cow;

/// The value of a member of a document, borrowed from it where it is stored as it is there. Only lists and objects are trees.
#[derive(Debug, Clone)]
pub enum Cell<'a> {
    /// Null, which is the same as missing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// Text.
    String(Cow<'a, str>),
    /// An instant.
    Date(Timestamp),
    /// Bytes.
    Binary(Cow<'a, [u8]>),
    /// A list or an object; never a scalar.
    Nested(Cow<'a, Value>),
}

impl<'a> Cell<'a> {
    /// The same value, borrowed from this one.
    #[must_use]
    pub fn borrowed(&'a self) -> Cell<'a> {
        match self {
            Cell::String(text) => Cell::String(Cow::Borrowed(text)),
            Cell::Binary(bytes) => Cell::Binary(Cow::Borrowed(bytes)),
            Cell::Nested(value) => Cell::Nested(Cow::Borrowed(value)),
            Cell::Null => Cell::Null,
            Cell::Bool(b) => Cell::Bool(*b),
            Cell::Int(i) => Cell::Int(*i),
            Cell::Double(d) => Cell::Double(*d),
            Cell::Date(t) => Cell::Date(*t),
        }
    }

    /// The type for messages: `a string`, `an int64`.
    pub(super) fn type_with_article(&self) -> String {
        with_article(match self {
            Cell::Null => "null",
            Cell::Bool(_) => "bool",
            Cell::Int(_) => "int64",
            Cell::Double(_) => "double",
            Cell::String(_) => "string",
            Cell::Date(_) => "timestamp",
            Cell::Binary(_) => "binary",
            Cell::Nested(value) if matches!(**value, Value::Array(_)) => "list",
            Cell::Nested(_) => "object",
        })
    }
}

impl From<Cell<'_>> for Value {
    fn from(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Null => Value::Null,
            Cell::Bool(b) => Value::Bool(b),
            Cell::Int(i) => Value::Int(i),
            Cell::Double(d) => Value::Double(d),
            Cell::String(text) => Value::String(text.into_owned()),
            Cell::Date(t) => Value::Date(t),
            Cell::Binary(bytes) => Value::Binary(bytes.into_owned()),
            Cell::Nested(value) => value.into_owned(),
        }
    }
}

impl<'a> From<&'a Value> for Cell<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Cell::Null,
            Value::Bool(b) => Cell::Bool(*b),
            Value::Int(i) => Cell::Int(*i),
            Value::Double(d) => Cell::Double(*d),
            Value::String(text) => Cell::String(Cow::Borrowed(text)),
            Value::Date(t) => Cell::Date(*t),
            Value::Binary(bytes) => Cell::Binary(Cow::Borrowed(bytes)),
            Value::Array(_) | Value::Object(_) => Cell::Nested(Cow::Borrowed(value)),
        }
    }
}

impl From<Value> for Cell<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Cell::Null,
            Value::Bool(b) => Cell::Bool(b),
            Value::Int(i) => Cell::Int(i),
            Value::Double(d) => Cell::Double(d),
            Value::String(text) => Cell::String(Cow::Owned(text)),
            Value::Date(t) => Cell::Date(t),
            Value::Binary(bytes) => Cell::Binary(Cow::Owned(bytes)),
            nested @ (Value::Array(_) | Value::Object(_)) => Cell::Nested(Cow::Owned(nested)),
        }
    }
}

/// A document that is read member by member, without making a tree of it. Several threads may read it, each several times.
pub trait Measurement<'a>: Copy + Sync {
    /// The members, in their order.
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::BadValue`] for what is no object; the iterator: for a member that no column holds, after which
    /// nothing more is read.
    fn members(self) -> Result<impl Iterator<Item = Result<(&'a str, Cell<'a>), RuleError>>, RuleError>;

    /// The meta, if it is no member but a value that several documents share: what is at one address is looked at once.
    fn shared_meta(self) -> Option<&'a Value> {
        None
    }
}

impl<'a> Measurement<'a> for &'a Value {
    fn members(self) -> Result<impl Iterator<Item = Result<(&'a str, Cell<'a>), RuleError>>, RuleError> {
        let Value::Object(members) = self else {
            let what = Cell::from(self).type_with_article();
            return Err(RuleError::new(
                ebbtide_ttl::Code::BadValue,
                format!("a measurement is an object, this is {what}"),
            ));
        };
        Ok(members.iter().map(|(name, value)| Ok((name.as_str(), Cell::from(value)))))
    }
}
