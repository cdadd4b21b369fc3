//! Runs steps on the engine and on the model, and compares the two after each.

use crate::compare::{check_bounded, check_buckets, check_explained, check_rules, scanned};
use crate::meta::{Chosen, Family, Meta, MetaFilter};
use crate::model::{Due, Key, Model, RANGE_END_SECONDS, Row, Rule, Rules, Seen};
use crate::steps::{Action, Change, Cut, Delete, Fault, NewRow, Run, Setup, Step, SweepPlan, When};
use crate::write::{batch, document};
use ebbtide::fs::{Fs, sim::SimFs};
use ebbtide::ttl::{
    Bucketing, Clock, Code, ExpiryMode, OutOfRange, RuleSelector, RuleSpec, Timestamp, Value, VirtualClock,
};
use ebbtide::{
    Collection, CollectionChange, CollectionOptions, Database, Error, RuleChange, ScanRequest, Settings, Snapshot,
    SweepOptions, TtlMetrics,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ROOT: &str = "/data/db";
const TOLERANCE: i128 = 3_600 * 1_000_000_000;
const HELD_MAX: usize = 3;

/// A collection of the engine beside its model.
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) family: Family,
    pub(crate) model: Model,
}

/// A row on its way in: the instant given for it, the row to come of it, and how its meta is spelled.
pub(crate) type Resolved = (Timestamp, Row, u8);

/// A snapshot that somebody keeps, and what it has to go on showing.
struct Held {
    snapshot: Snapshot,
    seen: Vec<Vec<Seen>>,
}

/// The clock that an engine goes by, in the place of the true one.
pub(crate) type ClockOf = fn(&VirtualClock) -> Arc<dyn Clock>;

pub(crate) struct World {
    fs: SimFs,
    clock: VirtualClock,
    clock_of: ClockOf,
    db: Database,
    pub(crate) pairs: Vec<Pair>,
    held: Vec<Held>,
    next_id: i64,
    next_rule: usize,
    /// Wall and monotonic clock when the guard last looked.
    looked: (i128, i128),
    /// Counters since the last open.
    counted: TtlMetrics,
    /// Buckets and measurements in the history of drops, which outlives opens.
    history: (u64, u64),
}

fn open(fs: &SimFs, clock: Arc<dyn Clock>) -> Database {
    // A small log and small segments, so that short runs cross their limits.
    let settings = Settings { wal_file_bytes_max: 2 << 10, segment_rows_max: 40, ..Settings::default() };
    let builder = Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(clock).settings(settings);
    builder.open().expect("the database opens")
}

fn name_of(index: usize) -> String {
    format!("c{index}")
}

impl World {
    pub(crate) fn new(setups: &[Setup]) -> World {
        World::planted(setups, |clock| Arc::new(clock.clone()))
    }

    /// A world whose engine has a bug.
    pub(crate) fn planted(setups: &[Setup], clock_of: ClockOf) -> World {
        let fs = SimFs::new(ROOT);
        let clock = VirtualClock::new(Timestamp::parse("2024-01-01T12:00:00.5Z").expect("a time"));
        let db = open(&fs, clock_of(&clock));
        let mut world = World {
            clock_of,
            looked: (clock.now().nanos(), clock.monotonic().as_nanos() as i128),
            fs,
            clock,
            db,
            pairs: Vec::new(),
            held: Vec::new(),
            next_id: 0,
            next_rule: 0,
            counted: TtlMetrics::default(),
            history: (0, 0),
        };
        for (index, setup) in setups.iter().enumerate() {
            world.create(index, setup);
        }
        world
    }

    fn create(&mut self, index: usize, setup: &Setup) {
        let name = name_of(index);
        let mut options = CollectionOptions::new("t")
            .span_seconds(setup.span_seconds)
            .precision(setup.precision)
            .expiry(setup.mode)
            .out_of_range(setup.out_of_range);
        if setup.family != Family::Absent {
            options = options.meta_field("m");
        }
        options.expire_after_seconds = setup.own;
        self.db.create_collection(&name, options).expect("the collection is made");
        self.pairs.push(Pair {
            name,
            family: setup.family,
            model: Model {
                precision: setup.precision,
                span_seconds: setup.span_seconds,
                mode: setup.mode,
                out_of_range: setup.out_of_range,
                rules: Rules { own: setup.own, partial: Vec::new() },
                rows: Vec::new(),
            },
        });
        for (e, filter) in &setup.partial {
            self.create_rule(index, *e, filter);
        }
    }

    pub(crate) fn run(&mut self, run: &Run) {
        self.check();
        for (number, step) in run.steps.iter().enumerate() {
            let of = step.of % self.pairs.len();
            self.apply(of, step);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.check()));
            if let Err(panic) = outcome {
                eprintln!("the step before was number {number}: {step:?}");
                std::panic::resume_unwind(panic);
            }
        }
        self.finish();
    }

    /// What has to hold at the end of every run: nothing is damaged, a reader and the next writer see the same.
    fn finish(&mut self) {
        assert_eq!(self.db.verify().expect("verifies").faults, Vec::<String>::new());
        let fs: Arc<dyn Fs> = Arc::new(self.fs.fork());
        let reader = Database::builder(ROOT).fs(fs).clock((self.clock_of)(&self.clock)).read_only().open();
        let snapshot = reader.expect("opens for reading").snapshot();
        for pair in &self.pairs {
            let snapshot = snapshot.collection(&pair.name).expect("the collection is there");
            let seen = scanned(&snapshot, &pair.model, &ScanRequest::default());
            assert_eq!(seen, pair.model.seen(self.now()), "what a reader sees");
        }
        self.reopen();
        self.check();
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn collection(&self, of: usize) -> Collection {
        self.db.collection(&self.pairs[of].name).expect("the collection is there")
    }

    pub(crate) fn apply(&mut self, of: usize, step: &Step) {
        match &step.action {
            Action::Insert { rows, columnar } => self.insert(of, rows, *columnar),
            Action::InsertFaulty { rows, at, fault } => self.insert_faulty(of, rows, *at, *fault),
            Action::Pass(seconds) => self.clock.set(self.now().plus_seconds(*seconds)),
            Action::ToExpiry(bucket, units) => self.pass_to_expiry(of, *bucket, *units),
            Action::Jump(seconds) => self.clock.jump(self.now().plus_seconds(*seconds)),
            Action::Confirm => {
                self.db.confirm_clock();
                self.look();
            }
            Action::Sweep(plan) => self.sweep(plan),
            Action::SweepCut(cut) => {
                self.cut(cut, |db| db.sweep().map(drop));
                self.sweep(&SweepPlan { limit: 0, one_round: false, max_sub_passes: None });
            }
            Action::Flush => self.db.flush().expect("flushes"),
            Action::FlushCut(cut) => self.cut(cut, Database::flush),
            Action::Compact => self.db.compact(None).expect("compacts"),
            Action::CompactCut(cut) => self.cut(cut, |db| db.compact(None)),
            Action::Reopen => self.reopen(),
            Action::Crash(cut) => {
                self.fs = self.fs.crash(cut.variant, cut.seed);
                self.opened_anew();
            }
            Action::Delete(delete) => self.delete(of, delete),
            Action::Change(change) => self.change(of, change),
            Action::Hold => self.hold(),
        }
    }

    // Inserts.

    fn instant(&self, of: usize, when: &When, meta: &mut Meta) -> Timestamp {
        let model = &self.pairs[of].model;
        let now = self.now();
        let unit = model.nanos(1);
        let second = 1_000_000_000;
        match when {
            When::Near(seconds, nanos) => {
                Timestamp::from_nanos(now.nanos() + i128::from(*seconds) * second + i128::from(*nanos))
            }
            When::Edge(rule, units) => {
                let labels = model.rules.labels();
                let e = labels.get(usize::from(*rule) % labels.len().max(1)).map_or(0, |(_, e)| *e);
                Timestamp::from_nanos(now.nanos() - i128::from(e) * second + i128::from(*units) * unit)
            }
            When::WindowEdge(end, units) => {
                let window = model.window(model.units(now).unwrap_or(0));
                let edge = if end % 2 == 0 { window.0 } else { window.1 };
                Timestamp::from_nanos(model.nanos(edge) + i128::from(*units) * unit)
            }
            When::Again(row) => match model.rows.get(usize::from(*row) % model.rows.len().max(1)) {
                Some(row) => {
                    *meta = row.meta.clone();
                    Timestamp::from_nanos(model.nanos(row.t))
                }
                None => now,
            },
            When::Odd(which) => {
                let end = RANGE_END_SECONDS * second;
                let far = model.nanos(i64::MAX);
                let near = model.nanos(i64::MIN);
                let all =
                    [0, -unit, -1, end - unit, end, end + 86_400 * second, -400_000 * second, far, near, far - unit];
                Timestamp::from_nanos(all[usize::from(*which) % all.len()])
            }
        }
    }

    /// Makes the rows of names for them.
    pub(crate) fn resolve(&mut self, of: usize, rows: &[NewRow]) -> Vec<Resolved> {
        let pool = self.pairs[of].family.pool();
        let mut resolved = Vec::new();
        for row in rows {
            let mut meta = pool[usize::from(row.meta) % pool.len()].clone();
            let at = self.instant(of, &row.when, &mut meta);
            let model = &self.pairs[of].model;
            // What the precision cannot hold is another test's business.
            let Some(t) = model.units(at) else { continue };
            let window = model.window(t);
            // An id names a row; that of a duplicate is new, so that both can be told apart where that matters.
            self.next_id += 1;
            resolved.push((at, Row { t, meta, id: self.next_id, k: row.k, window }, row.spelling));
        }
        resolved
    }

    fn insert(&mut self, of: usize, rows: &[NewRow], columnar: bool) {
        let resolved = self.resolve(of, rows);
        self.insert_resolved(of, resolved, columnar);
    }

    pub(crate) fn insert_resolved(&mut self, of: usize, resolved: Vec<Resolved>, columnar: bool) {
        let pair = &self.pairs[of];
        let collection = self.collection(of);
        let columnar = columnar && matches!(pair.family, Family::Absent | Family::Ints | Family::Texts);
        let outcome = match columnar {
            true => collection.insert(&batch(pair, &resolved)),
            false => collection.insert_documents(&resolved.iter().map(document).collect::<Vec<_>>()),
        };
        let refused = match pair.model.out_of_range {
            OutOfRange::Reject => resolved.iter().position(|(_, row, _)| !pair.model.in_range(row.t)),
            _ => None,
        };
        match refused {
            Some(index) => {
                let error = outcome.expect_err("a time out of range is refused");
                assert_eq!((error.code(), error.index()), (Code::BadValue, Some(index)), "{error}");
            }
            None => {
                assert_eq!(outcome.expect("the insert is accepted"), resolved.len() as u64);
                self.pairs[of].model.rows.extend(resolved.into_iter().map(|(_, row, _)| row));
            }
        }
    }

    fn insert_faulty(&mut self, of: usize, rows: &[NewRow], at: u8, fault: Fault) {
        let resolved = self.resolve(of, rows);
        if resolved.is_empty() || self.pairs[of].model.out_of_range == OutOfRange::Reject {
            return;
        }
        let mut documents: Vec<Value> = resolved.iter().map(document).collect();
        let at = usize::from(at) % documents.len();
        let Value::Object(members) = &mut documents[at] else { unreachable!("made as an object") };
        let code = match fault {
            Fault::NoTime => {
                members.retain(|(name, _)| name != "t");
                Code::BadValue
            }
            Fault::TextAsTime => {
                members.retain(|(name, _)| name != "t");
                members.push(("t".into(), Value::from("2024-01-01")));
                Code::BadValue
            }
            Fault::TextAsNumber => {
                // In the first batch of all, the text would be the field's type and the numbers after it wrong.
                if at == 0 || documents.len() < 2 {
                    return;
                }
                let Value::Object(members) = &mut documents[at] else { unreachable!("made as an object") };
                members.retain(|(name, _)| name != "k");
                members.push(("k".into(), Value::from("two")));
                Code::TypeMismatch
            }
        };
        let error = self.collection(of).insert_documents(&documents).expect_err("a faulty measurement is refused");
        assert_eq!((error.code(), error.index()), (code, Some(at)), "{error}");
        assert!(error.to_string().contains(&format!("index {at}")), "{error}");
    }

    // Clock and opening.

    fn pass_to_expiry(&mut self, of: usize, bucket: u8, units: i64) {
        let model = &self.pairs[of].model;
        let buckets = model.buckets();
        let Some((key, rows)) = buckets.iter().nth(usize::from(bucket) % buckets.len().max(1)) else { return };
        let Some((_, e)) = model.rules.effective(&key.0) else { return };
        let at = Timestamp::from_nanos(model.expires_at(key, rows, e).nanos() + i128::from(units) * model.nanos(1));
        // Not to the ends of time: a clock is set to what people live through.
        let (first, last) = (self.now().plus_seconds(-40_000_000), self.now().plus_seconds(40_000_000));
        if first < at && at < last {
            self.clock.set(at);
        }
    }

    fn monotonic(&self) -> i128 {
        self.clock.monotonic().as_nanos() as i128
    }

    fn look(&mut self) {
        self.looked = (self.now().nanos(), self.monotonic());
    }

    fn is_held(&self) -> bool {
        (self.now().nanos() - self.looked.0) - (self.monotonic() - self.looked.1) > TOLERANCE
    }

    fn reopen(&mut self) {
        self.held.clear();
        self.db.clone().close().expect("closes");
        self.db = open(&self.fs, (self.clock_of)(&self.clock));
        self.counted = TtlMetrics::default();
        self.look();
    }

    /// Opens the database on a disk that took the place of the one before.
    fn opened_anew(&mut self) {
        self.held.clear();
        self.db.clone().abandon();
        self.db = open(&self.fs, (self.clock_of)(&self.clock));
        self.counted = TtlMetrics::default();
        self.look();
    }

    /// Does something that is cut off by a power cut in its midst.
    fn cut(&mut self, cut: &Cut, act: impl FnOnce(&Database) -> Result<(), Error>) {
        self.held.clear();
        self.fs.stop_after(self.fs.mutating_ops() + cut.after);
        let before = self.db.sweeps().len();
        let outcome = act(&self.db);
        if let Err(error) = outcome {
            assert!(self.fs.is_stopped(), "{error}");
        }
        self.fs = self.fs.crash(cut.variant, cut.seed);
        self.opened_anew();
        // A drop that was cut off happened as a whole or not at all; the history says which.
        let sweeps = self.db.sweeps();
        assert!(sweeps.len() >= before, "the history of drops lost a record");
        let (mut buckets, mut measurements) = (0, 0);
        for record in &sweeps[before..] {
            buckets += record.buckets;
            measurements += record.measurements;
        }
        let now = self.now();
        let mut gone = (0, 0);
        for of in 0..self.pairs.len() {
            let listed = self.listed(of);
            let pair = &mut self.pairs[of];
            let due: BTreeMap<Key, Due> =
                pair.model.due(now, &pair.model.rules).into_iter().map(|due| (due.key.clone(), due)).collect();
            let lost: BTreeSet<Key> = pair.model.buckets().into_keys().filter(|key| !listed.contains(key)).collect();
            for key in &lost {
                let due = due.get(key).unwrap_or_else(|| panic!("a bucket that was not due is gone: {key:?}"));
                gone = (gone.0 + 1, gone.1 + due.rows);
            }
            pair.model.drop_buckets(&lost);
        }
        assert_eq!(gone, (buckets, measurements), "the history of drops is not what is gone");
        self.history = (self.history.0 + buckets, self.history.1 + measurements);
    }

    // Sweeps.

    pub(crate) fn listed(&self, of: usize) -> BTreeSet<Key> {
        let pair = &self.pairs[of];
        let snapshot = self.collection(of).snapshot().expect("a snapshot");
        let buckets = snapshot.buckets().expect("a listing");
        let units = |at: Timestamp| pair.model.units(at).expect("a time of the collection");
        buckets.iter().map(|b| (Meta::of(&b.meta), units(b.window_start), units(b.window_end))).collect()
    }

    pub(crate) fn sweep(&mut self, plan: &SweepPlan) {
        let now = self.now();
        let set = |name: &str, value: i64| drop(self.db.set_parameter(name, &Value::Int(value)).expect("a parameter"));
        set("ttlIndexDeleteTargetDocs", plan.limit);
        set("ttlMonitorSubPassTargetSecs", if plan.one_round { 0 } else { 60 });
        assert_eq!(self.db.clock_held().is_some(), self.is_held());
        let due: Vec<Vec<Due>> = self.pairs.iter().map(|p| p.model.due(now, &p.model.rules)).collect();
        let before: Vec<Vec<Seen>> = (0..self.pairs.len()).map(|of| self.seen(of)).collect();

        let report = self
            .db
            .sweep_with(&SweepOptions { max_sub_passes: plan.max_sub_passes, ..SweepOptions::default() })
            .expect("sweeps");
        let counts = report.counts;
        assert_eq!(report.held.is_some(), self.is_held());
        if report.held.is_some() {
            assert_eq!(counts, TtlMetrics::default(), "a held sweep does nothing");
            return;
        }
        self.look();
        self.check_counts(plan, &due, &counts);
        for (of, due) in due.iter().enumerate() {
            let listed = self.listed(of);
            let pair = &mut self.pairs[of];
            let gone: BTreeSet<Key> = pair.model.buckets().into_keys().filter(|key| !listed.contains(key)).collect();
            // Law 1: nothing goes early.
            for key in &gone {
                assert!(due.iter().any(|due| due.key == *key), "dropped but not due: {key:?} at {now}");
            }
            // Law 2: nothing stays for ever.
            if plan.max_sub_passes.is_none() {
                assert_eq!(gone.len(), due.len(), "due but not dropped, at {now}: {due:?}");
            }
            pair.model.drop_buckets(&gone);
            if pair.model.mode == ExpiryMode::Exact {
                // Law 8: in mode `exact` no reader sees whether a sweep has run.
                assert_eq!(self.seen(of), before[of]);
            }
        }
        self.history.0 += counts.deleted_buckets;
        self.history.1 += counts.deleted_documents;
        // Law 3: a second pass at the same instant has nothing to do.
        if plan.max_sub_passes.is_none() {
            let again = self.db.sweep().expect("sweeps again").counts;
            assert_eq!((again.deleted_buckets, again.deleted_documents, again.sub_passes), (0, 0, 1));
            add(&mut self.counted, &again);
        }
        add(&mut self.counted, &counts);
    }

    /// The counts of a pass follow from what was due and from its limits alone.
    fn check_counts(&self, plan: &SweepPlan, due: &[Vec<Due>], counts: &TtlMetrics) {
        let mut by_rule: BTreeMap<(usize, &str), u64> = BTreeMap::new();
        for (of, due) in due.iter().enumerate() {
            for due in due {
                *by_rule.entry((of, due.rule.as_str())).or_default() += 1;
            }
        }
        let limit = u64::try_from(plan.limit).expect("a limit is not negative");
        let sub_passes_max = plan.max_sub_passes.unwrap_or(u64::MAX);
        let (mut buckets, mut sub_passes) = (0, 1);
        for due in by_rule.into_values() {
            if limit == 0 || !plan.one_round {
                buckets += due;
            } else {
                buckets += due.min(limit.saturating_mul(sub_passes_max));
                sub_passes = sub_passes.max((due / limit + 1).min(sub_passes_max));
            }
        }
        assert_eq!((counts.passes, counts.failed_rules), (1, 0));
        assert_eq!((counts.deleted_buckets, counts.sub_passes), (buckets, sub_passes), "{plan:?}");
        if plan.max_sub_passes.is_none() {
            let rows: u64 = due.iter().flatten().map(|due| due.rows).sum();
            assert_eq!(counts.deleted_documents, rows);
        }
        assert_eq!(counts.deleted_buckets > 0, counts.deleted_bytes > 0);
    }

    // Deletes and changes.

    fn delete(&mut self, of: usize, delete: &Delete) {
        let nothing = Chosen { meta: None, from: None, to: None, k: None };
        let now = self.now();
        let family = Family::ALL.iter().position(|f| *f == self.pairs[of].family).expect("one of all");
        let chosen = match delete {
            Delete::All => nothing,
            Delete::OutOfRange => {
                let end = Timestamp::from_nanos(RANGE_END_SECONDS * 1_000_000_000);
                self.delete_chosen(of, &Chosen { from: Some(end), ..nothing.clone() });
                Chosen { to: Some(Timestamp::EPOCH), ..nothing }
            }
            Delete::Older(seconds) => Chosen { to: Some(now.plus_seconds(*seconds)), ..nothing },
            Delete::Newer(seconds) => Chosen { from: Some(now.plus_seconds(*seconds)), ..nothing },
            Delete::Numbered(k) => Chosen { k: Some(*k), ..nothing },
            Delete::Metas(_) if self.pairs[of].family == Family::Absent => return,
            Delete::Metas(filters) => Chosen { meta: Some(filters[family].clone()), ..nothing },
        };
        self.delete_chosen(of, &chosen);
    }

    fn delete_chosen(&mut self, of: usize, chosen: &Chosen) {
        let model = &self.pairs[of].model;
        let visible = model.visible(self.now()).into_iter().filter(|row| model.is_chosen(chosen, row)).count();
        let deleted = self.collection(of).delete(&chosen.parsed()).expect("deletes");
        assert_eq!(deleted, visible as u64, "{chosen:?}");
        let model = &mut self.pairs[of].model;
        let kept = model.rows.iter().filter(|row| !model.is_chosen(chosen, row)).cloned().collect();
        model.rows = kept;
    }

    fn create_rule(&mut self, of: usize, e: i64, filter: &MetaFilter) {
        self.next_rule += 1;
        let rule = Rule { name: format!("r{}", self.next_rule), e, filter: filter.clone() };
        let spec = RuleSpec::new(rule.name.clone(), e, filter.parsed());
        match self.db.create_rules(&self.pairs[of].name, vec![spec]) {
            Ok(_) => self.pairs[of].model.rules.partial.push(rule),
            // The same filter as another rule's, in another spelling.
            Err(error) => assert_eq!(error.code(), Code::IndexOptionsConflict, "{error}"),
        }
    }

    fn change(&mut self, of: usize, change: &Change) {
        let before: BTreeSet<Seen> = self.seen(of).into_iter().collect();
        let name = self.pairs[of].name.clone();
        let rules = self.pairs[of].model.rules.partial.len();
        let chosen = |rule: u8| (rules > 0).then(|| usize::from(rule) % rules);
        let modify = |change: CollectionChange| self.db.modify_collection(&name, &change, None);
        let family = Family::ALL.iter().position(|f| *f == self.pairs[of].family).expect("one of all");
        match change {
            Change::Own(e) => {
                modify(CollectionChange { expire_after_seconds: Some(*e), ..CollectionChange::default() }).expect("E");
                self.pairs[of].model.rules.own = *e;
            }
            Change::Create(..) if self.pairs[of].family == Family::Absent => {}
            Change::Create(e, filters) => {
                self.create_rule(of, *e, &filters[family]);
                // Law 4: another rule never makes data live longer.
                assert!(self.seen(of).into_iter().all(|seen| before.contains(&seen)));
            }
            Change::Drop(rule) => {
                let Some(at) = chosen(*rule) else { return };
                let rule = self.pairs[of].model.rules.partial.remove(at);
                self.db.drop_rule(&name, &rule.name).expect("the rule is dropped");
                // Law 4: one rule less never makes data live shorter.
                let after: BTreeSet<Seen> = self.seen(of).into_iter().collect();
                assert!(before.is_subset(&after));
            }
            Change::DropAll => {
                self.db.drop_rules(&name).expect("the rules are dropped");
                self.pairs[of].model.rules.partial.clear();
            }
            Change::Retime(rule, e) => {
                let Some(at) = chosen(*rule) else { return };
                let selector = RuleSelector::Name(self.pairs[of].model.rules.partial[at].name.clone());
                let rule = RuleChange::new(selector).expire_after_seconds(*e);
                self.db.modify_collection(&name, &CollectionChange::default(), Some(&rule)).expect("the rule's E");
                self.pairs[of].model.rules.partial[at].e = *e;
            }
            Change::OutOfRange(option) => {
                modify(CollectionChange { out_of_range: Some(*option), ..CollectionChange::default() })
                    .expect("option");
                self.pairs[of].model.out_of_range = *option;
            }
            Change::Mode(mode) => {
                modify(CollectionChange { expiry: Some(*mode), ..CollectionChange::default() }).expect("the mode");
                self.pairs[of].model.mode = *mode;
            }
            Change::Span(span_seconds) => {
                let bucketing = Some(Bucketing::Custom { span_seconds: *span_seconds });
                let outcome = modify(CollectionChange { bucketing, ..CollectionChange::default() });
                let model = &mut self.pairs[of].model;
                if *span_seconds >= model.span_seconds {
                    outcome.expect("a span may grow");
                    model.span_seconds = *span_seconds;
                } else {
                    assert_eq!(outcome.expect_err("a span may not shrink").code(), Code::InvalidOptions);
                }
            }
            Change::Refused(e) => {
                let missing = RuleSelector::Name("no such rule".to_owned());
                let rule = RuleChange::new(missing).expire_after_seconds(*e);
                let change = CollectionChange {
                    expire_after_seconds: Some(Some(*e)),
                    expiry: Some(ExpiryMode::Bucket),
                    out_of_range: Some(OutOfRange::Expire),
                    ..CollectionChange::default()
                };
                let error = self.db.modify_collection(&name, &change, Some(&rule)).expect_err("no such rule");
                assert_eq!(error.code(), Code::IndexNotFound);
            }
        }
    }

    fn hold(&mut self) {
        if self.held.len() == HELD_MAX {
            self.held.remove(0);
        }
        let now = self.now();
        let seen = self.pairs.iter().map(|pair| pair.model.seen(now)).collect();
        self.held.push(Held { snapshot: self.db.snapshot(), seen });
    }

    // Comparison.

    pub(crate) fn seen(&self, of: usize) -> Vec<Seen> {
        let snapshot = self.collection(of).snapshot().expect("a snapshot");
        scanned(&snapshot, &self.pairs[of].model, &ScanRequest::default())
    }

    /// Compares everything that the engine shows with the model.
    pub(crate) fn check(&self) {
        let now = self.now();
        let whole = self.db.snapshot();
        for pair in &self.pairs {
            let (model, snapshot) = (&pair.model, whole.collection(&pair.name).expect("the collection is there"));
            let seen = model.seen(now);
            assert_eq!(scanned(&snapshot, model, &ScanRequest::default()), seen, "what is visible at {now}");
            assert_eq!(snapshot.count().expect("counts"), seen.len() as u64);
            let hidden = ScanRequest { include_hidden: true, ..ScanRequest::default() };
            assert_eq!(scanned(&snapshot, model, &hidden), model.stored(), "what is stored");
            assert_eq!(snapshot.suspended(), model.suspended());
            check_bounded(&snapshot, model, now);
            check_buckets(&snapshot, model, now);
            check_rules(&snapshot, model, now);
            for seconds in [0, 60, 86_400, 4_000_000_000] {
                check_explained(&snapshot, model, now.plus_seconds(seconds), None);
            }
            let proposed = Rules { own: Some(30), partial: model.rules.partial.clone() };
            check_explained(&snapshot, model, now, Some(&proposed));
        }
        for held in &self.held {
            for (pair, seen) in self.pairs.iter().zip(&held.seen) {
                let snapshot = held.snapshot.collection(&pair.name).expect("the collection is there");
                assert_eq!(scanned(&snapshot, &pair.model, &ScanRequest::default()), *seen, "a snapshot changed");
            }
        }
        // Law 9: counters only grow, by what the passes reported.
        let counted = self.db.metrics().ttl;
        assert_eq!(TtlMetrics { duration_micros: 0, ..counted }, TtlMetrics { duration_micros: 0, ..self.counted });
        let history = self.db.sweeps();
        let sums = (history.iter().map(|r| r.buckets).sum(), history.iter().map(|r| r.measurements).sum());
        assert_eq!(sums, self.history, "the history of drops");
    }
}

fn add(to: &mut TtlMetrics, pass: &TtlMetrics) {
    to.passes += pass.passes;
    to.sub_passes += pass.sub_passes;
    to.deleted_documents += pass.deleted_documents;
    to.deleted_buckets += pass.deleted_buckets;
    to.deleted_bytes += pass.deleted_bytes;
    to.reclaimed_files += pass.reclaimed_files;
    to.failed_rules += pass.failed_rules;
    to.duration_micros += pass.duration_micros;
}
