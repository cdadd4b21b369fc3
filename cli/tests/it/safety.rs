//! What must not be lost: inputs, collections created since, rows of interrupted imports and restores.

use crate::cli::{Output, inside, write};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use ebbtide::{BatchId, Database};
use std::path::Path;
use std::sync::Arc;

fn run(folder: &Path, args: &[&str]) -> Output {
    inside(folder, args, "")
}

fn good(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
    output.stdout
}

fn rows(folder: &Path, sql: &str) -> String {
    good(folder, &["sql", "--format", "csv", sql])
}

fn text(folder: &Path, name: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "what the program wrote")]
    String::from_utf8(std::fs::read(folder.join(name)).unwrap()).unwrap()
}

/// A batch of rows with these numbers.
fn batch(numbers: std::ops::Range<i64>) -> RecordBatch {
    let times = TimestampMillisecondArray::from_iter_values(numbers.clone().map(|n| 1_704_067_200_000 + n * 1000));
    let times: ArrayRef = Arc::new(times.with_timezone("UTC"));
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    RecordBatch::try_from_iter([("time", times), ("v", values)]).unwrap()
}

const CSV: &str = "time,v\n2024-01-01T00:00:00Z,1\n2024-01-01T00:00:01Z,x\n2024-01-01T00:00:02Z,3\n2024-01-01T00:00:03Z,4\n\
    2024-01-01T00:00:04Z,5\n2024-01-01T00:00:05Z,6\n2024-01-01T00:00:06Z,7\n2024-01-01T00:00:07Z,8\n\
    2024-01-01T00:00:08Z,9\n2024-01-01T00:00:09Z,10\n2024-01-01T00:00:10Z,11\n2024-01-01T00:00:11Z,12\n";

#[test]
fn bad_lines_never_overwrite_the_input_under_whatever_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "a.csv", CSV);
    std::fs::hard_link(path.join("a.csv"), path.join("hard.csv")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(path.join("a.csv"), path.join("soft.csv")).unwrap();
    let whole = path.join("a.csv").display().to_string();
    let cases = [
        ("a.csv", "a.csv"),
        ("a.csv", "./a.csv"),
        ("a.csv", whole.as_str()),
        ("[a].csv", "a.csv"),
        ("a.csv", "hard.csv"),
        ("a.csv", "soft.csv"),
        ("soft.csv", "hard.csv"),
    ];
    for (input, bad) in cases {
        let output = run(path, &["import", input, "-c", "c", "--bad-lines", bad]);
        assert_eq!(output.code, 2, "{input} {bad}: {}", output.stderr);
        assert!(output.stderr.contains("would overwrite the input"), "{input} {bad}: {}", output.stderr);
        assert_eq!(text(path, "a.csv"), CSV, "{input} {bad}");
    }
    good(path, &["import", "a.csv", "-c", "c", "--bad-lines", "bad.csv"]);
    let inside = run(path, &["import", "a.csv", "-c", "c", "--bad-lines", "ebbtide-data/bad.csv"]);
    assert!(inside.stderr.contains("is in the folder of the database"), "{}", inside.stderr);
}

#[test]
fn nothing_is_written_into_the_folder_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "a.csv", "time,v\n2024-01-01T00:00:00Z,1\n");
    good(path, &["import", "a.csv", "-c", "c"]);
    let manifest =
        path.join("ebbtide-data").read_dir().unwrap().filter_map(|e| e.unwrap().file_name().into_string().ok());
    let manifest = manifest.into_iter().find(|n| n.starts_with("MANIFEST")).unwrap();
    let file = format!("ebbtide-data/{manifest}");
    #[cfg(unix)]
    std::os::unix::fs::symlink(path.join(&file), path.join("link.csv")).unwrap();
    let cases: [&[&str]; 7] = [
        &["export", "c", "-f", "csv", "-o", &file],
        &["export", "c", "-o", "ebbtide-data/new.csv"],
        &["export", "c", "-o", "ebbtide-data/c.1/seg.parquet"],
        &["sql", "SELECT * FROM c", "-f", "csv", "-o", &file],
        &["sql", "SELECT * FROM c", "-o", "./ebbtide-data/../ebbtide-data/x.csv"],
        &["export", "c", "-o", "link.csv"],
        &["dump", "ebbtide-data/backup"],
    ];
    for args in cases {
        let output = run(path, args);
        assert_eq!(output.code, 2, "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains("is in the folder of the database"), "{args:?}: {}", output.stderr);
    }
    assert_eq!(rows(path, "SELECT v FROM c"), "v\n1\n");
}

/// The state that an import of `CSV` in batches of two leaves if it is killed while it stores a batch: the number of
/// rows that are certainly stored, and `stored` says whether that batch is.
fn interrupted(path: &Path, stored: bool) {
    write(path, "a.csv", CSV);
    let args = ["import", "a.csv", "-c", "c", "--bad-lines", "bad.csv", "--batch-rows", "2"];
    good(path, &args);
    let data = path.join("ebbtide-data");
    let names = data.read_dir().unwrap().filter_map(|e| e.unwrap().file_name().into_string().ok());
    let name = names.into_iter().find(|n| n.starts_with("import-")).unwrap();
    // The state after the first batch, with the second one undecided.
    let mut state: serde_json::Value = serde_json::from_str(&text(&data, &name)).unwrap();
    let source = state["batch"]["source"].as_u64().unwrap();
    good(path, &["sql", "DROP COLLECTION c; CREATE COLLECTION c WITH (timeField = 'time')"]);
    let database = Database::open(&data).unwrap();
    let collection = database.collection("c").unwrap();
    let id = |number| BatchId { source, number };
    let of = |numbers: [i64; 2]| {
        let times = numbers.map(|n| 1_704_067_200_000 + n * 1000);
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(times.to_vec()).with_timezone("UTC"));
        let values: ArrayRef = Arc::new(Int64Array::from(numbers.map(|n| n + 1).to_vec()));
        RecordBatch::try_from_iter([("time", times), ("v", values)]).unwrap()
    };
    collection.insert_with_id(&of([0, 2]), id(1)).unwrap();
    if stored {
        collection.insert_with_id(&of([3, 4]), id(2)).unwrap();
    }
    state["id"] = collection.snapshot().unwrap().id().into();
    database.close().unwrap();
    state["finished"] = false.into();
    state["file"] = 0.into();
    state["rows"] = 3.into();
    state["stored"] = 2.into();
    state["batch"]["number"] = 2.into();
    let bad = state["bad"].clone();
    state["doubt"] = serde_json::json!({"file": 0, "end": 5, "measurements": 2, "bad": bad});
    write(&data, &name, &state.to_string());
}

const RESUME: [&str; 9] = ["import", "a.csv", "-c", "c", "--resume", "--bad-lines", "bad.csv", "--batch-rows", "2"];

#[test]
fn the_batch_in_doubt_is_decided_by_its_id_whatever_became_of_its_rows() {
    let all = "n,d,v\n11,11,76\n";
    let sql = "SELECT count(*) AS n, count(DISTINCT v) AS d, sum(v) AS v FROM c";
    let folder = tempfile::tempdir().unwrap();
    interrupted(folder.path(), false);
    let refused = run(folder.path(), &["import", "a.csv", "-c", "c", "--bad-lines", "bad.csv", "--batch-rows", "2"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("was interrupted after 2 of its"), "{}", refused.stderr);
    // The refused import kept the lines that were set aside.
    assert!(text(folder.path(), "bad.csv").contains("a.csv,3,"), "{}", text(folder.path(), "bad.csv"));
    let resumed = run(folder.path(), &RESUME);
    assert!(resumed.stderr.contains("1 bad line set aside"), "{}", resumed.stderr);
    assert_eq!(rows(folder.path(), sql), all);
    assert_eq!(text(folder.path(), "bad.csv").lines().count(), 2, "{}", text(folder.path(), "bad.csv"));

    let folder = tempfile::tempdir().unwrap();
    interrupted(folder.path(), true);
    // The stored rows are deleted, and others insert: nothing is imported again.
    good(folder.path(), &["sql", "DELETE FROM c; INSERT INTO c (time, v) VALUES ('2024-02-01T00:00:00Z', 100)"]);
    let resumed = run(folder.path(), &RESUME);
    assert!(resumed.stderr.contains("stored already: 4 measurements"), "{}", resumed.stderr);
    assert_eq!(rows(folder.path(), sql), "n,d,v\n8,8,163\n");
}

#[test]
fn an_import_does_not_go_on_in_another_collection_of_the_same_name() {
    let folder = tempfile::tempdir().unwrap();
    interrupted(folder.path(), true);
    let sql = "DROP COLLECTION c; CREATE COLLECTION c WITH (timeField = 'time')";
    good(folder.path(), &["sql", sql]);
    assert!(!good(folder.path(), &["status"]).contains("interrupted"));
    let resumed = run(folder.path(), &RESUME);
    assert_eq!(resumed.code, 0, "{}", resumed.stderr);
    assert!(resumed.stderr.contains("begins with the first row"), "{}", resumed.stderr);
    assert_eq!(rows(folder.path(), "SELECT count(*) AS n FROM c"), "n\n11\n");
}

#[test]
fn after_a_finished_import_nothing_is_left_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "a.csv", "time,v\n2024-01-01T00:00:00Z,1\n2024-01-01T00:00:01Z,2\n");
    good(path, &["import", "a.csv", "-c", "c"]);
    let again = run(path, &["import", "a.csv", "-c", "c", "--resume"]);
    assert_eq!(again.code, 0);
    assert!(
        again.stderr.contains("all 2 measurements of these files are imported: nothing is left to do"),
        "{}",
        again.stderr
    );
    assert_eq!(rows(path, "SELECT count(*) AS n FROM c"), "n\n2\n");
    assert!(!good(path, &["status"]).contains("interrupted"));
    // Without --resume the rows are added, as from any file, with a note.
    let added = run(path, &["import", "a.csv", "-c", "c"]);
    assert!(added.stderr.contains("note: these files were imported into c before"), "{}", added.stderr);
    assert_eq!(rows(path, "SELECT count(*) AS n FROM c"), "n\n4\n");
}

#[test]
fn an_interrupted_restore_drops_only_what_it_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let sql = |name: &str, v: u32| {
        format!(
            "CREATE COLLECTION {name} WITH (timeField = 'time'); \
             INSERT INTO {name} (time, v) VALUES ('2024-01-01T00:00:00Z', {v})"
        )
    };
    good(path, &["sql", &sql("b", 7)]);
    good(path, &["dump", "dumped"]);
    // Collections as a killed restore leaves them, and what happened to them since.
    let data = path.join("db");
    let database = Database::open(&data).unwrap();
    let id = |number| BatchId { source: 5, number };
    let mut ids = Vec::new();
    for name in ["left", "added", "remade", "begun"] {
        let collection = database.create_collection(name, ebbtide::CollectionOptions::new("time")).unwrap();
        if name != "begun" {
            collection.insert_with_id(&batch(0..3), id(1)).unwrap();
        }
        ids.push(collection.snapshot().unwrap().id());
    }
    database.collection("added").unwrap().insert(&batch(42..43)).unwrap();
    database.drop_collection("remade").unwrap();
    database.create_collection("remade", ebbtide::CollectionOptions::new("time")).unwrap();
    database.collection("remade").unwrap().insert(&batch(42..43)).unwrap();
    database.close().unwrap();
    let collections: Vec<_> = ["left", "added", "remade", "begun"]
        .iter()
        .zip(&ids)
        .map(|(name, id)| serde_json::json!({"name": name, "id": id}))
        .collect();
    let marker = serde_json::json!({"source": 5, "collections": collections}).to_string();
    write(&data, "restore-unfinished.json", &marker);
    let status = good(path, &["--db", "db", "status"]);
    assert!(status.contains("a restore was interrupted: left, added, begun may be incomplete"), "{status}");
    let restored = run(path, &["--db", "db", "restore", "dumped"]);
    assert_eq!(restored.code, 0, "{}", restored.stderr);
    assert!(restored.stderr.contains("an interrupted restore of left, begun was undone"), "{}", restored.stderr);
    assert!(restored.stderr.contains("left added incomplete"), "{}", restored.stderr);
    let rows = |sql: &str| good(path, &["--db", "db", "sql", "--format", "csv", sql]);
    assert_eq!(rows("SELECT name FROM ebbtide.collections ORDER BY 1"), "name\nadded\nb\nremade\n");
    assert_eq!(rows("SELECT v FROM added WHERE v = 42 UNION ALL SELECT v FROM remade"), "v\n42\n42\n");
    assert!(!good(path, &["--db", "db", "status"]).contains("interrupted"));
}

#[test]
fn files_that_make_their_readers_panic_are_errors_that_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let damaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/damaged");
    let quiet = |output: &Output, what: &str| {
        assert_eq!(output.code, 1, "{what}: {}", output.stderr);
        assert!(!output.stderr.contains("panicked") && !output.stderr.contains("backtrace"), "{}", output.stderr);
    };
    for (name, form) in
        [("crash_ipc_schema.arrow", "Arrow"), ("crash_ipc_dict.arrow", "Arrow"), ("crash_dump.parquet", "Parquet")]
    {
        let file = damaged.join(name).display().to_string();
        let output = run(path, &["import", &file, "-c", "c"]);
        quiet(&output, name);
        let other = if form == "Arrow" { "Parquet" } else { "Arrow" };
        assert!(output.stderr.contains(name) && !output.stderr.contains(other), "{name}: {}", output.stderr);
    }
    // The same instead of a dump's file.
    good(
        path,
        &["sql", "CREATE COLLECTION w WITH (timeField = 't'); INSERT INTO w (t, v) VALUES ('2024-01-01T00:00:00Z', 1)"],
    );
    good(path, &["dump", "backup"]);
    #[expect(clippy::disallowed_methods, reason = "test input")]
    let bytes = std::fs::read(damaged.join("crash_dump.parquet")).unwrap();
    let mut contents: serde_json::Value = serde_json::from_str(&text(path, "backup/dump.json")).unwrap();
    let dumped = &mut contents["collections"][0];
    let file = dumped["file"].as_str().unwrap().to_owned();
    dumped["bytes"] = bytes.len().into();
    dumped["crc32"] = crc32fast::hash(&bytes).into();
    #[expect(clippy::disallowed_methods, reason = "test input")]
    std::fs::write(path.join("backup").join(file), &bytes).unwrap();
    write(path, "backup/dump.json", &contents.to_string());
    let restored = run(path, &["--db", "new", "restore", "backup"]);
    quiet(&restored, "restore");
    assert!(restored.stderr.contains("nothing was restored"), "{}", restored.stderr);
    let names = good(path, &["--db", "new", "sql", "--format", "csv", "SELECT name FROM ebbtide.collections"]);
    assert_eq!(names, "name\n");
    assert!(!good(path, &["--db", "new", "status"]).contains("interrupted"));
}

#[test]
fn doubles_come_through_every_door_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // One in ten of such numbers used to become a different double through JSON.
    let mut seed: u64 = 1;
    let doubles: Vec<f64> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from_bits((seed >> 12) | 0x3ff0_0000_0000_0000) - 1.0
    })
    .take(400)
    .collect();
    let time = |i: usize| format!("2024-01-01T00:{:02}:{:02}Z", i / 60, i % 60);
    let each =
        |line: &dyn Fn(usize, f64) -> String| doubles.iter().enumerate().map(|(i, d)| line(i, *d)).collect::<String>();
    write(path, "a.csv", &format!("t,m,x\n{}", each(&|i, d| format!("{},{d:?},{d:?}\n", time(i)))));
    write(path, "b.ndjson", &each(&|i, d| format!("{{\"t\":\"{}\",\"m\":{d:?},\"x\":{d:?}}}\n", time(i))));
    for (file, collection) in [("a.csv", "a"), ("b.ndjson", "b")] {
        good(path, &["import", file, "-c", collection, "--time", "t", "--meta", "m"]);
    }
    good(path, &["command", r#"{"create": "c", "timeseries": {"timeField": "t", "metaField": "m"}}"#]);
    let documents = each(&|i, d| format!("{{\"t\":{{\"$date\":\"{}\"}},\"m\":{d:?},\"x\":{d:?}}},", time(i)));
    let insert = format!("{{\"insert\":\"c\",\"documents\":[{}]}}", documents.trim_end_matches(','));
    assert_eq!(inside(path, &["command", "-"], &insert).code, 0);
    good(path, &["sql", "CREATE COLLECTION s WITH (timeField = 't', metaField = 'm')"]);
    let values = each(&|i, d| format!("('{}', {d:?}, {d:?}),", time(i)));
    assert_eq!(
        inside(path, &["sql"], &format!("INSERT INTO s (t, m, x) VALUES {}", values.trim_end_matches(','))).code,
        0
    );
    let expected = format!("x\n{}", each(&|_, d| format!("{}\n", shown(d))));
    for collection in ["a", "b", "c", "s"] {
        assert_eq!(rows(path, &format!("SELECT x FROM {collection} ORDER BY t")), expected, "{collection}");
        assert_eq!(rows(path, &format!("SELECT m AS x FROM {collection} ORDER BY t")), expected, "{collection}");
    }
    // Filters of commands, and values that are exported and imported again.
    let deletes = each(&|_, d| format!("{{\"q\":{{\"m\":{d:?},\"x\":{d:?}}},\"limit\":0}},"));
    let delete = format!("{{\"delete\":\"c\",\"deletes\":[{}]}}", deletes.trim_end_matches(','));
    assert!(
        inside(path, &["command", "-"], &delete).stdout.contains("\"n\":400")
            || rows(path, "SELECT count(*) AS n FROM c") == "n\n0\n"
    );
    for form in ["csv", "ndjson", "parquet", "arrow"] {
        let file = format!("out.{form}");
        good(path, &["export", "a", "-o", &file]);
        good(path, &["import", &file, "-c", &format!("from_{form}"), "--time", "t", "--meta", "m"]);
        assert_eq!(rows(path, &format!("SELECT x FROM from_{form} ORDER BY t")), expected, "{form}");
    }
    good(path, &["dump", "backup"]);
    good(path, &["--db", "copy", "restore", "backup"]);
    let copy = good(path, &["--db", "copy", "sql", "--format", "csv", "SELECT x FROM a ORDER BY t"]);
    assert_eq!(copy, expected);
}

/// A double as the program prints it.
fn shown(d: f64) -> String {
    if d != 0.0 && d < 1e-5 { format!("{d:e}") } else { format!("{d:?}") }
}

#[cfg(unix)]
#[test]
fn results_go_through_links_and_pipes_and_keep_the_permissions_of_what_they_replace() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "real.csv", "old\n");
    std::os::unix::fs::symlink("real.csv", path.join("link.csv")).unwrap();
    let mode = |name: &str| path.join(name).metadata().unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(path.join("real.csv"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let write_to = |to: &str| inside(path, &["sql", "--format", "csv", "-o", to, "SELECT 1 AS x"], "");
    assert_eq!(write_to("link.csv").code, 0);
    assert!(path.join("link.csv").is_symlink());
    assert_eq!(mode("real.csv"), 0o600);
    let shell = |script: &str| {
        let program = crate::cli::command().get_program().to_owned();
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg(script).arg(program).current_dir(path).env_remove("EBBTIDE_DB");
        String::from_utf8(shell.output().unwrap().stdout).unwrap()
    };
    let sql = "\"$0\" sql --format csv 'SELECT 1 AS x' -o";
    assert_eq!(shell("cat real.csv"), "x\n1\n");
    assert_eq!(
        shell(&format!("mkfifo pipe; cat pipe & {sql} pipe; wait; test -p pipe && echo a pipe")),
        "x\n1\na pipe\n"
    );
    assert_eq!(shell(&format!("{sql} /dev/fd/1 | cat")), "x\n1\n");
    assert_eq!(shell(&format!("echo a > log; {{ {sql} /dev/stdout; echo b; }} >> log; cat log")), "a\nx\n1\nb\n");
    std::os::unix::fs::symlink("later.csv", path.join("latest.csv")).unwrap();
    assert_eq!(write_to("latest.csv").code, 0);
    assert!(path.join("latest.csv").is_symlink() && text(path, "later.csv") == "x\n1\n");
    shell(&format!("umask 077; {sql} private.csv; umask 022; {sql} public.csv"));
    assert_eq!((mode("private.csv"), mode("public.csv")), (0o600, 0o644));
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_the_size_of_files_leaves_the_space_for_a_full_disk_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    good(path, &["--db", "db", "sql", "CREATE COLLECTION c WITH (timeField = 't') EXPIRE AFTER 1 HOUR"]);
    good(path, &["--db", "db", "sql", "INSERT INTO c (t, v) VALUES ('2024-01-01T00:00:00Z', 1)"]);
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 0; exec \"$0\" --db db sweep", env!("CARGO_BIN_EXE_ebbtide")]).current_dir(path);
    let swept = limited.output().unwrap();
    let said = String::from_utf8_lossy(&swept.stderr);
    assert_eq!(swept.status.code(), Some(1), "{said}");
    assert!(said.contains("File too large"), "{said}");
    assert_eq!(text(path, "db/RESERVE").len(), 64 << 10, "{said}");
    assert!(good(path, &["--db", "db", "sweep"]).starts_with("1 bucket"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_dump_that_cannot_be_written_names_the_file_and_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    good(
        path,
        &["--db", "db", "sql", "CREATE COLLECTION c WITH (timeField = 't'); CREATE COLLECTION d; CREATE COLLECTION e"],
    );
    good(path, &["--db", "db", "sql", "INSERT INTO c (t, v) VALUES ('2024-01-01T00:00:00Z', 1); FLUSH"]);
    good(path, &["--db", "db", "command", r#"{"insert": "d", "documents": [{"_id": 1}]}"#]);
    for (collection, what) in
        [("c", "the result: out/0001-c.parquet"), ("d", "out/0001-d.ndjson"), ("e", "the dump out")]
    {
        let mut limited = std::process::Command::new("sh");
        let script = "ulimit -f 0; exec \"$0\" --db db dump out -c \"$1\"";
        limited.args(["-c", script, env!("CARGO_BIN_EXE_ebbtide"), collection]).current_dir(path);
        let dumped = limited.output().unwrap();
        let said = String::from_utf8_lossy(&dumped.stderr);
        assert_eq!(dumped.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("cannot write {what}: File too large")), "{said}");
        assert!(path.join("out").read_dir().unwrap().next().is_none(), "{said}");
    }
}

#[test]
fn numbers_that_json_lacks_are_numbers_again_after_an_import_of_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    rows(path, "CREATE COLLECTION a WITH (timeField = 'time')");
    let values = "('2024-01-01T00:00:00Z', 'NaN'::double, 1, 'NaN'), ('2024-01-01T00:00:01Z', '-inf'::double, 2, 'x'), ('2024-01-01T00:00:02Z', 2.5, 3, 'inf')";
    rows(path, &format!("INSERT INTO a (time, v, n, s) VALUES {values}"));
    good(path, &["export", "a", "-o", "a.ndjson"]);
    assert!(text(path, "a.ndjson").contains(r#""v":"NaN""#));
    good(path, &["import", "a.ndjson", "-c", "b"]);
    let all = |name: &str| rows(path, &format!("SELECT time, v, n, s FROM {name} ORDER BY time"));
    assert_eq!(all("a"), all("b"));
    good(path, &["import", "a.ndjson", "-c", "b"]);
    assert_eq!(rows(path, "SELECT count(*) AS n FROM b WHERE isnan(v)"), "n\n2\n");
}

#[cfg(unix)]
#[test]
fn an_export_that_is_interrupted_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    rows(path, "CREATE COLLECTION a WITH (timeField = 'time')");
    std::fs::create_dir(path.join("out")).unwrap();
    let files = || std::fs::read_dir(path.join("out")).unwrap().count();
    for command in [&["export"][..], &["sql"]] {
        let endless = "SELECT * FROM generate_series(1, 9000000000000000000)";
        let mut child = crate::cli::command()
            .current_dir(path)
            .args(command)
            .args([endless, "--output", "out/a.csv"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while files() == 0 {
            assert!(child.try_wait().unwrap().is_none(), "it has ended");
            std::thread::yield_now();
        }
        // Once there are rows, the signal is handled.
        let part = std::fs::read_dir(path.join("out")).unwrap().next().unwrap().unwrap();
        while part.metadata().unwrap().len() == 0 {
            std::thread::yield_now();
        }
        let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(files(), 0);
    }
}

#[test]
fn statements_that_write_behind_other_words_open_the_database_for_writing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    rows(path, "CREATE COLLECTION w WITH (timeField = 'time')");
    for sql in [
        "WITH x AS (SELECT now() AS time, 5.0 AS v) INSERT INTO w (time, v) SELECT time, v FROM x",
        "CREATE/**/VIEW v AS SELECT v FROM w",
        "PREPARE p AS /* x */ DELETE FROM w WHERE v > $1; EXECUTE p(1000)",
        "/* first */ DROP /**/ VIEW v",
    ] {
        good(path, &["sql", sql]);
    }
    for sql in ["WITH x AS (SELECT 1 AS a) SELECT a FROM x", "CREATE TEMP VIEW v AS SELECT 1", "EXPLAIN DELETE FROM w"]
    {
        good(path, &["--read-only", "sql", sql]);
    }
}

#[test]
fn a_sweep_with_a_file_refuses_collections_with_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let archive = path.join("archive").display().to_string();
    rows(
        path,
        &format!(
            "CREATE COLLECTION doors WITH (timeField = 't') EXPIRE AFTER 1 HOUR INTO 'file://{archive}'; \
             INSERT INTO doors (t, v) VALUES ('2024-06-01T10:00:00Z', 3)"
        ),
    );
    let output = run(path, &["sweep", "--expired-to", "x.csv"]);
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(output.stderr.contains("'doors' is moved to an archive"), "{}", output.stderr);
    assert!(!path.join("x.csv").exists() && !path.join("archive").exists());
    good(path, &["dump", "dump"]);
    let restored = run(path, &["--db", "again", "restore", "dump"]);
    assert!(restored.stderr.contains("give doors an archive of its own"), "{}", restored.stderr);
}

#[test]
fn a_parameter_is_not_set_for_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["command", r#"{"setParameter": 1, "ttlMonitorEnabled": false}"#]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("it would have no effect"), "{}", output.stderr);
}

#[test]
fn the_only_column_of_times_is_the_time_whatever_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    rows(
        path,
        "CREATE COLLECTION a WITH (timeField = 'when'); INSERT INTO a (\"when\", v) VALUES ('2024-01-01T00:00:00Z', 1.5)",
    );
    for format in ["csv", "ndjson", "parquet", "arrow"] {
        let file = format!("a.{format}");
        good(path, &["export", "a", "-o", &file]);
        good(path, &["import", &file, "-c", format]);
        assert_eq!(rows(path, &format!("SELECT * FROM {format}")), rows(path, "SELECT * FROM a"), "{format}");
    }
}
