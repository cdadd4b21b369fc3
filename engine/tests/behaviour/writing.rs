//! What is stored, and what after a fault.

use crate::{DAY, NOTHING, Sim, at, made, numbered, numbers, reading, readings, weather};
use ebbtide::fs::sim::{Fault, FaultKind, Repeat, Variant};
use ebbtide::ttl::{Code, Comparison, Filter, Value};
use ebbtide::{Database, Durability, ErrorKind, Settings, Stop};
use std::time::Duration;

const THREADS: i64 = 8;
const INSERTS: i64 = 40;
const ROWS: i64 = 5;

#[test]
fn what_eight_threads_were_told_is_stored_is_there_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    // Small limits: sealing and new log files come in between.
    let settings = Settings { memtable_bytes_max: 64 << 10, wal_file_bytes_max: 16 << 10, ..Settings::default() };
    let open = || Database::builder(folder.path().join("db")).settings(settings.clone()).open().unwrap();
    let db = open();
    let collection = db.create_collection("weather", weather()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let collection = &collection;
            scope.spawn(move || {
                for insert in 0..INSERTS {
                    let first = (thread * INSERTS + insert) * ROWS;
                    let rows: Vec<_> =
                        (first..first + ROWS).map(|v| reading(v, &format!("thread {thread}"), v)).collect();
                    assert_eq!(collection.insert_documents(&rows).unwrap(), 5);
                }
            });
        }
    });
    db.abandon();
    let db = open();
    assert_eq!(numbers(&db), numbered(0..THREADS * INSERTS * ROWS));
    assert!(db.verify().unwrap().faults.is_empty());
}

#[test]
fn a_write_that_is_stopped_before_its_commit_changes_nothing() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    collection.insert_documents(&[reading(1, "roof", 1), reading(2, "yard", 2)]).unwrap();
    for stop in [Stop::when(|| true), Stop::when(|| false).before_commit(|| true)] {
        let stopped = collection.clone().with_stop(stop);
        let errors = [
            stopped.insert_documents(&[reading(3, "roof", 3)]).unwrap_err(),
            stopped.insert_documents_lenient(&[reading(3, "roof", 3)]).unwrap_err(),
            stopped.delete(&Filter::everything()).unwrap_err(),
        ];
        assert_eq!(errors.map(|error| error.code()), [Code::Interrupted; 3]);
        assert_eq!(numbers(&db), numbered(1..3));
    }
    // Asked last, it decides alone.
    let late = collection.with_stop(Stop::when(|| false).before_commit(|| false));
    assert_eq!(late.delete(&Filter::everything()).unwrap(), 2);
}

#[test]
fn threads_may_bring_new_fields_at_the_same_time() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let collection = &collection;
            scope.spawn(move || {
                for insert in 0..10 {
                    let v = thread * 10 + insert;
                    let Value::Object(mut members) = reading(v, "roof", v) else { unreachable!() };
                    members.push((format!("f{}", (thread + insert) % 8).into(), Value::Int(v)));
                    members.push((format!("own{thread}").into(), Value::from("x")));
                    collection.insert_documents(&[Value::Object(members)]).unwrap();
                }
            });
        }
    });
    assert_eq!(numbers(&db), numbered(0..80));
    let fields = db.collection("weather").unwrap().snapshot().unwrap().schema().fields.len();
    assert_eq!(fields, 1 + 8 + 8);
    db.abandon();
    let db = sim.open();
    assert_eq!(numbers(&db), numbered(0..80));
    assert_eq!(db.collection("weather").unwrap().snapshot().unwrap().schema().fields.len(), fields);
}

fn half(seconds: i64) -> Value {
    Value::Object(vec![("t".into(), Value::Date(at(seconds))), ("v".into(), Value::Double(0.5))])
}

#[test]
fn a_field_does_not_widen_while_a_stored_number_would_lose_precision() {
    const LARGE: i64 = (1 << 53) + 1;
    for sealed in [false, true] {
        let sim = Sim::new();
        let (db, collection) = made(&sim);
        collection.insert_documents(&[reading(1, "roof", 7), reading(2, "roof", LARGE)]).unwrap();
        if sealed {
            db.flush().unwrap();
        }
        let error = collection.insert_documents(&[half(3)]).unwrap_err();
        assert_eq!(error.code(), Code::TypeMismatch, "{error}");
        assert!(error.to_string().contains("'v'") && error.to_string().contains(&LARGE.to_string()), "{error}");
        assert_eq!(numbers(&db), [7, LARGE]);
        // An integral double is still an int64.
        let whole = Value::Object(vec![("t".into(), Value::Date(at(4))), ("v".into(), Value::Double(8.0))]);
        collection.insert_documents(&[whole]).unwrap();
        assert_eq!(numbers(&db), [7, 8, LARGE]);
        // Once it is deleted, nothing is in the way.
        assert_eq!(collection.delete(&Filter::eq("v", Value::Int(LARGE))).unwrap(), 1);
        collection.insert_documents(&[half(3)]).unwrap();
        assert_eq!(numbers(&db), [0, 7, 8]);
        let refused = collection.insert_documents(&[reading(5, "roof", LARGE)]).unwrap_err();
        assert_eq!((refused.code(), refused.index()), (Code::TypeMismatch, Some(0)), "{refused}");
        db.abandon();
        assert_eq!(numbers(&sim.open()), [0, 7, 8]);
    }
}

#[test]
fn one_bad_measurement_refuses_the_batch_and_is_named() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    collection.insert_documents(&readings(0..3)).unwrap();
    let ops = sim.fs.mutating_ops();
    let mut rows = readings(3..8);
    rows[2] = Value::Object(vec![("t".into(), Value::Date(at(5))), ("v".into(), Value::from("warm"))]);
    rows[4] = Value::Object(vec![("v".into(), Value::Int(1))]);
    let error = collection.insert_documents(&rows).unwrap_err();
    assert_eq!((error.code(), error.index(), error.kind()), (Code::TypeMismatch, Some(2), ErrorKind::Invalid));
    assert!(error.to_string().contains("index 2") && error.to_string().contains("'v'"), "{error}");
    assert_eq!(numbers(&db), [0, 1, 2]);
    assert_eq!(sim.fs.mutating_ops(), ops, "a refused batch reached the disk");
    // The lenient form stores the others.
    let reply = collection.insert_documents_lenient(&rows).unwrap();
    assert_eq!(reply.stored, 3);
    assert_eq!(
        reply.errors.iter().map(|(index, e)| (*index, e.code())).collect::<Vec<_>>(),
        [(2, Code::TypeMismatch), (4, Code::BadValue)]
    );
    assert_eq!(numbers(&db), [0, 1, 2, 3, 4, 6]);
}

#[test]
fn after_a_failed_sync_nothing_is_written_and_reads_go_on() {
    for kind in [FaultKind::Eio, FaultKind::SyncEioKept, FaultKind::SyncEioDropped] {
        let sim = Sim::new();
        let (db, collection) = made(&sim);
        collection.insert_documents(&readings(0..10)).unwrap();
        db.flush().unwrap();
        collection.insert_documents(&readings(10..20)).unwrap();
        // The next operation is the append to the log, the one after it the sync.
        sim.fs.fail_op(sim.fs.mutating_ops() + 1, Fault { kind, repeat: Repeat::Once });
        let error = collection.insert_documents(&readings(20..30)).unwrap_err();
        assert_eq!((error.code(), error.kind()), (Code::NotWritable, ErrorKind::Poisoned), "{error}");
        assert_eq!(sim.fs.faults_fired(), 1);
        let ops = sim.fs.mutating_ops();
        for outcome in [
            collection.insert_documents(&readings(30..40)).map(drop),
            collection.delete(&Filter::everything()).map(drop),
            db.flush(),
            db.sweep().map(drop),
            db.drop_collection("weather"),
        ] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Poisoned);
        }
        assert_eq!(sim.fs.mutating_ops(), ops, "a poisoned database was written to");
        assert_eq!(numbers(&db), numbered(0..20));
        // The next open finds what was acknowledged, and of the failed insert all or nothing.
        for variant in Variant::WITHIN_CONTRACT {
            let found = numbers(&sim.on(sim.fs.crash(variant, 7)).open());
            assert!(found == numbered(0..20) || found == numbered(0..30), "{kind:?} {variant:?}: {found:?}");
        }
        db.close().unwrap();
        let db = sim.open();
        let found = numbers(&db);
        assert!(found == numbered(0..20) || found == numbered(0..30), "{kind:?}: {found:?}");
        db.collection("weather").unwrap().insert_documents(&readings(30..40)).unwrap();
        assert_eq!(numbers(&db).len(), found.len() + 10);
    }
}

#[test]
fn a_full_disk_loses_nothing_and_works_again_once_there_is_room() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    collection.insert_documents(&readings(0..100)).unwrap();
    db.flush().unwrap();
    collection.insert_documents(&readings(100..200)).unwrap();
    for room in [0, 1, 100, 300] {
        sim.fs.set_capacity(Some(sim.fs.used() + room));
        let error = collection.insert_documents(&readings(200..400)).unwrap_err();
        assert_eq!((error.code(), error.kind()), (Code::OutOfDiskSpace, ErrorKind::Full), "{error}");
        let error = db.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert_eq!(numbers(&db), numbered(0..200));
        let crashed = sim.on(sim.fs.crash(Variant::V3, room));
        assert_eq!(numbers(&crashed.open()), numbered(0..200));
    }
    sim.fs.set_capacity(None);
    collection.insert_documents(&readings(200..300)).unwrap();
    db.flush().unwrap();
    collection.insert_documents(&readings(300..400)).unwrap();
    assert_eq!(numbers(&db), numbered(0..400));
    assert!(db.verify().unwrap().faults.is_empty());
    db.abandon();
    assert_eq!(numbers(&sim.open()), numbered(0..400));
}

#[test]
fn a_full_disk_can_be_swept() {
    let sim = Sim::new();
    let db = sim.open();
    let collection = db.create_collection("weather", weather().expire_after_seconds(DAY)).unwrap();
    collection.insert_documents(&readings(0..2_000)).unwrap();
    db.flush().unwrap();
    sim.clock.set(at(2 * DAY));
    sim.fs.set_capacity(Some(sim.fs.used()));
    let used = sim.fs.used();
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 2_000);
    assert!(sim.fs.used() < used);
    collection.insert_documents(&[reading(2 * DAY, "roof", 1)]).unwrap();
    assert_eq!(numbers(&db), [1]);
}

#[test]
fn with_an_interval_a_power_cut_loses_at_most_what_came_within_it() {
    let mut sim = Sim::new();
    sim.settings.durability = Durability::Interval(Duration::from_secs(10));
    let (db, collection) = made(&sim);
    let power_cut = |sim: &Sim, variant| numbers(&sim.on(sim.fs.crash(variant, 3)).open());
    collection.insert_documents(&readings(0..5)).unwrap();
    assert_eq!(power_cut(&sim, Variant::V0), NOTHING);
    sim.clock.set(at(10));
    collection.insert_documents(&readings(5..10)).unwrap();
    assert_eq!(power_cut(&sim, Variant::V0), numbered(0..10), "the interval was over");
    sim.clock.set(at(19));
    collection.insert_documents(&readings(10..15)).unwrap();
    assert_eq!(power_cut(&sim, Variant::V0), numbered(0..10));
    assert_eq!(power_cut(&sim, Variant::V1), numbered(0..15));
    // A crash of the process alone loses nothing.
    assert_eq!(numbers(&sim.on(sim.fs.fork()).open()), numbered(0..15));
    // Whatever a power cut keeps of it, it is a prefix in whole inserts.
    collection.insert_documents(&readings(15..20)).unwrap();
    for seed in 0..40 {
        let found = numbers(&sim.on(sim.fs.crash(Variant::V2, seed)).open());
        assert!((2..=4).any(|parts| found == numbered(0..parts * 5)), "seed {seed}: {found:?}");
    }
    // What is sealed is safe, whatever the durability.
    db.flush().unwrap();
    assert_eq!(power_cut(&sim, Variant::V0), numbered(0..20));
}

#[test]
fn the_writer_that_meets_a_full_memory_seals_it() {
    let mut sim = Sim::new();
    sim.settings.memtable_bytes_max = 64 << 10;
    let (db, collection) = made(&sim);
    for part in 0..100 {
        collection.insert_documents(&readings(part * 100..(part + 1) * 100)).unwrap();
    }
    let segments = collection.snapshot().unwrap().segments();
    let sealed: u64 = segments.iter().map(|s| s.rows).sum();
    assert!(segments.len() > 1 && sealed < 10_000, "{} segments with {sealed} rows", segments.len());
    assert_eq!(numbers(&db), numbered(0..10_000));
    // The log was cut with it.
    use ebbtide::fs::Fs;
    let logs: u64 = sim.files("wal-").iter().map(|path| sim.fs.len(path).unwrap()).sum();
    assert!(logs < 1 << 20, "{logs} bytes of log");
    db.abandon();
    assert_eq!(numbers(&sim.open()), numbered(0..10_000));
}

#[test]
fn the_log_goes_on_in_new_files_and_old_ones_leave() {
    let mut sim = Sim::new();
    sim.settings.wal_file_bytes_max = 1 << 10;
    let (db, collection) = made(&sim);
    let other = db.create_collection("other", weather()).unwrap();
    other.insert_documents(&readings(0..1)).unwrap();
    for part in 0..20 {
        collection.insert_documents(&readings(part * 10..(part + 1) * 10)).unwrap();
    }
    let before = sim.files("wal-").len();
    assert!(before > 2, "{before} log files");
    db.flush().unwrap();
    assert_eq!(sim.files("wal-").len(), 1);
    db.abandon();
    let db = sim.open();
    assert_eq!(numbers(&db), numbered(0..200));
    assert_eq!(db.collection("other").unwrap().snapshot().unwrap().count().unwrap(), 1);
}

#[test]
fn a_closed_database_refuses_to_write_and_has_nothing_open() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    collection.insert_documents(&readings(0..10)).unwrap();
    db.clone().close().unwrap();
    let error = collection.insert_documents(&readings(10..20)).unwrap_err();
    assert_eq!(error.code(), Code::NotWritable, "{error}");
    assert_eq!(numbers(&db), numbered(0..10));
    drop((db, collection));
    assert!(sim.fs.open_handles().is_empty(), "{:?}", sim.fs.open_handles());
    assert_eq!(numbers(&sim.open()), numbered(0..10));
}

#[test]
fn a_delete_survives_every_power_cut() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    collection.insert_documents(&readings(0..50)).unwrap();
    db.flush().unwrap();
    collection.insert_documents(&readings(50..100)).unwrap();
    assert_eq!(collection.delete(&Filter::compare("v", Comparison::Lt, Value::Int(70))).unwrap(), 70);
    assert_eq!(numbers(&db), numbered(70..100));
    for variant in Variant::WITHIN_CONTRACT {
        assert_eq!(numbers(&sim.on(sim.fs.crash(variant, 5)).open()), numbered(70..100), "{variant:?}");
    }
}
