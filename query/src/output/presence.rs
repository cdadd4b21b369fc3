//! Parquet has no type for objects without members: they are written as booleans, true where there is an object.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, RecordBatch, StructArray};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use std::sync::Arc;

fn type_in_parquet(ty: &DataType) -> DataType {
    match ty {
        DataType::Struct(members) if members.is_empty() => DataType::Boolean,
        DataType::Struct(members) => DataType::Struct(members.iter().map(field_in_parquet).collect()),
        DataType::List(item) => DataType::List(field_in_parquet(item)),
        other => other.clone(),
    }
}

fn field_in_parquet(field: &FieldRef) -> FieldRef {
    let ty = type_in_parquet(field.data_type());
    if ty == *field.data_type() { Arc::clone(field) } else { Arc::new(Field::clone(field).with_data_type(ty)) }
}

/// The schema in which a result is written to Parquet.
pub(super) fn schema_in_parquet(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(field_in_parquet).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Converts a batch to that schema.
pub(super) fn batch_in_parquet(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if batch.schema_ref().fields() == schema.fields() {
        return Ok(batch.clone());
    }
    let columns = batch.columns().iter().map(in_parquet).collect::<Result<_, _>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns)
}

fn in_parquet(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let ty = type_in_parquet(array.data_type());
    Ok(match &ty {
        same if same == array.data_type() => Arc::clone(array),
        DataType::Boolean => Arc::new(BooleanArray::new(BooleanBuffer::new_set(array.len()), array.nulls().cloned())),
        DataType::Struct(members) => {
            let object = array.as_struct();
            let columns = object.columns().iter().map(in_parquet).collect::<Result<_, _>>()?;
            Arc::new(StructArray::try_new(members.clone(), columns, object.nulls().cloned())?)
        }
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let items = in_parquet(list.values())?;
            Arc::new(ListArray::try_new(Arc::clone(item), list.offsets().clone(), items, list.nulls().cloned())?)
        }
        _ => Arc::clone(array),
    })
}
