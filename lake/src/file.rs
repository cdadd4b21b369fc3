//! Files of a table: Parquet.

use crate::bounds::{bounds_of, members_of_metas};
use crate::schema::check;
use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use bytes::Bytes;
use ebbtide::buckets::{EncodedSegment, Schema, adapt, times};
use ebbtide::{ArchiveFile, ArchiveNumber, SinkError};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::sync::Arc;

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 17;
/// Rows of a page, the least that is fetched of a column.
pub(crate) const PAGE_ROWS: usize = 1 << 12;

/// A number as text.
pub(crate) fn hex(number: &[u8]) -> String {
    number.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of the file of a commit.
pub(crate) fn name_of(number: ArchiveNumber) -> String {
    format!("{}.parquet", hex(&number))
}

/// Encodes rows, less fields that are objects without members.
pub(crate) fn encode(
    number: ArchiveNumber,
    schema: &Arc<Schema>,
    rows: &[RecordBatch],
) -> Result<ArchiveFile, SinkError> {
    check(schema)?;
    let schema = &Arc::new(schema.without_empty_objects());
    let compression = Compression::ZSTD(ZstdLevel::try_new(3)?);
    // Pages are left out by time and meta; bounds of all other columns would be most of a file's metadata.
    let mut properties = WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_compression(compression)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS / 4);
    for path in members_of_metas(schema).into_iter().chain([vec![schema.time.clone()]]) {
        properties = properties.set_column_statistics_enabled(ColumnPath::new(path), EnabledStatistics::Page);
    }
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema.arrow(), Some(properties.build()))?;
    // A page ends where a batch does, so pages of all columns have the same rows.
    let mut pages = BatchCoalescer::new(schema.arrow(), PAGE_ROWS);
    let (mut first, mut last, mut count) = (i64::MAX, i64::MIN, 0);
    for batch in rows {
        let batch = adapt(batch, schema)?;
        for time in times(&batch)? {
            (first, last) = (first.min(*time), last.max(*time));
        }
        count += batch.num_rows() as u64;
        pages.push_batch(batch)?;
        while let Some(page) = pages.next_completed_batch() {
            writer.write(&page)?;
        }
    }
    pages.finish_buffered_batch()?;
    while let Some(page) = pages.next_completed_batch() {
        writer.write(&page)?;
    }
    let bounds = bounds_of(&writer.close()?, schema)?;
    let bytes = Bytes::from(bytes);
    let checksum = crc32fast::hash(&bytes);
    let (name, schema) = (name_of(number), Arc::clone(schema));
    Ok(ArchiveFile { number, name, bytes, checksum, schema, rows: count, times: (first, last), bounds, segment: None })
}

/// The file of a commit that is a segment.
pub(crate) fn of_segment(
    number: ArchiveNumber,
    schema: &Arc<Schema>,
    segment: EncodedSegment,
) -> Result<ArchiveFile, SinkError> {
    let (bytes, meta) = (Bytes::from(segment.bytes), segment.meta);
    let bounds = bounds_of(&ParquetMetaDataReader::new().parse_and_finish(&bytes)?, schema)?;
    let checksum = crc32fast::hash(&bytes);
    let (name, schema, times) = (name_of(number), Arc::clone(schema), (meta.first, meta.last));
    Ok(ArchiveFile { number, name, bytes, checksum, schema, rows: meta.rows, times, bounds, segment: Some(meta) })
}
