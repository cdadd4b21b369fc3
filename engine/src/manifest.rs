//! The durable list of what exists: collections with their options and rules, segments with what is gone from them,
//! log files, and the history of drops.
//!
//! A manifest file is a header and frames; the first frame is a checkpoint (the edits that make the whole state), each
//! further one an edit. An edit is atomic: if its frame is incomplete, it did not happen. A new file replaces the old one by
//! sync, rename and folder sync, so that the newest file always starts with a complete checkpoint. FORMAT.md has the bytes.

use crate::archive::ArchiveRecord;
use crate::batch_id::LastBatch;
use crate::documents::columns::DocumentColumn;
use crate::documents::options::DocumentsRecord;
use crate::documents::segment::DocumentSegmentRecord;
use crate::files::{FileEnd, FileName};
use crate::framed::{FileHeader, FrameFormat, HEADER_BYTES, Place, file_crc};
mod invariants;

use crate::error::{Error, Result};
use crate::fs::{Fs, WriteFile, temporary, write_synced};
use crate::hand_off::HandedOver;
use crate::holds::Hold;
use crate::ladder::LadderRecord;
use crate::options::CollectionOptions;
use crate::segment::Segment;
use crate::segment::bounds::{LiveSummary, SegmentRecord, SegmentState};
use ebbtide_buckets::{FileTypes, Schema};
use ebbtide_ttl::{Code, IdPolicy, RuleSet, Timestamp};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub(crate) use invariants::{Check, only_takes_away};
use invariants::{check_checkpoint, check_edit};

/// A frame's head: length, CRC-32 of the payload, CRC-32 of these two and of the frame's place.
const FORMAT: FrameFormat =
    FrameFormat { what: "manifest", magic: b"EBBMAN", version: 3, head_bytes: 12, head_crc_at: 8, payload_crc_at: 4 };
/// A new manifest file is begun when edits have grown it by this many bytes, and to four times its checkpoint.
const EDITS_BYTES_MIN: u64 = 1 << 20;
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
    /// Measurements at or before this instant had expired, and their grace was over; by size the end of the newest window of which
    /// something was dropped.
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
    SetDocumentColumns { collection: u64, columns: Vec<DocumentColumn> },
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
            | Op::SetKeep { collection: id, .. } => Some(*id),
            Op::NextIds { .. }
            | Op::AddLog { .. }
            | Op::RemoveLog { .. }
            | Op::Swept(_)
            | Op::PutView { .. }
            | Op::DropView { .. }
            | Op::PutHold(_) => None,
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

/// Numbers of the manifests in a folder, oldest first.
pub(crate) fn numbers(fs: &dyn Fs, dir: &Path) -> Result<Vec<u64>> {
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, &e))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|n| FileName::manifest_number(n)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// A manifest as read.
pub(crate) struct ManifestContents {
    pub(crate) identity: [u8; 16],
    pub(crate) edits: Vec<Vec<Op>>,
    /// Where the last complete edit ends.
    pub(crate) end: u64,
    /// Bytes after it, which a crash left half-written.
    pub(crate) torn_bytes: u64,
}

/// Reads manifest `number`.
pub(crate) fn read(fs: &dyn Fs, dir: &Path, number: u64) -> Result<ManifestContents> {
    match read_prefix(fs, dir, number)? {
        (contents, None) => Ok(contents),
        (_, Some(damage)) => Err(damage),
    }
}

/// As [`read`]; damage after the checkpoint is returned with the edits before it.
pub(crate) fn read_prefix(fs: &dyn Fs, dir: &Path, number: u64) -> Result<(ManifestContents, Option<Error>)> {
    let path = FileName::Manifest(number).path(dir);
    let bytes = fs.read(&path).map_err(|e| Error::io("read the manifest", &path, &e))?;
    let identity = FORMAT.read_header(&bytes, &path, number)?.identity;
    let mut contents = ManifestContents { identity, edits: Vec::new(), end: 0, torn_bytes: 0 };
    let mut at = HEADER_BYTES;
    let mut damage = None;
    for frame in FORMAT.frames(&bytes) {
        let checked = postcard::from_bytes::<Vec<Op>>(frame.payload).map_err(|e| e.to_string()).and_then(|edit| {
            if contents.edits.is_empty() {
                check_checkpoint(&edit)?
            } else {
                check_edit(&edit)?
            }
            Ok(edit)
        });
        match checked {
            Ok(edit) => contents.edits.push(edit),
            Err(what) => {
                damage = Some(Error::corrupt(&path, at as u64, format!("manifest edit is wrong: {what}")));
                break;
            }
        }
        at = frame.end();
    }
    if contents.edits.is_empty() {
        let damage =
            damage.unwrap_or_else(|| Error::corrupt(&path, HEADER_BYTES as u64, "manifest checkpoint is damaged"));
        return Err(damage);
    }
    (contents.end, contents.torn_bytes) = (at as u64, (bytes.len() - at) as u64);
    // Only the last edit can be torn: edits are synced one by one, so a complete one after a bad one means damage.
    let mut later = (at + 1..bytes.len()).filter_map(|at| FORMAT.frame_at(&bytes, at));
    if damage.is_none() && later.next().is_some() {
        damage = Some(Error::corrupt(&path, at as u64, "manifest edit is damaged and complete edits follow it"));
    }
    Ok((contents, damage))
}

/// Appends the frame of an edit, for the place `start`.
fn put_edit(out: &mut Vec<u8>, start: Place, edit: &[Op]) -> Result<()> {
    let payload = postcard::to_stdvec(edit).map_err(|e| Error::internal(format!("encode a manifest edit: {e}")))?;
    u32::try_from(payload.len()).map_err(|_| Error::internal("a manifest edit of over 4 GiB"))?;
    FORMAT.put(out, start, &[], &payload, crc32fast::hash(&payload));
    Ok(())
}

/// The error that refuses a wrong edit before it is written.
pub(crate) fn refused(what: String) -> Error {
    Error::internal(format!("a wrong edit of the manifest was refused, and nothing was changed: {what}"))
}

/// The open manifest, to which edits are appended.
#[derive(Debug)]
pub(crate) struct ManifestWriter {
    dir: PathBuf,
    identity: [u8; 16],
    number: u64,
    path: PathBuf,
    file_crc: u32,
    file: Box<dyn WriteFile>,
    checkpoint_bytes: u64,
}

impl ManifestWriter {
    /// Publishes a new manifest with `checkpoint`. When this returns it is durable, and the newest one.
    pub(crate) fn create(fs: &dyn Fs, dir: &Path, identity: [u8; 16], number: u64, checkpoint: &[Op]) -> Result<Self> {
        let path = FileName::Manifest(number).path(dir);
        let tmp = temporary(&path);
        check_checkpoint(checkpoint).map_err(refused)?;
        let mut bytes = FORMAT.header(FileHeader { identity, number });
        let file_crc = file_crc(&bytes);
        put_edit(&mut bytes, Place { file: file_crc, offset: 0 }, checkpoint)?;
        let publish = || {
            drop(write_synced(fs, &tmp, &bytes)?);
            // Once it may have its name, no error is reported as a full disk: the next open would use this manifest, and
            // an edit of the old one would be lost.
            let named = fs.publish(&tmp, &path).and_then(|()| fs.open_append(&path, bytes.len() as u64));
            named.map_err(std::io::Error::other)
        };
        let file = publish().map_err(|e| Error::io("write the manifest", &path, &e))?;
        Ok(ManifestWriter {
            dir: dir.to_owned(),
            identity,
            number,
            path,
            file_crc,
            file,
            checkpoint_bytes: bytes.len() as u64,
        })
    }

    /// Appends an edit; when this returns it is durable.
    ///
    /// # Errors
    /// [`Code::OutOfDiskSpace`] and [`Code::InternalError`] (the edit is wrong): nothing was written. After any other the
    /// outcome is unknown, and the caller stops writing.
    pub(crate) fn append(&mut self, edit: &[Op]) -> Result<()> {
        check_edit(edit).map_err(refused)?;
        let before = self.file.len();
        let mut frame = Vec::new();
        put_edit(&mut frame, Place { file: self.file_crc, offset: before }, edit)?;
        if let Err(e) = self.file.append(&frame) {
            let error = Error::io("append to the manifest", &self.path, &e);
            // On a full disk the manifest is unchanged, if the half-written edit can be cut off.
            return match self.file.truncate(before).and_then(|()| self.file.sync()) {
                Ok(()) if error.code() == Code::OutOfDiskSpace => Err(error),
                _ => Err(Error::new(Code::NotWritable, error.to_string())),
            };
        }
        self.file
            .sync()
            .map_err(|e| Error::new(Code::NotWritable, Error::io("sync the manifest", &self.path, &e).to_string()))
    }

    /// Its number and length.
    pub(crate) fn end(&self) -> FileEnd {
        FileEnd { number: self.number, bytes: self.file.len() }
    }

    /// Whether the edits have outgrown the checkpoint, so that a new manifest should be begun.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.file.len() > self.checkpoint_bytes.saturating_mul(4).max(self.checkpoint_bytes + EDITS_BYTES_MIN)
    }

    /// Begins a new manifest file with `checkpoint` and removes the old one.
    pub(crate) fn checkpoint(&mut self, fs: &dyn Fs, checkpoint: &[Op]) -> Result<()> {
        let next = Self::create(fs, &self.dir, self.identity, self.number + 1, checkpoint)?;
        let old = std::mem::replace(self, next);
        drop(old.file);
        fs.remove(&old.path).map_err(|e| Error::io("remove the old manifest", &old.path, &e))
    }
}

#[cfg(test)]
mod tests;
