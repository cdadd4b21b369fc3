//! Pieces: what changed in a database between two moments, as one object. FORMAT.md has the bytes.

use super::store::damaged;
use crate::error::{Error, Result};
use crate::manifest::{Op, check_checkpoint, check_edit};
use crate::wal::RawRecord;
use bytes::Bytes;
use ebbtide_ttl::{Code, Timestamp};
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 6] = b"EBBCPY";
const VERSION: u16 = 1;
/// Magic, version, length of the head.
const PREFIX_BYTES: usize = 6 + 2 + 4;
/// Before the payload of a record: sequence number, collection, length.
const RECORD_HEAD_BYTES: usize = 8 + 8 + 4;

/// A segment's file in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopiedFile {
    /// Its path in the folder of the database, with `/` between folder and file.
    pub(super) path: String,
    /// The epoch in which it was shipped, which is part of its name in the store.
    pub(super) epoch: u64,
    pub(super) bytes: u64,
    /// Of the whole file.
    pub(super) crc: u32,
    /// Of the footer, as the manifest has it.
    pub(super) footer: u32,
}

impl CopiedFile {
    /// Its name in the store.
    pub(super) fn object(&self) -> String {
        format!("{}/{}", files_folder(self.epoch), self.path.replace('/', "!"))
    }

    /// Checks that these are its bytes.
    pub(super) fn check(&self, content: &[u8]) -> Result<()> {
        let found = (content.len() as u64, crc32fast::hash(content));
        match found == (self.bytes, self.crc) {
            true => Ok(()),
            false => {
                let expected = (self.bytes, self.crc);
                Err(damaged(&self.object(), format!("length and CRC-32 expected={expected:x?} found={found:x?}")))
            }
        }
    }
}

/// Everything that the manifest names, so that no piece before this one is needed but for records of the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Base {
    pub(super) checkpoint: Vec<Op>,
    pub(super) files: Vec<CopiedFile>,
    /// The piece of this epoch with the first record of the log that is needed.
    pub(super) records_from: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) identity: [u8; 16],
    pub(super) epoch: u64,
    /// Its number in the epoch, from 1 on.
    pub(super) number: u64,
    /// The last piece of an earlier epoch that counts: epoch and number.
    pub(super) parent: Option<(u64, u64)>,
    /// The CRC-32 of the piece before it in its epoch; 0 for the first.
    pub(super) previous: u32,
    /// The writer's clock: everything acknowledged before this instant is in this piece or an earlier one, if it is a point.
    pub(super) at: Timestamp,
    /// Whether the database can be restored as of this piece: not between the parts of what was read at one moment.
    pub(super) is_point: bool,
    /// The edits of the manifest since the piece before; `None` if only the base tells.
    pub(super) edits: Option<Vec<Vec<Op>>>,
    pub(super) base: Option<Base>,
    /// The files that were shipped since the piece before.
    pub(super) files: Vec<CopiedFile>,
    /// The number of the last record of the log in this piece and those before.
    pub(super) last_seq: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) head: Head,
    pub(super) records: Vec<RawRecord>,
}

impl Piece {
    pub(super) fn encode(&self) -> Result<Bytes> {
        let head = postcard::to_stdvec(&self.head).map_err(|e| Error::internal(format!("encode a piece: {e}")))?;
        let length = u32::try_from(head.len()).map_err(|_| Error::internal("the head of a piece is over 4 GiB"))?;
        let records: usize = self.records.iter().map(|record| RECORD_HEAD_BYTES + record.payload.len()).sum();
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + head.len() + records + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&head);
        for record in &self.records {
            bytes.extend_from_slice(&record.seq.to_le_bytes());
            bytes.extend_from_slice(&record.collection.to_le_bytes());
            bytes.extend_from_slice(&(record.payload.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&record.payload);
        }
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        Ok(bytes.into())
    }

    pub(super) fn decode(name: &str, bytes: &Bytes) -> Result<Piece> {
        let fails = |what: &str| damaged(name, what);
        let checked = bytes.len().checked_sub(4).ok_or_else(|| fails("it is cut short"))?;
        if !bytes.starts_with(MAGIC) || checked < PREFIX_BYTES {
            return Err(fails("it is no piece of a copy"));
        }
        if crc32fast::hash(&bytes[..checked]) != crc_of(bytes) {
            return Err(fails("its CRC-32 does not match"));
        }
        let version = u16::from_be_bytes([bytes[6], bytes[7]]);
        if version != VERSION {
            let what =
                format!("{name} of the copy has version {version}, and this program reads {VERSION}: use a newer one");
            return Err(Error::new(Code::IncompatibleFormat, what));
        }
        let length = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
        let head = bytes.get(PREFIX_BYTES..checked).and_then(|rest| rest.get(..length));
        let head = postcard::from_bytes(head.ok_or_else(|| fails("its head is cut short"))?);
        let head: Head = head.map_err(|e| damaged(name, e))?;
        let base = head.base.as_ref().map_or(Ok(()), |base| check_checkpoint(&base.checkpoint));
        let edits = head.edits.iter().flatten().try_for_each(|edit| check_edit(edit));
        base.and(edits).map_err(|what| damaged(name, format!("an edit is wrong: {what}")))?;
        let mut records = Vec::new();
        let mut rest = bytes.slice(PREFIX_BYTES + length..checked);
        while !rest.is_empty() {
            let Some((prefix, _)) = rest.split_first_chunk::<RECORD_HEAD_BYTES>() else {
                return Err(fails("a record is cut short"));
            };
            let long = |at| crate::framed::long(prefix, at);
            let (seq, collection, payload) = (long(0), long(8), crate::framed::word(prefix, 16) as usize);
            let rest_bytes = rest.len() - RECORD_HEAD_BYTES;
            if payload == 0 || payload > rest_bytes {
                return Err(fails("a record is cut short"));
            }
            let _ = rest.split_to(RECORD_HEAD_BYTES);
            records.push(RawRecord { seq, collection, payload: rest.split_to(payload) });
        }
        Ok(Piece { head, records })
    }
}

/// The CRC-32 at the end of a piece.
pub(super) fn crc_of(piece: &[u8]) -> u32 {
    piece.last_chunk::<4>().map_or(0, |crc| u32::from_le_bytes(*crc))
}

/// The name of a piece.
pub(super) fn piece_name(epoch: u64, number: u64) -> String {
    format!("{}/{number:012}", pieces_folder(epoch))
}

/// The folder of the pieces of an epoch.
pub(super) fn pieces_folder(epoch: u64) -> String {
    format!("pieces/{epoch:010}")
}

/// The folder of the segment files that were shipped in an epoch.
pub(super) fn files_folder(epoch: u64) -> String {
    format!("files/{epoch:010}")
}

/// The folder with one object for each base of an epoch.
pub(super) fn bases_folder(epoch: u64) -> String {
    format!("bases/{epoch:010}")
}

/// The name of the object that says that a piece has a base: it has the piece's number and instant, in milliseconds since 1970.
pub(super) fn base_name(number: u64, at: Timestamp) -> String {
    format!("{number:012}@{}", millis(at))
}

/// What such a name says.
pub(super) fn parse_base_name(name: &str) -> Option<(u64, i128)> {
    let (number, at) = name.split_once('@')?;
    Some((number.parse().ok()?, at.parse().ok()?))
}

pub(super) fn millis(at: Timestamp) -> i128 {
    at.nanos().div_euclid(1_000_000)
}

#[cfg(test)]
mod tests;
