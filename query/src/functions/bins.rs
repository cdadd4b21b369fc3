//! Bins of time: of a fixed width, of months, and of days and hours in a time zone.
//!
//! Times are computed as 128-bit nanoseconds, so that no time that a collection can store overflows.

#[cfg(test)]
mod tests;

use arrow::array::timezone::Tz;
use chrono::{DateTime, Datelike, MappedLocalTime, Months, NaiveDateTime, NaiveTime, Offset, TimeZone};
use datafusion::arrow::datatypes::{IntervalMonthDayNano, TimeUnit};
use datafusion::common::{Result, exec_err};
use ebbtide_buckets::unit_nanos;
use ebbtide_ttl::Timestamp;
use std::cell::Cell;

const SECOND: i128 = 1_000_000_000;
pub(super) const DAY: i128 = 86_400 * SECOND;

/// The width of a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Width {
    Months(i128),
    Nanos(i128),
}

/// Bins of one width, for times in one unit.
#[derive(Debug, Clone)]
pub(crate) struct Bins {
    width: Width,
    /// Nanoseconds per unit.
    unit: i128,
    /// Start of bin number 0, in local time if there is a zone.
    origin: i128,
    zone: Option<Tz>,
    /// Width and origin in units if both are whole: the fast path.
    whole: Option<(i64, i64)>,
}

impl Bins {
    /// Bins of the width `interval`, one of which starts at `origin` (1970-01-01T00:00:00 if `None`).
    ///
    /// # Errors
    /// What is wrong with the width, worded to follow `argument 1 (interval)`.
    pub(crate) fn new(
        interval: IntervalMonthDayNano,
        unit: TimeUnit,
        origin: Option<Timestamp>,
        zone: Option<Tz>,
    ) -> std::result::Result<Bins, String> {
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        let width = match (months, i128::from(days) * DAY + i128::from(nanoseconds)) {
            (0, nanos) => Width::Nanos(nanos),
            (months, 0) if days == 0 => Width::Months(i128::from(months)),
            _ => {
                return Err(
                    "mixes months with days or hours; a bin has either whole months or a fixed width".to_owned()
                );
            }
        };
        let (Width::Nanos(size) | Width::Months(size)) = width;
        if size <= 0 {
            return Err("is not positive; an interval such as INTERVAL '1 hour' is wanted".to_owned());
        }
        let (unit, origin) = (unit_nanos(unit), origin.map_or(0, |t| t.nanos()));
        let whole = match (width, &zone) {
            (Width::Nanos(width), None) if width % unit == 0 && origin % unit == 0 => {
                i64::try_from(width / unit).ok().zip(i64::try_from(origin / unit).ok())
            }
            _ => None,
        };
        Ok(Bins { width, unit, origin, zone, whole })
    }

    /// Start of the bin that contains `time`, in units; the start belongs to the bin.
    pub(crate) fn start(&self, time: i64) -> Result<i64> {
        if let Some((width, origin)) = self.whole
            && let Some(distance) = time.checked_sub(origin)
            && let Some(start) = time.checked_sub(distance.rem_euclid(width))
        {
            return Ok(start);
        }
        self.units(self.start_nanos(i128::from(time) * self.unit)?)
    }

    /// Start of the bin after the one that starts at `start`.
    pub(crate) fn next(&self, start: i64) -> Result<i64> {
        let now = i128::from(start) * self.unit;
        // Bins narrower than a unit: the next one is that of the next unit.
        let soonest = now + self.unit;
        let next = match &self.zone {
            None => self.boundary(self.number(now)? + 1)?,
            Some(zone) if self.by_calendar() => {
                let number = self.number(now + offset(zone, now)?)? + 1;
                earliest(zone, self.boundary(number)?)?
            }
            Some(zone) => self.next_on_clock(zone, now)?,
        };
        self.units(if next < soonest { self.start_nanos(soonest)?.max(soonest) } else { next })
    }

    /// The number of the bin that contains `time`. In a zone, bins of less than a day are counted by elapsed time: an hour that the
    /// clock skips or repeats counts as it lasts.
    pub(crate) fn number_of(&self, time: i64) -> Result<i128> {
        let now = i128::from(time) * self.unit;
        match self.zone.as_ref().filter(|_| self.by_calendar()) {
            Some(zone) => self.number(now + offset(zone, now)?),
            None => self.number(now),
        }
    }

    /// Converts an instant to units, rounding up.
    fn units(&self, nanos: i128) -> Result<i64> {
        match i64::try_from(-(-nanos).div_euclid(self.unit)) {
            Ok(units) => Ok(units),
            Err(_) => exec_err!("a bin starts at {}, which its column cannot hold", Timestamp::from_nanos(nanos)),
        }
    }

    /// Whether bins consist of whole days or months. They then follow the zone's calendar; narrower ones follow its
    /// clock.
    fn by_calendar(&self) -> bool {
        match self.width {
            Width::Months(_) => true,
            Width::Nanos(width) => width % DAY == 0,
        }
    }

    fn start_nanos(&self, time: i128) -> Result<i128> {
        let Some(zone) = &self.zone else { return self.boundary(self.number(time)?) };
        let now = offset(zone, time)?;
        let local = self.boundary(self.number(time + now)?)?;
        if self.by_calendar() {
            return earliest(zone, local);
        }
        let start = local - now;
        let then = offset(zone, start)?;
        if then == now {
            return Ok(start);
        }
        let change = transition(zone, start, time)?;
        if then < now {
            // Clocks went forward: a bin whose start was skipped starts at the transition.
            return Ok(if local >= change + then { change } else { local - then });
        }
        // Clocks went back: no bin has started since the transition, so it is the last one before it.
        self.start_nanos(change - 1)
    }

    fn next_on_clock(&self, zone: &Tz, start: i128) -> Result<i128> {
        let now = offset(zone, start)?;
        let local = self.boundary(self.number(start + now)? + 1)?;
        let next = local - now;
        if offset(zone, next)? == now && offset(zone, next - 1)? == now {
            return Ok(next);
        }
        // There is a clock change in between. Starts never decrease, so the first time with a later start can be found
        // by binary search.
        let (mut low, mut high) = (start, next + DAY);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.start_nanos(middle)? > start { high = middle } else { low = middle }
        }
        Ok(high)
    }

    /// Number of the bin that contains a local time.
    fn number(&self, time: i128) -> Result<i128> {
        match self.width {
            Width::Nanos(width) => Ok((time - self.origin).div_euclid(width)),
            Width::Months(months) => {
                let (date, origin) = (civil(time)?, civil(self.origin)?);
                let years = i128::from(date.year()) - i128::from(origin.year());
                let distance = years * 12 + i128::from(date.month()) - i128::from(origin.month());
                let number = distance.div_euclid(months);
                Ok(if self.boundary(number)? > time { number - 1 } else { number })
            }
        }
    }

    /// Local start time of a bin.
    fn boundary(&self, number: i128) -> Result<i128> {
        match self.width {
            Width::Nanos(width) => Ok(self.origin + number * width),
            Width::Months(months) => {
                let origin = civil(self.origin)?;
                let moved = u32::try_from((number * months).unsigned_abs()).ok().map(Months::new).and_then(|months| {
                    if number < 0 { origin.checked_sub_months(months) } else { origin.checked_add_months(months) }
                });
                match moved {
                    Some(moved) => Ok(of_civil(moved)),
                    None => exec_err!("bins of months reach from the year -262000 to 262000"),
                }
            }
        }
    }
}

/// The bin of the last time that was asked for: the next one mostly lies in it.
#[derive(Debug, Default)]
pub(crate) struct LastBin(Cell<Option<(i64, i64)>>);

impl LastBin {
    /// As [`Bins::start`].
    pub(crate) fn start(&self, bins: &Bins, time: i64) -> Result<i64> {
        match self.0.get() {
            Some((start, end)) if (start..end).contains(&time) => Ok(start),
            _ => {
                let start = bins.start(time)?;
                // In a zone a time may be in a bin before that of an earlier time: its date goes back where clocks do at midnight.
                if bins.whole.is_none() && bins.zone.is_none() {
                    // A bin at the end of all times has no next one.
                    self.0.set(bins.next(start).ok().map(|end| (start, end)));
                }
                Ok(start)
            }
        }
    }
}

/// The date and time of an instant in UTC.
pub(super) fn civil(time: i128) -> Result<NaiveDateTime> {
    let seconds = i64::try_from(time.div_euclid(SECOND)).ok();
    let nanos = u32::try_from(time.rem_euclid(SECOND)).ok();
    match seconds.zip(nanos).and_then(|(s, n)| DateTime::from_timestamp(s, n)) {
        Some(time) => Ok(time.naive_utc()),
        None => exec_err!("calendar dates reach from the year -262000 to 262000"),
    }
}

fn of_civil(time: NaiveDateTime) -> i128 {
    let time = time.and_utc();
    i128::from(time.timestamp()) * SECOND + i128::from(time.timestamp_subsec_nanos())
}

/// A zone's offset from UTC at an instant, in nanoseconds.
pub(super) fn offset(zone: &Tz, time: i128) -> Result<i128> {
    Ok(i128::from(zone.offset_from_utc_datetime(&civil(time)?).fix().local_minus_utc()) * SECOND)
}

/// The first instant at which a zone's clock shows `local`, or has passed it if that time is skipped.
fn earliest(zone: &Tz, local: i128) -> Result<i128> {
    let shown = civil(local)?;
    let ahead = match zone.offset_from_local_datetime(&shown) {
        MappedLocalTime::Single(offset) | MappedLocalTime::Ambiguous(offset, _) => offset.fix().local_minus_utc(),
        MappedLocalTime::None => return transition(zone, local - DAY, local + DAY),
    };
    Ok(local - i128::from(ahead) * SECOND)
}

/// The first second after `before` at which the zone has the same offset as at `after`.
fn transition(zone: &Tz, before: i128, after: i128) -> Result<i128> {
    let (mut low, mut high) = (before.div_euclid(SECOND), after.div_euclid(SECOND));
    let there = offset(zone, after)?;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if offset(zone, middle * SECOND)? == there { high = middle } else { low = middle }
    }
    Ok(high * SECOND)
}

/// Parses a local time such as `2024-01-01` or `2024-01-01T06:00:00`, in nanoseconds as if it were UTC.
pub(super) fn wall_time(text: &str) -> Option<Timestamp> {
    if let Ok(date) = text.parse::<chrono::NaiveDate>() {
        return Some(Timestamp::from_nanos(of_civil(date.and_time(NaiveTime::MIN))));
    }
    Timestamp::parse(text).ok()
}
