//! Who may open a database, and what readers see.

use crate::{DAY, NOTHING, Sim, at, made, numbered, numbers, numbers_in, reading, readings, weather};
use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::error::ArrowError;
use ebbtide::buckets::value_at;
use ebbtide::ttl::{Code, Filter, Value};
use ebbtide::{Database, ErrorKind, MetaFilter, MetaPart, ScanRequest};
use std::sync::Arc;

#[test]
fn a_second_writer_is_refused_and_told_who_holds_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let first = Database::open(folder.path()).unwrap();
    let error = Database::open(folder.path()).unwrap_err();
    assert_eq!((error.code(), error.kind()), (Code::LockBusy, ErrorKind::Busy));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    first.close().unwrap();
    Database::open(folder.path()).unwrap().close().unwrap();
}

#[test]
fn a_reader_beside_a_writer_sees_what_is_acknowledged_and_writes_nothing() {
    let sim = Sim::new();
    let (db, weather) = made(&sim);
    weather.insert_documents(&readings(0..10)).unwrap();
    db.flush().unwrap();
    weather.insert_documents(&readings(10..20)).unwrap();
    let before = sim.fs.mutating_ops();

    let reader = sim.builder().read_only().open().unwrap();
    assert!(reader.is_read_only());
    assert_eq!(numbers(&reader), numbered(0..20));
    let refused = |outcome: Result<(), ebbtide::Error>| {
        assert_eq!(outcome.unwrap_err().code(), Code::IllegalOperation);
    };
    refused(reader.collection("weather").unwrap().insert_documents(&readings(20..21)).map(drop));
    refused(reader.collection("weather").unwrap().delete(&Filter::everything()).map(drop));
    refused(reader.create_collection("other", crate::weather()).map(drop));
    refused(reader.drop_collection("weather"));
    refused(reader.sweep().map(drop));
    refused(reader.flush());
    refused(reader.compact(None));
    assert!(reader.verify().unwrap().faults.is_empty());
    reader.close().unwrap();
    assert_eq!(sim.fs.mutating_ops(), before, "{:?}", sim.fs.steps());

    // The writer is not disturbed, and a reader that comes later sees more.
    weather.insert_documents(&readings(20..30)).unwrap();
    assert_eq!(numbers(&sim.builder().read_only().open().unwrap()), numbered(0..30));
}

#[test]
fn a_reader_of_nothing_is_told_so() {
    let sim = Sim::new();
    assert_eq!(sim.builder().read_only().open().unwrap_err().code(), Code::NamespaceNotFound);
    assert!(sim.fs.files().is_empty());
}

#[test]
fn a_reader_reads_on_when_the_writer_drops_what_it_sees() {
    let sim = Sim::new();
    let db = sim.open();
    let collection = db.create_collection("weather", weather().expire_after_seconds(60)).unwrap();
    collection.insert_documents(&readings(0..10)).unwrap();
    db.flush().unwrap();
    let reader = sim.builder().read_only().open().unwrap();
    let snapshot = reader.snapshot();
    assert_eq!(numbers_in(&snapshot, "weather").unwrap(), numbered(0..10));
    sim.clock.set(at(DAY));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 10);
    assert!(sim.files("seg-").is_empty());
    assert_eq!(numbers_in(&snapshot, "weather").unwrap(), numbered(0..10));
}

#[test]
fn a_reader_finishes_on_what_it_began_with() {
    let sim = Sim::new();
    let db = sim.open();
    let collection = db.create_collection("weather", weather().expire_after_seconds(60)).unwrap();
    collection.insert_documents(&readings(0..10)).unwrap();
    db.flush().unwrap();
    let reader = sim.builder().read_only().open().unwrap();
    let snapshot = reader.snapshot();
    sim.clock.set(at(DAY));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 10);
    // Nothing of the segment had been read when it was dropped.
    assert_eq!(numbers_in(&snapshot, "weather").unwrap(), numbered(0..10));
}

#[test]
fn inserts_readers_sweeps_and_compactions_do_not_disturb_each_other() {
    const ROUNDS: i64 = 60;
    const KEPT: i64 = 100;
    let sim = Sim::new();
    let (db, kept) = made(&sim);
    let swept = db.create_collection("swept", weather().span_seconds(10).expire_after_seconds(KEPT)).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let running = || !done.load(std::sync::atomic::Ordering::Acquire);
    std::thread::scope(|scope| {
        let maintained = scope.spawn(|| {
            let mut dropped = 0;
            while running() {
                db.flush().unwrap();
                dropped += db.sweep().unwrap().counts.deleted_documents;
                db.compact(None).unwrap();
            }
            dropped
        });
        let readers = [0; 2].map(|_| {
            scope.spawn(|| {
                let mut last = 0;
                while running() {
                    let snapshot = db.snapshot();
                    let found = numbers_in(&snapshot, "weather").unwrap();
                    let count = found.len() as i64;
                    // What was seen once stays, each row once.
                    assert_eq!(found, numbered(0..count));
                    assert!(count >= last, "{count} rows after {last}");
                    last = count;
                    // Nothing expired is seen, whatever the sweeper is doing.
                    let now = snapshot.now();
                    let found = numbers_in(&snapshot, "swept").unwrap();
                    let expired = found.iter().filter(|v| at(**v + KEPT) <= now).count();
                    assert_eq!(expired, 0, "{found:?} at {now}");
                    // And nothing that is live is missed.
                    let count = found.len() as i64;
                    if let Some(first) = found.first() {
                        assert_eq!(found, numbered(*first..*first + count));
                    }
                }
            })
        });
        for round in 0..ROUNDS {
            sim.clock.set(at(round * 10));
            let part = readings(round * 10..(round + 1) * 10);
            kept.insert_documents(&part).unwrap();
            swept.insert_documents(&part).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Release);
        maintained.join().unwrap();
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert_eq!(numbers(&db), numbered(0..ROUNDS * 10));
    let last = ROUNDS * 10 - 10;
    assert_eq!(numbers_in(&db.snapshot(), "swept").unwrap(), numbered(last - KEPT + 1..ROUNDS * 10));
    assert!(db.verify().unwrap().faults.is_empty());
    db.close().unwrap();
    assert_eq!(numbers(&sim.open()), numbered(0..ROUNDS * 10));
}

#[test]
fn a_snapshot_reads_on_across_a_sweep_and_a_compaction() {
    let sim = Sim::new();
    let db = sim.open();
    let collection = db.create_collection("weather", weather().expire_after_seconds(DAY)).unwrap();
    for part in [0..10, 10..20, 20..30] {
        collection.insert_documents(&readings(part)).unwrap();
        db.flush().unwrap();
    }
    collection.insert_documents(&readings(30..40)).unwrap();
    let (first, second) = (db.snapshot(), db.snapshot());
    db.compact(None).unwrap();
    assert_eq!(numbers_in(&first, "weather").unwrap(), numbered(0..40));
    collection.delete(&Filter::everything()).unwrap();
    collection.insert_documents(&readings(40..50)).unwrap();
    sim.clock.set(at(10 * DAY));
    db.sweep().unwrap();
    assert_eq!(numbers(&db), NOTHING);
    assert_eq!(numbers_in(&first, "weather").unwrap(), numbered(0..40));
    db.drop_collection("weather").unwrap();
    assert_eq!(numbers_in(&second, "weather").unwrap(), numbered(0..40));
    // The same data at another instant: nothing is read anew.
    assert_eq!(numbers_in(&second.at(at(5 * DAY)), "weather").unwrap(), NOTHING);
}

#[test]
fn files_leave_when_the_last_snapshot_goes() {
    let sim = Sim::new();
    let db = sim.open();
    let collection = db.create_collection("weather", weather().expire_after_seconds(60)).unwrap();
    collection.insert_documents(&readings(0..10)).unwrap();
    db.flush().unwrap();
    let snapshot = db.snapshot();
    let copy = snapshot.clone();
    let unit = snapshot.collection("weather").unwrap().scan(&ebbtide::ScanRequest::default()).unwrap().remove(0);
    sim.clock.set(at(DAY));
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.counts.reclaimed_files), (10, 1));
    drop(snapshot);
    assert_eq!(sim.files("seg-").len(), 1);
    drop(copy);
    assert_eq!(sim.files("seg-").len(), 1, "a scan that has not been read yet holds the file");
    let rows: usize = unit.read().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 10);
    drop(unit);
    assert!(sim.files("seg-").is_empty());
    db.close().unwrap();
    assert!(sim.fs.open_handles().is_empty(), "{:?}", sim.fs.open_handles());
}

#[test]
fn what_a_snapshot_held_when_the_power_went_is_cleaned_up_at_the_next_open() {
    let sim = Sim::new();
    let db = sim.open();
    let collection = db.create_collection("weather", weather().expire_after_seconds(60)).unwrap();
    collection.insert_documents(&readings(0..10)).unwrap();
    db.flush().unwrap();
    let snapshot = db.snapshot();
    sim.clock.set(at(DAY));
    db.sweep().unwrap();
    assert_eq!(sim.files("seg-").len(), 1);
    let after = sim.on(sim.fs.crash(ebbtide::fs::sim::Variant::V1, 1));
    let reopened = after.open();
    assert!(after.files("seg-").is_empty());
    assert_eq!(numbers(&reopened), NOTHING);
    assert_eq!(numbers_in(&snapshot, "weather").unwrap(), numbered(0..10));
}

#[test]
fn a_path_may_hold_spaces_and_letters_of_any_alphabet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my weather").join("m\u{e9}t\u{e9}o \u{6c17}\u{8c61} \u{1f326}").join("a'b\"c");
    let db = Database::open(&path).unwrap();
    let collection = db.create_collection("weather", weather()).unwrap();
    collection.insert_documents(&readings(0..10)).unwrap();
    db.flush().unwrap();
    collection.insert_documents(&readings(10..20)).unwrap();
    db.abandon();
    assert!(Database::exists(&path).unwrap());
    let db = Database::open(&path).unwrap();
    assert_eq!(numbers(&db), numbered(0..20));
    assert!(db.verify().unwrap().faults.is_empty());
    db.close().unwrap();
}

/// The numbers of the readings that a filter on the meta alone finds, by a scan that may look metas up.
fn numbers_of(db: &Database, filter: &Filter) -> Vec<i64> {
    let snapshot = db.snapshot().collection("weather").unwrap();
    let part = MetaPart::of(filter, snapshot.schema()).map(|part| Arc::new(part) as Arc<dyn MetaFilter>);
    let request = ScanRequest { projection: Some(vec!["v".into()]), meta: part, ..ScanRequest::default() };
    let mut numbers = Vec::new();
    for unit in snapshot.scan(&request).unwrap() {
        for batch in unit.read().unwrap() {
            let batch = batch.unwrap();
            numbers.extend((0..batch.num_rows()).map(|row| value_at(batch.column(0), row)));
        }
    }
    numbers.sort();
    numbers.iter().map(|v| if let Value::Int(v) = v { *v } else { panic!("{v:?}") }).collect()
}

#[test]
fn series_whose_metas_are_objects_without_members_are_read() {
    let empty = || Value::Object(Vec::new());
    for rows in [1, 40] {
        for meta in [empty(), Value::Object(vec![("o".into(), empty())])] {
            let sim = Sim::new();
            let (db, weather) = made(&sim);
            let rows = (0..rows).map(|v| {
                let Value::Object(mut members) = reading(v, "", v) else { panic!() };
                members[1].1 = meta.clone();
                Value::Object(members)
            });
            let rows: Vec<Value> = rows.collect();
            weather.insert_documents(&rows).unwrap();
            db.flush().unwrap();
            let snapshot = db.snapshot().collection("weather").unwrap();
            let request = ScanRequest { projection: Some(vec!["sensor".into()]), ..ScanRequest::default() };
            let units = snapshot.scan(&request).unwrap();
            // Once from the file, once from the cache.
            for _ in 0..2 {
                let batches = units.iter().flat_map(|unit| unit.read().unwrap()).map(Result::unwrap);
                let found: Vec<Value> = batches
                    .flat_map(|b| (0..b.num_rows()).map(|row| value_at(b.column(0), row)).collect::<Vec<_>>())
                    .collect();
                assert_eq!(found.len(), rows.len(), "{meta:?}");
                assert!(found.iter().all(|found| found.normalized() == meta.normalized()), "{found:?}");
            }
        }
    }
}

#[test]
fn series_that_a_filter_names_are_those_that_match_it() {
    let object = |members: &[(&str, Value)]| {
        Value::Object(members.iter().map(|(name, value)| ((*name).into(), value.clone())).collect())
    };
    let (text, list) = (|text: &str| Value::from(text), |items: &[Value]| Value::Array(items.to_vec()));
    let kinds = [
        vec![text("a"), text("b"), text("ab"), text("a")],
        vec![list(&[text("a"), text("b")]), list(&[text("a")]), list(&[text("b")]), list(&[])],
        vec![Value::Int(1), Value::Double(1.5), Value::Double(1.0), Value::Double(-0.0)],
        vec![
            object(&[("s", text("a")), ("n", Value::Int(1))]),
            object(&[("s", text("b")), ("n", Value::Double(1.0))]),
            object(&[("s", text("a")), ("l", list(&[text("a"), text("c")]))]),
            object(&[("n", Value::Int(2)), ("o", object(&[("s", text("a"))]))]),
        ],
    ];
    let paths = ["sensor", "sensor.s", "sensor.n", "sensor.l", "sensor.o.s", "sensor.o"];
    let values =
        [text("a"), text("b"), Value::Int(1), Value::Int(0), Value::Double(1.0), Value::Bool(true), Value::Null];
    for metas in kinds {
        let sim = Sim::new();
        let (db, weather) = made(&sim);
        // Half of the readings are in a file and half are in memory.
        for half in 0..2 {
            let rows = metas.iter().enumerate().map(|(v, meta)| {
                let Value::Object(mut members) = reading(v as i64, "", 4 * half + v as i64) else { panic!() };
                members[1].1 = meta.clone();
                Value::Object(members)
            });
            weather.insert_documents(&rows.collect::<Vec<_>>()).unwrap();
            if half == 0 {
                db.flush().unwrap();
            }
        }
        for (path, value) in paths.iter().flat_map(|path| values.iter().map(move |value| (path, value))) {
            let filter = Filter::eq(path, value.clone());
            let expected: Vec<i64> = (0..8).filter(|v| filter.matches_meta(&metas[*v as usize % 4].clone())).collect();
            assert_eq!(numbers_of(&db, &filter), expected, "{filter} of {metas:?}");
            let both = Filter::and(vec![filter, Filter::exists("sensor")]);
            assert_eq!(numbers_of(&db, &both), expected, "{both} of {metas:?}");
        }
    }
}

/// Answers with this many values, whatever it is asked.
#[derive(Debug)]
struct Answers(usize);

impl ebbtide::MetaFilter for Answers {
    fn select(&self, _: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        Ok(BooleanArray::from(vec![true; self.0]))
    }
}

impl ebbtide::MetaGroups for Answers {
    fn group(&self, _: &ArrayRef) -> Result<Vec<u32>, ArrowError> {
        Ok(vec![0; self.0])
    }
}

impl ebbtide::RowPredicate for Answers {
    fn columns(&self) -> Vec<String> {
        Vec::new()
    }

    fn select(&self, _: &RecordBatch) -> ebbtide::Result<BooleanArray> {
        Ok(BooleanArray::from(vec![true; self.0]))
    }
}

#[test]
fn a_function_that_answers_with_more_or_fewer_values_than_asked_is_an_error() {
    let (db, c) = made(&Sim::new());
    for meta in ["a", "b", "c"] {
        c.insert_documents(&[reading(0, meta, 1)]).unwrap();
    }
    let refused = |outcome: ebbtide::Result<()>| assert_eq!(outcome.unwrap_err().code(), Code::BadValue);
    for sealed in [false, true] {
        if sealed {
            db.flush().unwrap();
        }
        let snapshot = c.snapshot().unwrap();
        for count in [0, 2, 4] {
            let filter: Arc<dyn ebbtide::MetaFilter> = Arc::new(Answers(count));
            refused(snapshot.scan(&ScanRequest { meta: Some(filter.clone()), ..ScanRequest::default() }).map(drop));
            let of = ebbtide::AggregateRequest { meta: Some(filter), ..ebbtide::AggregateRequest::default() };
            refused(snapshot.aggregate(&of).map(drop));
            let groups: Arc<dyn ebbtide::MetaGroups> = Arc::new(Answers(count));
            let grouped = ebbtide::AggregateRequest {
                by_meta: true,
                meta_groups: Some(groups),
                aggregates: vec![ebbtide::Aggregate::Count("v".to_owned())],
                ..ebbtide::AggregateRequest::default()
            };
            refused(snapshot.aggregate(&grouped).map(drop));
            refused(c.delete_where(&Answers(count)).map(drop));
        }
    }
    assert_eq!(numbers(&db), [1, 1, 1]);
}
