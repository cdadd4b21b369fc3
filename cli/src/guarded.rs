//! Readers of foreign formats panic on some damaged files: that must not end the program.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether this thread reads a foreign file, so that a panic is reported as an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs work on a foreign file. If it panics, nothing is printed, and the error says that the file is damaged.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            if !GUARDED.get() {
                before(panicked);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    outcome.map_err(|_| "its contents contradict each other: it is damaged".to_owned())
}
