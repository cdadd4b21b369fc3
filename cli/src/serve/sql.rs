//! SQL for the server.

use crate::Failure;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, SchemaRef};
use ebbtide::{Database, FileAccess};
use ebbtide_query::output::{Format, ResultWriter, TableStyle, json_rows};
use ebbtide_query::postgres::{self, PostgresClient};
use ebbtide_query::statement::{self, Statement, StatementKind};
use ebbtide_query::{
    Access, PreparedQuery, QueryError, ScalarValue, Session, SessionSettings, SharedMemory, StatementStream, Stop,
};
use ebbtide_server::{
    Role, RowsFormat, RowsWriter, Sql, SqlDescription, SqlError, SqlKind, SqlResult, SqlSession, SqlStarting,
    SqlStatement,
};
use ebbtide_ttl::Code;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::AbortHandle;

/// Batches that are made before they are asked for.
const BATCHES_AHEAD: usize = 2;
/// The highest number of a parameter, as in PostgreSQL's protocol, whose messages count parameters in 16 bits.
const PARAMETERS_MAX: usize = 65_535;

/// Runs statements on threads of their own: a statement that computes for long keeps no connection waiting. Queries that were
/// prepared or run before, and read few rows, run on the thread of their connection.
#[derive(Debug)]
pub(super) struct Engine {
    memory: SharedMemory,
    files: FileAccess,
    /// Always there until it is dropped.
    threads: Option<Runtime>,
    idle: Arc<IdleSessions>,
}

/// Sessions for statements that arrive without one, over HTTP or Flight SQL. Each has only run queries, and knows their plans.
#[derive(Debug, Default)]
struct IdleSessions(Mutex<Vec<Arc<Session>>>);

/// The most sessions that are kept.
const IDLE_MAX: usize = 16;

impl IdleSessions {
    fn take(&self, database: &Database) -> Option<Arc<Session>> {
        // A kept session keeps its database open, so the address of the path identifies the database.
        let is_of = |session: &Arc<Session>| std::ptr::eq(session.database().path(), database.path());
        let mut sessions = self.sessions();
        let at = sessions.iter().rposition(is_of)?;
        Some(sessions.remove(at))
    }

    fn put(&self, session: &Arc<Session>) {
        let mut sessions = self.sessions();
        let oldest = (sessions.len() == IDLE_MAX).then(|| sessions.remove(0));
        sessions.push(Arc::clone(session));
        // Other requests need not wait while it is dropped.
        drop(sessions);
        drop(oldest);
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// With this memory for all statements together, and the files that they may name.
    pub(super) fn new(memory_bytes: usize, files: FileAccess) -> Result<Engine, Failure> {
        let threads = runtime::Builder::new_multi_thread().thread_name("sql").enable_all().build()?;
        Ok(Engine { memory: SharedMemory::new(memory_bytes)?, files, threads: Some(threads), idle: Arc::default() })
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

fn broken() -> SqlError {
    SqlError::Failed(Code::InternalError, "the statement ended before its rows did: this is a bug".to_owned())
}

/// A session, and where its statements run.
#[derive(Debug)]
struct Connected {
    session: Arc<Session>,
    threads: Handle,
    /// Whether it is for a client of PostgreSQL's protocol.
    is_postgres: bool,
    /// Where the session is kept for other statements, if it is not one that a client has to itself.
    idle: Option<Arc<IdleSessions>>,
    /// Whether it has only run queries.
    has_only_read: AtomicBool,
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Some(idle) = &self.idle
            && self.has_only_read.load(Ordering::Relaxed)
            && !self.session.has_own_tables()
        {
            idle.put(&self.session);
        }
    }
}

impl SqlSession for Connected {
    fn parse(self: Arc<Self>, text: &str) -> Result<Vec<Arc<dyn SqlStatement>>, SqlError> {
        let rewritten = if self.is_postgres { postgres::rewritten(text) } else { None };
        let text: Arc<str> = rewritten.map_or_else(|| Arc::from(text), Arc::from);
        let statements = statement::parse(&text).map_err(|e| failed(e.into()))?;
        for statement in &statements {
            let count = statement.parameter_count();
            if count > PARAMETERS_MAX {
                let message = format!("there is no parameter ${count}: a statement has {PARAMETERS_MAX} at most");
                return Err(failed(QueryError::new(Code::BadValue, message)));
            }
        }
        let one = |statement| {
            let access = self.session.access(&statement);
            let is_query = statement.kind == StatementKind::Sql && self.session.is_read(&statement);
            if !is_query {
                self.has_only_read.store(false, Ordering::Relaxed);
            }
            let (connected, text) = (Arc::clone(&self), Arc::clone(&text));
            Arc::new(One { connected, statement, text, access, is_query, prepared: OnceCell::new() }) as Arc<_>
        };
        Ok(statements.into_iter().map(one).collect())
    }
}

/// A statement of a session.
struct One {
    connected: Arc<Connected>,
    statement: Statement,
    /// The whole text that it was parsed from.
    text: Arc<str>,
    access: Access,
    /// Whether it can be prepared.
    is_query: bool,
    prepared: OnceCell<Arc<PreparedQuery>>,
}

impl fmt::Debug for One {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("One").field("statement", &self.statement.text).finish_non_exhaustive()
    }
}

impl One {
    async fn prepared(&self) -> Result<&Arc<PreparedQuery>, SqlError> {
        let session = &self.connected.session;
        let prepare = || session.prepare_query(self.statement.clone(), &self.text);
        self.prepared.get_or_try_init(prepare).await.map_err(failed)
    }

    async fn begin(&self, values: &[ScalarValue]) -> Result<StatementStream, SqlError> {
        let session = &self.connected.session;
        if self.is_query && (!values.is_empty() || self.prepared.initialized()) {
            let started = match self.prepared().await {
                Ok(prepared) => prepared.start(session, values).await.map_err(failed),
                Err(error) => Err(error),
            };
            return match started {
                // Some queries cannot be planned without their values.
                Err(error @ SqlError::Failed(Code::BadValue | Code::FailedToParse, _)) if !values.is_empty() => {
                    self.begin_with(values).await.unwrap_or(Err(error))
                }
                started => started,
            };
        }
        if self.statement.parameter_count() == 0 && values.is_empty() {
            return session.start(&self.statement, &self.text).await.map_err(failed);
        }
        self.begin_with(values).await.map_err(failed)?
    }

    /// Starts it with values in its text; the outer error is that a value has no form there.
    async fn begin_with(&self, values: &[ScalarValue]) -> Result<Result<StatementStream, SqlError>, QueryError> {
        let text = self.statement.with_values(values)?;
        let statements = statement::parse(&text)?;
        Ok(match statements.first() {
            Some(filled) => self.connected.session.start(filled, &text).await.map_err(failed),
            None => Err(broken()),
        })
    }

    /// Starts a query that was prepared, or run before, and reads few rows on the thread of the connection: waking another
    /// thread would take as long.
    async fn started_short(self: &Arc<Self>, values: &[ScalarValue]) -> Result<Option<SqlResult>, SqlError> {
        let session = &self.connected.session;
        let started = match self.prepared.get() {
            Some(prepared) => prepared.start_short(session, values).await.map_err(failed)?,
            None if values.is_empty() => session.start_short(&self.statement).await,
            None => None,
        };
        let Some(StatementStream { schema, stream: Some(stream), message }) = started else { return Ok(None) };
        let this = Arc::clone(self);
        let explain = move |error| failed(this.connected.session.explain(&error, &this.statement, &this.text));
        Ok(Some(SqlResult { schema, rows: Some(stream.map_err(explain).boxed()), message }))
    }

    /// Runs it. Batches go to the sender, and nothing comes after the last one.
    async fn run(self: Arc<Self>, values: Vec<ScalarValue>, head: oneshot::Sender<Head>, batches: mpsc::Sender<Next>) {
        let StatementStream { schema, stream, message } = match self.begin(&values).await {
            Ok(started) => started,
            Err(error) => return drop(head.send(Err(error))),
        };
        let Some(mut stream) = stream else { return drop(head.send(Ok((schema, None, message)))) };
        let explain = |error| failed(self.connected.session.explain(&error, &self.statement, &self.text));
        let mut next = async || -> Next { stream.next().await.transpose().map_err(explain) };
        // The first rows go with the head, and the end with them if it is known at once: each message wakes another thread.
        let mut first = vec![next().await];
        if first.iter().all(is_followed) {
            first.extend(next().now_or_never());
        }
        let mut goes_on = first.iter().all(is_followed);
        if head.send(Ok((schema, Some(first), message))).is_err() {
            return;
        }
        while goes_on {
            let rows = next().await;
            goes_on = is_followed(&rows);
            if batches.send(rows).await.is_err() {
                return;
            }
        }
    }

    async fn described_query(&self) -> Result<SqlDescription, SqlError> {
        let (session, count) = (&self.connected.session, self.statement.parameter_count());
        let prepared = self.prepared().await;
        let error = match &prepared {
            Ok(prepared) => match prepared.columns(session).await {
                Ok(columns) => {
                    let parameters = prepared.parameter_types().map_err(failed)?;
                    return Ok(SqlDescription { parameters, columns: Some(columns), unknown: None });
                }
                Err(error) => failed(error),
            },
            Err(error) => error.clone(),
        };
        if count == 0 {
            return Err(error);
        }
        let prepared = prepared.ok().map(Arc::as_ref);
        if let Ok((parameters, columns)) = session.described_by_samples(&self.statement, prepared).await {
            return Ok(SqlDescription { parameters, columns: Some(columns), unknown: None });
        }
        // The values may say more.
        let known = prepared.and_then(|prepared| prepared.parameter_types().ok());
        Ok(SqlDescription {
            parameters: known.unwrap_or_else(|| vec![None; count]),
            columns: None,
            unknown: Some(error),
        })
    }

    async fn description(self: Arc<Self>) -> Result<SqlDescription, SqlError> {
        if self.is_query {
            if !self.prepared.initialized()
                && let Some(columns) = self.connected.session.known_columns(&self.statement)
            {
                return Ok(SqlDescription { parameters: Vec::new(), columns: Some(columns), unknown: None });
            }
            return self.described_query().await;
        }
        let parameters = match self.kind() {
            SqlKind::Write => self.connected.session.write_parameters(&self.statement).await,
            _ => vec![None; self.statement.parameter_count()],
        };
        // What a listing shows is known once it was made, and what an EXECUTE returns once it was started.
        let is_started = match (&self.statement.kind, self.tag().as_str()) {
            (StatementKind::Sql, "SHOW" | "EXPLAIN") => true,
            // Another statement may have been prepared under this name since.
            (StatementKind::Sql, "EXECUTE") => self.connected.session.access(&self.statement) == Access::Read,
            (kind, _) => *kind != StatementKind::Sql,
        };
        let columns = match self.kind() {
            SqlKind::Query if parameters.is_empty() && is_started => {
                let started = self.begin(&[]).await?;
                started.stream.is_some().then_some(started.schema)
            }
            _ => None,
        };
        Ok(SqlDescription { parameters, columns, unknown: None })
    }
}

/// The columns of a statement that was started, the first of its rows if it has any, and its message.
type Head = Result<(SchemaRef, Option<Vec<Next>>, Option<String>), SqlError>;
/// Rows; `None` is their end.
type Next = Result<Option<RecordBatch>, SqlError>;

/// The values of arrays of one.
fn scalars(values: &[ArrayRef]) -> Result<Vec<ScalarValue>, SqlError> {
    values.iter().map(|value| ScalarValue::try_from_array(value, 0).map_err(|e| failed(e.into()))).collect()
}

fn is_followed(next: &Next) -> bool {
    matches!(next, Ok(Some(_)))
}

/// Ends a statement that still runs when nobody waits for it any more.
struct Guard {
    stop: Stop,
    task: AbortHandle,
    /// The session is not used for other statements until this one has been stopped.
    _connected: Arc<Connected>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // One that commits what it writes goes on to its end.
        if !self.task.is_finished() && self.stop.stop() {
            self.task.abort();
        }
    }
}

impl SqlStatement for One {
    fn needs(&self) -> Role {
        match self.access {
            Access::Read => Role::Read,
            Access::Write => Role::Write,
            Access::Administer => Role::Admin,
        }
    }

    fn kind(&self) -> SqlKind {
        match (self.access, &self.statement.kind) {
            (Access::Write, StatementKind::Sql) if ["INSERT", "UPDATE", "DELETE"].contains(&self.tag().as_str()) => {
                SqlKind::Write
            }
            (Access::Read, _) => SqlKind::Query,
            _ => SqlKind::Other,
        }
    }

    fn tag(&self) -> String {
        self.statement.first_words()
    }

    fn takes(&self) -> usize {
        self.statement.parameter_count()
    }

    fn describe(self: Arc<Self>) -> BoxFuture<'static, Result<SqlDescription, SqlError>> {
        let threads = self.connected.threads.clone();
        Box::pin(async move { threads.spawn(self.description()).await.map_err(|_| broken())? })
    }

    fn columns(self: Arc<Self>, values: Vec<ArrayRef>) -> BoxFuture<'static, Result<SchemaRef, SqlError>> {
        let threads = self.connected.threads.clone();
        let columns = async move {
            let values = scalars(&values)?;
            if !self.is_query {
                return Ok(self.begin(&values).await?.schema);
            }
            let columns = self.prepared().await?.columns_with(&self.connected.session, Some(&values)).await;
            columns.map_err(failed)
        };
        Box::pin(async move { threads.spawn(columns).await.map_err(|_| broken())? })
    }

    fn start(self: Arc<Self>, values: Vec<ArrayRef>) -> SqlStarting {
        let stop = Stop::default();
        let stops = stop.clone();
        let result = Box::pin(async move {
            let values = scalars(&values)?;
            let (head, started) = oneshot::channel();
            let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
            if let Some(started) = self.started_short(&values).await? {
                return Ok(started);
            }
            let (connected, threads) = (Arc::clone(&self.connected), self.connected.threads.clone());
            let task = threads.spawn(stop.clone().scope(self.run(values, head, sender))).abort_handle();
            let guard = Guard { stop, task, _connected: connected };
            let (schema, first, message) = started.await.map_err(|_| broken())??;
            let rows = first.map(|first| {
                let reading = (first.into_iter(), batches, guard);
                let rows = stream::unfold(Some(reading), async |reading| {
                    let (mut first, mut batches, guard) = reading?;
                    let next = match first.next() {
                        Some(next) => next,
                        None => batches.recv().await.unwrap_or_else(|| Err(broken())),
                    };
                    match next {
                        Ok(None) => None,
                        Ok(Some(rows)) => Some((Ok(rows), Some((first, batches, guard)))),
                        Err(error) => Some((Err(error), None)),
                    }
                });
                rows.boxed()
            });
            Ok(SqlResult { schema, rows, message })
        });
        SqlStarting { result, stop: Box::new(move || stops.stop()) }
    }
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
    fn session(&self, database: Database, client: Option<(&str, &str)>) -> Result<Arc<dyn SqlSession>, SqlError> {
        let threads = self.threads.as_ref().ok_or_else(broken)?.handle().clone();
        let named =
            |(database, user): (&str, &str)| PostgresClient { database: database.to_owned(), user: user.to_owned() };
        let (postgres, is_postgres) = (client.map(named), client.is_some());
        let settings = SessionSettings { files: self.files.clone(), postgres, ..SessionSettings::default() };
        let idle = Some(Arc::clone(&self.idle)).filter(|_| !is_postgres);
        let session = match idle.as_ref().and_then(|idle| idle.take(&database)) {
            Some(session) => session,
            None => Arc::new(Session::sharing(database, &settings, &self.memory).map_err(failed)?),
        };
        Ok(Arc::new(Connected { session, threads, is_postgres, idle, has_only_read: AtomicBool::new(true) }))
    }

    fn json(&self, column: &ArrayRef) -> Result<ArrayRef, SqlError> {
        let name = "value";
        let batch = RecordBatch::try_from_iter([(name, Arc::clone(column))]).map_err(|e| failed(e.into()))?;
        let rows = json_rows(&batch).map_err(failed)?;
        let texts = rows.iter().map(|row| row.get(name).filter(|value| !value.is_null()).map(ToString::to_string));
        Ok(Arc::new(texts.collect::<StringArray>()))
    }

    fn list(&self, text: &str, item: &DataType) -> Result<ArrayRef, SqlError> {
        postgres::list(text, item).map_err(failed)
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
