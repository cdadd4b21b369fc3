//! The boundary between what is expired and what is visible.

use crate::time::{Precision, Timestamp};

/// The boundary that a rule draws at one instant: what is on the far side of it is expired.
///
/// This type alone knows on which side the boundary itself lies (it is expired: `t + E <= now`). Readers, listings, deletes
/// and sweeps ask it; none of them compares a time with a cut-off on its own.
///
/// Times are in units of the precision that the cut-off was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cutoff(Option<i64>);

impl Cutoff {
    /// Hides nothing.
    pub const NONE: Cutoff = Cutoff(None);

    /// The boundary at `now` of a rule of `e_seconds`.
    ///
    /// It is floored to a unit of `precision`, saturates at the last time that can be stored, and is [`Cutoff::NONE`] if it
    /// lies before the first.
    #[must_use]
    pub fn new(now: Timestamp, e_seconds: i64, precision: Precision) -> Self {
        let boundary = now.plus_seconds(e_seconds.saturating_neg());
        let is_storable = boundary >= Timestamp::from_units(i64::MIN, precision);
        Cutoff(is_storable.then(|| boundary.to_units_saturating(precision)))
    }

    /// Whether the time `t` is expired.
    #[must_use]
    pub fn hides(self, t: i64) -> bool {
        self.0.is_some_and(|boundary| t <= boundary)
    }

    /// How many of these times, which ascend, are expired: all others follow them.
    #[must_use]
    pub fn split(self, ascending: &[i64]) -> usize {
        ascending.partition_point(|t| self.hides(*t))
    }

    /// The last time that is expired; `None` if no time is.
    #[must_use]
    pub fn last_hidden(self) -> Option<i64> {
        let boundary = self.0?;
        if self.hides(boundary) { Some(boundary) } else { boundary.checked_sub(1) }
    }

    /// The first time that is visible; `None` if every time is expired.
    #[must_use]
    pub fn first_visible(self) -> Option<i64> {
        match self.last_hidden() {
            None => Some(i64::MIN),
            Some(last) => last.checked_add(1),
        }
    }
}
