//! The folder of a replica or of a restore: it gets the files of a copy, and is no database yet.

use super::held::CopyHold;
use super::load::Loaded;
use super::piece::CopiedFile;
use super::store::{CopyStore, damaged, unreachable};
use super::writer::Writer;
use crate::error::{Error, Result};
use crate::files::{FileName, collection_of};
use crate::fs::{FileLock, Fs, replace, write_synced};
use crate::manifest::ManifestWriter;
use crate::open::{list, refuse_foreign, settle_folders, state_of, take_lock};
use crate::sync::{Condvar, Mutex};
use crate::wal::log_of;
use ebbtide_buckets::on_threads;
use ebbtide_ttl::{Clock, Code};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How many bytes of files are fetched at once; a larger file is fetched alone.
const BYTES_AT_ONCE: u64 = 256 << 20;

/// Bytes of files that are being fetched, [`BYTES_AT_ONCE`] at most.
#[derive(Default)]
struct InProgress {
    bytes: Mutex<u64>,
    less: Condvar,
}

impl InProgress {
    /// Waits until this many bytes more may be fetched. They count until what is returned is dropped.
    fn wait_for(&self, bytes: u64) -> Part<'_> {
        let bytes = bytes.min(BYTES_AT_ONCE);
        let mut all = self.bytes.lock();
        while *all + bytes > BYTES_AT_ONCE {
            self.less.wait(&mut all);
        }
        *all += bytes;
        Part { of: self, bytes }
    }
}

struct Part<'a> {
    of: &'a InProgress,
    bytes: u64,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        *self.of.bytes.lock() -= self.bytes;
        self.of.less.notify_all();
    }
}

/// A folder that gets a copy, locked.
#[derive(Debug)]
pub(super) struct CopyFolder<'a> {
    fs: &'a Arc<dyn Fs>,
    dir: &'a Path,
}

impl<'a> CopyFolder<'a> {
    /// Takes a folder that is new or empty, or one in which this was begun before.
    pub(super) fn take(
        fs: &'a Arc<dyn Fs>,
        clock: &dyn Clock,
        dir: &'a Path,
        url: &str,
    ) -> Result<(CopyFolder<'a>, Box<dyn FileLock>)> {
        let marker = FileName::Copy.path(dir);
        if fs.exists(dir).map_err(|e| Error::io("access", dir, &e))? {
            let listing = list(fs.as_ref(), dir)?;
            let is_begun = fs.exists(&marker).map_err(|e| Error::io("access", &marker, &e))?;
            if !is_begun && listing.names.iter().any(|name| FileName::manifest_number(name).is_some()) {
                let what = format!("there is a database at {}: choose another folder", dir.display());
                return Err(Error::new(Code::NamespaceExists, what));
            }
            if !is_begun && listing.segments().next().is_some() {
                let what = format!("{} has segments of a database: choose another folder", dir.display());
                return Err(Error::new(Code::NamespaceExists, what));
            }
            refuse_foreign(dir, &listing)?;
        }
        fs.create_dir(dir).map_err(|e| Error::io("create the folder", dir, &e))?;
        let lock = take_lock(fs.as_ref(), clock, dir)?;
        replace(fs.as_ref(), &marker, url.as_bytes()).map_err(|e| Error::io("write", &marker, &e))?;
        // Of an end that was interrupted.
        for name in list(fs.as_ref(), dir)?.names {
            if matches!(FileName::parse(&name), Some(FileName::Manifest(_) | FileName::Log(_))) {
                let path = dir.join(&name);
                fs.remove(&path).map_err(|e| Error::io("remove", &path, &e))?;
            }
        }
        Ok((CopyFolder { fs, dir }, lock))
    }

    /// The folder of a replica that is open.
    pub(super) fn of_replica(fs: &'a Arc<dyn Fs>, dir: &'a Path) -> CopyFolder<'a> {
        CopyFolder { fs, dir }
    }

    /// Fetches the files that are not there yet, and removes segments that are not among them. Returns how many bytes were fetched.
    pub(super) fn fetch_all(&self, store: &dyn CopyStore, files: &BTreeMap<String, CopiedFile>) -> Result<u64> {
        for (path, _) in list(self.fs.as_ref(), self.dir)?.segments() {
            let name: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
            if !files.contains_key(&name.join("/")) {
                let path = self.dir.join(path);
                self.fs.remove(&path).map_err(|e| Error::io("remove", &path, &e))?;
            }
        }
        self.fetch_each(store, files.values())
    }

    /// Fetches files that are not there yet, several at once if that is faster. Returns how many bytes were fetched.
    pub(super) fn fetch_each<'f>(
        &self,
        store: &dyn CopyStore,
        files: impl IntoIterator<Item = &'f CopiedFile>,
    ) -> Result<u64> {
        let by_path: BTreeMap<&str, &CopiedFile> = files.into_iter().map(|file| (&*file.path, file)).collect();
        let files: Vec<&CopiedFile> = by_path.into_values().collect();
        let in_progress = InProgress::default();
        let fetched = on_threads(store.gets_at_once(), files.len(), &|| true, |at| {
            let _part = in_progress.wait_for(files[at].bytes);
            self.fetch(store, files[at])
        })?;
        Ok(fetched.into_iter().fold(0, u64::saturating_add))
    }

    /// Fetches a file, if it is not there yet; returns how many bytes that were.
    fn fetch(&self, store: &dyn CopyStore, file: &CopiedFile) -> Result<u64> {
        let object = file.object();
        if !is_segment(&file.path) {
            return Err(damaged(&object, "its path is not that of a segment"));
        }
        let path = self.dir.join(&file.path);
        match self.fs.read(&path) {
            Ok(content) if file.check(&content).is_ok() => return Ok(0),
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io("read", &path, &e)),
            _ => {}
        }
        let content = store.get(&object).map_err(unreachable)?.ok_or_else(|| damaged(&object, "it is missing"))?;
        file.check(&content)?;
        let written = (|| {
            self.fs.create_dir(path.parent().unwrap_or(self.dir))?;
            replace(self.fs.as_ref(), &path, &content)
        })();
        written.map_err(|e| Error::io("write", &path, &e))?;
        Ok(content.len() as u64)
    }

    /// Makes the folder a database, whose files were fetched. From then on it can be opened. Folders whose files other programs must not
    /// read together have their marker before.
    pub(super) fn become_database(&self, loaded: &Loaded, hold: CopyHold, writer: Option<&Writer>) -> Result<()> {
        let (fs, dir) = (self.fs.as_ref(), self.dir);
        let mut state = state_of(self.fs, dir, 1, loaded.edits.clone(), 0).map_err(|(_, damage)| damage)?;
        settle_folders(dir, &list(fs, dir)?, &state)?;
        let first_seq = match loaded.records.first() {
            Some(first) => first.seq,
            None => state.applied_seq.max(loaded.last_seq) + 1,
        };
        state.logs = [first_seq].into();
        let path = FileName::Log(first_seq).path(dir);
        let log = log_of(loaded.identity, first_seq, &loaded.records);
        let written = write_synced(fs, &path, &log).and_then(|file| {
            drop(file);
            fs.sync_dir(dir)
        });
        written.map_err(|e| Error::io("write the log", &path, &e))?;
        hold.write(fs, dir)?;
        writer.map_or(Ok(()), |writer| writer.write(fs, dir))?;
        drop(ManifestWriter::create(fs, dir, loaded.identity, 1, &state.checkpoint())?);
        let marker = FileName::Copy.path(dir);
        fs.remove(&marker).and_then(|()| fs.sync_dir(dir)).map_err(|e| Error::io("remove", &marker, &e))
    }
}

/// Whether a path is that of a segment in a folder of a collection, or of one beside them.
fn is_segment(path: &str) -> bool {
    match path.split_once('/') {
        Some((folder, name)) => collection_of(folder).is_some() && FileName::segment(name).is_some(),
        None => FileName::segment(path).is_some(),
    }
}

#[cfg(test)]
mod tests;
