//! What the engine shows beside what the model has.

use crate::meta::Meta;
use crate::model::{Key, Model, Row, Rules, Seen};
use ebbtide::buckets::value_at;
use ebbtide::ttl::{RuleSet, RuleSpec, Timestamp, Value};
use ebbtide::{CollectionSnapshot, ScanRequest, TimeRange};
use std::collections::BTreeMap;

const DAY: i128 = 86_400 * 1_000_000_000;

/// The rows of a scan, sorted.
pub(crate) fn scanned(snapshot: &CollectionSnapshot, model: &Model, request: &ScanRequest) -> Vec<Seen> {
    let mut seen = Vec::new();
    for unit in snapshot.scan(request).expect("scans") {
        let mut rows = 0;
        for batch in unit.read().expect("reads") {
            let batch = batch.expect("a batch");
            rows += batch.num_rows() as u64;
            let column = |name: &str| batch.column_by_name(name);
            let value =
                |name: &str, row: usize| column(name).map_or(Value::Null, |column| value_at(column.as_ref(), row));
            let int = |name: &str, row: usize| match value(name, row) {
                Value::Int(i) => i,
                other => panic!("{name} is {other:?}"),
            };
            for row in 0..batch.num_rows() {
                let Value::Date(t) = value("t", row) else { panic!("the time is {:?}", value("t", row)) };
                let t = model.units(t).expect("a time of the collection");
                seen.push((t, Meta::of(&value("m", row)), int("id", row), int("k", row)));
            }
        }
        assert!(rows <= unit.rows_estimate());
        assert!(!unit.rows_exact() || rows == unit.rows_estimate());
    }
    seen.sort();
    seen
}

/// Bounds of time are exact, both ends included.
pub(crate) fn check_bounded(snapshot: &CollectionSnapshot, model: &Model, now: Timestamp) {
    let seen = model.seen(now);
    let units = |seconds: i64| model.units(now.plus_seconds(seconds)).expect("a time near now");
    let some = seen.get(seen.len() / 2).map_or(0, |row| row.0);
    for time in [(Some(some), None), (None, Some(some)), (Some(units(-60)), Some(units(5))), (Some(some), Some(some))] {
        let is_within = |row: &&Seen| time.0.is_none_or(|from| row.0 >= from) && time.1.is_none_or(|to| row.0 <= to);
        let expected: Vec<Seen> = seen.iter().filter(is_within).cloned().collect();
        let request = ScanRequest {
            time: TimeRange::of_units(time.0, time.1, snapshot.options().precision),
            ..ScanRequest::default()
        };
        assert_eq!(scanned(snapshot, model, &request), expected, "visible within {time:?} at {now}");
    }
}

/// Law 5, and what listings say of each bucket.
pub(crate) fn check_buckets(snapshot: &CollectionSnapshot, model: &Model, now: Timestamp) {
    let mut visible: BTreeMap<Key, u64> = BTreeMap::new();
    for row in model.visible(now) {
        *visible.entry((row.meta.clone(), row.window.0, row.window.1)).or_default() += 1;
    }
    type Shown = (Key, i64, i64, u64, Option<String>, Option<Timestamp>);
    let of_model = |(key, rows): (Key, Vec<&Row>)| -> Shown {
        let times = || rows.iter().map(|row| row.t);
        let effective = model.rules.effective(&key.0);
        let expires_at = effective.map(|(_, e)| model.expires_at(&key, &rows, e));
        let rule = effective.map(|(rule, _)| rule.to_owned());
        let visible = visible.get(&key).copied().unwrap_or(0);
        let (first, last) = (times().min().expect("rows"), times().max().expect("rows"));
        (key, first, last, visible, rule, expires_at)
    };
    let expected: Vec<Shown> = model.buckets().into_iter().map(of_model).collect();
    let units = |at: Timestamp| model.units(at).expect("a time of the collection");
    let listed = snapshot.buckets().expect("a listing").into_iter().map(|b| {
        let key = (Meta::of(&b.meta), units(b.window_start), units(b.window_end));
        (key, units(b.first_time), units(b.last_time), b.measurements, b.rule, b.expires_at)
    });
    let mut listed: Vec<Shown> = listed.collect();
    listed.sort();
    assert_eq!(listed, expected, "buckets at {now}");
    assert_eq!(snapshot.bucket_count().expect("counts"), expected.len() as u64);
}

pub(crate) fn check_rules(snapshot: &CollectionSnapshot, model: &Model, now: Timestamp) {
    let infos = snapshot.rule_infos().expect("a listing of rules");
    let shown: Vec<_> = infos.iter().map(|info| (info.rule.clone(), info.expire_after_seconds)).collect();
    assert_eq!(shown, model.rules.labels());
    let due = model.due(now, &model.rules);
    for info in infos {
        let buckets: Vec<_> = model
            .buckets()
            .into_iter()
            .filter(|(key, _)| model.rules.effective(&key.0).is_some_and(|(rule, _)| rule == info.rule))
            .collect();
        let visible = model.visible(now).into_iter();
        let visible = visible.filter(|row| model.rules.effective(&row.meta).is_some_and(|(rule, _)| rule == info.rule));
        let next = buckets.iter().map(|(key, rows)| model.expires_at(key, rows, info.expire_after_seconds)).min();
        let due = || due.iter().filter(|due| due.rule == info.rule);
        assert_eq!(
            (info.buckets, info.measurements, info.next_expiry, info.due_buckets, info.due_measurements),
            (buckets.len() as u64, visible.count() as u64, next, due().count() as u64, due().map(|d| d.rows).sum()),
            "rule {} at {now}",
            info.rule
        );
        let state =
            model.suspended().map_or("active".to_owned(), |n| format!("suspended: {n} measurements out of range"));
        assert_eq!(info.state, state);
    }
}

/// A dry run at any instant and under any rules names what a sweep would drop.
pub(crate) fn check_explained(snapshot: &CollectionSnapshot, model: &Model, at: Timestamp, proposed: Option<&Rules>) {
    let engine_rules = proposed.map(|rules| {
        let mut set = RuleSet::new(rules.own);
        let specs = rules.partial.iter().map(|rule| RuleSpec::new(rule.name.clone(), rule.e, rule.filter.parsed()));
        set.create(specs.collect()).expect("rules that exist already together");
        set
    });
    let mut expected: BTreeMap<(Timestamp, String), (u64, u64)> = BTreeMap::new();
    for due in model.due(at, proposed.unwrap_or(&model.rules)) {
        let start = model.nanos(due.key.1);
        let entry = expected.entry((Timestamp::from_nanos(start - start.rem_euclid(DAY)), due.rule)).or_default();
        *entry = (entry.0 + 1, entry.1 + due.rows);
    }
    let rows = snapshot.explain_expiry(at, engine_rules.as_ref()).expect("explains");
    let explained: BTreeMap<_, _> = rows.into_iter().map(|r| ((r.day, r.rule), (r.buckets, r.measurements))).collect();
    assert_eq!(explained, expected, "what goes at {at}");
}
