//! Helpers shared by the tests of several modules.

use crate::{Accepted, Schema, Window, batch_from_documents, value_at};
use arrow::array::RecordBatch;
use ebbtide_ttl::{Precision, Timestamp, Value};
use proptest::prelude::*;

pub(crate) fn object(members: &[(&str, Value)]) -> Value {
    Value::Object(members.iter().map(|(name, value)| ((*name).into(), value.clone())).collect())
}

pub(crate) fn date(ms: i64) -> Value {
    Value::Date(Timestamp::from_millis(ms))
}

pub(crate) fn schema() -> Schema {
    Schema::new("t", Some("m".to_owned()), Precision::Ms)
}

pub(crate) fn accept(docs: &[Value], schema: &Schema) -> Accepted {
    batch_from_documents(docs, schema).unwrap()
}

/// The rows of a batch as documents, nulls left out, compared by their exact form.
pub(crate) fn rows(batch: &RecordBatch) -> Vec<String> {
    let schema = batch.schema();
    (0..batch.num_rows())
        .map(|row| {
            let values = schema.fields().iter().zip(batch.columns());
            let members: Vec<String> = values
                .map(|(field, column)| (field.name(), value_at(column, row)))
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| format!("{name}={}", exact(&value)))
                .collect();
            members.join(" ")
        })
        .collect()
}

/// A value as text that tells -0.0 from 0.0 and one NaN from another.
pub(crate) fn exact(value: &Value) -> String {
    match value {
        Value::Double(d) => format!("Double({:016x})", d.to_bits()),
        Value::Array(items) => format!("[{}]", items.iter().map(exact).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members: Vec<String> = members.iter().map(|(name, v)| format!("{name:?}: {}", exact(v))).collect();
            format!("{{{}}}", members.join(", "))
        }
        other => format!("{other:?}"),
    }
}

pub(crate) fn window(start: i64, end: i64) -> Window {
    Window { start, end }
}

pub(crate) fn any_double() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-100_000i32..100_000, 0i32..4).prop_map(|(k, d)| f64::from(k) / 10f64.powi(d)),
        1 => any::<f64>(),
        1 => prop::sample::select(vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, 1e300, 9007199254740993.0]),
    ]
}

pub(crate) fn any_int() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => -1000i64..1000,
        1 => any::<i64>(),
        1 => prop::sample::select(vec![i64::MIN, i64::MAX, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, i64::MAX - 512]),
    ]
}

/// Any value, nested up to three deep.
pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any_int().prop_map(Value::Int),
        any_double().prop_map(Value::Double),
        "[a-c\\x00\\xff]{0,3}".prop_map(Value::String),
        any::<i64>().prop_map(date),
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 254, 255]), 0..3).prop_map(Value::Binary),
    ];
    scalar.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("[abc\\x00]{1,2}", inner, 0..4).prop_map(|members| Value::Object(
                members.into_iter().rev().map(|(name, value)| (name.into(), value)).collect()
            )),
        ]
    })
}
