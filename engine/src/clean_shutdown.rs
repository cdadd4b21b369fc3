//! The shutdown marker: where the newest manifest and the newest log ended when the database was closed.
//!
//! A power cut may tear the end of these two files, so an incomplete end is not damage by itself. After a clean shutdown
//! nothing was being written, and the marker proves it: both files must still end where it says. It applies until an
//! open for writing begins a new manifest, and that open removes it. FORMAT.md has the bytes.

use crate::error::{Error, Result};
use crate::files::{FileEnd, FileName};
use crate::fs::{Fs, replace};
use ebbtide_ttl::Code;
use std::cmp::Ordering;
use std::io;
use std::path::Path;

const MAGIC: &[u8; 8] = b"EBBCLS\x00\x01";
const BYTES: usize = 8 + 16 + 4 * 8 + 4;

/// The marker of a clean shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShutdownMarker {
    pub(crate) identity: [u8; 16],
    pub(crate) manifest: FileEnd,
    pub(crate) log: FileEnd,
}

impl ShutdownMarker {
    /// Writes it. Without it the shutdown looks like a crash, which loses nothing.
    pub(crate) fn write(&self, fs: &dyn Fs, dir: &Path) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.identity);
        for number in [self.manifest.number, self.manifest.bytes, self.log.number, self.log.bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        replace(fs, &FileName::ShutdownMarker.path(dir), &bytes)
    }

    /// Reads the marker, if the folder with these names in it has one. It was synced before it got its name, so an
    /// incomplete one is damage.
    pub(crate) fn read(fs: &dyn Fs, dir: &Path, names: &[String]) -> Result<Option<ShutdownMarker>> {
        if !names.iter().any(|name| FileName::parse(name) == Some(FileName::ShutdownMarker)) {
            return Ok(None);
        }
        let path = FileName::ShutdownMarker.path(dir);
        let bytes = match fs.read(&path) {
            // Another process has opened the database for writing since the folder was listed.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|e| Error::io("read the shutdown marker", &path, &e))?,
        };
        let Some((checked, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(Error::corrupt(&path, 0, "shutdown marker cut short"));
        };
        let (stored, found) = (u32::from_le_bytes(*crc), crc32fast::hash(checked));
        if stored != found {
            let what = format!("shutdown marker crc expected={stored:#x} found={found:#x}");
            return Err(Error::corrupt(&path, 0, what));
        }
        if !checked.starts_with(MAGIC) || bytes.len() != BYTES {
            let what = format!("{} was written by another version of Ebbtide: use that version", path.display());
            return Err(Error::new(Code::IncompatibleFormat, what));
        }
        let mut identity = [0; 16];
        identity.copy_from_slice(&checked[8..24]);
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&checked[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let end = |at: usize| FileEnd { number: number(at), bytes: number(at + 8) };
        Ok(Some(ShutdownMarker { identity, manifest: end(24), log: end(40) }))
    }

    /// Checks that it was written for the database that the manifest belongs to.
    pub(crate) fn check_identity(&self, dir: &Path, identity: [u8; 16]) -> Result<()> {
        match identity == self.identity {
            true => Ok(()),
            false => {
                let path = FileName::ShutdownMarker.path(dir);
                Err(Error::corrupt(&path, 8, "shutdown marker belongs to another database"))
            }
        }
    }

    /// Whether the marker applies to manifest `number`, the newest one, which has `whole` intact bytes and then `torn` others. If
    /// it does, that manifest must end where the marker says.
    pub(crate) fn applies(&self, dir: &Path, number: u64, (whole, torn): (u64, u64)) -> Result<bool> {
        let path = FileName::Manifest(self.manifest.number).path(dir);
        match number.cmp(&self.manifest.number) {
            Ordering::Greater => return Ok(false),
            Ordering::Less => {
                return Err(Error::corrupt(&path, 0, "the newest manifest at the clean shutdown is missing"));
            }
            Ordering::Equal => {}
        }
        check_end(&path, whole, torn, self.manifest.bytes)?;
        Ok(true)
    }

    /// Checks that the newest log still ends where it says: `whole` bytes are intact, `torn` follow.
    pub(crate) fn check_log(&self, path: &Path, first_seq: u64, whole: u64, torn: u64) -> Result<()> {
        if first_seq != self.log.number {
            let what = format!("the newest log at the clean shutdown began with record {}", self.log.number);
            return Err(Error::corrupt(path, 0, what));
        }
        check_end(path, whole, torn, self.log.bytes)
    }
}

fn check_end(path: &Path, whole: u64, torn: u64, closed: u64) -> Result<()> {
    if (whole, torn) == (closed, 0) {
        return Ok(());
    }
    let what = format!("{closed} bytes at the clean shutdown; now {whole} are intact and {torn} more follow");
    Err(Error::corrupt(path, whole.min(closed), what))
}
