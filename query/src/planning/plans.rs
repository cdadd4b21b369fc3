//! What planning has in common, here and for workers.

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// A physical plan, and the context to run it in.
pub(crate) type ExecutablePlan = (Arc<dyn ExecutionPlan>, Arc<TaskContext>);

/// Whether rows are grouped by a double. DataFusion's aggregates that keep only the first groups fail on NaN, and tell -0.0 from
/// 0.0.
pub(crate) fn groups_by_doubles(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        let LogicalPlan::Aggregate(aggregate) = node else { return Ok(false) };
        let is_double = |key: &Expr| key.get_type(aggregate.input.schema()).is_ok_and(|kind| kind.is_floating());
        Ok(aggregate.group_expr.iter().any(is_double))
    })
}
