//! The user's doors: a database, its builder, and a collection in it.

use crate::core::{Core, out_of_range};
use crate::delete::{FilterPredicate, RowPredicate};
use crate::error::{Error, Result};
use crate::fs::{Fs, RealFs};
use crate::manifest::{CollectionRecord, Op, SweepRecord};
use crate::metrics::MetricsSnapshot;
use crate::options::{CollectionChange, CollectionOptions, check_collection_name};
use crate::repair::{RepairMode, RepairReport};
use crate::settings::Settings;
use crate::snapshot::{CollectionSnapshot, Snapshot};
use crate::sweep::{Operation, SweepReport};
use arrow::array::RecordBatch;
use ebbtide_buckets::{Accepted, Schema, batch_from_arrow, batch_from_documents};
use ebbtide_ttl::{
    Bucketing, Clock, Code, Created, EXPIRE_AFTER_SECONDS_MAX, Filter, OutOfRange, Parameters, RuleSelector, RuleSet,
    RuleSpec, SystemClock, Timestamp, Value, in_range,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open database. Clones share it; it is closed when [`Database::close`] is called or the last clone goes.
#[derive(Debug, Clone)]
pub struct Database {
    pub(crate) core: Arc<Core>,
}

/// How a database is opened.
#[derive(Debug)]
pub struct Builder {
    path: PathBuf,
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    read_only: bool,
}

impl Builder {
    /// Uses another disk than the operating system's.
    #[must_use]
    pub fn fs(mut self, fs: Arc<dyn Fs>) -> Self {
        self.fs = fs;
        self
    }

    /// Uses another clock than the machine's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Uses other settings than the defaults.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Opens for reading only: beside a writer, as of this moment. Nothing is swept, nothing is written.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Opens the database; for writing it is made if there is none.
    ///
    /// # Errors
    /// [`Code::LockBusy`] naming the holder if another process writes to it, [`Code::DataCorruptionDetected`] with path
    /// and offset if it is damaged, [`Code::IncompatibleFormat`] if another version made it,
    /// [`Code::NamespaceNotFound`] if it is opened for reading and does not exist, and what the file system says.
    pub fn open(self) -> Result<Database> {
        let core = crate::open::open(self.fs, self.clock, self.path, self.settings, self.read_only)?;
        Ok(Database { core: Arc::new(core) })
    }

    /// Looks through the database for damage, and with [`RepairMode::Apply`] sets aside what is damaged, so that the
    /// database opens again without it. Nothing is deleted; the report says what is lost.
    ///
    /// # Errors
    /// [`Code::LockBusy`] if it is open for writing; [`Code::DataCorruptionDetected`] if no manifest can be read: then
    /// there is nothing to go by, and nothing was done; [`Code::IncompatibleFormat`] if another version made it;
    /// [`Code::NamespaceNotFound`] if it does not exist, and what the file system says.
    pub fn repair(self, mode: RepairMode) -> Result<RepairReport> {
        crate::repair::repair(&self.fs, self.clock.as_ref(), &self.path, mode)
    }
}

/// Bounds of a pass of the sweeper.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepOptions {
    /// Stops after so many sub-passes, even if more is due.
    pub max_sub_passes: Option<u64>,
}

/// A change of one partial index's `expireAfterSeconds`.
#[derive(Debug, Clone)]
pub struct RuleChange {
    /// Which index.
    pub selector: RuleSelector,
    /// Its new number of seconds.
    pub expire_after_seconds: i64,
}

impl Database {
    /// Opens the database at `path` for writing, with every default; it is made if there is none.
    ///
    /// # Errors
    /// As for [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// Starts to describe how to open the database at `path`.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder {
            path: path.as_ref().to_owned(),
            fs: Arc::new(RealFs::new()),
            clock: Arc::new(SystemClock::new()),
            settings: Settings::default(),
            read_only: false,
        }
    }

    /// Repairs the database at `path`, which must not be open. See [`Builder::repair`].
    ///
    /// # Errors
    /// As for [`Builder::repair`].
    pub fn repair(path: impl AsRef<Path>, mode: RepairMode) -> Result<RepairReport> {
        Self::builder(path).repair(mode)
    }

    /// Leaves word for the process that has the database at `path` open for writing that its clock is right, and
    /// returns the time of the machine that this confirms. Its sweeps go on after a jump of the clock, at the next
    /// pass; the word holds up to `ttlClockJumpToleranceSecs` beyond that time. Without such a process it does
    /// nothing: an open takes the clock as it is.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`] if there is no database, and what the file system says.
    pub fn confirm_clock_at(path: impl AsRef<Path>) -> Result<Timestamp> {
        let path = path.as_ref();
        if !Self::exists(path)? {
            return Err(Error::new(Code::NamespaceNotFound, format!("there is no database at {}", path.display())));
        }
        let now = SystemClock::new().now();
        crate::confirmation::leave(&RealFs::new(), path, now)?;
        Ok(now)
    }

    /// Whether there is a database at `path`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn exists(path: impl AsRef<Path>) -> Result<bool> {
        let (fs, path) = (RealFs::new(), path.as_ref());
        match fs.exists(path) {
            Ok(true) => Ok(!crate::manifest::numbers(&fs, path)?.is_empty()),
            Ok(false) => Ok(false),
            Err(e) => Err(Error::io("look at", path, &e)),
        }
    }

    /// The folder that the database lies in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.core.dir
    }

    /// The clock that expiry goes by.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.core.clock.clone()
    }

    /// Whether it was opened for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.core.read_only
    }

    /// Makes a collection. One that exists with the same effective options is left as it is.
    ///
    /// # Durability
    /// When this returns, the collection survives a power cut.
    /// # Errors
    /// [`Code::InvalidOptions`], [`Code::BadValue`] or [`Code::InvalidNamespace`] for what is not allowed,
    /// [`Code::NamespaceExists`] if it exists with other options.
    pub fn create_collection(&self, name: &str, options: CollectionOptions) -> Result<Collection> {
        let core = &self.core;
        core.check_writable()?;
        check_collection_name(name)?;
        options.validate()?;
        let _maintenance = core.maintenance.lock();
        let rules = RuleSet::new(options.expire_after_seconds);
        let (existing, id) = {
            let state = core.state.read();
            (state.collections.get(name).cloned(), state.next_collection)
        };
        if let Some(existing) = existing {
            let same = CollectionOptions { expire_after_seconds: None, ..options } == *existing.options
                && existing.rules.collection() == rules.collection();
            if same {
                return Ok(self.handle(name));
            }
            let what = format!("collection '{name}' exists with other options: drop it, or change it with collMod");
            return Err(Error::new(Code::NamespaceExists, what));
        }
        let schema = Schema {
            time: options.time_field.clone(),
            meta: options.meta_field.clone(),
            precision: options.precision,
            meta_type: None,
            fields: Vec::new(),
        };
        let options = CollectionOptions { expire_after_seconds: None, ..options };
        let name = name.to_owned();
        let record = CollectionRecord { id, name: name.clone(), options, rules, rules_epoch: 1, schema, sealed_seq: 0 };
        core.commit(vec![Op::PutCollection(record)])?;
        Ok(self.handle(&name))
    }

    fn handle(&self, name: &str) -> Collection {
        Collection { core: self.core.clone(), name: name.into() }
    }

    /// An existing collection.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`].
    pub fn collection(&self, name: &str) -> Result<Collection> {
        self.core.state.read().collection(name)?;
        Ok(self.handle(name))
    }

    /// Names of the collections, sorted.
    #[must_use]
    pub fn collections(&self) -> Vec<String> {
        self.core.state.read().collections.keys().cloned().collect()
    }

    /// Drops a collection with all that is in it.
    ///
    /// # Durability
    /// When this returns, the collection does not come back. Its files leave when the last snapshot of it is gone.
    /// # Errors
    /// [`Code::NamespaceNotFound`].
    pub fn drop_collection(&self, name: &str) -> Result<()> {
        let _maintenance = self.core.maintenance.lock();
        self.core.check_writable()?;
        let id = self.core.state.read().collection(name)?.id;
        self.core.commit(vec![Op::DropCollection { id }])?;
        self.core.cut_log_if_room()
    }

    /// Changes a collection's options, and the seconds of one of its partial indexes: all of it or nothing.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`], [`Code::InvalidOptions`] if windows would become narrower or a number of seconds is
    /// out of range,
    /// [`Code::IndexNotFound`] and [`Code::AmbiguousIndexKeyPattern`] for the index.
    pub fn modify_collection(&self, name: &str, change: &CollectionChange, rule: Option<&RuleChange>) -> Result<()> {
        let seconds = [change.expire_after_seconds.flatten(), rule.map(|rule| rule.expire_after_seconds)];
        for e in seconds.into_iter().flatten() {
            check_seconds(e, Code::InvalidOptions)?;
        }
        let core = &self.core;
        let maintenance = core.maintenance.lock();
        core.check_writable()?;
        let mut record = core.state.read().collection(name)?.record();
        let before = (record.options.clone(), record.rules.clone());
        if let Some(bucketing) = change.bucketing {
            check_growth(record.options.bucketing, bucketing)?;
            record.options.bucketing = bucketing;
        }
        if let Some(expiry) = change.expiry {
            record.options.expiry = expiry;
        }
        if let Some(out_of_range) = change.out_of_range {
            record.options.out_of_range = out_of_range;
        }
        record.options.validate()?;
        if let Some(e) = change.expire_after_seconds {
            record.rules.change_collection(e);
        }
        if let Some(rule) = rule {
            record.rules.modify(&rule.selector, rule.expire_after_seconds)?;
        }
        if (&record.options, &record.rules) == (&before.0, &before.1) {
            return Ok(());
        }
        if record.options.bucketing.span_seconds() != before.0.bucketing.span_seconds() {
            // Old buckets keep their windows: open ones are sealed with them.
            crate::seal::flush(core, &maintenance, Some(name))?;
        }
        self.put(record)
    }

    fn put(&self, mut record: CollectionRecord) -> Result<()> {
        record.rules_epoch += 1;
        self.core.commit(vec![Op::PutCollection(record)])
    }

    /// Makes partial rules: all of them or none. What exists in the same form is left as it is.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`], [`Code::InvalidOptions`], [`Code::IndexOptionsConflict`],
    /// [`Code::IndexKeySpecsConflict`].
    pub fn create_rules(&self, name: &str, specs: Vec<RuleSpec>) -> Result<Created> {
        for spec in &specs {
            check_seconds(spec.expire_after_seconds(), Code::CannotCreateIndex)?;
        }
        let _maintenance = self.core.maintenance.lock();
        self.core.check_writable()?;
        let mut record = self.core.state.read().collection(name)?.record();
        if record.options.meta_field.is_none() {
            let what = format!("collection '{name}' has no metaField, so it can have no partial TTL index");
            return Err(Error::new(Code::InvalidOptions, what));
        }
        let before = record.rules.clone();
        let created = record.rules.create(specs)?;
        if record.rules != before {
            self.put(record)?;
        }
        Ok(created)
    }

    /// Removes a partial rule: what it hid and is not dropped is visible again.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`], [`Code::IndexNotFound`].
    pub fn drop_rule(&self, name: &str, rule: &str) -> Result<()> {
        self.drop_rules_matching(name, &[RuleSelector::Name(rule.to_owned())])
    }

    /// Removes partial rules by name or key pattern: all that are named or none.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`], [`Code::IndexNotFound`], [`Code::AmbiguousIndexKeyPattern`].
    pub fn drop_rules_matching(&self, name: &str, selectors: &[RuleSelector]) -> Result<()> {
        self.change_rules(name, |rules| {
            rules.drop_rules(selectors)?;
            Ok(())
        })
    }

    /// Removes every partial rule of a collection.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`].
    pub fn drop_rules(&self, name: &str) -> Result<()> {
        self.change_rules(name, |rules| {
            rules.drop_all();
            Ok(())
        })
    }

    fn change_rules(&self, name: &str, change: impl FnOnce(&mut RuleSet) -> Result<()>) -> Result<()> {
        let _maintenance = self.core.maintenance.lock();
        self.core.check_writable()?;
        let mut record = self.core.state.read().collection(name)?.record();
        let before = record.rules.clone();
        change(&mut record.rules)?;
        if record.rules == before { Ok(()) } else { self.put(record) }
    }

    /// A view of everything as it is now, at the clock's instant.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take_now(&self.core)
    }

    /// A view of everything that is stored now, as it looks at another instant, past or future.
    #[must_use]
    pub fn snapshot_at(&self, now: Timestamp) -> Snapshot {
        Snapshot::take(&self.core, now)
    }

    /// Runs one full pass of the sweeper.
    ///
    /// # Durability
    /// When this returns, what was dropped does not come back. Files leave when the last snapshot of them is gone.
    /// # Errors
    /// Only what stops the whole database; an error of one rule is logged and counted.
    pub fn sweep(&self) -> Result<SweepReport> {
        self.sweep_with(&SweepOptions::default())
    }

    /// Runs one pass of the sweeper within bounds.
    ///
    /// # Errors
    /// As for [`Database::sweep`].
    pub fn sweep_with(&self, options: &SweepOptions) -> Result<SweepReport> {
        crate::sweep::sweep(&self.core, options.max_sub_passes)
    }

    /// Seals all open buckets.
    ///
    /// # Errors
    /// [`Code::OutOfDiskSpace`] if there is no room: the buckets stay open, and in the log.
    pub fn flush(&self) -> Result<()> {
        let maintenance = self.core.maintenance.lock();
        crate::seal::flush(&self.core, &maintenance, None)
    }

    /// Merges small segments and rewrites worn ones, in one collection or in all.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`]; [`Code::OutOfDiskSpace`]: the segments stay as they are.
    pub fn compact(&self, name: Option<&str>) -> Result<()> {
        let maintenance = self.core.maintenance.lock();
        if let Some(name) = name {
            self.core.state.read().collection(name)?;
        }
        crate::seal::flush(&self.core, &maintenance, name)?;
        crate::seal::compact(&self.core, &maintenance, name, true)
    }

    /// The value of a sweeper parameter.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if there is no such parameter.
    pub fn parameter(&self, name: &str) -> Result<Value> {
        Ok(self.core.sweeper.parameters.lock().get(name)?)
    }

    /// Changes a sweeper parameter until the database is closed; returns what it was.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if there is no such parameter, [`Code::BadValue`] or [`Code::TypeMismatch`] for its value.
    pub fn set_parameter(&self, name: &str, value: &Value) -> Result<Value> {
        Ok(self.core.sweeper.parameters.lock().set(name, value)?)
    }

    /// All sweeper parameters with their values.
    #[must_use]
    pub fn parameters(&self) -> Vec<(&'static str, Value)> {
        let parameters = self.core.sweeper.parameters.lock();
        Parameters::names().filter_map(|name| Some((name, parameters.get(name).ok()?))).collect()
    }

    /// Accepts the wall clock as it is: the sweeper goes on after a jump.
    pub fn confirm_clock(&self) {
        self.core.sweeper.confirm(self.core.clock.now(), self.core.clock.monotonic());
    }

    /// Why a sweep would drop nothing now, if the clock guard holds it.
    #[must_use]
    pub fn clock_held(&self) -> Option<String> {
        self.core.sweeper.held(self.core.clock.now(), self.core.clock.monotonic()).map(|held| held.to_string())
    }

    /// Counters since the open.
    #[must_use]
    pub fn metrics(&self) -> MetricsSnapshot {
        self.core.metrics.snapshot(self.core.state.read().open_files())
    }

    /// What is stored and what goes next, as `snapshot` shows it, in the text format that Prometheus scrapes; behind it
    /// the counters since the open ([`MetricsSnapshot::prometheus`]), but not for a database that is open for reading only, which
    /// counts nothing.
    ///
    /// It looks at every bucket, as `SHOW TTL` does.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn prometheus(&self, snapshot: &Snapshot) -> Result<String> {
        let mut text = crate::metrics::prometheus::gauges(&self.core, snapshot)?;
        if self.core.log.lock().writer.is_some() {
            text.push_str(&self.metrics().prometheus());
        }
        Ok(text)
    }

    /// The pass of the sweeper that is running, if one is.
    #[must_use]
    pub fn current_operation(&self) -> Option<Operation> {
        self.core.sweeper.running()
    }

    /// The history of drops, oldest first; the newest thousand are kept.
    #[must_use]
    pub fn sweeps(&self) -> Vec<SweepRecord> {
        self.core.state.read().sweeps.iter().cloned().collect()
    }

    /// Runs one command document in the shape that MongoDB users know, and returns its reply.
    ///
    /// # Errors
    /// With MongoDB's code and code name for the same mistake.
    pub fn run_command(&self, command: &serde_json::Value) -> Result<serde_json::Value> {
        crate::commands::run(self, command)
    }

    /// Reads every file and checks every checksum and count; returns what is wrong, nothing if all is well.
    ///
    /// # Errors
    /// Only if the folder cannot be read at all.
    pub fn verify(&self) -> Result<crate::verify::VerifyReport> {
        crate::verify::verify(&self.core)
    }

    /// Seals what is open and gives the folder free. Other clones can read on from what they hold. A mark in the folder says
    /// that it was closed and how long its log and manifest are: damage to their ends is not taken for a power cut then. The
    /// last handle that goes without this leaves it too, but seals nothing.
    ///
    /// # Errors
    /// What sealing meets; the database is closed all the same, and the log keeps what could not be sealed.
    pub fn close(self) -> Result<()> {
        // Held to the end: nothing may be written in the background into a folder that somebody else opens by then.
        let maintenance = self.core.maintenance.lock();
        let writable = self.core.check_writable().is_ok();
        let outcome = if writable { crate::seal::flush(&self.core, &maintenance, None) } else { Ok(()) };
        outcome.and(self.core.close())
    }

    /// Gives the folder free without any clean-up, as a crash would. For tests.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.core.shut();
    }
}

fn check_seconds(e: i64, code: Code) -> Result<()> {
    if (0..=EXPIRE_AFTER_SECONDS_MAX).contains(&e) {
        return Ok(());
    }
    Err(Error::new(code, format!("expireAfterSeconds is {e}: it must be 0 to {EXPIRE_AFTER_SECONDS_MAX}")))
}

fn check_growth(from: Bucketing, to: Bucketing) -> Result<()> {
    if to.span_seconds() >= from.span_seconds() {
        return Ok(());
    }
    let what =
        format!("a span may only grow: it is {} s and cannot become {} s", from.span_seconds(), to.span_seconds());
    Err(Error::new(Code::InvalidOptions, what))
}

/// A collection of an open database.
#[derive(Debug, Clone)]
pub struct Collection {
    core: Arc<Core>,
    name: Arc<str>,
}

/// Documents that cannot be stored behind those before them, found in one go.
fn bad_documents(documents: &[Value], schema: &Schema) -> Result<Vec<(usize, Error)>> {
    let mut schema = schema.clone();
    let mut bad = Vec::new();
    let mut at = 0;
    while let Err(error) = batch_from_documents(&documents[at..], &schema) {
        let index = at + error.index;
        schema = batch_from_documents(&documents[at..index], &schema)?.schema;
        bad.push((index, Error::from(error).renumbered(index)));
        at = index + 1;
    }
    Ok(bad)
}

/// Documents whose time `outOfRange: reject` refuses.
fn out_of_range_documents(documents: &[Value], schema: &Schema) -> BTreeMap<usize, Error> {
    let precision = schema.precision;
    let refused = |(index, document): (usize, &Value)| match document.get(&schema.time) {
        Some(Value::Date(t)) if !in_range(t.to_units_saturating(precision), precision) => {
            Some((index, out_of_range(index, Timestamp::from_units(t.to_units(precision)?, precision))))
        }
        _ => None,
    };
    documents.iter().enumerate().filter_map(refused).collect()
}

/// What a lenient insert did.
#[derive(Debug, Clone, Default)]
pub struct LenientReply {
    /// Measurements stored.
    pub stored: u64,
    /// Those that were not, by index, with the reason.
    pub errors: Vec<(usize, Error)>,
}

impl Collection {
    /// The collection's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A view of the collection as it is now, at the clock's instant.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`] if it was dropped.
    pub fn snapshot(&self) -> Result<CollectionSnapshot> {
        Snapshot::take_now(&self.core).collection(&self.name)
    }

    /// Stores a batch of measurements, all or none. This is the fast door: columns stay columns.
    ///
    /// # Durability
    /// When this returns, the batch survives a power cut (with [`crate::Durability::Sync`]).
    /// # Errors
    /// [`Code::BadValue`] for a measurement without a time, [`Code::TypeMismatch`] for a field of another type, both
    /// with [`Error::index`]; [`Code::OutOfDiskSpace`]: nothing was stored; [`Code::NotWritable`]: writing has stopped,
    /// and whether the batch is stored shows when the database is opened again.
    pub fn insert(&self, batch: &RecordBatch) -> Result<u64> {
        self.insert_rows(batch.num_rows(), &|schema, rows| Ok(batch_from_arrow(&batch.slice(0, rows), schema)?))
    }

    /// Stores documents, all or none.
    ///
    /// # Errors
    /// As for [`Collection::insert`].
    pub fn insert_documents(&self, documents: &[Value]) -> Result<u64> {
        self.insert_rows(documents.len(), &|schema, rows| Ok(batch_from_documents(&documents[..rows], schema)?))
    }

    /// Stores the first `rows` measurements that `build` makes a batch of.
    fn insert_rows(&self, rows: usize, build: &dyn Fn(&Schema, usize) -> Result<Accepted>) -> Result<u64> {
        let stored = self.core.insert(&self.name, &|schema| build(schema, rows));
        stored.map_err(|error| self.first_fault(error, build))
    }

    /// The error about the first bad measurement. Checks follow each other, each over all measurements, so one before the
    /// one that failed may fail a later check.
    fn first_fault(&self, mut error: Error, build: &dyn Fn(&Schema, usize) -> Result<Accepted>) -> Error {
        while let Some(before) = error.index().filter(|index| *index > 0) {
            match self.core.check(&self.name, &|schema| build(schema, before)) {
                Err(earlier) if earlier.index().is_some_and(|index| index < before) => error = earlier,
                _ => break,
            }
        }
        error
    }

    /// The first of `documents` that [`Collection::insert_documents`] would refuse, with the reason; else `error`, which is
    /// about one behind them.
    pub(crate) fn fault_before(&self, documents: &[Value], error: Error) -> Error {
        self.first_fault(error.with_index(documents.len()), &|schema, rows| {
            Ok(batch_from_documents(&documents[..rows], schema)?)
        })
    }

    /// Stores anything that serialises to documents, all or none. Times are written with [`crate::json::date`].
    ///
    /// # Errors
    /// As for [`Collection::insert`].
    pub fn insert_serialized<T: serde::Serialize>(&self, items: &[T]) -> Result<u64> {
        let documents = items.iter().map(crate::json::to_value).collect::<Result<Vec<_>>>()?;
        self.insert_documents(&documents)
    }

    /// Stores the documents that can be stored, in one atomic batch, and says why the others cannot.
    ///
    /// # Errors
    /// Only what concerns the insert as a whole, as for [`Collection::insert`]; nothing is stored then.
    pub fn insert_documents_lenient(&self, documents: &[Value]) -> Result<LenientReply> {
        let collection = self.snapshot()?;
        let mut refused: BTreeMap<usize, Error> = match collection.options().out_of_range {
            OutOfRange::Reject => out_of_range_documents(documents, collection.schema()),
            _ => BTreeMap::new(),
        };
        // Seldom more than once: what only all documents together show, or what is stored. A refused document gives no
        // field its type, so each round judges the others anew.
        loop {
            let mut errors = refused.clone();
            let left: Vec<usize> = (0..documents.len()).filter(|index| !refused.contains_key(index)).collect();
            let all: Vec<Value> = left.iter().map(|i| documents[*i].clone()).collect();
            for (at, error) in bad_documents(&all, collection.schema())? {
                errors.insert(left[at], error.renumbered(left[at]));
            }
            let left: Vec<usize> = left.into_iter().filter(|index| !errors.contains_key(index)).collect();
            let kept: Vec<Value> = left.iter().map(|i| documents[*i].clone()).collect();
            match self.insert_documents(&kept) {
                Ok(stored) => return Ok(LenientReply { stored, errors: errors.into_iter().collect() }),
                Err(error) => match error.index().and_then(|at| left.get(at)) {
                    Some(index) => {
                        refused.insert(*index, error.renumbered(*index));
                    }
                    None => return Err(error),
                },
            }
        }
    }

    /// Deletes every stored measurement that matches, hidden ones too; returns how many of them were visible.
    ///
    /// # Durability
    /// When this returns, they do not come back.
    /// # Errors
    /// [`Code::NamespaceNotFound`]; damage in a segment: nothing was deleted.
    pub fn delete(&self, filter: &Filter) -> Result<u64> {
        let time_field = self.snapshot()?.options().time_field.clone();
        self.delete_where(&FilterPredicate { filter, time_field: &time_field })
    }

    /// Like [`Collection::delete`], with any predicate over rows.
    ///
    /// # Errors
    /// As for [`Collection::delete`], and what the predicate says.
    pub fn delete_where(&self, predicate: &dyn RowPredicate) -> Result<u64> {
        crate::delete::delete(&self.core, &self.name, predicate)
    }
}
