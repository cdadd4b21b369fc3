//! Instants beyond the calendar of chrono, in the expanded form of ISO 8601: `+292278994-08-17T07:12:55.807Z`.

use super::NANOS_PER_SECOND;
use std::fmt;

const DAY_SECONDS: i128 = 86_400;
/// Days in 400 years of the Gregorian calendar.
const ERA_DAYS: i128 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i128 = 719_468;
/// More digits of a year would not fit into nanoseconds of 128 bits.
const YEAR_DIGITS_MAX: usize = 22;

/// Year, month and day of a day counted from 1970-01-01. Eras begin in March, so that the leap day is a year's last.
fn date_of(days: i128) -> (i128, i128, i128) {
    let shifted = days + EPOCH_DAYS;
    let (era, day_of_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i128::from(month <= 2), month, day)
}

/// The day of a date, counted from 1970-01-01.
fn days_of(year: i128, month: i128, day: i128) -> i128 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA_DAYS + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - EPOCH_DAYS
}

/// Writes an instant, with as many digits of the second as it needs.
pub(super) fn write(nanos: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (seconds, nanos) = (nanos.div_euclid(NANOS_PER_SECOND), nanos.rem_euclid(NANOS_PER_SECOND));
    let (year, month, day) = date_of(seconds.div_euclid(DAY_SECONDS));
    let of_day = seconds.rem_euclid(DAY_SECONDS);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    write!(f, "{year:+05}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
    match (nanos % 1_000, nanos % 1_000_000, nanos) {
        (.., 0) => f.write_str("Z"),
        (_, 0, _) => write!(f, ".{:03}Z", nanos / 1_000_000),
        (0, ..) => write!(f, ".{:06}Z", nanos / 1_000),
        _ => write!(f, ".{nanos:09}Z"),
    }
}

/// Reads what [`write`] writes; `None` for anything else.
pub(super) fn read(text: &str) -> Option<i128> {
    let negative = text.starts_with('-');
    let (date, time) = text.strip_prefix(['+', '-'])?.strip_suffix(['Z', 'z'])?.split_once(['T', ' '])?;
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, two(parts.next()?)?, two(parts.next()?)?);
    if parts.next().is_some() || year.len() > YEAR_DIGITS_MAX || !is_number(year) {
        return None;
    }
    let year: i128 = year.parse().ok()?;
    let days = days_of(if negative { -year } else { year }, month, day);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = clock.split(':');
    let (hour, minute, second) = (two(parts.next()?)?, two(parts.next()?)?, two(parts.next()?)?);
    let is_date = date_of(days) == (if negative { -year } else { year }, month, day);
    if parts.next().is_some() || !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    if fraction.len() > 9 || !is_number(fraction) {
        return None;
    }
    let nanos: i128 = format!("{fraction:0<9}").parse().ok()?;
    let seconds = days * DAY_SECONDS + hour * 3_600 + minute * 60 + second;
    let forward = || seconds.checked_mul(NANOS_PER_SECOND)?.checked_add(nanos);
    // The second of the first instant begins before it.
    let backward = || (seconds + 1).checked_mul(NANOS_PER_SECOND)?.checked_sub(NANOS_PER_SECOND - nanos);
    forward().or_else(backward)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn two(text: &str) -> Option<i128> {
    (text.len() == 2 && is_number(text)).then(|| text.parse().ok()).flatten()
}
