//! Kills a real writer process a hundred times and looks for what it had acknowledged.
//!
//! The writer is this test binary itself, started again with `EBBTIDE_KILL_DIR` set. It prints the number of each batch
//! once the batch is acknowledged; the parent kills it (SIGKILL) after some of those lines, wherever the writer is by
//! then: in a group commit, a flush, a compaction, a sweep, a checkpoint.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ebbtide::bson::{DateTime, Document, doc};
use ebbtide::ttl::{Filter, SystemClock, Timestamp, Value};
use ebbtide::{CollectionOptions, Database, DocumentsOptions, IndexSpec, ScanRequest, Settings};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const KILLS: u64 = 100;
const ROWS: i64 = 7;
/// Documents that are written again and again.
const DOCUMENTS: i64 = 30;
const DIR: &str = "EBBTIDE_KILL_DIR";
const FIRST: &str = "EBBTIDE_KILL_FIRST";

fn open(dir: &Path) -> Database {
    // Small limits, so that sealing and new log files happen all the time.
    let settings = Settings {
        memtable_bytes_max: 1 << 15,
        wal_file_bytes_max: 1 << 12,
        segment_rows_max: 500,
        ..Settings::default()
    };
    Database::builder(dir).settings(settings).clock(Arc::new(SystemClock::new())).open().expect("opens after a kill")
}

/// Batch `number`: rows of one instant each, with the number of the batch and of the row.
fn batch(number: i64, start: Timestamp) -> Vec<Value> {
    let row = |i: i64| {
        Value::Object(vec![
            ("t".into(), Value::Date(start.plus_seconds(number * 60 + i))),
            ("s".into(), Value::String(format!("sensor {}", i % 3))),
            ("batch".into(), Value::Int(number)),
            ("row".into(), Value::Int(i)),
        ])
    };
    (0..ROWS).map(row).collect()
}

/// The process that is killed. Without the folder in its environment it is an ordinary test with nothing to do.
#[test]
fn writer_process() {
    let (Ok(dir), Ok(first)) = (std::env::var(DIR), std::env::var(FIRST)) else { return };
    let db = open(Path::new(&dir));
    let options = CollectionOptions::new("t").meta_field("s");
    let kept = db.create_collection("kept", options.clone()).unwrap();
    // Everything in here is expired when it arrives: the sweeper always has work.
    let swept = db.create_collection("swept", options.expire_after_seconds(1)).unwrap();
    let start = Timestamp::parse("2024-01-01T00:00:00Z").unwrap();
    let refreshed = db.create_documents("refreshed", DocumentsOptions::default()).unwrap();
    let forgotten = db.create_documents("forgotten", expires_at_once()).unwrap();
    for number in first.parse::<i64>().unwrap().. {
        refreshed.put(&doc! { "_id": number % DOCUMENTS, "n": number, "text": "refreshed ".repeat(20) }).unwrap();
        kept.insert_documents(&batch(number, start)).unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nacknowledged {number}").unwrap();
        out.flush().unwrap();
        drop(out);
        swept.insert_documents(&batch(number, start)).unwrap();
        forgotten.put(&doc! { "_id": number % DOCUMENTS, "at": DateTime::from_millis(0), "n": number }).unwrap();
        match number % 40 {
            10 => db.flush().unwrap(),
            20 => drop(db.sweep().unwrap()),
            30 => db.compact(None).unwrap(),
            39 => {
                // A batch is deleted as a whole by its number: 39 is never asked for again.
                kept.delete(&Filter::eq("batch", Value::Int(number))).unwrap();
            }
            _ => {}
        }
    }
}

/// What has a date is expired when it arrives.
fn expires_at_once() -> DocumentsOptions {
    let key = vec![("at".to_owned(), 1)];
    let index = IndexSpec { name: "at_1".to_owned(), key, expire_after_seconds: Some(0), filter: None };
    DocumentsOptions { indexes: vec![index], ..DocumentsOptions::default() }
}

/// The numbers of the refreshed documents, which are there once each.
fn refreshed(db: &Database) -> BTreeMap<i64, i64> {
    let Ok(documents) = db.documents("refreshed") else { return BTreeMap::new() };
    let found: Vec<Document> = documents.find(&doc! {}).unwrap();
    let numbers: BTreeMap<i64, i64> =
        found.iter().map(|found| (found.get_i64("_id").unwrap(), found.get_i64("n").unwrap())).collect();
    assert_eq!(numbers.len(), found.len(), "an _id is there twice");
    numbers
}

/// Rows of each batch that is there.
fn stored(db: &Database) -> BTreeMap<i64, i64> {
    let mut rows = BTreeMap::new();
    let Ok(kept) = db.collection("kept") else { return rows };
    let request = ScanRequest { projection: Some(vec!["batch".into()]), ..ScanRequest::default() };
    let snapshot = kept.snapshot().unwrap();
    if snapshot.schema().field_type("batch").is_none() {
        return rows;
    }
    for unit in snapshot.scan(&request).unwrap() {
        for batch in unit.read().unwrap() {
            let batch = batch.unwrap();
            for row in 0..batch.num_rows() {
                match ebbtide::buckets::value_at(batch.column(0).as_ref(), row) {
                    Value::Int(number) => *rows.entry(number).or_insert(0) += 1,
                    other => panic!("a batch number of {other:?}"),
                }
            }
        }
    }
    rows
}

#[test]
fn a_hundred_kills_lose_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let (mut next, mut acknowledged, mut state) = (0, -1, 0x9E37_79B9_7F4A_7C15_u64);
    for kill in 0..KILLS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lines = 1 + (state >> 33) % 60;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer_process", "--nocapture"])
            .env(DIR, &dir)
            .env(FIRST, next.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let numbers =
            out.lines().map_while(Result::ok).filter_map(|line| line.strip_prefix("acknowledged ")?.parse().ok());
        let mut seen = 0;
        for number in numbers {
            acknowledged = number;
            seen += 1;
            if seen == lines {
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        assert!(!status.success() && seen >= lines, "the writer ended by itself at kill {kill}: {status}");

        let db = open(&dir);
        let rows = stored(&db);
        let last = rows.keys().next_back().copied().unwrap_or(-1);
        for number in 0..=acknowledged.max(last) {
            let found = rows.get(&number).copied().unwrap_or(0);
            let deleted = number % 40 == 39;
            // What was acknowledged is there; of what follows, a prefix of whole batches.
            assert!(found == ROWS || (deleted && found == 0), "kill {kill}: batch {number} has {found} rows of {ROWS}");
        }
        let numbers = refreshed(&db);
        for (id, number) in &numbers {
            let newest = acknowledged.max(last) + 1;
            assert!(
                number % DOCUMENTS == *id && *number <= newest,
                "kill {kill}: document {id} is {number} after {newest}"
            );
        }
        for number in (0..=acknowledged).rev().take(DOCUMENTS as usize) {
            // The newest that was acknowledged, or the one that was under way.
            let found = numbers.get(&(number % DOCUMENTS)).copied();
            assert!(found >= Some(number), "kill {kill}: document {number} was acknowledged, found {found:?}");
        }
        db.sweep().unwrap();
        if db.documents("forgotten").is_ok() {
            let stored = db.snapshot_at(Timestamp::from_millis(-1)).documents("forgotten").unwrap();
            assert_eq!(stored.count().unwrap(), 0, "kill {kill}: dropped documents came back");
        }
        let swept = db.collection("swept").unwrap().snapshot().unwrap();
        assert_eq!(swept.bucket_count().unwrap(), 0, "kill {kill}: dropped buckets came back");
        let faults = db.verify().unwrap().faults;
        assert!(faults.is_empty(), "kill {kill}: {faults:?}");
        next = acknowledged.max(last) + 1;
        db.abandon();
    }
    println!("{KILLS} kills, {} batches acknowledged, none lost", acknowledged + 1);
}
