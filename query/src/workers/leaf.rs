//! The leaf of a plan that reads a collection, or a share of it.
//!
//! The session makes it without opening a segment. Where it is executed it selects the buckets, in threads that may wait for files.

use super::newest::{self, NewestExec};
use super::share::{Share, shares};
use crate::context::StatementContext;
use crate::error::external;
use crate::exec::{batches_of_units, conform, distributed, record_report};
use crate::functions::archived::batches_of_archives;
use crate::leaf::{leaf_methods, leaf_properties};
use crate::provider::CollectionTable;
use crate::scan_spec::ScanSpec;
use crate::several::state_for;
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use ebbtide::{ArchivePart, ScanUnit, SegmentInfo, TimeRange};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Batches that wait for whoever reads them.
const BATCHES_AHEAD: usize = 2;

/// What of a collection is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// What is visible.
    Visible,
    /// What has expired and is archived, or will be.
    Archived,
    /// The newest visible row of each meta.
    Latest,
}

/// What a leaf reads, in the terms in which it is sent.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) reads: Reads,
    /// The number of the database.
    pub(super) database: usize,
    pub(super) collection: String,
    pub(super) projection: Option<Vec<usize>>,
    pub(super) filters: Vec<Expr>,
    pub(super) limit: Option<usize>,
    pub(super) partitions: usize,
}

/// Reads a collection, or a share of it.
#[derive(Debug)]
pub(super) struct SharedScanExec {
    pub(super) asked: Arc<Asked>,
    /// Everything, if there is none.
    pub(super) share: Option<Share>,
    spec: Arc<ScanSpec>,
    /// The units of each partition, once somebody reads one.
    units: Arc<Mutex<Option<Vec<Vec<ScanUnit>>>>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// A leaf that reads what a scan of a table asks for.
pub(crate) fn shared_scan(
    table: &CollectionTable,
    reads: Reads,
    state: &dyn Session,
    (projection, filters): (Option<&Vec<usize>>, &[Expr]),
    limit: Option<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let asked = Asked {
        reads,
        database: StatementContext::of(state.config())?.number(),
        collection: table.planned.name.clone(),
        projection: projection.cloned(),
        filters: filters.to_vec(),
        limit,
        // With one, DataFusion would plan as if a task had all rows.
        partitions: state.config().target_partitions().max(2),
    };
    let spec = table.spec(state, projection, filters)?;
    Ok(Arc::new(SharedScanExec::new(Arc::new(asked), Arc::new(spec), None)))
}

/// The newest row of each meta: of those in each share.
pub(crate) fn shared_latest(
    table: &CollectionTable,
    state: &dyn Session,
    projection: Option<&Vec<usize>>,
    filters: &[Expr],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let planned = &table.planned;
    let at = |name: &str| planned.arrow.index_of(name).ok();
    let meta = planned.schema.meta.as_deref();
    let (Some(time), column) = (at(&planned.schema.time), meta.and_then(at)) else { return Ok(None) };
    if column.is_some_and(|column| planned.arrow.field(column).data_type().is_null()) {
        return Ok(None);
    }
    let needed: Vec<usize> = column.into_iter().chain([time]).collect();
    let columns = newest::columns(projection, &planned.arrow, &needed);
    let place = |wanted: usize| columns.iter().position(|column| *column == wanted);
    let Some(time) = place(time) else { return Ok(None) };
    let leaf = shared_scan(table, Reads::Latest, state, (Some(&columns), filters), None)?;
    let newest: Arc<dyn ExecutionPlan> = Arc::new(NewestExec::new(leaf, time, column.and_then(place))?);
    let wanted = projection.map_or(planned.arrow.fields().len(), Vec::len);
    if wanted == columns.len() {
        return Ok(Some(newest));
    }
    let schema = newest.schema();
    let column = |at: usize| {
        let name = schema.field(at).name();
        (Arc::new(Column::new(name, at)) as Arc<dyn PhysicalExpr>, name.clone())
    };
    Ok(Some(Arc::new(ProjectionExec::try_new((0..wanted).map(column).collect::<Vec<_>>(), newest)?)))
}

impl SharedScanExec {
    fn new(asked: Arc<Asked>, spec: Arc<ScanSpec>, share: Option<Share>) -> SharedScanExec {
        let properties = leaf_properties(&spec.schema, asked.partitions, EmissionType::Incremental);
        let metrics = ExecutionPlanMetricsSet::new();
        SharedScanExec { asked, share, spec, units: Arc::default(), properties, metrics }
    }

    /// The leaf that was asked for, over the snapshot of the statement that a state plans for.
    pub(super) fn of_asked(asked: Asked, share: Option<Share>, state: &dyn Session) -> Result<SharedScanExec> {
        let context = StatementContext::of(state.config())?.of_database(asked.database)?;
        let state = &state_for(state, Arc::clone(&context))?;
        let collection = context.snapshot().collection(&asked.collection).map_err(external)?;
        let table = CollectionTable::new(&collection, None);
        let mut spec = table.spec(state, asked.projection.as_ref(), &asked.filters)?;
        if let Some(share) = share.as_ref().filter(|_| asked.reads != Reads::Archived) {
            spec.snapshot = spec.snapshot.part(&share.segments, share.is_first()).map_err(external)?;
        }
        Ok(SharedScanExec::new(Arc::new(asked), Arc::new(spec), share))
    }

    /// Whether other machines have something to do.
    pub(super) fn is_worth_sharing(&self) -> bool {
        match self.asked.reads {
            Reads::Visible | Reads::Latest => {
                self.spec.snapshot.segments().iter().any(|segment| may_have(segment, self.spec.request.time))
            }
            Reads::Archived => self.spec.snapshot.archives().iter().any(|archive| archive.version.is_some()),
        }
    }

    /// One leaf for the task of each worker. Together they read what this one does.
    pub(super) fn shared(&self, workers: &[String]) -> Vec<Arc<dyn ExecutionPlan>> {
        let segments = match self.asked.reads {
            Reads::Visible | Reads::Latest => self.spec.snapshot.segments(),
            Reads::Archived => Vec::new(),
        };
        let shares = shares(&segments, workers, |segment| may_have(segment, self.spec.request.time));
        let leaf = |share| SharedScanExec::new(Arc::clone(&self.asked), Arc::clone(&self.spec), Some(share));
        shares.into_iter().map(|share| Arc::new(leaf(share)) as Arc<dyn ExecutionPlan>).collect()
    }

    /// What is read, in words.
    pub(super) fn words(&self) -> String {
        let name = &self.asked.collection;
        let mut text = match self.asked.reads {
            Reads::Visible => {
                let segments = self.spec.snapshot.segments();
                let read = segments.iter().filter(|segment| may_have(segment, self.spec.request.time)).count();
                let s = if segments.len() == 1 { "" } else { "s" };
                format!("reads {name}: {read} of {} segment{s}, and rows in memory", segments.len())
            }
            Reads::Archived => format!("reads what has expired of {name}, from its archives and what is still stored"),
            Reads::Latest => format!("reads the newest bucket of each series of {name}"),
        };
        if let Some(metas) = &self.spec.metas {
            text.push_str(&format!("; the series are chosen by {metas}"));
        }
        if let Some(limit) = self.asked.limit {
            text.push_str(&format!("; ends after {limit} rows"));
        }
        text
    }

    /// Reads a partition, waiting for files.
    fn batches(&self, partition: usize) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + Send>> {
        match self.asked.reads {
            Reads::Visible => {
                let units = self.units_of(partition)?;
                let hidden = MetricBuilder::new(&self.metrics).counter("rows_hidden_by_ttl", partition);
                let hidden = move |rows: u64| hidden.add(usize::try_from(rows).unwrap_or(usize::MAX));
                Ok(Box::new(batches_of_units(units, Arc::clone(&self.spec.schema), self.asked.limit, hidden)))
            }
            Reads::Archived => {
                let (share, part) = (self.share.clone(), ArchivePart { number: partition, of: self.asked.partitions });
                let has_stored = share.as_ref().is_none_or(Share::is_first);
                let has_file = move |name: &str| share.as_ref().is_none_or(|share| share.has_file(name));
                batches_of_archives(&self.spec, &self.metrics, part, has_stored, has_file)
            }
            Reads::Latest if partition == 0 => {
                let spec = Arc::clone(&self.spec);
                Ok(Box::new(std::iter::once_with(move || {
                    conform(&spec.snapshot.last_points(&spec.request).map_err(external)?, &spec.schema)
                })))
            }
            Reads::Latest => Ok(Box::new(std::iter::empty())),
        }
    }

    /// The units of a partition. Whoever comes first selects all of them.
    fn units_of(&self, partition: usize) -> Result<Vec<ScanUnit>> {
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        if units.is_none() {
            let (selected, report) = self.spec.snapshot.scan_reported(&self.spec.request).map_err(external)?;
            record_report(&self.metrics, &report);
            *units = Some(distributed(selected, self.asked.limit, self.asked.partitions));
        }
        Ok(units.as_ref().and_then(|units| units.get(partition).cloned()).unwrap_or_default())
    }

    /// A copy that shares what this one has selected and counts.
    fn handle(&self) -> SharedScanExec {
        SharedScanExec {
            asked: Arc::clone(&self.asked),
            share: self.share.clone(),
            spec: Arc::clone(&self.spec),
            units: Arc::clone(&self.units),
            properties: Arc::clone(&self.properties),
            metrics: self.metrics.clone(),
        }
    }
}

/// Whether a segment may have rows of these times.
fn may_have(segment: &SegmentInfo, time: TimeRange) -> bool {
    let (Some(first), Some(last)) = (segment.first_time, segment.last_time) else { return false };
    time.first().is_none_or(|from| last >= from) && time.last().is_none_or(|to| first <= to)
}

impl DisplayAs for SharedScanExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if kind == DisplayFormatType::TreeRender {
            return f.write_str(&self.spec.to_string().replace(", ", "\n"));
        }
        write!(f, "SharedScanExec: {}", self.spec)?;
        match self.asked.reads {
            Reads::Visible => {}
            Reads::Archived => f.write_str(", archived")?,
            Reads::Latest => f.write_str(", latest")?,
        }
        if let Some(share) = &self.share {
            let worker = share.workers.get(share.task).map_or("", String::as_str);
            write!(f, ", worker={worker}")?;
            if self.asked.reads != Reads::Archived {
                write!(f, ", segments={}", share.segments.len())?;
            }
        }
        self.asked.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for SharedScanExec {
    leaf_methods!();

    fn name(&self) -> &'static str {
        "SharedScanExec"
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.spec.schema), BATCHES_AHEAD);
        let (leaf, reader) = (self.handle(), stream.tx());
        stream.spawn_blocking(move || {
            let mut batches = leaf.batches(partition)?;
            let mut next = || {
                let timer = baseline.elapsed_compute().timer();
                let next = batches.next();
                timer.done();
                next
            };
            while let Some(batch) = next() {
                let is_last = batch.is_err();
                if let Ok(batch) = &batch {
                    baseline.record_output(batch.num_rows());
                }
                if reader.blocking_send(batch).is_err() || is_last {
                    break;
                }
            }
            Ok::<(), DataFusionError>(())
        });
        Ok(stream.build())
    }

    fn statistics_from_inputs(&self, _input: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.spec.schema);
        if self.asked.reads == Reads::Visible {
            let segments = self.spec.snapshot.segments();
            let read = segments.iter().filter(|segment| may_have(segment, self.spec.request.time));
            let rows: u64 = read.map(|segment| segment.rows).sum();
            let parts = if args.partition().is_some() { self.asked.partitions } else { 1 };
            let rows = usize::try_from(rows).unwrap_or(usize::MAX) / parts;
            statistics.num_rows = Precision::Inexact(self.asked.limit.map_or(rows, |limit| rows.min(limit)));
        }
        Ok(Arc::new(statistics))
    }
}
