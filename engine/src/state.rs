//! Everything that exists at one moment: the effect of all manifest edits, and the inserts that are not sealed yet.

use crate::archive::{ArchivePlaces, ArchiveRecord, ArchiveSlot};
use crate::batch_id::LastBatch;
use crate::documents::memtable::Memtable as DocumentsMemtable;
use crate::documents::options::DocumentsRecord;
use crate::documents::segment::{DocumentSegment, DocumentSegmentRecord};
use crate::documents::state::DocumentsState;
use crate::documents::usage::Usage;
use crate::error::{Error, Result};
use crate::files::{SegmentName, collection_folder};
use crate::fs::Fs;
use crate::hand_off::{HandedOver, SinkSlot};
use crate::holds::Hold;
use crate::ladder::{LadderRecord, RungRecord, holds_of_rung, rung_of};
use crate::manifest::{Check, CollectionRecord, Op, SWEEP_HISTORY_MAX, SweepRecord, only_takes_away, refused};
use crate::memtable::Memtable;
use crate::options::CollectionOptions;
use crate::requests::REQUESTS;
use crate::segment::Segment;
use crate::segment::bounds::SegmentRecord;
use crate::segment::file::SegmentFile;
use crate::segment::folder::SegmentFolder;
use crate::segment::segment_cache::SegmentCache;
use arrow::array::RecordBatch;
use ebbtide_buckets::{Chunk, FileTypes, Schema, adapt, schema_of_batch};
use ebbtide_ttl::{Code, Cutoff, OutOfRange, RuleSet, Timestamp};
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
    /// The active holds on it.
    pub(crate) holds: Arc<Vec<Hold>>,
    /// The identities of buckets that were handed over and not dropped.
    pub(crate) handed_over: Arc<HandedOver>,
    /// What takes them over in this process. All versions share it.
    pub(crate) sink: Arc<SinkSlot>,
    /// What is known of its archive.
    pub(crate) archive: Arc<ArchiveRecord>,
    /// The archive in this process. All versions share it.
    pub(crate) archiving: Arc<ArchiveSlot>,
    /// Its ladder, if it has one.
    pub(crate) ladder: Option<Arc<LadderRecord>>,
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

    /// The boundary that a rule of `e` seconds draws for sweeps at `now`: a bucket whose bound it hides has expired, and its grace
    /// is over.
    pub(crate) fn drop_cutoff(&self, now: Timestamp, e: i64) -> Cutoff {
        Cutoff::new(now, self.drop_after(e), self.options.precision)
    }

    /// After how many seconds a sweep drops a bucket under a rule of `e` seconds.
    pub(crate) fn drop_after(&self, e: i64) -> i64 {
        e.saturating_add(self.options.grace_seconds)
    }

    /// Bytes on disk of what is stored, and in memory of what is not sealed yet.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.live_bytes()).sum::<u64>() + self.memtable.bytes() as u64
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

    /// Checks a step of an edit against the state that it changes; what it must be by itself was checked before. `Err` says
    /// what is wrong.
    pub(crate) fn check(&self, op: &Op) -> Check {
        let collection = |id: &u64| self.by_id(*id).ok_or_else(|| format!("unknown collection {id}"));
        let segment =
            |of: &u64, id: &u64| collection(of)?.segments.get(id).ok_or_else(|| format!("unknown segment {id}"));
        let fails = |wrong: bool, what: String| if wrong { Err(what) } else { Ok(()) };
        let renames = matches!(op, Op::RenameCollection { .. });
        if let Some(documents) = op.collection().filter(|_| !renames).and_then(|id| self.documents_by_id(id)) {
            return check_documents(documents, op);
        }
        match op {
            Op::NextIds { .. } | Op::AddLog { .. } | Op::Swept(_) => Ok(()),
            Op::PutCollection(record) => {
                let (by_id, by_name) = (self.by_id(record.id), self.collections.get(&record.name));
                let is_taken = self.views.contains_key(&record.name) || self.documents.contains_key(&record.name);
                let same = by_id.map(|c| c.id) == by_name.map(|c| c.id) && !is_taken;
                fails(!same, name_or_number_is_taken(&record.name))
            }
            Op::PutDocuments(record) => {
                let is_taken = self.names.contains_key(&record.id) || self.kind_of(&record.name).is_some();
                fails(is_taken, name_or_number_is_taken(&record.name))
            }
            Op::AddDocumentSegment { collection: id, .. }
            | Op::SetDeletedDocuments { collection: id, .. }
            | Op::SetDocumentColumns { collection: id, .. } => Err(format!("collection {id} is no ordinary one")),
            Op::DropCollection { id }
            | Op::SetLastBatch { collection: id, .. }
            | Op::SetIds { collection: id, .. }
            | Op::SetGrace { collection: id, .. }
            | Op::SetMaxBytes { collection: id, .. }
            | Op::SetHandOff { collection: id, .. }
            | Op::SetHandedOver { collection: id, .. }
            | Op::SetExpireInto { collection: id, .. }
            | Op::SetArchive { collection: id, .. }
            | Op::SetKeep { collection: id, .. } => collection(id).map(drop),
            Op::SetLadder { collection: id, ladder } => {
                let parent = collection(id)?;
                let is_rung = |rung: &RungRecord| {
                    self.by_id(rung.collection)
                        .is_some_and(|c| rung_of(&c.name) == Some((parent.id, rung.rung.step_seconds)))
                };
                let other = ladder.iter().flat_map(|ladder| &ladder.rungs).find(|rung| !is_rung(rung));
                other.map_or(Ok(()), |rung| Err(format!("collection {} is no rung of {id}", rung.collection)))
            }
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
                let is_taken = self.collections.contains_key(name) || self.documents.contains_key(name);
                fails(is_taken, format!("view '{name}' has the name of a collection"))
            }
            Op::DropView { name } => fails(!self.views.contains_key(name), format!("unknown view '{name}'")),
            Op::RenameCollection { id, name } => {
                if !self.names.contains_key(id) {
                    return Err(format!("unknown collection {id}"));
                }
                fails(
                    self.kind_of(name).is_some(),
                    format!("collection {id} is given the name of another collection or a view, '{name}'"),
                )
            }
            Op::ReplaceFields { collection: id, schema, types } => {
                let known = collection(id)?;
                let (old, new) = (&known.schema, schema);
                let same = (&old.time, &old.meta, old.precision) == (&new.time, &new.meta, new.precision);
                let follows = types.generation() > known.file_types.generation() && known.segments.is_empty();
                fails(!same || !follows, format!("the fields of collection {id} change under its segments"))
            }
            // Its segments would no longer be found.
            Op::SetFolder { collection: id, .. } => fails(
                !collection(id)?.segments.is_empty(),
                format!("the folder of collection {id} changes, and it has segments"),
            ),
            // A collection that is gone has no active holds.
            Op::PutHold(hold) if hold.lifted_at.is_some() => Ok(()),
            Op::PutHold(hold) => {
                let is_taken = collection(&hold.collection)?.holds.iter().any(|other| other.name == hold.name);
                fails(is_taken, format!("hold '{}' is made twice", hold.name))
            }
            Op::RemoveLog { first_seq } => fails(!self.logs.contains(first_seq), format!("unknown log {first_seq}")),
        }
    }

    /// Checks an edit before it is written.
    pub(crate) fn check_edit(&self, edit: &[Op]) -> Result<()> {
        let depends = |op: &Op| match op {
            Op::ReplaceFields { .. } => true,
            // It may take the name of one that the edit drops.
            Op::RenameCollection { .. } => edit.len() > 1,
            Op::PutCollection(record) => edit.len() > 1 && self.by_id(record.id).is_none(),
            _ => false,
        };
        if !edit.iter().any(depends) {
            // No step depends on the ones before it.
            return edit.iter().try_for_each(|op| self.check(op)).map_err(refused);
        }
        let mut trial = State { unlinks: false, ..self.clone() };
        edit.iter().try_for_each(|op| {
            trial.check(op).map_err(refused)?;
            trial.apply(op.clone())
        })
    }

    /// Applies one operation of an edit that is durable.
    pub(crate) fn apply(&mut self, op: Op) -> Result<()> {
        self.check(&op).map_err(|what| Error::new(Code::DataCorruptionDetected, what))?;
        if matches!(op, Op::PutDocuments(_)) || op.collection().is_some_and(|id| self.documents_by_id(id).is_some()) {
            return self.apply_to_documents(op);
        }
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
            Op::SetLadder { collection, ladder } => {
                self.known(collection)?.ladder = ladder.map(Arc::new);
                self.hold_rungs(collection);
            }
            Op::SetFileTypes { collection, types } => self.known(collection)?.file_types = Arc::new(types),
            Op::SetIds { collection, ids } => Arc::make_mut(&mut self.known(collection)?.options).ids = ids,
            Op::SetGrace { collection, seconds } => {
                Arc::make_mut(&mut self.known(collection)?.options).grace_seconds = seconds;
            }
            Op::SetMaxBytes { collection, bytes } => {
                Arc::make_mut(&mut self.known(collection)?.options).max_bytes = bytes;
            }
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
            Op::SetHandOff { collection, required } => {
                Arc::make_mut(&mut self.known(collection)?.options).hand_off = required;
            }
            Op::SetHandedOver { collection, handed } => self.known(collection)?.handed_over = Arc::new(handed),
            Op::SetExpireInto { collection, url } => {
                let known = self.known(collection)?;
                Arc::make_mut(&mut known.options).expire_into = url;
                // A version is one of the place before.
                known.archive = Arc::new(known.archive.elsewhere());
            }
            Op::SetKeep { collection, seconds } => {
                Arc::make_mut(&mut self.known(collection)?.options).keep_seconds = seconds;
            }
            Op::SetArchive { collection, archive } => self.known(collection)?.archive = Arc::new(archive),
            Op::PutHold(hold) => self.put_hold(hold),
            Op::PutView { name, text } => {
                Arc::make_mut(&mut self.views).insert(name, text);
            }
            Op::DropView { name } => {
                Arc::make_mut(&mut self.views).remove(&name);
            }
            Op::ReplaceFields { collection, schema, types } => {
                let known = self.known(collection)?;
                known.schema = Arc::new(schema);
                known.file_types = Arc::new(types);
            }
            Op::RenameCollection { id, name } => self.rename(id, name)?,
            Op::SetFolder { collection, folder } => {
                let folder = SegmentFolder::of_collection(self.fs.clone(), &self.dir, folder);
                self.known(collection)?.folder = Arc::new(folder);
            }
            Op::PutDocuments(_)
            | Op::AddDocumentSegment { .. }
            | Op::SetDeletedDocuments { .. }
            | Op::SetDocumentColumns { .. } => {
                return Err(Error::internal("an operation of an ordinary collection was not applied to one"));
            }
            Op::Swept(record) => {
                self.sweeps.push_back(record);
                self.sweeps_made += 1;
                while self.sweeps.len() > SWEEP_HISTORY_MAX {
                    self.sweeps.pop_front();
                }
            }
        }
        Ok(())
    }

    fn put_hold(&mut self, hold: Hold) {
        let is_active = |other: &Hold| other.name == hold.name && other.lifted_at.is_none();
        if let Some(collection) = self.by_id_mut(hold.collection) {
            let active = Arc::make_mut(&mut collection.holds);
            active.retain(|other| other.name != hold.name);
            active.extend(hold.lifted_at.is_none().then(|| hold.clone()));
        }
        self.hold_rungs(hold.collection);
        let holds = Arc::make_mut(&mut self.holds);
        match holds.iter_mut().find(|other| is_active(other)) {
            Some(present) => *present = hold,
            None => holds.push(hold),
        }
    }

    /// Gives the rungs of a collection its holds.
    fn hold_rungs(&mut self, id: u64) {
        let Some(of) = self.by_id(id).cloned() else { return };
        for record in of.ladder.iter().flat_map(|ladder| &ladder.rungs) {
            let holds = holds_of_rung(&of.holds, record.rung.step_seconds, of.options.precision);
            if let Some(rung) = self.by_id(record.collection).filter(|rung| rung.holds != holds).map(|rung| rung.id)
                && let Some(rung) = self.by_id_mut(rung)
            {
                rung.holds = holds;
            }
        }
    }

    fn rename(&mut self, id: u64, name: String) -> Result<()> {
        let old = self.known(id)?.name.clone();
        let mut renamed = self.collections.remove(&old).ok_or_else(|| unknown("collection", id))?;
        Arc::make_mut(&mut renamed).name.clone_from(&name);
        self.collections.insert(name.clone(), renamed);
        self.names.insert(id, name);
        Ok(())
    }

    /// Applies an operation of an edit that is about an ordinary collection.
    fn apply_to_documents(&mut self, op: Op) -> Result<()> {
        match op {
            Op::PutDocuments(record) => return self.put_documents(record),
            Op::RenameCollection { id, name } => {
                let old = self.known_documents(id)?.name.clone();
                let mut renamed = self.documents.remove(&old).ok_or_else(|| unknown("collection", id))?;
                Arc::make_mut(&mut renamed).name.clone_from(&name);
                self.documents.insert(name.clone(), renamed);
                self.names.insert(id, name);
            }
            Op::SetFolder { collection, folder } => {
                let folder = SegmentFolder::of_collection(self.fs.clone(), &self.dir, folder);
                self.known_documents(collection)?.folder = Arc::new(folder);
            }
            Op::DropCollection { id } => {
                let gone = self.names.remove(&id).and_then(|name| self.documents.remove(&name));
                let gone = gone.ok_or_else(|| unknown("collection", id))?;
                gone.segments.values().for_each(|segment| self.retire_documents(segment.clone()));
                if self.unlinks {
                    gone.folder.retire();
                    self.retired.documents.push(gone);
                }
            }
            Op::AddDocumentSegment { collection, segment } => {
                self.next_segment = self.next_segment.max(segment.id + 1);
                let (fs, cache) = (self.fs.clone(), self.cache.clone());
                let known = self.known_documents(collection)?;
                let DocumentSegmentRecord { id, meta, deleted } = segment;
                let name = SegmentName { generation: Some(0), id };
                let file = SegmentFile::new(fs, cache, known.folder.clone(), name, meta);
                let entry = Arc::new(DocumentSegment::new(Arc::new(file), deleted));
                Arc::make_mut(&mut known.segments).insert(id, entry);
            }
            Op::SetDeletedDocuments { collection, segment, deleted } => {
                let segments = Arc::make_mut(&mut self.known_documents(collection)?.segments);
                let old = segments.get(&segment).ok_or_else(|| unknown("segment", segment))?;
                let next = Arc::new(old.without(deleted));
                segments.insert(segment, next);
            }
            Op::SetDocumentColumns { collection, columns } => {
                let known = self.known_documents(collection)?;
                Arc::make_mut(&mut known.sealed_columns).join(columns.clone());
                Arc::make_mut(&mut known.columns).join(columns);
            }
            Op::RemoveSegment { collection, segment } => {
                let segments = Arc::make_mut(&mut self.known_documents(collection)?.segments);
                let gone = segments.remove(&segment).ok_or_else(|| unknown("segment", segment))?;
                self.retire_documents(gone);
            }
            Op::Sealed { collection, seq } => {
                self.applied_seq = self.applied_seq.max(seq);
                let known = self.known_documents(collection)?;
                known.sealed_seq = seq;
                known.memtable.sealed(seq + 1);
            }
            _ => return Err(Error::internal("an operation of measurements was applied to an ordinary collection")),
        }
        Ok(())
    }

    fn known_documents(&mut self, id: u64) -> Result<&mut DocumentsState> {
        self.documents_by_id_mut(id).ok_or_else(|| unknown("collection", id))
    }

    /// Says that indexes that are new are there since this instant.
    pub(crate) fn begin_usage(&self, now: Timestamp) {
        self.documents.values().for_each(|documents| documents.usage.begin(now));
    }

    fn retire_documents(&mut self, gone: Arc<DocumentSegment>) {
        if self.unlinks {
            gone.file.retire();
            self.retired.document_segments.push(gone);
        }
    }

    fn put_documents(&mut self, record: DocumentsRecord) -> Result<()> {
        self.next_collection = self.next_collection.max(record.id + 1);
        let rules = Arc::new(record.options.rules()?);
        if let Some(known) = self.documents_by_id_mut(record.id) {
            known.usage = Arc::new(known.usage.of(&record.options.indexes));
            known.options = Arc::new(record.options);
            known.rules = rules;
            known.rules_epoch = record.rules_epoch;
            return Ok(());
        }
        let folder = collection_folder(&record.name, record.id);
        let state = DocumentsState {
            id: record.id,
            name: record.name.clone(),
            usage: Arc::new(Usage::default().of(&record.options.indexes)),
            options: Arc::new(record.options),
            rules,
            rules_epoch: record.rules_epoch,
            sealed_seq: record.sealed_seq,
            segments: Arc::default(),
            folder: Arc::new(SegmentFolder::of_collection(self.fs.clone(), &self.dir, folder)),
            cache: self.cache.columns().clone(),
            memtable: DocumentsMemtable::default(),
            columns: Arc::default(),
            sealed_columns: Arc::default(),
        };
        self.names.insert(record.id, record.name.clone());
        self.documents.insert(record.name, Arc::new(state));
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

    fn put_collection(&mut self, mut record: CollectionRecord) -> Result<()> {
        self.next_collection = self.next_collection.max(record.id + 1);
        match self.by_id_mut(record.id) {
            Some(known) => {
                record.options = record.options.with_settings_of(&known.options);
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
                // What has operations of its own comes with them.
                record.options = record.options.with_settings_of(&CollectionOptions::new(""));
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
                    holds: Arc::default(),
                    handed_over: Arc::default(),
                    sink: Arc::default(),
                    archive: Arc::default(),
                    archiving: Arc::default(),
                    ladder: None,
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
        let sealed = self.collections.values().map(|c| c.sealed_seq);
        let sealed = sealed.chain(self.documents.values().map(|d| d.sealed_seq));
        let seq = sealed.max().unwrap_or(0) + 1;
        let mut ops = vec![Op::NextIds { collection: self.next_collection, segment: self.next_segment, seq }];
        for collection in self.collections.values() {
            ops.extend(collection.record().put(None));
            let folder = collection.folder.name().filter(|folder| {
                // A collection that was renamed keeps its folder.
                *folder != collection_folder(&collection.name, collection.id)
            });
            ops.extend(folder.map(|folder| Op::SetFolder { collection: collection.id, folder: folder.to_owned() }));
            ops.extend(collection.last_batch.map(|last| Op::SetLastBatch { collection: collection.id, last }));
            if *collection.file_types != FileTypes::default() {
                ops.push(Op::SetFileTypes { collection: collection.id, types: (*collection.file_types).clone() });
            }
            if *collection.handed_over != HandedOver::default() {
                let handed = (*collection.handed_over).clone();
                ops.push(Op::SetHandedOver { collection: collection.id, handed });
            }
            ops.extend(collection.segments.values().map(|s| Op::add_segment(collection.id, s)));
            if *collection.archive != ArchiveRecord::default() {
                ops.push(Op::SetArchive { collection: collection.id, archive: (*collection.archive).clone() });
            }
        }
        for collection in self.collections.values() {
            let ladder = collection.ladder.as_ref().map(|ladder| (**ladder).clone());
            ops.extend(ladder.map(|ladder| Op::SetLadder { collection: collection.id, ladder: Some(ladder) }));
        }
        for documents in self.documents.values() {
            ops.push(Op::PutDocuments(documents.record()));
            let folder = documents.folder.name().filter(|f| *f != collection_folder(&documents.name, documents.id));
            ops.extend(folder.map(|folder| Op::SetFolder { collection: documents.id, folder: folder.to_owned() }));
            ops.extend(documents.all_columns());
            let added = documents.segments.values().map(|segment| segment.record());
            ops.extend(added.map(|segment| Op::AddDocumentSegment { collection: documents.id, segment }));
        }
        ops.extend(self.views.iter().map(|(name, text)| Op::PutView { name: name.clone(), text: text.clone() }));
        ops.extend(self.holds.iter().cloned().map(Op::PutHold));
        ops.extend(self.logs.iter().map(|first_seq| Op::AddLog { first_seq: *first_seq }));
        ops.extend(self.sweeps.iter().cloned().map(Op::Swept));
        ops
    }
}

fn name_or_number_is_taken(name: &str) -> String {
    format!("collection '{name}' has the number or name of another one, or of a view")
}

/// Checks a step of an edit against the ordinary collection that it changes.
fn check_documents(documents: &DocumentsState, op: &Op) -> Check {
    let id = documents.id;
    let segment = |id: &u64| documents.segments.get(id).ok_or_else(|| format!("unknown segment {id}"));
    match op {
        Op::PutDocuments(record) if record.name == documents.name => Ok(()),
        Op::PutDocuments(record) => Err(name_or_number_is_taken(&record.name)),
        Op::DropCollection { .. } => Ok(()),
        // Its segments would no longer be found.
        Op::SetFolder { .. } if documents.segments.is_empty() => Ok(()),
        Op::SetFolder { .. } => Err(format!("the folder of collection {id} changes, and it has segments")),
        Op::AddDocumentSegment { segment, .. } if documents.segments.contains_key(&segment.id) => {
            Err(format!("segment {} is added twice", segment.id))
        }
        Op::AddDocumentSegment { .. } => Ok(()),
        Op::SetDeletedDocuments { segment: id, deleted, .. } => {
            segment(id)?.check_deleted(deleted).map_err(|what| format!("segment {id}: {what}"))
        }
        Op::SetDocumentColumns { .. } => Ok(()),
        Op::RemoveSegment { segment: id, .. } => segment(id).map(drop),
        Op::Sealed { seq, .. } if *seq >= documents.sealed_seq => Ok(()),
        Op::Sealed { .. } => Err(format!("collection {id} is sealed up to {} only", documents.sealed_seq)),
        _ => Err(format!("an operation of measurements on the ordinary collection {id}")),
    }
}

fn unknown(what: &str, id: u64) -> Error {
    Error::new(Code::DataCorruptionDetected, format!("unknown {what} {id}"))
}
