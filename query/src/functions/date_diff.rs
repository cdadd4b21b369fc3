//! `date_diff`: how many hours, days, months and so on begin between two times.

use super::arguments::wrong;
use super::bins::Bins;
use super::date_trunc::{is_utc, time_type, width, zone, zone_argument};
use arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::sync::Arc;

const NAME: &str = "date_diff";

/// `date_diff`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct DateDiff {
    signature: Signature,
    aliases: Vec<String>,
}

impl DateDiff {
    pub(super) fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(DateDiff { signature, aliases: vec!["datediff".to_owned()] }))
    }
}

impl ScalarUDFImpl for DateDiff {
    fn name(&self) -> &'static str {
        NAME
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let (unit, start, end, zone) = match given {
            [unit, start, end] => (unit, start, end, None),
            [unit, start, end, zone] => (unit, start, end, Some(zone)),
            _ => {
                let count = given.len();
                return plan_err!(
                    "{NAME} takes (unit, start, end) or (unit, start, end, zone); arguments given: {count}"
                );
            }
        };
        if !unit.is_string() {
            return wrong(NAME, 1, "unit", &format!("is {unit}, a word such as 'day' is wanted"));
        }
        if let Some(other) = zone.filter(|zone| !zone.is_string()) {
            return wrong(NAME, 4, "zone", &format!("is {other}, a time zone such as 'Europe/Berlin' is wanted"));
        }
        let times = [time_type(NAME, 2, "start", start)?, time_type(NAME, 3, "end", end)?];
        Ok([DataType::Utf8].into_iter().chain(times).chain(zone.map(|_| DataType::Utf8)).collect())
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let mut values = args.args.into_iter();
        let (Some(unit), Some(start), Some(end)) = (values.next(), values.next(), values.next()) else {
            return internal_err!("{NAME} without times");
        };
        let ColumnarValue::Scalar(unit) = unit else {
            return wrong(NAME, 1, "unit", "differs from row to row, a constant is wanted");
        };
        let given = zone_argument(NAME, 4, values.next().as_ref())?;
        let constant = matches!((&start, &end), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { rows };
        let start = Times::new(&unit, &start.into_array(rows)?, given)?;
        let end = Times::new(&unit, &end.into_array(rows)?, given)?;
        let counts = (0..rows).map(|row| difference(start.number(row)?, end.number(row)?));
        let counts: ArrayRef = Arc::new(counts.collect::<Result<Int64Array>>()?);
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&counts, 0)?));
        }
        Ok(ColumnarValue::Array(counts))
    }
}

/// Times, and the hours, days and so on that they are in.
struct Times {
    units: PrimitiveArray<Int64Type>,
    bins: Bins,
}

impl Times {
    /// `zone` is the one that is given to the function, in place of the times' own.
    fn new(unit: &ScalarValue, times: &ArrayRef, given: Option<Tz>) -> Result<Times> {
        let DataType::Timestamp(resolution, own) = times.data_type() else {
            return internal_err!("{NAME} of {}", times.data_type());
        };
        let own = own.as_deref().filter(|own| !is_utc(own));
        let zone = match given {
            Some(given) => Some(given),
            None => own.map(|own| zone(NAME, 4, own)).transpose()?,
        };
        let (interval, origin) = width(NAME, unit)?;
        let bins = match Bins::new(interval, *resolution, origin, zone) {
            Ok(bins) => bins,
            Err(why) => return wrong(NAME, 1, "unit", &why),
        };
        Ok(Times { units: cast(times, &DataType::Int64)?.as_primitive::<Int64Type>().clone(), bins })
    }

    /// The number of the hour, day and so on that a row's time is in; `None` for a row without a time.
    fn number(&self, row: usize) -> Result<Option<i128>> {
        if self.units.is_null(row) { Ok(None) } else { self.bins.number_of(self.units.value(row)).map(Some) }
    }
}

fn difference(start: Option<i128>, end: Option<i128>) -> Result<Option<i64>> {
    let Some((start, end)) = start.zip(end) else { return Ok(None) };
    match i64::try_from(end - start) {
        Ok(count) => Ok(Some(count)),
        Err(_) => exec_err!("{NAME} is {}, which int64 cannot hold; count in a larger unit", end - start),
    }
}
