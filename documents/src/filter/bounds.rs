//! What an index can leave out: the keys that a matching document must have.
//!
//! Every value for which a test can hold has a key in the test's intervals, and is among the keys that
//! [`crate::index_keys`] gives, since both come from one walk of the path; but for a list at the end of the path, of which
//! the index has the elements. A test that can hold for the list itself therefore has no intervals, or those of an element
//! that the list must have.

use super::node::{Comparison, Condition, Node, Test};
use crate::key::{class_range, first_number, id_key, text_key_prefix, value_key};
use crate::order::{Number, TypeClass};
use crate::paths::Path;
use bson::raw::RawBsonRef;

/// How many different values of a path a document can have in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Multiplicity {
    /// Every document has exactly one: [`crate::index_keys`] returned one key for each of them.
    One,
    /// A document can have several: there are lists.
    Many,
}

/// An interval of keys. It also holds whatever begins with one of its keys, such as a key of several values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// The first key that can be in it.
    pub start: Vec<u8>,
    /// What every key in it is less than.
    pub end: Vec<u8>,
}

impl Interval {
    /// Only this key.
    #[must_use]
    pub fn point(key: Vec<u8>) -> Interval {
        let end = after(key.clone());
        Interval { start: key, end }
    }

    /// Whether a key is in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }

    /// Whether one of the keys from `least` to `greatest`, both included, can be in it.
    #[must_use]
    pub fn overlaps(&self, least: &[u8], greatest: &[u8]) -> bool {
        least < self.end.as_slice() && self.start.as_slice() <= greatest
    }

    /// Whether it holds one key at most.
    #[must_use]
    pub fn is_point(&self) -> bool {
        self.end == after(self.start.clone())
    }
}

/// The first bytes that follow all that begin with these. The first byte of a key is never the last one there is.
fn after(mut key: Vec<u8>) -> Vec<u8> {
    while key.last() == Some(&u8::MAX) {
        key.pop();
    }
    if let Some(last) = key.last_mut() {
        *last += 1;
    }
    key
}

pub(super) fn id_keys(node: &Node) -> Option<Vec<Vec<u8>>> {
    let keys_of = |values: &mut dyn Iterator<Item = RawBsonRef<'_>>| {
        // What cannot be an `_id` equals none.
        let mut keys: Vec<_> = values.filter_map(|value| id_key(value).ok()).collect();
        keys.sort();
        keys.dedup();
        keys
    };
    match node {
        Node::Never => Some(Vec::new()),
        Node::Not(_) => None,
        Node::Field(path, _) if path.as_str() != "_id" => None,
        Node::Field(_, Test::Compare(Comparison::Eq, value)) => {
            Some(keys_of(&mut std::iter::once(value.as_raw_bson_ref())))
        }
        Node::Field(_, Test::In(values, patterns)) if patterns.is_empty() => {
            Some(keys_of(&mut values.iter().map(|value| value.as_raw_bson_ref())))
        }
        Node::Field(..) => None,
        Node::Or(any) => {
            let mut keys = any.iter().map(id_keys).collect::<Option<Vec<_>>>()?.concat();
            keys.sort();
            keys.dedup();
            Some(keys)
        }
        // No `_id` is a list, so one value meets all.
        Node::And(all) => all.iter().filter_map(id_keys).reduce(|mut keys, others| {
            keys.retain(|key| others.binary_search(key).is_ok());
            keys
        }),
    }
}

pub(super) fn intervals(node: &Node, path: &Path, multiplicity: Multiplicity) -> Option<Vec<Interval>> {
    match node {
        Node::Never => Some(Vec::new()),
        Node::Not(_) => None,
        Node::Field(on, test) => {
            if on == path {
                of_test(test, path)
            } else {
                None
            }
        }
        Node::Or(any) => {
            let all = any.iter().map(|node| intervals(node, path, multiplicity)).collect::<Option<Vec<_>>>()?;
            Some(united(all.concat()))
        }
        Node::And(all) => {
            all.iter().filter_map(|node| intervals(node, path, multiplicity)).reduce(|a, b| match multiplicity {
                Multiplicity::One => intersected(&a, &b),
                Multiplicity::Many => narrower(a, b),
            })
        }
    }
}

/// The intervals of one of two conditions, of which each alone must hold.
fn narrower(a: Vec<Interval>, b: Vec<Interval>) -> Vec<Interval> {
    let rank = |intervals: &[Interval]| (!intervals.iter().all(Interval::is_point), intervals.len());
    if rank(&b) < rank(&a) { b } else { a }
}

/// The intervals of a test of what a path reaches.
fn of_test(test: &Test, path: &Path) -> Option<Vec<Interval>> {
    match test {
        Test::Compare(comparison, bound) => of_comparison(*comparison, bound.as_raw_bson_ref()),
        Test::In(values, patterns) if patterns.is_empty() => {
            let of_value = |value: RawBsonRef<'_>| of_comparison(Comparison::Eq, value);
            let all = values.iter().map(|value| of_value(value.as_raw_bson_ref())).collect::<Option<Vec<_>>>()?;
            Some(united(all.concat()))
        }
        Test::Mod(..) => Some(vec![class_interval(TypeClass::Number)]),
        Test::Regex(pattern) => {
            let start = text_key_prefix(&pattern.literal_start()?);
            let texts = Interval { end: after(start.clone()), start };
            // A regular expression that is a value equals itself.
            Some(united(vec![texts, class_interval(TypeClass::Regex)]))
        }
        // By its number a path reaches a list within a list as one value, of which the index has no elements.
        Test::ElementValue(condition) if !path.has_numbers() => of_element(condition, path),
        _ => None,
    }
}

/// The intervals of a condition on one element of the list at the end of the path: it must be in all of them.
fn of_element(condition: &Condition, path: &Path) -> Option<Vec<Interval>> {
    match condition {
        Condition::Never => Some(Vec::new()),
        Condition::Not(_) => None,
        Condition::Test(test @ (Test::Compare(..) | Test::In(..) | Test::Mod(..) | Test::Regex(_))) => {
            of_test(test, path)
        }
        Condition::Test(_) => None,
        Condition::All(all) => {
            all.iter().filter_map(|condition| of_element(condition, path)).reduce(|a, b| intersected(&a, &b))
        }
    }
}

fn class_interval(class: TypeClass) -> Interval {
    let (start, end) = class_range(class);
    Interval { start, end }
}

fn of_comparison(comparison: Comparison, bound: RawBsonRef<'_>) -> Option<Vec<Interval>> {
    let point = |value: RawBsonRef<'_>| Interval::point(value_key(value));
    let is_equal_too = !matches!(comparison, Comparison::Gt | Comparison::Lt);
    let class = TypeClass::of(bound);
    match class {
        // An index has null for missing values; undefined equals null.
        TypeClass::Null if is_equal_too => return Some(vec![point(RawBsonRef::Undefined), point(RawBsonRef::Null)]),
        TypeClass::Null => return Some(Vec::new()),
        TypeClass::Array if comparison == Comparison::Eq => {
            // Of a list at the end of the path the index has the elements; undefined if there are none.
            let first = match bound {
                RawBsonRef::Array(list) => list.into_iter().next().and_then(Result::ok),
                _ => None,
            };
            return Some(united(vec![point(bound), point(first.unwrap_or(RawBsonRef::Undefined))]));
        }
        // These are compared with values of other types too, and lists as a whole.
        TypeClass::MinKey | TypeClass::MaxKey | TypeClass::Array if comparison != Comparison::Eq => return None,
        _ if Number::of(bound).is_some_and(Number::is_nan) => {
            return Some(if is_equal_too { vec![point(bound)] } else { Vec::new() });
        }
        _ => {}
    }
    let (mut start, mut end) = class_range(class);
    if class == TypeClass::Number {
        start = first_number();
    }
    let key = value_key(bound);
    match comparison {
        Comparison::Eq => return Some(vec![Interval::point(key)]),
        Comparison::Gt => start = after(key),
        Comparison::Gte => start = key,
        Comparison::Lt => end = key,
        Comparison::Lte => end = after(key),
    }
    Some(if start < end { vec![Interval { start, end }] } else { Vec::new() })
}

/// In order, without overlaps.
fn united(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort();
    let mut all: Vec<Interval> = Vec::with_capacity(intervals.len());
    for next in intervals {
        match all.last_mut() {
            // Points that follow each other stay apart, so that they are still known as points.
            Some(last) if next.start < last.end => last.end = next.end.max(std::mem::take(&mut last.end)),
            _ => all.push(next),
        }
    }
    all
}

/// What lies in both, each in order and without overlaps.
fn intersected(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let (mut i, mut j, mut both) = (0, 0, Vec::new());
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let start = (&x.start).max(&y.start);
        let end = (&x.end).min(&y.end);
        if start < end {
            both.push(Interval { start: start.clone(), end: end.clone() });
        }
        if x.end < y.end { i += 1 } else { j += 1 }
    }
    both
}
