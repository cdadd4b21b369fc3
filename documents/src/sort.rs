//! The order in which `find` returns documents.
//!
//! 1. A document's sort key is bytes: two keys, compared byte by byte, have the order that the sort asks for. So the first
//!    documents of many are found with keys alone.
//! 2. Where a path reaches several values through lists, an ascending sort takes the least and a descending one the
//!    greatest. With several paths through one list the values of one element stay together.
//! 3. A missing value sorts as null, an empty list before null.

use crate::order::Number;
use crate::paths::{member, wrong_path};
use crate::{Code, Result, RuleError};
use bson::RawDocument;
use bson::raw::{RawArray, RawBsonRef};

/// The order in which documents come without a sort.
const NATURAL: &str = "$natural";

/// The most paths of a sort, as in MongoDB.
const PATHS_MAX: usize = 32;

/// A sort such as `{name: 1, "address.city": -1}`.
///
/// ```
/// use ebbtide_documents::{Sort, bson::rawdoc};
///
/// let sort = Sort::parse(&rawdoc! { "age": -1 })?;
/// let (ada, bob) = (rawdoc! { "age": 36 }, rawdoc! { "age": 41.5 });
/// assert!(sort.key(&bob)? < sort.key(&ada)?);
/// # Ok::<(), ebbtide_documents::RuleError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort(Vec<SortPath>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct SortPath {
    names: Vec<String>,
    descending: bool,
}

/// A path on its way through a document.
#[derive(Debug, Clone, Copy)]
enum Cursor<'s, 'd> {
    /// At its value.
    Done(RawBsonRef<'d>),
    /// At a list, with the names that follow for its elements.
    List(&'d RawArray, &'s [String]),
}

impl Sort {
    /// Reads the sort of a find. An empty one sorts nothing: all keys are equal. `{$natural: 1}` is an empty one.
    ///
    /// # Errors
    /// MongoDB's code for a direction other than 1 and -1 and for what is no path; `BadValue` for more than 32 paths, for
    /// `{$natural: -1}`, and for `$natural` beside paths.
    pub fn parse(sort: &RawDocument) -> Result<Sort> {
        let Some(direction) = member(sort, NATURAL) else { return Sort::of_paths(sort) };
        if sort.iter().nth(1).is_some() {
            return Err(bad(format!("{NATURAL} in a sort stands alone: leave it out, or sort by it alone")));
        }
        match Number::of(direction).and_then(Number::to_i64) {
            Some(1) => Ok(Sort(Vec::new())),
            Some(-1) => Err(bad(format!(
                "a sort by {{{NATURAL}: -1}} is not available: name the field whose order is to be turned around, as in {{_id: -1}}"
            ))),
            _ => Err(bad(format!("the direction of {NATURAL} in a sort must be 1"))),
        }
    }

    /// Reads the sort of a stage, which has paths alone.
    pub(crate) fn of_paths(sort: &RawDocument) -> Result<Sort> {
        let key = |member: std::result::Result<(&bson::raw::CStr, RawBsonRef<'_>), bson::error::Error>| {
            let (path, direction) = member.map_err(|error| bad(format!("the sort cannot be read: {error}")))?;
            let path = path.as_str();
            let names: Vec<String> = path.split('.').map(str::to_owned).collect();
            if let Some(code) = wrong_path(path) {
                return Err(RuleError::new(code, format!("'{path}' is not a field's path in a sort")));
            }
            let descending = match Number::of(direction).and_then(Number::to_i64) {
                Some(1) => false,
                Some(-1) => true,
                _ => {
                    let is_number = Number::of(direction).is_some();
                    let code = if is_number { Code::Location15975 } else { Code::Location15974 };
                    return Err(RuleError::new(code, format!("the direction of '{path}' in a sort must be 1 or -1")));
                }
            };
            Ok(SortPath { names, descending })
        };
        let paths: Vec<SortPath> = sort.iter().map(key).collect::<Result<_>>()?;
        if paths.len() > PATHS_MAX {
            return Err(bad(format!("a sort has at most {PATHS_MAX} paths, not {}", paths.len())));
        }
        Ok(Sort(paths))
    }

    /// Whether it sorts nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The paths, each with whether it sorts from the greatest down: for finding an index that has this order.
    pub fn paths(&self) -> impl Iterator<Item = (String, bool)> {
        self.0.iter().map(|path| (path.names.join("."), path.descending))
    }

    /// The top-level fields of its paths.
    pub(crate) fn fields(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|path| path.names.first().cloned())
    }

    /// The sort as a document.
    #[must_use]
    pub fn to_document(&self) -> bson::RawDocumentBuf {
        let mut document = bson::RawDocumentBuf::new();
        for path in &self.0 {
            if let Ok(name) = bson::raw::CString::try_from(path.names.join(".")) {
                document.append(name, if path.descending { -1 } else { 1 });
            }
        }
        document
    }

    /// The document's sort key: documents with lesser keys come first.
    ///
    /// # Errors
    /// `BadValue` if two paths lead through two different lists, of which no pairs can be made.
    pub fn key(&self, document: &RawDocument) -> Result<Vec<u8>> {
        let cursors: Vec<Cursor<'_, '_>> = self.0.iter().map(|path| enter(document, &path.names)).collect();
        let mut least = None;
        self.expand(&cursors, &mut least)?;
        Ok(least.unwrap_or_default())
    }

    /// Follows the cursors into the elements of the list at which they are, and keeps the least key.
    fn expand(&self, cursors: &[Cursor<'_, '_>], least: &mut Option<Vec<u8>>) -> Result<()> {
        let Some(list) = self.common_list(cursors)? else {
            let key = self.encode(cursors);
            if least.as_ref().is_none_or(|least| key < *least) {
                *least = Some(key);
            }
            return Ok(());
        };
        let mut next = Vec::with_capacity(cursors.len());
        let is_element =
            |cursor: &Cursor<'_, '_>| !matches!(cursor, Cursor::List(list, rest) if numbered(list, rest).is_none());
        if list.is_empty() || cursors.iter().all(is_element) {
            next.extend(cursors.iter().map(|cursor| cursor.in_element(None)));
            return self.expand(&next, least);
        }
        for element in list.into_iter().map_while(std::result::Result::ok) {
            next.clear();
            next.extend(cursors.iter().map(|cursor| cursor.in_element(Some(element))));
            self.expand(&next, least)?;
        }
        Ok(())
    }

    /// The list at which cursors are.
    fn common_list<'d>(&self, cursors: &[Cursor<'_, 'd>]) -> Result<Option<&'d RawArray>> {
        let mut common: Option<(usize, &RawArray)> = None;
        for (i, cursor) in cursors.iter().enumerate() {
            match (cursor, common) {
                (Cursor::Done(_), _) => {}
                (Cursor::List(list, _), None) => common = Some((i, *list)),
                (Cursor::List(list, _), Some((first, other))) if !std::ptr::eq(list.as_bytes(), other.as_bytes()) => {
                    let names = |i: usize| self.0.get(i).map_or_else(String::new, |path| path.names.join("."));
                    let message = format!(
                        "a document has lists on both paths of the sort, '{}' and '{}', of which no pairs can be made; \
                         sort by one of them",
                        names(first),
                        names(i)
                    );
                    return Err(RuleError::new(Code::BadValue, message));
                }
                (Cursor::List(..), Some(_)) => {}
            }
        }
        Ok(common.map(|(_, list)| list))
    }

    fn encode(&self, cursors: &[Cursor<'_, '_>]) -> Vec<u8> {
        let mut key = Vec::with_capacity(16 * cursors.len());
        for (path, cursor) in self.0.iter().zip(cursors) {
            let start = key.len();
            if let Cursor::Done(value) = cursor {
                crate::append_value_key(&mut key, *value);
            }
            if path.descending {
                // No value's key is the beginning of another one, so this turns the order around.
                key[start..].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        key
    }
}

impl<'s, 'd> Cursor<'s, 'd> {
    /// Where the path goes on in an element of the list, or in none of an empty list.
    fn in_element(self, element: Option<RawBsonRef<'d>>) -> Cursor<'s, 'd> {
        let Cursor::List(list, rest) = self else { return self };
        if let Some((element, after)) = numbered(list, rest) {
            return match element {
                // What a number names is one value, also if it is a list.
                RawBsonRef::Array(inner) if after.is_empty() && inner.is_empty() => Cursor::Done(RawBsonRef::Undefined),
                RawBsonRef::Array(inner) if !after.is_empty() => Cursor::List(inner, after),
                RawBsonRef::Document(object) if !after.is_empty() => enter(object, after),
                value if after.is_empty() => Cursor::Done(value),
                _ => Cursor::Done(RawBsonRef::Null),
            };
        }
        match element {
            Some(value) if rest.is_empty() => Cursor::Done(value),
            None if rest.is_empty() => Cursor::Done(RawBsonRef::Undefined),
            Some(RawBsonRef::Document(object)) => enter(object, rest),
            _ => Cursor::Done(RawBsonRef::Null),
        }
    }
}

fn bad(message: String) -> RuleError {
    RuleError::new(Code::BadValue, message)
}

/// Follows names to a value, or to the first list.
fn enter<'s, 'd>(object: &'d RawDocument, names: &'s [String]) -> Cursor<'s, 'd> {
    let mut value = RawBsonRef::Document(object);
    for (i, name) in names.iter().enumerate() {
        value = match value {
            RawBsonRef::Document(object) => member(object, name).unwrap_or(RawBsonRef::Null),
            RawBsonRef::Array(list) => return Cursor::List(list, &names[i..]),
            _ => RawBsonRef::Null,
        };
    }
    match value {
        RawBsonRef::Array(list) => Cursor::List(list, &[]),
        value => Cursor::Done(value),
    }
}

/// The element that a number names, if the list has it, and the names after that.
fn numbered<'s, 'd>(list: &'d RawArray, names: &'s [String]) -> Option<(RawBsonRef<'d>, &'s [String])> {
    let (first, after) = names.split_first()?;
    let is_number = first.bytes().all(|b| b.is_ascii_digit()) && (first == "0" || !first.starts_with('0'));
    let index = if is_number { first.parse().ok()? } else { return None };
    Some((list.get(index).ok()??, after))
}

#[cfg(test)]
mod tests;
