//! Small files that decompress to very large ones.

use crate::cli::{Output, command, inside, write};
use arrow::array::{ArrayRef, DictionaryArray, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow::datatypes::Int32Type;
use parquet::arrow::ArrowWriter;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

/// The address space that an import may use: far less than any of the decompressed files.
const KIB_MAX: u32 = 1_500_000;

/// Imports into collection `c` with limited memory.
fn import(folder: &Path, args: &[&str]) -> Output {
    let program = command().get_program().to_owned();
    let mut shell = std::process::Command::new("sh");
    let bounded = if cfg!(target_os = "linux") { format!("ulimit -v {KIB_MAX}; ") } else { String::new() };
    shell.arg("-c").arg(format!("{bounded}exec \"$0\" import --collection c \"$@\"")).arg(program).args(args);
    shell.current_dir(folder).env_remove("EBBTIDE_DB").env("NO_COLOR", "1").stdin(Stdio::null());
    let output = shell.output().unwrap();
    Output {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A compressed file: a beginning, and then the same piece many times.
fn repeated(folder: &Path, name: &str, begin: &str, piece: &[u8], times: usize) {
    #[expect(clippy::disallowed_methods, reason = "test input")]
    let file = std::fs::File::create(folder.join(name)).unwrap();
    let mut out: Box<dyn Write> = if name.ends_with(".gz") {
        Box::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()))
    } else {
        Box::new(zstd::stream::write::Encoder::new(file, 1).unwrap().auto_finish())
    };
    out.write_all(begin.as_bytes()).unwrap();
    for _ in 0..times {
        out.write_all(piece).unwrap();
    }
    out.flush().unwrap();
}

fn count(folder: &Path, db: &str) -> String {
    let output = inside(folder, &["--db", db, "sql", "--format", "csv", "SELECT count(*), sum(length(s)) FROM c"], "");
    output.stdout.lines().nth(1).unwrap_or(&output.stderr).to_owned()
}

#[test]
fn a_line_without_an_end_is_refused_with_its_place_and_not_read_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mib = vec![b'x'; 1 << 20];
    repeated(
        path,
        "quote.csv.zst",
        "time,s\n2024-01-01,a\n2024-01-02,\"open\n",
        &format!("2024-01-03,{}\n", "c".repeat(100)).into_bytes().repeat(1 << 14),
        100,
    );
    repeated(path, "line.ndjson.zst", "{\"time\":\"2024-01-01\",\"s\":\"a\"}\n{\"s\":\"", &mib, 4096);
    for (file, line) in [("quote.csv.zst", 3), ("line.ndjson.zst", 2)] {
        let output = import(path, &[file]);
        assert_eq!(output.code, 1, "{file}: {}", output.stderr);
        let expected = format!("{file}:{line}: the line is longer than 64 MiB");
        assert!(output.stderr.contains(&expected) && !output.stderr.contains("damaged"), "{file}: {}", output.stderr);
        assert!(!path.join("ebbtide-data").exists());
    }
}

#[test]
fn a_line_of_nothing_but_delimiters_is_refused_before_its_cells_take_memory() {
    let folder = tempfile::tempdir().unwrap();
    repeated(folder.path(), "commas.csv.zst", "time,s\n2024-01-01,a\n", &vec![b','; 1 << 20], 1024);
    let output = import(folder.path(), &["commas.csv.zst"]);
    assert_eq!(output.code, 1, "{}", output.stderr);
    let expected = "commas.csv.zst:3: the line has more than 4194304 delimiters";
    assert!(output.stderr.contains(expected), "{}", output.stderr);
}

#[test]
fn lines_that_are_wide_or_deep_beyond_measure_are_bad_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "wide.csv", &format!("time{}\n", ",x".repeat(30_000)));
    let wide = import(path, &["wide.csv"]);
    assert!(wide.stderr.contains("wide.csv:1: the line has 30001 columns, at most 20000"), "{}", wide.stderr);
    let good = "{\"time\":\"2024-01-01\",\"s\":\"a\"}\n";
    let deep = format!("{{\"time\":\"2024-01-02\",\"s\":{}{}}}\n", "[".repeat(10_000), "]".repeat(10_000));
    let many = format!("{{\"time\":\"2024-01-03\",\"s\":[{}0]}}\n", "0,".repeat(3 << 20));
    write(path, "bad.ndjson", &format!("{good}{deep}{many}{}", good.replace("-01\"", "-05\"")));
    let strict = import(path, &["bad.ndjson"]);
    assert!(
        strict.stderr.contains("bad.ndjson:2: a value nests deeper than 100 levels at line 1"),
        "{}",
        strict.stderr
    );
    let lenient = import(path, &["bad.ndjson", "--bad-lines", "bad.csv"]);
    assert_eq!(lenient.code, 0, "{}", lenient.stderr);
    assert!(lenient.stderr.contains("2 bad lines"), "{}", lenient.stderr);
    let expected = "bad.ndjson:3: a measurement of more than 16777216 bytes";
    assert!(lenient.stderr.contains(expected), "{}", lenient.stderr);
    assert_eq!(count(path, "ebbtide-data"), "2,2");
}

/// A Parquet file in which all rows have the same long text, stored once.
fn same_text(path: &Path, rows: usize, text: &str) {
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values((0..rows as i64).map(|i| i * 1000)));
    let keys = arrow::array::Int32Array::from(vec![0; rows]);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let shared = DictionaryArray::<Int32Type>::new(keys, texts);
    let views = arrow::compute::cast(&shared, &arrow::datatypes::DataType::Utf8View).unwrap();
    let batch = RecordBatch::try_from_iter([("time", times), ("s", views)]).unwrap();
    #[expect(clippy::disallowed_methods, reason = "test input")]
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn a_small_parquet_file_of_long_texts_is_read_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    same_text(&path, 6000, &"0123456789".repeat(26_000));
    assert!(path.metadata().unwrap().len() < 1_000_000);
    let output = import(folder.path(), &["a.parquet", "--dry-run"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stderr.contains("6,000 measurements would be imported"), "{}", output.stderr);
}

#[test]
fn parquet_files_that_lie_about_themselves_are_refused_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("good.parquet");
    same_text(&path, 60, "0123456789");
    #[expect(clippy::disallowed_methods, reason = "test input")]
    let good = std::fs::read(&path).unwrap();
    let mut refused = 0;
    for (place, byte) in (0..good.len()).step_by(good.len() / 60).zip([0x00, 0x7f, 0xff].into_iter().cycle()) {
        let mut bad = good.clone();
        bad[place] = byte;
        #[expect(clippy::disallowed_methods, reason = "test input")]
        std::fs::write(folder.path().join("bad.parquet"), bad).unwrap();
        let output = import(folder.path(), &["bad.parquet", "--dry-run"]);
        match output.code {
            0 => assert!(output.stderr.contains("measurements would be imported"), "{place}: {}", output.stderr),
            1 => {
                refused += 1;
                assert!(output.stderr.contains("bad.parquet"), "{place}: {}", output.stderr);
            }
            code => panic!("byte {byte} at {place} ends the program with {code}: {}", output.stderr),
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn parquet_files_that_claim_billions_of_columns_or_row_groups_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    // Structs in Thrift's compact protocol: the version, a list of columns, the number of rows, a list of row groups.
    let billions = [0xfc, 0xff, 0xff, 0xff, 0xff, 0x07];
    let columns = [&[0x15, 0x04, 0x19][..], &billions].concat();
    let row_groups = [&[0x15, 0x04, 0x19, 0x1c, 0x00, 0x16, 0x00, 0x19][..], &billions].concat();
    let no_list = vec![0x15, 0x04, 0x15, 0xff, 0xff, 0xff, 0xff, 0x07, 0x00];
    let deep = [&[0x15, 0x04, 0x19, 0x1c][..], &[0x1c; 100_000]].concat();
    for (footer, reason) in [
        (columns, "its footer claims 2147483647 items in 0 bytes"),
        (row_groups, "its footer claims 2147483647 items in 0 bytes"),
        (no_list, "its footer has no list of structs in field 2"),
        (deep, "its footer is nested too deeply"),
    ] {
        let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
        let file = [b"PAR1", footer.as_slice(), &length, b"PAR1"].concat();
        #[expect(clippy::disallowed_methods, reason = "test input")]
        std::fs::write(folder.path().join("bad.parquet"), file).unwrap();
        let output = import(folder.path(), &["bad.parquet"]);
        assert_eq!(output.code, 1, "{}", output.stderr);
        assert!(output.stderr.contains("bad.parquet") && output.stderr.contains(reason), "{}", output.stderr);
    }
}
