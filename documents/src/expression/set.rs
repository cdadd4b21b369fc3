//! Lists as sets. Of equal values the first is kept, and sets are in the order of all values.

use super::list::{as_list, elements};
use super::{ExpressionError, Result, Value, boolean, is_nothing, null, type_of};
use crate::value_key;
use bson::raw::{RawArray, RawBson};
use std::collections::{BTreeMap, BTreeSet};

type Set = BTreeMap<Vec<u8>, RawBson>;

fn operand<'v>(name: &str, code: i32, value: &'v Value) -> Result<&'v RawArray> {
    as_list(value).ok_or_else(|| {
        let what = format!("All operands of {name} must be arrays. One argument is of type: {}", type_of(value));
        ExpressionError::new(code, what)
    })
}

fn insert(set: &mut Set, list: &RawArray) {
    for element in elements(list) {
        set.entry(value_key(element.as_raw_bson_ref())).or_insert(element);
    }
}

fn set_of(list: &RawArray) -> Set {
    let mut set = Set::new();
    insert(&mut set, list);
    set
}

fn keys_of(list: &RawArray) -> BTreeSet<Vec<u8>> {
    elements(list).map(|element| value_key(element.as_raw_bson_ref())).collect()
}

fn list_of(set: Set) -> Result<Value> {
    Ok(Some(RawBson::Array(set.into_values().collect())))
}

pub(super) fn union(name: &'static str, values: &[Value]) -> Result<Value> {
    let mut all = Set::new();
    for value in values {
        if is_nothing(value) {
            return null();
        }
        insert(&mut all, operand(name, 17043, value)?);
    }
    list_of(all)
}

/// `$setIntersection`. Equal values of different types are those of the smaller set, as in MongoDB.
pub(super) fn intersection(name: &'static str, values: &[Value]) -> Result<Value> {
    let mut common: Option<Set> = None;
    for value in values {
        if is_nothing(value) {
            return null();
        }
        let mut other = set_of(operand(name, 17047, value)?);
        common = Some(match common {
            None => other,
            Some(mut common) => {
                if common.len() > other.len() {
                    std::mem::swap(&mut common, &mut other);
                }
                common.retain(|key, _| other.contains_key(key));
                common
            }
        });
    }
    list_of(common.unwrap_or_default())
}

/// `$setDifference`: what the first list has and the second has not, in the order of the first.
pub(super) fn difference(name: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) || is_nothing(&values[1]) {
        return null();
    }
    let list = operand(name, 17048, &values[0])?;
    let mut taken = keys_of(operand(name, 17049, &values[1])?);
    let kept = elements(list).filter(|element| taken.insert(value_key(element.as_raw_bson_ref())));
    Ok(Some(RawBson::Array(kept.collect())))
}

pub(super) fn equals(name: &'static str, values: &[Value]) -> Result<Value> {
    let Some((first, others)) = values.split_first() else { return Ok(boolean(true)) };
    let first = keys_of(operand(name, 17044, first)?);
    for other in others {
        if keys_of(operand(name, 17044, other)?) != first {
            return Ok(boolean(false));
        }
    }
    Ok(boolean(true))
}

pub(super) fn is_subset(name: &'static str, values: &[Value]) -> Result<Value> {
    let list = operand(name, 17046, &values[0])?;
    let all = keys_of(operand(name, 17042, &values[1])?);
    Ok(boolean(elements(list).all(|element| all.contains(&value_key(element.as_raw_bson_ref())))))
}
