//! What a sweep would drop of an ordinary collection, by rule and day.

use super::due::{Due, each_expiry};
use super::seal::groups;
use super::segment::DocumentSegment;
use super::state::DocumentsState;
use super::stored::{Stored, raw};
use crate::error::Result;
use crate::snapshot::ExpiryRow;
use bytes::Bytes;
use ebbtide_ttl::{Precision, Timestamp};
use std::collections::BTreeMap;

const DAY_NANOS: i128 = 86_400 * 1_000_000_000;

/// The midnight before an instant.
fn day_of(at: Timestamp) -> Timestamp {
    Timestamp::from_nanos(at.nanos().saturating_sub(at.nanos().rem_euclid(DAY_NANOS)))
}

/// Documents of one bucket that are due, and their bytes, by rule and day.
type DueDays = BTreeMap<String, BTreeMap<Timestamp, (u64, u64)>>;

/// What a sweep at `at` would drop, in the order of days and rules: it goes through the rules in the order of a sweep, which seals
/// first what is due in memory.
pub(super) fn dropped(collection: &DocumentsState, at: Timestamp) -> Result<Vec<ExpiryRow>> {
    let mut forecast =
        Forecast { rules: collection.sweep_rules().filter_map(|rule| rule.rule).collect(), rows: BTreeMap::new() };
    let seals = collection.has_due_in_memory(at);
    for segment in collection.segments.values() {
        let superseded = collection.memtable.superseded(segment.id());
        let left = segment.live_rows() - (&superseded - &segment.deleted).len();
        let (due, all_due) = of_segment(collection, segment, at)?;
        // Otherwise the seal removes the segment, or its rows stay for those that are not due.
        forecast.add(&due, left, if seals { left > 0 } else { all_due });
    }
    if seals {
        for group in groups(collection, collection.memtable.documents()) {
            forecast.add(&of_group(collection, &group, at), group.len() as u64, true);
        }
    }
    Ok(forecast.rows.into_values().collect())
}

struct Forecast {
    /// In the order of a sweep.
    rules: Vec<String>,
    rows: BTreeMap<(Timestamp, String), ExpiryRow>,
}

impl Forecast {
    /// Adds what is due of a bucket. With the last of the documents that it has it goes as a whole, if it may.
    fn add(&mut self, due: &DueDays, mut left: u64, mut may_go: bool) {
        for (rule, days) in self.rules.iter().filter_map(|rule| Some((rule, due.get(rule)?))) {
            left = left.saturating_sub(days.values().map(|(documents, _)| documents).sum());
            let last = days.keys().next_back().filter(|_| left == 0 && may_go);
            may_go &= last.is_none();
            for (day, (documents, bytes)) in days {
                if *documents == 0 && last != Some(day) {
                    continue;
                }
                let none = ExpiryRow { day: *day, rule: rule.clone(), buckets: 0, measurements: 0, bytes: 0 };
                let row = self.rows.entry((*day, rule.clone())).or_insert(none);
                row.buckets += u64::from(last == Some(day));
                row.measurements += documents;
                row.bytes += bytes;
            }
        }
    }
}

/// What is due of a segment, and whether all of its rows are due or gone. Rows that writers have replaced count for the second
/// only; their days are there.
fn of_segment(collection: &DocumentsState, segment: &DocumentSegment, at: Timestamp) -> Result<(DueDays, bool)> {
    let gone = collection.gone(segment);
    let mut due = DueDays::new();
    let mut rows = segment.deleted.len();
    if !Due::none_before(collection, segment, at.to_units_saturating(Precision::Ms)) {
        each_expiry(collection, segment, &mut |row, expires, rule| {
            if expires <= at {
                rows += 1;
                let day = due.entry(rule.to_string()).or_default().entry(day_of(expires)).or_default();
                day.0 += u64::from(!gone.contains(row));
            }
        })?;
    }
    for days in due.values_mut() {
        // Shares that add up to that of all of them.
        let mut documents = 0;
        for day in days.values_mut() {
            day.1 = segment.share(documents + day.0) - segment.share(documents);
            documents += day.0;
        }
    }
    Ok((due, rows >= segment.file.meta.rows))
}

/// What is due of documents that would become a segment.
fn of_group(collection: &DocumentsState, group: &[(Bytes, Stored)], at: Timestamp) -> DueDays {
    let mut due = DueDays::new();
    for (key, stored) in group {
        let expiry = collection.rules.expires_at(raw(&stored.document), stored.written);
        if let Some((expires, rule)) = expiry.filter(|(expires, _)| *expires <= at) {
            let day = due.entry(rule.to_string()).or_default().entry(day_of(expires)).or_default();
            *day = (day.0 + 1, day.1 + (key.len() + stored.document.len()) as u64);
        }
    }
    due
}
