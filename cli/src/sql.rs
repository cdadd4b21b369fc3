//! `ebbtide sql` and `ebbtide export`.

use crate::args::{Cli, ExportArgs, SqlArgs};
use crate::open::{LazySession, need};
use crate::show::{Drawing, Show, TERMINAL_ROWS_MAX, form_of, one};
use crate::{Failure, files, parse_now};
use ebbtide_query::output::{Format, ResultWriter, TableStyle};
use ebbtide_query::{SessionSettings, statement};
use futures::StreamExt;
use std::path::Path;

/// Runs `ebbtide sql`.
pub(crate) fn run(cli: &Cli, args: &SqlArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let settings = SessionSettings {
        now: parse_now(args.now.as_deref())?,
        memory_bytes: args.memory,
        ..SessionSettings::default()
    };
    let output = args.output.as_deref().filter(|path| !is_stdout(path));
    let format = format_of(args.format, output, Format::Table)?;
    if matches!(format, Format::Parquet | Format::Arrow) && output.is_none() && files::stdout_is_terminal() {
        return Err(Failure::usage(
            "this format cannot be shown on a terminal: write it to a file with --output FILE or > FILE",
        ));
    }
    let (chart, file) = match &args.chart {
        None => (None, output),
        Some(None) => (Some(Drawing::Text), None),
        Some(Some(path)) => (Some(Drawing::Picture(form_of(path)?)), Some(path.as_path())),
    };
    let person = files::stdout_is_terminal() && file.is_none();
    let rows_max = person.then_some(TERMINAL_ROWS_MAX);
    let show = Show { format, chart, timing: args.timing, rows_max, page: None };
    let text = if !args.statements.is_empty() {
        // A comment at the end of a statement ends with its line.
        let ended = |text: &String| if text.contains("--") { format!("{text}\n") } else { text.clone() };
        args.statements.iter().map(ended).collect::<Vec<_>>().join(";\n")
    } else if files::stdin_is_terminal() {
        if args.chart.is_some() || args.output.is_some() {
            return Err(Failure::usage("there is no statement; to draw a chart in the shell, use .chart FILE"));
        }
        return crate::repl::run(cli, settings, show, runtime);
    } else {
        files::read_stdin()?
    };
    let statements = statement::parse(&text).map_err(ebbtide_query::QueryError::from)?;
    let Some(most) = statements.iter().map(need).max() else {
        return Err(Failure::usage("there is no statement"));
    };
    let mut session = LazySession::new(cli, settings, most);
    let mut output = match file {
        Some(path) => Some(files::NewFile::create(path, &cli.db)?),
        None => None,
    };
    let mut results = 0;
    for statement in &statements {
        let session = session.get(Some(statement))?;
        let gave = runtime.block_on(async {
            let sink = || match &output {
                Some(file) => file.sink(),
                None => Ok(files::stdout()),
            };
            one(session, statement, &text, show, &sink).await
        })?;
        results += usize::from(gave);
        if results > 1 && (output.is_some() || matches!(format, Format::Parquet | Format::Arrow)) {
            return Err(Failure::usage("a file can hold the rows of only one statement: run the others separately"));
        }
    }
    if let Some(new) = output.take() {
        if results == 0 && chart.is_some() {
            return Err(Failure::usage("there is nothing to draw: no statement returns rows"));
        }
        new.keep()?;
    }
    if let (Some(path), Some(_)) = (file, chart) {
        eprintln!("chart written to {}", path.display());
    }
    Ok(())
}

/// Whether an output is standard output: `-`.
fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
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

/// Runs `ebbtide export`.
pub(crate) fn export(cli: &Cli, args: &ExportArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let settings = SessionSettings { now: parse_now(args.now.as_deref())?, ..SessionSettings::default() };
    let path = Some(args.output.as_path()).filter(|path| !is_stdout(path));
    let format = format_of(args.format, path, Format::Csv)?;
    let mut session = LazySession::new(cli, settings, crate::open::Need::Read);
    let name = args.query.trim();
    let text = match session.get(None)?.table_names().iter().any(|t| t == name) {
        true => format!("SELECT * FROM \"{}\"", name.replace('"', "\"\"")),
        false => args.query.clone(),
    };
    let statements = statement::parse(&text).map_err(ebbtide_query::QueryError::from)?;
    let [statement] = statements.as_slice() else {
        return Err(Failure::usage(format!("expected one query, found {}", statements.len())));
    };
    if need(statement) != crate::open::Need::Read {
        return Err(Failure::usage("export takes a query: this statement changes data"));
    }
    let session = session.get(None)?;
    let file = path.map(|path| files::NewFile::create(path, &cli.db)).transpose()?;
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
    eprintln!("{rows} rows written to {}", args.output.display());
    Ok(())
}
