//! The log of inserts, which keeps acknowledged rows until they are sealed.
//!
//! A log file is a header and frames. A frame is one record, which is what one command did, to one collection or to several: all
//! of it is replayed or nothing. Replay stops at the first torn frame of the newest file, and refuses damage anywhere else: skipping over it would leave a hole.
//! FORMAT.md has the bytes.

mod log_set;
mod tail;

use crate::batch_id::BatchId;
use crate::documents::changes::{self, Change};
use crate::error::{Error, Result};
use crate::files::{FileEnd, FileName, NUMBER_END};
use crate::framed::{self, FileHeader, Frame, FrameFormat};
use crate::fs::{Fs, WriteFile, replace, write_synced};
use arrow::array::RecordBatch;
use ebbtide_buckets::unpack;
use ebbtide_ttl::Code;
use std::path::{Path, PathBuf};

pub(crate) use crate::framed::{HEADER_BYTES, Place};
pub(crate) use log_set::{FaultKind, LogEnd, LogFault, LogSet, LogVisitor};
pub(crate) use tail::{LogTail, RawRecord, log_of};

/// A frame's head: length, CRC-32 of head and place, CRC-32 of the payload, sequence number, collection, last synced
/// sequence number.
const FORMAT: FrameFormat =
    FrameFormat { what: "log", magic: b"EBBWAL", version: 2, head_bytes: 36, head_crc_at: 4, payload_crc_at: 8 };

/// One command as it is stored in the log.
#[derive(Debug)]
pub(crate) struct LogRecord {
    pub(crate) seq: u64,
    /// What it did, by collection; never empty.
    pub(crate) parts: Vec<LogPart>,
}

impl LogRecord {
    /// Measurements and changes of documents, of the parts that were decoded.
    pub(crate) fn rows(&self) -> u64 {
        self.parts.iter().filter_map(|part| part.content.as_ref()).map(LogContent::rows).sum()
    }
}

/// What a command did to one collection.
#[derive(Debug)]
pub(crate) struct LogPart {
    pub(crate) collection: u64,
    /// `None` if the caller does not need it.
    pub(crate) content: Option<LogContent>,
    /// Bytes in the log.
    pub(crate) bytes: u64,
}

/// What a part of a record brings.
#[derive(Debug)]
pub(crate) enum LogContent {
    /// Measurements, with the id of the insert if it has one.
    Rows(RecordBatch, Option<BatchId>),
    /// What a command did to an ordinary collection.
    Documents(Vec<Change>),
}

impl LogContent {
    /// Measurements or documents.
    pub(crate) fn rows(&self) -> u64 {
        match self {
            LogContent::Rows(batch, _) => batch.num_rows() as u64,
            LogContent::Documents(changes) => changes.len() as u64,
        }
    }

    /// The payload of a frame with this alone.
    pub(crate) fn payload(&self) -> Result<Vec<u8>> {
        match self {
            LogContent::Rows(batch, id) => encode_payload(batch, *id),
            LogContent::Documents(changes) => Ok(changes::encode(changes)),
        }
    }
}

/// The first byte of a payload that begins with a [`BatchId`]; a packed batch begins with its own version.
const WITH_ID: u8 = 0xb1;
/// The first byte of a payload that has parts for several collections.
const TOGETHER: u8 = 0xb2;
/// The collection in the head of such a record: none has this number.
pub(crate) const SEVERAL: u64 = 0;
/// The bytes before the payload of a part: its collection and its length.
const PART_HEAD_BYTES: usize = 8 + 4;
/// That byte, and the two numbers of the id.
const ID_BYTES: usize = 1 + 8 + 8;

/// The payload of a frame: the insert's id, if it has one, and one packed batch.
pub(crate) fn encode_payload(batch: &RecordBatch, id: Option<BatchId>) -> Result<Vec<u8>> {
    let packed = ebbtide_buckets::pack(batch)?;
    let Some(id) = id else { return Ok(packed) };
    let mut payload = Vec::with_capacity(ID_BYTES + packed.len());
    payload.push(WITH_ID);
    payload.extend_from_slice(&id.source.to_le_bytes());
    payload.extend_from_slice(&id.number.to_le_bytes());
    payload.extend_from_slice(&packed);
    Ok(payload)
}

/// The payload of a record of several parts, which has none yet.
pub(crate) fn begin_parts() -> Vec<u8> {
    vec![TOGETHER]
}

/// Checks that a record can hold several parts of these lengths.
pub(crate) fn check_parts(lengths: impl Iterator<Item = usize>) -> Result<()> {
    check_length(lengths.fold(1, |sum, length| sum + PART_HEAD_BYTES + length))
}

/// Appends a part to the payload of a record of several, which was checked. Each is what would be the payload of a record of its
/// own.
pub(crate) fn put_part(payload: &mut Vec<u8>, collection: u64, part: &[u8]) {
    assert!(collection != SEVERAL && !part.is_empty(), "a part of a record is about one collection");
    let length = u32::try_from(part.len()).expect("callers refuse payloads of over 4 GiB");
    payload.reserve(PART_HEAD_BYTES + part.len());
    payload.extend_from_slice(&collection.to_le_bytes());
    payload.extend_from_slice(&length.to_le_bytes());
    payload.extend_from_slice(part);
}

/// The collections of a record and what it has for each.
fn parts_of(collection: u64, payload: &[u8]) -> std::result::Result<Vec<(u64, &[u8])>, String> {
    let (Some((&TOGETHER, mut rest)), SEVERAL) = (payload.split_first(), collection) else {
        return match collection {
            SEVERAL => Err("it is about no collection".to_owned()),
            collection => Ok(vec![(collection, payload)]),
        };
    };
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let cut = || format!("part {} is cut short", parts.len());
        let (head, after) = rest.split_first_chunk::<PART_HEAD_BYTES>().ok_or_else(cut)?;
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let (part, after) = after.split_at_checked(length as usize).ok_or_else(cut)?;
        if framed::long(head, 0) == SEVERAL {
            return Err(format!("part {} is about no collection", parts.len()));
        }
        parts.push((framed::long(head, 0), part));
        rest = after;
    }
    if parts.is_empty() { Err("it has no parts".to_owned()) } else { Ok(parts) }
}

/// What the parts of a record bring, as far as it is wanted. The bytes of the parts are those of the frame.
fn decode_parts(
    (collection, payload): (u64, &[u8]),
    frame_bytes: u64,
    wants: impl Fn(u64) -> bool,
) -> std::result::Result<Vec<LogPart>, String> {
    let mut others = frame_bytes;
    let mut parts = Vec::new();
    for (collection, payload) in parts_of(collection, payload)? {
        let content = wants(collection).then(|| decode_payload(payload)).transpose()?;
        let bytes = payload.len() as u64;
        others -= bytes;
        parts.push(LogPart { collection, content, bytes });
    }
    if let Some(first) = parts.first_mut() {
        first.bytes += others;
    }
    Ok(parts)
}

/// What the payload of one part brings.
fn decode_payload(payload: &[u8]) -> std::result::Result<LogContent, String> {
    if payload.first() == Some(&changes::MARK) {
        return changes::decode(payload).map(LogContent::Documents);
    }
    let (id, packed) = match payload.split_first_chunk::<ID_BYTES>() {
        Some((&[WITH_ID, a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7], packed)) => {
            let source = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
            let number = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
            (Some(BatchId { source, number }), packed)
        }
        _ => (None, payload),
    };
    Ok(LogContent::Rows(unpack(packed).map_err(|e| e.to_string())?, id))
}

/// Checks that a frame can hold this payload.
pub(crate) fn check_payload(payload: &[u8]) -> Result<()> {
    check_length(payload.len())
}

/// Checks that a frame can hold a payload of this length.
fn check_length(bytes: usize) -> Result<()> {
    match u32::try_from(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(Code::BadValue, "one insert holds at most 4 GiB; split it into several")),
    }
}

/// The head of a record, without the length of its payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) seq: u64,
    pub(crate) collection: u64,
    /// The last record that was durable when this one was written: a bad record up to it is damage, a later one may be
    /// the result of a crash.
    pub(crate) synced_seq: u64,
}

impl Record {
    /// Reads the head of a frame; `None` if the sequence number is out of range: the next number must be valid too.
    fn parse(head: &[u8]) -> Option<Record> {
        let at = |at| framed::long(head, at);
        let record = Record { seq: at(12), collection: at(20), synced_seq: at(28) };
        (1..NUMBER_END - 1).contains(&record.seq).then_some(record)
    }

    fn fields(self) -> [u8; 24] {
        let mut fields = [0; 24];
        fields[..8].copy_from_slice(&self.seq.to_le_bytes());
        fields[8..16].copy_from_slice(&self.collection.to_le_bytes());
        fields[16..].copy_from_slice(&self.synced_seq.to_le_bytes());
        fields
    }
}

/// Appends a complete frame to `out`, for the place `start`.
pub(crate) fn put_frame(out: &mut Vec<u8>, start: Place, record: Record, payload: &[u8], crc: u32) {
    assert!((1..NUMBER_END - 1).contains(&record.seq), "sequence number out of range: seq={}", record.seq);
    assert!(record.synced_seq < record.seq, "a record is synced after it is written: seq={}", record.seq);
    FORMAT.put(out, start, &record.fields(), payload, crc);
}

/// The most zeros that are kept behind the end of a log.
const AHEAD_BYTES_MAX: u64 = 512 << 10;
/// Frames from this length on make the file grow: writing them twice would cost more than their sync saves.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// An open log file.
///
/// Behind its last frame it may have zeros, which the next frames overwrite: their sync then writes nothing but them. No frame
/// begins with zeros, so a reader takes them for the end; whatever part of a frame a power cut leaves there, its checksum does
/// not match, as at the end of the file. The zeros are cut off before another file follows and before a shutdown counts as
/// clean. So a complete log ends with its last frame, and a lost end is noticed.
#[derive(Debug)]
pub(crate) struct LogWriter {
    pub(crate) first_seq: u64,
    pub(crate) path: PathBuf,
    file_crc: u32,
    file: Box<dyn WriteFile>,
    /// Where the zeros behind the end of the file stop.
    filled: u64,
    /// Whether the disk has taken all zeros so far.
    fills: bool,
}

impl LogWriter {
    /// Creates the file; when this returns, it and its name are durable. A file of that name is left over from a
    /// failed attempt: no manifest names it.
    pub(crate) fn create(fs: &dyn Fs, dir: &Path, identity: [u8; 16], first_seq: u64) -> Result<Self> {
        let path = FileName::Log(first_seq).path(dir);
        let header = FORMAT.header(FileHeader { identity, number: first_seq });
        let created = write_synced(fs, &path, &header).and_then(|file| fs.sync_dir(dir).map(|()| file));
        let file = created.map_err(|e| Error::io("create the log file", &path, &e))?;
        Ok(LogWriter::of(first_seq, path, &header, file))
    }

    /// Continues an existing file that holds no record yet. One of an older version gets the header of this one, since it is about
    /// to get its records.
    pub(crate) fn reopen(fs: &dyn Fs, dir: &Path, identity: [u8; 16], first_seq: u64) -> Result<Self> {
        let path = FileName::Log(first_seq).path(dir);
        let header = FORMAT.header(FileHeader { identity, number: first_seq });
        let renewed = || match fs.read(&path)?.starts_with(&header) {
            true => Ok(()),
            false => replace(fs, &path, &header),
        };
        renewed().map_err(|e| Error::io("renew the header of the log", &path, &e))?;
        let file = fs.open_append(&path, HEADER_BYTES as u64).and_then(|mut file| file.sync().map(|()| file));
        let file = file.map_err(|e| Error::io("open the log", &path, &e))?;
        Ok(LogWriter::of(first_seq, path, &header, file))
    }

    fn of(first_seq: u64, path: PathBuf, header: &[u8], file: Box<dyn WriteFile>) -> Self {
        LogWriter { first_seq, path, file_crc: framed::file_crc(header), filled: file.len(), file, fills: true }
    }

    /// The place of the next frame.
    pub(crate) fn place(&self) -> Place {
        Place { file: self.file_crc, offset: self.len() }
    }

    /// Sees that there are zeros for frames of this length, if they are small and about to be synced. There are never more zeros
    /// than frames before them, so a log with few records stays small.
    pub(crate) fn fill_ahead(&mut self, frames: usize) {
        let ahead = self.len().min(AHEAD_BYTES_MAX);
        let is_small = frames <= SMALL_BYTES_MAX && 2 * frames as u64 <= ahead;
        if !self.fills || !is_small || self.len() + frames as u64 <= self.filled {
            return;
        }
        self.filled = self.len() + ahead;
        if let Err(error) = self.file.fill_ahead(ahead as usize) {
            // They only save time. A disk that has no room for them needs it for something else.
            self.fills = false;
            let cut = self.file.truncate(self.len());
            tracing::debug!(path = %self.path.display(), %error, ?cut, "could not write ahead in the log");
        }
    }

    pub(crate) fn append(&mut self, frames: &[u8]) -> Result<()> {
        self.file.append(frames).map_err(|e| Error::io("append to the log", &self.path, &e))
    }

    pub(crate) fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(|e| Error::io("sync the log", &self.path, &e))
    }

    pub(crate) fn len(&self) -> u64 {
        self.file.len()
    }

    /// The number in its name and its length.
    pub(crate) fn end(&self) -> FileEnd {
        FileEnd { number: self.first_seq, bytes: self.len() }
    }

    /// Cuts off what a failed append may have left, so that the log ends with a complete frame again.
    pub(crate) fn cut_back(&mut self, len: u64) -> Result<()> {
        self.file
            .truncate(len)
            .and_then(|()| self.file.sync())
            .map_err(|e| Error::io("cut back the log", &self.path, &e))?;
        self.filled = len;
        Ok(())
    }

    /// Whether there may be zeros behind the end.
    pub(crate) fn is_filled_ahead(&self) -> bool {
        self.filled > self.len()
    }

    /// Cuts off the zeros behind the end, durably, and syncs what was appended.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self.is_filled_ahead() {
            true => self.cut_back(self.len()),
            false => self.sync(),
        }
    }
}

/// Every record in `file` from offset `from` whose checksums match, wherever it starts: what is left after damage. For reports,
/// never for replay.
pub(crate) fn salvage(file: &[u8], from: usize) -> Vec<LogRecord> {
    let mut records = Vec::new();
    let mut at = from;
    while at < file.len() {
        let Some((record, frame)) = record_at(file, at) else {
            at += 1;
            continue;
        };
        let bytes = (frame.end() - at) as u64;
        let parts = decode_parts((record.collection, frame.payload), bytes, |_| true);
        let unread = |_| vec![LogPart { collection: record.collection, content: None, bytes }];
        records.push(LogRecord { seq: record.seq, parts: parts.unwrap_or_else(unread) });
        at = frame.end();
    }
    records
}

/// The record at `at` in a log file, if it is complete and its checksums match.
fn record_at(file: &[u8], at: usize) -> Option<(Record, Frame<'_>)> {
    let frame = FORMAT.frame_at(file, at)?;
    Some((Record::parse(frame.head)?, frame))
}
