//! Extended JSON (version 2) and values.
//!
//! 1. Reading takes the relaxed and the canonical form; writing gives the relaxed one, where that loses nothing.
//! 2. A JSON number without a fraction or an exponent is a whole number, any other a double: `1` and `1.0` differ.
//! 3. `$`-keyed objects that are no value of ours stay objects: filters are made of them.

mod base64;
pub mod date;

use crate::error::{Error, Result};
use ebbtide_ttl::{Code, Precision, Timestamp, Value, exact_int};
use serde::Serialize;
use serde_json::{Map, Number, Value as Json};

/// Values do not nest deeper than this.
pub const DEPTH_MAX: usize = 100;

/// Reads a value from Extended JSON.
///
/// `{"$date": ...}` holds an RFC 3339 text, a number of milliseconds or a `$numberLong` of them. `$oid` gives its text;
/// `$numberDecimal` a double, if one holds it exactly; `$binary` its bytes, whatever their sub-type. A whole number beyond
/// int64 is a double, if one holds it exactly (from 2^64 on JSON's readers take the nearest).
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
    read(json, DEPTH_MAX)
}

fn read(json: &Json, depth: usize) -> Result<Value> {
    let deeper = || match depth.checked_sub(1) {
        Some(depth) => Ok(depth),
        None => Err(bad(format!("a value nests deeper than {DEPTH_MAX} levels"))),
    };
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(number) => read_number(number)?,
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => {
            let depth = deeper()?;
            Value::Array(items.iter().map(|item| read(item, depth)).collect::<Result<_>>()?)
        }
        Json::Object(members) => {
            if let Some(value) = read_wrapped(members)? {
                return Ok(value);
            }
            let depth = deeper()?;
            let member = |(name, member): (&String, &Json)| Ok((name.clone(), read(member, depth)?));
            Value::Object(members.iter().map(member).collect::<Result<_>>()?)
        }
    })
}

fn read_number(number: &Number) -> Result<Value> {
    if let Some(i) = number.as_i64() {
        return Ok(Value::Int(i));
    }
    match number.as_f64() {
        Some(d) if number.is_f64() || number.as_u64().is_some_and(|n| whole_digits(d) == n.to_string()) => {
            Ok(Value::Double(d))
        }
        _ => Err(bad(format!("the number {number} does not fit int64; write it with a fraction to make it a double"))),
    }
}

/// A double of whole value without exponent or fraction.
fn whole_digits(d: f64) -> String {
    format!("{d:.0}")
}

/// The value that an object with a `$`-key stands for; `None` if it stands for itself.
fn read_wrapped(members: &Map<String, Json>) -> Result<Option<Value>> {
    let Some((key, inner)) = members.iter().find(|(name, _)| is_wrapper(name)) else { return Ok(None) };
    if let Some(unknown) = FOREIGN.iter().find(|name| *name == key) {
        return Err(bad(format!(
            "{unknown} is a type that is not stored; the types are bool, int64, double, string, date, binary, list and \
             object"
        )));
    }
    if members.len() > 1 {
        return Err(bad(format!("{key} must be alone in its object; found {}", shown(members))));
    }
    let text = || inner.as_str().ok_or_else(|| bad(format!("{key} must hold a text, not {inner}")));
    Ok(Some(match key.as_str() {
        "$date" => Value::Date(read_date(inner)?),
        "$numberInt" | "$numberLong" => {
            let text = text()?;
            let i: i64 = text.parse().map_err(|_| bad(format!("{key} '{text}' is not a whole number of 64 bits")))?;
            if key == "$numberInt" && i32::try_from(i).is_err() {
                return Err(bad(format!("$numberInt '{text}' does not fit 32 bits; write $numberLong")));
            }
            Value::Int(i)
        }
        "$numberDouble" => Value::Double(read_double(key, text()?)?),
        "$numberDecimal" => Value::Double(read_decimal(text()?)?),
        "$oid" => Value::String(text()?.to_owned()),
        _ => Value::Binary(read_binary(inner)?),
    }))
}

/// Types of Extended JSON that no field has.
const FOREIGN: [&str; 10] = [
    "$regularExpression",
    "$timestamp",
    "$uuid",
    "$symbol",
    "$code",
    "$scope",
    "$undefined",
    "$minKey",
    "$maxKey",
    "$dbPointer",
];

fn is_wrapper(name: &str) -> bool {
    matches!(name, "$date" | "$numberInt" | "$numberLong" | "$numberDouble" | "$numberDecimal" | "$oid" | "$binary")
        || FOREIGN.contains(&name)
}

fn read_date(inner: &Json) -> Result<Timestamp> {
    if let Json::String(text) = inner {
        return Timestamp::parse(text).map_err(|e| bad(format!("$date: {e}")));
    }
    let ms = match read(inner, 1)? {
        Value::Int(ms) => Some(ms),
        Value::Double(ms) => exact_int(ms),
        _ => None,
    };
    ms.map(Timestamp::from_millis).ok_or_else(|| {
        let what = "$date must hold an RFC 3339 text or whole milliseconds since 1970, not";
        bad(format!("{what} {inner}"))
    })
}

fn read_double(key: &str, text: &str) -> Result<f64> {
    match text {
        "NaN" => Ok(f64::NAN),
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        _ => match text.parse::<f64>() {
            // The standard parser also takes words such as "inf", which Extended JSON does not have.
            Ok(d) if d.is_finite() && !text.contains(|c: char| c.is_alphabetic() && !matches!(c, 'e' | 'E')) => Ok(d),
            _ => Err(bad(format!("{key} '{text}' is not a double"))),
        },
    }
}

fn read_decimal(text: &str) -> Result<f64> {
    let d = read_double("$numberDecimal", text)?;
    if !d.is_finite() || decimal_digits(text) == decimal_digits(&format!("{d:e}")) {
        return Ok(d);
    }
    Err(bad(format!("$numberDecimal '{text}' has more digits than a double; decimals are not stored")))
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

fn read_binary(inner: &Json) -> Result<Vec<u8>> {
    let wrong = || bad(format!("$binary must be {{\"base64\": text, \"subType\": text}}, not {inner}"));
    let members = inner.as_object().ok_or_else(wrong)?;
    let sub_type = members.get("subType").is_none_or(Json::is_string);
    if !sub_type || members.keys().any(|k| k != "base64" && k != "subType") {
        return Err(wrong());
    }
    let text = members.get("base64").and_then(Json::as_str).ok_or_else(wrong)?;
    base64::decode(text).ok_or_else(|| bad(format!("'{text}' is not base64")))
}

fn bad(message: impl Into<String>) -> Error {
    let message: String = message.into();
    Error::new(Code::BadValue, message.chars().take(400).collect::<String>())
}

fn shown(members: &Map<String, Json>) -> String {
    members.keys().map(|k| format!("'{k}'")).collect::<Vec<_>>().join(", ")
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
            let members = [("base64", base64::encode(bytes)), ("subType", "00".to_owned())];
            let inner = members.into_iter().map(|(name, text)| (name.to_owned(), Json::from(text))).collect();
            wrapped("$binary", Json::Object(inner))
        }
        Value::Array(items) => Json::Array(items.iter().map(json_of).collect()),
        Value::Object(members) => Json::Object(members.iter().map(|(n, v)| (n.clone(), json_of(v))).collect()),
    }
}

fn json_of_date(t: Timestamp) -> Json {
    /// 10000-01-01T00:00:00Z.
    const END_MS: i64 = 253_402_300_800_000;
    let ms = t.to_units_saturating(Precision::Ms);
    let is_finer = t.0.rem_euclid(Precision::Ms.nanos()) != 0;
    let text = t.to_string();
    if ((0..END_MS).contains(&ms) || is_finer) && text.ends_with('Z') {
        return wrapped("$date", text);
    }
    wrapped("$date", wrapped("$numberLong", ms.to_string()))
}

fn wrapped(key: &str, inner: impl Into<Json>) -> Json {
    Json::Object(std::iter::once((key.to_owned(), inner.into())).collect())
}

/// Turns anything that serialises into a value, by way of JSON: a `u64` beyond int64 is refused, NaN becomes null.
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
