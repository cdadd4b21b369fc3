//! Values as bytes that sort like the values: for the look-up by `_id` and for indexes.
//!
//! 1. The keys of two values, compared byte by byte, have the order of [`crate::compare`]; equal values have equal keys.
//! 2. A key ends where it says: no key is the beginning of another one. So keys can follow each other, and any bytes can
//!    follow a key.
//! 3. Equal keys tell nothing of the type: `1`, `1.0` and `NumberDecimal("1.00")` have one key. What stores a key in a
//!    value's place makes sure that the value is the one that is read back ([`crate::without_id`]).
//!
//! A key is a tag that says the class of the type, and what the class needs:
//!
//! | class | after the tag |
//! | --- | --- |
//! | number | see below |
//! | string, symbol, code | the text, with the bytes 0 and 1 as `01 01` and `01 02`, and a zero |
//! | object | for each member its class, its name with a zero, its key; then a zero |
//! | list | the keys of the elements; then a zero |
//! | binary | its length, its subtype, its bytes |
//! | `ObjectId` | its 12 bytes |
//! | date | milliseconds, 8 bytes, the sign flipped |
//!
//! The tag of a number says how many bytes of an integer follow: of `2 * floor + f`, where `f` is 1 if there is a
//! fraction. So a whole number below 128 takes two bytes. With a fraction, and beyond int64, the greatest double that is
//! not above the number follows in 8 bytes, then 0 if that is the number, else 1 and the number's decimal digits.

use crate::decimal::Decimal;
use crate::order::{Number, TypeClass, binary_length, integer_of};
use crate::{Code, Result, RuleError};
use bson::RawDocument;
use bson::raw::{RawArray, RawBsonRef};
use bson::spec::{BinarySubtype, ElementType};

/// The `_id` of a document; null if it has none.
#[must_use]
pub fn id_of(document: &RawDocument) -> RawBsonRef<'_> {
    document.get("_id").ok().flatten().unwrap_or(RawBsonRef::Null)
}

/// Ends lists and objects; below every tag.
const END: u8 = 0;
/// The tag of a class is its place times this, so that a class may have several tags.
const TAG_STEP: u8 = 8;

// The tags of numbers, relative to the tag of their class, which has the room of four.
const NAN: u8 = 0;
const BELOW_INT64: u8 = 1;
/// The tag of a negative number from -1 up, without bytes; one byte more is one less.
const NEGATIVE: u8 = 10;
/// The tag of an integer without bytes, 0; one byte more is one more.
const POSITIVE: u8 = 11;
const ABOVE_INT64: u8 = 20;

/// The longest length of binary data that is one byte in a key.
const SHORT_BINARY_MAX: u8 = 0xFD;
const LONG_BINARY: u8 = 0xFE;

const fn tag(class: TypeClass) -> u8 {
    // Numbers, which come fourth, take the room of four.
    let place = class as u8;
    TAG_STEP * if place > TypeClass::Number as u8 { place + 3 } else { place }
}

/// The key of a document's `_id`.
///
/// # Errors
/// `InvalidIdField` for a list, a regular expression and undefined.
pub fn id_key(id: RawBsonRef<'_>) -> Result<Vec<u8>> {
    let refused = match id {
        RawBsonRef::Array(_) => "a list",
        RawBsonRef::RegularExpression(_) => "a regular expression",
        RawBsonRef::Undefined => "undefined",
        _ => return Ok(value_key(id)),
    };
    let message = format!("_id: {refused} cannot be the _id of a document; use a value of another type, or omit _id");
    Err(RuleError::new(Code::InvalidIdField, message))
}

/// The key of any value.
#[must_use]
pub fn value_key(value: RawBsonRef<'_>) -> Vec<u8> {
    let mut key = Vec::with_capacity(16);
    append_value_key(&mut key, value);
    key
}

/// Appends the key of a value, for keys of several values.
pub fn append_value_key(key: &mut Vec<u8>, value: RawBsonRef<'_>) {
    if let Some(number) = Number::of(value) {
        append_number(key, number);
        return;
    }
    key.push(tag(TypeClass::of(value)));
    match value {
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) | RawBsonRef::JavaScriptCode(text) => {
            append_text(key, text);
        }
        RawBsonRef::Document(document) => append_object(key, document),
        RawBsonRef::Array(list) => append_list(key, list),
        RawBsonRef::Binary(binary) => {
            match u8::try_from(binary_length(binary)) {
                Ok(short @ ..=SHORT_BINARY_MAX) => key.push(short),
                _ => {
                    key.push(LONG_BINARY);
                    append_length(key, binary_length(binary));
                }
            }
            key.push(binary.subtype.into());
            key.extend(binary.bytes);
        }
        RawBsonRef::ObjectId(id) => key.extend(id.bytes()),
        RawBsonRef::Boolean(b) => key.push(b.into()),
        RawBsonRef::DateTime(date) => key.extend(flipped(date.timestamp_millis())),
        RawBsonRef::Timestamp(timestamp) => {
            key.extend(timestamp.time.to_be_bytes());
            key.extend(timestamp.increment.to_be_bytes());
        }
        RawBsonRef::RegularExpression(regex) => {
            append_text(key, regex.pattern.as_str());
            append_text(key, regex.options.as_str());
        }
        RawBsonRef::DbPointer(_) => {
            if let Some((length, namespace, id)) = crate::raw::db_pointer(value) {
                append_length(key, length);
                key.extend(namespace.as_bytes());
                key.extend(id.bytes());
            }
        }
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            append_text(key, code.code);
            append_object(key, code.scope);
        }
        // MinKey, undefined, null and MaxKey are their tags.
        _ => {}
    }
}

/// The member `_id` in BSON that has this key and the type in which such values mostly come; `None` if the type is not one of
/// those, or this is no key.
pub(crate) fn id_member(key: &[u8]) -> Option<Vec<u8>> {
    const STRING: u8 = tag(TypeClass::String);
    const BINARY: u8 = tag(TypeClass::Binary);
    const OBJECT_ID: u8 = tag(TypeClass::ObjectId);
    const DATE: u8 = tag(TypeClass::Date);
    let (tag, rest) = key.split_first()?;
    let mut member = Vec::with_capacity(key.len() + 16);
    let mut begin = |ty: ElementType| member.extend([ty as u8, b'_', b'i', b'd', 0]);
    match (*tag, rest) {
        (STRING, rest) => {
            begin(ElementType::String);
            let text = text_of(rest)?;
            member.extend(u32::try_from(text.len() + 1).ok()?.to_le_bytes());
            member.extend(text.as_bytes());
            member.push(0);
        }
        (BINARY, [length @ ..=SHORT_BINARY_MAX, subtype, bytes @ ..])
            if bytes.len() == usize::from(*length) && *subtype != u8::from(BinarySubtype::BinaryOld) =>
        {
            begin(ElementType::Binary);
            member.extend(u32::from(*length).to_le_bytes());
            member.push(*subtype);
            member.extend(bytes);
        }
        (OBJECT_ID, id) => {
            begin(ElementType::ObjectId);
            member.extend(<&[u8; 12]>::try_from(id).ok()?);
        }
        (DATE, date) => {
            begin(ElementType::DateTime);
            let flipped = i64::from_be_bytes(date.try_into().ok()?);
            member.extend((flipped ^ i64::MIN).to_le_bytes());
        }
        (_, _) => {
            begin(ElementType::Int64);
            member.extend(integer_of_key(key)?.to_le_bytes());
        }
    }
    Some(member)
}

/// Undoes [`append_text`].
fn text_of(key: &[u8]) -> Option<String> {
    let (0, escaped) = key.split_last()? else { return None };
    let mut text = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            0 => return None,
            1 => text.push(bytes.next()?.checked_sub(1).filter(|byte| *byte <= 1)?),
            _ => text.push(*byte),
        }
    }
    String::from_utf8(text).ok()
}

/// Undoes [`append_number`] for whole numbers of 64 bits.
fn integer_of_key(key: &[u8]) -> Option<i64> {
    let (tag, bytes) = key.split_first()?;
    let kind = tag.checked_sub(self::tag(TypeClass::Number))?;
    let length = u8::try_from(bytes.len()).ok().filter(|length| *length <= 8)?;
    let is_negative = kind < POSITIVE;
    if kind != (if is_negative { NEGATIVE.checked_sub(length)? } else { POSITIVE + length }) {
        return None;
    }
    let high = if is_negative { -1_i128 } else { 0 };
    let twice = bytes.iter().fold(high, |n, byte| n << 8 | i128::from(*byte));
    if twice & 1 == 1 {
        return None;
    }
    i64::try_from(twice >> 1).ok()
}

/// The keys of all values of a class: those from the first one (included) to the second (excluded).
pub(crate) fn class_range(class: TypeClass) -> (Vec<u8>, Vec<u8>) {
    let start = tag(class);
    let end = start + TAG_STEP * if class == TypeClass::Number { 4 } else { 1 };
    (vec![start], vec![end])
}

/// What all keys of NaN are less than, and all keys of other numbers are not.
pub(crate) fn first_number() -> Vec<u8> {
    vec![tag(TypeClass::Number) + BELOW_INT64]
}

/// With what the keys of all strings that begin with `start` begin, and those of no others.
pub(crate) fn text_key_prefix(start: &str) -> Vec<u8> {
    let mut key = value_key(RawBsonRef::String(start));
    key.pop();
    key
}

fn append_text(key: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            0 | 1 => key.extend([1, byte + 1]),
            _ => key.push(byte),
        }
    }
    key.push(0);
}

/// Appends a length of less than 2^32, which the size of documents sees to.
fn append_length(key: &mut Vec<u8>, length: usize) {
    key.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

fn append_object(key: &mut Vec<u8>, document: &RawDocument) {
    for (name, value) in document.iter().map_while(std::result::Result::ok) {
        // The class comes before the name: so objects are compared.
        key.push(tag(TypeClass::of(value)));
        append_text(key, name.as_str());
        append_value_key(key, value);
    }
    key.push(END);
}

fn append_list(key: &mut Vec<u8>, list: &RawArray) {
    for value in list.into_iter().map_while(std::result::Result::ok) {
        append_value_key(key, value);
    }
    key.push(END);
}

/// Eight bytes with the order of the integers.
fn flipped(i: i64) -> [u8; 8] {
    (i ^ i64::MIN).to_be_bytes()
}

/// Eight bytes with the order of the doubles that are not NaN; 0 and -0 are one.
fn double_bytes(d: f64) -> [u8; 8] {
    let bits = (d + 0.0).to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    ordered.to_be_bytes()
}

fn append_number(key: &mut Vec<u8>, number: Number) {
    let numbers = tag(TypeClass::Number);
    if number.is_nan() {
        key.push(numbers + NAN);
        return;
    }
    let (floor, has_fraction) = match number {
        Number::Int(i) => (Some(i), false),
        Number::Double(d) => (integer_of(d.floor()), d.floor() < d),
        Number::Decimal(d) => match d.floor() {
            Some((floor, has_fraction)) => (i64::try_from(floor).ok(), has_fraction),
            None => (None, false),
        },
    };
    match floor {
        Some(floor) => append_integer(key, 2 * i128::from(floor) + i128::from(has_fraction)),
        None if number.compare(Number::Int(0)).is_lt() => key.push(numbers + BELOW_INT64),
        None => key.push(numbers + ABOVE_INT64),
    }
    if has_fraction || floor.is_none() {
        append_exact(key, number);
    }
}

/// Appends an integer of at most 65 bits: a tag that says how many bytes, and these.
fn append_integer(key: &mut Vec<u8>, n: i128) {
    let magnitude = if n < 0 { !n } else { n };
    let length = magnitude.checked_ilog2().map_or(0, |top| top / 8 + 1);
    let length = u8::try_from(length).unwrap_or(8).min(8);
    key.push(tag(TypeClass::Number) + if n < 0 { NEGATIVE - length } else { POSITIVE + length });
    let bytes = n.to_be_bytes();
    key.extend(&bytes[bytes.len() - usize::from(length)..]);
}

/// Appends the greatest double that is not above the number, and what is missing to the number.
fn append_exact(key: &mut Vec<u8>, number: Number) {
    let (floor, is_exact) = match number {
        Number::Double(d) => (d, true),
        Number::Decimal(d) => d.floor_f64(),
        Number::Int(i) => Decimal::from_i64(i).floor_f64(),
    };
    key.extend(double_bytes(floor));
    key.push((!is_exact).into());
    if let (false, Number::Decimal(Decimal::Finite { negative, coefficient, exponent })) = (is_exact, number) {
        let start = key.len();
        append_digits(key, coefficient, exponent);
        if negative {
            key[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
}

/// Appends a positive number's power of ten and its digits, two to a byte from 1 to 100, and a zero. The number of digits
/// does not matter: zeros at the end are left out.
fn append_digits(key: &mut Vec<u8>, coefficient: u128, exponent: i32) {
    let digits = coefficient.to_string();
    let power = exponent + i32::try_from(digits.len()).unwrap_or(0) - crate::decimal::EXPONENT_MIN;
    key.extend(u16::try_from(power).unwrap_or(u16::MAX).to_be_bytes());
    for pair in digits.trim_end_matches('0').as_bytes().chunks(2) {
        let digit = |i: usize| pair.get(i).map_or(0, |b| b - b'0');
        key.push(digit(0) * 10 + digit(1) + 1);
    }
    key.push(0);
}

#[cfg(test)]
mod tests;
