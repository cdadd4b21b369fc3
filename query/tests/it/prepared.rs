//! Prepared queries: planned once, exact whenever they run.

use crate::support::{World, time, two_sensors};
use ebbtide_query::{PreparedStatement, QueryError, ScalarValue};
use ebbtide_ttl::Code;

fn run(w: &World, prepared: &PreparedStatement<'_>, values: &[ScalarValue]) -> Result<String, QueryError> {
    let result = w.block_on(prepared.execute(values))?;
    let rows = result.batches.iter().flat_map(|batch| ebbtide_query::output::json_rows(batch).unwrap());
    Ok(serde_json::Value::Array(rows.map(serde_json::Value::Object).collect()).to_string())
}

fn prepare<'a>(w: &'a World, sql: &str) -> PreparedStatement<'a> {
    w.block_on(w.session().prepare(sql)).unwrap_or_else(|e| panic!("{sql}\n{e}"))
}

#[test]
fn prepared_queries_hide_what_has_expired_when_they_run() {
    let w = two_sensors();
    let count = prepare(&w, "SELECT count(*) AS n FROM w WHERE s = $1");
    let of = |sensor: &str| run(&w, &count, &[sensor.into()]).unwrap();
    assert_eq!((of("a"), of("b")), (r#"[{"n":5}]"#.to_owned(), r#"[{"n":143}]"#.to_owned()));
    for (now, a, b) in [("2024-01-02T00:10:00Z", 4, 142), ("2024-01-02T12:00:00Z", 0, 71)] {
        w.set(now);
        assert_eq!((of("a"), of("b")), (format!(r#"[{{"n":{a}}}]"#), format!(r#"[{{"n":{b}}}]"#)), "{now}");
        assert_eq!(of("b"), w.text("SELECT count(*) AS n FROM w WHERE s = 'b'"));
    }
}

#[test]
fn prepared_queries_see_what_was_inserted_since_and_their_own_now() {
    let w = two_sensors();
    let newest = prepare(&w, "SELECT max(v) AS v, now() - max(t) < INTERVAL '1 hour' AS fresh FROM w WHERE s = $1");
    assert_eq!(run(&w, &newest, &["b".into()]).unwrap(), r#"[{"v":23.0,"fresh":true}]"#);
    w.set("2024-01-02T06:00:00Z");
    assert_eq!(run(&w, &newest, &["b".into()]).unwrap(), r#"[{"v":23.0,"fresh":false}]"#);
    w.rows("INSERT INTO w (t, s, v) VALUES ('2024-01-02T05:59:00Z', 'b', 99.5)");
    assert_eq!(run(&w, &newest, &["b".into()]).unwrap(), r#"[{"v":99.5,"fresh":true}]"#);
}

#[test]
fn prepared_queries_are_planned_again_when_a_schema_or_a_view_changes() {
    let w = two_sensors();
    w.rows("CREATE VIEW warm AS SELECT * FROM w WHERE v > 22");
    let (all, warm) =
        (prepare(&w, "SELECT * FROM w ORDER BY t DESC LIMIT 1"), prepare(&w, "SELECT count(*) FROM warm"));
    assert_eq!(run(&w, &warm, &[]).unwrap(), w.text("SELECT count(*) FROM w WHERE v > 22"));
    w.rows("INSERT INTO w (t, s, v, wind) VALUES ('2024-01-01T23:59:00Z', 'b', 1.0, 7)");
    assert_eq!(run(&w, &all, &[]).unwrap(), w.text("SELECT * FROM w ORDER BY t DESC LIMIT 1"));
    w.rows("INSERT INTO w (t, s, v, wind) VALUES ('2024-01-01T23:59:30Z', 'b', 1.0, 7.25)");
    assert!(run(&w, &all, &[]).unwrap().contains(r#""wind":7.25"#));
    w.rows("CREATE OR REPLACE VIEW warm AS SELECT * FROM w WHERE v > 20");
    assert_eq!(run(&w, &warm, &[]).unwrap(), w.text("SELECT count(*) FROM w WHERE v > 20"));
    w.rows("DROP COLLECTION w");
    assert_eq!(run(&w, &all, &[]).unwrap_err().code(), Code::NamespaceNotFound);
}

#[test]
fn prepared_queries_give_what_the_same_text_with_the_values_gives() {
    let w = two_sensors();
    let queries = [
        "SELECT date_bin('1 hour', t) AS h, s, max(v) AS v FROM w WHERE s = $1 AND t >= $2 GROUP BY h, s ORDER BY h",
        "SELECT * FROM w WHERE t > $2 AND s <> $1 ORDER BY t, s LIMIT 7",
        "SELECT s, avg(v) AS v FROM w WHERE t >= $2 OR s = $1 GROUP BY s ORDER BY s",
        "SELECT count(*) AS n FROM (SELECT DISTINCT v FROM w WHERE s = $1 UNION ALL SELECT 1.5) AS x WHERE v < 9 OR $2 < now()",
        "SELECT s, v FROM w WHERE v = (SELECT max(v) FROM w WHERE s = $1 AND t < $2) ORDER BY t, s LIMIT 3",
    ];
    for query in queries {
        let prepared = prepare(&w, query);
        for (sensor, at) in
            [("a", "2024-01-01T23:20:00Z"), ("b", "2024-01-01T10:00:00.000000001Z"), ("x", "1999-01-01T00:00:00Z")]
        {
            let literal = query.replace("$1", &format!("'{sensor}'")).replace("$2", &format!("TIMESTAMP '{at}'"));
            let nanos = i64::try_from(time(at).nanos()).unwrap();
            let instant = ScalarValue::TimestampNanosecond(Some(nanos), Some("UTC".into()));
            assert_eq!(run(&w, &prepared, &[sensor.into(), instant]).unwrap(), w.text(&literal), "{literal}");
        }
    }
}

#[test]
fn prepared_queries_refuse_what_does_not_fit() {
    let w = two_sensors();
    let error = |sql: &str| w.block_on(w.session().prepare(sql)).unwrap_err();
    for sql in ["DELETE FROM w", "SHOW TTL", "SELECT 1; SELECT 2", "INSERT INTO w (t, s) VALUES (now(), 'a')", ""] {
        assert!(error(sql).to_string().contains("only queries can be prepared"), "{sql}: {}", error(sql));
    }
    assert!(error("SELECT * FROM w WHERE s = $2").to_string().contains("$1 is missing"));
    assert!(error("SELECT nothing FROM w").to_string().contains("nothing"));
    let prepared = prepare(&w, "SELECT count(*) AS n FROM w WHERE s = $1");
    let refused = run(&w, &prepared, &[]).unwrap_err();
    assert_eq!(refused.code(), Code::BadValue);
    assert!(refused.to_string().contains("expected 1, got 0"), "{refused}");
    assert_eq!(run(&w, &prepared, &["b".into()]).unwrap(), r#"[{"n":143}]"#);
}
