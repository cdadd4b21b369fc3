//! `FILTER` over frames of a distance: `sum(x) FILTER (WHERE c) OVER (ORDER BY t RANGE INTERVAL '1 month' PRECEDING)`.
//!
//! A physical window does not show its filter, so its frames could not be computed elsewhere than in DataFusion. For functions that leave out
//! nulls, the filter becomes a part of the argument: `sum(CASE WHEN c THEN x END)`.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{Case, WindowFunction};
use datafusion::logical_expr::{Expr, LogicalPlan, WindowFrameBound, WindowFrameUnits};

/// Functions to which a row whose argument is null makes no difference.
const LEAVE_OUT_NULLS: [&str; 33] = [
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "max",
    "median",
    "min",
    "percentile_cont",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "string_agg",
    "sum",
    "var",
    "var_pop",
];

/// Moves such filters into arguments.
pub(super) fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    let is_one = |expr: &Expr| matches!(expr, Expr::WindowFunction(function) if is_filtered(function));
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Window(window) = node {
            for expr in &window.window_expr {
                found |= expr.exists(|expr| Ok(is_one(expr)))?;
            }
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        node @ LogicalPlan::Window(_) => node.map_expressions(without_filter),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(rewritten.data)
}

fn without_filter(expr: Expr) -> Result<Transformed<Expr>> {
    // The filter is part of its name.
    let name = expr.schema_name().to_string();
    let moved = expr.transform_down(|expr| match expr {
        Expr::WindowFunction(mut function) if is_filtered(&function) => {
            let params = &mut function.params;
            if let (Some(arg), Some(filter)) = (params.args.first_mut(), params.filter.take()) {
                let value = Box::new(std::mem::take(arg));
                *arg = Expr::Case(Case::new(None, vec![(filter, value)], None));
            }
            Ok(Transformed::yes(Expr::WindowFunction(function)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(if moved.transformed { moved.update_data(|expr| expr.unalias().alias(name)) } else { moved })
}

fn is_filtered(function: &WindowFunction) -> bool {
    let (params, frame) = (&function.params, &function.params.window_frame);
    let is_distance = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => false,
        WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => !distance.is_null(),
    };
    params.filter.is_some()
        && !params.args.is_empty()
        && LEAVE_OUT_NULLS.contains(&function.fun.name())
        && frame.units == WindowFrameUnits::Range
        && (is_distance(&frame.start_bound) || is_distance(&frame.end_bound))
}
