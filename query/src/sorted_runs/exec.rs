//! The operator: reads all of its input, and sorts it.

use super::runs::{Runs, SortedRuns};
use crate::exec::BucketScanExec;
use crate::leaf::streams_as_leaf;
use crate::top_k_filter::TopKFilterExec;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{LexOrdering, OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::fmt;
use std::sync::Arc;

/// A sort of runs.
#[derive(Debug)]
pub(crate) struct SortRunsExec {
    /// The sort that this replaces: it has the requirements for the input, and the properties of the output.
    original: Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    metrics: ExecutionPlanMetricsSet,
}

impl SortRunsExec {
    /// In the place of a sort of DataFusion; `None` if its rows are not expected to come in runs.
    pub(super) fn of(node: &Arc<dyn ExecutionPlan>) -> Option<SortRunsExec> {
        let sort = node.downcast_ref::<SortExec>()?;
        let time = sort.expr().last()?;
        let is_time = matches!(time.expr.data_type(&node.schema()).ok()?, DataType::Timestamp(..));
        if sort.fetch().is_some() || !is_time || time.options.descending || !returns_runs(sort.input()) {
            return None;
        }
        let (original, order) = (Arc::clone(node), sort.expr().clone());
        Some(SortRunsExec { original, order, metrics: ExecutionPlanMetricsSet::new() })
    }

    /// What rows are sorted by.
    pub(crate) fn order(&self) -> &LexOrdering {
        &self.order
    }
}

/// Whether the rows of a scan come with their runs as the scan returned them.
fn returns_runs(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let keeps_runs = plan.is::<RepartitionExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<TopKFilterExec>()
        || plan.is::<CooperativeExec>();
    match plan.children().as_slice() {
        [] => plan.is::<BucketScanExec>(),
        [input] if keeps_runs => returns_runs(input),
        _ => false,
    }
}

impl DisplayAs for SortRunsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SortRunsExec: expr=[{}]", self.order)
    }
}

impl ExecutionPlan for SortRunsExec {
    fn name(&self) -> &'static str {
        "SortRunsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.original.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.original.children()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.original.input_distribution_requirements()
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.original.required_input_ordering()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.original.maintains_input_order()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.original.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let original = Arc::clone(&self.original).replace_children(children, options)?;
        match SortRunsExec::of(&original) {
            Some(exec) => Ok(Arc::new(exec)),
            None => Ok(original),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, part: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(input) = self.original.children().first().map(|input| Arc::clone(input)) else {
            return internal_err!("SortRunsExec without an input");
        };
        let schema = self.schema();
        let count = |name: &'static str| MetricBuilder::new(&self.metrics).counter(name, part);
        let work = Work {
            input: input.execute(part, Arc::clone(&context))?,
            order: self.order.clone(),
            schema: Arc::clone(&schema),
            reservation: MemoryConsumer::new("SortRunsExec").register(context.memory_pool()),
            baseline: BaselineMetrics::new(&self.metrics, part),
            runs: count("runs"),
            merged: count("rows_merged"),
            resorted: count("rows_sorted_one_by_one"),
            context,
        };
        let batches = stream::once(work.run()).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The sort of one partition.
struct Work {
    input: SendableRecordBatchStream,
    order: LexOrdering,
    schema: SchemaRef,
    reservation: MemoryReservation,
    context: Arc<TaskContext>,
    baseline: BaselineMetrics,
    runs: Count,
    merged: Count,
    resorted: Count,
}

impl Work {
    async fn run(mut self) -> Result<SendableRecordBatchStream> {
        let mut runs = Runs::default();
        // Kept free for DataFusion's sort: what it reserves when it begins, and room for some batches.
        let mut spare = self.context.session_config().options().execution.sort_spill_reservation_bytes;
        let mut fits = self.reservation.try_grow(spare).is_ok();
        let mut largest = 0;
        while fits && let Some(batch) = self.input.try_next().await? {
            let bytes = bytes_of(&batch);
            let room = 4 * bytes.saturating_sub(largest);
            (spare, largest) = (spare + room, largest.max(bytes));
            fits = self.reservation.try_grow(bytes + room).is_ok();
            fits &= self.add(&mut runs, batch)?;
        }
        if !fits {
            return self.sort_rows(runs);
        }
        if runs.count() == 0 {
            return Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema, stream::empty())));
        }
        if !runs.are_long() {
            return self.sort_rows(runs);
        }
        let sorted = self.sorted(runs)?;
        if self.reservation.try_grow(sorted.merge_bytes()).is_err() {
            return self.sort_rows(sorted.into_runs());
        }
        self.reservation.shrink(spare);
        self.merged.add(sorted.overlapping());
        let batches = sorted.into_sorted_batches(Arc::clone(&self.schema), self.context.session_config().batch_size());
        let state = (batches, self.baseline, self.reservation);
        let batches = stream::try_unfold(state, |(mut batches, baseline, reservation)| async move {
            let timer = baseline.elapsed_compute().timer();
            let batch = batches.next_batch()?;
            timer.done();
            Ok(batch.map(|batch| {
                baseline.record_output(batch.num_rows());
                (batch, (batches, baseline, reservation))
            }))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema, batches)))
    }

    /// Adds a batch; `false` if its times have nulls.
    fn add(&self, runs: &mut Runs, batch: RecordBatch) -> Result<bool> {
        let _timer = self.baseline.elapsed_compute().timer();
        runs.add(batch, &self.order)
    }

    fn sorted(&self, runs: Runs) -> Result<SortedRuns> {
        let _timer = self.baseline.elapsed_compute().timer();
        self.runs.add(runs.count());
        runs.sorted(&self.order)
    }

    /// Sorts the rows that were read and those that remain with DataFusion's sort.
    fn sort_rows(self, runs: Runs) -> Result<SendableRecordBatchStream> {
        let (reservation, batches) = (self.reservation, runs.into_batches());
        reservation.shrink(reservation.size().saturating_sub(batches.iter().map(bytes_of).sum()));
        let read = stream::iter(batches).map(move |batch| {
            let bytes = bytes_of(&batch).min(reservation.size());
            reservation.shrink(bytes);
            Ok::<RecordBatch, _>(batch)
        });
        let resorted = self.resorted;
        let rows = read.chain(self.input).inspect_ok(move |batch| resorted.add(batch.num_rows()));
        let rows = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows));
        let sorted = SortExec::new(self.order, streams_as_leaf(&self.schema, vec![rows])?).execute(0, self.context)?;
        let baseline = self.baseline;
        let schema = sorted.schema();
        let sorted = sorted.inspect_ok(move |batch| baseline.record_output(batch.num_rows()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, sorted)))
    }
}

/// The bytes of the rows of a batch, which may share buffers with other batches.
fn bytes_of(batch: &RecordBatch) -> usize {
    let bytes = |column: &ArrayRef| {
        let texts =
            column.as_string_view_opt().map(|views| views.lengths().map(|length| length as usize).sum::<usize>());
        let fixed = column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size());
        fixed + texts.unwrap_or_default()
    };
    batch.columns().iter().map(bytes).sum()
}
