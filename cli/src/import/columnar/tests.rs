use super::*;
use crate::args::{Cli, Command};
use crate::import::bad::BadLines;
use arrow::array::{
    ArrayRef, DictionaryArray, Float64Array, Int64Array, ListArray, StringArray, StructArray, TimestampMillisecondArray,
};
use arrow::datatypes::{Int32Type, Int64Type};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use clap::Parser;
use ebbtide_buckets::{Schema, batch_from_arrow};
use ebbtide_ttl::Precision;
use parquet::arrow::ArrowWriter;
use std::cell::RefCell;
use std::io::{Seek, SeekFrom, Write};

const MUTATIONS: usize = 400;

fn sample() -> RecordBatch {
    let times = TimestampMillisecondArray::from_iter_values((0..40).map(|i| i * 60_000)).with_timezone("UTC");
    let texts = StringArray::from_iter((0..40).map(|i| (i % 5 != 0).then(|| format!("station {}", i % 3))));
    let names: DictionaryArray<Int32Type> = (0..40).map(|i| ["a", "b", "c"][i % 3]).collect();
    let lists =
        ListArray::from_iter_primitive::<Int64Type, _, _>((0..40).map(|i| (i % 4 != 0).then(|| vec![Some(i); 2])));
    let inner: ArrayRef = Arc::new(Int64Array::from_iter_values(0..40));
    let columns: [(&str, ArrayRef); 6] = [
        ("time", Arc::new(times)),
        ("text", Arc::new(texts)),
        ("name", Arc::new(names)),
        ("list", Arc::new(lists)),
        ("object", Arc::new(StructArray::try_from(vec![("n", inner)]).unwrap())),
        ("v", Arc::new(Float64Array::from_iter_values((0..40).map(|i| f64::from(i) / 7.0)))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The sample in every format.
fn files() -> Vec<(bool, Vec<u8>)> {
    let batch = sample();
    let (mut parquet, mut file, mut stream) = (Vec::new(), Vec::new(), Vec::new());
    let mut writer = ArrowWriter::try_new(&mut parquet, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let mut writer = FileWriter::try_new(&mut file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    vec![(true, parquet), (false, file), (false, stream)]
}

/// Reads a file as an import does, and returns the rows.
fn read_all(bytes: &[u8], is_parquet: bool) -> Result<usize, String> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut batches = match is_parquet {
        true => open_parquet(file, 1000)?.2,
        false => open_arrow(file)?.1,
    };
    let mut rows = 0;
    while let Some(batch) = guarded(|| batches.next())? {
        let batch = batch.map_err(|e| e.to_string())?;
        let schema = Schema::new("time", None, Precision::Ms);
        let accepted = batch_from_arrow(&batch, &schema).map_err(|e| e.error.to_string())?;
        rows += accepted.batch.num_rows();
    }
    Ok(rows)
}

#[test]
fn damaged_files_are_errors_and_no_panics() {
    let mut seed: u64 = 0x5eed;
    let mut next = || {
        // Splitmix64.
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 33).unwrap()
    };
    for (is_parquet, bytes) in files() {
        assert_eq!(read_all(&bytes, is_parquet), Ok(40));
        let mut refused = 0;
        for _ in 0..MUTATIONS {
            let mut changed = bytes.clone();
            match next() % 8 {
                0 => changed.truncate(next() % bytes.len()),
                // Most of a file's metadata is at its end and at its beginning.
                kind => {
                    let near = 600.min(bytes.len());
                    for _ in 0..1 + next() % 3 {
                        let at = match kind {
                            1..3 => next() % near,
                            3..6 => bytes.len() - 1 - next() % near,
                            _ => next() % bytes.len(),
                        };
                        changed[at] = [changed[at] ^ (1 << (next() % 8)), 0xff, 0x7f, 0][next() % 4];
                    }
                }
            }
            refused += usize::from(read_all(&changed, is_parquet).is_err());
        }
        assert!(refused > MUTATIONS / 4, "{refused} of {MUTATIONS} were refused");
    }
}

/// A night on which clocks went back, every half hour, with a time that cannot be read.
const NIGHT: [&str; 8] = [
    "2024-10-27 00:30",
    "2024-10-27 01:00",
    "soon",
    "2024-10-27 01:30",
    "2024-10-27 01:00",
    "2024-10-27 01:30",
    "2024-10-27 02:00",
    "2024-10-27 02:30",
];

/// The instants of the rows of a file after a number of them, each with its line.
fn instants_after(path: &std::path::Path, start: u64) -> Vec<(u64, String)> {
    let words = "ebbtide import x --time-zone Europe/Dublin --dst infer --batch-rows 3 --bad-lines bad.csv";
    let cli = Cli::try_parse_from(words.split(' ')).unwrap();
    let Command::Import(args) = &cli.command else { panic!("{words}") };
    // Without a file, bad lines are only counted.
    let bad = RefCell::new(BadLines::new(args.bad_lines.as_deref(), 10));
    let job = Job::new(args, "c".to_owned(), None, &bad, false).unwrap();
    let source = Source::find(path, path, None, &Arc::default()).unwrap();
    let layout = Layout::new(&job, None, &["time".to_owned(), "v".to_owned()], &LearnedColumns::default()).unwrap();
    let mut found = Vec::new();
    read(&source, &job, &layout, start, &mut |rows| {
        let times = rows.batch.column(0);
        let texts = (0..times.len()).map(|row| ebbtide_query::output::text(times.as_ref(), row).unwrap());
        found.extend(rows.lines.iter().copied().zip(texts));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

#[test]
fn a_resumed_import_reads_repeated_local_times_as_the_whole_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("night.parquet");
    let columns: [(&str, ArrayRef); 2] =
        [("time", Arc::new(StringArray::from_iter_values(NIGHT))), ("v", Arc::new(Int64Array::from_iter_values(0..8)))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut parquet = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut parquet, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    #[expect(clippy::disallowed_methods, reason = "test input")]
    std::fs::write(&path, parquet).unwrap();
    let whole = instants_after(&path, 0);
    let clocks: Vec<&str> = whole.iter().map(|(_, time)| &time[11..16]).collect();
    assert_eq!(clocks, ["23:30", "00:00", "00:30", "01:00", "01:30", "02:00", "02:30"]);
    for start in 1..=8 {
        let rest: Vec<(u64, String)> = whole.iter().filter(|(line, _)| *line > start).cloned().collect();
        assert_eq!(instants_after(&path, start), rest, "after {start} rows");
    }
}
