//! Lists of doubles that have both zeros if they have one.
//!
//! `x IN (...)` looks doubles up by their bits, but -0.0 and 0.0 are equal. The other zero is added when a plan is optimized: several
//! conditions with `=` become a list only then.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};
use std::borrow::Cow;

/// Adds the other zero to lists of doubles that have one, in a plan that is optimized.
pub(crate) fn in_plan(plan: &LogicalPlan) -> Result<Cow<'_, LogicalPlan>> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| Ok(lacks_a_zero(expr)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    if !found {
        return Ok(Cow::Borrowed(plan));
    }
    let rewritten = plan.clone().transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        let named = |expr: Expr| {
            let name = names.save(&expr);
            Ok(in_expr(expr)?.update_data(|expr| name.restore(expr)))
        };
        node.map_expressions(|expr| match expr {
            // Only its parts have names.
            Expr::GroupingSet(_) => expr.map_children(named),
            expr => named(expr),
        })
    })?;
    Ok(Cow::Owned(rewritten.data))
}

/// The same for an expression that is not optimized any more.
pub(crate) fn with_both(expr: Expr) -> Result<Expr> {
    Ok(in_expr(expr)?.data)
}

fn in_expr(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::InList(mut list) => {
            let others: Vec<Expr> = missing_zeros(&list).collect();
            let changed = !others.is_empty();
            list.list.extend(others);
            Ok(Transformed::new_transformed(Expr::InList(list), changed))
        }
        other => Ok(Transformed::no(other)),
    })
}

fn lacks_a_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::InList(list) if missing_zeros(list).next().is_some())
}

/// The zeros that a list has with the other sign alone.
fn missing_zeros(list: &InList) -> impl Iterator<Item = Expr> {
    let other = |item: &Expr| match item {
        Expr::Literal(ScalarValue::Float64(Some(x)), of) if *x == 0.0 => {
            Some(Expr::Literal(ScalarValue::Float64(Some(-x)), of.clone()))
        }
        Expr::Literal(ScalarValue::Float32(Some(x)), of) if *x == 0.0 => {
            Some(Expr::Literal(ScalarValue::Float32(Some(-x)), of.clone()))
        }
        _ => None,
    };
    list.list.iter().filter_map(other).filter(|zero| !list.list.contains(zero))
}
