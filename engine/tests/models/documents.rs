//! A writer that refreshes documents against seals, merges and sweeps: every acknowledged write is there, once.

use crate::rig::{World, explore, power_cut, spawn};
use ebbtide::documents_model::DefaultTtl;
use ebbtide::documents_model::bson::raw::RawBsonRef;
use ebbtide::documents_model::bson::{Document, doc, rawdoc};
use ebbtide::fs::sim::SimFs;
use ebbtide::{Database, DocumentsOptions, UpdateRequest};
use std::collections::BTreeMap;

const NAME: &str = "sessions";
/// Seconds after which documents of the collection expire that are not written again.
const LIFE: u32 = 3600;

fn put(db: &Database, id: i64, number: i64) {
    db.documents(NAME).unwrap().put(&doc! { "_id": id, "n": number }).unwrap();
}

/// Four documents: two in a segment each, one of them replaced since, and one in memory.
fn some_documents(world: &World) {
    let options = DocumentsOptions { default_ttl: DefaultTtl::Seconds(LIFE), indexes: Vec::new() };
    world.db.create_documents(NAME, options).unwrap();
    put(&world.db, 1, 0);
    put(&world.db, 2, 0);
    world.db.flush().unwrap();
    put(&world.db, 3, 0);
    world.db.flush().unwrap();
    put(&world.db, 2, 1);
    put(&world.db, 4, 0);
}

/// The numbers by `_id`, of a scan and of look-ups, which agree. An `_id` that comes twice is a failure.
fn numbers(db: &Database) -> BTreeMap<i64, i64> {
    let mut numbers = BTreeMap::new();
    let snapshot = db.snapshot().documents(NAME).unwrap();
    let visited = snapshot.for_each(&mut |found| {
        let whole = |name: &str| found.document.get(name).unwrap().unwrap().as_i64().unwrap();
        assert_eq!(numbers.insert(whole("_id"), whole("n")), None, "an _id is there twice");
        Ok(true)
    });
    visited.unwrap();
    numbers
}

/// The number of one document.
fn number(db: &Database, id: i64) -> Option<i64> {
    let found: Option<Document> = db.documents(NAME).unwrap().get(id).unwrap();
    found.map(|found| found.get_i64("n").unwrap())
}

fn refreshed_beside_a_seal_and_a_merge(disk: &SimFs) {
    let world = World::on(disk);
    let writer = spawn({
        let db = world.db.clone();
        move || {
            for (id, n) in [(1, 10), (2, 10), (5, 10), (1, 11)] {
                put(&db, id, n);
                assert_eq!(number(&db, id), Some(n), "an acknowledged write is seen");
            }
            assert!(db.documents(NAME).unwrap().delete(3_i64).unwrap());
            assert_eq!(number(&db, 3), None);
        }
    });
    let merger = spawn({
        let db = world.db.clone();
        move || db.compact(None).unwrap()
    });
    let reader = spawn({
        let db = world.db.clone();
        move || {
            let mut before = [0, 1];
            for _ in 0..2 {
                let seen = numbers(&db);
                let now = [seen[&1], seen[&2]];
                assert!(now[0] >= before[0] && now[1] >= before[1], "an older document came back: {seen:?}");
                before = now;
            }
        }
    });
    world.db.flush().unwrap();
    for thread in [writer, merger, reader] {
        thread.join().unwrap();
    }
    let expected = BTreeMap::from([(1, 11), (2, 10), (4, 0), (5, 10)]);
    assert_eq!(numbers(&world.db), expected);
    assert_eq!(numbers(&world.open_on(&power_cut(&world.fs))), expected);
    world.db.flush().unwrap();
    world.db.compact(None).unwrap();
    assert_eq!(numbers(&world.db), expected);
    assert_eq!(world.db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn a_refreshed_document_is_there_once_beside_seals_and_merges() {
    explore(some_documents, refreshed_beside_a_seal_and_a_merge);
}

fn refused_beside_another(disk: &SimFs) {
    let world = World::on(disk);
    let refused = spawn({
        let db = world.db.clone();
        move || {
            let documents = [
                doc! { "_id": 1_i64, "n": 10_i64 },
                doc! { "_id": 4_i64, "n": 10_i64 },
                doc! { "_id": 6_i64, "ttl": 0 },
            ];
            db.documents(NAME).unwrap().put_many(&documents).unwrap_err();
        }
    });
    let other = spawn({
        let db = world.db.clone();
        move || put(&db, 5, 10)
    });
    put(&world.db, 2, 10);
    refused.join().unwrap();
    other.join().unwrap();
    let expected = BTreeMap::from([(1, 0), (2, 10), (3, 0), (4, 0), (5, 10)]);
    assert_eq!(numbers(&world.db), expected);
    world.db.flush().unwrap();
    assert_eq!(numbers(&world.db), expected);
    assert_eq!(numbers(&world.open_on(&power_cut(&world.fs))), expected);
}

#[test]
fn a_command_that_is_refused_leaves_nothing_beside_those_of_its_group() {
    explore(some_documents, refused_beside_another);
}

fn refreshed_beside_a_sweep(disk: &SimFs) {
    let world = World::on(disk);
    world.clock.advance(LIFE);
    let writer = spawn({
        let db = world.db.clone();
        move || {
            for (id, n) in [(1, 10), (4, 10), (1, 11)] {
                put(&db, id, n);
                assert_eq!(number(&db, id), Some(n), "an acknowledged write is seen");
            }
        }
    });
    let keeper = spawn({
        let db = world.db.clone();
        move || {
            db.flush().unwrap();
            db.compact(None).unwrap();
        }
    });
    let swept = world.db.sweep().unwrap().counts;
    writer.join().unwrap();
    keeper.join().unwrap();
    assert_eq!(swept.failed_rules, 0);
    assert!((2..=4).contains(&swept.deleted_documents), "{swept:?}");
    let expected = BTreeMap::from([(1, 11), (4, 10)]);
    assert_eq!(numbers(&world.db), expected);
    assert_eq!(numbers(&world.open_on(&power_cut(&world.fs))), expected);
    world.clock.advance(LIFE);
    world.db.sweep().unwrap();
    assert_eq!(numbers(&world.db), BTreeMap::new());
}

#[test]
fn a_sweep_takes_what_expired_and_leaves_what_was_refreshed() {
    explore(some_documents, refreshed_beside_a_sweep);
}

fn counted_beside_a_seal_and_a_merge(disk: &SimFs) {
    let world = World::on(disk);
    let count = |db: &Database| {
        let change = rawdoc! { "$inc": { "n": 10_i64 } };
        let query = rawdoc! { "n": { "$gte": 0_i64 } };
        let update = UpdateRequest::new(query, RawBsonRef::Document(&change), true, false);
        db.documents(NAME).unwrap().update_many(vec![update], true).unwrap().modified
    };
    let counting = spawn({
        let db = world.db.clone();
        move || assert!((3..=5).contains(&count(&db)))
    });
    let writer = spawn({
        let db = world.db.clone();
        move || {
            put(&db, 5, 0);
            assert!(db.documents(NAME).unwrap().delete(1_i64).unwrap());
        }
    });
    let keeper = spawn({
        let db = world.db.clone();
        move || {
            db.flush().unwrap();
            db.compact(None).unwrap();
        }
    });
    assert!((3..=5).contains(&count(&world.db)));
    for thread in [counting, writer, keeper] {
        thread.join().unwrap();
    }
    let seen = numbers(&world.db);
    assert!([0, 10, 20].contains(&seen[&5]), "{seen:?}");
    assert_eq!(seen, BTreeMap::from([(2, 21), (3, 20), (4, 20), (5, seen[&5])]));
    assert_eq!(numbers(&world.open_on(&power_cut(&world.fs))), seen);
}

#[test]
fn updates_of_many_documents_see_all_that_was_written_before_them() {
    explore(some_documents, counted_beside_a_seal_and_a_merge);
}
