//! Reads what changed in the folder of a database, which this process or another one may be writing.
//!
//! Manifest and log are read as they were at one moment: the log after the manifest, and again if an edit was added meanwhile.
//! What was read is synced before it is handed on, so that a power cut does not take from the database what its copy has.

use super::piece::CopiedFile;
use crate::error::{Error, Result};
use crate::files::FileName;
use crate::fs::Fs;
use crate::manifest::{self, Op};
use crate::open::state_of;
use crate::state::State;
use crate::wal::{LogTail, RawRecord};
use bytes::Bytes;
use ebbtide_buckets::{KeyedReader, SegmentReader};
use ebbtide_ttl::{Clock, Code, Timestamp};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often the files are read again because they changed meanwhile.
const TRIES: usize = 50;

/// A place in the files of a database.
#[derive(Debug)]
pub(super) struct Source {
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    read: Option<Read>,
}

/// How far the files were read.
#[derive(Debug, Clone)]
struct Read {
    identity: [u8; 16],
    manifest: (u64, u64),
    edits: usize,
    log: LogTail,
    /// What the manifest names.
    state: State,
}

/// What changed.
#[derive(Debug)]
pub(super) struct Changes {
    pub(super) at: Timestamp,
    /// The edits; `None` if a new manifest has begun.
    pub(super) edits: Option<Vec<Vec<Op>>>,
    pub(super) records: Vec<RawRecord>,
    /// Whether the end of the log was reached.
    pub(super) reached_end: bool,
}

impl Changes {
    /// Bytes of the records.
    pub(super) fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.payload.len()).sum()
    }

    pub(super) fn has_edits(&self) -> bool {
        self.edits.as_ref().is_none_or(|edits| !edits.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && !self.has_edits()
    }

    /// Adds what changed later.
    pub(super) fn append(&mut self, later: Changes) {
        match (&mut self.edits, later.edits) {
            (Some(edits), Some(more)) => edits.extend(more),
            (edits, _) => *edits = None,
        }
        self.records.extend(later.records);
        (self.at, self.reached_end) = (later.at, later.reached_end);
    }
}

/// A segment file that is in use.
pub(super) struct UsedFile {
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) footer: u32,
    /// Whether it has documents.
    is_keyed: bool,
}

impl UsedFile {
    /// Checks that these are its bytes, each by its checksum. `path` is where they are.
    pub(super) fn check(&self, path: &Path, content: &Bytes) -> Result<()> {
        if content.len() as u64 != self.bytes {
            let what = format!("segment has {} bytes, expected={}", content.len(), self.bytes);
            return Err(Error::corrupt(path, 0, what));
        }
        let (file, name) = (Arc::new(content.clone()), path.display().to_string());
        let footer = if self.is_keyed {
            let reader = KeyedReader::open(file, &name)?;
            reader.verify_checksums()?;
            reader.checksum()
        } else {
            let reader = SegmentReader::open(file, &name)?;
            reader.verify()?;
            reader.checksum()
        };
        match footer == self.footer {
            true => Ok(()),
            false => Err(Error::corrupt(path, 0, "the file is a segment, but not the one that the manifest names")),
        }
    }

    /// Whether it is this one.
    pub(super) fn is(&self, copied: &CopiedFile) -> bool {
        (self.bytes, self.footer) == (copied.bytes, copied.footer)
    }
}

impl Source {
    pub(super) fn new(fs: Arc<dyn Fs>, clock: Arc<dyn Clock>, dir: PathBuf) -> Source {
        Source { fs, clock, dir, read: None }
    }

    /// Forgets how far it has read: the next time it returns everything.
    pub(super) fn restart(&mut self) {
        self.read = None;
    }

    pub(super) fn identity(&self) -> Result<[u8; 16]> {
        if let Some(read) = &self.read {
            return Ok(read.identity);
        }
        for _ in 1..TRIES {
            match manifest::read(self.fs.as_ref(), &self.dir, self.newest_manifest()?) {
                Err(error) if self.newest_manifest().is_err() => return Err(error),
                Err(_) => {}
                Ok(contents) => return Ok(contents.identity),
            }
        }
        Ok(manifest::read(self.fs.as_ref(), &self.dir, self.newest_manifest()?)?.identity)
    }

    /// The checkpoint of what the manifest names.
    pub(super) fn checkpoint(&self) -> Vec<Op> {
        self.read.as_ref().map(|read| read.state.checkpoint()).unwrap_or_default()
    }

    /// The number of the first record of the log that a base needs.
    pub(super) fn first_logged(&self) -> u64 {
        self.read.as_ref().and_then(|read| read.state.logs.first().copied()).unwrap_or(0)
    }

    /// The number of the last record that was read.
    pub(super) fn last_seq(&self) -> u64 {
        self.read.as_ref().map_or(0, |read| read.log.next_seq().saturating_sub(1))
    }

    /// The segment files that the manifest names.
    pub(super) fn files(&self) -> Vec<UsedFile> {
        self.read.as_ref().map(|read| files_of(&read.state)).unwrap_or_default()
    }

    /// The content of a file; `None` if it is no longer there.
    pub(super) fn content(&self, path: &str) -> Result<Option<Bytes>> {
        let path = self.dir.join(path);
        match self.fs.read(&path) {
            Ok(content) => Ok(Some(content.into())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read the segment", &path, &e)),
        }
    }

    /// Whether the manifest is as it was read last.
    pub(super) fn is_current(&self) -> Result<bool> {
        let newest = self.newest_manifest()?;
        Ok(self
            .manifest_bytes(newest)?
            .is_some_and(|bytes| self.read.as_ref().is_some_and(|r| r.manifest == (newest, bytes))))
    }

    /// Reads what changed since the last call, with some `log_bytes_max` bytes of the log; the first call begins with everything.
    pub(super) fn read(&mut self, log_bytes_max: usize) -> Result<Changes> {
        for _ in 0..TRIES {
            if let Some((read, changes)) = self.try_read(log_bytes_max)? {
                self.read = Some(read);
                return Ok(changes);
            }
        }
        let what = format!("{} changed each time it was read: try again", self.dir.display());
        Err(Error::new(Code::LockBusy, what))
    }

    /// `None` if the files changed meanwhile.
    fn try_read(&self, log_bytes_max: usize) -> Result<Option<(Read, Changes)>> {
        let fs = self.fs.as_ref();
        let at = self.clock.now();
        let number = self.newest_manifest()?;
        let Some(bytes) = self.manifest_bytes(number)? else { return Ok(None) };
        let mut is_whole = true;
        let (mut read, edits) = match &self.read {
            Some(read) if read.manifest == (number, bytes) => (read.clone(), Some(Vec::new())),
            before => {
                let contents = match manifest::read(fs, &self.dir, number) {
                    Err(error) if self.manifest_bytes(number)? == Some(bytes) => return Err(error),
                    Err(_) => return Ok(None),
                    Ok(contents) => contents,
                };
                is_whole = contents.end == bytes;
                self.state_with(before.as_ref(), number, contents)?
            }
        };
        let Some(tail) = read.log.read(fs, &self.dir, &read.state.logs, log_bytes_max)? else { return Ok(None) };
        if self.newest_manifest()? != number || self.manifest_bytes(number)? != Some(bytes) {
            return Ok(None);
        }
        if edits.as_ref().is_none_or(|edits| !edits.is_empty()) {
            self.sync(&FileName::Manifest(number).path(&self.dir))?;
        }
        tail.files.iter().try_for_each(|path| self.sync(path))?;
        // After a half-written edit the manifest is read again, even if it has the same length then.
        read.manifest = (number, if is_whole { bytes } else { 0 });
        Ok(Some((read, Changes { at, edits, records: tail.records, reached_end: tail.reached_end })))
    }

    /// What was read, with the edits of a manifest; and those that are new.
    fn state_with(
        &self,
        before: Option<&Read>,
        number: u64,
        contents: manifest::ManifestContents,
    ) -> Result<(Read, Option<Vec<Vec<Op>>>)> {
        let (identity, count) = (contents.identity, contents.edits.len());
        match before.filter(|read| read.manifest.0 == number && read.edits <= count) {
            Some(before) => {
                let mut read = before.clone();
                let new = contents.edits[before.edits..].to_vec();
                for op in new.iter().flatten() {
                    read.state.apply(op.clone())?;
                }
                read.edits = count;
                Ok((read, Some(new)))
            }
            None => {
                let state = state_of(&self.fs, &self.dir, number, contents.edits, 0).map_err(|(_, damage)| damage)?;
                let first = state.logs.first().copied().unwrap_or(1);
                let log = before.map_or_else(|| LogTail::begin(identity, first), |read| read.log.clone());
                Ok((Read { identity, manifest: (number, 0), edits: count, log, state }, None))
            }
        }
    }

    fn newest_manifest(&self) -> Result<u64> {
        let newest = manifest::numbers(self.fs.as_ref(), &self.dir)?.last().copied();
        newest.ok_or_else(|| {
            Error::new(Code::NamespaceNotFound, format!("there is no database at {}", self.dir.display()))
        })
    }

    fn manifest_bytes(&self, number: u64) -> Result<Option<u64>> {
        let path = FileName::Manifest(number).path(&self.dir);
        match self.fs.len(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("access the manifest", &path, &e)),
        }
    }

    /// A file that is gone was followed by another one, which was synced first.
    fn sync(&self, path: &Path) -> Result<()> {
        match self.fs.sync(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("sync", path, &e)),
            _ => Ok(()),
        }
    }
}

/// The segment files that a state names.
pub(super) fn files_of(state: &State) -> Vec<UsedFile> {
    let path = |path: PathBuf| {
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        parts.join("/")
    };
    let measurements = state.collections.values().flat_map(|c| c.segments.values());
    let measurements = measurements.map(|s| (s.file.relative_path(), s.file.meta.bytes, s.file.meta.checksum, false));
    let documents = state.documents.values().flat_map(|d| d.segments.values());
    let documents = documents.map(|s| (s.file.relative_path(), s.file.meta.bytes, s.file.meta.checksum, true));
    let used = measurements.chain(documents);
    used.map(|(file, bytes, footer, is_keyed)| UsedFile { path: path(file), bytes, footer, is_keyed }).collect()
}
