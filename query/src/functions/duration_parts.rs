//! Parts of differences of times: `extract(hour FROM end - start)`.
//!
//! As in PostgreSQL and DuckDB, a part is what remains after the larger ones: hours are 0 to 23, next to the days. DataFusion's are the totals in
//! hours, minutes or seconds, null or wrong where these do not fit int32, and its epoch lacks fractions of a second.

use super::arguments::returned;
use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::cast_utils::IntervalUnit;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use ebbtide_buckets::unit_nanos;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;

/// The function that takes the place of `date_part`.
pub(super) static PART: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(DurationPart { signature }))
});

/// What is taken of a difference.
#[derive(Debug, Clone, Copy)]
enum Part {
    Epoch,
    Of(IntervalUnit),
}

impl Part {
    fn named(text: &str) -> Result<Part> {
        if text.eq_ignore_ascii_case("epoch") {
            return Ok(Part::Epoch);
        }
        match IntervalUnit::from_str(text) {
            Ok(IntervalUnit::Century | IntervalUnit::Decade | IntervalUnit::Year | IntervalUnit::Month) | Err(_) => {
                let part = text.to_lowercase();
                plan_err!(
                    "a difference of times has no {part}; it has days, hours, minutes, seconds and epoch, and age(end, start) counts months"
                )
            }
            Ok(unit) => Ok(Part::Of(unit)),
        }
    }

    /// The type that `date_part` has.
    fn kind(self) -> DataType {
        match self {
            Part::Epoch => DataType::Float64,
            Part::Of(IntervalUnit::Nanosecond) => DataType::Int64,
            Part::Of(_) => DataType::Int32,
        }
    }
}

/// A whole part of a number of nanoseconds.
fn whole(unit: IntervalUnit, nanos: i128) -> i128 {
    match unit {
        IntervalUnit::Week => nanos / (7 * DAY),
        IntervalUnit::Day => nanos / DAY,
        IntervalUnit::Hour => nanos / HOUR % 24,
        IntervalUnit::Minute => nanos / MINUTE % 60,
        IntervalUnit::Second => nanos / SECOND % 60,
        IntervalUnit::Millisecond => nanos % MINUTE / 1_000_000,
        IntervalUnit::Microsecond => nanos % MINUTE / 1_000,
        IntervalUnit::Nanosecond => nanos % MINUTE,
        IntervalUnit::Century | IntervalUnit::Decade | IntervalUnit::Year | IntervalUnit::Month => 0,
    }
}

/// The part of a difference of times.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DurationPart {
    signature: Signature,
}

impl ScalarUDFImpl for DurationPart {
    fn name(&self) -> &'static str {
        "duration_part"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [_, length @ DataType::Duration(_)] => Ok(vec![DataType::Utf8, length.clone()]),
            _ => plan_err!("{} takes a part and a difference of times", self.name()),
        }
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        internal_err!("{} is asked for its type without its arguments", self.name())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let part = args.scalar_arguments.first().copied().flatten().and_then(|part| part.try_as_str().flatten());
        let Some(part) = part else { return plan_err!("date_part: argument 1 (part) is no constant text") };
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), Part::named(part)?.kind(), nullable)))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(format!("date_part({})", names.join(",")))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(part), lengths] = args.args.as_slice() else {
            return internal_err!("{} without a part", self.name());
        };
        let part = Part::named(part.try_as_str().flatten().unwrap_or_default())?;
        let lengths = lengths.to_array(1)?;
        let DataType::Duration(unit) = *lengths.data_type() else {
            return internal_err!("{} of {}", self.name(), lengths.data_type());
        };
        let units = cast(&lengths, &DataType::Int64)?;
        let units = units.as_primitive::<Int64Type>().iter();
        let nanos = units.map(|units| units.map(|units| i128::from(units) * unit_nanos(unit)));
        let parts: ArrayRef = match part {
            Part::Epoch => Arc::new(nanos.map(|nanos| nanos.map(|nanos| nanos as f64 / 1e9)).collect::<Float64Array>()),
            Part::Of(unit) => {
                let fitting = |nanos: i128| match i64::try_from(whole(unit, nanos)) {
                    Ok(part) => Ok(part),
                    Err(_) => exec_err!("overflow: a part of a difference of times does not fit int64"),
                };
                let parts = nanos.map(|nanos| nanos.map(fitting).transpose()).collect::<Result<Int64Array>>()?;
                match part.kind() {
                    DataType::Int64 => Arc::new(parts),
                    _ => Arc::new(narrow(&parts)?),
                }
            }
        };
        returned(parts, &args.args)
    }
}

fn narrow(parts: &Int64Array) -> Result<Int32Array> {
    let part = |part: i64| match i32::try_from(part) {
        Ok(part) => Ok(part),
        Err(_) => exec_err!("overflow: {part} days or weeks of a difference of times do not fit int32"),
    };
    parts.iter().map(|value| value.map(part).transpose()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_what_larger_parts_leave() {
        // 26 hours, 3 minutes and 4.005006007 seconds.
        let nanos = 26 * HOUR + 3 * MINUTE + 4_005_006_007;
        for (name, expected) in [
            ("day", 1),
            ("hours", 2),
            ("minute", 3),
            ("second", 4),
            ("millisecond", 4_005),
            ("microsecond", 4_005_006),
            ("nanosecond", 4_005_006_007),
        ] {
            let Part::Of(unit) = Part::named(name).unwrap() else { panic!("{name}") };
            assert_eq!([whole(unit, nanos), whole(unit, -nanos)], [expected, -expected], "{name}");
        }
        assert!(Part::named("month").unwrap_err().to_string().contains("age(end, start)"));
    }
}
