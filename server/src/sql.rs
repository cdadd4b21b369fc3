//! SQL that comes to the server.
//!
//! The server has no query engine of its own, so that a program may serve MongoDB's protocol without one; whoever starts it may
//! bring one: see [`Server::start_with_sql`](crate::Server::start_with_sql).

use crate::accounts::Role;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use ebbtide::Database;
use ebbtide_ttl::Code;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::fmt;
use std::io::Write;

/// A statement that is to be run.
#[derive(Debug, Clone)]
pub struct SqlRequest {
    /// The database that it is about.
    pub database: Database,
    /// The statement.
    pub text: String,
    /// Values for `$1`, `$2` and so on.
    pub parameters: Vec<serde_json::Value>,
    /// What whoever asks may do.
    pub role: Role,
}

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

/// Runs SQL for a server.
pub trait Sql: fmt::Debug + Send + Sync {
    /// Starts a statement.
    fn start(&self, request: SqlRequest) -> BoxFuture<'static, Result<SqlResult, SqlError>>;

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
