//! The disk of the operating system.

#![expect(clippy::disallowed_methods, reason = "this module is the door through which files are reached")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use bytes::Bytes;
use ebbtide_buckets::ReadAt;

use super::{FileLock, Fs, LockError, WriteFile};

/// The longest holder text that is read back from a lock file: somebody else may have written anything there.
const HOLDER_BYTES_MAX: u64 = 4096;

/// How often a lock is taken anew because its file was replaced meanwhile.
const LOCK_TRIES: usize = 5;

/// The disk of the operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct RealFs;

impl RealFs {
    /// The disk of this machine.
    #[must_use]
    pub fn new() -> Self {
        RealFs
    }
}

impl Fs for RealFs {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(RealFile { file, len: 0, process: std::process::id() }))
    }

    fn open_append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        let file = OpenOptions::new().write(true).open(path)?;
        let found = file.metadata()?.len();
        if found < len {
            let text = format!("the file is shorter than the place to append at: expected={len} found={found}");
            return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
        }
        if found > len {
            file.set_len(len)?;
        }
        Ok(Box::new(RealFile { file, len, process: std::process::id() }))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(Arc::new(RealReader { file, len }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn publish(&self, tmp: &Path, path: &Path) -> io::Result<()> {
        let dir = parent(path);
        if parent(tmp) != dir {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a file is published within its folder"));
        }
        fs::rename(tmp, path)?;
        // Without this a power cut may bring the old name back after the caller relied on the new one.
        self.sync_dir(&dir)
    }

    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        if to.try_exists()? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        fs::rename(from, to)?;
        self.sync_dir(&parent(to))?;
        self.sync_dir(&parent(from))
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        // Windows flushes only what is open for writing.
        OpenOptions::new().read(true).write(cfg!(windows)).open(path)?.sync_data()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    #[cfg(not(windows))]
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    /// NTFS journals names by itself, and a folder cannot be opened to be flushed.
    #[cfg(windows)]
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::metadata(dir).map(drop)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = dir.to_path_buf();
        while !at.try_exists()? {
            let above = parent(&at);
            if above == at {
                return Err(io::Error::new(ErrorKind::NotFound, "the path is empty, or nothing of it exists"));
            }
            missing.push(at);
            at = above;
        }
        if missing.is_empty() {
            if !dir.is_dir() {
                return Err(io::Error::new(ErrorKind::NotADirectory, "there is a file in the place of the folder"));
            }
            // Whoever created it may have been killed before its name was synced. A parent that cannot be opened is
            // not ours: the folder was there before.
            return match self.sync_dir(&parent(dir)) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
                result => result,
            };
        }
        for dir in missing.iter().rev() {
            match fs::create_dir(dir) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                result => result?,
            }
            self.sync_dir(&parent(dir))?;
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        lock_if(path, holder, |locked| locked.check().is_ok())
    }
}

/// Locks a file that is then still the one at its path, as `is_there` says.
fn lock_if(path: &Path, holder: &str, is_there: impl Fn(&LockedFile) -> bool) -> Result<Box<dyn FileLock>, LockError> {
    static SAID: Once = Once::new();
    for tries in 1..=LOCK_TRIES {
        let mut lock = RealLock::take(path)?;
        // A lock file that was removed or replaced before it was locked keeps nobody out.
        let is_other = lock.locked.as_ref().is_some_and(|locked| !is_there(locked));
        if is_other && (tries < LOCK_TRIES || !path.try_exists()?) {
            continue;
        }
        if let Some(locked) = lock.locked.as_mut().filter(|_| is_other) {
            // Nobody replaces it that often: some network file systems give an open file and its path different numbers.
            locked.id = None;
            SAID.call_once(|| {
                let path = path.display();
                tracing::warn!(%path, "this file system has no reliable file numbers: if the folder is replaced while it is open, \
                     that is not noticed");
            });
        }
        // The text is a courtesy, the lock is the kernel's: a full disk must not keep a database from being opened.
        let mut file = lock.file.as_ref();
        let _courtesy = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
        return Ok(Box::new(lock));
    }
    let what = format!(
        "{} is gone each time that it has been locked: keep other programs from removing it, and try again",
        path.display()
    );
    Err(LockError::Io(io::Error::other(what)))
}

/// The folder that holds a name; that of a bare name is the current one.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if dir.as_os_str().is_empty() => PathBuf::from("."),
        Some(dir) => dir.to_path_buf(),
        None => path.to_path_buf(),
    }
}

/// A file that grows at `len`. Writes name their position, so that what a failed append left is overwritten by the
/// next one, never kept in front of it.
#[derive(Debug)]
struct RealFile {
    file: File,
    len: u64,
    process: u32,
}

impl RealFile {
    /// Refuses what a forked child would do to the files of its parent: neither knows what the other one appends.
    fn check_process(&self) -> io::Result<()> {
        check_process(self.process)
    }
}

fn check_process(opener: u32) -> io::Result<()> {
    if opener == std::process::id() {
        return Ok(());
    }
    let what = "this process was forked from the one that opened the file: open the database in this process";
    Err(io::Error::new(ErrorKind::PermissionDenied, what))
}

impl WriteFile for RealFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check_process()?;
        write_all_at(bytes, self.len, |rest, offset| write_at(&self.file, rest, offset))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn fill_ahead(&mut self, bytes: usize) -> io::Result<()> {
        self.check_process()?;
        // Written, not allocated: blocks that are only allocated are noted as written when they are, which is as dear as a
        // new length.
        write_all_at(&vec![0; bytes], self.len, |rest, offset| write_at(&self.file, rest, offset))
    }

    fn sync(&mut self) -> io::Result<()> {
        // The length is part of what fdatasync keeps; times are not, and nothing here depends on them.
        self.file.sync_data()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.check_process()?;
        if len > self.len {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a file is never lengthened by cutting it"));
        }
        self.file.set_len(len)?;
        self.len = len;
        Ok(())
    }
}

/// Calls `write` until everything is written: it may take less than it is given, and be interrupted.
fn write_all_at(
    mut bytes: &[u8],
    mut offset: u64,
    mut write: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(bytes, offset) {
            // Asked for more than nothing, a disk that takes nothing would be asked for ever.
            Ok(0) => return Err(io::Error::new(ErrorKind::WriteZero, "the file takes no more bytes")),
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or_default();
                offset += written as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

/// A file open for positioned reads, of the length that it had when it was opened.
#[derive(Debug)]
struct RealReader {
    file: File,
    len: u64,
}

impl ReadAt for RealReader {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        // Checked before the buffer is made: the length may come from damaged bytes.
        check_range(offset, len, self.len)?;
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match read_at(&self.file, &mut bytes[done..], offset + done as u64) {
                Ok(0) => {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "the file was cut while it was read"));
                }
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Bytes::from(bytes))
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, offset)
}

/// Refuses a range that does not lie within a file of `file_len` bytes.
pub(super) fn check_range(offset: u64, len: usize, file_len: u64) -> io::Result<()> {
    if offset.checked_add(len as u64).is_some_and(|end| end <= file_len) {
        return Ok(());
    }
    let text = format!("read beyond the end of the file: offset={offset} bytes={len} file_bytes={file_len}");
    Err(io::Error::new(ErrorKind::UnexpectedEof, text))
}

/// An advisory lock of the kernel, which releases it at the end of the process, however that comes.
#[derive(Debug)]
struct RealLock {
    file: Arc<File>,
    process: u32,
    locked: Option<LockedFile>,
}

impl RealLock {
    fn take(path: &Path) -> Result<RealLock, LockError> {
        // Not truncated at opening: the text belongs to the holder until the lock is ours.
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut bytes = Vec::new();
                // Where a lock also forbids reading, the holder stays unnamed.
                let _unreadable = file.take(HOLDER_BYTES_MAX).read_to_end(&mut bytes);
                let holder = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                return Err(LockError::Held { holder });
            }
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        let (file, process) = (Arc::new(file), std::process::id());
        let id = file.metadata().ok().and_then(|found| file_id(&found));
        let locked = id.map(|id| LockedFile { path: path.to_owned(), file: Arc::clone(&file), id: Some(id), process });
        Ok(RealLock { file, process, locked })
    }
}

impl FileLock for RealLock {
    fn locked(&self) -> Option<LockedFile> {
        self.locked.clone()
    }
}

/// A file that this process has locked, and the path at which it was.
#[derive(Debug, Clone)]
pub struct LockedFile {
    path: PathBuf,
    file: Arc<File>,
    /// `None` if its numbers do not tell whether it is the file at the path.
    id: Option<FileId>,
    process: u32,
}

impl LockedFile {
    /// Checks that the path still names the file, and that this is the process that locked it.
    ///
    /// # Errors
    /// [`ErrorKind::Other`] if another file or none is there, [`ErrorKind::PermissionDenied`] in a forked process. If the file system
    /// cannot tell, that is no error.
    pub fn check(&self) -> io::Result<()> {
        check_process(self.process)?;
        match fs::metadata(&self.path) {
            Ok(found) if file_id(&found).is_none_or(|id| self.is(id)) => Ok(()),
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            _ => Err(io::Error::other(format!(
                "the folder or its lock file was moved, replaced or removed while it was open: {} is not the file that was locked",
                self.path.display()
            ))),
        }
    }

    /// Whether this is the number of the file. Some file systems give a file another number later.
    fn is(&self, id: FileId) -> bool {
        self.id.is_none_or(|own| own == id) || self.file.metadata().is_ok_and(|found| file_id(&found) == Some(id))
    }
}

/// Device and number of a file.
type FileId = (u64, u64);

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "other systems have none")]
fn file_id(file: &fs::Metadata) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    Some((file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn file_id(_file: &fs::Metadata) -> Option<FileId> {
    None
}

impl Drop for RealLock {
    fn drop(&mut self) {
        // To close the file is not enough: a process that another thread is about to start has it open for a moment.
        // But a forked child that drops its copy must not give away the lock of its parent.
        if self.process == std::process::id() {
            let _released_at_close = self.file.unlock();
        }
    }
}

#[cfg(test)]
mod tests;
