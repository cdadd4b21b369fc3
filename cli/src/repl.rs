//! The shell: multi-line statements, history, completion, and a few commands of its own.

mod assist;
mod highlight;
mod listing;

use crate::args::Cli;
use crate::open::{LazySession, Need};
use crate::show::{Drawing, Show, TERMINAL_ROWS_MAX, form_of, one};
use crate::{Failure, files};
use assist::{Assistant, COMMANDS};
use ebbtide_query::SessionSettings;
use ebbtide_query::Stop;
use ebbtide_query::output::Format;
use ebbtide_query::statement;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{ColorMode, CompletionType, Config, Editor};
use std::path::{Path, PathBuf};

/// Maximum rows of a table in a pager.
const PAGED_ROWS_MAX: usize = 10_000;

const HELP: &str = "\
statements end with a semicolon and may span several lines
  \\d [NAME]     collections, or one: its columns, rules and what expires next
  \\ttl          rules and what they cover
  \\df [WORD]    functions (with WORD in their name)
  .chart [FILE] draw the last query's rows here, or into an .svg or .png
  .format WORD  table, csv, json or ndjson
  .rows N       maximum rows shown of a table
  .timing       show how long statements take: on or off
  .pager off    show long and wide tables without a pager
  .help         this text                  .quit   leave (also Ctrl-D)
Tab completes, Ctrl-R searches the history,
Ctrl-C stops a statement or clears the line
  CREATE COLLECTION c WITH (timeField = 't', metaField = 's')
         EXPIRE AFTER 7 DAYS;
  CREATE TTL INDEX i ON c (t) EXPIRE AFTER 1 DAY WHERE s = 'x';
  ALTER COLLECTION c EXPIRE AFTER 30 DAYS;   SHOW TTL;   SWEEP;
  EXPLAIN EXPIRY FOR c WITH (expireAfterSeconds = 2592000);   -- a dry run
for time series, besides DataFusion's functions (docs/sql.md describes each):
  date_bin('1 hour', t [, zone or origin])   first(v, t), last(v, t)
  date_trunc('day', t [, zone])              approx_percentile_cont(...)
  date_bin_gapfill('1 hour', t)              locf(agg), interpolate(agg)
  latest('c')                                time_weighted_avg(v, t)
  increase(v, t), rate(v, t), delta(v, t)
  l ASOF [LEFT] JOIN r ON l.s = r.s AND l.t >= r.t";

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
    let config = Config::builder().auto_add_history(true).max_history_size(10_000).map_err(fail)?;
    let colour = if files::colour() { ColorMode::Enabled } else { ColorMode::Disabled };
    let config = config.completion_type(CompletionType::List).color_mode(colour).build();
    let mut editor: Editor<Assistant, DefaultHistory> = Editor::with_config(config).map_err(fail)?;
    editor.set_helper(Some(Assistant::new(files::colour())));
    if let Some(path) = history_path() {
        // There is no history on the first run.
        let _ = editor.load_history(&path);
    }
    match session.opened() {
        Some(_) => eprintln!("ebbtide {}: {}  (.help shows help)", env!("CARGO_PKG_VERSION"), cli.db.display()),
        None => eprintln!("no database at {} yet: CREATE COLLECTION creates it  (.help shows help)", cli.db.display()),
    }
    let mut shell = Shell { show, paging: files::stdout_is_terminal(), rows: None, last: String::new() };
    let mut unsaved = None;
    loop {
        if let Some(helper) = editor.helper_mut() {
            helper.refresh(session.opened());
        }
        let line = editor.readline("ebbtide> ");
        // Saved after each line: a terminal may be closed at any time.
        if let Some(path) = history_path().filter(|_| line.is_ok()) {
            unsaved = editor.append_history(&path).err().map(|error| (path, error)).or(unsaved);
        }
        let terminal = editor.dimensions().map(|(_, rows)| usize::from(rows));
        shell.show.page = terminal.filter(|_| shell.paging);
        match line {
            Ok(line) => match shell.line(&line, &mut session, runtime) {
                Ok(true) => {}
                Ok(false) => break,
                Err(failure) if failure.pipe => return Err(failure),
                Err(failure) => files::complain(&failure.to_string()),
            },
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(fail(error)),
        }
    }
    if let Some((path, error)) = unsaved {
        eprintln!("the history could not be saved in {}: {error}", path.display());
    }
    Ok(())
}

struct Shell {
    show: Show,
    paging: bool,
    /// Maximum rows of a table, if the user has set it.
    rows: Option<usize>,
    last: String,
}

impl Shell {
    /// Runs a line of input; `false` to leave the shell.
    fn line(
        &mut self,
        line: &str,
        session: &mut LazySession<'_>,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<bool, Failure> {
        let typed = match line.trim() {
            // psql and DuckDB accept these without a dot, too.
            "help" | "help;" => ".help",
            "exit" | "exit;" | "quit" | "quit;" => ".quit",
            typed => typed,
        };
        if !typed.starts_with(['.', '\\']) {
            if !typed.is_empty() {
                self.run(typed, session, runtime)?;
            }
            return Ok(true);
        }
        let mut words = typed.trim_end_matches(';').split_whitespace();
        let (word, argument) = (words.next().unwrap_or_default(), words.next());
        // A file name may contain spaces.
        let rest_of_line = typed.split_once(char::is_whitespace).map(|(_, rest)| rest.trim());
        match (word, argument) {
            (".quit" | ".exit" | "\\q", _) => return Ok(false),
            (".help" | "\\?" | "\\h", _) => eprintln!("{HELP}"),
            ("\\d" | "\\dt" | "\\l" | ".tables", None) => listing::collections(session.get(None)?)?,
            ("\\d" | "\\dt" | ".schema", Some(name)) => listing::collection(session.get(None)?, name)?,
            ("\\ttl" | ".ttl", _) => self.rules(session, runtime)?,
            ("\\timing" | ".timing", _) => {
                self.show.timing = !self.show.timing;
                eprintln!("timing is {}", if self.show.timing { "on" } else { "off" });
            }
            (".format" | ".mode", Some(word)) => match word.parse() {
                Ok(format @ (Format::Table | Format::Csv | Format::Json | Format::Ndjson)) => self.show.format = format,
                _ => return Err(Failure::new(".format takes table, csv, json or ndjson")),
            },
            (".rows", Some(count)) => {
                let count = count.parse().map_err(|_| Failure::new("expected a number of rows: .rows 100"))?;
                self.rows = Some(count);
            }
            (".pager", None | Some("on" | "off")) => {
                self.paging = argument.map_or(!self.paging, |word| word == "on") && files::stdout_is_terminal();
                eprintln!("the pager is {}", if self.paging { "on" } else { "off" });
            }
            ("\\df", word) => functions(session, word)?,
            (".chart", _) => self.chart(rest_of_line.map(Path::new), session, runtime)?,
            (other, _) => {
                let hint = ebbtide_query::suggest::hint(other, COMMANDS);
                return Err(Failure::new(format!("unknown command '{other}'{hint} (.help lists all commands)")));
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
        let statements = statement::parse(text).map_err(ebbtide_query::QueryError::from)?;
        let rows_max = self.rows.unwrap_or(if self.show.page.is_some() { PAGED_ROWS_MAX } else { TERMINAL_ROWS_MAX });
        let show = Show { rows_max: Some(rows_max), ..self.show };
        for statement in &statements {
            let sink = || Ok(files::stdout());
            let session = session.get(Some(statement))?;
            let gave = stoppable(runtime, &session.stop_handle(), one(session, statement, text, show, &sink))?;
            if gave && crate::open::need(statement) == Need::Read {
                statement.text.clone_into(&mut self.last);
            }
        }
        Ok(())
    }

    fn rules(&mut self, session: &mut LazySession<'_>, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
        if listing::has_rules(session.get(None)?)? {
            let last = std::mem::take(&mut self.last);
            let shown = self.run("SHOW TTL", session, runtime);
            self.last = last;
            return shown;
        }
        crate::say!("no rules: nothing expires; ALTER COLLECTION c EXPIRE AFTER 30 DAYS sets one");
        Ok(())
    }

    /// Runs the last query again and draws its rows, in the terminal or into a file.
    fn chart(
        &self,
        file: Option<&Path>,
        session: &mut LazySession<'_>,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<(), Failure> {
        if self.last.is_empty() {
            return Err(Failure::new("there is nothing to draw: run a query first"));
        }
        let drawing = file.map_or(Ok(Drawing::Text), |path| form_of(path).map(Drawing::Picture))?;
        let statements = statement::parse(&self.last).map_err(ebbtide_query::QueryError::from)?;
        let Some(statement) = statements.first() else { return Ok(()) };
        let new = file.map(|path| files::NewFile::create(path, session.folder())).transpose()?;
        let session = session.get(Some(statement))?;
        let show = Show { chart: Some(drawing), ..self.show };
        let sink = || new.as_ref().map_or_else(|| Ok(files::stdout()), files::NewFile::sink);
        stoppable(runtime, &session.stop_handle(), one(session, statement, &self.last, show, &sink))?;
        if let (Some(new), Some(path)) = (new, file) {
            new.keep()?;
            eprintln!("chart written to {}", path.display());
        }
        Ok(())
    }
}

/// Runs a statement until it ends or the user presses Ctrl-C.
fn stoppable(
    runtime: &tokio::runtime::Runtime,
    stop: &Stop,
    work: impl Future<Output = Result<bool, Failure>>,
) -> Result<bool, Failure> {
    stop.reset();
    let stops = stop.clone();
    // In a separate task, since this thread may be busy with the statement.
    let watcher = runtime.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stops.stop();
        }
    });
    let outcome = runtime.block_on(async {
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => Err(Failure::new("stopped")),
            outcome = work => outcome,
        }
    });
    watcher.abort();
    outcome
}

/// Lists functions in columns.
fn functions(session: &mut LazySession<'_>, word: Option<&str>) -> Result<(), Failure> {
    let session = session.get(None)?;
    let mut names = session.function_names();
    names.extend(ebbtide_query::TABLE_FUNCTIONS.map(str::to_owned));
    names.sort();
    names.dedup();
    let word = word.unwrap_or_default().to_lowercase();
    names.retain(|name| name.contains(&word));
    if names.is_empty() {
        return Err(Failure::new(format!("there is no function with '{word}' in its name")));
    }
    let widest = names.iter().map(String::len).max().unwrap_or(0) + 2;
    let columns = (usize::from(files::width().unwrap_or(80)) / widest).max(1);
    for row in names.chunks(columns) {
        let line: String = row.iter().map(|name| format!("{name:widest$}")).collect();
        crate::say!("{}", line.trim_end());
    }
    Ok(())
}
