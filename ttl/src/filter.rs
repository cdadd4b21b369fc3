//! Filters: conditions on metas (partial TTL indexes) and on whole documents (find and delete).
//!
//! 1. A filter is kept as it was given, for listings, and in its normal form, for matching and for identity: two
//!    filters are equal iff their normal forms are.
//! 2. Filters with equal normal forms match the same values.
//! 3. A partial filter is positive: it matches a missing value only through an explicit null.

mod matching;
mod node;
mod parse;
mod text;

use crate::code::RuleError;
use crate::time::Timestamp;
use crate::value::{TypeClass, Value};
use node::{Condition, Node, Test};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

/// No filter nests deeper than this.
pub const FILTER_DEPTH_MAX: usize = 100;

/// How a value is compared with a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Comparison {
    /// `$gt`
    Gt,
    /// `$gte`
    Gte,
    /// `$lt`
    Lt,
    /// `$lte`
    Lte,
}

impl Comparison {
    /// The operator's name in filters.
    #[must_use]
    pub const fn operator(self) -> &'static str {
        match self {
            Comparison::Gt => "$gt",
            Comparison::Gte => "$gte",
            Comparison::Lt => "$lt",
            Comparison::Lte => "$lte",
        }
    }
}

/// A condition on a document's fields. Equality is that of the normal form.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct Filter {
    source: Value,
    root: Node,
}

impl Filter {
    /// Reads a `partialFilterExpression`: conditions on the meta field or its sub-fields alone.
    ///
    /// # Errors
    /// `TypeMismatch` unless it is an object; `CannotCreateIndex` for an operator that partial filters do not have;
    /// `BadValue` for a wrong operand or nesting beyond [`FILTER_DEPTH_MAX`]; `InvalidOptions` for an empty filter or
    /// clause, a field that is not of the meta, and a collection without a meta field. Operators are reported first.
    pub fn parse_partial(filter: &Value, meta_field: Option<&str>) -> Result<Filter, RuleError> {
        let root = parse::partial(filter, meta_field)?;
        Ok(Filter { source: filter.clone(), root })
    }

    /// Reads the filter of a find or a delete: any field, and `$ne`, `$nin`, `$not`, `$nor` and `$exists: false` too.
    ///
    /// # Errors
    /// `TypeMismatch` unless it is an object; `BadValue` for an operator that is not known or a wrong operand.
    pub fn parse_query(filter: &Value) -> Result<Filter, RuleError> {
        let root = parse::query(filter)?;
        Ok(Filter { source: filter.clone(), root })
    }

    /// The empty filter, which matches everything.
    #[must_use]
    pub fn everything() -> Filter {
        Self::of(Node::And(Vec::new()))
    }

    /// `{path: value}`: the value at a dotted path equals this one.
    #[must_use]
    pub fn eq(path: &str, value: Value) -> Filter {
        Self::of(Node::condition(path, Test::Eq(value.normalized())))
    }

    /// `{path: {$gt: bound}}`, `$gte`, `$lt` or `$lte`. Nothing is greater or less than an object, a list or null.
    #[must_use]
    pub fn compare(path: &str, comparison: Comparison, bound: Value) -> Filter {
        Self::of(Node::condition(path, Test::Compare(comparison, bound.normalized())))
    }

    /// `{path: {$in: values}}`: the value at a dotted path is one of these.
    #[must_use]
    pub fn is_in(path: &str, values: Vec<Value>) -> Filter {
        Self::of(Node::condition(path, Test::one_of(&values)))
    }

    /// `{path: {$exists: true}}`: there is a value, and it is not null.
    #[must_use]
    pub fn exists(path: &str) -> Filter {
        Self::of(Node::condition(path, Test::Exists))
    }

    /// `{path: {$type: ...}}`: the value's class is one of these.
    #[must_use]
    pub fn of_type(path: &str, classes: &[TypeClass]) -> Filter {
        Self::of(Node::condition(path, Test::Type(classes.iter().copied().collect())))
    }

    /// `$and`: matches what all of these match.
    #[must_use]
    pub fn and(filters: Vec<Filter>) -> Filter {
        Self::of(Node::and(filters.into_iter().map(|f| f.root).collect()))
    }

    /// `$or`: matches what at least one of these matches.
    #[must_use]
    pub fn or(filters: Vec<Filter>) -> Filter {
        Self::of(Node::or(filters.into_iter().map(|f| f.root).collect()))
    }

    /// `$nor` of one clause: matches what this does not match.
    #[must_use]
    pub fn negate(filter: Filter) -> Filter {
        Self::of(Node::not(filter.root))
    }

    fn of(root: Node) -> Filter {
        Filter { source: text::to_value(&root), root }
    }

    /// The filter as it was given.
    #[must_use]
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// The filter with its source replaced by its normal form.
    #[must_use]
    pub fn normalized(&self) -> Filter {
        Self::of(self.root.clone())
    }

    /// The normal form, written as a filter again.
    #[must_use]
    pub fn to_value(&self) -> Value {
        text::to_value(&self.root)
    }

    /// Whether the filter has no condition and so matches everything.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        matches!(&self.root, Node::And(all) if all.is_empty())
    }

    /// The top-level fields that the conditions mention.
    #[must_use]
    pub fn fields(&self) -> BTreeSet<&str> {
        let mut fields = BTreeSet::new();
        self.root.visit(&mut |condition| {
            fields.insert(condition.field());
        });
        fields
    }

    /// The dotted paths that the conditions mention.
    #[must_use]
    pub fn paths(&self) -> BTreeSet<String> {
        let mut paths = BTreeSet::new();
        self.root.visit(&mut |condition| {
            paths.insert(condition.path.join("."));
        });
        paths
    }

    /// Whether all conditions mention only the meta field or its sub-fields.
    #[must_use]
    pub fn is_meta_only(&self, meta_field: &str) -> bool {
        self.root.mentions_only(meta_field)
    }

    /// Whether a document matches; `field` returns a top-level field by name, null for a missing one.
    #[must_use]
    pub fn matches<'v>(&self, field: &dyn Fn(&str) -> Cow<'v, Value>) -> bool {
        matching::matches(&self.root, &|condition| matching::holds(condition, &field(condition.field())))
    }

    /// Whether a whole document matches.
    #[must_use]
    pub fn matches_document(&self, document: &Value) -> bool {
        matching::matches(&self.root, &|condition| {
            matching::holds(condition, document.get(condition.field()).unwrap_or(&Value::Null))
        })
    }

    /// Whether a meta value matches, for a filter that mentions only the meta field.
    #[must_use]
    pub fn matches_meta(&self, meta: &Value) -> bool {
        matching::matches(&self.root, &|condition| matching::holds(condition, meta))
    }

    /// The first and the last instant, both included, that a matching document's time field can have; `None` is no
    /// bound. For pruning: a document within the bounds need not match.
    #[must_use]
    pub fn time_bounds(&self, time_field: &str) -> (Option<Timestamp>, Option<Timestamp>) {
        matching::time_bounds(&self.root, time_field)
    }

    /// Bounds of the numbers in a top-level field of all documents that match, both inclusive; wider than the filter by what
    /// rounding may lose.
    #[must_use]
    pub fn number_bounds(&self, field: &str) -> (Option<f64>, Option<f64>) {
        matching::number_bounds(&self.root, field)
    }

    /// Whether it is nothing but comparisons of `time_field` with dates, all of which must hold: then
    /// [`Filter::time_bounds`] is exact for values of that field that are dates.
    #[must_use]
    pub fn is_time_range(&self, time_field: &str) -> bool {
        matching::is_time_range(&self.root, time_field)
    }

    /// The conjuncts, each usable for pruning since all must match; the filter itself if it is no conjunction.
    #[must_use]
    pub fn conjuncts(&self) -> Vec<Filter> {
        self.parts().iter().cloned().map(Self::of).collect()
    }

    fn parts(&self) -> &[Node] {
        match &self.root {
            Node::And(parts) => parts,
            other => std::slice::from_ref(other),
        }
    }

    /// The conjunction of the conjuncts that mention only `meta_field`. What it does not match, the whole filter does
    /// not match.
    #[must_use]
    pub fn meta_part(&self, meta_field: &str) -> Filter {
        let parts = self.parts().iter().filter(|part| part.mentions_only(meta_field));
        Self::of(Node::and(parts.cloned().collect()))
    }

    /// Whether each conjunct is a range of times, as [`Filter::is_time_range`] says, or mentions only the meta field.
    #[must_use]
    pub fn is_of_time_and_meta(&self, time_field: &str, meta_field: Option<&str>) -> bool {
        self.parts().iter().all(|part| {
            matching::is_time_range(part, time_field) || meta_field.is_some_and(|meta| part.mentions_only(meta))
        })
    }

    /// Paths below a top-level field, each with scalars: every document that matches has one of these scalars there, or a list with
    /// one of them. Paths with numbers, which may be elements of lists, are left out.
    #[must_use]
    pub fn candidates(&self, field: &str) -> Vec<(Vec<String>, Vec<Value>)> {
        let candidates = |part: &Node| {
            let Node::Condition(Condition { path, test }) = part else { return None };
            let values = match test {
                Test::Eq(value) => std::slice::from_ref(value),
                Test::In(values) => values,
                _ => return None,
            };
            let scalars = values.iter().all(|v| !matches!(v, Value::Null | Value::Object(_) | Value::Array(_)));
            let (first, below) = path.split_first()?;
            let of_names = below.iter().all(|name| matching::list_index(name).is_none());
            (scalars && of_names && first == field).then(|| (below.to_vec(), values.to_vec()))
        };
        self.parts().iter().filter_map(candidates).collect()
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl Eq for Filter {}

/// The filter as it was given, as compact JSON.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write_json(f, &self.source)
    }
}

impl From<Filter> for Value {
    fn from(filter: Filter) -> Value {
        filter.source
    }
}

impl TryFrom<Value> for Filter {
    type Error = RuleError;

    fn try_from(source: Value) -> Result<Filter, RuleError> {
        Ok(Filter { root: parse::query(&source)?, source })
    }
}

#[cfg(test)]
mod tests;
