//! Chooses the encoding of a column: a sample is written in each that may suit, and the smallest one is used.

use super::{Columns, byte_aligned, failed};
use crate::parallel::parallel;
use crate::schema::{FieldType, Schema};
use crate::segment::SegmentError;
use arrow::array::{Array, ArrayRef, RecordBatch};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, Encoding, Type, ZstdLevel};
use parquet::file::metadata::{ParquetMetaData, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterPropertiesPtr};
use parquet::schema::types::{ColumnDescPtr, ColumnPath, SchemaDescriptor};
use std::sync::Arc;

/// Rows of a row group. The size of the file hardly depends on it, but the cost of its footer does.
pub(super) const ROW_GROUP_ROWS: usize = 262_144;
/// Rows of a page: what a read of few rows has to decode.
const PAGE_ROWS: usize = 8_192;
const SAMPLE_ROWS: usize = 8_192;
/// The sample is taken in pieces of consecutive rows, so that differences from row to row are the true ones.
const SAMPLE_BLOCKS: usize = 8;

/// The bytes of doubles are stored one after the other instead of apart only if that takes more than this share: they are read
/// faster.
const PLAIN_DOUBLES_MAX: f64 = 1.03;

/// A leaf column and how it is encoded.
#[derive(Clone)]
pub(super) struct Choice {
    path: ColumnPath,
    encoding: Option<Encoding>,
    /// Whether its differences are packed in whole bytes.
    pub(super) byte_aligned: bool,
}

/// Fewer bytes of rows are not compressed: the file takes a block of the disk anyway, and each column would set up a compressor,
/// and one again whenever it is read.
const COMPRESSED_BYTES_MIN: usize = 4096;

/// How a segment is written.
pub(super) struct Plan {
    /// How the bytes of pages are compressed.
    pub(super) compression: Compression,
    /// For every leaf of each column.
    pub(super) choices: Vec<Vec<Choice>>,
}

fn compression(sample: &RecordBatch) -> Compression {
    let bytes_of = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(COMPRESSED_BYTES_MIN);
    match sample.columns().iter().map(bytes_of).sum::<usize>() {
        ..COMPRESSED_BYTES_MIN => Compression::UNCOMPRESSED,
        _ => Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()),
    }
}

fn base(compression: Compression) -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(1024)
}

/// The properties of the file.
pub(super) fn properties(schema: &Schema, plan: &Plan) -> WriterProperties {
    let sorted_by = |column_idx| SortingColumn { column_idx, descending: false, nulls_first: true };
    let sorting = match (&schema.meta, &schema.meta_type) {
        (Some(_), Some(FieldType::Object(_) | FieldType::List(_))) => None,
        (Some(_), Some(_)) => Some(vec![sorted_by(1), sorted_by(0)]),
        _ => Some(vec![sorted_by(0)]),
    };
    let builder = base(plan.compression)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_sorting_columns(sorting)
        .set_created_by(concat!("ebbtide ", env!("CARGO_PKG_VERSION")).to_owned());
    plan.choices.iter().flatten().fold(builder, with_choice).build()
}

/// The properties under which [`byte_aligned`] gets its pages.
pub(super) fn byte_aligned_properties(statistics: EnabledStatistics) -> WriterPropertiesPtr {
    let builder = base(Compression::UNCOMPRESSED).set_dictionary_enabled(false);
    Arc::new(builder.set_encoding(Encoding::PLAIN).set_statistics_enabled(statistics).build())
}

fn with_choice(builder: WriterPropertiesBuilder, choice: &Choice) -> WriterPropertiesBuilder {
    match choice.encoding {
        Some(encoding) => builder
            .set_column_dictionary_enabled(choice.path.clone(), false)
            .set_column_encoding(choice.path.clone(), encoding),
        None => builder,
    }
}

/// Chooses for every leaf column, column by column on all cores.
#[expect(clippy::cast_precision_loss, reason = "estimates")]
pub(super) fn choose(columns: &Columns, rows: &[(u32, u32)], help: &dyn Fn() -> bool) -> Result<Plan, SegmentError> {
    let sample = columns.gather(&sample_rows(rows))?;
    let compression = compression(&sample);
    let scale = (rows.len().min(ROW_GROUP_ROWS) as f64 / sample.num_rows().max(1) as f64).max(1.0);
    let choices = parallel(rows.len() as u64, sample.num_columns(), help, |root| {
        let column = sample.project(&[root]).map_err(failed)?;
        // No two times of a series are the same: nothing beats their differences.
        if root == 0 { times_apart(&column) } else { of_column(&column, compression, scale) }
    })?;
    Ok(Plan { compression, choices })
}

fn leaves(column: &RecordBatch) -> Result<SchemaDescriptor, SegmentError> {
    ArrowSchemaConverter::new().convert(column.schema_ref()).map_err(failed)
}

fn times_apart(column: &RecordBatch) -> Result<Vec<Choice>, SegmentError> {
    let encoding = Some(Encoding::DELTA_BINARY_PACKED);
    let choice = |leaf: &ColumnDescPtr| Choice { path: leaf.path().clone(), encoding, byte_aligned: false };
    Ok(leaves(column)?.columns().iter().map(choice).collect())
}

/// Chooses for the leaves of one column. Texts and bytes keep the dictionary, which falls back by itself where it does not
/// pay.
fn of_column(column: &RecordBatch, compression: Compression, scale: f64) -> Result<Vec<Choice>, SegmentError> {
    let leaves = leaves(column)?;
    let choice = |leaf: &ColumnDescPtr| Choice {
        path: leaf.path().clone(),
        encoding: match leaf.physical_type() {
            Type::INT32 | Type::INT64 => Some(Encoding::DELTA_BINARY_PACKED),
            Type::DOUBLE => Some(Encoding::PLAIN),
            _ => None,
        },
        byte_aligned: false,
    };
    let mut choices: Vec<Choice> = leaves.columns().iter().map(choice).collect();
    if choices.iter().all(|choice| choice.encoding.is_none()) {
        return Ok(choices);
    }
    let with_dictionary = trial(column, compression, &[])?;
    let without = trial(column, compression, &choices)?;
    let apart = bytes_apart(column, &choices, compression)?;
    // How a dictionary grows from the half to the whole matters only where there is more than the sample.
    let half = column.slice(0, column.num_rows().div_ceil(2));
    let half = (scale > 1.0).then(|| trial(&half, compression, &[])).transpose()?;
    for (at, choice) in choices.iter_mut().enumerate() {
        let (data, dictionary) = sizes(&with_dictionary, at);
        let half_dictionary = half.as_ref().map_or(dictionary, |half| sizes(half, at).1);
        // A dictionary that doubles from half the sample to all of it continues to grow with the rows.
        let growth = (dictionary / half_dictionary.max(1.0)).clamp(1.0, 2.0).log2();
        let with_dictionary = data * scale + dictionary * scale.powf(growth);
        let (mut plain, _) = sizes(&without, at);
        if let Some(bytes) = apart.as_ref().map(|apart| sizes(apart, at).0)
            && choice.encoding == Some(Encoding::PLAIN)
            && bytes * PLAIN_DOUBLES_MAX < plain
        {
            (plain, choice.encoding) = (bytes, Some(Encoding::BYTE_STREAM_SPLIT));
        }
        let size = byte_aligned_size(column.column(0), &leaves.column(at), compression)?;
        choice.byte_aligned = size.is_some_and(|size| size < plain && size * scale <= with_dictionary);
        choice.encoding = choice.encoding.filter(|_| plain * scale <= with_dictionary || choice.byte_aligned);
    }
    Ok(choices)
}

/// The sample with the bytes of its doubles apart: all first bytes, then all second ones. Signs, exponents and the leading digits of
/// neighbours are alike, and the compressor gets them without the digits that are not.
fn bytes_apart(
    column: &RecordBatch,
    choices: &[Choice],
    compression: Compression,
) -> Result<Option<ParquetMetaData>, SegmentError> {
    let is_double = |choice: &&Choice| choice.encoding == Some(Encoding::PLAIN);
    if compression == Compression::UNCOMPRESSED || !choices.iter().any(|choice| is_double(&choice)) {
        return Ok(None);
    }
    let split = |choice: &Choice| Choice { encoding: Some(Encoding::BYTE_STREAM_SPLIT), ..choice.clone() };
    let choices: Vec<Choice> = choices.iter().filter(is_double).map(split).collect();
    trial(column, compression, &choices).map(Some)
}

/// Bytes of a leaf with its differences in whole bytes, if it can be written so. Whole bytes are for the compressor's sake.
#[expect(clippy::cast_precision_loss, reason = "estimates")]
fn byte_aligned_size(
    column: &ArrayRef,
    leaf: &ColumnDescPtr,
    compression: Compression,
) -> Result<Option<f64>, SegmentError> {
    let nested = leaf.path().parts().len() > 1;
    if nested || compression == Compression::UNCOMPRESSED || !byte_aligned::can_write(column.data_type()) {
        return Ok(None);
    }
    let properties = byte_aligned_properties(EnabledStatistics::None);
    let slice = std::iter::once(Ok(column.clone()));
    let chunk = byte_aligned::write(leaf, &properties, compression, slice, |_| {})?;
    Ok(Some(chunk.bytes.len() as f64))
}

fn sample_rows(rows: &[(u32, u32)]) -> Vec<(u32, u32)> {
    if rows.len() <= SAMPLE_ROWS {
        return rows.to_vec();
    }
    let block = SAMPLE_ROWS / SAMPLE_BLOCKS;
    let step = (rows.len() - block) / (SAMPLE_BLOCKS - 1);
    (0..SAMPLE_BLOCKS).flat_map(|i| rows[i * step..i * step + block].iter().copied()).collect()
}

/// Writes a batch for its sizes only.
fn trial(batch: &RecordBatch, compression: Compression, choices: &[Choice]) -> Result<ParquetMetaData, SegmentError> {
    let properties =
        choices.iter().fold(base(compression).set_statistics_enabled(EnabledStatistics::None), with_choice).build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), batch.schema(), options).map_err(failed)?;
    writer.write(batch).map_err(failed)?;
    writer.close().map_err(failed)
}

/// Bytes of the data pages and of the dictionary of a leaf column.
#[expect(clippy::cast_precision_loss, reason = "estimates")]
fn sizes(metadata: &ParquetMetaData, leaf: usize) -> (f64, f64) {
    metadata.row_groups().iter().fold((0.0, 0.0), |(data, dictionary), group| {
        let column = group.column(leaf);
        let own = column.dictionary_page_offset().map_or(0, |at| (column.data_page_offset() - at).max(0)) as f64;
        (data + column.compressed_size() as f64 - own, dictionary + own)
    })
}
