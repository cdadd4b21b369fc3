use super::*;
use crate::statement;

fn named(text: &str) -> bool {
    NamedColumns::of(&statement::parse(text).unwrap()[0].tokens).is_some()
}

#[test]
fn statements_that_name_their_columns_are_told_from_those_that_may_read_all() {
    for text in [
        "SELECT time, temp_avg FROM rollup('w', '1 day')",
        "SELECT a.temp_avg * 2, 3 * temp_min FROM rollup('w', '1 day') AS a WHERE \"Temp_max\" > 1 ORDER BY time",
        "SELECT time FROM rollup('w', '1 day') UNION SELECT time FROM rollup('w', '7 days')",
        "WITH r AS (SELECT time, temp_avg FROM rollup('w', '1 day')) SELECT max(temp_avg) FROM r",
    ] {
        assert!(named(text), "{text}");
    }
    for text in [
        "SELECT * FROM rollup('w', '1 day')",
        "SELECT r.* FROM rollup('w', '1 day') AS r",
        "SELECT count(*) FROM rollup('w', '1 day')",
        "SELECT time, * FROM rollup('w', '1 day')",
        "SELECT DISTINCT ON (station) * FROM rollup('w', '1 day')",
        "SELECT DISTINCT * FROM rollup('w', '1 day')",
        "FROM rollup('w', '1 day')",
        "WITH a AS (SELECT 1 AS x) FROM rollup('w', '1 day')",
        "SELECT x FROM (FROM rollup('w', '1 day')) AS r",
        "SELECT 1 AS x UNION FROM rollup('w', '1 day')",
        "SELECT time FROM rollup('w', '1 day') NATURAL JOIN stations",
        "SELECT time, park FROM rollup('w', '1 day') PIVOT (max(temp_max) FOR station IN ('park'))",
        "SELECT time, v FROM rollup('w', '1 day') UNPIVOT (v FOR name IN (temp_min, temp_max))",
        "SELECT a, b FROM rollup('w', '1 day') AS r(a, b, c)",
        "SELECT a, b FROM rollup('w', '1 day') r (a, b, c)",
        "SELECT time, temp FROM w",
    ] {
        assert!(!named(text), "{text}");
    }
}
