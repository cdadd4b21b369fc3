//! `expired('collection')`: measurements that have expired and are still stored, with the instant and the rule.

use super::table::{Batches, Call, CallTable, Rows, batches_of, only_collection};
use crate::error::external;
use crate::exec::conform;
use crate::provider::CollectionTable;
use crate::scan_spec::ScanSpec;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
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
        let snapshot = only_collection(&args, "expired")?;
        let all = CollectionTable::new(&snapshot, None);
        let columns = all.schema();
        if let Some(field) = [EXPIRED_AT, EXPIRED_BY].into_iter().find(|f| columns.index_of(f).is_ok()) {
            let name = snapshot.name();
            return plan_err!("expired('{name}') has a column '{field}', and so has the collection: rename that field");
        }
        let time = timestamp_type(snapshot.schema().precision);
        let added = [Field::new(EXPIRED_AT, time, false), Field::new(EXPIRED_BY, DataType::Utf8, false)];
        let fields: Vec<_> = columns.fields().iter().cloned().chain(added.map(Arc::new)).collect();
        Ok(Arc::new(CallTable(ExpiredCall { all, schema: Arc::new(Schema::new(fields)) })))
    }
}

/// The expired measurements of a collection.
#[derive(Debug)]
struct ExpiredCall {
    all: CollectionTable,
    schema: SchemaRef,
}

impl Call for ExpiredCall {
    type Rows = ExpiredRows;

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn supports(&self, filter: &Expr) -> TableProviderFilterPushDown {
        self.all.planned.rules().supports_exactly(filter)
    }

    fn rows(&self, state: &dyn Session, projection: Option<&Vec<usize>>, filters: &[Expr]) -> Result<ExpiredRows> {
        let collection = self.all.schema();
        let wanted = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let mut read: Vec<usize> = wanted.iter().copied().filter(|at| *at < collection.fields().len()).collect();
        let time = collection.index_of(&self.all.planned.schema.time)?;
        if !read.contains(&time) {
            read.push(time);
        }
        let spec = Arc::new(self.all.spec(state, Some(&read), filters)?);
        Ok(ExpiredRows { spec, schema: Arc::new(self.schema.project(&wanted)?) })
    }
}

/// What has expired of a collection and is still stored.
#[derive(Debug)]
struct ExpiredRows {
    spec: Arc<ScanSpec>,
    schema: SchemaRef,
}

impl fmt::Display for ExpiredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

impl Rows for ExpiredRows {
    const LEAF: &'static str = "ExpiredExec";
    const EMISSION: EmissionType = EmissionType::Incremental;

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn read(&self, _part: usize, _metrics: &ExecutionPlanMetricsSet) -> Result<Batches> {
        let (spec, schema) = (Arc::clone(&self.spec), Arc::clone(&self.schema));
        let units = spec.snapshot.expired(&spec.request).map_err(external)?;
        Ok(Box::new(units.into_iter().flat_map(move |unit| of_unit(&spec, &schema, &unit))))
    }
}

/// The batches of a unit with the columns of the plan.
fn of_unit(
    spec: &ScanSpec,
    schema: &SchemaRef,
    expired: &ExpiredUnit,
) -> impl Iterator<Item = Result<RecordBatch>> + Send + use<> {
    let (read, schema, rule) = (Arc::clone(&spec.schema), Arc::clone(schema), expired.rule.clone());
    let (time, precision) = (spec.snapshot.schema().time.clone(), spec.snapshot.schema().precision);
    let life = expired.expire_after_seconds.saturating_mul(precision.per_second());
    batches_of(expired.unit.read()).map(move |batch| {
        let batch = conform(&batch?, &read)?;
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
    })
}
