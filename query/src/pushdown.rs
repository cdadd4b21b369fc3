//! Decides which of a statement's filters the engine applies: those that select metas or a range of times, or that skip
//! buckets and rows by a field's bounds, or rows by the texts that they must contain.

mod texts;

use crate::error::QueryError;
use crate::zeros_in_lists;
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{InList, Placeholder};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_plan::PhysicalExpr;
use ebbtide::ttl::Value;
use ebbtide::{FieldBound, MetaFilter, TextCondition};
use std::sync::Arc;

/// The name of the field of a parameter.
const PARAMETER: &str = "parameter";

/// First and last value of a range, inclusive.
pub(crate) type Bounds<T> = (Option<T>, Option<T>);
/// First and last instant, inclusive, in units of the collection.
pub(crate) type Range = Bounds<i64>;

/// The columns of a collection that are its time and its meta: the engine applies filters on them.
pub(crate) struct PushdownRules<'a> {
    pub(crate) time: &'a str,
    pub(crate) meta: Option<&'a str>,
}

/// How the engine uses one filter.
enum FilterPushdown {
    Meta,
    Time { range: Range, exact: bool },
    Bound(FieldBound),
    Texts(TextCondition),
    Nothing,
}

impl PushdownRules<'_> {
    fn pushdown(&self, filter: &Expr) -> FilterPushdown {
        // A condition on the meta may have become a constant since it was pushed down.
        if let Some(meta) = self.meta
            && (filter.any_column_refs() || matches!(filter, Expr::Literal(..)))
            && filter.column_refs().iter().all(|c| c.name == meta)
            && is_plain(filter)
        {
            return FilterPushdown::Meta;
        }
        let is_time = |e: &Expr| matches!(e, Expr::Column(c) if c.name == self.time);
        if let Some((range, exact)) = time_range(filter, &is_time, &|v| units(v).map(i128::from)) {
            return FilterPushdown::Time { range: narrow(range), exact };
        }
        if let Some(bound) = bound(filter) {
            return FilterPushdown::Bound(bound);
        }
        texts::condition(filter).map_or(FilterPushdown::Nothing, FilterPushdown::Texts)
    }

    pub(crate) fn supports(&self, filter: &Expr) -> TableProviderFilterPushDown {
        match self.pushdown(filter) {
            FilterPushdown::Meta | FilterPushdown::Time { exact: true, .. } => TableProviderFilterPushDown::Exact,
            FilterPushdown::Time { .. } | FilterPushdown::Bound(_) | FilterPushdown::Texts(_) => {
                TableProviderFilterPushDown::Inexact
            }
            FilterPushdown::Nothing => TableProviderFilterPushDown::Unsupported,
        }
    }

    /// The same for a table that applies a condition exactly or not at all.
    pub(crate) fn supports_exactly(&self, filter: &Expr) -> TableProviderFilterPushDown {
        match self.supports(filter) {
            TableProviderFilterPushDown::Exact => TableProviderFilterPushDown::Exact,
            _ => TableProviderFilterPushDown::Unsupported,
        }
    }

    /// The part of `filters` that the engine applies. All filters must hold.
    pub(crate) fn split(&self, filters: &[Expr], schema: &SchemaRef, state: &dyn Session) -> Result<PushedFilters> {
        let mut pushed = PushedFilters::default();
        let mut metas = Vec::new();
        for filter in filters {
            match self.pushdown(filter) {
                FilterPushdown::Meta => metas.push(filter.clone()),
                FilterPushdown::Time { range, .. } => pushed.time = intersect(pushed.time, range),
                FilterPushdown::Bound(bound) => pushed.bounds.push(bound),
                FilterPushdown::Texts(condition) => pushed.texts.push(condition),
                FilterPushdown::Nothing => {}
            }
        }
        let candidates = |filter: &Expr| candidates(filter, self.meta?);
        let candidates = metas.iter().flat_map(split_conjunction).filter_map(candidates).collect();
        if let (Some(meta), Some(predicate)) = (self.meta, conjunction(metas)) {
            let schema = Arc::new(ArrowSchema::new(vec![schema.field_with_name(meta)?.clone()]));
            let text = predicate.to_string();
            let predicate = zeros_in_lists::with_both(unqualified(predicate)?)?;
            let predicate = state.create_physical_expr(predicate, &DFSchema::try_from(schema.as_ref().clone())?)?;
            pushed.meta = Some(Arc::new(MetaPredicate { predicate, schema, text, candidates }));
        }
        Ok(pushed)
    }
}

/// Removes table names from the columns of a filter.
pub(crate) fn unqualified(expr: Expr) -> Result<Expr> {
    use datafusion::common::tree_node::{Transformed, TreeNode};
    let expr = expr.transform_up(|e| match e {
        Expr::Column(column) => {
            Ok(Transformed::yes(Expr::Column(datafusion::common::Column::new_unqualified(column.name))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(expr.data)
}

/// The filters that the engine applies.
#[derive(Debug, Default, Clone)]
pub(crate) struct PushedFilters {
    pub(crate) time: Range,
    pub(crate) meta: Option<Arc<MetaPredicate>>,
    pub(crate) bounds: Vec<FieldBound>,
    pub(crate) texts: Vec<TextCondition>,
}

/// A predicate on the meta field, evaluated on distinct metas.
#[derive(Debug)]
pub(crate) struct MetaPredicate {
    predicate: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    pub(crate) text: String,
    candidates: Vec<(Vec<String>, Vec<Value>)>,
}

impl MetaPredicate {
    /// The condition of a join, on a column that has only metas.
    pub(crate) fn of_join(predicate: Arc<dyn PhysicalExpr>, schema: SchemaRef) -> MetaPredicate {
        MetaPredicate { predicate, schema, text: "the condition of a join".to_owned(), candidates: Vec::new() }
    }
}

impl MetaFilter for MetaPredicate {
    fn candidates(&self) -> &[(Vec<String>, Vec<Value>)] {
        &self.candidates
    }

    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![Arc::clone(metas)])?;
        let rows = batch.num_rows();
        let value = self.predicate.evaluate(&batch).and_then(|v| v.into_array(rows));
        let array = value.map_err(|e| ArrowError::ExternalError(Box::new(QueryError::from(e))))?;
        match array.as_any().downcast_ref::<BooleanArray>() {
            Some(selected) => Ok(selected.clone()),
            None => Err(ArrowError::ComputeError(format!("'{}' is not a condition", self.text))),
        }
    }
}

/// The range of times (first and last) outside which a filter cannot hold, and whether it holds everywhere inside.
/// `is_time` recognizes the time column, and `units` reads the constants that it is compared with.
pub(crate) fn time_range(
    filter: &Expr,
    is_time: &dyn Fn(&Expr) -> bool,
    units: &dyn Fn(&ScalarValue) -> Option<i128>,
) -> Option<(Bounds<i128>, bool)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { return None };
    let side = |side: &Expr| time_range(side, is_time, units);
    match op {
        Operator::And => match (side(left), side(right)) {
            (Some((a, exact_a)), Some((b, exact_b))) => Some((intersect(a, b), exact_a && exact_b)),
            (Some((a, _)), None) | (None, Some((a, _))) => Some((a, false)),
            (None, None) => None,
        },
        Operator::Or => {
            let ((a, _), (b, _)) = (side(left)?, side(right)?);
            let low = a.0.zip(b.0).map(|(a, b)| a.min(b));
            let high = a.1.zip(b.1).map(|(a, b)| a.max(b));
            Some(((low, high), false))
        }
        op => {
            let (op, constant) = match (&**left, &**right) {
                (time, constant) if is_time(time) => (*op, constant),
                (constant, time) if is_time(time) => (op.swap()?, constant),
                _ => return None,
            };
            let units = match constant {
                Expr::Literal(value, _) => units(value)?,
                // Types are equal, or a conversion would be around one of them.
                Expr::Placeholder(placeholder) if parameter_type(placeholder).is_some() => 0,
                _ => return None,
            };
            let range = match op {
                Operator::Eq => (Some(units), Some(units)),
                Operator::Lt => (None, Some(units - 1)),
                Operator::LtEq => (None, Some(units)),
                Operator::Gt => (Some(units + 1), None),
                Operator::GtEq => (Some(units), None),
                _ => return None,
            };
            Some((range, true))
        }
    }
}

/// Restricts a range to times that a collection can store; an empty range if it lies outside them.
fn narrow(range: Bounds<i128>) -> Range {
    let none = (Some(i64::MAX), Some(i64::MIN));
    match (range.0.map(i64::try_from).transpose(), range.1.map(i64::try_from).transpose()) {
        (Ok(first), Ok(last)) => (first, last),
        _ => none,
    }
}

pub(crate) fn intersect<T: Ord>(a: Bounds<T>, b: Bounds<T>) -> Bounds<T> {
    (
        a.0.max(b.0),
        match (a.1, b.1) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        },
    )
}

fn units(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::TimestampMillisecond(v, _)
        | ScalarValue::TimestampMicrosecond(v, _)
        | ScalarValue::TimestampNanosecond(v, _) => *v,
        _ => None,
    }
}

/// A placeholder for a value of exactly this type that is not null: conditions are pushed down as with the value, which
/// takes its place before they are used.
pub(crate) fn parameter(kind: DataType, id: String) -> Expr {
    Expr::Placeholder(Placeholder { id, field: Some(Arc::new(Field::new(PARAMETER, kind, false))) })
}

/// The type of a [`parameter`]; `None` for other placeholders, whose values may have any type.
fn parameter_type(placeholder: &Placeholder) -> Option<&DataType> {
    // DataFusion gives placeholders the field of a column, whatever its name, but lets it be null.
    let field = placeholder.field.as_ref().filter(|field| field.name() == PARAMETER && !field.is_nullable());
    field.map(|field| field.data_type())
}

/// Whether an expression has the same value for the same meta, whenever and however often it is evaluated.
pub(crate) fn is_plain(filter: &Expr) -> bool {
    use datafusion::common::tree_node::TreeNode;
    !filter
        .exists(|e| {
            Ok(match e {
                Expr::OuterReferenceColumn(..)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::ScalarSubquery(_)
                | Expr::SetComparison(_)
                | Expr::ScalarVariable(..) => true,
                Expr::Placeholder(placeholder) => parameter_type(placeholder).is_none(),
                e => e.is_volatile_node(),
            })
        })
        .unwrap_or(true)
}

/// Bounds of a field from `field op number`.
fn bound(filter: &Expr) -> Option<FieldBound> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { return None };
    let (column, op, constant) = match (&**left, &**right) {
        (Expr::Column(column), constant) => (column, *op, constant),
        (constant, Expr::Column(column)) => (column, op.swap()?, constant),
        _ => return None,
    };
    let value = match constant {
        Expr::Literal(value, _) => number(value)?,
        Expr::Placeholder(placeholder) => match parameter_type(placeholder)? {
            DataType::Int64 | DataType::Float64 => 0.0,
            _ => return None,
        },
        _ => return None,
    };
    let (min, max) = match op {
        Operator::Eq => (Some(value), Some(value)),
        Operator::Lt | Operator::LtEq => (None, Some(value)),
        // NaN is greater than every number, both in SQL and in the order that defines a bucket's maximum.
        Operator::Gt | Operator::GtEq => (Some(value), None),
        _ => return None,
    };
    Some(FieldBound { field: column.name.clone(), min, max })
}

/// The path inside the meta field, and the values, of `meta.path = value`, `meta.path IN (value, ...)`, and several of these with
/// `OR` between them.
fn candidates(filter: &Expr, meta: &str) -> Option<(Vec<String>, Vec<Value>)> {
    let literal = |value: &Expr| match value {
        Expr::Literal(value, _) => scalar(value),
        _ => None,
    };
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let (side, value) = if matches!(&**left, Expr::Literal(..)) { (right, left) } else { (left, right) };
            Some((path(side, meta)?, vec![literal(value)?]))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let ((of, mut values), (of_right, others)) = (candidates(left, meta)?, candidates(right, meta)?);
            values.extend(others);
            (of == of_right).then_some((of, values))
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            Some((path(expr, meta)?, list.iter().map(literal).collect::<Option<_>>()?))
        }
        _ => None,
    }
}

/// The names that lead from the meta field to a member of it.
pub(crate) fn path(expr: &Expr, meta: &str) -> Option<Vec<String>> {
    match expr {
        Expr::Column(column) if column.name == meta => Some(Vec::new()),
        Expr::ScalarFunction(call) if call.name() == "get_field" => {
            let (object, members) = call.args.split_first()?;
            let mut names = path(object, meta)?;
            for member in members {
                let Expr::Literal(name, _) = member else { return None };
                names.push(name.try_as_str()??.to_owned());
            }
            Some(names)
        }
        _ => None,
    }
}

fn scalar(value: &ScalarValue) -> Option<Value> {
    match value {
        ScalarValue::Boolean(Some(b)) => Some(Value::Bool(*b)),
        ScalarValue::Int64(Some(i)) => Some(Value::Int(*i)),
        ScalarValue::Float64(Some(d)) if d.is_finite() => Some(Value::Double(*d)),
        other => other.try_as_str()?.map(Value::from),
    }
}

/// The value of a number that a double holds exactly.
#[expect(clippy::cast_precision_loss, reason = "integers beyond 2^53 are excluded")]
fn number(value: &ScalarValue) -> Option<f64> {
    match value {
        ScalarValue::Int64(Some(v)) if v.unsigned_abs() <= 1 << 53 => Some(*v as f64),
        ScalarValue::Float64(Some(v)) if v.is_finite() => Some(*v),
        _ => None,
    }
}
