//! Takes projections out of filters before DataFusion pushes projections down for the second time.
//!
//! Its first pass puts a projection into a filter; the second one then takes columns of the projection for columns below
//! it, and the filter tests another column (DataFusion 55.2, `FilterExec::try_swapping_with_projection`). As a node of its own the
//! projection is merged with the one above, and put into the filter again.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use std::sync::Arc;

/// The rule.
#[derive(Debug)]
pub(crate) struct SplitFilters;

impl SplitFilters {
    /// Adds the rule before each but the first of those that push projections down.
    pub(crate) fn add_to(rules: &mut Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>) {
        let pushes = |rule: &Arc<dyn PhysicalOptimizerRule + Send + Sync>| rule.name() == "ProjectionPushdown";
        let first = rules.iter().position(pushes).map_or(rules.len(), |at| at + 1);
        let later: Vec<usize> = (first..rules.len()).filter(|at| pushes(&rules[*at])).collect();
        later.into_iter().rev().for_each(|at| rules.insert(at, Arc::new(SplitFilters)));
    }
}

impl PhysicalOptimizerRule for SplitFilters {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let split = plan.transform_up(|node| {
            let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
            let Some(projection) = filter.projection() else { return Ok(Transformed::no(node)) };
            let schema = filter.input().schema();
            let column = |at: &usize| {
                let name = schema.field(*at).name();
                let expr = Arc::new(Column::new(name, *at)) as Arc<dyn PhysicalExpr>;
                ProjectionExpr { expr, alias: name.clone() }
            };
            let columns: Vec<ProjectionExpr> = projection.iter().map(column).collect();
            let whole = Arc::new(FilterExecBuilder::from(filter).apply_projection(None)?.build()?);
            Ok(Transformed::yes(Arc::new(ProjectionExec::try_new(columns, whole)?) as Arc<dyn ExecutionPlan>))
        });
        split.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "split_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
