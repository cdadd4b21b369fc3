//! What belongs to the process that made it.

use crate::errors;
use ebbtide::Error;
use ebbtide_ttl::Code;
use pyo3::prelude::*;

/// A value that only the process that made it uses and drops. A process made by `fork` has none of the threads that the
/// value relies on, and shares the open files of its parent: it gets an error, and never drops the value.
pub(crate) struct Mine<T> {
    process: u32,
    value: Option<T>,
}

impl<T> Mine<T> {
    /// A value of this process.
    pub(crate) fn new(value: T) -> Mine<T> {
        Mine { process: std::process::id(), value: Some(value) }
    }

    /// The value; `None` in a process that was forked.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.process == std::process::id())
    }

    /// The value.
    ///
    /// # Errors
    /// In a process that was forked.
    pub(crate) fn used(&self, py: Python<'_>) -> PyResult<&T> {
        let forked = "this process was forked from the one that opened the database: start it by 'spawn' or 'forkserver', and \
                      connect in it";
        self.get().ok_or_else(|| errors::of_engine(py, &Error::new(Code::IllegalOperation, forked)))
    }
}

impl<T> Drop for Mine<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
