//! Imports: recorded data, invalid data, and what a killed import leaves.

use crate::cli::{Output, command, inside, write};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};

fn import(folder: &Path, args: &[&str]) -> Output {
    let mut all = vec!["import", "--collection", "c"];
    all.extend(args);
    inside(folder, &all, "")
}

fn rows(folder: &Path, sql: &str) -> String {
    let output = inside(folder, &["sql", "--format", "csv", sql], "");
    assert_eq!(output.code, 0, "{sql}: {}", output.stderr);
    output.stdout
}

fn bytes(folder: &Path, name: &str, bytes: &[u8]) {
    #[expect(clippy::disallowed_methods, reason = "test input")]
    std::fs::write(folder.join(name), bytes).unwrap();
}

fn text(folder: &Path, name: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "what the program wrote")]
    String::from_utf8(std::fs::read(folder.join(name)).unwrap()).unwrap()
}

#[test]
fn a_station_file_of_a_weather_service_comes_in_with_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = "REGIAO:;CO\nESTACAO:;BRASILIA\n\
                Data;Hora UTC;PRECIPITA\u{c7}\u{c3}O (mm);TEMPERATURA (\u{b0}C);VENTO\n\
                2024/01/01;0000 UTC;0;21,5;,9\n\
                2024/01/01;0100 UTC;;-0,4;-9999\n\
                2024/01/01;0200 UTC;-9999;-9999;\n";
    let latin: Vec<u8> = file.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    bytes(folder.path(), "inmet.csv", &latin);
    let args = [
        "inmet.csv",
        "--encoding",
        "latin-1",
        "--delimiter",
        ";",
        "--skip",
        "2",
        "--time",
        "Data,Hora UTC",
        "--decimal-comma",
        "--null",
        "-9999",
        "--skip-empty",
        "--rename",
        "PRECIPITA\u{c7}\u{c3}O (mm)=rain",
        "--rename",
        "TEMPERATURA (\u{b0}C)=temp",
    ];
    let output = import(folder.path(), &args);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stderr.contains("1 row without a value was skipped"), "{}", output.stderr);
    let expected = "time,rain,temp,VENTO\n2024-01-01T00:00:00Z,0,21.5,0.9\n2024-01-01T01:00:00Z,,-0.4,\n";
    assert_eq!(rows(folder.path(), "SELECT * FROM c ORDER BY time"), expected);
}

#[test]
fn a_value_without_its_leading_zeros_decides_whether_a_row_is_empty() {
    for (null, kept, skipped) in [("999", ["000", "05"].as_slice(), 2), ("000", &["0999", "000", "05"], 1)] {
        let folder = tempfile::tempdir().unwrap();
        bytes(folder.path(), "v.csv", b"time,v\n2024-01-01,0999\n2024-01-02,000\n2024-01-03,\n2024-01-04,05\n");
        let output = import(folder.path(), &["v.csv", "--number", "v", "--null", null, "--skip-empty"]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        let what = if skipped == 1 { "1 row without a value was" } else { "2 rows without a value were" };
        assert!(output.stderr.contains(what), "{null}: {}", output.stderr);
        let kept: Vec<i64> = kept.iter().map(|cell| cell.parse().unwrap()).collect();
        let expected = kept.iter().fold("v\n".to_owned(), |text, v| format!("{text}{v}\n"));
        assert_eq!(rows(folder.path(), "SELECT v FROM c ORDER BY time"), expected, "{null}");
    }
}

#[test]
fn times_are_read_as_the_user_says() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.csv", "when,v\n31/12/1969 23:59,1\n27/10/2024 01:30,2\n");
    let zoned = ["a.csv", "--time", "when", "--time-format", "%d/%m/%Y %H:%M", "--time-zone", "Europe/Dublin"];
    let output = import(folder.path(), &zoned);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("a.csv:3: ") && output.stderr.contains("twice"), "{}", output.stderr);
    let mut later = zoned.to_vec();
    later.extend(["--dst", "later"]);
    assert_eq!(import(folder.path(), &later).code, 0);
    let expected = "when\n1969-12-31T22:59:00Z\n2024-10-27T01:30:00Z\n";
    assert_eq!(rows(folder.path(), "SELECT \"when\" FROM c ORDER BY 1"), expected);
    write(folder.path(), "b.csv", "ts;v\n1704067200.000001;1\n");
    let args = ["import", "b.csv", "-c", "fine", "--delimiter", ";", "--time-format", "s"];
    let output = inside(folder.path(), &args, "");
    assert!(output.stderr.contains("precision us"), "{}", output.stderr);
    assert_eq!(rows(folder.path(), "SELECT ts FROM fine"), "ts\n2024-01-01T00:00:00.000001Z\n");
    assert_eq!(import(folder.path(), &["a.csv", "--time-zone", "Mars"]).code, 2);
    assert_eq!(import(folder.path(), &["a.csv", "--dst", "later"]).code, 2);
}

#[test]
fn columns_are_named_joined_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.tsv", "# made by hand\n2024-01-01\t07:00\teu\tx1\t5\tjunk\n");
    write(folder.path(), "b.tsv", "2024-01-01\t08:00\tus\tx2\t6\tjunk\n");
    let args = [
        "[ab].tsv",
        "--no-header",
        "--comment",
        "#",
        "--columns",
        "day,hour,region,station,v,junk",
        "--time",
        "day,hour",
        "--meta",
        "region,station",
        "--meta-field",
        "sensor",
        "--without",
        "junk",
    ];
    let output = import(folder.path(), &args);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let expected = "time,sensor,v\n2024-01-01T07:00:00Z,\"{\"\"region\"\":\"\"eu\"\",\"\"station\"\":\"\"x1\"\"}\",5\n";
    assert_eq!(rows(folder.path(), "SELECT * FROM c WHERE v = 5"), expected);
    assert_eq!(rows(folder.path(), "SELECT count(*) AS n FROM c"), "n\n2\n");
    // Another file for the same collection: its meta columns are recognized by the members of the meta.
    write(folder.path(), "more.csv", "time,station,region,v\n2024-01-01 09:00,x1,eu,7\n");
    assert_eq!(import(folder.path(), &["more.csv"]).code, 0);
    let same = "SELECT count(DISTINCT sensor) AS n, max(v) AS v FROM c WHERE sensor['station'] = 'x1'";
    assert_eq!(rows(folder.path(), same), "n,v\n1,7\n");
    let wrong = import(folder.path(), &["a.tsv", "--no-header", "--without", "c99"]);
    assert!(wrong.stderr.contains("a.tsv has no column 'c99' as --without says"), "{}", wrong.stderr);
}

#[test]
fn bad_lines_are_set_aside_with_their_place_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = String::from("time,s,v\n");
    for i in 0..40 {
        file.push_str(&format!("2024-01-01T00:00:{i:02}Z,a,{i}\n"));
    }
    file.push_str(
        "2024-01-01T00:01:00Z,a\nnever,a,1\n,a,1\n2024-01-01T00:01:00Z,a,oops\n2024-01-01T00:01:01Z,a,1e400\n",
    );
    write(folder.path(), "a.csv", &file);
    let strict = import(folder.path(), &["a.csv"]);
    assert!(strict.stderr.contains("a.csv:42: the line has 2 columns"), "{}", strict.stderr);
    assert!(!folder.path().join("ebbtide-data").exists());
    let lenient = import(folder.path(), &["a.csv", "--bad-lines", "bad.csv", "--meta", "s"]);
    assert_eq!(lenient.code, 0, "{}", lenient.stderr);
    assert!(lenient.stderr.contains("40 measurements imported") && lenient.stderr.contains("5 bad lines"));
    let bad = text(folder.path(), "bad.csv");
    let starts = ["file,line,reason,text", "a.csv,42,", "a.csv,43,", "a.csv,44,", "a.csv,45,", "a.csv,46,"];
    assert_eq!(bad.lines().count(), starts.len(), "{bad}");
    for (line, start) in bad.lines().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    let few = import(folder.path(), &["a.csv", "--bad-lines", "bad.csv", "--bad-lines-max", "2"]);
    assert_eq!(few.code, 1);
    assert!(few.stderr.contains("more than 2 bad lines, the last one at a.csv:44"), "{}", few.stderr);
    assert_eq!(rows(folder.path(), "SELECT count(*) AS n FROM c"), "n\n40\n");
    write(
        folder.path(),
        "b.ndjson",
        "{\"time\":\"2024-01-01\",\"v\":1}\nnot json\n{\"v\":2}\n{\"time\":\"2024-01-02\",\"v\":\"x\"}\n",
    );
    let documents = import(folder.path(), &["b.ndjson", "--bad-lines", "bad.csv"]);
    assert_eq!(documents.code, 0, "{}", documents.stderr);
    assert_eq!(text(folder.path(), "bad.csv").lines().count(), 4, "{}", text(folder.path(), "bad.csv"));
    assert_eq!(rows(folder.path(), "SELECT count(*) AS n FROM c"), "n\n41\n");
}

#[test]
fn standard_input_that_cannot_be_imported_leaves_no_database() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["-", "-c", "c", "--time", "time"], "time,v\nyesterday,1\n"),
        (&["-", "-c", "c", "--time", "when"], "time,v\n2024-01-01,1\n"),
        (&["-", "-c", "c", "--format", "ndjson", "--delimiter", ";"], "{\"time\":\"2024-01-01\"}\n"),
        (&["-", "--format", "influx"], "cpu v= 1\n"),
        (&["--documents", "-", "--into", "s"], "{\"_id\": 1\n"),
    ];
    for (args, input) in cases {
        let output = inside(folder.path(), &[&["import"][..], args].concat(), input);
        assert_ne!(output.code, 0, "{args:?}: {}", output.stderr);
        assert!(!folder.path().join("ebbtide-data").exists(), "{args:?}: {}", output.stderr);
    }
}

#[test]
fn bad_lines_of_standard_input_replace_those_of_an_earlier_import() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], [&str; 2]); 2] = [
        (&["-", "-c", "c", "--format", "influx"], ["cpu v=1\nfirst\n", "cpu v=2\nsecond\n"]),
        (&["--documents", "-", "--into", "s"], ["{\"_id\": 1}\nfirst\n", "{\"_id\": 2}\nsecond\n"]),
    ];
    for (args, inputs) in cases {
        for input in inputs {
            let args = [&["import"][..], args, &["--bad-lines", "bad.csv"]].concat();
            let output = inside(folder.path(), &args, input);
            assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        }
        let bad = text(folder.path(), "bad.csv");
        assert_eq!(bad.lines().count(), 2, "{args:?}: {bad}");
        assert!(bad.ends_with(",second\n"), "{args:?}: {bad}");
    }
}

#[test]
fn damaged_and_strange_files_are_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let good = "time,v\n2024-01-01,1\n2024-01-02,2\n";
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let long: String = (0..2000).map(|i| format!("2024-01-01T00:00:00Z,{}\n", i * 7919)).collect();
    packed.write_all(format!("time,v\n{long}").as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    bytes(folder.path(), "cut.csv.gz", &packed[..packed.len() / 2]);
    bytes(folder.path(), "wide.csv", b"\xff\xfet\0i\0m\0e\0");
    bytes(folder.path(), "zip.csv", b"PK\x03\x04rest of it");
    write(folder.path(), "twice.csv", "time,v,v\n2024-01-01,1,2\n");
    write(folder.path(), "noname.csv", "time,,v\n2024-01-01,1,2\n");
    write(folder.path(), "quote.csv", "time,s\n2024-01-01,\"open\n2024-01-02,b\n2024-01-03,c\n");
    let numbers: String = (0..20).map(|i| format!("2024-01-01,{i}\n")).collect();
    write(folder.path(), "huge.csv", &format!("time,v\n{numbers}2024-01-02,1e400\n"));
    write(
        folder.path(),
        "zones.csv",
        "time,v\n2024-01-01T00:00:00+01:00,1\n2024-01-01T00:00:00Z,2\n2024-01-01 00:00,3\n",
    );
    write(folder.path(), "crlf.csv", &format!("\u{feff}{}", good.replace('\n', "\r\n")));
    let cases = [
        ("cut.csv.gz", "the compressed file is damaged or was cut off"),
        ("wide.csv", "the files contain only a header"),
        ("zip.csv", "decompress it"),
        ("twice.csv", "twice.csv:1: two columns are named 'v'"),
        ("noname.csv", "noname.csv:1: column 2 has no name"),
        ("quote.csv", "quote.csv:2: a quote that opens on this line is never closed"),
        ("huge.csv", "huge.csv:22: column 'v' contains numbers, but '1e400' is not"),
        ("*.nothing", "no file matches *.nothing"),
    ];
    for (file, expected) in cases {
        let output = import(folder.path(), &[file]);
        assert_eq!(output.code, 1, "{file}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{file}: {}", output.stderr);
    }
    assert_eq!(import(folder.path(), &["crlf.csv", "zones.csv"]).code, 0);
    let first = "SELECT time, v FROM c ORDER BY time, v LIMIT 2";
    assert_eq!(rows(folder.path(), first), "time,v\n2023-12-31T23:00:00Z,1\n2024-01-01T00:00:00Z,1\n");
    assert_eq!(import(folder.path(), &["crlf.csv", "-"]).code, 2);
    assert_eq!(inside(folder.path(), &["import", "crlf.csv"], "").code, 2);
}

#[test]
fn line_protocol_goes_to_collections_by_measurement_or_into_one() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "# comment\ncpu,host=a usage=1.5,n=3i,up=t,note=\"x, y\" 1704067200000000000\n\
                 mem free=5u 1704067200000000000\ncpu,host=b usage=2 1704067201000000000\n";
    write(folder.path(), "a.lp", lines);
    let apart = inside(folder.path(), &["import", "a.lp"], "");
    assert_eq!(apart.code, 0, "{}", apart.stderr);
    let sql = "SELECT tags['host'] AS host, usage, n, up, note FROM cpu ORDER BY time";
    assert_eq!(rows(folder.path(), sql), "host,usage,n,up,note\na,1.5,3,true,\"x, y\"\nb,2.0,,,\n");
    assert_eq!(rows(folder.path(), "SELECT free FROM mem"), "free\n5\n");
    let together = import(folder.path(), &["a.lp"]);
    assert_eq!(together.code, 0, "{}", together.stderr);
    let sql = "SELECT tags['measurement'] AS m, count(*) AS n FROM c GROUP BY 1 ORDER BY 1";
    assert_eq!(rows(folder.path(), sql), "m,n\ncpu,2\nmem,1\n");
    let now = inside(folder.path(), &["import", "-", "--format", "influx"], "live,a=b v=1\nlive,a=b v=2\n");
    assert_eq!(now.code, 0, "{}", now.stderr);
    assert_eq!(rows(folder.path(), "SELECT count(*) AS n, sum(v) AS v FROM live"), "n,v\n2,3.0\n");
    write(folder.path(), "bad.lp", "cpu v=1 1704067200000000000\ncpu v= 1\n");
    let bad = import(folder.path(), &["bad.lp"]);
    assert!(bad.stderr.contains("bad.lp:2: column 7: field 'v': the value is missing"), "{}", bad.stderr);
}

#[test]
fn a_live_pipe_shows_its_rows_before_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = command();
    running.current_dir(folder.path()).args(["import", "-", "--collection", "c", "--flush-ms", "1"]);
    running.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = running.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(b"time,v\n2024-01-01,1\n").unwrap();
    pipe.flush().unwrap();
    loop {
        let seen = inside(folder.path(), &["--read-only", "sql", "--format", "csv", "SELECT v FROM c"], "");
        if seen.stdout == "v\n1\n" {
            break;
        }
        assert!(child.try_wait().unwrap().is_none());
    }
    pipe.write_all(b"2024-01-02,2.5\n").unwrap();
    drop(pipe);
    assert!(child.wait().unwrap().success());
    assert_eq!(rows(folder.path(), "SELECT v FROM c ORDER BY v"), "v\n1.0\n2.5\n");
}

#[test]
fn exports_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = inside(folder.path(), args, "");
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        output.stdout
    };
    run(&["sql", "CREATE COLLECTION w WITH (timeField = 't', metaField = 's', precision = 'ns')"]);
    let sql = "INSERT INTO w (t, s, d, i, b, x, u, l) VALUES
        ('2024-01-01T00:00:00.000000001Z', 'caf\u{e9} \u{1f30a}', 'NaN'::double, 9223372036854775807, true, X'00ff',
            'a,\"b\"\n\u{e9}', [1, 2]),
        ('1969-12-31T23:59:59.999999999Z', NULL, 'inf'::double, NULL, NULL, NULL, '', NULL),
        ('2024-01-01T00:00:01Z', 'z', -0.0, -1, false, X'', NULL, [NULL])";
    run(&["sql", sql]);
    let all = "SELECT t, s, d, i, b, x, u, l FROM w ORDER BY t";
    let before = run(&["sql", "--format", "ndjson", all]);
    for file in ["w.parquet", "w.arrow"] {
        run(&["export", "w", "--output", file]);
        let name = file.replace('.', "_");
        run(&["import", file, "--collection", &name, "--meta", "s", "--time", "t"]);
        let after = run(&["sql", "--format", "ndjson", &all.replace("FROM w", &format!("FROM {name}"))]);
        assert_eq!(after, before, "{file}");
        let types = |table: &str| run(&["sql", "--format", "csv", &format!("DESCRIBE {table}")]);
        assert_eq!(types(&name), types("w"), "{file}");
    }
    run(&["export", "SELECT t, s, d, i, b, u FROM w", "--output", "w.csv"]);
    run(&["import", "w.csv", "--collection", "w_csv", "--meta", "s", "--time", "t"]);
    let some = "SELECT t, s, d, i, b FROM w ORDER BY t";
    let before = run(&["sql", "--format", "ndjson", some]);
    assert_eq!(run(&["sql", "--format", "ndjson", &some.replace("FROM w", "FROM w_csv")]), before);
}

/// What the state file of an import says: the number of measurements that are certainly stored.
fn state(folder: &Path) -> Option<u64> {
    let data = folder.join("ebbtide-data");
    let names = data.read_dir().ok()?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let name = names.into_iter().find(|n| n.starts_with("import-") && n.ends_with(".json"))?;
    let json: serde_json::Value = serde_json::from_str(&text(&data, &name)).ok()?;
    json["stored"].as_u64()
}

fn started(folder: &Path, resume: bool) -> Child {
    let mut running = command();
    running.current_dir(folder).args(["import", "a.csv.gz", "-c", "c", "--meta", "s", "--batch-rows", "500"]);
    if resume {
        running.arg("--resume");
    }
    running.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Kills an import once it has stored a number of measurements; returns whether it was still running.
fn kill_after(folder: &Path, mut child: Child, stored: u64) -> bool {
    while state(folder).is_none_or(|found| found < stored) {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

#[test]
fn a_killed_import_goes_on_without_a_row_twice_or_left_out() {
    const ROWS: u64 = 12_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"time,s,v\n").unwrap();
    for i in 0..ROWS {
        // Two rows per time, and stations in blocks, as in recorded files.
        let (minute, station) = (i % 1000 / 2, i / 1000);
        writeln!(packed, "2024-01-01T{:02}:{:02}:00Z,s{station},{i}", minute / 60, minute % 60).unwrap();
    }
    bytes(path, "a.csv.gz", &packed.finish().unwrap());
    assert!(kill_after(path, started(path, false), 1000), "it must not be through yet");
    let refused = import(path, &["a.csv.gz", "--meta", "s"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("was interrupted") && refused.stderr.contains("--resume"), "{}", refused.stderr);
    let status = inside(path, &["status"], "").stdout;
    assert!(status.contains("note: an import into c was interrupted after"), "{status}");
    let other = import(path, &["a.csv.gz", "--meta", "s", "--resume", "--null", "7"]);
    assert!(other.stderr.contains("different options"), "{}", other.stderr);
    for stored in [2500, 4000, 6000] {
        if !kill_after(path, started(path, true), stored) {
            break;
        }
    }
    let end = import(path, &["a.csv.gz", "--meta", "s", "--resume", "--batch-rows", "700"]);
    assert_eq!(end.code, 0, "{}", end.stderr);
    let sum = ROWS * (ROWS - 1) / 2;
    let sql = "SELECT count(*) AS n, count(DISTINCT v) AS d, sum(v) AS v FROM c";
    assert_eq!(rows(path, sql), format!("n,d,v\n{ROWS},{ROWS},{sum}\n"));
    let again = import(path, &["a.csv.gz", "--meta", "s", "--resume"]);
    assert!(again.stderr.contains("nothing is left to do"), "{}", again.stderr);
}

#[cfg(unix)]
#[test]
fn an_interrupted_import_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut file = String::from("time,v\n");
    for i in 0..12_000 {
        file.push_str(&format!("2024-01-01T{:02}:{:02}:{:02}Z,{i}\n", i / 3600, i / 60 % 60, i % 60));
    }
    write(path, "a.csv", &file);
    let mut running = command();
    running.current_dir(path).args(["import", "a.csv", "-c", "c", "--batch-rows", "200"]);
    let mut child = running.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while state(path).is_none_or(|stored| stored < 1000) {
        assert!(child.try_wait().unwrap().is_none(), "it must not be through yet");
        std::thread::yield_now();
    }
    let signal = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signal.success());
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("the same command with --resume continues"), "{told}");
    let end = import(path, &["a.csv", "--batch-rows", "200", "--resume"]);
    assert_eq!(end.code, 0, "{}", end.stderr);
    assert_eq!(rows(path, "SELECT count(*) AS n, sum(v) AS v FROM c"), "n,v\n12000,71994000\n");
}

#[test]
fn what_an_export_wrote_comes_back_as_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = inside(folder.path(), args, "");
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        output.stdout
    };
    let rows = r#"{"time":{"$date":"2024-01-01T00:00:00.123Z"},"m":{"host":"a","n":1},"i":9007199254740993,"d":1.0,"s":"x,\"y\"","b":true,"when":{"$date":"2023-05-05T00:00:00.5Z"},"bin":{"$binary":{"base64":"AAEC/w==","subType":"00"}},"l":[1,2],"o":{"k":1.5,"t":"q"}}
{"time":{"$date":"1969-01-01T00:00:01Z"},"m":{"host":"b","n":2},"i":-1,"d":0.1,"s":"line\nbreak","b":false,"l":[]}
{"time":{"$date":"2024-01-01T00:00:02Z"},"m":{"host":"b","n":2},"s":"007","d":1e300}
"#;
    write(folder.path(), "rows.ndjson", rows);
    run(&["import", "rows.ndjson", "-c", "all", "--meta", "m"]);
    // Parquet and Arrow keep everything; NDJSON has times and bytes only as text; CSV has neither objects nor lists.
    let plain = "SELECT time, m['host'] AS host, i, d, s, b, when FROM all ORDER BY time";
    let cases = [
        ("parquet", "SELECT * FROM all ORDER BY time", "m"),
        ("arrow", "SELECT * FROM all ORDER BY time", "m"),
        ("ndjson", "SELECT time, m, i, d, s, b, l, o FROM all ORDER BY time", "m"),
        ("csv", plain, "host"),
    ];
    for (form, query, meta) in cases {
        let query = query.replace("all", "\"all\"");
        let file = format!("copy.{form}");
        run(&["export", &query, "--output", &file]);
        let collection = format!("from_{form}");
        run(&["import", &file, "-c", &collection, "--meta", meta]);
        let back = query.replace("\"all\"", &collection).replace("m['host'] AS host", "host");
        let lines = |sql: &str| run(&["sql", "--format", "ndjson", sql]);
        assert_eq!(lines(&back), lines(&query), "{form}");
        let types = |sql: &str| run(&["sql", "--format", "csv", &format!("DESCRIBE {sql}")]);
        let (before, after) = (types("\"all\""), types(&collection));
        for line in after.lines().filter(|l| !l.ends_with(",meta")) {
            assert!(before.lines().any(|known| known == line), "{form}: {line}\n{before}");
        }
    }
}

#[test]
fn columns_that_are_almost_numbers_end_with_the_question_and_its_answers() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, values: &[&str]| {
        let row = |(at, value): (usize, &&str)| format!("2024-01-01T00:00:{at:02}Z;{value}\n");
        let lines: String = values.iter().enumerate().map(row).collect();
        write(folder.path(), name, &format!("time;v\n{lines}"));
    };
    file("codes.csv", &["999", "999", "090", "360"]);
    file("comma.csv", &["5,2", "6,1", "7"]);
    file("na.csv", &["1", "NA", "2", "NA", "3"]);
    file("large.csv", &["1e400", "2", "3"]);
    file("thousands.csv", &["1,021.9", "990.0"]);
    file("words.csv", &["calm", "12", "gusts", "light"]);
    file("ids.csv", &["007", "012"]);
    let cases = [
        ("codes.csv", "codes.csv:4: column 'v' contains numbers, and '090' with leading zeros", "--number v"),
        ("na.csv", "na.csv:3: column 'v' contains numbers, but 'NA' is not", "--null 'NA'"),
        ("large.csv", "large.csv:2: column 'v' contains numbers, but '1e400' is not", "--text v"),
        ("thousands.csv", "thousands.csv:2: column 'v' contains numbers, but '1,021.9' is not", "--thousands ,"),
    ];
    for (name, expected, option) in cases {
        let output = import(folder.path(), &[name, "--delimiter", ";"]);
        assert_eq!(output.code, 1, "{name}: {}", output.stderr);
        assert!(output.stderr.contains(expected) && output.stderr.contains(option), "{name}: {}", output.stderr);
    }
    let imported = |name: &str, more: &[&str]| {
        let collection = name.split_once('.').unwrap().0;
        let mut args = vec!["import", name, "-c", collection, "--delimiter", ";"];
        args.extend(more);
        let output = inside(folder.path(), &args, "");
        assert_eq!(output.code, 0, "{name}: {}", output.stderr);
        (output.stderr, rows(folder.path(), &format!("SELECT v FROM {collection} ORDER BY time")))
    };
    assert_eq!(imported("codes.csv", &["--number", "v"]).1, "v\n999\n999\n90\n360\n");
    assert_eq!(imported("comma.csv", &["--decimal-comma"]).1, "v\n5.2\n6.1\n7.0\n");
    assert_eq!(imported("na.csv", &["--null", "NA"]).1, "v\n1\n\"\"\n2\n\"\"\n3\n");
    let (told, _) = imported("words.csv", &[]);
    assert!(told.contains("v is text: 1 of 4 values are numbers, 'calm' in line 2 is not"), "{told}");
    let (told, ids) = imported("ids.csv", &[]);
    assert!(told.contains("--number v reads numbers"), "{told}");
    assert_eq!(ids, "v\n007\n012\n");
}

#[test]
fn lines_are_counted_as_an_editor_counts_them_and_values_without_bad_lines() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..30)
        .map(|i| format!("2024-01-01T00:00:{i:02}Z,{}\n", if i == 17 { "x".into() } else { i.to_string() }))
        .collect();
    let file = format!("time,v\n{lines}");
    write(folder.path(), "lf.csv", &file);
    write(folder.path(), "crlf.csv", &file.replace('\n', "\r\n"));
    write(folder.path(), "skip.csv", &format!("one\r\ntwo\r\n{}", file.replace('\n', "\r\n")));
    for (name, skip, line) in [("lf.csv", "0", 19), ("crlf.csv", "0", 19), ("skip.csv", "2", 21)] {
        let output = import(folder.path(), &[name, "--skip", skip]);
        assert!(output.stderr.contains(&format!("{name}:{line}: ")), "{}", output.stderr);
    }
    let output = import(folder.path(), &["crlf.csv", "--bad-lines", "bad.csv"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stderr.contains(" 29 values"), "{}", output.stderr);
}

#[test]
fn times_at_the_ends_of_what_is_stored_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let far = ["+292278994-08-17T07:12:55.807Z", "-292275055-05-16T16:47:04.192Z", "2024-01-01T00:00:00Z"];
    let lines: String = far.iter().map(|t| format!("{t},{t}\n")).collect();
    write(folder.path(), "far.csv", &format!("time,other\n{lines}"));
    assert_eq!(import(folder.path(), &["far.csv"]).code, 0);
    for form in ["csv", "ndjson", "parquet", "arrow"] {
        let (file, copy) = (format!("copy.{form}"), format!("from_{form}"));
        assert_eq!(inside(folder.path(), &["export", "c", "-o", &file], "").code, 0);
        let output = inside(folder.path(), &["import", &file, "-c", &copy], "");
        assert_eq!(output.code, 0, "{form}: {}", output.stderr);
        let sql = |from: &str| rows(folder.path(), &format!("SELECT time, other FROM {from} ORDER BY time"));
        assert_eq!(sql(&copy), sql("c"), "{form}");
    }
}

#[test]
fn the_first_row_after_blank_lines_and_comments_below_the_header_is_imported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for (name, text, options) in [
        ("blank.csv", "time,v\n\n2024-01-01,1\n2024-01-02,2\n", &[][..]),
        ("blanks.csv", "time,v\n\n\n2024-01-01,1\n2024-01-02,2", &[]),
        ("crlf.csv", "time,v\r\n\r\n2024-01-01,1\r\n2024-01-02,2\r\n", &[]),
        ("comment.csv", "time,v\n# mid\n2024-01-01,1\n2024-01-02,2\n", &["--comment", "#"]),
        ("units.csv", "time,v\n(UTC),(mm)\n\n2024-01-01,1\n2024-01-02,2\n", &[]),
    ] {
        write(path, name, text);
        let database = format!("{name}.db");
        let output = import(path, &[&["--db", &database, name][..], options].concat());
        assert_eq!(output.code, 0, "{name}: {}", output.stderr);
        let stored = inside(path, &["--db", &database, "sql", "--format", "csv", "SELECT v FROM c ORDER BY v"], "");
        assert_eq!(stored.stdout, "v\n1\n2\n", "{name}: {}", output.stderr);
        if options.is_empty() {
            let read = inside(path, &["sql", "--format", "csv", &format!("SELECT v FROM '{name}' ORDER BY v")], "");
            assert_eq!(read.stdout, "v\n1\n2\n", "{name}: {}", read.stderr);
        }
    }
    write(path, "bad.csv", "time,v\n\n\n2024-01-01,1\nx,2\n");
    let output = import(path, &["bad.csv"]);
    assert!(output.code != 0 && output.stderr.contains("bad.csv:5:"), "{}", output.stderr);
}

#[test]
fn times_of_parquet_without_a_zone_are_those_of_the_zone_that_is_given() {
    use arrow::array::{ArrayRef, Date32Array, RecordBatch, TimestampMillisecondArray};
    use std::sync::Arc;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let local = TimestampMillisecondArray::from(vec![1_704_067_200_000, 1_719_792_000_000]);
    let columns: [(&str, ArrayRef); 4] = [
        ("time", Arc::new(local.clone())),
        ("at", Arc::new(local.clone())),
        ("day", Arc::new(Date32Array::from(vec![19_723, 19_905]))),
        ("utc", Arc::new(local.with_timezone("UTC"))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut file = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes(path, "a.parquet", &file);
    let imported = import(path, &["a.parquet", "--time", "time", "--time-zone", "America/New_York"]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    let (winter, summer) = ("2024-01-01T05:00:00Z", "2024-07-01T04:00:00Z");
    let expected = format!(
        "time,at,day,utc\n{winter},{winter},{winter},2024-01-01T00:00:00Z\n{summer},{summer},{summer},2024-07-01T00:00:00Z\n"
    );
    assert_eq!(rows(path, "SELECT time, at, day, utc FROM c ORDER BY time"), expected);
}
