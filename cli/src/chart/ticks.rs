//! Ticks of axes: at round values, and at round times of the calendar or the clock.

use chrono::{DateTime, Datelike, NaiveDate, TimeDelta, Utc};

/// A tick on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
    /// The unit that a time belongs to, such as the day of an hour, where it begins.
    pub(super) below: Option<String>,
}

/// Round values from the one below `low` to the one above `high`, about `wanted` of them.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a few dozen ticks")]
pub(super) fn values(low: f64, high: f64, wanted: usize) -> Vec<Tick> {
    let rough = (high / wanted.max(1) as f64 - low / wanted.max(1) as f64).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|m| m * power).find(|s| *s >= rough * 0.999).unwrap_or(power);
    let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
    let count = (last - first).clamp(1.0, 1000.0) as i64;
    let all = (0..=count).map(|i| (first + i as f64) * step);
    let tick = |at: f64| Tick { at, label: number(at, step), below: None };
    // Values beyond the precision of doubles have no steps.
    if step.is_finite() && first.abs() < 1e15 { all.map(tick).collect() } else { vec![tick(low), tick(high)] }
}

/// A value with the digits that a step needs, and with separated thousands.
#[expect(clippy::cast_sign_loss, reason = "digits of a step")]
pub(super) fn number(value: f64, step: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value.abs() >= 1e9 || step.abs() < 1e-6 {
        let text = format!("{value:.3e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    let places = (0..9).find(|p| ((step * 10f64.powi(*p)).round() - step * 10f64.powi(*p)).abs() < 1e-6).unwrap_or(9);
    let text = format!("{:.*}", places as usize, value.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), ""), |(w, f)| (w, f));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) && whole.len() > 4 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if value < 0.0 { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{grouped}") } else { format!("{sign}{grouped}.{fraction}") }
}

/// The same without trailing zeros.
pub(super) fn shortest(value: f64, step: f64) -> String {
    let text = number(value, step);
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Millis(i64),
    Days(i64),
    Months(i64),
}

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;

/// At most `most` round times between `low` and `high`, in milliseconds since 1970 in UTC.
pub(super) fn times(low: f64, high: f64, most: usize) -> Vec<Tick> {
    let (Some(from), Some(to)) = (instant(low), instant(high)) else { return values(low, high, most) };
    for step in steps() {
        if let Some(all) = series(step, from, to, most) {
            return labelled(&all, step);
        }
    }
    values(low, high, most)
}

#[expect(clippy::cast_possible_truncation, reason = "out of the calendar's range it is none")]
fn instant(millis: f64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(millis.round() as i64)
}

fn steps() -> impl Iterator<Item = Step> {
    let millis = [1, 2, 5, 10, 20, 50, 100, 200, 500];
    let seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200];
    let years = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000];
    let short = millis.into_iter().chain(seconds.map(|s| s * SECOND)).map(Step::Millis);
    short
        .chain([1, 2, 7, 14].map(Step::Days))
        .chain([1, 2, 3, 6].map(Step::Months))
        .chain(years.map(|y| Step::Months(12 * y)))
}

/// All times of a step in the range; `None` if there are more than `most`.
fn series(step: Step, from: DateTime<Utc>, to: DateTime<Utc>, most: usize) -> Option<Vec<DateTime<Utc>>> {
    let mut all = Vec::new();
    let mut at = match step {
        Step::Millis(n) => DateTime::from_timestamp_millis(from.timestamp_millis().div_euclid(n) * n)?,
        Step::Days(n) => {
            // Weeks begin on Mondays; 1970-01-05 is one.
            let day = from.timestamp_millis().div_euclid(DAY) - 4;
            DateTime::from_timestamp_millis((day.div_euclid(n) * n + 4) * DAY)?
        }
        Step::Months(n) => month(i64::from(from.year()) * 12 + i64::from(from.month0()), n)?,
    };
    while at <= to {
        if at >= from {
            all.push(at);
        }
        if all.len() > most {
            return None;
        }
        at = match step {
            Step::Millis(n) => at.checked_add_signed(TimeDelta::milliseconds(n))?,
            Step::Days(n) => at.checked_add_signed(TimeDelta::days(n))?,
            Step::Months(n) => month(i64::from(at.year()) * 12 + i64::from(at.month0()) + n, n)?,
        };
    }
    Some(all)
}

/// The start of the month `count`, rounded down to a multiple of `step` months.
fn month(count: i64, step: i64) -> Option<DateTime<Utc>> {
    let count = count.div_euclid(step) * step;
    let date = NaiveDate::from_ymd_opt(
        i32::try_from(count.div_euclid(12)).ok()?,
        u32::try_from(count.rem_euclid(12)).ok()? + 1,
        1,
    )?;
    Some(date.and_hms_opt(0, 0, 0)?.and_utc())
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds for drawing")]
fn labelled(all: &[DateTime<Utc>], step: Step) -> Vec<Tick> {
    let (label, below) = match step {
        Step::Millis(n) if n < SECOND => ("%H:%M:%S%.3f", Some("%Y-%m-%d")),
        Step::Millis(n) if n < 60 * SECOND => ("%H:%M:%S", Some("%Y-%m-%d")),
        Step::Millis(_) => ("%H:%M", Some("%Y-%m-%d")),
        Step::Days(_) => ("%b %-d", Some("%Y")),
        Step::Months(n) if n < 12 => ("%b", Some("%Y")),
        Step::Months(_) => ("%Y", None),
    };
    let mut last = String::new();
    let tick = |at: &DateTime<Utc>| {
        let below = below.map(|form| at.format(form).to_string()).filter(|text| *text != last);
        if let Some(text) = &below {
            text.clone_into(&mut last);
        }
        Tick { at: at.timestamp_millis() as f64, label: at.format(label).to_string(), below }
    };
    all.iter().map(tick).collect()
}
