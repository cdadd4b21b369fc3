//! A collection as a DataFusion table.
//!
//! The table keeps its name and schema, never data: each scan reads the snapshot of the statement that is being
//! planned. So views and prepared statements see what is visible when they run, not when they were created.

use crate::at_once::{change_at_once, scan_at_once};
use crate::context::StatementContext;
use crate::dml::delete_sink::DeleteSink;
use crate::error::external;
use crate::exec::BucketScanExec;
use crate::named_columns::NamedColumns;
use crate::scan_spec::{PlannedCollection, ScanSpec};
use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use ebbtide::{CollectionSnapshot, ScanReport, ScanUnit};
use std::sync::Arc;

/// A collection.
#[derive(Debug)]
pub(crate) struct CollectionTable {
    pub(crate) planned: PlannedCollection,
}

impl CollectionTable {
    /// A collection with those of its columns that a statement names, or with all.
    pub(crate) fn new(snapshot: &CollectionSnapshot, named: Option<&NamedColumns>) -> Self {
        CollectionTable { planned: PlannedCollection::new(snapshot, named) }
    }

    /// What a scan of these columns with these filters asks the engine for.
    pub(crate) fn spec(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> Result<ScanSpec> {
        let context = StatementContext::of(state.config())?;
        let snapshot = self.planned.in_snapshot(context.snapshot())?;
        ScanSpec::new(&self.planned, snapshot, state, projection, filters)
    }

    /// Such a scan, with the buckets to read selected.
    pub(crate) fn make_scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> Result<ScanTable> {
        let spec = Arc::new(self.spec(state, projection, filters)?);
        let (units, report) = spec.snapshot.scan_reported(&spec.request).map_err(external)?;
        Ok(ScanTable { all: Arc::clone(&self.planned.arrow), spec, units, report })
    }
}

/// A scan of a collection in a plan: the buckets to read are selected, but not yet distributed over partitions.
#[derive(Debug)]
pub(crate) struct ScanTable {
    /// The columns of the collection.
    all: SchemaRef,
    spec: Arc<ScanSpec>,
    units: Vec<ScanUnit>,
    report: ScanReport,
}

impl ScanTable {
    /// Estimated number of rows to read.
    pub(crate) fn rows_estimate(&self) -> u64 {
        self.units.iter().map(ScanUnit::rows_estimate).sum()
    }

    /// Number of buckets to read.
    pub(crate) fn buckets(&self) -> u64 {
        self.report.buckets
    }

    /// The longest time that a bucket covers, in seconds.
    pub(crate) fn span_seconds(&self) -> i64 {
        self.spec.snapshot.options().bucketing.span_seconds()
    }

    /// Whether all bins of time begin at times that the collection can store. The narrowest have this width, in nanoseconds, and no
    /// bin is twice as wide.
    pub(crate) fn can_store_bins(&self, width: u64) -> bool {
        let snapshot = &self.spec.snapshot;
        let unit = 1_000_000_000 / i128::from(snapshot.schema().precision.per_second());
        let is_stored = |time: i128| i64::try_from(time / unit).is_ok();
        snapshot.time_range().is_none_or(|(first, _)| is_stored(first.nanos() - 2 * i128::from(width)))
    }

    fn plan(self, state: &dyn Session, limit: Option<usize>) -> Result<Arc<dyn ExecutionPlan>> {
        // Recorded here: statistics may answer without the scan being executed.
        let record = StatementContext::of(state.config())?.trace().record(&self.spec, &self.report);
        let partitions = state.config().target_partitions();
        Ok(Arc::new(BucketScanExec::new(self.spec, self.units, self.report, record, limit, partitions)))
    }
}

impl ScanTable {
    /// Ignores the projection and the filters: the scan was made with them.
    fn plan_as_made(
        &self,
        state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (all, spec) = (Arc::clone(&self.all), Arc::clone(&self.spec));
        ScanTable { all, spec, units: self.units.clone(), report: self.report }.plan(state, limit)
    }
}

impl TableProvider for ScanTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.all)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    scan_at_once!(plan_as_made);
}

impl CollectionTable {
    fn plan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        #[cfg(feature = "workers")]
        if StatementContext::of(state.config())?.workers().is_some() && !self.planned.is_archived() {
            let reads = crate::workers::Reads::Visible;
            return crate::workers::shared_scan(self, reads, state, (projection, filters), limit);
        }
        self.make_scan(state, projection, filters)?.plan(state, limit)
    }
}

#[async_trait]
impl TableProvider for CollectionTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.planned.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let rules = self.planned.rules();
        Ok(filters.iter().map(|f| rules.supports(f)).collect())
    }

    scan_at_once!(plan);

    async fn insert_into(
        &self,
        _state: &dyn Session,
        _input: Arc<dyn ExecutionPlan>,
        _op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // By now DataFusion has cast the rows to this table's types; `dml` plans an INSERT before that.
        not_impl_err!(
            "this form of INSERT into a collection; write INSERT INTO {} (...) VALUES ... or SELECT ...",
            self.planned.name
        )
    }

    change_at_once!("UPDATE: measurements cannot be changed; DELETE them and INSERT new ones");

    async fn truncate(&self, _state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        not_impl_err!("TRUNCATE: DELETE FROM {} removes every measurement", self.planned.name)
    }
}

/// A batch with the number of rows that a statement changed.
pub(crate) fn count_batch(count: u64) -> Result<RecordBatch> {
    let schema = Arc::new(ArrowSchema::new(vec![Field::new("count", DataType::UInt64, false)]));
    Ok(RecordBatch::try_new(schema, vec![Arc::new(UInt64Array::from(vec![count]))])?)
}
