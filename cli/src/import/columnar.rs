//! Parquet and Arrow IPC files.

use super::footer;
use super::ipc;
use super::layout::Layout;
use super::learnt::LearnedColumns;
use super::source::Source;
use super::{Job, Rows};
use crate::args::InputFormat;
use crate::batching::{INSERT_BYTES, piece};
use crate::guarded::guarded;
use crate::{Failure, files};
use arrow::array::{Array, RecordBatch, RecordBatchReader, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, FieldRef, Fields, Schema as ArrowSchema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use ebbtide_query::text_table::infer::{finer, finest};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// The columns of a file, its number of rows if the file states it, and its batches.
fn open(source: &Source, batch_rows: usize) -> Result<(SchemaRef, Option<u64>, Batches), Failure> {
    let file = files::open(&source.path)?;
    let (form, opened) = match source.format {
        InputFormat::Parquet => ("a Parquet", open_parquet(file, batch_rows)),
        _ => ("an Arrow", open_arrow(file).map(|(schema, batches)| (schema, None, batches))),
    };
    opened.map_err(|e| Failure::new(format!("{} is not {form} file that can be read: {e}", source.name)))
}

/// Opens a Parquet file: its columns, its number of rows if the file states it, and its batches, each to be read with
/// [`guarded`].
pub(crate) fn open_parquet(mut file: File, batch_rows: usize) -> Result<(SchemaRef, Option<u64>, Batches), String> {
    footer::check(&mut file).map_err(|e| e.to_string())??;
    let (reader, rows) = guarded(|| parquet(file, batch_rows))?.map_err(|e| e.to_string())?;
    Ok((RecordBatchReader::schema(&reader), rows, Box::new(reader)))
}

fn open_arrow(mut file: File) -> Result<(SchemaRef, Batches), String> {
    let mut magic = [0; 6];
    file.read_exact(&mut magic).map_err(|e| e.to_string())?;
    let form = if magic == *b"ARROW1" { ipc::Form::File } else { ipc::Form::Stream };
    ipc::check(&mut file, form)?;
    file.rewind().map_err(|e| e.to_string())?;
    let file = BufReader::new(file);
    let opened: Result<(SchemaRef, Batches), ArrowError> = guarded(|| match form {
        ipc::Form::File => FileReader::try_new(file, None).map(|r| (r.schema(), Box::new(r) as Batches)),
        ipc::Form::Stream => StreamReader::try_new(file, None).map(|r| (r.schema(), Box::new(r) as Batches)),
    })?;
    opened.map_err(|e| e.to_string())
}

fn parquet(file: File, batch_rows: usize) -> Result<(ParquetRecordBatchReader, Option<u64>), ParquetError> {
    let mut found = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())?;
    if let Some(shared) = with_views(found.schema()) {
        let options = ArrowReaderOptions::new().with_schema(shared);
        found = ArrowReaderMetadata::try_new(Arc::clone(found.metadata()), options)?;
    }
    let rows = u64::try_from(found.metadata().file_metadata().num_rows()).ok();
    let batch_rows = batch_rows.min(rows_at_once(found.metadata()));
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, found);
    Ok((builder.with_batch_size(batch_rows).build()?, rows))
}

/// The columns with texts and bytes as views, so that many rows can share a value that the file stores once.
fn with_views(schema: &SchemaRef) -> Option<SchemaRef> {
    let view = |ty: &DataType| match ty {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => Some(DataType::BinaryView),
        DataType::Dictionary(_, values) => match values.as_ref() {
            DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
            _ => None,
        },
        _ => None,
    };
    let fields = schema.fields().iter().map(|f| match view(f.data_type()) {
        Some(ty) => Arc::new(f.as_ref().clone().with_data_type(ty)),
        None => Arc::clone(f),
    });
    let fields: Fields = fields.collect();
    (fields != *schema.fields()).then(|| Arc::new(ArrowSchema::new_with_metadata(fields, schema.metadata().clone())))
}

/// Number of rows of a file to read at once: lists may be long, and a file states its number of values.
fn rows_at_once(metadata: &ParquetMetaData) -> usize {
    let of = |group: &RowGroupMetaData| {
        let values: i64 = group.columns().iter().map(|c| c.num_values().saturating_sub(group.num_rows()).max(0)).sum();
        // Besides its value, each has two levels.
        let bytes =
            usize::try_from(values).unwrap_or(usize::MAX).saturating_mul(size_of::<i64>() + 2 * size_of::<i16>());
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
        if bytes <= INSERT_BYTES { usize::MAX } else { rows / bytes.div_ceil(INSERT_BYTES) }
    };
    metadata.row_groups().iter().map(of).min().unwrap_or(usize::MAX).max(1)
}

/// Learns the names of a file's columns after renaming, and which of them hold times.
pub(super) fn learn(source: &Source, job: &Job<'_>, learnt: &mut LearnedColumns) -> Result<(), Failure> {
    let (schema, ..) = open(source, 1)?;
    let names = schema.fields().iter().map(|f| f.name().clone()).collect();
    let names = job.shape.renamed(names, &source.name)?;
    let is_time = |field: &FieldRef| matches!(field.data_type(), DataType::Timestamp(..));
    let times = names.iter().zip(schema.fields()).filter(|(_, field)| is_time(field)).map(|(name, _)| name.clone());
    learnt.times.extend(times);
    learnt.names.extend(names);
    learnt.names.extend(source.constants.iter().map(|(name, _)| name.clone()));
    Ok(())
}

/// Reads the rows of a file in batches.
pub(super) fn read(
    source: &Source,
    job: &Job<'_>,
    layout: &Layout,
    start: u64,
    give: &mut dyn FnMut(Rows) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot read {}: {e}", source.name));
    let (_, total, mut batches) = open(source, job.batch_rows)?;
    let mut row: u64 = 0;
    let before = source.read.load(Ordering::Relaxed);
    while let Some(batch) = guarded(|| batches.next()).map_err(|e| fail(&e))? {
        let whole = batch.map_err(|e| fail(&e))?;
        let end = row + whole.num_rows() as u64;
        // Local times of rows that are stored already may decide those of the next ones.
        let mut from = if job.cells.times.decides() { row } else { row.max(start) };
        while from < end {
            let Ok(offset) = usize::try_from(from - row) else { return Err(fail(&"it is too large")) };
            let mut piece = piece(&whole, offset, job.batch_rows);
            if from < start {
                let stored = usize::try_from(start - from).unwrap_or(usize::MAX).min(piece.num_rows());
                piece = piece.slice(0, stored);
                let read = guarded(|| layout.adapt(&piece, job, &source.constants)).map_err(|e| fail(&e))?;
                read.map_err(|e| fail(&e))?;
                from += stored as u64;
                continue;
            }
            let to = from + piece.num_rows() as u64;
            let rows = guarded(|| take(source, job, layout, piece, from)).map_err(|e| fail(&e))??;
            from = to;
            if let Some((batch, lines)) = rows
                && give(Rows { batch, source: source.name.as_str().into(), lines, end: to })?.is_break()
            {
                return Ok(());
            }
        }
        row = end;
        let share = total.filter(|t| *t > 0).map_or(0, |t| source.bytes.saturating_mul(row) / t);
        source.read.store(before + share, Ordering::Relaxed);
    }
    Ok(())
}

/// A batch in the collection's form, without rows whose time cannot be read, and the numbers of its rows.
fn take(
    source: &Source,
    job: &Job<'_>,
    layout: &Layout,
    batch: RecordBatch,
    from: u64,
) -> Result<Option<(RecordBatch, Vec<u64>)>, Failure> {
    let mut lines: Vec<u64> = (from + 1..=from + batch.num_rows() as u64).collect();
    let drop_rows = |batch: &RecordBatch, lines: &mut Vec<u64>, bad: &dyn Fn(usize) -> bool| {
        let kept: Vec<u32> = (0..batch.num_rows()).filter(|i| !bad(*i)).filter_map(|i| u32::try_from(i).ok()).collect();
        *lines = kept.iter().map(|i| lines[*i as usize]).collect();
        take_record_batch(batch, &UInt32Array::from(kept)).map_err(ebbtide_query::QueryError::from)
    };
    let adapted = layout.adapt(&batch, job, &source.constants);
    let (mut adapted, unread) = adapted.map_err(|e| Failure::new(format!("cannot read {}: {e}", source.name)))?;
    if let Some(times) = adapted.column_by_name(&layout.time_column).cloned() {
        for row in (0..times.len()).filter(|i| times.is_null(*i)) {
            let name = &layout.time_column;
            let reason = match unread.get(&row) {
                Some(reason) => reason.clone(),
                None => format!("the time is missing: column '{name}' is null"),
            };
            job.bad.borrow_mut().row(&source.name, lines[row], &reason, "")?;
        }
        if times.null_count() > 0 {
            adapted = drop_rows(&adapted, &mut lines, &|i| times.is_null(i))?;
        }
    }
    if job.args.skip_empty {
        let is_field = |name: &str| name != layout.time_column && !layout.meta_columns.iter().any(|m| m == name);
        let schema = adapted.schema();
        let fields = schema.fields().iter().zip(adapted.columns()).filter(|(f, _)| is_field(f.name()));
        let fields: Vec<_> = fields.map(|(_, c)| c.clone()).collect();
        let before = lines.len();
        adapted = drop_rows(&adapted, &mut lines, &|i| fields.iter().all(|c| c.is_null(i)))?;
        job.empty.set(job.empty.get() + (before - lines.len()) as u64);
    }
    if adapted.num_rows() == 0 {
        return Ok(None);
    }
    for column in adapted.columns().iter().filter(|c| matches!(c.data_type(), DataType::Timestamp(..))) {
        let valid = (0..column.len()).filter(|i| column.is_valid(*i));
        let units = valid.filter_map(|i| ebbtide_query::output::instant(column.as_ref(), i)).map(finest);
        job.finest.set(units.fold(job.finest.get(), finer));
    }
    Ok(Some((layout.arrange(&adapted, &source.name)?, lines)))
}

#[cfg(test)]
mod tests;
