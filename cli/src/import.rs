//! `ebbtide import`: measurements from files that other programs wrote.
//!
//! Nothing is stored before every file has been read to its end once and found good: a mistake in the last line leaves
//! the database as it was. What cannot be read twice, standard input, is stored as it comes (`stream.rs`).

mod bad;
mod columnar;
mod csv_file;
mod documents;
mod footer;
mod infer;
mod ipc;
mod job;
mod layout;
mod line_protocol;
mod plain_time;
mod plan;
mod report;
mod resume;
mod rows;
mod source;
mod step;
mod stream;
mod text;
mod times;

use crate::args::{Cli, ImportArgs, InputFormat};
use crate::{Failure, files, human};
use bad::{BadLines, Begin};
pub(crate) use columnar::open_parquet;
use ebbtide::{Collection, CollectionSnapshot, Database};
use ebbtide_ttl::{Clock, SystemClock};
use job::Job;
use plan::Plan;
use report::Bar;
pub(crate) use resume::unfinished;
use resume::{Left, Progress};
use rows::Rows;
use source::Source;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Runs `ebbtide import`.
pub(crate) fn run(cli: &Cli, args: &ImportArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("an import writes to the database: drop --read-only"));
    }
    let mut spooled = None;
    let mut paths = source::expand(&args.files)?;
    if paths.iter().any(|p| p.as_os_str() == "-") {
        if paths.len() > 1 {
            return Err(Failure::usage("- is standard input: import it alone"));
        }
        if !matches!(args.format, Some(InputFormat::Parquet | InputFormat::Arrow)) {
            return stream::run(cli, args, runtime);
        }
        let spool = files::spool_stdin()?;
        paths = vec![spool.path().to_owned()];
        spooled = Some(spool);
    }
    let read = Arc::new(AtomicU64::new(0));
    let mut sources = Vec::new();
    for path in &paths {
        let mut source = Source::find(path, args.format, args.encoding, &read)?;
        if spooled.is_some() {
            source.name = "-".to_owned();
        }
        sources.push(source);
    }
    let bad = RefCell::new(BadLines::new(args.bad_lines.as_deref(), args.bad_lines_max));
    let clock = SystemClock::new();
    let outcome = match &args.collection {
        Some(name) => one(cli, args, name, None, sources, &bad, &clock, &read).and_then(|done| match done {
            Some(mut progress) => progress.finish(),
            None => Ok(()),
        }),
        None => by_measurement(cli, args, &sources, &bad, &clock, &read),
    };
    let told = bad.borrow_mut().report();
    outcome.and(told)
}

/// Line protocol without a collection: each measurement goes to the collection of its name.
fn by_measurement(
    cli: &Cli,
    args: &ImportArgs,
    sources: &[Source],
    bad: &RefCell<BadLines>,
    clock: &dyn Clock,
    read: &Arc<AtomicU64>,
) -> Result<(), Failure> {
    if sources.iter().any(|s| s.format != InputFormat::Influx) {
        return Err(Failure::usage("name the collection with --collection NAME"));
    }
    let mut names = Vec::new();
    let job = Job::new(args, String::new(), None, bad, true)?;
    for source in sources {
        documents::measurements(source, &job, &mut names)?;
    }
    if names.is_empty() {
        return Err(Failure::new("there are no points in the files"));
    }
    let mut done = Vec::new();
    for (at, name) in names.iter().enumerate() {
        done.extend(one(cli, args, name, Some(at == 0), sources.to_vec(), bad, clock, read)?);
    }
    // Only now: if the import breaks off between two collections, the first must not be imported again.
    done.iter_mut().try_for_each(Progress::finish)
}

/// Imports files into one collection. `measurement` is given if only the measurement of the collection's name is
/// wanted, and tells whether it is the first one. Returns the progress that is still to be marked as finished.
#[expect(clippy::too_many_arguments, reason = "they are what the whole import shares")]
fn one(
    cli: &Cli,
    args: &ImportArgs,
    collection: &str,
    measurement: Option<bool>,
    sources: Vec<Source>,
    bad: &RefCell<BadLines>,
    clock: &dyn Clock,
    read: &Arc<AtomicU64>,
) -> Result<Option<Progress>, Failure> {
    let started = clock.monotonic();
    let existing = existing(cli, collection)?;
    let schema = existing.as_ref().map(|c| Arc::clone(c.schema()));
    let influx = sources.iter().any(|s| s.format == InputFormat::Influx);
    let mut job = Job::new(args, collection.to_owned(), schema.clone(), bad, influx)?;
    if let Some(first) = measurement {
        job.measurement = Some(collection.to_owned());
        job.tells_misformed = first;
    }
    let options = ImportArgs {
        files: Vec::new(),
        bad_lines: None,
        dry_run: false,
        resume: false,
        from_start: false,
        batch_rows: 0,
        ..args.clone()
    };
    let mut progress = Progress::new(&cli.db, collection, &format!("{options:?}"), &sources)?;
    let left = match &existing {
        Some(existing) if !args.from_start && !args.dry_run => progress.left(existing)?,
        _ => Left::Nothing,
    };
    let left = match left {
        Left::Part(left) if !args.resume => {
            return Err(Failure::new(format!(
                "an import into {collection} was interrupted after {} of its measurements: continue it with --resume, or \
                 import from the first row again with --from-start",
                left.stored
            )));
        }
        Left::Everything(stored) if args.resume => {
            eprintln!(
                "{collection}: all {} measurements of these files are imported: nothing is left to do",
                human::grouped(stored)
            );
            return Ok(None);
        }
        Left::Part(left) => Some(*left),
        Left::Everything(_) => {
            eprintln!("note: these files were imported into {collection} before; their measurements are added again");
            None
        }
        Left::Nothing => {
            if args.resume && existing.is_some() {
                eprintln!("{collection}: no import was interrupted; this one begins with the first row");
            }
            None
        }
    };
    if left.is_none() && existing.is_some() && is_for_new(args) {
        return Err(for_new(collection));
    }
    let begin = match &left {
        // Lines of other measurements may be behind those of this one.
        Some(left) if measurement.is_none() => Begin::After(left.bad.clone()),
        None if !args.resume => Begin::New,
        _ => Begin::Append,
    };
    let mut inputs: Vec<PathBuf> = sources.iter().map(|s| s.path.clone()).collect();
    inputs.extend(args.files.iter().filter(|f| f.as_os_str() == "-").cloned());
    bad.borrow_mut().open(&begin, &inputs, &cli.db)?;
    drop(existing); // What it holds in memory is not needed while rows are stored.
    let bar = Bar::new(&sources, read, clock);
    bar.phase("checking");
    let mark = bad.borrow_mut().mark()?;
    let (plan, checked) = plan::check(&job, sources, &bar)?;
    bar.clear();
    report::columns(&plan, &checked);
    if args.dry_run {
        let rows = human::grouped(checked.rows);
        eprintln!("{rows} measurements would be imported into {collection}; the database was not changed");
        report::left_out(job.empty.get());
        return Ok(None);
    }
    bad.borrow_mut().rewind(&mark)?;
    if let Begin::After(mark) = &begin {
        bad.borrow_mut().add_earlier(mark);
    }
    job.empty.set(0);
    bar.phase("importing");
    let database = Database::open(&cli.db)?;
    let created = schema.is_none();
    if created {
        job.create(&database, &plan.layout, checked.step)?;
    }
    let target = database.collection(collection)?;
    progress.belongs_to(&target.snapshot()?);
    if let Some(left) = left {
        progress.take_up(left)?;
        eprintln!("{} measurements are stored already", progress.state.stored);
    }
    let before = progress.state.stored;
    let stored = store(&target, &plan, &mut progress, &bar);
    bar.clear();
    match stored {
        Ok(()) => {}
        Err(failure) if created => {
            database.drop_collection(collection)?;
            progress.forget()?;
            return Err(Failure::new(format!("{failure}; nothing was imported into {collection}")));
        }
        Err(failure) => {
            let stored = progress.state.stored;
            return Err(Failure::new(format!(
                "{failure}; {stored} measurements before it were imported; --resume continues after them"
            )));
        }
    }
    database.flush()?;
    progress.complete()?;
    let took = clock.monotonic().saturating_sub(started);
    report::imported(collection, progress.state.stored - before, took);
    report::left_out(job.empty.get());
    if let Some(count) = target.snapshot()?.suspended() {
        eprintln!("note: {count} measurements lie outside of 1970 to 2038: nothing in the collection expires");
    }
    drop(target);
    database.close()?;
    Ok(Some(progress))
}

/// Whether options are given that only a new collection takes.
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
    let database = Database::builder(&cli.db).read_only().open()?;
    Ok(database.snapshot().collection(name).ok())
}

/// Stores every row, noting before each batch what is done.
fn store(collection: &Collection, plan: &Plan<'_>, progress: &mut Progress, bar: &Bar<'_>) -> Result<(), Failure> {
    let schema = collection.snapshot()?.schema().as_ref().clone();
    let start = (progress.state.file, progress.state.rows);
    let mut stored = 0;
    let bad = plan.job.bad;
    plan.rows(&schema, start, &mut |file, mut rows| {
        let end = rows.end;
        // What is set aside is durable before the rows beside it are.
        let count = plan.job.insert(collection, &mut rows, &mut |rows| {
            let mark = bad.borrow_mut().mark()?;
            progress.begin(file, end, rows.batch.num_rows() as u64, mark).map(Some)
        })?;
        progress.done(file, end, count, bad.borrow_mut().mark()?);
        if count == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        stored += count;
        bar.tick(stored);
        Ok(ControlFlow::Continue(()))
    })
}
