//! What edits consist of.

use crate::archive::ArchiveRecord;
use crate::archive::index::IndexArchive;
use crate::batch_id::LastBatch;
use crate::documents::columns::ColumnRecord;
use crate::documents::options::DocumentsRecord;
use crate::documents::segment::DocumentSegmentRecord;
use crate::hand_off::record::HandedOver;
use crate::holds::Hold;
use crate::ladder::LadderRecord;
use crate::options::CollectionOptions;
use crate::publication::PublicationRecord;
use crate::segment::Segment;
use crate::segment::bounds::{LiveSummary, SegmentRecord, SegmentState};
use ebbtide_buckets::{FileTypes, Schema};
use ebbtide_ttl::{IdPolicy, RuleSet, Timestamp};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};

/// Number of drops in the history; older ones are removed.
pub(crate) const SWEEP_HISTORY_MAX: usize = 1000;

/// A collection in the manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CollectionRecord {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) options: CollectionOptions,
    pub(crate) rules: RuleSet,
    /// Increases with every change of the rules; the stamp of a segment is valid only in its own epoch.
    pub(crate) rules_epoch: u64,
    pub(crate) schema: Schema,
    /// Inserts up to this sequence number are in segments; the log is replayed from the next one.
    pub(crate) sealed_seq: u64,
}

impl CollectionRecord {
    /// The operations that create the collection, or change the one with the options `present`.
    pub(crate) fn put(self, present: Option<&CollectionOptions>) -> impl Iterator<Item = Op> + use<> {
        let collection = self.id;
        let CollectionOptions { ids, grace_seconds: seconds, max_bytes: bytes, hand_off: required, .. } = self.options;
        let (url, keep) = (self.options.expire_into.clone(), self.options.keep_seconds);
        let new = CollectionOptions::new("");
        let before = present.unwrap_or(&new);
        let ids = (ids != before.ids).then_some(Op::SetIds { collection, ids });
        let grace = (seconds != before.grace_seconds).then_some(Op::SetGrace { collection, seconds });
        let max_bytes = (bytes != before.max_bytes).then_some(Op::SetMaxBytes { collection, bytes });
        let hand_off = (required != before.hand_off).then_some(Op::SetHandOff { collection, required });
        let into = (url != before.expire_into).then_some(Op::SetExpireInto { collection, url });
        let keep = (keep != before.keep_seconds).then_some(Op::SetKeep { collection, seconds: keep });
        let archive = into.into_iter().chain(keep);
        std::iter::once(Op::PutCollection(self)).chain(ids).chain(grace).chain(max_bytes).chain(hand_off).chain(archive)
    }
}

/// What one edit of the sweeper dropped by one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepRecord {
    /// The instant at which the pass decided what had expired.
    pub at: Timestamp,
    /// The collection's name.
    pub collection: String,
    /// `collection`, the partial index's name, or `size` for what was above the collection's `maxBytes`.
    pub rule: String,
    /// The rule's expireAfterSeconds; 0 by size.
    pub expire_after_seconds: i64,
    /// Measurements at or before this instant had expired, and their grace period had ended. For the rule `size`: the end of the
    /// newest window from which something was dropped.
    pub cutoff: Timestamp,
    /// Buckets dropped.
    pub buckets: u64,
    /// Measurements dropped with them.
    pub measurements: u64,
    /// Bytes on disk that they took.
    pub bytes: u64,
}

/// One operation of an edit. The order of the variants is part of the format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Op {
    /// New collections, segments and log records take these numbers or higher ones.
    NextIds { collection: u64, segment: u64, seq: u64 },
    /// Creates a collection, or changes the options and rules of one with this number, all but its ids.
    PutCollection(CollectionRecord),
    /// Removes a collection with all its segments; its records in the log are ignored from then on.
    DropCollection { id: u64 },
    /// Adds or widens fields. Written with the first segment that has them; until then the log records them.
    SetSchema { collection: u64, schema: Schema },
    /// Adds a segment, whose file is durable in the folder of the database. Only older programs put one there.
    AddSegment { collection: u64, segment: SegmentRecord },
    /// What is left of a segment after rows were deleted.
    SetSegment { collection: u64, segment: u64, state: SegmentState },
    /// More buckets of a segment were dropped; `live` is about those that are left. Smaller than `SetSegment`, since it
    /// repeats nothing that was dropped before.
    DropBuckets { collection: u64, segment: u64, dropped: RoaringBitmap, live: LiveSummary },
    /// Removes a segment whose rows are all dropped, or in other segments that the same edit adds. Its file may be unlinked.
    RemoveSegment { collection: u64, segment: u64 },
    /// Inserts up to this sequence number are in segments, or were dropped as due; replay skips them.
    Sealed { collection: u64, seq: u64 },
    /// Adds a log file. Written before its first record, so that a missing file is noticed.
    AddLog { first_seq: u64 },
    /// Removes a log file whose records are all sealed. Written before the file is removed.
    RemoveLog { first_seq: u64 },
    /// What a sweep dropped, for the history.
    Swept(SweepRecord),
    /// The last insert with an id among those that are sealed.
    SetLastBatch { collection: u64, last: LastBatch },
    /// The types of the columns in segment files, which only widen. Comes before the first segment that has them.
    SetFileTypes { collection: u64, types: FileTypes },
    /// Adds a segment, whose file is durable in the folder of its collection, with types of this generation.
    AddSegmentInFolder { collection: u64, segment: SegmentRecord, generation: u32 },
    /// Makes a view of this name, or changes it: the statement that it was made with.
    PutView { name: String, text: String },
    /// Removes a view.
    DropView { name: String },
    /// Gives a collection another name. Its folder keeps the one it has.
    RenameCollection { id: u64, name: String },
    /// The folder of a collection that had another name when it was created. Comes before its segments, in checkpoints only.
    SetFolder { collection: u64, folder: String },
    /// The fields of a collection after one got another name or went, and the types of their columns. Comes after the removal
    /// of all segments, which the same edit replaces.
    ReplaceFields { collection: u64, schema: Schema, types: FileTypes },
    /// Creates an ordinary collection, or changes the options of one with this number.
    PutDocuments(DocumentsRecord),
    /// Adds a segment of documents, whose file is durable in the folder of its collection.
    AddDocumentSegment { collection: u64, segment: DocumentSegmentRecord },
    /// The rows that are gone from a segment of documents: those that were gone before, and more.
    SetDeletedDocuments { collection: u64, segment: u64, deleted: RoaringBitmap },
    /// The columns of an ordinary collection in SQL: those that there were before, and more, or with wider types.
    SetDocumentColumns { collection: u64, columns: Vec<ColumnRecord> },
    /// Whether ObjectIds are stored in a collection of measurements; a new one drops them.
    SetIds { collection: u64, ids: IdPolicy },
    /// For how many seconds expired buckets of measurements are still stored; a new collection has 0.
    SetGrace { collection: u64, seconds: i64 },
    /// How many bytes a collection of measurements may take; a new one has no limit.
    SetMaxBytes { collection: u64, bytes: Option<u64> },
    /// Makes a hold; if there is an active one of this name, changes it, which lifts it.
    PutHold(Hold),
    /// Whether buckets of a collection of measurements are dropped only after a sink has taken them over; of a new one they are not.
    SetHandOff { collection: u64, required: bool },
    /// The identities of buckets that were handed over, or may have been, and are not dropped.
    SetHandedOver { collection: u64, handed: HandedOver },
    /// The ladder of a collection of measurements, or none. Comes after the collections of its rungs.
    SetLadder { collection: u64, ladder: Option<LadderRecord> },
    /// Where what expires in a collection of measurements is moved to; of a new one it is deleted.
    SetExpireInto { collection: u64, url: Option<String> },
    /// What is known of the archive of a collection, and what is being moved there.
    SetArchive { collection: u64, archive: ArchiveRecord },
    /// For how many seconds what a collection has archived is kept; a new one keeps it for ever.
    SetKeep { collection: u64, seconds: Option<i64> },
    /// Where a collection is published, if it is.
    SetPublication { collection: u64, publication: Option<PublicationRecord> },
    /// Where what a TTL index of a collection of measurements expires is moved to, and for how long that is kept; of a new index it
    /// goes where what other rules expire does.
    SetIndexArchive { collection: u64, index: String, archive: Option<IndexArchive> },
    /// What is known of the archive at a URL, of an index, and what is being moved there.
    SetArchiveAt { collection: u64, url: String, archive: ArchiveRecord },
}

impl Op {
    /// Adds a segment as it is now.
    pub(crate) fn add_segment(collection: u64, segment: &Segment) -> Op {
        let (generation, segment) = (segment.file.generation, segment.record());
        match generation {
            None => Op::AddSegment { collection, segment },
            Some(generation) => Op::AddSegmentInFolder { collection, segment, generation },
        }
    }

    /// The collection that it is about, if it is about one.
    pub(crate) fn collection(&self) -> Option<u64> {
        match self {
            Op::PutCollection(CollectionRecord { id, .. })
            | Op::PutDocuments(DocumentsRecord { id, .. })
            | Op::DropCollection { id }
            | Op::RenameCollection { id, .. }
            | Op::SetFolder { collection: id, .. }
            | Op::ReplaceFields { collection: id, .. }
            | Op::SetSchema { collection: id, .. }
            | Op::AddSegment { collection: id, .. }
            | Op::SetSegment { collection: id, .. }
            | Op::DropBuckets { collection: id, .. }
            | Op::RemoveSegment { collection: id, .. }
            | Op::Sealed { collection: id, .. }
            | Op::SetLastBatch { collection: id, .. }
            | Op::SetFileTypes { collection: id, .. }
            | Op::AddSegmentInFolder { collection: id, .. }
            | Op::AddDocumentSegment { collection: id, .. }
            | Op::SetDeletedDocuments { collection: id, .. }
            | Op::SetDocumentColumns { collection: id, .. }
            | Op::SetIds { collection: id, .. }
            | Op::SetGrace { collection: id, .. }
            | Op::SetMaxBytes { collection: id, .. }
            | Op::SetHandOff { collection: id, .. }
            | Op::SetHandedOver { collection: id, .. }
            | Op::SetLadder { collection: id, .. }
            | Op::SetExpireInto { collection: id, .. }
            | Op::SetArchive { collection: id, .. }
            | Op::SetKeep { collection: id, .. }
            | Op::SetPublication { collection: id, .. }
            | Op::SetIndexArchive { collection: id, .. }
            | Op::SetArchiveAt { collection: id, .. } => Some(*id),
            Op::NextIds { .. }
            | Op::AddLog { .. }
            | Op::RemoveLog { .. }
            | Op::Swept(_)
            | Op::PutView { .. }
            | Op::DropView { .. }
            | Op::PutHold(_) => None,
        }
    }

    /// The types of columns that it sets.
    pub(crate) fn file_types(&self) -> Option<&FileTypes> {
        match self {
            Op::SetFileTypes { types, .. } => Some(types),
            _ => None,
        }
    }

    /// The segment that it adds.
    pub(crate) fn added_segment(&self) -> Option<&SegmentRecord> {
        match self {
            Op::AddSegment { segment, .. } | Op::AddSegmentInFolder { segment, .. } => Some(segment),
            _ => None,
        }
    }
}
