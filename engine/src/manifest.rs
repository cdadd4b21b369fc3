//! The durable list of what exists: collections with their options and rules, segments with what is gone from them,
//! log files, and the history of drops.
//!
//! A manifest file is a header and frames; the first frame is a checkpoint (the edits that make the whole state), each
//! further one an edit. An edit is atomic: its frame is whole or it did not happen. A new file replaces the old one by
//! sync, rename and folder sync, so that the newest file always starts with a whole checkpoint. FORMAT.md has the bytes.

use crate::batch_id::LastBatch;
use crate::closed::Ended;
use crate::error::{Error, Result};
use crate::fs::{Fs, WriteFile};
use crate::options::{CollectionOptions, check_collection_name};
use crate::segment::bounds::{LiveSummary, SegmentRecord, SegmentState};
use ebbtide_buckets::Schema;
use ebbtide_ttl::{Code, EXPIRE_AFTER_SECONDS_MAX, RuleSet, Timestamp};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"EBBMAN\x00\x01";
const HEADER_BYTES: usize = 8 + 16 + 8 + 4;
/// Bytes before a frame's payload: length, CRC-32 of the payload, CRC-32 of these two and of the frame's place.
const FRAME_BYTES: usize = 12;
/// Edits grow a manifest file to this many bytes, or to four times its checkpoint, before a new one is begun.
const EDITS_BYTES_MIN: u64 = 1 << 20;
/// Drops that the history keeps; older ones go.
pub(crate) const SWEEP_HISTORY_MAX: usize = 1000;

/// A collection as the manifest knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CollectionRecord {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) options: CollectionOptions,
    pub(crate) rules: RuleSet,
    /// Grows with every change of the rules: a segment's stamp of another epoch says nothing.
    pub(crate) rules_epoch: u64,
    pub(crate) schema: Schema,
    /// Inserts up to this sequence number are in segments; the log is replayed from the next one.
    pub(crate) sealed_seq: u64,
}

/// What one edit of the sweeper dropped through one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepRecord {
    /// The instant of the pass's one clock reading.
    pub at: Timestamp,
    /// The collection's name.
    pub collection: String,
    /// `collection`, or the partial index's name.
    pub rule: String,
    /// The rule's expireAfterSeconds.
    pub expire_after_seconds: i64,
    /// Measurements at or before this instant were past their time.
    pub cutoff: Timestamp,
    /// Buckets dropped.
    pub buckets: u64,
    /// Measurements dropped with them.
    pub measurements: u64,
    /// Bytes that they took on disk.
    pub bytes: u64,
}

/// One step of an edit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Op {
    NextIds {
        collection: u64,
        segment: u64,
        seq: u64,
    },
    PutCollection(CollectionRecord),
    DropCollection {
        id: u64,
    },
    SetSchema {
        collection: u64,
        schema: Schema,
    },
    AddSegment {
        collection: u64,
        segment: SegmentRecord,
    },
    SetSegment {
        collection: u64,
        segment: u64,
        state: SegmentState,
    },
    /// Further buckets of a segment are gone; `live` is of what is left.
    DropBuckets {
        collection: u64,
        segment: u64,
        dropped: RoaringBitmap,
        live: LiveSummary,
    },
    RemoveSegment {
        collection: u64,
        segment: u64,
    },
    Sealed {
        collection: u64,
        seq: u64,
    },
    AddLog {
        first_seq: u64,
    },
    RemoveLog {
        first_seq: u64,
    },
    Swept(SweepRecord),
    /// The last insert with an id among those that are sealed.
    SetLastBatch {
        collection: u64,
        last: LastBatch,
    },
}

/// Numbers of things and records stay below this, so that the next one can always be counted.
pub(crate) const NUMBER_END: u64 = 1 << 62;

impl Op {
    /// Checks that its numbers can be and that what it names goes together: all else relies on it. An edit that was forged
    /// or written by a program gone wrong is damage, whatever its checksum says.
    fn check(&self) -> std::result::Result<(), String> {
        let numbers = |numbers: &[u64]| match numbers.iter().find(|n| **n >= NUMBER_END) {
            Some(n) => Err(format!("the number {n} is none that is given")),
            None => Ok(()),
        };
        match self {
            Op::NextIds { collection, segment, seq } => numbers(&[*collection, *segment, *seq]),
            Op::PutCollection(record) => {
                numbers(&[record.id, record.sealed_seq, record.rules_epoch])?;
                record.check()
            }
            Op::DropCollection { id } => numbers(&[*id]),
            Op::SetLastBatch { collection, .. } => numbers(&[*collection]),
            Op::SetSchema { collection, .. } => numbers(&[*collection]),
            Op::AddSegment { collection, segment } => {
                numbers(&[*collection, segment.id, segment.meta.bytes])?;
                let (meta, live) = (&segment.meta, &segment.state.live);
                let fits = meta.rows <= u64::from(u32::MAX)
                    && live.rows <= meta.rows
                    && live.buckets <= meta.buckets
                    && meta.out_of_range <= meta.rows;
                if fits {
                    segment.state.check()
                } else {
                    Err(format!("segment {} holds less than is left", segment.id))
                }
            }
            Op::SetSegment { collection, segment, state } => {
                numbers(&[*collection, *segment])?;
                state.check()
            }
            Op::DropBuckets { collection, segment, live, .. } => {
                numbers(&[*collection, *segment])?;
                let (dropped, deleted) = (RoaringBitmap::new(), RoaringBitmap::new());
                SegmentState { dropped, deleted, changed: Vec::new(), live: *live }.check()
            }
            Op::RemoveSegment { collection, segment } => numbers(&[*collection, *segment]),
            Op::Sealed { collection, seq } => numbers(&[*collection, *seq]),
            Op::AddLog { first_seq } | Op::RemoveLog { first_seq } => numbers(&[*first_seq]),
            Op::Swept(_) => Ok(()),
        }
    }
}

impl CollectionRecord {
    fn check(&self) -> std::result::Result<(), String> {
        check_collection_name(&self.name).and_then(|()| self.options.validate()).map_err(|e| e.to_string())?;
        let (schema, options) = (&self.schema, &self.options);
        let of_options = (&options.time_field, &options.meta_field, options.precision);
        if (&schema.time, &schema.meta, schema.precision) != of_options {
            return Err(format!("the schema of collection '{}' is another one's", self.name));
        }
        match self.rules.iter().find(|r| !(0..=EXPIRE_AFTER_SECONDS_MAX).contains(&r.expire_after_seconds)) {
            Some(rule) => Err(format!("rule '{}' expires after {} s", rule.label(), rule.expire_after_seconds)),
            None => Ok(()),
        }
    }
}

impl SegmentState {
    fn check(&self) -> std::result::Result<(), String> {
        let rows = u64::from(u32::MAX);
        let changed = self.changed.iter().all(|b| b.rows <= rows && b.out_of_range <= b.rows && b.first <= b.last);
        let live = &self.live;
        if changed && live.rows <= rows && live.out_of_range <= live.rows {
            Ok(())
        } else {
            Err("a segment has more rows than it can have".to_owned())
        }
    }
}

/// The name of manifest number `number`.
pub(crate) fn file_name(number: u64) -> String {
    format!("MANIFEST-{number:016x}")
}

pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let hex = name.strip_prefix("MANIFEST-")?;
    (hex.len() == 16).then(|| u64::from_str_radix(hex, 16).ok()).flatten().filter(|number| *number < NUMBER_END)
}

/// Numbers of the manifests in a folder, oldest first.
pub(crate) fn numbers(fs: &dyn Fs, dir: &Path) -> Result<Vec<u64>> {
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, &e))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|n| parse_name(n)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// A manifest as read.
pub(crate) struct ManifestContents {
    pub(crate) identity: [u8; 16],
    pub(crate) edits: Vec<Vec<Op>>,
    /// Where the last whole edit ends.
    pub(crate) end: u64,
    /// Bytes behind it, which a crash left half-written.
    pub(crate) torn_bytes: u64,
}

/// Reads manifest `number`.
pub(crate) fn read(fs: &dyn Fs, dir: &Path, number: u64) -> Result<ManifestContents> {
    match read_prefix(fs, dir, number)? {
        (contents, None) => Ok(contents),
        (_, Some(damage)) => Err(damage),
    }
}

/// As [`read`]; damage behind the checkpoint is returned with the edits before it.
pub(crate) fn read_prefix(fs: &dyn Fs, dir: &Path, number: u64) -> Result<(ManifestContents, Option<Error>)> {
    let path = dir.join(file_name(number));
    let bytes = fs.read(&path).map_err(|e| Error::io("read the manifest", &path, &e))?;
    let identity = check_header(&bytes, &path, number)?;
    let mut contents = ManifestContents { identity, edits: Vec::new(), end: 0, torn_bytes: 0 };
    let mut at = HEADER_BYTES;
    let mut damage = None;
    while let Some(payload) = whole_frame(&bytes, at) {
        let edit = postcard::from_bytes::<Vec<Op>>(payload).map_err(|e| e.to_string());
        match edit.and_then(|edit| edit.iter().try_for_each(Op::check).map(|()| edit)) {
            Ok(edit) => contents.edits.push(edit),
            Err(e) => {
                damage = Some(Error::corrupt(&path, at as u64, format!("manifest edit does not decode: {e}")));
                break;
            }
        }
        at += FRAME_BYTES + payload.len();
    }
    if contents.edits.is_empty() {
        let damage =
            damage.unwrap_or_else(|| Error::corrupt(&path, HEADER_BYTES as u64, "manifest checkpoint is damaged"));
        return Err(damage);
    }
    (contents.end, contents.torn_bytes) = (at as u64, (bytes.len() - at) as u64);
    if damage.is_none() && contents.torn_bytes > 0 && damage_in_the_middle(&bytes, at) {
        damage = Some(Error::corrupt(&path, at as u64, "manifest edit is damaged and whole edits follow it"));
    }
    Ok((contents, damage))
}

/// A torn edit is the last one: edits are synced one by one, so a whole one behind a bad one means damage.
fn damage_in_the_middle(bytes: &[u8], bad: usize) -> bool {
    (bad + 1..bytes.len()).any(|at| whole_frame(bytes, at).is_some())
}

fn check_header(bytes: &[u8], path: &Path, number: u64) -> Result<[u8; 16]> {
    let header = bytes.get(..HEADER_BYTES).ok_or_else(|| Error::corrupt(path, 0, "manifest header cut short"))?;
    if header[..6] != MAGIC[..6] {
        return Err(Error::corrupt(path, 0, "not a manifest of Ebbtide"));
    }
    if &header[..8] != MAGIC {
        let version = u16::from_be_bytes([header[6], header[7]]);
        return Err(Error::new(
            Code::IncompatibleFormat,
            format!("{} has format version {version}, this program reads version 1: use a newer one", path.display()),
        ));
    }
    let stored = u32::from_le_bytes([header[32], header[33], header[34], header[35]]);
    let found = crc32fast::hash(&header[..32]);
    if stored != found {
        return Err(Error::corrupt(path, 0, format!("manifest header crc expected={stored:#x} found={found:#x}")));
    }
    if header[24..32] != number.to_le_bytes() {
        return Err(Error::corrupt(path, 24, "manifest is a renamed copy of another one"));
    }
    let mut identity = [0; 16];
    identity.copy_from_slice(&header[8..24]);
    Ok(identity)
}

/// What a frame's head is checked with: its file, by the CRC of that one's header, and its place there. What a power cut
/// leaves in the place of an edit may be an edit of another file or place, and that one does not count.
fn head_crc(head: &[u8], header: &[u8], at: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(&header[HEADER_BYTES - 4..HEADER_BYTES]);
    hasher.update(&(at as u64).to_le_bytes());
    hasher.finalize()
}

/// The payload of the frame at `at` in a manifest file, if it is whole. An empty payload is no frame: zeros are a torn tail.
fn whole_frame(file: &[u8], at: usize) -> Option<&[u8]> {
    let bytes = file.get(at..)?;
    let head = bytes.get(..FRAME_BYTES)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if head_crc(&head[..8], file, at) != word(8) {
        return None;
    }
    let payload = bytes.get(FRAME_BYTES..FRAME_BYTES.checked_add(word(0) as usize)?)?;
    (!payload.is_empty() && crc32fast::hash(payload) == word(4)).then_some(payload)
}

/// The frame of an edit for the place `at` of the file with this header.
fn encode_frame(edit: &[Op], header: &[u8], at: usize) -> Result<Vec<u8>> {
    let payload = postcard::to_stdvec(edit).map_err(|e| Error::internal(format!("encode a manifest edit: {e}")))?;
    let length = u32::try_from(payload.len()).map_err(|_| Error::internal("a manifest edit of over 4 GiB"))?;
    let mut frame = Vec::with_capacity(FRAME_BYTES + payload.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    frame.extend_from_slice(&head_crc(&frame, header, at).to_le_bytes());
    frame.extend_from_slice(&payload);
    Ok(frame)
}

/// The manifest that edits are appended to.
#[derive(Debug)]
pub(crate) struct ManifestWriter {
    dir: PathBuf,
    identity: [u8; 16],
    number: u64,
    path: PathBuf,
    header: Vec<u8>,
    file: Box<dyn WriteFile>,
    checkpoint_bytes: u64,
}

impl ManifestWriter {
    /// Publishes a new manifest with `checkpoint`. When this returns it is durable and the one that counts.
    pub(crate) fn create(fs: &dyn Fs, dir: &Path, identity: [u8; 16], number: u64, checkpoint: &[Op]) -> Result<Self> {
        let path = dir.join(file_name(number));
        let tmp = dir.join(format!("{}.tmp", file_name(number)));
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&identity);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        let header = bytes.clone();
        bytes.extend_from_slice(&encode_frame(checkpoint, &header, HEADER_BYTES)?);
        let write = || {
            if fs.exists(&tmp)? {
                fs.remove(&tmp)?;
            }
            let mut file = fs.create(&tmp)?;
            file.append(&bytes)?;
            file.sync()
        };
        let publish = || {
            write().inspect_err(|_| {
                // On a full disk what was written of it would take the room that is left.
                let taken_back = fs.remove(&tmp);
                tracing::debug!(path = %tmp.display(), ?taken_back, "took back a manifest that could not be written");
            })?;
            // Once it may have its name, no error is one of a disk that is merely full: at the next open this is the
            // manifest that counts, and an edit to the old one would be lost.
            let named = fs.publish(&tmp, &path).and_then(|()| fs.open_append(&path, bytes.len() as u64));
            named.map_err(std::io::Error::other)
        };
        let file = publish().map_err(|e| Error::io("write the manifest", &path, &e))?;
        Ok(ManifestWriter {
            dir: dir.to_owned(),
            identity,
            number,
            path,
            header,
            file,
            checkpoint_bytes: bytes.len() as u64,
        })
    }

    /// Appends an edit; when this returns it is durable. After an error the outcome is unknown: the caller poisons.
    pub(crate) fn append(&mut self, edit: &[Op]) -> Result<()> {
        let at = usize::try_from(self.file.len()).map_err(|_| Error::internal("a manifest that is too long"))?;
        let frame = encode_frame(edit, &self.header, at)?;
        let before = self.file.len();
        if let Err(e) = self.file.append(&frame) {
            let error = Error::io("append to the manifest", &self.path, &e);
            // A full disk leaves the manifest as it was, if the half-written edit can be taken back.
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
    pub(crate) fn ended(&self) -> Ended {
        Ended { number: self.number, bytes: self.file.len() }
    }

    /// Whether the edits have outgrown the checkpoint.
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
