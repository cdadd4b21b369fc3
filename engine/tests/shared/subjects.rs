//! Small databases with every kind of file, and what they held at each moment.

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int64Type, TimestampMillisecondType};
use ebbtide::bson::{Document, doc};
use ebbtide::fs::sim::SimFs;
use ebbtide::{CollectionOptions, Database, DefaultTtl, DocumentsOptions, Error, ScanRequest};
use ebbtide_ttl::{Filter, RuleSpec, Timestamp, Value, VirtualClock};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const ROOT: &str = "/data/db";
const NOON: i64 = 1_700_049_600_000;
const HOUR: i64 = 3_600_000;
/// The ordinary collection.
pub(crate) const OF_DOCUMENTS: &str = "d";

/// The rows of each collection by id: time, meta, value. Of a document: `_ts`, its content, nothing.
pub(crate) type Held = BTreeMap<String, BTreeMap<i64, (i64, String, u64)>>;

pub(crate) fn clock() -> VirtualClock {
    VirtualClock::new(Timestamp::from_millis(NOON))
}

pub(crate) fn open(fs: &SimFs) -> Result<Database, Error> {
    Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(Arc::new(clock())).open()
}

fn documents(first: i64, count: i64, t: i64) -> Vec<Value> {
    let document = |id: i64| {
        Value::Object(vec![
            ("t".into(), Value::Date(Timestamp::from_millis(t + (id - first) * 60_000))),
            ("m".into(), Value::String(["a", "b", "d"][usize::try_from(id).unwrap_or(0) % 3].to_owned())),
            ("id".into(), Value::Int(id)),
            ("x".into(), Value::Double(id as f64 * 0.25)),
        ])
    };
    (first..first + count).map(document).collect()
}

pub(crate) fn read(db: &Database) -> Result<Held, Error> {
    let mut held = Held::new();
    let snapshot = db.snapshot();
    for name in snapshot.collections() {
        let rows = held.entry(name.clone()).or_default();
        let request = ScanRequest { include_hidden: true, ..ScanRequest::default() };
        for unit in snapshot.collection(&name)?.scan(&request)? {
            for batch in unit.read()? {
                let batch = batch?;
                let column = |name: &str| batch.column_by_name(name).expect("the column is there");
                let (id, t) = (column("id"), column("t").as_primitive::<TimestampMillisecondType>());
                let (x, m) = (column("x").as_primitive::<Float64Type>(), column("m").as_string_view());
                for (row, id) in id.as_primitive::<Int64Type>().values().iter().enumerate() {
                    let fresh = rows.insert(*id, (t.value(row), m.value(row).to_owned(), x.value(row).to_bits()));
                    assert!(fresh.is_none(), "row {id} is there twice");
                }
            }
        }
    }
    // Before anything could expire.
    let snapshot = db.snapshot_at(Timestamp::from_millis(0));
    for name in db.document_collections() {
        let rows = held.entry(name.clone()).or_default();
        snapshot.documents(&name)?.for_each(&mut |found| {
            let id = found.document.get_i64("_id").expect("an _id");
            let content = Document::try_from(&*found.document).expect("a document").to_string();
            let written = found.written.to_units(ebbtide_ttl::Precision::Ms).expect("in range");
            assert!(rows.insert(id, (written, content, 0)).is_none(), "document {id} is there twice");
            Ok(true)
        })?;
    }
    Ok(held)
}

/// Puts documents in the places of those that have their `_id`s, in one step.
fn put(db: &Database, ids: std::ops::Range<i64>, number: i64) {
    let new = ids.map(|id| doc! { "_id": id, "n": number, "text": format!("document {id}"), "list": [id, 1.5] });
    let documents = db.documents(OF_DOCUMENTS).expect("is there");
    documents.put_many(&new.collect::<Vec<_>>()).expect("puts");
}

fn make_documents(db: &Database) {
    let options = DocumentsOptions { default_ttl: DefaultTtl::Seconds(48 * 3600), ..DocumentsOptions::default() };
    db.create_documents(OF_DOCUMENTS, options).expect("create");
}

/// A database at some moment, and all states that it went through, the last one last.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) fs: SimFs,
    pub(crate) closed: bool,
    pub(crate) states: Vec<Held>,
}

impl Subject {
    /// A row that was not there at any time.
    pub(crate) fn stranger(&self, found: &Held) -> Option<i64> {
        let known =
            |name: &String, id: &i64, row| self.states.iter().any(|s| s.get(name).and_then(|r| r.get(id)) == Some(row));
        found.iter().find_map(|(name, rows)| rows.iter().find(|(id, row)| !known(name, id, *row)).map(|(id, _)| *id))
    }
}

/// Two segments, a rule, a delete, documents in two segments and replaced in the log, and all sealed by a close; open buckets in the log and a crash; never flushed, and a crash;
/// the same, and then closed, as the last handle does it, without sealing.
pub(crate) fn subjects() -> Vec<Subject> {
    let fs = SimFs::new(ROOT);
    let db = open(&fs).expect("open");
    let mut states = vec![read(&db).expect("read")];
    let note = |db: &Database, states: &mut Vec<Held>| {
        let held = read(db).expect("read");
        if states.last() != Some(&held) {
            states.push(held);
        }
    };
    let options = || CollectionOptions::new("t").meta_field("m").span_seconds(3600).expire_after_seconds(48 * 3600);
    let c = db.create_collection("c", options()).expect("create");
    note(&db, &mut states);
    db.create_rules("c", vec![RuleSpec::new("r", 7200, Filter::eq("m", Value::String("d".into())))]).expect("rule");
    for (first, count, t) in [(1, 30, NOON - 2 * HOUR), (100, 12, NOON - HOUR)] {
        c.insert_documents(&documents(first, count, t)).expect("insert");
        note(&db, &mut states);
        db.flush().expect("flush");
    }
    c.delete(&Filter::eq("id", Value::Int(103))).expect("delete");
    note(&db, &mut states);
    make_documents(&db);
    note(&db, &mut states);
    for ids in [1..9, 6..12] {
        put(&db, ids, 1);
        note(&db, &mut states);
        db.flush().expect("flush");
    }
    db.create_collection("e", options()).expect("create");
    note(&db, &mut states);
    // Rows of both segments are replaced, and one is removed, in the log alone.
    put(&db, 4..8, 2);
    note(&db, &mut states);
    db.documents(OF_DOCUMENTS).and_then(|documents| documents.delete(10_i64)).expect("delete");
    note(&db, &mut states);
    c.insert_documents(&documents(200, 6, NOON - HOUR)).expect("insert");
    note(&db, &mut states);
    for first in [210, 220, 230] {
        c.insert_documents(&documents(first, 2, NOON - HOUR)).expect("insert");
        note(&db, &mut states);
    }
    let young = {
        let fs = SimFs::new(ROOT);
        let db = open(&fs).expect("open");
        let mut states = vec![read(&db).expect("read")];
        let c = db.create_collection("c", options()).expect("create");
        note(&db, &mut states);
        make_documents(&db);
        note(&db, &mut states);
        for first in [1, 10] {
            c.insert_documents(&documents(first, 4, NOON - HOUR)).expect("insert");
            note(&db, &mut states);
        }
        for ids in [1..4, 2..5] {
            put(&db, ids.clone(), ids.end);
            note(&db, &mut states);
        }
        let young = Subject { name: "never flushed", fs: fs.fork(), closed: false, states: states.clone() };
        drop((c, db));
        [young, Subject { name: "closed with open buckets", fs: fs.fork(), closed: true, states }]
    };
    let crashed = Subject { name: "after a crash", fs: fs.fork(), closed: false, states: states.clone() };
    db.close().expect("close");
    let closed = Subject { name: "after a close", fs: fs.fork(), closed: true, states };
    [closed, crashed].into_iter().chain(young).collect()
}
