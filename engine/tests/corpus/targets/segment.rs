//! Any bytes as a segment, and good ones with forged checksums, so that what lies behind these is reached.

use super::{HOUR, NOON, int, measurements, object, patch, texts};
use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use ebbtide::ttl::{Precision, Timestamp, Value};
use ebbtide_buckets::{Chunk, FileTypes, Schema, SealRun, Sealer, SegmentReader, batch_from_documents};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use std::sync::{Arc, OnceLock};

const BLOCK: usize = 4096;
const MARK: &[u8] = b"ebbtide-tail:start=";

struct Sample {
    bytes: Vec<u8>,
    /// Where the directory begins.
    data_end: usize,
    directory_len: usize,
    directory: Vec<u8>,
    metadata: ParquetMetaData,
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let mut documents = measurements(0..60, NOON - 2 * HOUR);
        documents.extend((0..200).map(|i| {
            object(vec![
                ("t", Value::Date(Timestamp::from_millis(NOON + i * HOUR))),
                (
                    "m",
                    object(vec![
                        ("site", Value::from(["roof", "cellar"][i as usize % 2])),
                        ("floor", Value::Int(i % 5)),
                    ]),
                ),
                ("x", Value::Double(i as f64 * 0.1)),
                ("list", Value::Array(vec![Value::from("one"), Value::Null])),
                ("inner", object(vec![("a", Value::Bool(i % 3 == 0)), ("b", Value::Binary(vec![i as u8; 9]))])),
            ])
        }));
        // Texts as metas do not go with objects: these become a field.
        for document in documents.iter_mut().take(60) {
            if let Value::Object(members) = document {
                members[1].0 = "text".into();
            }
        }
        let empty = Schema::new("t", Some("m".to_owned()), Precision::Ms);
        let accepted = batch_from_documents(&documents, &empty).expect("documents");
        let chunk = Chunk::build(accepted.batch, &accepted.schema, 3_600);
        let mut buckets: Vec<_> = chunk.buckets.iter().collect();
        buckets.sort_by(|a, b| a.id.cmp(&b.id));
        let runs: Vec<SealRun> = buckets
            .iter()
            .map(|bucket| SealRun { id: bucket.id.clone(), rows: bucket.rows.iter().map(|row| (0, *row)).collect() })
            .collect();
        let sealer = Sealer::new(&accepted.schema, &FileTypes::default(), std::slice::from_ref(&chunk.batch), &|| true)
            .expect("canonical");
        let bytes = sealer.encode(&runs, &|| true).expect("encode").bytes;
        let reader = SegmentReader::open(Arc::new(Bytes::from(bytes.clone())), "sample").expect("open");
        let data_end = usize::try_from(reader.data_end()).expect("small");
        let metadata = reader.parquet_metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
        let place = metadata.iter().find(|pair| pair.key == "ebbtide.directory").and_then(|pair| pair.value.clone());
        let place = place.expect("a directory");
        let directory_len = place.split(',').nth(1).and_then(|len| len.parse().ok()).expect("a length");
        let framed = &bytes[data_end..data_end + directory_len];
        let raw = u32::from_le_bytes(framed[..4].try_into().expect("4 bytes"));
        let directory = zstd::bulk::decompress(&framed[4..], raw as usize).expect("decompress");
        let metadata = reader.parquet_metadata();
        let metadata = ParquetMetaData::new(metadata.file_metadata().clone(), metadata.row_groups().to_vec());
        Sample { bytes, data_end, directory_len, directory, metadata }
    })
}

/// The file with another directory, if it fits into the old one's place.
fn with_directory(sample: &Sample, raw: &[u8]) -> Option<Vec<u8>> {
    let mut framed = u32::try_from(raw.len()).ok()?.to_le_bytes().to_vec();
    framed.extend(zstd::bulk::compress(raw, 19).ok()?);
    let pad = sample.directory_len.checked_sub(framed.len())?;
    // A frame that decoders skip fills what is left.
    match pad.checked_sub(8) {
        Some(body) => {
            framed.extend(0x184D_2A50_u32.to_le_bytes());
            framed.extend(u32::try_from(body).ok()?.to_le_bytes());
            framed.resize(sample.directory_len, 0);
        }
        None if pad == 0 => {}
        None => return None,
    }
    let mut bytes = sample.bytes.clone();
    bytes[sample.data_end..sample.data_end + sample.directory_len].copy_from_slice(&framed);
    Some(bytes)
}

/// Makes the checksum of the tail hold.
fn seal_tail(bytes: &mut [u8], data_end: usize) {
    let Some(mark) = bytes.windows(MARK.len()).rposition(|window| window == MARK) else { return };
    let digits = mark + MARK.len() + 16 + 5;
    if digits + 8 > bytes.len() || digits < data_end {
        return;
    }
    bytes[digits..digits + 8].copy_from_slice(b"00000000");
    let crc = format!("{:08x}", crc32fast::hash(&bytes[data_end..]));
    bytes[digits..digits + 8].copy_from_slice(crc.as_bytes());
}

/// Other data, with a directory that has its checksums.
fn with_data(sample: &Sample, u: &mut Unstructured<'_>) -> Result<Option<Vec<u8>>> {
    let mut data = sample.bytes[..sample.data_end].to_vec();
    for _ in 0..u.int_in_range(1..=8)? {
        let at = u.int_in_range(0..=data.len() - 1)?;
        data[at] = u.arbitrary()?;
    }
    let crcs =
        |data: &[u8]| data.chunks(BLOCK).flat_map(|block| crc32fast::hash(block).to_le_bytes()).collect::<Vec<u8>>();
    let old = crcs(&sample.bytes[..sample.data_end]);
    let mut directory = sample.directory.clone();
    let at = directory.windows(old.len()).position(|window| window == old).expect("checksums");
    directory[at..at + old.len()].copy_from_slice(&crcs(&data));
    Ok(with_directory(sample, &directory).map(|mut bytes| {
        bytes[..sample.data_end].copy_from_slice(&data);
        bytes
    }))
}

/// A number for a footer: any, one of those that are in it, or one near.
fn claimed(sample: &Sample, u: &mut Unstructured<'_>) -> Result<i64> {
    let columns = sample.metadata.row_groups()[0].columns();
    let column = u.choose(columns)?;
    let known = *u.choose(&[column.data_page_offset(), column.compressed_size(), column.num_values()])?;
    Ok(match u.int_in_range(0..=2)? {
        0 => int(u)?,
        1 => known,
        _ => known.wrapping_add(i64::from(u.arbitrary::<i8>()?)),
    })
}

/// Another number in what the footer says of a column.
fn with_claim(column: ColumnChunkMetaData, number: i64, u: &mut Unstructured<'_>) -> Result<ColumnChunkMetaData> {
    let column = column.into_builder();
    let short = i32::try_from(number.clamp(i32::MIN.into(), i32::MAX.into())).expect("clamped");
    let column = match u.int_in_range(0..=7)? {
        0 => column.set_num_values(number),
        1 => column.set_total_compressed_size(number),
        2 => column.set_total_uncompressed_size(number),
        3 => column.set_unencoded_byte_array_data_bytes(Some(number)),
        4 => column.set_data_page_offset(number),
        5 => column.set_dictionary_page_offset(u.arbitrary::<bool>()?.then_some(number)),
        6 => column.set_offset_index_offset(u.arbitrary::<bool>()?.then_some(number)),
        _ => column.set_offset_index_length(u.arbitrary::<bool>()?.then_some(short)),
    };
    column.build().map_err(|_| arbitrary::Error::IncorrectFormat)
}

/// The file with a footer that says something else of its row groups and columns.
fn with_footer(sample: &Sample, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut groups = sample.metadata.row_groups().to_vec();
    for _ in 0..u.int_in_range(1..=4)? {
        let group = u.choose(&groups)?.clone();
        let number = claimed(sample, u)?;
        let made = match u.int_in_range(0..=5)? {
            0 => group.into_builder().set_num_rows(number),
            1 => group.into_builder().set_total_byte_size(number),
            _ => {
                let mut columns = group.columns().to_vec();
                let at = u.int_in_range(0..=columns.len() - 1)?;
                columns[at] = with_claim(columns[at].clone(), number, u)?;
                group.into_builder().set_column_metadata(columns)
            }
        };
        let made = made.build().map_err(|_| arbitrary::Error::IncorrectFormat)?;
        let at = u.int_in_range(0..=groups.len() - 1)?;
        match u.int_in_range(0..=5)? {
            0 => groups.push(made),
            1 if groups.len() > 1 => drop(groups.remove(at)),
            _ => groups[at] = made,
        }
    }
    let file = sample.metadata.file_metadata();
    let (maker, pairs) = (file.created_by().map(str::to_owned), file.key_value_metadata().cloned());
    let file = FileMetaData::new(file.version(), 0, maker, pairs, file.schema_descr_ptr(), None);
    let (rest, trailer) = sample.bytes.split_at(sample.bytes.len() - 8);
    let footer = u32::from_le_bytes(trailer[..4].try_into().expect("4 bytes")) as usize;
    let mut bytes = rest[..rest.len() - footer].to_vec();
    // Rows of the file and bytes of a group are written as sums, which may be more than there are numbers.
    let fits = |numbers: Vec<i64>| numbers.into_iter().try_fold(0_i64, i64::checked_add).is_some();
    let bytes_of = |group: &RowGroupMetaData| group.columns().iter().map(|c| c.compressed_size()).collect();
    if !fits(groups.iter().map(|group| group.num_rows()).collect()) || !groups.iter().all(|g| fits(bytes_of(g))) {
        return Err(arbitrary::Error::IncorrectFormat);
    }
    let written = ParquetMetaDataWriter::new(&mut bytes, &ParquetMetaData::new(file, groups)).finish();
    written.map(|()| bytes).map_err(|_| arbitrary::Error::IncorrectFormat)
}

/// A fuzzer aborts at any panic, also at those that the engine catches: the Parquet reader's assertions about forged pages.
/// What is not caught still ends the run.
fn let_panics_be_caught() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            if info.location().is_none_or(|place| !place.file().contains("/parquet-")) {
                eprintln!("{info}");
            }
        }));
    });
}

fn read_all(bytes: Vec<u8>) {
    let Ok(reader) = SegmentReader::open(Arc::new(Bytes::from(bytes)), "fuzzed") else { return };
    let _verified = (reader.verify(), reader.verify_filters());
    let directory = reader.directory();
    for bucket in 0..directory.bucket_count() {
        let meta = directory.meta_of(bucket);
        assert!(directory.find_meta(&meta).is_some_and(|m| directory.buckets_of_meta(m).contains(&bucket)));
        let rows = directory.rows(bucket);
        assert!(rows.start <= rows.end && rows.end <= directory.row_count());
        let _bounds =
            (directory.window(bucket), directory.first(bucket), directory.last(bucket), directory.bytes(bucket));
    }
    for value in [Value::from("roof"), Value::Int(3), Value::Null] {
        drop((
            directory.posting(&["site"], &value),
            directory.posting(&["floor"], &value),
            directory.posting(&[], &value),
        ));
    }
    let schema = reader.schema().clone();
    let arrow = schema.arrow();
    let columns: Vec<String> = arrow.fields().iter().map(|f| f.name().clone()).collect();
    for name in &columns {
        let _stats = directory.stats(name).map(|stats| format!("{stats:?}"));
    }
    let rows = directory.row_count();
    let (all, parts) = (0..rows, [0..rows.min(3), (rows / 2).max(3).min(rows)..rows]);
    for ranges in [&parts, std::slice::from_ref(&all)] {
        let Ok(batches) = reader.read(&columns, &schema, ranges, 64) else { continue };
        for batch in batches.take(100) {
            let Ok(batch) = batch else { break };
            drop(texts(&batch));
        }
    }
}

pub(super) fn run(data: &[u8]) {
    let_panics_be_caught();
    let sample = sample();
    let Some((mode, rest)) = data.split_first() else { return };
    let mut u = Unstructured::new(rest);
    let mode = mode % 8;
    let forged = match mode {
        0 => Some(rest.to_vec()),
        1 | 4 => {
            let mut directory = sample.directory.clone();
            patch(&mut directory, &mut u).ok().and_then(|()| with_directory(sample, &directory))
        }
        2 => with_directory(sample, rest),
        3 | 5 => with_data(sample, &mut u).unwrap_or(None),
        _ => with_footer(sample, &mut u).ok(),
    };
    let Some(mut bytes) = forged else { return };
    if mode != 0 {
        seal_tail(&mut bytes, sample.data_end);
    }
    read_all(bytes);
}
