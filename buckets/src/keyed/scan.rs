//! Rows in order, a page at a time.

use super::delta::{self, Keys};
use super::directory::Group;
use super::page;
use super::reader::{Inner, KeyedReader};
use super::{Column, PAGE_BYTES_MAX};
use crate::counts::to_usize;
use crate::segment::SegmentError;
use crate::segment::varint::Cursor;
use bytes::Bytes;
use roaring::RoaringBitmap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of pages that are read at once.
const READ_BYTES: u64 = 256 << 10;

/// Which columns a scan reads besides the instants of writes and the lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyedColumns {
    /// The keys.
    pub keys: bool,
    /// The documents.
    pub documents: bool,
}

/// Rows of a segment. All lists that were asked for have one entry a row; the others are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyedBlock {
    /// The numbers of the rows, ascending.
    pub rows: Vec<u32>,
    /// Their keys.
    pub keys: Vec<Bytes>,
    /// The instants of their last writes, in milliseconds since 1970.
    pub written: Vec<i64>,
    /// Their own lives in seconds, -1 for ever, where they have one.
    pub ttls: Vec<Option<i64>>,
    /// Their documents, as they were given to the writer.
    pub documents: Vec<Bytes>,
}

/// The rows of a segment, a block at a time: see [`KeyedReader::scan`].
#[derive(Debug)]
pub struct KeyedScan {
    inner: Arc<Inner>,
    not_wanted: RoaringBitmap,
    rows: Range<u32>,
    keys: Option<Pager<Vec<Bytes>>>,
    written: Pager<Vec<i64>>,
    ttls: Pager<Vec<Option<i64>>>,
    documents: Option<Pager<Vec<Bytes>>>,
}

impl KeyedReader {
    /// The rows of a range in order, without those in `not_wanted`. A block has the rows that lie in the same pages; memory
    /// holds a page of each column, and what is read ahead of it. After an error there is nothing more.
    #[must_use]
    pub fn scan(&self, not_wanted: &RoaringBitmap, rows: Range<u32>, columns: KeyedColumns) -> KeyedScan {
        let end = rows.end.min(self.rows());
        KeyedScan {
            inner: self.0.clone(),
            not_wanted: not_wanted.clone(),
            rows: rows.start.min(end)..end,
            keys: columns.keys.then(|| Pager::new(Column::Key)),
            written: Pager::new(Column::Written),
            ttls: Pager::new(Column::Ttl),
            documents: columns.documents.then(|| Pager::new(Column::Document)),
        }
    }

    /// When all rows were written and how long they live, in order: a scan that reads neither keys nor documents.
    #[must_use]
    pub fn expiries(&self) -> KeyedScan {
        self.scan(&RoaringBitmap::new(), 0..self.rows(), KeyedColumns { keys: false, documents: false })
    }
}

impl KeyedScan {
    /// The next block, which may have lost all of its rows to `not_wanted`.
    fn block(&mut self) -> Result<KeyedBlock, SegmentError> {
        let groups = &self.inner.directory.groups;
        let at = groups.partition_point(|group| group.first_row <= self.rows.start).saturating_sub(1);
        let group = &groups[at];
        let start = self.rows.start - group.first_row;
        let mut end = (self.rows.end - group.first_row).min(group.rows());
        // The smallest pages decide where the block ends; without them the instants'.
        let of_blocks = match (&self.documents, &self.keys) {
            (Some(_), _) => Column::Document,
            (None, Some(_)) => Column::Key,
            (None, None) => Column::Ttl,
        };
        let pages = group.pages(of_blocks);
        end = end.min(pages.rows_of(pages.page_of(start)).end);
        self.rows.start = group.first_row + end;
        let all = group.first_row + start..group.first_row + end;
        let lost = self.not_wanted.range_cardinality(all.clone());
        let mut block = KeyedBlock::default();
        if lost == u64::from(end - start) {
            return Ok(block);
        }
        let mut places: Vec<u32> = (start..end).collect();
        if lost > 0 {
            places.retain(|row| !self.not_wanted.contains(group.first_row + row));
        }
        let (inner, ahead) = (&*self.inner, self.rows.end);
        block.written = self.written.take(inner, at, &places, ahead)?;
        block.ttls = self.ttls.take(inner, at, &places, ahead)?;
        if let Some(keys) = &mut self.keys {
            block.keys = keys.take(inner, at, &places, ahead)?;
        }
        if let Some(documents) = &mut self.documents {
            block.documents = documents.take(inner, at, &places, ahead)?;
        }
        places.iter_mut().for_each(|row| *row += group.first_row);
        block.rows = places;
        Ok(block)
    }
}

impl Iterator for KeyedScan {
    type Item = Result<KeyedBlock, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rows.is_empty() {
            match self.block() {
                Ok(block) if block.rows.is_empty() => {}
                Ok(block) => return Some(Ok(block)),
                Err(error) => {
                    self.rows.start = self.rows.end;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// The values of a page, as a list.
trait Decode: Sized {
    type Item: Clone;

    fn decode(column: Column, values: &Bytes, rows: usize) -> Result<Self, String>;
    fn item(&self, at: usize) -> Self::Item;
}

impl Decode for Vec<i64> {
    type Item = i64;

    fn decode(_: Column, values: &Bytes, rows: usize) -> Result<Self, String> {
        let mut cursor = Cursor::new(values);
        let numbers = delta::numbers(&mut cursor, rows)?;
        if cursor.at() == values.len() { Ok(numbers) } else { Err("bytes after the last number".to_owned()) }
    }

    fn item(&self, at: usize) -> i64 {
        self[at]
    }
}

impl Decode for Vec<Option<i64>> {
    type Item = Option<i64>;

    fn decode(_: Column, values: &Bytes, rows: usize) -> Result<Self, String> {
        page::optional(values, rows)
    }

    fn item(&self, at: usize) -> Option<i64> {
        self[at]
    }
}

impl Decode for Vec<Bytes> {
    type Item = Bytes;

    fn decode(column: Column, values: &Bytes, rows: usize) -> Result<Self, String> {
        if column == Column::Document {
            return page::shared_strings(values, rows);
        }
        let keys = Keys::decode(values, rows, PAGE_BYTES_MAX)?;
        let (bytes, mut start) = (Bytes::from(keys.bytes), 0);
        Ok(keys.ends.iter().map(|end| bytes.slice(std::mem::replace(&mut start, *end)..*end)).collect())
    }

    fn item(&self, at: usize) -> Bytes {
        self[at].clone()
    }
}

/// A column that is read from front to back: its present page, and bytes that were read ahead.
#[derive(Debug)]
struct Pager<T> {
    column: Column,
    /// The row group and the page that `page` is.
    at: Option<(usize, usize)>,
    page: Option<T>,
    ahead: Bytes,
    ahead_start: u64,
}

impl<T: Decode> Pager<T> {
    fn new(column: Column) -> Pager<T> {
        Pager { column, at: None, page: None, ahead: Bytes::new(), ahead_start: 0 }
    }

    /// The values of rows of a group, ascending. `rows_end` is the last row of the file that will be asked for.
    fn take(&mut self, inner: &Inner, group: usize, rows: &[u32], rows_end: u32) -> Result<Vec<T::Item>, SegmentError> {
        let in_file = &inner.directory.groups[group];
        let pages = in_file.pages(self.column);
        let mut taken = Vec::with_capacity(rows.len());
        let mut left = rows;
        while let Some(row) = left.first() {
            let number = pages.page_of(*row);
            let of_page = pages.rows_of(number);
            let page = self.page(inner, (group, number), rows_end)?;
            let (here, rest) = left.split_at(left.partition_point(|row| *row < of_page.end));
            taken.extend(here.iter().map(|row| page.item(to_usize(u64::from(row - of_page.start)))));
            left = rest;
        }
        Ok(taken)
    }

    fn page(&mut self, inner: &Inner, at: (usize, usize), rows_end: u32) -> Result<&T, SegmentError> {
        let page = match self.page.take() {
            Some(page) if self.at == Some(at) => page,
            _ => {
                let group = &inner.directory.groups[at.0];
                let bytes = self.bytes(inner, group, at.1, rows_end)?;
                let values = inner.values_of(group, self.column, at.1, &bytes)?;
                let rows = group.pages(self.column).rows_of(at.1).len();
                let decoded = T::decode(self.column, &values, rows);
                decoded.map_err(|message| inner.bad(group, self.column, at.1, &message))?
            }
        };
        self.at = Some(at);
        Ok(self.page.insert(page))
    }

    /// The bytes of a page, read with those after it that will be needed.
    fn bytes(&mut self, inner: &Inner, group: &Group, page: usize, rows_end: u32) -> Result<Bytes, SegmentError> {
        let pages = group.pages(self.column);
        let place = pages.place(page);
        if place.start < self.ahead_start || place.end > self.ahead_start + self.ahead.len() as u64 {
            let last = rows_end.saturating_sub(group.first_row).clamp(1, group.rows()) - 1;
            let needed = pages.place(pages.page_of(last)).end;
            // Whole pages, as many as fit.
            let ends = pages.ends.partition_point(|end| pages.start + u64::from(*end) <= place.start + READ_BYTES);
            let end = pages.place(ends.max(page + 1) - 1).end.min(needed).max(place.end);
            self.ahead = inner.bytes(place.start..end)?;
            self.ahead_start = place.start;
        }
        let start = to_usize(place.start - self.ahead_start);
        Ok(self.ahead.slice(start..start + to_usize(place.end - place.start)))
    }
}
