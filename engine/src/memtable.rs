//! Open buckets: the rows of a collection that are not sealed yet.

use crate::batch_id::{BatchId, IdTrail, LastBatch};
use crate::error::{Error, Result};
use ebbtide_buckets::{Chunk, Schema, adapt, batch_bytes};
use std::sync::Arc;

/// Chunks below this many rows are merged as they pile up, so that many small inserts do not make many small chunks.
const MERGE_ROWS_MAX: usize = 1 << 14;
/// Number of chunks of about one size that are merged at a time. A row is then moved once for each power of eight in the size of
/// its chunk.
const MERGE_CHUNKS: usize = 8;
/// Chunks are not merged beyond this many bytes, since offsets of lists and binary values have 31 bits.
const MERGE_BYTES_MAX: usize = 64 << 20;
/// Approximate bytes of a bucket in a chunk, in addition to its rows: key, window, bounds, and a list of rows.
const BUCKET_BYTES: usize = 160;

/// Open buckets of one collection. Copies are cheap and independent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memtable {
    /// Chunks that are being sealed: visible, but no longer added to.
    frozen: Vec<Arc<Chunk>>,
    active: Vec<Arc<Chunk>>,
    rows: u64,
    bytes: usize,
    /// The first insert that is only in the memtable.
    oldest_seq: Option<u64>,
    frozen_rows: u64,
    frozen_bytes: usize,
    frozen_ids: IdTrail,
    active_ids: IdTrail,
}

impl Memtable {
    /// All chunks, in order of arrival.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.frozen.iter().chain(&self.active)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.frozen_bytes
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows + self.frozen_rows
    }

    /// The first insert that is in no segment.
    pub(crate) fn oldest_seq(&self) -> Option<u64> {
        self.oldest_seq
    }

    /// Adds the rows of insert `seq`, and merges chunks of similar size.
    pub(crate) fn push(
        &mut self,
        chunk: Arc<Chunk>,
        (seq, id): (u64, Option<BatchId>),
        (schema, span_seconds): (&Schema, i64),
    ) -> Result<()> {
        self.oldest_seq.get_or_insert(seq);
        self.active_ids.add(id);
        self.rows += chunk.batch.num_rows() as u64;
        self.bytes += batch_bytes(&chunk.batch) + index_bytes(&chunk);
        self.active.push(chunk);
        while let Some(from) = self.to_merge() {
            let parts = &self.active[from..];
            let merged = merge(&parts.iter().collect::<Vec<_>>(), schema, span_seconds)?;
            let parts: usize = parts.iter().map(|part| index_bytes(part)).sum();
            self.bytes = (self.bytes + index_bytes(&merged)).saturating_sub(parts);
            self.active.truncate(from);
            self.active.push(Arc::new(merged));
        }
        Ok(())
    }

    /// The index from which the newest chunks should be merged: if [`MERGE_CHUNKS`] of them are of no larger order of magnitude
    /// than the last one, or half that number if no more fit into one chunk.
    fn to_merge(&self) -> Option<usize> {
        let size = |chunk: &Chunk| chunk.batch.num_rows().max(1).ilog(MERGE_CHUNKS);
        let last = size(self.active.last()?);
        let (mut rows, mut bytes) = (0, 0);
        let mut from = self.active.len();
        let mut is_full = false;
        for chunk in self.active.iter().rev().take_while(|chunk| size(chunk) <= last) {
            rows += chunk.batch.num_rows();
            bytes += batch_bytes(&chunk.batch);
            is_full = rows > MERGE_ROWS_MAX || bytes > MERGE_BYTES_MAX;
            if is_full {
                break;
            }
            from -= 1;
        }
        let least = if is_full { MERGE_CHUNKS / 2 } else { MERGE_CHUNKS };
        (self.active.len() - from >= least).then_some(from)
    }

    /// Regroups all rows into windows of another span.
    pub(crate) fn rebuild(&mut self, schema: &Schema, span_seconds: i64) -> Result<()> {
        for chunk in self.frozen.iter_mut().chain(&mut self.active) {
            *chunk = Arc::new(merge(&[chunk], schema, span_seconds)?);
        }
        Ok(())
    }

    /// Freezes the present chunks and returns them, to be sealed.
    pub(crate) fn freeze(&mut self) -> Vec<Arc<Chunk>> {
        self.frozen.append(&mut self.active);
        self.frozen_ids.append(std::mem::take(&mut self.active_ids));
        self.frozen_rows += std::mem::take(&mut self.rows);
        self.frozen_bytes += std::mem::take(&mut self.bytes);
        self.frozen.clone()
    }

    /// The last insert with an id once the frozen chunks are sealed; `sealed` is the one before them.
    pub(crate) fn last_frozen_batch(&self, sealed: Option<LastBatch>) -> Option<LastBatch> {
        self.frozen_ids.after(sealed)
    }

    /// The last insert with an id; `sealed` is the one before the open buckets.
    pub(crate) fn last_batch(&self, sealed: Option<LastBatch>) -> Option<LastBatch> {
        self.active_ids.after(self.frozen_ids.after(sealed))
    }

    /// Drops the frozen chunks, which are sealed. `next_seq` is the first insert that is not.
    pub(crate) fn sealed(&mut self, next_seq: u64) {
        self.frozen.clear();
        self.frozen_rows = 0;
        self.frozen_bytes = 0;
        self.frozen_ids = IdTrail::default();
        self.oldest_seq = (!self.active.is_empty()).then_some(next_seq);
    }
}

/// Bytes of a chunk in addition to its columns. If each row has its own meta, this is most of the chunk.
fn index_bytes(chunk: &Chunk) -> usize {
    let metas: usize = chunk.buckets.iter().map(|b| b.id.meta.as_bytes().len()).sum();
    chunk.buckets.len() * BUCKET_BYTES + metas + chunk.batch.num_rows() * size_of::<u32>()
}

/// Merges chunks into one. String views are copied, so that a merged chunk does not keep its parts alive.
fn merge(chunks: &[&Arc<Chunk>], schema: &Schema, span_seconds: i64) -> Result<Chunk> {
    let batches = chunks.iter().map(|c| adapt(&c.batch, schema)).collect::<std::result::Result<Vec<_>, _>>()?;
    let batch = arrow::compute::concat_batches(&schema.arrow(), &batches).map_err(Error::from)?;
    Ok(Chunk::build(batch, schema, span_seconds))
}

/// Average bytes of a row of a chunk in memory. The sum over all rows is about [`Memtable::bytes`].
pub(crate) fn row_bytes(chunk: &Chunk) -> u64 {
    let bytes = batch_bytes(&chunk.batch) + index_bytes(chunk);
    (bytes / chunk.batch.num_rows().max(1)) as u64
}

#[cfg(test)]
mod tests;
