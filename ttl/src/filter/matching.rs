//! Whether a filter's conditions hold.

use super::node::{Condition, Node, Test};
use super::{Comparison, Timestamp, Value};
use std::cmp::Ordering;

pub(super) fn matches(node: &Node, holds: &dyn Fn(&Condition) -> bool) -> bool {
    match node {
        Node::Condition(condition) => holds(condition),
        Node::And(parts) => parts.iter().all(|part| matches(part, holds)),
        Node::Or(parts) => parts.iter().any(|part| matches(part, holds)),
        Node::Not(inner) => !matches(inner, holds),
    }
}

/// Whether a condition holds for a document whose top-level field of the condition's path has this value.
pub(super) fn holds(condition: &Condition, field: &Value) -> bool {
    let mut found = false;
    let holds = walk(field, condition.path.get(1..).unwrap_or_default(), &mut |value| {
        found = true;
        test_whole(&condition.test, value)
    });
    // A path that leads nowhere, through an empty list for instance, is missing, which is null.
    holds || (!found && test_whole(&condition.test, &Value::Null))
}

/// Calls `test` with each value at a path until it accepts one; a path through lists has several, and a list at its end
/// counts as itself and by its elements. A number in the path means that element of a list too, which is one value.
fn walk(value: &Value, path: &[String], test: &mut dyn FnMut(&Value) -> bool) -> bool {
    let Some((name, rest)) = path.split_first() else {
        return test(value) || matches!(value, Value::Array(items) if items.iter().any(test));
    };
    match value {
        Value::Object(_) => walk(value.get(name).unwrap_or(&Value::Null), rest, test),
        Value::Array(items) => {
            let index = list_index(name);
            items.iter().enumerate().any(|(at, item)| {
                let is_meant = index == Some(at);
                match item {
                    Value::Object(_) if walk(item, path, test) => true,
                    _ if is_meant && rest.is_empty() => test(item),
                    Value::Object(_) | Value::Array(_) if is_meant => walk(item, rest, test),
                    _ => false,
                }
            })
        }
        _ => test(&Value::Null),
    }
}

/// The number of a list's element that a name of a path means: digits without zeros before them.
pub(super) fn list_index(name: &str) -> Option<usize> {
    let is_number = name.bytes().all(|b| b.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    if is_number { name.parse().ok() } else { None }
}

fn test_whole(test: &Test, value: &Value) -> bool {
    match test {
        Test::Eq(wanted) => same(wanted, value),
        Test::In(wanted) => match value {
            Value::Object(_) | Value::Array(_) => wanted.binary_search(&value.normalized()).is_ok(),
            scalar => wanted.binary_search(scalar).is_ok(),
        },
        Test::Compare(comparison, bound) => {
            let Some(order) = value.compare_in_class(bound) else { return false };
            if matches!(bound, Value::Object(_) | Value::Array(_) | Value::Null) {
                return false;
            }
            match comparison {
                Comparison::Gt => order == Ordering::Greater,
                Comparison::Gte => order != Ordering::Less,
                Comparison::Lt => order == Ordering::Less,
                Comparison::Lte => order != Ordering::Greater,
            }
        }
        Test::Exists => !value.is_null(),
        Test::Type(classes) => classes.contains(&value.class()),
    }
}

fn same(wanted: &Value, value: &Value) -> bool {
    match (wanted, value) {
        (Value::Object(_), Value::Object(_)) | (Value::Array(_), Value::Array(_)) => *wanted == value.normalized(),
        _ => wanted == value,
    }
}

/// Whether the node is nothing but comparisons of the time with dates, all of which must hold.
pub(super) fn is_time_range(node: &Node, time_field: &str) -> bool {
    match node {
        Node::And(parts) => parts.iter().all(|part| is_time_range(part, time_field)),
        Node::Condition(Condition { path, test }) => {
            let is_range = matches!(test, Test::Eq(Value::Date(_)) | Test::Compare(_, Value::Date(_)));
            path.len() == 1 && path[0] == time_field && is_range
        }
        _ => false,
    }
}

/// See [`super::Filter::time_bounds`].
pub(super) fn time_bounds(node: &Node, time_field: &str) -> (Option<Timestamp>, Option<Timestamp>) {
    match node {
        Node::Condition(Condition { path, test }) if path.len() == 1 && path[0] == time_field => match test {
            Test::Eq(Value::Date(t)) => (Some(*t), Some(*t)),
            Test::In(values) => {
                let dates: Option<Vec<_>> =
                    values.iter().map(|v| if let Value::Date(t) = v { Some(*t) } else { None }).collect();
                dates.map_or((None, None), |dates| (dates.iter().min().copied(), dates.iter().max().copied()))
            }
            Test::Compare(Comparison::Gt, Value::Date(t)) => {
                (Some(Timestamp::from_nanos(t.nanos().saturating_add(1))), None)
            }
            Test::Compare(Comparison::Gte, Value::Date(t)) => (Some(*t), None),
            Test::Compare(Comparison::Lt, Value::Date(t)) => {
                (None, Some(Timestamp::from_nanos(t.nanos().saturating_sub(1))))
            }
            Test::Compare(Comparison::Lte, Value::Date(t)) => (None, Some(*t)),
            _ => (None, None),
        },
        Node::And(parts) => parts.iter().map(|part| time_bounds(part, time_field)).fold((None, None), |all, part| {
            let tighter = |a: Option<_>, b: Option<_>, pick: fn(_, _) -> _| match (a, b) {
                (Some(a), Some(b)) => Some(pick(a, b)),
                (a, b) => a.or(b),
            };
            (tighter(all.0, part.0, Ord::max), tighter(all.1, part.1, Ord::min))
        }),
        Node::Or(parts) => parts
            .iter()
            .map(|part| time_bounds(part, time_field))
            .reduce(|a, b| (a.0.zip(b.0).map(|(a, b)| a.min(b)), a.1.zip(b.1).map(|(a, b)| a.max(b))))
            .unwrap_or((None, None)),
        Node::Condition(_) | Node::Not(_) => (None, None),
    }
}

/// See [`super::Filter::number_bounds`].
pub(super) fn number_bounds(node: &Node, field: &str) -> (Option<f64>, Option<f64>) {
    match node {
        Node::Condition(Condition { path, test }) if path.len() == 1 && path[0] == field => match test {
            Test::Eq(value) => number_around(value).unzip(),
            Test::Compare(Comparison::Gt | Comparison::Gte, value) => (number_around(value).map(|(low, _)| low), None),
            Test::Compare(Comparison::Lt | Comparison::Lte, value) => {
                (None, number_around(value).map(|(_, high)| high))
            }
            _ => (None, None),
        },
        Node::And(parts) => parts.iter().map(|part| number_bounds(part, field)).fold((None, None), |all, part| {
            let tighter = |a: Option<f64>, b: Option<f64>, pick: fn(f64, f64) -> f64| match (a, b) {
                (Some(a), Some(b)) => Some(pick(a, b)),
                (a, b) => a.or(b),
            };
            (tighter(all.0, part.0, f64::max), tighter(all.1, part.1, f64::min))
        }),
        _ => (None, None),
    }
}

/// Doubles next to a number, or that number; nothing for NaN and for what is no number.
#[expect(clippy::cast_precision_loss, reason = "widened by what rounding may lose")]
fn number_around(value: &Value) -> Option<(f64, f64)> {
    match value {
        Value::Int(i) => Some(((*i as f64).next_down(), (*i as f64).next_up())),
        Value::Double(d) if !d.is_nan() => Some((d.next_down(), d.next_up())),
        _ => None,
    }
}
