//! Statements that DataFusion 55.2 answers wrongly: here they are right, or refused.

use crate::support::World;
use serde_json::{Value, json};

/// Forty measurements, half an hour apart, of three series; some have no `a`. And eight of them again in `w2`.
fn world() -> World {
    let world = World::at("2024-06-01T00:00:00Z");
    for (name, rows) in [("w", "true"), ("w2", "value < 3 OR value BETWEEN 10 AND 14")] {
        world.rows(&format!("CREATE COLLECTION {name} WITH (timeField = 'time', metaField = 's')"));
        world.rows(&format!(
            "INSERT INTO {name} (time, s, a, c)
             SELECT to_timestamp_seconds(1704067200 + value * 1800), substr('xyz', value % 3 + 1, 1),
                    CASE WHEN value % 7 <> 3 THEN value END, CASE WHEN value % 5 > 0 THEN 't' || (value % 5 - 1) END
             FROM generate_series(0, 39) WHERE {rows}"
        ));
    }
    world
}

/// The rows with and without the operators of this crate, which are the same.
fn rows(world: &World, sql: &str) -> Vec<Value> {
    world.rows("SET ebbtide.fast_paths = true");
    let fast = world.rows(sql);
    world.rows("SET ebbtide.fast_paths = false");
    assert_eq!(fast, world.rows(sql), "{sql}");
    fast
}

#[test]
fn a_sort_above_an_offset_keeps_all_rows() {
    let world = world();
    for (sql, count) in [
        ("SELECT a FROM (SELECT a FROM w LIMIT 4 OFFSET 3) AS x ORDER BY a", 4),
        ("SELECT row_number() OVER (ORDER BY a) AS r FROM (SELECT a FROM w LIMIT 4 OFFSET 3) AS x", 4),
        (
            "SELECT a FROM (SELECT a FROM w LIMIT 2 OFFSET 3) AS x UNION ALL SELECT a FROM (SELECT a FROM w2 LIMIT 2 OFFSET 3) AS y \
             ORDER BY a",
            4,
        ),
        ("SELECT unnest(array_agg(a ORDER BY a)) AS a FROM (SELECT a FROM w LIMIT 4 OFFSET 3) AS x", 4),
        ("SELECT c FROM (SELECT DISTINCT c FROM w LIMIT 3 OFFSET 2) AS x ORDER BY c", 3),
        ("SELECT n FROM (SELECT c, count(*) AS n FROM w GROUP BY c LIMIT 3 OFFSET 2) AS x ORDER BY n", 3),
        ("SELECT time FROM w ORDER BY time LIMIT 4 OFFSET 38", 2),
    ] {
        assert_eq!(world.rows(sql).len(), count, "{sql}");
        world.rows("SET ebbtide.fast_paths = false");
        assert_eq!(world.rows(sql).len(), count, "{sql}");
        world.rows("SET ebbtide.fast_paths = true");
    }
    let page =
        rows(&world, "SELECT a FROM (SELECT a FROM w ORDER BY time LIMIT 4 OFFSET 3) AS x ORDER BY a DESC NULLS LAST");
    assert_eq!(page, [json!({"a": 6}), json!({"a": 5}), json!({"a": 4}), json!({"a": null})]);
    let sql =
        "SELECT a FROM (SELECT a, s FROM w ORDER BY s, time LIMIT 5 OFFSET 20) AS x ORDER BY a DESC LIMIT 2 OFFSET 1";
    assert_eq!(rows(&world, sql), [json!({"a": 28}), json!({"a": 25})]);
}

#[test]
fn sets_of_groups_over_rows_in_order_have_each_group_once() {
    let world = world();
    let totals = rows(
        &world,
        "SELECT k, count(*) AS n FROM (SELECT 'a' AS k, a FROM w UNION ALL SELECT 'a' AS k, a FROM w2) AS x GROUP BY ROLLUP (k) \
         ORDER BY k",
    );
    assert_eq!(totals, [json!({"k": "a", "n": 48}), json!({"k": null, "n": 48})]);
    let sql = "SELECT time FROM (SELECT s, time, count(*) AS n FROM (SELECT * FROM w2 ORDER BY time LIMIT 5) AS x \
               GROUP BY GROUPING SETS ((s, time), (time))) AS y ORDER BY time";
    let times = rows(&world, sql);
    assert_eq!(times.len(), 10);
    assert!(times.is_sorted_by_key(|row| row["time"].as_str().unwrap().to_owned()), "{times:?}");
}

#[test]
fn the_first_groups_are_chosen_after_all_rows_are_grouped() {
    let world = world();
    world.rows("SET datafusion.execution.target_partitions = 4");
    world.rows("SET datafusion.execution.batch_size = 3");
    let sql = "SELECT DISTINCT s FROM (SELECT * FROM w ORDER BY s, time LIMIT 30) AS q ORDER BY s LIMIT 2";
    assert_eq!(rows(&world, sql), [json!({"s": "x"}), json!({"s": "y"})]);
    let sql = "SELECT DISTINCT s, count(*) OVER (PARTITION BY s) AS n FROM w LIMIT 30";
    assert_eq!(world.rows(sql).len(), 3);
}

#[test]
fn a_limit_leaves_windows_the_rows_ahead() {
    let world = world();
    let sql = "SELECT sum(x) OVER (ORDER BY time ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING) AS y
               FROM (SELECT time, sum(a) OVER (ORDER BY time ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING) AS x FROM w) AS i
               ORDER BY time LIMIT 1";
    assert_eq!(rows(&world, sql), [json!({"y": 12})]);
    let sql = "SELECT lead(a) IGNORE NULLS OVER (ORDER BY time ROWS UNBOUNDED PRECEDING) AS l
               FROM w WHERE time >= '2024-01-01T01:00:00Z' ORDER BY time LIMIT 1";
    assert_eq!(rows(&world, sql), [json!({"l": 4})]);
}

#[test]
fn what_would_be_wrong_is_refused() {
    let world = world();
    for (sql, says) in [
        ("SELECT 1 FROM w WHERE a NOT IN (SELECT a FROM w2 WHERE w2.time < w.time)", "write NOT EXISTS"),
        ("SELECT 1 FROM w WHERE EXISTS (SELECT count(*) FROM w2 WHERE w2.time = w.time)", "EXISTS over an aggregate"),
        (
            "SELECT 1 FROM w WHERE EXISTS (SELECT 1 FROM w2 WHERE w2.s = w.s GROUP BY ROLLUP (w2.a))",
            "EXISTS over an aggregate",
        ),
        ("SELECT 1 FROM w WHERE 0 IN (SELECT count(*) FROM w2 WHERE w2.time = w.time)", "compare the count itself"),
        ("SELECT 1 FROM w WHERE EXISTS (SELECT 1 FROM w2 WHERE w2.s = w.s OFFSET 2)", "LIMIT or OFFSET within EXISTS"),
        (
            "SELECT 1 FROM w WHERE EXISTS (SELECT 1 FROM (SELECT * FROM w2 WHERE w2.s = w.s) AS l \
             JOIN (SELECT * FROM w2 ORDER BY a LIMIT 1) AS r ON l.a = r.a)",
            "LIMIT or OFFSET within EXISTS",
        ),
        ("SELECT s FROM w2 INTERSECT ALL SELECT s FROM w", "INTERSECT ALL"),
        ("SELECT s FROM w UNION (SELECT s FROM w2 EXCEPT ALL SELECT s FROM w)", "EXCEPT ALL"),
        ("SELECT 'abc' SIMILAR TO 'a%'", "write LIKE"),
        ("SELECT lead(a, 2) IGNORE NULLS OVER (ORDER BY time) FROM w", "over several rows with IGNORE NULLS"),
        ("SELECT lag(a, -2) IGNORE NULLS OVER (ORDER BY time) FROM w", "over several rows with IGNORE NULLS"),
        (
            "SELECT sum(a) OVER (ORDER BY time RANGE BETWEEN INTERVAL '-1 hour' PRECEDING AND CURRENT ROW) FROM w",
            "a negative distance",
        ),
        (
            "SELECT sum(a) OVER x FROM w WINDOW x AS (ORDER BY time RANGE BETWEEN CURRENT ROW AND INTERVAL '-1 day' FOLLOWING)",
            "a negative distance",
        ),
    ] {
        let error = world.error(sql);
        assert!(error.message().contains(says), "{sql}\n{error}");
    }
    for (sql, count) in [
        ("SELECT 1 AS x FROM w WHERE s NOT IN (SELECT s FROM w2 WHERE a > 12)", 14),
        ("SELECT 1 AS x FROM w WHERE time IN (SELECT max(time) FROM w2 WHERE w2.s = w.s)", 3),
        ("SELECT 1 AS x FROM w WHERE EXISTS (SELECT 1 FROM w2 WHERE w2.time = w.time LIMIT 1)", 8),
        ("SELECT 1 AS x FROM w WHERE EXISTS (SELECT s FROM w2 WHERE w2.s = w.s GROUP BY s HAVING count(*) > 2)", 26),
        ("SELECT 1 AS x FROM w WHERE (SELECT count(*) FROM w2 WHERE w2.time = w.time) = 0", 32),
        ("SELECT lag(a, 2) IGNORE NULLS OVER (ORDER BY time) AS x FROM w", 40),
        ("SELECT s FROM w INTERSECT SELECT s FROM w2", 3),
    ] {
        assert_eq!(world.rows(sql).len(), count, "{sql}");
    }
}

#[test]
fn subqueries_over_two_calls_of_a_table_function_are_two() {
    let world = World::at("2024-01-01T12:00:00Z");
    for statement in [
        "CREATE COLLECTION a WITH (timeField = 't', metaField = 's')",
        "CREATE COLLECTION b WITH (timeField = 't', metaField = 's')",
        "CREATE LADDER ON a (STEP '10 minutes' FOREVER, STEP '1 hour' FOREVER)",
        "INSERT INTO a (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'x', 1), ('2024-01-01T00:15:00Z', 'x', 2), ('2024-01-01T00:30:00Z', 'y', 3)",
        "INSERT INTO b (t, s, v) VALUES ('2024-01-01T00:00:00Z', 'x', 1)",
    ] {
        world.rows(statement);
    }
    for (one, other, counts) in [
        ("latest('a')", "latest('b')", (2, 1)),
        ("latest('b')", "latest('a')", (1, 2)),
        ("rollup('a', '10 minutes')", "rollup('a', '1 hour')", (3, 2)),
        ("latest('a')", "a", (2, 3)),
        ("generate_series(1, 3)", "generate_series(1, 5)", (3, 5)),
    ] {
        let lateral = |call: &str| if call.contains('(') { format!("LATERAL {call}") } else { call.to_owned() };
        for (one, other) in [(one.to_owned(), other.to_owned()), (lateral(one), lateral(other))] {
            let sql = format!("SELECT (SELECT count(*) FROM {one}) AS one, (SELECT count(*) FROM {other}) AS other");
            let expected = serde_json::json!([{"one": counts.0, "other": counts.1}]);
            assert_eq!(serde_json::Value::Array(world.rows(&sql)), expected, "{sql}");
        }
    }
    for (sql, expected) in [
        ("SELECT generate_series.value AS v FROM LATERAL generate_series(1, 2) ORDER BY v", "[{\"v\":1},{\"v\":2}]"),
        ("SELECT count(*) AS v FROM LATERAL LATEST('a') AS l", "[{\"v\":2}]"),
        (
            "SELECT (SELECT count(*) FROM LATERAL generate_series(a => 1, b => 3)) AS v,
                 (SELECT count(*) FROM LATERAL generate_series(a => 1, b => 5)) AS w",
            "[{\"v\":3,\"w\":5}]",
        ),
        (
            "SELECT count(*) AS v FROM a CROSS JOIN LATERAL latest(s) AS l WHERE a.s = 'none'",
            "collection 's' does not exist",
        ),
    ] {
        match world.try_rows(sql) {
            Ok(rows) => assert_eq!(serde_json::Value::Array(rows).to_string(), expected, "{sql}"),
            Err(error) => assert!(error.to_string().contains(expected), "{sql}: {error}"),
        }
    }
}

/// A hundred rows: half of them have a zero, and every second zero is -0.0.
fn zeros() -> World {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION z WITH (timeField = 'time', metaField = 's')");
    world.rows(
        "INSERT INTO z (time, s, k, d)
         SELECT to_timestamp_seconds(1704067200 + value), named_struct('id', 'a-name-of-many-letters-' || (value % 4), 'n', value % 2),
                value, CASE value % 4 WHEN 0 THEN 0.0 WHEN 1 THEN -0.0 ELSE value % 20 END
         FROM generate_series(0, 99)",
    );
    world.rows("FLUSH");
    world
}

#[test]
fn both_zeros_are_one_value_in_lists_and_cases() {
    let world = zeros();
    for (condition, count) in [
        ("d IN (0, 91, 92)", 50),
        ("d IN (0, 91, 92, 93)", 50),
        ("d IN (-0.0, 91, 92, 93, 94)", 50),
        ("d NOT IN (0, 91, 92, 93)", 50),
        ("d = 0 OR d = 91 OR d = 92 OR d = 93", 50),
        ("NOT (d = 0 OR d = 91 OR d = 92 OR d = 93)", 50),
        ("d IN (2, 3, 6, 7)", 20),
        ("CASE d WHEN 0 THEN true ELSE false END", 50),
        ("CASE d WHEN -0.0 THEN true WHEN 2 THEN true ELSE false END", 55),
        ("CASE 0.0 WHEN d THEN true ELSE false END", 50),
    ] {
        let sql = format!("SELECT count(*) AS n, count(*) FILTER (WHERE {condition}) AS m FROM z WHERE {condition}");
        assert_eq!(rows(&world, &sql), [json!({"n": count, "m": count})], "{condition}");
    }
    for (condition, count) in [
        ("k IN (SELECT max(k) FROM z WHERE d IN (0, 91, 92, 93))", 1),
        ("EXISTS (SELECT 1 FROM z AS y WHERE y.k = z.k AND y.d IN (0, 91, 92, 93))", 50),
        ("k < (SELECT count(*) FROM z WHERE d IN (0, 91, 92, 93))", 50),
    ] {
        assert_eq!(
            rows(&world, &format!("SELECT count(*) AS n FROM z WHERE {condition}")),
            [json!({ "n": count })],
            "{condition}"
        );
    }
    let groups = "SELECT d IN (0.0, 91.0, 92.0, 93.0) AS x, count(*) AS n FROM z GROUP BY ROLLUP (d IN (0.0, 91.0, 92.0, 93.0)) \
                  ORDER BY n, x";
    assert_eq!(
        rows(&world, groups),
        [json!({"x": false, "n": 50}), json!({"x": true, "n": 50}), json!({"x": null, "n": 100})]
    );
    world.rows("DELETE FROM z WHERE d IN (0, 91, 92, 93)");
    assert_eq!(rows(&world, "SELECT count(*) AS n FROM z"), [json!({"n": 50})]);
}

#[test]
fn both_zeros_are_one_value_to_sorts_within_aggregates() {
    let world = zeros();
    let four = "(VALUES (1, -0.0::double), (2, 0.0::double), (3, -0.0::double), (0, 0.0::double)) AS v(k, d)";
    for (sql, expected) in [
        (format!("SELECT array_agg(k ORDER BY d, k) AS x FROM {four}"), json!([0, 1, 2, 3])),
        (format!("SELECT array_agg(k ORDER BY d, k DESC, d) AS x FROM {four}"), json!([3, 2, 1, 0])),
        (format!("SELECT first_value(k ORDER BY d, k) AS x FROM {four}"), json!(0)),
        (
            format!(
                "SELECT k AS x FROM (SELECT DISTINCT ON (g) g, k FROM (SELECT 1 AS g, * FROM {four}) AS w ORDER BY g, d, k) AS y"
            ),
            json!(0),
        ),
        ("SELECT avg(DISTINCT d) AS x FROM z".to_owned(), json!(105.0 / 11.0)),
        (
            "SELECT avg(DISTINCT d) FILTER (WHERE count > 0) AS x FROM (SELECT d, 1 AS count FROM z) AS y".to_owned(),
            json!(105.0 / 11.0),
        ),
    ] {
        assert_eq!(rows(&world, &sql), [json!({ "x": expected })], "{sql}");
    }
    let median = "SELECT median(DISTINCT d) AS x FROM (VALUES (-0.0::double), (0.0::double), (5.0::double), (6.0::double)) AS v(d)";
    assert_eq!(rows(&world, median), [json!({"x": 5.0})]);
    assert_eq!(
        rows(&world, "SELECT avg(DISTINCT d) AS x, count(DISTINCT d) AS n FROM z"),
        [json!({"x": 105.0 / 11.0, "n": 11})]
    );
}

#[test]
fn sorts_may_repeat_a_key() {
    let world = world();
    for sql in [
        "SELECT DISTINCT ON (s) s, time FROM w ORDER BY s, time, s",
        "SELECT DISTINCT ON (s) s, time FROM w ORDER BY s, s, time, time DESC",
    ] {
        let first = ["2024-01-01T00:00:00Z", "2024-01-01T00:30:00Z", "2024-01-01T01:00:00Z"];
        let expected: Vec<Value> =
            ["x", "y", "z"].into_iter().zip(first).map(|(s, time)| json!({"s": s, "time": time})).collect();
        assert_eq!(rows(&world, sql), expected, "{sql}");
    }
    let lists = rows(
        &world,
        "SELECT s, array_agg(a ORDER BY a DESC, a) AS x FROM w2 WHERE a IS NOT NULL GROUP BY s ORDER BY s",
    );
    assert_eq!(
        lists,
        [json!({"s": "x", "x": [12, 0]}), json!({"s": "y", "x": [13, 1]}), json!({"s": "z", "x": [14, 11, 2]})]
    );
}

#[test]
fn values_that_repeat_in_a_subquery_are_looked_for_once() {
    let world = zeros();
    let plan = world.text("EXPLAIN PLAN SELECT count(*) FROM z WHERE s.n IN (SELECT s.n FROM z WHERE k > 2)");
    let (_, below) = plan.split_once("Semi").unwrap_or_else(|| panic!("{plan}"));
    assert!(below.contains("AggregateExec"), "{plan}");
    for (sql, n) in [
        ("SELECT count(*) AS n FROM z WHERE s.n IN (SELECT s.n FROM z WHERE k > 2)", 100),
        ("SELECT count(*) AS n FROM z WHERE s.n NOT IN (SELECT s.n FROM z WHERE k % 2 = 0)", 50),
        ("SELECT count(*) AS n FROM z WHERE k NOT IN (SELECT nullif(k, 3) FROM z WHERE k < 9)", 0),
        ("SELECT count(*) AS n FROM z AS a WHERE EXISTS (SELECT 1 FROM z AS b WHERE b.k % 3 = a.k AND b.k > 5)", 3),
        (
            "SELECT count(*) AS n FROM z AS a WHERE NOT EXISTS (SELECT 1 FROM z AS b WHERE b.k % 3 = a.k AND b.k > 5)",
            97,
        ),
    ] {
        assert_eq!(rows(&world, sql), [json!({ "n": n })], "{sql}");
    }
}

#[test]
fn distinct_objects_are_counted_in_little_memory() {
    let world = zeros();
    let by_hour = "SELECT count(*) AS bins, sum(n) AS n, sum(m) AS m
                   FROM (SELECT k % 25 AS bin, count(DISTINCT s) AS n, median(k) AS m FROM z GROUP BY 1) AS x";
    assert_eq!(rows(&world, by_hour), [json!({"bins": 25, "n": 100, "m": 1237.5})]);
    let nulls = "SELECT count(DISTINCT CASE WHEN k > 1 THEN s END) AS n, count(DISTINCT [k % 3]) AS l, sum(k) AS k FROM z WHERE k < 3";
    assert_eq!(rows(&world, nulls), [json!({"n": 1, "l": 3, "k": 3})]);
}

#[test]
fn a_comparison_that_no_meta_can_have_is_a_mistake_of_the_statement() {
    let world = zeros();
    let error = world.error("SELECT count(*) FROM z WHERE s.id > 3");
    assert_eq!(error.code(), ebbtide::ttl::Code::BadValue);
    assert!(error.message().contains("Cannot cast string 'a-name-of-many-letters-"), "{}", error.message());
}
