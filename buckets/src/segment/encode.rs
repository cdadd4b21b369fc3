//! Writing a segment: rows in order of meta and time, each column in the encoding that its values ask for.

mod choose;

use super::directory::{self, Entry};
use super::physical::Physical;
use super::stats::StatsBuilder;
use super::{
    BLOCK_BYTES, EncodedSegment, FORMAT_VERSION, KEY_DIRECTORY, KEY_SCHEMA, KEY_TAIL, SegmentError, SegmentInput,
    SegmentMeta, TAIL_MARK,
};
use crate::chunk::times;
use crate::schema::{FieldType, Schema};
use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow::compute::interleave;
use arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use ebbtide_ttl::in_range;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::KeyValue;
use std::fmt::Write;
use std::sync::Arc;

/// Rows gathered and written at a time, at most.
const SLICE_ROWS: usize = 65_536;
/// Bytes of a slice, about, at most: offsets of texts and lists have 31 bits.
const SLICE_BYTES: usize = 256 << 20;

fn failed(error: impl std::fmt::Display) -> SegmentError {
    SegmentError::new("(new)", 0, format!("cannot be made: {error}"))
}

/// Seals buckets into a Parquet file with their directory inside.
///
/// # Errors
/// If the input is not as [`SegmentInput`] says, or the columns cannot be written.
pub fn encode(input: SegmentInput<'_>) -> Result<EncodedSegment, SegmentError> {
    let schema = input.schema;
    check(&input)?;
    let entries = entries(&input)?;
    let rows: u64 = entries.iter().map(|e| e.rows).sum();
    if rows == 0 {
        return Err(failed("no rows"));
    }
    let columns = Columns::new(&input)?;
    let indices: Vec<(u32, u32)> = input.runs.iter().flat_map(|run| run.rows.iter().copied()).collect();
    let choices = choose::choose(&columns, &indices)?;
    let properties = choose::properties(schema, &choices);

    let per_bucket = directory::stats_per_bucket(rows, entries.len() as u64);
    let stat_entries = if per_bucket { entries.len() } else { 1 };
    let mut stats: Vec<Option<StatsBuilder>> =
        columns.schema.fields().iter().map(|f| StatsBuilder::new(f.name(), f.data_type(), stat_entries)).collect();

    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), columns.schema.clone(), options).map_err(failed)?;
    let mut bucket = 0;
    let mut left_in_bucket = entries[0].rows;
    for slice in indices.chunks(columns.slice_rows) {
        let batch = columns.gather(slice)?;
        writer.write(&batch).map_err(failed)?;
        let mut at = 0;
        while at < slice.len() {
            let take = usize::try_from(left_in_bucket).unwrap_or(usize::MAX).min(slice.len() - at);
            for (stat, column) in stats.iter_mut().zip(batch.columns()) {
                if let Some(stat) = stat {
                    stat.add(if per_bucket { bucket } else { 0 }, column, at..at + take);
                }
            }
            at += take;
            left_in_bucket -= take as u64;
            if left_in_bucket == 0 && bucket + 1 < entries.len() {
                bucket += 1;
                left_in_bucket = entries[bucket].rows;
            }
        }
    }
    let stats: Vec<StatsBuilder> = stats.into_iter().flatten().collect();
    let (bytes, checksum) =
        finish(writer, schema, |checksums| directory::encode(&entries, checksums, per_bucket, &stats))?;
    let meta = SegmentMeta { checksum, ..meta_of(&entries, rows, bytes.len() as u64, schema) };
    Ok(EncodedSegment { bytes, meta })
}

fn check(input: &SegmentInput<'_>) -> Result<(), SegmentError> {
    let arrow = input.schema.arrow();
    if let Some(piece) = input.pieces.iter().position(|p| p.schema_ref().fields() != arrow.fields()) {
        return Err(failed(format!("piece {piece} is not under the segment's schema")));
    }
    let ordered = input.runs.windows(2).all(|pair| pair[0].id < pair[1].id);
    if !ordered || input.runs.iter().any(|run| run.rows.is_empty()) {
        return Err(failed("buckets are out of order or empty"));
    }
    let inside =
        |(piece, row): &(u32, u32)| input.pieces.get(*piece as usize).is_some_and(|p| (*row as usize) < p.num_rows());
    if !input.runs.iter().all(|run| run.rows.iter().all(inside)) {
        return Err(failed("a bucket names a row that is not there"));
    }
    Ok(())
}

fn entries(input: &SegmentInput<'_>) -> Result<Vec<Entry>, SegmentError> {
    let precision = input.schema.precision;
    let times: Vec<&[i64]> = input.pieces.iter().map(|p| times(p.column(0), precision)).collect();
    let time = |(piece, row): &(u32, u32)| times[*piece as usize][*row as usize];
    let mut entries = Vec::with_capacity(input.runs.len());
    for run in &input.runs {
        if !run.rows.is_sorted_by_key(time) {
            return Err(failed("rows of a bucket are not in time order"));
        }
        let out_of_range = run.rows.iter().filter(|row| !in_range(time(row), precision)).count();
        entries.push(Entry {
            meta: run.id.meta.clone(),
            window: run.id.window,
            first: run.rows.first().map_or(0, time),
            last: run.rows.last().map_or(0, time),
            rows: run.rows.len() as u64,
            out_of_range: u32::try_from(out_of_range).unwrap_or(u32::MAX),
        });
    }
    Ok(entries)
}

fn meta_of(entries: &[Entry], rows: u64, bytes: u64, schema: &Schema) -> SegmentMeta {
    let metas = 1 + entries.windows(2).filter(|pair| pair[0].meta != pair[1].meta).count();
    SegmentMeta {
        rows,
        buckets: u32::try_from(entries.len()).unwrap_or(u32::MAX),
        metas: u32::try_from(metas).unwrap_or(u32::MAX),
        bytes,
        first: entries.iter().map(|e| e.first).min().unwrap_or(0),
        last: entries.iter().map(|e| e.last).max().unwrap_or(0),
        window_start: entries.iter().map(|e| e.window.start).min().unwrap_or(0),
        window_end: entries.iter().map(|e| e.window.end).max().unwrap_or(0),
        out_of_range: entries.iter().map(|e| u64::from(e.out_of_range)).sum(),
        checksum: 0,
        schema: schema.clone(),
    }
}

/// All columns of all pieces in the form in which they are stored.
struct Columns {
    schema: SchemaRef,
    pieces: Vec<Vec<ArrayRef>>,
    slice_rows: usize,
}

impl Columns {
    fn new(input: &SegmentInput<'_>) -> Result<Columns, SegmentError> {
        let arrow = input.schema.arrow();
        let mut fields = Vec::with_capacity(arrow.fields().len());
        let mut pieces = Vec::with_capacity(arrow.fields().len());
        for (at, field) in arrow.fields().iter().enumerate() {
            let ty = input.schema.field_type(field.name()).unwrap_or(&FieldType::Unknown);
            let columns: Vec<ArrayRef> = input.pieces.iter().map(|p| p.column(at).clone()).collect();
            let physical = Physical::of(ty, &columns);
            let stored = columns.iter().map(|c| physical.store(c)).collect::<Result<Vec<_>, _>>().map_err(failed)?;
            let ty = stored.first().map_or_else(|| field.data_type().clone(), |c| c.data_type().clone());
            fields.push(Field::new(field.name(), ty, field.is_nullable()));
            pieces.push(stored);
        }
        let rows: usize = input.pieces.iter().map(RecordBatch::num_rows).sum();
        let bytes: usize = input.pieces.iter().map(RecordBatch::get_array_memory_size).sum();
        let row_bytes = bytes / rows.max(1) + 1;
        let slice_rows = (SLICE_BYTES / row_bytes).clamp(256, SLICE_ROWS);
        Ok(Columns { schema: Arc::new(ArrowSchema::new(fields)), pieces, slice_rows })
    }

    /// The named rows as one batch.
    fn gather(&self, rows: &[(u32, u32)]) -> Result<RecordBatch, SegmentError> {
        let indices: Vec<(usize, usize)> = rows.iter().map(|(p, r)| (*p as usize, *r as usize)).collect();
        let columns = self
            .pieces
            .iter()
            .zip(self.schema.fields())
            .map(|(pieces, field)| {
                let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                if pieces.is_empty() {
                    return Ok(new_empty_array(field.data_type()));
                }
                interleave(&pieces, &indices).map_err(failed)
            })
            .collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(self.schema.clone(), columns).map_err(failed)
    }
}

/// Writes what follows the data, and seals all of it under checksums; returns the one of the tail with the file.
fn finish(
    mut writer: ArrowWriter<Vec<u8>>,
    schema: &Schema,
    directory: impl FnOnce(&[u32]) -> std::io::Result<Vec<u8>>,
) -> Result<(Vec<u8>, u32), SegmentError> {
    writer.flush().map_err(failed)?;
    writer.sync().map_err(failed)?;
    let data_end = writer.inner().len();
    assert_eq!(data_end, writer.bytes_written(), "every data byte is under a checksum");
    let checksums: Vec<u32> = writer.inner().chunks(BLOCK_BYTES).map(crc32fast::hash).collect();
    let directory = directory(&checksums).map_err(failed)?;
    writer.write_all(&directory).map_err(failed)?;
    let json = serde_json::to_string(schema).map_err(failed)?;
    let place = format!("{data_end},{},{:08x},{FORMAT_VERSION}", directory.len(), crc32fast::hash(&directory));
    let mut tail = String::from_utf8_lossy(TAIL_MARK).into_owned();
    // The checksum is written as zeros first and filled in when all that it covers is there.
    let _written = write!(tail, "{data_end:016x};crc={:08x}", 0);
    for (key, value) in [(KEY_DIRECTORY, place), (KEY_SCHEMA, json), (KEY_TAIL, tail)] {
        writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }
    let mut bytes = writer.into_inner().map_err(failed)?;
    let crc = crc32fast::hash(&bytes[data_end..]);
    let at = super::read::tail_checksum_at(&bytes).ok_or_else(|| failed("the tail's key is not in the footer"))?;
    bytes[at..at + 8].copy_from_slice(format!("{crc:08x}").as_bytes());
    Ok((bytes, crc))
}
