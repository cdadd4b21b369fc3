//! On which thread a command reads.

use crate::shared::Shared;
use std::sync::atomic::Ordering;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

/// Runs what may take long. It stays on the thread of its connection, which saves two switches between threads, as long as one
/// thread of the runtime is left for all others.
pub(crate) fn run_long<T>(shared: &Shared, read: impl FnOnce() -> T) -> T {
    let here = Here::enter(shared);
    match here.is_alone {
        true => read(),
        false => block_in_place(read),
    }
}

/// A read that may take long, while it runs.
struct Here<'a> {
    shared: &'a Shared,
    is_alone: bool,
}

impl<'a> Here<'a> {
    fn enter(shared: &'a Shared) -> Here<'a> {
        // Without a runtime nobody else waits.
        let threads = Handle::try_current().map_or(usize::MAX, |runtime| runtime.metrics().num_workers());
        let running = shared.reads_here.fetch_add(1, Ordering::Relaxed);
        Here { shared, is_alone: running + 1 < threads }
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.shared.reads_here.fetch_sub(1, Ordering::Relaxed);
    }
}
