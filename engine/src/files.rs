//! The names of the files in a database's folder, and the one parser for them.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

/// Numbers of files, collections and log records stay below this, so that the next one can always be counted.
pub(crate) const NUMBER_END: u64 = 1 << 62;
/// What the name of a file ends with while it is written.
const TEMPORARY: &str = ".tmp";

/// What a file in a database's folder is, by its name. FORMAT.md says what is in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileName {
    /// Held locked by the one process that writes.
    Lock,
    /// A manifest, by its number: the highest one counts.
    Manifest(u64),
    /// A log, by the sequence number of its first record.
    Log(u64),
    /// A segment, by its id.
    Segment(u64),
    /// Room that is kept for a full disk.
    Reserve,
    /// Where log and manifest ended at a clean shutdown.
    ShutdownMarker,
    /// An operator's confirmation that the clock is right.
    ClockConfirmation,
}

impl FileName {
    /// What the file is; `None` if the name is not one of ours.
    pub(crate) fn parse(name: &str) -> Option<FileName> {
        let number = |hex: &str| match hex.len() {
            16 => u64::from_str_radix(hex, 16).ok().filter(|number| *number < NUMBER_END),
            _ => None,
        };
        match name {
            "LOCK" => Some(FileName::Lock),
            "RESERVE" => Some(FileName::Reserve),
            "CLOSED" => Some(FileName::ShutdownMarker),
            "CLOCK" => Some(FileName::ClockConfirmation),
            _ => {
                let log = name.strip_prefix("wal-").and_then(|name| name.strip_suffix(".log"));
                let segment = name.strip_prefix("seg-").and_then(|name| name.strip_suffix(".parquet"));
                let manifest = name.strip_prefix("MANIFEST-");
                let log = log.and_then(number).map(FileName::Log);
                log.or_else(|| segment.and_then(number).map(FileName::Segment))
                    .or_else(|| manifest.and_then(number).map(FileName::Manifest))
            }
        }
    }

    /// The number of the manifest with this name.
    pub(crate) fn manifest_number(name: &str) -> Option<u64> {
        match FileName::parse(name)? {
            FileName::Manifest(number) => Some(number),
            _ => None,
        }
    }

    /// The first sequence number of the log with this name.
    pub(crate) fn log_seq(name: &str) -> Option<u64> {
        match FileName::parse(name)? {
            FileName::Log(first_seq) => Some(first_seq),
            _ => None,
        }
    }

    /// The id of the segment with this name.
    pub(crate) fn segment_id(name: &str) -> Option<u64> {
        match FileName::parse(name)? {
            FileName::Segment(id) => Some(id),
            _ => None,
        }
    }

    /// Its path in the folder of a database.
    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }
}

/// Whether a file has the temporary name under which one of ours is written before it is renamed.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_suffix(TEMPORARY).is_some_and(|name| FileName::parse(name).is_some())
}

/// The temporary name under which the file at `path` is written before it is renamed.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    PathBuf::from(name)
}

/// How far a log or manifest reaches: the number in its name, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileEnd {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

impl Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Lock => f.write_str("LOCK"),
            FileName::Manifest(number) => write!(f, "MANIFEST-{number:016x}"),
            FileName::Log(first_seq) => write!(f, "wal-{first_seq:016x}.log"),
            FileName::Segment(id) => write!(f, "seg-{id:016x}.parquet"),
            FileName::Reserve => f.write_str("RESERVE"),
            FileName::ShutdownMarker => f.write_str("CLOSED"),
            FileName::ClockConfirmation => f.write_str("CLOCK"),
        }
    }
}
