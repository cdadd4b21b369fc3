//! `expired('collection')`: measurements that have expired and are still stored, with the instant and the rule.

use crate::context::{CATALOG, COLLECTIONS, StatementContext};
use crate::error::external;
use crate::exec::conform;
use crate::leaf::{leaf_methods, leaf_properties};
use crate::provider::CollectionTable;
use crate::scan_spec::ScanSpec;
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use ebbtide::ExpiredUnit;
use ebbtide_buckets::{time_values, timestamp_type, timestamps};
use std::fmt;
use std::sync::Arc;

/// The columns behind those of the collection.
const EXPIRED_AT: &str = "expired_at";
const EXPIRED_BY: &str = "expired_by";

/// The table function.
#[derive(Debug)]
pub(super) struct Expired;

impl TableFunctionImpl for Expired {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let Some(name) = super::collection_argument(&args) else {
            return plan_err!("expired(collection) takes the name of a collection: expired('weather')");
        };
        let context = StatementContext::of(args.session().config())?;
        let Ok(snapshot) = context.snapshot().collection(&name) else {
            return plan_err!("table '{CATALOG}.{COLLECTIONS}.{name}' not found");
        };
        let all = CollectionTable::new(&snapshot);
        let columns = all.schema();
        if let Some(field) = [EXPIRED_AT, EXPIRED_BY].into_iter().find(|f| columns.index_of(f).is_ok()) {
            return plan_err!("expired('{name}') has a column '{field}', and so has the collection: rename that field");
        }
        let time = timestamp_type(snapshot.schema().precision);
        let added = [Field::new(EXPIRED_AT, time, false), Field::new(EXPIRED_BY, DataType::Utf8, false)];
        let fields: Vec<_> = columns.fields().iter().cloned().chain(added.map(Arc::new)).collect();
        Ok(Arc::new(ExpiredTable { all, schema: Arc::new(Schema::new(fields)) }))
    }
}

/// The expired measurements of a collection. Like the collection's own table, it reads the snapshot of the statement that is
/// planned.
#[derive(Debug)]
struct ExpiredTable {
    all: CollectionTable,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for ExpiredTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let rules = self.all.planned.rules();
        Ok(filters
            .iter()
            .map(|filter| match rules.supports(filter) {
                TableProviderFilterPushDown::Exact => TableProviderFilterPushDown::Exact,
                _ => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let collection = self.all.schema();
        let wanted = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let mut read: Vec<usize> = wanted.iter().copied().filter(|at| *at < collection.fields().len()).collect();
        let time = collection.index_of(&self.all.planned.schema.time)?;
        if !read.contains(&time) {
            read.push(time);
        }
        let spec = self.all.spec(state, Some(&read), filters)?;
        let schema = Arc::new(self.schema.project(&wanted)?);
        let properties = leaf_properties(&schema, 1, EmissionType::Incremental);
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(ExpiredExec { spec: Arc::new(spec), schema, properties, metrics }))
    }
}

/// Reads what has expired of a collection and is still stored.
#[derive(Debug)]
struct ExpiredExec {
    spec: Arc<ScanSpec>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ExpiredExec {
    /// The batches of a unit with the columns of the plan.
    fn read(
        spec: &ScanSpec,
        schema: &SchemaRef,
        expired: &ExpiredUnit,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
        let batches = expired.unit.read().map_err(external)?;
        let (read, schema, rule) = (Arc::clone(&spec.schema), Arc::clone(schema), expired.rule.clone());
        let (time, precision) = (spec.snapshot.schema().time.clone(), spec.snapshot.schema().precision);
        let life = expired.expire_after_seconds.saturating_mul(precision.per_second());
        Ok(batches.map(move |batch| {
            let batch = conform(&batch.map_err(external)?, &read)?;
            let rows = batch.num_rows();
            let column = |field: &Arc<Field>| -> Result<ArrayRef> {
                match field.name().as_str() {
                    EXPIRED_AT => {
                        let times = time_values(batch.column(read.index_of(&time)?)).map_err(|e| external(e.into()))?;
                        Ok(timestamps(times.iter().map(|t| Some(t.saturating_add(life))).collect(), precision))
                    }
                    EXPIRED_BY => Ok(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(rule.as_str(), rows)))),
                    name => Ok(Arc::clone(batch.column(read.index_of(name)?))),
                }
            };
            let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?)
        }))
    }
}

impl DisplayAs for ExpiredExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::TreeRender => f.write_str(&self.spec.to_string().replace(", ", "\n")),
            _ => write!(f, "ExpiredExec: {}", self.spec),
        }
    }
}

impl ExecutionPlan for ExpiredExec {
    leaf_methods!();

    fn name(&self) -> &'static str {
        "ExpiredExec"
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let (spec, schema) = (Arc::clone(&self.spec), Arc::clone(&self.schema));
        let units = spec.snapshot.expired(&spec.request).map_err(external)?;
        let batches = units.into_iter().flat_map(move |unit| match Self::read(&spec, &schema, &unit) {
            Ok(batches) => Box::new(batches) as Box<dyn Iterator<Item = Result<RecordBatch>> + Send>,
            Err(error) => Box::new(std::iter::once(Err(error))),
        });
        let counted = batches.inspect(move |batch| {
            if let Ok(batch) = batch {
                baseline.record_output(batch.num_rows());
            }
        });
        let stream = futures::stream::iter(counted);
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream)))
    }
}
