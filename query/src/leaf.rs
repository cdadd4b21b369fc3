//! What the leaves of plans have in common.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};
use futures::stream;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The properties of a leaf whose rows are in no particular order.
pub(crate) fn leaf_properties(schema: &SchemaRef, partitions: usize, emission: EmissionType) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(Arc::clone(schema)),
        Partitioning::UnknownPartitioning(partitions),
        emission,
        Boundedness::Bounded,
    ))
}

/// The methods of `ExecutionPlan` that are the same for every leaf with the fields `properties` and `metrics`. A leaf that has
/// expressions names the method that returns them.
macro_rules! leaf_methods {
    () => {
        fn apply_expressions(
            &self,
            _f: &mut dyn FnMut(
                &Arc<dyn datafusion::physical_expr::PhysicalExpr>,
            ) -> Result<datafusion::common::tree_node::TreeNodeRecursion>,
        ) -> Result<datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }

        leaf_methods!(@others);
    };
    ($expressions:ident) => {
        fn apply_expressions(
            &self,
            f: &mut dyn FnMut(
                &Arc<dyn datafusion::physical_expr::PhysicalExpr>,
            ) -> Result<datafusion::common::tree_node::TreeNodeRecursion>,
        ) -> Result<datafusion::common::tree_node::TreeNodeRecursion> {
            datafusion::physical_plan::apply_expression_roots(self.$expressions(), f)
        }

        leaf_methods!(@others);
    };
    (@others) => {
        fn properties(&self) -> &Arc<datafusion::physical_plan::PlanProperties> {
            &self.properties
        }

        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            Vec::new()
        }

        fn replace_children(
            self: Arc<Self>,
            _children: Vec<Arc<dyn ExecutionPlan>>,
            _options: datafusion::physical_plan::execution_plan::ReplaceChildrenOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            Ok(self)
        }

        fn with_new_children(
            self: Arc<Self>,
            _children: Vec<Arc<dyn ExecutionPlan>>,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            Ok(self)
        }

        fn metrics(&self) -> Option<datafusion::physical_plan::metrics::MetricsSet> {
            Some(self.metrics.clone_inner())
        }
    };
}

pub(crate) use leaf_methods;

/// A leaf that returns the rows of streams, one for each partition. It can be executed once.
pub(crate) fn streams_as_leaf(
    schema: &SchemaRef,
    streams: Vec<SendableRecordBatchStream>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let handed = streams.into_iter().map(|rows| {
        let handed = Handed { schema: Arc::clone(schema), rows: Mutex::new(Some(rows)) };
        Arc::new(handed) as Arc<dyn PartitionStream>
    });
    Ok(Arc::new(StreamingTableExec::try_new(Arc::clone(schema), handed.collect(), None, [], false, None)?))
}

/// A stream as a table that is read once.
struct Handed {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handed").finish_non_exhaustive()
    }
}

impl PartitionStream for Handed {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        rows.unwrap_or_else(|| {
            let error = stream::iter([internal_err!("a stream is read a second time")]);
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), error))
        })
    }
}
