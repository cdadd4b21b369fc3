//! Subqueries of `IN` and `EXISTS`, but those below `OR`, return each value once.
//!
//! DataFusion's hash join compares each row of one side with all rows of the other that have its key, also where one would do. With
//! values that repeat on both sides, time grows with the product of their numbers.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::collections::HashSet;
use std::sync::Arc;

/// Groups the subqueries by what they are compared by.
#[derive(Debug)]
pub(crate) struct DistinctSubqueries;

impl OptimizerRule for DistinctSubqueries {
    fn name(&self) -> &'static str {
        "distinct_subqueries"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else { return Ok(Transformed::no(plan)) };
        let only_exists = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti) && join.filter.is_none();
        let keys: Vec<Expr> = join.on.iter().map(|(_, key)| key.clone()).collect();
        let are_columns = keys.iter().all(|key| matches!(key, Expr::Column(_)));
        let differ = keys.iter().collect::<HashSet<_>>().len() == keys.len();
        if keys.is_empty() || !only_exists || !are_columns || !differ || is_distinct(&join.right) {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let right = LogicalPlanBuilder::from(Arc::unwrap_or_clone(join.right));
        join.right = Arc::new(right.aggregate(keys, Vec::<Expr>::new())?.build()?);
        Ok(Transformed::yes(LogicalPlan::Join(join)))
    }
}

/// Whether a plan returns groups, distinct rows, or no rows.
fn is_distinct(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(Distinct::All(_)) | LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Extension(extension) => extension.node.name() == "EngineAggregate",
        LogicalPlan::SubqueryAlias(alias) => is_distinct(&alias.input),
        LogicalPlan::Projection(projection) => is_distinct(&projection.input),
        LogicalPlan::Filter(filter) => is_distinct(&filter.input),
        _ => false,
    }
}
