//! `latest('collection')`: the last measurement of each meta, which the engine finds using its bucket directories.

use crate::context::{CATALOG, COLLECTIONS, StatementContext};
use crate::error::external;
use crate::exec::conform;
use crate::leaf::{leaf_methods, leaf_properties};
use crate::provider::CollectionTable;
use crate::pushdown::PushdownRules;
use crate::scan_spec::ScanSpec;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use std::fmt;
use std::sync::Arc;

/// The table function.
#[derive(Debug)]
pub(super) struct Latest;

impl TableFunctionImpl for Latest {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let Some(name) = super::collection_argument(&args) else {
            return plan_err!("latest(collection) takes the name of a collection: latest('weather')");
        };
        let context = StatementContext::of(args.session().config())?;
        let Ok(snapshot) = context.snapshot().collection(&name) else {
            return plan_err!("table '{CATALOG}.{COLLECTIONS}.{name}' not found");
        };
        Ok(Arc::new(LatestTable { all: CollectionTable::new(&snapshot) }))
    }
}

/// The last rows of a collection. Like the collection's own table, it reads the snapshot of the statement that is
/// planned.
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
        // Only conditions on the meta field are applied first: any other condition is about the last row, not about the
        // rows before it.
        let metas = PushdownRules { time: "", ..self.all.planned.rules() };
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
        let spec = self.all.spec(state, projection, filters)?;
        let properties = leaf_properties(&spec.schema, 1, EmissionType::Final);
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(LatestExec { spec: Arc::new(spec), properties, metrics }))
    }
}

/// Reads the last rows of a collection.
#[derive(Debug)]
struct LatestExec {
    spec: Arc<ScanSpec>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DisplayAs for LatestExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::TreeRender => f.write_str(&self.spec.to_string().replace(", ", "\n")),
            _ => write!(f, "LatestExec: {}", self.spec),
        }
    }
}

impl ExecutionPlan for LatestExec {
    leaf_methods!();

    fn name(&self) -> &'static str {
        "LatestExec"
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let spec = Arc::clone(&self.spec);
        let rows = async move {
            let timer = baseline.elapsed_compute().timer();
            let rows = conform(&spec.snapshot.last_points(&spec.request).map_err(external)?, &spec.schema)?;
            timer.done();
            baseline.record_output(rows.num_rows());
            Ok(rows)
        };
        let stream = futures::stream::once(rows);
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.spec.schema), stream)))
    }
}
