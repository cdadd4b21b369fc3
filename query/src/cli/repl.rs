//! The shell: statements over several lines, history, completion, and a few commands of its own.

use super::args::Cli;
use super::open::{LazySession, Need};
use super::sql::{Show, drawn, one};
use super::{Failure, files};
use crate::output::Format;
use crate::session::{Session, SessionSettings};
use crate::statement;
use futures::TryStreamExt;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};
use std::path::PathBuf;

const HELP: &str = "\
statements end with a semicolon and may go over several lines
  \\d             collections                  \\d NAME      columns of a collection
  \\ttl           rules and what they cover    \\timing      say how long statements take (on/off)
  .chart         draw the last query's rows   .format WORD  table, csv, json or ndjson
  .rows N        rows shown of a table        .help        this text
  .quit          leave (also Ctrl-D)          Ctrl-C       stop a statement, or clear the line
CREATE COLLECTION c WITH (timeField = 't', metaField = 's') EXPIRE AFTER 7 DAYS;
CREATE TTL INDEX i ON c (t) EXPIRE AFTER 1 DAY WHERE s = 'x';
SHOW COLLECTIONS; SHOW TTL; SHOW BUCKETS FOR c; EXPLAIN EXPIRY FOR c; SWEEP;
for time series, beside DataFusion's functions (docs/sql.md shows each):
  date_bin('1 hour', t [, zone or origin])        date_bin_gapfill('1 hour', t), locf(agg), interpolate(agg)
  first(v, t), last(v, t), latest('c')            time_weighted_avg(v, t), increase(v, t), rate(v, t), delta(v, t)
  l ASOF [LEFT] JOIN r ON l.s = r.s AND l.t >= r.t";

const WORDS: [&str; 70] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "HAVING",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT JOIN",
    "ASOF JOIN",
    "ASOF LEFT JOIN",
    "ON",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS NULL",
    "IS NOT NULL",
    "BETWEEN",
    "LIKE",
    "DISTINCT",
    "UNION ALL",
    "WITH",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "INTERVAL",
    "TIMESTAMP",
    "OVER",
    "PARTITION BY",
    "DESC",
    "ASC",
    "INSERT INTO",
    "VALUES",
    "DELETE FROM",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "EXPLAIN EXPIRY FOR",
    "CREATE COLLECTION",
    "CREATE TTL INDEX",
    "CREATE VIEW",
    "DROP COLLECTION",
    "DROP TTL INDEX",
    "ALTER COLLECTION",
    "ALTER TTL INDEX",
    "EXPIRE AFTER",
    "EXPIRE OFF",
    "SECONDS",
    "MINUTES",
    "HOURS",
    "DAYS",
    "WEEKS",
    "SHOW COLLECTIONS",
    "SHOW TTL",
    "SHOW BUCKETS FOR",
    "SHOW OPERATIONS",
    "SHOW SWEEPS",
    "SHOW PARAMETERS",
    "SHOW TABLES",
    "SET PARAMETER",
    "SWEEP",
    "FLUSH",
    "COMPACT",
    "DESCRIBE",
    "timeField",
    "metaField",
];

struct Assistant {
    names: Vec<String>,
}

impl Assistant {
    fn refresh(&mut self, session: Option<&Session>) {
        self.names = WORDS.iter().map(|w| (*w).to_owned()).collect();
        let Some(session) = session else { return };
        self.names.extend(session.table_names());
        self.names.extend(crate::system::TABLES.iter().map(|t| format!("ebbtide.{t}")));
        let snapshot = session.database().snapshot();
        for name in snapshot.collections() {
            if let Ok(collection) = snapshot.collection(&name) {
                self.names.extend(collection.schema().arrow().fields().iter().map(|f| f.name().clone()));
            }
        }
        self.names.extend(session.function_names());
        self.names.sort();
        self.names.dedup();
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = line.get(..at).unwrap_or(line);
        let start = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).map_or(0, |i| i + 1);
        let word = before.get(start..).unwrap_or_default().to_lowercase();
        if word.is_empty() {
            return Ok((at, Vec::new()));
        }
        let matching = self.names.iter().filter(|n| n.to_lowercase().starts_with(&word));
        let candidates = matching.map(|n| Pair { display: n.clone(), replacement: n.clone() }).collect();
        Ok((start, candidates))
    }
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let own = text.trim_start().starts_with(['.', '\\']) || text.trim().is_empty();
        if own || !statement::is_incomplete(text) {
            return Ok(ValidationResult::Valid(None));
        }
        Ok(ValidationResult::Incomplete)
    }
}

impl Hinter for Assistant {
    type Hint = String;
}
impl Highlighter for Assistant {}
impl Helper for Assistant {}

fn history_path() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ebbtide_history"))
}

/// Runs the shell until the user leaves.
pub(crate) fn run(
    cli: &Cli,
    settings: SessionSettings,
    show: Show,
    runtime: &tokio::runtime::Runtime,
) -> Result<(), Failure> {
    let mut session = LazySession::new(cli, settings, Need::Read);
    session.open_shell()?;
    let _background = session.opened().and_then(|s| {
        let _inside = runtime.enter();
        s.database().start_background().ok()
    });
    let fail = |e: ReadlineError| Failure::new(format!("cannot read from the terminal: {e}"));
    let config = Config::builder().auto_add_history(true).max_history_size(10_000).map_err(fail)?.build();
    let mut editor: Editor<Assistant, DefaultHistory> = Editor::with_config(config).map_err(fail)?;
    editor.set_helper(Some(Assistant { names: Vec::new() }));
    if let Some(path) = history_path() {
        // A first run has no history.
        let _ = editor.load_history(&path);
    }
    match session.opened() {
        Some(_) => eprintln!("ebbtide {}: {}  (.help shows help)", env!("CARGO_PKG_VERSION"), cli.db.display()),
        None => eprintln!("no database at {} yet: CREATE COLLECTION makes it  (.help shows help)", cli.db.display()),
    }
    let mut shell = Shell { show, last: String::new() };
    loop {
        if let Some(helper) = editor.helper_mut() {
            helper.refresh(session.opened());
        }
        match editor.readline("ebbtide> ") {
            Ok(line) => match shell.line(&line, &mut session, runtime) {
                Ok(true) => {}
                Ok(false) => break,
                Err(failure) if failure.pipe => return Err(failure),
                Err(failure) => eprintln!("error: {failure}"),
            },
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(fail(error)),
        }
    }
    if let Some(path) = history_path()
        && let Err(error) = editor.save_history(&path)
    {
        eprintln!("the history could not be kept in {}: {error}", path.display());
    }
    Ok(())
}

struct Shell {
    show: Show,
    last: String,
}

impl Shell {
    /// Runs what was typed; `false` to leave.
    fn line(
        &mut self,
        line: &str,
        session: &mut LazySession<'_>,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<bool, Failure> {
        let typed = line.trim();
        if !typed.starts_with(['.', '\\']) {
            if !typed.is_empty() {
                self.run(typed, session, runtime)?;
            }
            return Ok(true);
        }
        let mut words = typed.trim_end_matches(';').split_whitespace();
        let (word, argument) = (words.next().unwrap_or_default(), words.next());
        match (word, argument) {
            (".quit" | ".exit" | "\\q", _) => return Ok(false),
            (".help" | "\\?" | "\\h", _) => eprintln!("{HELP}"),
            ("\\d" | "\\dt" | ".tables", None) => {
                let sql = "SELECT name, meta_field, granularity, expire_after_seconds, buckets, measurements, bytes, \
                           first_time, last_time, state FROM ebbtide.collections ORDER BY name";
                self.run(sql, session, runtime)?;
            }
            ("\\d", Some(name)) => self.run(&format!("DESCRIBE \"{name}\""), session, runtime)?,
            ("\\ttl" | ".ttl", _) => self.run("SHOW TTL", session, runtime)?,
            ("\\timing" | ".timing", _) => {
                self.show.timing = !self.show.timing;
                eprintln!("timing is {}", if self.show.timing { "on" } else { "off" });
            }
            (".format", Some(word)) => match <Format as clap::ValueEnum>::from_str(word, true) {
                Ok(format @ (Format::Table | Format::Csv | Format::Json | Format::Ndjson)) => self.show.format = format,
                _ => return Err(Failure::new("the shell shows table, csv, json or ndjson; .format table")),
            },
            (".rows", Some(count)) => {
                let count = count.parse().map_err(|_| Failure::new("a number of rows is expected: .rows 100"))?;
                self.show.rows_max = Some(count);
            }
            (".chart", _) => self.chart(session, runtime)?,
            (other, _) => {
                let known = [".quit", ".help", ".timing", ".format", ".rows", ".chart", "\\d", "\\ttl", "\\timing"];
                let hint = crate::suggest::hint(other, known);
                return Err(Failure::new(format!("the shell has no command '{other}'{hint} (.help lists them)")));
            }
        }
        Ok(true)
    }

    fn run(
        &mut self,
        text: &str,
        session: &mut LazySession<'_>,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<(), Failure> {
        let statements = statement::parse(text).map_err(crate::QueryError::from)?;
        for statement in &statements {
            let session = session.get(Some(statement))?;
            let sink = || Ok(files::stdout());
            let outcome = runtime.block_on(async {
                tokio::select! {
                    outcome = one(session, statement, text, self.show, &sink) => outcome,
                    _ = tokio::signal::ctrl_c() => Err(Failure::new("stopped")),
                }
            });
            if outcome? && super::open::need(statement) == Need::Read {
                statement.text.clone_into(&mut self.last);
            }
        }
        Ok(())
    }

    fn chart(&self, session: &mut LazySession<'_>, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
        if self.last.is_empty() {
            return Err(Failure::new("there is nothing to draw: run a query first"));
        }
        let statements = statement::parse(&self.last).map_err(crate::QueryError::from)?;
        let Some(statement) = statements.first() else { return Ok(()) };
        let session = session.get(Some(statement))?;
        let picture = runtime.block_on(async {
            let started = session.start(statement, &self.last).await?;
            let Some(stream) = started.stream else { return Err(Failure::new("there is nothing to draw")) };
            let batches: Vec<_> = stream.try_collect().await.map_err(crate::QueryError::from)?;
            drawn(&started.schema, &batches)
        })?;
        super::say!("{picture}");
        Ok(())
    }
}
