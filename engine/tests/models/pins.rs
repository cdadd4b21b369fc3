//! Snapshots against whatever makes the files unneeded that they read.

use crate::rig::{LIFE, World, at, explore, numbers, power_cut, segment_files, spawn};
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Filter, Value};
use ebbtide::{Database, Snapshot};

/// Reads a snapshot twice, from two threads that let go of it in any order, and checks that its files are there as long
/// as one of them holds it. Returns what was read.
fn read_to_the_end(snapshot: Snapshot, fs: &SimFs) -> Vec<i64> {
    let first = numbers(&snapshot).unwrap();
    let other = spawn({
        let (snapshot, fs, first) = (snapshot.clone(), fs.clone(), first.clone());
        move || {
            assert_eq!(numbers(&snapshot).unwrap(), first, "a snapshot changed");
            assert_pinned(&snapshot, &fs);
        }
    });
    assert_pinned(&snapshot, fs);
    drop(snapshot);
    other.join().unwrap();
    first
}

fn assert_pinned(snapshot: &Snapshot, fs: &SimFs) {
    let files = segment_files(fs);
    for segment in snapshot.collection("weather").unwrap().segments() {
        assert!(files.contains(&segment.file), "{} left while somebody could read it", segment.file);
    }
}

/// Two segments, all of it expired an hour and 20 seconds into 2024.
fn two_segments(world: &World) {
    world.insert(&[(0, 0), (0, 1)]);
    world.db.flush().unwrap();
    world.insert(&[(10, 2), (20, 3)]);
    world.db.flush().unwrap();
}

fn a_snapshot_keeps_its_files(disk: &SimFs) {
    let world = World::on(disk);
    let all = vec![0, 1, 2, 3];
    let past = spawn({
        let (db, fs, all) = (world.db.clone(), world.fs.clone(), all.clone());
        move || {
            let read = read_to_the_end(db.snapshot_at(at(20)), &fs);
            assert!(read == all || read.is_empty(), "a part of what was dropped: {read:?}");
        }
    });
    let present = spawn({
        let (db, fs) = (world.db.clone(), world.fs.clone());
        move || {
            let snapshot = db.snapshot();
            let live = if snapshot.now() < at(LIFE) { all } else { Vec::new() };
            assert_eq!(read_to_the_end(snapshot, &fs), live);
        }
    });
    let compactor = spawn({
        let db = world.db.clone();
        move || db.compact(None).unwrap()
    });
    world.clock.advance(LIFE as u32 + 20);
    assert_eq!(world.db.sweep().unwrap().counts.deleted_documents, 4);
    for thread in [past, present, compactor] {
        thread.join().unwrap();
    }
    assert_eq!(segment_files(&world.fs), Vec::<String>::new(), "files that outlived their last reader");
}

#[test]
fn a_snapshot_reads_to_its_end_and_its_files_go_with_the_last_one() {
    explore(two_segments, a_snapshot_keeps_its_files);
}

fn everybody_sees_a_delete_at_once(disk: &SimFs) {
    let world = World::on(disk);
    let reader = spawn({
        let (db, fs) = (world.db.clone(), world.fs.clone());
        move || {
            let before = |look: &[i64]| look == [0, 1, 2, 3];
            let mut looks = Vec::new();
            for _ in 0..2 {
                let (snapshot, cut) = (db.snapshot(), power_cut(&fs));
                let look = read_to_the_end(snapshot, &fs);
                assert!(before(&look) || look == [0, 3], "half a delete: {look:?}");
                looks.push((look, cut));
            }
            assert!(before(&looks[0].0) || !before(&looks[1].0), "deleted rows came back: {looks:?}");
            looks
        }
    });
    let compactor = spawn({
        let db = world.db.clone();
        move || db.compact(None).unwrap()
    });
    let middle = Filter::is_in("v", vec![Value::Int(1), Value::Int(2)]);
    assert_eq!(world.weather.delete(&middle).unwrap(), 2);
    assert_eq!(world.numbers_on(&world.power_cut()), [0, 3]);
    for (seen, cut) in reader.join().unwrap() {
        assert!(seen.len() == 4 || world.numbers_on(&cut) == seen, "a delete was seen before it was durable");
    }
    compactor.join().unwrap();
    assert_eq!(world.numbers(), [0, 3]);
    assert_eq!(world.numbers_on(&world.power_cut()), [0, 3]);
    world.assert_no_file_is_left();
}

#[test]
fn a_compaction_keeps_what_a_snapshot_reads_and_nothing_of_what_was_deleted() {
    explore(two_segments, everybody_sees_a_delete_at_once);
}

/// Somebody lets go of the last handle of a database while others still read from it.
fn the_database_goes_before_its_snapshots(disk: &SimFs) {
    let World { fs, clock, db, weather } = World::on(disk);
    let snapshot = db.snapshot();
    let reader = spawn({
        let fs = fs.clone();
        move || assert_eq!(read_to_the_end(snapshot, &fs), [0, 1, 2, 3])
    });
    let sweeper = spawn(move || {
        clock.advance(LIFE as u32 + 20);
        let _: Database = db.clone();
        db.sweep().unwrap();
        db.close().unwrap();
    });
    drop(weather);
    sweeper.join().unwrap();
    reader.join().unwrap();
    assert_eq!(segment_files(&fs), Vec::<String>::new());
    assert_eq!(fs.open_handles(), Vec::<String>::new());
}

#[test]
fn a_snapshot_outlives_its_database() {
    explore(two_segments, the_database_goes_before_its_snapshots);
}
