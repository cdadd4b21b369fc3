//! From values to JSON.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ebbtide_ttl::{Precision, Timestamp, Value};
use serde_json::{Number, Value as Json};

/// The text of `$binary`. Padding may be omitted, as some writers do.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

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
