//! Folders of measured databases, and a disk that does not wait for syncs.

use crate::Result;
use crate::measure::timed;
use ebbtide::fs::{Fs, Layer, RealFs, WriteFile};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of all files in a folder.
///
/// # Errors
/// Errors of the file system.
pub fn bytes_in(dir: &Path) -> Result<u64> {
    bytes_of(dir, |_| true)
}

/// Bytes of the files in a folder, and in the folders in it, whose names are selected.
///
/// # Errors
/// Errors of the file system.
pub fn bytes_of(dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<u64> {
    Ok(files_of(dir, &wanted)?.values().sum())
}

/// The files in a folder, and in the folders in it, whose names are selected, with their lengths.
///
/// # Errors
/// Errors of the file system.
pub fn files_of(dir: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<BTreeMap<PathBuf, u64>> {
    let fs = RealFs::new();
    let mut files = BTreeMap::new();
    for name in fs.list(dir)? {
        let path = dir.join(&name);
        if path.is_dir() {
            files.extend(files_of(&path, wanted)?);
        } else if wanted(&name) {
            match fs.len(&path) {
                Ok(bytes) => drop(files.insert(path, bytes)),
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(files)
}

/// The seconds in which the file system removes files of these lengths, one by one.
///
/// # Errors
/// Errors of the file system.
pub fn seconds_of_removal(dir: &Path, lengths: impl Iterator<Item = u64>) -> Result<f64> {
    let fs = RealFs::new();
    let mut paths = Vec::new();
    for (number, length) in lengths.enumerate() {
        let path = dir.join(format!("removed-{number}"));
        let mut file = fs.create(&path)?;
        file.append(&vec![0x5a; usize::try_from(length)?])?;
        file.sync()?;
        paths.push(path);
    }
    let (seconds, ()) = timed(|| Ok(paths.iter().try_for_each(|path| fs.remove(path))?))?;
    Ok(seconds)
}

/// Writes a file, replacing an existing one.
///
/// # Errors
/// Errors of the file system.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let fs = RealFs::new();
    if fs.exists(path)? {
        fs.remove(path)?;
    }
    let mut file = fs.create(path)?;
    file.append(bytes)?;
    Ok(file.sync()?)
}

/// Syncs every file of a folder, and of the folders in it, that was written without syncs; otherwise the first measured
/// sweep would write the rest.
///
/// # Errors
/// Errors of the file system.
pub fn sync_files(folder: &Path) -> Result<()> {
    let fs = RealFs::new();
    for name in fs.list(folder)? {
        let path = folder.join(name);
        if path.is_file() {
            fs.open_append(&path, path.metadata()?.len())?.sync()?;
        } else {
            sync_files(&path)?;
        }
    }
    Ok(fs.sync_dir(folder)?)
}

/// The real disk without waiting for syncs, only for preparing a database that is then measured on the real disk.
#[derive(Debug, Default)]
pub struct UnsyncedFs {
    real: RealFs,
}

#[derive(Debug)]
struct Unsynced(Box<dyn WriteFile>);

impl WriteFile for Unsynced {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    fn fill_ahead(&mut self, bytes: usize) -> io::Result<()> {
        self.0.fill_ahead(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }
}

impl Layer for UnsyncedFs {
    fn below(&self) -> &dyn Fs {
        &self.real
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(Unsynced(self.real.create(path)?)))
    }

    fn open_append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(Unsynced(self.real.open_append(path, len)?)))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}
