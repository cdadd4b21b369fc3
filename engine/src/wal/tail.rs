//! Reading a log while it is written, by this process or another one.

use super::{FORMAT, HEADER_BYTES, LogRecord, Place, Record, decode_parts, put_frame};
use crate::error::{Error, Result};
use crate::files::FileName;
use crate::framed::{file_crc, word};
use crate::fs::Fs;
use bytes::Bytes;
use ebbtide_buckets::ReadAt;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// A record as it is in the log: not decoded.
#[derive(Debug, Clone)]
pub(crate) struct RawRecord {
    pub(crate) seq: u64,
    /// The collection, or [`super::SEVERAL`].
    pub(crate) collection: u64,
    pub(crate) payload: Bytes,
}

impl RawRecord {
    /// What it brings, as far as it is wanted.
    pub(crate) fn decode(&self, wants: impl Fn(u64) -> bool) -> Result<LogRecord> {
        let bytes = self.payload.len() as u64;
        let parts = decode_parts((self.collection, &self.payload), bytes, wants);
        let parts = parts.map_err(|e| Error::internal(format!("log record {} does not decode: {e}", self.seq)))?;
        Ok(LogRecord { seq: self.seq, parts })
    }
}

/// The bytes of a log with these records, which follow each other. The first one has the number of the log.
pub(crate) fn log_of(identity: [u8; 16], first_seq: u64, records: &[RawRecord]) -> Vec<u8> {
    let mut bytes = FORMAT.header(crate::framed::FileHeader { identity, number: first_seq });
    let start = Place { file: file_crc(&bytes), offset: 0 };
    for record in records {
        let head = Record { seq: record.seq, collection: record.collection, synced_seq: record.seq - 1 };
        put_frame(&mut bytes, start, head, &record.payload, crc32fast::hash(&record.payload));
    }
    bytes
}

/// A place in the log of a database, from which on it is read.
#[derive(Debug, Clone)]
pub(crate) struct LogTail {
    identity: [u8; 16],
    /// The file that is read.
    first_seq: u64,
    /// The CRC of its header, and where the next frame begins; `None` before the header was read.
    at: Option<Place>,
    next_seq: u64,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct TailRead {
    pub(crate) records: Vec<RawRecord>,
    /// Whether the end of the log was reached.
    pub(crate) reached_end: bool,
    /// The files that were read.
    pub(crate) files: Vec<PathBuf>,
}

impl LogTail {
    /// The beginning of the log file of this number.
    pub(crate) fn begin(identity: [u8; 16], first_seq: u64) -> LogTail {
        LogTail { identity, first_seq, at: None, next_seq: first_seq }
    }

    /// The number of the next record.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Reads on, through the files `logs`, until the end or some `bytes_max` bytes. Where files were removed, their records are left
    /// out: all of them are in segments. `None` if a file was removed meanwhile.
    pub(crate) fn read(
        &mut self,
        fs: &dyn Fs,
        dir: &Path,
        logs: &BTreeSet<u64>,
        bytes_max: usize,
    ) -> Result<Option<TailRead>> {
        let (mut read, mut bytes) = (TailRead::default(), 0);
        if !logs.contains(&self.first_seq) {
            let Some(first) = logs.first() else { return Ok(None) };
            *self = LogTail::begin(self.identity, *first);
        }
        loop {
            let path = FileName::Log(self.first_seq).path(dir);
            let file = match fs.open_read(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file.map_err(|e| Error::io("read the log", &path, &e))?,
            };
            let before = read.records.len();
            let ended = self.read_file((file.as_ref(), &path), bytes_max.saturating_sub(bytes), &mut read.records)?;
            bytes += read.records[before..].iter().map(|record| record.payload.len()).sum::<usize>();
            if read.records.len() > before {
                read.files.push(path.clone());
            }
            if !ended {
                return Ok(Some(read));
            }
            // A file that another one follows was complete when the manifest named that one.
            let follows = logs.range(self.first_seq + 1..).next();
            match follows {
                None => {
                    self.check_end((file.as_ref(), &path))?;
                    read.reached_end = true;
                    return Ok(Some(read));
                }
                Some(next) if *next != self.next_seq => {
                    let what = format!("log record {} is damaged or missing, and newer logs follow", self.next_seq);
                    return Err(Error::corrupt(&path, self.at.map_or(0, |at| at.offset), what));
                }
                Some(_) => {}
            }
            *self = LogTail::begin(self.identity, self.next_seq);
        }
    }

    /// Checks that nothing follows that was written after the next record was synced: then that is damaged.
    fn check_end(&self, (file, path): (&dyn ReadAt, &Path)) -> Result<()> {
        let Some(place) = self.at else { return Ok(()) };
        let rest = usize::try_from(file.len().saturating_sub(place.offset)).unwrap_or(usize::MAX);
        let fail = |e: io::Error| Error::io("read the log", path, &e);
        let first = file.read_at(place.offset, rest.min(FORMAT.head_bytes)).map_err(fail)?;
        // Behind the end there are zeros at most, but for what is being written.
        if first.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let part = file.read_at(place.offset, rest).map_err(fail)?;
        let mut heads = (1..part.len()).filter_map(|at| Record::parse(FORMAT.head_in(&part, at, place)?));
        let Some(later) = heads.find(|head| head.synced_seq >= self.next_seq) else { return Ok(()) };
        // Read again: it may have been written since.
        let part = file.read_at(place.offset, rest).map_err(fail)?;
        if FORMAT.frame_in(&part, 0, place).is_some() {
            return Ok(());
        }
        let what = format!(
            "log record {} is damaged: record {} was written after it had been synced",
            self.next_seq, later.seq
        );
        Err(Error::corrupt(path, place.offset, what))
    }

    /// Reads on in one file; returns whether its last complete record was reached.
    fn read_file(
        &mut self,
        (file, path): (&dyn ReadAt, &Path),
        bytes_max: usize,
        records: &mut Vec<RawRecord>,
    ) -> Result<bool> {
        let fail = |e: io::Error| Error::io("read the log", path, &e);
        let mut place = match self.at {
            Some(place) => place,
            None => {
                let header = file.read_at(0, HEADER_BYTES).map_err(fail)?;
                let found = FORMAT.read_header(&header, path, self.first_seq)?;
                if found.identity != self.identity {
                    return Err(Error::corrupt(path, 8, "log belongs to another database"));
                }
                Place { file: file_crc(&header), offset: HEADER_BYTES as u64 }
            }
        };
        let mut left = bytes_max;
        let ended = loop {
            let rest = file.len().saturating_sub(place.offset);
            if rest < FORMAT.head_bytes as u64 {
                break true;
            }
            // First the head alone: behind the end there may be many zeros.
            let head = file.read_at(place.offset, FORMAT.head_bytes).map_err(fail)?;
            let Some(length) = FORMAT.head_in(&head, 0, place).map(|head| word(head, 0) as usize) else { break true };
            let whole = FORMAT.head_bytes + length;
            if rest < whole as u64 {
                break true;
            }
            if left == 0 {
                break false;
            }
            let part = usize::try_from(rest).unwrap_or(usize::MAX).min(left).max(whole);
            let part = file.read_at(place.offset, part).map_err(fail)?;
            let mut at = 0;
            while let Some(frame) = FORMAT.frame_in(&part, at, place) {
                let Some(record) = Record::parse(frame.head) else { break };
                if record.seq != self.next_seq {
                    let what = format!("log record expected={} found={}", self.next_seq, record.seq);
                    return Err(Error::corrupt(path, place.offset + at as u64, what));
                }
                let payload = part.slice_ref(frame.payload);
                at = frame.end();
                records.push(RawRecord { seq: record.seq, collection: record.collection, payload });
                self.next_seq += 1;
            }
            if at == 0 {
                break true;
            }
            left = left.saturating_sub(at);
            place.offset += at as u64;
        };
        self.at = Some(place);
        Ok(ended)
    }
}
