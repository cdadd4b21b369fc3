//! DELETE in the plans that EXPLAIN shows.

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{Result, not_impl_err};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use std::fmt;
use std::sync::Arc;

/// Stands for a DELETE in the plan that EXPLAIN shows. It refuses to run: the plan no longer has what the engine needs
/// to delete.
#[derive(Debug)]
pub(crate) struct DeleteSink {
    collection: String,
    schema: SchemaRef,
}

impl DeleteSink {
    pub(crate) fn plan(collection: &str) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::empty());
        let input = Arc::new(EmptyExec::new(Arc::clone(&schema)));
        let sink = DeleteSink { collection: collection.to_owned(), schema };
        Arc::new(DataSinkExec::new(input, Arc::new(sink), None))
    }
}

impl DisplayAs for DeleteSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeleteSink: collection={}", self.collection)
    }
}

#[async_trait]
impl DataSink for DeleteSink {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(&self, _: SendableRecordBatchStream, _: &Arc<TaskContext>) -> Result<u64> {
        not_impl_err!("EXPLAIN ANALYZE of DELETE; run the DELETE by itself")
    }
}
