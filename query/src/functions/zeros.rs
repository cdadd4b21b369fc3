//! Sorts that take -0.0 and 0.0 for one value, and sort intervals by their length, as DuckDB and PostgreSQL do.
//!
//! DataFusion sorts -0.0 before 0.0. That can be seen where equal values are told apart by a later key, and in windows, where
//! equal values are peers or form one partition. There, keys that are doubles are wrapped in [`EQUAL_BITS`]; a single key needs nothing, because
//! the order of equal values is not defined. Sorts within aggregates and of `DISTINCT ON` also lose keys that they repeat, with which
//! DataFusion fails.

use super::arguments::is_duration;
use super::arithmetic::call;
use super::floats::EQUAL_BITS;
use crate::timestamp_coercion::{is_interval, length_of};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Cast, WindowFunctionParams};
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, LogicalPlan, SortExpr, WindowFrameBound, WindowFrameUnits,
};
use std::sync::Arc;

/// Wraps the keys of a plan's sorts and windows, and of sorts within aggregates.
pub(super) fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_work(&plan)? {
        return Ok(plan);
    }
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Sort(mut sort) => {
            let last = sort.expr.len().saturating_sub(1);
            let wrapped = wrap(sort.expr.iter_mut().map(|key| &mut key.expr), last, sort.input.schema());
            Ok(Transformed::new_transformed(LogicalPlan::Sort(sort), wrapped))
        }
        LogicalPlan::Window(window) => {
            let schema = Arc::clone(window.input.schema());
            LogicalPlan::Window(window).map_expressions(|expr| {
                let name = expr.schema_name().to_string();
                // Other rules may have put an alias around it.
                let wrapped = expr.transform_up(|expr| match expr {
                    Expr::WindowFunction(mut window) => {
                        let params = &mut window.params;
                        let keys = params.order_by.iter_mut().map(|key| &mut key.expr);
                        let wrapped = wrap(keys.chain(&mut params.partition_by), usize::MAX, &schema);
                        let counted = count_units(params, &schema);
                        Ok(Transformed::new_transformed(Expr::WindowFunction(window), wrapped || counted))
                    }
                    other => Ok(Transformed::no(other)),
                })?;
                // Its keys are part of its name.
                Ok(wrapped
                    .update_data(|expr| if expr.schema_name().to_string() == name { expr } else { expr.alias(name) }))
            })
        }
        LogicalPlan::Aggregate(aggregate) => {
            let schema = Arc::clone(aggregate.input.schema());
            LogicalPlan::Aggregate(aggregate).map_expressions(|expr| {
                let name = expr.schema_name().to_string();
                let sorted = expr.transform_up(|expr| match expr {
                    Expr::AggregateFunction(mut call) => {
                        let changed = tidy(&mut call.params.order_by, 0, &schema);
                        Ok(Transformed::new_transformed(Expr::AggregateFunction(call), changed))
                    }
                    other => Ok(Transformed::no(other)),
                })?;
                Ok(sorted
                    .update_data(|expr| if expr.schema_name().to_string() == name { expr } else { expr.alias(name) }))
            })
        }
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            let schema = Arc::clone(on.input.schema());
            let keys = on.on_expr.len();
            let changed = on.sort_expr.as_mut().is_some_and(|sort| tidy(sort, keys, &schema));
            Ok(Transformed::new_transformed(LogicalPlan::Distinct(Distinct::On(on)), changed))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(rewritten.data)
}

/// Makes a number of the difference of times that a window is sorted by, with which DataFusion has no frames that end with peers, as
/// the default one does. Returns whether there is one.
fn count_units(params: &mut WindowFunctionParams, schema: &DFSchema) -> bool {
    let has_distance = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => !distance.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    let frame = &params.window_frame;
    // A distance from a difference of times is no number, and is refused.
    let is_refused =
        frame.units == WindowFrameUnits::Range && (has_distance(&frame.start_bound) || has_distance(&frame.end_bound));
    match params.order_by.first_mut() {
        Some(key) if !is_refused && key.expr.get_type(schema).is_ok_and(|kind| is_duration(&kind)) => {
            key.expr = Expr::Cast(Cast::new(Box::new(std::mem::take(&mut key.expr)), DataType::Int64));
            true
        }
        _ => false,
    }
}

/// Takes away the keys that a sort repeats, and wraps those after the first `from`; returns whether the sort is another now.
fn tidy(keys: &mut Vec<SortExpr>, from: usize, schema: &DFSchema) -> bool {
    let before = keys.len();
    let mut seen = Vec::with_capacity(before);
    keys.retain(|key| {
        let is_new = !seen.contains(&key.expr);
        seen.push(key.expr.clone());
        is_new
    });
    let last = keys.len().saturating_sub(1 + from);
    let wrapped = wrap(keys.iter_mut().skip(from).map(|key| &mut key.expr), last, schema);
    wrapped || keys.len() < before
}

/// Whether there is a sort by more than one key or by an interval, also within an aggregate, or a window.
fn has_work(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= match node {
            LogicalPlan::Sort(sort) => is_work(&sort.expr, sort.input.schema()),
            LogicalPlan::Window(_) => true,
            LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.iter().any(|expr| {
                let schema = aggregate.input.schema();
                let sorts =
                    |expr: &Expr| matches!(expr, Expr::AggregateFunction(call) if is_work(&call.params.order_by, schema));
                expr.exists(|expr| Ok(sorts(expr))).unwrap_or(false)
            }),
            LogicalPlan::Distinct(Distinct::On(on)) => {
                on.sort_expr.as_ref().is_some_and(|keys| is_work(keys, on.input.schema()))
            }
            _ => false,
        };
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn is_work(keys: &[SortExpr], schema: &DFSchema) -> bool {
    keys.len() > 1 || keys.iter().any(|key| key.expr.get_type(schema).is_ok_and(|kind| is_interval(&kind)))
}

/// Wraps those of some keys that are intervals, and those of the first `doubles` that are doubles; returns whether there are any.
fn wrap<'a>(keys: impl Iterator<Item = &'a mut Expr>, doubles: usize, schema: &DFSchema) -> bool {
    let mut wrapped = false;
    for (at, key) in keys.enumerate() {
        let wrapping = match key.get_type(schema) {
            Ok(kind) if kind.is_floating() && at < doubles => call(&EQUAL_BITS, vec![std::mem::take(key)]),
            Ok(kind) if is_interval(&kind) => length_of(std::mem::take(key)),
            _ => continue,
        };
        *key = wrapping;
        wrapped = true;
    }
    wrapped
}
