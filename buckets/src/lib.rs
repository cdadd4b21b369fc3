//! Columnar buckets: how measurements become columns, columns become buckets, and buckets become segment files.
//!
//! The crate turns documents and Arrow batches into one canonical form under an evolving [`Schema`], groups rows into
//! buckets by meta and window ([`Chunk`]), and seals them into Parquet files with a bucket directory inside
//! ([`encode`], [`SegmentReader`]).
//!
//! Invariants: nothing here opens a file or reads a clock; bytes are reached through [`ReadAt`] only. Bytes from a disk
//! are never trusted: they decode to an error or to what was written.

mod adapt;
mod arrow_input;
mod build;
mod chunk;
mod columns;
mod documents;
mod meta;
mod schema;
mod segment;
mod window;

pub use adapt::adapt;
pub use arrow_input::batch_from_arrow;
pub use chunk::{Chunk, ChunkBucket};
pub use columns::{compact_views, ints_at, schema_of_batch, time_values, times, widened_fields};
pub use documents::{Accepted, BatchError, batch_from_documents};
pub use meta::{MetaKey, column_of_keys, keys_of_column, value_at};
pub use schema::{FieldType, Schema};
pub use segment::{
    BoundsCheck, Directory, EncodedSegment, FieldStats, Numbers, ReadAt, SealRun, SegmentBatches, SegmentError,
    SegmentInput, SegmentMeta, SegmentReader, encode,
};
pub use window::{BucketId, Window};

#[cfg(test)]
mod testing;
