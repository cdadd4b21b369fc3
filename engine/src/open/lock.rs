//! The lock of a folder.

use crate::error::{Error, Result};
use crate::files::FileName;
use crate::fs::{FileLock, Fs, LockError};
use ebbtide_ttl::{Clock, Code};
use std::path::Path;

/// Keeps other writers out until the returned lock is dropped.
pub(crate) fn take_lock(fs: &dyn Fs, clock: &dyn Clock, dir: &Path) -> Result<Box<dyn FileLock>> {
    lock(fs, clock, dir).map_err(|e| not_locked(dir, &e))
}

/// The same; `None` on a disk that is mounted read-only.
pub(crate) fn take_lock_if_writable(fs: &dyn Fs, clock: &dyn Clock, dir: &Path) -> Result<Option<Box<dyn FileLock>>> {
    match lock(fs, clock, dir) {
        Err(LockError::Io(e)) if e.kind() == std::io::ErrorKind::ReadOnlyFilesystem => Ok(None),
        taken => taken.map(Some).map_err(|e| not_locked(dir, &e)),
    }
}

fn lock(fs: &dyn Fs, clock: &dyn Clock, dir: &Path) -> Result<Box<dyn FileLock>, LockError> {
    let holder = format!("process {} since {}", std::process::id(), clock.now());
    fs.lock(&FileName::Lock.path(dir), &holder)
}

fn not_locked(dir: &Path, error: &LockError) -> Error {
    match error {
        LockError::Held { holder } => {
            // A process that has just taken the lock has not written its name yet.
            let holder = if holder.is_empty() { "another process" } else { holder.as_str() };
            let own = format!("process {} ", std::process::id());
            let what = if holder.starts_with(&own) {
                format!(
                    "{} is open for writing by {holder}, which is the number of this process: close the database, or drop every \
                     Database, Collection and Documents of it, or open it for reading only",
                    dir.display()
                )
            } else {
                format!(
                    "{} is open for writing by {holder}: close it there, or open it here for reading only",
                    dir.display()
                )
            };
            Error::new(Code::LockBusy, what)
        }
        LockError::Io(e) => Error::io("lock", &FileName::Lock.path(dir), e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_without_a_name_is_another_process() {
        let told =
            |holder: &str| not_locked(Path::new("db"), &LockError::Held { holder: holder.to_owned() }).to_string();
        assert!(told("").contains("db is open for writing by another process: close it there"), "{}", told(""));
        assert!(told("process 0 since now").contains("by process 0 since now: close it there"));
    }
}
