//! `ebbtide files`: the files of a collection, and statements with which other programs read them.

use crate::cli::{inside, write};
use std::path::Path;
use std::process::Command;

const PROGRAMS: [&str; 5] = ["duckdb", "clickhouse", "polars", "pyarrow", "pandas"];

/// Runs a statement in its program, and prints how many rows it gives and the sums of `v` and `late`.
const SCRIPT: &str = r#"
import importlib, sys
program, statement = sys.argv[1], sys.argv[2].rstrip(";")
try:
    module = importlib.import_module({"clickhouse": "chdb"}.get(program, program))
except ImportError:
    sys.exit(77)
ask = f"SELECT count(*), sum(CAST(v AS DOUBLE)), sum(late) FROM ({statement})"
if program == "duckdb":
    row = module.connect().execute(ask).fetchone()
elif program == "clickhouse":
    row = module.query(ask.replace("CAST(v AS DOUBLE)", "toFloat64(v)"), "TabSeparated").bytes().decode().split()
else:
    *before, last = statement.split("\n")
    names = {}
    exec("\n".join(before), names)
    rows = eval(last, names)
    column = lambda name: rows[name].to_pylist() if program == "pyarrow" else list(rows[name])
    total = lambda name: sum(float(v) for v in column(name) if v is not None and v == v)
    row = (len(rows), total("v"), total("late"))
print(int(row[0]), round(float(row[1]), 4), int(float(row[2])))
"#;

fn sql(folder: &Path, statements: &str) {
    let done = inside(folder, &["sql", statements], "");
    assert_eq!(done.code, 0, "{}", done.stderr);
}

/// What each program that is there makes of the statement for it.
fn check_statements(folder: &Path, expected: &str) {
    let python = std::env::var("EBBTIDE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    for program in PROGRAMS {
        let told = inside(folder, &["files", "w", "--for", program], "");
        assert_eq!(told.code, 0, "{}", told.stderr);
        let answer = Command::new(&python).args(["-c", SCRIPT, program, told.stdout.trim_end()]).output();
        let Ok(answer) = answer else { return println!("skipped: cannot run {python}") };
        if answer.status.code() == Some(77) {
            println!("skipped: {python} lacks {program}");
            continue;
        }
        let error = String::from_utf8_lossy(&answer.stderr);
        assert_eq!(String::from_utf8_lossy(&answer.stdout).trim_end(), expected, "{}\n{error}", told.stdout);
    }
}

#[test]
fn the_statements_for_other_programs_are_right_while_types_differ_and_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // As many as a seal does not rewrite by itself.
    let lines: String = (0..262_144).map(|i| format!("{},roof,0.5\n", 1_700_000_000 + i)).collect();
    write(folder, "many.csv", &format!("t,s,v\n{lines}"));
    let done = inside(folder, &["import", "many.csv", "--collection", "w", "--meta", "s", "--time-format", "s"], "");
    assert_eq!(done.code, 0, "{}", done.stderr);
    sql(folder, "FLUSH; CREATE COLLECTION other WITH (timeField = 't'); INSERT INTO other (t, v) VALUES (now(), 7.5)");
    sql(folder, "INSERT INTO w (t, s, v, late) VALUES ('2024-01-01T00:00:00Z', 'roof', 0.25, 1); FLUSH");
    let told = inside(folder, &["files", "w"], "");
    assert_eq!(told.code, 0, "{}", told.stderr);
    let files: Vec<&str> = told.stdout.lines().collect();
    assert!(files.len() > 1 && files.is_sorted() && files.iter().all(|file| Path::new(file).exists()), "{files:?}");
    assert!(files.iter().all(|file| file.contains("/w.1/seg-")), "{files:?}");
    assert!(told.stderr.contains("until COMPACT has rewritten them"), "{}", told.stderr);
    for program in ["DuckDB:", "ClickHouse:", "Polars:", "pyarrow:", "pandas:"] {
        assert!(told.stderr.contains(program), "no {program} in {}", told.stderr);
    }
    check_statements(folder, "262145 131072.25 1");
    // Other programs stop at a folder that was restored too.
    let url = format!("file://{}", folder.join("copy").display());
    for args in
        [&["ship", "--once", "--to", url.as_str()][..], &["restore", "--from", url.as_str(), "--db", "restored"][..]]
    {
        let done = inside(folder, args, "");
        assert_eq!(done.code, 0, "{}", done.stderr);
    }
    assert!(folder.join("restored/w.1/run-COMPACT-first.parquet").exists());

    sql(folder, "COMPACT w; INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:01Z', 'roof', 1)");
    let told = inside(folder, &["files", "w"], "");
    assert!(told.stderr.contains("note: 1 measurement in the log and in no file yet"), "{}", told.stderr);
    sql(folder, "FLUSH; DELETE FROM w WHERE t = '2024-01-01T00:00:01Z'");
    let told = inside(folder, &["files", "w"], "");
    assert!(!told.stderr.contains("COMPACT has rewritten"), "{}", told.stderr);
    check_statements(folder, "262145 131072.25 1");
}

#[test]
fn a_collection_without_files_and_one_that_is_not_there_are_told() {
    let folder = tempfile::tempdir().unwrap();
    sql(
        folder.path(),
        "CREATE COLLECTION w WITH (timeField = 't'); INSERT INTO w (t) VALUES (now()); FLUSH; DELETE FROM w",
    );
    let told = inside(folder.path(), &["files", "w"], "");
    assert_eq!((told.code, told.stdout.as_str()), (0, ""), "{}", told.stderr);
    assert!(told.stderr.contains("no measurement is in a segment file yet"), "{}", told.stderr);
    let told = inside(folder.path(), &["files", "x"], "");
    assert_eq!(told.code, 1);
    assert!(told.stderr.contains("'x'"), "{}", told.stderr);
}
