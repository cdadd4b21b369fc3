//! An open segment: look-ups by key and by row.

use super::delta::{self, Keys};
use super::directory::{Directory, Group};
use super::page;
use super::{Column, FORMAT_VERSION, KEY_KEYED, KeyedMeta, Lives, PAGE_BYTES_MAX, StoredDocument};
use crate::counts::to_usize;
use crate::segment::varint::Cursor;
use crate::segment::{ReadAt, SegmentError, Tail, asserted, check_footer, directory_len, read_tail};
use bytes::Bytes;
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use std::sync::Arc;

/// An open segment of an ordinary collection. Clones share what is in memory.
#[derive(Debug, Clone)]
pub struct KeyedReader(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) name: String,
    pub(super) file: Arc<dyn ReadAt>,
    pub(super) directory: Directory,
    /// One for each row group.
    pub(super) filters: Vec<Sbbf>,
    pub(super) checksum: u32,
}

impl KeyedReader {
    /// Reads and checks footer, filters and directory.
    ///
    /// # Errors
    /// If they are damaged, of another version or another kind of file, or cannot be read.
    pub fn open(file: Arc<dyn ReadAt>, name: &str) -> Result<KeyedReader, SegmentError> {
        let (data_end, tail, checksum) = read_tail(&*file, name)?;
        let bad = |offset: u64, message: String| SegmentError::new(name, offset, message);
        let footer_at = file.len().saturating_sub(8);
        let footer = |message: String| bad(footer_at, format!("footer: {message}"));
        let tail = Tail { start: data_end, bytes: tail };
        let metadata = metadata(&tail, PageIndexPolicy::Skip).map_err(footer)?;
        let pairs = metadata.file_metadata().key_value_metadata();
        let place = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == KEY_KEYED)?.value.clone());
        let place = place.ok_or_else(|| footer(format!("no key {KEY_KEYED}")))?;
        let len = directory_len(&place, data_end, FORMAT_VERSION).map_err(footer)?;
        let framed =
            tail.bytes.get(..len).ok_or_else(|| bad(data_end, format!("directory: {len} bytes are not there")))?;
        let directory = Directory::decode(framed).map_err(|message| bad(data_end, format!("directory: {message}")))?;
        if directory.data_end() != data_end {
            let message = format!("directory: pages to {}, the data ends at {data_end}", directory.data_end());
            return Err(bad(data_end, message));
        }
        check_footer(&metadata, u64::from(directory.rows()), data_end).map_err(footer)?;
        let filters = filters(&metadata, &tail).map_err(footer)?;
        if filters.len() != directory.groups.len() {
            return Err(footer(format!("{} row groups, expected {}", filters.len(), directory.groups.len())));
        }
        Ok(KeyedReader(Arc::new(Inner { name: name.to_owned(), file, directory, filters, checksum })))
    }

    /// The name that it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The checksum of the tail, which identifies the file.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.0.checksum
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.0.directory.rows()
    }

    /// When its documents expire.
    #[must_use]
    pub fn lives(&self) -> &Lives {
        &self.0.directory.lives
    }

    /// What the manifest keeps of it.
    #[must_use]
    pub fn meta(&self) -> KeyedMeta {
        let directory = &self.0.directory;
        KeyedMeta {
            rows: u64::from(directory.rows()),
            bytes: self.0.file.len(),
            checksum: self.0.checksum,
            lives: directory.lives,
            first_key: directory.first_key.clone(),
            last_key: directory.last_key.clone(),
        }
    }

    /// The approximate memory of an open segment in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let filters: usize = self.0.filters.iter().map(|filter| filter.num_blocks() * 32).sum();
        size_of::<Inner>() + self.0.directory.memory_bytes() + filters
    }

    /// Whether the key may be in the segment: `false` is certain, `true` is wrong for about one absent key in a hundred.
    /// Nothing is read.
    #[must_use]
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.place(key).is_some()
    }

    /// The row group and the page of keys in which a key may be.
    pub(super) fn place(&self, key: &[u8]) -> Option<(usize, usize)> {
        let directory = &self.0.directory;
        if key < directory.first_key.as_slice() || key > directory.last_key.as_slice() {
            return None;
        }
        let group = directory.groups.partition_point(|group| group.fences.get(0) <= key).checked_sub(1)?;
        if !self.0.filters[group].check(key) {
            return None;
        }
        Some((group, directory.groups[group].fences.page_of(key)?))
    }

    /// The row of a key.
    ///
    /// # Errors
    /// If the page of keys is damaged or cannot be read.
    pub fn find(&self, key: &[u8]) -> Result<Option<u32>, SegmentError> {
        self.place(key).map_or(Ok(None), |place| self.find_at(place, key))
    }

    /// The row of a key, which is at this place if it is anywhere.
    fn find_at(&self, (group, page): (usize, usize), key: &[u8]) -> Result<Option<u32>, SegmentError> {
        let group = &self.0.directory.groups[group];
        let found = self.0.keys(group, page)?.search(key).ok();
        Ok(found.map(|at| group.first_row + group.pages(Column::Key).rows_of(page).start + row_number(at)))
    }

    /// The first row whose key is not less than this one; the number of rows if there is none.
    ///
    /// # Errors
    /// If the page of keys is damaged or cannot be read.
    pub fn lower_bound(&self, key: &[u8]) -> Result<u32, SegmentError> {
        let groups = &self.0.directory.groups;
        let Some(at) = groups.partition_point(|group| group.fences.get(0) <= key).checked_sub(1) else {
            return Ok(0);
        };
        let group = &groups[at];
        let Some(page) = group.fences.page_of(key) else { return Ok(group.first_row) };
        let (Ok(in_page) | Err(in_page)) = self.0.keys(group, page)?.search(key);
        Ok(group.first_row + group.pages(Column::Key).rows_of(page).start + row_number(in_page))
    }

    /// The document of a row.
    ///
    /// # Errors
    /// If there is no such row, or its pages are damaged or cannot be read.
    pub fn get(&self, row: u32) -> Result<StoredDocument, SegmentError> {
        let (group, in_group) = self.0.group_of(row)?;
        let documents = group.pages(Column::Document);
        let page = documents.page_of(in_group);
        let values = self.0.values(group, Column::Document, page)?;
        let rows = documents.rows_of(page);
        let document = page::string(&values, to_usize(u64::from(in_group - rows.start)))
            .map_err(|message| self.0.bad(group, Column::Document, page, &message))?;
        let document = Bytes::copy_from_slice(document);
        Ok(StoredDocument { written: self.0.written(group, in_group)?, document })
    }

    /// The key of a row.
    ///
    /// # Errors
    /// If there is no such row, or its page is damaged or cannot be read.
    pub fn key(&self, row: u32) -> Result<Bytes, SegmentError> {
        let (group, in_group) = self.0.group_of(row)?;
        let pages = group.pages(Column::Key);
        let page = pages.page_of(in_group);
        let keys = self.0.keys(group, page)?;
        Ok(Bytes::copy_from_slice(keys.get(to_usize(u64::from(in_group - pages.rows_of(page).start)))))
    }

    /// The instant of a row's last write, in milliseconds since 1970.
    ///
    /// # Errors
    /// If there is no such row, or its page is damaged or cannot be read.
    pub fn written(&self, row: u32) -> Result<i64, SegmentError> {
        let (group, in_group) = self.0.group_of(row)?;
        self.0.written(group, in_group)
    }

    /// The row and the document of a key.
    ///
    /// # Errors
    /// If a page that is needed is damaged or cannot be read.
    pub fn find_document(&self, key: &[u8]) -> Result<Option<(u32, StoredDocument)>, SegmentError> {
        self.find_document_unless(key, |_| false)
    }

    /// The row and the document of a key, unless the row is gone: then the document is not read.
    ///
    /// # Errors
    /// If a page that is needed is damaged or cannot be read.
    pub fn find_document_unless(
        &self,
        key: &[u8],
        is_gone: impl Fn(u32) -> bool,
    ) -> Result<Option<(u32, StoredDocument)>, SegmentError> {
        // The filter comes first: most segments do not have the key.
        let Some(place) = self.place(key) else { return Ok(None) };
        let Some(row) = self.find_at(place, key)?.filter(|row| !is_gone(*row)) else { return Ok(None) };
        Ok(Some((row, self.get(row)?)))
    }
}

impl Inner {
    /// An error about a page.
    pub(super) fn bad(&self, group: &Group, column: Column, page: usize, message: &str) -> SegmentError {
        let pages = group.pages(column);
        let offset = pages.place(page).start;
        SegmentError::new(&self.name, offset, format!("data: page {page} of column {}: {message}", column.at()))
    }

    /// A row group and the row's place in it.
    fn group_of(&self, row: u32) -> Result<(&Group, u32), SegmentError> {
        let groups = &self.directory.groups;
        let at = groups.partition_point(|group| group.first_row <= row).checked_sub(1);
        let group = at.map(|at| &groups[at]).filter(|group| row - group.first_row < group.rows());
        let missing =
            || SegmentError::new(&self.name, 0, format!("there is no row {row} of {}", self.directory.rows()));
        group.map(|group| (group, row - group.first_row)).ok_or_else(missing)
    }

    /// Bytes of the file.
    pub(super) fn bytes(&self, place: std::ops::Range<u64>) -> Result<Bytes, SegmentError> {
        let len = to_usize(place.end - place.start);
        let bytes =
            self.file.read_at(place.start, len).map_err(|e| SegmentError::unread(&self.name, place.start, &e))?;
        match bytes.len() == len {
            true => Ok(bytes),
            false => {
                let message = format!("{len} bytes expected, {} read", bytes.len());
                Err(SegmentError::new(&self.name, place.start, message))
            }
        }
    }

    /// The values of a page, checked and decompressed.
    fn values(&self, group: &Group, column: Column, page: usize) -> Result<Bytes, SegmentError> {
        let bytes = self.bytes(group.pages(column).place(page))?;
        self.values_of(group, column, page, &bytes)
    }

    /// Compares the bytes of a page with their checksum.
    pub(super) fn check(&self, group: &Group, column: Column, page: usize, bytes: &Bytes) -> Result<(), SegmentError> {
        let (expected, found) = (group.pages(column).checksums[page], crc32fast::hash(bytes));
        match expected == found {
            true => Ok(()),
            false => {
                let message = format!("checksum expected={expected:#010x} found={found:#010x}");
                Err(self.bad(group, column, page, &message))
            }
        }
    }

    /// The values of a page whose bytes have been read.
    pub(super) fn values_of(
        &self,
        group: &Group,
        column: Column,
        page: usize,
        bytes: &Bytes,
    ) -> Result<Bytes, SegmentError> {
        let pages = group.pages(column);
        self.check(group, column, page, bytes)?;
        let values = page::split(bytes, pages.rows_of(page).len(), column.encoding()).and_then(|(raw, stored)| {
            match column.is_compressed() {
                true => page::decompress(stored, raw).map(Bytes::from),
                false if stored.len() == raw => Ok(bytes.slice_ref(stored)),
                false => Err(format!("{} bytes, its header says {raw}", stored.len())),
            }
        });
        values.map_err(|message| self.bad(group, column, page, &message))
    }

    /// The keys of a page.
    fn keys(&self, group: &Group, page: usize) -> Result<Keys, SegmentError> {
        let rows = group.pages(Column::Key).rows_of(page).len();
        Keys::decode(&self.values(group, Column::Key, page)?, rows, PAGE_BYTES_MAX)
            .map_err(|message| self.bad(group, Column::Key, page, &message))
    }

    /// When a row of a group was written.
    fn written(&self, group: &Group, in_group: u32) -> Result<i64, SegmentError> {
        let pages = group.pages(Column::Written);
        let page = pages.page_of(in_group);
        let rows = pages.rows_of(page);
        let values = self.values(group, Column::Written, page)?;
        let written = delta::numbers(&mut Cursor::new(&values), rows.len())
            .map_err(|message| self.bad(group, Column::Written, page, &message))?;
        Ok(written[to_usize(u64::from(in_group - rows.start))])
    }
}

/// The footer.
pub(super) fn metadata(tail: &Tail, offset_index: PageIndexPolicy) -> Result<ParquetMetaData, String> {
    let parse = || {
        ParquetMetaDataReader::new()
            .with_offset_index_policy(offset_index)
            .with_column_index_policy(PageIndexPolicy::Skip)
            .parse_and_finish(tail)
    };
    asserted(parse).map_err(|e| e.to_string())
}

/// The filters of all row groups.
fn filters(metadata: &ParquetMetaData, tail: &Tail) -> Result<Vec<Sbbf>, String> {
    let mut filters = Vec::with_capacity(metadata.num_row_groups());
    for (at, group) in metadata.row_groups().iter().enumerate() {
        let column = group.columns().first().ok_or_else(|| format!("row group {at} has no columns"))?;
        let filter = asserted(|| Sbbf::read_from_column_chunk(column, tail));
        let filter = filter.map_err(|e| format!("filter of row group {at}: {e}"))?;
        let filter = filter.filter(|filter| filter.num_blocks() > 0);
        filters.push(filter.ok_or_else(|| format!("row group {at} has no filter"))?);
    }
    Ok(filters)
}

fn row_number(at: usize) -> u32 {
    crate::counts::to_number(at)
}
