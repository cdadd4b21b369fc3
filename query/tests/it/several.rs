//! Several databases that are read as one.

use crate::support::time;
use ebbtide::Database;
use ebbtide_query::{QueryError, ScalarValue, Session, SessionSettings};
use ebbtide_ttl::{Clock, Code, VirtualClock};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Databases on a virtual clock, each in a folder of its own.
struct Several {
    runtime: tokio::runtime::Runtime,
    folder: tempfile::TempDir,
    clock: VirtualClock,
    paths: Vec<PathBuf>,
}

impl Several {
    /// One database for each list of statements.
    fn of(databases: &[&[&str]]) -> Several {
        let (runtime, folder) = (tokio::runtime::Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let clock = VirtualClock::new(time("2024-01-01T00:00:00Z"));
        let mut several = Several { runtime, folder, clock, paths: Vec::new() };
        for (number, statements) in databases.iter().enumerate() {
            let path = several.folder.path().join(number.to_string());
            let session = Session::new(several.builder(&path).open().unwrap()).unwrap();
            for statement in *statements {
                several.runtime.block_on(session.execute(statement)).unwrap();
            }
            session.database().clone().close().unwrap();
            several.paths.push(path);
        }
        several
    }

    fn builder(&self, path: &Path) -> ebbtide::Builder {
        Database::builder(path).clock(Arc::new(self.clock.clone()) as Arc<dyn Clock>)
    }

    fn session(&self, settings: &SessionSettings) -> Session {
        let mut databases = self.paths.iter().map(|path| self.builder(path).read_only().open().unwrap());
        Session::with_settings(databases.next().unwrap(), settings).unwrap().beside(databases.collect()).unwrap()
    }

    fn rows(&self, session: &Session, sql: &str) -> Result<Value, QueryError> {
        self.runtime.block_on(session.rows_as_json(sql)).map(Value::Array)
    }
}

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
    let rows = |sql: &str| several.rows(&session, sql).unwrap_or_else(|error| panic!("{sql}\n{error}"));
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
    assert_eq!(rows("SELECT v_sum FROM rollup('only', '10 minutes')"), json!([{"v_sum": 1.0}]));
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
    let then = SessionSettings { now: Some(time("2024-01-01T12:00:00Z")), ..SessionSettings::default() };
    assert_eq!(several.rows(&several.session(&then), "SELECT count(*) AS n FROM w").unwrap(), json!([{"n": 3}]));
}

#[test]
fn several_databases_are_not_written_to() {
    let several = two();
    let session = several.session(&SessionSettings::default());
    for statement in [
        "DELETE FROM w",
        "DELETE FROM only WHERE \"sensorId\" = 'x'",
        "INSERT INTO w (t, s) VALUES ('2024-01-01T00:00:00Z', 'a')",
        "CREATE VIEW v AS SELECT 1",
        "SWEEP",
    ] {
        let error = several.rows(&session, statement).unwrap_err();
        assert_eq!(error.code(), Code::IllegalOperation, "{statement}: {error}");
    }
    let error = several.rows(&session, "EXPLAIN EXPIRY FOR w").unwrap_err();
    assert_eq!(error.code(), Code::InvalidOptions, "{error}");
    let writer = several.builder(&several.folder.path().join("new")).open().unwrap();
    let error = session.beside(vec![writer]).unwrap_err();
    assert!(error.message().contains("is open for writing"), "{error}");
}

#[test]
fn an_error_names_what_is_in_any_of_the_databases() {
    let several = two();
    let session = several.session(&SessionSettings::default());
    let error = |sql: &str| several.rows(&session, sql).unwrap_err().to_string();
    assert!(error("SELECT wnd FROM w").contains("did you mean 'wind'?"), "{}", error("SELECT wnd FROM w"));
    assert!(error("SELECT * FROM onyl").contains("did you mean 'only'?"), "{}", error("SELECT * FROM onyl"));
    assert!(error("SELECT * FROM latest('nowhere')").contains("nowhere"));
}
