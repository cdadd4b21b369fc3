//! What is moved to an archive: each measurement is in one of both places at every moment, whatever fails.

use crate::world::{HOUR, OTHER, ROOT, World, at, reading, without_proof};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::error::ArrowError;
use ebbtide::buckets::{times, value_at};
use ebbtide::ttl::{Clock, Code, Filter, Precision, RuleSpec, Timestamp, Value};
use ebbtide::{
    Aggregate, AggregateRequest, ArchivePart, CollectionChange, CollectionOptions, CollectionSnapshot, Database,
    HoldOptions, MetaFilter, Result, ScanRequest, SweepOptions,
};
use ebbtide_lake::sim::{SimLake, SimStore};
use std::sync::Arc;

pub(crate) fn options() -> CollectionOptions {
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR);
    options.expire_into("s3://sim/archive")
}

/// Thirty readings, two minutes apart. After 1 h 50 min most of them have expired.
pub(crate) fn filled(world: &World) -> Database {
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    c.insert_documents(&(0..30).map(|v| reading(v * 120, v)).collect::<Vec<_>>()).unwrap();
    db
}

/// The same in a collection without an archive.
pub(crate) fn filled_without_archive(world: &World) -> Database {
    let db = filled(world);
    let none = CollectionChange { expire_into: Some(None), ..CollectionChange::default() };
    db.modify_collection("weather", &none, None).unwrap();
    db
}

/// An index over a third of the readings, which expire in half the time.
pub(crate) fn index() -> RuleSpec {
    RuleSpec::new("short", HOUR / 2, Filter::eq("sensor", Value::from("a")))
}

/// The same readings in a collection where that index has an archive of its own.
pub(crate) fn filled_with_index(world: &World, of_collection: bool) -> Database {
    let db = world.open();
    let options = if of_collection { options() } else { CollectionOptions { expire_into: None, ..options() } };
    let c = db.create_collection("weather", options).unwrap();
    db.create_rules("weather", vec![index().expire_into(OTHER)]).unwrap();
    c.insert_documents(&(0..30).map(|v| reading(v * 120, v)).collect::<Vec<_>>()).unwrap();
    db
}

pub(crate) fn values(batch: &arrow::array::RecordBatch) -> Vec<i64> {
    let column = batch.column_by_name("v").unwrap();
    let value = |row| match ebbtide::buckets::value_at(column.as_ref(), row) {
        Value::Int(v) => v,
        other => panic!("a reading of {other:?}"),
    };
    (0..batch.num_rows()).map(value).collect()
}

/// What is visible here, and what has expired: in the archive or not yet.
pub(crate) fn both(db: &Database) -> Result<(Vec<i64>, Vec<i64>)> {
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
    assert_eq!(as_collection(&snapshot)?, expired, "what has expired, read as a collection");
    Ok((here, expired))
}

/// What has expired, read by the directories of segments.
fn as_collection(snapshot: &CollectionSnapshot) -> Result<Vec<i64>> {
    let collection = snapshot.archived_collection()?.expect("all files are segments");
    let mut found = Vec::new();
    for unit in collection.scan(&ScanRequest::default())? {
        for batch in unit.read()? {
            found.extend(values(&batch?));
        }
    }
    found.sort_unstable();
    assert_eq!(collection.count()?, found.len() as u64);
    let request = AggregateRequest {
        aggregates: vec![Aggregate::Rows, Aggregate::Sum("v".to_owned())],
        ..AggregateRequest::default()
    };
    let totals = collection.aggregate(&request)?;
    let total = |column: usize| ebbtide::buckets::value_at(totals.column(column).as_ref(), 0);
    assert_eq!(total(0), Value::Int(i64::try_from(found.len()).unwrap()));
    let sum = if found.is_empty() { Value::Null } else { Value::Int(found.iter().sum()) };
    assert_eq!(total(1), sum);
    Ok(found)
}

/// Everything, here and there.
pub(crate) fn all(db: &Database) -> Vec<i64> {
    let (here, expired) = both(db).unwrap();
    let mut all: Vec<i64> = here.into_iter().chain(expired).collect();
    all.sort_unstable();
    all
}

pub(crate) fn archived(db: &Database) -> u64 {
    let snapshot = db.snapshot().collection("weather").unwrap();
    let units = snapshot.archived(&ScanRequest::default()).unwrap().units;
    units.iter().map(|unit| unit.file.rows).sum()
}

pub(crate) fn state_of(db: &Database) -> String {
    db.snapshot().collection("weather").unwrap().rule_infos().unwrap()[0].state.clone()
}

pub(crate) fn numbers(range: std::ops::Range<i64>) -> Vec<i64> {
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
fn an_archive_returns_the_columns_that_are_asked_for_in_their_order() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    // Stored here, expired, and due for the archive.
    db.collection("weather").unwrap().insert_documents(&[reading(1, 30)]).unwrap();
    let snapshot = db.snapshot().collection("weather").unwrap();
    let wanted: [&[&str]; 7] =
        [&["v"], &["sensor"], &["v", "t"], &["t", "v"], &["sensor", "v"], &["v", "sensor", "t"], &[]];
    for columns in wanted {
        let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
        let request = ScanRequest { projection: Some(columns.clone()), ..ScanRequest::default() };
        let mut batches: Vec<RecordBatch> = Vec::new();
        for unit in snapshot.archived(&request).unwrap().units {
            batches.extend(unit.read().unwrap().map(Result::unwrap));
        }
        for unit in snapshot.unarchived(&request).unwrap() {
            batches.extend(unit.unit.read().unwrap().map(Result::unwrap));
        }
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 31, "{columns:?}");
        for batch in &batches {
            let schema = batch.schema();
            assert_eq!(
                schema.fields().iter().map(|field| field.name()).collect::<Vec<_>>(),
                columns.iter().collect::<Vec<_>>()
            );
        }
        if columns.contains(&"v".to_owned()) {
            let mut found: Vec<i64> = batches.iter().flat_map(values).collect();
            found.sort_unstable();
            assert_eq!(found, numbers(0..31), "{columns:?}");
        }
    }
    let request = ScanRequest { projection: Some(vec!["nothing".to_owned()]), ..ScanRequest::default() };
    assert_eq!(snapshot.archived(&request).unwrap_err().code(), Code::BadValue);
}

#[test]
fn each_row_is_in_one_part_of_a_read_also_when_its_values_are_in_memory() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    // The first file has two row groups, the second of them ends in the middle of a page; the other file is small.
    let counts = [140_000, 100];
    for (file, count) in (0..).zip(counts) {
        let first = file * 1_000_000;
        c.insert_documents(&(first..first + count).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
        world.clock.set(at(first + count + 2 * HOUR));
        db.sweep().unwrap();
    }
    let snapshot = db.snapshot().collection("weather").unwrap();
    for projection in [Some(vec!["v".to_owned()]), None, None] {
        let request = ScanRequest { projection, ..ScanRequest::default() };
        for of in [2, 1, 3] {
            let parts = (0..of).map(|number| snapshot.archived(&request).unwrap().part(ArchivePart { number, of }));
            let units = parts.flat_map(|part| part.units);
            let mut found: Vec<i64> =
                units.flat_map(|unit| unit.read().unwrap()).flat_map(|batch| values(&batch.unwrap())).collect();
            found.sort_unstable();
            let expected = (0..).zip(counts).flat_map(|(file, count)| (0..count).map(move |v| file * 1_000_000 + v));
            assert!(found.iter().copied().eq(expected), "{} rows in {of} parts", found.len());
        }
    }
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
pub(crate) struct Having([(Vec<String>, Vec<Value>); 1]);

impl Having {
    fn at(path: &[&str], values: impl IntoIterator<Item = impl Into<Value>>) -> Option<Arc<dyn MetaFilter>> {
        let values = values.into_iter().map(Into::into).collect();
        Some(Arc::new(Having([(path.iter().map(|name| (*name).to_owned()).collect(), values)])))
    }
}

impl MetaFilter for Having {
    fn select(&self, metas: &ArrayRef) -> std::result::Result<BooleanArray, ArrowError> {
        Ok((0..metas.len()).map(|_| Some(true)).collect())
    }

    fn candidates(&self) -> &[(Vec<String>, Vec<Value>)] {
        &self.0
    }
}

#[test]
fn only_pages_that_can_have_the_series_are_fetched() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    // Two hundred series of six hundred readings, in one file.
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
        c.insert_documents(&(0..600).map(reading).collect::<Vec<_>>()).unwrap();
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
    for (meta, times) in [
        (Having::at(&["name"], ["n017"]), 3),
        (Having::at(&["name"], ["n017", "z", "n017"]), 3),
        (Having::at(&[], [site(17)]), 8),
    ] {
        let (all, wanted, files, skipped) = read(meta);
        assert_eq!((wanted, files, skipped), (144, 1, 0));
        assert!(all * times < everything * 2, "{all} rows of {everything} were read");
    }
    assert_eq!(read(Having::at(&["name"], ["z"])), (0, 0, 0, 1));
    assert_eq!(read(Having::at(&["name"], ["a", "z"])), (0, 0, 0, 1));
    assert_eq!(read(Having::at(&["floor"], [4.5])), (0, 0, 0, 1));
    // A value of another kind, or none, says nothing.
    assert_eq!(read(Having::at(&["name"], [Value::Null])).2, 1);
    assert_eq!(read(Having::at(&["name"], [17])).2, 1);
    assert_eq!(read(Having::at(&["floor"], [f64::NAN])).2, 1);
    assert_eq!(read(Having::at(&["name"], [Value::from("z"), Value::Null])).2, 1);
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
    let other = world.another();
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
fn what_changes_between_the_upload_and_the_commit_is_not_moved() {
    let longer = CollectionChange { expire_after_seconds: Some(Some(10 * HOUR)), ..CollectionChange::default() };
    type Act = Box<dyn FnOnce(&Database) -> Result<()> + Send>;
    // What is done, which readings are left, and how many of them the archive has after two more sweeps.
    let cases: [(&str, Act, Vec<i64>, u64); 4] = [
        (
            "a late row",
            Box::new(|db| db.collection("weather")?.insert_documents(&[reading(7, 30)]).map(drop)),
            numbers(0..31),
            31,
        ),
        (
            "a delete",
            Box::new(|db| db.collection("weather")?.delete(&Filter::eq("v", Value::Int(3))).map(drop)),
            (0..30).filter(|v| *v != 3).collect(),
            29,
        ),
        ("a longer life", Box::new(move |db| db.modify_collection("weather", &longer, None)), numbers(0..30), 0),
        ("a hold", Box::new(|db| db.create_hold("case42", "weather", HoldOptions::new("case 42"))), numbers(0..30), 0),
    ];
    for (what, act, left, moved) in cases {
        let world = World::new(SimStore::new(1, 0));
        let db = Arc::new(filled(&world));
        world.clock.set(at(2 * HOUR));
        let acting = db.clone();
        world.store.after_put(".parquet", move || act(&acting).unwrap());
        db.sweep().unwrap();
        let uploaded = world.store.names().iter().filter(|name| name.ends_with(".parquet")).count();
        assert_eq!(
            (all(&db), uploaded as u64),
            (left.clone(), archived(&db).min(1)),
            "{what}: what is not needed is removed"
        );
        for _ in 0..2 {
            db.sweep().unwrap();
        }
        assert_eq!((all(&db), archived(&db)), (left, moved), "{what}");
        assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    }
}

/// What is stored here, without the archive.
pub(crate) fn all_here(db: &Database) -> Vec<i64> {
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
    let left = [left.as_str(), ".7-0.tmp", "_delta_log/.7-12.tmp"];
    let others = ["notes.tmp", ".7-x.tmp", "_delta_log/.tmp"];
    for name in left.iter().chain(&others) {
        world.store.tamper(name, bytes::Bytes::from_static(b"left over"));
    }
    let place = SimLake::new(&world.store).open("").unwrap();
    assert_eq!(place.vacuum().unwrap(), 0, "it may be part of a commit that is being made");
    world.store.advance(2 * 3_600_000);
    assert_eq!(place.vacuum().unwrap(), 3);
    let names = world.store.names();
    assert!(left.iter().all(|name| !names.iter().any(|present| present == name)), "{names:?}");
    assert!(others.iter().all(|name| names.iter().any(|present| present == name)), "{names:?}");
    assert_eq!(all(&db), numbers(0..30));
    let version = db.snapshot().collection("weather").unwrap().archives()[0].version;
    assert_eq!(place.verify(version.unwrap()).unwrap(), Vec::<String>::new());
    let name = world.store.names().into_iter().find(|name| name.ends_with(".parquet")).unwrap();
    world.store.tamper(&name, bytes::Bytes::from_static(b"something else"));
    assert_eq!(place.verify(version.unwrap()).unwrap(), [format!("{name} is damaged, with 30 measurements")]);
}

#[test]
fn an_entry_of_the_log_that_is_empty_cut_off_or_another_one_is_an_error() {
    use ebbtide::ArchivePlaces;
    for is_proved in [true, false] {
        let world = World::new(SimStore::new(1, 0));
        let db = world.open();
        let c = db.create_collection("weather", options().keep_seconds(10 * HOUR)).unwrap();
        for (hour, v) in [(0, 0), (4, 1), (9, 2)] {
            c.insert_documents(&[reading(hour * HOUR, v)]).unwrap();
            world.clock.set(at((hour + 2) * HOUR));
            db.sweep().unwrap();
        }
        let version = db.snapshot().collection("weather").unwrap().archives()[0].version.unwrap();
        drop((c, db));
        let log: Vec<String> = world.store.names().into_iter().filter(|name| name.ends_with(".json")).collect();
        if !is_proved {
            log.iter().for_each(|name| without_proof(&world.store, name));
        }
        // A claim, three files and one that was removed.
        assert_eq!((log.len(), both(&world.open()).unwrap()), (5, (vec![], numbers(1..3))));
        let contents: Vec<bytes::Bytes> = log.iter().map(|name| world.store.content(name).unwrap()).collect();
        for (name, content) in log.iter().zip(&contents) {
            let mut damages = vec![bytes::Bytes::new(), bytes::Bytes::from_static(b"\n")];
            damages.extend(contents.iter().filter(|other| *other != content).cloned());
            if is_proved {
                let first = content.iter().position(|byte| *byte == b'\n').unwrap();
                damages.extend([content.slice(..first), content.slice(..=first)]);
            }
            for damage in damages {
                world.store.tamper(name, damage);
                let error = both(&world.open()).unwrap_err().to_string();
                // Without proofs it may be a later one that does not follow.
                let named = if is_proved { name.as_str() } else { ".json" };
                assert!(error.contains(&format!("{named} is damaged: it")), "{name}, {is_proved}: {error}");
                let faults = SimLake::new(&world.store).open("").unwrap().verify(version).unwrap();
                assert!(faults.len() == 1 && faults[0].contains(&format!("{named} is damaged")), "{faults:?}");
            }
            // Nothing is dropped meanwhile.
            let db = world.open();
            db.sweep().unwrap();
            assert!(state_of(&db).contains("is damaged"), "{}", state_of(&db));
            drop(db);
            world.store.tamper(name, content.clone());
            assert_eq!(both(&world.open()).unwrap(), (vec![], numbers(1..3)));
        }
    }
}

#[test]
fn a_vacuum_that_is_interrupted_at_any_request_removes_nothing_that_a_version_names() {
    use ebbtide::ArchivePlaces;
    for request in 0.. {
        let world = World::new(SimStore::new(1, 0));
        let db = filled(&world);
        world.clock.set(at(2 * HOUR));
        db.sweep().unwrap();
        for left in 0..5 {
            world.store.tamper(&format!("{left:032}.parquet"), bytes::Bytes::from_static(b"left over"));
        }
        let named = world.store.names().len() - 5;
        world.store.advance(2 * 3_600_000);
        let place = SimLake::new(&world.store).open("").unwrap();
        world.store.stop_after(Some(request));
        let is_done = place.vacuum().is_ok();
        world.store.stop_after(None);
        assert_eq!(all(&db), numbers(0..30), "after {request} requests");
        let again = SimLake::new(&world.store).open("").unwrap();
        again.vacuum().unwrap();
        assert_eq!((world.store.names().len(), all(&db)), (named, numbers(0..30)), "after {request} requests");
        if is_done {
            assert!(request > 5, "{request}");
            break;
        }
    }
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
