//! What is kept of open segments for the queries that come next: decoded columns, and documents that were found.

use crate::keyed::StoredDocument;
use arrow::array::{Array, ArrayRef};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Columns of open segments in blocks of rows, decoded, and single documents, under one budget of bytes. What was
/// used stays; what was not used while half of the budget was filled is dropped.
#[derive(Debug)]
pub struct BlockCache {
    bytes_max: usize,
    segments: AtomicU64,
    hasher: ahash::RandomState,
    generations: Mutex<Generations>,
}

/// A block: the number of its segment in the cache, of its column in the file, and its own number in the column.
pub(super) type Key = (u64, usize, u64);

/// The place of documents, beside the columns of files: their owner is in the place of the segment, the hash of their key
/// in that of the block.
const DOCUMENTS: usize = usize::MAX - 1;

#[derive(Debug, Clone)]
enum Kept {
    Column(ArrayRef),
    Document(Arc<KeptDocument>),
}

/// A document that was found by its key.
#[derive(Debug)]
struct KeptDocument {
    key: Box<[u8]>,
    found: FoundDocument,
}

/// A document, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDocument {
    /// The number of the segment, as the caller counts them.
    pub segment: u64,
    /// The row in the segment.
    pub row: u32,
    /// The document.
    pub document: StoredDocument,
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Kept::Column(block) => block.get_array_memory_size(),
            // With the entry in the map and the counts of what is shared.
            Kept::Document(kept) => {
                size_of::<KeptDocument>() + kept.key.len() + kept.found.document.document.len() + 128
            }
        }
    }
}

type Blocks = HashMap<Key, Kept, ahash::RandomState>;

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
        let (segments, hasher) = (AtomicU64::new(0), ahash::RandomState::new());
        BlockCache { bytes_max, segments, hasher, generations: Mutex::default() }
    }

    /// The budget.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// A number for a segment that is opened.
    pub(crate) fn number(&self) -> u64 {
        self.segments.fetch_add(1, Ordering::Relaxed)
    }

    /// The blocks of some keys, where they are cached.
    pub(super) fn get(&self, keys: impl Iterator<Item = Key>) -> Vec<Option<ArrayRef>> {
        let mut generations = self.lock();
        let column = |kept| match kept {
            Kept::Column(block) => Some(block),
            Kept::Document(_) => None,
        };
        keys.map(|key| generations.get(key).and_then(column)).collect()
    }

    /// Keeps a block.
    pub(super) fn put(&self, key: Key, block: ArrayRef) {
        self.keep(key, Kept::Column(block));
    }

    /// The document that was found last under a key of an owner, such as a collection. It is for the caller to know whether
    /// the row is still the one that counts.
    #[must_use]
    pub fn document(&self, owner: u64, key: &[u8]) -> Option<FoundDocument> {
        let kept = self.lock().get((owner, DOCUMENTS, self.hasher.hash_one(key)));
        match kept {
            Some(Kept::Document(kept)) if *kept.key == *key => Some(kept.found.clone()),
            _ => None,
        }
    }

    /// Keeps a document, unless it alone would fill a good part of the budget.
    pub fn put_document(&self, owner: u64, key: &[u8], found: FoundDocument) {
        let kept = Kept::Document(Arc::new(KeptDocument { key: key.into(), found }));
        if kept.bytes() <= self.bytes_max / 16 {
            self.keep((owner, DOCUMENTS, self.hasher.hash_one(key)), kept);
        }
    }

    fn keep(&self, key: Key, kept: Kept) {
        let gone = {
            let mut generations = self.lock();
            generations.keep(key, kept);
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
    fn get(&mut self, key: Key) -> Option<Kept> {
        if let Some(kept) = self.recent.get(&key) {
            return Some(kept.clone());
        }
        let kept = self.older.remove(&key)?;
        self.keep(key, kept.clone());
        Some(kept)
    }

    fn keep(&mut self, key: Key, kept: Kept) {
        self.recent_bytes += kept.bytes();
        if let Some(before) = self.recent.insert(key, kept) {
            self.recent_bytes -= before.bytes();
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
