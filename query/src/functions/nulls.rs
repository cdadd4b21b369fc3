//! `count(DISTINCT x)` of an `x` that is NULL and has no type.
//!
//! DataFusion counts one value where there is no row. With a type there is none.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast};
use std::sync::Arc;

/// Gives such arguments a type.
pub(super) fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = node else { return Ok(Transformed::no(node)) };
        let schema = Arc::clone(aggregate.input.schema());
        let is_untyped = |arg: &Expr| arg.get_type(&schema).is_ok_and(|kind| kind == DataType::Null);
        LogicalPlan::Aggregate(aggregate).map_expressions(|expr| {
            let name = expr.schema_name().to_string();
            let typed = expr.transform_down(|expr| match expr {
                Expr::AggregateFunction(mut call)
                    if call.params.distinct
                        && call.func.name() == "count"
                        && call.params.args.iter().any(is_untyped) =>
                {
                    let args = call.params.args.into_iter();
                    call.params.args =
                        args.map(|arg| if is_untyped(&arg) { cast(arg, DataType::Int64) } else { arg }).collect();
                    Ok(Transformed::yes(Expr::AggregateFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            })?;
            // The argument is part of its name.
            Ok(if typed.transformed { Transformed::yes(typed.data.alias(name)) } else { typed })
        })
    })?;
    Ok(rewritten.data)
}
