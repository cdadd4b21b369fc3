//! Numbers for metas, which mean the same in all segments.

use ebbtide_buckets::{MetaKey, to_number};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The metas of a result, numbered in order of appearance.
#[derive(Default)]
pub(super) struct MetaNumbers {
    pub(super) keys: Vec<MetaKey>,
    numbers: HashMap<MetaKey, u32, ahash::RandomState>,
}

impl MetaNumbers {
    /// The number of a known meta; 0 if metas are not told apart.
    pub(super) fn of(&self, key: &MetaKey) -> u32 {
        self.numbers.get(key).copied().unwrap_or(0)
    }

    /// The number of a meta, which is added if it is new.
    pub(super) fn number(&mut self, key: MetaKey) -> u32 {
        let next = to_number(self.keys.len());
        match self.numbers.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.keys.push(new.key().clone());
                *new.insert(next)
            }
        }
    }
}
