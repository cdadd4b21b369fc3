//! The native half of the Python package `ebbtide`: its module `ebbtide._ebbtide`.
//!
//! The other half is Python, in the folder `package`: it has the interface that users see, and turns it
//! into the few calls below. What is here releases the global interpreter lock while it works, hands numbers over as
//! Arrow's C data interface does, without copying them, and lets Ctrl-C end what can be ended.
//!
//! - `database`: an open database; `insert` what goes into it.
//! - `rows`: the result of a statement, as a stream; `query` runs it, `cells` turns it into Python objects.
//! - `values`: documents, commands and parameters between Python, Extended JSON and BSON.
//! - `process`: what a forked process may not touch.
//! - `wait`: the runtime, and waiting for it without holding the lock.
//! - `errors`: exceptions by kind, with code and index.
//!
//! There is no `unsafe` in this crate: `unsafe_code = "forbid"` holds for it as for the others. The macros of PyO3 expand to
//! unsafe code in this crate, which the compiler does not count against it, since the macros come from another crate.

mod cells;
mod database;
mod errors;
mod insert;
mod process;
mod query;
mod request;
mod rows;
mod values;
mod wait;

use pyo3::prelude::*;

/// Runs the program `ebbtide` with these arguments, the first of which is its name; returns its exit code.
#[pyfunction]
fn run_program(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| ebbtide_cli::run(arguments))
}

/// An instant as a text.
#[pyfunction]
fn instant_text(instant: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(values::instant_of(instant)?.to_string())
}

#[pymodule]
fn _ebbtide(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<database::Connection>()?;
    module.add_class::<rows::Rows>()?;
    module.add_function(wrap_pyfunction!(instant_text, module)?)?;
    module.add_function(wrap_pyfunction!(run_program, module)?)
}
