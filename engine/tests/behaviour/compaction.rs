//! What compaction rewrites, and what it leaves as it is.

use super::watched::Watched;
use super::*;
use ebbtide::ErrorKind;
use ebbtide::fs::Fs;
use ebbtide::ttl::{Code, Filter};

/// A disk whose segments have 40 rows at most.
fn small_segments() -> Sim {
    let mut sim = Sim::new();
    sim.settings.segment_rows_max = 40;
    sim
}

/// Inserts rows of 40 minutes and some sensors; `segment_of` says in which of four segments the row of a minute and sensor is.
fn fill(db: &Database, name: &str, sensors: i64, segment_of: impl Fn(i64, i64) -> i64) {
    let c = db.collection(name).unwrap();
    for segment in 0..4 {
        let all = (0..40).flat_map(|minute| (0..sensors).map(move |sensor| (minute, sensor)));
        let here = all.filter(|(minute, sensor)| segment_of(*minute, *sensor) == segment);
        let rows: Vec<Value> = here
            .map(|(minute, sensor)| reading(minute * 60, &format!("s{sensor}"), minute * sensors + sensor))
            .collect();
        c.insert_documents(&rows).unwrap();
        db.flush().unwrap();
    }
}

/// A collection whose rows are interleaved in four segments or more.
fn shuffled(sim: &Sim, sensors: i64) -> Database {
    let db = sim.open();
    db.create_collection("c", weather()).unwrap();
    fill(&db, "c", sensors, |minute, _| minute % 4);
    db
}

/// The files of a collection, its buckets in them, and its rows.
fn stored(db: &Database) -> (Vec<PathBuf>, u64, Vec<i64>) {
    let snapshot = db.collection("c").unwrap().snapshot().unwrap();
    let buckets = snapshot.segments().iter().map(|segment| segment.buckets).sum();
    let mut files = snapshot.segment_files().unwrap().files;
    files.sort_unstable();
    (files, buckets, numbers_in(&db.snapshot(), "c").unwrap())
}

#[test]
fn compaction_merges_large_segments_whose_rows_are_interleaved_once() {
    // In which of four segments the row of a minute and a sensor is.
    type SegmentOf = fn(i64, i64) -> i64;
    let (shuffled, in_order, by_sensor): (SegmentOf, SegmentOf, SegmentOf) =
        (|minute, _| minute % 4, |minute, _| minute / 10, |_, sensor| sensor);
    // And the buckets of three sensors after compaction.
    let orders = [("shuffled", shuffled, 3), ("in order", in_order, 12), ("by sensor", by_sensor, 3)];
    for (name, segment_of, buckets) in orders {
        let sim = small_segments();
        let db = sim.open();
        db.create_collection("c", weather()).unwrap();
        fill(&db, "c", 3, segment_of);
        let before = stored(&db);
        db.compact(None).unwrap();
        let after = stored(&db);
        assert_eq!((after.1, &after.2), (buckets, &before.2), "{name}");
        assert_eq!(before.0 == after.0, name != "shuffled", "{name}: {before:?} {after:?}");
        db.compact(None).unwrap();
        assert_eq!(stored(&db), after, "{name}: again");
        assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    }
}

#[test]
fn segments_that_lie_between_others_but_not_between_each_other_are_not_merged() {
    let sim = small_segments();
    let db = sim.open();
    let c = db.create_collection("c", weather()).unwrap();
    let rows = |sensor: &str, count: i64, second: i64, first: i64| -> Vec<Value> {
        (0..count).map(|at| reading(at * 60 + second, sensor, first + at)).collect()
    };
    // A fourth of the rows of the last two are between those of the first two. That is less than a fourth of the rows of these.
    for (one, other) in [
        (rows("a", 40, 0, 0), Vec::new()),
        (rows("c", 40, 0, 100), Vec::new()),
        (rows("a", 9, 30, 200), rows("b", 27, 0, 300)),
        (rows("c", 9, 30, 400), rows("d", 27, 0, 500)),
    ] {
        c.insert_documents(&[one, other].concat()).unwrap();
        db.flush().unwrap();
    }
    let before = stored(&db);
    assert_eq!(before.1, 6);
    db.compact(None).unwrap();
    db.compact(None).unwrap();
    assert_eq!(stored(&db), before);
}

#[test]
fn segments_in_order_that_share_an_instant_are_not_opened() {
    let sim = small_segments();
    let db = sim.open();
    let c = db.create_collection("c", weather()).unwrap();
    for segment in 0..4 {
        let rows: Vec<Value> = (0..40).map(|v| reading(segment * 390 + v * 10, "roof", segment * 40 + v)).collect();
        c.insert_documents(&rows).unwrap();
        db.flush().unwrap();
    }
    let before = stored(&db);
    drop((db, c));
    let watched = Watched::new(sim.fs.clone());
    let db = sim.builder().fs(Arc::new(watched.clone())).open().unwrap();
    watched.take_opened();
    db.compact(None).unwrap();
    assert_eq!(watched.take_opened(), Vec::<PathBuf>::new());
    assert_eq!(stored(&db), before);
}

#[test]
fn what_was_deleted_of_interleaved_segments_stays_deleted() {
    let sim = small_segments();
    let db = shuffled(&sim, 6);
    let c = db.collection("c").unwrap();
    c.delete(&Filter::eq("sensor", Value::from("s1"))).unwrap();
    for v in [0, 5, 100, 239] {
        c.delete(&Filter::eq("v", Value::Int(v))).unwrap();
    }
    let before = stored(&db);
    assert_eq!(before.2.len(), 240 - 40 - 4);
    db.compact(None).unwrap();
    let after = stored(&db);
    assert_eq!((after.1, &after.2), (5, &before.2));
    drop((db, c));
    let db = sim.open();
    assert_eq!(stored(&db), after);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn a_snapshot_reads_interleaved_segments_after_they_were_merged() {
    let sim = small_segments();
    let db = shuffled(&sim, 3);
    let before = db.snapshot();
    db.compact(None).unwrap();
    db.collection("c").unwrap().delete(&Filter::everything()).unwrap();
    assert_eq!(numbers_in(&before, "c").unwrap(), (0..120).collect::<Vec<_>>());
    assert_eq!(numbers_in(&db.snapshot(), "c").unwrap(), NOTHING);
}

#[test]
fn interleaved_segments_of_several_rules_are_merged_by_rule() {
    let sim = small_segments();
    let db = shuffled(&sim, 3);
    let short = serde_json::json!({"createIndexes": "c", "indexes": [{"key": {"t": 1}, "name": "short",
        "expireAfterSeconds": 60, "partialFilterExpression": {"sensor": "s1"}}]});
    db.run_command(&short).unwrap();
    let rows = stored(&db).2;
    db.compact(None).unwrap();
    let after = stored(&db);
    assert_eq!((after.1, &after.2), (3, &rows));
    db.compact(None).unwrap();
    assert_eq!(stored(&db), after);
    sim.clock.set(at(DAY));
    let swept = db.sweep().unwrap().counts;
    assert_eq!((swept.deleted_documents, stored(&db).0.len()), (40, after.0.len() - 1), "a file as a whole");
}

#[test]
fn damaged_segments_do_not_keep_others_from_being_merged() {
    let sim = small_segments();
    drop(shuffled(&sim, 4));
    let files = sim.files("seg-");
    assert_eq!(files.len(), 4);
    let length = sim.fs.len(&files[1]).unwrap() as usize;
    // In the data, in the directory, and in the data of two.
    for (damaged, offset) in [(&files[1..2], 8), (&files[1..2], length - 40), (&files[1..3], 8)] {
        let sim = sim.on(sim.fs.fork());
        for file in damaged {
            sim.fs.tamper(file, |bytes| bytes[offset] ^= 1 << 3).unwrap();
        }
        let db = sim.open();
        let error = db.compact(None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(damaged[0].file_name().unwrap().to_str().unwrap()), "{error}");
        let left = sim.files("seg-");
        assert!(damaged.iter().all(|file| left.contains(file)), "what is damaged stays for a repair");
        let snapshot = db.collection("c").unwrap().snapshot().unwrap();
        assert_eq!(left.len(), snapshot.segments().len(), "what was written in vain is removed");
        let buckets: u64 = snapshot.segments().iter().map(|segment| segment.buckets).sum();
        assert_eq!(
            buckets,
            4 * (damaged.len() as u64 + 1),
            "of each sensor, in each damaged segment and in the others"
        );
    }
}

#[test]
fn a_range_of_buckets_ends_between_two_windows_of_a_sensor_too() {
    let sim = small_segments();
    let db = sim.open();
    let c = db.create_collection("c", weather()).unwrap();
    // Four hours of two sensors, twelve rows in each: three buckets fit into a segment.
    for segment in 0..4 {
        let rows = (0..48)
            .filter(|row| row % 4 == segment)
            .flat_map(|row| ["a", "b"].map(|sensor| reading(row * 300, sensor, row * 2 + i64::from(sensor == "b"))));
        c.insert_documents(&rows.collect::<Vec<_>>()).unwrap();
        db.flush().unwrap();
    }
    let before = stored(&db);
    assert_eq!((before.0.len(), before.1), (4, 32));
    db.compact(None).unwrap();
    let after = stored(&db);
    assert_eq!((after.0.len(), after.1, &after.2), (3, 8, &before.2));
    db.compact(None).unwrap();
    assert_eq!(stored(&db), after);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn rows_of_a_bucket_that_is_too_large_for_a_segment_stay_in_several() {
    let sim = small_segments();
    let db = sim.open();
    let c = db.create_collection("c", weather()).unwrap();
    for segment in 0..4 {
        let rows = (0..60).filter(|row| row % 4 == segment).map(|row| reading(row * 60, "roof", row));
        c.insert_documents(&rows.collect::<Vec<_>>()).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(stored(&db).1, 4);
    db.compact(None).unwrap();
    let after = stored(&db);
    assert_eq!((after.1, &after.2), (2, &(0..60).collect()), "thirty rows in each");
    db.compact(None).unwrap();
    assert_eq!(stored(&db), after);
}

#[test]
fn a_full_disk_does_not_keep_segments_that_are_mostly_deleted_from_being_rewritten() {
    let sim = small_segments();
    let db = shuffled(&sim, 16);
    let worn = db.create_collection("worn", weather()).unwrap();
    worn.insert_documents(&(0..40).map(|v| reading(v, "roof", v)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    worn.delete(&Filter::eq("v", Value::Int(0))).unwrap();
    for v in 1..30 {
        worn.delete(&Filter::eq("v", Value::Int(v))).unwrap();
    }
    let before = stored(&db);
    let files_of = |name: &str| db.collection(name).unwrap().snapshot().unwrap().segment_files().unwrap().files;
    let worn_before = files_of("worn");
    sim.fs.set_capacity(Some(sim.fs.used() + 12_000));
    let error = db.compact(None).unwrap_err();
    assert_eq!(error.code(), Code::OutOfDiskSpace, "{error}");
    assert_eq!(stored(&db), before);
    assert_ne!(files_of("worn"), worn_before);
    let named = before.0.len() + files_of("worn").len();
    assert_eq!(sim.files("seg-").len(), named, "what could not be finished is removed");
    sim.fs.set_capacity(None);
    db.compact(None).unwrap();
    assert_eq!(stored(&db).1, 16);
}
