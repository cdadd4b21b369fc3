//! The command line's words.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use ebbtide_query::output::Format;
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
    /// Import measurements from CSV, NDJSON, line protocol, Parquet or Arrow.
    Import(Box<ImportArgs>),
    /// Write the rows of a query, or a collection, to a file.
    Export(ExportArgs),
    /// Write whole collections with their options and rules into a folder.
    Dump(DumpArgs),
    /// Make the collections that a dump holds.
    Restore(RestoreArgs),
    /// Run one command document and print its reply as JSON.
    #[command(name = "command")]
    Document(CommandArgs),
    /// Drop what has expired, now.
    Sweep(SweepArgs),
    /// Collections, their sizes and rules, what is stored by age, and what expires next.
    Status(StatusArgs),
    /// What is stored, and what is due, as text that Prometheus scrapes.
    Metrics(StatusArgs),
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
    #[arg(long, short, value_parser = output_format())]
    pub(crate) format: Option<Format>,

    /// Write the rows to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Read as at this instant, such as 2024-01-31T12:00:00Z; nothing can be changed then.
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,

    /// Draw the rows as a chart: in the terminal, or as a picture in FILE, which ends in .svg or .png.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = ["format", "output"])]
    #[expect(clippy::option_option, reason = "no chart, one in the terminal, one in a file")]
    pub(crate) chart: Option<Option<PathBuf>>,

    /// Say how long each statement took.
    #[arg(long)]
    pub(crate) timing: bool,

    /// Memory for one statement's sorts, joins and groups before they go to disk, such as 512M or 4G.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    pub(crate) memory: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The query, or the name of a collection.
    #[arg(value_name = "SELECT")]
    pub(crate) query: String,

    /// The file; its extension says the form: csv, json, ndjson, parquet, arrow.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Form of the file, if its extension does not say it.
    #[arg(long, short, value_parser = output_format())]
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
pub(crate) struct StatusArgs {
    /// Look as at this instant, past or future.
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
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

/// Measurements from files that other programs wrote, or from standard input as they come.
#[derive(Debug, Clone, Args)]
pub(crate) struct ImportArgs {
    /// Files or patterns such as 'data/*.csv.gz'; - is standard input, read as a stream.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The collection; it is created if it does not exist. May be left away for line protocol: the measurements' names
    /// then.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) collection: Option<String>,

    /// Form of the input, if the file's name does not say it.
    #[arg(long, short, value_enum)]
    pub(crate) format: Option<InputFormat>,

    /// The column that holds the time; two, separated by a comma, are a date and a time of day. By default the
    /// collection's time field, or a column called time, timestamp, ts or date.
    #[arg(long, value_name = "COLUMN[,COLUMN]", value_delimiter = ',', help_heading = "Columns")]
    pub(crate) time: Vec<String>,

    /// The column that names the series; several, separated by commas, make an object.
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', help_heading = "Columns")]
    pub(crate) meta: Vec<String>,

    /// Name of the new collection's meta field; the column's by default, meta for several, tags for line protocol.
    #[arg(long, value_name = "NAME", help_heading = "Columns")]
    pub(crate) meta_field: Option<String>,

    /// Another name for a column; can be repeated. All other options go by the new name.
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_rename, help_heading = "Columns")]
    pub(crate) rename: Vec<(String, String)>,

    /// Column to import as text even if it looks like numbers or times; can be repeated.
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub(crate) text: Vec<String>,

    /// Column of numbers in which leading zeros mean nothing: 090 is 90. Can be repeated.
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub(crate) number: Vec<String>,

    /// Column to leave out; can be repeated.
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub(crate) without: Vec<String>,

    /// Text or number that means that a value is missing, such as NA or -9999; can be repeated. Empty text always does.
    #[arg(long, value_name = "MARKER", allow_hyphen_values = true, help_heading = "Values")]
    pub(crate) null: Vec<String>,

    /// Leave out rows that have no value but their time and meta.
    #[arg(long, help_heading = "Values")]
    pub(crate) skip_empty: bool,

    /// How times are written: a pattern such as '%d/%m/%Y %H:%M', or s, ms, us, ns since 1970; can be repeated. By
    /// default year first: 2024-01-31T12:00:00Z, 2024/01/31 12:00.
    #[arg(long, value_name = "PATTERN", help_heading = "Values")]
    pub(crate) time_format: Vec<String>,

    /// The time of all rows, for a table that has none, such as a list of stations.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["time", "time_format"], help_heading = "Values")]
    pub(crate) at: Option<String>,

    /// Zone of times that name none, such as Europe/Dublin or +01:00; UTC by default.
    #[arg(long, value_name = "ZONE", allow_hyphen_values = true, help_heading = "Values")]
    pub(crate) time_zone: Option<String>,

    /// What to do with local times that the clocks showed twice or skipped: refuse them, or take the earlier or later
    /// instant.
    #[arg(long, value_enum, default_value = "refuse", requires = "time_zone", help_heading = "Values")]
    pub(crate) dst: Dst,

    /// Numbers have a decimal comma: 21,5.
    #[arg(long, help_heading = "Values")]
    pub(crate) decimal_comma: bool,

    /// Character between the columns of a CSV file; \t is a tab. A comma by default, a tab in files called .tsv.
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, help_heading = "Text files")]
    pub(crate) delimiter: Option<u8>,

    /// There is no line with the columns' names: they are c1, c2 and so on, or what --columns says.
    #[arg(long, help_heading = "Text files")]
    pub(crate) no_header: bool,

    /// The columns' names, in place of those in the first line, if there is one.
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', help_heading = "Text files")]
    pub(crate) columns: Vec<String>,

    /// Lines to skip before the header.
    #[arg(long, value_name = "LINES", default_value_t = 0, help_heading = "Text files")]
    pub(crate) skip: u64,

    /// Lines that begin with this character are left out.
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, help_heading = "Text files")]
    pub(crate) comment: Option<u8>,

    /// Encoding of text files.
    #[arg(long, value_enum, default_value = "utf-8", help_heading = "Text files")]
    pub(crate) encoding: Encoding,

    /// Set lines that cannot be imported aside, into this CSV file, with their number and the reason. Without it the
    /// first one ends the import before anything is stored.
    #[arg(long, value_name = "FILE", help_heading = "Doing it")]
    pub(crate) bad_lines: Option<PathBuf>,

    /// Bad lines after which the import ends all the same.
    #[arg(long, value_name = "LINES", default_value_t = 1000, requires = "bad_lines", help_heading = "Doing it")]
    pub(crate) bad_lines_max: u64,

    /// Check the files and say what would be imported; the database is not changed.
    #[arg(long, help_heading = "Doing it")]
    pub(crate) dry_run: bool,

    /// Go on with an import of the same files that was interrupted: nothing is imported twice or left out.
    #[arg(long, conflicts_with_all = ["dry_run", "from_start"], help_heading = "Doing it")]
    pub(crate) resume: bool,

    /// Import from the first row, although an earlier import of the same collection was interrupted.
    #[arg(long, help_heading = "Doing it")]
    pub(crate) from_start: bool,

    /// Measurements in one atomic insert.
    #[arg(long, value_name = "ROWS", default_value_t = 50_000, help_heading = "Doing it")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_rows: u32,

    /// Longest time that a row from standard input waits for others to be stored with.
    #[arg(long, value_name = "MS", default_value_t = 1000, help_heading = "Doing it")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) flush_ms: u64,

    /// Width of the new collection's buckets: seconds, minutes or hours; by the median step of the data by default.
    #[arg(long, value_name = "WORD", help_heading = "New collection")]
    pub(crate) granularity: Option<String>,

    /// Unit of the new collection's times; as fine as the data by default.
    #[arg(long, value_enum, help_heading = "New collection")]
    pub(crate) precision: Option<Unit>,

    /// Seconds after which measurements of the new collection expire, or a time such as 24h, 7d, 2w.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "New collection")]
    pub(crate) expire_after: Option<i64>,
}

/// A form of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum InputFormat {
    /// Delimited text.
    Csv,
    /// One JSON document a line.
    Ndjson,
    /// InfluxDB line protocol; times in nanoseconds, or what --time-format says.
    Influx,
    /// A Parquet file.
    Parquet,
    /// An Arrow IPC file, also called Feather.
    Arrow,
}

/// How the bytes of a text file are characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Encoding {
    /// UTF-8.
    #[value(name = "utf-8")]
    Utf8,
    /// ISO 8859-1, western European.
    #[value(name = "latin-1")]
    Latin1,
}

/// What becomes of local times that the clocks showed twice, or skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dst {
    /// They are errors.
    Refuse,
    /// The earlier of the two instants that can be meant.
    Earlier,
    /// The later one.
    Later,
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Unit {
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

impl From<Unit> for ebbtide_ttl::Precision {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Ms => ebbtide_ttl::Precision::Ms,
            Unit::Us => ebbtide_ttl::Precision::Us,
            Unit::Ns => ebbtide_ttl::Precision::Ns,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The folder to write; it must not exist or be empty.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,

    /// Collection to dump; can be repeated. All by default.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) collection: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// A folder that ebbtide dump wrote.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,

    /// Collection to restore; can be repeated. All by default.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) collection: Vec<String>,
}

/// The names of the forms of output, each with its help.
fn output_format() -> impl TypedValueParser<Value = Format> {
    let values = Format::ALL.map(|format| PossibleValue::new(format.name()).help(format.description()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Format>())
}

fn parse_rename(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.to_owned(), new.to_owned())),
        _ => Err("OLD=NEW is expected".to_owned()),
    }
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
