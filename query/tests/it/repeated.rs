//! Queries as text that are run again, with the same literals or others: optimized once, and right whenever they run.

use crate::support::{World, two_sensors};
use ebbtide_query::Session;
use ebbtide_ttl::Code;
use futures::TryStreamExt;

/// What a session that has run nothing before answers.
fn in_new_session(w: &World, sql: &str) -> String {
    let session = Session::new(w.database.clone()).unwrap();
    serde_json::Value::Array(w.block_on(session.rows_as_json(sql)).unwrap()).to_string()
}

/// The number of plans that the session keeps.
fn plans(w: &World) -> usize {
    let text = format!("{:?}", w.session());
    let (_, after) = text.split_once("plans: ").unwrap();
    after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[test]
fn queries_that_differ_in_literals_alone_have_one_plan() {
    let w = two_sensors();
    w.rows("CREATE COLLECTION o WITH (timeField = 't', metaField = 'm')");
    w.rows("INSERT INTO o (t, m, v) SELECT t, named_struct('host', s, 'rack', 1), v FROM w");
    for (query, literals) in [
        (
            "SELECT m.host, max(v) AS v FROM o WHERE m.host = {} AND t >= {} GROUP BY m.host",
            vec![
                ["'a'", "'2024-01-01T01:00:00Z'"],
                ["'b'", "'2024-01-01T20:00:00Z'"],
                ["'x'", "'2024-01-01T01:00:00Z'"],
            ],
        ),
        (
            "SELECT m.host, max(v) AS v FROM o WHERE m.host IN ({}) AND t >= {} GROUP BY m.host ORDER BY 1",
            vec![
                ["'a', 'x', 'y', 'z'", "'2024-01-01'"],
                ["'w', 'a', 'b', 'a'", "'2024-01-01'"],
                ["'w', 'x', 'y', 'b'", "'2024-01-01'"],
            ],
        ),
        (
            "SELECT date_bin('1 hour', t) AS h, max(v) FROM w WHERE s = {} AND t >= {} GROUP BY h ORDER BY h",
            vec![
                ["'a'", "'2024-01-01T23:20:00Z'"],
                ["'b'", "'2024-01-01T10:00:00Z'"],
                ["'it''s'", "'1999-01-01'"],
                ["'b'", "'2024-01-01T19:59:59.999Z'"],
            ],
        ),
        (
            "SELECT s, count(*) FROM w WHERE v >= {} AND t BETWEEN TIMESTAMP '2024-01-01T01:00:00Z' AND {} GROUP BY s ORDER BY s",
            vec![
                ["20", "TIMESTAMP '2024-01-01T23:20:00Z'"],
                ["-1", "TIMESTAMP '2024-01-01T12:00:00+02:00'"],
                ["9007199254740992", "TIMESTAMP '2023-12-31T23:59:59Z'"],
            ],
        ),
        (
            "SELECT s, v FROM w WHERE s IN ({}) AND v < {} ORDER BY t, s LIMIT 3",
            vec![["'a', 'b'", "22.5"], ["'b', 'b'", "0.5"], ["'x', 'a'", "1e3"]],
        ),
        (
            "SELECT s, max(v) AS m FROM w WHERE t <> {} GROUP BY s HAVING max(v) > {} ORDER BY s",
            vec![["'2024-01-01'", "1"], ["'2024-01-01T23:00:00Z'", "100"], ["'2024-01-01'", "22"]],
        ),
        (
            "SELECT s, max(v) FROM w WHERE s IN ({}) AND t >= {} GROUP BY s ORDER BY s",
            vec![
                ["'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'", "'2024-01-01T01:00:00Z'"],
                ["'s', 't', 'u', 'v', 'w', 'x', 'y', 'z'", "'2024-01-01T01:00:00Z'"],
                ["'h', 'g', 'f', 'e', 'd', 'c', 'b', 'a'", "'2024-01-01T23:00:00Z'"],
            ],
        ),
        // With no literal that could be another.
        ("SELECT s, count(*) FROM w GROUP BY s ORDER BY s LIMIT 2", vec![["", ""], ["", ""], ["", ""]]),
    ] {
        let before = plans(&w);
        for (run, [first, second]) in literals.into_iter().enumerate() {
            let text = query.replacen("{}", first, 1).replacen("{}", second, 1);
            assert_eq!(w.text(&text), in_new_session(&w, &text), "{text}");
            assert_eq!(plans(&w) - before, usize::from(run > 0), "{text}: run {run}");
        }
    }
}

#[test]
fn literals_that_a_plan_is_not_for_are_planned_by_themselves() {
    let w = two_sensors();
    for text in ["s = 'b' AND t >= '2024-01-01T10:00:00Z'", "s = 'a' AND t >= '2024-01-01T23:20:00Z'"] {
        w.rows(&format!("SELECT count(*) AS n FROM w WHERE {text}"));
    }
    assert_eq!(plans(&w), 1);
    for condition in [
        // Not a whole number of milliseconds, and another type.
        "s = 'b' AND t >= '2024-01-01T10:00:00.000000001Z'",
        "s = 'b' AND t >= TIMESTAMP '2024-01-01T10:00:00.000000001Z'",
        "s = 'b' AND t >= '2024-01-01T10:00:00Z'",
        "s = 'b' AND t >= CAST('2024-01-01' AS DATE)",
    ] {
        let text = format!("SELECT count(*) AS n FROM w WHERE {condition}");
        for _ in 0..3 {
            assert_eq!(w.text(&text), in_new_session(&w, &text), "{text}");
        }
    }
    // Which texts are times depends on what they are compared with.
    let of_day = |text: &str| format!("SELECT count(*) AS n FROM w WHERE CAST(t AS DATE) >= TIMESTAMP '{text}'");
    for _ in 0..3 {
        assert_eq!(w.text(&of_day("2024-01-01T00:00:00Z")), in_new_session(&w, &of_day("2024-01-01T00:00:00Z")));
    }
    for text in ["2024-1-1", "2024-01-01 ", "+2024-01-01"] {
        assert!(w.error(&of_day(text)).message().contains(text.trim()), "{text}");
    }
    for _ in 0..3 {
        let error = w.error("SELECT count(*) AS n FROM w WHERE s = 'b' AND t >= 'noon'");
        assert!(error.message().contains("noon"), "{error}");
    }
}

/// Lists of texts: the first has no sensor, the others have one at least.
const LISTS: [&str; 3] = ["'x', 'y', 'q', 'r'", "'a', 'b', 'c', 'd'", "'b', 'z', 'c', 'd'"];

#[test]
fn what_depends_on_a_literal_is_planned_for_it() {
    let w = two_sensors();
    for (query, literals) in [
        ("SELECT v > {} AS above FROM w WHERE s = 'b' ORDER BY t LIMIT 2", ["1", "30", "20.5"]),
        ("SELECT count(*) AS n FROM w WHERE 1 = {}", ["1", "2", "1"]),
        ("SELECT count(*) AS n FROM w WHERE s IN ('a', 'b') AND s NOT IN ({})", ["'b'", "'a'", "'x'"]),
        ("SELECT count(*) AS n FROM w WHERE (s = 'a' OR s = 'b') AND s NOT IN ({})", ["'b'", "'a'", "'x'"]),
        ("SELECT count(*) AS n FROM w WHERE s IN ({}) AND (('a' <> s AND 'z' <> s) = false)", LISTS),
        ("SELECT count(*) AS n FROM w WHERE s NOT IN ({}) AND ('a' <> s AND 'z' <> s) <> true", LISTS),
        (
            "SELECT count(*) AS n FROM (SELECT s, s IN ('a', 'z') AS known FROM w) AS x WHERE s IN ({}) AND known = true",
            LISTS,
        ),
        (
            "SELECT CASE WHEN v > {} THEN 'warm' ELSE 'cold' END AS c, count(*) AS n FROM w GROUP BY c ORDER BY c",
            ["1", "21", "99"],
        ),
        ("SELECT count(*) AS n FROM w WHERE v + 1 > {} + 1", ["1", "21", "99"]),
        ("SELECT count(*) AS n FROM w WHERE t < now() AND v > {}", ["1", "21", "99"]),
        ("SELECT count(*) AS n FROM w WHERE v = (SELECT max(v) FROM w WHERE s = {})", ["'a'", "'b'", "'x'"]),
    ] {
        for literal in literals.into_iter().chain(literals) {
            let text = query.replace("{}", literal);
            assert_eq!(w.text(&text), in_new_session(&w, &text), "{text}");
        }
    }
}

#[test]
fn a_query_that_is_run_again_sees_what_has_changed() {
    let w = two_sensors();
    let query = "SELECT count(*) AS n FROM w WHERE s = 'a'";
    let counts = |now: &str| {
        w.set(now);
        assert_eq!(w.text(query), in_new_session(&w, query), "{now}");
        w.number(query)
    };
    let times = ["2024-01-02T00:00:00Z", "2024-01-02T00:10:00Z", "2024-01-02T12:00:00Z"];
    assert_eq!(times.map(counts), [5, 4, 0]);
    w.rows("INSERT INTO w (t, s, v, wind) VALUES ('2024-01-02T11:59:00Z', 'a', 1.0, 7)");
    assert_eq!(w.number(query), 1);
    let all = "SELECT * FROM w WHERE s = 'a'";
    for _ in 0..3 {
        assert!(w.text(all).contains(r#""wind":7"#));
    }
    w.rows("ALTER COLLECTION w RENAME FIELD wind TO gust");
    assert!(w.text(all).contains(r#""gust":7"#), "{}", w.text(all));
    w.rows("SET datafusion.execution.batch_size = 4");
    assert_eq!(w.number(query), 1);
    w.rows("DROP COLLECTION w");
    let error = w.error(query);
    assert_eq!(error.code(), Code::NamespaceNotFound);
    w.rows("CREATE COLLECTION w WITH (timeField = 't', metaField = 's')");
    w.rows("INSERT INTO w (t, s) VALUES (now(), 5)");
    assert_eq!(w.error(query).message(), error_of_number(&w, "a"));
    assert_eq!(w.number("SELECT count(*) AS n FROM w WHERE s = 5"), 1);
}

/// What is said where a text is compared with numbers.
fn error_of_number(w: &World, text: &str) -> String {
    let session = Session::new(w.database.clone()).unwrap();
    let query = format!("SELECT count(*) AS n FROM w WHERE s = '{text}'");
    w.block_on(session.rows_as_json(&query)).unwrap_err().message().to_owned()
}

#[test]
fn errors_are_those_of_the_text() {
    let w = two_sensors();
    for (run, literal) in ["'a'", "'b'", "'c'"].into_iter().enumerate() {
        let error = w.error(&format!("SELECT tmp FROM w WHERE s = {literal}"));
        assert!(error.message().contains("'tmp'") && !error.message().contains('$'), "run {run}: {error}");
    }
    let query = "SELECT CAST(s AS BIGINT) AS n FROM w WHERE v > ";
    let errors = ["1", "2", "3"].map(|literal| w.error(&format!("{query}{literal}")).message().to_owned());
    assert!(errors.iter().all(|error| *error == errors[0]) && !errors[0].contains('$'), "{errors:?}");
}

#[test]
fn a_query_that_is_run_again_is_planned_with_the_settings_of_now() {
    let w = two_sensors();
    w.rows("INSERT INTO w (t, s, wind) VALUES ('2024-01-01T23:59:00Z', 'b', 1)");
    let query = "SELECT v FROM w WHERE t >= '2024-01-01T23:00:00Z' ORDER BY v LIMIT 1";
    let prepared = w.block_on(w.session().prepare(query)).unwrap();
    let values = || {
        let result = w.block_on(prepared.execute(&[])).unwrap();
        (w.text(query), result.batches.iter().map(|batch| batch.column(0).null_count()).sum::<usize>())
    };
    for _ in 0..3 {
        assert_eq!(values(), (r#"[{"v":23.0}]"#.to_owned(), 0));
    }
    w.rows("SET datafusion.sql_parser.default_null_ordering = 'nulls_min'");
    assert_eq!(values(), (r#"[{"v":null}]"#.to_owned(), 1));
    let named = "SELECT V FROM w WHERE t >= '2024-01-01T23:59:00Z'";
    for _ in 0..3 {
        w.rows(named);
    }
    w.rows("SET datafusion.sql_parser.enable_ident_normalization = false");
    assert!(w.error(named).message().contains("'V'"));
}

#[test]
fn a_text_is_short_if_its_plan_is_known_and_few_rows_are_read() {
    let w = two_sensors();
    let short = |text: &str| {
        let statement = ebbtide_query::statement::parse(text).unwrap().remove(0);
        let started = w.block_on(w.session().start_short(&statement))?;
        let batches: Vec<_> = w.block_on(started.stream.unwrap().try_collect()).unwrap();
        Some(batches.iter().map(|batch| batch.num_rows()).sum::<usize>())
    };
    let text = |sensor: &str| format!("SELECT t, v FROM w WHERE s = '{sensor}' AND v > 0");
    assert_eq!(short(&text("a")), None);
    w.rows(&text("a"));
    assert_eq!(short(&text("b")), None, "it ran once");
    w.rows(&text("b"));
    assert_eq!((short(&text("a")), short(&text("x"))), (Some(5), Some(0)));
    assert_eq!(short("SHOW COLLECTIONS"), None);
}

#[test]
fn a_query_that_is_prepared_again_keeps_its_plan() {
    let w = two_sensors();
    let count = |sensor: &str| {
        let query = w.block_on(w.session().prepare("SELECT count(*) AS n FROM w WHERE s = $1")).unwrap();
        w.block_on(query.execute(&[sensor.into()])).unwrap().rows()
    };
    assert_eq!((count("a"), plans(&w)), (1, 0));
    assert_eq!((count("b"), plans(&w)), (1, 1));
    w.rows("DROP COLLECTION w");
    let again = w.block_on(w.session().prepare("SELECT count(*) AS n FROM w WHERE s = $1"));
    assert_eq!(again.unwrap_err().code(), Code::NamespaceNotFound);
}
