//! Extended JSON (version 2) and values.
//!
//! 1. Both the relaxed and the canonical form can be read; the relaxed one is written where it loses nothing.
//! 2. A JSON number without a fraction or an exponent is an integer, any other a double: `1` and `1.0` differ.
//! 3. Objects with other `$`-keys stay objects: filters consist of them.

pub mod date;
mod read;
mod serialize;
mod write;

pub use read::DEPTH_MAX;
pub use write::json_of;

use crate::error::{Error, Result};
use ebbtide_ttl::{Code, Value, inexact_integer};
use serde::Serialize;
use serde_json::Value as Json;
use std::cell::Cell;

/// Reads a value from Extended JSON.
///
/// `{"$date": ...}` holds an RFC 3339 text, a number of milliseconds or a `$numberLong` of them. `$oid` becomes its text,
/// `$numberDecimal` a double if that is exact, `$binary` its bytes of any sub-type. An integer beyond int64 becomes a double
/// if that is exact (from 2^64 on, the JSON parser rounds to the nearest).
///
/// ```
/// use ebbtide::json::value_of;
/// use ebbtide::ttl::{Timestamp, Value};
/// use serde_json::json;
///
/// assert_eq!(value_of(&json!({"$date": "1970-01-01T00:00:01Z"}))?, Value::Date(Timestamp::from_millis(1000)));
/// # Ok::<(), ebbtide::Error>(())
/// ```
///
/// # Errors
/// [`Code::BadValue`] for a number that neither int64 nor a double holds, a malformed `$`-value, a `$`-value of a type that
/// is not stored, and nesting beyond [`DEPTH_MAX`].
pub fn value_of(json: &Json) -> Result<Value> {
    read::read(json, &Cell::new(false)).map_err(|e| bad(e.to_string()))
}

/// Reads a value from the text of one, as [`value_of`] does, but no integer is rounded. An object keeps a repeated name,
/// which no measurement may have.
///
/// ```
/// use ebbtide::json::from_slice;
/// use ebbtide::ttl::Value;
///
/// let value = from_slice(br#"{"temp": 21.5}"#)?;
/// assert_eq!(value.get("temp"), Some(&Value::Double(21.5)));
/// # Ok::<(), ebbtide::Error>(())
/// ```
///
/// # Errors
/// As for [`value_of`], and [`Code::BadValue`] for what is not JSON, each with line and column.
pub fn from_slice(text: &[u8]) -> Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let large = Cell::new(false);
    let value = read::read(&mut deserializer, &large).and_then(|value| deserializer.end().map(|()| value));
    let value =
        value.map_err(|e| if e.is_data() { bad(e.to_string()) } else { bad(format!("not a JSON document: {e}")) })?;
    if large.get()
        && let Some(number) = inexact_integer(text)
    {
        return Err(bad(read::unfit(number)));
    }
    Ok(value)
}

fn bad(message: impl Into<String>) -> Error {
    let message: String = message.into();
    Error::new(Code::BadValue, message.chars().take(400).collect::<String>())
}

/// Converts anything that can be serialized to a value, as serde_json does, but NaN and the infinities stay what they are. A `u64` beyond
/// int64 becomes a double if that is exact, and is refused otherwise: store counters of that size as texts.
/// Times must be written with [`date`]; a text stays a text, even if it reads as a time.
///
/// # Errors
/// [`Code::BadValue`] for what JSON or int64 cannot hold.
pub fn to_value<T: Serialize>(item: &T) -> Result<Value> {
    let json = item.serialize(serialize::ToJson).map_err(|e| bad(format!("cannot serialise: {e}")))?;
    value_of(&json)
}

#[cfg(test)]
mod tests;
