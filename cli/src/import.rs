//! `ebbtide import`: measurements from files that other programs wrote.
//!
//! Nothing is stored before every file has been read to its end once and found valid: an error in the last line leaves
//! the database unchanged. Standard input, which cannot be read twice, is stored as it arrives (`stream.rs`).

mod bad;
mod bar;
mod columnar;
mod columns;
mod command;
mod csv_file;
mod decoder;
mod documents;
mod doubts;
mod footer;
mod ipc;
mod job;
mod layout;
mod learnt;
mod names;
mod plan;
mod report;
mod resume;
mod rows;
mod shape;
mod sniff;
mod source;
mod step;
mod storing;
mod stream;
mod text_file;
mod text_options;
mod upsert;

use crate::args::{Cli, ImportArgs, InputFormat};
use crate::{Failure, files, human};
use bad::{BadLines, Begin};
use bar::Bar;
pub(crate) use columnar::open_parquet;
use ebbtide::{CollectionSnapshot, Database, Snapshot};
use ebbtide_buckets::Schema;
use ebbtide_ttl::{Clock, SystemClock};
use job::Job;
use names::Pattern;
use plan::Plan;
pub(crate) use resume::unfinished;
use resume::{EarlierImport, Progress, State, Target};
use rows::Rows;
use shape::Shape;
use sniff::Sniffer;
use source::Source;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Runs `ebbtide import`.
pub(crate) fn run(cli: &Cli, args: &ImportArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("an import writes to the database: drop --read-only"));
    }
    if args.documents {
        return upsert::run(cli, args, runtime);
    }
    let mut paths = source::expand(&args.files)?;
    let from_stdin = paths.iter().any(|p| p.as_os_str() == "-");
    if from_stdin && paths.len() > 1 {
        return Err(Failure::usage("- is standard input: import it alone"));
    }
    if from_stdin && !matches!(args.format, Some(InputFormat::Parquet | InputFormat::Arrow)) {
        return stream::run(cli, args, runtime);
    }
    refuse_patience(args)?;
    let pattern = args.meta_from_name.as_deref().map(Pattern::new).transpose()?;
    let read = Arc::new(AtomicU64::new(0));
    let (mut sources, mut spools) = (Vec::new(), Vec::new());
    for path in &mut paths {
        let given = path.clone();
        // Anything that is not a regular file, such as a pipe, can be read only once.
        if let Some(spool) = files::spool(path)? {
            *path = spool.path().to_owned();
            spools.push(spool);
        }
        let mut source = Source::find(path, &given, args.format, &read)?;
        source.constants.extend(args.set.iter().cloned());
        if let Some(pattern) = &pattern {
            source.constants.extend(pattern.of(&given)?);
        }
        sources.push(source);
    }
    text_options::check(args, &sources.iter().map(|s| s.format).collect::<Vec<_>>())?;
    let bad = RefCell::new(BadLines::new(args.bad_lines.as_deref(), args.bad_lines_max));
    let stores = Arc::new(AtomicBool::new(false));
    end_when_interrupted(runtime, &stores, "measurements");
    let shared = ImportContext { cli, bad: &bad, clock: &SystemClock::new(), read: &read, stores: &stores };
    let outcome = match &args.collection {
        Some(name) => {
            let import = Import { shared: &shared, given: args, sniffed: None, collection: name, measurement: None };
            import.run(sources).and_then(|ended| match ended {
                Ended::Imported(mut progress) => progress.finish(),
                Ended::NothingToDo => Ok(()),
                Ended::Empty => Err(no_measurements()),
            })
        }
        None => by_measurement(&shared, args, sources),
    };
    let told = bad.borrow_mut().report();
    outcome.and(told)
}

/// Refuses --flush-ms where rows are not stored as they arrive.
fn refuse_patience(args: &ImportArgs) -> Result<(), Failure> {
    match args.flush_ms {
        Some(_) => Err(Failure::usage(
            "--flush-ms is for rows that are stored as they arrive on standard input; here it has no effect: leave it out",
        )),
        None => Ok(()),
    }
}

/// Ends the program at an interrupt, with a word on what is stored.
fn end_when_interrupted(runtime: &tokio::runtime::Runtime, stores: &Arc<AtomicBool>, what: &'static str) {
    let stores = Arc::clone(stores);
    runtime.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            match stores.load(Ordering::Relaxed) {
                true => eprintln!("interrupted: stored {what} are kept; the same command with --resume continues"),
                false => eprintln!("interrupted: nothing was stored"),
            }
            // As safe as a kill: everything stored is durable.
            std::process::exit(130);
        }
    });
}

/// What all collections of an import have in common.
struct ImportContext<'a> {
    cli: &'a Cli,
    bad: &'a RefCell<BadLines>,
    clock: &'a dyn Clock,
    read: &'a Arc<AtomicU64>,
    /// Whether rows are being stored.
    stores: &'a AtomicBool,
}

/// Line protocol without a collection: each measurement goes to the collection of its name.
fn by_measurement(shared: &ImportContext<'_>, args: &ImportArgs, mut sources: Vec<Source>) -> Result<(), Failure> {
    if sources.iter().any(|s| s.format != InputFormat::Influx) {
        return Err(Failure::usage("name the collection with --collection NAME"));
    }
    let sniffed = Sniffer { cli: shared.cli, args, shape: &Shape::new(args, None) }.options(&mut sources)?;
    let (mut names, mut bad) = (Vec::new(), None);
    let job = Job::new(&sniffed, String::new(), None, shared.bad, true)?;
    for source in &sources {
        documents::measurements(source, &job, (&mut names, &mut bad))?;
    }
    if names.is_empty() {
        let reason = bad.map(|bad| format!("; the first bad line is {bad}")).unwrap_or_default();
        return Err(Failure::new(format!("there are no points in the files{reason}")));
    }
    let (mut done, mut empty) = (Vec::new(), 0);
    for (at, name) in names.iter().enumerate() {
        let import =
            Import { shared, given: args, sniffed: Some(&sniffed), collection: name, measurement: Some(at == 0) };
        match import.run(sources.clone())? {
            Ended::Imported(progress) => done.push(*progress),
            Ended::NothingToDo => {}
            Ended::Empty => {
                eprintln!("note: no line of the measurement {name} can be imported: it is left out");
                empty += 1;
            }
        }
    }
    if empty == names.len() {
        return Err(no_measurements());
    }
    // Only now: if the import stops between two collections, the first one must not be imported again.
    done.iter_mut().try_for_each(Progress::finish)
}

/// An import of files into one collection.
struct Import<'a> {
    shared: &'a ImportContext<'a>,
    /// The user's options.
    given: &'a ImportArgs,
    /// The options with what the files showed, if they were examined before.
    sniffed: Option<&'a ImportArgs>,
    collection: &'a str,
    /// `Some` if only the measurement with the collection's name is imported; says whether it is the first one.
    measurement: Option<bool>,
}

impl Import<'_> {
    /// Checks the files and stores their rows.
    fn run(&self, mut sources: Vec<Source>) -> Result<Ended, Failure> {
        let (cli, bad) = (self.shared.cli, self.shared.bad);
        let started = self.shared.clock.monotonic();
        let existing = existing(cli, self.collection)?;
        let schema = existing.as_ref().map(|c| Arc::clone(c.schema()));
        let args = self.options(&mut sources, schema.as_deref())?;
        let job = self.job(&args, schema, &sources)?;
        let mut progress = Progress::new(&cli.db, self.collection, &fixed_options(&args), &sources)?;
        let left = match self.left(&progress, existing.as_ref())? {
            Rest::Nothing => return Ok(Ended::NothingToDo),
            Rest::All => None,
            Rest::After(left) => Some(*left),
        };
        if left.is_none() && existing.is_some() && is_for_new(&args) {
            return Err(for_new(self.collection));
        }
        if let Some(left) = &left {
            progress.check(left)?;
        }
        report::options(cli, self.given, &args);
        let begin = self.open_bad_lines(left.as_ref(), &sources)?;
        drop(existing); // What it holds in memory is not needed while rows are stored.
        let bar = Bar::new(&sources, self.shared.read, self.shared.clock);
        bar.phase("checking");
        let mark = bad.borrow_mut().mark()?;
        let checked = plan::check(&job, sources, &bar)?;
        bar.clear();
        let Some((plan, checked)) = checked else {
            report::left_out(job.empty.get());
            return Ok(Ended::Empty);
        };
        report::columns(&plan, &checked);
        if args.dry_run {
            let rows = human::counted(checked.rows, "measurement");
            let name = self.collection;
            eprintln!("{rows} would be imported into {name}; the database was not changed");
            report::left_out(job.empty.get());
            report::decided(&job);
            return Ok(Ended::NothingToDo);
        }
        bad.borrow_mut().rewind(&mark)?;
        if let Begin::After(mark) = &begin {
            bad.borrow_mut().add_earlier(mark);
        }
        job.empty.set(0);
        bar.phase("importing");
        let before = left.as_ref().map_or(0, |left| left.stored);
        let stored = self.store(&plan, &checked, left, &mut progress, &bar)?;
        let took = self.shared.clock.monotonic().saturating_sub(started);
        let count = progress.state.stored - before;
        report::imported(self.collection, count, took);
        report::left_out(job.empty.get());
        report::decided(&job);
        if let Some(count) = stored.suspended {
            let outside = human::counted(count, "measurement");
            eprintln!("note: {outside} outside 1970 to 2038: nothing in the collection expires");
        }
        if count > 0 && stored.visible == 0 {
            let name = self.collection;
            eprintln!(
                "note: everything that was imported is older than what {name} keeps: it has expired, and is not visible"
            );
        }
        Ok(Ended::Imported(Box::new(progress)))
    }

    /// The user's options, completed by what the files show.
    fn options(&self, sources: &mut [Source], schema: Option<&Schema>) -> Result<ImportArgs, Failure> {
        if let Some(sniffed) = self.sniffed {
            return Ok(sniffed.clone());
        }
        let shape = Shape::new(self.given, schema);
        Sniffer { cli: self.shared.cli, args: self.given, shape: &shape }.options(sources)
    }

    fn job<'j>(
        &'j self,
        args: &'j ImportArgs,
        schema: Option<Arc<Schema>>,
        sources: &[Source],
    ) -> Result<Rc<Job<'j>>, Failure> {
        let influx = sources.iter().all(|s| s.format == InputFormat::Influx);
        let mut job = Job::new(args, self.collection.to_owned(), schema, self.shared.bad, influx)?;
        if let Some(first) = self.measurement {
            job.measurement = Some(self.collection.to_owned());
            job.tells_misformed.set(first);
        }
        Ok(Rc::new(job))
    }

    /// What is left to import after an earlier import.
    fn left(&self, progress: &Progress, existing: Option<&CollectionSnapshot>) -> Result<Rest, Failure> {
        let (args, name) = (self.given, self.collection);
        let left = match existing {
            Some(existing) if !args.from_start && !args.dry_run => progress.left(&Target::from(existing))?,
            _ => EarlierImport::None,
        };
        match left {
            EarlierImport::Interrupted(left) if !args.resume => Err(Failure::new(format!(
                "an import into {name} was interrupted after {} of its measurements: continue it with --resume, or \
                 import from the first row again with --from-start",
                left.stored
            ))),
            EarlierImport::Interrupted(left) => Ok(Rest::After(left)),
            EarlierImport::Finished(stored) if args.resume => {
                let stored = human::grouped(stored);
                eprintln!("{name}: all {stored} measurements of these files are imported: nothing is left to do");
                Ok(Rest::Nothing)
            }
            EarlierImport::Finished(_) => {
                eprintln!("note: these files were imported into {name} before; their measurements are added again");
                Ok(Rest::All)
            }
            EarlierImport::OfOtherContents(file) if args.resume => Err(Failure::new(format!(
                "{file} has changed since it was imported into {name}, so --resume cannot know which of its measurements are \
                 stored: import only what is new, or all of them again without --resume"
            ))),
            EarlierImport::None | EarlierImport::OfOtherContents(_) => {
                if args.resume && existing.is_some() {
                    eprintln!("{name}: no import was interrupted; this one begins with the first row");
                }
                Ok(Rest::All)
            }
        }
    }

    fn open_bad_lines(&self, left: Option<&State>, sources: &[Source]) -> Result<Begin, Failure> {
        let begin = match left {
            // Lines of other measurements may follow those of this one.
            Some(left) if self.measurement.is_none() => Begin::After(left.bad.clone()),
            None if !self.given.resume => Begin::New,
            _ => Begin::Append,
        };
        let mut inputs: Vec<PathBuf> = sources.iter().map(|s| s.path.clone()).collect();
        inputs.extend(self.given.files.iter().filter(|f| f.as_os_str() == "-").cloned());
        self.shared.bad.borrow_mut().open(&begin, &inputs, &self.shared.cli.db)?;
        Ok(begin)
    }

    /// Stores the rows. If the import fails, a new collection is dropped with everything in it.
    fn store(
        &self,
        plan: &Plan<'_>,
        checked: &plan::CheckResult,
        left: Option<State>,
        progress: &mut Progress,
        bar: &Bar<'_>,
    ) -> Result<ImportOutcome, Failure> {
        let name = self.collection;
        let database = crate::open::builder(&self.shared.cli.db).open()?;
        self.shared.stores.store(true, Ordering::Relaxed);
        let created = plan.job.schema.is_none();
        if created {
            plan.settled.layout.create(&plan.job, &database, checked.step)?;
        }
        let target = database.collection(name)?;
        progress.belongs_to(&Target::from(&target.snapshot()?));
        if let Some(left) = left {
            progress.take_up(left)?;
            eprintln!("stored already: {}", human::counted(progress.state.stored, "measurement"));
        }
        let stored = storing::store(&target, plan, progress, bar);
        bar.clear();
        match stored {
            Ok(()) => {}
            Err(failure) if created => {
                database.drop_collection(name)?;
                progress.forget()?;
                return Err(Failure::new(format!("{failure}; nothing was imported into {name}")));
            }
            Err(failure) => {
                let stored = human::counted(progress.state.stored, "measurement");
                return Err(Failure::new(format!("{failure}; imported before it: {stored}; --resume continues there")));
            }
        }
        database.flush()?;
        progress.complete()?;
        let snapshot = target.snapshot()?;
        let stored = ImportOutcome { suspended: snapshot.suspended(), visible: snapshot.count()? };
        drop((snapshot, target));
        database.close()?;
        Ok(stored)
    }
}

/// The state of a collection after an import.
struct ImportOutcome {
    /// Number of measurements that suspend its expiry.
    suspended: Option<u64>,
    visible: u64,
}

/// How the import into one collection ended.
enum Ended {
    /// Rows are stored. The progress still has to be marked as finished.
    Imported(Box<Progress>),
    /// It only checked the files, or everything was stored before.
    NothingToDo,
    /// No row of the files can be imported; bad lines are set aside.
    Empty,
}

fn no_measurements() -> Failure {
    Failure::new("there are no measurements in the files")
}

/// What an import has to do.
enum Rest {
    Nothing,
    All,
    After(Box<State>),
}

/// The options that affect the imported rows, as text.
fn fixed_options(args: &ImportArgs) -> String {
    let options = ImportArgs {
        files: Vec::new(),
        bad_lines: None,
        dry_run: false,
        resume: false,
        from_start: false,
        batch_rows: 0,
        ..args.clone()
    };
    format!("{options:?}")
}

/// Whether options are given that only apply to a new collection.
fn is_for_new(args: &ImportArgs) -> bool {
    args.granularity.is_some() || args.expire_after.is_some() || args.precision.is_some()
}

fn for_new(collection: &str) -> Failure {
    Failure::usage(format!(
        "collection '{collection}' exists: --granularity, --precision and --expire-after are for a new one; \
         ALTER COLLECTION changes it"
    ))
}

/// The collection, if it exists.
fn existing(cli: &Cli, name: &str) -> Result<Option<CollectionSnapshot>, Failure> {
    if !Database::exists(&cli.db)? {
        return Ok(None);
    }
    let snapshot = Database::builder(&cli.db).read_only().open()?.snapshot();
    refuse_ordinary(&snapshot, name)?;
    Ok(snapshot.collection(name).ok())
}

/// Refuses to import measurements into an ordinary collection.
fn refuse_ordinary(snapshot: &Snapshot, name: &str) -> Result<(), Failure> {
    match snapshot.documents(name) {
        Ok(_) => Err(Failure::new(format!(
            "'{name}' is an ordinary collection: import lines of JSON into it with --documents, or name another collection \
             for measurements"
        ))),
        Err(_) => Ok(()),
    }
}
