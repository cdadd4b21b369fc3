//! An open database, as the Python half of the package calls it.

use crate::errors;
use crate::insert;
use crate::process::Mine;
use crate::query::Query;
use crate::request::{Groups, Waited, Which};
use crate::rows::Rows;
use crate::values::{datetime_of, instant_of, json_of_py, py_of_document, py_of_json, scalar_of};
use crate::wait::{lock, runtime, wait};
use ebbtide::documents_model::json::document_from_json;
use ebbtide::{AggregateRequest, Background, CollectionSnapshot, Database, Error, FindRequest, ScanRequest, Snapshot};
use ebbtide_query::{Session, SessionSettings};
use ebbtide_ttl::Code;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A database that this process has open. Any thread may use it.
#[pyclass(frozen, module = "ebbtide._ebbtide")]
pub(crate) struct Connection {
    open: Mine<Mutex<Option<Open>>>,
}

struct Open {
    database: Database,
    session: Arc<Session>,
    /// Ends when this is dropped.
    _background: Option<Background>,
}

impl Open {
    fn new(path: PathBuf, read_only: bool, background: bool) -> Result<Open, Error> {
        let builder = ebbtide_cli::builder(path);
        let database = if read_only { builder.read_only() } else { builder }.open()?;
        let background = background.then(|| database.start_background()).transpose()?;
        let session = Session::new(database.clone()).map_err(|e| Error::new(e.code(), e.message()))?;
        Ok(Open { database, session: Arc::new(session), _background: background })
    }
}

impl Connection {
    fn database(&self, py: Python<'_>) -> PyResult<Database> {
        let open = self.open.used(py)?;
        let database = py.detach(|| lock(open).as_ref().map(|open| open.database.clone()));
        database.ok_or_else(|| closed(py))
    }

    /// Does work with the database, without the interpreter's lock.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Database) -> Result<T, Error> + Send) -> PyResult<T> {
        let database = self.database(py)?;
        py.detach(|| work(&database)).map_err(|error| errors::of_engine(py, &error))
    }

    /// A collection as of now, or with expiry decided at another instant.
    fn collection(&self, py: Python<'_>, name: &str, at: Option<&Bound<'_, PyAny>>) -> PyResult<CollectionSnapshot> {
        let at = at.map(instant_of).transpose()?;
        self.with(py, |database| {
            let snapshot: Snapshot = at.map_or_else(|| database.snapshot(), |at| database.snapshot_at(at));
            snapshot.collection(name)
        })
    }
}

fn closed(py: Python<'_>) -> PyErr {
    errors::of_engine(py, &Error::new(Code::IllegalOperation, "the database is closed: connect again"))
}

#[pymethods]
impl Connection {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, read_only: bool, background: bool) -> PyResult<Connection> {
        let runtime = runtime(py)?;
        let opened = py.detach(|| {
            let _entered = runtime.enter();
            Open::new(path, read_only, background)
        });
        let open = opened.map_err(|error| errors::of_engine(py, &error))?;
        Ok(Connection { open: Mine::new(Mutex::new(Some(open))) })
    }

    /// Seals what is open and releases the folder. Closing it again does nothing, and neither does closing it in a process
    /// that was forked.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(open) = self.open.get() else { return Ok(()) };
        let closed = py.detach(|| {
            let Some(Open { database, session, _background }) = lock(open).take() else { return Ok(()) };
            drop((session, _background));
            database.close()
        });
        closed.map_err(|error| errors::of_engine(py, &error))
    }

    #[getter]
    fn is_closed(&self, py: Python<'_>) -> bool {
        self.open.get().is_none_or(|open| py.detach(|| lock(open).is_none()))
    }

    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<PathBuf> {
        self.with(py, |database| Ok(database.path().to_owned()))
    }

    #[getter]
    fn is_read_only(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |database| Ok(database.is_read_only()))
    }

    /// The instant by which expiry is decided now.
    fn now<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let now = self.with(py, |database| Ok(database.clock().now()))?;
        datetime_of(py, now)
    }

    /// Runs one statement.
    fn sql(
        &self,
        py: Python<'_>,
        text: String,
        parameters: Vec<Bound<'_, PyAny>>,
        at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        let parameters = parameters.iter().map(scalar_of).collect::<PyResult<Vec<_>>>()?;
        let at = at.as_ref().map(instant_of).transpose()?;
        let open = self.open.used(py)?;
        let session = py.detach(|| {
            let open = lock(open);
            let Some(open) = open.as_ref() else { return Ok(None) };
            let Some(now) = at else { return Ok(Some(Arc::clone(&open.session))) };
            let settings = SessionSettings { now: Some(now), ..SessionSettings::default() };
            Session::with_settings(open.database.clone(), &settings).map(|session| Some(Arc::new(session)))
        });
        let session = session.map_err(|error| errors::of_query(py, &error))?.ok_or_else(|| closed(py))?;
        let query = py.detach(|| Query::new(session, text, parameters));
        Rows::of(py, query.map_err(|error| errors::of_query(py, &error))?)
    }

    /// Runs a command document in MongoDB's form.
    fn command<'py>(&self, py: Python<'py>, document: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let document = json_of_py(document)?;
        let reply = self.with(py, |database| database.run_command(&document))?;
        py_of_json(py, &reply)
    }

    /// The documents of an ordinary collection that match a filter.
    fn find_documents<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        asked: (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>),
        window: (i64, i64),
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (filter, sort, projection) = (json_of_py(&asked.0)?, json_of_py(&asked.1)?, json_of_py(&asked.2)?);
        let count = |n: i64, what: &str| {
            u64::try_from(n).map_err(|_| errors::invalid(py, format!("{what} is a number that is not negative")))
        };
        let (skip, limit) = (count(window.0, "skip")?, count(window.1, "limit")?);
        let found = self.with(py, |database| {
            let request = FindRequest::new(&document_from_json(&filter)?)?;
            let request = request.sort(&document_from_json(&sort)?)?;
            let mut request = request.projection(&document_from_json(&projection)?)?;
            (request.skip, request.limit) = (skip, Some(limit).filter(|limit| *limit > 0));
            database.snapshot().documents(name)?.find(request).next_batch(usize::MAX, usize::MAX)
        })?;
        found.iter().map(|document| py_of_document(py, document)).collect()
    }

    /// Stores what has `__arrow_c_stream__` or `__arrow_c_array__`.
    fn insert_arrow(&self, py: Python<'_>, name: &str, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let collection = self.with(py, |database| database.collection(name))?;
        insert::arrow(py, &collection, data)
    }

    /// Stores dicts as measurements.
    fn insert_dicts(&self, py: Python<'_>, name: &str, documents: Vec<Bound<'_, PyAny>>) -> PyResult<u64> {
        let collection = self.with(py, |database| database.collection(name))?;
        insert::documents(py, &collection, &documents)
    }

    /// The newest measurement of every meta.
    fn last_points(
        &self,
        py: Python<'_>,
        name: &str,
        fields: Option<Vec<String>>,
        which: Which<'_>,
        at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        let collection = self.collection(py, name, at.as_ref())?;
        let time = which.times()?;
        let meta = which.metas(&collection)?;
        let request = ScanRequest { projection: fields, time, meta, ..ScanRequest::default() };
        let batch = py.detach(|| collection.last_points(&request));
        batch.map(Rows::of_batch).map_err(|error| errors::of_engine(py, &error))
    }

    /// Aggregates of numbers, in groups of metas and of times.
    fn aggregate(
        &self,
        py: Python<'_>,
        name: &str,
        groups: Groups,
        which: Which<'_>,
        at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        let collection = self.collection(py, name, at.as_ref())?;
        let precision = collection.options().precision;
        let request = AggregateRequest {
            aggregates: groups.aggregates(py)?,
            time: which.times()?,
            meta: which.metas(&collection)?,
            by_meta: groups.by_meta,
            width: groups.width(py, precision)?,
            ..AggregateRequest::default()
        };
        let waited = Waited::default();
        let guard = waited.clone();
        let work = async move {
            let done = tokio::task::spawn_blocking(move || collection.aggregate_guarded(&request, &guard)).await;
            done.unwrap_or_else(|error| Err(Error::new(Code::InternalError, error.to_string())))
        };
        let stop = || {
            waited.stop();
            true
        };
        let aggregated = wait(py, work, stop)?;
        aggregated.map(|done| Rows::of_batch(done.groups)).map_err(|error| errors::of_engine(py, &error))
    }

    /// What one pass of the sweeper did.
    fn sweep<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let report = self.with(py, Database::sweep)?;
        let report = serde_json::to_value(&report).map_err(|error| errors::internal(py, &error.to_string()))?;
        py_of_json(py, &report)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Database::flush)
    }

    fn compact(&self, py: Python<'_>, name: Option<&str>) -> PyResult<()> {
        self.with(py, |database| database.compact(name))
    }

    /// Names of the time-series collections, and of the ordinary ones.
    fn collections(&self, py: Python<'_>) -> PyResult<(Vec<String>, Vec<String>)> {
        self.with(py, |database| Ok((database.collections(), database.document_collections())))
    }

    /// The time field and the meta field of a collection.
    fn fields(&self, py: Python<'_>, name: &str) -> PyResult<(String, Option<String>)> {
        let collection = self.collection(py, name, None)?;
        Ok((collection.options().time_field.clone(), collection.options().meta_field.clone()))
    }
}
