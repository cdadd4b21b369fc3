//! Runs a script on a disk, simulated or real, and keeps the model of what may be stored beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type, TimestampMillisecondType};
use ebbtide::fs::Fs;
use ebbtide::fs::sim::{Random, SimFs};
use ebbtide::{
    BegunRequest, CollectionChange, CollectionOptions, CollectionSnapshot, Database, DefaultTtl, DocumentsOptions,
    DocumentsSnapshot, Error, ErrorKind, Replaces, RuleChange, ScanRequest, Settings,
};
use ebbtide_ttl::{Filter, RuleSelector, RuleSpec, Timestamp, Value, VirtualClock};

use crate::documents::{self, Action, Beside, Command, Kept, NewDocument, scanned};
use crate::expect::{Expected, ExpectedCollection, Found, FoundCollection, Row, Rules, There};
use crate::kept::{ExpectedDocuments, FoundDocuments};
use crate::script::{Fields, NOON, Step, rows};

/// A rule of this size in each edit fills a manifest file within a few steps.
pub(crate) const WIDE_BYTES: usize = 200_000;

/// Places in a text at which long texts begin.
const LONG_TEXTS: usize = 1 << 18;

pub(crate) fn text_of(id: i64) -> String {
    format!("text {id}")
}

/// A piece of a text that does not compress, another one for each id.
pub(crate) fn long_of(id: i64) -> String {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut random = Random::new(1);
        (0..LONG_TEXTS / 16 + 40).map(|_| format!("{:016x}", random.next_u64())).collect()
    });
    let at = usize::try_from(id).unwrap_or(0) * 641 % LONG_TEXTS;
    TEXT[at..at + 640].to_owned()
}

pub(crate) fn document(row: &Row, fields: Fields) -> Value {
    let mut members = vec![
        ("t".into(), Value::Date(Timestamp::from_millis(row.t))),
        ("m".into(), Value::String(row.meta.clone())),
        ("id".into(), Value::Int(row.id)),
        ("x".into(), Value::Double(row.id as f64 + 0.5)),
    ];
    match fields {
        Fields::Plain => {}
        Fields::Extra => members.push(("extra".into(), Value::String(text_of(row.id)))),
        Fields::Long => members.push(("long".into(), Value::String(long_of(row.id)))),
        Fields::Digits(digits) => members.push(("d".into(), Value::Double(row.id as f64 + 0.5_f64.powi(digits)))),
    }
    Value::Object(members)
}

pub(crate) fn documents(rows: &[Row], fields: Fields) -> Vec<Value> {
    rows.iter().map(|row| document(row, fields)).collect()
}

/// The ids in a scan, and what is wrong with their rows.
pub(crate) fn scan(
    snapshot: &CollectionSnapshot,
    hidden: bool,
    expected: Option<&ExpectedCollection>,
) -> Result<(Vec<i64>, Vec<String>), Error> {
    let (mut ids, mut wrong) = (Vec::new(), Vec::new());
    let request = ScanRequest { include_hidden: hidden, ..ScanRequest::default() };
    for unit in snapshot.scan(&request)? {
        for batch in unit.read()? {
            read_batch(&batch?, expected, &mut ids, &mut wrong);
        }
    }
    ids.sort_unstable();
    Ok((ids, wrong))
}

pub(crate) fn read_batch(
    batch: &RecordBatch,
    expected: Option<&ExpectedCollection>,
    ids: &mut Vec<i64>,
    wrong: &mut Vec<String>,
) {
    let column = |name: &str| batch.column_by_name(name);
    let (Some(id), Some(t), Some(m)) = (column("id"), column("t"), column("m")) else {
        if batch.num_rows() > 0 {
            wrong.push(format!("columns are missing: {:?}", batch.schema()));
        }
        return;
    };
    let (id, t) = (id.as_primitive::<Int64Type>(), t.as_primitive::<TimestampMillisecondType>());
    let m = m.as_string_view();
    // The value is in one of the two, and in no row in both.
    let in_field = |name: &str, row: usize| {
        let column = column(name)?.as_primitive::<Float64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    for row in 0..batch.num_rows() {
        let at = id.value(row);
        let known = expected.and_then(|expected| expected.rows.get(&at));
        let fits = known.is_none_or(|known| known.t == t.value(row) && known.meta == m.value(row));
        let (x, y) = (in_field("x", row), in_field("y", row));
        let is_right = x.xor(y) == Some(at as f64 + 0.5);
        if !fits || id.is_null(row) || !is_right || m.is_null(row) {
            wrong.push(format!("row {at}: t={} m={} x={x:?} y={y:?}, not {known:?}", t.value(row), m.value(row)));
        }
        for (name, text) in [("extra", text_of as fn(i64) -> String), ("long", long_of)] {
            if let Some(found) = column(name).map(|column| column.as_string_view())
                && !found.is_null(row)
                && found.value(row) != text(at)
            {
                wrong.push(format!("row {at}: {name}={}", found.value(row)));
            }
        }
        ids.push(at);
    }
}

/// The ids of the stored rows that have a field.
fn ids_with(snapshot: &CollectionSnapshot, field: &str) -> Result<Vec<i64>, Error> {
    let mut ids = Vec::new();
    if snapshot.schema().field_type(field).is_none() {
        return Ok(ids);
    }
    let projection = Some(vec!["id".to_owned(), field.to_owned()]);
    for unit in snapshot.scan(&ScanRequest { projection, include_hidden: true, ..ScanRequest::default() })? {
        for batch in unit.read()? {
            let batch = batch?;
            let (Some(id), Some(field)) = (batch.column_by_name("id"), batch.column_by_name(field)) else { continue };
            let id = id.as_primitive::<Int64Type>();
            ids.extend((0..batch.num_rows()).filter(|row| field.is_valid(*row)).map(|row| id.value(row)));
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

pub(crate) fn find(db: &Database, expected: &Expected) -> Result<Found, Error> {
    let snapshot = db.snapshot();
    let views = snapshot.views().iter().map(|(name, text)| (name.clone(), text.clone())).collect();
    let mut found = Found { views, ..Found::default() };
    for name in snapshot.collections() {
        let collection = snapshot.collection(&name)?;
        let mut rules = Rules { own: collection.rules().collection(), ..Rules::default() };
        for view in collection.rules().iter() {
            if let (Some(name), Some(filter)) = (view.name, view.filter) {
                // The only filters that scripts make.
                let metas =
                    ["a", "b", "d"].into_iter().filter(|meta| filter.matches_meta(&Value::String((*meta).into())));
                let meta = metas.collect::<Vec<_>>().join("+");
                rules.partial.insert(name.to_owned(), (meta, view.expire_after_seconds));
            }
        }
        let extra = collection.schema().fields.iter().any(|(name, _)| name == "extra");
        let known = expected.collections.get(&name);
        let (in_y, with_extra) = (ids_with(&collection, "y")?, ids_with(&collection, "extra")?);
        let (visible, mut wrong) = scan(&collection, false, known)?;
        let (stored, more) = scan(&collection, true, known)?;
        wrong.extend(more);
        found.collections.insert(name, FoundCollection { rules, extra, visible, stored, in_y, with_extra, wrong });
    }
    for name in db.document_collections() {
        let documents = FoundDocuments::of(db, &name)?;
        found.documents.insert(name, documents);
    }
    Ok(found)
}

/// A snapshot, and what it held when it was taken.
pub(crate) enum Held {
    Rows(CollectionSnapshot, Vec<i64>),
    Documents(DocumentsSnapshot, BTreeMap<i64, Kept>),
}

impl Held {
    fn take(db: &Database, name: &str) -> Result<Held, Error> {
        if db.document_collections().iter().any(|known| known == name) {
            let snapshot = db.documents(name)?.snapshot()?;
            return Ok(Held::Documents(snapshot.clone(), scanned(&snapshot)?));
        }
        let snapshot = db.collection(name)?.snapshot()?;
        let ids = scan(&snapshot, true, None)?.0;
        Ok(Held::Rows(snapshot, ids))
    }

    /// What has changed, if anything has.
    fn difference(&self) -> Result<Option<String>, Error> {
        let changed =
            |before: &dyn std::fmt::Debug, now: &dyn std::fmt::Debug| Some(format!("{before:?} became {now:?}"));
        Ok(match self {
            Held::Rows(snapshot, before) => {
                let now = scan(snapshot, true, None)?.0;
                if now == *before { None } else { changed(before, &now) }
            }
            Held::Documents(snapshot, before) => {
                let now = scanned(snapshot)?;
                if now == *before { None } else { changed(before, &now) }
            }
        })
    }
}

/// A database that a script runs on, and what may be in it.
pub(crate) struct Runner<F = SimFs> {
    pub(crate) fs: F,
    pub(crate) dir: PathBuf,
    pub(crate) clock: VirtualClock,
    pub(crate) settings: Settings,
    pub(crate) db: Option<Database>,
    pub(crate) held: Option<Held>,
    /// What is done when the next segment is begun.
    beside: Action,
    pub(crate) expected: Expected,
    /// Writing stopped: until the database is opened again nothing more is done.
    pub(crate) poisoned: bool,
    /// Some step failed: a later one may lack what it builds on.
    pub(crate) failed: bool,
}

pub(crate) fn open_at<F: Fs + Clone + 'static>(
    fs: &F,
    dir: &Path,
    clock: &VirtualClock,
    settings: &Settings,
) -> Result<Database, Error> {
    open_on(Arc::new(fs.clone()), dir, clock, settings)
}

fn open_on(fs: Arc<dyn Fs>, dir: &Path, clock: &VirtualClock, settings: &Settings) -> Result<Database, Error> {
    Database::builder(dir).fs(fs).clock(Arc::new(clock.clone())).settings(settings.clone()).open()
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// It failed, and the error says that nothing was done.
    Refused,
    /// It failed, and nobody knows.
    Unknown,
}

impl<F: Fs + Clone + 'static> Runner<F> {
    pub(crate) fn new(fs: F, dir: &Path, settings: Settings) -> Self {
        Runner {
            fs,
            dir: dir.to_owned(),
            clock: VirtualClock::new(Timestamp::from_millis(NOON)),
            settings,
            db: None,
            held: None,
            beside: Action::default(),
            expected: Expected { now: NOON, ..Expected::default() },
            poisoned: false,
            failed: false,
        }
    }

    pub(crate) fn open(&mut self) -> Result<(), Error> {
        let disk = Arc::new(Beside::new(self.fs.clone(), self.beside.clone()));
        self.db = Some(open_on(disk, &self.dir, &self.clock, &self.settings)?);
        Ok(())
    }

    pub(crate) fn db(&self) -> Database {
        self.db.clone().expect("the script opened the database")
    }

    /// Runs a step. Returns how it ended, and what may be stored if the power is cut while it runs.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(Outcome, Expected), String> {
        if let Step::Beside(work, name, command) = step {
            return self.step_beside(work, name, command);
        }
        let before = self.expected.clone();
        if let Step::Wait(seconds) = step {
            self.expected.now += seconds * 1000;
            self.clock.set(Timestamp::from_millis(self.expected.now));
            return Ok((Outcome::Done, self.expected.clone()));
        }
        let mut during = before.clone();
        note(&mut during, step, There::Maybe, None);
        let result = self.act(step)?;
        let outcome = match &result {
            Ok(()) => Outcome::Done,
            Err(error) => match error.kind() {
                ErrorKind::Poisoned => Outcome::Unknown,
                ErrorKind::Full | ErrorKind::Io => Outcome::Refused,
                ErrorKind::Invalid if self.failed => Outcome::Refused,
                _ => return Err(format!("{step:?}: unexpected error {:?}: {error}", error.kind())),
            },
        };
        self.failed |= outcome != Outcome::Done;
        let writes = !matches!(
            step,
            Step::Flush | Step::Compact | Step::Sweep | Step::Hold(_) | Step::Release | Step::Reopen | Step::Wait(_)
        );
        match outcome {
            Outcome::Done if self.poisoned && writes => return Err(format!("{step:?}: done after writing stopped")),
            _ if self.poisoned && !matches!(step, Step::Reopen) => {}
            Outcome::Done if self.poisoned => {
                // What became of the unknown is known now.
                let found = find(&self.db(), &before).map_err(|error| error.to_string())?;
                before.check(&found)?;
                self.expected.resolve(&found);
                self.poisoned = false;
            }
            Outcome::Done => {
                let stored = match step {
                    Step::Sweep => find(&self.db(), &before).ok(),
                    _ => None,
                };
                let there = match (step, &stored) {
                    // A read error right after the sweep: what it dropped is not known.
                    (Step::Sweep, None) => There::Maybe,
                    _ => There::Yes,
                };
                note(&mut self.expected, step, there, stored.as_ref());
            }
            // Sealing and sweeping happen in parts: what came before the error stays done.
            Outcome::Refused if matches!(step, Step::Sweep) => {
                note(&mut self.expected, step, There::Maybe, None);
                // What it dropped of documents is known if it can be read.
                if let Ok(found) = find(&self.db(), &before) {
                    note_swept_documents(&mut self.expected, Some(&found));
                }
            }
            Outcome::Refused if matches!(step, Step::InsertTogether(..) | Step::DocumentsTogether(..)) => {
                self.expected = during.clone();
            }
            Outcome::Refused => {}
            Outcome::Unknown => {
                self.poisoned = true;
                self.expected = during.clone();
            }
        }
        Ok((outcome, during))
    }

    /// Runs a step with a command in its midst, and one after the other if it writes no segment.
    fn step_beside(&mut self, work: &Step, name: &str, command: &Command) -> Result<(Outcome, Expected), String> {
        let was_poisoned = self.poisoned;
        let mut during = self.expected.clone();
        note_command(&mut during, name, command, false);
        note(&mut during, work, There::Maybe, None);
        let written = Arc::new(Mutex::new(None));
        let action = {
            let (db, name, now) = (self.db(), name.to_owned(), self.expected.now);
            let (command, written) = (command.clone(), written.clone());
            move || {
                let outcome = documents::run(&db, &name, &command, now).map(drop);
                *written.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            }
        };
        *self.beside.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(action));
        let worked = self.step(work);
        documents::act(&self.beside);
        let (mut outcome, _) = worked?;
        let written = written.lock().unwrap_or_else(PoisonError::into_inner).take().expect("the command was run");
        match written {
            Ok(()) if was_poisoned => return Err(format!("{command:?}: done after writing stopped")),
            Ok(()) => {
                note_command(&mut self.expected, name, command, true);
                // What was expired when it was written may have gone in the same sweep.
                if matches!(work, Step::Sweep) {
                    let found = find(&self.db(), &self.expected).ok();
                    note_swept_documents(&mut self.expected, found.as_ref());
                }
            }
            Err(error) if error.kind() == ErrorKind::Poisoned => {
                outcome = Outcome::Unknown;
                self.poisoned = true;
                if !was_poisoned {
                    self.expected = during.clone();
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::Io) || self.failed => {
                outcome = if outcome == Outcome::Unknown { outcome } else { Outcome::Refused };
            }
            Err(error) => return Err(format!("{command:?}: unexpected error {:?}: {error}", error.kind())),
        }
        self.failed |= outcome != Outcome::Done;
        Ok((outcome, during))
    }

    fn act(&mut self, step: &Step) -> Result<Result<(), Error>, String> {
        let db = match step {
            Step::Reopen => {
                self.held = None;
                if let Some(db) = self.db.take() {
                    // Sealing may fail; the log keeps it.
                    let _sealed = db.close();
                }
                return Ok(self.open());
            }
            _ => self.db(),
        };
        let collection = |name: &str| db.collection(name);
        Ok(match step {
            Step::Create(name, own) => {
                let mut options = CollectionOptions::new("t").meta_field("m").span_seconds(3600);
                options.expire_after_seconds = *own;
                db.create_collection(name, options).map(drop)
            }
            Step::DropCollection(name) => db.drop_collection(name),
            Step::Rename(from, to) => db.rename_collection(from, to),
            Step::Replace(from, to) => db.replace_collection(from, to),
            Step::RenameField(name) => db.rename_field(name, "x", "y"),
            Step::DropField(name) => db.drop_field(name, "extra"),
            Step::Copy(from, to) => db.copy_collection(from, to).map(drop),
            Step::PutView(name, text) => db.put_view(name, text, Replaces::View),
            Step::DropView(name) => db.drop_view(name),
            Step::Insert(name, rows, fields) => {
                collection(name).and_then(|c| c.insert_documents(&documents(rows, *fields))).map(drop)
            }
            Step::InsertTogether(name, batches) => collection(name).and_then(|c| {
                let insert = |rows: &Vec<Row>| {
                    let (c, documents) = (c.clone(), documents(rows, Fields::Plain));
                    move || c.insert_documents(&documents).map(drop)
                };
                together(batches.iter().map(insert).collect())
            }),
            Step::InsertAcross(parts, request) => insert_across(&db, parts, *request),
            Step::Flush => db.flush(),
            Step::Compact => db.compact(None),
            Step::Sweep => db.sweep().map(|report| assert_eq!(report.held, None)),
            Step::SetOwn(name, seconds) => {
                let change = CollectionChange { expire_after_seconds: Some(*seconds), ..CollectionChange::default() };
                db.modify_collection(name, &change, None)
            }
            Step::AddRule(name, rule, meta, seconds) => {
                db.create_rules(name, vec![rule_spec(rule, meta, *seconds)]).map(drop)
            }
            Step::AddWideRule(name, rule, meta, seconds) => {
                let values = vec![Value::String((*meta).to_owned()), Value::String("x".repeat(WIDE_BYTES))];
                db.create_rules(name, vec![RuleSpec::new(*rule, *seconds, Filter::is_in("m", values))]).map(drop)
            }
            Step::ModifyRule(name, rule, seconds) => {
                let rule = RuleChange::new(RuleSelector::Name((*rule).to_owned())).expire_after_seconds(*seconds);
                db.modify_collection(name, &CollectionChange::default(), Some(&rule))
            }
            Step::RemoveRule(name, rule) => db.drop_rule(name, rule),
            Step::Delete(name, meta) => {
                let filter = Filter::eq("m", Value::String((*meta).to_owned()));
                collection(name).and_then(|c| c.delete(&filter)).map(drop)
            }
            Step::CreateDocuments(name, seconds) => {
                let seconds = seconds.map(|seconds| u32::try_from(seconds).expect("a time to live"));
                let default_ttl = seconds.map_or(DefaultTtl::Off, DefaultTtl::Seconds);
                let options = DocumentsOptions { default_ttl, ..DocumentsOptions::default() };
                db.create_documents(name, options).map(drop)
            }
            Step::Documents(name, command) => documents::run(&db, name, command, self.expected.now).map(drop),
            Step::DocumentsTogether(name, commands) => {
                let now = self.expected.now;
                let run = |command: &Command| {
                    let (db, name, command) = (db.clone(), *name, command.clone());
                    move || documents::run(&db, name, &command, now).map(drop)
                };
                together(commands.iter().map(run).collect())
            }
            Step::Hold(name) => Held::take(&db, name).map(|held| self.held = Some(held)),
            Step::Release => match self.held.take() {
                Some(held) => match held.difference() {
                    Ok(Some(changed)) => return Err(format!("the held snapshot changed: {changed}")),
                    Ok(None) => Ok(()),
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        return Err(format!("the held snapshot lost its files: {error}"));
                    }
                    Err(error) => Err(error),
                },
                None => Ok(()),
            },
            Step::Wait(_) | Step::Reopen | Step::Beside(..) => Ok(()),
        })
    }
}

/// Runs several writers at once. Of their errors, one that says that writing stopped says more than one that refuses.
fn together<W: FnOnce() -> Result<(), Error> + Send + 'static>(writers: Vec<W>) -> Result<(), Error> {
    #[expect(clippy::disallowed_methods, reason = "several writers at once are what this is about")]
    let writers: Vec<_> = writers.into_iter().map(std::thread::spawn).collect();
    let results: Vec<_> = writers.into_iter().map(|writer| writer.join().expect("no panic")).collect();
    let mut failed: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
    failed.sort_by_key(|error| error.kind() != ErrorKind::Poisoned);
    failed.into_iter().next().map_or(Ok(()), Err)
}

pub(crate) fn rule_spec(name: &str, meta: &str, seconds: i64) -> RuleSpec {
    RuleSpec::new(name, seconds, Filter::eq("m", Value::String(meta.to_owned())))
}

/// Takes note in the model that a step was done, or may have been.
pub(crate) fn note(expected: &mut Expected, step: &Step, there: There, found: Option<&Found>) {
    let certain = there == There::Yes;
    let now = expected.now;
    let change_rules = |expected: &mut Expected, name: &str, change: &dyn Fn(&mut Rules)| {
        if let Some(collection) = expected.collections.get_mut(name) {
            let changed = collection.rules.iter().cloned().map(|mut rules| {
                change(&mut rules);
                rules
            });
            let changed: BTreeSet<Rules> = changed.collect();
            if certain {
                collection.rules = changed;
            } else {
                collection.rules.extend(changed);
            }
        }
    };
    match step {
        Step::Create(name, own) => {
            let rules = Rules { own: *own, ..Rules::default() };
            let old = expected.collections.get(*name).map_or(There::No, |collection| collection.there);
            if old != There::Yes {
                expected.collections.insert((*name).to_owned(), ExpectedCollection::new(there, rules));
            }
        }
        Step::DropCollection(name) => {
            if let Some(collection) = expected.collections.get_mut(*name) {
                collection.there = if certain { There::No } else { There::Maybe };
            } else if let Some(documents) = expected.documents.get_mut(*name) {
                documents.there = if certain { There::No } else { There::Maybe };
            }
        }
        Step::CreateDocuments(name, default_ttl) => {
            let old = expected.documents.get(*name).map_or(There::No, |documents| documents.there);
            if old != There::Yes {
                expected.documents.insert((*name).to_owned(), ExpectedDocuments::new(there, *default_ttl));
            }
        }
        Step::Documents(name, command) => note_command(expected, name, command, certain),
        Step::DocumentsTogether(name, commands) => {
            commands.iter().for_each(|command| note_command(expected, name, command, certain));
        }
        Step::Beside(work, name, command) => {
            note_command(expected, name, command, certain);
            note(expected, work, there, found);
        }
        Step::Rename(from, to) => expected.rename(from, to, certain),
        Step::Replace(from, to) => expected.replace(from, to, certain),
        Step::RenameField(name) => {
            if let Some(collection) = expected.collections.get_mut(*name) {
                collection.rename_field(certain);
            }
        }
        Step::DropField(name) => {
            if let Some(collection) = expected.collections.get_mut(*name) {
                collection.drop_field(certain);
            }
        }
        Step::Copy(from, to) => {
            if let Some(copy) = expected.collections.get(*from).map(|collection| collection.copy(there, now)) {
                expected.collections.insert((*to).to_owned(), copy);
            }
        }
        Step::PutView(name, text) => expected.view(name, Some(text), certain),
        Step::DropView(name) => expected.view(name, None, certain),
        Step::Insert(name, rows, fields) => {
            if let Some(collection) = expected.collections.get_mut(*name) {
                collection.insert(rows, there);
                if *fields == Fields::Extra && collection.extra != There::Yes {
                    collection.extra = there;
                }
            }
        }
        Step::InsertTogether(name, batches) => {
            if let Some(collection) = expected.collections.get_mut(*name) {
                batches.iter().for_each(|rows| collection.insert(rows, there));
            }
        }
        Step::InsertAcross(parts, _) => {
            let is_stored = |(name, rows): &(&str, Vec<Row>)| {
                let known = expected.collections.get(*name);
                known.is_some_and(|known| rows.iter().all(|row| known.sure.contains(&row.id)))
            };
            // A request that comes again does nothing.
            if !parts.iter().all(is_stored) {
                for (name, rows) in parts {
                    if let Some(collection) = expected.collections.get_mut(*name) {
                        collection.insert(rows, there);
                    }
                }
                if !certain {
                    let ids = |(name, rows): &(&str, Vec<Row>)| Some(((*name).to_owned(), rows.first()?.id));
                    expected.across.push(parts.iter().filter_map(ids).collect());
                }
            }
        }
        Step::Sweep => {
            for (name, collection) in &mut expected.collections {
                let stored = found.and_then(|found| found.collections.get(name));
                let stored: Option<BTreeSet<i64>> = stored.map(|found| found.stored.iter().copied().collect());
                collection.sweep(now, stored.as_ref().filter(|_| certain));
            }
            note_swept_documents(expected, found.filter(|_| certain));
        }
        Step::SetOwn(name, own) => change_rules(expected, name, &|rules| rules.own = *own),
        Step::AddRule(name, rule, meta, seconds) | Step::AddWideRule(name, rule, meta, seconds) => {
            change_rules(expected, name, &|rules| {
                rules.partial.insert((*rule).to_owned(), ((*meta).to_owned(), *seconds));
            })
        }
        Step::ModifyRule(name, rule, seconds) => change_rules(expected, name, &|rules| {
            if let Some((_, old)) = rules.partial.get_mut(*rule) {
                *old = *seconds;
            }
        }),
        Step::RemoveRule(name, rule) => change_rules(expected, name, &|rules| {
            rules.partial.remove(*rule);
        }),
        Step::Delete(name, meta) => {
            if let Some(collection) = expected.collections.get_mut(*name) {
                let matching = collection.sure.iter().copied();
                let gone = matching.filter(|id| collection.rows.get(id).is_some_and(|row| row.meta == *meta)).collect();
                collection.delete(&gone, certain);
            }
        }
        Step::Flush | Step::Compact | Step::Wait(_) | Step::Hold(_) | Step::Release | Step::Reopen => {}
    }
}

fn note_command(expected: &mut Expected, name: &str, command: &Command, certain: bool) {
    let now = expected.now;
    if let Some(documents) = expected.documents.get_mut(name) {
        documents.command(command, now, certain);
    }
}

fn note_swept_documents(expected: &mut Expected, found: Option<&Found>) {
    let now = expected.now;
    for (name, documents) in &mut expected.documents {
        let found = found.map(|found| found.documents.get(name).cloned().unwrap_or_default());
        documents.sweep(now, found.as_ref());
    }
}

fn insert_across(db: &Database, parts: &[(&'static str, Vec<Row>)], request: Option<u64>) -> Result<(), Error> {
    let parts: Vec<(&str, Vec<Value>)> =
        parts.iter().map(|(name, rows)| (*name, documents(rows, Fields::Plain))).collect();
    let batch = || parts.iter().fold(db.write_batch(), |batch, (name, rows)| batch.insert_documents(name, rows));
    let Some(number) = request else { return batch().commit().map(drop).map_err(|refused| refused.error) };
    let mut key = [0; 32];
    key[..8].copy_from_slice(&number.to_le_bytes());
    match db.begin_request(key, key)? {
        BegunRequest::New(mut request) => {
            batch().commit_once(&mut request, &key[..8]).map(drop).map_err(|refused| refused.error)
        }
        BegunRequest::Repeated(reply) => {
            assert_eq!(reply, key[..8], "a request that is sent again gets its first reply");
            Ok(())
        }
        BegunRequest::OtherContent => panic!("request {number} is known with other content"),
    }
}

/// Inserts into the collection `c`, and replaces and adds a document in each ordinary collection.
pub(crate) fn add_more(db: &Database, wanted: &mut Found, now: i64) -> Result<(), String> {
    let more = rows(1_000_000, 3, now + 60_000, &["d"]);
    let inserted = db.collection("c").and_then(|c| c.insert_documents(&documents(&more, Fields::Plain)));
    inserted.map_err(|error| format!("cannot work on: {:?}: {error}", error.kind()))?;
    if let Some(collection) = wanted.collections.get_mut("c") {
        collection.visible.extend(more.iter().map(|row| row.id));
        collection.stored.extend(more.iter().map(|row| row.id));
    }
    for (name, found) in &mut wanted.documents {
        let replaced = found.stored.keys().next().copied().unwrap_or(7);
        // They never expire by a life of the collection's.
        let new = [replaced, 1_000_000].map(|id| NewDocument { id, number: 1_000_000, ttl: Some(-1), date: None });
        let put = documents::run(db, name, &Command::Put(new.to_vec()), now);
        put.map_err(|error| format!("cannot work on {name}: {:?}: {error}", error.kind()))?;
        for id in [replaced, 1_000_000] {
            let kept = Kept { number: 1_000_000, ttl: Some(-1), date: None, written: now };
            found.visible.insert(id, kept.clone());
            found.stored.insert(id, kept);
        }
    }
    Ok(())
}
