//! How often each index tells a command where to look. This is in memory only.

use super::options::IndexSpec;
use ebbtide_ttl::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// How often an index was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexUse {
    /// The index: `_id_` for look-ups by `_id`.
    pub name: String,
    /// Finds, counts, updates, deletes and the like that it told where to look.
    pub count: u64,
    /// Since when they are counted: since the index was created, or since the database was opened if that was later.
    pub since: Timestamp,
}

#[derive(Debug, Default)]
struct Counter {
    count: AtomicU64,
    since: OnceLock<Timestamp>,
}

/// The uses of the indexes of a collection, which all versions share that have the same indexes.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    id: Arc<Counter>,
    indexes: Vec<(IndexSpec, Arc<Counter>)>,
}

impl Usage {
    /// Counters for these indexes; those that were there go on counting.
    pub(crate) fn of(&self, indexes: &[IndexSpec]) -> Usage {
        let known = |index: &IndexSpec| {
            let same = self.indexes.iter().find(|(known, _)| known.name == index.name && known.key == index.key);
            same.map(|(_, counter)| counter.clone()).unwrap_or_default()
        };
        let indexes = indexes.iter().map(|index| (index.clone(), known(index))).collect();
        Usage { id: self.id.clone(), indexes }
    }

    /// Says that indexes without an instant are there since this one.
    pub(crate) fn begin(&self, now: Timestamp) {
        for counter in self.indexes.iter().map(|(_, counter)| counter).chain([&self.id]) {
            counter.since.get_or_init(|| now);
        }
    }

    pub(crate) fn count_id(&self) {
        self.id.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, name: &str) {
        if let Some((_, counter)) = self.indexes.iter().find(|(index, _)| index.name == name) {
            counter.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The uses until now.
    pub(crate) fn list(&self) -> Vec<IndexUse> {
        let shown = |name: &str, counter: &Counter| IndexUse {
            name: name.to_owned(),
            count: counter.count.load(Ordering::Relaxed),
            since: counter.since.get().copied().unwrap_or(Timestamp::EPOCH),
        };
        let others = self.indexes.iter().map(|(index, counter)| shown(&index.name, counter));
        [shown("_id_", &self.id)].into_iter().chain(others).collect()
    }
}

#[cfg(test)]
mod tests;
