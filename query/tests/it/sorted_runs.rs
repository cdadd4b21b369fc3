//! Sorts of rows that come in runs: the operator of this crate returns what DataFusion's sort does.

use crate::support::{World, both, counted};
use ebbtide_query::{Session, SessionSettings};
use serde_json::Value;

/// Three batches of rows whose times overlap. The first two are in segments, the third is in memory.
fn world() -> World {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 'time', metaField = 's')");
    for (at, (series, from, step)) in
        [("value % 5", 0, 120), ("value % 5", 60, 240), ("value % 7", 0, 30)].iter().enumerate()
    {
        world.rows(&format!(
            "INSERT INTO w (time, s, id, text)
             SELECT to_timestamp_seconds(1704067200 + {from} + value / 5 * {step}), CASE WHEN {series} > 0 THEN {series} END,
                    value + {at} * 100000, 'row ' || value
             FROM generate_series(1, 20000)"
        ));
        if at < 2 {
            world.rows("FLUSH");
        }
    }
    world.rows("DELETE FROM w WHERE s = 3");
    world
}

#[test]
fn runs_are_sorted_as_rows_are() {
    let world = world();
    for (columns, order) in
        [("s, time", "s, time"), ("s, time", "s DESC, time"), ("s, time", "s NULLS FIRST, time"), ("time", "time")]
    {
        // Rows that are equal in the order may come in any.
        let sql = format!("SELECT {columns}, count(*) OVER (ORDER BY {order}) AS n FROM w ORDER BY {order}");
        let (fast, slow, plan) = both(&world, &sql);
        assert!(plan.contains("SortRunsExec"), "{order}: {plan}");
        assert_eq!(fast.len(), 60_000 - 4000 - 4000 - 2857);
        assert_eq!(fast, slow, "{order}");
    }
    let sql = "SELECT s, time, id, text FROM w ORDER BY s, time";
    let (mut fast, mut slow, plan) = both(&world, sql);
    assert!(counted(&plan, "rows_merged").iter().any(|merged| merged != "0"), "{plan}");
    assert!(counted(&plan, "rows_sorted_one_by_one").iter().all(|rows| rows == "0"), "{plan}");
    world.rows("SET ebbtide.fast_paths = true");
    let words = world.text("EXPLAIN SELECT id - lag(id) OVER (PARTITION BY s ORDER BY time) AS d FROM w");
    assert!(
        words.contains("sorts by s ASC NULLS LAST, time ASC NULLS LAST, whole runs of rows where they are stored so"),
        "{words}"
    );
    assert!(words.contains("over windows as the rows pass, with a frame in memory: lag(w.id) PARTITION BY"), "{words}");
    for rows in [&mut fast, &mut slow] {
        assert!(
            rows.is_sorted_by_key(|row| (
                row["s"].as_i64().unwrap_or(i64::MAX),
                row["time"].as_str().unwrap().to_owned()
            ))
        );
        rows.sort_by_key(|row| row["id"].as_i64());
    }
    assert_eq!(fast, slow);
}

#[test]
fn objects_and_no_rows_are_sorted_too() {
    let world = world();
    let sql = "SELECT count(*), sum(n) FROM (SELECT row_number() OVER (PARTITION BY s ORDER BY time) AS n FROM w WHERE id < 0) AS x";
    let (fast, slow, plan) = both(&world, sql);
    assert!(plan.contains("SortRunsExec"), "{plan}");
    assert_eq!(fast, slow);
    world.rows("CREATE COLLECTION o WITH (timeField = 'time', metaField = 's')");
    world.rows(
        "INSERT INTO o (time, s, id) SELECT to_timestamp_seconds(1704067200 + value), named_struct('host', 'h' || (value % 3), 'rack',
         CASE WHEN value % 2 > 0 THEN 7 END), value FROM generate_series(1, 50000)",
    );
    for by in ["s", "s.host", "s.rack, s.host"] {
        let sql = format!("SELECT id, id - lag(id) OVER (PARTITION BY {by} ORDER BY time) AS d FROM o ORDER BY id");
        let (fast, slow, _) = both(&world, &sql);
        assert_eq!(fast.len(), 50_000);
        assert_eq!(fast, slow, "{by}");
    }
}

#[test]
fn short_runs_and_little_memory_go_to_datafusion() {
    let world = world();
    world.rows("CREATE COLLECTION z WITH (timeField = 'time', metaField = 's')");
    world.rows("INSERT INTO z (time, s) SELECT to_timestamp_seconds(1704067200 + value), value % 10000 FROM generate_series(1, 50000)");
    let (fast, slow, plan) = both(&world, "SELECT s, time FROM z ORDER BY s, time");
    assert_eq!(counted(&plan, "rows_sorted_one_by_one"), ["50.00 K"], "{plan}");
    assert_eq!(fast, slow);

    world.rows("CREATE COLLECTION big WITH (timeField = 'time', metaField = 's')");
    world.rows(
        "INSERT INTO big (time, s, id, text)
         SELECT to_timestamp_seconds(1704067200 + value), value % 3, value, repeat('text ' || value, 10)
         FROM generate_series(1, 300000)",
    );
    world.rows("FLUSH");
    let settings = SessionSettings { memory_bytes: 32 << 20, partitions: Some(1), ..SessionSettings::default() };
    let small = Session::with_settings(world.database.clone(), &settings).unwrap();
    let sql = "SELECT count(*), count(text), sum(id - l), min(id - l) FROM
               (SELECT text, id, lag(id) OVER (PARTITION BY s ORDER BY time) AS l FROM big) AS x";
    let plan = Value::Array(world.block_on(small.rows_as_json(&format!("EXPLAIN ANALYZE {sql}"))).unwrap()).to_string();
    assert_eq!(counted(&plan, "rows_sorted_one_by_one"), ["300.0 K"], "{plan}");
    assert_eq!(world.block_on(small.rows_as_json(sql)).unwrap(), world.rows(sql));
}
