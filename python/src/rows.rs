//! The result of a statement.

use crate::cells::tuples;
use crate::errors;
use crate::process::Mine;
use crate::query::{Failure, Query, Reader, Started};
use crate::wait::lock;
use arrow::array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow::datatypes::{DataType, SchemaRef};
use ebbtide_query::output;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use pyo3_arrow::PyRecordBatchReader;
use std::sync::{Arc, Mutex};

/// Rows of a statement. Those of a query are found when they are read, each time anew; those of other statements are here.
#[pyclass(frozen, module = "ebbtide._ebbtide")]
pub(crate) struct Rows {
    schema: SchemaRef,
    message: Option<String>,
    source: Mine<Source>,
    /// Why the last reader ended early.
    failure: Failure,
}

enum Source {
    /// A query, which was started once: the first reader reads that.
    Query {
        query: Arc<Query>,
        started: Mutex<Option<Started>>,
    },
    Batches(Vec<RecordBatch>),
}

/// The texts of the first rows, whether each column has numbers, whether there are more rows, and a chart.
type Preview = (Vec<Vec<Option<String>>>, Vec<bool>, bool, Option<String>);

/// Rows on their way, with the lock of the interpreter.
enum Reading {
    Query(Reader),
    Batches(std::vec::IntoIter<RecordBatch>),
}

impl Reading {
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        match self {
            Reading::Query(reader) => reader.next_batch(py),
            Reading::Batches(batches) => Ok(batches.next()),
        }
    }
}

impl Rows {
    /// Runs a statement: a query is started, all others are run to their end.
    pub(crate) fn of(py: Python<'_>, query: Query) -> PyResult<Rows> {
        let query = Arc::new(query);
        let is_read = py.detach(|| query.is_read());
        let started = query.start(py)?;
        let (schema, message) = (Arc::clone(&started.0.schema), started.0.message.clone());
        let failure = Failure::default();
        let source = if is_read {
            Source::Query { query, started: Mutex::new(Some(started)) }
        } else {
            let reader = query.read(py, started, &failure)?;
            let mut batches = Vec::new();
            while let Some(batch) = reader.next_batch(py)? {
                batches.push(batch);
            }
            Source::Batches(batches)
        };
        Ok(Rows { schema, message, source: Mine::new(source), failure })
    }

    /// The rows of one batch.
    pub(crate) fn of_batch(batch: RecordBatch) -> Rows {
        let source = Mine::new(Source::Batches(vec![batch.clone()]));
        Rows { schema: batch.schema(), message: None, source, failure: Failure::default() }
    }

    fn reading(&self, py: Python<'_>) -> PyResult<Reading> {
        // Nobody has asked for that of an earlier reading.
        self.failure.take();
        match self.source.used(py)? {
            Source::Batches(batches) => Ok(Reading::Batches(batches.clone().into_iter())),
            Source::Query { query, started } => {
                let first = lock(started).take();
                let started = first.map_or_else(|| query.start(py), Ok)?;
                Ok(Reading::Query(query.read(py, started, &self.failure)?))
            }
        }
    }

    /// Up to this many rows, and whether there are more.
    fn first_rows(&self, py: Python<'_>, limit: usize) -> PyResult<(Vec<RecordBatch>, bool)> {
        let (mut reading, mut batches, mut room) = (self.reading(py)?, Vec::new(), limit);
        while let Some(batch) = reading.next(py)? {
            if batch.num_rows() > room {
                batches.push(batch.slice(0, room));
                return Ok((batches, true));
            }
            room -= batch.num_rows();
            batches.push(batch);
        }
        Ok((batches, false))
    }
}

#[pymethods]
impl Rows {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader: Box<dyn RecordBatchReader + Send> = match self.reading(py)? {
            Reading::Query(reader) => Box::new(reader),
            Reading::Batches(batches) => {
                let batches: Vec<_> = batches.map(Ok).collect();
                Box::new(RecordBatchIterator::new(batches, Arc::clone(&self.schema)))
            }
        };
        let reader = Bound::new(py, PyRecordBatchReader::new(reader))?;
        reader.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// The exception that ended the last stream early, which its reader may know only by its message.
    fn take_failure(&self) -> Option<PyErr> {
        self.failure.take()
    }

    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    #[getter]
    fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// All rows, as tuples.
    fn tuples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let (mut reading, rows) = (self.reading(py)?, PyList::empty(py));
        while let Some(batch) = reading.next(py)? {
            tuples(&rows, &batch)?;
        }
        Ok(rows)
    }

    /// What a notebook shows: of the first `shown` rows, and a chart of up to `charted` rows if one can be drawn over time.
    fn preview(&self, py: Python<'_>, shown: usize, charted: usize) -> PyResult<Preview> {
        let (batches, more) = self.first_rows(py, charted.max(shown))?;
        let fields = self.schema.fields();
        let numeric: Vec<bool> = fields.iter().map(|field| field.data_type().is_numeric()).collect();
        let over_time = fields.iter().any(|field| matches!(field.data_type(), DataType::Timestamp(..)));
        let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
        let texts = |(batch, row): (&RecordBatch, usize)| -> Vec<Option<String>> {
            batch.columns().iter().map(|column| output::text(column.as_ref(), row)).collect()
        };
        let table: Vec<_> = rows.take(shown).map(texts).collect();
        let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let draws = over_time && !more && count > 2;
        let svg = draws.then(|| py.detach(|| ebbtide_cli::chart_svg("", &self.schema, &batches).ok())).flatten();
        Ok((table, numeric, more || count > shown, svg))
    }

    /// A chart of all rows.
    fn chart(&self, py: Python<'_>, title: &str) -> PyResult<String> {
        let (batches, _) = self.first_rows(py, usize::MAX)?;
        let drawn = py.detach(|| ebbtide_cli::chart_svg(title, &self.schema, &batches));
        drawn.map_err(|what| errors::invalid(py, what))
    }
}
