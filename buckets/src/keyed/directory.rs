//! The directory: what is in the file and where, small enough to stay in memory.
//!
//! Inside: the lives of the documents, the first and the last key; then of each row group the number of its rows, and of each
//! of its columns the lengths of the pages, their rows and their checksums; then the fences of its pages of keys, each as the
//! bytes it shares with the one before and the rest. The whole is one zstd frame, preceded by its raw length.

use super::delta::shared_len;
use super::pages::Pages;
use super::{Column, GROUP_ROWS, Lives};
use crate::segment::varint::{self, Cursor};

/// Far larger than any directory: a greater raw length is damage.
const RAW_BYTES_MAX: u32 = 1 << 30;
/// Where the data begins: after "PAR1".
pub(super) const DATA_START: u64 = 4;

/// For each page of keys the fewest bytes that are greater than every key before it and not greater than any in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fences {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Fences {
    /// Adds the fence of a page that begins with `first`, after one that ends with `before`.
    pub(super) fn push(&mut self, before: &[u8], first: &[u8]) {
        let needed = (shared_len(before, first) + 1).min(first.len());
        self.push_whole(&first[..needed]);
    }

    fn push_whole(&mut self, fence: &[u8]) {
        self.bytes.extend(fence);
        self.ends.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    pub(super) fn get(&self, page: usize) -> &[u8] {
        let start = if page == 0 { 0 } else { self.ends[page - 1] };
        &self.bytes[start as usize..self.ends[page] as usize]
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The only page in which a key can be; `None` if it is before the first.
    pub(super) fn page_of(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle) <= key { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

/// A row group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Group {
    /// Its first row among those of the file.
    pub(super) first_row: u32,
    pub(super) columns: [Pages; Column::ALL.len()],
    /// One for each page of keys.
    pub(super) fences: Fences,
}

impl Group {
    pub(super) fn rows(&self) -> u32 {
        self.columns[0].rows()
    }

    pub(super) fn pages(&self, column: Column) -> &Pages {
        &self.columns[column.at()]
    }
}

/// What a directory says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) lives: Lives,
    pub(super) first_key: Vec<u8>,
    pub(super) last_key: Vec<u8>,
    pub(super) groups: Vec<Group>,
}

impl Directory {
    pub(super) fn rows(&self) -> u32 {
        self.groups.last().map_or(0, |group| group.first_row + group.rows())
    }

    /// Where the data ends.
    pub(super) fn data_end(&self) -> u64 {
        self.groups.last().and_then(|group| group.columns.last()).map_or(DATA_START, Pages::end)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let of_group = |group: &Group| {
            group.columns.iter().map(Pages::memory_bytes).sum::<usize>()
                + group.fences.memory_bytes()
                + size_of::<Group>()
        };
        self.groups.iter().map(of_group).sum::<usize>() + self.first_key.len() + self.last_key.len()
    }

    /// The directory as it is in the file.
    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let lives = &self.lives;
        [lives.inheriting, lives.own, lives.never].into_iter().for_each(|n| varint::put_u64(&mut out, n));
        let bounds = [
            (lives.inheriting, lives.written_min_inheriting, lives.written_max_inheriting),
            (lives.own, lives.expires_min_own, lives.expires_max_own),
        ];
        for (_, min, max) in bounds.into_iter().filter(|(rows, ..)| *rows > 0) {
            varint::put_i64(&mut out, min.unwrap_or(i64::MIN));
            varint::put_i64(&mut out, max.unwrap_or(i64::MAX));
        }
        varint::put_bytes(&mut out, &self.first_key);
        varint::put_bytes(&mut out, &self.last_key);
        varint::put_u64(&mut out, self.groups.len() as u64);
        for group in &self.groups {
            varint::put_u64(&mut out, u64::from(group.rows()));
            group.columns.iter().for_each(|pages| put_pages(&mut out, pages));
            let mut before: &[u8] = &[];
            for page in 0..group.fences.count() {
                let fence = group.fences.get(page);
                let shared = shared_len(before, fence);
                varint::put_u64(&mut out, shared as u64);
                varint::put_bytes(&mut out, &fence[shared..]);
                before = fence;
            }
        }
        let raw_len = u32::try_from(out.len()).ok().filter(|len| *len <= RAW_BYTES_MAX);
        let mut framed = raw_len.ok_or("the directory is too large")?.to_le_bytes().to_vec();
        framed.extend(zstd::bulk::compress(&out, 1).map_err(|e| e.to_string())?);
        Ok(framed)
    }

    /// Reads a directory whose checksum was verified.
    pub(super) fn decode(framed: &[u8]) -> Result<Directory, String> {
        let (len, frame) = framed.split_first_chunk::<4>().ok_or("shorter than its length")?;
        let len = u32::from_le_bytes(*len);
        if len > RAW_BYTES_MAX {
            return Err(format!("raw length {len} is more than {RAW_BYTES_MAX}"));
        }
        let raw = zstd::bulk::decompress(frame, len as usize).map_err(|e| e.to_string())?;
        if raw.len() != len as usize {
            return Err(format!("{} bytes where {len} are expected", raw.len()));
        }
        Directory::decode_raw(&raw)
    }

    fn decode_raw(raw: &[u8]) -> Result<Directory, String> {
        let mut cursor = Cursor::new(raw);
        let (inheriting, own, never) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let mut bounds = |rows: u64| match rows {
            0 => Ok((None, None)),
            _ => Ok::<_, String>((Some(cursor.i64()?), Some(cursor.i64()?))),
        };
        let (written_min_inheriting, written_max_inheriting) = bounds(inheriting)?;
        let (expires_min_own, expires_max_own) = bounds(own)?;
        let lives = Lives {
            inheriting,
            own,
            never,
            written_min_inheriting,
            written_max_inheriting,
            expires_min_own,
            expires_max_own,
        };
        let (first_key, last_key) = (cursor.bytes()?.to_vec(), cursor.bytes()?.to_vec());
        let count = cursor.count()?;
        let mut groups = Vec::new();
        let (mut at, mut first_row) = (DATA_START, 0_u32);
        for number in 0..count {
            let group = decode_group(&mut cursor, at, first_row).map_err(|e| format!("row group {number}: {e}"))?;
            at = group.columns[Column::Document.at()].end();
            first_row = first_row.checked_add(group.rows()).ok_or("more rows than can be")?;
            groups.push(group);
        }
        if cursor.at() != raw.len() {
            return Err(format!("bytes after its end at {}", cursor.at()));
        }
        let directory = Directory { lives, first_key, last_key, groups };
        let counted = inheriting.checked_add(own).and_then(|rows| rows.checked_add(never));
        if count == 0 || counted != Some(u64::from(directory.rows())) || directory.rows() == u32::MAX {
            return Err(format!("{} rows in {count} groups, and lives of {counted:?}", directory.rows()));
        }
        Ok(directory)
    }
}

fn put_pages(out: &mut Vec<u8>, pages: &Pages) {
    varint::put_u64(out, pages.count() as u64);
    (0..pages.count()).for_each(|page| varint::put_u64(out, len_of(pages.place(page))));
    (0..pages.count()).for_each(|page| varint::put_u64(out, pages.rows_of(page).len() as u64));
    pages.checksums.iter().for_each(|checksum| out.extend(checksum.to_le_bytes()));
}

fn len_of(place: std::ops::Range<u64>) -> u64 {
    place.end - place.start
}

fn decode_group(cursor: &mut Cursor<'_>, start: u64, first_row: u32) -> Result<Group, String> {
    let rows = u32::try_from(cursor.u64()?).ok().filter(|rows| (1..=GROUP_ROWS).contains(rows));
    let rows = rows.ok_or_else(|| format!("has no rows or more than {GROUP_ROWS}"))?;
    let mut group = Group { first_row, ..Group::default() };
    let mut at = start;
    for column in Column::ALL {
        let pages = decode_pages(cursor, at)?;
        if pages.rows() != rows {
            return Err(format!("{} rows in column {}, expected {rows}", pages.rows(), column.at()));
        }
        at = pages.end();
        group.columns[column.at()] = pages;
    }
    let mut before: Vec<u8> = Vec::new();
    for page in 0..group.pages(Column::Key).count() {
        let shared = usize::try_from(cursor.u64()?).ok().filter(|shared| *shared <= before.len());
        let mut fence = before[..shared.ok_or("a fence shares more than there is")?].to_vec();
        fence.extend(cursor.bytes()?);
        if page > 0 && fence <= before {
            return Err("fences out of order".to_owned());
        }
        if group.fences.bytes.len() + fence.len() > RAW_BYTES_MAX as usize {
            return Err("more bytes of fences than a directory has".to_owned());
        }
        group.fences.push_whole(&fence);
        before = fence;
    }
    group.fences.bytes.shrink_to_fit();
    group.fences.ends.shrink_to_fit();
    Ok(group)
}

fn decode_pages(cursor: &mut Cursor<'_>, start: u64) -> Result<Pages, String> {
    let count = cursor.count()?;
    // Each page takes a byte or more in each of two lists, and four for its checksum.
    let lists = cursor.rest().len() / 6;
    if count == 0 || count > lists {
        return Err(format!("{count} pages, and room for {lists}"));
    }
    let ends = |cursor: &mut Cursor<'_>| {
        let (mut end, mut ends) = (Some(0_u32), Vec::with_capacity(count));
        cursor.numbers(count, |more| {
            let more = u32::try_from(more).ok().filter(|more| *more > 0);
            end = end.zip(more).and_then(|(end, more)| end.checked_add(more));
            ends.push(end.unwrap_or_default());
        })?;
        end.map(|_| ends).ok_or_else(|| "an empty page, or more than 2^32 bytes or rows".to_owned())
    };
    let (ends, row_ends) = (ends(cursor)?, ends(cursor)?);
    let checksums = cursor.take(count * 4)?.as_chunks::<4>().0.iter().map(|c| u32::from_le_bytes(*c)).collect();
    start.checked_add(u64::from(u32::MAX)).ok_or("offsets overflow")?;
    Ok(Pages { start, ends, row_ends, checksums })
}
