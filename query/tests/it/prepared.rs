//! Prepared queries: planned once, exact whenever they run.

use crate::support::{World, time, two_sensors};
use datafusion::arrow::datatypes::DataType;
use ebbtide_query::{PreparedStatement, QueryError, ScalarValue, statement};
use ebbtide_ttl::Code;
use futures::TryStreamExt;

fn run(w: &World, prepared: &PreparedStatement<'_>, values: &[ScalarValue]) -> Result<String, QueryError> {
    let result = w.block_on(prepared.execute(values))?;
    let rows = result.batches.iter().flat_map(|batch| ebbtide_query::output::json_rows(batch).unwrap());
    Ok(serde_json::Value::Array(rows.map(serde_json::Value::Object).collect()).to_string())
}

fn prepare<'a>(w: &'a World, sql: &str) -> PreparedStatement<'a> {
    w.block_on(w.session().prepare(sql)).unwrap_or_else(|e| panic!("{sql}\n{e}"))
}

#[test]
fn prepared_queries_hide_what_has_expired_when_they_run() {
    let w = two_sensors();
    let count = prepare(&w, "SELECT count(*) AS n FROM w WHERE s = $1");
    let of = |sensor: &str| run(&w, &count, &[sensor.into()]).unwrap();
    assert_eq!((of("a"), of("b")), (r#"[{"n":5}]"#.to_owned(), r#"[{"n":143}]"#.to_owned()));
    for (now, a, b) in [("2024-01-02T00:10:00Z", 4, 142), ("2024-01-02T12:00:00Z", 0, 71)] {
        w.set(now);
        assert_eq!((of("a"), of("b")), (format!(r#"[{{"n":{a}}}]"#), format!(r#"[{{"n":{b}}}]"#)), "{now}");
        assert_eq!(of("b"), w.text("SELECT count(*) AS n FROM w WHERE s = 'b'"));
    }
}

#[test]
fn prepared_queries_see_what_was_inserted_since_and_their_own_now() {
    let w = two_sensors();
    let newest = prepare(&w, "SELECT max(v) AS v, now() - max(t) < INTERVAL '1 hour' AS fresh FROM w WHERE s = $1");
    assert_eq!(run(&w, &newest, &["b".into()]).unwrap(), r#"[{"v":23.0,"fresh":true}]"#);
    w.set("2024-01-02T06:00:00Z");
    assert_eq!(run(&w, &newest, &["b".into()]).unwrap(), r#"[{"v":23.0,"fresh":false}]"#);
    w.rows("INSERT INTO w (t, s, v) VALUES ('2024-01-02T05:59:00Z', 'b', 99.5)");
    assert_eq!(run(&w, &newest, &["b".into()]).unwrap(), r#"[{"v":99.5,"fresh":true}]"#);
}

#[test]
fn prepared_queries_are_planned_again_when_a_schema_or_a_view_changes() {
    let w = two_sensors();
    w.rows("CREATE VIEW warm AS SELECT * FROM w WHERE v > 22");
    let (all, warm) =
        (prepare(&w, "SELECT * FROM w ORDER BY t DESC LIMIT 1"), prepare(&w, "SELECT count(*) FROM warm"));
    assert_eq!(run(&w, &warm, &[]).unwrap(), w.text("SELECT count(*) FROM w WHERE v > 22"));
    w.rows("INSERT INTO w (t, s, v, wind) VALUES ('2024-01-01T23:59:00Z', 'b', 1.0, 7)");
    assert_eq!(run(&w, &all, &[]).unwrap(), w.text("SELECT * FROM w ORDER BY t DESC LIMIT 1"));
    w.rows("INSERT INTO w (t, s, v, wind) VALUES ('2024-01-01T23:59:30Z', 'b', 1.0, 7.25)");
    assert!(run(&w, &all, &[]).unwrap().contains(r#""wind":7.25"#));
    w.rows("CREATE OR REPLACE VIEW warm AS SELECT * FROM w WHERE v > 20");
    assert_eq!(run(&w, &warm, &[]).unwrap(), w.text("SELECT count(*) FROM w WHERE v > 20"));
    w.rows("DROP COLLECTION w");
    assert_eq!(run(&w, &all, &[]).unwrap_err().code(), Code::NamespaceNotFound);
}

#[test]
fn prepared_queries_give_what_the_same_text_with_the_values_gives() {
    let w = two_sensors();
    let queries = [
        "SELECT date_bin('1 hour', t) AS h, s, max(v) AS v FROM w WHERE s = $1 AND t >= $2 GROUP BY h, s ORDER BY h",
        "SELECT * FROM w WHERE t > $2 AND s <> $1 ORDER BY t, s LIMIT 7",
        "SELECT s, avg(v) AS v FROM w WHERE t >= $2 OR s = $1 GROUP BY s ORDER BY s",
        "SELECT count(*) AS n FROM (SELECT DISTINCT v FROM w WHERE s = $1 UNION ALL SELECT 1.5) AS x WHERE v < 9 OR $2 < now()",
        "SELECT s, v FROM w WHERE v = (SELECT max(v) FROM w WHERE s = $1 AND t < $2) ORDER BY t, s LIMIT 3",
    ];
    for query in queries {
        let prepared = prepare(&w, query);
        for (sensor, at) in
            [("a", "2024-01-01T23:20:00Z"), ("b", "2024-01-01T10:00:00.000000001Z"), ("x", "1999-01-01T00:00:00Z")]
        {
            let literal = query.replace("$1", &format!("'{sensor}'")).replace("$2", &format!("TIMESTAMP '{at}'"));
            let nanos = i64::try_from(time(at).nanos()).unwrap();
            let instant = ScalarValue::TimestampNanosecond(Some(nanos), Some("UTC".into()));
            assert_eq!(run(&w, &prepared, &[sensor.into(), instant]).unwrap(), w.text(&literal), "{literal}");
        }
    }
}

#[test]
fn parameters_in_the_places_of_texts_are_texts() {
    let w = two_sensors();
    for call in ["strftime(t, $1)", "strftime($1, t)", "strftime($1, max(t))", "to_char(t, $1)", "to_char(now(), $1)"] {
        let query = format!("SELECT {call} AS x FROM w GROUP BY t ORDER BY t LIMIT 1");
        let statement = statement::parse(&query).unwrap().remove(0);
        let types = w.block_on(w.session().prepare_query(statement, &query)).unwrap().parameter_types().unwrap();
        assert_eq!(types, [Some(DataType::Utf8)], "{call}");
        assert_eq!(run(&w, &prepare(&w, &query), &["%Y".into()]).unwrap(), r#"[{"x":"2024"}]"#, "{call}");
    }
}

#[test]
fn a_time_that_is_a_parameter_stays_before_its_format() {
    let w = two_sensors();
    for call in ["strftime($1, '%' || s)", "strftime($1, '%Y-' || '%m')", "strftime($1, $2)"] {
        let query = format!("SELECT {call} AS x FROM (VALUES ('Y-%m')) AS formats(s)");
        let values = [millis("2024-03-05T00:00:00Z"), "%Y-%m".into()];
        let given = if call.contains("$2") { &values[..] } else { &values[..1] };
        assert_eq!(run(&w, &prepare(&w, &query), given).unwrap(), r#"[{"x":"2024-03"}]"#, "{call}");
    }
}

fn is_generic(prepared: &PreparedStatement<'_>) -> bool {
    format!("{prepared:?}").contains("GenericPlan")
}

fn millis(text: &str) -> ScalarValue {
    ScalarValue::TimestampMillisecond(Some(i64::try_from(time(text).nanos() / 1_000_000).unwrap()), Some("UTC".into()))
}

#[test]
fn a_query_is_optimized_once_for_all_values_of_a_type() {
    let w = two_sensors();
    for (query, generic) in [
        ("SELECT date_bin('1 hour', t) AS h, max(v) AS v FROM w WHERE s = $1 AND t >= $2 GROUP BY h ORDER BY h", true),
        ("SELECT s, avg(v) AS v FROM w WHERE (s = $1 OR s = 'a') AND t < $2 GROUP BY s ORDER BY s", true),
        ("SELECT * FROM w WHERE t >= $2 AND (s = $1 OR v > 22.5) ORDER BY t, s LIMIT 5", true),
        ("SELECT count(*) AS n FROM w WHERE s = '' || $1 AND t BETWEEN $2 AND '2024-01-01T20:00:00Z'", true),
        ("SELECT s, count(*) AS n FROM w WHERE t > $2 GROUP BY s HAVING max(s) <> $1 ORDER BY s", true),
        // The result depends on the instant, the columns on the value, the condition on what is stored elsewhere.
        ("SELECT count(*) AS n FROM w WHERE s = $1 AND t >= $2 AND t < now()", false),
        ("SELECT $1 AS s, count(*) AS n FROM w WHERE t >= $2", false),
        ("SELECT s, max(v) AS v FROM w WHERE s IN ($1, 'x', 'a', 'y') AND t < $2 GROUP BY s ORDER BY s", true),
        ("SELECT count(*) AS n FROM w WHERE s IN ($1, 'a') AND t >= $2", true),
        ("SELECT count(*) AS n FROM w WHERE s IN ('a', 'b') AND s NOT IN ($1) AND t >= $2", false),
        ("SELECT count(*) AS n FROM w WHERE (s = 'a' OR s = 'b') AND s NOT IN ($1) AND t >= $2", false),
        ("SELECT count(*) AS n FROM w WHERE s IN ($1, 'y') AND s IN ('a', 'b') AND t >= $2", false),
        ("SELECT count(*) AS n FROM w WHERE s IN ($1, 'y') AND s = ANY(ARRAY['a', 'b']) AND t >= $2", false),
        ("SELECT count(*) AS n FROM w WHERE s NOT IN ($1) AND array_has(['a', 'b'], s) AND t >= $2", false),
        ("SELECT count(*) AS n FROM w WHERE s = ANY(ARRAY[$1, 'y']) AND s IN ('a', 'b') AND t >= $2", false),
        ("SELECT count(*) AS n FROM w WHERE list_contains(['x', $1], s) AND t >= $2", false),
        ("SELECT count(*) AS n FROM w WHERE (s = $1 OR s = 'y') AND (s = 'a' OR s = 'b') AND t >= $2", false),
        ("SELECT count(*) AS n FROM w WHERE s IN ($1) AND (('a' <> s AND 'z' <> s) = false) AND t >= $2", false),
        ("SELECT count(*) AS n FROM w WHERE s ~ $1 AND t >= $2", false),
        ("SELECT count(*) AS n FROM w WHERE s = $1 AND v = (SELECT max(v) FROM w WHERE t >= $2)", false),
    ] {
        let prepared = prepare(&w, query);
        for (run, (sensor, at)) in [
            ("a", "2024-01-01T23:20:00Z"),
            ("b", "2024-01-01T10:00:00Z"),
            ("x", "1999-01-01T00:00:00Z"),
            ("b", "2024-01-01T19:59:59.999Z"),
            ("it's", "2024-01-01T00:00:00Z"),
        ]
        .into_iter()
        .enumerate()
        {
            let text = format!("'{}'", sensor.replace('\'', "''"));
            let literal = query.replace("$1", &text).replace("$2", &format!("TIMESTAMP '{at}'"));
            assert_eq!(run_of(&w, &prepared, sensor, millis(at)), w.text(&literal), "{literal}");
            assert_eq!(is_generic(&prepared), generic && run > 0, "{query}: run {run}");
        }
    }
}

fn run_of(w: &World, prepared: &PreparedStatement<'_>, sensor: &str, at: ScalarValue) -> String {
    run(w, prepared, &[sensor.into(), at]).unwrap()
}

#[test]
fn values_that_a_generic_plan_is_not_for_are_planned_by_themselves() {
    let w = two_sensors();
    let count = prepare(&w, "SELECT count(*) AS n FROM w WHERE s = $1 AND t >= $2");
    let of = |at: ScalarValue| run_of(&w, &count, "b", at);
    let text = |at: &str| w.text(&format!("SELECT count(*) AS n FROM w WHERE s = 'b' AND t >= {at}"));
    for _ in 0..3 {
        assert_eq!(of(millis("2024-01-01T10:00:00Z")), text("'2024-01-01T10:00:00Z'"));
    }
    assert!(is_generic(&count));
    let nanos = |text: &str| {
        ScalarValue::TimestampNanosecond(Some(i64::try_from(time(text).nanos()).unwrap()), Some("UTC".into()))
    };
    // The same instants in another unit, and one that the collection cannot store.
    assert_eq!(of(nanos("2024-01-01T10:00:00Z")), text("'2024-01-01T10:00:00Z'"));
    assert_eq!(of(nanos("2024-01-01T10:00:00.000000001Z")), text("TIMESTAMP '2024-01-01T10:00:00.000000001Z'"));
    assert_eq!(of("2024-01-01T12:00:00Z".into()), text("'2024-01-01T12:00:00Z'"));
    assert_eq!(of(ScalarValue::TimestampMillisecond(None, Some("UTC".into()))), r#"[{"n":0}]"#);
    assert_eq!(run(&w, &count, &[ScalarValue::Utf8(None), millis("2024-01-01T10:00:00Z")]).unwrap(), r#"[{"n":0}]"#);
    assert_eq!(of(millis("2024-01-01T10:00:00Z")), text("'2024-01-01T10:00:00Z'"));
}

#[test]
fn a_query_is_short_if_its_plan_is_known_and_few_rows_are_read() {
    let w = two_sensors();
    w.rows(
        "INSERT INTO w (t, s, v) SELECT value, 'c', 1.5 FROM generate_series(TIMESTAMP '2024-01-01T10:00:00',
         TIMESTAMP '2024-01-01T21:06:39', INTERVAL '1 second')",
    );
    for (text, field, rows) in [
        ("SELECT date_bin('1 hour', t) AS h, max(v) AS v FROM w WHERE s = $1 AND t >= $2 GROUP BY h", "x", [3, 1]),
        ("SELECT s, stddev(v) AS v FROM w WHERE s = $1 AND t >= $2 GROUP BY s", "y", [1, 1]),
        ("SELECT t, v FROM w WHERE s = $1 AND t >= $2 ORDER BY v LIMIT 500", "z", [18, 400]),
    ] {
        let statement = ebbtide_query::statement::parse(text).unwrap().remove(0);
        let query = w.block_on(w.session().prepare_query(statement, text)).unwrap();
        let short = |sensor: &str, at: &str| {
            let values = [sensor.into(), millis(at)];
            let started = w.block_on(query.start_short(w.session(), &values)).unwrap()?;
            let batches: Vec<_> = w.block_on(started.stream.unwrap().try_collect()).unwrap();
            Some(batches.iter().map(|batch| batch.num_rows()).sum::<usize>())
        };
        assert_eq!(short("b", "2024-01-01T21:00:00Z"), None, "{text}: no plan is known");
        for _ in 0..2 {
            let values = ["b".into(), millis("2024-01-01T21:00:00Z")];
            w.block_on(query.start(w.session(), &values)).map(drop).unwrap();
        }
        assert_eq!(short("b", "2024-01-01T21:00:00Z"), Some(rows[0]), "{text}");
        assert_eq!(short("c", "2024-01-01T21:00:00Z"), Some(rows[1]), "{text}");
        assert_eq!(short("c", "2024-01-01T10:00:00Z"), None, "{text}: 40,000 rows");
        w.rows(&format!("INSERT INTO w (t, s, {field}) VALUES ('2024-01-01T23:59:59Z', 'd', 7)"));
        assert_eq!(short("b", "2024-01-01T21:00:00Z"), None, "{text}: the collection has another field");
    }
}

#[test]
fn the_columns_with_values_are_those_of_the_rows() {
    let w = two_sensors();
    let float = || ScalarValue::from(0.5);
    for (text, values) in [
        ("SELECT t, $1 AS label FROM w LIMIT 1", vec!["x".into()]),
        ("SELECT $1 AS label", vec![ScalarValue::Null]),
        ("SELECT v + $1 AS v, coalesce(v, $1) AS c FROM w", vec![float()]),
        ("SELECT $1::int + 1 AS n", vec![ScalarValue::from(1_i64)]),
        ("SELECT CASE WHEN s = $1 THEN 0 ELSE v END AS c FROM w WHERE v > $2", vec!["b".into(), float()]),
        ("SELECT 1 AS x WHERE 'a' < $1 UNION ALL SELECT v FROM w", vec!["b".into()]),
        ("SELECT s, v FROM w WHERE s = $1 AND v > $2", vec!["b".into(), float()]),
    ] {
        let statement = ebbtide_query::statement::parse(text).unwrap().remove(0);
        let query = w.block_on(w.session().prepare_query(statement, text)).unwrap();
        // In later runs there may be a generic plan.
        for _ in 0..4 {
            let told = w.block_on(query.columns_with(w.session(), Some(&values))).unwrap();
            let started = w.block_on(query.start(w.session(), &values)).unwrap();
            assert_eq!(told, started.schema, "{text}");
        }
        assert!(w.block_on(query.columns_with(w.session(), Some(&[]))).is_err(), "{text}");
    }
}

#[test]
fn a_generic_plan_sees_what_is_inserted_what_expires_and_new_settings() {
    let w = two_sensors();
    let count = prepare(&w, "SELECT count(*) AS n, min(v) AS low FROM w WHERE s = $1 AND t >= $2");
    let direct = "SELECT count(*) AS n, min(v) AS low FROM w WHERE s = 'b' AND t >= '2024-01-01T00:00:00Z'";
    let check = || assert_eq!(run_of(&w, &count, "b", millis("2024-01-01T00:00:00Z")), w.text(direct));
    for _ in 0..3 {
        check();
    }
    w.rows("INSERT INTO w (t, s, v) VALUES ('2024-01-01T23:59:00Z', 'b', -7)");
    check();
    w.set("2024-01-02T12:00:00Z");
    check();
    w.rows("INSERT INTO w (t, s, v, wind) VALUES ('2024-01-02T11:59:00Z', 'b', 1.0, 7)");
    check();
    let at = millis("2024-01-01T00:00:00Z");
    for (setting, generic) in [("ebbtide.fast_paths = false", false), ("ebbtide.fast_paths = true", true)] {
        w.rows(&format!("SET {setting}"));
        let other = prepare(&w, "SELECT count(*) AS n, min(v) AS low FROM w WHERE s = $1 AND t >= $2");
        for _ in 0..3 {
            check();
            assert_eq!(run_of(&w, &other, "b", at.clone()), w.text(direct), "{setting}");
        }
        assert_eq!(is_generic(&other), generic, "{setting}");
    }
}

#[test]
fn values_that_the_optimizer_could_take_for_others_give_what_the_text_gives() {
    let w = two_sensors();
    w.rows("INSERT INTO w (t, s, v) VALUES ('2024-01-01T23:59:59Z', 'b', CAST('NaN' AS DOUBLE))");
    w.rows("CREATE VIEW few AS SELECT * FROM w WHERE s IN ('a', 'b')");
    let negative_nan = f64::from_bits(0xfff8_0000_0000_0000);
    for (query, runs) in [
        ("SELECT count(*) AS n FROM w WHERE s IN ('a', 'b') AND s NOT IN ($1, $2)", [["x", "y"], ["a", "y"]]),
        ("SELECT count(*) AS n FROM w WHERE s IN ($1, $2) AND s IN ('a', 'b')", [["x", "y"], ["a", "y"]]),
        ("SELECT count(*) AS n FROM w WHERE s IN ($1, $2) AND s NOT IN ($1)", [["a", "b"], ["b", "b"]]),
        (
            "SELECT count(*) AS n FROM (SELECT * FROM w WHERE s IN ('a', 'b')) AS x WHERE s NOT IN ($1, $2)",
            [["x", "y"], ["a", "y"]],
        ),
        ("SELECT count(*) AS n FROM few WHERE s NOT IN ($1, $2)", [["x", "y"], ["a", "y"]]),
        ("SELECT count(*) AS n FROM w WHERE s IN ($1, $2, 'x', 'y')", [["a", "b"], ["b", "b"]]),
        ("SELECT count(*) AS n FROM w WHERE s = $1 AND s = $2", [["a", "b"], ["b", "b"]]),
        ("SELECT count(*) AS n FROM w WHERE s <> $1 OR s = $2", [["a", "b"], ["b", "b"]]),
    ] {
        let (prepared, name) = (prepare(&w, query), format!("p{}", query.len()));
        w.rows(&format!("PREPARE {name} AS {query}"));
        for [first, second] in [runs[0], runs[0], runs[0], runs[1]] {
            let direct = w.text(&query.replace("$1", &format!("'{first}'")).replace("$2", &format!("'{second}'")));
            assert_eq!(run(&w, &prepared, &[first.into(), second.into()]).unwrap(), direct, "{query}");
            assert_eq!(w.text(&format!("EXECUTE {name}('{first}', '{second}')")), direct, "{query}");
        }
        w.rows(&format!("DEALLOCATE {name}"));
    }
    let above = prepare(&w, "SELECT count(*) AS n FROM w WHERE v > $1");
    for value in [1.5, 2.5, 3.5, f64::NAN, negative_nan, -0.0, f64::INFINITY] {
        let direct = w.text(&format!("SELECT count(*) AS n FROM w WHERE v > CAST('{value}' AS DOUBLE)"));
        assert_eq!(run(&w, &above, &[value.into()]).unwrap(), direct, "{value}");
    }
}

#[test]
fn a_column_may_have_any_name() {
    let w = World::at("2024-01-02T00:00:00Z");
    for (time, meta, field) in [("parameter", "s", "v"), ("t", "parameter", "v"), ("t", "s", "parameter")] {
        w.rows(&format!("CREATE COLLECTION q WITH (timeField = '{time}', metaField = '{meta}')"));
        w.rows(&format!("INSERT INTO q ({time}, {meta}, {field}) VALUES ('2024-01-01T00:00:00Z', 'a', 1.5)"));
        w.rows("PREPARE p AS SELECT count(*) AS n FROM q WHERE parameter >= $1");
        assert_eq!(w.text("EXECUTE p(NULL)"), r#"[{"n":0}]"#, "{time} {meta} {field}");
        w.rows("DEALLOCATE p");
        w.rows("DROP COLLECTION q");
    }
}

#[test]
fn a_query_with_very_many_conditions_can_be_prepared_and_dropped() {
    let w = two_sensors();
    let conditions: String = (0..10_000).map(|n| format!(" AND v <> {n}.25")).collect();
    let prepared = prepare(&w, &format!("SELECT count(*) AS n FROM w WHERE s >= $1{conditions}"));
    for _ in 0..3 {
        assert_eq!(run(&w, &prepared, &["b".into()]).unwrap(), r#"[{"n":143}]"#);
    }
}

#[test]
fn prepared_queries_refuse_what_does_not_fit() {
    let w = two_sensors();
    let error = |sql: &str| w.block_on(w.session().prepare(sql)).unwrap_err();
    for sql in ["DELETE FROM w", "SHOW TTL", "SELECT 1; SELECT 2", "INSERT INTO w (t, s) VALUES (now(), 'a')", ""] {
        assert!(error(sql).to_string().contains("only queries can be prepared"), "{sql}: {}", error(sql));
    }
    assert!(error("SELECT * FROM w WHERE s = $2").to_string().contains("$1 is missing"));
    assert!(error("SELECT nothing FROM w").to_string().contains("nothing"));
    let prepared = prepare(&w, "SELECT count(*) AS n FROM w WHERE s = $1");
    let refused = run(&w, &prepared, &[]).unwrap_err();
    assert_eq!(refused.code(), Code::BadValue);
    assert!(refused.to_string().contains("expected 1, got 0"), "{refused}");
    assert_eq!(run(&w, &prepared, &["b".into()]).unwrap(), r#"[{"n":143}]"#);
}

#[test]
fn a_parameter_of_any_is_a_list_and_may_be_written_as_postgres_writes_one() {
    let w = two_sensors();
    let count = prepare(&w, "SELECT count(*) AS n FROM w WHERE s = ANY($1) AND NOT v = ANY($2)");
    assert_eq!(run(&w, &count, &["{a,c}".into(), "{}".into()]).unwrap(), r#"[{"n":5}]"#);
    assert_eq!(run(&w, &count, &["{a,b}".into(), "{}".into()]).unwrap(), r#"[{"n":148}]"#);
    assert!(run(&w, &count, &["{a".into(), "{}".into()]).unwrap_err().message().contains("is not an array"));
    let all = prepare(&w, "SELECT count(*) AS n FROM w WHERE s <> ALL($1)");
    assert_eq!(run(&w, &all, &["{a}".into()]).unwrap(), r#"[{"n":143}]"#);
}

#[test]
fn a_parameter_that_an_interval_is_multiplied_by_is_a_number() {
    let w = two_sensors();
    let days = prepare(&w, "SELECT TIMESTAMP '2024-01-01' + INTERVAL '1 day' * $1 AS t");
    for three in [ScalarValue::from(3_i64), ScalarValue::from(3.0)] {
        assert_eq!(run(&w, &days, &[three]).unwrap(), r#"[{"t":"2024-01-04T00:00:00Z"}]"#);
    }
}
