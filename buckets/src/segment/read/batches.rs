//! The batches of a read: columns in their stored form, or restored to a schema.

use super::{Column, Source, failure, missing};
use crate::adapt::adapt_column;
use crate::counts::to_usize;
use crate::segment::SegmentError;
use crate::segment::physical::restore;
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use std::sync::{Arc, OnceLock};

/// The batches of [`SegmentReader::read`](super::SegmentReader::read).
pub struct SegmentBatches {
    pub(super) name: String,
    pub(super) source: Option<Source>,
    pub(super) failed: Arc<OnceLock<SegmentError>>,
    pub(super) present: Arc<[Column]>,
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

    fn convert(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
        let mut stored = self.present.iter().zip(columns).peekable();
        let restored =
            self.target.fields().iter().map(|field| match stored.next_if(|(column, _)| column.name == *field.name()) {
                Some((Column { ty, .. }, array)) => adapt_column(&restore(&array, ty)?, field),
                None => Ok(new_null_array(field.data_type(), rows)),
            });
        let columns = restored.collect::<Result<Vec<_>, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.target.clone(), columns, &options)
    }
}

impl Iterator for SegmentBatches {
    type Item = Result<RecordBatch, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rows_left == 0 {
            return None;
        }
        let most = to_usize(self.rows_left).min(self.batch_rows);
        let columns = match &mut self.source {
            Some(source) => source.next().unwrap_or_else(|| Err(missing(&self.name, self.rows_left))),
            None => Ok(Vec::new()),
        };
        let batch = columns.and_then(|columns| {
            let rows = columns.first().map_or(most, |column| column.len());
            self.rows_left = self.rows_left.saturating_sub(rows as u64);
            self.convert(columns, rows).map_err(|error| failure(&self.failed, &self.name, &error))
        });
        if batch.is_err() {
            self.rows_left = 0;
        }
        Some(batch)
    }
}

/// The batches of [`SegmentReader::read_stored`](super::SegmentReader::read_stored): the columns in the requested order.
pub struct StoredBatches {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) rows_left: u64,
}

impl Iterator for StoredBatches {
    type Item = Result<Vec<ArrayRef>, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rows_left == 0 {
            return None;
        }
        let columns = self.source.next().unwrap_or_else(|| Err(missing(&self.name, self.rows_left)));
        let rows = columns.as_ref().ok().and_then(|columns| columns.first()).map(|column| column.len() as u64);
        self.rows_left = rows.map_or(0, |rows| self.rows_left.saturating_sub(rows));
        Some(columns)
    }
}
