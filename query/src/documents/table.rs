//! An ordinary collection as a DataFusion table. It keeps names and types, never data: each scan reads the snapshot of its
//! statement.

use super::cells::PlannedDocuments;
use super::lookup::{filter_of, of_condition};
use super::scan::DocumentsScanExec;
use crate::at_once::{change_at_once, scan_at_once};
use crate::context::StatementContext;
use crate::dml::delete_sink::DeleteSink;
use crate::error::external;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use ebbtide::DocumentsSnapshot;
use std::sync::Arc;

/// An ordinary collection.
#[derive(Debug)]
pub(crate) struct DocumentsTable {
    pub(crate) planned: PlannedDocuments,
}

impl DocumentsTable {
    pub(crate) fn new(snapshot: &DocumentsSnapshot) -> Self {
        DocumentsTable { planned: PlannedDocuments::new(snapshot) }
    }

    fn plan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let context = StatementContext::of(state.config())?;
        let snapshot = context.snapshot().documents(&self.planned.name).map_err(external)?;
        let filter = filter_of(filters, &self.planned);
        // A filter that is applied again may leave fewer rows.
        let limit = limit.filter(|_| filters.is_empty());
        Ok(Arc::new(DocumentsScanExec::new(snapshot, self.planned.clone(), projection, filter, limit)?))
    }
}

#[async_trait]
impl TableProvider for DocumentsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.planned.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let supports = |filter: &&Expr| match of_condition(filter, &self.planned) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(supports).collect())
    }

    scan_at_once!(plan);

    async fn insert_into(
        &self,
        _state: &dyn Session,
        _input: Arc<dyn ExecutionPlan>,
        _op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        not_impl_err!(
            "this form of INSERT into a collection; write INSERT INTO {} (...) VALUES ... or SELECT ...",
            self.planned.name
        )
    }

    change_at_once!("EXPLAIN and PREPARE of UPDATE; run the UPDATE by itself");

    async fn truncate(&self, _state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        not_impl_err!("TRUNCATE: DELETE FROM {} removes every document", self.planned.name)
    }
}
