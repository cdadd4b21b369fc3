//! The guard against a wrong wall clock: a clock that jumped ahead must not make everything look expired.
//!
//! Between two looks the wall clock should advance about as much as the monotonic clock. A clock that went backwards
//! is no danger: it makes data look younger.

use crate::time::Timestamp;
use std::fmt;
use std::time::Duration;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// The wall clock moved ahead of the monotonic clock by more than is tolerated: nothing may be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockJump {
    /// How far ahead the wall clock is, in nanoseconds.
    pub ahead_nanos: i128,
    /// How much was tolerated, in seconds.
    pub tolerance_secs: i64,
}

impl ClockJump {
    /// How far ahead the wall clock is, in whole seconds.
    #[must_use]
    pub fn ahead_secs(&self) -> i64 {
        i64::try_from(self.ahead_nanos / NANOS_PER_SECOND).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for ClockJump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the wall clock jumped {}.{:03} s ahead (tolerated: {} s); nothing is dropped until it is back, or the time is \
             confirmed (confirmClock), or ttlClockJumpToleranceSecs is 0",
            self.ahead_secs(),
            // Rounded up: what is over by a hair must not look as if it were not.
            ((self.ahead_nanos.rem_euclid(NANOS_PER_SECOND) + 999_999) / 1_000_000).min(999),
            self.tolerance_secs
        )
    }
}

/// Compares the wall clock with the monotonic clock from look to look.
#[derive(Debug, Clone)]
pub struct ClockGuard {
    wall: Timestamp,
    monotonic: Duration,
}

impl ClockGuard {
    /// A guard that starts with the current clocks.
    #[must_use]
    pub fn new(wall: Timestamp, monotonic: Duration) -> Self {
        ClockGuard { wall, monotonic }
    }

    /// Looks at the clocks before a sweep; `tolerance_secs` 0 switches the guard off.
    ///
    /// # Errors
    /// [`ClockJump`] if the wall clock is ahead by more than the tolerance. A look that was refused does not count: the next one still
    /// compares with the last good one, so that jumps add up.
    pub fn look(&mut self, wall: Timestamp, monotonic: Duration, tolerance_secs: i64) -> Result<(), ClockJump> {
        match self.peek(wall, monotonic, tolerance_secs) {
            Some(held) => Err(held),
            None => {
                self.confirm(wall, monotonic);
                Ok(())
            }
        }
    }

    /// What [`ClockGuard::look`] would say, without looking: for status displays.
    #[must_use]
    pub fn peek(&self, wall: Timestamp, monotonic: Duration, tolerance_secs: i64) -> Option<ClockJump> {
        let nanos = |d: Duration| i128::try_from(d.as_nanos()).unwrap_or(i128::MAX);
        let wall_moved = wall.nanos().saturating_sub(self.wall.nanos());
        let ahead_nanos = wall_moved.saturating_sub(nanos(monotonic.saturating_sub(self.monotonic)));
        let tolerated = i128::from(tolerance_secs) * NANOS_PER_SECOND;
        (tolerance_secs > 0 && ahead_nanos > tolerated).then_some(ClockJump { ahead_nanos, tolerance_secs })
    }

    /// Accepts the current clocks, because an operator has confirmed them.
    pub fn confirm(&mut self, wall: Timestamp, monotonic: Duration) {
        *self = ClockGuard { wall, monotonic };
    }
}

#[cfg(test)]
mod tests;
