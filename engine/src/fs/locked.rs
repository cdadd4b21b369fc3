//! The files of a folder that this process has locked.
//!
//! Files are reached by path, but a lock is one of a file. So before a name is created, replaced or removed, the path of the lock
//! file must still name the file that is locked: otherwise the folder was moved, and the one that is there now belongs to somebody
//! else. A forked child changes nothing either.

use super::real::LockedFile;
use super::{FileLock, Fs, LockError, WriteFile};
use ebbtide_buckets::ReadAt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A disk that refuses changes of names once the lock at its path is another one. Open files can still be written and read.
#[derive(Debug)]
pub(crate) struct LockedFs {
    below: Arc<dyn Fs>,
    locked: LockedFile,
}

impl LockedFs {
    /// The disk for whoever holds `lock`; the same disk if it does not say what is locked.
    pub(crate) fn within(below: &Arc<dyn Fs>, lock: &dyn FileLock) -> Arc<dyn Fs> {
        match lock.locked() {
            Some(locked) => Arc::new(LockedFs { below: below.clone(), locked }),
            None => below.clone(),
        }
    }

    fn checked(&self) -> io::Result<&dyn Fs> {
        self.locked.check()?;
        Ok(self.below.as_ref())
    }
}

impl Fs for LockedFs {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.checked()?.create(path)
    }

    fn open_append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        self.checked()?.open_append(path, len)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        self.below.open_read(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.below.read(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.below.sync(path)
    }

    fn publish(&self, tmp: &Path, path: &Path) -> io::Result<()> {
        self.checked()?.publish(tmp, path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.checked()?.remove(path)
    }

    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.checked()?.move_file(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.below.sync_dir(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.checked()?.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.below.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.below.exists(path)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        self.below.len(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.checked()?.remove_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        self.below.lock(path, holder)
    }
}
