//! From JSON to values, in one pass: from text, or from what was parsed before.

use super::write::{BASE64, json_of};
use base64::Engine as _;
use ebbtide_ttl::{Name, Timestamp, Value, decimal_fits_double, exact_int, may_be_rounded};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;

/// `$`-keys that represent a value.
const WRAPPERS: [&str; 7] =
    ["$date", "$numberInt", "$numberLong", "$numberDouble", "$numberDecimal", "$oid", "$binary"];

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

/// Values do not nest deeper than this.
pub const DEPTH_MAX: usize = 100;

/// Levels that the content of a `$`-value may have.
const INNER_DEPTH: usize = 2;

/// Reads a value from what serde deserializes. Notes whether there are large doubles in it.
pub(super) fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
    large: &Cell<bool>,
) -> std::result::Result<Value, D::Error> {
    Reading { depth: DEPTH_MAX, inside: false, large }.deserialize(deserializer)
}

/// Reads one value.
#[derive(Clone, Copy)]
struct Reading<'l> {
    /// Levels that it may have.
    depth: usize,
    /// Whether it is the content of a `$`-value.
    inside: bool,
    /// Whether there was a large double.
    large: &'l Cell<bool>,
}

impl<'l> Reading<'l> {
    fn deeper<E: serde::de::Error>(self) -> std::result::Result<Reading<'l>, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Reading { depth, ..self }),
            None if self.inside => {
                Err(E::custom(format!("the content of a $-value nests deeper than {INNER_DEPTH} levels")))
            }
            None => Err(E::custom(format!("a value nests deeper than {DEPTH_MAX} levels"))),
        }
    }

    /// For the content of a `$`-value.
    fn content<E: serde::de::Error>(self) -> std::result::Result<Reading<'l>, E> {
        if self.inside { self.deeper() } else { Ok(Reading { depth: INNER_DEPTH, inside: true, ..self }) }
    }
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, b: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E>(self, i: i64) -> std::result::Result<Value, E> {
        Ok(Value::Int(i))
    }

    #[expect(clippy::cast_precision_loss, reason = "what is lost is looked at")]
    fn visit_u64<E: serde::de::Error>(self, n: u64) -> std::result::Result<Value, E> {
        let nearest = n as f64;
        match i64::try_from(n) {
            Ok(i) => Ok(Value::Int(i)),
            // A double of whole value, written without exponent or fraction.
            Err(_) if format!("{nearest:.0}") == n.to_string() => Ok(Value::Double(nearest)),
            Err(_) => Err(E::custom(unfit(n))),
        }
    }

    fn visit_f64<E>(self, d: f64) -> std::result::Result<Value, E> {
        if may_be_rounded(d) {
            self.large.set(true);
        }
        Ok(Value::Double(d))
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> std::result::Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Value, A::Error> {
        let item = self.deeper()?;
        let mut items = Vec::with_capacity(seq.size_hint().unwrap_or(0).min(1024));
        while let Some(value) = seq.next_element_seed(item)? {
            items.push(value);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let mut members: Vec<(Name, Value)> = Vec::with_capacity(map.size_hint().unwrap_or(0).min(1024));
        let mut wrapper = None;
        while let Some(name) = map.next_key::<Name>()? {
            let special = name.starts_with('$');
            if let Some(foreign) = FOREIGN.iter().find(|foreign| special && **foreign == name) {
                return Err(A::Error::custom(format!(
                    "{foreign} is a type that is not stored; the types are bool, int64, double, string, date, binary, \
                     list and object"
                )));
            }
            let value = match special && WRAPPERS.contains(&name.as_str()) {
                true => {
                    wrapper.get_or_insert(members.len());
                    map.next_value_seed(self.content()?)?
                }
                false => map.next_value_seed(self.deeper()?)?,
            };
            members.push((name, value));
        }
        let Some(at) = wrapper else {
            // The depth counts for an empty one too.
            return self.deeper().map(|_: Reading<'_>| Value::Object(members));
        };
        if members.len() > 1 {
            let names = members.iter().map(|(name, _)| format!("'{name}'")).collect::<Vec<_>>().join(", ");
            let key = &members[at].0;
            return Err(A::Error::custom(format!("{key} must be alone in its object; found {names}")));
        }
        let (key, inner) = members.swap_remove(at);
        if self.inside && key == "$oid" {
            return Err(A::Error::custom("$oid does not stand for the text in another $-value"));
        }
        unwrapped(&key, inner).map_err(A::Error::custom)
    }
}

/// Why a whole number is refused.
pub(super) fn unfit(number: impl fmt::Display) -> String {
    format!("the number {number} does not fit int64; write it with a fraction to make it a double")
}

/// The value that an object with only this `$`-key represents.
fn unwrapped(key: &str, inner: Value) -> Result<Value, String> {
    if key == "$date" {
        return read_date(&inner).map(Value::Date);
    }
    if key == "$binary" {
        return read_binary(&inner).map(Value::Binary);
    }
    let Value::String(text) = inner else {
        return Err(format!("{key} must hold a text, not {}", json_of(&inner)));
    };
    Ok(match key {
        "$numberInt" | "$numberLong" => {
            let i: i64 = text.parse().map_err(|_| format!("{key} '{text}' is not a whole number of 64 bits"))?;
            if key == "$numberInt" && i32::try_from(i).is_err() {
                return Err(format!("$numberInt '{text}' does not fit 32 bits; write $numberLong"));
            }
            Value::Int(i)
        }
        "$numberDouble" => Value::Double(read_double(key, &text)?),
        "$numberDecimal" => Value::Double(read_decimal(&text)?),
        _ => Value::String(text),
    })
}

fn read_date(inner: &Value) -> Result<Timestamp, String> {
    let ms = match inner {
        Value::String(text) => return Timestamp::parse(text).map_err(|e| format!("$date: {e}")),
        Value::Int(ms) => Some(*ms),
        Value::Double(ms) => exact_int(*ms),
        _ => None,
    };
    ms.map(Timestamp::from_millis).ok_or_else(|| {
        let what = "$date must hold an RFC 3339 text or whole milliseconds since 1970, not";
        format!("{what} {}", json_of(inner))
    })
}

fn read_double(key: &str, text: &str) -> Result<f64, String> {
    match text {
        "NaN" => Ok(f64::NAN),
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        _ => match text.parse::<f64>() {
            // The standard parser also takes words such as "inf", which Extended JSON does not have.
            Ok(d) if d.is_finite() && !text.contains(|c: char| c.is_alphabetic() && !matches!(c, 'e' | 'E')) => Ok(d),
            _ => Err(format!("{key} '{text}' is not a double")),
        },
    }
}

fn read_decimal(text: &str) -> Result<f64, String> {
    let d = read_double("$numberDecimal", text)?;
    if !d.is_finite() || decimal_fits_double(text, d) {
        return Ok(d);
    }
    Err(format!("$numberDecimal '{text}' has more digits than a double; decimals are not stored"))
}

fn read_binary(inner: &Value) -> Result<Vec<u8>, String> {
    let wrong = || format!("$binary must be {{\"base64\": text, \"subType\": text}}, not {}", json_of(inner));
    let Value::Object(members) = inner else { return Err(wrong()) };
    let mut base64 = None;
    for (name, member) in members {
        match (name.as_str(), member) {
            ("base64", Value::String(text)) => base64 = Some(text),
            ("subType", Value::String(_)) => {}
            _ => return Err(wrong()),
        }
    }
    let text = base64.ok_or_else(wrong)?;
    BASE64.decode(text).map_err(|_| format!("'{text}' is not base64"))
}
