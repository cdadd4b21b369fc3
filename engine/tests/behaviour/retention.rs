//! Grace, holds and limits of size: what stays although it has expired, and what goes although it has not.

use super::*;
use ebbtide::HoldOptions;
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::{Code, Filter};
use ebbtide::{CollectionChange, SweepReport};

const HOUR: i64 = 3600;

fn of_meta(sensor: &str) -> Filter {
    Filter::eq("sensor", Value::from(sensor))
}

/// Expired measurements that are still stored: their numbers with the rule, sorted.
fn expired(db: &Database) -> Vec<(i64, String)> {
    let snapshot = db.snapshot().collection("weather").unwrap();
    let request = ScanRequest { projection: Some(vec!["v".into()]), ..ScanRequest::default() };
    let mut found = Vec::new();
    for expired in snapshot.expired(&request).unwrap() {
        for batch in expired.unit.read().unwrap() {
            let batch = batch.unwrap();
            found.extend((0..batch.num_rows()).map(|row| match ebbtide::buckets::value_at(batch.column(0), row) {
                Value::Int(v) => (v, expired.rule.clone()),
                other => panic!("a reading of {other:?}"),
            }));
        }
    }
    found.sort();
    found
}

fn dropped(report: &SweepReport) -> (u64, u64) {
    (report.counts.deleted_documents, report.counts.held_buckets)
}

fn collection(db: &Database, options: CollectionOptions, rows: &[Value]) -> Collection {
    let collection = db.create_collection("weather", options).unwrap();
    collection.insert_documents(rows).unwrap();
    collection
}

#[test]
fn what_has_expired_is_hidden_and_stored_until_its_grace_is_over() {
    let sim = Sim::new();
    let db = sim.open();
    collection(&db, weather().expire_after_seconds(HOUR).grace_seconds(DAY), &readings(0..3));
    sim.clock.set(at(HOUR + 1));
    assert_eq!(numbers(&db), [2]);
    assert_eq!(expired(&db), [(0, "collection".to_owned()), (1, "collection".to_owned())]);
    for (now, left) in [(HOUR + DAY + 1, 3), (HOUR + DAY + 2, 0)] {
        sim.clock.set(at(now));
        assert_eq!(dropped(&db.sweep().unwrap()), (3 - left, 0));
        assert_eq!(expired(&db).len() as u64, left, "a sweep {now} s later");
    }
    let history = db.sweeps();
    assert_eq!((history[0].expire_after_seconds, history[0].cutoff), (HOUR, at(2)));
}

#[test]
fn a_longer_life_brings_back_what_is_within_its_grace() {
    let sim = Sim::new();
    let db = sim.open();
    let c = collection(&db, weather().expire_after_seconds(HOUR).grace_seconds(DAY), &readings(0..3));
    db.flush().unwrap();
    sim.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    assert_eq!((numbers(&db), expired(&db).len()), (NOTHING.to_vec(), 3));
    let longer = CollectionChange { expire_after_seconds: Some(Some(DAY)), ..CollectionChange::default() };
    db.modify_collection("weather", &longer, None).unwrap();
    assert_eq!((c.snapshot().unwrap().count().unwrap(), expired(&db).len()), (3, 0));
}

#[test]
fn a_shorter_grace_acts_on_what_has_expired_before_and_survives_a_power_cut() {
    let sim = Sim::new();
    let db = sim.open();
    collection(&db, weather().expire_after_seconds(HOUR).grace_seconds(DAY), &readings(0..3));
    let shorter = CollectionChange { grace_seconds: Some(60), ..CollectionChange::default() };
    db.modify_collection("weather", &shorter, None).unwrap();
    drop(db);
    let sim = sim.on(sim.fs.crash(Variant::V0, 0));
    for _ in 0..2 {
        let db = sim.open();
        assert_eq!(db.collection("weather").unwrap().snapshot().unwrap().options().grace_seconds, 60);
        db.close().unwrap();
    }
    let db = sim.open();
    sim.clock.set(at(HOUR + 61));
    assert_eq!(dropped(&db.sweep().unwrap()), (0, 0));
    sim.clock.set(at(HOUR + 62));
    assert_eq!(dropped(&db.sweep().unwrap()), (3, 0));
}

#[test]
fn grace_is_refused_where_nothing_is_hidden() {
    let sim = Sim::new();
    let db = sim.open();
    let options = weather().expiry(ebbtide::ttl::ExpiryMode::Bucket).grace_seconds(1);
    assert_eq!(db.create_collection("weather", options).unwrap_err().code(), Code::InvalidOptions);
    db.create_collection("weather", weather().grace_seconds(1)).unwrap();
    let change = CollectionChange { expiry: Some(ebbtide::ttl::ExpiryMode::Bucket), ..CollectionChange::default() };
    assert_eq!(db.modify_collection("weather", &change, None).unwrap_err().code(), Code::InvalidOptions);
}

#[test]
fn a_hold_keeps_whole_buckets_from_sweeps_until_it_is_lifted() {
    let sim = Sim::new();
    let db = sim.open();
    // Two windows of two sensors; the hold covers the second half of the first window of one of them.
    let rows: Vec<Value> = (0..8).map(|v| reading(v * 900, if v % 2 == 0 { "roof" } else { "cellar" }, v)).collect();
    collection(&db, weather().expire_after_seconds(HOUR), &rows);
    let hold = HoldOptions::new("case 42").metas(of_meta("roof")).since(at(1000)).until(at(HOUR));
    db.create_hold("case42", "weather", hold).unwrap();
    sim.clock.set(at(DAY));
    let kept = [(0, "collection".to_owned()), (2, "collection".to_owned())];
    db.flush().unwrap();
    drop(db);
    for disk in [sim.on(sim.fs.crash(Variant::V0, 0)), sim] {
        let db = disk.open();
        assert_eq!(dropped(&db.sweep().unwrap()), (6, 1));
        assert_eq!((numbers(&db), expired(&db)), (NOTHING.to_vec(), kept.to_vec()));
        assert_eq!(db.snapshot().holds().unwrap()[0].measurements, 1);
        db.compact(None).unwrap();
        assert_eq!(dropped(&db.sweep().unwrap()), (0, 1));
        db.lift_hold("case42").unwrap();
        assert_eq!(dropped(&db.sweep().unwrap()), (2, 0));
        let history = db.snapshot().holds().unwrap();
        assert_eq!((history[0].lifted_at, history[0].measurements), (Some(at(DAY)), 0));
    }
}

#[test]
fn a_hold_survives_a_power_cut_with_its_history() {
    let sim = Sim::new();
    let db = sim.open();
    collection(&db, weather().expire_after_seconds(HOUR), &readings(0..3));
    db.create_hold("first", "weather", HoldOptions::new("one")).unwrap();
    db.lift_hold("first").unwrap();
    sim.clock.set(at(10));
    db.create_hold("first", "weather", HoldOptions::new("two")).unwrap();
    let before = db.snapshot().holds().unwrap();
    drop(db);
    let sim = sim.on(sim.fs.crash(Variant::V0, 0));
    for _ in 0..2 {
        let db = sim.open();
        assert_eq!(db.snapshot().holds().unwrap(), before);
        db.close().unwrap();
    }
    let db = sim.open();
    sim.clock.set(at(DAY));
    assert_eq!(dropped(&db.sweep().unwrap()), (0, 1));
}

#[test]
fn a_hold_refuses_deletes_drops_and_other_names_and_nothing_changes() {
    let sim = Sim::new();
    let db = sim.open();
    let c = collection(&db, weather(), &readings(0..5));
    db.create_hold("case42", "weather", HoldOptions::new("case 42").since(at(3))).unwrap();
    let code = |result: ebbtide::Result<()>| result.unwrap_err();
    let everything = Filter::everything();
    for error in [
        code(c.delete(&everything).map(drop)),
        code(db.drop_collection("weather")),
        code(db.rename_collection("weather", "climate")),
        code(db.drop_field("weather", "v")),
    ] {
        assert_eq!(error.code(), Code::IllegalOperation);
        assert!(error.to_string().contains("'case42'"), "{error}");
    }
    assert_eq!(numbers(&db), numbered(0..5));
    let early = Filter::compare("v", ebbtide::ttl::Comparison::Lt, Value::Int(3));
    assert_eq!(c.delete(&early).unwrap(), 3, "what no hold covers");
    db.lift_hold("case42").unwrap();
    db.drop_collection("weather").unwrap();
    assert_eq!(db.snapshot().holds().unwrap()[0].lifted_at, Some(at(0)));
}

#[test]
fn a_hold_that_cannot_be_is_refused() {
    let sim = Sim::new();
    let db = sim.open();
    collection(&db, weather(), &readings(0..1));
    db.create_collection("plain", CollectionOptions::new("t")).unwrap();
    db.create_documents("papers", ebbtide::DocumentsOptions::default()).unwrap();
    let make = |name: &str, collection: &str, options: HoldOptions| {
        db.create_hold(name, collection, options).unwrap_err().code()
    };
    let hold = || HoldOptions::new("why");
    assert_eq!(make("h", "nothing", hold()), Code::NamespaceNotFound);
    assert_eq!(make("h", "papers", hold()), Code::InvalidOptions);
    assert_eq!(make("h", "weather", HoldOptions::new(" ")), Code::InvalidOptions);
    assert_eq!(make("", "weather", hold()), Code::InvalidOptions);
    assert_eq!(make("h", "weather", hold().since(at(5)).until(at(5))), Code::InvalidOptions);
    assert_eq!(make("h", "weather", hold().metas(Filter::eq("v", Value::Int(1)))), Code::InvalidOptions);
    assert_eq!(make("h", "plain", hold().metas(of_meta("roof"))), Code::InvalidOptions);
    db.create_hold("h", "weather", hold()).unwrap();
    assert_eq!(make("h", "weather", hold()), Code::NamespaceExists);
    assert_eq!(db.lift_hold("other").unwrap_err().code(), Code::NamespaceNotFound);
}

/// Ten windows of an hour with a reading a second of two sensors, sealed.
fn ten_windows(db: &Database, options: CollectionOptions) -> u64 {
    let rows = (0..10 * HOUR / 10).map(|n| reading(n * 10, if n % 2 == 0 { "a" } else { "b" }, n)).collect::<Vec<_>>();
    collection(db, options, &rows);
    db.flush().unwrap();
    let snapshot = db.snapshot().collection("weather").unwrap();
    snapshot.info().unwrap().bytes
}

#[test]
fn a_collection_above_its_size_loses_its_oldest_windows_over_all_metas() {
    let sim = Sim::new();
    let db = sim.open();
    let all = ten_windows(&db, weather());
    let limit = |bytes| CollectionChange { max_bytes: Some(Some(bytes)), ..CollectionChange::default() };
    db.modify_collection("weather", &limit(all / 2), None).unwrap();
    let explained = db.snapshot().collection("weather").unwrap().explain_expiry(at(0), None).unwrap();
    let buckets: u64 = explained.iter().map(|row| row.buckets).sum();
    assert!(explained.iter().all(|row| row.rule == "size"), "{explained:?}");
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_buckets, report.counts.held_buckets), (buckets, 0));
    let info = db.snapshot().collection("weather").unwrap().info().unwrap();
    assert!(info.bytes <= all / 2, "{} of {all}", info.bytes);
    let left = numbers(&db);
    let (first, rows) = (left[0], left.len() as i64);
    assert!((1..3600).contains(&first) && rows >= 3600 - first - 360, "no more than one meta's window is missing");
    assert_eq!(db.sweeps().last().unwrap().rule, "size");
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 0, "it is within its size now");
    // The newest window stays, however large it is.
    db.modify_collection("weather", &limit(1), None).unwrap();
    db.sweep().unwrap();
    assert_eq!(numbers(&db), numbered(3240..3600));
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn size_needs_no_clock_and_keeps_what_a_hold_covers() {
    let sim = Sim::new();
    let db = sim.open();
    ten_windows(&db, weather().expire_after_seconds(100 * DAY).max_bytes(1));
    db.create_hold("first", "weather", HoldOptions::new("why").metas(of_meta("a")).until(at(HOUR))).unwrap();
    // A jump of the clock holds the sweep.
    sim.clock.jump(at(1000 * DAY));
    let off = db.set_parameter("ttlMonitorEnabled", &Value::Bool(false)).unwrap();
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 0);
    db.set_parameter("ttlMonitorEnabled", &off).unwrap();
    let report = db.sweep().unwrap();
    assert!(report.held.is_some());
    assert_eq!(report.counts.deleted_buckets, 17, "all but one held bucket and the two of the newest window");
    let snapshot = db.snapshot_at(at(0)).collection("weather").unwrap();
    assert_eq!(snapshot.buckets().unwrap().len(), 3);
}

#[test]
fn size_also_works_while_expiry_is_suspended() {
    let sim = Sim::new();
    let db = sim.open();
    ten_windows(&db, weather().expire_after_seconds(1).max_bytes(1));
    let early = Timestamp::parse("1969-12-31T00:00:00Z").unwrap();
    let row = Value::Object(vec![("t".into(), Value::Date(early)), ("sensor".into(), Value::from("a"))]);
    db.collection("weather").unwrap().insert_documents(&[row]).unwrap();
    let snapshot = db.snapshot().collection("weather").unwrap();
    assert_eq!(snapshot.suspended(), Some(1));
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 19, "the one of 1969 goes first");
    assert_eq!(numbers(&db), numbered(3240..3600));
}

#[test]
fn a_rule_whose_filter_createindexes_refuses_is_refused_by_the_library_too() {
    use ebbtide::ttl::{Comparison, RuleSpec};
    let sim = Sim::new();
    let db = sim.open();
    collection(&db, weather(), &readings(0..3));
    let nested = |levels: usize| (0..levels).fold(Value::Int(1), |value, _| Value::Array(vec![value]));
    let negated = |times: usize| {
        (0..times).fold(of_meta("a"), |filter, _| Filter::negate(Filter::and(vec![filter, of_meta("b")])))
    };
    let wrong = [
        (Filter::compare("sensor", Comparison::Gt, Value::Null), Code::CannotCreateIndex),
        (Filter::of_type("sensor", &[]), Code::BadValue),
        (Filter::eq("sensor", nested(101)), Code::BadValue),
        (negated(300), Code::BadValue),
        (negated(1), Code::CannotCreateIndex),
        (Filter::compare("v", Comparison::Lt, Value::Int(5)), Code::InvalidOptions),
        (Filter::eq("nosuch", Value::Int(1)), Code::InvalidOptions),
        (Filter::everything(), Code::InvalidOptions),
    ];
    for (filter, code) in wrong {
        let spec = RuleSpec::new("r", 60, filter.clone());
        assert_eq!(db.create_rules("weather", vec![spec]).unwrap_err().code(), code, "{filter}");
    }
    let all = Filter::and(vec![
        Filter::exists("sensor"),
        Filter::or(vec![of_meta("a"), Filter::is_in("sensor.x", vec![Value::Null, nested(3)])]),
        Filter::of_type("sensor.y", &[ebbtide::ttl::TypeClass::Binary, ebbtide::ttl::TypeClass::Date]),
    ]);
    db.create_rules("weather", vec![RuleSpec::new("right", 60, all)]).unwrap();
    db.close().unwrap();
    let db = sim.open();
    assert_eq!(
        (numbers(&db), db.snapshot().collection("weather").unwrap().rules().partial().len()),
        (numbered(0..3), 1)
    );
}
