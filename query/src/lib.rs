//! SQL over Ebbtide's snapshots, on DataFusion.
//!
//! - [`Session`] runs statements from their text; [`Session::prepare`] makes a [`PreparedStatement`] with parameters.
//! - [`output`] turns results into tables, CSV, JSON, Parquet and Arrow.
//! - [`statement`] splits a text into statements and tells what each one is.
//! - [`system`] has the names of the system tables, and listings as Arrow batches.
//!
//! ```
//! use ebbtide::Database;
//! use ebbtide_query::Session;
//!
//! # let folder = tempfile::tempdir()?;
//! # let runtime = tokio::runtime::Runtime::new()?;
//! # runtime.block_on(async {
//! let session = Session::new(Database::open(folder.path().join("weather"))?)?;
//! session.execute("CREATE COLLECTION w WITH (timeField = 't', metaField = 's') EXPIRE AFTER 1 DAY").await?;
//! session.execute("INSERT INTO w (t, s, temp) VALUES (now(), 'roof', 21.5)").await?;
//! let result = session.execute("SELECT s, avg(temp) FROM w GROUP BY s").await?;
//! assert_eq!(result.rows(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod array_text;
mod at_once;
mod balance;
mod barriers;
mod cancellation;
mod catalog;
mod context;
mod correlated;
mod distinct_subqueries;
mod dml;
mod documents;
mod engine_aggregate;
mod error;
mod exec;
mod files;
mod filter_projections;
mod first_rows;
mod frames;
mod functions;
mod groups;
mod join_filter;
mod joined_metas;
mod late_context;
mod leaf;
mod like;
mod lossy_filters;
mod named_columns;
mod options;
pub mod output;
mod parsing;
mod planning;
#[cfg(feature = "postgres")]
pub mod postgres;
mod prepared;
mod provider;
mod pushdown;
mod scan_spec;
mod session;
mod session_tables;
mod several;
mod sorted_runs;
mod sql;
pub mod statement;
pub mod system;
pub mod text_table;
mod timestamp_coercion;
mod top_k_filter;
mod views;
mod words;
#[cfg(feature = "workers")]
mod workers;
mod zeros_in_lists;

pub use cancellation::Stop;
pub use datafusion::common::ScalarValue;
pub use ebbtide::suggest;
pub use error::{QueryError, Result};
pub use functions::TABLE_FUNCTIONS;
pub use parsing::reads_only_files;
pub use prepared::{PreparedQuery, PreparedStatement};
pub use session::{
    Access, DEFAULT_MEMORY_BYTES, Session, SessionSettings, SharedMemory, StatementResult, StatementStream,
    changes_database, may_return_rows, returns_rows,
};
#[cfg(feature = "workers")]
pub use workers::{Serving, WorkerSettings, WorkerToken, Workers};
