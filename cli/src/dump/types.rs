//! Types that Parquet cannot represent.

use arrow::array::{Array, ArrayRef, AsArray, ListArray, NullArray, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use arrow::error::ArrowError;
use ebbtide_buckets::{FieldType, Schema};
use std::sync::Arc;

/// Restores the types that Parquet cannot represent.
pub(super) fn loaded(batch: &RecordBatch, schema: &Schema) -> Result<RecordBatch, ArrowError> {
    let columns: Vec<ArrayRef> = batch
        .schema_ref()
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, column)| schema.field_type(field.name()).map_or(Ok(Arc::clone(column)), |ty| typed(column, ty)))
        .collect::<Result<_, _>>()?;
    let fields: Vec<Field> = batch
        .schema_ref()
        .fields()
        .iter()
        .zip(&columns)
        .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true))
        .collect();
    RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns)
}

/// Lists without any item have items of no type; objects without members are stored as `true`.
fn typed(array: &ArrayRef, ty: &FieldType) -> Result<ArrayRef, ArrowError> {
    Ok(match (ty, array.data_type()) {
        (FieldType::List(item), DataType::List(_)) if **item == FieldType::Unknown => {
            let list = array.as_list::<i32>();
            let items = Arc::new(NullArray::new(list.values().len()));
            let field = Arc::new(Field::new("item", DataType::Null, true));
            Arc::new(ListArray::try_new(field, list.offsets().clone(), items, list.nulls().cloned())?)
        }
        (FieldType::Object(members), DataType::Boolean) if members.is_empty() => {
            Arc::new(StructArray::new_empty_fields(array.len(), array.nulls().cloned()))
        }
        (FieldType::Object(members), DataType::Struct(fields)) if !fields.is_empty() => {
            let object = array.as_struct();
            let (mut fields, mut columns) = (Vec::new(), Vec::new());
            for (field, column) in object.fields().iter().zip(object.columns()) {
                let ty = members.iter().find(|(name, _)| name == field.name());
                let column = ty.map_or(Ok(Arc::clone(column)), |(_, ty)| typed(column, ty))?;
                fields.push(Field::new(field.name(), column.data_type().clone(), true));
                columns.push(column);
            }
            Arc::new(StructArray::try_new(fields.into(), columns, object.nulls().cloned())?)
        }
        _ => Arc::clone(array),
    })
}
