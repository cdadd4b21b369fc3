//! A folder as a store. Everything is synced before it has its name.

use crate::store::{Object, REQUESTS_AT_ONCE, Store, StoreError};
use bytes::Bytes;
use ebbtide::fs::{Fs, RealFs};
use ebbtide::ttl::{Clock, SystemClock};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

/// The name of a file that is being written. One that was killed leaves it.
fn temporary(number: u64) -> String {
    format!(".{}-{number}.tmp", std::process::id())
}

/// Whether a name is that of a file which was being written.
pub(crate) fn is_temporary(name: &str) -> bool {
    let numbers = name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp")?.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// A folder.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    fs: RealFs,
    clock: SystemClock,
    /// Number of temporary files so far.
    written: AtomicU64,
}

impl Folder {
    pub(crate) fn new(root: PathBuf) -> Folder {
        Folder { root, fs: RealFs::new(), clock: SystemClock::new(), written: AtomicU64::new(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn error(&self, what: &str, name: &str, error: &io::Error) -> StoreError {
        StoreError::new(&format!("cannot {what} {}: {error}", self.path(name).display()))
    }

    /// Writes a file under a temporary name of its own, syncs it, and gives it its name.
    fn write(&self, name: &str, content: &[u8], publish: impl Fn(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root);
        self.fs.create_dir(folder)?;
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(temporary(number));
        if self.fs.exists(&temporary)? {
            self.fs.remove(&temporary)?;
        }
        let mut file = self.fs.create(&temporary)?;
        let written = file.append(content).and_then(|()| file.sync());
        drop(file);
        let published = written.and_then(|()| publish(&temporary, &path));
        if self.fs.exists(&temporary)? {
            self.fs.remove(&temporary)?;
        }
        published.and_then(|()| self.fs.sync_dir(folder))
    }
}

impl Store for Folder {
    fn gets_at_once(&self) -> usize {
        REQUESTS_AT_ONCE
    }

    fn get(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        match self.fs.read(&self.path(name)) {
            Ok(content) => Ok(Some(content.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error("read", name, &error)),
        }
    }

    fn exists(&self, name: &str) -> Result<bool, StoreError> {
        self.fs.exists(&self.path(name)).map_err(|error| self.error("access", name, &error))
    }

    fn get_range(&self, name: &str, start: u64, bytes: u64) -> Result<Bytes, StoreError> {
        let fail = |error: io::Error| self.error("read", name, &error);
        let file = self.fs.open_read(&self.path(name)).map_err(fail)?;
        let length = usize::try_from(bytes).map_err(|_| fail(ErrorKind::FileTooLarge.into()))?;
        file.read_at(start, length).map_err(fail)
    }

    fn put(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        let publish = |from: &Path, to: &Path| self.fs.publish(from, to);
        self.write(name, &content, publish).map_err(|error| self.error("write", name, &error))
    }

    fn put_if_absent(&self, name: &str, content: Bytes) -> Result<bool, StoreError> {
        // A second name is given only if the file has no such name yet.
        match self.write(name, &content, |from, to| std::fs::hard_link(from, to)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(self.error("write", name, &error)),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, StoreError> {
        let fail = |error: io::Error| self.error("list", folder, &error);
        let path = self.path(folder);
        if !self.fs.exists(&path).map_err(fail)? {
            return Ok(Vec::new());
        }
        let mut objects = Vec::new();
        for name in self.fs.list(&path).map_err(fail)? {
            let Ok(metadata) = std::fs::metadata(path.join(&name)) else { continue };
            let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let modified = modified.and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(i64::MAX);
            if metadata.is_file() {
                objects.push(Object { name, modified });
            }
        }
        Ok(objects)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        match self.fs.remove(&self.path(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.error("remove", name, &error)),
            _ => Ok(()),
        }
    }

    fn now(&self) -> i64 {
        i64::try_from(self.clock.now().nanos().div_euclid(1_000_000)).unwrap_or(i64::MAX)
    }
}
