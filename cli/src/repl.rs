//! The shell: multi-line statements, history, completion, and a few commands of its own.

mod assist;
mod commands;
mod highlight;
mod listing;

use crate::args::Cli;
use crate::lazy_session::LazySession;
use crate::open::Need;
use crate::show::{Drawing, Show, TERMINAL_ROWS_MAX, form_of, one};
use crate::{Failure, files};
use assist::Assistant;
use commands::Action;
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
    let mut shell = Shell::new(show);
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
    /// The last query, for a chart.
    last: String,
    /// What was run last, for the editor.
    typed: String,
    /// Where the next query's rows go.
    output: Option<PathBuf>,
    /// Files that are being read, one from within the other.
    reading: usize,
}

/// Files may be read from files so deep.
const READING_MAX: usize = 16;

impl Shell {
    fn new(show: Show) -> Self {
        let paging = files::stdout_is_terminal();
        Shell { show, paging, rows: None, last: String::new(), typed: String::new(), output: None, reading: 0 }
    }

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
                typed.clone_into(&mut self.typed);
                self.run(typed, session, runtime)?;
            }
            return Ok(true);
        }
        let typed = typed.trim_end_matches(';');
        let word = typed.split_whitespace().next().unwrap_or_default();
        // A file's name may have spaces in it.
        let behind = typed.split_once(char::is_whitespace).map(|(_, rest)| rest.trim()).filter(|rest| !rest.is_empty());
        let Some(action) = commands::action(word) else {
            let hint = ebbtide_query::suggest::hint(word, commands::names());
            return Err(Failure::new(format!("the shell has no command '{word}'{hint} (.help lists them)")));
        };
        if action == Action::Quit {
            return Ok(false);
        }
        self.command(action, behind, session, runtime)?;
        Ok(true)
    }

    fn command(
        &mut self,
        action: Action,
        behind: Option<&str>,
        session: &mut LazySession<'_>,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<(), Failure> {
        match (action, behind) {
            (Action::Quit, _) => {}
            (Action::Help, _) => eprintln!("{}", commands::help()),
            (Action::Collections, None) => listing::collections(session.get(None)?)?,
            (Action::Collections, Some(name)) => listing::collection(session.get(None)?, name)?,
            (Action::Schema, name) => listing::schema(session.get(None)?, name)?,
            (Action::Rules, _) => self.rules(session, runtime)?,
            (Action::Functions, None) => functions(session)?,
            (Action::Functions, Some(word)) => {
                let word = word.replace('\'', "");
                self.aside(&format!("SHOW FUNCTIONS LIKE '{word}'"), session, runtime)?;
            }
            (Action::Timing, word) => self.show.timing = switched("timing", self.show.timing, word)?,
            (Action::Expanded, word) => self.show.records = switched("expanded display", self.show.records, word)?,
            (Action::Pager, word) => {
                self.paging = switched("the pager", self.paging, word)? && files::stdout_is_terminal();
            }
            (Action::Format, word) => match word.unwrap_or_default().parse() {
                Ok(format @ (Format::Table | Format::Csv | Format::Json | Format::Ndjson)) => self.show.format = format,
                _ => return Err(Failure::new(".format takes table, csv, json or ndjson")),
            },
            (Action::Rows, count) => {
                let count = count.unwrap_or_default().parse();
                self.rows = Some(count.map_err(|_| Failure::new("a number of rows is expected: .rows 100"))?);
            }
            (Action::Read, None) => return Err(Failure::new("a file of statements is expected: \\i setup.sql")),
            (Action::Read, Some(file)) => self.read(Path::new(file), session, runtime)?,
            (Action::Output, None) => {
                self.output = None;
                eprintln!("rows are shown here; \\o FILE writes those of the next query to a file");
            }
            (Action::Output, Some(file)) => {
                if Format::of_path(Path::new(file)).is_none() {
                    let what = format!("{file} does not end in .csv, .json, .ndjson, .parquet or .arrow");
                    return Err(Failure::new(what));
                }
                eprintln!("the rows of the next query go to {file}");
                self.output = Some(PathBuf::from(file));
            }
            (Action::Edit, _) => self.edit(session, runtime)?,
            (Action::Chart, file) => self.chart(file.map(Path::new), session, runtime)?,
        }
        Ok(())
    }

    /// Runs the statements and commands of a file, up to the first that fails.
    fn read(
        &mut self,
        file: &Path,
        session: &mut LazySession<'_>,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<(), Failure> {
        if self.reading == READING_MAX {
            return Err(Failure::new(format!("{}: files are read from within files too deep", file.display())));
        }
        let text = files::read_text(file)?;
        self.reading += 1;
        let outcome = self.script(&text, session, runtime);
        self.reading -= 1;
        outcome.map_err(|failure| Failure { message: format!("{}: {failure}", file.display()), ..failure })
    }

    fn script(
        &mut self,
        text: &str,
        session: &mut LazySession<'_>,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<(), Failure> {
        let mut statement = String::new();
        for line in text.lines() {
            if statement.trim().is_empty() && line.starts_with(['.', '\\']) {
                if !self.line(line, session, runtime)? {
                    return Ok(());
                }
                continue;
            }
            statement.push_str(line);
            statement.push('\n');
            if !statement::is_incomplete(&statement) {
                self.run(&std::mem::take(&mut statement), session, runtime)?;
            }
        }
        if statement.trim().is_empty() { Ok(()) } else { self.run(&statement, session, runtime) }
    }

    /// Lets the user change the last statement, and runs what became of it.
    fn edit(&mut self, session: &mut LazySession<'_>, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
        let fail = |e: std::io::Error| Failure::new(format!("cannot edit: {e}"));
        let mut file = tempfile::Builder::new().prefix("ebbtide-").suffix(".sql").tempfile().map_err(fail)?;
        std::io::Write::write_all(&mut file, format!("{}\n", self.typed).as_bytes()).map_err(fail)?;
        let editor = ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|e| !e.is_empty()));
        let editor = editor.unwrap_or_else(|| "vi".to_owned());
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file.path());
        if !command.status().map_err(fail)?.success() {
            return Err(Failure::new(format!("the editor '{editor}' failed; EDITOR names another one")));
        }
        let text = files::read_text(file.path())?;
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        eprintln!("{text}");
        text.clone_into(&mut self.typed);
        self.run(text, session, runtime)
    }

    /// Runs a statement of ours, which is not the last query of the user.
    fn aside(
        &mut self,
        text: &str,
        session: &mut LazySession<'_>,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<(), Failure> {
        let (last, output) = (std::mem::take(&mut self.last), self.output.take());
        let shown = self.run(text, session, runtime);
        (self.last, self.output) = (last, output);
        shown
    }

    fn run(
        &mut self,
        text: &str,
        session: &mut LazySession<'_>,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<(), Failure> {
        let statements = statement::parse(text).map_err(ebbtide_query::QueryError::from)?;
        let rows_max = self.rows.unwrap_or(if self.show.page.is_some() { PAGED_ROWS_MAX } else { TERMINAL_ROWS_MAX });
        let show = Show { rows_max: Some(rows_max), ..self.show.clone() };
        for statement in &statements {
            let folder = session.folder();
            let session = session.get(Some(statement))?;
            let reads = crate::open::need(statement) == Need::Read;
            let stop = session.stop_handle();
            let gave = match self.output.take().filter(|_| reads) {
                Some(path) => {
                    let format = Format::of_path(&path).unwrap_or(Format::Csv);
                    let file = files::NewFile::create(&path, folder)?;
                    let show = Show { format, rows_max: None, page: None, ..show.clone() };
                    let gave = stoppable(runtime, &stop, one(session, statement, text, &show, &|| file.sink()))?;
                    file.keep()?;
                    eprintln!("rows written to {}", path.display());
                    gave
                }
                None => {
                    let sink = || Ok(files::stdout());
                    stoppable(runtime, &stop, one(session, statement, text, &show, &sink))?
                }
            };
            if gave && reads {
                statement.text.clone_into(&mut self.last);
            }
        }
        Ok(())
    }

    fn rules(&mut self, session: &mut LazySession<'_>, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
        if listing::has_rules(session.get(None)?)? {
            return self.aside("SHOW TTL", session, runtime);
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
        let show = Show { chart: Some(drawing), ..self.show.clone() };
        let sink = || new.as_ref().map_or_else(|| Ok(files::stdout()), files::NewFile::sink);
        stoppable(runtime, &session.stop_handle(), one(session, statement, &self.last, &show, &sink))?;
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
    let outcome = runtime.block_on(stop.unless(tokio::signal::ctrl_c(), work));
    let outcome = outcome.unwrap_or_else(|_| Err(Failure::new("stopped")));
    watcher.abort();
    outcome
}

/// What a switch is after a command: turned, or as a word says.
fn switched(what: &str, is_on: bool, word: Option<&str>) -> Result<bool, Failure> {
    let on = match word {
        None => !is_on,
        Some("on") => true,
        Some("off") => false,
        Some(other) => return Err(Failure::new(format!("on or off is expected, not '{other}'"))),
    };
    eprintln!("{what} is {}", if on { "on" } else { "off" });
    Ok(on)
}

/// Lists functions in columns.
fn functions(session: &mut LazySession<'_>) -> Result<(), Failure> {
    let session = session.get(None)?;
    let mut names = session.function_names();
    names.sort();
    names.dedup();
    let widest = names.iter().map(String::len).max().unwrap_or(0) + 2;
    let columns = (usize::from(files::width().unwrap_or(80)) / widest).max(1);
    for row in names.chunks(columns) {
        let line: String = row.iter().map(|name| format!("{name:widest$}")).collect();
        crate::say!("{}", line.trim_end());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
