//! Metas between two bounds.

use super::MetaFilter;
use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use ebbtide_buckets::{MetaKey, keys_of_column};

/// Selects metas from one key on, inclusive, to another, exclusive.
#[derive(Debug)]
pub(super) struct MetaRange {
    pub(super) from: Option<MetaKey>,
    pub(super) before: Option<MetaKey>,
}

impl MetaFilter for MetaRange {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        let (keys, places) = keys_of_column(Some(metas), metas.len());
        let is_in = |key: &MetaKey| {
            self.from.as_ref().is_none_or(|from| key >= from) && self.before.as_ref().is_none_or(|before| key < before)
        };
        let selected: Vec<bool> = keys.iter().map(is_in).collect();
        Ok(places.iter().map(|place| Some(selected[*place as usize])).collect())
    }
}
