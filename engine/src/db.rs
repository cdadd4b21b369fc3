//! The public API: a database, how it is opened, and its collections.

mod alter;
mod builder;
mod collection;
mod copies;
mod documents;
mod hand_off;
mod holds;
mod operations;
mod publications;
mod raw;
mod rewrite;
mod views;
mod write_batch;

pub use builder::Builder;
pub use collection::{Collection, LenientReply};
pub use documents::{Documents, Updated};
pub use holds::HoldOptions;
pub use operations::{
    DeleteRequest, FindAndModify, FindAndModifyOptions, FoundAndModified, UpdateRequest, WriteOutcome,
};
pub use raw::value_of_bson;
pub use rewrite::{OnConflict, Rewrite};
pub use views::Replaces;
pub use write_batch::{WriteBatch, WriteBatchError};

use crate::archive::of_collection::check_unshared;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fs::{Fs, RealFs};
use crate::holds::Hold;
use crate::ladder::decay::Pieces;
use crate::ladder::rung_of;
use crate::manifest::{CollectionRecord, Op, SweepRecord};
use crate::metrics::MetricsSnapshot;
use crate::options::{CollectionChange, CollectionOptions, check_collection_name, check_keep};
use crate::snapshot::Snapshot;
use crate::sweep::options::SweepOptions;
use crate::sweep::{Operation, SweepReport};
use ebbtide_buckets::Schema;
use ebbtide_ttl::{
    Bucketing, Clock, Code, Created, EXPIRE_AFTER_SECONDS_MAX, Ladder, Parameters, RuleChange, RuleSelector, RuleSet,
    RuleSpec, SystemClock, Timestamp, Value,
};
use std::path::Path;
use std::sync::Arc;

/// An open database. Clones share it, as do its [`Collection`]s and [`Documents`]; it is closed by [`Database::close`], or when the last
/// of all these is dropped. Snapshots do not keep it open.
///
/// ```
/// use ebbtide::{CollectionOptions, Database};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("db");
/// let db = Database::open(&path)?; // Creates it if it does not exist.
/// db.create_collection("weather", CollectionOptions::new("t").meta_field("station"))?;
/// assert_eq!(db.collections(), ["weather"]);
/// db.close()?;
///
/// let reader = Database::builder(&path).read_only().open()?;
/// assert_eq!(reader.snapshot().collection("weather")?.count()?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Database {
    pub(crate) engine: Arc<Engine>,
}

impl Database {
    /// Confirms to the process that has the database at `path` open for writing that its clock is right. Returns the
    /// machine's time, which is what is confirmed. After a jump of the clock that process sweeps again from its next pass on;
    /// the confirmation is valid up to `ttlClockJumpToleranceSecs` after the confirmed time. Without such a process it only
    /// ends the hold of sweeps after a restore, since opening a database accepts the clock.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`] if there is no database, and errors of the file system.
    pub fn confirm_clock_at(path: impl AsRef<Path>) -> Result<Timestamp> {
        let path = path.as_ref();
        if !Self::exists(path)? {
            return Err(Error::new(Code::NamespaceNotFound, format!("there is no database at {}", path.display())));
        }
        let now = SystemClock::new().now();
        let fs = RealFs::new();
        crate::clock_confirmation::write(&fs, path, now)?;
        crate::copies::CopyHold::end(&fs, path);
        Ok(now)
    }

    /// Whether there is a database at `path`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn exists(path: impl AsRef<Path>) -> Result<bool> {
        let (fs, path) = (RealFs::new(), path.as_ref());
        match fs.exists(path) {
            Ok(true) => Ok(!crate::manifest::numbers(&fs, path)?.is_empty()),
            Ok(false) => Ok(false),
            Err(e) => Err(Error::io("access", path, &e)),
        }
    }

    /// The database's folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.engine.dir
    }

    /// The clock by which expiry is decided.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.engine.clock.clone()
    }

    /// Whether two databases are the same one, or copies of one: what was stored before they were copied is in both.
    #[must_use]
    pub fn is_copy_of(&self, other: &Database) -> bool {
        self.engine.identity == other.engine.identity
    }

    /// Whether the database was opened for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.engine.read_only
    }

    /// Creates a collection. If it exists with the same effective options, nothing changes; a hand-off that [`Database::on_expiry`] has
    /// turned on is no difference.
    ///
    /// # Durability
    /// When this returns, the collection survives a power cut.
    /// # Errors
    /// [`Code::InvalidOptions`], [`Code::BadValue`] or [`Code::InvalidNamespace`] for invalid options or names,
    /// [`Code::NamespaceExists`] if the collection exists with other options.
    pub fn create_collection(&self, name: &str, options: CollectionOptions) -> Result<Collection> {
        let engine = &self.engine;
        engine.check_writable()?;
        check_collection_name(name)?;
        options.validate()?;
        let _maintenance = engine.maintenance.lock();
        let rules = RuleSet::new(options.expire_after_seconds);
        let (existing, id) = {
            let state = engine.state.read();
            if state.views.contains_key(name) {
                let what = format!("'{name}' is a view already: DROP VIEW removes it");
                return Err(Error::new(Code::NamespaceExists, what));
            }
            if state.documents.contains_key(name) {
                let what = format!("'{name}' is an ordinary collection already: drop it, or choose another name");
                return Err(Error::new(Code::NamespaceExists, what));
            }
            (state.collections.get(name).cloned(), state.next_collection)
        };
        if let Some(existing) = existing {
            let present = CollectionOptions {
                expire_after_seconds: existing.rules.collection(),
                ladder: existing.ladder.as_ref().map(|ladder| ladder.definition()),
                ..(*existing.options).clone()
            };
            let others = options.others_than(&present);
            if others.is_empty() {
                return Ok(self.handle(name));
            }
            let others = others.join(", ");
            let what = format!(
                "collection '{name}' exists with other options ({others}): change it with collMod, or choose another name"
            );
            return Err(Error::new(Code::NamespaceExists, what));
        }
        let schema = Schema {
            time: options.time_field.clone(),
            meta: options.meta_field.clone(),
            precision: options.precision,
            meta_type: None,
            fields: Vec::new(),
        };
        let ladder = options.ladder;
        let options = CollectionOptions { expire_after_seconds: None, ladder: None, ..options };
        let name = name.to_owned();
        let record = CollectionRecord { id, name: name.clone(), options, rules, rules_epoch: 1, schema, sealed_seq: 0 };
        let ladder = ladder.map(|ladder| crate::ladder::alter::first_ladder(&record, &ladder)).transpose()?;
        let ops: Vec<Op> = record.put(None).chain(ladder.into_iter().flatten()).collect();
        check_unshared((&engine.state.read(), &engine.dir), &name, &ops)?;
        engine.commit(ops)?;
        Ok(self.handle(&name))
    }

    fn handle(&self, name: &str) -> Collection {
        Collection::new(self.engine.clone(), name)
    }

    /// An existing collection.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`].
    pub fn collection(&self, name: &str) -> Result<Collection> {
        self.engine.state.read().collection(name)?;
        Ok(self.handle(name))
    }

    /// Names of the collections, sorted.
    #[must_use]
    pub fn collections(&self) -> Vec<String> {
        self.engine.state.read().collections.keys().filter(|name| rung_of(name).is_none()).cloned().collect()
    }

    /// Drops a collection and all its measurements.
    ///
    /// # Durability
    /// When this returns, the drop survives a power cut. The files are removed when the last snapshot of them is dropped.
    /// # Errors
    /// [`Code::NamespaceNotFound`].
    pub fn drop_collection(&self, name: &str) -> Result<()> {
        let archiving = self.engine.archiving(name).ok();
        let _moving = archiving.as_ref().map(|archiving| archiving.moving.lock());
        let _maintenance = self.engine.maintenance.lock();
        self.engine.check_writable()?;
        let ids = {
            let state = self.engine.state.read();
            match state.documents(name) {
                Ok(documents) => vec![documents.id],
                Err(_) => {
                    let collection = state.collection(name)?;
                    let rungs = state.rungs_of(collection)?;
                    std::iter::once(collection.id).chain(rungs.iter().map(|rung| rung.id)).collect()
                }
            }
        };
        self.check_unheld(name, "the collection is not dropped")?;
        // Holds that cover nothing end with their collection.
        let at = self.engine.clock.now();
        let lifted = |hold: &Hold| Op::PutHold(Hold { lifted_at: Some(at), ..hold.clone() });
        let mut ops: Vec<Op> = {
            let state = self.engine.state.read();
            state.collections.get(name).map(|c| c.holds.iter().map(lifted).collect()).unwrap_or_default()
        };
        ops.extend(ids.into_iter().map(|id| Op::DropCollection { id }));
        self.engine.commit(ops)?;
        self.engine.cut_log_if_room()
    }

    /// Changes a collection's options, and one of its partial indexes: both or neither.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`], [`Code::InvalidOptions`] if windows would become narrower or a number of seconds is
    /// out of range,
    /// [`Code::IndexNotFound`] and [`Code::AmbiguousIndexKeyPattern`] for the index; for the ladder as for [`Database::set_ladder`].
    pub fn modify_collection(&self, name: &str, change: &CollectionChange, rule: Option<&RuleChange>) -> Result<()> {
        let seconds = [change.expire_after_seconds.flatten(), rule.and_then(|rule| rule.expire_after_seconds)];
        for e in seconds.into_iter().flatten() {
            check_seconds(e, Code::InvalidOptions)?;
        }
        let engine = &self.engine;
        let archiving = engine.archiving(name)?;
        let _moving = archiving.moving.lock();
        let maintenance = engine.maintenance.lock();
        engine.check_writable()?;
        let mut record = engine.state.read().collection(name)?.record();
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
        let options = &mut record.options;
        options.ids = change.ids.unwrap_or(options.ids);
        options.grace_seconds = change.grace_seconds.unwrap_or(options.grace_seconds);
        options.max_bytes = change.max_bytes.unwrap_or(options.max_bytes);
        options.hand_off = change.hand_off.unwrap_or(options.hand_off);
        if let Some(into) = &change.expire_into {
            options.expire_into.clone_from(into);
            if into.is_none() {
                options.keep_seconds = None;
            }
        }
        options.keep_seconds = change.keep_seconds.unwrap_or(options.keep_seconds);
        record.options.validate()?;
        if let Some(e) = change.expire_after_seconds {
            record.rules.change_collection(e);
        }
        check_keep(&record.options, record.rules.collection())?;
        let mut archive = None;
        if let Some(rule) = rule {
            if let Some(e) = rule.expire_after_seconds {
                record.rules.modify(&rule.selector, e)?;
            }
            let index = record.rules.select(&rule.selector)?;
            let collection = engine.state.read().collection(name)?.clone();
            archive = collection.changed_archive((&index.name, index.expire_after_seconds), rule)?;
        }
        let ladder = match &change.ladder {
            Some(ladder) => crate::ladder::alter::change(engine, name, ladder.as_ref(), change.force)?,
            None => Pieces::default(),
        };
        let mut ops = Vec::new();
        let changes = (&record.options, &record.rules) != (&before.0, &before.1) || archive.is_some();
        if changes {
            if record.options.bucketing.span_seconds() != before.0.bucketing.span_seconds() {
                // Existing buckets keep their windows, so open ones are sealed first.
                let flushed = crate::seal::flush(engine, &maintenance, Some(name));
                flushed.inspect_err(|_| ladder.take_back(engine))?;
            }
            record.rules_epoch += 1;
            ops.extend(record.put(Some(&before.0)).chain(archive));
            let unshared = check_unshared((&engine.state.read(), &engine.dir), name, &ops);
            unshared.inspect_err(|_| ladder.take_back(engine))?;
        }
        if ops.is_empty() && ladder.ops.is_empty() {
            return Ok(());
        }
        let rungs: Vec<u64> = ladder.rungs().collect();
        ladder.commit(engine, ops)?;
        crate::ladder::alter::opened(engine, &rungs)
    }

    /// Gives a collection a ladder, changes the one that it has, or removes it: bins of measurements that stay when the
    /// measurements go. [`CollectionSnapshot::rollup`](crate::CollectionSnapshot::rollup) reads them.
    ///
    /// A new rung begins with what is stored, and is filled from the next finer rung; so does a field that the ladder did not have. A
    /// longer life shows again what was not dropped. A rung that is left out goes, which is refused if it has bins that are stored
    /// nowhere else, unless `force`.
    ///
    /// # Durability
    /// When this returns, the change survives a power cut. At no time is there a part of it.
    /// # Errors
    /// [`Code::NamespaceNotFound`]; [`Code::InvalidOptions`] for a bad ladder, naming the rung, and for a removal that loses bins;
    /// [`Code::OutOfDiskSpace`]: nothing was changed.
    pub fn set_ladder(&self, name: &str, ladder: Option<Ladder>, force: bool) -> Result<()> {
        let change = CollectionChange { ladder: Some(ladder), force, ..CollectionChange::default() };
        self.modify_collection(name, &change, None)
    }

    fn put(&self, mut record: CollectionRecord, archives: Vec<Op>) -> Result<()> {
        record.rules_epoch += 1;
        let present = self.engine.state.read().collection(&record.name)?.options.clone();
        self.engine.commit(record.put(Some(&present)).chain(archives).collect())
    }

    /// Creates partial rules: all of them or none. Rules that exist in the same form are left unchanged.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`]; [`Code::InvalidOptions`] for a collection without a meta field, an empty filter and one that
    /// mentions another field; [`Code::CannotCreateIndex`] for an operator that partial filters do not have and a number of seconds
    /// that is out of range; [`Code::BadValue`] for a wrong operand; [`Code::IndexOptionsConflict`],
    /// [`Code::IndexKeySpecsConflict`].
    pub fn create_rules(&self, name: &str, specs: Vec<RuleSpec>) -> Result<Created> {
        for spec in &specs {
            check_seconds(spec.expire_after_seconds(), Code::CannotCreateIndex)?;
        }
        let archiving = self.engine.archiving(name)?;
        let _moving = archiving.moving.lock();
        let _maintenance = self.engine.maintenance.lock();
        self.engine.check_writable()?;
        let mut record = self.engine.state.read().collection(name)?.record();
        if record.options.meta_field.is_none() {
            let what = format!("collection '{name}' has no metaField, so it can have no partial TTL index");
            return Err(Error::new(Code::InvalidOptions, what));
        }
        for spec in specs.iter().filter(|spec| !record.rules.has(spec)) {
            spec.check_filter(record.options.meta_field.as_deref())?;
        }
        let before = record.rules.clone();
        let archives = {
            let state = self.engine.state.read();
            let archives = state.collection(name)?.archives_of_new(&specs)?;
            check_unshared((&state, &self.engine.dir), name, &archives)?;
            archives
        };
        let created = record.rules.create(specs)?;
        if record.rules != before {
            self.put(record, archives)?;
        }
        Ok(created)
    }

    /// Removes a partial rule. Measurements that it hid and that were not dropped yet become visible again.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`], [`Code::IndexNotFound`].
    pub fn drop_rule(&self, name: &str, rule: &str) -> Result<()> {
        self.drop_rules_matching(name, &[RuleSelector::Name(rule.to_owned())])
    }

    /// Removes partial rules by name or key pattern: all of them or none.
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
        let _maintenance = self.engine.maintenance.lock();
        self.engine.check_writable()?;
        let mut record = self.engine.state.read().collection(name)?.record();
        let before = record.rules.clone();
        change(&mut record.rules)?;
        if record.rules == before { Ok(()) } else { self.put(record, Vec::new()) }
    }

    /// A view of the database as it is now, at the clock's instant.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// A view of what is stored now, with expiry decided at another instant, past or future.
    #[must_use]
    pub fn snapshot_at(&self, now: Timestamp) -> Snapshot {
        Snapshot::take(&self.engine.state.read(), now)
    }

    /// Runs one full pass of the sweeper.
    ///
    /// # Durability
    /// When this returns, the drops survive a power cut. Files are removed when the last snapshot of them is dropped.
    /// # Errors
    /// Only errors that disable writes; an error of one rule is logged and counted.
    pub fn sweep(&self) -> Result<SweepReport> {
        self.sweep_with(&SweepOptions::default())
    }

    /// Runs one pass of the sweeper within limits.
    ///
    /// # Errors
    /// As for [`Database::sweep`].
    pub fn sweep_with(&self, options: &SweepOptions) -> Result<SweepReport> {
        crate::sweep::sweep_and_hand_off(&self.engine, options)
    }

    /// Makes this database the one that moves what expires in a collection to its archives. That is needed after its folder was
    /// copied and the copy, or the original, has done so: of the two only one archives, and the other drops nothing.
    ///
    /// # Errors
    /// [`Code::IllegalOperation`] if an archive belongs to another database, or has measurements that this database may store
    /// too: the others are taken over; [`Code::NamespaceNotFound`].
    pub fn adopt_archive(&self, collection: &str) -> Result<()> {
        crate::archive::mover::adopt(&self.engine, collection)
    }

    /// Seals all open buckets.
    ///
    /// # Errors
    /// [`Code::OutOfDiskSpace`] if the disk is full: the buckets stay open, and in the log.
    pub fn flush(&self) -> Result<()> {
        let maintenance = self.engine.maintenance.lock();
        crate::seal::flush(&self.engine, &maintenance, None)
    }

    /// Merges small segments, and those whose rows are interleaved because they were inserted in no order, and rewrites worn ones, in one
    /// collection or in all. Until segments are replaced, the disk needs room for both: for 64 interleaved ones at most.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`]; [`Code::OutOfDiskSpace`], and then what was not replaced is unchanged.
    pub fn compact(&self, name: Option<&str>) -> Result<()> {
        if let Some(name) = name {
            let state = self.engine.state.read();
            if state.documents(name).is_err() {
                state.collection(name)?;
            }
        }
        crate::compact::compact_thoroughly(&self.engine, name)
    }

    /// The value of a sweeper parameter.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if there is no such parameter.
    pub fn parameter(&self, name: &str) -> Result<Value> {
        Ok(self.engine.sweeper.parameters.lock().get(name)?)
    }

    /// Changes a sweeper parameter until the database is closed; returns the previous value.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if there is no such parameter, [`Code::BadValue`] or [`Code::TypeMismatch`] for its value.
    pub fn set_parameter(&self, name: &str, value: &Value) -> Result<Value> {
        Ok(self.engine.sweeper.parameters.lock().set(name, value)?)
    }

    /// All sweeper parameters with their values.
    #[must_use]
    pub fn parameters(&self) -> Vec<(&'static str, Value)> {
        let parameters = self.engine.sweeper.parameters.lock();
        Parameters::names().filter_map(|name| Some((name, parameters.get(name).ok()?))).collect()
    }

    /// Accepts the present wall clock, so that the sweeper continues after a jump.
    pub fn confirm_clock(&self) {
        let engine = &self.engine;
        let place = (engine.fs.as_ref(), engine.dir.as_path());
        engine.sweeper.confirm(place, engine.clock.now(), engine.clock.monotonic());
    }

    /// Why the clock guard would hold a sweep now; `None` if it would not.
    #[must_use]
    pub fn clock_held(&self) -> Option<String> {
        self.engine.sweeper.held(self.engine.clock.now(), self.engine.clock.monotonic()).map(|held| held.to_string())
    }

    /// Counters since the database was opened.
    #[must_use]
    pub fn metrics(&self) -> MetricsSnapshot {
        self.engine.metrics.snapshot(self.engine.state.read().open_files())
    }

    /// Metrics in Prometheus' text format: what `snapshot` stores and what expires next, then the counters since the open
    /// ([`MetricsSnapshot::prometheus`]). A database that is open for reading only has no counters.
    ///
    /// It examines every bucket, as `SHOW TTL` does.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn prometheus(&self, snapshot: &Snapshot) -> Result<String> {
        let mut text = crate::metrics::prometheus::gauges(&self.engine, snapshot)?;
        if self.engine.log.lock().writer.is_some() {
            text.push_str(&self.metrics().prometheus());
        }
        Ok(text)
    }

    /// Whether what is in memory takes all of its space ([`Settings::memtable_bytes_max`](crate::Settings::memtable_bytes_max)): the next write waits until it is
    /// sealed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.engine.is_full()
    }

    /// Waits until what is in memory is sealed if it takes all of its space, as a write does; seals it if nobody else does.
    ///
    /// # Errors
    /// As for [`Database::flush`].
    pub fn make_room(&self) -> Result<()> {
        self.engine.make_room()
    }

    /// Why writes fail, if they do: after a write of which it is not known what of it is on disk, all do; what is stored can still
    /// be read, and opening the database again finds out. Or [`Code::OutOfDiskSpace`], for a minute after a write that failed so
    /// unless one succeeds.
    #[must_use]
    pub fn write_failure(&self) -> Option<Error> {
        self.engine.write_failure()
    }

    /// The pass of the sweeper that is running, if one is.
    #[must_use]
    pub fn current_operation(&self) -> Option<Operation> {
        self.engine.sweeper.running()
    }

    /// The history of drops, oldest first; the newest thousand are kept.
    #[must_use]
    pub fn sweeps(&self) -> Vec<SweepRecord> {
        self.engine.state.read().sweeps.iter().cloned().collect()
    }

    /// The drops after the first `seen` since the open, oldest first, and how many there are now: pass that number the next time.
    /// Of more than a thousand the newest are returned.
    #[must_use]
    pub fn sweeps_after(&self, seen: u64) -> (Vec<SweepRecord>, u64) {
        let state = self.engine.state.read();
        let new = usize::try_from(state.sweeps_made.saturating_sub(seen)).unwrap_or(usize::MAX);
        let known = state.sweeps.len();
        (state.sweeps.iter().skip(known - new.min(known)).cloned().collect(), state.sweeps_made)
    }

    /// Reads every file and checks every checksum and count; the report lists what is wrong.
    ///
    /// # Errors
    /// Only if the folder cannot be read at all.
    pub fn verify(&self) -> Result<crate::verify::VerifyReport> {
        crate::verify::verify(&self.engine)
    }

    /// Seals all open buckets, disables writes and releases the folder. Snapshots and other clones can still be read. A marker
    /// in the folder records the lengths of the log and the manifest, so that later damage to their ends is not taken for a
    /// power cut. Dropping the last clone writes the marker too, but seals nothing.
    ///
    /// # Errors
    /// Errors of sealing; the database is closed all the same, and the log keeps what could not be sealed. [`Code::NotWritable`] if writes
    /// were disabled before everything was synced that was acknowledged with [`Durability::Interval`](crate::Durability::Interval).
    pub fn close(self) -> Result<()> {
        self.engine.check_process()?;
        // Held to the end, so that nothing is written in the background once another process may open the folder.
        let maintenance = self.engine.maintenance.lock();
        let writable = self.engine.check_writable().is_ok();
        let outcome = if writable { crate::seal::flush(&self.engine, &maintenance, None) } else { Ok(()) };
        outcome.and(self.engine.close())
    }

    /// Releases the folder without any clean-up, as a crash would. For tests.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.engine.release();
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
