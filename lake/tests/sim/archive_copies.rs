//! A database and a copy of its folder, which both archive to the same place.

use crate::archive::{all, both, filled, filled_with_index, numbers, state_of, values};
use crate::world::{HOUR, OTHER, World, at, check_files, everything, log_of, random, reading, seeds};
use ebbtide::buckets::{FieldType, Schema, adapt};
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::{Code, Filter, Precision, Value};
use ebbtide::{ArchivePlaces, CollectionChange, Database, ScanRequest};
use ebbtide_lake::sim::{SimLake, SimStore};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The values in the newest version of an archive.
fn in_archive(store: &SimStore) -> Vec<i64> {
    let Some(newest) = log_of(store).len().checked_sub(1) else { return Vec::new() };
    let schema = Arc::new(Schema {
        time: "t".to_owned(),
        meta: None,
        meta_type: None,
        precision: Precision::Ms,
        fields: vec![("v".to_owned(), FieldType::Int64)],
    });
    let read = everything(schema.clone());
    let place = SimLake::new(&store.quiet()).open("").unwrap();
    let files = place.files(newest as u64).unwrap();
    let batches = files.iter().flat_map(|file| place.read(file, &read).unwrap());
    batches.flat_map(|batch| values(&adapt(&batch.unwrap(), &schema).unwrap())).collect()
}

/// The values that a database stores, expired or not.
fn stored(db: &Database) -> Vec<i64> {
    let snapshot = db.snapshot().collection("weather").unwrap();
    let visible = snapshot.scan(&ScanRequest::default()).unwrap();
    let expired = snapshot.unarchived(&ScanRequest::default()).unwrap();
    let units = visible.iter().chain(expired.iter().map(|expired| &expired.unit));
    units.flat_map(|unit| unit.read().unwrap()).flat_map(|batch| values(&batch.unwrap())).collect()
}

/// Gives the archive another place.
fn into(db: &Database, url: &str) {
    let change = CollectionChange { expire_into: Some(Some(url.to_owned())), ..CollectionChange::default() };
    db.modify_collection("weather", &change, None).unwrap();
}

fn is_set(values: &[i64]) -> bool {
    values.iter().collect::<BTreeSet<_>>().len() == values.len()
}

#[test]
fn a_database_and_a_copy_of_its_folder_archive_each_measurement_once_in_random_runs() {
    let (mut of_the_copy, mut refused) = (0, 0);
    for seed in seeds(800, 16) {
        let world = World::new(SimStore::new(seed, if seed % 2 == 0 { 0 } else { 5 }));
        let mut next = random(seed);
        let db = filled(&world);
        // It has archived nothing, or something, before it is copied.
        if next(2) == 0 {
            world.clock.set(at(HOUR + next(4000)));
            db.sweep().unwrap();
        }
        let copy = world.on(world.fs.fork());
        let beside = copy.open();
        let mut sides = [(world, db), (copy, beside)];
        let mut inserted: BTreeSet<i64> = (0..30).collect();
        for round in 1..10 {
            let side = usize::try_from(next(2)).unwrap();
            let (world, db) = &mut sides[side];
            world.clock.set(at(HOUR + 4000 + round * 700));
            match next(6) {
                0 => {
                    let fs = world.fs.crash(Variant::V0, seed);
                    *world = world.on(fs);
                    *db = world.open();
                }
                1 => {
                    let late = i64::try_from(inserted.len() + 100 * side).unwrap();
                    inserted.insert(late);
                    db.collection("weather").unwrap().insert_documents(&[reading(next(9000), late)]).unwrap();
                }
                2 => drop(db.adopt_archive("weather")),
                3 => drop(db.compact(Some("weather"))),
                4 => world.store.advance(next(3) * HOUR * 1000),
                _ => {}
            }
            db.sweep().unwrap();
            if let Ok((here, expired)) = both(db) {
                assert!(is_set(&[here, expired].concat()), "seed {seed}, round {round}");
            }
            assert!(is_set(&in_archive(&world.store)), "seed {seed}, round {round}");
            check_files(&world.store, &format!("seed {seed}, round {round}"));
        }
        let store = sides[0].0.store.clone();
        store.fail_one_in(0);
        store.settle();
        let mut left = Vec::new();
        for (world, db) in &mut sides {
            world.clock.set(at(5 * HOUR));
            let fs = world.fs.crash(Variant::V0, seed);
            *world = world.on(fs);
            *db = world.open();
            let report = db.sweep().unwrap();
            refused += u32::from(report.counts.failed_rules > 0);
            assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
            left.push(stored(db));
        }
        let archived = in_archive(&store);
        assert!(is_set(&archived), "seed {seed}");
        let found: BTreeSet<i64> = left.iter().flatten().chain(&archived).copied().collect();
        assert_eq!(found, inserted, "seed {seed}");
        assert!(left.iter().any(Vec::is_empty), "seed {seed}: {left:?}");
        of_the_copy += u32::from(left[1].is_empty());
        // The other one gets a place of its own. Nothing that it moves may be in doubt any more.
        let Some((_, db)) = sides.iter().find(|(_, db)| !stored(db).is_empty()) else { continue };
        into(db, OTHER);
        assert_eq!(db.sweep().unwrap().counts.failed_rules, 0, "seed {seed}");
        assert_eq!(stored(db), [0; 0], "seed {seed}");
        assert!(is_set(&all(db)), "seed {seed}");
    }
    assert!(seeds(800, 16).count() < 50 || (of_the_copy > 0 && refused > 0), "{of_the_copy} {refused}");
}

#[test]
fn a_copy_that_was_made_while_the_place_was_claimed_for_the_first_time_moves_nothing_twice() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(2 * HOUR));
    let copied = Arc::new(Mutex::new(None));
    let (fs, to) = (world.fs.clone(), copied.clone());
    world.store.after_put(".json", move || *to.lock().unwrap() = Some(fs.fork()));
    db.sweep().unwrap();
    assert_eq!(in_archive(&world.store).len(), 30);
    let copy = world.on(copied.lock().unwrap().take().unwrap());
    let beside = copy.open();
    for _ in 0..2 {
        assert_eq!(beside.sweep().unwrap().counts.failed_rules, 1);
        assert!(state_of(&beside).contains("they would be there twice"), "{}", state_of(&beside));
        assert_eq!(all(&beside), numbers(0..30));
        assert!(beside.adopt_archive("weather").is_err());
    }
    assert_eq!((all(&db), in_archive(&world.store).len()), (numbers(0..30), 30));
}

#[test]
fn an_archive_that_returns_to_a_place_continues_there() {
    let world = World::new(SimStore::new(1, 0));
    let mut db = filled(&world);
    let (place, other) = ("s3://sim/archive", OTHER);
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    for (round, url) in [other, place, other, place].into_iter().enumerate() {
        into(&db, url);
        let late = 30 + i64::try_from(round).unwrap();
        db.collection("weather").unwrap().insert_documents(&[reading(round as i64, late)]).unwrap();
        if round % 2 == 0 {
            drop(db);
            db = world.open();
        }
        assert_eq!(db.sweep().unwrap().counts.failed_rules, 0, "{}", state_of(&db));
        assert!(all(&db).contains(&late));
    }
    let expected: Vec<i64> = (0..30).chain([31, 33]).collect();
    assert_eq!(all(&db), expected);
    into(&db, other);
    assert_eq!(all(&db), [30, 32]);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

/// Thirty readings that are stored and ten that were moved.
fn filled_and_moved(world: &World) -> Database {
    let db = filled(world);
    let old: Vec<_> = (30..40).map(|v| reading(v - 10 * HOUR, v)).collect();
    db.collection("weather").unwrap().insert_documents(&old).unwrap();
    db.sweep().unwrap();
    assert_eq!((in_archive(&world.store).len(), stored(&db).len()), (10, 30));
    db
}

#[test]
fn a_commit_that_never_arrived_is_taken_back_after_a_copy_has_taken_the_place_over() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_and_moved(&world);
    let copy = world.on(world.fs.fork());
    world.clock.set(at(2 * HOUR));
    let store = world.store.clone();
    world.store.after_put(".parquet", move || store.stop_after(Some(0)));
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
    world.store.stop_after(None);
    let delete = || db.collection("weather").unwrap().delete(&Filter::eq("v", Value::Int(29)));
    assert_eq!(delete().unwrap_err().code(), Code::IllegalOperation, "it is in doubt");
    let beside = copy.open();
    beside.adopt_archive("weather").unwrap();
    assert_eq!((db.sweep().unwrap().counts.failed_rules, in_archive(&world.store).len()), (1, 10));
    // What has expired is deleted unseen.
    assert_eq!((delete().unwrap(), stored(&db).len()), (0, 29));
    into(&db, OTHER);
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 0);
    assert_eq!(stored(&db), [0; 0]);
    beside.sweep().unwrap();
    assert_eq!((stored(&beside).len(), in_archive(&world.store).len()), (0, 40));
}

#[test]
fn what_a_commit_has_moved_is_dropped_here_after_a_copy_has_taken_the_place_over() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_and_moved(&world);
    world.clock.set(at(2 * HOUR));
    // A copy made while the file was uploaded, and the disk of the database as the commit was made.
    let disks = Arc::new(Mutex::new(Vec::new()));
    let (fs, store, copied) = (world.fs.clone(), world.store.clone(), disks.clone());
    world.store.after_put(".parquet", move || {
        copied.lock().unwrap().push(fs.fork());
        store.after_put(".json", move || copied.lock().unwrap().push(fs.fork()));
    });
    db.sweep().unwrap();
    drop(db);
    let [copy, crashed] = std::mem::take(&mut *disks.lock().unwrap()).try_into().unwrap();
    let beside = world.on(copy).open();
    assert_eq!(beside.sweep().unwrap().counts.failed_rules, 0);
    let db = world.on(crashed).open();
    assert_eq!(stored(&db).len(), 30);
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
    for side in [&db, &beside] {
        assert_eq!((stored(side).len(), all(side)), (0, numbers(0..40)));
    }
    assert_eq!(in_archive(&world.store).len(), 40);
    into(&db, OTHER);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn an_archive_that_returns_to_a_place_that_a_copy_has_taken_over_moves_nothing_there() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_and_moved(&world);
    into(&db, OTHER);
    let copy = world.on(world.fs.fork());
    let beside = copy.open();
    into(&beside, "s3://sim/archive");
    world.clock.set(at(2 * HOUR));
    beside.sweep().unwrap();
    assert_eq!(in_archive(&world.store).len(), 40);
    into(&db, "s3://sim/archive");
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
    assert_eq!(stored(&db).len(), 30);
    assert!(all(&db) == numbers(0..40) && is_set(&in_archive(&world.store)));
    // Deletes are not refused, and another place is.
    assert_eq!(db.collection("weather").unwrap().delete(&Filter::eq("v", Value::Int(29))).unwrap(), 0);
    into(&db, OTHER);
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 0);
    assert_eq!(stored(&db), [0; 0]);
}

#[test]
fn a_copy_that_is_refused_while_it_is_in_doubt_can_leave_the_place() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_and_moved(&world);
    world.clock.set(at(2 * HOUR));
    let copied = Arc::new(Mutex::new(None));
    let (fs, store, to) = (world.fs.clone(), world.store.clone(), copied.clone());
    // The file is not stored, and the original tries again with another one.
    world.store.before_put(".parquet", move || {
        *to.lock().unwrap() = Some(fs.fork());
        store.stop_after(Some(0));
    });
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
    world.store.stop_after(None);
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 0);
    assert_eq!((stored(&db).len(), in_archive(&world.store).len()), (0, 40));
    let beside = world.on(copied.lock().unwrap().take().unwrap()).open();
    assert_eq!(beside.sweep().unwrap().counts.failed_rules, 1);
    assert_eq!((stored(&beside).len(), all(&beside)), (30, numbers(0..40)));
    let error = beside.collection("weather").unwrap().delete(&Filter::eq("v", Value::Int(29))).unwrap_err();
    assert!(error.to_string().contains("refuses this database: name a new place"), "{error}");
    into(&beside, OTHER);
    assert_eq!(beside.sweep().unwrap().counts.failed_rules, 0);
    assert_eq!(stored(&beside), [0; 0]);
    beside.drop_collection("weather").unwrap();
    assert_eq!((all(&db), in_archive(&world.store).len()), (numbers(0..40), 40));
}

#[test]
fn a_copy_drops_what_the_original_has_committed_although_it_is_refused() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_and_moved(&world);
    world.clock.set(at(2 * HOUR));
    let copied = Arc::new(Mutex::new(None));
    let (fs, to) = (world.fs.clone(), copied.clone());
    world.store.after_put(".parquet", move || *to.lock().unwrap() = Some(fs.fork()));
    db.sweep().unwrap();
    // Under the number that the copy knows.
    db.collection("weather").unwrap().insert_documents(&[reading(5, 40)]).unwrap();
    db.sweep().unwrap();
    assert_eq!((all(&db), in_archive(&world.store).len()), (numbers(0..41), 41));
    let beside = world.on(copied.lock().unwrap().take().unwrap()).open();
    assert_eq!(stored(&beside).len(), 30);
    assert_eq!(beside.sweep().unwrap().counts.failed_rules, 1);
    assert_eq!((stored(&beside).len(), all(&beside)), (0, numbers(0..40)));
    into(&beside, OTHER);
    assert_eq!(beside.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn an_index_whose_archive_refuses_the_database_can_be_dropped() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_with_index(&world, true);
    db.collection("weather").unwrap().insert_documents(&[reading(-10 * HOUR, 30)]).unwrap();
    db.sweep().unwrap();
    world.clock.set(at(2 * HOUR));
    let copied = Arc::new(Mutex::new(None));
    let (fs, store, to) = (world.fs.clone(), world.other.clone(), copied.clone());
    world.other.before_put(".parquet", move || {
        *to.lock().unwrap() = Some(fs.fork());
        store.stop_after(Some(0));
    });
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
    world.other.stop_after(None);
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 0);
    let beside = world.on(copied.lock().unwrap().take().unwrap()).open();
    assert!(beside.sweep().unwrap().counts.failed_rules > 0);
    assert!(!stored(&beside).is_empty());
    beside.drop_rule("weather", "short").unwrap();
    assert_eq!(beside.verify().unwrap().faults, Vec::<String>::new());
}
