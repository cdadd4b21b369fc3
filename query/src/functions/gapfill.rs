//! Gap filling: a query that groups by `date_bin_gapfill` returns a row for every bin of each series.
//!
//! A [`GapFill`] node is put between the aggregate and the SELECT list: a projection below it computes the arguments of
//! `locf` and `interpolate`, and above it those calls are columns. The range to fill is given by the call, or else
//! taken from the WHERE condition on the time, which stays in place and reaches the scan.

mod exec;
mod node;

use super::arguments::wrong;
use super::date_bin::{self, GAPFILL, INTERPOLATE, LOCF, Shape, misplaced};
use crate::pushdown::{Bounds, intersect, time_range};
use crate::timestamp_coercion::{constant_instant, scalar_instant};
use chrono::{DateTime, Utc};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, Extension, LogicalPlan, LogicalPlanBuilder, Sort};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use ebbtide_buckets::unit_nanos;
use ebbtide_ttl::Timestamp;
use std::sync::Arc;

pub(super) use exec::GapFillExec;
pub(super) use node::{FillKind, GapFill};

/// What the rewrite needs to know about the statement.
pub(super) struct Statement<'a> {
    pub(super) now: Option<DateTime<Utc>>,
    pub(super) config: &'a Arc<ConfigOptions>,
}

fn call<'e>(expr: &'e Expr, names: &[&str]) -> Option<&'e ScalarFunction> {
    match expr {
        Expr::ScalarFunction(call) if names.contains(&call.func.name()) => Some(call),
        _ => None,
    }
}

fn mentions(expr: &Expr, names: &[&str]) -> Result<bool> {
    expr.exists(|e| Ok(call(e, names).is_some()))
}

/// Fills the gaps of every query in a plan that groups by `date_bin_gapfill`.
pub(super) fn rewrite(plan: LogicalPlan, statement: &Statement<'_>) -> Result<LogicalPlan> {
    let mut filled = 0_usize;
    let plan = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Sort(sort) => select_ordered(sort),
        other => Ok(Transformed::no(other)),
    })?;
    let plan = plan.data.transform_up_with_subqueries(|plan| {
        let plan = match &plan {
            LogicalPlan::Projection(_) => fill(&plan, statement)?,
            _ => None,
        }
        .map_or(Transformed::no(plan), Transformed::yes);
        filled += usize::from(plan.transformed);
        // Columns that were never null may now be, and so may everything computed from them.
        if filled > 0 { plan.map_data(LogicalPlan::recompute_schema) } else { Ok(plan) }
    })?;
    let plan = plan.data;
    let mut binned = 0_usize;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::Aggregate(aggregate) = plan {
            binned += usize::from(aggregate.group_expr.iter().any(|e| call(e, &[GAPFILL]).is_some()));
        }
        plan.apply_expressions(|expr| {
            let all = [GAPFILL, LOCF, INTERPOLATE];
            let inside = match (plan, call(expr, &[GAPFILL])) {
                // A gap-filling node is above this one.
                (LogicalPlan::Aggregate(aggregate), Some(call)) if aggregate.group_expr.contains(expr) => {
                    &call.args[..]
                }
                _ => std::slice::from_ref(expr),
            };
            for expr in inside {
                expr.apply(|e| match call(e, &all) {
                    Some(call) => plan_err!("{}", misplaced(call.func.name())),
                    None => Ok(TreeNodeRecursion::Continue),
                })?;
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if binned != filled { plan_err!("{}", misplaced(GAPFILL)) } else { Ok(plan) }
}

/// ORDER BY is evaluated above the SELECT list. So calls in ORDER BY that fill gaps are added to the SELECT list, and
/// their columns are removed again after sorting.
fn select_ordered(mut sort: Sort) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = sort.input.as_ref() else {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    };
    let mut selected = projection.expr.clone();
    for order in &mut sort.expr {
        let expr = std::mem::take(&mut order.expr).transform_down(|e| {
            if call(&e, &[LOCF, INTERPOLATE]).is_none() {
                return Ok(Transformed::no(e));
            }
            let name = e.schema_name().to_string();
            let below = e.transform_up(|e| {
                let at = e.try_as_col().and_then(|c| projection.schema.maybe_index_of_column(c));
                Ok(at.map_or(Transformed::no(e), |at| Transformed::yes(projection.expr[at].clone().unalias())))
            })?;
            selected.push(below.data.alias(&name));
            Ok(Transformed::new(Expr::Column(Column::new_unqualified(name)), true, TreeNodeRecursion::Jump))
        })?;
        order.expr = expr.data;
    }
    if selected.len() == projection.expr.len() {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    }
    selected.dedup();
    let columns: Vec<Expr> = projection.schema.columns().into_iter().map(Expr::Column).collect();
    let input = LogicalPlanBuilder::from(projection.input.as_ref().clone()).project(selected)?;
    let plan = input.sort_with_limit(sort.expr, sort.fetch)?.project(columns)?.build()?;
    Ok(Transformed::yes(plan))
}

/// The plan with gap filling inserted; `None` if the projection is not over an aggregate by `date_bin_gapfill`.
fn fill(plan: &LogicalPlan, statement: &Statement<'_>) -> Result<Option<LogicalPlan>> {
    let mut above = vec![plan];
    let mut below = plan;
    let aggregate = loop {
        below = match below {
            LogicalPlan::Aggregate(aggregate) => break aggregate,
            LogicalPlan::Projection(p) if std::ptr::eq(below, plan) => p.input.as_ref(),
            LogicalPlan::Filter(f) => f.input.as_ref(),
            LogicalPlan::Window(w) => w.input.as_ref(),
            _ => return Ok(None),
        };
        above.push(below);
    };
    let binned: Vec<usize> =
        (0..aggregate.group_expr.len()).filter(|i| call(&aggregate.group_expr[*i], &[GAPFILL]).is_some()).collect();
    let at = match binned[..] {
        [] => return Ok(None),
        [at] => at,
        _ => return plan_err!("{GAPFILL} may appear once in GROUP BY; use date_bin for other bins"),
    };
    above.pop();
    // HAVING applies to measured bins, before gaps are filled.
    let mut measured = LogicalPlan::Aggregate(aggregate.clone());
    while let Some(LogicalPlan::Filter(having)) = above.last() {
        if mentions(&having.predicate, &[LOCF, INTERPOLATE])? {
            return plan_err!(
                "HAVING is applied before gaps are filled: filter by {LOCF} and {INTERPOLATE} in a query around this one"
            );
        }
        measured = LogicalPlanBuilder::from(measured).filter(having.predicate.clone())?.build()?;
        above.pop();
    }
    let calls = fill_calls(&above)?;
    let mut columns: Vec<Expr> = measured.schema().columns().into_iter().map(Expr::Column).collect();
    let group: Vec<Column> = measured.schema().columns().into_iter().take(aggregate.group_expr.len()).collect();
    let mut fills = Vec::new();
    for fill in &calls {
        let kind = if fill.func.name() == LOCF { FillKind::Locf } else { FillKind::Interpolate };
        let (value, name) = argument(fill, kind, measured.schema())?;
        columns.push(value.alias(name.clone()));
        fills.push((Column::new_unqualified(name), kind));
    }
    let input = LogicalPlanBuilder::from(measured).project(columns)?.build()?;
    let time = group[at].clone();
    let series = group.into_iter().enumerate().filter(|(i, _)| *i != at).map(|(_, c)| c).collect();
    let (grid, range) = grid(aggregate, at, statement)?;
    let mut filled = LogicalPlan::Extension(Extension {
        node: Arc::new(GapFill::try_new(input, time, series, fills, grid, range)?),
    });
    for node in above.into_iter().rev() {
        let names = NamePreserver::new(node);
        let mut exprs = Vec::new();
        for expr in node.expressions() {
            let name = names.save(&expr);
            let expr = expr.transform_down(|e| match call(&e, &[LOCF, INTERPOLATE]) {
                Some(_) => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(e.schema_name().to_string())))),
                None => Ok(Transformed::no(e)),
            })?;
            exprs.push(name.restore(expr.data));
        }
        filled = node.with_new_exprs(exprs, vec![filled])?.recompute_schema()?;
    }
    Ok(Some(filled))
}

/// The distinct calls of `locf` and `interpolate` above an aggregate.
fn fill_calls(above: &[&LogicalPlan]) -> Result<Vec<ScalarFunction>> {
    let mut calls: Vec<ScalarFunction> = Vec::new();
    for node in above {
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                if let Some(call) = call(e, &[LOCF, INTERPOLATE]) {
                    if !calls.contains(call) {
                        calls.push(call.clone());
                    }
                    return Ok(TreeNodeRecursion::Jump);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
    }
    Ok(calls)
}

/// The expression that a call fills, and the name of its column.
fn argument(fill: &ScalarFunction, kind: FillKind, schema: &datafusion::common::DFSchemaRef) -> Result<(Expr, String)> {
    let name = fill.func.name();
    let [value] = &fill.args[..] else {
        return plan_err!("{name}(aggregate) takes one argument; given: {}", fill.args.len());
    };
    if mentions(value, &[LOCF, INTERPOLATE])? {
        return plan_err!("{name}({value}): functions that fill gaps cannot be nested");
    }
    let given = value.get_type(schema.as_ref())?;
    let value = match kind {
        FillKind::Interpolate if !given.is_numeric() && given != DataType::Null => {
            return wrong(name, 1, "aggregate", &format!("is {given}, a number is wanted; {LOCF} fills any type"));
        }
        FillKind::Interpolate => value.clone().cast_to(&DataType::Float64, schema.as_ref())?,
        FillKind::Locf => value.clone(),
    };
    Ok((value, Expr::ScalarFunction(fill.clone()).schema_name().to_string()))
}

/// The bins of a query, and the first and last time to fill.
fn grid(aggregate: &Aggregate, at: usize, statement: &Statement<'_>) -> Result<(node::Grid, (i64, i64))> {
    let Some(fill) = call(&aggregate.group_expr[at], &[GAPFILL]) else {
        return plan_err!("{}", misplaced(GAPFILL));
    };
    let schema = aggregate.input.schema();
    let (Some(width), Some(time)) = (fill.args.first(), fill.args.get(1)) else {
        return plan_err!("{GAPFILL} takes an interval and a time");
    };
    let given: Result<Vec<DataType>> = fill.args.iter().map(|a| a.get_type(schema.as_ref())).collect();
    let coerced = fill.func.coerce_types(&given?)?;
    let DataType::Timestamp(unit, _) = coerced[1] else {
        return wrong(GAPFILL, 2, "time", "is not a timestamp");
    };
    let Some(shape) = Shape::of(true, fill.args[2..].iter().collect()) else {
        return plan_err!("{GAPFILL} takes at most five arguments");
    };
    let constant = |expr: &Expr, at: usize, what: &str| -> Result<ScalarValue> {
        let context = SimplifyContext::builder()
            .with_schema(Arc::clone(schema))
            .with_query_execution_start_time(statement.now)
            .with_config_options(Arc::clone(statement.config))
            .build();
        match ExprSimplifier::new(context).simplify(expr.clone())? {
            Expr::Literal(value, _) => Ok(value),
            other => wrong(GAPFILL, at, what, &format!("is {other}, a constant is wanted")),
        }
    };
    let width = constant(width, 1, "interval")?;
    let anchor = shape.anchor.map(|a| constant(a, 3, "zone or origin")).transpose()?;
    let bins = date_bin::bins(GAPFILL, &width, unit, anchor.as_ref(), None)?;
    let range = match shape.range {
        Some((start, finish)) => {
            let first = fill.args.len() - 1;
            let instant =
                |expr: &Expr, at: usize, what: &str| match constant_instant(expr, statement.now, statement.config) {
                    Some(instant) => Ok(instant),
                    None => wrong(GAPFILL, at, what, &format!("is {expr}, a constant time is wanted")),
                };
            let (start, finish) = (instant(start, first, "start")?, instant(finish, first + 1, "finish")?);
            (Some(start), Some(Timestamp::from_nanos(finish.nanos() - 1)))
        }
        None => bounds(&aggregate.input, time)?,
    };
    let missing = match range {
        (Some(first), Some(last)) => {
            // Inclusive, in units: the first not before, the last not after.
            let unit = unit_nanos(unit);
            let clamp = |t: i128| i64::try_from(t).unwrap_or(if t < 0 { i64::MIN } else { i64::MAX });
            let (first, last) = (clamp(-(-first.nanos()).div_euclid(unit)), clamp(last.nanos().div_euclid(unit)));
            return Ok((node::Grid { width, anchor, bins: Arc::new(bins) }, (first, last)));
        }
        (None, None) => "the start and the end of the range are",
        (None, Some(_)) => "the start of the range is",
        (Some(_), None) => "the end of the range is",
    };
    plan_err!(
        "{GAPFILL}: {missing} not known; either limit the time on both sides in WHERE ({time} >= TIMESTAMP '2024-01-01' AND {time} \
         < now()), or name start and finish: {GAPFILL}(interval, time, start, finish)"
    )
}

/// First and last time that can pass the filters of a plan.
fn bounds(plan: &LogicalPlan, time: &Expr) -> Result<Bounds<Timestamp>> {
    match plan {
        LogicalPlan::Filter(filter) => {
            let mut found = bounds(&filter.input, time)?;
            for condition in split_conjunction(&filter.predicate) {
                found = intersect(found, condition_bounds(condition, time)?);
            }
            Ok(found)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(column) = time.try_as_col() else { return Ok((None, None)) };
            let Some(at) = alias.schema.maybe_index_of_column(column) else { return Ok((None, None)) };
            bounds(&alias.input, &Expr::Column(alias.input.schema().columns()[at].clone()))
        }
        LogicalPlan::Projection(projection) => {
            let Some(column) = time.try_as_col() else { return Ok((None, None)) };
            let Some(at) = projection.schema.maybe_index_of_column(column) else { return Ok((None, None)) };
            bounds(&projection.input, &projection.expr[at].clone().unalias())
        }
        LogicalPlan::Join(join) => {
            let mut found = (None, None);
            for side in [&join.left, &join.right] {
                if time.column_refs().iter().all(|c| side.schema().has_column(c)) {
                    found = intersect(found, bounds(side, time)?);
                }
            }
            Ok(found)
        }
        LogicalPlan::Sort(sort) => bounds(&sort.input, time),
        LogicalPlan::TableScan(scan) => {
            let mut found = (None, None);
            for condition in &scan.filters {
                found = intersect(found, condition_bounds(condition, time)?);
            }
            Ok(found)
        }
        _ => Ok((None, None)),
    }
}

/// The expression inside casts to other time units, which views contain.
fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) if matches!(cast.field.data_type(), DataType::Timestamp(..)) => uncast(&cast.expr),
        other => other,
    }
}

/// The range of times outside which a condition cannot hold.
fn condition_bounds(condition: &Expr, time: &Expr) -> Result<Bounds<Timestamp>> {
    let wanted = uncast(time);
    let instant = |value: &ScalarValue| match value {
        ScalarValue::TimestampSecond(..)
        | ScalarValue::TimestampMillisecond(..)
        | ScalarValue::TimestampMicrosecond(..)
        | ScalarValue::TimestampNanosecond(..) => scalar_instant(value).map(|t| t.nanos()),
        _ => None,
    };
    let range = time_range(condition, &|e| uncast(e) == wanted, &instant);
    Ok(range
        .map_or((None, None), |((first, last), _)| (first.map(Timestamp::from_nanos), last.map(Timestamp::from_nanos))))
}
