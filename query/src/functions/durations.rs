//! A difference of times, times a number or divided by one.

use super::arguments::returned;
use super::arithmetic::call;
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use ebbtide_buckets::unit_nanos;
use std::sync::{Arc, LazyLock};

static TIMES: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| scaled(false));
static DIVIDED: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| scaled(true));

fn scaled(divides: bool) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Scaled { divides, signature }))
}

/// The functions of rewritten plans.
#[cfg(feature = "workers")]
pub(super) fn functions() -> [Arc<ScalarUDF>; 2] {
    [Arc::clone(&TIMES), Arc::clone(&DIVIDED)]
}

pub(super) fn times(duration: Expr, factor: Expr) -> Expr {
    call(&TIMES, vec![duration, factor])
}

pub(super) fn divided(duration: Expr, divisor: Expr) -> Expr {
    call(&DIVIDED, vec![duration, divisor])
}

/// The unit of a result, in which half a millisecond is whole too.
fn finer(unit: TimeUnit) -> TimeUnit {
    match unit {
        TimeUnit::Nanosecond => TimeUnit::Nanosecond,
        _ => TimeUnit::Microsecond,
    }
}

/// A duration times a number, or divided by one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Scaled {
    divides: bool,
    signature: Signature,
}

impl Scaled {
    /// A number of units, rounded. A double holds no more than 104 days of nanoseconds exactly, so whole numbers are multiplied as such.
    fn of(&self, units: i128, factor: f64) -> Result<i64> {
        let whole = (factor.fract() == 0.0 && factor.abs() < 1e18).then_some(factor as i128);
        let result = match (self.divides, whole) {
            (true, Some(0)) => return exec_err!("divide by zero"),
            (true, Some(divisor)) => Some(quotient(units, divisor)),
            (false, Some(factor)) => units.checked_mul(factor),
            (true, None) => rounded(units as f64 / factor),
            (false, None) => rounded(units as f64 * factor),
        };
        match result.and_then(|units| i64::try_from(units).ok()) {
            Some(units) => Ok(units),
            None => exec_err!("overflow: a difference of times {} {factor} does not fit int64", self.operator()),
        }
    }

    fn operator(&self) -> &'static str {
        if self.divides { "/" } else { "*" }
    }
}

/// The nearest whole number to a quotient; the one farther from 0 if two are as near.
pub(super) fn quotient(units: i128, divisor: i128) -> i128 {
    let (whole, rest) = (units / divisor, units % divisor);
    if rest.abs() * 2 < divisor.abs() { whole } else { whole + units.signum() * divisor.signum() }
}

fn rounded(value: f64) -> Option<i128> {
    (value.abs() < 9.2e18).then(|| value.round() as i128)
}

impl ScalarUDFImpl for Scaled {
    fn name(&self) -> &'static str {
        if self.divides { "divide_duration" } else { "multiply_duration" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [duration @ DataType::Duration(_), factor] if factor.is_numeric() => {
                Ok(vec![duration.clone(), DataType::Float64])
            }
            _ => plan_err!("{} takes a difference of times and a number", self.name()),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given.first() {
            Some(DataType::Duration(unit)) => Ok(DataType::Duration(finer(*unit))),
            _ => internal_err!("{} without a difference of times", self.name()),
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(names.join(&format!(" {} ", self.operator())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [durations, factors] = <[ArrayRef; 2]>::try_from(ColumnarValue::values_to_arrays(&args.args)?)
            .or_else(|_| exec_err!("{} takes two arguments", self.name()))?;
        let DataType::Duration(unit) = *durations.data_type() else {
            return internal_err!("{} of {}", self.name(), durations.data_type());
        };
        let steps = unit_nanos(unit) / unit_nanos(finer(unit));
        let (units, factors) = (cast(&durations, &DataType::Int64)?, cast(&factors, &DataType::Float64)?);
        let pairs = units.as_primitive::<Int64Type>().iter().zip(factors.as_primitive::<Float64Type>());
        let results = pairs.map(|(units, factor)| match (units, factor) {
            (Some(units), Some(factor)) => self.of(i128::from(units) * steps, factor).map(Some),
            _ => Ok(None),
        });
        let results: ArrayRef = Arc::new(results.collect::<Result<Int64Array>>()?);
        returned(cast(&results, args.return_field.data_type())?, &args.args)
    }
}
