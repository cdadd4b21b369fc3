//! The end of a segment: its footer and directory, checked against their checksum before anything in them is used.

use crate::counts::to_usize;
use crate::segment::{FORMAT_VERSION, KEY_DIRECTORY, ReadAt, SegmentError, TAIL_MARK};
use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

/// Bytes first read from the end of a file, which usually contain directory and footer.
const TAIL_GUESS_BYTES: u64 = 64 << 10;

/// The position of the eight hex digits of the tail's checksum in the last bytes of a file.
pub(in crate::segment) fn tail_checksum_at(bytes: &[u8]) -> Option<usize> {
    let digits = TAIL_MARK.len() + 16 + b";crc=".len();
    let at = bytes.windows(TAIL_MARK.len()).rposition(|window| window == TAIL_MARK)?;
    (at + digits + 8 <= bytes.len()).then_some(at + digits)
}

fn hex<T>(bytes: &[u8], parse: fn(&str, u32) -> Result<T, std::num::ParseIntError>) -> Option<T> {
    parse(std::str::from_utf8(bytes).ok()?, 16).ok()
}

pub(super) fn read_tail(file: &dyn ReadAt, name: &str) -> Result<(u64, Bytes, u32), SegmentError> {
    let len = file.len();
    let bad = |offset: u64, message: &str| SegmentError::new(name, offset, message);
    let read = |offset: u64, size: u64| {
        let size = usize::try_from(size).map_err(|_| bad(offset, "too large for this machine"))?;
        let bytes = file.read_at(offset, size).map_err(|e| SegmentError::unread(name, offset, &e))?;
        if bytes.len() == size { Ok(bytes) } else { Err(bad(offset, "ends early")) }
    };
    if len < 16 {
        return Err(bad(len, &format!("is {len} bytes long, which no segment is")));
    }
    let guess_at = len - TAIL_GUESS_BYTES.min(len);
    let mut end = read(guess_at, len - guess_at)?;
    let mut end_at = guess_at;
    let trailer = &end[end.len() - 8..];
    if &trailer[4..] != b"PAR1" {
        return Err(bad(len - 4, "does not end in PAR1"));
    }
    let footer = u64::from(u32::from_le_bytes([trailer[0], trailer[1], trailer[2], trailer[3]])) + 8;
    if footer > len {
        return Err(bad(len - 8, "the footer is longer than the file"));
    }
    if footer > end.len() as u64 {
        end_at = len - footer;
        end = read(end_at, footer)?;
    }
    let digits = tail_checksum_at(&end).ok_or_else(|| bad(len - footer, "footer: no checksum of the tail"))?;
    let start = hex(&end[digits - 21..digits - 5], u64::from_str_radix);
    let crc = hex(&end[digits..digits + 8], u32::from_str_radix);
    let (Some(start), Some(crc)) = (start.filter(|start| *start < len), crc) else {
        return Err(bad(end_at + digits as u64, "footer: the checksum of the tail is no number"));
    };
    let tail = match start.checked_sub(end_at) {
        Some(skip) => end.slice(usize::try_from(skip).unwrap_or(end.len()).min(end.len())..),
        None => read(start, len - start)?,
    };
    // In their own checksum, the digits count as zeros.
    let digits_at = to_usize(end_at + digits as u64 - start.min(end_at + digits as u64));
    let Some((before, rest)) = tail.split_at_checked(digits_at).filter(|(_, rest)| rest.len() >= 8) else {
        return Err(bad(end_at + digits as u64, "footer: the tail begins after its checksum"));
    };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(before);
    hasher.update(b"00000000");
    hasher.update(&rest[8..]);
    let found = hasher.finalize();
    if found != crc {
        return Err(bad(start, &format!("directory and footer: checksum expected={crc:#010x} found={found:#010x}")));
    }
    Ok((start, tail, crc))
}

pub(super) fn directory_len(place: &str, data_end: u64) -> Result<usize, String> {
    let parts: Vec<&str> = place.split(',').collect();
    let [offset, len, _crc, version] = parts.as_slice() else {
        return Err(format!("footer: {KEY_DIRECTORY} is '{place}', expected offset,length,crc32,version"));
    };
    if *version != FORMAT_VERSION.to_string() {
        return Err(format!("footer: format {version} is not known, only {FORMAT_VERSION}"));
    }
    match (offset.parse::<u64>(), len.parse::<usize>()) {
        (Ok(offset), Ok(len)) if offset == data_end => Ok(len),
        _ => Err(format!("footer: {KEY_DIRECTORY} is '{place}', the tail begins at {data_end}")),
    }
}

/// The end of a file, already checked, under the offsets that it has in the file.
pub(super) struct Tail {
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

impl Length for Tail {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl Tail {
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let skip = start.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        skip.filter(|skip| *skip <= self.bytes.len())
            .map(|skip| self.bytes.slice(skip..))
            .ok_or_else(|| ParquetError::EOF(format!("offset {start} is not in the tail of the file")))
    }
}

impl ChunkReader for Tail {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.from(start)?;
        if length > bytes.len() {
            return Err(ParquetError::EOF(format!("{length} bytes from {start} on are not in the file")));
        }
        Ok(bytes.slice(..length))
    }
}
