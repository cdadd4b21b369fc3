//! Ebbtide on the network.
//!
//! A [`Server`] opens doors to one database, or to a folder of them, for programs that speak MongoDB's wire protocol:
//! MongoDB's drivers, mongosh, and what is built on them; HTTP has its metrics, InfluxDB's line protocol, Prometheus remote write, and SQL where [`Server::start_with_sql`] brings it. It runs the engine's background work as well.
//!
//! ```
//! use ebbtide_server::{Databases, Server, Settings};
//!
//! # let folder = tempfile::tempdir()?;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let databases = Databases::one(folder.path().join("weather"))?;
//! let settings = Settings { mongodb: Some(0), ..Settings::default() };
//! let server = Server::start(databases, settings).await?;
//! println!("mongodb {}", server.mongodb_address().expect("it was asked for"));
//! server.stop().await?;
//! # Ok::<(), ebbtide_server::Failure>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accounts;
mod admin;
mod admission;
mod aggregate;
mod batches;
mod cancellations;
mod client;
mod collections;
mod columns;
mod command;
mod conditions;
mod config;
mod connection;
mod current;
mod cursors;
mod databases;
mod deadline;
mod dispatch;
mod ends;
mod error;
mod explain;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod groups;
mod handshake;
mod http;
mod json;
mod limits;
mod listed;
mod login;
mod measurements;
mod newest;
mod operations;
mod output;
mod piped;
mod postgres;
mod profile;
mod profiler;
mod read;
mod reply;
mod scram;
mod serve;
mod settings;
mod shared;
mod shell;
mod source;
mod sql;
mod tls;
mod usage;
mod write;

pub use accounts::{Accounts, AccountsFile, Role};
pub use config::{Config, LogFormat};
pub use databases::{Databases, Opener};
pub use error::Failure;
pub use serve::{Server, Signals};
pub use settings::{AutoCreate, Prometheus, Settings, TlsFiles};
pub use sql::{
    RowsFormat, RowsWriter, Sql, SqlDescription, SqlError, SqlKind, SqlResult, SqlSession, SqlStarting, SqlStatement,
};
