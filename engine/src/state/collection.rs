//! A collection in one version of the state.

use crate::archive::index::IndexArchives;
use crate::archive::{ArchiveRecord, ArchiveSlot};
use crate::batch_id::LastBatch;
use crate::error::Result;
use crate::hand_off::record::HandedOver;
use crate::hand_off::sink::SinkSlot;
use crate::holds::Hold;
use crate::ladder::LadderRecord;
use crate::manifest::{CollectionRecord, Op};
use crate::memtable::Memtable;
use crate::options::CollectionOptions;
use crate::publication::{PublicationRecord, PublicationSlot};
use crate::segment::Segment;
use crate::segment::folder::SegmentFolder;
use arrow::array::RecordBatch;
use ebbtide_buckets::{Chunk, FileTypes, Schema, adapt, schema_of_batch};
use ebbtide_ttl::{Cutoff, OutOfRange, RuleSet, Timestamp};
use std::collections::BTreeMap;
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
    /// What is known of its own archive.
    pub(crate) archive: Arc<ArchiveRecord>,
    /// The archives of its indexes.
    pub(crate) index_archives: Arc<IndexArchives>,
    /// The archives in this process. All versions share it.
    pub(crate) archiving: Arc<ArchiveSlot>,
    /// Where it is published, if it is.
    pub(crate) publication: Option<Arc<PublicationRecord>>,
    /// Its publication in this process. All versions share it.
    pub(crate) publishing: Arc<PublicationSlot>,
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
