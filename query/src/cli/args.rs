//! The command line's words.

use crate::output::Format;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// A time-series database that forgets on schedule.
#[derive(Debug, Parser)]
#[command(
    name = "ebbtide",
    version,
    about = "A time-series database that forgets on schedule",
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// Folder of the database.
    #[arg(long, global = true, value_name = "DIR", env = "EBBTIDE_DB", default_value = "./ebbtide-data")]
    pub(crate) db: PathBuf,

    /// Open the database for reading only, also beside a program that writes to it.
    #[arg(long, global = true)]
    pub(crate) read_only: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replay a year of recorded weather in a fresh temporary database, and watch it being forgotten.
    Demo(DemoArgs),
    /// Run SQL statements; without any, a shell on a terminal, else statements from standard input.
    Sql(SqlArgs),
    /// Import measurements from CSV, NDJSON or Parquet.
    Import(Box<ImportArgs>),
    /// Write the rows of a query to a file.
    Export(ExportArgs),
    /// Run one command document and print its reply as JSON.
    #[command(name = "command")]
    Document(CommandArgs),
    /// Drop what has expired, now.
    Sweep(SweepArgs),
    /// Collections, their sizes and rules, and what expires next.
    Status,
    /// Read every file and check every checksum and count.
    Verify,
    /// Say what is damaged and lost; with --yes set it aside, so that the database opens again.
    Repair(RepairArgs),
    /// The time that expiry goes by, and what is due at it.
    Clock(ClockArgs),
    /// Run conformance cases.
    Conformance(ConformanceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder for the demo's database; a new temporary one by default.
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// Statements, each possibly several separated by semicolons.
    #[arg(value_name = "STATEMENT")]
    pub(crate) statements: Vec<String>,

    /// Form of the rows; by the file's extension with --output, else table.
    #[arg(long, short, value_enum)]
    pub(crate) format: Option<Format>,

    /// Write the rows to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Read as at this instant, such as 2024-01-31T12:00:00Z; nothing can be changed then.
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,

    /// Draw the rows as a chart instead of a table.
    #[arg(long)]
    pub(crate) chart: bool,

    /// Say how long each statement took.
    #[arg(long)]
    pub(crate) timing: bool,

    /// Memory for one statement's sorts, joins and groups before they go to disk, such as 512M or 4G.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    pub(crate) memory: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The query.
    #[arg(value_name = "SELECT")]
    pub(crate) query: String,

    /// The file; its extension says the form: csv, json, ndjson, parquet, arrow.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Form of the file, if its extension does not say it.
    #[arg(long, short, value_enum)]
    pub(crate) format: Option<Format>,

    /// Read as at this instant.
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// The document, such as '{"create": "w", "timeseries": {"timeField": "t"}}'; - reads it from standard input.
    #[arg(value_name = "JSON")]
    pub(crate) document: String,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Only say what would go.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Sweep as if it were this instant.
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Only say what is damaged and what would be lost; so it does without --yes.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Act. Nothing is deleted: files go into a folder damaged-1, damaged-2 and so on in the database's.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ClockArgs {
    /// The clock is right: sweeps that wait after it jumped go on, in whatever program has the database open.
    #[arg(long)]
    pub(crate) confirm: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// Case files, or folders of them.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Files: csv, csv.gz, ndjson, ndjson.gz, parquet; - is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The collection; it is created if it does not exist.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) collection: String,

    /// The column that holds the time; the collection's, or a column called time, timestamp, ts or date, by default.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) time: Option<String>,

    /// The column that names the series; several, separated by commas, make an object.
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    pub(crate) meta: Vec<String>,

    /// Width of the new collection's buckets: seconds, minutes or hours; by the median step of the data by default.
    #[arg(long, value_name = "WORD")]
    pub(crate) granularity: Option<String>,

    /// Seconds after which measurements of the new collection expire, or a time such as 24h, 7d, 2w.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) expire_after: Option<i64>,

    /// Text that means that a value is missing; can be repeated. Empty text always does.
    #[arg(long, value_name = "MARKER", allow_hyphen_values = true)]
    pub(crate) null: Vec<String>,

    /// Column to import as text even if it looks like numbers or times; can be repeated.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) text: Vec<String>,

    /// Character between the columns of a CSV file; \t is a tab.
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = parse_delimiter)]
    pub(crate) delimiter: u8,

    /// Form of the input, if the file's name does not say it.
    #[arg(long, short, value_enum)]
    pub(crate) format: Option<InputFormat>,

    /// Measurements in one atomic insert.
    #[arg(long, value_name = "ROWS", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_rows: u32,

    /// Check the files and say what would be imported; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A form of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum InputFormat {
    /// Delimited text with a header.
    Csv,
    /// One JSON document a line.
    Ndjson,
    /// A Parquet file.
    Parquet,
}

fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        other => return Err(format!("'{other}' is not a unit; use K, M or G")),
    };
    let number: usize = digits.parse().map_err(|_| format!("'{text}' is not a number of bytes; write it as 512M"))?;
    number.checked_mul(unit).filter(|n| *n > 0).ok_or_else(|| format!("'{text}' is out of range"))
}

fn parse_duration(text: &str) -> Result<i64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = match text[digits.len()..].trim().to_lowercase().as_str() {
        "" | "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        "w" | "week" | "weeks" => 604_800,
        other => return Err(format!("'{other}' is not a unit; use s, m, h, d or w")),
    };
    let number: i64 = digits.parse().map_err(|_| format!("'{text}' is not a time; write it as 3600, 24h or 7d"))?;
    number.checked_mul(unit).ok_or_else(|| format!("'{text}' is out of range"))
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [one] if one.is_ascii() => Ok(*one),
        b"\\t" => Ok(b'\t'),
        _ => Err("one ASCII character is expected, or \\t".to_owned()),
    }
}
