//! Converts values to columns. The values have already been checked against the type; one that does not fit becomes null.

use crate::schema::FieldType;
use arrow::array::{
    Array, ArrayRef, BinaryBuilder, BooleanArray, Float64Array, Int64Array, ListArray, PrimitiveArray,
    StringViewBuilder, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    ArrowTimestampType, DataType, Field, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use ebbtide_ttl::{Precision, Value, exact_int};
use std::sync::Arc;

pub(crate) static NULL: Value = Value::Null;

/// One column of the given type with one row per value.
pub(crate) fn build_array(ty: &FieldType, values: &[&Value], precision: Precision) -> ArrayRef {
    match ty {
        FieldType::Unknown => Arc::new(BooleanArray::new_null(values.len())),
        FieldType::Bool => Arc::new(
            values
                .iter()
                .map(|v| match v {
                    Value::Bool(b) => Some(*b),
                    _ => None,
                })
                .collect::<BooleanArray>(),
        ),
        FieldType::Int64 => Arc::new(
            values
                .iter()
                .map(|v| match v {
                    Value::Int(i) => Some(*i),
                    Value::Double(d) => exact_int(*d),
                    _ => None,
                })
                .collect::<Int64Array>(),
        ),
        #[expect(clippy::cast_precision_loss, reason = "ints that a double cannot hold were refused before")]
        FieldType::Double => Arc::new(
            values
                .iter()
                .map(|v| match v {
                    Value::Int(i) => Some(*i as f64),
                    Value::Double(d) => Some(*d),
                    _ => None,
                })
                .collect::<Float64Array>(),
        ),
        FieldType::String => {
            let mut out = StringViewBuilder::with_capacity(values.len());
            for value in values {
                match value {
                    Value::String(s) => out.append_value(s),
                    _ => out.append_null(),
                }
            }
            Arc::new(out.finish())
        }
        FieldType::Binary => {
            let mut out = BinaryBuilder::with_capacity(values.len(), 0);
            for value in values {
                match value {
                    Value::Binary(b) => out.append_value(b),
                    _ => out.append_null(),
                }
            }
            Arc::new(out.finish())
        }
        FieldType::Timestamp => timestamps(
            values.iter().map(|v| match v {
                Value::Date(t) => t.to_units(precision),
                _ => None,
            }),
            precision,
        ),
        FieldType::List(item) => build_list(item, values, precision),
        FieldType::Object(members) => build_object(members, values, precision),
    }
}

/// A column of instants in units of `precision`.
pub(crate) fn timestamps(units: impl Iterator<Item = Option<i64>>, precision: Precision) -> ArrayRef {
    fn of<T: ArrowTimestampType>(units: impl Iterator<Item = Option<i64>>) -> ArrayRef {
        Arc::new(units.collect::<PrimitiveArray<T>>().with_timezone("UTC"))
    }
    match precision {
        Precision::Ms => of::<TimestampMillisecondType>(units),
        Precision::Us => of::<TimestampMicrosecondType>(units),
        Precision::Ns => of::<TimestampNanosecondType>(units),
    }
}

fn build_list(item: &FieldType, values: &[&Value], precision: Precision) -> ArrayRef {
    let lists = |v: &&Value| match v {
        Value::Array(items) => items.len(),
        _ => 0,
    };
    let offsets = OffsetBuffer::from_lengths(values.iter().map(lists));
    let nulls = NullBuffer::from_iter(values.iter().map(|v| matches!(v, Value::Array(_))));
    let items: Vec<&Value> = values
        .iter()
        .flat_map(|v| match v {
            Value::Array(items) => items.as_slice(),
            _ => &[],
        })
        .collect();
    let items = build_array(item, &items, precision);
    let field = Arc::new(Field::new("item", items.data_type().clone(), true));
    let nulls = Some(nulls).filter(|n| n.null_count() > 0);
    Arc::new(ListArray::new(field, offsets, items, nulls))
}

fn build_object(members: &[(String, FieldType)], values: &[&Value], precision: Precision) -> ArrayRef {
    let columns = member_columns(members.iter().map(|(name, _)| name.as_str()), values);
    let arrays: Vec<ArrayRef> =
        members.iter().zip(&columns).map(|((_, ty), column)| build_array(ty, column, precision)).collect();
    let nulls = NullBuffer::from_iter(values.iter().map(|v| matches!(v, Value::Object(_))));
    let nulls = Some(nulls).filter(|n| n.null_count() > 0);
    let DataType::Struct(fields) = FieldType::Object(members.to_vec()).arrow(precision) else { unreachable!() };
    if arrays.is_empty() {
        return Arc::new(StructArray::new_empty_fields(values.len(), nulls));
    }
    Arc::new(StructArray::new(fields, arrays, nulls))
}

/// Splits objects into members: for each name a column of references, null where an object lacks it.
fn member_columns<'a, 'n>(
    names: impl ExactSizeIterator<Item = &'n str> + Clone,
    values: &[&'a Value],
) -> Vec<Vec<&'a Value>> {
    let mut columns: Vec<Vec<&'a Value>> = names.clone().map(|_| vec![&NULL; values.len()]).collect();
    let list: Vec<&str> = names.collect();
    let index: ahash::AHashMap<&str, usize> = list.iter().enumerate().map(|(i, n)| (*n, i)).collect();
    for (row, value) in values.iter().enumerate() {
        let Value::Object(members) = value else { continue };
        // Documents of one source usually have their fields in the same order.
        let mut next = 0;
        for (name, member) in members {
            let at =
                if list.get(next) == Some(&name.as_str()) { Some(next) } else { index.get(name.as_str()).copied() };
            if let Some(at) = at {
                columns[at][row] = member;
                next = at + 1;
            }
        }
    }
    columns
}
