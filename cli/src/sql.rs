//! `ebbtide sql` and `ebbtide export`.

use crate::args::{Cli, ExportArgs, SqlArgs};
use crate::open::{LazySession, need};
use crate::{Failure, chart, files, parse_now};
use ebbtide_query::output::{Format, ResultWriter, TableStyle};
use ebbtide_query::statement::{self, Statement};
use ebbtide_query::{Session, SessionSettings};
use ebbtide_ttl::{Clock, Code, SystemClock};
use futures::StreamExt;
use std::path::Path;

/// Rows that a table shows on a terminal.
pub(crate) const TERMINAL_ROWS_MAX: usize = 200;

/// How a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drawing {
    /// In characters.
    Text,
    /// As the bytes of a picture file.
    Picture(chart::Form),
}

/// Where and how rows are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Show {
    pub(crate) format: Format,
    pub(crate) chart: Option<Drawing>,
    pub(crate) timing: bool,
    pub(crate) rows_max: Option<usize>,
    /// Rows of the terminal, where tables that do not fit go to a pager.
    pub(crate) page: Option<usize>,
}

/// Runs `ebbtide sql`.
pub(crate) fn run(cli: &Cli, args: &SqlArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let settings = SessionSettings {
        now: parse_now(args.now.as_deref())?,
        memory_bytes: args.memory,
        ..SessionSettings::default()
    };
    let format = format_of(args.format, args.output.as_deref(), Format::Table)?;
    if matches!(format, Format::Parquet | Format::Arrow) && args.output.is_none() && files::stdout_is_terminal() {
        return Err(Failure::usage(
            "this format is not for a terminal: send it to a file with --output FILE or > FILE",
        ));
    }
    let (chart, file) = match &args.chart {
        None => (None, args.output.as_deref()),
        Some(None) => (Some(Drawing::Text), None),
        Some(Some(path)) => (Some(Drawing::Picture(form_of(path)?)), Some(path.as_path())),
    };
    let person = files::stdout_is_terminal() && file.is_none();
    let rows_max = person.then_some(TERMINAL_ROWS_MAX);
    let show = Show { format, chart, timing: args.timing, rows_max, page: None };
    let text = if !args.statements.is_empty() {
        // A comment at the end of one ends with its line.
        let ended = |text: &String| if text.contains("--") { format!("{text}\n") } else { text.clone() };
        args.statements.iter().map(ended).collect::<Vec<_>>().join(";\n")
    } else if files::stdin_is_terminal() {
        if args.chart.is_some() || args.output.is_some() {
            return Err(Failure::usage("there is no statement; the shell draws with .chart FILE"));
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
            return Err(Failure::usage("one file holds the rows of one statement: run the others separately"));
        }
    }
    if let Some(new) = output.take() {
        if results == 0 && chart.is_some() {
            return Err(Failure::usage("there is nothing to draw: no statement gives rows"));
        }
        new.keep()?;
    }
    if let (Some(path), Some(_)) = (file, chart) {
        eprintln!("chart written to {}", path.display());
    }
    Ok(())
}

/// The form of picture that a file's name asks for.
pub(crate) fn form_of(path: &Path) -> Result<chart::Form, Failure> {
    let what =
        || Failure::usage(format!("a chart is written to a file that ends in .svg or .png, not to {}", path.display()));
    chart::Form::of_path(path).ok_or_else(what)
}

fn format_of(format: Option<Format>, output: Option<&Path>, default: Format) -> Result<Format, Failure> {
    match (format, output) {
        (Some(format), _) => Ok(format),
        (None, None) => Ok(default),
        (None, Some(path)) => Format::of_path(path).ok_or_else(|| {
            let what = format!(
                "cannot tell the form of {} from its name; say --format csv, json, ndjson, parquet or arrow",
                path.display()
            );
            Failure::usage(what)
        }),
    }
}

/// Runs one statement and shows what it gives; tells whether it gave rows.
pub(crate) async fn one(
    session: &Session,
    statement: &Statement,
    text: &str,
    show: Show,
    sink: &dyn Fn() -> Result<Box<dyn std::io::Write + Send>, Failure>,
) -> Result<bool, Failure> {
    let clock = SystemClock::new();
    let before = clock.monotonic();
    let started = session.start(statement, text).await.map_err(|error| match session.reads_at() {
        Some(_) if error.code() == Code::IllegalOperation => {
            Failure::usage("--now looks at another instant and changes nothing: leave it out to run this statement")
        }
        _ => error.into(),
    })?;
    let mut rows = 0;
    let gives = started.stream.is_some();
    if let Some(mut stream) = started.stream {
        let style = TableStyle { width: files::width(), rows_max: show.rows_max };
        let paged = show.page.filter(|_| show.format == Format::Table);
        let mut batches = Vec::new();
        let mut writer = None;
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(|e| session.explain(&e, statement, text))?;
            rows += batch.num_rows();
            if show.chart.is_some() {
                batches.push(batch);
                continue;
            }
            if paged.is_some() {
                let room = show.rows_max.unwrap_or(usize::MAX).saturating_sub(rows - batch.num_rows());
                if room > 0 {
                    batches.push(batch.slice(0, room.min(batch.num_rows())));
                }
                continue;
            }
            // Opened with the first rows: a statement that fails before them writes nothing.
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(ResultWriter::new(show.format, &batch.schema(), sink()?, style)?),
            };
            writer.write(&batch)?;
        }
        if let Some(drawing) = show.chart {
            let bytes = drawn(drawing, &statement.text, &started.schema, &batches)?;
            let mut sink = sink()?;
            sink.write_all(&bytes)?;
            sink.flush()?;
        } else if let Some(height) = paged {
            crate::pager::table(&started.schema, &batches, style, height)?;
        } else {
            let writer = match writer {
                Some(writer) => writer,
                None => ResultWriter::new(show.format, &started.schema, sink()?, style)?,
            };
            writer.finish()?;
        }
    }
    if let Some(message) = &started.message {
        eprintln!("{message}");
    }
    let took = clock.monotonic().saturating_sub(before);
    let footer = show.rows_max.is_some() && show.format == Format::Table && show.chart.is_none() && gives;
    if footer || show.timing {
        let shown = match show.rows_max {
            Some(max) if rows > max => format!(" (the first {max} are shown)"),
            _ => String::new(),
        };
        let plural = if rows == 1 { "" } else { "s" };
        let time = if show.timing { format!(" in {:.3} s", took.as_secs_f64()) } else { String::new() };
        if gives {
            eprintln!("{rows} row{plural}{shown}{time}");
        } else {
            eprintln!("done{time}");
        }
    }
    Ok(gives)
}

/// A result as a chart that fits the terminal, or as a picture under its statement.
fn drawn(
    drawing: Drawing,
    statement: &str,
    schema: &arrow::datatypes::SchemaRef,
    batches: &[arrow::array::RecordBatch],
) -> Result<Vec<u8>, Failure> {
    match drawing {
        Drawing::Picture(form) => chart::file(form, statement, schema, batches).map_err(Failure::new),
        Drawing::Text => {
            let width = usize::from(files::width().unwrap_or(80)).min(120);
            let style = chart::Style { width, height: 14, colour: files::colour() };
            let text = chart::draw(schema, batches, style).map_err(Failure::new)?;
            Ok(format!("{}\n", text.trim_end()).into_bytes())
        }
    }
}

/// Runs `ebbtide export`.
pub(crate) fn export(cli: &Cli, args: &ExportArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let settings = SessionSettings { now: parse_now(args.now.as_deref())?, ..SessionSettings::default() };
    let format = format_of(args.format, Some(&args.output), Format::Csv)?;
    let mut session = LazySession::new(cli, settings, crate::open::Need::Read);
    let name = args.query.trim();
    let text = match session.get(None)?.table_names().iter().any(|t| t == name) {
        true => format!("SELECT * FROM \"{}\"", name.replace('"', "\"\"")),
        false => args.query.clone(),
    };
    let statements = statement::parse(&text).map_err(ebbtide_query::QueryError::from)?;
    let [statement] = statements.as_slice() else {
        return Err(Failure::usage(format!("one query is expected, there are {}", statements.len())));
    };
    if need(statement) != crate::open::Need::Read {
        return Err(Failure::usage("export takes a query, which changes nothing"));
    }
    let session = session.get(None)?;
    let file = files::NewFile::create(&args.output, &cli.db)?;
    let rows = runtime.block_on(async {
        let started = session.start(statement, &text).await?;
        let Some(mut stream) = started.stream else {
            return Err(Failure::usage("export takes a query: this statement gives no rows"));
        };
        let style = TableStyle::default();
        let mut writer = ResultWriter::new(format, &stream.schema(), file.sink()?, style)?;
        while let Some(batch) = stream.next().await {
            writer.write(&batch.map_err(|e| session.explain(&e, statement, &text))?)?;
        }
        let rows = writer.rows();
        writer.finish()?;
        Ok(rows)
    })?;
    file.keep()?;
    eprintln!("{rows} rows written to {}", args.output.display());
    Ok(())
}
