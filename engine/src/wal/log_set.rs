//! All log files of a database, read in order. Open, repair and verify read them with the same checks; each decides what to do
//! about a record or a fault.

use super::{FORMAT, HEADER_BYTES, LogRecord, Record, decode_parts, record_at};
use crate::clean_shutdown::ShutdownMarker;
use crate::error::{Error, Result};
use crate::files::FileName;
use crate::fs::Fs;
use ebbtide_ttl::Code;
use std::io;
use std::path::Path;

/// The log files that a manifest names.
pub(crate) struct LogSet<'a> {
    pub(crate) fs: &'a dyn Fs,
    pub(crate) dir: &'a Path,
    pub(crate) identity: [u8; 16],
    /// The files by their first sequence numbers, ascending.
    pub(crate) first_seqs: Vec<u64>,
    /// Collections from this number on were never created by the manifest.
    pub(crate) next_collection: u64,
    /// Where the newest file must end, if the last shutdown was clean.
    pub(crate) marker: Option<ShutdownMarker>,
    /// Whether the newest file must end with a whole record: after a crash it need not until the database is opened.
    pub(crate) is_settled: bool,
}

/// Where a log file ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogEnd {
    pub(crate) first_seq: u64,
    /// Where the last whole record ends.
    pub(crate) whole: u64,
    /// Bytes after that, which a crash left half-written. Zeros at the end of the file do not count: they were written ahead.
    pub(crate) torn_bytes: u64,
    /// The length of the file.
    pub(crate) file_bytes: u64,
}

/// What is wrong with the logs.
pub(crate) struct LogFault<'a> {
    pub(crate) kind: FaultKind,
    pub(crate) error: Error,
    /// The log file that it is about.
    pub(crate) first_seq: u64,
    /// The content of the file, and where in it reading stopped.
    pub(crate) unread: Option<(&'a [u8], usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// Records before this file are missing.
    Gap,
    /// The file is missing.
    Missing,
    /// The file is damaged, or does not end where it did.
    Damaged,
    /// A record belongs to a collection that the manifest never created: the manifest has lost its end.
    UnknownCollection,
}

/// What is done about each record and each fault. An error ends the walk.
pub(crate) trait LogVisitor {
    /// Whether what a record has for a collection is needed.
    fn wants(&self, seq: u64, collection: u64) -> bool;

    /// Takes the next record. After a fault there may be more of them.
    fn record(&mut self, first_seq: u64, record: LogRecord) -> Result<()>;

    /// Takes a fault. The first fault of each file is reported, and the first record of an unknown collection.
    fn fault(&mut self, fault: LogFault<'_>) -> Result<()>;
}

impl LogSet<'_> {
    /// Reads all files, one at a time in memory, and returns where the newest one ends.
    ///
    /// # Errors
    /// Errors of the visitor and of the file system, and [`Code::IncompatibleFormat`]. Faults are passed to the visitor.
    pub(crate) fn walk(&self, visitor: &mut dyn LogVisitor) -> Result<Option<LogEnd>> {
        let newest = self.first_seqs.last().copied();
        let (mut following, mut newest_end) = (None, None);
        for first_seq in self.first_seqs.iter().copied() {
            let path = FileName::Log(first_seq).path(self.dir);
            let fault =
                |kind, what: &str| LogFault { kind, error: Error::corrupt(&path, 0, what), first_seq, unread: None };
            if let Some(expected) = following.take().filter(|expected| *expected != first_seq) {
                visitor
                    .fault(fault(FaultKind::Gap, &format!("log starts at record {first_seq}, expected={expected}")))?;
            }
            let file = match self.fs.read(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    visitor.fault(fault(FaultKind::Missing, "log file is missing"))?;
                    continue;
                }
                read => read.map_err(|e| Error::io("read the log", &path, &e))?,
            };
            let (end, next_seq, mut damage) = self.walk_file(&file, &path, first_seq, visitor)?;
            if Some(first_seq) == newest {
                newest_end = Some(end);
            }
            if damage.is_none() {
                damage = self.check_end(&path, end, Some(first_seq) == newest).err();
            }
            following = damage.is_none().then_some(next_seq);
            if let Some(error) = damage {
                let cut = |bytes: u64| usize::try_from(bytes).map_or(file.len(), |at| at.min(file.len()));
                let unread = Some((&file[..cut(end.whole + end.torn_bytes)], cut(end.whole)));
                visitor.fault(LogFault { kind: FaultKind::Damaged, error, first_seq, unread })?;
            }
        }
        Ok(newest_end)
    }

    /// Visits the records of one file. Returns where they end, the number of the next one, and what is damaged there.
    /// Decodes nothing that its checksum does not cover.
    fn walk_file(
        &self,
        file: &[u8],
        path: &Path,
        first_seq: u64,
        visitor: &mut dyn LogVisitor,
    ) -> Result<(LogEnd, u64, Option<Error>)> {
        let (mut at, mut seq) = (HEADER_BYTES, first_seq);
        let end = |at: usize| {
            let used = file[at..].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            LogEnd { first_seq, whole: at as u64, torn_bytes: used as u64, file_bytes: file.len() as u64 }
        };
        let header =
            FORMAT.read_header(file, path, first_seq).and_then(|header| match header.identity == self.identity {
                true => Ok(()),
                false => Err(Error::corrupt(path, 8, "log belongs to another database")),
            });
        match header {
            Err(error) if error.code() == Code::DataCorruptionDetected => return Ok((end(0), seq, Some(error))),
            header => header?,
        }
        let mut told = false;
        while let Some((record, frame)) = record_at(file, at) {
            if record.seq != seq {
                let error = Error::corrupt(path, at as u64, format!("log record expected={seq} found={}", record.seq));
                return Ok((end(at), seq, Some(error)));
            }
            let bytes = (frame.end() - at) as u64;
            let wants = |collection| visitor.wants(seq, collection);
            let parts = match decode_parts((record.collection, frame.payload), bytes, wants) {
                Ok(parts) => parts,
                Err(e) => {
                    let error = Error::corrupt(path, at as u64, format!("log record {seq} does not decode: {e}"));
                    return Ok((end(at), seq, Some(error)));
                }
            };
            if parts.iter().any(|part| part.collection >= self.next_collection) && !told {
                told = true;
                let what = format!("log record {seq} belongs to a collection that the manifest never created");
                let error = Error::corrupt(path, at as u64, what);
                visitor.fault(LogFault { kind: FaultKind::UnknownCollection, error, first_seq, unread: None })?;
            }
            visitor.record(first_seq, LogRecord { seq, parts })?;
            at = frame.end();
            seq += 1;
        }
        // All later records count, since those written together with the bad one were not synced before it.
        let end = end(at);
        let used = at + usize::try_from(end.torn_bytes).unwrap_or(0);
        let mut heads = (at + 1..used).filter_map(|at| Record::parse(FORMAT.head_at(file, at)?));
        let damage = heads.find(|head| head.synced_seq >= seq).map(|later| {
            let what =
                format!("log record {seq} is damaged: record {} was written after it had been synced", later.seq);
            Error::corrupt(path, at as u64, what)
        });
        Ok((end, seq, damage))
    }

    /// Checks that a file without damage ends where it should.
    fn check_end(&self, path: &Path, end: LogEnd, is_newest: bool) -> Result<()> {
        if is_newest && let Some(marker) = self.marker {
            return marker.check_log(path, end.first_seq, end.whole, end.file_bytes - end.whole);
        }
        match (end.torn_bytes, is_newest) {
            (0, true) => Ok(()),
            (_, false) if end.file_bytes == end.whole => Ok(()),
            (_, false) => Err(Error::corrupt(path, end.whole, "log record is damaged and newer logs follow")),
            (_, true) if self.is_settled => Err(Error::corrupt(path, end.whole, "the last log record is damaged")),
            (_, true) => Ok(()),
        }
    }
}
