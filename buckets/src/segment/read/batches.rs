//! The batches of a read: columns in their stored form, or restored to a schema.

use super::{Source, failure, missing};
use crate::adapt::adapt_to;
use crate::counts::to_usize;
use crate::schema::FieldType;
use crate::segment::SegmentError;
use crate::segment::physical::restore;
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use arrow::error::ArrowError;
use std::sync::{Arc, OnceLock};

/// The batches of [`SegmentReader::read`](super::SegmentReader::read).
pub struct SegmentBatches {
    pub(super) name: String,
    pub(super) source: Option<Source>,
    pub(super) failed: Arc<OnceLock<SegmentError>>,
    pub(super) present: Vec<(String, FieldType)>,
    pub(super) target: SchemaRef,
    pub(super) rows_left: u64,
    pub(super) batch_rows: usize,
}

impl SegmentBatches {
    /// The schema of the batches.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.target.clone()
    }

    fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let mut fields = Vec::with_capacity(self.present.len());
        let mut columns = Vec::with_capacity(self.present.len());
        for (name, ty) in &self.present {
            let column = batch
                .column_by_name(name)
                .ok_or_else(|| ArrowError::SchemaError(format!("column '{name}' was not read")))?;
            let column = restore(column, ty)?;
            fields.push(Field::new(name, column.data_type().clone(), self.target.field_with_name(name)?.is_nullable()));
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), columns, &options)?;
        adapt_to(&batch, self.target.clone())
    }
}

impl Iterator for SegmentBatches {
    type Item = Result<RecordBatch, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rows_left == 0 {
            return None;
        }
        let batch = match &mut self.source {
            Some(source) => source.next().unwrap_or_else(|| Err(missing(&self.name, self.rows_left))),
            None => {
                let rows = to_usize(self.rows_left).min(self.batch_rows);
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(Arc::new(ArrowSchema::empty()), vec![], &options)
                    .map_err(|error| failure(&self.failed, &self.name, &error))
            }
        };
        let batch = batch.and_then(|batch| {
            self.rows_left = self.rows_left.saturating_sub(batch.num_rows() as u64);
            self.convert(&batch).map_err(|error| failure(&self.failed, &self.name, &error))
        });
        if batch.is_err() {
            self.rows_left = 0;
        }
        Some(batch)
    }
}

/// The batches of [`SegmentReader::read_stored`](super::SegmentReader::read_stored).
pub struct StoredBatches {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) rows_left: u64,
}

impl Iterator for StoredBatches {
    type Item = Result<RecordBatch, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rows_left == 0 {
            return None;
        }
        let batch = self.source.next().unwrap_or_else(|| Err(missing(&self.name, self.rows_left)));
        self.rows_left = batch.as_ref().map_or(0, |batch| self.rows_left.saturating_sub(batch.num_rows() as u64));
        Some(batch)
    }
}
