//! `latest('collection')`: the last measurement of each meta, which the engine finds using its bucket directories.

use super::table::{Batches, Call, CallTable, Rows, only_collection};
use crate::error::external;
use crate::exec::conform;
use crate::provider::CollectionTable;
use crate::pushdown::PushdownRules;
use crate::scan_spec::ScanSpec;
#[cfg(feature = "workers")]
use crate::workers::shared_latest;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
#[cfg(feature = "workers")]
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use std::fmt;
use std::sync::Arc;

/// The table function.
#[derive(Debug)]
pub(super) struct Latest;

impl TableFunctionImpl for Latest {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let snapshot = only_collection(&args, "latest")?;
        Ok(Arc::new(CallTable(LatestCall(CollectionTable::new(&snapshot, None)))))
    }
}

/// The last rows of a collection.
#[derive(Debug)]
struct LatestCall(CollectionTable);

impl Call for LatestCall {
    type Rows = LatestRows;

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    /// Only conditions on the meta field are applied first: any other condition is about the last row, not about the rows before
    /// it.
    fn supports(&self, filter: &Expr) -> TableProviderFilterPushDown {
        PushdownRules { time: "", ..self.0.planned.rules() }.supports_exactly(filter)
    }

    #[cfg(feature = "workers")]
    fn shared(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        shared_latest(&self.0, state, projection, filters)
    }

    fn rows(&self, state: &dyn Session, projection: Option<&Vec<usize>>, filters: &[Expr]) -> Result<LatestRows> {
        Ok(LatestRows(Arc::new(self.0.spec(state, projection, filters)?)))
    }
}

#[derive(Debug)]
struct LatestRows(Arc<ScanSpec>);

impl fmt::Display for LatestRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Rows for LatestRows {
    const LEAF: &'static str = "LatestExec";
    const EMISSION: EmissionType = EmissionType::Final;

    fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    fn read(&self, _part: usize, _metrics: &ExecutionPlanMetricsSet) -> Result<Batches> {
        let spec = Arc::clone(&self.0);
        Ok(Box::new(std::iter::once_with(move || {
            conform(&spec.snapshot.last_points(&spec.request).map_err(external)?, &spec.schema)
        })))
    }
}
