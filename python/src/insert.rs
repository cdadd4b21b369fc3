//! Measurements from Python: streams of Arrow, and dicts.

use crate::errors;
use crate::values::json_of_py;
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::compute::concat_batches;
use arrow::error::ArrowError;
use ebbtide::buckets::batch_bytes;
use ebbtide::{Collection, Error, json};
use ebbtide_ttl::Code;
use pyo3::prelude::*;

/// Approximate bytes of one insert; a stream of less is stored as a whole or not at all.
const INSERT_BYTES: usize = 32 << 20;

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
    Signal(PyErr),
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

/// Stores the rows of a stream; returns their number. The interpreter's lock is taken only to look for signals.
///
/// # Errors
/// Exceptions about a measurement, with its index in the whole stream, and how many were stored before.
pub(crate) fn stream(
    py: Python<'_>,
    collection: &Collection,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<u64> {
    let mut inserts = Inserts { collection, waiting: Waiting::default(), stored: 0 };
    let outcome = py.detach(|| {
        for batch in reader {
            let before = inserts.stored;
            inserts.take(&batch.map_err(Fault::Stream)?)?;
            if inserts.stored > before {
                Python::attach(|py| py.check_signals()).map_err(Fault::Signal)?;
            }
        }
        inserts.store()
    });
    let stored = inserts.stored;
    match outcome {
        Ok(()) => Ok(stored),
        Err(Fault::Refused(error)) => Err(errors::of_part(py, &moved(error, stored), stored)),
        Err(Fault::Stream(error)) => {
            let error = Error::new(Code::BadValue, format!("the stream ended with an error: {error}"));
            Err(errors::of_part(py, &error, stored))
        }
        Err(Fault::Signal(signal)) => Err(signal),
    }
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
