//! Dates in texts, in the forms of ISO 8601 that MongoDB reads.
//!
//! A date is `2024-01-31`, `2024/01/31`, `20240131`, or `2024-01` for the first of a month. A time may follow after `T` or spaces:
//! `10:00`, `10:00:00`, `10:00:00.123`, and after `T` also `1000` and `100000`. Then `Z`, `UTC`, `GMT`, or a distance from UTC such as
//! `+01`, `+0100` or `+01:00`.

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
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '-' | '/')).unwrap_or(text.len());
    let (date, rest) = text.split_at(end);
    let day = day_of(date)?;
    let (time, minutes_east) = time_of(rest)?;
    Some(Written { local: day.and_time(time), minutes_east })
}

fn day_of(date: &str) -> Option<NaiveDate> {
    let separator = if date.contains('/') { '/' } else { '-' };
    let parts: Vec<&str> = date.split(separator).collect();
    let (year, month, day) = match parts.as_slice() {
        [year, month, day] if year.len() == 4 => (*year, *month, *day),
        [year, month] if year.len() == 4 && separator == '-' => (*year, *month, "1"),
        [whole] if whole.len() == 8 => (&whole[..4], &whole[4..6], &whole[6..]),
        _ => return None,
    };
    NaiveDate::from_ymd_opt(i32::try_from(number(year, 4)?).ok()?, number(month, 2)?, number(day, 2)?)
}

/// The time of the day that follows a date, and its minutes east of UTC if these are given.
fn time_of(rest: &str) -> Option<(NaiveTime, Option<i64>)> {
    if rest.is_empty() {
        return Some((NaiveTime::MIN, None));
    }
    let is_marked = rest.starts_with(['T', 't']);
    let time = rest.strip_prefix(['T', 't', ' ', '\t'])?.trim_start();
    let end = time.find(|c: char| !matches!(c, '0'..='9' | ':' | '.')).unwrap_or(time.len());
    let (clock, zone) = time.split_at(end);
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
        _ => return None,
    };
    let millis = fraction.map_or(Some(0), millis_of_fraction)?;
    let time = NaiveTime::from_hms_milli_opt(number(hour, 2)?, number(minute, 2)?, number(second, 2)?, millis)?;
    let zone = zone.trim_start();
    Some((time, if zone.is_empty() { None } else { Some(minutes_east(zone)?) }))
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
    let digits = zone.strip_prefix(['+', '-'])?;
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
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
