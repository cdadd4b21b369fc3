//! Benchmarks of the engine: workloads with recorded and generated data, and shared code.
//!
//! Queries are calls of the library, and loops over the batches of a scan, as a program that embeds the engine would
//! write them. With the feature `sql` each query also runs as SQL, and must give the same answer. All times are from
//! the monotonic clock of [`ebbtide::ttl::SystemClock`].

pub mod ask;
pub mod fleet;
pub mod folder;
pub mod measure;
pub mod plot;
pub mod query;
pub mod question;
pub mod report;
#[cfg_attr(not(feature = "sql"), path = "no_sql.rs")]
pub mod sql;
pub mod tsbs;
pub mod weather;
pub mod workloads;

/// Any error ends the run.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
