//! Dates in texts, in the forms of ISO 8601 that MongoDB reads.
//!
//! A date is `2024-01-31`, `2024/01/31`, `20240131`, `24-1-31`, `2024-01` for the first of a month, or a day of a week: `2024-W05-3`,
//! `2024W053`, `2024-W05` for its Monday. A time may follow after `T` or spaces: `10:00`, `10:00:00`, `10:00:00.123`, and after `T` also
//! `10`, `1000` and `100000`. Then `Z`, `UTC`, `GMT`, or a distance from UTC such as `+1`, `+0100`, `+1:00` or `GMT+1`.

use super::parts::iso_day;
use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

/// Whole hours of a distance from UTC at most, as in MongoDB.
const HOURS_EAST_MAX: u32 = 24;

/// What a text says of an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    /// The calendar and clock.
    pub(super) local: NaiveDateTime,
    /// Their distance from UTC, if the text says it.
    pub(super) minutes_east: Option<i64>,
}

impl Written {
    /// The instant, if the calendar and clock are so far east of UTC unless the text says otherwise.
    pub(super) fn millis(self, minutes_east: i64) -> i64 {
        self.local.and_utc().timestamp_millis() - self.minutes_east.unwrap_or(minutes_east) * 60_000
    }
}

/// The instant that a text names, in milliseconds since 1970; in UTC unless it says otherwise.
pub(crate) fn millis_of_text(text: &str) -> Option<i64> {
    written(text).map(|written| written.millis(0))
}

pub(super) fn written(text: &str) -> Option<Written> {
    let (day, rest) = day_of(text.trim_matches(|c: char| c.is_ascii_whitespace()))?;
    let (time, minutes_east) = time_of(rest)?;
    Some(Written { local: day.and_time(time), minutes_east })
}

/// The day that a text begins with, and what follows it.
fn day_of(text: &str) -> Option<(NaiveDate, &str)> {
    let (whole, rest) = digits(text, 8);
    if whole.len() == 8 {
        return Some((calendar_day(&whole[..4], &whole[4..6], &whole[6..])?, rest));
    }
    let (year, rest) = digits(text, 4);
    let is_whole_year = year.len() == 4;
    if let Some(week) = rest.strip_prefix("-W").or_else(|| rest.strip_prefix('W')) {
        return if is_whole_year { day_of_week(year, week) } else { None };
    }
    let separator = if rest.starts_with('/') { '/' } else { '-' };
    let (month, rest) = digits(rest.strip_prefix(separator)?, 2);
    match rest.strip_prefix(separator) {
        Some(rest) if is_whole_year || separator == '-' => {
            let (day, rest) = digits(rest, 2);
            Some((calendar_day(year, month, day)?, rest))
        }
        None if is_whole_year && separator == '-' => Some((calendar_day(year, month, "1")?, rest)),
        _ => None,
    }
}

fn calendar_day(year: &str, month: &str, day: &str) -> Option<NaiveDate> {
    NaiveDate::from_ymd_opt(year_of(year)?, number(month, 2)?, number(day, 2)?)
}

/// A year. One below 100 that has fewer than four digits is in the years 1970 to 2069, as in MongoDB.
fn year_of(digits: &str) -> Option<i32> {
    let year = i32::try_from(number(digits, 4)?).ok()?;
    Some(match year {
        _ if digits.len() == 4 => year,
        0..70 => year + 2000,
        70..100 => year + 1900,
        _ => year,
    })
}

/// The day of a week of ISO 8601 (`05`, `05-3` or `053`), and what follows it. As in MongoDB, day 0 is the Sunday before the week, and
/// week 53 of a year that has 52 is the first of the next year.
fn day_of_week<'t>(year: &str, text: &'t str) -> Option<(NaiveDate, &'t str)> {
    let (week, rest) = digits(text, 2);
    let week = number(week, 2).filter(|number| week.len() == 2 && (1..=53).contains(number))?;
    let (day, after) = digits(rest.strip_prefix('-').unwrap_or(rest), 1);
    let (day, rest) = if day.is_empty() { (1, rest) } else { (number(day, 1)?, after) };
    if day > 7 {
        return None;
    }
    Some((iso_day(year_of(year)?.into(), week.into(), day.into())?, rest))
}

/// The time of the day that follows a date, and its minutes east of UTC if these are given.
fn time_of(rest: &str) -> Option<(NaiveTime, Option<i64>)> {
    let trimmed = rest.trim_start_matches([' ', '\t']);
    let marked = trimmed.strip_prefix(['T', 't']).filter(|text| begins_with_digit(text));
    let (time, zone) = match marked {
        Some(text) => clock_of(text, true)?,
        None if begins_with_digit(trimmed) && trimmed.len() < rest.len() => clock_of(trimmed, false)?,
        None => (NaiveTime::MIN, trimmed),
    };
    let zone = zone.trim_start();
    Some((time, if zone.is_empty() { None } else { Some(minutes_east(zone)?) }))
}

fn begins_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// The time that a text begins with, and what follows it. Only after a `T` may it be without colons.
fn clock_of(text: &str, is_marked: bool) -> Option<(NaiveTime, &str)> {
    let end = text.find(|c: char| !matches!(c, '0'..='9' | ':' | '.')).unwrap_or(text.len());
    let (clock, rest) = text.split_at(end);
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (clock, None),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let (hour, minute, second) = match (parts.as_slice(), fraction) {
        ([hour, minute, second], _) => (*hour, *minute, *second),
        ([hour, minute], None) => (*hour, *minute, "0"),
        ([whole], None) if is_marked && whole.len() == 6 => (&whole[..2], &whole[2..4], &whole[4..]),
        ([whole], None) if is_marked && whole.len() == 4 => (&whole[..2], &whole[2..], "0"),
        ([hour], None) if is_marked => (*hour, "0", "0"),
        _ => return None,
    };
    let millis = fraction.map_or(Some(0), millis_of_fraction)?;
    let time = NaiveTime::from_hms_milli_opt(number(hour, 2)?, number(minute, 2)?, number(second, 2)?, millis)?;
    Some((time, rest))
}

/// The milliseconds of the digits after a point; further ones are cut off.
fn millis_of_fraction(fraction: &str) -> Option<u32> {
    let is_number = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    let millis: String = fraction.chars().chain("00".chars()).take(3).collect();
    is_number.then(|| millis.parse().ok()).flatten()
}

/// Whether the name of a time zone in a text is that of UTC.
pub(super) fn is_utc(zone: &str) -> bool {
    ["Z", "UTC", "GMT"].iter().any(|utc| zone.eq_ignore_ascii_case(utc))
}

fn minutes_east(zone: &str) -> Option<i64> {
    if is_utc(zone) {
        return Some(0);
    }
    let zone = zone.strip_prefix("GMT").unwrap_or(zone);
    let digits = zone.strip_prefix(['+', '-'])?;
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() > 2 => digits.split_at_checked(digits.len() - 2)?,
        None => (digits, "0"),
    };
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    let distance = i64::from(hours * 60 + minutes);
    let is_distance = hours <= HOURS_EAST_MAX && minutes < 60;
    is_distance.then_some(if zone.starts_with('-') { -distance } else { distance })
}

/// A number of at most this many digits.
fn number(text: &str, digits: usize) -> Option<u32> {
    let is_number = (1..=digits).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// The digits that a text begins with, at most this many, and what follows them.
fn digits(text: &str, most: usize) -> (&str, &str) {
    text.split_at(text.bytes().take(most).take_while(u8::is_ascii_digit).count())
}
