//! Everything that exists at one moment: the effect of all manifest edits, and the inserts that are not sealed yet.

mod apply;
mod apply_documents;
mod check;
mod checkpoint;
mod collection;
mod held;

pub(crate) use collection::CollectionState;

use crate::archive::ArchivePlaces;
use crate::copies::position::CopyPosition;
use crate::documents::memtable::Memtable as DocumentsMemtable;
use crate::documents::segment::DocumentSegment;
use crate::documents::state::DocumentsState;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::holds::Hold;
use crate::ladder::rung_of;
use crate::manifest::SweepRecord;
use crate::memtable::Memtable;
use crate::requests::known::REQUESTS;
use crate::segment::Segment;
use crate::segment::folder::SegmentFolder;
use crate::segment::segment_cache::SegmentCache;
use ebbtide_ttl::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// Everything. Copies are cheap and independent.
#[derive(Debug, Clone)]
pub(crate) struct State {
    fs: Arc<dyn Fs>,
    cache: Arc<SegmentCache>,
    dir: PathBuf,
    /// Where older programs put the segments of all collections.
    pub(crate) folder: Arc<SegmentFolder>,
    pub(crate) collections: BTreeMap<String, Arc<CollectionState>>,
    /// Ordinary collections.
    pub(crate) documents: BTreeMap<String, Arc<DocumentsState>>,
    /// The names of both kinds by their numbers.
    names: HashMap<u64, String>,
    pub(crate) next_collection: u64,
    pub(crate) next_segment: u64,
    /// First sequence numbers of the log files that must exist.
    pub(crate) logs: BTreeSet<u64>,
    pub(crate) sweeps: VecDeque<SweepRecord>,
    /// How many drops there were since the open, with those of the history before it.
    pub(crate) sweeps_made: u64,
    /// The statements that views were made with, by name.
    pub(crate) views: Arc<BTreeMap<String, String>>,
    /// Every hold that was ever made, active or lifted.
    pub(crate) holds: Arc<Vec<Hold>>,
    /// Opens archives, if the database was given a way to.
    pub(crate) places: Option<Arc<dyn ArchivePlaces>>,
    /// The position of the copy that this is the state of, in a replica.
    pub(crate) copied: Option<Arc<CopyPosition>>,
    /// The last insert that readers see.
    pub(crate) applied_seq: u64,
    /// Whether files are unlinked once they are no longer part of the state: not while old edits are read.
    pub(crate) unlinks: bool,
    /// Segments that an edit removed. Dropping one may unlink its file, which must not happen under the lock of the state.
    retired: Retired,
}

/// What an edit took out, for somebody to let go of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Retired {
    segments: Vec<Arc<Segment>>,
    collections: Vec<Arc<CollectionState>>,
    document_segments: Vec<Arc<DocumentSegment>>,
    documents: Vec<Arc<DocumentsState>>,
}

impl State {
    pub(crate) fn new(fs: Arc<dyn Fs>, dir: PathBuf, cache_bytes_max: usize) -> Self {
        State {
            folder: Arc::new(SegmentFolder::of_database(fs.clone(), &dir)),
            fs,
            cache: Arc::new(SegmentCache::new(cache_bytes_max)),
            dir,
            collections: BTreeMap::new(),
            documents: BTreeMap::new(),
            names: HashMap::new(),
            next_collection: 1,
            next_segment: 1,
            logs: BTreeSet::new(),
            sweeps: VecDeque::new(),
            sweeps_made: 0,
            views: Arc::default(),
            holds: Arc::default(),
            places: None,
            copied: None,
            applied_seq: 0,
            unlinks: false,
            retired: Retired::default(),
        }
    }

    pub(crate) fn collection(&self, name: &str) -> Result<&Arc<CollectionState>> {
        let known = self.collections.get(name).filter(|_| rung_of(name).is_none());
        known.ok_or_else(|| match self.documents.contains_key(name) && name != REQUESTS {
            true => Error::ordinary_collection(name),
            false => Error::no_collection(name),
        })
    }

    /// An ordinary collection that commands reach.
    pub(crate) fn documents(&self, name: &str) -> Result<&Arc<DocumentsState>> {
        self.documents.get(name).filter(|_| name != REQUESTS).ok_or_else(|| match self.collections.contains_key(name) {
            true => Error::time_series_collection(name),
            false => Error::no_collection(name),
        })
    }

    pub(crate) fn documents_by_id(&self, id: u64) -> Option<&Arc<DocumentsState>> {
        self.documents.get(self.names.get(&id)?)
    }

    pub(crate) fn documents_by_id_mut(&mut self, id: u64) -> Option<&mut DocumentsState> {
        self.documents.get_mut(self.names.get(&id)?).map(Arc::make_mut)
    }

    /// What has this name, if anything has: `collection` or `view`, for messages.
    pub(crate) fn kind_of(&self, name: &str) -> Option<&'static str> {
        let is_collection = self.collections.contains_key(name) || self.documents.contains_key(name);
        let is_view = || self.views.contains_key(name).then_some("view");
        is_collection.then_some("collection").or_else(is_view)
    }

    pub(crate) fn by_id(&self, id: u64) -> Option<&Arc<CollectionState>> {
        self.collections.get(self.names.get(&id)?)
    }

    pub(crate) fn by_id_mut(&mut self, id: u64) -> Option<&mut CollectionState> {
        self.collections.get_mut(self.names.get(&id)?).map(Arc::make_mut)
    }

    /// The collections of rungs.
    pub(crate) fn rungs(&self) -> impl Iterator<Item = &Arc<CollectionState>> {
        self.collections.values().filter(|collection| rung_of(&collection.name).is_some())
    }

    /// How many measurements suspend expiry in a collection, or in the one that a rung is of.
    pub(crate) fn suspension_of(&self, collection: &CollectionState) -> Option<u64> {
        match rung_of(&collection.name) {
            Some((parent, _)) => self.by_id(parent).and_then(|parent| parent.suspension()),
            None => collection.suspension(),
        }
    }

    /// The collections of a collection's rungs, the finest first.
    pub(crate) fn rungs_of(&self, collection: &CollectionState) -> Result<Vec<Arc<CollectionState>>> {
        let rungs = collection.ladder.iter().flat_map(|ladder| &ladder.rungs);
        let missing = || Error::internal("a ladder names a rung that is not there");
        rungs.map(|rung| self.by_id(rung.collection).cloned().ok_or_else(missing)).collect()
    }

    /// The cache of what is open.
    pub(crate) fn cache(&self) -> &Arc<SegmentCache> {
        &self.cache
    }

    /// Segment files that are held open for reading.
    pub(crate) fn open_files(&self) -> u64 {
        self.cache.open_files()
    }

    /// Bytes of open buckets over all collections.
    pub(crate) fn memtable_bytes(&self) -> usize {
        let documents: usize = self.documents.values().map(|d| d.memtable.bytes()).sum();
        documents + self.collections.values().map(|c| c.memtable.bytes()).sum::<usize>()
    }

    /// The folders that segments are in.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Arc<SegmentFolder>> {
        let documents = self.documents.values().map(|documents| &documents.folder);
        self.collections.values().map(|collection| &collection.folder).chain(documents).chain([&self.folder])
    }

    /// Whether a segment lies where older programs put them.
    pub(crate) fn has_old_segments(&self) -> bool {
        self.collections.values().any(|collection| collection.has_old_segments())
    }

    /// Drops all open buckets.
    pub(crate) fn forget_open(&mut self) {
        self.collections.values_mut().for_each(|collection| Arc::make_mut(collection).memtable = Memtable::default());
        for documents in self.documents.values_mut() {
            Arc::make_mut(documents).memtable = DocumentsMemtable::default();
        }
    }

    /// Drops the open buckets of one collection, or the documents that are in no segment.
    pub(crate) fn forget_open_of(&mut self, id: u64) {
        if let Some(collection) = self.by_id_mut(id) {
            collection.memtable = Memtable::default();
        }
        if let Some(documents) = self.documents_by_id_mut(id) {
            documents.memtable = DocumentsMemtable::default();
        }
    }

    /// Has the files of this state unlinked when nothing uses them any more, except those that another state has, by their paths in
    /// the folder of the database.
    pub(crate) fn retire_all_but(&self, is_kept: impl Fn(&str) -> bool) {
        let is_kept = |path: &std::path::Path| {
            let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
            is_kept(&parts.join("/"))
        };
        let segments = self.collections.values().flat_map(|c| c.segments.values());
        segments.filter(|s| !is_kept(&s.file.relative_path())).for_each(|s| s.file.retire());
        let segments = self.documents.values().flat_map(|d| d.segments.values());
        segments.filter(|s| !is_kept(&s.file.relative_path())).for_each(|s| s.file.retire());
    }

    /// The first insert that is only in the log; every log record before it can be removed.
    pub(crate) fn first_needed_seq(&self) -> u64 {
        let documents = self.documents.values().filter_map(|d| d.memtable.oldest_seq());
        let oldest = self.collections.values().filter_map(|c| c.memtable.oldest_seq()).chain(documents).min();
        oldest.unwrap_or(self.applied_seq + 1)
    }

    /// Whether the rows of a log record are in no segment.
    pub(crate) fn is_unsealed(&self, seq: u64, collection: u64) -> bool {
        let sealed = self.by_id(collection).map(|c| c.sealed_seq);
        sealed.or_else(|| self.documents_by_id(collection).map(|d| d.sealed_seq)).is_some_and(|sealed| seq > sealed)
    }

    /// Says that indexes that are new are there since this instant.
    pub(crate) fn begin_usage(&self, now: Timestamp) {
        self.documents.values().for_each(|documents| documents.usage.begin(now));
    }

    /// What was taken out since the last call; for the caller to let go of.
    pub(crate) fn take_retired(&mut self) -> Retired {
        std::mem::take(&mut self.retired)
    }
}
