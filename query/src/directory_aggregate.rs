//! Answers aggregates of whole buckets from the bucket directory, inside DataFusion's plan.
//!
//! A partial aggregate over a scan becomes two: the states of the buckets that lie in one group as a whole, known without
//! reading a measurement, and the partial aggregate over a scan of the rest. Whatever merges partial states merges both.

use crate::bucket_aggregate::fixed_width;
use crate::exec::BucketScanExec;
use crate::options::fast_paths;
use crate::provider::Asked;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, Schema as ArrowSchema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, replace_children_if_necessary,
};
use ebbtide::{Aggregate, AggregateRequest};
use ebbtide_buckets::{FieldType, Schema};
use std::fmt;
use std::sync::Arc;

/// The rules of a session: DataFusion's, and that of this module.
pub(crate) fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    // Exact statistics answer first; the rules behind arrange partitions.
    let behind = rules.iter().position(|r| r.name() == "aggregate_statistics").map_or(0, |i| i + 1);
    rules.insert(behind, Arc::new(DirectoryAggregate));
    rules
}

/// Takes the known part of aggregates out of scans.
#[derive(Debug)]
struct DirectoryAggregate;

impl PhysicalOptimizerRule for DirectoryAggregate {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_paths(config) {
            return Ok(plan);
        }
        let partitions = config.execution.target_partitions;
        plan.transform_up(|node| {
            let Some((asked, split)) = node.downcast_ref::<AggregateExec>().and_then(split) else {
                return Ok(Transformed::no(node));
            };
            let rest = split.rest.clone();
            // Told to whoever explains what expiry hides. Each scan is planned once.
            drop(asked.rest.set(rest.clone()));
            let known: Arc<dyn ExecutionPlan> = Arc::new(split.known);
            if rest.is_empty() {
                return Ok(Transformed::yes(known));
            }
            let scan = BucketScanExec::new(asked, rest, split.report, None, partitions);
            let read = replace_children_if_necessary(node, vec![Arc::new(scan)])?;
            Ok(Transformed::yes(UnionExec::try_new(vec![known, read])?))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "directory_aggregate"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The two parts of an aggregate.
struct Split {
    known: DirectoryAggregateExec,
    rest: Vec<ebbtide::ScanUnit>,
    report: ebbtide::ScanReport,
}

/// The parts of an aggregate, if the directory knows something that it is certain to be asked for. Where the engine refuses
/// to answer, the scan does: it reads what is damaged and says so, and its sums of whole numbers wrap.
fn split(aggregate: &AggregateExec) -> Option<(Arc<Asked>, Split)> {
    let group_by = aggregate.group_expr();
    if *aggregate.mode() != AggregateMode::Partial
        || group_by.has_grouping_set()
        || aggregate.filter_expr().iter().any(Option::is_some)
    {
        return None;
    }
    let asked = aggregate.input().downcast_ref::<BucketScanExec>()?.whole()?;
    let schema = asked.snapshot.schema();
    // A prepared statement may be older than the last widening of a field.
    let types = schema.arrow();
    let is_current = |name: &str, ty: &DataType| types.field_with_name(name).is_ok_and(|f| f.data_type() == ty);
    if !asked.schema.fields().iter().all(|f| is_current(f.name(), f.data_type())) {
        return None;
    }
    let mut request =
        AggregateRequest { time: asked.request.time, meta: asked.request.meta.clone(), ..AggregateRequest::default() };
    for (key, _) in group_by.expr() {
        match key_of(key, schema)? {
            Key::Meta => request.by_meta = true,
            Key::Time(width) if request.width.is_none_or(|w| w == width) => request.width = Some(width),
            Key::Time(_) => return None,
        }
    }
    let (mut checks, mut counts_of_means) = (Vec::new(), Vec::new());
    for function in aggregate.aggr_expr() {
        if function.fun().name() == "avg" {
            counts_of_means.push(request.aggregates.len());
        }
        request.aggregates.extend(states_of(function, schema, &mut checks)?);
    }
    let states = request.aggregates.len();
    request.aggregates.extend(checks);
    let columns = asked.request.projection.as_ref()?;
    let known = asked.snapshot.aggregate_known(&request, columns).ok().filter(|known| known.buckets > 0)?;

    let keys = usize::from(request.by_meta) + usize::from(request.width.is_some());
    let (groups, values) = known.groups.columns().split_at_checked(keys)?;
    let (values, checks) = values.split_at_checked(states)?;
    if checks.iter().any(has_nan) {
        return None;
    }
    let keys = evaluate_keys(aggregate, asked, &request, groups, known.groups.num_rows())?;
    let partial = aggregate.schema();
    let values = values.iter().zip(partial.fields().iter().skip(keys.len())).enumerate().map(|(at, (value, field))| {
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        // DataFusion takes a mean's count for that of a group with values unless it is null, and divides 0 by 0.
        let value = if counts_of_means.contains(&at) { null_where_zero(value)? } else { Arc::clone(value) };
        cast_with_options(&value, field.data_type(), &strict).ok()
    });
    let cells: Vec<ArrayRef> = keys.into_iter().map(Some).chain(values).collect::<Option<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(known.groups.num_rows()));
    let batch = RecordBatch::try_new_with_options(partial, cells, &options).ok()?;
    let known_part = DirectoryAggregateExec::new(asked.label.clone(), batch, known.buckets);
    Some((Arc::clone(asked), Split { known: known_part, rest: known.rest, report: known.report }))
}

/// What a group is told by.
enum Key {
    /// Whatever is computed of the meta field.
    Meta,
    /// The time, in bins of so many units.
    Time(i64),
}

fn key_of(key: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Key> {
    let columns = collect_columns(key);
    if is_volatile(key) || columns.is_empty() {
        return None;
    }
    if columns.iter().all(|c| schema.meta.as_deref() == Some(c.name())) {
        return Some(Key::Meta);
    }
    let call = key.downcast_ref::<ScalarFunctionExpr>()?;
    let [width, time] = call.args() else { return None };
    if time.downcast_ref::<Column>()?.name() != schema.time {
        return None;
    }
    let width = width.downcast_ref::<Literal>()?.value();
    fixed_width(call.name(), width, schema).map(Key::Time)
}

/// The columns that make up the partial state of a function. `checks` are to be without NaN.
fn states_of(function: &AggregateFunctionExpr, schema: &Schema, checks: &mut Vec<Aggregate>) -> Option<Vec<Aggregate>> {
    if function.is_distinct() || function.ignore_nulls() || !function.order_bys().is_empty() {
        return None;
    }
    let args = function.expressions();
    let [arg] = args.as_slice() else { return None };
    let name = function.fun().name();
    if name == "count" && arg.downcast_ref::<Literal>().is_some_and(|l| !l.value().is_null()) {
        return Some(vec![Aggregate::Rows]);
    }
    let column = match (name, arg.downcast_ref::<CastExpr>()) {
        ("avg", Some(widened)) if *widened.cast_type() == DataType::Float64 => widened.expr(),
        _ => arg,
    };
    let field = column.downcast_ref::<Column>()?.name();
    if name == "count" && field == schema.time {
        return Some(vec![Aggregate::Rows]);
    }
    // The engine refuses other columns too, but not for every reason that matters here.
    let ty = schema.field_type(field).filter(|ty| matches!(ty, FieldType::Int64 | FieldType::Double))?;
    let of = |aggregate: fn(String) -> Aggregate| aggregate(field.to_owned());
    let states = match name {
        "count" => vec![of(Aggregate::Count)],
        "sum" => vec![of(Aggregate::Sum)],
        "avg" => vec![of(Aggregate::Count), of(Aggregate::Sum)],
        "min" => vec![of(Aggregate::Min)],
        "max" => vec![of(Aggregate::Max)],
        _ => return None,
    };
    if *ty == FieldType::Double && (name == "min" || name == "max") {
        // Of NaN DataFusion makes what the order of rows and the groups happen to give: left to it.
        checks.extend([of(Aggregate::Min), of(Aggregate::Max)]);
    }
    Some(states)
}

fn null_where_zero(counts: &ArrayRef) -> Option<ArrayRef> {
    let counts = counts.as_primitive_opt::<Int64Type>()?;
    Some(Arc::new(counts.iter().map(|count| count.filter(|n| *n != 0)).collect::<Int64Array>()))
}

fn has_nan(column: &ArrayRef) -> bool {
    column.as_primitive_opt::<Float64Type>().is_some_and(|c| c.iter().flatten().any(f64::is_nan))
}

/// The group keys of the known part as the plan computes them.
fn evaluate_keys(
    aggregate: &AggregateExec,
    asked: &Asked,
    request: &AggregateRequest,
    groups: &[ArrayRef],
    rows: usize,
) -> Option<Vec<ArrayRef>> {
    let schema = asked.snapshot.schema();
    let fields: Vec<_> = asked.schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    let nullable = Arc::new(ArrowSchema::new(fields));
    let evaluate = |times: Option<&ArrayRef>| -> Option<Vec<ArrayRef>> {
        let cells = nullable.fields().iter().map(|f| match f.name() {
            name if request.by_meta && schema.meta.as_ref() == Some(name) => groups.first().cloned(),
            name if *name == schema.time && times.is_some() => times.cloned(),
            _ => Some(new_null_array(f.data_type(), rows)),
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let cells = cells.collect::<Option<Vec<_>>>()?;
        let batch = RecordBatch::try_new_with_options(Arc::clone(&nullable), cells, &options).ok()?;
        let keys = aggregate.group_expr().expr();
        keys.iter().map(|(key, _)| key.evaluate(&batch).and_then(|v| v.into_array(rows)).ok()).collect()
    };
    let Some(width) = request.width else { return evaluate(None) };
    let starts = groups.last()?;
    let firsts = cast(starts, &DataType::Int64).ok()?;
    let mut lasts = Vec::with_capacity(rows);
    for first in firsts.as_primitive::<Int64Type>().values() {
        // A bin may begin before the first time that there is.
        if first.rem_euclid(width) != 0 {
            return None;
        }
        lasts.push(first.checked_add(width - 1)?);
    }
    let lasts: ArrayRef = Arc::new(Int64Array::from(lasts));
    let lasts = cast(&lasts, starts.data_type()).ok()?;
    // The plan's own function decides what a bin is: it has to see the first and the last unit of each in one.
    let keys = evaluate(Some(starts))?;
    (keys == evaluate(Some(&lasts))?).then_some(keys)
}

/// Gives the partial states of groups that the directory knows.
#[derive(Debug)]
struct DirectoryAggregateExec {
    /// Says of what: the collection, the cut-offs, the filters.
    label: String,
    states: RecordBatch,
    buckets: u64,
    properties: Arc<PlanProperties>,
}

impl DirectoryAggregateExec {
    fn new(label: String, states: RecordBatch, buckets: u64) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(states.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        DirectoryAggregateExec { label, states, buckets, properties: Arc::new(properties) }
    }
}

impl DisplayAs for DirectoryAggregateExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (buckets, groups) = (self.buckets, self.states.num_rows());
        match kind {
            DisplayFormatType::TreeRender => {
                write!(f, "known_buckets={buckets}\ngroups={groups}\n{}", self.label.replace(", ", "\n"))
            }
            _ => write!(f, "DirectoryAggregateExec: known_buckets={buckets}, groups={groups}, {}", self.label),
        }
    }
}

impl ExecutionPlan for DirectoryAggregateExec {
    fn name(&self) -> &'static str {
        "DirectoryAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let states = self.states.clone();
        let schema: SchemaRef = states.schema();
        let stream = futures::stream::once(async move { Ok(states) });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}
