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
    files: VecDeque<(Weak<dyn OpenFile>, usize)>,
    bytes: usize,
}

impl SegmentCache {
    /// Half of the budget is for directories, half for columns.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let half = bytes_max / 2;
        SegmentCache { open: Mutex::default(), directory_bytes_max: half, columns: Arc::new(BlockCache::new(half)) }
    }

    /// Segments that are held open.
    pub(crate) fn open_files(&self) -> u64 {
        self.open.lock().files.iter().filter(|(file, _)| file.strong_count() > 0).count() as u64
    }

    /// Bytes of directories and footers that are kept in memory.
    pub(crate) fn directory_bytes_max(&self) -> usize {
        self.directory_bytes_max
    }

    /// The cache of decoded columns.
    pub(crate) fn columns(&self) -> &Arc<BlockCache> {
        &self.columns
    }

    /// Notes that `file` was opened, and closes the oldest files beyond the budget. Reads that are in progress continue.
    pub(crate) fn opened(&self, file: Weak<dyn OpenFile>, bytes: usize) {
        let mut closing = Vec::new();
        {
            let mut open = self.open.lock();
            open.files.push_back((file, bytes));
            open.bytes += bytes;
            while open.files.len() > 1
                && (open.files.len() > OPEN_SEGMENTS_MAX || open.bytes > self.directory_bytes_max)
            {
                if let Some((oldest, bytes)) = open.files.pop_front() {
                    open.bytes -= bytes;
                    closing.extend(oldest.upgrade());
                }
            }
        }
        // Outside of the lock, since dropping the last owner of an obsolete segment unlinks its file.
        closing.iter().for_each(|file| file.close());
    }
}
