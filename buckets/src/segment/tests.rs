//! Round trips, damage, and what the directory says, for small segments of every shape.

#![expect(clippy::single_range_in_vec_init, reason = "lists of row ranges, some of one range")]

mod damage;
mod directory;
mod footer_checks;
mod weather;

use super::*;
use crate::testing::{accept, any_double, any_int, date, object, rows, schema};
use crate::{Chunk, FieldType, MetaKey, Schema, adapt};
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use ebbtide_ttl::{Precision, Timestamp, Value};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seals chunks as the engine does: buckets of all pieces merged, rows in time order.
pub(crate) fn seal(batches: &[(RecordBatch, Schema)], span_seconds: i64) -> (EncodedSegment, Schema) {
    let schema = batches.iter().skip(1).fold(batches[0].1.clone(), |s, (_, other)| s.join(other).unwrap());
    let pieces: Vec<RecordBatch> = batches.iter().map(|(batch, _)| adapt(batch, &schema).unwrap()).collect();
    let mut runs: BTreeMap<BucketId, Vec<(u32, u32)>> = BTreeMap::new();
    for (piece, batch) in (0..).zip(&pieces) {
        for bucket in Chunk::build(batch.clone(), &schema, span_seconds).buckets {
            runs.entry(bucket.id).or_default().extend(bucket.rows.iter().map(|row| (piece, *row)));
        }
    }
    let times: Vec<Vec<i64>> = pieces.iter().map(|p| crate::times(p).unwrap().to_vec()).collect();
    let runs: Vec<SealRun> = runs
        .into_iter()
        .map(|(id, mut rows)| {
            rows.sort_by_key(|(p, r)| times[*p as usize][*r as usize]);
            SealRun { id, rows }
        })
        .collect();
    (Sealer::new(&schema, &FileTypes::default(), &pieces, &|| true).unwrap().encode(&runs, &|| true).unwrap(), schema)
}

pub(crate) fn open(bytes: &[u8]) -> Result<SegmentReader, SegmentError> {
    SegmentReader::open(Arc::new(Bytes::copy_from_slice(bytes)), "s1")
}

pub(super) fn all_columns(schema: &Schema) -> Vec<String> {
    schema.arrow().fields().iter().map(|f| f.name().clone()).collect()
}

pub(super) fn read_all(reader: &SegmentReader, schema: &Schema) -> Result<RecordBatch, SegmentError> {
    let all = 0..reader.directory().row_count();
    let batches = reader.read(&all_columns(schema), schema, std::slice::from_ref(&all), 100)?;
    let arrow = batches.schema();
    let batches = batches.collect::<Result<Vec<_>, _>>()?;
    Ok(concat_batches(&arrow, &batches).unwrap())
}

/// Documents of every type, with every awkward value.
pub(crate) fn mixed_docs() -> Vec<Value> {
    let doubles = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, 0.1 + 0.2, 5e-324, f64::MAX];
    let ints = [i64::MIN, i64::MAX, 0, -1, 1 << 53, (1 << 53) + 1, 7, 8];
    (0..8)
        .map(|i: usize| {
            let n = i64::try_from(i).unwrap();
            let list = if i.is_multiple_of(3) { Value::Null } else { Value::Array(vec![Value::Double(0.5); i - 1]) };
            let nested = object(&[
                ("temp", if i == 4 { Value::Null } else { Value::Double(20.5 + i as f64) }),
                ("site", object(&[("floor", Value::Int(n % 2)), ("name", Value::from("x"))])),
                ("tags", Value::Array(vec![Value::from("a"), Value::Null])),
                ("none", object(&[])),
            ]);
            object(&[
                ("t", date((n - 4) * 1_000_000)),
                ("m", if i == 5 { Value::Null } else { object(&[("id", Value::Int(n % 3)), ("k", Value::from("v"))]) }),
                ("wild", Value::Double(doubles[i])),
                ("short", if i == 2 { Value::Null } else { Value::Double(n as f64 / 8.0) }),
                ("large", Value::Double(123_456_789_012.5 + n as f64)),
                ("int", Value::Int(ints[i])),
                ("bool", if i == 1 { Value::Null } else { Value::Bool(i.is_multiple_of(2)) }),
                ("text", Value::from(["", "a", "bb", "a long text that is not inlined"][i % 4])),
                ("bin", Value::Binary(vec![0; i])),
                ("at", date(n)),
                ("list", list),
                ("empty", Value::Array(vec![])),
                ("a.b", Value::Double(0.25)),
                ("nothing", object(&[])),
                ("o", if i == 6 { Value::Null } else { nested }),
            ])
        })
        .collect()
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

#[test]
fn every_type_comes_back_to_the_bit() {
    for precision in [Precision::Ms, Precision::Us, Precision::Ns] {
        let accepted = accept(&mixed_docs(), &Schema { precision, ..schema() });
        let (segment, schema) = seal(&[(accepted.batch.clone(), accepted.schema)], 3600);
        let reader = open(&segment.bytes).unwrap();
        assert_eq!(reader.schema(), &schema);
        let back = read_all(&reader, &schema).unwrap();
        assert_eq!(back.schema(), schema.arrow());
        assert_eq!(sorted(rows(&back)), sorted(rows(&accepted.batch)));
        reader.verify().unwrap();
    }
}

#[test]
fn short_decimals_are_stored_as_decimals() {
    let accepted = accept(&mixed_docs(), &schema());
    let (segment, _) = seal(&[(accepted.batch, accepted.schema)], 3600);
    let reader = open(&segment.bytes).unwrap();
    let parquet = reader.parquet_metadata().file_metadata().schema_descr_ptr();
    let column = |path: &str| parquet.columns().iter().find(|c| c.path().string() == path).unwrap().clone();
    assert_eq!((column("short").type_precision(), column("short").type_scale()), (9, 3));
    assert_eq!((column("large").type_precision(), column("large").type_scale()), (18, 1));
    assert_eq!(column("wild").physical_type(), parquet::basic::Type::DOUBLE);
    assert_eq!(column("o.temp").type_scale(), 1);
    assert_eq!(column("list.list.item").type_scale(), 1);
}

#[test]
fn the_bytes_of_doubles_are_stored_apart_where_that_is_smaller() {
    // A random walk with random low bits; as many doubles that repeat.
    let (mut random, mut walk) = (7_u64, 20.0);
    let docs: Vec<Value> = (0..20_000_u32)
        .map(|n| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            walk += f64::from(u32::try_from(random >> 33).unwrap()) / f64::from(1_u32 << 31) - 0.5;
            let few = f64::from(u32::try_from((random >> 40) % 7).unwrap()) / 3.0;
            object(&[("t", date(i64::from(n))), ("walk", Value::Double(walk)), ("few", Value::Double(few))])
        })
        .collect();
    let accepted = accept(&docs, &schema());
    let (segment, schema) = seal(&[(accepted.batch.clone(), accepted.schema)], 36_000);
    let reader = open(&segment.bytes).unwrap();
    let group = reader.parquet_metadata().row_group(0).clone();
    let column = |name: &str| group.columns().iter().find(|c| c.column_path().string() == name).unwrap().clone();
    let walk = column("walk");
    assert!(walk.encodings().any(|e| e == parquet::basic::Encoding::BYTE_STREAM_SPLIT), "{:?}", walk.compressed_size());
    assert!(walk.compressed_size() < 20_000 * 15 / 2, "{}", walk.compressed_size());
    assert!(column("few").dictionary_page_offset().is_some());
    assert_eq!(rows(&read_all(&reader, &schema).unwrap()), rows(&accepted.batch));
    assert_eq!(reader.verify(), Ok(()));
}

#[test]
fn other_readers_see_plain_parquet() {
    let accepted = accept(&mixed_docs(), &schema());
    let (segment, _) = seal(&[(accepted.batch, accepted.schema)], 3600);
    let reader =
        parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(Bytes::from(segment.bytes), 100).unwrap();
    let rows: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 8);
}

#[test]
fn older_segments_read_under_newer_schemas() {
    let doc = |t: i64, x: Value| object(&[("t", date(t)), ("m", Value::from("a")), ("x", x)]);
    let old = accept(&[doc(1, Value::Int(1)), doc(2, Value::Null), doc(3, Value::Int(3))], &schema());
    let (segment, _) = seal(&[(old.batch, old.schema.clone())], 3600);
    let newer = [object(&[
        ("t", date(4)),
        ("x", Value::Double(0.5)),
        ("new", object(&[("y", Value::from("z"))])),
        ("m", Value::Null),
    ])];
    let newer = accept(&newer, &old.schema).schema;
    let reader = open(&segment.bytes).unwrap();
    let back = read_all(&reader, &newer).unwrap();
    assert_eq!(back.schema(), newer.arrow());
    assert!(rows(&back)[0].contains("x=Double(3ff0000000000000)"), "{:?}", rows(&back));
    let names = ["new".to_owned(), "x".to_owned()];
    let some = reader.read(&names, &newer, &[1..3], 1).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(some.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(some[1].schema().field(0).name(), "new");
    assert_eq!(rows(&some[1]), ["x=Double(4008000000000000)"]);
    let none: Vec<_> = reader.read(&[], &newer, &[0..1, 2..3], 10).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!((none[0].num_rows(), none[0].num_columns()), (2, 0));
    let missing = reader.read(&["new".to_owned()], &newer, &[0..2], 10).unwrap().next().unwrap().unwrap();
    assert_eq!((missing.num_rows(), missing.column(0).null_count()), (2, 2));
    assert!(reader.read(&["unknown".to_owned()], &newer, &[0..1], 10).is_err());
    for wrong in [vec![0..4], vec![1..2, 0..1], vec![0..2, 1..3]] {
        assert!(reader.read(&names, &newer, &wrong, 10).is_err());
    }
}

#[test]
fn the_deepest_values_come_back() {
    let deep = |wrap: fn(Value) -> Value| (0..crate::limits::NESTING_MAX).fold(Value::Double(1.5), |v, _| wrap(v));
    let docs = [object(&[
        ("t", date(1)),
        ("m", deep(|v| object(&[("a", v)]))),
        ("o", deep(|v| object(&[("a", v), ("b", Value::Int(1))]))),
        ("l", deep(|v| if let Value::Double(_) = v { Value::Array(vec![v]) } else { object(&[("a", v)]) })),
    ])];
    let accepted = accept(&docs, &schema());
    let (segment, schema) = seal(&[(accepted.batch.clone(), accepted.schema.clone())], 3600);
    let back = read_all(&open(&segment.bytes).unwrap(), &schema).unwrap();
    assert_eq!(rows(&back), rows(&accepted.batch));
    assert_eq!(rows(&through_the_log(&back)), rows(&back));
}

/// The way of a batch through the engine's log, whose reader has limits of its own.
fn through_the_log(batch: &RecordBatch) -> RecordBatch {
    crate::unpack(&crate::pack(batch).unwrap()).unwrap()
}

#[test]
fn canonical_batches_survive_what_the_engine_does_with_them() {
    let batch = accept(&mixed_docs(), &schema()).batch;
    let all = rows(&batch);
    assert_eq!(rows(&through_the_log(&batch)), all);
    let picked = arrow::compute::take_record_batch(&batch, &arrow::array::UInt32Array::from(vec![6, 1])).unwrap();
    assert_eq!(rows(&picked), [all[6].clone(), all[1].clone()]);
    let odd = arrow::array::BooleanArray::from_iter((0..8).map(|i| Some(i % 2 == 1)));
    let kept = arrow::compute::filter_record_batch(&batch, &odd).unwrap();
    assert_eq!(rows(&kept), all.iter().skip(1).step_by(2).cloned().collect::<Vec<_>>());
    let twice = concat_batches(&batch.schema(), [&batch, &kept]).unwrap();
    assert_eq!(rows(&twice)[8..], rows(&kept));
    assert_eq!(rows(&batch.slice(3, 2)), all[3..5]);
}

#[test]
fn input_that_breaks_its_promises_is_refused() {
    let accepted = accept(&[object(&[("t", date(2))]), object(&[("t", date(1))])], &schema());
    let id = |m: &str| BucketId { meta: MetaKey::of(&Value::from(m)), window: crate::Window::of(0, 3_600_000) };
    let run = |m: &str, rows: &[u32]| SealRun { id: id(m), rows: rows.iter().map(|r| (0, *r)).collect() };
    let sealer =
        Sealer::new(&accepted.schema, &FileTypes::default(), std::slice::from_ref(&accepted.batch), &|| true).unwrap();
    let attempt = |runs: Vec<SealRun>| sealer.encode(&runs, &|| true).map(|_| ());
    assert!(attempt(vec![run("a", &[1, 0])]).is_ok());
    assert!(attempt(vec![run("a", &[0, 1])]).is_err());
    assert!(attempt(vec![run("b", &[0]), run("a", &[1])]).is_err());
    assert!(attempt(vec![run("a", &[2])]).is_err());
    assert!(attempt(vec![run("a", &[])]).is_err());
    assert!(attempt(vec![]).is_err());
}

#[test]
fn rows_are_taken_exactly_across_row_groups_and_pages() {
    let n = 300_000_u32;
    let docs: Vec<Value> = (0..n)
        .map(|i| {
            let noise = i.wrapping_mul(2_654_435_761) >> 12;
            object(&[
                ("t", date(i64::from(i) * 1000)),
                ("i", Value::Int(i64::from(i))),
                ("r", Value::Int(i64::from(noise))),
            ])
        })
        .collect();
    let accepted = accept(&docs, &schema());
    let (segment, schema) = seal(&[(accepted.batch, accepted.schema)], 31_536_000);
    let reader = open(&segment.bytes).unwrap();
    assert_eq!(reader.parquet_metadata().num_row_groups(), 2);
    let ranges = [0..1, 8_191..8_193, 262_140..262_150, 262_200..262_200, 299_999..300_000];
    let expected: Vec<i64> = ranges.iter().flat_map(|r| r.clone().map(|i| i64::try_from(i).unwrap())).collect();
    for reader in three_ways(&reader) {
        let batches = reader.read(&["i".to_owned()], &schema, &ranges, 4).unwrap();
        let got: Vec<i64> = batches.flat_map(|batch| crate::ints_at(batch.unwrap().column(0), "i")).collect();
        assert_eq!(got, expected);
    }
    // More blocks than one portion has, in batches that do not end where blocks do.
    let thirds: Vec<_> = (0..100_000_u64).map(|i| i * 3..i * 3 + 2).collect();
    for reader in three_ways(&reader) {
        let batches = reader.read(&["i".to_owned(), "r".to_owned()], &schema, &thirds, 1_000).unwrap();
        let got: Vec<i64> = batches.flat_map(|batch| crate::ints_at(batch.unwrap().column(0), "i")).collect();
        assert!(got.into_iter().eq((0..300_000).filter(|i| i % 3 < 2)));
    }
    let last = reader.read(&["r".to_owned()], &schema, &[299_998..300_000], 4).unwrap().next().unwrap().unwrap();
    let noise = |i: u32| i64::from(i.wrapping_mul(2_654_435_761) >> 12);
    assert_eq!(crate::ints_at(last.column(0), "r"), [noise(299_998), noise(299_999)]);
}

#[test]
fn text_columns_with_few_values_are_cached() {
    let doc = |i: i64| {
        object(&[
            ("t", date(i)),
            ("m", Value::from(if i < 9_000 { "a" } else { "b" })),
            (
                "level",
                if i % 7 == 0 {
                    Value::Null
                } else {
                    Value::from(["error", "a long name of a level"][(i % 2) as usize])
                },
            ),
            ("line", Value::from(format!("line {i}, which no other row has").as_str())),
        ])
    };
    let accepted = accept(&(0..20_000).map(doc).collect::<Vec<_>>(), &schema());
    let (segment, schema) = seal(&[(accepted.batch, accepted.schema)], 3_600);
    let cache = Arc::new(BlockCache::new(64 << 20));
    let reader = open(&segment.bytes).unwrap().with_cache(&cache);
    assert_eq!(["t", "m", "level", "line"].map(|column| reader.cached_row_bytes([column])), [2, 0, 16, 0]);
    let columns = ["level", "line", "m"].map(str::to_owned);
    let ranges = [5..17, 8_190..8_200, 19_000..20_000];
    let plain: Vec<String> = {
        let batches = open(&segment.bytes).unwrap().read(&columns, &schema, &ranges, 100).unwrap();
        batches.flat_map(|batch| rows(&batch.unwrap())).collect()
    };
    for _ in 0..2 {
        let batches = reader.read(&columns, &schema, &ranges, 100).unwrap();
        assert_eq!(batches.flat_map(|batch| rows(&batch.unwrap())).collect::<Vec<_>>(), plain);
        assert!(cache.get([0, 1, 2].map(|block| (0, 2, block)).into_iter()).iter().all(Option::is_some));
    }
}

/// Without a cache, with an empty one, and with one in which all is that was read before.
fn three_ways(reader: &SegmentReader) -> [SegmentReader; 3] {
    let cached = reader.clone().with_cache(&Arc::new(BlockCache::new(64 << 20)));
    [reader.clone(), cached.clone(), cached]
}

fn any_doc() -> impl Strategy<Value = Value> {
    let some = |s: BoxedStrategy<Value>| prop_oneof![1 => Just(Value::Null), 4 => s];
    let members = (
        prop_oneof![Just(-1i64), any::<i64>(), -100_000_000i64..100_000_000],
        some(prop::sample::select(vec!["a", "b", "c"]).prop_map(Value::from).boxed()),
        some(any_double().prop_map(Value::Double).boxed()),
        some((-999i32..999).prop_map(|k| Value::Double(f64::from(k) / 10.0)).boxed()),
        some(any_int().prop_map(Value::Int).boxed()),
        some("[a-z]{0,20}".prop_map(Value::String).boxed()),
        some(prop::collection::vec(any_double().prop_map(Value::Double), 0..3).prop_map(Value::Array).boxed()),
        some(
            (any::<bool>(), some(any::<i64>().prop_map(date).boxed()))
                .prop_map(|(b, t)| object(&[("b", Value::Bool(b)), ("t", t)]))
                .boxed(),
        ),
    );
    members.prop_map(|(t, m, wild, short, int, text, list, o)| {
        let t = Value::Date(Timestamp::from_millis(t));
        object(&[("t", t), ("m", m), ("wild", wild), ("short", short), ("i", int), ("s", text), ("l", list), ("o", o)])
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_sealed_is_what_is_read(
        a in prop::collection::vec(any_doc(), 1..40),
        b in prop::collection::vec(any_doc(), 0..40),
        span in prop::sample::select(vec![1i64, 3600, 31_536_000]),
        cuts in prop::collection::btree_set(0usize..80, 0..8),
    ) {
        let first = accept(&a, &schema());
        let second = accept(&b, &first.schema);
        let mut expected = rows(&adapt(&first.batch, &second.schema).unwrap());
        expected.extend(rows(&second.batch));
        let (segment, schema) = seal(&[(first.batch, first.schema), (second.batch, second.schema)], span);
        let reader = open(&segment.bytes).unwrap();
        let back = read_all(&reader, &schema).unwrap();
        prop_assert_eq!(sorted(rows(&back)), sorted(expected));
        directory::agrees_with_rows(&reader, &segment.meta, &back, span);

        let total = reader.directory().row_count();
        let cuts: Vec<u64> = cuts.into_iter().map(|c| (c as u64).min(total)).collect();
        let ranges: Vec<_> = cuts.chunks_exact(2).map(|c| c[0]..c[1]).filter(|r| !r.is_empty()).collect();
        let names = all_columns(&schema);
        let all = rows(&back);
        let wanted: Vec<String> = ranges.iter().flat_map(|r| all[r.start as usize..r.end as usize].to_vec()).collect();
        for reader in three_ways(&reader) {
            let some = reader.read(&names, &schema, &ranges, 7).unwrap();
            let got: Vec<String> = some.flat_map(|batch| rows(&batch.unwrap())).collect();
            prop_assert_eq!(&got, &wanted);
        }
    }
}

#[test]
fn what_the_manifest_keeps_survives() {
    let accepted = accept(&mixed_docs(), &schema());
    let (segment, _) = seal(&[(accepted.batch, accepted.schema)], 3600);
    let bytes = postcard::to_stdvec(&segment.meta).unwrap();
    assert_eq!(postcard::from_bytes::<SegmentMeta>(&bytes).unwrap(), segment.meta);
    assert_eq!(segment.meta.bytes, segment.bytes.len() as u64);
    assert!(matches!(open(&segment.bytes).unwrap().schema().field_type("o"), Some(FieldType::Object(_))));
}
