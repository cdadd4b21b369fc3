//! What the log of an archive says of the metas in a file.

use ebbtide_ttl::Value;
use std::cmp::Ordering;

/// The least and the greatest value of a member of the metas in a file; metas that lack it do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedBounds {
    /// The names that lead to it, the meta field first.
    pub path: Vec<String>,
    /// The least value, or one below it.
    pub min: Value,
    /// The greatest value, or one above it.
    pub max: Value,
}

impl ArchivedBounds {
    /// Whether no meta in the file has this value. Null and NaN are never said to be missing.
    #[must_use]
    pub fn excludes(&self, value: &Value) -> bool {
        let is = |bound: &Value, order| value.compare_in_class(bound) == Some(order);
        !value.is_null() && (is(&self.min, Ordering::Less) || is(&self.max, Ordering::Greater))
    }
}

/// Whether there may be metas of interest within bounds: for each path, one of the values.
pub(crate) fn may_have_metas(bounds: &[ArchivedBounds], wanted: &[(Vec<String>, Vec<Value>)]) -> bool {
    let excludes = |(path, values): &(Vec<String>, Vec<Value>)| {
        let of_path = |bounds: &&ArchivedBounds| bounds.path == *path;
        bounds.iter().filter(of_path).any(|bounds| values.iter().all(|value| bounds.excludes(value)))
    };
    !wanted.iter().any(excludes)
}
