//! Values of parameters, in the text and in the binary form of PostgreSQL's types.

use super::error::{FEATURE_NOT_SUPPORTED, INVALID_BINARY, INVALID_TEXT, LIMIT_EXCEEDED, Refusal};
use super::lexer::{Token, tokens};
use crate::sql::Sql;
use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array,
    IntervalMonthDayNanoArray, ListArray, StringArray, TimestampMicrosecondArray, new_empty_array, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use pgwire::api::Type;
use postgres_types::Kind;
use std::collections::BTreeSet;
use std::ops::Range;
use std::str::from_utf8;
use std::sync::Arc;

/// Microseconds, and days, from 1970 to 2000, which PostgreSQL counts from.
pub(super) const EPOCH_MICROS: i64 = 946_684_800_000_000;
const EPOCH_DAYS: i32 = 10_957;
/// Parameters of a statement at most: a message counts them in two bytes.
const PARAMETERS_MAX: usize = 65_535;
/// Items of an array at most.
const ITEMS_MAX: i32 = 100_000;
/// Digits of a decimal at most.
const DECIMAL_DIGITS: usize = 38;

/// A parameter of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parameter {
    /// Its type as the client knows it.
    pub(super) kind: Type,
    /// Its type in the statement, if that is known and the client has not named one.
    pub(super) inferred: Option<DataType>,
    /// The type of its items, if it is a list of a statement that writes, or the client has named it as one and the statement leaves
    /// it open. Texts of other lists are read by the statement.
    pub(super) items: Option<DataType>,
}

impl Parameter {
    /// Of a type that the client named, or of that in the statement, which may write, or text.
    pub(super) fn new(named: u32, inferred: Option<&DataType>, writes: bool) -> Result<Parameter, Refusal> {
        let items = match inferred {
            Some(DataType::List(item)) if writes => Some(match item.data_type() {
                DataType::Dictionary(_, value) => value.as_ref().clone(),
                kind => kind.clone(),
            }),
            _ => None,
        };
        // The text of an array has no objects and lists in it.
        let items = items.filter(|kind| !kind.is_nested());
        if named != 0 && named != Type::UNKNOWN.oid() {
            let what =
                || Refusal::new(FEATURE_NOT_SUPPORTED, format!("a parameter of the type with the number {named}"));
            let named = Parameter::named(Type::from_oid(named).ok_or_else(what)?);
            let open = if inferred.is_none() { named.items_in_text() } else { None };
            return Ok(Parameter { items: items.or(open), ..named });
        }
        let kind = inferred.and_then(|kind| arrow_pg::datatypes::into_pg_type(kind).ok());
        let kind = kind.filter(|kind| *kind != Type::UNKNOWN && kind.oid() != Type::RECORD.oid());
        Ok(Parameter { kind: kind.unwrap_or(Type::TEXT), inferred: inferred.cloned(), items })
    }

    /// Of a type that the client named.
    fn named(kind: Type) -> Parameter {
        Parameter { kind, inferred: None, items: None }
    }

    /// The type of the items of a list in text form, if each has the same.
    fn items_in_text(&self) -> Option<DataType> {
        let Kind::Array(item) = self.kind.kind() else { return None };
        match *item {
            Type::BOOL => Some(DataType::Boolean),
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UUID => Some(DataType::Utf8),
            // Each has a scale of its own.
            Type::NUMERIC => None,
            _ => Parameter::named(item.clone()).arrow(),
        }
    }

    /// The list that a text stands for, if the parameter has [items](Self::items). Otherwise it would be stored as the text.
    pub(super) fn listed(&self, value: ArrayRef, sql: &dyn Sql) -> Result<ArrayRef, Refusal> {
        let Some(items) = &self.items else { return Ok(value) };
        let text = value.as_any().downcast_ref::<StringArray>().filter(|text| text.is_valid(0));
        match text.map(|text| sql.list(text.value(0), items)) {
            Some(list) => Ok(list?),
            None => Ok(value),
        }
    }

    /// The value of parameter `number`, as an array of one.
    pub(super) fn value(&self, number: usize, bytes: Option<&[u8]>, is_binary: bool) -> Result<ArrayRef, Refusal> {
        let Some(bytes) = bytes else {
            return Ok(new_null_array(self.inferred.as_ref().unwrap_or(&DataType::Null), 1));
        };
        let said =
            |refusal: Refusal| Refusal { message: format!("parameter ${number}: {}", refusal.message), ..refusal };
        let array = if is_binary { self.of_binary(bytes) } else { self.of_text(bytes) };
        array.map_err(said)
    }

    fn of_text(&self, bytes: &[u8]) -> Result<ArrayRef, Refusal> {
        let text = from_utf8(bytes).map_err(|_| Refusal::new(INVALID_TEXT, "it is not UTF-8"))?;
        let wrong = || {
            let shown: String = text.chars().take(60).collect();
            Refusal::new(INVALID_TEXT, format!("invalid input syntax for type {}: \"{shown}\"", self.kind.name()))
        };
        if self.kind == Type::BYTEA {
            let bytes = text.strip_prefix("\\x").and_then(unhex).ok_or_else(wrong)?;
            return Ok(Arc::new(BinaryArray::from_vec(vec![&bytes])));
        }
        if self.kind == Type::BOOL {
            let value = match text.trim().to_ascii_lowercase().as_str() {
                "t" | "true" | "y" | "yes" | "on" | "1" => true,
                "f" | "false" | "n" | "no" | "off" | "0" => false,
                _ => return Err(wrong()),
            };
            return Ok(Arc::new(BooleanArray::from(vec![value])));
        }
        let midnight = self.midnight(text);
        let text: ArrayRef = Arc::new(StringArray::from(vec![midnight.as_deref().unwrap_or(text)]));
        let Some(kind) = self.inferred.clone().or_else(|| self.arrow()) else { return Ok(text) };
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        match &kind {
            DataType::Decimal128(..) if self.inferred.is_none() => decimal(text_of(&text)).ok_or_else(wrong),
            // Texts of arrays are read with the type of their items in the statement.
            kind if !kind.is_nested() && arrow::compute::can_cast_types(&DataType::Utf8, kind) => {
                cast_with_options(&text, kind, &strict).map_err(|_| wrong())
            }
            _ => Ok(text),
        }
    }

    /// A date that is sent as a time, with midnight: JDBC sends `2024-01-02 +00` for a `java.sql.Date`.
    fn midnight(&self, text: &str) -> Option<String> {
        let is_time = [Type::TIMESTAMP, Type::TIMESTAMPTZ].contains(&self.kind);
        let (date, zone) = text.trim().split_at_checked(10).filter(|(_, zone)| is_time && !zone.contains(':'))?;
        let is_zone = zone.trim_start().is_empty() || zone.trim_start().starts_with(['+', '-', 'Z']);
        is_zone.then(|| format!("{date} 00:00:00{}", zone.trim_start()))
    }

    /// The type that a value of a type that the client named becomes; nothing for text.
    fn arrow(&self) -> Option<DataType> {
        let kind = &self.kind;
        let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        Some(match *kind {
            Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => DataType::Int64,
            Type::FLOAT4 => DataType::Float32,
            Type::FLOAT8 => DataType::Float64,
            Type::NUMERIC => DataType::Decimal128(38, 0),
            Type::DATE => DataType::Date32,
            Type::TIMESTAMP => micros(None),
            Type::TIMESTAMPTZ => micros(Some("UTC")),
            Type::INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
            _ => return None,
        })
    }

    fn of_binary(&self, bytes: &[u8]) -> Result<ArrayRef, Refusal> {
        let name = self.kind.name();
        let wrong =
            || Refusal::new(INVALID_BINARY, format!("invalid binary value for type {name}, of {} bytes", bytes.len()));
        let text = |bytes: &[u8]| -> Result<ArrayRef, Refusal> {
            let text = from_utf8(bytes).map_err(|_| Refusal::new(INVALID_TEXT, "it is not UTF-8"))?;
            Ok(Arc::new(StringArray::from(vec![text])))
        };
        fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.try_into().ok()
        }
        let long = || fixed(bytes).map(i64::from_be_bytes).ok_or_else(wrong);
        let whole = |value: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![value])) };
        let micros = || -> Result<_, Refusal> {
            let micros = long()?.checked_add(EPOCH_MICROS).ok_or_else(wrong)?;
            Ok(TimestampMicrosecondArray::from(vec![micros]))
        };
        if let Kind::Array(item) = self.kind.kind() {
            return list(item, bytes)?.ok_or_else(wrong);
        }
        Ok(match self.kind {
            Type::BOOL => Arc::new(BooleanArray::from(vec![fixed::<1>(bytes).ok_or_else(wrong)?[0] != 0])),
            Type::INT2 => whole(fixed(bytes).map(i16::from_be_bytes).ok_or_else(wrong)?.into()),
            Type::INT4 => whole(fixed(bytes).map(i32::from_be_bytes).ok_or_else(wrong)?.into()),
            Type::OID => whole(fixed(bytes).map(u32::from_be_bytes).ok_or_else(wrong)?.into()),
            Type::INT8 => whole(long()?),
            Type::FLOAT4 => Arc::new(Float32Array::from(vec![fixed(bytes).map(f32::from_be_bytes).ok_or_else(wrong)?])),
            Type::FLOAT8 => Arc::new(Float64Array::from(vec![fixed(bytes).map(f64::from_be_bytes).ok_or_else(wrong)?])),
            Type::TIMESTAMP => Arc::new(micros()?),
            Type::TIMESTAMPTZ => Arc::new(micros()?.with_timezone("UTC")),
            Type::DATE => {
                let days = fixed(bytes).map(i32::from_be_bytes).and_then(|days| days.checked_add(EPOCH_DAYS));
                Arc::new(Date32Array::from(vec![days.ok_or_else(wrong)?]))
            }
            Type::INTERVAL => {
                let (micros, rest) = bytes.split_first_chunk().ok_or_else(wrong)?;
                let (days, months) = rest.split_first_chunk().ok_or_else(wrong)?;
                let nanos = i64::from_be_bytes(*micros).checked_mul(1000).ok_or_else(wrong)?;
                let months = fixed(months).map(i32::from_be_bytes).ok_or_else(wrong)?;
                let interval = IntervalMonthDayNano::new(months, i32::from_be_bytes(*days), nanos);
                Arc::new(IntervalMonthDayNanoArray::from(vec![interval]))
            }
            Type::BYTEA => Arc::new(BinaryArray::from_vec(vec![bytes])),
            Type::NUMERIC => numeric(bytes).as_deref().and_then(decimal).ok_or_else(wrong)?,
            Type::JSONB => text(bytes.strip_prefix(&[1]).ok_or_else(wrong)?)?,
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::JSON | Type::UNKNOWN => text(bytes)?,
            Type::UUID => {
                let bytes = fixed::<16>(bytes).ok_or_else(wrong)?;
                let part = |of: Range<usize>| bytes[of].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                let parts = [part(0..4), part(4..6), part(6..8), part(8..10), part(10..16)];
                text(parts.join("-").as_bytes())?
            }
            Type::TIME => {
                let micros = u64::try_from(long()?).map_err(|_| wrong())?;
                let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
                let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
                text(format!("{hour:02}:{minute:02}:{second:02}.{rest:06}").as_bytes())?
            }
            _ => {
                let what = format!("values of type {name} are not known in binary form: send text");
                return Err(Refusal::new(FEATURE_NOT_SUPPORTED, what));
            }
        })
    }
}

/// An array of one dimension: the number of dimensions, whether there are nulls, the type of the items, their number, the number
/// of the first one, and the items with their lengths.
fn list(item: &Type, bytes: &[u8]) -> Result<Option<ArrayRef>, Refusal> {
    let item = Parameter::named(item.clone());
    let mut rest = bytes;
    let mut next = || -> Option<i32> {
        let (number, after) = rest.split_first_chunk()?;
        rest = after;
        Some(i32::from_be_bytes(*number))
    };
    let (Some(dimensions), Some(_nulls), Some(_kind)) = (next(), next(), next()) else { return Ok(None) };
    // Nothing for null.
    let mut items: Vec<Option<ArrayRef>> = Vec::new();
    match dimensions {
        0 => {}
        1 => {
            let (Some(count), Some(_first)) = (next(), next()) else { return Ok(None) };
            if count > ITEMS_MAX {
                let what = format!("an array of {count} items, above the limit of {ITEMS_MAX}");
                return Err(Refusal::new(LIMIT_EXCEEDED, what));
            }
            for _ in 0..count {
                let Some((length, after)) = rest.split_first_chunk() else { return Ok(None) };
                let (value, after) = match usize::try_from(i32::from_be_bytes(*length)) {
                    Err(_) => (None, after),
                    Ok(length) => {
                        let Some((value, after)) = after.split_at_checked(length) else { return Ok(None) };
                        (Some(item.of_binary(value)?), after)
                    }
                };
                items.push(value);
                rest = after;
            }
        }
        _ => return Err(Refusal::new(FEATURE_NOT_SUPPORTED, "an array of more than one dimension")),
    }
    if !rest.is_empty() {
        return Ok(None);
    }
    let kind = match item.kind {
        Type::BOOL => DataType::Boolean,
        Type::BYTEA => DataType::Binary,
        Type::NUMERIC => numeric_kind(items.iter().flatten().map(|item| item.data_type())),
        _ => item.arrow().unwrap_or(DataType::Utf8),
    };
    let exactly = CastOptions { safe: false, ..CastOptions::default() };
    let typed = |value: &Option<ArrayRef>| match value {
        Some(value) => Ok(cast_with_options(value, &kind, &exactly)?),
        None => Ok(new_null_array(&kind, 1)),
    };
    let items = items.iter().map(typed).collect::<Result<Vec<_>, Refusal>>()?;
    let items = std::iter::once(new_empty_array(&kind)).chain(items).collect::<Vec<_>>();
    let items = concat(&items.iter().map(AsRef::as_ref).collect::<Vec<_>>())?;
    let field = Arc::new(Field::new_list_field(kind, true));
    Ok(Some(Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([items.len()]), items, None))))
}

/// The type that has all of these numbers: decimals with the most digits after the point, or doubles if one of them is one.
fn numeric_kind<'a>(mut kinds: impl Iterator<Item = &'a DataType>) -> DataType {
    let scale = kinds.try_fold(0, |most, kind| match kind {
        DataType::Decimal128(_, scale) => Some(most.max(*scale)),
        _ => None,
    });
    scale.map_or(DataType::Float64, |scale| DataType::Decimal128(DECIMAL_DIGITS as u8, scale))
}

/// The types of parameters: those that the client has named, and those to which a statement casts them, by `$1::type` or
/// `CAST($1 AS type)` where they occur first; 0 for others.
pub(super) fn named(text: &str, mut named: Vec<u32>) -> Vec<u32> {
    if !text.contains('$') {
        return named;
    }
    let tokens: Vec<Token<'_>> = tokens(text).map(|(_, token, _)| token).collect();
    let mut seen = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let Token::Word(word) = token else { continue };
        let number = word.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let Some(number) = number.filter(|number| (1..=PARAMETERS_MAX).contains(number) && seen.insert(*number)) else {
            continue;
        };
        let kind = match &tokens[at + 1..] {
            [Token::Sign(':'), Token::Sign(':'), kind @ ..] => kind,
            [word, kind @ ..] if word.is("as") && at > 1 && tokens[at - 2].is("cast") => kind,
            _ => continue,
        };
        if let Some(kind) = named_type(kind) {
            named.resize(named.len().max(number), 0);
            if [0, Type::UNKNOWN.oid()].contains(&named[number - 1]) {
                named[number - 1] = kind.oid();
            }
        }
    }
    named
}

/// The type that these words begin with, if values of it are read in both forms.
fn named_type(words: &[Token<'_>]) -> Option<Type> {
    let (Token::Word(first), rest) = words.split_first()? else { return None };
    let is = |token: Option<&Token<'_>>, word: &str| token.is_some_and(|token| token.is(word));
    let (kind, array) = match first.to_ascii_lowercase().as_str() {
        "int2" | "smallint" => (Type::INT2, Type::INT2_ARRAY),
        "int4" | "int" | "integer" => (Type::INT4, Type::INT4_ARRAY),
        "int8" | "bigint" => (Type::INT8, Type::INT8_ARRAY),
        "oid" => (Type::OID, Type::OID_ARRAY),
        "float4" | "real" => (Type::FLOAT4, Type::FLOAT4_ARRAY),
        "float8" => (Type::FLOAT8, Type::FLOAT8_ARRAY),
        "double" if is(rest.first(), "precision") => (Type::FLOAT8, Type::UNKNOWN),
        "bool" | "boolean" => (Type::BOOL, Type::BOOL_ARRAY),
        "text" => (Type::TEXT, Type::TEXT_ARRAY),
        "date" => (Type::DATE, Type::DATE_ARRAY),
        "timestamptz" => (Type::TIMESTAMPTZ, Type::TIMESTAMPTZ_ARRAY),
        "timestamp" => match rest {
            [with, time, zone, ..] if with.is("with") && time.is("time") && zone.is("zone") => {
                (Type::TIMESTAMPTZ, Type::UNKNOWN)
            }
            [Token::Sign('('), ..] => return None,
            _ => (Type::TIMESTAMP, Type::TIMESTAMP_ARRAY),
        },
        "numeric" | "decimal" => (Type::NUMERIC, Type::UNKNOWN),
        "interval" => (Type::INTERVAL, Type::INTERVAL_ARRAY),
        _ => return None,
    };
    let kind = if rest.first() == Some(&Token::Sign('[')) { array } else { kind };
    (kind != Type::UNKNOWN).then_some(kind)
}

fn text_of(array: &ArrayRef) -> &str {
    array.as_any().downcast_ref::<StringArray>().map_or("", |array| array.value(0))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok()).collect()
}

/// A decimal, or a floating-point number if it has too many digits or is none.
fn decimal(text: &str) -> Option<ArrayRef> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let count = digits.trim_start_matches(['-', '+']).len();
    if (1..=DECIMAL_DIGITS).contains(&count)
        && !fraction.starts_with(['-', '+'])
        && let (Ok(value), Ok(scale)) = (digits.parse::<i128>(), i8::try_from(fraction.len()))
    {
        let array = Decimal128Array::from(vec![value]).with_precision_and_scale(DECIMAL_DIGITS as u8, scale).ok()?;
        return Some(Arc::new(array));
    }
    Some(Arc::new(Float64Array::from(vec![text.trim().parse::<f64>().ok()?])))
}

/// The digits of a number in PostgreSQL's binary form: groups of four, and where the point is.
fn numeric(bytes: &[u8]) -> Option<String> {
    let (head, groups) = bytes.split_at_checked(8)?;
    let short = |at: usize| Some(i16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let (count, weight, sign, scale) = (short(0)?, short(2)?, short(4)? as u16, short(6)?);
    let (count, scale) = (usize::try_from(count).ok()?, usize::try_from(scale).ok()?);
    match sign {
        0xC000 => return Some("NaN".to_owned()),
        0xD000 => return Some("inf".to_owned()),
        0xF000 => return Some("-inf".to_owned()),
        _ => {}
    }
    if groups.len() != count * 2 {
        return None;
    }
    let group = |place: i32| {
        // Groups count down from the weight of the first one.
        let at = usize::try_from(i32::from(weight) - place).ok().filter(|at| *at < count);
        at.map_or(0, |at| u16::from_be_bytes([groups[2 * at], groups[2 * at + 1]]))
    };
    let mut text = if sign == 0x4000 { "-".to_owned() } else { String::new() };
    let whole: String = (0..=i32::from(weight)).rev().map(|place| format!("{:04}", group(place))).collect();
    let whole = whole.trim_start_matches('0');
    text.push_str(if whole.is_empty() { "0" } else { whole });
    if scale > 0 {
        let places = i32::try_from(scale.div_ceil(4)).ok()?;
        let fraction: String = (1..=places).map(|place| format!("{:04}", group(-place))).collect();
        text.push('.');
        text.push_str(fraction.get(..scale)?);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::util::display::array_value_to_string;

    fn shown(kind: Type, bytes: &[u8], is_binary: bool) -> Result<String, &'static str> {
        let parameter = Parameter::named(kind);
        let value = parameter.value(1, Some(bytes), is_binary).map_err(|refusal| refusal.state)?;
        Ok(format!("{} {}", value.data_type(), array_value_to_string(&value, 0).unwrap()))
    }

    #[test]
    fn values_in_binary_form_are_read() {
        for (kind, bytes, expected) in [
            (Type::BOOL, &[1][..], "Boolean true"),
            (Type::INT2, &(-2_i16).to_be_bytes(), "Int64 -2"),
            (Type::INT8, &i64::MIN.to_be_bytes(), "Int64 -9223372036854775808"),
            (Type::FLOAT8, &0.1_f64.to_be_bytes(), "Float64 0.1"),
            (Type::DATE, &1_i32.to_be_bytes(), "Date32 2000-01-02"),
            (Type::TIMESTAMPTZ, &1_i64.to_be_bytes(), "Timestamp(µs, \"UTC\") 2000-01-01T00:00:00.000001Z"),
            (Type::TEXT, b"it's", "Utf8 it's"),
            (Type::JSONB, b"\x01{}", "Utf8 {}"),
            (Type::BYTEA, &[0, 255], "Binary 00ff"),
            (
                Type::INTERVAL,
                &[&3_000_000_i64.to_be_bytes()[..], &2_i32.to_be_bytes(), &1_i32.to_be_bytes()].concat(),
                "Interval(MonthDayNano) 1 mons 2 days 3.000000000 secs",
            ),
            // 12345.678: groups 1, 2345, 6780.
            (Type::NUMERIC, &[0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 9, 41, 26, 124], "Decimal128(38, 3) 12345.678"),
            // -0.0001
            (Type::NUMERIC, &[0, 1, 255, 255, 64, 0, 0, 4, 0, 1], "Decimal128(38, 4) -0.0001"),
            (Type::NUMERIC, &[0, 0, 0, 0, 0, 0, 0, 0], "Decimal128(38, 0) 0"),
            (Type::NUMERIC, &[0, 0, 0, 0, 192, 0, 0, 0], "Float64 NaN"),
        ] {
            assert_eq!(shown(kind.clone(), bytes, true).as_deref(), Ok(expected), "{kind}");
        }
        let time = (12 * 3600 * 1_000_000_i64 + 1).to_be_bytes();
        assert_eq!(shown(Type::TIME, &time, true).as_deref(), Ok("Utf8 12:00:00.000001"));
        let uuid: Vec<u8> = (0..16).collect();
        let expected = "Utf8 00010203-0405-0607-0809-0a0b0c0d0e0f";
        assert_eq!(shown(Type::UUID, &uuid, true).as_deref(), Ok(expected));
        // One dimension, with nulls, of int4, two items from 1 on.
        let head = [1, 1, 23, 2, 1].map(i32::to_be_bytes).concat();
        let items = [&4_i32.to_be_bytes()[..], &7_i32.to_be_bytes(), &(-1_i32).to_be_bytes()].concat();
        let list = |bytes: &[u8]| {
            let parameter = Parameter::named(Type::INT4_ARRAY);
            let value = parameter.value(1, Some(bytes), true).map_err(|refusal| refusal.state)?;
            Ok(array_value_to_string(&value, 0).unwrap())
        };
        assert_eq!(list(&[head.clone(), items.clone()].concat()), Ok("[7, ]".to_owned()));
        assert_eq!(list(&[0, 0, 23].map(i32::to_be_bytes).concat()), Ok("[]".to_owned()));
        assert_eq!(list(&[head.clone(), items[..9].to_vec()].concat()), Err(INVALID_BINARY));
        assert_eq!(list(&[head, items, vec![0]].concat()), Err(INVALID_BINARY));
        for (kind, bytes) in [
            (Type::INT8, &[0; 4][..]),
            (Type::NUMERIC, &[0, 9]),
            (Type::BOOL, &[]),
            (Type::TIMESTAMP, &i64::MAX.to_be_bytes()),
        ] {
            assert_eq!(shown(kind.clone(), bytes, true), Err(INVALID_BINARY), "{kind}");
        }
        assert_eq!(shown(Type::POINT, &[], true), Err(FEATURE_NOT_SUPPORTED));
    }

    #[test]
    fn values_in_text_form_are_read() {
        for (kind, text, expected) in [
            (Type::INT4, "-7", "Int64 -7"),
            (Type::BOOL, "T", "Boolean true"),
            (Type::FLOAT8, "NaN", "Float64 NaN"),
            (Type::NUMERIC, "-1.50", "Decimal128(38, 2) -1.50"),
            (Type::NUMERIC, "1e3", "Float64 1000.0"),
            (Type::TIMESTAMPTZ, "2024-01-02 03:04:05.5+01", "Timestamp(µs, \"UTC\") 2024-01-02T02:04:05.500Z"),
            (Type::TIMESTAMPTZ, "2013-06-01 +00", "Timestamp(µs, \"UTC\") 2013-06-01T00:00:00Z"),
            (Type::TIMESTAMP, "2013-06-01", "Timestamp(µs) 2013-06-01T00:00:00"),
            (
                Type::INTERVAL,
                "0 years 0 mons 1 days 2 hours 0 mins 0.5 secs",
                "Interval(MonthDayNano) 1 days 2 hours 0.500000000 secs",
            ),
            (Type::TEXT_ARRAY, "{a,b}", "Utf8 {a,b}"),
            (Type::BYTEA, "\\x00fF", "Binary 00ff"),
            (Type::VARCHAR, "7", "Utf8 7"),
        ] {
            assert_eq!(shown(kind.clone(), text.as_bytes(), false).as_deref(), Ok(expected), "{kind}");
        }
        for (kind, text) in [(Type::INT4, "seven"), (Type::BOOL, "2"), (Type::BYTEA, "\\x0"), (Type::DATE, "never")] {
            assert_eq!(shown(kind.clone(), text.as_bytes(), false), Err(INVALID_TEXT), "{kind}");
        }
    }

    #[test]
    fn a_parameter_has_the_type_of_its_cast() {
        let of = |text| named(text, Vec::new());
        assert_eq!(of("SELECT $2::int + 1, $1"), [0, 23]);
        assert_eq!(
            of("SELECT CAST($1 AS timestamp with time zone), $2 :: TIMESTAMP, $3::float8[]"),
            [1184, 1114, 1022]
        );
        assert_eq!(of("SELECT n = $1, $1::int, $2::interval, '$3::int', $4::double precision"), [0, 1186, 0, 701]);
        assert_eq!(of("SELECT 1::int, $0::int, $99999999::int"), [0; 0]);
        assert_eq!(named("SELECT $1::int, $2::oid[]", vec![20]), [20, 1028]);
    }

    #[test]
    fn a_parameter_without_a_type_has_that_of_the_statement() {
        let parameter = Parameter::new(0, Some(&DataType::Int32), false).unwrap();
        assert_eq!(parameter.kind, Type::INT4);
        let value = parameter.value(1, Some(b"5"), false).unwrap();
        assert_eq!(value.data_type(), &DataType::Int32);
        assert_eq!(Parameter::new(0, None, false).unwrap().kind, Type::TEXT);
        let error = parameter.value(2, Some(b"x"), false).unwrap_err();
        assert_eq!(error.message, "parameter $2: invalid input syntax for type int4: \"x\"");
        assert!(parameter.value(1, None, false).unwrap().is_null(0));
    }

    #[test]
    fn a_list_has_the_type_that_the_client_names_where_the_statement_leaves_it_open() {
        let list = DataType::new_list(DataType::Int64, true);
        for (kind, inferred, items) in [
            (Type::FLOAT8_ARRAY, None, Some(DataType::Float64)),
            (Type::TEXT_ARRAY, None, Some(DataType::Utf8)),
            (Type::BOOL_ARRAY, None, Some(DataType::Boolean)),
            (Type::NUMERIC_ARRAY, None, None),
            (Type::INT4_ARRAY, Some(&list), None),
            (Type::INT4, None, None),
        ] {
            assert_eq!(Parameter::new(kind.oid(), inferred, false).unwrap().items, items, "{kind}");
        }
        assert_eq!(Parameter::new(0, Some(&list), false).unwrap().items, None);
        let lists = DataType::new_list(list.clone(), true);
        assert_eq!(Parameter::new(0, Some(&lists), true).unwrap().items, None);
        // A statement that writes gets its values as they are.
        for named in [0, Type::INT4_ARRAY.oid()] {
            assert_eq!(Parameter::new(named, Some(&list), true).unwrap().items, Some(DataType::Int64), "{named}");
        }
    }
}
