//! Texts.

use super::list::whole;
use super::{ExpressionError, Result, Value, is_nothing, list, null, type_of};

use bson::raw::{RawArrayBuf, RawBson};
use std::collections::HashSet;

/// Bytes that `$replaceAll` puts into a text.
const REPLACED_BYTES_MAX: usize = 64 << 20;

fn text(value: &Value) -> Option<&str> {
    match value {
        Some(RawBson::String(text) | RawBson::Symbol(text)) => Some(text),
        _ => None,
    }
}

/// A value as a text, as operators on texts take numbers and dates too; nothing for null. Doubles that are not finite have other
/// names here than in `$toString`.
fn coerced(value: &Value) -> Result<String> {
    Ok(match value {
        value if is_nothing(value) => String::new(),
        Some(RawBson::String(text) | RawBson::Symbol(text) | RawBson::JavaScriptCode(text)) => text.clone(),
        Some(RawBson::Int32(i)) => i.to_string(),
        Some(RawBson::Int64(i)) => i.to_string(),
        Some(RawBson::Double(d)) if d.is_nan() => "nan".to_owned(),
        Some(RawBson::Double(d)) if d.is_infinite() => if *d > 0.0 { "inf" } else { "-inf" }.to_owned(),
        Some(RawBson::Double(d)) => double_text(*d),
        Some(RawBson::Decimal128(d)) => d.to_string(),
        Some(RawBson::DateTime(date)) => super::date::iso(*date)?,
        Some(RawBson::Timestamp(stamp)) => super::date::stamp_text(*stamp),
        _ => {
            return Err(ExpressionError::new(
                16007,
                format!("can't convert from BSON type {} to String", type_of(value)),
            ));
        }
    })
}

/// A double as MongoDB writes it: with six digits.
pub(super) fn double_text(d: f64) -> String {
    if d.is_nan() {
        return "NaN".to_owned();
    }
    if d.is_infinite() {
        return if d > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{d:.5e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let trimmed = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    match exponent.parse::<i32>() {
        Ok(exponent @ -4..6) => trimmed(&format!("{d:.*}", usize::try_from(5 - exponent).unwrap_or(0))),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
        }
        Err(_) => scientific,
    }
}

pub(super) fn concat(_: &'static str, values: &[Value]) -> Result<Value> {
    let mut all = String::new();
    for value in values {
        if is_nothing(value) {
            return null();
        }
        let wrong = || ExpressionError::new(16702, format!("$concat only supports strings, not {}", type_of(value)));
        all.push_str(text(value).ok_or_else(wrong)?);
    }
    Ok(Some(RawBson::String(all)))
}

/// `$toLower` and `$toUpper`: of ASCII letters alone, as in MongoDB.
pub(super) fn case(name: &'static str, values: &[Value]) -> Result<Value> {
    let text = coerced(&values[0])?;
    Ok(Some(RawBson::String(if name == "$toLower" { text.to_ascii_lowercase() } else { text.to_ascii_uppercase() })))
}

pub(super) fn compare_caseless(_: &'static str, values: &[Value]) -> Result<Value> {
    let (a, b) = (coerced(&values[0])?.to_ascii_uppercase(), coerced(&values[1])?.to_ascii_uppercase());
    Ok(Some(RawBson::Int32(a.cmp(&b) as i32)))
}

fn count(n: usize) -> Value {
    Some(RawBson::Int32(i32::try_from(n).unwrap_or(i32::MAX)))
}

/// `$strLenCP` and `$strLenBytes`.
pub(super) fn length(name: &'static str, values: &[Value]) -> Result<Value> {
    let code = if name == "$strLenCP" { 34471 } else { 34473 };
    let wrong =
        || ExpressionError::new(code, format!("{name} requires a string argument, found: {}", type_of(&values[0])));
    let text = text(&values[0]).ok_or_else(wrong)?;
    Ok(count(if name == "$strLenCP" { text.chars().count() } else { text.len() }))
}

/// `$substrCP`.
pub(super) fn part(name: &'static str, values: &[Value]) -> Result<Value> {
    let text = coerced(&values[0])?;
    let (start, length) = (whole(name, 34450, &values[1])?, whole(name, 34452, &values[2])?);
    let length = usize::try_from(length)
        .map_err(|_| ExpressionError::new(34454, format!("{name}: length must be a nonnegative integer.")))?;
    let start = usize::try_from(start).map_err(|_| {
        ExpressionError::new(34455, format!("{name}: the starting index must be non-negative integer."))
    })?;
    Ok(Some(RawBson::String(text.chars().skip(start).take(length).collect())))
}

pub(super) fn split(_: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) || is_nothing(&values[1]) {
        return null();
    }
    let wrong = |code, which, value: &Value| {
        ExpressionError::new(
            code,
            format!(
                "$split requires an expression that evaluates to a string as a {which} argument, found: {}",
                type_of(value)
            ),
        )
    };
    let input = text(&values[0]).ok_or_else(|| wrong(40085, "first", &values[0]))?;
    let separator = text(&values[1]).ok_or_else(|| wrong(40086, "second", &values[1]))?;
    if separator.is_empty() {
        return Err(ExpressionError::new(40087, "$split requires a non-empty separator"));
    }
    let mut parts = RawArrayBuf::new();
    input.split(separator).for_each(|part| parts.push(part));
    Ok(Some(RawBson::Array(parts)))
}

/// `$trim`, `$ltrim`, `$rtrim`.
pub(super) fn trim(name: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) || matches!(values[1], None | Some(RawBson::Null)) {
        return null();
    }
    let wrong = |code, what, value: &Value| {
        ExpressionError::new(code, format!("{name} requires {what} to be a string, got {}", type_of(value)))
    };
    let input = text(&values[0]).ok_or_else(|| wrong(50699, "its input", &values[0]))?;
    let chars: Option<HashSet<char>> = match &values[1] {
        Some(RawBson::Undefined) => None,
        chars => Some(text(chars).ok_or_else(|| wrong(50700, "'chars'", chars))?.chars().collect()),
    };
    let is_gone = |c: char| match &chars {
        Some(chars) => chars.contains(&c),
        None => matches!(
            c,
            '\0' | ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}'
        ),
    };
    let trimmed = match name {
        "$ltrim" => input.trim_start_matches(is_gone),
        "$rtrim" => input.trim_end_matches(is_gone),
        _ => input.trim_matches(is_gone),
    };
    Ok(Some(RawBson::String(trimmed.to_owned())))
}

/// A text; no symbol, as operators on texts that are newer take none.
fn string(value: &Value) -> Option<&str> {
    match value {
        Some(RawBson::String(text)) => Some(text),
        _ => None,
    }
}

/// `$substrBytes` and `$substr`.
pub(super) fn part_of_bytes(name: &'static str, values: &[Value]) -> Result<Value> {
    let text = coerced(&values[0])?;
    let number = |code, what: &str, value: &Value| match value {
        Some(RawBson::Int32(i)) => Ok(i64::from(*i)),
        Some(RawBson::Int64(i)) => Ok(*i),
        Some(RawBson::Double(d)) => Ok(crate::order::integer_of(d.trunc()).unwrap_or(match d {
            d if d.is_nan() => 0,
            d if *d < 0.0 => i64::MIN,
            _ => i64::MAX,
        })),
        _ => {
            let what = format!("{name}:  {what} must be a numeric type (is BSON type {})", type_of(value));
            Err(ExpressionError::new(code, what))
        }
    };
    let start = number(16034, "starting index", &values[1])?;
    let length = number(16035, "length", &values[2])?;
    let start = usize::try_from(start).map_err(|_| {
        ExpressionError::new(50752, format!("{name}:  starting index must be non-negative (got: {start})"))
    })?;
    // A negative length is the rest of the text.
    let end = usize::try_from(length).map_or(text.len(), |length| start.saturating_add(length)).min(text.len());
    let start = start.min(text.len());
    for (at, code, what) in [
        (start, 28656, "starting index is a UTF-8 continuation byte."),
        (end, 28657, "ending index is in the middle of a UTF-8 character."),
    ] {
        if !text.is_char_boundary(at) {
            return Err(ExpressionError::new(code, format!("{name}:  Invalid range, {what}")));
        }
    }
    Ok(Some(RawBson::String(text[start..end].to_owned())))
}

/// `$indexOfCP` and `$indexOfBytes`.
pub(super) fn index_of(name: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) {
        return null();
    }
    let is_points = name == "$indexOfCP";
    let operand = |code, which, value| {
        let what = || format!("{name} requires a string as the {which} argument, found: {}", type_of(value));
        string(value).ok_or_else(|| ExpressionError::new(code, what()))
    };
    let input = operand(if is_points { 40093 } else { 40091 }, "first", &values[0])?;
    let wanted = operand(if is_points { 40094 } else { 40092 }, "second", &values[1])?;
    let (start, end) = list::bounds(name, values)?;
    let end = end.unwrap_or(usize::MAX);
    let found = match is_points {
        true => point_of(input, wanted, start, end),
        false => byte_of(input, wanted, start, end.min(input.len())),
    };
    Ok(found.map_or(Some(RawBson::Int32(-1)), count))
}

/// The byte of a text from which on it has another one, within a range of bytes.
fn byte_of(input: &str, wanted: &str, start: usize, end: usize) -> Option<usize> {
    if start > end {
        return None;
    }
    // An empty text is everywhere, also within a character.
    if wanted.is_empty() {
        return Some(start);
    }
    let start = (start..=end).find(|at| input.is_char_boundary(*at))?;
    let end = (start..=end).rev().find(|at| input.is_char_boundary(*at))?;
    input[start..end].find(wanted).map(|at| start + at)
}

/// The code point of a text from which on it has another one. The other one begins in a range of code points.
fn point_of(input: &str, wanted: &str, start: usize, end: usize) -> Option<usize> {
    if input.is_empty() && wanted.is_empty() {
        return Some(0);
    }
    let (from, _) = input.char_indices().nth(start)?;
    let rest = &input[from..];
    let point = start + rest[..rest.find(wanted)?].chars().count();
    (point < end).then_some(point)
}

/// `$replaceOne` and `$replaceAll`.
pub(super) fn replace(name: &'static str, values: &[Value]) -> Result<Value> {
    for ((value, code), argument) in values.iter().zip([51746, 51745, 51744]).zip(["input", "find", "replacement"]) {
        if string(value).is_none() && !is_nothing(value) {
            let what = format!("{name} requires that '{argument}' be a string, found: {}", type_of(value));
            return Err(ExpressionError::new(code, what));
        }
    }
    let [Some(RawBson::String(input)), Some(RawBson::String(find)), Some(RawBson::String(with))] = values else {
        return null();
    };
    if name == "$replaceOne" {
        return Ok(Some(RawBson::String(input.replacen(find.as_str(), with, 1))));
    }
    let bytes = input.matches(find.as_str()).count().saturating_mul(with.len());
    if bytes > REPLACED_BYTES_MAX {
        let what = format!("{name} makes a text of more than {} MB", REPLACED_BYTES_MAX >> 20);
        return Err(ExpressionError::new(146, what));
    }
    Ok(Some(RawBson::String(input.replace(find.as_str(), with))))
}
