//! Runs steps on the engine and on the map, and compares the two after each.

use crate::documents::{self, Action, Beside, Command, Kept, Model, act, scanned, stored};
use crate::steps::{Cut, Step, Work};
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Clock, Precision, Timestamp, Value, VirtualClock};
use ebbtide::{Database, DocumentsOptions, Error, Settings};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const ROOT: &str = "/data/db";
const NAME: &str = "sessions";

pub(crate) struct World {
    fs: SimFs,
    clock: VirtualClock,
    db: Database,
    /// What is done when the next segment is begun.
    beside: Action,
    model: Model,
}

fn open(fs: &SimFs, clock: &VirtualClock, beside: &Action) -> Database {
    // A small log and small segments, so that short runs cross their limits.
    let settings = Settings { wal_file_bytes_max: 2 << 10, segment_rows_max: 6, ..Settings::default() };
    let disk = Arc::new(Beside::new(fs.clone(), beside.clone()));
    let builder = Database::builder(ROOT).fs(disk).clock(Arc::new(clock.clone())).settings(settings);
    builder.open().expect("the database opens")
}

/// What a step gave: what its reply counts, and that of the command beside it.
type Replies = (Result<i64, Error>, Option<Result<i64, Error>>);

impl World {
    pub(crate) fn new() -> World {
        let (fs, beside) = (SimFs::new(ROOT), Action::default());
        let clock = VirtualClock::new(Timestamp::parse("2024-01-01T12:00:00.5Z").unwrap());
        let db = open(&fs, &clock, &beside);
        db.create_documents(NAME, DocumentsOptions::default()).unwrap();
        // A jump of hours is what the steps are made of.
        db.set_parameter("ttlClockJumpToleranceSecs", &Value::Int(0)).unwrap();
        World { fs, clock, db, beside, model: Model::default() }
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
            Step::Command(command) => {
                let expected = self.model.run(command, now);
                assert_eq!(documents::run(&self.db, NAME, command, now).unwrap(), expected, "the reply");
            }
            Step::Work(work) => {
                self.work(work).unwrap();
                self.note_work(work, None);
            }
            Step::Beside(work, command) => {
                let expected = self.model.run(command, now);
                let (worked, written) = self.beside(work, command, now);
                worked.unwrap();
                assert_eq!(written.unwrap().unwrap(), expected, "the reply of what was done beside");
                self.note_work(work, Some(now));
            }
        }
    }

    fn work(&self, work: &Work) -> Result<i64, Error> {
        match work {
            Work::Flush => self.db.flush().map(|()| 0),
            Work::Compact => self.db.compact(None).map(|()| 0),
            Work::Sweep(limit) => {
                self.db.set_parameter("ttlIndexDeleteTargetDocs", &Value::Int(*limit))?;
                self.db.sweep().map(|report| i64::try_from(report.counts.deleted_documents).unwrap())
            }
        }
    }

    /// Does both; the command while the work is under way, if that writes a segment.
    fn beside(&self, work: &Work, command: &Command, now: i64) -> Replies {
        let reply = Arc::new(Mutex::new(None));
        let write = {
            let (db, command, reply) = (self.db.clone(), command.clone(), reply.clone());
            move || *reply.lock().unwrap() = Some(documents::run(&db, NAME, &command, now))
        };
        *self.beside.lock().unwrap() = Some(Box::new(write));
        let worked = self.work(work);
        act(&self.beside);
        let written = reply.lock().unwrap().take();
        (worked, written)
    }

    /// A pass goes on until nothing is due, whatever its limits are. What is written beside it may be due at once, and stay.
    fn note_work(&mut self, work: &Work, beside: Option<i64>) {
        let Work::Sweep(_) = work else { return };
        let stored = self.stored();
        for id in self.model.due(self.now()) {
            let is_new = Some(self.model.documents[&id].written) == beside;
            if !(is_new && stored.contains_key(&id)) {
                self.model.documents.remove(&id);
            }
        }
        assert_eq!(stored, self.model.documents, "what is stored after a pass");
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
        self.db = open(&self.fs, &self.clock, &self.beside);
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
        let (worked, written) = match step {
            Step::Command(command) => (Ok(0), Some(documents::run(&self.db, NAME, command, now))),
            Step::Work(work) => (self.work(work), None),
            Step::Beside(work, command) => self.beside(work, command, now),
            other => unreachable!("{other:?} is not cut off"),
        };
        for error in [worked.as_ref().err(), written.as_ref().and_then(|w| w.as_ref().err())].into_iter().flatten() {
            assert!(self.fs.is_stopped(), "{error}");
        }
        self.crash(cut);
        let stored = self.stored();
        let candidates = match step {
            Step::Command(command) | Step::Beside(_, command) => {
                let mut after = self.model.clone();
                after.run(command, now);
                // What was acknowledged is there; anything else as a whole or not at all.
                let is_sure = matches!(written, Some(Ok(_)));
                if is_sure { vec![after] } else { vec![self.model.clone(), after] }
            }
            _ => vec![self.model.clone()],
        };
        let sweeps = matches!(step, Step::Work(Work::Sweep(_)) | Step::Beside(Work::Sweep(_), _));
        let fits = candidates.iter().find_map(|candidate| {
            let mut left = candidate.clone();
            if sweeps {
                let due = candidate.due(now);
                left.documents.retain(|id, _| stored.contains_key(id) || !due.contains(id));
            }
            let rules = (left.default_ttl, left.index);
            (stored == left.documents && self.rules() == rules).then_some(left)
        });
        self.model = fits.unwrap_or_else(|| {
            panic!(
                "after {step:?}, {written:?}: rules {:?}, stored {stored:#?}, not one of {candidates:#?}",
                self.rules()
            )
        });
    }

    /// The rules as the engine has them.
    fn rules(&self) -> (Option<i64>, Option<i64>) {
        documents::rules(&self.db.snapshot().documents(NAME).unwrap())
    }

    fn stored(&self) -> BTreeMap<i64, Kept> {
        stored(&self.db, NAME).unwrap()
    }

    fn check(&self) {
        let now = self.now();
        assert_eq!(self.rules(), (self.model.default_ttl, self.model.index), "the rules");
        assert_eq!(self.stored(), self.model.documents, "what is stored");
        let visible = self.model.visible(now);
        let documents = self.db.documents(NAME).unwrap();
        let snapshot = documents.snapshot().unwrap();
        assert_eq!(scanned(&snapshot).unwrap(), visible, "what is visible");
        for id in 0..24_i64 {
            let found: Option<ebbtide::documents_model::bson::Document> = documents.get(id).unwrap();
            let number = found.map(|found| found.get_i64("n").unwrap());
            assert_eq!(number, visible.get(&id).map(|kept| kept.number), "the document with _id {id}");
        }
        assert_eq!(snapshot.count().unwrap(), visible.len() as u64);
    }
}
