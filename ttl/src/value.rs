//! The value model: what a meta or a field of a measurement can be, and when two of them are the same.

mod tokens;

use crate::time::Timestamp;
use smol_str::SmolStr;
use std::cmp::Ordering;

/// The name of a member of an object. Up to 23 bytes are held in place, since names are read with every document; `"t".into()`
/// creates one.
pub type Name = SmolStr;

/// A value of a document. Null also represents a missing value: the contract does not distinguish them.
#[derive(Debug, Clone, Default)]
pub enum Value {
    /// Null, or missing.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// Text.
    String(String),
    /// An instant.
    Date(Timestamp),
    /// Bytes.
    Binary(Vec<u8>),
    /// A list.
    Array(Vec<Value>),
    /// Named values, in the order given.
    Object(Vec<(Name, Value)>),
}

/// Classes of types: comparisons hold only within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TypeClass {
    /// Null or missing.
    Null,
    /// Whole and floating-point numbers.
    Number,
    /// Text.
    String,
    /// Named values.
    Object,
    /// Lists.
    Array,
    /// Bytes.
    Binary,
    /// True or false.
    Bool,
    /// Instants.
    Date,
}

impl TypeClass {
    /// The name for messages and for `$type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TypeClass::Null => "null",
            TypeClass::Number => "number",
            TypeClass::String => "string",
            TypeClass::Object => "object",
            TypeClass::Array => "array",
            TypeClass::Binary => "binData",
            TypeClass::Bool => "bool",
            TypeClass::Date => "date",
        }
    }
}

impl Value {
    /// The value's type class.
    #[must_use]
    pub fn class(&self) -> TypeClass {
        match self {
            Value::Null => TypeClass::Null,
            Value::Bool(_) => TypeClass::Bool,
            Value::Int(_) | Value::Double(_) => TypeClass::Number,
            Value::String(_) => TypeClass::String,
            Value::Date(_) => TypeClass::Date,
            Value::Binary(_) => TypeClass::Binary,
            Value::Array(_) => TypeClass::Array,
            Value::Object(_) => TypeClass::Object,
        }
    }

    /// Whether this is null, which is the same as missing.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The member `name` of an object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Object(members) => members.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The same value in its normal form: members of objects sorted by name at every depth, null members left out,
    /// doubles that are whole numbers as ints, -0.0 as 0. Two values are the same iff their normal forms are equal.
    #[must_use]
    pub fn normalized(&self) -> Value {
        match self {
            Value::Double(d) => match exact_int(*d) {
                Some(i) => Value::Int(i),
                None if d.is_nan() => Value::Double(f64::NAN),
                None => Value::Double(*d),
            },
            Value::Array(items) => Value::Array(items.iter().map(Value::normalized).collect()),
            Value::Object(members) => {
                let mut members: Vec<_> =
                    members.iter().filter(|(_, v)| !v.is_null()).map(|(n, v)| (n.clone(), v.normalized())).collect();
                members.sort_by(|a, b| a.0.cmp(&b.0));
                Value::Object(members)
            }
            other => other.clone(),
        }
    }

    /// Compares two values of one class; `None` for two classes, and for NaN against any other number.
    #[must_use]
    pub fn compare_in_class(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(_) | Value::Double(_), Value::Int(_) | Value::Double(_)) => compare_numbers(self, other),
            _ if self.class() == other.class() => Some(self.cmp(other)),
            _ => None,
        }
    }

    /// How deep objects and lists nest; a scalar is 0. Stops counting at `limit`.
    #[must_use]
    pub fn depth(&self, limit: usize) -> usize {
        if limit == 0 {
            return 0;
        }
        match self {
            Value::Array(items) => 1 + items.iter().map(|v| v.depth(limit - 1)).max().unwrap_or(0),
            Value::Object(members) => 1 + members.iter().map(|(_, v)| v.depth(limit - 1)).max().unwrap_or(0),
            _ => 0,
        }
    }
}

/// The whole number that a double is, if it is one that `i64` holds.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the range is checked before the cast")]
pub fn exact_int(d: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (d.fract() == 0.0 && (-LIMIT..LIMIT).contains(&d)).then_some(d as i64)
}

/// Whether a double holds this whole number exactly.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "the loss is what is asked for")]
pub fn int_fits_double(i: i64) -> bool {
    exact_int(i as f64) == Some(i)
}

/// Whether the double nearest to a decimal number has all of its digits: it is written with the same ones, or is the same
/// whole number.
#[must_use]
pub fn decimal_fits_double(text: &str, nearest: f64) -> bool {
    let digits = decimal_digits(text);
    let is_whole = nearest.trunc() == nearest;
    digits == decimal_digits(&format!("{nearest:e}"))
        || (is_whole && digits == decimal_digits(&format!("{nearest:.0}")))
}

/// Whether a double may be a whole number that a parser of JSON has rounded: from 2^63 on. [`inexact_integer`] tells whether a text
/// has one.
#[must_use]
pub fn may_be_rounded(d: f64) -> bool {
    d.abs() >= 9_223_372_036_854_775_808.0
}

/// The first whole number of a JSON text that neither `i64` nor a double holds exactly. Parsers of JSON round those of more than 64 bits.
#[must_use]
pub fn inexact_integer(json: &[u8]) -> Option<&str> {
    let mut rest = json;
    while let Some((first, after)) = rest.split_first() {
        let length = match first {
            b'"' => 1 + length_of_text(after),
            b'-' | b'0'..=b'9' => rest.iter().take_while(|b| b.is_ascii_digit() || b"+-.eE".contains(b)).count(),
            _ => 1,
        };
        let (token, behind) = rest.split_at_checked(length)?;
        match std::str::from_utf8(token) {
            Ok(number) if *first != b'"' && is_inexact_integer(number) => return Some(number),
            _ => rest = behind,
        }
    }
    None
}

/// The bytes of a text in JSON after its first quotation mark, with the last one.
fn length_of_text(json: &[u8]) -> usize {
    let mut escaped = false;
    let ends = |byte: &u8| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    };
    json.iter().position(ends).map_or(json.len(), |at| at + 1)
}

fn is_inexact_integer(number: &str) -> bool {
    !number.contains(['.', 'e', 'E'])
        && number.parse::<i64>().is_err()
        && number.parse::<f64>().is_ok_and(|nearest| format!("{nearest:.0}") != number)
}

/// The digits of a decimal number without zeros around them, and the power of ten of the last one.
fn decimal_digits(text: &str) -> (String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all: String = whole.chars().chain(fraction.chars()).filter(char::is_ascii_digit).collect();
    let digits = all.trim_end_matches('0');
    if digits.trim_start_matches('0').is_empty() {
        return (String::new(), 0);
    }
    let places = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    (digits.trim_start_matches('0').to_owned(), exponent - places(fraction.len()) + places(all.len() - digits.len()))
}

fn compare_numbers(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) if a.is_nan() && b.is_nan() => Some(Ordering::Equal),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Double(b)) => compare_int_double(*a, *b),
        (Value::Double(a), Value::Int(b)) => compare_int_double(*b, *a).map(Ordering::reverse),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "equal after rounding means that the double is whole: compared exactly")]
fn compare_int_double(a: i64, b: f64) -> Option<Ordering> {
    match (a as f64).partial_cmp(&b)? {
        Ordering::Equal => match exact_int(b) {
            Some(b) => Some(a.cmp(&b)),
            None => Some(Ordering::Less), // b is 2^63, which no i64 reaches.
        },
        other => Some(other),
    }
}

/// A total order over all values: by class, then by value; NaN is below every number.
impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Date(a), Value::Date(b)) => a.cmp(b),
            (Value::Binary(a), Value::Binary(b)) => a.cmp(b),
            (Value::Array(a), Value::Array(b)) => a.cmp(b),
            (Value::Object(a), Value::Object(b)) => a.cmp(b),
            (Value::Int(_) | Value::Double(_), Value::Int(_) | Value::Double(_)) => compare_numbers(self, other)
                .unwrap_or_else(|| {
                    let nan = |v: &Value| matches!(v, Value::Double(d) if d.is_nan());
                    nan(other).cmp(&nan(self))
                }),
            _ => self.class().cmp(&other.class()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::String(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(i: i64) -> Self {
        Value::Int(i)
    }
}

impl From<f64> for Value {
    fn from(d: f64) -> Self {
        Value::Double(d)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::from_json;
