//! Collections beside a scenario's own, with a plain model of each: what a wrong clock would empty.

use crate::expect::{FoundCollection, Row};
use crate::runner::documents;
use crate::script::{Fields, HOUR, NOON};
use ebbtide::ttl::{ExpiryMode, OutOfRange};
use ebbtide::{CollectionOptions, Database, Error};
use std::collections::BTreeMap;

/// The first time, in milliseconds, beyond those in which rules act.
pub(crate) const RANGE_END: i64 = (1 << 31) * 1000;
/// The span of all buckets, in milliseconds.
const SPAN: i128 = HOUR as i128;

/// A collection and what is stored in it.
#[derive(Debug, Clone)]
pub(crate) struct Side {
    pub(crate) name: &'static str,
    mode: ExpiryMode,
    out_of_range: OutOfRange,
    /// Seconds.
    pub(crate) e: Option<i64>,
    stored: BTreeMap<i64, Row>,
}

/// Rows every half hour from `from` to `to`, in hours around noon.
fn half_hours(from: i64, to: i64) -> Vec<Row> {
    let row =
        |id: i64| Row { id, t: NOON + from * HOUR + id * HOUR / 2, meta: ["a", "b"][usize::from(id % 3 == 0)].into() };
    (0..(to - from) * 2).map(row).collect()
}

impl Side {
    fn new(name: &'static str, e: Option<i64>, rows: Vec<Row>) -> Side {
        let stored = rows.into_iter().map(|row| (row.id, row)).collect();
        Side { name, mode: ExpiryMode::Exact, out_of_range: OutOfRange::Suspend, e, stored }
    }

    /// No rule: nothing that is done to others may change it.
    pub(crate) fn keep() -> Side {
        Side::new("keep", None, half_hours(-5, 5))
    }

    /// Rows of which some are expired at first, and others live for more than a day.
    pub(crate) fn due() -> Side {
        Side::new("due", Some(6 * 3600), half_hours(-9, 40))
    }

    /// The same in mode `bucket`.
    pub(crate) fn whole() -> Side {
        Side { mode: ExpiryMode::Bucket, ..Side::new("whole", Some(6 * 3600), half_hours(-9, 40)) }
    }

    /// A collection that a row far ahead is put into.
    pub(crate) fn future() -> Side {
        Side::new("future", Some(6 * 3600), half_hours(-9, 40))
    }

    /// Rows that are kept for a thousand days.
    pub(crate) fn long() -> Side {
        Side::new("long", Some(1000 * 86_400), half_hours(-90, 0))
    }

    /// Rows at the ends of time, where rules act for all times.
    pub(crate) fn ends() -> Side {
        let times = [
            i64::MIN,
            -9_300_000_000_000,
            -1,
            0,
            1,
            1_483_228_799_999, // before and after a leap second
            1_483_228_800_000,
            RANGE_END - 1,
            RANGE_END,
            9_300_000_000_000,
            i64::MAX - 1,
            i64::MAX,
        ];
        let rows = (0..).zip(times).map(|(id, t)| Row { id, t, meta: format!("end {id}") });
        Side { out_of_range: OutOfRange::Expire, ..Side::new("ends", Some(3600), rows.collect()) }
    }

    pub(crate) fn create(&self, db: &Database) -> Result<(), Error> {
        let mut options = CollectionOptions::new("t").meta_field("m").span_seconds(3600);
        options = options.expiry(self.mode).out_of_range(self.out_of_range);
        options.expire_after_seconds = self.e;
        let rows: Vec<Row> = self.stored.values().cloned().collect();
        db.create_collection(self.name, options)?.insert_documents(&documents(&rows, Fields::Plain)).map(drop)
    }

    /// Takes note of one more row.
    pub(crate) fn add(&mut self, row: Row) {
        self.stored.insert(row.id, row);
    }

    /// Takes note that a row was deleted.
    pub(crate) fn delete(&mut self, id: i64) {
        self.stored.remove(&id);
    }

    fn is_suspended(&self) -> bool {
        self.out_of_range == OutOfRange::Suspend && self.stored.values().any(|row| !(0..RANGE_END).contains(&row.t))
    }

    fn is_past(&self, t: i128, now: i64) -> bool {
        self.e.is_some_and(|e| t + i128::from(e) * 1000 <= i128::from(now)) && !self.is_suspended()
    }

    pub(crate) fn visible(&self, now: i64) -> Vec<i64> {
        let hidden = |row: &Row| self.mode == ExpiryMode::Exact && self.is_past(row.t.into(), now);
        self.stored.values().filter(|row| !hidden(row)).map(|row| row.id).collect()
    }

    /// What a sweep at `now` drops: whole buckets, once the last row in them is past its time.
    pub(crate) fn sweep(&mut self, now: i64) -> Vec<Row> {
        let mut bounds: BTreeMap<(String, i128), i128> = BTreeMap::new();
        let key = |row: &Row| (row.meta.clone(), i128::from(row.t).div_euclid(SPAN));
        for row in self.stored.values() {
            let bound = match self.mode {
                ExpiryMode::Exact => i128::from(row.t),
                ExpiryMode::Bucket => (key(row).1 + 1) * SPAN,
            };
            let entry = bounds.entry(key(row)).or_insert(bound);
            *entry = bound.max(*entry);
        }
        let due = |row: &Row| bounds.get(&key(row)).is_some_and(|bound| self.is_past(*bound, now));
        let gone: Vec<Row> = self.stored.values().filter(|row| due(row)).cloned().collect();
        gone.iter().for_each(|row| drop(self.stored.remove(&row.id)));
        gone
    }

    pub(crate) fn check(&self, found: &FoundCollection, now: i64) -> Result<(), String> {
        let stored: Vec<i64> = self.stored.keys().copied().collect();
        let same = |what: &str, found: &[i64], expected: &[i64]| match found == expected {
            true => Ok(()),
            false => Err(format!("{} at {now}: {what} {found:?}, not {expected:?}", self.name)),
        };
        same("stored", &found.stored, &stored)?;
        same("visible", &found.visible, &self.visible(now))?;
        match found.wrong.first() {
            Some(wrong) => Err(format!("{}: {wrong}", self.name)),
            None => Ok(()),
        }
    }
}
