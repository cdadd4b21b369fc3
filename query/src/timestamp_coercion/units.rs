//! Timestamps of different units, or with and without a zone, and differences of times beside intervals, in one column.

use super::lengths::{is_interval, length_of};
use super::zones::in_utc;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Union};
use ebbtide_buckets::unit_nanos;
use std::sync::Arc;

/// Converts the branches of a union to the finest unit among them, and to the first zone. By default it has the type of the first branch
/// until types are coerced, which is after comparisons are rewritten.
pub(super) fn in_one_unit(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Union(Union { inputs, .. }) = &plan else { return Ok(Transformed::no(plan)) };
    let types = |at: usize| inputs.iter().filter_map(move |input| Some(input.schema().fields().get(at)?.data_type()));
    let are_lengths = |at: usize| {
        let is_difference = |kind: &DataType| matches!(kind, DataType::Duration(_));
        types(at).all(|kind| is_difference(kind) || is_interval(kind))
            && types(at).any(is_difference)
            && types(at).any(is_interval)
    };
    let finest = |at: usize| -> Option<DataType> {
        if are_lengths(at) {
            return Some(DataType::Duration(TimeUnit::Nanosecond));
        }
        let mut found: Option<&TimeUnit> = None;
        let mut first = None;
        for ty in types(at) {
            let DataType::Timestamp(unit, zone) = ty else { return None };
            first = first.or(zone.as_ref());
            found = Some(found.filter(|finest| unit_nanos(**finest) <= unit_nanos(*unit)).unwrap_or(unit));
        }
        Some(DataType::Timestamp(*found?, first.cloned()))
    };
    let width = plan.schema().fields().len();
    let wanted: Vec<Option<DataType>> = (0..width).map(finest).collect();
    let differs = |at: usize| wanted[at].as_ref().is_some_and(|wanted| types(at).any(|ty| ty != wanted));
    if !(0..width).any(differs) {
        return Ok(Transformed::no(plan));
    }
    let brought = |input: &Arc<LogicalPlan>| {
        let column = |(at, (table, field)): (usize, (Option<&_>, &Arc<_>))| {
            let column = Expr::Column((table, field).into());
            match &wanted[at] {
                Some(_) if is_interval(field.data_type()) => {
                    length_of(column).alias_qualified(table.cloned(), field.name())
                }
                Some(wanted) if wanted != field.data_type() => {
                    let column = match (field.data_type(), wanted) {
                        (DataType::Timestamp(unit, None), DataType::Timestamp(_, Some(_))) => in_utc(column, *unit),
                        _ => column,
                    };
                    let cast = Expr::Cast(Cast::new(Box::new(column), wanted.clone()));
                    cast.alias_qualified(table.cloned(), field.name())
                }
                _ => column,
            }
        };
        let columns: Vec<Expr> = input.schema().iter().enumerate().map(column).collect();
        Ok(Arc::new(LogicalPlanBuilder::from(Arc::clone(input)).project(columns)?.build()?))
    };
    let inputs = inputs.iter().map(brought).collect::<Result<_>>()?;
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
}
