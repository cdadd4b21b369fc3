//! A statement with the session that runs it, and its rows as they come.

use crate::errors;
use crate::process::Mine;
use crate::wait::{lock, receive, runtime, wait};
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use ebbtide_query::statement::{Statement, parse};
use ebbtide_query::{QueryError, ScalarValue, Session, StatementStream, Stop};
use ebbtide_ttl::Code;
use futures::StreamExt;
use pyo3::prelude::*;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Batches that are made before they are asked for.
const BATCHES_AHEAD: usize = 4;

/// A statement that runs, and what ends it when nobody reads it any more.
pub(crate) type Started = (StatementStream, StopAtDrop);

/// Stops one run of a statement: others of its session go on.
#[derive(Default)]
pub(crate) struct StopAtDrop(Stop);

impl Drop for StopAtDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A statement that was parsed.
pub(crate) struct Query {
    session: Arc<Session>,
    statement: Statement,
    text: String,
    parameters: Vec<ScalarValue>,
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Query").field(&self.text).finish()
    }
}

impl Query {
    /// Parses the one statement in `text`.
    ///
    /// # Errors
    /// [`Code::FailedToParse`], also for parameters of a statement that is not a query.
    pub(crate) fn new(session: Arc<Session>, text: String, parameters: Vec<ScalarValue>) -> Result<Query, QueryError> {
        let mut statements = parse(&text)?;
        let count = statements.len();
        let Some(statement) = statements.pop().filter(|_| count == 1) else {
            return Err(QueryError::new(Code::FailedToParse, format!("expected one statement, found {count}")));
        };
        Ok(Query { session, statement, text, parameters })
    }

    /// Whether it may be run again and again.
    pub(crate) fn is_read(&self) -> bool {
        self.session.is_read(&self.statement)
    }

    async fn begin(&self) -> Result<StatementStream, QueryError> {
        if self.parameters.is_empty() {
            return self.session.start(&self.statement, &self.text).await;
        }
        self.session.prepare(&self.text).await?.start(&self.parameters).await
    }

    /// Starts it: now it is known whether it is right, and what it reads.
    ///
    /// # Errors
    /// Exceptions about the statement, and of signals.
    pub(crate) fn start(self: &Arc<Self>, py: Python<'_>) -> PyResult<Started> {
        let (query, running) = (Arc::clone(self), StopAtDrop::default());
        let begun = running.0.clone().scope(async move { query.begin().await });
        let started = wait(py, begun, || running.0.stop())?;
        started.map(|started| (started, running)).map_err(|error| errors::of_query(py, &error))
    }

    /// The rows of a statement that was started.
    ///
    /// # Errors
    /// If the runtime cannot be made.
    pub(crate) fn read(
        self: &Arc<Self>,
        py: Python<'_>,
        (started, stop): Started,
        failure: &Failure,
    ) -> PyResult<Reader> {
        let (sender, batches) = channel();
        let ahead = Arc::new(Semaphore::new(BATCHES_AHEAD));
        let (query, room) = (Arc::clone(self), Arc::clone(&ahead));
        let task = runtime(py)?.spawn(async move {
            let Some(mut stream) = started.stream else {
                let _ = sender.send(Ok(None));
                return;
            };
            while let Ok(permit) = room.acquire().await {
                permit.forget();
                let next = stream.next().await.transpose();
                let next = next.map_err(|e| query.session.explain(&e, &query.statement, &query.text));
                let is_last = !matches!(next, Ok(Some(_)));
                if sender.send(next).is_err() || is_last {
                    return;
                }
            }
        });
        let task = task.abort_handle();
        let (batches, is_over) = (Mutex::new(batches), AtomicBool::new(false));
        let running = Mine::new(Running { batches, ahead, task, is_over, stop });
        Ok(Reader { schema: started.schema, running, failure: failure.clone() })
    }
}

/// Why a stream ended early: whoever reads it through Arrow's C interface knows only the message.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<PyErr>>>);

impl Failure {
    /// Takes it.
    pub(crate) fn take(&self) -> Option<PyErr> {
        lock(&self.0).take()
    }
}

type Next = Result<Option<RecordBatch>, QueryError>;

/// The rows of a running statement. Dropping it ends the statement.
pub(crate) struct Reader {
    schema: SchemaRef,
    running: Mine<Running>,
    failure: Failure,
}

struct Running {
    /// A batch, `None` after the last one, or why there are no more.
    batches: Mutex<Receiver<Next>>,
    ahead: Arc<Semaphore>,
    task: AbortHandle,
    is_over: AtomicBool,
    stop: StopAtDrop,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reader {
    /// The next batch, waiting for it.
    ///
    /// # Errors
    /// The exception about the statement, or of a signal.
    pub(crate) fn next_batch(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        self.running.used(py)?.next_batch(py)
    }
}

impl Running {
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        let batch = receive(py, &self.batches).inspect_err(|_| {
            self.stop.0.stop();
            self.task.abort();
        })?;
        match batch {
            Some(next) => self.taken(next).map_err(|error| errors::of_query(py, &error)),
            // A task that ended without a word is not the end of the rows.
            None if self.is_over.load(Ordering::Relaxed) => Ok(None),
            None => Err(errors::internal(py, "the query ended without its last rows")),
        }
    }

    /// Makes room for another batch.
    fn taken(&self, next: Next) -> Next {
        self.ahead.add_permits(1);
        self.is_over.fetch_or(!matches!(next, Ok(Some(_))), Ordering::Relaxed);
        next
    }

    /// What is there, without waiting for it and without the lock of the interpreter.
    fn ready(&self) -> Option<Next> {
        let next = lock(&self.batches).try_recv().ok()?;
        Some(self.taken(next))
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let ready = self.running.get().and_then(Running::ready);
        if let Some(Ok(next)) = ready {
            return next.map(Ok);
        }
        // An interpreter that is being shut down has no use for the rows.
        Python::try_attach(|py| {
            let next = match ready {
                Some(Err(error)) => Err(errors::of_query(py, &error)),
                _ => self.next_batch(py),
            };
            next.map_err(|error| {
                let message = error.value(py).to_string();
                let message = if message.is_empty() { "interrupted".to_owned() } else { message };
                *lock(&self.failure.0) = Some(error);
                ArrowError::ExternalError(message.into())
            })
            .transpose()
        })?
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
