//! A chunk: one inserted batch, and which of its rows belong to which bucket.

use crate::meta::{keys_of_column, keys_of_numbered};
use crate::schema::Schema;
use crate::window::{BucketId, Window};
use ahash::AHashMap;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType};
use ebbtide_ttl::{Precision, in_range};

/// A canonical batch and its rows by bucket.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The rows in the order of the insert.
    pub batch: RecordBatch,
    /// The buckets that the rows belong to, in order of first appearance.
    pub buckets: Vec<ChunkBucket>,
}

/// The rows of one bucket within a chunk.
#[derive(Debug, Clone)]
pub struct ChunkBucket {
    /// The bucket.
    pub id: BucketId,
    /// Its rows in the chunk's batch by time; equal times in the order of the insert.
    pub rows: Vec<u32>,
    /// The time of its first row, in units of the collection's precision.
    pub first: i64,
    /// The time of its last row.
    pub last: i64,
    /// How many of its rows lie outside of the times in which rules act. See [`ebbtide_ttl::in_range`].
    pub out_of_range: u32,
}

/// The times of a canonical batch in units of its precision; empty if the first column is no time column.
pub(crate) fn times(array: &dyn Array, precision: Precision) -> &[i64] {
    match precision {
        Precision::Ms => array.as_primitive_opt::<TimestampMillisecondType>().map(|a| a.values().as_ref()),
        Precision::Us => array.as_primitive_opt::<TimestampMicrosecondType>().map(|a| a.values().as_ref()),
        Precision::Ns => array.as_primitive_opt::<TimestampNanosecondType>().map(|a| a.values().as_ref()),
    }
    .or_else(|| array.as_primitive_opt::<Int64Type>().map(|a| a.values().as_ref()))
    .unwrap_or(&[])
}

impl Chunk {
    /// Groups the rows of a batch that is canonical under `schema` into buckets of `span_seconds`.
    #[must_use]
    pub fn build(batch: RecordBatch, schema: &Schema, span_seconds: i64) -> Chunk {
        Chunk::build_numbered(batch, schema, span_seconds, None)
    }

    /// Like [`Chunk::build`], with [`crate::Accepted::meta_numbers`] where they are known.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a batch holds fewer than 2^32 rows")]
    pub fn build_numbered(
        batch: RecordBatch,
        schema: &Schema,
        span_seconds: i64,
        meta_numbers: Option<&[u32]>,
    ) -> Chunk {
        let precision = schema.precision;
        let span = span_seconds.saturating_mul(precision.per_second());
        let times = times(batch.column(0), precision);
        let meta = schema.meta.as_ref().and_then(|name| batch.column_by_name(name));
        let (keys, ids) = match (meta, meta_numbers) {
            (Some(meta), Some(numbers)) => keys_of_numbered(meta, numbers),
            _ => keys_of_column(meta, times.len()),
        };

        let mut buckets: Vec<ChunkBucket> = Vec::new();
        let mut sorted: Vec<bool> = Vec::new();
        let mut places: AHashMap<(u32, i64), usize> = AHashMap::new();
        let mut at = usize::MAX;
        let mut current = (u32::MAX, Window { start: 0, end: 0 });
        for (row, (&t, &id)) in times.iter().zip(&ids).enumerate() {
            // Rows usually come in runs of one bucket; division and look-up are only needed where a run begins.
            if at == usize::MAX || current.0 != id || t < current.1.start || t >= current.1.end {
                let window = Window::of(t, span);
                current = (id, window);
                at = *places.entry((id, window.start)).or_insert_with(|| {
                    let id = BucketId { meta: keys[id as usize].clone(), window };
                    buckets.push(ChunkBucket { id, rows: Vec::new(), first: t, last: t, out_of_range: 0 });
                    sorted.push(true);
                    buckets.len() - 1
                });
            }
            let bucket = &mut buckets[at];
            sorted[at] &= bucket.rows.is_empty() || t >= bucket.last;
            bucket.first = bucket.first.min(t);
            bucket.last = bucket.last.max(t);
            bucket.out_of_range += u32::from(!in_range(t, precision));
            bucket.rows.push(row as u32);
        }
        for (bucket, sorted) in buckets.iter_mut().zip(sorted) {
            if !sorted {
                bucket.rows.sort_by_key(|row| times[*row as usize]);
            }
        }
        Chunk { batch, buckets }
    }
}

#[cfg(test)]
mod tests;
