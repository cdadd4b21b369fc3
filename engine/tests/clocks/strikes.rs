//! How each fault strikes, and how the clock becomes right again.

use crate::expect::Row;
use crate::faults::Kind;
use crate::run::{Run, Tally, ensure, said};
use crate::script::{Fields, HOUR, NOON};
use crate::side::RANGE_END;
use ebbtide::ttl::{Filter, RuleSet, Timestamp, Value};
use ebbtide::{CollectionChange, Database};
use std::time::Duration;

const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;
/// The id of the row that is stamped far ahead.
const FUTURE_ID: i64 = 5_000;
const FUTURE_META: &str = "future";
/// Rows of the collection `long`, in seconds, as it should be and by mistake.
const LONG: i64 = 1000 * 86_400;
const SHORT: i64 = 3600;

fn set_long(db: &Database, seconds: i64) -> Result<(), String> {
    let change = CollectionChange { expire_after_seconds: Some(Some(seconds)), ..CollectionChange::default() };
    db.modify_collection("long", &change, None).map_err(said)
}

impl Run<'_> {
    fn pick(&mut self, of: &[i64]) -> i64 {
        let seed = usize::try_from(self.seed).unwrap_or(0);
        of[(seed + self.random.index(2)) % of.len()]
    }

    /// The fault, once.
    pub(crate) fn strike(&mut self, tally: &mut Tally) -> Result<(), String> {
        self.fired += 1;
        match self.fault.kind {
            Kind::StepBack => {
                let wall = self.pick(&[self.truth - HOUR, self.truth - 30 * DAY, 0, -DAY, self.truth - 1]);
                self.step_wall_to(wall);
                // Held only if it is less far back than the last good look was.
                self.sweep(tally).map(drop)
            }
            Kind::JumpAhead => self.jump_ahead(tally),
            Kind::AheadAndBack => {
                self.jump_ahead(tally)?;
                self.step_wall_to(self.truth);
                let held = self.sweep(tally)?;
                ensure(!held, || "held although the clock is back".to_owned())
            }
            // It drifts all the time.
            Kind::Drift => {
                self.wait(36 * 3600);
                ensure(!self.is_held(), || "a slow drift must not be held".to_owned())
            }
            Kind::Sleep => {
                let slept = self.pick(&[3 * DAY, HOUR / 2, HOUR, HOUR + 1, 30 * DAY]);
                self.truth += slept;
                let wall = self.wall + slept;
                self.step_wall_to(wall);
                let held = self.sweep(tally)?;
                ensure(held == (slept > HOUR), || format!("slept for {slept} ms, held: {held}"))?;
                if held { self.confirm(tally) } else { Ok(()) }
            }
            Kind::MonotonicBack => {
                self.wait(7200);
                let back = Duration::from_secs([1, 7200, 40_000, 86_400, 1_000_000][(self.seed % 5) as usize]);
                self.monotonic = self.monotonic.saturating_sub(back);
                self.show();
                // Time that the monotonic clock goes through again does not count.
                self.sweep(tally)?;
                self.wait(10 * 3600);
                if self.sweep(tally)? { self.confirm(tally) } else { Ok(()) }
            }
            Kind::FutureRow => self.future_row(tally),
            Kind::NoInserts => {
                self.silent = true;
                self.wait(12 * 3600);
                self.sweep(tally).map(drop)
            }
            Kind::Extremes => {
                let right = self.wall;
                for wall in
                    [-1, 0, RANGE_END - 1, RANGE_END, -DAY * 1_000_000, 9_300_000_000_000, i64::MAX, i64::MIN / 2]
                {
                    self.step_wall_to(wall);
                    self.check()?;
                    self.sweep(tally)?;
                }
                // One second twice: a leap second, or the end of summer time for who takes local time for UTC.
                for back in [1000, HOUR] {
                    self.step_wall_to(right - back);
                    self.sweep(tally)?;
                    self.step_wall_to(right);
                    if self.is_held() {
                        self.confirm(tally)?;
                    }
                    self.sweep(tally)?;
                }
                Ok(())
            }
            Kind::ShortRule => self.short_rule(tally),
        }
    }

    /// A jump that is held for as long as it lasts, however the clock goes on.
    fn jump_ahead(&mut self, tally: &mut Tally) -> Result<(), String> {
        let by = self.pick(&[HOUR + 1, DAY, 10 * YEAR, RANGE_END - self.truth, 7_000 * YEAR]);
        let base = self.wall;
        // The last good look may be older than this.
        self.sweep(tally)?;
        self.step_wall_to(base + by);
        for look in 0..3 {
            let held = self.sweep(tally)?;
            ensure(held, || format!("look {look} after a jump by {by} ms was not held"))?;
            // Each of these alone would be tolerated.
            let wall = self.wall + HOUR - 1;
            self.step_wall_to(wall);
            self.wait(60);
        }
        if self.seed.is_multiple_of(2) && self.fault.kind == Kind::JumpAhead { self.confirm(tally) } else { Ok(()) }
    }

    fn future_row(&mut self, tally: &mut Tally) -> Result<(), String> {
        // The last day in which rules act, or a year beyond: the collection's expiry is suspended by it alone.
        let t = if self.seed.is_multiple_of(2) { RANGE_END + YEAR } else { RANGE_END - DAY };
        let row = Row { id: FUTURE_ID, t, meta: FUTURE_META.to_owned() };
        let documents = crate::runner::documents(std::slice::from_ref(&row), Fields::Plain);
        let collection = self.runner.db().collection("future").map_err(said)?;
        collection.insert_documents(&documents).map_err(said)?;
        if let Some(side) = self.sides.iter_mut().find(|side| side.name == "future") {
            side.add(row);
        }
        let suspended = collection.snapshot().map_err(said)?.suspended();
        ensure(suspended == (t >= RANGE_END).then_some(1), || format!("suspended: {suspended:?}"))?;
        self.check()?;
        self.wait(3 * 3600);
        self.sweep(tally).map(drop)
    }

    fn short_rule(&mut self, tally: &mut Tally) -> Result<(), String> {
        let db = self.runner.db();
        let snapshot = db.collection("long").and_then(|c| c.snapshot()).map_err(said)?;
        let proposed = RuleSet::new(Some(SHORT));
        let now = Timestamp::from_millis(self.wall);
        let forecast = snapshot.explain_expiry(now, Some(&proposed)).map_err(said)?;
        let forecast: u64 = forecast.iter().map(|row| row.measurements).sum();
        self.long_is(SHORT);
        set_long(&db, SHORT)?;
        // Hidden at once, as by any rule.
        self.check()?;
        if self.seed.is_multiple_of(2) {
            self.long_is(LONG);
            set_long(&db, LONG)?;
            return self.check().map(drop);
        }
        let stored = |run: &Self| run.check().map(|found| found.collections.get("long").map_or(0, |c| c.stored.len()));
        let before = stored(self)?;
        self.sweep(tally)?;
        let gone = (before - stored(self)?) as u64;
        ensure(gone == forecast, || format!("{gone} rows went, the dry run had said {forecast}"))
    }

    fn long_is(&mut self, seconds: i64) {
        if let Some(side) = self.sides.iter_mut().find(|side| side.name == "long") {
            side.e = Some(seconds);
        }
    }

    /// The fault is over, and the clock is right.
    pub(crate) fn calm(&mut self) -> Result<(), String> {
        self.silent = false;
        match self.fault.kind {
            Kind::Drift | Kind::MonotonicBack => {}
            Kind::FutureRow => {
                let filter = Filter::eq("m", Value::String(FUTURE_META.to_owned()));
                self.runner.db().collection("future").and_then(|c| c.delete(&filter)).map_err(said)?;
                if let Some(side) = self.sides.iter_mut().find(|side| side.name == "future") {
                    side.delete(FUTURE_ID);
                }
            }
            Kind::ShortRule => {
                self.long_is(LONG);
                set_long(&self.runner.db(), LONG)?;
            }
            _ => {
                assert!(self.truth >= NOON, "true time only goes on");
                self.step_wall_to(self.truth);
            }
        }
        Ok(())
    }
}
