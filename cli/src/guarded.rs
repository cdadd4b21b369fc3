//! Readers of foreign forms assert some of what they find: a damaged file is no reason for the program to fall.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether this thread reads a foreign file: what panics then is told as an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Does some work on a foreign file. If it panics, nothing is printed, and the error says that the file is damaged.
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
    outcome.map_err(|_| "what it says of itself is contradictory: it is damaged".to_owned())
}
