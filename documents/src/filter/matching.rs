//! Whether a document matches.

use super::node::{Comparison, Condition, Node, Test};
use crate::order::{Number, TypeClass, compare, integer_of};
use crate::raw::list_as_object;
use bson::RawDocument;
use bson::raw::RawBsonRef;
use std::ops::ControlFlow;

impl Node {
    pub(super) fn matches(&self, document: &RawDocument) -> bool {
        match self {
            Node::And(all) => all.iter().all(|node| node.matches(document)),
            Node::Or(any) => any.iter().any(|node| node.matches(document)),
            Node::Not(inner) => !inner.matches(document),
            Node::Never => false,
            Node::Field(path, test) => path.visit(document, test.end_in_list(), &mut |value| {
                if test.holds(value) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }),
        }
    }
}

impl Condition {
    /// Whether it holds for this very value.
    fn holds(&self, value: RawBsonRef<'_>) -> bool {
        match self {
            Condition::All(all) => all.iter().all(|condition| condition.holds(value)),
            Condition::Not(inner) => !inner.holds(value),
            Condition::Test(test) => test.holds(Some(value)),
            Condition::Never => false,
        }
    }
}

impl Test {
    /// Whether it holds for a value, `None` for a missing one.
    fn holds(&self, value: Option<RawBsonRef<'_>>) -> bool {
        let Some(found) = value else { return self.holds_for_missing() };
        match self {
            Test::Compare(comparison, bound) => compares(found, *comparison, bound.as_raw_bson_ref()),
            Test::In(values, patterns) => {
                let is_value = values.binary_search_by(|v| compare(v.as_raw_bson_ref(), found)).is_ok();
                is_value
                    // Where null is one of the values, undefined is too.
                    || (found == RawBsonRef::Undefined && self.holds_for_missing())
                    || patterns.iter().any(|pattern| pattern.matches(found))
            }
            Test::Exists => true,
            Test::Type(types) => types.contains(found.element_type()),
            Test::Regex(pattern) => pattern.matches(found),
            Test::Mod(divisor, remainder) => {
                whole(found).is_some_and(|dividend| dividend.wrapping_rem(*divisor) == *remainder)
            }
            Test::Size(size) => match found {
                RawBsonRef::Array(list) => list.into_iter().map_while(Result::ok).count() == *size,
                _ => false,
            },
            Test::ElementValue(condition) => match found {
                RawBsonRef::Array(list) => list.into_iter().map_while(Result::ok).any(|v| condition.holds(v)),
                _ => false,
            },
            Test::ElementObject(node) => match found {
                RawBsonRef::Array(list) => list.into_iter().map_while(Result::ok).any(|element| match element {
                    RawBsonRef::Document(object) => node.matches(object),
                    RawBsonRef::Array(inner) => list_as_object(inner).is_some_and(|object| node.matches(object)),
                    _ => false,
                }),
                _ => false,
            },
        }
    }

    fn holds_for_missing(&self) -> bool {
        match self {
            Test::Compare(comparison, bound) => match bound.as_raw_bson_ref() {
                RawBsonRef::Null => matches!(comparison, Comparison::Eq | Comparison::Gte | Comparison::Lte),
                RawBsonRef::MinKey => matches!(comparison, Comparison::Gt | Comparison::Gte),
                RawBsonRef::MaxKey => matches!(comparison, Comparison::Lt | Comparison::Lte),
                _ => false,
            },
            Test::In(values, _) => values.binary_search_by(|v| compare(v.as_raw_bson_ref(), RawBsonRef::Null)).is_ok(),
            _ => false,
        }
    }
}

/// Compares within a class of types. MinKey and MaxKey are compared with everything.
fn compares(value: RawBsonRef<'_>, comparison: Comparison, bound: RawBsonRef<'_>) -> bool {
    let class = TypeClass::of(bound);
    if TypeClass::of(value) != class {
        return match (class, value) {
            (TypeClass::Null, RawBsonRef::Undefined) => !matches!(comparison, Comparison::Gt | Comparison::Lt),
            (TypeClass::MinKey, _) => matches!(comparison, Comparison::Gt | Comparison::Gte),
            (TypeClass::MaxKey, _) => matches!(comparison, Comparison::Lt | Comparison::Lte),
            _ => false,
        };
    }
    let order = compare(value, bound);
    let is_nan = |value| Number::of(value).is_some_and(Number::is_nan);
    if class == TypeClass::Number && order.is_ne() && (is_nan(value) || is_nan(bound)) {
        return false;
    }
    match comparison {
        Comparison::Eq => order.is_eq(),
        Comparison::Gt => order.is_gt(),
        Comparison::Gte => order.is_ge(),
        Comparison::Lt => order.is_lt(),
        Comparison::Lte => order.is_le(),
    }
}

/// A number without its fraction; `None` for other values, NaN, infinities and what `i64` does not hold.
pub(super) fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match Number::of(value)? {
        Number::Int(i) => Some(i),
        Number::Double(d) => integer_of(d.trunc()),
        Number::Decimal(d) => d.truncate_to_i64(),
    }
}
