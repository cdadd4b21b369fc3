//! Turns a logical plan into a physical one.
//!
//! Most of the time of a statement over a few thousand rows is planning. So a plan that filters, groups and sorts one
//! table goes once through those of DataFusion's rules that can apply to it. Then its scan is made, unless the engine
//! answers without one, and the number of rows to read decides whether the plan runs on one thread or on all:
//! distributing few rows over threads would take longer than reading them.

pub(crate) mod plans;
mod subqueries;

use crate::catalog;
use crate::context::StatementContext;
use crate::engine_aggregate::{AnswerAggregates, aggregate_early, aggregated_scan};
use crate::functions::{EdgesByKeys, IntervalKeys, Planner, computes_at_once, may_be_rewritten, register_rewrites};
use crate::options::fast_paths;
use crate::provider::CollectionTable;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::context::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{Analyzer, Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::prelude::SessionConfig;
use plans::{ExecutablePlan, needs_all_groups};
use std::sync::Arc;

/// Up to this many rows are read by one thread.
pub(crate) const ROWS_OF_ONE_THREAD: u64 = 1 << 15;
/// A plan that reads little reads at most this many rows, and has at most this many buckets to choose from.
const ROWS_OF_LITTLE: u64 = 1 << 13;
const BUCKETS_OF_LITTLE: u64 = 1 << 14;

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
    /// The analyzer for plain plans without arithmetic.
    analyzer: Analyzer,
    /// The rules for plain plans that do not depend on what is stored; and those for the plans that these give.
    ahead: Optimizer,
    answers: Optimizer,
}

impl Planning {
    pub(crate) fn new(runtime: Arc<RuntimeEnv>) -> Result<Self> {
        let mut rules = Optimizer::new().rules;
        rules.retain(|rule| !NOT_FOR_PLAIN_PLANS.contains(&rule.name()));
        for rule in rules.iter_mut().filter(|rule| rule.name() == "eliminate_duplicated_expr") {
            *rule = Arc::new(EliminateRepeated(Arc::clone(rule)));
        }
        let ahead = Optimizer::with_rules(rules.clone());
        let answers: [Arc<dyn OptimizerRule + Send + Sync>; 3] =
            [Arc::new(AnswerAggregates { in_order: true }), Arc::new(EdgesByKeys), Arc::new(IntervalKeys)];
        rules.extend(answers.iter().cloned());
        let answers = Optimizer::with_rules(answers.to_vec());
        let mut plain = SessionStateBuilder::new()
            .with_runtime_env(runtime)
            .with_query_planner(Arc::new(Planner::new()))
            .with_optimizer_rules(rules)
            .with_physical_optimizer_rules(Vec::new())
            .build();
        let analyzer = Analyzer::with_rules(plain.analyzer().rules.clone());
        register_rewrites(&mut plain)?;
        Ok(Planning { plain, analyzer, ahead, answers })
    }

    /// The physical plan for a logical one. The plan may be an EXPLAIN, which shows what would run. The session's
    /// `state` is only made for a plan that is not plain, or groups rows.
    pub(crate) async fn plan(
        &self,
        plan: LogicalPlan,
        context: &StatementContext,
        config: &SessionConfig,
        state: impl FnOnce() -> SessionState + Send,
    ) -> Result<ExecutablePlan> {
        subqueries::check(&plan)?;
        #[cfg(feature = "workers")]
        if let Some(workers) = context.workers() {
            return crate::workers::plan(workers, plan, context, state()).await;
        }
        let shape = if fast_paths(config.options()) { Shape::of(&plan)? } else { Shape::Other };
        let (plan, state) = match shape {
            Shape::Plain { computes } => {
                let plain = self.plain_state(context, config);
                let plan = match computes || matches!(plan, LogicalPlan::Explain(_)) {
                    true => plain.optimize(&plan)?,
                    false => self.optimize(plan, &self.analyzer, plain.optimizer(), &plain)?,
                };
                let (plan, rows) = with_scans(aggregate_early(plan, &plain)?, &plain)?;
                with_state(plan, rows, plain, state)?
            }
            Shape::Other => {
                let state = state();
                (aggregate_early(state.optimize(&plan)?, &state)?, state)
            }
        };
        physical_plan(&plan, state).await
    }

    /// A plan optimized by the rules that do not depend on what is stored; `None` unless it is plain.
    pub(crate) fn optimized(
        &self,
        plan: LogicalPlan,
        context: &StatementContext,
        config: &SessionConfig,
    ) -> Result<Option<LogicalPlan>> {
        let Shape::Plain { computes } = Shape::of(&plan)? else { return Ok(None) };
        let plain = self.plain_state(context, config);
        let analyzer = if computes { plain.analyzer() } else { &self.analyzer };
        self.optimize(plan, analyzer, &self.ahead, &plain).map(Some)
    }

    /// A plan whose columns have their final types.
    pub(crate) fn analyzed(
        &self,
        plan: LogicalPlan,
        context: &StatementContext,
        config: &SessionConfig,
    ) -> Result<LogicalPlan> {
        let plain = self.plain_state(context, config);
        plain.analyzer().execute_and_check(plan, plain.config_options(), |_, _| {})
    }

    /// The physical plan for an [`optimized`](Self::optimized) one; `None` if it reads more than `at_most`.
    pub(crate) async fn plan_optimized(
        &self,
        plan: LogicalPlan,
        (context, config): (&StatementContext, &SessionConfig),
        state: impl FnOnce() -> SessionState + Send,
        at_most: ReadsAtMost,
    ) -> Result<Option<ExecutablePlan>> {
        if at_most == ReadsAtMost::Little && !has_few_buckets(&plan, context)? {
            return Ok(None);
        }
        let plain = self.plain_state(context, config);
        let plan = aggregate_early(self.answers.optimize(plan, &plain, |_, _| {})?, &plain)?;
        let of_aggregates = match at_most {
            ReadsAtMost::Little => rows_of_aggregates(&plan, &plain)?,
            ReadsAtMost::Everything => 0,
        };
        let (plan, rows) = with_scans(plan, &plain)?;
        let is_little = rows.is_some_and(|rows| rows.saturating_add(of_aggregates) <= ROWS_OF_LITTLE);
        if at_most == ReadsAtMost::Little && !is_little {
            return Ok(None);
        }
        let (plan, state) = with_state(plan, rows, plain, state)?;
        physical_plan(&plan, state).await.map(Some)
    }

    fn optimize(
        &self,
        plan: LogicalPlan,
        analyzer: &Analyzer,
        optimizer: &Optimizer,
        plain: &SessionState,
    ) -> Result<LogicalPlan> {
        let analyzed = analyzer.execute_and_check(plan, plain.config_options(), |_, _| {})?;
        optimizer.optimize(analyzed, plain, |_, _| {})
    }

    /// A state with this configuration that knows no functions by name. Copying those of the session takes as long as
    /// planning a short query.
    pub(crate) fn without_functions(&self, context: &StatementContext, config: &SessionConfig) -> SessionState {
        let mut state = self.plain.clone();
        *state.config_mut() = config.clone();
        catalog::start(&mut state, context);
        state
    }

    /// The state for plain plans.
    fn plain_state(&self, context: &StatementContext, config: &SessionConfig) -> SessionState {
        let mut plain = self.without_functions(context, config);
        let options = plain.config_mut().options_mut();
        options.optimizer.max_passes = 1;
        options.execution.target_partitions = 1;
        plain
    }
}

/// What a plan may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadsAtMost {
    Everything,
    /// Few rows of few buckets.
    Little,
}

/// Whether the collections of a plan have few buckets.
fn has_few_buckets(plan: &LogicalPlan, context: &StatementContext) -> Result<bool> {
    let mut buckets = 0_u64;
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            // Reading little of an archive takes long too, if it has to be fetched.
            let table = provider.downcast_ref::<CollectionTable>().filter(|table| !table.planned.is_archived());
            let snapshot = table.map(|table| table.planned.in_snapshot(context.snapshot())).transpose()?;
            let of_segments = snapshot.map(|snapshot| snapshot.segments().iter().map(|one| one.buckets).sum());
            buckets = buckets.saturating_add(of_segments.unwrap_or(u64::MAX));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(buckets <= BUCKETS_OF_LITTLE)
}

/// Number of rows that the engine would read for the aggregates of a plan, or less if it knows them.
fn rows_of_aggregates(plan: &LogicalPlan, state: &SessionState) -> Result<u64> {
    let mut rows = 0_u64;
    plan.apply(|node| {
        if let LogicalPlan::Extension(extension) = node
            && let Some(scan) = aggregated_scan(extension.node.as_ref())
        {
            let provider = source_as_provider(&scan.source)?;
            let table = provider.downcast_ref::<CollectionTable>();
            let scan =
                table.map(|table| table.make_scan(state, scan.projection.as_ref(), &scan.filters)).transpose()?;
            rows = rows.saturating_add(scan.map_or(u64::MAX, |scan| scan.rows_estimate()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(rows)
}

/// An optimized plain plan whose scans read this number of rows, and the state for its physical planning: `plain` if one
/// thread reads them.
fn with_state(
    plan: LogicalPlan,
    rows: Option<u64>,
    plain: SessionState,
    state: impl FnOnce() -> SessionState,
) -> Result<(LogicalPlan, SessionState)> {
    let one_thread = match rows {
        Some(rows) => rows <= ROWS_OF_ONE_THREAD,
        None => passes_on_one_part(&plan)?,
    };
    if one_thread && !aggregates(&plan)? {
        return Ok((plan, plain));
    }
    let mut state = state();
    if one_thread {
        state.config_mut().options_mut().execution.target_partitions = 1;
    }
    Ok((plan, state))
}

async fn physical_plan(plan: &LogicalPlan, mut state: SessionState) -> Result<ExecutablePlan> {
    if needs_all_groups(plan)? {
        let options = &mut state.config_mut().options_mut().optimizer;
        (options.enable_topk_aggregation, options.enable_distinct_aggregation_soft_limit) = (false, false);
    }
    let physical = state.query_planner().create_physical_plan(plan, &state).await?;
    Ok((physical, state.task_ctx()))
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

/// Whether all rows come from one function that computes them at once, and are at most filtered and projected.
fn passes_on_one_part(plan: &LogicalPlan) -> Result<bool> {
    let works = plan.exists(|node| {
        Ok(match node {
            LogicalPlan::TableScan(scan) => !computes_at_once(source_as_provider(&scan.source)?.as_ref()),
            node => !matches!(
                node,
                LogicalPlan::Projection(_)
                    | LogicalPlan::Filter(_)
                    | LogicalPlan::Limit(_)
                    | LogicalPlan::SubqueryAlias(_)
                    | LogicalPlan::Explain(_)
                    | LogicalPlan::Analyze(_)
            ),
        })
    })?;
    Ok(!works)
}

/// Whether rows are grouped: an aggregate may need an order of rows, which DataFusion's physical rules establish.
fn aggregates(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_))))
}

/// Whether a plan, which has not been analyzed, reads one table, without subqueries and windows.
pub(crate) fn is_plain(plan: &LogicalPlan) -> Result<bool> {
    Ok(matches!(Shape::of(plan)?, Shape::Plain { .. }))
}

/// What a plan consists of.
enum Shape {
    /// One table, without subqueries and windows; and whether it has expressions that are rewritten to be exact.
    Plain { computes: bool },
    /// Anything else.
    Other,
}

impl Shape {
    fn of(plan: &LogicalPlan) -> Result<Shape> {
        let (mut plain, mut computes) = (true, false);
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
                computes = computes || may_be_rewritten(expr)?;
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(if plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })?;
        Ok(if plain { Shape::Plain { computes } } else { Shape::Other })
    }
}

/// DataFusion's rule against repeated expressions, for nodes with more than one: it makes every aggregate anew.
#[derive(Debug)]
struct EliminateRepeated(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for EliminateRepeated {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let several = match &plan {
            LogicalPlan::Sort(sort) => sort.expr.len() > 1,
            LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.len() > 1,
            _ => false,
        };
        if several { self.0.rewrite(plan, config) } else { Ok(Transformed::no(plan)) }
    }
}
