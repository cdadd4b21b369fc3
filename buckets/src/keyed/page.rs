//! One page: its header, its compression, and the values in it.

use super::PAGE_BYTES_MAX;
use crate::segment::varint::{self, Cursor};
use bytes::Bytes;
use std::cell::RefCell;
use std::io;

/// How the values of a page are encoded: the numbers that Parquet has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageEncoding {
    Plain = 0,
    DeltaBinaryPacked = 5,
    DeltaByteArray = 7,
}

/// The encoding of levels, which says RLE also where there are none.
const LEVELS: i64 = 3;
/// The heads of the fields of a page header in Thrift's compact protocol: the next field, a number; the field three places on
/// that is a structure; the end of a structure.
const NUMBER: u8 = 0x15;
const DATA_PAGE: u8 = 0x2C;
const END: u8 = 0;

/// Appends the header of a data page.
pub(super) fn put_header(out: &mut Vec<u8>, raw: usize, stored: usize, rows: usize, encoding: PageEncoding) {
    let number = |len: usize| i64::try_from(len).unwrap_or(i64::MAX);
    let mut put = |value: i64| {
        out.push(NUMBER);
        varint::put_i64(out, value);
    };
    put(0);
    put(number(raw));
    put(number(stored));
    out.push(DATA_PAGE);
    let mut put = |value: i64| {
        out.push(NUMBER);
        varint::put_i64(out, value);
    };
    put(number(rows));
    put(encoding as i64);
    put(LEVELS);
    put(LEVELS);
    out.extend([END, END]);
}

/// Reads the header of a page with `rows` rows in this encoding: the values' length before compression, and the
/// values as they are stored. Only what [`put_header`] writes is a header.
pub(super) fn split(page: &[u8], rows: usize, encoding: PageEncoding) -> Result<(usize, &[u8]), String> {
    let mut cursor = Cursor::new(page);
    let mut next = |head: u8| match cursor.byte()? {
        found if found == head && head == NUMBER => cursor.i64(),
        found if found == head => Ok(0),
        found => Err(format!("{found:#04x} where {head:#04x} is expected")),
    };
    let (kind, raw, stored) = (next(NUMBER)?, next(NUMBER)?, next(NUMBER)?);
    next(DATA_PAGE)?;
    let (found_rows, found_encoding) = (next(NUMBER)?, next(NUMBER)?);
    let levels = (next(NUMBER)?, next(NUMBER)?);
    next(END)?;
    next(END)?;
    let values = &page[cursor.at()..];
    let raw = usize::try_from(raw).ok().filter(|raw| *raw <= PAGE_BYTES_MAX);
    let (Some(raw), 0, true) = (raw, kind, levels == (LEVELS, LEVELS)) else {
        return Err("its header is not one of a data page of at most 65 MiB".to_owned());
    };
    if usize::try_from(found_rows) != Ok(rows) || found_encoding != encoding as i64 {
        return Err(format!("{found_rows} rows in encoding {found_encoding}, expected {rows} in {}", encoding as i64));
    }
    if usize::try_from(stored) != Ok(values.len()) {
        return Err(format!("{} bytes, its header says {stored}", values.len()));
    }
    Ok((raw, values))
}

thread_local! {
    /// To make one takes longer than to decompress a page.
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Decompresses values that take `raw` bytes when decompressed.
pub(super) fn decompress(stored: &[u8], raw: usize) -> Result<Vec<u8>, String> {
    let mut values = Vec::with_capacity(raw);
    let failed = |error: io::Error| format!("zstd: {error}");
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let zstd = match kept {
            Some(zstd) => zstd,
            None => kept.insert(zstd::bulk::Decompressor::new().map_err(failed)?),
        };
        zstd.decompress_to_buffer(stored, &mut values).map_err(failed)
    })?;
    if values.len() == raw { Ok(values) } else { Err(format!("{} bytes, its header says {raw}", values.len())) }
}

/// The ranges of the byte strings in a page of plain ones.
pub(super) fn strings(values: &[u8], rows: usize) -> Result<Vec<std::ops::Range<usize>>, String> {
    let mut ranges = Vec::with_capacity(rows);
    let mut at = 0_usize;
    for _ in 0..rows {
        let range = string_at(values, at)?;
        at = range.end;
        ranges.push(range);
    }
    if at == values.len() { Ok(ranges) } else { Err(format!("{} bytes after the last value", values.len() - at)) }
}

fn string_at(values: &[u8], at: usize) -> Result<std::ops::Range<usize>, String> {
    let len = values.get(at..).and_then(<[u8]>::first_chunk::<4>).map(|len| u32::from_le_bytes(*len) as usize);
    let start = at + 4;
    let range = len.and_then(|len| Some(start..start.checked_add(len)?)).filter(|range| range.end <= values.len());
    range.ok_or_else(|| format!("a value at byte {at} is longer than what is left"))
}

/// One of the byte strings in a page of plain ones.
pub(super) fn string(values: &[u8], row: usize) -> Result<&[u8], String> {
    let mut range = string_at(values, 0)?;
    for _ in 0..row {
        range = string_at(values, range.end)?;
    }
    Ok(&values[range])
}

/// Appends numbers of which some are missing, as levels and the values that are there.
pub(super) fn put_optional(out: &mut Vec<u8>, numbers: &[Option<i64>]) {
    let present = numbers.iter().flatten().count();
    let mut levels = Vec::new();
    if present == 0 || present == numbers.len() {
        varint::put_u64(&mut levels, (numbers.len() as u64) << 1);
        levels.push(u8::from(present > 0));
    } else {
        let groups = numbers.len().div_ceil(8);
        varint::put_u64(&mut levels, (groups as u64) << 1 | 1);
        levels.extend(
            numbers
                .chunks(8)
                .map(|group| (0..).zip(group).fold(0, |bits, (at, number)| bits | u8::from(number.is_some()) << at)),
        );
    }
    out.extend(u32::try_from(levels.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(levels);
    numbers.iter().flatten().for_each(|number| out.extend(number.to_le_bytes()));
}

/// Reads exactly `rows` numbers, some of which may be missing.
pub(super) fn optional(values: &[u8], rows: usize) -> Result<Vec<Option<i64>>, String> {
    let (len, rest) = values.split_first_chunk::<4>().ok_or("no levels")?;
    let levels = rest.split_at_checked(u32::from_le_bytes(*len) as usize);
    let (levels, plain) = levels.ok_or("the levels are longer than the page")?;
    let mut cursor = Cursor::new(levels);
    let run = cursor.u64()?;
    let bits = &levels[cursor.at()..];
    let packed = run & 1 == 1;
    let expected = if packed { rows.div_ceil(8) as u64 } else { rows as u64 };
    if run >> 1 != expected || bits.len() != if packed { rows.div_ceil(8) } else { 1 } {
        return Err(format!("levels that are not those of {rows} rows"));
    }
    let is_there = |row: usize| match packed {
        true => bits[row / 8] >> (row % 8) & 1 == 1,
        false => bits[0] == 1,
    };
    let (numbers, odd) = plain.as_chunks::<8>();
    let mut numbers = numbers.iter();
    let mut all = Vec::with_capacity(rows);
    for row in 0..rows {
        all.push(match is_there(row) {
            true => Some(i64::from_le_bytes(*numbers.next().ok_or("fewer values than the levels say")?)),
            false => None,
        });
    }
    match numbers.next().is_none() && odd.is_empty() {
        true => Ok(all),
        false => Err("more values than the levels say".to_owned()),
    }
}

/// The byte strings in a page of plain ones, without copying them.
pub(super) fn shared_strings(values: &Bytes, rows: usize) -> Result<Vec<Bytes>, String> {
    Ok(strings(values, rows)?.into_iter().map(|range| values.slice(range)).collect())
}
