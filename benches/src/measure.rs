//! Stopwatches, repeated runs and progress.

use crate::Result;
use ebbtide::ttl::{Clock, SystemClock};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Measures monotonic time.
#[derive(Debug, Default)]
pub struct Stopwatch {
    clock: SystemClock,
}

impl Stopwatch {
    /// Starts a stopwatch.
    #[must_use]
    pub fn start() -> Self {
        Stopwatch { clock: SystemClock::new() }
    }

    /// Seconds since the start.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.clock.monotonic().as_secs_f64()
    }

    /// Time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.clock.monotonic()
    }
}

/// The seconds that `work` takes, and its result.
///
/// # Errors
/// Errors of `work`.
pub fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let watch = Stopwatch::start();
    let value = work()?;
    Ok((watch.seconds(), value))
}

/// The median; 0 for no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// A progress bar on standard error; hidden unless that is a terminal.
#[must_use]
pub fn progress(what: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}
