//! Aggregates that the engine computes itself, merging what its directories know with what it reads on all cores.
//!
//! An optimizer rule replaces an aggregate over the scan of a collection by a leaf if its groups are determined by the
//! meta field and bins of time, if the engine knows its functions, and if the scan does all of the filtering. The leaf
//! asks the engine when it is executed. The leaf keeps the original aggregate and runs it on DataFusion where the
//! engine would give a different answer or none.

mod eager;
mod exec;
mod join_tree;
mod meta_keys;

use crate::options::fast_paths;
use crate::provider::CollectionTable;
use crate::pushdown::is_plain;
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchemaRef, Result, ScalarValue, internal_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::{AggregateFunction, NullTreatment, ScalarFunction};
use datafusion::logical_expr::{
    Aggregate, Expr, Extension, LogicalPlan, Projection, Sort, TableProviderFilterPushDown, TableScan,
    UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use ebbtide::AggregateRequest;
use ebbtide_buckets::{FieldType, Schema};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use eager::aggregate_early;
pub(crate) use exec::EngineAggregateExec;

const DAY_NANOS: i128 = 86_400_000_000_000;

/// Replaces the aggregates that the engine can answer.
#[derive(Debug)]
pub(crate) struct AnswerAggregates {
    /// Whether the engine also handles the order of bins and a limit on their number: only where the plan runs on one
    /// thread, which keeps the order.
    pub(crate) in_order: bool,
}

impl OptimizerRule for AnswerAggregates {
    fn name(&self) -> &'static str {
        "answer_aggregates"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // A statement that is being prepared has no instant yet, and its types are not known: it is optimized again
        // when it is run.
        let runs = config.query_execution_start_time().is_some() && fast_paths(&config.options());
        let answered = match &plan {
            LogicalPlan::Aggregate(aggregate) if runs => AggregateSpec::of(aggregate)?.map(|spec| {
                let (original, spec) = (Arc::new(aggregate.clone()), Arc::new(spec));
                EngineAggregate { original, spec, order: None, groups: None }.into_plan()
            }),
            LogicalPlan::Sort(sort) if self.in_order => in_order_of(sort),
            _ => None,
        };
        Ok(answered.map_or(Transformed::no(plan), Transformed::yes))
    }
}

/// A sort by bins of time, handed to the engine.
fn in_order_of(sort: &Sort) -> Option<LogicalPlan> {
    let [by] = sort.expr.as_slice() else { return None };
    in_order(&sort.input, by.expr.try_as_col()?, Order { descending: !by.asc, fetch: sort.fetch })
}

fn in_order(plan: &LogicalPlan, column: &Column, order: Order) -> Option<LogicalPlan> {
    let at = plan.schema().maybe_index_of_column(column)?;
    match plan {
        LogicalPlan::Projection(projection) => {
            let below = bare(projection.expr.get(at)?).try_as_col()?;
            let input = in_order(&projection.input, below, order)?;
            let (expr, schema) = (projection.expr.clone(), Arc::clone(&projection.schema));
            Projection::try_new_with_schema(expr, Arc::new(input), schema).ok().map(LogicalPlan::Projection)
        }
        LogicalPlan::Extension(extension) => {
            let node = extension.node.as_any().downcast_ref::<EngineAggregate>()?;
            let by_time = matches!(node.spec.keys.as_slice(), [Key::Time]) && node.spec.part.is_none();
            let by_time = by_time && at == 0 && node.order.is_none();
            by_time.then(|| EngineAggregate { order: Some(order), ..node.clone() }.into_plan())
        }
        _ => None,
    }
}

/// One part of a group's key.
#[derive(Debug, Clone, PartialEq)]
enum Key {
    Meta,
    /// An expression over the meta field, in columns of the collection.
    MetaExpr(Expr),
    Time,
}

/// What the engine is asked for.
#[derive(Debug)]
struct AggregateSpec {
    /// Without time range and metas. Its last columns must be free of NaN.
    request: AggregateRequest,
    keys: Vec<Key>,
    /// The unit of `date_trunc` if the bins of time are those of the calendar. The request gets their starts when it is made.
    calendar: Option<Calendar>,
    /// The part of dates that the bins of time stand for.
    part: Option<Part>,
    scan: TableScan,
}

/// A part of a date that recurs after a period, as `extract` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Hour,
    DayOfWeek,
    IsoDayOfWeek,
}

impl Part {
    /// The part that an expression takes of times.
    fn of(key: &Expr, schema: &Schema) -> Option<Part> {
        Some(match call_on_time("date_part", key, schema)?.as_str() {
            "hour" => Part::Hour,
            "dow" => Part::DayOfWeek,
            "isodow" => Part::IsoDayOfWeek,
            _ => return None,
        })
    }

    /// The width of its bins, and the period.
    fn bins(self) -> (Duration, Duration) {
        let day = Duration::from_secs(86_400);
        if self == Part::Hour { (day / 24, day) } else { (day, 7 * day) }
    }

    /// The part that a bin stands for, by the number of the bin from 1970 on, which began on a Thursday.
    fn number(self, bin: i64) -> i64 {
        match self {
            Part::Hour => bin,
            Part::DayOfWeek => (bin + 4) % 7,
            Part::IsoDayOfWeek => (bin + 3) % 7 + 1,
        }
    }
}

/// The first argument of a call, in lower case, if the second one is the time of measurements.
fn call_on_time(name: &str, expr: &Expr, schema: &Schema) -> Option<String> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return None };
    let [Expr::Literal(unit, _), time] = args.as_slice() else { return None };
    let is_of_time = func.name() == name && time.try_as_col()?.name == schema.time;
    if is_of_time { Some(unit.try_as_str()??.to_lowercase()) } else { None }
}

/// Bins of time of different widths, or that are not counted from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calendar {
    Week,
    Month,
    Quarter,
    Year,
}

impl Calendar {
    /// The bins of a unit of `date_trunc`.
    fn of_unit(unit: &str) -> Option<Calendar> {
        Some(match unit {
            "week" => Calendar::Week,
            "month" => Calendar::Month,
            "quarter" => Calendar::Quarter,
            "year" => Calendar::Year,
            _ => return None,
        })
    }

    /// The bins that an expression sorts times into.
    fn of(key: &Expr, schema: &Schema) -> Option<Calendar> {
        Calendar::of_unit(&call_on_time("date_trunc", key, schema)?)
    }

    fn unit(self) -> &'static str {
        match self {
            Calendar::Week => "week",
            Calendar::Month => "month",
            Calendar::Quarter => "quarter",
            Calendar::Year => "year",
        }
    }
}

/// The order of bins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Order {
    descending: bool,
    /// The maximum number of bins to return.
    fetch: Option<usize>,
}

/// An aggregate that the engine answers, as a node of a logical plan.
#[derive(Debug, Clone)]
struct EngineAggregate {
    original: Arc<Aggregate>,
    spec: Arc<AggregateSpec>,
    order: Option<Order>,
    /// An upper bound of the number of groups, if it is known.
    groups: Option<u64>,
}

impl EngineAggregate {
    fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }
}

/// The scan that the engine would read for an aggregate; `None` for other nodes.
pub(crate) fn aggregated_scan(node: &dyn UserDefinedLogicalNode) -> Option<&TableScan> {
    node.as_any().downcast_ref::<EngineAggregate>().map(|aggregate| &aggregate.spec.scan)
}

impl AggregateSpec {
    /// The request for an aggregate whose input has been optimized; `None` if the engine cannot answer it.
    fn of(aggregate: &Aggregate) -> Result<Option<AggregateSpec>> {
        let Some((scan, projection)) = input_of(aggregate) else { return Ok(None) };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<CollectionTable>() else { return Ok(None) };
        let rules = table.planned.rules();
        let exact = |filter: &Expr| rules.supports(filter) == TableProviderFilterPushDown::Exact;
        if scan.fetch.is_some() || !scan.filters.iter().all(exact) {
            return Ok(None);
        }
        let schema = table.planned.schema.as_ref();
        let (mut request, mut keys, mut checks) = (AggregateRequest::default(), Vec::new(), Vec::new());
        let (mut calendar, mut part) = (None, None);
        for key in &aggregate.group_expr {
            let key = resolved(bare(key), projection)?;
            let (bins, cycle) = (Calendar::of(&key, schema), Part::of(&key, schema));
            let key = match bins.is_some() || cycle.is_some() {
                true => Some(Key::Time),
                false => key_of(&key, schema, &mut request),
            };
            let Some(key) = key else { return Ok(None) };
            if key == Key::Time && keys.contains(&key) {
                return Ok(None);
            }
            keys.push(key);
            if let Some((width, period)) = cycle.map(Part::bins) {
                (request.width, request.period) = (Some(width), Some(period));
            }
            (calendar, part) = (calendar.or(bins), part.or(cycle));
        }
        for function in &aggregate.aggr_expr {
            let Expr::AggregateFunction(function) = bare(function) else { return Ok(None) };
            let Some(function) = aggregate_of(function, projection, schema, &mut checks)? else { return Ok(None) };
            request.aggregates.push(function);
        }
        request.aggregates.extend(checks);
        Ok(Some(AggregateSpec { request, keys, calendar, part, scan: scan.clone() }))
    }
}

/// The scan that an aggregate reads, and the projection in between.
fn input_of(aggregate: &Aggregate) -> Option<(&TableScan, Option<&Projection>)> {
    match aggregate.input.as_ref() {
        LogicalPlan::Projection(projection) => Some((scan_of(&projection.input)?, Some(projection))),
        input => Some((scan_of(input)?, None)),
    }
}

/// A scan, which may have another name. Its columns have the same names then.
fn scan_of(plan: &LogicalPlan) -> Option<&TableScan> {
    match plan {
        LogicalPlan::TableScan(scan) => Some(scan),
        LogicalPlan::SubqueryAlias(alias) => scan_of(&alias.input),
        _ => None,
    }
}

/// An expression without its aliases.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => bare(&alias.expr),
        expr => expr,
    }
}

/// Rewrites an expression in terms of the scan's columns.
fn resolved(expr: &Expr, projection: Option<&Projection>) -> Result<Expr> {
    let Some(projection) = projection else { return Ok(expr.clone()) };
    let resolved = expr.clone().transform_up(|expr| match &expr {
        Expr::Column(column) => {
            let at = projection.schema.index_of_column(column)?;
            Ok(Transformed::yes(bare(&projection.expr[at]).clone()))
        }
        _ => Ok(Transformed::no(expr)),
    });
    resolved.data()
}

/// How the engine sees a group key.
fn key_of(key: &Expr, schema: &Schema, request: &mut AggregateRequest) -> Option<Key> {
    if let Some(width) = width_of(key, schema) {
        request.width = Some(schema.precision.duration(width));
        return Some(Key::Time);
    }
    let is_meta = |name: &str| schema.meta.as_deref() == Some(name);
    request.by_meta = true;
    if key.try_as_col().is_some_and(|column| is_meta(&column.name)) {
        return Some(Key::Meta);
    }
    if matches!(key, Expr::GroupingSet(_)) {
        return None;
    }
    let of_meta = key.any_column_refs() && key.column_refs().iter().all(|column| is_meta(&column.name));
    (of_meta && is_plain(key)).then(|| Key::MetaExpr(key.clone()))
}

/// The width of the bins that a key sorts times into, in units, if they are counted from the epoch.
fn width_of(key: &Expr, schema: &Schema) -> Option<i64> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = key else { return None };
    let [Expr::Literal(width, _), time] = args.as_slice() else { return None };
    if time.try_as_col()?.name != schema.time {
        return None;
    }
    fixed_width(func.name(), width, schema)
}

/// The width of the bins of `date_bin` or `date_trunc` in units of a collection, if all bins are equally wide.
fn fixed_width(function: &str, width: &ScalarValue, schema: &Schema) -> Option<i64> {
    let nanos = match function {
        "date_bin" | "time_bucket" => match width.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano)) {
            Ok(ScalarValue::IntervalMonthDayNano(Some(width))) if width.months == 0 => {
                i128::from(width.days) * DAY_NANOS + i128::from(width.nanoseconds)
            }
            _ => return None,
        },
        "date_trunc" => match width.try_as_str()??.to_lowercase().as_str() {
            "second" => 1_000_000_000,
            "minute" => 60_000_000_000,
            "hour" => 3_600_000_000_000,
            "day" => DAY_NANOS,
            _ => return None,
        },
        _ => return None,
    };
    // These bins are counted from a midnight, but not from 1970.
    if function == "time_bucket" && (nanos <= 0 || DAY_NANOS % nanos != 0) {
        return None;
    }
    let unit = i128::from(1_000_000_000 / schema.precision.per_second());
    if nanos <= 0 || nanos % unit != 0 { None } else { i64::try_from(nanos / unit).ok() }
}

/// The engine's equivalent of a function. `checks` receives aggregates that must be free of NaN.
fn aggregate_of(
    function: &AggregateFunction,
    projection: Option<&Projection>,
    schema: &Schema,
    checks: &mut Vec<ebbtide::Aggregate>,
) -> Result<Option<ebbtide::Aggregate>> {
    let params = &function.params;
    let ignores_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
    let [arg] = params.args.as_slice() else { return Ok(None) };
    if params.distinct || ignores_nulls || params.filter.is_some() || !params.order_by.is_empty() {
        return Ok(None);
    }
    Ok(engine_function(function.func.name(), &resolved(arg, projection)?, schema, checks))
}

fn engine_function(
    name: &str,
    arg: &Expr,
    schema: &Schema,
    checks: &mut Vec<ebbtide::Aggregate>,
) -> Option<ebbtide::Aggregate> {
    use ebbtide::Aggregate;
    let column = match (name, arg) {
        ("count", Expr::Literal(value, _)) => return (!value.is_null()).then_some(Aggregate::Rows),
        ("avg", Expr::Cast(cast)) if *cast.field.data_type() == DataType::Float64 => &cast.expr,
        _ => arg,
    };
    let field = &column.try_as_col()?.name;
    if name == "count" && *field == schema.time {
        return Some(Aggregate::Rows);
    }
    let is_field = schema.fields.iter().any(|(name, _)| name == field);
    let ty = schema.field_type(field).filter(|ty| is_field && matches!(ty, FieldType::Int64 | FieldType::Double))?;
    let of = |aggregate: fn(String) -> Aggregate| aggregate(field.to_owned());
    if *ty == FieldType::Double && (name == "min" || name == "max") {
        // With NaN, DataFusion's result depends on the order of rows and on the grouping: such columns are left to it.
        checks.extend([of(Aggregate::Min), of(Aggregate::Max)]);
    }
    Some(match name {
        "count" => of(Aggregate::Count),
        "sum" => of(Aggregate::Sum),
        "avg" => of(Aggregate::Avg),
        "min" => of(Aggregate::Min),
        "max" => of(Aggregate::Max),
        _ => return None,
    })
}

impl PartialEq for EngineAggregate {
    fn eq(&self, other: &Self) -> bool {
        (&self.original, self.order) == (&other.original, other.order)
    }
}

impl Eq for EngineAggregate {}

impl Hash for EngineAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.original, self.order).hash(state);
    }
}

impl PartialOrd for EngineAggregate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for EngineAggregate {
    fn name(&self) -> &'static str {
        "EngineAggregate"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.original.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aggregate = LogicalPlan::Aggregate(self.original.as_ref().clone());
        write!(f, "Engine{}, {}", aggregate.display(), self.original.input.display())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (exprs.as_slice(), inputs.as_slice()) {
            ([], []) => Ok(self.clone()),
            _ => internal_err!("an aggregate answered by the engine has no inputs"),
        }
    }
}
