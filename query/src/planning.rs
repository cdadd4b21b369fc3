//! Planning short statements in a short time.
//!
//! Most of what a statement about a few thousand rows takes is its planning. So a plan that filters, groups and sorts one
//! table goes once through those of DataFusion's rules that can matter to it, and if few rows are to be read it is made for
//! one thread: dealing them out to others would take longer than reading them.

use crate::bucket_aggregate;
use crate::exec::BucketScanExec;
use crate::lean::Lean;
use crate::options::fast_paths;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerContext};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// So many rows are read by one thread.
const ROWS_OF_ONE_THREAD: usize = 1 << 15;

/// Rules about joins, unions, subqueries and DISTINCT, none of which is in a plain plan; and two that bring members of
/// objects nearer to the scan, which reads whole columns. Without these, groups by a member of the meta are seen as such.
const NOT_FOR_PLAIN_PLANS: [&str; 14] = [
    "rewrite_set_comparison",
    "optimize_unions",
    "unions_to_filter",
    "replace_distinct_aggregate",
    "eliminate_join",
    "decorrelate_predicate_subquery",
    "scalar_subquery_to_join",
    "decorrelate_lateral_join",
    "extract_equijoin_predicate",
    "eliminate_cross_join",
    "filter_null_join_keys",
    "eliminate_outer_join",
    "extract_leaf_expressions",
    "push_down_leaf_projections",
];

/// Makes physical plans.
#[derive(Debug)]
pub(crate) struct Planning {
    /// The rules for plain plans.
    plain: Optimizer,
}

/// A physical plan, and what it is run with.
pub(crate) type Planned = (Arc<dyn ExecutionPlan>, Arc<TaskContext>);

impl Planning {
    pub(crate) fn new() -> Self {
        let mut rules = Optimizer::new().rules;
        rules.retain(|rule| !NOT_FOR_PLAIN_PLANS.contains(&rule.name()));
        Planning { plain: Optimizer::with_rules(rules) }
    }

    /// The physical plan of a logical one. `again` is called before scans are planned for a second time.
    pub(crate) async fn plan(&self, plan: LogicalPlan, state: SessionState, again: impl FnOnce()) -> Result<Planned> {
        // EXPLAIN shows what would be run.
        let (described, explained) = match &plan {
            LogicalPlan::Explain(explain) => (explain.plan.as_ref(), true),
            plan => (plan, false),
        };
        if !fast_paths(state.config_options()) || !is_plain(described)? {
            let context = state.task_ctx();
            return Ok((state.create_physical_plan(&plan).await?, context));
        }
        let optimized = bucket_aggregate::answer(self.optimize(described.clone(), &state)?)?;
        // A plain plan has one leaf: what is answered has no scan left.
        let (answered, optimized) = (optimized.transformed, bucket_aggregate::order(optimized.data)?);
        let planner = Arc::clone(state.query_planner());
        let state = Arc::new(state);
        if answered || !aggregates(&optimized)? {
            let lean = Lean::new(Arc::clone(&state));
            let serial = planner.create_physical_plan(&optimized, &lean).await?;
            if answered || reads_little(&serial) {
                if explained && let LogicalPlan::Explain(mut explain) = state.optimize(&plan)? {
                    explain.plan = Arc::new(optimized);
                    let explained = planner.create_physical_plan(&LogicalPlan::Explain(explain), &lean).await?;
                    return Ok((explained, lean.task_ctx()));
                }
                return Ok((serial, lean.task_ctx()));
            }
            again();
            let plan = if explained { &state.optimize(&plan)? } else { &optimized };
            return Ok((planner.create_physical_plan(plan, state.as_ref()).await?, state.task_ctx()));
        }
        let state = Arc::unwrap_or_clone(state);
        let mut one_thread = state.clone();
        one_thread.config_mut().options_mut().execution.target_partitions = 1;
        let serial = planner.create_physical_plan(&optimized, &one_thread).await?;
        let chosen = if reads_little(&serial) { one_thread } else { state };
        let context = chosen.task_ctx();
        if explained {
            return Ok((chosen.create_physical_plan(&plan).await?, context));
        }
        if chosen.config().target_partitions() == 1 {
            return Ok((serial, context));
        }
        again();
        Ok((planner.create_physical_plan(&optimized, &chosen).await?, context))
    }

    fn optimize(&self, plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
        let plan = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?;
        let mut context = OptimizerContext::new_with_config_options(Arc::clone(state.config_options()));
        if let Some(now) = state.query_execution_start_time() {
            context = context.with_query_execution_start_time(now);
        }
        self.plain.optimize(plan, &context.with_max_passes(1), |_, _| {})
    }
}

/// Whether rows are grouped: DataFusion's rules see to the order of rows that an aggregate may want.
fn aggregates(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_))))
}

/// Whether a plan is about one table, without subqueries and windows.
fn is_plain(plan: &LogicalPlan) -> Result<bool> {
    let mut plain = true;
    plan.apply(|node| {
        plain = matches!(
            node,
            LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::TableScan(_)
                | LogicalPlan::Analyze(_)
        );
        node.apply_expressions(|expr| {
            plain &= !expr.exists(|e| {
                Ok(matches!(
                    e,
                    Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)
                ))
            })?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(plain)
}

/// Whether all rows of a plan are of collections, and few.
fn reads_little(plan: &Arc<dyn ExecutionPlan>) -> bool {
    fn rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
        match plan.downcast_ref::<BucketScanExec>() {
            Some(scan) => Some(scan.rows_estimate()),
            None if plan.children().is_empty() && plan.name() != "DirectoryAggregateExec" => None,
            None => plan.children().into_iter().map(rows).try_fold(0, |sum: usize, n| Some(sum.saturating_add(n?))),
        }
    }
    rows(plan).is_some_and(|rows| rows <= ROWS_OF_ONE_THREAD)
}
