//! Benchmarks of the engine: workloads with recorded and generated data, and what they share.
//!
//! Nothing here compiles SQL: queries are loops over the batches of a scan, as a program that embeds the engine writes
//! them. All times come from [`ebbtide::ttl::SystemClock`]'s monotonic side.

pub mod fleet;
pub mod folder;
pub mod measure;
pub mod query;
pub mod report;
pub mod tsbs;
pub mod weather;
pub mod workloads;

/// Whatever goes wrong ends the run.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
