//! Intervals by their length: beside differences of times, and where they are compared. A day has 24 hours and a month 30 days.

use super::{Kind, Of, Place, Rewriter, interval_nanos};
use datafusion::arrow::array::{ArrayRef, AsArray, DurationNanosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use ebbtide_buckets::unit_nanos;
use std::mem::take;
use std::sync::{Arc, LazyLock};

static LENGTH: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Length { signature }))
});

/// The function of rewritten plans.
#[cfg(feature = "workers")]
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::clone(&LENGTH)
}

/// An interval as a difference of times in nanoseconds.
pub(crate) fn length_of(interval: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&LENGTH), vec![interval]))
}

pub(crate) fn is_interval(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_))
}

fn unit_of(kind: &DataType) -> Option<TimeUnit> {
    match kind {
        DataType::Duration(unit) => Some(*unit),
        _ => None,
    }
}

/// What values are put together for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// To compare them.
    Compared,
    /// To choose or to add them.
    Combined,
}

impl Rewriter {
    /// Makes differences of times of the intervals among values: of those beside such a difference, and of all that are compared.
    pub(super) fn as_lengths<'a>(&self, values: impl IntoIterator<Item = &'a mut Expr>, beside: Beside) -> bool {
        let values: Vec<&mut Expr> = values.into_iter().collect();
        let kinds: Vec<DataType> =
            values.iter().map(|value| value.get_type(&self.schema).unwrap_or(DataType::Null)).collect();
        let finest = kinds.iter().filter_map(unit_of).min_by_key(|unit| unit_nanos(*unit));
        let intervals = kinds.iter().filter(|kind| is_interval(kind)).count();
        let are_compared = beside == Beside::Compared && intervals > 1;
        if intervals == 0 || !(finest.is_some() || are_compared) {
            return false;
        }
        let nanos = |(value, kind): (&&mut Expr, &DataType)| {
            let of = Kind { unit: TimeUnit::Nanosecond, of: Of::Length };
            is_interval(kind).then(|| self.constant(value, &of)).flatten()
        };
        let constants: Vec<Option<i128>> = values.iter().zip(&kinds).map(nanos).collect();
        let is_whole = |unit: &TimeUnit| {
            let is_constant = constants.iter().flatten().count() == intervals;
            is_constant && constants.iter().flatten().all(|nanos| nanos % unit_nanos(*unit) == 0)
        };
        let unit = finest.filter(is_whole).unwrap_or(TimeUnit::Nanosecond);
        let kind = Kind { unit, of: Of::Length };
        let fits = |nanos: &i128| matches!(kind.place(*nanos), Place::At { .. });
        if beside == Beside::Combined && !constants.iter().flatten().all(fits) {
            return false;
        }
        for ((value, constant), of) in values.into_iter().zip(constants).zip(&kinds) {
            match constant {
                Some(nanos) => *value = kind.literal(whole_units(nanos / unit_nanos(unit))),
                None if is_interval(of) => *value = length_of(take(value)),
                None if unit_of(of).is_some_and(|own| own != unit) => {
                    *value = Expr::Cast(Cast::new(Box::new(take(value)), DataType::Duration(unit)));
                }
                None => {}
            }
        }
        true
    }
}

/// The nearest number that fits.
fn whole_units(units: i128) -> i64 {
    i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX })
}

/// The lengths of intervals, as the function returns them.
pub(crate) fn interval_lengths(intervals: &ArrayRef) -> Result<ArrayRef> {
    let intervals = cast(intervals, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>().iter();
    let lengths = intervals.map(|interval| Some(whole_units(interval_nanos(interval?))));
    Ok(Arc::new(lengths.collect::<DurationNanosecondArray>()))
}

/// Whether an expression is a call of [`length_of`].
pub(crate) fn is_length(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func == *LENGTH)
}

/// The length of an interval; the greatest one there is, some 292 years, for longer intervals.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    signature: Signature,
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &'static str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [DataType::Interval(_) | DataType::Null] => Ok(vec![DataType::Interval(IntervalUnit::MonthDayNano)]),
            _ => plan_err!("{} takes an interval", self.name()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Duration(TimeUnit::Nanosecond))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.iter().map(|arg| arg.schema_name().to_string()).collect())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let given = ColumnarValue::values_to_arrays(&args.args)?;
        let [intervals] = given.as_slice() else { return plan_err!("{} takes an interval", self.name()) };
        let lengths = interval_lengths(intervals)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths, 0)?),
            false => ColumnarValue::Array(lengths),
        })
    }
}
