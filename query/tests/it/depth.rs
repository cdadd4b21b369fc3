//! Long and deeply nested statements: answered or refused, whatever the stack.

use crate::support::World;
use std::fmt::Write;

/// Runs with the stack of a tokio thread.
fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

fn world() -> World {
    let world = World::at("2024-01-01T00:00:00Z");
    world.rows("CREATE COLLECTION c WITH (timeField = 't', metaField = 'm')");
    world.rows(
        "INSERT INTO c (t, m, v) VALUES ('2023-01-01', 'zz', 1), ('2023-01-02', 'b', 7999), ('2023-01-03', 'c', -5)",
    );
    world
}

fn joined(count: usize, with: &str, term: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for at in 0..count {
        let _ = write!(text, "{}{}", if at == 0 { "" } else { with }, term(at));
    }
    text
}

#[test]
fn long_chains_of_conditions_are_answered() {
    on_small_stack(|| {
        let w = world();
        for count in [2_000, 20_000] {
            let any = joined(count, " OR ", |at| format!("v = {at}"));
            assert_eq!(w.number(&format!("SELECT count(*) FROM c WHERE {any}")), if count > 7_999 { 2 } else { 1 });
        }
        let times = joined(2_000, " OR ", |at| {
            format!("t = '2023-01-01T{:02}:{:02}:{:02}Z'", at / 3600, at / 60 % 60, at % 60)
        });
        assert_eq!(w.number(&format!("SELECT count(*) FROM c WHERE {times}")), 1);
        let none = joined(2_000, " AND ", |at| format!("v <> {at}"));
        assert_eq!(w.number(&format!("SELECT count(*) FROM c WHERE {none}")), 2);
        let mixed = joined(600, " OR ", |at| format!("(v > {at} AND m = 'x{at}')"));
        assert_eq!(w.number(&format!("SELECT count(*) FROM c WHERE {mixed}")), 0);
        assert_eq!(w.number(&format!("DELETE FROM c WHERE {}", joined(2_000, " OR ", |at| format!("v = {at}")))), 1);
    });
}

#[test]
fn deep_statements_are_refused_with_the_limit() {
    on_small_stack(|| {
        let w = world();
        let refused = |sql: &str| {
            let error = w.error(sql);
            assert_eq!(error.code().name(), "FailedToParse", "{error}");
            let message = error.message().to_owned();
            assert!(message.contains("deep"), "{message}");
        };
        let (open, close) = ("(".repeat(10_000), ")".repeat(10_000));
        let index = "CREATE TTL INDEX i ON c (t) EXPIRE AFTER 1 DAY WHERE";
        refused(&format!("{index} {open}m = 'zz'{close}"));
        let times = w.error(&format!("SET PARAMETER p = {}'x'", "TIMESTAMP ".repeat(100_000)));
        assert!(times.message().contains("expected a time in single quotes"), "{times}");
        refused(&format!("SELECT {}", joined(100_000, " + ", |at| at.to_string())));
        refused(&format!("SELECT {}", joined(10_000, " || ", |at| format!("'{at}'"))));
        refused(&format!("SELECT v{} FROM c", "::int".repeat(10_000)));
        refused(&format!("SELECT v{} FROM c", " IS NULL".repeat(10_000)));
        refused(&joined(10_000, " UNION ALL ", |_| "SELECT 1".to_owned()));
        refused(&format!("SELECT * FROM {}", joined(10_000, ", ", |at| format!("c AS c{at}"))));
        refused(&format!("SELECT * FROM c {}", joined(10_000, " ", |at| format!("JOIN c AS c{at} USING (t)"))));
        refused(&format!("SELECT * FROM c WHERE {open}v = 1{close}"));
        refused(&format!("SELECT {}v FROM c", "NOT ".repeat(10_000)));
        refused(&format!("SELECT * FROM c WHERE {}", joined(200_000, " OR ", |at| format!("v = {at}"))));
        let unfinished = format!("SELECT * FROM c WHERE {} OR )", joined(50_000, " OR ", |at| format!("v = {at}")));
        assert_eq!(w.error(&unfinished).code().name(), "FailedToParse");
    });
}

#[test]
fn what_is_deep_within_reason_is_answered() {
    on_small_stack(|| {
        let w = world();
        assert_eq!(w.number(&format!("SELECT {} AS n", joined(200, " + ", |_| "1".to_owned()))), 200);
        assert_eq!(
            w.number(&format!("SELECT v + {} AS n FROM c WHERE v = 1", joined(200, " + ", |_| "v".to_owned()))),
            201
        );
        let nested = format!("{}v = 1{}", "(".repeat(20), ")".repeat(20));
        assert_eq!(w.number(&format!("SELECT count(*) FROM c WHERE {nested}")), 1);
        let unions = joined(100, " UNION ALL ", |_| "SELECT count(*) AS n FROM c".to_owned());
        assert_eq!(w.number(&format!("SELECT sum(n) FROM ({unions}) AS x")), 300);
        w.rows(&format!(
            "CREATE TTL INDEX i ON c (t) EXPIRE AFTER 1 DAY WHERE {}m = 'zz'{}",
            "(".repeat(40),
            ")".repeat(40)
        ));
    });
}

#[test]
fn a_chain_of_columns_that_each_name_the_one_below_twice_is_answered() {
    let w = World::at("2024-01-01T00:00:00Z");
    w.rows("CREATE COLLECTION c");
    w.rows("CREATE COLLECTION d");
    w.rows("INSERT INTO c (_id, v) VALUES (1, 5)");
    w.rows("INSERT INTO c (_id, v) VALUES (2, 'five')");
    let tables = joined(40, ", ", |at| {
        let below = if at == 0 { "c".to_owned() } else { format!("a{}", at - 1) };
        format!("a{at} AS (SELECT _id, coalesce(v, v) AS v FROM {below})")
    });
    w.rows(&format!("INSERT INTO d (_id, v) WITH {tables} SELECT _id, v FROM a39"));
    assert_eq!(w.number(r#"SELECT count(*) FROM d WHERE document LIKE '%"v":5}'"#), 1);
}
