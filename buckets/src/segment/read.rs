//! Reading a segment: footer and directory once, then exactly the rows asked for. No byte is used before its checksum.

mod batches;
mod cached;
mod data;
mod tail;

pub use batches::{SegmentBatches, StoredBatches};
pub(super) use tail::tail_checksum_at;
pub(crate) use tail::{Tail, directory_len, read_tail};

use super::block::{Block, cached_width};
use super::cache::BlockCache;
use super::directory::{self, Directory};
use super::file_types::{FileType, FileTypes};
use super::footer_checks;
use super::ngrams::{self, BlockCheck, Filter, FilterPlace, FilterPlaces, TextCondition};
use super::physical::hinted;
use super::{BLOCK_BYTES, FORMAT_VERSION, KEY_DIRECTORY, KEY_FILTERS, KEY_SCHEMA, ReadAt, SegmentError};
use crate::counts::to_usize;
use crate::meta::column_of_keys;
use crate::schema::{FieldType, Schema};
use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt8Array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, UInt8Type};
use arrow::error::ArrowError;
use bytes::Bytes;
use cached::{CachedBatches, named};
use data::Checked;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
    RowSelector,
};
use parquet::basic::{Encoding, EncodingMask, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::statistics::Statistics;
use std::collections::HashSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

/// Where the cache has the column of all metas, beside the columns of the file.
const METAS: usize = usize::MAX;
/// Where the cache has n-gram filters, which are numbered by column: [`super::cache`] has documents before it.
pub(super) const FILTERS: usize = usize::MAX / 2;

/// A column is cached as texts with few different values if its dictionaries have at most this many compressed bytes.
const DICTIONARY_BYTES_MAX: i64 = 4096;

/// Maximum number of columns decoded at once if their rows make one batch: each holds a decompressor of about 40 KiB.
const COLUMNS_AT_ONCE: usize = 256;

/// A column that is read.
#[derive(Debug, Clone)]
struct Column {
    name: String,
    ty: FieldType,
    /// Its number among the columns of the file.
    at: usize,
}

/// An open segment. Clones share footer and directory.
#[derive(Debug, Clone)]
pub struct SegmentReader(Arc<Inner>, Option<(Arc<BlockCache>, u64)>);

#[derive(Debug)]
struct Inner {
    name: String,
    file: Arc<dyn ReadAt>,
    metadata: ArrowReaderMetadata,
    directory: Directory,
    schema: Schema,
    filters: Vec<FilterPlace>,
    data_end: u64,
    checksum: u32,
    few_texts: OnceLock<HashSet<usize>>,
    /// For each column the bytes of a value in the cache, once they were asked for.
    widths: Vec<OnceLock<Option<usize>>>,
}

impl Inner {
    /// The top-level text columns whose pages all refer to a small dictionary.
    fn few_texts(&self) -> &HashSet<usize> {
        self.few_texts.get_or_init(|| {
            let columns = self.metadata.parquet_schema();
            let is_text = |leaf: &usize| {
                let leaf = columns.column(*leaf);
                leaf.path().parts().len() == 1 && leaf.physical_type() == Type::BYTE_ARRAY
            };
            let has_few = |leaf: usize| {
                let mut chunks = self.metadata.metadata().row_groups().iter().map(|group| group.column(leaf));
                chunks.all(has_small_dictionary)
            };
            let leaves = (0..columns.num_columns()).filter(is_text).filter(|leaf| has_few(*leaf));
            leaves.map(|leaf| columns.get_column_root_idx(leaf)).collect()
        })
    }
}

/// Whether all pages of a column of a row group refer to a dictionary of few bytes.
fn has_small_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    let bytes = chunk.dictionary_page_offset().map(|start| chunk.data_page_offset().saturating_sub(start));
    let refers =
        |mask: &EncodingMask| mask.is_only(Encoding::RLE_DICTIONARY) || mask.is_only(Encoding::PLAIN_DICTIONARY);
    bytes.is_some_and(|bytes| bytes <= DICTIONARY_BYTES_MAX) && chunk.page_encoding_stats_mask().is_some_and(refers)
}

impl SegmentReader {
    /// Reads and checks footer and directory.
    ///
    /// # Errors
    /// If they are damaged, of another version, or cannot be read.
    pub fn open(file: Arc<dyn ReadAt>, name: &str) -> Result<SegmentReader, SegmentError> {
        let (data_end, tail, checksum) = read_tail(&*file, name)?;
        let bad = |offset: u64, message: String| SegmentError::new(name, offset, message);
        let footer_at = file.len().saturating_sub(8);
        let parse = || {
            ParquetMetaDataReader::new()
                .with_offset_index_policy(PageIndexPolicy::Required)
                .with_column_index_policy(PageIndexPolicy::Skip)
                .parse_and_finish(&Tail { start: data_end, bytes: tail.clone() })
        };
        let metadata = asserted(parse).map_err(|e| bad(footer_at, format!("footer: {e}")))?;
        let value = |key: &str| {
            let pairs = metadata.file_metadata().key_value_metadata()?;
            pairs.iter().find(|pair| pair.key == key)?.value.clone()
        };
        let place = value(KEY_DIRECTORY).ok_or_else(|| bad(footer_at, format!("footer: no key {KEY_DIRECTORY}")))?;
        let len = directory_len(&place, data_end, FORMAT_VERSION)
            .map_err(|message| bad(footer_at, format!("footer: {message}")))?;
        let framed = tail.get(..len).ok_or_else(|| bad(data_end, format!("directory: {len} bytes are not there")))?;
        let directory = directory::decode(framed, data_end).map_err(|message| bad(data_end, message))?;
        let json = value(KEY_SCHEMA).ok_or_else(|| bad(footer_at, format!("footer: no key {KEY_SCHEMA}")))?;
        let schema: Schema =
            serde_json::from_str(&json).map_err(|e| bad(footer_at, format!("footer: {KEY_SCHEMA}: {e}")))?;
        let filters = value(KEY_FILTERS).map(|places| FilterPlaces::parse(&places, data_end)).transpose();
        let filters = filters.map_err(|message| bad(footer_at, format!("footer: {KEY_FILTERS}: {message}")))?;
        let filters = filters.unwrap_or_default();
        let rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
        if rows != directory.row_count() {
            let message = format!("directory: {} rows, the footer says {rows}", directory.row_count());
            return Err(bad(data_end, message));
        }
        let blocks = data_end.div_ceil(BLOCK_BYTES as u64);
        if blocks != directory.checksums.len() as u64 {
            return Err(bad(
                data_end,
                format!("directory: {} checksums for {blocks} blocks", directory.checksums.len()),
            ));
        }
        footer_checks::check(&metadata, rows, data_end)
            .map_err(|message| bad(footer_at, format!("footer: {message}")))?;
        let metadata = asserted(|| arrow_metadata(metadata)).map_err(|e| bad(footer_at, format!("footer: {e}")))?;
        let widths = metadata.schema().fields().iter().map(|_| OnceLock::new()).collect();
        let inner = Inner {
            name: name.to_owned(),
            file,
            metadata,
            directory,
            schema,
            filters,
            data_end,
            checksum,
            few_texts: OnceLock::new(),
            widths,
        };
        Ok(SegmentReader(Arc::new(inner), None))
    }

    /// The same segment with a cache for what it decodes.
    #[must_use]
    pub fn with_cache(self, cache: &Arc<BlockCache>) -> SegmentReader {
        SegmentReader(self.0, Some((cache.clone(), cache.number())))
    }

    /// The approximate bytes of a row of some columns in the cache; other columns are not cached.
    #[must_use]
    pub fn cached_row_bytes<'a>(&self, columns: impl IntoIterator<Item = &'a str>) -> u64 {
        let fields = self.0.metadata.schema();
        let mut next = 0;
        let width = |name: &str| {
            let at = match fields.fields().get(next) {
                Some(field) if field.name() == name => next,
                _ => fields.index_of(name).ok()?,
            };
            next = at + 1;
            self.cached_width(at)
        };
        columns.into_iter().filter_map(width).map(|width| width as u64).sum()
    }

    /// The bytes of a value of a column in the cache; `None` if the column is not cached. Cached are columns of values of one width, so
    /// that the size of a block is bounded, and text columns, other than the meta, with few different values.
    fn cached_width(&self, at: usize) -> Option<usize> {
        let field = self.0.metadata.schema().fields().get(at)?;
        *self.0.widths.get(at)?.get_or_init(|| match field.data_type() {
            DataType::Utf8View if self.schema().meta.as_ref() != Some(field.name()) => {
                self.0.few_texts().contains(&at).then_some(size_of::<u128>())
            }
            ty => cached_width(ty, || self.range(at)),
        })
    }

    /// The least and the greatest stored number of a column of whole numbers, as far as the footer says.
    fn range(&self, root: usize) -> Option<(i64, i64)> {
        let columns = self.0.metadata.parquet_schema();
        let mut leaves = 0..columns.num_columns();
        while !leaves.is_empty() {
            let middle = leaves.start + leaves.len() / 2;
            match columns.get_column_root_idx(middle) < root {
                true => leaves.start = middle + 1,
                false => leaves.end = middle,
            }
        }
        let of_group = |group: &RowGroupMetaData| match group.columns().get(leaves.start)?.statistics()? {
            Statistics::Int32(stats) => Some((i64::from(*stats.min_opt()?), i64::from(*stats.max_opt()?))),
            Statistics::Int64(stats) => Some((*stats.min_opt()?, *stats.max_opt()?)),
            _ => None,
        };
        let groups = self.0.metadata.metadata().row_groups().iter().map(of_group);
        groups.reduce(|a, b| a.zip(b).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))))?
    }

    /// The same segment without the cache, for readers that read everything once.
    #[must_use]
    pub fn without_cache(self) -> SegmentReader {
        SegmentReader(self.0, None)
    }

    /// Whether reading it means to wait for another machine.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.0.file.is_remote()
    }

    /// Bytes of the n-gram filters of the columns in which conditions look for texts.
    #[must_use]
    pub fn filter_bytes(&self, conditions: &[TextCondition]) -> u64 {
        self.filters_of(conditions).map(|(_, place)| place.length).sum()
    }

    /// The filters, with their numbers, of the columns in which conditions look for texts.
    fn filters_of<'s>(&'s self, conditions: &[TextCondition]) -> impl Iterator<Item = (usize, &'s FilterPlace)> {
        let columns: Vec<&str> = ngrams::filtered_columns(conditions).collect();
        let is_asked = |place: &&FilterPlace| columns.contains(&place.column.as_str());
        let asked: Vec<_> = self.0.filters.iter().enumerate().filter(|(_, place)| is_asked(place)).collect();
        asked.into_iter()
    }

    /// Removes the rows from lists of ranges (each sorted and disjoint) that cannot meet all conditions, as far as n-gram filters tell. A
    /// filter that is not in the cache is not read if it has more bytes than the blocks of its column with these rows; with `keep`, one that
    /// is read goes into the cache.
    ///
    /// # Errors
    /// Damage in a filter.
    pub fn retain_matching(
        &self,
        lists: &mut [&mut Vec<Range<u64>>],
        conditions: &[TextCondition],
        keep: bool,
    ) -> Result<(), SegmentError> {
        lists.iter().try_for_each(|ranges| self.check_ranges(ranges))?;
        let asked: u64 = lists.iter().map(|ranges| ngrams::blocks_of(ranges)).sum();
        let mut bytes = Vec::new();
        for (at, place) in self.filters_of(conditions) {
            let is_worth_it =
                || asked.saturating_mul(self.bytes_of(&place.column)) >= place.length.saturating_mul(self.blocks());
            match self.cached_filter(at) {
                Some(filter) => bytes.push((place, filter)),
                None if is_worth_it() => bytes.push((place, self.filter(at, place, keep)?)),
                None => {}
            }
        }
        let filters =
            bytes.iter().map(|(place, bytes)| Ok((place.column.as_str(), self.parsed(place, bytes.values())?)));
        let filters = filters.collect::<Result<Vec<_>, SegmentError>>()?;
        if !filters.is_empty() {
            let check = BlockCheck::new(filters, conditions);
            lists.iter_mut().for_each(|ranges| **ranges = ngrams::retained(ranges, |block| check.may_match(block)));
        }
        Ok(())
    }

    /// Blocks of rows of a filter.
    fn blocks(&self) -> u64 {
        self.directory().row_count().div_ceil(ngrams::BLOCK_ROWS)
    }

    /// The compressed bytes of a top-level column without members.
    fn bytes_of(&self, column: &str) -> u64 {
        let groups = self.parquet_metadata().row_groups().iter();
        let leaves = groups.flat_map(RowGroupMetaData::columns);
        let leaves = leaves.filter(|leaf| matches!(leaf.column_path().parts(), [name] if name == column));
        leaves.map(|leaf| u64::try_from(leaf.compressed_size()).unwrap_or(0)).fold(0, u64::saturating_add)
    }

    fn parsed<'b>(&self, place: &FilterPlace, bytes: &'b [u8]) -> Result<Filter<'b>, SegmentError> {
        let of_column = |message| format!("the filter of column '{}': {message}", place.column);
        Filter::new(bytes, self.blocks())
            .map_err(|message| SegmentError::new(self.name(), place.offset, of_column(message)))
    }

    /// The bytes of a filter, if they are cached.
    fn cached_filter(&self, at: usize) -> Option<UInt8Array> {
        let (cache, segment) = self.1.as_ref()?;
        let cached = cache.get(std::iter::once((*segment, FILTERS + at, 0))).pop().flatten()?;
        cached.plain()?.as_primitive_opt::<UInt8Type>().cloned()
    }

    /// Reads the bytes of a filter; the cache keeps them if asked to.
    fn filter(&self, at: usize, place: &FilterPlace, keep: bool) -> Result<UInt8Array, SegmentError> {
        let bytes = UInt8Array::new(Buffer::from(self.0.read(place.offset, to_usize(place.length))?).into(), None);
        if let Some((cache, segment)) = self.1.as_ref().filter(|_| keep) {
            cache.put((*segment, FILTERS + at, 0), Block::Plain(Arc::new(bytes.clone())));
        }
        Ok(bytes)
    }

    /// The name that it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The bucket directory.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// The schema that it was written under.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.0.schema
    }

    /// The column of all metas in order of their ordinals, as `schema` has it; `None` if it has no metas.
    #[must_use]
    pub fn metas(&self, schema: &Schema) -> Option<ArrayRef> {
        let ty = schema.meta_type.as_ref()?;
        let make = || {
            let keys: Vec<_> = (0..self.directory().meta_count()).map(|meta| self.directory().meta(meta)).collect();
            column_of_keys(&keys, ty, schema.precision)
        };
        let Some((cache, segment)) = self.1.as_ref().filter(|_| self.schema().meta_type.as_ref() == Some(ty)) else {
            return Some(make());
        };
        let key = (*segment, METAS, 0);
        cache.get(std::iter::once(key)).pop().flatten().and_then(Block::plain).or_else(|| {
            let metas = make();
            cache.put(key, Block::Plain(metas.clone()));
            Some(metas)
        })
    }

    /// `types`, widened by those of the columns of this segment.
    #[must_use]
    pub fn widen(&self, types: &FileTypes) -> FileTypes {
        let found = self.0.metadata.schema().fields().iter().filter_map(|field| {
            let ty = self.schema().field_type(field.name())?;
            Some((field.name().clone(), FileType::of_stored(ty, field.data_type())))
        });
        types.widened_by(&found.collect::<Vec<_>>())
    }

    /// Whether the columns of the file are those of `schema`, each with the type that its values have in memory.
    #[must_use]
    pub fn has_plain_columns(&self, schema: &Schema) -> bool {
        let (stored, wanted) = (self.0.metadata.schema(), schema.arrow());
        let is_same = |(stored, wanted): (&Arc<Field>, &Arc<Field>)| {
            stored.name() == wanted.name() && stored.data_type() == wanted.data_type()
        };
        stored.fields().len() == wanted.fields().len() && stored.fields().iter().zip(wanted.fields()).all(is_same)
    }

    /// The whole file. All of its data is compared with the checksums.
    ///
    /// # Errors
    /// Damage, or if the file cannot be read.
    pub fn bytes(&self) -> Result<Bytes, SegmentError> {
        let file = &self.0.file;
        let bytes = file.read_at(0, to_usize(file.len())).map_err(|e| SegmentError::unread(self.name(), 0, &e))?;
        SegmentReader::open(Arc::new(bytes.clone()), self.name())?.verify()?;
        Ok(bytes)
    }

    /// The first column that has another type in the file than in `types`.
    #[must_use]
    pub fn mismatch(&self, types: &FileTypes) -> Option<String> {
        let fields = self.0.metadata.schema().fields().iter().enumerate();
        let differs = |(at, field): &(usize, &Arc<Field>)| !types.has(field.name(), *at, field.data_type());
        fields.into_iter().find(differs).map(|(_, field)| field.name().clone())
    }

    /// Parquet's own description of the file.
    #[must_use]
    pub fn parquet_metadata(&self) -> &Arc<ParquetMetaData> {
        self.0.metadata.metadata()
    }

    /// Where the data ends and the directory begins.
    #[must_use]
    pub fn data_end(&self) -> u64 {
        self.0.data_end
    }

    /// The checksum of the tail, which identifies the file.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.0.checksum
    }

    /// The approximate memory of an open segment in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.parquet_metadata().memory_size() + self.directory().memory_bytes()
    }

    /// The approximate memory of all rows of all columns once they are read, in bytes.
    #[must_use]
    pub fn columns_memory(&self) -> u64 {
        let groups = self.parquet_metadata().row_groups().iter();
        let of = |column: &ColumnChunkMetaData| {
            let positive = |n: i64| u64::try_from(n).unwrap_or(0);
            let texts = match column.column_type() {
                // A dictionary holds each text once, but every view of it counts with its full length.
                Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY => {
                    positive(column.unencoded_byte_array_data_bytes().unwrap_or(column.uncompressed_size()))
                        .saturating_add(positive(column.num_values()).saturating_mul(8))
                }
                _ => 0,
            };
            texts.saturating_add(positive(column.num_values()).saturating_mul(8))
        };
        groups.flat_map(RowGroupMetaData::columns).map(of).fold(0, u64::saturating_add)
    }

    /// Reads rows: the named top-level columns, in this order, as `schema` has them (null where the segment lacks one), for
    /// the rows in `ranges` (sorted, disjoint), in batches of at most `batch_rows`.
    ///
    /// # Errors
    /// If a column is not in `schema`, or ranges are not as said, or the segment does not fit the schema. Damage in the
    /// data shows when the batch is read.
    pub fn read(
        &self,
        columns: &[String],
        schema: &Schema,
        ranges: &[Range<u64>],
        batch_rows: usize,
    ) -> Result<SegmentBatches, SegmentError> {
        let inner = &self.0;
        let invalid = |message: String| SegmentError::new(&inner.name, 0, message);
        self.check_ranges(ranges)?;
        let target = schema.arrow_columns(columns).map_err(|e| invalid(e.to_string()))?;
        let present = self.present(columns)?;
        let rows: u64 = ranges.iter().map(|r| r.end - r.start).sum();
        let failed = Arc::new(OnceLock::new());
        let source = if present.is_empty() || rows == 0 {
            None
        } else {
            Some(self.source(&present, ranges, batch_rows, &failed)?)
        };
        Ok(SegmentBatches {
            name: inner.name.clone(),
            source,
            failed,
            present,
            target,
            rows_left: rows,
            batch_rows: batch_rows.max(1),
        })
    }

    /// Reads rows in their stored form, for readers that need no canonical form: the named top-level columns, in this order.
    /// Ranges and batches are as for [`SegmentReader::read`]. At least one column must be named: rows are counted by it.
    ///
    /// # Errors
    /// If the ranges are invalid or the segment lacks a column. Damage in the data is reported when the batch is read.
    pub fn read_stored(
        &self,
        columns: &[String],
        ranges: &[Range<u64>],
        batch_rows: usize,
    ) -> Result<StoredBatches, SegmentError> {
        self.check_ranges(ranges)?;
        let present = self.present(columns)?;
        if present.len() < columns.len() {
            let lacks = |name: &&String| self.0.schema.field_type(name).is_none();
            let name = columns.iter().find(lacks).map_or("", String::as_str);
            return Err(SegmentError::new(&self.0.name, 0, format!("no column '{name}' in the segment")));
        }
        let failed = Arc::new(OnceLock::new());
        let source = self.source(&present, ranges, batch_rows, &failed)?;
        let rows_left = ranges.iter().map(|r| r.end - r.start).sum();
        Ok(StoredBatches { name: self.0.name.clone(), source, rows_left })
    }

    fn check_ranges(&self, ranges: &[Range<u64>]) -> Result<(), SegmentError> {
        let mut end = 0;
        for range in ranges {
            if range.start < end || range.end < range.start || range.end > self.directory().row_count() {
                let message =
                    format!("row ranges are not sorted, disjoint and within {} rows", self.directory().row_count());
                return Err(SegmentError::new(&self.0.name, 0, message));
            }
            end = range.end;
        }
        Ok(())
    }

    /// The columns with these names that the segment has, in the order of the names.
    fn present(&self, names: &[String]) -> Result<Arc<[Column]>, SegmentError> {
        let fields = self.0.metadata.schema();
        let mut present = Vec::with_capacity(names.len());
        let mut next = 0;
        for name in names {
            let Some((at, ty)) = self.0.schema.column_near(next, name) else { continue };
            let at = match fields.fields().get(at) {
                Some(field) if field.name() == name => Some(at),
                _ => fields.index_of(name).ok(),
            };
            let lacking = "a column of its schema is not in the file";
            let at = at.ok_or_else(|| SegmentError::new(&self.0.name, self.0.data_end, lacking))?;
            present.push(Column { name: name.clone(), ty: ty.clone(), at });
            next = at + 1;
        }
        Ok(present.into())
    }

    fn source(
        &self,
        present: &Arc<[Column]>,
        ranges: &[Range<u64>],
        batch_rows: usize,
        failed: &Arc<OnceLock<SegmentError>>,
    ) -> Result<Source, SegmentError> {
        if self.1.is_some() {
            return Ok(Box::new(CachedBatches::new(self.clone(), present.clone(), ranges, batch_rows, failed.clone())));
        }
        let rows: u64 = ranges.iter().map(|r| r.end - r.start).sum();
        let (reader, present, failed) = (self.clone(), present.clone(), failed.clone());
        if present.len() > COLUMNS_AT_ONCE && rows <= batch_rows as u64 {
            let ranges = ranges.to_vec();
            return Ok(Box::new(std::iter::once_with(move || reader.one_batch(&present, &ranges, rows, &failed))));
        }
        let mut pages = self.reader(&present, ranges, batch_rows, &failed)?;
        let next = move || {
            let batch = read_next(&mut pages)?;
            let columns = batch.and_then(|batch| columns_of(&batch, &present));
            Some(columns.map_err(|error| failure(&failed, reader.name(), &error)))
        };
        Ok(Box::new(std::iter::from_fn(next)))
    }

    /// All rows of some ranges as one batch, a portion of the columns at a time.
    fn one_batch(
        &self,
        present: &[Column],
        ranges: &[Range<u64>],
        rows: u64,
        failed: &Arc<OnceLock<SegmentError>>,
    ) -> Result<Vec<ArrayRef>, SegmentError> {
        let failure = |error: ArrowError| failure(failed, self.name(), &error);
        let mut columns = Vec::with_capacity(present.len());
        for portion in present.chunks(COLUMNS_AT_ONCE) {
            let mut pages = self.reader(portion, ranges, to_usize(rows), failed)?;
            let batch = read_next(&mut pages).transpose().map_err(failure)?;
            let batch = batch.filter(|batch| batch.num_rows() as u64 == rows);
            let batch = batch.ok_or_else(|| missing(self.name(), rows))?;
            columns.extend(columns_of(&batch, portion).map_err(failure)?);
        }
        Ok(columns)
    }

    fn reader(
        &self,
        present: &[Column],
        ranges: &[Range<u64>],
        batch_rows: usize,
        failed: &Arc<OnceLock<SegmentError>>,
    ) -> Result<ParquetRecordBatchReader, SegmentError> {
        let inner = &self.0;
        let roots: Vec<usize> = present.iter().map(|column| column.at).collect();
        let prepared = inner.prepare(&roots, ranges)?;
        let (groups, selection) = select(inner.metadata.metadata(), ranges);
        let file = Checked { inner: inner.clone(), file: prepared, failed: failed.clone() };
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, inner.metadata.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let builder = builder.with_projection(mask).with_row_groups(groups).with_row_selection(selection);
        asserted(|| builder.with_batch_size(batch_rows.max(1)).build())
            .map_err(|e| failed.get().cloned().unwrap_or_else(|| SegmentError::new(&inner.name, 0, e.to_string())))
    }

    /// Reads every text of the columns that have an n-gram filter, and checks that the filter does not exclude it.
    ///
    /// # Errors
    /// At the first text that it excludes, and for other damage.
    pub fn verify_filters(&self) -> Result<(), SegmentError> {
        for (at, place) in self.0.filters.iter().enumerate() {
            let bytes = self.cached_filter(at).map_or_else(|| self.filter(at, place, false), Ok)?;
            let filter = self.parsed(place, bytes.values())?;
            let all = 0..self.directory().row_count();
            let columns = std::slice::from_ref(&place.column);
            let mut row = 0;
            for batch in self.read_stored(columns, std::slice::from_ref(&all), to_usize(ngrams::BLOCK_ROWS))? {
                let Some(column) = batch?.pop() else { continue };
                let texts = column.as_string_view_opt().into_iter().flatten();
                for (row, text) in (row..).zip(texts) {
                    if text.is_some_and(|text| !filter.has(to_usize(row / ngrams::BLOCK_ROWS), text)) {
                        let message = format!("the filter of column '{}' excludes the text of row {row}", place.column);
                        return Err(SegmentError::new(self.name(), place.offset, message));
                    }
                }
                row += column.len() as u64;
            }
        }
        Ok(())
    }

    /// Reads every byte of data and compares it with its checksum.
    ///
    /// # Errors
    /// At the first damaged block.
    pub fn verify(&self) -> Result<(), SegmentError> {
        const STEP: u64 = 256 * BLOCK_BYTES as u64;
        let mut at = 0;
        while at < self.0.data_end {
            let len = STEP.min(self.0.data_end - at);
            self.0.read(at, to_usize(len))?;
            at += len;
        }
        Ok(())
    }
}

/// What a reader needs to decode a file with the types that values have in memory, as far as its own types are those.
///
/// # Errors
/// If the types of the file have no such form.
pub fn arrow_metadata(metadata: ParquetMetaData) -> Result<ArrowReaderMetadata, ParquetError> {
    let metadata = Arc::new(metadata);
    let plain = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let inferred = ArrowReaderMetadata::try_new(metadata.clone(), plain)?;
    let fields: Vec<Field> = inferred.schema().fields().iter().map(|field| hinted(field)).collect();
    ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new().with_schema(Arc::new(ArrowSchema::new(fields))))
}

/// The row groups that hold any of the ranges, and the rows to take among them.
fn select(metadata: &ParquetMetaData, ranges: &[Range<u64>]) -> (Vec<usize>, RowSelection) {
    let as_rows = to_usize;
    let mut groups = Vec::new();
    let mut selectors = Vec::new();
    let mut group_start = 0;
    let mut ranges = ranges.iter().filter(|r| !r.is_empty()).cloned().peekable();
    for (group, info) in metadata.row_groups().iter().enumerate() {
        let group_end = group_start + u64::try_from(info.num_rows()).unwrap_or(0);
        let mut at = group_start;
        let mut any = false;
        while let Some(range) = ranges.peek_mut().filter(|range| range.start < group_end) {
            if range.start > at {
                selectors.push(RowSelector::skip(as_rows(range.start - at)));
            }
            at = range.end.min(group_end);
            selectors.push(RowSelector::select(as_rows(at - range.start)));
            any = true;
            if range.end > group_end {
                range.start = group_end;
                break;
            }
            ranges.next();
        }
        if any {
            groups.push(group);
            if at < group_end {
                selectors.push(RowSelector::skip(as_rows(group_end - at)));
            }
        }
        group_start = group_end;
    }
    (groups, RowSelection::from(selectors))
}

/// The columns of a batch as they are stored, in the requested order; never none.
type Source = Box<dyn Iterator<Item = Result<Vec<ArrayRef>, SegmentError>> + Send>;

/// The named columns of a batch, in this order.
fn columns_of(batch: &RecordBatch, columns: &[Column]) -> Result<Vec<ArrayRef>, ArrowError> {
    let fields = batch.schema_ref().fields();
    let array = |(at, column): (usize, &Column)| match fields.get(at) {
        Some(field) if *field.name() == column.name => Ok(batch.column(at).clone()),
        _ => named(batch, &column.name),
    };
    columns.iter().enumerate().map(array).collect()
}

/// The error of a batch: the first one below the Parquet reader, if there was one.
fn failure(failed: &OnceLock<SegmentError>, name: &str, error: &ArrowError) -> SegmentError {
    failed.get().cloned().unwrap_or_else(|| SegmentError::new(name, 0, error.to_string()))
}

fn missing(name: &str, rows: u64) -> SegmentError {
    SegmentError::new(name, 0, format!("{rows} rows are missing at the end"))
}

/// The next batch. The Parquet reader asserts what it finds in its pages; checksums vouch for these, and where somebody forged
/// them, it is reported as damage instead of panicking.
fn read_next(source: &mut ParquetRecordBatchReader) -> Option<Result<RecordBatch, ArrowError>> {
    catch_unwind(AssertUnwindSafe(|| source.next())).unwrap_or_else(|_| {
        Some(Err(ArrowError::ParquetError("the pages do not hold what their headers say".to_owned())))
    })
}

/// Decodes a footer with the Parquet reader, which also asserts some of its properties.
pub(crate) fn asserted<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    let forged = |_| Err(ParquetError::General("its numbers contradict each other".to_owned()));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(forged)
}
