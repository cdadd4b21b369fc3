//! Whether a document matches.

use super::node::{Comparison, Condition, Node, Test, is_set};
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

impl Node {
    /// The element of a list by which a document matches, if a list decides; `None` if it does not match.
    pub(super) fn element(&self, document: &RawDocument) -> Option<Option<usize>> {
        match self {
            Node::And(_) => {
                let mut last = None;
                for node in self.in_order() {
                    last = node.element(document)?.or(last);
                }
                Some(last)
            }
            Node::Or(_) => self.in_order().into_iter().find_map(|node| node.element(document)),
            Node::Not(inner) => (!inner.matches(document)).then_some(None),
            Node::Never => None,
            Node::Field(path, test) => {
                let mut found = None;
                let outermost = path.visit_until(document, test.end_in_list(), &mut |value| {
                    if !test.holds(value) {
                        return ControlFlow::Continue(());
                    }
                    found = value;
                    ControlFlow::Break(())
                })?;
                Some(outermost.or_else(|| test.element(found?)))
            }
        }
    }

    /// The parts of a conjunction or disjunction in the order in which MongoDB evaluates them.
    fn in_order(&self) -> Vec<&Node> {
        let mut parts = Vec::new();
        self.add_parts(matches!(self, Node::And(_)), &mut parts);
        parts.sort_by_key(|node| node.place());
        parts
    }

    /// Adds the parts, and those of parts of the same kind.
    fn add_parts<'n>(&'n self, of_and: bool, parts: &mut Vec<&'n Node>) {
        match self {
            Node::And(inner) if of_and => inner.iter().for_each(|node| node.add_parts(of_and, parts)),
            Node::Or(inner) if !of_and => inner.iter().for_each(|node| node.add_parts(of_and, parts)),
            other => parts.push(other),
        }
    }

    /// The place in the order of evaluation: by kind, then by path.
    fn place(&self) -> (u8, &str) {
        match self {
            Node::And(_) => (0, ""),
            Node::Or(_) => (1, ""),
            Node::Field(path, test) => (test.place(), path.as_str()),
            Node::Never => (30, ""),
            Node::Not(_) => (31, ""),
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
            Test::Bits(bits, mask) => match found {
                RawBsonRef::Binary(binary) => bits.hold(mask, |position| is_set(binary.bytes, position)),
                // A negative number has ones without end before it.
                other => Number::of(other)
                    .and_then(Number::to_i64)
                    .is_some_and(|number| bits.hold(mask, |position| (number >> position.min(63)) & 1 == 1)),
            },
            Test::Size(size) => match found {
                RawBsonRef::Array(list) => list.into_iter().map_while(Result::ok).count() == *size,
                _ => false,
            },
            Test::ElementValue(_) | Test::ElementObject(_) => self.element(found).is_some(),
        }
    }

    /// The number of the first element of a list for which `$elemMatch` holds; `None` for other tests too.
    fn element(&self, list: RawBsonRef<'_>) -> Option<usize> {
        let RawBsonRef::Array(list) = list else { return None };
        let mut elements = list.into_iter().map_while(Result::ok);
        match self {
            Test::ElementValue(condition) => elements.position(|element| condition.holds(element)),
            Test::ElementObject(node) => elements.position(|element| match element {
                RawBsonRef::Document(object) => node.matches(object),
                RawBsonRef::Array(inner) => list_as_object(inner).is_some_and(|object| node.matches(object)),
                _ => false,
            }),
            _ => None,
        }
    }

    /// The place of the test in the order in which MongoDB evaluates conditions.
    fn place(&self) -> u8 {
        match self {
            Test::ElementObject(_) => 2,
            Test::ElementValue(_) => 3,
            Test::Size(_) => 4,
            Test::Compare(Comparison::Eq, _) => 5,
            Test::Compare(Comparison::Lte, _) => 6,
            Test::Compare(Comparison::Lt, _) => 7,
            Test::Compare(Comparison::Gt, _) => 8,
            Test::Compare(Comparison::Gte, _) => 9,
            Test::Regex(_) => 10,
            Test::Mod(..) => 11,
            Test::Exists => 12,
            Test::In(..) => 13,
            Test::Bits(..) => 14,
            Test::Type(_) => 32,
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
