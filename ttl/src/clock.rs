//! Access to time: everything in Ebbtide that reads a clock does so through [`Clock`].

use crate::time::Timestamp;
use parking_lot::Mutex;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wall time, which can be set, and monotonic time, which only advances.
pub trait Clock: Debug + Send + Sync {
    /// The wall clock's instant. It can be wrong and can step in both directions.
    fn now(&self) -> Timestamp;

    /// Time since a fixed start. It never goes backwards and cannot be set.
    fn monotonic(&self) -> Duration;

    /// Whether time passes only when it is set; then nothing runs by itself in the background.
    fn is_virtual(&self) -> bool {
        false
    }
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the door to the monotonic clock")]
    pub fn new() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the door to the wall clock")]
    fn now(&self) -> Timestamp {
        let nanos = |d: Duration| i128::try_from(d.as_nanos()).unwrap_or(i128::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp::from_nanos(nanos(since)),
            Err(before) => Timestamp::from_nanos(-nanos(before.duration())),
        }
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that moves only when it is set. Clones share one time.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    state: Arc<Mutex<(Timestamp, Duration)>>,
}

impl VirtualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        VirtualClock { state: Arc::new(Mutex::new((now, Duration::ZERO))) }
    }

    /// Advances both clocks to `now`; if `now` is in the past, sets only the wall clock back.
    pub fn set(&self, now: Timestamp) {
        let mut state = self.state.lock();
        let ahead = now.nanos().saturating_sub(state.0.nanos());
        state.1 = match u64::try_from(ahead) {
            Ok(ahead) => state.1.saturating_add(Duration::from_nanos(ahead)),
            Err(_) if ahead > 0 => Duration::MAX,
            Err(_) => state.1,
        };
        state.0 = now;
    }

    /// Sets the wall clock only, to simulate a wrong clock.
    pub fn jump(&self, now: Timestamp) {
        self.state.lock().0 = now;
    }

    /// Sets the monotonic time only, to simulate a machine that was suspended or whose clock is broken.
    pub fn set_monotonic(&self, monotonic: Duration) {
        self.state.lock().1 = monotonic;
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.state.lock().0
    }

    fn monotonic(&self) -> Duration {
        self.state.lock().1
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
