//! Files of a table: Parquet, read in the ranges that are needed.

use crate::store::Store;
use arrow::array::RecordBatch;
use bytes::Bytes;
use ebbtide::buckets::{Schema, adapt, times};
use ebbtide::{ArchiveFile, ArchiveNumber, ArchiveRead, ArchivedBatches, ArchivedFile, SinkError};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;
use std::io::{Cursor, Read};
use std::sync::Arc;

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 17;
/// Bytes that a reader without a known end fetches at a time.
const AHEAD: u64 = 1 << 16;

/// A number as text.
pub(crate) fn hex(number: &[u8]) -> String {
    number.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of the file of a commit.
pub(crate) fn name_of(number: ArchiveNumber) -> String {
    format!("{}.parquet", hex(&number))
}

/// Encodes rows.
pub(crate) fn encode(
    number: ArchiveNumber,
    schema: &Arc<Schema>,
    rows: &[RecordBatch],
) -> Result<ArchiveFile, SinkError> {
    let compression = Compression::ZSTD(ZstdLevel::try_new(3)?);
    let properties =
        WriterProperties::builder().set_compression(compression).set_max_row_group_row_count(Some(GROUP_ROWS));
    let mut writer = ArrowWriter::try_new(Vec::new(), schema.arrow(), Some(properties.build()))?;
    let (mut first, mut last, mut count) = (i64::MAX, i64::MIN, 0);
    for batch in rows {
        let batch = adapt(batch, schema)?;
        for time in times(&batch)? {
            (first, last) = (first.min(*time), last.max(*time));
        }
        count += batch.num_rows() as u64;
        writer.write(&batch)?;
    }
    let bytes = Bytes::from(writer.into_inner()?);
    let checksum = crc32fast::hash(&bytes);
    let (name, schema) = (name_of(number), Arc::clone(schema));
    Ok(ArchiveFile { number, name, bytes, checksum, schema, rows: count, times: (first, last) })
}

/// Reads a file.
pub(crate) fn read(
    store: Arc<dyn Store>,
    file: &ArchivedFile,
    read: &ArchiveRead,
) -> Result<ArchivedBatches, SinkError> {
    let object = Remote { store, name: file.name.clone(), bytes: file.bytes };
    let builder = ParquetRecordBatchReaderBuilder::try_new(object)?;
    let wanted = read.schema.arrow();
    let fields = builder.schema().fields().iter().enumerate();
    let roots: Vec<usize> =
        fields.filter(|(_, field)| wanted.index_of(field.name()).is_ok()).map(|(index, _)| index).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let leaves = builder.parquet_schema().columns();
    let time = leaves.iter().position(|leaf| leaf.path().parts() == [read.schema.time.clone()]);
    let groups = builder.metadata().row_groups().iter().enumerate();
    let groups = groups.filter(|(_, group)| may_have(group, time, read.times)).map(|(index, _)| index).collect();
    let batches = builder.with_projection(mask).with_row_groups(groups).build()?;
    Ok(Box::new(batches.map(|batch| batch.map_err(SinkError::from))))
}

/// Whether a row group may have times within bounds.
fn may_have(group: &RowGroupMetaData, time: Option<usize>, (first, last): (i64, i64)) -> bool {
    let statistics = time.and_then(|time| group.column(time).statistics());
    let Some(Statistics::Int64(times)) = statistics else { return true };
    let (Some(min), Some(max)) = (times.min_opt(), times.max_opt()) else { return true };
    *max >= first && *min <= last
}

/// An object that is read in ranges.
struct Remote {
    store: Arc<dyn Store>,
    name: String,
    bytes: u64,
}

impl Length for Remote {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Remote {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let (store, name, bytes) = (Arc::clone(&self.store), self.name.clone(), self.bytes);
        Ok(Box::new(Ahead { object: Remote { store, name, bytes }, at: start, fetched: Cursor::default() }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let fetched = self.store.get_range(&self.name, start, length as u64);
        fetched.map_err(|error| ParquetError::External(Box::new(error)))
    }
}

/// Reads an object from a place on.
struct Ahead {
    object: Remote,
    at: u64,
    fetched: Cursor<Bytes>,
}

impl Read for Ahead {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.fetched.read(into)?;
        let left = self.object.bytes.saturating_sub(self.at);
        if read > 0 || into.is_empty() || left == 0 {
            return Ok(read);
        }
        let length = AHEAD.min(left);
        let fetched = self.object.store.get_range(&self.object.name, self.at, length);
        self.fetched = Cursor::new(fetched.map_err(std::io::Error::other)?);
        self.at += length;
        self.fetched.read(into)
    }
}
