//! Aggregates over frames: the operator of this crate answers as DataFusion does.

use crate::support::World;

/// What a window may be over.
const WINDOWS: [&str; 20] = [
    "",
    "ORDER BY time",
    "ORDER BY time DESC",
    "PARTITION BY s",
    "PARTITION BY s ORDER BY time",
    "PARTITION BY s ORDER BY id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
    "PARTITION BY s ORDER BY id ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING",
    "PARTITION BY s ORDER BY id ROWS BETWEEN 2 FOLLOWING AND 5 FOLLOWING",
    "PARTITION BY s ORDER BY id ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING",
    "PARTITION BY s ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ORDER BY id ROWS BETWEEN 700 PRECEDING AND 1 PRECEDING",
    "PARTITION BY s ORDER BY time RANGE BETWEEN INTERVAL '1 day' PRECEDING AND CURRENT ROW",
    "PARTITION BY s ORDER BY time RANGE BETWEEN INTERVAL '90 minutes' PRECEDING AND INTERVAL '1 minute' PRECEDING",
    "PARTITION BY s ORDER BY time RANGE BETWEEN INTERVAL '1 minute' FOLLOWING AND INTERVAL '2 hours' FOLLOWING",
    "ORDER BY time DESC RANGE BETWEEN INTERVAL '1 day' PRECEDING AND INTERVAL '1 hour' FOLLOWING",
    "PARTITION BY s ORDER BY time RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL '1 hour' FOLLOWING",
    "PARTITION BY s ORDER BY n RANGE BETWEEN 3 PRECEDING AND 1 FOLLOWING",
    "PARTITION BY s ORDER BY n DESC NULLS LAST RANGE BETWEEN 2 PRECEDING AND CURRENT ROW",
    "PARTITION BY s ORDER BY n NULLS FIRST RANGE BETWEEN CURRENT ROW AND 4 FOLLOWING",
    "PARTITION BY s ORDER BY n, i GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
];

const FUNCTIONS: [&str; 10] =
    ["sum(i)", "sum(d)", "avg(i)", "avg(d)", "count(*)", "count(d)", "min(i)", "max(i)", "min(d)", "max(d)"];

/// Rows of which many are equal in time or number, and some are null.
fn world(rows: u32) -> World {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 'time', metaField = 's')");
    world.rows(&format!(
        "INSERT INTO w (time, s, id, i, n, d)
         SELECT to_timestamp_seconds(1704067200 + ((value * 7919) % 700) * 600), value % 4, value,
                CASE WHEN value % 11 > 0 THEN (value * 31) % 97 - 40 END, CASE WHEN value % 17 > 0 THEN (value * 7) % 40 END,
                CASE WHEN value % 13 > 0 THEN ((value * 17) % 101 - 50) / 4.0 END
         FROM generate_series(1, {rows})"
    ));
    world
}

#[test]
fn frames_hold_what_datafusion_finds_in_them() {
    let world = world(2000);
    for window in WINDOWS {
        let calls: Vec<String> =
            FUNCTIONS.iter().enumerate().map(|(at, call)| format!("{call} OVER ({window}) AS f{at}")).collect();
        let sql = format!("SELECT id, {} FROM w ORDER BY id", calls.join(", "));
        world.rows("SET ebbtide.fast_paths = true");
        let plan = world.text(&format!("EXPLAIN VERBOSE {sql}"));
        assert!(plan.contains("FrameExec"), "{window}: {plan}");
        let fast = world.rows(&sql);
        world.rows("SET ebbtide.fast_paths = false");
        let slow = world.rows(&sql);
        assert_eq!(fast.len(), 2000);
        for (fast, slow) in fast.iter().zip(&slow) {
            assert_eq!(fast, slow, "{window}");
        }
    }
}

#[test]
fn values_of_other_rows_are_those_that_datafusion_finds() {
    let world = world(2000);
    let calls = [
        "lag(i)",
        "lag(d, 3)",
        "lead(time)",
        "lead(i, 700)",
        "lag(time, -2)",
        "lag(d, 0)",
        "lag(i, 2, NULL)",
        "row_number()",
        "time - lag(time)",
    ];
    for window in
        ["ORDER BY id", "ORDER BY id DESC", "PARTITION BY s ORDER BY time, id", "PARTITION BY s, n ORDER BY id"]
    {
        let calls = calls.iter().enumerate().map(|(at, call)| {
            let (sum, call) = call.rsplit_once(' ').filter(|(sum, _)| sum.ends_with('-')).unwrap_or(("", call));
            format!("{sum} {call} OVER ({window}) AS f{at}")
        });
        let sql = format!("SELECT id, {} FROM w ORDER BY id", calls.collect::<Vec<_>>().join(", "));
        world.rows("SET ebbtide.fast_paths = true");
        let plan = world.text(&format!("EXPLAIN VERBOSE {sql}"));
        assert!(plan.contains("FrameExec: lag"), "{window}: {plan}");
        let fast = world.rows(&sql);
        world.rows("SET ebbtide.fast_paths = false");
        let slow = world.rows(&sql);
        assert_eq!(fast.len(), 2000);
        for (fast, slow) in fast.iter().zip(&slow) {
            assert_eq!(fast, slow, "{window}");
        }
    }
}

#[test]
fn a_window_sees_groups_that_a_limit_leaves_out() {
    let world = world(50);
    for query in [
        "SELECT n, count(*) OVER () AS groups FROM w GROUP BY n ORDER BY n NULLS LAST LIMIT 1",
        "SELECT n, sum(max(id)) OVER () > 100 AS groups FROM w GROUP BY n ORDER BY n DESC NULLS LAST LIMIT 1",
        "SELECT id % 7 AS n, lead(id % 7) OVER (ORDER BY id % 7) AS groups FROM w GROUP BY 1 ORDER BY 1 LIMIT 1",
        "SELECT g AS n, count(*) OVER () AS groups FROM (VALUES (1), (2), (2), (3)) AS t (g) GROUP BY g ORDER BY g LIMIT 1",
    ] {
        let all = world.rows(query.split(" LIMIT").next().unwrap());
        assert_eq!(world.rows(query), all[..1], "{query}");
    }
}

#[test]
fn a_value_that_leaves_a_frame_leaves_nothing_behind() {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 'time')");
    let values =
        ["1e300", "0.1", "0.2", "'inf'::double", "1.5", "2.5", "'NaN'::double", "3.5", "1e308", "1e308", "4.5", "0.5"];
    for (at, value) in values.iter().enumerate() {
        world.rows(&format!("INSERT INTO w (time, d) VALUES ('2024-05-01T00:{at:02}:00Z', {value}::double)"));
    }
    let sums = world.rows(
        "SELECT (sum(d) OVER (ORDER BY time ROWS 1 PRECEDING))::varchar AS sum, \
         (max(d) OVER (ORDER BY time ROWS 1 PRECEDING))::varchar AS max FROM w ORDER BY time",
    );
    let of = |name: &str| sums.iter().map(|row| row[name].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let expected =
        ["1e300", "1e300", "0.30000000000000004", "inf", "inf", "4.0", "NaN", "NaN", "1e308", "inf", "1e308", "5.0"];
    assert_eq!(of("sum"), expected);
    let expected = ["1e300", "1e300", "0.2", "inf", "inf", "2.5", "NaN", "NaN", "1e308", "1e308", "1e308", "4.5"];
    assert_eq!(of("max"), expected);
}

#[test]
fn spreads_are_those_of_the_values_in_the_frame() {
    let world = World::at("2024-06-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 'time')");
    let values = [
        "1.5e8",
        "2",
        "2",
        "2.5",
        "3.5",
        "NULL",
        "9999",
        "0.1",
        "0.1",
        "'inf'::double",
        "1",
        "3",
        "1e200",
        "1",
        "1e9",
        "1000000001",
    ];
    for (at, value) in values.iter().enumerate() {
        world.rows(&format!("INSERT INTO w (time, d) VALUES ('2024-05-01T00:{at:02}:00Z', {value}::double)"));
    }
    let of = |call: &str| {
        let rows = world
            .rows(&format!("SELECT ({call} OVER (ORDER BY time ROWS 1 PRECEDING))::varchar AS x FROM w ORDER BY time"));
        rows.iter().map(|row| row["x"].as_str().unwrap_or("null").to_owned()).collect::<Vec<_>>()
    };
    let expected = [
        0.0,
        5624999850000001.0,
        0.0,
        0.0625,
        0.25,
        0.0,
        0.0,
        24994500.3025,
        0.0,
        f64::NAN,
        f64::NAN,
        1.0,
        f64::NAN,
        f64::NAN,
        2.499999995e17,
        0.25,
    ];
    for (found, expected) in of("var_pop(d)").iter().zip(expected) {
        let found: f64 = found.parse().unwrap();
        assert!((found.is_nan() && expected.is_nan()) || (found - expected).abs() < 1e-20, "{found} {expected}");
    }
    let expected = ["null", "0.0", "null", "null"];
    assert_eq!(["0", "2", "5", "6"].map(|at| of("stddev(d)")[at.parse::<usize>().unwrap()].clone()), expected);
    assert_eq!(of("var_samp(d)")[15], "0.5");
    assert_eq!(of("stddev_pop(d)")[15], "0.5");

    let sql = "SELECT count(x), sum(x) FROM (SELECT var_pop(1e200 + v::double) OVER (ORDER BY v ROWS UNBOUNDED PRECEDING) AS x
               FROM generate_series(1, 20000) AS t (v)) AS y";
    assert_eq!(world.rows(sql)[0]["count(x)"], 20_000);

    let world = self::world(2000);
    let sql = "SELECT id, stddev(d) OVER x AS a, var_pop(i) OVER x AS b, stddev_pop(d) OVER y AS c, variance(i) OVER y AS e FROM w
               WINDOW x AS (PARTITION BY s ORDER BY id ROWS 20 PRECEDING),
                      y AS (ORDER BY time RANGE BETWEEN INTERVAL '1 day' PRECEDING AND CURRENT ROW) ORDER BY id";
    let plan = world.text(&format!("EXPLAIN VERBOSE {sql}"));
    assert!(plan.contains("FrameExec"), "{plan}");
    let fast = world.rows(sql);
    world.rows("SET ebbtide.fast_paths = false");
    for (fast, slow) in fast.iter().zip(&world.rows(sql)) {
        for name in ["a", "b", "c", "e"] {
            match (fast[name].as_f64(), slow[name].as_f64()) {
                (Some(fast), Some(slow)) => assert!((fast - slow).abs() < 1e-9 * slow.abs().max(1.0), "{fast} {slow}"),
                (fast, slow) => assert_eq!(fast, slow),
            }
        }
    }
}

#[test]
fn windows_that_are_not_known_are_left_to_datafusion() {
    let world = world(50);
    for call in [
        "sum(i) FILTER (WHERE n > 3) OVER (ORDER BY id ROWS 3 PRECEDING)",
        "sum(DISTINCT i) OVER (ORDER BY id ROWS 3 PRECEDING)",
        "sum(d) OVER (ORDER BY d RANGE 1.5 PRECEDING)",
        "min(s::varchar) OVER (ORDER BY id ROWS 3 PRECEDING)",
        "rank() OVER (ORDER BY id)",
        "lag(i) IGNORE NULLS OVER (ORDER BY id)",
        "lag(i, 1, 0) OVER (ORDER BY id)",
        "lag(s::varchar) OVER (ORDER BY id)",
        "max(time) OVER (ORDER BY id ROWS 3 PRECEDING)",
    ] {
        let plan = world.text(&format!("EXPLAIN VERBOSE SELECT {call} FROM w"));
        assert!(!plan.contains("FrameExec"), "{call}: {plan}");
    }
    let sum = world.error("SELECT sum(9223372036854775807 + 0 * i) OVER (ORDER BY id ROWS 1 PRECEDING) FROM w");
    assert!(sum.message().contains("sum: overflow"), "{sum}");
}

#[test]
fn frames_beside_functions_that_are_left_to_datafusion_are_computed_apart() {
    let w = World::at("2024-06-01T00:00:00Z");
    w.text("CREATE COLLECTION w WITH (timeField = 't', metaField = 's')");
    w.text(
        "INSERT INTO w (t, s, x) SELECT t, n % 2, CASE WHEN n < 6 THEN n * 1e6 ELSE 8.9 END FROM ( \
         SELECT value AS t, date_part('second', value)::bigint AS n FROM generate_series( \
         TIMESTAMP '2024-01-01T00:00:01', TIMESTAMP '2024-01-01T00:00:20', INTERVAL '1 second')) AS g",
    );
    let frame = "OVER (PARTITION BY s ORDER BY t ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)";
    let sql = format!(
        "SELECT t, first_value(x) {frame} AS f, stddev(x) {frame} AS d, nth_value(x, 2) {frame} AS n, sum(x) {frame} AS total \
         FROM w ORDER BY s, t"
    );
    let plan = w.text(&format!("EXPLAIN PLAN {sql}"));
    assert!(plan.contains("FrameExec: stddev") && plan.contains("WindowAggExec: wdw=[first_value"), "{plan}");
    let rows = w.rows(&sql);
    let last = &rows[rows.len() - 1];
    let values: Vec<_> = ["f", "d", "n", "total"].iter().map(|name| last[*name].as_f64().unwrap()).collect();
    assert_eq!((values[0], values[2]), (8.9, 8.9));
    assert!((0.0..1e-6).contains(&values[1]) && (values[3] - 44.5).abs() < 1e-9, "{values:?}");
    let first = &rows[0];
    assert_eq!((first["n"].is_null(), first["d"].is_null(), first["total"].as_f64()), (true, true, Some(2e6)));
}
