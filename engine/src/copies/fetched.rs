//! The segment files of a copy as a disk: they are fetched when they are opened.

use super::cache::CopyCache;
use super::piece::CopiedFile;
use super::store::CopyStore;
use crate::fs::{FileLock, Fs, LockError, WriteFile};
use crate::sync::RwLock;
use ebbtide_buckets::ReadAt;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of a copy that were added, and nothing else. It cannot be written; removing a file forgets it.
pub(super) struct FetchedFs {
    url: String,
    dir: PathBuf,
    store: Arc<dyn CopyStore>,
    cache: Arc<CopyCache>,
    files: RwLock<HashMap<PathBuf, CopiedFile>>,
}

impl fmt::Debug for FetchedFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchedFs").field("url", &self.url).finish_non_exhaustive()
    }
}

impl FetchedFs {
    /// No files yet, for a database that thinks that it is in this folder.
    pub(super) fn new(url: &str, dir: &Path, store: Arc<dyn CopyStore>, cache: Arc<CopyCache>) -> FetchedFs {
        FetchedFs { url: url.to_owned(), dir: dir.to_owned(), store, cache, files: RwLock::default() }
    }

    pub(super) fn add(&self, file: &CopiedFile) {
        self.files.write().insert(self.dir.join(&file.path), file.clone());
    }

    fn file(&self, path: &Path) -> io::Result<CopiedFile> {
        self.files.read().get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the files of a copy are only read"))
}

impl Fs for FetchedFs {
    fn create(&self, _path: &Path) -> io::Result<Box<dyn WriteFile>> {
        refused()
    }

    fn open_append(&self, _path: &Path, _len: u64) -> io::Result<Box<dyn WriteFile>> {
        refused()
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        let file = self.file(path)?;
        self.cache.file(&self.url, self.store.as_ref(), &file).map_err(io::Error::other)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open_read(path)?;
        let length = usize::try_from(file.len()).map_err(io::Error::other)?;
        file.read_at(0, length).map(Into::into)
    }

    fn sync(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn publish(&self, _tmp: &Path, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.write().remove(path);
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let files = self.files.read();
        let within = files.keys().filter(|path| path.parent() == Some(dir));
        let mut names: Vec<String> =
            within.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.files.read().contains_key(path))
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(self.file(path)?.bytes)
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &Path, _holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        Err(LockError::Io(io::ErrorKind::ReadOnlyFilesystem.into()))
    }
}
