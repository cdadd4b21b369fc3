//! InfluxDB's clients, and what is built on them, over HTTP.

use crate::support::{installed, output_of, python, succeeded};
use ebbtide::Database;
use ebbtide_server::{Databases, Server, Settings};
use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_of_influxdb_write_is_there() {
    let Some(mut program) = python("influx.py") else { return };
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::in_folder(folder.path()).unwrap();
    let settings = Settings { mongodb: None, http: Some(0), ..Settings::default() };
    let server = Server::start(databases, settings).await.unwrap();
    program.arg(format!("http://{}", server.http_address().unwrap()));
    succeeded(&output_of(program).await);
    server.stop().await.unwrap();
    let database = Database::open(folder.path().join("plant")).unwrap();
    let snapshot = database.snapshot();
    let count = |name: &str| snapshot.collection(name).unwrap().count().unwrap();
    assert_eq!((count("cpu"), count("disk"), count("net")), (2, 2500, 100));
    // Its request had a line that could not be stored, so its collection was not created either.
    assert!(snapshot.collection("mem").is_err());
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the configuration of another program")]
async fn what_glances_exports_is_there() {
    let Some(program) = installed("venv/bin/glances") else { return };
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::in_folder(folder.path()).unwrap();
    let settings = Settings { mongodb: None, http: Some(0), ..Settings::default() };
    let server = Server::start(databases, settings).await.unwrap();
    let port = server.http_address().unwrap().port();
    let config =
        format!("[influxdb2]\nhost=127.0.0.1\nport={port}\nprotocol=http\norg=machines\nbucket=machines\ntoken=none\n");
    let file = folder.path().join("glances.conf");
    std::fs::write(&file, config).unwrap();
    let mut glances = Command::new(program);
    glances.arg("-C").arg(file).args(["--export", "influxdb2", "--quiet", "--stop-after", "3", "--time", "1"]);
    succeeded(&output_of(glances).await);
    server.stop().await.unwrap();
    let database = Database::open(folder.path().join("machines")).unwrap();
    for name in ["cpu", "mem", "load"] {
        assert!(database.snapshot().collection(name).unwrap().count().unwrap() > 0, "{name}");
    }
}
