//! Ids of inserts: that they tell after a crash what is stored, and outlive the rows.

use crate::{Sim, made, readings, weather};
use ebbtide::buckets::{Schema, batch_from_documents};
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::{Filter, Precision, Value};
use ebbtide::{BatchId, Collection, Database, LastBatch, RepairMode, ScanRequest};

const ROWS: i64 = 4;

/// Stores batch `number`: rows with values from `number * ROWS` on.
fn store(collection: &Collection, number: u64) -> ebbtide::Result<u64> {
    let first = i64::try_from(number).unwrap() * ROWS;
    let schema = Schema::new("t", Some("sensor".to_owned()), Precision::Ms);
    let batch = batch_from_documents(&readings(first..first + ROWS), &schema).unwrap().batch;
    collection.insert_with_id(&batch, BatchId { source: 7, number })
}

fn last(db: &Database) -> Option<LastBatch> {
    db.snapshot().collection("weather").unwrap().last_batch()
}

fn newest(number: u64) -> Option<LastBatch> {
    Some(LastBatch { id: BatchId { source: 7, number }, is_newest: true })
}

fn stored(db: &Database) -> i64 {
    let all = ScanRequest { include_hidden: true, ..ScanRequest::default() };
    let collection = db.snapshot().collection("weather").unwrap();
    let units = collection.scan(&all).unwrap();
    units.iter().flat_map(|unit| unit.read().unwrap()).map(|batch| batch.unwrap().num_rows() as i64).sum()
}

#[test]
fn after_a_crash_at_any_step_the_last_id_is_that_of_the_last_stored_batch() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    sim.fs.record();
    for number in 1..=6 {
        store(&collection, number).unwrap();
        match number {
            2 => db.flush().unwrap(),
            4 => db.compact(None).unwrap(),
            _ => {}
        }
    }
    let steps = sim.fs.steps().len();
    assert!(steps > 12, "{steps}");
    for step in 0..steps {
        for variant in [Variant::V0, Variant::V1] {
            let db = sim.on(sim.fs.before_step(step).crash(variant, step as u64)).open();
            let batches = u64::try_from(stored(&db) / ROWS).unwrap();
            assert_eq!(stored(&db) % ROWS, 0);
            let expected = if batches == 0 { None } else { newest(batches) };
            assert_eq!(last(&db), expected, "before step {step}, {variant:?}");
        }
    }
}

#[test]
fn an_id_outlives_its_rows_and_goes_with_the_collection() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    store(&collection, 1).unwrap();
    assert_eq!(last(&db), newest(1));
    // Into a segment, all rows deleted, through two manifests, a repair and a drop.
    db.flush().unwrap();
    store(&collection, 2).unwrap();
    assert_eq!(collection.delete(&Filter::everything()).unwrap(), 8);
    db.compact(None).unwrap();
    db.close().unwrap();
    for _ in 0..2 {
        let db = sim.open();
        assert_eq!((last(&db), stored(&db)), (newest(2), 0));
        db.abandon();
    }
    sim.builder().repair(RepairMode::Apply).unwrap();
    let db = sim.open();
    assert_eq!(last(&db), newest(2));
    let id = db.snapshot().collection("weather").unwrap().id();
    db.drop_collection("weather").unwrap();
    db.create_collection("weather", weather()).unwrap();
    assert_eq!(last(&db), None);
    assert_ne!(db.snapshot().collection("weather").unwrap().id(), id);
}

#[test]
fn an_insert_without_an_id_is_told_from_the_last_one_with_an_id() {
    for sealed in [false, true] {
        let sim = Sim::new();
        let (db, collection) = made(&sim);
        store(&collection, 3).unwrap();
        if sealed {
            db.flush().unwrap();
        }
        collection.insert_documents(&readings(0..1)).unwrap();
        let followed = newest(3).map(|last| LastBatch { is_newest: false, ..last });
        assert_eq!(last(&db), followed);
        if sealed {
            db.flush().unwrap();
        }
        db.abandon();
        let db = sim.open();
        assert_eq!(last(&db), followed);
        store(&db.collection("weather").unwrap(), 4).unwrap();
        assert_eq!(last(&db), newest(4));
    }
}

#[test]
fn a_refused_batch_leaves_no_id() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    collection
        .insert_documents(&[Value::Object(vec![
            ("t".into(), Value::Date(crate::at(0))),
            ("v".into(), Value::from("text")),
        ])])
        .unwrap();
    store(&collection, 1).unwrap_err();
    assert_eq!(last(&db), None);
}
