//! `rollup('collection', '10 minutes')`: what the bins of a ladder show.

use crate::context::{CATALOG, COLLECTIONS, StatementContext};
use crate::error::external;
use crate::leaf::{leaf_methods, leaf_properties};
use crate::pushdown::PushdownRules;
use crate::scan_spec::collection_in;
use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use ebbtide::{CollectionSnapshot, MetaFilter, RollupRequest, TimeRange};
use ebbtide_buckets::RESULT_SUFFIXES;
use ebbtide_ttl::parse_retention;
use std::fmt;
use std::sync::Arc;

/// The table function.
#[derive(Debug)]
pub(super) struct Rollup;

impl TableFunctionImpl for Rollup {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let usage =
            "rollup(collection, width) takes a collection and the width of bins: rollup('weather', '10 minutes')";
        let [collection, width] = args.exprs() else { return plan_err!("{usage}") };
        let text = |expr: &Expr| match expr {
            Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
            Expr::Column(column) => Some(column.name.clone()),
            _ => None,
        };
        let (Some(name), Some(width)) = (text(collection), text(width)) else { return plan_err!("{usage}") };
        let Ok(width_seconds) = parse_retention(&width) else { return plan_err!("'{width}' is no width; {usage}") };
        let context = StatementContext::of(args.session().config())?;
        let Ok(snapshot) = context.snapshot().collection(&name) else {
            return plan_err!("table '{CATALOG}.{COLLECTIONS}.{name}' not found");
        };
        let schema = columns(&snapshot)?;
        snapshot.check_rollup_width(width_seconds).map_err(external)?;
        let meta = snapshot.schema().meta_type.as_ref().and(snapshot.schema().meta.clone());
        let time = snapshot.schema().time.clone();
        Ok(Arc::new(RollupTable { name, width_seconds, time, meta, schema }))
    }
}

/// The columns of all fields; a meta field that had no value yet has one without a type.
fn columns(snapshot: &CollectionSnapshot) -> Result<SchemaRef> {
    let schema = snapshot.rollup_schema(None).map_err(external)?;
    let (Some(meta), None) = (&snapshot.schema().meta, &snapshot.schema().meta_type) else { return Ok(schema) };
    let mut fields = schema.fields().to_vec();
    fields.insert(1, Arc::new(Field::new(meta, DataType::Null, true)));
    Ok(Arc::new(Schema::new(fields)))
}

/// The bins of one width. Like the collection's own table, it reads the snapshot of the statement that is planned.
#[derive(Debug)]
struct RollupTable {
    name: String,
    width_seconds: i64,
    time: String,
    meta: Option<String>,
    schema: SchemaRef,
}

impl RollupTable {
    fn rules(&self) -> PushdownRules<'_> {
        PushdownRules { time: &self.time, meta: self.meta.as_deref() }
    }
}

#[async_trait]
impl TableProvider for RollupTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let rules = self.rules();
        let supports = |filter: &&Expr| match rules.supports(filter) {
            TableProviderFilterPushDown::Exact => TableProviderFilterPushDown::Exact,
            _ => TableProviderFilterPushDown::Unsupported,
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
        let context = StatementContext::of(state.config())?;
        let snapshot = collection_in(context.snapshot(), &self.name)?;
        let wanted = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let schema = Arc::new(self.schema.project(&wanted)?);
        let pushed = self.rules().split(filters, &self.schema, state)?;
        let is_wanted = |field: &String| {
            let mut names = RESULT_SUFFIXES.iter().map(|suffix| format!("{field}_{suffix}"));
            names.any(|name| schema.index_of(&name).is_ok())
        };
        let known = snapshot.rollup_field_names().map_err(external)?;
        let request = RollupRequest {
            width_seconds: self.width_seconds,
            fields: Some(known.into_iter().filter(is_wanted).collect()),
            time: TimeRange::of_units(pushed.time.0, pushed.time.1, snapshot.schema().precision),
            meta: None,
        };
        let metas = pushed.meta.as_ref().map(|meta| meta.text.clone());
        let request = RollupRequest { meta: pushed.meta.map(|meta| meta as Arc<dyn MetaFilter>), ..request };
        let properties = leaf_properties(&schema, 1, EmissionType::Final);
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(RollupExec { snapshot, request, metas, schema, properties, metrics }))
    }
}

/// Computes bins.
#[derive(Debug)]
struct RollupExec {
    snapshot: CollectionSnapshot,
    request: RollupRequest,
    /// The condition on metas, as EXPLAIN shows it.
    metas: Option<String>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

fn rows(snapshot: &CollectionSnapshot, request: &RollupRequest, schema: &SchemaRef) -> Result<RecordBatch> {
    let bins = snapshot.rollup(request).map_err(external)?;
    let column = |field: &Arc<Field>| match bins.column_by_name(field.name()) {
        Some(column) => Ok(Arc::clone(column)),
        None if field.data_type() == &DataType::Null => Ok(new_null_array(&DataType::Null, bins.num_rows())),
        None => exec_err!("the bins of '{}' have no column '{}' any more", snapshot.name(), field.name()),
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(bins.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

impl DisplayAs for RollupExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RollupExec: collection={}, width={} s", self.snapshot.name(), self.request.width_seconds)?;
        self.metas.iter().try_for_each(|metas| write!(f, ", meta=[{metas}]"))
    }
}

impl ExecutionPlan for RollupExec {
    leaf_methods!();

    fn name(&self) -> &'static str {
        "RollupExec"
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let (snapshot, request, schema) = (self.snapshot.clone(), self.request.clone(), Arc::clone(&self.schema));
        let batch = std::iter::once_with(move || {
            let batch = rows(&snapshot, &request, &schema)?;
            baseline.record_output(batch.num_rows());
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::iter(batch))))
    }
}
