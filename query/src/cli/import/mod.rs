//! `ebbtide import`: measurements from files that other programs wrote.
//!
//! Nothing is stored before every file has been read to its end once and found good: a mistake in the last line leaves
//! the database as it was. What cannot be read twice, standard input, is stored as it comes (`stream.rs`).

mod bad;
mod columnar;
mod csv_file;
mod documents;
mod infer;
mod layout;
mod line_protocol;
mod report;
mod resume;
mod source;
mod step;
mod stream;
mod text;
mod times;

use super::args::{Cli, ImportArgs, InputFormat};
use super::{Failure, files};
use bad::BadLines;
use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use ebbtide::{Collection, Database};
use ebbtide_buckets::{FieldType, Schema, batch_from_arrow};
use ebbtide_ttl::{Clock, Code, Precision, SystemClock};
use infer::{Cells, Kind, Nulls, Seen};
use layout::{Layout, Shape};
use report::Bar;
use resume::Progress;
pub(crate) use resume::unfinished;
use source::Source;
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use text::Split;
use times::TimeReader;

/// Names that a time column is known by.
const TIME_NAMES: [&str; 8] = ["time", "timestamp", "ts", "datetime", "date_time", "date", "t", "valid_time"];
/// What is wrong with one row and not with the import.
const SET_ASIDE: [Code; 3] = [Code::BadValue, Code::TypeMismatch, Code::BSONObjectTooLarge];
/// Rows that are looked at to learn the step of the data.
const SAMPLE_ROWS: usize = 200_000;

/// A batch of rows and where they come from.
struct Rows<'a> {
    batch: RecordBatch,
    source: &'a str,
    /// The line (or, of a Parquet or Arrow file, the row) of each row.
    lines: Vec<u64>,
    /// Records of the file up to the end of this batch.
    end: u64,
}

impl Rows<'_> {
    /// What an error about one row says, without the row's index in its batch.
    fn reason(index: usize, message: &str) -> &str {
        message.strip_prefix(&format!("index {index}: ")).unwrap_or(message)
    }

    /// Takes a row out that cannot be stored: it goes where bad lines go.
    fn set_aside(&mut self, index: usize, message: &str, bad: &RefCell<BadLines>) -> Result<(), Failure> {
        let row = self.batch.slice(index.min(self.batch.num_rows().saturating_sub(1)), 1);
        let text = crate::output::json_rows(&row)?.pop().map(|r| serde_json::Value::Object(r).to_string());
        let line = self.lines.get(index).copied().unwrap_or(0);
        bad.borrow_mut().row(self.source, line, Self::reason(index, message), &text.unwrap_or_default())?;
        let kept: Vec<u32> =
            (0..self.batch.num_rows()).filter(|i| *i != index).filter_map(|i| u32::try_from(i).ok()).collect();
        self.batch = take_record_batch(&self.batch, &UInt32Array::from(kept)).map_err(crate::QueryError::from)?;
        self.lines.remove(index);
        Ok(())
    }
}

/// What is to be done with some files for one collection.
struct Job<'a> {
    args: &'a ImportArgs,
    collection: String,
    /// The collection's schema, if it exists.
    schema: Option<Arc<Schema>>,
    shape: Shape,
    cells: Cells,
    /// The one measurement of line protocol that is wanted; all are, with their name in the meta, if `None`.
    measurement: Option<String>,
    /// Whether lines of which no measurement can be told are told by this job.
    tells_misformed: bool,
    batch_rows: usize,
    bad: &'a RefCell<BadLines>,
    /// Rows without a value that were left out.
    empty: Cell<u64>,
    /// The unit that holds every time that was seen, as far as the format tells only row by row.
    finest: Cell<Precision>,
}

impl<'a> Job<'a> {
    fn new(
        args: &'a ImportArgs,
        collection: String,
        schema: Option<Arc<Schema>>,
        bad: &'a RefCell<BadLines>,
        influx: bool,
    ) -> Result<Self, Failure> {
        let zone = args.time_zone.as_deref();
        let times = TimeReader::new(&args.time_format, zone, args.dst, influx.then_some("ns"))?;
        let cells =
            Cells { nulls: Nulls::new(&args.null), decimal_comma: args.decimal_comma, general: times.general(), times };
        if args.time.len() > 2 {
            return Err(Failure::usage("--time takes one column, or two: a date and a time of day"));
        }
        Ok(Job {
            args,
            collection,
            shape: Shape::new(args, schema.as_deref()),
            schema,
            cells,
            measurement: None,
            tells_misformed: true,
            batch_rows: args.batch_rows as usize,
            bad,
            empty: Cell::new(0),
            finest: Cell::new(Precision::Ms),
        })
    }

    /// How the text of a file is split.
    fn split(&self, source: &Source) -> Split {
        let tabs = source.name.to_lowercase().contains(".tsv");
        self.split_of(source.format, if tabs { b'\t' } else { b',' })
    }

    fn split_of(&self, format: InputFormat, delimiter: u8) -> Split {
        match format {
            InputFormat::Csv => Split::Csv {
                delimiter: self.args.delimiter.unwrap_or(delimiter),
                comment: self.args.comment,
                skip: self.args.skip,
            },
            _ => Split::Lines,
        }
    }

    /// A new collection, as the user and the data want it.
    fn create(&self, database: &Database, layout: &Layout, step: Option<step::Step>) -> Result<(), Failure> {
        let mut series = serde_json::Map::new();
        series.insert("timeField".to_owned(), layout.time_field.clone().into());
        if let Some(meta) = &layout.meta_field {
            series.insert("metaField".to_owned(), meta.clone().into());
        }
        let granularity = match (&self.args.granularity, step) {
            (Some(word), _) => word.clone(),
            (None, Some(step)) => {
                eprintln!("granularity {}: a series has a measurement every {} (median)", step.granularity(), step);
                step.granularity().to_owned()
            }
            (None, None) => "seconds".to_owned(),
        };
        series.insert("granularity".to_owned(), granularity.into());
        if layout.precision != Precision::Ms {
            eprintln!("precision {}: the times are that fine", layout.precision.name());
            series.insert("precision".to_owned(), layout.precision.name().into());
        }
        let mut document = serde_json::Map::new();
        document.insert("create".to_owned(), self.collection.clone().into());
        document.insert("timeseries".to_owned(), series.into());
        if let Some(seconds) = self.args.expire_after {
            document.insert("expireAfterSeconds".to_owned(), seconds.into());
        }
        database.run_command(&serde_json::Value::Object(document))?;
        Ok(())
    }

    /// Stores rows; those that cannot be stored go where bad lines go. Gives how many were stored.
    fn insert(&self, collection: &Collection, rows: &mut Rows<'_>) -> Result<u64, Failure> {
        loop {
            if rows.batch.num_rows() == 0 {
                return Ok(0);
            }
            match collection.insert(&rows.batch) {
                Ok(count) => return Ok(count),
                Err(error) => match error.index().filter(|i| *i < rows.lines.len()) {
                    Some(index) if SET_ASIDE.contains(&error.code()) => {
                        rows.set_aside(index, &error.to_string(), self.bad)?;
                    }
                    _ => return Err(error.into()),
                },
            }
        }
    }

    /// The types of the columns of CSV files.
    fn kinds(&self, schema: Option<&Schema>, layout: &Layout, seen: &[Seen]) -> Result<Vec<(String, Kind)>, Failure> {
        let known_meta = |name: &str| -> Option<FieldType> {
            let ty = schema?.meta_type.as_ref()?;
            match (layout.meta_columns.len(), ty) {
                (1, ty) => Some(ty.clone()),
                (_, FieldType::Object(members)) => members.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone()),
                _ => None,
            }
        };
        let lenient = self.bad.borrow().lenient();
        let mut kinds = Vec::new();
        for column in seen {
            let kind = if column.name == layout.time_column {
                Some(column.time_kind(lenient)?)
            } else {
                let known = if layout.meta_columns.contains(&column.name) {
                    known_meta(&column.name)
                } else {
                    schema.and_then(|s| s.field_type(&column.name).cloned())
                };
                column.kind(known.as_ref(), self.args.text.contains(&column.name), lenient)?
            };
            kinds.extend(kind.map(|k| (column.name.clone(), k)));
        }
        if let Some(name) = self.args.text.iter().find(|t| !seen.iter().any(|s| s.name == **t)) {
            let names: Vec<String> = seen.iter().map(|s| s.name.clone()).collect();
            return Err(self.shape.unknown("option --text", name, &names));
        }
        Ok(kinds)
    }
}

/// Takes rows of the file of this number, and says whether more are wanted.
type Take<'a> = dyn FnMut(usize, Rows<'_>) -> Result<ControlFlow<()>, Failure> + 'a;

/// Everything that is known before the first row is stored.
struct Plan<'a> {
    job: &'a Job<'a>,
    sources: Vec<Source>,
    seen: Vec<Seen>,
    kinds: Vec<(String, Kind)>,
    layout: Layout,
}

impl Plan<'_> {
    /// Gives the rows of all files from one on, the first of them from one of its rows on.
    fn rows(&self, schema: &Schema, (file, from): (usize, u64), give: &mut Take<'_>) -> Result<(), Failure> {
        let mut grown = schema.clone();
        for (at, source) in self.sources.iter().enumerate().skip(file) {
            let from = if at == file { from } else { 0 };
            let (job, layout) = (self.job, &self.layout);
            let give = &mut |rows: Rows<'_>| give(at, rows);
            match source.format {
                InputFormat::Csv => csv_file::read(source, job, &self.kinds, layout, from, give)?,
                InputFormat::Ndjson | InputFormat::Influx => {
                    documents::read(source, job, layout, &mut grown, from, give)?;
                }
                InputFormat::Parquet | InputFormat::Arrow => columnar::read(source, job, layout, from, give)?,
            }
        }
        Ok(())
    }

    fn only_csv(&self) -> bool {
        self.sources.iter().all(|s| s.format == InputFormat::Csv)
    }
}

/// Runs `ebbtide import`.
pub(crate) fn run(cli: &Cli, args: &ImportArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("an import writes: leave --read-only away"));
    }
    if args.bad_lines.as_ref().is_some_and(|b| args.files.contains(b)) {
        return Err(Failure::usage("--bad-lines names a file that is to be imported"));
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
    let bad = BadLines::new(args.bad_lines.as_deref(), args.bad_lines_max, args.resume)?;
    let bad = RefCell::new(bad);
    let clock = SystemClock::new();
    let outcome = match &args.collection {
        Some(name) => one(cli, args, name, None, sources, &bad, &clock, &read).and_then(|done| match done {
            Some(progress) => progress.forget(),
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
        return Err(Failure::usage("say into which collection, with --collection NAME"));
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
    done.iter().try_for_each(Progress::forget)
}

/// Imports files into one collection. `measurement` is given if only the measurement of the collection's name is
/// wanted, and tells whether it is the first one. Gives what is still to be forgotten of how far it came.
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
    let schema = existing(cli, collection)?;
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
    let left = match schema {
        Some(_) if !args.from_start && !args.dry_run => progress.left()?,
        _ => None,
    };
    match &left {
        Some(left) if !args.resume => {
            return Err(Failure::new(format!(
                "an import into {collection} was interrupted after {} of its measurements: go on with --resume, or \
                 import from the first row again with --from-start",
                left.stored
            )));
        }
        None if args.resume && schema.is_some() => {
            eprintln!("{collection}: no import was interrupted; this one begins with the first row");
        }
        Some(_) => {}
        None if schema.is_some() && is_for_new(args) => return Err(for_new(collection)),
        None => {}
    }
    let bar = Bar::new(&sources, read, clock);
    bar.phase("checking");
    let mark = bad.borrow_mut().mark()?;
    let (plan, checked) = check(&job, sources, &bar)?;
    bar.clear();
    report::columns(&plan, &checked.schema);
    if args.dry_run {
        eprintln!("{} measurements would be imported into {collection}; the database was not changed", checked.rows);
        report::left_out(job.empty.get());
        return Ok(None);
    }
    bad.borrow_mut().rewind(&mark)?;
    job.empty.set(0);
    bar.phase("importing");
    let database = Database::open(&cli.db)?;
    let created = schema.is_none();
    if created {
        job.create(&database, &plan.layout, checked.step)?;
    }
    let target = database.collection(collection)?;
    if let Some(left) = left {
        progress.take_up(left, &target)?;
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
                "{failure}; {stored} measurements before it were imported, --resume goes on behind them"
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

/// What is known of the collection, if it exists.
fn existing(cli: &Cli, name: &str) -> Result<Option<Arc<Schema>>, Failure> {
    if !Database::exists(&cli.db)? {
        return Ok(None);
    }
    let database = Database::builder(&cli.db).read_only().open()?;
    let found = database.snapshot().collection(name).ok();
    Ok(found.map(|c| Arc::clone(c.schema())))
}

struct Checked {
    rows: u64,
    step: Option<step::Step>,
    schema: Schema,
}

/// Reads everything once: what the columns hold, whether each measurement has a time and types agree.
fn check<'a>(job: &'a Job<'a>, sources: Vec<Source>, bar: &Bar<'_>) -> Result<(Plan<'a>, Checked), Failure> {
    let schema = job.schema.as_deref();
    let mut seen: Vec<Seen> = Vec::new();
    let mut rows = 0;
    let mut names: Vec<String> = Vec::new();
    for source in &sources {
        match source.format {
            InputFormat::Csv => rows += csv_file::look(source, job, &mut seen, &|rows| bar.tick(rows))?,
            InputFormat::Ndjson => names.extend(documents::first_names(source, job)?),
            InputFormat::Influx => {}
            InputFormat::Parquet | InputFormat::Arrow => {
                if job.shape.time.len() > 1 || job.shape.at.is_some() {
                    return Err(Failure::usage("--at, and --time with two columns, are for text files only"));
                }
                names.extend(columnar::names(source, job)?);
            }
        }
    }
    names.extend(seen.iter().map(|s| s.name.clone()));
    let mut layout = if sources.iter().all(|s| s.format == InputFormat::Influx) {
        Layout::influx(job.args, &job.collection, schema)?
    } else {
        Layout::new(job.args, &job.shape, &job.collection, schema, &names, &seen)?
    };
    let chosen = schema.is_some() || job.args.precision.is_some();
    if !chosen {
        layout.precision = seen.iter().map(Seen::finest).fold(layout.precision, infer::finer);
    }
    let kinds = job.kinds(schema, &layout, &seen)?;
    let mut plan = Plan { job, sources, seen, kinds, layout };
    let mut schema = match &job.schema {
        Some(schema) => schema.as_ref().clone(),
        None => Schema::new(plan.layout.time_field.clone(), plan.layout.meta_field.clone(), plan.layout.precision),
    };
    let only_csv = plan.only_csv();
    if only_csv && rows == 0 {
        return Err(Failure::new("there are no measurements: the files hold a header only"));
    }
    let whole = !only_csv || job.bad.borrow().lenient() || job.args.skip_empty || job.args.dry_run;
    let time_is_full = plan.seen.iter().any(|s| s.name == plan.layout.time_column && s.values() == rows);
    let mut meter = step::Meter::default();
    let mut found = 0;
    let before = schema.clone();
    plan.rows(&before, (0, 0), &mut |_, mut rows| {
        let accepted = loop {
            if rows.batch.num_rows() == 0 {
                return Ok(ControlFlow::Continue(()));
            }
            match batch_from_arrow(&rows.batch, &schema) {
                Ok(accepted) => break accepted,
                Err(e) => rows.set_aside(e.index, &e.error.message, job.bad)?,
            }
        };
        if found < SAMPLE_ROWS {
            meter.look(&accepted.batch, &plan.layout.time_field, plan.layout.meta_field.as_deref());
        }
        schema = accepted.schema;
        found += rows.batch.num_rows();
        bar.tick(found as u64);
        // What CSV holds is known already: a sample tells the step.
        let enough = !whole && found >= SAMPLE_ROWS && time_is_full;
        Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if !chosen {
        // What only the values tell.
        plan.layout.precision = infer::finer(plan.layout.precision, job.finest.get());
    }
    let rows = if whole { found as u64 } else { rows };
    if rows == 0 {
        return Err(Failure::new("there are no measurements in the files"));
    }
    Ok((plan, Checked { rows, step: meter.step(), schema }))
}

/// Stores every row, noting before each batch what is done.
fn store(collection: &Collection, plan: &Plan<'_>, progress: &mut Progress, bar: &Bar<'_>) -> Result<(), Failure> {
    let schema = collection.snapshot()?.schema().as_ref().clone();
    let start = (progress.state.file, progress.state.rows);
    let mut stored = 0;
    plan.rows(&schema, start, &mut |file, mut rows| {
        if rows.batch.num_rows() == 0 {
            progress.done(file, rows.end, 0);
            return Ok(ControlFlow::Continue(()));
        }
        progress.begin(file, &rows, collection)?;
        let count = plan.job.insert(collection, &mut rows)?;
        progress.done(file, rows.end, count);
        stored += count;
        bar.tick(stored);
        Ok(ControlFlow::Continue(()))
    })
}
