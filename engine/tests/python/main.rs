//! Segment files are plain Parquet: readers of other people open them unchanged and find every value.
//!
//! A year of recorded weather goes into a database; then a Python script reads the files with pyarrow, pandas, polars and
//! DuckDB. `EBBTIDE_PYTHON` names the interpreter that has the packages, `python3` is the default; without them the test
//! says so and does nothing.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use ebbtide::fs::{Fs, RealFs};
use ebbtide::ttl::{Timestamp, Value};
use ebbtide::{CollectionOptions, Database, Settings};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the script exits with if a package is missing.
const SKIPPED: i32 = 77;
const ROWS: usize = 26_115;

fn weather() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weather/nyc_2013_hourly.csv.gz")
}

fn documents() -> Vec<Value> {
    let packed = RealFs::new().read(&weather()).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let value = |name: &str, text: &str| match name {
        "station" => Value::from(text),
        "time" => Value::Date(Timestamp::parse(text).unwrap()),
        "wind_dir" => Value::Int(text.parse().unwrap()),
        _ => Value::Double(text.parse().unwrap()),
    };
    let document = |record: csv::StringRecord| {
        let members = header.iter().zip(&record).filter(|(_, text)| !text.is_empty());
        Value::Object(members.map(|(name, text)| (name.into(), value(name, text))).collect())
    };
    reader.records().map(|record| document(record.unwrap())).collect()
}

#[test]
fn other_readers_find_every_value_in_the_segment_files() {
    let python = std::env::var("EBBTIDE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let modules = "import pyarrow, pandas, polars, duckdb";
    match Command::new(&python).args(["-c", modules]).output() {
        Ok(output) if output.status.success() => {}
        Ok(_) => return println!("skipped: {python} lacks one of the packages pyarrow, pandas, polars, duckdb"),
        Err(error) => return println!("skipped: cannot run {python}: {error}"),
    }

    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { segment_rows_max: 10_000, ..Settings::default() };
    let db = Database::builder(folder.path().join("weather")).settings(settings).open().unwrap();
    let hourly = db.create_collection("hourly", CollectionOptions::new("time").meta_field("station")).unwrap();
    let documents = documents();
    assert_eq!(documents.len(), ROWS);
    for part in documents.chunks(4_000) {
        hourly.insert_documents(part).unwrap();
    }
    db.flush().unwrap();
    assert!(hourly.snapshot().unwrap().segments().len() > 1);

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/read_segments.py");
    let output = Command::new(&python).arg(script).arg(db.path()).arg(weather()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}{err}");
    assert_ne!(output.status.code(), Some(SKIPPED), "the packages were there a moment ago");
    assert!(output.status.success(), "{out}{err}");
    for reader in ["pyarrow", "pandas", "polars", "duckdb"] {
        assert!(out.contains(&format!("{reader}: {ROWS} rows")), "{out}");
    }
}
