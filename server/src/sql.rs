//! SQL that comes to the server.
//!
//! The server has no query engine of its own, so that a program may serve MongoDB's protocol without one; whoever starts it may
//! bring one: see [`Server::start_with_sql`](crate::Server::start_with_sql).

use crate::accounts::Role;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use ebbtide::Database;
use ebbtide_ttl::Code;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::fmt;
use std::io::Write;
use std::sync::Arc;

/// A statement that was started.
pub struct SqlResult {
    /// The columns; empty if the statement returns no rows.
    pub schema: SchemaRef,
    /// The rows; `None` if the statement returns no rows. Dropping it ends the statement.
    pub rows: Option<BoxStream<'static, Result<RecordBatch, SqlError>>>,
    /// What was done, as a message for people.
    pub message: Option<String>,
}

impl fmt::Debug for SqlResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlResult").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// Why a statement failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqlError {
    /// Its role may not do this; the one that may.
    Forbidden(Role),
    /// Anything else.
    Failed(Code, String),
}

impl From<ebbtide::Error> for SqlError {
    fn from(error: ebbtide::Error) -> Self {
        SqlError::Failed(error.code(), error.to_string())
    }
}

/// A text form or file format for rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsFormat {
    /// A table for people.
    Table,
    /// Comma-separated values with a header.
    Csv,
    /// One JSON array of objects.
    Json,
    /// One JSON object per line.
    Ndjson,
    /// A Parquet file.
    Parquet,
}

/// Writes the rows of one result.
pub trait RowsWriter: Send {
    /// Writes some rows.
    ///
    /// # Errors
    /// If a value has no form in the format.
    fn write(&mut self, rows: &RecordBatch) -> Result<(), SqlError>;

    /// Writes what comes after the rows.
    ///
    /// # Errors
    /// If that fails.
    fn finish(self: Box<Self>) -> Result<(), SqlError>;
}

/// What is known of a statement before it is started.
#[derive(Debug, Clone)]
pub struct SqlDescription {
    /// The types of `$1`, `$2` and so on; `None` for those that the statement leaves open.
    pub parameters: Vec<Option<DataType>>,
    /// The columns of its rows; `None` if it returns no rows, or only values for its parameters can tell.
    pub columns: Option<SchemaRef>,
    /// Why nothing is known of its columns without values.
    pub unknown: Option<SqlError>,
}

impl SqlDescription {
    /// The description, unless its columns are unknown.
    pub(crate) fn known(self) -> Result<SqlDescription, SqlError> {
        match self.unknown {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }
}

/// What a statement is, as far as protocols tell it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlKind {
    /// It reads: a query or a listing.
    Query,
    /// It writes, and its only row is the number of rows written.
    Write,
    /// All else.
    Other,
}

/// A statement of a session, which may be started any number of times.
pub trait SqlStatement: fmt::Debug + Send + Sync {
    /// The role that it needs.
    fn needs(&self) -> Role;

    /// What it is.
    fn kind(&self) -> SqlKind;

    /// Its first words in capitals: `SELECT`, `CREATE COLLECTION`.
    fn tag(&self) -> String;

    /// The number of its parameters.
    fn takes(&self) -> usize;

    /// Checks it, and says what it takes and returns.
    fn describe(self: Arc<Self>) -> BoxFuture<'static, Result<SqlDescription, SqlError>>;

    /// The columns of its rows with values for `$1`, `$2` and so on, each an array of one.
    fn columns(self: Arc<Self>, values: Vec<ArrayRef>) -> BoxFuture<'static, Result<SchemaRef, SqlError>>;

    /// Starts it with values for `$1`, `$2` and so on, each an array of one. A statement that writes has done so when the result
    /// is there.
    fn start(self: Arc<Self>, values: Vec<ArrayRef>) -> SqlStarting;
}

/// A statement that is being started.
pub struct SqlStarting {
    /// What it gives. Dropping it ends the statement, unless it has begun to commit what it writes.
    pub result: BoxFuture<'static, Result<SqlResult, SqlError>>,
    /// Stops it; `false` if it has begun to commit what it writes: then its result comes soon, and tells whether it was done.
    pub stop: Box<dyn FnOnce() -> bool + Send>,
}

impl fmt::Debug for SqlStarting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStarting").finish_non_exhaustive()
    }
}

impl SqlStarting {
    /// What it gives. If `ended` comes first, the statement is stopped, and the error is what `ended` gives, unless the statement
    /// takes effect all the same.
    pub(crate) async fn unless<E>(self, ended: impl Future<Output = E>) -> Result<Result<SqlResult, SqlError>, E> {
        let SqlStarting { mut result, stop } = self;
        let why = tokio::select! {
            biased;
            started = &mut result => return Ok(started),
            why = ended => why,
        };
        if stop() {
            return Err(why);
        }
        match result.await {
            Err(SqlError::Failed(Code::Interrupted, _)) => Err(why),
            done => Ok(done),
        }
    }
}

/// What lasts between statements: settings, and the views and tables that they create.
pub trait SqlSession: fmt::Debug + Send + Sync {
    /// Parses a text into its statements.
    ///
    /// # Errors
    /// The first syntax error that can be found without knowing the tables.
    fn parse(self: Arc<Self>, text: &str) -> Result<Vec<Arc<dyn SqlStatement>>, SqlError>;
}

/// Runs SQL for a server.
pub trait Sql: fmt::Debug + Send + Sync {
    /// Begins a session; `client` is that of PostgreSQL's protocol, if it is for one: the names of the database and of the account.
    ///
    /// # Errors
    /// If that fails.
    fn session(&self, database: Database, client: Option<(&str, &str)>) -> Result<Arc<dyn SqlSession>, SqlError>;

    /// The values of a column as texts of JSON, null where they are.
    ///
    /// # Errors
    /// If a value has no form in JSON.
    fn json(&self, column: &ArrayRef) -> Result<ArrayRef, SqlError>;

    /// The list with items of this type that PostgreSQL's text for an array stands for, such as `{a,b}`: an array of one.
    ///
    /// # Errors
    /// If the text is no array, or one of its items is no value of the type.
    fn list(&self, text: &str, item: &DataType) -> Result<ArrayRef, SqlError>;

    /// A writer of rows with these columns.
    ///
    /// # Errors
    /// If the columns have no form in the format.
    fn writer(
        &self,
        format: RowsFormat,
        schema: &SchemaRef,
        sink: Box<dyn Write + Send>,
    ) -> Result<Box<dyn RowsWriter>, SqlError>;
}

/// The one statement of a text, if whoever asks may run it.
pub(crate) fn single(
    sql: &dyn Sql,
    database: Database,
    text: &str,
    role: Role,
) -> Result<Arc<dyn SqlStatement>, SqlError> {
    let mut statements = sql.session(database, None)?.parse(text)?;
    let count = statements.len();
    let Some(statement) = statements.pop().filter(|_| count == 1) else {
        return Err(SqlError::Failed(Code::FailedToParse, format!("expected one statement, found {count}")));
    };
    check(&*statement, role)?;
    Ok(statement)
}

/// Refuses a statement that needs another role.
pub(crate) fn check(statement: &dyn SqlStatement, role: Role) -> Result<(), SqlError> {
    let needs = statement.needs();
    if role < needs { Err(SqlError::Forbidden(needs)) } else { Ok(()) }
}
