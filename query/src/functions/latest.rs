//! `latest('collection')`: the last measurement of each meta, which the engine finds in its bucket directories.

use crate::catalog::{CATALOG, COLLECTIONS, Current};
use crate::error::external;
use crate::exec::conform;
use crate::provider::{Asked, CollectionTable};
use crate::pushdown::Roles;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use ebbtide::{CollectionSnapshot, ScanRequest};
use std::fmt;
use std::sync::Arc;

/// The table function.
#[derive(Debug)]
pub(super) struct Latest {
    pub(super) current: Arc<Current>,
}

impl TableFunctionImpl for Latest {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let name = match args.exprs() {
            [Expr::Literal(value, _)] => value.try_as_str().flatten().map(str::to_owned),
            [Expr::Column(column)] => Some(column.name.clone()),
            _ => None,
        };
        let Some(name) = name else {
            return plan_err!("latest(collection) takes the name of a collection: latest('weather')");
        };
        let Ok(snapshot) = self.current.snapshot().collection(&name) else {
            return plan_err!("table '{CATALOG}.{COLLECTIONS}.{name}' not found");
        };
        Ok(Arc::new(LatestTable { all: CollectionTable::new(&name, &snapshot, Arc::clone(&self.current)) }))
    }
}

/// The last rows of a collection. Like the collection's own table it looks at the snapshot of the statement that is planned.
#[derive(Debug)]
struct LatestTable {
    all: CollectionTable,
}

#[async_trait]
impl TableProvider for LatestTable {
    fn schema(&self) -> SchemaRef {
        self.all.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // Only metas are chosen first: a condition on anything else is one on the last row, not on those before it.
        let metas = Roles { time: "", ..self.all.roles() };
        Ok(filters
            .iter()
            .map(|f| match metas.supports(f) {
                TableProviderFilterPushDown::Exact => TableProviderFilterPushDown::Exact,
                _ => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Asked { snapshot, schema, request, label, .. } = self.all.ask(state, projection, filters)?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Arc::new(LatestExec { label, schema, snapshot, request, properties, metrics }))
    }
}

/// Reads the last rows of a collection.
#[derive(Debug)]
struct LatestExec {
    /// Says what is read: the collection, the cut-offs, the filters.
    label: String,
    schema: SchemaRef,
    snapshot: CollectionSnapshot,
    request: ScanRequest,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DisplayAs for LatestExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::TreeRender => f.write_str(&self.label.replace(", ", "\n")),
            _ => write!(f, "LatestExec: {}", self.label),
        }
    }
}

impl ExecutionPlan for LatestExec {
    fn name(&self) -> &'static str {
        "LatestExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let (snapshot, request, schema) = (self.snapshot.clone(), self.request.clone(), Arc::clone(&self.schema));
        let rows = async move {
            let timer = baseline.elapsed_compute().timer();
            let rows = conform(&snapshot.last_points(&request).map_err(external)?, &schema)?;
            timer.done();
            baseline.record_output(rows.num_rows());
            Ok(rows)
        };
        let stream = futures::stream::once(rows);
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
