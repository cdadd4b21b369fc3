//! Times without a zone where DataFusion converts them to a time with a zone: casts, and values beside such a time.

use super::lengths::Beside;
use super::{Of, Rewriter, cast_constant, is_utc};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinConstraint, Result};
use datafusion::logical_expr::expr::{Between, Cast, InList, InSubquery, ScalarFunction, SetComparison};
use datafusion::logical_expr::expr_schema::cast_subquery;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Subquery};
use std::mem::take;
use std::sync::Arc;

/// Whether a function returns one of its arguments, or a list of them, or compares them.
pub(super) fn chooses(call: &ScalarFunction) -> bool {
    matches!(call.func.name(), "coalesce" | "greatest" | "least" | "make_array" | "nullif" | "nvl2")
}

/// A time without a zone as one of UTC.
pub(super) fn in_utc(time: Expr, unit: TimeUnit) -> Expr {
    Expr::Cast(Cast::new(Box::new(time), DataType::Timestamp(unit, Some("UTC".into()))))
}

/// A time without a zone as one of a zone, by way of UTC.
fn in_zone(time: Expr, unit: TimeUnit, zone: Arc<str>) -> Expr {
    Expr::Cast(Cast::new(Box::new(in_utc(time, unit)), DataType::Timestamp(unit, Some(zone))))
}

/// The unit of times that have no zone.
fn unit_of(kind: &DataType) -> Option<TimeUnit> {
    match kind {
        DataType::Timestamp(unit, None) => Some(*unit),
        DataType::Date32 | DataType::Date64 => Some(TimeUnit::Millisecond),
        text if text.is_string() => Some(TimeUnit::Nanosecond),
        _ => None,
    }
}

/// A zone other than UTC.
fn zone_of(kind: &DataType) -> Option<&Arc<str>> {
    match kind {
        DataType::Timestamp(_, Some(zone)) if !is_utc(zone) => Some(zone),
        _ => None,
    }
}

/// Gives a value of a type without a zone the zone of what it is compared with.
fn like_other(value: &mut Expr, own: &DataType, other: &DataType) -> bool {
    let (Some(unit), Some(zone)) = (unit_of(own), zone_of(other)) else { return false };
    *value = in_zone(take(value), unit, Arc::clone(zone));
    true
}

/// Gives the keys of a join, by `USING`, INTERSECT or EXCEPT, one zone.
pub(super) fn of_keys(plan: LogicalPlan) -> Transformed<LogicalPlan> {
    let mut join = match plan {
        LogicalPlan::Join(join) => join,
        other => return Transformed::no(other),
    };
    let mut changed = false;
    for (left, right) in &mut join.on {
        let (Ok(of_left), Ok(of_right)) = (left.get_type(join.left.schema()), right.get_type(join.right.schema()))
        else {
            continue;
        };
        changed |= like_other(left, &of_left, &of_right) || like_other(right, &of_right, &of_left);
    }
    if changed {
        // DataFusion expects columns alone as the keys of the other kind.
        join.join_constraint = JoinConstraint::On;
    }
    Transformed::new_transformed(LogicalPlan::Join(join), changed)
}

impl Rewriter {
    /// A cast of a time without a zone to one with a zone, by way of UTC.
    pub(super) fn cast(&self, mut cast: Cast) -> Transformed<Expr> {
        let unit = match cast.field.data_type() {
            DataType::Timestamp(_, Some(zone)) if !is_utc(zone) => self.unit_without_zone(&cast.expr),
            _ => None,
        };
        let Some(unit) = unit else { return cast_constant(cast) };
        *cast.expr = in_utc(take(&mut *cast.expr), unit);
        Transformed::yes(Expr::Cast(cast))
    }

    /// An expression whose parts DataFusion converts to one type.
    pub(super) fn beside(&self, mut expr: Expr) -> Transformed<Expr> {
        let changed = match &mut expr {
            Expr::ScalarFunction(call) if chooses(call) => self.in_one_type(call.args.iter_mut().collect()),
            Expr::Case(case) => {
                let (whens, thens): (Vec<_>, Vec<_>) =
                    case.when_then_expr.iter_mut().map(|(when, then)| (&mut **when, &mut **then)).unzip();
                let of_results = self.in_one_type(thens.into_iter().chain(case.else_expr.as_deref_mut()).collect());
                let compared = case.expr.as_deref_mut();
                compared.is_some_and(|compared| self.in_one_type(whens.into_iter().chain([compared]).collect()))
                    || of_results
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right })
                if self.type_of(left).is_some() && self.type_of(right).is_some() =>
            {
                self.in_one_zone([&mut **left, &mut **right])
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right }) => {
                self.as_lengths([&mut **left, &mut **right], Beside::Combined)
            }
            _ => false,
        };
        Transformed::new_transformed(expr, changed)
    }

    /// Bounds that are not constant.
    pub(super) fn varying_between(&self, mut between: Between) -> Transformed<Expr> {
        let changed = self.in_one_zone([&mut *between.expr, &mut *between.low, &mut *between.high])
            | self.as_lengths([&mut *between.expr, &mut *between.low, &mut *between.high], Beside::Compared);
        Transformed::new_transformed(Expr::Between(between), changed)
    }

    /// Members that are not constant.
    pub(super) fn varying_list(&self, mut list: InList) -> Transformed<Expr> {
        let changed = self.in_one_zone(list.list.iter_mut().chain([&mut *list.expr]))
            | self.as_lengths(list.list.iter_mut().chain([&mut *list.expr]), Beside::Compared);
        Transformed::new_transformed(Expr::InList(list), changed)
    }

    /// A value that is sought in a subquery.
    pub(super) fn in_subquery(&self, mut sought: InSubquery) -> Result<Transformed<Expr>> {
        let (subquery, changed) = self.beside_subquery(&mut sought.expr, sought.subquery)?;
        let sought = InSubquery { subquery, ..sought };
        Ok(Transformed::new_transformed(Expr::InSubquery(sought), changed))
    }

    /// A value that is compared with ANY or ALL of a subquery.
    pub(super) fn any_or_all(&self, mut compared: SetComparison) -> Result<Transformed<Expr>> {
        let (subquery, changed) = self.beside_subquery(&mut compared.expr, compared.subquery)?;
        let compared = SetComparison { subquery, ..compared };
        Ok(Transformed::new_transformed(Expr::SetComparison(compared), changed))
    }

    /// Gives the value, or the column of the subquery, the zone of the other one.
    fn beside_subquery(&self, value: &mut Expr, subquery: Subquery) -> Result<(Subquery, bool)> {
        let column = subquery.subquery.schema().fields().first().map(|field| field.data_type().clone());
        let (Ok(own), Some(column)) = (value.get_type(&self.schema), column) else { return Ok((subquery, false)) };
        if like_other(value, &own, &column) {
            return Ok((subquery, true));
        }
        let (Some(unit), Some(zone)) = (unit_of(&column), zone_of(&own)) else { return Ok((subquery, false)) };
        let instants = cast_subquery(subquery, &DataType::Timestamp(unit, Some("UTC".into())))?;
        Ok((cast_subquery(instants, &DataType::Timestamp(unit, Some(Arc::clone(zone))))?, true))
    }

    /// Gives values without a zone the zone that another one has, and makes differences of the intervals beside differences of times.
    fn in_one_type(&self, mut values: Vec<&mut Expr>) -> bool {
        self.in_one_zone(values.iter_mut().map(|value| &mut **value)) | self.as_lengths(values, Beside::Combined)
    }

    /// Gives values without a zone the zone that another one has.
    pub(super) fn in_one_zone<'a>(&self, values: impl IntoIterator<Item = &'a mut Expr>) -> bool {
        let values: Vec<&mut Expr> = values.into_iter().collect();
        let zone = values.iter().find_map(|value| match self.type_of(value)?.of {
            Of::Instant(Some(zone)) if !is_utc(&zone) => Some(zone),
            _ => None,
        });
        let Some(zone) = zone else { return false };
        let mut changed = false;
        for value in values {
            if let Some(unit) = self.unit_without_zone(value) {
                *value = in_zone(take(value), unit, Arc::clone(&zone));
                changed = true;
            }
        }
        changed
    }

    /// The unit of a time that has no zone.
    fn unit_without_zone(&self, expr: &Expr) -> Option<TimeUnit> {
        unit_of(&expr.get_type(&self.schema).ok()?)
    }
}
