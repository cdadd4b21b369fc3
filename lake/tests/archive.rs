//! What is moved to an archive: each measurement is in one of both places at every moment, whatever fails.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::error::ArrowError;
use ebbtide::buckets::{times, value_at};
use ebbtide::fs::sim::{SimFs, Variant};
use ebbtide::ttl::{
    Clock, Code, Filter, Precision, RuleChange, RuleSelector, RuleSpec, Timestamp, Value, VirtualClock,
};
use ebbtide::{
    ArchiveInfo, CollectionChange, CollectionOptions, Database, HoldOptions, MetaFilter, Result, ScanRequest,
    SweepOptions,
};
use ebbtide_lake::sim::{SimLake, SimStore};
use std::sync::Arc;

const ROOT: &str = "/data/db";
const HOUR: i64 = 3600;

fn at(seconds: i64) -> Timestamp {
    Timestamp::parse("2024-01-01T00:00:00Z").unwrap().plus_seconds(seconds)
}

fn reading(seconds: i64, v: i64) -> Value {
    let sensor = ["a", "b", "c"][v as usize % 3];
    Value::Object(vec![
        ("t".into(), Value::Date(at(seconds))),
        ("sensor".into(), Value::from(sensor)),
        ("v".into(), Value::Int(v)),
    ])
}

/// A disk, a clock, a store, and one for the archive of an index.
struct World {
    fs: SimFs,
    clock: VirtualClock,
    store: SimStore,
    other: SimStore,
}

const OTHER: &str = "s3://sim/other";

impl World {
    fn new(store: SimStore) -> World {
        World::with_other(store, SimStore::new(2, 0))
    }

    fn with_other(store: SimStore, other: SimStore) -> World {
        World { fs: SimFs::new(ROOT), clock: VirtualClock::new(at(0)), store, other }
    }

    fn on(&self, fs: SimFs) -> World {
        World { fs, clock: self.clock.clone(), store: self.store.clone(), other: self.other.clone() }
    }

    fn try_open(&self) -> Result<Database> {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let places = Arc::new(SimLake::new(&self.store).and(OTHER, &self.other));
        Database::builder(ROOT).fs(Arc::new(self.fs.clone())).clock(clock).archives(places).open()
    }

    fn open(&self) -> Database {
        self.try_open().unwrap()
    }
}

fn options() -> CollectionOptions {
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR);
    options.expire_into("s3://sim/archive")
}

/// Thirty readings, two minutes apart. After 1 h 50 min most of them have expired.
fn filled(world: &World) -> Database {
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    c.insert_documents(&(0..30).map(|v| reading(v * 120, v)).collect::<Vec<_>>()).unwrap();
    db
}

/// The same in a collection without an archive.
fn filled_without_archive(world: &World) -> Database {
    let db = filled(world);
    let none = CollectionChange { expire_into: Some(None), ..CollectionChange::default() };
    db.modify_collection("weather", &none, None).unwrap();
    db
}

/// An index over a third of the readings, which expire in half the time.
fn index() -> RuleSpec {
    RuleSpec::new("short", HOUR / 2, Filter::eq("sensor", Value::from("a")))
}

/// The same readings in a collection where that index has an archive of its own.
fn filled_with_index(world: &World, of_collection: bool) -> Database {
    let db = world.open();
    let options = if of_collection { options() } else { CollectionOptions { expire_into: None, ..options() } };
    let c = db.create_collection("weather", options).unwrap();
    db.create_rules("weather", vec![index().expire_into(OTHER)]).unwrap();
    c.insert_documents(&(0..30).map(|v| reading(v * 120, v)).collect::<Vec<_>>()).unwrap();
    db
}

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

fn values(batch: &arrow::array::RecordBatch) -> Vec<i64> {
    let column = batch.column_by_name("v").unwrap();
    let value = |row| match ebbtide::buckets::value_at(column.as_ref(), row) {
        Value::Int(v) => v,
        other => panic!("a reading of {other:?}"),
    };
    (0..batch.num_rows()).map(value).collect()
}

/// What is visible here, and what has expired: in the archive or not yet.
fn both(db: &Database) -> Result<(Vec<i64>, Vec<i64>)> {
    let snapshot = db.snapshot().collection("weather")?;
    let (mut here, mut expired) = (Vec::new(), Vec::new());
    for unit in snapshot.scan(&ScanRequest::default())? {
        for batch in unit.read()? {
            here.extend(values(&batch?));
        }
    }
    for unit in snapshot.unarchived(&ScanRequest::default())? {
        for batch in unit.unit.read()? {
            expired.extend(values(&batch?));
        }
    }
    for unit in snapshot.archived(&ScanRequest::default())?.units {
        for batch in unit.read()? {
            expired.extend(values(&batch?));
        }
    }
    here.sort_unstable();
    expired.sort_unstable();
    Ok((here, expired))
}

/// Everything, here and there.
fn all(db: &Database) -> Vec<i64> {
    let (here, expired) = both(db).unwrap();
    let mut all: Vec<i64> = here.into_iter().chain(expired).collect();
    all.sort_unstable();
    all
}

fn archived(db: &Database) -> u64 {
    let snapshot = db.snapshot().collection("weather").unwrap();
    let units = snapshot.archived(&ScanRequest::default()).unwrap().units;
    units.iter().map(|unit| unit.file.rows).sum()
}

fn state_of(db: &Database) -> String {
    db.snapshot().collection("weather").unwrap().rule_infos().unwrap()[0].state.clone()
}

fn numbers(range: std::ops::Range<i64>) -> Vec<i64> {
    range.collect()
}

#[test]
fn what_expires_is_moved_and_read_back() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    assert_eq!(state_of(&db), "active, into s3://sim/archive");
    world.clock.set(at(2 * HOUR));
    assert_eq!(both(&db).unwrap(), (vec![], numbers(0..30)));
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.counts.failed_rules), (30, 0));
    assert_eq!(db.snapshot().collection("weather").unwrap().segments().len(), 0);
    assert_eq!((both(&db).unwrap(), archived(&db)), ((vec![], numbers(0..30)), 30));
    // The same by another process.
    drop(db);
    let db = world.open();
    assert_eq!(all(&db), numbers(0..30));
    // A late one follows.
    db.collection("weather").unwrap().insert_documents(&[reading(1, 30)]).unwrap();
    assert_eq!(all(&db), numbers(0..31));
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(0..31), 31));
    assert_eq!(db.sweeps().iter().map(|sweep| sweep.measurements).sum::<u64>(), 31);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn only_parts_of_the_archive_that_can_have_the_time_are_fetched() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    for day in 0..30 {
        let rows: Vec<Value> = (0..500).map(|v| reading(day * 86_400 + v * 60, day * 500 + v)).collect();
        c.insert_documents(&rows).unwrap();
        world.clock.set(at((day + 2) * 86_400));
        db.sweep().unwrap();
    }
    let snapshot = db.snapshot().collection("weather").unwrap();
    let request = ScanRequest { time: (at(5 * 86_400)..at(6 * 86_400)).into(), ..ScanRequest::default() };
    assert_eq!(snapshot.archived(&ScanRequest::default()).unwrap().units.len(), 30);
    let found = snapshot.archived(&request).unwrap();
    assert_eq!((found.units.len(), found.files_skipped), (1, 29));
    let rows: usize = found.units[0].read().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 500);
    // What was fetched is in memory for the next one.
    let again = snapshot.archived(&request).unwrap();
    let rows: usize = again.units[0].read().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!((rows, again.fetched.requests(), again.fetched.bytes()), (500, 0, 0));
    assert!(found.fetched.bytes() > 0 && again.fetched.cached_bytes() > 0);
}

/// Selects the metas that have a value at a path.
#[derive(Debug)]
struct Having([(Vec<String>, Value); 1]);

impl Having {
    fn at(path: &[&str], value: impl Into<Value>) -> Option<Arc<dyn MetaFilter>> {
        Some(Arc::new(Having([(path.iter().map(|name| (*name).to_owned()).collect(), value.into())])))
    }
}

impl MetaFilter for Having {
    fn select(&self, metas: &ArrayRef) -> std::result::Result<BooleanArray, ArrowError> {
        Ok((0..metas.len()).map(|_| Some(true)).collect())
    }

    fn equalities(&self) -> &[(Vec<String>, Value)] {
        &self.0
    }
}

#[test]
fn only_pages_that_can_have_the_series_are_fetched() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    // Two hundred series of three hundred readings, in one file.
    let site = |number: i64| {
        Value::Object(vec![
            ("floor".into(), Value::Int(number % 4)),
            ("name".into(), Value::from(format!("n{number:03}").as_str())),
        ])
    };
    for number in 0..200 {
        let reading = |v: i64| {
            let noise = (v.wrapping_mul(0x9E37_79B9) >> 7) as f64;
            Value::Object(vec![
                ("t".into(), Value::Date(at(v * 600))),
                ("sensor".into(), site(number)),
                ("v".into(), Value::Int(v)),
                ("noise".into(), Value::Double(noise / 3.0)),
            ])
        };
        c.insert_documents(&(0..300).map(reading).collect::<Vec<_>>()).unwrap();
    }
    world.clock.set(at(1000 * HOUR));
    db.sweep().unwrap();
    let snapshot = db.snapshot().collection("weather").unwrap();
    let day = at(86_400)..at(2 * 86_400);
    let read = |meta: Option<Arc<dyn MetaFilter>>| {
        let request = ScanRequest { time: day.clone().into(), meta, ..ScanRequest::default() };
        let found = snapshot.archived(&request).unwrap();
        let wanted = Timestamp::to_units_saturating;
        let (first, last) = (wanted(day.start, Precision::Ms), wanted(day.end, Precision::Ms));
        let rows = found.units.iter().flat_map(|unit| unit.read().unwrap());
        let is_of = |batch: &RecordBatch, row: usize| {
            let meta = value_at(batch.column_by_name("sensor").unwrap().as_ref(), row);
            let t = times(batch).unwrap()[row];
            meta.normalized() == site(17).normalized() && (first..last).contains(&t)
        };
        let counts = rows
            .map(|batch| batch.unwrap())
            .map(|batch| (batch.num_rows(), (0..batch.num_rows()).filter(|row| is_of(&batch, *row)).count()));
        let (all, wanted) = counts.fold((0, 0), |sum, batch| (sum.0 + batch.0, sum.1 + batch.1));
        (all, wanted, found.units.len(), found.files_skipped)
    };
    let (everything, wanted, ..) = read(None);
    assert_eq!(wanted, 144);
    // Sorted by floor, so that names are on some pages of each floor.
    for (meta, times) in [(Having::at(&["name"], "n017"), 2), (Having::at(&[], site(17)), 4)] {
        let (all, wanted, files, skipped) = read(meta);
        assert_eq!((wanted, files, skipped), (144, 1, 0));
        assert!(all * times < everything, "{all} rows of {everything} were read");
    }
    assert_eq!(read(Having::at(&["name"], "z")), (0, 0, 0, 1));
    assert_eq!(read(Having::at(&["floor"], 4.5)), (0, 0, 0, 1));
    // A value of another kind, or none, says nothing.
    assert_eq!(read(Having::at(&["name"], Value::Null)).2, 1);
    assert_eq!(read(Having::at(&["name"], 17)).2, 1);
    assert_eq!(read(Having::at(&["floor"], f64::NAN)).2, 1);
}

#[test]
fn what_was_kept_for_long_enough_leaves_the_archive_and_an_hour_later_the_store() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options().keep_seconds(10 * HOUR)).unwrap();
    for hour in 0..5 {
        c.insert_documents(&(0..3).map(|v| reading(hour * HOUR + v, hour * 3 + v)).collect::<Vec<_>>()).unwrap();
        world.clock.set(at((hour + 2) * HOUR + 60));
        db.sweep().unwrap();
    }
    let files = || world.store.names().iter().filter(|name| name.ends_with(".parquet")).count();
    assert_eq!((all(&db), files()), (numbers(0..15), 5));
    let hold = HoldOptions { filter: Filter::eq("sensor", Value::from("b")), ..HoldOptions::new("case 42") };
    db.create_hold("case42", "weather", hold.until(at(HOUR))).unwrap();
    // The last of the first two hours has gone by, to the second.
    world.clock.set(at(11 * HOUR + 1));
    db.sweep().unwrap();
    assert_eq!(all(&db), numbers(0..15));
    world.clock.set(at(11 * HOUR + 2));
    db.sweep().unwrap();
    let held_and_later: Vec<i64> = (0..3).chain(6..15).collect();
    assert_eq!((all(&db), files()), (held_and_later.clone(), 5));
    world.store.advance(2 * 3_600_000);
    drop((c, db));
    let db = world.open();
    db.sweep().unwrap();
    assert_eq!((all(&db), files()), (held_and_later, 4));
    db.lift_hold("case42").unwrap();
    db.sweep().unwrap();
    assert_eq!(all(&db), numbers(6..15));
    let longer = CollectionChange { keep_seconds: Some(None), ..CollectionChange::default() };
    db.modify_collection("weather", &longer, None).unwrap();
    world.clock.set(at(100 * HOUR));
    db.sweep().unwrap();
    assert_eq!(all(&db), numbers(6..15));
    let refused = CollectionChange { keep_seconds: Some(Some(HOUR)), ..CollectionChange::default() };
    let error = db.modify_collection("weather", &refused, None).unwrap_err();
    assert_eq!(error.code(), Code::InvalidOptions);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

/// Sweeps until everything due is moved, with a store that works.
fn finish(world: &World) -> Database {
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

/// Makes the readings.
type Fill = fn(&World) -> Database;

/// A collection with an archive, and one of which an index has another.
const FILLS: [Fill; 2] = [filled, |world| filled_with_index(world, true)];

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
    for (fill, requests) in FILLS.iter().flat_map(|fill| (0..12).map(move |requests| (fill, requests))) {
        let world = World::new(SimStore::new(requests, 0));
        let db = fill(&world);
        world.clock.set(at(2 * HOUR));
        for store in [&world.store, &world.other] {
            store.stop_after(Some(requests));
        }
        let report = db.sweep().unwrap();
        if report.counts.failed_rules > 0 {
            assert!(state_of(&db).contains("failed: the store is away"), "{}", state_of(&db));
        }
        drop(db);
        let db = finish(&world);
        assert_eq!((all(&db), archived(&db)), (numbers(0..30), 30), "after {requests} requests");
    }
}

#[test]
fn lost_late_and_unanswered_requests_and_crashes_leave_each_measurement_once() {
    let runs = std::env::var("EBBTIDE_LAKE_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(300);
    for seed in 0..runs {
        let mut world = World::with_other(SimStore::new(seed, 3), SimStore::new(seed + 7, 3));
        // Without an archive of an index, with one, and with that one alone.
        let kind = seed / 3 % 3;
        let mut db = if kind == 0 { filled(&world) } else { filled_with_index(&world, kind == 1) };
        let keep = (seed % 3 == 0).then_some(3 * HOUR);
        let keep = keep.filter(|_| kind < 2);
        let index_keep = (kind > 0 && seed % 3 < 2).then_some(2 * HOUR);
        let change = CollectionChange { keep_seconds: Some(keep), ..CollectionChange::default() };
        let index = RuleChange::new(RuleSelector::Name("short".to_owned())).keep_seconds(index_keep);
        db.modify_collection("weather", &change, Some(&index).filter(|_| kind > 0)).unwrap();
        let mut times: Vec<i64> = (0..30).map(|v| v * 120).collect();
        let mut random = seed;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
            (random >> 33) % below
        };
        let mut inserted = 30;
        let mut deleted = Vec::new();
        for round in 1..8 {
            world.clock.set(at(HOUR + round * 700));
            if let Ok((mut here, expired)) = both(&db) {
                here.extend(expired);
                here.sort_unstable();
                assert!(here.is_sorted_by(|a, b| a < b), "seed {seed}: {here:?}");
            }
            match next(6) {
                0 => {
                    let fs = world.fs.crash(Variant::V0, seed);
                    drop(db);
                    world = world.on(fs);
                    db = world.open();
                }
                1 => {
                    times.push(i64::try_from(next(5000)).unwrap());
                    let late = reading(times[times.len() - 1], inserted);
                    db.collection("weather").unwrap().insert_documents(&[late]).unwrap();
                    inserted += 1;
                }
                2 => {
                    let which = i64::try_from(next(30)).unwrap();
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
                _ => {}
            }
            db.sweep().unwrap();
        }
        drop(db);
        world.clock.set(at(5 * HOUR));
        let db = finish(&world);
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
        assert_eq!(db.snapshot().collection("weather").unwrap().segments().len(), 0, "seed {seed}");
    }
}

#[test]
fn a_store_that_is_away_costs_nothing_but_room() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(2 * HOUR));
    world.store.set_away(true);
    let c = db.collection("weather").unwrap();
    for hour in 2..30 {
        world.clock.set(at(hour * HOUR));
        assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
        c.insert_documents(&[reading(hour * HOUR, 28 + hour)]).unwrap();
    }
    assert_eq!(state_of(&db), "active, into s3://sim/archive, failed: the store is away");
    world.store.set_away(false);
    db.sweep().unwrap();
    assert_eq!((all(&db), state_of(&db).as_str()), (numbers(0..58), "active, into s3://sim/archive"));
}

#[test]
fn of_two_copies_of_a_folder_only_one_archives_until_it_is_told_to() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(HOUR + 1000));
    db.sweep().unwrap();
    let moved = archived(&db);
    drop(db);
    let copy = world.on(world.fs.fork());
    let (db, beside) = (world.open(), copy.open());
    world.clock.set(at(2 * HOUR));
    beside.sweep().unwrap();
    assert_eq!((all(&beside), archived(&beside)), (numbers(0..30), 30));
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.counts.failed_rules), (0, 1));
    assert!(state_of(&db).contains("a copy of this database archives to this place"), "{}", state_of(&db));
    assert_eq!((all(&db), archived(&db)), (numbers(0..30), moved), "what it knew, and what it has");
    let error = db.adopt_archive("weather").unwrap_err();
    assert!(error.to_string().contains("measurements that may be stored here too"), "{error}");
}

#[test]
fn a_copy_that_was_made_while_the_original_archives_moves_nothing_twice() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    db.collection("weather").unwrap().insert_documents(&[reading(5, 30)]).unwrap();
    let copy = world.on(world.fs.fork());
    // The original goes on under the number that the copy knows too.
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(0..31), 31));
    let beside = copy.open();
    let report = beside.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.counts.failed_rules), (0, 1));
    assert!(state_of(&beside).contains("they would be there twice"), "{}", state_of(&beside));
    assert_eq!((all(&beside), all(&db)), (numbers(0..31), numbers(0..31)));
}

#[test]
fn a_copy_that_has_archived_nothing_since_gives_way() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    drop(db);
    let copy = world.on(world.fs.fork());
    let db = world.open();
    db.collection("weather").unwrap().insert_documents(&[reading(5, 30)]).unwrap();
    let error = || {
        let beside = copy.open();
        beside.adopt_archive("weather").unwrap();
        beside.collection("weather").unwrap().insert_documents(&[reading(6, 31)]).unwrap();
        drop(beside);
        db.sweep().unwrap();
        state_of(&db)
    };
    let told = error();
    assert!(told.contains("a copy of this database"), "{told}");
    db.adopt_archive("weather").unwrap();
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(0..31), 31));
}

#[test]
fn another_database_cannot_take_the_place() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    let other = world.on(SimFs::new(ROOT));
    let foreign = other.open();
    foreign.create_collection("weather", options()).unwrap().insert_documents(&[reading(0, 0)]).unwrap();
    assert_eq!(foreign.sweep().unwrap().counts.deleted_documents, 0);
    assert!(state_of(&foreign).contains("the archive of another database"), "{}", state_of(&foreign));
    assert!(foreign.adopt_archive("weather").is_err());
}

#[test]
fn without_access_to_archives_nothing_is_dropped() {
    let world = World::new(SimStore::new(1, 0));
    drop(filled(&world));
    world.clock.set(at(2 * HOUR));
    let clock: Arc<dyn Clock> = Arc::new(world.clock.clone());
    let db = Database::builder(ROOT).fs(Arc::new(world.fs.clone())).clock(clock).open().unwrap();
    let options = SweepOptions { without_sink: true, ..SweepOptions::default() };
    assert_eq!(db.sweep_with(&options).unwrap().counts.deleted_documents, 0);
    assert!(state_of(&db).contains("without access to archives"), "{}", state_of(&db));
}

#[test]
fn what_is_held_stays_and_a_longer_retention_brings_back_only_what_was_not_moved() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    let hold = HoldOptions { filter: Filter::eq("sensor", Value::from("a")), ..HoldOptions::new("case 42") };
    db.create_hold("case42", "weather", hold).unwrap();
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    assert_eq!((archived(&db), all(&db)), (20, numbers(0..30)));
    let longer = CollectionChange { expire_after_seconds: Some(Some(10 * HOUR)), ..CollectionChange::default() };
    db.modify_collection("weather", &longer, None).unwrap();
    let (here, there) = both(&db).unwrap();
    assert_eq!((here.len(), there.len()), (10, 20));
}

#[test]
fn while_it_is_not_known_what_the_archive_has_nothing_of_it_changes() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(2 * HOUR));
    // The claim takes two requests, the upload one, and the commit asks for the next version and then does not arrive.
    world.store.stop_after(Some(4));
    db.sweep().unwrap();
    let c = db.collection("weather").unwrap();
    let refused = c.delete(&Filter::everything()).unwrap_err();
    assert_eq!(refused.code(), Code::IllegalOperation, "{refused}");
    let longer = CollectionChange { expire_after_seconds: Some(Some(10 * HOUR)), ..CollectionChange::default() };
    assert!(db.modify_collection("weather", &longer, None).is_err());
    let hold = HoldOptions::new("case 42");
    assert!(db.create_hold("case42", "weather", hold).is_err());
    db.compact(Some("weather")).unwrap();
    c.insert_documents(&[reading(7, 30)]).unwrap();
    db.flush().unwrap();
    assert_eq!(all_here(&db), numbers(0..31));
    world.store.stop_after(None);
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(0..31), 31));
    assert_eq!(c.delete(&Filter::everything()).unwrap(), 0);
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

/// What is stored here, without the archive.
fn all_here(db: &Database) -> Vec<i64> {
    let snapshot = db.snapshot().collection("weather").unwrap();
    let mut all = Vec::new();
    let request = ScanRequest { include_hidden: true, ..ScanRequest::default() };
    for unit in snapshot.scan(&request).unwrap() {
        for batch in unit.read().unwrap() {
            all.extend(values(&batch.unwrap()));
        }
    }
    all.sort_unstable();
    all
}

#[test]
fn vacuum_removes_what_no_version_names_and_verify_finds_damage() {
    use ebbtide::ArchivePlaces;
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    let left = format!("{}.parquet", "0".repeat(32));
    world.store.tamper(&left, bytes::Bytes::from_static(b"left over"));
    let place = SimLake::new(&world.store).open("").unwrap();
    assert_eq!(place.vacuum().unwrap(), 0, "it may be part of a commit that is being made");
    world.store.advance(2 * 3_600_000);
    assert_eq!(place.vacuum().unwrap(), 1);
    assert!(!world.store.names().contains(&left));
    assert_eq!(all(&db), numbers(0..30));
    let version = db.snapshot().collection("weather").unwrap().archives()[0].version;
    assert_eq!(place.verify(version.unwrap()).unwrap(), Vec::<String>::new());
    let name = world.store.names().into_iter().find(|name| name.ends_with(".parquet")).unwrap();
    world.store.tamper(&name, bytes::Bytes::from_static(b"something else"));
    assert_eq!(place.verify(version.unwrap()).unwrap(), [format!("{name} is damaged, with 30 measurements")]);
}

#[test]
fn a_log_of_hundreds_of_versions_is_read_from_its_checkpoint() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    world.clock.set(at(100 * HOUR));
    for v in 0..250 {
        c.insert_documents(&[reading(v, v)]).unwrap();
        db.sweep().unwrap();
    }
    drop((c, db));
    let before = world.store.requests();
    let db = world.open();
    assert_eq!(archived(&db), 250);
    let requests = world.store.requests() - before;
    assert!(requests < 60, "{requests}");
    assert_eq!(all(&db), numbers(0..250));
    drop(db);
    // With a damaged one every version is read, as without any.
    let name = format!("_delta_log/{:020}.checkpoint.parquet", 200);
    let damages = [
        (name.as_str(), "not Parquet"),
        (name.as_str(), "PAR1 and no more PAR1"),
        ("_delta_log/_last_checkpoint", "{}"),
    ];
    for (name, content) in damages {
        world.store.tamper(name, bytes::Bytes::from_static(content.as_bytes()));
        assert_eq!(all(&world.open()), numbers(0..250), "{name}: {content}");
    }
    let db = world.open();
    db.collection("weather").unwrap().insert_documents(&[reading(1, 250)]).unwrap();
    db.sweep().unwrap();
    assert_eq!(all(&db), numbers(0..251));
}

#[test]
fn keys_are_not_part_of_a_url() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    for url in ["s3://key:secret@bucket/a", "az://c/a?sig=secret", "https://a", "s3://", "file:///"] {
        let error = db.create_collection("weather", options().expire_into(url)).unwrap_err();
        assert_eq!(error.code(), Code::InvalidOptions);
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
