//! Lengths of retention in words: `10 years`, `3650d`, `interval '3650 days'`, `P10Y`.

use crate::{Code, RuleError};

/// Seconds in each unit with its names, the singular and the plural last. A year is 365 days; a month has no fixed length.
const UNITS: [(i64, &[&str]); 6] = [
    (1, &["s", "sec", "secs", "second", "seconds"]),
    (60, &["m", "min", "mins", "minute", "minutes"]),
    (3_600, &["h", "hr", "hrs", "hour", "hours"]),
    (DAY, &["d", "day", "days"]),
    (7 * DAY, &["w", "week", "weeks"]),
    (365 * DAY, &["y", "yr", "yrs", "year", "years"]),
];
const DAY: i64 = 86_400;

/// Seconds in the unit of time that `word` names in either case, such as `day`, `DAYS` or `d`. A year is 365 days.
///
/// ```
/// assert_eq!(ebbtide_ttl::unit_seconds("weeks"), Some(604_800));
/// assert_eq!(ebbtide_ttl::unit_seconds("months"), None);
/// ```
#[must_use]
pub fn unit_seconds(word: &str) -> Option<i64> {
    let named = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(word));
    UNITS.iter().find(|(_, names)| named(names)).map(|(seconds, _)| *seconds)
}

/// Reads a retention in seconds. These mean the same: `315360000`, `10 years`, `3650d`, `3650 days`,
/// `interval '3650 days'` and `P10Y` (ISO 8601). Amounts may be added, as in `1 day 12 hours` or `P1DT12H`; a year is
/// 365 days.
///
/// # Errors
/// [`Code::BadValue`]: text of another form, months, and lengths that are not a whole number of seconds or do not fit
/// in an `i64`.
///
/// ```
/// use ebbtide_ttl::parse_retention;
///
/// assert_eq!(parse_retention("10 years")?, 10 * 365 * 86_400);
/// assert_eq!(parse_retention("P10Y")?, parse_retention("interval '3650 days'")?);
/// # Ok::<(), ebbtide_ttl::RuleError>(())
/// ```
pub fn parse_retention(text: &str) -> Result<i64, RuleError> {
    read(text).map_err(|reason| RuleError::new(Code::BadValue, format!("'{text}' is not a length of time: {reason}")))
}

/// A number of seconds in the largest unit that divides it: `90 seconds`, `2 weeks`, `1 year`. [`parse_retention`] reads it.
#[must_use]
pub fn retention_text(seconds: i64) -> String {
    let divides = |(size, _): &&(i64, &[&str])| seconds >= *size && seconds % size == 0;
    let (size, names) = UNITS.iter().rev().find(divides).unwrap_or(&UNITS[0]);
    match (seconds / size, names) {
        (1, [.., one, _]) => format!("1 {one}"),
        (number, [.., many]) => format!("{number} {many}"),
        (number, []) => number.to_string(),
    }
}

fn read(text: &str) -> Result<i64, String> {
    let text = text.trim().to_ascii_lowercase();
    let mut body = text.strip_prefix("interval").unwrap_or(&text).trim();
    if let Some(quoted) = body.strip_prefix('\'').and_then(|b| b.strip_suffix('\'')) {
        body = quoted.trim();
    }
    let (negative, body) = match body.strip_prefix('-') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, body),
    };
    let seconds = match body.strip_prefix('p') {
        Some(iso) => read_iso(iso)?,
        None => read_words(body)?,
    };
    let seconds = if negative { -seconds } else { seconds };
    i64::try_from(seconds).map_err(|_| "it is out of range".to_owned())
}

/// Amounts with their units: `1 day 12 hours`, `90d`. A number alone is of seconds.
fn read_words(text: &str) -> Result<i128, String> {
    let (mut sum, mut rest) = (0_i128, text);
    loop {
        let (number, after) = number(rest)?;
        let after = after.trim_start();
        let word_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (word, after) = after.split_at(word_end);
        let seconds = match word {
            "" if rest == text && after.is_empty() => 1,
            "" => return Err(format!("a unit is missing before '{after}'")),
            "mo" | "mon" | "mons" | "month" | "months" => return Err(MONTHS.to_owned()),
            word => unit_seconds(word)
                .ok_or_else(|| format!("'{word}' is not a unit; use seconds, minutes, hours, days, weeks or years"))?,
        };
        sum = add(sum, number, seconds)?;
        rest = after.trim_start();
        if rest.is_empty() {
            return Ok(sum);
        }
    }
}

/// The ISO 8601 form after its `P`: `10Y`, `1DT12H`.
fn read_iso(text: &str) -> Result<i128, String> {
    let (mut sum, mut rest, mut in_time) = (0_i128, text, false);
    if rest.is_empty() {
        return Err(FORMS.to_owned());
    }
    while !rest.is_empty() {
        if let (false, Some(time)) = (in_time, rest.strip_prefix('t')) {
            (rest, in_time) = (time, true);
        }
        let (number, after) = number(rest)?;
        let unit = after.chars().next().unwrap_or(' ');
        let seconds = match (unit, in_time) {
            ('y' | 'w' | 'd', false) | ('h' | 'm' | 's', true) => unit_seconds(&unit.to_string()).unwrap_or(1),
            ('m', false) => return Err(MONTHS.to_owned()),
            _ => return Err(FORMS.to_owned()),
        };
        sum = add(sum, number, seconds)?;
        rest = &after[1..];
    }
    Ok(sum)
}

const FORMS: &str = "write it as 10 years, 3650d, 24 hours or P10Y";
const MONTHS: &str = "a month has no fixed length; write it in days";

/// A decimal number at the start of a text: its digits, how many of them follow the point, and the rest of the text.
fn number(text: &str) -> Result<((i128, u32), &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // Enough for every number of seconds in an i64, and its products with a unit fit.
    if whole.len() + fraction.len() > 19 {
        return Err("it is out of range".to_owned());
    }
    let digits: i128 = format!("{whole}{fraction}").parse().map_err(|_| FORMS.to_owned())?;
    let places = u32::try_from(fraction.len()).map_err(|_| FORMS.to_owned())?;
    Ok(((digits, places), rest))
}

fn add(sum: i128, (digits, places): (i128, u32), seconds: i64) -> Result<i128, String> {
    let (product, one) = (digits * i128::from(seconds), 10_i128.pow(places));
    match product % one {
        0 => Ok(sum + product / one),
        _ => Err("it is not a whole number of seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests;
