//! Which fields of a document `find` returns.
//!
//! 1. A projection includes fields (`{a: 1}`) or leaves fields out (`{a: 0}`), never both; `_id` is included unless it is
//!    left out by name. Fields come in the order of the document.
//! 2. A path goes into the elements of lists, and of lists within them. An inclusion drops elements that are no objects.
//! 3. `_ts` in an inclusion is the instant of the document's last write, as a date and as the last field. It is shown also
//!    where the document has a field of its own with this name: that one is seen in the whole document, and through paths
//!    within it (`"_ts.x"`). In an exclusion `_ts` is the document's own field.

mod parse;

use crate::order::Number;
use crate::paths::member;
use crate::{Filter, Result};
use bson::raw::{CStr, RawArray, RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};
use bson::{DateTime, RawDocument};
use std::collections::BTreeMap;

/// Names at one level of a document.
type Tree = BTreeMap<String, Node>;

/// What a projection says of a field.
#[derive(Debug, Clone)]
enum Node {
    /// It is included, or left out.
    Whole,
    /// It says something of its members.
    Members(Tree),
    /// It is included, of a list these elements.
    Slice(Slice),
    /// It is a list of which the first element that matches is included.
    FirstMatch(Filter),
}

/// The elements of a list that `$slice` keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    /// Elements that are passed over; negative: where to begin, counted from the end.
    skip: i64,
    /// The maximum number of elements that are kept.
    limit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Include,
    Exclude,
}

/// A projection such as `{name: 1, "address.city": 1, _id: 0}`.
///
/// ```
/// use ebbtide_documents::{Projection, bson::rawdoc};
///
/// let projection = Projection::parse(&rawdoc! { "tags.name": 1 })?;
/// let document = rawdoc! { "_id": 1, "tags": [{ "name": "a", "n": 5 }], "x": 0 };
/// assert_eq!(projection.apply(&document, 0), rawdoc! { "_id": 1, "tags": [{ "name": "a" }] });
/// # Ok::<(), ebbtide_documents::RuleError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Projection {
    mode: Mode,
    tree: Tree,
    /// The fields with `$elemMatch` in the order in which they are written, in which an inclusion appends them.
    first_matches: Vec<String>,
    /// Whether the instant of the last write is shown.
    shows_written: bool,
}

impl Projection {
    /// Reads a projection. An empty one returns documents as they are.
    ///
    /// # Errors
    /// MongoDB's code for inclusions beside exclusions, for a path beside one within it, for values other than numbers,
    /// booleans, `$slice` and `$elemMatch` (expressions are not available), and for what is no path; `BadValue` where it has
    /// none.
    pub fn parse(projection: &RawDocument) -> Result<Projection> {
        parse::projection(projection, None)
    }

    /// Reads a projection of `$slice` and `$elemMatch` alone, which leaves all other fields as they are.
    ///
    /// # Errors
    /// As [`Projection::parse`].
    pub fn of_elements(projection: &RawDocument) -> Result<Projection> {
        parse::projection(projection, Some(Mode::Exclude))
    }

    /// Whether this is an argument of a find's `$slice`: a number, or how many to pass over and a number above 0. Any other is an
    /// argument of the expression of this name.
    #[must_use]
    pub fn is_slice(argument: RawBsonRef<'_>) -> bool {
        let RawBsonRef::Array(list) = argument else { return Number::of(argument).is_some() };
        let numbers: Vec<_> = list.into_iter().map(|value| value.ok().and_then(Number::of)).collect();
        matches!(numbers.as_slice(), [Some(_), Some(limit)] if limit.compare(Number::Int(0)).is_gt())
    }

    /// Whether it returns documents as they are.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.mode == Mode::Exclude && self.tree.is_empty()
    }

    /// Whether the result shows the instant of the last write: else [`Projection::apply`] does not look at it.
    #[must_use]
    pub fn shows_written(&self) -> bool {
        self.shows_written
    }

    /// The top-level fields that it needs; `None` if all may be needed.
    #[must_use]
    pub fn included_fields(&self) -> Option<impl Iterator<Item = &str>> {
        (self.mode == Mode::Include).then(|| self.tree.keys().map(String::as_str))
    }

    /// What is wanted of a document that was last written at this instant, in milliseconds since 1970.
    #[must_use]
    pub fn apply(&self, document: &RawDocument, written_ms: i64) -> RawDocumentBuf {
        if self.is_whole() {
            return document.to_owned();
        }
        let mut result = self.object(document, &self.tree);
        if self.mode == Mode::Include {
            for name in &self.first_matches {
                if let (Some(Node::FirstMatch(filter)), Ok(key)) =
                    (self.tree.get(name), <&CStr>::try_from(name.as_str()))
                    && let Some(list) = member(document, name).and_then(|value| first_match(filter, value))
                {
                    result.append(key, list);
                }
            }
        }
        if self.shows_written {
            result.append(cstr!("_ts"), DateTime::from_millis(written_ms));
        }
        result
    }

    fn object(&self, object: &RawDocument, tree: &Tree) -> RawDocumentBuf {
        let mut result = RawDocumentBuf::new();
        for (name, value) in object.iter().map_while(std::result::Result::ok) {
            match (tree.get(name.as_str()), self.mode) {
                (None, Mode::Include) | (Some(Node::Whole), Mode::Exclude) => {}
                (None, Mode::Exclude) | (Some(Node::Whole), Mode::Include) => result.append(name, value),
                (Some(Node::Members(members)), _) => match value {
                    RawBsonRef::Document(inner) => result.append(name, self.object(inner, members)),
                    RawBsonRef::Array(list) => result.append(name, self.list(list, members)),
                    _ if self.mode == Mode::Exclude => result.append(name, value),
                    _ => {}
                },
                (Some(Node::Slice(slice)), _) => match value {
                    RawBsonRef::Array(list) => result.append(name, slice.of(list)),
                    _ => result.append(name, value),
                },
                (Some(Node::FirstMatch(_)), Mode::Include) => {}
                (Some(Node::FirstMatch(filter)), Mode::Exclude) => {
                    if let Some(list) = first_match(filter, value) {
                        result.append(name, list);
                    }
                }
            }
        }
        result
    }

    fn list(&self, list: &RawArray, members: &Tree) -> RawArrayBuf {
        let mut result = RawArrayBuf::new();
        for element in list.into_iter().map_while(std::result::Result::ok) {
            match element {
                RawBsonRef::Document(inner) => result.push(self.object(inner, members)),
                RawBsonRef::Array(inner) => result.push(self.list(inner, members)),
                value if self.mode == Mode::Exclude => result.push(value),
                _ => {}
            }
        }
        result
    }
}

/// A list of the first element that matches; nothing for another value than a list.
fn first_match(filter: &Filter, value: RawBsonRef<'_>) -> Option<RawArrayBuf> {
    let alone = |element: RawBsonRef<'_>| {
        let mut list = RawArrayBuf::new();
        list.push(element);
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("list"), &list);
        filter.matches(&document).then_some(list)
    };
    value.as_array()?.into_iter().map_while(std::result::Result::ok).find_map(alone)
}

impl Slice {
    fn of(self, list: &RawArray) -> RawArrayBuf {
        let length = list.into_iter().count();
        let magnitude = usize::try_from(self.skip.unsigned_abs()).unwrap_or(usize::MAX);
        let start = if self.skip < 0 { length.saturating_sub(magnitude) } else { magnitude };
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        list.into_iter().map_while(std::result::Result::ok).skip(start).take(limit).collect()
    }
}

#[cfg(test)]
mod tests;
