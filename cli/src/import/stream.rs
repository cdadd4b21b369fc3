//! Measurements from standard input, stored as they arrive: `tail -f readings.csv | ebbtide import - --collection c`.
//!
//! One thread reads and splits; this one collects rows until there are enough of them or the first has waited long
//! enough, and stores them in one atomic insert. Types of columns are inferred from what has arrived so far.

use super::bad::{BadLines, Begin};
use super::decoder::{Decoder, RowSpec};
use super::layout::Layout;
use super::learnt::LearnedColumns;
use super::shape::Shape;
use super::sniff::Sniffer;
use super::source::PipedText;
use super::text_file::{decoder, rows_of};
use super::{Job, for_new, is_for_new, refuse_ordinary, report, step, text_options};
use crate::Failure;
use crate::args::{Cli, ImportArgs, InputFormat};
use crate::batching::INSERT_BYTES;
use crate::human::counted;
use ebbtide::{Collection, Database, Snapshot, line_protocol};
use ebbtide_buckets::Schema;
use ebbtide_query::text_table::encoding::{self, Encoding};
use ebbtide_query::text_table::infer::finer;
use ebbtide_query::text_table::split::{self, Block};
use ebbtide_ttl::{Clock, SystemClock};
use std::cell::{OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Interval between checks for Ctrl-C.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
const NAME: &str = "-";

type Message = Result<Block, Failure>;

/// The destination of the rows of one collection.
struct Target<'a> {
    job: Rc<Job<'a>>,
    decoder: Box<dyn Decoder + 'a>,
    place: Option<(Collection, Layout)>,
    stored: u64,
}

/// What the targets have in common.
struct Pipe<'a> {
    cli: &'a Cli,
    /// Empty if the database does not exist, until the first rows are stored.
    database: OnceCell<Database>,
    args: &'a ImportArgs,
    format: InputFormat,
    bad: &'a RefCell<BadLines>,
    clock: &'a dyn Clock,
}

impl Pipe<'_> {
    /// The present state of the database, if it exists.
    fn snapshot(&self) -> Option<Snapshot> {
        self.database.get().map(Database::snapshot)
    }

    /// The database; it is created if it does not exist.
    fn database(&self) -> Result<&Database, Failure> {
        if let Some(database) = self.database.get() {
            return Ok(database);
        }
        let created = crate::open::builder(&self.cli.db).open()?;
        Ok(self.database.get_or_init(|| created))
    }

    /// The schema of a collection, if it exists.
    fn schema(&self, name: &str) -> Option<Arc<Schema>> {
        schema(self.snapshot(), name)
    }
}

/// Runs `ebbtide import -`.
pub(super) fn run(cli: &Cli, given: &ImportArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    if given.resume || given.from_start || given.dry_run {
        return Err(Failure::usage(
            "standard input can be read only once: --resume, --from-start and --dry-run are for files",
        ));
    }
    if given.meta_from_name.is_some() {
        return Err(Failure::usage("standard input has no name for --meta-from-name: use --set COLUMN=VALUE"));
    }
    if given.collection.is_none() && given.format != Some(InputFormat::Influx) {
        return Err(Failure::usage("name the collection with --collection NAME"));
    }
    let bad = RefCell::new(BadLines::new(given.bad_lines.as_deref(), given.bad_lines_max));
    bad.borrow_mut().open(&Begin::New, &given.files, &cli.db)?;
    let clock = SystemClock::new();
    let started = clock.monotonic();
    let Some((existing, piped)) = open(cli, given.encoding)? else { return Err(nothing()) };
    let format = given.format.or(piped.format).unwrap_or(InputFormat::Csv);
    text_options::check(given, &[format])?;
    let schema = given.collection.as_ref().and_then(|name| schema(existing.as_ref().map(Database::snapshot), name));
    let sniffer = Sniffer { cli, args: given, shape: &Shape::new(given, schema.as_deref()) };
    let args = sniffer.options_of(&piped.sample, format == InputFormat::Csv)?;
    report::options(cli, given, &args);
    let database = existing.map_or_else(OnceCell::new, OnceCell::from);
    let pipe = Pipe { cli, database, args: &args, format, bad: &bad, clock: &clock };
    let mut targets: Vec<Target<'_>> = Vec::new();
    if let Some(name) = &args.collection {
        targets.push(Target::new(&pipe, name)?);
    }
    let receiver = reader(piped, &args, format, runtime)?;
    let stop = interrupted(runtime);
    let outcome = follow(&args, &receiver, &stop, &clock, &mut |block| {
        if args.collection.is_none() {
            add_targets(&pipe, block, &mut targets)?;
        }
        for (at, target) in targets.iter_mut().enumerate() {
            target.job.tells_misformed.set(at == 0);
            target.store(&pipe, block)?;
        }
        bad.borrow_mut().flush()
    });
    let stored: u64 = targets.iter().map(|t| t.stored).sum();
    let took = clock.monotonic().saturating_sub(started);
    for target in &targets {
        report::imported(&target.job.collection, target.stored, took);
        report::left_out(target.job.empty.get());
        report::decided(&target.job);
    }
    let told = bad.borrow_mut().report();
    drop(targets);
    pipe.database.into_inner().map_or(Ok(()), Database::close)?;
    match outcome {
        Ok(()) if stored == 0 => Err(nothing()),
        Ok(()) => told,
        Err(failure) => Err(Failure::new(format!("{failure}; imported before it: {}", counted(stored, "measurement")))),
    }
}

/// The database if it exists, and standard input once something can be read from it; `None` if that is empty. A database that does not
/// exist is left to be created with the first rows.
pub(super) fn open(cli: &Cli, encoding: Option<Encoding>) -> Result<Option<(Option<Database>, PipedText)>, Failure> {
    let existing = if Database::exists(&cli.db)? { Some(crate::open::builder(&cli.db).open()?) } else { None };
    let piped = PipedText::open(NAME, encoding).map_err(|e| unreadable(&e))?;
    Ok(if piped.is_empty { None } else { Some((existing, piped)) })
}

/// Whether the user has pressed Ctrl-C, from now on.
pub(super) fn interrupted(runtime: &tokio::runtime::Runtime) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    runtime.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
    });
    stop
}

fn nothing() -> Failure {
    Failure::new("there are no measurements on standard input")
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::new(format!("cannot read standard input: {error}"))
}

fn schema(snapshot: Option<Snapshot>, name: &str) -> Option<Arc<Schema>> {
    snapshot?.collection(name).ok().map(|c| Arc::clone(c.schema()))
}

/// Starts reading standard input.
fn reader(
    piped: PipedText,
    args: &ImportArgs,
    format: InputFormat,
    runtime: &tokio::runtime::Runtime,
) -> Result<Receiver<Message>, Failure> {
    let (sender, receiver) = sync_channel(4);
    let bad = RefCell::new(BadLines::new(None, 0));
    let how = Job::new(args, String::new(), None, &bad, false)?.split_of(format, b',');
    let encoding = args.encoding.unwrap_or(Encoding::Utf8);
    runtime.spawn_blocking(move || {
        let input = encoding::transcode(piped.bytes, encoding);
        let unreadable = |e: &io::Error| unreadable(e).to_string();
        let read = split::split(NAME, input, &how, true, &mut |block| sender.send(Ok(block)).is_ok(), &unreadable);
        if let Err(error) = read {
            // If this fails, the receiver has stopped.
            let _ = sender.send(Err(Failure::new(error)));
        }
    });
    Ok(receiver)
}

/// Collects rows and stores them, until the input ends or the user presses Ctrl-C.
fn follow(
    args: &ImportArgs,
    receiver: &Receiver<Message>,
    stop: &AtomicBool,
    clock: &dyn Clock,
    give: &mut dyn FnMut(&Block) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let patience = args.patience();
    let mut gathered = Block::default();
    let mut since = clock.monotonic();
    loop {
        let left = patience.saturating_sub(clock.monotonic().saturating_sub(since));
        let wait = if gathered.is_empty() { LOOK_EVERY } else { left.min(LOOK_EVERY) };
        let mut ended = stop.load(Ordering::Relaxed);
        match receiver.recv_timeout(wait) {
            Ok(Ok(block)) => {
                if gathered.is_empty() {
                    since = clock.monotonic();
                }
                gathered.append(&block);
            }
            Ok(Err(failure)) => {
                if !gathered.is_empty() {
                    give(&gathered)?;
                }
                return Err(failure);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => ended = true,
        }
        let waited = clock.monotonic().saturating_sub(since) >= patience;
        let full = gathered.len() >= args.batch_rows as usize || gathered.bytes() >= INSERT_BYTES;
        if !gathered.is_empty() && (ended || waited || full) {
            give(&std::mem::take(&mut gathered))?;
        }
        if ended {
            return Ok(());
        }
    }
}

/// Adds targets for new measurements.
fn add_targets<'a>(pipe: &Pipe<'a>, block: &Block, targets: &mut Vec<Target<'a>>) -> Result<(), Failure> {
    for record in block.records() {
        if let Ok(Some(point)) = line_protocol::parse(record.cell(0))
            && !targets.iter().any(|t| t.job.collection == point.measurement)
        {
            targets.push(Target::of(pipe, &point.measurement, Some(point.measurement.clone().into_owned()))?);
        }
    }
    Ok(())
}

impl<'a> Target<'a> {
    fn new(pipe: &Pipe<'a>, name: &str) -> Result<Self, Failure> {
        Target::of(pipe, name, None)
    }

    /// A target for all rows, or for those of one measurement.
    fn of(pipe: &Pipe<'a>, name: &str, measurement: Option<String>) -> Result<Self, Failure> {
        pipe.snapshot().map_or(Ok(()), |snapshot| refuse_ordinary(&snapshot, name))?;
        let schema = pipe.schema(name);
        if schema.is_some() && is_for_new(pipe.args) {
            return Err(for_new(name));
        }
        let influx = pipe.format == InputFormat::Influx;
        let mut job = Job::new(pipe.args, name.to_owned(), schema, pipe.bad, influx)?;
        job.measurement = measurement;
        let job = Rc::new(job);
        let decoder = decoder(pipe.format, NAME, &pipe.args.set, &job);
        Ok(Target { job, decoder, place: None, stored: 0 })
    }

    /// Stores the rows of a block.
    fn store(&mut self, pipe: &Pipe<'_>, block: &Block) -> Result<(), Failure> {
        let rows = rows_of(block, self.decoder.as_mut())?;
        if rows.is_empty() {
            return Ok(());
        }
        let mut learnt = LearnedColumns::default();
        // Whether it knows enough does not matter: all rows are there.
        let _ = self.decoder.learn(&rows, &mut learnt)?;
        let schema = match &self.place {
            Some((collection, _)) => Some(Arc::clone(collection.snapshot()?.schema())),
            None => self.job.schema.clone(),
        };
        let is_known = learnt.rows > 0 || !learnt.names.is_empty() || self.job.influx;
        let settled = match (&self.place, is_known) {
            (Some((_, layout)), _) => RowSpec::of(&self.job, schema.as_deref(), layout.clone(), &learnt.seen)?,
            (None, true) => RowSpec::new(&self.job, schema.as_deref(), &learnt)?,
            (None, false) => {
                // Bad lines say nothing about the types of the columns.
                return self.decoder.add(&rows);
            }
        };
        let settled = Rc::new(settled);
        self.decoder.begin(&settled);
        self.job.now.set(Some(pipe.clock.now()));
        self.decoder.add(&rows)?;
        let mut layout = settled.layout.clone();
        if schema.is_none() && self.job.args.precision.is_none() {
            layout.precision = finer(layout.precision, self.job.finest.get());
            settled.schema.borrow_mut().precision = layout.precision;
        }
        let Some(mut rows) = self.decoder.finish(0)? else { return Ok(()) };
        if rows.batch.num_rows() == 0 {
            return Ok(());
        }
        if self.place.is_none() {
            if self.job.schema.is_none() {
                let mut meter = step::Meter::default();
                meter.look(&rows.batch, &layout.time_field, layout.meta_field.as_deref());
                layout.create(&self.job, pipe.database()?, meter.step())?;
            }
            self.place = Some((pipe.database()?.collection(&self.job.collection)?, layout));
        }
        let Some((collection, _)) = &self.place else { return Ok(()) };
        self.stored += self.job.insert(collection, &mut rows)?;
        Ok(())
    }
}
