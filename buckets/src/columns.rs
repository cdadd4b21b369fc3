//! Small looks at canonical columns.

use crate::schema::{FieldType, Schema};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    ArrowNativeType, DataType, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType,
};
use arrow::error::ArrowError;
use ebbtide_ttl::{Precision, RuleError};
use std::sync::Arc;

/// The times of a canonical batch, in units of its precision: its first column.
///
/// # Errors
/// If the first column is not one of timestamps.
pub fn times(batch: &RecordBatch) -> Result<&[i64], ArrowError> {
    match batch.columns().first() {
        Some(column) => time_values(column),
        None => Err(ArrowError::SchemaError("a batch of measurements has a time column".to_owned())),
    }
}

/// Memory of the rows in bytes. A caller's arrays may be slices of far larger buffers: only the slice counts.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(column_bytes).sum()
}

fn column_bytes(column: &ArrayRef) -> usize {
    // Texts of up to twelve bytes are in the views themselves.
    let of_views = |count: usize, used: usize| count * size_of::<u128>() + used;
    match column.data_type() {
        DataType::Utf8View => of_views(column.len(), column.as_string_view().total_buffer_bytes_used()),
        DataType::BinaryView => of_views(column.len(), column.as_binary_view().total_buffer_bytes_used()),
        DataType::Struct(_) => column.as_struct().columns().iter().map(column_bytes).sum(),
        _ => column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()),
    }
}

/// The same batch with columns of text that do not keep far larger buffers alive than they use, as slices and casts do.
///
/// # Errors
/// None that a batch with a matching schema can meet.
pub fn compact_views(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let wastes = |column: &ArrayRef| {
        column.as_string_view_opt().is_some_and(|views| {
            let held: usize = views.data_buffers().iter().map(|b| b.len()).sum();
            held > 1024 && held / 2 > views.total_buffer_bytes_used()
        })
    };
    if !batch.columns().iter().any(wastes) {
        return Ok(batch);
    }
    let compact = |column: &ArrayRef| -> ArrayRef {
        if wastes(column) { Arc::new(column.as_string_view().gc()) } else { column.clone() }
    };
    RecordBatch::try_new(batch.schema(), batch.columns().iter().map(compact).collect())
}

/// The values of a column of timestamps, in its own unit.
///
/// # Errors
/// If it is not one of timestamps.
pub fn time_values(column: &ArrayRef) -> Result<&[i64], ArrowError> {
    match column.data_type() {
        DataType::Timestamp(TimeUnit::Millisecond, _) => Ok(column.as_primitive::<TimestampMillisecondType>().values()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(column.as_primitive::<TimestampMicrosecondType>().values()),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => Ok(column.as_primitive::<TimestampNanosecondType>().values()),
        other => Err(ArrowError::SchemaError(format!("expected a column of timestamps, found {other}"))),
    }
}

/// The schema that a canonical batch was made under: time first, then the meta if it has that name, then fields.
///
/// # Errors
/// If a column has a type that no field can have.
pub fn schema_of_batch(
    batch: &RecordBatch,
    time: &str,
    meta: Option<&str>,
    precision: Precision,
) -> Result<Schema, RuleError> {
    let mut schema =
        Schema { time: time.to_owned(), meta: meta.map(str::to_owned), precision, meta_type: None, fields: Vec::new() };
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()).filter(|(f, _)| f.name() != time) {
        let Some(ty) = FieldType::from_arrow(field.data_type()) else { continue };
        let ty = with_unknown(ty, column);
        if Some(field.name().as_str()) == meta {
            schema.meta_type = Some(ty);
        } else {
            schema.fields.push((field.name().clone(), ty));
        }
    }
    Ok(schema)
}

/// The items of lists that were all empty are a column of booleans without values: their type is undecided.
pub(crate) fn with_unknown(ty: FieldType, column: &ArrayRef) -> FieldType {
    match (ty, column.data_type()) {
        (FieldType::List(item), DataType::List(_)) => {
            let items = column.as_list::<i32>().values();
            match *item {
                FieldType::Bool if items.null_count() == items.len() => FieldType::List(Box::new(FieldType::Unknown)),
                item => FieldType::List(Box::new(with_unknown(item, items))),
            }
        }
        (FieldType::Object(members), DataType::Struct(_)) => {
            let children = column.as_struct().columns();
            let members = members.into_iter().zip(children).map(|((name, ty), child)| (name, with_unknown(ty, child)));
            FieldType::Object(members.collect())
        }
        (ty, _) => ty,
    }
}

/// Separates the names in the path of a field; no name contains it.
pub const PATH_SEPARATOR: char = '\0';

/// Paths (joined by [`PATH_SEPARATOR`]) of the fields that are integers under `old` and floating point under `new`.
#[must_use]
pub fn widened_fields(old: &Schema, new: &Schema) -> Vec<String> {
    let mut paths = Vec::new();
    for (name, ty) in
        new.fields.iter().map(|(n, t)| (n.as_str(), t)).chain(new.meta.as_deref().zip(new.meta_type.as_ref()))
    {
        let before = match new.meta.as_deref() == Some(name) {
            true => old.meta_type.as_ref(),
            false => old.fields.iter().find(|(n, _)| n == name).map(|(_, t)| t),
        };
        if let Some(before) = before {
            collect_widened(name.to_owned(), before, ty, &mut paths);
        }
    }
    paths
}

fn collect_widened(path: String, old: &FieldType, new: &FieldType, paths: &mut Vec<String>) {
    match (old, new) {
        (FieldType::Int64, FieldType::Double) => paths.push(path),
        (FieldType::List(old), FieldType::List(new)) => collect_widened(path, old, new, paths),
        (FieldType::Object(old), FieldType::Object(new)) => {
            for (name, before) in old {
                if let Some((_, after)) = new.iter().find(|(n, _)| n == name) {
                    collect_widened(format!("{path}{PATH_SEPARATOR}{name}"), before, after, paths);
                }
            }
        }
        _ => {}
    }
}

/// The items of a column of lists, at any depth; any other column unchanged.
fn items(mut column: ArrayRef) -> ArrayRef {
    while let Some(list) = column.as_list_opt::<i32>() {
        let (from, to) = (list.value_offsets()[0], list.value_offsets()[list.len()]);
        let values = list.values().slice(from.as_usize(), (to - from).as_usize());
        column = values;
    }
    column
}

/// The whole numbers at `path` (whose first part is the column's own name) in a column, nulls left out.
#[must_use]
pub fn ints_at(column: &ArrayRef, path: &str) -> Vec<i64> {
    let mut column = items(column.clone());
    for name in path.split(PATH_SEPARATOR).skip(1) {
        match column.as_struct_opt().and_then(|s| s.column_by_name(name).cloned()) {
            Some(child) => column = items(child),
            None => return Vec::new(),
        }
    }
    match column.as_primitive_opt::<Int64Type>() {
        Some(ints) => ints.iter().flatten().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
