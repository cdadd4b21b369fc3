//! Dotted paths and the values that they reach, through lists, as in MongoDB.
//!
//! One walk serves filters, indexes and expiry, so that an index never misses what a filter matches:
//!
//! 1. A path goes through objects by name. Where it meets a list it goes on in each element that is an object; and if the
//!    next name is a number, in the element with that number too.
//! 2. At its end a list yields its elements, and for filters itself as well. An element that is reached by its number is
//!    one value, also if it is a list.
//! 3. An object without the next name yields "missing". An element of a list that is no object yields nothing.

use crate::Code;
use crate::raw::element::get;
use bson::RawDocument;
use bson::raw::{RawArray, RawBsonRef};
use std::fmt;
use std::ops::ControlFlow;

/// A dotted path, such as `user.addresses.0.city`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    text: String,
    parts: Vec<Part>,
}

/// One name of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Part {
    name: String,
    /// The number of the list's element that the name means too.
    index: Option<usize>,
}

impl Path {
    /// Takes a path apart at its dots. Every text is a path.
    #[must_use]
    pub fn new(text: &str) -> Path {
        let parts = text.split('.').map(|name| Part { name: name.to_owned(), index: list_index(name) }).collect();
        Path { text: text.to_owned(), parts }
    }

    /// The path as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.name.as_str())
    }

    /// The first name: that of a top-level field.
    #[must_use]
    pub fn field(&self) -> &str {
        self.parts.first().map_or("", |part| part.name.as_str())
    }

    /// Whether one of its names can mean an element of a list.
    pub(crate) fn has_numbers(&self) -> bool {
        self.parts.iter().any(|part| part.index.is_some())
    }

    /// Visits what the path reaches, `None` for a missing value, until the visitor breaks. Whether it did.
    pub(crate) fn visit<'a>(&self, document: &'a RawDocument, end: EndInList, visitor: &mut Visitor<'_, 'a>) -> bool {
        Walk { end, visitor }.object(document, &self.parts).is_break()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The number that a name of a path stands for: digits without zeros before them.
pub(crate) fn list_index(name: &str) -> Option<usize> {
    let is_number = name.bytes().all(|b| b.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    if is_number { name.parse().ok() } else { None }
}

/// Whether a name begins with `$` and so cannot be in a path. Those of a reference to another document (DBRef) can.
pub(crate) fn is_operator(name: &str) -> bool {
    name.starts_with('$') && !matches!(name, "$id" | "$ref" | "$db")
}

/// The code of what is wrong with a path of a projection, a sort or a `distinct`; `None` if nothing is.
pub(crate) fn wrong_path(path: &str) -> Option<Code> {
    match path {
        "" => Some(Code::Location40352),
        path if path.ends_with('.') => Some(Code::Location40353),
        path if path.split('.').any(str::is_empty) => Some(Code::Location15998),
        path if path.split('.').any(is_operator) => Some(Code::Location16410),
        _ => None,
    }
}

/// Takes a value that a path reaches, or `None` where it is missing.
pub(crate) type Visitor<'v, 'a> = dyn FnMut(Option<RawBsonRef<'a>>) -> ControlFlow<()> + 'v;

/// What a list at the end of a path yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndInList {
    /// Its elements, then itself: for conditions that hold for either.
    ElementsAndList,
    /// Its elements; undefined for an empty one: for indexes.
    Elements,
    /// Itself: for conditions on lists.
    List,
}

struct Walk<'w, 'v, 'a> {
    end: EndInList,
    visitor: &'w mut Visitor<'v, 'a>,
}

impl<'a> Walk<'_, '_, 'a> {
    fn object(&mut self, document: &'a RawDocument, parts: &[Part]) -> ControlFlow<()> {
        let mut current = document;
        for (i, part) in parts.iter().enumerate() {
            let rest = &parts[i + 1..];
            match member(current, &part.name) {
                Some(RawBsonRef::Array(list)) => return self.list(list, rest),
                Some(RawBsonRef::Document(next)) if !rest.is_empty() => current = next,
                Some(value) if rest.is_empty() => return (self.visitor)(Some(value)),
                _ => break,
            }
        }
        (self.visitor)(None)
    }

    fn list(&mut self, list: &'a RawArray, rest: &[Part]) -> ControlFlow<()> {
        let Some((next, after)) = rest.split_first() else { return self.list_at_end(list) };
        for (i, element) in list.into_iter().map_while(Result::ok).enumerate() {
            let is_meant = next.index == Some(i);
            if let RawBsonRef::Document(object) = element {
                self.object(object, rest)?;
            }
            match element {
                _ if !is_meant => {}
                _ if after.is_empty() => (self.visitor)(Some(element))?,
                RawBsonRef::Document(object) => self.object(object, after)?,
                RawBsonRef::Array(inner) => self.list(inner, after)?,
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn list_at_end(&mut self, list: &'a RawArray) -> ControlFlow<()> {
        if self.end != EndInList::List {
            for element in list.into_iter().map_while(Result::ok) {
                (self.visitor)(Some(element))?;
            }
        }
        match self.end {
            EndInList::ElementsAndList | EndInList::List => (self.visitor)(Some(RawBsonRef::Array(list))),
            EndInList::Elements if list.is_empty() => (self.visitor)(Some(RawBsonRef::Undefined)),
            EndInList::Elements => ControlFlow::Continue(()),
        }
    }
}

/// The first member with this name.
pub(crate) fn member<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    get(document, name)
}

/// The values that an index on a path holds for a document, at least one: the values that the path reaches, through lists;
/// null where it is missing, undefined for an empty list. A value may come more than once.
#[must_use]
pub fn index_keys<'a>(document: &'a RawDocument, path: &Path) -> Vec<RawBsonRef<'a>> {
    let mut keys = Vec::new();
    path.visit(document, EndInList::Elements, &mut |value| {
        keys.push(value.unwrap_or(RawBsonRef::Null));
        ControlFlow::Continue(())
    });
    if keys.is_empty() {
        keys.push(RawBsonRef::Null);
    }
    keys
}

#[cfg(test)]
mod tests;
