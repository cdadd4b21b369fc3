//! SQL for the server.

use crate::Failure;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use ebbtide_query::output::{Format, ResultWriter, TableStyle};
use ebbtide_query::statement::{self, Statement};
use ebbtide_query::{Access, QueryError, ScalarValue, Session, SessionSettings, SharedMemory, StatementStream, Stop};
use ebbtide_server::{Role, RowsFormat, RowsWriter, Sql, SqlError, SqlRequest, SqlResult};
use ebbtide_ttl::Code;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use serde_json::Value;
use std::io::Write;
use tokio::runtime::{self, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// Batches that are made before they are asked for.
const BATCHES_AHEAD: usize = 2;

/// Runs statements, each in a session of its own, on threads of their own: a statement that computes for long keeps no
/// connection waiting.
#[derive(Debug)]
pub(super) struct Engine {
    memory: SharedMemory,
    /// Always there until it is dropped.
    threads: Option<Runtime>,
}

impl Engine {
    /// With so many bytes of memory for all statements together.
    pub(super) fn new(memory_bytes: usize) -> Result<Engine, Failure> {
        let threads = runtime::Builder::new_multi_thread().thread_name("sql").enable_all().build()?;
        Ok(Engine { memory: SharedMemory::new(memory_bytes)?, threads: Some(threads) })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

fn failed(error: QueryError) -> SqlError {
    SqlError::Failed(error.code(), error.message().to_owned())
}

/// A statement with its session.
struct Query {
    session: Session,
    statement: Statement,
    text: String,
    parameters: Vec<ScalarValue>,
}

impl Query {
    fn new(request: SqlRequest, memory: &SharedMemory) -> Result<Query, SqlError> {
        let mut statements = statement::parse(&request.text).map_err(|e| failed(e.into()))?;
        let count = statements.len();
        let Some(statement) = statements.pop().filter(|_| count == 1) else {
            return Err(SqlError::Failed(Code::FailedToParse, format!("expected one statement, found {count}")));
        };
        let settings = SessionSettings { files: false, ..SessionSettings::default() };
        let session = Session::sharing(request.database, &settings, memory).map_err(failed)?;
        let needed = match session.access(&statement) {
            Access::Read => Role::Read,
            Access::Write => Role::Write,
            Access::Administer => Role::Admin,
        };
        if request.role < needed {
            return Err(SqlError::Forbidden(needed));
        }
        let parameters = request.parameters.iter().enumerate().map(scalar).collect::<Result<_, _>>()?;
        Ok(Query { session, statement, text: request.text, parameters })
    }

    async fn start(&self) -> Result<StatementStream, SqlError> {
        if self.parameters.is_empty() {
            return self.session.start(&self.statement, &self.text).await.map_err(failed);
        }
        let prepared = self.session.prepare(&self.text).await.map_err(failed)?;
        prepared.start(&self.parameters).await.map_err(failed)
    }

    /// Runs it. Batches go to the sender, and nothing comes after the last one.
    async fn run(self, head: oneshot::Sender<Head>, batches: mpsc::Sender<Next>) {
        let started = self.start().await;
        let (started, stream) = match started {
            Ok(StatementStream { schema, stream, message }) => (Ok((schema, stream.is_some(), message)), stream),
            Err(error) => (Err(error), None),
        };
        let (Ok(()), Some(mut stream)) = (head.send(started), stream) else { return };
        loop {
            let next = stream.next().await.transpose();
            let next = next.map_err(|error| failed(self.session.explain(&error, &self.statement, &self.text)));
            let is_last = !matches!(next, Ok(Some(_)));
            if batches.send(next).await.is_err() || is_last {
                return;
            }
        }
    }
}

/// The columns of a statement that was started, whether it has rows, and its message.
type Head = Result<(SchemaRef, bool, Option<String>), SqlError>;
type Next = Result<Option<RecordBatch>, SqlError>;

/// Ends a statement when nobody waits for it any more.
struct Guard {
    stop: Stop,
    task: AbortHandle,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop.stop();
        self.task.abort();
    }
}

fn broken() -> SqlError {
    SqlError::Failed(Code::InternalError, "the statement ended before its rows did: this is a bug".to_owned())
}

/// A parameter's value from JSON.
fn scalar((at, value): (usize, &Value)) -> Result<ScalarValue, SqlError> {
    Ok(match value {
        Value::Null => ScalarValue::Null,
        Value::Bool(value) => ScalarValue::from(*value),
        Value::String(value) => ScalarValue::from(value.as_str()),
        Value::Number(number) => match number.as_i64() {
            Some(value) => ScalarValue::from(value),
            None => ScalarValue::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::Array(_) | Value::Object(_) => {
            let what =
                format!("parameter ${} is a list or an object: give null, a boolean, a number or a string", at + 1);
            return Err(SqlError::Failed(Code::TypeMismatch, what));
        }
    })
}

struct Writer(ResultWriter);

impl RowsWriter for Writer {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), SqlError> {
        self.0.write(rows).map_err(failed)
    }

    fn finish(self: Box<Self>) -> Result<(), SqlError> {
        self.0.finish().map_err(failed)
    }
}

impl Sql for Engine {
    fn start(&self, request: SqlRequest) -> BoxFuture<'static, Result<SqlResult, SqlError>> {
        let memory = self.memory.clone();
        let threads = self.threads.as_ref().map(|threads| threads.handle().clone());
        Box::pin(async move {
            let threads = threads.ok_or_else(broken)?;
            let query = Query::new(request, &memory)?;
            let (stop, (head, started)) = (query.session.stop_handle(), oneshot::channel());
            let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
            let task = threads.spawn(query.run(head, sender)).abort_handle();
            let guard = Guard { stop, task };
            let (schema, has_rows, message) = started.await.map_err(|_| broken())??;
            let rows = stream::unfold(Some((batches, guard)), async |reading| {
                let (mut batches, guard) = reading?;
                match batches.recv().await.unwrap_or_else(|| Err(broken())) {
                    Ok(None) => None,
                    Ok(Some(rows)) => Some((Ok(rows), Some((batches, guard)))),
                    Err(error) => Some((Err(error), None)),
                }
            });
            Ok(SqlResult { schema, rows: has_rows.then(|| rows.boxed()), message })
        })
    }

    fn writer(
        &self,
        format: RowsFormat,
        schema: &SchemaRef,
        sink: Box<dyn Write + Send>,
    ) -> Result<Box<dyn RowsWriter>, SqlError> {
        let format = match format {
            RowsFormat::Table => Format::Table,
            RowsFormat::Csv => Format::Csv,
            RowsFormat::Json => Format::Json,
            RowsFormat::Ndjson => Format::Ndjson,
            RowsFormat::Parquet => Format::Parquet,
        };
        let writer = ResultWriter::new(format, schema, sink, TableStyle::default()).map_err(failed)?;
        Ok(Box::new(Writer(writer)))
    }
}
