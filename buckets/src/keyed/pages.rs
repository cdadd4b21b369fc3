//! The pages of a column in a row group: where each is, which rows it has, and its checksum.

use super::page::PageEncoding;
use super::{Column, GROUP_BYTES};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use std::ops::Range;

impl Column {
    /// The column's place in the file.
    pub(super) fn at(self) -> usize {
        self as usize
    }

    /// How the values of its pages are encoded.
    pub(super) fn encoding(self) -> PageEncoding {
        match self {
            Column::Key => PageEncoding::DeltaByteArray,
            Column::Written => PageEncoding::DeltaBinaryPacked,
            Column::Ttl | Column::Document => PageEncoding::Plain,
        }
    }

    /// All encodings in its pages, as the footer names them.
    pub(super) fn encodings(self) -> Vec<Encoding> {
        let values = match self.encoding() {
            PageEncoding::Plain => Encoding::PLAIN,
            PageEncoding::DeltaBinaryPacked => Encoding::DELTA_BINARY_PACKED,
            PageEncoding::DeltaByteArray => Encoding::DELTA_BYTE_ARRAY,
        };
        vec![Encoding::RLE, values]
    }

    /// Whether its pages are compressed. Differences of instants are as short as they get.
    pub(super) fn is_compressed(self) -> bool {
        self != Column::Written
    }

    pub(super) fn compression(self) -> Compression {
        if self.is_compressed() { Compression::ZSTD(ZstdLevel::default()) } else { Compression::UNCOMPRESSED }
    }
}

/// The pages of a column in a row group, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// Where the first begins in the file.
    pub(super) start: u64,
    /// Where each ends, from `start` on.
    pub(super) ends: Vec<u32>,
    /// The row of the group after the last of each.
    pub(super) row_ends: Vec<u32>,
    pub(super) checksums: Vec<u32>,
}

impl Pages {
    /// Adds a page at the end. The caller sees to it that a group has no more bytes than have offsets.
    pub(super) fn push(&mut self, bytes: &[u8], rows: u32) {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.ends.push(self.len().saturating_add(len));
        self.row_ends.push(self.rows().saturating_add(rows));
        self.checksums.push(crc32fast::hash(bytes));
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// All their bytes.
    pub(super) fn len(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// All their rows.
    pub(super) fn rows(&self) -> u32 {
        self.row_ends.last().copied().unwrap_or(0)
    }

    /// Where the last one ends in the file.
    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.len())
    }

    /// Where a page is in the file.
    pub(super) fn place(&self, page: usize) -> Range<u64> {
        let start = if page == 0 { 0 } else { self.ends[page - 1] };
        self.start + u64::from(start)..self.start + u64::from(self.ends[page])
    }

    /// The rows of a page, counted from the first of the group.
    pub(super) fn rows_of(&self, page: usize) -> Range<u32> {
        let start = if page == 0 { 0 } else { self.row_ends[page - 1] };
        start..self.row_ends[page]
    }

    /// The page of a row of the group.
    pub(super) fn page_of(&self, row: u32) -> usize {
        self.row_ends.partition_point(|end| *end <= row)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.ends.capacity() + self.row_ends.capacity() + self.checksums.capacity()) * size_of::<u32>()
    }
}

// A group is closed once it has `GROUP_BYTES` before compression, and one more row fits into the offsets.
const _: () = assert!(GROUP_BYTES + 2 * super::PAGE_BYTES_MAX < (u32::MAX / 2) as usize);
