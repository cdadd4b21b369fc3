//! Measurements from standard input, stored as they come: `tail -f readings.csv | ebbtide import - --collection c`.
//!
//! A thread reads and splits; here rows gather until there are enough of them or the first has waited long enough, and
//! are stored in one atomic insert. What columns hold is learnt from what has come so far.

use super::bad::{BadLines, Begin};
use super::csv_file::{self, Assembler, Columns};
use super::documents::{self, Gathered};
use super::infer::{Seen, finer};
use super::layout::Layout;
use super::text::{self, Block};
use super::{Job, Rows, for_new, is_for_new, line_protocol, report, source, step};
use crate::Failure;
use crate::args::{Cli, ImportArgs, InputFormat};
use crate::batching::INSERT_BYTES;
use ebbtide::{Collection, Database};
use ebbtide_buckets::Schema;
use ebbtide_ttl::{Clock, SystemClock};
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How often it is looked whether the user has had enough.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const NAME: &str = "-";

type Message = Result<(InputFormat, Block), Failure>;

/// Where the rows of one collection go.
struct Target<'a> {
    job: Job<'a>,
    place: Option<(Collection, Layout)>,
    columns: Option<Columns>,
    stored: u64,
}

/// Runs `ebbtide import -`.
pub(super) fn run(cli: &Cli, args: &ImportArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    if args.resume || args.dry_run {
        return Err(Failure::usage("standard input cannot be read twice: --resume and --dry-run are for files"));
    }
    if args.collection.is_none() && args.format != Some(InputFormat::Influx) {
        return Err(Failure::usage("name the collection with --collection NAME"));
    }
    let bad = RefCell::new(BadLines::new(args.bad_lines.as_deref(), args.bad_lines_max));
    bad.borrow_mut().open(&Begin::Append, &args.files, &cli.db)?;
    let clock = SystemClock::new();
    let started = clock.monotonic();
    let database = Database::open(&cli.db)?;
    let mut targets: Vec<Target<'_>> = Vec::new();
    if let Some(name) = &args.collection {
        targets.push(Target::new(args, name, &database, &bad)?);
    }
    let receiver = reader(args, runtime);
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    runtime.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
    });
    let outcome = follow(args, &receiver, &stop, &clock, &mut |format, block| {
        if args.collection.is_none() {
            add_targets(args, block, &database, &bad, &mut targets)?;
        }
        for (at, target) in targets.iter_mut().enumerate() {
            target.job.tells_misformed = at == 0;
            target.store(&database, format, block, &clock)?;
        }
        bad.borrow_mut().flush()
    });
    let stored: u64 = targets.iter().map(|t| t.stored).sum();
    let took = clock.monotonic().saturating_sub(started);
    for target in &targets {
        report::imported(&target.job.collection, target.stored, took);
        report::left_out(target.job.empty.get());
    }
    let told = bad.borrow_mut().report();
    drop(targets);
    database.close()?;
    match outcome {
        Ok(()) if stored == 0 => Err(Failure::new("there are no measurements on standard input")),
        Ok(()) => told,
        Err(failure) => Err(Failure::new(format!("{failure}; {stored} measurements before it were imported"))),
    }
}

/// Starts to read standard input.
fn reader(args: &ImportArgs, runtime: &tokio::runtime::Runtime) -> Receiver<Message> {
    let (sender, receiver) = sync_channel(4);
    let args = args.clone();
    runtime.spawn_blocking(move || {
        if let Err(failure) = read(&args, &sender) {
            // Nobody listens any more if this fails.
            let _ = sender.send(Err(failure));
        }
    });
    receiver
}

fn read(args: &ImportArgs, sender: &SyncSender<Message>) -> Result<(), Failure> {
    let fail = |e: &io::Error| Failure::new(format!("cannot read standard input: {e}"));
    let (input, found) = source::stdin(args.encoding).map_err(|e| fail(&e))?;
    let format = args.format.or(found).unwrap_or(InputFormat::Csv);
    let bad = RefCell::new(BadLines::new(None, 0));
    let how = Job::new(args, String::new(), None, &bad, false)?.split_of(format, b',');
    text::split(NAME, input, &how, true, &mut |block| sender.send(Ok((format, block))).is_ok(), &fail)
}

/// Gathers rows and gives them on, until the input ends or the user has had enough.
fn follow(
    args: &ImportArgs,
    receiver: &Receiver<Message>,
    stop: &AtomicBool,
    clock: &dyn Clock,
    give: &mut dyn FnMut(InputFormat, &Block) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let patience = Duration::from_millis(args.flush_ms);
    let mut gathered = Block::default();
    let mut format = InputFormat::Csv;
    let mut since = clock.monotonic();
    loop {
        let left = patience.saturating_sub(clock.monotonic().saturating_sub(since));
        let wait = if gathered.len() == 0 { LOOK_EVERY } else { left.min(LOOK_EVERY) };
        let mut ended = stop.load(Ordering::Relaxed);
        match receiver.recv_timeout(wait) {
            Ok(Ok((found, block))) => {
                if gathered.len() == 0 {
                    since = clock.monotonic();
                }
                format = found;
                gathered.append(&block);
            }
            Ok(Err(failure)) => {
                if gathered.len() > 0 {
                    give(format, &gathered)?;
                }
                return Err(failure);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => ended = true,
        }
        let waited = clock.monotonic().saturating_sub(since) >= patience;
        let full = gathered.len() >= args.batch_rows as usize || gathered.bytes() >= INSERT_BYTES;
        if gathered.len() > 0 && (ended || waited || full) {
            give(format, &std::mem::take(&mut gathered))?;
        }
        if ended {
            return Ok(());
        }
    }
}

/// Adds the collections of measurements that are new.
fn add_targets<'a>(
    args: &'a ImportArgs,
    block: &Block,
    database: &Database,
    bad: &'a RefCell<BadLines>,
    targets: &mut Vec<Target<'a>>,
) -> Result<(), Failure> {
    for record in block.records() {
        if let Ok(Some(point)) = line_protocol::parse(record.cell(0))
            && !targets.iter().any(|t| t.job.collection == point.measurement)
        {
            let mut target = Target::new(args, &point.measurement, database, bad)?;
            target.job.measurement = Some(point.measurement);
            targets.push(target);
        }
    }
    Ok(())
}

impl<'a> Target<'a> {
    fn new(args: &'a ImportArgs, name: &str, database: &Database, bad: &'a RefCell<BadLines>) -> Result<Self, Failure> {
        let schema = database.snapshot().collection(name).ok().map(|c| Arc::clone(c.schema()));
        let influx = args.format == Some(InputFormat::Influx);
        if schema.is_some() && is_for_new(args) {
            return Err(for_new(name));
        }
        let job = Job::new(args, name.to_owned(), schema, bad, influx)?;
        Ok(Target { job, place: None, columns: None, stored: 0 })
    }

    fn store(
        &mut self,
        database: &Database,
        format: InputFormat,
        block: &Block,
        clock: &dyn Clock,
    ) -> Result<(), Failure> {
        let rows = match format {
            InputFormat::Csv => self.rows_of_cells(database, block)?,
            _ => self.rows_of_documents(database, format, block, clock)?,
        };
        let (Some(mut rows), Some((collection, _))) = (rows, &self.place) else { return Ok(()) };
        self.stored += self.job.insert(collection, &mut rows, &mut |_| Ok(None))?;
        Ok(())
    }

    fn rows_of_cells(&mut self, database: &Database, block: &Block) -> Result<Option<Rows<'static>>, Failure> {
        let mut header = 0;
        if self.columns.is_none() {
            let Some(first) = block.records().next() else { return Ok(None) };
            self.columns = Some(Columns::new(&first, &self.job.shape, NAME)?);
            header = usize::from(self.job.shape.has_header());
        }
        let Some(columns) = &self.columns else { return Ok(None) };
        let records = || block.records().skip(header);
        let mut seen: Vec<Seen> = Vec::new();
        let at = csv_file::places(columns, &mut seen);
        if csv_file::look_at(records(), columns, &at, &self.job, &mut seen, NAME)? == 0 {
            // A header, or bad lines, tell nothing yet of what the columns hold.
            for record in records() {
                columns.check(&record, &self.job, NAME)?;
            }
            return Ok(None);
        }
        let schema = match &self.place {
            Some((collection, _)) => Some(Arc::clone(collection.snapshot()?.schema())),
            None => self.job.schema.clone(),
        };
        let mut layout = match &self.place {
            Some((_, layout)) => layout.clone(),
            None => {
                let names: Vec<String> = seen.iter().map(|s| s.name.clone()).collect();
                let (job, known) = (&self.job, schema.as_deref());
                Layout::new(job.args, &job.shape, &job.collection, known, &names, &seen)?
            }
        };
        if self.place.is_none() && schema.is_none() && self.job.args.precision.is_none() {
            layout.precision = seen.iter().map(Seen::finest).fold(layout.precision, finer);
        }
        let kinds = self.job.kinds(schema.as_deref(), &layout, &seen)?;
        let rows = {
            let mut assembler = Assembler::new(columns, &kinds, &self.job, &layout);
            for record in records() {
                assembler.add(&record, NAME)?;
            }
            if assembler.rows() == 0 {
                return Ok(None);
            }
            assembler.finish(NAME, 0)?
        };
        self.begin(database, layout, &rows)?;
        Ok(Some(rows))
    }

    fn rows_of_documents(
        &mut self,
        database: &Database,
        format: InputFormat,
        block: &Block,
        clock: &dyn Clock,
    ) -> Result<Option<Rows<'static>>, Failure> {
        let mut schema = match &self.place {
            Some((collection, _)) => Some(Arc::clone(collection.snapshot()?.schema())),
            None => self.job.schema.clone(),
        };
        let mut layout = match (&self.place, format) {
            (Some((_, layout)), _) => layout.clone(),
            (None, InputFormat::Influx) => Layout::influx(self.job.args, &self.job.collection, schema.as_deref())?,
            (None, _) => {
                let Some(names) = block.records().find_map(|r| documents::names_of(&r, &self.job).ok()) else {
                    for record in block.records() {
                        let reason = documents::names_of(&record, &self.job).err().unwrap_or_default();
                        self.job.bad.borrow_mut().row(NAME, record.line, &reason, &record.text())?;
                    }
                    return Ok(None);
                };
                let job = &self.job;
                Layout::new(job.args, &job.shape, &job.collection, schema.as_deref(), &names, &[])?
            }
        };
        let mut gathered = Gathered::default();
        for record in block.records() {
            gathered.add(&record, format, &self.job, &layout, NAME, Some(clock.now()))?;
        }
        if schema.is_none() && self.job.args.precision.is_none() {
            layout.precision = finer(layout.precision, gathered.finest);
        }
        let fresh = || Schema::new(layout.time_field.clone(), layout.meta_field.clone(), layout.precision);
        let mut known = schema.take().map_or_else(fresh, |s| s.as_ref().clone());
        let Some(rows) = gathered.finish(&mut known, &self.job, NAME, 0)? else { return Ok(None) };
        self.begin(database, layout, &rows)?;
        Ok(Some(rows))
    }

    /// Makes the collection when its first rows are there.
    fn begin(&mut self, database: &Database, layout: Layout, rows: &Rows<'_>) -> Result<(), Failure> {
        if self.place.is_some() {
            return Ok(());
        }
        if self.job.schema.is_none() {
            let mut meter = step::Meter::default();
            meter.look(&rows.batch, &layout.time_field, layout.meta_field.as_deref());
            self.job.create(database, &layout, meter.step())?;
        }
        self.place = Some((database.collection(&self.job.collection)?, layout));
        Ok(())
    }
}
