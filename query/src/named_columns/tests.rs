use super::*;
use crate::statement;

fn named(text: &str) -> Option<NamedColumns> {
    NamedColumns::of(&statement::parse(text).unwrap()[0].tokens)
}

#[test]
fn statements_that_name_their_columns_are_told_from_those_that_may_read_all() {
    for text in [
        "SELECT time, temp FROM w",
        "SELECT count(*) FROM w",
        "SELECT station, count(*) FILTER (WHERE temp > 1), sum(temp) OVER (PARTITION BY station) FROM w GROUP BY (station)",
        "SELECT time, temp_avg FROM rollup('w', '1 day')",
        "SELECT a.temp_avg * 2, 3 * temp_min FROM rollup('w', '1 day') AS a WHERE \"Temp_max\" > 1 ORDER BY time",
        "SELECT time FROM w UNION SELECT time FROM v WHERE (temp > 1) AND (temp < 2) OR temp IN (1, 2) AND NOT (temp = 3)",
        "WITH r AS (SELECT time, temp FROM w) SELECT max(temp) FROM r",
    ] {
        assert!(named(text).is_some(), "{text}");
    }
    for text in [
        "SELECT * FROM w",
        "SELECT w.* FROM w",
        "SELECT r.* FROM rollup('w', '1 day') AS r",
        "SELECT time, * FROM w",
        "SELECT count(*), * FROM w",
        "SELECT DISTINCT ON (station) * FROM w",
        "SELECT DISTINCT * FROM w",
        "FROM w",
        "TABLE w",
        "WITH a AS (SELECT 1 AS x) FROM w",
        "SELECT x FROM (FROM w) AS r",
        "SELECT x FROM (TABLE w) AS r",
        "SELECT 1 AS x UNION FROM w",
        "SELECT time FROM w NATURAL JOIN stations",
        "SELECT time, park FROM w PIVOT (max(temp_max) FOR station IN ('park'))",
        "SELECT time, v FROM w UNPIVOT (v FOR name IN (temp_min, temp_max))",
        "SELECT a, b FROM rollup('w', '1 day') AS r(a, b, c)",
        "SELECT a, b FROM rollup('w', '1 day') r (a, b, c)",
        "SELECT a, b FROM w AS r(a, b, c)",
        "SELECT a, b FROM w r(a, b, c)",
        "SELECT a, b FROM data r(a, b, c)",
        "SELECT a, b FROM w count(a, b, c)",
    ] {
        assert!(named(text).is_none(), "{text}");
    }
}

#[test]
fn names_are_found_in_any_case() {
    let named = named("SELECT TEMP, \"Größe\" FROM w").unwrap();
    for (column, is_named) in [("temp", true), ("Temp", true), ("größe", true), ("GRÖSSE", false), ("time", false)] {
        assert_eq!(named.contains(column), is_named, "{column}");
    }
}
