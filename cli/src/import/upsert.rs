//! `import --documents`: lines of Extended JSON into an ordinary collection, each in the place of the document with its `_id`.
//!
//! The files are checked before anything is stored; standard input is stored as it arrives. An interrupted import of files is
//! resumed behind the last batch that is known to be stored.

use super::bad::{BadLines, Begin};
use super::bar::Bar;
use super::resume::{EarlierImport, Progress, Target};
use super::source::{BYTE_ORDER_MARK, Source, expand};
use super::stream::{self, LOOK_EVERY};
use super::{end_when_interrupted, refuse_patience};
use crate::args::{Cli, ImportArgs, InputFormat};
use crate::human::{counted, grouped};
use crate::{Failure, files};
use ebbtide::documents_model::bson::RawDocumentBuf;
use ebbtide::documents_model::json::document_from_slice;
use ebbtide::documents_model::{DefaultTtl, RuleError, check, check_ttl, id_key, with_id};
use ebbtide::{Database, Documents, DocumentsOptions, OnConflict};
use ebbtide_ttl::{Clock, SystemClock};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Bytes of the lines that are stored in one step at most, about.
const BATCH_BYTES: usize = 4 << 20;
/// Bytes of a line at most, as in imports of measurements.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Lines of standard input that are read ahead at most.
const LINES_AHEAD: usize = 16;
const STDIN: &str = "standard input";

/// Runs `ebbtide import --documents`.
pub(super) fn run(cli: &Cli, args: &ImportArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let Some(name) = &args.collection else {
        return Err(Failure::usage("name the collection with --into NAME"));
    };
    if args.format.is_some_and(|format| format != InputFormat::Ndjson) {
        return Err(Failure::usage("--documents reads lines of JSON: leave out --format"));
    }
    let paths = expand(&args.files)?;
    let stores = Arc::new(AtomicBool::new(false));
    if paths.iter().any(|path| path == Path::new("-")) {
        return from_stdin(cli, args, name, paths.len(), runtime);
    }
    refuse_patience(args)?;
    end_when_interrupted(runtime, &stores, "documents");
    let read = Arc::new(AtomicU64::new(0));
    let (mut sources, mut spools) = (Vec::new(), Vec::new());
    for given in paths {
        // Anything that is not a regular file, such as a pipe, can be read only once.
        let spool = files::spool(&given)?;
        let path = spool.as_ref().map_or(given.as_path(), |spool| spool.path());
        sources.push(Source::find(path, &given, Some(InputFormat::Ndjson), &read)?);
        spools.extend(spool);
    }
    let clock = SystemClock::new();
    let bar = Bar::new(&sources, &read, &clock);
    let mut progress = Progress::new(&cli.db, name, "documents", &sources)?;
    let (default_ttl, existing) = existing(cli, name)?;
    let left = match left(args, name, &progress, existing.as_ref())? {
        EarlierImport::Finished(_) if args.resume => return Ok(()),
        EarlierImport::Interrupted(left) => {
            progress.check(&left)?;
            Some(*left)
        }
        _ => None,
    };
    bar.phase("checking");
    let mut checked = 0;
    let mut bad = BadLines::new(args.bad_lines.as_deref(), args.bad_lines_max);
    for source in &sources {
        let lines = Lines { name: &source.name, default_ttl, skip: 0 };
        lines.each(source.open()?, &mut bad, &mut |_, _, _, _| {
            checked += 1;
            bar.tick(checked);
            Ok(())
        })?;
    }
    bar.clear();
    if args.dry_run {
        let documents = counted(checked, "document");
        eprintln!("{documents} would be imported into {name}; the database was not changed");
        return bad.report();
    }
    // What was set aside is found again.
    let mut bad = BadLines::new(args.bad_lines.as_deref(), args.bad_lines_max);
    let begin = match &left {
        Some(left) => Begin::After(left.bad.clone()),
        None if args.resume => Begin::Append,
        None => Begin::New,
    };
    bad.open(&begin, &args.files, &cli.db)?;
    if let Begin::After(mark) = &begin {
        bad.add_earlier(mark);
    }
    let mut destination = Destination { cli, name, database: None, documents: None };
    let documents = destination.documents()?;
    stores.store(true, Ordering::Relaxed);
    progress.belongs_to(&Target::from(&documents.snapshot()?));
    progress.began(clock.now());
    if let Some(left) = left {
        progress.take_up(left)?;
        eprintln!("{} documents are stored already", grouped(progress.state.stored));
    }
    bar.phase("importing");
    let progress = Some(progress);
    let mut upsert = Upsert { destination, progress, rows: rows_of(args), waiting: Vec::new(), bytes: 0, stored: 0 };
    let outcome = upsert.files(&sources, &mut bad, default_ttl, &bar);
    bar.clear();
    if let Err(failure) = outcome {
        bad.report()?;
        let stored = counted(upsert.stored, "document");
        return Err(Failure::new(format!("{failure}; imported before it: {stored}; --resume continues there")));
    }
    let mut progress = upsert.progress.take();
    upsert.end()?;
    progress.iter_mut().try_for_each(Progress::finish)?;
    bad.report()
}

/// Stores the documents of standard input as they arrive.
fn from_stdin(
    cli: &Cli,
    args: &ImportArgs,
    name: &str,
    inputs: usize,
    runtime: &tokio::runtime::Runtime,
) -> Result<(), Failure> {
    if inputs > 1 {
        return Err(Failure::usage("- is standard input: import it alone"));
    }
    if args.dry_run {
        return Err(Failure::usage("--dry-run checks files: standard input can be read only once"));
    }
    if args.resume || args.from_start {
        return Err(Failure::usage(
            "--resume and --from-start are for files that were imported in part: standard input can be read only once",
        ));
    }
    let (default_ttl, _) = existing(cli, name)?;
    let mut bad = BadLines::new(args.bad_lines.as_deref(), args.bad_lines_max);
    bad.open(&Begin::New, &args.files, &cli.db)?;
    let Some((database, piped)) = stream::open(cli, None)? else {
        return Err(Failure::new("there are no documents on standard input"));
    };
    let destination = Destination { cli, name, database, documents: None };
    let mut upsert =
        Upsert { destination, progress: None, rows: rows_of(args), waiting: Vec::new(), bytes: 0, stored: 0 };
    let lines = Lines { name: STDIN, default_ttl, skip: 0 };
    let (arriving, stop) = (lines_ahead(piped.bytes, runtime), stream::interrupted(runtime));
    let read = upsert.follow(&lines, &arriving, args.patience(), &stop, &mut bad);
    if let Err(failure) = read {
        bad.report()?;
        let stored = counted(upsert.stored, "document");
        return Err(Failure::new(format!("{failure}; imported before it: {stored}")));
    }
    upsert.end()?;
    bad.report()
}

/// A line, or none at the end of the input.
type NextLine = Result<Option<Vec<u8>>, Failure>;

/// Reads lines of standard input on another thread.
fn lines_ahead(input: Box<dyn Read + Send>, runtime: &tokio::runtime::Runtime) -> Receiver<NextLine> {
    let (sender, receiver) = sync_channel(LINES_AHEAD);
    runtime.spawn_blocking(move || {
        let mut input = BufReader::new(input);
        for number in 1.. {
            let line = next_line(&mut input, STDIN, number);
            let is_last = !matches!(line, Ok(Some(_)));
            if sender.send(line).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

/// Reads a line, without its end.
fn next_line(input: &mut impl BufRead, name: &str, number: u64) -> NextLine {
    let mut line = Vec::new();
    let read = input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
    read.map_err(|e| Failure::new(format!("cannot read {name}: {e}")))?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() as u64 == LINE_BYTES_MAX => {
            let most = LINE_BYTES_MAX >> 20;
            Err(Failure::new(format!("{name}:{number}: the line is longer than {most} MiB")))
        }
        Some(last) => {
            line.push(last);
            Ok(Some(line))
        }
    }
}

fn rows_of(args: &ImportArgs) -> usize {
    usize::try_from(args.batch_rows).unwrap_or(usize::MAX)
}

/// The collection that the documents go into. It is created with the first of them, and so is the database: input that cannot be read
/// creates nothing.
struct Destination<'a> {
    cli: &'a Cli,
    name: &'a str,
    database: Option<Database>,
    documents: Option<Documents>,
}

impl Destination<'_> {
    /// The collection, opened or created the first time.
    fn documents(&mut self) -> Result<&Documents, Failure> {
        let database = match &mut self.database {
            Some(database) => database,
            none => none.insert(crate::open::builder(&self.cli.db).open()?),
        };
        let documents = match &mut self.documents {
            Some(documents) => documents,
            none => none.insert(match database.snapshot().has_collection(self.name) {
                true => database.documents(self.name)?,
                false => database.create_documents(self.name, DocumentsOptions::default())?,
            }),
        };
        Ok(documents)
    }

    /// Seals and closes the database; returns how many documents the collection has.
    fn close(mut self) -> Result<u64, Failure> {
        let count = self.documents()?.snapshot()?.count()?;
        if let Some(database) = self.database {
            database.flush()?;
            database.close()?;
        }
        Ok(count)
    }
}

/// The time to live that the documents are checked for, and the collection if it exists.
fn existing(cli: &Cli, name: &str) -> Result<(DefaultTtl, Option<Target>), Failure> {
    if !Database::exists(&cli.db)? {
        return Ok((DefaultTtl::Off, None));
    }
    let snapshot = Database::builder(&cli.db).read_only().open()?.snapshot();
    if !snapshot.has_collection(name) {
        return Ok((DefaultTtl::Off, None));
    }
    let documents = snapshot.documents(name)?;
    Ok((documents.options().default_ttl, Some(Target::from(&documents))))
}

/// What an earlier import left.
fn left(
    args: &ImportArgs,
    name: &str,
    progress: &Progress,
    existing: Option<&Target>,
) -> Result<EarlierImport, Failure> {
    let left = match existing {
        Some(existing) if !args.from_start && !args.dry_run => progress.left(existing)?,
        _ => EarlierImport::None,
    };
    match &left {
        EarlierImport::Interrupted(left) if !args.resume => {
            return Err(Failure::new(format!(
                "an import into {name} was interrupted after {} of its documents: continue it with --resume, or import from \
                 the first line again with --from-start",
                left.stored
            )));
        }
        EarlierImport::Interrupted(_) => {}
        EarlierImport::Finished(stored) if args.resume => {
            eprintln!("{name}: all {} documents of these files are imported: nothing is left to do", grouped(*stored));
        }
        EarlierImport::Finished(_) => {
            eprintln!("note: these files were imported into {name} before; documents without an _id are added again");
        }
        EarlierImport::None | EarlierImport::OfOtherContents(_) if args.resume && existing.is_some() => {
            eprintln!("{name}: no import was interrupted; this one begins with the first line");
        }
        EarlierImport::None | EarlierImport::OfOtherContents(_) => {}
    }
    Ok(left)
}

/// The lines of one input.
struct Lines<'a> {
    name: &'a str,
    default_ttl: DefaultTtl,
    /// How many are done already.
    skip: u64,
}

/// Gets a document, the number of its line, and the bytes of that.
type Visitor<'v> = &'v mut dyn FnMut(&mut BadLines, RawDocumentBuf, u64, usize) -> Result<(), Failure>;

impl Lines<'_> {
    /// Reads the documents.
    fn each(&self, reader: Box<dyn Read + Send>, bad: &mut BadLines, visitor: Visitor<'_>) -> Result<(), Failure> {
        let mut input = BufReader::new(reader);
        for number in 1.. {
            let Some(line) = next_line(&mut input, self.name, number)? else { break };
            self.one(number, &line, bad, &mut *visitor)?;
        }
        Ok(())
    }

    /// Reads the document of a line; one that holds none ends the import, or is set aside.
    fn one(&self, number: u64, line: &[u8], bad: &mut BadLines, visitor: Visitor<'_>) -> Result<(), Failure> {
        if number <= self.skip || line.trim_ascii().is_empty() {
            return Ok(());
        }
        let json = if number == 1 { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
        match read(json, self.default_ttl) {
            Ok(found) => visitor(bad, found, number, line.len()),
            Err(error) => bad.row(self.name, number, &error.message, &String::from_utf8_lossy(line)),
        }
    }
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

/// How far an import has come: lines of a file that are done.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    file: usize,
    line: u64,
}

/// Documents on their way into a collection.
struct Upsert<'a> {
    destination: Destination<'a>,
    /// `None` for standard input, which cannot be resumed.
    progress: Option<Progress>,
    /// Documents that are stored in one step at most.
    rows: usize,
    waiting: Vec<RawDocumentBuf>,
    bytes: usize,
    stored: u64,
}

impl Upsert<'_> {
    /// Stores what is left of the files.
    fn files(
        &mut self,
        sources: &[Source],
        bad: &mut BadLines,
        default_ttl: DefaultTtl,
        bar: &Bar<'_>,
    ) -> Result<(), Failure> {
        let state = |progress: &Progress| Place { file: progress.state.file, line: progress.state.rows };
        let start = self.progress.as_ref().map(state).unwrap_or_default();
        for (file, source) in sources.iter().enumerate().skip(start.file) {
            let skip = if file == start.file { start.line } else { 0 };
            let mut at = Place { file, line: skip };
            let lines = Lines { name: &source.name, default_ttl, skip };
            lines.each(source.open()?, bad, &mut |bad, document, line, bytes| {
                at.line = line;
                self.add(document, bytes, at, bad)?;
                bar.tick(self.stored);
                Ok(())
            })?;
            self.flush(at, bad)?;
        }
        Ok(())
    }

    /// Stores what lines have as they arrive, until they end or the user presses Ctrl-C. No document waits for longer than `patience`.
    fn follow(
        &mut self,
        lines: &Lines<'_>,
        arriving: &Receiver<NextLine>,
        patience: Duration,
        stop: &AtomicBool,
        bad: &mut BadLines,
    ) -> Result<(), Failure> {
        let clock = SystemClock::new();
        let (mut at, mut since) = (Place::default(), clock.monotonic());
        while !stop.load(Ordering::Relaxed) {
            let left = patience.saturating_sub(clock.monotonic().saturating_sub(since));
            let wait = if self.waiting.is_empty() { LOOK_EVERY } else { left.min(LOOK_EVERY) };
            match arriving.recv_timeout(wait) {
                Ok(Ok(Some(line))) => {
                    if self.waiting.is_empty() {
                        since = clock.monotonic();
                    }
                    at.line += 1;
                    lines
                        .one(at.line, &line, bad, &mut |bad, document, _, bytes| self.add(document, bytes, at, bad))?;
                }
                Ok(Err(failure)) => {
                    self.flush(at, bad)?;
                    return Err(failure);
                }
                Err(RecvTimeoutError::Timeout) => bad.flush()?,
                Ok(Ok(None)) | Err(RecvTimeoutError::Disconnected) => break,
            }
            if clock.monotonic().saturating_sub(since) >= patience {
                self.flush(at, bad)?;
            }
        }
        self.flush(at, bad)
    }

    fn add(&mut self, document: RawDocumentBuf, bytes: usize, at: Place, bad: &mut BadLines) -> Result<(), Failure> {
        self.waiting.push(document);
        self.bytes += bytes;
        if self.waiting.len() >= self.rows || self.bytes >= BATCH_BYTES { self.flush(at, bad) } else { Ok(()) }
    }

    /// Stores what waits, in one step.
    fn flush(&mut self, at: Place, bad: &mut BadLines) -> Result<(), Failure> {
        self.bytes = 0;
        let mut documents = std::mem::take(&mut self.waiting);
        if documents.is_empty() {
            return Ok(());
        }
        let count = documents.len() as u64;
        let mark = bad.mark()?;
        if let Some(progress) = &mut self.progress {
            let first = progress.state.stored;
            documents = (first..)
                .zip(documents)
                .map(|(number, document)| Ok(with_id(document, || progress.object_id(number))?.0))
                .collect::<Result<_, RuleError>>()
                .map_err(|error| Failure::new(error.message))?;
            progress.begin(at.file, at.line, count, mark.clone())?;
        }
        self.destination.documents()?.store(documents, OnConflict::Replace)?;
        self.stored += count;
        if let Some(progress) = &mut self.progress {
            progress.done(at.file, at.line, count, mark);
        }
        Ok(())
    }

    /// Closes the database and reports what was imported.
    fn end(self) -> Result<(), Failure> {
        let name = self.destination.name;
        let visible = self.destination.close()?;
        eprintln!("{} imported into {name}, which has {} now", counted(self.stored, "document"), grouped(visible));
        Ok(())
    }
}
