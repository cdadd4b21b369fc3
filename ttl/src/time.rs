//! Instants and precisions. An instant is kept in nanoseconds as `i128`, so that no date of any precision overflows it.

mod far;

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// An instant: nanoseconds since 1970-01-01T00:00:00Z, negative before it.
///
/// Aligned like an `i64`, so that it does not pad the members of documents to 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[repr(Rust, packed(8))]
pub struct Timestamp(i128);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Timestamp = Timestamp(0);

    /// The instant `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: i128) -> Self {
        Timestamp(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// The instant `units` after the epoch in units of `precision`.
    #[must_use]
    pub fn from_units(units: i64, precision: Precision) -> Self {
        Timestamp(i128::from(units) * precision.nanos())
    }

    /// The instant `ms` milliseconds after the epoch.
    #[must_use]
    pub fn from_millis(ms: i64) -> Self {
        Self::from_units(ms, Precision::Ms)
    }

    /// Whole units of `precision` since the epoch, floored towards minus infinity; `None` outside of `i64`.
    #[must_use]
    pub fn to_units(self, precision: Precision) -> Option<i64> {
        i64::try_from(self.0.div_euclid(precision.nanos())).ok()
    }

    /// Like [`Timestamp::to_units`], saturating at the ends of the range.
    #[must_use]
    pub fn to_units_saturating(self, precision: Precision) -> i64 {
        let units = self.0.div_euclid(precision.nanos());
        i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX })
    }

    /// The instant `seconds` later, or the last or first one that can be kept.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        let nanos = self.0; // The struct is packed.
        Timestamp(nanos.saturating_add(i128::from(seconds) * NANOS_PER_SECOND))
    }

    /// Reads an RFC 3339 time, or a date or local time that is taken as UTC. Years of more than four digits have a sign.
    ///
    /// # Errors
    /// The text that was given and the expected format.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let utc = |t: NaiveDateTime| t.and_utc();
        let parsed = DateTime::parse_from_rfc3339(text)
            .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f%z"))
            .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"))
            .map(|t| t.with_timezone(&Utc))
            .ok()
            .or_else(|| {
                let bare = text.strip_suffix(['Z', 'z']).unwrap_or(text);
                ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"]
                    .iter()
                    .find_map(|format| NaiveDateTime::parse_from_str(bare, format).ok())
                    .map(utc)
            })
            .or_else(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().and_then(|d| d.and_hms_opt(0, 0, 0)).map(utc));
        match parsed {
            Some(t) => {
                Ok(Timestamp(i128::from(t.timestamp()) * NANOS_PER_SECOND + i128::from(t.timestamp_subsec_nanos())))
            }
            None => match far::read(text) {
                Some(nanos) => Ok(Timestamp(nanos)),
                None => Err(format!("'{text}' is not a time; write it as 2024-01-31T12:00:00Z")),
            },
        }
    }
}

/// RFC 3339 in UTC with as many digits of the second as are needed; years beyond 0 to 9999 have a sign.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(NANOS_PER_SECOND);
        let nanos = self.0.rem_euclid(NANOS_PER_SECOND);
        let date =
            i64::try_from(seconds).ok().and_then(|s| DateTime::from_timestamp(s, u32::try_from(nanos).unwrap_or(0)));
        match date {
            Some(date) => f.write_str(&date.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
            None => far::write(self.0, f),
        }
    }
}

/// The unit of a collection's stored timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Precision {
    /// Milliseconds.
    #[default]
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds: 1677 to 2262 only.
    Ns,
}

impl Precision {
    /// Nanoseconds in one unit.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        match self {
            Precision::Ms => 1_000_000,
            Precision::Us => 1_000,
            Precision::Ns => 1,
        }
    }

    /// Units in one second.
    #[must_use]
    pub const fn per_second(self) -> i64 {
        match self {
            Precision::Ms => 1_000,
            Precision::Us => 1_000_000,
            Precision::Ns => 1_000_000_000,
        }
    }

    /// How long `units` units are; nothing if there are less than one.
    #[must_use]
    pub const fn duration(self, units: i64) -> Duration {
        let units = if units < 0 { 0 } else { units.unsigned_abs() };
        let per_second = self.per_second().unsigned_abs();
        let nanos = (units % per_second) * (1_000_000_000 / per_second);
        Duration::from_secs(units / per_second).saturating_add(Duration::from_nanos(nanos))
    }

    /// How many units a duration has; `None` if it is no whole number of them, or does not fit.
    #[must_use]
    pub fn units_in(self, duration: Duration) -> Option<i64> {
        let (nanos, unit) = (duration.as_nanos(), self.nanos().unsigned_abs());
        if nanos.is_multiple_of(unit) { i64::try_from(nanos / unit).ok() } else { None }
    }

    /// The word for it in options: `ms`, `us` or `ns`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Precision::Ms => "ms",
            Precision::Us => "us",
            Precision::Ns => "ns",
        }
    }
}

impl std::str::FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ms" => Ok(Precision::Ms),
            "us" => Ok(Precision::Us),
            "ns" => Ok(Precision::Ns),
            other => Err(format!("'{other}' is not a precision; use ms, us or ns")),
        }
    }
}

#[cfg(test)]
mod tests;
