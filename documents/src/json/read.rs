//! From JSON to BSON's binary form, in one pass: from text, or from what was parsed before.
//!
//! 1. The depth is limited before a level is entered, so that no text makes the reader overflow its stack.
//! 2. What is refused is named with its path.

use super::{BASE64, DEPTH_MAX, WRAPPERS};
use crate::raw::owned;
use crate::{Code, Result, RuleError};
use base64::Engine as _;
use bson::oid::ObjectId;
use bson::raw::RawBson;
use bson::spec::{BinarySubtype, ElementType};
use bson::{Decimal128, RawDocument, RawDocumentBuf};
use ebbtide_ttl::{Precision, Timestamp, exact_int, inexact_integer, may_be_rounded};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// Reads a value of any type.
pub(super) fn value(json: &Value) -> Result<RawBson> {
    let mut target = Target::default();
    // The value becomes the member without a name of a document.
    let start = target.open();
    let header = target.member("0");
    let read = Reading { target: &mut target, depth: DEPTH_MAX, place: Place::Value }.deserialize(json);
    let kind = read.map_err(|e| target.error(&e))?;
    target.bytes[header] = kind as u8;
    target.close(start).map_err(bad)?;
    let value = RawDocument::from_bytes(&target.bytes).and_then(|document| document.get("0"));
    match value {
        Ok(Some(value)) => Ok(owned(value)),
        Ok(None) => Err(bad("not a BSON value")),
        Err(e) => Err(bad(format!("not a BSON value: {e}"))),
    }
}

/// Reads a document.
pub(super) fn document(json: &Value) -> Result<RawDocumentBuf> {
    let mut target = Target::default();
    let read = Reading { target: &mut target, depth: DEPTH_MAX, place: Place::Document }.deserialize(json);
    read.map_err(|e| target.error(&e))?;
    target.finish()
}

/// Reads a document from its text.
pub(super) fn document_text(text: &[u8]) -> Result<RawDocumentBuf> {
    let mut target = Target::default();
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let reading = Reading { target: &mut target, depth: DEPTH_MAX, place: Place::Document };
    let read = reading.deserialize(&mut deserializer).and_then(|_| deserializer.end());
    read.map_err(|e| target.error(&e))?;
    if target.large
        && let Some(number) = inexact_integer(text)
    {
        return Err(bad(unfit(number)));
    }
    target.finish()
}

/// Why a whole number is refused.
fn unfit(number: impl fmt::Display) -> String {
    format!(
        "the number {number} does not fit int64; write it with a fraction to make it a double, or as $numberDecimal"
    )
}

fn bad(message: impl Into<String>) -> RuleError {
    RuleError::new(Code::BadValue, message)
}

/// What is written, and what went wrong.
#[derive(Default)]
struct Target {
    bytes: Vec<u8>,
    /// The first fault that is not one of JSON itself.
    fault: Option<String>,
    /// Names from the fault outwards.
    trail: Vec<String>,
    /// Whether there was a large double.
    large: bool,
}

impl Target {
    /// Notes a fault, and is the error with which serde goes back to the beginning.
    fn fault<E: serde::de::Error>(&mut self, message: impl Into<String>) -> E {
        self.fault.get_or_insert_with(|| message.into().chars().take(400).collect());
        E::custom("")
    }

    fn error(&mut self, error: &serde_json::Error) -> RuleError {
        let place = self.trail.iter().rev().map(String::as_str).collect::<Vec<_>>().join(".");
        let place = if place.is_empty() { String::new() } else { format!("field '{place}': ") };
        match self.fault.take() {
            Some(fault) => bad(format!("{place}{fault}")),
            None => bad(format!("{place}not a JSON document: {error}")),
        }
    }

    fn finish(self) -> Result<RawDocumentBuf> {
        RawDocumentBuf::from_bytes(self.bytes).map_err(|e| bad(format!("not a BSON document: {e}")))
    }

    /// Begins a document or a list: a length that is not known yet.
    fn open(&mut self) -> usize {
        self.bytes.extend([0; 4]);
        self.bytes.len() - 4
    }

    /// Ends the document or list that began there.
    fn close(&mut self, start: usize) -> std::result::Result<(), String> {
        self.bytes.push(0);
        let length = length_of(self.bytes.len() - start)?;
        self.bytes[start..start + 4].copy_from_slice(&length);
        Ok(())
    }

    /// Begins a member whose type is not known yet: the place of the type.
    fn member(&mut self, name: &str) -> usize {
        self.bytes.push(0);
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.bytes.len() - name.len() - 2
    }

    fn text(&mut self, text: &str) -> std::result::Result<(), String> {
        let length = length_of(text.len() + 1)?;
        self.bytes.extend(length);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        Ok(())
    }
}

fn length_of(bytes: usize) -> std::result::Result<[u8; 4], String> {
    i32::try_from(bytes).map(i32::to_le_bytes).map_err(|_| format!("{bytes} bytes are more than a document has"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The whole document: an object that is no `$`-value.
    Document,
    Value,
}

/// Reads one value, writes it and tells its type.
struct Reading<'t> {
    target: &'t mut Target,
    /// Levels that it may have.
    depth: usize,
    place: Place,
}

impl Reading<'_> {
    /// Checks that a level may be entered.
    fn enter<E: serde::de::Error>(&mut self) -> std::result::Result<usize, E> {
        let message = || format!("nested deeper than {DEPTH_MAX} levels; store it flatter, or as text");
        self.depth.checked_sub(1).ok_or_else(|| self.target.fault(message()))
    }

    fn scalar<E: serde::de::Error>(
        self,
        kind: ElementType,
        bytes: impl AsRef<[u8]>,
    ) -> std::result::Result<ElementType, E> {
        if self.place == Place::Document {
            return Err(self.target.fault("a document must be an object"));
        }
        self.target.bytes.extend(bytes.as_ref());
        Ok(kind)
    }
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = ElementType;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<ElementType, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = ElementType;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> std::result::Result<ElementType, E> {
        self.scalar(ElementType::Null, [])
    }

    fn visit_bool<E: serde::de::Error>(self, b: bool) -> std::result::Result<ElementType, E> {
        self.scalar(ElementType::Boolean, [u8::from(b)])
    }

    fn visit_i64<E: serde::de::Error>(self, i: i64) -> std::result::Result<ElementType, E> {
        self.scalar(ElementType::Int64, i.to_le_bytes())
    }

    #[expect(clippy::cast_precision_loss, reason = "what is lost is looked at")]
    fn visit_u64<E: serde::de::Error>(self, n: u64) -> std::result::Result<ElementType, E> {
        let nearest = n as f64;
        match i64::try_from(n) {
            Ok(i) => self.visit_i64(i),
            // A double of whole value, written without exponent or fraction.
            Err(_) if format!("{nearest:.0}") == n.to_string() => self.visit_f64(nearest),
            Err(_) => Err(self.target.fault(unfit(n))),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, d: f64) -> std::result::Result<ElementType, E> {
        self.target.large |= may_be_rounded(d);
        self.scalar(ElementType::Double, d.to_le_bytes())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<ElementType, E> {
        if self.place == Place::Document {
            return self.scalar(ElementType::String, []);
        }
        match self.target.text(text) {
            Ok(()) => Ok(ElementType::String),
            Err(message) => Err(self.target.fault(message)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> std::result::Result<ElementType, A::Error> {
        if self.place == Place::Document {
            return self.scalar(ElementType::Array, []);
        }
        let depth = self.enter()?;
        let target = self.target;
        let start = target.open();
        for i in 0.. {
            let header = target.member(&i.to_string());
            match seq.next_element_seed(Reading { target: &mut *target, depth, place: Place::Value }) {
                Ok(Some(kind)) => target.bytes[header] = kind as u8,
                Ok(None) => {
                    target.bytes.truncate(header);
                    break;
                }
                Err(e) => {
                    target.trail.push(i.to_string());
                    return Err(e);
                }
            }
        }
        target.close(start).map_err(|message| target.fault(message))?;
        Ok(ElementType::Array)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> std::result::Result<ElementType, A::Error> {
        let start = self.target.open();
        let first = map.next_key_seed(NameReading(self.target))?;
        if let (Some(Name { wrapper: Some(wrapper), .. }), Place::Value) = (first, self.place) {
            self.target.bytes.truncate(start);
            return self.wrapped(wrapper, map);
        }
        let depth = self.enter()?;
        let target = self.target;
        let mut next = first;
        while let Some(name) = next {
            if let Some(wrapper) = name.wrapper {
                let message = match self.place {
                    Place::Document => format!("{wrapper} stands for a value; a document is an object of fields"),
                    Place::Value => format!("{wrapper} must be alone in its object"),
                };
                return Err(target.fault(message));
            }
            match map.next_value_seed(Reading { target: &mut *target, depth, place: Place::Value }) {
                Ok(kind) => target.bytes[name.header] = kind as u8,
                Err(e) => {
                    let text = target.bytes[name.header + 1..].split(|b| *b == 0).next().unwrap_or_default();
                    target.trail.push(String::from_utf8_lossy(text).into_owned());
                    return Err(e);
                }
            }
            next = map.next_key_seed(NameReading(&mut *target))?;
        }
        target.close(start).map_err(|message| target.fault(message))?;
        Ok(ElementType::EmbeddedDocument)
    }
}

/// A member's name that has been written.
#[derive(Clone, Copy)]
struct Name {
    /// Where its type goes.
    header: usize,
    /// The name, if it is one of a `$`-value.
    wrapper: Option<&'static str>,
}

/// Reads a member's name and writes it.
struct NameReading<'t>(&'t mut Target);

impl<'de> DeserializeSeed<'de> for NameReading<'_> {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Name, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameReading<'_> {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> std::result::Result<Name, E> {
        if name.contains('\0') {
            return Err(self.0.fault(format!("the name {name:?} has a zero byte, which a name cannot have")));
        }
        let wrapper = if name.starts_with('$') { WRAPPERS.iter().find(|w| **w == name).copied() } else { None };
        Ok(Name { header: self.0.member(name), wrapper })
    }
}

impl Reading<'_> {
    /// Reads the content of a `$`-value, which must be the only member, and writes the value.
    fn wrapped<'de, A: MapAccess<'de>>(
        self,
        name: &'static str,
        mut map: A,
    ) -> std::result::Result<ElementType, A::Error> {
        if matches!(name, "$code" | "$scope") {
            return self.code(name, map);
        }
        let content: Value = map.next_value()?;
        if let Some(other) = map.next_key::<String>()? {
            return Err(self.target.fault(format!("{name} must be alone in its object; found '{other}' beside it")));
        }
        scalar(self.target, name, &content).map_err(|message| self.target.fault(message))
    }

    /// Reads `{"$code": text}` or `{"$code": text, "$scope": object}`, in any order.
    fn code<'de, A: MapAccess<'de>>(
        self,
        first: &'static str,
        mut map: A,
    ) -> std::result::Result<ElementType, A::Error> {
        let (mut code, mut scope) = (None, None);
        let mut next = Some(first.to_owned());
        while let Some(name) = next {
            match name.as_str() {
                "$code" if code.is_none() => match map.next_value()? {
                    Value::String(text) => code = Some(text),
                    other => return Err(self.target.fault(format!("$code must hold a text, not {other}"))),
                },
                "$scope" if scope.is_none() => {
                    let start = self.target.bytes.len();
                    let reading = Reading { target: &mut *self.target, depth: self.depth, place: Place::Document };
                    map.next_value_seed(reading).inspect_err(|_| self.target.trail.push("$scope".to_owned()))?;
                    scope = Some(self.target.bytes.split_off(start));
                }
                other => {
                    let message = format!("$code stands alone or with a $scope in its object, not with '{other}'");
                    return Err(self.target.fault(message));
                }
            }
            next = map.next_key()?;
        }
        let Some(code) = code else { return Err(self.target.fault("$scope needs a $code beside it")) };
        let written = match scope {
            None => self.target.text(&code).map(|()| ElementType::JavaScriptCode),
            Some(scope) => length_of(4 + 4 + code.len() + 1 + scope.len()).and_then(|length| {
                self.target.bytes.extend(length);
                self.target.text(&code)?;
                self.target.bytes.extend(scope);
                Ok(ElementType::JavaScriptCodeWithScope)
            }),
        };
        written.map_err(|message| self.target.fault(message))
    }
}

/// Writes the value that an object with only this `$`-name stands for.
fn scalar(target: &mut Target, name: &str, content: &Value) -> std::result::Result<ElementType, String> {
    let text = || content.as_str().ok_or_else(|| format!("{name} must hold a text, not {content}"));
    let mut put = |kind: ElementType, bytes: &[u8]| {
        target.bytes.extend(bytes);
        Ok(kind)
    };
    match name {
        "$numberInt" => {
            let text = text()?;
            let i: i32 = text.parse().map_err(|_| format!("$numberInt '{text}' is not a whole number of 32 bits"))?;
            put(ElementType::Int32, &i.to_le_bytes())
        }
        "$numberLong" => put(ElementType::Int64, &long(text()?)?.to_le_bytes()),
        "$numberDouble" => put(ElementType::Double, &double(text()?)?.to_le_bytes()),
        "$numberDecimal" => put(ElementType::Decimal128, &decimal(text()?)?.bytes()),
        "$oid" => put(ElementType::ObjectId, &object_id(text()?)?.bytes()),
        "$date" => put(ElementType::DateTime, &date(content)?.to_le_bytes()),
        "$timestamp" => {
            let (time, increment) = timestamp(content)?;
            put(ElementType::Timestamp, &[increment.to_le_bytes(), time.to_le_bytes()].concat())
        }
        "$uuid" => put(ElementType::Binary, &binary_bytes(BinarySubtype::Uuid, &uuid(text()?)?)?),
        "$binary" => {
            let (subtype, bytes) = binary(content)?;
            put(ElementType::Binary, &binary_bytes(subtype, &bytes)?)
        }
        "$regularExpression" => put(ElementType::RegularExpression, &regex(content)?),
        "$symbol" => target.text(text()?).map(|()| ElementType::Symbol),
        "$dbPointer" => {
            let (namespace, id) = db_pointer(content)?;
            target.text(&namespace)?;
            target.bytes.extend(id.bytes());
            Ok(ElementType::DbPointer)
        }
        "$minKey" if content.as_i64() == Some(1) => Ok(ElementType::MinKey),
        "$maxKey" if content.as_i64() == Some(1) => Ok(ElementType::MaxKey),
        "$undefined" if content.as_bool() == Some(true) => Ok(ElementType::Undefined),
        "$undefined" => Err(format!("$undefined must hold true, not {content}")),
        _ => Err(format!("{name} must hold 1, not {content}")),
    }
}

fn long(text: &str) -> std::result::Result<i64, String> {
    text.parse().map_err(|_| format!("$numberLong '{text}' is not a whole number of 64 bits"))
}

fn double(text: &str) -> std::result::Result<f64, String> {
    match text {
        "NaN" => Ok(f64::NAN),
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        _ => match text.parse::<f64>() {
            // The standard parser also takes words such as "inf", which Extended JSON does not have.
            Ok(d) if d.is_finite() && !text.contains(|c: char| c.is_alphabetic() && !matches!(c, 'e' | 'E')) => Ok(d),
            _ => Err(format!("$numberDouble '{text}' is not a double")),
        },
    }
}

fn decimal(text: &str) -> std::result::Result<Decimal128, String> {
    text.parse().map_err(|_| {
        format!("$numberDecimal '{text}' is not a decimal of at most 34 digits with an exponent of -6176 to 6111")
    })
}

fn object_id(text: &str) -> std::result::Result<ObjectId, String> {
    ObjectId::parse_str(text).map_err(|_| format!("$oid '{text}' must be 24 hexadecimal digits"))
}

/// Milliseconds from a text, a number or a `$numberLong`.
fn date(content: &Value) -> std::result::Result<i64, String> {
    let wrong = || format!("$date must hold an RFC 3339 text or whole milliseconds since 1970, not {content}");
    match content {
        Value::String(text) => Timestamp::parse(text)
            .map_err(|e| format!("$date: {e}"))?
            .to_units(Precision::Ms)
            .ok_or_else(|| format!("$date '{text}' lies outside the milliseconds that 64 bits hold")),
        Value::Number(n) => n.as_i64().or_else(|| n.as_f64().and_then(exact_int)).ok_or_else(wrong),
        Value::Object(members) if members.len() == 1 => {
            let text = members.get("$numberLong").and_then(Value::as_str).ok_or_else(wrong)?;
            long(text)
        }
        _ => Err(wrong()),
    }
}

/// The members with these names, when there are no others.
fn members<'v, const N: usize>(content: &'v Value, names: [&str; N]) -> Option<[Option<&'v Value>; N]> {
    let object = content.as_object()?;
    let is_known = object.keys().all(|name| names.contains(&name.as_str()));
    is_known.then(|| names.map(|name| object.get(name)))
}

fn timestamp(content: &Value) -> std::result::Result<(u32, u32), String> {
    let number = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
    match members(content, ["t", "i"]) {
        Some([Some(t), Some(i)]) => number(t).zip(number(i)),
        _ => None,
    }
    .ok_or_else(|| format!("$timestamp must be {{\"t\": seconds, \"i\": number}} of 32 bits each, not {content}"))
}

fn uuid(text: &str) -> std::result::Result<Vec<u8>, String> {
    let wrong = || format!("$uuid '{text}' must be like 00112233-4455-6677-8899-aabbccddeeff");
    let groups: Vec<&str> = text.split('-').collect();
    if groups.iter().map(|group| group.len()).ne([8, 4, 4, 4, 12]) {
        return Err(wrong());
    }
    let digits: Option<Vec<u8>> =
        groups.concat().chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    Ok(digits.ok_or_else(wrong)?.chunks(2).map(|pair| pair.iter().fold(0, |n, d| n * 16 + d)).collect())
}

fn binary(content: &Value) -> std::result::Result<(BinarySubtype, Vec<u8>), String> {
    let wrong = || format!("$binary must be {{\"base64\": text, \"subType\": \"00\" to \"ff\"}}, not {content}");
    let Some([Some(base64), subtype]) = members(content, ["base64", "subType"]) else { return Err(wrong()) };
    let base64 = base64.as_str().ok_or_else(wrong)?;
    let subtype = match subtype {
        None => "00",
        Some(subtype) => subtype.as_str().filter(|hex| (1..=2).contains(&hex.len())).ok_or_else(wrong)?,
    };
    let subtype = u8::from_str_radix(subtype, 16).map_err(|_| wrong())?;
    let bytes = BASE64.decode(base64).map_err(|_| format!("$binary '{base64}' is not base64"))?;
    Ok((subtype.into(), bytes))
}

/// Length, subtype and data; the old subtype has its length a second time.
fn binary_bytes(subtype: BinarySubtype, data: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let inner = length_of(data.len())?;
    let is_old = subtype == BinarySubtype::BinaryOld;
    let mut bytes = if is_old { length_of(data.len() + 4)? } else { inner }.to_vec();
    bytes.push(subtype.into());
    if is_old {
        bytes.extend(inner);
    }
    bytes.extend(data);
    Ok(bytes)
}

/// Pattern and options, each with a zero.
fn regex(content: &Value) -> std::result::Result<Vec<u8>, String> {
    let parts = match members(content, ["pattern", "options"]) {
        Some([Some(Value::String(pattern)), Some(Value::String(options))]) => Some((pattern, options)),
        _ => None,
    };
    match parts {
        Some((pattern, options)) if !pattern.contains('\0') && !options.contains('\0') => {
            Ok([pattern.as_bytes(), &[0], options.as_bytes(), &[0]].concat())
        }
        Some(_) => Err("$regularExpression has a zero byte, which it cannot have".to_owned()),
        None => Err(format!("$regularExpression must be {{\"pattern\": text, \"options\": text}}, not {content}")),
    }
}

fn db_pointer(content: &Value) -> std::result::Result<(String, ObjectId), String> {
    let parts = match members(content, ["$ref", "$id"]) {
        Some([Some(Value::String(namespace)), Some(id)]) => match members(id, ["$oid"]) {
            Some([Some(Value::String(id))]) => Some((namespace, id)),
            _ => None,
        },
        _ => None,
    };
    let wrong = || format!("$dbPointer must be {{\"$ref\": text, \"$id\": {{\"$oid\": text}}}}, not {content}");
    let (namespace, id) = parts.ok_or_else(wrong)?;
    Ok((namespace.clone(), object_id(id)?))
}
