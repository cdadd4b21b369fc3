//! Scans: from a request to units of work that return batches of visible rows.

mod first_rows;
mod request;
mod row_bounds;
pub(super) mod selection;
mod texts;

pub use request::{FieldBound, FirstRows, MetaFilter, ScanReport, ScanRequest};

use super::CollectionSnapshot;
use super::cache_share::CacheShare;
use super::row_filter::RowFilter;
use crate::error::{Error, Result};
use crate::segment::Segment;
use crate::sync::{AtomicU64, Ordering};
use arrow::array::{BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::filter_record_batch;
use ebbtide_buckets::{Chunk, FieldType, Schema, SegmentReader, adapt_to, time_values};
use first_rows::FirstBuckets;
use selection::{BucketSelector, SelectedBucket};
use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use texts::{RowsByFilter, SelectedRows, TextFilters, count};

/// Rows of a batch of a scan.
const BATCH_ROWS: usize = 8192;
/// A segment is split into units of about this many rows, so that several threads can share it.
const UNIT_ROWS: u64 = 1 << 17;

/// All columns of units with fewer rows than this are read at once.
const ROWS_CHOSEN_MIN: u64 = 32;

/// A part of a scan that can be read independently.
#[derive(Debug, Clone)]
pub struct ScanUnit {
    source: Source,
    columns: Arc<Vec<String>>,
    /// Bounds of fields whose columns are read first. Empty if there are no others.
    bounds: Arc<Vec<FieldBound>>,
    schema: Arc<Schema>,
    rows: u64,
    exact: bool,
    /// The approximate bytes of its columns in the cache.
    bytes: u64,
    /// Whether decoded columns are kept in the cache for other queries.
    cached: bool,
    skipped: Arc<Skipped>,
}

/// Rows that were skipped while a unit was read.
#[derive(Debug, Default)]
struct Skipped {
    /// Because they are expired.
    hidden: AtomicU64,
    /// Visible ones, because fields are outside of their bounds.
    outside: AtomicU64,
}

#[derive(Debug, Clone)]
enum Source {
    Sealed { segment: Arc<Segment>, ranges: Vec<Range<u64>>, filter: Option<RowFilter> },
    Open { chunk: Arc<Chunk>, rows: Option<UInt32Array> },
}

/// The batches of a unit.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl ScanUnit {
    /// Reads these rows of a segment, past the cache.
    pub(super) fn of_rows(
        segment: &Arc<Segment>,
        ranges: Vec<Range<u64>>,
        columns: Vec<String>,
        schema: &Arc<Schema>,
    ) -> ScanUnit {
        ScanUnit {
            rows: count(&ranges),
            exact: true,
            bytes: 0,
            cached: false,
            source: Source::Sealed { segment: segment.clone(), ranges, filter: None },
            skipped: Arc::default(),
            columns: Arc::new(columns),
            bounds: Arc::default(),
            schema: schema.clone(),
        }
    }

    /// The maximum number of rows of the unit.
    #[must_use]
    pub fn rows_estimate(&self) -> u64 {
        self.rows
    }

    /// Whether [`ScanUnit::rows_estimate`] is exact.
    #[must_use]
    pub fn rows_exact(&self) -> bool {
        self.exact
    }

    /// Expired rows of partly visible buckets that were skipped so far; complete once the unit has been read.
    #[must_use]
    pub fn rows_hidden(&self) -> u64 {
        self.skipped.hidden.load(Ordering::Relaxed)
    }

    /// Visible rows that were skipped so far because fields are outside of their bounds; complete once the unit has been read.
    #[must_use]
    pub fn rows_outside(&self) -> u64 {
        self.skipped.outside.load(Ordering::Relaxed)
    }

    /// Whether the columns that choose rows are read first, and the others only for these rows.
    fn chooses_rows(&self, filter: Option<RowFilter>) -> bool {
        let by_time = || filter.is_some() && self.rows >= ROWS_CHOSEN_MIN && self.columns.len() > 1;
        self.cached && (!self.bounds.is_empty() || by_time())
    }

    /// Reads the unit.
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::DataCorruptionDetected`] if the segment is damaged or missing.
    pub fn read(&self) -> Result<Batches> {
        match &self.source {
            Source::Open { chunk, rows } => {
                let batch = adapt_to(&chunk.batch, self.schema.arrow_columns(&self.columns)?)?;
                let batch = match rows {
                    Some(rows) => take(&batch, rows)?,
                    None => batch,
                };
                Ok(Box::new(std::iter::once(Ok(batch))))
            }
            Source::Sealed { segment, ranges, filter } => {
                let reader = match (segment.file.reader()?, self.cached) {
                    (reader, true) => reader,
                    (reader, false) => reader.without_cache(),
                };
                let found = match self.chooses_rows(*filter) && !reader.is_remote() {
                    true => row_bounds::find(&reader, &self.schema, &self.bounds, *filter, ranges)?,
                    false => None,
                };
                let (ranges, filter) = match &found {
                    Some(found) => (&found.ranges, None),
                    None => (ranges, *filter),
                };
                if let Some(found) = &found {
                    self.skipped.hidden.fetch_add(found.hidden, Ordering::Relaxed);
                    self.skipped.outside.fetch_add(found.outside, Ordering::Relaxed);
                }
                if ranges.is_empty() {
                    // Who reads it can stop between batches.
                    let empty = RecordBatch::new_empty(self.schema.arrow_columns(&self.columns)?);
                    return Ok(Box::new(std::iter::once(Ok(empty))));
                }
                let Some(filter) = filter else {
                    let batches = reader.read(&self.columns, &self.schema, ranges, BATCH_ROWS)?;
                    return Ok(Box::new(batches.map(|b| b.map_err(Error::from))));
                };
                let time = &self.schema.time;
                let mut columns = (*self.columns).clone();
                if !columns.contains(time) {
                    columns.push(time.clone());
                }
                let at = columns.iter().position(|c| c == time).unwrap_or(0);
                let wanted: Vec<usize> = (0..self.columns.len()).collect();
                let batches = reader.read(&columns, &self.schema, ranges, BATCH_ROWS)?;
                let skipped = self.skipped.clone();
                Ok(Box::new(batches.map(move |batch| keep(&batch?, at, filter, &wanted, &skipped.hidden))))
            }
        }
    }
}

/// The rows that a filter on column `time` lets through; counts those that are hidden because they are expired.
fn keep(
    batch: &RecordBatch,
    time: usize,
    filter: RowFilter,
    wanted: &[usize],
    hidden: &AtomicU64,
) -> Result<RecordBatch> {
    let (mask, expired) = filter.mask(time_values(batch.column(time))?);
    hidden.fetch_add(expired, Ordering::Relaxed);
    Ok(filter_record_batch(&batch.project(wanted)?, &BooleanArray::from(mask))?)
}

fn take(batch: &RecordBatch, rows: &UInt32Array) -> Result<RecordBatch> {
    if batch.num_columns() == 0 {
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
        return Ok(RecordBatch::try_new_with_options(batch.schema(), Vec::new(), &options)?);
    }
    Ok(arrow::compute::take_record_batch(batch, rows)?)
}

/// What all units of a scan read.
struct Read {
    columns: Arc<Vec<String>>,
    bounds: Arc<Vec<FieldBound>>,
    schema: Arc<Schema>,
}

impl Read {
    fn new(snapshot: &CollectionSnapshot, request: &ScanRequest) -> Result<Read> {
        let columns = snapshot.columns(request)?;
        let is_bounded = |column: &String| request.bounds.iter().any(|bound| bound.field == *column);
        let is_number = |ty: &FieldType| matches!(ty, FieldType::Int64 | FieldType::Double);
        let fields = &snapshot.schema().fields;
        let is_field = |bound: &&FieldBound| fields.iter().any(|(name, ty)| *name == bound.field && is_number(ty));
        let bounds = match columns.iter().all(is_bounded) {
            true => Vec::new(),
            false => request.bounds.iter().filter(is_field).cloned().collect(),
        };
        let (columns, bounds, schema) = (Arc::new(columns), Arc::new(bounds), snapshot.state.schema.clone());
        Ok(Read { columns, bounds, schema })
    }

    /// The columns that are returned, and those that are read to choose rows.
    fn all_columns(&self, by_time: bool) -> impl Iterator<Item = &str> {
        let bounded = self.bounds.iter().map(|bound| bound.field.as_str());
        let others = bounded.chain(by_time.then_some(self.schema.time.as_str()));
        let others = others.filter(|name| self.columns.iter().all(|column| column != name));
        self.columns.iter().map(String::as_str).chain(others)
    }
}

impl CollectionSnapshot {
    /// Units of work that together return the requested rows that are visible at [`CollectionSnapshot::now`].
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::BadValue`] for a column that does not exist; damage in a bucket directory.
    pub fn scan(&self, request: &ScanRequest) -> Result<Vec<ScanUnit>> {
        self.scan_reported(request).map(|(units, _)| units)
    }

    /// Like [`CollectionSnapshot::scan`], with a report of what is read and what is skipped.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::scan`].
    pub fn scan_reported(&self, request: &ScanRequest) -> Result<(Vec<ScanUnit>, ScanReport)> {
        let read = Read::new(self, request)?;
        let mut selector = BucketSelector::new(self, request);
        let mut units = Vec::new();
        let first = self.first_buckets(request)?;
        let (mut skipped, mut unread) = (0, 0);
        let mut filters = (!request.texts.is_empty()).then(|| TextFilters::new(&request.texts));
        let mut waiting = Vec::new();
        for segment in self.state.segments.values() {
            if let Some((reader, mut selected)) = selector.select(segment)? {
                let before = selected.len();
                if let Some(first) = &first {
                    selected.retain(|bucket| first.keeps(&first.sealed(segment, &reader, bucket)));
                }
                skipped += before - selected.len();
                unread += u64::from(before > 0 && selected.is_empty());
                let rows = live_rows(segment, &reader, &selected);
                waiting.push(SelectedRows { segment: segment.clone(), reader, rows });
                if filters.as_ref().is_none_or(|filters| filters.are_enough(&waiting)) {
                    units.extend(units_of(&mut waiting, filters.as_mut(), &read)?);
                }
            }
        }
        units.extend(units_of(&mut waiting, filters.as_mut(), &read)?);
        for chunk in self.state.memtable.chunks() {
            let mut selected = selector.select_open(chunk)?;
            let before = selected.len();
            if let Some(first) = &first {
                selected.retain(|(bucket, rows)| first.keeps(&first.open(&chunk.buckets[*bucket], rows.len())));
            }
            skipped += before - selected.len();
            let rows: Vec<u32> = selected.iter().flat_map(|(_, of_bucket)| of_bucket.iter().copied()).collect();
            if !rows.is_empty() {
                units.push(open_unit(chunk, rows, &read));
            }
        }
        share_cache(&mut units);
        let mut report = selector.report();
        report.buckets -= skipped as u64;
        report.buckets_pruned += skipped as u64;
        report.segments -= unread;
        report.rows_pruned = filters.map_or(0, |filters| filters.rows_pruned);
        Ok((units, report))
    }

    /// What is known about the first rows that a request asks for: buckets are selected once more for it, so that those of one segment
    /// at a time are in memory.
    fn first_buckets<'r>(&self, request: &'r ScanRequest) -> Result<Option<FirstBuckets<'r>>> {
        let first = request.first.as_ref().and_then(|order| FirstBuckets::new(order, &self.state.schema));
        let Some(mut first) = first else { return Ok(None) };
        let mut selector = BucketSelector::new(self, request);
        for segment in self.state.segments.values() {
            if let Some((reader, selected)) = selector.select(segment)? {
                for bucket in &selected {
                    let keys = first.sealed(segment, &reader, bucket);
                    first.add(&keys);
                }
            }
        }
        for chunk in self.state.memtable.chunks() {
            for (bucket, rows) in selector.select_open(chunk)? {
                let keys = first.open(&chunk.buckets[bucket], rows.len());
                first.add(&keys);
            }
        }
        Ok(Some(first))
    }

    /// The columns that a request asks for.
    pub(crate) fn columns(&self, request: &ScanRequest) -> Result<Vec<String>> {
        let schema = &self.state.schema;
        let Some(columns) = request.projection.clone() else {
            return Ok(schema.column_names().map(str::to_owned).collect());
        };
        match columns.iter().find(|column| schema.column_names().all(|name| name != column.as_str())) {
            None => Ok(columns),
            Some(unknown) => {
                let what = format!("collection '{}' has no column '{unknown}'", self.name());
                Err(Error::new(ebbtide_ttl::Code::BadValue, what))
            }
        }
    }
}

/// The unit for these rows of a chunk.
fn open_unit(chunk: &Arc<Chunk>, mut rows: Vec<u32>, read: &Read) -> ScanUnit {
    let count = rows.len() as u64;
    rows.sort_unstable(); // In the order of arrival.
    let whole = count == chunk.batch.num_rows() as u64;
    ScanUnit {
        source: Source::Open { chunk: chunk.clone(), rows: (!whole).then(|| UInt32Array::from(rows)) },
        columns: read.columns.clone(),
        bounds: Arc::default(),
        schema: read.schema.clone(),
        rows: count,
        exact: true,
        bytes: 0,
        cached: true,
        skipped: Arc::default(),
    }
}

/// The rows of selected buckets that are not deleted. Rows with the same filter are read together; there are rarely more
/// filters than rules.
fn live_rows(segment: &Segment, reader: &SegmentReader, selected: &[SelectedBucket]) -> RowsByFilter {
    let mut parts: HashMap<Option<RowFilter>, Vec<Range<u64>>> = HashMap::new();
    for bucket in selected {
        let ranges = parts.entry(bucket.filter).or_default();
        segment.push_live(ranges, reader, bucket.ordinal);
    }
    let mut parts: Vec<_> = parts.into_iter().collect();
    parts.sort_by_key(|(filter, _)| *filter);
    parts
}

/// The units for the selected rows of segments, but for those that do not contain the texts that are looked for.
fn units_of(
    waiting: &mut Vec<SelectedRows>,
    filters: Option<&mut TextFilters<'_>>,
    read: &Read,
) -> Result<Vec<ScanUnit>> {
    if let Some(filters) = filters {
        filters.apply(waiting)?;
    }
    let mut units = Vec::new();
    for SelectedRows { segment, reader, rows } in waiting.drain(..) {
        for (filter, ranges) in rows {
            let row_bytes = reader.cached_row_bytes(read.all_columns(filter.is_some()));
            for ranges in cut(ranges) {
                units.push(ScanUnit {
                    rows: count(&ranges),
                    exact: filter.is_none() && read.bounds.is_empty(),
                    bytes: count(&ranges).saturating_mul(row_bytes),
                    cached: true,
                    source: Source::Sealed { segment: segment.clone(), ranges, filter },
                    skipped: Arc::default(),
                    columns: read.columns.clone(),
                    bounds: read.bounds.clone(),
                    schema: read.schema.clone(),
                });
            }
        }
    }
    Ok(units)
}

/// Decides which units go through the cache of columns.
fn share_cache(units: &mut [ScanUnit]) {
    let bytes = units.iter().map(|unit| unit.bytes).fold(0, u64::saturating_add);
    let mut share = None;
    for unit in units {
        if let Source::Sealed { segment, .. } = &unit.source {
            unit.cached =
                share.get_or_insert_with(|| CacheShare::new(bytes, segment.file.cache_room())).takes(unit.bytes);
        }
    }
}

/// Splits ranges into lists of about [`UNIT_ROWS`] rows.
fn cut(ranges: Vec<Range<u64>>) -> Vec<Vec<Range<u64>>> {
    let mut lists = Vec::new();
    let mut list = Vec::new();
    let mut rows = 0;
    for mut range in ranges {
        while rows + (range.end - range.start) > UNIT_ROWS {
            let end = range.start + (UNIT_ROWS - rows);
            if end > range.start {
                list.push(range.start..end);
            }
            lists.push(std::mem::take(&mut list));
            rows = 0;
            range.start = end;
        }
        if range.start < range.end {
            rows += range.end - range.start;
            list.push(range);
        }
    }
    if !list.is_empty() {
        lists.push(list);
    }
    lists
}
