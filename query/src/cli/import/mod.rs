//! `ebbtide import`: measurements from files that other programs wrote.
//!
//! Nothing is stored before every file has been read to its end once and found good: a mistake in the last line leaves
//! the database as it was.

mod csv_file;
mod infer;
mod other_files;
mod step;

use super::args::{Cli, ImportArgs, InputFormat};
use super::{Failure, files};
use csv_file::Dialect;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema as ArrowSchema};
use ebbtide::Database;
use ebbtide_buckets::{FieldType, Schema, batch_from_arrow};
use ebbtide_ttl::{Clock, Precision, SystemClock, Timestamp};
use indicatif::{ProgressBar, ProgressStyle};
use infer::{Kind, Seen};
use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names that a time column is known by.
const TIME_NAMES: [&str; 8] = ["time", "timestamp", "ts", "datetime", "date_time", "date", "t", "valid_time"];
/// Rows that are looked at to learn the step of the data.
const SAMPLE_ROWS: usize = 200_000;

/// An input file.
pub(crate) struct Source {
    name: String,
    path: PathBuf,
    format: InputFormat,
    gzip: bool,
    bytes: u64,
    /// Bytes read, for the progress bar.
    read: Arc<AtomicU64>,
}

struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Source {
    /// Finds out what a file is, by its name and its first bytes.
    fn find(name: String, path: PathBuf, format: Option<InputFormat>, read: &Arc<AtomicU64>) -> Result<Self, Failure> {
        let mut file = files::open(&path)?;
        let bytes = file.metadata().map_or(0, |m| m.len());
        let mut magic = [0; 4];
        let count = file.read(&mut magic).map_err(|e| Failure::new(format!("cannot read {name}: {e}")))?;
        if count == 0 {
            return Err(Failure::new(format!("{name} is empty")));
        }
        let lower = name.to_lowercase();
        let gzip = magic[..2] == [0x1f, 0x8b];
        if lower.ends_with(".gz") && !gzip {
            return Err(Failure::new(format!("{name} is not what its name says: it is not compressed with gzip")));
        }
        let stem = lower.strip_suffix(".gz").unwrap_or(&lower);
        let named = match stem.rsplit('.').next() {
            Some("csv" | "tsv" | "txt" | "dat") => Some(InputFormat::Csv),
            Some("ndjson" | "jsonl" | "json") => Some(InputFormat::Ndjson),
            Some("parquet" | "pq") => Some(InputFormat::Parquet),
            _ => None,
        };
        let is_parquet = magic == *b"PAR1";
        let format = match (format.or(named), is_parquet) {
            (Some(InputFormat::Parquet), false) => {
                return Err(Failure::new(format!("{name} is not what its name says: it is not a Parquet file")));
            }
            (Some(InputFormat::Csv | InputFormat::Ndjson), true) => {
                return Err(Failure::new(format!("{name} is not what its name says: it is a Parquet file")));
            }
            (Some(format), _) => format,
            (None, true) => InputFormat::Parquet,
            (None, false) if magic[0] == b'{' => InputFormat::Ndjson,
            (None, false) if name == "-" => InputFormat::Csv,
            (None, false) => {
                let what = format!("cannot tell the form of {name} from its name; say --format csv, ndjson or parquet");
                return Err(Failure::usage(what));
            }
        };
        if magic.contains(&0) && !gzip && format != InputFormat::Parquet {
            return Err(Failure::new(format!("{name} is not what its name says: it is not text")));
        }
        Ok(Source { name, path, format, gzip, bytes, read: Arc::clone(read) })
    }

    /// The file's text, unpacked.
    fn open(&self) -> Result<Box<dyn Read>, Failure> {
        let mut file = files::open(&self.path)?;
        file.seek(SeekFrom::Start(0)).map_err(|e| Failure::new(format!("cannot read {}: {e}", self.name)))?;
        let counted = Counted { inner: io::BufReader::with_capacity(1 << 16, file), read: Arc::clone(&self.read) };
        Ok(if self.gzip { Box::new(flate2::read::MultiGzDecoder::new(counted)) } else { Box::new(counted) })
    }
}

/// A batch of rows and where they come from.
pub(crate) struct Rows<'a> {
    batch: RecordBatch,
    source: &'a str,
    /// The line (or, of a Parquet file, the row) of each row.
    lines: Vec<u64>,
}

impl Rows<'_> {
    /// An error about one row, in place of the row's index in its batch the place in its file.
    fn at(&self, index: Option<usize>, message: &str) -> Failure {
        let message = match index {
            Some(index) => message.strip_prefix(&format!("index {index}: ")).unwrap_or(message),
            None => message,
        };
        match index.and_then(|i| self.lines.get(i)) {
            Some(line) => Failure::new(format!("{}:{line}: {message}", self.source)),
            None => Failure::new(format!("{}: {message}", self.source)),
        }
    }
}

/// Which columns of the files become which fields of the collection.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    time_column: String,
    time_field: String,
    meta_columns: Vec<String>,
    meta_field: Option<String>,
    precision: Precision,
}

impl Layout {
    /// Gives the columns of a batch their place: the time, the meta, the other fields.
    fn arrange(&self, batch: &RecordBatch, file: &str) -> Result<RecordBatch, Failure> {
        let missing = |name: &str| {
            let schema = batch.schema();
            let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            Failure::new(format!("{file} has no column '{name}'; it has: {}", names.join(", ")))
        };
        let time = batch.column_by_name(&self.time_column).ok_or_else(|| missing(&self.time_column))?;
        let time = self.times(time, file)?;
        let mut fields = vec![Field::new(&self.time_field, time.data_type().clone(), true)];
        let mut columns: Vec<ArrayRef> = vec![time];
        if let Some(meta) = &self.meta_field {
            let mut parts = Vec::new();
            for name in &self.meta_columns {
                match batch.column_by_name(name) {
                    Some(column) => parts.push((name, Arc::clone(column))),
                    // A column without a single value was left out.
                    None if self.meta_columns.len() > 1 => {}
                    None => return Err(missing(name)),
                }
            }
            let column: ArrayRef = match parts.as_slice() {
                [(_, one)] if self.meta_columns.len() == 1 => Arc::clone(one),
                parts => {
                    let fields: Fields =
                        parts.iter().map(|(n, c)| Field::new(n.as_str(), c.data_type().clone(), true)).collect();
                    let columns = parts.iter().map(|(_, c)| Arc::clone(c)).collect();
                    Arc::new(StructArray::try_new(fields, columns, None).map_err(crate::QueryError::from)?)
                }
            };
            fields.push(Field::new(meta, column.data_type().clone(), true));
            columns.push(column);
        }
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            if *field.name() != self.time_column && !self.meta_columns.contains(field.name()) {
                fields.push(Field::new(field.name(), field.data_type().clone(), true));
                columns.push(Arc::clone(column));
            }
        }
        Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns).map_err(crate::QueryError::from)?)
    }

    /// Times that a Parquet file holds as text.
    fn times(&self, column: &ArrayRef, file: &str) -> Result<ArrayRef, Failure> {
        if !matches!(column.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
            return Ok(Arc::clone(column));
        }
        let texts = datafusion::arrow::compute::cast(column, &DataType::Utf8).map_err(crate::QueryError::from)?;
        let texts = texts.as_string::<i32>();
        let mut nanos = Vec::with_capacity(texts.len());
        for (row, text) in texts.iter().enumerate() {
            nanos.push(match text {
                None => None,
                Some(text) => {
                    let time = Timestamp::parse(text).map_err(|e| {
                        Failure::new(format!("{file}: row {}: column '{}': {e}", row + 1, self.time_column))
                    })?;
                    time.to_units(Precision::Us)
                }
            });
        }
        let array = datafusion::arrow::array::TimestampMicrosecondArray::from(nanos).with_timezone("UTC");
        Ok(Arc::new(array))
    }
}

/// Everything that is known before the first row is stored.
struct Plan {
    sources: Vec<Source>,
    dialect: Dialect,
    kinds: Vec<(String, Kind)>,
    layout: Layout,
    batch_rows: usize,
}

impl Plan {
    fn rows(
        &self,
        schema: &Schema,
        give: &mut dyn FnMut(Rows<'_>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let mut grown = schema.clone();
        for source in &self.sources {
            match source.format {
                InputFormat::Csv => {
                    csv_file::read(source, &self.dialect, &self.kinds, &self.layout, self.batch_rows, give)?;
                }
                InputFormat::Ndjson => {
                    let nulls = &self.dialect.nulls;
                    other_files::read_ndjson(source, &self.layout, nulls, &mut grown, self.batch_rows, give)?;
                }
                InputFormat::Parquet => other_files::read_parquet(source, &self.layout, self.batch_rows, give)?,
            }
        }
        Ok(())
    }
}

/// Runs `ebbtide import`.
pub(crate) fn run(cli: &Cli, args: &ImportArgs) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("an import writes: leave --read-only away"));
    }
    let clock = SystemClock::new();
    let started = clock.monotonic();
    let read = Arc::new(AtomicU64::new(0));
    let mut spooled = Vec::new();
    let mut sources = Vec::new();
    for file in &args.files {
        let (name, path) = if file.as_os_str() == "-" {
            let spool = files::spool_stdin()?;
            let path = spool.path().to_owned();
            spooled.push(spool);
            ("-".to_owned(), path)
        } else {
            (file.display().to_string(), file.clone())
        };
        sources.push(Source::find(name, path, args.format, &read)?);
    }
    let existing = existing(cli, &args.collection)?;
    if existing.is_some() && (args.granularity.is_some() || args.expire_after.is_some()) {
        return Err(Failure::usage(format!(
            "collection '{}' exists: --granularity and --expire-after are for a new one; ALTER COLLECTION changes it",
            args.collection
        )));
    }
    let bar = progress(sources.iter().map(|s| s.bytes).sum());
    bar.set_message("checking");
    let (plan, checked) = check(args, sources, existing.as_ref(), &bar, &read)?;
    report_columns(&plan, args);
    if args.dry_run {
        bar.finish_and_clear();
        eprintln!("{} measurements would be imported; nothing was changed", checked.rows);
        return Ok(());
    }
    read.store(0, Ordering::Relaxed);
    bar.set_message("importing");
    let database = Database::open(&cli.db)?;
    let created = existing.is_none();
    if created {
        create(&database, args, &plan, checked.granularity)?;
    }
    let stored = store(&database, args, &plan, &bar, &read);
    bar.finish_and_clear();
    let stored = match stored {
        Ok(stored) => stored,
        Err((before, failure)) if created => {
            database.drop_collection(&args.collection)?;
            let _ = before;
            return Err(Failure::new(format!("{failure}; nothing was imported")));
        }
        Err((before, failure)) => {
            return Err(Failure::new(format!("{failure}; {before} measurements before it were imported")));
        }
    };
    database.flush()?;
    let took = clock.monotonic().saturating_sub(started).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = stored as f64 / took.max(1e-3);
    eprintln!("{stored} measurements imported into {} in {took:.1} s ({rate:.0} a second)", args.collection);
    if let Some(count) = database.collection(&args.collection)?.snapshot()?.suspended() {
        eprintln!("note: {count} measurements lie outside of 1970 to 2038: nothing in the collection expires");
    }
    database.close()?;
    Ok(())
}

/// What is known of the collection if it exists.
struct Existing {
    schema: Arc<Schema>,
}

fn existing(cli: &Cli, name: &str) -> Result<Option<Existing>, Failure> {
    if !Database::exists(&cli.db)? {
        return Ok(None);
    }
    let database = Database::builder(&cli.db).read_only().open()?;
    let found = database.snapshot().collection(name).ok();
    Ok(found.map(|c| Existing { schema: Arc::clone(c.schema()) }))
}

fn progress(bytes: u64) -> ProgressBar {
    if !files::stderr_is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    let template = "{msg:>10} [{bar:30}] {percent:>3} %  {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

struct Checked {
    rows: u64,
    granularity: Option<step::Step>,
}

/// Reads everything once: what the columns hold, whether each measurement has a time and types agree.
fn check(
    args: &ImportArgs,
    sources: Vec<Source>,
    existing: Option<&Existing>,
    bar: &ProgressBar,
    read: &Arc<AtomicU64>,
) -> Result<(Plan, Checked), Failure> {
    let dialect =
        Dialect { delimiter: args.delimiter, nulls: args.null.iter().map(|n| n.trim().as_bytes().to_vec()).collect() };
    let mut seen: Vec<Seen> = Vec::new();
    let mut rows = 0;
    let mut names: Vec<String> = Vec::new();
    for source in &sources {
        match source.format {
            InputFormat::Csv => rows += csv_file::look(source, &dialect, &mut seen)?,
            InputFormat::Ndjson => names.extend(other_files::first_names(source)?),
            InputFormat::Parquet => names.extend(other_files::parquet_names(source)?),
        }
        bar.set_position(read.load(Ordering::Relaxed));
    }
    names.extend(seen.iter().map(|s| s.name.clone()));
    let layout = layout(args, existing.map(|e| e.schema.as_ref()), &names, &seen)?;
    let kinds = kinds(args, existing.map(|e| e.schema.as_ref()), &layout, &seen)?;
    let plan = Plan { sources, dialect, kinds, layout, batch_rows: args.batch_rows as usize };
    let mut schema = match existing {
        Some(existing) => existing.schema.as_ref().clone(),
        None => Schema::new(plan.layout.time_field.clone(), plan.layout.meta_field.clone(), plan.layout.precision),
    };
    let only_text = plan.sources.iter().all(|s| s.format == InputFormat::Csv);
    if only_text && rows == 0 {
        return Err(Failure::new("there are no measurements: the files hold a header only"));
    }
    let mut meter = step::Meter::default();
    let mut found = 0;
    let before = schema.clone();
    plan.rows(&before, &mut |rows| {
        let accepted = batch_from_arrow(&rows.batch, &schema).map_err(|e| rows.at(Some(e.index), &e.error.message))?;
        if found < SAMPLE_ROWS {
            meter.look(&accepted.batch, &plan.layout.time_field, plan.layout.meta_field.as_deref());
        }
        schema = accepted.schema;
        found += rows.batch.num_rows();
        bar.set_position(read.load(Ordering::Relaxed).min(bar.length().unwrap_or(0)));
        // What CSV holds is known already: a sample tells the step.
        Ok(if only_text && found >= SAMPLE_ROWS && time_is_full(&seen, &plan.layout, rows_of(&seen)) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    })?;
    let rows = if only_text { rows } else { found as u64 };
    if rows == 0 {
        return Err(Failure::new("there are no measurements in the files"));
    }
    Ok((plan, Checked { rows, granularity: meter.step() }))
}

fn rows_of(seen: &[Seen]) -> u64 {
    seen.iter().map(Seen::values).max().unwrap_or(0)
}

/// Whether no row lacks its time.
fn time_is_full(seen: &[Seen], layout: &Layout, rows: u64) -> bool {
    seen.iter().any(|s| s.name == layout.time_column && s.values() == rows)
}

fn layout(args: &ImportArgs, schema: Option<&Schema>, names: &[String], seen: &[Seen]) -> Result<Layout, Failure> {
    let has = |name: &str| names.iter().any(|n| n == name);
    let unknown = |what: &str, name: &str| {
        let hint = crate::suggest::hint(name, names.iter().map(String::as_str));
        let all: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let all: Vec<&str> = all.into_iter().collect();
        Failure::new(format!("there is no column '{name}' for the {what}{hint} (columns: {})", all.join(", ")))
    };
    let time_column = match (&args.time, schema) {
        (Some(name), _) if has(name) => name.clone(),
        (Some(name), _) => return Err(unknown("time", name)),
        (None, Some(schema)) if has(&schema.time) => schema.time.clone(),
        _ => guess_time(names, seen)?,
    };
    for name in &args.meta {
        if !has(name) {
            return Err(unknown("meta", name));
        }
        if *name == time_column {
            return Err(Failure::usage(format!("'{name}' cannot be both the time and the meta")));
        }
    }
    let known_meta = schema.and_then(|s| s.meta.clone());
    let meta_columns = match (args.meta.is_empty(), &known_meta) {
        (false, None) if schema.is_some() => {
            return Err(Failure::usage(format!(
                "collection '{}' has no meta field; leave --meta away",
                args.collection
            )));
        }
        (true, Some(meta)) if has(meta) => vec![meta.clone()],
        _ => args.meta.clone(),
    };
    let meta_field = match (known_meta, meta_columns.as_slice()) {
        (_, []) => None,
        (Some(known), _) => Some(known),
        (None, [one]) => Some(one.clone()),
        (None, _) => Some("meta".to_owned()),
    };
    Ok(Layout {
        time_field: schema.map_or_else(|| time_column.clone(), |s| s.time.clone()),
        time_column,
        meta_columns,
        meta_field,
        precision: schema.map_or(Precision::Ms, |s| s.precision),
    })
}

fn guess_time(names: &[String], seen: &[Seen]) -> Result<String, Failure> {
    let by_name = TIME_NAMES.iter().find_map(|t| names.iter().find(|n| n.eq_ignore_ascii_case(t)));
    if let Some(name) = by_name {
        return Ok(name.clone());
    }
    let times: Vec<&Seen> = seen.iter().filter(|s| s.is_time()).collect();
    match times.as_slice() {
        [one] => Ok(one.name.clone()),
        _ => Err(Failure::new(format!(
            "cannot tell which column holds the time; name it with --time (columns: {})",
            names.join(", ")
        ))),
    }
}

/// The types of the columns of CSV files.
fn kinds(
    args: &ImportArgs,
    schema: Option<&Schema>,
    layout: &Layout,
    seen: &[Seen],
) -> Result<Vec<(String, Kind)>, Failure> {
    let known_meta = |name: &str| -> Option<FieldType> {
        let ty = schema?.meta_type.as_ref()?;
        match (layout.meta_columns.len(), ty) {
            (1, ty) => Some(ty.clone()),
            (_, FieldType::Object(members)) => members.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone()),
            _ => None,
        }
    };
    let mut kinds = Vec::new();
    for column in seen {
        let kind = if column.name == layout.time_column {
            Some(column.time_kind()?)
        } else {
            let known = if layout.meta_columns.contains(&column.name) {
                known_meta(&column.name)
            } else {
                schema.and_then(|s| s.field_type(&column.name).cloned())
            };
            column.kind(known.as_ref(), args.text.contains(&column.name))?
        };
        kinds.extend(kind.map(|k| (column.name.clone(), k)));
    }
    Ok(kinds)
}

fn report_columns(plan: &Plan, args: &ImportArgs) {
    let role = match (&plan.layout.meta_field, plan.layout.meta_columns.as_slice()) {
        (None, _) => {
            "no meta (all measurements are one series; --meta names the column that tells series apart)".to_owned()
        }
        (Some(field), [one]) if field == one => format!("meta {one}"),
        (Some(field), columns) => format!("meta {field} from {}", columns.join(", ")),
    };
    eprintln!("{}: time {}, {role}", args.collection, plan.layout.time_column);
    if !plan.kinds.is_empty() {
        let other = |name: &String| *name != plan.layout.time_column && !plan.layout.meta_columns.contains(name);
        let fields: Vec<String> =
            plan.kinds.iter().filter(|(n, _)| other(n)).map(|(n, k)| format!("{n} {}", k.name())).collect();
        eprintln!("fields: {}", fields.join(", "));
    }
}

fn create(database: &Database, args: &ImportArgs, plan: &Plan, step: Option<step::Step>) -> Result<(), Failure> {
    let mut series = serde_json::Map::new();
    series.insert("timeField".to_owned(), plan.layout.time_field.clone().into());
    if let Some(meta) = &plan.layout.meta_field {
        series.insert("metaField".to_owned(), meta.clone().into());
    }
    let granularity = match (&args.granularity, step) {
        (Some(word), _) => word.clone(),
        (None, Some(step)) => {
            eprintln!("granularity {}: a series has a measurement every {} (median)", step.granularity(), step);
            step.granularity().to_owned()
        }
        (None, None) => "seconds".to_owned(),
    };
    series.insert("granularity".to_owned(), granularity.into());
    let mut document = serde_json::Map::new();
    document.insert("create".to_owned(), args.collection.clone().into());
    document.insert("timeseries".to_owned(), series.into());
    if let Some(seconds) = args.expire_after {
        document.insert("expireAfterSeconds".to_owned(), seconds.into());
    }
    database.run_command(&serde_json::Value::Object(document))?;
    Ok(())
}

/// Stores every row; on a failure says how many were stored before it.
fn store(
    database: &Database,
    args: &ImportArgs,
    plan: &Plan,
    bar: &ProgressBar,
    read: &Arc<AtomicU64>,
) -> Result<u64, (u64, Failure)> {
    let collection = database.collection(&args.collection).map_err(|e| (0, e.into()))?;
    let schema = collection.snapshot().map_err(|e| (0, e.into()))?.schema().as_ref().clone();
    let mut stored = 0;
    let outcome = plan.rows(&schema, &mut |rows| {
        let count = collection.insert(&rows.batch).map_err(|e| rows.at(e.index(), &e.to_string()))?;
        stored += count;
        bar.set_position(read.load(Ordering::Relaxed).min(bar.length().unwrap_or(0)));
        Ok(ControlFlow::Continue(()))
    });
    outcome.map(|()| stored).map_err(|failure| (stored, failure))
}
