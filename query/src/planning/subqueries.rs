//! Refuses subqueries that DataFusion 55.2 would answer wrongly.
//!
//! A subquery that uses columns of the outer query becomes a join. That loses the row that an aggregate without GROUP BY has for no
//! rows (issues 24960 and 25519), the offsets and limits for each outer row (issue 25283), and what `NOT IN` makes of nulls
//! (issue 25347); the latter also where the left side is a constant.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, not_impl_err};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, FetchType, Limit, LogicalPlan, SkipType, Subquery};

/// # Errors
/// `NotImplemented`, with what to write instead.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::Exists(exists) => check_exists(&exists.subquery)?,
                    Expr::InSubquery(within) => check_in(within)?,
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

fn check_exists(subquery: &Subquery) -> Result<()> {
    let plan = subquery.subquery.as_ref();
    if subquery.outer_ref_columns.is_empty() {
        return Ok(());
    }
    if contains(plan, is_aggregate_of_all)? {
        return not_impl_err!(
            "EXISTS over an aggregate without GROUP BY, or over ROLLUP, CUBE or GROUPING SETS, in a subquery that uses columns of the \
             outer query; compare the aggregate itself: (SELECT count(*) ...) > 0"
        );
    }
    check_limits(without_limit(plan))
}

fn check_in(within: &InSubquery) -> Result<()> {
    let plan = within.subquery.subquery.as_ref();
    let is_constant = within.negated && within.expr.column_refs().is_empty();
    if is_constant && within.expr.nullable(&DFSchema::empty()).unwrap_or(true) {
        return not_impl_err!(
            "NOT IN with a constant on the left that is NULL or may be; NULL is not in a list only if that is empty, so write NOT EXISTS \
             (SELECT ...), or count: (SELECT count(*) FROM ... WHERE y = 1) = 0"
        );
    }
    if is_constant && !has_no_nulls(plan, 0) {
        return not_impl_err!(
            "NOT IN with a constant on the left and a subquery that may return NULL; exclude NULL with WHERE y IS NOT NULL in the \
             subquery, or count: (SELECT count(*) FROM ... WHERE y = 1) = 0"
        );
    }
    if within.subquery.outer_ref_columns.is_empty() {
        return Ok(());
    }
    if contains(plan, |node| is_aggregate_of_all(node) && (within.negated || counts(node)))? {
        return not_impl_err!(
            "IN over a count without GROUP BY in a subquery that uses columns of the outer query; compare the count itself: \
             x = (SELECT count(*) ...)"
        );
    }
    if within.negated {
        return not_impl_err!(
            "NOT IN with a subquery that uses columns of the outer query; write NOT EXISTS (SELECT 1 ... AND y = x)"
        );
    }
    check_limits(plan)
}

/// Whether a column of a plan, by its place, is never NULL.
fn has_no_nulls(plan: &LogicalPlan, at: usize) -> bool {
    if plan.schema().fields().get(at).is_some_and(|field| !field.is_nullable()) {
        return true;
    }
    let of_column = |input: &LogicalPlan, expr: Option<&Expr>| match expr.map(without_alias) {
        Some(Expr::Column(column)) => {
            input.schema().maybe_index_of_column(column).is_some_and(|at| has_no_nulls(input, at))
        }
        _ => false,
    };
    match plan {
        LogicalPlan::Projection(projection) => of_column(&projection.input, projection.expr.get(at)),
        LogicalPlan::Aggregate(aggregate) => of_column(&aggregate.input, aggregate.group_expr.get(at)),
        LogicalPlan::Filter(filter) => {
            let place = |column: &Column| filter.input.schema().maybe_index_of_column(column);
            let excludes = |condition: &&Expr| match condition {
                Expr::IsNotNull(tested) => matches!(tested.as_ref(), Expr::Column(column) if place(column) == Some(at)),
                _ => false,
            };
            split_conjunction(&filter.predicate).iter().any(excludes) || has_no_nulls(&filter.input, at)
        }
        LogicalPlan::SubqueryAlias(alias) => has_no_nulls(&alias.input, at),
        LogicalPlan::Sort(sort) => has_no_nulls(&sort.input, at),
        LogicalPlan::Limit(limit) => has_no_nulls(&limit.input, at),
        LogicalPlan::Distinct(Distinct::All(input)) => has_no_nulls(input, at),
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| has_no_nulls(input, at)),
        _ => false,
    }
}

fn without_alias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => without_alias(&alias.expr),
        expr => expr,
    }
}

/// Refuses limits for each row of the outer query.
fn check_limits(plan: &LogicalPlan) -> Result<()> {
    if contains(plan, |node| matches!(node, LogicalPlan::Limit(_)))? {
        return not_impl_err!(
            "LIMIT or OFFSET within EXISTS or IN, in a subquery that uses columns of the outer query; number the rows with \
             row_number() OVER (...) in a join instead"
        );
    }
    Ok(())
}

/// The rows before a limit that leaves at least one: whether there are any is the same.
fn without_limit(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Limit(limit) if leaves_one(limit) => without_limit(&limit.input),
        LogicalPlan::Projection(projection) => match projection.input.as_ref() {
            limit @ LogicalPlan::Limit(_) => without_limit(limit),
            _ => plan,
        },
        _ => plan,
    }
}

fn leaves_one(limit: &Limit) -> bool {
    matches!(limit.get_skip_type(), Ok(SkipType::Literal(0)))
        && matches!(limit.get_fetch_type(), Ok(FetchType::Literal(None | Some(1..))))
}

fn contains(plan: &LogicalPlan, is: impl Fn(&LogicalPlan) -> bool) -> Result<bool> {
    plan.exists(|node| Ok(is(node)))
}

/// Whether a node has a row for no rows.
fn is_aggregate_of_all(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.is_empty() || matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)])
        }
        _ => false,
    }
}

/// Whether an aggregate is not null for no rows.
fn counts(node: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(aggregate) = node else { return false };
    let names = aggregate.aggr_expr.iter().map(|expr| expr.to_string());
    names.into_iter().any(|name| name.contains("count") || name.contains("approx_distinct"))
}
