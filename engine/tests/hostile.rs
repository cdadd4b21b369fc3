//! What is too deep, too long, too wide or too much: each is refused with a clear and short error, or works; nothing is lost
//! either way.

use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use ebbtide::bson::{Bson, Document, doc, raw::RawBson};
use ebbtide::buckets::{BATCH_BYTES_MAX, DOCUMENT_BYTES_MAX, FIELD_NAME_BYTES_MAX, FIELDS_MAX, META_BYTES_MAX};
use ebbtide::documents_model::json::to_relaxed_value;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Code, Filter, RuleSpec, Timestamp, Value, VirtualClock};
use ebbtide::{Collection, CollectionOptions, Database, DocumentsOptions, Error, json};
use serde_json::{Value as Json, json};
use std::sync::Arc;

const ROOT: &str = "/data/db";
const NOON: i64 = 1_700_049_600_000;
const MEGABYTE: usize = 1 << 20;

fn open(fs: &SimFs) -> Database {
    let clock = VirtualClock::new(Timestamp::from_millis(NOON));
    Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(Arc::new(clock)).open().expect("opens")
}

/// A database with one measurement, on its disk.
fn start() -> (SimFs, Database, Collection) {
    let fs = SimFs::new(ROOT);
    let db = open(&fs);
    let c = db.create_collection("c", CollectionOptions::new("t").meta_field("m")).expect("is made");
    c.insert_documents(&[document(vec![("x", Value::Int(1))])]).expect("is stored");
    (fs, db, c)
}

fn document(members: Vec<(&str, Value)>) -> Value {
    let time = ("t".into(), Value::Date(Timestamp::from_millis(NOON)));
    Value::Object(std::iter::once(time).chain(members.into_iter().map(|(n, v)| (n.into(), v))).collect())
}

/// Nothing is lost by what was refused: the rows are there, also for the next one who opens it.
fn still_holds(fs: &SimFs, (db, c): (Database, Collection), rows: u64) {
    assert_eq!(c.snapshot().and_then(|s| s.count()).expect("counts"), rows);
    db.flush().expect("flushes");
    drop((db, c));
    let db = open(fs);
    assert_eq!(db.collection("c").and_then(|c| c.snapshot()?.count()).expect("counts"), rows);
    assert_eq!(db.verify().expect("verifies").faults, Vec::<String>::new());
}

fn short(error: &Error) -> &Error {
    assert!(error.to_string().len() < 3_000, "{} bytes of message", error.to_string().len());
    error
}

fn deep_json(levels: usize, open: &str, close: &str) -> String {
    format!("{}1{}", open.repeat(levels), close.repeat(levels))
}

#[test]
fn ten_thousand_levels_are_refused_at_every_door() {
    let (fs, db, c) = start();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        // As text it does not even become JSON; as JSON it does not become a value; as a value it is no measurement.
        assert!(serde_json::from_str::<Json>(&deep_json(10_000, open, close)).is_err());
        let text = deep_json(120, open, close);
        let parsed: Json = serde_json::from_str(&text).expect("within the parser's limit");
        assert_eq!(json::value_of(&parsed).expect_err("too deep").code(), Code::BadValue);
        let insert = json!({"insert": "c", "documents": [{"t": {"$date": NOON}, "x": parsed}]});
        assert_eq!(short(&db.run_command(&insert).expect_err("too deep")).code(), Code::BadValue);
        for command in [
            json!({"find": "c", "filter": {"x": parsed}}),
            json!({"delete": "c", "deletes": [{"q": {"x": parsed}, "limit": 0}]}),
            json!({"createIndexes": "c", "indexes": [{"key": {"t": 1}, "name": "i", "expireAfterSeconds": 1,
                "partialFilterExpression": {"m": parsed}}]}),
            json!({"create": "d", "timeseries": {"timeField": parsed}}),
            json!({"ping": parsed}),
            parsed.clone(),
        ] {
            // A ping does not mind.
            let _refused = db.run_command(&command).map_err(|e| short(&e).code());
        }
    }
    for wrap in [(|v| Value::Array(vec![v])) as fn(Value) -> Value, |v| Value::Object(vec![("a".into(), v)])] {
        let deep = (0..10_000).fold(Value::Int(1), |v, _| wrap(v));
        let error = c.insert_documents(&[document(vec![]), document(vec![("x", deep)])]).expect_err("too deep");
        assert_eq!((short(&error).code(), error.index()), (Code::BadValue, Some(1)));
        let deep = (0..10_000).fold(Value::Int(1), |v, _| wrap(v));
        assert!(Filter::parse_query(&Value::Object(vec![("x".into(), deep)])).is_err());
    }
    still_holds(&fs, (db, c), 1);
}

/// A document of so many levels.
fn deep_document(levels: usize, in_lists: bool) -> Document {
    let wrap = |inner: Bson| if in_lists { Bson::Array(vec![inner]) } else { Bson::Document(doc! { "a": inner }) };
    doc! { "_id": 1_i64, "deep": (1..levels).fold(Bson::Int64(1), |inner, _| wrap(inner)) }
}

#[test]
fn documents_of_more_than_a_hundred_levels_are_refused_before_they_reach_the_log() {
    let fs = SimFs::new(ROOT);
    let db = open(&fs);
    let documents = db.create_documents("d", DocumentsOptions::default()).expect("is made");
    let whole = doc! { "_id": 1_i64, "n": 0_i64, "list": [] };
    for in_lists in [false, true] {
        documents.put(&deep_document(100, in_lists)).expect("a hundred levels are stored");
        documents.put(&whole).expect("is stored");
        for levels in [101, 102, 130, 200] {
            let deep = deep_document(levels, in_lists);
            let value = deep.get("deep").expect("a value").clone();
            let half = (0..60).map(|_| "a").collect::<Vec<_>>().join(".");
            let mut outcomes = vec![
                documents.put(&deep).map(drop),
                documents.insert(&doc! { "deep": value.clone() }).map(drop),
                documents.put_many(&[whole.clone(), deep.clone()]).map(drop),
                documents.update(1_i64, &deep).map(drop),
                documents.update(1_i64, &doc! { "$set": { "x": value.clone() } }).map(drop),
                documents.update(1_i64, &doc! { "$push": { "list": value.clone() } }).map(drop),
                documents.update(1_i64, &doc! { "$addToSet": { "list": { "$each": [value.clone()] } } }).map(drop),
                documents.update(1_i64, &doc! { "$set": { half: deep_document(60, in_lists) } }).map(drop),
                documents.find::<Document>(&deep).map(drop).and(documents.put(&deep).map(drop)),
            ];
            if levels < 150 {
                let raw = RawBson::try_from(value).expect("a value");
                let deep = &to_relaxed_value(raw.as_raw_bson_ref());
                let commands = [
                    json!({"insert": "d", "documents": [{"deep": deep}]}),
                    json!({"update": "d", "updates": [{"q": {"_id": 7}, "u": {"deep": deep}, "upsert": true}]}),
                    json!({"update": "d", "updates": [{"q": {"_id": 7, "deep": deep}, "u": {"$set": {"x": 1}}, "upsert": true}]}),
                    json!({"update": "d", "updates": [{"q": {}, "u": {"$set": {"x": deep}}, "multi": true}]}),
                    json!({"findAndModify": "d", "query": {"_id": 7}, "update": {"$set": {"x": deep}}, "upsert": true}),
                    json!({"createIndexes": "d", "indexes": [{"key": {"t": 1}, "name": "i", "expireAfterSeconds": 1,
                        "partialFilterExpression": {"deep": deep}}]}),
                ];
                outcomes.extend(commands.into_iter().map(|command| {
                    let reply = db.run_command(&command)?;
                    let code = reply["writeErrors"][0]["codeName"].as_str().unwrap_or_default().to_owned();
                    assert_eq!(code, "BadValue", "{reply}");
                    Err(Error::new(Code::BadValue, code))
                }));
            }
            for (at, outcome) in outcomes.into_iter().enumerate() {
                let error = outcome.expect_err("too deep");
                assert_eq!(short(&error).code(), Code::BadValue, "door {at}, {levels} levels: {error}");
            }
        }
        let held: Document = documents.get(1_i64).expect("reads").expect("is there");
        assert_eq!(held, whole);
    }
    assert_eq!(documents.snapshot().and_then(|s| s.count()).expect("counts"), 1);
    db.abandon();
    let db = open(&fs);
    assert_eq!(db.verify().expect("verifies").faults, Vec::<String>::new());
    let held: Option<Document> = db.documents("d").and_then(|d| d.get(1_i64)).expect("reads");
    assert_eq!(held, Some(whole));
}

#[test]
fn names_of_a_megabyte_are_refused_with_a_short_message() {
    let (fs, db, c) = start();
    let long = "n".repeat(MEGABYTE);
    let one = Value::Int(1);
    let error = c.insert_documents(&[document(vec![(&long, one.clone())])]).expect_err("too long");
    assert_eq!(short(&error).code(), Code::BadValue);
    let inner = Value::Object(vec![(long.as_str().into(), one.clone())]);
    for name in ["x2", "m"] {
        let error = c.insert_documents(&[document(vec![(name, inner.clone())])]).expect_err("too long");
        assert_eq!(short(&error).code(), Code::BadValue);
    }
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![NOON]));
    let ones: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter([("t", times), (long.as_str(), ones)]).expect("a batch");
    assert_eq!(short(&c.insert(&batch).expect_err("too long")).code(), Code::BadValue);
    let error = db.create_collection(&long, CollectionOptions::new("t")).expect_err("too long");
    assert_eq!(short(&error).code(), Code::InvalidNamespace);
    for options in [CollectionOptions::new(&long), CollectionOptions::new("t").meta_field(&long)] {
        let error = db.create_collection("d", options).expect_err("too long");
        assert_eq!(short(&error).code(), Code::InvalidOptions);
    }
    let rule = RuleSpec::new(&long, 60, Filter::eq("m", one));
    assert_eq!(short(&db.create_rules("c", vec![rule]).expect_err("too long")).code(), Code::CannotCreateIndex);
    short(&db.collection(&long).expect_err("is not there"));
    for command in [
        json!({(long.as_str()): 1}),
        json!({"ping": 1, (long.as_str()): 1}),
        json!({"drop": long}),
        json!({"create": "d", "timeseries": {"timeField": "t", (long.as_str()): 1}}),
        json!({"create": "d", "timeseries": {"timeField": "t", "granularity": long}}),
        json!({"createIndexes": "c", "indexes": [{"key": {(long.as_str()): 1}, "expireAfterSeconds": 1,
            "partialFilterExpression": {"m": 1}}]}),
        json!({"createIndexes": "c", "indexes": [{"key": {"t": 1}, "name": long, "expireAfterSeconds": 1,
            "partialFilterExpression": {"m": 1}}]}),
        json!({"dropIndexes": "c", "index": long}),
        json!({"getParameter": 1, (long.as_str()): 1}),
        json!({"find": "c", "filter": {(format!("${long}")): 1}}),
        json!({"insert": "c", "documents": [{"t": {"$date": long}}]}),
        json!({"insert": "c", "documents": [{"t": {"$numberLong": long}}]}),
    ] {
        let error = db.run_command(&command).expect_err("too long");
        assert!(!short(&error).to_string().is_empty());
    }
    let longest = "n".repeat(FIELD_NAME_BYTES_MAX);
    c.insert_documents(&[document(vec![(&longest, Value::Int(1))])]).expect("as long as a name may be");
    still_holds(&fs, (db, c), 2);
}

#[test]
fn ten_thousand_fields_are_the_most() {
    let (fs, db, c) = start();
    let names: Vec<String> = (0..FIELDS_MAX).map(|i| format!("f{i}")).collect();
    let wide = |count: usize| document(names[..count].iter().map(|n| (n.as_str(), Value::Int(1))).collect());
    let error = c.insert_documents(&[wide(FIELDS_MAX)]).expect_err("one more than there may be");
    assert_eq!((short(&error).code(), error.index()), (Code::BadValue, Some(0)));
    let ones: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![NOON]));
    let columns = names.iter().map(|n| (n.as_str(), ones.clone())).chain([("t", times)]);
    let error = c.insert(&RecordBatch::try_from_iter(columns).expect("a batch")).expect_err("one more");
    assert_eq!(short(&error).code(), Code::BadValue);
    let inner = Value::Object(names.iter().map(|n| (n.as_str().into(), Value::Bool(true))).collect());
    assert!(c.insert_documents(&[document(vec![("x2", inner)])]).is_err(), "members count too");
    c.insert_documents(&[wide(200)]).expect("two hundred are few");
    still_holds(&fs, (db, c), 2);
}

#[test]
fn the_ends_of_time_are_stored_or_refused() {
    let (fs, db, c) = start();
    let past: i128 = 1 << 63;
    for t in [i64::MIN, i64::MAX, i64::MAX - 1, -1] {
        c.insert_documents(&[Value::Object(vec![("t".into(), Value::Date(Timestamp::from_millis(t)))])]).expect("fits");
    }
    for nanos in [past * 1_000_000, -past * 1_000_000 - 1, i128::MAX, i128::MIN] {
        let one = Value::Object(vec![("t".into(), Value::Date(Timestamp::from_nanos(nanos)))]);
        assert_eq!(short(&c.insert_documents(&[one]).expect_err("no such time")).code(), Code::BadValue);
    }
    for given in
        [json!({"$date": {"$numberLong": "9223372036854775808"}}), json!({"$date": 9.3e18}), json!({"$date": u64::MAX})]
    {
        let error = db.run_command(&json!({"insert": "c", "documents": [{"t": given}]})).expect_err("no such time");
        assert_eq!(short(&error).code(), Code::BadValue);
    }
    db.run_command(
        &json!({"collMod": "c", "expireAfterSeconds": 2_147_483_647_i64, "timeseries": {"outOfRange": "expire"}}),
    )
    .or_else(|_| db.run_command(&json!({"collMod": "c", "expireAfterSeconds": 2_147_483_647_i64})))
    .expect("the longest rule");
    db.flush().expect("flushes");
    db.sweep().expect("sweeps");
    let info = c.snapshot().and_then(|s| s.info()).expect("lists");
    assert!(info.measurements >= 4, "{info:?}");
    let rows = c.snapshot().and_then(|s| s.count()).expect("counts");
    still_holds(&fs, (db, c), rows);
}

#[test]
fn metas_have_a_size_and_any_number() {
    let (fs, db, c) = start();
    let text = |bytes: usize| Value::String("m".repeat(bytes));
    for meta in [text(META_BYTES_MAX), text(8 * MEGABYTE), Value::Object(vec![("a".into(), text(META_BYTES_MAX))])] {
        let c = db.create_collection("o", CollectionOptions::new("t").meta_field("m")).expect("is made");
        let error = c.insert_documents(&[document(vec![("m", Value::Null)]), document(vec![("m", meta)])]);
        let error = error.expect_err("too large");
        assert_eq!((short(&error).code(), error.index()), (Code::BSONObjectTooLarge, Some(1)), "{error}");
    }
    c.insert_documents(&[document(vec![("m", text(META_BYTES_MAX - 16))])]).expect("as large as may be");
    let count = 100_000;
    let names: Vec<String> = (0..count).map(|i| format!("s{i}")).collect();
    let metas: ArrayRef = Arc::new(StringArray::from(names));
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![NOON; count]));
    c.insert(&RecordBatch::try_from_iter([("t", times), ("m", metas)]).expect("a batch")).expect("any number");
    assert_eq!(c.snapshot().and_then(|s| s.bucket_count()).expect("counts"), count as u64 + 2);
    still_holds(&fs, (db, c), count as u64 + 2);
}

#[test]
fn an_insert_that_is_too_large_is_refused_as_a_whole() {
    let (fs, db, c) = start();
    let value = vec![7_u8; DOCUMENT_BYTES_MAX];
    let count = BATCH_BYTES_MAX / DOCUMENT_BYTES_MAX;
    let column = |count: usize| -> ArrayRef { Arc::new(BinaryArray::from(vec![value.as_slice(); count])) };
    let batch = |count: usize| {
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![NOON; count]));
        RecordBatch::try_from_iter([("t", times), ("b", column(count))]).expect("a batch")
    };
    let error = c.insert(&batch(count)).expect_err("too large");
    assert_eq!(short(&error).code(), Code::BSONObjectTooLarge);
    assert!(error.to_string().contains("split it"), "{error}");
    c.insert(&batch(2)).expect("a part of it");
    still_holds(&fs, (db, c), 3);
}
