//! The folder of a collection's segments, and the marker that stops other programs from reading it while they would get
//! wrong results.
//!
//! Other programs read all files of a folder together and apply the types of one file to all. The marker is a file that is
//! not Parquet, so they stop there with an error. It exists while the segments have different types, while some segments of
//! the collection are outside the folder, and while a rewrite has the same rows in two files. It is durable before the
//! change that requires it is written, and removed after the change that ends this is durable.

use crate::error::{Error, Result};
use crate::files::FileName;
use crate::fs::{Fs, write_synced};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use std::fmt::{self, Debug};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The content of the marker.
const MARKER: &str = "This is not a Parquet file. It is here because the segment files of this database cannot be read \
                      together by other programs now: they have different types, or rows would be missing or counted \
                      twice. COMPACT in Ebbtide makes them agree and removes this file. `ebbtide files NAME` prints how \
                      to read the files as they are.\n";

/// A folder with segments: the folder of a collection or, for segments written by older programs, of the database.
pub(crate) struct SegmentFolder {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    /// The name within the folder of the database; `None` for the folder of the database itself.
    name: Option<String>,
    marker: Mutex<Marker>,
    /// Number of files still to be removed and of rewrites in progress.
    leaving: AtomicU64,
    /// Whether to remove the folder when the last reference to it is dropped.
    obsolete: AtomicBool,
}

#[derive(Debug, Default)]
struct Marker {
    /// Whether the folder is known to exist.
    has_folder: bool,
    is_there: bool,
    is_needed: bool,
    /// Whether another process may write here.
    released: bool,
}

impl SegmentFolder {
    /// The folder of a collection.
    pub(crate) fn of_collection(fs: Arc<dyn Fs>, dir: &Path, name: String) -> SegmentFolder {
        SegmentFolder::new(fs, dir.join(&name), Some(name))
    }

    /// The folder of the database.
    pub(crate) fn of_database(fs: Arc<dyn Fs>, dir: &Path) -> SegmentFolder {
        SegmentFolder::new(fs, dir.to_owned(), None)
    }

    fn new(fs: Arc<dyn Fs>, path: PathBuf, name: Option<String>) -> SegmentFolder {
        let (leaving, obsolete) = (AtomicU64::new(0), AtomicBool::new(false));
        SegmentFolder { fs, path, name, marker: Mutex::default(), leaving, obsolete }
    }

    pub(crate) fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name within the folder of the database; `None` for the folder of the database itself.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Creates the folder durably unless it exists. A folder of the database that somebody has removed is not created again.
    pub(crate) fn prepare(&self) -> Result<()> {
        let mut marker = self.marker.lock();
        if !marker.has_folder {
            let above = self.path.parent().unwrap_or(&self.path);
            let created = match self.fs.exists(above) {
                Ok(true) => self.fs.create_dir(&self.path),
                Ok(false) => Err(io::ErrorKind::NotFound.into()),
                Err(error) => Err(error),
            };
            created.map_err(|e| Error::io("create the folder", &self.path, &e))?;
            marker.has_folder = true;
        }
        Ok(())
    }

    /// Creates the marker durably unless it exists. It stays until [`SegmentFolder::settle`] is told that it is not needed.
    pub(crate) fn mark(&self) -> Result<()> {
        let mut marker = self.marker.lock();
        marker.is_needed = true;
        self.put(&mut marker)
    }

    fn put(&self, marker: &mut Marker) -> Result<()> {
        if marker.is_there {
            return Ok(());
        }
        let path = FileName::CompactFirst.path(&self.path);
        let written = write_synced(self.fs.as_ref(), &path, MARKER.as_bytes()).map(drop);
        let durable = written.and_then(|()| {
            self.fs.sync_dir(&self.path).inspect_err(|_| {
                let removed = self.fs.remove(&path);
                tracing::debug!(path = %path.display(), ?removed, "took back a marker that may not be durable");
            })
        });
        durable.map_err(|e| Error::io("write the marker", &path, &e))?;
        marker.is_there = true;
        Ok(())
    }

    /// Whether the marker exists.
    pub(crate) fn is_marked(&self) -> bool {
        self.marker.lock().is_there
    }

    /// Sets whether the current segments need the marker, and removes it if nothing needs it.
    pub(crate) fn settle(&self, is_needed: bool) {
        let mut marker = self.marker.lock();
        marker.is_needed = is_needed;
        self.remove_unneeded(&mut marker);
    }

    /// Begins a rewrite, during which rows are in two files. The marker stays until [`SegmentFolder::end_rewrite`], which is
    /// not called if the outcome of the rewrite is unknown.
    pub(crate) fn begin_rewrite(&self) -> Result<()> {
        self.prepare()?;
        self.leaving.fetch_add(1, Ordering::AcqRel);
        let mut marker = self.marker.lock();
        self.put(&mut marker).inspect_err(|_| {
            self.leaving.fetch_sub(1, Ordering::AcqRel);
            self.remove_unneeded(&mut marker);
        })
    }

    /// Ends a rewrite, successful or not.
    pub(crate) fn end_rewrite(&self) {
        self.left();
    }

    /// Announces that a file in the folder will be removed.
    pub(crate) fn will_leave(&self) {
        self.leaving.fetch_add(1, Ordering::AcqRel);
    }

    /// Reports that such a file has been removed.
    pub(crate) fn left(&self) {
        if self.leaving.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.remove_unneeded(&mut self.marker.lock());
        }
    }

    fn remove_unneeded(&self, marker: &mut Marker) {
        let is_needed = marker.is_needed || self.leaving.load(Ordering::Acquire) > 0;
        if !marker.is_there || is_needed || marker.released {
            return;
        }
        // First what was removed has to be gone for good: after a power cut it could be there again without the marker.
        let path = FileName::CompactFirst.path(&self.path);
        let removed = self.fs.sync_dir(&self.path).and_then(|()| match self.fs.remove(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        });
        match removed {
            Ok(()) => marker.is_there = false,
            Err(error) => tracing::warn!(path = %path.display(), %error, "the next open removes the marker"),
        }
    }

    /// Sets the state as found when the database is opened. The caller has removed files that no state refers to.
    pub(crate) fn opened(&self, has_folder: bool, has_marker: bool, is_needed: bool) -> Result<()> {
        let mut marker = self.marker.lock();
        *marker = Marker { has_folder, is_there: has_marker, is_needed, released: false };
        if is_needed {
            return self.put(&mut marker);
        }
        self.remove_unneeded(&mut marker);
        Ok(())
    }

    /// Leaves the marker alone from now on, because another process may write here.
    pub(crate) fn release(&self) {
        self.marker.lock().released = true;
    }

    /// Marks the collection as dropped: the folder is removed with the last reference to it.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for SegmentFolder {
    fn drop(&mut self) {
        if !self.obsolete.load(Ordering::Acquire) || !self.marker.lock().has_folder {
            return;
        }
        if let Err(error) = remove_folder(self.fs.as_ref(), &self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the next open removes the folder");
        }
    }
}

/// Removes the database's files from the folder of a dropped collection, and the folder unless it contains other files.
pub(crate) fn remove_folder(fs: &dyn Fs, path: &Path) -> io::Result<()> {
    let mut others = false;
    for name in fs.list(path)? {
        if is_of_a_collection(&name) {
            fs.remove(&path.join(name))?;
        } else {
            others = true;
        }
    }
    if others { Ok(()) } else { fs.remove_dir(path) }
}

/// Whether the database puts files of this name into the folders of collections.
pub(crate) fn is_of_a_collection(name: &str) -> bool {
    match FileName::parse(name) {
        Some(FileName::Segment(segment)) => segment.generation.is_some(),
        other => other == Some(FileName::CompactFirst),
    }
}

impl Debug for SegmentFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentFolder").field("path", &self.path).finish_non_exhaustive()
    }
}
