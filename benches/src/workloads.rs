//! The workloads of the runner.

mod expiry;
mod growth;
mod latency;
mod memory;
mod open;
mod tsbs;
mod weather;

use crate::Result;
use crate::report::Report;
use std::path::PathBuf;

/// How a workload is run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The project's root.
    pub root: PathBuf,
    /// How much larger than its usual size the data is.
    pub scale: usize,
    /// Where the recorded data lies, if not in the usual place.
    pub data: Option<PathBuf>,
    /// Where generated data goes as an Arrow file, if it is wanted.
    pub export: Option<PathBuf>,
    /// Where the plot of `growth` goes as SVG, if it is wanted.
    pub svg: Option<PathBuf>,
    /// How often each thing is measured.
    pub runs: usize,
    /// How often each query is asked, if not 15 times or as often as there are runs.
    pub asks: Option<usize>,
    /// The only query of `weather` or `tsbs` that is asked, by how its name begins.
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
    /// Opening a database of many segments.
    Open,
    /// TSBS cpu-only, from our own generator.
    Tsbs,
    /// Peak memory of inserting and of reading everything.
    Memory,
    /// Queries during ingest and sweeps beside quiet ones.
    Latency,
    /// Costs over three decades of size.
    Growth,
}

impl Workload {
    /// Runs it.
    ///
    /// # Errors
    /// The first that is met.
    pub fn run(self, plan: &Plan) -> Result<Report> {
        match self {
            Workload::Weather => weather::run(plan),
            Workload::Expiry => expiry::run(plan),
            Workload::Open => open::run(plan),
            Workload::Tsbs => tsbs::run(plan),
            Workload::Memory => memory::run(plan),
            Workload::Latency => latency::run(plan),
            Workload::Growth => growth::run(plan),
        }
    }
}
