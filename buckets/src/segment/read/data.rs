//! The data of a segment, checked block by block as it is read.

use super::Inner;
use crate::counts::to_usize;
use crate::segment::{BLOCK_BYTES, ReadAt, SegmentError};
use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

impl Inner {
    /// Data bytes; every block that is read is compared with its checksum.
    pub(super) fn read(&self, start: u64, length: usize) -> Result<Bytes, SegmentError> {
        self.read_of(&*self.file, start, length)
    }

    /// The same of a file that may have some of the bytes in memory.
    fn read_of(&self, file: &dyn ReadAt, start: u64, length: usize) -> Result<Bytes, SegmentError> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let end = start.checked_add(length as u64).filter(|end| *end <= self.data_end);
        let end =
            end.ok_or_else(|| SegmentError::new(&self.name, start, format!("{length} bytes reach beyond the data")))?;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let first = start / BLOCK;
        let blocks_end = end.div_ceil(BLOCK).saturating_mul(BLOCK).min(self.data_end);
        let size = to_usize(blocks_end - first * BLOCK);
        let bytes =
            file.read_at(first * BLOCK, size).map_err(|e| SegmentError::unread(&self.name, first * BLOCK, &e))?;
        if bytes.len() != size {
            return Err(SegmentError::new(
                &self.name,
                first * BLOCK,
                format!("{size} bytes expected, {} read", bytes.len()),
            ));
        }
        for (block, chunk) in (first..).zip(bytes.chunks(BLOCK_BYTES)) {
            let expected = usize::try_from(block).ok().and_then(|b| self.directory.checksums.get(b)).copied();
            let found = crc32fast::hash(chunk);
            if expected != Some(found) {
                let expected = expected.unwrap_or(0);
                let message = format!("data: checksum expected={expected:#010x} found={found:#010x}");
                return Err(SegmentError::new(&self.name, block * BLOCK, message));
            }
        }
        let skip = to_usize(start - first * BLOCK);
        Ok(bytes.slice(skip..skip + length))
    }

    /// The file with what is needed of some columns for some rows in memory, if it is remote: their pages, and the dictionaries
    /// before them.
    pub(super) fn prepare(&self, roots: &[usize], rows: &[Range<u64>]) -> Result<Arc<dyn ReadAt>, SegmentError> {
        if !self.file.is_remote() {
            return Ok(Arc::clone(&self.file));
        }
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let positive = |n: i64| u64::try_from(n).unwrap_or(0);
        let (metadata, columns) = (self.metadata.metadata(), self.metadata.parquet_schema());
        let Some(offsets) = metadata.offset_index() else { return Ok(Arc::clone(&self.file)) };
        let mut wanted: Vec<Range<u64>> = Vec::new();
        let mut group_start = 0;
        for (info, offsets) in metadata.row_groups().iter().zip(offsets) {
            let group_end = group_start + positive(info.num_rows());
            let first = rows.partition_point(|range| range.end <= group_start);
            let rows = || rows[first..].iter().take_while(|range| range.start < group_end);
            if rows().next().is_some() {
                for (leaf, (chunk, pages)) in info.columns().iter().zip(offsets).enumerate() {
                    if !roots.contains(&columns.get_column_root_idx(leaf)) {
                        continue;
                    }
                    let starts =
                        |page: usize| pages.page_locations().get(page).map(|page| positive(page.first_row_index));
                    let has = |page: usize| {
                        let begin = group_start + starts(page).unwrap_or(0);
                        let end = starts(page + 1).map_or(group_end, |next| group_start + next);
                        rows().any(|range| range.start < end && range.end > begin)
                    };
                    let (chunk_start, _) = chunk.byte_range();
                    let data_start = pages.page_locations().first().map_or(chunk_start, |page| positive(page.offset));
                    wanted.push(chunk_start..data_start);
                    for (_, page) in pages.page_locations().iter().enumerate().filter(|(number, _)| has(*number)) {
                        let start = positive(page.offset);
                        wanted.push(start..start + u64::try_from(page.compressed_page_size).unwrap_or(0));
                    }
                }
            }
            group_start = group_end;
        }
        wanted.retain(|range| range.start < range.end && range.end <= self.data_end);
        wanted.sort_unstable_by_key(|range| range.start);
        let mut blocks: Vec<Range<u64>> = Vec::with_capacity(wanted.len());
        for range in wanted {
            let range = range.start / BLOCK * BLOCK..range.end.div_ceil(BLOCK).saturating_mul(BLOCK).min(self.data_end);
            match blocks.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => blocks.push(range),
            }
        }
        let prepared = self.file.prepare(&blocks);
        let prepared =
            prepared.map_err(|e| SegmentError::unread(&self.name, blocks.first().map_or(0, |b| b.start), &e))?;
        Ok(prepared.unwrap_or_else(|| Arc::clone(&self.file)))
    }
}

/// The data of a file for the Parquet reader.
pub(super) struct Checked {
    pub(super) inner: Arc<Inner>,
    pub(super) file: Arc<dyn ReadAt>,
    /// The first error, kept because the Parquet reader turns it into a text without an offset.
    pub(super) failed: Arc<OnceLock<SegmentError>>,
}

impl Length for Checked {
    fn len(&self) -> u64 {
        self.inner.data_end
    }
}

impl ChunkReader for Checked {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        // Pages are found through the offset index and read by get_bytes. A stream is the rest of the data.
        let length = to_usize(self.inner.data_end.saturating_sub(start));
        Ok(self.get_bytes(start, length)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.inner.read_of(&*self.file, start, length).map_err(|e| {
            let error = ParquetError::General(e.to_string());
            self.failed.get_or_init(|| e);
            error
        })
    }
}
