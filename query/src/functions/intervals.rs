//! Intervals: in PostgreSQL's notation, times a number, and added to dates.

use super::arguments::{is_duration, returned};
use super::arithmetic::call;
use super::durations;
use crate::timestamp_coercion::{is_interval, scalar_instant};
use datafusion::arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::expr::{Cast, Placeholder};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, cast as cast_expr,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use std::sync::{Arc, LazyLock};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const DAY_SECONDS: f64 = 86_400.0;
const MONTH_DAYS: f64 = 30.0;

/// An interval in PostgreSQL's own notation or that of ISO 8601 in the words that Arrow reads: `1 day 02:30:00` is
/// `1 day 2 hours 30 minutes 0 seconds`. `None` for one that has such words alone.
pub(crate) fn in_words(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(iso) = text.strip_prefix('P') {
        return of_iso(iso);
    }
    let mut words = Vec::new();
    let mut is_changed = false;
    for word in text.split_whitespace() {
        if let Some(time) = of_clock(word) {
            words.push(time);
            is_changed = true;
        } else if ["mon", "mons"].iter().any(|month| word.eq_ignore_ascii_case(month)) {
            words.push("months".to_owned());
            is_changed = true;
        } else {
            words.push(word.to_owned());
        }
    }
    is_changed.then(|| words.join(" "))
}

/// `-1:30` or `04:05:06.789`.
fn of_clock(word: &str) -> Option<String> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    let mut parts = digits.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0"));
    let is_whole = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let is_clock = parts.next().is_none() && [hours, minutes, whole, fraction].into_iter().all(is_whole);
    let is_below = |part: &str| part.parse::<u8>().is_ok_and(|value| value < 60);
    (is_clock && is_below(minutes) && is_below(whole))
        .then(|| format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds"))
}

/// What comes after the `P` of `P1Y2M3DT4H5M6.7S`.
fn of_iso(text: &str) -> Option<String> {
    let (mut words, mut number, mut is_time) = (Vec::new(), String::new(), false);
    for char in text.chars() {
        let unit = match char {
            '0'..='9' | '.' | '-' | '+' => {
                number.push(char);
                continue;
            }
            'T' if !is_time && number.is_empty() => {
                is_time = true;
                continue;
            }
            'Y' if !is_time => "years",
            'M' if !is_time => "months",
            'W' if !is_time => "weeks",
            'D' if !is_time => "days",
            'H' if is_time => "hours",
            'M' => "minutes",
            'S' if is_time => "seconds",
            _ => return None,
        };
        number.parse::<f64>().ok()?;
        words.push(format!("{} {unit}", number.trim_start_matches('+')));
        number.clear();
    }
    (number.is_empty() && !words.is_empty()).then(|| words.join(" "))
}

/// Plans what DataFusion refuses or computes otherwise than PostgreSQL: an interval or a difference of times that is multiplied or
/// divided, a date with an interval that has a part of a day, which is a time, and DuckDB's `x // y`.
#[derive(Debug)]
pub(super) struct Intervals;

impl ExprPlanner for Intervals {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let kind = |expr: &Expr| expr.get_type(schema).unwrap_or(DataType::Null);
        let RawBinaryExpr { op, left, right } = expr;
        match op {
            BinaryOperator::Multiply => {
                let (left_kind, right_kind) = (kind(&left), kind(&right));
                let has_length = |kind: &DataType| is_interval(kind) || is_duration(kind);
                let product = |of: Expr, kind: &DataType, factor: Expr| {
                    let factor = typed(factor);
                    PlannerResult::Planned(match is_interval(kind) {
                        true => call(&TIMES, vec![of, factor]),
                        false => durations::times(of, factor),
                    })
                };
                if has_length(&left_kind) && is_factor(&right, &right_kind) {
                    return Ok(product(left, &left_kind, right));
                }
                if has_length(&right_kind) && is_factor(&left, &left_kind) {
                    return Ok(product(right, &right_kind, left));
                }
            }
            BinaryOperator::Divide if is_duration(&kind(&left)) && is_factor(&right, &kind(&right)) => {
                return Ok(PlannerResult::Planned(durations::divided(left, typed(right))));
            }
            BinaryOperator::Divide if is_interval(&kind(&left)) && is_factor(&right, &kind(&right)) => {
                return Ok(PlannerResult::Planned(call(&DIVIDED, vec![left, typed(right)])));
            }
            BinaryOperator::DuckIntegerDivide => {
                let is_whole = |kind: DataType| kind.is_integer() || kind.is_null();
                if !is_whole(kind(&left)) || !is_whole(kind(&right)) {
                    return plan_err!("// divides whole numbers; write trunc(x / y) for others");
                }
                let quotient = BinaryExpr::new(Box::new(left), Operator::Divide, Box::new(right));
                return Ok(PlannerResult::Planned(Expr::BinaryExpr(quotient)));
            }
            BinaryOperator::Plus | BinaryOperator::Minus => {
                let sum = if op == BinaryOperator::Plus { Operator::Plus } else { Operator::Minus };
                let planned = |left, right| PlannerResult::Planned(Expr::BinaryExpr(BinaryExpr::new(left, sum, right)));
                let is_widened = |time: &Expr, interval: &Expr| {
                    (is_date(&kind(time)) && has_time(interval)) || is_beyond_nanos(time)
                };
                if is_interval(&kind(&right)) && is_widened(&left, &right) {
                    return Ok(planned(Box::new(as_time(left)), Box::new(right)));
                }
                if sum == Operator::Plus && is_interval(&kind(&left)) && is_widened(&right, &left) {
                    return Ok(planned(Box::new(left), Box::new(as_time(right))));
                }
            }
            _ => {}
        }
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

fn is_date(kind: &DataType) -> bool {
    matches!(kind, DataType::Date32 | DataType::Date64)
}

fn is_factor(expr: &Expr, kind: &DataType) -> bool {
    let has_no_type = match expr {
        Expr::Placeholder(placeholder) => placeholder.field.is_none(),
        expr => matches!(expr, Expr::Literal(ScalarValue::Null, _)),
    };
    kind.is_numeric() || has_no_type
}

/// A parameter or a null without a type is a number.
fn typed(expr: Expr) -> Expr {
    match expr {
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let field = Some(Arc::new(Field::new("", DataType::Float64, true)));
            Expr::Placeholder(Placeholder { id, field })
        }
        Expr::Literal(ScalarValue::Null, metadata) => Expr::Literal(ScalarValue::Float64(None), metadata),
        other => other,
    }
}

/// Whether an expression is a text cast to a time in nanoseconds, which reach from 1677 to 2262, and lies beyond them.
fn is_beyond_nanos(expr: &Expr) -> bool {
    let Expr::Cast(cast) = expr else { return false };
    match (cast.expr.as_ref(), cast.field.data_type()) {
        (Expr::Literal(text, _), DataType::Timestamp(TimeUnit::Nanosecond, _)) => {
            scalar_instant(text).is_some_and(|instant| i64::try_from(instant.nanos()).is_err())
        }
        _ => false,
    }
}

/// A date, or a text as a time, as a time in microseconds.
fn as_time(of: Expr) -> Expr {
    let kind = |zone| DataType::Timestamp(TimeUnit::Microsecond, zone);
    match of {
        Expr::Cast(Cast { expr, field }) => match field.data_type() {
            DataType::Timestamp(_, zone) => cast_expr(*expr, kind(zone.clone())),
            other => cast_expr(cast_expr(*expr, other.clone()), kind(None)),
        },
        date => cast_expr(date, kind(None)),
    }
}

/// Whether an interval has a part of a day, or may have one.
fn has_time(interval: &Expr) -> bool {
    match interval {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _) => value.nanoseconds != 0,
        Expr::Literal(ScalarValue::IntervalDayTime(Some(value)), _) => value.milliseconds != 0,
        Expr::Literal(ScalarValue::IntervalYearMonth(_), _) => false,
        Expr::Negative(inner) => has_time(inner),
        _ => true,
    }
}

static TIMES: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| scaled(false));
static DIVIDED: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| scaled(true));

fn scaled(divides: bool) -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![INTERVAL, DataType::Float64], Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Scaled { divides, signature }))
}

/// The functions of rewritten plans.
#[cfg(feature = "workers")]
pub(super) fn functions() -> [Arc<ScalarUDF>; 2] {
    [Arc::clone(&TIMES), Arc::clone(&DIVIDED)]
}

/// An interval times a number, or divided by one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Scaled {
    divides: bool,
    signature: Signature,
}

impl Scaled {
    fn of(&self, interval: IntervalMonthDayNano, factor: f64) -> Result<IntervalMonthDayNano> {
        if self.divides && factor == 0.0 {
            return exec_err!("divide by zero");
        }
        let result = if self.divides { quotient(interval, factor) } else { product(interval, factor) };
        match result {
            Some(result) => Ok(result),
            None => exec_err!("overflow: an interval {} {factor} does not fit an interval", self.operator()),
        }
    }

    fn operator(&self) -> &'static str {
        if self.divides { "/" } else { "*" }
    }
}

impl ScalarUDFImpl for Scaled {
    fn name(&self) -> &'static str {
        if self.divides { "divide_interval" } else { "multiply_interval" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(names.join(&format!(" {} ", self.operator())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [intervals, factors] = <[ArrayRef; 2]>::try_from(ColumnarValue::values_to_arrays(&args.args)?)
            .or_else(|_| exec_err!("{} takes two arguments", self.name()))?;
        let factors = cast(&factors, &DataType::Float64)?;
        let pairs =
            intervals.as_primitive::<IntervalMonthDayNanoType>().iter().zip(factors.as_primitive::<Float64Type>());
        let results = pairs.map(|(interval, factor)| match (interval, factor) {
            (Some(interval), Some(factor)) => self.of(interval, factor).map(Some),
            _ => Ok(None),
        });
        returned(Arc::new(results.collect::<Result<IntervalMonthDayNanoArray>>()?), &args.args)
    }
}

/// A number as a whole one, if it is one that a double holds exactly.
fn whole_number(factor: f64) -> Option<i64> {
    (factor.fract() == 0.0 && factor.abs() <= 9_007_199_254_740_992.0).then_some(factor as i64)
}

/// As PostgreSQL multiplies. `None` beyond what an interval holds.
fn product(interval: IntervalMonthDayNano, factor: f64) -> Option<IntervalMonthDayNano> {
    let Some(factor) = whole_number(factor) else { return in_parts(interval, |part| part * factor) };
    let part = |part: i32| i64::from(part).checked_mul(factor).and_then(|part| i32::try_from(part).ok());
    let nanos = interval.nanoseconds.checked_mul(factor)?;
    Some(IntervalMonthDayNano::new(part(interval.months)?, part(interval.days)?, nanos))
}

/// As PostgreSQL divides. `None` beyond what an interval holds.
pub(super) fn quotient(interval: IntervalMonthDayNano, divisor: f64) -> Option<IntervalMonthDayNano> {
    let in_full = whole_number(divisor).filter(|divisor| {
        let divides = |part: i32| i64::from(part) % divisor == 0;
        divides(interval.months) && divides(interval.days)
    });
    let Some(divisor) = in_full else { return in_parts(interval, |part| part / divisor) };
    let part = |part: i32| i32::try_from(i64::from(part) / divisor).ok();
    let nanos = durations::quotient(i128::from(interval.nanoseconds), i128::from(divisor));
    Some(IntervalMonthDayNano::new(part(interval.months)?, part(interval.days)?, i64::try_from(nanos).ok()?))
}

/// Scales each part of an interval. A fraction of a month is taken of 30 days, and a fraction of a day of 24 hours.
fn in_parts(interval: IntervalMonthDayNano, scale: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    let whole = |value: f64, most: f64| (value.abs() < most).then(|| value.trunc());
    let months = scale(f64::from(interval.months));
    let days = scale(f64::from(interval.days));
    let month_part = round_to_micros((months - months.trunc()) * MONTH_DAYS);
    let seconds = round_to_micros((days - days.trunc() + (month_part - month_part.trunc())) * DAY_SECONDS);
    let full_days = (seconds / DAY_SECONDS).trunc();
    let seconds = full_days.mul_add(-DAY_SECONDS, seconds);
    let nanos = (scale(interval.nanoseconds as f64) + seconds * 1e9).round();
    let most = f64::from(i32::MAX);
    Some(IntervalMonthDayNano::new(
        whole(months, most)? as i32,
        whole(days.trunc() + month_part.trunc() + full_days, most)? as i32,
        whole(nanos, 9.2e18)? as i64,
    ))
}

fn round_to_micros(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_in_the_notation_of_postgres_are_read() {
        for (text, expected) in [
            ("1 day 02:00:00", Some("1 day 02 hours 00 minutes 00 seconds")),
            ("-1:30", Some("-1 hours -30 minutes -0 seconds")),
            ("1 year 2 mons 04:05:06.789", Some("1 year 2 months 04 hours 05 minutes 06.789 seconds")),
            ("P1Y2M3DT4H5M6.5S", Some("1 years 2 months 3 days 4 hours 5 minutes 6.5 seconds")),
            ("P1W", Some("1 weeks")),
            ("PT-1H", Some("-1 hours")),
            ("1 day 2 hours", None),
            ("1:70", None),
            ("P", None),
            ("PT1D", None),
            ("12:", None),
        ] {
            assert_eq!(in_words(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn an_interval_times_a_number_is_as_in_postgres() {
        let hour = 3_600_000_000_000;
        let of = |months, days, nanos, factor| product(IntervalMonthDayNano::new(months, days, nanos), factor);
        assert_eq!(of(0, 1, 0, 3.0), Some(IntervalMonthDayNano::new(0, 3, 0)));
        assert_eq!(of(0, 1, 0, 2.5), Some(IntervalMonthDayNano::new(0, 2, 12 * hour)));
        assert_eq!(of(1, 0, 0, 1.5), Some(IntervalMonthDayNano::new(1, 15, 0)));
        assert_eq!(of(0, 1, 0, 1.0 / 3.0), Some(IntervalMonthDayNano::new(0, 0, 8 * hour)));
        assert_eq!(of(1, 1, 0, 0.55), Some(IntervalMonthDayNano::new(0, 17, hour * 6 / 5)));
        assert_eq!(of(0, 0, hour, -0.5), Some(IntervalMonthDayNano::new(0, 0, -hour / 2)));
        assert_eq!(of(1, 0, 0, f64::NAN), None);
        assert_eq!(of(1, 0, 0, 1e12), None);
        // More than a double holds exactly.
        assert_eq!(
            of(0, 0, 1_000, 1_717_243_200_123_457.0),
            Some(IntervalMonthDayNano::new(0, 0, 1_717_243_200_123_457_000))
        );
        assert_eq!(of(0, 0, i64::MAX, 2.0), None);
    }

    #[test]
    fn an_interval_divided_by_a_number_is_as_in_postgres() {
        let hour = 3_600_000_000_000;
        let of = |months, days, nanos, divisor| quotient(IntervalMonthDayNano::new(months, days, nanos), divisor);
        assert_eq!(of(0, 0, 3 * hour, 2.0), Some(IntervalMonthDayNano::new(0, 0, hour * 3 / 2)));
        assert_eq!(of(12, 4, hour, 4.0), Some(IntervalMonthDayNano::new(3, 1, hour / 4)));
        assert_eq!(of(1, 0, 0, 2.0), Some(IntervalMonthDayNano::new(0, 15, 0)));
        assert_eq!(of(0, 1, 0, 3.0), Some(IntervalMonthDayNano::new(0, 0, 8 * hour)));
        assert_eq!(of(0, 1, 0, 0.5), Some(IntervalMonthDayNano::new(0, 2, 0)));
        assert_eq!(of(0, 0, 7, -2.0), Some(IntervalMonthDayNano::new(0, 0, -4)));
        assert_eq!(of(1, 0, 0, f64::NAN), None);
        assert!(scaled_by_zero().to_string().contains("divide by zero"));
    }

    fn scaled_by_zero() -> datafusion::common::DataFusionError {
        let signature = Signature::exact(vec![INTERVAL, DataType::Float64], Volatility::Immutable);
        Scaled { divides: true, signature }.of(IntervalMonthDayNano::new(0, 1, 0), 0.0).unwrap_err()
    }
}
