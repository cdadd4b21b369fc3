//! Distinct rows and counts by group: the operator of this crate returns what DataFusion's do.

use crate::support::{World, both, counted};
use ebbtide_query::{Session, SessionSettings};
use serde_json::Value;

/// Rows with nulls, both zeros, NaN, infinities, the ends of integers, texts of any length, and booleans.
fn world() -> World {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 'time', metaField = 's')");
    world.rows(
        "INSERT INTO w (time, s, i, j, f, t, b)
         SELECT to_timestamp_seconds(1704067200 + value % 3000), CASE WHEN value % 11 > 0 THEN 's' || (value % 11) END,
            CASE value % 7 WHEN 0 THEN NULL WHEN 1 THEN -9223372036854775808 WHEN 2 THEN 9223372036854775807 WHEN 3 THEN -1 ELSE value END,
            value % 5000,
            CASE value % 9 WHEN 0 THEN NULL WHEN 1 THEN CAST('NaN' AS DOUBLE) WHEN 2 THEN CAST('-inf' AS DOUBLE) WHEN 3 THEN -0.0
                WHEN 4 THEN 0.0 ELSE value % 900 / 8.0 END,
            CASE value % 6 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'a text of more than twelve bytes ' || (value % 40) ELSE 't' || (value % 50) END,
            CASE WHEN value % 5 > 0 THEN value % 2 = 0 END
         FROM generate_series(1, 36000)",
    );
    world.rows("FLUSH");
    world.rows("INSERT INTO w (time, s, j) SELECT to_timestamp_seconds(1704067200 + value), 'late', -1 FROM generate_series(1, 3000)");
    world
}

fn sorted(rows: Vec<Value>) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(Value::to_string).collect();
    rows.sort();
    rows
}

#[test]
fn groups_of_every_type_are_those_of_datafusion() {
    let world = world();
    let zeros = world.text(
        "SELECT count(DISTINCT x) AS n FROM (SELECT CASE WHEN j % 2 = 0 THEN -0.0 ELSE 0.0 END AS x FROM w) AS y",
    );
    assert_eq!(zeros, r#"[{"n":1}]"#);
    for columns in [
        "i",
        "j",
        "f",
        "t",
        "b",
        "i, j",
        "s, f",
        "s, t, b",
        "t, b, j",
        "b, b IS NULL, s, t",
        "time",
        "s, time",
        "f, i",
        "CAST(j AS INT), CAST(i % 100 AS SMALLINT), CAST(f AS REAL), t",
        "CAST(time AS DATE), j",
        "j % 3",
        "upper(t), f",
        "-f, j % 7",
        "i, CASE WHEN j >= 0 THEN i END",
        "NOT b, t",
    ] {
        for sql in [
            format!("SELECT DISTINCT {columns} FROM w"),
            format!("SELECT {columns}, count(*) AS n FROM w WHERE j > 10 GROUP BY {columns} HAVING count(*) < 5"),
        ] {
            let (fast, slow, plan) = both(&world, &sql);
            assert!(plan.contains("GroupsExec"), "{sql}: {plan}");
            assert_eq!(counted(&plan, "handed_to_datafusion"), ["0"], "{sql}: {plan}");
            assert!(!fast.is_empty() || sql.contains("HAVING"), "{sql}");
            assert_eq!(sorted(fast), sorted(slow), "{sql}");
        }
    }
    for sql in [
        "SELECT count(DISTINCT i) AS n FROM w",
        "SELECT s, count(DISTINCT f) AS n FROM w GROUP BY s ORDER BY s",
        "SELECT t, count(DISTINCT i) AS n, sum(DISTINCT i) AS m FROM w WHERE i < 100000 GROUP BY t ORDER BY t",
        "SELECT count(*) AS n FROM (SELECT DISTINCT s, j FROM w UNION SELECT DISTINCT t, i FROM w) AS x",
    ] {
        let (fast, slow, plan) = both(&world, sql);
        assert!(plan.contains("GroupsExec"), "{sql}: {plan}");
        assert_eq!(fast, slow, "{sql}");
    }
    world.rows("SET ebbtide.fast_paths = true");
    let words = world.text("EXPLAIN SELECT DISTINCT i, j FROM w");
    assert!(words.contains("computes distinct rows for each i, j; groups beyond --memory go to disk"), "{words}");
}

#[test]
fn other_groups_are_left_to_datafusion() {
    let world = world();
    for sql in [
        "SELECT i, j, f, count(*) AS n FROM w GROUP BY i, j, f",
        "SELECT b, t, s, j % 2, count(*) AS n FROM w GROUP BY b, t, s, j % 2, i % 2",
        "SELECT j, sum(f) AS n FROM w WHERE f > 0 GROUP BY j",
        "SELECT j, count(f) AS n FROM w GROUP BY j",
        "SELECT j, count(*) FILTER (WHERE b) AS n FROM w GROUP BY j",
        "SELECT t, j % 4 AS k, count(*) AS n FROM w GROUP BY GROUPING SETS ((t), (j % 4))",
    ] {
        let (fast, slow, plan) = both(&world, sql);
        assert!(!plan.contains("GroupsExec"), "{sql}: {plan}");
        assert_eq!(sorted(fast), sorted(slow), "{sql}");
    }
    let sql = "SELECT count(*) AS n, sum(x.n * y.n) AS m FROM (SELECT j, count(*) AS n FROM w GROUP BY j) AS x
               FULL JOIN (SELECT i, count(*) AS n FROM w GROUP BY i) AS y ON x.j = y.i";
    let (fast, slow, plan) = both(&world, sql);
    assert!(!plan.contains("mode=Partitioned") || !plan.contains("GroupsExec"), "{plan}");
    assert_eq!(fast, slow);
}

/// Series in long runs, with an object, a text or nothing as their meta.
fn series() -> World {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION o WITH (timeField = 'time', metaField = 'm')");
    world.rows("CREATE COLLECTION p WITH (timeField = 'time', metaField = 's')");
    world.rows(
        "INSERT INTO o (time, m, x, t) SELECT to_timestamp_seconds(1704067200 + value / 7 * 60),
            CASE WHEN value % 7 > 0 THEN named_struct('host', 'host ' || (value % 7), 'rack', CASE WHEN value % 3 > 0 THEN 'r' || (value % 3) END) END,
            CASE WHEN value % 5 > 0 THEN value % 97 / 4.0 END, 't' || (value % 13)
         FROM generate_series(1, 40000)",
    );
    world.rows("INSERT INTO p (time, s, x) SELECT time, m.host, x FROM o WHERE m.host IS NULL OR m.host <> 'host 3'");
    world.rows("FLUSH");
    world.rows("INSERT INTO o (time, m, x) SELECT to_timestamp_seconds(1704067200 + value), named_struct('host', 'late', 'rack', 'r9'), value FROM generate_series(1, 300)");
    world
}

#[test]
fn texts_of_the_meta_are_grouped_by_number_whatever_is_computed() {
    let world = series();
    for sql in [
        "SELECT m.host, median(x) AS v FROM o GROUP BY m.host ORDER BY 1 NULLS FIRST",
        "SELECT s, median(x) AS v, stddev(x) AS d, count(DISTINCT x) AS n FROM p GROUP BY s ORDER BY s",
        "SELECT m.rack, m.host, median(x) AS v FROM o GROUP BY m.rack, m.host ORDER BY 1, 2",
        "SELECT m.host AS h, date_trunc('day', time) AS day, median(x) AS v FROM o GROUP BY h, day ORDER BY 1, 2",
        "SELECT m.host, median(x) FILTER (WHERE x > 3) AS v, count(*) FILTER (WHERE x > 3) AS n FROM o WHERE t <> 't4' GROUP BY m.host ORDER BY 1",
        "SELECT m.host, max(m.host) AS same, min(m.rack) AS r, median(x) AS v FROM o GROUP BY m.host ORDER BY 1",
        "SELECT m.rack AS r, x, corr(x, x) AS c, median(x) AS v FROM o GROUP BY r, x ORDER BY r, x LIMIT 40",
        "SELECT r, median(v) AS w, count(*) AS n FROM (SELECT m.rack AS r, m.host AS h, median(x) AS v FROM o GROUP BY r, h) AS y GROUP BY r ORDER BY r",
        "SELECT h, v, row_number() OVER (PARTITION BY h ORDER BY v) AS k FROM (SELECT m.host AS h, m.rack AS r, median(x) AS v FROM o GROUP BY h, r) AS y ORDER BY h, v, k",
        "SELECT count(*) AS n, sum(v) AS v FROM (SELECT m.host, median(x) AS v FROM o GROUP BY m.host HAVING median(x) > 1) AS y",
        "SELECT s, v, row_number() OVER (ORDER BY s) AS k FROM (SELECT s, median(x) AS v FROM p GROUP BY s) AS y ORDER BY s",
    ] {
        let (fast, slow, plan) = both(&world, sql);
        assert!(plan.contains("EncodeTextsExec") && plan.contains("DecodeTextsExec"), "{sql}: {plan}");
        assert!(fast.len() > 1 || sql.contains("HAVING"), "{sql}: {fast:?}");
        assert_eq!(fast, slow, "{sql}");
    }
    world.rows("SET ebbtide.fast_paths = true");
    let words = world.text("EXPLAIN SELECT m.host, median(x) FROM o GROUP BY m.host");
    assert!(words.contains("for each") && !words.contains("encodetexts"), "{words}");
}

#[test]
fn other_texts_keep_their_groups() {
    let world = series();
    for sql in [
        "SELECT t, median(x) AS v FROM o GROUP BY t ORDER BY t",
        "SELECT m.host || t AS h, median(x) AS v FROM o GROUP BY h ORDER BY h",
        "SELECT m.host, median(x) AS v FROM o WHERE m.host = 'late' GROUP BY m.host",
        "SELECT upper(m.host) AS h, median(x) AS v FROM o GROUP BY h ORDER BY h",
        "SELECT s, median(x) AS v FROM p WHERE time > '2024-01-02' GROUP BY s UNION ALL SELECT s, median(-x) AS v FROM p GROUP BY s ORDER BY s, v",
        "WITH RECURSIVE r AS (SELECT 0 AS n, CAST('' AS VARCHAR) AS h, CAST(0 AS DOUBLE) AS v UNION ALL
            SELECT r.n + 1, g.h, g.v FROM (SELECT s AS h, median(x) AS v FROM p GROUP BY s) AS g, r WHERE r.n < 3 AND r.h < g.h)
         SELECT count(*) AS n, sum(v) AS v, max(h) AS h FROM r",
        "SELECT m.host, first_value(x ORDER BY time, x) AS v FROM o GROUP BY m.host ORDER BY 1",
        "SELECT m.host, m.rack, median(x) AS v FROM o GROUP BY GROUPING SETS ((m.host), (m.rack)) ORDER BY 1, 2",
    ] {
        let (fast, slow, plan) = both(&world, sql);
        assert!(!plan.contains("EncodeTextsExec"), "{sql}: {plan}");
        assert_eq!(fast, slow, "{sql}");
    }
    let sql = "SELECT x.s, x.v, y.v AS w FROM (SELECT s, median(x) AS v FROM p GROUP BY s) AS x
               FULL JOIN (SELECT m.host AS host, median(x) AS v FROM o GROUP BY m.host) AS y ON x.s = y.host ORDER BY 1, 2, 3";
    let (fast, slow, plan) = both(&world, sql);
    assert!(!plan.contains("mode=Partitioned") || !plan.contains("EncodeTextsExec"), "{plan}");
    assert_eq!(fast, slow);
}

#[test]
fn texts_of_the_meta_are_grouped_by_number_with_little_memory_too() {
    let world = series();
    let sql = "SELECT count(*) AS n, sum(v) AS v, min(h) AS h, max(h) AS g
               FROM (SELECT m.host AS h, x, time, median(x) AS v FROM o GROUP BY m.host, x, time) AS y";
    let all = world.rows(sql);
    let mut spilled = 0;
    for megabytes in 2..14 {
        let settings =
            SessionSettings { memory_bytes: megabytes << 20, partitions: Some(2), ..SessionSettings::default() };
        let small = Session::with_settings(world.database.clone(), &settings).unwrap();
        // Some is needed even if files are used.
        let Ok(plan) = world.block_on(small.rows_as_json(&format!("EXPLAIN ANALYZE {sql}"))) else { continue };
        let plan = Value::Array(plan).to_string();
        assert!(plan.contains("EncodeTextsExec"), "{plan}");
        spilled += usize::from(counted(&plan, "spill_count").iter().any(|count| count != "0"));
        if let Ok(rows) = world.block_on(small.rows_as_json(sql)) {
            assert_eq!(rows, all, "{megabytes}");
        }
    }
    assert!(spilled > 0);
}

#[test]
fn many_texts_and_little_memory_go_to_datafusion() {
    let world = world();
    world.rows("CREATE COLLECTION big WITH (timeField = 'time', metaField = 's')");
    world.rows(
        "INSERT INTO big (time, s, id, half, text) SELECT to_timestamp_seconds(1704067200 + value), value % 3, value,
            CASE WHEN value % 4 > 0 THEN value / 2 END, 'text ' || (value % 100000) FROM generate_series(1, 300000)",
    );
    let sql = "SELECT count(*) AS n, sum(length(text)) AS m FROM (SELECT DISTINCT text FROM big) AS x";
    let (fast, slow, plan) = both(&world, sql);
    assert_eq!(counted(&plan, "handed_to_datafusion"), ["1"], "{plan}");
    assert_eq!(fast, slow);
    let sql = "SELECT half, count(*) AS n FROM big GROUP BY half ORDER BY n DESC, half LIMIT 3";
    let (fast, slow, plan) = both(&world, sql);
    assert_eq!(counted(&plan, "handed_to_datafusion"), ["0"], "{plan}");
    assert_eq!(fast, slow);
    for (megabytes, partitions) in [(24, 2), (28, 2), (14, 1), (44, 4)] {
        let settings = SessionSettings {
            memory_bytes: megabytes << 20,
            partitions: Some(partitions),
            ..SessionSettings::default()
        };
        let small = Session::with_settings(world.database.clone(), &settings).unwrap();
        for sql in [
            "SELECT count(*) AS n, count(id) AS i, sum(id) AS s, sum(half) AS h FROM (SELECT DISTINCT id, half FROM big) AS x",
            "SELECT count(*) AS n, sum(half) AS s, sum(x.n) AS rows FROM (SELECT half, count(*) AS n FROM big GROUP BY half) AS x",
        ] {
            let analyze = format!("EXPLAIN ANALYZE {sql}");
            let plan = Value::Array(world.block_on(small.rows_as_json(&analyze)).unwrap()).to_string();
            // The groups of the second statement fit.
            if plan.contains("GroupsExec") && sql.contains("DISTINCT") {
                assert_eq!(counted(&plan, "handed_to_datafusion"), ["1"], "{megabytes}: {sql}: {plan}");
            }
            assert_eq!(world.block_on(small.rows_as_json(sql)).unwrap(), world.rows(sql), "{megabytes}: {sql}");
        }
    }
}

#[test]
fn a_statement_that_needs_some_groups_or_fails_ends() {
    let world = world();
    let rows = world.rows("SELECT j, n FROM (SELECT j, count(*) AS n FROM w GROUP BY j) AS x LIMIT 3");
    assert_eq!(rows.len(), 3);
    let rows = world.rows("SELECT count(*) AS n FROM (SELECT j, count(*) AS n FROM w GROUP BY j LIMIT 5000) AS x");
    assert_eq!(rows, world.rows("SELECT 5000 AS n"));
    let error = world.error("SELECT DISTINCT 10 / (j - 500), s FROM w");
    assert!(error.to_string().to_lowercase().contains("divide"), "{error}");
    for _ in 0..2 {
        assert_eq!(world.rows("SELECT count(DISTINCT j) AS n FROM w"), world.rows("SELECT 5001 AS n"));
    }
}
