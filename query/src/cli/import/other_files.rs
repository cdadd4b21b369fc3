//! NDJSON and Parquet files.

use super::{Layout, Rows, Source};
use crate::cli::Failure;
use datafusion::arrow::array::RecordBatch;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ebbtide_buckets::{Schema, batch_from_documents};
use ebbtide_ttl::{Timestamp, Value};
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;

/// Reads a file of one JSON document a line. `schema` is what is known of the collection and grows with what is found.
pub(super) fn read_ndjson(
    source: &Source,
    layout: &Layout,
    nulls: &[Vec<u8>],
    schema: &mut Schema,
    batch_rows: usize,
    give: &mut dyn FnMut(Rows<'_>) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let mut reader = BufReader::new(source.open()?);
    let (mut documents, mut lines) = (Vec::new(), Vec::new());
    let mut line = 0;
    let mut text = String::new();
    loop {
        text.clear();
        let read =
            reader.read_line(&mut text).map_err(|e| Failure::new(format!("cannot read {}: {e}", source.name)))?;
        if read > 0 {
            line += 1;
            if !text.trim().is_empty() {
                documents.push(
                    document(&text, layout, nulls).map_err(|e| Failure::new(format!("{}:{line}: {e}", source.name)))?,
                );
                lines.push(line);
            }
        }
        if documents.len() >= batch_rows || (read == 0 && !documents.is_empty()) {
            let accepted = batch_from_documents(&documents, schema).map_err(|e| {
                let line = lines.get(e.index).copied().unwrap_or(0);
                let index = format!("index {}: ", e.index);
                let message = e.error.message.strip_prefix(&index).unwrap_or(&e.error.message);
                Failure::new(format!("{}:{line}: {message}", source.name))
            })?;
            *schema = accepted.schema;
            documents.clear();
            let rows = Rows { batch: accepted.batch, source: &source.name, lines: std::mem::take(&mut lines) };
            if give(rows)?.is_break() {
                return Ok(());
            }
        }
        if read == 0 {
            return if line == 0 { Err(Failure::new(format!("{} is empty", source.name))) } else { Ok(()) };
        }
    }
}

fn document(text: &str, layout: &Layout, nulls: &[Vec<u8>]) -> Result<Value, String> {
    let json: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("not a JSON document: {e}"))?;
    if !json.is_object() {
        return Err("a JSON object is expected on each line".to_owned());
    }
    let value = ebbtide::json::value_of(&json).map_err(|e| e.to_string())?;
    let Value::Object(members) = value else { return Err("a JSON object is expected on each line".to_owned()) };
    let mut object = Vec::with_capacity(members.len());
    let mut meta: Vec<(String, Value)> = Vec::new();
    for (name, value) in members {
        let value = match value {
            Value::String(text) if nulls.iter().any(|n| n == text.as_bytes()) => Value::Null,
            other => other,
        };
        if name == layout.time_column {
            let value = match value {
                Value::String(text) => {
                    Value::Date(Timestamp::parse(&text).map_err(|e| format!("field '{name}': {e}"))?)
                }
                other => other,
            };
            object.push((layout.time_field.clone(), value));
        } else if layout.meta_columns.contains(&name) {
            meta.push((name, value));
        } else {
            object.push((name, value));
        }
    }
    if let Some(field) = &layout.meta_field {
        let value = match layout.meta_columns.len() {
            1 => meta.pop().map_or(Value::Null, |(_, v)| v),
            _ => Value::Object(meta),
        };
        object.push((field.clone(), value));
    }
    Ok(Value::Object(object))
}

/// The names of the fields of a file's first document.
pub(super) fn first_names(source: &Source) -> Result<Vec<String>, Failure> {
    let fail = |e: std::io::Error| Failure::new(format!("cannot read {}: {e}", source.name));
    for (number, line) in BufReader::new(source.open()?).lines().enumerate() {
        let line = line.map_err(fail)?;
        if line.trim().is_empty() {
            continue;
        }
        return match serde_json::from_str(&line) {
            Ok(serde_json::Value::Object(members)) => Ok(members.into_iter().map(|(name, _)| name).collect()),
            Ok(_) => {
                Err(Failure::new(format!("{}:{}: a JSON object is expected on each line", source.name, number + 1)))
            }
            Err(error) => Err(Failure::new(format!("{}:{}: not a JSON document: {error}", source.name, number + 1))),
        };
    }
    Err(Failure::new(format!("{} is empty", source.name)))
}

fn parquet_reader(source: &Source) -> Result<ParquetRecordBatchReaderBuilder<std::fs::File>, Failure> {
    let file = super::super::files::open(&source.path)?;
    ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|e| Failure::new(format!("{} is not a Parquet file that can be read: {e}", source.name)))
}

/// The names of a Parquet file's columns.
pub(super) fn parquet_names(source: &Source) -> Result<Vec<String>, Failure> {
    Ok(parquet_reader(source)?.schema().fields().iter().map(|f| f.name().clone()).collect())
}

/// Reads a Parquet file.
pub(super) fn read_parquet(
    source: &Source,
    layout: &Layout,
    batch_rows: usize,
    give: &mut dyn FnMut(Rows<'_>) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot read {}: {e}", source.name));
    let reader = parquet_reader(source)?.with_batch_size(batch_rows).build().map_err(|e| fail(&e))?;
    let mut row = 0;
    for batch in reader {
        let batch: RecordBatch = batch.map_err(|e| fail(&e))?;
        let count = batch.num_rows() as u64;
        source.read.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let batch = layout.arrange(&batch, &source.name)?;
        let rows = Rows { batch, source: &source.name, lines: (row + 1..=row + count).collect() };
        row += count;
        if give(rows)?.is_break() {
            break;
        }
    }
    Ok(())
}
