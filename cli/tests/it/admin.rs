//! `verify`, `repair` and `clock` as an operator uses them, with damaged files and wrong clocks.

use crate::cli::{Output, ebbtide, inside};
use ebbtide::fs::{Fs, RealFs};
use ebbtide::{CollectionOptions, Database};
use ebbtide_ttl::{Clock, SystemClock, Value, VirtualClock};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn on(dir: &Path, args: &[&str]) -> Output {
    let mut all = vec!["--db", dir.to_str().unwrap()];
    all.extend(args);
    ebbtide(&all)
}

fn sql(dir: &Path, statements: &str) -> Output {
    on(dir, &["sql", "--format", "csv", statements])
}

/// The output on both streams.
fn words(output: &Output) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

/// Two sealed days of two sensors, and rows that only the log holds.
fn two_days(dir: &Path) {
    let made = sql(
        dir,
        "CREATE COLLECTION w WITH (timeField = 't', metaField = 's');
         INSERT INTO w (t, s, v) VALUES ('2024-01-01T06:00:00Z', 'roof', 1.5), ('2024-01-01T18:00:00Z', 'cellar', 2.5);
         FLUSH;
         INSERT INTO w (t, s, v) VALUES ('2024-01-02T06:00:00Z', 'roof', 3.5)",
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
}

fn file(dir: &Path, prefix: &str) -> PathBuf {
    let names = RealFs::new().list(dir).unwrap();
    dir.join(names.iter().find(|name| name.starts_with(prefix)).unwrap_or_else(|| panic!("{prefix}: {names:?}")))
}

/// Flips a bit at an offset.
fn flip(path: &Path, offset: usize) {
    let mut bytes = RealFs::new().read(path).unwrap();
    bytes[offset] ^= 4;
    #[expect(clippy::disallowed_methods, reason = "this is the damage")]
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_segment_is_named_with_what_is_lost_and_set_aside_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    two_days(&dir);
    let verified = on(&dir, &["verify"]);
    assert_eq!(verified.code, 0);
    for part in ["no faults: 1 segments, 2 rows", "; 1 row only in the log"] {
        assert!(words(&verified).contains(part), "no {part} in: {}", words(&verified));
    }
    let segment = file(&dir.join("w.1"), "seg-");
    flip(&segment, 40);
    let name = segment.file_name().unwrap().to_str().unwrap();
    let verified = on(&dir, &["verify"]);
    assert_eq!(verified.code, 1);
    assert!(words(&verified).contains(name) && words(&verified).contains("offset"), "{}", words(&verified));
    let before = RealFs::new().list(&dir).unwrap();
    for args in [&["repair"][..], &["repair", "--dry-run"]] {
        let said = on(&dir, args);
        assert_eq!(said.code, 1);
        let said = words(&said);
        for part in
            [name, "collection 'w'", "\"roof\"", "\"cellar\"", "2024-01-01T06:00:00Z", "2024-01-01T18:00:00Z", "--yes"]
        {
            assert!(said.contains(part), "no {part} in: {said}");
        }
        assert_eq!(RealFs::new().list(&dir).unwrap(), before, "a dry run changes nothing");
    }
    let done = on(&dir, &["repair", "--yes"]);
    assert_eq!(done.code, 0, "{}", words(&done));
    assert!(words(&done).contains("the database opens again"), "{}", words(&done));
    assert!(dir.join("damaged-1").join(name).exists() && dir.join("damaged-1").join("REPORT.txt").exists());
    assert_eq!(on(&dir, &["verify"]).code, 0);
    assert_eq!(sql(&dir, "SELECT s, v FROM w").stdout, "s,v\nroof,3.5\n");
    assert_eq!(on(&dir, &["repair"]).code, 0, "nothing is left to repair");
}

#[test]
fn a_damaged_log_and_manifest_are_named_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for prefix in ["wal-", "MANIFEST-"] {
        let dir = folder.path().join(prefix);
        two_days(&dir);
        let path = file(&dir, prefix);
        // In the header, which a power cut never leaves half-written.
        flip(&path, 20);
        let name = path.file_name().unwrap().to_str().unwrap();
        for args in [&["verify"][..], &["status"], &["sql", "SELECT 1"], &["repair"], &["clock"]] {
            let said = on(&dir, args);
            assert_eq!(said.code, 1, "{args:?}");
            assert!(words(&said).contains(name), "{args:?}: no {name} in: {}", words(&said));
            assert!(words(&said).contains("offset") || args == ["repair"], "{args:?}: {}", words(&said));
        }
    }
}

#[test]
fn repair_of_nothing_and_of_a_database_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let nothing = on(&dir, &["repair"]);
    assert_eq!(nothing.code, 1);
    assert!(words(&nothing).contains("there is no database at"), "{}", words(&nothing));
    let db = Database::open(&dir).unwrap();
    for args in [&["repair", "--yes"][..], &["sql", "CREATE COLLECTION w WITH (timeField = 't')"]] {
        let busy = on(&dir, args);
        assert_eq!(busy.code, 1, "{args:?}");
        let holder = format!("is open for writing by process {}", std::process::id());
        assert!(words(&busy).contains(&holder), "{}", words(&busy));
    }
    for args in [&["repair"][..], &["repair", "--dry-run"], &["--read-only", "repair"]] {
        let busy = on(&dir, args);
        assert!(busy.code == 1 && words(&busy).contains("ebbtide verify reads"), "{args:?}: {}", words(&busy));
    }
    db.close().unwrap();
    assert_eq!(on(&dir, &["repair", "--yes"]).code, 0);
}

#[test]
fn commands_that_change_nothing_run_beside_a_program_that_writes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    two_days(&dir);
    let db = Database::open(&dir).unwrap();
    for document in [
        r#"{"count": "w"}"#,
        r#"{"distinct": "w", "key": "s"}"#,
        r#"{"find": "w"}"#,
        r#"{"listLadders": 1}"#,
        r#"{"listPublications": 1}"#,
    ] {
        let said = on(&dir, &["command", document]);
        assert_eq!(said.code, 0, "{document}: {}", words(&said));
    }
    let busy = on(&dir, &["command", r#"{"drop": "w"}"#]);
    assert!(busy.code == 1 && words(&busy).contains("is open for writing by"), "{}", words(&busy));
    db.close().unwrap();
}

#[test]
fn a_person_confirms_the_time_from_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let today = SystemClock::new().now();
    let clock = VirtualClock::new(today.plus_seconds(-10 * 86_400));
    let db = Database::builder(&dir).clock(Arc::new(clock.clone())).open().unwrap();
    let c = db.create_collection("c", CollectionOptions::new("t").expire_after_seconds(86_400)).unwrap();
    c.insert_documents(&[Value::Object(vec![("t".into(), Value::Date(clock.now()))])]).unwrap();
    clock.jump(today);
    assert!(db.sweep().unwrap().held.is_some());
    assert_eq!(on(&dir, &["clock"]).code, 0, "to look is no confirmation");
    assert!(db.sweep().unwrap().held.is_some());
    assert_eq!(on(&dir, &["--read-only", "clock", "--confirm"]).code, 2);
    let confirmed = on(&dir, &["clock", "--confirm"]);
    assert_eq!(confirmed.code, 0, "{}", words(&confirmed));
    assert!(confirmed.stdout.contains("its next sweep accepts the clock"), "{}", confirmed.stdout);
    let report = db.sweep().unwrap();
    assert_eq!((report.held, report.counts.deleted_documents), (None, 1));
    db.close().unwrap();
    let nobody = on(&dir, &["clock", "--confirm"]);
    assert_eq!(nobody.code, 0);
    assert!(nobody.stdout.contains("no program has the database open"), "{}", nobody.stdout);
}

/// Runs the program with a different wall clock and the real monotonic clock.
fn at(time: &str, dir: &Path, args: &[&str]) -> Output {
    let mut faked = Command::new("faketime");
    faked.args(["--exclude-monotonic", "-f", time, env!("CARGO_BIN_EXE_ebbtide"), "--db"]).arg(dir).args(args);
    let output = faked.env_remove("EBBTIDE_DB").env("NO_COLOR", "1").env("TZ", "UTC").output().unwrap();
    Output {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Six runs of the program with clocks that are wrong, or rightly different.
#[test]
fn wrong_clocks_drop_nothing_and_honest_downtime_does() {
    if Command::new("faketime").arg("--version").output().is_err() {
        println!("skipped: no faketime here, so the program met no wrong clock");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let noon = "@2024-01-01 12:00:00";
    let made = at(
        noon,
        &dir,
        &[
            "sql",
            "CREATE COLLECTION w WITH (timeField = 't', metaField = 's') EXPIRE AFTER 2 DAYS;
             INSERT INTO w (t, s, v) VALUES ('2024-01-01T11:00:00Z', 'roof', 1.5), ('2024-01-03T11:00:00Z', 'roof', 2.5); FLUSH",
        ],
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
    let rows = |time: &str| at(time, &dir, &["sql", "--format", "csv", "SELECT v FROM w ORDER BY v"]).stdout;
    // 1 The clock runs ahead of the monotonic clock, half a day in a few milliseconds: nothing is dropped.
    let fast = at("@2024-01-01 12:00:00 x1000000", &dir, &["sql", "SELECT 1; SWEEP"]);
    assert!(
        words(&fast).contains("nothing was dropped because it has expired: the wall clock jumped"),
        "{}",
        words(&fast)
    );
    // 2 Back at the right time, everything is there, including hidden rows.
    assert_eq!(rows(noon), "v\n1.5\n2.5\n");
    // 3 A clock that goes back to 1999 drops nothing and does no harm.
    let back = at("@1999-01-01 00:00:00", &dir, &["sweep"]);
    assert_eq!(back.code, 0, "{}", words(&back));
    assert_eq!(rows("@1999-01-01 00:00:00"), "v\n1.5\n2.5\n");
    // 4 Real downtime: the machine was off for two days, and what is due is dropped.
    let honest = at("@2024-01-03 12:00:00", &dir, &["sweep"]);
    assert_eq!(honest.code, 0, "{}", words(&honest));
    assert_eq!(rows("@2024-01-03 12:00:00"), "v\n2.5\n");
    assert_eq!(rows(noon), "v\n2.5\n", "what is dropped does not come back with the clock");
    // 5 If the clock is earlier than the last drop, the program says so.
    let behind = at(noon, &dir, &["clock"]);
    assert!(behind.code == 0 && behind.stdout.contains("the clock is earlier than that"), "{}", words(&behind));
    // 6 With a clock far ahead at opening, an operator sees what would be dropped before anything is.
    let ahead = at("@2034-01-01 12:00:00", &dir, &["clock"]);
    assert!(ahead.stdout.contains("the clock says 2034-01-01T12:00:0"), "{}", words(&ahead));
    assert!(ahead.stdout.contains("would drop 1 bucket with 1 measurement,"), "{}", words(&ahead));
    assert_eq!(rows(noon), "v\n2.5\n");
}

#[test]
fn a_sweep_writes_what_it_drops_to_a_file_or_to_its_output_first() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let told = |args: &[&str]| {
        let output = inside(folder, args, "");
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        output.stdout
    };
    let statements = "
        CREATE COLLECTION a WITH (timeField = 't', metaField = 's') EXPIRE AFTER 1 HOUR;
        INSERT INTO a (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'x', 1), ('2024-01-01T00:00:30Z', 'y', 2), (now(), 'x', 3);
        CREATE COLLECTION b WITH (timeField = 't', handOff = 'required') EXPIRE AFTER 1 HOUR;
        INSERT INTO b (t, w) VALUES ('2024-01-01T00:00:00Z', 'in b')";
    told(&["sql", statements]);
    // One file holds the measurements of one collection; those of the other stay.
    let first = inside(folder, &["sweep", "--expired-to", "gone.parquet"], "");
    assert!(first.code != 0 && first.stdout.starts_with("2 buckets with 2 measurements dropped"), "{}", words(&first));
    let query = "SELECT s, v FROM 'gone.parquet' ORDER BY v";
    assert_eq!(told(&["sql", "--format", "csv", query]), "s,v\nx,1\ny,2\n");
    assert_eq!(told(&["sql", "--format", "csv", "SELECT v FROM a"]), "v\n3\n");
    let again = inside(folder, &["sweep", "--expired-to", "gone.parquet"], "");
    assert!(again.code != 0 && again.stderr.contains("is not overwritten"), "{}", words(&again));
    let unclear = inside(folder, &["sweep", "--expired-to", "gone"], "");
    assert!(
        unclear.code != 0 && unclear.stderr.contains("the format is not clear from the name"),
        "{}",
        words(&unclear)
    );
    // Nothing is dropped where a hand-off is required and nobody takes it.
    assert!(told(&["sweep"]).starts_with("0 buckets"));
    let state = "SELECT state FROM ebbtide.ttl_rules WHERE collection = 'b'";
    assert_eq!(told(&["sql", "--format", "csv", state]), "state\n\"active, handOff: required\"\n");
    assert_eq!(told(&["sweep", "--expired-to", "-"]), "{\"t\":\"2024-01-01T00:00:00Z\",\"w\":\"in b\"}\n");
    told(&["sql", "INSERT INTO b (t, w) VALUES ('2024-01-01T00:00:00Z', 'again')"]);
    assert!(told(&["sweep", "--without-sink"]).starts_with("1 bucket"));
}
