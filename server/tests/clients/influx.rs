//! InfluxDB's clients, over HTTP.

use crate::support::{output_of, python, succeeded};
use ebbtide::Database;
use ebbtide_server::{Databases, Server, Settings};

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
    // Its request had a line that could not be stored.
    assert_eq!(count("mem"), 0);
}
