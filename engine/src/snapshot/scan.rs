//! Scans: from a request to units of work that give batches of visible rows.

use super::CollectionSnapshot;
use super::row_filter::{RowFilter, Selection, TimeRange};
use crate::error::{Error, Result};
use crate::segment::Segment;
use crate::segment::bounds::BucketBounds;
use crate::sync::{AtomicU64, Ordering};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::filter_record_batch;
use arrow::error::ArrowError;
use ebbtide_buckets::{Chunk, FieldType, MetaKey, Schema, SegmentReader, adapt, column_of_keys, time_values, times};
use ebbtide_ttl::{Cutoff, Value};
use roaring::RoaringBitmap;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a batch that a scan gives.
const BATCH_ROWS: usize = 8192;
/// A segment is cut into units of about this many rows, so that several threads share it.
const UNIT_ROWS: u64 = 1 << 17;

/// Chooses metas. It is asked once per segment with the distinct metas in it, not once per row.
pub trait MetaFilter: Debug + Send + Sync {
    /// For each meta, given as a column of the meta field's type (all null, as long as no measurement has had one), whether its
    /// measurements are wanted.
    ///
    /// # Errors
    /// Whatever the evaluation meets. It is asked again about the metas that have something to be seen; the scan fails with an
    /// error that it meets then.
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError>;

    /// Values that every wanted meta has, each at a path of member names (empty for the meta itself). With them metas are
    /// looked up in the postings of a segment, and [`MetaFilter::select`] is asked about those that are found only.
    fn equalities(&self) -> &[(Vec<String>, Value)] {
        &[]
    }
}

/// Bounds that a numeric field of a wanted row must meet. Used to skip whole buckets only: rows are not filtered by it.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldBound {
    /// The field's name.
    pub field: String,
    /// The least value that is wanted.
    pub min: Option<f64>,
    /// The greatest value that is wanted.
    pub max: Option<f64>,
}

/// What to read.
#[derive(Debug, Clone, Default)]
pub struct ScanRequest {
    /// Columns, in the order in which they are wanted; all of the schema's if `None`.
    pub projection: Option<Vec<String>>,
    /// First and last instant that are wanted, both inclusive, in units of the collection's precision. Exact.
    pub time: (Option<i64>, Option<i64>),
    /// Metas that are wanted. Exact.
    pub meta: Option<Arc<dyn MetaFilter>>,
    /// Bounds of numeric fields; used to skip buckets only.
    pub bounds: Vec<FieldBound>,
    /// Whether expired measurements are wanted too, as long as they are stored.
    pub include_hidden: bool,
}

/// What a scan left out, for `EXPLAIN ANALYZE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanReport {
    /// Segments that are read.
    pub segments: u64,
    /// Buckets (parts of one in a segment or in memory) that are read.
    pub buckets: u64,
    /// Buckets skipped by time, meta or bounds.
    pub buckets_pruned: u64,
    /// Buckets hidden as a whole because they are expired.
    pub buckets_hidden: u64,
    /// Rows of those, and expired rows of open buckets that hold others; [`ScanUnit::rows_hidden`] has those of sealed ones.
    pub rows_hidden: u64,
}

/// A piece of a scan that is read on its own.
#[derive(Debug, Clone)]
pub struct ScanUnit {
    source: Source,
    columns: Arc<Vec<String>>,
    schema: Arc<Schema>,
    rows: u64,
    exact: bool,
    /// Whether what is decoded is kept for other queries.
    cached: bool,
    hidden: Arc<AtomicU64>,
}

#[derive(Debug, Clone)]
enum Source {
    Sealed { segment: Arc<Segment>, ranges: Vec<Range<u64>>, filter: Option<RowFilter> },
    Open { chunk: Arc<Chunk>, rows: Option<UInt32Array> },
}

/// Batches of a unit.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl ScanUnit {
    /// Rows that the unit gives at most.
    #[must_use]
    pub fn rows_estimate(&self) -> u64 {
        self.rows
    }

    /// Whether [`ScanUnit::rows_estimate`] is the very number.
    #[must_use]
    pub fn rows_exact(&self) -> bool {
        self.exact
    }

    /// Expired rows that were left out so far of buckets that hold others: complete once the unit has been read.
    #[must_use]
    pub fn rows_hidden(&self) -> u64 {
        self.hidden.load(Ordering::Relaxed)
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::DataCorruptionDetected`] if the segment is damaged or missing.
    pub fn read(&self) -> Result<Batches> {
        match &self.source {
            Source::Open { chunk, rows } => {
                let batch = adapt(&chunk.batch, &self.schema)?;
                let batch = project(&batch, &self.columns)?;
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
                let Some(filter) = *filter else {
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
                let hidden = self.hidden.clone();
                Ok(Box::new(batches.map(move |batch| keep(&batch?, at, filter, &wanted, &hidden))))
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
    let values = time_values(batch.column(time))?;
    let mut expired = 0;
    let keeps = |t: &i64| {
        let is_expired = filter.cutoff.hides(*t);
        expired += u64::from(is_expired);
        !is_expired && filter.time.contains(*t)
    };
    let mask = BooleanArray::from(values.iter().map(keeps).collect::<Vec<bool>>());
    hidden.fetch_add(expired, Ordering::Relaxed);
    Ok(filter_record_batch(&batch.project(wanted)?, &mask)?)
}

fn project(batch: &RecordBatch, columns: &[String]) -> Result<RecordBatch> {
    let schema = batch.schema();
    let at: Result<Vec<usize>, ArrowError> = columns.iter().map(|c| schema.index_of(c)).collect();
    Ok(batch.project(&at?)?)
}

fn take(batch: &RecordBatch, rows: &UInt32Array) -> Result<RecordBatch> {
    if batch.num_columns() == 0 {
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
        return Ok(RecordBatch::try_new_with_options(batch.schema(), Vec::new(), &options)?);
    }
    Ok(arrow::compute::take_record_batch(batch, rows)?)
}

/// A bucket of a segment of which rows are wanted.
pub(super) struct SelectedBucket {
    pub(super) ordinal: usize,
    /// Ordinal of its meta.
    pub(super) meta: usize,
    pub(super) bounds: BucketBounds,
    /// What its rows have to pass, if not all of them are wanted.
    pub(super) filter: Option<RowFilter>,
}

impl CollectionSnapshot {
    /// Units of work that together give the wanted rows that are visible at [`CollectionSnapshot::now`].
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::BadValue`] for a column that does not exist; damage in a bucket directory.
    pub fn scan(&self, request: &ScanRequest) -> Result<Vec<ScanUnit>> {
        self.scan_reported(request).map(|(units, _)| units)
    }

    /// Like [`CollectionSnapshot::scan`], with what was left out.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::scan`].
    pub fn scan_reported(&self, request: &ScanRequest) -> Result<(Vec<ScanUnit>, ScanReport)> {
        let columns = self.columns(request)?;
        let mut scan = Scan::new(self, request);
        scan.columns = Arc::new(columns);
        for segment in self.state.segments.values() {
            scan.segment(segment)?;
        }
        for chunk in self.state.memtable.chunks() {
            scan.chunk(chunk)?;
        }
        past_cache_if_too_many(&mut scan.units);
        Ok((scan.units, scan.report))
    }
}

impl CollectionSnapshot {
    /// The columns that a request wants.
    pub(super) fn columns(&self, request: &ScanRequest) -> Result<Vec<String>> {
        let all = || self.state.schema.arrow().fields().iter().map(|f| f.name().clone()).collect();
        let columns: Vec<String> = request.projection.clone().unwrap_or_else(all);
        self.check_columns(&columns)?;
        Ok(columns)
    }

    fn check_columns(&self, columns: &[String]) -> Result<()> {
        let schema = self.state.schema.arrow();
        match columns.iter().find(|c| schema.index_of(c).is_err()) {
            None => Ok(()),
            Some(unknown) => {
                let what = format!("collection '{}' has no column '{unknown}'", self.name());
                Err(Error::new(ebbtide_ttl::Code::BadValue, what))
            }
        }
    }
}

/// A walk through what there is, to what a request wants of it.
pub(super) struct Scan<'a> {
    snapshot: &'a CollectionSnapshot,
    request: &'a ScanRequest,
    time: TimeRange,
    columns: Arc<Vec<String>>,
    units: Vec<ScanUnit>,
    report: ScanReport,
}

impl<'a> Scan<'a> {
    pub(super) fn new(snapshot: &'a CollectionSnapshot, request: &'a ScanRequest) -> Self {
        Scan {
            snapshot,
            request,
            time: TimeRange { first: request.time.0.unwrap_or(i64::MIN), last: request.time.1.unwrap_or(i64::MAX) },
            columns: Arc::default(),
            units: Vec::new(),
            report: ScanReport::default(),
        }
    }

    pub(super) fn report(&self) -> ScanReport {
        self.report
    }

    fn filter(&self, e: Option<i64>) -> RowFilter {
        let cutoff = if self.request.include_hidden { Cutoff::NONE } else { self.snapshot.cutoff(e) };
        RowFilter { time: self.time, cutoff }
    }

    /// The buckets of a segment of which rows are wanted, in order; `None` if it need not be opened to know that there are
    /// none.
    pub(super) fn found(&mut self, segment: &Arc<Segment>) -> Result<Option<(SegmentReader, Vec<SelectedBucket>)>> {
        let live = segment.live();
        if live.buckets == 0 || !self.time.overlaps(live.first_min, live.last_max) {
            self.report.buckets_pruned += u64::from(live.buckets);
            return Ok(None);
        }
        let state = &self.snapshot.state;
        let classes = segment.classes(&state.rules, Some(state.rules_epoch))?;
        // A segment that is expired as a whole is skipped without its directory.
        if let (_, Some(longest)) = classes.range()
            && self.filter(Some(longest)).cutoff.hides(live.last_max)
        {
            self.report.buckets_hidden += u64::from(live.buckets);
            self.report.rows_hidden += live.rows;
            return Ok(None);
        }
        let reader = segment.file.reader()?;
        // A filter may fail on metas of which nothing is visible: then it is asked about the others alone.
        let asked = self.wanted_metas(&reader);
        let failed = asked.is_err();
        let metas = asked.unwrap_or_else(|_| (0..reader.directory().meta_count()).collect());
        let field_bounds = ebbtide_buckets::BoundsCheck::new(
            reader.directory(),
            self.request.bounds.iter().map(|b| (b.field.as_str(), b.min, b.max)),
        );
        let mut found = Vec::new();
        let mut seen = 0;
        for (ordinal, meta, bounds) in segment.buckets_of_metas(&reader, metas) {
            seen += 1;
            if !field_bounds.may_match(ordinal) {
                self.report.buckets_pruned += 1;
                continue;
            }
            let filter = self.filter(classes.of(meta).map(|c| c.1));
            let filter = match filter.select(&bounds) {
                Selection::All => None,
                Selection::Some => Some(filter),
                Selection::Pruned => {
                    self.report.buckets_pruned += 1;
                    continue;
                }
                Selection::Hidden => {
                    self.report.buckets_hidden += 1;
                    self.report.rows_hidden += bounds.rows;
                    continue;
                }
            };
            found.push(SelectedBucket { ordinal, meta, bounds, filter });
        }
        if failed {
            let mut metas: Vec<usize> = found.iter().map(|f| f.meta).collect();
            metas.dedup();
            let keys: Vec<MetaKey> = metas.iter().map(|meta| reader.directory().meta(*meta)).collect();
            if let Some(selected) = self.metas(&keys)? {
                seen -= found.len() as u64;
                found.retain(|f| metas.binary_search(&f.meta).is_ok_and(|at| selected.value(at)));
                seen += found.len() as u64;
            }
        }
        self.report.buckets_pruned += u64::from(live.buckets).saturating_sub(seen);
        self.report.buckets += found.len() as u64;
        self.report.segments += u64::from(!found.is_empty());
        Ok(Some((reader, found)))
    }

    fn segment(&mut self, segment: &Arc<Segment>) -> Result<()> {
        if let Some((reader, found)) = self.found(segment)? {
            self.units.extend(units_of(segment, &reader, found.iter(), &self.columns, &self.snapshot.state.schema));
        }
        Ok(())
    }

    /// Ordinals of the metas of a segment that are wanted.
    fn wanted_metas(&self, reader: &SegmentReader) -> Result<Vec<usize>> {
        let directory = reader.directory();
        let all = 0..directory.meta_count();
        let Some(filter) = &self.request.meta else { return Ok(all.collect()) };
        let mut found: Option<RoaringBitmap> = None;
        for (path, value) in filter.equalities() {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let having = match path.is_empty() {
                true => {
                    let meta = directory.find_meta(&MetaKey::of(value));
                    Some(meta.and_then(|m| u32::try_from(m).ok()).into_iter().collect::<RoaringBitmap>())
                }
                false => directory.posting(&path, value),
            };
            found = match (found, having) {
                (Some(found), Some(having)) => Some(found & having),
                (found, having) => found.or(having),
            };
        }
        let (candidates, selected): (Vec<usize>, _) = match found {
            Some(found) => {
                let keys: Vec<MetaKey> = found.iter().map(|meta| directory.meta(meta as usize)).collect();
                (found.iter().map(|meta| meta as usize).collect(), self.metas(&keys)?)
            }
            None => {
                let keys = || all.clone().map(|meta| directory.meta(meta)).collect::<Vec<_>>();
                let metas = || reader.metas(&self.snapshot.state.schema).unwrap_or_else(|| self.column(&keys()));
                (all.clone().collect(), self.select(metas)?)
            }
        };
        let Some(selected) = selected else { return Ok(candidates) };
        Ok(candidates.into_iter().zip(selected.values()).filter(|(_, wanted)| *wanted).map(|(meta, _)| meta).collect())
    }

    /// Which of the metas are wanted; `None` if all are.
    fn metas(&self, metas: &[MetaKey]) -> Result<Option<BooleanArray>> {
        self.select(|| self.column(metas))
    }

    /// Metas as a column, of nulls as long as no measurement has had one.
    fn column(&self, metas: &[MetaKey]) -> ArrayRef {
        let schema = &self.snapshot.state.schema;
        column_of_keys(metas, schema.meta_type.as_ref().unwrap_or(&FieldType::Unknown), schema.precision)
    }

    /// Which of a column of metas are wanted; `None` if all are.
    fn select(&self, metas: impl FnOnce() -> ArrayRef) -> Result<Option<BooleanArray>> {
        let (Some(filter), Some(_)) = (&self.request.meta, &self.snapshot.state.schema.meta) else { return Ok(None) };
        let column = metas();
        let selected = filter.select(&column)?;
        let wanted = (0..column.len()).map(|i| Some(selected.is_valid(i) && selected.value(i))).collect();
        Ok(Some(wanted))
    }

    /// The wanted buckets of a chunk by number, each with its wanted rows in order of time.
    pub(super) fn found_open<'c>(&mut self, chunk: &'c Chunk) -> Result<Vec<(usize, Cow<'c, [u32]>)>> {
        let state = &self.snapshot.state;
        let metas: Vec<MetaKey> = chunk.buckets.iter().map(|b| b.id.meta.clone()).collect();
        let asked = self.metas(&metas);
        let failed = asked.is_err(); // As in a segment.
        let selected = asked.unwrap_or_default();
        let values = times(&chunk.batch)?;
        let mut found = Vec::new();
        for (number, bucket) in chunk.buckets.iter().enumerate() {
            if selected.as_ref().is_some_and(|s| !s.value(number)) {
                self.report.buckets_pruned += 1;
                continue;
            }
            let class = state.rules.effective_for_all();
            let e = class.unwrap_or_else(|| state.rules.effective(&bucket.id.meta.value())).map(|c| c.1);
            let bounds = BucketBounds::from(bucket);
            let filter = self.filter(e);
            match filter.select(&bounds) {
                Selection::All => found.push((number, Cow::Borrowed(bucket.rows.as_slice()))),
                Selection::Some => {
                    let keeps = |row: &&u32| filter.keeps(values[**row as usize]);
                    found.push((number, bucket.rows.iter().filter(keeps).copied().collect()));
                    let expired = |row: &&u32| filter.cutoff.hides(values[**row as usize]);
                    self.report.rows_hidden += bucket.rows.iter().filter(expired).count() as u64;
                }
                Selection::Pruned => {
                    self.report.buckets_pruned += 1;
                    continue;
                }
                Selection::Hidden => {
                    self.report.buckets_hidden += 1;
                    self.report.rows_hidden += bounds.rows;
                    continue;
                }
            }
            self.report.buckets += 1;
        }
        if failed {
            let keys: Vec<MetaKey> = found.iter().map(|(number, _)| metas[*number].clone()).collect();
            if let Some(selected) = self.metas(&keys)? {
                let before = found.len() as u64;
                let mut wanted = selected.values().iter();
                found.retain(|_| wanted.next().unwrap_or(false));
                self.report.buckets -= before - found.len() as u64;
                self.report.buckets_pruned += before - found.len() as u64;
            }
        }
        Ok(found)
    }

    fn chunk(&mut self, chunk: &Arc<Chunk>) -> Result<()> {
        let mut rows: Vec<u32> = Vec::new();
        self.found_open(chunk)?.iter().for_each(|(_, of_bucket)| rows.extend(of_bucket.iter()));
        if !rows.is_empty() {
            self.units.push(open_unit(chunk, rows, &self.columns, &self.snapshot.state.schema));
        }
        Ok(())
    }
}

/// The unit that gives these rows of a chunk.
fn open_unit(chunk: &Arc<Chunk>, mut rows: Vec<u32>, columns: &Arc<Vec<String>>, schema: &Arc<Schema>) -> ScanUnit {
    let count = rows.len() as u64;
    rows.sort_unstable(); // In the order of arrival.
    let whole = count == chunk.batch.num_rows() as u64;
    ScanUnit {
        source: Source::Open { chunk: chunk.clone(), rows: (!whole).then(|| UInt32Array::from(rows)) },
        columns: columns.clone(),
        schema: schema.clone(),
        rows: count,
        exact: true,
        cached: true,
        hidden: Arc::default(),
    }
}

/// The units that give the wanted rows of buckets of a segment.
fn units_of<'f>(
    segment: &Arc<Segment>,
    reader: &SegmentReader,
    found: impl Iterator<Item = &'f SelectedBucket>,
    columns: &Arc<Vec<String>>,
    schema: &Arc<Schema>,
) -> Vec<ScanUnit> {
    // Rows that have to pass the same filter are read together: seldom more filters than rules.
    let mut parts: HashMap<Option<RowFilter>, Vec<Range<u64>>> = HashMap::new();
    for bucket in found {
        let ranges = parts.entry(bucket.filter).or_default();
        segment.push_live(ranges, reader, bucket.ordinal);
    }
    let mut parts: Vec<_> = parts.into_iter().collect();
    parts.sort_by_key(|(filter, _)| *filter);
    let mut units = Vec::new();
    for (filter, ranges) in parts {
        for ranges in cut(ranges) {
            units.push(ScanUnit {
                rows: ranges.iter().map(|r| r.end - r.start).sum(),
                exact: filter.is_none(),
                cached: true,
                source: Source::Sealed { segment: segment.clone(), ranges, filter },
                hidden: Arc::default(),
                columns: columns.clone(),
                schema: schema.clone(),
            });
        }
    }
    units
}

/// Has units read past the cache of columns if it cannot hold all that they read.
fn past_cache_if_too_many(units: &mut [ScanUnit]) {
    let rows = units.iter().map(|unit| unit.rows).sum();
    for unit in units {
        if let Source::Sealed { segment, .. } = &unit.source {
            unit.cached = segment.file.cache_holds(rows, unit.columns.len());
        }
    }
}

/// Cuts ranges into lists of about [`UNIT_ROWS`] rows.
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
