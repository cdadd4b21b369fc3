//! `ebbtide archive`: what an archive has, compared with its checksums, cleared of leftovers, and taken over.
#![expect(clippy::disallowed_methods, reason = "damages and dates files as another program does")]

use crate::cli::{Output, inside};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A database with an archive, and copies of it.
struct Machine(TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        machine.sql(
            "db",
            "CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door') EXPIRE AFTER 1 HOUR INTO 'ARCHIVE'",
        );
        machine
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn archive(&self) -> PathBuf {
        self.path().join("archive")
    }

    fn run(&self, db: &str, args: &[&str]) -> Output {
        inside(self.path(), &[&["--db", db], args].concat(), "")
    }

    /// What a command that succeeds prints.
    fn out(&self, db: &str, args: &[&str]) -> String {
        let output = self.run(db, args);
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        output.stdout
    }

    fn sql(&self, db: &str, statement: &str) {
        let url = format!("file://{}", self.archive().display());
        self.out(db, &["sql", &statement.replace("ARCHIVE", &url)]);
    }

    /// Inserts what has expired, and moves it to the archive if that can be.
    fn expire(&self, db: &str, day: u32) -> Output {
        self.sql(
            db,
            &format!("INSERT INTO doors (t, door, n) VALUES ('2024-01-{day:02}T10:00:00Z', 'front', {day}), ('2024-01-{day:02}T11:00:00Z', 'back', {day})"),
        );
        self.run(db, &["sweep"])
    }

    /// The files with measurements in the archive.
    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.archive()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|end| end == "parquet")).collect()
    }

    /// Which rows the archive has, by its own database.
    fn archived(&self, db: &str) -> String {
        self.out(db, &["sql", "SELECT n FROM archived('doors') ORDER BY n, door", "--format", "csv"])
    }
}

#[test]
fn an_archive_is_compared_with_its_checksums() {
    let machine = Machine::new();
    assert_eq!(machine.out("db", &["archive", "verify", "doors"]), "nothing has been archived yet\n");
    assert_eq!(machine.expire("db", 1).code, 0);
    assert_eq!(machine.expire("db", 2).code, 0);
    let status = machine.out("db", &["archive", "status"]);
    assert!(
        status.contains("archived: 4 measurements, 2024-01-01T10:00:00Z to 2024-01-02T11:00:00Z, 2 files"),
        "{status}"
    );
    assert_eq!(machine.out("db", &["archive", "verify", "doors"]), "every file of the archive is as it was written\n");

    let [damaged, missing] = machine.files().try_into().unwrap();
    let mut content = fs::read(&damaged).unwrap();
    content[20] ^= 1;
    fs::write(&damaged, content).unwrap();
    fs::remove_file(&missing).unwrap();
    let verified = machine.run("db", &["archive", "verify", "doors"]);
    assert_eq!(verified.code, 1, "{}", verified.stderr);
    for (file, fault) in [(damaged, "is damaged"), (missing, "is missing")] {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(verified.stdout.contains(&format!("{name} {fault}, with 2 measurements")), "{}", verified.stdout);
    }
    let unknown = machine.run("db", &["archive", "verify", "windows"]);
    assert!(unknown.stderr.contains("collection 'windows' does not exist"), "{}", unknown.stderr);
}

#[test]
fn each_measurement_is_once_in_a_union_with_its_archive_at_every_instant() {
    let machine = Machine::new();
    let union = |now: &str| {
        let all = "SELECT n, door FROM doors UNION ALL SELECT n, door FROM archived('doors') ORDER BY n, door";
        machine.out("db", &["sql", all, "--format", "csv", "--now", now])
    };
    let rows = |days: u32| {
        let of_day = |day: u32| format!("{day},back\n{day},front\n");
        format!("n,door\n{}", (1..=days).map(of_day).collect::<String>())
    };
    let days = |day: u32| {
        machine.sql("db", &format!("INSERT INTO doors (t, door, n) VALUES ('2024-01-{day:02}T10:00:00Z', 'front', {day}), ('2024-01-{day:02}T11:00:00Z', 'back', {day})"));
    };
    for day in 1..=3 {
        days(day);
        // Before one of them expires, between both, and when both have expired; before a sweep and after it.
        for is_swept in [false, true] {
            if is_swept {
                machine.out("db", &["sweep"]);
            }
            for hour in ["10:30", "11:30", "12:30"] {
                assert_eq!(union(&format!("2024-01-{day:02}T{hour}:00Z")), rows(day), "{day} {hour} {is_swept}");
            }
        }
    }
    assert_eq!(machine.files().len(), 3);
}

#[test]
fn leftovers_of_an_hour_ago_are_removed_from_an_archive() {
    let machine = Machine::new();
    machine.expire("db", 1);
    let leftover = |digit: &str, hours: u64| {
        let path = machine.archive().join(format!("{}.parquet", digit.repeat(32)));
        let file = File::create(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
        path
    };
    let (old, young) = (leftover("a", 2), leftover("b", 0));
    let committed = machine.files().into_iter().find(|file| ![&old, &young].contains(&file)).unwrap();
    let refused = machine.run("db", &["archive", "vacuum", "doors", "--read-only"]);
    assert!(refused.code == 2 && refused.stderr.contains("drop --read-only"), "{}", refused.stderr);
    assert!(old.exists());
    File::options().append(true).open(&committed).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(machine.out("db", &["archive", "vacuum", "doors"]), "removed 1 file\n");
    assert_eq!((old.exists(), young.exists(), committed.exists()), (false, true, true));
    assert_eq!(machine.out("db", &["archive", "vacuum", "doors"]), "removed 0 files\n");
    assert_eq!(machine.archived("db"), "n\n1\n1\n");
}

#[test]
fn an_archive_is_taken_over_from_a_copy_of_the_database_and_the_status_says_what_fails() {
    let machine = Machine::new();
    machine.expire("db", 1);
    for copy in ["idle", "copy"] {
        let copied = std::process::Command::new("cp").args(["-r", "db", copy]).current_dir(machine.path()).status();
        assert!(copied.unwrap().success());
    }
    let failing = format!("note: the archive of doors at file://{} has failed since 2", machine.archive().display());
    let fails = |db: &str| machine.out(db, &["status"]).contains(&failing);
    let adopt = |db: &str| machine.run(db, &["archive", "adopt", "doors"]);

    // A copy that has moved nothing leaves the archive to the first database again.
    assert_eq!(adopt("idle").code, 0);
    assert_eq!(machine.expire("db", 2).code, 1);
    assert!(fails("db") && !fails("idle"));
    // The listing of rules is that of another process than the sweep.
    let rules = || machine.out("db", &["sql", "SELECT state FROM ebbtide.ttl_rules", "--format", "csv"]);
    assert!(rules().contains(", failed: ") && rules().contains("see ebbtide archive adopt"), "{}", rules());
    let refused = machine.run("db", &["archive", "adopt", "doors", "--read-only"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    let adopted = adopt("db");
    assert_eq!((adopted.code, adopted.stdout.as_str()), (0, "doors archives from this database now\n"));
    assert!(!fails("db") && !rules().contains("failed"), "{}", rules());
    machine.out("db", &["sweep"]);
    assert_eq!(machine.archived("db"), "n\n1\n1\n2\n2\n");

    // One that has moved something keeps it.
    let refused = adopt("copy");
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    assert!(refused.stderr.contains("would be there twice"), "{}", refused.stderr);
    assert_eq!(machine.files().len(), 2);
}
