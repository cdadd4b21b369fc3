//! The options of `ebbtide import`.

use super::retention;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ebbtide_query::text_table::encoding::Encoding;
use ebbtide_query::text_table::repeated_hours;
use std::path::PathBuf;
use std::time::Duration;

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

    /// Import lines of Extended JSON into an ordinary collection. A document replaces the one with the same _id.
    #[arg(long, conflicts_with_all = ["time", "meta", "meta_field", "meta_from_name", "set", "rename", "text", "number", "without",
        "null", "skip_empty", "time_format", "at", "time_zone", "dst", "decimal_comma", "thousands", "delimiter", "header", "no_header",
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

    /// Write lines that cannot be imported to this CSV file, with their numbers and the reasons. The first bad line replaces an
    /// existing file, except with --resume, which appends to it. Without this option, a bad line ends the import: files are checked
    /// before anything is stored.
    #[arg(long, value_name = "FILE", help_heading = "Execution")]
    pub(crate) bad_lines: Option<PathBuf>,

    /// Largest number of bad lines; with more, the import fails.
    #[arg(long, value_name = "LINES", default_value_t = 1000, requires = "bad_lines", help_heading = "Execution")]
    pub(crate) bad_lines_max: u64,

    /// Check the files and report what would be imported, without changing the database.
    #[arg(long, help_heading = "Execution")]
    pub(crate) dry_run: bool,

    /// Continue an interrupted import of the same files: nothing is imported twice or skipped.
    #[arg(long, conflicts_with_all = ["dry_run", "from_start"], help_heading = "Execution")]
    pub(crate) resume: bool,

    /// Import from the first row even though an earlier import into the collection was interrupted.
    #[arg(long, help_heading = "Execution")]
    pub(crate) from_start: bool,

    /// Largest number of measurements or documents in an atomic insert.
    #[arg(long, value_name = "ROWS", default_value_t = ImportArgs::BATCH_ROWS, help_heading = "Execution")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_rows: u32,

    /// Longest time in milliseconds that a row from standard input waits to be stored with others [default: 1000]
    #[arg(long, value_name = "MS", help_heading = "Execution")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) flush_ms: Option<u64>,

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

impl ImportArgs {
    /// What --batch-rows is unless it is given.
    pub(crate) const BATCH_ROWS: u32 = 50_000;

    /// The longest time that a row from standard input waits.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_millis(self.flush_ms.unwrap_or(1000))
    }
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

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [one] if one.is_ascii() => Ok(*one),
        b"\\t" => Ok(b'\t'),
        _ => Err("expected one ASCII character, or \\t".to_owned()),
    }
}
