//! The condition that a join has for the metas of a scan.

use crate::pushdown::MetaPredicate;
use crate::scan_spec::ScanSpec;
use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::compute::and;
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema};
use datafusion::arrow::error::ArrowError;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use ebbtide::ttl::Value;
use ebbtide::{MetaFilter, ScanReport, ScanRequest, ScanUnit};
use std::sync::Arc;

/// Whether an expression refers only to this field, a meta, and gives the same result each time.
pub(crate) fn is_of_meta(expr: &Arc<dyn PhysicalExpr>, meta: &Field) -> bool {
    let columns = collect_columns(expr);
    !columns.is_empty() && columns.iter().all(|column| column.name() == meta.name()) && !is_volatile(expr)
}

/// True for the metas of rows that can have a match; for all while the join has not read its other side.
#[derive(Debug)]
pub(crate) struct JoinFilter {
    condition: Arc<dyn PhysicalExpr>,
    meta: Field,
}

impl JoinFilter {
    /// The filter of a join by a key that is computed from this field, which is a meta, alone; `None` if it needs other columns,
    /// or is not the same each time.
    pub(crate) fn new(
        meta: &Field,
        key: Arc<dyn PhysicalExpr>,
        filter: &Arc<DynamicFilterPhysicalExpr>,
    ) -> Result<Option<JoinFilter>> {
        if !is_of_meta(&key, meta) {
            return Ok(None);
        }
        let only = |part: Arc<dyn PhysicalExpr>| {
            Ok(match part.is::<Column>() {
                true => Transformed::yes(Arc::new(Column::new(meta.name(), 0)) as Arc<dyn PhysicalExpr>),
                false => Transformed::no(part),
            })
        };
        let key = key.transform_up(only)?.data;
        let condition = (Arc::clone(filter) as Arc<dyn PhysicalExpr>).with_new_children(vec![key])?;
        Ok(Some(JoinFilter { condition, meta: meta.clone() }))
    }

    pub(crate) fn condition(&self) -> &Arc<dyn PhysicalExpr> {
        &self.condition
    }

    /// The metas that are needed of those that pass `first`.
    pub(crate) fn metas(&self, first: Option<&Arc<dyn MetaFilter>>) -> Arc<dyn MetaFilter> {
        let schema = Arc::new(ArrowSchema::new(vec![self.meta.clone()]));
        let joined = MetaPredicate::of_join(Arc::clone(&self.condition), schema);
        match first {
            Some(first) => Arc::new(Both { first: Arc::clone(first), joined }),
            None => Arc::new(joined),
        }
    }

    /// What a scan has to read: everything if the condition fails, so that the join says what is wrong.
    pub(crate) fn select(&self, spec: &ScanSpec) -> ebbtide::Result<(Vec<ScanUnit>, ScanReport)> {
        let meta = self.metas(spec.request.meta.as_ref());
        let joined = spec.snapshot.scan_reported(&ScanRequest { meta: Some(meta), ..spec.request.clone() });
        joined.or_else(|_| spec.snapshot.scan_reported(&spec.request))
    }
}

/// Metas that pass a statement's condition and a join's.
#[derive(Debug)]
struct Both {
    first: Arc<dyn MetaFilter>,
    joined: MetaPredicate,
}

impl MetaFilter for Both {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        and(&self.first.select(metas)?, &self.joined.select(metas)?)
    }

    fn candidates(&self) -> &[(Vec<String>, Vec<Value>)] {
        self.first.candidates()
    }
}
