//! Checks a Parquet file's footer before it is parsed: the parser allocates memory for as many row groups and columns
//! as the footer claims, and a claim of billions would end the process. The footer is a struct in Thrift's compact
//! protocol (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

const MAGIC: &[u8; 4] = b"PAR1";
/// Bytes after the footer: its length, and the magic.
const TAIL_BYTES: u64 = 8;
/// Maximum nesting of structs and lists; those of Parquet are half as deep.
const DEPTH_MAX: usize = 32;
/// The fields of the footer that are lists of structs: columns and row groups.
const LISTS: [i64; 2] = [2, 4];

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Checks that the footer can hold the lists that it claims. The reader reports anything else that is wrong with the
/// file.
pub(super) fn check(file: &mut File) -> io::Result<Result<(), String>> {
    let bytes = file.seek(SeekFrom::End(0))?;
    let mut tail = [0; 8];
    if bytes < TAIL_BYTES {
        return Ok(Ok(()));
    }
    file.seek(SeekFrom::Start(bytes - TAIL_BYTES))?;
    file.read_exact(&mut tail)?;
    let (len, magic) = tail.split_at(4);
    let len = len.try_into().map_or(0, u32::from_le_bytes);
    let Some(start) = (bytes - TAIL_BYTES).checked_sub(u64::from(len)).filter(|_| magic == MAGIC) else {
        return Ok(Ok(()));
    };
    file.seek(SeekFrom::Start(start))?;
    let mut footer = Vec::new();
    file.take(u64::from(len)).read_to_end(&mut footer)?;
    file.rewind()?;
    Ok(Walk { left: &footer }.file())
}

struct Walk<'a> {
    left: &'a [u8],
}

impl Walk<'_> {
    fn file(&mut self) -> Result<(), String> {
        let mut last = 0;
        while let Some((id, ty)) = self.field(last)? {
            if LISTS.contains(&id) && (ty != LIST || self.left.first().is_none_or(|head| head & 0x0f != STRUCT)) {
                return Err(format!("its footer has no list of structs in field {id}"));
            }
            self.value(ty, DEPTH_MAX)?;
            last = id;
        }
        Ok(())
    }

    /// The number and type of the next field; `None` at the end of the struct.
    fn field(&mut self, last: i64) -> Result<Option<(i64, u8)>, String> {
        let head = self.byte()?;
        let id = match (head & 0x0f, head >> 4) {
            (0, _) => return Ok(None),
            (_, 0) => self.varint()?.cast_signed(),
            (_, more) => return Ok(Some((last + i64::from(more), head & 0x0f))),
        };
        Ok(Some(((id >> 1) ^ -(id & 1), head & 0x0f)))
    }

    fn value(&mut self, ty: u8, depth: usize) -> Result<(), String> {
        let inside = depth.checked_sub(1).ok_or("its footer is nested too deeply")?;
        match ty {
            TRUE | FALSE => Ok(()),
            BYTE => self.skip(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.skip(8),
            BINARY => {
                let len = self.varint()?;
                self.skip(len)
            }
            LIST | SET => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                let item = if matches!(head & 0x0f, TRUE | FALSE) { BYTE } else { head & 0x0f };
                self.items(count, &[item], inside)
            }
            MAP => match self.varint()? {
                0 => Ok(()),
                count => {
                    let types = self.byte()?;
                    self.items(count, &[types >> 4, types & 0x0f], inside)
                }
            },
            STRUCT => {
                let mut last = 0;
                while let Some((id, ty)) = self.field(last)? {
                    self.value(ty, inside)?;
                    last = id;
                }
                Ok(())
            }
            other => Err(format!("its footer has a value of type {other}, which does not exist")),
        }
    }

    /// Each item takes at least one byte.
    fn items(&mut self, count: u64, types: &[u8], depth: usize) -> Result<(), String> {
        if count > self.left.len() as u64 {
            return Err(format!("its footer claims {count} items in {} bytes", self.left.len()));
        }
        for _ in 0..count {
            types.iter().try_for_each(|ty| self.value(*ty, depth))?;
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, String> {
        let (byte, left) = self.left.split_first().ok_or("its footer ends too early")?;
        self.left = left;
        Ok(*byte)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("its footer has a number that does not end".to_owned())
    }

    fn skip(&mut self, bytes: u64) -> Result<(), String> {
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= self.left.len());
        self.left = &self.left[bytes.ok_or("its footer ends too early")?..];
        Ok(())
    }
}
