//! MongoDB's Python driver against the server: needs a Python that has pymongo, named by `EBBTIDE_PYTHON`.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use ebbtide_server::{Databases, Server, Settings};
use std::process::{Command, Output};

/// The Python to use, if it has pymongo.
fn python() -> Option<String> {
    let Ok(python) = std::env::var("EBBTIDE_PYTHON") else {
        eprintln!("skipped: EBBTIDE_PYTHON names no Python, so no driver is tried");
        return None;
    };
    let has_driver = Command::new(&python).args(["-c", "import pymongo"]).output();
    if has_driver.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: {python} has no pymongo (pip install pymongo), so no driver is tried");
    None
}

async fn run(script: &str, options: &str) -> Option<Output> {
    let python = python()?;
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::in_folder(folder.path().join("dbs")).unwrap();
    let server = Server::start(databases, Settings { mongodb: Some(0), ..Settings::default() }).await.unwrap();
    let uri = format!("mongodb://{}/{options}", server.mongodb_address().unwrap());
    let script = format!("{}/tests/drivers/{script}", env!("CARGO_MANIFEST_DIR"));
    let run = tokio::task::spawn_blocking(move || Command::new(python).args([script, uri]).output().unwrap());
    let output = run.await.unwrap();
    server.stop().await.unwrap();
    Some(output)
}

fn assert_success(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_work_as_the_driver_expects() {
    if let Some(output) = run("commands.py", "").await {
        assert_success(&output);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_give_the_same_over_both_kinds_of_collections() {
    if let Some(output) = run("aggregate.py", "").await {
        assert_success(&output);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_may_be_compressed() {
    for compressor in ["zlib", "snappy", "zstd"] {
        if let Some(output) = run("commands.py", &format!("?compressors={compressor}")).await {
            assert_success(&output);
        }
    }
}
