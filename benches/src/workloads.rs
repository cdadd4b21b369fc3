//! The workloads of the runner.

mod expiry;
mod growth;
mod items;
mod ladder;
mod lake;
mod latency;
mod memory;
mod open;
mod tsbs;
mod weather;
mod windows;
mod wire;

pub use wire::serve;

use crate::Result;
use crate::report::Report;
use std::path::PathBuf;

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The project's root.
    pub root: PathBuf,
    /// Factor by which the data is larger than usual.
    pub scale: usize,
    /// The folder of the recorded data, if not the default.
    pub data: Option<PathBuf>,
    /// The Arrow file for generated data, if requested.
    pub export: Option<PathBuf>,
    /// The SVG file for the plot of `growth`, if requested.
    pub svg: Option<PathBuf>,
    /// Number of runs of each measurement.
    pub runs: usize,
    /// Number of runs of each query, if not 15 or the number of runs.
    pub asks: Option<usize>,
    /// The start of the names of the only queries of `weather`, `tsbs` or `windows` to run, or of the parts of `items`,
    /// `ladder` or `lake`.
    pub only: Option<String>,
}

impl Plan {
    fn asks(&self) -> usize {
        self.asks.unwrap_or(self.runs.max(15))
    }

    fn wants(&self, query: &str) -> bool {
        self.only.as_deref().is_none_or(|only| query.starts_with(only))
    }
}

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Recorded weather: ingest by batches and by documents, size, queries.
    Weather,
    /// Sweeps over many buckets under rules of several lengths.
    Expiry,
    /// Opening a database with many segments.
    Open,
    /// TSBS cpu-only, from our own generator.
    Tsbs,
    /// Peak memory of inserting and of reading everything.
    Memory,
    /// Queries during ingest and sweeps, compared with an idle database.
    Latency,
    /// Costs at sizes from 1,000 to 1,000,000 buckets.
    Growth,
    /// Window functions over recorded weather, as SQL.
    Windows,
    /// A store of sessions, compared with SQLite.
    Items,
    /// Decayed data: its size, sweeps, reads, ingest beside it.
    Ladder,
    /// Copies, archives and published tables.
    Lake,
    /// The server through MongoDB's protocol, compared with mongod.
    Wire,
}

impl Workload {
    /// Runs the workload.
    ///
    /// # Errors
    /// The first error that occurs.
    pub fn run(self, plan: &Plan) -> Result<Report> {
        match self {
            Workload::Weather => weather::run(plan),
            Workload::Expiry => expiry::run(plan),
            Workload::Open => open::run(plan),
            Workload::Tsbs => tsbs::run(plan),
            Workload::Memory => memory::run(plan),
            Workload::Latency => latency::run(plan),
            Workload::Growth => growth::run(plan),
            Workload::Windows => windows::run(plan),
            Workload::Items => items::run(plan),
            Workload::Ladder => ladder::run(plan),
            Workload::Lake => lake::run(plan),
            Workload::Wire => wire::run(plan),
        }
    }
}
