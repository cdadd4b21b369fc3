//! What a dry run forecasts is what the sweep does, and what listings say is due.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use crate::expect::Row;
use crate::runner::{documents, rule_spec};
use crate::script::{Fields, HOUR, NOON};
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Clock, ExpiryMode, Filter, Timestamp, Value, VirtualClock};
use ebbtide::{CollectionOptions, CollectionSnapshot, Database, ExpiryRow};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const METAS: [&str; 4] = ["a", "b", "d", "e"];

/// A collection: its mode, its rules, and inserts, each with whether a flush follows.
#[derive(Debug, Clone)]
struct Case {
    mode: ExpiryMode,
    own: Option<i64>,
    partial: Vec<(usize, i64)>,
    inserts: Vec<(Vec<(i64, usize)>, bool)>,
    deleted: Option<usize>,
    /// Milliseconds after noon.
    now: i64,
    later: i64,
    another: (usize, i64),
}

fn seconds() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), Just(3600), 0_i64..40_000]
}

fn cases() -> impl Strategy<Value = Case> {
    // Minutes before noon, so that instants at which something is due are met exactly.
    let rows = prop::collection::vec((0_i64..600, 0..METAS.len()), 1..12);
    let rules = prop::collection::btree_map(0..METAS.len(), seconds(), 0..3);
    let time = || prop_oneof![(-600_i64..900).prop_map(|minute| minute * 60_000), -36_000_000_i64..54_000_000];
    (
        (any::<bool>(), prop::option::weighted(0.7, seconds()), rules),
        prop::collection::vec((rows, any::<bool>()), 1..5),
        prop::option::weighted(0.2, 0..METAS.len()),
        (time(), time(), (0..METAS.len(), seconds())),
    )
        .prop_map(|((exact, own, partial), inserts, deleted, (now, later, another))| Case {
            mode: if exact { ExpiryMode::Exact } else { ExpiryMode::Bucket },
            own,
            partial: partial.into_iter().collect(),
            inserts,
            deleted,
            now: now.min(later),
            later: now.max(later),
            another,
        })
}

fn at(milliseconds: i64) -> Timestamp {
    Timestamp::from_millis(NOON + milliseconds)
}

/// Opens a database that holds what the case says, with the clock before all that is asked about.
fn database(case: &Case) -> (Database, VirtualClock) {
    let clock = VirtualClock::new(at(-36_000_000));
    let fs = SimFs::new("/data/db");
    let db = Database::builder("/data/db").fs(Arc::new(fs)).clock(Arc::new(clock.clone())).open().unwrap();
    let mut options = CollectionOptions::new("t").meta_field("m").span_seconds(3600).expiry(case.mode);
    options.expire_after_seconds = case.own;
    let c = db.create_collection("c", options).unwrap();
    let rules: Vec<_> = case.partial.iter().map(|(meta, e)| rule_spec(METAS[*meta], METAS[*meta], *e)).collect();
    if !rules.is_empty() {
        db.create_rules("c", rules).unwrap();
    }
    let mut id = 0;
    for (rows, flush) in &case.inserts {
        let row = |(minute, meta): &(i64, usize)| {
            id += 1;
            Row { id, t: NOON - HOUR * 10 + minute * 60_000, meta: METAS[*meta].to_owned() }
        };
        let rows: Vec<Row> = rows.iter().map(row).collect();
        c.insert_documents(&documents(&rows, Fields::Plain)).unwrap();
        if *flush {
            db.flush().unwrap();
        }
    }
    if let Some(meta) = case.deleted {
        c.delete(&Filter::eq("m", Value::from(METAS[meta]))).unwrap();
    }
    (db, clock)
}

/// Buckets, measurements and bytes by rule.
type Sums = BTreeMap<String, (u64, u64, u64)>;

fn sums(rows: &[ExpiryRow]) -> Sums {
    let mut sums = Sums::new();
    for row in rows {
        let sum = sums.entry(row.rule.clone()).or_default();
        *sum = (sum.0 + row.buckets, sum.1 + row.measurements, sum.2 + row.bytes);
    }
    sums
}

fn total(sums: &Sums) -> (u64, u64) {
    sums.values().fold((0, 0), |all, sum| (all.0 + sum.0, all.1 + sum.1))
}

fn snapshot(db: &Database) -> CollectionSnapshot {
    db.collection("c").and_then(|c| c.snapshot()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_dry_run_says_what_the_sweep_then_does(case in cases()) {
        let (db, clock) = database(&case);
        clock.set(at(case.now));
        let forecast = sums(&snapshot(&db).explain_expiry(clock.now(), None).unwrap());
        // SHOW TTL at this instant names the same as due.
        let due = snapshot(&db).rule_infos().unwrap();
        let due: Sums = due.into_iter().map(|i| (i.rule, (i.due_buckets, i.due_measurements, 0))).collect();
        let counts = |sums: &Sums| -> Vec<(String, u64, u64)> {
            let some = sums.iter().filter(|(_, sum)| sum.0 > 0);
            some.map(|(rule, sum)| (rule.clone(), sum.0, sum.1)).collect()
        };
        prop_assert_eq!(counts(&due), counts(&forecast));
        let open = snapshot(&db).buckets().unwrap().iter().any(|bucket| !bucket.sealed);
        let report = db.sweep().unwrap();
        let swept = (report.counts.deleted_buckets, report.counts.deleted_documents);
        prop_assert_eq!(swept, total(&forecast));
        // And through the same rules, as the history has it.
        let mut done = Sums::new();
        for record in db.sweeps() {
            let sum = done.entry(record.rule).or_default();
            *sum = (sum.0 + record.buckets, sum.1 + record.measurements, sum.2 + record.bytes);
        }
        prop_assert_eq!(counts(&done), counts(&forecast));
        // Open buckets are sealed first, which makes their bytes others. Those of sealed ones are shares of their files,
        // rounded down bucket by bucket.
        if !open {
            for (rule, sum) in &done {
                let said = forecast.get(rule).map_or(0, |sum| sum.2);
                prop_assert!((said..=said + sum.0).contains(&sum.2), "{} bytes went, {} were said", sum.2, said);
            }
        }
        prop_assert!(snapshot(&db).explain_expiry(clock.now(), None).unwrap().is_empty());
    }

    #[test]
    fn a_bucket_is_due_from_the_instant_that_listings_name(case in cases()) {
        let (db, _clock) = database(&case);
        let view = snapshot(&db);
        let due = |at: Timestamp| total(&sums(&view.explain_expiry(at, None).unwrap())).0;
        let ends: Vec<Timestamp> = view.buckets().unwrap().into_iter().filter_map(|b| b.expires_at).collect();
        let expected = |at: Timestamp| ends.iter().filter(|end| **end <= at).count() as u64;
        for at in ends.iter().flat_map(|end| [Timestamp::from_nanos(end.nanos() - 1), *end]).chain([at(case.now), at(case.later)]) {
            prop_assert_eq!(due(at), expected(at));
        }
    }

    #[test]
    fn time_and_further_rules_only_make_more_due(case in cases()) {
        let (db, _clock) = database(&case);
        let view = snapshot(&db);
        let due = |at: Timestamp| total(&sums(&view.explain_expiry(at, None).unwrap()));
        let (now, later) = (due(at(case.now)), due(at(case.later)));
        prop_assert!(now.0 <= later.0 && now.1 <= later.1);
        let mut more = view.rules().clone();
        let (meta, e) = case.another;
        if more.create(vec![rule_spec("more", METAS[meta], e)]).is_ok() {
            let proposed = total(&sums(&view.explain_expiry(at(case.now), Some(&more)).unwrap()));
            prop_assert!(proposed.0 >= now.0 && proposed.1 >= now.1);
        }
    }
}
