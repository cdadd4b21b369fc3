//! `count(DISTINCT x)` of an `x` that is NULL and has no type.
//!
//! DataFusion counts one value where there is no row. With a type there is none.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast};
use std::sync::Arc;

/// Gives such arguments a type.
pub(super) fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !counts_untyped(&plan)? {
        return Ok(plan);
    }
    let rewritten = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = node else { return Ok(Transformed::no(node)) };
        let schema = Arc::clone(aggregate.input.schema());
        LogicalPlan::Aggregate(aggregate).map_expressions(|expr| {
            // The argument is part of its name.
            let name = expr.schema_name().to_string();
            let typed = expr.transform_down(|expr| {
                if !is_untyped_count(&expr, &schema) {
                    return Ok(Transformed::no(expr));
                }
                let Expr::AggregateFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
                for arg in call.params.args.iter_mut().filter(|arg| is_untyped(arg, &schema)) {
                    *arg = cast(std::mem::take(arg), DataType::Int64);
                }
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            })?;
            Ok(if typed.transformed { Transformed::yes(typed.data.alias(name)) } else { typed })
        })
    })?;
    Ok(rewritten.data)
}

/// Whether there is such a call.
fn counts_untyped(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            for expr in &aggregate.aggr_expr {
                found |= expr.exists(|expr| Ok(is_untyped_count(expr, aggregate.input.schema())))?;
            }
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn is_untyped_count(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::AggregateFunction(call) => {
            call.params.distinct
                && call.func.name() == "count"
                && call.params.args.iter().any(|arg| is_untyped(arg, schema))
        }
        _ => false,
    }
}

fn is_untyped(arg: &Expr, schema: &DFSchema) -> bool {
    arg.get_type(schema).is_ok_and(|kind| kind == DataType::Null)
}
