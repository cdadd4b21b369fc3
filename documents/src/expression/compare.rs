//! Comparisons.

use super::{Result, Value, boolean, is_true};
use crate::order::compare;
use bson::raw::{RawBson, RawBsonRef};
use std::cmp::Ordering;

/// The order of two values; a missing one comes before null.
pub(crate) fn order(a: &Value, b: &Value) -> Ordering {
    match (a.as_ref().map(RawBson::as_raw_bson_ref), b.as_ref().map(RawBson::as_raw_bson_ref)) {
        (None, None) => Ordering::Equal,
        // Undefined comes before null too, and is as good as missing.
        (None, Some(b)) => compare(RawBsonRef::Undefined, b).then(Ordering::Less),
        (Some(a), None) => compare(a, RawBsonRef::Undefined).then(Ordering::Greater),
        (Some(a), Some(b)) => compare(a, b),
    }
}

pub(super) fn test(name: &'static str, values: &[Value]) -> Result<Value> {
    let order = order(&values[0], &values[1]);
    Ok(boolean(match name {
        "$eq" => order.is_eq(),
        "$ne" => order.is_ne(),
        "$gt" => order.is_gt(),
        "$gte" => order.is_ge(),
        "$lt" => order.is_lt(),
        _ => order.is_le(),
    }))
}

pub(super) fn cmp(_: &'static str, values: &[Value]) -> Result<Value> {
    Ok(Some(RawBson::Int32(order(&values[0], &values[1]) as i32)))
}

pub(super) fn not(_: &'static str, values: &[Value]) -> Result<Value> {
    Ok(boolean(!is_true(&values[0])))
}
