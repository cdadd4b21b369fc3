//! The law of the ladder: at every instant a bin shows the aggregate of all measurements that were ever stored in it, whatever
//! became of them, but for those that a user deleted.
//!
//! A run inserts, moves the clock, sweeps, seals, compacts, deletes, changes rules and rungs, and cuts the power. After every step
//! every width is compared with aggregates over plain lists of rows ([`model`]).

mod model;
mod steps;

use crate::steps::Cut;
use crate::{Plan, check};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Decimal128Type;
use arrow::error::ArrowError;
use ebbtide::buckets::{RESULT_SUFFIXES, value_at};
use ebbtide::fs::sim::{SimFs, Variant};
use ebbtide::ttl::{
    Clock, Code, Comparison, ExpiryMode, Filter, Ladder, Precision, RuleSpec, Rung, Timestamp, Value, VirtualClock,
};
use ebbtide::{
    Collection, CollectionChange, CollectionOptions, Database, Deleted, Error, MetaFilter, RollupRequest, ScanRequest,
    Settings, TimeRange,
};
use model::{Bins, FIELDS, Field, Model, Row, Shown};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use steps::{Condition, LadderStep, NewRow, Run, Step, When, some_run};

const ROOT: &str = "/data/db";
const NAME: &str = "c";

/// Selects the bins of one meta.
#[derive(Debug)]
struct OfMeta(i64);

impl MetaFilter for OfMeta {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        Ok((0..metas.len()).map(|row| Some(value_at(metas.as_ref(), row) == Value::Int(self.0))).collect())
    }
}

struct World {
    fs: SimFs,
    clock: VirtualClock,
    db: Database,
    precision: Precision,
    model: Model,
    next_id: i64,
    checks: usize,
}

fn open(fs: &SimFs, clock: &VirtualClock) -> Database {
    let settings = Settings { wal_file_bytes_max: 2 << 10, segment_rows_max: 40, ..Settings::default() };
    let builder = Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(Arc::new(clock.clone())).settings(settings);
    builder.open().expect("the database opens")
}

fn rungs_of(step: &LadderStep) -> Ladder {
    let rungs = step.rungs.iter();
    let rungs = rungs.map(|(step, life)| Rung { step_seconds: *step, expire_after_seconds: *life }).collect();
    let ladder = Ladder::new(rungs);
    match fields_of(step) {
        Some(fields) => ladder.fields(fields),
        None => ladder,
    }
}

fn fields_of(step: &LadderStep) -> Option<BTreeSet<&'static str>> {
    let bits = step.fields?;
    let chosen: BTreeSet<_> =
        FIELDS.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0).map(|(_, f)| *f).collect();
    Some(if chosen.is_empty() { BTreeSet::from(["d"]) } else { chosen })
}

impl World {
    fn new(run: &Run) -> World {
        let fs = SimFs::new(ROOT);
        let clock = VirtualClock::new(Timestamp::parse("2024-01-01T12:00:00.5Z").expect("a time"));
        let db = open(&fs, &clock);
        let mode = if run.is_bucket_mode { ExpiryMode::Bucket } else { ExpiryMode::Exact };
        let mut options = CollectionOptions::new("t").meta_field("m").span_seconds(run.span_seconds);
        options = options.precision(run.precision).expiry(mode).ladder(rungs_of(&run.ladder));
        options.expire_after_seconds = run.own;
        db.create_collection(NAME, options).expect("the collection is made");
        let mut model = Model {
            per_second: run.precision.per_second(),
            own: run.own,
            partial: None,
            rows: Vec::new(),
            fields: None,
            rungs: Vec::new(),
            is_wide: false,
        };
        model.set_ladder(&run.ladder.rungs, fields_of(&run.ladder), 0);
        World { fs, clock, db, precision: run.precision, model, next_id: 0, checks: 0 }
    }

    fn run(&mut self, run: &Run) {
        for (number, step) in run.steps.iter().enumerate() {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.apply(step);
                self.check();
            }));
            if let Err(panic) = outcome {
                eprintln!("the step was number {number}: {step:?}");
                std::panic::resume_unwind(panic);
            }
        }
        assert_eq!(self.db.verify().expect("verifies").faults, Vec::<String>::new());
        self.reopen();
        self.check_widths(self.widths());
    }

    fn now(&self) -> i64 {
        self.clock.now().to_units_saturating(self.precision)
    }

    fn collection(&self) -> Collection {
        self.db.collection(NAME).expect("the collection is there")
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Insert(rows) => self.insert(rows),
            Step::Pass(seconds) => self.clock.set(self.clock.now().plus_seconds(*seconds)),
            Step::Sweep => self.sweep(),
            Step::SweepCut(cut) => {
                self.cut(cut, |db| db.sweep().map(drop));
                self.note_cut_sweep();
                self.check();
                self.sweep();
            }
            Step::Flush => self.db.flush().expect("flushes"),
            Step::Compact => self.db.compact(None).expect("compacts"),
            Step::CompactCut(cut) => self.cut(cut, |db| db.compact(None)),
            Step::Reopen => self.reopen(),
            Step::Crash(cut) => self.crash(cut),
            Step::Delete(condition) => self.delete(condition),
            Step::DeleteIntoLadder(condition) => self.delete_into_ladder(condition),
            Step::Own(e) => {
                let change = CollectionChange { expire_after_seconds: Some(*e), ..CollectionChange::default() };
                self.db.modify_collection(NAME, &change, None).expect("E");
                self.model.own = *e;
            }
            Step::Partial(e) => {
                if self.model.partial.take().is_some() {
                    self.db.drop_rule(NAME, "ones").expect("the rule is dropped");
                }
                if let Some(e) = e {
                    let filter = Filter::parse_partial(&Value::Object(vec![("m".into(), Value::Int(1))]), Some("m"));
                    let spec = RuleSpec::new("ones".to_owned(), *e, filter.expect("a filter"));
                    self.db.create_rules(NAME, vec![spec]).expect("a rule");
                }
                self.model.partial = *e;
            }
            Step::Ladder(step) => {
                let outcome = self.db.set_ladder(NAME, Some(rungs_of(step)), step.force);
                self.take_ladder(step, outcome);
            }
            Step::LadderCut(step, cut) => {
                let before = self.collection().snapshot().expect("a snapshot").ladder();
                let ladder = rungs_of(step);
                self.cut(cut, |db| match db.set_ladder(NAME, Some(ladder.clone()), true) {
                    Err(error) => Err(error),
                    Ok(()) => Ok(()),
                });
                let after = self.collection().snapshot().expect("a snapshot").ladder();
                assert!(after == before || after == Some(ladder.clone()), "there is a part of a change: {after:?}");
                if after == Some(ladder) {
                    self.model.set_ladder(&step.rungs, fields_of(step), self.now());
                }
            }
            Step::NoLadder { force } => {
                let losses = if *force { 0 } else { self.model.losses(&[]) };
                match self.db.set_ladder(NAME, None, *force) {
                    Ok(()) => {
                        assert_eq!(losses, 0, "bins were lost");
                        self.model.set_ladder(&[], None, self.now());
                    }
                    Err(error) => assert!(losses > 0 && error.code() == Code::InvalidOptions, "{error}"),
                }
            }
        }
    }

    fn take_ladder(&mut self, step: &LadderStep, outcome: Result<(), Error>) {
        let steps: Vec<i64> = step.rungs.iter().map(|rung| rung.0).collect();
        let losses = if step.force { 0 } else { self.model.losses(&steps) };
        match outcome {
            Ok(()) => {
                assert_eq!(losses, 0, "bins were lost");
                self.model.set_ladder(&step.rungs, fields_of(step), self.now());
            }
            Err(error) => assert!(losses > 0 && error.code() == Code::InvalidOptions, "{error}"),
        }
    }

    // Writes.

    fn time(&self, when: &When) -> i64 {
        const END_SECONDS: i64 = 2_147_483_648;
        let (now, second) = (self.now(), self.model.per_second);
        match when {
            When::Near(seconds, units) => now + seconds * second + units,
            When::Edge(width, bins, units) => {
                now.div_euclid(width * second) * width * second - bins * width * second + units
            }
            When::Again(row) => {
                let rows = &self.model.rows;
                rows.get(usize::from(*row) % rows.len().max(1)).map_or(now, |row| row.t)
            }
            When::Odd(which) => {
                let all = [-1, -400_000 * second, END_SECONDS * second, i64::MAX - 5, i64::MIN + 5];
                all[usize::from(*which) % all.len()]
            }
        }
    }

    fn insert(&mut self, rows: &[NewRow]) {
        let mut made = Vec::new();
        for new in rows {
            let i = new.i.map(Field::Int);
            let fields = [
                if new.widens { Some(Field::Double(0.5)) } else { i },
                new.d.map(Field::Double),
                new.s.map(|s| Field::Text(format!("s{s}"))),
                new.b.map(Field::Bool),
            ];
            made.push(Row { id: self.next_id, t: self.time(&new.when), m: new.m, fields });
            self.next_id += 1;
        }
        let documents: Vec<Value> = made.iter().map(|row| self.document(row)).collect();
        match self.collection().insert_documents(&documents) {
            Ok(_) => {
                self.model.is_wide |= rows.iter().any(|row| row.widens);
                self.model.rows.extend(made);
            }
            Err(error) => assert_eq!(error.code(), Code::TypeMismatch, "{error}"),
        }
    }

    fn document(&self, row: &Row) -> Value {
        let mut members = vec![
            ("t".into(), Value::Date(Timestamp::from_units(row.t, self.precision))),
            ("id".into(), Value::Int(row.id)),
        ];
        members.extend(row.m.map(|m| ("m".into(), Value::Int(m))));
        for (name, field) in FIELDS.iter().zip(&row.fields) {
            members.extend(field.as_ref().map(|field| {
                let value = match field {
                    Field::Int(i) => Value::Int(*i),
                    Field::Double(d) => Value::Double(*d),
                    Field::Text(text) => Value::String(text.clone()),
                    Field::Bool(b) => Value::Bool(*b),
                };
                ((*name).into(), value)
            }));
        }
        Value::Object(members)
    }

    fn range(&self, condition: &Condition) -> (i64, i64) {
        let at = |when: &Option<When>| when.as_ref().map(|when| self.time(when));
        (at(&condition.from).unwrap_or(i64::MIN), at(&condition.to).unwrap_or(i64::MAX))
    }

    fn filter(&self, condition: &Condition, with_field: bool) -> Filter {
        let (from, to) = self.range(condition);
        let date = |t| Value::Date(Timestamp::from_units(t, self.precision));
        let mut parts = Vec::new();
        parts.extend(condition.m.map(|m| Filter::eq("m", Value::Int(m))));
        parts.extend((from > i64::MIN).then(|| Filter::compare("t", Comparison::Gte, date(from))));
        parts.extend((to < i64::MAX).then(|| Filter::compare("t", Comparison::Lte, date(to))));
        parts.extend(condition.i.filter(|_| with_field).map(|i| Filter::eq("i", Value::Int(i))));
        Filter::and(parts)
    }

    fn delete(&mut self, condition: &Condition) {
        let Deleted { kept_bins, .. } =
            self.collection().delete_with_bins(&self.filter(condition, true)).expect("deletes");
        let kept = self.model.delete(condition.m, self.range(condition), condition.i);
        assert_eq!(kept_bins, kept, "bins that stay");
    }

    fn delete_into_ladder(&mut self, condition: &Condition) {
        self.collection().delete_into_ladder(&self.filter(condition, false)).expect("deletes");
        let now = self.now();
        self.model.delete_into_ladder(condition.m, self.range(condition), now);
    }

    // Sweeps and crashes.

    fn sweep(&mut self) {
        let report = self.db.sweep().expect("sweeps");
        assert_eq!((report.held, report.counts.failed_rules), (None, 0));
        self.model.sweep_rungs(self.now());
        self.note_drops();
        let stored = self.stored();
        let (now, model) = (self.now(), &self.model);
        let is_due = |row: &&Row| model.e(row.m).is_some_and(|e| model.hides(row.t, e, now)) && !model.is_suspended();
        let left = model.rows.iter().filter(is_due).filter(|row| stored.contains(&row.id)).count();
        let is_bounded_by_rows =
            self.collection().snapshot().expect("a snapshot").options().expiry == ExpiryMode::Exact;
        assert!(left == 0 || !is_bounded_by_rows || self.lives_beside(now), "what is due is still stored");
    }

    /// Whether something that is visible may keep hidden rows of its bucket.
    fn lives_beside(&self, now: i64) -> bool {
        let hides = |row: &Row| self.model.e(row.m).is_some_and(|e| self.model.hides(row.t, e, now));
        self.model.rows.iter().any(|row| !hides(row))
    }

    fn stored(&self) -> BTreeSet<i64> {
        let snapshot = self.collection().snapshot().expect("a snapshot");
        let request = ScanRequest { include_hidden: true, ..ScanRequest::default() };
        let mut ids = BTreeSet::new();
        for unit in snapshot.scan(&request).expect("scans") {
            for batch in unit.read().expect("reads") {
                let batch = batch.expect("a batch");
                let column = batch.column_by_name("id").expect("ids").clone();
                ids.extend((0..batch.num_rows()).map(|row| int(&value_at(column.as_ref(), row))));
            }
        }
        ids
    }

    /// Lets what a sweep has dropped decay in the model.
    fn note_drops(&mut self) {
        let (stored, now) = (self.stored(), self.now());
        let (kept, gone): (Vec<Row>, Vec<Row>) =
            std::mem::take(&mut self.model.rows).into_iter().partition(|row| stored.contains(&row.id));
        self.model.rows = kept;
        for row in &gone {
            let e = self.model.e(row.m);
            assert!(e.is_some_and(|e| self.model.hides(row.t, e, now)), "dropped and not expired: {row:?}");
        }
        self.model.decay(&gone, now);
    }

    /// Notes what a sweep that was cut off has dropped. It may have dropped bins of a rung before measurements decayed into it, which
    /// then would have kept the bins of their bucket: the number of bins that are stored tells.
    fn note_cut_sweep(&mut self) {
        let mut swept = self.model.clone();
        swept.sweep_rungs(self.now());
        self.note_drops();
        let unswept = std::mem::replace(&mut self.model, swept);
        self.note_drops();
        let stored = self.collection().snapshot().expect("a snapshot").rung_infos().expect("rungs");
        for (at, info) in stored.iter().enumerate() {
            if unswept.stored_bins(at) == info.bins {
                self.model.rungs[at] = unswept.rungs[at].clone();
            }
        }
    }

    fn reopen(&mut self) {
        self.db.clone().close().expect("closes");
        self.db = open(&self.fs, &self.clock);
    }

    fn crash(&mut self, cut: &Cut) {
        self.fs = self.fs.crash(cut.variant, cut.seed);
        self.db.clone().abandon();
        self.db = open(&self.fs, &self.clock);
    }

    fn cut(&mut self, cut: &Cut, act: impl FnOnce(&Database) -> Result<(), Error>) {
        self.fs.stop_after(self.fs.mutating_ops() + cut.after);
        if let Err(error) = act(&self.db) {
            assert!(self.fs.is_stopped(), "{error}");
        }
        self.crash(cut);
    }

    // Comparison.

    /// Compares the bins of two widths, others each time.
    fn check(&mut self) {
        let widths = self.widths();
        self.checks += 1;
        let some = |at: usize| widths.get((self.checks + at) % widths.len().max(1)).copied();
        self.check_widths([some(0), some(widths.len() / 2)].into_iter().flatten());
    }

    fn widths(&self) -> Vec<i64> {
        let finest = self.model.rungs.first().map(|rung| rung.step * 36);
        let widths = self.model.rungs.iter().flat_map(|rung| [rung.step, rung.step * 2]).chain(finest);
        widths.collect::<BTreeSet<i64>>().into_iter().collect()
    }

    fn check_widths(&self, widths: impl IntoIterator<Item = i64>) {
        let now = self.now();
        let snapshot = self.collection().snapshot().expect("a snapshot");
        assert_eq!(snapshot.ladder().is_none(), self.model.rungs.is_empty());
        for width in widths {
            let expected = self.model.rollup(width, now);
            let rollup = |request: RollupRequest| {
                let request = RollupRequest { width_seconds: width, ..request };
                self.read(&snapshot.rollup(&request).expect("a rollup"))
            };
            self.compare(&rollup(RollupRequest::default()), &expected, width);
            // Conditions take no part of a bin away.
            if let Some((_, middle)) = expected.keys().nth(expected.len() / 2) {
                let within: Bins =
                    expected.iter().filter(|((m, start), _)| start >= middle && *m == Some(1)).map(clone_of).collect();
                let meta: Arc<dyn MetaFilter> = Arc::new(OfMeta(1));
                let time = TimeRange::of_units(Some(*middle), None, self.precision);
                let found = rollup(RollupRequest { time, meta: Some(meta), ..RollupRequest::default() });
                self.compare(&found, &within, width);
                // Nor do those that begin or end within one.
                let first = middle.saturating_sub(1);
                let last = middle.saturating_add(self.model.per_second * width / 2);
                let within: Bins =
                    expected.iter().filter(|((_, start), _)| (first..=last).contains(start)).map(clone_of).collect();
                let time = TimeRange::of_units(Some(first), Some(last), self.precision);
                let found = rollup(RollupRequest { time, ..RollupRequest::default() });
                self.compare(&found, &within, width);
            }
        }
    }

    fn compare(&self, found: &BTreeMap<(Option<i64>, i64), Found>, expected: &Bins, width: i64) {
        let keys = |bins: BTreeSet<&(Option<i64>, i64)>| bins.into_iter().copied().collect::<Vec<_>>();
        let (of_found, of_expected) = (keys(found.keys().collect()), keys(expected.keys().collect()));
        assert_eq!(of_found, of_expected, "bins of {width} s at {}", self.clock.now());
        for (key, (measurements, fields)) in expected {
            let found = &found[key];
            assert_eq!(found.measurements, *measurements, "measurements of {key:?}, {width} s");
            for (at, field) in FIELDS.iter().enumerate() {
                if self.model.fields.as_ref().is_some_and(|fields| !fields.contains(field)) {
                    assert!(!found.fields.contains_key(field), "the ladder does not have '{field}'");
                    continue;
                }
                let of_field = found.fields.get(field);
                let what = format!("{field} of {key:?}, {width} s");
                match &fields[at] {
                    None => assert!(of_field.is_none_or(|found| found["count"] == Value::Int(0)), "{what}"),
                    Some(shown) => self.compare_field(of_field.unwrap_or_else(|| panic!("no {what}")), shown, &what),
                }
            }
        }
    }

    fn compare_field(&self, found: &BTreeMap<&'static str, Value>, shown: &Shown, what: &str) {
        let plain = |field: &Field| match field {
            Field::Int(i) => Value::Int(*i),
            Field::Double(d) => Value::Double(*d),
            Field::Text(text) => Value::String(text.clone()),
            Field::Bool(b) => Value::Bool(*b),
        };
        let date = |t| Value::Date(Timestamp::from_units(t, self.precision));
        let exact = [
            ("count", Value::Int(i64::try_from(shown.count).expect("few"))),
            ("min", plain(&shown.min)),
            ("max", plain(&shown.max)),
            ("first", plain(&shown.first.1)),
            ("first_time", date(shown.first.0)),
            ("last", plain(&shown.last.1)),
            ("last_time", date(shown.last.0)),
        ];
        for (suffix, expected) in exact {
            assert!(same(&found[suffix], &expected), "{what}: {suffix} is {:?}, not {expected:?}", found[suffix]);
        }
        if !matches!(shown.min, Field::Int(_) | Field::Double(_)) {
            return;
        }
        let (sum, avg, deviation) = (number(&found["sum"]), number(&found["avg"]), &found["stddev"]);
        let (count, total): (f64, f64) = (shown.count as f64, shown.values.iter().sum());
        if !total.is_finite() {
            for of in [sum, avg] {
                assert!(of == total || (of.is_nan() && total.is_nan()), "{what}: {of} is not {total}");
            }
            return;
        }
        let sizes: f64 = shown.values.iter().map(|v| v.abs()).sum();
        assert!((sum - total).abs() <= 1e-12 * sizes, "{what}: the sum {sum} is not {total}");
        assert!((avg - total / count).abs() <= 1e-12 * sizes, "{what}: the mean {avg} is not {}", total / count);
        if shown.count == 1 {
            return assert_eq!(*deviation, Value::Null, "{what}");
        }
        let mean = total / count;
        let expected = (shown.values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (count - 1.0)).sqrt();
        let near = 1e-9 * expected + 1e-9 * shown.values.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        assert!((number(deviation) - expected).abs() <= near, "{what}: {deviation:?} is not {expected}");
    }

    fn read(&self, batches: &[RecordBatch]) -> BTreeMap<(Option<i64>, i64), Found> {
        let batch = concat_batches(batches[0].schema_ref(), batches).expect("batches of one schema");
        let mut bins = BTreeMap::new();
        let column = |name: &str| batch.column_by_name(name);
        let (start, meta, count) = (column("t").expect("starts"), column("m"), column("measurements").expect("counts"));
        let named = FIELDS.iter().flat_map(|field| RESULT_SUFFIXES.map(|suffix| (*field, suffix)));
        let of_fields: Vec<(&str, &str, &ArrayRef)> =
            named.filter_map(|(field, suffix)| Some((field, suffix, column(&format!("{field}_{suffix}"))?))).collect();
        for row in 0..batch.num_rows() {
            let Value::Date(start) = value_at(start.as_ref(), row) else { panic!("a bin without a start") };
            let m = meta.map(|m| value_at(m.as_ref(), row)).and_then(|m| (!m.is_null()).then(|| int(&m)));
            let mut fields: BTreeMap<&'static str, BTreeMap<&'static str, Value>> = BTreeMap::new();
            for (field, suffix, column) in &of_fields {
                let value = match column.as_primitive_opt::<Decimal128Type>() {
                    Some(sums) if sums.is_null(row) => Value::Null,
                    Some(sums) => Value::Double(sums.value(row) as f64),
                    None => value_at(column.as_ref(), row),
                };
                fields.entry(field).or_default().insert(suffix, value);
            }
            let measurements = usize::try_from(int(&value_at(count.as_ref(), row))).expect("a count");
            let start = start.to_units_saturating(self.precision);
            let found = Found { measurements, fields };
            assert!(bins.insert((m, start), found).is_none(), "a bin is there twice: {m:?} {start}");
        }
        bins
    }
}

/// What the engine shows of a bin.
struct Found {
    measurements: usize,
    fields: BTreeMap<&'static str, BTreeMap<&'static str, Value>>,
}

fn clone_of<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}

fn int(value: &Value) -> i64 {
    match value {
        Value::Int(i) => *i,
        other => panic!("{other:?} is no whole number"),
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Int(i) => *i as f64,
        Value::Double(d) => *d,
        other => panic!("{other:?} is no number"),
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.total_cmp(b).is_eq(),
        (a, b) => a == b,
    }
}

/// Runs of the law.
pub(crate) fn runs(plan: Plan) -> Result<(), String> {
    check(plan, some_run(), |run| World::new(&run).run(&run))
}

/// A quarter of the runs, each with a seed of its own, so that they run side by side.
fn quarter(number: u64) {
    const CASES: u32 = 500;
    let plan = Plan::of(CASES);
    runs(Plan { seed: plan.seed + number, ..plan }).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn every_bin_is_the_aggregate_of_its_history() {
    quarter(0);
}

#[test]
fn every_bin_is_the_aggregate_of_its_history_in_the_second_quarter() {
    quarter(1);
}

#[test]
fn every_bin_is_the_aggregate_of_its_history_in_the_third_quarter() {
    quarter(2);
}

#[test]
fn every_bin_is_the_aggregate_of_its_history_in_the_last_quarter() {
    quarter(3);
}

/// A sweep that decays into three rungs, cut off at each of its writes.
#[test]
fn a_crash_at_any_write_of_a_decaying_sweep_keeps_every_bin() {
    let ladder = LadderStep { rungs: vec![(10, Some(300)), (60, Some(600)), (3600, None)], fields: None, force: false };
    let row = |seconds: i64, m: i64| NewRow {
        when: When::Near(seconds, 0),
        m: Some(m),
        i: Some(seconds),
        d: Some(seconds as f64 / 8.0),
        s: Some(1),
        b: Some(true),
        widens: false,
    };
    let late = |from: i64| Step::Insert((0..12).map(|at| row(from + at * 17, at % 3)).collect());
    let before = vec![late(-900), Step::Flush, Step::Own(Some(30)), Step::Sweep, late(-500), Step::Flush, late(-200)];
    let run =
        Run { precision: Precision::Ms, span_seconds: 60, is_bucket_mode: false, own: None, ladder, steps: before };
    let mut world = World::new(&run);
    run.steps.iter().for_each(|step| world.apply(step));
    world.db.clone().close().expect("closes");
    let (fs, model) = (world.fs.clone(), world.model.clone());
    for after in 0.. {
        // Each write with another of the ways in which a power cut can go.
        let variants = Variant::WITHIN_CONTRACT;
        let variant = variants[usize::try_from(after).expect("few") % variants.len()];
        (world.fs, world.model) = (fs.fork(), model.clone());
        world.db = open(&world.fs, &world.clock);
        world.fs.stop_after(world.fs.mutating_ops() + after);
        let outcome = world.db.sweep();
        let is_over = !world.fs.is_stopped();
        assert!(outcome.is_ok() || !is_over, "{outcome:?}");
        world.crash(&Cut { after, variant, seed: after });
        world.note_drops();
        world.check();
        world.sweep();
        world.check();
        if is_over {
            assert!(after > 20, "a sweep of {after} writes");
            break;
        }
    }
}
