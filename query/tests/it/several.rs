//! Several databases that are read as one.

use crate::support::time;
use ebbtide::Database;
use ebbtide_query::{QueryError, ScalarValue, Session, SessionSettings};
use ebbtide_ttl::{Clock, Code, VirtualClock};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Databases, each in a folder of its own. The clock of the first is that of the session; those of the others have stopped.
struct Several {
    runtime: tokio::runtime::Runtime,
    folder: tempfile::TempDir,
    clock: VirtualClock,
    stopped: VirtualClock,
    paths: Vec<PathBuf>,
}

impl Several {
    /// One database for each list of statements.
    fn of(databases: &[&[&str]]) -> Several {
        let (runtime, folder) = (tokio::runtime::Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let (clock, stopped) = (VirtualClock::new(time(START)), VirtualClock::new(time(START)));
        let mut several = Several { runtime, folder, clock, stopped, paths: Vec::new() };
        for (number, statements) in databases.iter().enumerate() {
            let path = several.folder.path().join(number.to_string());
            let session = Session::new(several.builder(&path, &several.clock).open().unwrap()).unwrap();
            for statement in *statements {
                several.runtime.block_on(session.execute(statement)).unwrap();
            }
            session.database().clone().close().unwrap();
            several.paths.push(path);
        }
        several
    }

    fn builder(&self, path: &Path, clock: &VirtualClock) -> ebbtide::Builder {
        Database::builder(path).clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
    }

    fn open(&self, number: usize) -> Database {
        let clock = if number == 0 { &self.clock } else { &self.stopped };
        self.builder(&self.paths[number], clock).read_only().open().unwrap()
    }

    fn session(&self, settings: &SessionSettings) -> Session {
        let others = (1..self.paths.len()).map(|number| self.open(number)).collect();
        Session::with_settings(self.open(0), settings).unwrap().beside(others).unwrap()
    }

    /// The rows of a statement, which does not fail.
    fn ask(&self, session: &Session, sql: &str) -> Value {
        self.rows(session, sql).unwrap_or_else(|error| panic!("{sql}\n{error}"))
    }

    fn rows(&self, session: &Session, sql: &str) -> Result<Value, QueryError> {
        self.runtime.block_on(session.rows_as_json(sql)).map(Value::Array)
    }
}

const START: &str = "2024-01-01T00:00:00Z";

/// Two databases: of `w` the second has another field, and one with another type; `only` is in the second.
fn two() -> Several {
    Several::of(&[
        &[
            "CREATE COLLECTION w WITH (timeField = 't', metaField = 's') EXPIRE AFTER 1 DAY",
            "INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'a', 1), ('2024-01-01T06:00:00Z', 'a', 2)",
            "CREATE VIEW newest AS SELECT max(t) AS t, count(*) AS n FROM w",
        ],
        &[
            "CREATE COLLECTION w WITH (timeField = 't', metaField = 's') EXPIRE AFTER 2 DAYS",
            "CREATE COLLECTION only WITH (timeField = 'time', metaField = 'sensorId')",
            "INSERT INTO w (t, s, v, wind) VALUES ('2024-01-01T00:00:00Z', 'b', 1.5, 7)",
            "INSERT INTO only (time, \"sensorId\", v) VALUES ('2024-01-01T00:00:00Z', 'x', 1)",
            "CREATE LADDER ON only (STEP '10 minutes' FOREVER)",
            "FLUSH",
        ],
    ])
}

#[test]
fn a_collection_has_the_rows_and_the_columns_of_all_databases() {
    let several = two();
    let session = several.session(&SessionSettings::default());
    let rows = |sql: &str| several.ask(&session, sql);
    assert_eq!(
        rows("SELECT * FROM w ORDER BY t, s"),
        json!([
            {"t": "2024-01-01T00:00:00Z", "s": "a", "v": 1.0, "wind": null},
            {"t": "2024-01-01T00:00:00Z", "s": "b", "v": 1.5, "wind": 7},
            {"t": "2024-01-01T06:00:00Z", "s": "a", "v": 2.0, "wind": null},
        ])
    );
    assert_eq!(rows("SELECT s, v FROM w WHERE wind IS NULL AND v < 2"), json!([{"s": "a", "v": 1.0}]));
    assert_eq!(rows("SELECT s, v FROM latest('w') ORDER BY s"), json!([{"s": "a", "v": 2.0}, {"s": "b", "v": 1.5}]));
    assert_eq!(rows("SELECT sensorId FROM only"), json!([{"sensorId": "x"}]));
    assert_eq!(rows("SELECT n FROM newest"), json!([{"n": 3}]));
    assert_eq!(rows("SELECT v_sum FROM rollup('only', '10 minutes')"), json!([{"v_sum": 1}]));
    assert_eq!(
        rows("SELECT name, measurements FROM ebbtide.collections ORDER BY name, measurements"),
        json!([{"name": "only", "measurements": 1}, {"name": "w", "measurements": 1}, {"name": "w", "measurements": 2}])
    );
    assert_eq!(rows("SHOW BUCKETS FOR only").as_array().map(Vec::len), Some(1));
    let names = rows("DESCRIBE w");
    let names: Vec<&Value> = names.as_array().unwrap().iter().map(|row| &row["column_name"]).collect();
    assert_eq!(names, ["t", "s", "v", "wind"]);
}

#[test]
fn all_databases_hide_what_has_expired_by_their_own_rules_at_one_instant() {
    let several = two();
    let session = several.session(&SessionSettings::default());
    let counted = "SELECT s, count(*) AS n FROM w GROUP BY s ORDER BY s";
    let prepared = several.runtime.block_on(session.prepare("SELECT count(*) AS n FROM w WHERE v < $1")).unwrap();
    for (now, a, b) in [("2024-01-01T12:00:00Z", 2, 1), ("2024-01-02T00:00:00Z", 1, 1), ("2024-01-02T06:00:00Z", 0, 1)]
    {
        several.clock.set(time(now));
        let rows = several.rows(&session, counted).unwrap();
        let counts: Vec<i64> = rows.as_array().unwrap().iter().map(|row| row["n"].as_i64().unwrap()).collect();
        assert_eq!(counts, [a, b].into_iter().filter(|n| *n > 0).collect::<Vec<_>>(), "{now}");
        let values = [ScalarValue::from(10.0)];
        let result = several.runtime.block_on(prepared.execute(&values)).unwrap();
        assert_eq!(ebbtide_query::output::json_rows(&result.batches[0]).unwrap()[0]["n"], a + b, "{now}");
    }
    for (then, n) in [("2024-01-01T12:00:00Z", 3), ("2024-01-02T06:00:00Z", 1), ("2024-01-03T00:00:00Z", 0)] {
        let settings = SessionSettings { now: Some(time(then)), ..SessionSettings::default() };
        assert_eq!(
            several.ask(&several.session(&settings), "SELECT count(*) AS n FROM w"),
            json!([{"n": n}]),
            "{then}"
        );
    }
}

#[test]
fn several_databases_are_not_written_to() {
    let several = two();
    let session = several.session(&SessionSettings::default());
    for statement in [
        "DELETE FROM w",
        "DELETE FROM only WHERE \"sensorId\" = 'x'",
        "INSERT INTO w (t, s) VALUES ('2024-01-01T00:00:00Z', 'a')",
        "INSERT INTO only (time, \"sensorId\") VALUES ('2024-01-01T00:00:00Z', 'a')",
        "CREATE VIEW v AS SELECT 1",
        "DROP VIEW newest",
        "DROP COLLECTION IF EXISTS only",
        "SWEEP",
    ] {
        let error = several.rows(&session, statement).unwrap_err();
        assert_eq!(error.code(), Code::IllegalOperation, "{statement}: {error}");
    }
    let error = several.rows(&session, "EXPLAIN EXPIRY FOR w").unwrap_err();
    assert_eq!(error.code(), Code::InvalidOptions, "{error}");
    let writer = several.builder(&several.folder.path().join("new"), &several.clock).open().unwrap();
    let error = session.beside(vec![writer]).unwrap_err();
    assert!(error.message().contains("is open for writing"), "{error}");
}

#[test]
fn a_database_is_not_read_twice_and_further_ones_are_added() {
    let several = two();
    let first = || Session::new(several.open(0)).unwrap();
    let added = first().beside(vec![several.open(1)]).unwrap().beside(Vec::new()).unwrap();
    assert_eq!(several.ask(&added, "SELECT count(*) AS n FROM w"), json!([{"n": 3}]));
    let error = first().beside(vec![several.open(1), several.open(0)]).unwrap_err();
    assert!(error.message().contains("its rows would count twice"), "{error}");
}

/// Two databases with these statements, and the answer of both orders, which has to be the same.
fn in_both_orders(one: &[&str], other: &[&str], statement: &str) -> Value {
    let answer = |first, second| {
        let several = Several::of(&[first, second]);
        several.ask(&several.session(&SessionSettings::default()), statement)
    };
    let found = answer(one, other);
    assert_eq!(answer(other, one), found, "{statement}");
    found
}

#[test]
fn types_that_differ_meet_in_one_that_holds_all_values() {
    let precise = |precision: &str, times: &[&str]| {
        let rows: Vec<String> = times.iter().map(|t| format!("('2024-01-01T00:00:00{t}Z', 'a')")).collect();
        [
            format!("CREATE COLLECTION w WITH (timeField = 't', metaField = 's', precision = '{precision}')"),
            format!("INSERT INTO w (t, s) VALUES {}", rows.join(", ")),
        ]
    };
    let (ms, ns) = (precise("ms", &["", ".001"]), precise("ns", &[".0000002", ".0000005"]));
    let [ms, ns] = [&ms, &ns].map(|statements| statements.iter().map(String::as_str).collect::<Vec<_>>());
    for (condition, n) in [("=", 1), ("<", 2), (">=", 2), (">", 1), ("<=", 3), ("<>", 3)] {
        let sql = format!("SELECT count(*) AS n FROM w WHERE t {condition} '2024-01-01T00:00:00.0000005Z'");
        assert_eq!(in_both_orders(&ms, &ns, &sql), json!([{"n": n}]), "{condition}");
    }
    let bins = "SELECT date_bin('1 second', t) AS b, count(*) AS n FROM w GROUP BY b";
    assert_eq!(in_both_orders(&ms, &ns, bins), json!([{"b": "2024-01-01T00:00:00Z", "n": 4}]));
    let filled = "SELECT date_bin_gapfill(INTERVAL '1 second', t) AS b, count(*) AS n FROM w \
                  WHERE t >= '2024-01-01T00:00:00Z' AND t < '2024-01-01T00:00:02Z' GROUP BY b ORDER BY b";
    let bin = |second: u32, n: Value| json!({"b": format!("2024-01-01T00:00:0{second}Z"), "n": n});
    assert_eq!(in_both_orders(&ms, &ns, filled), json!([bin(0, json!(4)), bin(1, Value::Null)]));

    let create = "CREATE COLLECTION w WITH (timeField = 't', metaField = 's')";
    let with = |rows: &'static str| [create, rows];
    let integers =
        with("INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'a', 1), ('2024-01-01T00:00:01Z', 'a', 2)");
    let doubles = with("INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'b', 1.5)");
    for (condition, n) in [("v < 1.6", 2), ("v = 1", 1), ("v = 1.5", 1), ("v > 1", 2), ("v IS NULL", 0)] {
        let sql = format!("SELECT count(*) AS n FROM w WHERE {condition}");
        assert_eq!(in_both_orders(&integers, &doubles, &sql), json!([{"n": n}]), "{condition}");
    }
    assert_eq!(in_both_orders(&[create], &doubles, "SELECT count(DISTINCT s) AS n FROM w"), json!([{"n": 1}]));
    let large = with("INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'a', 9007199254740993)");
    let several = Several::of(&[&large, &doubles]);
    let error = several.rows(&several.session(&SessionSettings::default()), "SELECT v FROM w").unwrap_err();
    assert!(error.message().contains("9007199254740993 is not exactly a double"), "{error}");
}

#[test]
fn objects_have_the_members_of_all_databases() {
    let with = |rows: &'static str| ["CREATE COLLECTION w WITH (timeField = 't', metaField = 's')", rows];
    let one = with(r#"INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', {'region': 'n', 'floor': 1}, 1)"#);
    let other = with(
        r#"INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', {'region': 'n', 'room': 'x', 'floor': 1.5}, 2)"#,
    );
    assert_eq!(
        in_both_orders(
            &one,
            &other,
            "SELECT s.region AS a, s.floor AS b, s.room AS c, sum(v) AS v FROM w GROUP BY s ORDER BY v"
        ),
        json!([{"a": "n", "b": 1.0, "c": null, "v": 1}, {"a": "n", "b": 1.5, "c": "x", "v": 2}])
    );
    assert_eq!(in_both_orders(&one, &other, "SELECT v FROM w WHERE s.room = 'x'"), json!([{"v": 2}]));
    assert_eq!(in_both_orders(&one, &other, "SELECT v FROM latest('w') WHERE s.floor = 1"), json!([{"v": 1}]));
}

#[test]
fn lists_that_were_all_empty_and_columns_that_were_all_null_join_with_every_type() {
    let series = |rows: &'static str| ["CREATE COLLECTION w WITH (timeField = 't', metaField = 's')", rows];
    let empty = series("INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'a', [])");
    let numbers = series("INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'b', [1, 2])");
    let lists = in_both_orders(&empty, &numbers, "SELECT s, v FROM w ORDER BY s");
    assert_eq!(lists, json!([{"s": "a", "v": []}, {"s": "b", "v": [1, 2]}]));
    assert_eq!(in_both_orders(&empty, &empty[..1], "SELECT s, v FROM w"), json!([{"s": "a", "v": []}]));

    let latest = in_both_orders(&empty, &numbers, "SELECT s, v FROM latest('w') ORDER BY s");
    assert_eq!(latest, lists);

    let documents = |rows: &'static str| ["CREATE COLLECTION d EXPIRE ITEMS", rows];
    let nulls = documents("INSERT INTO d (_id, at, n) VALUES ('a', NULL, 1)");
    let times = documents("INSERT INTO d (_id, at, n) VALUES ('b', TIMESTAMP '2024-01-01T00:00:00', 2)");
    assert_eq!(
        in_both_orders(&nulls, &times, "SELECT _id, at, n FROM d ORDER BY _id"),
        json!([{"_id": "a", "at": null, "n": 1}, {"_id": "b", "at": "2024-01-01T00:00:00Z", "n": 2}])
    );
    // JSON texts are written in quotes, and so are no texts.
    let mixed = [
        "CREATE COLLECTION d EXPIRE ITEMS",
        "INSERT INTO d (_id, n) VALUES ('a', 'x')",
        "INSERT INTO d (_id, n) VALUES ('b', 1)",
    ];
    let texts = documents("INSERT INTO d (_id, n) VALUES ('c', 'x')");
    assert_eq!(in_both_orders(&mixed, &texts, "SELECT count(*) AS n FROM d"), json!([{"n": 3}]));
    let several = Several::of(&[&mixed, &texts]);
    let error = several.rows(&several.session(&SessionSettings::default()), "SELECT n FROM d").unwrap_err();
    assert!(error.message().contains("column 'n' of 'd' has types"), "{error}");
}

#[test]
fn numbers_are_found_in_columns_of_several_types() {
    let one =
        ["CREATE COLLECTION d", "INSERT INTO d (_id, n) VALUES ('a', 'x')", "INSERT INTO d (_id, n) VALUES ('b', 10)"];
    let other = [
        "CREATE COLLECTION d",
        "INSERT INTO d (_id, n) VALUES ('c', true)",
        "INSERT INTO d (_id, n) VALUES ('d', 9.5)",
    ];
    let none = ["CREATE COLLECTION d", "INSERT INTO d (_id, n) VALUES ('c', NULL)"];
    for (condition, with_other, with_none) in [
        ("n > 9.5", "b", "b"),
        ("n < 100", "bd", "b"),
        ("10 = n", "b", "b"),
        ("n <> 10", "acd", "a"),
        ("n IN (9.5, 7)", "d", ""),
        ("n BETWEEN 9 AND 9.9", "d", ""),
        ("n = '\"x\"'", "a", "a"),
    ] {
        let sql = format!("SELECT _id FROM d WHERE {condition} ORDER BY _id");
        let ids = |ids: &str| json!(ids.chars().map(|id| json!({"_id": id.to_string()})).collect::<Vec<_>>());
        assert_eq!(in_both_orders(&one, &other, &sql), ids(with_other), "{condition}");
        assert_eq!(in_both_orders(&one, &none, &sql), ids(with_none), "{condition}");
        assert_eq!(in_both_orders(&one, &none[..1], &sql), ids(with_none), "{condition}");
    }
    let largest = "SELECT _id FROM d GROUP BY _id HAVING max(n) > 9.5";
    assert_eq!(in_both_orders(&one, &other, largest), json!([{"_id": "b"}]));
}

#[test]
fn listings_have_the_times_of_all_databases() {
    let far = [
        "CREATE COLLECTION far WITH (timeField = 't', outOfRange = 'expire')",
        "INSERT INTO far (t) VALUES ('2350-01-01T00:00:00Z')",
    ];
    let near =
        ["CREATE COLLECTION near WITH (timeField = 't')", "INSERT INTO near (t) VALUES ('2024-01-01T00:00:00Z')"];
    assert_eq!(
        in_both_orders(&far, &near, "SELECT name, last_time FROM ebbtide.collections ORDER BY name"),
        json!([{"name": "far", "last_time": "2350-01-01T00:00:00Z"}, {"name": "near", "last_time": "2024-01-01T00:00:00Z"}])
    );
}

#[test]
fn a_column_whose_types_have_nothing_in_common_is_an_error_where_it_is_read() {
    let with = |rows: &'static str| ["CREATE COLLECTION w WITH (timeField = 't', metaField = 's')", rows];
    let texts = with("INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'a', 'x')");
    let numbers = with("INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'b', 1)");
    assert_eq!(
        in_both_orders(&texts, &numbers, "SELECT count(*) AS n, max(s) AS s FROM w"),
        json!([{"n": 2, "s": "b"}])
    );
    let several = Several::of(&[&texts, &numbers]);
    let error = several.rows(&several.session(&SessionSettings::default()), "SELECT * FROM w").unwrap_err();
    assert!(error.message().contains("column 'v' of 'w' has types"), "{error}");
}

#[test]
fn a_prepared_statement_compares_in_the_types_of_all_databases() {
    let with = |rows: &'static str| ["CREATE COLLECTION w WITH (timeField = 't', metaField = 's')", rows];
    let integers = with("INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'a', 1)");
    let doubles = with("INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'b', 1.5)");
    for databases in [[&integers[..], &doubles], [&doubles[..], &integers]] {
        let several = Several::of(&databases);
        let session = several.session(&SessionSettings::default());
        several.ask(&session, "PREPARE p AS SELECT count(*) AS n FROM w WHERE v < $1");
        assert_eq!(several.ask(&session, "EXECUTE p(1.6)"), json!([{"n": 2}]));
    }
}

#[test]
fn an_error_names_what_is_in_any_of_the_databases() {
    let several = two();
    let session = several.session(&SessionSettings::default());
    let error = |sql: &str| several.rows(&session, sql).unwrap_err().to_string();
    assert!(error("SELECT wnd FROM w").contains("did you mean 'wind'?"), "{}", error("SELECT wnd FROM w"));
    assert!(error("SELECT * FROM onyl").contains("did you mean 'only'?"), "{}", error("SELECT * FROM onyl"));
    assert!(
        error("SELECT * FROM latest('nowhere')").contains("'nowhere' does not exist"),
        "{}",
        error("SELECT * FROM latest('nowhere')")
    );
}
