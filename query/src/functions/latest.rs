//! `latest('collection')`: the last measurement of each meta, which the engine finds using its bucket directories; and
//! `latest_archived('collection')`, the last one of those that have expired.

use super::archived::with_archive;
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
use datafusion::common::{Result, plan_err};
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

/// The table function for what has expired.
#[derive(Debug)]
pub(super) struct LatestArchived;

impl TableFunctionImpl for LatestArchived {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let snapshot = only_collection(&args, "latest_archived")?;
        let Some(archived) = with_archive(&snapshot)?.archived_collection().map_err(external)? else {
            return plan_err!(
                "latest_archived('{}') cannot be answered, since an earlier build of Ebbtide wrote some files of the archive, or \
                 the archive has a field of another type than the collection: use SELECT DISTINCT ON over archived('{0}')",
                snapshot.name()
            );
        };
        Ok(Arc::new(CallTable(LatestCall(CollectionTable::new(&archived, None)))))
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
        // Workers read archives row by row.
        if self.0.planned.is_archived() { Ok(None) } else { shared_latest(&self.0, state, projection, filters) }
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

    fn read(&self, _part: usize, metrics: &ExecutionPlanMetricsSet) -> Result<Batches> {
        let (spec, metrics) = (Arc::clone(&self.0), metrics.clone());
        Ok(Box::new(std::iter::once_with(move || {
            let last = spec.snapshot.last_points(&spec.request).map_err(external)?;
            spec.count_fetched(&metrics);
            conform(&last, &spec.schema)
        })))
    }
}
