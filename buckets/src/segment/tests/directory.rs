//! The directory against the rows that it is about.

use super::*;
use crate::segment::directory::{Entry, decode, encode};
use crate::{Numbers, Window, keys_of_column, times, value_at};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type};
use ebbtide_ttl::in_range;
use proptest::prelude::*;

fn metas(directory: &crate::Directory) -> Vec<MetaKey> {
    (0..directory.meta_count()).map(|meta| directory.meta(meta)).collect()
}

/// Recomputes everything in a directory from the rows of its segment.
pub(super) fn agrees_with_rows(reader: &SegmentReader, meta: &SegmentMeta, all: &RecordBatch, span_seconds: i64) {
    let directory = reader.directory();
    let schema = reader.schema();
    let times = times(all).unwrap();
    let span = span_seconds * schema.precision.per_second();
    let (keys, ids) = keys_of_column(all.column_by_name("m"), times.len());
    let mut at = 0;
    let mut buckets = Vec::new();
    for bucket in 0..directory.bucket_count() {
        let rows = directory.rows(bucket);
        assert_eq!(rows.start, at as u64);
        let rows = at..usize::try_from(rows.end).unwrap();
        assert!(!rows.is_empty() && times[rows.clone()].is_sorted());
        for row in rows.clone() {
            assert_eq!(keys[ids[row] as usize], directory.meta_of(bucket));
            assert_eq!(Window::of(times[row], span), directory.window(bucket));
        }
        assert_eq!(directory.first(bucket), times[rows.start]);
        assert_eq!(directory.last(bucket), times[rows.end - 1]);
        let out = times[rows.clone()].iter().filter(|t| !in_range(**t, schema.precision)).count();
        assert_eq!(directory.out_of_range(bucket) as usize, out);
        let ordinal = directory.meta_ordinal(bucket);
        assert!(directory.buckets_of_meta(ordinal).contains(&bucket));
        assert_eq!(directory.find_meta(&directory.meta_of(bucket)), Some(ordinal));
        buckets.push((directory.meta_of(bucket), directory.window(bucket)));
        at = rows.end;
    }
    assert_eq!(at, times.len());
    assert!(buckets.is_sorted_by(|a, b| a < b) && metas(directory).is_sorted_by(|a, b| a < b));
    assert_eq!(meta.rows, times.len() as u64);
    assert_eq!(meta.buckets as usize, buckets.len());
    assert_eq!(meta.metas as usize, directory.meta_count());
    assert_eq!((Some(&meta.first), Some(&meta.last)), (times.iter().min(), times.iter().max()));
    assert_eq!(meta.window_start, buckets.iter().map(|(_, w)| w.start).min().unwrap());
    assert_eq!(meta.window_end, buckets.iter().map(|(_, w)| w.end).max().unwrap());
    assert_eq!(meta.out_of_range, times.iter().filter(|t| !in_range(**t, schema.precision)).count() as u64);
    for name in ["wild", "short", "i"] {
        if all.column_by_name(name).is_some() {
            check_stats(reader, all, name);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a tolerance")]
fn check_stats(reader: &SegmentReader, all: &RecordBatch, name: &str) {
    let directory = reader.directory();
    let stats = directory.stats(name).unwrap();
    let column = all.column_by_name(name).unwrap();
    let whole = 0..directory.row_count();
    let entries = if stats.per_bucket { directory.bucket_count() } else { 1 };
    for entry in 0..entries {
        let rows = if stats.per_bucket { directory.rows(entry) } else { whole.clone() };
        let rows = usize::try_from(rows.start).unwrap()..usize::try_from(rows.end).unwrap();
        let valid: Vec<usize> = rows.clone().filter(|row| column.is_valid(*row)).collect();
        assert_eq!(stats.counts[entry], valid.len() as u64);
        assert_eq!(stats.nulls[entry], (rows.len() - valid.len()) as u64);
        assert_eq!(stats.first_valid[entry], column.is_valid(rows.start));
        assert_eq!(stats.last_valid[entry], column.is_valid(rows.end - 1));
        if valid.is_empty() {
            continue;
        }
        match (&stats.min, &stats.max, &stats.first, &stats.last) {
            (Numbers::Int(min), Numbers::Int(max), Numbers::Int(first), Numbers::Int(last)) => {
                let values = column.as_primitive::<Int64Type>();
                let got = || valid.iter().map(|row| values.value(*row));
                assert_eq!((Some(min[entry]), Some(max[entry])), (got().min(), got().max()));
                assert_eq!(stats.int_sums[entry], got().map(i128::from).sum::<i128>());
                assert!(!stats.first_valid[entry] || first[entry] == values.value(rows.start));
                assert!(!stats.last_valid[entry] || last[entry] == values.value(rows.end - 1));
            }
            (Numbers::Double(min), Numbers::Double(max), Numbers::Double(first), Numbers::Double(last)) => {
                let values = column.as_primitive::<Float64Type>();
                let got = || valid.iter().map(|row| values.value(*row));
                let least = got().min_by(f64::total_cmp).unwrap();
                let greatest = got().max_by(f64::total_cmp).unwrap();
                assert_eq!((min[entry].to_bits(), max[entry].to_bits()), (least.to_bits(), greatest.to_bits()));
                let sum: f64 = got().sum();
                let tolerance = got().map(f64::abs).sum::<f64>() * 1e-12 * valid.len() as f64;
                let near = (stats.sums[entry] - sum).abs() <= tolerance;
                assert!(near || sum.is_nan() || sum.is_infinite() || tolerance.is_nan(), "{} {sum}", stats.sums[entry]);
                let same = |a: f64, row: usize| a.to_bits() == values.value(row).to_bits();
                assert!(!stats.first_valid[entry] || same(first[entry], rows.start));
                assert!(!stats.last_valid[entry] || same(last[entry], rows.end - 1));
            }
            other => panic!("kinds differ: {other:?}"),
        }
    }
}

fn series(count: i64, rows: i64) -> Vec<Value> {
    let doc = |m: i64, r: i64| {
        let tags = Value::Array(vec![
            Value::from(if m % 2 == 0 { "even" } else { "odd" }),
            Value::from(format!("t{}", m % 4).as_str()),
        ]);
        let meta = object(&[
            ("site", object(&[("floor", Value::Int(m % 3)), ("id", Value::from(format!("s{m}").as_str()))])),
            ("tags", tags),
        ]);
        object(&[
            ("t", date(r * 60_000)),
            ("m", meta),
            ("short", Value::Double((m * r) as f64 / 4.0)),
            ("i", Value::Int(m - r)),
        ])
    };
    (0..count).flat_map(|m| (0..rows).map(move |r| doc(m, r))).collect()
}

#[test]
fn buckets_of_many_rows_have_their_own_statistics() {
    for (rows, per_bucket) in [(100, true), (5, false)] {
        let accepted = accept(&series(10, rows), &schema());
        let (segment, schema) = seal(&[(accepted.batch, accepted.schema)], 3600);
        let reader = open(&segment.bytes).unwrap();
        let all = read_all(&reader, &schema).unwrap();
        agrees_with_rows(&reader, &segment.meta, &all, 3600);
        assert_eq!(reader.directory().stats("short").unwrap().per_bucket, per_bucket);
        assert!(reader.directory().stats("m").is_none() && reader.directory().stats("t").is_none());
        let shares: u64 = (0..reader.directory().bucket_count()).map(|b| reader.directory().bytes(b)).sum();
        assert!(shares > 0 && shares < segment.meta.bytes);
    }
}

#[test]
fn postings_find_the_metas_with_a_value() {
    let accepted = accept(&series(40, 2), &schema());
    let (segment, _) = seal(&[(accepted.batch, accepted.schema)], 3600);
    let reader = open(&segment.bytes).unwrap();
    let directory = reader.directory();
    let wanted = |path: &[&str], value: &Value| -> Vec<u32> {
        let has = |meta: &MetaKey| {
            let found = path.iter().try_fold(meta.value(), |v, name| v.get(name).cloned()).unwrap_or_default();
            found == *value || matches!(&found, Value::Array(items) if items.contains(value))
        };
        (0..).zip(&metas(directory)).filter(|(_, meta)| has(meta)).map(|(ordinal, _)| ordinal).collect()
    };
    for (path, value) in [
        (vec!["site", "floor"], Value::Int(2)),
        (vec!["site", "floor"], Value::Double(1.0)),
        (vec!["site", "floor"], Value::Int(9)),
        (vec!["tags"], Value::from("odd")),
        (vec!["tags"], Value::from("t3")),
    ] {
        let got: Vec<u32> = directory.posting(&path, &value).unwrap().iter().collect();
        assert_eq!(got, wanted(&path, &value), "{path:?} {value:?}");
    }
    assert!(directory.posting(&["site", "id"], &Value::from("s1")).is_none());
    for id in ["s1", "s39", "s4", "s", "s40"] {
        let found: Vec<u32> = directory.metas_containing(&Value::from(id)).iter().collect();
        assert_eq!(found, wanted(&["site", "id"], &Value::from(id)), "{id}");
    }
    assert!(directory.posting(&["site"], &Value::Null).is_none());
    assert_eq!(
        value_at(
            &crate::column_of_keys(&metas(directory)[..1], reader.schema().meta_type.as_ref().unwrap(), Precision::Ms),
            0
        ),
        directory.meta(0).value()
    );
}

proptest! {
    #[test]
    fn metas_containing_a_value_are_those_whose_bytes_have_it_within_one_meta(
        bytes in prop::collection::btree_set(
            prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(6), Just(7), Just(255)], 0..6), 1..40,
        ),
        value in prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            prop::collection::vec(prop_oneof![Just(0_u8), Just(6), Just(7)], 0..3).prop_map(Value::Binary),
        ],
    ) {
        // Metas that end in what begins the value, as no others do.
        let mut metas: Vec<MetaKey> = bytes.into_iter().map(|bytes| MetaKey::of(&Value::Binary(bytes))).collect();
        metas.extend([false, true].map(|flag| MetaKey::of(&Value::Bool(flag))));
        metas.sort();
        let window = Window { start: 0, end: 10 };
        let entry = |meta: &MetaKey| Entry { meta: meta.clone(), window, first: 0, last: 5, rows: 1, out_of_range: 0 };
        let entries: Vec<Entry> = metas.iter().map(entry).collect();
        let directory = decode(&encode(&entries, &[], false, &[]).unwrap(), 0).unwrap();
        let needle = MetaKey::of(&value);
        let has = |meta: &MetaKey| meta.as_bytes().windows(needle.as_bytes().len()).any(|part| part == needle.as_bytes());
        let wanted: Vec<u32> = (0..).zip(&metas).filter(|(_, meta)| has(meta)).map(|(at, _)| at).collect();
        prop_assert_eq!(directory.metas_containing(&value).iter().collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn bounds_rule_out_only_buckets_without_a_match() {
    let accepted = accept(&series(10, 100), &schema());
    let (segment, _) = seal(&[(accepted.batch, accepted.schema)], 3600);
    let reader = open(&segment.bytes).unwrap();
    let directory = reader.directory();
    let check = crate::BoundsCheck::new(directory, [("short", Some(200.0), None), ("i", None, Some(0.0))].into_iter());
    let stats = directory.stats("short").unwrap();
    let Numbers::Double(max) = &stats.max else { panic!("doubles") };
    let kept: Vec<usize> = (0..directory.bucket_count()).filter(|b| check.may_match(*b)).collect();
    assert!(!kept.is_empty() && kept.len() < directory.bucket_count());
    assert!(kept.iter().all(|b| max[*b] >= 200.0));
}
