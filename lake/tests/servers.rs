//! Archives and published tables in folders and on servers, and what other programs read there.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

#[path = "shared/stores.rs"]
mod stores;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use ebbtide::bson::{Binary, Document, doc, spec::BinarySubtype};
use ebbtide::buckets::value_at;
use ebbtide::ttl::{Clock, Filter, Ladder, Precision, Rung, Timestamp, Value, VirtualClock};
use ebbtide::{
    CollectionChange, CollectionOptions, Database, DocumentsOptions, HoldOptions, RollupRequest, ScanRequest,
    ShipOptions, Shipper,
};
use ebbtide_lake::Lake;
use ebbtide_lake::sim::{SimLake, SimStore};
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier};
use stores::{BUSY_MOTO, KEY_ID, MINISTACK, MOTO, StoreServer, azure, python, python_with, s3, store_of};

const HOUR: i64 = 3600;

fn at(seconds: i64) -> Timestamp {
    Timestamp::parse("2024-01-01T00:00:00Z").unwrap().plus_seconds(seconds)
}

fn open(folder: &Path, clock: &VirtualClock) -> Database {
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    Database::builder(folder.join("db")).clock(clock).archives(Arc::new(Lake::new())).open().unwrap()
}

/// Moves 3,000 readings to an archive in three steps, the last with a field more. Returns rows and sum.
fn fill(db: &Database, clock: &VirtualClock, url: &str) -> (i64, i64) {
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR).expire_into(url);
    let c = db.create_collection("weather", options).unwrap();
    for step in 0..3 {
        let reading = |v: i64| {
            let site = Value::Object(vec![("floor".into(), Value::Int(v % 3)), ("name".into(), Value::from("roof"))]);
            let mut members = vec![
                ("t".into(), Value::Date(at(v))),
                ("sensor".into(), site),
                ("v".into(), Value::Int(v)),
                ("temp".into(), Value::Double(v as f64 / 8.0)),
            ];
            if step == 2 {
                members.push(("note".into(), Value::from("late")));
            }
            Value::Object(members)
        };
        c.insert_documents(&(step * 1000..(step + 1) * 1000).map(reading).collect::<Vec<_>>()).unwrap();
        clock.set(at((step + 2) * HOUR));
        let counts = db.sweep().unwrap().counts;
        assert_eq!(
            (counts.deleted_documents, counts.failed_rules),
            (1000, 0),
            "{:?}",
            c.snapshot().unwrap().rule_infos()
        );
    }
    (3000, (0..3000).sum())
}

/// Rows, and the sum of their values.
fn totals(batches: impl Iterator<Item = ebbtide::Result<RecordBatch>>) -> (i64, i64) {
    let (mut rows, mut sum) = (0, 0);
    for batch in batches {
        let batch = batch.unwrap();
        let column = batch.column_by_name("v").unwrap();
        for row in 0..batch.num_rows() {
            rows += 1;
            sum += match value_at(column.as_ref(), row) {
                Value::Int(v) => v,
                other => panic!("a reading of {other:?}"),
            };
        }
    }
    (rows, sum)
}

fn archived(db: &Database) -> (i64, i64) {
    let found = db.snapshot().collection("weather").unwrap().archived(&ScanRequest::default()).unwrap();
    totals(found.units.iter().flat_map(|unit| unit.read().unwrap()))
}

/// The rows that are visible at an instant.
fn visible(db: &Database, instant: Timestamp) -> Vec<Json> {
    let units = db.snapshot_at(instant).collection("weather").unwrap().scan(&ScanRequest::default()).unwrap();
    units.iter().flat_map(|unit| unit.read().unwrap()).flat_map(|batch| rows_of(&batch.unwrap())).collect()
}

/// What the bins of a rung show at an instant.
fn bins(db: &Database, instant: Timestamp) -> Vec<Json> {
    let request = RollupRequest { width_seconds: STEP, ..RollupRequest::default() };
    let batches = db.snapshot_at(instant).collection("weather").unwrap().rollup(&request).unwrap();
    batches.iter().flat_map(rows_of).collect()
}

/// The rows of a batch as objects, without fields that are null. Instants are in milliseconds, decimals are doubles.
fn rows_of(batch: &RecordBatch) -> Vec<Json> {
    let column = |(field, column): (&arrow::datatypes::FieldRef, &arrow::array::ArrayRef)| {
        let column = match field.data_type() {
            DataType::Decimal128(..) => arrow::compute::cast(column, &DataType::Float64).unwrap(),
            _ => column.clone(),
        };
        (field.name().clone(), column)
    };
    let columns: Vec<_> = batch.schema_ref().fields().iter().zip(batch.columns()).map(column).collect();
    let row = |row| {
        let fields = columns.iter().map(|(name, column)| (name.as_str(), value_at(column.as_ref(), row)));
        object_of(fields)
    };
    (0..batch.num_rows()).map(row).collect()
}

fn object_of<'a>(fields: impl Iterator<Item = (&'a str, Value)>) -> Json {
    let fields = fields.filter(|(_, value)| *value != Value::Null);
    Json::Object(fields.map(|(name, value)| (name.to_owned(), json_of(value))).collect())
}

fn json_of(value: Value) -> Json {
    match value {
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Double(value) => json!(value),
        Value::String(value) => json!(value),
        Value::Date(value) => json!(value.to_units(Precision::Ms)),
        Value::Object(members) => object_of(members.iter().map(|(name, value)| (&**name, value.clone()))),
        other => panic!("a reading of {other:?}"),
    }
}

#[test]
fn an_archive_in_a_folder_is_a_table_for_other_programs() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(at(0));
    let db = open(folder.path(), &clock);
    let place = folder.path().join("archive");
    let (mut rows, mut sum) = fill(&db, &clock, &format!("file://{}", place.display()));
    // So many versions that there is a checkpoint.
    let c = db.collection("weather").unwrap();
    for v in 3000..3110 {
        let reading = vec![("t".into(), Value::Date(at(v))), ("v".into(), Value::Int(v))];
        c.insert_documents(&[Value::Object(reading)]).unwrap();
        db.sweep().unwrap();
        (rows, sum) = (rows + 1, sum + v);
    }
    let filled = (rows, sum);
    assert!(place.join("_delta_log/_last_checkpoint").exists());
    assert_eq!(archived(&db), filled);
    drop((c, db));
    assert_eq!(archived(&open(folder.path(), &clock)), filled);

    let Some(python) = python_with("deltalake, polars, pyarrow") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_archive.py");
    let (rows, sum) = (filled.0.to_string(), filled.1.to_string());
    let output = Command::new(python).arg(script).arg(&place).args([rows, sum]).output().unwrap();
    let (told, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{told}");
    assert!(output.status.success(), "{told}{failed}");
}

/// A program that ends with the test.
struct Readers {
    child: Child,
    told: BufReader<ChildStdout>,
}

impl Drop for Readers {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Readers {
    /// Starts other programs that read tables, as far as the interpreter has them.
    fn start() -> Option<Readers> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_table.py");
        let mut command = Command::new(python());
        let child = command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.inspect_err(|error| println!("skipped: cannot run {}: {error}", python())).ok()?;
        let mut readers = Readers { told: BufReader::new(child.stdout.take().unwrap()), child };
        let names = readers.line();
        println!("read by: {names}");
        if std::env::var_os("EBBTIDE_LAKE_PYTHON").is_some() {
            assert_eq!(names, "polars deltalake duckdb chdb");
        }
        (!names.is_empty()).then_some(readers)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// `place`: a folder, or a URL.
    fn check(&mut self, place: impl AsRef<Path>, rows: &[Json]) -> String {
        let to = self.child.stdin.as_mut().unwrap();
        writeln!(to, "{}", json!({ "place": place.as_ref(), "rows": rows })).unwrap();
        self.line()
    }
}

/// The step of a rung.
const STEP: i64 = 600;

#[test]
fn other_programs_find_in_a_published_table_what_is_visible_in_a_hundred_states() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(at(0));
    let db = open(folder.path(), &clock);
    let [place, hours] = ["table", "rung"].map(|name| folder.path().join(name));
    let rung = |step_seconds, expire_after_seconds| Rung { step_seconds, expire_after_seconds };
    let ladder = Ladder::new(vec![rung(STEP, Some(3 * HOUR)), rung(HOUR, None)]);
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR).ladder(ladder);
    let c = db.create_collection("weather", options).unwrap();
    let short = db
        .run_command(&serde_json::json!({"createIndexes": "weather", "indexes": [{"key": {"t": 1}, "name": "short",
        "expireAfterSeconds": 1200, "partialFilterExpression": {"sensor.name": "roof"}}]}));
    short.unwrap();
    let Some(mut readers) = Readers::start() else { return };
    let reading = |step: i64, v: i64| {
        let name = ["roof", "cellar", "garden"][usize::try_from(v % 3).unwrap()];
        let site = Value::Object(vec![("floor".into(), Value::Int(v % 3)), ("name".into(), Value::from(name))]);
        let mut members = vec![
            ("t".into(), Value::Date(at(step * 300 - v % 7 * 200))),
            ("sensor".into(), site),
            ("v".into(), Value::Int(v)),
            (format!("temp{}", step / 30).as_str().into(), Value::Double(v as f64 / 8.0)),
        ];
        // A field that widens.
        let level = if step < 60 { Value::Int(v) } else { Value::Double(v as f64 + 0.5) };
        members.push(("level".into(), level));
        if v % 4 != 0 {
            members.push(("note".into(), Value::from(format!("caf\u{e9} {}", v % 5).as_str())));
        }
        members.push(("seen".into(), Value::Date(at(v))));
        Value::Object(members)
    };
    let mut inserted = 0;
    for step in 0..100 {
        clock.set(at(step * 300));
        if step % 3 != 2 {
            let count = 20 + step * 7 % 50;
            let readings: Vec<Value> = (inserted..inserted + count).map(|v| reading(step, v)).collect();
            c.insert_documents(&readings).unwrap();
            inserted += count;
        }
        match step % 10 {
            1 if step == 31 => {
                let index = serde_json::json!({"createIndexes": "weather", "indexes": [{"key": {"t": 1}, "name": "garden",
                    "expireAfterSeconds": 600, "partialFilterExpression": {"sensor.name": "garden"}}]});
                db.run_command(&index).unwrap();
            }
            1 if step == 61 => {
                db.run_command(&json!({"dropIndexes": "weather", "index": "garden"})).unwrap();
                db.create_hold("case42", "weather", HoldOptions::new("case 42")).unwrap();
            }
            1 if step == 81 => db.lift_hold("case42").unwrap(),
            4 => {
                let deleted = c.delete(&Filter::eq("v", Value::Int(inserted - 3)));
                assert_eq!(deleted.is_err(), (61..81).contains(&step), "{deleted:?}");
            }
            5 => drop(db.sweep().unwrap()),
            7 => db.compact(Some("weather")).unwrap(),
            9 => {
                let e = if step % 20 == 9 { 2 * HOUR } else { HOUR };
                let change = CollectionChange { expire_after_seconds: Some(Some(e)), ..CollectionChange::default() };
                db.modify_collection("weather", &change, None).unwrap();
            }
            _ => {}
        }
        let made = match step {
            0 => db.publish("weather", &format!("file://{}", place.display()), 60),
            _ => db.publish_now("weather"),
        };
        let told = readers.check(&place, &visible(&db, made.unwrap().hides_before));
        assert_eq!(told, "ok", "step {step}");
        let made = match step {
            0 => db.publish_rung("weather", STEP, &format!("file://{}", hours.display()), 60),
            _ => db.publish_rung_now("weather", STEP),
        };
        let expected = bins(&db, made.unwrap().hides_before);
        assert!(!expected.is_empty());
        assert_eq!(readers.check(&hours, &expected), "ok", "the rung at step {step}");
    }
    for view in ["view.duckdb.sql", "view.spark.sql", "view.clickhouse.sql"] {
        let text = std::fs::read_to_string(place.join(view)).unwrap();
        assert!(text.contains("CREATE OR REPLACE VIEW") && text.contains("1200"), "{text}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "writes files as another program does")]
fn other_programs_read_a_table_whose_old_log_entries_were_removed() {
    let store = SimStore::new(1, 0);
    let clock = VirtualClock::new(at(0));
    let folder = tempfile::tempdir().unwrap();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let builder = Database::builder(folder.path().join("db")).clock(shared).archives(Arc::new(SimLake::new(&store)));
    let db = builder.open().unwrap();
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(2 * HOUR);
    let c = db.create_collection("weather", options).unwrap();
    db.publish("weather", "s3://sim/table", 60).unwrap();
    let Some(mut readers) = Readers::start() else { return };
    let table = folder.path().join("table");
    std::fs::create_dir_all(table.join("_delta_log")).unwrap();
    let mut begins_later = 0;
    for step in 0..60 {
        clock.set(at(step * 600));
        store.advance(600_000);
        let reading = |v: i64| {
            let sensor = Value::from(["roof", "cellar"][usize::try_from(v % 2).unwrap()]);
            let members =
                [("t", Value::Date(at(step * 600 - v * 60))), ("sensor", sensor), ("v", Value::Int(step * 10 + v))];
            Value::Object(members.map(|(name, value)| (name.into(), value)).to_vec())
        };
        c.insert_documents(&(0..10).map(reading).collect::<Vec<_>>()).unwrap();
        if step % 7 == 3 {
            assert_eq!(c.delete(&Filter::eq("v", Value::Int(step * 10 - 5))).unwrap(), 1);
        }
        let made = db.publish_now("weather").unwrap();
        if step % 10 == 9 {
            std::fs::remove_dir_all(&table).unwrap();
            std::fs::create_dir_all(table.join("_delta_log")).unwrap();
            for name in store.names() {
                std::fs::write(table.join(&name), store.content(&name).unwrap()).unwrap();
            }
            begins_later += u32::from(!table.join("_delta_log/00000000000000000000.json").exists());
            let rows = visible(&db, made.hides_before);
            assert!(rows.len() > 50 || step < 20, "{}", rows.len());
            assert_eq!(readers.check(&table, &rows), "ok", "step {step}");
        }
    }
    assert_eq!(begins_later, 5);
}

#[test]
fn the_views_of_a_published_table_leave_out_what_has_expired() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(at(0));
    let db = open(folder.path(), &clock);
    let place = folder.path().join("table");
    publish_partly_expired(&db, &format!("file://{}", place.display()));
    check_views(&place, &["duckdb", "clickhouse"]);
}

/// Publishes a collection in which, by the clock of a program that reads today, what is on the roof has expired, and the rest has not.
fn publish_partly_expired(db: &Database, url: &str) {
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(i64::from(i32::MAX));
    let c = db.create_collection("partly", options).unwrap();
    let short = serde_json::json!({"createIndexes": "partly", "indexes": [{"key": {"t": 1}, "name": "short",
        "expireAfterSeconds": 1200, "partialFilterExpression": {"sensor.name": "roof"}}]});
    db.run_command(&short).unwrap();
    let now = db.snapshot().now();
    let reading = |v: i64| {
        let name = if v % 3 == 0 { "roof" } else { "cellar's" };
        let sensor = Value::Object(vec![("name".into(), Value::from(name))]);
        let t = Value::Date(now.plus_seconds(v));
        Value::Object(vec![("t".into(), t), ("sensor".into(), sensor), ("v".into(), Value::Int(v))])
    };
    c.insert_documents(&(0..300).map(reading).collect::<Vec<_>>()).unwrap();
    assert_eq!(db.publish("partly", url, 60).unwrap().measurements, 300);
}

/// Checks what programs find in the views of that table, whose texts are in a folder.
fn check_views(folder: &Path, programs: &[&str]) {
    let Some(python) = python_with("duckdb, duckdb_extension_delta, chdb") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_views.py");
    let output = Command::new(python).arg(script).arg(folder).arg("partly").args(programs).output().unwrap();
    let (told, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let sum: i64 = (0..300).filter(|v| v % 3 != 0).sum();
    let expected: Vec<String> = programs.iter().map(|program| format!("{program} 200 {sum}\n")).collect();
    assert_eq!(told, expected.concat(), "{failed}");
}

/// The part that needs the environment of a server: run again by the tests below.
#[test]
fn on_a_server() {
    let Ok(url) = std::env::var("EBBTIDE_LAKE_URL") else { return };
    // Everything that this program and the libraries below it report.
    let logs = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    logs.with_ansi(false).with_writer(std::io::stdout).init();
    let (archive, table) = (format!("{url}/archive"), format!("{url}/table"));
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(at(0));
    let db = open(folder.path(), &clock);
    let filled = fill(&db, &clock, &archive);
    let is_throttled = |db: &Database| db.failing_places().unwrap().iter().any(|place| place.throttled);
    let throttled_at_first = is_throttled(&db);
    assert_eq!(archived(&db), filled);
    let readings = |sensor: &str| {
        // Not every program knows objects that are null.
        let name = Value::Object(vec![("name".into(), Value::from("roof"))]);
        let members = |v: i64| [("t", Value::Date(at(10 * HOUR + v))), ("v", Value::Int(v)), (sensor, name.clone())];
        let reading = |v| Value::Object(members(v).map(|(name, value)| (name.into(), value)).to_vec());
        (0..100).map(reading).collect::<Vec<_>>()
    };
    let c = db.collection("weather").unwrap();
    c.insert_documents(&readings("sensor")).unwrap();
    clock.set(at(10 * HOUR));
    let made = db.publish("weather", &table, 60).unwrap();
    assert_eq!((made.version, made.measurements), (0, 100));
    c.delete(&Filter::eq("v", Value::Int(3))).unwrap();
    let made = db.publish_now("weather").unwrap();
    assert_eq!((made.version, made.measurements), (1, 99));
    if let Some(mut readers) = Readers::start() {
        assert_eq!(readers.check(&table, &visible(&db, made.hides_before)), "ok");
    }
    check_views_on_a_server(&db, &format!("{url}/partly"), folder.path());
    let refused = |db: &Database| {
        let snapshot = db.snapshot().collection("weather").unwrap();
        [&archive, &table].map(|url| snapshot.archive_place(url).unwrap().refused()).into_iter().sum::<u64>()
    };
    let (refused_before, throttled_later) = (refused(&db), is_throttled(&db));
    drop((c, db));

    let db = open(folder.path(), &clock);
    assert_eq!(archived(&db), filled);
    let publications = db.publications();
    let of_weather = publications.iter().find(|publication| publication.collection == "weather");
    assert_eq!(of_weather.unwrap().last, Some(made));
    let snapshot = db.snapshot().collection("weather").unwrap();
    let (place, version) = (snapshot.archive_place(&archive).unwrap(), snapshot.archives()[0].version);
    assert_eq!(place.verify(version.unwrap()).unwrap(), Vec::<String>::new());
    assert_eq!(place.vacuum().unwrap(), 0);
    // What has been in the archive for long enough is removed.
    let keep = CollectionChange { keep_seconds: Some(Some(10 * HOUR - 1500)), ..CollectionChange::default() };
    db.modify_collection("weather", &keep, None).unwrap();
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 0);
    assert_eq!(archived(&db), (2000, (1000..3000).sum()));
    let shown = format!("{place:?}");
    let secret = std::env::var("EBBTIDE_LAKE_SECRET").unwrap();
    assert!(!shown.contains(&secret), "{shown}");

    // Versions that are there are not made again.
    let other = tempfile::tempdir().unwrap();
    let other = open(other.path(), &clock);
    let options = CollectionOptions::new("t").meta_field("place").expire_after_seconds(HOUR).expire_into(&archive);
    let c = other.create_collection("weather", options).unwrap();
    c.insert_documents(&readings("place")).unwrap();
    assert!(other.publish("weather", &table, 60).is_err());
    clock.set(at(20 * HOUR));
    assert_eq!(other.sweep().unwrap().counts.failed_rules, 1);
    let told = c.snapshot().unwrap().rule_infos().unwrap()[0].state.clone();
    assert!(told.contains("the archive of another database"), "{told}");
    // Past what the harness captures.
    let throttled = throttled_at_first || throttled_later;
    writeln!(std::io::stdout(), "{} requests were refused, throttled: {throttled}", refused_before + refused(&db))
        .unwrap();
    copies_on_a_server(folder.path(), &clock, &db, &format!("{url}/copy"));
    assert!(files_with(folder.path(), secret.as_bytes()).is_empty());
    assert!(objects_with(&url, secret.as_bytes()).is_empty());
    assert!(!objects_with(&url, b"PAR1").is_empty());
    assert!(!files_with(folder.path(), url.as_bytes()).is_empty(), "where things are kept is in the manifest");
}

/// Checks the views of a table on a server.
#[expect(clippy::disallowed_methods, reason = "writes files as another program does")]
fn check_views_on_a_server(db: &Database, table: &str, folder: &Path) {
    publish_partly_expired(db, table);
    let path = table.split_once("://bucket/").unwrap().1;
    let (in_spark, in_clickhouse, programs) = match table.starts_with("s3://") {
        // ClickHouse looks for other URLs of S3 at Amazon.
        true => (format!("delta.`s3a://bucket/{path}`"), format!("deltaLake('{table}')"), ["duckdb"].as_slice()),
        false => (
            format!("delta.`abfss://bucket@ACCOUNT.dfs.core.windows.net/{path}`"),
            format!("deltaLakeAzure(ebbtide, container = 'bucket', blob_path = '{path}')"),
            ["duckdb", "clickhouse"].as_slice(),
        ),
    };
    let tables = [("duckdb", format!("delta_scan('{table}')")), ("spark", in_spark), ("clickhouse", in_clickhouse)];
    let views = folder.join("views");
    std::fs::create_dir(&views).unwrap();
    for (dialect, of) in tables {
        let name = format!("view.{dialect}.sql");
        let view = content_of(table, &name);
        let text = std::str::from_utf8(&view).unwrap();
        assert!(text.contains(&format!("SELECT * FROM {of}\n")), "{text}");
        std::fs::write(views.join(name), view).unwrap();
    }
    check_views(&views, programs);
}

/// The content of an object below a URL.
fn content_of(url: &str, name: &str) -> Vec<u8> {
    let store = store_of(url);
    let path = object_store::path::Path::from(format!("{}/{name}", url.split_once("://bucket/").unwrap().1));
    let content = async { store.get(&path).await.unwrap().bytes().await.unwrap() };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(content).to_vec()
}

/// The files in a folder, at any depth, in which there are these bytes.
#[expect(clippy::disallowed_methods, reason = "looks at files as another program does")]
fn files_with(folder: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if std::fs::read(&path).unwrap().windows(bytes.len()).any(|part| part == bytes) {
            found.push(path);
        }
    }
    found
}

/// The objects of a bucket or container in which there are these bytes.
fn objects_with(url: &str, bytes: &[u8]) -> Vec<String> {
    let store = store_of(url);
    let found = async {
        let mut found = Vec::new();
        let mut all = store.list(None);
        while let Some(object) = all.try_next().await.unwrap() {
            let content = store.get(&object.location).await.unwrap().bytes().await.unwrap();
            if content.windows(bytes.len()).any(|part| part == bytes) {
                found.push(object.location.to_string());
            }
        }
        found
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(found)
}

/// Ships, restores, follows and promotes at a place on a server.
fn copies_on_a_server(folder: &Path, clock: &VirtualClock, db: &Database, url: &str) {
    let builder = |name: &str| {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        Database::builder(folder.join(name)).clock(shared).archives(Arc::new(Lake::new()))
    };
    let c = db.create_collection("doors", CollectionOptions::new("t")).unwrap();
    let reading = |v: i64| Value::Object(vec![("t".into(), Value::Date(at(v))), ("v".into(), Value::Int(v))]);
    let count = |db: &Database| db.snapshot().collection("doors").unwrap().count().unwrap();
    c.insert_documents(&(0..100).map(reading).collect::<Vec<_>>()).unwrap();
    let mut shipper = builder("db").shipper(url, ShipOptions::default()).unwrap();
    shipper.ship_now().unwrap();
    let mut replica = builder("replica").follow(url).unwrap();
    // An object that is fetched in parts.
    let mut bits = 1_u64;
    let words = std::iter::repeat_with(|| {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        bits.to_le_bytes()
    });
    let bytes: Vec<u8> = words.take(10 << 17).flatten().collect();
    let blobs = db.create_documents("blobs", DocumentsOptions::default()).unwrap();
    let blob = doc! { "_id": 1, "bytes": Binary { subtype: BinarySubtype::Generic, bytes } };
    blobs.insert(&blob).unwrap();
    db.flush().unwrap();
    c.insert_documents(&(100..150).map(reading).collect::<Vec<_>>()).unwrap();
    shipper.ship_now().unwrap();
    replica.catch_up().unwrap();
    assert_eq!((count(replica.database()), count(db)), (150, 150));
    race_of_shippers(|| builder("db").shipper(&format!("{url}-race"), ShipOptions::default()).unwrap());
    builder("restored").restore(url, None).unwrap();
    let restored = builder("restored").open().unwrap();
    assert_eq!(count(&restored), 150);
    let found: Vec<Document> = restored.documents("blobs").unwrap().find(&doc! {}).unwrap();
    assert!(found == [blob]);
    drop(replica);
    builder("replica").promote(url).unwrap();
    assert_eq!(count(&builder("replica").open().unwrap()), 150);
    assert!(shipper.ship_now().is_err());
}

/// Starts two shippers of one database at the same time and checks that exactly one of them can continue.
fn race_of_shippers(shipper: impl Fn() -> Shipper) {
    let mut shippers = [shipper(), shipper()];
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        for shipper in &mut shippers {
            // One may find that the other has begun.
            scope.spawn(|| (start.wait(), shipper.ship_now().is_ok()));
        }
    });
    let going_on =
        |shippers: &mut [Shipper; 2]| shippers.iter_mut().map(|shipper| shipper.ship_now().is_ok()).collect::<Vec<_>>();
    // If both took an epoch, the first one learns it now.
    going_on(&mut shippers);
    let going_on = going_on(&mut shippers);
    assert_eq!(going_on.iter().filter(|goes_on| **goes_on).count(), 1, "{going_on:?}");
}

/// The part that needs a server and a key that it refuses: run again by the test below.
#[test]
fn with_a_refused_key() {
    let Ok(url) = std::env::var("EBBTIDE_LAKE_REFUSED") else { return };
    let logs = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    logs.with_ansi(false).with_writer(std::io::stdout).init();
    let secret = std::env::var("AZURE_STORAGE_ACCOUNT_KEY").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(at(0));
    let db = open(folder.path(), &clock);
    let options = CollectionOptions::new("t").expire_after_seconds(HOUR).expire_into(&url);
    let c = db.create_collection("weather", options).unwrap();
    c.insert_documents(&[Value::Object(vec![("t".into(), Value::Date(at(0)))])]).unwrap();
    clock.set(at(2 * HOUR));
    assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
    let failing = db.failing_places().unwrap();
    assert!(failing[0].error.contains("403"), "{failing:?}");
    println!("{failing:?}");
    assert!(files_with(folder.path(), secret.as_bytes()).is_empty());
}

const NONE_REFUSED: &str = "0 requests were refused, throttled: false";

/// Runs the test above with a server; what it says of refused requests.
fn run_on(server: &StoreServer) -> String {
    let (told, failed) = server.run_test("on_a_server");
    assert!(told.contains(" TRACE ") && told.contains(" DEBUG "), "{} bytes of logs", told.len());
    assert!([server.secret, KEY_ID].iter().all(|key| !told.contains(key) && !failed.contains(key)));
    let line = told.lines().find(|line| line.contains(" requests were refused, throttled: "));
    line.unwrap().to_owned()
}

#[test]
fn an_archive_and_a_table_on_an_s3_server_are_read_back() {
    let Some(python) = python_with("moto.server") else { return };
    assert_eq!(run_on(&s3(&python, MOTO)), NONE_REFUSED);
}

#[test]
fn requests_that_a_server_refuses_because_there_are_too_many_are_repeated() {
    let Some(python) = python_with("moto.server") else { return };
    // While the archive is made: requests of a look-up before the table is made are not counted as those of its place.
    let told = run_on(&s3(&python, &BUSY_MOTO.replace("number == 20", "number == 12")));
    let refused: u64 = told.split(' ').next().unwrap().parse().unwrap();
    // Five seconds, with growing pauses between the requests.
    assert!((1..100).contains(&refused) && told.ends_with("throttled: true"), "{told}");
}

#[test]
fn an_archive_and_a_table_on_another_s3_server_are_read_back() {
    let Some(python) = python_with("ministack") else { return };
    assert_eq!(run_on(&s3(&python, MINISTACK)), NONE_REFUSED);
}

#[test]
fn an_archive_and_a_table_on_an_azure_server_are_read_back() {
    let Some(server) = azure() else { return };
    assert_eq!(run_on(&server), NONE_REFUSED);

    let wrong = "d3Jvbmcga2V5LCBidXQgb2YgdGhlIGxlbmd0aCB0aGF0IGtleXMgaGF2ZSBoZXJlLCB3aGljaCBpcyA2NCE=";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "with_a_refused_key", "--nocapture"])
        .envs(server.environment.iter().cloned())
        .env("EBBTIDE_LAKE_REFUSED", "az://bucket/refused")
        .env("AZURE_STORAGE_ACCOUNT_KEY", wrong)
        .output()
        .unwrap();
    let (told, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.contains("1 passed") && told.contains(" TRACE "), "{told}{failed}");
    assert!(!told.contains(wrong) && !failed.contains(wrong));
}
