//! Benchmarks of the engine: workloads with recorded and generated data, and what they share.
//!
//! Queries are calls of the library, and loops over the batches of a scan, as a program that embeds the engine writes
//! them. With the feature `sql` each is asked as SQL too, and has to give the same answer. All times come from [`ebbtide::ttl::SystemClock`]'s monotonic side.

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

/// Whatever goes wrong ends the run.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
