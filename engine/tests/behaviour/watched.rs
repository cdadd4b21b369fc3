//! A disk that remembers what it was asked for.

use ebbtide::buckets::ReadAt;
use ebbtide::fs::sim::SimFs;
use ebbtide::fs::{FileLock, Fs, LockError, WriteFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A simulated disk that lists the files that are opened for reading, and those that are read at once.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    inner: SimFs,
    opened: Arc<Mutex<Vec<PathBuf>>>,
}

impl Watched {
    pub(crate) fn new(inner: SimFs) -> Watched {
        Watched { inner, opened: Arc::default() }
    }

    /// The files opened since the last time this was asked.
    pub(crate) fn take_opened(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.opened.lock().unwrap())
    }
}

impl Fs for Watched {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.inner.create(path)
    }

    fn open_append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        self.inner.open_append(path, len)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        self.opened.lock().unwrap().push(path.to_owned());
        self.inner.open_read(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.opened.lock().unwrap().push(path.to_owned());
        self.inner.read(path)
    }

    fn publish(&self, tmp: &Path, path: &Path) -> io::Result<()> {
        self.inner.publish(tmp, path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        self.inner.len(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.remove_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        self.inner.lock(path, holder)
    }
}
