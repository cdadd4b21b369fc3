//! The cache of open segments, within one budget: file handles and directories of the most recently opened ones, and columns
//! that queries have decoded.

use crate::sync::Mutex;
use ebbtide_buckets::BlockCache;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

/// Maximum number of open segments: far below the 1024 file handles that a process has by default.
const OPEN_SEGMENTS_MAX: usize = 512;

/// What the cache closes when its budget is exceeded.
pub(crate) trait OpenFile: Debug + Send + Sync {
    /// Closes the file; it is opened again on its next use.
    fn close(&self);
}

/// The segments that are open, in the order in which they were opened.
#[derive(Debug)]
pub(crate) struct SegmentCache {
    open: Mutex<Open>,
    directory_bytes_max: usize,
    columns: Arc<BlockCache>,
}

#[derive(Debug, Default)]
struct Open {
    /// Of this database.
    local: Queue,
    /// Of its archives.
    archived: Queue,
}

#[derive(Debug, Default)]
struct Queue {
    files: VecDeque<(Weak<dyn OpenFile>, usize)>,
    bytes: usize,
}

impl Queue {
    /// Leaves out files that nobody has any more.
    fn forget_dropped(&mut self) {
        self.files.retain(|(file, _)| file.strong_count() > 0);
        self.bytes = self.files.iter().map(|(_, bytes)| bytes).sum();
    }

    /// Takes the oldest files while there are too many or too large ones; the newest one stays.
    fn shrink(&mut self, files_max: usize, bytes_max: usize, closing: &mut Vec<Arc<dyn OpenFile>>) {
        while self.files.len() > 1 && (self.files.len() > files_max || self.bytes > bytes_max) {
            if let Some((oldest, bytes)) = self.files.pop_front() {
                self.bytes -= bytes;
                closing.extend(oldest.upgrade());
            }
        }
    }
}

impl SegmentCache {
    /// Half of the budget is for directories, half for columns.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let half = bytes_max / 2;
        SegmentCache { open: Mutex::default(), directory_bytes_max: half, columns: Arc::new(BlockCache::new(half)) }
    }

    /// Segments of this database that are held open.
    pub(crate) fn open_files(&self) -> u64 {
        self.open.lock().local.files.iter().filter(|(file, _)| file.strong_count() > 0).count() as u64
    }

    /// Bytes of directories and footers that are kept in memory.
    pub(crate) fn directory_bytes_max(&self) -> usize {
        self.directory_bytes_max
    }

    /// The cache of decoded columns.
    pub(crate) fn columns(&self) -> &Arc<BlockCache> {
        &self.columns
    }

    /// Notes that `file` was opened, and closes the oldest files beyond the budget. Reads that are in progress continue. Files of
    /// archives have no handle, and at most half of the bytes.
    pub(crate) fn opened(&self, file: Weak<dyn OpenFile>, bytes: usize, of_archive: bool) {
        let mut closing = Vec::new();
        {
            let mut open = self.open.lock();
            let Open { local, archived } = &mut *open;
            archived.forget_dropped();
            let queue = if of_archive { &mut *archived } else { &mut *local };
            queue.files.push_back((file, bytes));
            queue.bytes += bytes;
            archived.shrink(usize::MAX, self.directory_bytes_max / 2, &mut closing);
            let for_archives = archived.bytes.min(self.directory_bytes_max / 2);
            local.shrink(OPEN_SEGMENTS_MAX, self.directory_bytes_max - for_archives, &mut closing);
        }
        // Outside of the lock, since dropping the last owner of an obsolete segment unlinks its file.
        closing.iter().for_each(|file| file.close());
    }
}

#[cfg(test)]
mod tests;
