//! The first rows of each partition: with the filter below the sort they are those that DataFusion finds without it.

use crate::support::{World, both, counted};
use ebbtide_query::{Session, SessionSettings};
use serde_json::Value;

/// Rows in the order of time and in no order, with nulls, both zeros, NaN, infinities, the ends of integers and texts that begin alike.
fn world() -> World {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 'time', metaField = 's')");
    world.rows(
        "INSERT INTO w (time, s, id, i, f, r, t, b, big)
         SELECT to_timestamp_seconds(1704067200 + value / 40 * 60), CASE WHEN value % 40 > 0 THEN 's' || (value % 40) END, value,
            CASE value % 7 WHEN 0 THEN NULL WHEN 1 THEN -9223372036854775808 WHEN 2 THEN 9223372036854775807 ELSE value * 7919 % 10007 - 5000 END,
            CASE value % 9 WHEN 0 THEN NULL WHEN 1 THEN CAST('NaN' AS DOUBLE) WHEN 2 THEN CAST('-inf' AS DOUBLE) WHEN 3 THEN -0.0
                WHEN 4 THEN 0.0 WHEN 5 THEN CAST('inf' AS DOUBLE) ELSE value * 7919 % 10007 / 8.0 - 600 END,
            CAST(value * 31 % 997 AS REAL),
            CASE value % 6 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'a text ' || (value * 7919 % 50) END,
            CASE WHEN value % 5 > 0 THEN value % 2 = 0 END, value * 104729 % 1000003
         FROM generate_series(1, 20000)",
    );
    world.rows("FLUSH");
    world.rows("INSERT INTO w (time, s, id, i, f) SELECT to_timestamp_seconds(1704067200 + value), 's1', 50000 + value, -6000, -700.5 FROM generate_series(1, 50)");
    world.rows("DELETE FROM w WHERE s = 's3'");
    world
}

fn sorted(rows: Vec<Value>) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(Value::to_string).collect();
    rows.sort();
    rows
}

fn dropped(plan: &str) -> u64 {
    let number = |text: &String| {
        let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
        let factor = if unit == "K" { 1000.0 } else { 1.0 };
        (number.parse::<f64>().unwrap() * factor) as u64
    };
    counted(plan, "rows_dropped").iter().map(number).sum()
}

#[test]
fn first_rows_by_values_of_every_type_are_those_of_datafusion() {
    let world = world();
    let keys = [
        "i",
        "f",
        "r",
        "t",
        "b",
        "big",
        "id",
        "time",
        "CAST(time AS DATE)",
        "CAST(i % 100 AS SMALLINT)",
        "-f",
        "abs(f)",
    ];
    let partitions =
        ["PARTITION BY s", "PARTITION BY s, b", "PARTITION BY id % 7, t", "PARTITION BY CAST(time AS DATE)", ""];
    for (at, by) in keys.iter().enumerate() {
        for (shift, order) in ["", "DESC", "NULLS FIRST", "DESC NULLS LAST"].iter().enumerate() {
            let partition = partitions[(at + shift) % partitions.len()];
            // A partition that is sorted by one of its own columns has rows in any order.
            if partition.split([' ', ',']).any(|column| column == *by)
                || by.contains("DATE") && partition.contains("DATE")
            {
                continue;
            }
            let sql = format!(
                "SELECT s, id, n FROM (SELECT *, row_number() OVER ({partition} ORDER BY {by} {order}, id) AS n FROM w) AS x WHERE n <= 3"
            );
            let (fast, slow, plan) = both(&world, &sql);
            assert!(plan.contains("TopKFilterExec: k=3"), "{sql}: {plan}");
            // Too many truth values and dates are equal to the third.
            assert!(*by == "b" || by.contains("DATE") || dropped(&plan) > 5_000, "{sql}: {plan}");
            assert!(fast.len() >= 3, "{sql}");
            assert_eq!(sorted(fast), sorted(slow), "{sql}");
        }
    }
}

#[test]
fn numbers_and_ranks_are_bounded_in_every_form() {
    let world = world();
    let number = "row_number() OVER (PARTITION BY s ORDER BY i, id)";
    for (sql, k) in [
        (format!("SELECT s, id FROM (SELECT *, {number} AS n FROM w) AS x WHERE n < 3"), 2),
        (format!("SELECT s, id FROM (SELECT *, {number} AS n FROM w) AS x WHERE 4 >= n"), 4),
        (format!("SELECT s, id FROM (SELECT *, {number} AS n FROM w) AS x WHERE n = 5"), 5),
        (format!("SELECT s, id FROM (SELECT *, {number} AS n FROM w) AS x WHERE n BETWEEN 2 AND 6 AND f > 0"), 6),
        (format!("SELECT s, id FROM (SELECT s, id, f, {number} AS n FROM w) AS x WHERE f < 0 AND n <= 7 ORDER BY s, id LIMIT 20"), 7),
        (format!("SELECT s, id, f FROM w QUALIFY {number} <= 2"), 2),
        ("SELECT s, id FROM (SELECT *, rank() OVER (PARTITION BY s ORDER BY r) AS n FROM w) AS x WHERE n <= 4".to_owned(), 4),
        ("SELECT s, id FROM w QUALIFY rank() OVER (PARTITION BY s ORDER BY b DESC) = 1".to_owned(), 1),
        (format!("SELECT s, id, m FROM (SELECT *, {number} AS n, rank() OVER (PARTITION BY s ORDER BY i, id) AS m FROM w) AS x WHERE m <= 2"), 2),
        (
            format!(
                "SELECT s, id, total FROM (SELECT *, {number} AS n FROM (SELECT *, sum(id) OVER (PARTITION BY s ORDER BY id) AS total FROM w) AS y) AS x WHERE n <= 2"
            ),
            2,
        ),
        (
            "SELECT a.s, a.n, b.id FROM (SELECT s, id, row_number() OVER (PARTITION BY s ORDER BY time DESC, id) AS n FROM w) AS a
             JOIN w AS b ON a.id = b.id WHERE a.n <= 3"
                .to_owned(),
            3,
        ),
        (format!("SELECT s, id FROM (SELECT *, {number} AS n FROM w WHERE id < 0) AS x WHERE n <= 3"), 3),
        (format!("SELECT s, id FROM (SELECT *, {number} AS n FROM w) AS x WHERE n <= 100000"), 100_000),
    ] {
        let (fast, slow, plan) = both(&world, &sql);
        assert!(plan.contains(&format!("TopKFilterExec: k={k},")), "{sql}: {plan}");
        assert_eq!(sorted(fast), sorted(slow), "{sql}");
    }
    world.rows("SET ebbtide.fast_paths = true");
    let words =
        world.text("EXPLAIN SELECT s, id FROM w QUALIFY row_number() OVER (PARTITION BY s ORDER BY f DESC) <= 3");
    assert!(words.contains("leaves out most rows that are not among the first 3 of each s"), "{words}");
}

#[test]
fn what_needs_other_rows_gets_them() {
    let world = world();
    for window in [
        "SELECT s, id, n FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY i, id) AS n FROM w) AS x WHERE n > 3 AND n < 6 OR id = 7",
        "SELECT s, id FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY i, id) AS n FROM w) AS x WHERE n <> 3",
        "SELECT s, id FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY i, id) AS n FROM w) AS x WHERE n <= 0",
        "SELECT s, id FROM (SELECT *, dense_rank() OVER (PARTITION BY s ORDER BY id / 1000) AS n FROM w) AS x WHERE n <= 3",
        "SELECT s, id, l FROM (SELECT *, row_number() OVER p AS n, lead(id) OVER p AS l FROM w WINDOW p AS (PARTITION BY s ORDER BY id DESC)) AS x WHERE n <= 2",
        "SELECT s, id, c FROM (SELECT *, row_number() OVER p AS n, count(*) OVER (PARTITION BY s) AS c FROM w WINDOW p AS (PARTITION BY s ORDER BY id DESC)) AS x WHERE n <= 2",
        "SELECT f, id FROM (SELECT *, row_number() OVER (PARTITION BY f ORDER BY i, id) AS n FROM w) AS x WHERE n <= 2",
        "SELECT s, id FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY id) AS n, row_number() OVER (PARTITION BY b ORDER BY id DESC) AS m FROM w) AS x WHERE n <= 2",
        "SELECT s, id FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY id) AS n, row_number() OVER (PARTITION BY b ORDER BY id DESC) AS m FROM w) AS x WHERE m <= 2",
        "SELECT s, id FROM (SELECT *, row_number() OVER (PARTITION BY time ORDER BY big) AS n FROM w) AS x WHERE n <= 2",
        "SELECT s, id FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY id) AS n FROM (SELECT * FROM w ORDER BY id LIMIT 300) AS y) AS x WHERE n <= 2",
        "SELECT s, id FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY CAST(i % 9 AS DECIMAL(9, 2)), id) AS n FROM w) AS x WHERE n <= 2",
    ] {
        let (fast, slow, _) = both(&world, window);
        assert_eq!(sorted(fast), sorted(slow), "{window}");
    }
    // Doubles whose partitions differ by the sign of zero, and values that are computed twice and differ.
    for window in [
        "PARTITION BY f ORDER BY i, id",
        "PARTITION BY s ORDER BY random()",
        "PARTITION BY CAST(3 * random() AS INT) ORDER BY id",
    ] {
        let (_, _, plan) = both(&world, &format!("SELECT s, id FROM w QUALIFY row_number() OVER ({window}) <= 2"));
        assert!(!plan.contains("TopKFilterExec"), "{plan}");
    }
}

#[test]
fn more_texts_than_have_numbers_and_little_memory_let_all_rows_pass() {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 'time', metaField = 's')");
    world.rows(
        "INSERT INTO w (time, s, id, t) SELECT to_timestamp_seconds(1704067200 + value), value % 3, value, 't' || (value % 70000)
         FROM generate_series(1, 200000)",
    );
    world.rows("FLUSH");
    let sql = "SELECT t, id FROM w QUALIFY row_number() OVER (PARTITION BY t ORDER BY id DESC) = 1";
    let (fast, slow, plan) = both(&world, sql);
    assert!(plan.contains("TopKFilterExec"), "{plan}");
    assert_eq!(fast.len(), 70_000);
    assert_eq!(sorted(fast), sorted(slow));

    // The partitions take more than there is; the sort uses files.
    let sql = "SELECT count(*) AS n, sum(id) AS ids FROM (SELECT id FROM w QUALIFY row_number() OVER (PARTITION BY id % 150000 ORDER BY id DESC) = 1) AS x";
    let all = world.text(sql);
    assert_eq!(all, r#"[{"n":150000,"ids":18750075000}]"#);
    let settings = SessionSettings { memory_bytes: 64 << 20, ..SessionSettings::default() };
    let session = Session::with_settings(world.database.clone(), &settings).unwrap();
    let limited = world.block_on(session.rows_as_json(sql)).unwrap();
    assert_eq!(Value::Array(limited).to_string(), all);
}
