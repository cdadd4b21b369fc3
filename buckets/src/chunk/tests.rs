use super::*;
use crate::testing::{accept, date, object, schema, window};
use crate::{MetaKey, Schema};
use ebbtide_ttl::{Timestamp, Value};

fn chunk(rows: &[(i64, &str)], span: i64) -> Chunk {
    let docs: Vec<Value> = rows.iter().map(|(t, m)| object(&[("t", date(*t)), ("m", Value::from(*m))])).collect();
    let accepted = accept(&docs, &schema());
    Chunk::build(accepted.batch, &accepted.schema, span)
}

#[test]
fn rows_are_grouped_by_meta_and_window_and_sorted_by_time() {
    let built = chunk(&[(5_000, "a"), (1_000, "b"), (2_000, "a"), (-1, "a"), (2_000, "a"), (10_000, "a")], 10);
    let seen: Vec<_> = built
        .buckets
        .iter()
        .map(|b| (b.id.meta.value(), b.id.window, b.rows.clone(), b.first, b.last, b.out_of_range))
        .collect();
    let (a, b) = (Value::from("a"), Value::from("b"));
    assert_eq!(
        seen,
        [
            (a.clone(), window(0, 10_000), vec![2, 4, 0], 2_000, 5_000, 0),
            (b, window(0, 10_000), vec![1], 1_000, 1_000, 0),
            (a.clone(), window(-10_000, 0), vec![3], -1, -1, 1),
            (a, window(10_000, 20_000), vec![5], 10_000, 10_000, 0),
        ]
    );
}

#[test]
fn windows_floor_before_1970_and_saturate() {
    assert_eq!(Window::of(-1, 3_600), window(-3_600, 0));
    assert_eq!(Window::of(-3_600, 3_600), window(-3_600, 0));
    assert_eq!(Window::of(i64::MIN, 1_000).start, i64::MIN);
    assert_eq!(Window::of(i64::MAX, 1_000).end, i64::MAX);
    assert_eq!(Window::of(i64::MAX, i64::MAX), window(i64::MAX, i64::MAX));
    for t in [i64::MIN, -7, 0, 7, i64::MAX] {
        let w = Window::of(t, 10);
        assert!(w.start <= t && (t < w.end || w.end == i64::MAX), "{t} {w:?}");
    }
}

#[test]
fn times_at_the_ends_of_the_range_have_buckets() {
    let built = chunk(&[(i64::MAX, "a"), (i64::MIN, "a"), (i64::MAX, "a"), (i64::MAX - 1, "a")], 3_600);
    let counts: Vec<_> = built.buckets.iter().map(|b| (b.rows.clone(), b.out_of_range)).collect();
    assert_eq!(counts, [(vec![3, 0, 2], 3), (vec![1], 1)]);
}

#[test]
fn the_range_of_rules_is_half_open() {
    let end = (1_i64 << 31) * 1000;
    let built = chunk(&[(0, "a"), (end - 1, "a"), (end, "a"), (-1, "a")], 31_536_000);
    assert_eq!(built.buckets.iter().map(|b| b.out_of_range).sum::<u32>(), 2);
}

#[test]
fn a_collection_without_meta_has_one_series() {
    let schema = Schema::new("t", None, ebbtide_ttl::Precision::Ns);
    let docs: Vec<Value> = [5, 3].map(|ns| object(&[("t", Value::Date(Timestamp::from_nanos(ns)))])).to_vec();
    let accepted = accept(&docs, &schema);
    let built = Chunk::build(accepted.batch, &accepted.schema, 3_600);
    assert_eq!(built.buckets.len(), 1);
    assert_eq!(built.buckets[0].id.meta, MetaKey::of(&Value::Null));
    assert_eq!(built.buckets[0].rows, [1, 0]);
}
