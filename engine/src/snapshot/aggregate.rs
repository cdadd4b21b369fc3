//! Aggregates of numeric fields: from the bucket directory where whole buckets fall into one group, from the rows where
//! they do not.
//!
//! What comes out is what a scan of the visible rows gives. Minimum and maximum of doubles are in total order (NaN above
//! infinity, -0.0 below 0.0). Sums of whole numbers are exact. Sums of doubles are those of some order of additions, which
//! may differ from one call to the next; values that a segment stores as decimals are summed exactly before rounding.

mod fold;
mod groups;
mod guard;

pub use guard::AggregateGuard;

use super::CollectionSnapshot;
use super::scan::{MetaFilter, Scan, ScanReport, ScanRequest, SelectedBucket};
use crate::error::{Error, Result};
use crate::segment::Segment;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::error::ArrowError;
use ebbtide_buckets::{Chunk, FieldStats, FieldType, MetaKey, SegmentReader, column_of_keys, to_number};
use ebbtide_ttl::Code;
use fold::{OpenUnit, Piece, SealedUnit, Unit};
use groups::{FieldShape, Shape, Table};
use std::borrow::Cow;
use std::collections::{HashMap, btree_map};
use std::fmt;
use std::sync::Arc;

/// Rows of a piece of work that a thread takes.
const UNIT_ROWS: u64 = 1 << 16;

/// What to compute of a numeric field that the collection has at the top level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aggregate {
    /// Measurements, an int64.
    Rows,
    /// Values that are not null, an int64.
    Count(String),
    /// The sum in the field's type; null of nothing.
    Sum(String),
    /// The mean, a double; null of nothing.
    Avg(String),
    /// The least value.
    Min(String),
    /// The greatest value.
    Max(String),
    /// The value of the measurement with the least time, null if it has none. Of several at that time it is one.
    First(String),
    /// The value of the measurement with the greatest time, likewise.
    Last(String),
}

impl Aggregate {
    fn field(&self) -> Option<&str> {
        match self {
            Aggregate::Rows => None,
            Aggregate::Count(f) | Aggregate::Sum(f) | Aggregate::Avg(f) | Aggregate::Min(f) => Some(f),
            Aggregate::Max(f) | Aggregate::First(f) | Aggregate::Last(f) => Some(f),
        }
    }

    /// The name of its column: `max(temp)`, and `count(*)` for [`Aggregate::Rows`].
    #[must_use]
    pub fn name(&self) -> String {
        let function = match self {
            Aggregate::Rows => return "count(*)".to_owned(),
            Aggregate::Count(_) => "count",
            Aggregate::Sum(_) => "sum",
            Aggregate::Avg(_) => "avg",
            Aggregate::Min(_) => "min",
            Aggregate::Max(_) => "max",
            Aggregate::First(_) => "first",
            Aggregate::Last(_) => "last",
        };
        format!("{function}({})", self.field().unwrap_or_default())
    }
}

/// What to aggregate, over which measurements, in which groups.
#[derive(Debug, Clone, Default)]
pub struct AggregateRequest {
    /// The columns of the answer, behind those of the group.
    pub aggregates: Vec<Aggregate>,
    /// First and last instant that are wanted, both inclusive, in units of the collection's precision.
    pub time: (Option<i64>, Option<i64>),
    /// Metas that are wanted.
    pub meta: Option<Arc<dyn MetaFilter>>,
    /// Whether each meta is a group of its own.
    pub by_meta: bool,
    /// With `by_meta`: which metas are one group. The answer names one meta of each group.
    pub meta_groups: Option<Arc<dyn MetaGroups>>,
    /// Width of the groups in time, in units, aligned to the epoch; more than 0. All times are one group if `None`.
    pub width: Option<i64>,
}

/// Puts metas into groups: by a member of the meta, or by anything else that is computed of it.
pub trait MetaGroups: fmt::Debug + Send + Sync {
    /// The number of each meta's group. `metas` is a column of the meta field without repetitions; groups are numbered
    /// from 0 in the order in which they appear.
    ///
    /// # Errors
    /// Whatever goes wrong; the aggregation fails with it.
    fn group(&self, metas: &ArrayRef) -> Result<Vec<u32>, ArrowError>;
}

/// What [`CollectionSnapshot::aggregate_guarded`] gives.
#[derive(Debug, Clone)]
pub struct Aggregated {
    /// The columns of [`CollectionSnapshot::aggregate`].
    pub groups: RecordBatch,
    /// Buckets that were answered by their directory.
    pub known: u64,
    /// What was read beside them, and all that was left out.
    pub report: ScanReport,
}

impl CollectionSnapshot {
    /// Aggregates the measurements that are visible at [`CollectionSnapshot::now`]: one row a group, sorted by meta and
    /// time, with the meta (if they are told apart), the start of the group in time (if there is a width), and the
    /// aggregates in the order in which they were asked for. Without groups there is one row, also of nothing.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a field that does not exist or is not numeric, a width below 1, or a sum of whole numbers
    /// that an int64 does not hold; damage in a segment.
    pub fn aggregate(&self, request: &AggregateRequest) -> Result<RecordBatch> {
        Ok(self.aggregate_guarded(request, &())?.groups)
    }

    /// [`CollectionSnapshot::aggregate`] for as long as a guard lets it.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::aggregate`]; [`Code::Interrupted`] where the guard said no.
    pub fn aggregate_guarded(&self, request: &AggregateRequest, guard: &dyn AggregateGuard) -> Result<Aggregated> {
        let (mut left, mut segments) = (0, 0);
        let all = Gathered::in_rounds(self, request, guard, |shape, metas, round| {
            left += round.rest.iter().map(|rest| rest.found.len()).sum::<usize>();
            left += round.open.iter().map(|(_, found)| found.len()).sum::<usize>();
            segments += round.rest.len() as u64;
            let units = round.units(shape, metas)?;
            fold::fold_all(shape, &units, &mut round.table, guard)
        })?;
        let all = match &request.meta_groups {
            Some(groups) if request.by_meta => all.by_groups_of_metas(self, groups.as_ref())?,
            _ => all,
        };
        let (mut report, left) = (all.report, left as u64);
        let known = report.buckets.saturating_sub(left);
        (report.buckets, report.segments) = (left, segments);
        report.rows_hidden += all.table.hidden;
        let groups = all.table.finish(self, request, &all.shape, &all.metas)?;
        Ok(Aggregated { groups, known, report })
    }

    /// First and last time of what is stored, whether it is visible or not. What was deleted may count.
    #[must_use]
    pub fn stored_times(&self) -> Option<(i64, i64)> {
        let sealed = self.state.segments.values().map(|segment| segment.live());
        let sealed = sealed.filter(|live| live.buckets > 0).map(|live| (live.first_min, live.last_max));
        let open = self.state.memtable.chunks().flat_map(|chunk| &chunk.buckets).map(|b| (b.first, b.last));
        sealed.chain(open).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    fn shape(&self, request: &AggregateRequest) -> Result<Shape> {
        let bad = |what: String| Err(Error::new(Code::BadValue, what));
        if request.width.is_some_and(|width| width < 1) {
            return bad(format!("the width of groups is {}, it must be at least 1", request.width.unwrap_or(0)));
        }
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
        Ok(Shape { fields, width: request.width, edges })
    }
}

/// Wanted buckets of a segment.
struct Rest<'a> {
    segment: &'a Arc<Segment>,
    reader: SegmentReader,
    found: Vec<SelectedBucket>,
    /// For each of them the number of its meta among those of the answer.
    metas: Vec<u32>,
}

/// The wanted buckets of a chunk, each with its rows.
type OpenRest<'a> = (&'a Arc<Chunk>, Vec<(usize, Cow<'a, [u32]>)>);

/// What came of all rounds.
struct Gathered {
    shape: Shape,
    table: Table,
    metas: Metas,
    /// Of all that is wanted.
    report: ScanReport,
}

/// The way through the segments.
struct Walk<'a, 's> {
    snapshot: &'a CollectionSnapshot,
    segments: btree_map::Values<'a, u64, Arc<Segment>>,
    scan: Scan<'s>,
    shape: Shape,
    by_meta: bool,
    metas: Metas,
}

/// Some of the segments, so that not all of their directories are in memory at a time: what these answer, and what is
/// left to read of them.
struct Round<'a> {
    table: Table,
    rest: Vec<Rest<'a>>,
    open: Vec<OpenRest<'a>>,
    /// Whether nothing comes behind it.
    last: bool,
}

/// The metas of the answer in order of appearance.
#[derive(Default)]
struct Metas {
    keys: Vec<MetaKey>,
    numbers: HashMap<MetaKey, u32, ahash::RandomState>,
}

impl Metas {
    /// The number of a meta; 0 if metas are not told apart.
    fn of(&self, key: &MetaKey) -> u32 {
        self.numbers.get(key).copied().unwrap_or(0)
    }

    fn number(&mut self, key: MetaKey) -> u32 {
        let next = to_number(self.keys.len());
        match self.numbers.entry(key) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                self.keys.push(new.key().clone());
                *new.insert(next)
            }
        }
    }
}

impl Gathered {
    /// Walks through all there is; `each` makes use of what a round leaves to read, and may add to its table.
    fn in_rounds<'a>(
        snapshot: &'a CollectionSnapshot,
        request: &AggregateRequest,
        guard: &dyn AggregateGuard,
        mut each: impl FnMut(&Shape, &Metas, &mut Round<'a>) -> Result<()>,
    ) -> Result<Self> {
        let scan_request = ScanRequest { time: request.time, meta: request.meta.clone(), ..ScanRequest::default() };
        let mut walk = Walk {
            snapshot,
            segments: snapshot.state.segments.values(),
            scan: Scan::new(snapshot, &scan_request),
            shape: snapshot.shape(request)?,
            by_meta: request.by_meta,
            metas: Metas::default(),
        };
        let mut before: Option<Table> = None;
        loop {
            let held = before.as_ref().map_or(0, |table: &Table| table.bytes(&walk.shape));
            let mut round = walk.round(held, guard)?;
            each(&walk.shape, &walk.metas, &mut round)?;
            let table = match before {
                None if round.last => round.table,
                before => {
                    let mut table = before.unwrap_or_else(|| Table::sparse(&walk.shape));
                    table.merge(&round.table, None);
                    table
                }
            };
            if round.last {
                let report = walk.scan.report();
                return Ok(Gathered { shape: walk.shape, table, metas: walk.metas, report });
            }
            before = Some(table);
        }
    }
}

impl Gathered {
    /// The same with the metas of each group taken together.
    fn by_groups_of_metas(self, snapshot: &CollectionSnapshot, groups: &dyn MetaGroups) -> Result<Self> {
        let schema = snapshot.schema();
        let Some(ty) = &schema.meta_type else { return Ok(self) };
        let numbers = groups.group(&column_of_keys(&self.metas.keys, ty, schema.precision))?;
        let mut metas = Metas::default();
        for (key, number) in self.metas.keys.into_iter().zip(&numbers) {
            if metas.keys.len() == *number as usize {
                metas.keys.push(key);
            }
        }
        if numbers.iter().any(|number| *number as usize >= metas.keys.len()) {
            return Err(Error::internal("groups of metas are not numbered in the order of their appearance"));
        }
        let mut table = Table::sparse(&self.shape);
        table.merge(&self.table, Some(&numbers));
        Ok(Gathered { metas, table, ..self })
    }
}

impl<'a> Walk<'a, '_> {
    fn round(&mut self, held: usize, guard: &dyn AggregateGuard) -> Result<Round<'a>> {
        let mut sealed: Vec<Rest<'a>> = Vec::new();
        let mut open = Vec::new();
        let mut bytes = 0;
        let mut last = true;
        for segment in self.segments.by_ref() {
            let Some((reader, found)) = self.scan.found(segment)?.filter(|(_, found)| !found.is_empty()) else {
                continue;
            };
            let numbers = match self.by_meta {
                true => numbers_of(&reader, &found, sealed.last(), &mut self.metas),
                false => vec![0; found.len()],
            };
            bytes += reader.directory().memory_bytes() + found.len() * size_of::<SelectedBucket>();
            sealed.push(Rest { segment, reader, found, metas: numbers });
            if bytes > segment.file.directory_bytes_max() / 4 {
                last = false;
                break;
            }
        }
        if last {
            open = self.open()?;
        }
        let times = sealed.iter().flat_map(|rest| rest.found.iter().map(times_of));
        let open_times = open.iter().flat_map(|(chunk, found): &OpenRest<'_>| {
            found.iter().map(|(bucket, _)| (chunk.buckets[*bucket].first, chunk.buckets[*bucket].last))
        });
        let span = times.chain(open_times).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (metas, times) = (self.metas.keys.len().max(1), span.unwrap_or((0, 0)));
        let sealed_rows = sealed.iter().flat_map(|rest| &rest.found).map(|found| found.bounds.rows).sum::<u64>();
        let open_rows = open.iter().flat_map(|(_, found): &OpenRest<'_>| found).map(|(_, rows)| rows.len() as u64);
        let whole = groups::states_bytes(&self.shape, metas, times, sealed_rows + open_rows.sum::<u64>());
        // Each thread has a table of its own, and the answer is made of the states.
        if !guard.may_take(whole.saturating_mul(2 + fold::cores()).saturating_add(held)) {
            return Err(guard::refused());
        }
        let mut table = Table::new(&self.shape, metas, times);
        for rest in &mut sealed {
            answer(&self.shape, rest, self.by_meta, &mut table);
        }
        sealed.retain(|rest| !rest.found.is_empty());
        Ok(Round { table, rest: sealed, open, last })
    }

    fn open(&mut self) -> Result<Vec<OpenRest<'a>>> {
        let mut open = Vec::new();
        for chunk in self.snapshot.state.memtable.chunks() {
            let found = self.scan.found_open(chunk)?;
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
    /// The work that it leaves.
    fn units(&self, shape: &Shape, metas: &Metas) -> Result<Vec<Unit>> {
        let mut units = Vec::new();
        let rows: u64 = self.rest.iter().flat_map(|rest| &rest.found).map(|found| found.bounds.rows).sum();
        for rest in &self.rest {
            let reader = match rest.segment.file.cache_holds(rows, shape.fields.len() + 1) {
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
                    // A long bucket is cut too, so that threads share it.
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
                let bucket = &chunk.buckets[*bucket];
                let meta = metas.of(&bucket.id.meta);
                let times = (bucket.first, bucket.last);
                let group = shape.group_of(bucket.first, bucket.last);
                unit.push(Piece { meta, filter: None, group, times }, rows);
            }
            units.push(Unit::Open(unit));
        }
        Ok(units)
    }
}

fn times_of(found: &SelectedBucket) -> (i64, i64) {
    match found.filter {
        Some(filter) => filter.bounds(&found.bounds),
        None => (found.bounds.first, found.bounds.last),
    }
}

/// The numbers of the metas of buckets. Segments of the same metas are frequent: then they need not be looked up.
fn numbers_of(
    reader: &SegmentReader,
    found: &[SelectedBucket],
    before: Option<&Rest<'_>>,
    metas: &mut Metas,
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

/// Where a field's part of an answer comes from.
enum Source<'a> {
    /// The segment has no such field: nulls.
    Absent,
    Stats(&'a FieldStats),
}

/// Takes the buckets whose statistics answer for them out of `rest` and into `table`.
fn answer(shape: &Shape, rest: &mut Rest<'_>, by_meta: bool, table: &mut Table) {
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
                Some(group) => table.add_known(meta, group, &bucket.bounds, &sources, bucket.ordinal),
                None => {
                    rest.found.push(bucket);
                    rest.metas.push(meta);
                }
            }
        }
        return;
    }
    // One entry for all of the segment.
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
        table.add_known(rest.metas[0], group, &bounds, &sources, 0);
        rest.found.clear();
        rest.metas.clear();
    }
}
