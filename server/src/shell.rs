//! Values as MongoDB's messages write them.

use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use std::fmt::Write;

/// `{ name: value, ... }`.
pub(crate) fn object(document: &RawDocument) -> String {
    let members = document.iter().map_while(Result::ok).map(|(name, inner)| format!("{name}: {}", value(inner)));
    enclosed("{", members.collect(), "}")
}

fn enclosed(open: &str, parts: Vec<String>, close: &str) -> String {
    if parts.is_empty() { format!("{open}{close}") } else { format!("{open} {} {close}", parts.join(", ")) }
}

fn value(value: RawBsonRef<'_>) -> String {
    match value {
        RawBsonRef::Document(inner) => object(inner),
        RawBsonRef::Array(list) => {
            enclosed("[", list.into_iter().map_while(Result::ok).map(self::value).collect(), "]")
        }
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) => format!("{text:?}"),
        RawBsonRef::Int32(number) => number.to_string(),
        RawBsonRef::Int64(number) => number.to_string(),
        RawBsonRef::Double(number) => format!("{number:?}"),
        RawBsonRef::Decimal128(number) => number.to_string(),
        RawBsonRef::Boolean(flag) => flag.to_string(),
        RawBsonRef::Null => "null".to_owned(),
        RawBsonRef::ObjectId(id) => format!("ObjectId('{id}')"),
        RawBsonRef::DateTime(date) => format!("new Date({})", date.timestamp_millis()),
        RawBsonRef::Timestamp(stamp) => format!("Timestamp({}, {})", stamp.time, stamp.increment),
        RawBsonRef::Binary(binary) => {
            let mut digits = String::new();
            for byte in binary.bytes {
                let _ = write!(digits, "{byte:02X}");
            }
            match (binary.subtype, binary.bytes.len()) {
                (BinarySubtype::Uuid, 16) => {
                    let digits = digits.to_lowercase();
                    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part).unwrap_or_default());
                    format!("UUID(\"{}\")", parts.join("-"))
                }
                (subtype, _) => format!("BinData({}, {digits})", u8::from(subtype)),
            }
        }
        RawBsonRef::MinKey => "MinKey".to_owned(),
        RawBsonRef::MaxKey => "MaxKey".to_owned(),
        other => ebbtide_documents::json::relaxed_value_text(other),
    }
}
