//! Changes of rules, windows, types and collections against the sweeper and inserts.

use crate::rig::{LIFE, World, at, explore, insert, numbers, segment_files, sorted, spawn};
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Bucketing, Code, Granularity, Value};
use ebbtide::{CollectionChange, CollectionOptions, Snapshot};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

fn two_rows(world: &World) {
    world.insert(&[(0, 0), (10, 1)]);
    world.db.flush().unwrap();
}

fn a_rule_is_lifted(disk: &SimFs) {
    let world = World::on(disk);
    world.clock.advance(LIFE as u32 + 10);
    let lifted = Arc::new(AtomicBool::new(false));
    let changer = spawn({
        let (db, lifted) = (world.db.clone(), lifted.clone());
        move || {
            let change = CollectionChange { expire_after_seconds: Some(None), ..CollectionChange::default() };
            db.modify_collection("weather", &change, None).unwrap();
            lifted.store(true, Ordering::SeqCst);
        }
    });
    let writer = spawn({
        let weather = world.weather.clone();
        move || insert(&weather, &[(0, 2), (LIFE, 3)]).unwrap()
    });
    let was_lifted = lifted.load(Ordering::SeqCst);
    let dropped = world.db.sweep().unwrap().counts.deleted_documents;
    changer.join().unwrap();
    writer.join().unwrap();
    assert!(dropped == 0 || !was_lifted, "a rule that was gone dropped {dropped} rows");
    // What is late may have been sealed and dropped with the others.
    let expected: &[i64] = match dropped {
        0 => &[0, 1, 2, 3],
        2 => &[2, 3],
        3 => &[3],
        _ => panic!("{dropped} rows dropped"),
    };
    assert_eq!(sorted(world.numbers()), expected);
    assert_eq!(sorted(world.numbers_on(&world.power_cut())), expected);
    world.assert_no_file_is_left();
}

#[test]
fn a_rule_that_was_lifted_drops_nothing() {
    explore(two_rows, a_rule_is_lifted);
}

fn a_name_is_used_again(disk: &SimFs) {
    let world = World::on(disk);
    world.clock.advance(LIFE as u32 + 10);
    let new = Arc::new(AtomicBool::new(false));
    let writer = spawn({
        let (weather, new) = (world.weather.clone(), new.clone());
        move || {
            let was_new = new.load(Ordering::SeqCst);
            match insert(&weather, &[(LIFE, 2)]) {
                Ok(_) => was_new,
                Err(error) => {
                    assert_eq!(error.code(), Code::NamespaceNotFound, "{error}");
                    assert!(!was_new);
                    false
                }
            }
        }
    });
    let sweeper = spawn({
        let db = world.db.clone();
        move || assert_eq!(db.sweep().unwrap().counts.failed_rules, 0)
    });
    let flusher = spawn({
        let db = world.db.clone();
        move || {
            if let Err(error) = db.flush() {
                assert_eq!(error.code(), Code::NamespaceNotFound, "{error}");
            }
        }
    });
    world.db.drop_collection("weather").unwrap();
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(LIFE);
    let weather = world.db.create_collection("weather", options).unwrap();
    new.store(true, Ordering::SeqCst);
    insert(&weather, &[(LIFE, 3)]).unwrap();
    let must = writer.join().unwrap();
    sweeper.join().unwrap();
    flusher.join().unwrap();
    let seen = sorted(world.numbers());
    assert!(seen == [2, 3] || (seen == [3] && !must), "{seen:?}");
    assert_eq!(sorted(world.numbers_on(&world.power_cut())), seen);
    world.assert_no_file_is_left();
}

#[test]
fn a_new_collection_has_nothing_of_the_dropped_one_of_its_name() {
    explore(two_rows, a_name_is_used_again);
}

/// The windows of all buckets: first instant, last instant, rows.
fn windows(snapshot: &Snapshot) -> Vec<(i64, i64, u64)> {
    let buckets = snapshot.collection("weather").unwrap().buckets().unwrap();
    let seconds = |t: ebbtide::ttl::Timestamp| i64::try_from((t.nanos() - at(0).nanos()) / 1_000_000_000).unwrap();
    buckets.iter().map(|b| (seconds(b.window_start), seconds(b.window_end), b.measurements)).collect()
}

fn windows_grow(disk: &SimFs) {
    let world = World::on(disk);
    let writer = spawn({
        let weather = world.weather.clone();
        move || {
            insert(&weather, &[(LIFE, 1)]).unwrap();
            insert(&weather, &[(LIFE, 2)]).unwrap();
        }
    });
    let flusher = spawn({
        let db = world.db.clone();
        move || db.flush().unwrap()
    });
    let bucketing = Some(Bucketing::Preset(Granularity::Minutes));
    world
        .db
        .modify_collection("weather", &CollectionChange { bucketing, ..CollectionChange::default() }, None)
        .unwrap();
    writer.join().unwrap();
    flusher.join().unwrap();
    let snapshot = world.db.snapshot();
    assert_eq!(numbers(&snapshot).unwrap(), [0, 1, 2]);
    let recovered = world.open_on(&world.power_cut()).snapshot();
    assert_eq!(numbers(&recovered).unwrap(), [0, 1, 2]);
    assert_eq!(windows(&recovered), windows(&snapshot), "other windows after a restart");
}

#[test]
fn rows_that_come_while_windows_grow_have_the_same_ones_after_a_restart() {
    explore(|world| world.insert(&[(0, 0)]), windows_grow);
}

/// The first whole number that floating point does not have.
const LARGE: i64 = (1 << 53) + 1;

fn a_field_is_widened(disk: &SimFs) {
    let world = World::on(disk);
    let document = |v: Value| Value::Object(vec![("t".into(), Value::Date(at(0))), ("v".into(), v)]);
    let large = spawn({
        let weather = world.weather.clone();
        move || weather.insert_documents(&[document(Value::Int(LARGE))])
    });
    let small = spawn({
        let (weather, db) = (world.weather.clone(), world.db.clone());
        move || {
            insert(&weather, &[(0, 1)]).unwrap();
            db.flush().unwrap();
        }
    });
    let fraction = world.weather.insert_documents(&[document(Value::Double(0.5))]);
    let large = large.join().unwrap();
    small.join().unwrap();
    let refused = match (&fraction, &large) {
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => error,
        both => panic!("of a fraction and a number that is too large for its like one fits: {both:?}"),
    };
    assert_eq!(refused.code(), Code::TypeMismatch, "{refused}");
    let count = |snapshot: Snapshot| snapshot.collection("weather").unwrap().count().unwrap();
    assert_eq!(count(world.db.snapshot()), 3);
    assert_eq!(count(world.open_on(&world.power_cut()).snapshot()), 3);
    assert!(!segment_files(&world.fs).is_empty());
}

/// Two writers bring the first values of a field, of two types that fit together.
fn a_field_begins_as_two_types(disk: &SimFs) {
    let world = World::on(disk);
    let document = |v: Value| Value::Object(vec![("t".into(), Value::Date(at(0))), ("w".into(), v)]);
    let whole = spawn({
        let weather = world.weather.clone();
        move || weather.insert_documents(&[document(Value::Int(1))]).unwrap()
    });
    world.weather.insert_documents(&[document(Value::Double(0.5))]).unwrap();
    whole.join().unwrap();
    let count = |snapshot: Snapshot| snapshot.collection("weather").unwrap().count().unwrap();
    assert_eq!(count(world.db.snapshot()), 2);
    assert_eq!(count(world.open_on(&world.power_cut()).snapshot()), 2);
}

#[test]
fn a_new_field_takes_the_type_that_holds_all_of_its_first_values() {
    explore(|_| {}, a_field_begins_as_two_types);
}

#[test]
fn a_field_is_widened_only_if_no_number_loses_precision() {
    explore(|world| world.insert(&[(0, 0)]), a_field_is_widened);
}
