//! The leaf that asks the engine for an aggregate.

use super::{BucketAggregate, Key, Order, scan_of};
use crate::catalog::{Hidden, Watched};
use crate::lean::Lean;
use crate::provider::{Asked, CollectionTable};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_err};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::context::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, Sort, UserDefinedLogicalNode};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, execute_stream};
use ebbtide::{AggregateGuard, AggregateRequest, Aggregated, CollectionSnapshot};
use ebbtide_ttl::Code;
use futures::{StreamExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;

/// So many rows are read where the statement is polled: giving them to another thread would take as long.
const ROWS_IN_PLACE: u64 = 1 << 15;
/// So many times further back the engine looks if it has not found enough bins.
const FURTHER: i64 = 64;

/// Asks the engine for an aggregate.
#[derive(Debug)]
pub(crate) struct BucketAggregateExec {
    work: Arc<Work>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// All that it takes.
struct Work {
    asked: Asked,
    node: BucketAggregate,
    schema: SchemaRef,
    /// The table over the same snapshot, and the session to plan with what the node stands for.
    pinned: Arc<CollectionTable>,
    state: Arc<SessionState>,
    hidden: Arc<Hidden>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("node", &self.node).finish_non_exhaustive()
    }
}

impl BucketAggregateExec {
    /// The leaf for a node of a logical plan, if it is such a node.
    pub(crate) fn of(node: &dyn UserDefinedLogicalNode, session: &dyn Session) -> Result<Option<Self>> {
        let Some(node) = node.as_any().downcast_ref::<BucketAggregate>() else { return Ok(None) };
        let state = session.as_any().downcast_ref::<Lean>().map(|lean| Arc::clone(&lean.state));
        let (Some(scan), Some(state)) = (scan_of(&node.aggregate), state) else {
            return internal_err!("an aggregate of buckets is planned by another session");
        };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<CollectionTable>() else {
            return internal_err!("an aggregate of buckets is of no collection");
        };
        let asked = table.ask(session, scan.projection.as_ref(), &scan.filters)?;
        let hidden = Arc::new(Hidden::default());
        table.current().note(|| Watched::aggregate(asked.cuts(), Arc::clone(&hidden)));
        let schema = Arc::clone(node.aggregate.schema.inner());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let work = Work { asked, node: node.clone(), schema, pinned: Arc::new(table.pinned()), state, hidden };
        Ok(Some(BucketAggregateExec {
            work: Arc::new(work),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}

/// What a node stands for, of such a table.
fn instead(node: &BucketAggregate, table: &Arc<CollectionTable>) -> Result<LogicalPlan> {
    let pinned = provider_as_source(Arc::clone(table) as _);
    let plan = LogicalPlan::Aggregate(node.aggregate.as_ref().clone()).transform_up(|plan| match plan {
        LogicalPlan::TableScan(mut scan) => {
            scan.source = Arc::clone(&pinned);
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    });
    let plan = plan.data()?;
    let Some(order) = node.order else { return Ok(plan) };
    let time = plan.schema().columns().into_iter().next();
    let time = time.ok_or_else(|| exec_datafusion_err!("an aggregate is sorted that has no columns"))?;
    let expr = vec![Expr::Column(time).sort(!order.descending, false)];
    Ok(LogicalPlan::Sort(Sort { expr, input: Arc::new(plan), fetch: order.fetch }))
}

impl Work {
    /// The answer of the engine; `None` if it is to be had from DataFusion.
    async fn ask(&self, context: &TaskContext, metrics: &ExecutionPlanMetricsSet) -> Result<Option<RecordBatch>> {
        let reservation = MemoryConsumer::new("BucketAggregateExec").register(context.memory_pool());
        let guard = Arc::new(Guard { reservation, in_place: AtomicBool::new(true), left: AtomicBool::new(false) });
        let _waiting = Waiting(Arc::clone(&guard));
        let mut windows = Windows::new(self);
        loop {
            let (request, is_last) = windows.next();
            // What is damaged DataFusion reads too, and says so; where there is no memory it spills.
            let Ok(given) = run(&self.asked.snapshot, request, &guard).await else { return Ok(None) };
            let enough = self.node.order.and_then(|order| order.fetch).is_none_or(|n| given.groups.num_rows() >= n);
            if enough || is_last {
                let batch = self.batch(&given.groups);
                if batch.is_some() {
                    record(&given, metrics);
                    self.hidden.report.get_or_init(|| given.report);
                }
                return Ok(batch);
            }
        }
    }

    /// The columns of the plan; `None` if they are not what DataFusion would give.
    fn batch(&self, groups: &RecordBatch) -> Option<RecordBatch> {
        let request = &self.node.question.request;
        let keys = usize::from(request.by_meta) + usize::from(request.width.is_some());
        let wanted = self.schema.fields().len() - self.node.question.keys.len();
        let (of_keys, values) = groups.columns().split_at_checked(keys)?;
        let (values, checks) = values.split_at_checked(wanted)?;
        if checks.iter().any(has_nan) || request.width.is_some_and(|width| !are_bins(of_keys.last(), width)) {
            return None;
        }
        let keys = self.node.question.keys.iter().map(|key| match key {
            Key::Meta => of_keys.first(),
            Key::Time => of_keys.last(),
        });
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let columns = keys.chain(values.iter().map(Some)).zip(self.schema.fields());
        let columns: Option<Vec<ArrayRef>> =
            columns.map(|(column, field)| cast_with_options(column?, field.data_type(), &strict).ok()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(groups.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns?, &options).ok()?;
        match self.node.order {
            None => Some(batch),
            Some(Order { descending: false, fetch }) => {
                Some(batch.slice(0, fetch.unwrap_or(usize::MAX).min(batch.num_rows())))
            }
            Some(Order { descending: true, fetch }) => {
                let rows = (0..u32::try_from(batch.num_rows()).ok()?).rev().take(fetch.unwrap_or(usize::MAX));
                take_record_batch(&batch, &UInt32Array::from_iter_values(rows)).ok()
            }
        }
    }

    /// The answer of DataFusion.
    async fn stand_in(&self) -> Result<SendableRecordBatchStream> {
        self.pinned.current().watch();
        let instead = instead(&self.node, &self.pinned)?;
        let plan = self.state.query_planner().create_physical_plan(&instead, self.state.as_ref()).await?;
        if let Some(scan) = self.pinned.current().watched().pop() {
            drop(self.hidden.scan.set(scan));
        }
        execute_stream(plan, self.state.task_ctx())
    }
}

fn record(given: &Aggregated, metrics: &ExecutionPlanMetricsSet) {
    let count = |name: &'static str, value: u64| {
        MetricBuilder::new(metrics).global_counter(name).add(usize::try_from(value).unwrap_or(usize::MAX));
    };
    let report = &given.report;
    count("segments_read", report.segments);
    count("buckets_known", given.known);
    count("buckets_read", report.buckets);
    count("buckets_pruned", report.buckets_pruned);
    count("buckets_hidden_by_ttl", report.buckets_hidden);
    count("rows_hidden_by_ttl", report.rows_hidden);
}

/// Whether times are multiples of a width: a bin may begin before the first time that there is.
fn are_bins(starts: Option<&ArrayRef>, width: i64) -> bool {
    let starts = starts.and_then(|starts| cast(starts, &DataType::Int64).ok());
    starts.is_some_and(|s| s.as_primitive::<Int64Type>().values().iter().all(|start| start.rem_euclid(width) == 0))
}

fn has_nan(column: &ArrayRef) -> bool {
    column.as_primitive_opt::<Float64Type>().is_some_and(|c| c.iter().flatten().any(f64::is_nan))
}

/// Ranges of time to look in until there are enough bins: the newest or the oldest, then further each time.
struct Windows<'a> {
    work: &'a Work,
    /// How many bins are looked at; all if none.
    bins: Option<i64>,
}

impl<'a> Windows<'a> {
    fn new(work: &'a Work) -> Self {
        let fetch = work.node.order.and_then(|order| order.fetch).and_then(|n| i64::try_from(n).ok());
        Windows { work, bins: fetch.map(|n| n.max(1)) }
    }

    /// The next request, and whether there is none after it.
    fn next(&mut self) -> (AggregateRequest, bool) {
        let Work { asked, node: BucketAggregate { question, order, .. }, .. } = self.work;
        let (time, meta) = (asked.request.time, asked.request.meta.clone());
        let request = AggregateRequest { time, meta, ..question.request.clone() };
        let stored = asked.snapshot.stored_times();
        let (Some(bins), Some(width), Some(order), Some(stored)) = (self.bins, request.width, order, stored) else {
            return (request, true);
        };
        self.bins = bins.checked_mul(FURTHER);
        let (first, last) = (time.0.unwrap_or(i64::MIN).max(stored.0), time.1.unwrap_or(i64::MAX).min(stored.1));
        let reach = (bins - 1).saturating_mul(width);
        let (from, to) = match order.descending {
            true => (last.saturating_sub(last.rem_euclid(width)).saturating_sub(reach).max(first), last),
            false => {
                let bin = first.saturating_sub(first.rem_euclid(width));
                (first, bin.saturating_add(reach).saturating_add(width - 1).min(last))
            }
        };
        (AggregateRequest { time: (Some(from), Some(to)), ..request }, (from, to) == (first, last))
    }
}

/// Holds an aggregation to the memory that its statement may take, and ends it when nobody waits for it any more.
struct Guard {
    reservation: MemoryReservation,
    /// Whether it runs where the statement is polled.
    in_place: AtomicBool,
    left: AtomicBool,
}

impl AggregateGuard for Guard {
    fn may_take(&self, bytes: usize) -> bool {
        self.reservation.try_resize(bytes).is_ok()
    }

    fn may_read(&self, rows: u64) -> bool {
        // The next attempt is made elsewhere.
        rows <= ROWS_IN_PLACE || !self.in_place.swap(false, Ordering::Relaxed)
    }

    fn may_go_on(&self) -> bool {
        !self.left.load(Ordering::Relaxed)
    }
}

/// Ends an aggregation with the future that waits for it.
struct Waiting(Arc<Guard>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.left.store(true, Ordering::Relaxed);
    }
}

/// Aggregates without holding up other statements for long.
async fn run(
    snapshot: &CollectionSnapshot,
    request: AggregateRequest,
    guard: &Arc<Guard>,
) -> ebbtide::Result<Aggregated> {
    if guard.in_place.load(Ordering::Relaxed) {
        let outcome = snapshot.aggregate_guarded(&request, guard.as_ref());
        if guard.in_place.load(Ordering::Relaxed) {
            return outcome;
        }
    }
    let Ok(runtime) = Handle::try_current() else { return snapshot.aggregate_guarded(&request, guard.as_ref()) };
    let (snapshot, guarded) = (snapshot.clone(), Arc::clone(guard));
    let work = runtime.spawn_blocking(move || snapshot.aggregate_guarded(&request, guarded.as_ref()));
    work.await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(ebbtide::Error::new(Code::Interrupted, "the tokio runtime was shut down")),
    })
}

impl DisplayAs for BucketAggregateExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Work { asked, node: BucketAggregate { question, order, .. }, .. } = self.work.as_ref();
        match kind {
            DisplayFormatType::TreeRender => return f.write_str(&asked.label.replace(", ", "\n")),
            _ => write!(f, "BucketAggregateExec: {}", asked.label)?,
        }
        let aggregates = question.request.aggregates.iter().take(self.work.schema.fields().len() - question.keys.len());
        write!(f, ", aggregates=[{}]", aggregates.map(ebbtide::Aggregate::name).collect::<Vec<_>>().join(", "))?;
        if let Some(order) = order {
            write!(f, ", order={}", if order.descending { "newest first" } else { "oldest first" })?;
            order.fetch.map_or(Ok(()), |fetch| write!(f, ", fetch={fetch}"))?;
        }
        Ok(())
    }
}

impl ExecutionPlan for BucketAggregateExec {
    fn name(&self) -> &'static str {
        "BucketAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (work, metrics) = (Arc::clone(&self.work), self.metrics.clone());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let rows_of_batch = context.session_config().batch_size().max(1);
        let batches = async move {
            let asked = work.ask(&context, &metrics).await?;
            let batches: SendableRecordBatchStream = match asked {
                Some(batch) => {
                    let rows = batch.num_rows();
                    baseline.record_output(rows);
                    let starts = (0..rows).step_by(rows_of_batch);
                    let slices: Vec<_> = starts.map(|at| Ok(batch.slice(at, rows_of_batch.min(rows - at)))).collect();
                    Box::pin(RecordBatchStreamAdapter::new(batch.schema(), futures::stream::iter(slices)))
                }
                None => work.stand_in().await?,
            };
            Ok::<_, DataFusionError>(batches)
        };
        let stream = futures::stream::once(batches).try_flatten().boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.work.schema), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
