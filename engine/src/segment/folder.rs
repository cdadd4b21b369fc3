//! The folder of a collection's segments, and the marker that keeps other programs from reading it at a wrong time.
//!
//! Other programs read all files of a folder together, and take the types of one of them for all. So a file that is no
//! Parquet file stands in the folder while that would give wrong numbers: while its segments have several types, while some
//! segments of the collection lie elsewhere, and while segments are there twice because they are being rewritten. The
//! marker is durable before what makes it necessary is written, and goes when what made it necessary is durably gone.

use crate::error::{Error, Result};
use crate::files::FileName;
use crate::fs::{Fs, write_synced};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use std::fmt::{self, Debug};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the marker says to who looks into it.
const MARKER: &str = "This is not a Parquet file. It is here because the segment files of this database cannot be read \
                      together by other programs now: they have different types, or rows would be missing or counted \
                      twice. COMPACT in Ebbtide makes them agree and removes this file. `ebbtide files NAME` prints how \
                      to read the files as they are.\n";

/// A folder with segments: that of a collection, or that of the database, where older programs put those of all collections.
pub(crate) struct SegmentFolder {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    /// Its name in the folder of the database; `None` for that one itself.
    name: Option<String>,
    marker: Mutex<Marker>,
    /// Files that are to be removed, and rewrites that are under way.
    leaving: AtomicU64,
    /// Whether it goes with the last who can see its collection.
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

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name in the folder of the database; `None` for that one itself.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Creates the folder, durably, unless it is there. That of the database is not made again if somebody has removed it.
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

    /// Puts the marker there, durably, unless it is. It stays until [`SegmentFolder::settle`] says that it need not.
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

    /// Whether the marker is there.
    pub(crate) fn is_marked(&self) -> bool {
        self.marker.lock().is_there
    }

    /// Says whether the marker is needed for what the segments are, and removes it if nothing else needs it.
    pub(crate) fn settle(&self, is_needed: bool) {
        let mut marker = self.marker.lock();
        marker.is_needed = is_needed;
        self.remove_unneeded(&mut marker);
    }

    /// Says that segments are about to be there twice. Until [`SegmentFolder::end_rewrite`], which does not come if nobody
    /// knows what the outcome is, the marker stays.
    pub(crate) fn begin_rewrite(&self) -> Result<()> {
        self.prepare()?;
        self.leaving.fetch_add(1, Ordering::AcqRel);
        let mut marker = self.marker.lock();
        self.put(&mut marker).inspect_err(|_| {
            self.leaving.fetch_sub(1, Ordering::AcqRel);
            self.remove_unneeded(&mut marker);
        })
    }

    /// Says that a rewrite has come to its end, one way or the other.
    pub(crate) fn end_rewrite(&self) {
        self.left();
    }

    /// Says that a file in it will be removed.
    pub(crate) fn will_leave(&self) {
        self.leaving.fetch_add(1, Ordering::AcqRel);
    }

    /// Says that such a file has been removed.
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

    /// Takes what the folder holds as an open finds it; the caller has removed what no state names.
    pub(crate) fn opened(&self, has_folder: bool, has_marker: bool, is_needed: bool) -> Result<()> {
        let mut marker = self.marker.lock();
        *marker = Marker { has_folder, is_there: has_marker, is_needed, released: false };
        if is_needed {
            return self.put(&mut marker);
        }
        self.remove_unneeded(&mut marker);
        Ok(())
    }

    /// Says that another process may write here from now on.
    pub(crate) fn release(&self) {
        self.marker.lock().released = true;
    }

    /// Says that the collection was dropped: the folder goes with the last who can see it.
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

/// Removes the folder of a collection that was dropped, with the files that the database put there; if there are others, they
/// stay, and it stays with them.
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
