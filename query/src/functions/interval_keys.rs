//! Groups and joins by intervals. As in comparisons, intervals of one length are equal: `1 day` and `24 hours`.
//!
//! DataFusion compares months, days and nanoseconds. Here rows are grouped by the length, and a group has the greatest of its intervals
//! (`max`), which is one with the most months, then days. `SELECT DISTINCT` and `UNION` are groups when this rule sees them; `IN`,
//! `INTERSECT` and `EXCEPT` are joins.

use super::floats::Extreme;
use crate::timestamp_coercion::{is_interval, is_length, length_of};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::{AggregateFunction, Cast};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, Join, LogicalPlan, Projection};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::mem::take;
use std::sync::Arc;

/// Puts lengths in the place of intervals that are keys of groups and joins.
#[derive(Debug)]
pub(crate) struct IntervalKeys;

impl OptimizerRule for IntervalKeys {
    fn name(&self) -> &'static str {
        "interval_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Aggregate(aggregate) => grouped(aggregate),
            LogicalPlan::Join(join) => Ok(joined(join)),
            other => Ok(Transformed::no(other)),
        }
    }
}

fn is_of_interval(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| is_interval(&kind))
}

fn grouped(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let input = Arc::clone(aggregate.input.schema());
    if !aggregate.group_expr.iter().any(|key| is_of_interval(key, &input)) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let schema = Arc::clone(&aggregate.schema);
    let mut calls = aggregate.aggr_expr;
    let (mut keys, mut chosen) = (Vec::new(), Vec::new());
    for (at, key) in aggregate.group_expr.into_iter().enumerate() {
        if !is_of_interval(&key, &input) {
            keys.push(key);
            continue;
        }
        let interval = key.unalias();
        keys.push(length_of(interval.clone()).alias(format!("__length_{at}")));
        let greatest = AggregateFunction::new_udf(Extreme::udaf(true), vec![interval], false, None, Vec::new(), None);
        let name = format!("__interval_{at}");
        calls.push(Expr::AggregateFunction(greatest).alias(name.clone()));
        chosen.push((at, Column::new_unqualified(name)));
    }
    let by_length = Aggregate::try_new(aggregate.input, keys, calls)?;
    let columns = schema.iter().zip(by_length.schema.columns()).enumerate();
    let columns =
        columns.map(|(at, ((qualifier, field), column))| match chosen.iter().find(|(place, _)| *place == at) {
            Some((_, interval)) => Expr::Column(interval.clone()).alias_qualified(qualifier.cloned(), field.name()),
            None => Expr::Column(column),
        });
    let columns = columns.collect();
    let input = Arc::new(LogicalPlan::Aggregate(by_length));
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
}

fn joined(mut join: Join) -> Transformed<LogicalPlan> {
    let (left, right) = (Arc::clone(join.left.schema()), Arc::clone(join.right.schema()));
    let mut changed = false;
    for (of_left, of_right) in &mut join.on {
        let is_interval = |key: &Expr, schema: &DFSchema| is_of_interval(key, schema) || is_length(key);
        let is_long = |key: &Expr, schema: &DFSchema| is_of_interval(key, schema) || is_difference(key, schema);
        if (is_interval(of_left, &left) || is_interval(of_right, &right))
            && is_long(of_left, &left)
            && is_long(of_right, &right)
        {
            *of_left = number_of(take(of_left), &left);
            *of_right = number_of(take(of_right), &right);
            changed = true;
        }
    }
    Transformed::new_transformed(LogicalPlan::Join(join), changed)
}

fn is_difference(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind == DataType::Duration(TimeUnit::Nanosecond))
}

/// The length of an interval, or a difference of times, as a number. DataFusion computes the keys of a join beside the columns, where
/// a length would have the name of its interval.
fn number_of(key: Expr, schema: &DFSchema) -> Expr {
    let length = if is_of_interval(&key, schema) { length_of(key) } else { key };
    Expr::Cast(Cast::new(Box::new(length), DataType::Int64))
}
