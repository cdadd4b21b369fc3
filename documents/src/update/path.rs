//! Paths of updates: their names, their order, and which of them get in each other's way.

use crate::{Code, Result, RuleError};
use bson::raw::{CStr, CString};
use std::cmp::Ordering;
use std::fmt;

/// The most names of a path: a document has no more levels.
const NAMES_MAX: usize = 100;

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
        if let Some(name) = names.iter().find(|name| **name == "$" || name.starts_with("$[")) {
            let reason = format!("'{name}' is not available in paths; name the element of the list by its number");
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
