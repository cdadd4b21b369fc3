//! Joins on the meta read only the series that they need.

use crate::support::World;

/// 120,000 measurements of 40 series, and a table of 50 stations. Some stations have no height.
fn world() -> World {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 'time', metaField = 's')");
    world.rows(
        "INSERT INTO w (time, s, v)
         SELECT to_timestamp_seconds(1704067200 + value), CASE WHEN value % 40 > 0 THEN 'S' || (value % 40) END, value
         FROM generate_series(1, 120000)",
    );
    world.rows("FLUSH");
    world.rows("CREATE COLLECTION stations WITH (timeField = 'since', metaField = 'station')");
    world.rows(
        "INSERT INTO stations (since, station, height)
         SELECT to_timestamp_seconds(1704067200), 'S' || value, CASE WHEN value % 9 > 0 THEN value * 10 END
         FROM generate_series(1, 50)",
    );
    world
}

const JOINED: [&str; 7] = [
    "SELECT count(*), sum(v) FROM w JOIN stations ON upper(s) = station WHERE height > 370",
    "SELECT count(*), sum(v) FROM w JOIN stations ON s = station WHERE height > 370",
    "SELECT count(*), sum(v) FROM w JOIN stations ON s = station WHERE height > 370 AND s < 'S39'",
    "SELECT count(*), sum(v) FROM w WHERE s IN (SELECT station FROM stations WHERE height > 370)",
    "SELECT count(*), sum(v) FROM w JOIN stations ON s = station WHERE height > 370 AND v > 1000",
    "SELECT count(*), sum(v) FROM (SELECT s || '' AS other, s AS x, v FROM w) AS r JOIN stations ON x = station WHERE height < 20",
    "SELECT station, count(v), sum(v) FROM stations LEFT JOIN w ON s = station WHERE height > 370 GROUP BY station ORDER BY station",
];

/// These need rows without a match, or are not by the meta alone.
const OTHERS: [&str; 6] = [
    // No row at all is read.
    "SELECT count(*), sum(v) FROM w JOIN stations ON s = station WHERE height > 1000",
    "SELECT count(*), sum(v), count(station) FROM w LEFT JOIN (SELECT * FROM stations WHERE height > 370) AS h ON s = station",
    "SELECT count(*), sum(v) FROM w WHERE s NOT IN (SELECT station FROM stations WHERE height > 370)",
    "SELECT count(*), sum(v), count(station) FROM w FULL JOIN (SELECT * FROM stations WHERE height > 370) AS h ON s = station",
    "SELECT count(*), sum(v) FROM w JOIN stations ON s || v = station WHERE height > 370",
    "SELECT count(*), sum(v) FROM w JOIN stations ON s = station AND v = height WHERE height > 100",
];

#[test]
fn a_join_on_the_meta_skips_the_buckets_of_other_series() {
    let world = world();
    for sql in JOINED.iter().chain(&OTHERS) {
        world.rows("SET ebbtide.fast_paths = true");
        let plan = world.text(&format!("EXPLAIN ANALYZE {sql}"));
        let skips = plan.contains("buckets_skipped_by_join=") && !plan.contains("buckets_skipped_by_join=0");
        assert_eq!(skips, JOINED.contains(sql), "{sql}\n{plan}");
        let fast = world.rows(sql);
        world.rows("SET ebbtide.fast_paths = false");
        assert_eq!(fast, world.rows(sql), "{sql}");
    }
}

#[test]
fn metas_of_other_types_are_joined() {
    let world = world();
    for (name, count) in [("a", 40_000), ("b", 20)] {
        world.rows(&format!("CREATE COLLECTION {name} WITH (timeField = 'time', metaField = 'm')"));
        world.rows(&format!(
            "INSERT INTO {name} (time, m, v) SELECT to_timestamp_seconds(1704067200 + value),
             named_struct('host', 'h' || (value % 30), 'rack', value % 2), value FROM generate_series(1, {count})"
        ));
        world.rows(&format!("CREATE COLLECTION {name}_numbers WITH (timeField = 'time', metaField = 'm')"));
        world.rows(&format!("INSERT INTO {name}_numbers (time, m, v) SELECT time, m.rack + v % 15, v FROM {name}"));
    }
    for sql in [
        "SELECT count(*), sum(a.v) FROM a JOIN b ON a.m = b.m WHERE b.v < 9",
        "SELECT count(*), sum(a.v) FROM a JOIN b ON a.m.host = b.m.host WHERE b.v < 9",
        "SELECT count(*), sum(a.v) FROM a_numbers a JOIN b_numbers b ON a.m = b.m WHERE b.v < 9",
        "SELECT count(*), sum(a.v) FROM a_numbers a JOIN b_numbers b ON a.m IS NOT DISTINCT FROM b.m WHERE b.v < 9",
        "SELECT count(*), sum(a.v) FROM a_numbers a JOIN (VALUES (3.0), (4.5)) AS b (m) ON a.m = b.m",
    ] {
        world.rows("SET ebbtide.fast_paths = true");
        let plan = world.text(&format!("EXPLAIN ANALYZE {sql}"));
        assert!(plan.contains("buckets_skipped_by_join"), "{sql}\n{plan}");
        let fast = world.rows(sql);
        world.rows("SET ebbtide.fast_paths = false");
        assert_eq!(fast, world.rows(sql), "{sql}");
    }
}

#[test]
fn the_rows_of_a_recursive_query_are_joined_anew_each_time() {
    let world = world();
    let sql = "WITH RECURSIVE r AS (SELECT 'S1' AS name, 1 AS n UNION ALL
               SELECT DISTINCT 'S' || (r.n + 1), r.n + 1 FROM r JOIN w ON w.s = r.name WHERE r.n < 5)
               SELECT count(*) AS n FROM r JOIN w ON w.s = r.name";
    assert_eq!(world.number(sql), 15_000);
    world.rows("SET ebbtide.fast_paths = false");
    assert_eq!(world.number(sql), 15_000);
}
