//! `$dateFromString`: dates in texts, with and without a format.

use super::parts::iso_day;
use super::texts::{Written, is_utc, written};
use super::{Zone, format_of, is_left_out, is_null, zone_of};
use crate::expression::{ExpressionError, Result, Value, is_nothing, null, type_of};
use bson::raw::RawBson;
use chrono::{Datelike, NaiveDate, NaiveTime};

/// Minutes of a distance from UTC at most, so that instants stay those of 64 bits.
const MINUTES_EAST_MAX: i64 = 1 << 32;

fn failed(what: String) -> ExpressionError {
    ExpressionError::new(241, what)
}

/// `$dateFromString`, without what stands for a text that is missing or no date. A wrong format or time zone is an error even if
/// there is no text.
pub(in crate::expression) fn of_text(name: &'static str, values: &[Value]) -> Result<Value> {
    let [given, format, zone] = values else { return null() };
    let known = format_of(name, 40684, format, "YmdHMSLuVGzZ")?;
    let has_zone = !is_left_out(zone);
    let zone = if is_null(zone) { None } else { Some(zone_of(zone)?) };
    if is_nothing(given) {
        return null();
    }
    let Some(RawBson::String(text)) = given else {
        return Err(failed(format!("{name} requires that 'dateString' be a string, found: {}", type_of(given))));
    };
    let Some(zone) = zone else { return null() };
    let found = match known {
        Some(format) => read(format, text),
        None if is_null(format) => return null(),
        None => written(text),
    };
    let shown: String = text.chars().take(80).collect();
    let found = found.ok_or_else(|| failed(format!("Error parsing date string '{shown}'")))?;
    // MongoDB takes no name beside it, not even that of UTC, but a distance of zero.
    if found.minutes_east.is_some() && has_zone && !matches!(zone, Zone::Fixed(0)) {
        let what = "you cannot pass in a date/time string with time zone information together with a timezone argument";
        return Err(failed(what.to_owned()));
    }
    let millis = match zone {
        zone if found.minutes_east.is_some() || zone.is_utc() => found.millis(0),
        zone => zone.instant(found.local).ok_or_else(super::units::outside)?,
    };
    Ok(super::date(millis))
}

/// What a text says of the parts of a date.
#[derive(Debug, Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    hour: Option<i64>,
    minute: Option<i64>,
    second: Option<i64>,
    millisecond: Option<i64>,
    minutes_east: Option<i64>,
}

/// A text in a format that was checked.
fn read(format: &str, text: &str) -> Option<Written> {
    let (mut parts, mut rest) = (Parts::default(), text.as_bytes());
    let mut format = format.bytes();
    while let Some(c) = format.next() {
        let conversion = if c == b'%' { format.next()? } else { c };
        if c != b'%' || conversion == b'%' {
            let (first, after) = rest.split_first()?;
            if *first != c {
                return None;
            }
            rest = after;
            continue;
        }
        match conversion {
            b'Y' => parts.year = Some(number(&mut rest, 1, 4)?),
            b'm' => parts.month = Some(number(&mut rest, 1, 2)?),
            b'd' => parts.day = Some(number(&mut rest, 1, 2)?),
            b'G' => parts.iso_year = Some(next_number(&mut rest, 4)?),
            b'V' => parts.iso_week = Some(next_number(&mut rest, 2)?),
            b'u' => parts.iso_day = Some(next_number(&mut rest, 1)?),
            b'H' => parts.hour = Some(number(&mut rest, 1, 2)?),
            b'M' => parts.minute = Some(number(&mut rest, 2, 2)?),
            b'S' => parts.second = Some(number(&mut rest, 2, 2)?),
            b'L' => {
                let before = rest.len();
                let digits = number(&mut rest, 1, 3)?;
                parts.millisecond = Some(digits * [100_i64, 10, 1].get(before - rest.len() - 1)?);
            }
            b'z' => parts.minutes_east = Some(distance(&mut rest)?),
            _ => parts.minutes_east = Some(distance_in_minutes(&mut rest)?),
        }
    }
    if rest.is_empty() { parts.written() } else { None }
}

impl Parts {
    /// The calendar and clock. The date must be whole, by its month or by its week of ISO 8601; what is missing of the time is 0.
    fn written(&self) -> Option<Written> {
        let day = match (self.iso_year, [self.iso_week, self.iso_day], [self.year, self.month, self.day]) {
            (None, [None, None], [Some(year), Some(month), Some(day)]) => {
                let [month, day] = [u32::try_from(month).ok()?, u32::try_from(day).ok()?];
                NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?
            }
            (Some(year), [week, day], [None, None, None]) => {
                let (week, day) = (week.unwrap_or(1), day.unwrap_or(1));
                if !(1..=53).contains(&week) || !(1..=7).contains(&day) {
                    return None;
                }
                iso_day(year, week, day).filter(|day| day.year() >= 0)?
            }
            _ => return None,
        };
        let part = |part: Option<i64>| u32::try_from(part.unwrap_or(0)).ok();
        let (hour, minute) = (part(self.hour)?, part(self.minute)?);
        let time = NaiveTime::from_hms_milli_opt(hour, minute, part(self.second)?, part(self.millisecond)?)?;
        Some(Written { local: day.and_time(time), minutes_east: self.minutes_east })
    }
}

/// Takes the bytes for which a condition holds.
fn taken<'t>(rest: &mut &'t [u8], holds: impl Fn(u8) -> bool) -> &'t str {
    let length = rest.iter().position(|byte| !holds(*byte)).unwrap_or(rest.len());
    let (taken, after) = rest.split_at(length);
    *rest = after;
    std::str::from_utf8(taken).unwrap_or_default()
}

/// Takes a number of `least` to `most` digits.
fn number(rest: &mut &[u8], least: usize, most: usize) -> Option<i64> {
    let length = rest.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, after) = rest.split_at(length);
    *rest = after;
    if length < least { None } else { std::str::from_utf8(digits).ok()?.parse().ok() }
}

/// Takes a number of at most this many digits, and what is before it: MongoDB's parts of weeks are found anywhere.
fn next_number(rest: &mut &[u8], most: usize) -> Option<i64> {
    taken(rest, |byte| !byte.is_ascii_digit());
    number(rest, 1, most)
}

/// Takes a distance from UTC such as `+01`, `-0130` or `+1:30`, or a name of UTC. In minutes.
fn distance(rest: &mut &[u8]) -> Option<i64> {
    taken(rest, |byte| matches!(byte, b' ' | b'\t' | b'('));
    let name = taken(rest, |byte| byte.is_ascii_alphabetic());
    let minutes = match sign(rest) {
        Some(sign) if matches!(name, "" | "GMT") => {
            sign * clock(taken(rest, |byte| byte.is_ascii_digit() || byte == b':'))?
        }
        None if is_utc(name) => 0,
        _ => return None,
    };
    taken(rest, |byte| byte == b')');
    Some(minutes)
}

/// Takes a sign: 1 or -1.
fn sign(rest: &mut &[u8]) -> Option<i64> {
    let (first, after) = rest.split_first()?;
    let sign = match *first {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    *rest = after;
    Some(sign)
}

/// The minutes of hours, or of hours and minutes.
fn clock(text: &str) -> Option<i64> {
    let (hours, minutes) = match text.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if text.len() > 2 => text.split_at(text.len() - 2),
        None => (text, "0"),
    };
    let number = |text: &str| if text.len() <= 2 { text.parse::<i64>().ok() } else { None };
    Some(number(hours)? * 60 + number(minutes)?)
}

/// Takes a distance from UTC in minutes, such as `+90`.
fn distance_in_minutes(rest: &mut &[u8]) -> Option<i64> {
    let sign = sign(rest)?;
    let digits = taken(rest, |byte| byte.is_ascii_digit());
    let minutes = if digits.is_empty() { 0 } else { digits.parse::<i64>().ok().filter(|n| *n <= MINUTES_EAST_MAX)? };
    Some(sign * minutes)
}

#[cfg(test)]
mod tests;
