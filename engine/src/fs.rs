//! The only access to disk.
//!
//! The engine reads and writes files only through [`Fs`], so that a test can replace the disk by a simulated one that
//! loses what was not synced, runs full, fails a sync, or stops at any operation (`sim::SimFs`, with the feature
//! `testing`). [`RealFs`] is the disk of the operating system.
//!
//! The contract is weaker than that of any one file system: syncing a file makes its content durable but not its
//! name, and syncing a folder makes the names in it durable but not what they hold. [`Fs::publish`] is the one way to
//! replace a file: it does all steps in the right order.

#[cfg(any(test, feature = "testing"))]
mod layer;
mod locked;
mod real;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod sim;

use std::fmt::{self, Debug, Display};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebbtide_buckets::ReadAt;

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use layer::Layer;
pub(crate) use locked::LockedFs;
pub use real::{LockedFile, RealFs};

/// A disk.
///
/// Every method is one operation that succeeds as a whole or reports an error; after an error of a writing method the
/// state on the disk is unknown until it is read again.
pub trait Fs: Debug + Send + Sync {
    /// Creates a new file for appending; an existing one is an error ([`io::ErrorKind::AlreadyExists`]).
    ///
    /// The content is durable after [`WriteFile::sync`], the name after [`sync_dir`](Fs::sync_dir) of its folder.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// Opens an existing file for appending at its end, after cutting it to `len` bytes.
    ///
    /// A file shorter than `len` is an error ([`io::ErrorKind::UnexpectedEof`]): a hole would read as zeros. The cut
    /// is durable after the next [`WriteFile::sync`].
    fn open_append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>>;

    /// Opens a file for positioned reads. Removing the file later does not disturb them.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>>;

    /// Reads a whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Makes the content of a file durable, whoever wrote it.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Renames `tmp` to `path`, replacing what was there, and syncs the folder: when this returns, the new name is
    /// durable. The file must have been synced, and both names must be in one folder.
    fn publish(&self, tmp: &Path, path: &Path) -> io::Result<()>;

    /// Removes a file's name. Durable after [`sync_dir`](Fs::sync_dir) of its folder.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Moves a file into another folder of the same disk, durably. If it is interrupted, the file may be in both.
    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.exists(to)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        drop(write_synced(self, to, &self.read(from)?)?);
        self.sync_dir(to.parent().unwrap_or(to))?;
        self.remove(from)?;
        self.sync_dir(from.parent().unwrap_or(from))
    }

    /// Makes the names in a folder durable, or their absence.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Creates a folder and its missing parents, durably. An existing folder is not an error.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a folder (files and folders), sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Whether a file or folder of this name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// The length of a file in bytes.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// Removes a folder with everything in it. Durable after [`sync_dir`](Fs::sync_dir) of its parent.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the exclusive lock named by `path`, and writes `holder` into that file for other processes to read.
    ///
    /// The lock is held until the returned value is dropped or the process ends; the content of an old lock file is
    /// irrelevant. The file itself is not made durable and never removed.
    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>, LockError>;
}

/// Creates a file. One of that name is removed first: it is left over from a failed attempt.
pub(crate) fn create_anew<F: Fs + ?Sized>(fs: &F, path: &Path) -> io::Result<Box<dyn WriteFile>> {
    if fs.exists(path)? {
        fs.remove(path)?;
    }
    fs.create(path)
}

/// Writes a file with these bytes and syncs its content; its name is durable after [`Fs::sync_dir`]. After an error
/// the file is removed again, since a part of it would take up space on a full disk.
pub(crate) fn write_synced<F: Fs + ?Sized>(fs: &F, path: &Path, bytes: &[u8]) -> io::Result<Box<dyn WriteFile>> {
    let mut file = create_anew(fs, path)?;
    if let Err(error) = file.append(bytes).and_then(|()| file.sync()) {
        drop(file);
        let removed = fs.remove(path);
        tracing::debug!(path = %path.display(), ?removed, "removed a file that could not be written");
        return Err(error);
    }
    Ok(file)
}

/// The suffix of a file's name while it is written.
pub(crate) const TEMPORARY: &str = ".tmp";

/// The temporary name under which the file at `path` is written before it is renamed.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    PathBuf::from(name)
}

/// Atomically and durably replaces `path` with `bytes`. After an error `path` is as it was, or replaced if only the sync
/// of its folder failed.
pub(crate) fn replace(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let tmp = temporary(path);
    drop(write_synced(fs, &tmp, bytes)?);
    fs.publish(&tmp, path).inspect_err(|_| drop(fs.remove(&tmp)))
}

/// Whether an error says that the disk is full, or that a file may not grow.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// A file open for appending. There is one handle per file at a time.
#[expect(clippy::len_without_is_empty, reason = "a length in bytes, not a collection")]
pub trait WriteFile: Debug + Send {
    /// Appends all of `bytes`. After an error any prefix of them may be in the file.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Writes `bytes` zeros behind the end, which stays where it is: [`len`](WriteFile::len) does not count them and appends
    /// overwrite them. To sync an append over zeros that were synced, a file system need not note a new length or new
    /// blocks, which takes it a write or two more. After an error any number of zeros may be there.
    fn fill_ahead(&mut self, bytes: usize) -> io::Result<()>;

    /// Makes the content durable. After an error nothing is known about what was appended since the last sync, and a
    /// second sync that succeeds proves nothing.
    fn sync(&mut self) -> io::Result<()>;

    /// The length of the file, counting only appends which succeeded.
    fn len(&self) -> u64;

    /// Cuts the file to `len` bytes, which must not be more than it has, and takes away what is behind its end. Durable after [`sync`](WriteFile::sync).
    fn truncate(&mut self, len: u64) -> io::Result<()>;
}

/// An exclusive lock, released when dropped.
pub trait FileLock: Debug + Send + Sync {
    /// What is locked; `None` where a path cannot be told from another file of the same name.
    fn locked(&self) -> Option<LockedFile> {
        None
    }
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it.
    Held {
        /// What the holder wrote about itself, or an empty text if that could not be read.
        holder: String,
    },
    /// The lock file could not be used.
    Io(io::Error),
}

impl Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Held { holder } if holder.is_empty() => write!(f, "the lock is held by another process"),
            LockError::Held { holder } => write!(f, "the lock is held by {holder}"),
            LockError::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LockError::Held { .. } => None,
            LockError::Io(error) => Some(error),
        }
    }
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        LockError::Io(error)
    }
}
