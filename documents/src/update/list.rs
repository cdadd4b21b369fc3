//! Changes of lists: `$push`, `$addToSet`, `$pull`, `$pop`.

use super::tree::Node;
use crate::Filter;
use crate::paths::member;
use bson::raw::{CString, RawBson, RawBsonRef, RawDocumentBuf, cstr};
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

/// How `$push` sorts.
#[derive(Debug, Clone)]
pub(super) enum ElementSort {
    /// By the elements as wholes.
    Whole(Direction),
    /// By what is in the elements, which are compared at these paths in turn.
    Members(Vec<(Vec<CString>, Direction)>),
}

/// A direction of a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
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
    /// Changes the elements of the list.
    pub(super) fn apply<'a>(&'a self, elements: &mut Vec<Node<'a>>) {
        let place = insertion_place(self.position, elements.len());
        elements.splice(place..place, self.values.iter().map(|value| Node::Value(value.as_raw_bson_ref())));
        if let Some(sort) = &self.sort {
            elements.sort_by(|a, b| a.with_value(|a| b.with_value(|b| sort.compare(a, b))));
        }
        if let Some(slice) = self.slice {
            let excess = elements.len().saturating_sub(usize::try_from(slice.unsigned_abs()).unwrap_or(usize::MAX));
            if slice < 0 {
                elements.drain(..excess);
            } else {
                elements.truncate(elements.len() - excess);
            }
        }
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

impl ElementSort {
    fn compare(&self, a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
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
