//! One test for each behaviour that users rely on: who may open a database, what readers see, what is stored after a
//! fault, what damage is found, and what a sweep costs.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod altering;
mod async_api;
mod batch_ids;
mod compaction;
mod cost;
mod damage;
mod documents;
mod file_types;
mod hand_off;
mod ladder;
mod machine;
mod read_ahead;
mod reading;
mod retention;
mod texts;
mod watched;
mod write_batches;
mod writing;

use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Clock, Timestamp, Value, VirtualClock};
use ebbtide::{Collection, CollectionOptions, Database, ScanRequest, Settings, Snapshot};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROOT: &str = "/data/db";
const DAY: i64 = 86_400;
/// What `numbers` gives of an empty collection.
const NOTHING: [i64; 0] = [];

/// An instant so many seconds into 2024.
fn at(seconds: i64) -> Timestamp {
    Timestamp::parse("2024-01-01T00:00:00Z").unwrap().plus_seconds(seconds)
}

/// A measurement at that instant.
fn reading(seconds: i64, sensor: &str, v: i64) -> Value {
    Value::Object(vec![
        ("t".into(), Value::Date(at(seconds))),
        ("sensor".into(), Value::from(sensor)),
        ("v".into(), Value::Int(v)),
    ])
}

/// The readings with these numbers, a second apart.
fn readings(numbers: std::ops::Range<i64>) -> Vec<Value> {
    numbers.map(|v| reading(v, "roof", v)).collect()
}

fn weather() -> CollectionOptions {
    CollectionOptions::new("t").meta_field("sensor")
}

/// A simulated disk and a clock, and how to open the database on it.
struct Sim {
    fs: SimFs,
    clock: VirtualClock,
    settings: Settings,
}

impl Sim {
    fn new() -> Sim {
        Sim { fs: SimFs::new(ROOT), clock: VirtualClock::new(at(0)), settings: Settings::default() }
    }

    fn builder(&self) -> ebbtide::Builder {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        Database::builder(ROOT).fs(Arc::new(self.fs.clone())).clock(clock).settings(self.settings.clone())
    }

    fn open(&self) -> Database {
        self.builder().open().unwrap()
    }

    /// Takes this disk in the place of the present one.
    fn on(&self, fs: SimFs) -> Sim {
        Sim { fs, clock: self.clock.clone(), settings: self.settings.clone() }
    }

    /// The files of the database whose names begin so.
    fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let is_wanted = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix));
        self.fs.files().into_iter().filter(is_wanted).collect()
    }

    fn file(&self, prefix: &str) -> PathBuf {
        let files = self.files(prefix);
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

/// The numbers in a collection of a snapshot, sorted.
fn numbers_in(snapshot: &Snapshot, name: &str) -> ebbtide::Result<Vec<i64>> {
    let mut numbers = Vec::new();
    let snapshot = snapshot.collection(name)?;
    if snapshot.schema().field_type("v").is_none() {
        return Ok(numbers);
    }
    let request = ScanRequest { projection: Some(vec!["v".into()]), ..ScanRequest::default() };
    for unit in snapshot.scan(&request)? {
        for batch in unit.read()? {
            let batch = batch?;
            numbers.extend((0..batch.num_rows()).map(|row| match ebbtide::buckets::value_at(batch.column(0), row) {
                Value::Int(v) => v,
                Value::Double(v) => v as i64,
                other => panic!("a reading of {other:?}"),
            }));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The numbers that are visible in collection `weather`, sorted.
fn numbers(db: &Database) -> Vec<i64> {
    numbers_in(&db.snapshot(), "weather").unwrap()
}

fn numbered(numbers: std::ops::Range<i64>) -> Vec<i64> {
    numbers.collect()
}

/// A database with collection `weather`.
fn made(sim: &Sim) -> (Database, Collection) {
    let db = sim.open();
    let collection = db.create_collection("weather", weather()).unwrap();
    (db, collection)
}

/// That a message names the file and a place in it.
#[track_caller]
fn assert_names(message: &str, path: &Path) {
    assert!(message.contains(&path.display().to_string()), "'{message}' does not name {}", path.display());
    assert!(message.contains("offset"), "'{message}' names no offset");
}
