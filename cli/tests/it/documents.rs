//! Ordinary collections: imports, exports and dumps keep documents exactly.

use crate::cli::{Output, inside, write};
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

fn run(folder: &Path, args: &[&str]) -> Output {
    inside(folder, args, "")
}

fn good(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
    output.stdout
}

/// Values of every type, in canonical Extended JSON.
const EVERY_TYPE: &str = concat!(
    r#"{"_id":"every","i":{"$numberInt":"1"},"l":{"$numberLong":"1"},"d":{"$numberDouble":"1.0"},"#,
    r#""m":{"$numberDecimal":"1.10"},"nan":{"$numberDouble":"NaN"},"s":"caf\u00e9","b":{"$binary":{"base64":"AP8=","subType":"05"}},"#,
    r#""o":{"$oid":"507f1f77bcf86cd799439011"},"t":true,"n":null,"at":{"$date":{"$numberLong":"-62135596800001"}},"#,
    r#""ts":{"$timestamp":{"t":1,"i":2}},"r":{"$regularExpression":{"pattern":"^a","options":"i"}},"#,
    r#""min":{"$minKey":1},"max":{"$maxKey":1},"code":{"$code":"f()"},"list":[[{"$numberInt":"1"}],{}],"_ts":"mine","document":{"x":[]}}"#,
);

#[test]
fn dumps_keep_documents_their_last_writes_and_their_rules() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let create = r#"{"create": "s", "defaultTTL": 3600}"#;
    let index = r#"{"createIndexes": "s", "indexes": [{"key": {"at": 1}, "name": "dates", "expireAfterSeconds": 0,
        "partialFilterExpression": {"kind": {"$type": "string"}}}, {"key": {"a": 1, "b": -1}, "name": "plain"}]}"#;
    let insert =
        format!(r#"{{"insert": "s", "documents": [{EVERY_TYPE}, {{"_id": 2, "z": 1}}, {{"_id": 1, "z": "x"}}]}}"#);
    for command in [create, index, &insert] {
        good(path, &["command", command]);
    }
    good(path, &["sql", "CREATE COLLECTION w WITH (timeField = 't'); INSERT INTO w (t, v) VALUES (now(), 1)"]);
    good(path, &["sql", "CREATE COLLECTION none EXPIRE ITEMS; CREATE COLLECTION other"]);
    good(path, &["dump", "dump"]);
    let told = run(path, &["--db", "again", "restore", "dump"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(told.stderr.contains("s: 3 documents"), "{}", told.stderr);
    let seen = |db: &str| {
        let mut seen = String::new();
        for statement in [
            "SELECT _id, _ts, document FROM s ORDER BY _id",
            "SELECT name, expire_after_seconds, measurements FROM ebbtide.collections ORDER BY name",
            "SELECT collection, rule, filter, expire_after_seconds, measurements FROM ebbtide.ttl_rules ORDER BY 1, 2",
            "DESCRIBE s",
        ] {
            seen.push_str(&good(path, &["--db", db, "sql", "--format", "ndjson", statement]));
        }
        seen.push_str(&good(path, &["--db", db, "command", r#"{"listIndexes": "s"}"#]));
        seen + &good(path, &["--db", db, "export", "s", "-o", "-"])
    };
    let (before, after) = (seen("ebbtide-data"), seen("again"));
    assert_eq!(before, after);
    let canonical = EVERY_TYPE.replace("\\u00e9", "\u{e9}");
    assert!(before.contains(&canonical), "{before}");
    let refused = run(path, &["--db", "again", "restore", "dump"]);
    assert!(refused.stderr.contains("already exists"), "{}", refused.stderr);
    good(path, &["--db", "third", "restore", "dump", "--collection", "s", "--as", "renamed"]);
    assert!(good(path, &["--db", "third", "export", "renamed", "-o", "-"]).contains(&canonical));
    assert!(good(path, &["--db", "third", "verify"]).starts_with("no faults"));
}

#[test]
fn an_import_puts_documents_in_the_place_of_those_with_their_id() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let write = |name: &str, text: &str| write(path, name, text);
    write("a.ndjson", &format!("{EVERY_TYPE}\n\n{{\"_id\": 1, \"v\": 1}}\n{{\"_id\": 1.0, \"v\": 2}}\n"));
    let import = ["import", "--documents", "a.ndjson", "--into", "s"];
    let dry = run(path, &[&import[..], &["--dry-run"]].concat());
    assert!(dry.stderr.contains("3 documents would be imported into s"), "{}", dry.stderr);
    for _ in 0..2 {
        let told = run(path, &import);
        let said = told.stderr.lines().last().unwrap_or_default();
        assert_eq!((told.code, said), (0, "3 documents imported into s, which has 2 now"), "{}", told.stderr);
        let exported = good(path, &["export", "s", "-o", "-"]);
        assert_eq!(exported.lines().count(), 2, "{exported}");
        assert!(exported.contains(&EVERY_TYPE.replace("\\u00e9", "\u{e9}")), "{exported}");
    }
    let cases = [
        ("{\"_id\": 5}\n{\"_id\": ", "bad.ndjson:2: "),
        ("{\"_id\": 5}\n[1]", "bad.ndjson:2: "),
        ("{\"_id\": 5}\n{\"_id\": [1]}", "bad.ndjson:2: "),
        ("{\"_id\": 5}\n{\"a\": {\"$date\": 7.5}}", "bad.ndjson:2: "),
    ];
    for (text, message) in cases {
        write("bad.ndjson", text);
        let told = run(path, &["import", "--documents", "bad.ndjson", "--into", "s"]);
        assert!(told.code != 0 && told.stderr.contains(message), "{text}: {}", told.stderr);
        // Nothing is stored before the files have been checked.
        assert_eq!(good(path, &["export", "s", "-o", "-"]).lines().count(), 2);
    }
    let told = run(path, &["import", "--documents", "bad.ndjson", "--into", "s", "--bad-lines", "bad.csv"]);
    assert!(told.code == 0 && told.stderr.contains("1 document imported"), "{}", told.stderr);
    assert_eq!(
        good(path, &["sql", "--format", "csv", "SELECT file, line FROM 'bad.csv'"]),
        "file,line\nbad.ndjson,2\n"
    );
    let piped = inside(path, &["import", "--documents", "-", "--into", "s"], "{\"_id\": \"p\"}\n");
    assert_eq!(piped.code, 0, "{}", piped.stderr);
    good(path, &["sql", "CREATE COLLECTION w WITH (timeField = 't')"]);
    let refused = run(path, &["import", "--documents", "a.ndjson", "--into", "w"]);
    assert!(refused.stderr.contains("time-series"), "{}", refused.stderr);
    write("m.csv", "time,v\n2024-01-01,1\n");
    for (file, input) in [("m.csv", ""), ("-", "time,v\n2024-01-01,1\n")] {
        let refused = inside(path, &["import", file, "--into", "s"], input);
        assert!(refused.code == 1 && refused.stderr.contains("with --documents"), "{file}: {}", refused.stderr);
    }
}

#[test]
fn documents_from_a_live_pipe_are_stored_before_it_ends_and_may_be_packed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for args in [&["import", "--documents", "-", "--into", "s"][..], &["import", "-", "--collection", "s"]] {
        let empty = run(path, args);
        assert!(empty.code == 1 && empty.stderr.contains("on standard input"), "{}", empty.stderr);
    }
    assert!(!path.join("ebbtide-data").exists());
    let begin = || {
        let mut import = crate::cli::command();
        import.current_dir(path).args(["import", "--documents", "-", "--into", "s", "--flush-ms", "1"]);
        import.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut live = begin();
    let mut pipe = live.stdin.take().unwrap();
    pipe.write_all(b"\xef\xbb\xbf{\"_id\": 1}\r\n").unwrap();
    let count = || run(path, &["--read-only", "sql", "--format", "csv", "SELECT count(*) AS n FROM s"]).stdout;
    let is_stored = (0..1000).any(|_| {
        assert!(live.try_wait().unwrap().is_none());
        count() == "n\n1\n"
    });
    assert!(is_stored, "{}", count());
    // The last line may lack its end.
    pipe.write_all(b"{\"_id\": 2}").unwrap();
    drop(pipe);
    assert_eq!((live.wait().unwrap().code(), count().as_str()), (Some(0), "n\n2\n"));
    let mut packed = begin();
    let mut pipe = flate2::write::GzEncoder::new(packed.stdin.take().unwrap(), flate2::Compression::fast());
    pipe.write_all(b"{\"_id\": 3}\n").unwrap();
    drop(pipe.finish().unwrap());
    assert_eq!((packed.wait().unwrap().code(), count().as_str()), (Some(0), "n\n3\n"));
}

/// Lines of documents, every third without an `_id`, and some twice.
fn lines(count: u64) -> String {
    let line = |n: u64| match n % 3 {
        0 => format!("{{\"n\": {n}}}\n"),
        _ => format!("{{\"_id\": {}, \"n\": {n}}}\n", n % (count / 2)),
    };
    (0..count).map(line).collect()
}

const INTO: [&str; 7] = ["import", "--documents", "a.ndjson", "b.ndjson", "--into", "s", "--batch-rows"];

/// Starts an import and kills it once it has stored a number of documents; whether it was still running.
fn killed(path: &Path, more: &[&str], stored: u64) -> bool {
    let mut running = crate::cli::command();
    running.current_dir(path).args(INTO).args(["100"]).args(more);
    let mut child = running.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while progress(path).is_none_or(|found| found < stored) {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The documents that the state of an import says are stored.
fn progress(path: &Path) -> Option<u64> {
    let data = path.join("ebbtide-data");
    let names = data.read_dir().ok()?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let name = names.into_iter().find(|n| n.starts_with("import-") && n.ends_with(".json"))?;
    let json: serde_json::Value = serde_json::from_str(&text(&data.join(name))).ok()?;
    json["stored"].as_u64()
}

#[test]
fn a_killed_import_goes_on_without_a_document_twice_or_left_out() {
    const DOCUMENTS: u64 = 9_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let all = lines(DOCUMENTS);
    let half = all.char_indices().filter(|(_, c)| *c == '\n').nth(4000).unwrap().0 + 1;
    write(path, "a.ndjson", &all[..half]);
    write(path, "b.ndjson", &all[half..]);
    assert!(killed(path, &[], 1000), "it must not be through yet");
    let refused = run(path, &[&INTO[..], &["100"]].concat());
    assert!(refused.code == 1 && refused.stderr.contains("was interrupted after"), "{}", refused.stderr);
    assert!(good(path, &["status"]).contains("documents; ebbtide import --resume continues it"));
    for stored in [2500, 4500, 6000] {
        if !killed(path, &["--resume"], stored) {
            break;
        }
    }
    let end = run(path, &[&INTO[..], &["700", "--resume"]].concat());
    assert!(end.code == 0 && end.stderr.contains("documents are stored already"), "{}", end.stderr);
    let whole = tempfile::tempdir().unwrap();
    write(whole.path(), "a.ndjson", &all);
    good(whole.path(), &["import", "--documents", "a.ndjson", "--into", "s"]);
    let sql = "SELECT count(*) AS all, count(DISTINCT n) AS n, sum(n) AS sum, min(n) AS least FROM s";
    let counted = |path| good(path, &["sql", "--format", "csv", sql]);
    assert_eq!(counted(path), counted(whole.path()));
    let again = run(path, &[&INTO[..], &["100", "--resume"]].concat());
    assert!(again.stderr.contains("nothing is left to do"), "{}", again.stderr);
    write(path, "b.ndjson", "{\"_id\": 1}\n");
    good(path, &[&INTO[..], &["100", "--resume"]].concat());
    let piped = inside(path, &["import", "--documents", "-", "--into", "s", "--resume"], "{}");
    assert!(piped.stderr.contains("standard input can be read only once"), "{}", piped.stderr);
}

#[test]
fn a_rule_for_what_is_not_null_takes_what_a_query_takes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let line = |id, a| format!("{{\"_id\":{id}{a},\"e\":{{\"$date\":\"2020-01-01T00:00:00Z\"}}}}\n");
    let values = [",\"a\":null", ",\"a\":1", "", ",\"a\":[null]", ",\"a\":\"x\"", ",\"a\":{\"$minKey\":1}"];
    let lines: String = values.iter().enumerate().map(|(id, a)| line(id, a)).collect();
    // Some programs write a byte order mark.
    write(path, "d.ndjson", &format!("\u{feff}{lines}"));
    good(path, &["import", "--documents", "d.ndjson", "--into", "p"]);
    let ids =
        |condition: &str| good(path, &["sql", "-f", "csv", &format!("SELECT _id FROM p {condition} ORDER BY _id")]);
    assert_eq!(ids("WHERE a IS NOT NULL"), "_id\n1\n3\n4\n5\n");
    let made = run(path, &["sql", "CREATE TTL INDEX z ON p (e) EXPIRE AFTER 1 SECOND WHERE a IS NOT NULL"]);
    assert!(made.stderr.contains("hides 4 documents"), "{} {}", made.stdout, made.stderr);
    assert_eq!(ids(""), "_id\n0\n2\n");
    let refused = run(path, &["sql", "CREATE TTL INDEX y ON p (e) EXPIRE AFTER 1 SECOND WHERE a IN (1, NULL)"]);
    assert!(refused.stderr.contains("a comparison with NULL is never true"), "{}", refused.stderr);
}

#[test]
fn a_sweep_with_a_file_leaves_documents_for_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    good(path, &["sql", "CREATE COLLECTION c; CREATE TTL INDEX t ON c (e) EXPIRE AFTER 0 SECONDS"]);
    good(path, &["sql", "INSERT INTO c (_id, e) VALUES (1, TIMESTAMP '2020-01-01T00:00:00Z')"]);
    assert!(good(path, &["sweep", "--expired-to", "gone.ndjson"]).starts_with("0 buckets"));
    assert_eq!(good(path, &["sql", "-f", "csv", "SELECT count(*) AS n FROM c"]), "n\n0\n");
    assert!(good(path, &["sweep"]).starts_with("1 bucket with 1 document dropped"));
}

#[test]
fn a_prepared_write_opens_the_database_for_writing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    good(path, &["sql", "CREATE COLLECTION c"]);
    let statements = "PREPARE put AS\nINSERT INTO c (_id, a) VALUES ($1, $2); EXECUTE put(1, 2); SELECT a FROM c";
    assert!(good(path, &["sql", "-f", "csv", statements]).ends_with("a\n2\n"));
}

#[test]
fn the_program_tells_of_documents() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    good(path, &["sql", "CREATE COLLECTION s EXPIRE ITEMS AFTER 60 SECONDS; INSERT INTO s (_id, a) VALUES (1, 'x')"]);
    let status = good(path, &["status"]);
    for part in [
        "s: 1 document in 1 bucket",
        "an ordinary collection, 2 columns",
        "items keep 1 minute, or their own ttl: 1 document",
        "next at",
    ] {
        assert!(status.contains(part), "{part}: {status}");
    }
    assert!(good(path, &["metrics"]).contains("collection_measurements{collection=\"s\"} 1"));
    let files = run(path, &["files", "s"]);
    assert!(files.code != 0 && files.stderr.contains("ebbtide export s"), "{}", files.stderr);
    assert!(good(path, &["sweep", "--dry-run", "--now", "+2m"]).contains("items"));
    assert!(good(path, &["export", "SELECT a FROM s", "-o", "-"]).contains("a\nx"));
    assert!(good(path, &["export", "s", "--format", "csv", "-o", "-"]).starts_with("_id,_ts,a,document"));
    good(path, &["sweep", "--now", "+2m"]);
    assert_eq!(good(path, &["export", "s", "-o", "-"]), "");
}

#[test]
fn columns_that_gain_members_and_doubles_are_known_after_each_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    good(path, &["sql", "CREATE COLLECTION o"]);
    for line in [
        r#"{"_id":1,"price":5,"at":{"x":1}}"#,
        r#"{"_id":2,"price":7.5,"at":{"y":"north"}}"#,
        r#"{"_id":3,"price":10,"at":{"x":2.5}}"#,
    ] {
        write(path, "o.ndjson", line);
        good(path, &["import", "--documents", "o.ndjson", "--into", "o"]);
        good(path, &["sql", "FLUSH"]);
    }
    let csv = |sql: &str| good(path, &["sql", "--format", "csv", sql]);
    let rows = csv("SELECT _id, price, at.x AS x, at.y AS y FROM o WHERE price > 5 ORDER BY price");
    assert_eq!(rows, "_id,price,x,y\n2,7.5,,north\n3,10.0,2.5,\n");
    assert_eq!(csv("SELECT sum(price) AS s, avg(at.x) AS x FROM o"), "s,x\n22.5,1.75\n");
    assert_eq!(
        csv("SELECT document FROM o WHERE _id = 1"),
        "document\n\"{\"\"_id\"\":1,\"\"price\"\":5,\"\"at\"\":{\"\"x\"\":1}}\"\n"
    );
    good(path, &["dump", "dump"]);
    good(path, &["--db", "again", "restore", "dump"]);
    let described = |db: &str| good(path, &["--db", db, "sql", "--format", "csv", "DESCRIBE o"]);
    assert_eq!(described("ebbtide-data"), described("again"));
}
