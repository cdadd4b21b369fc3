//! Integers of variable length: seven bits per byte, least significant first; signed ones in zigzag form.

pub(crate) fn put(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    put(out, u128::from(value));
}

#[expect(clippy::cast_sign_loss, reason = "folding maps signed numbers to unsigned ones")]
pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, ((value << 1) ^ (value >> 63)) as u64);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend(bytes);
}

/// Undoes the folding of [`put_i64`].
#[inline]
#[expect(clippy::cast_possible_wrap, reason = "unfolding maps unsigned numbers to signed ones")]
pub(crate) fn unfold(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}

/// Reads numbers written by the functions above.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn byte(&mut self) -> Result<u8, String> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| format!("ends early at byte {}", self.at))?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, String> {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            if shift > 121 && byte > 3 {
                break;
            }
            value |= u128::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(format!("number too long before byte {}", self.at))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, String> {
        match self.up_to_nine_bytes() {
            Some(value) => Ok(value),
            None => self.long(),
        }
    }

    /// Few numbers take more bytes, and none of this length overflows.
    #[inline]
    fn up_to_nine_bytes(&mut self) -> Option<u64> {
        let mut value = 0;
        for (at, byte) in self.bytes[self.at..].iter().take(9).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * at);
            if *byte < 0x80 {
                self.at += at + 1;
                return Some(value);
            }
        }
        None
    }

    #[cold]
    fn long(&mut self) -> Result<u64, String> {
        u64::try_from(self.u128()?).map_err(|_| format!("number too large before byte {}", self.at))
    }

    #[inline]
    pub(crate) fn i64(&mut self) -> Result<i64, String> {
        self.u64().map(unfold)
    }

    /// Reads the given number of numbers. Most take one byte, or repeat the one before.
    pub(crate) fn numbers(&mut self, count: usize, mut take: impl FnMut(u64)) -> Result<(), String> {
        let rest = &self.bytes[self.at..];
        if let Some(bytes) = rest.get(..count).filter(|bytes| bytes.iter().fold(0, |all, byte| all | byte) < 0x80) {
            self.at += count;
            bytes.iter().for_each(|byte| take(u64::from(*byte)));
            return Ok(());
        }
        let (mut last, mut len) = (0, 0);
        // The first number has no predecessor.
        let (mut stored, mut mask) = (1, 0);
        for _ in 0..count {
            if self.eight_bytes(self.at).is_some_and(|next| next & mask == stored) {
                self.at += len;
            } else {
                let from = self.at;
                last = self.u64()?;
                len = self.at - from;
                (stored, mask) = match self.eight_bytes(from) {
                    Some(next) if len <= 8 => (next & (u64::MAX >> (64 - 8 * len)), u64::MAX >> (64 - 8 * len)),
                    _ => (1, 0),
                };
            }
            take(last);
        }
        Ok(())
    }

    #[inline]
    fn eight_bytes(&self, at: usize) -> Option<u64> {
        self.bytes[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// A count of items that take at least one byte each, so that a wrong count does not reserve memory.
    pub(crate) fn count(&mut self) -> Result<usize, String> {
        let count = self.u64()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.bytes.len() - self.at => Ok(count),
            _ => Err(format!("count {count} is more than there is before byte {}", self.at)),
        }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| format!("ends early at byte {}", self.at))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], String> {
        let len = self.count()?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes()?).map_err(|_| format!("not UTF-8 before byte {}", self.at))
    }
}

#[cfg(test)]
mod tests;
