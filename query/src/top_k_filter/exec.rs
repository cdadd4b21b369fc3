//! The operator: rows pass, or are dropped.

use super::Partitions;
use super::codes::Codes;
use crate::groups::{KnownTexts, Rows, Texts};
use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{TryStreamExt, stream};
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::sync::Arc;

/// What a partition takes in memory beside its keys: an entry of the hash table with its share of free ones, and the heap's header.
const PARTITION_BYTES: usize = 128;
/// All threads together take at most this part of the pool, an eighth: the sort above needs the rest.
const SHARE: usize = 8;
/// A filter that has dropped less than a tenth of this many rows stops.
const TRIAL_ROWS: usize = 1 << 16;

/// Drops rows that cannot be among the first k of their partition.
#[derive(Debug)]
pub(crate) struct TopKFilterExec {
    input: Arc<dyn ExecutionPlan>,
    codes: Arc<Codes>,
    k: usize,
    metrics: ExecutionPlanMetricsSet,
}

impl TopKFilterExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, codes: Codes, k: usize) -> Self {
        TopKFilterExec { input, codes: Arc::new(codes), k, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// For EXPLAIN.
    pub(crate) fn words(&self) -> String {
        let Partitions { partition_by, order } = self.codes.window();
        let each = partition_by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let each = if each.is_empty() { String::new() } else { format!(" of each {each}") };
        format!("leaves out most rows that are not among the first {}{each}, by {order}", self.k)
    }
}

impl DisplayAs for TopKFilterExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Partitions { partition_by, order } = self.codes.window();
        let by: Vec<String> = partition_by.iter().map(ToString::to_string).collect();
        write!(f, "TopKFilterExec: k={}, partition_by=[{}], order=[{order}]", self.k, by.join(", "))
    }
}

impl ExecutionPlan for TopKFilterExec {
    fn name(&self) -> &'static str {
        "TopKFilterExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let mut told = TreeNodeRecursion::Continue;
        let Partitions { partition_by, order } = self.codes.window();
        for expr in partition_by.iter().chain([&order.expr]) {
            told = told.visit_sibling(|| f(expr))?;
        }
        Ok(told)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else { return internal_err!("TopKFilterExec has one input") };
        let (codes, k) = (Arc::clone(&self.codes), self.k);
        Ok(Arc::new(TopKFilterExec { input, codes, k, metrics: ExecutionPlanMetricsSet::new() }))
    }

    fn execute(&self, part: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (schema, rows) = (self.schema(), context.session_config().batch_size());
        let pool = context.memory_pool();
        let reservation = || MemoryConsumer::new("TopKFilterExec").register(pool);
        let bytes_max = match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes / SHARE / self.properties().partitioning.partition_count().max(1),
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        let output = BatchCoalescer::new(Arc::clone(&schema), rows).with_biggest_coalesce_batch_size(Some(rows / 2));
        let filter = Filter {
            codes: Arc::clone(&self.codes),
            k: self.k,
            seen: 0,
            first: Some(First::new(reservation(), Texts::new(reservation()), bytes_max)),
            output,
            baseline: BaselineMetrics::new(&self.metrics, part),
            dropped: MetricBuilder::new(&self.metrics).counter("rows_dropped", part),
        };
        let state = Some((self.input.execute(part, context)?, filter));
        let batches = stream::try_unfold(state, |state| async move {
            let Some((mut input, mut filter)) = state else { return Ok(None) };
            while !filter.output.has_completed_batch() {
                let Some(batch) = input.try_next().await? else {
                    filter.output.finish_buffered_batch()?;
                    return Ok(filter.next().map(|batch| (batch, None)));
                };
                filter.add(batch)?;
            }
            Ok(filter.next().map(|batch| (batch, Some((input, filter)))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The filter of one thread.
struct Filter {
    codes: Arc<Codes>,
    k: usize,
    /// `None` once it takes too much memory, drops too few rows, or has no numbers left for texts: then all rows pass.
    first: Option<First>,
    seen: usize,
    output: BatchCoalescer,
    baseline: BaselineMetrics,
    dropped: Count,
}

/// The least keys of each partition, as far as rows were seen.
struct First {
    partitions: HashMap<(u128, u8), usize>,
    /// The least k keys of each partition, the greatest of them on top.
    keys: Vec<BinaryHeap<u64>>,
    all_texts: Arc<Texts>,
    texts: KnownTexts,
    reservation: MemoryReservation,
    bytes: usize,
    bytes_max: usize,
    /// Of a batch: the partition of each row, and its key.
    rows: Rows<u128>,
    of_rows: Vec<usize>,
    keys_of_rows: Vec<u64>,
}

impl Filter {
    fn add(&mut self, batch: RecordBatch) -> Result<()> {
        let _timer = self.baseline.elapsed_compute().timer();
        let passes = match &mut self.first {
            Some(first) => first.passes(&batch, &self.codes, self.k)?,
            None => None,
        };
        let Some(passes) = passes else {
            self.first = None;
            return Ok(self.output.push_batch(batch)?);
        };
        let kept = passes.count_set_bits();
        self.dropped.add(batch.num_rows() - kept);
        self.seen += batch.num_rows();
        if self.seen >= TRIAL_ROWS && self.dropped.value() < self.seen / 10 {
            self.first = None;
        }
        match kept == batch.num_rows() {
            true => self.output.push_batch(batch)?,
            false => self.output.push_batch_with_filter(batch, &BooleanArray::new(passes, None))?,
        }
        Ok(())
    }

    fn next(&mut self) -> Option<RecordBatch> {
        let batch = self.output.next_completed_batch()?;
        self.baseline.record_output(batch.num_rows());
        Some(batch)
    }
}

impl First {
    fn new(reservation: MemoryReservation, texts: Texts, bytes_max: usize) -> First {
        let all_texts = Arc::new(texts);
        First {
            partitions: HashMap::new(),
            keys: Vec::new(),
            texts: KnownTexts::new(Arc::clone(&all_texts)),
            all_texts,
            reservation,
            bytes: 0,
            bytes_max,
            rows: Rows::default(),
            of_rows: Vec::new(),
            keys_of_rows: Vec::new(),
        }
    }

    /// Which rows of a batch pass; `None` if this cannot be told any more.
    fn passes(&mut self, batch: &RecordBatch, codes: &Codes, k: usize) -> Result<Option<BooleanBuffer>> {
        if !codes.partitions(batch, &mut self.texts, &mut self.rows)? {
            return Ok(None);
        }
        codes.keys(batch, &mut self.keys_of_rows)?;
        self.of_rows.clear();
        let mut last = None;
        for (row, (partition, key)) in self.rows.keys.iter().zip(&self.keys_of_rows).enumerate() {
            let partition = (*partition, self.rows.nulls.get(row).copied().unwrap_or_default());
            // Rows of one partition often follow each other.
            let number = match last {
                Some((same, number)) if same == partition => number,
                _ => *self.partitions.entry(partition).or_insert_with(|| {
                    self.bytes += PARTITION_BYTES;
                    self.keys.push(BinaryHeap::new());
                    self.keys.len() - 1
                }),
            };
            last = Some((partition, number));
            self.of_rows.push(number);
            let keys = &mut self.keys[number];
            if keys.len() < k {
                self.bytes += size_of::<u64>();
                keys.push(*key);
            } else if let Some(mut greatest) = keys.peek_mut()
                && *key < *greatest
            {
                *greatest = *key;
            }
        }
        // A heap that grows takes up to twice the space of its keys.
        if 2 * self.bytes + self.all_texts.bytes() > self.bytes_max
            || self.reservation.try_resize(2 * self.bytes).is_err()
        {
            return Ok(None);
        }
        let passes = |row: usize| {
            let keys = &self.keys[self.of_rows[row]];
            keys.len() < k || keys.peek().is_none_or(|greatest| self.keys_of_rows[row] <= *greatest)
        };
        Ok(Some(BooleanBuffer::collect_bool(batch.num_rows(), passes)))
    }
}
