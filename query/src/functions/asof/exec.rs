//! The operator of `ASOF JOIN`.
//!
//! The right side is collected once and sorted by time within each key. The left side then streams past it in as many
//! partitions as it has, keeps its order, and finds the partner of each row by a lookup of its key and a binary search.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::{cast, concat_batches, filter_record_batch, take};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type, Schema, SchemaRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, exec_err, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The expressions that both sides are joined by, left before right.
#[derive(Debug, Clone)]
pub(crate) struct Sides {
    pub(crate) keys: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
    pub(crate) times: (Arc<dyn PhysicalExpr>, Operator, Arc<dyn PhysicalExpr>),
    /// A condition on the columns of both sides.
    pub(crate) rest: Option<Arc<dyn PhysicalExpr>>,
    pub(crate) outer: bool,
}

/// Joins each row of the left side with the nearest in time of the right side.
#[derive(Debug)]
pub(crate) struct AsofExec {
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    sides: Arc<Sides>,
    schema: SchemaRef,
    right_side: Arc<OnceCell<Arc<RightSide>>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl AsofExec {
    pub(crate) fn new(
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        sides: Arc<Sides>,
        schema: SchemaRef,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            left.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        AsofExec { left, right, sides, schema, right_side: Arc::default(), properties, metrics }
    }
}

/// A column with -0.0 replaced by 0.0: they are equal but differ in their bytes.
fn one_zero(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(|d| d + 0.0)),
        DataType::Float32 => Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(|d| d + 0.0)),
        _ => Arc::clone(column),
    }
}

/// Calls `visit` with the number of each row and its key as bytes, which are equal where the keys are. Without key columns, every
/// row has the same empty key; a row with a null in a key has none.
fn for_each_key(keys: &[ArrayRef], rows: usize, visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
    if keys.is_empty() {
        (0..rows).for_each(|row| visit(row, Some(&[])));
        return Ok(());
    }
    let fields = keys.iter().map(|k| SortField::new(k.data_type().clone())).collect();
    let converted = RowConverter::new(fields)?.convert_columns(&keys.iter().map(one_zero).collect::<Vec<_>>())?;
    let nulls = keys.iter().fold(None, |nulls, key| NullBuffer::union(nulls.as_ref(), key.logical_nulls().as_ref()));
    for row in 0..rows {
        let known = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        visit(row, known.then(|| converted.row(row).data()));
    }
    Ok(())
}

fn evaluated<'e>(exprs: impl Iterator<Item = &'e Arc<dyn PhysicalExpr>>, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    exprs.map(|e| e.evaluate(batch)?.into_array(batch.num_rows())).collect()
}

fn instants(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<Int64Array> {
    let times = expr.evaluate(batch)?.into_array(batch.num_rows())?;
    let times = match times.data_type() {
        DataType::Date32 => cast(&times, &DataType::Int32)?,
        _ => times,
    };
    Ok(cast(&times, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// The rows of the right side as they come, and the number of the key of each.
#[derive(Debug, Default)]
struct Arriving {
    batches: Vec<RecordBatch>,
    times: Vec<i64>,
    /// `NO_KEY` for rows without a key or a time, which match no row.
    keys: Vec<u32>,
    numbers: HashMap<Box<[u8]>, u32>,
}

const NO_KEY: u32 = u32::MAX;

impl Arriving {
    fn add(&mut self, batch: RecordBatch, sides: &Sides) -> Result<()> {
        let times = instants(&sides.times.2, &batch)?;
        let keys = evaluated(sides.keys.iter().map(|(_, r)| r), &batch)?;
        let mut full = false;
        let mut last: (Vec<u8>, u32) = (Vec::new(), NO_KEY);
        for_each_key(&keys, batch.num_rows(), &mut |row, key| {
            let Some(key) = key.filter(|_| times.is_valid(row)) else {
                self.keys.push(NO_KEY);
                return;
            };
            // Rows of one series usually follow each other.
            if last.1 == NO_KEY || last.0 != key {
                let next = u32::try_from(self.numbers.len()).unwrap_or(NO_KEY);
                full |= next == NO_KEY;
                let number = match self.numbers.get(key) {
                    Some(number) => *number,
                    None => *self.numbers.entry(key.into()).or_insert(next),
                };
                last.0.clear();
                last.0.extend_from_slice(key);
                last.1 = number;
            }
            self.keys.push(last.1);
        })?;
        if full {
            return exec_err!("ASOF JOIN: the right side has more than {NO_KEY} keys");
        }
        self.times.extend_from_slice(times.values());
        self.batches.push(batch);
        Ok(())
    }

    /// Sorts the rows by key and time; those of the same time stay in their order.
    fn sorted(self, schema: &SchemaRef, memory: MemoryReservation) -> Result<RightSide> {
        let mut starts = vec![0; self.numbers.len() + 1];
        for key in self.keys.iter().filter(|key| **key != NO_KEY) {
            starts[*key as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut order = vec![(0, 0); starts.last().copied().unwrap_or(0)];
        for (row, (key, time)) in self.keys.iter().zip(&self.times).enumerate().filter(|(_, (key, _))| **key != NO_KEY)
        {
            let place = &mut next[*key as usize];
            order[*place] = (*time, row as u64);
            *place += 1;
        }
        for range in starts.windows(2) {
            let rows = &mut order[range[0]..range[1]];
            if !rows.is_sorted_by_key(|(time, _)| *time) {
                rows.sort_by_key(|(time, _)| *time);
            }
        }
        let range = |number: u32| starts[number as usize]..starts[number as usize + 1];
        let keys = self.numbers.into_iter().map(|(key, number)| (key, range(number))).collect();
        let rows = concat_batches(schema, &self.batches)?;
        Ok(RightSide { rows, order, keys, _memory: memory })
    }
}

/// The rows of the right side, and their order by key and time.
#[derive(Debug)]
struct RightSide {
    rows: RecordBatch,
    /// The time and the number of each row that has both a key and a time.
    order: Vec<(i64, u64)>,
    keys: HashMap<Box<[u8]>, Range<usize>>,
    _memory: MemoryReservation,
}

impl RightSide {
    /// The number of the row that is nearest to a time among those of a key.
    fn partner(&self, key: &[u8], time: i64, op: Operator) -> Option<u64> {
        let rows = &self.order[self.keys.get(key)?.clone()];
        let at = match op {
            Operator::GtEq => rows.partition_point(|(t, _)| *t <= time).checked_sub(1)?,
            Operator::Gt => rows.partition_point(|(t, _)| *t < time).checked_sub(1)?,
            Operator::LtEq => rows.partition_point(|(t, _)| *t < time),
            _ => rows.partition_point(|(t, _)| *t <= time),
        };
        rows.get(at).map(|(_, row)| *row)
    }

    fn join(&self, left: &RecordBatch, sides: &Sides, schema: &SchemaRef) -> Result<RecordBatch> {
        let times = instants(&sides.times.0, left)?;
        let keys = evaluated(sides.keys.iter().map(|(l, _)| l), left)?;
        let mut partners = Vec::with_capacity(left.num_rows());
        for_each_key(&keys, left.num_rows(), &mut |row, key| {
            let known = key.filter(|_| times.is_valid(row));
            partners.push(known.and_then(|key| self.partner(key, times.value(row), sides.times.1)));
        })?;
        let mut partners = UInt64Array::from(partners);
        let joined = |partners: &UInt64Array| -> Result<Vec<ArrayRef>> {
            let right = self.rows.columns().iter().map(|c| match c.is_empty() {
                true => Ok(new_null_array(c.data_type(), left.num_rows())),
                false => Ok(take(c, partners, None)?),
            });
            left.columns().iter().cloned().map(Ok).chain(right).collect()
        };
        let options = RecordBatchOptions::new().with_row_count(Some(left.num_rows()));
        let batch =
            |columns, schema: &SchemaRef| RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
        // Until rows without a partner are removed, every column of the right side may be null.
        let loose = Arc::new(Schema::new(
            schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect::<Vec<_>>(),
        ));
        if let Some(rest) = &sides.rest {
            let held = rest.evaluate(&batch(joined(&partners)?, &loose)?)?.into_array(left.num_rows())?;
            partners =
                partners.iter().zip(held.as_boolean().iter()).map(|(p, h)| p.filter(|_| h == Some(true))).collect();
        }
        if sides.outer {
            return Ok(batch(joined(&partners)?, schema)?);
        }
        let there: BooleanArray = partners.iter().map(|p| Some(p.is_some())).collect();
        let found = filter_record_batch(&batch(joined(&partners)?, &loose)?, &there)?;
        let options = RecordBatchOptions::new().with_row_count(Some(found.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), found.columns().to_vec(), &options)?)
    }
}

impl DisplayAs for AsofExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides = &self.sides;
        let kind = if sides.outer { "left" } else { "inner" };
        write!(f, "AsofExec: {kind}, {} {} {}", sides.times.0, sides.times.1, sides.times.2)?;
        for (left, right) in &sides.keys {
            write!(f, ", {left} = {right}")?;
        }
        sides.rest.as_ref().map_or(Ok(()), |rest| write!(f, ", then {rest}"))
    }
}

impl ExecutionPlan for AsofExec {
    fn name(&self) -> &'static str {
        "AsofExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.left, &self.right]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::UnspecifiedDistribution, Distribution::SinglePartition])
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let sides = &self.sides;
        let keys = sides.keys.iter().flat_map(|(l, r)| [l, r]);
        for expr in keys.chain([&sides.times.0, &sides.times.2]).chain(&sides.rest) {
            if f(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([left, right]) = <[Arc<dyn ExecutionPlan>; 2]>::try_from(children) else {
            return internal_err!("AsofExec has two inputs");
        };
        Ok(Arc::new(AsofExec::new(left, right, Arc::clone(&self.sides), Arc::clone(&self.schema))))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let left = self.left.execute(partition, Arc::clone(&context))?;
        let (right, sides, schema) = (Arc::clone(&self.right), Arc::clone(&self.sides), Arc::clone(&self.schema));
        let once = Arc::clone(&self.right_side);
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let joined = async move {
            let gather = async {
                let memory = MemoryConsumer::new("AsofExec").register(context.memory_pool());
                let mut stream = right.execute(0, context)?;
                let mut arriving = Arriving::default();
                while let Some(batch) = stream.try_next().await? {
                    // The rows are held twice while they become one batch, plus the key, the time and the place of each.
                    let each = size_of::<u32>() + size_of::<i64>() + size_of::<(i64, u64)>();
                    memory.try_grow(batch.get_array_memory_size() * 2 + batch.num_rows() * each)?;
                    arriving.add(batch, &sides)?;
                }
                Ok::<_, DataFusionError>(Arc::new(arriving.sorted(&right.schema(), memory)?))
            };
            let right_side = Arc::clone(once.get_or_try_init(|| gather).await?);
            Ok::<_, DataFusionError>(left.map(move |batch| {
                let batch = batch?;
                let timer = baseline.elapsed_compute().timer();
                let joined = right_side.join(&batch, &sides, &schema)?;
                timer.done();
                baseline.record_output(joined.num_rows());
                Ok(joined)
            }))
        };
        let stream = futures::stream::once(joined).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream.boxed())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
