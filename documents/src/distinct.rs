//! The values of `distinct`.
//!
//! 1. A path goes through objects by name and through lists into each element that is an object; a number means the
//!    element with that number. Of a list at its end the elements count; an empty one gives nothing.
//! 2. Equal values are one value, of whichever type it was seen first; null is a value, a missing one is none.

use crate::paths::{member, wrong_path};
use crate::{Result, RuleError};
use bson::RawDocument;
use bson::raw::{RawArray, RawBson, RawBsonRef};
use std::collections::BTreeMap;

/// Collects the different values that a path reaches in documents.
///
/// ```
/// use ebbtide_documents::{Distinct, bson::{rawdoc, RawBson}};
///
/// let mut tags = Distinct::new("tags")?;
/// tags.add(&rawdoc! { "tags": ["b", "a"] });
/// tags.add(&rawdoc! { "tags": "b" });
/// assert_eq!(tags.into_values(), ["a", "b"].map(|tag| RawBson::String(tag.into())));
/// # Ok::<(), ebbtide_documents::RuleError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Distinct {
    names: Vec<String>,
    values: BTreeMap<Vec<u8>, RawBson>,
    bytes: usize,
}

impl Distinct {
    /// Begins with no values.
    ///
    /// # Errors
    /// MongoDB's codes for what is no path: `Location40352`, `Location40353`, `Location15998`, `Location16410`.
    pub fn new(path: &str) -> Result<Distinct> {
        if let Some(code) = wrong_path(path) {
            return Err(RuleError::new(code, format!("'{path}' is not a field's path in distinct")));
        }
        let names: Vec<String> = path.split('.').map(str::to_owned).collect();
        Ok(Distinct { names, values: BTreeMap::new(), bytes: 0 })
    }

    /// Adds the values of a document.
    pub fn add(&mut self, document: &RawDocument) {
        let Distinct { names, values, bytes } = self;
        visit(document, names, &mut |value| {
            let key = crate::value_key(value);
            let length = key.len();
            values.entry(key).or_insert_with(|| {
                *bytes += length;
                crate::raw::owned(value)
            });
        });
    }

    /// About how many bytes the values take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The values in the order of BSON.
    #[must_use]
    pub fn into_values(self) -> Vec<RawBson> {
        self.values.into_values().collect()
    }
}

fn visit(object: &RawDocument, names: &[String], visitor: &mut dyn FnMut(RawBsonRef<'_>)) {
    let Some((first, rest)) = names.split_first() else { return };
    if let Some(value) = member(object, first) {
        visit_value(value, rest, visitor);
    }
}

fn visit_value(value: RawBsonRef<'_>, rest: &[String], visitor: &mut dyn FnMut(RawBsonRef<'_>)) {
    match value {
        RawBsonRef::Document(object) if !rest.is_empty() => visit(object, rest, visitor),
        RawBsonRef::Array(list) => visit_list(list, rest, visitor),
        value if rest.is_empty() => visitor(value),
        _ => {}
    }
}

fn visit_list(list: &RawArray, rest: &[String], visitor: &mut dyn FnMut(RawBsonRef<'_>)) {
    let elements = || list.into_iter().map_while(std::result::Result::ok);
    match rest.split_first() {
        None => elements().for_each(visitor),
        Some((first, after)) if first.bytes().all(|b| b.is_ascii_digit()) => {
            if let Some(element) = first.parse().ok().and_then(|index| elements().nth(index)) {
                visit_value(element, after, visitor);
            }
        }
        Some(_) => {
            for object in elements().filter_map(|element| element.as_document()) {
                visit(object, rest, visitor);
            }
        }
    }
}

#[cfg(test)]
mod tests;
