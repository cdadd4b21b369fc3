//! The sweeper against flushes and late inserts into the very bucket that goes.

use crate::rig::{LIFE, World, explore, insert, numbers, sorted, spawn};
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::ExpiryMode;
use ebbtide::{CollectionChange, Database, ScanRequest};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A hundred years in seconds.
const CENTURY: i64 = 100 * 365 * 86_400;

/// One bucket: two rows sealed, one open, all three past their time half a minute after the hour.
fn one_bucket(world: &World) {
    world.insert(&[(0, 0), (10, 1)]);
    world.db.flush().unwrap();
    world.insert(&[(20, 2)]);
}

/// Rows that are stored, seen or not.
fn stored(db: &Database) -> u64 {
    let request = ScanRequest { include_hidden: true, ..ScanRequest::default() };
    let units = db.snapshot().collection("weather").unwrap().scan(&request).unwrap();
    units.iter().flat_map(|unit| unit.read().unwrap()).map(|batch| batch.unwrap().num_rows() as u64).sum()
}

fn late_rows_live(disk: &SimFs) {
    let world = World::on(disk);
    world.clock.advance(LIFE as u32 + 30);
    let late = Arc::new(AtomicBool::new(false));
    let writer = spawn({
        let (weather, late) = (world.weather.clone(), late.clone());
        move || {
            // The one had expired before it came, the other lives for ten seconds.
            insert(&weather, &[(5, 3), (40, 10)]).unwrap();
            late.store(true, Ordering::SeqCst);
        }
    });
    let flusher = spawn({
        let db = world.db.clone();
        move || db.flush().unwrap()
    });
    let reader = spawn({
        let db = world.db.clone();
        move || {
            for _ in 0..2 {
                let told = late.load(Ordering::SeqCst);
                let seen = numbers(&db.snapshot()).unwrap();
                assert!(seen == [10] || (seen.is_empty() && !told), "told: {told}, seen: {seen:?}");
            }
        }
    });
    let swept = world.db.sweep().unwrap();
    for thread in [writer, flusher, reader] {
        thread.join().unwrap();
    }
    assert_eq!(swept.counts.failed_rules, 0);
    assert_eq!(world.numbers(), [10]);
    assert_eq!(stored(&world.db) + swept.counts.deleted_documents, 5, "rows lost, or dropped twice");
    assert_eq!(world.numbers_on(&world.power_cut()), [10]);
    world.assert_no_file_is_left();
    world.clock.advance(10);
    world.db.sweep().unwrap();
    assert_eq!(stored(&world.db), 0);
    assert_eq!(world.db.metrics().ttl.deleted_documents, 5);
}

#[test]
fn a_sweep_takes_what_expired_and_leaves_a_late_row_that_lives() {
    explore(one_bucket, late_rows_live);
}

/// A measurement of another century comes while a sweep is at work: what is there when it is acknowledged stays.
fn suspension_begins(disk: &SimFs) {
    let world = World::on(disk);
    world.clock.advance(LIFE as u32 + 30);
    let writer = spawn({
        let (weather, db) = (world.weather.clone(), world.db.clone());
        move || {
            insert(&weather, &[(CENTURY, 10)]).unwrap();
            sorted(numbers(&db.snapshot()).unwrap())
        }
    });
    world.db.sweep().unwrap();
    let seen = writer.join().unwrap();
    assert!(seen == [10] || seen == [0, 1, 2, 10], "{seen:?}");
    assert_eq!(sorted(world.numbers()), seen);
}

#[test]
fn a_sweep_drops_nothing_once_expiry_is_suspended() {
    explore(one_bucket, suspension_begins);
}

/// In mode `bucket` all rows of a bucket are seen until it goes as a whole.
fn whole_buckets_go(disk: &SimFs) {
    let world = World::on(disk);
    let change = CollectionChange { expiry: Some(ExpiryMode::Bucket), ..CollectionChange::default() };
    world.db.modify_collection("weather", &change, None).unwrap();
    world.clock.advance(2 * LIFE as u32); // The window's end and an hour are past.
    let writer = spawn({
        let weather = world.weather.clone();
        move || insert(&weather, &[(5, 3), (40, 10)]).unwrap()
    });
    let flusher = spawn({
        let db = world.db.clone();
        move || db.flush().unwrap()
    });
    let reader = spawn({
        let db = world.db.clone();
        move || {
            for _ in 0..2 {
                let seen = sorted(numbers(&db.snapshot()).unwrap());
                let whole = [&[0, 1, 2][..], &[0, 1, 2, 3, 10], &[3, 10], &[]];
                assert!(whole.contains(&&seen[..]), "a part of a bucket: {seen:?}");
            }
        }
    });
    let sweeper = spawn({
        let db = world.db.clone();
        move || db.sweep().unwrap().counts.deleted_documents
    });
    let mut dropped = world.db.sweep().unwrap().counts.deleted_documents;
    dropped += sweeper.join().unwrap();
    for thread in [flusher, reader] {
        thread.join().unwrap();
    }
    writer.join().unwrap();
    assert_eq!(stored(&world.db) + dropped, 5, "rows lost, or dropped twice");
    assert_eq!(world.numbers_on(&world.power_cut()).len() as u64, stored(&world.db));
    dropped += world.db.sweep().unwrap().counts.deleted_documents;
    assert_eq!((stored(&world.db), dropped), (0, 5));
    world.assert_no_file_is_left();
}

#[test]
fn two_sweeps_drop_a_bucket_once_and_as_a_whole() {
    explore(one_bucket, whole_buckets_go);
}
