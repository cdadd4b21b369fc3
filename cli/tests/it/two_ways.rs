//! The same cells through `import` and through `read_csv`: the same types, the same bits, the same questions.

use crate::cli::{inside, write};
use std::path::Path;

/// The cells of a column, and its type; `None` if the user is asked.
const COLUMNS: &[(&[&str], Option<&str>)] = &[
    (&["1", "-2", "+3"], Some("Int64")),
    (&["9223372036854775807", "-9223372036854775808"], Some("Int64")),
    (&["1", " 2 ", ""], Some("Int64")),
    (&["1e5", "2"], Some("Float64")),
    (&["0.1", "0.30000000000000004", "-0.0", "-0"], Some("Float64")),
    (&["5e-324", "1.7976931348623157e308", "2.2250738585072014e-308"], Some("Float64")),
    (&[".5", "5.", "1E-2"], Some("Float64")),
    (&["nan", "inf", "-Infinity", "1.5"], Some("Float64")),
    // Beyond the range of an integer, but exact as a double.
    (&["9223372036854775808", "1"], Some("Float64")),
    // A double would round it.
    (&["9007199254740993", "0.5"], None),
    (&["18446744073709551617", "1"], None),
    (&["9007199254740993", "2"], Some("Int64")),
    // Beyond the range of a double.
    (&["1e400", "2"], None),
    (&["-1e400", "0.5"], None),
    (&["1e400", "2e400"], None),
    (&["03772", "007"], Some("Utf8")),
    (&["03772", "8"], None),
    (&["NA", "1", "2", "3"], None),
    (&["NA", "none", "-", "3"], Some("Utf8")),
    (&["1_000", "2"], None),
    (&["0x10", "2"], None),
    (&["\"5,2\"", "\"-0,4\"", "7"], Some("Float64")),
    (&["\"1,021.9\"", "2.5"], None),
    (&["true", "FALSE", ""], Some("Boolean")),
    (&["true", "1"], None),
    (&["2024-01-31", "2024-01-31 12:00", "2024-01-31T12:00:00+01:00"], Some("Timestamp")),
    (&["2024-01-31T12:00:00.000001Z", "1859/12/31 06:00"], Some("Timestamp")),
    (&["2024-12-31 24:00", "20240131T070000"], Some("Timestamp")),
    (&["2024-02-30", "2024-01-01"], None),
    (&["12:30", "13:00"], Some("Utf8")),
    (&["caf\u{e9}", "\"a \"\"b\"\"\""], Some("Utf8")),
    (&["a\0b", "c"], None),
];

/// The type of `v` in a table and the values, or the error.
fn answer(folder: &Path, table: &str) -> Result<(String, Vec<String>), String> {
    let sql = format!("SELECT arrow_typeof(v) AS kind, v FROM {table} ORDER BY time");
    let output = inside(folder, &["sql", "--format", "ndjson", &sql], "");
    if output.code != 0 {
        return Err(output.stderr);
    }
    let (mut kind, mut values) = (String::new(), Vec::new());
    for line in output.stdout.lines() {
        let (start, value) = line.split_once(",\"v\":").unwrap_or((line, "null"));
        let typed = start.trim_start_matches("{\"kind\":\"").replace("View", "");
        kind = typed.split(['(', '"']).next().unwrap_or_default().to_owned();
        values.push(value.to_owned());
    }
    Ok((kind, values))
}

#[test]
fn the_same_cells_have_the_same_types_and_values_in_imports_and_queries() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (at, (cells, expected)) in COLUMNS.iter().enumerate() {
        let rows: String =
            cells.iter().enumerate().map(|(row, cell)| format!("2024-01-01T00:00:0{row}Z,{cell}\n")).collect();
        let (file, collection) = (format!("f{at}.csv"), format!("c{at}"));
        write(folder, &file, &format!("time,v\n{rows}"));
        let imported = inside(folder, &["import", &file, "-c", &collection], "");
        let imported = if imported.code == 0 { answer(folder, &collection) } else { Err(imported.stderr) };
        let read = answer(folder, &format!("'{file}'"));
        match (imported, read, expected) {
            (Ok(imported), Ok(read), Some(kind)) => {
                assert_eq!((imported.0.as_str(), &imported), (*kind, &read), "{cells:?}");
            }
            (Err(imported), Err(read), None) => {
                // Both name the same line.
                let line =
                    |message: &str| message[message.find(&file).unwrap()..].split(": ").next().unwrap().to_owned();
                assert_eq!(line(&imported), line(&read), "{imported}\n{read}");
                assert!(imported.contains("column 'v'") && read.contains("column 'v'"), "{imported}\n{read}");
            }
            other => panic!("{cells:?}: {other:?}"),
        }
    }
}

#[test]
fn a_query_finds_out_how_a_file_is_written_as_an_import_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sql = |sql: &str| {
        let output = inside(folder, &["sql", "--format", "csv", sql], "");
        output.stdout + &output.stderr
    };
    assert_eq!(inside(folder, &["sql", "CREATE COLLECTION c WITH (timeField = 't')"], "").code, 0);
    let station =
        "STATION:;EWR\nsource;x\nzeit;temp;wind\n\u{b0};C;m/s\n2024-01-01 00:00;5,2;1\n2024-01-01 01:00;-0,4;2\n";
    write(folder, "station.csv", station);
    assert_eq!(
        sql("SELECT * FROM 'station.csv'"),
        "zeit,temp,wind\n2024-01-01T00:00:00Z,5.2,1\n2024-01-01T01:00:00Z,-0.4,2\n"
    );
    write(folder, "blanks.csv", "year  mon  t\n2024   1   0.5\n2024  12  -1\n");
    assert_eq!(sql("SELECT * FROM 'blanks.csv'"), "year,mon,t\n2024,1,0.5\n2024,12,-1.0\n");
    write(folder, "cut.csv", "time,v\n2024-01-01,1\n2024-01-02,2\n2024-01-03\n");
    assert!(sql("SELECT * FROM 'cut.csv'").contains("cut.csv:4: the line has 1 columns, the first one 2"));
    write(folder, "open.csv", "time,v\n2024-01-01,a\n2024-01-02,\"b\n2024-01-03,c\n");
    assert!(sql("SELECT * FROM 'open.csv'").contains("open.csv:3: a quote that opens on this line is never closed"));
    write(folder, "na.csv", "t,v\n2024-01-01,1\n2024-01-02,NA\n2024-01-03,2\n2024-01-04,007\n");
    let told = sql("SELECT * FROM 'na.csv'");
    assert!(told.contains("read_csv('na.csv', nullstr = 'NA')") && told.contains("na.csv:3"), "{told}");
    assert!(sql("SELECT v FROM read_csv('na.csv', nullstr = 'NA')").contains("number = 'v'"));
    assert_eq!(sql("SELECT v FROM read_csv('na.csv', nullstr = 'NA', number = 'v')"), "v\n1\n\"\"\n2\n7\n");
    assert_eq!(sql("SELECT v FROM read_csv('na.csv', text = 'v')"), "v\n1\nNA\n2\n007\n");
    assert!(sql("SELECT v FROM read_csv('na.csv', text = 'w')").contains("no column is called 'w'"));
    write(folder, "big.csv", "n,v\na,\"1,021.9\"\nb,\"2,000.5\"\n");
    assert_eq!(sql("SELECT v FROM read_csv('big.csv', thousands = ',')"), "v\n1021.9\n2000.5\n");
}
