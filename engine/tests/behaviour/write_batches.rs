//! Inserts into several collections that are stored together, and requests that are stored once.

use crate::{NOTHING, Sim, at, numbers_in, reading, readings, weather};
use ebbtide::bson::rawdoc;
use ebbtide::ttl::{Code, Value};
use ebbtide::{BegunRequest, Database, DocumentsOptions, RepairMode, Request, WriteBatchError, WriteOutcome};
use std::time::Duration;

const ONE: [u8; 32] = [1; 32];
const TWO: [u8; 32] = [2; 32];

fn with_two(sim: &Sim) -> Database {
    let db = sim.open();
    db.create_collection("inside", weather()).unwrap();
    db.create_collection("outside", weather()).unwrap();
    db
}

fn both(db: &Database) -> (Vec<i64>, Vec<i64>) {
    let numbers = |name| numbers_in(&db.snapshot(), name).unwrap();
    (numbers("inside"), numbers("outside"))
}

fn store(db: &Database, inside: &[Value], outside: &[Value]) -> Result<u64, WriteBatchError> {
    db.write_batch().insert_documents("inside", inside).insert_documents("outside", outside).commit()
}

#[track_caller]
fn new(db: &Database, key: [u8; 32], digest: [u8; 32]) -> Request {
    match db.begin_request(key, digest).unwrap() {
        BegunRequest::New(request) => request,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_repeated(db: &Database, key: [u8; 32], reply: &[u8]) {
    match db.begin_request(key, TWO).unwrap() {
        BegunRequest::Repeated(found) => assert_eq!(found, reply),
        other => panic!("{other:?}"),
    }
}

fn store_once(db: &Database, key: [u8; 32], numbers: std::ops::Range<i64>) {
    let rows = readings(numbers);
    let batch = db.write_batch().insert_documents("inside", &rows).insert_documents("outside", &rows);
    batch.commit_once(&mut new(db, key, TWO), b"reply").unwrap();
}

#[test]
fn a_batch_is_stored_in_all_collections() {
    let sim = Sim::new();
    let db = with_two(&sim);
    assert_eq!(store(&db, &readings(0..3), &readings(10..12)).unwrap(), 5);
    assert_eq!(both(&db), (vec![0, 1, 2], vec![10, 11]));
    db.abandon();
    let db = sim.open();
    assert_eq!(both(&db), (vec![0, 1, 2], vec![10, 11]));
    assert_eq!(db.verify().unwrap().log_rows, 5);
    db.flush().unwrap();
    db.abandon();
    assert_eq!(both(&sim.open()), (vec![0, 1, 2], vec![10, 11]));
}

#[test]
fn a_bad_measurement_is_named_with_its_collection_and_nothing_is_stored() {
    let sim = Sim::new();
    let db = with_two(&sim);
    let bad = [reading(0, "roof", 1), Value::Object(vec![("v".into(), Value::Int(2))])];
    let refused = store(&db, &readings(0..3), &bad).unwrap_err();
    assert_eq!((refused.collection.as_deref(), refused.error.index()), (Some("outside"), Some(1)));
    assert!(refused.to_string().starts_with("collection 'outside': index 1: "), "{refused}");
    let missing = db.write_batch().insert_documents("inside", &bad[..1]).insert_documents("attic", &bad[..1]).commit();
    let missing = missing.unwrap_err();
    assert_eq!((missing.collection.as_deref(), missing.error.code()), (Some("attic"), Code::NamespaceNotFound));
    let twice = db.write_batch().insert_documents("inside", &bad[..1]).insert_documents("inside", &bad[..1]).commit();
    let twice = twice.unwrap_err();
    assert_eq!((twice.collection.as_deref(), twice.error.code()), (None, Code::BadValue));
    assert_eq!(both(&db), (NOTHING.to_vec(), NOTHING.to_vec()));
    assert_eq!(db.write_batch().commit().unwrap(), 0);
    assert_eq!(store(&db, &[], &readings(0..1)).unwrap(), 1);
}

#[test]
fn fields_of_both_collections_may_widen_in_one_batch() {
    let db = with_two(&Sim::new());
    store(&db, &readings(0..2), &readings(0..2)).unwrap();
    let half = |v: f64| Value::Object(vec![("t".into(), Value::Date(at(9))), ("v".into(), Value::Double(v))]);
    store(&db, &[half(0.5)], &[half(1.5)]).unwrap();
    assert_eq!(db.collection("inside").unwrap().snapshot().unwrap().count().unwrap(), 3);
    let large = Value::Object(vec![("t".into(), Value::Date(at(9))), ("w".into(), Value::Int((1 << 53) + 1))]);
    store(&db, &[], &[large]).unwrap();
    let fraction = Value::Object(vec![("t".into(), Value::Date(at(9))), ("w".into(), Value::Double(0.5))]);
    let refused = store(&db, &readings(5..6), &[fraction]).unwrap_err();
    assert_eq!((refused.collection.as_deref(), refused.error.code()), (Some("outside"), Code::TypeMismatch));
    assert_eq!(db.collection("inside").unwrap().snapshot().unwrap().count().unwrap(), 3);
}

#[test]
fn a_request_that_comes_again_gets_its_first_reply() {
    let sim = Sim::new();
    let db = with_two(&sim);
    store_once(&db, ONE, 0..2);
    is_repeated(&db, ONE, b"reply");
    assert!(matches!(db.begin_request(ONE, ONE).unwrap(), BegunRequest::OtherContent));
    db.abandon();
    // From the log, from a segment, and after a compaction.
    let db = sim.open();
    is_repeated(&db, ONE, b"reply");
    db.flush().unwrap();
    store_once(&db, TWO, 5..6);
    db.compact(None).unwrap();
    db.close().unwrap();
    let db = sim.open();
    is_repeated(&db, ONE, b"reply");
    is_repeated(&db, TWO, b"reply");
    assert_eq!(both(&db), (vec![0, 1, 5], vec![0, 1, 5]));
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn a_request_that_was_not_committed_is_as_if_it_had_not_been_sent() {
    let db = with_two(&Sim::new());
    drop(new(&db, ONE, TWO));
    let bad = [Value::Object(Vec::new())];
    let refused = db.write_batch().insert_documents("inside", &bad).commit_once(&mut new(&db, ONE, ONE), b"no");
    assert_eq!(refused.unwrap_err().collection.as_deref(), Some("inside"));
    // One without measurements is remembered too.
    db.write_batch().commit_once(&mut new(&db, ONE, TWO), b"nothing").unwrap();
    is_repeated(&db, ONE, b"nothing");
}

#[test]
fn a_request_waits_for_the_one_with_its_key() {
    let db = with_two(&Sim::new());
    let mut first = new(&db, ONE, TWO);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| match db.begin_request(ONE, TWO).unwrap() {
            BegunRequest::Repeated(reply) => reply,
            other => panic!("{other:?}"),
        });
        let rows = readings(0..1);
        db.write_batch().insert_documents("inside", &rows).commit_once(&mut first, b"first").unwrap();
        assert_eq!(second.join().unwrap(), b"first");
    });
    assert_eq!(both(&db), (vec![0], NOTHING.to_vec()));
}

#[test]
fn a_request_is_known_for_an_hour_of_the_monotonic_clock() {
    let sim = Sim::new();
    let db = with_two(&sim);
    store_once(&db, ONE, 0..1);
    sim.clock.jump(at(86_400));
    is_repeated(&db, ONE, b"reply");
    sim.clock.set_monotonic(Duration::from_secs(3599));
    is_repeated(&db, ONE, b"reply");
    sim.clock.set_monotonic(Duration::from_secs(3600));
    store_once(&db, ONE, 1..2);
    is_repeated(&db, ONE, b"reply");
    db.abandon();
    let db = sim.open();
    is_repeated(&db, ONE, b"reply");
    assert_eq!(both(&db).0, [0, 1]);
}

#[test]
fn old_requests_are_forgotten_together() {
    let sim = Sim::new();
    let db = with_two(&sim);
    let key = |n: u64| {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_le_bytes());
        key
    };
    for n in 0..1000 {
        db.write_batch().commit_once(&mut new(&db, key(n), TWO), b"reply").unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.verify().unwrap().rows, 1000);
    sim.clock.set_monotonic(Duration::from_secs(3600));
    drop(new(&db, key(1000), TWO));
    db.flush().unwrap();
    assert_eq!(db.verify().unwrap().rows, 0);
    drop(new(&db, key(7), TWO));
}

#[test]
fn the_keys_of_requests_are_no_collection_for_anybody() {
    let sim = Sim::new();
    let db = with_two(&sim);
    store_once(&db, ONE, 0..1);
    db.flush().unwrap();
    let hidden = ".requests";
    assert_eq!(db.document_collections(), Vec::<String>::new());
    assert_eq!(db.snapshot().all_collections(), ["inside", "outside"]);
    assert!(!db.snapshot().has_collection(hidden));
    for error in [
        db.documents(hidden).unwrap_err(),
        db.snapshot().documents(hidden).unwrap_err(),
        db.drop_collection(hidden).unwrap_err(),
        db.rename_collection(hidden, "keys").unwrap_err(),
        db.replace_collection(hidden, "keys").unwrap_err(),
        db.compact(Some(hidden)).unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::NamespaceNotFound, "{error}");
    }
    assert_eq!(db.verify().unwrap().segments, 3, "but they are verified");
}

#[test]
fn a_repair_keeps_batches_whole() {
    let sim = Sim::new();
    let db = with_two(&sim);
    store_once(&db, ONE, 0..2);
    store(&db, &readings(2..3), &readings(2..3)).unwrap();
    db.abandon();
    // The last record is damaged, and that it had been synced is known from a later one.
    let db = sim.open();
    store(&db, &readings(3..4), &readings(3..4)).unwrap();
    db.abandon();
    let logs = sim.files("wal-");
    sim.fs.tamper(logs.first().unwrap(), |bytes| *bytes.last_mut().unwrap() ^= 1).unwrap();
    assert_eq!(sim.builder().open().unwrap_err().code(), Code::DataCorruptionDetected);
    let report = sim.builder().repair(RepairMode::Apply).unwrap();
    assert_eq!(report.losses.iter().filter_map(|loss| loss.rows).sum::<u64>(), 2, "{report:?}");
    let db = sim.open();
    assert_eq!(both(&db), (vec![0, 1], vec![0, 1]));
    is_repeated(&db, ONE, b"reply");
}

#[test]
fn documents_of_a_request_are_stored_once() {
    let sim = Sim::new();
    let db = sim.open();
    let notes = db.create_documents("notes", DocumentsOptions::default()).unwrap();
    let documents = || [1, 2, 2].map(|id| Ok(rawdoc! { "_id": id })).to_vec();
    let mut request = new(&db, ONE, TWO);
    let reply = |outcome: &WriteOutcome| vec![u8::try_from(outcome.refused.len()).unwrap()];
    let outcome = notes.insert_many_once(documents(), &mut request, reply).unwrap();
    assert_eq!((outcome.n, outcome.refused.len()), (2, 1));
    let again = notes.insert_many_once(documents(), &mut request, reply).unwrap_err();
    assert_eq!(again.code(), Code::IllegalOperation);
    drop(request);
    db.abandon();
    let db = sim.open();
    is_repeated(&db, ONE, &[1]);
    assert_eq!(db.documents("notes").unwrap().snapshot().unwrap().count().unwrap(), 2);
    // One that does nothing is remembered too.
    let mut request = new(&db, TWO, TWO);
    db.documents("notes").unwrap().insert_many_once(documents(), &mut request, reply).unwrap();
    drop(request);
    is_repeated(&db, TWO, &[3]);
    // And one whose reply is too long is not stored.
    let mut request = new(&db, [3; 32], TWO);
    let long = db
        .documents("notes")
        .unwrap()
        .insert_many_once(vec![Ok(rawdoc! { "_id": 9 })], &mut request, |_| vec![0; (16 << 20) + 1]);
    assert_eq!(long.unwrap_err().code(), Code::BSONObjectTooLarge);
    assert_eq!(db.documents("notes").unwrap().snapshot().unwrap().count().unwrap(), 2);
}

#[test]
fn documents_that_would_be_refused_are_told_without_storing_any() {
    let db = with_two(&Sim::new());
    let bad = Value::Object(vec![("v".into(), Value::Int(2))]);
    let documents = [reading(0, "roof", 1), bad.clone(), reading(1, "roof", 2), bad];
    let documents: Vec<&Value> = documents.iter().collect();
    let inside = db.collection("inside").unwrap();
    let refused: Vec<usize> =
        inside.check_measurements_lenient(&documents).unwrap().into_iter().map(|(at, _)| at).collect();
    assert_eq!(refused, [1, 3]);
    assert_eq!(inside.snapshot().unwrap().count().unwrap(), 0);
}
