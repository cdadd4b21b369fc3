//! What a window function asks for, in numbers.

use super::keys::{DATE_UNIT, Distance, Shift};
use super::other::Other;
use crate::functions::Spread;
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, Schema, TimeUnit};
use datafusion::common::{Result, ScalarValue, not_impl_err};
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Literal, lit};
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::windows::WindowUDFExpr;
use ebbtide_buckets::unit_nanos;
use std::sync::Arc;

/// The functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Spread(Spread),
    /// The value of the only row in the frame: `lag` and `lead`.
    Value,
    /// The number of the row in its partition.
    Number,
    /// One that DataFusion computes: [`Spec::other`].
    Other,
}

/// What a function is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Whole,
    Double,
    /// Of any type: at most whether it is null matters.
    Any,
}

/// What the distance of a frame's ends is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Rows,
    /// Groups of rows that are equal in their order.
    Peers,
    /// The value that rows are ordered by.
    Order,
}

/// One window function. A frame's end is a distance from the present row; without one it is the partition's.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) function: Function,
    pub(super) kind: Kind,
    pub(super) args: Vec<Arc<dyn PhysicalExpr>>,
    /// The type of the result.
    pub(super) result: DataType,
    pub(super) unit: Unit,
    pub(super) from: Option<Distance>,
    pub(super) to: Option<Distance>,
    pub(super) other: Option<Other>,
}

impl Spec {
    /// Of a window function over these columns; `None` if it is left to DataFusion. Unless `fast`, only functions are taken whose
    /// frames DataFusion does not find.
    pub(super) fn of(window: &Arc<dyn WindowExpr>, schema: &Schema, fast: bool) -> Option<Spec> {
        let is_irregular = is_irregular(window, schema);
        if !fast && !is_irregular {
            return None;
        }
        let known = match window.as_any().downcast_ref::<StandardWindowExpr>() {
            Some(function) => Spec::of_row(function, schema),
            None => Spec::of_aggregate(window, schema),
        };
        known.or_else(|| if is_irregular { Spec::of_other(window, schema) } else { None })
    }

    /// Of a function that is about the place of a row.
    fn of_row(window: &StandardWindowExpr, schema: &Schema) -> Option<Spec> {
        let function = window.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>()?;
        // Neither can be asked for; this is how they are shown.
        if !format!("{function:?}").ends_with("is_reversed: false, ignore_nulls: false }") {
            return None;
        }
        let one_row = |function, kind, arg, result, distance: i128| {
            let distance = Some(Distance::Fixed(distance));
            Some(Spec {
                function,
                kind,
                args: vec![arg],
                result,
                unit: Unit::Rows,
                from: distance,
                to: distance,
                other: None,
            })
        };
        let (sign, arg) = match (function.fun().name(), function.args()) {
            ("row_number", _) => return one_row(Function::Number, Kind::Any, lit(true), DataType::UInt64, 0),
            ("lag", [arg, ..]) => (-1, arg),
            ("lead", [arg, ..]) => (1, arg),
            _ => return None,
        };
        let literal = |at: usize| function.args().get(at).map(|arg| arg.downcast_ref::<Literal>().map(Literal::value));
        let distance = match literal(1) {
            None => 1,
            Some(Some(ScalarValue::Int64(Some(distance)))) => i128::from(*distance),
            Some(_) => return None,
        };
        // What is given for rows that do not exist.
        if literal(2).is_some_and(|default| default.is_none_or(|default| !default.is_null())) {
            return None;
        }
        let result = arg.data_type(schema).ok()?;
        let kind = match result {
            DataType::Int64 | DataType::Timestamp(..) => Kind::Whole,
            DataType::Float64 => Kind::Double,
            _ => return None,
        };
        one_row(Function::Value, kind, Arc::clone(arg), result, sign * distance)
    }

    fn of_aggregate(window: &Arc<dyn WindowExpr>, schema: &Schema) -> Option<Spec> {
        let aggregate = aggregate_of(window)?;
        if aggregate.is_distinct() || has_filter(window) {
            return None;
        }
        let function = match aggregate.fun().name() {
            "sum" => Function::Sum,
            "avg" => Function::Avg,
            "count" => Function::Count,
            "min" => Function::Min,
            "max" => Function::Max,
            "var" => Function::Spread(Spread { is_of_sample: true, is_root: false }),
            "var_pop" => Function::Spread(Spread { is_of_sample: false, is_root: false }),
            "stddev" => Function::Spread(Spread { is_of_sample: true, is_root: true }),
            "stddev_pop" => Function::Spread(Spread { is_of_sample: false, is_root: true }),
            _ => return None,
        };
        let [arg] = window.expressions().try_into().ok()?;
        let kind = match arg.data_type(schema).ok()? {
            _ if function == Function::Count => Kind::Any,
            DataType::Float64 => Kind::Double,
            DataType::Int64 if !matches!(function, Function::Spread(_)) => Kind::Whole,
            _ => return None,
        };
        let result = match (function, kind) {
            (Function::Count, _) => DataType::Int64,
            (Function::Avg, _) | (_, Kind::Double) => DataType::Float64,
            _ => DataType::Int64,
        };
        if *window.field().ok()?.data_type() != result {
            return None;
        }
        let (unit, from, to) = ends(window, schema)?;
        Some(Spec { function, kind, args: vec![arg], result, unit, from, to, other: None })
    }

    fn of_other(window: &Arc<dyn WindowExpr>, schema: &Schema) -> Option<Spec> {
        let other = match (window.as_any().downcast_ref::<StandardWindowExpr>(), aggregate_of(window)) {
            (Some(window), _) => Other::OfRows(Arc::clone(window.get_standard_func_expr())),
            (None, Some(aggregate)) if !has_filter(window) => Other::Aggregate(Arc::new(aggregate.clone())),
            _ => return None,
        };
        let (unit, from, to) = ends(window, schema)?;
        let result = window.field().ok()?.data_type().clone();
        let (args, other) = (window.expressions(), Some(other));
        Some(Spec { function: Function::Other, kind: Kind::Any, args, result, unit, from, to, other })
    }
}

/// Refuses a window function whose frames neither DataFusion nor this module finds.
pub(super) fn check(window: &Arc<dyn WindowExpr>, schema: &Schema) -> Result<()> {
    if is_irregular(window, schema) && Spec::of(window, schema, false).is_none() {
        return not_impl_err!(
            "FILTER over frames of months, or of days in a time zone, for functions that keep nulls; join each row with those of its \
             frame and group by it"
        );
    }
    Ok(())
}

/// Whether the frames of a function move back, or end before they begin. DataFusion moves the ends of frames only on, and subtracts
/// one from the other.
fn is_irregular(window: &Arc<dyn WindowExpr>, schema: &Schema) -> bool {
    let uses_frame = window.as_any().downcast_ref::<StandardWindowExpr>().is_none_or(|window| {
        window.get_standard_func_expr().create_evaluator().is_ok_and(|evaluator| evaluator.uses_window_frame())
    });
    uses_frame
        && ends(window, schema).is_some_and(|(_, from, to)| match (from, to) {
            (Some(Distance::Fixed(from)), Some(Distance::Fixed(to))) => from > to,
            (from, to) => [from, to].iter().any(|end| matches!(end, Some(Distance::Calendar(_)))),
        })
}

/// What the distances of a frame's ends are counted in, and the distances.
fn ends(window: &Arc<dyn WindowExpr>, schema: &Schema) -> Option<(Unit, Option<Distance>, Option<Distance>)> {
    let (frame, order) = (window.get_window_frame(), window.order_by());
    let bounds = [&frame.start_bound, &frame.end_bound];
    let unit = match frame.units {
        WindowFrameUnits::Rows => Unit::Rows,
        WindowFrameUnits::Groups => Unit::Peers,
        WindowFrameUnits::Range if bounds.iter().all(|bound| is_plain(bound)) => Unit::Peers,
        WindowFrameUnits::Range => Unit::Order,
    };
    let scale = if unit == Unit::Order { Scale::of(order, schema)? } else { Scale::COUNT };
    Some((unit, scale.distance(&frame.start_bound, true)?, scale.distance(&frame.end_bound, false)?))
}

/// Whether rows are filtered before they are aggregated. The filter cannot be asked for; without one this is how a window is shown.
fn has_filter(window: &Arc<dyn WindowExpr>) -> bool {
    !format!("{window:?}").ends_with("filter: None }")
}

fn aggregate_of(window: &Arc<dyn WindowExpr>) -> Option<&AggregateFunctionExpr> {
    let any = window.as_any();
    let plain = any.downcast_ref::<PlainAggregateWindowExpr>().map(PlainAggregateWindowExpr::get_aggregate_expr);
    plain.or_else(|| {
        any.downcast_ref::<SlidingAggregateWindowExpr>().map(SlidingAggregateWindowExpr::get_aggregate_expr)
    })
}

/// Whether a bound is at the present row or at an end of the partition.
fn is_plain(bound: &WindowFrameBound) -> bool {
    match bound {
        WindowFrameBound::CurrentRow => true,
        WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => distance.is_null(),
    }
}

/// What a distance is counted in.
struct Scale {
    /// Nanoseconds of a unit of time; 1 for numbers.
    nanos: i128,
    is_time: bool,
    /// Whether each day has 24 hours.
    even_days: bool,
    is_descending: bool,
}

const DAY_NANOS: i128 = 86_400_000_000_000;
/// By how much the end of a frame is before that of an earlier row: a day by months, and what clocks are set back by.
const SLACK_DAYS: i128 = 4;

impl Scale {
    const COUNT: Scale = Scale { nanos: 1, is_time: false, even_days: false, is_descending: false };

    fn of(order: &[PhysicalSortExpr], schema: &Schema) -> Option<Scale> {
        let [order] = order else { return None };
        let is_descending = order.options.descending;
        match order.expr.data_type(schema).ok()? {
            DataType::Timestamp(unit, zone) => {
                let even_days = zone.as_deref().is_none_or(|zone| matches!(zone, "UTC" | "+00:00" | "Z"));
                Some(Scale { nanos: unit_nanos(unit), is_time: true, even_days, is_descending })
            }
            DataType::Date32 | DataType::Date64 => {
                Some(Scale { nanos: unit_nanos(DATE_UNIT), is_time: true, even_days: true, is_descending })
            }
            DataType::Int64 | DataType::Int32 => Some(Scale { is_descending, ..Scale::COUNT }),
            _ => None,
        }
    }

    /// The distance of a bound, `None` inside if it is the partition's end. Of a frame's start it is rounded up, of its end
    /// down: units between are the same rows.
    fn distance(&self, bound: &WindowFrameBound, is_start: bool) -> Option<Option<Distance>> {
        let (precedes, distance) = match bound {
            WindowFrameBound::CurrentRow => return Some(Some(Distance::Fixed(0))),
            WindowFrameBound::Preceding(distance) => (true, distance),
            WindowFrameBound::Following(distance) => (false, distance),
        };
        if distance.is_null() {
            return Some(None);
        }
        let rounded = |nanos: i128| {
            let exact = if precedes { -nanos } else { nanos };
            if is_start { -(-exact).div_euclid(self.nanos) } else { exact.div_euclid(self.nanos) }
        };
        Some(Some(match self.calendar(distance) {
            Some(interval) => Distance::Calendar(Shift {
                months: interval.months,
                days: interval.days,
                is_back: precedes != self.is_descending,
                precedes,
                rest: rounded(i128::from(interval.nanoseconds)),
                slack: SLACK_DAYS * DAY_NANOS / self.nanos,
            }),
            None => Distance::Fixed(rounded(self.nanos_of(distance)?)),
        }))
    }

    /// A distance whose length depends on where it begins.
    fn calendar(&self, distance: &ScalarValue) -> Option<IntervalMonthDayNano> {
        match distance {
            ScalarValue::IntervalMonthDayNano(Some(i)) if self.is_time => {
                (i.months != 0 || (i.days != 0 && !self.even_days)).then_some(*i)
            }
            _ => None,
        }
    }

    /// Of a distance that always has the same length.
    fn nanos_of(&self, distance: &ScalarValue) -> Option<i128> {
        let of_days = |days: i32| (days == 0 || self.even_days).then_some(i128::from(days) * DAY_NANOS);
        let exact = match distance {
            ScalarValue::UInt64(Some(n)) if !self.is_time => i128::from(*n),
            ScalarValue::Int64(Some(n)) if !self.is_time => i128::from(*n),
            ScalarValue::Int32(Some(n)) if !self.is_time => i128::from(*n),
            ScalarValue::IntervalMonthDayNano(Some(i)) if self.is_time => of_days(i.days)? + i128::from(i.nanoseconds),
            ScalarValue::IntervalDayTime(Some(i)) if self.is_time => {
                of_days(i.days)? + i128::from(i.milliseconds) * 1_000_000
            }
            ScalarValue::DurationSecond(Some(n)) if self.is_time => i128::from(*n) * unit_nanos(TimeUnit::Second),
            ScalarValue::DurationMillisecond(Some(n)) if self.is_time => i128::from(*n) * 1_000_000,
            ScalarValue::DurationMicrosecond(Some(n)) if self.is_time => i128::from(*n) * 1000,
            ScalarValue::DurationNanosecond(Some(n)) if self.is_time => i128::from(*n),
            _ => return None,
        };
        (exact >= 0).then_some(exact)
    }
}
