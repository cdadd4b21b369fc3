//! Legal holds: what a hold covers is not dropped, deleted or renamed away until the hold is lifted.
//!
//! A hold covers the measurements of some metas within a range of time. It neither hides nor shows anything: a measurement that
//! is covered and expired stays hidden. A bucket with one covered measurement is kept as a whole.

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use ebbtide_ttl::{Code, Filter, Precision, Timestamp};
use serde::{Deserialize, Serialize};

/// A hold, as the manifest has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) name: String,
    /// The number of the collection.
    pub(crate) collection: u64,
    /// The name that the collection had when the hold was made.
    pub(crate) collection_name: String,
    pub(crate) filter: Filter,
    pub(crate) from: Option<Timestamp>,
    pub(crate) to: Option<Timestamp>,
    pub(crate) reason: String,
    pub(crate) made_at: Timestamp,
    pub(crate) lifted_at: Option<Timestamp>,
}

impl Hold {
    /// The first and the last time that it covers, in units of a precision.
    pub(crate) fn range(&self, precision: Precision) -> (i64, i64) {
        // The first unit that is not before an instant.
        let ceil = |instant: Timestamp| {
            let floor = instant.to_units_saturating(precision);
            floor.saturating_add(i64::from(Timestamp::from_units(floor, precision) < instant))
        };
        (self.from.map_or(i64::MIN, ceil), self.to.map_or(i64::MAX, |to| ceil(to).saturating_sub(1)))
    }

    /// Whether it covers the measurement of a meta at a time, if it covers the meta.
    pub(crate) fn covers(&self, t: i64, precision: Precision) -> bool {
        let (first, last) = self.range(precision);
        (first..=last).contains(&t)
    }

    pub(crate) fn overlaps(&self, first: i64, last: i64, precision: Precision) -> bool {
        let (from, to) = self.range(precision);
        from <= last && first <= to
    }

    /// Whether it covers one of the measurements of a meta from the time `first` to `last`. `times` gives all of them; it is
    /// asked only where the two do not tell.
    pub(crate) fn covers_any(
        &self,
        (first, last): (i64, i64),
        precision: Precision,
        times: impl FnOnce() -> Result<Vec<i64>>,
    ) -> Result<bool> {
        if !self.overlaps(first, last, precision) {
            return Ok(false);
        }
        if self.covers(first, precision) || self.covers(last, precision) {
            return Ok(true);
        }
        Ok(times()?.into_iter().any(|t| self.covers(t, precision)))
    }

    /// The error that refuses to take what it covers.
    pub(crate) fn refusal(&self, action: &str) -> Error {
        let Hold { name, reason, .. } = self;
        let what = format!("hold '{name}' ({reason}) keeps this: {action}; lift the hold first");
        Error::new(Code::IllegalOperation, what)
    }
}

/// Longest name of a hold, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Checks the name of a hold.
pub(crate) fn check_hold_name(name: &str) -> Result<()> {
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('\0') {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    let what =
        format!("'{}' cannot be the name of a hold: 1 to {NAME_BYTES_MAX} bytes without NUL can", shown.escape_debug());
    Err(Error::new(Code::InvalidOptions, what))
}
