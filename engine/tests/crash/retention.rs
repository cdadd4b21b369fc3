//! Tier C for retention: random histories with a grace, holds and a sink, and the power cut at the steps of their sweeps.
//!
//! What a hold covers or is within its grace is never dropped; where a hand-off is required nothing is dropped that the sink
//! had not taken before; and what it took and is still stored is handed over again under the same identity.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use ebbtide::fs::sim::{Random, SimFs, Variant};
use ebbtide::{
    CollectionChange, CollectionOptions, Database, ErrorKind, ExpiredBucket, ExpirySink, HoldOptions, Settings,
    SinkError,
};
use ebbtide_ttl::{Filter, Timestamp, Value, VirtualClock};

use crate::campaign::Campaign;
use crate::expect::Row;
use crate::rig::{ROOT, guarded};
use crate::runner::{documents, open_at, scan};
use crate::script::{Fields, HOUR, NOON};

const METAS: [&str; 3] = ["a", "b", "d"];
const STEPS: usize = 30;

/// What tells a bucket from all others.
type Identity = (Value, Timestamp, u64);

/// A bucket that the sink took.
#[derive(Debug, Clone)]
struct Taken {
    identity: Identity,
    ids: Vec<i64>,
    /// How many steps the disk had made when the sink said yes.
    at: usize,
}

/// A sink that remembers what it took, and after some more buckets says no.
struct Archive {
    fs: SimFs,
    takes: AtomicU64,
    taken: Mutex<Vec<Taken>>,
}

impl Archive {
    fn new(fs: &SimFs) -> Arc<Archive> {
        Arc::new(Archive { fs: fs.clone(), takes: AtomicU64::new(u64::MAX), taken: Mutex::default() })
    }

    fn taken(&self) -> Vec<Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ExpirySink for Archive {
    fn hand_over(&self, bucket: &ExpiredBucket) -> Result<(), SinkError> {
        if self.takes.load(Ordering::SeqCst) == 0 {
            return Err("the archive is closed".into());
        }
        let ids = bucket.rows.column_by_name("id").ok_or("no ids")?.as_primitive::<Int64Type>();
        let mut ids: Vec<i64> = ids.iter().flatten().collect();
        ids.sort_unstable();
        let identity = (bucket.meta.clone(), bucket.window.0, bucket.generation);
        let at = self.fs.steps().len();
        self.takes.fetch_sub(1, Ordering::SeqCst);
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(Taken { identity, ids, at });
        Ok(())
    }

    fn buckets_at_once(&self) -> usize {
        2
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Hold {
    meta: Option<&'static str>,
    from: Option<i64>,
    to: Option<i64>,
}

impl Hold {
    fn covers(&self, row: &Row) -> bool {
        self.meta.is_none_or(|meta| meta == row.meta)
            && self.from.is_none_or(|from| from <= row.t)
            && self.to.is_none_or(|to| row.t < to)
    }
}

/// What the database must hold.
#[derive(Debug, Clone, Default)]
struct Model {
    now: i64,
    own: Option<i64>,
    grace: i64,
    required: bool,
    holds: BTreeMap<String, Hold>,
    stored: BTreeMap<i64, Row>,
}

impl Model {
    fn is_expired(&self, row: &Row) -> bool {
        self.own.is_some_and(|own| row.t + own * 1000 <= self.now)
    }

    /// Whether a sweep may drop a row: its grace is over, and no hold covers anything in its bucket.
    fn may_go(&self, row: &Row) -> bool {
        let in_bucket = |other: &&Row| other.meta == row.meta && other.t.div_euclid(HOUR) == row.t.div_euclid(HOUR);
        self.own.is_some_and(|own| row.t + (own + self.grace) * 1000 <= self.now)
            && !self.stored.values().filter(in_bucket).any(|other| self.holds.values().any(|hold| hold.covers(other)))
    }

    fn ids(&self) -> BTreeSet<i64> {
        self.stored.keys().copied().collect()
    }
}

/// What a step does.
#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<Row>),
    Delete(&'static str),
    Flush,
    Compact,
    Wait(i64),
    Own(Option<i64>),
    Grace(i64),
    Hold(String, Hold),
    Lift(String),
    /// Registers the sink, which takes so many buckets and refuses all others; or removes it.
    Sink(Option<u64>),
    Sweep,
    Reopen,
}

struct Run {
    fs: SimFs,
    clock: VirtualClock,
    db: Option<Database>,
    model: Model,
    archive: Arc<Archive>,
    /// Whether the sink is registered since the last open.
    registered: bool,
    next_id: i64,
}

fn open(fs: &SimFs, clock: &VirtualClock) -> Result<Database, String> {
    open_at(fs, Path::new(ROOT), clock, &Settings::default()).map_err(|error| format!("does not open: {error}"))
}

/// The ids of what is stored, visible or not, and of what is visible.
fn ids(db: &Database) -> Result<(BTreeSet<i64>, BTreeSet<i64>), String> {
    let read = || {
        let snapshot = db.collection("w")?.snapshot()?;
        Ok::<_, ebbtide::Error>((scan(&snapshot, true, None)?.0, scan(&snapshot, false, None)?.0))
    };
    let (stored, visible) = read().map_err(|error| error.to_string())?;
    Ok((stored.into_iter().collect(), visible.into_iter().collect()))
}

fn active_holds(db: &Database) -> Result<BTreeSet<String>, String> {
    let holds = db.snapshot().holds().map_err(|error| error.to_string())?;
    Ok(holds.into_iter().filter(|hold| hold.lifted_at.is_none()).map(|hold| hold.name).collect())
}

impl Run {
    fn new() -> Result<Run, String> {
        let fs = SimFs::new(ROOT);
        fs.record();
        let clock = VirtualClock::new(Timestamp::from_millis(NOON));
        let archive = Archive::new(&fs);
        let db = open(&fs, &clock)?;
        let options = CollectionOptions::new("t").meta_field("m").span_seconds(3600).expire_after_seconds(7200);
        db.create_collection("w", options).map_err(|error| error.to_string())?;
        let model = Model { now: NOON, own: Some(7200), ..Model::default() };
        Ok(Run { fs, clock, db: Some(db), model, archive, registered: false, next_id: 1 })
    }

    fn db(&self) -> Database {
        self.db.clone().expect("it is open")
    }

    fn step(&mut self, random: &mut Random) -> Step {
        let random_meta = |random: &mut Random| random.pick(&METAS).copied().unwrap_or("a");
        match random.below(20) {
            0..=5 => {
                let mut meta = random_meta(random).to_owned();
                let mut start = self.model.now - random.below(6 * HOUR.unsigned_abs()).cast_signed();
                // Late for a bucket that was dropped.
                if random.chance(1, 3)
                    && let Some(Taken { identity: (Value::String(of), window, _), .. }) =
                        random.pick(&self.archive.taken())
                {
                    meta.clone_from(of);
                    start = i64::try_from(window.nanos() / 1_000_000).unwrap_or(start);
                }
                let rows = (0..=random.below(4)).map(|at| {
                    self.next_id += 1;
                    Row { id: self.next_id, t: start + at.cast_signed() * 600_000, meta: meta.clone() }
                });
                Step::Insert(rows.collect())
            }
            6 => Step::Delete(random_meta(random)),
            7 => Step::Flush,
            8 => Step::Compact,
            9 => Step::Wait(60 * (1 + random.below(90).cast_signed())),
            10 => Step::Own((!random.chance(1, 8)).then(|| 1800 * (1 + random.below(8).cast_signed()))),
            11 => Step::Grace(1800 * random.below(5).cast_signed()),
            12 => {
                let name = format!("h{}", random.below(3));
                if self.model.holds.contains_key(&name) {
                    return Step::Lift(name);
                }
                let from = self.model.now - random.below(6).cast_signed() * HOUR;
                let meta = random.chance(2, 3).then(|| random_meta(random));
                let hold = match random.below(3) {
                    0 => Hold { meta, from: None, to: Some(from) },
                    1 => Hold { meta, from: Some(from), to: Some(from + HOUR) },
                    _ => Hold { meta, from: None, to: None },
                };
                Step::Hold(name, hold)
            }
            13 | 14 => {
                let takes = if random.chance(2, 3) { u64::MAX } else { random.below(4) };
                Step::Sink((!random.chance(1, 4)).then_some(takes))
            }
            15 => Step::Reopen,
            _ => Step::Sweep,
        }
    }

    /// Does a step, and says what it must have made of the database.
    fn act(&mut self, step: &Step) -> Result<(), String> {
        let (db, model) = (self.db(), &mut self.model);
        let change = |change: CollectionChange| db.modify_collection("w", &change, None);
        let done = match step {
            Step::Insert(rows) => {
                model.stored.extend(rows.iter().map(|row| (row.id, row.clone())));
                db.collection("w").and_then(|c| c.insert_documents(&documents(rows, Fields::Plain))).map(drop)
            }
            Step::Delete(meta) => {
                let is_held = |row: &Row| row.meta == *meta && model.holds.values().any(|hold| hold.covers(row));
                let refused = model.stored.values().any(is_held);
                let filter = Filter::eq("m", Value::from(*meta));
                match db.collection("w").and_then(|c| c.delete(&filter)) {
                    Err(error) if refused && error.kind() == ErrorKind::Invalid => Ok(()),
                    Ok(_) if refused => return Err("a delete took what a hold covers".to_owned()),
                    outcome => {
                        model.stored.retain(|_, row| row.meta != *meta);
                        outcome.map(drop)
                    }
                }
            }
            Step::Flush => db.flush(),
            Step::Compact => db.compact(None),
            Step::Wait(seconds) => {
                model.now += seconds * 1000;
                self.clock.set(Timestamp::from_millis(model.now));
                Ok(())
            }
            Step::Own(own) => {
                model.own = *own;
                change(CollectionChange { expire_after_seconds: Some(*own), ..CollectionChange::default() })
            }
            Step::Grace(grace) => {
                model.grace = *grace;
                change(CollectionChange { grace_seconds: Some(*grace), ..CollectionChange::default() })
            }
            Step::Hold(name, hold) => {
                model.holds.insert(name.clone(), hold.clone());
                let instant = |t: i64| Timestamp::from_millis(t);
                let mut options = HoldOptions::new("a test");
                options.filter = hold.meta.map_or(Filter::everything(), |meta| Filter::eq("m", Value::from(meta)));
                (options.from, options.to) = (hold.from.map(instant), hold.to.map(instant));
                db.create_hold(name, "w", options)
            }
            Step::Lift(name) => {
                model.holds.remove(name);
                db.lift_hold(name)
            }
            Step::Sink(Some(takes)) => {
                (model.required, self.registered) = (true, true);
                self.archive.takes.store(*takes, Ordering::SeqCst);
                db.on_expiry("w", self.archive.clone())
            }
            Step::Sink(None) => {
                (model.required, self.registered) = (false, false);
                db.remove_expiry_sink("w")
            }
            Step::Sweep => return self.sweep(),
            Step::Reopen => {
                self.registered = false;
                drop(db);
                let closed = self.db.take().map_or(Ok(()), Database::close);
                self.db = Some(open(&self.fs, &self.clock)?);
                closed
            }
        };
        done.map_err(|error| format!("{error:?}"))
    }

    fn sweep(&mut self) -> Result<(), String> {
        let db = self.db();
        let handed_before = self.archive.taken().len();
        db.sweep().map_err(|error| error.to_string())?;
        let stored = ids(&db)?.0;
        let all = self.archive.taken();
        let (first, now) = all.split_at(handed_before);
        let is_gone = |taken: &Taken| taken.ids.iter().all(|id| !self.model.stored.contains_key(id));
        let reused = |taken: &&Taken| first.iter().any(|first| first.identity == taken.identity && is_gone(first));
        if let Some(taken) = now.iter().find(reused) {
            return Err(format!("{taken:?} has the identity of a bucket that was dropped"));
        }
        let taken: BTreeSet<i64> = now.iter().flat_map(|taken| taken.ids.clone()).collect();
        let refuses = !self.registered || self.archive.takes.load(Ordering::SeqCst) == 0;
        for (id, row) in &self.model.stored {
            match (stored.contains(id), self.model.may_go(row)) {
                (false, false) => return Err(format!("dropped {row:?}, which had to stay")),
                (false, true) if self.model.required && !taken.contains(id) => {
                    return Err(format!("dropped {row:?} without a yes of the sink"));
                }
                _ => {}
            }
        }
        let bucket = |row: &Row| (row.meta.clone(), row.t.div_euclid(HOUR));
        let stays: BTreeSet<_> = self.model.stored.values().filter(|row| !self.model.may_go(row)).map(bucket).collect();
        let due = |row: &&Row| !stays.contains(&bucket(row)) && stored.contains(&row.id);
        if !(self.model.required && refuses)
            && let Some(row) = self.model.stored.values().find(due)
        {
            return Err(format!("{row:?} was due, and is still stored"));
        }
        self.model.stored.retain(|id, _| stored.contains(id));
        Ok(())
    }

    /// What the database holds must be what the model says.
    fn check(&self) -> Result<(), String> {
        let (stored, visible) = ids(&self.db())?;
        let live: BTreeSet<i64> =
            self.model.stored.values().filter(|row| !self.model.is_expired(row)).map(|row| row.id).collect();
        if stored != self.model.ids() || visible != live {
            return Err(format!("stored {stored:?}, not {:?}; visible {visible:?}, not {live:?}", self.model.ids()));
        }
        let holds = active_holds(&self.db())?;
        if !holds.iter().eq(self.model.holds.keys()) {
            return Err(format!("holds {holds:?}, not {:?}", self.model.holds));
        }
        Ok(())
    }
}

/// What must be true after the power was cut when the disk had made `ops` steps, in the middle of a step.
fn check_image(image: &SimFs, ops: usize, before: &Model, run: &Run, is_sweep: bool) -> Result<(), String> {
    let clock = VirtualClock::new(Timestamp::from_millis(run.model.now));
    let db = open(image, &clock)?;
    let (stored, _) = ids(&db)?;
    let (old, new) = (before.ids(), run.model.ids());
    if let Some(id) = old.intersection(&new).find(|id| !stored.contains(id)) {
        return Err(format!("{:?} is lost", before.stored.get(id)));
    }
    if let Some(id) = stored.iter().find(|id| !old.contains(id) && !new.contains(id)) {
        return Err(format!("{id} came back"));
    }
    let taken: Vec<Taken> = run.archive.taken().into_iter().filter(|taken| taken.at <= ops).collect();
    if is_sweep && before.required {
        let yes: BTreeSet<i64> = taken.iter().flat_map(|taken| taken.ids.iter().copied()).collect();
        if let Some(id) = old.iter().find(|id| !stored.contains(id) && !yes.contains(id)) {
            return Err(format!("{:?} was dropped before the sink said yes", before.stored.get(id)));
        }
    }
    let holds = active_holds(&db)?;
    if !holds.iter().eq(before.holds.keys()) && !holds.iter().eq(run.model.holds.keys()) {
        return Err(format!("holds {holds:?}, not {:?} or {:?}", before.holds, run.model.holds));
    }
    if !is_sweep {
        return Ok(());
    }
    // The next pass hands over again what was handed over and is still there.
    let again = Archive::new(image);
    db.on_expiry("w", again.clone()).map_err(|error| error.to_string())?;
    db.sweep().map_err(|error| error.to_string())?;
    for second in again.taken() {
        let same = |first: &&Taken| first.ids == second.ids && first.identity != second.identity;
        if before.required
            && let Some(first) = taken.iter().find(same)
        {
            return Err(format!("{first:?} was handed over again as {:?}", second.identity));
        }
    }
    let (left, _) = ids(&db)?;
    match before.stored.values().find(|row| stored.contains(&row.id) && !left.contains(&row.id) && !before.may_go(row))
    {
        Some(row) => Err(format!("the next sweep dropped {row:?}, which had to stay")),
        None => Ok(()),
    }
}

fn one_run(campaign: &mut Campaign, seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut run = Run::new()?;
    for at in 0..STEPS {
        let step = run.step(&mut random);
        let said = |what: String| format!("step {at} {step:?}: {what}");
        let (before, from) = (run.model.clone(), run.fs.steps().len());
        run.act(&step).and_then(|()| run.check()).map_err(said)?;
        let is_sweep = matches!(step, Step::Sweep);
        for ops in from..=run.fs.steps().len() {
            if !is_sweep && !random.chance(1, 6) {
                continue;
            }
            let variant = random.pick(&Variant::WITHIN_CONTRACT).copied().unwrap_or(Variant::V0);
            let image = run.fs.before_step(ops).crash(variant, random.next_u64());
            campaign.images += 1;
            check_image(&image, ops, &before, &run, is_sweep)
                .map_err(|what| said(format!("cut {variant:?} at {ops}: {what}")))?;
        }
    }
    campaign.points += run.archive.taken().len();
    Ok(())
}

/// Runs from the seed `first` on.
pub(crate) fn retention_runs(campaign: &mut Campaign, first: u64, runs: u64) {
    for seed in first..first + runs {
        if let Err(what) = guarded(|| one_run(campaign, seed)) {
            campaign.fail(&format!("retention:{seed}"), "a random history", &what);
        }
    }
}

/// Runs the seed that the label `retention:SEED` names.
pub(crate) fn replay(campaign: &mut Campaign) {
    let seed = campaign.replay.as_deref().and_then(|label| label.strip_prefix("retention:")?.parse().ok());
    if let Some(seed) = seed {
        retention_runs(campaign, seed, 1);
    }
}
