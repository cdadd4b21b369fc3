//! Measurements from Python: streams of Arrow, and dicts.

use crate::errors;
use crate::values::json_of_py;
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;
use ebbtide::buckets::batch_bytes;
use ebbtide::{Collection, Error, json};
use ebbtide_ttl::Code;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3_arrow::input::AnyRecordBatch;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Approximate bytes of one insert; a stream of less is stored as a whole or not at all.
const INSERT_BYTES: usize = 32 << 20;

/// Types of other packages that are stored as what Arrow has for them; of all others that would be a number or bytes without
/// their meaning.
const EXTENSIONS: [&str; 2] = ["arrow.json", "arrow.uuid"];

/// What is read of a stream and not stored yet.
#[derive(Default)]
struct Waiting {
    batches: Vec<RecordBatch>,
    bytes: usize,
}

/// Why a stream was not stored to its end.
enum Fault {
    Refused(Error),
    Stream(ArrowError),
    Raised(PyErr),
    Panicked(String),
}

/// Stores the batches of a stream, in as few inserts as memory allows.
struct Inserts<'a> {
    collection: &'a Collection,
    waiting: Waiting,
    stored: u64,
}

impl Inserts<'_> {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        let mut from = 0;
        while from < batch.num_rows() {
            let mut piece = batch.slice(from, batch.num_rows() - from);
            let mut bytes = batch_bytes(&piece);
            while piece.num_rows() > 1 && bytes > INSERT_BYTES {
                piece = piece.slice(0, piece.num_rows().div_ceil(2));
                bytes = batch_bytes(&piece);
            }
            if !self.waiting.batches.is_empty() && self.waiting.bytes + bytes > INSERT_BYTES {
                self.store()?;
            }
            from += piece.num_rows();
            self.waiting.bytes += bytes;
            self.waiting.batches.push(piece);
        }
        Ok(())
    }

    fn store(&mut self) -> Result<(), Fault> {
        let Waiting { batches, .. } = std::mem::take(&mut self.waiting);
        let batch = match batches.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            [first, ..] => concat_batches(&first.schema(), &batches).map_err(Fault::Stream)?,
        };
        self.stored += self.collection.insert(&batch).map_err(Fault::Refused)?;
        Ok(())
    }
}

/// Stores the rows of what has `__arrow_c_stream__` or `__arrow_c_array__`; returns their number. The interpreter's lock is
/// taken only to look for signals.
///
/// # Errors
/// Exceptions about a measurement, with its index in the whole stream, and how many were stored before.
pub(crate) fn arrow(py: Python<'_>, collection: &Collection, data: &Bound<'_, PyAny>) -> PyResult<u64> {
    let mut inserts = Inserts { collection, waiting: Waiting::default(), stored: 0 };
    let outcome = caught(|| reader(data)).and_then(|reader| store(py, &mut inserts, reader));
    let stored = inserts.stored;
    outcome.map(|()| stored).map_err(|fault| match fault {
        Fault::Refused(error) => errors::of_part(py, &moved(error, stored), stored),
        Fault::Stream(error) => {
            let error = Error::new(Code::BadValue, format!("the stream ended with an error: {error}"));
            errors::of_part(py, &error, stored)
        }
        Fault::Raised(error) => error,
        Fault::Panicked(what) => {
            let error = Error::new(Code::InternalError, format!("the data could not be read or stored: {what}"));
            errors::of_part(py, &error, stored)
        }
    })
}

/// Does work that panics where Arrow reads arrays that it does not expect.
fn caught<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(Fault::Panicked(text.to_owned()))
    })
}

fn reader(data: &Bound<'_, PyAny>) -> Result<Box<dyn RecordBatchReader + Send>, Fault> {
    let py = data.py();
    let reader = data.extract::<AnyRecordBatch>().and_then(AnyRecordBatch::into_reader).map_err(|error| {
        let is_refused = error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyTypeError>(py);
        if !is_refused {
            return Fault::Raised(error);
        }
        let refused = errors::invalid(py, format!("the data cannot be read as rows: {}", error.value(py)));
        refused.set_cause(py, Some(error));
        Fault::Raised(refused)
    })?;
    match reader.schema().fields().iter().find_map(|field| extension(field)) {
        None => Ok(reader),
        Some((field, name)) => {
            let what = format!("field '{field}': no field holds Arrow's extension type {name}; cast it first");
            Err(Fault::Refused(Error::new(Code::TypeMismatch, what)))
        }
    }
}

/// The first field of a type that is refused, and its type.
fn extension(field: &Field) -> Option<(&str, &str)> {
    let name = field.extension_type_name().filter(|name| !EXTENSIONS.contains(name));
    name.map(|name| (field.name().as_str(), name)).or_else(|| match field.data_type() {
        DataType::Struct(members) => members.iter().find_map(|member| extension(member)),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => extension(item),
        _ => None,
    })
}

fn store(py: Python<'_>, inserts: &mut Inserts<'_>, reader: Box<dyn RecordBatchReader + Send>) -> Result<(), Fault> {
    let all = || {
        for batch in reader {
            let before = inserts.stored;
            inserts.take(&batch.map_err(Fault::Stream)?)?;
            if inserts.stored > before {
                Python::attach(|py| py.check_signals()).map_err(Fault::Raised)?;
            }
        }
        inserts.store()
    };
    py.detach(|| caught(all))
}

/// An error with the index that the measurement has in the whole stream, in the message too.
fn moved(error: Error, stored: u64) -> Error {
    match (error.index(), usize::try_from(stored)) {
        (Some(index), Ok(stored)) if stored > 0 => error.renumbered(stored + index),
        _ => error,
    }
}

/// Stores dicts, all or none; returns their number.
///
/// # Errors
/// TypeError for what no document holds; exceptions about a measurement, with its index.
pub(crate) fn documents(py: Python<'_>, collection: &Collection, documents: &[Bound<'_, PyAny>]) -> PyResult<u64> {
    let documents = documents.iter().map(json_of_py).collect::<PyResult<Vec<_>>>()?;
    let stored = py.detach(|| {
        let values = documents.iter().enumerate().map(|(index, document)| {
            json::value_of(document).map_err(|error| {
                let what = format!("index {index}: {error}");
                Error::new(error.code(), what).renumbered(index)
            })
        });
        collection.insert_documents(&values.collect::<Result<Vec<_>, _>>()?)
    });
    stored.map_err(|error| errors::of_engine(py, &error))
}
