//! Numbers and keys as differences: the Parquet encodings DELTA_BINARY_PACKED and DELTA_BYTE_ARRAY.

use crate::segment::varint::{self, Cursor};

/// Differences of a block, and of each of its parts.
const BLOCK: usize = 128;
const PART: usize = 32;
const PARTS: usize = BLOCK / PART;

/// Appends numbers.
pub(super) fn put_numbers(out: &mut Vec<u8>, numbers: &[i64]) {
    varint::put_u64(out, BLOCK as u64);
    varint::put_u64(out, PARTS as u64);
    varint::put_u64(out, numbers.len() as u64);
    varint::put_i64(out, numbers.first().copied().unwrap_or(0));
    let mut differences = [0_i64; BLOCK];
    let mut left = numbers;
    while left.len() > 1 {
        let count = (left.len() - 1).min(BLOCK);
        differences.iter_mut().zip(left.windows(2)).for_each(|(d, pair)| *d = pair[1].wrapping_sub(pair[0]));
        put_block(out, &differences[..count]);
        left = &left[count..];
    }
}

fn put_block(out: &mut Vec<u8>, differences: &[i64]) {
    let base = differences.iter().copied().min().unwrap_or(0);
    varint::put_i64(out, base);
    let above = |difference: &i64| difference.wrapping_sub(base).cast_unsigned();
    let width = |part: &[i64]| 64 - part.iter().map(above).fold(0, |all, a| all | a).leading_zeros();
    let mut widths = [0_u8; PARTS];
    let bits = |width: u32| u8::try_from(width).unwrap_or(64);
    widths.iter_mut().zip(differences.chunks(PART)).for_each(|(w, part)| *w = bits(width(part)));
    out.extend(widths);
    for (part, width) in differences.chunks(PART).zip(widths) {
        let (mut pending, mut held) = (0_u128, 0_u32);
        let end = out.len() + usize::from(width) * PART / 8;
        for difference in part {
            pending |= u128::from(above(difference)) << held;
            held += u32::from(width);
            let whole = (held / 8) as usize;
            out.extend(&pending.to_le_bytes()[..whole]);
            pending >>= whole * 8;
            held %= 8;
        }
        if held > 0 {
            out.extend(&pending.to_le_bytes()[..1]);
        }
        out.resize(end, 0);
    }
}

/// Reads exactly `count` numbers.
pub(super) fn numbers(cursor: &mut Cursor<'_>, count: usize) -> Result<Vec<i64>, String> {
    let (block, parts, found) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
    if (block, parts, found) != (BLOCK as u64, PARTS as u64, count as u64) {
        return Err(format!("{found} numbers in blocks of {block} with {parts} parts, expected {count}"));
    }
    let mut last = cursor.i64()?;
    let mut all = Vec::with_capacity(count.next_multiple_of(PART) + 1);
    all.push(last);
    while all.len() < count {
        let base = cursor.i64()?;
        let widths = cursor.take(PARTS)?;
        for width in widths {
            if all.len() >= count {
                break;
            }
            let width = usize::from(*width);
            if width > 64 {
                return Err(format!("a number of {width} bits before byte {}", cursor.at()));
            }
            // Eight bytes more, so that each number can be read with the eight bytes from its first one on.
            let mut packed = [0_u8; 64 * PART / 8 + 9];
            let bytes = cursor.take(width * PART / 8)?;
            packed[..bytes.len()].copy_from_slice(bytes);
            let mask = u64::MAX.checked_shr(64 - width as u32).unwrap_or(0);
            for at in 0..PART {
                let bit = at * width;
                let (low, high) = (word(&packed, bit / 8), u64::from(packed[bit / 8 + 8]));
                let shifted = low >> (bit % 8) | (high << 1) << (63 - bit % 8);
                last = last.wrapping_add(base).wrapping_add((shifted & mask).cast_signed());
                all.push(last);
            }
        }
    }
    all.truncate(count);
    Ok(all)
}

#[inline]
fn word(packed: &[u8], at: usize) -> u64 {
    packed[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Appends keys in order, each as what it shares with the one before and the rest. `ends` says where each ends in `bytes`.
pub(super) fn put_keys(out: &mut Vec<u8>, bytes: &[u8], ends: &[usize]) {
    let (mut shared, mut rest) = (Vec::with_capacity(ends.len()), Vec::with_capacity(ends.len()));
    let mut suffixes: Vec<u8> = Vec::with_capacity(bytes.len());
    let (mut before, mut start): (&[u8], usize) = (&[], 0);
    let number = |len: usize| i64::try_from(len).unwrap_or(i64::MAX);
    for end in ends {
        let key = &bytes[start..*end];
        let same = shared_len(before, key);
        shared.push(number(same));
        rest.push(number(key.len() - same));
        suffixes.extend(&key[same..]);
        (before, start) = (key, *end);
    }
    put_numbers(out, &shared);
    put_numbers(out, &rest);
    out.extend(suffixes);
}

/// How many bytes two keys share at their beginning.
pub(super) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The keys of a page.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    pub(super) bytes: Vec<u8>,
    pub(super) ends: Vec<usize>,
}

impl Keys {
    /// Reads exactly `count` keys, which are all there is in `raw`, of at most `bytes_max` bytes together.
    pub(super) fn decode(raw: &[u8], count: usize, bytes_max: usize) -> Result<Keys, String> {
        let mut cursor = Cursor::new(raw);
        let shared = numbers(&mut cursor, count)?;
        let rest = numbers(&mut cursor, count)?;
        let mut suffixes = &raw[cursor.at()..];
        let mut keys = Keys { bytes: Vec::with_capacity(raw.len() * 2), ends: Vec::with_capacity(count) };
        let mut before = 0..0;
        for (shared, rest) in shared.into_iter().zip(rest) {
            let shared = usize::try_from(shared).ok().filter(|shared| *shared <= before.len());
            let shared = shared.ok_or("a key shares more than there is")?;
            let rest = usize::try_from(rest).ok().and_then(|rest| suffixes.split_at_checked(rest));
            let (own, left) = rest.ok_or("a key is longer than what is left")?;
            suffixes = left;
            let start = keys.bytes.len();
            if start + shared + own.len() > bytes_max {
                return Err(format!("keys of more than {bytes_max} bytes"));
            }
            keys.bytes.extend_from_within(before.start..before.start + shared);
            keys.bytes.extend(own);
            keys.ends.push(keys.bytes.len());
            before = start..keys.bytes.len();
        }
        if !suffixes.is_empty() {
            return Err(format!("{} bytes after the last key", suffixes.len()));
        }
        Ok(keys)
    }

    /// A key by its number.
    pub(super) fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    /// The number of a key, or of the first one after it.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).cmp(key) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
}
