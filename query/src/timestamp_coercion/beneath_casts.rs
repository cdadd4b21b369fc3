//! Comparisons of times beneath casts.

use super::{Rewriter, has_work, input_schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Removes casts to finer units from compared columns after filters have been pushed below them, before DataFusion
/// does: DataFusion truncates the constant to the coarser unit.
#[derive(Debug)]
pub(crate) struct BeneathCasts;

impl OptimizerRule for BeneathCasts {
    fn name(&self) -> &'static str {
        "exact_instants_beneath_casts"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !has_work(&plan)? {
            return Ok(Transformed::no(plan));
        }
        let rewriter = Rewriter { schema: input_schema(&plan)?, now: None, config: config.options() };
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = expr.transform_up(|expr| {
                if rewriter.compares_beneath_cast(&expr) { rewriter.node(expr) } else { Ok(Transformed::no(expr)) }
            })?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })
    }
}
