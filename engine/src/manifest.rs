//! The durable list of what exists: collections with their options and rules, segments with what is gone from them,
//! log files, and the history of drops.
//!
//! A manifest file is a header and frames; the first frame is a checkpoint (the edits that make the whole state), each
//! further one an edit. An edit is atomic: if its frame is incomplete, it did not happen. A new file replaces the old one by
//! sync, rename and folder sync, so that the newest file always starts with a complete checkpoint. FORMAT.md has the bytes.

mod invariants;
mod op;

pub(crate) use invariants::{Check, check_checkpoint, check_edit, only_takes_away};
pub use op::SweepRecord;
pub(crate) use op::{CollectionRecord, Op, SWEEP_HISTORY_MAX};

use crate::error::{Error, Result};
use crate::files::{FileEnd, FileName};
use crate::framed::{FileHeader, FrameFormat, HEADER_BYTES, Place, file_crc};
use crate::fs::{Fs, WriteFile, temporary, write_synced};
use ebbtide_ttl::Code;
use std::path::{Path, PathBuf};

/// A frame's head: length, CRC-32 of the payload, CRC-32 of these two and of the frame's place.
const FORMAT: FrameFormat =
    FrameFormat { what: "manifest", magic: b"EBBMAN", version: 3, head_bytes: 12, head_crc_at: 8, payload_crc_at: 4 };
/// A new manifest file is begun when edits have grown it by this many bytes, and to four times its checkpoint.
const EDITS_BYTES_MIN: u64 = 1 << 20;

/// Numbers of the manifests in a folder, oldest first.
pub(crate) fn numbers(fs: &dyn Fs, dir: &Path) -> Result<Vec<u64>> {
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, &e))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|n| FileName::manifest_number(n)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// A manifest as read.
pub(crate) struct ManifestContents {
    pub(crate) identity: [u8; 16],
    pub(crate) edits: Vec<Vec<Op>>,
    /// Where the last complete edit ends.
    pub(crate) end: u64,
    /// Bytes after it, which a crash left half-written.
    pub(crate) torn_bytes: u64,
}

/// Reads manifest `number`.
pub(crate) fn read(fs: &dyn Fs, dir: &Path, number: u64) -> Result<ManifestContents> {
    match read_prefix(fs, dir, number)? {
        (contents, None) => Ok(contents),
        (_, Some(damage)) => Err(damage),
    }
}

/// As [`read`]; damage after the checkpoint is returned with the edits before it.
pub(crate) fn read_prefix(fs: &dyn Fs, dir: &Path, number: u64) -> Result<(ManifestContents, Option<Error>)> {
    let path = FileName::Manifest(number).path(dir);
    let bytes = fs.read(&path).map_err(|e| Error::io("read the manifest", &path, &e))?;
    let identity = FORMAT.read_header(&bytes, &path, number)?.identity;
    let mut contents = ManifestContents { identity, edits: Vec::new(), end: 0, torn_bytes: 0 };
    let mut at = HEADER_BYTES;
    let mut damage = None;
    for frame in FORMAT.frames(&bytes) {
        let checked = postcard::from_bytes::<Vec<Op>>(frame.payload).map_err(|e| e.to_string()).and_then(|edit| {
            if contents.edits.is_empty() {
                check_checkpoint(&edit)?
            } else {
                check_edit(&edit)?
            }
            Ok(edit)
        });
        match checked {
            Ok(edit) => contents.edits.push(edit),
            Err(what) => {
                damage = Some(Error::corrupt(&path, at as u64, format!("manifest edit is wrong: {what}")));
                break;
            }
        }
        at = frame.end();
    }
    if contents.edits.is_empty() {
        let damage =
            damage.unwrap_or_else(|| Error::corrupt(&path, HEADER_BYTES as u64, "manifest checkpoint is damaged"));
        return Err(damage);
    }
    (contents.end, contents.torn_bytes) = (at as u64, (bytes.len() - at) as u64);
    // Only the last edit can be torn: edits are synced one by one, so a complete one after a bad one means damage.
    let mut later = (at + 1..bytes.len()).filter_map(|at| FORMAT.frame_at(&bytes, at));
    if damage.is_none() && later.next().is_some() {
        damage = Some(Error::corrupt(&path, at as u64, "manifest edit is damaged and complete edits follow it"));
    }
    Ok((contents, damage))
}

/// Appends the frame of an edit, for the place `start`.
fn put_edit(out: &mut Vec<u8>, start: Place, edit: &[Op]) -> Result<()> {
    let payload = postcard::to_stdvec(edit).map_err(|e| Error::internal(format!("encode a manifest edit: {e}")))?;
    // With an edit that cannot be read the database would not open again.
    if let Err(error) = postcard::from_bytes::<Vec<Op>>(&payload) {
        return Err(refused(format!("it could not be read again: {error}")));
    }
    u32::try_from(payload.len()).map_err(|_| Error::internal("a manifest edit of over 4 GiB"))?;
    FORMAT.put(out, start, &[], &payload, crc32fast::hash(&payload));
    Ok(())
}

/// The error that refuses a wrong edit before it is written.
pub(crate) fn refused(what: String) -> Error {
    Error::internal(format!("a wrong edit of the manifest was refused, and nothing was changed: {what}"))
}

/// The open manifest, to which edits are appended.
#[derive(Debug)]
pub(crate) struct ManifestWriter {
    dir: PathBuf,
    identity: [u8; 16],
    number: u64,
    path: PathBuf,
    file_crc: u32,
    file: Box<dyn WriteFile>,
    checkpoint_bytes: u64,
}

impl ManifestWriter {
    /// Publishes a new manifest with `checkpoint`. When this returns it is durable, and the newest one.
    pub(crate) fn create(fs: &dyn Fs, dir: &Path, identity: [u8; 16], number: u64, checkpoint: &[Op]) -> Result<Self> {
        let path = FileName::Manifest(number).path(dir);
        let tmp = temporary(&path);
        check_checkpoint(checkpoint).map_err(refused)?;
        let mut bytes = FORMAT.header(FileHeader { identity, number });
        let file_crc = file_crc(&bytes);
        put_edit(&mut bytes, Place { file: file_crc, offset: 0 }, checkpoint)?;
        let publish = || {
            drop(write_synced(fs, &tmp, &bytes)?);
            // Once it may have its name, no error is reported as a full disk: the next open would use this manifest, and
            // an edit of the old one would be lost.
            let named = fs.publish(&tmp, &path).and_then(|()| fs.open_append(&path, bytes.len() as u64));
            named.map_err(std::io::Error::other)
        };
        let file = publish().map_err(|e| Error::io("write the manifest", &path, &e))?;
        Ok(ManifestWriter {
            dir: dir.to_owned(),
            identity,
            number,
            path,
            file_crc,
            file,
            checkpoint_bytes: bytes.len() as u64,
        })
    }

    /// Appends an edit; when this returns it is durable.
    ///
    /// # Errors
    /// [`Code::OutOfDiskSpace`] and [`Code::InternalError`] (the edit is wrong): nothing was written. After any other the
    /// outcome is unknown, and the caller stops writing.
    pub(crate) fn append(&mut self, edit: &[Op]) -> Result<()> {
        check_edit(edit).map_err(refused)?;
        let before = self.file.len();
        let mut frame = Vec::new();
        put_edit(&mut frame, Place { file: self.file_crc, offset: before }, edit)?;
        if let Err(e) = self.file.append(&frame) {
            let error = Error::io("append to the manifest", &self.path, &e);
            // On a full disk the manifest is unchanged, if the half-written edit can be cut off.
            return match self.file.truncate(before).and_then(|()| self.file.sync()) {
                Ok(()) if error.code() == Code::OutOfDiskSpace => Err(error),
                _ => Err(Error::new(Code::NotWritable, error.to_string())),
            };
        }
        self.file
            .sync()
            .map_err(|e| Error::new(Code::NotWritable, Error::io("sync the manifest", &self.path, &e).to_string()))
    }

    /// Its number and length.
    pub(crate) fn end(&self) -> FileEnd {
        FileEnd { number: self.number, bytes: self.file.len() }
    }

    /// Whether the edits have outgrown the checkpoint, so that a new manifest should be begun.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.file.len() > self.checkpoint_bytes.saturating_mul(4).max(self.checkpoint_bytes + EDITS_BYTES_MIN)
    }

    /// Begins a new manifest file with `checkpoint` and removes the old one.
    pub(crate) fn checkpoint(&mut self, fs: &dyn Fs, checkpoint: &[Op]) -> Result<()> {
        let next = Self::create(fs, &self.dir, self.identity, self.number + 1, checkpoint)?;
        let old = std::mem::replace(self, next);
        drop(old.file);
        fs.remove(&old.path).map_err(|e| Error::io("remove the old manifest", &old.path, &e))
    }
}

#[cfg(test)]
mod tests;
