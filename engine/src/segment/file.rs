//! A segment's file: opened on first use, unlinked when no snapshot can see it any more.

use super::folder::SegmentFolder;
use super::segment_cache::{OpenFile, SegmentCache};
use crate::error::{Error, Result};
use crate::files::{FileName, SegmentName};
use crate::fs::Fs;
use crate::sync::{AtomicBool, Mutex, Ordering};
use ebbtide_buckets::{BlockCache, ReadAt, SegmentError, SegmentMeta, SegmentReader};
use ebbtide_buckets::{KeyedMeta, KeyedReader};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

/// What reads a segment's file, once it is open.
pub(crate) trait Content: Debug + Clone + Send + Sync + Sized + 'static {
    /// What the manifest knows of a file.
    type Meta: Debug + Send + Sync;

    /// The length of the file and the checksum of its footer.
    fn identity(meta: &Self::Meta) -> (u64, u32);
    fn open(file: Arc<dyn ReadAt>, name: &str) -> Result<Self, SegmentError>;
    /// The same with a cache for what is decoded, where that is kept by segment.
    fn with_cache(self, cache: &Arc<BlockCache>) -> Self;
    fn checksum(&self) -> u32;
    /// Whether it has as much as is known of the file.
    fn has(&self, meta: &Self::Meta) -> bool;
    fn memory_bytes(&self) -> usize;
}

impl Content for SegmentReader {
    type Meta = SegmentMeta;

    fn identity(meta: &SegmentMeta) -> (u64, u32) {
        (meta.bytes, meta.checksum)
    }

    fn open(file: Arc<dyn ReadAt>, name: &str) -> Result<Self, SegmentError> {
        SegmentReader::open(file, name)
    }

    fn with_cache(self, cache: &Arc<BlockCache>) -> Self {
        SegmentReader::with_cache(self, cache)
    }

    fn checksum(&self) -> u32 {
        SegmentReader::checksum(self)
    }

    fn has(&self, meta: &SegmentMeta) -> bool {
        let directory = self.directory();
        directory.row_count() == meta.rows && directory.bucket_count() as u64 == u64::from(meta.buckets)
    }

    fn memory_bytes(&self) -> usize {
        SegmentReader::memory_bytes(self)
    }
}

impl Content for KeyedReader {
    type Meta = KeyedMeta;

    fn identity(meta: &KeyedMeta) -> (u64, u32) {
        (meta.bytes, meta.checksum)
    }

    fn open(file: Arc<dyn ReadAt>, name: &str) -> Result<Self, SegmentError> {
        KeyedReader::open(file, name)
    }

    fn with_cache(self, _: &Arc<BlockCache>) -> Self {
        self
    }

    fn checksum(&self) -> u32 {
        KeyedReader::checksum(self)
    }

    fn has(&self, _: &KeyedMeta) -> bool {
        true
    }

    fn memory_bytes(&self) -> usize {
        KeyedReader::memory_bytes(self)
    }
}

/// A segment's file. It is unlinked when it is obsolete and the last snapshot that can see it is dropped.
#[derive(Debug)]
pub(crate) struct SegmentFile<C: Content = SegmentReader> {
    pub(crate) id: u64,
    /// The generation of its types; `None` if an older program wrote it.
    pub(crate) generation: Option<u32>,
    pub(crate) path: PathBuf,
    pub(crate) meta: C::Meta,
    folder: Arc<SegmentFolder>,
    fs: Arc<dyn Fs>,
    cache: Arc<SegmentCache>,
    reader: Mutex<Option<C>>,
    /// Keeps the content readable if another process unlinks the file.
    held: OnceLock<Arc<dyn ReadAt>>,
    of_archive: bool,
    obsolete: AtomicBool,
}

impl<C: Content> SegmentFile<C> {
    pub(crate) fn new(
        fs: Arc<dyn Fs>,
        cache: Arc<SegmentCache>,
        folder: Arc<SegmentFolder>,
        name: SegmentName,
        meta: C::Meta,
    ) -> Self {
        SegmentFile {
            id: name.id,
            generation: name.generation,
            path: FileName::Segment(name).path(folder.path()),
            meta,
            folder,
            fs,
            cache,
            reader: Mutex::new(None),
            held: OnceLock::new(),
            of_archive: false,
            obsolete: AtomicBool::new(false),
        }
    }

    /// A file of an archive. It is never removed.
    pub(crate) fn of_archive(
        cache: Arc<SegmentCache>,
        folder: Arc<SegmentFolder>,
        (id, path): (u64, PathBuf),
        meta: C::Meta,
        content: Arc<dyn ReadAt>,
    ) -> Self {
        SegmentFile {
            id,
            generation: None,
            path,
            meta,
            fs: Arc::clone(folder.fs()),
            folder,
            cache,
            reader: Mutex::new(None),
            held: OnceLock::from(content),
            of_archive: true,
            obsolete: AtomicBool::new(false),
        }
    }

    /// Its path in the folder of the database.
    pub(crate) fn relative_path(&self) -> PathBuf {
        let name = FileName::Segment(SegmentName { generation: self.generation, id: self.id });
        self.folder.name().map_or_else(PathBuf::new, PathBuf::from).join(name.to_string())
    }

    /// The open file with its directory, read on first use and kept within the budget of [`SegmentCache`].
    pub(crate) fn reader(self: &Arc<Self>) -> Result<C> {
        let mut reader = self.reader.lock();
        if let Some(reader) = reader.as_ref() {
            return Ok(reader.clone());
        }
        let opened = self.open_anew()?.with_cache(self.cache.columns());
        *reader = Some(opened.clone());
        drop(reader);
        let file: Weak<dyn OpenFile> = Arc::downgrade(self) as _;
        self.cache.opened(file, opened.memory_bytes(), self.of_archive);
        Ok(opened)
    }

    /// Whether the file is open.
    pub(crate) fn is_open(&self) -> bool {
        self.reader.lock().is_some()
    }

    /// As many bytes as the cache of columns can keep of one read.
    pub(crate) fn cache_room(&self) -> u64 {
        self.cache.columns().room() as u64
    }

    /// The budget for directories, in bytes.
    pub(crate) fn directory_bytes_max(&self) -> usize {
        self.cache.directory_bytes_max()
    }

    /// The file as it is on disk now, bypassing all caches.
    pub(crate) fn open_anew(&self) -> Result<C> {
        let file = match self.held.get() {
            Some(held) => held.clone(),
            None => self.open_file()?,
        };
        let (bytes, checksum) = C::identity(&self.meta);
        if file.len() != bytes {
            let what = format!("segment length expected={bytes} found={}", file.len());
            return Err(Error::corrupt(&self.path, file.len().min(bytes), what));
        }
        let opened = C::open(file, &self.path.display().to_string())?;
        if opened.checksum() != checksum {
            let what = "the file is a segment, but not the one that the manifest names";
            return Err(Error::corrupt(&self.path, 0, what));
        }
        if !opened.has(&self.meta) {
            let what =
                "the segment has another number of rows or buckets than the manifest, or the log of its archive, says";
            return Err(Error::corrupt(&self.path, 0, what));
        }
        Ok(opened)
    }

    fn open_file(&self) -> Result<Arc<dyn ReadAt>> {
        self.fs.open_read(&self.path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::corrupt(&self.path, 0, "segment file is missing"),
            _ => Error::io("open the segment", &self.path, &e),
        })
    }

    /// Opens the file now and keeps it open, so that it can still be read after a writer in another process unlinks it.
    pub(crate) fn hold(&self) -> Result<()> {
        if self.held.get().is_none() {
            let file = self.open_file()?;
            self.held.get_or_init(|| file);
        }
        Ok(())
    }

    /// Marks the file as obsolete: the state no longer names it.
    pub(crate) fn retire(&self) {
        self.folder.will_leave();
        self.obsolete.store(true, Ordering::Release);
    }
}

impl<C: Content> OpenFile for SegmentFile<C> {
    fn close(&self) {
        *self.reader.lock() = None;
    }
}

impl<C: Content> Drop for SegmentFile<C> {
    fn drop(&mut self) {
        if !self.obsolete.load(Ordering::Acquire) {
            return;
        }
        match self.fs.remove(&self.path) {
            Ok(()) => self.folder.left(),
            // The manifest no longer names it: the next open removes what is left.
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot remove a segment that is no longer needed");
            }
        }
    }
}
