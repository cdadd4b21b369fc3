//! Types and conversions.

use super::arithmetic::{decimal_of, real_of};
use super::{ExpressionError, Result, Value, boolean, is_nothing, is_true, null, type_of};
use crate::Decimal;
use crate::filter::type_named;
use crate::order::{Number, integer_of};
use bson::DateTime;
use bson::oid::ObjectId;
use bson::raw::RawBson;
use bson::spec::ElementType;

fn unsupported(value: &Value, to: &str) -> ExpressionError {
    let from = type_of(value);
    ExpressionError::new(241, format!("Unsupported conversion from {from} to {to} in $convert with no onError value"))
}

fn failed(text: &str, to: &str) -> ExpressionError {
    let shown: String = text.chars().take(80).collect();
    ExpressionError::new(241, format!("Failed to parse {to} '{shown}' in $convert with no onError value"))
}

fn overflow(what: impl std::fmt::Display) -> ExpressionError {
    let message = format!("Conversion would overflow target type in $convert with no onError value: {what}");
    ExpressionError::new(241, message)
}

pub(super) fn type_name(_: &'static str, values: &[Value]) -> Result<Value> {
    Ok(Some(RawBson::String(type_of(&values[0]).to_owned())))
}

pub(super) fn is_number(_: &'static str, values: &[Value]) -> Result<Value> {
    Ok(boolean(values[0].as_ref().is_some_and(|value| Number::of(value.as_raw_bson_ref()).is_some())))
}

pub(super) fn to_bool(_: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) {
        return null();
    }
    Ok(boolean(is_true(&values[0])))
}

/// The whole number of a value, cut off towards zero.
fn truncated(value: &Value, to: &str) -> Result<i64> {
    let Some(given) = value else { return Err(unsupported(value, to)) };
    let out_of_range = || overflow(format_args!("to {to}"));
    match (given, Number::of(given.as_raw_bson_ref())) {
        (_, Some(Number::Int(i))) => Ok(i),
        (_, Some(Number::Decimal(d))) => d.truncate_to_i64().ok_or_else(out_of_range),
        (_, Some(number)) => integer_of(real_of(number).trunc()).ok_or_else(out_of_range),
        (RawBson::Boolean(b), _) => Ok(i64::from(*b)),
        (RawBson::String(text), _) => text.parse().map_err(|_| failed(text, "number")),
        (RawBson::DateTime(date), _) if to == "long" => Ok(date.timestamp_millis()),
        _ => Err(unsupported(value, to)),
    }
}

pub(super) fn to_int(_: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) {
        return null();
    }
    let whole = truncated(&values[0], "int")?;
    match i32::try_from(whole) {
        Ok(narrow) => Ok(Some(RawBson::Int32(narrow))),
        Err(_) => Err(overflow(whole)),
    }
}

pub(super) fn to_long(_: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) {
        return null();
    }
    Ok(Some(RawBson::Int64(truncated(&values[0], "long")?)))
}

pub(super) fn to_double(_: &'static str, values: &[Value]) -> Result<Value> {
    let Some(given) = values[0].as_ref().filter(|_| !is_nothing(&values[0])) else { return null() };
    let double = match (given, Number::of(given.as_raw_bson_ref())) {
        (RawBson::Decimal128(written), Some(Number::Decimal(d))) => {
            real_of_decimal(d).ok_or_else(|| overflow(written))?
        }
        (_, Some(number)) => real_of(number),
        (RawBson::Boolean(b), _) => f64::from(u8::from(*b)),
        (RawBson::String(text), _) => real_of_text(text).ok_or_else(|| failed(text, "number"))?,
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds beyond 2^53 become the nearest double, as in MongoDB"
        )]
        (RawBson::DateTime(date), _) => date.timestamp_millis() as f64,
        _ => return Err(unsupported(&values[0], "double")),
    };
    Ok(Some(RawBson::Double(double)))
}

/// The nearest double; nothing for numbers beyond the greatest and below the least normal double, as in MongoDB.
fn real_of_decimal(decimal: Decimal) -> Option<f64> {
    let number = Number::Decimal(decimal);
    let real = real_of(number);
    let is_kept =
        real.is_normal() || decimal.is_zero() || number.is_nan() || number.compare(Number::Double(real)).is_eq();
    is_kept.then_some(real)
}

/// The number of a text; nothing where there is none, and for numbers as in [`real_of_decimal`].
fn real_of_text(text: &str) -> Option<f64> {
    let real: f64 = text.parse().ok()?;
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    let is_kept = match digits.contains(|c: char| c.is_ascii_digit()) {
        true => real.is_normal() || !digits.contains(|c| matches!(c, '1'..='9')),
        false => true,
    };
    is_kept.then_some(real)
}

pub(super) fn to_date(_: &'static str, values: &[Value]) -> Result<Value> {
    let Some(given) = values[0].as_ref().filter(|_| !is_nothing(&values[0])) else { return null() };
    let millis = match (given, Number::of(given.as_raw_bson_ref())) {
        (RawBson::DateTime(_), _) => return Ok(Some(given.clone())),
        (RawBson::Int32(_), _) => return Err(unsupported(&values[0], "date")),
        (_, Some(_)) => truncated(&values[0], "date")?,
        (RawBson::ObjectId(id), _) => id.timestamp().timestamp_millis(),
        (RawBson::Timestamp(stamp), _) => i64::from(stamp.time) * 1000,
        (RawBson::String(text), _) => super::date::millis_of_text(text).ok_or_else(|| failed(text, "date"))?,
        _ => return Err(unsupported(&values[0], "date")),
    };
    Ok(Some(RawBson::DateTime(DateTime::from_millis(millis))))
}

pub(super) fn to_text(_: &'static str, values: &[Value]) -> Result<Value> {
    let Some(given) = values[0].as_ref().filter(|_| !is_nothing(&values[0])) else { return null() };
    let text = match given {
        RawBson::String(text) => text.clone(),
        RawBson::Boolean(b) => b.to_string(),
        RawBson::Int32(i) => i.to_string(),
        RawBson::Int64(i) => i.to_string(),
        RawBson::Double(d) => super::text::double_text(*d),
        RawBson::Decimal128(d) => d.to_string(),
        RawBson::ObjectId(id) => id.to_hex(),
        RawBson::DateTime(date) => super::date::iso(*date)?,
        _ => return Err(unsupported(&values[0], "string")),
    };
    Ok(Some(RawBson::String(text)))
}

pub(super) fn to_decimal(_: &'static str, values: &[Value]) -> Result<Value> {
    let Some(given) = values[0].as_ref().filter(|_| !is_nothing(&values[0])) else { return null() };
    let decimal = match (given, Number::of(given.as_raw_bson_ref())) {
        (RawBson::Decimal128(_), _) => return Ok(Some(given.clone())),
        (_, Some(number)) => decimal_of(number),
        (RawBson::Boolean(b), _) => Decimal::from_i64(i64::from(*b)),
        (RawBson::DateTime(date), _) => Decimal::from_i64(date.timestamp_millis()),
        (RawBson::String(text), _) => Decimal::parse(text).ok_or_else(|| failed(text, "number"))?,
        _ => return Err(unsupported(&values[0], "decimal")),
    };
    Ok(Some(RawBson::Decimal128(decimal.encode())))
}

pub(super) fn to_object_id(_: &'static str, values: &[Value]) -> Result<Value> {
    match &values[0] {
        value if is_nothing(value) => null(),
        Some(RawBson::ObjectId(id)) => Ok(Some(RawBson::ObjectId(*id))),
        Some(RawBson::String(text)) => match ObjectId::parse_str(text) {
            Ok(id) => Ok(Some(RawBson::ObjectId(id))),
            Err(_) => Err(failed(text, "objectId")),
        },
        value => Err(unsupported(value, "objectId")),
    }
}

/// The type that the `to` of `$convert` names. Nothing for the type of what is missing, to which nothing can be converted.
fn target(to: &RawBson) -> Result<Option<ElementType>> {
    let wrong = |what: String| ExpressionError::new(9, what);
    let known = || type_named(to.as_raw_bson_ref());
    match (to, Number::of(to.as_raw_bson_ref()).map(Number::to_i64)) {
        (RawBson::String(name), _) if name == "missing" => Ok(None),
        (RawBson::String(name), _) => {
            let unknown = || ExpressionError::new(2, format!("Unknown type name: {name}"));
            known().map(Some).ok_or_else(unknown)
        }
        (_, Some(Some(0))) => Ok(None),
        (_, Some(Some(code))) if i32::try_from(code).is_ok() => known().map(Some).ok_or_else(|| {
            wrong(format!("In $convert, numeric value for 'to' does not correspond to a BSON type: {code}"))
        }),
        (_, Some(_)) => Err(wrong("In $convert, numeric 'to' argument is not an integer".to_owned())),
        _ => {
            let found = crate::raw::type_name(to.as_raw_bson_ref());
            Err(wrong(format!("$convert's 'to' argument must be a string or number, but is {found}")))
        }
    }
}

/// `$convert`, without what stands for a value that is missing or cannot be converted.
pub(super) fn convert(name: &'static str, values: &[Value]) -> Result<Value> {
    let [given, to] = values else { return null() };
    let target = match to {
        Some(to) if !matches!(to, RawBson::Null | RawBson::Undefined) => target(to)?,
        _ => return null(),
    };
    if is_nothing(given) {
        return null();
    }
    let run: fn(&'static str, &[Value]) -> Result<Value> = match target {
        Some(ElementType::Double) => to_double,
        Some(ElementType::String) => to_text,
        Some(ElementType::ObjectId) => to_object_id,
        Some(ElementType::Boolean) => to_bool,
        Some(ElementType::DateTime) => to_date,
        Some(ElementType::Int32) => to_int,
        Some(ElementType::Int64) => to_long,
        Some(ElementType::Decimal128) => to_decimal,
        _ => {
            let named = to.as_ref().map(|to| crate::json::relaxed_value_text(to.as_raw_bson_ref()));
            return Err(unsupported(given, &format!("the type {}", named.unwrap_or_default())));
        }
    };
    run(name, std::slice::from_ref(given))
}
