//! Aggregates of many forms that the engine answers: the same results as from the rows.

use crate::support::{World, time};
use serde_json::{Value, json};

/// The queries run for every mix. `{w}` is the collection, or the same rows behind a filter that reads them all.
const QUERIES: [&str; 14] = [
    "SELECT count(*) AS n, count(d) AS c, count(i) AS ci, count(t) AS ct FROM {w}",
    "SELECT min(d) AS a, max(d) AS b, avg(d) AS c, sum(d) AS d FROM {w}",
    "SELECT min(i) AS a, max(i) AS b, avg(i) AS c, sum(i) AS d FROM {w}",
    "SELECT s, count(*) AS c, min(d) AS a, max(i) AS b, avg(i) AS e, avg(d) AS f FROM {w} GROUP BY s",
    "SELECT s, count(d) AS a, sum(i) AS b FROM {w} GROUP BY s",
    "SELECT upper(s.region) AS r, max(d) AS a, sum(d) AS b, count(*) AS c FROM {w} GROUP BY upper(s.region)",
    "SELECT date_bin(INTERVAL '2 hours', t) AS h, max(d) AS a, avg(d) AS b, count(i) AS c FROM {w} GROUP BY h",
    "SELECT date_trunc('hour', t) AS h, s, min(d) AS a, sum(i) AS b FROM {w} GROUP BY h, s",
    "SELECT date_bin(INTERVAL '90 minutes', t) AS h, count(*) AS a FROM {w} GROUP BY h",
    "SELECT date_bin(INTERVAL '1 day', t, TIMESTAMP '2024-01-01T05:00:00Z') AS h, count(*) AS a FROM {w} GROUP BY h",
    "SELECT s, max(d) AS a FROM {w} WHERE s.region = 'north' AND t >= '2024-01-01T01:20:00Z'
         AND t < '2024-01-01T04:00:00Z' GROUP BY s",
    "SELECT DISTINCT s FROM {w}",
    "SELECT s, count(d) AS a FROM {w} GROUP BY s UNION ALL SELECT s, sum(i) AS a FROM {w} GROUP BY s",
    "SELECT x.n AS n, y.a AS a FROM (SELECT s.name AS n, count(*) AS c FROM {w} GROUP BY n) AS x
         JOIN (SELECT s.name AS n, sum(d) AS a FROM {w} GROUP BY n) AS y ON x.n = y.n",
];

/// All except the one whose bins are not counted from the epoch.
const ANSWERED: usize = QUERIES.len() - 1;

/// Sorted rows, with numbers without the digits that depend on the order of additions.
fn comparable(rows: Vec<Value>) -> Vec<String> {
    let rounded = |value: Value| match value.as_f64() {
        Some(number) if value.is_f64() => json!(format!("{number:.9e}")),
        _ => value,
    };
    let row = |row: Value| match row {
        Value::Object(cells) => cells.into_iter().map(|(k, v)| (k, rounded(v))).collect::<Value>().to_string(),
        other => other.to_string(),
    };
    let mut rows: Vec<String> = rows.into_iter().map(row).collect();
    rows.sort();
    rows
}

fn explained(w: &World, sql: &str) -> String {
    w.rows(&format!("EXPLAIN ANALYZE {sql}")).iter().map(|row| row["plan"].as_str().unwrap()).collect()
}

/// The last lines of EXPLAIN ANALYZE.
fn hidden(plan: &str) -> String {
    plan[plan.rfind("buckets_hidden_by_ttl=").unwrap()..].to_owned()
}

/// The number of queries that the engine answers; all must return the same as from the rows.
fn compare(w: &World) -> usize {
    let mut answered = 0;
    for query in QUERIES {
        let (asked, read) =
            (query.replace("{w}", "w"), query.replace("{w}", "(SELECT * FROM w WHERE d IS NULL OR d * 0 <> 7) AS w"));
        assert_eq!(comparable(w.rows(&asked)), comparable(w.rows(&read)), "{asked}");
        let (asked, read) = (explained(w, &asked), explained(w, &read));
        assert!(!read.contains("EngineAggregateExec"), "{read}");
        answered += usize::from(asked.contains("EngineAggregateExec") && asked.contains("buckets_known="));
        // Of one side of a join, the engine leaves out metas that the other side does not have.
        if !query.contains("JOIN") {
            assert_eq!(hidden(&asked), hidden(&read), "{asked}\n{read}");
        }
    }
    answered
}

/// Three sensors and one without a name, one row per minute from `from` on; a third of the doubles and some metas are
/// null.
fn insert(w: &World, from: &str, minutes: u32) {
    w.rows(&format!(
        "INSERT INTO w (t, s, d, i)
         SELECT t, named_struct('name', name, 'region', region),
                CASE WHEN m % 3 = 0 THEN NULL ELSE m * 0.37 - 40 END, m * m - 500
         FROM (SELECT value AS t, CAST(date_part('epoch', value) AS BIGINT) / 60 % 400 AS m FROM generate_series(
                   TIMESTAMP '{from}', TIMESTAMP '{from}' + INTERVAL '{minutes} minutes', INTERVAL '1 minute')),
              (VALUES ('a', 'north'), ('b', 'south'), ('c', 'north'), (NULL, 'south')) AS sensors (name, region)"
    ));
}

fn world(options: &str) -> World {
    let w = World::at("2024-01-01T12:00:00Z");
    w.rows(&format!("CREATE COLLECTION w WITH (timeField = 't', metaField = 's'{options})"));
    insert(&w, "2024-01-01T00:00:00", 400);
    w
}

#[test]
fn what_the_directory_answers_is_what_the_rows_give() {
    for options in ["", ", precision = 'ns'", ", granularity = 'minutes'"] {
        let w = world(options);
        assert_eq!(compare(&w), ANSWERED, "all is in memory");
        w.rows("FLUSH");
        assert_eq!(compare(&w), ANSWERED, "{options}");
        // Open and sealed, with the same buckets in both.
        insert(&w, "2024-01-01T05:00:30", 200);
        assert_eq!(compare(&w), ANSWERED);
        w.rows("FLUSH");
        w.rows("DELETE FROM w WHERE s.name = 'a' AND i > 20000");
        assert_eq!(compare(&w), ANSWERED);
        w.rows("DELETE FROM w WHERE t < '2024-01-01T00:30:00Z'");
        w.rows("COMPACT w");
        assert_eq!(compare(&w), ANSWERED);
        // Cut-offs inside buckets, and after all of them.
        w.rows("CREATE TTL INDEX north ON w (t) EXPIRE AFTER 9 HOURS WHERE s.region = 'north'");
        w.rows("ALTER COLLECTION w EXPIRE AFTER 11 HOURS");
        for now in ["2024-01-01T12:20:00Z", "2024-01-01T14:59:59.999Z", "2024-01-02T12:00:00Z"] {
            w.set(now);
            compare(&w);
        }
    }
}

#[test]
fn groups_without_a_value_have_no_mean_sum_or_bound() {
    let w = World::at("2024-01-01T12:00:00Z");
    w.rows("CREATE COLLECTION w WITH (timeField = 't', metaField = 's')");
    w.rows(
        "INSERT INTO w (t, s, d, i)
         SELECT value, CASE WHEN n % 2 = 0 THEN 'a' ELSE 'b' END, CASE WHEN n % 2 = 0 THEN 1.5 END,
                CASE WHEN n % 2 = 0 THEN 3 END
         FROM (SELECT value, CAST(date_part('epoch', value) AS BIGINT) AS n FROM generate_series(
                   TIMESTAMP '2024-01-01T00:00:00', TIMESTAMP '2024-01-01T00:01:00', INTERVAL '1 second'))",
    );
    w.rows("FLUSH");
    let aggregates = "avg(d) AS ad, avg(i) AS ai, sum(d) AS sd, sum(i) AS si, min(d) AS mind, max(i) AS maxi,
                      stddev(d) AS dev, var(i) AS var, count(d) AS c";
    for aggregates in
        [aggregates, "avg(d) AS ad, avg(i) AS ai, sum(d) AS sd, sum(i) AS si, min(d) AS mind, max(i) AS maxi"]
    {
        for (key, condition) in [("s", ""), ("upper(s)", ""), ("upper(s)", " WHERE s = 'b'"), ("1", " WHERE s = 'b'")] {
            let sql = format!("SELECT {key} AS k, {aggregates} FROM {{w}}{condition} GROUP BY k ORDER BY k");
            for sql in
                [sql.clone(), format!("SELECT * FROM ({sql}) AS x UNION ALL SELECT * FROM ({sql}) AS y ORDER BY k")]
            {
                let read = sql.replace("{w}", "(SELECT * FROM w WHERE d IS NULL OR d * 0 <> 7) AS w");
                assert_eq!(w.text(&sql.replace("{w}", "w")), w.text(&read), "{sql}");
            }
        }
    }
    let means = "SELECT upper(s) AS k, avg(d) AS v FROM w GROUP BY k";
    assert_eq!(w.text(&format!("SELECT sum(v) AS s FROM ({means}) AS x")), r#"[{"s":1.5}]"#);
    assert_eq!(w.text(&format!("{means} HAVING avg(d) IS NULL")), r#"[{"k":"B","v":null}]"#);
}

#[test]
fn other_instants_and_years_before_the_epoch_are_answered_alike() {
    let w = world("");
    insert(&w, "1931-05-01T22:10:00", 300);
    w.rows("FLUSH");
    assert_eq!(compare(&w), ANSWERED);
    w.rows("ALTER COLLECTION w EXPIRE AFTER 2 HOURS");
    let sql = "SELECT count(d) AS n, sum(i) AS s FROM w";
    for now in ["2024-01-01T02:30:00Z", "2024-01-01T07:30:00Z"] {
        assert!(time(now) < time("2024-01-01T12:00:00Z"));
        let read = format!("{sql} WHERE d IS NULL OR d * 0 <> 7");
        assert_eq!(w.text_at(now, sql), w.text_at(now, &read));
    }
}

#[test]
fn sums_that_overflow_are_errors_and_numbers_that_are_none_are_left_to_the_rows() {
    let w = world("");
    w.rows("FLUSH");
    let twice = |sql: &str| format!("{sql} UNION ALL {sql}");
    let is_known = |sql: &str| {
        let (whole, part) = (explained(&w, sql), explained(&w, &twice(sql)));
        [whole.contains("buckets_known="), part.contains("buckets_known=")]
    };
    let (sum, max, count) = ("SELECT sum(i) AS a FROM w", "SELECT max(d) AS a FROM w", "SELECT count(d) AS a FROM w");
    assert_eq!([sum, max, count].map(is_known), [[true; 2]; 3]);
    w.rows(
        "INSERT INTO w (t, s, d, i) SELECT value,
             named_struct('name', 'z', 'region', 'far'), CAST('NaN' AS DOUBLE), 9223372036854775000
         FROM generate_series(TIMESTAMP '2024-01-01T10:00:00', TIMESTAMP '2024-01-01T10:09:00', INTERVAL '1 minute')",
    );
    w.rows("FLUSH");
    assert_eq!([max, count].map(is_known), [[false; 2], [true; 2]]);
    for sql in [
        sum,
        &twice(sum),
        "SELECT s, sum(i) AS a FROM w GROUP BY s",
        "SELECT sum(i) AS a FROM w WHERE d IS NULL OR d * 0 <> 7",
    ] {
        assert!(w.error(sql).message().starts_with("sum: overflow: "), "{sql}");
    }
    assert!(!explained(&w, "SELECT s, min(d) AS a FROM w GROUP BY s").contains("buckets_known="));
    let mean = "SELECT avg(i) AS a FROM w";
    for sql in [max, count, mean].into_iter().flat_map(|sql| [sql.to_owned(), twice(sql)]) {
        let read = sql.replace("FROM w", "FROM (SELECT * FROM w WHERE d IS NULL OR d * 0 <> 7) AS w");
        assert_eq!(comparable(w.rows(&sql)), comparable(w.rows(&read)), "{sql}");
    }
    w.rows("ALTER COLLECTION w EXPIRE AFTER 7 HOURS");
    for sql in [max, mean] {
        let read = sql.replace("FROM w", "FROM (SELECT * FROM w WHERE d IS NULL OR d * 0 <> 7) AS w");
        assert_eq!(hidden(&explained(&w, sql)), hidden(&explained(&w, &read)), "{sql}");
    }
}

#[test]
fn what_the_directory_does_not_hold_is_left_to_the_rows() {
    let w = world("");
    w.rows("FLUSH");
    for sql in [
        "SELECT count(DISTINCT d) AS a FROM w",
        "SELECT sum(d) FILTER (WHERE i > 3) AS a FROM w",
        "SELECT min(t) AS a FROM w",
        "SELECT sum(d + 1) AS a FROM w",
        "SELECT count(s) AS a FROM w",
        "SELECT stddev(d) AS a FROM w",
        "SELECT max(d) AS a FROM w WHERE i > 3",
        "SELECT date_bin(INTERVAL '1 month', t) AS h, max(d) AS a FROM w GROUP BY h",
        "SELECT d AS h, max(i) AS a FROM w GROUP BY h",
        "SELECT s, count(i) AS a FROM w GROUP BY ROLLUP (s)",
    ] {
        let plan = explained(&w, sql);
        assert!(!plan.contains("EngineAggregateExec"), "{plan}");
    }
}
