//! `age` and `date_sub`: what has passed between two times, by the calendar.

#[cfg(test)]
mod tests;

use super::arguments::{returned, wrong};
use super::bins::{DAY, civil, offset};
use super::date_trunc::{is_utc, time_type, width, zone};
use arrow::array::timezone::Tz;
use chrono::{Datelike, NaiveDateTime, Timelike};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, IntervalMonthDayNanoArray, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNano, IntervalUnit};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use ebbtide_buckets::unit_nanos;
use std::sync::Arc;

/// `age(end, start)`: months, days and the rest.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Age {
    signature: Signature,
}

/// `date_sub(unit, start, end)`: full units.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct DateSub {
    signature: Signature,
    aliases: Vec<String>,
}

impl Age {
    pub(super) fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Age { signature }))
    }
}

impl DateSub {
    pub(super) fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(DateSub { signature, aliases: vec!["datesub".to_owned()] }))
    }
}

impl ScalarUDFImpl for Age {
    fn name(&self) -> &'static str {
        "age"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [end, start] = given else {
            return plan_err!("age takes (time) or (end, start); arguments given: {}", given.len());
        };
        Ok(vec![time_type("age", 1, "end", end)?, time_type("age", 2, "start", start)?])
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given = ColumnarValue::values_to_arrays(&args.args)?;
        let [end, start] = given.as_slice() else { return internal_err!("age without times") };
        let [end, start] = Times::of_one_clock("age", [(1, end), (2, start)])?;
        let ages = (0..start.units.len()).map(|row| {
            let Some((end, start)) = end.local(row)?.zip(start.local(row)?) else { return Ok(None) };
            Ok(Some(age(civil(end)?, civil(start)?)))
        });
        returned(Arc::new(ages.collect::<Result<IntervalMonthDayNanoArray>>()?), &args.args)
    }
}

impl ScalarUDFImpl for DateSub {
    fn name(&self) -> &'static str {
        "date_sub"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let name = self.name();
        let [unit, start, end] = given else {
            let count = given.len();
            return plan_err!(
                "{name} takes (unit, start, end), not {count} arguments; time - interval subtracts an interval"
            );
        };
        if !unit.is_string() {
            return wrong(name, 1, "unit", &format!("is {unit}, a word such as 'day' is wanted"));
        }
        Ok(vec![DataType::Utf8, time_type(name, 2, "start", start)?, time_type(name, 3, "end", end)?])
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = self.name();
        let [ColumnarValue::Scalar(unit), times @ ..] = args.args.as_slice() else {
            return wrong(name, 1, "unit", "differs from row to row, a constant is wanted");
        };
        let (unit, _) = width(name, unit)?;
        let given = ColumnarValue::values_to_arrays(times)?;
        let [start, end] = given.as_slice() else { return internal_err!("{name} without times") };
        let [start, end] = Times::of_one_clock(name, [(2, start), (3, end)])?;
        let counts = (0..start.units.len()).map(|row| full_units(unit, &start, &end, row));
        returned(Arc::new(counts.collect::<Result<Int64Array>>()?), times)
    }
}

/// Times as nanoseconds.
struct Times {
    units: PrimitiveArray<Int64Type>,
    /// Nanoseconds per unit.
    unit: i128,
    /// Whose clock shows the times, if it is not UTC.
    zone: Option<Tz>,
}

impl Times {
    fn new(function: &str, at: usize, times: &ArrayRef) -> Result<Times> {
        let DataType::Timestamp(unit, own) = times.data_type() else {
            return internal_err!("{function} of {}", times.data_type());
        };
        let own = own.as_deref().filter(|own| !is_utc(own));
        Ok(Times {
            units: cast(times, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
            unit: unit_nanos(*unit),
            zone: own.map(|own| zone(function, at, own)).transpose()?,
        })
    }

    /// Two columns of times, which are arguments of a function. Both are shown by the clock of the first one that has a zone, so that nothing
    /// lies between equal times.
    fn of_one_clock(function: &str, [first, second]: [(usize, &ArrayRef); 2]) -> Result<[Times; 2]> {
        let (mut first, mut second) =
            (Times::new(function, first.0, first.1)?, Times::new(function, second.0, second.1)?);
        first.zone = first.zone.or(second.zone);
        second.zone = first.zone;
        Ok([first, second])
    }

    /// The time of a row; `None` if it is null.
    fn instant(&self, row: usize) -> Option<i128> {
        self.units.is_valid(row).then(|| i128::from(self.units.value(row)) * self.unit)
    }

    /// The time of a row that the clock of its zone shows.
    fn local(&self, row: usize) -> Result<Option<i128>> {
        match (self.instant(row), &self.zone) {
            (Some(time), Some(zone)) => Ok(Some(time + offset(zone, time)?)),
            (time, _) => Ok(time),
        }
    }
}

/// How many full units lie between the times of a row; negative if `end` is the earlier one.
fn full_units(unit: IntervalMonthDayNano, start: &Times, end: &Times, row: usize) -> Result<Option<i64>> {
    let IntervalMonthDayNano { months, days, nanoseconds } = unit;
    let count = if months > 0 {
        let Some((start, end)) = start.local(row)?.zip(end.local(row)?) else { return Ok(None) };
        i128::from(full_months(civil(start)?, civil(end)?) / months)
    } else if days > 0 {
        let Some((start, end)) = start.local(row)?.zip(end.local(row)?) else { return Ok(None) };
        (end - start) / (i128::from(days) * DAY)
    } else {
        let Some((start, end)) = start.instant(row).zip(end.instant(row)) else { return Ok(None) };
        (end - start) / i128::from(nanoseconds.max(1))
    };
    match i64::try_from(count) {
        Ok(count) => Ok(Some(count)),
        Err(_) => exec_err!("date_sub is {count}, which int64 cannot hold; count in a larger unit"),
    }
}

/// The full months between two times. A month that begins on a day that the last month does not have ends with that month.
fn full_months(start: NaiveDateTime, end: NaiveDateTime) -> i32 {
    if start > end {
        return -full_months(end, start);
    }
    let last = u32::from(end.num_days_in_month());
    let start = match start.with_day(last) {
        Some(moved) if end.day() == last && start.day() > last => moved,
        _ => start,
    };
    age(end, start).months
}

/// What lies between two times: full months, full days, and the rest. As in PostgreSQL, days that are borrowed from a month are those of the
/// month of the earlier time.
fn age(end: NaiveDateTime, start: NaiveDateTime) -> IntervalMonthDayNano {
    let (sign, later, earlier) = if end < start { (-1, start, end) } else { (1, end, start) };
    let month = |time: NaiveDateTime| time.year() * 12 + time.month() as i32;
    let in_day = |time: NaiveDateTime| {
        i64::from(time.num_seconds_from_midnight()) * 1_000_000_000 + i64::from(time.nanosecond())
    };
    let mut nanos = in_day(later) - in_day(earlier);
    let mut days = later.day() as i32 - earlier.day() as i32;
    let mut months = month(later) - month(earlier);
    if nanos < 0 {
        nanos += DAY as i64;
        days -= 1;
    }
    if days < 0 {
        days += i32::from(earlier.num_days_in_month());
        months -= 1;
    }
    IntervalMonthDayNano::new(sign * months, sign * days, i64::from(sign) * nanos)
}
