//! Writing a segment: rows go into pages, pages into row groups, as they come.

use super::directory::{DATA_START, Directory, Fences, Group};
use super::page::{self, PageEncoding};
use super::pages::Pages;
use super::{
    Column, FORMAT_VERSION, GROUP_BYTES, GROUP_ROWS, KEY_KEYED, KeyedMeta, KeyedRow, SCHEMA, TTL_MAX, VALUE_BYTES_MAX,
    delta,
};
use crate::segment::{SegmentError, failed, seal_file};
use bytes::Bytes;
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, SortingColumn};
use parquet::file::properties::{BloomFilterPosition, WriterProperties};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// What ends a page: values before compression, or rows.
const DOCUMENT_PAGE_BYTES: usize = 12 << 10;
const DOCUMENT_PAGE_ROWS: usize = 256;
const KEY_PAGE_BYTES: usize = 8 << 10;
const KEY_PAGE_ROWS: usize = 128;
const WRITTEN_PAGE_ROWS: usize = 512;
const TTL_PAGE_ROWS: usize = 4096;

const ZSTD_LEVEL: i32 = 3;
/// Bytes of the filter of a full row group; that of a smaller one is folded until its share of false answers would be more
/// than that of a full one.
const FILTER_BYTES: usize = 1 << 18;
const FILTER_FALSE_SHARE: f64 = 0.0085;
/// Keys that are kept before the large filter is made. A filter of this many has at most four bytes for each.
const FEW_KEYS: usize = 1024;
/// Longer bounds are left out of the footer, where only other programs need them.
const BOUND_BYTES_MAX: usize = 64;

/// Writes a segment, a row at a time, into memory; row groups that are closed can be taken out of it.
pub struct KeyedWriter {
    pub(super) file: SerializedFileWriter<Vec<u8>>,
    /// Bytes of the file that were taken.
    taken: usize,
    groups_taken: usize,
    compressor: zstd::bulk::Compressor<'static>,
    pub(super) directory: Directory,
    group: OpenGroup,
}

impl std::fmt::Debug for KeyedWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyedWriter").field("rows", &self.rows()).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// A row group that is being written: rows of pages that are still open, and the pages that are closed.
struct OpenGroup {
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    written: Vec<i64>,
    ttls: Vec<Option<i64>>,
    documents: Vec<u8>,
    document_rows: usize,
    columns: [OpenColumn; Column::ALL.len()],
    fences: Fences,
    filter: KeyFilter,
    first_key: Vec<u8>,
    rows: u32,
    /// Bytes of keys and documents.
    raw: usize,
    bounds: Bounds,
}

/// The filter of the keys of a row group. The keys themselves are kept while they are few: a filter of few keys is made
/// small, which gives the same bytes as folding a large one, and takes a fraction of the time.
enum KeyFilter {
    Few { keys: Vec<u8>, ends: Vec<usize> },
    Many(Sbbf),
}

impl KeyFilter {
    fn insert(&mut self, key: &[u8]) {
        if let KeyFilter::Few { ends, .. } = self
            && ends.len() == FEW_KEYS
        {
            *self = KeyFilter::Many(self.with_bytes(FILTER_BYTES));
        }
        match self {
            KeyFilter::Few { keys, ends } => {
                keys.extend(key);
                ends.push(keys.len());
            }
            KeyFilter::Many(filter) => filter.insert(key),
        }
    }

    /// A filter of so many bytes with the keys that are kept.
    fn with_bytes(&self, bytes: usize) -> Sbbf {
        let mut filter = Sbbf::new_with_num_of_bytes(bytes);
        if let KeyFilter::Few { keys, ends } = self {
            let mut start = 0;
            for end in ends {
                filter.insert(&keys[start..*end]);
                start = *end;
            }
        }
        filter
    }

    /// As small as its share of false answers allows.
    fn close(self) -> Sbbf {
        let mut filter = match self {
            KeyFilter::Few { .. } => self.with_bytes(FEW_KEYS * 4),
            KeyFilter::Many(filter) => filter,
        };
        filter.fold_to_target_fpp(FILTER_FALSE_SHARE);
        filter
    }
}

/// The bounds of columns of numbers.
#[derive(Default)]
struct Bounds {
    written: Option<(i64, i64)>,
    ttl: Option<(i64, i64)>,
    ttl_nulls: u64,
}

/// A column of a row group.
#[derive(Default)]
struct OpenColumn {
    bytes: Vec<u8>,
    pages: Pages,
    /// Bytes of pages with their headers, before compression.
    raw: usize,
}

impl OpenGroup {
    fn new() -> OpenGroup {
        OpenGroup {
            keys: Vec::new(),
            key_ends: Vec::new(),
            written: Vec::new(),
            ttls: Vec::new(),
            documents: Vec::new(),
            document_rows: 0,
            columns: Default::default(),
            fences: Fences::default(),
            filter: KeyFilter::Few { keys: Vec::new(), ends: Vec::new() },
            first_key: Vec::new(),
            rows: 0,
            raw: 0,
            bounds: Bounds::default(),
        }
    }
}

impl KeyedWriter {
    /// A segment without rows so far.
    ///
    /// # Errors
    /// If there is no memory for a compressor.
    pub fn new() -> Result<KeyedWriter, SegmentError> {
        let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
        let sorting = SortingColumn { column_idx: 0, descending: false, nulls_first: false };
        let properties = WriterProperties::builder()
            .set_bloom_filter_position(BloomFilterPosition::End)
            .set_sorting_columns(Some(vec![sorting]))
            .build();
        let file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).map_err(failed)?;
        let compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(failed)?;
        Ok(KeyedWriter {
            file,
            taken: 0,
            groups_taken: 0,
            compressor,
            directory: Directory::default(),
            group: OpenGroup::new(),
        })
    }

    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.directory.lives.rows()
    }

    /// About how many bytes the file has so far: those of closed pages, and those of open ones before compression.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let group = &self.group;
        let closed: usize = group.columns.iter().map(|column| column.bytes.len()).sum();
        let open = group.keys.len() + group.written.len() * 4 + group.ttls.len() + group.documents.len();
        (self.file.bytes_written() + closed + open) as u64
    }

    /// Adds a row.
    ///
    /// # Errors
    /// If its key is not greater than the one before, its life is none, or key or document have more than 64 MiB; then it
    /// was not added. If it cannot be compressed or there are too many rows; then the segment is of no use any more.
    pub fn push(&mut self, row: KeyedRow<'_>) -> Result<(), SegmentError> {
        self.check(row)?;
        if self.group.rows == GROUP_ROWS || self.group.raw >= GROUP_BYTES {
            self.close_group()?;
        }
        let group = &mut self.group;
        if group.key_ends.is_empty() {
            group.fences.push(&self.directory.last_key, row.key);
        }
        if group.rows == 0 {
            group.first_key = row.key.to_vec();
        }
        if self.directory.lives.rows() == 0 {
            self.directory.first_key = row.key.to_vec();
        }
        self.directory.last_key.clear();
        self.directory.last_key.extend(row.key);
        self.directory.lives.add(row.written, row.ttl);
        group.bounds.add(row);
        group.filter.insert(row.key);
        group.rows += 1;
        group.raw += row.key.len() + row.document.len();
        group.keys.extend(row.key);
        group.key_ends.push(group.keys.len());
        group.written.push(row.written);
        group.ttls.push(row.ttl);
        group.documents.extend(u32::try_from(row.document.len()).map_err(failed)?.to_le_bytes());
        group.documents.extend(row.document);
        group.document_rows += 1;
        self.close_pages(false)
    }

    fn check(&self, row: KeyedRow<'_>) -> Result<(), SegmentError> {
        let rows = self.directory.lives.rows();
        if rows > 0 && row.key <= self.directory.last_key.as_slice() {
            return Err(failed(format!("the key of row {rows} is not greater than the one before")));
        }
        if rows + 1 >= u64::from(u32::MAX) {
            return Err(failed("more than 2^32 rows"));
        }
        let longest = row.key.len().max(row.document.len());
        if longest > VALUE_BYTES_MAX {
            return Err(failed(format!("row {rows} has a value of {longest} bytes, at most {VALUE_BYTES_MAX} fit")));
        }
        match row.ttl {
            None | Some(-1 | 1..=TTL_MAX) => Ok(()),
            Some(ttl) => Err(failed(format!("row {rows} has the ttl {ttl}, which is neither -1 nor 1..={TTL_MAX}"))),
        }
    }

    /// Closes the pages that are full, or all of them.
    fn close_pages(&mut self, all: bool) -> Result<(), SegmentError> {
        let (group, zstd) = (&mut self.group, &mut self.compressor);
        let [keys, written, ttls, documents] = &mut group.columns;
        let full = |rows: usize, rows_max: usize| rows >= if all { 1 } else { rows_max };
        if full(group.key_ends.len(), KEY_PAGE_ROWS) || group.keys.len() >= KEY_PAGE_BYTES {
            let mut raw = Vec::with_capacity(group.keys.len() + 64);
            delta::put_keys(&mut raw, &group.keys, &group.key_ends);
            keys.close_page(Column::Key, &raw, group.key_ends.len(), zstd)?;
            group.keys.clear();
            group.key_ends.clear();
        }
        if full(group.written.len(), WRITTEN_PAGE_ROWS) {
            let mut raw = Vec::with_capacity(group.written.len() * 4);
            delta::put_numbers(&mut raw, &group.written);
            written.close_page(Column::Written, &raw, group.written.len(), zstd)?;
            group.written.clear();
        }
        if full(group.ttls.len(), TTL_PAGE_ROWS) {
            let mut raw = Vec::new();
            page::put_optional(&mut raw, &group.ttls);
            ttls.close_page(Column::Ttl, &raw, group.ttls.len(), zstd)?;
            group.ttls.clear();
        }
        if full(group.document_rows, DOCUMENT_PAGE_ROWS) || group.documents.len() >= DOCUMENT_PAGE_BYTES {
            documents.close_page(Column::Document, &group.documents, group.document_rows, zstd)?;
            group.documents.clear();
            group.documents.shrink_to(DOCUMENT_PAGE_BYTES * 2);
            group.document_rows = 0;
        }
        Ok(())
    }

    pub(super) fn close_group(&mut self) -> Result<(), SegmentError> {
        self.close_pages(true)?;
        let mut group = std::mem::replace(&mut self.group, OpenGroup::new());
        let mut closed = Group {
            first_row: self.directory.rows(),
            columns: Default::default(),
            fences: std::mem::take(&mut group.fences),
        };
        let mut filter = Some(group.filter.close());
        let descriptor = self.file.schema_descr().columns().to_vec();
        let mut at = self.file.bytes_written() as u64;
        if at != self.directory.data_end() {
            return Err(failed(format!("the data ends at {at}, not at {}", self.directory.data_end())));
        }
        // As much as is needed: growing by doubling would take up to twice the memory.
        self.file.inner_mut().reserve_exact(group.columns.iter().map(|column| column.bytes.len()).sum());
        let mut writer = self.file.next_row_group().map_err(failed)?;
        for column in Column::ALL {
            let mut open = std::mem::take(&mut group.columns[column.at()]);
            let statistics = group.bounds.statistics(column, &group.first_key, &self.directory.last_key);
            let mut metadata = ColumnChunkMetaData::builder(descriptor[column.at()].clone())
                .set_encodings(column.encodings())
                .set_compression(column.compression())
                .set_num_values(i64::from(group.rows))
                .set_total_compressed_size(i64::from(open.pages.len()))
                .set_total_uncompressed_size(i64::try_from(open.raw).map_err(failed)?)
                .set_data_page_offset(0);
            if let Some(statistics) = statistics {
                metadata = metadata.set_statistics(statistics);
            }
            let result = ColumnCloseResult {
                bytes_written: u64::from(open.pages.len()),
                rows_written: u64::from(group.rows),
                metadata: metadata.build().map_err(failed)?,
                bloom_filter: if column == Column::Key { filter.take() } else { None },
                column_index: None,
                offset_index: Some(offset_index(&open.pages).build()),
            };
            writer.append_column(&Bytes::from(open.bytes), result).map_err(failed)?;
            open.pages.start = at;
            at = open.pages.end();
            closed.columns[column.at()] = open.pages;
        }
        writer.close().map_err(failed)?;
        self.directory.groups.push(closed);
        Ok(())
    }

    /// Takes the bytes of the file that are complete and were not taken yet: those of closed row groups. A row group is closed
    /// after 200,000 rows or 16 MiB of keys and documents.
    ///
    /// # Errors
    /// None are expected: the bytes are in memory.
    pub fn take_complete(&mut self) -> Result<Vec<u8>, SegmentError> {
        if self.directory.groups.len() == self.groups_taken {
            return Ok(Vec::new());
        }
        self.groups_taken = self.directory.groups.len();
        self.file.flush().map_err(failed)?;
        let complete = std::mem::take(self.file.inner_mut());
        self.taken += complete.len();
        Ok(complete)
    }

    /// The rest of the file, all of it if nothing was taken, and its summary.
    ///
    /// # Errors
    /// If it has no rows, or cannot be written.
    pub fn finish(mut self) -> Result<(Vec<u8>, KeyedMeta), SegmentError> {
        if self.group.rows == 0 {
            return Err(failed("no rows"));
        }
        self.close_group()?;
        let data_end = self.directory.data_end();
        if self.file.bytes_written() as u64 != data_end {
            return Err(failed(format!("the data ends at {}, not at {data_end}", self.file.bytes_written())));
        }
        let directory = self.directory.encode().map_err(failed)?;
        let place = format!("{data_end},{},{:08x},{FORMAT_VERSION}", directory.len(), crc32fast::hash(&directory));
        let (bytes, checksum) = seal_file(self.file, self.taken, &directory, [(KEY_KEYED, place)])?;
        let Directory { lives, first_key, last_key, .. } = self.directory;
        let meta = KeyedMeta {
            rows: lives.rows(),
            bytes: (self.taken + bytes.len()) as u64,
            checksum,
            lives,
            first_key,
            last_key,
        };
        Ok((bytes, meta))
    }
}

impl OpenColumn {
    fn close_page(
        &mut self,
        column: Column,
        raw: &[u8],
        rows: usize,
        zstd: &mut zstd::bulk::Compressor<'static>,
    ) -> Result<(), SegmentError> {
        let encoding: PageEncoding = column.encoding();
        let from = self.bytes.len();
        if column.is_compressed() {
            let stored = zstd.compress(raw).map_err(failed)?;
            page::put_header(&mut self.bytes, raw.len(), stored.len(), rows, encoding);
            self.raw += self.bytes.len() - from + raw.len();
            self.bytes.extend(stored);
        } else {
            page::put_header(&mut self.bytes, raw.len(), raw.len(), rows, encoding);
            self.bytes.extend(raw);
            self.raw += self.bytes.len() - from;
        }
        self.pages.push(&self.bytes[from..], u32::try_from(rows).map_err(failed)?);
        Ok(())
    }
}

fn offset_index(pages: &Pages) -> OffsetIndexBuilder {
    let mut index = OffsetIndexBuilder::new();
    let mut at = 0_i64;
    for page in 0..pages.count() {
        let place = pages.place(page);
        let len = i32::try_from(place.end - place.start).unwrap_or(i32::MAX);
        index.append_offset_and_size(at, len);
        index.append_row_count(pages.rows_of(page).len() as i64);
        at += i64::from(len);
    }
    index
}

impl Bounds {
    fn add(&mut self, row: KeyedRow<'_>) {
        let widened = |bounds: Option<(i64, i64)>, value: i64| {
            Some(bounds.map_or((value, value), |(min, max)| (min.min(value), max.max(value))))
        };
        self.written = widened(self.written, row.written);
        match row.ttl {
            Some(ttl) => self.ttl = widened(self.ttl, ttl),
            None => self.ttl_nulls += 1,
        }
    }

    /// What the footer says of a column, for other programs.
    fn statistics(&self, column: Column, first_key: &[u8], last_key: &[u8]) -> Option<Statistics> {
        let ints = |bounds: Option<(i64, i64)>, nulls: u64| {
            Statistics::int64(bounds.map(|(min, _)| min), bounds.map(|(_, max)| max), None, Some(nulls), false)
        };
        match column {
            Column::Key if first_key.len().max(last_key.len()) <= BOUND_BYTES_MAX => {
                let bound = |key: &[u8]| Some(ByteArray::from(key.to_vec()));
                Some(Statistics::byte_array(bound(first_key), bound(last_key), None, Some(0), false))
            }
            Column::Written => Some(ints(self.written, 0)),
            Column::Ttl => Some(ints(self.ttl, self.ttl_nulls)),
            Column::Key | Column::Document => None,
        }
    }
}

const _: () = assert!(DATA_START == 4);

#[cfg(test)]
mod tests;
