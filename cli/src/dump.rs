//! `dump` and `restore`: whole collections in a folder of files in open formats.
//!
//! A dump is a folder with a file for each collection (Parquet for measurements, lines of canonical Extended JSON for
//! documents) and `dump.json`, which describes the collections: the
//! command documents that create them and their rules, the types of their fields, and the length and checksum of each
//! file. It is written last: a folder without it is not a dump. A dump contains what is visible at one instant, and what has
//! expired and is within its grace or under a hold.

mod documents;
mod holds;
mod restore;
mod rungs;
mod types;

pub(crate) use restore::{restore, unfinished};

use crate::args::{Cli, DumpArgs};
use crate::human::counted;
use crate::{Failure, files, open};
use ebbtide::fs::{Fs, RealFs, WriteFile};
use ebbtide::{CollectionSnapshot, DocumentColumn, DocumentsSnapshot, ScanRequest, Snapshot};
use ebbtide_buckets::Schema;
use ebbtide_query::output::{Format, ResultWriter, TableStyle};
use holds::DumpedHold;
use rungs::RungEntry;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const FORMAT: &str = "ebbtide-dump";
const VERSION: u32 = 1;
/// The version of a dump with ordinary collections, which earlier programs cannot restore.
const VERSION_WITH_DOCUMENTS: u32 = 2;
/// The version of a dump with holds, which earlier programs would forget.
const VERSION_WITH_HOLDS: u32 = 3;
/// The version of a dump with ladders.
const VERSION_WITH_LADDERS: u32 = 4;
const CONTENTS: &str = "dump.json";

/// The contents of `dump.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    format: String,
    version: u32,
    /// The instant of the dump.
    instant: String,
    collections: Vec<DumpEntry>,
    /// Views; none in a dump of chosen collections.
    #[serde(default)]
    views: Vec<View>,
    /// Legal holds on the collections of the dump, and in a dump of everything those of the past.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    holds: Vec<DumpedHold>,
}

impl Contents {
    /// Removes the files that are written so far: a partial dump cannot be restored.
    fn remove_files(&self, folder: &Path) {
        for (name, ..) in self.collections.iter().flat_map(DumpEntry::files) {
            let _ = RealFs.remove(&folder.join(name));
        }
    }
}

/// A view: its name, and the statement that makes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct View {
    name: String,
    text: String,
}

/// A collection in a dump.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct DumpEntry {
    name: String,
    /// The command document that creates it.
    create: Json,
    /// The command document that creates its partial TTL indexes, if it has any.
    #[serde(rename = "createIndexes")]
    create_indexes: Option<Json>,
    /// The fields of a time-series collection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<Schema>,
    /// The columns of an ordinary collection in SQL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    columns: Option<Vec<DocumentColumn>>,
    file: String,
    bytes: u64,
    crc32: u32,
    /// Measurements, or documents.
    measurements: u64,
    /// The rungs of its ladder, with the bins of measurements that the dump does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rungs: Vec<RungEntry>,
}

impl DumpEntry {
    /// Its files, each with length and checksum.
    fn files(&self) -> impl Iterator<Item = (&str, u64, u32)> {
        let rungs = self.rungs.iter().map(|rung| (rung.file.as_str(), rung.bytes, rung.crc32));
        std::iter::once((self.file.as_str(), self.bytes, self.crc32)).chain(rungs)
    }
}

struct Out {
    path: PathBuf,
    file: Box<dyn WriteFile>,
    hasher: crc32fast::Hasher,
    bytes: u64,
}

/// The output of a writer; its length and checksum can be read once the writer is done.
#[derive(Clone)]
pub(crate) struct SyncedFile(Arc<Mutex<Out>>);

impl SyncedFile {
    /// Creates a file that does not exist.
    pub(crate) fn create(path: &Path) -> io::Result<SyncedFile> {
        let (path, file) = (path.to_owned(), RealFs.create(path)?);
        Ok(SyncedFile(Arc::new(Mutex::new(Out { path, file, hasher: crc32fast::Hasher::new(), bytes: 0 }))))
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.with(|out| out.file.sync())
    }

    fn with<T>(&self, f: impl FnOnce(&mut Out) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for SyncedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|out| {
            // The formats' errors do not name the file.
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", out.path.display()));
            out.file.append(bytes).map_err(named)?;
            out.hasher.update(bytes);
            out.bytes += bytes.len() as u64;
            Ok(bytes.len())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `ebbtide dump`.
pub(crate) fn dump(cli: &Cli, args: &DumpArgs) -> Result<(), Failure> {
    let database = open::for_reading(cli)?;
    let snapshot = database.snapshot();
    let mut all = snapshot.collections();
    all.extend(snapshot.document_collections());
    all.sort();
    let names = if args.collection.is_empty() { all } else { without_repetitions(&args.collection) };
    let folder = &args.folder;
    let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot write the dump {}: {e}", folder.display()));
    let fs = RealFs;
    if fs.exists(folder).map_err(|e| fail(&e))? && !fs.list(folder).map_err(|e| fail(&e))?.is_empty() {
        return Err(Failure::new(format!(
            "{} is not empty: name a new or empty folder for the dump",
            folder.display()
        )));
    }
    files::keep_out(&cli.db, &folder.join(CONTENTS))?;
    let collections = names.iter().map(|name| Dumped::find(&snapshot, name)).collect::<Result<Vec<_>, _>>()?;
    fs.create_dir(folder).map_err(|e| fail(&e))?;
    let mut holds = snapshot.holds()?;
    holds.retain(|hold| args.collection.is_empty() || names.contains(&hold.collection));
    let mut contents = Contents {
        format: FORMAT.to_owned(),
        version: match collections.iter().any(|c| matches!(c, Dumped::Documents(_))) {
            _ if collections.iter().any(Dumped::has_ladder) => VERSION_WITH_LADDERS,
            _ if !holds.is_empty() => VERSION_WITH_HOLDS,
            true => VERSION_WITH_DOCUMENTS,
            false => VERSION,
        },
        holds: holds.into_iter().map(DumpedHold::from).collect(),
        instant: snapshot.now().to_string(),
        collections: Vec::new(),
        views: Vec::new(),
    };
    if args.collection.is_empty() {
        let views = snapshot.views().iter();
        contents.views = views.map(|(name, text)| View { name: name.clone(), text: text.clone() }).collect();
    }
    for (at, collection) in collections.iter().enumerate() {
        let (outcome, what) = match collection {
            Dumped::Series(collection) => {
                let file = file_name(collection.name(), at, "parquet");
                let dumped = write_new(&folder.join(&file), |sink| {
                    let dumped = dump_one(collection, &file, sink)?;
                    Ok(DumpEntry { rungs: rungs::dump(collection, at, folder)?, ..dumped })
                });
                (dumped, "measurement")
            }
            Dumped::Documents(collection) => {
                let file = file_name(collection.name(), at, "ndjson");
                let path = folder.join(&file);
                (write_new(&path, |sink| documents::dump(collection, &file, sink)), "document")
            }
        };
        match outcome {
            Ok(dumped) => {
                eprintln!("{}: {}, {} bytes", dumped.name, counted(dumped.measurements, what), dumped.bytes);
                contents.collections.push(dumped);
            }
            Err(failure) => {
                contents.remove_files(folder);
                return Err(failure);
            }
        }
    }
    let text = serde_json::to_vec_pretty(&contents).map_err(|e| fail(&e))?;
    publish(&fs, folder, CONTENTS, &text).map_err(|e| fail(&e)).inspect_err(|_| contents.remove_files(folder))?;
    let count = contents.collections.len();
    let plural = if count == 1 { "" } else { "s" };
    eprintln!("{count} collection{plural} as of {} dumped to {}", contents.instant, folder.display());
    Ok(())
}

/// The names in the order in which they were given, each once: a dump with a name that appears twice cannot be restored.
fn without_repetitions(given: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in given {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// A collection to dump.
enum Dumped {
    Series(CollectionSnapshot),
    Documents(DocumentsSnapshot),
}

impl Dumped {
    fn has_ladder(&self) -> bool {
        matches!(self, Dumped::Series(collection) if collection.ladder().is_some())
    }

    fn find(snapshot: &Snapshot, name: &str) -> ebbtide::Result<Dumped> {
        match snapshot.documents(name) {
            Ok(documents) => Ok(Dumped::Documents(documents)),
            Err(_) => snapshot.collection(name).map(Dumped::Series),
        }
    }
}

/// The file name of a collection, by its position in the dump.
fn file_name(collection: &str, at: usize, extension: &str) -> String {
    let plain: String = collection.chars().take(80).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{:04}-{plain}.{extension}", at + 1)
}

/// Lets `write` fill a new file and syncs it; it is removed if that fails. A file that is there already is an error, and stays.
fn write_new<T>(path: &Path, write: impl FnOnce(&SyncedFile) -> Result<T, Failure>) -> Result<T, Failure> {
    let fail = |e: io::Error| Failure::new(format!("cannot write {}: {e}", path.display()));
    let sink = SyncedFile::create(path).map_err(fail)?;
    let written = write(&sink).and_then(|written| sink.sync().map(|()| written).map_err(fail));
    written.inspect_err(|_| drop(RealFs.remove(path)))
}

fn dump_one(collection: &CollectionSnapshot, file: &str, sink: &SyncedFile) -> Result<DumpEntry, Failure> {
    let schema = collection.schema();
    let mut writer =
        ResultWriter::new(Format::Parquet, &schema.arrow(), Box::new(sink.clone()), TableStyle::default())?;
    for unit in collection.scan(&ScanRequest::default())? {
        for batch in unit.read()? {
            writer.write(&batch?)?;
        }
    }
    for batch in collection.retained()? {
        writer.write(&batch?)?;
    }
    let measurements = writer.rows() as u64;
    writer.finish()?;
    let (bytes, crc32) = sink.with(|out| (out.bytes, out.hasher.clone().finalize()));

    Ok(DumpEntry {
        name: collection.name().to_owned(),
        create: collection.create_command(),
        create_indexes: collection.create_indexes_command(),
        schema: Some(schema.as_ref().clone()),
        columns: None,
        file: file.to_owned(),
        bytes,
        crc32,
        measurements,
        rungs: Vec::new(),
    })
}

/// Writes a file atomically and durably.
fn publish(fs: &RealFs, folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    if fs.exists(&new)? {
        fs.remove(&new)?;
    }
    let written = fs.create(&new).and_then(|mut file| {
        file.append(bytes)?;
        file.sync()
    });
    written.inspect_err(|_| drop(fs.remove(&new)))?;
    fs.publish(&new, &folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_removes_what_it_has_begun_and_nothing_that_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0001-doors.parquet");
        let begun = write_new::<()>(&path, |sink| {
            sink.clone().write_all(b"half").unwrap();
            Err(Failure::new("the disk is full".to_owned()))
        });
        assert!(begun.is_err() && !RealFs.exists(&path).unwrap());
        let whole = |sink: &SyncedFile| {
            sink.clone().write_all(b"whole").unwrap();
            Ok(())
        };
        write_new(&path, whole).unwrap();
        // Another dump into the same folder.
        assert!(write_new(&path, whole).is_err());
        assert_eq!(RealFs.read(&path).unwrap(), b"whole");
    }
}
