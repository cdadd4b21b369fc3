//! The places of rows in their order, as numbers that rise, and those at the ends of their frames.

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use datafusion::common::{Result, internal_err};
use ebbtide_buckets::unit_nanos;
use std::sync::Arc;

/// The order of rows whose order is null, when these come last; the negative of it when they come first.
pub(super) const NULL_ORDER: i128 = i128::MAX;
/// The unit of dates.
pub(super) const DATE_UNIT: TimeUnit = TimeUnit::Second;
const HOUR_NANOS: i128 = 3_600_000_000_000;

/// How far an end of a frame is from the present row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distance {
    Fixed(i128),
    Calendar(Shift),
}

/// Months, or days of a zone, whose lengths differ. So the frame of a row may end before that of the row before it: a month before
/// 28 March at 23:00 is 28 February at 23:00, and a month before 29 March at 0:00 is 28 February at 0:00.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shift {
    pub(super) months: i32,
    pub(super) days: i32,
    /// Whether it leads to earlier times.
    pub(super) is_back: bool,
    /// Whether it leads to rows before the present one.
    pub(super) precedes: bool,
    /// What is added to the key then.
    pub(super) rest: i128,
    /// By how much the end of a frame can be before that of an earlier row, at most.
    pub(super) slack: i128,
}

type Step = fn(i64, IntervalMonthDayNano, Tz) -> Option<i64>;

impl Shift {
    /// The keys at this distance from some times.
    pub(super) fn limits(&self, times: &ArrayRef, by: SortOptions) -> Result<Vec<i128>> {
        let DataType::Timestamp(unit, zone) = times.data_type() else {
            return internal_err!("a frame of months over {}", times.data_type());
        };
        let zone: Tz = zone.as_deref().unwrap_or("+00:00").parse()?;
        let hour = i64::try_from(HOUR_NANOS / unit_nanos(*unit)).unwrap_or_default();
        let (step, interval) = (self.step(*unit), IntervalMonthDayNano::new(self.months, self.days, 0));
        let reached = |time: i64| {
            // The clocks of a zone leave out an hour or repeat it: then what is reached from an hour before decides.
            step(time, interval, zone).or_else(|| step(time.checked_sub(hour)?, interval, zone)?.checked_add(hour))
        };
        let (sign, null) = direction(by);
        // Beyond the times that there are.
        let nowhere = if self.precedes { 1 - NULL_ORDER } else { NULL_ORDER - 1 };
        let times = cast(times, &DataType::Int64)?;
        let limit = |time: Option<i64>| match time {
            None => null,
            Some(time) => reached(time).map_or(nowhere, |time| sign * i128::from(time) + self.rest),
        };
        Ok(times.as_primitive::<Int64Type>().iter().map(limit).collect())
    }

    fn step(&self, unit: TimeUnit) -> Step {
        match (unit, self.is_back) {
            (TimeUnit::Second, false) => TimestampSecondType::add_month_day_nano,
            (TimeUnit::Second, true) => TimestampSecondType::subtract_month_day_nano,
            (TimeUnit::Millisecond, false) => TimestampMillisecondType::add_month_day_nano,
            (TimeUnit::Millisecond, true) => TimestampMillisecondType::subtract_month_day_nano,
            (TimeUnit::Microsecond, false) => TimestampMicrosecondType::add_month_day_nano,
            (TimeUnit::Microsecond, true) => TimestampMicrosecondType::subtract_month_day_nano,
            (TimeUnit::Nanosecond, false) => TimestampNanosecondType::add_month_day_nano,
            (TimeUnit::Nanosecond, true) => TimestampNanosecondType::subtract_month_day_nano,
        }
    }
}

/// The sign of keys, and the key of null.
fn direction(by: SortOptions) -> (i128, i128) {
    (if by.descending { -1 } else { 1 }, if by.nulls_first { -NULL_ORDER } else { NULL_ORDER })
}

/// What rows are ordered by, as numbers or times.
pub(super) fn ordered(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Date32 | DataType::Date64 => Ok(cast(values, &DataType::Timestamp(DATE_UNIT, None))?),
        _ => Ok(Arc::clone(values)),
    }
}

/// Numbers or times as keys, which rise from row to row.
pub(super) fn keys(values: &ArrayRef, by: SortOptions) -> Result<Vec<i128>> {
    let (sign, null) = direction(by);
    let values = cast(values, &DataType::Int64)?;
    let keys = values.as_primitive::<Int64Type>().iter();
    Ok(keys.map(|value| value.map_or(null, |value| sign * i128::from(value))).collect())
}

/// The key at a distance; those of nulls are at none.
pub(super) fn beyond(key: i128, distance: i128) -> i128 {
    if key == NULL_ORDER || key == -NULL_ORDER { key } else { key.saturating_add(distance) }
}
