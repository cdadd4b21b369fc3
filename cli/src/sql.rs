//! `ebbtide sql` and `ebbtide export`.

use crate::args::{Cli, ExportArgs, FormatOrFile, SqlArgs};
use crate::human::counted;
use crate::lazy_session::LazySession;
use crate::open::{Need, need};
use crate::show::{Drawing, Show, TERMINAL_ROWS_MAX, form_of, one};
use crate::{Failure, files, parse_now};
use ebbtide::DocumentsSnapshot;
use ebbtide::documents_model::json::canonical_text;
use ebbtide_query::output::{Format, ResultWriter, TableStyle};
use ebbtide_query::{Access, SessionSettings, changes_database, may_return_rows, returns_rows, statement};
use futures::StreamExt;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The most collections that an error lists.
const LISTED_MAX: usize = 12;

/// Runs `ebbtide sql`.
pub(crate) fn run(cli: &Cli, args: &SqlArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let settings = SessionSettings {
        now: parse_now(args.now.as_deref())?,
        memory_bytes: args.memory,
        ..SessionSettings::default()
    };
    let given = Given::of(args)?;
    let output = args.output.as_deref().filter(|path| !is_stdout(path));
    let format = format_of(given.format, output, Format::Table)?;
    check_terminal(format, output)?;
    let (chart, file) = match &given.chart {
        None => (None, output),
        Some(None) => (Some(Drawing::Text), None),
        Some(Some(path)) => (Some(Drawing::Picture(form_of(path)?)), Some(path.as_path())),
    };
    let person = files::stdout_is_terminal() && file.is_none();
    let rows_max = person.then_some(TERMINAL_ROWS_MAX);
    let show =
        Show { format, chart, title: args.title.clone(), timing: args.timing, rows_max, records: false, page: None };
    let text = match given.text {
        Some(text) => text,
        None if files::stdin_is_terminal() => {
            if args.chart.is_some() || args.output.is_some() {
                return Err(Failure::usage("there is no statement; the shell draws with .chart FILE"));
            }
            return crate::repl::run(cli, settings, show, runtime);
        }
        None => files::read_stdin()?,
    };
    let statements = statement::parse(&text).map_err(ebbtide_query::QueryError::from)?;
    let Some(most) = statements.iter().map(need).max() else {
        return Err(Failure::usage("there is no statement"));
    };
    let is_single = file.is_some() || matches!(format, Format::Parquet | Format::Arrow);
    let has_rows = statements.iter().any(may_return_rows);
    // Before anything is done that cannot be undone.
    if file.is_some() && !has_rows {
        return Err(nothing(chart));
    }
    if is_single && statements.iter().filter(|statement| returns_rows(statement)).count() > 1 {
        return Err(several());
    }
    let mut session = LazySession::new(cli, settings, most);
    let mut output = match file {
        Some(path) => Some(files::NewFile::create(path, &cli.db)?.gone_if_interrupted(runtime)),
        None => None,
    };
    let counts = Show { format: Format::Table, chart: None, ..show.clone() };
    let mut results = 0;
    for statement in &statements {
        let session = session.get(Some(statement))?;
        // A file or a chart gets the rows of a query, and not how many rows a write beside it has changed.
        let writes = || changes_database(statement) || session.access(statement) == Access::Write;
        let is_aside = has_rows && (is_single || chart.is_some()) && !may_return_rows(statement) && writes();
        let gave = runtime.block_on(async {
            let sink = || match &output {
                Some(file) => file.sink(),
                None => Ok(files::stdout()),
            };
            match is_aside {
                true => one(session, statement, &text, &counts, &|| Ok(files::stderr())).await,
                false => one(session, statement, &text, &show, &sink).await,
            }
        })?;
        results += usize::from(gave && !is_aside);
        if results > 1 && is_single {
            return Err(several());
        }
    }
    if let Some(new) = output.take() {
        if results == 0 {
            return Err(nothing(chart));
        }
        new.keep()?;
    }
    if let (Some(path), Some(_)) = (file, chart) {
        eprintln!("chart written to {}", path.display());
    }
    Ok(())
}

fn nothing(chart: Option<Drawing>) -> Failure {
    let what = if chart.is_some() { "draw" } else { "write" };
    Failure::usage(format!("there is nothing to {what}: no statement returns rows"))
}

fn several() -> Failure {
    Failure::usage("a file can hold the rows of only one statement: run the others separately")
}

/// Whether an output is standard output: `-`.
fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// What the words behind `ebbtide sql` mean.
struct Given {
    /// The statements, unless they come from elsewhere.
    text: Option<String>,
    format: Option<Format>,
    chart: Option<Option<PathBuf>>,
}

impl Given {
    fn of(args: &SqlArgs) -> Result<Given, Failure> {
        if args.title.is_some() && args.chart.is_none() {
            // Not by clap: what an option requires is not asked for beside an argument that conflicts with it.
            return Err(Failure::usage(
                "--title belongs to --chart, which draws a picture: add --chart or drop --title",
            ));
        }
        let mut statements = args.statements.clone();
        let (mut format, mut file) = (None, args.file.clone());
        for given in &args.format {
            let taken = match given {
                FormatOrFile::Format(given) => format.replace(*given).is_some(),
                FormatOrFile::File(path) => file.replace(path.clone()).is_some(),
            };
            if taken {
                return Err(Failure::usage("--format takes one format, and --file one file"));
            }
        }
        let mut chart = args.chart.clone();
        // `--chart out/c.svg`, without the sign of equality.
        if chart == Some(None)
            && let Some(at) = statements.iter().position(|text| is_picture(text))
        {
            chart = Some(Some(PathBuf::from(statements.remove(at))));
        }
        if args.title.is_some() && chart == Some(None) {
            return Err(Failure::usage(
                "--title heads a picture, and a chart in the terminal has no title: name a file with --chart=FILE",
            ));
        }
        match statements.as_slice() {
            [word] if word.eq_ignore_ascii_case("help") => {
                let what =
                    "help is no statement: ebbtide sql --help shows options, the guide's page sql.md the language";
                return Err(Failure::usage(what));
            }
            [path] if path.ends_with(".sql") && !path.contains(char::is_whitespace) => {
                return Err(Failure::usage(format!(
                    "{path} is a file: run its statements with ebbtide sql --file {path}"
                )));
            }
            _ => {}
        }
        let text = match (file, statements.is_empty()) {
            (Some(_), false) => {
                return Err(Failure::usage("statements come from --file or from the command line, not both"));
            }
            (Some(path), true) if path == Path::new("-") => Some(files::read_stdin()?),
            (Some(path), true) => Some(files::read_text(&path)?),
            (None, true) => None,
            // A comment at the end of one ends with its line.
            (None, false) => {
                let ended = |text: &String| if text.contains("--") { format!("{text}\n") } else { text.clone() };
                Some(statements.iter().map(ended).collect::<Vec<_>>().join(";\n"))
            }
        };
        Ok(Given { text, format, chart })
    }
}

/// Whether a word is the name of a file for a chart.
fn is_picture(text: &str) -> bool {
    let lower = text.to_lowercase();
    (lower.ends_with(".svg") || lower.ends_with(".png")) && !lower.starts_with("select ") && !lower.starts_with("from ")
}

fn format_of(format: Option<Format>, output: Option<&Path>, default: Format) -> Result<Format, Failure> {
    match (format, output) {
        (Some(format), _) => Ok(format),
        (None, None) => Ok(default),
        (None, Some(path)) => Format::of_path(path).ok_or_else(|| {
            let what = format!(
                "cannot tell the format of {} from its name; add --format csv, json, ndjson, parquet or arrow",
                path.display()
            );
            Failure::usage(what)
        }),
    }
}

/// Refuses to write bytes to a terminal.
fn check_terminal(format: Format, output: Option<&Path>) -> Result<(), Failure> {
    if matches!(format, Format::Parquet | Format::Arrow) && output.is_none() && files::stdout_is_terminal() {
        return Err(Failure::usage(
            "this format cannot be shown on a terminal: write it to a file with --output FILE or > FILE",
        ));
    }
    Ok(())
}

/// Writes the documents of an ordinary collection as lines of canonical Extended JSON, which read back exactly.
fn export_documents(
    documents: &DocumentsSnapshot,
    file: Option<files::NewFile>,
    path: Option<&Path>,
) -> Result<(), Failure> {
    let mut sink = BufWriter::new(file.as_ref().map_or_else(|| Ok(files::stdout()), files::NewFile::sink)?);
    let (mut count, mut failed) = (0_u64, None);
    documents.for_each(&mut |found| {
        count += 1;
        failed = writeln!(sink, "{}", canonical_text(&found.document)).err();
        Ok(failed.is_none())
    })?;
    failed.map_or_else(|| sink.flush(), Err)?;
    drop(sink);
    let (Some(file), Some(path)) = (file, path) else { return Ok(()) };
    file.keep()?;
    eprintln!("{} written to {}", counted(count, "document"), path.display());
    Ok(())
}

/// Whether a text that is no statement may be the name of a collection.
fn is_a_name(text: &str) -> bool {
    let is_of_a_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    !text.is_empty() && text.chars().all(is_of_a_name) && !text.starts_with("ebbtide.")
}

/// The error for the name of a collection or view that does not exist.
fn no_collection(name: &str, tables: &[String]) -> Failure {
    let mut message = format!("collection '{name}' does not exist");
    let hint = ebbtide_query::suggest::hint(name, tables.iter().map(String::as_str));
    if !hint.is_empty() {
        message.push_str(&hint);
    } else if !tables.is_empty() && tables.len() <= LISTED_MAX {
        message.push_str(&format!("; available: {}", tables.join(", ")));
    }
    Failure::new(message)
}

/// Runs `ebbtide export`.
pub(crate) fn export(cli: &Cli, args: &ExportArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let settings = SessionSettings { now: parse_now(args.now.as_deref())?, ..SessionSettings::default() };
    let path = Some(args.output.as_path()).filter(|path| !is_stdout(path));
    let mut session = LazySession::new(cli, settings, Need::Read);
    let name = args.query.trim();
    // The name of a collection needs a database, a query of files does not.
    let queries = if is_a_name(name) { Vec::new() } else { statement::parse(name).unwrap_or_default() };
    let session = session.get(queries.first().filter(|query| need(query) == Need::Read))?;
    let ordinary = session.snapshot().documents(name).ok();
    let default = if ordinary.is_some() { Format::Ndjson } else { Format::Csv };
    let format = format_of(args.format, path, default)?;
    check_terminal(format, path)?;
    let create = || {
        let file = path.map(|path| files::NewFile::create(path, &cli.db)).transpose()?;
        Ok::<_, Failure>(file.map(|file| file.gone_if_interrupted(runtime)))
    };
    if let (Some(documents), Format::Ndjson) = (&ordinary, format) {
        return export_documents(documents, create()?, path);
    }
    let tables = session.table_names();
    let text = match tables.iter().any(|t| t == name) {
        true => format!("SELECT * FROM \"{}\"", name.replace('"', "\"\"")),
        // No word alone is a query.
        false if is_a_name(name) => return Err(no_collection(name, &tables)),
        false => args.query.clone(),
    };
    let statements = statement::parse(&text).map_err(ebbtide_query::QueryError::from)?;
    let [statement] = statements.as_slice() else {
        return Err(Failure::usage(format!("expected one query, found {}", statements.len())));
    };
    if need(statement) != Need::Read {
        return Err(Failure::usage("export takes a query: this statement changes data"));
    }
    let file = create()?;
    let rows = runtime.block_on(async {
        let started = session.start(statement, &text).await?;
        let Some(mut stream) = started.stream else {
            return Err(Failure::usage("export takes a query: this statement returns no rows"));
        };
        let style = TableStyle::default();
        let sink = file.as_ref().map_or_else(|| Ok(files::stdout()), files::NewFile::sink)?;
        let mut writer = ResultWriter::new(format, &stream.schema(), sink, style)?;
        while let Some(batch) = stream.next().await {
            writer.write(&batch.map_err(|e| session.explain(&e, statement, &text))?)?;
        }
        let rows = writer.rows();
        writer.finish()?;
        Ok(rows)
    })?;
    let Some(file) = file else { return Ok(()) };
    file.keep()?;
    eprintln!("{} written to {}", counted(rows as u64, "row"), args.output.display());
    Ok(())
}
