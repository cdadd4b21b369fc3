//! Ladders: what becomes of bins beside everything else that a collection can have.

use super::*;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::{Code, Comparison, Filter, Ladder, Rung};
use ebbtide::{CollectionChange, ExpiredBucket, HoldOptions, RepairMode, RollupRequest, SinkError};

const HOUR: i64 = 3600;

fn rung(step_seconds: i64, expire_after_seconds: Option<i64>) -> Rung {
    Rung { step_seconds, expire_after_seconds }
}

/// Minutes for ever, hours for ever.
fn ladder() -> Ladder {
    Ladder::new(vec![rung(60, None), rung(HOUR, None)])
}

/// A bin: its start in seconds, its sensor, how many measurements, and the sum of a field.
type Bin = (i64, String, i64, Option<i64>);

fn bins_of(snapshot: &Snapshot, name: &str, width: i64, field: &str) -> Vec<Bin> {
    use arrow::array::{Array, AsArray};
    let snapshot = snapshot.collection(name).unwrap();
    let batches = snapshot.rollup(&RollupRequest { width_seconds: width, ..RollupRequest::default() }).unwrap();
    let batch = concat_batches(batches[0].schema_ref(), &batches).unwrap();
    let value = |name: &str, row: usize| ebbtide::buckets::value_at(batch.column_by_name(name).unwrap().as_ref(), row);
    let sums = batch.column_by_name(&format!("{field}_sum"));
    (0..batch.num_rows())
        .map(|row| {
            let Value::Date(start) = value("t", row) else { panic!("no start") };
            let Value::String(sensor) = value("sensor", row) else { panic!("no sensor") };
            let Value::Int(count) = value("measurements", row) else { panic!("no count") };
            let sum = sums.and_then(|sums| {
                let sums = sums.as_primitive_opt::<arrow::datatypes::Decimal128Type>()?;
                sums.is_valid(row).then(|| i64::try_from(sums.value(row)).unwrap())
            });
            let start = i64::try_from((start.nanos() - at(0).nanos()) / 1_000_000_000).unwrap();
            (start, sensor, count, sum)
        })
        .collect()
}

fn bins(db: &Database, width: i64) -> Vec<Bin> {
    bins_of(&db.snapshot(), "weather", width, "v")
}

fn bin(start: i64, sensor: &str, count: i64, sum: i64) -> Bin {
    (start, sensor.to_owned(), count, Some(sum))
}

/// Readings a second apart in three minutes, of which nothing lives longer than a minute.
fn three_minutes(sim: &Sim, options: CollectionOptions) -> (Database, Collection) {
    let db = sim.open();
    let collection = db.create_collection("weather", options.expire_after_seconds(60).span_seconds(60)).unwrap();
    collection.insert_documents(&readings(0..180)).unwrap();
    (db, collection)
}

/// The bins of those, by minute.
fn of_three_minutes() -> Vec<Bin> {
    vec![bin(0, "roof", 60, 1770), bin(60, "roof", 60, 5370), bin(120, "roof", 60, 8970)]
}

fn decayed(sim: &Sim) -> (Database, Collection) {
    let (db, collection) = three_minutes(sim, weather().ladder(ladder()));
    sim.clock.set(at(HOUR));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 180);
    assert_eq!(collection.snapshot().unwrap().bucket_count().unwrap(), 0);
    (db, collection)
}

#[test]
fn bins_stay_when_their_measurements_go_also_after_a_power_cut() {
    let sim = Sim::new();
    let (db, _) = decayed(&sim);
    assert_eq!(bins(&db, 60), of_three_minutes());
    assert_eq!(bins(&db, HOUR), [bin(0, "roof", 180, 16_110)]);
    assert_eq!(bins(&db, 120), [bin(0, "roof", 120, 7140), bin(120, "roof", 60, 8970)], "a multiple of a rung");
    drop(db);
    for disk in [sim.on(sim.fs.crash(Variant::V0, 0)), sim] {
        let db = disk.open();
        assert_eq!(bins(&db, 60), of_three_minutes());
        assert_eq!(db.collections(), ["weather"], "rungs are no collections");
        assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    }
}

#[test]
fn many_bins_are_shown_in_order_whatever_made_them() {
    use arrow::array::{Int64Array, StringViewArray, TimestampMillisecondArray};
    let sim = Sim::new();
    let (sensors, minutes) = (10, 4_000);
    let db = sim.open();
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(60);
    let collection = db.create_collection("weather", options).unwrap();
    db.set_ladder("weather", Some(ladder()), false).unwrap();
    let rows = || (0..minutes).flat_map(|minute| (0..sensors).map(move |sensor| (minute, sensor)));
    let millis = at(0).nanos() / 1_000_000;
    let times = rows().map(|(minute, _)| i64::try_from(millis).unwrap() + i64::from(minute) * 60_000);
    let batch = RecordBatch::try_from_iter([
        ("t", Arc::new(TimestampMillisecondArray::from_iter_values(times)) as ArrayRef),
        ("sensor", Arc::new(rows().map(|(_, sensor)| Some(format!("s{sensor}"))).collect::<StringViewArray>())),
        ("v", Arc::new(rows().map(|(minute, sensor)| Some(i64::from(minute * sensor))).collect::<Int64Array>())),
    ])
    .unwrap();
    collection.insert(&batch).unwrap();
    sim.clock.set(at(i64::from(minutes) * 60 + HOUR));
    db.sweep().unwrap();
    let expected: Vec<Bin> = (0..sensors)
        .flat_map(|sensor| (0..minutes).map(move |minute| (minute, sensor)))
        .map(|(minute, sensor)| bin(i64::from(minute) * 60, &format!("s{sensor}"), 1, i64::from(minute * sensor)))
        .collect();
    assert!(bins(&db, 60) == expected);
}

#[test]
fn a_wrong_width_names_the_rungs() {
    let sim = Sim::new();
    let (db, _) = decayed(&sim);
    let snapshot = db.snapshot().collection("weather").unwrap();
    let error = snapshot.rollup(&RollupRequest { width_seconds: 90, ..RollupRequest::default() }).unwrap_err();
    assert_eq!(error.code(), Code::BadValue);
    assert!(error.to_string().contains("60 s, 3600 s"), "{error}");
}

#[test]
fn late_measurements_count_at_once_and_after_they_decayed() {
    let sim = Sim::new();
    let (db, c) = decayed(&sim);
    c.insert_documents(&[reading(5, "roof", 1000), reading(5, "cellar", 7)]).unwrap();
    let expected = vec![bin(0, "cellar", 1, 7), bin(0, "roof", 181, 17_110)];
    assert_eq!(bins(&db, HOUR), expected);
    assert_eq!(numbers(&db), NOTHING, "they are hidden");
    for _ in 0..2 {
        db.sweep().unwrap();
        db.compact(None).unwrap();
        assert_eq!(bins(&db, HOUR), expected);
    }
    assert_eq!(db.snapshot().ladders().unwrap().iter().map(|rung| rung.bins).collect::<Vec<_>>(), [4, 2]);
}

#[test]
fn a_rung_goes_by_its_own_life_and_its_files_with_it() {
    let sim = Sim::new();
    let (db, c) = three_minutes(&sim, weather().ladder(Ladder::new(vec![rung(60, Some(HOUR)), rung(HOUR, Some(DAY))])));
    sim.clock.set(at(HOUR));
    db.sweep().unwrap();
    let infos = db.snapshot().ladders().unwrap();
    assert_eq!((infos[0].bins, infos[0].next_expiry), (3, Some(at(180 + HOUR))));
    assert_eq!((infos[0].first_bin, infos[0].last_bin), (Some(at(0)), Some(at(120))));
    // The third minute is visible until its end and an hour.
    sim.clock.set(at(180 + HOUR - 1));
    assert_eq!(bins(&db, 60), of_three_minutes()[2..]);
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 0);
    sim.clock.set(at(180 + HOUR));
    assert_eq!(bins(&db, 60), []);
    let explained = db.snapshot().collection("weather").unwrap().explain_expiry(at(180 + HOUR), None).unwrap();
    assert_eq!(explained.iter().map(|row| (row.rule.as_str(), row.buckets)).collect::<Vec<_>>(), [("rung 60", 1)]);
    let before = sim.files("").len();
    db.sweep().unwrap();
    assert!(sim.files("").len() < before, "a file went");
    assert_eq!(db.sweeps().last().unwrap().rule, "rung 60");
    assert_eq!(bins(&db, HOUR), [bin(0, "roof", 180, 16_110)]);
    // What comes for a bin that is gone is not shown in it again, whatever its life becomes.
    c.insert_documents(&[reading(5, "roof", 1)]).unwrap();
    db.set_ladder("weather", Some(ladder()), false).unwrap();
    assert_eq!(bins(&db, 60), []);
    assert_eq!(bins(&db, HOUR), [bin(0, "roof", 181, 16_111)]);
}

#[test]
fn a_longer_life_brings_back_what_was_not_dropped() {
    let sim = Sim::new();
    let (db, _) = three_minutes(&sim, weather().ladder(Ladder::new(vec![rung(60, Some(2 * HOUR))])));
    sim.clock.set(at(HOUR));
    db.sweep().unwrap();
    sim.clock.set(at(3 * HOUR));
    assert_eq!(bins(&db, 60), []);
    db.set_ladder("weather", Some(Ladder::new(vec![rung(60, Some(DAY))])), false).unwrap();
    assert_eq!(bins(&db, 60), of_three_minutes());
}

#[test]
fn a_new_rung_begins_with_what_is_stored_and_with_the_finer_rung() {
    let sim = Sim::new();
    let (db, c) = three_minutes(&sim, weather().ladder(Ladder::new(vec![rung(60, None)])));
    sim.clock.set(at(HOUR));
    db.sweep().unwrap();
    c.insert_documents(&[reading(3500, "roof", 4)]).unwrap();
    db.set_ladder("weather", Some(ladder()), false).unwrap();
    assert_eq!(bins(&db, HOUR), [bin(0, "roof", 181, 16_114)]);
    drop(db);
    let sim = sim.on(sim.fs.crash(Variant::V0, 0));
    let db = sim.open();
    assert_eq!(bins(&db, HOUR), [bin(0, "roof", 181, 16_114)]);
    sim.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    assert_eq!(bins(&db, HOUR), [bin(0, "roof", 181, 16_114)]);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn a_rung_with_bins_that_are_stored_nowhere_else_goes_only_by_force() {
    let sim = Sim::new();
    let (db, _) = decayed(&sim);
    let refused = |ladder: Option<Ladder>| {
        let error = db.set_ladder("weather", ladder, false).unwrap_err();
        assert_eq!(error.code(), Code::InvalidOptions);
        error.to_string()
    };
    assert!(refused(None).contains("3 bins"), "{}", refused(None));
    assert!(refused(Some(Ladder::new(vec![rung(HOUR, None)]))).contains("3 bins"));
    // Hours are in the minutes too.
    db.set_ladder("weather", Some(Ladder::new(vec![rung(60, None)])), false).unwrap();
    db.set_ladder("weather", None, true).unwrap();
    let snapshot = db.snapshot().collection("weather").unwrap();
    let request = RollupRequest { width_seconds: 60, ..RollupRequest::default() };
    assert_eq!(snapshot.rollup(&request).unwrap_err().code(), Code::InvalidOptions);
    drop(snapshot);
    assert_eq!(sim.files("").iter().filter(|path| path.to_string_lossy().contains("rung")).count(), 0);
}

#[test]
fn holds_keep_bins_from_sweeps_deletes_and_the_end_of_their_rung() {
    let sim = Sim::new();
    let (db, c) = three_minutes(&sim, weather().ladder(Ladder::new(vec![rung(60, Some(HOUR))])));
    sim.clock.set(at(HOUR - 60));
    db.sweep().unwrap();
    // It begins within the last bin, of which it covers an instant.
    db.create_hold("case42", "weather", HoldOptions::new("why").since(at(170))).unwrap();
    sim.clock.set(at(DAY));
    assert_eq!(db.sweep().unwrap().counts.held_buckets, 1);
    for error in [
        db.set_ladder("weather", None, true).unwrap_err(),
        db.drop_collection("weather").unwrap_err(),
        c.delete(&Filter::everything()).unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::IllegalOperation);
        assert!(error.to_string().contains("'case42'"), "{error}");
    }
    db.set_ladder("weather", Some(Ladder::new(vec![rung(60, None)])), false).unwrap();
    assert_eq!(bins(&db, 60), of_three_minutes());
    let early = Filter::compare("t", Comparison::Lt, Value::Date(at(120)));
    assert_eq!(c.delete_with_bins(&early).unwrap().kept_bins.len(), 0);
    assert_eq!(bins(&db, 60), of_three_minutes()[2..]);
    db.lift_hold("case42").unwrap();
    c.delete(&Filter::everything()).unwrap();
    assert_eq!(bins(&db, 60), []);
}

#[test]
fn suspension_and_the_clock_guard_hold_rungs_too() {
    let sim = Sim::new();
    let (db, c) = three_minutes(&sim, weather().ladder(Ladder::new(vec![rung(60, Some(HOUR))])));
    sim.clock.set(at(HOUR - 60));
    db.sweep().unwrap();
    let early = Timestamp::parse("1969-12-31T00:00:00Z").unwrap();
    let row = Value::Object(vec![("t".into(), Value::Date(early)), ("sensor".into(), Value::from("a"))]);
    c.insert_documents(&[row]).unwrap();
    sim.clock.set(at(DAY));
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 0);
    assert_eq!(bins(&db, 60)[1..], of_three_minutes());
    c.delete(&Filter::compare("t", Comparison::Lt, Value::Date(Timestamp::EPOCH))).unwrap();
    assert_eq!(bins(&db, 60), []);
    sim.clock.set(at(2 * DAY));
    sim.clock.jump(at(1000 * DAY));
    assert!(db.sweep().unwrap().held.is_some());
    assert_eq!(db.snapshot().ladders().unwrap()[0].bins, 3);
}

#[test]
fn what_a_sink_took_and_what_was_too_large_decays_as_well() {
    let sim = Sim::new();
    let (db, _) = three_minutes(&sim, weather().ladder(ladder()).hand_off(true));
    sim.clock.set(at(HOUR));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 0);
    let taken = Arc::new(std::sync::Mutex::new(0));
    let count = taken.clone();
    let sink = move |bucket: &ExpiredBucket| -> Result<(), SinkError> {
        *count.lock().unwrap() += bucket.rows.num_rows();
        Ok(())
    };
    db.on_expiry("weather", Arc::new(sink)).unwrap();
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 180);
    assert_eq!((*taken.lock().unwrap(), bins(&db, 60)), (180, of_three_minutes()));

    let sim = Sim::new();
    let (db, _) = three_minutes(&sim, weather().ladder(ladder()).max_bytes(1));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 120);
    assert_eq!((numbers(&db), bins(&db, 60)), (numbered(120..180), of_three_minutes()));
    assert_eq!(bins(&db, HOUR), [bin(0, "roof", 180, 16_110)]);
}

#[test]
fn a_disk_without_room_for_bins_keeps_the_measurements() {
    let sim = Sim::new();
    let (db, _) = three_minutes(&sim, weather().ladder(ladder()));
    let other = db.create_collection("other", weather().expire_after_seconds(60)).unwrap();
    other.insert_documents(&readings(0..50)).unwrap();
    db.flush().unwrap();
    sim.clock.set(at(HOUR));
    sim.fs.set_capacity(Some(sim.fs.used() + 200));
    let error = db.sweep().unwrap_err();
    assert_eq!(error.code(), Code::OutOfDiskSpace);
    let stored = |name: &str| db.snapshot().collection(name).unwrap().bucket_count().unwrap();
    assert_eq!((stored("weather"), stored("other")), (3, 0), "other collections are swept");
    assert_eq!(bins(&db, 60), of_three_minutes());
    sim.fs.set_capacity(None);
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 180);
    assert_eq!(bins(&db, 60), of_three_minutes());
}

#[test]
fn a_damaged_rung_is_named_and_set_aside_and_the_others_stay() {
    let sim = Sim::new();
    let (db, _) = decayed(&sim);
    db.close().unwrap();
    let path = sim.files("seg-").into_iter().find(|path| path.to_string_lossy().contains("_60.")).unwrap();
    sim.fs.tamper(&path, |bytes| bytes[200] ^= 1).unwrap();
    let report = sim.builder().repair(RepairMode::Apply).unwrap();
    let text = report.to_string();
    for part in ["damaged: collection 'weather, rung 60': ", "lost: collection 'weather, rung 60', 3 bins from "] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(report.rows_lost(), 0, "no measurement");
    let db = sim.open();
    assert_eq!(bins(&db, 60), []);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    // Without the rung that lost them, all widths come from the next one.
    db.set_ladder("weather", Some(Ladder::new(vec![rung(HOUR, None)])), true).unwrap();
    assert_eq!(bins(&db, HOUR), [bin(0, "roof", 180, 16_110)]);
}

#[test]
fn measurements_that_cannot_be_read_stay() {
    let sim = Sim::new();
    let (db, _) = three_minutes(&sim, weather().ladder(ladder()));
    db.flush().unwrap();
    db.close().unwrap();
    let path = sim.file("seg-");
    sim.fs.tamper(&path, |bytes| bytes[200] ^= 1).unwrap();
    let db = sim.open();
    sim.clock.set(at(HOUR));
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.unread.len()), (0, 1), "{report:?}");
}

#[test]
fn a_field_takes_its_bins_along_to_another_name_and_begins_anew_when_it_was_dropped() {
    let sim = Sim::new();
    let (db, c) = decayed(&sim);
    db.rename_field("weather", "v", "volts").unwrap();
    let by_hour = |field: &str| bins_of(&db.snapshot(), "weather", HOUR, field);
    assert_eq!(by_hour("volts"), [bin(0, "roof", 180, 16_110)]);
    // Another field of the old name has none of them.
    c.insert_documents(&[reading(5, "roof", 1)]).unwrap();
    assert_eq!((by_hour("volts")[0].3, by_hour("v")[0].3), (Some(16_110), Some(1)));
    for _ in 0..2 {
        db.sweep().unwrap();
        db.compact(None).unwrap();
    }
    assert_eq!((by_hour("volts")[0].3, by_hour("v")[0].3), (Some(16_110), Some(1)));
    db.drop_field("weather", "v").unwrap();
    c.insert_documents(&[reading(5, "roof", 2)]).unwrap();
    assert_eq!(by_hour("v"), [bin(0, "roof", 182, 2)]);
    db.sweep().unwrap();
    assert_eq!(by_hour("v"), [bin(0, "roof", 182, 2)]);
    assert_eq!(by_hour("volts"), [bin(0, "roof", 182, 16_110)]);
}

#[test]
fn a_copy_has_the_ladder_and_the_bins_of_what_it_got() {
    let sim = Sim::new();
    let (db, c) = decayed(&sim);
    c.insert_documents(&readings(3600..3660)).unwrap();
    db.copy_collection("weather", "copy").unwrap();
    assert_eq!(bins_of(&db.snapshot(), "copy", 60, "v"), [bin(3600, "roof", 60, 217_770)]);
    sim.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    assert_eq!(bins_of(&db.snapshot(), "copy", 60, "v"), [bin(3600, "roof", 60, 217_770)]);
    assert_eq!(bins(&db, 60).len(), 4);
    db.rename_collection("weather", "climate").unwrap();
    assert_eq!(bins_of(&db.snapshot(), "climate", 60, "v").len(), 4);
}

#[test]
fn a_dump_of_rungs_adds_up_with_the_measurements_of_the_dump() {
    let sim = Sim::new();
    let (db, c) = decayed(&sim);
    // Hidden and dropped next, and visible.
    c.insert_documents(&[reading(5, "cellar", 3), reading(3590, "roof", 9)]).unwrap();
    let snapshot = db.snapshot();
    let dumped = snapshot.collection("weather").unwrap().dumped_rungs().unwrap();
    let other = db.create_collection("other", weather().expire_after_seconds(60).ladder(ladder())).unwrap();
    other.insert_documents(&[reading(3590, "roof", 9)]).unwrap();
    for rung in &dumped {
        other.restore_bins(rung.step_seconds, rung.gone_before, &rung.bins).unwrap();
    }
    for width in [60, HOUR] {
        assert_eq!(bins_of(&db.snapshot(), "other", width, "v"), bins(&db, width));
    }
    assert_eq!(other.restore_bins(61, None, &dumped[0].bins).unwrap_err().code(), Code::BadValue);
}

#[test]
fn several_changes_happen_all_or_none() {
    let sim = Sim::new();
    let (db, _) = decayed(&sim);
    let change =
        CollectionChange { expire_after_seconds: Some(Some(5)), ladder: Some(None), ..CollectionChange::default() };
    assert_eq!(db.modify_collection("weather", &change, None).unwrap_err().code(), Code::InvalidOptions);
    let snapshot = db.snapshot().collection("weather").unwrap();
    assert_eq!((snapshot.rules().collection(), snapshot.ladder()), (Some(60), Some(ladder())));
    db.modify_collection("weather", &CollectionChange { force: true, ..change }, None).unwrap();
    let snapshot = db.snapshot().collection("weather").unwrap();
    assert_eq!((snapshot.rules().collection(), snapshot.ladder()), (Some(5), None));
}

#[test]
fn ladders_that_cannot_be_are_refused_by_their_rung() {
    let sim = Sim::new();
    let (db, _) = made(&sim);
    for (rungs, named) in [
        (vec![], "at least one rung"),
        (vec![rung(0, None)], "rung 1 (0 s)"),
        (vec![rung(60, None), rung(90, None)], "rung 2 (90 s)"),
        (vec![rung(60, None), rung(120, Some(5))], "rung 2 (120 s)"),
        (vec![rung(60, Some(-1))], "rung 1 (60 s)"),
    ] {
        let error = db.set_ladder("weather", Some(Ladder::new(rungs)), false).unwrap_err();
        assert_eq!(error.code(), Code::InvalidOptions);
        assert!(error.to_string().contains(named), "{error}");
    }
    let missing = db.set_ladder("nothing", Some(ladder()), false).unwrap_err();
    assert_eq!(missing.code(), Code::NamespaceNotFound);
    // The names of columns must not be those of others.
    let taken = CollectionOptions::new("v_avg").ladder(Ladder::new(vec![rung(60, None)]).fields(["v"]));
    assert_eq!(db.create_collection("taken", taken).unwrap_err().code(), Code::InvalidOptions);
    let of_time = weather().ladder(ladder().fields(["sensor"]));
    assert_eq!(db.create_collection("taken", of_time).unwrap_err().code(), Code::InvalidOptions);
    assert_eq!(db.collections(), ["weather"]);
}
