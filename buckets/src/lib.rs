//! Columnar buckets: how measurements become columns, columns become buckets, and buckets become segment files.
//!
//! The crate turns documents and Arrow batches into one canonical form under an evolving [`Schema`], groups rows into
//! buckets by meta and window ([`Chunk`]), and seals them into Parquet files with a bucket directory inside
//! ([`Sealer`], [`SegmentReader`]).
//!
//! Invariants: nothing here opens a file or reads a clock; bytes are reached through [`ReadAt`] only. Bytes from a disk
//! are never trusted: they decode to an error or to what was written.
//!
//! ```
//! use ebbtide_buckets::{Chunk, FileTypes, Schema, SealRun, Sealer, SegmentReader, batch_from_documents};
//! use ebbtide_ttl::{Precision, Timestamp, Value};
//!
//! let doc = Value::Object(vec![
//!     ("time".into(), Value::Date(Timestamp::from_millis(1_000))),
//!     ("sensor".into(), Value::from("s1")),
//!     ("temp".into(), Value::Double(21.5)),
//! ]);
//! let empty = Schema::new("time", Some("sensor".to_owned()), Precision::Ms);
//! let accepted = batch_from_documents(&[doc], &empty)?;
//! let chunk = Chunk::build(accepted.batch, &accepted.schema, 3_600);
//! let run = |bucket: &ebbtide_buckets::ChunkBucket| SealRun {
//!     id: bucket.id.clone(),
//!     rows: bucket.rows.iter().map(|row| (0, *row)).collect(),
//! };
//! let runs: Vec<SealRun> = chunk.buckets.iter().map(run).collect();
//! let sealer = Sealer::new(&accepted.schema, &FileTypes::default(), &[chunk.batch.clone()], &|| true)?;
//! let segment = sealer.encode(&runs, &|| true)?;
//! let reader = SegmentReader::open(std::sync::Arc::new(bytes::Bytes::from(segment.bytes)), "example")?;
//! assert_eq!(reader.directory().first(0), 1_000);
//! let batch = reader.read(&["temp".to_owned()], &accepted.schema, &[0..1], 1_024)?.next();
//! assert_eq!(batch.map(|b| b.map(|b| b.num_rows())), Some(Ok(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adapt;
mod arrow_input;
mod bins;
mod build;
mod chunk;
mod columns;
mod counts;
mod documents;
mod keyed;
mod limits;
mod meta;
mod packed;
mod parallel;
mod schema;
mod segment;
mod time_units;
mod window;

pub use adapt::{adapt, adapt_to};
pub use arrow_input::batch_from_arrow;
pub use bins::{Bins, RESULT_SUFFIXES, StoredField, result_schema, results_in_order, stored_columns};
pub use chunk::{Chunk, ChunkBucket};
pub use columns::{
    PATH_SEPARATOR, batch_bytes, compact_views, ints_at, schema_of_batch, time_values, times, widened_fields,
};
pub use counts::{to_number, to_usize};
pub use documents::{Accepted, BatchError, Cell, Measurement, batch_from_documents, batch_from_measurements};
pub use keyed::{
    KeyedBlock, KeyedColumns, KeyedMeta, KeyedReader, KeyedRow, KeyedScan, KeyedWriter, Lives, StoredDocument,
};
pub use limits::{BATCH_BYTES_MAX, DOCUMENT_BYTES_MAX, FIELD_NAME_BYTES_MAX, FIELDS_MAX, META_BYTES_MAX, NESTING_MAX};
pub use meta::{MetaKey, column_of_keys, keys_of_column, value_at};
pub use packed::{pack, unpack};
pub use parallel::{cores, on_threads, parallel};
pub use schema::{FieldType, Schema};
pub use segment::{
    Accumulator, BlockCache, BoundsCheck, Directory, DoubleAccumulator, EncodedSegment, FieldStats, FileType,
    FileTypes, FoundDocument, IntAccumulator, Numbers, ReadAt, Run, SealRun, Sealer, SegmentBatches, SegmentError,
    SegmentMeta, SegmentReader, StoredBatches, TextCondition, TextPart, accumulate_doubles, accumulate_ints,
    arrow_metadata, double_at,
};
pub use time_units::{timestamp_type, timestamps, unit_nanos};
pub use window::{BucketId, Window};

#[cfg(test)]
mod testing;
