//! Dumps: their contents, and that a restored database is the same.

use crate::cli::{Output, inside};
use std::path::Path;

fn run(folder: &Path, args: &[&str]) -> Output {
    inside(folder, args, "")
}

fn good(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
    output.stdout
}

/// A database with collections of every kind of option, rule and value.
fn filled(folder: &Path) {
    let statements = "
        CREATE COLLECTION plain WITH (timeField = 't');
        INSERT INTO plain (t, z, a) VALUES ('2024-01-01T00:00:00Z', 1, NULL), ('2024-01-01T00:00:01Z', NULL, 'x');
        CREATE COLLECTION rich WITH (timeField = 't', metaField = 's', granularity = 'hours', precision = 'ns')
            EXPIRE AFTER 60 DAYS;
        CREATE TTL INDEX short ON rich (t) EXPIRE AFTER 1 HOUR WHERE s = 'a';
        CREATE TTL INDEX few ON rich (t) EXPIRE AFTER 2 DAYS WHERE s IN ('b', 'c');
        INSERT INTO rich (t, s, d, i, b, x, u, l)
            SELECT to_timestamp_nanos(CAST(now() AS BIGINT) - value * 60000000000), chr(97 + value % 3), value / 7.0,
                value, value % 2 = 0, X'00ff', 'caf\u{e9}', make_array(value, NULL)
            FROM generate_series(1, 5000);
        INSERT INTO rich (t, s, d) VALUES (now() + INTERVAL '1 day', 'z', 'NaN'::double);
        INSERT INTO rich (t, s, d) VALUES (now() - INTERVAL '70 days', 'old', 'inf'::double);
        CREATE COLLECTION early WITH (timeField = 't', metaField = 's', expiry = 'bucket') EXPIRE AFTER 1 HOUR;
        INSERT INTO early (t, s, v) VALUES ('1957-01-01T00:00:00Z', 'x', 1), ('2020-01-01T00:00:00Z', 'y', 2);
        CREATE COLLECTION empty WITH (timeField = 't', metaField = 's');
        INSERT INTO empty (t, s, v) VALUES ('2020-01-01T00:00:00Z', 'y', 2); DELETE FROM empty";
    good(folder, &["sql", statements]);
    let nested = r#"{"insert": "early", "documents": [{"t": {"$date": "2021-01-01T00:00:00Z"}, "s": "n",
        "o": {"p": {"q": [1.5, 2]}, "r": {"$binary": {"base64": "AP8=", "subType": "00"}}}}]}"#;
    good(folder, &["command", nested]);
    good(folder, &["command", r#"{"collMod": "early", "timeseries": {"outOfRange": "reject", "ids": "keep"}}"#]);
}

/// Everything that a user can query, at one instant.
fn seen(folder: &Path, db: &str) -> String {
    let mut all = String::new();
    for statement in [
        "SELECT name, time_field, meta_field, granularity, span_seconds, precision, expiry, out_of_range,
            expire_after_seconds, measurements, first_time, last_time, state FROM ebbtide.collections ORDER BY name",
        "SELECT collection, rule, filter, expire_after_seconds, state FROM ebbtide.ttl_rules ORDER BY 1, 2",
        "SELECT * FROM plain ORDER BY t",
        "SELECT * FROM rich ORDER BY t, i",
        "SELECT * FROM early ORDER BY t",
        "DESCRIBE rich",
        "DESCRIBE early",
        "DESCRIBE empty",
    ] {
        // An instant at which nothing has expired yet.
        let at = ["--now", "2024-06-01T00:00:00Z"];
        all.push_str(&good(folder, &["--db", db, "sql", at[0], at[1], "--format", "ndjson", statement]));
    }
    for document in [r#"{"listCollections": 1}"#, r#"{"listIndexes": "rich"}"#] {
        all.push_str(&good(folder, &["--db", db, "--read-only", "command", document]));
    }
    all
}

#[test]
fn a_restored_database_answers_as_the_one_that_was_dumped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    filled(path);
    good(path, &["dump", "backup"]);
    good(path, &["--db", "copy", "restore", "backup"]);
    good(path, &["--db", "copy", "verify"]);
    // Expired at the time of the dump; stored in one database and not in the other, hidden in both.
    let old = "SELECT count(*) AS n FROM rich WHERE s = 'old'";
    for db in ["copy", "ebbtide-data"] {
        assert_eq!(good(path, &["--db", db, "sql", "--format", "csv", old]), "n\n0\n", "{db}");
        // The clock advances between the two reads: what the shortest rule may hide meanwhile, and what only one
        // database stores, is left out.
        good(path, &["--db", db, "sql", "DELETE FROM rich WHERE s IN ('a', 'old') OR i > 2800"]);
    }
    assert_eq!(seen(path, "copy"), seen(path, "ebbtide-data"));
    let refused = run(path, &["--db", "copy", "restore", "backup"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("already exists in copy and is not overwritten"), "{}", refused.stderr);
    good(path, &["--db", "part", "restore", "backup", "--collection", "plain"]);
    let names = "SELECT name FROM ebbtide.collections";
    assert_eq!(good(path, &["--db", "part", "sql", "--format", "csv", names]), "name\nplain\n");
    let again = run(path, &["dump", "backup"]);
    assert!(again.stderr.contains("backup is not empty"), "{}", again.stderr);
}

/// A change to a file of a dump; `None` deletes it.
type Change<'a> = dyn Fn(&str, Vec<u8>) -> Option<Vec<u8>> + 'a;

/// A copy of the dump `whole` with changed files.
fn changed(path: &Path, to: &str, change: &Change<'_>) {
    #[expect(clippy::disallowed_methods, reason = "test input")]
    std::fs::create_dir_all(path.join(to)).unwrap();
    for entry in path.join("whole").read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        #[expect(clippy::disallowed_methods, reason = "test input")]
        let bytes = std::fs::read(path.join("whole").join(&name)).unwrap();
        if let Some(bytes) = change(&name, bytes) {
            #[expect(clippy::disallowed_methods, reason = "test input")]
            std::fs::write(path.join(to).join(&name), bytes).unwrap();
        }
    }
}

#[test]
fn unfinished_and_damaged_dumps_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let sql = "CREATE COLLECTION w WITH (timeField = 't'); INSERT INTO w (t, v) VALUES ('2024-01-01T00:00:00Z', 1)";
    good(path, &["sql", sql]);
    good(path, &["dump", "whole"]);
    let edited = |bytes: Vec<u8>, from: &str, to: &str| match String::from_utf8(bytes) {
        Ok(text) => text.replace(from, to).into_bytes(),
        Err(error) => error.into_bytes(),
    };
    changed(path, "half", &|name, bytes| (name != "dump.json").then_some(bytes));
    changed(path, "flipped", &|name, mut bytes| {
        if name != "dump.json" {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        Some(bytes)
    });
    changed(path, "short", &|name, mut bytes| {
        if name != "dump.json" {
            bytes.pop();
        }
        Some(bytes)
    });
    changed(path, "lost", &|name, bytes| (name == "dump.json").then_some(bytes));
    changed(path, "newer", &|_, bytes| Some(edited(bytes, "\"version\": 1", "\"version\": 9")));
    changed(path, "lying", &|_, bytes| Some(edited(bytes, "\"measurements\": 1", "\"measurements\": 2")));
    let cases = [
        ("half", "half is not a complete dump: dump.json"),
        ("flipped", "its checksum does not match"),
        ("short", "bytes instead of"),
        ("lost", "cannot open lost"),
        ("newer", "its version is 9; this program reads versions 1 to 4"),
        ("lying", "it contains 1 measurement instead of 2; nothing was restored"),
        ("nowhere", "nowhere is not a complete dump"),
    ];
    for (dump, expected) in cases {
        let output = run(path, &["--db", "new", "restore", dump]);
        assert_eq!(output.code, 1, "{dump}");
        assert!(output.stderr.contains(expected), "{dump}: {}", output.stderr);
    }
    let count = "SELECT count(*) AS n FROM ebbtide.collections";
    assert_eq!(good(path, &["--db", "new", "sql", "--format", "csv", count]), "n\n0\n");
}

#[test]
fn lists_and_objects_that_hold_nothing_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    good(path, &["command", r#"{"create": "c", "timeseries": {"timeField": "t", "metaField": "m"}}"#]);
    let documents = [
        r#"{"t": {"$date": "2024-01-01T00:00:00Z"}, "m": {"a": null}, "l": [], "o": {}, "x": 1}"#,
        r#"{"t": {"$date": "2024-01-01T00:00:01Z"}, "m": {}, "l": [null], "o": {"p": {}, "q": {"r": [null, null]}}}"#,
        r#"{"t": {"$date": "2024-01-01T00:00:02Z"}, "k": [], "e": {}, "far": {"$date": {"$numberLong": "9223372036854775807"}}}"#,
    ];
    good(path, &["command", &format!(r#"{{"insert": "c", "documents": [{}]}}"#, documents.join(", "))]);
    good(path, &["dump", "backup"]);
    good(path, &["--db", "copy", "restore", "backup"]);
    let found = |db: &str| good(path, &["--db", db, "command", r#"{"find": "c", "sort": {"t": 1}}"#]);
    assert_eq!(found("copy"), found("ebbtide-data"));
    let types = |db: &str| good(path, &["--db", db, "sql", "--format", "csv", "DESCRIBE c"]);
    assert_eq!(types("copy"), types("ebbtide-data"));
    // The types are not known yet: the first value of a list or an object decides.
    let more = r#"{"insert": "c", "documents": [{"t": {"$date": "2024-01-02T00:00:00Z"}, "l": ["a"], "o": {"z": 1}}]}"#;
    good(path, &["--db", "copy", "command", more]);
    for file in ["c.parquet", "c.arrow"] {
        good(path, &["export", "c", "-o", file]);
        good(path, &["--db", "imported", "import", file, "-c", &file.replace('.', "_"), "--meta", "m"]);
    }
    let far = "SELECT far FROM c WHERE far IS NOT NULL";
    assert_eq!(good(path, &["sql", "--format", "csv", far]), "far\n+292278994-08-17T07:12:55.807Z\n");
}

#[test]
fn a_dump_runs_no_command_but_those_that_make_its_collections() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let sql = "CREATE COLLECTION w WITH (timeField = 't', metaField = 'm');
        CREATE TTL INDEX i ON w (t) EXPIRE AFTER 1 DAY WHERE m = 1;
        INSERT INTO w (t, v) VALUES ('2024-01-01T00:00:00Z', 1)";
    good(path, &["sql", sql]);
    good(path, &["dump", "whole"]);
    let precious = "CREATE COLLECTION precious WITH (timeField = 't');
        INSERT INTO precious (t, v) VALUES ('2024-01-01T00:00:00Z', 1)";
    good(path, &["--db", "new", "sql", precious]);
    type Edit = fn(&mut serde_json::Value);
    let cases: [(&str, Edit); 9] = [
        ("drop", |d| d["collections"][0]["create"] = serde_json::json!({"drop": "precious"})),
        ("delete", |d| {
            let delete = serde_json::json!({"delete": "precious", "deletes": [{"q": {}, "limit": 0}]});
            d["collections"][0]["createIndexes"] = delete;
        }),
        ("collMod", |d| {
            d["collections"][0]["createIndexes"] = serde_json::json!({"collMod": "precious", "expireAfterSeconds": 1});
        }),
        ("other", |d| d["collections"][0]["create"]["create"] = "precious".into()),
        ("rules", |d| d["collections"][0]["createIndexes"]["createIndexes"] = "precious".into()),
        ("twice", |d| {
            let one = d["collections"][0].clone();
            d["collections"].as_array_mut().unwrap().push(one);
        }),
        ("up", |d| d["collections"][0]["file"] = "..".into()),
        ("escape", |d| d["collections"][0]["name"] = "w\u{1b}[2J".into()),
        ("instant", |d| d["instant"] = "\u{1b}[2J".into()),
    ];
    for (name, edit) in cases {
        changed(path, name, &|file, bytes| {
            if file != "dump.json" {
                return Some(bytes);
            }
            let mut json = serde_json::from_slice(&bytes).unwrap();
            edit(&mut json);
            Some(serde_json::to_vec(&json).unwrap())
        });
        let output = run(path, &["--db", "new", "restore", name]);
        assert_eq!(output.code, 1, "{name}: {}", output.stderr);
        assert!(!output.stderr.contains('\u{1b}'), "{name}: {:?}", output.stderr);
        let left = "SELECT name, measurements FROM ebbtide.collections";
        let left = good(path, &["--db", "new", "sql", "--format", "csv", left]);
        assert_eq!(left, "name,measurements\nprecious,1\n", "{name}: {}", output.stderr);
    }
}

#[test]
fn a_dump_keeps_holds_and_expired_measurements_that_must_not_be_lost_yet() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let statements = "
        CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door', graceSeconds = 1 DAY) EXPIRE AFTER 1 HOUR;
        INSERT INTO doors (t, door) VALUES (now(), 'live'), (now() - INTERVAL '2 hours', 'grace'),
            (now() - INTERVAL '3 days', 'gone'), (now() - INTERVAL '3 days', 'held');
        CREATE HOLD past ON doors REASON 'an audit';
        DROP HOLD past;
        CREATE HOLD case42 ON doors WHERE door = 'held' TO '2999-01-01' REASON 'court order 42'";
    good(folder, &["sql", statements]);
    good(folder, &["dump", "backup"]);
    good(folder, &["--db", "copy", "restore", "backup"]);
    let told = |db: &str, statement: &str| good(folder, &["--db", db, "sql", "--format", "csv", statement]);
    let holds = "SELECT name, collection, filter, to_time, reason, made_at, lifted_at, measurements FROM ebbtide.holds";
    assert_eq!(told("copy", holds), told("ebbtide-data", holds));
    assert_eq!(told("copy", holds).lines().count(), 3);
    for swept in [false, true] {
        assert_eq!(told("copy", "SELECT door FROM doors"), "door\nlive\n");
        assert_eq!(told("copy", "SELECT door FROM expired('doors') ORDER BY door"), "door\ngrace\nheld\n", "{swept}");
        good(folder, &["--db", "copy", "sweep"]);
    }
    // Under another name, and where the hold is there already.
    let again = ["--db", "copy", "restore", "backup", "--collection", "doors", "--as", "gates"];
    let refused = run(folder, &again);
    assert!(
        refused.code != 0 && refused.stderr.contains("hold 'case42' of the dump is there already"),
        "{}",
        refused.stderr
    );
    good(folder, &["--db", "copy", "sql", "DROP HOLD case42"]);
    good(folder, &again);
    assert_eq!(told("copy", "SELECT door FROM expired('gates') ORDER BY door"), "door\ngrace\nheld\n");
    let refused = run(folder, &["--db", "copy", "sql", "DROP COLLECTION gates"]);
    assert!(refused.code != 0 && refused.stderr.contains("case42"), "{}", refused.stderr);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "test input")]
fn a_dump_keeps_what_measurements_came_to() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let statements = "
        CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door') EXPIRE AFTER 1 HOUR;
        CREATE LADDER ON doors (STEP '1 hour' FOREVER, STEP '1 day' FOREVER);
        INSERT INTO doors (t, door, opened, by) VALUES ('2024-01-01T00:10:00Z', 'front', 1, 'ann'),
            ('2024-01-01T00:20:00Z', 'front', 2, 'bob'), ('2024-01-01T05:00:00Z', 'back', 4, 'cid');
        SWEEP;
        INSERT INTO doors (t, door, opened, by) VALUES ('2024-01-01T00:30:00Z', 'front', 8, 'dan'), (now(), 'front', 16, 'eve')";
    good(folder, &["sql", statements]);
    good(folder, &["dump", "backup"]);
    good(folder, &["--db", "copy", "restore", "backup"]);
    let told = |db: &str, statement: &str| good(folder, &["--db", db, "sql", "--format", "csv", statement]);
    for width in ["1 hour", "1 day"] {
        // The sums of squares of several pieces are rounded where they are stored.
        let columns = "* EXCLUDE (opened_stddev), round(opened_stddev, 9) AS deviation";
        let bins = format!("SELECT {columns} FROM rollup('doors', '{width}') WHERE t < '2024-02-01' ORDER BY door, t");
        assert_eq!(told("copy", &bins), told("ebbtide-data", &bins));
    }
    let sums = "SELECT door, opened_sum, by_last FROM rollup('doors', '1 day') WHERE t < '2024-02-01' ORDER BY door";
    assert_eq!(told("copy", sums), "door,opened_sum,by_last\nback,4,cid\nfront,11,dan\n");
    // What is damaged is not restored.
    let file = folder.join("backup/0001-doors_rung_3600.parquet");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let refused = run(folder, &["--db", "other", "restore", "backup"]);
    assert!(refused.code != 0 && refused.stderr.contains("checksum"), "{}", refused.stderr);
}

#[test]
fn a_collection_that_is_named_twice_is_dumped_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    good(folder, &["sql", "CREATE COLLECTION a WITH (timeField = 't'); CREATE COLLECTION b WITH (timeField = 't')"]);
    good(folder, &["sql", "INSERT INTO b (t, v) VALUES ('2024-01-01T00:00:00Z', 1)"]);
    let dumped = run(folder, &["dump", "backup", "-c", "b", "-c", "a", "--collection", "b"]);
    assert!(dumped.code == 0 && dumped.stderr.contains("2 collections as of"), "{}", dumped.stderr);
    good(folder, &["--db", "copy", "restore", "backup"]);
    assert_eq!(good(folder, &["--db", "copy", "sql", "--format", "csv", "SELECT v FROM b"]), "v\n1\n");
}
