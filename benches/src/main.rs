//! Runs a workload and prints the results: `cargo run --release -p ebbtide-benches -- weather`.

use clap::{Parser, ValueEnum};
use ebbtide_benches::workloads::{Plan, Workload, serve};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures Ebbtide's engine. Databases are created in the folder for temporary files (`TMPDIR`).
#[derive(Debug, Parser)]
#[command(name = "ebbtide-benches")]
struct Args {
    /// The workload to run.
    workload: Name,
    /// Factor by which the data is larger than usual: copies of every station, hundreds of hosts, buckets, segments.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    scale: u16,
    /// The folder of the recorded data. Default: `../shared/data/weather`.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Also write the report to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the generated data of `tsbs` to this Arrow file, for other engines to load the same rows.
    #[arg(long)]
    export: Option<PathBuf>,
    /// Write the plot of `growth` to this SVG file.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Number of runs of each measurement.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Number of runs of each query. Default: 15, or the number of runs if that is greater. Use many under a profiler.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    asks: Option<u32>,
    /// Run only the queries of `weather`, `tsbs` and `windows` whose names start with this; of `items` the parts `million`,
    /// `large`, `puts` and `expiry`; of `ladder` the parts `size`, `decay`, `beside` and `ingest`;
    /// of `wire` the parts `queries`, `finds` and `expiry`; of `lake` the parts `ship`, `steady`, `restore`, `lag`, `archive` and `queries`.
    #[arg(long)]
    only: Option<String>,
}

/// The allocator of the command line, so that the results are those of its users.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Name {
    /// Recorded weather: ingest, size, queries.
    Weather,
    /// Sweeps over many buckets.
    Expiry,
    /// Opening a database with many segments.
    Open,
    /// TSBS cpu-only.
    Tsbs,
    /// Peak memory of 10 million rows inserted, and of an aggregate that reads them.
    Memory,
    /// Queries during ingest and sweeps, compared with an idle database.
    Latency,
    /// How costs grow with the amount of stored data.
    Growth,
    /// Window functions over recorded weather, as SQL.
    Windows,
    /// A store of sessions, compared with SQLite.
    Items,
    /// Ladders: decayed data.
    Ladder,
    /// Copies, archives and published tables.
    Lake,
    /// The server through MongoDB's protocol, compared with a mongod.
    Wire,
    /// The server that `wire` starts, over the folder `--data`, until its standard input ends.
    #[value(hide = true)]
    Serve,
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
        Name::Windows => Workload::Windows,
        Name::Items => Workload::Items,
        Name::Ladder => Workload::Ladder,
        Name::Lake => Workload::Lake,
        Name::Wire => Workload::Wire,
        Name::Serve => return serve(args.data.as_deref().ok_or("--data must name the folder of the databases")?),
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
