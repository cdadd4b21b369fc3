//! Runs scenarios on a simulated disk, breaks it, and compares what comes back with what may.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type, TimestampMillisecondType};
use ebbtide::fs::sim::{Fault, FaultKind, Random, Repeat, SimFs, Variant};
use ebbtide::{
    CollectionChange, CollectionOptions, CollectionSnapshot, Database, Error, ErrorKind, RuleChange, ScanRequest,
    Settings,
};
use ebbtide_ttl::{Filter, RuleSelector, RuleSpec, Timestamp, Value, VirtualClock};

use crate::expect::{Expected, ExpectedCollection, Found, FoundCollection, Row, Rules, There};
use crate::script::{Fields, NOON, Scenario, Step, rows};

const ROOT: &str = "/data/db";

/// Failures that are reported before a campaign gives up.
const FAILURES_MAX: usize = 20;

fn text_of(id: i64) -> String {
    format!("text {id}")
}

fn long_of(id: i64) -> String {
    let mut random = Random::new(u64::try_from(id).unwrap_or(0));
    (0..40).map(|_| format!("{:016x}", random.next_u64())).collect()
}

fn document(row: &Row, fields: Fields) -> Value {
    let mut members = vec![
        ("t".to_owned(), Value::Date(Timestamp::from_millis(row.t))),
        ("m".to_owned(), Value::String(row.meta.clone())),
        ("id".to_owned(), Value::Int(row.id)),
        ("x".to_owned(), Value::Double(row.id as f64 + 0.5)),
    ];
    match fields {
        Fields::Plain => {}
        Fields::Extra => members.push(("extra".to_owned(), Value::String(text_of(row.id)))),
        Fields::Long => members.push(("long".to_owned(), Value::String(long_of(row.id)))),
    }
    Value::Object(members)
}

fn documents(rows: &[Row], fields: Fields) -> Vec<Value> {
    rows.iter().map(|row| document(row, fields)).collect()
}

/// The ids in a scan, and what is wrong with their rows.
fn scan(snapshot: &CollectionSnapshot, hidden: bool) -> Result<(Vec<i64>, Vec<String>), Error> {
    let (mut ids, mut wrong) = (Vec::new(), Vec::new());
    let request = ScanRequest { include_hidden: hidden, ..ScanRequest::default() };
    for unit in snapshot.scan(&request)? {
        for batch in unit.read()? {
            read_batch(&batch?, &mut ids, &mut wrong);
        }
    }
    ids.sort_unstable();
    Ok((ids, wrong))
}

fn read_batch(batch: &RecordBatch, ids: &mut Vec<i64>, wrong: &mut Vec<String>) {
    let column = |name: &str| batch.column_by_name(name);
    let (Some(id), Some(x), Some(m)) = (column("id"), column("x"), column("m")) else {
        if batch.num_rows() > 0 {
            wrong.push(format!("columns are missing: {:?}", batch.schema()));
        }
        return;
    };
    let (id, x, m) = (id.as_primitive::<Int64Type>(), x.as_primitive::<Float64Type>(), m.as_string_view());
    for row in 0..batch.num_rows() {
        let at = id.value(row);
        if id.is_null(row) || x.is_null(row) || x.value(row) != at as f64 + 0.5 || m.is_null(row) {
            wrong.push(format!("row {at}: x={} m={}", x.value(row), m.value(row)));
        }
        for (name, text) in [("extra", text_of(at)), ("long", long_of(at))] {
            if let Some(found) = column(name).map(|column| column.as_string_view())
                && !found.is_null(row)
                && found.value(row) != text
            {
                wrong.push(format!("row {at}: {name}={}", found.value(row)));
            }
        }
        ids.push(at);
    }
}

/// Checks times and metas against the model's rows.
fn check_rows(snapshot: &CollectionSnapshot, expected: &ExpectedCollection) -> Result<Vec<String>, Error> {
    let mut wrong = Vec::new();
    for unit in snapshot.scan(&ScanRequest { include_hidden: true, ..ScanRequest::default() })? {
        for batch in unit.read()? {
            let batch = batch?;
            let (Some(id), Some(t), Some(m)) =
                (batch.column_by_name("id"), batch.column_by_name("t"), batch.column_by_name("m"))
            else {
                continue;
            };
            let id = id.as_primitive::<Int64Type>();
            let (t, m) = (t.as_primitive::<TimestampMillisecondType>(), m.as_string_view());
            for row in 0..batch.num_rows() {
                if let Some(known) = expected.rows.get(&id.value(row))
                    && (known.t != t.value(row) || known.meta != m.value(row))
                {
                    wrong.push(format!("row {known:?} has t={} m={}", t.value(row), m.value(row)));
                }
            }
        }
    }
    Ok(wrong)
}

fn find(db: &Database, expected: &Expected) -> Result<Found, Error> {
    let mut found = Found::default();
    let snapshot = db.snapshot();
    for name in snapshot.collections() {
        let collection = snapshot.collection(&name)?;
        let mut rules = Rules { own: collection.rules().collection(), ..Rules::default() };
        for view in collection.rules().iter() {
            if let (Some(name), Some(filter)) = (view.name, view.filter) {
                // The only filters that scripts make.
                let metas = ["a", "b", "d"].into_iter().filter(|meta| filter.matches_meta(&Value::String((*meta).into())));
                let meta = metas.collect::<Vec<_>>().join("+");
                rules.partial.insert(name.to_owned(), (meta, view.expire_after_seconds));
            }
        }
        let extra = collection.schema().fields.iter().any(|(name, _)| name == "extra");
        let (visible, mut wrong) = scan(&collection, false)?;
        let (stored, more) = scan(&collection, true)?;
        wrong.extend(more);
        if let Some(expected) = expected.collections.get(&name) {
            wrong.extend(check_rows(&collection, expected)?);
        }
        found.collections.insert(name, FoundCollection { rules, extra, visible, stored, wrong });
    }
    Ok(found)
}

/// A database that a script runs on, and what may be in it.
struct Runner {
    fs: SimFs,
    clock: VirtualClock,
    settings: Settings,
    db: Option<Database>,
    held: Option<(CollectionSnapshot, Vec<i64>)>,
    expected: Expected,
}

fn open(fs: &SimFs, clock: &VirtualClock, settings: &Settings) -> Result<Database, Error> {
    Database::builder(ROOT)
        .fs(Arc::new(fs.clone()))
        .clock(Arc::new(clock.clone()))
        .settings(settings.clone())
        .open()
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// It failed, and the error says that nothing was done.
    Refused,
    /// It failed, and nobody knows.
    Unknown,
}

impl Runner {
    fn new(fs: SimFs, settings: Settings) -> Self {
        Runner {
            fs,
            clock: VirtualClock::new(Timestamp::from_millis(NOON)),
            settings,
            db: None,
            held: None,
            expected: Expected { now: NOON, collections: Default::default() },
        }
    }

    fn open(&mut self) -> Result<(), Error> {
        self.db = Some(open(&self.fs, &self.clock, &self.settings)?);
        Ok(())
    }

    fn db(&self) -> Database {
        self.db.clone().expect("the script opened the database")
    }

    /// Runs a step. Returns how it ended, and what may be stored if the power is cut while it runs.
    fn step(&mut self, step: &Step) -> Result<(Outcome, Expected), String> {
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
                _ => return Err(format!("{step:?}: unexpected error {:?}: {error}", error.kind())),
            },
        };
        match outcome {
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
            Outcome::Refused if matches!(step, Step::Sweep) => note(&mut self.expected, step, There::Maybe, None),
            Outcome::Refused if matches!(step, Step::InsertTogether(..)) => self.expected = during.clone(),
            Outcome::Refused => {}
            Outcome::Unknown => self.expected = during.clone(),
        }
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
            Step::Insert(name, rows, fields) => {
                collection(name).and_then(|c| c.insert_documents(&documents(rows, *fields))).map(drop)
            }
            Step::InsertTogether(name, batches) => collection(name).and_then(|c| {
                #[expect(clippy::disallowed_methods, reason = "several writers at once are what this step is about")]
                let writers: Vec<_> = batches
                    .iter()
                    .map(|rows| {
                        let (c, documents) = (c.clone(), documents(rows, Fields::Plain));
                        std::thread::spawn(move || c.insert_documents(&documents).map(drop))
                    })
                    .collect();
                let results: Vec<_> = writers.into_iter().map(|writer| writer.join().expect("no panic")).collect();
                // One that is poisoned says more than one that was refused.
                let mut failed: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
                failed.sort_by_key(|error| error.kind() != ErrorKind::Poisoned);
                failed.into_iter().next().map_or(Ok(()), Err)
            }),
            Step::Flush => db.flush(),
            Step::Compact => db.compact(None),
            Step::Sweep => db.sweep().and_then(|report| match report.held {
                Some(held) => panic!("the sweep was held: {held}"),
                None => Ok(()),
            }),
            Step::SetOwn(name, seconds) => {
                let change = CollectionChange { expire_after_seconds: Some(*seconds), ..CollectionChange::default() };
                db.modify_collection(name, &change, None)
            }
            Step::AddRule(name, rule, meta, seconds) => {
                db.create_rules(name, vec![rule_spec(rule, meta, *seconds)]).map(drop)
            }
            Step::ModifyRule(name, rule, seconds) => {
                let rule = RuleChange { selector: RuleSelector::Name((*rule).to_owned()), expire_after_seconds: *seconds };
                db.modify_collection(name, &CollectionChange::default(), Some(&rule))
            }
            Step::RemoveRule(name, rule) => db.drop_rule(name, rule),
            Step::Delete(name, meta) => {
                let filter = Filter::eq("m", Value::String((*meta).to_owned()));
                collection(name).and_then(|c| c.delete(&filter)).map(drop)
            }
            Step::Hold(name) => {
                let taken = collection(name).and_then(|c| c.snapshot()).and_then(|s| Ok((scan(&s, true)?.0, s)));
                taken.map(|(ids, snapshot)| self.held = Some((snapshot, ids)))
            }
            Step::Release => match self.held.take() {
                Some((snapshot, ids)) => match scan(&snapshot, true) {
                    Ok((found, _)) if found != ids => {
                        return Err(format!("the held snapshot changed: {ids:?} became {found:?}"));
                    }
                    Ok(_) => Ok(()),
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        return Err(format!("the held snapshot lost its files: {error}"));
                    }
                    Err(error) => Err(error),
                },
                None => Ok(()),
            },
            Step::Wait(_) | Step::Reopen => Ok(()),
        })
    }
}

fn rule_spec(name: &str, meta: &str, seconds: i64) -> RuleSpec {
    RuleSpec::new(name, seconds, Filter::eq("m", Value::String(meta.to_owned())))
}

/// Takes note in the model that a step was done, or may have been.
fn note(expected: &mut Expected, step: &Step, there: There, found: Option<&Found>) {
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
            }
        }
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
        Step::Sweep => {
            for (name, collection) in &mut expected.collections {
                let stored = found.and_then(|found| found.collections.get(name));
                let stored: Option<BTreeSet<i64>> = stored.map(|found| found.stored.iter().copied().collect());
                collection.sweep(now, stored.as_ref().filter(|_| certain));
            }
        }
        Step::SetOwn(name, own) => change_rules(expected, name, &|rules| rules.own = *own),
        Step::AddRule(name, rule, meta, seconds) => change_rules(expected, name, &|rules| {
            rules.partial.insert((*rule).to_owned(), ((*meta).to_owned(), *seconds));
        }),
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

/// Opens a disk after a crash and compares.
fn recover(fs: &SimFs, expected: &Expected, settings: &Settings) -> Result<(Database, Found), String> {
    let clock = VirtualClock::new(Timestamp::from_millis(expected.now));
    let db = open(fs, &clock, settings).map_err(|error| format!("does not open: {:?}: {error}", error.kind()))?;
    let found = find(&db, expected).map_err(|error| format!("cannot be read: {:?}: {error}", error.kind()))?;
    expected.check(&found)?;
    Ok((db, found))
}

/// Works on with a recovered database: what it held stays, what is added stays too.
fn work_on(fs: &SimFs, db: Database, found: &Found, expected: &Expected, settings: &Settings) -> Result<(), String> {
    let said = |error: Error| format!("cannot work on: {:?}: {error}", error.kind());
    let mut wanted = found.clone();
    if !wanted.collections.contains_key("c") {
        db.create_collection("c", CollectionOptions::new("t").meta_field("m").span_seconds(3600)).map_err(said)?;
        wanted.collections.insert("c".to_owned(), FoundCollection::default());
    }
    let more = rows(1_000_000, 3, expected.now + 60_000, &["d"]);
    let ids = || more.iter().map(|row| row.id);
    let collection = db.collection("c").map_err(said)?;
    collection.insert_documents(&documents(&more, Fields::Plain)).map_err(said)?;
    db.flush().map_err(said)?;
    db.compact(None).map_err(said)?;
    drop(collection);
    db.close().map_err(said)?;
    let handles = fs.open_handles();
    if !handles.is_empty() {
        return Err(format!("files are open after the close: {handles:?}"));
    }
    if let Some(collection) = wanted.collections.get_mut("c") {
        collection.visible.extend(ids());
        collection.stored.extend(ids());
    }
    let clock = VirtualClock::new(Timestamp::from_millis(expected.now));
    let db = open(&fs.crash(Variant::V0, 0), &clock, settings).map_err(said)?;
    let again = find(&db, expected).map_err(said)?;
    if again == wanted { Ok(()) } else { Err(format!("after working on: expected={wanted:?} found={again:?}")) }
}

/// Turns a panic into a failure.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

/// Images or runs over all scenarios: a budget, counts and failures.
pub(crate) struct Campaign {
    name: &'static str,
    budget: usize,
    seed: u64,
    replay: Option<String>,
    points: usize,
    images: usize,
    nested: usize,
    worked_on: usize,
    detected: usize,
    harmless: usize,
    fired: usize,
    survived: usize,
    failures: Vec<String>,
}

impl Campaign {
    pub(crate) fn new(name: &'static str, budget: usize) -> Self {
        let seed = std::env::var("EBBTIDE_CRASH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        Campaign {
            name,
            budget,
            seed,
            replay: std::env::var("EBBTIDE_CRASH_REPLAY").ok(),
            points: 0,
            images: 0,
            nested: 0,
            worked_on: 0,
            detected: 0,
            harmless: 0,
            fired: 0,
            survived: 0,
            failures: Vec::new(),
        }
    }

    /// Whether a run with this label is wanted.
    fn wants(&self, label: &str) -> bool {
        self.replay.as_ref().is_none_or(|replay| replay == label)
    }

    fn fail(&mut self, label: &str, context: &str, what: &str) {
        self.failures.push(format!("EBBTIDE_CRASH_REPLAY='{label}'  ({context}): {what}"));
        if self.failures.len() >= FAILURES_MAX {
            panic!("{}", self.report());
        }
    }

    fn report(&self) -> String {
        let Campaign { name, seed, points, images, nested, worked_on, detected, harmless, fired, survived, .. } = self;
        let failures = self.failures.len();
        let mut text = format!(
            "tier {name}: seed={seed} points={points} images={images} crashes_in_recovery={nested} \
             worked_on={worked_on} flips_detected={detected} flips_harmless={harmless} fault_runs_fired={fired} \
             fault_runs_survived={survived} failures={failures}"
        );
        for failure in &self.failures {
            text.push('\n');
            text.push_str(failure);
        }
        text
    }

    pub(crate) fn finish(self) {
        println!("{}", self.report());
        assert!(self.failures.is_empty(), "{}", self.report());
    }
}

/// A moment at which the power may be cut.
struct Point {
    /// Steps of the disk that were made before.
    ops: usize,
    expected: Expected,
    context: String,
}

/// Runs a scenario without faults; every point at which it can be cut.
fn record(scenario: &Scenario) -> Result<(Runner, Vec<Point>), String> {
    let fs = SimFs::new(ROOT);
    fs.record();
    let mut runner = Runner::new(fs, scenario.settings.clone());
    let mut points = Vec::new();
    let empty = runner.expected.clone();
    runner.open().map_err(|error| format!("does not open: {error}"))?;
    let push = |points: &mut Vec<Point>, from: usize, runner: &Runner, during: &Expected, after: &Expected, step: &str| {
        let end = runner.fs.steps().len();
        for ops in from..=end {
            let expected = if ops == end { after } else { during };
            points.push(Point { ops, expected: expected.clone(), context: format!("{step}, {ops}/{end}") });
        }
    };
    push(&mut points, 0, &runner, &empty, &empty, "open");
    for (at, step) in scenario.steps.iter().enumerate() {
        let from = runner.fs.steps().len();
        let (outcome, during) = runner.step(step)?;
        if outcome != Outcome::Done {
            return Err(format!("step {at} {step:?}: {outcome:?}"));
        }
        let found = find(&runner.db(), &runner.expected).map_err(|error| error.to_string())?;
        runner.expected.check(&found).map_err(|what| format!("step {at} {step:?}, before any crash: {what}"))?;
        let name: String = format!("step {at} {step:?}").chars().take(60).collect();
        push(&mut points, from, &runner, &during, &runner.expected.clone(), &name);
    }
    Ok((runner, points))
}

/// Tiers A and A2: every point of a scenario, cut in every way; and the recovery cut again.
pub(crate) fn crash_images(campaign: &mut Campaign, scenario: &Scenario) {
    let share = campaign.budget / crate::script::scenarios().len();
    let (runner, points) = match guarded(|| record(scenario)) {
        Ok(recorded) => recorded,
        Err(what) => return campaign.fail(scenario.name, "no fault at all", &what),
    };
    campaign.points += points.len();
    // Points take part in turn, with more and more seeds, until the budget is spent; the first round is whole.
    let mut taken = 0;
    'rounds: for round in 0.. {
        let variants: &[Variant] = if round == 0 { &Variant::ALL } else { &SEEDED };
        for variant in variants {
            for point in &points {
                if taken >= share && !(round == 0 && FIRST.contains(variant)) {
                    break 'rounds;
                }
                let seed = campaign.seed * 1_000_003 + round * 7919 + point.ops as u64;
                let label = format!("{}:{}:{variant:?}:{seed}", scenario.name, point.ops);
                if !campaign.wants(&label) {
                    taken += 1;
                    continue;
                }
                taken += 1;
                one_image(campaign, scenario, &runner.fs, point, *variant, seed, &label);
            }
        }
        if points.is_empty() {
            break;
        }
    }
}

/// Variants which every point sees whatever the budget.
const FIRST: [Variant; 3] = [Variant::V0, Variant::V1, Variant::V3];
/// Variants in which the seed makes a difference.
const SEEDED: [Variant; 6] = [Variant::V3, Variant::V2, Variant::V5, Variant::V7, Variant::V3, Variant::V8];

fn one_image(
    campaign: &mut Campaign,
    scenario: &Scenario,
    disk: &SimFs,
    point: &Point,
    variant: Variant,
    seed: u64,
    label: &str,
) {
    let settings = &scenario.settings;
    let image = disk.before_step(point.ops).crash(variant, seed);
    campaign.images += 1;
    let context = format!("{}, {:?}", point.context, image.damage());
    if variant == Variant::V8 {
        match guarded(|| check_damaged(&image, &point.expected, settings)) {
            Ok(true) => campaign.detected += 1,
            Ok(false) => campaign.harmless += 1,
            Err(what) => campaign.fail(label, &context, &what),
        }
        return;
    }
    let outcome = guarded(|| {
        image.record();
        let (db, found) = recover(&image, &point.expected, settings)?;
        let ops = image.steps().len();
        if campaign.replay.is_some() {
            println!("disk: {:#?}\nrecovery: {:#?}\nfound: {found:?}", disk.steps(), image.steps());
        }
        let mut random = Random::new(seed);
        let mut nested = 0;
        if seed % 3 == 0 {
            // The recovery is cut too: at some step, and the recovery of that once more.
            let cut = image.before_step(random.index(ops + 1));
            let variant = random.pick(&Variant::WITHIN_CONTRACT).copied().unwrap_or(Variant::V0);
            let second = cut.crash(variant, random.next_u64());
            second.record();
            let said = |what| format!("cut again in its recovery, {variant:?}: {what}");
            let (_, again) = recover(&second, &point.expected, settings).map_err(said)?;
            if again != found {
                return Err(format!("cut again in its recovery, {variant:?}: found {found:?}, then {again:?}"));
            }
            let third = second.before_step(random.index(second.steps().len() + 1)).crash(Variant::V3, seed);
            let (_, again) = recover(&third, &point.expected, settings)
                .map_err(|what| format!("cut twice in its recovery: {what}"))?;
            if again != found {
                return Err(format!("cut twice in its recovery: found {found:?}, then {again:?}"));
            }
            nested = 2;
        }
        let work = seed % 3 == 1;
        if work {
            work_on(&image, db, &found, &point.expected, settings)?;
        }
        Ok((nested, usize::from(work)))
    });
    match outcome {
        Ok((nested, worked_on)) => {
            campaign.nested += nested;
            campaign.worked_on += worked_on;
        }
        Err(what) => campaign.fail(label, &context, &what),
    }
}

/// After a flipped bit: true if it was noticed, false if it made no difference, an error if it did and was not.
fn check_damaged(image: &SimFs, expected: &Expected, settings: &Settings) -> Result<bool, String> {
    let clock = VirtualClock::new(Timestamp::from_millis(expected.now));
    let noticed = |error: &Error| error.kind() == ErrorKind::Corrupt;
    let found = open(image, &clock, settings).and_then(|db| find(&db, expected));
    match found {
        Ok(found) => expected.check(&found).map(|()| false).map_err(|what| format!("a flipped bit was served: {what}")),
        Err(error) if noticed(&error) => Ok(true),
        Err(error) => Err(format!("a flipped bit gave {:?}, not corruption: {error}", error.kind())),
    }
}

/// Tier B: a fault at every step of a scenario, then a restart or a power cut.
pub(crate) fn fault_runs(campaign: &mut Campaign, scenario: &Scenario) {
    let share = campaign.budget / crate::script::scenarios().len();
    let ops = match guarded(|| record(scenario)) {
        Ok((runner, _)) => runner.fs.mutating_ops(),
        Err(what) => return campaign.fail(scenario.name, "no fault at all", &what),
    };
    let mut runs = Vec::new();
    for op in 0..ops {
        for kind in FaultKind::ALL {
            for repeat in [Repeat::Once, Repeat::Forever] {
                runs.push((op, Fault { kind, repeat }));
            }
        }
    }
    campaign.points += ops as usize;
    let mut random = Random::new(campaign.seed);
    for at in (1..runs.len()).rev() {
        runs.swap(at, random.index(at + 1));
    }
    // A fault that does not strike the kind of step at its index costs nothing and proves nothing.
    let mut taken = 0;
    for (op, fault) in runs {
        let label = format!("{}:{op}:{:?}:{:?}", scenario.name, fault.kind, fault.repeat);
        if !campaign.wants(&label) {
            continue;
        }
        if taken >= share {
            break;
        }
        match guarded(|| one_fault(scenario, op, fault, campaign.replay.is_some())) {
            Ok(None) => {}
            Ok(Some(survived)) => {
                taken += 1;
                campaign.fired += 1;
                campaign.survived += usize::from(survived);
            }
            Err(what) => {
                taken += 1;
                campaign.fail(&label, "fault run", &what);
            }
        }
    }
}

/// `None` if the fault did not strike; whether every step was done in spite of it.
fn one_fault(scenario: &Scenario, op: u64, fault: Fault, verbose: bool) -> Result<Option<bool>, String> {
    let fs = SimFs::new(ROOT);
    fs.record();
    fs.fail_op(op, fault);
    let mut runner = Runner::new(fs.clone(), scenario.settings.clone());
    let mut survived = true;
    let mut stopped = runner.open().is_err();
    for step in &scenario.steps {
        if stopped {
            break;
        }
        let writable_before = survived;
        let (outcome, _) = runner.step(step)?;
        if verbose {
            println!("{step:?}: {outcome:?} faults={}", fs.faults_fired());
        }
        survived &= outcome == Outcome::Done;
        if outcome != Outcome::Done && matches!(step, Step::Reopen) {
            stopped = true;
            continue;
        }
        // A collection that could not be made leaves the rest of the script without its subject.
        stopped = outcome != Outcome::Done && matches!(step, Step::Create(..) | Step::Hold(_)) || !writable_before && outcome == Outcome::Unknown;
        if let Some(db) = runner.db.clone() {
            let found = find(&db, &runner.expected).map_err(|error| format!("{step:?} {outcome:?}: reads fail: {error}"))?;
            runner.expected.check(&found).map_err(|what| format!("{step:?} {outcome:?}: while open: {what}"))?;
        }
    }
    let fired = fs.faults_fired() > 0;
    if verbose {
        println!("disk: {:#?}", fs.steps());
    }
    if !fired {
        return Ok(None);
    }
    fs.heal();
    runner.held = None;
    // A restart of the process alone, and power cuts.
    let images = [fs.fork(), fs.crash(Variant::V0, op), fs.crash(Variant::V3, op)];
    for (which, image) in images.iter().enumerate() {
        let (db, found) = recover(image, &runner.expected, &scenario.settings)
            .map_err(|what| format!("after {}: {what}", ["a restart", "a power cut V0", "a power cut V3"][which]))?;
        if which == 0 {
            work_on(image, db, &found, &runner.expected, &scenario.settings)?;
        }
    }
    Ok(Some(survived))
}

/// A disk that is full at some size: what does not fit is refused, nothing is lost, and once there is room again the
/// same open database goes on.
pub(crate) fn full_disk_runs(campaign: &mut Campaign, scenario: &Scenario) {
    let share = (campaign.budget / crate::script::scenarios().len()).max(1);
    let needed = match guarded(|| record(scenario)) {
        Ok((runner, points)) => {
            let used = points.iter().map(|point| runner.fs.before_step(point.ops).used()).max();
            used.unwrap_or(0)
        }
        Err(what) => return campaign.fail(scenario.name, "no fault at all", &what),
    };
    for run in 0..share as u64 {
        let capacity = needed * (run + 1) / share as u64;
        let label = format!("{}:full:{capacity}", scenario.name);
        if campaign.wants(&label) {
            campaign.images += 1;
            match guarded(|| one_full_disk(scenario, capacity, campaign.replay.is_some())) {
                Ok(survived) => campaign.survived += usize::from(survived),
                Err(what) => campaign.fail(&label, "full disk", &what),
            }
        }
    }
}

fn one_full_disk(scenario: &Scenario, capacity: u64, verbose: bool) -> Result<bool, String> {
    let fs = SimFs::new(ROOT);
    fs.record();
    let mut runner = Runner::new(fs.clone(), scenario.settings.clone());
    runner.open().map_err(|error| error.to_string())?;
    fs.set_capacity(Some(capacity.max(fs.used())));
    let mut survived = true;
    for step in &scenario.steps {
        let (outcome, _) = runner.step(step)?;
        if verbose {
            println!("{step:?}: {outcome:?} used={}", fs.used());
        }
        survived &= outcome == Outcome::Done;
        if outcome == Outcome::Unknown {
            println!("disk: {:#?}", fs.steps());
            return Err(format!("{step:?}: a full disk stopped all writing"));
        }
        if outcome != Outcome::Done && matches!(step, Step::Create(..) | Step::Reopen) {
            break;
        }
        if let Some(db) = runner.db.clone() {
            let found = find(&db, &runner.expected).map_err(|error| format!("{step:?} {outcome:?}: {error}"))?;
            runner.expected.check(&found).map_err(|what| format!("{step:?} {outcome:?}: while full: {what}"))?;
        }
    }
    fs.set_capacity(None);
    runner.held = None;
    let (_, found) = recover(&fs.crash(Variant::V0, capacity), &runner.expected, &scenario.settings)?;
    if let Some(db) = runner.db.take() {
        work_on(&fs, db, &found, &runner.expected, &scenario.settings)?;
    }
    Ok(survived)
}

/// A failing read at every place of an open and a full scan: an error, never a wrong answer, and well again afterwards.
pub(crate) fn read_fault_runs(campaign: &mut Campaign, scenario: &Scenario) {
    let share = campaign.budget / crate::script::scenarios().len();
    let (runner, points) = match guarded(|| record(scenario)) {
        Ok(recorded) => recorded,
        Err(what) => return campaign.fail(scenario.name, "no fault at all", &what),
    };
    let Some(last) = points.last() else { return };
    let disk = runner.fs.crash(Variant::V0, 1);
    let clock = VirtualClock::new(Timestamp::from_millis(last.expected.now));
    for run in 0..share as u64 {
        let (read, kind) = (run / 2, if run % 2 == 0 { FaultKind::Eio } else { FaultKind::Emfile });
        let label = format!("{}:read:{read}:{kind:?}", scenario.name);
        if !campaign.wants(&label) {
            continue;
        }
        let image = disk.fork();
        image.fail_read(read, Fault { kind, repeat: Repeat::Once });
        let outcome = guarded(|| {
            let result = open(&image, &clock, &scenario.settings).and_then(|db| Ok((find(&db, &last.expected), db)));
            if let Ok((Ok(found), _)) = &result {
                last.expected.check(found)?;
            }
            if let Ok((_, db)) = result {
                let found = find(&db, &last.expected).map_err(|error| format!("the error stays: {error}"))?;
                last.expected.check(&found)?;
            }
            if !image.open_handles().is_empty() {
                return Err(format!("files are open after the close: {:?}", image.open_handles()));
            }
            recover(&image, &last.expected, &scenario.settings).map(drop)
        });
        if image.faults_fired() == 0 && kind == FaultKind::Eio && image.reading_ops() < read {
            break;
        }
        campaign.fired += usize::from(image.faults_fired() > 0);
        campaign.images += 1;
        if let Err(what) = outcome {
            campaign.fail(&label, "read fault", &what);
        }
    }
}
