//! Dates from their parts, and the parts of dates: `$dateFromParts` and `$dateToParts`.

use super::units::{days_between, first_of_month, outside};
use super::{Zone, date, is_left_out, is_null, midnight, millis_of, whole, zone_of};
use crate::expression::{ExpressionError, Result, Value, is_nothing, null, type_of};
use bson::raw::{RawBson, RawDocumentBuf, cstr};
use chrono::{Datelike, NaiveDate, TimeDelta, Timelike};
use std::ops::RangeInclusive;

/// Parts other than years, seconds and milliseconds.
const PARTS: RangeInclusive<i64> = -32_768..=32_767;
const YEARS: RangeInclusive<i64> = 1..=9999;
const DAY_MS: i128 = 86_400_000;

/// `$dateToParts`.
pub(in crate::expression) fn to_parts(_: &'static str, values: &[Value]) -> Result<Value> {
    let [given, zone, iso] = values else { return null() };
    if is_null(zone) {
        return null();
    }
    let zone = zone_of(zone)?;
    let is_iso = match iso {
        Some(RawBson::Undefined) => false,
        None | Some(RawBson::Null) => return null(),
        Some(RawBson::Boolean(is_iso)) => *is_iso,
        other => {
            return Err(ExpressionError::new(
                40521,
                format!("iso8601 must evaluate to a bool, found {}", type_of(other)),
            ));
        }
    };
    if is_nothing(given) {
        return null();
    }
    let (local, _) = zone.local(millis_of(given, 16006)?)?;
    let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let (day, mut parts) = (local.date(), RawDocumentBuf::new());
    if is_iso {
        parts.append(cstr!("isoWeekYear"), day.iso_week().year());
        parts.append(cstr!("isoWeek"), number(day.iso_week().week()));
        parts.append(cstr!("isoDayOfWeek"), number(day.weekday().number_from_monday()));
    } else {
        parts.append(cstr!("year"), day.year());
        parts.append(cstr!("month"), number(day.month()));
        parts.append(cstr!("day"), number(day.day()));
    }
    parts.append(cstr!("hour"), number(local.hour()));
    parts.append(cstr!("minute"), number(local.minute()));
    parts.append(cstr!("second"), number(local.second()));
    parts.append(cstr!("millisecond"), number(local.and_utc().timestamp_subsec_millis()));
    Ok(Some(RawBson::Document(parts)))
}

/// A part of a date: `default` if it is left out, nothing if it is null.
fn part(name: &str, value: &Value, default: i64, range: Option<&RangeInclusive<i64>>) -> Result<Option<i64>> {
    if is_left_out(value) {
        return Ok(Some(default));
    }
    if is_null(value) {
        return Ok(None);
    }
    let n = whole(value).ok_or_else(|| {
        ExpressionError::new(40515, format!("'{name}' must evaluate to an integer, found {}", type_of(value)))
    })?;
    match range {
        Some(range) if !range.contains(&n) => {
            let (least, most) = (range.start(), range.end());
            let what =
                format!("'{name}' must evaluate to a value in the range [{least}, {most}]; value {n} is not in range");
            Err(ExpressionError::new(31034, what))
        }
        _ => Ok(Some(n)),
    }
}

fn check_year(name: &str, code: i32, year: i64) -> Result<()> {
    if YEARS.contains(&year) {
        return Ok(());
    }
    let what = format!("'{name}' must evaluate to an integer in the range 1 to 9999, found {year}");
    Err(ExpressionError::new(code, what))
}

fn overflow() -> ExpressionError {
    ExpressionError::new(159, "the date of $dateFromParts is outside of 64 bits")
}

/// The day of a week of ISO 8601. Weeks and days may be any numbers: they carry.
pub(super) fn iso_day(year: i64, week: i64, day: i64) -> Option<NaiveDate> {
    let first = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, 1, 1)?;
    let weekday = i64::from(first.weekday().num_days_from_sunday());
    let monday = if weekday > 4 { 7 - weekday } else { -weekday };
    first.checked_add_signed(TimeDelta::try_days(monday + (week - 1) * 7 + day)?)
}

/// The day of `$dateFromParts`, from its year, month and day, or from those of ISO 8601; nothing if one is null.
fn day_of(natural: [&Value; 3], iso: [&Value; 3]) -> Result<Option<NaiveDate>> {
    let is_iso = is_left_out(natural[0]);
    let [year, month, day] = if is_iso { iso } else { natural };
    let [year_name, month_name, day_name] =
        if is_iso { ["isoWeekYear", "isoWeek", "isoDayOfWeek"] } else { ["year", "month", "day"] };
    // One of the years is given: what is left out here is undefined in a document.
    if is_left_out(year) {
        return Ok(None);
    }
    let Some(year) = part(year_name, year, 1970, None)? else { return Ok(None) };
    let Some(month) = part(month_name, month, 1, Some(&PARTS))? else { return Ok(None) };
    let Some(day) = part(day_name, day, 1, Some(&PARTS))? else { return Ok(None) };
    check_year(year_name, if is_iso { 31095 } else { 40523 }, year)?;
    let found = match is_iso {
        true => iso_day(year, month, day),
        false => first_of_month(year * 12 + month - 1)
            .zip(TimeDelta::try_days(day - 1))
            .and_then(|(first, days)| first.checked_add_signed(days)),
    };
    found.map(Some).ok_or_else(outside)
}

/// `$dateFromParts`. Parts that are out of range carry into the greater ones.
pub(in crate::expression) fn of_parts(_: &'static str, values: &[Value]) -> Result<Value> {
    let [hour, minute, second, millisecond, zone, year, month, day, iso_year, iso_week, iso_day] = values else {
        return null();
    };
    let mut time: i128 = 0;
    for (name, value, unit, range) in [
        ("hour", hour, 3_600_000, Some(&PARTS)),
        ("minute", minute, 60_000, Some(&PARTS)),
        ("second", second, 1000, None),
        ("millisecond", millisecond, 1, None),
    ] {
        let Some(n) = part(name, value, 0, range)? else { return null() };
        time += i128::from(n) * unit;
    }
    if is_null(zone) {
        return null();
    }
    let zone = zone_of(zone)?;
    let Some(day) = day_of([year, month, day], [iso_year, iso_week, iso_day])? else { return null() };
    let local = i128::from(days_between(NaiveDate::default(), day)) * DAY_MS + time;
    let local = i64::try_from(local).map_err(|_| overflow())?;
    let millis = match zone {
        zone if zone.is_utc() => local,
        Zone::Fixed(seconds) => local.checked_sub(i64::from(seconds) * 1000).ok_or_else(overflow)?,
        zone @ Zone::Named(_) => {
            let after = TimeDelta::try_milliseconds(local).ok_or_else(outside)?;
            let local = midnight(NaiveDate::default()).checked_add_signed(after);
            local.and_then(|local| zone.instant(local)).ok_or_else(outside)?
        }
    };
    Ok(date(millis))
}

#[cfg(test)]
mod tests;
