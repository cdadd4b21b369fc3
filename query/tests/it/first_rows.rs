//! `ORDER BY ... LIMIT` reads only buckets that may contain the first rows, and returns what reading everything returns.

use crate::support::{World, both};

/// A measurement a minute for 28 days, of four series. Values rise with the time, but for nulls, NaN, infinities and both zeros in
/// some hours; some measurements are deleted, and the last ones are in memory.
fn world() -> World {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 'time', metaField = 's', granularity = 'minutes')");
    let rows = |from: i64, to: i64| {
        format!(
            "INSERT INTO w (time, s, i, j, f)
             SELECT to_timestamp_seconds(1704067200 + 60 * value), 's' || (value % 4), CASE WHEN value / 60 % 50 = 7 THEN NULL ELSE value END,
                value % 10, CASE value / 60 % 90 WHEN 3 THEN NULL WHEN 5 THEN CAST('NaN' AS DOUBLE) WHEN 6 THEN CAST('-inf' AS DOUBLE)
                    WHEN 8 THEN -0.0 WHEN 9 THEN 0.0 ELSE value / 8.0 END
             FROM generate_series({from}, {to})"
        )
    };
    world.rows(&rows(0, 38_999));
    world.rows("FLUSH");
    world.rows("DELETE FROM w WHERE s = 's1' AND time >= '2024-01-27 20:00:00'");
    world.rows("DELETE FROM w WHERE s = 's2' AND i > 38900");
    world.rows(&rows(39_000, 40_000));
    world
}

#[test]
fn the_first_rows_of_an_order_are_those_of_all_rows() {
    let world = world();
    for (sql, told) in [
        ("SELECT * FROM w ORDER BY time DESC LIMIT 10", true),
        ("SELECT * FROM w ORDER BY time LIMIT 10 OFFSET 5", true),
        ("SELECT * FROM w WHERE s LIKE 's%' AND time >= '2024-01-01 12:00:00' ORDER BY time DESC LIMIT 2000", true),
        ("SELECT time, i FROM w ORDER BY i DESC NULLS LAST LIMIT 30", true),
        ("SELECT time, i FROM w ORDER BY i DESC, time LIMIT 30", true),
        ("SELECT time, i FROM w ORDER BY i NULLS FIRST, time DESC LIMIT 30", true),
        ("SELECT time, i FROM w ORDER BY i LIMIT 100", true),
        ("SELECT time, f FROM w ORDER BY f DESC NULLS LAST, time LIMIT 100", true),
        ("SELECT time, f FROM w ORDER BY f DESC, time LIMIT 3000", true),
        ("SELECT time, f FROM w ORDER BY f, time DESC LIMIT 700", true),
        ("SELECT time, s FROM w ORDER BY time DESC, s LIMIT 1", true),
        ("SELECT g, u FROM (SELECT f AS g, time AS u, s FROM w) AS x ORDER BY u DESC LIMIT 3", true),
        ("SELECT f * 2 AS g, time AS u FROM w ORDER BY u DESC LIMIT 3", true),
        ("SELECT sum(j) AS n FROM (SELECT time, j FROM w ORDER BY time DESC LIMIT 500) AS x", true),
        ("SELECT * FROM w WHERE j = 3 ORDER BY time DESC LIMIT 10", false),
        ("SELECT s, time FROM w ORDER BY s, time LIMIT 10", false),
        ("SELECT f, time FROM w ORDER BY -f, time LIMIT 10", false),
        ("SELECT * FROM w ORDER BY time DESC LIMIT 39880", false),
        ("SELECT s, max(time) AS m FROM w GROUP BY s ORDER BY m DESC LIMIT 2", false),
        ("SELECT time FROM (SELECT * FROM w LIMIT 35000) AS x ORDER BY time DESC LIMIT 0", false),
    ] {
        let (fast, slow, plan) = both(&world, sql);
        assert_eq!(plan.contains(", first="), told, "{sql}\n{plan}");
        assert_eq!(fast, slow, "{sql}\n{plan}");
    }
    world.rows("SET ebbtide.fast_paths = true");
    let words = world.text("EXPLAIN SELECT * FROM w ORDER BY time DESC LIMIT 10");
    assert!(words.contains("only buckets that may contain the 10 rows with the greatest time"), "{words}");
}
