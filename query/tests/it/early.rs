//! Aggregates that the engine computes before a join, or for narrower bins of time.

use crate::support::{World, both};

/// 60,000 measurements of 40 series in 100 days, some of them expired or deleted. Stations that are there twice, not at all, or
/// without a height.
fn world() -> World {
    let world = World::at("2024-04-09T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 'time', metaField = 's', granularity = 'hours', expireAfterSeconds = 8000000)");
    world.rows(
        "INSERT INTO w (time, s, v, i)
         SELECT to_timestamp_seconds(1704067200 + value * 144), CASE WHEN value % 40 > 0 THEN 'S' || (value % 40) END,
         CASE WHEN value % 7 > 0 THEN (value % 1000) / 4.0 END, CASE WHEN value % 11 > 0 THEN value END
         FROM generate_series(1, 60000)",
    );
    world.rows("FLUSH");
    world.rows("DELETE FROM w WHERE s = 'S3' AND time > '2024-03-20T00:00:00Z'");
    world.rows("CREATE COLLECTION stations WITH (timeField = 'since', metaField = 'station')");
    world.rows(
        "INSERT INTO stations (since, station, height, state)
         SELECT to_timestamp_seconds(1704067200 + value), 'S' || (value % 45 + 5), CASE WHEN value % 9 > 0 THEN value * 10 END,
         'state ' || (value % 4) FROM generate_series(1, 60)",
    );
    world
}

const JOINS: [&str; 8] = [
    "w JOIN stations st ON w.s = st.station",
    "stations st JOIN w ON w.s = st.station",
    "w LEFT JOIN stations st ON w.s = st.station",
    "stations st RIGHT JOIN w ON w.s = st.station",
    "w JOIN stations st ON upper(w.s) = st.station",
    "w JOIN stations st ON w.s = st.station JOIN (VALUES ('state 1', 'one'), ('state 2', 'two')) AS n (state, name) ON st.state = n.state",
    "w JOIN stations st ON w.s = st.station JOIN (SELECT date_trunc('day', time) AS day, s FROM w WHERE i % 100 = 1) AS d
     ON d.day = date_trunc('day', w.time) AND d.s = w.s",
    "(SELECT s, s || '' AS other, time, v, i FROM w) AS w JOIN stations st ON w.other = st.station",
];

const CONDITIONS: [&str; 7] = [
    "true",
    "st.height > 300",
    "w.time >= '2024-02-03T12:00:00Z'",
    "w.s IN (SELECT station FROM stations WHERE height < 200)",
    "w.s NOT IN (SELECT station FROM stations WHERE height < 200)",
    "w.s > 'S2' AND w.time < '2024-03-03T00:00:00Z'",
    "w.s = 'S77'",
];

const KEYS: [&str; 9] = [
    "",
    "st.state",
    "w.s",
    "st.state, date_trunc('month', w.time)",
    "date_trunc('WEEK', w.time), w.s",
    "date_part('dow', w.time), length(w.s)",
    "time_bucket(INTERVAL '1 day', w.time), extract(year FROM w.time)",
    "st.state || w.s",
    "extract(quarter FROM w.time), st.height > 100",
];

const CALLS: [&str; 4] = [
    "count(*), avg(w.v)",
    "sum(w.v), count(w.i), max(w.v), min(w.i)",
    "count(w.v), max(st.height), min(st.state)",
    "count(*) + max(w.i), avg(w.v) - sum(w.v)",
];

fn rows(world: &World, sql: &str) -> Vec<String> {
    let mut rows: Vec<String> = world.rows(sql).iter().map(ToString::to_string).collect();
    rows.sort();
    rows
}

#[test]
fn two_steps_give_what_one_step_gives() {
    let world = world();
    let (mut early, mut all) = (0, 0);
    for (j, join) in JOINS.iter().enumerate() {
        for (c, condition) in CONDITIONS.iter().enumerate().skip(j % 2).step_by(2) {
            let (keys, calls) = (KEYS[(2 * j + c) % KEYS.len()], CALLS[(j + c) % CALLS.len()]);
            let (comma, by) = if keys.is_empty() { ("", "") } else { (", ", " GROUP BY ") };
            let sql = format!("SELECT {calls}{comma}{keys} FROM {join} WHERE {condition}{by}{keys}");
            world.rows("SET ebbtide.fast_paths = true");
            early += usize::from(world.text(&format!("EXPLAIN {sql}")).contains("the engine answers"));
            all += 1;
            let fast = rows(&world, &sql);
            world.rows("SET ebbtide.fast_paths = false");
            assert_eq!(fast, rows(&world, &sql), "{sql}");
        }
    }
    assert!(early * 2 > all, "{early} of {all} statements run in two steps");
}

#[test]
fn the_engine_has_the_bins_of_the_calendar() {
    let world = world();
    for sql in [
        "SELECT date_trunc('month', time) AS m, count(*), avg(v) FROM w GROUP BY m ORDER BY m",
        "SELECT s, date_trunc('year', time) AS y, max(i) FROM w GROUP BY s, y ORDER BY s, y",
        "SELECT extract(hour FROM time) AS h, sum(v) FROM w WHERE s = 'S2' OR s > 'S3' GROUP BY h ORDER BY h LIMIT 3",
        "SELECT extract(hour FROM time) AS h, st.state, avg(v) FROM w JOIN stations st ON w.s = st.station GROUP BY h, st.state ORDER BY 1, 2",
        "SELECT extract(dow FROM time) AS d, s, count(*) FROM w GROUP BY d, s ORDER BY d DESC, s LIMIT 9",
        "SELECT extract(isodow FROM time) AS d, max(v) FROM w GROUP BY d ORDER BY d",
        "SELECT extract(dow FROM time) AS d, max(v) FROM w GROUP BY d ORDER BY d DESC LIMIT 2",
        "SELECT date_trunc('week', time) AS m, s, count(v) FROM w GROUP BY m, s HAVING count(v) > 9 ORDER BY m, s",
        "SELECT date_trunc('month', time) AS m, max(i) FROM w GROUP BY m ORDER BY m DESC LIMIT 2",
        "SELECT date_trunc('month', time) AS m, max(i) FROM w WHERE time > '2024-02-20' AND time < '2024-03-02' GROUP BY m ORDER BY m",
        "SELECT date_trunc('month', time) AS m, max(i) FROM w WHERE time > '2099-02-20' GROUP BY m ORDER BY m",
        "SELECT extract(month FROM time) AS m, date_trunc('quarter', time) AS q, count(*) FROM w GROUP BY m, q ORDER BY m, q",
        "SELECT extract(week FROM time) AS m, s, count(*) FROM w GROUP BY m, s ORDER BY m, s",
        "SELECT extract(isoyear FROM time) AS m, extract(month FROM time) AS n, avg(v) FROM w GROUP BY m, n ORDER BY m, n",
    ] {
        world.rows("SET ebbtide.fast_paths = true");
        let plan = world.text(&format!("EXPLAIN {sql}"));
        assert!(plan.contains("the engine answers"), "{sql}\n{plan}");
        let fast = world.rows(sql);
        world.rows("SET ebbtide.fast_paths = false");
        assert_eq!(fast, world.rows(sql), "{sql}");
    }
}

#[test]
fn what_cannot_be_put_together_is_joined_first() {
    let world = world();
    for sql in [
        // A part of the sum of whole numbers may be too large, and medians of parts are none of all.
        "SELECT st.state, sum(w.i) FROM w JOIN stations st ON w.s = st.station GROUP BY st.state ORDER BY 1",
        "SELECT st.state, median(w.v) FROM w JOIN stations st ON w.s = st.station GROUP BY st.state ORDER BY 1",
        "SELECT st.state, count(DISTINCT w.v) FROM w JOIN stations st ON w.s = st.station GROUP BY st.state ORDER BY 1",
        "SELECT st.state, sum(st.height) FROM w JOIN stations st ON w.s = st.station GROUP BY st.state ORDER BY 1",
        "SELECT st.state, avg(w.v + st.height) FROM w JOIN stations st ON w.s = st.station GROUP BY st.state ORDER BY 1",
        // Rows without a match have nulls in the place of measurements.
        "SELECT st.state, count(*), avg(w.v) FROM stations st LEFT JOIN w ON w.s = st.station GROUP BY st.state ORDER BY 1",
        "SELECT st.state, avg(w.v) FROM w JOIN stations st ON w.s = st.station AND w.v > st.height GROUP BY st.state ORDER BY 1",
        "SELECT st.state, w.v, count(*) FROM w JOIN stations st ON w.s = st.station GROUP BY st.state, w.v ORDER BY 1, 2 LIMIT 5",
        "SELECT st.state, avg(w.v) FROM w JOIN stations st ON w.s = st.station WHERE w.v > 5 GROUP BY st.state ORDER BY 1",
        // What differs from row to row, though it is always 0 here.
        "SELECT floor(random()) AS k, count(*) FROM w JOIN stations st ON w.s = st.station GROUP BY k",
        "SELECT max(st.height + floor(random())) FROM w JOIN stations st ON w.s = st.station",
    ] {
        world.rows("SET ebbtide.fast_paths = true");
        let plan = world.text(&format!("EXPLAIN {sql}"));
        assert!(!plan.contains("the engine answers"), "{sql}\n{plan}");
        let fast = world.rows(sql);
        world.rows("SET ebbtide.fast_paths = false");
        assert_eq!(fast, world.rows(sql), "{sql}");
    }
}

#[test]
fn the_engine_aggregates_only_the_series_that_a_join_needs() {
    let world = world();
    let sql = "SELECT count(*), avg(w.v) FROM w JOIN stations st ON w.s = st.station WHERE st.height > 500";
    let plan = world.text(&format!("EXPLAIN ANALYZE {sql}"));
    let (_, plan) = plan.split_once("EngineAggregateExec").unwrap_or_else(|| panic!("{plan}"));
    let count = |name: &str| {
        let text = plan.split(name).nth(1).unwrap_or_else(|| panic!("{name} in {plan}"));
        text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
    };
    assert!(count("buckets_pruned=") > 3 * (count("buckets_known=") + count("buckets_read=")), "{plan}");
}

#[test]
fn what_fails_for_rows_that_are_not_joined_is_not_computed() {
    let world = world();
    let series = "(SELECT 'S' || value AS station, length('S' || value) AS size FROM generate_series(1, 9))";
    // Of the series S1 to S9 alone.
    for from in [
        format!("w JOIN {series} AS x ON x.station = w.s AND x.size = length(w.s)"),
        format!("w JOIN {series} AS x ON x.station = w.s LEFT JOIN stations st ON st.height = 10 / (length(w.s) - 3)"),
        "w WHERE NOT EXISTS (SELECT 1 FROM (SELECT 'S' || value AS station FROM generate_series(10, 39)) AS x WHERE x.station = w.s)".to_owned(),
    ] {
        let sql = format!("SELECT 10 / (length(w.s) - 3) AS k, count(*) AS n, max(w.i) AS i FROM {from} GROUP BY k ORDER BY k");
        let (fast, slow, plan) = both(&world, &sql);
        assert_eq!(fast, slow, "{sql}\n{plan}");
        assert!(plan.contains("EngineAggregateExec"), "{sql}\n{plan}");
    }
}

#[test]
fn bins_that_begin_before_the_first_time_are_not_asked_for() {
    let world = World::at("2024-04-09T00:00:00Z");
    world.rows("CREATE COLLECTION n WITH (timeField = 'time', metaField = 's', precision = 'ns')");
    world.rows(
        "INSERT INTO n (time, s, v) SELECT to_timestamp_seconds(-9223372036 + value), 'S' || (value % 4), value / 4.0
         FROM generate_series(1, 40000)",
    );
    for part in ["dow", "month", "week", "year"] {
        let sql = format!("SELECT extract({part} FROM time) AS k, count(*) AS n FROM n GROUP BY k ORDER BY k");
        let (fast, slow, plan) = both(&world, &sql);
        assert_eq!(fast, slow, "{sql}\n{plan}");
    }
}

#[test]
fn the_last_bin_of_the_calendar_does_not_take_later_times() {
    let world = World::at("2024-04-09T00:00:00Z");
    world.rows("CREATE COLLECTION n WITH (timeField = 'time', metaField = 's', granularity = 'hours')");
    world.rows(
        "INSERT INTO n (time, s) SELECT to_timestamp_seconds(8210266876000 + (value - 300) * 86400), 's' FROM generate_series(1, 400) AS g(value)",
    );
    for unit in ["month", "year"] {
        let sql = format!("SELECT date_trunc('{unit}', time) AS k, count(*) AS n FROM n GROUP BY k ORDER BY k");
        world.rows("SET ebbtide.fast_paths = true");
        let fast = world.error(&sql).to_string();
        world.rows("SET ebbtide.fast_paths = false");
        assert_eq!(fast, world.error(&sql).to_string(), "{sql}");
    }
}

#[test]
fn the_engine_answers_for_collections_with_other_names() {
    let world = world();
    for sql in [
        "SELECT x.s, avg(x.v) AS a FROM w AS x GROUP BY x.s ORDER BY x.s",
        "SELECT upper(x.s) AS u, date_trunc('month', x.time) AS m, count(*) AS n FROM w x GROUP BY u, m ORDER BY u, m",
        "SELECT date_trunc('day', time) AS d, max(i) AS i FROM w AS x GROUP BY d ORDER BY d DESC LIMIT 3",
        "SELECT count(*) AS n, sum(x.i) AS i FROM (SELECT * FROM w) AS x WHERE x.s > 'S2'",
    ] {
        let (fast, slow, plan) = both(&world, sql);
        assert_eq!(fast, slow, "{sql}\n{plan}");
        assert!(plan.contains("EngineAggregateExec"), "{sql}\n{plan}");
    }
    world.rows("SET ebbtide.fast_paths = true");
    let plan = world.text("EXPLAIN SELECT max(st.height) FROM w JOIN stations st ON w.s = st.station");
    assert!(plan.contains("the engine answers the groups of w"), "{plan}");
}
