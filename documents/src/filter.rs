//! Filters on documents, with the meaning that MongoDB gives them.
//!
//! 1. A filter is kept as it was written, for listings and for the identity of indexes, and as a tree of conditions.
//! 2. A condition on a path holds if it holds for one of the values that the path reaches: through lists, and a list at
//!    its end counts by its elements and as itself. Several conditions on one path may each be met by another element;
//!    `$elemMatch` asks for one element that meets all.
//! 3. Comparisons hold only within a class of types: `{a: {$gt: 5}}` does not match a text. Null equals missing. NaN is
//!    equal to itself, and neither less nor greater than a number.
//! 4. [`Filter::intervals`] and [`Filter::id_keys`] only leave out what cannot match; what they leave in is matched.

mod bounds;
mod matching;
mod node;
mod operands;
mod parse;
mod pattern;

pub use bounds::{Interval, Multiplicity};
pub(crate) use operands::type_named;
pub(crate) use pattern::{Found, Pattern};

use crate::Result;
use crate::paths::Path;
use bson::{RawDocument, RawDocumentBuf};
use node::Node;
use std::fmt;

/// What a filter is for: it decides which operators it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// `find`, `update`, `delete`, `aggregate`: all operators. `$comment` has no effect. `$expr` and `$sampleRate` are not among them:
    /// expressions can fail, which [`Filter::matches`] cannot ([`crate::split_expressions`]).
    Find,
    /// A `partialFilterExpression`: equality, `$eq $in $gt $gte $lt $lte $type $and $or` and `$exists: true`.
    Partial,
}

/// A condition on documents.
#[derive(Debug, Clone)]
pub struct Filter {
    source: RawDocumentBuf,
    root: Node,
}

impl Filter {
    /// Reads a filter.
    ///
    /// ```
    /// use ebbtide_documents::{Filter, Purpose, json::document_from_json};
    /// use serde_json::json;
    ///
    /// let filter = Filter::parse(&document_from_json(&json!({"tags": "new", "n": {"$gt": 1}}))?, Purpose::Find)?;
    /// assert!(filter.matches(&document_from_json(&json!({"tags": ["hot", "new"], "n": 1.5}))?));
    /// assert!(!filter.matches(&document_from_json(&json!({"tags": ["hot", "new"], "n": "2"}))?));
    /// # Ok::<(), ebbtide_documents::RuleError>(())
    /// ```
    ///
    /// # Errors
    /// For [`Purpose::Find`]: `BadValue`, naming the operator, for one that does not exist or has a wrong operand, a
    /// regular expression that cannot be used, and more than 100 levels.
    ///
    /// For [`Purpose::Partial`] also: `CannotCreateIndex`, naming the operator, for one that partial filters do not have;
    /// `InvalidOptions` for an empty filter and an empty clause. Of several faults, operators are reported first.
    pub fn parse(filter: &RawDocument, purpose: Purpose) -> Result<Filter> {
        Ok(Filter { source: filter.to_owned(), root: parse::filter(filter, purpose)? })
    }

    /// The empty filter, which matches everything.
    #[must_use]
    pub fn everything() -> Filter {
        Filter { source: RawDocumentBuf::new(), root: Node::And(Vec::new()) }
    }

    /// The top-level fields that it asks for.
    #[must_use]
    pub fn fields(&self) -> Vec<String> {
        let mut fields = Vec::new();
        self.root.add_fields(&mut fields);
        fields
    }

    /// Whether a document matches.
    #[must_use]
    pub fn matches(&self, document: &RawDocument) -> bool {
        self.root.matches(document)
    }

    /// The filter as it was written.
    #[must_use]
    pub fn as_document(&self) -> &RawDocument {
        &self.source
    }

    /// Whether the filter has no condition and so matches everything.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        matches!(&self.root, Node::And(all) if all.is_empty())
    }

    /// The keys of [`crate::id_key`] that the `_id` of a matching document can have, in order; `None` if the filter does
    /// not name them. Of a document with another `_id` it is certain that it does not match.
    #[must_use]
    pub fn id_keys(&self) -> Option<Vec<Vec<u8>>> {
        bounds::id_keys(&self.root)
    }

    /// Intervals of [`crate::value_key`] for an index on `path`: every matching document has a value there, among those of
    /// [`crate::index_keys`], whose key lies in one of them. In order, apart from each other; none at all if nothing can
    /// match. `None` if the filter says nothing about the path.
    ///
    /// With [`Multiplicity::Many`] conditions on one path are not narrowed by each other: `{a: {$gt: 5, $lt: 3}}` matches
    /// `{a: [9, 1]}`.
    #[must_use]
    pub fn intervals(&self, path: &Path, multiplicity: Multiplicity) -> Option<Vec<Interval>> {
        bounds::intervals(&self.root, path, multiplicity)
    }
}

/// Equal are filters that are written alike, to the bit: types and the order of fields count.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Filter {}

/// The filter as relaxed Extended JSON.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::json::relaxed_text(&self.source))
    }
}

#[cfg(test)]
mod tests;
