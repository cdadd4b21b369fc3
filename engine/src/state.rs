//! Everything that exists at one moment: the effect of all manifest edits, and the inserts that are not sealed yet.

use crate::batch_id::LastBatch;
use crate::error::{Error, Result};
use crate::files::{SegmentName, collection_folder};
use crate::fs::Fs;
use crate::manifest::{Check, CollectionRecord, Op, SWEEP_HISTORY_MAX, SweepRecord, only_takes_away, refused};
use crate::memtable::Memtable;
use crate::options::CollectionOptions;
use crate::segment::Segment;
use crate::segment::bounds::SegmentRecord;
use crate::segment::file::SegmentFile;
use crate::segment::folder::SegmentFolder;
use crate::segment::segment_cache::SegmentCache;
use arrow::array::RecordBatch;
use ebbtide_buckets::{Chunk, FileTypes, Schema, adapt, schema_of_batch};
use ebbtide_ttl::{Code, OutOfRange, RuleSet};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// A collection in one version. Snapshots share it; a change makes a copy of what it changes.
#[derive(Debug, Clone)]
pub(crate) struct CollectionState {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) options: Arc<CollectionOptions>,
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) rules_epoch: u64,
    pub(crate) schema: Arc<Schema>,
    pub(crate) sealed_seq: u64,
    /// The last insert with an id among those that are sealed.
    pub(crate) last_batch: Option<LastBatch>,
    pub(crate) segments: Arc<BTreeMap<u64, Arc<Segment>>>,
    /// The types of the columns in segment files.
    pub(crate) file_types: Arc<FileTypes>,
    /// Where new segments go.
    pub(crate) folder: Arc<SegmentFolder>,
    pub(crate) memtable: Memtable,
}

impl CollectionState {
    pub(crate) fn record(&self) -> CollectionRecord {
        CollectionRecord {
            id: self.id,
            name: self.name.clone(),
            options: (*self.options).clone(),
            rules: (*self.rules).clone(),
            rules_epoch: self.rules_epoch,
            schema: (*self.schema).clone(),
            sealed_seq: self.sealed_seq,
        }
    }

    /// The edits that mark the frozen open buckets as sealed: those of inserts up to `seq`.
    pub(crate) fn sealed(&self, seq: u64) -> impl Iterator<Item = Op> {
        let last = self.memtable.last_frozen_batch(self.last_batch).filter(|last| Some(*last) != self.last_batch);
        let last = last.map(|last| Op::SetLastBatch { collection: self.id, last });
        last.into_iter().chain([Op::Sealed { collection: self.id, seq }])
    }

    /// The rows of a log record in their canonical form, and the schema extended by its fields.
    pub(crate) fn chunk_of(&self, batch: &RecordBatch) -> Result<(Schema, Chunk)> {
        let Schema { time, meta, .. } = self.schema.as_ref();
        let logged = schema_of_batch(batch, time, meta.as_deref(), self.options.precision)?;
        let schema = self.schema.join(&logged)?;
        let chunk = Chunk::build(adapt(batch, &schema)?, &schema, self.options.bucketing.span_seconds());
        Ok((schema, chunk))
    }

    /// Stored measurements outside of 1970..2038.
    pub(crate) fn out_of_range(&self) -> u64 {
        let sealed: u64 = self.segments.values().map(|s| s.live().out_of_range).sum();
        let open: u64 = self.memtable.chunks().flat_map(|c| &c.buckets).map(|b| u64::from(b.out_of_range)).sum();
        sealed + open
    }

    /// Whether segments of `types` would be of other types than one that is there, or lie elsewhere.
    pub(crate) fn differs_from(&self, types: &FileTypes) -> bool {
        self.segments.values().any(|segment| !segment.is_of_types(types))
    }

    /// Whether other programs must not read all files of the folder together: segments have several types, or some of them lie
    /// elsewhere.
    pub(crate) fn types_differ(&self) -> bool {
        let mut generations = self.segments.values().map(|segment| segment.file.generation);
        let first = generations.next();
        generations.any(|generation| Some(generation) != first) && self.differs_from(&self.file_types)
    }

    /// The types that new segments have at least. They are read from the segments if only an older program has written any.
    pub(crate) fn known_file_types(&self) -> Result<FileTypes> {
        let mut types = (*self.file_types).clone();
        if types != FileTypes::default() {
            return Ok(types);
        }
        for segment in self.segments.values() {
            match segment.file.reader() {
                Ok(reader) => types = reader.widen(&types),
                // Whatever it holds, nobody can read it.
                Err(error) if error.is_of_one_file() => tracing::warn!(%error, "the types of a segment cannot be read"),
                Err(error) => return Err(error),
            }
        }
        Ok(types)
    }

    /// Whether a segment lies in the folder of the database, where an older program put it.
    pub(crate) fn has_old_segments(&self) -> bool {
        self.segments.values().any(|segment| segment.file.generation.is_none())
    }

    /// How many stored measurements outside of 1970..2038 suspend expiry; `None` if expiry is not suspended.
    pub(crate) fn suspension(&self) -> Option<u64> {
        if self.options.out_of_range == OutOfRange::Expire {
            return None;
        }
        Some(self.out_of_range()).filter(|count| *count > 0)
    }
}

/// Everything. Copies are cheap and independent.
#[derive(Debug, Clone)]
pub(crate) struct State {
    fs: Arc<dyn Fs>,
    cache: Arc<SegmentCache>,
    dir: PathBuf,
    /// Where older programs put the segments of all collections.
    pub(crate) folder: Arc<SegmentFolder>,
    pub(crate) collections: BTreeMap<String, Arc<CollectionState>>,
    /// Their names by their numbers.
    names: HashMap<u64, String>,
    pub(crate) next_collection: u64,
    pub(crate) next_segment: u64,
    /// First sequence numbers of the log files that must exist.
    pub(crate) logs: BTreeSet<u64>,
    pub(crate) sweeps: VecDeque<SweepRecord>,
    /// The statements that views were made with, by name.
    pub(crate) views: Arc<BTreeMap<String, String>>,
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
}

impl State {
    pub(crate) fn new(fs: Arc<dyn Fs>, dir: PathBuf, cache_bytes_max: usize) -> Self {
        State {
            folder: Arc::new(SegmentFolder::of_database(fs.clone(), &dir)),
            fs,
            cache: Arc::new(SegmentCache::new(cache_bytes_max)),
            dir,
            collections: BTreeMap::new(),
            names: HashMap::new(),
            next_collection: 1,
            next_segment: 1,
            logs: BTreeSet::new(),
            sweeps: VecDeque::new(),
            views: Arc::default(),
            applied_seq: 0,
            unlinks: false,
            retired: Retired::default(),
        }
    }

    pub(crate) fn collection(&self, name: &str) -> Result<&Arc<CollectionState>> {
        self.collections.get(name).ok_or_else(|| Error::no_collection(name))
    }

    pub(crate) fn by_id(&self, id: u64) -> Option<&Arc<CollectionState>> {
        self.collections.get(self.names.get(&id)?)
    }

    pub(crate) fn by_id_mut(&mut self, id: u64) -> Option<&mut CollectionState> {
        self.collections.get_mut(self.names.get(&id)?).map(Arc::make_mut)
    }

    /// Segment files that are held open for reading.
    pub(crate) fn open_files(&self) -> u64 {
        self.cache.open_files()
    }

    /// Bytes of open buckets over all collections.
    pub(crate) fn memtable_bytes(&self) -> usize {
        self.collections.values().map(|c| c.memtable.bytes()).sum()
    }

    /// The folders that segments are in.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Arc<SegmentFolder>> {
        self.collections.values().map(|collection| &collection.folder).chain([&self.folder])
    }

    /// Whether a segment lies where older programs put them.
    pub(crate) fn has_old_segments(&self) -> bool {
        self.collections.values().any(|collection| collection.has_old_segments())
    }

    /// Drops all open buckets.
    pub(crate) fn forget_open(&mut self) {
        self.collections.values_mut().for_each(|collection| Arc::make_mut(collection).memtable = Memtable::default());
    }

    /// The first insert that is only in the log; every log record before it can be removed.
    pub(crate) fn first_needed_seq(&self) -> u64 {
        let oldest = self.collections.values().filter_map(|c| c.memtable.oldest_seq()).min();
        oldest.unwrap_or(self.applied_seq + 1)
    }

    /// Whether the rows of a log record are in no segment.
    pub(crate) fn is_unsealed(&self, seq: u64, collection: u64) -> bool {
        self.by_id(collection).is_some_and(|collection| seq > collection.sealed_seq)
    }

    /// Checks a step of an edit against the state that it changes; what it must be by itself was checked before. `Err` says
    /// what is wrong.
    pub(crate) fn check(&self, op: &Op) -> Check {
        let collection = |id: &u64| self.by_id(*id).ok_or_else(|| format!("unknown collection {id}"));
        let segment =
            |of: &u64, id: &u64| collection(of)?.segments.get(id).ok_or_else(|| format!("unknown segment {id}"));
        let fails = |wrong: bool, what: String| if wrong { Err(what) } else { Ok(()) };
        match op {
            Op::NextIds { .. } | Op::AddLog { .. } | Op::Swept(_) => Ok(()),
            Op::PutCollection(record) => {
                let (by_id, by_name) = (self.by_id(record.id), self.collections.get(&record.name));
                let same = by_id.map(|c| c.id) == by_name.map(|c| c.id) && !self.views.contains_key(&record.name);
                fails(
                    !same,
                    format!("collection '{}' has the number or name of another one, or of a view", record.name),
                )
            }
            Op::DropCollection { id } | Op::SetLastBatch { collection: id, .. } => collection(id).map(drop),
            Op::SetSchema { collection: id, schema } => {
                collection(id)?.schema.join(schema).map(drop).map_err(|e| e.to_string())
            }
            Op::SetFileTypes { collection: id, types } => {
                fails(!types.may_follow(&collection(id)?.file_types), format!("file types of collection {id} narrow"))
            }
            Op::AddSegment { collection: id, segment } | Op::AddSegmentInFolder { collection: id, segment, .. } => {
                fails(
                    collection(id)?.segments.contains_key(&segment.id),
                    format!("segment {} is added twice", segment.id),
                )
            }
            Op::SetSegment { collection, segment: id, state } => {
                let old = segment(collection, id)?;
                only_takes_away(&old.file.meta, &old.state, state).map_err(|what| format!("segment {id}: {what}"))
            }
            Op::DropBuckets { collection, segment: id, dropped, live } => {
                let old = segment(collection, id)?;
                let state = old.state.without_buckets(dropped, *live);
                only_takes_away(&old.file.meta, &old.state, &state).map_err(|what| format!("segment {id}: {what}"))
            }
            Op::RemoveSegment { collection, segment: id } => segment(collection, id).map(drop),
            // Rows between the two numbers would be both in segments and replayed from the log.
            Op::Sealed { collection: id, seq } => {
                fails(*seq < collection(id)?.sealed_seq, format!("collection {id} is sealed up to {seq} only"))
            }
            Op::PutView { name, .. } => {
                fails(self.collections.contains_key(name), format!("view '{name}' has the name of a collection"))
            }
            Op::DropView { name } => fails(!self.views.contains_key(name), format!("unknown view '{name}'")),
            Op::RenameCollection { id, name } => {
                collection(id)?;
                let taken = self.collections.contains_key(name) || self.views.contains_key(name);
                fails(taken, format!("collection {id} is given the name of another collection or a view, '{name}'"))
            }
            // Its segments would no longer be found.
            Op::SetFolder { collection: id, .. } => fails(
                !collection(id)?.segments.is_empty(),
                format!("the folder of collection {id} changes, and it has segments"),
            ),
            Op::RemoveLog { first_seq } => fails(!self.logs.contains(first_seq), format!("unknown log {first_seq}")),
        }
    }

    /// Checks an edit before it is written. No step of an edit depends on the ones before it.
    pub(crate) fn check_edit(&self, edit: &[Op]) -> Result<()> {
        edit.iter().try_for_each(|op| self.check(op)).map_err(refused)
    }

    /// Applies one operation of an edit that is durable.
    pub(crate) fn apply(&mut self, op: Op) -> Result<()> {
        self.check(&op).map_err(|what| Error::new(Code::DataCorruptionDetected, what))?;
        match op {
            Op::NextIds { collection, segment, seq } => {
                self.next_collection = self.next_collection.max(collection);
                self.next_segment = self.next_segment.max(segment);
                self.applied_seq = self.applied_seq.max(seq.saturating_sub(1));
            }
            Op::PutCollection(record) => self.put_collection(record)?,
            Op::DropCollection { id } => {
                let name = self.known(id)?.name.clone();
                self.names.remove(&id);
                if let Some(gone) = self.collections.remove(&name) {
                    gone.segments.values().for_each(|segment| self.retire(segment.clone()));
                    if self.unlinks {
                        gone.folder.retire();
                        self.retired.collections.push(gone);
                    }
                }
            }
            Op::SetSchema { collection, schema } => {
                // The visible schema may be newer than the sealed one.
                let known = self.known(collection)?;
                known.schema = Arc::new(known.schema.join(&schema)?);
            }
            Op::SetFileTypes { collection, types } => self.known(collection)?.file_types = Arc::new(types),
            Op::AddSegment { collection, segment } => self.add_segment(collection, segment, None)?,
            Op::AddSegmentInFolder { collection, segment, generation } => {
                self.add_segment(collection, segment, Some(generation))?;
            }
            Op::SetSegment { collection, segment, state } => {
                let segments = Arc::make_mut(&mut self.known(collection)?.segments);
                let old = segments.get(&segment).ok_or_else(|| unknown("segment", segment))?;
                let next = Segment::new(old.file.clone(), old.class, state);
                segments.insert(segment, Arc::new(next));
            }
            Op::DropBuckets { collection, segment, dropped, live } => {
                let segments = Arc::make_mut(&mut self.known(collection)?.segments);
                let old = segments.get(&segment).ok_or_else(|| unknown("segment", segment))?;
                let next = Segment::new(old.file.clone(), old.class, old.state.without_buckets(&dropped, live));
                segments.insert(segment, Arc::new(next));
            }
            Op::RemoveSegment { collection, segment } => {
                let segments = Arc::make_mut(&mut self.known(collection)?.segments);
                let gone = segments.remove(&segment).ok_or_else(|| unknown("segment", segment))?;
                self.retire(gone);
            }
            Op::Sealed { collection, seq } => {
                self.applied_seq = self.applied_seq.max(seq);
                let state = self.known(collection)?;
                state.sealed_seq = seq;
                state.memtable.sealed(seq + 1);
            }
            Op::SetLastBatch { collection, last } => self.known(collection)?.last_batch = Some(last),
            Op::AddLog { first_seq } => {
                self.applied_seq = self.applied_seq.max(first_seq.saturating_sub(1));
                self.logs.insert(first_seq);
            }
            Op::RemoveLog { first_seq } => {
                self.logs.remove(&first_seq);
            }
            Op::PutView { name, text } => {
                Arc::make_mut(&mut self.views).insert(name, text);
            }
            Op::DropView { name } => {
                Arc::make_mut(&mut self.views).remove(&name);
            }
            Op::RenameCollection { id, name } => self.rename(id, name)?,
            Op::SetFolder { collection, folder } => {
                let folder = SegmentFolder::of_collection(self.fs.clone(), &self.dir, folder);
                self.known(collection)?.folder = Arc::new(folder);
            }
            Op::Swept(record) => {
                self.sweeps.push_back(record);
                while self.sweeps.len() > SWEEP_HISTORY_MAX {
                    self.sweeps.pop_front();
                }
            }
        }
        Ok(())
    }

    fn rename(&mut self, id: u64, name: String) -> Result<()> {
        let old = self.known(id)?.name.clone();
        let mut renamed = self.collections.remove(&old).ok_or_else(|| unknown("collection", id))?;
        Arc::make_mut(&mut renamed).name.clone_from(&name);
        self.collections.insert(name.clone(), renamed);
        self.names.insert(id, name);
        Ok(())
    }

    fn retire(&mut self, gone: Arc<Segment>) {
        if self.unlinks {
            gone.file.retire();
            self.retired.segments.push(gone);
        }
    }

    fn add_segment(&mut self, collection: u64, record: SegmentRecord, generation: Option<u32>) -> Result<()> {
        self.next_segment = self.next_segment.max(record.id + 1);
        let (fs, cache, outside) = (self.fs.clone(), self.cache.clone(), self.folder.clone());
        let known = self.known(collection)?;
        let folder = if generation.is_some() { known.folder.clone() } else { outside };
        let file = SegmentFile::new(fs, cache, folder, SegmentName { generation, id: record.id }, record.meta);
        let entry = Arc::new(Segment::new(Arc::new(file), record.class, record.state));
        Arc::make_mut(&mut known.segments).insert(record.id, entry);
        Ok(())
    }

    /// What was taken out since the last call; for the caller to let go of.
    pub(crate) fn take_retired(&mut self) -> Retired {
        std::mem::take(&mut self.retired)
    }

    fn known(&mut self, id: u64) -> Result<&mut CollectionState> {
        self.by_id_mut(id).ok_or_else(|| unknown("collection", id))
    }

    fn put_collection(&mut self, record: CollectionRecord) -> Result<()> {
        self.next_collection = self.next_collection.max(record.id + 1);
        match self.by_id_mut(record.id) {
            Some(known) => {
                let span = record.options.bucketing.span_seconds();
                if span != known.options.bucketing.span_seconds() {
                    // Rows that arrived after the open buckets were sealed get the windows that replay would assign.
                    known.memtable.rebuild(&known.schema, span)?;
                }
                known.options = Arc::new(record.options);
                known.rules = Arc::new(record.rules);
                known.rules_epoch = record.rules_epoch;
            }
            None => {
                let folder = collection_folder(&record.name, record.id);
                let folder = SegmentFolder::of_collection(self.fs.clone(), &self.dir, folder);
                let state = CollectionState {
                    id: record.id,
                    name: record.name.clone(),
                    options: Arc::new(record.options),
                    rules: Arc::new(record.rules),
                    rules_epoch: record.rules_epoch,
                    schema: Arc::new(record.schema),
                    sealed_seq: record.sealed_seq,
                    last_batch: None,
                    segments: Arc::default(),
                    file_types: Arc::default(),
                    folder: Arc::new(folder),
                    memtable: Memtable::default(),
                };
                self.names.insert(record.id, record.name.clone());
                self.collections.insert(record.name, Arc::new(state));
            }
        }
        Ok(())
    }

    /// The edit that creates this state from nothing, without the rows that are only in the log.
    ///
    /// The schema is the one in memory. It may be newer than the sealed one, which does no harm: replay would extend it too.
    pub(crate) fn checkpoint(&self) -> Vec<Op> {
        // Log records after `applied_seq` may exist, so the next number is not set above the first needed one.
        let seq = self.collections.values().map(|c| c.sealed_seq).max().unwrap_or(0) + 1;
        let mut ops = vec![Op::NextIds { collection: self.next_collection, segment: self.next_segment, seq }];
        for collection in self.collections.values() {
            ops.push(Op::PutCollection(collection.record()));
            let folder = collection.folder.name().filter(|folder| {
                // A collection that was renamed keeps its folder.
                *folder != collection_folder(&collection.name, collection.id)
            });
            ops.extend(folder.map(|folder| Op::SetFolder { collection: collection.id, folder: folder.to_owned() }));
            ops.extend(collection.last_batch.map(|last| Op::SetLastBatch { collection: collection.id, last }));
            if *collection.file_types != FileTypes::default() {
                ops.push(Op::SetFileTypes { collection: collection.id, types: (*collection.file_types).clone() });
            }
            ops.extend(collection.segments.values().map(|s| s.addition(collection.id)));
        }
        ops.extend(self.views.iter().map(|(name, text)| Op::PutView { name: name.clone(), text: text.clone() }));
        ops.extend(self.logs.iter().map(|first_seq| Op::AddLog { first_seq: *first_seq }));
        ops.extend(self.sweeps.iter().cloned().map(Op::Swept));
        ops
    }
}

fn unknown(what: &str, id: u64) -> Error {
    Error::new(Code::DataCorruptionDetected, format!("unknown {what} {id}"))
}
