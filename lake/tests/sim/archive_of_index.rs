//! Archives of TTL indexes.

use crate::archive::{
    all, all_here, archived, both, filled, filled_with_index, filled_without_archive, index, numbers, options, values,
};
use crate::archive_runs::finish;
use crate::world::{HOUR, OTHER, World, at, reading};
use ebbtide::ttl::{Code, Filter, RuleChange, RuleSelector, RuleSpec, Value};
use ebbtide::{ArchiveInfo, CollectionChange, CollectionOptions, Database, SweepOptions};
use ebbtide_lake::sim::SimStore;
use std::sync::Arc;

/// Of these numbers those that go by the index, or the others.
fn of_index(range: std::ops::Range<i64>, by_index: bool) -> Vec<i64> {
    range.filter(|v| (v % 3 == 0) == by_index).collect()
}

/// How many measurements each archive has, by URL.
fn by_archive(db: &Database) -> Vec<(String, u64)> {
    let snapshot = db.snapshot().collection("weather").unwrap();
    let rows = |archive: &ArchiveInfo| {
        let Some(version) = archive.version else { return 0 };
        let files = snapshot.archive_place(&archive.url).unwrap().files(version).unwrap();
        files.iter().map(|file| file.rows).sum()
    };
    snapshot.archives().iter().map(|archive| (archive.url.clone(), rows(archive))).collect()
}

#[test]
fn what_an_index_expires_goes_to_its_own_archive() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_with_index(&world, true);
    world.clock.set(at(2 * HOUR));
    assert_eq!(both(&db).unwrap(), (vec![], numbers(0..30)));
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.counts.failed_rules), (30, 0));
    let places = vec![("s3://sim/archive".to_owned(), 20), (OTHER.to_owned(), 10)];
    assert_eq!((by_archive(&db), all(&db)), (places.clone(), numbers(0..30)));
    let infos = db.snapshot().collection("weather").unwrap().rule_infos().unwrap();
    let states: Vec<&str> = infos.iter().map(|info| info.state.as_str()).collect();
    assert_eq!(states, ["active, into s3://sim/archive", "active, into s3://sim/other"]);
    // Each under its own rule in the history, and in another process too.
    let swept: Vec<_> = db.sweeps().iter().map(|sweep| (sweep.rule.clone(), sweep.measurements)).collect();
    assert_eq!(swept, [("collection".to_owned(), 20), ("short".to_owned(), 10)]);
    drop(db);
    let db = world.open();
    assert_eq!((by_archive(&db), all(&db)), (places, numbers(0..30)));
    db.collection("weather").unwrap().insert_documents(&[reading(1, 30)]).unwrap();
    db.sweep().unwrap();
    assert_eq!((by_archive(&db)[1].1, all(&db)), (11, numbers(0..31)));
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn what_other_rules_expire_is_deleted_or_handed_over_if_only_an_index_has_an_archive() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_with_index(&world, false);
    world.clock.set(at(2 * HOUR));
    // What will be deleted is not archived.
    assert_eq!(both(&db).unwrap(), (vec![], of_index(0..30, true)));
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.counts.failed_rules), (30, 0));
    assert_eq!((by_archive(&db), all(&db)), (vec![(OTHER.to_owned(), 10)], of_index(0..30, true)));
    assert_eq!(db.snapshot().collection("weather").unwrap().segments().len(), 0);

    let (world, taken) = (World::new(SimStore::new(1, 0)), Arc::new(std::sync::Mutex::new(Vec::new())));
    let db = filled_with_index(&world, false);
    world.clock.set(at(2 * HOUR));
    let sink = Arc::clone(&taken);
    let take = move |bucket: &ebbtide::ExpiredBucket| {
        sink.lock().unwrap().extend(values(&bucket.rows));
        Ok(())
    };
    let options = SweepOptions { sink: Some(Arc::new(take)), ..SweepOptions::default() };
    db.sweep_with(&options).unwrap();
    taken.lock().unwrap().sort_unstable();
    assert_eq!(*taken.lock().unwrap(), of_index(0..30, false));
    assert_eq!(by_archive(&db), [(OTHER.to_owned(), 10)]);
}

#[test]
fn a_place_that_is_away_delays_no_other() {
    for of_collection in [true, false] {
        // Away at once, and away when the commit is sent.
        for requests in [0, 4] {
            let world = World::new(SimStore::new(1, 0));
            let db = if of_collection { filled(&world) } else { filled_without_archive(&world) };
            // What goes to one place lies in one segment with the rest.
            db.flush().unwrap();
            db.create_rules("weather", vec![index().expire_into(OTHER)]).unwrap();
            assert_eq!(db.snapshot().collection("weather").unwrap().segments().len(), 1);
            world.clock.set(at(5400));
            world.other.stop_after(Some(requests));
            assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
            assert_eq!(all_here(&db), numbers(0..30), "{requests}");
            world.clock.set(at(2 * HOUR));
            assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
            assert_eq!(all_here(&db), of_index(0..30, true), "{requests}");
            let infos = db.snapshot().collection("weather").unwrap().rule_infos().unwrap();
            let failed: Vec<bool> = infos.iter().map(|info| info.state.contains("failed: the store is away")).collect();
            assert_eq!(failed, [false, true]);
            drop(db);
            let db = finish(&world);
            let expected = if of_collection { numbers(0..30) } else { of_index(0..30, true) };
            assert_eq!((all(&db), archived(&db)), (expected.clone(), expected.len() as u64));
        }
    }
}

#[test]
fn what_goes_by_size_goes_where_its_rule_would_move_it() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let options = CollectionOptions { expire_into: None, ..options().expire_after_seconds(1000 * HOUR) };
    let c = db.create_collection("weather", options).unwrap();
    db.create_rules("weather", vec![index().expire_into(OTHER)]).unwrap();
    let long = RuleChange::new(RuleSelector::Name("short".to_owned())).expire_after_seconds(900 * HOUR);
    db.modify_collection("weather", &CollectionChange::default(), Some(&long)).unwrap();
    c.insert_documents(&(0..60).map(|v| reading(v * HOUR, v)).collect::<Vec<_>>()).unwrap();
    world.clock.set(at(60 * HOUR));
    let limit = CollectionChange { max_bytes: Some(Some(1)), ..CollectionChange::default() };
    db.modify_collection("weather", &limit, None).unwrap();
    db.sweep().unwrap();
    // The newest window stays.
    assert_eq!(both(&db).unwrap(), (vec![59], of_index(0..59, true)));
    let sized: Vec<_> = db.sweeps().iter().map(|sweep| (sweep.rule.clone(), sweep.measurements)).collect();
    assert_eq!(sized, [("size".to_owned(), 39), ("size".to_owned(), 20)]);
}

#[test]
fn the_archive_of_an_index_keeps_for_as_long_as_it_is_told() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_with_index(&world, true);
    let by_name = || RuleChange::new(RuleSelector::Name("short".to_owned()));
    let change = |change: RuleChange| db.modify_collection("weather", &CollectionChange::default(), Some(&change));
    let error = change(by_name().keep_seconds(Some(HOUR / 2))).unwrap_err();
    assert!(error.to_string().contains("more than expireAfterSeconds"), "{error}");
    change(by_name().keep_seconds(Some(10 * HOUR))).unwrap();
    world.clock.set(at(3 * HOUR));
    db.sweep().unwrap();
    assert_eq!(all(&db), numbers(0..30));
    world.clock.set(at(11 * HOUR));
    db.sweep().unwrap();
    assert_eq!(all(&db), of_index(0..30, false));
}

#[test]
fn the_archive_of_an_index_can_be_changed_and_goes_with_the_index() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_with_index(&world, true);
    let by_name = || RuleChange::new(RuleSelector::Name("short".to_owned()));
    let change = |change: RuleChange| db.modify_collection("weather", &CollectionChange::default(), Some(&change));
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    for url in ["s3://sim/archive", "https://a", "s3://key:secret@bucket/a"] {
        let error = change(by_name().expire_into(Some(url))).unwrap_err();
        assert_eq!(error.code(), Code::InvalidOptions);
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let same_place = options().expire_into(OTHER);
    assert_eq!(db.create_collection("other", same_place).unwrap_err().code(), Code::InvalidOptions);
    let conflict = db.create_rules("weather", vec![index()]).unwrap_err();
    assert_eq!(conflict.code(), Code::IndexOptionsConflict);
    assert_eq!(db.create_rules("weather", vec![index().expire_into(OTHER)]).unwrap().after, 1);
    // Without one of its own it uses that of the collection; what is at the other place stays there.
    change(by_name().expire_into(None)).unwrap();
    db.collection("weather").unwrap().insert_documents(&[reading(1, 30)]).unwrap();
    db.sweep().unwrap();
    assert_eq!(by_archive(&db), [("s3://sim/archive".to_owned(), 21)]);
    // When it is back there, it knows what it had moved.
    change(by_name().expire_into(Some(OTHER))).unwrap();
    db.collection("weather").unwrap().insert_documents(&[reading(2, 33)]).unwrap();
    db.sweep().unwrap();
    assert_eq!((by_archive(&db)[1].1, all(&db).len()), (11, 32));
    // Another index may have the place after this one.
    db.drop_rule("weather", "short").unwrap();
    assert_eq!(by_archive(&db).len(), 1);
    drop(db);
    let db = world.open();
    let next = RuleSpec::new("next", HOUR / 2, Filter::eq("sensor", Value::from("a"))).expire_into(OTHER);
    db.create_rules("weather", vec![next]).unwrap();
    db.collection("weather").unwrap().insert_documents(&[reading(3, 36)]).unwrap();
    db.sweep().unwrap();
    assert_eq!((by_archive(&db)[1].1, all(&db).len()), (12, 33));
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn of_two_copies_only_one_uses_the_archive_of_an_index() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled_with_index(&world, false);
    world.clock.set(at(HOUR));
    db.sweep().unwrap();
    drop(db);
    let copy = world.on(world.fs.fork());
    let (db, beside) = (world.open(), copy.open());
    world.clock.set(at(2 * HOUR));
    beside.sweep().unwrap();
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
    assert_eq!((all(&beside), all(&db)), (of_index(0..30, true), of_index(0..30, true)));
    assert_eq!(db.adopt_archive("weather").unwrap_err().code(), Code::IllegalOperation);
}
