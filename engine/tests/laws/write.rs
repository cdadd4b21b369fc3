//! New measurements in the forms in which users bring them.

use crate::meta::{Family, Meta};
use crate::rig::{Pair, Resolved};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::array::{TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray};
use ebbtide::ttl::{Precision, Value};
use std::sync::Arc;

/// A row as a document.
pub(crate) fn document((at, row, spelling): &Resolved) -> Value {
    let mut members =
        vec![("t".into(), Value::Date(*at)), ("id".into(), Value::Int(row.id)), ("k".into(), Value::Int(row.k))];
    // A null meta is a missing one.
    if row.meta != Meta::Null || spelling & 1 != 0 {
        members.push(("m".into(), row.meta.spelled(*spelling)));
    }
    // Without a meta field there must be no such member, or it would be a field.
    if row.meta == Meta::Null {
        members.retain(|(name, value)| name != "m" || !value.is_null());
    }
    Value::Object(members)
}

/// Rows as columns; metas must be whole numbers or texts.
pub(crate) fn batch(pair: &Pair, rows: &[Resolved]) -> RecordBatch {
    let times = rows.iter().map(|(_, row, _)| row.t);
    let times: ArrayRef = match pair.model.precision {
        Precision::Ms => Arc::new(TimestampMillisecondArray::from_iter_values(times).with_timezone("UTC")),
        Precision::Us => Arc::new(TimestampMicrosecondArray::from_iter_values(times)),
        Precision::Ns => Arc::new(TimestampNanosecondArray::from_iter_values(times).with_timezone("+02:00")),
    };
    let mut columns = vec![("k", Arc::new(rows.iter().map(|(_, r, _)| Some(r.k)).collect::<Int64Array>()) as ArrayRef)];
    match pair.family {
        Family::Ints => {
            let metas = rows.iter().map(|(_, row, _)| match row.meta {
                Meta::Int(i) => Some(i),
                _ => None,
            });
            columns.push(("m", Arc::new(metas.collect::<Int64Array>())));
        }
        Family::Texts => {
            let metas = rows.iter().map(|(_, row, _)| match &row.meta {
                Meta::Text(text) => Some(text.as_str()),
                _ => None,
            });
            columns.push(("m", Arc::new(metas.collect::<StringArray>())));
        }
        _ => {}
    }
    columns.push(("t", times));
    columns.push(("id", Arc::new(rows.iter().map(|(_, r, _)| Some(r.id)).collect::<Int64Array>())));
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .expect("columns of one length")
}
