//! The types of columns in files that other programs read. Texts in views are written as plain ones, which pandas reads in
//! lists too. Parquet has no type for objects without members: they are written as booleans, true where there is an object; nor
//! has it times in seconds, which are written in milliseconds.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, RecordBatch, StructArray};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use std::sync::Arc;

/// A format with types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Typed {
    Parquet,
    Arrow,
}

impl Typed {
    fn ty(self, ty: &DataType) -> DataType {
        match ty {
            DataType::Struct(members) if members.is_empty() && self == Typed::Parquet => DataType::Boolean,
            DataType::Struct(members) => DataType::Struct(members.iter().map(|member| self.field(member)).collect()),
            DataType::List(item) => DataType::List(self.field(item)),
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            DataType::Timestamp(TimeUnit::Second, zone) if self == Typed::Parquet => {
                DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
            }
            other => other.clone(),
        }
    }

    fn field(self, field: &FieldRef) -> FieldRef {
        let ty = self.ty(field.data_type());
        if ty == *field.data_type() { Arc::clone(field) } else { Arc::new(Field::clone(field).with_data_type(ty)) }
    }

    /// The schema in which a result is written.
    pub(super) fn schema(self, schema: &SchemaRef) -> SchemaRef {
        let fields: Vec<FieldRef> = schema.fields().iter().map(|field| self.field(field)).collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }

    /// Converts a batch to that schema.
    pub(super) fn batch(self, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        if batch.schema_ref().fields() == schema.fields() {
            return Ok(batch.clone());
        }
        let columns = batch.columns().iter().map(|column| self.array(column)).collect::<Result<_, _>>()?;
        RecordBatch::try_new(Arc::clone(schema), columns)
    }

    fn array(self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let ty = self.ty(array.data_type());
        Ok(match &ty {
            same if same == array.data_type() => Arc::clone(array),
            DataType::Boolean => {
                Arc::new(BooleanArray::new(BooleanBuffer::new_set(array.len()), array.nulls().cloned()))
            }
            DataType::Struct(members) => {
                let object = array.as_struct();
                let columns = object.columns().iter().map(|column| self.array(column)).collect::<Result<_, _>>()?;
                Arc::new(StructArray::try_new(members.clone(), columns, object.nulls().cloned())?)
            }
            DataType::List(item) => {
                let list = array.as_list::<i32>();
                let items = self.array(list.values())?;
                Arc::new(ListArray::try_new(Arc::clone(item), list.offsets().clone(), items, list.nulls().cloned())?)
            }
            other => cast(array, other)?,
        })
    }
}
