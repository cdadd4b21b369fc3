//! Published tables: what their newest version has is what is visible, less what expires before the next one.

use crate::world::{HOUR, ROOT, World, at, check_files, everything, log_of, random, reading, seeds};
use ebbtide::buckets::{FieldType, Schema, adapt, times, value_at};
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::{Clock, Code, Filter, Ladder, Precision, Rung, Timestamp, Value};
use ebbtide::{ArchivePlaces, CollectionChange, CollectionOptions, Database, RollupRequest, ScanRequest};
use ebbtide_lake::Store;
use ebbtide_lake::sim::{SimLake, SimStore};
use roaring::{RoaringBitmap, RoaringTreemap};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const URL: &str = "s3://sim/table";
/// How far ahead a version with an interval of a minute hides.
const AHEAD: i64 = 60 + 6 + 15;

impl World {
    /// The values in the newest version of the table, read by its log alone.
    fn published(&self) -> Vec<i64> {
        let mut files: BTreeMap<String, serde_json::Value> = BTreeMap::new();
        for actions in log_of(&self.store) {
            for remove in actions.iter().filter_map(|action| action.get("remove")) {
                let gone = files.remove(remove["path"].as_str().unwrap()).unwrap();
                assert_eq!(
                    gone.get("deletionVector"),
                    remove.get("deletionVector"),
                    "a file is its name and its vector"
                );
            }
            for add in actions.iter().filter_map(|action| action.get("add")) {
                assert!(files.insert(add["path"].as_str().unwrap().to_owned(), add.clone()).is_none());
            }
        }
        let place = SimLake::new(&self.store.quiet()).open(URL).unwrap();
        let mut found = Vec::new();
        for (name, add) in &files {
            let left_out = left_out(add);
            let stats: serde_json::Value = serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
            let file = ebbtide::ArchivedFile {
                name: name.clone(),
                bytes: add["size"].as_u64().unwrap(),
                checksum: 0,
                rows: stats["numRecords"].as_u64().unwrap(),
                times: (i64::MIN, i64::MAX),
                bounds: Vec::new(),
                segment: None,
            };
            let schema = ebbtide::buckets::Schema {
                time: "t".to_owned(),
                meta: None,
                meta_type: None,
                precision: ebbtide::ttl::Precision::Ms,
                fields: vec![("v".to_owned(), ebbtide::buckets::FieldType::Int64)],
            };
            let schema = Arc::new(schema);
            let read = everything(schema.clone());
            let mut row = 0;
            for batch in place.read(&file, &read).unwrap() {
                let batch = ebbtide::buckets::adapt(&batch.unwrap(), &schema).unwrap();
                let column = batch.column_by_name("v").unwrap();
                for index in 0..batch.num_rows() {
                    if !left_out.contains(row) {
                        match ebbtide::buckets::value_at(column.as_ref(), index) {
                            Value::Int(v) => found.push(v),
                            other => panic!("a reading of {other:?}"),
                        }
                    }
                    row += 1;
                }
            }
            assert_eq!(u64::from(row), file.rows);
        }
        found.sort_unstable();
        found
    }
}

fn left_out(add: &serde_json::Value) -> RoaringBitmap {
    let Some(vector) = add.get("deletionVector").filter(|vector| !vector.is_null()) else {
        return RoaringBitmap::new();
    };
    let bytes = z85::decode(vector["pathOrInlineDv"].as_str().unwrap()).unwrap();
    let rows = RoaringTreemap::deserialize_from(&bytes[4..]).unwrap();
    assert_eq!(Some(rows.len()), vector["cardinality"].as_u64());
    rows.iter().map(|row| u32::try_from(row).unwrap()).collect()
}

/// A bin: its start, its series, its measurements, and the sum of the readings in it.
type Bin = (i64, String, i64, i64);

fn bins_in(batch: &arrow::array::RecordBatch) -> Vec<Bin> {
    let number = |name: &str, row: usize| match value_at(batch.column_by_name(name).unwrap().as_ref(), row) {
        Value::Int(v) => v,
        Value::Double(v) => v as i64,
        other => panic!("a number of {other:?}"),
    };
    let sensor = |row: usize| match value_at(batch.column_by_name("sensor").unwrap().as_ref(), row) {
        Value::String(text) => text.to_string(),
        other => panic!("a sensor of {other:?}"),
    };
    let bin = |(row, t): (usize, &i64)| (*t, sensor(row), number("measurements", row), number("v_sum", row));
    times(batch).unwrap().iter().enumerate().map(bin).collect()
}

/// What the bins of an hour show at an instant.
fn bins_at(db: &Database, instant: Timestamp) -> Vec<Bin> {
    let snapshot = db.snapshot_at(instant).collection("weather").unwrap();
    let rows = snapshot.rollup(&RollupRequest { width_seconds: HOUR, ..RollupRequest::default() }).unwrap();
    let rows = arrow::compute::concat_batches(rows[0].schema_ref(), &rows).unwrap();
    let schema = bins_schema();
    let sums = rows.column_by_name("v_sum").unwrap();
    let sums = arrow::compute::cast(sums, &arrow::datatypes::DataType::Float64).unwrap();
    let columns: Vec<(&str, arrow::array::ArrayRef)> = vec![
        ("t", rows.column_by_name("t").unwrap().clone()),
        ("sensor", rows.column_by_name("sensor").unwrap().clone()),
        ("measurements", rows.column_by_name("measurements").unwrap().clone()),
        ("v_sum", sums),
    ];
    let rows = adapt(&arrow::array::RecordBatch::try_from_iter(columns).unwrap(), &schema).unwrap();
    let mut bins = bins_in(&rows);
    bins.sort_unstable();
    bins
}

/// Some of the columns of the table of a rung.
fn bins_schema() -> Arc<Schema> {
    Arc::new(Schema {
        time: "t".to_owned(),
        meta: Some("sensor".to_owned()),
        meta_type: Some(FieldType::String),
        precision: Precision::Ms,
        fields: vec![("measurements".to_owned(), FieldType::Int64), ("v_sum".to_owned(), FieldType::Double)],
    })
}

/// The names of the files of a version, and the bins in them.
fn bins_published(world: &World, version: u64) -> (Vec<String>, Vec<Bin>) {
    let place = SimLake::new(&world.store).open(URL).unwrap();
    let files = place.files(version).unwrap();
    let read = everything(bins_schema());
    let mut bins = Vec::new();
    for file in &files {
        for batch in place.read(file, &read).unwrap() {
            bins.extend(bins_in(&adapt(&batch.unwrap(), &bins_schema()).unwrap()));
        }
    }
    bins.sort_unstable();
    (files.into_iter().map(|file| file.name).collect(), bins)
}

#[test]
fn the_table_of_a_rung_has_what_its_bins_show() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR);
    let c = db.create_collection("weather", options).unwrap();
    let rung = |step_seconds, expire_after_seconds| Rung { step_seconds, expire_after_seconds };
    let ladder = Ladder::new(vec![rung(600, Some(3 * HOUR)), rung(HOUR, Some(2000 * HOUR))]);
    db.set_ladder("weather", Some(ladder.clone()), false).unwrap();
    assert_eq!(db.publish_rung("weather", 60, URL, HOUR).unwrap_err().code(), Code::InvalidOptions);
    let mut files = Vec::new();
    let mut published = 0;
    for step in 0..40 {
        world.clock.set(at(step * 50 * HOUR));
        let reading = |v: i64| reading(step * 50 * HOUR - v * 900, v);
        c.insert_documents(&(0..10).map(reading).collect::<Vec<_>>()).unwrap();
        if step % 3 == 2 {
            db.sweep().unwrap();
        }
        let made = match step {
            0 => db.publish_rung("weather", HOUR, URL, HOUR).unwrap(),
            _ => db.publish_rung_now("weather", HOUR).unwrap(),
        };
        let (present, bins) = bins_published(&world, made.version);
        assert_eq!(bins, bins_at(&db, made.hides_before), "step {step}");
        assert_eq!((made.files, made.measurements), (present.len() as u64, bins.len() as u64));
        // Of the parts only the newest is written anew, and the first when it gets an hour older.
        let new = present.iter().filter(|file| !files.contains(*file)).count();
        assert!(new <= 3 && present.len() >= files.len().min(2), "step {step}: {new} of {}", present.len());
        (files, published) = (present, bins.len());
    }
    assert!(files.len() > 5 && published > 40, "{} files", files.len());
    let told = db.publications().remove(0);
    assert_eq!((told.collection.as_str(), told.rung, told.every_seconds), ("weather", Some(HOUR), HOUR));
    let last = told.last.clone();
    // A deleted series leaves the table.
    c.delete(&Filter::everything()).unwrap();
    drop((c, db));
    let db = world.open();
    assert_eq!(db.publications()[0].last, last);
    let made = db.publish_rung_now("weather", HOUR).unwrap();
    assert_eq!(bins_published(&world, made.version).1, bins_at(&db, made.hides_before));
    assert!(db.publish("weather", URL, 60).is_err(), "each table needs a place of its own");
    // It goes with its rung.
    let shorter = Ladder::new(ladder.rungs[..1].to_vec());
    db.set_ladder("weather", Some(shorter), true).unwrap();
    assert_eq!(db.publications(), []);
    assert!(db.publish_rung_now("weather", HOUR).is_err());
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

/// What is visible at an instant.
fn visible(db: &Database, instant: Timestamp) -> Vec<i64> {
    let snapshot = db.snapshot_at(instant).collection("weather").unwrap();
    if snapshot.schema().fields.is_empty() {
        return Vec::new();
    }
    let request = ScanRequest { projection: Some(vec!["v".to_owned()]), ..ScanRequest::default() };
    let mut found = Vec::new();
    for unit in snapshot.scan(&request).unwrap() {
        for batch in unit.read().unwrap() {
            let batch = batch.unwrap();
            for row in 0..batch.num_rows() {
                match ebbtide::buckets::value_at(batch.column(0).as_ref(), row) {
                    Value::Int(v) => found.push(v),
                    other => panic!("a reading of {other:?}"),
                }
            }
        }
    }
    found.sort_unstable();
    found
}

fn weather(db: &Database) -> ebbtide::Collection {
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR);
    db.create_collection("weather", options).unwrap()
}

#[test]
fn a_version_has_what_is_visible_until_the_next_one() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = weather(&db);
    c.insert_documents(&(0..300).map(|v| reading(v * 10, v)).collect::<Vec<_>>()).unwrap();
    world.clock.set(at(3000));
    let first = db.publish("weather", URL, 60).unwrap();
    assert_eq!((first.measurements, first.version), (300, 0));
    assert_eq!(world.published(), (0..300).collect::<Vec<_>>());
    // Some have expired, and more will before the next version.
    let files = world.store.names().len();
    world.clock.set(at(HOUR + 500));
    db.publish_now("weather").unwrap();
    assert_eq!(world.published(), visible(&db, at(HOUR + 500 + AHEAD)));
    assert!(visible(&db, at(HOUR + 500)).len() > world.published().len());
    assert_eq!(world.store.names().len(), files + 1, "rows are left out without writing the file anew");
    // What is deleted is in no file of the table.
    c.delete(&Filter::eq("v", Value::Int(250))).unwrap();
    db.publish_now("weather").unwrap();
    assert!(!world.published().contains(&250));
    world.store.advance(2 * 3_600_000);
    db.publish_now("weather").unwrap();
    let is_file = |name: &&String| name.ends_with(".parquet") && !name.starts_with("_delta_log");
    let parquet = world.store.names().iter().filter(is_file).count();
    assert_eq!(parquet, db.publications()[0].last.as_ref().map_or(0, |last| usize::try_from(last.files).unwrap()));
    // A longer retention brings back what was not dropped.
    let longer = CollectionChange { expire_after_seconds: Some(Some(10 * HOUR)), ..CollectionChange::default() };
    db.modify_collection("weather", &longer, None).unwrap();
    db.publish_now("weather").unwrap();
    assert_eq!(world.published(), (0..300).filter(|v| *v != 250).collect::<Vec<_>>());
    db.unpublish("weather").unwrap();
    assert!(db.publish_now("weather").is_err());
}

/// A table with two versions, and a database in which there is more to publish.
fn changed(world: &World) -> Database {
    let db = world.open();
    let c = weather(&db);
    db.publish("weather", URL, 60).unwrap();
    // With a checkpoint that is older than an hour.
    world.store.advance(2 * 3_600_000);
    c.insert_documents(&(0..30).map(|v| reading(v * 120, v)).collect::<Vec<_>>()).unwrap();
    db.publish_now("weather").unwrap();
    assert!(world.store.names().iter().any(|name| name.ends_with(".checkpoint.parquet")));
    c.delete(&Filter::eq("v", Value::Int(20))).unwrap();
    c.insert_documents(&(30..40).map(|v| reading(v * 120, v)).collect::<Vec<_>>()).unwrap();
    world.clock.set(at(HOUR + 500));
    // Files that no version names are removed too, and the beginning of the log.
    world.store.advance(2 * 3_600_000);
    db
}

#[test]
fn a_crash_at_any_step_of_a_version_leaves_a_whole_version() {
    let now = at(HOUR + 500 + AHEAD);
    let world = World::new(SimStore::new(1, 0));
    let db = changed(&world);
    let (steps, requests) = (world.fs.mutating_ops(), world.store.requests());
    let before = world.published();
    db.publish_now("weather").unwrap();
    let after = world.published();
    assert_eq!(after, visible(&db, now));
    assert_ne!(before, after);
    let (steps, requests) = (world.fs.mutating_ops() - steps, world.store.requests() - requests);
    assert!(steps > 1 && requests > 2, "{steps} {requests}");
    let of_the_disk = (0..steps).map(|step| (Some(step), None));
    for (step, request) in of_the_disk.chain((0..requests).map(|request| (None, Some(request)))) {
        for variant in [Variant::V0, Variant::V1, Variant::V3] {
            let world = World::new(SimStore::new(1, 0));
            let db = changed(&world);
            if let Some(step) = step {
                world.fs.stop_after(step);
            }
            world.store.stop_after(request);
            drop(db.publish_now("weather"));
            world.store.stop_after(None);
            let published = world.published();
            assert!(published == before || published == after, "{step:?} {request:?}: {published:?}");
            let world = world.on(world.fs.crash(variant, step.unwrap_or(0)));
            drop(db);
            let db = world.open();
            db.publish_now("weather").unwrap();
            assert_eq!(world.published(), visible(&db, now), "{step:?} {request:?}");
            check_files(&world.store, &format!("{step:?} {request:?}"));
            // If the checkpoint of the new version is there, an hour later.
            world.store.advance(2 * 3_600_000);
            db.publish_now("weather").unwrap();
            check_files(&world.store, &format!("{step:?} {request:?}"));
            assert!(!entries(&world.store).contains(&0), "{step:?} {request:?}");
        }
    }
}

/// The versions that have an entry in the log.
fn entries(store: &SimStore) -> Vec<u64> {
    let version = |name: &String| name.strip_prefix("_delta_log/")?.strip_suffix(".json")?.parse().ok();
    store.names().iter().filter_map(version).collect()
}

/// Publishes what is inserted each ten minutes, for some hours.
fn published_for(world: &World, db: &Database, hours: std::ops::Range<i64>) {
    let c = db.collection("weather").unwrap();
    for step in hours.start * 6..hours.end * 6 {
        world.clock.set(at(step * 600));
        world.store.advance(600_000);
        c.insert_documents(&(0..3).map(|v| reading(step * 600 - v, step * 3 + v)).collect::<Vec<_>>()).unwrap();
        db.publish_now("weather").unwrap();
        assert_eq!(world.published(), visible(db, at(step * 600 + AHEAD)), "step {step}");
        check_files(&world.store, &format!("step {step}"));
    }
}

#[test]
fn the_beginning_of_a_log_leaves_the_store() {
    let world = World::new(SimStore::new(1, 0));
    let mut db = world.open();
    weather(&db);
    db.publish("weather", URL, 60).unwrap();
    for hours in [0..5, 5..10, 10..15] {
        published_for(&world, &db, hours.clone());
        // The time of a file's first or last row is part of its entry.
        let is_named = |hour: i64| {
            let text = format!("2024-01-01T{hour:02}:");
            let has = |name: &String| {
                let content = world.store.content(name).unwrap();
                content.windows(text.len()).any(|part| part == text.as_bytes())
            };
            world.store.names().iter().filter(|name| name.starts_with("_delta_log")).any(has)
        };
        assert_eq!((is_named(hours.end - 5), is_named(hours.end - 1)), (false, true));
        let entries = entries(&world.store);
        assert!(entries.len() <= 15 && entries.is_sorted_by(|a, b| a + 1 == *b), "{entries:?}");
        // Another process finds the rest of it.
        drop(db);
        db = world.open();
    }
    let newest = db.publications()[0].last.clone().unwrap();
    assert_eq!(newest.version, 90);

    // A pointer that arrived late names a checkpoint that is gone.
    drop(db);
    let pointer = "_delta_log/_last_checkpoint";
    for content in ["{\"version\":7,\"size\":9}", "{}"] {
        world.store.tamper(pointer, bytes::Bytes::copy_from_slice(content.as_bytes()));
        assert_eq!(world.open().publications()[0].last.as_ref(), Some(&newest));
    }
    let names = world.store.names();
    for name in names.iter().filter(|name| name.ends_with(".checkpoint.parquet")) {
        world.store.tamper(name, bytes::Bytes::from_static(b"PAR1 and no more PAR1"));
    }
    let told = world.open().publish_now("weather").unwrap_err().to_string();
    assert!(told.contains("no checkpoint can be read"), "{told}");
    assert_eq!(world.store.names(), names);
}

#[test]
fn a_log_that_ends_before_its_newest_checkpoint_is_an_error() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    weather(&db);
    db.publish("weather", URL, 60).unwrap();
    world.store.tamper("_delta_log/_last_checkpoint", bytes::Bytes::from_static(b"{\"version\":7,\"size\":9}"));
    let told = db.publish_now("weather").unwrap_err().to_string();
    assert!(told.contains("entries of its log are missing"), "{told}");
    assert_eq!(entries(&world.store), [0]);
}

#[test]
fn a_long_log_leaves_the_store_with_several_versions() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = weather(&db);
    db.publish("weather", URL, 60).unwrap();
    for v in 0..250 {
        c.insert_documents(&[reading(v, v)]).unwrap();
        db.publish_now("weather").unwrap();
    }
    assert_eq!(entries(&world.store).len(), 251);
    world.store.advance(2 * 3_600_000);
    let left: Vec<usize> = (0..4)
        .map(|_| {
            db.publish_now("weather").unwrap();
            check_files(&world.store, "while it leaves");
            assert_eq!(world.published(), (0..250).collect::<Vec<_>>());
            entries(&world.store).len()
        })
        .collect();
    // Up to the checkpoint of version 200, with which an older one goes.
    assert_eq!(left, [251 + 1 - 99, 251 + 2 - 199, 251 + 3 - 200, 251 + 4 - 200]);
}

/// A database that has published for an hour, and an open copy of its folder.
fn with_a_copy(world: &World) -> (Database, Database) {
    let db = world.open();
    weather(&db);
    db.publish("weather", URL, 60).unwrap();
    published_for(world, &db, 0..1);
    let copy = world.on(world.fs.fork()).open();
    (db, copy)
}

#[test]
fn a_copy_that_slept_before_it_looked_for_leftovers_removes_no_file_of_the_table() {
    let world = World::new(SimStore::new(1, 0));
    let (db, asleep) = with_a_copy(&world);
    let meanwhile = world.on(world.fs.fork());
    drop(db);
    let db = meanwhile.open();
    let store = world.store.clone();
    // It has taken the table over, and sleeps before it looks for leftovers.
    world.store.after_put("view.duckdb.sql", move || {
        db.publish("weather", URL, 60).unwrap();
        published_for(&meanwhile, &db, 1..6);
    });
    asleep.publish("weather", URL, 60).unwrap();
    assert!(check_files(&store, "after its return") > 0);
    assert!(entries(&store)[0] > 10);
}

#[test]
fn a_copy_that_slept_while_the_beginning_of_the_log_left_the_store_adds_nothing_there() {
    let world = World::new(SimStore::new(1, 0));
    let (db, asleep) = with_a_copy(&world);
    asleep.publish("weather", URL, 60).unwrap();
    db.publish("weather", URL, 60).unwrap();
    published_for(&world, &db, 1..6);
    let before = (world.store.names(), entries(&world.store));
    assert!(before.1[0] > 10, "{before:?}");
    let told = asleep.publish_now("weather").unwrap_err().to_string();
    assert!(told.contains("a copy of this database publishes to this place"), "{told}");
    assert_eq!(world.store.names(), before.0);
    published_for(&world, &db, 6..7);
    // If it is told to, it continues after the newest version.
    let made = asleep.publish("weather", URL, 60).unwrap();
    assert_eq!(entries(&world.store).last(), Some(&made.version));
    assert!(made.version > *before.1.last().unwrap());
}

#[test]
fn a_version_that_is_made_where_the_log_has_left_the_store_is_no_part_of_the_table() {
    let world = World::new(SimStore::new(1, 0));
    let (db, asleep) = with_a_copy(&world);
    asleep.publish("weather", URL, 60).unwrap();
    asleep.collection("weather").unwrap().insert_documents(&[reading(3600, -1)]).unwrap();
    // It has read the log and stored a file, and sleeps before it makes the version.
    let store = world.store.clone();
    let meanwhile = world.on(world.fs.fork());
    drop(db);
    let db = meanwhile.open();
    let others = Arc::new(Mutex::new(None));
    let to = others.clone();
    world.store.after_put(".parquet", move || {
        db.publish("weather", URL, 60).unwrap();
        published_for(&meanwhile, &db, 1..6);
        *to.lock().unwrap() = Some((db, meanwhile));
    });
    let told = asleep.publish_now("weather").unwrap_err().to_string();
    assert!(told.contains("a copy of this database publishes to this place"), "{told}");
    // It is no part of the table, and goes with what is before the next checkpoint.
    let found = entries(&store);
    assert!(found[0] < 10 && found[1] > 10, "{found:?}");
    check_files(&store, "after its return");
    let (db, meanwhile) = others.lock().unwrap().take().unwrap();
    published_for(&meanwhile, &db, 6..8);
    let found = entries(&store);
    assert!(found[0] > 10 && found.is_sorted_by(|a, b| a + 1 == *b), "{found:?}");
}

#[test]
fn a_clock_that_jumps_while_a_table_is_published_removes_no_file_and_its_return_brings_the_rows_back() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    weather(&db).insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    world.clock.set(at(100));
    assert_eq!(db.sweep().unwrap().held, None);
    db.publish("weather", URL, 60).unwrap();
    let files =
        |world: &World| world.store.names().into_iter().filter(|name| name.ends_with(".parquet")).collect::<Vec<_>>();
    let before = files(&world);
    let wrong = at(1000 * 24 * HOUR);
    world.clock.jump(wrong);
    for _ in 0..3 {
        world.store.advance(2 * 3_600_000);
        db.publish_now("weather").unwrap();
        assert!(db.sweep().unwrap().held.is_some());
        assert_eq!(world.published(), visible(&db, wrong), "as queries at this time");
        assert!(before.iter().all(|file| files(&world).contains(file)));
    }
    world.clock.jump(at(200));
    assert_eq!(db.sweep().unwrap().held, None);
    db.publish_now("weather").unwrap();
    assert_eq!(world.published(), (0..30).collect::<Vec<_>>());

    // It jumps while a file is uploaded: the version has what was visible when it was begun.
    db.collection("weather").unwrap().insert_documents(&[reading(200, 30)]).unwrap();
    let clock = world.clock.clone();
    world.store.after_put(".parquet", move || clock.jump(wrong));
    db.publish_now("weather").unwrap();
    assert_eq!(world.published(), (0..31).collect::<Vec<_>>());
    let before = files(&world);
    world.store.advance(2 * 3_600_000);
    db.publish_now("weather").unwrap();
    assert!(db.sweep().unwrap().held.is_some());
    assert!(before.iter().all(|file| files(&world).contains(file)));
    world.clock.jump(at(300));
    assert_eq!(db.sweep().unwrap().held, None);
    db.publish_now("weather").unwrap();
    assert_eq!(world.published(), (0..31).collect::<Vec<_>>());
}

#[test]
fn a_store_that_is_away_for_a_day_costs_the_table_nothing_but_lag() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = weather(&db);
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    db.publish("weather", URL, 60).unwrap();
    let before = world.published();
    world.store.set_away(true);
    for hour in 1..=24 {
        world.clock.set(at(hour * HOUR));
        world.store.advance(3_600_000);
        c.insert_documents(&[reading(hour * HOUR, 30 + hour)]).unwrap();
        db.compact(None).unwrap();
        db.sweep().unwrap();
        assert_eq!(db.publish_now("weather").unwrap_err().code(), Code::HostUnreachable);
        assert_eq!(world.published(), before);
    }
    world.store.set_away(false);
    db.publish_now("weather").unwrap();
    assert_eq!(world.published(), visible(&db, at(24 * HOUR + AHEAD)));
    check_files(&world.store, "after a day");
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn nothing_is_written_while_nothing_changes_and_nothing_expires() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", CollectionOptions::new("t").meta_field("sensor")).unwrap();
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    assert_eq!(db.publish("weather", URL, 60).unwrap().version, 0);
    assert_eq!(db.publish_now("weather").unwrap().version, 0);
    c.insert_documents(&[reading(5, 30)]).unwrap();
    assert_eq!(db.publish_now("weather").unwrap().version, 1);
    assert_eq!(world.published(), (0..31).collect::<Vec<_>>());
}

#[test]
fn another_process_tells_the_newest_version_of_the_table() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR);
    let c = db.create_collection("weather", options).unwrap();
    db.publish("weather", URL, 60).unwrap();
    let other = || {
        let clock: Arc<dyn Clock> = Arc::new(world.clock.clone());
        let builder = Database::builder(ROOT).fs(Arc::new(world.fs.clone())).clock(clock).read_only();
        builder.archives(Arc::new(SimLake::new(&world.store))).open().unwrap()
    };
    // The hundredth version is in a checkpoint; of some, rows are left out.
    for step in 0..102 {
        world.clock.set(at(step * 60));
        world.store.advance(60_000);
        c.insert_documents(&[reading(step * 60, step), reading(step * 60 - 3000, step)]).unwrap();
        let made = db.publish_now("weather").unwrap();
        if [0, 70, 99, 101].contains(&step) {
            let told = other().publications().remove(0);
            assert_eq!((told.last.as_ref(), &told.failed), (Some(&made), &None), "{step}");
            assert_eq!(db.publications().remove(0).last, told.last);
            assert_eq!(usize::try_from(made.measurements).unwrap(), world.published().len());
            let made_at = made.made_at.unwrap();
            assert_eq!(made_at, Timestamp::from_millis(world.store.now()));
        }
    }
    world.store.set_away(true);
    let told = other().publications().remove(0);
    assert_eq!(told.last, None);
    assert_eq!(told.failed.as_deref(), Some("the table cannot be read: the store is away"));
    // This one knows what it has made.
    assert!(db.publications()[0].last.is_some());
}

#[test]
fn a_place_that_is_not_ours_is_refused_and_nothing_changes() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    weather(&db);
    db.create_collection("other", CollectionOptions::new("t")).unwrap();
    db.publish("weather", URL, 60).unwrap();
    assert!(db.publish("other", URL, 60).unwrap_err().to_string().contains("a place of its own"));
    for (url, every) in [("ftp://x/y", 60), ("s3://key@x/y", 60), ("s3://x/y", 0), ("s3://x/y", 1_000_000)] {
        assert!(db.publish("other", url, every).is_err());
    }
    let stranger = world.another();
    let beside = stranger.open();
    weather(&beside);
    let error = beside.publish("weather", URL, 60).unwrap_err();
    assert!(error.to_string().contains("another database"), "{error}");
    assert_eq!(beside.publications(), []);
    world.store.set_away(true);
    assert!(db.publish_now("weather").is_err());
    assert!(db.publications()[0].failed.is_some());
    // Neither a new place nor another interval is kept, nor is the number forgotten under which the table is owned.
    assert!(db.publish("weather", URL, 120).is_err());
    assert!(db.publish("weather", "s3://sim/elsewhere", 60).is_err());
    assert_eq!((db.publications()[0].url.as_str(), db.publications()[0].every_seconds), (URL, 60));
    world.store.set_away(false);
    db.publish_now("weather").unwrap();
    assert!(db.publications()[0].failed.is_none());
}

#[test]
fn of_two_copies_the_one_that_is_told_to_goes_on() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = weather(&db);
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    db.publish("weather", URL, 60).unwrap();
    drop((c, db));
    let copy = world.on(world.fs.fork());
    let (db, beside) = (world.open(), copy.open());
    let (c, d) = (db.collection("weather").unwrap(), beside.collection("weather").unwrap());
    c.insert_documents(&[reading(1, 30)]).unwrap();
    d.insert_documents(&[reading(1, 31)]).unwrap();
    beside.publish_now("weather").unwrap();
    assert!(db.publish_now("weather").unwrap_err().to_string().contains("a copy of this database"));
    db.publish("weather", URL, 60).unwrap();
    assert_eq!(world.published(), (0..31).collect::<Vec<_>>());
    assert!(beside.publish_now("weather").is_err());
    beside.publish("weather", URL, 60).unwrap();
    assert_eq!(world.published(), (0..30).chain([31]).collect::<Vec<_>>());
}

#[test]
fn a_version_whose_request_arrives_after_the_next_one_has_no_effect() {
    let retained_for = |db: &Database, e: Option<i64>| {
        let change = CollectionChange { expire_after_seconds: Some(e), ..CollectionChange::default() };
        db.modify_collection("weather", &change, None).unwrap();
    };
    let mut failed = 0;
    for seed in 0..60 {
        let world = World::new(SimStore::new(seed, 0));
        let db = world.open();
        let c = weather(&db);
        c.insert_documents(&(0..10).map(|v| reading(v * 60, v)).collect::<Vec<_>>()).unwrap();
        db.publish("weather", URL, 60).unwrap();
        // A version that hides some of it fails, and then everything is visible again.
        world.clock.set(at(900));
        retained_for(&db, Some(600));
        world.store.fail_one_in(3);
        failed += i32::from(db.publish_now("weather").is_err());
        world.store.fail_one_in(0);
        retained_for(&db, None);
        db.publish_now("weather").unwrap();
        world.store.settle();
        assert_eq!(world.published(), (0..10).collect::<Vec<_>>(), "seed {seed}");
    }
    assert!(failed > 20, "{failed}");
}

#[test]
fn random_runs_of_inserts_deletes_rules_sweeps_crashes_and_lost_requests_publish_what_is_visible() {
    let mut older = 0;
    // One takes as long as four over archives.
    for seed in seeds(1600, 16) {
        let mut world = World::new(SimStore::new(seed, if seed % 2 == 0 { 0 } else { 5 }));
        let mut db = world.open();
        weather(&db);
        let mut next = random(seed);
        let mut inserted = 0;
        drop(db.publish("weather", URL, 60));
        for round in 0..12 {
            let now = round * 600;
            world.clock.set(at(now));
            let c = db.collection("weather").unwrap();
            match next(9) {
                0..=2 => {
                    let rows: Vec<Value> =
                        (0..1 + next(20)).map(|v| reading((now - next(4000)).max(0), inserted + v)).collect();
                    inserted += i64::try_from(rows.len()).unwrap();
                    c.insert_documents(&rows).unwrap();
                }
                3 => drop(c.delete(&Filter::eq("v", Value::Int(next(inserted + 1)))).unwrap()),
                4 => {
                    let e = [None, Some(600), Some(HOUR), Some(3 * HOUR)][usize::try_from(next(4)).unwrap()];
                    let change = CollectionChange { expire_after_seconds: Some(e), ..CollectionChange::default() };
                    db.modify_collection("weather", &change, None).unwrap();
                }
                5 => drop(db.sweep().unwrap()),
                6 => db.compact(Some("weather")).unwrap(),
                7 => {
                    let fs = world.fs.crash(Variant::V0, seed);
                    drop((c, db));
                    world = world.on(fs);
                    db = world.open();
                }
                // More than an hour, or less.
                _ => {
                    world.store.settle();
                    world.store.advance([3_700_000, 1_500_000][usize::try_from(next(2)).unwrap()]);
                }
            }
            if db.publications().is_empty() {
                drop(db.publish("weather", URL, 60));
            } else {
                drop(db.publish_now("weather"));
            }
            older += check_files(&world.store, &format!("seed {seed}, round {round}"));
            let is_made = db.publications().first().is_some_and(|p| p.last.is_some() && p.failed.is_none());
            if is_made {
                assert_eq!(world.published(), visible(&db, at(now + AHEAD)), "seed {seed}, round {round}");
            }
        }
        world.store.fail_one_in(0);
        world.store.settle();
        let now = 12 * 600;
        world.clock.set(at(now));
        db.publish("weather", URL, 60).unwrap();
        assert_eq!(world.published(), visible(&db, at(now + AHEAD)), "seed {seed}");
        assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    }
    assert!(older > 0 || seeds(1600, 16).count() < 50, "no run had a file of an older version");
}
