//! Runs steps on the engine and on the map, and compares the two after each.

use crate::model::{Kept, Model};
use crate::steps::{Cut, Rule, Step, Which};
use ebbtide::documents_model::DefaultTtl;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Clock, Precision, Timestamp, Value, VirtualClock};
use ebbtide::{Database, DocumentsOptions, Error, Settings};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const ROOT: &str = "/data/db";
const NAME: &str = "sessions";

pub(crate) struct World {
    fs: SimFs,
    clock: VirtualClock,
    db: Database,
    model: Model,
}

fn open(fs: &SimFs, clock: &VirtualClock) -> Database {
    // A small log and small segments, so that short runs cross their limits.
    let settings = Settings { wal_file_bytes_max: 2 << 10, segment_rows_max: 6, ..Settings::default() };
    let builder = Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(Arc::new(clock.clone())).settings(settings);
    builder.open().expect("the database opens")
}

impl World {
    pub(crate) fn new() -> World {
        let fs = SimFs::new(ROOT);
        let clock = VirtualClock::new(Timestamp::parse("2024-01-01T12:00:00.5Z").unwrap());
        let db = open(&fs, &clock);
        db.create_documents(NAME, DocumentsOptions::default()).unwrap();
        // A jump of hours is what the steps are made of.
        db.set_parameter("ttlClockJumpToleranceSecs", &Value::Int(0)).unwrap();
        World { fs, clock, db, model: Model::default() }
    }

    pub(crate) fn run(&mut self, steps: &[Step]) {
        if steps.len().is_multiple_of(2) {
            // Commands by number then look where the index tells them to.
            let index = json!({"createIndexes": NAME, "indexes": [{"key": {"n": 1}}]});
            self.db.run_command(&index).unwrap();
        }
        for (number, step) in steps.iter().enumerate() {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.apply(step);
                self.check();
            }));
            if let Err(panic) = outcome {
                eprintln!("the step was number {number}: {step:?}");
                std::panic::resume_unwind(panic);
            }
        }
        assert_eq!(self.db.verify().unwrap().faults, Vec::<String>::new());
        self.reopen();
        self.check();
    }

    fn now(&self) -> i64 {
        self.clock.now().to_units(Precision::Ms).unwrap()
    }

    fn apply(&mut self, step: &Step) {
        let now = self.now();
        match step {
            Step::Pass(seconds) => self.clock.set(self.clock.now().plus_seconds(*seconds)),
            Step::ToExpiry(document, ms) => self.pass_to_expiry(*document, *ms),
            Step::Reopen => self.reopen(),
            Step::Crash(cut) => self.crash(cut),
            Step::CutOff(step, cut) => self.cut_off(step, cut),
            step => {
                let mut expected = self.model.clone();
                let reply = act_on_model(&mut expected, step, now);
                let outcome = act(&self.db, &self.model, step, now).unwrap();
                if !matches!(step, Step::Sweep(_)) {
                    assert_eq!(outcome, reply, "the reply");
                }
                self.model = expected;
                if let Step::Sweep(_) = step {
                    self.note_purged(now);
                }
            }
        }
    }

    /// A pass goes on until nothing is due, whatever its limits are.
    fn note_purged(&mut self, now: i64) {
        for id in self.model.due(now) {
            self.model.documents.remove(&id);
        }
        assert_eq!(self.stored(), self.model.documents, "what is stored after a pass");
    }

    fn pass_to_expiry(&mut self, document: u8, ms: i64) {
        let documents: Vec<&Kept> = self.model.documents.values().collect();
        let Some(kept) = documents.get(usize::from(document) % documents.len().max(1)) else { return };
        let Some(at) = self.model.expires_at(kept) else { return };
        let at = Timestamp::from_millis(at + ms);
        if at > self.clock.now() {
            self.clock.set(at);
        }
    }

    fn reopen(&mut self) {
        self.db.clone().close().unwrap();
        self.opened_anew();
    }

    fn opened_anew(&mut self) {
        self.db = open(&self.fs, &self.clock);
        self.db.set_parameter("ttlClockJumpToleranceSecs", &Value::Int(0)).unwrap();
    }

    fn crash(&mut self, cut: &Cut) {
        self.fs = self.fs.crash(cut.variant, cut.seed);
        self.db.clone().abandon();
        self.opened_anew();
    }

    /// A step that was cut off has happened or not; a pass may have dropped a part of what was due.
    fn cut_off(&mut self, step: &Step, cut: &Cut) {
        let now = self.now();
        self.fs.stop_after(self.fs.mutating_ops() + cut.after);
        let outcome = act(&self.db, &self.model, step, now);
        if let Err(error) = &outcome {
            assert!(self.fs.is_stopped(), "{error}");
        }
        self.crash(cut);
        let mut after = self.model.clone();
        act_on_model(&mut after, step, now);
        let stored = self.stored();
        if let Step::Sweep(_) = step {
            let due = self.model.due(now);
            let lost: Vec<i64> = self.model.documents.keys().filter(|id| !stored.contains_key(id)).copied().collect();
            assert!(lost.iter().all(|id| due.contains(id)), "what was not due is gone: {lost:?}");
            self.model.documents.retain(|id, _| !lost.contains(id));
            return;
        }
        let before = (&self.model.documents, (self.model.default_ttl, self.model.index));
        if outcome.is_ok() || (&stored, self.rules()) != before {
            self.model = after;
        }
    }

    /// The rules as the engine has them.
    fn rules(&self) -> (Option<i64>, Option<i64>) {
        let snapshot = self.db.snapshot().documents(NAME).unwrap();
        let options = snapshot.options();
        let index = options.indexes.iter().find_map(|index| index.expire_after_seconds);
        let default_ttl = match options.default_ttl {
            DefaultTtl::Off => None,
            DefaultTtl::Never => Some(-1),
            DefaultTtl::Seconds(n) => Some(i64::from(n)),
        };
        (default_ttl, index)
    }

    /// What is stored, expired or not: under rules that hide nothing.
    fn stored(&self) -> BTreeMap<i64, Kept> {
        let early = Timestamp::from_millis(0);
        scanned(&self.db, early)
    }

    fn check(&self) {
        let now = self.now();
        assert_eq!(self.rules(), (self.model.default_ttl, self.model.index), "the rules");
        assert_eq!(self.stored(), self.model.documents, "what is stored");
        let visible = self.model.visible(now);
        assert_eq!(scanned(&self.db, self.clock.now()), visible, "what is visible");
        let documents = self.db.documents(NAME).unwrap();
        for id in 0..24_i64 {
            let found: Option<ebbtide::documents_model::bson::Document> = documents.get(id).unwrap();
            let number = found.map(|found| found.get_i64("n").unwrap());
            assert_eq!(number, visible.get(&id).map(|kept| kept.number), "the document with _id {id}");
        }
        assert_eq!(documents.snapshot().unwrap().count().unwrap(), visible.len() as u64);
    }
}

/// Documents as a scan at an instant finds them; an `_id` that comes twice is a failure.
fn scanned(db: &Database, at: Timestamp) -> BTreeMap<i64, Kept> {
    let snapshot = db.snapshot_at(at).documents(NAME).unwrap();
    let mut found = BTreeMap::new();
    let visited = snapshot.for_each(&mut |document| {
        let raw = &document.document;
        let whole = |name: &str| raw.get(name).unwrap().map(|value| value.as_i64().unwrap());
        let date = raw.get("date").unwrap().map(|value| value.as_datetime().unwrap().timestamp_millis());
        let written = document.written.to_units(Precision::Ms).unwrap();
        let kept = Kept { number: whole("n").unwrap(), ttl: whole("ttl"), date, written };
        let twice = found.insert(whole("_id").unwrap(), kept);
        assert_eq!(twice, None, "an _id is there twice");
        Ok(true)
    });
    visited.unwrap();
    found
}

fn filter(which: &Which) -> Json {
    match which {
        Which::Id(id) => json!({"_id": id}),
        Which::Ids(ids) => json!({"_id": {"$in": ids}}),
        Which::NumberAtMost(most) => json!({"n": {"$lte": most}}),
        Which::All => json!({}),
    }
}

/// Does a step on the engine; returns what its reply counts.
fn act(db: &Database, model: &Model, step: &Step, now: i64) -> Result<i64, Error> {
    let document = |new: &crate::steps::NewDocument| {
        let mut document = json!({"_id": new.id, "n": new.number});
        if let Some(ttl) = new.ttl {
            document["ttl"] = json!(ttl);
        }
        if let Some(seconds) = new.date {
            document["date"] = json!({"$date": {"$numberLong": (now + seconds * 1_000).to_string()}});
        }
        document
    };
    let n = |reply: Json| reply["n"].as_i64().unwrap();
    match step {
        Step::Put(new) => {
            let updates: Vec<Json> =
                new.iter().map(|new| json!({"q": {"_id": new.id}, "u": document(new), "upsert": true})).collect();
            db.run_command(&json!({"update": NAME, "updates": updates})).map(n)
        }
        Step::Insert(new) => db.run_command(&json!({"insert": NAME, "documents": [document(new)]})).map(n),
        Step::Add(which, number) => {
            let update = json!({"q": filter(which), "u": {"$inc": {"n": number}}, "multi": true});
            db.run_command(&json!({"update": NAME, "updates": [update]})).map(n)
        }
        Step::Delete(which) => {
            db.run_command(&json!({"delete": NAME, "deletes": [{"q": filter(which), "limit": 0}]})).map(n)
        }
        Step::Flush => db.flush().map(|()| 0),
        Step::Compact => db.compact(None).map(|()| 0),
        Step::Sweep(limit) => {
            db.set_parameter("ttlIndexDeleteTargetDocs", &Value::Int(*limit))?;
            db.sweep().map(|report| i64::try_from(report.counts.deleted_documents).unwrap())
        }
        Step::Change(rule) => change(db, model, rule).map(|()| 0),
        other => unreachable!("{other:?} is no step of the engine alone"),
    }
}

fn change(db: &Database, model: &Model, rule: &Rule) -> Result<(), Error> {
    let command = match (rule, model.index) {
        (Rule::DefaultTtl(seconds), _) => {
            let value = seconds.map_or(json!("off"), |seconds| json!(seconds));
            json!({"collMod": NAME, "defaultTTL": value})
        }
        (Rule::CreateIndex(e), None) => {
            let index = json!({"key": {"date": 1}, "name": "by_date", "expireAfterSeconds": e});
            json!({"createIndexes": NAME, "indexes": [index]})
        }
        (Rule::ChangeIndex(e), Some(_)) => {
            json!({"collMod": NAME, "index": {"name": "by_date", "expireAfterSeconds": e}})
        }
        (Rule::DropIndex, Some(_)) => json!({"dropIndexes": NAME, "index": "by_date"}),
        _ => return Ok(()),
    };
    db.run_command(&command).map(drop)
}

/// Does the same on the map.
fn act_on_model(model: &mut Model, step: &Step, now: i64) -> i64 {
    match step {
        Step::Put(new) => {
            new.iter().for_each(|new| model.put(new, now));
            i64::try_from(new.len()).unwrap()
        }
        Step::Insert(new) => {
            let taken = model.documents.get(&new.id).is_some_and(|kept| model.is_visible(kept, now));
            if !taken {
                model.put(new, now);
            }
            i64::from(!taken)
        }
        Step::Add(which, number) => model.add(which, *number, now),
        Step::Delete(which) => model.delete(which, now),
        Step::Change(rule) => {
            model.change(rule);
            0
        }
        _ => 0,
    }
}
