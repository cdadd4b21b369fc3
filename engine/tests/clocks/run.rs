//! One run: a scenario under a clock that goes wrong, and a plain model of the guard and of what is stored.

use crate::expect::{Expected, ExpectedCollection, Found, Row, There};
use crate::faults::{Fault, Kind};
use crate::runner::{Runner, add_more, find, open_at};
use crate::script::{HOUR, NOON, Scenario, Step};
use crate::side::Side;
use ebbtide::fs::Fs;
use ebbtide::fs::sim::{Random, SimFs, Variant};
use ebbtide::ttl::{Timestamp, Value, VirtualClock};
use ebbtide::{Error, TtlMetrics};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROOT: &str = "/data/db";
/// The default of `ttlClockJumpToleranceSecs`, which each open begins with.
const TOLERANCE: i64 = 3600;
/// What a power cut may leave.
const VARIANTS: [Variant; 8] = Variant::WITHIN_CONTRACT;

/// What the runs of one fault did.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: u64,
    /// How often the fault took effect.
    pub(crate) fired: u64,
    sweeps: u64,
    held: u64,
    confirmed: u64,
    dropped: u64,
    commuted: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { runs, fired, sweeps, held, confirmed, dropped, commuted } = self;
        write!(
            f,
            "runs={runs} fired={fired} sweeps={sweeps} held={held} confirmed={confirmed} rows_dropped={dropped} \
             crashes={commuted}"
        )
    }
}

pub(crate) struct Run<'a> {
    pub(crate) fault: &'a Fault,
    scenario: &'a Scenario,
    pub(crate) seed: u64,
    pub(crate) random: Random,
    pub(crate) runner: Runner,
    pub(crate) sides: Vec<Side>,
    /// What time it is, in milliseconds.
    pub(crate) truth: i64,
    /// What the wall clock shows.
    pub(crate) wall: i64,
    pub(crate) monotonic: Duration,
    tolerance: i64,
    /// The clocks at the last look that was good.
    baseline: (i64, Duration),
    /// What a person left word of.
    word: Option<i64>,
    /// Somebody took a wrong time for right: from then on live rows may go.
    misled: bool,
    /// Nobody inserts.
    pub(crate) silent: bool,
    pub(crate) fired: u64,
    /// The guard is off behind the model's back: a canary.
    blind: bool,
}

/// Any error as a failure of the run.
pub(crate) fn said(error: Error) -> String {
    format!("{:?}: {error}", error.kind())
}

pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// What a sweep at `now` drops of a scenario's own collection, and what that takes from it.
fn swept(collection: &ExpectedCollection, now: i64) -> BTreeSet<i64> {
    let Some(rules) = collection.rules.first() else { return BTreeSet::new() };
    let mut lives: BTreeMap<(&str, i64), bool> = BTreeMap::new();
    let rows = || collection.sure.iter().filter_map(|id| collection.rows.get(id));
    let key = |row: &'_ Row| row.t.div_euclid(HOUR);
    for row in rows() {
        *lives.entry((&row.meta, key(row))).or_default() |= !rules.hides(row, now);
    }
    rows().filter(|row| lives.get(&(row.meta.as_str(), key(row))) == Some(&false)).map(|row| row.id).collect()
}

impl<'a> Run<'a> {
    pub(crate) fn new(fault: &'a Fault, scenario: &'a Scenario, seed: u64, blind: bool) -> Result<Run<'a>, String> {
        let mut sides = vec![Side::keep(), Side::due(), Side::whole()];
        match fault.kind {
            Kind::FutureRow => sides.push(Side::future()),
            Kind::Extremes => sides.push(Side::ends()),
            Kind::ShortRule => sides.push(Side::long()),
            _ => {}
        }
        let mut run = Run {
            fault,
            scenario,
            seed,
            random: Random::new(seed.wrapping_mul(1_000).wrapping_add(u64::from(fault.number))),
            runner: Runner::new(SimFs::new(ROOT), Path::new(ROOT), scenario.settings.clone()),
            sides,
            truth: NOON,
            wall: NOON,
            monotonic: Duration::ZERO,
            tolerance: TOLERANCE,
            baseline: (NOON, Duration::ZERO),
            word: None,
            misled: false,
            silent: false,
            fired: 0,
            blind,
        };
        run.runner.open().map_err(said)?;
        run.opened()?;
        for side in &run.sides {
            side.create(&run.runner.db()).map_err(said)?;
        }
        if seed % 2 == 1 {
            run.runner.db().flush().map_err(said)?;
        }
        Ok(run)
    }

    /// Runs the script, with the fault before some of its steps.
    pub(crate) fn all(mut self, tally: &mut Tally) -> Result<(), String> {
        let steps = &self.scenario.steps;
        let first = self.random.index(steps.len());
        let mut wrong = false;
        for (at, step) in steps.iter().enumerate() {
            let context = |what: String| format!("at step {at} ({:.60}): {what}", format!("{step:?}"));
            if at == first || self.random.chance(1, 4) {
                if wrong { self.calm() } else { self.strike(tally) }.map_err(context)?;
                wrong = !wrong;
                self.check().map_err(context)?;
                self.sweep_and_crash(tally).map_err(context)?;
            }
            self.step(step, tally).map_err(context)?;
            // A sweep was compared already.
            if !matches!(step, Step::Sweep) {
                self.check().map_err(context)?;
            }
        }
        let context = |what: String| format!("at the end: {what}");
        if wrong {
            self.calm().map_err(context)?;
        }
        self.end(tally).map_err(context)?;
        tally.fired += self.fired;
        Ok(())
    }

    fn step(&mut self, step: &Step, tally: &mut Tally) -> Result<(), String> {
        match step {
            Step::Wait(seconds) => self.wait(*seconds),
            Step::Sweep => drop(self.sweep(tally)?),
            Step::Insert(..) | Step::InsertTogether(..) if self.silent => {}
            step => {
                self.runner.step(step)?;
                if matches!(step, Step::Reopen) {
                    self.opened()?;
                }
            }
        }
        Ok(())
    }

    /// An open takes the clock as it is, and begins with default parameters.
    fn opened(&mut self) -> Result<(), String> {
        self.baseline = (self.wall, self.monotonic);
        self.tolerance = TOLERANCE;
        self.misled |= self.wall > self.truth;
        ensure(!self.runner.fs.exists(&self.path("CLOCK")).unwrap_or(true), || "a word outlived an open".to_owned())?;
        self.word = None;
        let held = self.runner.db().clock_held();
        ensure(held.is_none(), || format!("held right after an open: {held:?}"))?;
        if self.blind {
            let off = Value::Int(0);
            self.runner.db().set_parameter("ttlClockJumpToleranceSecs", &off).map_err(said)?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.runner.dir.join(name)
    }

    /// Lets time go on, for all clocks that are not wrong.
    pub(crate) fn wait(&mut self, seconds: i64) {
        let drift = match self.fault.kind {
            // From 500 millionths slow to 500 fast.
            Kind::Drift => {
                self.fired += 1;
                seconds * 1000 * (i64::try_from(self.seed % 5).unwrap_or(0) - 2) * 250 / 1_000_000
            }
            _ => 0,
        };
        self.truth += seconds * 1000;
        self.wall = self.wall.saturating_add(seconds * 1000 + drift);
        self.monotonic += Duration::from_secs(seconds.unsigned_abs());
        self.show();
    }

    /// Shows the clocks to the database, and the model of what is visible.
    pub(crate) fn show(&mut self) {
        self.runner.expected.now = self.wall;
        self.runner.clock.jump(Timestamp::from_millis(self.wall));
        self.runner.clock.set_monotonic(self.monotonic);
    }

    pub(crate) fn step_wall_to(&mut self, wall: i64) {
        self.wall = wall;
        self.show();
    }

    /// Whether the guard must hold a sweep now.
    pub(crate) fn is_held(&self) -> bool {
        let elapsed = self.monotonic.saturating_sub(self.baseline.1).as_millis();
        let ahead = i128::from(self.wall) - i128::from(self.baseline.0) - i128::try_from(elapsed).unwrap_or(i128::MAX);
        self.tolerance > 0 && ahead > i128::from(self.tolerance) * 1000
    }

    /// Compares all that is visible and stored with the model.
    pub(crate) fn check(&self) -> Result<Found, String> {
        self.check_db(&self.runner.db(), &self.runner.expected, &self.sides)
    }

    fn check_db(&self, db: &ebbtide::Database, expected: &Expected, sides: &[Side]) -> Result<Found, String> {
        let found = find(db, expected).map_err(said)?;
        let mut own = found.clone();
        for side in sides {
            let of_side = own.collections.remove(side.name).ok_or_else(|| format!("{} is lost", side.name))?;
            side.check(&of_side, expected.now)?;
        }
        expected.check(&own)?;
        Ok(found)
    }

    /// Drops in the model what a sweep has to drop now. Returns how many rows.
    fn drop_due(&mut self) -> Result<u64, String> {
        let (now, limit) = (self.wall, i128::from(self.truth) + i128::from(TOLERANCE) * 1000);
        let mut count = 0;
        for side in &mut self.sides {
            let gone = side.sweep(now);
            count += gone.len() as u64;
            let e = i128::from(side.e.unwrap_or(0)) * 1000;
            let early = gone.iter().find(|row| i128::from(row.t) + e > limit);
            ensure(self.misled || early.is_none(), || format!("{}: live row {early:?} would go", side.name))?;
        }
        for (name, collection) in &mut self.runner.expected.collections {
            if collection.there != There::Yes {
                continue;
            }
            let gone = swept(collection, now);
            count += gone.len() as u64;
            if let Some(rules) = collection.rules.first() {
                let truth = self.truth + TOLERANCE * 1000;
                let early = gone.iter().find(|id| collection.rows.get(id).is_some_and(|row| !rules.hides(row, truth)));
                ensure(self.misled || early.is_none(), || format!("{name}: live row {early:?} would go"))?;
            }
            collection.sure.retain(|id| !gone.contains(id));
        }
        Ok(count)
    }

    /// Sweeps, and compares what it did with what the guard and the model say. Returns whether it was held.
    pub(crate) fn sweep(&mut self, tally: &mut Tally) -> Result<bool, String> {
        let db = self.runner.db();
        let held = self.is_held();
        let heard =
            self.word.is_some_and(|word| i128::from(self.wall) <= i128::from(word) + i128::from(self.tolerance) * 1000);
        let shown = db.clock_held();
        ensure(self.blind || shown.is_some() == held, || format!("shown as held: {shown:?}, expected: {held}"))?;
        let history = db.sweeps().len();
        let report = db.sweep().map_err(said)?;
        tally.sweeps += 1;
        if held && !heard {
            tally.held += 1;
            ensure(report.held.is_some(), || format!("a sweep went on at {}: {report:?}", self.wall))?;
            let idle = report.counts == TtlMetrics::default() && db.sweeps().len() == history;
            ensure(idle, || format!("a held sweep did something: {report:?}"))?;
            self.check()?;
            return Ok(true);
        }
        ensure(report.held.is_none(), || format!("a sweep was held: {:?}", report.held))?;
        if held {
            self.misled |= self.wall > self.truth;
            self.word = None;
            let stays = self.runner.fs.exists(&self.path("CLOCK")).unwrap_or(true);
            ensure(!stays, || "a word that was taken stays".to_owned())?;
        }
        self.misled |= self.tolerance == 0 && self.wall > self.truth;
        self.baseline = (self.wall, self.monotonic);
        let count = self.drop_due()?;
        tally.dropped += count;
        let told = report.counts.deleted_documents;
        ensure(told == count, || format!("a sweep at {} dropped {told} rows, not {count}", self.wall))?;
        self.check()?;
        Ok(false)
    }

    /// Leaves word as `Database::confirm_clock_at` does, in other words too.
    pub(crate) fn leave_word(&mut self, text: &str) -> Result<(), String> {
        let (tmp, path) = (self.path("CLOCK.tmp"), self.path("CLOCK"));
        let write = || {
            let mut file = self.runner.fs.create(&tmp)?;
            file.append(text.as_bytes())?;
            file.sync()?;
            drop(file);
            self.runner.fs.publish(&tmp, &path)
        };
        write().map_err(|error: std::io::Error| error.to_string())
    }

    /// A person says that the wall clock is right, in the way that the seed chooses.
    pub(crate) fn confirm(&mut self, tally: &mut Tally) -> Result<(), String> {
        let db = self.runner.db();
        tally.confirmed += 1;
        self.misled |= self.wall > self.truth;
        // A word is a text, which has no years beyond 9999.
        let has_text = self.wall < 253_402_300_800_000;
        match self.seed % 5 {
            0 => {
                let reply = db.run_command(&serde_json::json!({"confirmClock": 1})).map_err(said)?;
                let was_held = reply.get("wasHeld").and_then(serde_json::Value::as_bool);
                ensure(was_held == Some(self.is_held()), || format!("{reply}"))?;
                self.baseline = (self.wall, self.monotonic);
            }
            1 if has_text => {
                // Words of another time, or that nobody understands, confirm nothing.
                let late = self.wall.saturating_sub(self.tolerance * 1000 + 1);
                for text in [Timestamp::from_millis(late).to_string(), "noon".to_owned(), String::new()] {
                    self.leave_word(&text)?;
                    self.sweep(tally)?;
                }
                self.leave_word(&Timestamp::from_millis(self.wall).to_string())?;
                self.word = Some(self.wall);
            }
            2 => {
                db.set_parameter("ttlClockJumpToleranceSecs", &Value::Int(0)).map_err(said)?;
                self.tolerance = 0;
                let held = self.sweep(tally)?;
                ensure(!held, || "held without a tolerance".to_owned())?;
                db.set_parameter("ttlClockJumpToleranceSecs", &Value::Int(TOLERANCE)).map_err(said)?;
                self.tolerance = TOLERANCE;
            }
            3 => {
                self.runner.step(&Step::Reopen)?;
                self.opened()?;
            }
            _ => {
                db.confirm_clock();
                self.baseline = (self.wall, self.monotonic);
            }
        }
        let held = self.sweep(tally)?;
        ensure(!held, || "held after a confirmation".to_owned())
    }

    /// A power cut before the sweep and one after it: each recovers to what the other does.
    fn sweep_and_crash(&mut self, tally: &mut Tally) -> Result<(), String> {
        let variant = VARIANTS[self.random.index(VARIANTS.len())];
        let seed = self.random.next_u64();
        let before = self.runner.fs.crash(variant, seed);
        let (sides, expected) = (self.sides.clone(), self.runner.expected.clone());
        let held = self.sweep(tally)?;
        let after = self.runner.fs.crash(variant, seed);
        let crash = |what: String| format!("after a power cut ({variant:?}): {what}");
        let clock = VirtualClock::new(Timestamp::from_millis(self.wall));
        let settings = &self.scenario.settings;
        let before = open_at(&before, Path::new(ROOT), &clock, settings).map_err(said).map_err(crash)?;
        let mut first = self.check_db(&before, &expected, &sides).map_err(crash)?;
        let after = open_at(&after, Path::new(ROOT), &clock, settings).map_err(said).map_err(crash)?;
        let second = self.check_db(&after, &self.runner.expected, &self.sides).map_err(crash)?;
        let visible = |found: &Found| -> Vec<(String, Vec<i64>)> {
            // What mode `bucket` shows depends on sweeps.
            let others = found.collections.iter().filter(|(name, _)| *name != "whole");
            others.map(|(name, c)| (name.clone(), c.visible.clone())).collect()
        };
        ensure(visible(&first) == visible(&second), || crash(format!("{first:?} before, {second:?} after")))?;
        if !held {
            before.sweep().map_err(said)?;
            first = find(&before, &expected).map_err(said)?;
            ensure(first == second, || crash(format!("swept after it {first:?}, before it {second:?}")))?;
        }
        tally.commuted += 1;
        Ok(())
    }

    /// The clock is right: sweeps go on, and what is due goes with the first one.
    fn end(&mut self, tally: &mut Tally) -> Result<(), String> {
        if self.is_held() {
            let held = self.sweep(tally)?;
            ensure(held, || "a clock that came forth again was trusted".to_owned())?;
            self.confirm(tally)?;
        }
        let held = self.sweep(tally)?;
        ensure(!held, || "held although the clock is right".to_owned())?;
        self.sweep_and_crash(tally)?;
        let mut found = self.check()?;
        if found.collections.contains_key("c") {
            add_more(&self.runner.db(), &mut found, self.wall)?;
            let again = find(&self.runner.db(), &self.runner.expected).map_err(said)?;
            ensure(again == found, || format!("after working on: {again:?}, not {found:?}"))?;
        }
        // An open takes the clock as it is, however far it went meanwhile.
        let image = self.runner.fs.crash(Variant::V0, 0);
        let far = self.wall + 20 * 365 * 24 * HOUR / 2;
        let clock = VirtualClock::new(Timestamp::from_millis(far));
        let db = open_at(&image, Path::new(ROOT), &clock, &self.scenario.settings).map_err(said)?;
        let report = db.sweep().map_err(said)?;
        ensure(report.held.is_none(), || format!("held after an open: {report:?}"))?;
        let found = find(&db, &self.runner.expected).map_err(said)?;
        for mut side in self.sides.clone() {
            side.sweep(far);
            let found = found.collections.get(side.name).ok_or("a side is lost")?;
            side.check(found, far)?;
        }
        Ok(())
    }
}
