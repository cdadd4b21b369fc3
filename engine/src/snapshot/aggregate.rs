//! Aggregates of numeric fields: from the bucket directory where whole buckets are in one group, otherwise from the rows.
//!
//! The results equal those of a scan of the visible rows. Minimum and maximum of doubles are in total order (NaN above
//! infinity, -0.0 below 0.0). Sums of whole numbers are exact. Doubles are added in an order that
//! may differ between calls; values that a segment stores as decimals are summed exactly before rounding.

mod fold;
mod groups;
mod guard;
mod request;
mod results;
mod tables;

pub use guard::AggregateGuard;
pub use request::{Aggregate, AggregateRequest, MetaGroups};

use super::CollectionSnapshot;
use super::cache_share::CacheShare;
use super::meta_numbers::MetaNumbers;
use super::row_filter::StoredRange;
use super::scan::selection::{BucketSelector, SelectedBucket, WantedValues};
use super::scan::{ScanReport, ScanRequest};
use crate::error::{Error, Result};
use crate::segment::Segment;
use arrow::array::RecordBatch;
use ebbtide_buckets::{Chunk, FieldType, SegmentReader, column_of_keys};
use ebbtide_ttl::{Code, Timestamp};
use fold::{OpenUnit, Piece, SealedUnit, Unit};
use groups::{Bins, FieldShape, Shape, Source};
use std::borrow::Cow;
use std::collections::btree_map;
use std::sync::Arc;
use tables::Tables;

/// Rows of a unit of work of one thread.
const UNIT_ROWS: u64 = 1 << 16;

/// The result of [`CollectionSnapshot::aggregate_guarded`].
#[derive(Debug, Clone)]
pub struct Aggregated {
    /// The columns of [`CollectionSnapshot::aggregate`].
    pub groups: RecordBatch,
    /// Buckets that were answered by their directory.
    pub known: u64,
    /// What was read in addition, and what was skipped.
    pub report: ScanReport,
}

impl CollectionSnapshot {
    /// Aggregates the measurements that are visible at [`CollectionSnapshot::now`]. The result has one row for each group, sorted
    /// by meta and time: the meta (with `by_meta`), the start of the group in time (with a width or starts), and the aggregates in the
    /// requested order. Without groups there is exactly one row, even if there are no measurements.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a field that does not exist or is not numeric, a width below 1, a period that is no multiple of it, starts that do not ascend, or a sum of whole numbers
    /// that an int64 does not hold; damage in a segment.
    pub fn aggregate(&self, request: &AggregateRequest) -> Result<RecordBatch> {
        Ok(self.aggregate_guarded(request, &())?.groups)
    }

    /// [`CollectionSnapshot::aggregate`] under a guard that can cancel it.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::aggregate`]; [`Code::Interrupted`] if the guard cancelled it.
    pub fn aggregate_guarded(&self, request: &AggregateRequest, guard: &dyn AggregateGuard) -> Result<Aggregated> {
        let (mut left, mut segments) = (0, 0);
        let all = AggregateResult::in_rounds(self, request, guard, |shape, metas, round| {
            left += round.rest.iter().map(|rest| rest.found.len()).sum::<usize>();
            left += round.open.iter().map(|(_, found)| found.len()).sum::<usize>();
            segments += round.rest.len() as u64;
            let units = round.units(shape, metas)?;
            fold::fold_all(shape, &units, &mut round.tables, guard)
        })?;
        let all = match &request.meta_groups {
            Some(groups) if request.by_meta => all.by_groups_of_metas(self, groups.as_ref())?,
            _ => all,
        };
        let (mut report, left) = (all.report, left as u64);
        let known = report.buckets.saturating_sub(left);
        (report.buckets, report.segments) = (left, segments);
        report.rows_hidden += all.tables.hidden;
        let groups = results::results(all.tables, self, request, &all.shape, &all.metas)?;
        Ok(Aggregated { groups, known, report })
    }

    /// The first and the last stored time, visible or not; `None` if nothing is stored. Deletes may leave the bounds wider than
    /// what is stored.
    pub(crate) fn stored_times(&self) -> Option<(i64, i64)> {
        let sealed = self.state.segments.values().map(|segment| segment.live());
        let sealed = sealed.filter(|live| live.buckets > 0).map(|live| (live.first_min, live.last_max));
        let open = self.state.memtable.chunks().flat_map(|chunk| &chunk.buckets).map(|b| (b.first, b.last));
        sealed.chain(open).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    fn shape(&self, request: &AggregateRequest) -> Result<Shape> {
        let bad = |what: String| Err(Error::new(Code::BadValue, what));
        let bins = self.bins(request)?;
        let mut fields: Vec<FieldShape> = Vec::new();
        for name in request.aggregates.iter().filter_map(Aggregate::field) {
            if fields.iter().any(|f| f.name == name) {
                continue;
            }
            let is_field = self.state.schema.fields.iter().any(|(n, _)| n == name);
            let int = match self.state.schema.field_type(name).filter(|_| is_field) {
                Some(FieldType::Int64) => true,
                Some(FieldType::Double) => false,
                Some(other) => {
                    return bad(format!("field '{name}' is {}: only numbers can be aggregated", other.name()));
                }
                None => return bad(format!("collection '{}' has no field '{name}'", self.name())),
            };
            fields.push(FieldShape { name: name.to_owned(), int });
        }
        let edges = request.aggregates.iter().any(|a| matches!(a, Aggregate::First(_) | Aggregate::Last(_)));
        Ok(Shape { fields, bins, edges })
    }

    fn bins(&self, request: &AggregateRequest) -> Result<Option<Bins>> {
        let bad = |what: String| Err(Error::new(Code::BadValue, what));
        let precision = self.options().precision;
        let unit = precision.name();
        match (request.width, &request.starts) {
            (None, _) if request.period.is_some() => bad("groups in time have a period only with a width".to_owned()),
            (None, None) => Ok(None),
            (Some(_), Some(_)) => bad("groups in time have a width or starts, not both".to_owned()),
            (Some(width), None) => match (precision.units_in(width), request.period) {
                (Some(width @ 1..), None) => Ok(Some(Bins::Width(width))),
                (Some(width @ 1..), Some(period)) => match precision.units_in(period).filter(|units| *units > 0) {
                    Some(period) if period % width == 0 => Ok(Some(Bins::Cycle { width, period })),
                    _ => bad(format!("the period of groups is {period:?}; it must be a multiple of their width")),
                },
                _ => {
                    bad(format!("the width of groups is {width:?}; it must be a whole number of {unit}, at least one"))
                }
            },
            (None, Some(starts)) => {
                let units = |start: &Timestamp| {
                    let units = start.to_units(precision)?;
                    (Timestamp::from_units(units, precision) == *start).then_some(units)
                };
                let units: Option<Vec<i64>> = starts.iter().map(units).collect();
                match units.filter(|units| !units.is_empty() && units.windows(2).all(|pair| pair[0] < pair[1])) {
                    Some(units) => Ok(Some(Bins::Starts(units))),
                    None => bad(format!(
                        "the starts of groups in time must be whole {unit} in ascending order, each greater than the one before, and at least one"
                    )),
                }
            }
        }
    }
}

/// Selected buckets of a segment that are not answered yet.
struct PendingSegment<'a> {
    segment: &'a Arc<Segment>,
    reader: SegmentReader,
    found: Vec<SelectedBucket>,
    /// For each of them the number of its meta in the result.
    metas: Vec<u32>,
}

/// The selected buckets of a chunk, each with its rows.
type PendingChunk<'a> = (&'a Arc<Chunk>, Vec<(usize, Cow<'a, [u32]>)>);

/// The result of all rounds.
struct AggregateResult {
    shape: Shape,
    tables: Tables,
    metas: MetaNumbers,
    /// What was selected and what was skipped.
    report: ScanReport,
}

/// The segments that are still to be examined, and what they are examined for.
struct DirectoryWalk<'a, 's> {
    snapshot: &'a CollectionSnapshot,
    segments: btree_map::Values<'a, u64, Arc<Segment>>,
    scan: BucketSelector<'s>,
    shape: Shape,
    by_meta: bool,
    /// The values of a member of metas, if these are all that is asked for.
    wanted: Option<WantedValues<'s>>,
    metas: MetaNumbers,
    /// The requested times.
    times: StoredRange,
}

/// Some of the segments: what their directories answer, and what is left to read. Segments are examined in rounds so that
/// not all directories are in memory at a time.
struct Round<'a> {
    tables: Tables,
    rest: Vec<PendingSegment<'a>>,
    open: Vec<PendingChunk<'a>>,
    /// Whether it is the last round.
    last: bool,
    /// The requested times.
    times: StoredRange,
}

impl AggregateResult {
    /// Examines everything in rounds; `each` processes what a round leaves to read, and may add to its tables.
    fn in_rounds<'a>(
        snapshot: &'a CollectionSnapshot,
        request: &AggregateRequest,
        guard: &dyn AggregateGuard,
        mut each: impl FnMut(&Shape, &MetaNumbers, &mut Round<'a>) -> Result<()>,
    ) -> Result<Self> {
        let time = request.grouped_times();
        let scan_request = ScanRequest { time, meta: request.meta.clone(), ..ScanRequest::default() };
        let mut walk = DirectoryWalk {
            snapshot,
            segments: snapshot.state.segments.values(),
            scan: BucketSelector::new(snapshot, &scan_request),
            shape: snapshot.shape(request)?,
            by_meta: request.by_meta,
            wanted: request.member_alone().and_then(|path| WantedValues::at(path, snapshot.schema())),
            metas: MetaNumbers::default(),
            times: time.stored(snapshot.schema().precision),
        };
        let mut before: Option<Tables> = None;
        loop {
            let held = before.as_ref().map_or(0, |tables: &Tables| tables.bytes(&walk.shape));
            let mut round = walk.round(held, guard)?;
            each(&walk.shape, &walk.metas, &mut round)?;
            let tables = match before {
                None if round.last => round.tables,
                before => {
                    let mut tables = before.unwrap_or_else(|| Tables::sparse(&walk.shape));
                    tables.merge(&round.tables, None);
                    tables
                }
            };
            if round.last {
                let report = walk.scan.report();
                return Ok(AggregateResult { shape: walk.shape, tables, metas: walk.metas, report });
            }
            before = Some(tables);
        }
    }
}

impl AggregateResult {
    /// The same result with the metas of each group combined.
    fn by_groups_of_metas(self, snapshot: &CollectionSnapshot, groups: &dyn MetaGroups) -> Result<Self> {
        let schema = snapshot.schema();
        let Some(ty) = &schema.meta_type else { return Ok(self) };
        let numbers = groups.group(&column_of_keys(&self.metas.keys, ty, schema.precision))?;
        Error::check_count("MetaGroups::group", numbers.len(), self.metas.keys.len())?;
        if (0..).zip(&numbers).all(|(meta, number)| meta == *number) {
            return Ok(self);
        }
        let mut metas = MetaNumbers::default();
        for (key, number) in self.metas.keys.into_iter().zip(&numbers) {
            if metas.keys.len() == *number as usize {
                metas.keys.push(key);
            }
        }
        if numbers.iter().any(|number| *number as usize >= metas.keys.len()) {
            let what = "MetaGroups::group must number the groups from 0, in the order in which they appear";
            return Err(Error::new(Code::BadValue, what));
        }
        let mut tables = Tables::sparse(&self.shape);
        tables.merge(&self.tables, Some(&numbers));
        Ok(AggregateResult { metas, tables, ..self })
    }
}

impl<'a> DirectoryWalk<'a, '_> {
    fn round(&mut self, held: usize, guard: &dyn AggregateGuard) -> Result<Round<'a>> {
        let mut sealed: Vec<PendingSegment<'a>> = Vec::new();
        let mut open = Vec::new();
        let mut bytes = 0;
        let mut last = true;
        for segment in self.segments.by_ref() {
            let selected = match &mut self.wanted {
                Some(wanted) => self.scan.select_values(segment, wanted)?,
                None => self.scan.select(segment)?,
            };
            let Some((reader, found)) = selected.filter(|(_, found)| !found.is_empty()) else { continue };
            let numbers = match self.by_meta {
                true => numbers_of(&reader, &found, sealed.last(), &mut self.metas),
                false => vec![0; found.len()],
            };
            bytes += reader.directory().memory_bytes() + found.len() * size_of::<SelectedBucket>();
            sealed.push(PendingSegment { segment, reader, found, metas: numbers });
            if bytes > segment.file.directory_bytes_max() / 4 {
                last = false;
                break;
            }
        }
        if last {
            open = self.open()?;
        }
        let times = sealed.iter().flat_map(|rest| rest.found.iter().map(times_of));
        let open_times = open.iter().flat_map(|(chunk, found): &PendingChunk<'_>| {
            found.iter().map(|(bucket, _)| open_times(chunk, *bucket, self.times))
        });
        let span = times.chain(open_times).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (metas, times) = (self.metas.keys.len().max(1), span.unwrap_or((0, 0)));
        let sealed_rows = sealed.iter().flat_map(|rest| &rest.found).map(|found| found.bounds.rows).sum::<u64>();
        let open_rows = open.iter().flat_map(|(_, found): &PendingChunk<'_>| found).map(|(_, rows)| rows.len() as u64);
        let whole = groups::states_bytes(&self.shape, metas, times, sealed_rows + open_rows.sum::<u64>());
        // Each thread has a table of its own, and the result is made from the states.
        if !guard.may_take(whole.saturating_mul(2 + ebbtide_buckets::cores()).saturating_add(held)) {
            return Err(guard::refused());
        }
        let mut tables = Tables::new(&self.shape, metas, times);
        for rest in &mut sealed {
            answer(&self.shape, rest, self.by_meta, &mut tables);
        }
        sealed.retain(|rest| !rest.found.is_empty());
        Ok(Round { tables, rest: sealed, open, last, times: self.times })
    }

    fn open(&mut self) -> Result<Vec<PendingChunk<'a>>> {
        let mut open = Vec::new();
        for chunk in self.snapshot.state.memtable.chunks() {
            let found = match &mut self.wanted {
                Some(wanted) => self.scan.select_open_values(chunk, wanted)?,
                None => self.scan.select_open(chunk)?,
            };
            if self.by_meta {
                for (bucket, _) in &found {
                    self.metas.number(chunk.buckets[*bucket].id.meta.clone());
                }
            }
            if !found.is_empty() {
                open.push((chunk, found));
            }
        }
        Ok(open)
    }
}

impl Round<'_> {
    /// The units of work for what is left to read.
    fn units(&self, shape: &Shape, metas: &MetaNumbers) -> Result<Vec<Unit>> {
        let mut units = Vec::new();
        let bytes_of = |rest: &PendingSegment<'_>| {
            let rows = rest.found.iter().map(|found| found.bounds.rows).sum::<u64>();
            let schema = rest.reader.schema();
            let columns = shape.fields.iter().map(|field| field.name.as_str()).chain([schema.time.as_str()]);
            rows.saturating_mul(rest.reader.cached_row_bytes(columns))
        };
        let bytes = self.rest.iter().map(bytes_of).fold(0, u64::saturating_add);
        let mut share = None;
        for rest in &self.rest {
            let share = share.get_or_insert_with(|| CacheShare::new(bytes, rest.segment.file.cache_room()));
            let reader = match share.takes(bytes_of(rest)) {
                true => rest.reader.clone(),
                false => rest.reader.clone().without_cache(),
            };
            let mut unit = SealedUnit::new(reader.clone());
            for (found, meta) in rest.found.iter().zip(&rest.metas) {
                let rows = rest.segment.live_ranges(&reader, found.ordinal);
                let group = match found.filter {
                    None => shape.group_of(found.bounds.first, found.bounds.last),
                    Some(_) => None,
                };
                let piece = Piece { meta: *meta, filter: found.filter, group, times: times_of(found) };
                for range in rows {
                    // A long bucket is split too, so that several threads can share it.
                    let mut start = range.start;
                    while start < range.end {
                        let end = range.end.min(start + UNIT_ROWS);
                        if unit.rows > 0 && unit.rows + (end - start) > UNIT_ROWS {
                            let full = std::mem::replace(&mut unit, SealedUnit::new(reader.clone()));
                            units.push(Unit::Sealed(full));
                        }
                        unit.push(piece, start..end);
                        start = end;
                    }
                }
            }
            if unit.rows > 0 {
                units.push(Unit::Sealed(unit));
            }
        }
        for (chunk, found) in &self.open {
            let mut unit = OpenUnit::new((*chunk).clone());
            for (bucket, rows) in found {
                let times = open_times(chunk, *bucket, self.times);
                let meta = metas.of(&chunk.buckets[*bucket].id.meta);
                let group = shape.group_of(times.0, times.1);
                unit.push(Piece { meta, filter: None, group, times }, rows);
            }
            units.push(Unit::Open(unit));
        }
        Ok(units)
    }
}

/// Bounds of the times of the selected rows of an open bucket.
fn open_times(chunk: &Chunk, bucket: usize, requested: StoredRange) -> (i64, i64) {
    let bucket = &chunk.buckets[bucket];
    (bucket.first.max(requested.first), bucket.last.min(requested.last))
}

fn times_of(found: &SelectedBucket) -> (i64, i64) {
    match found.filter {
        Some(filter) => filter.bounds(&found.bounds),
        None => (found.bounds.first, found.bounds.last),
    }
}

/// The numbers of the metas of buckets. Consecutive segments often have the same metas, which need no lookup then.
fn numbers_of(
    reader: &SegmentReader,
    found: &[SelectedBucket],
    before: Option<&PendingSegment<'_>>,
    metas: &mut MetaNumbers,
) -> Vec<u32> {
    let before = before.filter(|before| {
        before.found.len() == found.len()
            && before.found.iter().zip(found).all(|(a, b)| a.meta == b.meta)
            && before.reader.directory().same_metas(reader.directory())
    });
    if let Some(before) = before {
        return before.metas.clone();
    }
    let mut numbers = Vec::with_capacity(found.len());
    let mut last = None;
    for bucket in found {
        let number = match last {
            Some((meta, number)) if meta == bucket.meta => number,
            _ => metas.number(reader.directory().meta(bucket.meta)),
        };
        last = Some((bucket.meta, number));
        numbers.push(number);
    }
    numbers
}

/// Moves the buckets that statistics can answer from `rest` into `tables`.
fn answer(shape: &Shape, rest: &mut PendingSegment<'_>, by_meta: bool, tables: &mut Tables) {
    let directory = rest.reader.directory();
    let schema = rest.reader.schema();
    let group = |bucket: &SelectedBucket| match bucket.filter {
        Some(_) => None,
        None => shape.group_of(bucket.bounds.first, bucket.bounds.last),
    };
    if !rest.found.iter().any(|bucket| group(bucket).is_some()) {
        return;
    }
    let source = |field: &FieldShape| match schema.field_type(&field.name) {
        None => Some(Source::Absent),
        Some(_) => directory.stats(&field.name).map(Source::Stats),
    };
    let Some(sources) = shape.fields.iter().map(source).collect::<Option<Vec<_>>>() else { return };
    let own_stats = |source: &Source<'_>| matches!(source, Source::Absent) || directory.stats_per_bucket();
    if sources.iter().all(own_stats) {
        let metas = std::mem::take(&mut rest.metas);
        let found = std::mem::take(&mut rest.found);
        for (bucket, meta) in found.into_iter().zip(metas) {
            let unchanged = sources.is_empty() || rest.segment.is_unchanged(bucket.ordinal);
            match group(&bucket).filter(|_| unchanged) {
                Some(group) => tables.of(meta, group).add_known(meta, group, &bucket.bounds, &sources, bucket.ordinal),
                None => {
                    rest.found.push(bucket);
                    rest.metas.push(meta);
                }
            }
        }
        return;
    }
    // The statistics have one entry for the whole segment.
    let state = &rest.segment.state;
    let untouched = state.dropped.is_empty() && state.changed.is_empty() && state.deleted.is_empty();
    let all = rest.found.len() == directory.bucket_count() && rest.found.iter().all(|bucket| bucket.filter.is_none());
    let one_meta = !by_meta || directory.meta_count() == 1;
    let live = rest.segment.live();
    if untouched
        && all
        && one_meta
        && !shape.edges
        && let Some(group) = shape.group_of(live.first_min, live.last_max)
        && let Some(bucket) = rest.found.first()
    {
        let bounds = crate::segment::bounds::BucketBounds { rows: live.rows, ..bucket.bounds };
        tables.of(rest.metas[0], group).add_known(rest.metas[0], group, &bounds, &sources, 0);
        rest.found.clear();
        rest.metas.clear();
    }
}
