//! What an index says of the documents that are in no segment.
//!
//! Writers do nothing for it: a search brings it up to date with what was written since the search before. To find that, it keeps
//! the version of the entries that it is of, which shares its memory with the newer ones.

use super::segment_index::KEY_BYTES;
use super::stored::{Entries, Stored, raw};
use crate::sync::Mutex;
use bytes::Bytes;
use ebbtide_documents::{Interval, Path, index_keys, value_key};
use imbl::ordmap::DiffItem;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The indexes of a part of the memtable, by path. All versions of the part share them.
#[derive(Debug, Default)]
pub(super) struct MemtableIndexes(Mutex<BTreeMap<String, MemtableIndex>>);

impl MemtableIndexes {
    /// Adds the keys of the entries that may have a value of the path in one of the intervals.
    pub(super) fn find(&self, entries: &Entries, path: &Path, intervals: &[Interval], found: &mut BTreeSet<Bytes>) {
        let mut indexes = self.0.lock();
        let index = indexes.entry(path.as_str().to_owned()).or_default();
        index.follow(entries, path);
        intervals.iter().for_each(|interval| found.extend(index.keys_in(interval).cloned()));
    }

    /// Forgets the indexes on other paths than these.
    pub(super) fn forget_but(&self, paths: &[&str]) {
        self.0.lock().retain(|path, _| paths.contains(&path.as_str()));
    }

    /// Bytes in memory of the index on a path.
    pub(super) fn bytes(&self, path: &str) -> usize {
        let size = |(value, key): &(Vec<u8>, Bytes)| size_of::<(Vec<u8>, Bytes)>() + value.len() + key.len();
        self.0.lock().get(path).map_or(0, |index| index.values.iter().map(size).sum())
    }
}

#[derive(Debug, Default)]
struct MemtableIndex {
    /// The entries that it is of.
    of: Entries,
    /// The beginning of each value, with the key of its entry.
    values: BTreeSet<(Vec<u8>, Bytes)>,
}

impl MemtableIndex {
    fn follow(&mut self, entries: &Entries, path: &Path) {
        let MemtableIndex { of, values } = self;
        let of_entry = |key: &Bytes, entry: &Option<Stored>| -> Vec<(Vec<u8>, Bytes)> {
            let Some(stored) = entry else { return Vec::new() };
            let value = |value| {
                let mut value = value_key(value);
                value.truncate(KEY_BYTES);
                (value, key.clone())
            };
            index_keys(raw(&stored.document), path).into_iter().map(value).collect()
        };
        for change in of.diff(entries) {
            let (old, new) = match change {
                DiffItem::Add(key, new) => (Vec::new(), of_entry(key, new)),
                DiffItem::Update { old: (key, old), new: (_, new) } => (of_entry(key, old), of_entry(key, new)),
                DiffItem::Remove(key, old) => (of_entry(key, old), Vec::new()),
            };
            for value in &old {
                values.remove(value);
            }
            values.extend(new);
        }
        *of = entries.clone();
    }

    fn keys_in<'a>(&'a self, interval: &'a Interval) -> impl Iterator<Item = &'a Bytes> {
        let start = &interval.start[..interval.start.len().min(KEY_BYTES)];
        let from = Bound::Included((start.to_vec(), Bytes::new()));
        let values = self.values.range((from, Bound::Unbounded));
        values.take_while(|(value, _)| value.as_slice() < interval.end.as_slice()).map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests;
