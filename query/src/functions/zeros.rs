//! Sorts that take -0.0 and 0.0 for one value, as DuckDB and PostgreSQL do.
//!
//! DataFusion sorts -0.0 before 0.0. That can be seen where equal values are told apart by a later key, and in windows, where
//! equal values are peers or form one partition. There, keys that are doubles are wrapped in [`EQUAL_BITS`]; a single key needs nothing, because
//! the order of equal values is not defined.

use super::arithmetic::call;
use super::floats::EQUAL_BITS;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use std::sync::Arc;

/// Wraps the keys of a plan's sorts and windows.
pub(super) fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !sorts_by_several(&plan)? {
        return Ok(plan);
    }
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Sort(mut sort) => {
            let last = sort.expr.len().saturating_sub(1);
            let wrapped = wrap(sort.expr[..last].iter_mut().map(|key| &mut key.expr), sort.input.schema());
            Ok(Transformed::new_transformed(LogicalPlan::Sort(sort), wrapped))
        }
        LogicalPlan::Window(window) => {
            let schema = Arc::clone(window.input.schema());
            LogicalPlan::Window(window).map_expressions(|expr| match expr {
                Expr::WindowFunction(mut window) => {
                    let name = Expr::WindowFunction(window.clone()).schema_name().to_string();
                    let params = &mut window.params;
                    let keys = params.order_by.iter_mut().map(|key| &mut key.expr);
                    let wrapped = wrap(keys.chain(&mut params.partition_by), &schema);
                    let expr = Expr::WindowFunction(window);
                    // Its keys are part of its name.
                    Ok(Transformed::new_transformed(if wrapped { expr.alias(name) } else { expr }, wrapped))
                }
                other => Ok(Transformed::no(other)),
            })
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(rewritten.data)
}

/// Whether there is a sort by more than one key, or a window.
fn sorts_by_several(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= match node {
            LogicalPlan::Sort(sort) => sort.expr.len() > 1,
            LogicalPlan::Window(_) => true,
            _ => false,
        };
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Wraps those of some keys that are doubles; returns whether there are any.
fn wrap<'a>(keys: impl Iterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let mut wrapped = false;
    for key in keys {
        if key.get_type(schema).is_ok_and(|kind| kind.is_floating()) {
            *key = call(&EQUAL_BITS, vec![std::mem::take(key)]);
            wrapped = true;
        }
    }
    wrapped
}
