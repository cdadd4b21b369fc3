//! Aggregates that the engine answers: the results must be those of DataFusion over the rows.

use crate::support::{World, time};
use ebbtide_query::{Session, SessionSettings};
use serde_json::Value;

/// SplitMix64, for random databases and queries.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn some(&mut self, of: &[&str], most: usize) -> String {
        let count = 1 + self.below(most);
        (0..count).map(|at| format!("{} AS a{at}", self.one(of))).collect::<Vec<_>>().join(", ")
    }
}

const FUNCTIONS: [&str; 13] = [
    "count(*)",
    "count(d)",
    "count(i)",
    "count(t)",
    "min(d)",
    "max(d)",
    "avg(d)",
    "sum(d)",
    "min(i)",
    "max(i)",
    "avg(i)",
    "sum(i)",
    "max(i) - min(d)",
];
const BINS: [&str; 5] = [
    "date_bin('1 hour', t)",
    "date_bin(INTERVAL '7 minutes', t)",
    "date_trunc('day', t)",
    "date_trunc('minute', t)",
    "date_bin('1 second', t)",
];
const CONDITIONS: [&str; 9] = [
    "s = 'a'",
    "s IN ('b', 'c')",
    "s IS NULL",
    "s <> 'b' AND t < '2024-01-01T04:11:13Z'",
    "t >= '2024-01-01T01:20:00Z' AND t < '2024-01-01T04:00:00Z'",
    "t BETWEEN '2024-01-01T02:00:00Z' AND '2024-01-01T02:00:59.999Z'",
    "t > '2024-01-01T23:00:00Z'",
    "t >= '2024-01-01T06:00:00.000000001Z'",
    "s = 'nobody'",
];

/// A query on `{w}`, and whether its rows are ordered.
fn query(draw: &mut Draw) -> (String, bool) {
    let (functions, bin) = (draw.some(&FUNCTIONS, 4), draw.one(&BINS));
    let condition = match draw.below(3) {
        0 => String::new(),
        _ => format!(" WHERE {}", draw.one(&CONDITIONS)),
    };
    let from = format!("FROM {{w}}{condition}");
    match draw.below(7) {
        0 => (format!("SELECT {functions} {from}"), false),
        1 => (format!("SELECT s, {functions} {from} GROUP BY s"), false),
        2 => (format!("SELECT {bin} AS h, s, {functions} {from} GROUP BY s, h"), false),
        3 => (format!("SELECT {functions}, {bin} AS h {from} GROUP BY h HAVING count(*) > 2"), false),
        4 => (format!("SELECT max(a0) AS m, count(*) AS n FROM (SELECT s, {functions} {from} GROUP BY s) AS x"), false),
        _ => {
            let (way, limit) =
                (draw.one(&["", " DESC", " DESC NULLS LAST"]), draw.one(&["", " LIMIT 3", " LIMIT 2 OFFSET 4"]));
            (format!("SELECT {bin} AS h, {functions} {from} GROUP BY h ORDER BY h{way}{limit}"), true)
        }
    }
}

fn insert(w: &World, from: &str, minutes: u32, step: u32) {
    w.rows(&format!(
        "INSERT INTO w (t, s, d, i)
         SELECT t, s, CASE WHEN m % 3 = 0 THEN NULL WHEN m % 7 = 0 THEN -0.25 ELSE m * 0.37 - 40 END, m * m - 500
         FROM (SELECT value AS t, CAST(date_part('epoch', value) AS BIGINT) / 60 % 400 AS m FROM generate_series(
                   TIMESTAMP '{from}', TIMESTAMP '{from}' + INTERVAL '{minutes} minutes', INTERVAL '{step} minutes')),
              (VALUES ('a'), ('b'), ('c'), (NULL)) AS sensors (s)"
    ));
}

/// Rows without the digits that depend on the order of additions.
fn comparable(rows: &[Value], ordered: bool) -> Vec<String> {
    let cell = |value: &Value| match value.as_f64() {
        Some(number) if value.is_f64() => format!("{number:.9e}"),
        _ => value.to_string(),
    };
    let row = |row: &Value| row.as_object().unwrap().values().map(cell).collect::<Vec<_>>().join(" ");
    let mut rows: Vec<String> = rows.iter().map(row).collect();
    if !ordered {
        rows.sort();
    }
    rows
}

fn compare(w: &World, sql: &str, ordered: bool) -> bool {
    let read = sql.replace("{w}", "(SELECT * FROM w WHERE d IS NULL OR d * 0 <> 7) AS w");
    let sql = sql.replace("{w}", "w");
    assert_eq!(comparable(&w.rows(&sql), ordered), comparable(&w.rows(&read), ordered), "{sql}");
    let explained = w.text(&format!("EXPLAIN ANALYZE {sql}"));
    explained.contains("EngineAggregateExec") && explained.contains("buckets_known=")
}

#[test]
fn what_the_engine_answers_is_what_the_rows_give() {
    let mut draw = Draw(5);
    for options in ["", ", precision = 'us'", ", granularity = 'hours'"] {
        let w = World::at("2024-01-01T12:00:00Z");
        w.rows(&format!("CREATE COLLECTION w WITH (timeField = 't', metaField = 's'{options})"));
        insert(&w, "2024-01-01T00:00:00", 500, 1);
        let mut answered = 0;
        for part in 0..5 {
            match part {
                0 => {}
                1 => drop(w.rows("FLUSH")),
                2 => insert(&w, "2024-01-01T03:00:30", 2_000, 11),
                3 => drop((w.rows("FLUSH"), w.rows("DELETE FROM w WHERE s = 'a' AND i > 20000"))),
                _ => {
                    w.rows("CREATE TTL INDEX short ON w (t) EXPIRE AFTER 9 HOURS WHERE s = 'b'");
                    w.rows("ALTER COLLECTION w EXPIRE AFTER 11 HOURS");
                    w.set("2024-01-01T12:20:00.500Z");
                }
            }
            for _ in 0..24 {
                let (sql, ordered) = query(&mut draw);
                answered += usize::from(compare(&w, &sql, ordered));
            }
        }
        assert_eq!(answered, 5 * 24);
    }
}

#[test]
fn without_fast_paths_datafusion_answers() {
    let w = World::at("2024-01-01T12:00:00Z");
    w.rows("CREATE COLLECTION w WITH (timeField = 't', metaField = 's')");
    insert(&w, "2024-01-01T00:00:00", 500, 1);
    w.rows("FLUSH");
    let queries = [
        "SELECT s, max(i) AS m FROM w GROUP BY s ORDER BY s",
        "SELECT upper(s) AS u, count(*) AS n FROM w GROUP BY u ORDER BY u",
        "SELECT date_bin('1 hour', t) AS h, min(i) AS m FROM w GROUP BY h ORDER BY h DESC LIMIT 2",
        "SELECT count(*) AS n FROM w",
    ];
    let fast = |sql: &str| w.text(&format!("EXPLAIN PLAN {sql}")).contains("EngineAggregateExec");
    let before = queries.map(|sql| (w.text(sql), fast(sql)));
    assert!(before.iter().all(|(_, fast)| *fast));
    w.rows("SET ebbtide.fast_paths = false");
    assert_eq!(w.text("SHOW ebbtide.fast_paths"), r#"[{"name":"ebbtide.fast_paths","value":"false"}]"#);
    assert_eq!(queries.map(|sql| (w.text(sql), fast(sql))), before.clone().map(|(rows, _)| (rows, false)));
    assert!(w.error("SET ebbtide.fast_paths = 3").to_string().contains("true or false"));
    assert!(w.error("SET ebbtide.slow_paths = true").to_string().contains("available: ebbtide.fast_paths"));
    w.rows("SET ebbtide.fast_paths = true");
    assert_eq!(queries.map(|sql| (w.text(sql), fast(sql))), before);
}

#[test]
fn the_newest_groups_are_found_without_reading_the_others() {
    let w = World::at("2024-01-10T00:00:00Z");
    w.rows("CREATE COLLECTION w WITH (timeField = 't', metaField = 's')");
    insert(&w, "2024-01-01T00:00:00", 8 * 24 * 60, 10);
    w.rows("FLUSH");
    let metric = |sql: &str, name: &str| {
        let plan = w.text(&format!("EXPLAIN ANALYZE {sql}"));
        let (_, behind) = plan.split_once(&format!("{name}=")).unwrap_or_else(|| panic!("{plan}"));
        behind.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
    };
    let all = "SELECT date_bin('1 hour', t) AS h, max(d) AS m FROM w GROUP BY h ORDER BY h";
    for limited in [format!("{all} DESC LIMIT 5"), format!("{all} LIMIT 5"), format!("{all} DESC LIMIT 2 OFFSET 3")] {
        let touched = |sql: &str| metric(sql, "buckets_known") + metric(sql, "buckets_read");
        assert!(touched(&limited) * 4 < touched(all), "{limited}");
        assert!(compare(&w, &limited.replace("FROM w", "FROM {w}"), true));
    }
    // Gaps: the newest groups are far apart.
    w.rows("DELETE FROM w WHERE t > '2024-01-02T12:00:00Z' AND t < '2024-01-08T12:00:00Z'");
    w.rows("DELETE FROM w WHERE t > '2024-01-08T13:30:00Z'");
    for way in ["", " DESC"] {
        let sql = "SELECT date_bin('1 hour', t) AS h, max(d) AS m FROM {w} GROUP BY h ORDER BY h";
        assert!(compare(&w, &format!("{sql}{way} LIMIT 9"), true));
    }
}

#[test]
fn aggregates_that_memory_does_not_hold_are_left_to_what_spills() {
    let w = World::at("2024-01-10T00:00:00Z");
    w.rows("CREATE COLLECTION w WITH (timeField = 't', metaField = 's')");
    insert(&w, "2024-01-01T00:00:00", 3_000, 1);
    let settings = SessionSettings { memory_bytes: 32 << 20, ..SessionSettings::default() };
    let small = Session::with_settings(w.database.clone(), &settings).unwrap();
    let sql = "SELECT date_bin('1 second', t) AS h, s, max(d) AS a, sum(i) AS b FROM w GROUP BY h, s ORDER BY h, s";
    let explain = format!("EXPLAIN ANALYZE {sql}");
    assert!(w.text(&explain).contains("buckets_known="));
    let rows = |sql: &str| w.block_on(small.rows_as_json(sql)).unwrap();
    assert!(!Value::Array(rows(&explain)).to_string().contains("buckets_known="));
    assert_eq!(rows(sql), w.rows(sql));
}

#[test]
fn views_from_before_a_field_was_widened_and_other_instants_are_answered() {
    let w = World::at("2024-01-01T12:00:00Z");
    w.rows("CREATE COLLECTION w WITH (timeField = 't', metaField = 's') EXPIRE AFTER 10 HOURS");
    insert(&w, "2024-01-01T00:00:00", 500, 1);
    w.rows("CREATE VIEW v AS SELECT s, max(i) AS m, sum(i) AS n FROM w GROUP BY s");
    let of_a = "SELECT m::bigint AS m, n::bigint AS n FROM v WHERE s = 'a'";
    let before = w.text(of_a);
    w.rows("INSERT INTO w (t, s, i) VALUES ('2024-01-01T11:00:00Z', 'z', 3.5)");
    assert_eq!(w.text(of_a), before);
    assert_eq!(w.text("SELECT m FROM v WHERE s = 'z'"), r#"[{"m":3.5}]"#);
    let sql = "SELECT date_bin('1 hour', t) AS h, count(*) AS n FROM w GROUP BY h ORDER BY h DESC LIMIT 1";
    let read = sql.replace("FROM w", "FROM w WHERE i * 0 = 0");
    for now in ["2024-01-01T01:30:00Z", "2024-01-01T17:30:00Z", "2024-01-02T17:30:00Z"] {
        assert!(time(now).nanos() > 0);
        assert_eq!(w.text_at(now, sql), w.text_at(now, &read), "{now}");
    }
}

#[test]
fn prepared_aggregates_are_answered_when_they_run() {
    let w = World::at("2024-01-01T12:00:00Z");
    w.rows("CREATE COLLECTION w WITH (timeField = 't', metaField = 's')");
    insert(&w, "2024-01-01T00:00:00", 100, 1);
    w.rows("FLUSH");
    let sql = "SELECT s, avg(i) AS a, max(d) AS m FROM w WHERE t >= '2024-01-01T00:30:00Z' GROUP BY s ORDER BY s";
    w.rows(&format!("PREPARE means AS {sql}"));
    assert_eq!(w.text("EXECUTE means"), w.text(sql));
    // NaN is left to DataFusion, for which the statement's types must be right.
    w.rows("INSERT INTO w (t, s, d, i) VALUES ('2024-01-01T01:00:30Z', 'a', CAST('NaN' AS DOUBLE), 7)");
    assert_eq!(w.text("EXECUTE means"), w.text(sql));
    w.rows("SET ebbtide.fast_paths = false");
    assert_eq!(w.text("EXECUTE means"), w.text(sql));
}

#[test]
fn the_last_objects_of_many_groups_are_chosen_by_their_bytes() {
    let w = World::at("2024-01-10T00:00:00Z");
    w.text("CREATE COLLECTION o WITH (timeField = 't', metaField = 's')");
    w.text(
        "INSERT INTO o (t, s, v) SELECT t, n % 3000, {'text': 'a text of more than twelve bytes ' || n, 'list': [n, NULL], 'd': -0.0} \
         FROM (SELECT value AS t, date_part('epoch', value)::bigint AS n FROM generate_series( \
         TIMESTAMP '2024-01-01T00:00:01', TIMESTAMP '2024-01-01T02:30:00', INTERVAL '1 second')) AS g",
    );
    let rows = |sql: &str| w.rows(sql).iter().map(ToString::to_string).collect::<Vec<_>>();
    let last = rows("SELECT v FROM o WHERE t > '2024-01-01T01:40:00Z' ORDER BY t");
    assert_eq!(last.len(), 3000);
    for sql in [
        "SELECT v FROM (SELECT s, max(t) AS t, last(v, t) AS v FROM o GROUP BY s) AS q ORDER BY t",
        "SELECT v FROM (SELECT DISTINCT ON (s) t, v FROM o ORDER BY s, t DESC) AS q ORDER BY t",
        "SELECT v FROM (SELECT s, max(t) AS t, max_by(v, t) AS v FROM o GROUP BY s) AS q ORDER BY t",
    ] {
        assert_eq!(rows(sql), last, "{sql}");
        let plan = rows(&format!("EXPLAIN PLAN {sql}")).join("\n");
        assert!(plan.contains("value_key"), "{plan}");
    }
    let (null, first) = ("SELECT last(v, t) FILTER (WHERE s < 0) AS v FROM o", "SELECT first(v, t) AS v FROM o");
    assert_eq!(rows(null), [r#"{"v":null}"#]);
    assert_eq!(rows(first), rows("SELECT v FROM o ORDER BY t LIMIT 1"));
}
