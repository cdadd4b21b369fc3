//! Lists as sets. Of equal values the first is kept, and sets are in the order of all values.

use super::list::{as_list, borrowed};
use super::{ExpressionError, Result, Value, boolean, is_nothing, null, type_of};
use crate::compare;
use bson::raw::{RawArray, RawBson, RawBsonRef};

/// Values of lists, each once, in their order. They are not copied: a list can have a million.
type Set<'v> = Vec<RawBsonRef<'v>>;

fn operand<'v>(name: &str, code: i32, value: &'v Value) -> Result<&'v RawArray> {
    as_list(value).ok_or_else(|| {
        let what = format!("All operands of {name} must be arrays. One argument is of type: {}", type_of(value));
        ExpressionError::new(code, what)
    })
}

fn set_of<'v>(values: impl Iterator<Item = RawBsonRef<'v>>) -> Set<'v> {
    let mut set: Set<'v> = values.collect();
    // A stable sort keeps the first of equal values first.
    set.sort_by(|a, b| compare(*a, *b));
    set.dedup_by(|later, kept| compare(*later, *kept).is_eq());
    set
}

fn has(set: &[RawBsonRef<'_>], value: RawBsonRef<'_>) -> bool {
    set.binary_search_by(|known| compare(*known, value)).is_ok()
}

fn list_of(set: Set<'_>) -> Result<Value> {
    Ok(Some(RawBson::Array(set.into_iter().collect())))
}

pub(super) fn union(name: &'static str, values: &[Value]) -> Result<Value> {
    let mut lists = Vec::with_capacity(values.len());
    for value in values {
        if is_nothing(value) {
            return null();
        }
        lists.push(operand(name, 17043, value)?);
    }
    list_of(set_of(lists.into_iter().flat_map(borrowed)))
}

/// `$setIntersection`. Equal values of different types are those of the smaller set, as in MongoDB.
pub(super) fn intersection(name: &'static str, values: &[Value]) -> Result<Value> {
    let mut common: Option<Set<'_>> = None;
    for value in values {
        if is_nothing(value) {
            return null();
        }
        let mut other = set_of(borrowed(operand(name, 17047, value)?));
        common = Some(match common {
            None => other,
            Some(mut common) => {
                if common.len() > other.len() {
                    std::mem::swap(&mut common, &mut other);
                }
                common.retain(|value| has(&other, *value));
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
    let without = set_of(borrowed(operand(name, 17049, &values[1])?));
    let mut kept: Vec<(usize, RawBsonRef<'_>)> =
        borrowed(list).filter(|value| !has(&without, *value)).enumerate().collect();
    kept.sort_by(|(_, a), (_, b)| compare(*a, *b));
    kept.dedup_by(|(_, later), (_, kept)| compare(*later, *kept).is_eq());
    kept.sort_unstable_by_key(|(place, _)| *place);
    list_of(kept.into_iter().map(|(_, value)| value).collect())
}

pub(super) fn equals(name: &'static str, values: &[Value]) -> Result<Value> {
    match values {
        [first, others @ ..] => all_equal(name, first, others).map(boolean),
        [] => Ok(boolean(true)),
    }
}

/// Whether values are the same set as the first. It ends at the first that is another.
pub(super) fn all_equal(name: &str, first: &Value, others: &[Value]) -> Result<bool> {
    let first = set_of(borrowed(operand(name, 17044, first)?));
    for other in others {
        let other = set_of(borrowed(operand(name, 17044, other)?));
        let has_same = || first.iter().zip(&other).all(|(a, b)| compare(*a, *b).is_eq());
        if first.len() != other.len() || !has_same() {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn is_subset(name: &'static str, values: &[Value]) -> Result<Value> {
    let list = operand(name, 17046, &values[0])?;
    let all = set_of(borrowed(operand(name, 17042, &values[1])?));
    Ok(boolean(borrowed(list).all(|value| has(&all, value))))
}

/// Refuses a constant operand, by its place, that MongoDB checks before any document: each of `$setEquals`, the second of
/// `$setIsSubset`.
pub(super) fn check_constant(name: &str, place: usize, value: &Value) -> Result<()> {
    match (name, place) {
        ("$setEquals", _) => operand(name, 5_887_502, value).map(drop),
        ("$setIsSubset", 1) => operand(name, 17042, value).map(drop),
        _ => Ok(()),
    }
}
