//! Paths of updates: their names, their order, and which of them get in each other's way.

use crate::{Code, Result, RuleError};
use bson::raw::{CStr, CString};
use std::cmp::Ordering;
use std::fmt;

/// The most names of a path: a document has no more levels.
const NAMES_MAX: usize = 100;

/// A name of a path that stands for elements of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place<'n> {
    /// `$`: the element that matched the query.
    Matched,
    /// `$[name]`: those that match the filter of this name; all of them if it is empty.
    Elements(&'n str),
}

/// The elements that a name stands for; `None` if it is the name of a field.
pub(super) fn place(name: &str) -> Option<Place<'_>> {
    match name {
        "$" => Some(Place::Matched),
        name => name.strip_prefix("$[")?.strip_suffix(']').map(Place::Elements),
    }
}

/// A path of at least one name, none of them empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpdatePath(Vec<CString>);

impl UpdatePath {
    /// Takes a path of an operator apart.
    pub(super) fn parse(text: &str, operator: &str) -> Result<UpdatePath> {
        let error = |code, reason: &str| Err(RuleError::new(code, format!("{operator} of '{text}': {reason}")));
        if text.is_empty() {
            return error(Code::EmptyFieldName, "the path is empty; name a field");
        }
        let names: Vec<&str> = text.split('.').collect();
        if names.iter().any(|name| name.is_empty()) {
            return error(Code::EmptyFieldName, "the path has an empty name; write names with one dot between them");
        }
        match names.first().copied().and_then(place) {
            Some(Place::Matched) => {
                let reason = "Cannot have positional (i.e. '$') element in the first position in path";
                return error(Code::BadValue, reason);
            }
            Some(Place::Elements(_)) => {
                let reason =
                    "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path";
                return error(Code::BadValue, reason);
            }
            None => {}
        }
        if names.iter().filter(|name| **name == "$").count() > 1 {
            return error(Code::BadValue, "Too many positional (i.e. '$') elements found in path");
        }
        if let Some(name) = names.iter().find(|name| name.starts_with("$[") && place(name).is_none()) {
            let reason = format!("'{name}' lacks its closing bracket; write $[] for all elements, or $[name]");
            return error(Code::FailedToParse, &reason);
        }
        if names.len() > NAMES_MAX {
            return error(Code::BadValue, &format!("the path has more than {NAMES_MAX} names"));
        }
        let names: std::result::Result<_, _> = names.into_iter().map(CString::try_from).collect();
        match names {
            Ok(names) => Ok(UpdatePath(names)),
            Err(_) => error(Code::BadValue, "the path has a zero byte, which no field's name has"),
        }
    }

    /// A path to what an upsert's query gives: any names.
    pub(super) fn of_query(path: &CStr) -> Result<UpdatePath> {
        let names = path.as_str().split('.').map(CString::try_from).collect::<std::result::Result<Vec<_>, _>>();
        match names {
            Ok(names) if names.len() <= NAMES_MAX => Ok(UpdatePath(names)),
            _ => {
                let message = format!("the query's path '{path}' has more than {NAMES_MAX} names");
                Err(RuleError::new(Code::BadValue, message))
            }
        }
    }

    /// The path of these names.
    pub(super) fn of_names(names: Vec<CString>) -> UpdatePath {
        UpdatePath(names)
    }

    /// Whether it names elements of a list by `$`, `$[]` or `$[name]`.
    pub(super) fn has_places(&self) -> bool {
        self.0.iter().any(|name| place(name.as_str()).is_some())
    }

    /// Whether the two go on from one place by elements of a list and by a name, which cannot both be there.
    pub(super) fn clashes_with(&self, other: &UpdatePath) -> bool {
        let is_of_elements = |name: &CString| matches!(place(name.as_str()), Some(Place::Elements(_)));
        let differ = self.0.iter().zip(&other.0).find(|(a, b)| a != b);
        differ.is_some_and(|(a, b)| is_of_elements(a) != is_of_elements(b))
    }

    pub(super) fn names(&self) -> &[CString] {
        &self.0
    }

    /// The first name: that of a top-level field.
    pub(super) fn field(&self) -> &str {
        self.0.first().map_or("", |name| name.as_str())
    }

    /// Whether it is the other path, or one to something in which the other path goes on.
    pub(super) fn contains(&self, other: &UpdatePath) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The path up to the name with this number.
    pub(super) fn up_to(&self, last: usize) -> String {
        let names: Vec<&str> = self.0.iter().take(last + 1).map(|name| name.as_str()).collect();
        names.join(".")
    }
}

impl fmt::Display for UpdatePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.up_to(self.0.len()))
    }
}

/// The order in which changes are applied, and so that of new fields: name by name, numbers by value.
impl Ord for UpdatePath {
    fn cmp(&self, other: &Self) -> Ordering {
        let names = self.0.iter().zip(&other.0).map(|(a, b)| compare_names(a.as_str(), b.as_str()));
        names.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| self.0.len().cmp(&other.0.len()))
    }
}

impl PartialOrd for UpdatePath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Numbers come where their digits come among other names, and among themselves by value. MongoDB compares a number with
/// another name byte by byte, which is no order (5 < 10 < 1a < 5); here the number is first.
fn compare_names(a: &str, b: &str) -> Ordering {
    let place = |name: &str| match name.parse::<u64>() {
        Ok(number) if name.bytes().all(|b| b.is_ascii_digit()) => (1, number),
        _ if name.as_bytes().first().is_none_or(|b| *b < b'0') => (0, 0),
        _ => (2, 0),
    };
    place(a).cmp(&place(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests;
