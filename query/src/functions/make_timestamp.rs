//! `make_timestamp`: a time from its parts.

use super::arguments::{returned, wrong};
use chrono::{NaiveDate, NaiveTime};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::sync::Arc;

const NAME: &str = "make_timestamp";
const PARTS: [&str; 5] = ["year", "month", "day", "hour", "minute"];
const TIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// `make_timestamp(year, month, day, hour, minute, seconds)`, and `make_timestamp(microseconds)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct MakeTimestamp {
    signature: Signature,
}

impl MakeTimestamp {
    pub(super) fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(MakeTimestamp { signature }))
    }
}

impl ScalarUDFImpl for MakeTimestamp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let whole = |at: usize, what: &str, kind: &DataType| match kind.is_integer() || kind.is_null() {
            true => Ok(DataType::Int64),
            false => wrong(NAME, at, what, &format!("is {kind}, a whole number is wanted")),
        };
        match given {
            [micros] => Ok(vec![whole(1, "microseconds", micros)?]),
            [parts @ .., seconds] if parts.len() == PARTS.len() => {
                let mut kinds = Vec::with_capacity(given.len());
                for (at, (what, kind)) in PARTS.iter().zip(parts).enumerate() {
                    kinds.push(whole(at + 1, what, kind)?);
                }
                if !seconds.is_numeric() && !seconds.is_null() {
                    return wrong(NAME, given.len(), "seconds", &format!("is {seconds}, a number is wanted"));
                }
                kinds.push(DataType::Float64);
                Ok(kinds)
            }
            _ => plan_err!(
                "{NAME} takes (year, month, day, hour, minute, seconds) or (microseconds); arguments given: {}",
                given.len()
            ),
        }
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        Ok(TIME)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given = ColumnarValue::values_to_arrays(&args.args)?;
        let times: ArrayRef = match given.as_slice() {
            [micros] => cast(micros, &TIME)?,
            [parts @ .., seconds] => {
                let parts: Vec<&PrimitiveArray<Int64Type>> = parts.iter().map(|part| part.as_primitive()).collect();
                let times = seconds.as_primitive::<Float64Type>().iter().enumerate().map(|(row, seconds)| {
                    let part = |at: usize| parts.get(at).filter(|part| part.is_valid(row)).map(|part| part.value(row));
                    let (Some(year), Some(month), Some(day)) = (part(0), part(1), part(2)) else { return Ok(None) };
                    let (Some(hour), Some(minute), Some(seconds)) = (part(3), part(4), seconds) else {
                        return Ok(None);
                    };
                    match micros_of([year, month, day, hour, minute], seconds) {
                        Some(micros) => Ok(Some(micros)),
                        None => exec_err!(
                            "{NAME}: there is no time {year}-{month:02}-{day:02} {hour:02}:{minute:02}:{seconds}"
                        ),
                    }
                });
                Arc::new(times.collect::<Result<TimestampMicrosecondArray>>()?)
            }
            [] => return internal_err!("{NAME} without arguments"),
        };
        returned(times, &args.args)
    }
}

/// The time of a year, month, day, hour and minute, and of seconds, which are rounded to a microsecond; `None` if there is none.
fn micros_of([year, month, day, hour, minute]: [i64; 5], seconds: f64) -> Option<i64> {
    let small = |part: i64| u32::try_from(part).ok();
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, small(month)?, small(day)?)?;
    let time = NaiveTime::from_hms_opt(small(hour)?, small(minute)?, 0)?;
    let micros = (0.0..60.0).contains(&seconds).then(|| (seconds * 1e6).round() as i64)?;
    date.and_time(time).and_utc().timestamp_micros().checked_add(micros)
}

#[cfg(test)]
mod tests {
    use super::micros_of;

    #[test]
    fn a_time_is_made_of_its_parts() {
        assert_eq!(micros_of([1970, 1, 2, 1, 1], 1.5), Some(90_061_500_000));
        assert_eq!(micros_of([1969, 12, 31, 23, 59], 59.999_999_9), Some(0));
        for (parts, seconds) in [
            ([2024, 2, 30, 0, 0], 0.0),
            ([2024, 13, 1, 0, 0], 0.0),
            ([2024, 1, 1, 24, 0], 0.0),
            ([2024, 1, 1, 0, -1], 0.0),
            ([2024, 1, 1, 0, 0], 60.0),
            ([2024, 1, 1, 0, 0], -0.5),
            ([2024, 1, 1, 0, 0], f64::NAN),
        ] {
            assert_eq!(micros_of(parts, seconds), None, "{parts:?}");
        }
    }
}
