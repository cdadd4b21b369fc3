//! Segments: sealed buckets in one immutable Parquet file, with the bucket directory inside it.
//!
//! ```text
//! "PAR1" | row groups | n-gram filters | directory | page indexes | footer | footer length | "PAR1"
//! ```
//!
//! Every byte is under a checksum. The directory holds the CRC-32 of every block of 4096 bytes before it; the footer key
//! `ebbtide.tail` holds the CRC-32 of everything from the directory on (itself read as zeros). So a damaged byte is found
//! before anything is decoded, and no decoder ever sees bytes that were not written by [`Sealer::encode`].

mod accumulator;
mod block;
mod bounds;
mod cache;
pub(crate) mod decimals;
mod directory;
mod encode;
mod file_types;
mod footer_checks;
mod ngrams;
pub(crate) mod physical;
mod postings;
mod read;
mod stats;
pub(crate) mod varint;

pub use accumulator::{
    Accumulator, DoubleAccumulator, IntAccumulator, Run, accumulate_doubles, accumulate_ints, double_at,
};
pub use bounds::BoundsCheck;
pub use cache::{BlockCache, FoundDocument};
pub(crate) use decimals::{Decimals, decimal_to_double, nearest, power};
pub use directory::Directory;
pub use encode::Sealer;
pub(crate) use encode::{failed, seal_file};
pub use file_types::{FileType, FileTypes};
pub(crate) use footer_checks::check as check_footer;
pub use ngrams::{TextCondition, TextPart};
pub use read::{SegmentBatches, SegmentReader, StoredBatches, arrow_metadata};
pub(crate) use read::{Tail, asserted, directory_len, read_tail};
pub use stats::{FieldStats, Numbers};

use crate::window::BucketId;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The format of the directory and of the checksums.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Bytes under one checksum: a page of the file system, so that reading whole blocks reads nothing more.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// `offset,length,crc32,version` of the directory.
pub(crate) const KEY_DIRECTORY: &str = "ebbtide.directory";
/// The logical schema as JSON.
pub(crate) const KEY_SCHEMA: &str = "ebbtide.schema";
/// Where n-gram filters are, if there are any.
pub(crate) const KEY_FILTERS: &str = "ebbtide.filters";
/// Where the tail begins, and its checksum.
pub(crate) const KEY_TAIL: &str = "ebbtide.tail";
/// The text before the two numbers of [`KEY_TAIL`].
pub(crate) const TAIL_MARK: &[u8] = b"ebbtide-tail:start=";

/// Random access to the bytes of a file.
pub trait ReadAt: Send + Sync + fmt::Debug {
    /// Number of bytes.
    fn len(&self) -> u64;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Exactly `len` bytes from `offset` on.
    ///
    /// # Errors
    /// If they cannot be read, or if the file ends earlier.
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// The same file with these bytes, whose ranges are ascending, in memory: a file on another machine fetches them at once. `None`
    /// if reading them one after the other is as fast.
    ///
    /// # Errors
    /// As for [`ReadAt::read_at`].
    fn prepare(&self, ranges: &[Range<u64>]) -> io::Result<Option<Arc<dyn ReadAt>>> {
        let _ = ranges;
        Ok(None)
    }

    /// Whether [`ReadAt::prepare`] may return a file.
    fn is_remote(&self) -> bool {
        false
    }
}

impl ReadAt for Bytes {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let range = usize::try_from(offset).ok().and_then(|start| Some(start..start.checked_add(len)?));
        match range {
            Some(range) if range.end <= <[u8]>::len(self) => Ok(self.slice(range)),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    }
}

/// A segment that is damaged or cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentError {
    /// The segment's name.
    pub name: String,
    /// The offset in the file.
    pub offset: u64,
    /// What was expected and what was found.
    pub message: String,
    /// The file system's error, if the read itself failed; then the file is not known to be damaged.
    pub refused: Option<io::ErrorKind>,
}

impl SegmentError {
    pub(crate) fn new(name: &str, offset: u64, message: impl Into<String>) -> SegmentError {
        SegmentError { name: name.to_owned(), offset, message: message.into(), refused: None }
    }

    /// An error for a failed read: an early end means damage, any other I/O error says nothing about the data.
    pub(crate) fn unread(name: &str, offset: u64, error: &io::Error) -> SegmentError {
        let refused = Some(error.kind()).filter(|kind| *kind != io::ErrorKind::UnexpectedEof);
        SegmentError { refused, ..SegmentError::new(name, offset, format!("cannot be read: {error}")) }
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}: offset {}: {}", self.name, self.offset, self.message)
    }
}

impl std::error::Error for SegmentError {}

/// The rows of one bucket that go into a segment: at least one. A segment gets its buckets in order of meta and window, each
/// at most once.
#[derive(Debug, Clone)]
pub struct SealRun {
    /// The bucket.
    pub id: BucketId,
    /// Its rows in time order, each by the piece that holds it and its place there.
    pub rows: Vec<(u32, u32)>,
}

/// A segment ready to be written.
#[derive(Debug, Clone)]
pub struct EncodedSegment {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// What the manifest records about it.
    pub meta: SegmentMeta,
}

/// The summary of a segment, known without opening it. Times are in units of the collection's precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentMeta {
    /// Number of measurements.
    pub rows: u64,
    /// Number of buckets.
    pub buckets: u32,
    /// Number of distinct metas.
    pub metas: u32,
    /// The file's size.
    pub bytes: u64,
    /// The earliest time.
    pub first: i64,
    /// The latest time.
    pub last: i64,
    /// The start of the earliest window.
    pub window_start: i64,
    /// The end of the latest window.
    pub window_end: i64,
    /// Number of measurements outside of the times in which rules act.
    pub out_of_range: u64,
    /// The checksum of the file's tail. The tail holds the checksums of the data, so no other file has the same.
    pub checksum: u32,
}

#[cfg(test)]
pub(crate) mod tests;
