//! Prometheus and VictoriaMetrics' agent, which send what they scrape by remote write. `EBBTIDE_PROMETHEUS_ROUNDS` is how often
//! the server is killed, about once a second.

#![expect(clippy::disallowed_methods, reason = "the configuration of another program")]

use crate::child::Process;
use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, TimestampMillisecondType};
use ebbtide::{Database, ScanRequest};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Scrapes between one event and the next.
const SCRAPES: usize = 5;

/// A program that is killed when this is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Starts a program in a folder; nothing if it is not installed.
fn started(program: &str, folder: &Path, args: &[String]) -> Option<Program> {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => Some(Program(child)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: there is no program {program}");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What is at an address; nothing as long as nobody answers.
fn got(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    reply.split_once("\r\n\r\n").filter(|(head, _)| head.contains(" 200 ")).map(|(_, body)| body.to_owned())
}

/// The times and values of the metric `up` that Prometheus has.
fn scraped(port: u16) -> BTreeMap<i64, f64> {
    let Some(reply) = got(port, "/api/v1/query?query=up%5B1h%5D") else { return BTreeMap::new() };
    let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
    let values = reply["data"]["result"][0]["values"].as_array().cloned().unwrap_or_default();
    let pair = |pair: &serde_json::Value| {
        let millis = (pair[0].as_f64().unwrap() * 1000.0).round();
        (millis as i64, pair[1].as_str().unwrap().parse().unwrap())
    };
    values.iter().map(pair).collect()
}

/// Those that are stored, each once.
fn stored(folder: &Path) -> BTreeMap<i64, f64> {
    let Ok(database) = Database::builder(folder.join("metrics")).read_only().open() else { return BTreeMap::new() };
    let Ok(collection) = database.snapshot().collection("prometheus") else { return BTreeMap::new() };
    let mut all = BTreeMap::new();
    for unit in collection.scan(&ScanRequest::default()).unwrap() {
        for batch in unit.read().unwrap() {
            let batch = batch.unwrap();
            let column = |name: &str| batch.column_by_name(name).unwrap().clone();
            let (times, values, labels) = (column("time"), column("value"), column("labels"));
            let names = labels.as_struct().column_by_name("__name__").unwrap().clone();
            let names = arrow::compute::cast(&names, &arrow::datatypes::DataType::Utf8).unwrap();
            for row in (0..batch.num_rows()).filter(|row| names.as_string::<i32>().value(*row) == "up") {
                let at = times.as_primitive::<TimestampMillisecondType>().value(row);
                let before = all.insert(at, values.as_primitive::<Float64Type>().value(row));
                assert_eq!(before, None, "the sample of {at} is stored twice");
            }
        }
    }
    all
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

#[test]
fn every_sample_of_prometheus_is_stored_once_though_the_server_is_killed() {
    let rounds = std::env::var("EBBTIDE_PROMETHEUS_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (http, own) = (free_port(), free_port());
    drop(Database::open(folder.path().join("metrics")).unwrap());
    // A fixed number of shards: with another number Prometheus starts them anew, and gives up what the old ones have not sent after a
    // minute (it counts as failed).
    let config = format!(
        "global: {{scrape_interval: 100ms, scrape_timeout: 100ms}}\n\
         scrape_configs: [{{job_name: itself, static_configs: [{{targets: ['127.0.0.1:{own}']}}]}}]\n\
         remote_write: [{{url: 'http://127.0.0.1:{http}/api/v1/write', \
         queue_config: {{min_shards: 2, max_shards: 2, batch_send_deadline: 100ms, min_backoff: 30ms, \
         max_backoff: 100ms}}}}]\n"
    );
    std::fs::write(folder.path().join("prometheus.yml"), &config).unwrap();
    let args = [
        "--config.file=prometheus.yml".to_owned(),
        "--storage.tsdb.path=prometheus".to_owned(),
        format!("--web.listen-address=127.0.0.1:{own}"),
    ];
    let mut server = Process::start_with_http(folder.path(), http);
    let Some(_prometheus) = started("prometheus", folder.path(), &args) else { return };
    for _ in 0..rounds {
        let before = scraped(own).len();
        wait_for(|| scraped(own).len() >= before + SCRAPES);
        drop(server);
        let before = scraped(own).len();
        wait_for(|| scraped(own).len() >= before + SCRAPES);
        server = Process::start_with_http(folder.path(), http);
    }
    let expected = scraped(own);
    wait_for(|| stored(folder.path()).last_key_value() >= expected.last_key_value());
    let stored = stored(folder.path());
    let missing: Vec<_> = expected.iter().filter(|(at, value)| stored.get(at) != Some(value)).collect();
    assert!(
        expected.len() > 6 * SCRAPES && missing.is_empty(),
        "{} of {} are missing: {missing:?}",
        missing.len(),
        expected.len()
    );
    println!("{} samples, {rounds} kills", expected.len());
}

#[test]
fn the_agent_of_victoria_metrics_falls_back_to_remote_write() {
    let folder = tempfile::tempdir().unwrap();
    let (http, own) = (free_port(), free_port());
    drop(Database::open(folder.path().join("metrics")).unwrap());
    let config = format!(
        "global: {{scrape_interval: 200ms}}\n\
         scrape_configs: [{{job_name: server, static_configs: [{{targets: ['127.0.0.1:{http}']}}]}}]\n"
    );
    std::fs::write(folder.path().join("agent.yml"), &config).unwrap();
    let args = [
        "-promscrape.config=agent.yml".to_owned(),
        format!("-remoteWrite.url=http://127.0.0.1:{http}/api/v1/write"),
        "-remoteWrite.flushInterval=200ms".to_owned(),
        format!("-httpListenAddr=127.0.0.1:{own}"),
    ];
    let _server = Process::start_with_http(folder.path(), http);
    let Some(_agent) = started("vmagent", folder.path(), &args) else { return };
    wait_for(|| stored(folder.path()).len() >= SCRAPES);
    assert!(stored(folder.path()).values().all(|up| *up == 1.0));
}
