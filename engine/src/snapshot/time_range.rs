//! The times that a read asks for.

use super::row_filter::StoredRange;
use ebbtide_ttl::{Precision, Timestamp};
use std::ops::{Range, RangeFrom, RangeInclusive};

/// A range of instants, as `(from..to).into()`, `(from..).into()` or `(first..=last).into()`; all instants by default.
/// Exact, whatever the precision of the collection.
///
/// ```
/// use ebbtide::TimeRange;
/// use ebbtide_ttl::Timestamp;
///
/// let (from, to) = (Timestamp::parse("2024-01-01").unwrap(), Timestamp::parse("2024-02-01").unwrap());
/// let january = TimeRange::from(from..to);
/// assert_eq!(january.first(), Some(from));
/// assert_eq!(january.last(), Some(Timestamp::parse("2024-01-31T23:59:59.999999999").unwrap()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeRange {
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl TimeRange {
    /// From the first instant to the last, both inclusive; unbounded where there is none.
    #[must_use]
    pub const fn new(first: Option<Timestamp>, last: Option<Timestamp>) -> Self {
        TimeRange { first, last }
    }

    /// [`TimeRange::new`] of stored times: units of `precision` since the epoch.
    #[must_use]
    pub fn of_units(first: Option<i64>, last: Option<i64>, precision: Precision) -> Self {
        let instant = |units: i64| Timestamp::from_units(units, precision);
        TimeRange { first: first.map(instant), last: last.map(instant) }
    }

    /// The first instant; `None` if there is no bound.
    #[must_use]
    pub const fn first(self) -> Option<Timestamp> {
        self.first
    }

    /// The last instant, which is in the range; `None` if there is no bound.
    #[must_use]
    pub const fn last(self) -> Option<Timestamp> {
        self.last
    }

    /// The first and the last stored time in the range, in units of `precision`; the first is after the last if there are none.
    #[must_use]
    pub fn units(self, precision: Precision) -> (i64, i64) {
        let StoredRange { first, last } = self.stored(precision);
        (first, last)
    }

    pub(super) fn stored(self, precision: Precision) -> StoredRange {
        // A time between two units is in a range that begins after the lower one only if the upper one is.
        let ceiled = |t: Timestamp| {
            let floored = t.to_units_saturating(precision);
            if Timestamp::from_units(floored, precision) < t { floored.checked_add(1) } else { Some(floored) }
        };
        let first = self.first.map_or(Some(i64::MIN), ceiled);
        let last = self.last.map_or(Some(i64::MAX), |t| {
            let floored = t.to_units_saturating(precision);
            (Timestamp::from_units(floored, precision) <= t).then_some(floored)
        });
        match (first, last) {
            (Some(first), Some(last)) => StoredRange { first, last },
            _ => StoredRange::NONE,
        }
    }
}

/// The part of a range of times that its first or last bins cover: bins of `width`, counted from 1970. All times are in one unit,
/// and both ends of a range are in it. Bins without measurements count too. A width below 1 counts as 1.
///
/// ```
/// assert_eq!(ebbtide::bins_at_end((7, 1234), 100, 3, true), (1000, 1234));
/// assert_eq!(ebbtide::bins_at_end((7, 1234), 100, 3, false), (7, 299));
/// assert_eq!(ebbtide::bins_at_end((7, 1234), 100, 64, true), (7, 1234));
/// ```
#[must_use]
pub fn bins_at_end((first, last): (i64, i64), width: i64, bins: i64, descending: bool) -> (i64, i64) {
    let width = width.max(1);
    let begin = |time: i64| i128::from(time) - i128::from(time.rem_euclid(width));
    let reach = i128::from(bins.max(1) - 1) * i128::from(width);
    // What is beyond 64 bits is beyond the range.
    if descending {
        (i64::try_from(begin(last) - reach).map_or(first, |from| from.max(first)), last)
    } else {
        let end = begin(first) + reach + i128::from(width) - 1;
        (first, i64::try_from(end).map_or(last, |to| to.min(last)))
    }
}

impl From<Range<Timestamp>> for TimeRange {
    fn from(range: Range<Timestamp>) -> Self {
        TimeRange { first: Some(range.start), last: Some(Timestamp::from_nanos(range.end.nanos().saturating_sub(1))) }
    }
}

impl From<RangeFrom<Timestamp>> for TimeRange {
    fn from(range: RangeFrom<Timestamp>) -> Self {
        TimeRange { first: Some(range.start), last: None }
    }
}

impl From<RangeInclusive<Timestamp>> for TimeRange {
    fn from(range: RangeInclusive<Timestamp>) -> Self {
        TimeRange { first: Some(*range.start()), last: Some(*range.end()) }
    }
}

#[cfg(test)]
mod tests;
