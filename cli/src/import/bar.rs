//! The progress bar of an import.

use super::source::Source;
use crate::files;
use crate::human::grouped;
use ebbtide_ttl::Clock;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A progress bar; hidden unless messages go to a terminal.
pub(super) struct Bar<'a> {
    bar: ProgressBar,
    read: Arc<AtomicU64>,
    clock: &'a dyn Clock,
    began: Cell<Duration>,
    what: Cell<&'static str>,
}

impl<'a> Bar<'a> {
    pub(super) fn new(sources: &[Source], read: &Arc<AtomicU64>, clock: &'a dyn Clock) -> Self {
        let bar = if files::stderr_is_terminal() {
            let bar = ProgressBar::new(sources.iter().map(|s| s.bytes).sum());
            let template = "{msg} [{bar:20}] {percent:>3} % of {total_bytes}, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        } else {
            ProgressBar::hidden()
        };
        let began = Cell::new(clock.monotonic());
        Bar { bar, read: Arc::clone(read), clock, began, what: Cell::new("") }
    }

    /// Starts a pass over the files.
    pub(super) fn phase(&self, what: &'static str) {
        self.read.store(0, Ordering::Relaxed);
        self.bar.reset();
        self.began.set(self.clock.monotonic());
        self.what.set(what);
        self.tick(0);
    }

    /// Updates the progress.
    pub(super) fn tick(&self, rows: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let took = self.clock.monotonic().saturating_sub(self.began.get());
        self.bar.set_message(format!("{} {} rows, {:.0}/s", self.what.get(), grouped(rows), rate(rows, took)));
        self.bar.set_position(self.read.load(Ordering::Relaxed).min(self.bar.length().unwrap_or(0)));
    }

    /// Hides the bar, so that messages can be printed.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Rows per second.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn rate(rows: u64, took: Duration) -> f64 {
    rows as f64 / took.as_secs_f64().max(1e-3)
}
