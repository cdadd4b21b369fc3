//! Extended JSON (version 2) and values.
//!
//! 1. Both the relaxed and the canonical form can be read; the relaxed one is written where it loses nothing.
//! 2. A JSON number without a fraction or an exponent is an integer, any other a double: `1` and `1.0` differ.
//! 3. Objects with other `$`-keys stay objects: filters consist of them.

pub mod date;
mod read;

use crate::error::{Error, Result};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ebbtide_ttl::{Code, Precision, Timestamp, Value};
use serde::Serialize;
use serde_json::{Number, Value as Json};

/// The text of `$binary`. Padding may be omitted, as some writers do.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Values do not nest deeper than this.
pub const DEPTH_MAX: usize = 100;

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
    read::read(json).map_err(|e| bad(e.to_string()))
}

/// Reads a value from the text of one, as [`value_of`] does. An object keeps a repeated name, which no
/// measurement may have.
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
    let value = read::read(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|e| if e.is_data() { bad(e.to_string()) } else { bad(format!("not a JSON document: {e}")) })
}

fn bad(message: impl Into<String>) -> Error {
    let message: String = message.into();
    Error::new(Code::BadValue, message.chars().take(400).collect::<String>())
}

/// Writes a value as relaxed Extended JSON: whole numbers and doubles as they are (`1.0` keeps its fraction), dates
/// from 1970 to 9999, and all with digits below a millisecond, as RFC 3339 texts.
#[must_use]
pub fn json_of(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(i) => Json::from(*i),
        Value::Double(d) => match Number::from_f64(*d) {
            Some(number) => Json::Number(number),
            None if d.is_nan() => wrapped("$numberDouble", "NaN"),
            None => wrapped("$numberDouble", if *d < 0.0 { "-Infinity" } else { "Infinity" }),
        },
        Value::String(text) => Json::from(text.as_str()),
        Value::Date(t) => json_of_date(*t),
        Value::Binary(bytes) => {
            let members = [("base64", BASE64.encode(bytes)), ("subType", "00".to_owned())];
            let inner = members.into_iter().map(|(name, text)| (name.to_owned(), Json::from(text))).collect();
            wrapped("$binary", Json::Object(inner))
        }
        Value::Array(items) => Json::Array(items.iter().map(json_of).collect()),
        Value::Object(members) => Json::Object(members.iter().map(|(n, v)| (n.to_string(), json_of(v))).collect()),
    }
}

fn json_of_date(t: Timestamp) -> Json {
    /// 10000-01-01T00:00:00Z.
    const END_MS: i64 = 253_402_300_800_000;
    let ms = t.to_units_saturating(Precision::Ms);
    let is_finer = t.nanos().rem_euclid(Precision::Ms.nanos()) != 0;
    let text = t.to_string();
    if ((0..END_MS).contains(&ms) || is_finer) && text.ends_with('Z') {
        return wrapped("$date", text);
    }
    wrapped("$date", wrapped("$numberLong", ms.to_string()))
}

fn wrapped(key: &str, inner: impl Into<Json>) -> Json {
    Json::Object(std::iter::once((key.to_owned(), inner.into())).collect())
}

/// Converts anything that can be serialized to a value, through JSON: a `u64` beyond int64 is refused, NaN becomes null.
/// Times must be written with [`date`]; a text stays a text, even if it reads as a time.
///
/// # Errors
/// [`Code::BadValue`] for what JSON or int64 cannot hold.
pub fn to_value<T: Serialize>(item: &T) -> Result<Value> {
    let json = serde_json::to_value(item).map_err(|e| bad(format!("cannot serialise: {e}")))?;
    value_of(&json)
}

#[cfg(test)]
mod tests;
