//! Whole aggregates by the engine, which merges what its directories know and what it reads on all cores.
//!
//! An aggregate over the scan of a collection becomes a leaf if its groups are metas and bins of time, if the engine knows
//! its functions, and if the scan does all of the filtering. What the engine answers differently from DataFusion, or not at
//! all, DataFusion answers after all: the leaf keeps the aggregate that it stands for.

mod exec;

use crate::provider::CollectionTable;
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchemaRef, Result, ScalarValue, internal_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::{AggregateFunction, NullTreatment, ScalarFunction};
use datafusion::logical_expr::{
    Aggregate, Expr, Extension, LogicalPlan, Projection, Sort, TableProviderFilterPushDown, TableScan,
    UserDefinedLogicalNodeCore,
};
use ebbtide::AggregateRequest;
use ebbtide_buckets::{FieldType, Schema};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub(crate) use exec::BucketAggregateExec;

/// Puts the engine in the place of the aggregates that it can answer.
pub(crate) fn answer(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up(|plan| match plan {
        LogicalPlan::Aggregate(aggregate) => match Question::of(&aggregate) {
            Some(question) => {
                let question = Arc::new(question);
                let node = BucketAggregate { aggregate: Arc::new(aggregate), question, order: None };
                Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(node) })))
            }
            None => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
        },
        other => Ok(Transformed::no(other)),
    })
}

/// Leaves sorting by time to the engine, whose groups come in that order, and tells it how many of them are wanted.
pub(crate) fn order(plan: LogicalPlan) -> Result<LogicalPlan> {
    let ordered = plan.transform_up(|plan| match &plan {
        LogicalPlan::Sort(sort) => Ok(ordered(sort).map_or(Transformed::no(plan), Transformed::yes)),
        _ => Ok(Transformed::no(plan)),
    });
    ordered.data()
}

fn ordered(sort: &Sort) -> Option<LogicalPlan> {
    let [by] = sort.expr.as_slice() else { return None };
    let order = Order { descending: !by.asc, fetch: sort.fetch };
    in_order(&sort.input, by.expr.try_as_col()?, order)
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
            let node = extension.node.as_any().downcast_ref::<BucketAggregate>()?;
            let by_time = matches!(node.question.keys.as_slice(), [Key::Time]) && at == 0 && node.order.is_none();
            let node = BucketAggregate { order: Some(order), ..node.clone() };
            by_time.then(|| LogicalPlan::Extension(Extension { node: Arc::new(node) }))
        }
        _ => None,
    }
}

/// What a group is told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Meta,
    Time,
}

/// What the engine is asked.
#[derive(Debug)]
struct Question {
    /// Without times and metas; its last columns have to be without NaN.
    request: AggregateRequest,
    keys: Vec<Key>,
}

/// The order of groups in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Order {
    descending: bool,
    /// Only so many are wanted.
    fetch: Option<usize>,
}

/// An aggregate that the engine answers, in a logical plan.
#[derive(Debug, Clone)]
struct BucketAggregate {
    aggregate: Arc<Aggregate>,
    question: Arc<Question>,
    order: Option<Order>,
}

impl Question {
    /// Of an aggregate that has been optimized.
    fn of(aggregate: &Aggregate) -> Option<Question> {
        let scan = scan_of(aggregate)?;
        let provider = source_as_provider(&scan.source).ok()?;
        let table = provider.downcast_ref::<CollectionTable>()?;
        let exact = |filter: &Expr| table.roles().supports(filter) == TableProviderFilterPushDown::Exact;
        if scan.fetch.is_some() || !scan.filters.iter().all(exact) {
            return None;
        }
        let schema = table.schema_now()?;
        let (mut request, mut keys, mut checks) = (AggregateRequest::default(), Vec::new(), Vec::new());
        for key in aggregate.group_expr.iter().map(bare) {
            let key = match width_of(key, schema) {
                Some(width) => {
                    request.width = Some(width);
                    Key::Time
                }
                None if key.try_as_col().is_some_and(|c| schema.meta.as_ref() == Some(&c.name)) => {
                    request.by_meta = true;
                    Key::Meta
                }
                None => return None,
            };
            if keys.contains(&key) {
                return None;
            }
            keys.push(key);
        }
        for function in &aggregate.aggr_expr {
            let Expr::AggregateFunction(function) = bare(function) else { return None };
            request.aggregates.push(aggregate_of(function, schema, &mut checks)?);
        }
        request.aggregates.extend(checks);
        Some(Question { request, keys })
    }
}

/// An expression without names that it was given.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => bare(&alias.expr),
        expr => expr,
    }
}

fn scan_of(aggregate: &Aggregate) -> Option<&TableScan> {
    match aggregate.input.as_ref() {
        LogicalPlan::TableScan(scan) => Some(scan),
        _ => None,
    }
}

/// The width of the bins that a key puts times into, in units, if they are counted from the epoch.
fn width_of(key: &Expr, schema: &Schema) -> Option<i64> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = key else { return None };
    let [Expr::Literal(width, _), time] = args.as_slice() else { return None };
    if time.try_as_col()?.name != schema.time {
        return None;
    }
    fixed_width(func.name(), width, schema)
}

/// The width of the bins of `date_bin` or `date_trunc` in units of a collection, if they all have the same one.
pub(crate) fn fixed_width(function: &str, width: &ScalarValue, schema: &Schema) -> Option<i64> {
    let nanos = match function {
        "date_bin" => match width.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano)) {
            Ok(ScalarValue::IntervalMonthDayNano(Some(width))) if width.months == 0 => {
                i128::from(width.days) * 86_400_000_000_000 + i128::from(width.nanoseconds)
            }
            _ => return None,
        },
        "date_trunc" => match width.try_as_str()?? {
            "second" => 1_000_000_000,
            "minute" => 60_000_000_000,
            "hour" => 3_600_000_000_000,
            "day" => 86_400_000_000_000,
            _ => return None,
        },
        _ => return None,
    };
    let unit = i128::from(1_000_000_000 / schema.precision.per_second());
    if nanos <= 0 || nanos % unit != 0 { None } else { i64::try_from(nanos / unit).ok() }
}

/// What the engine calls a function. `checks` are to be without NaN.
fn aggregate_of(
    function: &AggregateFunction,
    schema: &Schema,
    checks: &mut Vec<ebbtide::Aggregate>,
) -> Option<ebbtide::Aggregate> {
    use ebbtide::Aggregate;
    let params = &function.params;
    let ignores_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
    if params.distinct || ignores_nulls || params.filter.is_some() || !params.order_by.is_empty() {
        return None;
    }
    let [arg] = params.args.as_slice() else { return None };
    let name = function.func.name();
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
        // Of NaN DataFusion makes what the order of rows and the groups happen to give: left to it.
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

impl PartialEq for BucketAggregate {
    fn eq(&self, other: &Self) -> bool {
        (&self.aggregate, self.order) == (&other.aggregate, other.order)
    }
}

impl Eq for BucketAggregate {}

impl Hash for BucketAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.aggregate, self.order).hash(state);
    }
}

impl PartialOrd for BucketAggregate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for BucketAggregate {
    fn name(&self) -> &'static str {
        "BucketAggregate"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.aggregate.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aggregate = LogicalPlan::Aggregate(self.aggregate.as_ref().clone());
        write!(f, "Bucket{}, {}", aggregate.display(), self.aggregate.input.display())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (exprs.as_slice(), inputs.as_slice()) {
            ([], []) => Ok(self.clone()),
            _ => internal_err!("an aggregate of buckets has no inputs"),
        }
    }
}
