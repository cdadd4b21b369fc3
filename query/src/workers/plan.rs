//! Plans a query for workers.

use super::codec::LeafCodec;
use super::leaf::SharedScanExec;
use super::pinned::Pinned;
use super::{Workers, address_of};
use crate::context::StatementContext;
use crate::options::EbbtideOptions;
use crate::planning::plans::{ExecutablePlan, needs_all_groups};
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::context::SessionState;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DesiredTaskCountHandler, DistributedCodec, DistributedExec,
    DistributedExt, DistributedLeafExec, NetworkBoundaryExt, RouteTasksEvent, RouteTasksEventResponse,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse, SessionStateBuilderExt, WorkerResolver, display_plan_ascii,
};
use datafusion_proto::bytes::physical_plan_to_bytes_with_extension_codec;
use std::sync::Arc;
use url::Url;

/// Rules of the session whose nodes run in the session's process. `FastFrames` is not among them: it replaces the frames that DataFusion
/// computes incorrectly. Its operator cannot be sent to workers, so queries with such frames run without them.
const LOCAL_RULES: [&str; 7] =
    ["LikeInOrder", "JoinsSelectMetas", "ScansOfFirstRows", "YieldingJoins", "TopKFilters", "SortRuns", "HashGroups"];

/// The physical plan for a logical one, whose parts are sent to workers. The plan may be an EXPLAIN.
pub(crate) async fn plan(
    workers: &Workers,
    plan: LogicalPlan,
    context: &StatementContext,
    mut state: SessionState,
) -> Result<ExecutablePlan> {
    // The engine's own aggregates need all segments in one place.
    let options = EbbtideOptions::without_fast_paths(state.config_options());
    state.config_mut().options_mut().extensions.insert(options);
    let is_analyze = matches!(plan, LogicalPlan::Analyze(_));
    if let LogicalPlan::Explain(explain) = &plan {
        let optimized = state.optimize(&explain.plan)?;
        let (physical, task) = distributed(workers, &optimized, context, &state, false).await?;
        return Ok((explained(&optimized, &physical, &plan)?, task));
    }
    let optimized = state.optimize(&plan)?;
    distributed(workers, &optimized, context, &state, is_analyze).await
}

async fn distributed(
    workers: &Workers,
    plan: &LogicalPlan,
    context: &StatementContext,
    state: &SessionState,
    is_analyze: bool,
) -> Result<ExecutablePlan> {
    let mut local = state.clone();
    if needs_all_groups(plan)? {
        let options = &mut local.config_mut().options_mut().optimizer;
        (options.enable_topk_aggregation, options.enable_distinct_aggregation_soft_limit) = (false, false);
    }
    if let Some(pinned) = Pinned::of(context, local.config_options()) {
        let shared = for_workers(workers, &pinned, &local, is_analyze)?;
        // Some plans have no form for workers, such as those with subqueries for single values.
        match shared.query_planner().create_physical_plan(plan, &shared).await {
            Ok(physical) if can_be_sent(&physical, shared.config())? => return Ok((physical, shared.task_ctx())),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the query runs without workers"),
        }
    }
    let physical = local.query_planner().create_physical_plan(plan, &local).await?;
    Ok((physical, local.task_ctx()))
}

/// The state that plans for workers.
fn for_workers(workers: &Workers, pinned: &Pinned, state: &SessionState, is_analyze: bool) -> Result<SessionState> {
    let mut rules = state.physical_optimizers().to_vec();
    rules.retain(|rule| !LOCAL_RULES.contains(&rule.name()));
    let start = state.execution_props().query_execution_start_time;
    let mut shared = SessionStateBuilder::new_from_existing(state.clone())
        .with_physical_optimizer_rules(rules)
        .with_distributed_planner()
        .with_distributed_worker_resolver(Listed(workers.clone()))
        .with_distributed_channel_resolver(workers.channels.clone())
        .with_distributed_user_codec(LeafCodec { state: None })
        .with_distributed_passthrough_headers(pinned.headers()?)?
        .with_distributed_max_tasks_per_stage(workers.tasks())?
        .with_distributed_metrics_collection(is_analyze)?
        // Each task reads its share of each input of a union, so that a worker gets the same segments in every query.
        .with_distributed_children_isolator_unions(false)?
        .with_distributed_desired_task_count_handler(Shares(workers.clone()))
        .with_distributed_scale_up_leaf_node_handler(scale_up(workers.clone()))
        .with_distributed_route_tasks_handler(route(workers.clone()))
        .build();
    if let Some(start) = start {
        shared.execution_props_mut().query_execution_start_time = Some(start);
    }
    Ok(shared)
}

/// The workers that were named.
struct Listed(Workers);

impl WorkerResolver for Listed {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.urls.as_ref().clone())
    }
}

/// How many tasks read a collection: one for each worker, or one.
struct Shares(Workers);

#[async_trait]
impl DesiredTaskCountHandler for Shares {
    async fn handle(&self, event: DesiredTaskCountEvent<'_>) -> Option<Result<DesiredTaskCountEventResponse>> {
        if event.plan.is::<EmptyExec>() {
            // One input of a union may be empty, and the others be shared.
            return Some(Ok(DesiredTaskCountEventResponse::desired(1)));
        }
        let leaf = event.plan.downcast_ref::<SharedScanExec>()?;
        let tasks = if leaf.is_worth_sharing() { self.0.tasks() } else { 1 };
        Some(Ok(DesiredTaskCountEventResponse::desired(tasks)))
    }
}

/// Gives each task of a stage its share. A stage of one task reads everything.
fn scale_up(
    workers: Workers,
) -> impl for<'a> Fn(ScaleUpLeafNodeEvent<'a>) -> Option<Result<ScaleUpLeafNodeEventResponse>> + Send + Sync {
    move |event| {
        let leaf = event.plan.downcast_ref::<SharedScanExec>().filter(|_| event.task_count > 1)?;
        let addresses: Vec<String> =
            (0..event.task_count).map(|task| address_of(workers.url(task)).to_owned()).collect();
        let shares = DistributedLeafExec::try_new(Arc::clone(event.plan), leaf.shared(&addresses));
        Some(shares.map(|shares| ScaleUpLeafNodeEventResponse::new(Arc::new(shares))))
    }
}

/// Sends each task to the worker that its share is for.
fn route(
    workers: Workers,
) -> impl for<'a> Fn(RouteTasksEvent<'a>) -> Option<Result<RouteTasksEventResponse>> + Send + Sync {
    move |event| {
        let url = |task| workers.url(task).clone();
        (event.task_count > 1).then(|| Ok(RouteTasksEventResponse::new((0..event.task_count).map(url).collect())))
    }
}

/// Whether every part of a plan that runs elsewhere can be sent there.
fn can_be_sent(plan: &Arc<dyn ExecutionPlan>, config: &SessionConfig) -> Result<bool> {
    let codec = DistributedCodec::new_combined_with_user(config);
    let mut can = true;
    plan.apply(|node| {
        if let Some(boundary) = node.as_network_boundary()
            && let Some(stage) = boundary.input_stage().local_plan()
        {
            let one = of_one_task(stage)?;
            can &= physical_plan_to_bytes_with_extension_codec(one, &codec)
                .inspect_err(|error| tracing::debug!(%error, "the query runs without workers"))
                .is_ok();
        }
        Ok(if can { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(can)
}

/// A stage as one of its tasks is sent.
fn of_one_task(stage: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let one = |node: Arc<dyn ExecutionPlan>| {
        let first = node.downcast_ref::<DistributedLeafExec>().and_then(|leaf| leaf.variants().first().cloned());
        Ok(first.map_or_else(|| Transformed::no(node), Transformed::yes))
    };
    Arc::clone(stage).transform_down(one).data()
}

/// What EXPLAIN returns: both plans as text, the physical one with its stages.
fn explained(
    logical: &LogicalPlan,
    physical: &Arc<dyn ExecutionPlan>,
    explain: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    let text = match physical.is::<DistributedExec>() {
        true => display_plan_ascii(physical.as_ref(), false),
        false => displayable(physical.as_ref()).indent(false).to_string(),
    };
    let column = |texts: Vec<String>| -> ArrayRef { Arc::new(StringArray::from(texts)) };
    let schema = Arc::clone(explain.schema().inner());
    let kinds = vec!["logical_plan".to_owned(), "physical_plan".to_owned()];
    let columns = vec![column(kinds), column(vec![logical.display_indent().to_string(), text])];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    Ok(MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None)? as Arc<dyn ExecutionPlan>)
}
