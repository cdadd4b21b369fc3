//! Decoded columns, kept for later queries.

use arrow::array::{Array, ArrayRef};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Columns of open segments in blocks of rows, decoded, under a budget of bytes. Blocks that were
/// used stay; those that were not used while half of the budget was filled are dropped.
#[derive(Debug)]
pub struct BlockCache {
    bytes_max: usize,
    segments: AtomicU64,
    generations: Mutex<Generations>,
}

/// A block: the number of its segment in the cache, of its column in the file, and its own number in the column.
pub(super) type Key = (u64, usize, u64);

type Blocks = HashMap<Key, ArrayRef, ahash::RandomState>;

/// Two generations: what is used in the older one moves to the recent one, which becomes the older one when it is full.
#[derive(Debug, Default)]
struct Generations {
    recent: Blocks,
    recent_bytes: usize,
    older: Blocks,
}

impl BlockCache {
    /// A cache with a budget in bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        BlockCache { bytes_max, segments: AtomicU64::new(0), generations: Mutex::default() }
    }

    /// The budget.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// A number for a segment that is opened.
    pub(super) fn number(&self) -> u64 {
        self.segments.fetch_add(1, Ordering::Relaxed)
    }

    /// The blocks of some keys, where they are cached.
    pub(super) fn get(&self, keys: impl Iterator<Item = Key>) -> Vec<Option<ArrayRef>> {
        let mut generations = self.lock();
        keys.map(|key| generations.get(key)).collect()
    }

    /// Keeps a block.
    pub(super) fn put(&self, key: Key, block: ArrayRef) {
        let gone = {
            let mut generations = self.lock();
            generations.keep(key, block);
            match generations.recent_bytes * 2 > self.bytes_max {
                true => generations.grow_old(),
                false => Blocks::default(),
            }
        };
        drop(gone); // Outside of the lock.
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&mut self, key: Key) -> Option<ArrayRef> {
        if let Some(block) = self.recent.get(&key) {
            return Some(block.clone());
        }
        let block = self.older.remove(&key)?;
        self.keep(key, block.clone());
        Some(block)
    }

    fn keep(&mut self, key: Key, block: ArrayRef) {
        self.recent_bytes += block.get_array_memory_size();
        if let Some(before) = self.recent.insert(key, block) {
            self.recent_bytes -= before.get_array_memory_size();
        }
    }

    /// Drops the older generation.
    fn grow_old(&mut self) -> Blocks {
        self.recent_bytes = 0;
        std::mem::replace(&mut self.older, std::mem::take(&mut self.recent))
    }
}

#[cfg(test)]
mod tests;
