//! The command line `ebbtide`, as a library: [`run`] is the program, which the Python package starts too, and
//! [`chart_svg`] draws results as its shell does.
//!
//! Results go to standard output, everything else to standard error; the exit code is 0 for success, 1 for a failed
//! operation, 2 for wrong usage.

/// Writes a line to standard error, for all modules below in the place of the standard macro: that panics if nobody reads the line any
/// more, in the middle of an import for example.
macro_rules! eprintln {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        drop(writeln!(std::io::stderr(), $($arg)*));
    }};
}

mod admin;
mod archive;
mod args;
mod batching;
#[cfg(feature = "workers")]
mod cancelled;
mod chart;
mod conformance;
mod copies;
mod demo;
mod dump;
mod expired_to;
mod files;
mod guarded;
mod human;
mod import;
mod lazy_session;
mod manual;
mod open;
mod pager;
mod publish;
mod readers;
mod repair;
mod repl;
mod replicas;
#[cfg(feature = "server")]
mod serve;
mod show;
mod signals;
mod sql;
mod status;
#[cfg(feature = "server")]
mod user;
#[cfg(feature = "workers")]
mod worker;

pub use open::builder;

use args::{Cli, Command};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};
use ebbtide_query::QueryError;
use ebbtide_ttl::{Clock, Code, SystemClock, Timestamp};
use std::ffi::OsString;
use std::fmt;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Why the program ends without success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
    usage: bool,
    /// The reader of the results has closed the pipe, as `| head` does.
    pipe: bool,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into(), usage: false, pipe: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure { usage: true, ..Failure::new(message) }
    }

    /// Says what is wrong; returns the exit code.
    fn exit(&self) -> u8 {
        if self.pipe {
            return 0;
        }
        if !self.message.is_empty() {
            files::complain(&self.message);
        }
        if self.usage { 2 } else { 1 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let pipe = error.code() == Code::Interrupted && error.message() == "broken pipe";
        Failure { message: error.to_string(), usage: false, pipe }
    }
}

impl From<ebbtide::Error> for Failure {
    fn from(error: ebbtide::Error) -> Self {
        QueryError::from(error).into()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let pipe = error.kind() == std::io::ErrorKind::BrokenPipe;
        Failure { message: error.to_string(), usage: false, pipe }
    }
}

/// Writes a line to standard output; a closed pipe is a [`Failure`] that ends the program quietly.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($arg)*).map_err($crate::Failure::from)?
    }};
}
pub(crate) use say;

/// Runs the program with these arguments, the first of which is its name; returns the exit code. It is run once in a
/// process, since it sets up the log.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let parsed = Cli::command().try_get_matches_from(arguments).and_then(|given| {
        let names_db = given.value_source("db") == Some(ValueSource::CommandLine);
        Ok(Cli { names_db, ..Cli::from_arg_matches(&given)? })
    });
    let cli = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // Failing to print the message, as on a closed pipe, is not an error.
            let _ = error.print();
            return code;
        }
    };
    // A server's log begins once it has read how.
    if !matches!(cli.command, Command::Serve(_)) {
        let filter = match filter(quiet(&cli.command)) {
            Ok(filter) => filter,
            Err(failure) => return failure.exit(),
        };
        let log = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
        log.with_writer(std::io::stderr).with_ansi(files::colours()).without_time().with_target(false).init();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(8 << 20).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return 1;
        }
    };
    #[cfg(unix)]
    outlive_file_limits(&runtime);
    let outcome = refuse_a_database(&cli).and_then(|()| execute(&cli, &runtime));
    #[cfg(feature = "workers")]
    cancelled::be_quiet();
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match outcome {
        Ok(()) => 0,
        Err(failure) => failure.exit(),
    }
}

/// Has a write beyond the limit of `ulimit -f` fail with an error: unhandled, the signal SIGXFSZ ends the process.
#[cfg(unix)]
fn outlive_file_limits(runtime: &tokio::runtime::Runtime) {
    use tokio::signal::unix::{SignalKind, signal};
    /// Its number on Linux (but for MIPS), macOS and the BSDs.
    const SIGXFSZ: i32 = 25;
    let _context = runtime.enter();
    // If it cannot be handled, it ends the process as before.
    let _ = signal(SignalKind::from_raw(SIGXFSZ));
}

/// Draws a result as an SVG picture: lines over a time or a number, bars over names.
///
/// # Errors
/// Why there is nothing to draw.
pub fn chart_svg(title: &str, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<String, String> {
    chart::svg(title, schema, batches)
}

/// What is logged: what `EBBTIDE_LOG` says, or from this level on.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, Failure> {
    let given = std::env::var_os("EBBTIDE_LOG").unwrap_or_default();
    let given = given.to_string_lossy();
    let parts: Vec<&str> = given.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return Ok(EnvFilter::new(level));
    }
    // Any other word would be taken for the name of a library, and nothing else would be logged.
    let is_known =
        |part: &&str| part.starts_with("ebbtide") || part.contains(['=', '[']) || part.parse::<LevelFilter>().is_ok();
    let filter = if parts.iter().all(is_known) { EnvFilter::try_new(parts.join(",")).ok() } else { None };
    filter.ok_or_else(|| {
        Failure::usage(format!(
            "the environment variable EBBTIDE_LOG is '{given}'; expected off, error, warn, info, debug or trace, a level for one part of \
             the program (ebbtide_server=debug), or a comma-separated list of these"
        ))
    })
}

/// The log level without `EBBTIDE_LOG`. Conformance cases provoke every possible warning and error.
fn quiet(command: &Command) -> &'static str {
    if matches!(command, Command::Conformance(_)) { "off" } else { "warn" }
}

/// Refuses an empty name of the database, and --db and --read-only for commands that use no database, or one of their own.
fn refuse_a_database(cli: &Cli) -> Result<(), Failure> {
    let instead = match &cli.command {
        Command::Demo(_) => {
            "the demo creates its own database: drop --db and --read-only; --into DIR chooses its folder"
        }
        Command::Conformance(_) => "each case creates its own database: drop --db and --read-only",
        Command::Worker(_) => {
            "a worker has no database: drop --db and --read-only; --cache DIR names the folder of its files"
        }
        Command::Completions(_) | Command::Man(_) => "this command uses no database: drop --db and --read-only",
        _ if !cli.db.as_os_str().is_empty() => return Ok(()),
        _ if cli.names_db => "--db is empty: name the folder of a database",
        _ => {
            let what = "the environment variable EBBTIDE_DB is empty: set it to the folder of a database, or unset it";
            return Err(Failure::usage(what));
        }
    };
    if cli.names_db || cli.read_only { Err(Failure::usage(instead)) } else { Ok(()) }
}

fn execute(cli: &Cli, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    match &cli.command {
        Command::Demo(args) => demo::run(args, runtime),
        Command::Sql(args) => sql::run(cli, args, runtime),
        Command::Import(args) => import::run(cli, args, runtime),
        Command::Export(args) => sql::export(cli, args, runtime),
        Command::Dump(args) => dump::dump(cli, args),
        Command::Restore(args) => match &args.from {
            Some(url) => copies::restore(cli, url, args.at.as_deref()),
            None => dump::restore(cli, args),
        },
        Command::Ship(args) => copies::ship(cli, args, runtime),
        Command::Promote(args) => copies::promote(cli, args),
        Command::Document(args) => admin::command(cli, args),
        #[cfg(feature = "server")]
        Command::Serve(args) => serve::run(cli, args, runtime),
        #[cfg(feature = "server")]
        Command::User(args) => user::run(cli, args),
        #[cfg(not(feature = "server"))]
        Command::Serve(_) | Command::User(_) => {
            Err(Failure::new("this program was built without its server: cargo build -p ebbtide-cli --features server"))
        }
        #[cfg(feature = "workers")]
        Command::Worker(args) => worker::run(args, runtime),
        #[cfg(not(feature = "workers"))]
        Command::Worker(_) => {
            Err(Failure::new("this program was built without workers: cargo build -p ebbtide-cli --features workers"))
        }
        Command::Sweep(args) => admin::sweep(cli, args),
        Command::Archive(args) => archive::run(cli, args),
        Command::Publish(args) => publish::run(cli, args),
        Command::Status(args) => status::status(cli, args),
        Command::Metrics(args) => status::metrics(cli, args),
        Command::Files(args) => readers::files(cli, args),
        Command::Verify => admin::verify(cli),
        Command::Repair(args) => repair::repair(cli, args),
        Command::Clock(args) => repair::clock(cli, args),
        Command::Conformance(args) => conformance::run(args, runtime),
        Command::Completions(args) => manual::completions(args),
        Command::Man(args) => manual::man(cli, args),
    }
}

/// Reads the value of `--now`: a time, or a distance from the present one such as `+7d` or `-12h`.
pub(crate) fn parse_now(text: Option<&str>) -> Result<Option<Timestamp>, Failure> {
    parse_time("--now", text)
}

/// The same of another option.
pub(crate) fn parse_time(option: &str, text: Option<&str>) -> Result<Option<Timestamp>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let fail = |e: String| Failure::usage(format!("{option}: {e}"));
    let trimmed = text.trim();
    let behind = trimmed.strip_prefix('+').or_else(|| trimmed.strip_prefix('-')).map(str::trim_start);
    let Some(distance) = behind.and_then(|distance| ebbtide_ttl::parse_retention(distance).ok()) else {
        return Timestamp::parse(text)
            .map(Some)
            .map_err(|e| fail(format!("{e}; +7d is a week from now, -12h twelve hours ago")));
    };
    let seconds = if trimmed.starts_with('-') { -distance } else { distance };
    Ok(Some(SystemClock::new().now().plus_seconds(seconds)))
}
