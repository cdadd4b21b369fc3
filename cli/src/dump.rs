//! `dump` and `restore`: whole collections in a folder of open files.
//!
//! A dump is a folder with a Parquet file for each collection and `dump.json`, which says how the collections are made:
//! the command documents for them and their rules, the types of their fields, and the length and checksum of each file.
//! It is written last: a folder without it is no dump. A dump holds what is visible at one instant.

use crate::args::{Cli, DumpArgs, RestoreArgs};
use crate::pieces::piece;
use crate::{Failure, files, open};
use ebbtide::fs::{Fs, RealFs, WriteFile};
use ebbtide::{CollectionSnapshot, Database, ScanRequest};
use ebbtide_buckets::{FieldType, Schema};
use ebbtide_query::output::{Format, ResultWriter, TableStyle};
use ebbtide_ttl::{Filter, Timestamp, Value};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const FORMAT: &str = "ebbtide-dump";
const VERSION: u32 = 1;
const CONTENTS: &str = "dump.json";
/// In the database's folder while collections are being restored: they are not complete.
const UNFINISHED: &str = "restore-unfinished.json";
/// Rows that are restored in one insert.
const BATCH_ROWS: usize = 50_000;

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
    let collections = names.iter().map(|n| snapshot.collection(n)).collect::<Result<Vec<_>, _>>()?;
    fs.create_dir(folder).map_err(|e| fail(&e))?;
    let mut contents = Contents {
        format: FORMAT.to_owned(),
        version: VERSION,
        instant: snapshot.now().to_string(),
        collections: Vec::new(),
    };
    for (at, collection) in collections.iter().enumerate() {
        let dumped = dump_one(&database, collection, at, folder)?;
        eprintln!("{}: {} measurements, {} bytes", dumped.name, dumped.measurements, dumped.bytes);
        contents.collections.push(dumped);
    }
    let text = serde_json::to_vec_pretty(&contents).map_err(|e| fail(&e))?;
    publish(&fs, folder, CONTENTS, &text).map_err(|e| fail(&e))?;
    let count = contents.collections.len();
    let plural = if count == 1 { "" } else { "s" };
    eprintln!("{count} collection{plural} as at {} dumped to {}", contents.instant, folder.display());
    Ok(())
}

fn dump_one(database: &Database, collection: &CollectionSnapshot, at: usize, folder: &Path) -> Result<Dumped, Failure> {
    let name = collection.name();
    let plain: String = name.chars().take(80).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let file = format!("{:04}-{plain}.parquet", at + 1);
    let path = folder.join(&file);
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

    let mut create = json!({"create": name});
    let listed = database.run_command(&json!({"listCollections": 1, "filter": {"name": name}}))?;
    if let (Some(options), Some(create)) =
        (listed["cursor"]["firstBatch"][0]["options"].as_object(), create.as_object_mut())
    {
        create.extend(options.clone());
    }
    let indexes = database.run_command(&json!({"listIndexes": name}))?["cursor"]["firstBatch"].take();
    let any = indexes.as_array().is_some_and(|i| !i.is_empty());
    Ok(Dumped {
        name: name.to_owned(),
        create,
        create_indexes: any.then(|| json!({"createIndexes": name, "indexes": indexes})),
        schema: schema.as_ref().clone(),
        file,
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

/// Runs `ebbtide restore`.
pub(crate) fn restore(cli: &Cli, args: &RestoreArgs) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("a restore writes: leave --read-only away"));
    }
    let contents = contents(&args.folder)?;
    let mut wanted = contents.collections;
    for name in &args.collection {
        if !wanted.iter().any(|c| c.name == *name) {
            let hint = ebbtide_query::suggest::hint(name, wanted.iter().map(|c| c.name.as_str()));
            return Err(Failure::new(format!("the dump {} holds no collection '{name}'{hint}", args.folder.display())));
        }
    }
    if !args.collection.is_empty() {
        wanted.retain(|c| args.collection.contains(&c.name));
    }
    for dumped in &wanted {
        check(&args.folder, dumped)?;
    }
    let database = Database::open(&cli.db)?;
    let marker = cli.db.join(UNFINISHED);
    let fs = RealFs;
    let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot write {}: {e}", marker.display()));
    // What an interrupted restore left is not complete, and nobody was told that it is.
    if fs.exists(&marker).map_err(|e| fail(&e))? {
        let left: Vec<String> =
            serde_json::from_slice(&fs.read(&marker).map_err(|e| fail(&e))?).map_err(|e| fail(&e))?;
        drop_all(&database, &left)?;
        eprintln!("an interrupted restore of {} was undone", left.join(", "));
    }
    let existing = database.collections();
    if let Some(name) = wanted.iter().map(|c| &c.name).find(|n| existing.contains(n)) {
        return Err(Failure::new(format!(
            "collection '{name}' exists in {}: nothing is overwritten; drop it, or restore into another \
             database with --db",
            cli.db.display()
        )));
    }
    let names: Vec<&str> = wanted.iter().map(|c| c.name.as_str()).collect();
    let text = serde_json::to_vec(&names).map_err(|e| fail(&e))?;
    publish(&fs, &cli.db, UNFINISHED, &text).map_err(|e| fail(&e))?;
    let restored = wanted.iter().try_for_each(|dumped| {
        let count = restore_one(&database, dumped, &args.folder)?;
        eprintln!("{}: {count} measurements", dumped.name);
        Ok(())
    });
    if let Err(failure) = restored {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        drop_all(&database, &names)?;
        forget(&fs, &marker)?;
        return Err(Failure { message: format!("{failure}; nothing was restored"), ..failure });
    }
    database.flush()?;
    forget(&fs, &marker)?;
    let plural = if wanted.len() == 1 { "" } else { "s" };
    eprintln!("{} collection{plural} as at {} restored into {}", wanted.len(), contents.instant, cli.db.display());
    database.close()?;
    Ok(())
}

/// What an interrupted restore left in the folder of a database, for `ebbtide status`.
pub(crate) fn unfinished(folder: &Path) -> Result<Option<String>, Failure> {
    let marker = folder.join(UNFINISHED);
    let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot read {}: {e}", marker.display()));
    if !RealFs.exists(&marker).map_err(|e| fail(&e))? {
        return Ok(None);
    }
    let names: Vec<String> =
        serde_json::from_slice(&RealFs.read(&marker).map_err(|e| fail(&e))?).map_err(|e| fail(&e))?;
    Ok(Some(format!("a restore was interrupted: {} may be incomplete; ebbtide restore undoes it", names.join(", "))))
}

fn drop_all(database: &Database, names: &[String]) -> Result<(), Failure> {
    let existing = database.collections();
    for name in names.iter().filter(|n| existing.contains(n)) {
        database.drop_collection(name)?;
    }
    Ok(())
}

fn forget(fs: &RealFs, marker: &Path) -> Result<(), Failure> {
    let folder = marker.parent().unwrap_or(Path::new("."));
    fs.remove(marker)
        .and_then(|()| fs.sync_dir(folder))
        .map_err(|e| Failure::new(format!("cannot remove {}: {e}", marker.display())))
}

/// What a dump says of itself.
fn contents(folder: &Path) -> Result<Contents, Failure> {
    let path = folder.join(CONTENTS);
    if !path.exists() {
        return Err(Failure::new(format!(
            "{} is no complete dump: it has no {CONTENTS}, which is written last; make the dump again",
            folder.display()
        )));
    }
    let mut text = String::new();
    files::open(&path)?
        .read_to_string(&mut text)
        .map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
    let wrong = |what: &str| Failure::new(format!("{} is not what a dump says of itself: {what}", path.display()));
    let head: Json = serde_json::from_str(&text).map_err(|e| wrong(&e.to_string()))?;
    if head["format"] != FORMAT {
        return Err(wrong(&format!("its format is not {FORMAT}")));
    }
    if head["version"] != VERSION {
        return Err(wrong(&format!("its version is {}, this program reads {VERSION}", head["version"])));
    }
    serde_json::from_value(head).map_err(|e| wrong(&e.to_string()))
}

/// Reads a file of a dump to its end and compares.
fn check(folder: &Path, dumped: &Dumped) -> Result<(), Failure> {
    let path = folder.join(&dumped.file);
    let damaged = |what: String| {
        Failure::new(format!("{} is damaged: {what}; fetch the dump again, nothing was restored", path.display()))
    };
    if Path::new(&dumped.file).components().count() != 1 {
        return Err(damaged("its name leaves the folder of the dump".to_owned()));
    }
    let mut file = files::open(&path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer).map_err(|e| damaged(e.to_string()))? {
            0 => break,
            count => {
                hasher.update(&buffer[..count]);
                bytes += count as u64;
            }
        }
    }
    if bytes != dumped.bytes {
        return Err(damaged(format!("it has {bytes} bytes instead of {}", dumped.bytes)));
    }
    match hasher.finalize() == dumped.crc32 {
        true => Ok(()),
        false => Err(damaged("its checksum does not match".to_owned())),
    }
}

fn restore_one(database: &Database, dumped: &Dumped, folder: &Path) -> Result<u64, Failure> {
    let path = folder.join(&dumped.file);
    let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot restore from {}: {e}", path.display()));
    let mut create = dumped.create.clone();
    // Times that the option refuses may have been there before it was set.
    let refuses = create["timeseries"]["outOfRange"] == "reject";
    if refuses {
        create["timeseries"]["outOfRange"] = json!("suspend");
    }
    database.run_command(&create)?;
    let collection = database.collection(&dumped.name)?;
    // One measurement with a value in every field, deleted at once, fixes the types and the order of the fields.
    collection.insert_documents(&[pattern(&dumped.schema)])?;
    collection.delete(&Filter::everything())?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(files::open(&path)?).map_err(|e| fail(&e))?;
    let mut count = 0;
    for batch in builder.with_batch_size(BATCH_ROWS).build().map_err(|e| fail(&e))? {
        let batch = batch.map_err(|e| fail(&e))?;
        let mut from = 0;
        while from < batch.num_rows() {
            let piece = piece(&batch, from, BATCH_ROWS);
            count += collection.insert(&piece)?;
            from += piece.num_rows();
        }
    }
    if count != dumped.measurements {
        return Err(fail(&format!("it holds {count} measurements instead of {}", dumped.measurements)));
    }
    if collection.snapshot()?.schema().as_ref() != &dumped.schema {
        return Err(fail(&"its fields are not those that the dump names"));
    }
    if let Some(rules) = &dumped.create_indexes {
        database.run_command(rules)?;
    }
    if refuses {
        database.run_command(&json!({"collMod": dumped.name, "timeseries": {"outOfRange": "reject"}}))?;
    }
    Ok(count)
}

/// A document with a value of the right type in every field.
fn pattern(schema: &Schema) -> Value {
    let mut members = vec![(schema.time.as_str().into(), Value::Date(Timestamp::from_millis(86_400_000)))];
    if let (Some(name), Some(ty)) = (&schema.meta, &schema.meta_type) {
        members.push((name.into(), example(ty)));
    }
    members.extend(schema.fields.iter().map(|(name, ty)| (name.into(), example(ty))));
    Value::Object(members)
}

fn example(ty: &FieldType) -> Value {
    match ty {
        FieldType::Unknown => Value::Null,
        FieldType::Bool => Value::Bool(false),
        FieldType::Int64 => Value::Int(0),
        FieldType::Double => Value::Double(0.5),
        FieldType::String => Value::String(String::new()),
        FieldType::Timestamp => Value::Date(Timestamp::from_millis(86_400_000)),
        FieldType::Binary => Value::Binary(Vec::new()),
        FieldType::List(item) if **item == FieldType::Unknown => Value::Array(Vec::new()),
        FieldType::List(item) => Value::Array(vec![example(item)]),
        FieldType::Object(members) => Value::Object(members.iter().map(|(n, ty)| (n.into(), example(ty))).collect()),
    }
}
