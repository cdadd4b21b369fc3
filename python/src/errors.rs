//! Exceptions: the classes of `ebbtide._errors`, by kind, with code and index.

use ebbtide::ErrorKind;
use ebbtide_query::QueryError;
use ebbtide_ttl::Code;
use pyo3::prelude::*;

/// The exception for an error of the engine.
pub(crate) fn of_engine(py: Python<'_>, error: &ebbtide::Error) -> PyErr {
    of_part(py, error, 0)
}

/// The exception for an error after `stored` measurements of the same call were stored.
pub(crate) fn of_part(py: Python<'_>, error: &ebbtide::Error, stored: u64) -> PyErr {
    let class = match error.kind() {
        ErrorKind::Busy => "BusyError",
        ErrorKind::Full => "FullError",
        ErrorKind::Invalid => "InvalidError",
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::Poisoned => "PoisonedError",
        ErrorKind::Io => "FileError",
        _ => "InternalError",
    };
    let code = error.code();
    let made = py.import("ebbtide._errors").and_then(|module| {
        let arguments = (error.to_string(), code.number(), code.name(), error.index(), stored);
        module.getattr(class)?.call1(arguments)
    });
    made.map_or_else(|failure| failure, PyErr::from_value)
}

/// The exception for an error of a statement.
pub(crate) fn of_query(py: Python<'_>, error: &QueryError) -> PyErr {
    of_engine(py, &ebbtide::Error::new(error.code(), error.message()))
}

/// The exception for a wrong call.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    of_engine(py, &ebbtide::Error::new(Code::BadValue, message))
}

/// The exception for a fault of this package.
pub(crate) fn internal(py: Python<'_>, message: &str) -> PyErr {
    of_engine(py, &ebbtide::Error::new(Code::InternalError, message))
}
