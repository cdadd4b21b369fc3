//! What sweeping costs.

use crate::watched::Watched;
use crate::{DAY, Sim, at, numbers, reading, weather};
use ebbtide::ttl::Value;
use ebbtide::{Database, SweepReport};
use std::sync::Arc;

/// A database with a day's retention and one segment for each of the days.
fn days(sim: &Sim, days: std::ops::Range<i64>) -> Database {
    let db = sim.open();
    let weather = db.create_collection("weather", weather().expire_after_seconds(DAY)).unwrap();
    for day in days {
        let rows: Vec<_> = (0..500).map(|v| reading(day * DAY + v * 7, &format!("sensor {}", v % 5), v)).collect();
        weather.insert_documents(&rows).unwrap();
        db.flush().unwrap();
    }
    db
}

/// Sweeps, and counts the operations of the disk that it took.
fn counted(sim: &Sim, db: &Database) -> (SweepReport, u64) {
    let before = sim.fs.mutating_ops() + sim.fs.reading_ops();
    let report = db.sweep().unwrap();
    (report, sim.fs.mutating_ops() + sim.fs.reading_ops() - before)
}

#[test]
fn a_segment_that_is_due_as_a_whole_goes_without_being_opened() {
    let sim = Sim::new();
    days(&sim, 0..4).close().unwrap();
    sim.clock.set(at(2 * DAY + DAY / 2));
    let watched = Watched::new(sim.fs.clone());
    let db = sim.builder().fs(Arc::new(watched.clone())).open().unwrap();
    watched.take_opened();
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.counts.reclaimed_files), (1_000, 2));
    let opened = watched.take_opened();
    assert!(opened.is_empty(), "the sweep opened {opened:?}");
    assert_eq!(sim.files("seg-").len(), 2);
}

#[test]
fn a_sweep_costs_nothing_for_data_that_is_not_due() {
    let (few, many) = (Sim::new(), Sim::new());
    let (db_few, db_many) = (days(&few, 0..3), days(&many, 0..40));
    // Nothing is due.
    assert_eq!(counted(&few, &db_few).1, 0);
    assert_eq!(counted(&many, &db_many).1, 0);
    // One segment is.
    few.clock.set(at(DAY + DAY / 2));
    many.clock.set(at(DAY + DAY / 2));
    let (report_few, ops_few) = counted(&few, &db_few);
    let (report_many, ops_many) = counted(&many, &db_many);
    assert_eq!(report_few.counts.deleted_documents, 500);
    assert_eq!(report_many.counts.deleted_documents, 500);
    assert_eq!(ops_few, ops_many);
    assert!(ops_few <= 4, "an append, a sync, an unlink; found {ops_few}");
}

#[test]
fn segments_that_are_due_as_a_whole_go_with_one_synced_edit_a_sub_pass() {
    // Visits of one bucket each, in as many rounds as it takes; then one visit, of all buckets of a segment, a sub-pass: the
    // last one finds nothing and edits nothing.
    for (sub_pass_seconds, buckets_a_visit, sub_passes, edits) in [(60, 1, 1, 1), (0, 5, 13, 12)] {
        let sim = Sim::new();
        let db = days(&sim, 0..13);
        db.set_parameter("ttlMonitorSubPassTargetSecs", &Value::Int(sub_pass_seconds)).unwrap();
        db.set_parameter("ttlIndexDeleteTargetDocs", &Value::Int(buckets_a_visit)).unwrap();
        sim.clock.set(at(12 * DAY + DAY / 2));
        sim.fs.record();
        let before = sim.fs.steps().len();
        let report = db.sweep().unwrap();
        assert_eq!((report.counts.deleted_buckets, report.counts.reclaimed_files), (60, 12));
        let steps = &sim.fs.steps()[before..];
        let syncs = steps.iter().filter(|step| step.contains(" sync ")).count() as u64;
        assert_eq!((report.counts.sub_passes, syncs), (sub_passes, edits), "{steps:#?}");
    }
}

#[test]
fn what_a_sweep_keeps_in_a_segment_is_not_rewritten() {
    let sim = Sim::new();
    let db = days(&sim, 0..1);
    let before = sim.file("seg-");
    // Half of the day's hours are due: each is a bucket, all lie in one segment.
    sim.clock.set(at(DAY + 1_800));
    let report = db.sweep().unwrap();
    assert!(report.counts.deleted_buckets > 0 || numbers(&db).len() < 500);
    assert_eq!(sim.file("seg-"), before);
}

#[test]
fn the_folder_shrinks_at_once_when_half_of_it_expires() {
    let sim = Sim::new();
    let db = days(&sim, 0..10);
    let du = || -> u64 {
        use ebbtide::fs::Fs;
        sim.files("").iter().filter(|p| !p.ends_with("RESERVE")).map(|path| sim.fs.len(path).unwrap()).sum()
    };
    let before = du();
    sim.clock.set(at(5 * DAY + DAY / 2));
    let report = db.sweep().unwrap();
    assert_eq!(report.counts.deleted_documents, 2_500);
    let after = du();
    assert!(after < before * 6 / 10, "{before} bytes before, {after} after");
    let freed = before - after;
    let told = report.counts.deleted_bytes;
    assert!(freed.abs_diff(told) < 2_000, "the sweep told of {told} bytes, {freed} were freed");
}
