//! When a reply holds what is expected of it.

use crate::json::value_of;
use ebbtide_ttl::{Timestamp, Value};
use serde_json::Value as Json;

/// Checks that `actual` holds all of `expected`: objects may have more members, lists must match element by element,
/// numbers are equal by value and dates as instants, and an expected null also matches what is missing.
pub(super) fn contains(actual: &Json, expected: &Json) -> Result<(), String> {
    contains_at("", Some(actual), expected)
}

/// Which columns a row of SQL may have beside those that its case lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoreColumns {
    /// Those that are null.
    Null,
    /// Any: the columns of a listing include bytes, which no case can predict.
    Any,
}

impl MoreColumns {
    pub(super) fn of(sql: &str) -> Self {
        let first = sql.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
        let is_listing = ["SHOW", "EXPLAIN", "DESCRIBE"].iter().any(|word| word.eq_ignore_ascii_case(first));
        if is_listing { MoreColumns::Any } else { MoreColumns::Null }
    }

    /// Refuses a row with a column that the case does not list.
    fn check(self, row: &Json, wanted: &Json) -> Result<(), String> {
        let (MoreColumns::Null, Some(row), Some(wanted)) = (self, row.as_object(), wanted.as_object()) else {
            return Ok(());
        };
        match row.iter().find(|(name, value)| !value.is_null() && !wanted.contains_key(*name)) {
            Some((name, _)) => Err(format!("column '{name}' is not listed")),
            None => Ok(()),
        }
    }
}

/// Checks that rows of SQL are those that are expected, in this order.
pub(super) fn same_rows(actual: &[Json], expected: &Json, more: MoreColumns) -> Result<(), String> {
    contains(&Json::Array(actual.to_vec()), expected)?;
    let wanted = expected.as_array().map_or(&[][..], Vec::as_slice);
    actual.iter().zip(wanted).try_for_each(|(row, wanted)| more.check(row, wanted))
}

/// Like [`same_rows`], in any order.
pub(super) fn same_rows_unordered(actual: &[Json], expected: &[Json], more: MoreColumns) -> Result<(), String> {
    if actual.len() != expected.len() {
        return Err(format!("expected {} rows, actual {}", expected.len(), actual.len()));
    }
    // An expected row may match several actual ones, so a match is exchanged if a later row needs it: the usual search
    // for augmenting paths.
    let mut owner: Vec<Option<usize>> = vec![None; actual.len()];
    for (row, wanted) in expected.iter().enumerate() {
        let mut tried = vec![false; actual.len()];
        if !assign(row, expected, actual, more, &mut owner, &mut tried) {
            return Err(format!("no row matches {wanted}"));
        }
    }
    Ok(())
}

fn assign(
    row: usize,
    expected: &[Json],
    actual: &[Json],
    more: MoreColumns,
    owner: &mut [Option<usize>],
    tried: &mut [bool],
) -> bool {
    for candidate in 0..actual.len() {
        let differs = || contains(&actual[candidate], &expected[row]).is_err();
        if tried[candidate] || more.check(&actual[candidate], &expected[row]).is_err() || differs() {
            continue;
        }
        tried[candidate] = true;
        let is_free = match owner[candidate] {
            None => true,
            Some(other) => assign(other, expected, actual, more, owner, tried),
        };
        if is_free {
            owner[candidate] = Some(row);
            return true;
        }
    }
    false
}

fn contains_at(path: &str, actual: Option<&Json>, expected: &Json) -> Result<(), String> {
    let actual = actual.unwrap_or(&Json::Null);
    let differs = || {
        let place = if path.is_empty() { String::new() } else { format!("at {}: ", path.trim_start_matches('.')) };
        let missing = if actual.is_null() { " (or missing)" } else { "" };
        Err(format!("{place}expected {expected}, actual {actual}{missing}"))
    };
    let same = match (expected, actual) {
        (Json::Array(wanted), Json::Array(given)) => {
            if wanted.len() != given.len() {
                let place = path.trim_start_matches('.');
                return Err(format!("at {place}: expected {} elements, actual {}", wanted.len(), given.len()));
            }
            let mut pairs = given.iter().zip(wanted).enumerate();
            return pairs.try_for_each(|(i, (g, w))| contains_at(&format!("{path}[{i}]"), Some(g), w));
        }
        (Json::Object(wanted), _) if !is_scalar(expected) => match actual {
            Json::Object(given) if !is_scalar(actual) => {
                let mut members = wanted.iter();
                return members.try_for_each(|(name, w)| contains_at(&format!("{path}.{name}"), given.get(name), w));
            }
            _ => false,
        },
        _ => same_scalar(actual, expected),
    };
    if same { Ok(()) } else { differs() }
}

/// Whether an object stands for a value of its own, such as a date.
fn is_scalar(json: &Json) -> bool {
    json.is_object() && value_of(json).is_ok_and(|value| !matches!(value, Value::Object(_)))
}

fn same_scalar(actual: &Json, expected: &Json) -> bool {
    let (Ok(given), Ok(wanted)) = (value_of(actual), value_of(expected)) else { return actual == expected };
    if given == wanted {
        return true;
    }
    let instant = |value: &Value| match value {
        Value::Date(t) => Some(*t),
        Value::String(text) => Timestamp::parse(text).ok(),
        _ => None,
    };
    matches!((instant(&given), instant(&wanted)), (Some(given), Some(wanted)) if given == wanted)
}
