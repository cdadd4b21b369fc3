//! The program: exit codes, output streams, and invalid input.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::NamedTempFile;

pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide"));
    command.env_remove("EBBTIDE_DB").env_remove("EBBTIDE_LOG").env("NO_COLOR", "1");
    command
}

fn finish(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Output {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// What a program that keeps running writes to stderr. It is a file: nobody reads meanwhile, and a pipe that is full would stop the program.
pub(crate) struct Log(NamedTempFile);

impl Log {
    /// Begins a program with its stderr in a log.
    pub(crate) fn of(command: &mut Command) -> Log {
        let file = NamedTempFile::new().unwrap();
        command.stderr(file.reopen().unwrap());
        Log(file)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        self.0.reopen().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

/// Runs the program here, without input.
pub(crate) fn ebbtide(args: &[&str]) -> Output {
    inside(Path::new("."), args, "")
}

pub(crate) fn inside(folder: &Path, args: &[&str], input: &str) -> Output {
    let mut all = command();
    all.current_dir(folder).args(args);
    finish(all, input)
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) {
    #[expect(clippy::disallowed_methods, reason = "test input")]
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn results_and_messages_go_their_own_ways() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| inside(folder.path(), args, "");
    let made = run(&["sql", "CREATE COLLECTION w WITH (timeField = 't', metaField = 's')"]);
    assert_eq!((made.code, made.stdout.as_str()), (0, ""));
    assert!(made.stderr.contains("collection w created"));
    let filled = run(&["sql", "INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'a', 1.5)"]);
    assert_eq!(filled.code, 0, "{}", filled.stderr);
    let read = run(&["sql", "--format", "csv", "SELECT * FROM w"]);
    assert_eq!((read.code, read.stdout.as_str(), read.stderr.as_str()), (0, "t,s,v\n2024-01-01T00:00:00Z,a,1.5\n", ""));
    let read = run(&["--db", "ebbtide-data", "sql", "SELECT v FROM w; SELECT s FROM w", "--format", "ndjson"]);
    assert_eq!(read.stdout, "{\"v\":1.5}\n{\"s\":\"a\"}\n");
    let read = run(&["sql", "SELECT 1 AS a -- one", "SELECT v FROM w", "--format", "csv"]);
    assert_eq!((read.code, read.stdout.contains("1.5")), (0, true), "{}", read.stderr);
    let read = inside(folder.path(), &["sql", "--format", "json"], "SELECT count(*) AS n\nFROM w;\n");
    assert_eq!(read.stdout, "[\n{\"n\":1}\n]\n");
    let wrong = run(&["sql", "SELECT * FROM x"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (1, ""));
    assert!(wrong.stderr.starts_with("error: collection 'x' does not exist"), "{}", wrong.stderr);
    assert_eq!(run(&["sql", "--format", "xml", "SELECT 1"]).code, 2);
    assert_eq!(run(&["no-such-command"]).code, 2);
    let elsewhere = run(&["demo", "--db", "w.db"]);
    assert_eq!((elsewhere.code, elsewhere.stderr.contains("--into DIR")), (2, true), "{}", elsewhere.stderr);
    assert_eq!(run(&["conformance", "--read-only", "cases"]).code, 2);
    assert_eq!(run(&["--help"]).code, 0);
    assert_eq!(run(&["sql", "SELECT * FROM w", "--output", "w.unknown"]).code, 2);
    assert_eq!(run(&["--read-only", "sql", "DELETE FROM w"]).code, 1);
    assert_eq!(run(&["sql", "--now", "soon", "SELECT 1"]).code, 2);
    let changed = run(&["sql", "--now", "2030-01-01", "ALTER COLLECTION w EXPIRE AFTER 1 DAYS"]);
    assert_eq!(changed.code, 2);
    assert!(changed.stderr.contains("drop --now"), "{}", changed.stderr);
    assert_eq!(run(&["status"]).code, 0);
    assert_eq!(run(&["verify"]).code, 0);
    assert_eq!(run(&["sweep"]).code, 0);
    assert_eq!(run(&["sweep", "--dry-run", "--now", "2030-01-01"]).code, 0);
    let file = run(&["export", "SELECT * FROM w", "--output", "w.parquet"]);
    assert_eq!((file.code, file.stdout.as_str()), (0, ""));
    let back = run(&["import", "w.parquet", "--collection", "back", "--meta", "s"]);
    assert_eq!(back.code, 0, "{}", back.stderr);
    assert_eq!(run(&["sql", "--format", "csv", "SELECT v FROM back"]).stdout, "v\n1.5\n");
}

#[test]
fn a_database_is_made_only_by_what_creates_something() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["sql", "SELECT * FROM w"][..],
        &["status"],
        &["verify"],
        &["sweep"],
        &["export", "SELECT * FROM w", "-o", "a.csv"],
        &["command", r#"{"find": "w"}"#],
        &["command", r#"{"ping": 1}"#],
        &["command", r#"{"insert": "w", "documents": []}"#],
        &["command", r#"{"nothing": 1}"#],
    ] {
        let output = inside(folder.path(), args, "");
        assert_eq!(output.code, 1, "{args:?}");
        assert!(output.stderr.contains("there is no database at"), "{}", output.stderr);
    }
    let left: Vec<_> = folder.path().read_dir().unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn commands_reply_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let run = |document: &str| inside(folder.path(), &["--db", "a b \u{fc}", "command", document], "");
    let made = run(r#"{"create": "w", "timeseries": {"timeField": "t"}}"#);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let reply: serde_json::Value = serde_json::from_str(&run(r#"{"listCollections": 1}"#).stdout).unwrap();
    assert_eq!(reply["cursor"]["firstBatch"][0]["name"], "w");
    let wrong = run(r#"{"create": "w", "timeseries": {"timeField": "x"}}"#);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (1, ""));
    assert!(wrong.stderr.contains("NamespaceExists"));
    assert_eq!(run("{").code, 2);
}

#[test]
fn wrong_input_is_named_with_its_place_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let header = "time,s,v\n2024-01-01T00:00:00Z,a,1\n";
    write(folder.path(), "broken.csv", &format!("{header}2024-01-01T01:00:00Z,a\n"));
    write(folder.path(), "notime.csv", "s,v\na,1\n");
    let mut long = String::from("time,s,v\n");
    for i in 0..70_000 {
        long.push_str(&format!("2024-01-01T00:00:00Z,a,{i}\n"));
    }
    write(folder.path(), "wrong.csv", &format!("{long}2024-01-01T00:00:00Z,a,oops\n"));
    write(folder.path(), "empty.csv", "");
    write(folder.path(), "header.csv", "time,s,v\n");
    write(folder.path(), "fake.csv.gz", "hello\n");
    write(folder.path(), "fake.parquet", "hello\n");
    write(folder.path(), "missing.csv", &format!("{header},b,2\n"));
    write(folder.path(), "badtime.csv", &format!("{header}yesterday,b,2\n"));
    write(folder.path(), "mixed.ndjson", "{\"time\":\"2024-01-01\",\"v\":1}\n{\"time\":\"2024-01-01\",\"v\":\"x\"}\n");
    let cases = [
        ("broken.csv", "broken.csv:3: the line has 2 columns"),
        ("notime.csv", "no column contains times"),
        ("wrong.csv", "wrong.csv:70002: column 'v' contains numbers, but 'oops' is not"),
        ("empty.csv", "empty.csv is empty"),
        ("header.csv", "no measurements"),
        ("fake.csv.gz", "not what its name says"),
        ("fake.parquet", "not what its name says"),
        ("missing.csv", "missing.csv:3: "),
        ("badtime.csv", "badtime.csv:3: column 'time' contains the time, but 'yesterday' is not a time"),
        ("mixed.ndjson", "mixed.ndjson:2: field 'v'"),
        ("nothing.csv", "cannot open nothing.csv"),
        (".", "a folder"),
    ];
    for (file, expected) in cases {
        let output = inside(folder.path(), &["import", file, "--collection", "c"], "");
        assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{file}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{file}: {}", output.stderr);
    }
    assert!(!folder.path().join("ebbtide-data").exists());
    let output = inside(folder.path(), &["import", "missing.csv", "--collection", "c", "--meta", "sensor"], "");
    assert!(output.stderr.contains("there is no column 'sensor'"), "{}", output.stderr);
}

#[test]
fn imports_learn_types_and_the_step_of_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let text = "when;region;station;v;flag;note\n\
                2024-01-01 00:00;eu;007;1;true;x\n\
                2024-01-01 00:10;eu;007;NA;false;\n\
                2024-01-01 00:20;us;008;2.5;true;-9999\n";
    let args = [
        "import",
        "-",
        "--collection",
        "c",
        "--meta",
        "region,station",
        "--delimiter",
        ";",
        "--null",
        "NA",
        "--null",
        "-9999",
        "--expire-after",
        "7d",
    ];
    let output = inside(folder.path(), &args, text);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stderr.contains("granularity minutes") && output.stderr.contains("3 measurements imported"));
    let sql = "SELECT meta['station'] AS s, v, flag, note FROM c ORDER BY \"when\"";
    let rows = inside(folder.path(), &["sql", "--now", "2024-01-02", "--format", "csv", sql], "");
    assert_eq!(rows.stdout, "s,v,flag,note\n007,1.0,true,x\n007,,false,\n008,2.5,true,\n", "{}", rows.stderr);
    let again = inside(
        folder.path(),
        &["import", "-", "--collection", "c", "--delimiter", ";", "--granularity", "hours"],
        text,
    );
    assert_eq!(again.code, 2);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    inside(folder.path(), &["sql", "CREATE COLLECTION w WITH (timeField = 't')"], "");
    for format in ["csv", "ndjson", "table", "json"] {
        let sql = "SELECT * FROM generate_series(1, 200000)";
        let mut reading = command();
        reading.current_dir(folder.path()).args(["sql", "--format", format, sql]);
        reading.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = reading.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.as_ref()), (Some(0), ""), "{format}");
    }
}

#[test]
fn a_clock_is_confirmed_although_nobody_reads_what_is_told() {
    let folder = tempfile::tempdir().unwrap();
    inside(folder.path(), &["sql", "CREATE COLLECTION w WITH (timeField = 't')"], "");
    let running = folder.path().join("ebbtide-data");
    // Another program has it open: the confirmation is left in the folder.
    let database = ebbtide::Database::open(&running).unwrap();
    let before: Vec<_> = running.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut clock = command();
    clock.current_dir(folder.path()).args(["clock", "--confirm"]);
    let mut child = clock.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(running.read_dir().unwrap().count() > before.len());
    drop(database);
}

#[test]
fn messages_that_nobody_reads_do_not_end_an_import() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.csv", "time,v\n2024-01-01,1\n");
    let mut import = command();
    import.current_dir(folder.path()).args(["import", "a.csv", "--collection", "c"]);
    import.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = import.spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let read = inside(folder.path(), &["sql", "--format", "csv", "SELECT v FROM c"], "");
    assert_eq!(read.stdout, "v\n1\n", "{}", read.stderr);
}

#[test]
fn the_demo_shows_a_year_and_leaves_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let output = inside(folder.path(), &["demo", "--into", "demo"], "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    for part in ["2013-12-31   26,115", "jfk_short", "EBBTIDE_DB=demo", "\u{2506}         8706 \u{2506}"] {
        assert!(output.stdout.contains(part), "{part}\n{}", output.stdout);
    }
    let count = "SELECT count(*) AS n FROM archive";
    assert_eq!(inside(folder.path(), &["--db", "demo", "sql", "--format", "csv", count], "").stdout, "n\n26115\n");
}

#[cfg(unix)]
#[test]
fn a_demo_that_nobody_reads_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = command();
    demo.arg("demo").env("TMPDIR", folder.path());
    demo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = demo.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let left: Vec<_> = folder.path().read_dir().unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_import_rounds_no_whole_number() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| inside(folder.path(), args, "");
    let day = "2024-01-01T00:00:0";
    write(folder.path(), "a.csv", &format!("time,v\n{day}0Z,0.5\n{day}1Z,9007199254740993\n"));
    write(folder.path(), "b.csv", &format!("time,v\n{day}0Z,18446744073709551615\n"));
    write(folder.path(), "c.csv", &format!("time,v\n{day}0Z,9007199254740993\n{day}1Z,-9223372036854775808\n"));
    for (file, value) in [("a.csv:3", "9007199254740993"), ("b.csv:2", "18446744073709551615")] {
        let failed = run(&["import", &file[..5], "-c", "w"]);
        assert_eq!(failed.code, 1, "{}", failed.stderr);
        assert!(failed.stderr.contains(file) && failed.stderr.contains(value), "{}", failed.stderr);
        assert!(failed.stderr.contains("--text v"), "{}", failed.stderr);
    }
    assert_eq!(run(&["import", "c.csv", "-c", "whole"]).code, 0);
    assert_eq!(run(&["import", "a.csv", "-c", "text", "--text", "v"]).code, 0);
    let read = run(&["sql", "--format", "csv", "SELECT v FROM whole UNION ALL SELECT count(*) FROM text ORDER BY v"]);
    assert_eq!(read.stdout, "v\n-9223372036854775808\n2\n9007199254740993\n");
    // An existing double field accepts the file's integers.
    run(&["sql", &format!("INSERT INTO whole (time, d) VALUES ('{day}0Z', 0.5)")]);
    write(folder.path(), "d.csv", &format!("time,d\n{day}0Z,9007199254740993\n"));
    assert!(run(&["import", "d.csv", "-c", "whole"]).stderr.contains("d.csv:2"));
    let line = |v: &str| format!("{{\"time\":{{\"$date\":\"{day}0Z\"}},\"v\":{v}}}\n");
    write(folder.path(), "e.ndjson", &format!("{}{}", line("18446744073709551616"), line("18446744073709551617")));
    for into in [&["-c", "lines"][..], &["--documents", "--into", "docs"]] {
        let failed = run(&[&["import", "e.ndjson"], into].concat());
        assert_eq!(failed.code, 1, "{}", failed.stderr);
        let says = "e.ndjson:2: the number 18446744073709551617 does not fit int64";
        assert!(failed.stderr.contains(says), "{}", failed.stderr);
    }
}

#[test]
fn an_option_without_the_one_that_it_belongs_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&["restore", "dump", "--at", "2024-01-01"], "--at belongs to --from"),
        (&["sql", "--title", "x", "-f", "csv", "SELECT 1"], "--title belongs to --chart"),
        (&["sql", "--title", "x", "-o", "x.csv", "SELECT 1"], "--title belongs to --chart"),
        (&["sql", "--title", "x", "SELECT 1"], "--chart"),
        (&["import", "--documents", "a.ndjson", "--into", "s", "--dst", "later"], "--dst"),
        (&["serve", "--follow", "file:///nowhere", "--ship-keep", "7d"], "--ship-keep"),
        (&["ship", "--detach", "--keep", "7d"], "--keep"),
        (&["ship", "--to", "file:///nowhere", "--once", "--every", "5m"], "--every"),
    ];
    for (args, says) in cases {
        let output = inside(folder.path(), args, "");
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(says), "{args:?}: {}", output.stderr);
    }
}

#[test]
fn an_option_that_would_have_no_effect_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("out")).unwrap();
    write(folder.path(), "a.csv", "time,s,v\n2024-01-01,a,1\n");
    assert_eq!(inside(folder.path(), &["import", "a.csv", "-c", "w", "--meta", "s"], "").code, 0);
    let cases: [(&[&str], &str); 11] = [
        (&["import", "a.csv", "-c", "x", "--meta-field", "m"], "add --meta COLUMN"),
        (&["import", "a.csv", "-c", "w", "--meta-field", "m"], "the meta field of collection 'w' is 's'"),
        (&["--db", "d", "status", "--follow", "file:///nowhere"], "drop one of them"),
        (&["import", "a.csv", "-c", "x", "--flush-ms", "5"], "leave it out"),
        (&["import", "--documents", "a.csv", "-c", "x", "--flush-ms", "5"], "leave it out"),
        (&["import", "-", "-c", "x", "--from-start"], "standard input can be read only once"),
        (&["import", "--documents", "-", "-c", "x", "--from-start"], "standard input can be read only once"),
        (&["sql", "--chart", "--title", "x", "SELECT 1 AS n"], "name a file with --chart=FILE"),
        (&["sql", "SELECT 1; SELECT 2", "-o", "two.csv"], "the rows of only one statement"),
        (&["sql", "SELECT 1", "-o", "out", "-f", "csv"], "out is a folder: name a file"),
        (&["export", "w", "-o", "out", "-f", "csv"], "out is a folder: name a file"),
    ];
    for (args, says) in cases {
        let output = inside(folder.path(), args, "");
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(says), "{args:?}: {}", output.stderr);
    }
    // Nothing comes of a statement without rows.
    let none = inside(folder.path(), &["sql", "-o", "none.csv", "CREATE COLLECTION y WITH (timeField = 't')"], "");
    assert!(none.code == 2 && none.stderr.contains("there is nothing to write"), "{}", none.stderr);
    assert!(!folder.path().join("none.csv").exists());
    // Nothing is stored either.
    let insert = "INSERT INTO w (time, s) VALUES ('2024-01-01', 'x')";
    let prepared = &format!("PREPARE p AS {insert}; EXECUTE p");
    let count = || inside(folder.path(), &["sql", "-f", "csv", "SELECT count(*) AS n FROM w"], "").stdout;
    let before = count();
    for text in [insert, &format!("SET datafusion.execution.batch_size = 4096; {insert}"), prepared] {
        let refused = inside(folder.path(), &["sql", "-o", "none.csv", text], "");
        assert!(
            refused.code == 2 && refused.stderr.contains("there is nothing to write"),
            "{text}: {}",
            refused.stderr
        );
    }
    assert_eq!(count(), before);
    let rows =
        inside(folder.path(), &["sql", "-o", "n.csv", "SET datafusion.execution.batch_size = 4096; SELECT 1 AS n"], "");
    assert_eq!(rows.code, 0, "{}", rows.stderr);
}

#[test]
fn a_file_gets_the_rows_of_the_query_and_not_what_an_insert_has_counted() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| inside(folder.path(), args, "");
    assert_eq!(run(&["sql", "CREATE COLLECTION w WITH (timeField = 't', metaField = 's')"]).code, 0);
    let insert = "INSERT INTO w (t, s, v) VALUES ('2024-01-01', 'a', 1), ('2024-01-02', 'a', 2)";
    let both = run(&["sql", "-o", "v.csv", &format!("{insert}; SELECT v FROM w ORDER BY v")]);
    assert_eq!((both.code, both.stdout.as_str()), (0, ""), "{}", both.stderr);
    assert!(both.stderr.contains("count"), "{}", both.stderr);
    #[expect(clippy::disallowed_methods, reason = "what the program wrote")]
    let written = std::fs::read(folder.path().join("v.csv")).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), "v\n1\n2\n");
    // Nor what a prepared statement has.
    let prepared = "PREPARE p AS INSERT INTO w (t, s, v) VALUES ('2024-01-03', 'a', $1); EXECUTE p(3); EXECUTE p(3)";
    let all = format!("{prepared}; SELECT DISTINCT v FROM w ORDER BY v; DELETE FROM w WHERE v = 3");
    let executed = run(&["sql", "-o", "v.csv", &all]);
    assert_eq!((executed.code, executed.stdout.as_str()), (0, ""), "{}", executed.stderr);
    #[expect(clippy::disallowed_methods, reason = "what the program wrote")]
    let written = std::fs::read(folder.path().join("v.csv")).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), "v\n1\n2\n3\n");
    // Nothing is inserted if the file cannot hold what follows.
    let refused = run(&["sql", "-o", "v.csv", &format!("{insert}; SELECT v FROM w; SELECT s FROM w")]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert_eq!(run(&["sql", "--format", "csv", "SELECT count(*) AS n FROM w"]).stdout, "n\n2\n");
}

#[test]
fn statements_come_from_standard_input_and_from_pipes_as_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let files: &[&str] = if cfg!(unix) { &["-", "/dev/stdin"] } else { &["-"] };
    for option in ["-f", "--file"] {
        for file in files {
            let output = inside(folder.path(), &["sql", option, file, "--format", "csv"], "SELECT 40 + 2 AS n");
            assert_eq!((output.code, output.stdout.as_str()), (0, "n\n42\n"), "{option} {file}: {}", output.stderr);
        }
    }
    // Some editors write a byte order mark.
    let marked = inside(folder.path(), &["sql", "--format", "csv"], "\u{feff}SELECT 1 AS n");
    assert_eq!((marked.code, marked.stdout.as_str()), (0, "n\n1\n"), "{}", marked.stderr);
}

#[test]
fn an_empty_variable_is_named_and_not_the_option() {
    let mut status = command();
    status.env("EBBTIDE_DB", "").arg("status");
    let output = finish(status, "");
    assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{}", output.stderr);
    assert!(output.stderr.contains("EBBTIDE_DB is empty"), "{}", output.stderr);
    let option = ebbtide(&["status", "--db", ""]);
    assert!(option.code == 2 && option.stderr.contains("--db is empty"), "{}", option.stderr);
    // It does not matter where --db is given, or where no database is used.
    for args in
        [&["--db", "nowhere", "sql", "SELECT 1"][..], &["sql", "SELECT 1", "--db", "nowhere"], &["completions", "bash"]]
    {
        let mut all = command();
        all.env("EBBTIDE_DB", "").args(args);
        let output = finish(all, "");
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn what_is_logged_is_said_in_words_that_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let with = |log: &str, args: &[&str]| {
        let mut all = command();
        all.current_dir(folder.path()).env("EBBTIDE_LOG", log).args(args);
        finish(all, "")
    };
    for log in ["ebbtide=loud", "inof", "warn,ebtide", "ebbtide=debug,verbose", "6", "ebbtide=debug=info"] {
        for args in [&["sql", "SELECT 1"][..], &["serve", "--mongodb", "0", "--db", "d"]] {
            if args[0] == "serve" && !cfg!(feature = "server") {
                continue;
            }
            let output = with(log, args);
            assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{log}: {}", output.stderr);
            let says = format!("error: the environment variable EBBTIDE_LOG is '{log}'; expected off, error, warn");
            assert!(output.stderr.starts_with(&says), "{}", output.stderr);
        }
    }
    for log in [
        "",
        ",",
        "warn",
        "ERROR",
        "off",
        " warn , ebbtide=error",
        "0",
        "ebbtide",
        "ebbtide_query=info,object_store=off",
    ] {
        let output = with(log, &["sql", "--format", "csv", "SELECT 1 AS a"]);
        assert_eq!((output.code, output.stdout.as_str()), (0, "a\n1\n"), "{log}: {}", output.stderr);
    }
}
