//! Ebbtide's own statements: collections, TTL indexes, INSERT and DELETE, listings.

use crate::support::{World, two_sensors};
use ebbtide_ttl::Code;
use serde_json::json;

#[test]
fn the_example_of_the_manual() {
    let w = World::at("2021-05-18T00:00:00Z");
    w.rows("CREATE COLLECTION weather24h WITH (timeField = 'timestamp', metaField = 'sensor', granularity = 'hours') EXPIRE AFTER 24 HOURS");
    w.rows(
        "CREATE TTL INDEX nyc_hq ON weather24h (timestamp) EXPIRE AFTER 1 HOUR WHERE sensor = '40.761873, -73.984287'",
    );
    w.rows("INSERT INTO weather24h (timestamp, sensor, temp) VALUES ('2021-05-18T00:00:00Z', '40.761873, -73.984287', 12), ('2021-05-18T00:00:00Z', 'elsewhere', 13)");
    w.set("2021-05-18T00:59:59.999Z");
    assert_eq!(w.number("SELECT count(*) FROM weather24h"), 2);
    w.set("2021-05-18T01:00:00Z");
    assert_eq!(w.text("SELECT temp FROM weather24h"), r#"[{"temp":13}]"#);
    w.rows("ALTER TTL INDEX nyc_hq ON weather24h EXPIRE AFTER 2 HOURS");
    assert_eq!(w.number("SELECT count(*) FROM weather24h"), 2);
    w.rows("DROP TTL INDEX nyc_hq ON weather24h");
    w.set("2021-05-18T23:59:59Z");
    assert_eq!(w.number("SELECT count(*) FROM weather24h"), 2);
    w.rows("ALTER COLLECTION weather24h EXPIRE OFF");
    w.set("2022-05-18T00:00:00Z");
    assert_eq!(w.number("SELECT count(*) FROM weather24h"), 2);
    w.rows("ALTER COLLECTION weather24h EXPIRE AFTER 7 DAYS SET (expiry = 'bucket')");
    assert_eq!(w.number("SELECT count(*) FROM weather24h"), 2);
    assert_eq!(w.number("SELECT due_buckets FROM ebbtide.ttl_rules"), 2);
    assert_eq!(w.rows("SWEEP")[0]["deleted_buckets"], json!(2));
    assert_eq!(w.number("SELECT count(*) FROM weather24h"), 0);
    assert_eq!(w.number("SELECT sum(measurements) FROM ebbtide.sweeps"), 2);
}

#[test]
fn the_engine_judges_options_and_filters() {
    let w = two_sensors();
    let code = |sql: &str| w.error(sql).code().name();
    assert_eq!(code("CREATE COLLECTION x WITH (metaField = 's')"), "InvalidOptions");
    assert_eq!(code("CREATE COLLECTION w WITH (timeField = 'other')"), "NamespaceExists");
    assert_eq!(code("CREATE COLLECTION x WITH (timeField = 't', granularity = 'days')"), "BadValue");
    assert_eq!(code("CREATE COLLECTION x WITH (timeField = 't', colour = 'red')"), "IDLUnknownField");
    assert_eq!(code("CREATE COLLECTION x WITH (timeField = 't', capped = true)"), "InvalidOptions");
    assert_eq!(code("CREATE COLLECTION x WITH (timeField = 't') EXPIRE AFTER -1 DAYS"), "InvalidOptions");
    assert_eq!(code("CREATE TTL INDEX i ON w (t) EXPIRE AFTER 1 HOUR"), "InvalidOptions");
    assert_eq!(code("CREATE TTL INDEX i ON w (t) EXPIRE AFTER 1 HOUR WHERE v = 1"), "InvalidOptions");
    assert_eq!(code("CREATE TTL INDEX i ON w (t) EXPIRE AFTER 1 HOUR WHERE s <> 'a'"), "CannotCreateIndex");
    assert_eq!(code("CREATE TTL INDEX i ON w (t, s) EXPIRE AFTER 1 HOUR WHERE s = 'q'"), "CannotCreateIndex");
    assert_eq!(code("CREATE TTL INDEX short ON w (t) EXPIRE AFTER 2 HOURS WHERE s = 'q'"), "IndexKeySpecsConflict");
    assert_eq!(code("DROP TTL INDEX nothing ON w"), "IndexNotFound");
    assert_eq!(code("ALTER COLLECTION w SET (precision = 'ns')"), "InvalidOptions");
    assert_eq!(code("SET PARAMETER nothing = 1"), "InvalidOptions");
    let whole = w.error("CREATE TTL INDEX i ON w (t) EXPIRE AFTER 1 HOUR");
    assert!(whole.message().contains("ALTER COLLECTION w EXPIRE AFTER"), "{whole}");
    assert!(w.error("DROP HOLD ww").message().ends_with("there is no active hold 'ww'"));
    w.rows("CREATE HOLD case42 ON w WHERE s = 'a' REASON 'court order'");
    assert!(w.error("DROP HOLD case24").message().contains("did you mean 'case42'?"));
    w.rows("DROP HOLD case42");
    w.rows("CREATE COLLECTION IF NOT EXISTS w WITH (timeField = 'other')");
    w.rows("DROP COLLECTION IF EXISTS nothing");
    w.rows("SET PARAMETER ttlMonitorSleepSecs = 5");
    assert_eq!(
        w.text("SELECT value FROM ebbtide.parameters WHERE parameter = 'ttlMonitorSleepSecs'"),
        r#"[{"value":"5"}]"#
    );
}

#[test]
fn filters_over_sub_fields_of_the_meta() {
    let w = World::at("2024-01-01T00:00:00Z");
    w.rows("CREATE COLLECTION c WITH (timeField = 't', metaField = 'm') EXPIRE AFTER 1 DAY");
    w.rows("CREATE TTL INDEX low ON c (t) EXPIRE AFTER 1 HOUR WHERE m.site.floor < 3 AND (m.kind IN ('x', 'y') OR m.kind IS NULL)");
    w.rows(
        "INSERT INTO c (t, m) SELECT now(), named_struct('site', named_struct('floor', f), 'kind', k)
         FROM (VALUES (1, 'x'), (2, 'z'), (2, NULL), (3, 'y')) AS v (f, k)",
    );
    w.set("2024-01-01T01:00:00Z");
    let left = "SELECT m['site']['floor'] AS f, m['kind'] AS k FROM c ORDER BY f";
    assert_eq!(w.text(left), r#"[{"f":2,"k":"z"},{"f":3,"k":"y"}]"#);
    assert_eq!(w.number("SELECT count(*) FROM c WHERE m['site']['floor'] > 2"), 1);
    assert_eq!(w.number("SELECT count(*) FROM ebbtide.buckets WHERE rule = 'low'"), 2);
}

#[test]
fn inserts_are_atomic_and_bring_new_fields() {
    let w = two_sensors();
    assert_eq!(w.number("INSERT INTO w (t, s, v, note) VALUES (now(), 'c', 1, 'first'), (now(), 'c', NULL, NULL)"), 2);
    assert_eq!(w.text("SELECT v, note FROM w WHERE note IS NOT NULL"), r#"[{"v":1.0,"note":"first"}]"#);
    assert_eq!(w.number("INSERT INTO w VALUES (now(), 'd')"), 1);
    assert_eq!(w.number("INSERT INTO w SELECT t + INTERVAL '1 second', s, v FROM w WHERE s = 'c'"), 2);
    let error = w.error("INSERT INTO w (t, s, v) VALUES (now(), 'e', 1), (NULL, 'e', 2)");
    assert_eq!(error.code().name(), "BadValue");
    assert!(error.message().contains("index 1"), "{error}");
    assert_eq!(w.error("INSERT INTO w (t, v) VALUES (now(), 'much')").code().name(), "TypeMismatch");
    assert!(w.error("INSERT INTO w (t, v) VALUES ('yesterday', 1)").message().contains("'yesterday' is not a time"));
    assert!(w.error("INSERT INTO w VALUES (now(), 'x', 1, 'y', 2)").message().contains("name them"));
    assert_eq!(w.number("SELECT count(*) FROM w WHERE s = 'e'"), 0);
    assert_eq!(w.error("INSERT INTO nothing VALUES (1)").code().name(), "NamespaceNotFound");
}

#[test]
fn deletes_reach_hidden_measurements_and_count_visible_ones() {
    let w = two_sensors();
    assert_eq!(w.number("DELETE FROM w WHERE s = 'a' AND t <= '2024-01-01T23:10:00.000000001Z'"), 1);
    w.rows("ALTER COLLECTION w EXPIRE OFF");
    w.rows("DROP TTL INDEX short ON w");
    assert_eq!(w.number("SELECT count(*) FROM w WHERE s = 'a'"), 4);
    assert_eq!(w.number("DELETE FROM w WHERE v BETWEEN 3 AND 4 AND upper(s) LIKE 'B%'"), 12);
    assert_eq!(w.number("DELETE FROM w WHERE v <> 23"), 126);
    assert!(w.error("DELETE FROM w WHERE v > (SELECT avg(v) FROM w)").message().contains("subquery"));
    assert!(w.error("DELETE FROM w WHERE nothing = 1").message().contains("there is no column 'nothing'"));
    assert_eq!(w.number("SELECT count(*) FROM w"), 10);
    assert!(w.text("EXPLAIN DELETE FROM w WHERE v = 1").contains("DeleteSink"));
    assert!(w.error("EXPLAIN ANALYZE DELETE FROM w").message().contains("run the DELETE by itself"));
    w.rows("PREPARE gone AS DELETE FROM w WHERE s = $1");
    assert_eq!(w.number("EXECUTE gone('nobody')"), 0);
    w.rows("PREPARE put AS INSERT INTO w (t, s, v) VALUES (now(), $1, 23)");
    assert_eq!(w.number("EXECUTE put('b')"), 1);
    assert_eq!(w.number("DELETE FROM w WHERE t = now()"), 1);
    assert_eq!(w.number("DELETE FROM w"), 10);
    assert_eq!(w.number("SELECT count(*) FROM w"), 0);
}

#[test]
fn listings_show_what_the_contract_names() {
    let w = two_sensors();
    let ttl = w.rows("SHOW TTL FOR w");
    assert_eq!(ttl.len(), 2);
    assert_eq!(ttl[1]["rule"], json!("short"));
    assert_eq!(ttl[1]["filter"], json!(r#"{"s":"a"}"#));
    assert_eq!(ttl[1]["measurements"], json!(5));
    assert_eq!(ttl[1]["due_measurements"], json!(138));
    let buckets = w.rows("SHOW BUCKETS FOR w");
    assert_eq!(buckets.len(), 48);
    assert_eq!(buckets[0]["window_end"], json!("2024-01-01T01:00:00Z"));
    assert_eq!(buckets[0]["sealed"], json!(false));
    let all = w.rows("SHOW COLLECTIONS");
    assert_eq!(all[0]["expire_after_seconds"], json!(86400));
    assert_eq!(all[0]["span_seconds"], json!(3600));
    assert_eq!(w.rows("SHOW OPERATIONS").len(), 0);
    assert_eq!(
        w.text("DESCRIBE w"),
        r#"[{"column":"t","type":"timestamp(ms)","role":"time"},{"column":"s","type":"string","role":"meta"},{"column":"v","type":"double","role":"field"}]"#
    );
    let expiry = w.rows("EXPLAIN EXPIRY FOR w");
    assert_eq!(expiry[0]["rule"], json!("short"));
    assert_eq!(expiry[0]["measurements"], json!(138));
    assert_eq!(w.rows("EXPLAIN EXPIRY FOR w AT '2030-01-01'").len(), 2);
    assert_eq!(w.rows("EXPLAIN EXPIRY FOR w WITH (expireAfterSeconds = 0)").len(), 1);
    assert_eq!(w.error("EXPLAIN EXPIRY FOR w WITH (expireAfterSeconds = -1)").code().name(), "InvalidOptions");
    w.rows("FLUSH");
    w.rows("COMPACT w");
    assert!(w.number("SELECT count(*) FROM ebbtide.segments") >= 1);
}

#[test]
fn a_measurement_out_of_range_suspends_and_says_so() {
    let w = two_sensors();
    w.rows("INSERT INTO w (t, s) VALUES ('1969-12-31T23:59:59Z', 'old')");
    assert_eq!(w.number("SELECT count(*) FROM w"), 289);
    assert_eq!(w.rows("SHOW TTL")[0]["state"], json!("suspended: 1 measurements out of range"));
    assert!(w.text("EXPLAIN ANALYZE SELECT * FROM w").contains("suspended"));
    w.rows("DELETE FROM w WHERE t < '1970-01-01'");
    assert_eq!(w.number("SELECT count(*) FROM w"), 148);
}

#[test]
fn an_insert_of_more_than_is_stored_at_once_is_refused_and_stores_nothing() {
    let world = World::at("2024-01-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 't')");
    let source = "SELECT to_timestamp(value), repeat('0123456789', 1000) FROM generate_series(1, 100000)";
    for sql in [format!("INSERT INTO w (t, s) {source}"), format!("EXPLAIN ANALYZE INSERT INTO w (t, s) {source}")] {
        if sql.starts_with("EXPLAIN") {
            world.rows("INSERT INTO w (t, s) VALUES ('2024-01-01', 'x')");
        }
        let error = world.error(&sql);
        assert_eq!(error.code(), Code::BSONObjectTooLarge, "{error}");
        assert!(error.message().contains("268435456 bytes") && error.message().contains("split it"), "{error}");
    }
    assert_eq!(world.text("SELECT s FROM w"), "[{\"s\":\"x\"}]");
}

#[test]
fn a_change_of_a_rule_says_how_many_visible_measurements_it_hides() {
    let w = two_sensors();
    let message = |sql: &str| w.block_on(w.session().execute(sql)).unwrap().message.unwrap();
    assert_eq!(
        message("ALTER COLLECTION w EXPIRE AFTER INTERVAL '12 hours'"),
        "collection w changed; this hides 72 measurements that were visible"
    );
    assert_eq!(w.number("SELECT count(*) FROM w WHERE s = 'b'"), 71);
    assert_eq!(message("ALTER COLLECTION w EXPIRE AFTER 10 YEARS"), "collection w changed");
    assert_eq!(w.number("SELECT count(*) FROM w WHERE s = 'b'"), 144);
    let made = message("CREATE TTL INDEX late ON w (t) EXPIRE AFTER 85800 SECONDS WHERE s = 'b'");
    assert_eq!(made, "TTL index late created on w; this hides 2 measurements that were visible");
    assert_eq!(message("ALTER TTL INDEX late ON w EXPIRE AFTER 85799 SECONDS"), "TTL index late changed");
    let one = message("ALTER TTL INDEX late ON w EXPIRE AFTER 85200 SECONDS");
    assert_eq!(one, "TTL index late changed; this hides 1 measurement that was visible");
}
