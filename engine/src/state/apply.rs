//! How an edit changes the state: in memory once it is durable, and again when the database is opened.

use super::State;
use super::collection::CollectionState;
use crate::error::{Error, Result};
use crate::files::{SegmentName, collection_folder};
use crate::holds::Hold;
use crate::ladder::holds_of_rung;
use crate::manifest::{CollectionRecord, Op, SWEEP_HISTORY_MAX};
use crate::memtable::Memtable;
use crate::options::CollectionOptions;
use crate::segment::Segment;
use crate::segment::bounds::{SegmentRecord, SegmentState};
use crate::segment::file::SegmentFile;
use crate::segment::folder::SegmentFolder;
use ebbtide_ttl::Code;
use std::sync::Arc;

impl State {
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
            Op::DropCollection { id } => self.drop_collection(id)?,
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
            Op::SetIds { collection, ids } => self.options_of(collection)?.ids = ids,
            Op::SetGrace { collection, seconds } => self.options_of(collection)?.grace_seconds = seconds,
            Op::SetMaxBytes { collection, bytes } => self.options_of(collection)?.max_bytes = bytes,
            Op::AddSegment { collection, segment } => self.add_segment(collection, segment, None)?,
            Op::AddSegmentInFolder { collection, segment, generation } => {
                self.add_segment(collection, segment, Some(generation))?;
            }
            Op::SetSegment { collection, segment, state } => self.set_segment(collection, segment, |_| state)?,
            Op::DropBuckets { collection, segment, dropped, live } => {
                self.set_segment(collection, segment, |old| old.state.without_buckets(&dropped, live))?;
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
            Op::SetHandOff { collection, required } => self.options_of(collection)?.hand_off = required,
            Op::SetHandedOver { collection, handed } => self.known(collection)?.handed_over = Arc::new(handed),
            Op::SetExpireInto { collection, url } => {
                let known = self.known(collection)?;
                let left = std::mem::replace(&mut Arc::make_mut(&mut known.options).expire_into, url.clone());
                let places = Arc::make_mut(&mut known.index_archives);
                known.archive = Arc::new(places.moved(left, &known.archive, url.as_deref()));
            }
            Op::SetKeep { collection, seconds } => {
                self.options_of(collection)?.keep_seconds = seconds;
            }
            Op::SetPublication { collection, publication } => {
                self.known(collection)?.publication = publication.map(Arc::new);
            }
            Op::SetIndexArchive { collection, index, archive } => {
                Arc::make_mut(&mut self.known(collection)?.index_archives).set(index, archive);
            }
            Op::SetArchiveAt { collection, url, archive } => {
                Arc::make_mut(&mut self.known(collection)?.index_archives).records.insert(url, archive);
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

    fn known(&mut self, id: u64) -> Result<&mut CollectionState> {
        self.by_id_mut(id).ok_or_else(|| unknown("collection", id))
    }

    fn options_of(&mut self, id: u64) -> Result<&mut CollectionOptions> {
        Ok(Arc::make_mut(&mut self.known(id)?.options))
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

    fn drop_collection(&mut self, id: u64) -> Result<()> {
        let name = self.known(id)?.name.clone();
        self.names.remove(&id);
        if let Some(gone) = self.collections.remove(&name) {
            gone.segments.values().for_each(|segment| self.retire(segment.clone()));
            if self.unlinks {
                gone.folder.retire();
                self.retired.collections.push(gone);
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

    fn set_segment(&mut self, of: u64, id: u64, state: impl FnOnce(&Segment) -> SegmentState) -> Result<()> {
        let segments = Arc::make_mut(&mut self.known(of)?.segments);
        let old = segments.get_mut(&id).ok_or_else(|| unknown("segment", id))?;
        *old = Arc::new(Segment::new(old.file.clone(), old.class, state(old)));
        Ok(())
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
                if !known.index_archives.of.is_empty() {
                    let rules = Arc::clone(&known.rules);
                    Arc::make_mut(&mut known.index_archives).retain(|index| rules.find(Some(index)).is_some());
                }
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
                    index_archives: Arc::default(),
                    archiving: Arc::default(),
                    publication: None,
                    publishing: Arc::default(),
                    ladder: None,
                };
                self.names.insert(record.id, record.name.clone());
                self.collections.insert(record.name, Arc::new(state));
            }
        }
        Ok(())
    }
}

pub(super) fn unknown(what: &str, id: u64) -> Error {
    Error::new(Code::DataCorruptionDetected, format!("unknown {what} {id}"))
}
