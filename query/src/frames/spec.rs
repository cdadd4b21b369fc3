//! What a window function asks for, in numbers.

use datafusion::arrow::datatypes::{DataType, Schema, TimeUnit};
use datafusion::common::ScalarValue;
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
}

/// Which measure of spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spread {
    /// Of a sample, not of the population.
    pub(super) is_of_sample: bool,
    /// The standard deviation, not the variance.
    pub(super) is_root: bool,
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
    pub(super) arg: Arc<dyn PhysicalExpr>,
    /// The type of the result.
    pub(super) result: DataType,
    pub(super) unit: Unit,
    pub(super) from: Option<i128>,
    pub(super) to: Option<i128>,
}

impl Spec {
    /// Of a window function over these columns; `None` if it is another one.
    pub(super) fn of(window: &Arc<dyn WindowExpr>, schema: &Schema) -> Option<Spec> {
        match window.as_any().downcast_ref::<StandardWindowExpr>() {
            Some(function) => Spec::of_row(function, schema),
            None => Spec::of_aggregate(window, schema),
        }
    }

    /// Of a function that is about the place of a row.
    fn of_row(window: &StandardWindowExpr, schema: &Schema) -> Option<Spec> {
        let function = window.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>()?;
        // Neither can be asked for; this is how they are shown.
        if !format!("{function:?}").ends_with("is_reversed: false, ignore_nulls: false }") {
            return None;
        }
        let one_row = |function, kind, arg, result, distance: i128| {
            let (from, to) = (Some(distance), Some(distance));
            Some(Spec { function, kind, arg, result, unit: Unit::Rows, from, to })
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
        // Its filter cannot be asked for. Without one this is how the function is shown.
        if aggregate.is_distinct() || !format!("{window:?}").ends_with("filter: None }") {
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
        let (frame, order) = (window.get_window_frame(), window.order_by());
        let bounds = [&frame.start_bound, &frame.end_bound];
        let unit = match frame.units {
            WindowFrameUnits::Rows => Unit::Rows,
            WindowFrameUnits::Groups => Unit::Peers,
            WindowFrameUnits::Range if bounds.iter().all(|bound| is_plain(bound)) => Unit::Peers,
            WindowFrameUnits::Range => Unit::Order,
        };
        let scale = if unit == Unit::Order { Scale::of(order, schema)? } else { Scale::COUNT };
        let from = scale.distance(&frame.start_bound, true)?;
        let to = scale.distance(&frame.end_bound, false)?;
        Some(Spec { function, kind, arg, result, unit, from, to })
    }
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
}

impl Scale {
    const COUNT: Scale = Scale { nanos: 1, is_time: false, even_days: false };

    fn of(order: &[PhysicalSortExpr], schema: &Schema) -> Option<Scale> {
        let [order] = order else { return None };
        match order.expr.data_type(schema).ok()? {
            DataType::Timestamp(unit, zone) => {
                let even_days = zone.as_deref().is_none_or(|zone| matches!(zone, "UTC" | "+00:00" | "Z"));
                Some(Scale { nanos: unit_nanos(unit), is_time: true, even_days })
            }
            DataType::Int64 | DataType::Int32 => Some(Scale::COUNT),
            _ => None,
        }
    }

    /// The distance of a bound, `None` inside if it is the partition's end. Of a frame's start it is rounded up, of its end
    /// down: units between are the same rows.
    fn distance(&self, bound: &WindowFrameBound, is_start: bool) -> Option<Option<i128>> {
        let (sign, distance) = match bound {
            WindowFrameBound::CurrentRow => return Some(Some(0)),
            WindowFrameBound::Preceding(distance) => (-1, distance),
            WindowFrameBound::Following(distance) => (1, distance),
        };
        if distance.is_null() {
            return Some(None);
        }
        let exact = sign * self.nanos_of(distance)?;
        let rounded = if is_start { -(-exact).div_euclid(self.nanos) } else { exact.div_euclid(self.nanos) };
        Some(Some(rounded))
    }

    fn nanos_of(&self, distance: &ScalarValue) -> Option<i128> {
        const DAY: i128 = 86_400_000_000_000;
        let of_days = |days: i32| (days == 0 || self.even_days).then_some(i128::from(days) * DAY);
        let exact = match distance {
            ScalarValue::UInt64(Some(n)) if !self.is_time => i128::from(*n),
            ScalarValue::Int64(Some(n)) if !self.is_time => i128::from(*n),
            ScalarValue::Int32(Some(n)) if !self.is_time => i128::from(*n),
            ScalarValue::IntervalMonthDayNano(Some(i)) if self.is_time && i.months == 0 => {
                of_days(i.days)? + i128::from(i.nanoseconds)
            }
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
