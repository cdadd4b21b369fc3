//! Units of time.

use super::super::{ExpressionError, Result, Value, type_of};
use super::{Zone, midnight, reference};
use bson::raw::RawBson;
use chrono::{Datelike, Days, Months, NaiveDate, Weekday};

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
}

impl Unit {
    pub(super) fn of(name: &str, value: &Value, no_text: i32, unknown: i32) -> Result<Unit> {
        let Some(RawBson::String(text)) = value else {
            let message = format!("{name} requires 'unit' to be a string, but got {}", type_of(value));
            return Err(ExpressionError::new(no_text, message));
        };
        Ok(match text.as_str() {
            "year" => Unit::Year,
            "quarter" => Unit::Quarter,
            "month" => Unit::Month,
            "week" => Unit::Week,
            "day" => Unit::Day,
            "hour" => Unit::Hour,
            "minute" => Unit::Minute,
            "second" => Unit::Second,
            "millisecond" => Unit::Millisecond,
            other => {
                return Err(ExpressionError::new(
                    unknown,
                    format!("{name} parameter 'unit' value cannot be recognized as a time unit: {other}"),
                ));
            }
        })
    }

    /// Its length, if that is fixed.
    pub(super) fn millis(self) -> Option<i64> {
        match self {
            Unit::Hour => Some(3_600_000),
            Unit::Minute => Some(60_000),
            Unit::Second => Some(1000),
            Unit::Millisecond => Some(1),
            _ => None,
        }
    }

    /// Whether a date can be moved by this number of them: no two dates of 64 bits are farther apart.
    pub(super) fn is_amount(self, amount: i64) -> bool {
        const DAYS: u64 = 2 * (i64::MAX.unsigned_abs() / 86_400_000);
        const YEARS: u64 = DAYS / 365 + 1;
        let most = match self {
            Unit::Year => YEARS,
            Unit::Quarter => YEARS * 4,
            Unit::Month => YEARS * 12,
            Unit::Week => DAYS / 7,
            Unit::Day => DAYS,
            Unit::Hour => DAYS * 24,
            Unit::Minute => DAYS * 24 * 60,
            Unit::Second => DAYS * 24 * 3600,
            Unit::Millisecond => return true,
        };
        amount.unsigned_abs() <= most
    }

    /// Its months, if it is made of them.
    fn months(self) -> Option<i64> {
        match self {
            Unit::Year => Some(12),
            Unit::Quarter => Some(3),
            Unit::Month => Some(1),
            _ => None,
        }
    }
}

/// The first day of a week, which only weeks read: Sunday if it is left out, nothing if it is null.
pub(super) fn start_of_week(name: &str, unit: Unit, value: &Value) -> Result<Option<Weekday>> {
    if unit != Unit::Week {
        return Ok(Some(Weekday::Sun));
    }
    let text = match value {
        Some(RawBson::Undefined) => return Ok(Some(Weekday::Sun)),
        None | Some(RawBson::Null) => return Ok(None),
        Some(RawBson::String(text)) => text.to_ascii_lowercase(),
        other => {
            let message = format!("{name} requires 'startOfWeek' to be a string, but got {}", type_of(other));
            return Err(ExpressionError::new(5_439_015, message));
        }
    };
    let days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let at = days.iter().position(|day| *day == text || day[..3] == *text);
    let at = at.and_then(|at| u8::try_from(at).ok()).and_then(|at| Weekday::try_from(at).ok());
    at.map(Some).ok_or_else(|| {
        ExpressionError::new(
            5_439_016,
            format!("{name} parameter 'startOfWeek' value cannot be recognized as a day of a week: {text}"),
        )
    })
}

/// Months since the year 0.
fn month_number(day: NaiveDate) -> i64 {
    i64::from(day.year()) * 12 + i64::from(day.month0())
}

pub(super) fn first_of_month(number: i64) -> Option<NaiveDate> {
    let year = i32::try_from(number.div_euclid(12)).ok()?;
    NaiveDate::from_ymd_opt(year, u32::try_from(number.rem_euclid(12)).ok()? + 1, 1)
}

pub(super) fn outside() -> ExpressionError {
    ExpressionError::new(15, "the date is outside of the calendar")
}

/// The day from which weeks are counted: the first that begins a week in the year 2000.
fn first_week(start: Weekday) -> NaiveDate {
    let ahead = start.days_since(reference().weekday());
    reference().checked_add_days(Days::new(ahead.into())).unwrap_or_else(reference)
}

pub(super) fn days_between(from: NaiveDate, to: NaiveDate) -> i64 {
    to.signed_duration_since(from).num_days()
}

fn days_after(day: NaiveDate, days: i64) -> Option<NaiveDate> {
    let distance = Days::new(days.unsigned_abs());
    if days < 0 { day.checked_sub_days(distance) } else { day.checked_add_days(distance) }
}

/// The beginning of the bin that holds an instant.
pub(super) fn truncated(zone: Zone, millis: i64, unit: Unit, bins: i64, start: Weekday) -> Result<i64> {
    if let Some(length) = unit.millis() {
        let origin = zone.instant(midnight(reference())).ok_or_else(outside)?;
        let width = length.checked_mul(bins).ok_or_else(outside)?;
        let after = millis.checked_sub(origin).ok_or_else(outside)?.div_euclid(width);
        return after.checked_mul(width).and_then(|after| after.checked_add(origin)).ok_or_else(outside);
    }
    let day = zone.local(millis)?.0.date();
    let first = match unit.months() {
        Some(months) => {
            let width = months.checked_mul(bins).ok_or_else(outside)?;
            let origin = month_number(reference());
            first_of_month((month_number(day) - origin).div_euclid(width) * width + origin)
        }
        None => {
            let (origin, days) = if unit == Unit::Week { (first_week(start), 7) } else { (reference(), 1) };
            let width = bins.checked_mul(days).ok_or_else(outside)?;
            days_after(origin, days_between(origin, day).div_euclid(width) * width)
        }
    };
    zone.instant(midnight(first.ok_or_else(outside)?)).ok_or_else(outside)
}

/// Adds `amount` units to an instant; `None` if the result is outside the calendar.
pub(super) fn added(zone: Zone, millis: i64, unit: Unit, amount: i64) -> Result<Option<i64>> {
    if let Some(length) = unit.millis() {
        return Ok(amount.checked_mul(length).and_then(|distance| millis.checked_add(distance)));
    }
    let local = zone.local(millis)?.0;
    let moved = match unit.months() {
        Some(months) => {
            let Some(amount) = amount.checked_mul(months) else { return Ok(None) };
            let Ok(distance) = u32::try_from(amount.unsigned_abs()).map(Months::new) else { return Ok(None) };
            if amount < 0 { local.checked_sub_months(distance) } else { local.checked_add_months(distance) }
        }
        None => {
            let days = amount.checked_mul(if unit == Unit::Week { 7 } else { 1 });
            days.and_then(|days| Some(days_after(local.date(), days)?.and_time(local.time())))
        }
    };
    Ok(moved.and_then(|moved| zone.instant(moved)))
}

/// How many boundaries of a unit lie between two instants.
pub(super) fn between(zone: Zone, from: i64, to: i64, unit: Unit, start: Weekday) -> Result<i64> {
    if unit == Unit::Millisecond {
        return to.checked_sub(from).ok_or_else(outside);
    }
    let (a, b) = (zone.local(from)?, zone.local(to)?);
    let (first, last) = (a.0.date(), b.0.date());
    Ok(match (unit.millis(), unit.months()) {
        (Some(length), _) => {
            // Boundaries of the zone's clock, and lengths of time between them.
            let floor = |millis: i64, east: i32| (millis + i64::from(east) * 1000).div_euclid(length);
            let shift = i64::from(b.1 - a.1) * 1000 / length;
            floor(to, b.1) - floor(from, a.1) - shift
        }
        (_, Some(months)) => month_number(last).div_euclid(months) - month_number(first).div_euclid(months),
        _ if unit == Unit::Week => {
            let origin = first_week(start);
            days_between(origin, last).div_euclid(7) - days_between(origin, first).div_euclid(7)
        }
        _ => days_between(first, last),
    })
}
