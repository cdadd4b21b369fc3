//! What is packed comes back to the bit, and what was never packed is an error.

use super::*;
use crate::batch_from_documents;
use crate::testing::{accept, any_double, any_int, any_value, date, object, rows, schema};
use arrow::array::{Array, RecordBatch};
use ebbtide_ttl::Value;
use proptest::prelude::*;

fn same(batch: &RecordBatch) {
    let packed = pack(batch).unwrap();
    let back = unpack(&packed).unwrap();
    assert_eq!(back.schema(), batch.schema());
    assert_eq!(rows(&back), rows(batch));
}

fn one(t: i64, members: &[(&str, Value)]) -> Value {
    let mut all = vec![("t", date(t))];
    all.extend(members.iter().cloned());
    object(&all)
}

#[test]
fn rows_of_every_type_come_back() {
    let list = |items: &[i64]| Value::Array(items.iter().map(|i| Value::Int(*i)).collect());
    let docs = [
        one(1, &[("m", "a".into()), ("b", Value::Bool(true)), ("i", Value::Int(i64::MIN)), ("l", list(&[1, 2]))]),
        one(-5, &[("m", "b".into()), ("d", Value::Double(-0.0)), ("i", Value::Int(i64::MAX)), ("l", list(&[]))]),
        one(2, &[("d", Value::Double(f64::NAN)), ("x", Value::Binary(vec![0, 255])), ("w", date(7))]),
        one(9, &[("o", object(&[("p", "text longer than twelve bytes".into()), ("q", object(&[]))]))]),
        one(i64::from(i32::MAX) * 1000, &[("o", object(&[("r", list(&[7]))])), ("b", Value::Bool(false))]),
    ];
    let accepted = accept(&docs, &schema());
    same(&accepted.batch);
    for from in 0..docs.len() {
        same(&accepted.batch.slice(from, docs.len() - from));
        same(&accepted.batch.slice(0, from));
    }
}

#[test]
fn regular_rows_take_few_bytes() {
    let docs: Vec<Value> = (0..1000)
        .map(|i| {
            let temp = f64::from(200 + i % 70) / 10.0;
            one(i64::from(i) * 60_000, &[("m", ["north", "south"][i as usize % 2].into()), ("temp", temp.into())])
        })
        .collect();
    let packed = pack(&accept(&docs, &schema()).batch).unwrap();
    // A byte each for the time's step, the station's number and the tenths.
    assert!(packed.len() < 3 * docs.len() + 100, "{} bytes", packed.len());
}

#[test]
fn bytes_that_end_early_are_an_error() {
    let docs = [one(1, &[("m", "a".into()), ("d", Value::Double(1.5))]), one(3, &[("s", "text".into())])];
    let packed = pack(&accept(&docs, &schema()).batch).unwrap();
    for len in 0..packed.len() {
        assert!(unpack(&packed[..len]).is_err(), "cut to {len} bytes");
    }
    let longer = [packed.as_slice(), &[0]].concat();
    assert!(unpack(&longer).unwrap_err().contains("after the batch"));
}

#[test]
fn a_forged_count_is_an_error_before_memory_is_taken() {
    let mut forged = vec![VERSION];
    crate::segment::varint::put_u64(&mut forged, u64::MAX);
    forged.push(1);
    assert!(unpack(&forged).unwrap_err().contains("count"));
}

#[test]
fn another_version_is_named() {
    assert!(unpack(&[9]).unwrap_err().contains("version 9"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_rows_come_back(
        rows in prop::collection::vec(
            (any::<i32>(), any_double(), any_int(), "[ab]{0,20}", prop::option::of(any_double()), any::<bool>()), 1..40),
        meta in any_value(),
    ) {
        let docs: Vec<Value> = rows
            .into_iter()
            .map(|(t, d, i, s, sometimes, flag)| {
                let mut members = vec![("d", Value::Double(d)), ("i", Value::Int(i)), ("s", Value::String(s))];
                members.push(("n", sometimes.map_or(Value::Null, Value::Double)));
                members.push(("b", Value::Bool(flag)));
                members.push(("m", if flag { meta.clone() } else { Value::Null }));
                one(i64::from(t), &members)
            })
            .collect();
        // A meta that no field can have is for other tests.
        if let Ok(accepted) = batch_from_documents(&docs, &schema()) {
            same(&accepted.batch);
        }
    }

    #[test]
    fn any_numbers_come_back(values in prop::collection::vec(any_int(), 0..50), dense in any::<bool>()) {
        let mut out = Vec::new();
        ints::put(&mut out, &values, dense);
        let mut cursor = crate::segment::varint::Cursor::new(&out);
        prop_assert_eq!(ints::take(&mut cursor, values.len(), dense).unwrap(), values);
        prop_assert_eq!(cursor.at(), out.len());
    }

    #[test]
    fn damaged_bytes_decode_to_an_error_or_to_a_batch(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let docs = [
            one(1, &[("m", "a".into()), ("d", Value::Double(1.5)), ("l", Value::Array(vec!["x".into()]))]),
            one(2, &[("m", "a".into()), ("o", object(&[("p", Value::Int(3))]))]),
        ];
        let mut packed = pack(&accept(&docs, &schema()).batch).unwrap();
        let at = at.index(packed.len());
        packed[at] = byte;
        if let Ok(batch) = unpack(&packed) {
            prop_assert!(batch.columns().iter().all(|column| column.len() == batch.num_rows()));
        }
    }

    #[test]
    fn any_bytes_decode_to_an_error_or_to_a_batch(mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        bytes.insert(0, VERSION);
        let _decoded = unpack(&bytes);
    }
}
