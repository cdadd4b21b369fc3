//! The order of all BSON values, within types and between them, as MongoDB defines it.
//!
//! 1. It is total: of any two values one is less, or they are equal. Values of different types may be equal: `1`, `1.0`
//!    and `NumberDecimal("1")`; a string and a symbol.
//! 2. Numbers are compared by value, exactly; NaN is below all of them and equal to itself; -0 equals 0.
//! 3. [`crate::value_key`] has the same order.

use crate::decimal::Decimal;
use bson::RawDocument;
use bson::raw::{RawArray, RawBinaryRef, RawBsonRef};
use bson::spec::BinarySubtype;
use std::cmp::Ordering;

/// The classes of types in their order. Only values of one class are compared further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TypeClass {
    /// `MinKey`, below everything.
    MinKey = 1,
    /// The deprecated `undefined`.
    Undefined,
    /// Null.
    Null,
    /// int32, int64, double and decimal128.
    Number,
    /// Strings and symbols.
    String,
    /// Objects.
    Object,
    /// Lists.
    Array,
    /// Binary data.
    Binary,
    /// `ObjectId`s.
    ObjectId,
    /// Booleans.
    Bool,
    /// Dates.
    Date,
    /// BSON timestamps.
    Timestamp,
    /// Regular expressions.
    Regex,
    /// The deprecated `DBPointer`.
    DbPointer,
    /// Code.
    Code,
    /// Code with a scope.
    CodeWithScope,
    /// `MaxKey`, above everything.
    MaxKey,
}

impl TypeClass {
    /// The class of a value.
    #[must_use]
    pub fn of(value: RawBsonRef<'_>) -> TypeClass {
        match value {
            RawBsonRef::MinKey => TypeClass::MinKey,
            RawBsonRef::Undefined => TypeClass::Undefined,
            RawBsonRef::Null => TypeClass::Null,
            RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
                TypeClass::Number
            }
            RawBsonRef::String(_) | RawBsonRef::Symbol(_) => TypeClass::String,
            RawBsonRef::Document(_) => TypeClass::Object,
            RawBsonRef::Array(_) => TypeClass::Array,
            RawBsonRef::Binary(_) => TypeClass::Binary,
            RawBsonRef::ObjectId(_) => TypeClass::ObjectId,
            RawBsonRef::Boolean(_) => TypeClass::Bool,
            RawBsonRef::DateTime(_) => TypeClass::Date,
            RawBsonRef::Timestamp(_) => TypeClass::Timestamp,
            RawBsonRef::RegularExpression(_) => TypeClass::Regex,
            RawBsonRef::DbPointer(_) => TypeClass::DbPointer,
            RawBsonRef::JavaScriptCode(_) => TypeClass::Code,
            RawBsonRef::JavaScriptCodeWithScope(_) => TypeClass::CodeWithScope,
            RawBsonRef::MaxKey => TypeClass::MaxKey,
        }
    }
}

/// A number of any of BSON's four types.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Int(i64),
    Double(f64),
    Decimal(Decimal),
}

impl Number {
    /// The number that a value is.
    pub(crate) fn of(value: RawBsonRef<'_>) -> Option<Number> {
        match value {
            RawBsonRef::Int32(i) => Some(Number::Int(i.into())),
            RawBsonRef::Int64(i) => Some(Number::Int(i)),
            RawBsonRef::Double(d) => Some(Number::Double(d)),
            RawBsonRef::Decimal128(d) => Some(Number::Decimal(Decimal::decode(d))),
            _ => None,
        }
    }

    pub(crate) fn is_nan(self) -> bool {
        match self {
            Number::Int(_) => false,
            Number::Double(d) => d.is_nan(),
            Number::Decimal(d) => d == Decimal::NaN,
        }
    }

    /// The integer that it is, whatever its type; `None` for a fraction and for what `i64` does not hold.
    pub(crate) fn to_i64(self) -> Option<i64> {
        match self {
            Number::Int(i) => Some(i),
            Number::Double(d) => integer_of(d),
            Number::Decimal(d) => d.to_i64(),
        }
    }

    pub(crate) fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a.cmp(&b),
            (Number::Double(a), Number::Double(b)) => compare_doubles(a, b),
            (Number::Decimal(a), Number::Decimal(b)) => a.compare(b),
            (Number::Int(a), Number::Double(b)) => compare_int_with_double(a, b),
            (Number::Double(a), Number::Int(b)) => compare_int_with_double(b, a).reverse(),
            (Number::Decimal(a), Number::Double(b)) => a.compare_f64(b),
            (Number::Double(a), Number::Decimal(b)) => b.compare_f64(a).reverse(),
            (Number::Decimal(a), Number::Int(b)) => a.compare(Decimal::from_i64(b)),
            (Number::Int(a), Number::Decimal(b)) => Decimal::from_i64(a).compare(b),
        }
    }
}

/// The integer that a number is, whatever its type; `None` for other values, fractions, and what `i64` does not hold.
#[must_use]
pub fn whole_number(value: RawBsonRef<'_>) -> Option<i64> {
    Number::of(value).and_then(Number::to_i64)
}

/// 2^63, the first double that `i64` does not hold.
const I64_END: f64 = 9_223_372_036_854_775_808.0;

/// The integer that a double is; `None` for a fraction and for what `i64` does not hold.
#[expect(clippy::cast_possible_truncation, reason = "checked before")]
pub(crate) fn integer_of(d: f64) -> Option<i64> {
    ((-I64_END..I64_END).contains(&d) && d.trunc() == d).then_some(d as i64)
}

fn compare_doubles(a: f64, b: f64) -> Ordering {
    // Only NaN is not comparable.
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

fn compare_int_with_double(i: i64, d: f64) -> Ordering {
    if d.is_nan() || d < -I64_END {
        return Ordering::Greater;
    }
    if d >= I64_END {
        return Ordering::Less;
    }
    let floor = d.floor();
    let whole = integer_of(floor).unwrap_or(0);
    i.cmp(&whole).then(if d > floor { Ordering::Less } else { Ordering::Equal })
}

/// Compares two values in MongoDB's order of all values.
///
/// Objects are compared member by member: first the class of the value's type, then the name, then the value; lists
/// element by element; what ends first is less. Binary data is compared by length, then subtype, then bytes.
#[must_use]
pub fn compare(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    match (a, b) {
        (RawBsonRef::String(a) | RawBsonRef::Symbol(a), RawBsonRef::String(b) | RawBsonRef::Symbol(b)) => a.cmp(b),
        (RawBsonRef::ObjectId(a), RawBsonRef::ObjectId(b)) => a.bytes().cmp(&b.bytes()),
        (RawBsonRef::DateTime(a), RawBsonRef::DateTime(b)) => a.cmp(&b),
        (RawBsonRef::Boolean(a), RawBsonRef::Boolean(b)) => a.cmp(&b),
        (RawBsonRef::Document(a), RawBsonRef::Document(b)) => compare_objects(a, b),
        (RawBsonRef::Array(a), RawBsonRef::Array(b)) => compare_lists(a, b),
        (RawBsonRef::Binary(a), RawBsonRef::Binary(b)) => {
            let parts = |x: RawBinaryRef<'_>| (binary_length(x), u8::from(x.subtype));
            parts(a).cmp(&parts(b)).then_with(|| a.bytes.cmp(b.bytes))
        }
        (RawBsonRef::Timestamp(a), RawBsonRef::Timestamp(b)) => (a.time, a.increment).cmp(&(b.time, b.increment)),
        (RawBsonRef::RegularExpression(a), RawBsonRef::RegularExpression(b)) => {
            (a.pattern.as_str(), a.options.as_str()).cmp(&(b.pattern.as_str(), b.options.as_str()))
        }
        (RawBsonRef::DbPointer(_), RawBsonRef::DbPointer(_)) => {
            crate::raw::db_pointer(a).cmp(&crate::raw::db_pointer(b))
        }
        (RawBsonRef::JavaScriptCode(a), RawBsonRef::JavaScriptCode(b)) => a.cmp(b),
        (RawBsonRef::JavaScriptCodeWithScope(a), RawBsonRef::JavaScriptCodeWithScope(b)) => {
            a.code.cmp(b.code).then_with(|| compare_objects(a.scope, b.scope))
        }
        _ => match (Number::of(a), Number::of(b)) {
            (Some(a), Some(b)) => a.compare(b),
            _ => TypeClass::of(a).cmp(&TypeClass::of(b)),
        },
    }
}

/// Compares two documents as [`compare`] does.
#[must_use]
pub fn compare_objects(a: &RawDocument, b: &RawDocument) -> Ordering {
    // What cannot be read ends there: documents are checked before they are stored.
    let (mut left, mut right) = (a.iter().map_while(Result::ok), b.iter().map_while(Result::ok));
    loop {
        let ((left_name, x), (right_name, y)) = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => (x, y),
        };
        let order = TypeClass::of(x).cmp(&TypeClass::of(y));
        let order = order.then_with(|| left_name.as_str().cmp(right_name.as_str())).then_with(|| compare(x, y));
        if order.is_ne() {
            return order;
        }
    }
}

fn compare_lists(a: &RawArray, b: &RawArray) -> Ordering {
    let (mut left, mut right) = (a.into_iter().map_while(Result::ok), b.into_iter().map_while(Result::ok));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => compare(x, y),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The length that decides the order: the old subtype stores it a second time, in four bytes of the data.
pub(crate) fn binary_length(binary: RawBinaryRef<'_>) -> usize {
    binary.bytes.len() + if binary.subtype == BinarySubtype::BinaryOld { 4 } else { 0 }
}

#[cfg(test)]
mod tests;
