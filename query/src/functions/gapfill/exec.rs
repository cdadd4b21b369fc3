//! The operator that fills gaps.
//!
//! The result of an aggregate is small compared with its input, so each partition is collected and sorted by series and
//! time. The filled rows are produced in batches on demand and are never all in memory.

use super::node::{FillKind, Grid};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, UInt64Array, new_null_array,
};
use datafusion::arrow::compute::{cast, concat_batches, is_not_null, take};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;

/// Adds a row for each bin of a range in which a series has none. Columns are given by their index in the input.
#[derive(Debug, Clone)]
pub(crate) struct GapFillExec {
    pub(crate) input: Arc<dyn ExecutionPlan>,
    pub(crate) schema: SchemaRef,
    pub(crate) time: usize,
    pub(crate) series: Vec<usize>,
    pub(crate) fills: Vec<(usize, FillKind)>,
    pub(crate) grid: Grid,
    pub(crate) range: (i64, i64),
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GapFillExec {
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        schema: SchemaRef,
        (time, series): (usize, Vec<usize>),
        fills: Vec<(usize, FillKind)>,
        grid: Grid,
        range: (i64, i64),
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            input.output_partitioning().clone(),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        GapFillExec { input, schema, time, series, fills, grid, range, properties: Arc::new(properties), metrics }
    }

    /// Sorts the rows of a partition and finds the values that fill its gaps.
    fn arrange(&self, rows: &RecordBatch) -> Result<Filler> {
        let converter = |columns: &[usize]| {
            let fields = columns.iter().map(|i| SortField::new(rows.column(*i).data_type().clone()));
            RowConverter::new(fields.collect())
        };
        let columns: Vec<usize> = self.series.iter().copied().chain([self.time]).collect();
        let keys: Vec<ArrayRef> = columns.iter().map(|i| Arc::clone(rows.column(*i))).collect();
        let keys = converter(&columns)?.convert_columns(&keys)?;
        let mut order: Vec<u64> = (0..rows.num_rows() as u64).collect();
        order.sort_unstable_by_key(|i| keys.row(usize::try_from(*i).unwrap_or(usize::MAX)));
        let order = UInt64Array::from(order);
        let sorted: std::result::Result<Vec<ArrayRef>, _> =
            rows.columns().iter().map(|c| take(c, &order, None)).collect();
        let sorted = RecordBatch::try_new(rows.schema(), sorted?)?;
        let mut ends = Vec::new();
        if self.series.is_empty() {
            ends.push(sorted.num_rows());
        } else {
            let series: Vec<ArrayRef> = self.series.iter().map(|i| Arc::clone(sorted.column(*i))).collect();
            let series = converter(&self.series)?.convert_columns(&series)?;
            ends.extend((1..sorted.num_rows()).filter(|i| series.row(*i) != series.row(*i - 1)));
            ends.extend((sorted.num_rows() > 0).then_some(sorted.num_rows()));
        }
        let times = cast(sorted.column(self.time), &DataType::Int64)?.as_primitive::<Int64Type>().clone();
        let mut neighbours = Vec::new();
        for (column, _) in &self.fills {
            neighbours.push(Neighbours::of(sorted.column(*column), &ends)?);
        }
        let bins = &self.grid.bins;
        let grid = if self.range.0 <= self.range.1 {
            Some((bins.start(self.range.0)?, bins.start(self.range.1)?))
        } else {
            None
        };
        Ok(Filler {
            plan: self.clone(),
            sorted,
            times,
            neighbours,
            ends,
            grid,
            current: 0,
            row: 0,
            bin: grid.map(|(first, _)| first),
        })
    }
}

/// For each row, the nearest rows of its series, itself included, at which a column has a value.
struct Neighbours {
    before: Vec<Option<usize>>,
    after: Vec<Option<usize>>,
}

impl Neighbours {
    fn of(column: &ArrayRef, ends: &[usize]) -> Result<Self> {
        let valid = is_not_null(column)?;
        let mut before = Vec::with_capacity(valid.len());
        let mut after = vec![None; valid.len()];
        let mut start = 0;
        for end in ends {
            let mut nearest = None;
            before.extend((start..*end).map(|i| {
                nearest = if valid.value(i) { Some(i) } else { nearest };
                nearest
            }));
            nearest = None;
            for i in (start..*end).rev() {
                nearest = if valid.value(i) { Some(i) } else { nearest };
                after[i] = nearest;
            }
            start = *end;
        }
        Ok(Neighbours { before, after })
    }
}

/// Iterates over series and bins, and produces batches.
struct Filler {
    plan: GapFillExec,
    sorted: RecordBatch,
    times: Int64Array,
    neighbours: Vec<Neighbours>,
    /// Row after the last one of each series.
    ends: Vec<usize>,
    /// First and last bin.
    grid: Option<(i64, i64)>,
    /// The current series, its next row, and its next bin.
    current: usize,
    row: usize,
    bin: Option<i64>,
}

/// A row to return: its bin, the input row that it is or would come before, and whether it is that row.
struct Step {
    time: Option<i64>,
    row: usize,
    exists: bool,
    /// A row of the series.
    series: usize,
    start: usize,
    end: usize,
}

impl Filler {
    fn step(&mut self) -> Result<Option<Step>> {
        while let Some(end) = self.ends.get(self.current).copied() {
            let start = self.current.checked_sub(1).map_or(0, |i| self.ends[i]);
            let row = self.row;
            let step = |time, exists| Step { time, row, exists, series: start, start, end };
            let time = (row < end).then(|| self.times.is_valid(row).then(|| self.times.value(row)));
            let (step, bin_done) = match (time, self.bin) {
                // Rows without a time come first, unchanged.
                (Some(None), _) => (step(None, true), false),
                (Some(Some(time)), Some(bin)) if time > bin => (step(Some(bin), false), true),
                (Some(Some(time)), bin) => (step(Some(time), true), bin == Some(time)),
                (None, Some(bin)) => (step(Some(bin), false), true),
                (None, None) => {
                    self.current += 1;
                    self.bin = self.grid.map(|(first, _)| first);
                    continue;
                }
            };
            self.row += usize::from(step.exists);
            if bin_done && let (Some(bin), Some((_, last))) = (self.bin, self.grid) {
                self.bin = if bin < last { Some(self.plan.grid.bins.next(bin)?) } else { None };
            }
            return Ok(Some(step));
        }
        Ok(None)
    }

    fn batch(&mut self, size: usize) -> Result<Option<RecordBatch>> {
        let mut steps = Vec::with_capacity(size);
        while steps.len() < size
            && let Some(step) = self.step()?
        {
            steps.push(step);
        }
        if steps.is_empty() {
            return Ok(None);
        }
        let index = |at: &dyn Fn(&Step) -> Option<usize>| -> UInt64Array {
            steps.iter().map(|s| at(s).map(|i| i as u64)).collect()
        };
        let rows = index(&|s| s.exists.then_some(s.row));
        let series = index(&|s| Some(s.series));
        let mut columns = Vec::with_capacity(self.sorted.num_columns());
        for (i, column) in self.sorted.columns().iter().enumerate() {
            let fill = self.plan.fills.iter().position(|(column, _)| *column == i);
            columns.push(if i == self.plan.time {
                let times: Int64Array = steps.iter().map(|s| s.time).collect();
                cast(&times, column.data_type())?
            } else if column.is_empty() {
                new_null_array(column.data_type(), steps.len())
            } else if self.plan.series.contains(&i) {
                take(column, &series, None)?
            } else if let Some(fill) = fill {
                let near = &self.neighbours[fill];
                match self.plan.fills[fill].1 {
                    FillKind::Locf => take(column, &index(&|s| self.before(near, s)), None)?,
                    FillKind::Interpolate => self.interpolated(column, near, &steps)?,
                }
            } else {
                take(column, &rows, None)?
            });
        }
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.plan.schema), columns)?))
    }

    fn before(&self, near: &Neighbours, step: &Step) -> Option<usize> {
        if step.exists {
            return near.before[step.row];
        }
        if step.row > step.start { near.before[step.row - 1] } else { None }
    }

    #[expect(clippy::cast_precision_loss, reason = "a place on a line between two values")]
    fn interpolated(&self, column: &ArrayRef, near: &Neighbours, steps: &[Step]) -> Result<ArrayRef> {
        let Some(values) = column.as_primitive_opt::<Float64Type>() else {
            return internal_err!("a column of {} to interpolate", column.data_type());
        };
        let filled: Float64Array = steps
            .iter()
            .map(|step| {
                if step.exists && values.is_valid(step.row) {
                    return Some(values.value(step.row));
                }
                let before = self.before(near, step)?;
                let after = (step.row < step.end).then(|| near.after[step.row]).flatten()?;
                let (start, end) = (i128::from(self.times.value(before)), i128::from(self.times.value(after)));
                let part = (i128::from(step.time?) - start) as f64 / (end - start) as f64;
                let (from, to) = (values.value(before), values.value(after));
                Some(from * (1.0 - part) + to * part)
            })
            .collect();
        Ok(Arc::new(filled))
    }
}

impl DisplayAs for GapFillExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |i: &usize| self.schema.field(*i).name().clone();
        let names = |columns: Vec<String>| columns.join(", ");
        write!(
            f,
            "GapFillExec: time=[{}], series=[{}]",
            name(&self.time),
            names(self.series.iter().map(name).collect())
        )?;
        for (kind, label) in [(FillKind::Locf, "locf"), (FillKind::Interpolate, "interpolate")] {
            let columns: Vec<String> = self.fills.iter().filter(|(_, k)| *k == kind).map(|(i, _)| name(i)).collect();
            if !columns.is_empty() {
                write!(f, ", {label}=[{}]", names(columns))?;
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for GapFillExec {
    fn name(&self) -> &'static str {
        "GapFillExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let key = |i: &usize| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new(self.schema.field(*i).name(), *i)) };
        InputDistributionRequirements::new(vec![match self.series[..] {
            [] => Distribution::SinglePartition,
            _ => Distribution::KeyPartitioned(self.series.iter().map(key).collect()),
        }])
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop() else { return internal_err!("GapFillExec without an input") };
        let columns = (self.time, self.series.clone());
        let schema = Arc::clone(&self.schema);
        Ok(Arc::new(GapFillExec::new(input, schema, columns, self.fills.clone(), self.grid.clone(), self.range)))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut input = self.input.execute(partition, Arc::clone(&context))?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let reservation = MemoryConsumer::new("GapFillExec").register(context.memory_pool());
        let size = context.session_config().batch_size();
        let plan = self.clone();
        let filled = async move {
            let mut batches = Vec::new();
            while let Some(batch) = input.try_next().await? {
                // The rows are held twice, unsorted and sorted, plus their keys.
                reservation.try_grow(batch.get_array_memory_size() * 3)?;
                batches.push(batch);
            }
            let rows = concat_batches(&input.schema(), &batches)?;
            let mut filler = plan.arrange(&rows)?;
            let batches = std::iter::from_fn(move || {
                let _held = &reservation;
                let timer = baseline.elapsed_compute().timer();
                let batch = filler.batch(size).transpose();
                timer.done();
                if let Some(Ok(batch)) = &batch {
                    baseline.record_output(batch.num_rows());
                }
                batch
            });
            Ok::<_, datafusion::common::DataFusionError>(futures::stream::iter(batches))
        };
        let stream = futures::stream::once(filled).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream.boxed())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
