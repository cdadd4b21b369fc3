//! `import --documents`: lines of Extended JSON into an ordinary collection, each in the place of the document with its `_id`.
//!
//! The files are checked before anything is stored; standard input is stored as it is read. An import that was interrupted is
//! run again: a document that is stored once more is the same but for its `_ts`.

use super::bad::{BadLines, Begin};
use super::source::{Source, expand};
use crate::Failure;
use crate::args::{Cli, ImportArgs, InputFormat};
use crate::human::counted;
use ebbtide::documents_model::bson::RawDocumentBuf;
use ebbtide::documents_model::json::document_from_slice;
use ebbtide::documents_model::{DefaultTtl, RuleError, check, check_ttl, id_key};
use ebbtide::{Database, Documents, DocumentsOptions, OnConflict};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Documents that are stored in one step at most, and bytes of their lines, about.
const BATCH: usize = 10_000;
const BATCH_BYTES: usize = 4 << 20;

/// Runs `ebbtide import --documents`.
pub(super) fn run(cli: &Cli, args: &ImportArgs) -> Result<(), Failure> {
    let Some(name) = &args.collection else {
        return Err(Failure::usage("name the collection with --into NAME"));
    };
    let inputs = inputs(args)?;
    let mut bad = BadLines::new(args.bad_lines.as_deref(), args.bad_lines_max);
    let default_ttl = default_ttl(cli, name)?;
    let (mut documents, mut checked) = (0_u64, true);
    for input in &inputs {
        let Input::File(_) = input else {
            checked = false;
            continue;
        };
        each_line(input, &mut bad, default_ttl, &mut |_, _| {
            documents += 1;
            Ok(())
        })?;
    }
    if args.dry_run {
        if !checked {
            return Err(Failure::usage("--dry-run checks files: standard input can be read only once"));
        }
        let documents = counted(documents, "document");
        eprintln!("{documents} would be imported into {name}; the database was not changed");
        return bad.report();
    }
    // What was counted is found again.
    let mut bad = BadLines::new(args.bad_lines.as_deref(), args.bad_lines_max);
    bad.open(&Begin::New, &args.files, &cli.db)?;
    let database = Database::open(&cli.db)?;
    let target = match database.snapshot().has_collection(name) {
        true => database.documents(name)?,
        false => database.create_documents(name, DocumentsOptions::default())?,
    };
    let mut upsert = Upsert { target, waiting: Vec::new(), bytes: 0, stored: 0 };
    let mut outcome = Ok(());
    for input in &inputs {
        outcome = each_line(input, &mut bad, default_ttl, &mut |document, bytes| upsert.add(document, bytes));
        if outcome.is_err() {
            break;
        }
    }
    let outcome = outcome.and_then(|()| upsert.flush());
    if let Err(failure) = outcome {
        let stored = counted(upsert.stored, "document");
        bad.report()?;
        return Err(Failure::new(format!(
            "{failure}; {stored} before it stored: run the import again to store the others"
        )));
    }
    let stored = upsert.stored;
    drop(upsert);
    database.close()?;
    eprintln!("{} imported into {name}", counted(stored, "document"));
    bad.report()
}

/// Where lines come from.
enum Input {
    File(Source),
    Stdin,
}

fn inputs(args: &ImportArgs) -> Result<Vec<Input>, Failure> {
    if args.format.is_some_and(|format| format != InputFormat::Ndjson) {
        return Err(Failure::usage("--documents reads lines of JSON: leave out --format"));
    }
    let read = Arc::new(AtomicU64::new(0));
    let mut inputs = Vec::new();
    for path in expand(&args.files)? {
        inputs.push(match path == Path::new("-") {
            true => Input::Stdin,
            false => Input::File(Source::find(&path, &path, Some(InputFormat::Ndjson), &read)?),
        });
    }
    Ok(inputs)
}

/// The time to live that the documents are checked for.
fn default_ttl(cli: &Cli, name: &str) -> Result<DefaultTtl, Failure> {
    if !Database::exists(&cli.db)? {
        return Ok(DefaultTtl::Off);
    }
    let snapshot = Database::builder(&cli.db).read_only().open()?.snapshot();
    match snapshot.has_collection(name) {
        true => Ok(snapshot.documents(name)?.options().default_ttl),
        false => Ok(DefaultTtl::Off),
    }
}

/// Reads the documents of an input; lines that hold none end the import, or are set aside.
fn each_line(
    input: &Input,
    bad: &mut BadLines,
    default_ttl: DefaultTtl,
    document: &mut dyn FnMut(RawDocumentBuf, usize) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (name, reader): (String, Box<dyn Read>) = match input {
        Input::File(source) => (source.name.clone(), source.open()?),
        Input::Stdin => ("standard input".to_owned(), Box::new(io::stdin())),
    };
    for (number, line) in (1..).zip(BufReader::new(reader).split(b'\n')) {
        let line = line.map_err(|e| Failure::new(format!("cannot read {name}: {e}")))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        match read(&line, default_ttl) {
            Ok(found) => document(found, line.len())?,
            Err(error) => bad.row(&name, number, &error.message, &String::from_utf8_lossy(&line))?,
        }
    }
    Ok(())
}

fn read(line: &[u8], default_ttl: DefaultTtl) -> Result<RawDocumentBuf, RuleError> {
    let document = document_from_slice(line)?;
    check(&document)?;
    if let Ok(Some(id)) = document.get("_id") {
        id_key(id)?;
    }
    check_ttl(&document, default_ttl)?;
    Ok(document)
}

/// Documents on their way into a collection.
struct Upsert {
    target: Documents,
    waiting: Vec<RawDocumentBuf>,
    bytes: usize,
    stored: u64,
}

impl Upsert {
    fn add(&mut self, document: RawDocumentBuf, bytes: usize) -> Result<(), Failure> {
        self.waiting.push(document);
        self.bytes += bytes;
        if self.waiting.len() >= BATCH || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.bytes = 0;
        self.stored += self.target.store(std::mem::take(&mut self.waiting), OnConflict::Replace)?;
        Ok(())
    }
}
