//! Archives in folders and on an S3 server, and what other programs read there. `EBBTIDE_PYTHON` names the interpreter that has the
//! packages, `python3` is the default; without them a test says so and does nothing.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use ebbtide::ttl::{Clock, Timestamp, Value, VirtualClock};
use ebbtide::{CollectionOptions, Database, ScanRequest};
use ebbtide_lake::Lake;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

const HOUR: i64 = 3600;

fn at(seconds: i64) -> Timestamp {
    Timestamp::parse("2024-01-01T00:00:00Z").unwrap().plus_seconds(seconds)
}

fn python() -> String {
    std::env::var("EBBTIDE_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// The interpreter, if it has these packages.
fn python_with(packages: &str) -> Option<String> {
    let python = python();
    match Command::new(&python).args(["-c", &format!("import {packages}")]).output() {
        Ok(output) if output.status.success() => return Some(python),
        Ok(_) => println!("skipped: {python} lacks one of the packages {packages}"),
        Err(error) => println!("skipped: cannot run {python}: {error}"),
    }
    None
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

fn archived(db: &Database) -> (i64, i64) {
    let (mut rows, mut sum) = (0, 0);
    for unit in db.snapshot().collection("weather").unwrap().archived(&ScanRequest::default()).unwrap().units {
        for batch in unit.read().unwrap() {
            let batch = batch.unwrap();
            let column = batch.column_by_name("v").unwrap();
            for row in 0..batch.num_rows() {
                rows += 1;
                sum += match ebbtide::buckets::value_at(column.as_ref(), row) {
                    Value::Int(v) => v,
                    other => panic!("a reading of {other:?}"),
                };
            }
        }
    }
    (rows, sum)
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

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Serves S3 on a port of its own, makes a bucket, and tells the port.
const MOTO: &str = "
import urllib.request, threading
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
urllib.request.urlopen(urllib.request.Request(f'http://127.0.0.1:{port}/bucket', method='PUT')).read()
print(port, flush=True)
threading.Event().wait()
";

/// The part that needs the environment of a server: run again by the test below.
#[test]
fn on_a_server() {
    let Ok(url) = std::env::var("EBBTIDE_LAKE_URL") else { return };
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(at(0));
    let db = open(folder.path(), &clock);
    let filled = fill(&db, &clock, &url);
    assert_eq!(archived(&db), filled);
    drop(db);
    let db = open(folder.path(), &clock);
    assert_eq!(archived(&db), filled);
    let (place, version) = db.snapshot().collection("weather").unwrap().archive().unwrap();
    assert_eq!(place.verify(version.unwrap()).unwrap(), Vec::<String>::new());
    assert_eq!(place.vacuum().unwrap(), 0);
    let shown = format!("{place:?}");
    assert!(!shown.contains("secret-key"), "{shown}");
}

#[test]
fn an_archive_on_an_s3_server_is_read_back() {
    let Some(python) = python_with("moto.server") else { return };
    let mut server = Command::new(python);
    let server = server.args(["-c", MOTO]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut server = Server(server);
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    assert!(!port.is_empty(), "the server did not start");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "on_a_server"])
        .env("EBBTIDE_LAKE_URL", "s3://bucket/some/where")
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", port.trim()))
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_ACCESS_KEY_ID", "key")
        .env("AWS_SECRET_ACCESS_KEY", "secret-key")
        .env("AWS_REGION", "us-east-1")
        .output()
        .unwrap();
    let (told, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{failed}");
    assert!(told.contains("1 passed"), "{told}");
    assert!(!told.contains("secret-key") && !failed.contains("secret-key"));
}
