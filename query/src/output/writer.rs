//! Writing rows in the formats that other programs read.

use super::cell;
use super::file_types::Typed;
use super::table::{TableStyle, render};
use crate::error::{QueryError, Result};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use ebbtide_ttl::Code;
use std::io::{self, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A table for people.
    Table,
    /// Comma-separated values with a header; null is empty.
    Csv,
    /// One JSON array of objects.
    Json,
    /// One JSON object per line.
    Ndjson,
    /// A Parquet file.
    Parquet,
    /// An Arrow IPC file.
    Arrow,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 6] =
        [Format::Table, Format::Csv, Format::Json, Format::Ndjson, Format::Parquet, Format::Arrow];

    /// The format's name on the command line, such as `csv`; [`str::parse`] reads it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Table => "table",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::Ndjson => "ndjson",
            Format::Parquet => "parquet",
            Format::Arrow => "arrow",
        }
    }

    /// A description in one line.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Format::Table => "A table for people",
            Format::Csv => "Comma-separated values with a header; null is empty",
            Format::Json => "One JSON array of objects",
            Format::Ndjson => "One JSON object per line",
            Format::Parquet => "A Parquet file",
            Format::Arrow => "An Arrow IPC file",
        }
    }

    /// The format for a file's extension, with or without `.gz` after it where the format is text; `None` if there is none.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?.to_lowercase();
        if let Some(stem) = name.strip_suffix(".gz") {
            return Format::of_path(Path::new(stem)).filter(|f| !matches!(f, Format::Parquet | Format::Arrow));
        }
        match name.rsplit_once('.')?.1 {
            "csv" => Some(Format::Csv),
            "json" => Some(Format::Json),
            "ndjson" | "jsonl" => Some(Format::Ndjson),
            "parquet" | "pq" => Some(Format::Parquet),
            "arrow" | "feather" | "ipc" => Some(Format::Arrow),
            "txt" => Some(Format::Table),
            _ => None,
        }
    }
}

impl FromStr for Format {
    type Err = QueryError;

    /// Reads a [`name`](Format::name), in upper or lower case.
    fn from_str(name: &str) -> Result<Self> {
        let known = Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name));
        known.ok_or_else(|| QueryError::new(Code::BadValue, format!("'{name}' is not an output format")))
    }
}

type Sink = Box<dyn Write + Send>;

enum Inner {
    Table { sink: Sink, schema: SchemaRef, batches: Vec<RecordBatch>, style: TableStyle },
    Csv(Box<csv::Writer<Sink>>),
    Json { sink: Sink, first: bool },
    Ndjson(Sink),
    Parquet(Box<ArrowWriter<Sink>>, SchemaRef),
    Arrow(Box<FileWriter<Sink>>, SchemaRef),
}

/// Writes the rows of one result.
pub struct ResultWriter {
    inner: Inner,
    rows: usize,
}

/// The error for a failed write. A closed pipe gets its own code: for a filter in a pipe it is not an error.
fn failed(error: &io::Error) -> QueryError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => QueryError::new(Code::Interrupted, "broken pipe"),
        io::ErrorKind::StorageFull => {
            QueryError::new(Code::OutOfDiskSpace, format!("cannot write the result: {error}"))
        }
        _ => QueryError::new(Code::FileStreamFailed, format!("cannot write the result: {error}")),
    }
}

impl ResultWriter {
    /// Starts a result with the columns of `schema`.
    ///
    /// # Errors
    /// [`Code::OutOfDiskSpace`] or [`Code::FileStreamFailed`] if the sink cannot be written, [`Code::Interrupted`] if
    /// it is a closed pipe, and [`Code::BadValue`] for columns that the format cannot represent.
    pub fn new(format: Format, schema: &SchemaRef, sink: Sink, style: TableStyle) -> Result<Self> {
        let inner = match format {
            Format::Table => Inner::Table { sink, schema: schema.clone(), batches: Vec::new(), style },
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(sink);
                writer.write_record(schema.fields().iter().map(|f| f.name())).map_err(csv_failed)?;
                Inner::Csv(Box::new(writer))
            }
            Format::Json => Inner::Json { sink, first: true },
            Format::Ndjson => Inner::Ndjson(sink),
            Format::Parquet => {
                cell::check_names(schema)?;
                let level = ZstdLevel::try_new(1).unwrap_or_default();
                let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level)).build();
                let schema = Typed::Parquet.schema(schema);
                let writer = ArrowWriter::try_new(sink, Arc::clone(&schema), Some(properties));
                Inner::Parquet(Box::new(writer.map_err(|e| other(&e))?), schema)
            }
            Format::Arrow => {
                let schema = Typed::Arrow.schema(schema);
                Inner::Arrow(Box::new(FileWriter::try_new(sink, &schema).map_err(|e| other(&e))?), schema)
            }
        };
        Ok(ResultWriter { inner, rows: 0 })
    }

    /// Rows written so far.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Writes a batch. [`Format::Table`] keeps the rows to be shown in memory until [`ResultWriter::finish`].
    ///
    /// # Errors
    /// What the sink says.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        match &mut self.inner {
            Inner::Table { batches, style, .. } => {
                let held: usize = batches.iter().map(RecordBatch::num_rows).sum();
                if style.rows_max.is_none_or(|max| held < max) {
                    batches.push(batch.clone());
                }
                Ok(())
            }
            Inner::Csv(writer) => {
                for row in 0..batch.num_rows() {
                    let cells = batch.columns().iter().map(|c| cell::text(c.as_ref(), row).unwrap_or_default());
                    writer.write_record(cells).map_err(csv_failed)?;
                }
                Ok(())
            }
            Inner::Json { sink, first } => {
                for row in super::json_rows(batch)? {
                    let text = serde_json::Value::Object(row).to_string();
                    let before = if std::mem::take(first) { "[\n" } else { ",\n" };
                    sink.write_all(before.as_bytes())
                        .and_then(|()| sink.write_all(text.as_bytes()))
                        .map_err(|e| failed(&e))?;
                }
                Ok(())
            }
            Inner::Ndjson(sink) => {
                for row in super::json_rows(batch)? {
                    let text = serde_json::Value::Object(row).to_string();
                    writeln!(sink, "{text}").map_err(|e| failed(&e))?;
                }
                Ok(())
            }
            Inner::Parquet(writer, schema) => {
                let batch = Typed::Parquet.batch(batch, schema).map_err(|e| other(&e))?;
                writer.write(&batch).map_err(|e| other(&e))
            }
            Inner::Arrow(writer, schema) => {
                let batch = Typed::Arrow.batch(batch, schema).map_err(|e| other(&e))?;
                writer.write(&batch).map_err(|e| other(&e))
            }
        }
    }

    /// Writes the end of the result and flushes the sink.
    ///
    /// # Errors
    /// What the sink says.
    pub fn finish(self) -> Result<()> {
        match self.inner {
            Inner::Table { mut sink, schema, batches, style } => {
                let text = render(&schema, &batches, style);
                writeln!(sink, "{text}").and_then(|()| sink.flush()).map_err(|e| failed(&e))
            }
            Inner::Csv(mut writer) => writer.flush().map_err(|e| failed(&e)),
            Inner::Json { mut sink, first } => {
                let end = if first { "[]\n" } else { "\n]\n" };
                sink.write_all(end.as_bytes()).and_then(|()| sink.flush()).map_err(|e| failed(&e))
            }
            Inner::Ndjson(mut sink) => sink.flush().map_err(|e| failed(&e)),
            // It flushes the sink.
            Inner::Parquet(mut writer, _) => writer.finish().map(drop).map_err(|e| other(&e)),
            Inner::Arrow(writer, _) => {
                let mut sink = writer.into_inner().map_err(|e| other(&e))?;
                sink.flush().map_err(|e| failed(&e))
            }
        }
    }
}

fn csv_failed(error: csv::Error) -> QueryError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => failed(&error),
        other => QueryError::new(Code::FileStreamFailed, format!("cannot write the result: {other:?}")),
    }
}

/// The error of a format: that of the sink, if it is a cause or in the text.
fn other(error: &(dyn std::error::Error + 'static)) -> QueryError {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    if let Some(error) = causes.find_map(|cause| cause.downcast_ref::<io::Error>()) {
        return failed(error);
    }
    if error.to_string().to_lowercase().contains("broken pipe") {
        return QueryError::new(Code::Interrupted, "broken pipe");
    }
    QueryError::new(Code::BadValue, format!("cannot write the result: {error}"))
}
