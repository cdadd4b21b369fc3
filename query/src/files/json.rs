//! JSON files: one object per line, or one list of objects.

use super::reader::{Result, reader, wrong};
use super::text::{BATCH_ROWS, Rows, TextTable, merged};
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::json::ReaderBuilder;
use datafusion::arrow::json::reader::infer_json_schema;
use datafusion::common::DataFusionError;
use ebbtide_ttl::Timestamp;
use serde_json::Value;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of rows that decide the types of a file's columns.
const SAMPLE_ROWS: usize = 10_000;

/// Reads JSON.
#[derive(Debug)]
pub(super) struct Json;

/// Opens files with the same columns, or some of them.
pub(super) fn open(files: &[PathBuf]) -> Result<Arc<TextTable<Json>>> {
    let mut schemas = Vec::new();
    for path in files {
        let fail = |error: &dyn std::fmt::Display| wrong(format!("{}: {error}", path.display()));
        let (schema, _) = infer_json_schema(lines(path)?, Some(SAMPLE_ROWS)).map_err(|e| fail(&e))?;
        let sampled = ReaderBuilder::new(Arc::new(schema.clone())).with_batch_size(SAMPLE_ROWS).build(lines(path)?);
        let sampled = sampled.and_then(|mut batches| batches.next().transpose()).map_err(|e| fail(&e))?;
        schemas.push(with_times(schema, sampled.as_ref()));
    }
    let schema = merged(schemas).map_err(|e| wrong(e.to_string()))?;
    Ok(Arc::new(TextTable { schema, files: files.to_vec(), rows: Arc::new(Json) }))
}

/// The text of a file with one object per line.
fn lines(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    let mut input = BufReader::new(reader(path)?);
    let fail = |error: &dyn std::fmt::Display| wrong(format!("{}: {error}", path.display()));
    let is_list = input.fill_buf().map_err(|e| fail(&e))?.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    if !is_list {
        return Ok(Box::new(input));
    }
    let mut text = Vec::new();
    input.read_to_end(&mut text).map_err(|e| fail(&e))?;
    let objects: Vec<Value> = serde_json::from_slice(&text).map_err(|e| fail(&e))?;
    let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
    Ok(Box::new(Cursor::new(text.into_bytes())))
}

/// Makes columns of times of columns whose texts are all times.
fn with_times(schema: Schema, sampled: Option<&RecordBatch>) -> Schema {
    let is_time = |at: usize| {
        let Some(column) = sampled.map(|batch| batch.column(at)).filter(|column| column.null_count() < column.len())
        else {
            return false;
        };
        let texts = column.as_string_opt::<i32>();
        texts.is_some_and(|texts| texts.iter().flatten().all(|t| t.len() >= 10 && Timestamp::parse(t).is_ok()))
    };
    let fields = schema.fields().iter().enumerate().map(|(at, field)| match is_time(at) {
        true => Field::new(field.name(), DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
        false => field.as_ref().clone(),
    });
    Schema::new(fields.collect::<Vec<_>>())
}

impl Rows for Json {
    fn read(
        &self,
        path: &Path,
        columns: &SchemaRef,
        give: &mut dyn FnMut(datafusion::common::Result<RecordBatch>) -> bool,
    ) -> datafusion::common::Result<()> {
        let lines = lines(path).map_err(|e| DataFusionError::External(Box::new(e)))?;
        for batch in ReaderBuilder::new(Arc::clone(columns)).with_batch_size(BATCH_ROWS).build(lines)? {
            if !give(batch.map_err(Into::into)) {
                break;
            }
        }
        Ok(())
    }
}
