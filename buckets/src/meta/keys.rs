//! Converts whole columns to meta keys, and keys to columns.

use super::MetaKey;
use crate::build::build_array;
use crate::schema::FieldType;
use ahash::AHashMap;
use arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType,
};
use arrow::row::{RowConverter, SortField};
use ebbtide_ttl::{Precision, Timestamp, Value};
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// The distinct keys of a meta column in order of first appearance, and each row's place among them. Without a column
/// all rows have the null key. Every distinct value is made into a key once, not every row.
#[must_use]
pub fn keys_of_column(meta: Option<&ArrayRef>, rows: usize) -> (Vec<MetaKey>, Vec<u32>) {
    let Some(array) = meta else {
        let keys = if rows == 0 { vec![] } else { vec![MetaKey::of(&Value::Null)] };
        return (keys, vec![0; rows]);
    };
    match array.data_type() {
        DataType::Utf8View => {
            let texts: &StringViewArray = array.as_string_view();
            distinct(texts.iter(), |_, text| text.map_or_else(null_key, MetaKey::of_str))
        }
        DataType::Int64 => distinct(array.as_primitive::<Int64Type>().iter(), |_, i| {
            i.map_or_else(null_key, |i| MetaKey::of(&Value::Int(i)))
        }),
        _ => generic_keys(array),
    }
}

fn null_key() -> MetaKey {
    MetaKey::of(&Value::Null)
}

/// Like [`keys_of_column`], with a number for each row that is equal only where the metas are.
pub(crate) fn keys_of_numbered(meta: &ArrayRef, numbers: &[u32]) -> (Vec<MetaKey>, Vec<u32>) {
    merged(distinct(numbers.iter(), |row, _| MetaKey::of(&value_at(meta, row))))
}

fn generic_keys(array: &ArrayRef) -> (Vec<MetaKey>, Vec<u32>) {
    let key_at = |row: usize| MetaKey::of(&value_at(array, row));
    // Arrow's row form is only a cheap first sieve: rows that differ there (-0.0 and 0.0) can still be one key.
    let sieve = RowConverter::new(vec![SortField::new(array.data_type().clone())])
        .and_then(|converter| converter.convert_columns(std::slice::from_ref(array)));
    merged(match &sieve {
        Ok(rows) => distinct((0..array.len()).map(|row| rows.row(row)), |row, _| key_at(row)),
        Err(_) => distinct(0..array.len(), |row, _| key_at(row)),
    })
}

/// Makes equal keys one.
fn merged((candidates, ids): (Vec<MetaKey>, Vec<u32>)) -> (Vec<MetaKey>, Vec<u32>) {
    let (keys, places) = distinct(candidates.iter(), |_, key| key.clone());
    if keys.len() == candidates.len() {
        return (keys, ids);
    }
    let ids = ids.into_iter().map(|id| places[id as usize]).collect();
    (keys, ids)
}

#[expect(clippy::cast_possible_truncation, reason = "a batch holds fewer than 2^32 rows")]
fn distinct<T: Hash + Eq + Copy>(
    items: impl Iterator<Item = T>,
    key: impl Fn(usize, T) -> MetaKey,
) -> (Vec<MetaKey>, Vec<u32>) {
    let mut seen: AHashMap<T, u32> = AHashMap::new();
    let mut keys = Vec::new();
    let mut ids = Vec::with_capacity(items.size_hint().0);
    let mut last: Option<(T, u32)> = None;
    for (row, item) in items.enumerate() {
        let id = match last {
            Some((same, id)) if same == item => id,
            _ => match seen.entry(item) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let id = keys.len() as u32;
                    keys.push(key(row, item));
                    *entry.insert(id)
                }
            },
        };
        last = Some((item, id));
        ids.push(id);
    }
    (keys, ids)
}

/// A column of the given type with one row per key.
#[must_use]
pub fn column_of_keys(keys: &[MetaKey], ty: &FieldType, precision: Precision) -> ArrayRef {
    let values: Vec<Value> = keys.iter().map(MetaKey::value).collect();
    build_array(ty, &values.iter().collect::<Vec<_>>(), precision)
}

/// The value in a row of a canonical column. Null members of objects are left out.
#[must_use]
pub fn value_at(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    let date = |units: i64, precision| Value::Date(Timestamp::from_units(units, precision));
    match array.data_type() {
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Int64 => Value::Int(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float64 => Value::Double(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8View => Value::String(array.as_string_view().value(row).to_owned()),
        DataType::Utf8 => Value::String(array.as_string::<i32>().value(row).to_owned()),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            date(array.as_primitive::<TimestampMillisecondType>().value(row), Precision::Ms)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            date(array.as_primitive::<TimestampMicrosecondType>().value(row), Precision::Us)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            date(array.as_primitive::<TimestampNanosecondType>().value(row), Precision::Ns)
        }
        DataType::Binary => Value::Binary(array.as_binary::<i32>().value(row).to_vec()),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            Value::Array((0..items.len()).map(|i| value_at(&items, i)).collect())
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            Value::Object(
                fields
                    .iter()
                    .zip(columns)
                    .map(|(field, column)| (field.name().into(), value_at(column, row)))
                    .filter(|(_, value)| !value.is_null())
                    .collect(),
            )
        }
        _ => Value::Null,
    }
}
