//! A log that is not synced at each write: what is sealed, merged or dropped must not depend on what a power cut may take.

use crate::documents::{Action, Beside};
use ebbtide::documents_model::DefaultTtl;
use ebbtide::documents_model::bson::doc;
use ebbtide::fs::sim::{SimFs, Variant};
use ebbtide::ttl::{Timestamp, VirtualClock};
use ebbtide::{Database, DocumentsOptions, Durability, Settings};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ROOT: &str = "/data/db";
const LIFE: u32 = 100;

struct Rig {
    fs: SimFs,
    clock: VirtualClock,
    beside: Action,
}

impl Rig {
    fn new() -> Rig {
        Rig { fs: SimFs::new(ROOT), clock: VirtualClock::new(Timestamp::from_millis(0)), beside: Action::default() }
    }

    fn open(&self, fs: &SimFs) -> Database {
        let disk = Arc::new(Beside::new(fs.clone(), self.beside.clone()));
        let durability = Durability::Interval(Duration::from_secs(1_000_000));
        let settings = Settings { durability, ..Settings::default() };
        Database::builder(ROOT).fs(disk).clock(Arc::new(self.clock.clone())).settings(settings).open().unwrap()
    }

    /// Does this when the next segment is begun.
    fn beside(&self, action: impl FnOnce() + Send + 'static) {
        *self.beside.lock().unwrap() = Some(Box::new(action));
    }

    /// The numbers by `_id` after a power cut that takes all that was not synced.
    fn after_a_power_cut(&self, name: &str) -> BTreeMap<i64, i64> {
        numbers(&self.open(&self.fs.crash(Variant::V0, 1)), name)
    }
}

fn created(db: &Database, name: &str) {
    let options = DocumentsOptions { default_ttl: DefaultTtl::Seconds(LIFE), ..DocumentsOptions::default() };
    db.create_documents(name, options).unwrap();
}

fn put(db: &Database, name: &str, id: i64, n: i64) {
    db.documents(name).unwrap().put(&doc! { "_id": id, "n": n }).unwrap();
}

fn numbers(db: &Database, name: &str) -> BTreeMap<i64, i64> {
    let mut numbers = BTreeMap::new();
    let visited = db.snapshot().documents(name).unwrap().for_each(&mut |found| {
        let whole = |name: &str| found.document.get(name).unwrap().unwrap().as_i64().unwrap();
        assert_eq!(numbers.insert(whole("_id"), whole("n")), None, "an _id is there twice");
        Ok(true)
    });
    visited.unwrap();
    numbers
}

#[test]
fn a_merge_keeps_a_row_whose_replacement_may_be_lost_with_the_log() {
    let rig = Rig::new();
    let db = rig.open(&rig.fs);
    created(&db, "d");
    put(&db, "d", 1, 0);
    db.flush().unwrap();
    put(&db, "d", 2, 0);
    // The merge is preceded by a seal: the replacement comes while that writes, and is in the log alone.
    let writer = db.clone();
    rig.beside(move || put(&writer, "d", 1, 1));
    db.compact(None).unwrap();
    assert_eq!(numbers(&db, "d"), BTreeMap::from([(1, 1), (2, 0)]));
    assert_eq!(rig.after_a_power_cut("d"), BTreeMap::from([(1, 0), (2, 0)]));
}

#[test]
fn a_sweep_leaves_a_file_of_which_a_refreshed_row_may_be_lost_with_the_log() {
    let rig = Rig::new();
    let db = rig.open(&rig.fs);
    created(&db, "d");
    put(&db, "d", 1, 0);
    rig.clock.set(Timestamp::from_millis(50_000));
    put(&db, "d", 2, 0);
    db.flush().unwrap();
    put(&db, "d", 2, 1);
    rig.clock.set(Timestamp::from_millis(100_000));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 1);
    assert_eq!(numbers(&db, "d"), BTreeMap::from([(2, 1)]));
    let left = rig.after_a_power_cut("d");
    assert!(left == BTreeMap::from([(2, 0)]) || left == BTreeMap::from([(2, 1)]), "{left:?}");
}

#[test]
fn what_is_sealed_of_one_collection_is_not_newer_than_what_the_log_keeps_of_another() {
    let rig = Rig::new();
    let db = rig.open(&rig.fs);
    created(&db, "a");
    created(&db, "b");
    put(&db, "b", 1, 0);
    put(&db, "a", 1, 0);
    // The power fails between the seal of `a` and that of `b`.
    let cut = Arc::new(Mutex::new(None));
    let (fs, kept, beside) = (rig.fs.clone(), cut.clone(), rig.beside.clone());
    rig.beside(move || {
        *beside.lock().unwrap() = Some(Box::new(move || *kept.lock().unwrap() = Some(fs.crash(Variant::V0, 1))));
    });
    db.flush().unwrap();
    let disk = cut.lock().unwrap().take().expect("each collection has a segment");
    let after = rig.open(&disk);
    assert_eq!(numbers(&after, "a"), BTreeMap::from([(1, 0)]));
    assert_eq!(numbers(&after, "b"), BTreeMap::from([(1, 0)]), "the older write is lost");
}

#[test]
fn columns_are_known_after_the_log_that_brought_them_is_gone() {
    let rig = Rig::new();
    let db = rig.open(&rig.fs);
    created(&db, "d");
    put(&db, "d", 1, 0);
    let columns = |db: &Database| db.snapshot().documents("d").unwrap().columns().clone();
    let before = columns(&db);
    db.flush().unwrap();
    drop(db);
    assert_eq!(columns(&rig.open(&rig.fs)), before);
    assert!(format!("{before:?}").contains("\"n\""), "{before:?}");
}

#[test]
fn a_seal_that_finds_no_room_leaves_no_file() {
    let rig = Rig::new();
    let db = rig.open(&rig.fs);
    created(&db, "d");
    for id in 0..200 {
        put(&db, "d", id, 0);
    }
    let segments = || rig.fs.files().iter().filter(|path| path.extension().is_some_and(|e| e == "parquet")).count();
    // Enough for the segment, not for the manifest that names it.
    for room in (0..40_000).step_by(256) {
        rig.fs.set_capacity(Some(rig.fs.used() + room));
        if db.flush().is_ok() {
            assert!(room > 0, "a full disk takes a segment");
            assert_eq!(segments(), 1);
            return;
        }
        assert_eq!(segments(), 0, "with room for {room} bytes");
    }
    panic!("a segment of 200 documents takes 40 kB");
}
