//! Group keys that are computed from the meta field.

use crate::error::QueryError;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use ebbtide::MetaGroups;
use std::collections::HashMap;
use std::sync::Arc;

/// Computes the keys of metas, and puts metas with equal keys into one group.
#[derive(Debug)]
pub(super) struct MetaKeys {
    /// The one column that the keys are computed from.
    schema: SchemaRef,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// The names that lead to the member of the meta that the keys are.
    member: Option<Vec<String>>,
}

impl MetaKeys {
    /// `None` if equality of the keys cannot be decided by their bytes.
    pub(super) fn new(
        schema: SchemaRef,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        member: Option<Vec<String>>,
    ) -> Result<Option<Self>> {
        for key in &keys {
            let ty = key.data_type(&schema)?;
            if has_doubles(&ty) || !RowConverter::supports_fields(&[SortField::new(ty)]) {
                return Ok(None);
            }
        }
        Ok(Some(MetaKeys { schema, keys, member }))
    }

    /// The expressions, on the meta.
    pub(super) fn exprs(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.keys
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn evaluate(&self, metas: &ArrayRef) -> Result<Vec<ArrayRef>> {
        let options = RecordBatchOptions::new().with_row_count(Some(metas.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), vec![Arc::clone(metas)], &options)?;
        self.keys.iter().map(|key| key.evaluate(&batch)?.into_array(metas.len())).collect()
    }
}

/// Whether the type contains doubles, whose zero has two signs and whose NaN has many forms.
fn has_doubles(ty: &DataType) -> bool {
    match ty {
        DataType::Struct(fields) => fields.iter().any(|field| has_doubles(field.data_type())),
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) => has_doubles(item.data_type()),
        ty => ty.is_floating(),
    }
}

impl MetaGroups for MetaKeys {
    fn group(&self, metas: &ArrayRef) -> Result<Vec<u32>, ArrowError> {
        let columns = self.evaluate(metas).map_err(|e| ArrowError::ExternalError(Box::new(QueryError::from(e))))?;
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
        let rows = RowConverter::new(fields)?.convert_columns(&columns)?;
        let mut numbers = HashMap::new();
        let number = |row| {
            let next = numbers.len();
            let number = *numbers.entry(row).or_insert(next);
            u32::try_from(number).map_err(|_| ArrowError::ComputeError("too many groups of metas".to_owned()))
        };
        rows.iter().map(number).collect()
    }

    fn member(&self) -> Option<&[String]> {
        self.member.as_deref()
    }
}
