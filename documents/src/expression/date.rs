//! Dates: their parts, texts, and arithmetic in time zones.
//!
//! Units from the day on are those of the time zone's calendar; smaller ones are lengths of time.

mod formats;
mod parts;
mod texts;
mod units;
mod windows;

use super::{ExpressionError, Result, Value, is_nothing, null, type_of};
use bson::raw::RawBson;
use bson::{DateTime, Timestamp};
use chrono::{Datelike, NaiveDate, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc};
use units::Unit;

pub(super) use formats::of_text;
pub(super) use parts::{of_parts, to_parts};
pub(super) use texts::millis_of_text;
pub(crate) use windows::{date_width, gcd, is_date_operator, is_part_of_date};

/// A time zone: one by its name, or a fixed number of seconds east of UTC.
#[derive(Debug, Clone, Copy)]
enum Zone {
    Named(chrono_tz::Tz),
    Fixed(i32),
}

impl Zone {
    fn parse(text: &str) -> Result<Zone> {
        let unknown = || ExpressionError::new(40485, format!("unrecognized time zone identifier: \"{text}\""));
        if text.starts_with(['+', '-']) {
            return seconds_east(text).map(Zone::Fixed).ok_or_else(unknown);
        }
        text.parse().map(Zone::Named).map_err(|_| unknown())
    }

    const UTC: Zone = Zone::Named(chrono_tz::UTC);

    /// Whether it is UTC, by whichever of its names.
    fn is_utc(self) -> bool {
        match self {
            Zone::Fixed(seconds) => seconds == 0,
            Zone::Named(zone) => {
                let name = zone.name();
                let name = name.strip_prefix("Etc/").unwrap_or(name);
                matches!(name, "UTC" | "UCT" | "Universal" | "Zulu" | "Greenwich" | "GMT" | "GMT0" | "GMT+0" | "GMT-0")
            }
        }
    }

    /// The calendar and clock of an instant, and its seconds east of UTC.
    fn local(self, millis: i64) -> Result<(NaiveDateTime, i32)> {
        let out_of_range = || ExpressionError::new(15, format!("a date of {millis} ms is outside of the calendar"));
        let utc = chrono::DateTime::from_timestamp_millis(millis).ok_or_else(out_of_range)?.naive_utc();
        let east = match self {
            Zone::Named(zone) => zone.offset_from_utc_datetime(&utc).fix().local_minus_utc(),
            Zone::Fixed(seconds) => seconds,
        };
        let local = utc.checked_add_signed(TimeDelta::seconds(east.into())).ok_or_else(out_of_range)?;
        Ok((local, east))
    }

    /// The instant of a calendar and clock; of a gap, that after it. Nothing beyond the ends of the calendar.
    fn instant(self, local: NaiveDateTime) -> Option<i64> {
        let east = match self {
            Zone::Fixed(seconds) => seconds,
            Zone::Named(zone) => {
                let at = |local: NaiveDateTime| zone.from_local_datetime(&local).earliest();
                // Some places have left out a whole day.
                let before = |hours| at(local.checked_sub_signed(TimeDelta::hours(hours))?);
                at(local).or_else(|| before(3)).or_else(|| before(27))?.offset().fix().local_minus_utc()
            }
        };
        Some(local.and_utc().timestamp_millis() - i64::from(east) * 1000)
    }
}

/// The seconds of `+hh`, `+hhmm` or `+hh:mm`. MongoDB takes any two digits for the hours and the minutes.
fn seconds_east(text: &str) -> Option<i32> {
    let two = |tens: u8, ones: u8| {
        let are_digits = tens.is_ascii_digit() && ones.is_ascii_digit();
        are_digits.then(|| i32::from(tens - b'0') * 10 + i32::from(ones - b'0'))
    };
    let (sign, hours, minutes) = match *text.as_bytes() {
        [sign, a, b] => (sign, two(a, b)?, 0),
        [sign, a, b, c, d] | [sign, a, b, b':', c, d] => (sign, two(a, b)?, two(c, d)?),
        _ => return None,
    };
    let seconds = hours * 3600 + minutes * 60;
    Some(if sign == b'-' { -seconds } else { seconds })
}

/// The instant that a value is: a date, a timestamp or an ObjectId.
fn millis_of(value: &Value, code: i32) -> Result<i64> {
    match value {
        Some(RawBson::DateTime(date)) => Ok(date.timestamp_millis()),
        Some(RawBson::Timestamp(stamp)) => Ok(i64::from(stamp.time) * 1000),
        Some(RawBson::ObjectId(id)) => Ok(id.timestamp().timestamp_millis()),
        other => Err(ExpressionError::new(code, format!("can't convert from BSON type {} to Date", type_of(other)))),
    }
}

fn is_left_out(value: &Value) -> bool {
    matches!(value, Some(RawBson::Undefined))
}

/// Whether an argument that was given is missing or null.
fn is_null(value: &Value) -> bool {
    matches!(value, None | Some(RawBson::Null))
}

fn zone_of(value: &Value) -> Result<Zone> {
    match value {
        Some(RawBson::Undefined) => Ok(Zone::UTC),
        Some(RawBson::String(text)) => Zone::parse(text),
        other => {
            Err(ExpressionError::new(40517, format!("timezone must evaluate to a string, found {}", type_of(other))))
        }
    }
}

fn whole(value: &Value) -> Option<i64> {
    crate::whole_number(value.as_ref()?.as_raw_bson_ref())
}

fn date(millis: i64) -> Value {
    Some(RawBson::DateTime(DateTime::from_millis(millis)))
}

/// `$year` and its kind: of a date, and of a time zone if one is given.
pub(super) fn part(name: &'static str, values: &[Value]) -> Result<Value> {
    let [value, zone @ ..] = values else { return null() };
    let left_out = Some(RawBson::Undefined);
    let zone = zone.first().unwrap_or(&left_out);
    if is_nothing(value) {
        return null();
    }
    let millis = millis_of(value, 16006)?;
    if is_null(zone) {
        return null();
    }
    let (local, _) = zone_of(zone)?.local(millis)?;
    let day = local.date();
    let number = match name {
        "$year" => day.year(),
        "$month" => small(day.month()),
        "$dayOfMonth" => small(day.day()),
        "$dayOfYear" => small(day.ordinal()),
        "$dayOfWeek" => small(day.weekday().number_from_sunday()),
        "$isoDayOfWeek" => small(day.weekday().number_from_monday()),
        "$isoWeek" => small(day.iso_week().week()),
        "$isoWeekYear" => return Ok(Some(RawBson::Int64(day.iso_week().year().into()))),
        "$week" => week(day),
        "$hour" => small(local.hour()),
        "$minute" => small(local.minute()),
        "$second" => small(local.second()),
        _ => small(local.and_utc().timestamp_subsec_millis()),
    };
    Ok(Some(RawBson::Int32(number)))
}

fn small(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The week of the year, from Sunday on; days before the first Sunday are in week 0.
fn week(day: NaiveDate) -> i32 {
    small((day.ordinal() + 6 - day.weekday().num_days_from_sunday()) / 7)
}

/// A date as MongoDB writes it in texts, which have years of four digits.
pub(super) fn iso(date: DateTime) -> Result<String> {
    format_date("%Y-%m-%dT%H:%M:%S.%LZ", Zone::UTC, date.timestamp_millis())
}

/// A timestamp as MongoDB writes it in texts: without its year, and with its increment.
pub(super) fn stamp_text(stamp: Timestamp) -> String {
    let time = chrono::DateTime::from_timestamp(stamp.time.into(), 0).unwrap_or_default();
    format!("{}:{}", time.format("%b %e %H:%M:%S"), stamp.increment)
}

fn no_year_of_texts(what: impl std::fmt::Display) -> ExpressionError {
    let message =
        format!("Could not convert date to string: date component was outside the supported range of 0-9999: {what}");
    ExpressionError::new(18537, message)
}

/// A year as four digits.
fn four_digits(year: i32) -> Result<String> {
    match year {
        0..=9999 => Ok(format!("{year:04}")),
        _ => Err(no_year_of_texts(year)),
    }
}

/// A format, if one is given. It is refused if it is no text, and if it has a `%` before what is not one of the conversions that
/// are known.
fn format_of<'v>(operator: &str, code: i32, format: &'v Value, known: &str) -> Result<Option<&'v str>> {
    let format = match format {
        None | Some(RawBson::Null | RawBson::Undefined) => return Ok(None),
        Some(RawBson::String(format)) => format.as_str(),
        other => {
            let message = format!("{operator} requires that 'format' be a string, found: {}", type_of(other));
            return Err(ExpressionError::new(code, message));
        }
    };
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            continue;
        }
        match characters.next() {
            Some(conversion) if conversion == '%' || known.contains(conversion) => {}
            Some(other) => {
                let message = format!("Invalid format character '%{other}' in format string");
                return Err(ExpressionError::new(18536, message));
            }
            None => return Err(ExpressionError::new(18535, "Unmatched '%' at end of format string")),
        }
    }
    Ok(Some(format))
}

/// An instant in a format that was checked.
fn format_date(format: &str, zone: Zone, millis: i64) -> Result<String> {
    let (local, east) = zone.local(millis).map_err(|error| match format.contains("%Y") || format.contains("%G") {
        true => no_year_of_texts(format_args!("that of {millis} ms")),
        false => error,
    })?;
    let (day, mut text) = (local.date(), String::new());
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let Some(c) = characters.next() else { break };
        text.push_str(&match c {
            'Y' => four_digits(day.year())?,
            'm' => format!("{:02}", day.month()),
            'd' => format!("{:02}", day.day()),
            'H' => format!("{:02}", local.hour()),
            'M' => format!("{:02}", local.minute()),
            'S' => format!("{:02}", local.second()),
            'L' => format!("{:03}", local.and_utc().timestamp_subsec_millis()),
            'j' => format!("{:03}", day.ordinal()),
            'w' => day.weekday().number_from_sunday().to_string(),
            'u' => day.weekday().number_from_monday().to_string(),
            'U' => format!("{:02}", week(day)),
            'V' => format!("{:02}", day.iso_week().week()),
            'G' => four_digits(day.iso_week().year())?,
            'z' => {
                let (sign, minutes) = (if east < 0 { '-' } else { '+' }, east.abs() / 60);
                format!("{sign}{:02}{:02}", minutes / 60, minutes % 60)
            }
            'Z' => (east / 60).to_string(),
            other => other.to_string(),
        });
    }
    Ok(text)
}

/// `$dateToString`. A wrong format or time zone is an error even if there is no date.
pub(super) fn to_text(name: &'static str, values: &[Value]) -> Result<Value> {
    let [given, format, zone, on_null] = values else { return null() };
    let written = format_of(name, 18533, format, "YmdHMSLjwuUVGzZ")?;
    let zone = if is_null(zone) { None } else { Some(zone_of(zone)?) };
    if is_nothing(given) {
        return Ok(if is_left_out(on_null) { Some(RawBson::Null) } else { on_null.clone() });
    }
    let Some(zone) = zone else { return null() };
    let format = match written {
        Some(format) => format,
        None if is_null(format) => return null(),
        None if zone.is_utc() => "%Y-%m-%dT%H:%M:%S.%LZ",
        None => "%Y-%m-%dT%H:%M:%S.%L",
    };
    Ok(Some(RawBson::String(format_date(format, zone, millis_of(given, 16006)?)?)))
}

/// `$dateTrunc`.
pub(super) fn truncate(name: &'static str, values: &[Value]) -> Result<Value> {
    let [given, unit, bin_size, zone, start] = values else { return null() };
    if [given, unit, bin_size, zone].into_iter().any(is_null) {
        return null();
    }
    let unit = Unit::of(name, unit, 5_439_013, 5_439_014)?;
    let bins = match bin_size {
        Some(RawBson::Undefined) => 1,
        given => {
            let bins = whole(given).ok_or_else(|| {
                ExpressionError::new(5_439_017, "$dateTrunc requires 'binSize' to be a 64-bit integer")
            })?;
            if bins <= 0 {
                return Err(ExpressionError::new(
                    5_439_018,
                    format!("$dateTrunc requires 'binSize' to be greater than 0, but got value {bins}"),
                ));
            }
            bins
        }
    };
    let Some(start) = units::start_of_week(name, unit, start)? else { return null() };
    let zone = zone_of(zone)?;
    Ok(date(units::truncated(zone, millis_of(given, 5_439_012)?, unit, bins, start)?))
}

/// `$dateAdd` and `$dateSubtract`.
pub(super) fn add(name: &'static str, values: &[Value]) -> Result<Value> {
    let [given, unit, amount, zone] = values else { return null() };
    if [given, unit, amount, zone].into_iter().any(is_null) {
        return null();
    }
    let unit = Unit::of(name, unit, 5_166_404, 9)?;
    let millis = millis_of(given, 5_166_403)?;
    let amount = whole(amount)
        .ok_or_else(|| ExpressionError::new(5_166_405, format!("{name} expects integer amount of time units")))?;
    let wrong = |code| ExpressionError::new(code, format!("invalid {name} 'amount' parameter value: {amount}"));
    let amount = if name == "$dateSubtract" { amount.checked_neg().ok_or_else(|| wrong(6_045_000))? } else { amount };
    if !unit.is_amount(amount) {
        return Err(wrong(5_976_500));
    }
    let overflow = || ExpressionError::new(5_166_406, format!("{name} overflowed"));
    Ok(date(units::added(zone_of(zone)?, millis, unit, amount)?.ok_or_else(overflow)?))
}

/// `$dateDiff`: how many boundaries of a unit lie between two dates.
pub(super) fn difference(name: &'static str, values: &[Value]) -> Result<Value> {
    let [from, to, unit, zone, start] = values else { return null() };
    if [from, to, unit, zone].into_iter().any(is_null) {
        return null();
    }
    let unit = Unit::of(name, unit, 5_439_013, 5_439_014)?;
    let Some(start) = units::start_of_week(name, unit, start)? else { return null() };
    let (from, to) = (millis_of(from, 5_166_307)?, millis_of(to, 5_166_307)?);
    Ok(Some(RawBson::Int64(units::between(zone_of(zone)?, from, to, unit, start)?)))
}

/// A unit of time, in UTC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Distance(Unit);

impl Distance {
    pub(crate) fn named(name: &str) -> Option<Distance> {
        Unit::of("", &Some(RawBson::String(name.to_owned())), 0, 0).ok().map(Distance)
    }

    /// Adds a number of units to an instant.
    pub(crate) fn after(self, millis: i64, amount: i64) -> Result<i64> {
        let overflow = || ExpressionError::new(5_166_406, "a date overflowed");
        units::added(Zone::UTC, millis, self.0, amount)?.ok_or_else(overflow)
    }

    /// Its length in milliseconds, if it has one.
    pub(crate) fn millis(self) -> Option<i64> {
        match self.0 {
            Unit::Week => Some(604_800_000),
            Unit::Day => Some(86_400_000),
            unit => unit.millis(),
        }
    }
}

/// Midnight of a day.
fn midnight(day: NaiveDate) -> NaiveDateTime {
    day.and_time(chrono::NaiveTime::MIN)
}

/// The first instant of the year 2000, from which bins are counted.
fn reference() -> NaiveDate {
    NaiveDate::from_ymd_opt(2000, 1, 1).unwrap_or_else(|| Utc.timestamp_nanos(0).date_naive())
}

#[cfg(test)]
mod tests;
