//! Archives through power cuts, lost requests and random runs.

use crate::archive::{all, all_here, archived, both, filled, filled_with_index, numbers};
use crate::world::{HOUR, OTHER, World, at, check_files, on_all_cores, random, reading, seeds};
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::{Code, Filter, Precision, RuleChange, RuleSelector, Timestamp, Value};
use ebbtide::{ArchivePlaces, CollectionChange, Database, HoldOptions};
use ebbtide_lake::sim::{SimLake, SimStore};
use std::sync::{Arc, Mutex};

/// Makes the readings.
type Fill = fn(&World) -> Database;

/// A collection with an archive, and one of which an index has another.
const FILLS: [Fill; 2] = [filled, |world| filled_with_index(world, true)];

/// Sweeps until everything due is moved, with a store that works.
pub(crate) fn finish(world: &World) -> Database {
    for store in [&world.store, &world.other] {
        store.fail_one_in(0);
        store.set_away(false);
        store.stop_after(None);
        store.settle();
    }
    let db = world.open();
    for _ in 0..3 {
        db.sweep().unwrap();
    }
    db
}

#[test]
fn a_power_cut_at_any_step_leaves_each_measurement_once() {
    for fill in FILLS {
        // How many steps there are.
        let world = World::new(SimStore::new(1, 0));
        let db = fill(&world);
        world.clock.set(at(2 * HOUR));
        let before = world.fs.mutating_ops();
        db.sweep().unwrap();
        drop(db);
        let steps = world.fs.mutating_ops() - before;
        assert!(steps > 10, "{steps}");
        for step in 0..steps {
            for variant in [Variant::V0, Variant::V1, Variant::V3] {
                let world = World::new(SimStore::new(1, 0));
                let db = fill(&world);
                world.clock.set(at(2 * HOUR));
                world.fs.stop_after(step);
                drop(db.sweep());
                let after = world.on(world.fs.crash(variant, step));
                drop(db);
                let opened = after.open();
                assert_eq!(all(&opened), numbers(0..30), "after step {step}");
                drop(opened);
                let db = finish(&after);
                assert_eq!((all(&db), archived(&db)), (numbers(0..30), 30), "after step {step}");
            }
        }
    }
}

#[test]
fn a_request_that_does_not_arrive_leaves_each_measurement_once() {
    for fill in FILLS {
        // Of how many requests the first ones arrive, and whether the sweep moves everything.
        let swept = |requests: Option<u64>| {
            let world = World::new(SimStore::new(requests.unwrap_or(0), 0));
            let db = fill(&world);
            world.clock.set(at(2 * HOUR));
            for store in [&world.store, &world.other] {
                store.stop_after(requests);
            }
            let report = db.sweep().unwrap();
            (world, db, report.counts.failed_rules == 0)
        };
        let (world, ..) = swept(None);
        let all_requests = world.store.requests().max(world.other.requests());
        assert!(all_requests > 5, "{all_requests}");
        for requests in 0..=all_requests {
            let (world, db, is_done) = swept(Some(requests));
            assert_eq!(is_done, requests == all_requests, "after {requests} requests");
            let infos = db.snapshot().collection("weather").unwrap().rule_infos().unwrap();
            let fails = infos.iter().any(|info| info.state.contains("failed: the store is away"));
            assert_eq!(fails, !is_done, "{infos:?}");
            for store in [&world.store, &world.other] {
                store.stop_after(None);
            }
            assert_eq!(all(&db), numbers(0..30), "after {requests} requests");
            drop(db);
            let db = finish(&world);
            assert_eq!((all(&db), archived(&db)), (numbers(0..30), 30), "after {requests} requests");
        }
    }
}

/// Thirty readings in an archive that have been kept for long enough, and ten that have expired since.
fn kept(world: &World) -> Database {
    let db = filled(world);
    let keep = CollectionChange { keep_seconds: Some(Some(3 * HOUR)), ..CollectionChange::default() };
    db.modify_collection("weather", &keep, None).unwrap();
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    let later: Vec<_> = (30..40).map(|v| reading(3 * HOUR + v, v)).collect();
    db.collection("weather").unwrap().insert_documents(&later).unwrap();
    world.clock.set(at(5 * HOUR));
    // Nobody reads the version of then any more when it is removed.
    world.store.advance(2 * HOUR * 1000);
    db
}

#[test]
fn a_crash_at_any_step_of_a_removal_by_keep_leaves_a_whole_archive() {
    let world = World::new(SimStore::new(1, 0));
    let db = kept(&world);
    let (steps, requests) = (world.fs.mutating_ops(), world.store.requests());
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(30..40), 10));
    let (steps, requests) = (world.fs.mutating_ops() - steps, world.store.requests() - requests);
    assert!(steps > 5 && requests > 5, "{steps} {requests}");
    let of_the_disk = (0..steps).map(|step| (Some(step), None));
    for (step, request) in of_the_disk.chain((0..requests).map(|request| (None, Some(request)))) {
        let world = World::new(SimStore::new(1, 0));
        let db = kept(&world);
        if let Some(step) = step {
            world.fs.stop_after(step);
        }
        world.store.stop_after(request);
        drop(db.sweep());
        world.store.stop_after(None);
        check_files(&world.store, &format!("{step:?} {request:?}"));
        let after = world.on(world.fs.crash(Variant::V0, step.unwrap_or(0)));
        drop(db);
        let found = all(&after.open());
        assert!(found == numbers(30..40) || found == numbers(0..40), "{step:?} {request:?}: {found:?}");
        let db = finish(&after);
        assert_eq!((all(&db), archived(&db)), (numbers(30..40), 10), "{step:?} {request:?}");
        check_files(&after.store, &format!("{step:?} {request:?}, at the end"));
        // Two hours later the file is gone.
        after.store.advance(2 * HOUR * 1000);
        db.sweep().unwrap();
        let snapshot = db.snapshot().collection("weather").unwrap();
        snapshot.archive_place("s3://sim/archive").unwrap().vacuum().unwrap();
        let files = after.store.names().into_iter().filter(|name| name.ends_with(".parquet"));
        assert_eq!(files.count(), 1, "{step:?} {request:?}");
    }
}

#[test]
fn what_changes_between_a_commit_and_the_drop_waits_until_the_commit_is_known() {
    type Change = fn(&Database) -> ebbtide::Result<()>;
    let longer: Change = |db| {
        let longer = CollectionChange { expire_after_seconds: Some(Some(9 * HOUR)), ..CollectionChange::default() };
        db.modify_collection("weather", &longer, None).map(drop)
    };
    let changes: [Change; 3] = [
        |db| db.collection("weather")?.delete(&Filter::eq("v", Value::Int(29))).map(drop),
        |db| db.create_hold("case", "weather", HoldOptions::new("a case")),
        longer,
    ];
    for change in changes {
        let world = World::new(SimStore::new(1, 0));
        let db = filled(&world);
        world.clock.set(at(2 * HOUR));
        let disk = Arc::new(Mutex::new(None));
        let (fs, copied, store) = (world.fs.clone(), disk.clone(), world.store.clone());
        // The disk at the moment at which the place has the rows, and they are not dropped yet.
        world.store.after_put(".parquet", move || {
            store.after_put(".json", move || *copied.lock().unwrap() = Some(fs.fork()));
        });
        db.sweep().unwrap();
        drop(db);
        let crashed = world.on(disk.lock().unwrap().take().unwrap());
        let db = crashed.open();
        assert_eq!((all_here(&db), all(&db)), (numbers(0..30), numbers(0..30)));
        assert_eq!(change(&db).unwrap_err().code(), Code::IllegalOperation);
        db.collection("weather").unwrap().insert_documents(&[reading(5, 30)]).unwrap();
        assert_eq!(all(&db), numbers(0..31));
        db.sweep().unwrap();
        assert_eq!((all(&db), all_here(&db)), (numbers(0..31), Vec::new()));
        change(&db).unwrap();
        db.sweep().unwrap();
        assert_eq!((all(&db), archived(&db)), (numbers(0..31), 31));
    }
}

#[test]
fn lost_late_and_unanswered_requests_and_crashes_leave_each_measurement_once() {
    let older = on_all_cores(seeds(300, 1), random_run);
    assert!(older > 0 || seeds(300, 1).count() < 50, "no run had a file of an older version");
}

/// Returns how many files of older versions were seen.
fn random_run(seed: u64) -> usize {
    let mut older = 0;
    let mut world = World::with_other(SimStore::new(seed, 3), SimStore::new(seed + 7, 3));
    // Without an archive of an index, with one, and with that one alone.
    let kind = seed / 3 % 3;
    let mut db = if kind == 0 { filled(&world) } else { filled_with_index(&world, kind == 1) };
    let keep = seed.is_multiple_of(3).then_some(3 * HOUR);
    let keep = keep.filter(|_| kind < 2);
    let index_keep = (kind > 0 && seed % 3 < 2).then_some(2 * HOUR);
    let change = CollectionChange { keep_seconds: Some(keep), ..CollectionChange::default() };
    let index = RuleChange::new(RuleSelector::Name("short".to_owned())).keep_seconds(index_keep);
    db.modify_collection("weather", &change, Some(&index).filter(|_| kind > 0)).unwrap();
    let mut times: Vec<i64> = (0..30).map(|v| v * 120).collect();
    let mut next = random(seed);
    let mut inserted = 30;
    let mut deleted = Vec::new();
    let mut is_held = false;
    for round in 1..8 {
        world.clock.set(at(HOUR + round * 700));
        if let Ok((mut here, expired)) = both(&db) {
            here.extend(expired);
            here.sort_unstable();
            assert!(here.is_sorted_by(|a, b| a < b), "seed {seed}: {here:?}");
            // Nothing is missing but what was deleted, expired without an archive, or was kept for long enough.
            let is_old = |v: i64| {
                let keep = if kind > 0 && v % 3 == 0 { index_keep } else { keep };
                let time = times[usize::try_from(v).unwrap()];
                keep.is_some_and(|keep| time + keep <= HOUR + round * 700)
            };
            let is_missing = |v: &i64| !here.contains(v) && !deleted.contains(v) && (kind < 2 || v % 3 == 0);
            let missing: Vec<i64> = (0..inserted).filter(is_missing).collect();
            assert!(missing.iter().all(|v| is_old(*v)), "seed {seed}, round {round}: {missing:?}");
        }
        match next(9) {
            0 => {
                let fs = world.fs.crash(Variant::V0, seed);
                drop(db);
                world = world.on(fs);
                db = world.open();
            }
            1 => {
                times.push(next(5000));
                let late = reading(times[times.len() - 1], inserted);
                db.collection("weather").unwrap().insert_documents(&[late]).unwrap();
                inserted += 1;
            }
            2 => {
                let which = next(30);
                let c = db.collection("weather").unwrap();
                // What the archive has is not deleted.
                let is_here = all_here(&db).contains(&which);
                match c.delete(&Filter::eq("v", Value::Int(which))) {
                    Ok(_) => deleted.extend(is_here.then_some(which)),
                    Err(error) => assert_eq!(error.code(), Code::IllegalOperation, "seed {seed}: {error}"),
                }
            }
            3 => {
                drop(db.compact(Some("weather")));
            }
            4 => {
                // No request takes an hour, after which what is left over is removed.
                for store in [&world.store, &world.other] {
                    store.settle();
                    store.advance(next(3) * HOUR * 1000);
                }
                let snapshot = db.snapshot().collection("weather").unwrap();
                for archive in snapshot.archives() {
                    // By this process, which has the log in memory, or by another.
                    let place = match seed % 2 {
                        0 => snapshot.archive_place(&archive.url).unwrap(),
                        _ => SimLake::new(&world.store).and(OTHER, &world.other).open(&archive.url).unwrap(),
                    };
                    drop(place.vacuum());
                }
            }
            5 => {
                // The clock jumps, and a sweep meets that.
                world.clock.jump(at(400 * 24 * HOUR));
                assert!(db.sweep().unwrap().held.is_some(), "seed {seed}");
                world.clock.jump(at(HOUR + round * 700));
            }
            6 => {
                let changed = match is_held {
                    true => db.lift_hold("case"),
                    false => db.create_hold("case", "weather", HoldOptions::new("a case")),
                };
                match changed {
                    Ok(()) => is_held = !is_held,
                    // While something is moved it waits.
                    Err(error) => assert_eq!(error.code(), Code::IllegalOperation, "seed {seed}: {error}"),
                }
            }
            7 if kind < 2 => {
                let e = CollectionChange {
                    expire_after_seconds: Some(Some(HOUR + next(2) * HOUR)),
                    ..CollectionChange::default()
                };
                if let Err(error) = db.modify_collection("weather", &e, None) {
                    assert_eq!(error.code(), Code::IllegalOperation, "seed {seed}: {error}");
                }
            }
            _ => {}
        }
        db.sweep().unwrap();
        for store in [&world.store, &world.other] {
            older += check_files(store, &format!("seed {seed}, round {round}"));
        }
    }
    if is_held {
        db.lift_hold("case").unwrap();
    }
    drop(db);
    world.clock.set(at(5 * HOUR));
    let db = finish(&world);
    // What has been kept for long enough has left the newest version, and stays for an hour.
    for store in [&world.store, &world.other] {
        older += check_files(store, &format!("seed {seed}, at the end"));
    }
    let is_archived = |v: &i64| kind < 2 || v % 3 == 0;
    let expected: Vec<i64> = (0..inserted).filter(|v| !deleted.contains(v) && is_archived(v)).collect();
    let found = all(&db);
    // A file goes when its last measurement has been kept for long enough, so no other may be missing.
    let keep_of = |v: &i64| if kind > 0 && v % 3 == 0 { index_keep } else { keep };
    let is_old = |v: &i64| keep_of(v).is_some_and(|keep| times[usize::try_from(*v).unwrap()] + keep <= 5 * HOUR);
    let missing: Vec<i64> = expected.iter().copied().filter(|v| !found.contains(v)).collect();
    assert!(missing.iter().all(is_old), "seed {seed}: {missing:?}");
    let rest: Vec<i64> = expected.iter().copied().filter(|v| !missing.contains(v)).collect();
    assert_eq!(found, rest, "seed {seed}");
    let snapshot = db.snapshot().collection("weather").unwrap();
    for archive in snapshot.archives() {
        let (Some(keep), Some(version)) = (archive.keep_seconds, archive.version) else { continue };
        let files = snapshot.archive_place(&archive.url).unwrap().files(version).unwrap();
        let last = |time: i64| Timestamp::from_units(time, Precision::Ms);
        assert!(files.iter().all(|file| last(file.times.1) > at(5 * HOUR - keep)), "seed {seed}");
    }
    drop(snapshot);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    let snapshot = db.snapshot().collection("weather").unwrap();
    assert_eq!(snapshot.segments().len(), 0, "seed {seed}");
    // Two hours later nothing is left over.
    for store in [&world.store, &world.other] {
        store.advance(2 * HOUR * 1000);
    }
    for archive in snapshot.archives() {
        let place = snapshot.archive_place(&archive.url).unwrap();
        place.vacuum().unwrap();
        let Some(version) = archive.version else { continue };
        let store = if archive.url == OTHER { &world.other } else { &world.store };
        let stored = store.names().iter().filter(|name| name.ends_with(".parquet")).count();
        assert_eq!(stored, place.files(version).unwrap().len(), "seed {seed}");
    }
    older
}
