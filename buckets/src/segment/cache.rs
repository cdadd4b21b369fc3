//! What is kept of open segments for the queries that come next: decoded columns, and documents that were found.

use super::block::Block;
use crate::keyed::StoredDocument;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Columns of open segments in blocks of rows, decoded, and single documents, under one budget of bytes. What was
/// used stays; what was not used while [`BlockCache::room`] was filled is dropped.
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
    Column(Block),
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
            Kept::Column(block) => block.bytes(),
            // With the entry in the map and the counts of what is shared.
            Kept::Document(kept) => {
                size_of::<KeptDocument>() + kept.key.len() + kept.found.document.document.len() + 128
            }
        }
    }
}

/// How many generations share the budget.
const GENERATIONS: usize = 8;

/// From the newest to the oldest: what is used moves to the newest, a new one begins when that has its share of the budget, and
/// the oldest is dropped.
#[derive(Debug, Default)]
struct Generations(VecDeque<Generation>);

#[derive(Debug, Default)]
struct Generation {
    kept: HashMap<Key, Kept, ahash::RandomState>,
    bytes: usize,
}

impl BlockCache {
    /// A cache with a budget in bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let (segments, hasher) = (AtomicU64::new(0), ahash::RandomState::new());
        BlockCache { bytes_max, segments, hasher, generations: Mutex::default() }
    }

    /// As many bytes as can be read again and again with every read finding all of them.
    #[must_use]
    pub fn room(&self) -> usize {
        self.bytes_max - self.bytes_max / GENERATIONS
    }

    /// A number for a segment that is opened.
    pub(crate) fn number(&self) -> u64 {
        self.segments.fetch_add(1, Ordering::Relaxed)
    }

    /// The blocks of some keys, where they are cached.
    pub(super) fn get(&self, keys: impl Iterator<Item = Key>) -> Vec<Option<Block>> {
        let mut generations = self.lock();
        let column = |kept| match kept {
            Kept::Column(block) => Some(block),
            Kept::Document(_) => None,
        };
        keys.map(|key| generations.get(key).and_then(column)).collect()
    }

    /// Keeps a block.
    pub(super) fn put(&self, key: Key, block: Block) {
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
            generations.shrink_to(self.bytes_max)
        };
        drop(gone); // Outside of the lock.
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&mut self, key: Key) -> Option<Kept> {
        let (newest, older) = self.0.make_contiguous().split_first_mut()?;
        if let Some(kept) = newest.kept.get(&key) {
            return Some(kept.clone());
        }
        let kept = older.iter_mut().find_map(|generation| generation.take(key))?;
        newest.add(key, kept.clone());
        Some(kept)
    }

    fn keep(&mut self, key: Key, kept: Kept) {
        if self.0.is_empty() {
            self.0.push_front(Generation::default());
        }
        for generation in &mut self.0 {
            generation.take(key);
        }
        if let Some(newest) = self.0.front_mut() {
            newest.add(key, kept);
        }
    }

    /// Begins a generation if the newest has its share of the budget, and removes the oldest until the others are within it.
    fn shrink_to(&mut self, bytes_max: usize) -> Vec<Generation> {
        if self.0.front().is_some_and(|newest| newest.bytes > bytes_max / GENERATIONS) {
            self.0.push_front(Generation::default());
        }
        let mut gone = Vec::new();
        while self.0.len() > GENERATIONS || self.0.iter().map(|generation| generation.bytes).sum::<usize>() > bytes_max
        {
            gone.extend(self.0.pop_back());
        }
        gone
    }
}

impl Generation {
    /// Adds what it does not have.
    fn add(&mut self, key: Key, kept: Kept) {
        self.bytes += kept.bytes();
        self.kept.insert(key, kept);
    }

    fn take(&mut self, key: Key) -> Option<Kept> {
        let kept = self.kept.remove(&key)?;
        self.bytes -= kept.bytes();
        Some(kept)
    }
}

#[cfg(test)]
mod tests;
