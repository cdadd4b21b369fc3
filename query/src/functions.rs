//! SQL functions for time series that DataFusion lacks.
//!
//! Functions are registered with the session. Two features are more than functions: gap filling and `ASOF JOIN` are
//! plan nodes, which [`rewrite`] inserts before the plan is analyzed.

mod age;
pub(crate) mod apart;
pub(crate) mod archived;
mod arguments;
mod arithmetic;
mod asof;
mod bins;
mod bounded;
mod calls;
pub(crate) mod casts;
mod counts;
mod date_bin;
mod date_diff;
mod date_trunc;
mod duration_parts;
mod durations;
mod edges;
mod expired;
mod floats;
mod gapfill;
mod interval_keys;
mod interval_lists;
pub(crate) mod intervals;
mod latest;
mod len;
mod list;
mod make_timestamp;
mod mean_intervals;
mod middles;
mod moments;
mod moving;
mod names;
mod nulls;
mod of_each;
mod pivot;
mod rollup;
mod series;
mod sliding;
mod strptime;
mod table;
mod totals;
pub(crate) mod uuids;
mod value_key;
pub(crate) mod widened;
mod window_filters;
mod window_keys;
mod zeros;

use crate::balance::balance_filters;
use crate::correlated::Correlated;
use crate::distinct_subqueries::DistinctSubqueries;
use crate::engine_aggregate::{AnswerAggregates, EngineAggregateExec};
use crate::sql::{Replaced, Unambiguous};
use crate::timestamp_coercion::BeneathCasts;
use crate::{lossy_filters, zeros_in_lists};
use chrono::{DateTime, Utc};
use datafusion::catalog::{Session, TableFunctionImpl};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::context::{QueryPlanner, SessionState};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::planner::RelationPlanner;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNode};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use datafusion::prelude::SessionContext;
use ebbtide::Snapshot;
use futures::future::{BoxFuture, FutureExt};
use of_each::OfEach;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

pub(crate) use asof::desugar;
pub(crate) use date_trunc::{DateTrunc, calendar_bins};
pub(crate) use edges::EdgesByKeys;
pub(crate) use floats::{canonical_array, double_is_wanted, without_canonical_float};
pub(crate) use interval_keys::IntervalKeys;
pub(crate) use list::{INTERNAL, rows as list};
pub(crate) use moments::{DoubleSum, Moments, Spread};
pub(crate) use names::{each_once, readable};
pub(crate) use rollup::computes_at_once;
pub(crate) use totals::{beyond as whole_sum_beyond, sum};

/// Names of the table functions.
pub const TABLE_FUNCTIONS: [&str; 5] = ["archived", "expired", "latest", "latest_archived", "rollup"];

/// Rules that move the access to members of objects closer to the scan. Here a scan reads whole columns, so they gain
/// nothing; and plans with several tables or nested groups fail after them because columns are not found or ambiguous.
const RULES_FOR_MEMBERS: [&str; 2] = ["extract_leaf_expressions", "push_down_leaf_projections"];

/// Adds what a session's plans need to its state.
pub(crate) fn with_planner(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    if let Some(config) = builder.config() {
        // `x IS NOT TRUE` is never null in a logical plan and may be in a physical one: without this, grouping by it
        // would be refused.
        config.options_mut().execution.skip_physical_aggregate_schema_check = true;
    }
    let mut rules = Optimizer::new().rules;
    rules.retain(|rule| !RULES_FOR_MEMBERS.contains(&rule.name()));
    // A filter is directly above a join only until a projection is put between them.
    let after = rules.iter().position(|r| r.name() == "push_down_filter").map_or(rules.len(), |i| i + 1);
    rules.insert(after, Arc::new(asof::PushPastAsof));
    rules.insert(0, Arc::new(BeneathCasts));
    let subqueries = rules.iter().position(|r| r.name() == "decorrelate_predicate_subquery").unwrap_or(0);
    rules.insert(subqueries, Arc::new(Correlated));
    rules.push(Arc::new(DistinctSubqueries));
    rules.push(Arc::new(AnswerAggregates { in_order: false }));
    rules.push(Arc::new(EdgesByKeys));
    rules.push(Arc::new(IntervalKeys));
    let rules = rules.into_iter().map(|rule| Arc::new(WhenRun(rule)) as Arc<_>).collect();
    let relations: Vec<Arc<dyn RelationPlanner>> = vec![Arc::new(pivot::Pivots), Arc::new(calls::Calls)];
    builder.with_query_planner(Arc::new(Planner::new())).with_optimizer_rules(rules).with_relation_planners(relations)
}

/// A rule that is applied only to statements that run. DataFusion also optimizes statements at PREPARE, when parameters have no
/// values yet; its rules for IN lists then assume that a parameter differs from every constant, and rows are lost.
#[derive(Debug)]
struct WhenRun(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for WhenRun {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match config.query_execution_start_time() {
            Some(_) => self.0.rewrite(plan, config),
            None => Ok(Transformed::no(plan)),
        }
    }
}

/// Registers the functions.
pub(crate) fn register(context: &SessionContext) -> Result<()> {
    let scalars = [
        date_bin::DateBin::udf("date_bin"),
        date_bin::DateBin::udf(date_bin::GAPFILL),
        date_bin::DateBin::udf(date_bin::TIME_BUCKET),
        date_diff::DateDiff::udf(),
        date_trunc::DateTrunc::udf(),
        date_bin::Fill::udf(date_bin::LOCF),
        date_bin::Fill::udf(date_bin::INTERPOLATE),
        asof::Mark::udf(),
        apart::Apart::udf(),
        age::Age::udf(),
        age::DateSub::udf(),
        len::Len::udf(),
        make_timestamp::MakeTimestamp::udf(),
        strptime::Strptime::udf(false),
        strptime::Strptime::udf(true),
        uuids::Uuid::udf(false),
        uuids::Uuid::udf(true),
    ];
    for function in scalars {
        context.register_udf(Arc::unwrap_or_clone(function));
    }
    let kinds =
        [series::Kind::Average { linear: true }, series::Kind::Delta, series::Kind::Increase, series::Kind::Rate];
    let edges = [edges::FirstLast::udaf(false), edges::FirstLast::udaf(true)];
    let exact = [
        totals::Total::udaf(false),
        totals::Total::udaf(true),
        floats::Extreme::udaf(false),
        floats::Extreme::udaf(true),
        counts::Counted::udaf(false),
        counts::Counted::udaf(true),
    ];
    for function in
        kinds.map(series::SeriesAggregate::udaf).into_iter().chain(edges).chain(exact).chain(middles::functions())
    {
        context.register_udaf(Arc::unwrap_or_clone(function));
    }
    moving::register(context)?;
    bounded::register(context)?;
    interval_lists::register(context)?;
    register_rewrites(&mut context.clone())?;
    context.clone().register_expr_planner(Arc::new(intervals::Intervals))?;
    context.clone().register_expr_planner(Arc::new(Unambiguous))?;
    context.clone().register_expr_planner(Arc::new(Replaced))?;
    register_table(context, "archived", archived::Archived, archived::has_archive);
    register_table(context, "expired", expired::Expired, Snapshot::has_collection);
    register_table(context, "latest", latest::Latest, Snapshot::has_collection);
    register_table(context, "latest_archived", latest::LatestArchived, archived::has_archive);
    register_table(context, "rollup", rollup::Rollup, Snapshot::has_collection);
    Ok(())
}

/// Registers a table function over a collection.
fn register_table(
    context: &SessionContext,
    name: &'static str,
    function: impl TableFunctionImpl + 'static,
    has: fn(&Snapshot, &str) -> bool,
) {
    let gives_rows = name != "rollup";
    context.register_udtf(name, Arc::new(OfEach { name, function, gives_rows, has }));
}

/// Registers the functions that only rewritten plans call, for those who get such plans from elsewhere.
#[cfg(feature = "workers")]
pub(crate) fn register_internal(context: &SessionContext) {
    let others = [
        widened::function(),
        duration_parts::PART.clone(),
        value_key::VALUE_KEY.clone(),
        value_key::KEY_VALUE.clone(),
        lossy_filters::ANY_VALUE.clone(),
        crate::timestamp_coercion::interval_length(),
    ];
    let of_lengths = durations::functions().into_iter().chain(intervals::functions());
    for function in arithmetic::functions().chain(floats::functions()).chain(of_lengths).chain(others) {
        context.register_udf(Arc::unwrap_or_clone(function));
    }
}

/// Makes the arithmetic of plans exact, and reads texts as PostgreSQL does. Needed wherever plans are analyzed.
pub(crate) fn register_rewrites(registry: &mut dyn FunctionRegistry) -> Result<()> {
    registry.register_function_rewrite(Arc::new(casts::Texts))?;
    registry.register_function_rewrite(Arc::new(arithmetic::ExactArithmetic))
}

/// The expression with what [`register_rewrites`] has registered done to it, as it is done to plans: before constants are computed.
/// For the conditions and values of statements that write, which are compiled without a plan.
pub(crate) fn as_in_plans(expr: Expr, schema: &DFSchema, state: &SessionState) -> Result<Expr> {
    let (config, mut expr) = (state.config_options(), expr);
    for rewrite in state.analyzer().function_rewrites() {
        expr = expr.transform_up(|expr| rewrite.rewrite(expr, schema, config))?.data;
    }
    Ok(expr)
}

/// Whether [`register_rewrites`] may change an expression, at any depth.
pub(crate) fn may_be_rewritten(expr: &Expr) -> Result<bool> {
    expr.exists(|expr| Ok(arithmetic::may_be_rewritten(expr) || casts::may_be_rewritten(expr)))
}

/// Inserts gap filling and ASOF joins into a plan whose comparisons of times have been rewritten and that has not been
/// analyzed, lets its sorts take -0.0 and 0.0 for one value, gives NULLs that are counted a type, and computes comparisons that
/// are keys of windows below them.
///
/// # Errors
/// What is wrong with a call, in words for the user.
pub(crate) fn rewrite(
    plan: LogicalPlan,
    now: Option<DateTime<Utc>>,
    config: &Arc<ConfigOptions>,
) -> Result<LogicalPlan> {
    let plan = match asks_for_nodes(&plan)? {
        true => gapfill::rewrite(asof::rewrite(plan)?, &gapfill::Statement { now, config })?,
        false => plan,
    };
    zeros::rewrite(window_keys::rewrite(window_filters::rewrite(nulls::rewrite(plan)?)?)?)
}

/// Whether a plan calls a function that stands for gap filling or an ASOF join.
fn asks_for_nodes(plan: &LogicalPlan) -> Result<bool> {
    const CALLS: [&str; 4] = [date_bin::GAPFILL, date_bin::LOCF, date_bin::INTERPOLATE, asof::MARK];
    let is_call = |expr: &Expr| matches!(expr, Expr::ScalarFunction(call) if CALLS.contains(&call.func.name()));
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| Ok(is_call(expr)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// Plans queries as DataFusion does, including the nodes of this module.
pub(crate) struct Planner(DefaultPhysicalPlanner);

impl Planner {
    pub(crate) fn new() -> Planner {
        Planner(DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Nodes)]))
    }
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").finish_non_exhaustive()
    }
}

// Without `async_trait`: see `at_once`.
impl QueryPlanner for Planner {
    fn create_physical_plan<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        plan: &'life1 LogicalPlan,
        session: &'life2 dyn Session,
    ) -> BoxFuture<'async_trait, Result<Arc<dyn ExecutionPlan>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        async move {
            let plan = lossy_filters::in_plan(zeros_in_lists::in_plan(plan)?)?;
            balance_filters(self.0.create_physical_plan(&plan, session).await?)
        }
        .boxed()
    }
}

/// Plans the nodes of this module.
struct Nodes;

impl ExtensionPlanner for Nodes {
    fn plan_extension<'life0, 'life1, 'life2, 'life3, 'life4, 'life5, 'life6, 'life7, 'async_trait>(
        &'life0 self,
        planner: &'life1 dyn PhysicalPlanner,
        node: &'life2 dyn UserDefinedLogicalNode,
        logical_inputs: &'life3 [&'life4 LogicalPlan],
        physical_inputs: &'life5 [Arc<dyn ExecutionPlan>],
        session: &'life6 dyn Session,
        context: &'life7 PhysicalPlanningContext,
    ) -> BoxFuture<'async_trait, Result<Option<Arc<dyn ExecutionPlan>>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        'life3: 'async_trait,
        'life4: 'async_trait,
        'life5: 'async_trait,
        'life6: 'async_trait,
        'life7: 'async_trait,
        Self: 'async_trait,
    {
        let inputs = (logical_inputs, physical_inputs);
        Box::pin(ready(Nodes::plan(planner, node, inputs, session, context)))
    }
}

impl Nodes {
    fn plan(
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        (logical_inputs, physical_inputs): (&[&LogicalPlan], &[Arc<dyn ExecutionPlan>]),
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(exec) = EngineAggregateExec::of(node, session)? {
            return Ok(Some(Arc::new(exec)));
        }
        let schema = Arc::clone(node.schema().inner());
        if let (Some(fill), [input]) = (node.as_any().downcast_ref::<gapfill::GapFill>(), physical_inputs) {
            let index = |column| node.schema().index_of_column(column);
            let series: Result<Vec<usize>> = fill.series.iter().map(index).collect();
            let fills: Result<Vec<_>> = fill.fills.iter().map(|(column, kind)| Ok((index(column)?, *kind))).collect();
            let columns = (index(&fill.time)?, series?);
            let given = node.schema().columns();
            let mut input = Arc::clone(input);
            if given != fill.input.schema().columns() {
                let at = |c: &Column| fill.input.schema().index_of_column(c);
                let chosen: Result<Vec<_>> = given.iter().map(|c| Ok((at(c)?, c.name.clone()))).collect();
                let chosen = chosen?.into_iter().map(|(at, name)| {
                    let expr: Arc<dyn PhysicalExpr> =
                        Arc::new(PhysicalColumn::new(input.schema().field(at).name(), at));
                    (expr, name)
                });
                input = Arc::new(ProjectionExec::try_new(chosen.collect::<Vec<_>>(), Arc::clone(&input))?);
            }
            let exec = gapfill::GapFillExec::new(input, schema, columns, fills?, fill.grid.clone(), fill.range);
            return Ok(Some(Arc::new(exec)));
        }
        let (Some(join), [left, right], [of_left, of_right]) =
            (node.as_any().downcast_ref::<asof::AsofJoin>(), physical_inputs, logical_inputs)
        else {
            return Ok(None);
        };
        let on = |expr, plan: &LogicalPlan| planner.create_physical_expr(expr, plan.schema(), session, context);
        let keys: Result<Vec<_>> = join.keys.iter().map(|(l, r)| Ok((on(l, of_left)?, on(r, of_right)?))).collect();
        let rest = join.rest.as_ref().map(|rest| planner.create_physical_expr(rest, node.schema(), session, context));
        let sides = asof::Sides {
            keys: keys?,
            times: (on(&join.times.0, of_left)?, join.times.1, on(&join.times.2, of_right)?),
            rest: rest.transpose()?,
            outer: join.outer,
        };
        Ok(Some(Arc::new(asof::AsofExec::new(Arc::clone(left), Arc::clone(right), Arc::new(sides), schema))))
    }
}
