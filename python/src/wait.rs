//! The runtime that statements run on, and waiting for it from Python.
//!
//! A wait holds the global interpreter lock only for moments, to see whether Ctrl-C was pressed. It blocks on a channel
//! of the standard library, not on the runtime: whoever reads a stream may be a thread of another runtime.

use crate::errors;
use ebbtide::Error;
use ebbtide_ttl::Code;
use pyo3::prelude::*;
use std::future::Future;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long Ctrl-C may go unnoticed.
const TICK: Duration = Duration::from_millis(50);
/// Plans of nested statements need more than a thread's two mebibytes.
const STACK_BYTES: usize = 8 << 20;
/// Why a process cannot connect.
const FORKED: &str = "this process was forked from one that had connected to a database: start processes by 'spawn' or \
                      'forkserver', or connect only after the fork";

/// The runtime of all databases of the process, made by the first that is opened.
///
/// # Errors
/// [`Code::IllegalOperation`] in a process that was forked after the runtime was made. Locks keep queues of the threads that
/// wait for them, also in a child, which has none of these threads: its memory would be damaged where it first wakes one.
pub(crate) fn runtime(py: Python<'_>) -> PyResult<&'static Runtime> {
    static RUNTIME: OnceLock<(u32, Runtime)> = OnceLock::new();
    if RUNTIME.get().is_none() {
        let made = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("ebbtide")
            .thread_stack_size(STACK_BYTES)
            .build()?;
        // Another thread may have been faster.
        let _ = RUNTIME.set((std::process::id(), made));
    }
    match RUNTIME.get() {
        Some((process, runtime)) if *process == std::process::id() => Ok(runtime),
        _ => Err(errors::of_engine(py, &Error::new(Code::IllegalOperation, FORKED))),
    }
}

/// A lock that a panic elsewhere does not close.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on the runtime and returns what it does.
///
/// # Errors
/// KeyboardInterrupt, or whatever another signal's handler raises: then `stop` is called, and `work` is dropped if that returns
/// `true`, and awaited otherwise.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl Future<Output = T> + Send + 'static,
    stop: impl FnOnce() -> bool,
) -> PyResult<T> {
    let (sender, receiver) = channel();
    let receiver = Mutex::new(receiver);
    let task = runtime(py)?.spawn(async move {
        // Nobody waits any more after an interrupt.
        let _ = sender.send(work.await);
    });
    match receive(py, &receiver) {
        Ok(Some(done)) => Ok(done),
        Ok(None) => Err(errors::internal(py, "a task ended without a result")),
        Err(signal) => {
            if stop() {
                task.abort();
            } else {
                let _ = py.detach(|| lock(&receiver).recv());
            }
            Err(signal)
        }
    }
}

/// Waits for the next message; `None` if none will come.
///
/// # Errors
/// What the handler of a signal raises.
pub(crate) fn receive<T: Send>(py: Python<'_>, messages: &Mutex<Receiver<T>>) -> PyResult<Option<T>> {
    loop {
        match py.detach(|| lock(messages).recv_timeout(TICK)) {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
        }
    }
}
