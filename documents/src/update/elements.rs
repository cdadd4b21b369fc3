//! Paths that name elements of lists: `$`, `$[]` and `$[name]`.
//!
//! 1. Such a path stands for the paths to the elements that it means in the document as it is before the update.
//! 2. A name within the brackets is that of a filter in `arrayFilters`. Each name has one, and each filter is used.

use super::apply::Change;
use super::parse::refuse_conflicts;
use super::path::{Place, UpdatePath, place};
use super::tree::damaged;
use crate::paths::member;
use crate::raw::{list_as_object, type_name};
use crate::{Code, Filter, Purpose, Result, RuleError};
use bson::RawDocument;
use bson::raw::{CString, RawArray, RawBsonRef, RawDocumentBuf};

/// Bytes that the changes of elements write at most: far more than a document holds.
const BYTES_MAX: usize = 4 * crate::DOCUMENT_BYTES_MAX;

/// What elements the paths of an update mean.
#[derive(Debug, Clone, Default)]
pub(super) struct Elements {
    /// By the name of the element.
    filters: Vec<(String, Filter)>,
    /// Whether a path has a place for elements.
    pub(super) are_named: bool,
    /// Whether a path has `$`.
    pub(super) has_match: bool,
}

fn failed(message: String) -> RuleError {
    RuleError::new(Code::FailedToParse, message)
}

fn bad(message: String) -> RuleError {
    RuleError::new(Code::BadValue, message)
}

impl Elements {
    /// Reads `arrayFilters`, for changes that use them.
    pub(super) fn parse(filters: Option<&RawArray>, changes: &[Change]) -> Result<Elements> {
        let mut elements = Elements::default();
        for filter in filters.into_iter().flatten() {
            let filter = match filter.map_err(|error| damaged(&error))? {
                RawBsonRef::Document(filter) => filter,
                other => {
                    let message = format!("arrayFilters: expected filters, got a value of type {}", type_name(other));
                    return Err(RuleError::new(Code::TypeMismatch, message));
                }
            };
            let parsed = Filter::parse(filter, Purpose::Find).map_err(|error| {
                RuleError::new(error.code, format!("Error parsing array filter: {}", error.message))
            })?;
            let name = element_name(filter)?;
            if elements.get(&name).is_some() {
                let message = format!("Found multiple array filters with the same top-level field name {name}");
                return Err(failed(message));
            }
            elements.filters.push((name, parsed));
        }
        elements.check(changes)?;
        Ok(elements)
    }

    /// Refuses names without a filter, and filters that no path uses.
    fn check(&mut self, changes: &[Change]) -> Result<()> {
        let mut used: Vec<&str> = Vec::new();
        for path in changes.iter().flat_map(|change| change.paths()) {
            for name in path.names() {
                match place(name.as_str()) {
                    None => continue,
                    Some(Place::Matched) => self.has_match = true,
                    Some(Place::Elements("")) => {}
                    Some(Place::Elements(name)) if self.get(name).is_none() => {
                        return Err(bad(format!("No array filter found for identifier '{name}' in path '{path}'")));
                    }
                    Some(Place::Elements(name)) => used.push(name),
                }
                self.are_named = true;
            }
        }
        match self.filters.iter().find(|(name, _)| !used.contains(&name.as_str())) {
            Some((name, _)) => {
                Err(failed(format!("The array filter for identifier '{name}' was not used in the update")))
            }
            None => Ok(()),
        }
    }

    fn get(&self, name: &str) -> Option<&Filter> {
        self.filters.iter().find(|(known, _)| known == name).map(|(_, filter)| filter)
    }

    /// The changes with the paths to elements in the place of those that stand for them, in the order in which they are applied.
    /// `matched` is the element that `$` means.
    pub(super) fn expanded(
        &self,
        changes: &[Change],
        document: &RawDocument,
        matched: Option<usize>,
    ) -> Result<Vec<Change>> {
        let (mut all, mut bytes) = (Vec::with_capacity(changes.len()), 0);
        for change in changes {
            let mut walk = Walk { change, elements: self, matched, prefix: Vec::new(), found: Vec::new(), bytes };
            walk.visit(Some(RawBsonRef::Document(document)), change.path.names())?;
            bytes = walk.bytes;
            all.extend(walk.found);
        }
        refuse_conflicts(&all)?;
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }
}

/// The top-level field that all conditions of a filter are about.
fn element_name(filter: &RawDocument) -> Result<String> {
    let mut names = Vec::new();
    collect_names(filter, &mut names);
    let Some(first) = names.first() else {
        return Err(failed("Cannot use an expression without a top-level field name in arrayFilters".to_owned()));
    };
    if let Some(other) = names.iter().find(|name| *name != first) {
        return Err(failed(format!(
            "Error parsing array filter: Expected a single top-level field name, found '{first}' and '{other}'"
        )));
    }
    let begins = first.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if !begins || !first.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(bad(format!(
            "Error parsing array filter: The top-level field name must be an alphanumeric string beginning with a \
             lowercase letter, found '{first}'"
        )));
    }
    Ok((*first).to_owned())
}

fn collect_names<'f>(filter: &'f RawDocument, names: &mut Vec<&'f str>) {
    for (name, value) in filter.iter().map_while(std::result::Result::ok) {
        match (name.as_str(), value) {
            ("$and" | "$or" | "$nor", RawBsonRef::Array(clauses)) => {
                let clauses = clauses.into_iter().map_while(std::result::Result::ok);
                clauses.filter_map(RawBsonRef::as_document).for_each(|clause| collect_names(clause, names));
            }
            (operator, _) if operator.starts_with('$') => {}
            (path, _) => names.extend(path.split('.').next()),
        }
    }
}

/// A walk along the path of a change, to all elements that it means.
struct Walk<'w> {
    change: &'w Change,
    elements: &'w Elements,
    matched: Option<usize>,
    /// The names so far.
    prefix: Vec<CString>,
    found: Vec<Change>,
    bytes: usize,
}

impl Walk<'_> {
    fn visit(&mut self, value: Option<RawBsonRef<'_>>, names: &[CString]) -> Result<()> {
        let is_place = |name: &CString| place(name.as_str()).is_some();
        let (Some((name, rest)), true) = (names.split_first(), names.iter().any(is_place)) else {
            return self.add(names);
        };
        match place(name.as_str()) {
            None => self.enter(name.clone(), value.and_then(|value| inner(value, name.as_str())), rest),
            Some(Place::Matched) => {
                let Some(at) = self.matched else {
                    let reason = "The positional operator did not find the match needed from the query";
                    return Err(self.change.error(Code::BadValue, reason));
                };
                let name = index_name(at)?;
                let value = value.and_then(|value| inner(value, name.as_str()));
                self.enter(name, value, rest)
            }
            Some(Place::Elements(id)) => {
                let list = self.list(value)?;
                let elements = self.elements;
                let filter = elements.get(id);
                for (at, element) in list.into_iter().enumerate() {
                    let element = element.map_err(|error| damaged(&error))?;
                    let is_meant = match filter {
                        Some(filter) => filter.matches(&named(id, element)?),
                        None => true,
                    };
                    if is_meant {
                        self.enter(index_name(at)?, Some(element), rest)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn enter(&mut self, name: CString, value: Option<RawBsonRef<'_>>, rest: &[CString]) -> Result<()> {
        self.prefix.push(name);
        self.visit(value, rest)?;
        self.prefix.pop();
        Ok(())
    }

    /// The list whose elements are named.
    fn list<'v>(&self, value: Option<RawBsonRef<'v>>) -> Result<&'v RawArray> {
        let path = UpdatePath::of_names(self.prefix.clone());
        let reason = match value {
            Some(RawBsonRef::Array(list)) => return Ok(list),
            Some(other) => {
                format!("Cannot apply array updates to non-array element '{path}' of type {}", type_name(other))
            }
            None => format!("The path '{path}' must exist in the document in order to apply array updates"),
        };
        Err(self.change.error(Code::BadValue, &reason))
    }

    /// Adds the change of the path that is reached, with these names after it.
    fn add(&mut self, rest: &[CString]) -> Result<()> {
        let names: Vec<CString> = self.prefix.iter().chain(rest).cloned().collect();
        self.bytes += self.change.action.bytes() + names.iter().map(|name| name.as_str().len()).sum::<usize>();
        if self.bytes > BYTES_MAX {
            let reason = "the changes of all elements write more than a document of 16 MiB holds";
            return Err(self.change.error(Code::BSONObjectTooLarge, reason));
        }
        self.found.push(Change { path: UpdatePath::of_names(names), ..self.change.clone() });
        Ok(())
    }
}

/// A member of an object, or an element of a list by its number.
fn inner<'v>(value: RawBsonRef<'v>, name: &str) -> Option<RawBsonRef<'v>> {
    match value {
        RawBsonRef::Document(object) => member(object, name),
        RawBsonRef::Array(list) => member(list_as_object(list)?, name),
        _ => None,
    }
}

fn index_name(at: usize) -> Result<CString> {
    CString::try_from(at.to_string()).map_err(|error| bad(error.to_string()))
}

/// An element under its name in the filters.
fn named(name: &str, element: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    let mut document = RawDocumentBuf::new();
    document.append(CString::try_from(name).map_err(|error| bad(error.to_string()))?, element);
    Ok(document)
}
