//! `date_bin` with time zones, in every unit that a collection stores. `date_bin_gapfill` is the same function; the
//! plan around it fills the gaps.

use super::arguments::wrong;
use super::bins::{Bins, DAY, LastBin, wall_time};
use crate::timestamp_coercion::scalar_instant;
use arrow::array::timezone::Tz;
use datafusion::arrow::array::types::{
    ArrowTimestampType, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use ebbtide::suggest;
use ebbtide_ttl::Timestamp;
use std::str::FromStr;
use std::sync::Arc;

/// Name of the function whose gaps are filled.
pub(super) const GAPFILL: &str = "date_bin_gapfill";
/// DuckDB's and TimescaleDB's name for it. They count bins from a different origin.
pub(super) const TIME_BUCKET: &str = "time_bucket";
/// Origins of `time_bucket`: the Monday 2000-01-03 for fixed widths, and 2000-01-01 for months.
const MONDAY: Timestamp = Timestamp::from_nanos(946_857_600 * 1_000_000_000);
const MILLENNIUM: Timestamp = Timestamp::from_nanos(946_684_800 * 1_000_000_000);

/// `date_bin`, `time_bucket` or `date_bin_gapfill`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct DateBin {
    name: &'static str,
    signature: Signature,
}

impl DateBin {
    pub(super) fn new(name: &'static str) -> Self {
        DateBin { name, signature: Signature::user_defined(Volatility::Immutable) }
    }

    pub(super) fn udf(name: &'static str) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(DateBin::new(name)))
    }

    fn fills(&self) -> bool {
        self.name == GAPFILL
    }
}

/// The arguments after the time.
#[derive(Debug)]
pub(super) struct Shape<T> {
    /// A time zone or an origin.
    pub(super) anchor: Option<T>,
    /// With a time zone: the origin in its local time.
    pub(super) origin: Option<T>,
    /// First and last time to fill.
    pub(super) range: Option<(T, T)>,
}

impl<T> Shape<T> {
    pub(super) fn of(fills: bool, rest: Vec<T>) -> Option<Shape<T>> {
        let count = rest.len();
        let mut rest = rest.into_iter();
        let mut next = || rest.next();
        match (fills, count) {
            (_, 0) => Some(Shape { anchor: None, origin: None, range: None }),
            (_, 1) => Some(Shape { anchor: next(), origin: None, range: None }),
            (false, 2) => Some(Shape { anchor: next(), origin: next(), range: None }),
            (true, 2) => Some(Shape { anchor: None, origin: None, range: next().zip(next()) }),
            (true, 3) => Some(Shape { anchor: next(), origin: None, range: next().zip(next()) }),
            _ => None,
        }
    }
}

/// The bins that constant arguments describe.
pub(super) fn bins(
    name: &str,
    width: &ScalarValue,
    unit: TimeUnit,
    anchor: Option<&ScalarValue>,
    origin: Option<&ScalarValue>,
) -> Result<Bins> {
    let interval = match width.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano)) {
        Ok(ScalarValue::IntervalMonthDayNano(Some(interval))) => interval,
        _ => return wrong(name, 1, "interval", &format!("is {width}, a width such as INTERVAL '1 hour' is wanted")),
    };
    let (zone, origin) = match anchor {
        None => (None, None),
        Some(value) => match (scalar_instant(value), value.try_as_str().flatten()) {
            (Some(origin), _) => (None, Some(origin)),
            (None, Some(text)) => {
                let origin = match origin {
                    None => None,
                    Some(value) => Some(wall(name, value)?),
                };
                (Some(zone(name, text)?), origin)
            }
            _ => return wrong(name, 3, "zone or origin", "is null, a time zone or a time is wanted"),
        },
    };
    let usual = (name == TIME_BUCKET).then_some(if interval.months == 0 { MONDAY } else { MILLENNIUM });
    match Bins::new(interval, unit, origin.or(usual), zone) {
        Ok(bins) => Ok(bins),
        Err(why) => wrong(name, 1, "interval", &why),
    }
}

/// Reads an origin in a zone's local time.
fn wall(name: &str, value: &ScalarValue) -> Result<Timestamp> {
    let read = match value.try_as_str().flatten() {
        Some(text) => wall_time(text),
        None => scalar_instant(value),
    };
    match read {
        Some(origin) => Ok(origin),
        None => wrong(name, 4, "origin", &format!("is {value}, a local time such as '2024-01-01' is wanted")),
    }
}

fn zone(name: &str, text: &str) -> Result<Tz> {
    match Tz::from_str(text) {
        Ok(zone) => Ok(zone),
        Err(_) => {
            let hint = suggest::hint(text, chrono_tz::TZ_VARIANTS.iter().map(|z| z.name()));
            wrong(name, 3, "zone or origin", &format!("is '{text}', which is neither a time zone nor a time{hint}"))
        }
    }
}

impl ScalarUDFImpl for DateBin {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let forms = if self.fills() {
            "(interval, time), (interval, time, zone or origin), (interval, time, start, finish) or (interval, time, zone \
             or origin, start, finish)"
        } else {
            "(interval, time), (interval, time, origin), (interval, time, zone) or (interval, time, zone, origin)"
        };
        let most = if self.fills() { 5 } else { 4 };
        if given.len() < 2 || given.len() > most {
            return datafusion::common::plan_err!("{} takes {forms}; arguments given: {}", self.name, given.len());
        }
        let mut wanted = given.to_vec();
        wanted[0] = match &given[0] {
            DataType::Interval(_) | DataType::Null => DataType::Interval(IntervalUnit::MonthDayNano),
            text if text.is_string() => DataType::Interval(IntervalUnit::MonthDayNano),
            other => {
                return wrong(
                    self.name,
                    1,
                    "interval",
                    &format!("is {other}, an INTERVAL such as INTERVAL '1 hour' is wanted"),
                );
            }
        };
        wanted[1] = match &given[1] {
            DataType::Timestamp(..) => given[1].clone(),
            DataType::Time32(_) | DataType::Time64(_) if !self.fills() => given[1].clone(),
            DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Millisecond, None),
            DataType::Null => DataType::Timestamp(TimeUnit::Nanosecond, None),
            text if text.is_string() => DataType::Timestamp(TimeUnit::Nanosecond, None),
            other => return wrong(self.name, 2, "time", &format!("is {other}, a timestamp is wanted")),
        };
        let time_of_day = matches!(wanted[1], DataType::Time32(_) | DataType::Time64(_));
        for (i, kind) in given.iter().enumerate().skip(2) {
            let fits = match kind {
                DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => !time_of_day,
                DataType::Time32(_) | DataType::Time64(_) => time_of_day,
                text => text.is_string(),
            };
            if !fits {
                return wrong(
                    self.name,
                    i + 1,
                    "zone or time",
                    &format!("is {kind}, a time zone such as 'Europe/Berlin' or a time is wanted"),
                );
            }
            if time_of_day {
                wanted[i] = wanted[1].clone();
            }
        }
        Ok(wanted)
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given.get(1) {
            Some(kind) => Ok(kind.clone()),
            None => internal_err!("{} without a time", self.name),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if matches!(args.args.get(1).map(ColumnarValue::data_type), Some(DataType::Time32(_) | DataType::Time64(_))) {
            return datetime::date_bin().invoke_with_args(args);
        }
        let mut values = args.args.into_iter();
        let (Some(width), Some(time)) = (values.next(), values.next()) else {
            return internal_err!("{} without a time", self.name);
        };
        let constant = |value: ColumnarValue, at: usize, what: &str| match value {
            ColumnarValue::Scalar(value) => Ok(value),
            ColumnarValue::Array(_) => wrong(self.name, at, what, "differs from row to row, a constant is wanted"),
        };
        let width = constant(width, 1, "interval")?;
        let rest: Result<Vec<ScalarValue>> =
            values.enumerate().map(|(i, value)| constant(value, i + 3, "zone or origin")).collect();
        let Some(shape) = Shape::of(self.fills(), rest?) else {
            return internal_err!("{} with too many arguments", self.name);
        };
        let DataType::Timestamp(unit, _) = time.data_type() else {
            return internal_err!("{} of no time", self.name);
        };
        let bins = bins(self.name, &width, unit, shape.anchor.as_ref(), shape.origin.as_ref())?;
        match time {
            ColumnarValue::Array(times) => Ok(ColumnarValue::Array(binned(&times, unit, &bins)?)),
            ColumnarValue::Scalar(time) => {
                let binned = binned(&time.to_array()?, unit, &bins)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&binned, 0)?))
            }
        }
    }

    /// If a whole number of bins makes up a day, the bins are the same from both origins: becomes `date_bin`, which the
    /// planner knows more about.
    fn simplify(&self, args: Vec<Expr>, _info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let same = match args.as_slice() {
            [Expr::Literal(width, _), _] => match width.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano)) {
                Ok(ScalarValue::IntervalMonthDayNano(Some(width))) => {
                    let nanos = i128::from(width.days) * DAY + i128::from(width.nanoseconds);
                    width.months == 0 && nanos > 0 && DAY % nanos == 0
                }
                _ => false,
            },
            _ => false,
        };
        if self.name == TIME_BUCKET && same {
            return Ok(ExprSimplifyResult::Simplified(DateBin::udf("date_bin").call(args)));
        }
        Ok(ExprSimplifyResult::Original(args))
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        // When clocks change at midnight, a zone's date may go back for an hour: only the form with two arguments keeps
        // the order.
        match inputs {
            [width, time] if width.sort_properties == SortProperties::Singleton => Ok(time.sort_properties),
            _ => Ok(SortProperties::Unordered),
        }
    }
}

pub(super) fn binned(times: &ArrayRef, unit: TimeUnit, bins: &Bins) -> Result<ArrayRef> {
    fn of<T: ArrowTimestampType>(times: &ArrayRef, bins: &Bins) -> Result<ArrayRef> {
        let times: &PrimitiveArray<T> = times.as_primitive();
        let last = LastBin::default();
        let binned: PrimitiveArray<T> = times.try_unary(|time| last.start(bins, time))?;
        Ok(Arc::new(binned.with_data_type(times.data_type().clone())))
    }
    match unit {
        TimeUnit::Second => of::<TimestampSecondType>(times, bins),
        TimeUnit::Millisecond => of::<TimestampMillisecondType>(times, bins),
        TimeUnit::Microsecond => of::<TimestampMicrosecondType>(times, bins),
        TimeUnit::Nanosecond => of::<TimestampNanosecondType>(times, bins),
    }
}

/// `locf` or `interpolate`, which fill the gaps of an aggregate. The plan removes both, so that neither is ever
/// executed.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Fill {
    name: &'static str,
    signature: Signature,
}

/// Names of the functions that fill gaps.
pub(super) const LOCF: &str = "locf";
pub(super) const INTERPOLATE: &str = "interpolate";

impl Fill {
    pub(super) fn udf(name: &'static str) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(Fill { name, signature: Signature::user_defined(Volatility::Immutable) }))
    }
}

impl ScalarUDFImpl for Fill {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [kind] = given else {
            return datafusion::common::plan_err!(
                "{}(aggregate) takes one argument; given: {}",
                self.name,
                given.len()
            );
        };
        match (self.name, kind) {
            (INTERPOLATE, kind) if kind.is_numeric() || *kind == DataType::Null => Ok(vec![DataType::Float64]),
            (INTERPOLATE, other) => {
                wrong(self.name, 1, "aggregate", &format!("is {other}, a number is wanted; locf fills any type"))
            }
            _ => Ok(vec![kind.clone()]),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given.first().cloned().unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{}", misplaced(self.name))
    }
}

/// The message for a call that gap filling has not removed.
pub(super) fn misplaced(name: &str) -> String {
    match name {
        GAPFILL => format!(
            "{GAPFILL} must be an item of GROUP BY by itself and be selected exactly as written there; date_bin is the function \
             without gap filling"
        ),
        name => format!(
            "{name}(aggregate) fills the gaps of a query with GROUP BY {GAPFILL}(interval, time): use it in the SELECT list \
             or the ORDER BY of such a query, around an aggregate"
        ),
    }
}
