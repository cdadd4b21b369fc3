//! A folder with some of the segment files of copies: each is fetched when it is first opened, and those used longest ago are
//! removed when others need the space.

use super::piece::CopiedFile;
use super::store::{CopyStore, damaged, unreachable};
use crate::error::{Error, Result};
use crate::files::FileName;
use crate::fs::{FileLock, Fs, replace};
use crate::open::take_lock;
use crate::sync::Mutex;
use ebbtide_buckets::ReadAt;
use ebbtide_ttl::{Clock, Code};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the names of fetched files end with.
const SUFFIX: &str = ".copied";

/// Segment files of copies, in a folder of their own. Several copies can share it; two processes cannot.
///
/// A file is checked against its checksum when it is fetched, and when it is used for the first time after the folder was opened.
#[derive(Debug)]
pub struct CopyCache {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    bytes_max: u64,
    kept: Mutex<Kept>,
    _lock: Box<dyn FileLock>,
}

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<String, KeptFile>,
    bytes: u64,
    /// Counts uses.
    uses: u64,
    /// Bytes that were fetched.
    fetched: u64,
}

#[derive(Debug, Clone)]
struct KeptFile {
    bytes: u64,
    last_use: u64,
    is_checked: bool,
    /// Taken while the file is fetched, checked or removed.
    turn: Arc<Mutex<()>>,
}

impl CopyCache {
    /// Opens a folder, which is created if it is not there. Files of an earlier run are used again. About `bytes_max` bytes are
    /// kept: one file at least, and those that are open take their space until they are closed.
    ///
    /// # Errors
    /// [`Code::LockBusy`] if another process uses the folder, [`Code::NamespaceExists`] if it has a database, and errors of the file system.
    pub fn open(fs: Arc<dyn Fs>, clock: &dyn Clock, dir: &Path, bytes_max: u64) -> Result<CopyCache> {
        fs.create_dir(dir).map_err(|e| Error::io("create the folder", dir, &e))?;
        let lock = take_lock(fs.as_ref(), clock, dir)?;
        let mut kept = Kept::default();
        for name in fs.list(dir).map_err(|e| Error::io("list the folder", dir, &e))? {
            if FileName::manifest_number(&name).is_some() || FileName::parse(&name) == Some(FileName::Copy) {
                let what = format!("there is a database at {}: choose another folder", dir.display());
                return Err(Error::new(Code::NamespaceExists, what));
            }
            let path = dir.join(&name);
            if name.ends_with(SUFFIX) {
                let bytes = fs.len(&path).map_err(|e| Error::io("read the length of", &path, &e))?;
                kept.bytes += bytes;
                kept.files.insert(name, KeptFile { bytes, last_use: 0, is_checked: false, turn: Arc::default() });
            } else if name.contains(SUFFIX) {
                // Of a write that was interrupted.
                fs.remove(&path).map_err(|e| Error::io("remove", &path, &e))?;
            }
        }
        let cache = CopyCache { fs, dir: dir.to_owned(), bytes_max, kept: Mutex::new(kept), _lock: lock };
        cache.make_room("");
        Ok(cache)
    }

    /// How many bytes were fetched since the folder was opened.
    #[must_use]
    pub fn fetched_bytes(&self) -> u64 {
        self.kept.lock().fetched
    }

    /// How many bytes the files take now.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept.lock().bytes
    }

    /// Opens a file of the copy at this URL, and fetches it before if it is not there.
    pub(super) fn file(&self, url: &str, store: &dyn CopyStore, file: &CopiedFile) -> Result<Arc<dyn ReadAt>> {
        let name = name_of(url, file);
        let path = self.dir.join(&name);
        let turn = self.entry(&name, file).turn;
        let turn = turn.lock();
        let opened = self.opened(&name, &path, store, file);
        self.recount(&name, file.bytes, opened.is_ok());
        drop(turn);
        self.make_room(&name);
        opened
    }

    fn opened(&self, name: &str, path: &Path, store: &dyn CopyStore, file: &CopiedFile) -> Result<Arc<dyn ReadAt>> {
        if self.kept.lock().files.get(name).is_some_and(|kept| kept.is_checked) {
            match self.fs.open_read(path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                opened => return opened.map_err(|e| Error::io("open", path, &e)),
            }
        }
        self.check_or_fetch(path, store, file)?;
        if let Some(kept) = self.kept.lock().files.get_mut(name) {
            kept.is_checked = true;
        }
        self.fs.open_read(path).map_err(|e| Error::io("open", path, &e))
    }

    /// Counts a file with the bytes that it has now, or not at all.
    fn recount(&self, name: &str, bytes: u64, is_there: bool) {
        let mut kept = self.kept.lock();
        if !is_there {
            if let Some(file) = kept.files.remove(name) {
                kept.bytes -= file.bytes;
            }
            return;
        }
        let (uses, before) = (kept.uses, kept.files.get(name).map_or(0, |file| file.bytes));
        kept.bytes = kept.bytes - before + bytes;
        let new = KeptFile { bytes, last_use: uses, is_checked: true, turn: Arc::default() };
        kept.files.entry(name.to_owned()).or_insert(new).bytes = bytes;
    }

    /// Notes that a file is used.
    fn entry(&self, name: &str, file: &CopiedFile) -> KeptFile {
        let mut kept = self.kept.lock();
        kept.uses += 1;
        let (uses, is_new) = (kept.uses, !kept.files.contains_key(name));
        if is_new {
            kept.bytes += file.bytes;
        }
        let new = || KeptFile { bytes: file.bytes, last_use: uses, is_checked: false, turn: Arc::default() };
        let entry = kept.files.entry(name.to_owned()).or_insert_with(new);
        entry.last_use = uses;
        entry.clone()
    }

    fn check_or_fetch(&self, path: &Path, store: &dyn CopyStore, file: &CopiedFile) -> Result<()> {
        match self.fs.read(path) {
            Ok(content) if file.check(&content).is_ok() => return Ok(()),
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io("read", path, &e)),
            _ => {}
        }
        let object = file.object();
        let content = store.get(&object).map_err(unreachable)?.ok_or_else(|| damaged(&object, "it is missing"))?;
        file.check(&content)?;
        replace(self.fs.as_ref(), path, &content).map_err(|e| Error::io("write", path, &e))?;
        self.kept.lock().fetched += content.len() as u64;
        Ok(())
    }

    /// Removes the files used longest ago while there is too much, but for one that is needed now and those that are being fetched.
    fn make_room(&self, needed: &str) {
        loop {
            let mut kept = self.kept.lock();
            if kept.bytes <= self.bytes_max {
                return;
            }
            let mut files: Vec<(u64, &String)> = kept.files.iter().map(|(name, file)| (file.last_use, name)).collect();
            files.sort_unstable();
            let is_free = |name: &String| kept.files.get(name).is_some_and(|file| Arc::strong_count(&file.turn) == 1);
            let oldest = files.into_iter().map(|(_, name)| name).find(|name| *name != needed && is_free(name)).cloned();
            let Some(oldest) = oldest else { return };
            if let Some(file) = kept.files.remove(&oldest) {
                kept.bytes -= file.bytes;
            }
            // Under the lock: nobody fetches a file of this name before it is gone.
            let removed = self.fs.remove(&self.dir.join(&oldest));
            tracing::debug!(file = oldest, ?removed, "removed a fetched file, for the space");
        }
    }
}

/// The name of a file in the folder. It has what tells it from any other file: the copy, the place in it and the checksum.
fn name_of(url: &str, file: &CopiedFile) -> String {
    let url = crc32fast::hash(url.as_bytes());
    format!("{url:08x}-{}-{:08x}-{}{SUFFIX}", file.epoch, file.crc, file.path.replace('/', "!"))
}
