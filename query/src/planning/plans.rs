//! What planning has in common, here and for workers.

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// A physical plan, and the context to run it in.
pub(crate) type ExecutablePlan = (Arc<dyn ExecutionPlan>, Arc<TaskContext>);

/// Whether DataFusion's aggregates that keep only the first groups would be wrong: they fail on NaN and tell -0.0 from 0.0, and
/// they leave out groups that a window between them and the limit counts (DataFusion's issue 25066).
pub(crate) fn needs_all_groups(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        let aggregate = match node {
            LogicalPlan::Aggregate(aggregate) => aggregate,
            node => return Ok(matches!(node, LogicalPlan::Window(_))),
        };
        let is_double = |key: &Expr| key.get_type(aggregate.input.schema()).is_ok_and(|kind| kind.is_floating());
        Ok(aggregate.group_expr.iter().any(is_double))
    })
}
