//! Extended JSON (version 2) and documents.
//!
//! 1. Reading takes the canonical and the relaxed form, also mixed; a plain whole number is an int64, a number with a
//!    fraction or an exponent a double.
//! 2. The canonical form reads back bit for bit. What JSON has no words for is lost: the payload of a NaN, and which of
//!    several encodings of one decimal128 it was.
//! 3. An object with one of the names of [`WRAPPERS`] stands for a value and for nothing else. Other names with `$` are
//!    names: filters and updates are made of them.

mod read;
mod write;

use crate::{Code, Result, RuleError};
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bson::raw::{RawBson, RawBsonRef};
use bson::{Bson, RawDocument, RawDocumentBuf};
use serde_json::Value;
use write::{Extended, Form};

/// The names that make an object a value of a type that JSON does not have.
pub const WRAPPERS: [&str; 17] = [
    "$binary",
    "$code",
    "$date",
    "$dbPointer",
    "$maxKey",
    "$minKey",
    "$numberDecimal",
    "$numberDouble",
    "$numberInt",
    "$numberLong",
    "$oid",
    "$regularExpression",
    "$scope",
    "$symbol",
    "$timestamp",
    "$undefined",
    "$uuid",
];

/// The text of `$binary`. Padding may be omitted, as some writers do.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Levels of objects and lists that a document may have, itself included.
pub const DEPTH_MAX: usize = 100;

/// Reads a value from Extended JSON, in the type that programs build and take apart.
///
/// ```
/// use ebbtide_documents::{bson::Bson, json::from_json};
/// use serde_json::json;
///
/// assert_eq!(from_json(&json!(5))?, Bson::Int64(5));
/// assert_eq!(from_json(&json!({"$numberInt": "5"}))?, Bson::Int32(5));
/// # Ok::<(), ebbtide_documents::RuleError>(())
/// ```
///
/// # Errors
/// `BadValue`, naming the field, for a malformed `$`-value, a whole number that neither int64 nor a double holds exactly,
/// a name with a zero byte, and nesting beyond [`DEPTH_MAX`].
pub fn from_json(json: &Value) -> Result<Bson> {
    let raw = value_from_json(json)?;
    Bson::try_from(raw).map_err(|e| RuleError::new(Code::BadValue, format!("not a BSON value: {e}")))
}

/// Reads a value from Extended JSON, in its binary form.
///
/// # Errors
/// As for [`from_json`].
pub fn value_from_json(json: &Value) -> Result<RawBson> {
    read::value(json)
}

/// Reads a document from Extended JSON.
///
/// # Errors
/// As for [`from_json`], and `BadValue` for anything but an object.
pub fn document_from_json(json: &Value) -> Result<RawDocumentBuf> {
    read::document(json)
}

/// Reads a document from the text of one, such as a line of NDJSON. A name that comes twice is kept twice. Unlike
/// [`document_from_json`], which gets whole numbers beyond 64 bits already rounded, this rounds none.
///
/// ```
/// use ebbtide_documents::json::{canonical_text, document_from_slice};
///
/// let document = document_from_slice(br#"{"_id": 7, "at": {"$date": "2024-01-31T12:00:00Z"}}"#)?;
/// assert_eq!(
///     canonical_text(&document),
///     r#"{"_id":{"$numberLong":"7"},"at":{"$date":{"$numberLong":"1706702400000"}}}"#
/// );
/// # Ok::<(), ebbtide_documents::RuleError>(())
/// ```
///
/// # Errors
/// As for [`document_from_json`], and `BadValue` with line and column for what is not JSON.
pub fn document_from_slice(text: &[u8]) -> Result<RawDocumentBuf> {
    read::document_text(text)
}

/// Writes a document as canonical Extended JSON, which keeps all types. Of members with one name the last is kept;
/// [`canonical_text`] keeps all.
#[must_use]
pub fn to_canonical(document: &RawDocument) -> Value {
    to_canonical_value(RawBsonRef::Document(document))
}

/// Writes a document as relaxed Extended JSON: numbers and dates from 1970 to 9999 as people write them. Of members with
/// one name the last is kept; [`relaxed_text`] keeps all.
#[must_use]
pub fn to_relaxed(document: &RawDocument) -> Value {
    to_relaxed_value(RawBsonRef::Document(document))
}

/// Writes a value as canonical Extended JSON.
#[must_use]
pub fn to_canonical_value(value: RawBsonRef<'_>) -> Value {
    Extended { value, form: Form::Canonical }.to_json()
}

/// Writes a value as relaxed Extended JSON.
#[must_use]
pub fn to_relaxed_value(value: RawBsonRef<'_>) -> Value {
    Extended { value, form: Form::Relaxed }.to_json()
}

/// The text of a document as canonical Extended JSON, on one line.
#[must_use]
pub fn canonical_text(document: &RawDocument) -> String {
    Extended { value: RawBsonRef::Document(document), form: Form::Canonical }.to_text()
}

/// The text of a document as relaxed Extended JSON, on one line.
#[must_use]
pub fn relaxed_text(document: &RawDocument) -> String {
    relaxed_value_text(RawBsonRef::Document(document))
}

/// The text of a value as relaxed Extended JSON, on one line: for messages.
#[must_use]
pub fn relaxed_value_text(value: RawBsonRef<'_>) -> String {
    Extended { value, form: Form::Relaxed }.to_text()
}

#[cfg(test)]
mod tests;
