//! Windows partitioned or ordered by comparisons: `PARTITION BY extract(hour FROM time) < 7`.
//!
//! DataFusion does not see that rows are sorted by a comparison with the result of a function, and fails. Such keys become columns
//! below the window.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, Projection, Window};
use std::sync::Arc;

/// Puts a projection with the keys below each such window.
pub(super) fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Window(window) = node {
            found |= window.window_expr.iter().any(|expr| function(expr).is_some_and(has_comparisons));
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Window(window) => with_columns(window),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(rewritten.data)
}

fn with_columns(window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut keys: Vec<Expr> = Vec::new();
    let mut column = |key: &mut Expr| {
        if compares(key) {
            let at = keys.iter().position(|known| known == key).unwrap_or(keys.len());
            let key = std::mem::replace(key, Expr::Column(Column::new_unqualified(format!("__window_key_{at}"))));
            if at == keys.len() {
                keys.push(key);
            }
        }
    };
    let mut functions = Vec::with_capacity(window.window_expr.len());
    for mut expr in window.window_expr {
        let name = expr.schema_name().to_string();
        if let Some(function) = function_mut(&mut expr).filter(|function| has_comparisons(function)) {
            let params = &mut function.params;
            params.partition_by.iter_mut().for_each(&mut column);
            params.order_by.iter_mut().for_each(|by| column(&mut by.expr));
            expr = expr.unalias().alias(name);
        }
        functions.push(expr);
    }
    if keys.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Window(Window::try_new(functions, window.input)?)));
    }
    let keys = keys.into_iter().enumerate().map(|(at, key)| key.alias(format!("__window_key_{at}")));
    let columns = window.input.schema().columns().into_iter().map(Expr::Column).chain(keys).collect();
    let input = Arc::new(LogicalPlan::Projection(Projection::try_new(columns, window.input)?));
    let windows = Arc::new(LogicalPlan::Window(Window::try_new(functions, input)?));
    let columns = window.schema.columns().into_iter().map(Expr::Column).collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, windows)?)))
}

fn function(expr: &Expr) -> Option<&WindowFunction> {
    match expr {
        Expr::WindowFunction(function) => Some(function),
        Expr::Alias(alias) => function(&alias.expr),
        _ => None,
    }
}

fn function_mut(expr: &mut Expr) -> Option<&mut WindowFunction> {
    match expr {
        Expr::WindowFunction(function) => Some(function),
        Expr::Alias(alias) => function_mut(&mut alias.expr),
        _ => None,
    }
}

fn has_comparisons(function: &WindowFunction) -> bool {
    let params = &function.params;
    params.partition_by.iter().chain(params.order_by.iter().map(|by| &by.expr)).any(compares)
}

/// Whether an expression compares what is computed.
fn compares(key: &Expr) -> bool {
    let is_computed = |side: &Expr| !matches!(side, Expr::Column(_) | Expr::Literal(..));
    let compares = |expr: &Expr| match expr {
        Expr::BinaryExpr(comparison) => {
            matches!(comparison.op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
                && (is_computed(&comparison.left) || is_computed(&comparison.right))
        }
        Expr::Between(between) => is_computed(&between.expr),
        _ => false,
    };
    key.exists(|expr| Ok(compares(expr))).unwrap_or(false)
}
