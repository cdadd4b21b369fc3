//! `ASOF JOIN`: joins each row of the left side with the nearest row in time of the right side, with equal keys.
//!
//! DataFusion's planner has no such join. [`syntax`] rewrites it as an ordinary join with a marker in its condition, so
//! that all names resolve as in any join; [`rewrite`] finds the marker in the plan and puts an [`AsofJoin`] in its
//! place.

mod exec;
mod node;
mod syntax;

use super::arguments::{is_time, wrong};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, JoinType, Result, ScalarValue, plan_err};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Extension, Join, LogicalPlan, LogicalPlanBuilder, Operator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

pub(super) use exec::{AsofExec, Sides};
pub(super) use node::{AsofJoin, PushPastAsof};
pub(crate) use syntax::{MARK, desugar};

/// Marks the condition of a join.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark {
    signature: Signature,
}

impl Mark {
    pub(super) fn udf() -> Arc<ScalarUDF> {
        // Volatile, so that nothing folds it before it is found.
        Arc::new(ScalarUDF::new_from_impl(Mark { signature: Signature::nullary(Volatility::Volatile) }))
    }
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &'static str {
        MARK
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
    }
}

fn is_mark(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == MARK)
}

/// Replaces marked joins by the operator.
pub(super) fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Join(join) => match &join.filter {
            Some(filter) if filter.exists(|e| Ok(is_mark(e)))? => Ok(Transformed::yes(asof(join)?)),
            _ => using(join),
        },
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan.data)
}

/// Converts a join by `USING` whose right side has the marker: its last column is the time.
fn using(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::SubqueryAlias(alias) = &*join.right else { return Ok(Transformed::no(LogicalPlan::Join(join))) };
    let LogicalPlan::Projection(chosen) = &*alias.input else { return Ok(Transformed::no(LogicalPlan::Join(join))) };
    let input = match &*chosen.input {
        LogicalPlan::Filter(filter) if is_mark(&filter.predicate) => Arc::clone(&filter.input),
        _ => return Ok(Transformed::no(LogicalPlan::Join(join))),
    };
    let chosen = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input)).project(chosen.expr.clone())?;
    join.right = Arc::new(chosen.alias(alias.alias.clone())?.build()?);
    if let Some((left, right)) = join.on.pop() {
        let order = Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::GtEq, Box::new(right)));
        join.filter = Some(join.filter.map_or(order.clone(), |filter| filter.and(order)));
    }
    Ok(Transformed::yes(asof(join)?))
}

/// The role of one condition of a join.
enum Condition {
    Key(Expr, Expr),
    Order(Expr, Operator, Expr),
    Other(Expr),
}

fn classify(condition: Expr, left: &DFSchema, right: &DFSchema) -> Condition {
    let of = |expr: &Expr, side: &DFSchema| {
        let columns = expr.column_refs();
        !columns.is_empty() && columns.iter().all(|c| side.has_column(c))
    };
    let Expr::BinaryExpr(BinaryExpr { left: a, op, right: b }) = &condition else { return Condition::Other(condition) };
    let (a, op, b) = match (of(a, left) && of(b, right), of(a, right) && of(b, left), op.swap()) {
        (true, _, _) => (a, *op, b),
        (_, true, Some(swapped)) => (b, swapped, a),
        _ => return Condition::Other(condition),
    };
    match op {
        Operator::Eq => Condition::Key((**a).clone(), (**b).clone()),
        Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
            Condition::Order((**a).clone(), op, (**b).clone())
        }
        _ => Condition::Other(condition),
    }
}

/// Whether an expression is a column, possibly cast to another unit.
fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Cast(cast) => is_column(&cast.expr),
        _ => false,
    }
}

fn asof(join: Join) -> Result<LogicalPlan> {
    let (left, right) = (join.left.schema(), join.right.schema());
    let conditions = split_conjunction_owned(join.filter.unwrap_or_else(|| datafusion::prelude::lit(true)));
    let mut keys = join.on;
    let mut orders = Vec::new();
    let mut rest = Vec::new();
    let mut right_only = Vec::new();
    for condition in conditions.into_iter().filter(|c| !is_mark(c)) {
        if condition.exists(|e| Ok(is_mark(e)))? {
            return plan_err!(
                "the condition of an ASOF JOIN is one comparison of times and any number of others, joined by AND"
            );
        }
        match classify(condition, left, right) {
            Condition::Key(a, b) => keys.push((a, b)),
            Condition::Order(a, op, b) => orders.push((a, op, b)),
            Condition::Other(other) => {
                let columns = other.column_refs();
                if !other.is_volatile() && !columns.is_empty() && columns.iter().all(|c| right.has_column(c)) {
                    right_only.push(other);
                } else {
                    rest.push(other);
                }
            }
        }
    }
    // The nearest row is determined by the comparison of two time columns; a tolerance is an expression over one of
    // them.
    let times = |(a, _, b): &(Expr, Operator, Expr)| {
        let time = |e: &Expr, s: &DFSchema| e.get_type(s).is_ok_and(|t| is_time(&t));
        usize::from(is_column(a) && is_column(b)) * 2 + usize::from(time(a, left) && time(b, right))
    };
    let best = (0..orders.len()).rev().max_by_key(|i| times(&orders[*i]));
    let Some(best) = best else {
        return plan_err!(
            "ASOF JOIN needs a condition that compares the times of both sides: ON l.sensor = r.sensor AND l.time >= r.time"
        );
    };
    let (a, op, b) = orders.remove(best);
    rest.extend(orders.into_iter().map(|(a, op, b)| Expr::BinaryExpr(BinaryExpr::new(Box::new(a), op, Box::new(b)))));
    let coerced = |(a, b): (Expr, Expr)| -> Result<(Expr, Expr)> {
        let (of_a, of_b) = (a.get_type(left)?, b.get_type(right)?);
        if of_a == of_b {
            return Ok((a, b));
        }
        let Some(common) = comparison_coercion(&of_a, &of_b) else {
            return plan_err!("ASOF JOIN compares {a} ({of_a}) with {b} ({of_b}), which have no type in common");
        };
        Ok((a.cast_to(&common, left)?, b.cast_to(&common, right)?))
    };
    let keys = keys.into_iter().map(coerced).collect::<Result<Vec<_>>>()?;
    let (a, b) = coerced((a, b))?;
    let kind = a.get_type(left)?;
    if !is_time(&kind) && !kind.is_integer() {
        return wrong(
            "ASOF JOIN",
            1,
            "comparison of times",
            &format!("is of type {kind}, timestamps are wanted; in USING the time comes last"),
        );
    }
    let mut right = LogicalPlanBuilder::from(Arc::unwrap_or_clone(join.right));
    if let Some(filter) = conjunction(right_only) {
        right = right.filter(filter)?;
    }
    let node = AsofJoin::try_new(
        Arc::unwrap_or_clone(join.left),
        right.build()?,
        keys,
        (a, op, b),
        conjunction(rest),
        join.join_type == JoinType::Left,
    )?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}
