//! `ebbtide archive` against servers of object storage.

use crate::cli::{Output, inside};
use crate::stores::{BUSY_MOTO, MINISTACK, MOTO, azure, python_with, s3, store_of};
use futures::TryStreamExt;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt};
use std::path::Path;
use std::process::Command;

/// A database, and the objects of its archive.
struct Machine<'a> {
    folder: &'a Path,
    url: &'a str,
    store: &'a dyn ObjectStore,
}

impl Machine<'_> {
    fn run(&self, args: &[&str]) -> Output {
        inside(self.folder, &[&["--db", "db"], args].concat(), "")
    }

    fn out(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        output.stdout
    }

    fn sql(&self, statement: &str) -> String {
        self.out(&["sql", statement, "--format", "csv"])
    }

    /// Moves two measurements of a day to the archive.
    fn expire(&self, day: u32) {
        self.sql(&format!(
            "INSERT INTO doors (t, door, n) VALUES ('2024-01-{day:02}T10:00:00Z', 'front', {day}), ('2024-01-{day:02}T11:00:00Z', 'back', {day})"
        ));
        self.out(&["sweep"]);
    }

    /// The files with measurements.
    async fn files(&self) -> Vec<Name> {
        let all: Vec<_> = self.store.list(None).try_collect().await.unwrap();
        let files = all.into_iter().map(|object| object.location);
        files.filter(|name| name.as_ref().ends_with(".parquet") && !name.as_ref().contains("_delta_log")).collect()
    }

    /// What `ebbtide archive vacuum` says two hours later.
    fn vacuum_later(&self) -> Option<String> {
        let mut later = Command::new("faketime");
        later.args(["-f", "+2h", env!("CARGO_BIN_EXE_ebbtide"), "--db", "db", "archive", "vacuum", "doors"]);
        let output = later.current_dir(self.folder).output();
        let output = output.inspect_err(|_| println!("skipped: no faketime here, so no leftover is old")).ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The part that needs the environment of a server: run again by the tests below.
#[tokio::test]
async fn on_a_server() {
    let Ok(url) = std::env::var("EBBTIDE_LAKE_URL") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (url, store) = (format!("{url}/archive"), store_of(&url));
    let machine = Machine { folder: folder.path(), url: &url, store: store.as_ref() };
    machine.sql(&format!(
        "CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door') EXPIRE AFTER 1 HOUR INTO '{}'",
        machine.url
    ));
    machine.expire(1);
    machine.expire(2);
    machine.sql("CREATE COLLECTION others WITH (timeField = 't')");
    let status = machine.out(&["archive", "status"]);
    let told = "archived: 4 measurements, 2024-01-01T10:00:00Z to 2024-01-02T11:00:00Z, 2 files";
    assert!(status.contains(told) && status.contains(machine.url), "{status}");
    let whole = "every file of the archive is as it was written\n";
    assert_eq!(machine.out(&["archive", "verify", "doors"]), whole);
    let rows = "n\n1\n1\n2\n2\n";
    let archived = "SELECT n FROM archived('doors') ORDER BY n, door";
    assert_eq!(machine.sql(archived), rows);

    // A program that cleans the table up would remove a copy or another table in its folder.
    let within = format!("{}/x/within", machine.url);
    let publish = format!("PUBLISH others TO '{within}'");
    for args in [&["ship", "--once", "--to", within.as_str()][..], &["sql", publish.as_str()][..]] {
        let refused = machine.run(args);
        let told = format!("{within} is in a folder with a table or a copy, {}", machine.url);
        assert!(refused.code == 1 && refused.stderr.contains(&told), "{args:?}: {}", refused.stderr);
    }

    // What a crash has left: it stays for an hour, since it may be part of a commit.
    let files = machine.files().await;
    let [damaged, missing] = files.as_slice() else { panic!("{files:?}") };
    let folder_of_files = damaged.as_ref().rsplit_once('/').unwrap().0;
    let leftover = Name::from(format!("{folder_of_files}/{}.parquet", "a".repeat(32)));
    store.put(&leftover, "left over".into()).await.unwrap();
    assert_eq!(machine.out(&["archive", "vacuum", "doors"]), "removed 0 files\n");
    if let Some(told) = machine.vacuum_later() {
        assert_eq!(told, "removed 1 file\n");
        assert_eq!(machine.files().await, files);
    }
    assert_eq!((machine.out(&["archive", "verify", "doors"]).as_str(), machine.sql(archived).as_str()), (whole, rows));

    let mut content = store.get(damaged).await.unwrap().bytes().await.unwrap().to_vec();
    content[20] ^= 1;
    store.put(damaged, content.into()).await.unwrap();
    store.delete(missing).await.unwrap();
    let verified = machine.run(&["archive", "verify", "doors"]);
    assert_eq!(verified.code, 1, "{}", verified.stderr);
    for (file, fault) in [(damaged, "is damaged"), (missing, "is missing")] {
        let told = format!("{} {fault}, with 2 measurements", file.filename().unwrap());
        assert!(verified.stdout.contains(&told), "{}", verified.stdout);
    }
    // Both were kept for long enough: nothing is read of them.
    machine.sql(&format!("ALTER COLLECTION doors EXPIRE AFTER 1 HOUR INTO '{}' KEEP 1 DAY", machine.url));
    machine.out(&["sweep"]);
    assert_eq!(machine.out(&["archive", "verify", "doors"]), whole);
    assert_eq!(machine.sql(archived), "n\n");
}

const ON_A_SERVER: &str = "archive_on_servers::on_a_server";

#[test]
fn the_commands_of_an_archive_do_their_work_on_an_s3_server() {
    let Some(python) = python_with("moto.server") else { return };
    s3(&python, MOTO).run_test(ON_A_SERVER);
}

#[test]
fn the_commands_of_an_archive_do_their_work_on_another_s3_server() {
    let Some(python) = python_with("ministack") else { return };
    s3(&python, MINISTACK).run_test(ON_A_SERVER);
}

#[test]
fn the_commands_of_an_archive_do_their_work_on_an_azure_server() {
    let Some(server) = azure() else { return };
    server.run_test(ON_A_SERVER);
}

/// The part that needs a server which refuses requests at first.
#[test]
fn on_a_busy_server() {
    let Ok(url) = std::env::var("EBBTIDE_LAKE_URL") else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = inside(folder.path(), &[&["--db", "db"], args].concat(), "");
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        output.stdout
    };
    let archive =
        "CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door') EXPIRE AFTER 1 HOUR INTO 'URL/archive'";
    run(&["sql", &archive.replace("URL", &url)]);
    run(&["sql", "INSERT INTO doors (t, door, n) VALUES ('2024-01-01T10:00:00Z', 'front', 1)"]);
    run(&["sweep"]);
    let status = run(&["status"]);
    let told = format!("note: the archive of doors at {url}/archive has been throttled since 2");
    assert!(status.contains(&told), "{status}");
    assert!(run(&["metrics"]).contains("ebbtide_place_throttled{what=\"archive of doors\","));
}

#[test]
fn the_status_says_that_a_busy_server_refuses_requests() {
    let Some(python) = python_with("moto.server") else { return };
    s3(&python, &BUSY_MOTO.replace("number == 20", "number == 3")).run_test("archive_on_servers::on_a_busy_server");
}
