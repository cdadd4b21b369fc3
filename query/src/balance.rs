//! Keeps filters with many conditions shallow.
//!
//! DataFusion joins the conditions of a filter into a chain of ANDs as deep as there are conditions, and evaluates it
//! recursively: a long chain would overflow the stack. A balanced tree has the same value.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use std::sync::Arc;

/// Filters with up to this many conditions are left unchanged.
const FEW: usize = 16;

/// Replaces every long chain of ANDs in a filter of the plan by a balanced tree.
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

/// The balanced conjunction of the terms. There must be at least one.
fn conjunction(terms: &[Arc<dyn PhysicalExpr>]) -> Arc<dyn PhysicalExpr> {
    match terms {
        [one] => Arc::clone(one),
        _ => {
            let (left, right) = terms.split_at(terms.len() / 2);
            Arc::new(BinaryExpr::new(conjunction(left), Operator::And, conjunction(right)))
        }
    }
}
