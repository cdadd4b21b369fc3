//! A thread that does one thing again and again, until it is told to end.

use crate::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The shortest time between two looks for something to do.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    ends: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Begins the thread. `work` returns how long to wait before the next time, zero if there is more to do, or `None` to end.
    #[expect(clippy::disallowed_methods, reason = "it waits for a store, and a program need not have a tokio runtime")]
    pub(super) fn begin(mut work: impl FnMut() -> Option<Duration> + Send + 'static) -> Worker {
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Acquire) {
                match work() {
                    None => return,
                    Some(Duration::ZERO) => {}
                    Some(pause) => std::thread::park_timeout(pause),
                }
            }
        });
        Worker { ends, thread: Mutex::new(Some(thread)) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("a thread that works on a copy has panicked");
            }
        }
    }
}
