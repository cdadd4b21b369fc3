//! Changes of lists: `$push`, `$addToSet`, `$pull`, `$pop`.

use super::tree::Node;
use crate::Filter;
use crate::order::Number;
use crate::paths::member;
use bson::raw::{CStr, CString, RawBson, RawBsonRef, RawDocumentBuf, cstr};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// `$push`: values to insert, then a sort, then a slice.
#[derive(Debug, Clone)]
pub(super) struct Push {
    /// What is inserted.
    pub(super) values: Vec<RawBson>,
    /// Where: from the start, or from the end if negative; at the end if there is none.
    pub(super) position: Option<i64>,
    /// How the list is sorted then.
    pub(super) sort: Option<ElementSort>,
    /// How many elements are kept then: the first ones, or the last ones if negative.
    pub(super) slice: Option<i64>,
}

/// How `$push` and `$sortArray` sort.
#[derive(Debug, Clone)]
pub(crate) enum ElementSort {
    /// By the elements as wholes.
    Whole(Direction),
    /// By what is in the elements, which are compared at these paths in turn.
    Members(Vec<(Vec<CString>, Direction)>),
}

/// A direction of a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the least.
    Ascending,
    /// From the greatest.
    Descending,
}

impl Direction {
    fn apply(self, order: Ordering) -> Ordering {
        match self {
            Direction::Ascending => order,
            Direction::Descending => order.reverse(),
        }
    }
}

/// What `$pull` removes.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    /// Elements equal to a value.
    Equal(RawBson),
    /// Objects that match a filter.
    Members(Filter),
    /// Elements for which operators hold: a filter on the member of [`element_document`].
    Element(Filter),
}

/// Which element `$pop` removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    First,
    Last,
}

impl Push {
    /// Changes the elements of the list. Returns whether that counts as a change: as in MongoDB, elements that are inserted do even if
    /// they do not stay, and so does a sort of any elements.
    pub(super) fn apply<'a>(&'a self, elements: &mut Vec<Node<'a>>) -> bool {
        let mut is_change = !self.values.is_empty();
        let place = insertion_place(self.position, elements.len());
        elements.splice(place..place, self.values.iter().map(|value| Node::Value(value.as_raw_bson_ref())));
        if let Some(sort) = &self.sort {
            is_change |= !elements.is_empty();
            elements.sort_by(|a, b| a.with_value(|a| b.with_value(|b| sort.compare(a, b))));
        }
        if let Some(slice) = self.slice {
            let excess = elements.len().saturating_sub(usize::try_from(slice.unsigned_abs()).unwrap_or(usize::MAX));
            is_change |= excess > 0;
            if slice < 0 {
                elements.drain(..excess);
            } else {
                elements.truncate(elements.len() - excess);
            }
        }
        is_change
    }
}

fn insertion_place(position: Option<i64>, length: usize) -> usize {
    match position {
        None => length,
        Some(from_end) if from_end < 0 => {
            length.saturating_sub(usize::try_from(from_end.unsigned_abs()).unwrap_or(usize::MAX))
        }
        Some(from_start) => usize::try_from(from_start).unwrap_or(usize::MAX).min(length),
    }
}

/// What is wrong with a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongSort {
    /// A number that is no direction.
    Direction,
    /// A path, the direction of a path, or that there is none.
    Members,
    /// It is neither a number nor an object.
    Type,
}

impl ElementSort {
    /// Reads a direction, or an object of paths and directions; `Err` says what is wrong.
    pub(crate) fn parse(sort: RawBsonRef<'_>) -> Result<ElementSort, (WrongSort, String)> {
        let direction = |value: RawBsonRef<'_>, wrong| match crate::whole_number(value) {
            Some(1) => Ok(Direction::Ascending),
            Some(-1) => Ok(Direction::Descending),
            _ => Err((wrong, "a direction of the sort must be 1 or -1".to_owned())),
        };
        let RawBsonRef::Document(keys) = sort else {
            if Number::of(sort).is_some() {
                return direction(sort, WrongSort::Direction).map(ElementSort::Whole);
            }
            let what = "the sort must be 1 or -1 for the elements as wholes, or an object such as {path: 1}";
            return Err((WrongSort::Type, what.to_owned()));
        };
        let key = |(path, value): (&CStr, RawBsonRef<'_>)| {
            let names: Vec<&str> = path.as_str().split('.').collect();
            if names.iter().any(|name| name.is_empty()) {
                return Err((WrongSort::Members, format!("'{path}' is not a path to sort by")));
            }
            let names = names.into_iter().filter_map(|name| CString::try_from(name).ok()).collect();
            Ok((names, direction(value, WrongSort::Members)?))
        };
        let keys: Vec<_> = keys.iter().map_while(Result::ok).map(key).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err((WrongSort::Members, "the sort is empty; name a path, as in {path: 1}".to_owned()));
        }
        Ok(ElementSort::Members(keys))
    }

    /// The order of two elements.
    pub(crate) fn compare(&self, a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
        match self {
            ElementSort::Whole(direction) => direction.apply(crate::compare(a, b)),
            ElementSort::Members(keys) => keys
                .iter()
                .map(|(path, direction)| direction.apply(crate::compare(value_at(a, path), value_at(b, path))))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal),
        }
    }
}

/// What is in an element at a path: null where it is missing. A list on the way is entered by number only.
fn value_at<'a>(element: RawBsonRef<'a>, path: &[CString]) -> RawBsonRef<'a> {
    let enter = |value: RawBsonRef<'a>, name: &CString| match value {
        RawBsonRef::Document(object) => member(object, name.as_str()),
        RawBsonRef::Array(list) => member(crate::raw::list_as_object(list)?, name.as_str()),
        _ => None,
    };
    let is_object = matches!(element, RawBsonRef::Document(_));
    let found = if is_object { path.iter().try_fold(element, enter) } else { None };
    found.unwrap_or(RawBsonRef::Null)
}

/// Adds the values that no element equals, each once.
pub(super) fn add_to_set<'a>(elements: &mut Vec<Node<'a>>, values: &'a [RawBson]) {
    if let [value] = values {
        let value = value.as_raw_bson_ref();
        if !elements.iter().any(|element| element.with_value(|element| crate::compare(element, value).is_eq())) {
            elements.push(Node::Value(value));
        }
        return;
    }
    let mut keys: BTreeSet<Vec<u8>> = elements.iter().map(|element| element.with_value(crate::value_key)).collect();
    let new = values.iter().map(RawBson::as_raw_bson_ref).filter(|value| keys.insert(crate::value_key(*value)));
    elements.extend(new.map(Node::Value));
}

impl Condition {
    /// Whether an element is removed.
    pub(super) fn holds(&self, element: &Node<'_>) -> bool {
        element.with_value(|element| match self {
            Condition::Equal(value) => crate::compare(element, value.as_raw_bson_ref()).is_eq(),
            Condition::Members(filter) => element.as_document().is_some_and(|object| filter.matches(object)),
            Condition::Element(filter) => filter.matches(&element_document(element)),
        })
    }
}

/// An object with one member, the element, for filters about values that are no objects.
pub(super) fn element_document(element: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("element"), element);
    document
}
