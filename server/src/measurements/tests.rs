use super::*;
use bson::rawdoc;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{SystemClock, Timestamp};
use ebbtide::{CollectionOptions, Database};
use std::sync::atomic::AtomicBool;

/// Matches are rare for a long time, and then every measurement is one.
#[test]
fn slices_have_few_documents_where_rare_matches_become_frequent() {
    let db = Database::builder("/db").fs(Arc::new(SimFs::new("/db"))).open().unwrap();
    let all = db.create_collection("all", CollectionOptions::new("t").meta_field("m")).unwrap();
    let (rare, frequent) = (250_000_i64, 60_000_i64);
    let begin = 1_704_067_200_000;
    let measurement = |at: i64| {
        let matches = at % 1_000 == 0 || at >= rare;
        Value::Object(vec![
            ("t".into(), Value::Date(Timestamp::from_millis(begin + at * 1_000))),
            ("m".into(), Value::from("a")),
            ("n".into(), Value::Int(i64::from(matches))),
            ("other".into(), Value::Int(at)),
        ])
    };
    for from in (0..rare + frequent).step_by(10_000) {
        all.insert_documents(&(from..from + 10_000).map(measurement).collect::<Vec<_>>()).unwrap();
    }
    db.flush().unwrap();
    db.compact(None).unwrap();
    let query = Query::new(&rawdoc! { "n": { "$gt": 0 } }).unwrap().window(0, None, 3 << 20);
    let mut found = Measurements::new(all.snapshot().unwrap(), query);
    let (clock, killed) = (Arc::new(SystemClock::new()), Arc::new(AtomicBool::new(false)));
    let mut count = 0;
    while !found.is_done() {
        count += found.next_batch(1_000, 16 << 20, Deadline::new(&clock, &killed)).unwrap().len() as i64;
    }
    assert_eq!(count, rare / 1_000 + frequent);
}

/// The buckets that contain one instant have more rows than a slice should.
#[test]
fn slices_do_not_shrink_to_instants_where_buckets_are_large() {
    let db = Database::builder("/db").fs(Arc::new(SimFs::new("/db"))).open().unwrap();
    let all = db.create_collection("all", CollectionOptions::new("t").meta_field("m")).unwrap();
    let begin = 1_704_067_200_000;
    let (seconds, series) = (7_200_i64, 10_i64);
    for from in (0..seconds).step_by(1_000) {
        let measurement = |at: i64| {
            Value::Object(vec![
                ("t".into(), Value::Date(Timestamp::from_millis(begin + at / series * 1_000))),
                ("m".into(), Value::Int(at % series)),
                ("n".into(), Value::Int(at)),
            ])
        };
        let until = (from + 1_000).min(seconds);
        all.insert_documents(&(from * series..until * series).map(measurement).collect::<Vec<_>>()).unwrap();
    }
    db.flush().unwrap();
    let every = seconds * series;
    for (filter, expected) in
        [(rawdoc! {}, every), (rawdoc! { "n": { "$gte": 0 } }, every), (rawdoc! { "n": { "$lt": 50 } }, 50)]
    {
        let query = Query::new(&filter).unwrap().window(0, None, 64 << 20);
        let mut found = Measurements::new(all.snapshot().unwrap(), query);
        let (clock, killed) = (Arc::new(SystemClock::new()), Arc::new(AtomicBool::new(false)));
        let mut count = 0;
        while !found.is_done() {
            count += found.next_batch(1_000, 16 << 20, Deadline::new(&clock, &killed)).unwrap().len() as i64;
            assert!(found.width > 60_000, "slices of {} ms", found.width);
        }
        assert_eq!(count, expected);
    }
}

/// From the first to the last time that there is.
#[test]
fn measurements_at_both_ends_of_time_are_found_once() {
    let db = Database::builder("/db").fs(Arc::new(SimFs::new("/db"))).open().unwrap();
    let options = CollectionOptions::new("t").precision(ebbtide::ttl::Precision::Ns);
    let all = db.create_collection("all", options).unwrap();
    let times = [i64::MIN, 0, i64::MAX].map(|nanos| Timestamp::from_units(nanos, ebbtide::ttl::Precision::Ns));
    let documents: Vec<Value> = times
        .iter()
        .map(|time| Value::Object(vec![("t".into(), Value::Date(*time)), ("n".into(), Value::Int(1))]))
        .collect();
    all.insert_documents(&documents).unwrap();
    let (clock, killed) = (Arc::new(SystemClock::new()), Arc::new(AtomicBool::new(false)));
    for sort in [rawdoc! {}, rawdoc! { "t": -1 }] {
        let query = Query::new(&rawdoc! {}).unwrap().sort(&sort).unwrap().window(0, None, 64 << 20);
        let mut found = Measurements::new(all.snapshot().unwrap(), query);
        let mut count = 0;
        while !found.is_done() {
            count += found.next_batch(1_000, 16 << 20, Deadline::new(&clock, &killed)).unwrap().len();
        }
        assert_eq!(count, times.len(), "{sort:?}");
    }
}
