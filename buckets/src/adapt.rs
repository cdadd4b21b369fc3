//! From an older schema to a newer one.

use crate::schema::Schema;
use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, ListArray, RecordBatch, RecordBatchOptions, StructArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, SchemaRef};
use arrow::error::ArrowError;
use std::sync::Arc;

/// Casts a batch of an older schema to a newer one: missing columns become null, integers become doubles,
/// objects get their new members. A batch that already fits is returned unchanged.
///
/// # Errors
/// If a column cannot be converted to its type in the newer schema.
pub fn adapt(batch: &RecordBatch, to: &Schema) -> Result<RecordBatch, ArrowError> {
    adapt_to(batch, to.arrow())
}

/// [`adapt`] to those columns of the newer schema that `schema` has.
///
/// # Errors
/// As [`adapt`].
pub fn adapt_to(batch: &RecordBatch, schema: SchemaRef) -> Result<RecordBatch, ArrowError> {
    if batch.schema_ref().fields() == schema.fields() {
        return Ok(batch.clone());
    }
    let rows = batch.num_rows();
    let columns = schema
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) => adapt_column(column, field),
            None => Ok(new_null_array(field.data_type(), rows)),
        })
        .collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new_with_options(schema, columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
}

/// Adapts the column of a field; an error names it.
pub(crate) fn adapt_column(array: &ArrayRef, to: &Field) -> Result<ArrayRef, ArrowError> {
    adapt_array(array, to.data_type()).map_err(|e| ArrowError::CastError(format!("column '{}': {e}", to.name())))
}

/// Adapts one column. See [`adapt`].
pub(crate) fn adapt_array(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    match (array.data_type(), to) {
        (from, to) if from == to => Ok(array.clone()),
        (DataType::Int64, DataType::Float64) => {
            #[expect(clippy::cast_precision_loss, reason = "the batch's own values were checked when it was made")]
            let doubles: Float64Array = array.as_primitive::<Int64Type>().unary::<_, Float64Type>(|i| i as f64);
            Ok(Arc::new(doubles))
        }
        (DataType::Struct(_), DataType::Struct(members)) => {
            let from = array.as_struct();
            let columns = members
                .iter()
                .map(|member| match from.column_by_name(member.name()) {
                    Some(column) => adapt_array(column, member.data_type()),
                    None => Ok(new_null_array(member.data_type(), array.len())),
                })
                .collect::<Result<Vec<_>, _>>()?;
            let nulls = from.nulls().cloned();
            Ok(Arc::new(StructArray::try_new_with_length(members.clone(), columns, nulls, array.len())?))
        }
        (DataType::List(_), DataType::List(item)) => {
            let list = array.as_list::<i32>();
            let values = adapt_array(list.values(), item.data_type())?;
            Ok(Arc::new(ListArray::try_new(item.clone(), list.offsets().clone(), values, list.nulls().cloned())?))
        }
        (_, to) if array.null_count() == array.len() => Ok(new_null_array(to, array.len())),
        (from, to) => Err(ArrowError::CastError(format!("{from} does not become {to}"))),
    }
}
