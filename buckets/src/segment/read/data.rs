//! The data of a segment, checked block by block as it is read.

use super::Inner;
use crate::counts::to_usize;
use crate::segment::{BLOCK_BYTES, SegmentError};
use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::sync::{Arc, OnceLock};

impl Inner {
    /// Data bytes; every block that is read is compared with its checksum.
    pub(super) fn read(&self, start: u64, length: usize) -> Result<Bytes, SegmentError> {
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
            self.file.read_at(first * BLOCK, size).map_err(|e| SegmentError::unread(&self.name, first * BLOCK, &e))?;
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
}

/// The data of a file for the Parquet reader.
pub(super) struct Checked {
    pub(super) inner: Arc<Inner>,
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
        self.inner.read(start, length).map_err(|e| {
            let error = ParquetError::General(e.to_string());
            self.failed.get_or_init(|| e);
            error
        })
    }
}
