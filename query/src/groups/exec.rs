//! The operator: its threads read the input and fill the tables; then each partition of the output returns some tables.

use super::keys::Layout;
use super::tables::{Collector, Counted, Distinct, Entry, Shared, bytes_of, nulls_of};
use crate::leaf::streams_as_leaf;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, ReplaceChildrenOptions, replace_children_if_necessary,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::{EmptyRecordBatchStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, PlanProperties};
use futures::future::{BoxFuture, FutureExt, try_join_all};
use futures::{StreamExt, TryStreamExt, stream};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Groups rows, and perhaps counts those of each group.
#[derive(Debug)]
pub(crate) struct GroupsExec {
    plan: Arc<Plan>,
    run: Mutex<Option<Started>>,
    metrics: ExecutionPlanMetricsSet,
}

/// A run, and which partitions of its output were requested. It can return each of them only once.
#[derive(Debug)]
struct Started {
    run: Arc<dyn Run>,
    asked: Vec<bool>,
}

/// The operators of DataFusion that this replaces: groups of each partition, the same groups brought together, and all of them.
#[derive(Debug)]
struct Plan {
    partial: Arc<dyn ExecutionPlan>,
    repartition: Arc<dyn ExecutionPlan>,
    complete: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
    group_by: Vec<Arc<dyn PhysicalExpr>>,
    counted: bool,
    layout: Arc<Layout>,
}

impl GroupsExec {
    /// In the place of these operators; `None` if they do something else.
    pub(super) fn of(node: &Arc<dyn ExecutionPlan>) -> Option<GroupsExec> {
        let complete = groups_in(node, AggregateMode::FinalPartitioned)?;
        let repartition = complete.input().downcast_ref::<RepartitionExec>()?;
        let partial = groups_in(repartition.input(), AggregateMode::Partial)?;
        if [complete, partial].iter().any(|stage| stage.filter_expr().iter().any(Option::is_some)) {
            return None;
        }
        let counted = match complete.aggr_expr() {
            [] => false,
            [call] => counts_rows(call).then_some(true)?,
            _ => return None,
        };
        let group_by = partial.group_expr().input_exprs();
        let layout = Layout::of(&node.schema(), group_by.len())?;
        let plan = Plan {
            partial: Arc::clone(repartition.input()),
            repartition: Arc::clone(complete.input()),
            complete: Arc::clone(node),
            input: Arc::clone(partial.input()),
            group_by,
            counted,
            layout: Arc::new(layout),
        };
        Some(GroupsExec { plan: Arc::new(plan), run: Mutex::default(), metrics: ExecutionPlanMetricsSet::new() })
    }

    /// The last of the operators that this replaces.
    pub(crate) fn original(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan.complete
    }
}

/// An aggregate over groups in no order, without a limit.
pub(super) fn groups_in(node: &Arc<dyn ExecutionPlan>, mode: AggregateMode) -> Option<&AggregateExec> {
    let aggregate = node.downcast_ref::<AggregateExec>()?;
    let of_all_rows = aggregate.limit_options().is_none();
    let grouped = aggregate.group_expr().is_single() && aggregate.dynamic_expressions_produced().is_empty();
    let unordered = *aggregate.input_order_mode() == InputOrderMode::Linear;
    (*aggregate.mode() == mode && of_all_rows && grouped && unordered).then_some(aggregate)
}

/// Whether a call is `count(*)`.
fn counts_rows(call: &AggregateFunctionExpr) -> bool {
    let args = call.expressions();
    let [arg] = args.as_slice() else { return false };
    let literal = arg.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null());
    literal && call.fun().name() == "count" && !call.is_distinct() && call.field().data_type() == &DataType::Int64
}

impl DisplayAs for GroupsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by: Vec<String> = self.plan.group_by.iter().map(ToString::to_string).collect();
        write!(f, "GroupsExec: by=[{}]{}", by.join(", "), if self.plan.counted { ", count(*)" } else { "" })
    }
}

impl ExecutionPlan for GroupsExec {
    fn name(&self) -> &'static str {
        "GroupsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.complete.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.plan.partial.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut original = children;
        for node in [&self.plan.partial, &self.plan.repartition, &self.plan.complete] {
            original = vec![Arc::clone(node).replace_children(original, options)?];
        }
        let Some(original) = original.pop() else { return internal_err!("GroupsExec without an input") };
        match GroupsExec::of(&original) {
            Some(exec) => Ok(Arc::new(exec)),
            None => Ok(original),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, part: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |started: &Started| started.asked.get(part) == Some(&false);
        let started = match &mut *run {
            Some(started) if is_new(started) => started,
            // There is no run yet, or this partition is requested again: a join that lacks memory reads its input twice.
            none_or_older => {
                let run = match (self.plan.layout.fits::<u64>(), self.plan.counted) {
                    (true, false) => self.start::<Distinct<u64>>(&context)?,
                    (true, true) => self.start::<Counted<u64>>(&context)?,
                    (false, false) => self.start::<Distinct<u128>>(&context)?,
                    (false, true) => self.start::<Counted<u128>>(&context)?,
                };
                let parts = self.properties().output_partitioning().partition_count();
                none_or_older.insert(Started { run, asked: vec![false; parts] })
            }
        };
        started.asked[part] = true;
        let run = Arc::clone(&started.run);
        let baseline = BaselineMetrics::new(&self.metrics, part);
        let groups = stream::once(run.output(part, context)).try_flatten();
        let groups = groups.inspect_ok(move |batch: &RecordBatch| baseline.record_output(batch.num_rows()));
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), groups.boxed()))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

impl GroupsExec {
    fn start<E: Entry>(&self, context: &Arc<TaskContext>) -> Result<Arc<dyn Run>> {
        let plan = Arc::clone(&self.plan);
        let parts = plan.input.properties().output_partitioning().partition_count();
        let reservation = MemoryConsumer::new("GroupsExec").register(context.memory_pool());
        let shared = Arc::new(Shared::<E>::new(Arc::clone(&plan.layout), parts, reservation));
        let mut works = Vec::with_capacity(parts);
        for part in 0..parts {
            works.push(Work {
                input: plan.input.execute(part, Arc::clone(context))?,
                plan: Arc::clone(&plan),
                shared: Arc::clone(&shared),
                time: MetricBuilder::new(&self.metrics).elapsed_compute(part),
            });
        }
        // Kept free for DataFusion's operators, in case the tables use up all other memory.
        let spare = parts * context.session_config().options().execution.sort_spill_reservation_bytes;
        let spare = match shared.reservation.try_grow(spare) {
            Ok(()) => spare,
            Err(_) => {
                shared.set_full();
                0
            }
        };
        let (rests, filled) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&shared));
        let kept = Arc::clone(&rests);
        let done = async move {
            // Dropped tasks end.
            let tasks = works.into_iter().map(|work| SpawnedTask::spawn(work.fill()));
            let rests = try_join_all(tasks.map(|task| async {
                task.join_unwind().await.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?
            }));
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = rests.await.map_err(Arc::new)?;
            filled.reservation.shrink(spare);
            Ok(())
        };
        let handed_over = MetricBuilder::new(&self.metrics).global_counter("handed_to_datafusion");
        let done = done.boxed().shared();
        Ok(Arc::new(Filling { plan, shared, rests, done, resumed: Mutex::default(), handed_over }))
    }
}

/// One thread's part of the input.
struct Work<E> {
    input: SendableRecordBatchStream,
    plan: Arc<Plan>,
    shared: Arc<Shared<E>>,
    time: Time,
}

/// What a thread has not added to the tables.
struct Rest<E> {
    collected: Vec<(u8, Vec<E>)>,
    batch: Option<RecordBatch>,
    input: SendableRecordBatchStream,
}

impl<E: Entry> Work<E> {
    async fn fill(mut self) -> Result<Rest<E>> {
        let mut collector = Collector::new(Arc::clone(&self.shared));
        let mut left = None;
        loop {
            // At least one batch is read from every input: a join in one of them may wait for the others to start.
            let Some(batch) = self.input.try_next().await? else {
                self.input = Box::pin(EmptyRecordBatchStream::new(self.input.schema()));
                break;
            };
            if self.shared.is_full() {
                left = Some(batch);
                break;
            }
            let _timer = self.time.timer();
            let evaluated = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(&batch)?.into_array(batch.num_rows());
            let columns = self.plan.group_by.iter().map(evaluated).collect::<Result<Vec<ArrayRef>>>()?;
            if !collector.add(&columns)? {
                self.shared.set_full();
                left = Some(batch);
                break;
            }
        }
        let _timer = self.time.timer();
        collector.finish();
        Ok(Rest { collected: collector.into_rest(), batch: left, input: self.input })
    }
}

/// What is executed.
trait Run: fmt::Debug + Send + Sync {
    fn output(
        self: Arc<Self>,
        part: usize,
        context: Arc<TaskContext>,
    ) -> BoxFuture<'static, Result<SendableRecordBatchStream>>;
}

type Resumed = Result<Arc<dyn ExecutionPlan>, Arc<DataFusionError>>;

struct Filling<E> {
    plan: Arc<Plan>,
    shared: Arc<Shared<E>>,
    rests: Arc<Mutex<Vec<Rest<E>>>>,
    done: futures::future::Shared<BoxFuture<'static, Result<(), Arc<DataFusionError>>>>,
    /// DataFusion's operators over the groups found so far and the rest of the input, once they are needed.
    resumed: Mutex<Option<Resumed>>,
    /// 1 if these operators run.
    handed_over: Count,
}

impl<E> fmt::Debug for Filling<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filling").finish_non_exhaustive()
    }
}

impl<E: Entry> Run for Filling<E> {
    fn output(
        self: Arc<Self>,
        part: usize,
        context: Arc<TaskContext>,
    ) -> BoxFuture<'static, Result<SendableRecordBatchStream>> {
        Box::pin(async move {
            self.done.clone().await.map_err(DataFusionError::Shared)?;
            if !self.shared.is_full() {
                let parts = self.plan.complete.properties().output_partitioning().partition_count();
                let batch_size = context.session_config().batch_size();
                return Ok(self.tables(&self.plan.complete.schema(), (part, parts), batch_size));
            }
            let mut resumed = self.resumed.lock().unwrap_or_else(PoisonError::into_inner);
            match resumed.get_or_insert_with(|| self.resume(&context).map_err(Arc::new)) {
                Ok(plan) => plan.execute(part, context),
                Err(error) => Err(DataFusionError::Shared(Arc::clone(error))),
            }
        })
    }
}

impl<E: Entry> Filling<E> {
    /// The groups of some tables.
    fn tables(
        &self,
        schema: &SchemaRef,
        (part, parts): (usize, usize),
        batch_size: usize,
    ) -> SendableRecordBatchStream {
        let shared = Arc::clone(&self.shared);
        let mut groups = Groups {
            schema: Arc::clone(schema),
            tables: shared.tables_of(part, parts).collect::<Vec<usize>>().into_iter(),
            shared,
            entries: Vec::new(),
            nulls: 0,
            returned: 0,
            bytes: 0,
            batch_size,
        };
        let batches = std::iter::from_fn(move || groups.next_batch().transpose());
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), stream::iter(batches)))
    }

    /// DataFusion's operators over the groups found so far and the rest of the input.
    fn resume(&self, context: &Arc<TaskContext>) -> Result<Arc<dyn ExecutionPlan>> {
        self.handed_over.add(1);
        let rests = std::mem::take(&mut *self.rests.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut unread, mut collected) = (Vec::new(), Vec::new());
        for rest in rests {
            let schema = rest.input.schema();
            let rows = stream::iter(rest.batch.map(Ok)).chain(rest.input);
            unread.push(Box::pin(RecordBatchStreamAdapter::new(schema, rows)) as SendableRecordBatchStream);
            collected.push(rest.collected);
        }
        let parts = unread.len();
        let input = streams_as_leaf(&self.plan.input.schema(), unread)?;
        let partial = replace_children_if_necessary(Arc::clone(&self.plan.partial), vec![input])?;
        let (schema, batch_size) = (partial.schema(), context.session_config().batch_size());
        let mut grouped = Vec::with_capacity(parts);
        for (part, collected) in collected.into_iter().enumerate() {
            let (shared, shape) = (Arc::clone(&self.shared), Arc::clone(&schema));
            let collected = collected.into_iter().map(move |(nulls, entries)| {
                let batch = batch_of(&shared.layout, &shape, nulls, &entries, shared.texts.all());
                shared.reservation.shrink(bytes_of(&entries));
                batch
            });
            let rows = stream::iter(collected).chain(self.tables(&schema, (part, parts), batch_size));
            let rows = rows.chain(partial.execute(part, Arc::clone(context))?);
            grouped
                .push(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows)) as SendableRecordBatchStream);
        }
        let grouped = streams_as_leaf(&schema, grouped)?;
        let repartition = replace_children_if_necessary(Arc::clone(&self.plan.repartition), vec![grouped])?;
        replace_children_if_necessary(Arc::clone(&self.plan.complete), vec![repartition])
    }
}

/// Groups from tables, batch by batch.
struct Groups<E> {
    shared: Arc<Shared<E>>,
    schema: SchemaRef,
    tables: std::vec::IntoIter<usize>,
    /// Of the tables that were taken, those with the same null columns.
    entries: Vec<E>,
    nulls: u8,
    /// How many of the entries were returned.
    returned: usize,
    /// What the tables of the entries had reserved.
    bytes: usize,
    batch_size: usize,
}

impl<E: Entry> Groups<E> {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let left = self.entries.len() - self.returned;
            let next = self.tables.as_slice().first().filter(|next| left == 0 || nulls_of(**next) == self.nulls);
            if left >= self.batch_size || (left > 0 && next.is_none()) {
                let entries = &self.entries[self.returned..][..left.min(self.batch_size)];
                self.returned += entries.len();
                let (layout, texts) = (&self.shared.layout, self.shared.texts.all());
                return batch_of(layout, &self.schema, self.nulls, entries, texts).map(Some);
            }
            self.entries.drain(..self.returned);
            self.returned = 0;
            self.shared.reservation.shrink(std::mem::take(&mut self.bytes));
            let Some(table) = self.tables.next() else { return Ok(None) };
            self.nulls = nulls_of(table);
            let table = self.shared.take(table);
            self.bytes = table.bytes();
            self.entries.extend(table.entries());
        }
    }
}

/// Groups as rows.
fn batch_of<E: Entry>(
    layout: &Layout,
    schema: &SchemaRef,
    nulls: u8,
    entries: &[E],
    texts: &StringViewArray,
) -> Result<RecordBatch> {
    let keys: Vec<E::Key> = entries.iter().map(|entry| entry.key()).collect();
    let mut columns = layout.decode(&keys, nulls, texts)?;
    if E::COUNTED {
        columns.push(Arc::new(Int64Array::from_iter_values(entries.iter().map(|entry| entry.rows() as i64))));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}
