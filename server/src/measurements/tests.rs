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

/// The numbers `n` of the measurements that a filter finds.
fn numbers(all: &ebbtide::Collection, filter: &RawDocument) -> Vec<i32> {
    let query = Query::new(filter).unwrap().window(0, None, 64 << 20);
    let mut found = Measurements::new(all.snapshot().unwrap(), query);
    let (clock, killed) = (Arc::new(SystemClock::new()), Arc::new(AtomicBool::new(false)));
    let mut numbers = Vec::new();
    while !found.is_done() {
        let batch = found.next_batch(1_000, 16 << 20, Deadline::new(&clock, &killed)).unwrap();
        numbers.extend(batch.iter().map(|document| document.get_i32("n").unwrap()));
    }
    numbers
}

#[test]
fn a_condition_means_the_same_whichever_others_stand_beside_it() {
    let db = Database::builder("/db").fs(Arc::new(SimFs::new("/db"))).open().unwrap();
    let options = CollectionOptions::new("t").meta_field("m").precision(ebbtide::ttl::Precision::Us);
    let all = db.create_collection("all", options).unwrap();
    let object = |members: &[(&str, i64)]| {
        Value::Object(members.iter().map(|(name, value)| ((*name).into(), Value::Int(*value))).collect())
    };
    let measurement = |nanos: i64, n: i64, meta: Value, list: &[i64]| {
        Value::Object(vec![
            ("t".into(), Value::Date(Timestamp::from_nanos(i128::from(nanos)))),
            ("m".into(), meta),
            ("n".into(), Value::Int(n)),
            ("l".into(), Value::Array(list.iter().copied().map(Value::Int).collect())),
            ("s".into(), Value::from("x")),
        ])
    };
    // The members of metas are stored in the order b, a, c.
    let documents = [
        measurement(1_500_000, 1, object(&[("b", 1), ("a", 1)]), &[]),
        measurement(2_000_000, 2, object(&[("b", 1), ("c", 2), ("a", 1)]), &[5]),
    ];
    all.insert_documents(&documents).unwrap();
    let shown = bson::DateTime::from_millis(1);
    let pattern = |text: &str| {
        let pattern = bson::raw::CString::try_from(text).unwrap();
        bson::raw::RawBson::RegularExpression(bson::Regex { pattern, options: bson::raw::cstr!("").to_owned() })
    };
    let x = || rawdoc! { "b": 1, "c": 2, "a": 1 };
    for (filter, expected) in [
        // A time of 1.5 ms is shown as 1 ms, and is later.
        (rawdoc! { "t": { "$gt": shown } }, vec![1, 2]),
        (rawdoc! { "t": shown }, vec![]),
        (rawdoc! { "t": { "$lte": shown } }, vec![]),
        (rawdoc! { "t": { "$gt": shown, "$not": { "$size": 3 } } }, vec![1, 2]),
        (rawdoc! { "n": { "$type": "double" } }, vec![1, 2]),
        (rawdoc! { "l.0": null }, vec![1]),
        (rawdoc! { "l.0": { "$ne": null } }, vec![2]),
        (rawdoc! { "m": x() }, vec![2]),
        (rawdoc! { "m": { "a": 1, "b": 1, "c": 2 } }, vec![2]),
        (rawdoc! { "m": { "$ne": x() } }, vec![1]),
        (rawdoc! { "m": { "$in": [x()] } }, vec![2]),
        (rawdoc! { "m": { "$all": [x()] } }, vec![2]),
        (rawdoc! { "m": { "$not": { "$all": [x()] } } }, vec![1]),
        (rawdoc! { "m": { "$gte": x(), "$lte": x() } }, vec![2]),
        (rawdoc! { "m": { "$gt": x() } }, vec![]),
        (rawdoc! { "n": { "$mod": [2, 0] } }, vec![2]),
        (rawdoc! { "s": { "$in": [pattern("^x"), "y"] } }, vec![1, 2]),
        (rawdoc! { "s": { "$in": [pattern("^y"), "x"] } }, vec![1, 2]),
        (rawdoc! { "s": { "$nin": [pattern("^y"), "x"] } }, vec![]),
        (rawdoc! { "s": { "$nin": [pattern("^y")] } }, vec![1, 2]),
        (rawdoc! { "t": { "$in": [pattern("x"), shown] } }, vec![]),
        (rawdoc! { "m": { "$in": [pattern("x"), x()] } }, vec![2]),
        (rawdoc! { "m": { "$not": { "$in": [pattern("x"), x()] } } }, vec![1]),
        (rawdoc! { "l.0": { "$in": [pattern("x"), null] } }, vec![1]),
        (rawdoc! { "n": { "$type": ["double", "null"] } }, vec![1, 2]),
        (rawdoc! { "s": { "$type": ["null", "objectId"] } }, vec![]),
    ] {
        let (regex, never) = (rawdoc! { "s": { "$regex": "X", "$options": "i" } }, rawdoc! { "s": { "$regex": "z" } });
        for beside in [
            filter.clone(),
            rawdoc! { "$and": [regex, filter.clone()], "$comment": "what it is for" },
            rawdoc! { "$or": [never.clone(), filter.clone()] },
            rawdoc! { "$nor": [{ "$nor": [never, filter.clone()] }] },
        ] {
            assert_eq!(numbers(&all, &beside), expected, "{beside:?}");
        }
    }
}
