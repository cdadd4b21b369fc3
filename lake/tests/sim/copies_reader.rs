//! Copies that are read at exact positions, with segment files that are fetched when they are read.

use crate::copies::{URL, open, shipper_of, weather};
use crate::world::{World, at, reading};
use ebbtide::fs::Fs;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Code, Filter, Value};
use ebbtide::{CopyCache, CopyPosition, CopyReader, ScanRequest, Settings, ShipStatus, Snapshot};
use ebbtide_lake::sim::{SimLake, SimStore};
use std::path::Path;
use std::sync::Arc;

const CACHE: &str = "/data/cache";

fn cache(disk: &SimFs, machine: &World, bytes_max: u64) -> ebbtide::Result<Arc<CopyCache>> {
    CopyCache::open(Arc::new(disk.clone()), &machine.clock, Path::new(CACHE), bytes_max).map(Arc::new)
}

fn reader(machine: &World, cache: &Arc<CopyCache>) -> CopyReader {
    CopyReader::new(Arc::new(SimLake::new(&machine.store)), cache.clone(), Settings::default())
}

fn position(status: &ShipStatus) -> CopyPosition {
    CopyPosition { url: URL.to_owned(), epoch: status.epoch, piece: status.piece }
}

fn numbers(snapshot: &Snapshot) -> Vec<i64> {
    let mut numbers = Vec::new();
    for unit in snapshot.at(at(0)).collection("weather").unwrap().scan(&ScanRequest::default()).unwrap() {
        for batch in unit.read().unwrap() {
            let batch = batch.unwrap();
            let v = batch.column_by_name("v").unwrap();
            numbers.extend((0..batch.num_rows()).map(|row| match ebbtide::buckets::value_at(v.as_ref(), row) {
                Value::Int(v) => v,
                other => panic!("{other:?}"),
            }));
        }
    }
    numbers.sort_unstable();
    numbers
}

/// Three states: rows in the log only; one segment; two segments with a deleted row.
fn three_states(machine: &World) -> [(CopyPosition, Vec<i64>); 3] {
    let db = open(machine);
    let mut shipper = shipper_of(machine, None);
    let c = weather(&db);
    let insert = |numbers: std::ops::Range<i64>| {
        c.insert_documents(&numbers.map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    };
    insert(0..30);
    let first = position(&shipper.ship_now().unwrap());
    db.flush().unwrap();
    let second = position(&shipper.ship_now().unwrap());
    insert(30..60);
    db.flush().unwrap();
    c.delete(&Filter::eq("v", Value::Int(7))).unwrap();
    let third = position(&shipper.ship_now().unwrap());
    let all: Vec<i64> = (0..30).collect();
    [(first, all.clone()), (second, all), (third, (0..60).filter(|v| *v != 7).collect())]
}

#[test]
fn a_reader_shows_exactly_the_position_that_it_is_asked_for_and_fetches_what_is_read() {
    let machine = World::new(SimStore::new(1, 0));
    let states = three_states(&machine);
    let disk = SimFs::new(CACHE);
    let files = cache(&disk, &machine, 1 << 30).unwrap();
    let reader = reader(&machine, &files);
    let mut kept = Vec::new();
    // Forward, and back again.
    for (at, expected) in [0, 1, 2, 0, 1, 2].map(|state: usize| &states[state]) {
        let (db, snapshot) = reader.at(at).unwrap();
        assert_eq!(numbers(&snapshot), *expected, "{at}");
        assert!(db.create_collection("x", ebbtide::CollectionOptions::new("t")).is_err());
        kept.push((snapshot, expected));
    }
    for (snapshot, expected) in kept {
        assert_eq!(numbers(&snapshot), *expected, "what the reader did since does not matter");
    }
    let fetched = files.fetched_bytes();
    assert!(fetched > 0 && files.kept_bytes() == fetched, "each file once: {fetched} {}", files.kept_bytes());
    let unread = cache(&SimFs::new(CACHE), &machine, 1 << 30).unwrap();
    let other = self::reader(&machine, &unread);
    other.open_newest(URL).unwrap();
    other.at(&states[2].0).unwrap();
    assert_eq!(unread.fetched_bytes(), 0, "nobody has read a segment");

    let none = CopyPosition { piece: 99, ..states[0].0.clone() };
    assert_eq!(reader.at(&none).unwrap_err().code(), Code::NamespaceNotFound);
    let none = CopyPosition { epoch: 7, ..none };
    assert_eq!(reader.at(&none).unwrap_err().code(), Code::NamespaceNotFound);
}

#[test]
fn fetched_files_are_used_again_checked_and_make_room() {
    let machine = World::new(SimStore::new(1, 0));
    let [.., (newest, expected)] = three_states(&machine);
    let disk = SimFs::new(CACHE);
    let read = |bytes_max: u64| {
        let files = cache(&disk, &machine, bytes_max).unwrap();
        let (_, snapshot) = reader(&machine, &files).at(&newest).unwrap();
        assert_eq!(numbers(&snapshot), expected);
        drop(snapshot);
        (files.fetched_bytes(), files.kept_bytes())
    };
    let (fetched, kept) = read(1 << 30);
    assert_eq!(fetched, kept);
    assert_eq!(read(1 << 30), (0, kept), "all of them are there");

    // One is damaged, one is too short: both are fetched again.
    let names = disk.list(Path::new(CACHE)).unwrap();
    let names: Vec<_> = names.iter().filter(|name| name.ends_with(".copied")).collect();
    assert_eq!(names.len(), 2);
    for (name, length) in names.iter().zip([usize::MAX, 100]) {
        let path = Path::new(CACHE).join(name);
        let mut content = disk.read(&path).unwrap();
        content[50] ^= 1;
        content.truncate(length);
        disk.remove(&path).unwrap();
        disk.create(&path).unwrap().append(&content).unwrap();
    }
    assert_eq!(read(1 << 30), (fetched, kept));

    let (_, least) = read(1);
    assert!(least < kept, "{least} of {kept}");
    let left = disk.list(Path::new(CACHE)).unwrap();
    assert_eq!(left.iter().filter(|name| name.ends_with(".copied")).count(), 1);

    let two = cache(&disk, &machine, 1).unwrap();
    assert_eq!(cache(&disk, &machine, 1).unwrap_err().code(), Code::LockBusy);
    drop(two);
    disk.create(&Path::new(CACHE).join("COPY")).unwrap();
    assert_eq!(cache(&disk, &machine, 1).unwrap_err().code(), Code::NamespaceExists);
}
