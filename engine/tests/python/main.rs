//! Segment files are plain Parquet: readers of other people open them unchanged and find every value.
//!
//! A year of recorded weather goes into a database; then a Python script reads the files with pyarrow, pandas, polars and
//! DuckDB. Another script reads files whose types differ, with ClickHouse as well. `EBBTIDE_PYTHON` names the interpreter that has the packages, `python3` is the default; without them the test
//! says so and does nothing.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use ebbtide::fs::{Fs, RealFs};
use ebbtide::ttl::{Timestamp, Value};
use ebbtide::{CollectionOptions, Database, Settings};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// The interpreter, if it has these packages.
fn python(packages: &str) -> Option<String> {
    let python = std::env::var("EBBTIDE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    match Command::new(&python).args(["-c", &format!("import {packages}")]).output() {
        Ok(output) if output.status.success() => return Some(python),
        Ok(_) => println!("skipped: {python} lacks one of the packages {packages}"),
        Err(error) => println!("skipped: cannot run {python}: {error}"),
    }
    None
}

#[test]
fn other_readers_find_every_value_in_the_segment_files() {
    let Some(python) = python("pyarrow, pandas, polars, duckdb") else { return };

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
    let files = hourly.snapshot().unwrap().segment_files().unwrap();
    assert!(files.agree && files.files.len() > 1);

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/read_segments.py");
    let output = Command::new(&python).arg(script).arg(files.folder).arg(weather()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}{err}");
    assert_ne!(output.status.code(), Some(SKIPPED), "the packages were there a moment ago");
    assert!(output.status.success(), "{out}{err}");
    for reader in ["pyarrow", "pandas", "polars", "duckdb"] {
        assert!(out.contains(&format!("{reader}: {ROWS} rows")), "{out}");
    }
}

/// What is sealed one by one, each in a file of its own, and whether the files agree afterwards.
fn mixes() -> Vec<(&'static str, Vec<Vec<Value>>, bool)> {
    let doubles = |values: &[f64]| values.iter().map(|v| Value::Double(*v)).collect::<Vec<_>>();
    let tenths = doubles(&[0.5, 2.5, 1_000.1]);
    let hundredths = doubles(&[0.25, 0.75, 3.0]);
    let long = doubles(&[1.0 / 3.0, 2.0 / 3.0]);
    let large = doubles(&[98_765_432.5, 12_345_678_901.5]);
    let none = vec![Value::Null, Value::Null];
    let whole = vec![Value::Int(7), Value::Int(123_456_789_012)];
    vec![
        ("equal", vec![tenths.clone(), tenths.clone()], true),
        ("narrower", vec![hundredths.clone(), tenths.clone()], true),
        ("more digits", vec![tenths.clone(), hundredths.clone()], false),
        ("more digits twice", vec![tenths.clone(), hundredths.clone(), long.clone()], false),
        ("fewer digits", vec![long.clone(), hundredths.clone(), tenths.clone()], true),
        ("larger", vec![hundredths.clone(), large.clone(), tenths.clone()], false),
        ("whole numbers first", vec![whole.clone(), tenths.clone()], false),
        ("whole numbers and then long", vec![whole, long.clone(), tenths.clone()], false),
        ("none at first", vec![none.clone(), tenths.clone(), long], false),
        ("a later field", vec![none, tenths.clone(), tenths], true),
    ]
}

#[test]
fn other_readers_are_never_wrong_about_files_whose_types_differ() {
    let Some(python) = python("pyarrow, pandas, polars, duckdb") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut cases = Vec::new();
    let mut open = Vec::new();
    for (name, batches, agree) in mixes() {
        for (end, compacted, segment_rows_max) in [
            ("", false, 1),
            (" compacted", true, 1),
            (" settled by the seal", true, Settings::default().segment_rows_max),
        ] {
            let settings = Settings { segment_rows_max, ..Settings::default() };
            let path = folder.path().join(format!("{name}{end}"));
            let db = Database::builder(path).settings(settings).open().unwrap();
            let mixed = db.create_collection("mixed", CollectionOptions::new("t")).unwrap();
            let other = db.create_collection("other", CollectionOptions::new("t")).unwrap();
            let row = |second: usize, v: &Value| {
                let time = Timestamp::from_millis(i64::try_from(second).unwrap() * 1000);
                Value::Object(vec![("t".into(), Value::Date(time)), ("v".into(), v.clone())])
            };
            other.insert_documents(&[row(1, &Value::Double(1e6))]).unwrap();
            let mut rows = 0;
            for batch in &batches {
                // A field comes with its first value, so there are rows of another one before.
                let documents: Vec<Value> = batch.iter().enumerate().map(|(at, v)| row(rows + at, v)).collect();
                mixed.insert_documents(&documents).unwrap();
                rows += batch.len();
                db.flush().unwrap();
            }
            if compacted && segment_rows_max == 1 {
                db.compact(None).unwrap();
            }
            let files = mixed.snapshot().unwrap().segment_files().unwrap();
            assert_eq!(files.agree, agree || compacted, "{name}");
            // Of a column that a file lacks, some readers want to be told that it may be null there.
            let complete = batches.iter().all(|batch| batch.iter().any(|v| !v.is_null()));
            let sum: f64 = batches.iter().flatten().filter_map(number).sum();
            let shown: Vec<String> = files.files.iter().map(|file| file.display().to_string()).collect();
            cases.push(serde_json::json!({
                "name": format!("{name}{end}"),
                "folder": files.folder, "files": shown, "agree": files.agree, "complete": complete, "count": rows, "sum": sum,
            }));
            open.push(db);
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/read_mixed.py");
    let mut command = Command::new(&python);
    command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(serde_json::to_string(&cases).unwrap().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}{err}");
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains(&format!("{} cases", cases.len())), "{out}");
}

fn number(value: &Value) -> Option<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        Value::Int(i) => Some(*i as f64),
        Value::Double(d) => Some(*d),
        _ => None,
    }
}
