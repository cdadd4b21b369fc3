//! Runs one statement and shows its rows: as a table, a file, a chart or a page of the terminal.

use crate::{Failure, chart, files};
use ebbtide_query::Session;
use ebbtide_query::output::{Format, ResultWriter, TableStyle};
use ebbtide_query::statement::Statement;
use ebbtide_ttl::{Clock, Code, SystemClock};
use futures::StreamExt;
use std::path::Path;
use std::time::Duration;

/// Maximum rows of a table on a terminal.
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
#[derive(Debug, Clone)]
pub(crate) struct Show {
    pub(crate) format: Format,
    pub(crate) chart: Option<Drawing>,
    /// Title of a picture; the statement if none.
    pub(crate) title: Option<String>,
    pub(crate) timing: bool,
    pub(crate) rows_max: Option<usize>,
    /// Whether rows are shown as records.
    pub(crate) records: bool,
    /// Height of the terminal in lines, if tables that do not fit go to a pager.
    pub(crate) page: Option<usize>,
}

/// The picture format that a file's name asks for.
pub(crate) fn form_of(path: &Path) -> Result<chart::Form, Failure> {
    let what =
        || Failure::usage(format!("a chart is written to a file that ends in .svg or .png, not to {}", path.display()));
    chart::Form::of_path(path).ok_or_else(what)
}

/// Runs one statement and shows its result. Returns whether it returned rows.
pub(crate) async fn one(
    session: &Session,
    statement: &Statement,
    text: &str,
    show: &Show,
    sink: &dyn Fn() -> Result<Box<dyn std::io::Write + Send>, Failure>,
) -> Result<bool, Failure> {
    let clock = SystemClock::new();
    let before = clock.monotonic();
    let started = session.start(statement, text).await.map_err(|error| match session.reads_at() {
        Some(_) if error.code() == Code::IllegalOperation => {
            Failure::usage("statements that change data cannot run with --now: drop --now")
        }
        _ => error.into(),
    })?;
    let mut rows = 0;
    let mut took = None;
    let gives = started.stream.is_some();
    if let Some(mut stream) = started.stream {
        let style = TableStyle { width: files::width(), rows_max: show.rows_max, records: show.records };
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
            // Opened with the first rows, so that a statement that fails earlier writes nothing.
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(ResultWriter::new(show.format, &batch.schema(), sink()?, style)?),
            };
            writer.write(&batch)?;
        }
        if let Some(drawing) = show.chart {
            let bytes = drawn(drawing, show.title.as_deref().unwrap_or(&statement.text), &started.schema, &batches)?;
            let mut sink = sink()?;
            sink.write_all(&bytes)?;
            sink.flush()?;
        } else if let Some(height) = paged {
            // The time that the user looks at it is not the statement's.
            took = Some(clock.monotonic().saturating_sub(before));
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
    let took = took.unwrap_or_else(|| clock.monotonic().saturating_sub(before));
    footer(show, gives.then_some(rows), took);
    Ok(gives)
}

/// Prints how many rows there were, under a table that a person reads, and how long the statement took.
fn footer(show: &Show, rows: Option<usize>, took: Duration) {
    let time = if show.timing { format!(" in {:.3} s", took.as_secs_f64()) } else { String::new() };
    match rows {
        Some(rows)
            if show.timing || (show.rows_max.is_some() && show.format == Format::Table && show.chart.is_none()) =>
        {
            let shown = match show.rows_max {
                Some(max) if rows > max => format!(" (the first {max} are shown)"),
                _ => String::new(),
            };
            eprintln!("{rows} row{}{shown}{time}", if rows == 1 { "" } else { "s" });
        }
        None if show.timing => eprintln!("done{time}"),
        _ => {}
    }
}

/// A result as a chart that fits the terminal, or as a picture titled with its statement.
fn drawn(
    drawing: Drawing,
    title: &str,
    schema: &arrow::datatypes::SchemaRef,
    batches: &[arrow::array::RecordBatch],
) -> Result<Vec<u8>, Failure> {
    match drawing {
        Drawing::Picture(form) => chart::file(form, title, schema, batches).map_err(Failure::new),
        Drawing::Text => {
            let width = usize::from(files::width().unwrap_or(80)).min(120);
            let style = chart::Style { width, height: 14, colour: files::colour() };
            let text = chart::draw(schema, batches, style).map_err(Failure::new)?;
            Ok(format!("{}\n", text.trim_end()).into_bytes())
        }
    }
}
