//! Times without a zone where DataFusion converts them to a time with a zone: casts, and values beside such a time.

use super::{Kind, Of, Rewriter, cast_constant, is_utc};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{Between, Cast, InList, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
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

    /// An expression of which DataFusion converts several parts to one type.
    pub(super) fn beside(&self, mut expr: Expr) -> Transformed<Expr> {
        let changed = match &mut expr {
            Expr::ScalarFunction(call) if chooses(call) => self.in_one_zone(&mut call.args),
            Expr::Case(case) => {
                let (whens, thens): (Vec<_>, Vec<_>) =
                    case.when_then_expr.iter_mut().map(|(when, then)| (&mut **when, &mut **then)).unzip();
                let of_results = self.in_one_zone(thens.into_iter().chain(case.else_expr.as_deref_mut()));
                let compared = case.expr.as_deref_mut();
                compared.is_some_and(|compared| self.in_one_zone(whens.into_iter().chain([compared]))) || of_results
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right })
                if self.type_of(left).is_some() && self.type_of(right).is_some() =>
            {
                self.in_one_zone([&mut **left, &mut **right])
            }
            _ => false,
        };
        Transformed::new_transformed(expr, changed)
    }

    /// Bounds that are not constant.
    pub(super) fn varying_between(&self, mut between: Between) -> Transformed<Expr> {
        let changed = self.in_one_zone([&mut *between.expr, &mut *between.low, &mut *between.high]);
        Transformed::new_transformed(Expr::Between(between), changed)
    }

    /// Members that are not constant.
    pub(super) fn varying_list(&self, mut list: InList) -> Transformed<Expr> {
        let changed = self.in_one_zone(list.list.iter_mut().chain([&mut *list.expr]));
        Transformed::new_transformed(Expr::InList(list), changed)
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
                let kind = Kind { unit, of: Of::Instant(Some(Arc::clone(&zone))) };
                *value = Expr::Cast(Cast::new(Box::new(in_utc(take(value), unit)), kind.arrow()));
                changed = true;
            }
        }
        changed
    }

    /// The unit of a time that has no zone.
    fn unit_without_zone(&self, expr: &Expr) -> Option<TimeUnit> {
        match expr.get_type(&self.schema).ok()? {
            DataType::Timestamp(unit, None) => Some(unit),
            DataType::Date32 | DataType::Date64 => Some(TimeUnit::Millisecond),
            text if text.is_string() => Some(TimeUnit::Nanosecond),
            _ => None,
        }
    }
}
