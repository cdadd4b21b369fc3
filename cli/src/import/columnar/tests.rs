use super::*;
use arrow::array::{
    ArrayRef, DictionaryArray, Float64Array, Int64Array, ListArray, StringArray, StructArray, TimestampMillisecondArray,
};
use arrow::datatypes::{Int32Type, Int64Type};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use ebbtide_buckets::{Schema, batch_from_arrow};
use ebbtide_ttl::Precision;
use parquet::arrow::ArrowWriter;
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
