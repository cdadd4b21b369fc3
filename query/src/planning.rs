//! Turns a logical plan into a physical one.
//!
//! Most of the time of a statement over a few thousand rows is planning. So a plan that filters, groups and sorts one
//! table goes once through those of DataFusion's rules that can apply to it. Then its scan is made, unless the engine
//! answers without one, and the number of rows to read decides whether the plan runs on one thread or on all:
//! distributing few rows over threads would take longer than reading them.

use crate::engine_aggregate::AnswerAggregates;
use crate::functions::{Planner, register_rewrites};
use crate::options::fast_paths;
use crate::provider::CollectionTable;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::Optimizer;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Up to this many rows are read by one thread.
const ROWS_OF_ONE_THREAD: u64 = 1 << 15;

/// Rules about joins, unions, subqueries and DISTINCT, none of which occurs in a plain plan; and two that move the
/// access to members of objects closer to the scan, which reads whole columns anyway.
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
    /// Plans for one thread, with the optimizer rules for plain plans and no physical ones. It has no functions: they
    /// are only looked up by name while text is parsed.
    plain: SessionState,
}

/// A physical plan, and the context to run it in.
pub(crate) type ExecutablePlan = (Arc<dyn ExecutionPlan>, Arc<TaskContext>);

impl Planning {
    pub(crate) fn new(runtime: Arc<RuntimeEnv>) -> Result<Self> {
        let mut rules = Optimizer::new().rules;
        rules.retain(|rule| !NOT_FOR_PLAIN_PLANS.contains(&rule.name()));
        rules.push(Arc::new(AnswerAggregates { in_order: true }));
        let mut plain = SessionStateBuilder::new()
            .with_runtime_env(runtime)
            .with_query_planner(Arc::new(Planner))
            .with_optimizer_rules(rules)
            .with_physical_optimizer_rules(Vec::new())
            .build();
        register_rewrites(&mut plain)?;
        Ok(Planning { plain })
    }

    /// The physical plan for a logical one. The plan may be an EXPLAIN, which shows what would run.
    pub(crate) async fn plan(&self, plan: LogicalPlan, state: SessionState) -> Result<ExecutablePlan> {
        let (plan, state) = match fast_paths(state.config_options()) && is_plain(&plan)? {
            true => self.optimize_plain(&plan, state)?,
            false => (state.optimize(&plan)?, state),
        };
        let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
        Ok((physical, state.task_ctx()))
    }

    /// Optimizes a plain plan, and chooses the state for its physical planning.
    fn optimize_plain(&self, plan: &LogicalPlan, mut state: SessionState) -> Result<(LogicalPlan, SessionState)> {
        let mut plain = self.plain.clone();
        *plain.config_mut() = state.config().clone();
        *plain.execution_props_mut() = state.execution_props().clone();
        let options = plain.config_mut().options_mut();
        options.optimizer.max_passes = 1;
        options.execution.target_partitions = 1;
        let (plan, rows) = with_scans(plain.optimize(plan)?, &plain)?;
        let one_thread = rows.is_some_and(|rows| rows <= ROWS_OF_ONE_THREAD);
        if one_thread && !aggregates(&plan)? {
            return Ok((plan, plain));
        }
        if one_thread {
            state.config_mut().options_mut().execution.target_partitions = 1;
        }
        Ok((plan, state))
    }
}

/// Replaces collections by scans, and returns how many rows they read; `None` if there are other tables.
fn with_scans(plan: LogicalPlan, state: &SessionState) -> Result<(LogicalPlan, Option<u64>)> {
    let mut rows = Some(0_u64);
    let plan = plan.transform_up(|plan| {
        let LogicalPlan::TableScan(mut scan) = plan else { return Ok(Transformed::no(plan)) };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<CollectionTable>() else {
            rows = None;
            return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
        };
        let made = table.make_scan(state, scan.projection.as_ref(), &scan.filters)?;
        rows = rows.map(|rows| rows.saturating_add(made.rows_estimate()));
        scan.source = provider_as_source(Arc::new(made));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok((plan.data, rows))
}

/// Whether rows are grouped: an aggregate may need an order of rows, which DataFusion's physical rules establish.
fn aggregates(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_))))
}

/// Whether a plan reads one table, without subqueries and windows.
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
                | LogicalPlan::Explain(_)
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
