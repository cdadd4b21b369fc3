//! The leaf that asks the engine for an aggregate.

use super::meta_keys::MetaKeys;
use super::{Calendar, EngineAggregate, Key, Order, Part};
use crate::context::StatementContext;
use crate::functions::{calendar_bins, canonical_array};
use crate::join_filter::JoinFilter;
use crate::leaf::{leaf_methods, leaf_properties};
use crate::provider::CollectionTable;
use crate::scan_spec::ScanSpec;
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result, Statistics, exec_datafusion_err, internal_err};
use datafusion::datasource::source_as_provider;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, Sort, UserDefinedLogicalNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, execute_stream};
use ebbtide::{AggregateGuard, AggregateRequest, Aggregated, CollectionSnapshot, TimeRange, bins_at_end};
use ebbtide_ttl::{Code, Timestamp};
use futures::{StreamExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;

/// Up to this many rows are read on the thread that polls the statement: moving them to another thread would take as
/// long.
const ROWS_IN_PLACE: u64 = 1 << 15;
/// If too few bins were found, the engine looks this many times further back.
const FURTHER: i64 = 64;
/// The maximum number of bins of a calendar. DataFusion computes aggregates with more: their times are far apart, and most bins are empty.
const BINS_MAX: usize = 1 << 16;

/// Asks the engine for an aggregate, and falls back to DataFusion.
#[derive(Debug)]
pub(crate) struct EngineAggregateExec {
    work: Arc<Work>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// What the leaf was planned with.
#[derive(Debug)]
struct Work {
    node: EngineAggregate,
    scan: Arc<ScanSpec>,
    /// Keys that are computed from metas; `None` if the engine cannot compute them.
    meta_keys: Option<Arc<MetaKeys>>,
    schema: SchemaRef,
    /// The condition of a join on the metas. It is complete when the first row is asked for.
    joined: Option<JoinFilter>,
}

impl EngineAggregateExec {
    /// The leaf for a node of a logical plan; `None` for other nodes.
    pub(crate) fn of(node: &dyn UserDefinedLogicalNode, session: &dyn Session) -> Result<Option<Self>> {
        let Some(node) = node.as_any().downcast_ref::<EngineAggregate>() else { return Ok(None) };
        let scan = &node.spec.scan;
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<CollectionTable>() else {
            return internal_err!("an aggregate answered by the engine reads no collection");
        };
        let scan = Arc::new(table.spec(session, scan.projection.as_ref(), &scan.filters)?);
        let meta_keys = if *scan.snapshot.schema() == table.planned.schema {
            meta_keys(node, &table.planned.arrow, session)?.map(Arc::new)
        } else {
            None // Planned before the collection got its current fields.
        };
        let schema = Arc::clone(node.original.schema.inner());
        Ok(Some(EngineAggregateExec::new(Work { node: node.clone(), scan, meta_keys, schema, joined: None })))
    }

    fn new(work: Work) -> Self {
        let properties = leaf_properties(&work.schema, 1, EmissionType::Final);
        EngineAggregateExec { work: Arc::new(work), properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The same aggregate, of those metas only that a join by this key needs; `None` if the key is not computed from the meta alone.
    pub(crate) fn with_join(
        &self,
        key: Arc<dyn PhysicalExpr>,
        filter: &Arc<DynamicFilterPhysicalExpr>,
    ) -> Result<Option<Self>> {
        let Work { node, scan, meta_keys, schema, joined } = self.work.as_ref();
        let (Some(meta), Some(keys), None) = (&scan.snapshot.schema().meta, meta_keys, joined) else { return Ok(None) };
        let Ok(meta) = scan.schema.field_with_name(meta) else { return Ok(None) };
        let mut computed = keys.exprs().iter().cloned();
        let of_keys = node.spec.keys.iter().map(|key| match key {
            Key::Meta => Some(Arc::new(Column::new(meta.name(), 0)) as Arc<dyn PhysicalExpr>),
            Key::MetaExpr(_) => computed.next(),
            Key::Time => None,
        });
        let of_keys = of_keys.collect::<Vec<_>>();
        let mut is_of_metas = true;
        let key = key.transform_up(|part| {
            let Some(column) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
            let of_meta = of_keys.get(column.index()).cloned().flatten();
            is_of_metas &= of_meta.is_some();
            Ok(of_meta.map_or_else(|| Transformed::no(part), Transformed::yes))
        });
        let key = key.data()?;
        let joined = if is_of_metas { JoinFilter::new(meta, key, filter)? } else { None };
        let (node, scan, meta_keys, schema) =
            (node.clone(), Arc::clone(scan), Some(Arc::clone(keys)), Arc::clone(schema));
        Ok(joined.map(|joined| EngineAggregateExec::new(Work { node, scan, meta_keys, schema, joined: Some(joined) })))
    }

    /// The condition of a join: the join makes it only if it finds it in the plan.
    fn expressions(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        self.work.joined.as_ref().map(JoinFilter::condition)
    }
}

impl EngineAggregateExec {
    /// What is answered from what, in words.
    pub(crate) fn words(&self) -> String {
        let Work { node, scan, joined, .. } = self.work.as_ref();
        let calls: Vec<String> = node.original.aggr_expr.iter().map(|call| call.schema_name().to_string()).collect();
        let calls = if calls.is_empty() { "the groups".to_owned() } else { calls.join(", ") };
        let name = scan.snapshot.name();
        let segments = scan.snapshot.segments().len();
        format!(
            "the engine answers {} of {name}: whole buckets from the statistics in the directories of {segments} segments, \
             the rest from the stored columns{}",
            calls.replace(&format!("{name}."), ""),
            if joined.is_some() { "; only the series that the join needs" } else { "" }
        )
    }
}

/// The keys that are computed from metas, as DataFusion expressions.
fn meta_keys(node: &EngineAggregate, columns: &SchemaRef, session: &dyn Session) -> Result<Option<MetaKeys>> {
    let computed =
        node.spec.keys.iter().filter_map(|key| if let Key::MetaExpr(expr) = key { Some(expr) } else { None });
    let exprs: Vec<Expr> = computed.map(|expr| crate::pushdown::unqualified(expr.clone())).collect::<Result<_>>()?;
    let meta = exprs.first().and_then(|expr| expr.column_refs().into_iter().next().map(|column| column.name.clone()));
    let member = match exprs.as_slice() {
        [one] => meta.as_ref().and_then(|meta| crate::pushdown::path(one, meta)),
        _ => None,
    };
    let fields = meta.map(|meta| columns.field_with_name(&meta).cloned()).transpose()?;
    let schema = Arc::new(ArrowSchema::new(fields.into_iter().collect::<Vec<_>>()));
    let df_schema = DFSchema::try_from(schema.as_ref().clone())?;
    let exprs = exprs.into_iter().map(|expr| session.create_physical_expr(expr, &df_schema));
    MetaKeys::new(schema, exprs.collect::<Result<_>>()?, member)
}

impl Work {
    /// The engine's answer; `None` if DataFusion has to compute it.
    async fn ask(&self, task: &TaskContext, metrics: &ExecutionPlanMetricsSet) -> Result<Option<RecordBatch>> {
        let Some(meta_keys) = &self.meta_keys else { return Ok(None) };
        let reservation = MemoryConsumer::new("EngineAggregateExec").register(task.memory_pool());
        let guard = Arc::new(Guard { reservation, in_place: AtomicBool::new(true), cancelled: AtomicBool::new(false) });
        let _cancel = CancelOnDrop(Arc::clone(&guard));
        let starts = match self.node.spec.calendar.map(|calendar| self.starts(calendar)) {
            Some(None) => return Ok(None),
            starts => starts.flatten(),
        };
        let mut windows = Windows::new(self);
        loop {
            let (mut request, is_last) = windows.next();
            request.starts.clone_from(&starts);
            if !meta_keys.is_empty() && !self.node.spec.keys.contains(&Key::Meta) {
                request.meta_groups = Some(Arc::clone(meta_keys) as _);
            }
            // On damage, DataFusion's own plan reports the error; when memory is short, it can spill to disk.
            let Ok(answer) = run(&self.scan.snapshot, request, &guard).await else { return Ok(None) };
            let fetch = self.node.order.and_then(|order| order.fetch);
            if is_last || fetch.is_none_or(|n| answer.groups.num_rows() >= n) {
                let batch = self.batch(&answer.groups, meta_keys);
                if batch.is_some() {
                    record(&answer, metrics);
                    self.scan.count_fetched(metrics);
                    StatementContext::of(task.session_config())?.trace().record(&self.scan, &answer.report);
                }
                return Ok(batch);
            }
        }
    }

    /// The width of its bins of time, in units of the collection.
    fn width(&self) -> Option<i64> {
        let width = self.node.spec.request.width?;
        self.scan.snapshot.schema().precision.units_in(width)
    }

    /// The starts of all bins that may have measurements; `None` if there are too many, or if one cannot be stored.
    fn starts(&self, calendar: Calendar) -> Option<Arc<[Timestamp]>> {
        let (snapshot, precision) = (&self.scan.snapshot, self.scan.snapshot.schema().precision);
        let stored = snapshot.time_range().map(|(first, last)| TimeRange::from(first..=last));
        let (first, last) = stored.unwrap_or_default().units(precision);
        let (from, to) = self.scan.request.time.units(precision);
        let (first, last) = (first.max(from), last.min(to));
        let bins = calendar_bins(calendar.unit(), precision)?;
        let instant = |start| Timestamp::from_units(start, precision);
        if stored.is_none() || first > last {
            return Some(Arc::from([instant(0)])); // There are no measurements.
        }
        let (mut start, end) = (bins.start(first).ok()?, bins.start(last).ok()?);
        let mut starts = vec![start];
        while start < end {
            if starts.len() == BINS_MAX {
                return None;
            }
            start = bins.next(start).ok()?;
            starts.push(start);
        }
        Some(starts.into_iter().map(instant).collect())
    }

    /// The columns of the plan; `None` if they would differ from DataFusion's.
    fn batch(&self, groups: &RecordBatch, meta_keys: &MetaKeys) -> Option<RecordBatch> {
        let spec = &self.node.spec;
        let keys = usize::from(spec.request.by_meta) + usize::from(spec.keys.contains(&Key::Time));
        let wanted = self.schema.fields().len() - spec.keys.len();
        let (of_keys, values) = groups.columns().split_at_checked(keys)?;
        let (values, checks) = values.split_at_checked(wanted)?;
        let width = self.width();
        if checks.iter().any(has_nan) || width.is_some_and(|width| !are_bins(of_keys.last(), width)) {
            return None;
        }
        let mut computed = match meta_keys.is_empty() {
            true => Vec::new(),
            false => meta_keys.evaluate(of_keys.first()?).ok()?,
        }
        .into_iter();
        let keys = spec.keys.iter().map(|key| match key {
            Key::Meta => of_keys.first().cloned(),
            Key::MetaExpr(_) => computed.next(),
            Key::Time => match spec.part {
                Some(part) => parts(part, of_keys.last()?, width?),
                None => of_keys.last().cloned(),
            },
        });
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let columns = keys.chain(values.iter().cloned().map(Some)).zip(self.schema.fields());
        let columns: Option<Vec<ArrayRef>> = columns
            .map(|(column, field)| cast_with_options(&column?, field.data_type(), &strict).ok().map(canonical_array))
            .collect();
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

    /// DataFusion's answer over the same snapshot. The original is planned only now because it is rarely needed.
    async fn run_original(&self, task: &TaskContext) -> Result<SendableRecordBatchStream> {
        let mut original = LogicalPlan::Aggregate(self.node.original.as_ref().clone());
        if let Some(order) = self.node.order {
            let time = original.schema().columns().into_iter().next();
            let time = time.ok_or_else(|| exec_datafusion_err!("an aggregate without columns cannot be sorted"))?;
            let expr = vec![Expr::Column(time).sort(!order.descending, false)];
            original = LogicalPlan::Sort(Sort { expr, input: Arc::new(original), fetch: order.fetch });
        }
        let state = StatementContext::of(task.session_config())?.state();
        let plan = state.query_planner().create_physical_plan(&original, &state).await?;
        execute_stream(plan, state.task_ctx())
    }
}

fn record(answer: &Aggregated, metrics: &ExecutionPlanMetricsSet) {
    let count = |name: &'static str, value: u64| {
        MetricBuilder::new(metrics).global_counter(name).add(usize::try_from(value).unwrap_or(usize::MAX));
    };
    let report = &answer.report;
    count("segments_read", report.segments);
    count("buckets_known", answer.known);
    count("buckets_read", report.buckets);
    count("buckets_pruned", report.buckets_pruned);
    count("buckets_hidden_by_ttl", report.buckets_hidden);
    count("rows_hidden_by_ttl", report.rows_hidden);
}

/// Whether all times are multiples of a width. They are not if a bin begins before the first time that can be stored.
fn are_bins(starts: Option<&ArrayRef>, width: i64) -> bool {
    let starts = starts.and_then(|starts| cast(starts, &DataType::Int64).ok());
    starts.is_some_and(|s| s.as_primitive::<Int64Type>().values().iter().all(|start| start.rem_euclid(width) == 0))
}

/// The parts of dates that bins stand for.
fn parts(part: Part, starts: &ArrayRef, width: i64) -> Option<ArrayRef> {
    let starts = cast(starts, &DataType::Int64).ok()?;
    let numbers = starts.as_primitive::<Int64Type>().values().iter().map(|start| part.number(start / width));
    Some(Arc::new(Int64Array::from_iter_values(numbers)))
}

fn has_nan(column: &ArrayRef) -> bool {
    column.as_primitive_opt::<Float64Type>().is_some_and(|c| c.iter().flatten().any(f64::is_nan))
}

/// Ranges of time to aggregate until there are enough bins: the newest or oldest bins first, then a wider range each
/// time.
struct Windows<'a> {
    work: &'a Work,
    /// Number of bins to aggregate; all if `None`.
    bins: Option<i64>,
}

impl<'a> Windows<'a> {
    fn new(work: &'a Work) -> Self {
        let fetch = work.node.order.and_then(|order| order.fetch).and_then(|n| i64::try_from(n).ok());
        Windows { work, bins: fetch.map(|n| n.max(1)) }
    }

    /// The next request, and whether it is the last.
    fn next(&mut self) -> (AggregateRequest, bool) {
        let Work { scan, joined, node: EngineAggregate { spec, order, .. }, .. } = self.work;
        let (time, meta) = (scan.request.time, scan.request.meta.as_ref());
        let meta = joined.as_ref().map(|joined| joined.metas(meta)).or(meta.cloned());
        let request = AggregateRequest { time, meta, ..spec.request.clone() };
        let (Some(bins), Some(width), Some(order)) = (self.bins, self.work.width(), order) else {
            return (request, true);
        };
        // Looks at every open bucket.
        let Some(stored) = scan.snapshot.time_range() else { return (request, true) };
        let precision = scan.snapshot.schema().precision;
        self.bins = bins.checked_mul(FURTHER);
        let ((first, last), stored) = (time.units(precision), TimeRange::from(stored.0..=stored.1).units(precision));
        let (first, last) = (first.max(stored.0), last.min(stored.1));
        let (from, to) = bins_at_end((first, last), width, bins, order.descending);
        (
            AggregateRequest { time: TimeRange::of_units(Some(from), Some(to), precision), ..request },
            (from, to) == (first, last),
        )
    }
}

/// Limits an aggregation to its statement's memory, and ends it when nobody waits for its result any more.
struct Guard {
    reservation: MemoryReservation,
    /// Whether it runs on the thread that polls the statement.
    in_place: AtomicBool,
    cancelled: AtomicBool,
}

impl AggregateGuard for Guard {
    fn may_take(&self, bytes: usize) -> bool {
        self.reservation.try_resize(bytes).is_ok()
    }

    fn may_read(&self, rows: u64) -> bool {
        // Refused once: the next attempt runs on another thread.
        rows <= ROWS_IN_PLACE || !self.in_place.swap(false, Ordering::Relaxed)
    }

    fn may_go_on(&self) -> bool {
        !self.cancelled.load(Ordering::Relaxed)
    }
}

/// Cancels an aggregation when the future that waits for it is dropped.
struct CancelOnDrop(Arc<Guard>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
}

/// Runs an aggregation without blocking other statements for long.
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

impl DisplayAs for EngineAggregateExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Work { scan, node: EngineAggregate { spec, order, .. }, schema, .. } = self.work.as_ref();
        match kind {
            DisplayFormatType::TreeRender => return f.write_str(&scan.to_string().replace(", ", "\n")),
            _ => write!(f, "EngineAggregateExec: {scan}")?,
        }
        let (keys, values) = schema.fields().split_at(spec.keys.len());
        let names = |fields: &[Arc<datafusion::arrow::datatypes::Field>]| {
            fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
        };
        write!(f, ", groups=[{}], aggregates=[{}]", names(keys), names(values))?;
        if let Some(order) = order {
            write!(f, ", order={}", if order.descending { "newest first" } else { "oldest first" })?;
            order.fetch.map_or(Ok(()), |fetch| write!(f, ", fetch={fetch}"))?;
        }
        Ok(())
    }
}

impl ExecutionPlan for EngineAggregateExec {
    leaf_methods!(expressions);

    fn name(&self) -> &'static str {
        "EngineAggregateExec"
    }

    fn execute(&self, partition: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (work, metrics) = (Arc::clone(&self.work), self.metrics.clone());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let rows_of_batch = task.session_config().batch_size().max(1);
        let batches = async move {
            let batches: SendableRecordBatchStream = match work.ask(&task, &metrics).await? {
                Some(batch) => {
                    let rows = batch.num_rows();
                    baseline.record_output(rows);
                    let starts = (0..rows).step_by(rows_of_batch);
                    let slices: Vec<_> = starts.map(|at| Ok(batch.slice(at, rows_of_batch.min(rows - at)))).collect();
                    Box::pin(RecordBatchStreamAdapter::new(batch.schema(), futures::stream::iter(slices)))
                }
                None => work.run_original(&task).await?,
            };
            Ok::<_, DataFusionError>(batches)
        };
        let stream = futures::stream::once(batches).try_flatten().boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.work.schema), stream)))
    }

    fn statistics_from_inputs(&self, _input: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.work.schema);
        if let Some(groups) = self.work.node.groups {
            statistics.num_rows = Precision::Inexact(usize::try_from(groups).unwrap_or(usize::MAX));
        }
        Ok(Arc::new(statistics))
    }
}
