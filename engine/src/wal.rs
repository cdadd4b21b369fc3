//! The log of inserts: what an acknowledgement rests on until the rows are sealed.
//!
//! A log file is a header and frames. A frame is one insert: all of it is replayed or nothing. Replay stops at the
//! first frame of the newest file that is torn, and refuses damage anywhere else: skipping over it would leave a hole.
//! FORMAT.md has the bytes.

use crate::batch_id::BatchId;
use crate::closed::Ended;
use crate::error::{Error, Result};
use crate::fs::{Fs, WriteFile};
use crate::manifest::NUMBER_END;
use arrow::array::RecordBatch;
use ebbtide_buckets::unpack;
use ebbtide_ttl::Code;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"EBBWAL\x00\x01";
/// Bytes of a log file's header: magic, database identity, first sequence number, CRC-32.
pub(crate) const HEADER_BYTES: usize = 8 + 16 + 8 + 4;
/// Bytes before a frame's payload: length, CRC-32 of the head and its place, CRC-32 of the payload, sequence number,
/// collection, last synced sequence number.
const FRAME_BYTES: usize = 4 + 4 + 4 + 8 + 8 + 8;

/// One insert as it lies in the log.
#[derive(Debug)]
pub(crate) struct LogRecord {
    pub(crate) seq: u64,
    pub(crate) collection: u64,
    /// `None` where the caller did not want it.
    pub(crate) batch: Option<RecordBatch>,
    /// The id that the insert was given, where its batch is wanted.
    pub(crate) batch_id: Option<BatchId>,
    /// What it takes in the log.
    pub(crate) bytes: u64,
}

/// The name of the log file whose first record is `first_seq`.
pub(crate) fn file_name(first_seq: u64) -> String {
    format!("wal-{first_seq:016x}.log")
}

/// The first sequence number that a log file's name gives.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let hex = name.strip_prefix("wal-")?.strip_suffix(".log")?;
    (hex.len() == 16).then(|| u64::from_str_radix(hex, 16).ok()).flatten().filter(|number| *number < NUMBER_END)
}

/// The first byte of a payload that begins with a [`BatchId`]; a packed batch begins with its own version.
const WITH_ID: u8 = 0xb1;
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

fn decode_payload(payload: &[u8]) -> std::result::Result<(RecordBatch, Option<BatchId>), String> {
    let (id, packed) = match payload.split_first_chunk::<ID_BYTES>() {
        Some((&[WITH_ID, a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7], packed)) => {
            let source = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
            let number = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
            (Some(BatchId { source, number }), packed)
        }
        _ => (None, payload),
    };
    Ok((unpack(packed).map_err(|e| e.to_string())?, id))
}

/// Checks that a frame can hold this payload.
pub(crate) fn check_payload(payload: &[u8]) -> Result<()> {
    match u32::try_from(payload.len()) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(Code::BadValue, "one insert holds at most 4 GiB; split it into several")),
    }
}

/// Where frames go: a file, told by the CRC of its header, and an offset in it. A frame's head is checked with both: what a
/// power cut leaves in the place of a record may be a record of another file or place, and that one does not count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    file: u32,
    offset: u64,
}

/// One record's head but for the length of its payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) seq: u64,
    pub(crate) collection: u64,
    /// The last record known to be durable when this one is written: a bad record up to there is damage, one behind it
    /// may be what a crash tore.
    pub(crate) synced_seq: u64,
}

/// Appends a whole frame to `out`, which goes to `start`.
pub(crate) fn put_frame(out: &mut Vec<u8>, start: Place, record: Record, payload: &[u8], crc: u32) {
    let length = u32::try_from(payload.len()).expect("checked by check_payload before the record was queued");
    let mut head = [0; FRAME_BYTES];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[8..12].copy_from_slice(&crc.to_le_bytes());
    head[12..20].copy_from_slice(&record.seq.to_le_bytes());
    head[20..28].copy_from_slice(&record.collection.to_le_bytes());
    head[28..36].copy_from_slice(&record.synced_seq.to_le_bytes());
    let place = Place { offset: start.offset + out.len() as u64, ..start };
    let checked = head_crc(&head, place);
    head[4..8].copy_from_slice(&checked.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(payload);
}

fn head_crc(head: &[u8], place: Place) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head[..4]);
    hasher.update(&head[8..FRAME_BYTES]);
    hasher.update(&place.file.to_le_bytes());
    hasher.update(&place.offset.to_le_bytes());
    hasher.finalize()
}

/// The head of a frame, if one starts at `at` in a log file and its CRC holds.
struct Head {
    length: usize,
    payload_crc: u32,
    seq: u64,
    collection: u64,
    synced_seq: u64,
}

impl Head {
    fn parse(file: &[u8], at: usize) -> Option<Head> {
        let head = file.get(at..at.checked_add(FRAME_BYTES)?)?;
        let place = Place { file: header_crc(file), offset: at as u64 };
        let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let parsed = Head {
            length: word(0)? as usize,
            payload_crc: word(8)?,
            seq: long(12)?,
            collection: long(20)?,
            synced_seq: long(28)?,
        };
        (head_crc(head, place) == word(4)? && (1..NUMBER_END).contains(&parsed.seq)).then_some(parsed)
    }
}

fn header(identity: [u8; 16], first_seq: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&identity);
    header.extend_from_slice(&first_seq.to_le_bytes());
    header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    header
}

/// The CRC at the end of a log file's header.
fn header_crc(file: &[u8]) -> u32 {
    let stored = file.get(HEADER_BYTES - 4..HEADER_BYTES).and_then(|bytes| bytes.try_into().ok());
    stored.map_or(0, u32::from_le_bytes)
}

/// An open log file.
#[derive(Debug)]
pub(crate) struct LogWriter {
    pub(crate) first_seq: u64,
    pub(crate) path: PathBuf,
    header_crc: u32,
    file: Box<dyn WriteFile>,
}

impl LogWriter {
    /// Creates the file; when this returns, it and its name are durable.
    pub(crate) fn create(fs: &dyn Fs, dir: &Path, identity: [u8; 16], first_seq: u64) -> Result<Self> {
        let path = dir.join(file_name(first_seq));
        let header = header(identity, first_seq);
        let write = || {
            if fs.exists(&path)? {
                fs.remove(&path)?; // The manifest does not name it: left over from an attempt that failed.
            }
            let mut file = fs.create(&path)?;
            file.append(&header)?;
            file.sync()?;
            fs.sync_dir(dir)?;
            Ok(file)
        };
        let file = write().map_err(|e| Error::io("create the log file", &path, &e))?;
        Ok(LogWriter { first_seq, path, header_crc: header_crc(&header), file })
    }

    /// Goes on in an existing file that holds no record yet.
    pub(crate) fn reopen(fs: &dyn Fs, dir: &Path, identity: [u8; 16], first_seq: u64) -> Result<Self> {
        let path = dir.join(file_name(first_seq));
        let file = fs.open_append(&path, HEADER_BYTES as u64).and_then(|mut file| file.sync().map(|()| file));
        let file = file.map_err(|e| Error::io("open the log", &path, &e))?;
        Ok(LogWriter { first_seq, path, header_crc: header_crc(&header(identity, first_seq)), file })
    }

    /// Where the next frame goes.
    pub(crate) fn place(&self) -> Place {
        Place { file: self.header_crc, offset: self.len() }
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
    pub(crate) fn ended(&self) -> Ended {
        Ended { number: self.first_seq, bytes: self.len() }
    }

    /// Cuts what a failed append may have left, so that the log ends with a whole frame again.
    pub(crate) fn cut_back(&mut self, len: u64) -> Result<()> {
        self.file
            .truncate(len)
            .and_then(|()| self.file.sync())
            .map_err(|e| Error::io("cut back the log", &self.path, &e))
    }
}

/// What reading a log file gave.
#[derive(Debug)]
pub(crate) struct LogContents {
    pub(crate) records: Vec<LogRecord>,
    pub(crate) end: LogEnd,
}

/// Reads a log file; `wanted` says whether a record's batch is needed. Decodes nothing that its CRC does not vouch for. Damage
/// behind the header is returned with the records before it.
pub(crate) fn read_prefix(
    fs: &dyn Fs,
    path: &Path,
    identity: [u8; 16],
    wanted: &dyn Fn(u64, u64) -> bool,
) -> Result<(LogContents, Option<Error>)> {
    let mut records = Vec::new();
    let (end, damage) = read_each(fs, path, identity, wanted, &mut |record| {
        records.push(record);
        Ok(())
    })?;
    Ok((LogContents { records, end }, damage))
}

/// Where a log file ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogEnd {
    /// Where the last whole frame ends.
    pub(crate) whole: u64,
    /// Bytes behind it, which a crash left half-written.
    pub(crate) torn_bytes: u64,
}

/// As [`read_prefix`], with one record at a time in memory: `visit` gets each, and ends the reading with an error.
pub(crate) fn read_each(
    fs: &dyn Fs,
    path: &Path,
    identity: [u8; 16],
    wanted: &dyn Fn(u64, u64) -> bool,
    visit: &mut dyn FnMut(LogRecord) -> Result<()>,
) -> Result<(LogEnd, Option<Error>)> {
    let bytes = fs.read(path).map_err(|e| Error::io("read the log", path, &e))?;
    let mut seq = check_header(&bytes, path, identity)?;
    let mut at = HEADER_BYTES;
    let mut damage = None;
    while let Some((head, payload)) = whole_frame(&bytes, at) {
        let batch = if head.seq == seq {
            wanted(seq, head.collection)
                .then(|| decode_payload(payload))
                .transpose()
                .map_err(|e| format!("log record {seq} does not decode: {e}"))
        } else {
            Err(format!("log record expected={seq} found={}", head.seq))
        };
        match batch {
            Ok(decoded) => {
                let bytes = (FRAME_BYTES + payload.len()) as u64;
                let (batch, batch_id) = decoded.map_or((None, None), |(batch, id)| (Some(batch), id));
                visit(LogRecord { seq, collection: head.collection, batch, batch_id, bytes })?;
            }
            Err(what) => {
                damage = Some(Error::corrupt(path, at as u64, what));
                break;
            }
        }
        at += FRAME_BYTES + payload.len();
        seq += 1;
    }
    let end = LogEnd { whole: at as u64, torn_bytes: (bytes.len() - at) as u64 };
    // Not the first one alone: what was written in one go with the bad record was not synced before it.
    let later = || (at + 1..bytes.len()).filter_map(|i| Head::parse(&bytes, i)).find(|h| h.synced_seq >= seq);
    if damage.is_none()
        && let Some(later) = later()
    {
        let what = format!("log record {seq} is damaged: record {} was written after it had been synced", later.seq);
        damage = Some(Error::corrupt(path, at as u64, what));
    }
    Ok((end, damage))
}

/// Whole records from `from` on, wherever they start: what lies behind damage. For reports, never for replay.
pub(crate) fn records_behind(bytes: &[u8], from: usize) -> Vec<LogRecord> {
    let mut records = Vec::new();
    let mut at = from;
    while at < bytes.len() {
        match whole_frame(bytes, at) {
            Some((head, payload)) => {
                let (decoded, bytes) = (decode_payload(payload).ok(), FRAME_BYTES + payload.len());
                let (batch, batch_id) = decoded.map_or((None, None), |(batch, id)| (Some(batch), id));
                let (seq, collection) = (head.seq, head.collection);
                records.push(LogRecord { seq, collection, batch, batch_id, bytes: bytes as u64 });
                at += bytes;
            }
            None => at += 1,
        }
    }
    records
}

fn check_header(bytes: &[u8], path: &Path, identity: [u8; 16]) -> Result<u64> {
    let header = bytes.get(..HEADER_BYTES).ok_or_else(|| Error::corrupt(path, 0, "log header cut short"))?;
    let stored = header_crc(header);
    let found = crc32fast::hash(&header[..32]);
    if stored != found {
        return Err(Error::corrupt(path, 0, format!("log header crc expected={stored:#x} found={found:#x}")));
    }
    if &header[..8] != MAGIC {
        return Err(Error::new(
            Code::IncompatibleFormat,
            format!("{} is a log of another version of Ebbtide: open the database with that version", path.display()),
        ));
    }
    if header[8..24] != identity {
        return Err(Error::corrupt(path, 8, "log file belongs to another database"));
    }
    let mut first = [0; 8];
    first.copy_from_slice(&header[24..32]);
    let first = u64::from_le_bytes(first);
    if path.file_name().is_none_or(|name| name.to_str() != Some(&file_name(first))) {
        return Err(Error::corrupt(path, 24, "log file is a renamed copy of another one"));
    }
    Ok(first)
}

/// The frame at `at` in a log file, if all of it is there and its CRCs hold.
fn whole_frame(file: &[u8], at: usize) -> Option<(Head, &[u8])> {
    let head = Head::parse(file, at)?;
    let start = at + FRAME_BYTES;
    let payload = file.get(start..start.checked_add(head.length)?)?;
    (crc32fast::hash(payload) == head.payload_crc).then_some((head, payload))
}
