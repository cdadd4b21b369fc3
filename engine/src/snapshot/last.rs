//! The last measurement of every series: found through the bucket directories, and read only where statistics lack its values.

use super::CollectionSnapshot;
use super::meta_numbers::MetaNumbers;
use super::scan::ScanRequest;
use super::scan::selection::{BucketSelector, SelectedBucket};
use crate::error::{Error, Result};
use crate::segment::{Segment, ordinal_number, row_number};
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use ebbtide_buckets::{
    Chunk, FieldType, MetaKey, Numbers, Schema, SegmentReader, adapt_to, column_of_keys, time_values, times, to_number,
    to_usize,
};
use std::sync::Arc;

/// Rows read at a time.
const BATCH_ROWS: usize = 8192;
/// After this many segments, those that no longer have the newest row of any meta are released, with their directories.
const RELEASED_EVERY: usize = 64;

/// The place of the newest row of a meta so far.
#[derive(Clone, Copy)]
struct Best {
    time: i64,
    /// The index of its segment among the examined ones; chunks follow after the segments.
    source: u32,
    /// A bucket's ordinal in the segment, or a row of the chunk.
    at: u32,
    /// A row of the segment, or of the chunk.
    row: u32,
    /// Whether it is the last row of a bucket without deleted rows: then statistics have its values.
    whole: bool,
}

/// The newest rows by number of the meta.
#[derive(Default)]
struct Newest {
    metas: MetaNumbers,
    best: Vec<Option<Best>>,
}

impl Newest {
    fn number(&mut self, key: MetaKey) -> u32 {
        let number = self.metas.number(key);
        self.best.resize(self.metas.keys.len(), None);
        number
    }

    /// Offers a row. Of several rows at one time the one inserted later is kept, as far as that is known: sources are visited
    /// from old to new.
    fn offer(&mut self, number: u32, candidate: Best) {
        let best = &mut self.best[number as usize];
        if best.is_none_or(|known| candidate.time >= known.time) {
            *best = Some(candidate);
        }
    }

    /// Releases segments that have none of the rows.
    fn release(&self, sealed: &mut [Option<Sealed<'_>>]) {
        let mut has_rows = vec![false; sealed.len()];
        self.best.iter().flatten().for_each(|best| has_rows[best.source as usize] = true);
        sealed.iter_mut().zip(has_rows).filter(|(_, has_rows)| !has_rows).for_each(|(sealed, _)| *sealed = None);
    }
}

struct Sealed<'a> {
    segment: &'a Arc<Segment>,
    reader: SegmentReader,
}

impl CollectionSnapshot {
    /// The newest visible measurement of every meta that `request` selects, sorted by meta, with the columns of
    /// [`ScanRequest::projection`]. If several share the newest time, which one is returned is unspecified. Bounds of fields
    /// and conditions on texts are ignored.
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::BadValue`] for a column that does not exist; damage in a segment.
    pub fn last_points(&self, request: &ScanRequest) -> Result<RecordBatch> {
        let columns = self.columns(request)?;
        let request = ScanRequest { bounds: Vec::new(), ..request.clone() };
        let mut scan = BucketSelector::new(self, &request);
        let mut newest = Newest::default();
        let mut sealed: Vec<Option<Sealed<'_>>> = Vec::new();
        let mut numbers: Vec<u32> = Vec::new();
        for segment in self.state.segments.values() {
            let Some((reader, found)) = scan.select(segment)?.filter(|(_, found)| !found.is_empty()) else { continue };
            let before = sealed.last().and_then(Option::as_ref);
            let same = before.is_some_and(|s| s.reader.directory().same_metas(reader.directory()));
            if !same {
                numbers = vec![u32::MAX; reader.directory().meta_count()];
            }
            let source = to_number(sealed.len());
            if sealed.len().is_multiple_of(RELEASED_EVERY) {
                newest.release(&mut sealed);
            }
            let of_segment = Sealed { segment, reader };
            offer_sealed(&of_segment, source, &found, &mut numbers, &mut newest)?;
            sealed.push(Some(of_segment));
        }
        let mut chunks: Vec<&Arc<Chunk>> = Vec::new();
        for chunk in self.state.memtable.chunks() {
            let values = times(&chunk.batch)?;
            let source = to_number(sealed.len() + chunks.len());
            for (bucket, rows) in scan.select_open(chunk)? {
                let Some(row) = rows.last().copied() else { continue };
                let number = newest.number(chunk.buckets[bucket].id.meta.clone());
                newest.offer(number, Best { time: values[row as usize], source, at: row, row, whole: false });
            }
            chunks.push(chunk);
        }
        self.gather(&columns, &newest, &sealed, &chunks)
    }

    /// The rows that were found, in the order of their metas.
    fn gather(
        &self,
        columns: &[String],
        newest: &Newest,
        sealed: &[Option<Sealed<'_>>],
        chunks: &[&Arc<Chunk>],
    ) -> Result<RecordBatch> {
        let schema = &self.state.schema;
        let target = schema.arrow_columns(columns)?;
        let mut by_source: Vec<Vec<(Best, u32)>> = vec![Vec::new(); sealed.len() + chunks.len()];
        for (number, best) in (0_u32..).zip(&newest.best) {
            if let Some(best) = best {
                by_source[best.source as usize].push((*best, number));
            }
        }
        let mut batches = Vec::new();
        let mut numbers: Vec<u32> = Vec::new();
        for (source, mut picks) in by_source.into_iter().enumerate().filter(|(_, picks)| !picks.is_empty()) {
            picks.sort_unstable_by_key(|(best, _)| best.row);
            numbers.extend(picks.iter().map(|(_, number)| *number));
            let batch = match sealed.get(source).map(Option::as_ref) {
                Some(None) => return Err(Error::internal("a segment was released before its rows were read")),
                Some(Some(sealed)) => rows_of(sealed, &target, schema, &picks, &newest.metas.keys)?,
                None => {
                    let rows: UInt32Array = picks.iter().map(|(best, _)| Some(best.row)).collect();
                    let batch = adapt_to(&chunks[source - sealed.len()].batch, Arc::clone(&target))?;
                    match batch.num_columns() {
                        0 => of_columns(&target, Vec::new(), rows.len())?,
                        _ => take_record_batch(&batch, &rows)?,
                    }
                }
            };
            batches.push(batch);
        }
        if target.fields().is_empty() {
            return of_columns(&target, Vec::new(), numbers.len());
        }
        let all = concat_batches(&target, &batches)?;
        let mut order: Vec<u32> = (0..).take(numbers.len()).collect();
        if !numbers.is_sorted_by_key(|number| &newest.metas.keys[*number as usize]) {
            order.sort_unstable_by_key(|place| &newest.metas.keys[numbers[*place as usize] as usize]);
            return Ok(take_record_batch(&all, &UInt32Array::from(order))?);
        }
        Ok(all)
    }
}

/// Offers the newest selected row of each meta of a segment.
fn offer_sealed(
    sealed: &Sealed<'_>,
    source: u32,
    found: &[SelectedBucket],
    numbers: &mut [u32],
    newest: &mut Newest,
) -> Result<()> {
    let directory = sealed.reader.directory();
    let deleted = &sealed.segment.state.deleted;
    // The last row of these buckets is not selected: the times have to be read to find the newest one that is.
    let mut cut: Vec<&SelectedBucket> = Vec::new();
    let offer = |meta: usize, best: Best, numbers: &mut [u32], newest: &mut Newest| {
        if numbers[meta] == u32::MAX {
            numbers[meta] = newest.number(directory.meta(meta));
        }
        newest.offer(numbers[meta], best);
    };
    for of_meta in found.chunk_by(|a, b| a.meta == b.meta) {
        let is_cut =
            |bucket: &SelectedBucket| bucket.filter.is_some_and(|filter| bucket.bounds.last > filter.time.last);
        cut.extend(of_meta.iter().filter(|bucket| is_cut(bucket)));
        let Some(bucket) = of_meta.iter().filter(|bucket| !is_cut(bucket)).max_by_key(|b| b.bounds.last) else {
            continue;
        };
        let rows = directory.rows(bucket.ordinal);
        let whole = sealed.segment.is_unchanged(bucket.ordinal);
        let is_there = |row: &u64| whole || !deleted.contains(row_number(*row));
        if let Some(row) = rows.rev().find(is_there) {
            let (at, row) = (ordinal_number(bucket.ordinal), row_number(row));
            offer(bucket.meta, Best { time: bucket.bounds.last, source, at, row, whole }, numbers, newest);
        }
    }
    if cut.is_empty() {
        return Ok(());
    }
    let mut ranges = Vec::new();
    cut.iter().for_each(|b| sealed.segment.push_live(&mut ranges, &sealed.reader, b.ordinal));
    let schema = sealed.reader.schema();
    let mut all: Vec<i64> = Vec::new();
    for batch in sealed.reader.read_stored(std::slice::from_ref(&schema.time), &ranges, BATCH_ROWS)? {
        for times in batch? {
            all.extend(time_values(&times)?);
        }
    }
    let mut start = 0;
    for bucket in cut {
        let there = sealed.segment.live_ranges(&sealed.reader, bucket.ordinal);
        let end = start + to_usize(bucket.bounds.rows);
        let Some(of_bucket) = all.get(start..end) else {
            return Err(Error::corrupt(
                &sealed.segment.file.path,
                0,
                "a bucket has fewer rows than its directory says",
            ));
        };
        start = end;
        let Some(filter) = bucket.filter else { continue };
        let Some(place) = of_bucket.partition_point(|t| *t <= filter.time.last).checked_sub(1) else { continue };
        let row = there.into_iter().flatten().nth(place);
        if let Some(row) = row.filter(|_| filter.keeps(of_bucket[place])) {
            let best = Best {
                time: of_bucket[place],
                source,
                at: ordinal_number(bucket.ordinal),
                row: row_number(row),
                whole: false,
            };
            offer(bucket.meta, best, numbers, newest);
        }
    }
    Ok(())
}

fn of_columns(target: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(target.clone(), columns, &options)?)
}

/// Rows of one segment, in ascending order. Columns that the directory can answer are not read.
fn rows_of(
    sealed: &Sealed<'_>,
    target: &SchemaRef,
    schema: &Schema,
    picks: &[(Best, u32)],
    keys: &[MetaKey],
) -> Result<RecordBatch> {
    let reader = &sealed.reader;
    let mut known: Vec<Option<ArrayRef>> = Vec::with_capacity(target.fields().len());
    for field in target.fields() {
        known.push(known_column(reader, schema, field.name(), picks, keys)?);
    }
    let names = target.fields().iter().zip(&known).filter(|(_, column)| column.is_none());
    let names: Vec<String> = names.map(|(field, _)| field.name().clone()).collect();
    let mut read = Vec::new();
    if !names.is_empty() {
        let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
        for (best, _) in picks {
            let row = u64::from(best.row);
            match ranges.last_mut() {
                Some(last) if last.end == row => last.end += 1,
                _ => ranges.push(row..row + 1),
            }
        }
        let batches = reader.read(&names, schema, &ranges, BATCH_ROWS)?;
        let arrow = batches.schema();
        let batches = batches.collect::<std::result::Result<Vec<_>, _>>()?;
        read = concat_batches(&arrow, &batches)?.columns().to_vec();
    }
    let mut read = read.into_iter();
    let columns = known.into_iter().map(|column| column.or_else(|| read.next()));
    let columns = columns.collect::<Option<Vec<_>>>().ok_or_else(|| Error::internal("a column was not read"))?;
    of_columns(target, columns, picks.len())
}

/// A column that the directory can answer: the times, the metas, and numeric fields whose buckets have statistics.
fn known_column(
    reader: &SegmentReader,
    schema: &Schema,
    name: &str,
    picks: &[(Best, u32)],
    keys: &[MetaKey],
) -> Result<Option<ArrayRef>> {
    if name == schema.time {
        let times: Int64Array = picks.iter().map(|(best, _)| Some(best.time)).collect();
        return Ok(Some(cast(&times, &FieldType::Timestamp.arrow(schema.precision))?));
    }
    let Some(ty) = schema.field_type(name) else { return Ok(None) };
    if schema.meta.as_deref() == Some(name) {
        let keys: Vec<MetaKey> = picks.iter().map(|(_, number)| keys[*number as usize].clone()).collect();
        return Ok(Some(column_of_keys(&keys, ty, schema.precision)));
    }
    let directory = reader.directory();
    if !directory.stats_per_bucket() || !picks.iter().all(|(best, _)| best.whole) {
        return Ok(None);
    }
    let Some(stats) = directory.stats(name) else { return Ok(None) };
    let at = |best: &Best| Some(best.at as usize).filter(|at| stats.last_valid.get(*at).copied().unwrap_or(false));
    Ok(match (ty, &stats.last) {
        (FieldType::Int64, Numbers::Int(last)) => {
            let value = |(best, _): &(Best, u32)| at(best).and_then(|at| last.get(at).copied());
            Some(Arc::new(picks.iter().map(value).collect::<Int64Array>()))
        }
        (FieldType::Double, last) => {
            let value = |(best, _): &(Best, u32)| at(best).and_then(|at| last.double(at));
            Some(Arc::new(picks.iter().map(value).collect::<Float64Array>()))
        }
        _ => None,
    })
}
