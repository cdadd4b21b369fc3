//! Charts as files, and the output of status and metrics.

use crate::cli::{Output, inside};
use std::path::Path;

const MADE: &str = "CREATE COLLECTION w WITH (timeField = 't', metaField = 's') EXPIRE AFTER 1 DAY;
    CREATE TTL INDEX short ON w (t) EXPIRE AFTER 1 HOUR WHERE s = 'b & <c>';
    INSERT INTO w (t, s, v) SELECT value, s, CASE WHEN date_part('hour', value) = 5 THEN NULL ELSE date_part('hour', value) END
    FROM generate_series(TIMESTAMP '2024-01-01T00:00:00', TIMESTAMP '2024-01-01T23:30:00', INTERVAL '30 minutes') AS g (value)
    CROSS JOIN (VALUES ('a'), ('b & <c>')) AS sensors (s);";
const LINES: &str = "SELECT t, s, v FROM w ORDER BY t";

fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let output = inside(folder.path(), &["sql"], MADE);
    assert_eq!(output.code, 0, "{}", output.stderr);
    folder
}

#[expect(clippy::disallowed_methods, reason = "a test's output")]
fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap()
}

/// Runs a query as of the first hour after the data.
fn sql(folder: &Path, args: &[&str]) -> Output {
    inside(folder, &[&["sql", "--now", "2024-01-01T00:30:00Z"], args].concat(), "")
}

#[test]
fn a_chart_is_written_as_svg_with_its_statement_lines_and_times() {
    let folder = made();
    let drawn = sql(folder.path(), &["--chart=a b.svg", LINES]);
    assert_eq!((drawn.code, drawn.stdout.as_str()), (0, ""), "{}", drawn.stderr);
    assert!(drawn.stderr.contains("chart written to a b.svg"), "{}", drawn.stderr);
    let svg = String::from_utf8(read(folder.path(), "a b.svg")).unwrap();
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    for part in [
        LINES,
        ">a</text>",
        ">b &amp; &lt;c&gt;</text>",
        ">06:00</text>",
        ">2024-01-01</text>",
        ">t (UTC)</text>",
        ">25</text>",
    ] {
        assert!(svg.contains(part), "{part}\n{svg}");
    }
    // Each of two series is interrupted by an hour of nulls, and has a key in the legend.
    assert_eq!(svg.matches("stroke-width=\"1.8\"").count(), 4, "{svg}");
    assert_eq!(svg.matches("stroke-width=\"2.5\"").count(), 2, "{svg}");
}

#[test]
fn a_chart_of_names_is_bars_and_png_is_a_picture_of_the_same_size() {
    let folder = made();
    let bars = "SELECT s, max(v) - 30 AS depth FROM w GROUP BY s ORDER BY s";
    assert_eq!(sql(folder.path(), &["--chart=bars.svg", bars]).code, 0);
    let svg = String::from_utf8(read(folder.path(), "bars.svg")).unwrap();
    for part in [">depth</text>", ">-7</text>", ">-8</text>", ">b &amp; &lt;c&gt;</text>"] {
        assert!(svg.contains(part), "{part}\n{svg}");
    }
    // Several numbers: each name has one bar per number, distinguished by colours in a picture and by shades in text.
    let pairs = "SELECT s, min(v) AS low, max(v) AS high FROM w GROUP BY s ORDER BY s";
    assert_eq!(sql(folder.path(), &["--chart=pairs.svg", pairs]).code, 0);
    let svg = String::from_utf8(read(folder.path(), "pairs.svg")).unwrap();
    for colour in ["#0072b2", "#e69f00"] {
        // One in the legend, and one for each of the two names.
        assert_eq!(svg.matches(&format!("fill=\"{colour}\"")).count(), 3, "{svg}");
    }
    let text = sql(folder.path(), &["--chart", pairs]).stdout;
    assert!(text.starts_with("\u{2588}\u{2588} low   \u{2592}\u{2592} high\n"), "{text}");
    assert_eq!(text.lines().filter(|l| l.contains("\u{2502}\u{2592}")).count(), 2, "{text}");
    assert_eq!(sql(folder.path(), &["--chart=lines.png", LINES]).code, 0);
    let png = read(folder.path(), "lines.png");
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    let (width, height) =
        (u32::from_be_bytes(png[16..20].try_into().unwrap()), u32::from_be_bytes(png[20..24].try_into().unwrap()));
    assert_eq!((width, height), (1920, 1080));
    // All chunks are complete, their checksums are right, and every row is present.
    let (mut at, mut packed) = (8, Vec::new());
    while at < png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        let crc = u32::from_be_bytes(png[at + 8 + length..at + 12 + length].try_into().unwrap());
        let mut checked = flate2::Crc::new();
        checked.update(&png[at + 4..at + 8 + length]);
        assert_eq!(checked.sum(), crc);
        if png[at + 4..at + 8] == *b"IDAT" {
            packed.extend(&png[at + 8..at + 8 + length]);
        }
        at += 12 + length;
    }
    let mut rows = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(packed.as_slice()), &mut rows).unwrap();
    assert_eq!(rows.len(), 1080 * (1 + 3 * 1920));
    // The second series is drawn over the first.
    let pixels = || rows.chunks(1 + 3 * 1920).flat_map(|row| row[1..].chunks(3));
    assert!(pixels().filter(|p| **p == [230, 159, 0]).count() > 1000);
}

#[test]
fn a_chart_that_cannot_be_drawn_leaves_no_file() {
    let folder = made();
    let cases = [
        (&["--chart=a.jpg", LINES][..], 2, "ends in .svg or .png"),
        (&["--chart=a.svg", "--format", "csv", LINES], 2, "cannot be used with"),
        (&["--chart=a.svg", "SELECT t FROM w"], 1, "no column contains numbers"),
        (&["--chart=a.svg", "SELECT t, v FROM w WHERE false"], 1, "no rows"),
        (&["--chart=a.svg", "SELECT t, v FROM w WHERE v IS NULL"], 1, "no values"),
        (&["--chart=a.svg", "SELECT 1; SELECT 2"], 2, "the rows of only one statement"),
        (&["--chart=no/such/folder.svg", LINES], 1, "cannot write no/such/folder.svg"),
    ];
    for (args, code, said) in cases {
        let output = sql(folder.path(), args);
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(said), "{args:?}: {}", output.stderr);
        assert!(!folder.path().join("a.svg").exists(), "{args:?}");
    }
    let text = sql(folder.path(), &["--chart", LINES]);
    assert!(text.code == 0 && text.stdout.contains("2024-01-01 23:30Z"), "{}\n{}", text.stdout, text.stderr);
}

#[test]
fn charts_of_any_numbers_and_times_are_drawn() {
    let folder = made();
    let queries = [
        "SELECT * FROM (VALUES (1, 1.0e308), (2, -1.0e308)) AS v (x, y)",
        "SELECT * FROM (VALUES (1, 0.0), (2, 0.0)) AS v (x, y)",
        "SELECT * FROM (VALUES (1, 1.0e-300)) AS v (x, y)",
        "SELECT * FROM (VALUES (9007199254740993, 'NaN'::double), (9007199254740995, 7.0)) AS v (x, y)",
        "SELECT TIMESTAMP '1677-09-22T00:00:00' AS t, 1 AS v UNION ALL SELECT TIMESTAMP '2262-04-11T00:00:00', 2",
        "SELECT TIMESTAMP '2024-02-29T12:00:00.000001' AS t, 1 AS v UNION ALL SELECT TIMESTAMP '2024-02-29T12:00:00.000002', 2",
        "SELECT arrow_cast(9223372036854775807, 'Timestamp(Second, None)') AS t, 1 AS v",
        "SELECT value AS x, value * value AS y FROM generate_series(1, 100000)",
        "SELECT 'series ' || (value % 40) AS s, value AS v, value AS w FROM generate_series(1, 400)",
        "SELECT arrow_cast(value, 'Timestamp(Second, None)') AS t, 's' || (value % 40) AS s, value AS w FROM generate_series(1, 400)",
        "SELECT named_struct('id', 1) AS s, 5 AS v",
        "SELECT '\u{4e2d}\u{1f600} \u{e9}' AS s, 5 AS v",
    ];
    for (number, query) in queries.iter().enumerate() {
        for form in ["svg", "png"] {
            let file = format!("--chart={number}.{form}");
            let output = sql(folder.path(), &[&file, query]);
            assert_eq!(output.code, 0, "{query}: {}", output.stderr);
        }
        let size = read(folder.path(), &format!("{number}.svg")).len();
        assert!(size < 600_000, "{query}: {size} bytes");
    }
}

#[test]
fn status_draws_what_is_stored_by_age_and_says_what_goes_next() {
    let folder = made();
    let output = inside(folder.path(), &["status", "--now", "2024-01-01T23:45:00Z"], "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let lines: Vec<&str> = output.stdout.lines().collect();
    let at = |start: &str| {
        lines.iter().position(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{start}\n{}", output.stdout))
    };
    // A day of 'a' fills the whole strip; 'short' has an hour of it, and more that has expired.
    let day = at("  keeps 1 day: ");
    assert!(lines[day + 1].starts_with("    \u{2595}") && lines[day + 1].ends_with('\u{258f}'), "{}", lines[day + 1]);
    let stored = lines[day + 1].chars().filter(|c| "\u{2591}\u{2592}\u{2593}\u{2588}".contains(*c)).count();
    assert!(stored > 32, "{stored}: {}", lines[day + 1]);
    assert!(lines[day + 2].contains("now") && lines[day + 2].contains("12 hours") && lines[day + 2].ends_with("1 day"));
    assert!(lines[day + 3].starts_with("    next at 2024-01-02T0") && lines[day + 4].contains("visible measurement"));
    let hour = at("  short keeps 1 hour where ");
    assert!(lines[hour + 2].ends_with("1 hour expired"), "{}", output.stdout);
    assert!(lines[hour + 1].rsplit_once('\u{258f}').unwrap().1.len() > 1);
    assert!(lines[hour + 3].starts_with("    due now: "), "{}", output.stdout);
    assert!(!output.stdout.contains('\x1b'));
    let wide = lines.iter().map(|l| l.chars().count()).max().unwrap();
    assert!(wide <= 80, "{wide}\n{}", output.stdout);
    assert_eq!(inside(folder.path(), &["status", "--now", "soon"], "").code, 2);
    assert_eq!(inside(folder.path(), &["status", "--now", "1980-01-01"], "").code, 0);
}

#[test]
fn metrics_are_text_that_prometheus_reads() {
    let folder = made();
    let output = inside(folder.path(), &["metrics", "--now", "2024-01-02T00:00:00Z"], "");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    for line in [
        "# TYPE ebbtide_collection_buckets gauge",
        "ebbtide_collection_suspended{collection=\"w\"} 0",
        "ebbtide_rule_expire_after_seconds{collection=\"w\",rule=\"short\"} 3600",
        "ebbtide_now_seconds 1704153600",
        "ebbtide_collection_last_time_seconds{collection=\"w\"} 1704151800",
    ] {
        assert!(output.stdout.lines().any(|l| l == line), "{line}\n{}", output.stdout);
    }
    let due = |text: &str| {
        let line = text.lines().find(|l| l.starts_with("ebbtide_rule_due_buckets{collection=\"w\",rule=\"short\"}"));
        line.unwrap().rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    assert!(due(&output.stdout) > 0);
    assert_eq!(due(&inside(folder.path(), &["metrics", "--now", "2024-01-01T00:00:00Z"], "").stdout), 0);
}
