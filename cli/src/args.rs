//! The command line: commands, options, and their help.

mod import;
pub(crate) mod server;
mod worker;

pub(crate) use import::{Dst, ImportArgs, InputFormat};
pub(crate) use server::{ServeArgs, UserArgs};
pub(crate) use worker::WorkerArgs;

use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Parser, Subcommand};
use ebbtide_query::output::Format;
use std::ffi::OsStr;
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
    #[arg(long, global = true, value_name = "DIR", env = "EBBTIDE_DB", default_value = "./ebbtide-data",
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(crate) db: PathBuf,

    /// Open the database read-only; this works while another program writes to it.
    #[arg(long, global = true)]
    pub(crate) read_only: bool,

    /// Whether the folder was named as an option.
    #[arg(skip)]
    pub(crate) names_db: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replay a year of recorded weather in a new temporary database, and watch it expire.
    Demo(DemoArgs),
    /// Run SQL statements. Without any, start a shell on a terminal, or read statements from standard input.
    Sql(SqlArgs),
    /// Import measurements from CSV, NDJSON, line protocol, Parquet or Arrow.
    Import(Box<ImportArgs>),
    /// Write the rows of a query, or a collection, to a file.
    Export(ExportArgs),
    /// Write whole collections with their options and rules into a folder.
    Dump(DumpArgs),
    /// Restore the collections of a dump, or a whole database from a copy.
    Restore(RestoreArgs),
    /// Ship the database to a copy in object storage or a folder, continuously, while another program writes to it.
    Ship(ShipArgs),
    /// Create a database from the newest state of a copy, and make it the copy's primary.
    Promote(PromoteArgs),
    /// Run one command document and print its reply as JSON.
    #[command(name = "command")]
    Document(CommandArgs),
    /// Serve databases to MongoDB's drivers and mongosh, until it is interrupted.
    Serve(Box<ServeArgs>),
    /// Add, list, change and remove the accounts of a server.
    User(UserArgs),
    /// Answer parts of the queries of `ebbtide sql --workers`, over copies in object storage, until it is interrupted.
    Worker(WorkerArgs),
    /// Drop expired buckets now.
    Sweep(SweepArgs),
    /// Show, verify and maintain the archives of collections.
    Archive(ArchiveArgs),
    /// Bring the tables of published collections up to date.
    Publish(PublishArgs),
    /// Show collections, their sizes and rules, the age of what is stored, and what expires next.
    Status(StatusArgs),
    /// Print metrics of what is stored and what is due, in the text format of Prometheus.
    Metrics(MetricsArgs),
    /// Print the segment files of a collection, and how other programs read them.
    Files(FilesArgs),
    /// Read every file and verify every checksum and count.
    Verify,
    /// Report what is damaged and lost; with --yes, set it aside so that the database opens again.
    Repair(RepairArgs),
    /// Show the clock that expiry uses, and what is due.
    Clock(ClockArgs),
    /// Run conformance cases.
    Conformance(ConformanceArgs),
    /// Print a script that completes commands, options and values in a shell.
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all commands into a folder.
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder for the demo's database. Default: a new temporary folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// One or more statements, separated by semicolons; can be repeated.
    #[arg(value_name = "STATEMENT")]
    pub(crate) statements: Vec<String>,

    /// Run the statements of this file; -f FILE does too.
    #[arg(long, value_name = "FILE", conflicts_with = "statements")]
    pub(crate) file: Option<PathBuf>,

    /// Format of the rows: table, csv, json, ndjson, parquet or arrow. Default: by the extension of --output, or table.
    #[arg(long, short, value_name = "FORMAT", value_parser = FormatOrFileParser, hide_possible_values = true)]
    pub(crate) format: Vec<FormatOrFile>,

    /// Write the rows to this file instead of standard output; .gz at the end of its name compresses it.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Read as of this time, such as 2024-01-31T12:00:00Z, or +7d or -12h from now. Statements that change data are
    /// refused.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) now: Option<String>,

    /// Draw the rows as a chart: in the terminal, or into FILE, an .svg or .png picture.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = ["format", "output"])]
    #[expect(clippy::option_option, reason = "no chart, one in the terminal, one in a file")]
    pub(crate) chart: Option<Option<PathBuf>>,

    /// Title of the picture. Default: the statement.
    #[arg(long, value_name = "TEXT", requires = "chart")]
    pub(crate) title: Option<String>,

    /// Query a read replica of the database that is shipped to this URL. Its segments are kept in the folder of --db, or in a
    /// temporary one. Given several times, the databases are queried as one: a collection has the rows of all.
    #[arg(long, value_name = "URL")]
    pub(crate) follow: Vec<String>,

    /// Workers that answer the queries over the replica: addresses with ports, separated by commas. Segments that the session reads
    /// itself are fetched into the folder of --db, or into a temporary one.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', requires = "follow")]
    pub(crate) workers: Vec<String>,

    /// File with the secret of the workers. Default: the value of EBBTIDE_WORKER_TOKEN.
    #[arg(long, value_name = "FILE", requires = "workers")]
    pub(crate) token_file: Option<PathBuf>,

    /// Print how long each statement took.
    #[arg(long)]
    pub(crate) timing: bool,

    /// Memory that sorts, joins and groups of one statement may use before they spill to disk, such as 512M or 4G.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    pub(crate) memory: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A query, or the name of a collection.
    #[arg(value_name = "SELECT")]
    pub(crate) query: String,

    /// The file. Its extension selects the format: csv, json, ndjson, parquet, arrow; csv.gz and the like are compressed.
    /// - is standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Format of the file. Default: by its extension.
    #[arg(long, short, value_parser = output_format())]
    pub(crate) format: Option<Format>,

    /// Read as of this time, or of +7d or -12h from now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) now: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// A document such as '{"create": "w", "timeseries": {"timeField": "t"}}'; - reads it from standard input.
    #[arg(value_name = "JSON")]
    pub(crate) document: String,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Report as of this time, past or future; +7d is a week from now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) now: Option<String>,

    /// Report on the copy at this URL: how old it is, and what it contains.
    #[arg(long, value_name = "URL", conflicts_with = "now")]
    pub(crate) follow: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Report as of this time, past or future; +7d is a week from now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) now: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    /// The collection.
    #[arg(value_name = "NAME")]
    pub(crate) collection: String,

    /// Print only the statement that reads all of them in this program.
    #[arg(long = "for", value_name = "PROGRAM")]
    pub(crate) program: Option<Program>,
}

/// A program that reads Parquet files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Program {
    /// DuckDB.
    DuckDb,
    /// ClickHouse, also clickhouse-local and chdb.
    ClickHouse,
    /// Polars, in Python.
    Polars,
    /// Datasets of pyarrow, in Python.
    PyArrow,
    /// pandas, in Python.
    Pandas,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Only report what would be dropped.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Sweep as of this time; +7d is a week from now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) now: Option<String>,

    /// Before measurements are dropped, write them to this new file (.parquet, .csv or .ndjson; of one collection only), or with - to
    /// standard output as lines of JSON. Expired documents are left for the next sweep without this option.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run", allow_hyphen_values = true)]
    pub(crate) expired_to: Option<PathBuf>,

    /// Also drop from collections that require a hand-off, without handing anything over.
    #[arg(long, conflicts_with_all = ["dry_run", "expired_to"])]
    pub(crate) without_sink: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// The collections. Default: all that are published.
    #[arg(value_name = "COLLECTION")]
    pub(crate) collections: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) task: ArchiveTask,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveTask {
    /// Show what each archive contains, and what is waiting to be moved there.
    Status,
    /// Remove files that no commit of an archive names and that are older than an hour.
    Vacuum(ArchiveOf),
    /// Read every file of an archive and compare it with its checksum.
    Verify(ArchiveOf),
    /// Archive from this database, after its folder was copied and the copy has archived.
    Adopt(ArchiveOf),
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveOf {
    /// The collection.
    #[arg(value_name = "COLLECTION")]
    pub(crate) collection: String,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Only report what is damaged and what would be lost. This is also the default.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Repair. Nothing is deleted: damaged files are moved to a subfolder damaged-1, damaged-2 and so on.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ClockArgs {
    /// Confirm that the clock is right: sweeps that stopped after it jumped continue, in any program that has the
    /// database open.
    #[arg(long)]
    pub(crate) confirm: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for ebbtide.1 and a page for each command, such as ebbtide-import.1; it is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// Case files or folders.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// Folder to write; it must be empty or not exist.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,

    /// Collection to dump; can be repeated. Default: all.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) collection: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Folder that ebbtide dump wrote.
    #[arg(value_name = "DIR", required_unless_present = "from", conflicts_with = "from")]
    pub(crate) folder: Option<PathBuf>,

    /// Restore a whole database that ebbtide ship keeps a copy of at this URL, into the folder of --db.
    #[arg(long, value_name = "URL", conflicts_with_all = ["collection", "rename"])]
    pub(crate) from: Option<String>,

    /// With --from: as it was at this time, such as 2024-01-31T12:00:00Z, or -12h from now. Default: the newest state.
    #[arg(long, value_name = "TIME", requires = "from", allow_hyphen_values = true)]
    pub(crate) at: Option<String>,

    /// Collection to restore; can be repeated. Default: all.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) collection: Vec<String>,

    /// New name for the restored collection, if the dump has only one or --collection names one.
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) rename: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShipArgs {
    /// Where the copy is kept: file:///folder, s3://bucket/path, gs://bucket/path or az://container/path.
    #[arg(long, value_name = "URL", required_unless_present = "detach")]
    pub(crate) to: Option<String>,

    /// How often changes are shipped, such as 1s or 5m.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) every: String,

    /// For how long the copy keeps points in time, such as 7d; forever keeps all.
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub(crate) keep: String,

    /// Ship the present state and exit.
    #[arg(long, conflicts_with = "every")]
    pub(crate) once: bool,

    /// Forget all copies instead: a folder that is no longer the primary becomes a database of its own.
    #[arg(long, conflicts_with_all = ["to", "once", "every", "keep"])]
    pub(crate) detach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PromoteArgs {
    /// Where the copy is.
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,
}

/// The value of -f: a format of the rows or, as with psql and duckdb, a file of statements.
#[derive(Debug, Clone)]
pub(crate) enum FormatOrFile {
    Format(Format),
    File(PathBuf),
}

fn parse_format_or_file(text: &str) -> Result<FormatOrFile, String> {
    let path = PathBuf::from(text);
    match text.parse::<Format>() {
        Ok(format) => Ok(FormatOrFile::Format(format)),
        // Pipes are files of statements too.
        Err(_)
            if text == "-"
                || (path.exists() && !path.is_dir())
                || path.extension().is_some_and(|extension| extension == "sql") =>
        {
            Ok(FormatOrFile::File(path))
        }
        Err(_) => {
            let hint = ebbtide_query::suggest::hint(text, Format::ALL.iter().map(|format| format.name()));
            let names = Format::ALL.map(|format| format.name()).join(", ");
            Err(format!("'{text}' is neither a format ({names}) nor a file of statements{hint}"))
        }
    }
}

/// Parses a [`FormatOrFile`]; shells complete the formats.
#[derive(Clone)]
struct FormatOrFileParser;

impl TypedValueParser for FormatOrFileParser {
    type Value = FormatOrFile;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<FormatOrFile, clap::Error> {
        TypedValueParser::parse_ref(&parse_format_or_file, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(format_values().into_iter()))
    }
}

/// The output formats by name, each with its help.
fn output_format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(format_values()).try_map(|name| name.parse::<Format>())
}

fn format_values() -> [PossibleValue; Format::ALL.len()] {
    Format::ALL.map(|format| PossibleValue::new(format.name()).help(format.description()))
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
    let number: usize = digits.parse().map_err(|_| format!("'{text}' is not a number of bytes such as 512M"))?;
    number.checked_mul(unit).filter(|n| *n > 0).ok_or_else(|| format!("'{text}' is out of range"))
}

fn retention(text: &str) -> Result<i64, String> {
    ebbtide_ttl::parse_retention(text).map_err(|e| e.message)
}
