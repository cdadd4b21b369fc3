//! Filters of many conditions, kept shallow.
//!
//! DataFusion joins the conditions of a filter by AND into a chain as deep as it is long, and evaluates it recursively: a long
//! one would end the thread. A balanced tree has the same value.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use std::sync::Arc;

/// Conditions that stay as they are.
const FEW: usize = 16;

/// The same plan, in which no filter is a long chain of AND.
pub(crate) fn balance_filters(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let balanced = plan.transform_up(|node| {
        let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
        let terms = split_conjunction(filter.predicate());
        if terms.len() <= FEW {
            return Ok(Transformed::no(node));
        }
        let predicate = conjunction(&terms.into_iter().map(Arc::clone).collect::<Vec<_>>());
        let filter = FilterExecBuilder::from(filter).with_predicate(predicate).build()?;
        Ok(Transformed::yes(Arc::new(filter) as Arc<dyn ExecutionPlan>))
    });
    balanced.map(|plan| plan.data)
}

/// All of these, of which there is at least one.
fn conjunction(terms: &[Arc<dyn PhysicalExpr>]) -> Arc<dyn PhysicalExpr> {
    match terms {
        [one] => Arc::clone(one),
        _ => {
            let (left, right) = terms.split_at(terms.len() / 2);
            Arc::new(BinaryExpr::new(conjunction(left), Operator::And, conjunction(right)))
        }
    }
}
