//! What SQL sees, and that all of it works.

use crate::support::{World, time, two_sensors};
use serde_json::json;

#[test]
fn exact_mode_hides_what_has_expired_from_every_kind_of_read() {
    let w = two_sensors();
    // 'a': 23:00 has expired at this instant, 23:10 has not. 'b': midnight of the day before has.
    assert_eq!(
        w.text("SELECT s, count(*) AS n FROM w GROUP BY s ORDER BY s"),
        r#"[{"s":"a","n":5},{"s":"b","n":143}]"#
    );
    assert_eq!(w.number("SELECT count(*) FROM w"), 148);
    assert_eq!(w.text("SELECT min(t) AS t FROM w WHERE s = 'a'"), r#"[{"t":"2024-01-01T23:10:00Z"}]"#);
    assert_eq!(w.text("SELECT min(t) AS t FROM w"), r#"[{"t":"2024-01-01T00:10:00Z"}]"#);
    assert_eq!(w.number("SELECT count(*) FROM w WHERE t < TIMESTAMP '2024-01-01T23:10:00Z' AND s = 'a'"), 0);
    assert_eq!(w.number("SELECT count(*) FROM (SELECT * FROM w WHERE s = 'a' LIMIT 100)"), 5);
    assert_eq!(w.number("SELECT count(*) FROM w AS x JOIN w AS y ON x.t = y.t AND x.s = 'a' AND y.s = 'b'"), 5);
    assert_eq!(w.number("SELECT sum(measurements) AS n FROM ebbtide.buckets"), 148);
    assert_eq!(w.number("SELECT measurements FROM ebbtide.collections"), 148);
    // The same after everything is sealed, and after a sweep.
    w.rows("FLUSH");
    assert_eq!(w.number("SELECT count(*) FROM w"), 148);
    w.rows("SWEEP");
    assert_eq!(w.number("SELECT count(*) FROM w"), 148);
    assert_eq!(w.number("SELECT count(v) FROM w WHERE s = 'a'"), 5);
}

#[test]
fn what_expiry_hid_is_named_also_where_statistics_answered() {
    let w = two_sensors();
    let hidden = |sql: &str| {
        let rows = w.rows(&format!("EXPLAIN ANALYZE {sql}"));
        let row = rows.into_iter().find(|row| row["plan_type"] == "Hidden by TTL").unwrap();
        row["plan"].as_str().unwrap().to_owned()
    };
    let cuts = "collection=w, now=2024-01-02T00:00:00Z, hides=[collection: t <= 2024-01-01T00:00:00Z; \
                short: t <= 2024-01-01T23:00:00Z]";
    // The first measurement of 'b' and all but five of 'a', of which 22 windows are hidden as a whole.
    for sealed in [false, true] {
        if sealed {
            w.rows("FLUSH");
        }
        for sql in ["SELECT count(*) FROM w", "SELECT count(v), sum(v) FROM w"] {
            assert_eq!(hidden(sql), format!("{cuts}, buckets_hidden_by_ttl=23, rows_hidden_by_ttl=140"), "{sql}");
        }
    }
    let both = hidden("SELECT count(*) FROM w AS x JOIN w AS y ON x.t = y.t");
    assert_eq!(both.lines().count(), 2, "{both}");
    w.rows("ALTER COLLECTION w SET (expiry = 'bucket')");
    assert!(
        hidden("SELECT count(*) FROM w")
            .ends_with("expiry=bucket, hides=[], buckets_hidden_by_ttl=0, rows_hidden_by_ttl=0")
    );
}

#[test]
fn a_statement_prepared_before_the_meta_had_a_type_is_planned_again() {
    let w = World::at("2024-01-01T12:00:00Z");
    w.rows("CREATE COLLECTION w WITH (timeField = 't', metaField = 's')");
    w.rows("INSERT INTO w (t, v) VALUES ('2024-01-01T00:00:00Z', 1)");
    w.rows("PREPARE metas AS SELECT s, v FROM w ORDER BY v");
    w.rows("CREATE VIEW times AS SELECT t FROM w");
    assert_eq!(w.text("EXECUTE metas"), r#"[{"s":null,"v":1}]"#);
    w.rows("INSERT INTO w (t, s, v) VALUES ('2024-01-01T00:00:01Z', 'a', 2)");
    assert_eq!(w.number("SELECT count(*) FROM times"), 2);
    assert_eq!(w.text("EXECUTE metas"), r#"[{"s":null,"v":1},{"s":"a","v":2}]"#);
}

#[test]
fn another_instant_shows_the_data_as_it_looks_then() {
    let w = two_sensors();
    assert_eq!(w.text_at("2024-01-01T12:00:00Z", "SELECT count(*) AS n FROM w WHERE s = 'b'"), r#"[{"n":144}]"#);
    assert_eq!(w.text_at("2030-01-01T00:00:00Z", "SELECT count(*) AS n FROM w"), r#"[{"n":0}]"#);
    assert_eq!(w.text_at("2024-01-01T12:00:00Z", "SELECT now() AS now"), r#"[{"now":"2024-01-01T12:00:00Z"}]"#);
}

#[test]
fn now_is_the_instant_of_the_clock_that_expiry_goes_by() {
    let w = two_sensors();
    assert_eq!(
        w.text("SELECT now() AS a, current_timestamp AS b, now() = now() AS c"),
        r#"[{"a":"2024-01-02T00:00:00Z","b":"2024-01-02T00:00:00Z","c":true}]"#
    );
    assert_eq!(w.number("SELECT count(*) FROM w WHERE s = 'b' AND t >= now() - INTERVAL '1 hour'"), 6);
    w.rows("CREATE TABLE kept AS SELECT now() AS at");
    assert_eq!(w.text("SELECT at FROM kept"), r#"[{"at":"2024-01-02T00:00:00Z"}]"#);
}

#[test]
fn a_clock_that_jumped_is_confirmed() {
    let w = two_sensors();
    w.clock.jump(time("2024-02-01T00:00:00Z"));
    let dropped = || w.number("SELECT count(*) FROM ebbtide.sweeps");
    assert!(w.error("SWEEP").message().contains("nothing was dropped"));
    assert_eq!(dropped(), 0, "a month in no time");
    w.rows("CONFIRM CLOCK");
    w.rows("SWEEP");
    assert!(dropped() > 0);
    assert!(w.error("CONFIRM CLOCK now").message().contains("now"));
}

#[test]
fn views_and_prepared_statements_see_what_is_visible_when_they_run() {
    let w = two_sensors();
    w.rows("CREATE VIEW hour AS SELECT * FROM w WHERE t >= now() - INTERVAL '1 hour'");
    w.rows("PREPARE counted AS SELECT count(*) AS n FROM w WHERE s = $1");
    assert_eq!(w.number("SELECT count(*) FROM hour"), 11);
    assert_eq!(w.number("EXECUTE counted('b')"), 143);
    w.set("2024-01-02T00:30:00Z");
    assert_eq!(w.number("SELECT count(*) FROM hour"), 5);
    assert_eq!(w.number("EXECUTE counted('b')"), 140);
    w.rows("INSERT INTO w (t, s, v) VALUES (now(), 'b', 1)");
    assert_eq!(w.number("EXECUTE counted('b')"), 141);
}

#[test]
fn literals_are_read_to_the_nanosecond_in_collections_of_milliseconds() {
    let w = World::at("2024-01-01T12:00:00Z");
    w.rows("CREATE COLLECTION w WITH (timeField = 't')");
    w.rows("INSERT INTO w (t, v) VALUES ('2024-01-01T00:00:00Z', 1), ('2024-01-01T00:00:00.001Z', 2)");
    let count = |condition: &str| w.number(&format!("SELECT count(*) FROM w WHERE {condition}"));
    for sealed in [false, true] {
        if sealed {
            w.rows("FLUSH");
        }
        assert_eq!(count("t < TIMESTAMP '2024-01-01T00:00:00.000000001Z'"), 1);
        assert_eq!(count("t >= TIMESTAMP '2024-01-01T00:00:00.000000001Z'"), 1);
        assert_eq!(count("t <= '2024-01-01T00:00:00.000999999Z'"), 1);
        assert_eq!(count("t = TIMESTAMP '2024-01-01T00:00:00.000000001Z'"), 0);
        assert_eq!(count("t <> TIMESTAMP '2024-01-01T00:00:00.000000001Z'"), 2);
        assert_eq!(count("TIMESTAMP '2024-01-01T00:00:00.000000001Z' > t"), 1);
        assert_eq!(count("t BETWEEN '2024-01-01T00:00:00.000000001Z' AND '2024-01-01T00:00:00.001000001Z'"), 1);
        assert_eq!(count("t NOT BETWEEN '2024-01-01T00:00:00.000000001Z' AND '2024-01-02'"), 1);
        assert_eq!(count("t IN ('2024-01-01T00:00:00.000000001Z', '2024-01-01T00:00:00.001Z')"), 1);
        assert_eq!(count("t < TIMESTAMP '2024-01-01T00:00:00Z' + INTERVAL '1 nanosecond'"), 1);
        assert_eq!(count("date_trunc('day', t) = DATE '2024-01-01'"), 2);
    }
}

#[test]
fn collections_of_different_precision_are_compared_exactly() {
    let w = World::at("2024-01-01T12:00:00Z");
    w.rows("CREATE COLLECTION ms WITH (timeField = 't')");
    w.rows("CREATE COLLECTION us WITH (timeField = 't', precision = 'us')");
    w.rows("INSERT INTO ms (t, v) VALUES ('2024-01-01T00:00:00.001Z', 1)");
    w.rows("INSERT INTO us (t, v) VALUES ('2024-01-01T00:00:00.001Z', 1), ('2024-01-01T00:00:00.001001Z', 2)");
    assert_eq!(w.number("SELECT count(*) FROM ms JOIN us ON ms.t = us.t"), 1);
    assert_eq!(w.number("SELECT count(*) FROM ms JOIN us ON us.t > ms.t"), 1);
    assert_eq!(w.number("SELECT us.v FROM ms, us WHERE ms.t < us.t"), 2);
}

#[test]
fn years_outside_of_nanoseconds_work_in_collections_of_milliseconds() {
    let w = World::at("2024-01-01T00:00:00Z");
    w.rows("CREATE COLLECTION w WITH (timeField = 't')");
    w.rows("INSERT INTO w (t, v) VALUES (TIMESTAMP '1500-06-01T12:00:00Z', 1), ('2500-01-01', 2), ('2024-01-01', 3)");
    assert_eq!(w.number("SELECT v FROM w WHERE t < TIMESTAMP '1600-01-01'"), 1);
    assert_eq!(w.number("SELECT v FROM w WHERE t > '2400-01-01T00:00:00Z'"), 2);
    assert_eq!(w.number("SELECT v FROM w WHERE t = '1500-06-01T12:00:00Z'"), 1);
    assert_eq!(w.number("SELECT count(*) FROM w WHERE t BETWEEN '1000-01-01' AND '3000-01-01'"), 3);
    assert_eq!(w.text("SELECT t FROM w ORDER BY t LIMIT 1"), r#"[{"t":"1500-06-01T12:00:00Z"}]"#);
    w.rows("CREATE COLLECTION n WITH (timeField = 't', precision = 'ns')");
    w.rows("INSERT INTO n (t, v) VALUES ('2024-01-01T00:00:00.000000001Z', 1)");
    assert_eq!(w.number("SELECT count(*) FROM n WHERE t > '1500-01-01' AND t < '2500-01-01'"), 1);
    assert_eq!(w.number("SELECT count(*) FROM n WHERE t > '2500-01-01' OR t = '1500-01-01'"), 0);
    assert_eq!(w.error("INSERT INTO n (t) VALUES ('1500-01-01')").code().name(), "BadValue");
}

#[test]
fn the_sql_of_data_fusion_works_on_collections() {
    let w = two_sensors();
    let binned =
        "SELECT date_bin(INTERVAL '6 hours', t) AS b, count(*) AS n FROM w WHERE s = 'b' GROUP BY b ORDER BY b";
    let bins: Vec<i64> = w.rows(binned).iter().map(|r| r["n"].as_i64().unwrap()).collect();
    assert_eq!(bins, [35, 36, 36, 36]);
    let lag = "SELECT v, v - lag(v) OVER (PARTITION BY s ORDER BY t) AS d FROM w WHERE s = 'a' ORDER BY t LIMIT 2";
    assert_eq!(w.text(lag), r#"[{"v":23.0,"d":null},{"v":23.0,"d":0.0}]"#);
    let cte = "WITH hourly AS (SELECT date_trunc('hour', t) AS h, s, avg(v) AS v FROM w GROUP BY 1, 2)
               SELECT count(*) FROM hourly AS x JOIN hourly AS y USING (h) WHERE x.s < y.s";
    assert_eq!(w.number(cte), 1);
    let last = "SELECT s, max(t) AS t, last_value(v ORDER BY t) AS v FROM w GROUP BY s ORDER BY s LIMIT 1";
    assert_eq!(w.rows(last), [json!({"s": "a", "t": "2024-01-01T23:50:00Z", "v": 23.0})]);
    assert_eq!(w.number("SELECT count(*) FROM w WHERE v > (SELECT avg(v) FROM w WHERE s = 'b')"), 77);
    assert_eq!(w.number("SELECT count(DISTINCT s) FROM w"), 2);
    let union = "SELECT count(*) FROM (SELECT t FROM w WHERE s = 'a' UNION ALL SELECT t FROM w WHERE s = 'a')";
    assert_eq!(w.number(union), 10);
    assert_eq!(w.number("SELECT count(*) FROM information_schema.columns WHERE table_name = 'w'"), 3);
}

#[test]
fn filters_give_the_same_with_and_without_the_engines_help() {
    let w = two_sensors();
    w.set("2024-01-01T00:00:00Z");
    w.rows("INSERT INTO w (t, s, v) VALUES ('2024-01-01T12:05:00Z', NULL, 'NaN'::double), ('2024-01-01T12:06:00Z', 'c', NULL)");
    let conditions = [
        ("s = 'a'", 144),
        ("s IN ('a', 'c')", 145),
        ("s <> 'a'", 145),
        ("s IS NULL", 1),
        ("s IS NOT NULL AND NOT (s = 'b')", 145),
        ("upper(s) LIKE 'B%'", 144),
        ("s = 'a' OR t < TIMESTAMP '2024-01-01T01:00:00Z'", 150),
        ("t >= '2024-01-01T23:00:00Z' OR t < '2024-01-01T01:00:00Z'", 24),
        ("v > 22", 13),
        ("v >= 23 AND s = 'b'", 6),
        ("v < 1", 12),
        ("v = 5", 12),
        ("v IS NULL", 1),
        ("v BETWEEN 1 AND 2 AND s > 'a'", 12),
        ("s = 'nobody'", 0),
        ("random() < 2 AND s = 'a'", 144),
        ("1 = 0", 0),
    ];
    for sealed in [false, true] {
        if sealed {
            w.rows("FLUSH");
        }
        for (condition, expected) in conditions {
            let helped = w.number(&format!("SELECT count(*) FROM w WHERE {condition}"));
            let alone = w.number(&format!(
                "SELECT count(*) FILTER (WHERE {condition}) FROM (SELECT t, s, v, random() AS r FROM w)"
            ));
            assert_eq!((helped, alone), (expected, expected), "{condition}, sealed: {sealed}");
        }
    }
}

#[test]
fn limits_and_empty_projections() {
    let w = two_sensors();
    assert_eq!(w.rows("SELECT * FROM w LIMIT 7").len(), 7);
    assert_eq!(w.rows("SELECT * FROM w WHERE s = 'b' LIMIT 7 OFFSET 140").len(), 3);
    assert_eq!(w.rows("SELECT 1 FROM w WHERE s = 'a'").len(), 5);
    w.rows("FLUSH");
    assert_eq!(w.rows("SELECT 1 AS one FROM w WHERE s = 'a'").len(), 5);
    assert_eq!(w.number("SELECT count(*) FROM w WHERE t > '2024-01-01T23:00:00Z'"), 10);
}

#[test]
fn explain_names_the_cut_offs_and_what_was_hidden() {
    let w = two_sensors();
    w.rows("FLUSH");
    let plan = w.text("EXPLAIN ANALYZE SELECT count(v) FROM w WHERE s = 'a'");
    for part in [
        "now=2024-01-02T00:00:00Z",
        "collection: t <= 2024-01-01T00:00:00Z",
        "short: t <= 2024-01-01T23:00:00Z",
        "buckets_hidden_by_ttl=23",
        "rows_hidden_by_ttl=139",
        "segments_read=1",
    ] {
        assert!(plan.contains(part), "{part}\n{plan}");
    }
}

#[test]
fn names_with_capitals_need_no_quotes() {
    let w = World::at("2024-01-01T00:00:00Z");
    w.rows("CREATE COLLECTION Weather WITH (timeField = 'observedAt', metaField = 'sensorId')");
    w.rows("INSERT INTO Weather (observedAt, sensorId, \"windSpeed\") VALUES (now(), 'x', 3)");
    assert_eq!(w.text("SELECT sensorId, windSpeed FROM Weather"), r#"[{"sensorId":"x","windSpeed":3}]"#);
    assert_eq!(w.number("SELECT max(windSpeed) FROM Weather WHERE sensorId = 'x' AND observedAt = now()"), 3);
}

#[test]
fn errors_point_at_their_place_and_know_what_there_is() {
    let w = two_sensors();
    let error = w.error("SELECT *\nFROM ww");
    assert_eq!(error.code().name(), "NamespaceNotFound");
    assert!(error.message().contains("did you mean 'w'?") && error.message().contains("line 2, column 6"), "{error}");
    assert!(w.error("SELECT vv FROM w").message().contains("did you mean 'v'?"));
    assert!(w.error("SELEC 1").message().contains("did you mean SELECT"));
    assert_eq!(w.error("SELECT 1 +").code().name(), "FailedToParse");
    assert!(w.error("SELECT coutn(v) FROM w").message().contains("did you mean 'count'?"));
    assert!(w.error("UPDATE w SET v = 1").message().contains("measurements cannot be changed"));
    assert!(w.error("DROP TABLE w").message().contains("DROP COLLECTION"));
    assert!(w.error("SHOW TTL FOR wx").message().contains("did you mean 'w'?"));
    assert_eq!(w.error("DROP COLLECTION none").code().name(), "NamespaceNotFound");
}

#[test]
fn joins_yield_so_that_a_statement_can_be_stopped() {
    let world = World::at("2024-01-01T00:00:00Z");
    let plan = world.text(
        "EXPLAIN PLAN SELECT count(*) FROM generate_series(1, 9) AS a (x), generate_series(1, 9) AS b (y) WHERE x > y",
    );
    let (above, _) = plan.split_once("NestedLoopJoinExec").unwrap();
    assert!(above.trim_end_matches([' ', '\\', 'n']).ends_with("CooperativeExec"), "{plan}");
}

#[test]
fn members_of_objects_stand_in_joins_and_conditions_that_are_never_null_in_groups() {
    let w = World::at("2024-01-01T12:00:00Z");
    for name in ["w", "z"] {
        w.rows(&format!("CREATE COLLECTION {name} WITH (timeField = 't', metaField = 's')"));
        w.rows(&format!(
            "INSERT INTO {name} (t, s, k, b, o) SELECT t, named_struct('id', k, 'floor', k % 2), k, k > 1, named_struct('a', k * 10)
             FROM (VALUES (TIMESTAMP '2024-01-01T00:00:00Z', 1), (TIMESTAMP '2024-01-01T01:00:00Z', 2)) AS rows (t, k)"
        ));
    }
    assert_eq!(
        w.text(
            "SELECT get_field(a.o, 'a') + 1 AS x, max(a.s.floor) AS y FROM w AS a FULL JOIN z AS r ON a.k = r.k
             WHERE a.s.id IS NOT NULL AND get_field(r.o, 'a') > 0 GROUP BY 1 ORDER BY 1"
        ),
        r#"[{"x":11,"y":1},{"x":21,"y":0}]"#
    );
    assert_eq!(w.text("SELECT DISTINCT (b IS NOT TRUE) AS x FROM w ORDER BY 1"), r#"[{"x":false},{"x":true}]"#);
}

#[test]
fn an_idle_session_keeps_no_dropped_file_on_disk() {
    let w = two_sensors();
    w.rows("FLUSH");
    w.rows("CREATE VIEW newest AS SELECT max(t) AS t FROM w");
    w.rows("CREATE VIEW buckets AS SELECT * FROM ebbtide.buckets");
    let prepared = w.block_on(w.session().prepare("SELECT count(*) FROM w WHERE s = $1")).unwrap();
    w.rows("PREPARE counted AS SELECT count(*) FROM w");
    for sql in ["SELECT * FROM w", "SELECT * FROM newest", "SELECT * FROM buckets", "EXECUTE counted"] {
        assert!(!w.rows(sql).is_empty(), "{sql}");
    }
    assert_eq!(w.block_on(prepared.execute(&["b".into()])).unwrap().rows(), 1);
    assert!(w.segment_files() > 0);
    w.set("2024-03-01T00:00:00Z");
    // A sweep by the session and one by the program around it, while the session is idle.
    w.database.sweep().unwrap();
    assert_eq!(w.segment_files(), 0);
    for sql in ["INSERT INTO w (t, s, v) VALUES ('2024-02-29T23:59:00Z', 'b', 1.0)", "FLUSH", "SELECT * FROM w"] {
        w.rows(sql);
    }
    w.set("2024-04-01T00:00:00Z");
    w.rows("SWEEP");
    assert_eq!(w.segment_files(), 0);
}

#[test]
fn a_stream_keeps_its_snapshot_for_as_long_as_it_lives() {
    let w = two_sensors();
    w.rows("FLUSH");
    let text = "SELECT * FROM w";
    let statements = ebbtide_query::statement::parse(text).unwrap();
    let started = w.block_on(w.session().start(&statements[0], text)).unwrap();
    w.set("2024-03-01T00:00:00Z");
    w.database.sweep().unwrap();
    assert!(w.segment_files() > 0);
    let batches: Vec<_> = w.block_on(futures::TryStreamExt::try_collect(started.stream.unwrap())).unwrap();
    assert_eq!(batches.iter().map(datafusion::arrow::array::RecordBatch::num_rows).sum::<usize>(), 148);
    assert_eq!(w.segment_files(), 0);
}

#[test]
fn a_statement_without_memory_is_refused_as_such_and_not_as_a_mistake() {
    let w = two_sensors();
    let settings = ebbtide_query::SessionSettings { memory_bytes: 1 << 20, ..Default::default() };
    let small = ebbtide_query::Session::with_settings(w.database.clone(), &settings).unwrap();
    let sql =
        "SELECT count(*) AS n FROM generate_series(1, 300000) AS a JOIN generate_series(1, 300000) AS b USING (value)";
    let error = w.block_on(small.execute(sql)).unwrap_err();
    assert_eq!(error.code(), ebbtide_ttl::Code::ExceededMemoryLimit, "{error}");
    assert!(error.to_string().starts_with("the statement ran out of memory"), "{error}");
    assert_eq!(w.number(sql), 300_000);
}
