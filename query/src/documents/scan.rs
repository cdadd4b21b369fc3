//! The leaf of a plan that reads the visible documents of an ordinary collection.

use super::cells::PlannedDocuments;
use crate::error::external;
use crate::leaf::{leaf_methods, leaf_properties};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use ebbtide::documents_model::json::document_from_json;
use ebbtide::{Document, DocumentsSnapshot};
use futures::StreamExt;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Documents of a batch at most.
const BATCH: usize = 4096;
/// Bytes of the documents of a batch, about.
const BATCH_BYTES: usize = 2 << 20;

/// Reads an ordinary collection.
#[derive(Debug)]
pub(crate) struct DocumentsScanExec {
    pub(crate) snapshot: DocumentsSnapshot,
    pub(crate) planned: PlannedDocuments,
    pub(crate) projection: Vec<usize>,
    pub(crate) schema: SchemaRef,
    /// A filter in MongoDB's form for what is looked up; `{}` for everything.
    pub(crate) filter: Value,
    /// The index that serves it.
    index: Option<String>,
    pub(crate) limit: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DocumentsScanExec {
    pub(crate) fn new(
        snapshot: DocumentsSnapshot,
        planned: PlannedDocuments,
        projection: Option<&Vec<usize>>,
        filter: Value,
        limit: Option<usize>,
    ) -> Result<Self> {
        let all = || (0..planned.arrow.fields().len()).collect();
        let projection = projection.cloned().unwrap_or_else(all);
        let schema: SchemaRef = Arc::new(planned.arrow.project(&projection)?);
        let properties = leaf_properties(&schema, 1, EmissionType::Incremental);
        let metrics = ExecutionPlanMetricsSet::new();
        let index = document_from_json(&filter).map_err(|e| DataFusionError::External(Box::new(e)))?;
        let index = snapshot.index_for(&index).map_err(external)?;
        Ok(DocumentsScanExec { snapshot, planned, projection, schema, filter, index, limit, properties, metrics })
    }

    /// What is read, in words.
    pub(crate) fn words(&self) -> String {
        let name = &self.planned.name;
        let mut text = match (self.filter["_id"]["$in"].as_array(), &self.index) {
            (Some(ids), _) if ids.len() == 1 => format!("looks up one document of {name} by its _id"),
            (Some(ids), _) => format!("looks up {} documents of {name} by their _id", ids.len()),
            (None, Some(index)) => format!("reads the documents of {name} that index {index} finds"),
            (None, None) => format!("reads the documents of {name}, in the order of their _id"),
        };
        if let Some(limit) = self.limit {
            text.push_str(&format!("; ends after {limit} rows"));
        }
        text
    }
}

impl DisplayAs for DocumentsScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DocumentsScanExec: collection={}, now={}", self.planned.name, self.snapshot.now())?;
        match (self.filter["_id"]["$in"].as_array(), &self.index) {
            (Some(ids), _) => write!(f, ", ids={}", ids.len())?,
            (None, Some(index)) => write!(f, ", index={index}, filter={}", self.filter)?,
            (None, None) => {}
        }
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for DocumentsScanExec {
    leaf_methods!();

    fn name(&self) -> &'static str {
        "DocumentsScanExec"
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let (snapshot, planned, limit) =
            (self.snapshot.clone(), self.planned.clone(), self.limit.unwrap_or(usize::MAX));
        let (projection, schema) = (self.projection.clone(), Arc::clone(&self.schema));
        let filter = document_from_json(&self.filter).map_err(|e| DataFusionError::External(Box::new(e)))?;
        let counter = |name: &'static str| MetricBuilder::new(&self.metrics).counter(name, partition);
        let (examined, indexed) = (counter("documents_examined"), counter("documents_indexed"));
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&schema), 2);
        let sender = builder.tx();
        builder.spawn_blocking(move || {
            let (mut waiting, mut bytes, mut left): (Vec<Document>, usize, usize) = (Vec::new(), 0, limit);
            // Whether somebody still waits for rows.
            let send = |waiting: &mut Vec<Document>| {
                let batch = planned.batch(&std::mem::take(waiting), &projection, &schema);
                let is_last = batch.is_err();
                sender.blocking_send(batch).is_ok() && !is_last
            };
            let read = snapshot.for_each_where(&filter, &mut |found| {
                if left == 0 {
                    return Ok(false);
                }
                left -= 1;
                bytes += found.document.as_bytes().len();
                waiting.push(found);
                let mut goes_on = left > 0;
                if waiting.len() >= BATCH || bytes >= BATCH_BYTES {
                    bytes = 0;
                    goes_on &= send(&mut waiting);
                }
                Ok(goes_on)
            });
            if !waiting.is_empty() {
                send(&mut waiting);
            }
            let report = read.map_err(external)?;
            let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
            examined.add(count(report.examined));
            indexed.add(count(report.indexed));
            Ok(())
        });
        let counted = builder.build().map(move |batch| {
            batch.inspect(|batch| {
                baseline.record_output(batch.num_rows());
            })
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), counted)))
    }
}
