//! The mark of a clean close: how long the newest manifest and the newest log were when nothing more was to come.
//!
//! A power cut may tear the end of these two files, so an end that is not whole is no damage as long as nothing says that it
//! once was. The mark says it. It counts until an open for writing begins a new manifest, and is removed by that open.
//! FORMAT.md has the bytes.

use crate::error::{Error, Result};
use crate::fs::{Fs, replace};
use crate::manifest::{self, ManifestContents};
use crate::wal::LogEnd;
use ebbtide_ttl::Code;
use std::cmp::Ordering;
use std::io;
use std::path::Path;

pub(crate) const NAME: &str = "CLOSED";
pub(crate) const TMP: &str = "CLOSED.tmp";
const MAGIC: &[u8; 8] = b"EBBCLS\x00\x01";
const BYTES: usize = 8 + 16 + 4 * 8 + 4;

/// A file by the number in its name, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

/// What a clean close leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) identity: [u8; 16],
    pub(crate) manifest: Ended,
    pub(crate) log: Ended,
}

impl Mark {
    /// Leaves it in the folder. Without it the close looks like a crash, by which nothing is lost.
    pub(crate) fn leave(&self, fs: &dyn Fs, dir: &Path) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.identity);
        for number in [self.manifest.number, self.manifest.bytes, self.log.number, self.log.bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        let tmp = dir.join(TMP);
        let left = replace(fs, &tmp, &dir.join(NAME), &bytes);
        if left.is_err() {
            drop(fs.remove(&tmp)); // The next open would, but a full disk may need the room to get there.
        }
        left
    }

    /// Reads the mark in the folder with these names in it. It was synced before it had its name, so one that is not whole is
    /// damage.
    pub(crate) fn read(fs: &dyn Fs, dir: &Path, names: &[String]) -> Result<Option<Mark>> {
        if !names.iter().any(|name| name == NAME) {
            return Ok(None);
        }
        let path = dir.join(NAME);
        let bytes = match fs.read(&path) {
            // Beside a reader, somebody has opened the database for writing.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|e| Error::io("read the mark of the close", &path, &e))?,
        };
        let Some((checked, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(Error::corrupt(&path, 0, "the mark of the close is cut short"));
        };
        let (stored, found) = (u32::from_le_bytes(*crc), crc32fast::hash(checked));
        if stored != found {
            let what = format!("the mark of the close: crc expected={stored:#x} found={found:#x}");
            return Err(Error::corrupt(&path, 0, what));
        }
        if !checked.starts_with(MAGIC) || bytes.len() != BYTES {
            let what = format!("{} is of another version of Ebbtide: use that version", path.display());
            return Err(Error::new(Code::IncompatibleFormat, what));
        }
        let mut identity = [0; 16];
        identity.copy_from_slice(&checked[8..24]);
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&checked[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let ended = |at: usize| Ended { number: number(at), bytes: number(at + 8) };
        Ok(Some(Mark { identity, manifest: ended(24), log: ended(40) }))
    }

    /// Checks that it is of the database that the manifest belongs to.
    pub(crate) fn check_identity(&self, dir: &Path, identity: [u8; 16]) -> Result<()> {
        match identity == self.identity {
            true => Ok(()),
            false => Err(Error::corrupt(&dir.join(NAME), 8, "the mark of the close belongs to another database")),
        }
    }

    /// Whether it counts beside manifest `number`, the newest there is; then that one has to be as it was left.
    pub(crate) fn counts(&self, dir: &Path, number: u64, contents: &ManifestContents) -> Result<bool> {
        let closed = dir.join(manifest::file_name(self.manifest.number));
        match number.cmp(&self.manifest.number) {
            Ordering::Greater => return Ok(false),
            Ordering::Less => {
                return Err(Error::corrupt(&closed, 0, "the manifest with which the database was closed is missing"));
            }
            Ordering::Equal => {}
        }
        check_end(&closed, contents.end, contents.torn_bytes, self.manifest.bytes)?;
        Ok(true)
    }

    /// Checks that the newest log is as it was left.
    pub(crate) fn check_log(&self, path: &Path, first_seq: u64, end: LogEnd) -> Result<()> {
        if first_seq != self.log.number {
            let what = format!("the log ends with this file, the database was closed with that of {}", self.log.number);
            return Err(Error::corrupt(path, 0, what));
        }
        check_end(path, end.whole, end.torn_bytes, self.log.bytes)
    }
}

fn check_end(path: &Path, whole: u64, torn: u64, closed: u64) -> Result<()> {
    if (whole, torn) == (closed, 0) {
        return Ok(());
    }
    let what = format!("the database was closed with {closed} bytes here; now {whole} are whole, and {torn} follow");
    Err(Error::corrupt(path, whole.min(closed), what))
}
