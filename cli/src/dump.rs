//! `dump` and `restore`: whole collections in a folder of open files.
//!
//! A dump is a folder with a Parquet file for each collection and `dump.json`, which says how the collections are made:
//! the command documents for them and their rules, the types of their fields, and the length and checksum of each file.
//! It is written last: a folder without it is no dump. A dump holds what is visible at one instant.

mod restore;

pub(crate) use restore::{restore, unfinished};

use crate::args::{Cli, DumpArgs};
use crate::{Failure, files, open};
use ebbtide::fs::{Fs, RealFs, WriteFile};
use ebbtide::{CollectionSnapshot, ScanRequest};
use ebbtide_buckets::Schema;
use ebbtide_query::output::{Format, ResultWriter, TableStyle};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const FORMAT: &str = "ebbtide-dump";
const VERSION: u32 = 1;
const CONTENTS: &str = "dump.json";

/// What `dump.json` holds.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    format: String,
    version: u32,
    /// The instant at which the collections looked so.
    instant: String,
    collections: Vec<Dumped>,
}

/// One collection.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Dumped {
    name: String,
    /// The command document that makes it.
    create: Json,
    /// The one that makes its partial TTL indexes, if it has any.
    #[serde(rename = "createIndexes")]
    create_indexes: Option<Json>,
    schema: Schema,
    file: String,
    bytes: u64,
    crc32: u32,
    measurements: u64,
}

struct Out {
    file: Box<dyn WriteFile>,
    hasher: crc32fast::Hasher,
    bytes: u64,
}

/// Where a Parquet file goes; its checksum can be asked for when the writer is done with it.
#[derive(Clone)]
struct Sink(Arc<Mutex<Out>>);

impl Sink {
    fn with<T>(&self, f: impl FnOnce(&mut Out) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|out| {
            out.file.append(bytes)?;
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
    let all = snapshot.collections();
    let names = if args.collection.is_empty() { all } else { args.collection.clone() };
    let folder = &args.folder;
    let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot write the dump {}: {e}", folder.display()));
    let fs = RealFs;
    if fs.exists(folder).map_err(|e| fail(&e))? && !fs.list(folder).map_err(|e| fail(&e))?.is_empty() {
        return Err(Failure::new(format!("{} is not empty: name a new folder for the dump", folder.display())));
    }
    files::keep_out(&cli.db, &folder.join(CONTENTS))?;
    let collections = names.iter().map(|n| snapshot.collection(n)).collect::<Result<Vec<_>, _>>()?;
    fs.create_dir(folder).map_err(|e| fail(&e))?;
    let mut contents = Contents {
        format: FORMAT.to_owned(),
        version: VERSION,
        instant: snapshot.now().to_string(),
        collections: Vec::new(),
    };
    for (at, collection) in collections.iter().enumerate() {
        let file = file_name(collection.name(), at);
        match dump_one(collection, &file, folder) {
            Ok(dumped) => {
                eprintln!("{}: {} measurements, {} bytes", dumped.name, dumped.measurements, dumped.bytes);
                contents.collections.push(dumped);
            }
            Err(failure) => {
                // A part of a dump restores nothing.
                for name in contents.collections.iter().map(|c| &c.file).chain([&file]) {
                    let _ = fs.remove(&folder.join(name));
                }
                return Err(failure);
            }
        }
    }
    let text = serde_json::to_vec_pretty(&contents).map_err(|e| fail(&e))?;
    publish(&fs, folder, CONTENTS, &text).map_err(|e| fail(&e))?;
    let count = contents.collections.len();
    let plural = if count == 1 { "" } else { "s" };
    eprintln!("{count} collection{plural} as at {} dumped to {}", contents.instant, folder.display());
    Ok(())
}

/// The file of a collection, by its place among the others.
fn file_name(collection: &str, at: usize) -> String {
    let plain: String = collection.chars().take(80).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{:04}-{plain}.parquet", at + 1)
}

fn dump_one(collection: &CollectionSnapshot, file: &str, folder: &Path) -> Result<Dumped, Failure> {
    let path = folder.join(file);
    let fail = |e: io::Error| Failure::new(format!("cannot write {}: {e}", path.display()));
    let made = RealFs.create(&path).map_err(fail)?;
    let sink = Sink(Arc::new(Mutex::new(Out { file: made, hasher: crc32fast::Hasher::new(), bytes: 0 })));
    let schema = collection.schema();
    let mut writer =
        ResultWriter::new(Format::Parquet, &schema.arrow(), Box::new(sink.clone()), TableStyle::default())?;
    for unit in collection.scan(&ScanRequest::default())? {
        for batch in unit.read()? {
            writer.write(&batch?)?;
        }
    }
    let measurements = writer.rows() as u64;
    writer.finish()?;
    sink.with(|out| out.file.sync()).map_err(fail)?;
    let (bytes, crc32) = sink.with(|out| (out.bytes, out.hasher.clone().finalize()));

    Ok(Dumped {
        name: collection.name().to_owned(),
        create: collection.create_command(),
        create_indexes: collection.create_indexes_command(),
        schema: schema.as_ref().clone(),
        file: file.to_owned(),
        bytes,
        crc32,
        measurements,
    })
}

/// Writes a file that is there as a whole, durably, or not at all.
fn publish(fs: &RealFs, folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    if fs.exists(&new)? {
        fs.remove(&new)?;
    }
    let mut file = fs.create(&new)?;
    file.append(bytes)?;
    file.sync()?;
    drop(file);
    fs.publish(&new, &folder.join(name))
}
