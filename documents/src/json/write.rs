//! From documents to JSON.

use super::BASE64;
use base64::Engine as _;
use bson::raw::{RawArray, RawBinaryRef, RawBsonRef, RawDocument};
use ebbtide_ttl::Timestamp;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Value, json};

/// 10000-01-01T00:00:00Z in milliseconds since the epoch: from then on a date is no RFC 3339 text.
const TEXT_DATE_END_MS: i64 = 253_402_300_800_000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Canonical,
    Relaxed,
}

/// A value that is written in one of the two forms. What cannot be read of it is left out: documents are checked before
/// they are stored.
#[derive(Clone, Copy)]
pub(super) struct Extended<'a> {
    pub(super) value: RawBsonRef<'a>,
    pub(super) form: Form,
}

impl Extended<'_> {
    pub(super) fn to_json(self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    pub(super) fn to_text(self) -> String {
        serde_json::to_string(&self).unwrap_or_default()
    }

    fn object<S: Serializer>(self, document: &RawDocument, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in document.iter().map_while(Result::ok) {
            map.serialize_entry(name.as_str(), &Extended { value, ..self })?;
        }
        map.end()
    }

    fn list<S: Serializer>(self, list: &RawArray, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        for value in list.into_iter().map_while(Result::ok) {
            seq.serialize_element(&Extended { value, ..self })?;
        }
        seq.end()
    }
}

impl Serialize for Extended<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_relaxed = self.form == Form::Relaxed;
        match self.value {
            RawBsonRef::Document(document) => self.object(document, serializer),
            RawBsonRef::Array(list) => self.list(list, serializer),
            RawBsonRef::String(text) => serializer.serialize_str(text),
            RawBsonRef::Boolean(b) => serializer.serialize_bool(b),
            RawBsonRef::Null => serializer.serialize_unit(),
            RawBsonRef::Int32(i) if is_relaxed => serializer.serialize_i32(i),
            RawBsonRef::Int64(i) if is_relaxed => serializer.serialize_i64(i),
            RawBsonRef::Double(d) if is_relaxed && d.is_finite() => serializer.serialize_f64(d),
            RawBsonRef::DateTime(date) if is_relaxed && (0..TEXT_DATE_END_MS).contains(&date.timestamp_millis()) => {
                wrapped(serializer, "$date", &Timestamp::from_millis(date.timestamp_millis()).to_string())
            }
            RawBsonRef::JavaScriptCodeWithScope(code) => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("$code", code.code)?;
                map.serialize_entry("$scope", &Extended { value: RawBsonRef::Document(code.scope), ..*self })?;
                map.end()
            }
            other => scalar(other, serializer),
        }
    }
}

/// A value that both forms write in the same way, as an object with one name.
fn scalar<S: Serializer>(value: RawBsonRef<'_>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        RawBsonRef::Int32(i) => wrapped(serializer, "$numberInt", &i.to_string()),
        RawBsonRef::Int64(i) => wrapped(serializer, "$numberLong", &i.to_string()),
        RawBsonRef::Double(d) => wrapped(serializer, "$numberDouble", &double_text(d)),
        RawBsonRef::Decimal128(d) => wrapped(serializer, "$numberDecimal", &d.to_string()),
        RawBsonRef::DateTime(date) => {
            wrapped(serializer, "$date", &json!({"$numberLong": date.timestamp_millis().to_string()}))
        }
        RawBsonRef::ObjectId(id) => wrapped(serializer, "$oid", &id.to_hex()),
        RawBsonRef::Binary(binary) => wrapped(serializer, "$binary", &binary_content(binary)),
        RawBsonRef::RegularExpression(regex) => {
            let content = json!({"pattern": regex.pattern.as_str(), "options": regex.options.as_str()});
            wrapped(serializer, "$regularExpression", &content)
        }
        RawBsonRef::Timestamp(timestamp) => {
            wrapped(serializer, "$timestamp", &json!({"t": timestamp.time, "i": timestamp.increment}))
        }
        RawBsonRef::Symbol(text) => wrapped(serializer, "$symbol", text),
        RawBsonRef::JavaScriptCode(code) => wrapped(serializer, "$code", code),
        RawBsonRef::MinKey => wrapped(serializer, "$minKey", &1),
        RawBsonRef::MaxKey => wrapped(serializer, "$maxKey", &1),
        RawBsonRef::Undefined => wrapped(serializer, "$undefined", &true),
        RawBsonRef::DbPointer(_) => {
            let (_, namespace, id) = crate::raw::db_pointer(value).unwrap_or_default();
            wrapped(serializer, "$dbPointer", &json!({"$ref": namespace, "$id": {"$oid": id.to_hex()}}))
        }
        // Written before.
        _ => serializer.serialize_unit(),
    }
}

fn wrapped<S: Serializer, T: Serialize + ?Sized>(serializer: S, name: &str, content: &T) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(name, content)?;
    map.end()
}

fn double_text(d: f64) -> String {
    match d {
        _ if d.is_nan() => "NaN".to_owned(),
        _ if d.is_infinite() => if d > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        _ => format!("{d:?}"),
    }
}

fn binary_content(binary: RawBinaryRef<'_>) -> Value {
    json!({"base64": BASE64.encode(binary.bytes), "subType": format!("{:02x}", u8::from(binary.subtype))})
}
