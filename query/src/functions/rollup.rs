//! `rollup('collection', '10 minutes')`: what the bins of a ladder show.

use super::table::{Batches, Call, CallTable, Rows, collection, text_argument};
use crate::context::StatementContext;
use crate::error::external;
use crate::named_columns::NamedColumns;
use crate::pushdown::PushdownRules;
use crate::scan_spec::collection_in;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
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
        let [name, width] = args.exprs() else { return plan_err!("{usage}") };
        let (Some(name), Some(width)) = (text_argument(name), text_argument(width)) else {
            return plan_err!("{usage}");
        };
        let Ok(width_seconds) = parse_retention(&width) else { return plan_err!("'{width}' is no width; {usage}") };
        let snapshot = collection(&args, &name)?;
        let schema = columns(&snapshot, args.session().config().get_extension::<NamedColumns>().as_deref())?;
        snapshot.check_rollup_width(width_seconds).map_err(external)?;
        let meta = snapshot.schema().meta_type.as_ref().and(snapshot.schema().meta.clone());
        let time = snapshot.schema().time.clone();
        Ok(Arc::new(CallTable(RollupCall { name, width_seconds, time, meta, schema })))
    }
}

/// Whether a table's rows are computed all at once, by the threads that it takes itself.
pub(crate) fn computes_at_once(table: &dyn TableProvider) -> bool {
    table.is::<CallTable<RollupCall>>()
}

/// Whether one of the columns of a field is wanted.
fn is_wanted(field: &str, is_wanted: impl Fn(&str) -> bool) -> bool {
    let mut name = format!("{field}_");
    let end = name.len();
    RESULT_SUFFIXES.iter().any(|suffix| {
        name.truncate(end);
        name.push_str(suffix);
        is_wanted(&name)
    })
}

/// The columns of all fields, or of those that are named; a meta field that had no value yet has one without a type.
fn columns(snapshot: &CollectionSnapshot, named: Option<&NamedColumns>) -> Result<SchemaRef> {
    let fields = match named {
        Some(named) => {
            let mut fields = snapshot.rollup_field_names().map_err(external)?;
            fields.retain(|field| is_wanted(field, |column| named.contains(column)));
            Some(fields)
        }
        None => None,
    };
    let schema = snapshot.rollup_schema(fields.as_deref()).map_err(external)?;
    let (Some(meta), None) = (&snapshot.schema().meta, &snapshot.schema().meta_type) else { return Ok(schema) };
    let mut fields = schema.fields().to_vec();
    fields.insert(1, Arc::new(Field::new(meta, DataType::Null, true)));
    Ok(Arc::new(Schema::new(fields)))
}

/// The bins of one width.
#[derive(Debug)]
struct RollupCall {
    name: String,
    width_seconds: i64,
    time: String,
    meta: Option<String>,
    schema: SchemaRef,
}

impl RollupCall {
    fn rules(&self) -> PushdownRules<'_> {
        PushdownRules { time: &self.time, meta: self.meta.as_deref() }
    }
}

impl Call for RollupCall {
    type Rows = RollupRows;

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn supports(&self, filter: &Expr) -> TableProviderFilterPushDown {
        self.rules().supports_exactly(filter)
    }

    fn rows(&self, state: &dyn Session, projection: Option<&Vec<usize>>, filters: &[Expr]) -> Result<RollupRows> {
        let context = StatementContext::of(state.config())?;
        let snapshot = collection_in(context.snapshot(), &self.name)?;
        let wanted = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let schema = Arc::new(self.schema.project(&wanted)?);
        let pushed = self.rules().split(filters, &self.schema, state)?;
        let mut fields = snapshot.rollup_field_names().map_err(external)?;
        fields.retain(|field| is_wanted(field, |column| schema.index_of(column).is_ok()));
        let request = RollupRequest {
            width_seconds: self.width_seconds,
            fields: Some(fields),
            time: TimeRange::of_units(pushed.time.0, pushed.time.1, snapshot.schema().precision),
            meta: None,
        };
        let metas = pushed.meta.as_ref().map(|meta| meta.text.clone());
        let request = RollupRequest { meta: pushed.meta.map(|meta| meta as Arc<dyn MetaFilter>), ..request };
        Ok(RollupRows { snapshot, request, metas, schema })
    }
}

/// Bins, computed.
#[derive(Debug)]
struct RollupRows {
    snapshot: CollectionSnapshot,
    request: RollupRequest,
    /// The condition on metas, as EXPLAIN shows it.
    metas: Option<String>,
    schema: SchemaRef,
}

/// The columns that are wanted of bins.
fn projected(snapshot: &CollectionSnapshot, rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |field: &Arc<Field>| match rows.column_by_name(field.name()) {
        Some(column) => Ok(Arc::clone(column)),
        None if field.data_type() == &DataType::Null => Ok(new_null_array(&DataType::Null, rows.num_rows())),
        None => exec_err!("the bins of '{}' have no column '{}' any more", snapshot.name(), field.name()),
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

impl fmt::Display for RollupRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "collection={}, width={} s", self.snapshot.name(), self.request.width_seconds)?;
        self.metas.iter().try_for_each(|metas| write!(f, ", meta=[{metas}]"))
    }
}

impl Rows for RollupRows {
    const LEAF: &'static str = "RollupExec";
    const EMISSION: EmissionType = EmissionType::Final;

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn read(&self, _part: usize, _metrics: &ExecutionPlanMetricsSet) -> Result<Batches> {
        let (snapshot, request, schema) = (self.snapshot.clone(), self.request.clone(), Arc::clone(&self.schema));
        let bins = move || match snapshot.rollup(&request) {
            Ok(bins) => bins.iter().map(|bins| projected(&snapshot, bins, &schema)).collect(),
            Err(error) => vec![Err(external(error))],
        };
        Ok(Box::new(std::iter::once_with(bins).flatten()))
    }
}
