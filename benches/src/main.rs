//! Runs a workload and says what it measured: `cargo run --release -p ebbtide-benches -- weather`.

use clap::{Parser, ValueEnum};
use ebbtide_benches::workloads::{Plan, Workload};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures Ebbtide's engine. Databases are made in the folder for temporary files (`TMPDIR`).
#[derive(Debug, Parser)]
#[command(name = "ebbtide-benches")]
struct Args {
    /// What to run.
    workload: Name,
    /// How much larger than usual the data is: copies of every station, hosts by the hundred, buckets, segments.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    scale: u16,
    /// The folder of the recorded data, if not `../shared/data/weather`.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Where the report goes as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where the generated data of `tsbs` goes as an Arrow file, for other engines to load the same rows.
    #[arg(long)]
    export: Option<PathBuf>,
    /// Where the plot of `growth` goes, as SVG.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// How often each thing is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// How often each query is asked, if not 15 times or as often as there are runs: many times under a profiler.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    asks: Option<u32>,
    /// Of the queries of `weather` and `tsbs` only those whose names begin so.
    #[arg(long)]
    only: Option<String>,
}

/// That of the command line: what is measured here is what its users have.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Name {
    /// Recorded weather: ingest, size, queries.
    Weather,
    /// Sweeps over many buckets.
    Expiry,
    /// Opening a database of many segments.
    Open,
    /// TSBS cpu-only.
    Tsbs,
    /// Peak memory of 10 million rows inserted, and of an aggregate that reads them.
    Memory,
    /// Queries during ingest and sweeps beside quiet ones.
    Latency,
    /// How costs grow with what is stored.
    Growth,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> ebbtide_benches::Result<()> {
    let workload = match args.workload {
        Name::Weather => Workload::Weather,
        Name::Expiry => Workload::Expiry,
        Name::Open => Workload::Open,
        Name::Tsbs => Workload::Tsbs,
        Name::Memory => Workload::Memory,
        Name::Latency => Workload::Latency,
        Name::Growth => Workload::Growth,
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let plan = Plan {
        root,
        scale: args.scale.into(),
        data: args.data.clone(),
        export: args.export.clone(),
        svg: args.svg.clone(),
        runs: args.runs.into(),
        asks: args.asks.and_then(|asks| usize::try_from(asks).ok()),
        only: args.only.clone(),
    };
    let report = workload.run(&plan)?;
    println!("{}", report.table());
    args.json.as_ref().map_or(Ok(()), |path| report.write_json(path))
}
