//! The operator: rows come in order of their partitions, and go with what their frames hold.

use super::keys::{keys, ordered};
use super::slide::{Order, Slide};
use super::spec::{Spec, Unit, check};
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::compute::{SortOptions, concat, partition};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{OrderingRequirements, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, InputOrderMode, PlanProperties,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Aggregates over frames.
#[derive(Debug)]
pub(crate) struct FrameExec {
    /// What this stands for: it says what rows it needs, and what it gives.
    original: Arc<dyn ExecutionPlan>,
    plan: Arc<Plan>,
    metrics: ExecutionPlanMetricsSet,
}

#[derive(Debug)]
struct Plan {
    specs: Vec<Spec>,
    names: Vec<String>,
    partition_by: Vec<Arc<dyn PhysicalExpr>>,
    order_by: Vec<PhysicalSortExpr>,
    schema: SchemaRef,
}

impl FrameExec {
    /// In the place of a window of DataFusion; `None` if it does something else. [`Spec::of`] says what `fast` is.
    pub(super) fn of(node: &Arc<dyn ExecutionPlan>, fast: bool) -> Option<FrameExec> {
        let windows = windows(node)?;
        let input = Arc::clone(node.children().first()?);
        let first = windows.first()?;
        let specs =
            windows.iter().map(|window| Spec::of(window, &input.schema(), fast)).collect::<Option<Vec<Spec>>>()?;
        let names = windows.iter().map(|window| {
            let (name, frame) = (window.name(), window.get_window_frame().to_string());
            if name.ends_with(&frame) { name.to_owned() } else { format!("{name} {frame}") }
        });
        let names = names.collect();
        let plan = Plan {
            specs,
            names,
            partition_by: first.partition_by().to_vec(),
            order_by: first.order_by().to_vec(),
            schema: node.schema(),
        };
        Some(FrameExec { original: Arc::clone(node), plan: Arc::new(plan), metrics: ExecutionPlanMetricsSet::new() })
    }
}

/// The functions of a window whose rows come sorted.
fn windows(node: &Arc<dyn ExecutionPlan>) -> Option<&[Arc<dyn WindowExpr>]> {
    match (node.downcast_ref::<BoundedWindowAggExec>(), node.downcast_ref::<WindowAggExec>()) {
        (Some(window), _) if window.input_order_mode == InputOrderMode::Sorted => Some(window.window_expr()),
        (None, Some(window)) => Some(window.window_expr()),
        _ => None,
    }
}

/// A window of which [`FrameExec`] computes some functions and DataFusion the others, as one with the first below one with the
/// others; `None` if it computes all or none.
///
/// # Errors
/// If DataFusion would answer one of the others wrongly.
pub(super) fn apart(node: &Arc<dyn ExecutionPlan>, fast: bool) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (Some(windows), Some(input)) = (windows(node), node.children().first().copied()) else { return Ok(None) };
    let schema = input.schema();
    windows.iter().try_for_each(|window| check(window, &schema))?;
    let is_frame = |window: &&Arc<dyn WindowExpr>| Spec::of(window, &schema, fast).is_some();
    let (frames, others): (Vec<_>, Vec<_>) = windows.iter().partition(is_frame);
    if frames.is_empty() || others.is_empty() {
        return Ok(None);
    }
    let over = |windows: &[&Arc<dyn WindowExpr>], input: Arc<dyn ExecutionPlan>| -> Result<Arc<dyn ExecutionPlan>> {
        let windows = windows.iter().copied().map(Arc::clone).collect();
        Ok(match node.downcast_ref::<BoundedWindowAggExec>() {
            Some(_) => Arc::new(BoundedWindowAggExec::try_new(windows, input, InputOrderMode::Sorted, true)?),
            None => Arc::new(WindowAggExec::try_new(windows, input, true)?),
        })
    };
    let Some(frame) = FrameExec::of(&over(&frames, Arc::clone(input))?, fast) else { return Ok(None) };
    let computed = over(&others, Arc::new(frame))?;
    let (mut next_frame, mut next_other) = (schema.fields().len(), schema.fields().len() + frames.len());
    let of_windows = windows.iter().map(|window| {
        let next = if is_frame(&window) { &mut next_frame } else { &mut next_other };
        *next += 1;
        *next - 1
    });
    let columns: Vec<usize> = (0..schema.fields().len()).chain(of_windows).collect();
    let columns = columns.into_iter().map(|at| {
        let name = computed.schema().field(at).name().clone();
        (Arc::new(Column::new(&name, at)) as Arc<dyn PhysicalExpr>, name)
    });
    let columns = columns.collect::<Vec<_>>();
    Ok(Some(Arc::new(ProjectionExec::try_new(columns, computed)?)))
}

impl DisplayAs for FrameExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameExec: {}", self.plan.names.join(", "))
    }
}

impl ExecutionPlan for FrameExec {
    fn name(&self) -> &'static str {
        "FrameExec"
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
        vec![true]
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
        match FrameExec::of(&original, true) {
            Some(exec) => Ok(Arc::new(exec)),
            None => Ok(original),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, part: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(input) = self.original.children().first().map(|input| Arc::clone(input)) else {
            return internal_err!("FrameExec without an input");
        };
        let input = input.execute(part, Arc::clone(&context))?;
        let reservation = MemoryConsumer::new("FrameExec").register(context.memory_pool());
        let baseline = BaselineMetrics::new(&self.metrics, part);
        let frames = Frames::new(Arc::clone(&self.plan), reservation);
        let state = (input, frames, baseline, false);
        let batches = stream::try_unfold(state, |(mut input, mut frames, baseline, mut ended)| async move {
            loop {
                if let Some(batch) = frames.ready()? {
                    baseline.record_output(batch.num_rows());
                    return Ok(Some((batch, (input, frames, baseline, ended))));
                }
                if ended {
                    return Ok(None);
                }
                let batch = input.try_next().await?;
                let timer = baseline.elapsed_compute().timer();
                match batch {
                    Some(batch) => frames.add(batch)?,
                    None => {
                        frames.advance(true)?;
                        ended = true;
                    }
                }
                timer.done();
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.plan.schema), batches.boxed())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The rows that are being answered.
struct Frames {
    plan: Arc<Plan>,
    reservation: MemoryReservation,
    slides: Vec<Slide>,
    order: Order,
    /// The number of the last row's group of equals.
    peer: i128,
    /// The last row's partition, and its order.
    last: Option<(Vec<ArrayRef>, Vec<ArrayRef>)>,
    /// Batches with rows that have no answer yet.
    waiting: VecDeque<RecordBatch>,
    waiting_bytes: usize,
}

impl Frames {
    fn new(plan: Arc<Plan>, reservation: MemoryReservation) -> Self {
        let slides = plan.specs.iter().cloned().map(Slide::new).collect();
        Frames {
            plan,
            reservation,
            slides,
            order: Order::default(),
            peer: 0,
            last: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    fn uses(&self, unit: Unit) -> bool {
        self.plan.specs.iter().any(|spec| spec.unit == unit)
    }

    /// Takes further rows.
    fn add(&mut self, batch: RecordBatch) -> Result<()> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(());
        }
        let evaluated = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(&batch)?.into_array(rows);
        let partition_by = self.plan.partition_by.iter().map(evaluated).collect::<Result<Vec<ArrayRef>>>()?;
        let order_by = self.plan.order_by.iter().map(|by| evaluated(&by.expr)).collect::<Result<Vec<ArrayRef>>>()?;
        let args =
            self.plan.specs.iter().map(|spec| spec.args.iter().map(evaluated).collect::<Result<Vec<ArrayRef>>>());
        let args = args.collect::<Result<Vec<_>>>()?;
        let order = if self.uses(Unit::Order) { Some(self.order_of(&order_by)?) } else { None };
        let keys = order.as_ref().map_or(Ok(Vec::new()), |(values, by)| keys(values, *by))?;
        let all: Vec<ArrayRef> = partition_by.iter().chain(&order_by).cloned().collect();
        let peers = if self.uses(Unit::Peers) { ranges(&all, rows)? } else { Vec::new() };
        let mut peers = peers.into_iter().peekable();
        let (same_partition, same_order) = match &self.last {
            Some((partition, order)) => (equal(partition, &partition_by)?, equal(order, &order_by)?),
            None => (true, false),
        };
        for (at, range) in ranges(&partition_by, rows)?.into_iter().enumerate() {
            if at > 0 || !same_partition {
                self.next_partition()?;
            }
            if self.uses(Unit::Peers) {
                while let Some(group) = peers.next_if(|group| group.start < range.end) {
                    let goes_on = group.start == 0 && same_partition && same_order;
                    self.peer += i128::from(!goes_on);
                    group.for_each(|_| self.order.peers.push(self.peer));
                }
            }
            keys.get(range.clone()).unwrap_or_default().iter().for_each(|key| self.order.values.push(*key));
            self.order.rows += range.len();
            let of_range = |column: &ArrayRef| column.slice(range.start, range.len());
            let order = order.as_ref().map(|(values, by)| (of_range(values), *by));
            for (slide, args) in self.slides.iter_mut().zip(&args) {
                slide.add(&args.iter().map(of_range).collect::<Vec<_>>(), order.as_ref())?;
            }
            self.advance(false)?;
        }
        let last = |columns: &[ArrayRef]| columns.iter().map(|column| column.slice(rows - 1, 1)).collect();
        self.last = Some((last(&partition_by), last(&order_by)));
        self.waiting_bytes += batch.get_array_memory_size();
        self.waiting.push_back(batch);
        self.account()
    }

    fn account(&mut self) -> Result<()> {
        let slides: usize = self.slides.iter().map(Slide::bytes).sum();
        self.reservation.try_resize(self.waiting_bytes + slides + self.order.values.bytes() + self.order.peers.bytes())
    }

    /// What rows are ordered by, and how.
    fn order_of(&self, order_by: &[ArrayRef]) -> Result<(ArrayRef, SortOptions)> {
        match (order_by.first(), self.plan.order_by.first()) {
            (Some(values), Some(by)) => Ok((ordered(values)?, by.options)),
            _ => internal_err!("a frame of values without an order"),
        }
    }

    fn next_partition(&mut self) -> Result<()> {
        self.advance(true)?;
        self.slides.iter_mut().for_each(Slide::restart);
        self.order.rows = 0;
        self.order.values.clear();
        self.order.peers.clear();
        Ok(())
    }

    fn advance(&mut self, closed: bool) -> Result<()> {
        for slide in &mut self.slides {
            slide.advance(&self.order, closed)?;
        }
        let of = |unit| self.slides.iter().filter(move |slide| slide.spec().unit == unit);
        let from = |unit| of(unit).map(Slide::looks_from).min().unwrap_or(0);
        let (values, peers) = (from(Unit::Order), from(Unit::Peers));
        self.order.values.forget(values);
        self.order.peers.forget(peers);
        Ok(())
    }

    /// The next batch with all its answers.
    fn ready(&mut self) -> Result<Option<RecordBatch>> {
        let answered = self.slides.iter().map(Slide::answered).min().unwrap_or_default();
        let Some(batch) = self.waiting.pop_front_if(|batch| batch.num_rows() <= answered) else { return Ok(None) };
        self.waiting_bytes -= batch.get_array_memory_size();
        let mut columns = batch.columns().to_vec();
        for slide in &mut self.slides {
            columns.push(slide.take(batch.num_rows())?);
        }
        self.account()?;
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.plan.schema), columns)?))
    }
}

/// Runs of rows that are equal in all columns.
fn ranges(columns: &[ArrayRef], rows: usize) -> Result<Vec<std::ops::Range<usize>>> {
    if columns.is_empty() {
        return Ok(std::iter::once(0..rows).collect());
    }
    Ok(partition(columns)?.ranges())
}

/// Whether the one row of some columns equals the first row of others.
fn equal(one: &[ArrayRef], others: &[ArrayRef]) -> Result<bool> {
    let both = one.iter().zip(others).map(|(one, other)| concat(&[one.as_ref(), other.slice(0, 1).as_ref()]));
    let both = both.collect::<Result<Vec<ArrayRef>, _>>()?;
    Ok(ranges(&both, 2)?.len() == 1)
}
