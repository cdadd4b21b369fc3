//! Ordinary collections through the library.

use crate::{Sim, assert_names, at};
use ebbtide::documents_model::bson::raw::RawBsonRef;
use ebbtide::documents_model::bson::{Bson, Document, doc, oid::ObjectId, rawdoc};
use ebbtide::documents_model::{DOCUMENT_BYTES_MAX, DefaultTtl};
use ebbtide::fs::Fs;
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::{Clock, Code, Precision, Timestamp, Value};
use ebbtide::{Database, Documents, DocumentsOptions, ErrorKind, RepairMode, Settings, Snapshot, UpdateRequest};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const THREADS: i64 = 8;
const WRITES: i64 = 40;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Session {
    #[serde(rename = "_id")]
    id: String,
    user: i64,
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<i32>,
}

fn session(id: &str, user: i64) -> Session {
    Session { id: id.to_owned(), user, tags: vec!["web".to_owned()], ttl: None }
}

fn sessions(seconds: u32) -> DocumentsOptions {
    DocumentsOptions { default_ttl: DefaultTtl::Seconds(seconds), indexes: Vec::new() }
}

fn made(sim: &Sim) -> (Database, Documents) {
    let db = sim.open();
    let documents = db.create_documents("sessions", DocumentsOptions::default()).unwrap();
    (db, documents)
}

fn numbered(id: i64, n: i64) -> Document {
    doc! { "_id": id, "n": n, "text": "a session of some length ".repeat(4) }
}

/// The numbers by `_id`; one that comes twice is a failure.
fn numbers_in(snapshot: &Snapshot) -> ebbtide::Result<BTreeMap<i64, i64>> {
    let mut numbers = BTreeMap::new();
    snapshot.documents("sessions")?.for_each(&mut |found| {
        let whole = |name: &str| found.document.get(name).unwrap().unwrap().as_i64().unwrap();
        assert_eq!(numbers.insert(whole("_id"), whole("n")), None, "an _id is there twice");
        Ok(true)
    })?;
    Ok(numbers)
}

fn numbers(db: &Database) -> BTreeMap<i64, i64> {
    numbers_in(&db.snapshot()).unwrap()
}

fn all(ids: std::ops::Range<i64>, n: i64) -> BTreeMap<i64, i64> {
    ids.map(|id| (id, n)).collect()
}

#[test]
fn typed_values_go_in_and_come_out() {
    let sim = Sim::new();
    let db = sim.open();
    let store = db.create_documents("sessions", sessions(1800)).unwrap();
    assert_eq!(store.put(&session("a", 1)).unwrap(), Bson::from("a"));
    store.insert(&session("b", 2)).unwrap();
    let error = store.insert(&session("b", 3)).unwrap_err();
    assert_eq!((error.code(), error.kind()), (Code::DuplicateKey, ErrorKind::Invalid), "{error}");
    assert_eq!(store.put_many(&[session("c", 3), session("a", 4)]).unwrap(), 2);
    assert_eq!(store.get::<Session>("a").unwrap(), Some(session("a", 4)));
    assert_eq!(store.get::<Session>("none").unwrap(), None);
    let updated = store.update("c", &doc! { "$push": { "tags": "app" }, "$set": { "ttl": 60 } }).unwrap();
    assert_eq!((updated.matched, updated.modified), (1, 1));
    let found: Vec<Session> = store.find(&doc! { "tags": "app" }).unwrap();
    assert_eq!(found, [Session { tags: vec!["web".into(), "app".into()], ttl: Some(60), ..session("c", 3) }]);
    let none = store.update("none", &doc! { "$set": { "user": 1 } }).unwrap();
    assert_eq!((none.matched, none.modified), (0, 0));
    assert!(store.delete("b").unwrap());
    assert!(!store.delete("b").unwrap());
    sim.clock.set(at(60));
    assert_eq!(store.get::<Session>("c").unwrap(), None);
    assert!(!store.delete("c").unwrap(), "an expired document is not counted");
    assert_eq!(store.snapshot().unwrap().count().unwrap(), 1);
    db.close().unwrap();
    let store = sim.open().documents("sessions").unwrap();
    assert_eq!(store.get::<Session>("a").unwrap(), Some(session("a", 4)));
}

#[test]
fn what_cannot_be_stored_is_refused_and_nothing_is_half_done() {
    let sim = Sim::new();
    let (db, documents) = made(&sim);
    let code = |outcome: ebbtide::Result<Bson>| outcome.unwrap_err().code();
    assert_eq!(code(documents.put(&doc! { "_id": [1] })), Code::InvalidIdField);
    assert_eq!(code(documents.put(&5)), Code::BadValue);
    let room = DOCUMENT_BYTES_MAX - doc! { "_id": 1_i64, "t": "" }.to_vec().unwrap().len();
    assert_eq!(code(documents.put(&doc! { "_id": 1_i64, "t": "x".repeat(room + 1) })), Code::BSONObjectTooLarge);
    documents.put(&doc! { "_id": 1_i64, "t": "x".repeat(room) }).unwrap();
    let error = documents.update(1_i64, &doc! { "$set": { "u": 1 } }).unwrap_err();
    assert_eq!(error.code(), Code::BSONObjectTooLarge, "{error}");
    let many = [doc! { "_id": 2_i64 }, doc! { "_id": [3] }];
    assert_eq!(documents.put_many(&many).unwrap_err().code(), Code::InvalidIdField);
    assert_eq!(documents.get::<Session>(1_i64).unwrap_err().code(), Code::BadValue);
    assert_eq!(documents.update(1_i64, &doc! { "$foo": { "a": 1 } }).unwrap_err().code(), Code::FailedToParse);
    assert_eq!(documents.snapshot().unwrap().count().unwrap(), 1);
    assert_eq!(db.create_documents("sessions", sessions(5)).unwrap_err().code(), Code::NamespaceExists);
    assert_eq!(db.documents("none").unwrap_err().code(), Code::NamespaceNotFound);
    db.drop_collection("sessions").unwrap();
    assert_eq!(documents.put(&doc! {}).unwrap_err().code(), Code::NamespaceNotFound);
}

#[test]
fn fields_keep_their_order_and_values_their_types() {
    let sim = Sim::new();
    let (db, documents) = made(&sim);
    let written = doc! { "z": 1_i32, "_id": 7_i64, "a": 1_i64, "m": { "y": 1.0, "b": [1_i32, "x", Bson::Null] }, "": Bson::MaxKey };
    documents.put(&written).unwrap();
    let id = documents.put(&doc! { "v": 1 }).unwrap();
    let id: ObjectId = id.as_object_id().unwrap();
    for _ in 0..2 {
        let found: Document = documents.get(7_i64).unwrap().unwrap();
        assert_eq!(found.to_vec().unwrap(), written.to_vec().unwrap());
        assert_eq!(documents.get::<Document>(7.0).unwrap(), Some(found));
        assert_eq!(documents.get::<Document>(id).unwrap(), Some(doc! { "_id": id, "v": 1 }));
        db.flush().unwrap();
    }
}

#[test]
fn what_eight_threads_were_told_is_stored_is_there_once_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { memtable_bytes_max: 32 << 10, wal_file_bytes_max: 16 << 10, ..Settings::default() };
    let open = || Database::builder(folder.path().join("db")).settings(settings.clone()).open().unwrap();
    let db = open();
    let documents = db.create_documents("sessions", DocumentsOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (documents, db) = (&documents, &db);
            scope.spawn(move || {
                for write in 0..WRITES {
                    let id = thread * 10 + write % 10;
                    documents.put(&numbered(id, write)).unwrap();
                    let read: Document = documents.get(id).unwrap().unwrap();
                    assert_eq!(read.get_i64("n").unwrap(), write);
                    match (thread, write % 8) {
                        (0, 7) => db.flush().unwrap(),
                        (1, 7) => db.compact(None).unwrap(),
                        _ => {}
                    }
                }
            });
        }
    });
    let expected: BTreeMap<i64, i64> = (0..THREADS * 10).map(|id| (id, WRITES - 10 + id % 10)).collect();
    assert_eq!(numbers(&db), expected);
    db.abandon();
    let db = open();
    assert_eq!(numbers(&db), expected);
    db.compact(None).unwrap();
    assert_eq!(numbers(&db), expected);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn one_counter_counts_what_many_threads_add() {
    let sim = Sim::new();
    let (db, documents) = made(&sim);
    documents.put(&numbered(1, 0)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                (0..WRITES).for_each(|_| {
                    documents.update(1_i64, &doc! { "$inc": { "n": 1_i64 } }).unwrap();
                })
            });
        }
    });
    assert_eq!(numbers(&db), BTreeMap::from([(1, THREADS * WRITES)]));
}

#[test]
fn a_snapshot_keeps_seeing_what_it_saw() {
    let sim = Sim::new();
    let db = sim.open();
    let documents = db.create_documents("sessions", sessions(100)).unwrap();
    documents.put_many(&(0..20).map(|id| numbered(id, 0)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    documents.put(&numbered(20, 0)).unwrap();
    let before = db.snapshot();
    documents.put_many(&(0..10).map(|id| numbered(id, 1)).collect::<Vec<_>>()).unwrap();
    documents.delete(15_i64).unwrap();
    db.flush().unwrap();
    db.compact(None).unwrap();
    sim.clock.set(at(100));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 20);
    assert_eq!(numbers(&db), BTreeMap::new());
    assert_eq!(numbers_in(&before).unwrap(), all(0..21, 0));
    db.drop_collection("sessions").unwrap();
    assert_eq!(numbers_in(&before).unwrap(), all(0..21, 0));
    drop(before);
    assert!(sim.files("seg-").is_empty(), "files that nobody reads are gone");
}

#[test]
fn a_document_that_was_read_before_is_never_found_after_it_was_replaced_or_removed() {
    let sim = Sim::new();
    let (db, documents) = made(&sim);
    let n = |id: i64| documents.get::<Document>(id).unwrap().map(|found| found.get_i64("n").unwrap());
    documents.put_many(&(0..40).map(|id| numbered(id, 0)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    let warm = || (0..40).map(n).collect::<Vec<_>>();
    assert_eq!(warm(), [Some(0); 40]);
    assert_eq!(warm(), [Some(0); 40]);
    let before = db.snapshot();

    documents.put(&numbered(1, 1)).unwrap();
    documents.update(2, &doc! { "$inc": { "n": 2_i64 } }).unwrap();
    documents.delete(3).unwrap();
    documents.insert(&numbered(3, 3)).unwrap();
    documents.delete(4).unwrap();
    assert!(documents.insert(&numbered(5, 9)).is_err());
    let expected = |id: i64| if id == 4 { None } else { Some(if id < 4 { id } else { 0 }) };
    for step in ["in memory", "sealed", "compacted", "compacted again"] {
        match step {
            "sealed" => db.flush().unwrap(),
            "compacted" | "compacted again" => db.compact(None).unwrap(),
            _ => {}
        }
        for id in (0..40).chain(0..6) {
            assert_eq!(n(id), expected(id), "{step}, {id}");
        }
        assert_eq!(numbers(&db), (0..40).filter_map(|id| Some((id, expected(id)?))).collect(), "{step}");
        // What an older snapshot finds must not be taken for what is there now.
        assert_eq!(numbers_in(&before).unwrap(), all(0..40, 0), "{step}");
        let old = before.documents("sessions").unwrap();
        let found = old.for_each_where(&ebbtide::documents_model::bson::rawdoc! { "_id": 1_i64 }, &mut |found| {
            assert_eq!(found.document.get("n").unwrap().unwrap().as_i64(), Some(0));
            Ok(true)
        });
        assert_eq!(found.unwrap().returned, 1, "{step}");
    }
    documents.put(&numbered(1, 11)).unwrap();
    assert_eq!(n(1), Some(11));
    documents.delete(1).unwrap();
    assert_eq!(n(1), None);
    db.flush().unwrap();
    assert_eq!(n(1), None);
}

#[test]
fn a_collection_that_replaces_another_takes_its_name_in_one_step() {
    let sim = Sim::new();
    let (db, old) = made(&sim);
    old.put_many(&[numbered(1, 1), numbered(2, 1)]).unwrap();
    db.flush().unwrap();
    let fresh = db.create_documents("fresh", sessions(60)).unwrap();
    fresh.put_many(&[numbered(2, 2), numbered(3, 2)]).unwrap();
    let (before, reader) = (db.snapshot(), sim.builder().read_only().open().unwrap());
    db.replace_collection("fresh", "sessions").unwrap();

    assert_eq!(db.documents("fresh").unwrap_err().code(), Code::NamespaceNotFound);
    assert_eq!(numbers(&db), all(2..4, 2));
    assert_eq!(db.documents("sessions").unwrap().snapshot().unwrap().options(), &sessions(60));
    // A snapshot and a reader from before see what was replaced; its handle finds what took the name.
    assert_eq!((numbers_in(&before).unwrap(), numbers(&reader)), (all(1..3, 1), all(1..3, 1)));
    assert_eq!(fresh.put(&numbered(9, 9)).unwrap_err().code(), Code::NamespaceNotFound);
    // A name that is free is taken too.
    db.replace_collection("sessions", "others").unwrap();
    db.replace_collection("others", "sessions").unwrap();
    drop((before, reader, db));
    assert_eq!(numbers(&sim.on(sim.fs.crash(Variant::V0, 0)).open()), all(2..4, 2));
}

#[test]
fn a_collection_that_cannot_be_replaced_stays_as_it_is() {
    let sim = Sim::new();
    let (db, documents) = made(&sim);
    documents.put(&numbered(1, 1)).unwrap();
    db.create_collection("weather", ebbtide::CollectionOptions::new("t")).unwrap();
    db.put_view("now", "SELECT 1", ebbtide::Replaces::View).unwrap();
    let refused = [
        ("nothing", "sessions", Code::NamespaceNotFound),
        ("sessions", "sessions", Code::IllegalOperation),
        ("sessions", "weather", Code::InvalidOptions),
        ("weather", "sessions", Code::InvalidOptions),
        ("sessions", "now", Code::NamespaceExists),
        ("sessions", "", Code::InvalidNamespace),
    ];
    for (from, to, code) in refused {
        assert_eq!(db.replace_collection(from, to).unwrap_err().code(), code, "{from} to {to}");
    }
    assert_eq!(numbers(&db), all(1..2, 1));
}

#[test]
fn a_read_only_opener_reads_and_writes_nothing() {
    let sim = Sim::new();
    let (db, documents) = made(&sim);
    documents.put_many(&[numbered(1, 0), numbered(2, 0)]).unwrap();
    db.flush().unwrap();
    documents.put(&numbered(2, 1)).unwrap();
    let reader = sim.builder().read_only().open().unwrap();
    assert_eq!(numbers(&reader), BTreeMap::from([(1, 0), (2, 1)]));
    let store = reader.documents("sessions").unwrap();
    let writes = [store.put(&numbered(3, 0)).unwrap_err(), store.delete(1_i64).unwrap_err()];
    for error in writes {
        assert_eq!(error.code(), Code::IllegalOperation, "{error}");
    }
    assert!(reader.sweep().is_err());
    assert!(reader.create_documents("more", DocumentsOptions::default()).is_err());
    assert_eq!(reader.verify().unwrap().faults, Vec::<String>::new());
    drop(reader);
    assert_eq!(numbers(&db), BTreeMap::from([(1, 0), (2, 1)]));
}

#[test]
fn a_full_disk_loses_no_document() {
    let sim = Sim::new();
    let db = sim.open();
    let documents = db.create_documents("sessions", sessions(100)).unwrap();
    documents.put_many(&(0..500).map(|id| numbered(id, 0)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    documents.put_many(&(0..50).map(|id| numbered(id, 1)).collect::<Vec<_>>()).unwrap();
    let mut expected = all(0..500, 0);
    expected.extend(all(0..50, 1));
    for room in [0, 1, 100, 300] {
        sim.fs.set_capacity(Some(sim.fs.used() + room));
        let more = (100..400).map(|id| numbered(id, 2)).collect::<Vec<_>>();
        let error = documents.put_many(&more).unwrap_err();
        assert_eq!((error.code(), error.kind()), (Code::OutOfDiskSpace, ErrorKind::Full), "{error}");
        assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Full);
        assert_eq!(numbers(&db), expected);
        let crashed = sim.on(sim.fs.crash(Variant::V3, room));
        assert_eq!(numbers(&crashed.open()), expected);
    }
    sim.fs.set_capacity(None);
    sim.clock.set(at(100));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 500);
    documents.put(&numbered(1, 5)).unwrap();
    db.sweep().unwrap();
    assert_eq!(numbers(&db), BTreeMap::from([(1, 5)]));
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn on_a_full_disk_a_segment_that_is_due_goes_whole_though_some_of_it_was_replaced() {
    let sim = Sim::new();
    let db = sim.open();
    let documents = db.create_documents("sessions", sessions(100)).unwrap();
    for part in [0..20, 20..40] {
        documents.put_many(&part.map(|id| numbered(id, 0)).collect::<Vec<_>>()).unwrap();
        db.flush().unwrap();
    }
    sim.clock.set(at(50));
    // Of the first segment some documents are replaced in memory, of the second all.
    let refreshed = (10..40).map(|id| numbered(id, 1)).collect::<Vec<_>>();
    documents.put_many(&refreshed).unwrap();
    sim.fs.set_capacity(Some(sim.fs.used()));
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Full);
    sim.clock.set(at(100));
    let due = documents.snapshot().unwrap().explain_expiry(at(100), None).unwrap();
    assert_eq!(due.iter().fold((0, 0), |(b, n), row| (b + row.buckets, n + row.measurements)), (2, 10));
    let swept = db.sweep().unwrap().counts;
    assert_eq!((swept.deleted_buckets, swept.deleted_documents), (2, 10));
    assert_eq!(sim.files("seg-"), Vec::<std::path::PathBuf>::new());
    assert_eq!(numbers(&db), all(10..40, 1));
    let crashed = sim.on(sim.fs.crash(Variant::V3, 1));
    assert_eq!(numbers(&crashed.open()), all(10..40, 1));
    db.flush().unwrap();
    assert_eq!(numbers(&db), all(10..40, 1));
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn find_and_modify_removes_expired_documents_that_match_for_good() {
    let sim = Sim::new();
    let db = sim.open();
    let documents = db.create_documents("sessions", sessions(100)).unwrap();
    documents.put_many(&(0..4).map(|id| numbered(id, id)).collect::<Vec<_>>()).unwrap();
    sim.clock.set(at(50));
    documents.put(&numbered(3, 3)).unwrap();
    sim.clock.set(at(100));
    let command = json!({"findAndModify": "sessions", "query": {"n": {"$gte": 1}}, "update": {"$inc": {"n": 10}}});
    let reply = db.run_command(&command).unwrap();
    assert_eq!(reply["value"]["_id"], json!(3));
    let everything_returns = json!({"collMod": "sessions", "defaultTTL": "off"});
    db.run_command(&everything_returns).unwrap();
    assert_eq!(numbers(&db), BTreeMap::from([(0, 0), (3, 13)]));
}

#[test]
fn of_a_command_that_is_refused_halfway_nothing_is_left() {
    let sim = Sim::new();
    let db = sim.open();
    let documents = db.create_documents("sessions", sessions(100)).unwrap();
    documents.put(&numbered(1, 0)).unwrap();
    let error = documents.put_many(&[numbered(1, 1), numbered(2, 1), doc! { "_id": 3_i64, "ttl": 0 }]).unwrap_err();
    assert_eq!(error.code(), Code::BadValue, "{error}");
    assert_eq!(numbers(&db), all(1..2, 0));
    db.flush().unwrap();
    assert_eq!(numbers(&db), all(1..2, 0));
    // The same where the document is in a segment, and is written twice.
    let error = documents.put_many(&[numbered(1, 1), numbered(1, 2), doc! { "_id": 3_i64, "ttl": 0 }]).unwrap_err();
    assert_eq!(error.code(), Code::BadValue, "{error}");
    assert_eq!(numbers(&db), all(1..2, 0));
    db.flush().unwrap();
    assert_eq!(numbers(&db), all(1..2, 0));
    assert_eq!(numbers(&sim.on(sim.fs.crash(Variant::V0, 1)).open()), all(1..2, 0));
}

#[test]
fn an_update_of_many_that_fails_keeps_and_counts_what_it_did_before() {
    let sim = Sim::new();
    let (db, documents) = made(&sim);
    documents.put_many(&[numbered(1, 0), numbered(2, 0), numbered(3, i64::MAX), numbered(4, 0)]).unwrap();
    let change = rawdoc! { "$inc": { "n": 1_i64 } };
    let update = UpdateRequest::new(rawdoc! {}, RawBsonRef::Document(&change), true, false);
    let outcome = documents.update_many(vec![update], true).unwrap();
    let refused: Vec<_> = outcome.refused.iter().map(|(index, error)| (*index, error.code())).collect();
    assert_eq!((outcome.n, outcome.modified, refused), (2, 2, vec![(0, Code::BadValue)]));
    let kept = BTreeMap::from([(1, 1), (2, 1), (3, i64::MAX), (4, 0)]);
    assert_eq!(numbers(&db), kept);
    db.close().unwrap();
    assert_eq!(numbers(&sim.open()), kept);
}

#[test]
fn an_item_that_lives_longer_than_the_default_outlives_its_neighbours_in_the_segment() {
    let sim = Sim::new();
    let db = sim.open();
    let documents = db.create_documents("sessions", sessions(100)).unwrap();
    let mut long = numbered(1, 0);
    long.insert("ttl", 1_000);
    documents.put_many(&[numbered(0, 0), long, numbered(2, 0)]).unwrap();
    db.flush().unwrap();
    sim.clock.set(at(100));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 2);
    assert_eq!(numbers(&db), all(1..2, 0));
    drop((documents, db));
    let db = sim.open();
    assert_eq!(numbers(&db), all(1..2, 0));
    sim.clock.set(at(1_000));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 1);
    assert_eq!(sim.files("seg-"), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_wrong_clock_destroys_no_document() {
    let sim = Sim::new();
    let db = sim.open();
    let documents = db.create_documents("sessions", sessions(100)).unwrap();
    documents.put(&numbered(1, 0)).unwrap();
    db.sweep().unwrap();
    sim.clock.jump(at(10 * 86_400));
    for error in [documents.put(&numbered(1, 1)).unwrap_err(), documents.insert(&numbered(1, 1)).unwrap_err()] {
        assert_eq!(error.code(), Code::IllegalOperation, "{error}");
    }
    documents.put(&numbered(2, 0)).unwrap();
    assert!(db.sweep().unwrap().held.is_some());
    sim.clock.jump(at(1));
    assert_eq!(numbers(&db), all(1..3, 0));
}

#[test]
fn an_update_that_changes_nothing_is_a_write_all_the_same() {
    let sim = Sim::new();
    let db = sim.open();
    let documents = db.create_documents("sessions", sessions(100)).unwrap();
    documents.put(&numbered(1, 0)).unwrap();
    sim.clock.set(at(50));
    let updated = documents.update(1_i64, &doc! { "$set": { "n": 0_i64 } }).unwrap();
    assert_eq!((updated.matched, updated.modified), (1, 0));
    sim.clock.set(at(149));
    assert_eq!(numbers(&db), all(1..2, 0));
    sim.clock.set(at(150));
    assert_eq!(numbers(&db), BTreeMap::new());
}

/// Three segments of ten documents, and nothing in the log.
fn sealed() -> Sim {
    let sim = Sim::new();
    let (db, documents) = made(&sim);
    for part in [0..10, 10..20, 20..30] {
        documents.put_many(&part.map(|id| numbered(id, 0)).collect::<Vec<_>>()).unwrap();
        db.flush().unwrap();
    }
    db.abandon();
    sim
}

#[test]
fn damage_in_a_segment_is_found_named_never_served_and_repaired() {
    let sim = sealed();
    let segment = sim.files("seg-")[1].clone();
    let length = sim.fs.read(&segment).unwrap().len();
    for offset in (0..length).step_by(11) {
        let damaged = sim.on(sim.fs.fork());
        damaged.fs.tamper(&segment, |bytes| bytes[offset] ^= 1 << (offset % 8)).unwrap();
        let db = damaged.open();
        match numbers_in(&db.snapshot()) {
            Ok(numbers) => assert_eq!(numbers, all(0..30, 0), "offset {offset}"),
            Err(error) => {
                assert_eq!(error.code(), Code::DataCorruptionDetected, "{error}");
                assert_names(&error.to_string(), &segment);
            }
        }
        let faults = db.verify().unwrap().faults;
        assert_eq!(faults.len(), 1, "offset {offset}: {faults:?}");
        assert_names(&faults[0], &segment);
        if db.compact(None).is_ok() {
            assert_eq!(numbers(&db), all(0..30, 0), "offset {offset}");
        }
    }
    sim.fs.tamper(&segment, |bytes| bytes[length / 2] ^= 1).unwrap();
    let report = sim.builder().repair(RepairMode::Apply).unwrap();
    let lost: u64 = report.losses.iter().filter_map(|loss| loss.rows).sum();
    let db = sim.open();
    let left = numbers(&db);
    assert_eq!(left.len() as u64 + lost, 30, "{report}");
    assert!(left.len() >= 20 && left.values().all(|n| *n == 0), "{left:?}");
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn damage_in_a_log_with_documents_is_found_named_and_repaired() {
    let sim = Sim::new();
    let (db, documents) = made(&sim);
    for id in 0..3 {
        documents.put(&numbered(id, 0)).unwrap();
    }
    db.close().unwrap();
    let log = sim.file("wal-");
    let length = sim.fs.read(&log).unwrap().len();
    for offset in (36..length).step_by(17) {
        let damaged = sim.on(sim.fs.fork());
        damaged.fs.tamper(&log, |bytes| bytes[offset] ^= 1 << (offset % 8)).unwrap();
        let error = damaged.builder().open().expect_err("a damaged database is not opened");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_names(&error.to_string(), &log);
        let report = damaged.builder().repair(RepairMode::Apply).unwrap();
        assert!(!report.losses.is_empty(), "{report}");
        let left = numbers(&damaged.open());
        assert!(left.len() < 3 && left.iter().all(|(id, n)| *id < 3 && *n == 0), "offset {offset}: {left:?}");
    }
}

#[test]
fn a_time_to_live_that_counts_from_a_restored_clock_is_exact() {
    let sim = Sim::new();
    let db = sim.open();
    let documents = db.create_documents("sessions", sessions(10)).unwrap();
    sim.clock.set(Timestamp::from_nanos(at(0).nanos() + 999_999));
    documents.put(&numbered(1, 0)).unwrap();
    let written = |db: &Database| {
        let mut seen = Vec::new();
        let snapshot = db.snapshot().documents("sessions").unwrap();
        let visited = snapshot.for_each(&mut |found| {
            seen.push(found.written);
            Ok(true)
        });
        visited.unwrap();
        seen
    };
    assert_eq!(written(&db), [at(0)], "_ts is in whole milliseconds");
    db.flush().unwrap();
    db.close().unwrap();
    let db = sim.open();
    assert_eq!(written(&db), [at(0)]);
    sim.clock.set(Timestamp::from_nanos(at(10).nanos() - 1));
    assert_eq!(written(&db), [at(0)]);
    sim.clock.set(at(10));
    assert_eq!(written(&db), []);
    let snapshot = db.snapshot().documents("sessions").unwrap();
    assert_eq!(snapshot.explain_expiry(at(10), None).unwrap()[0].measurements, 1);
    assert_eq!(snapshot.explain_expiry(at(10), Some(&sessions(11))).unwrap(), [], "what a longer life would leave");
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 1);
}

#[test]
fn a_dry_run_says_what_a_sweep_does() {
    for (index, sealed) in [(false, false), (false, true), (true, false), (true, true)] {
        let sim = Sim::new();
        let db = sim.open();
        let documents = db.create_documents("sessions", sessions(100)).unwrap();
        if index {
            let key = serde_json::json!({"key": {"at": 1}, "name": "dates", "expireAfterSeconds": 5});
            db.run_command(&serde_json::json!({"createIndexes": "sessions", "indexes": [key]})).unwrap();
        }
        let one = |n: i64| match n % 4 {
            0 => doc! { "_id": n },
            1 => doc! { "_id": n, "ttl": 10_i64 },
            2 => doc! { "_id": n, "ttl": -1_i64 },
            _ => {
                doc! { "_id": n, "at": ebbtide::bson::DateTime::from_millis(at(30).to_units_saturating(Precision::Ms)) }
            }
        };
        documents.put_many(&(0..200).map(one).collect::<Vec<_>>()).unwrap();
        db.flush().unwrap();
        // A segment of which all is due, and rows that are replaced and removed.
        documents.put_many(&(200..300).map(|n| doc! { "_id": n, "ttl": 1_i64 }).collect::<Vec<_>>()).unwrap();
        db.flush().unwrap();
        for n in 0..20 {
            documents.put(&doc! { "_id": n, "ttl": 20_i64 }).unwrap();
            documents.delete(n + 50).unwrap();
        }
        if sealed {
            db.flush().unwrap();
        }
        for second in [0, 9, 10, 25, 40, 100, 200] {
            let now = at(second);
            sim.clock.set(now);
            let snapshot = db.snapshot().documents("sessions").unwrap();
            let rows = snapshot.explain_expiry(now, None).unwrap();
            let said = rows.iter().fold((0, 0), |sum, row| (sum.0 + row.buckets, sum.1 + row.measurements));
            let infos = snapshot.rule_infos().unwrap();
            let due = infos.iter().fold((0, 0), |sum, info| (sum.0 + info.due_buckets, sum.1 + info.due_measurements));
            let mut read = 0;
            let all = snapshot.for_each(&mut |_| {
                read += 1;
                Ok(true)
            });
            all.unwrap();
            assert_eq!(snapshot.count().unwrap(), read, "{index} {sealed} {second}");
            let counts = db.sweep().unwrap().counts;
            let dropped = (counts.deleted_buckets, counts.deleted_documents);
            assert_eq!((said, due), (dropped, dropped), "{index} {sealed} {second}");
            assert_eq!(db.documents("sessions").unwrap().snapshot().unwrap().count().unwrap(), read);
        }
    }
}

/// A minute after the start; does something once, when a sweep looks at the clock after its first round of visits.
#[derive(Default)]
struct Interrupting {
    looks: AtomicUsize,
    change: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// The sweep, its pass, its sub-pass and the visit look at the clock when they begin; the next look ends the round.
const LOOK_AFTER_FIRST_ROUND: usize = 5;

impl fmt::Debug for Interrupting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupting")
    }
}

impl Clock for Interrupting {
    fn now(&self) -> Timestamp {
        at(60)
    }

    fn monotonic(&self) -> Duration {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst) + 1;
        let change = if looks == LOOK_AFTER_FIRST_ROUND { self.change.lock().unwrap().take() } else { None };
        if let Some(change) = change {
            change();
        }
        Duration::ZERO
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

#[test]
fn a_life_that_is_made_longer_within_a_sweep_counts_from_the_next_visit() {
    let sim = Sim::new();
    let db = sim.open();
    let documents = db.create_documents("sessions", sessions(60)).unwrap();
    for id in 0..10 {
        // One is written later, so that they do not go as one.
        sim.clock.set(at(id / 9));
        documents.put(&doc! { "_id": id }).unwrap();
    }
    db.close().unwrap();
    let clock = Arc::new(Interrupting::default());
    let db = Arc::new(sim.builder().clock(clock.clone()).open().unwrap());
    for (name, value) in [("ttlIndexDeleteTargetDocs", 3), ("ttlIndexDeleteTargetTimeMS", 0)] {
        db.set_parameter(name, &Value::Int(value)).unwrap();
    }
    db.flush().unwrap();
    let visible = |db: &Database| db.documents("sessions").unwrap().snapshot().unwrap().count().unwrap();
    assert_eq!(visible(&db), 1);
    let other = db.clone();
    let longer = move || {
        let change = |options: &mut DocumentsOptions| {
            options.default_ttl = DefaultTtl::Seconds(3600);
            Ok(())
        };
        other.modify_documents("sessions", change).unwrap();
    };
    *clock.change.lock().unwrap() = Some(Box::new(longer));
    clock.looks.store(0, Ordering::SeqCst);
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 3);
    assert!(clock.change.lock().unwrap().is_none(), "the sweep had a second round");
    assert_eq!(visible(&db), 7);
}

#[test]
fn settings_that_the_commands_refuse_are_refused_by_the_library_too() {
    use ebbtide::IndexSpec;
    let sim = Sim::new();
    let db = sim.open();
    let index = |name: &str, key: &[(&str, i32)], e: Option<i64>| IndexSpec {
        name: name.to_owned(),
        key: key.iter().map(|(path, direction)| ((*path).to_owned(), *direction)).collect(),
        expire_after_seconds: e,
        filter: None,
    };
    let of = |indexes: Vec<IndexSpec>| DocumentsOptions { indexes, ..DocumentsOptions::default() };
    let plain = || index("at_1", &[("at", 1)], None);
    let wrong = [
        (sessions(0), Code::InvalidOptions),
        (sessions(1 << 31), Code::InvalidOptions),
        (of(vec![index("", &[("at", 1)], None)]), Code::CannotCreateIndex),
        (of(vec![index("items", &[("at", 1)], Some(60))]), Code::CannotCreateIndex),
        (of(vec![index("a\0", &[("at", 1)], None)]), Code::CannotCreateIndex),
        (of(vec![index(&"n".repeat(1 << 20), &[("at", 1)], None)]), Code::CannotCreateIndex),
        (of(vec![index("i", &[], None)]), Code::CannotCreateIndex),
        (of(vec![index("i", &[("at", 7)], None)]), Code::CannotCreateIndex),
        (of(vec![index("i", &[("at", 0)], None)]), Code::CannotCreateIndex),
        (of(vec![index("i", &[("a..b", 1)], None)]), Code::CannotCreateIndex),
        (of(vec![index("i", &[("_id", 1)], Some(60))]), Code::InvalidIndexSpecificationOption),
        (of(vec![index("i", &[("a", 1), ("b", 1)], Some(60))]), Code::CannotCreateIndex),
        (of(vec![index("i", &[("at", 1)], Some(-1))]), Code::CannotCreateIndex),
        (of(vec![IndexSpec { filter: Some(vec![1, 2, 3]), ..plain() }]), Code::BadValue),
        (of(vec![plain(), index("at_1", &[("b", 1)], None)]), Code::IndexKeySpecsConflict),
        (of(vec![plain(), index("other", &[("at", 1)], None)]), Code::IndexOptionsConflict),
        (of(vec![plain(), plain()]), Code::IndexOptionsConflict),
    ];
    db.create_documents("there", of(vec![plain()])).unwrap();
    for (options, code) in wrong {
        let refused = db.create_documents("sessions", options.clone()).unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        let replaced = db.modify_documents("there", |present| {
            *present = options;
            Ok(())
        });
        let refused = replaced.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
    let added = db.modify_documents("there", |present| {
        present.indexes.push(index("b_-1", &[("b", -1)], Some(0)));
        Ok(())
    });
    added.unwrap();
    assert_eq!(db.documents("there").unwrap().snapshot().unwrap().options().indexes.len(), 2);
}

#[test]
fn a_decision_on_documents_that_panics_or_is_missing_changes_nothing_and_other_writes_go_on() {
    use ebbtide::Rewrite;
    use ebbtide::documents_model::bson::rawdoc;
    let (db, documents) = made(&Sim::new());
    documents.put_many(&[numbered(1, 1), numbered(2, 2)]).unwrap();
    let panicked = documents.rewrite(&rawdoc! {}, false, |_| panic!("a bug")).unwrap_err();
    assert_eq!(panicked.code(), Code::IllegalOperation, "{panicked}");
    for count in [0, 1, 3] {
        let refused = documents.rewrite(&rawdoc! {}, false, move |_| Ok(vec![Rewrite::Remove; count])).unwrap_err();
        assert_eq!(refused.code(), Code::BadValue, "{refused}");
    }
    documents.put(&numbered(3, 3)).unwrap();
    assert_eq!(numbers(&db), BTreeMap::from([(1, 1), (2, 2), (3, 3)]));
    assert_eq!(documents.rewrite(&rawdoc! {}, false, |all| Ok(vec![Rewrite::Remove; all.len()])).unwrap(), 3);
}

#[test]
fn a_view_of_the_name_of_an_ordinary_collection_is_refused() {
    let (db, _) = made(&Sim::new());
    let refused = db.put_view("sessions", "SELECT 1", ebbtide::Replaces::View).unwrap_err();
    assert_eq!(refused.code(), Code::NamespaceExists);
}
