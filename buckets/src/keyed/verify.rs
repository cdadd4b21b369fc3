//! Reading everything once: checksums, order, counts, and that other programs are told the same.

use super::directory::DATA_START;
use super::reader::{KeyedReader, metadata};
use super::scan::KeyedColumns;
use super::{Column, Lives};
use crate::segment::{SegmentError, Tail, check_footer, read_tail};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use roaring::RoaringBitmap;

impl KeyedReader {
    /// Compares every byte with its checksum, and decodes nothing.
    ///
    /// # Errors
    /// The first page that is damaged.
    pub fn verify_checksums(&self) -> Result<(), SegmentError> {
        let inner = &self.0;
        self.verify_magic()?;
        for group in &inner.directory.groups {
            for column in Column::ALL {
                let pages = group.pages(column);
                for page in 0..pages.count() {
                    inner.check(group, column, page, &inner.bytes(pages.place(page))?)?;
                }
            }
        }
        Ok(())
    }

    fn verify_magic(&self) -> Result<(), SegmentError> {
        match *self.0.bytes(0..DATA_START)? == *b"PAR1" {
            true => Ok(()),
            false => Err(SegmentError::new(&self.0.name, 0, "does not begin with PAR1")),
        }
    }

    /// Reads and checks everything: every checksum, the order of the keys, that look-ups find them, the counts and bounds of
    /// lives, and that the footer says of the pages what the directory does.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify(&self) -> Result<(), SegmentError> {
        let inner = &self.0;
        let bad = |offset: u64, message: String| SegmentError::new(&inner.name, offset, message);
        self.verify_magic()?;
        self.verify_footer()?;
        let (mut lives, mut before): (Lives, Option<Vec<u8>>) = (Lives::default(), None);
        let all = KeyedColumns { keys: true, documents: true };
        for block in self.scan(&RoaringBitmap::new(), 0..self.rows(), all) {
            let block = block?;
            for (at, key) in block.keys.iter().enumerate() {
                let row = block.rows[at];
                let data_end = inner.directory.data_end();
                if before.as_deref().is_some_and(|before| before >= key.as_ref()) {
                    return Err(bad(data_end, format!("the key of row {row} is not greater than the one before")));
                }
                if row == 0 && **key != *inner.directory.first_key {
                    return Err(bad(data_end, "directory: the first key is another".to_owned()));
                }
                if !self.has_row(key, row) {
                    return Err(bad(data_end, format!("directory: the key of row {row} is not found")));
                }
                lives.add(block.written[at], block.ttls[at]);
                let before = before.get_or_insert_default();
                before.clear();
                before.extend(key.as_ref());
            }
        }
        if lives != inner.directory.lives {
            let message = format!("directory: lives {:?}, the rows have {lives:?}", inner.directory.lives);
            return Err(bad(inner.directory.data_end(), message));
        }
        if before.as_deref() != Some(inner.directory.last_key.as_slice()) {
            return Err(bad(inner.directory.data_end(), "directory: the last key is another".to_owned()));
        }
        Ok(())
    }

    /// The tail on disk is the one that was opened, and what its footer says for other programs is what the directory
    /// says.
    fn verify_footer(&self) -> Result<(), SegmentError> {
        let inner = &self.0;
        let (data_end, bytes, checksum) = read_tail(&*inner.file, &inner.name)?;
        let bad = |message: String| SegmentError::new(&inner.name, data_end, message);
        if checksum != inner.checksum || data_end != inner.directory.data_end() {
            return Err(bad("directory and footer are not those that were opened".to_owned()));
        }
        let metadata = metadata(&Tail { start: data_end, bytes }, PageIndexPolicy::Required)
            .map_err(|message| bad(format!("footer: {message}")))?;
        check_footer(&metadata, u64::from(self.rows()), data_end)
            .and_then(|()| self.same_pages(&metadata))
            .map_err(|message| bad(format!("footer: {message}")))
    }

    fn same_pages(&self, metadata: &ParquetMetaData) -> Result<(), String> {
        let index = metadata.offset_index().ok_or("no page index")?;
        for (number, group) in self.0.directory.groups.iter().enumerate() {
            let described = metadata.row_groups().get(number).ok_or("a row group is missing")?;
            for column in Column::ALL {
                let other = || format!("row group {number} has other pages in column {} than it should", column.at());
                let pages = group.pages(column);
                let chunk = described.columns().get(column.at()).ok_or_else(other)?;
                let locations = index.get(number).and_then(|group| group.get(column.at())).ok_or_else(other)?;
                let locations = locations.page_locations();
                let same = (0..pages.count()).zip(locations).all(|(page, location)| {
                    let (place, rows) = (pages.place(page), pages.rows_of(page));
                    u64::try_from(location.offset) == Ok(place.start)
                        && u64::try_from(location.compressed_page_size) == Ok(place.end - place.start)
                        && u32::try_from(location.first_row_index) == Ok(rows.start)
                });
                let chunk_is_same = u64::try_from(chunk.data_page_offset()) == Ok(pages.start)
                    && u32::try_from(chunk.compressed_size()) == Ok(pages.len())
                    && u32::try_from(chunk.num_values()) == Ok(group.rows())
                    && chunk.compression() == column.compression();
                if !same || !chunk_is_same || locations.len() != pages.count() {
                    return Err(other());
                }
            }
        }
        Ok(())
    }

    /// Whether the filter and the fences lead to the page of a row that has this key.
    fn has_row(&self, key: &[u8], row: u32) -> bool {
        let Some((group, page)) = self.place(key) else { return false };
        let group = &self.0.directory.groups[group];
        let rows = group.pages(Column::Key).rows_of(page);
        row.checked_sub(group.first_row).is_some_and(|row| rows.contains(&row))
    }
}
