//! Tables of text files, which are read on a thread of their own.

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Rows per batch.
pub(super) const BATCH_ROWS: usize = 8192;

/// How the rows of a file are read.
pub(super) trait Rows: fmt::Debug + Send + Sync + 'static {
    /// Reads these columns of a file. `give` receives each batch, and returns whether to continue.
    fn read(
        &self,
        path: &std::path::Path,
        columns: &SchemaRef,
        give: &mut dyn FnMut(Result<RecordBatch>) -> bool,
    ) -> Result<()>;
}

/// Files with the rows of one table.
#[derive(Debug)]
pub(super) struct TextTable<R> {
    pub(super) schema: SchemaRef,
    pub(super) files: Vec<PathBuf>,
    pub(super) rows: Arc<R>,
}

#[async_trait]
impl<R: Rows> TableProvider for TextTable<R> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => Arc::clone(&self.schema),
        };
        let part = |path: &PathBuf| -> Arc<dyn PartitionStream> {
            Arc::new(Part { path: path.clone(), schema: Arc::clone(&schema), rows: Arc::clone(&self.rows) })
        };
        let parts = self.files.iter().map(part).collect();
        Ok(Arc::new(StreamingTableExec::try_new(schema, parts, None, [], false, limit)?))
    }
}

/// One file.
#[derive(Debug)]
struct Part<R> {
    path: PathBuf,
    schema: SchemaRef,
    rows: Arc<R>,
}

impl<R: Rows> PartitionStream for Part<R> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 2);
        let (sender, rows) = (stream.tx(), Arc::clone(&self.rows));
        let (path, schema) = (self.path.clone(), Arc::clone(&self.schema));
        stream.spawn_blocking(move || rows.read(&path, &schema, &mut |batch| sender.blocking_send(batch).is_ok()));
        stream.build()
    }
}

/// The columns of several files, in the order of their first appearance.
pub(super) fn merged(schemas: Vec<Schema>) -> Result<SchemaRef> {
    Ok(Arc::new(Schema::try_merge(schemas)?))
}
