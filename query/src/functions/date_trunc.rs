//! `date_trunc` with time zones, for every year that a collection can store; DataFusion's own supports neither.

use super::arguments::wrong;
use super::bins::Bins;
use super::date_bin::binned;
use arrow::array::timezone::Tz;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalMonthDayNano, TimeUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use ebbtide::suggest;
use ebbtide_ttl::{Precision, Timestamp};
use std::str::FromStr;
use std::sync::Arc;

const NAME: &str = "date_trunc";

const UNITS: [&str; 10] =
    ["microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"];

/// A Monday (1970-01-05), on which weeks begin.
const MONDAY: Timestamp = Timestamp::from_nanos(4 * 86_400 * 1_000_000_000);

/// `date_trunc`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct DateTrunc {
    signature: Signature,
    aliases: Vec<String>,
}

impl DateTrunc {
    pub(crate) fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(DateTrunc { signature, aliases: vec!["datetrunc".to_owned()] }))
    }
}

/// The bins of a unit, for times with a precision.
pub(crate) fn calendar_bins(unit: &str, precision: Precision) -> Option<Bins> {
    let resolution = match precision {
        Precision::Ms => TimeUnit::Millisecond,
        Precision::Us => TimeUnit::Microsecond,
        Precision::Ns => TimeUnit::Nanosecond,
    };
    let (interval, origin) = width(NAME, &ScalarValue::from(unit)).ok()?;
    Bins::new(interval, resolution, origin, None).ok()
}

/// The width of the bins of a unit, which is the first argument of `function`, and their origin.
pub(super) fn width(function: &str, unit: &ScalarValue) -> Result<(IntervalMonthDayNano, Option<Timestamp>)> {
    let word = unit.try_as_str().flatten().unwrap_or_default().to_lowercase();
    let interval = IntervalMonthDayNano::new;
    Ok(match word.as_str() {
        "microsecond" => (interval(0, 0, 1_000), None),
        "millisecond" => (interval(0, 0, 1_000_000), None),
        "second" => (interval(0, 0, 1_000_000_000), None),
        "minute" => (interval(0, 0, 60_000_000_000), None),
        "hour" => (interval(0, 0, 3_600_000_000_000), None),
        "day" => (interval(0, 1, 0), None),
        "week" => (interval(0, 7, 0), Some(MONDAY)),
        "month" => (interval(1, 0, 0), None),
        "quarter" => (interval(3, 0, 0), None),
        "year" => (interval(12, 0, 0), None),
        _ => {
            let hint = suggest::hint(&word, UNITS);
            return wrong(function, 1, "unit", &format!("is {unit}; it takes {}{hint}", UNITS.join(", ")));
        }
    })
}

/// The time zone of this name, which is argument `at` of `function`.
pub(super) fn zone(function: &str, at: usize, text: &str) -> Result<Tz> {
    Tz::from_str(text).or_else(|_| {
        let hint = suggest::hint(text, chrono_tz::TZ_VARIANTS.iter().map(|z| z.name()));
        wrong(function, at, "zone", &format!("is '{text}', which is not a time zone{hint}"))
    })
}

/// The time zone that is given as argument `at` of `function`, which may be left out.
pub(super) fn zone_argument(function: &str, at: usize, given: Option<&ColumnarValue>) -> Result<Option<Tz>> {
    match given {
        None => Ok(None),
        Some(ColumnarValue::Scalar(given)) => match given.try_as_str().flatten() {
            Some(given) => zone(function, at, given).map(Some),
            None => wrong(function, at, "zone", "is null, a time zone such as 'Europe/Berlin' is wanted"),
        },
        Some(ColumnarValue::Array(_)) => wrong(function, at, "zone", "differs from row to row, a constant is wanted"),
    }
}

pub(super) fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "Z" | "+00:00" | "Etc/UTC")
}

/// The timestamps that an argument of this type is converted to.
pub(super) fn time_type(function: &str, at: usize, what: &str, given: &DataType) -> Result<DataType> {
    Ok(match given {
        DataType::Timestamp(..) => given.clone(),
        DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Null => DataType::Timestamp(TimeUnit::Nanosecond, None),
        text if text.is_string() => DataType::Timestamp(TimeUnit::Nanosecond, None),
        other => return wrong(function, at, what, &format!("is {other}, a timestamp is wanted")),
    })
}

impl ScalarUDFImpl for DateTrunc {
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
        let (unit, time, zone) = match given {
            [unit, time] => (unit, time, None),
            [unit, time, zone] => (unit, time, Some(zone)),
            _ => return plan_err!("{NAME} takes (unit, time) or (unit, time, zone); arguments given: {}", given.len()),
        };
        if !unit.is_string() {
            return wrong(NAME, 1, "unit", &format!("is {unit}, a word such as 'day' is wanted"));
        }
        let time = match time {
            DataType::Time32(_) | DataType::Time64(_) if zone.is_none() => time.clone(),
            other => time_type(NAME, 2, "time", other)?,
        };
        if let Some(other) = zone.filter(|zone| !zone.is_string()) {
            return wrong(NAME, 3, "zone", &format!("is {other}, a time zone such as 'Europe/Berlin' is wanted"));
        }
        Ok([DataType::Utf8, time].into_iter().chain(zone.map(|_| DataType::Utf8)).collect())
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        internal_err!("{NAME} is asked for its type without its arguments")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let Some(time) = args.arg_fields.get(1) else { return internal_err!("{NAME} without a time") };
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(NAME, time.data_type().clone(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let kind = args.args.get(1).map(ColumnarValue::data_type);
        let Some(DataType::Timestamp(resolution, own)) = kind else {
            return datetime::date_trunc().invoke_with_args(args);
        };
        let mut values = args.args.into_iter();
        let (Some(unit), Some(time)) = (values.next(), values.next()) else {
            return internal_err!("{NAME} without a time");
        };
        let ColumnarValue::Scalar(unit) = unit else {
            return wrong(NAME, 1, "unit", "differs from row to row, a constant is wanted");
        };
        let zone = match zone_argument(NAME, 3, values.next().as_ref())? {
            Some(given) => Some(given),
            None => own.as_deref().filter(|own| !is_utc(own)).map(|own| zone(NAME, 3, own)).transpose()?,
        };
        let (interval, origin) = width(NAME, &unit)?;
        let bins = match Bins::new(interval, resolution, origin, zone) {
            Ok(bins) => bins,
            Err(why) => return wrong(NAME, 1, "unit", &why),
        };
        match time {
            ColumnarValue::Array(times) => Ok(ColumnarValue::Array(binned(&times, resolution, &bins)?)),
            ColumnarValue::Scalar(time) => {
                let binned = binned(&time.to_array()?, resolution, &bins)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&binned, 0)?))
            }
        }
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        // When clocks change at midnight, a zone's date may go back for an hour.
        match inputs {
            [unit, time] if unit.sort_properties == SortProperties::Singleton => match time.range.data_type() {
                DataType::Timestamp(_, Some(zone)) if !is_utc(&zone) => Ok(SortProperties::Unordered),
                _ => Ok(time.sort_properties),
            },
            _ => Ok(SortProperties::Unordered),
        }
    }
}
