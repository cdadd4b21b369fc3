//! Conditions on texts read only the blocks of rows that n-gram filters do not exclude, and return what reading everything returns.

use crate::support::{World, both, counted, time};
use ebbtide_query::{Session, SessionSettings};

/// Log lines of three hosts, 60,000 in segments and 300 in memory. Each has an id of sixteen digits that occurs once; some have no message,
/// some are deleted, and one host's oldest have expired.
fn world() -> World {
    let world = World::at("2024-01-10T00:00:00Z");
    world.rows("CREATE COLLECTION logs WITH (timeField = 'time', metaField = 'host', granularity = 'hours')");
    world.rows("CREATE TTL INDEX short ON logs (time) EXPIRE AFTER 9 DAYS WHERE host = 'h1'");
    let lines = |from: i64, to: i64| {
        format!(
            "INSERT INTO logs (time, host, level, trace, message)
             SELECT to_timestamp_seconds(1704067200 + value), 'h' || (value % 3), CASE value % 11 WHEN 0 THEN 'WARNING' ELSE 'INFORMATION' END,
                CASE value % 13 WHEN 0 THEN NULL ELSE lpad(to_hex(value * 2654435761 % 4294967296), 8, '0') END,
                CASE value % 17 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'häufig 100% \\ _done_' ELSE
                    'request from client ' || (value % 7) || ' served in ' || (value * 7919 % 30011) || ' ms id='
                    || lpad(to_hex(value * 2654435761 % 4294967296), 8, '0') || lpad(to_hex(value * 40503 % 4294967296), 8, '0') END
             FROM generate_series({from}, {to})"
        )
    };
    world.rows(&lines(0, 39_999));
    world.rows("FLUSH");
    world.rows(&lines(40_000, 59_999));
    world.rows("INSERT INTO logs (time, host, message) SELECT to_timestamp_seconds(1704067200 + value), 'h0', 'needle ' || value FROM generate_series(100, 2100, 1000)");
    world.rows("FLUSH");
    world.rows("DELETE FROM logs WHERE host = 'h2' AND time < '2024-01-01 01:00:00'");
    world.rows(&lines(60_000, 60_299));
    world
}

/// The id of a line as the messages have it.
fn id(line: u64) -> String {
    format!("{:08x}{:08x}", line * 2_654_435_761 % 4_294_967_296, line * 40_503 % 4_294_967_296)
}

#[test]
fn conditions_on_texts_return_what_reading_everything_returns() {
    let world = world();
    let (one, other, trace) = (id(31_700), id(50_005), &id(45_001)[..8]);
    let gone = id(3_002); // Deleted.
    let in_memory = id(60_100);
    for (condition, is_pruned) in [
        (format!("message LIKE '%{one}%'"), true),
        (format!("message LIKE '%served in % ms id={one}'"), true),
        (format!("message LIKE '%{one}' ESCAPE '\\'"), true),
        (format!("message LIKE '%{gone}%'"), true),
        (format!("message LIKE '%{in_memory}%'"), true),
        (format!("contains(message, '{one}') AND host = 'h2'"), true),
        (format!("ends_with(message, '{one}')"), true),
        (format!("strpos(message, '{one}') > 0"), false),
        (format!("trace = '{trace}'"), true),
        (format!("'{trace}' = trace AND level = 'INFORMATION'"), true),
        (format!("trace IN ('{trace}', 'nothing', '{}')", &id(7)[..8]), true),
        (format!("trace = '{trace}' OR message LIKE '%{one}%'"), true),
        (format!("(trace = '{trace}' OR message LIKE '%{one}%') AND message LIKE '%client%'"), true),
        (format!("message LIKE '%{one}%' OR message LIKE '%{other}%' OR trace = 'absent'"), true),
        (format!("message LIKE '%{one}%' OR level = 'WARNING'"), false),
        (format!("message LIKE '%{one}%' OR host = 'h1'"), false),
        (format!("NOT (message LIKE '%{one}%')"), false),
        (format!("message NOT LIKE '%{one}%'"), false),
        (format!("message ILIKE '%{}%'", one.to_uppercase()), false),
        (format!("(message LIKE '%{one}%') IS NOT TRUE AND time < '2024-01-01 00:01:00'"), false),
        ("message LIKE '%needle%'".to_owned(), true),
        ("message LIKE '%needle%' AND message LIKE '%100'".to_owned(), true),
        ("starts_with(message, 'needle')".to_owned(), true),
        ("message LIKE 'häufig 100\\%%'".to_owned(), false),
        ("message LIKE '%\\\\ \\_done\\_'".to_owned(), false),
        ("message LIKE '%_done\\_' ESCAPE '\\'".to_owned(), false),
        ("message = ''".to_owned(), false),
        ("message LIKE '%quest%'".to_owned(), false),
        ("message = 'nowhere to be seen'".to_owned(), true),
        ("message IS NULL AND trace = 'nowhere to be seen'".to_owned(), true),
    ] {
        let sql = format!("SELECT time, host, trace, message FROM logs WHERE {condition} ORDER BY time, host");
        let (fast, slow, plan) = both(&world, &sql);
        assert_eq!(fast, slow, "{condition}\n{plan}");
        let pruned = counted(&plan, "rows_pruned_by_text");
        assert_eq!(!pruned.is_empty(), is_pruned, "{condition}: {pruned:?} {}\n{plan}", fast.len());
        let sql = format!("SELECT count(*) AS n, min(level) AS l FROM logs WHERE {condition}");
        let (fast, slow, _) = both(&world, &sql);
        assert_eq!(fast, slow, "{condition}");
    }
    world.rows("SET ebbtide.fast_paths = true");
    world.rows("COMPACT logs");
    for line in (0..60_300_u64).step_by(997) {
        let found = world.number(&format!("SELECT count(*) AS n FROM logs WHERE message LIKE '%{}%'", id(line)));
        // Those of h1 expire nine days after 2024-01-01, later than now.
        let has = line % 17 > 2 && (line % 3 != 2 || line >= 3_600);
        assert_eq!(found, i64::from(has), "{line}");
    }
}

#[test]
fn texts_are_found_through_views_joins_and_subqueries() {
    let world = world();
    let (one, other) = (id(31_700), id(50_005));
    world.rows("CREATE VIEW lines AS SELECT time AS at, host AS message, message AS line FROM logs");
    for (sql, count) in [
        (format!("SELECT at FROM lines WHERE line LIKE '%{one}%'"), 1),
        ("SELECT count(*) AS n FROM lines WHERE message = 'absent' OR line LIKE '%needle 1100%'".to_owned(), 1),
        (
            format!(
                "SELECT a.time, b.message FROM logs a LEFT JOIN logs b ON a.time = b.time AND b.message LIKE '%{one}%' \
                  WHERE a.time < '2024-01-01 00:10:00' ORDER BY a.time, a.host"
            ),
            401,
        ),
        (
            format!(
                "SELECT a.time FROM logs a RIGHT JOIN logs b ON a.trace = b.trace AND a.message LIKE '%{other}%' \
                  WHERE b.time >= '2024-01-01 13:53:00' AND b.time < '2024-01-01 13:54:00' ORDER BY b.time"
            ),
            60,
        ),
        (format!("SELECT time FROM logs WHERE trace IN (SELECT trace FROM logs WHERE message LIKE '%{other}%')"), 1),
        (
            format!(
                "SELECT time FROM logs AS l WHERE host = 'h1' AND time < '2024-01-01 00:01:00' AND NOT EXISTS \
                  (SELECT 1 FROM logs WHERE message LIKE '%{one}%' AND host = l.host) ORDER BY time"
            ),
            20,
        ),
        (
            format!(
                "SELECT host FROM logs WHERE message LIKE '%{one}%' UNION ALL SELECT host FROM logs WHERE message LIKE '%{other}%' ORDER BY host"
            ),
            2,
        ),
        (format!("SELECT count(*) FILTER (WHERE message LIKE '%{one}%') AS n, count(*) AS total FROM logs"), 1),
        (format!("SELECT host, count(*) AS n FROM logs GROUP BY host, message HAVING message LIKE '%{one}%'"), 1),
        (
            format!(
                "SELECT time FROM logs WHERE CASE WHEN level = 'WARNING' THEN false ELSE message LIKE '%{one}%' END"
            ),
            1,
        ),
        (
            format!(
                "WITH found AS (SELECT * FROM logs WHERE message LIKE '%{one}%') SELECT f.time FROM found f JOIN logs l ON f.trace = l.trace"
            ),
            1,
        ),
    ] {
        let (fast, slow, plan) = both(&world, &sql);
        assert_eq!(fast, slow, "{sql}\n{plan}");
        assert_eq!(fast.len(), count, "{sql}\n{plan}");
    }
}

#[test]
fn explain_says_how_many_rows_the_texts_leave_out() {
    let world = world();
    let words = world.text(&format!("EXPLAIN SELECT host FROM logs WHERE message LIKE '%{}%'", id(31_700)));
    assert!(words.contains("rows are skipped by the texts that they must contain"), "{words}");
    let words = world.text("EXPLAIN SELECT host FROM logs WHERE message LIKE '%client%'");
    assert!(!words.contains("the texts that they must contain"), "{words}");
}

#[test]
fn prepared_queries_and_repeated_ones_look_for_their_own_text() {
    let world = world();
    world.rows("PREPARE of_trace AS SELECT time FROM logs WHERE trace = $1");
    world.rows("PREPARE like_it AS SELECT time FROM logs WHERE message LIKE $1");
    for line in [31_700, 45_001, 50_005, 60_100, 100_000, 7, 9] {
        let (trace, expected) = (&id(line)[..8], (line < 60_300 && line % 13 != 0) as usize);
        let plain = world.rows(&format!("SELECT time FROM logs WHERE trace = '{trace}'"));
        assert_eq!(plain.len(), expected, "{line}");
        assert_eq!(world.rows(&format!("EXECUTE of_trace('{trace}')")), plain, "{line}");
        let like = world.rows(&format!("SELECT time FROM logs WHERE message LIKE '%{}'", id(line)));
        assert_eq!(world.rows(&format!("EXECUTE like_it('%{}')", id(line))), like, "{line}");
    }
}

#[test]
fn delete_removes_the_lines_that_contain_a_text_and_expired_ones_stay_hidden() {
    let world = world();
    let count = |sql: &str| world.number(&format!("SELECT count(*) AS n FROM logs WHERE {sql}"));
    let all = count("true");
    let one = format!("message LIKE '%{}%'", id(31_700));
    assert_eq!(count(&one), 1);
    world.rows(&format!("DELETE FROM logs WHERE {one}"));
    assert_eq!(count(&one), 0);
    assert_eq!(count("true"), all - 1);
    // A line of h1 expires nine days after its time.
    let line = (40_000..).find(|line| line % 3 == 1 && line % 17 > 2 && line % 13 != 0).unwrap();
    let of_h1 = format!("SELECT count(*) AS n FROM logs WHERE message LIKE '%{}%'", id(line));
    let at = |now: &str| {
        let settings = SessionSettings { now: Some(time(now)), ..SessionSettings::default() };
        let session = Session::with_settings(world.database.clone(), &settings).unwrap();
        world.block_on(session.rows_as_json(&of_h1)).unwrap()[0]["n"] == 1
    };
    assert!(at("2024-01-10T11:00:00Z"));
    assert!(!at("2024-01-10T11:30:00Z"));
}
