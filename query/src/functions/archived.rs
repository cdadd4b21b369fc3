//! `archived('collection')`: what has expired and was moved to the collection's archive, and what is still stored here until it is.

use crate::context::{CATALOG, COLLECTIONS, StatementContext};
use crate::error::external;
use crate::exec::conform;
use crate::leaf::{leaf_methods, leaf_properties};
use crate::provider::CollectionTable;
use crate::scan_spec::ScanSpec;
use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use ebbtide_buckets::to_usize;
use std::fmt;
use std::sync::Arc;

/// Batches that wait for whoever reads them.
const BATCHES_AHEAD: usize = 2;

/// The table function.
#[derive(Debug)]
pub(super) struct Archived;

impl TableFunctionImpl for Archived {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let Some(name) = super::collection_argument(&args) else {
            return plan_err!("archived(collection) takes the name of a collection: archived('weather')");
        };
        let context = StatementContext::of(args.session().config())?;
        let Ok(snapshot) = context.snapshot().collection(&name) else {
            return plan_err!("table '{CATALOG}.{COLLECTIONS}.{name}' not found");
        };
        if snapshot.options().expire_into.is_none() {
            return plan_err!(
                "collection '{name}' has no archive: ALTER COLLECTION {name} EXPIRE AFTER 30 DAYS INTO 'URL' gives it one"
            );
        }
        Ok(Arc::new(ArchivedTable(CollectionTable::new(&snapshot))))
    }
}

/// The archived measurements of a collection. Like the collection's own table, it reads the snapshot of the statement that is
/// planned.
#[derive(Debug)]
struct ArchivedTable(CollectionTable);

#[async_trait]
impl TableProvider for ArchivedTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Conditions leave out files and parts of files, not single rows.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let rules = self.0.planned.rules();
        let supports = |filter: &&Expr| match rules.supports(filter) {
            TableProviderFilterPushDown::Unsupported => TableProviderFilterPushDown::Unsupported,
            _ => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(supports).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let spec = self.0.spec(state, projection, filters)?;
        let properties = leaf_properties(&spec.schema, 1, EmissionType::Incremental);
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(ArchivedExec { spec: Arc::new(spec), properties, metrics }))
    }
}

/// Reads what has expired of a collection: what is still stored here, and then the archive.
#[derive(Debug)]
struct ArchivedExec {
    spec: Arc<ScanSpec>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// What `EXPLAIN ANALYZE` shows of an archive.
struct Counts {
    files: Count,
    files_skipped: Count,
    requests: Count,
    bytes: Count,
    cached: Count,
}

impl Counts {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Counts {
        let count = |name| MetricBuilder::new(metrics).counter(name, partition);
        Counts {
            files: count("archive_files"),
            files_skipped: count("archive_files_skipped"),
            requests: count("archive_requests"),
            bytes: count("archive_bytes_fetched"),
            cached: count("archive_bytes_cached"),
        }
    }
}

/// Gives every batch to `put` until it says no.
fn read(spec: &ScanSpec, counts: &Counts, mut put: impl FnMut(Result<RecordBatch>) -> bool) -> Result<()> {
    for unit in spec.snapshot.expired(&spec.request).map_err(external)? {
        if !put_all(spec, unit.unit.read().map_err(external)?, &mut put) {
            return Ok(());
        }
    }
    let archived = spec.snapshot.archived(&spec.request).map_err(external)?;
    counts.files_skipped.add(to_usize(archived.files_skipped));
    let mut outcome = Ok(());
    for unit in &archived.units {
        counts.files.add(1);
        match unit.read().map_err(external) {
            Ok(batches) => {
                if !put_all(spec, batches, &mut put) {
                    break;
                }
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    counts.requests.add(to_usize(archived.fetched.requests()));
    counts.bytes.add(to_usize(archived.fetched.bytes()));
    counts.cached.add(to_usize(archived.fetched.cached_bytes()));
    outcome
}

/// Gives the batches of a unit to `put`; returns whether it takes more.
fn put_all(
    spec: &ScanSpec,
    mut batches: impl Iterator<Item = ebbtide::Result<RecordBatch>>,
    put: &mut impl FnMut(Result<RecordBatch>) -> bool,
) -> bool {
    batches.all(|batch| put(batch.map_err(external).and_then(|batch| conform(&batch, &spec.schema))))
}

impl DisplayAs for ArchivedExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::TreeRender => f.write_str(&self.spec.to_string().replace(", ", "\n")),
            _ => write!(f, "ArchivedExec: {}", self.spec),
        }
    }
}

impl ExecutionPlan for ArchivedExec {
    leaf_methods!();

    fn name(&self) -> &'static str {
        "ArchivedExec"
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let counts = Counts::new(&self.metrics, partition);
        let spec = Arc::clone(&self.spec);
        // Waiting for another machine must not keep a thread of the runtime.
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&spec.schema), BATCHES_AHEAD);
        let batches = stream.tx();
        stream.spawn_blocking(move || {
            read(&spec, &counts, |batch| {
                if let Ok(batch) = &batch {
                    baseline.record_output(batch.num_rows());
                }
                batches.blocking_send(batch).is_ok()
            })
        });
        Ok(stream.build())
    }
}
