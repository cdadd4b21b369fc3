//! Collections of several databases as one table, for databases that each have some of the series.
//!
//! A statement has a context for each database, all with the same instant. The table of a name is the union of the tables that the
//! databases have under this name, by the names of their columns: DataFusion pushes filters and projections into each of them, and
//! gives columns of different types a common one.

use crate::at_once::scan_at_once;
use crate::context::StatementContext;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableProviderFilterPushDown, TableType, Union};
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use std::sync::Arc;

/// The tables that the databases have under a name, as one: each with the number of its database.
pub(crate) fn together(name: &str, tables: Vec<(usize, Arc<dyn TableProvider>)>) -> Result<Arc<dyn TableProvider>> {
    let scan = |(number, table)| {
        let table = Arc::new(TableOfOne { number, table });
        LogicalPlanBuilder::scan(name, provider_as_source(table), None)?.build().map(Arc::new)
    };
    let mut scans = tables.into_iter().map(scan).collect::<Result<Vec<_>>>()?;
    let all = match scans.len() {
        1 => Arc::unwrap_or_clone(scans.remove(0)),
        _ => LogicalPlan::Union(Union::try_new_by_name(scans)?),
    };
    Ok(Arc::new(ViewTable::new(all, None)))
}

/// The table of one of the databases. It is planned in the context of that database.
#[derive(Debug)]
struct TableOfOne {
    number: usize,
    table: Arc<dyn TableProvider>,
}

impl TableOfOne {
    fn plan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let context = StatementContext::of(state.config())?;
        let state = state_for(state, context.of_database(self.number)?)?;
        let planned = self.table.scan(&state, projection, filters, limit).now_or_never();
        planned.ok_or_else(|| internal_datafusion_err!("the scan of a table was not planned at once"))?
    }
}

impl TableProvider for TableOfOne {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }

    scan_at_once!(plan);
}

/// A state that plans for one of the databases.
pub(crate) fn state_for(state: &dyn Session, context: Arc<StatementContext>) -> Result<SessionState> {
    let state = state.as_any().downcast_ref::<SessionState>();
    let mut state = state.ok_or_else(|| internal_datafusion_err!("a table is planned outside a session"))?.clone();
    state.config_mut().set_extension(context);
    Ok(state)
}
