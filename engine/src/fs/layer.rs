//! Disks on top of other disks, for tests: they change some operations and pass on the others.

use super::{FileLock, Fs, LockError, WriteFile};
use ebbtide_buckets::ReadAt;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A disk on top of another one. Each method passes the operation on to [`Layer::below`] unless it is overridden.
#[expect(missing_docs, reason = "each method is that of Fs")]
pub trait Layer: Debug + Send + Sync {
    /// The disk below.
    fn below(&self) -> &dyn Fs;

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.below().create(path)
    }
    fn open_append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        self.below().open_append(path, len)
    }
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        self.below().open_read(path)
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.below().read(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below().remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.below().sync_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.below().list(dir)
    }
    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        self.below().lock(path, holder)
    }
}

impl<L: Layer> Fs for L {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Layer::create(self, path)
    }
    fn open_append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        Layer::open_append(self, path, len)
    }
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        Layer::open_read(self, path)
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Layer::read(self, path)
    }
    fn sync(&self, path: &Path) -> io::Result<()> {
        self.below().sync(path)
    }
    fn publish(&self, tmp: &Path, path: &Path) -> io::Result<()> {
        self.below().publish(tmp, path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        Layer::remove(self, path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Layer::sync_dir(self, dir)
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.below().create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        Layer::list(self, dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.below().exists(path)
    }
    fn len(&self, path: &Path) -> io::Result<u64> {
        self.below().len(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.below().remove_dir(dir)
    }
    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        Layer::lock(self, path, holder)
    }
}
