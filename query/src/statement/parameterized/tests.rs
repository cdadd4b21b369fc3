use crate::statement::parse;

/// The text and the values of a query with parameters.
fn parameterized(text: &str) -> Option<(String, String)> {
    let statement = parse(text).unwrap().remove(0);
    let found = statement.parameterized()?;
    let values: Vec<String> = found.values.iter().map(|value| format!("{value:?}")).collect();
    Some((found.query.text.clone(), values.join(" ")))
}

#[test]
fn literals_that_are_compared_are_parameters() {
    for (text, with_parameters, values) in [
        (
            "SELECT a FROM w WHERE s = 'it''s' AND v>-5",
            "SELECT a FROM w WHERE s =  $1  AND v> $2 ",
            r#"Utf8("it's") Int64(-5)"#,
        ),
        ("select 'é', a FROM w WHERE (v <= 2.50)", "select 'é', a FROM w WHERE (v <=  $1 )", "Float64(2.5)"),
        (
            "SELECT a FROM w WHERE\n  t >= TIMESTAMP '1970-01-01' -- from\n  OR 1 < v",
            "SELECT a FROM w WHERE\n  t >=  $1  -- from\n  OR 1 < v",
            "TimestampNanosecond(0, None)",
        ),
        (
            "SELECT a FROM w WHERE v BETWEEN 1 AND 2 ORDER BY 1 LIMIT 5",
            "SELECT a FROM w WHERE v BETWEEN  $1  AND  $2  ORDER BY 1 LIMIT 5",
            "Int64(1) Int64(2)",
        ),
        (
            "SELECT a FROM w WHERE s NOT IN ('a', 'b') LIMIT 5",
            "SELECT a FROM w WHERE s NOT IN ( $1 ,  $2 ) LIMIT 5",
            r#"Utf8("a") Utf8("b")"#,
        ),
        ("SELECT count(*) FROM w HAVING count(*) > 5", "SELECT count(*) FROM w HAVING count(*) >  $1 ", "Int64(5)"),
        ("SELECT count(*) FROM w", "SELECT count(*) FROM w", ""),
    ] {
        assert_eq!(parameterized(text), Some((with_parameters.to_owned(), values.to_owned())), "{text}");
    }
}

#[test]
fn other_literals_stay() {
    for text in [
        "SELECT a FROM w WHERE v > 5 + 1 AND t > '2024-01-01' - INTERVAL '1 hour' AND s LIKE '%x' AND t > '2024-01-01'::date",
        "SELECT a FROM w WHERE s IN ('a', 'b') AND s IN ('c')",
        "SELECT a FROM w WHERE s IN ('a') OR s IN (lower('B'), 'c')",
        "SELECT a FROM w WHERE s IN ('a', lower('B')) AND v BETWEEN 1 AND b",
        "SELECT a FROM w WHERE v = 99999999999999999999 AND t > TIMESTAMP 'noon' AND t > DATE '2024-01-01'",
        "SELECT date_trunc('hour', t), sum(v) OVER (ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) FROM w LIMIT 5",
    ] {
        let (with_parameters, _) = parameterized(text).unwrap();
        assert_eq!(with_parameters.replace("BETWEEN  $1 ", "BETWEEN 1"), text);
    }
}

#[test]
fn statements_that_are_no_queries_or_have_parameters_are_left_alone() {
    let long = format!("SELECT a FROM w WHERE {}", vec!["v > 5"; 65].join(" AND "));
    for text in ["DELETE FROM w WHERE v > 5", "SELECT a FROM w WHERE s = $1 AND v > 5", "SHOW COLLECTIONS", &long] {
        assert_eq!(parameterized(text), None, "{text}");
    }
}
