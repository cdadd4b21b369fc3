//! What was pushed is what is found and scanned, whatever the keys and documents are.

mod damage;
mod encodings;

use super::*;
use crate::segment::SegmentError;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A document with its instant and its life.
type Row = (i64, Option<i64>, Vec<u8>);

fn write(rows: &BTreeMap<Vec<u8>, Row>) -> Result<(Vec<u8>, KeyedMeta), SegmentError> {
    let mut writer = KeyedWriter::new()?;
    for (key, (written, ttl, document)) in rows {
        writer.push(KeyedRow { key, written: *written, ttl: *ttl, document })?;
    }
    writer.finish()
}

fn open(bytes: &[u8]) -> Result<KeyedReader, SegmentError> {
    KeyedReader::open(Arc::new(Bytes::copy_from_slice(bytes)), "k1")
}

/// Rows with keys of some shape, with documents of about `document_bytes` bytes.
fn some(rows: u32, document_bytes: usize) -> BTreeMap<Vec<u8>, Row> {
    let row = |n: u32| {
        let key = format!("user:{:08x}", n.wrapping_mul(2_654_435_761));
        let ttl = [None, None, Some(-1), Some(i64::from(n % 100) + 1)][n as usize % 4];
        let document = format!("{{\"_id\": {n}, \"text\": {:?}}}", "x".repeat(document_bytes + n as usize % 7));
        (key.into_bytes(), (1_700_000_000_000 + i64::from(n) * 37 % 1000, ttl, document.into_bytes()))
    };
    (0..rows).map(row).collect()
}

/// Everything that a scan returns.
fn scanned(reader: &KeyedReader) -> Result<BTreeMap<Vec<u8>, Row>, SegmentError> {
    let mut all = BTreeMap::new();
    let columns = KeyedColumns { keys: true, documents: true };
    for block in reader.scan(&RoaringBitmap::new(), 0..reader.rows(), columns) {
        let block = block?;
        for (at, key) in block.keys.iter().enumerate() {
            let row = (block.written[at], block.ttls[at], block.documents[at].to_vec());
            assert_eq!(all.insert(key.to_vec(), row), None, "a row came twice");
        }
    }
    Ok(all)
}

fn check(rows: &BTreeMap<Vec<u8>, Row>) {
    let (bytes, meta) = write(rows).unwrap();
    let reader = open(&bytes).unwrap();
    reader.verify().unwrap();
    assert_eq!(reader.meta(), meta);
    assert_eq!(scanned(&reader).unwrap(), *rows);
    for (number, (key, (written, _, document))) in (0..).zip(rows) {
        let expected = StoredDocument { written: *written, document: document.clone().into() };
        assert_eq!(reader.find(key).unwrap(), Some(number));
        assert_eq!(reader.get(number).unwrap(), expected);
        assert_eq!(reader.written(number).unwrap(), *written);
        assert_eq!(reader.key(number).unwrap(), *key);
        assert_eq!(reader.lower_bound(key).unwrap(), number);
        assert_eq!(reader.find_document(key).unwrap(), Some((number, expected)));
        let gone: RoaringBitmap = [number].into_iter().collect();
        assert_eq!(reader.find_document_unless(key, |row| gone.contains(row)).unwrap(), None);
    }
    assert!(reader.get(reader.rows()).is_err() && reader.key(reader.rows()).is_err() && reader.get(u32::MAX).is_err());
}

#[test]
fn rows_come_back() {
    check(&some(1, 10));
    check(&some(3_000, 100));
    check(&some(300, 5_000));
    check(&BTreeMap::from([
        (vec![], (i64::MIN, Some(2_147_483_647), vec![])),
        (vec![0], (i64::MAX, Some(-1), vec![1])),
    ]));
    let large = |n: u8| (vec![n; 100_000], (0, None, vec![n; 3_000_000]));
    check(&(0..4).map(large).collect());
}

#[test]
fn row_groups_are_one_sequence_of_rows() {
    let mut writer = KeyedWriter::new().unwrap();
    let rows = 2 * GROUP_ROWS + 5;
    for n in 0..rows {
        let key = n.to_be_bytes();
        writer.push(KeyedRow { key: &key, written: i64::from(n), ttl: None, document: &key }).unwrap();
    }
    let (bytes, meta) = writer.finish().unwrap();
    assert_eq!((meta.rows, meta.bytes), (u64::from(rows), bytes.len() as u64));
    let reader = open(&bytes).unwrap();
    reader.verify().unwrap();
    assert_eq!(reader.0.directory.groups.len(), 3);
    for n in [0, GROUP_ROWS - 1, GROUP_ROWS, 2 * GROUP_ROWS - 1, 2 * GROUP_ROWS, rows - 1] {
        let (row, found) = reader.find_document(&n.to_be_bytes()).unwrap().unwrap();
        assert_eq!((row, found.written, &*found.document), (n, i64::from(n), &n.to_be_bytes()[..]));
    }
    let around = GROUP_ROWS - 3..GROUP_ROWS + 3;
    let block = |columns| reader.scan(&RoaringBitmap::new(), around.clone(), columns).map(|block| block.unwrap().rows);
    for (keys, documents) in [(true, true), (true, false), (false, true), (false, false)] {
        assert_eq!(
            block(KeyedColumns { keys, documents }).flatten().collect::<Vec<_>>(),
            around.clone().collect::<Vec<_>>()
        );
    }
    let false_answers = (rows..rows + 100_000).filter(|n| reader.may_contain(&[&n.to_be_bytes()[..], b"x"].concat()));
    assert_eq!(false_answers.count(), 0, "keys after the last are not in it");
    let between = (0..100_000_u32).filter(|n| reader.may_contain(&[&n.to_be_bytes()[..], b"x"].concat())).count();
    assert!(between < 2_000, "{between} of 100000 absent keys pass the filter");
}

#[test]
fn absent_keys_have_a_place_in_the_order() {
    let rows = some(5_000, 20);
    let reader = open(&write(&rows).unwrap().0).unwrap();
    let keys: Vec<_> = rows.keys().cloned().collect();
    let mut asked = keys.clone();
    asked.extend(keys.iter().map(|key| [key.as_slice(), b"0"].concat()));
    asked.extend(keys.iter().map(|key| key[..key.len() - 1].to_vec()));
    asked.extend([vec![], vec![0xFF], b"user:".to_vec()]);
    for key in asked {
        let expected = keys.partition_point(|k| *k < key);
        assert_eq!(reader.lower_bound(&key).unwrap() as usize, expected, "{key:?}");
        assert_eq!(reader.find(&key).unwrap().is_some(), rows.contains_key(&key), "{key:?}");
    }
}

#[test]
fn a_scan_leaves_out_what_is_not_wanted() {
    let rows = some(2_000, 50);
    let reader = open(&write(&rows).unwrap().0).unwrap();
    let gone: RoaringBitmap = (0..2_000).filter(|n| (100..900).contains(n) || n % 3 == 0).collect();
    let columns = KeyedColumns { keys: true, documents: true };
    let blocks: Vec<KeyedBlock> = reader.scan(&gone, 50..1_950, columns).collect::<Result<_, _>>().unwrap();
    let expected: Vec<_> =
        (0..2_000).zip(&rows).filter(|(n, _)| (50..1_950).contains(n) && !gone.contains(*n)).collect();
    let found = blocks.iter().flat_map(|b| b.rows.iter().zip(&b.keys).zip(b.documents.iter().zip(&b.ttls)));
    let found: Vec<_> = found.map(|((n, key), (document, ttl))| (*n, key.to_vec(), document.to_vec(), *ttl)).collect();
    let expected: Vec<_> = expected.into_iter().map(|(n, (k, (_, ttl, d)))| (n, k.clone(), d.clone(), *ttl)).collect();
    assert_eq!(found, expected);
    assert_eq!(reader.scan(&gone, 5..u32::MAX, columns).count(), reader.scan(&gone, 5..2_000, columns).count());
    assert_eq!(reader.scan(&gone, 100..900, columns).count(), 0);
}

#[test]
fn lives_are_summed_up() {
    let mut lives = Lives::default();
    for (written, ttl) in [(5, None), (-7, None), (10, Some(-1)), (1_000, Some(2)), (0, Some(9)), (i64::MAX, Some(1))] {
        lives.add(written, ttl);
    }
    let expected = Lives {
        inheriting: 2,
        own: 3,
        never: 1,
        written_min_inheriting: Some(-7),
        written_max_inheriting: Some(5),
        expires_min_own: Some(3_000),
        expires_max_own: Some(i64::MAX),
    };
    assert_eq!((lives, lives.rows()), (expected, 6));
    let rows = some(1_000, 10);
    let meta = write(&rows).unwrap().1;
    assert_eq!(postcard::from_bytes::<KeyedMeta>(&postcard::to_stdvec(&meta).unwrap()), Ok(meta.clone()));
    let reader = open(&write(&rows).unwrap().0).unwrap();
    let mut found = Lives::default();
    for block in reader.expiries() {
        let block = block.unwrap();
        assert!(block.keys.is_empty() && block.documents.is_empty());
        block.written.iter().zip(&block.ttls).for_each(|(written, ttl)| found.add(*written, *ttl));
    }
    assert_eq!(found, meta.lives);
}

#[test]
fn a_file_that_is_taken_in_parts_is_the_same() {
    // Three row groups.
    let rows = some(40_000, 1_000);
    let (whole, meta) = write(&rows).unwrap();
    let (mut writer, mut parts) = (KeyedWriter::new().unwrap(), Vec::new());
    for (key, (written, ttl, document)) in &rows {
        writer.push(KeyedRow { key, written: *written, ttl: *ttl, document }).unwrap();
        parts.push(writer.take_complete().unwrap());
    }
    let (rest, same) = writer.finish().unwrap();
    assert_eq!(parts.iter().filter(|part| !part.is_empty()).count(), 2);
    assert_eq!(([parts.concat(), rest].concat(), same), (whole, meta));
}

#[test]
fn a_row_that_cannot_be_is_refused() {
    let mut writer = KeyedWriter::new().unwrap();
    let row = KeyedRow { key: b"b", written: 0, ttl: None, document: b"d" };
    writer.push(row).unwrap();
    for key in [&b"b"[..], b"a", b""] {
        let error = writer.push(KeyedRow { key, ..row }).unwrap_err().to_string();
        assert!(error.contains("the key of row 1 is not greater than the one before"), "{error}");
    }
    for ttl in [0, -2, 2_147_483_648, i64::MIN] {
        let error = writer.push(KeyedRow { key: b"c", ttl: Some(ttl), ..row }).unwrap_err().to_string();
        assert!(error.contains("which is neither -1 nor 1..=2147483647"), "{error}");
    }
    let error = writer.push(KeyedRow { key: b"c", document: &vec![0; VALUE_BYTES_MAX + 1], ..row }).unwrap_err();
    assert!(error.to_string().contains("at most 67108864 fit"), "{error}");
    assert_eq!(writer.rows(), 1);
    assert!(writer.bytes() > 0);
    let error = KeyedWriter::new().unwrap().finish().unwrap_err().to_string();
    assert!(error.contains("no rows"), "{error}");
}

#[test]
fn other_programs_read_the_file() {
    use arrow::array::AsArray;
    use arrow::datatypes::{Int64Type, TimestampMillisecondType};
    let rows = some(3_000, 30);
    let (bytes, _) = write(&rows).unwrap();
    let batches = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap().build().unwrap();
    let mut found = BTreeMap::new();
    for batch in batches {
        let batch = batch.unwrap();
        let column = |name| batch.column_by_name(name).unwrap();
        let (keys, documents) = (column("_id").as_binary::<i32>(), column("document").as_binary::<i32>());
        let (written, ttls) =
            (column("_ts").as_primitive::<TimestampMillisecondType>(), column("ttl").as_primitive::<Int64Type>());
        assert_eq!(written.timezone(), Some("UTC"));
        for row in 0..batch.num_rows() {
            let ttl = ttls.iter().nth(row).unwrap();
            found.insert(keys.value(row).to_vec(), (written.value(row), ttl, documents.value(row).to_vec()));
        }
    }
    assert_eq!(found, rows);
}

fn any_rows() -> impl Strategy<Value = BTreeMap<Vec<u8>, Row>> {
    let key = prop_oneof![
        prop::collection::vec(0_u8..3, 0..6),
        prop::collection::vec(any::<u8>(), 0..20),
        any::<u16>().prop_map(|n| format!("a/long/prefix/{n}").into_bytes()),
    ];
    let written = prop_oneof![any::<i64>(), 1_700_000_000_000..1_700_000_100_000_i64, Just(i64::MIN), Just(i64::MAX)];
    let ttl = prop_oneof![Just(None), Just(Some(-1)), (1..=2_147_483_647_i64).prop_map(Some)];
    let document = prop_oneof![prop::collection::vec(any::<u8>(), 0..300), (0..5_000_usize).prop_map(|n| vec![7; n])];
    prop::collection::btree_map(key, (written, ttl, document), 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_pushed_is_what_is_found(rows in any_rows(), absent in prop::collection::vec(prop::collection::vec(0_u8..4, 0..6), 50)) {
        check(&rows);
        let reader = open(&write(&rows).unwrap().0).unwrap();
        let keys: Vec<_> = rows.keys().collect();
        for key in absent {
            prop_assert_eq!(reader.find(&key).unwrap().is_some(), rows.contains_key(&key));
            prop_assert_eq!(reader.lower_bound(&key).unwrap() as usize, keys.partition_point(|k| **k < key));
        }
    }
}
