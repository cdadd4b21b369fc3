//! MongoDB's Python driver against the server: needs a Python that has pymongo, named by `EBBTIDE_PYTHON`.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use ebbtide_server::{AccountsFile, Databases, Role, Server, Settings, TlsFiles};
use std::path::Path;
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
    run_with(Settings::default(), script, options, &[]).await
}

async fn run_with(settings: Settings, script: &str, options: &str, arguments: &[String]) -> Option<Output> {
    let python = python()?;
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::in_folder(folder.path().join("dbs")).unwrap();
    let server = Server::start(databases, Settings { mongodb: Some(0), ..settings }).await.unwrap();
    let uri = format!("mongodb://{}/{options}", server.mongodb_address().unwrap());
    let script = format!("{}/tests/drivers/{script}", env!("CARGO_MANIFEST_DIR"));
    let arguments = [&[script, uri], arguments].concat();
    let run = tokio::task::spawn_blocking(move || Command::new(python).args(arguments).output().unwrap());
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
async fn what_runs_and_what_ran_can_be_asked() {
    if let Some(output) = run("diagnostics.py", "").await {
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

/// Settings with the accounts that the script knows.
fn with_accounts(folder: &Path) -> Settings {
    let file = AccountsFile::new(folder.join(AccountsFile::NAME));
    file.change(|accounts| {
        accounts.add("ada", Role::Admin, "pass of ada \u{2168}")?;
        accounts.add("wim, of=the team", Role::Write, "w")?;
        accounts.add("rea", Role::Read, "r")
    })
    .unwrap();
    let login_delay = std::time::Duration::from_millis(1);
    Settings { accounts: Some(file), login_delay, ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_log_in_and_do_what_their_role_may() {
    let folder = tempfile::tempdir().unwrap();
    let settings = with_accounts(folder.path());
    if let Some(output) = run_with(settings, "accounts.py", "", &[String::new()]).await {
        assert_success(&output);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_connect_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, text: &str| {
        use ebbtide::fs::Fs;
        let path = folder.path().join(name);
        ebbtide::fs::RealFs::new().create(&path).unwrap().append(text.as_bytes()).unwrap();
        path
    };
    let cert = file("cert.pem", &made.cert.pem());
    let key = file("key.pem", &made.signing_key.serialize_pem());
    let tls = Some(TlsFiles { cert: cert.clone(), key });
    let settings = Settings { tls, ..with_accounts(folder.path()) };
    if let Some(output) = run_with(settings, "accounts.py", "", &[cert.display().to_string()]).await {
        assert_success(&output);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_different_on_purpose_is_as_the_page_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/from-mongodb.md").to_owned();
    let settings = Settings { statement_bytes_max: 1 << 20, ..Settings::default() };
    if let Some(output) = run_with(settings, "differences.py", "", &[page]).await {
        assert_success(&output);
    }
    // What a driver's write creates, a command of the library does not.
    let folder = tempfile::tempdir().unwrap();
    let database = ebbtide::Database::open(folder.path().join("db")).unwrap();
    let error = database.run_command(&serde_json::json!({"insert": "fresh", "documents": [{"a": 1}]})).unwrap_err();
    assert_eq!(error.code(), ebbtide::ttl::Code::NamespaceNotFound);
}
