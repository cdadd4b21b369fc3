//! The names of the files and folders in a database's folder, and the one parser for them.

use crate::fs::{Fs, TEMPORARY};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

/// Numbers of files, collections and log records stay below this, so that there is always a next number.
pub(crate) const NUMBER_END: u64 = 1 << 62;

/// Comes before every segment by name, and is no Parquet file: a program that reads all files in the folder stops there, with
/// an error that names it.
const COMPACT_FIRST: &str = "run-COMPACT-first.parquet";
/// Bytes of a collection's name that the name of its folder has, at most.
const FOLDER_NAME_BYTES_MAX: usize = 60;

/// What a file in a database's folder is, or in the folder of a collection, by its name. FORMAT.md says what is in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileName {
    /// Locked by the one process that writes.
    Lock,
    /// A manifest, by its number; the one with the highest number is used.
    Manifest(u64),
    /// A log, by the sequence number of its first record.
    Log(u64),
    /// A segment.
    Segment(SegmentName),
    /// Stands where the segments in a folder must not be read together by other programs.
    CompactFirst,
    /// Space that is reserved for a full disk.
    Reserve,
    /// Where log and manifest ended at a clean shutdown.
    ShutdownMarker,
    /// An operator's confirmation that the clock is right.
    ClockConfirmation,
    /// Who ships this database, and how far.
    Shipping,
    /// Locked by a process while it changes [`FileName::Shipping`].
    ShippingLock,
    /// Why no sweep may run before somebody confirms the clock.
    SweepsHeld,
    /// The folder is a replica, or is being restored.
    Copy,
    /// Archives and tables that could not be written to.
    Failing,
}

impl FileName {
    /// The kind of a file; `None` if the name is not one of a database's.
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
            "SHIP" => Some(FileName::Shipping),
            "SHIP.lock" => Some(FileName::ShippingLock),
            "HELD" => Some(FileName::SweepsHeld),
            "COPY" => Some(FileName::Copy),
            "FAILING" => Some(FileName::Failing),
            COMPACT_FIRST => Some(FileName::CompactFirst),
            _ => {
                let log = name.strip_prefix("wal-").and_then(|name| name.strip_suffix(".log"));
                let segment = name.strip_prefix("seg-").and_then(|name| name.strip_suffix(".parquet"));
                let manifest = name.strip_prefix("MANIFEST-");
                let log = log.and_then(number).map(FileName::Log);
                log.or_else(|| segment.and_then(|name| segment_name(name, number)).map(FileName::Segment))
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

    /// The segment with this name.
    pub(crate) fn segment(name: &str) -> Option<SegmentName> {
        match FileName::parse(name)? {
            FileName::Segment(segment) => Some(segment),
            _ => None,
        }
    }

    /// Its path in a folder.
    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }
}

/// What the name of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentName {
    /// The generation of its types; `None` for one that an older program wrote into the folder of the database, beside those of
    /// other collections. In the name it counts down, so that the newest types come first by name: programs that read several
    /// files take the types of the first.
    pub(crate) generation: Option<u32>,
    /// Its id, which no other segment of the database has.
    pub(crate) id: u64,
}

fn segment_name(name: &str, number: impl Fn(&str) -> Option<u64>) -> Option<SegmentName> {
    match name.split_once('-') {
        None => Some(SegmentName { generation: None, id: number(name)? }),
        Some((generation, id)) if generation.len() == 8 => {
            let generation = u32::MAX - u32::from_str_radix(generation, 16).ok()?;
            Some(SegmentName { generation: Some(generation), id: number(id)? })
        }
        Some(_) => None,
    }
}

/// The name of the folder that a new collection gets for its segments: the collection's name with `_` for all but ASCII letters, digits, `-` and
/// `_`, cut to 60 bytes, and its number.
pub(crate) fn collection_folder(name: &str, id: u64) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(FOLDER_NAME_BYTES_MAX).map(plain).collect();
    format!("{name}.{id}")
}

/// The number of the collection whose folder may have this name.
pub(crate) fn collection_of(folder: &str) -> Option<u64> {
    let (_, number) = folder.rsplit_once('.')?;
    let id = number.parse().ok().filter(|id| (1..NUMBER_END).contains(id))?;
    (collection_folder(folder.strip_suffix(number)?.strip_suffix('.')?, id) == folder).then_some(id)
}

/// What is in a database's folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The names of files and folders.
    pub(crate) names: Vec<String>,
    /// The folders that may be those of collections, by name.
    pub(crate) folders: BTreeMap<String, ListedFolder>,
}

/// What is in a folder whose name is that of a collection's.
#[derive(Debug)]
pub(crate) struct ListedFolder {
    /// The number of the collection.
    pub(crate) collection: u64,
    pub(crate) names: Vec<String>,
}

impl Listing {
    pub(crate) fn read(fs: &dyn Fs, dir: &Path) -> io::Result<Listing> {
        let names = fs.list(dir)?;
        let mut folders = BTreeMap::new();
        for (name, collection) in names.iter().filter_map(|name| Some((name, collection_of(name)?))) {
            match fs.list(&dir.join(name)) {
                // A file of somebody's, or one that a writer beside has removed.
                Err(e) if matches!(e.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) => {}
                listed => drop(folders.insert(name.clone(), ListedFolder { collection, names: listed? })),
            }
        }
        Ok(Listing { names, folders })
    }

    /// Every segment, with its path in the folder of the database.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (PathBuf, SegmentName)> {
        let outside = self.names.iter().map(|name| (PathBuf::from(name), name));
        let inside = self.folders.iter().flat_map(|(folder, listed)| {
            let folder = Path::new(folder);
            listed.names.iter().map(move |name| (folder.join(name), name))
        });
        let segment = |(path, name): (PathBuf, &String)| Some((path, FileName::segment(name)?));
        // One whose name says that it belongs elsewhere is a copy that somebody has made.
        let is_at_home = |(path, segment): &(PathBuf, SegmentName)| {
            segment.generation.is_some() == path.parent().is_some_and(|folder| !folder.as_os_str().is_empty())
        };
        outside.chain(inside).filter_map(segment).filter(is_at_home)
    }
}

/// Whether a name is a temporary one, under which a database's file is written before it is renamed.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_suffix(TEMPORARY).is_some_and(|name| FileName::parse(name).is_some())
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
            FileName::Segment(SegmentName { generation: None, id }) => write!(f, "seg-{id:016x}.parquet"),
            FileName::Segment(SegmentName { generation: Some(generation), id }) => {
                write!(f, "seg-{:08x}-{id:016x}.parquet", u32::MAX - generation)
            }
            FileName::CompactFirst => f.write_str(COMPACT_FIRST),
            FileName::Reserve => f.write_str("RESERVE"),
            FileName::ShutdownMarker => f.write_str("CLOSED"),
            FileName::ClockConfirmation => f.write_str("CLOCK"),
            FileName::Shipping => f.write_str("SHIP"),
            FileName::ShippingLock => f.write_str("SHIP.lock"),
            FileName::SweepsHeld => f.write_str("HELD"),
            FileName::Copy => f.write_str("COPY"),
            FileName::Failing => f.write_str("FAILING"),
        }
    }
}

#[cfg(test)]
mod tests;
