//! The command line: commands, options, and their help.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Parser, Subcommand};
use ebbtide_query::output::Format;
use ebbtide_query::text_table::encoding::Encoding;
use ebbtide_query::text_table::repeated_hours;
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
    #[arg(long, global = true, value_name = "DIR", env = "EBBTIDE_DB", default_value = "./ebbtide-data")]
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
    /// Make the newest state of a copy a database, and that database the copy's primary.
    Promote(PromoteArgs),
    /// Run one command document and print its reply as JSON.
    #[command(name = "command")]
    Document(CommandArgs),
    /// Serve databases to MongoDB's drivers and mongosh, until it is interrupted.
    Serve(Box<ServeArgs>),
    /// Add, list, change and remove the accounts of a server.
    User(UserArgs),
    /// Drop expired buckets now.
    Sweep(SweepArgs),
    /// Show what the archives of collections have, and look after them.
    Archive(ArchiveArgs),
    /// Bring the tables of published collections up to date.
    Publish(PublishArgs),
    /// Show collections, their sizes and rules, the age of what is stored, and what expires next.
    Status(StatusArgs),
    /// Print metrics of what is stored and what is due, in the text format of Prometheus.
    Metrics(StatusArgs),
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

    /// What a picture is headed with. Default: the statement.
    #[arg(long, value_name = "TEXT", requires = "chart")]
    pub(crate) title: Option<String>,

    /// Query a read replica of the database that is shipped to this URL. Its segments are kept in the folder of --db, or in a
    /// temporary one.
    #[arg(long, value_name = "URL")]
    pub(crate) follow: Option<String>,

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
}

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    /// The collection.
    #[arg(value_name = "NAME")]
    pub(crate) collection: String,

    /// Print only the statement with which this program reads all of them.
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
pub(crate) struct ServeArgs {
    /// Serve a folder of databases instead, each in a folder of its name; a write to a new name creates one
    #[arg(long, value_name = "DIR")]
    pub(crate) dbs: Option<PathBuf>,

    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<std::net::IpAddr>,

    /// Port of MongoDB's wire protocol, 0 for any that is free [default: 27017, if no port is given]
    #[arg(long, value_name = "PORT")]
    pub(crate) mongodb: Option<u16>,

    /// Port of HTTP for SQL, line protocol, remote write, metrics and a page, 0 for any that is free [default: 8080, if no port is given]
    #[arg(long, value_name = "PORT")]
    pub(crate) http: Option<u16>,

    /// Port of PostgreSQL's wire protocol, 0 for any that is free [default: 5432, if no port is given]
    #[arg(long, value_name = "PORT")]
    pub(crate) pg: Option<u16>,

    /// File with the accounts of `ebbtide user` [default: accounts.json in the folder that is served]
    #[arg(long, value_name = "FILE")]
    pub(crate) accounts: Option<PathBuf>,

    /// Listen on an address that other hosts can reach, although there are no accounts
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Certificate for TLS and then those of its issuers, in PEM form; without it connections are not encrypted
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Ship the database to a copy at this URL, continuously
    #[arg(long, value_name = "URL")]
    pub(crate) ship_to: Option<String>,

    /// For how long the copy keeps points in time, such as 7d; forever keeps all [default: 7d]
    #[arg(long, value_name = "TIME", requires = "ship_to")]
    pub(crate) ship_keep: Option<String>,

    /// Serve a read replica of the database that is shipped to this URL; its segments are kept in the folder of --db
    #[arg(long, value_name = "URL", conflicts_with_all = ["dbs", "ship_to"])]
    pub(crate) follow: Option<String>,

    /// Configuration file in TOML, with all settings and limits; options given here win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// How the log on standard error looks [default: text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormatName>,

    /// Seconds for commands that are running to end, after SIGTERM or SIGINT [default: 10]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormatName {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    /// The folder of databases that is served, if it is one.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) dbs: Option<PathBuf>,

    /// File with the accounts. Default: accounts.json in the folder that is served.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) accounts: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) action: UserAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserAction {
    /// Add an account. From the first one on, clients have to log in.
    Add {
        /// The name to log in with.
        name: String,
        /// What the account may do; each role may do what those before it may.
        #[arg(long, value_enum)]
        role: RoleName,
        /// Read the password from the first line of this file, - for standard input, instead of asking for it.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// List the accounts with their roles.
    List,
    /// Change the password of an account. Clients that are logged in with the old one have to log in again.
    Passwd {
        /// The account.
        name: String,
        /// Read the password from the first line of this file, - for standard input, instead of asking for it.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// Make a token, with which programs log in to an account over HTTP and gRPC, and print it. It is not shown again.
    Token {
        /// The account.
        name: String,
    },
    /// Make all tokens of an account useless.
    Revoke {
        /// The account.
        name: String,
    },
    /// Remove an account. Clients that are logged in with it can do nothing any more.
    Remove {
        /// The account.
        name: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RoleName {
    /// Ask.
    Read,
    /// Insert, update and delete.
    Write,
    /// Create, drop and rename collections; change rules, parameters and the clock.
    Admin,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Only report what would be dropped.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Sweep as of this time; +7d is a week from now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) now: Option<String>,

    /// Write the measurements that are dropped to this new file before they go (.parquet, .csv or .ndjson by its name; of one
    /// collection), or to the standard output as lines of JSON (-).
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run", allow_hyphen_values = true)]
    pub(crate) expired_to: Option<PathBuf>,

    /// Drop also in collections that require a hand-off, without one.
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
    /// Show what each archive has, and what waits to be moved there.
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

/// Measurements from files, or from standard input as they arrive.
#[derive(Debug, Clone, Args)]
pub(crate) struct ImportArgs {
    /// Files or patterns such as 'data/*.csv.gz'; - is standard input, imported as it arrives.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The collection; it is created if it does not exist. Optional for line protocol: each measurement then goes to
    /// the collection of its name.
    #[arg(long, short, value_name = "NAME", visible_alias = "into")]
    pub(crate) collection: Option<String>,

    /// Import lines of Extended JSON into an ordinary collection. A document takes the place of the one with its _id.
    #[arg(long, conflicts_with_all = ["time", "meta", "meta_field", "meta_from_name", "set", "rename", "text", "number", "without",
        "null", "skip_empty", "time_format", "at", "time_zone", "decimal_comma", "thousands", "delimiter", "header", "no_header",
        "columns", "skip", "skip_after_header", "comment", "encoding", "granularity", "precision",
        "expire_after"])]
    pub(crate) documents: bool,

    /// Format of the input. Default: by the file's name.
    #[arg(long, short, value_enum)]
    pub(crate) format: Option<InputFormat>,

    /// The column with the time, or the columns that make it up: date,time or year,month,day,hour. Default: the
    /// collection's time field, a column named time, timestamp, ts or date, or the only one that holds times.
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', help_heading = "Columns")]
    pub(crate) time: Vec<String>,

    /// The column that identifies the series. Several columns, separated by commas, become an object.
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', help_heading = "Columns")]
    pub(crate) meta: Vec<String>,

    /// Name of the new collection's meta field. Default: the name of the column; meta for several columns; tags for
    /// line protocol.
    #[arg(long, value_name = "NAME", help_heading = "Columns")]
    pub(crate) meta_field: Option<String>,

    /// Take meta columns from the name of each file: with '{station}_*.csv', ewr_2013.csv has the station ewr. * matches
    /// any text; a pattern with / is matched against the end of the path.
    #[arg(long, value_name = "PATTERN", help_heading = "Columns")]
    pub(crate) meta_from_name: Option<String>,

    /// Add a column with the same value in every row, such as station=EWR; can be repeated.
    #[arg(long, value_name = "COLUMN=VALUE", value_parser = parse_set, help_heading = "Columns")]
    pub(crate) set: Vec<(String, String)>,

    /// Rename a column; can be repeated. All other options use the new name.
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_rename, help_heading = "Columns")]
    pub(crate) rename: Vec<(String, String)>,

    /// Import a column as text even if it looks like numbers or times; can be repeated.
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub(crate) text: Vec<String>,

    /// Column of numbers in which leading zeros are ignored: 090 is 90; can be repeated.
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub(crate) number: Vec<String>,

    /// Skip a column; can be repeated.
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub(crate) without: Vec<String>,

    /// Text or number that marks a missing value, such as NA or -9999; can be repeated. Empty text always does.
    #[arg(long, value_name = "MARKER", allow_hyphen_values = true, help_heading = "Values")]
    pub(crate) null: Vec<String>,

    /// Skip rows that have no values besides their time and meta.
    #[arg(long, help_heading = "Values")]
    pub(crate) skip_empty: bool,

    /// Format of times: a pattern such as '%d/%m/%Y %H:%M', or s, ms, us or ns since 1970; can be repeated. Default: year
    /// first, such as 2024-01-31T12:00:00Z or 2024/01/31 12:00. 24:00 is midnight at the end of the day.
    #[arg(long, value_name = "PATTERN", help_heading = "Values")]
    pub(crate) time_format: Vec<String>,

    /// The time of all rows, for a table without times, such as a list of stations.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["time", "time_format"], help_heading = "Values")]
    pub(crate) at: Option<String>,

    /// Time zone of times without one, such as Europe/Dublin or +01:00. Default: UTC.
    #[arg(long, value_name = "ZONE", allow_hyphen_values = true, help_heading = "Values")]
    pub(crate) time_zone: Option<String>,

    /// Local times that are ambiguous or skipped when clocks change: refuse them, use the earlier or later instant, or
    /// decide by the order of the rows.
    #[arg(long, value_enum, default_value = "refuse", requires = "time_zone", help_heading = "Values")]
    pub(crate) dst: Dst,

    /// Numbers use a decimal comma: 21,5.
    #[arg(long, help_heading = "Values")]
    pub(crate) decimal_comma: bool,

    /// Character between the thousands of numbers: with ',' 1,021.9 is 1021.9.
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, help_heading = "Values")]
    pub(crate) thousands: Option<u8>,

    /// Character between the columns of a CSV file; \t is a tab, ' ' any run of blanks and tabs. Default: detected.
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, help_heading = "Text files")]
    pub(crate) delimiter: Option<u8>,

    /// The first line is a header line, even if it looks like data.
    #[arg(long, conflicts_with = "no_header", help_heading = "Text files")]
    pub(crate) header: bool,

    /// The file has no header line: columns are named c1, c2 and so on, or by --columns.
    #[arg(long, help_heading = "Text files")]
    pub(crate) no_header: bool,

    /// Names of the columns, instead of those in the header line.
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', help_heading = "Text files")]
    pub(crate) columns: Vec<String>,

    /// Lines to skip before the header. Default: detected.
    #[arg(long, value_name = "LINES", help_heading = "Text files")]
    pub(crate) skip: Option<u64>,

    /// Lines to skip after the header, such as one with units. Default: detected.
    #[arg(long, value_name = "LINES", help_heading = "Text files")]
    pub(crate) skip_after_header: Option<u64>,

    /// Skip lines that start with this character.
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, help_heading = "Text files")]
    pub(crate) comment: Option<u8>,

    /// Encoding of text files. Default: detected.
    #[arg(long, value_parser = encodings(), help_heading = "Text files")]
    pub(crate) encoding: Option<Encoding>,

    /// Write lines that cannot be imported to this CSV file, with their numbers and the reasons. Without it, the first
    /// bad line ends the import before anything is stored.
    #[arg(long, value_name = "FILE", help_heading = "Execution")]
    pub(crate) bad_lines: Option<PathBuf>,

    /// Number of bad lines after which the import fails anyway.
    #[arg(long, value_name = "LINES", default_value_t = 1000, requires = "bad_lines", help_heading = "Execution")]
    pub(crate) bad_lines_max: u64,

    /// Check the files and report what would be imported, without changing the database.
    #[arg(long, help_heading = "Execution")]
    pub(crate) dry_run: bool,

    /// Continue an interrupted import of the same files: nothing is imported twice or skipped.
    #[arg(long, conflicts_with_all = ["dry_run", "from_start"], help_heading = "Execution")]
    pub(crate) resume: bool,

    /// Import from the first row, although an earlier import into the collection was interrupted.
    #[arg(long, help_heading = "Execution")]
    pub(crate) from_start: bool,

    /// Measurements or documents per atomic insert, at most.
    #[arg(long, value_name = "ROWS", default_value_t = 50_000, help_heading = "Execution")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_rows: u32,

    /// Longest time in milliseconds that a row from standard input waits to be stored with others.
    #[arg(long, value_name = "MS", default_value_t = 1000, help_heading = "Execution")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) flush_ms: u64,

    /// Width of the new collection's buckets: seconds, minutes or hours. Default: by the median interval of the data.
    #[arg(long, value_name = "WORD", help_heading = "New collection")]
    pub(crate) granularity: Option<String>,

    /// Precision of the new collection's times. Default: that of the data.
    #[arg(long, value_enum, help_heading = "New collection")]
    pub(crate) precision: Option<Unit>,

    /// Retention of the new collection: seconds, or text such as 24h, 7d, '10 years' or P10Y. A year is 365 days.
    #[arg(long, value_name = "TIME", value_parser = retention, help_heading = "New collection")]
    pub(crate) expire_after: Option<i64>,
}

/// An input format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum InputFormat {
    /// Delimited text.
    Csv,
    /// One JSON document per line.
    Ndjson,
    /// InfluxDB line protocol; times are in nanoseconds unless --time-format is given.
    Influx,
    /// A Parquet file.
    Parquet,
    /// An Arrow IPC file, also called Feather.
    Arrow,
}

/// The encodings of text files, by name.
fn encodings() -> impl TypedValueParser<Value = Encoding> {
    let value = |encoding: Encoding| PossibleValue::new(encoding.name()).help(encoding.description());
    PossibleValuesParser::new(Encoding::ALL.map(value)).map(|name| {
        let named = Encoding::ALL.into_iter().find(|encoding| encoding.name() == name);
        named.unwrap_or(Encoding::Utf8)
    })
}

/// How local times that are ambiguous or skipped when clocks change are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dst {
    /// As errors.
    Refuse,
    /// As the earlier of the two possible instants.
    Earlier,
    /// As the later one.
    Later,
    /// By the order of the rows of a series: an ambiguous time is the earlier instant if that comes after the row before,
    /// else the later one. Skipped times are read as the later instant.
    Infer,
}

impl From<Dst> for repeated_hours::Dst {
    fn from(dst: Dst) -> Self {
        match dst {
            Dst::Refuse => repeated_hours::Dst::Refuse,
            Dst::Earlier => repeated_hours::Dst::Earlier,
            Dst::Later => repeated_hours::Dst::Later,
            Dst::Infer => repeated_hours::Dst::Infer,
        }
    }
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

    /// Name for the restored collection; the dump has one, or --collection names it.
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

    /// Ship what is there now, and end.
    #[arg(long)]
    pub(crate) once: bool,

    /// Forget all copies instead: a folder that is no longer the primary becomes a database of its own.
    #[arg(long, conflicts_with_all = ["to", "once"])]
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
        Err(_) if path.is_file() || path.extension().is_some_and(|extension| extension == "sql") => {
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

fn parse_rename(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.to_owned(), new.to_owned())),
        _ => Err("expected OLD=NEW".to_owned()),
    }
}

fn parse_set(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("COLUMN=VALUE is expected".to_owned()),
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
    let number: usize = digits.parse().map_err(|_| format!("'{text}' is not a number of bytes such as 512M"))?;
    number.checked_mul(unit).filter(|n| *n > 0).ok_or_else(|| format!("'{text}' is out of range"))
}

fn retention(text: &str) -> Result<i64, String> {
    ebbtide_ttl::parse_retention(text).map_err(|e| e.message)
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [one] if one.is_ascii() => Ok(*one),
        b"\\t" => Ok(b'\t'),
        _ => Err("expected one ASCII character, or \\t".to_owned()),
    }
}
