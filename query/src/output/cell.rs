//! One cell as text or JSON. Instants are RFC 3339, in the time zone of their column or else in UTC, whatever their unit.

use crate::error::QueryError;
use chrono::{DateTime, Datelike as _, TimeZone as _};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use ebbtide_ttl::{Code, Timestamp};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// The instant in a cell of a timestamp column; `None` for columns of other types. Does not check for null.
#[must_use]
pub fn instant(column: &dyn Array, row: usize) -> Option<Timestamp> {
    let DataType::Timestamp(unit, _) = column.data_type() else { return None };
    let (value, nanos) = match unit {
        TimeUnit::Second => (column.as_primitive::<TimestampSecondType>().value(row), 1_000_000_000),
        TimeUnit::Millisecond => (column.as_primitive::<TimestampMillisecondType>().value(row), 1_000_000),
        TimeUnit::Microsecond => (column.as_primitive::<TimestampMicrosecondType>().value(row), 1_000),
        TimeUnit::Nanosecond => (column.as_primitive::<TimestampNanosecondType>().value(row), 1),
    };
    Some(Timestamp::from_nanos(i128::from(value) * nanos))
}

/// An instant with the offset of a time zone: `2024-07-01T01:00:00+01:00`. `None` where that is UTC, and beyond the years
/// 0 to 9999.
fn local(instant: Timestamp, zone: &str) -> Option<String> {
    let zone: Tz = if matches!(zone, "UTC" | "+00:00") { None } else { zone.parse().ok() }?;
    let utc = instant.to_string();
    let seconds = i64::try_from(instant.nanos().div_euclid(1_000_000_000)).ok()?;
    let local = zone.from_utc_datetime(&DateTime::from_timestamp(seconds, 0)?.naive_utc());
    let fraction = utc.find('.').map_or("", |point| utc[point..].trim_end_matches('Z'));
    let is_common = (0..=9999).contains(&local.year());
    is_common.then(|| format!("{}{fraction}{}", local.format("%Y-%m-%dT%H:%M:%S"), local.format("%:z")))
}

/// A duration for people: `06:00:00`, or `2 days 03:00:00.5`.
pub(crate) fn duration(column: &dyn Array, row: usize) -> Option<String> {
    let DataType::Duration(unit) = column.data_type() else { return None };
    let (value, units) = match unit {
        TimeUnit::Second => (column.as_primitive::<DurationSecondType>().value(row), 1),
        TimeUnit::Millisecond => (column.as_primitive::<DurationMillisecondType>().value(row), 1_000),
        TimeUnit::Microsecond => (column.as_primitive::<DurationMicrosecondType>().value(row), 1_000_000),
        TimeUnit::Nanosecond => (column.as_primitive::<DurationNanosecondType>().value(row), 1_000_000_000),
    };
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    let (seconds, rest) = (value / units, value % units);
    let days = match seconds / 86_400 {
        0 => String::new(),
        1 => "1 day ".to_owned(),
        days => format!("{days} days "),
    };
    let digits = units.ilog10() as usize;
    let part = if rest > 0 { format!(".{rest:0digits$}") } else { String::new() };
    let (hours, minutes, seconds) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    Some(format!("{sign}{days}{hours:02}:{minutes:02}:{seconds:02}{}", part.trim_end_matches('0')))
}

/// The number in a cell of a numeric column, rounded to a double; `None` for null and for columns of other types.
#[expect(clippy::cast_precision_loss, reason = "for drawing")]
#[must_use]
pub fn number(column: &dyn Array, row: usize) -> Option<f64> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Float64 => Some(column.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => Some(f64::from(column.as_primitive::<Float32Type>().value(row))),
        DataType::Int64 => Some(column.as_primitive::<Int64Type>().value(row) as f64),
        DataType::UInt64 => Some(column.as_primitive::<UInt64Type>().value(row) as f64),
        DataType::Int32 => Some(f64::from(column.as_primitive::<Int32Type>().value(row))),
        DataType::UInt32 => Some(f64::from(column.as_primitive::<UInt32Type>().value(row))),
        DataType::Int16 => Some(f64::from(column.as_primitive::<Int16Type>().value(row))),
        DataType::Int8 => Some(f64::from(column.as_primitive::<Int8Type>().value(row))),
        DataType::UInt16 => Some(f64::from(column.as_primitive::<UInt16Type>().value(row))),
        DataType::UInt8 => Some(f64::from(column.as_primitive::<UInt8Type>().value(row))),
        ty if ty.is_decimal() => text(column, row).and_then(|t| t.parse().ok()),
        _ => None,
    }
}

/// A cell as text; `None` for null.
#[must_use]
pub fn text(column: &dyn Array, row: usize) -> Option<String> {
    if column.is_null(row) {
        return None;
    }
    let text = match column.data_type() {
        DataType::Null => return None,
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).to_owned(),
        DataType::Utf8View => column.as_string_view().value(row).to_owned(),
        DataType::Timestamp(_, zone) => {
            let utc = instant(column, row).unwrap_or(Timestamp::from_nanos(0));
            zone.as_deref().and_then(|zone| local(utc, zone)).unwrap_or_else(|| utc.to_string())
        }
        DataType::Float64 => double(column.as_primitive::<Float64Type>().value(row)),
        DataType::Struct(_)
        | DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::Map(..) => json(column, row).to_string(),
        DataType::Dictionary(_, values) if !values.is_string() => {
            return of_dictionary(column, row, values).and_then(|value| text(value.as_ref(), 0));
        }
        _ => display(column, row),
    };
    Some(text)
}

fn double(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-5..1e16).contains(&magnitude) && value.is_finite() {
        format!("{value:e}")
    } else if value.fract() == 0.0 {
        format!("{value:.1}")
    } else {
        value.to_string()
    }
}

fn display(column: &dyn Array, row: usize) -> String {
    match ArrayFormatter::try_new(column, &FormatOptions::default()) {
        Ok(formatter) => formatter.value(row).to_string(),
        Err(error) => error.to_string(),
    }
}

/// A cell as JSON. Numbers that JSON cannot represent become text.
pub(crate) fn json(column: &dyn Array, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    match column.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
        DataType::Int64 => Value::from(column.as_primitive::<Int64Type>().value(row)),
        DataType::UInt64 => Value::from(column.as_primitive::<UInt64Type>().value(row)),
        DataType::Int32 => Value::from(column.as_primitive::<Int32Type>().value(row)),
        DataType::UInt32 => Value::from(column.as_primitive::<UInt32Type>().value(row)),
        DataType::Int16 | DataType::Int8 | DataType::UInt16 | DataType::UInt8 => {
            display(column, row).parse::<i64>().map_or(Value::Null, Value::from)
        }
        DataType::Float64 => float(column.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => {
            display(column, row).parse::<f64>().map_or_else(|_| Value::String(display(column, row)), float)
        }
        ty if ty.is_decimal() => decimal(display(column, row)),
        DataType::Dictionary(_, values) if !values.is_string() => {
            of_dictionary(column, row, values).map_or(Value::Null, |value| json(value.as_ref(), 0))
        }
        DataType::Map(..) => {
            let entries = column.as_map().value(row);
            let name = |at| text(entries.column(0).as_ref(), at).unwrap_or_default();
            Value::Object((0..entries.len()).map(|at| (name(at), json(entries.column(1).as_ref(), at))).collect())
        }
        DataType::Struct(fields) => {
            let object = column.as_struct();
            let members = fields.iter().zip(object.columns()).map(|(f, c)| (f.name().clone(), json(c.as_ref(), row)));
            Value::Object(members.collect())
        }
        DataType::List(_) => items(&column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => items(&column.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => items(&column.as_fixed_size_list().value(row)),
        _ => text(column, row).map_or(Value::Null, Value::String),
    }
}

/// A value of a dictionary, as an array of one.
fn of_dictionary(column: &dyn Array, row: usize, values: &DataType) -> Option<ArrayRef> {
    cast(&column.slice(row, 1), values).ok()
}

/// A decimal as a number, if a reader of JSON gets exactly it from that, and otherwise as text.
fn decimal(digits: String) -> Value {
    if let Ok(whole) = digits.parse::<i64>() {
        return Value::from(whole);
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return Value::from(whole);
    }
    let shortest = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits.as_str(),
    };
    match digits.parse::<f64>() {
        Ok(nearest) if nearest.to_string() == shortest => float(nearest),
        _ => Value::String(digits),
    }
}

fn items(values: &ArrayRef) -> Value {
    Value::Array((0..values.len()).map(|i| json(values.as_ref(), i)).collect())
}

fn float(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number)
}

/// The rows of a batch as JSON objects, keyed by column name.
///
/// # Errors
/// [`Code::BadValue`] if two columns have the same name.
pub fn json_rows(batch: &RecordBatch) -> crate::Result<Vec<Map<String, Value>>> {
    let schema = batch.schema();
    check_names(&schema)?;
    let row = |i: usize| {
        schema.fields().iter().zip(batch.columns()).map(|(f, c)| (f.name().clone(), json(c.as_ref(), i))).collect()
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

/// Refuses columns of the same name.
pub(super) fn check_names(schema: &Schema) -> crate::Result<()> {
    let mut names = HashSet::new();
    match schema.fields().iter().find(|field| !names.insert(field.name())) {
        None => Ok(()),
        Some(field) => {
            let message = format!("two columns are named '{}': give one of them another name with AS", field.name());
            Err(QueryError::new(Code::BadValue, message))
        }
    }
}
