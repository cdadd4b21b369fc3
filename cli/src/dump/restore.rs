//! `restore`: creates the collections of a dump, all of them or none.
//!
//! A file in the database's folder lists the collections that are not complete, by their numbers: a collection of the
//! same name that was created since is a different one. Each insert has an id, so that inserts by others are noticed.

use super::{
    CONTENTS, Contents, DumpEntry, FORMAT, VERSION, VERSION_WITH_DOCUMENTS, VERSION_WITH_HOLDS, VERSION_WITH_LADDERS,
    documents, holds::DumpedHold, publish, rungs, types::loaded,
};
use crate::args::{Cli, RestoreArgs};
use crate::batching::piece;
use crate::human::counted;
use crate::import::open_parquet;
use crate::{Failure, files, guarded::guarded};
use arrow::array::RecordBatch;
use ebbtide::fs::{Fs, RealFs};
use ebbtide::{BatchId, Collection, CollectionSnapshot, Database, DocumentsSnapshot, HoldInfo, Replaces, Snapshot};
use ebbtide_buckets::{FieldType, Schema, batch_from_documents};
use ebbtide_ttl::{Filter, Timestamp, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Name of the file that lists incomplete collections, in the database's folder while a restore runs.
const UNFINISHED: &str = "restore-unfinished.json";
/// Maximum rows that are restored in one insert.
const BATCH_ROWS: usize = 50_000;

/// The contents of that file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PendingRestore {
    /// The source in the ids of the restore's inserts.
    source: u64,
    /// The instant of the dump, after which no document in it was written.
    #[serde(default)]
    instant: Option<Timestamp>,
    collections: Vec<PendingCollection>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct PendingCollection {
    name: String,
    /// The collection's number, once it has been created.
    id: Option<u64>,
}

impl PendingRestore {
    /// Whether a restore left this collection incomplete.
    fn is_left(restoring: &PendingCollection, collection: &CollectionSnapshot) -> bool {
        match restoring.id {
            Some(id) => collection.id() == id,
            None => is_untouched(collection),
        }
    }

    /// Whether a restore left this ordinary collection incomplete.
    fn is_left_of_documents(restoring: &PendingCollection, collection: &DocumentsSnapshot) -> bool {
        restoring.id.map_or_else(|| collection.columns().iter().next().is_none(), |id| collection.id() == id)
    }

    /// Whether nobody else has written to the ordinary collection since.
    fn are_ours(&self, collection: &DocumentsSnapshot) -> ebbtide::Result<bool> {
        let mut ours = true;
        collection.for_each(&mut |found| {
            ours = self.instant.is_some_and(|instant| found.written <= instant);
            Ok(ours)
        })?;
        Ok(ours)
    }

    /// Whether nobody else has inserted into the collection since.
    fn is_ours(&self, collection: &CollectionSnapshot) -> bool {
        let last = collection.last_batch();
        is_untouched(collection) || last.is_some_and(|last| last.is_newest && last.id.source == self.source)
    }
}

/// Whether nothing was ever inserted into the collection.
fn is_untouched(collection: &CollectionSnapshot) -> bool {
    let schema = collection.schema();
    schema.fields.is_empty() && schema.meta_type.is_none() && collection.time_range().is_none()
}

/// The file of an unfinished restore.
struct Marker {
    fs: RealFs,
    folder: PathBuf,
    path: PathBuf,
}

impl Marker {
    fn new(folder: &Path) -> Self {
        Marker { fs: RealFs, folder: folder.to_owned(), path: folder.join(UNFINISHED) }
    }

    fn read(&self) -> Result<Option<PendingRestore>, Failure> {
        let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot read {}: {e}", self.path.display()));
        if !self.fs.exists(&self.path).map_err(|e| fail(&e))? {
            return Ok(None);
        }
        let bytes = self.fs.read(&self.path).map_err(|e| fail(&e))?;
        match serde_json::from_slice(&bytes) {
            Ok(unfinished) => Ok(Some(unfinished)),
            // Earlier versions wrote a list of names without numbers.
            Err(error) => {
                let names: Vec<String> = serde_json::from_slice(&bytes).map_err(|_| fail(&error))?;
                let collections = names.into_iter().map(|name| PendingCollection { name, id: None }).collect();
                Ok(Some(PendingRestore { source: 0, instant: None, collections }))
            }
        }
    }

    fn write(&self, unfinished: &PendingRestore) -> Result<(), Failure> {
        let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot write {}: {e}", self.path.display()));
        let text = serde_json::to_vec(unfinished).map_err(|e| fail(&e))?;
        publish(&self.fs, &self.folder, UNFINISHED, &text).map_err(|e| fail(&e))
    }

    fn remove(&self) -> Result<(), Failure> {
        self.fs
            .remove(&self.path)
            .and_then(|()| self.fs.sync_dir(&self.folder))
            .map_err(|e| Failure::new(format!("cannot remove {}: {e}", self.path.display())))
    }
}

/// Runs `ebbtide restore`.
pub(crate) fn restore(cli: &Cli, args: &RestoreArgs) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("a restore writes to the database: drop --read-only"));
    }
    if args.at.is_some() {
        // Not by clap: what an option requires is not asked for beside an argument that conflicts with it.
        return Err(Failure::usage(
            "--at belongs to --from URL, a copy that has many points in time: a dump has one, so drop --at",
        ));
    }
    let Some(folder) = &args.folder else { return Err(Failure::usage("there is no folder to restore from")) };
    let contents = contents(folder)?;
    let views = if args.collection.is_empty() && args.rename.is_none() { contents.views } else { Vec::new() };
    let mut wanted = contents.collections;
    let described = |what: String| Failure::new(format!("{}: a hold: {what}", folder.join(CONTENTS).display()));
    let mut holds =
        contents.holds.iter().map(DumpedHold::read).collect::<Result<Vec<HoldInfo>, _>>().map_err(described)?;
    for name in &args.collection {
        if !wanted.iter().any(|c| c.name == *name) {
            let hint = ebbtide_query::suggest::hint(name, wanted.iter().map(|c| c.name.as_str()));
            return Err(Failure::new(format!("the dump {} has no collection '{name}'{hint}", folder.display())));
        }
    }
    if !args.collection.is_empty() {
        wanted.retain(|c| args.collection.contains(&c.name));
        holds.retain(|hold| args.collection.contains(&hold.collection));
    }
    for dumped in &wanted {
        dumped.files().try_for_each(|file| check(folder, file))?;
    }
    if let Some(name) = &args.rename {
        let [dumped] = wanted.as_mut_slice() else {
            let names: Vec<&str> = wanted.iter().map(|c| c.name.as_str()).collect();
            let what =
                format!("--as names one collection, and the dump holds {}; choose with --collection", names.join(", "));
            return Err(Failure::usage(what));
        };
        holds.retain(|hold| hold.collection == dumped.name);
        holds.iter_mut().for_each(|hold| hold.collection.clone_from(name));
        dumped.call(name);
    }
    let database = crate::open::builder(&cli.db).open()?;
    let marker = Marker::new(&cli.db);
    if let Some(left) = marker.read()? {
        undo(&database, &left)?;
        marker.remove()?;
    }
    let snapshot = database.snapshot();
    let mut existing = snapshot.collections();
    existing.extend(snapshot.document_collections());
    existing.extend(snapshot.views().keys().cloned());
    let names = wanted.iter().map(|c| &c.name).chain(views.iter().map(|view| &view.name));
    if let Some(name) = names.into_iter().find(|n| existing.contains(n)) {
        return Err(Failure::new(format!(
            "'{name}' already exists in {} and is not overwritten; drop it, or restore into another \
             database with --db",
            cli.db.display()
        )));
    }
    let is_active = |hold: &&HoldInfo| hold.lifted_at.is_none();
    let present = snapshot.holds()?;
    let is_taken = |hold: &&HoldInfo| present.iter().filter(is_active).any(|other| other.name == hold.name);
    if let Some(hold) = holds.iter().filter(is_active).find(is_taken) {
        let what = format!("hold '{}' of the dump is there already in {}: lift it first", hold.name, cli.db.display());
        return Err(Failure::new(what));
    }
    let collections = wanted.iter().map(|c| PendingCollection { name: c.name.clone(), id: None }).collect();
    let source = RandomState::new().build_hasher().finish();
    let mut unfinished = PendingRestore { source, instant: Timestamp::parse(&contents.instant).ok(), collections };
    marker.write(&unfinished)?;
    if let Err(failure) = restore_all(&database, &wanted, folder, &marker, &mut unfinished) {
        for made in unfinished.collections.iter().filter(|c| c.id.is_some()) {
            database.drop_collection(&made.name)?;
        }
        marker.remove()?;
        return Err(Failure { message: format!("{failure}; nothing was restored"), ..failure });
    }
    database.flush()?;
    database.import_holds(&holds)?;
    // Their statements are kept, and run by nobody yet.
    for view in &views {
        database.put_view(&view.name, &view.text, Replaces::Nothing)?;
    }
    marker.remove()?;
    let plural = if wanted.len() == 1 { "" } else { "s" };
    eprintln!("{} collection{plural} as of {} restored into {}", wanted.len(), contents.instant, cli.db.display());
    database.close()?;
    Ok(())
}

impl DumpEntry {
    /// Gives the collection another name.
    fn call(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        self.create["create"] = json!(name);
        if let Some(rules) = &mut self.create_indexes {
            rules["createIndexes"] = json!(name);
        }
    }
}

/// Creates the collections, then fills them.
fn restore_all(
    database: &Database,
    wanted: &[DumpEntry],
    folder: &Path,
    marker: &Marker,
    unfinished: &mut PendingRestore,
) -> Result<(), Failure> {
    for (dumped, restoring) in wanted.iter().zip(&mut unfinished.collections) {
        let mut create = dumped.create.clone();
        // Measurements outside the range that the option allows may have been stored before it was set.
        if refuses_times(&create) {
            create["timeseries"]["outOfRange"] = json!("suspend");
        }
        database.run_command(&create)?;
        restoring.id = Some(match &dumped.schema {
            Some(_) => database.snapshot().collection(&dumped.name)?.id(),
            None => database.snapshot().documents(&dumped.name)?.id(),
        });
    }
    marker.write(unfinished)?;
    let mut next = BatchId { source: unfinished.source, number: 0 };
    for dumped in wanted {
        match &dumped.schema {
            Some(schema) => {
                let count = fill(database, (dumped, schema), folder, &mut next)?;
                eprintln!("{}: {}", dumped.name, counted(count, "measurement"));
                if has_archive(dumped) {
                    eprintln!(
                        "{0}: what expires is moved to the same archive as before; while the dumped database is used too, give {0} an archive \
                         of its own before its first sweep, with ALTER COLLECTION {0} EXPIRE AFTER ... INTO 'URL'",
                        dumped.name
                    );
                }
            }
            None => {
                let count = documents::fill(database, dumped, folder)?;
                eprintln!("{}: {}", dumped.name, counted(count, "document"));
            }
        }
    }
    Ok(())
}

/// Drops the collections that an interrupted restore left incomplete. Collections that others have inserted into since
/// are kept.
fn undo(database: &Database, left: &PendingRestore) -> Result<(), Failure> {
    let snapshot = database.snapshot();
    let mut dropped = Vec::new();
    for restoring in &left.collections {
        let (is_left, is_ours) = match (snapshot.collection(&restoring.name), snapshot.documents(&restoring.name)) {
            (Ok(series), _) => (PendingRestore::is_left(restoring, &series), left.is_ours(&series)),
            (_, Ok(documents)) => {
                (PendingRestore::is_left_of_documents(restoring, &documents), left.are_ours(&documents)?)
            }
            _ => continue,
        };
        if !is_left {
            continue;
        }
        if is_ours {
            // They came with the dump.
            let is_on_it = |hold: &&HoldInfo| hold.collection == restoring.name && hold.lifted_at.is_none();
            for hold in snapshot.holds()?.iter().filter(is_on_it) {
                database.lift_hold(&hold.name)?;
            }
            database.drop_collection(&restoring.name)?;
            dropped.push(restoring.name.as_str());
        } else {
            eprintln!(
                "note: an interrupted restore left {0} incomplete; it is kept because others wrote to it since: \
                 DROP COLLECTION {0} drops it",
                restoring.name
            );
        }
    }
    if !dropped.is_empty() {
        eprintln!("an interrupted restore of {} was undone", dropped.join(", "));
    }
    Ok(())
}

/// A note about an interrupted restore, for `ebbtide status`.
pub(crate) fn unfinished(folder: &Path, snapshot: &Snapshot) -> Result<Option<String>, Failure> {
    let Some(left) = Marker::new(folder).read()? else { return Ok(None) };
    let is_left = |r: &&PendingCollection| {
        snapshot.collection(&r.name).is_ok_and(|c| PendingRestore::is_left(r, &c))
            || snapshot.documents(&r.name).is_ok_and(|c| PendingRestore::is_left_of_documents(r, &c))
    };
    let names: Vec<&str> = left.collections.iter().filter(is_left).map(|r| r.name.as_str()).collect();
    let note = format!("a restore was interrupted: {} may be incomplete; ebbtide restore undoes it", names.join(", "));
    Ok((!names.is_empty()).then_some(note))
}

/// Reads and checks `dump.json`.
fn contents(folder: &Path) -> Result<Contents, Failure> {
    let path = folder.join(CONTENTS);
    if !path.exists() {
        return Err(Failure::new(format!(
            "{} is not a complete dump: {CONTENTS}, which is written last, is missing; dump the collections again",
            folder.display()
        )));
    }
    let mut text = String::new();
    files::open(&path)?
        .read_to_string(&mut text)
        .map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
    let wrong = |what: &str| Failure::new(format!("{} is not the description of a dump: {what}", path.display()));
    let head: Json = serde_json::from_str(&text).map_err(|e| wrong(&e.to_string()))?;
    if head["format"] != FORMAT {
        return Err(wrong(&format!("its format is not {FORMAT}")));
    }
    let known = [VERSION, VERSION_WITH_DOCUMENTS, VERSION_WITH_HOLDS, VERSION_WITH_LADDERS];
    if !known.iter().any(|known| head["version"] == *known) {
        let what = format!(
            "its version is {}; this program reads versions {VERSION} to {VERSION_WITH_LADDERS}",
            head["version"]
        );
        return Err(wrong(&what));
    }
    let contents: Contents = serde_json::from_value(head).map_err(|e| wrong(&e.to_string()))?;
    Timestamp::parse(&contents.instant).map_err(|e| wrong(&format!("its instant: {}", e.escape_debug())))?;
    let mut names = HashSet::new();
    for dumped in &contents.collections {
        let name = dumped.name.escape_debug();
        if dumped.name.chars().any(char::is_control) || !names.insert(dumped.name.as_str()) {
            return Err(wrong(&format!("the name '{name}' is not valid or appears twice")));
        }
        if dumped.schema.is_some() == dumped.columns.is_some() {
            return Err(wrong(&format!("'{name}' must have either a schema or columns")));
        }
        if !runs(&dumped.create, "create", &dumped.name) {
            return Err(wrong(&format!("create of '{name}' is a different command or names a different collection")));
        }
        if dumped.create_indexes.as_ref().is_some_and(|rules| !runs(rules, "createIndexes", &dumped.name)) {
            return Err(wrong(&format!(
                "createIndexes of '{name}' is a different command or names a different collection"
            )));
        }
    }
    Ok(contents)
}

/// Whether a command document is this command on this collection, which its first member decides.
fn runs(document: &Json, command: &str, collection: &str) -> bool {
    let first = document.as_object().and_then(|members| members.iter().next());
    first.is_some_and(|(key, value)| key == command && value.as_str() == Some(collection))
}

/// Reads a file of a dump to its end and compares its length and checksum.
fn check(folder: &Path, (name, length, crc32): (&str, u64, u32)) -> Result<(), Failure> {
    let path = folder.join(name);
    let damaged = |what: String| {
        Failure::new(format!("{} is damaged: {what}; nothing was restored; copy the dump again", path.display()))
    };
    let mut parts = Path::new(name).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
        return Err(damaged("its name points outside the folder of the dump".to_owned()));
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
    if bytes != length {
        return Err(damaged(format!("it has {bytes} bytes instead of {length}")));
    }
    match hasher.finalize() == crc32 {
        true => Ok(()),
        false => Err(damaged("its checksum does not match".to_owned())),
    }
}

/// Whether a collection, or one of its TTL indexes, has an archive.
fn has_archive(dumped: &DumpEntry) -> bool {
    let indexes = dumped.create_indexes.as_ref().and_then(|rules| rules["indexes"].as_array());
    let of_index = indexes.into_iter().flatten().any(|index| !index["expireInto"].is_null());
    of_index || !dumped.create["expireInto"].is_null()
}

fn refuses_times(create: &Json) -> bool {
    create["timeseries"]["outOfRange"] == "reject"
}

/// Fills a new collection and creates its rules. `next` is the id of the next insert.
fn fill(
    database: &Database,
    (dumped, fields): (&DumpEntry, &Schema),
    folder: &Path,
    next: &mut BatchId,
) -> Result<u64, Failure> {
    let path = folder.join(&dumped.file);
    let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot restore from {}: {e}", path.display()));
    let collection = database.collection(&dumped.name)?;
    let mut insert = |collection: &Collection, batch: &RecordBatch| {
        next.number += 1;
        collection.insert_with_id(batch, *next)
    };
    // One measurement with a value in every field, deleted at once, fixes the types and the order of the fields.
    let schema = collection.snapshot()?.schema().as_ref().clone();
    let first = batch_from_documents(&[pattern(fields)], &schema).map_err(|e| fail(&e.error))?;
    insert(&collection, &loaded(&first.batch, fields).map_err(|e| fail(&e))?)?;
    collection.delete(&Filter::everything())?;
    let (_, _, mut batches) = open_parquet(files::open(&path)?, BATCH_ROWS).map_err(|e| fail(&e))?;
    let mut count = 0;
    while let Some(batch) = guarded(|| batches.next()).map_err(|e| fail(&e))? {
        let batch = loaded(&batch.map_err(|e| fail(&e))?, fields).map_err(|e| fail(&e))?;
        let mut from = 0;
        while from < batch.num_rows() {
            let piece = piece(&batch, from, BATCH_ROWS);
            count += insert(&collection, &piece)?;
            from += piece.num_rows();
        }
    }
    if count != dumped.measurements {
        return Err(fail(&format!("it contains {} instead of {}", counted(count, "measurement"), dumped.measurements)));
    }
    if collection.snapshot()?.schema().as_ref() != fields {
        return Err(fail(&"its fields differ from those in the dump's description"));
    }
    if let Some(rules) = &dumped.create_indexes {
        database.run_command(rules)?;
    }
    rungs::fill(&collection, &dumped.rungs, folder)?;
    if refuses_times(&dumped.create) {
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
