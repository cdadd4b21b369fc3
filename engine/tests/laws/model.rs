//! The plain model: every measurement in a list, and the contract's sentences as arithmetic over it.
//!
//! It shares no code with the engine but the types of its doors. Times are `i128` nanoseconds where they are compared,
//! so that nothing saturates here.

use crate::meta::{Chosen, Meta, MetaFilter};
use ebbtide::ttl::{ExpiryMode, OutOfRange, Precision, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

const SECOND: i128 = 1_000_000_000;
/// 2038-01-19T03:14:08Z.
pub(crate) const RANGE_END_SECONDS: i128 = 1 << 31;

/// A measurement that is stored.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// In units of the collection.
    pub(crate) t: i64,
    pub(crate) meta: Meta,
    pub(crate) id: i64,
    pub(crate) k: i64,
    /// The window that it came into, with the span of that time.
    pub(crate) window: (i64, i64),
}

/// What a reader sees of a measurement.
pub(crate) type Seen = (i64, Meta, i64, i64);
/// What tells buckets apart: meta, start and end of the window.
pub(crate) type Key = (Meta, i64, i64);

#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) e: i64,
    pub(crate) filter: MetaFilter,
}

/// The rules of a collection, and who is right when several match.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) own: Option<i64>,
    pub(crate) partial: Vec<Rule>,
}

impl Rules {
    /// The shortest rule that matches; of equal ones the collection's own, then the oldest.
    pub(crate) fn effective(&self, meta: &Meta) -> Option<(&str, i64)> {
        let own = self.own.iter().map(|e| ("collection", *e));
        let partial = self.partial.iter().filter(|r| r.filter.matches(meta)).map(|r| (r.name.as_str(), r.e));
        let all: Vec<_> = own.chain(partial).collect();
        let least = all.iter().map(|(_, e)| *e).min()?;
        all.into_iter().find(|(_, e)| *e == least)
    }

    /// All of them, in the order in which listings have them.
    pub(crate) fn labels(&self) -> Vec<(String, i64)> {
        let own = self.own.iter().map(|e| ("collection".to_owned(), *e));
        own.chain(self.partial.iter().map(|r| (r.name.clone(), r.e))).collect()
    }
}

/// A bucket that is due.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub(crate) key: Key,
    pub(crate) rule: String,
    pub(crate) rows: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) precision: Precision,
    pub(crate) span_seconds: i64,
    pub(crate) mode: ExpiryMode,
    pub(crate) out_of_range: OutOfRange,
    pub(crate) rules: Rules,
    pub(crate) rows: Vec<Row>,
}

impl Model {
    pub(crate) fn nanos(&self, t: i64) -> i128 {
        let unit = match self.precision {
            Precision::Ms => 1_000_000,
            Precision::Us => 1_000,
            Precision::Ns => 1,
        };
        i128::from(t) * unit
    }

    /// Units of the collection, floored; `None` for what it cannot hold.
    pub(crate) fn units(&self, at: Timestamp) -> Option<i64> {
        i64::try_from(at.nanos().div_euclid(self.nanos(1))).ok()
    }

    pub(crate) fn in_range(&self, t: i64) -> bool {
        (0..RANGE_END_SECONDS * SECOND).contains(&self.nanos(t))
    }

    /// The window of a time under the present span.
    pub(crate) fn window(&self, t: i64) -> (i64, i64) {
        let span = i128::from(self.span_seconds) * SECOND / self.nanos(1);
        let start = i128::from(t).div_euclid(span) * span;
        let clamp = |t: i128| i64::try_from(t).unwrap_or(if t < 0 { i64::MIN } else { i64::MAX });
        (clamp(start), clamp(start + span))
    }

    /// How many stored measurements suspend expiry.
    pub(crate) fn suspended(&self) -> Option<u64> {
        if self.out_of_range == OutOfRange::Expire {
            return None;
        }
        let count = self.rows.iter().filter(|row| !self.in_range(row.t)).count() as u64;
        (count > 0).then_some(count)
    }

    pub(crate) fn visible(&self, now: Timestamp) -> Vec<&Row> {
        let nothing_hidden = self.mode == ExpiryMode::Bucket || self.suspended().is_some();
        let is_expired = |row: &Row| {
            let effective = self.rules.effective(&row.meta);
            effective.is_some_and(|(_, e)| self.nanos(row.t) + i128::from(e) * SECOND <= now.nanos())
        };
        self.rows.iter().filter(|row| nothing_hidden || !is_expired(row)).collect()
    }

    pub(crate) fn seen(&self, now: Timestamp) -> Vec<Seen> {
        sorted(self.visible(now).into_iter())
    }

    pub(crate) fn stored(&self) -> Vec<Seen> {
        sorted(self.rows.iter())
    }

    pub(crate) fn buckets(&self) -> BTreeMap<Key, Vec<&Row>> {
        let mut buckets: BTreeMap<Key, Vec<&Row>> = BTreeMap::new();
        for row in &self.rows {
            buckets.entry((row.meta.clone(), row.window.0, row.window.1)).or_default().push(row);
        }
        buckets
    }

    /// The instant from which a sweep drops a bucket.
    pub(crate) fn expires_at(&self, key: &Key, rows: &[&Row], e: i64) -> Timestamp {
        let bound = match self.mode {
            ExpiryMode::Bucket => key.2,
            ExpiryMode::Exact => rows.iter().map(|row| row.t).max().expect("a bucket has rows"),
        };
        Timestamp::from_nanos(self.nanos(bound) + i128::from(e) * SECOND)
    }

    /// What a sweep at `at` would drop under these rules.
    pub(crate) fn due(&self, at: Timestamp, rules: &Rules) -> Vec<Due> {
        if self.suspended().is_some() {
            return Vec::new();
        }
        let mut due = Vec::new();
        for (key, rows) in self.buckets() {
            let Some((rule, e)) = rules.effective(&key.0) else { continue };
            if self.expires_at(&key, &rows, e) <= at {
                due.push(Due { rows: rows.len() as u64, rule: rule.to_owned(), key });
            }
        }
        due
    }

    pub(crate) fn drop_buckets(&mut self, keys: &BTreeSet<Key>) {
        self.rows.retain(|row| !keys.contains(&(row.meta.clone(), row.window.0, row.window.1)));
    }

    pub(crate) fn is_chosen(&self, chosen: &Chosen, row: &Row) -> bool {
        let t = self.nanos(row.t);
        chosen.meta.as_ref().is_none_or(|filter| filter.matches(&row.meta))
            && chosen.from.is_none_or(|from| t >= from.nanos())
            && chosen.to.is_none_or(|to| t < to.nanos())
            && chosen.k.is_none_or(|k| row.k == k)
    }
}

fn sorted<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Seen> {
    let mut seen: Vec<Seen> = rows.map(|row| (row.t, row.meta.clone(), row.id, row.k)).collect();
    seen.sort();
    seen
}
