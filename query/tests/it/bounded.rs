//! Functions whose result can be far larger than what they are given.

use crate::support::World;

#[test]
fn functions_make_no_more_than_a_limit() {
    let world = World::at("2024-01-10T00:00:00Z");
    for call in [
        "repeat('x', 2000000000)",
        "lpad('x', 2000000000)",
        "rpad('x', 2000000000, 'yz')",
        "replace(repeat('x', 1000000), 'x', repeat('y', 1000))",
        "regexp_replace(repeat('x', 1000000), 'x', repeat('y', 1000), 'g')",
        "array_repeat(1, 3000000000)",
        "array_repeat(repeat('x', 1000000), 1000)",
        "list_repeat(array_repeat(1, 100000), 10000)",
        "array_resize([1], 3000000000)",
        "range(10000000000)",
        "range(1, 10000000000)",
        "range(10000000000, 1, -2)",
        "generate_series(1, 10000000000)",
        "generate_series(TIMESTAMP '2000-01-01', TIMESTAMP '2020-01-01', INTERVAL '1 millisecond')",
        "generate_series(DATE '0001-01-01', DATE '9999-01-01', INTERVAL '1 microsecond')",
        "levenshtein(repeat('a', 100000), repeat('b', 100000))",
    ] {
        let name = &call[..call.find('(').unwrap_or_default()];
        for sql in
            [format!("SELECT {call}"), format!("SELECT count(x) FROM (SELECT {call} AS x FROM range(2) AS t(n))")]
        {
            let error = world.error(&sql).to_string();
            assert!(
                error.contains("() makes at most 256 MiB") || error.contains("compares at most"),
                "{name}: {error}"
            );
        }
    }
    let error = world.error("SELECT range(5, 5, 0)").to_string();
    assert!(error.to_lowercase().contains("step"), "{error}");
    // Of each row a little, and of all together too much.
    let error =
        world.error("SELECT sum(length(repeat('x', n * 20))) FROM generate_series(1, 8000) AS t(n)").to_string();
    assert!(error.contains("repeat() makes at most"), "{error}");
}

#[test]
fn what_functions_make_within_the_limit_is_what_it_was() {
    let world = World::at("2024-01-10T00:00:00Z");
    for (call, made) in [
        ("length(repeat('ab', 1000000))", "2000000"),
        ("repeat('x', -5000000000) || repeat(NULL, 5000000000)", "null"),
        ("lpad('x', 3, 'ab')", "\"abx\""),
        ("rpad('x', -3)", "\"\""),
        ("length(replace(repeat('x', 1000000), '', repeat('y', 1000)))", "1000000"),
        // A bound would be far above the limit.
        ("length(replace(repeat('x', 1000000), 'y', repeat('z', 1000000)))", "1000000"),
        ("length(replace(repeat('x', 1000000) || 'y', 'y', repeat('z', 1000000)))", "2000000"),
        ("regexp_replace('abc', '[ab]', '<\\\\0>', 'g')", "\"<a><b>c\""),
        ("array_repeat([1, 2], 2)", "[[1,2],[1,2]]"),
        ("array_resize([1], 3, 7)", "[1,7,7]"),
        ("range(3)", "[0,1,2]"),
        ("range(5, 1, -2)", "[5,3]"),
        ("range(10000000000, 1)", "[]"),
        ("range(5, 5, 2)", "[]"),
        ("generate_series(NULL::timestamp, TIMESTAMP '2024-01-01', INTERVAL '1 second')", "null"),
        ("array_length(generate_series(TIMESTAMP '2000-01-01', TIMESTAMP '2020-01-01', INTERVAL '1 day'))", "7306"),
        ("levenshtein('kitten', 'sitting')", "3"),
    ] {
        assert_eq!(world.rows(&format!("SELECT {call} AS x"))[0]["x"].to_string(), made, "{call}");
    }
    // Together their bounds are above the limit, so rows are replaced in pieces.
    let replaced = "SELECT sum(length(regexp_replace(repeat('ab', n), '^a', repeat('c', 1000)))) AS x FROM generate_series(1, 1000) AS t(n)";
    assert_eq!(world.number(replaced), 2_000_000);
    for (sum, of) in [
        ("array_length(array_repeat([n, n], 2))", 16_000),
        ("array_length(array_repeat({'a': [n]}, 2))", 16_000),
        ("array_length(generate_series(lag(n) OVER (ORDER BY n) * 1000000, n * 1000000, 500000))", 3 * 7_999),
        ("levenshtein(repeat('a', 200), repeat('b', 200) || (n % 2))", 201 * 8_000),
    ] {
        let rows = format!("SELECT sum(x) AS n FROM (SELECT {sum} AS x FROM generate_series(1, 8000) AS t(n)) AS r");
        assert_eq!(world.number(&rows), of, "{sum}");
    }
}
