//! The leaf of a plan that reads the visible rows of a collection, as of its statement's snapshot.

use crate::context::ScanRecord;
use crate::error::external;
use crate::join_filter::{JoinFilter, is_of_meta};
use crate::leaf::{leaf_methods, leaf_properties};
use crate::scan_spec::ScanSpec;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::stats::Precision as StatsPrecision;
use datafusion::common::{Result, Statistics, exec_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use ebbtide::{FirstRows, ScanReport, ScanRequest, ScanUnit};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

/// Selecting buckets once more, for a join or for the first rows of an order, takes longer than reading this many rows.
const ROWS_WORTH_A_SELECTION: u64 = 1 << 15;

/// Numbers for texts take longer than hashing the texts of fewer rows.
const ROWS_WORTH_NUMBERS: u64 = 1 << 13;
/// The same for runs of fewer rows.
const RUN_ROWS_MIN: u64 = 8;
/// The numbered texts of up to this many series are held in memory, whatever the limit.
const NUMBERED_METAS_MAX: u64 = 1 << 14;

/// Whether an expression is a column, or a member of one.
fn is_part(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let call = expr.downcast_ref::<ScalarFunctionExpr>().filter(|call| call.name() == "get_field");
    expr.is::<Column>() || call.and_then(|call| call.args().first()).is_some_and(is_part)
}

/// Reads a collection.
#[derive(Debug)]
pub(crate) struct BucketScanExec {
    spec: Arc<ScanSpec>,
    schema: SchemaRef,
    partitions: Vec<Vec<ScanUnit>>,
    report: ScanReport,
    record: Arc<ScanRecord>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    joined: Option<Arc<JoinedScan>>,
    /// The first rows of an order, if other rows need not be read.
    first: Option<FirstRows>,
}

/// Reads only the metas that a join needs. They are known when the first row is read.
#[derive(Debug)]
struct JoinedScan {
    spec: Arc<ScanSpec>,
    filter: JoinFilter,
    limit: Option<usize>,
    /// The numbers of partitions and buckets without the join.
    partitions: usize,
    buckets: u64,
    skipped: Count,
    units: OnceLock<Result<Vec<Vec<ScanUnit>>, ebbtide::Error>>,
}

impl BucketScanExec {
    /// Distributes `units` over partitions with about equal numbers of rows.
    pub(crate) fn new(
        spec: Arc<ScanSpec>,
        units: Vec<ScanUnit>,
        report: ScanReport,
        record: Arc<ScanRecord>,
        limit: Option<usize>,
        partitions_wanted: usize,
    ) -> Self {
        let partitions = distributed(units, limit, partitions_wanted);
        let schema = Arc::clone(&spec.schema);
        let properties = leaf_properties(&schema, partitions.len(), EmissionType::Incremental);
        let metrics = ExecutionPlanMetricsSet::new();
        record_report(&metrics, &report);
        BucketScanExec {
            spec,
            schema,
            partitions,
            report,
            record,
            limit,
            properties,
            metrics,
            joined: None,
            first: None,
        }
    }

    /// The same scan, of those metas only that a join by this key needs; `None` if the key is not computed from the meta alone, or
    /// there are few rows.
    pub(crate) fn with_join(
        &self,
        key: Arc<dyn PhysicalExpr>,
        filter: &Arc<DynamicFilterPhysicalExpr>,
    ) -> Result<Option<Self>> {
        let rows = self.rows_max();
        let (Some(meta), None, None) = (self.meta(), &self.joined, &self.first) else { return Ok(None) };
        let Some(filter) = JoinFilter::new(meta, key, filter)?.filter(|_| rows >= ROWS_WORTH_A_SELECTION) else {
            return Ok(None);
        };
        let metrics = ExecutionPlanMetricsSet::new();
        record_report(&metrics, &self.report);
        let joined = JoinedScan {
            spec: Arc::clone(&self.spec),
            filter,
            limit: self.limit,
            partitions: self.partitions.len(),
            buckets: self.report.buckets,
            skipped: MetricBuilder::new(&metrics).global_counter("buckets_skipped_by_join"),
            units: OnceLock::new(),
        };
        Ok(Some(BucketScanExec {
            spec: Arc::clone(&self.spec),
            schema: Arc::clone(&self.schema),
            partitions: self.partitions.clone(),
            report: self.report,
            record: Arc::clone(&self.record),
            limit: self.limit,
            properties: Arc::clone(&self.properties),
            joined: Some(Arc::new(joined)),
            metrics,
            first: None,
        }))
    }
}

impl BucketScanExec {
    fn rows_max(&self) -> u64 {
        self.partitions.iter().flatten().map(ScanUnit::rows_estimate).sum()
    }

    /// The column of metas, if it is read.
    fn meta(&self) -> Option<&Field> {
        let meta = self.spec.snapshot.schema().meta.as_ref()?;
        self.schema.field_with_name(meta).ok()
    }

    /// Whether many rows are read, in long runs of one value of an expression, which is the meta or a member of it. There are at
    /// most [`NUMBERED_METAS_MAX`] values.
    pub(crate) fn has_long_runs(&self, expr: &Arc<dyn PhysicalExpr>) -> bool {
        // Each bucket has one meta.
        let (rows, buckets) = (self.rows_max(), self.report.buckets);
        let are_long = rows >= ROWS_WORTH_NUMBERS && rows >= buckets * RUN_ROWS_MIN && buckets <= NUMBERED_METAS_MAX;
        are_long && is_part(expr) && self.meta().is_some_and(|meta| is_of_meta(expr, meta))
    }

    /// The same scan without buckets that contain none of these rows; `None` if all may contain some, or there are few rows.
    pub(crate) fn with_first(&self, first: FirstRows) -> Result<Option<Self>> {
        let rows = self.rows_max();
        let changed = self.limit.is_some() || self.joined.is_some() || self.first.is_some();
        let column = self.schema.field_with_name(&first.column)?.data_type();
        let has_bounds = matches!(column, DataType::Timestamp(..) | DataType::Int64 | DataType::Float64);
        if changed || !has_bounds || rows < ROWS_WORTH_A_SELECTION {
            return Ok(None);
        }
        let request = ScanRequest { first: Some(first.clone()), ..self.spec.request.clone() };
        let (units, report) = self.spec.snapshot.scan_reported(&request).map_err(external)?;
        if report.buckets == self.report.buckets {
            return Ok(None);
        }
        let (spec, record) = (Arc::clone(&self.spec), Arc::clone(&self.record));
        let scan = BucketScanExec::new(spec, units, report, record, None, self.partitions.len());
        Ok(Some(BucketScanExec { first: Some(first), ..scan }))
    }
}

impl JoinedScan {
    fn units_of(&self, partition: usize) -> Result<Vec<ScanUnit>> {
        let units = self.units.get_or_init(|| {
            let (units, report) = self.filter.select(&self.spec)?;
            self.skipped.add(usize::try_from(self.buckets.saturating_sub(report.buckets)).unwrap_or(usize::MAX));
            Ok(distributed(units, self.limit, self.partitions))
        });
        match units {
            Ok(units) => Ok(units.get(partition).cloned().unwrap_or_default()),
            Err(error) => Err(external(error.clone())),
        }
    }
}

/// The units that are needed for so many rows, in at most so many partitions with about equal numbers of rows.
pub(crate) fn distributed(
    mut units: Vec<ScanUnit>,
    limit: Option<usize>,
    partitions_wanted: usize,
) -> Vec<Vec<ScanUnit>> {
    if let Some(limit) = limit {
        let mut sure = 0;
        let enough = units.iter().position(|u| {
            sure += if u.rows_exact() { u.rows_estimate() } else { 0 };
            sure >= limit as u64
        });
        units.truncate(enough.map_or(units.len(), |i| i + 1));
    }
    let count = partitions_wanted.clamp(1, units.len().max(1));
    let mut partitions: Vec<(u64, Vec<ScanUnit>)> = (0..count).map(|_| (0, Vec::new())).collect();
    units.sort_by_key(|u| std::cmp::Reverse(u.rows_estimate()));
    for unit in units {
        if let Some((rows, units)) = partitions.iter_mut().min_by_key(|(rows, _)| *rows) {
            *rows += unit.rows_estimate();
            units.push(unit);
        }
    }
    partitions.into_iter().map(|(_, units)| units).collect()
}

/// Counts what a scan reads and skips.
pub(crate) fn record_report(metrics: &ExecutionPlanMetricsSet, report: &ScanReport) {
    let count = |name: &'static str, value: u64| {
        MetricBuilder::new(metrics).global_counter(name).add(usize::try_from(value).unwrap_or(usize::MAX));
    };
    count("segments_read", report.segments);
    count("buckets_read", report.buckets);
    count("buckets_pruned", report.buckets_pruned);
    count("buckets_hidden_by_ttl", report.buckets_hidden);
    count("rows_hidden_by_ttl", report.rows_hidden);
    if report.rows_pruned > 0 {
        count("rows_pruned_by_text", report.rows_pruned);
    }
}

/// The rows of units, at most so many, as batches of this schema; `hidden` is told how many rows of a unit were hidden, once it
/// has been read to its end.
pub(crate) fn batches_of_units(
    units: Vec<ScanUnit>,
    schema: SchemaRef,
    limit: Option<usize>,
    hidden: impl Fn(u64) + Clone + Send + 'static,
) -> impl Iterator<Item = Result<RecordBatch>> + Send {
    let mut left = limit.unwrap_or(usize::MAX);
    let mut batches = units
        .into_iter()
        .flat_map(move |unit| -> Box<dyn Iterator<Item = ebbtide::Result<RecordBatch>> + Send> {
            match unit.read() {
                Ok(batches) => {
                    let (hidden, mut read) = (hidden.clone(), Some(unit));
                    Box::new(batches.chain(std::iter::from_fn(move || {
                        hidden(read.take()?.rows_hidden());
                        None
                    })))
                }
                Err(error) => Box::new(std::iter::once(Err(error))),
            }
        })
        .map(move |batch| conform(&batch.map_err(external)?, &schema));
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        Some(batches.next()?.map(|batch| {
            let batch = if batch.num_rows() > left { batch.slice(0, left) } else { batch };
            left -= batch.num_rows();
            batch
        }))
    })
}

impl BucketScanExec {
    /// What is read and what is not, in words.
    pub(crate) fn words(&self) -> String {
        let ScanReport { segments, buckets, buckets_pruned, buckets_hidden, rows_pruned, .. } = self.report;
        let all_segments = self.spec.snapshot.segments().len();
        let all = buckets + buckets_pruned + buckets_hidden;
        let units = self.partitions.iter().flatten();
        let rows: u64 = units.map(ScanUnit::rows_estimate).sum();
        let s = |is_one: bool| if is_one { "" } else { "s" };
        let mut text = format!(
            "reads {} of {}: {buckets} of {all} bucket{}, in {segments} of {all_segments} segment{} and in memory; about {rows} row{}",
            self.columns_in_words(),
            self.spec.snapshot.name(),
            s(all == 1),
            s(all_segments == 1),
            s(rows == 1)
        );
        if let Some(metas) = &self.spec.metas {
            text.push_str(&format!("; the series are chosen by {metas}"));
        }
        if self.joined.is_some() {
            text.push_str("; only the series that the join needs");
        }
        if let Some(FirstRows { column, descending, rows, .. }) = &self.first {
            let order = if *descending { "greatest" } else { "least" };
            text.push_str(&format!("; only buckets that may contain the {rows} rows with the {order} {column}"));
        }
        if buckets_pruned > 0 {
            let skipped = if buckets_pruned == 1 { "bucket is" } else { "buckets are" };
            text.push_str(&format!("; {buckets_pruned} {skipped} skipped by their times, series or values"));
        }
        if buckets_hidden > 0 {
            text.push_str(&format!("; {buckets_hidden} {} expired", if buckets_hidden == 1 { "is" } else { "are" }));
        }
        if rows_pruned > 0 {
            text.push_str(&format!("; {rows_pruned} rows are skipped by the texts that they must contain"));
        }
        if let Some(limit) = self.limit {
            text.push_str(&format!("; ends after {limit} rows"));
        }
        text
    }

    /// The condition of a join: the join makes it only if it finds it in the plan.
    fn expressions(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        self.joined.as_ref().map(|joined| joined.filter.condition())
    }

    fn columns_in_words(&self) -> String {
        let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        match names.as_slice() {
            [] => "no column".to_owned(),
            names if names.len() <= 6 => names.join(", "),
            names => format!("{} columns", names.len()),
        }
    }
}

impl DisplayAs for BucketScanExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::TreeRender => f.write_str(&self.spec.to_string().replace(", ", "\n")),
            _ => {
                write!(f, "BucketScanExec: {}, partitions={}", self.spec, self.partitions.len())?;
                if self.joined.is_some() {
                    f.write_str(", metas of a join")?;
                }
                if let Some(FirstRows { column, descending, rows, .. }) = &self.first {
                    let order = if *descending { "desc" } else { "asc" };
                    write!(f, ", first={rows} by {column} {order}")?;
                }
                self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
            }
        }
    }
}

impl ExecutionPlan for BucketScanExec {
    leaf_methods!(expressions);

    fn name(&self) -> &'static str {
        "BucketScanExec"
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let hidden = MetricBuilder::new(&self.metrics).counter("rows_hidden_by_ttl", partition);
        let record = Arc::clone(&self.record);
        let planned = self.partitions.get(partition).cloned().unwrap_or_default();
        let joined = self.joined.clone();
        let units = move || joined.map_or(Ok(planned), |joined| joined.units_of(partition));
        let hidden = move |rows: u64| {
            record.add_rows_hidden(rows);
            hidden.add(usize::try_from(rows).unwrap_or(usize::MAX));
        };
        let (schema, limit) = (Arc::clone(&self.schema), self.limit);
        let counted_at_end = CountedAtEnd { spec: Arc::clone(&self.spec), metrics: self.metrics.clone() };
        let mut batches = std::iter::once_with(units).flat_map(move |units| -> Box<dyn Iterator<Item = _> + Send> {
            match units {
                Ok(units) => Box::new(batches_of_units(units, Arc::clone(&schema), limit, hidden.clone())),
                Err(error) => Box::new(std::iter::once(Err(error))),
            }
        });
        let mut counted = std::iter::from_fn(move || {
            let _ = &counted_at_end;
            let timer = baseline.elapsed_compute().timer();
            let next = batches.next();
            timer.done();
            if let Some(Ok(batch)) = &next {
                baseline.record_output(batch.num_rows());
            }
            next
        });
        // A task that waits for another one, such as for the hash table of a join, is woken on that one's thread, in a slot from
        // which tokio lets no other thread steal. So each partition yields once before its first batch.
        let mut begun = self.partitions.len() < 2;
        let stream = futures::stream::poll_fn(move |context| {
            if !std::mem::replace(&mut begun, true) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(counted.next())
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream)))
    }

    fn statistics_from_inputs(&self, _input: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let units = |i: usize| self.partitions.get(i).map(Vec::as_slice).unwrap_or_default();
        let units: Vec<&ScanUnit> = match args.partition() {
            Some(partition) => units(partition).iter().collect(),
            None => self.partitions.iter().flatten().collect(),
        };
        let rows: u64 = units.iter().map(|u| u.rows_estimate()).sum();
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = match self.limit {
            Some(limit) => StatsPrecision::Inexact(rows.min(limit)),
            None if units.iter().all(|u| u.rows_exact()) => StatsPrecision::Exact(rows),
            None => StatsPrecision::Inexact(rows),
        };
        Ok(Arc::new(statistics))
    }
}

/// Counts what was fetched of archives when a part of a scan ends, wherever that is.
struct CountedAtEnd {
    spec: Arc<ScanSpec>,
    metrics: ExecutionPlanMetricsSet,
}

impl Drop for CountedAtEnd {
    fn drop(&mut self) {
        self.spec.count_fetched(&self.metrics);
    }
}

/// A column cast to the type that it had when the plan was made; an error if a value would change.
fn narrowed(column: &ArrayRef, ty: &DataType, name: &str) -> Result<ArrayRef> {
    let narrow = cast(column, ty)?;
    if cast(&narrow, column.data_type())?.as_ref() != column.as_ref() {
        return exec_err!(
            "field '{name}' has become {} since the statement was prepared; prepare the statement or create its view again",
            column.data_type()
        );
    }
    Ok(narrow)
}

/// Converts a batch to the plan's schema: a prepared statement may be older than the last widening of a field, and a
/// meta field without a type is a column of nulls that no batch contains.
pub(crate) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref().fields() == schema.fields() && batch.num_columns() > 0 {
        return Ok(RecordBatch::try_new(Arc::clone(schema), batch.columns().to_vec())?);
    }
    let mut given = batch.columns().iter();
    let columns: Result<Vec<ArrayRef>> = schema
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            DataType::Null => Ok(new_null_array(&DataType::Null, batch.num_rows())),
            ty => match given.next() {
                Some(column) if column.data_type() == ty => Ok(Arc::clone(column)),
                Some(column) => narrowed(column, ty, field.name()),
                None => exec_err!("a scan returned no column '{}'", field.name()),
            },
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns?, &options)?)
}
