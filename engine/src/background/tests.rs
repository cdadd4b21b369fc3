use super::*;
use crate::{CollectionOptions, json};
use ebbtide_ttl::{Clock, Timestamp, VirtualClock};
use serde_json::json;

#[test]
fn what_a_sweep_leaves_of_a_segment_is_written_anew_when_most_is_gone_though_nothing_is_inserted() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(Timestamp::parse("2024-01-01T00:00:00Z").unwrap());
    let db = Database::builder(folder.path().join("db")).clock(Arc::new(clock.clone())).open().unwrap();
    let w = db.create_collection("w", CollectionOptions::new("t").meta_field("s").expire_after_seconds(3600)).unwrap();
    for hour in ["00", "01", "02", "05"] {
        let time = format!("2024-01-01T{hour}:10:00Z");
        w.insert_documents(&[json::value_of(&json!({"t": {"$date": time}, "s": "a"})).unwrap()]).unwrap();
    }
    db.flush().unwrap();
    let rows = || {
        let segments = w.snapshot().unwrap().segments();
        segments.iter().map(|s| (s.rows, s.rows_written)).collect::<Vec<_>>()
    };
    assert_eq!(rows(), [(4, 4)]);
    let mut schedule = Schedule::new(clock.monotonic());
    clock.set(Timestamp::parse("2024-01-01T04:00:00Z").unwrap());
    schedule.tick(&db.engine);
    assert_eq!(rows(), [(1, 1)]);
}

#[test]
fn a_seal_that_failed_keeps_segments_from_being_merged_until_the_next() {
    use crate::fs::sim::{Fault, FaultKind, Repeat, SimFs};
    use ebbtide_documents::bson::doc;
    let fs = SimFs::new("/data/db");
    let clock = VirtualClock::new(Timestamp::from_millis(0));
    let builder = Database::builder("/data/db").fs(Arc::new(fs.clone()));
    let db = builder.clock(Arc::new(clock.clone())).open().unwrap();
    let documents = db.create_documents("d", crate::DocumentsOptions::default()).unwrap();
    for part in 0..4_i64 {
        documents.put_many(&(0..10).map(|n| doc! { "_id": part * 10 + n, "v": 0 }).collect::<Vec<_>>()).unwrap();
        db.flush().unwrap();
    }
    documents.put(&doc! { "_id": 0_i64, "v": 1 }).unwrap();
    let count = || documents.snapshot().unwrap().count().unwrap();
    let segments = || fs.files().iter().filter(|path| path.extension().is_some_and(|e| e == "parquet")).count();
    let mut schedule = Schedule::new(clock.monotonic());
    clock.set(Timestamp::from_nanos(clock.now().nanos() + db.engine.settings.memtable_age_max.as_nanos() as i128));
    fs.fail_op(fs.mutating_ops(), Fault { kind: FaultKind::Enospc, repeat: Repeat::Once });
    schedule.tick(&db.engine);
    assert_eq!((fs.faults_fired(), segments(), count()), (1, 4, 40));
    clock.set(Timestamp::from_nanos(clock.now().nanos() + db.engine.settings.memtable_age_max.as_nanos() as i128));
    schedule.tick(&db.engine);
    assert_eq!((segments(), count()), (2, 40));
}

#[test]
fn a_pass_in_the_background_leaves_a_core_and_one_that_was_asked_for_takes_all() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(Timestamp::parse("2024-01-01T00:00:00Z").unwrap());
    let db = Database::builder(folder.path().join("db")).clock(Arc::new(clock.clone())).open().unwrap();
    db.create_collection("w", CollectionOptions::new("t").expire_after_seconds(3600)).unwrap();
    let mut schedule = Schedule::new(clock.monotonic());
    clock.set(Timestamp::parse("2024-01-01T04:00:00Z").unwrap());
    schedule.tick(&db.engine);
    assert_eq!((db.metrics().ttl.passes, db.engine.maintenance.may_use_all_cores()), (1, false));
    db.sweep().unwrap();
    assert_eq!((db.metrics().ttl.passes, db.engine.maintenance.may_use_all_cores()), (2, true));
}

#[test]
fn a_hand_off_leaves_a_core_as_its_pass_does() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(Timestamp::parse("2024-01-01T00:00:00Z").unwrap());
    let db = Database::builder(folder.path().join("db")).clock(Arc::new(clock.clone())).open().unwrap();
    let w = db.create_collection("w", CollectionOptions::new("t").expire_after_seconds(3600)).unwrap();
    db.on_expiry("w", Arc::new(|_: &crate::ExpiredBucket| Ok(()))).unwrap();
    for (hour, leave_a_core) in [("04", true), ("08", false)] {
        let document = json!({"t": {"$date": "2024-01-01T00:10:00Z"}});
        w.insert_documents(&[json::value_of(&document).unwrap()]).unwrap();
        clock.set(Timestamp::parse(&format!("2024-01-01T{hour}:00:00Z")).unwrap());
        let swept = db.sweep_with(&SweepOptions { leave_a_core, ..SweepOptions::default() }).unwrap();
        let uses_all_cores = db.engine.maintenance.may_use_all_cores();
        assert_eq!((swept.counts.deleted_documents, uses_all_cores), (1, !leave_a_core));
    }
}

#[test]
fn a_runtime_without_timers_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path().join("db")).unwrap();
    let without = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let refused = without.block_on(async { db.start_background().map(drop) }).unwrap_err();
    assert_eq!(refused.code(), Code::IllegalOperation);
    let with = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    with.block_on(async { db.start_background().map(drop) }).unwrap();
}

#[cfg(unix)]
#[test]
fn the_background_notices_that_the_folder_was_moved() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(Timestamp::EPOCH);
    let db = Database::builder(folder.path().join("db")).clock(Arc::new(clock.clone())).open().unwrap();
    crate::fs::Fs::remove(&crate::fs::RealFs::new(), &folder.path().join("db/LOCK")).unwrap();
    Schedule::new(clock.monotonic()).tick(&db.engine);
    assert_eq!(db.write_failure().map(|error| error.code()), Some(Code::NotWritable));
}
