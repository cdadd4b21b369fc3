//! Aggregates of numeric fields: from the bucket directory where whole buckets fall into one group, from the rows where
//! they do not.
//!
//! What comes out is what a scan of the visible rows gives. Minimum and maximum of doubles are in total order (NaN above
//! infinity, -0.0 below 0.0). Sums of whole numbers are exact. Sums of doubles are those of some order of additions, which
//! may differ from one call to the next; values that a segment stores as decimals are summed exactly before rounding.

mod fold;
mod groups;

use super::CollectionSnapshot;
use super::scan::{Found, MetaFilter, Scan, ScanReport, ScanRequest, ScanUnit, open_unit, units_of};
use crate::error::{Error, Result};
use crate::segment::Segment;
use arrow::array::RecordBatch;
use ebbtide_buckets::{Chunk, FieldStats, FieldType, MetaKey, SegmentReader};
use ebbtide_ttl::Code;
use fold::{OpenUnit, Piece, SealedUnit, Unit};
use groups::{FieldShape, Shape, Table};
use std::borrow::Cow;
use std::collections::HashMap;
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
    /// Width of the groups in time, in units, aligned to the epoch; more than 0. All times are one group if `None`.
    pub width: Option<i64>,
}

/// What [`CollectionSnapshot::aggregate_known`] gives.
#[derive(Debug, Clone)]
pub struct KnownAggregate {
    /// The known part, in the columns of [`CollectionSnapshot::aggregate`].
    pub groups: RecordBatch,
    /// Buckets that the known part is of.
    pub buckets: u64,
    /// Scan of the measurements that are in no such bucket.
    pub rest: Vec<ScanUnit>,
    /// What that scan left out; the buckets of the known part are not in it.
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
        let mut gathered = Gathered::walk(self, request)?;
        let units = gathered.units()?;
        fold::fold_all(&gathered.shape, &units, &mut gathered.table)?;
        gathered.table.finish(self, request, &gathered.shape, &gathered.metas)
    }

    /// The part of [`CollectionSnapshot::aggregate`] that is known without reading measurements, and a scan of the rest:
    /// for query engines, which merge the two. The scan has the columns of `projection`. A group may be in both.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::aggregate`] and [`CollectionSnapshot::scan`].
    pub fn aggregate_known(&self, request: &AggregateRequest, projection: &[String]) -> Result<KnownAggregate> {
        self.check_columns(projection)?;
        let gathered = Gathered::walk(self, request)?;
        let columns = Arc::new(projection.to_vec());
        let mut units = Vec::new();
        for rest in &gathered.rest {
            units.extend(units_of(rest.segment, &rest.reader, rest.found.iter(), &columns, &self.state.schema));
        }
        for (chunk, found) in &gathered.open {
            let rows = found.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
            units.push(open_unit(chunk, rows, &columns, &self.state.schema));
        }
        let left = gathered.rest.iter().map(|rest| rest.found.len()).sum::<usize>()
            + gathered.open.iter().map(|(_, found)| found.len()).sum::<usize>();
        let mut report = gathered.report;
        let buckets = report.buckets.saturating_sub(left as u64);
        report.buckets = left as u64;
        report.segments = gathered.rest.len() as u64;
        let groups = gathered.table.finish(self, request, &gathered.shape, &gathered.metas)?;
        Ok(KnownAggregate { groups, buckets, rest: units, report })
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
    found: Vec<Found>,
    /// For each of them the number of its meta among those of the answer.
    metas: Vec<u32>,
}

/// The wanted buckets of a chunk, each with its rows.
type OpenRest<'a> = (&'a Arc<Chunk>, Vec<(usize, Cow<'a, [u32]>)>);

/// What the directories answer, and what is left to read.
struct Gathered<'a> {
    shape: Shape,
    by_meta: bool,
    table: Table,
    metas: Metas,
    rest: Vec<Rest<'a>>,
    open: Vec<OpenRest<'a>>,
    /// Of all that is wanted.
    report: ScanReport,
}

/// The metas of the answer in order of appearance.
#[derive(Default)]
struct Metas {
    keys: Vec<MetaKey>,
    numbers: HashMap<MetaKey, u32, ahash::RandomState>,
}

impl Metas {
    fn number(&mut self, key: MetaKey) -> u32 {
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        match self.numbers.entry(key) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                self.keys.push(new.key().clone());
                *new.insert(next)
            }
        }
    }
}

impl<'a> Gathered<'a> {
    fn walk(snapshot: &'a CollectionSnapshot, request: &AggregateRequest) -> Result<Self> {
        let shape = snapshot.shape(request)?;
        let scan_request = ScanRequest { time: request.time, meta: request.meta.clone(), ..ScanRequest::default() };
        let mut scan = Scan::new(snapshot, &scan_request);
        let mut metas = Metas::default();
        let mut sealed: Vec<Rest<'a>> = Vec::new();
        for segment in snapshot.state.segments.values() {
            let Some((reader, found)) = scan.found(segment)?.filter(|(_, found)| !found.is_empty()) else { continue };
            let numbers = match request.by_meta {
                true => numbers_of(&reader, &found, sealed.last(), &mut metas),
                false => vec![0; found.len()],
            };
            sealed.push(Rest { segment, reader, found, metas: numbers });
        }
        let mut open = Vec::new();
        for chunk in snapshot.state.memtable.chunks() {
            let found = scan.found_open(chunk)?;
            if request.by_meta {
                for (bucket, _) in &found {
                    metas.number(chunk.buckets[*bucket].id.meta.clone());
                }
            }
            if !found.is_empty() {
                open.push((chunk, found));
            }
        }
        let report = scan.report();
        let times = sealed.iter().flat_map(|rest| rest.found.iter().map(times_of));
        let open_times = open.iter().flat_map(|(chunk, found): &OpenRest<'_>| {
            found.iter().map(|(bucket, _)| (chunk.buckets[*bucket].first, chunk.buckets[*bucket].last))
        });
        let bounds = times.chain(open_times).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let mut table = Table::new(&shape, metas.keys.len().max(1), bounds.unwrap_or((0, 0)));
        for rest in &mut sealed {
            answer(&shape, rest, request.by_meta, &mut table);
        }
        sealed.retain(|rest| !rest.found.is_empty());
        Ok(Gathered { shape, by_meta: request.by_meta, table, metas, rest: sealed, open, report })
    }

    /// The work that is left.
    fn units(&mut self) -> Result<Vec<Unit>> {
        let mut units = Vec::new();
        for rest in &self.rest {
            let mut unit = SealedUnit::new(rest.reader.clone());
            for (found, meta) in rest.found.iter().zip(&rest.metas) {
                let mut rows = Vec::new();
                let of_bucket = rest.reader.directory().rows(found.ordinal);
                crate::seal::push_without(&mut rows, of_bucket, &rest.segment.state.deleted);
                let group = match found.check {
                    None => self.shape.group_of(found.brief.first, found.brief.last),
                    Some(_) => None,
                };
                let piece = Piece { meta: *meta, kept: found.check.map(|c| c.0), group, times: times_of(found) };
                for range in rows {
                    // A long bucket is cut too, so that threads share it.
                    let mut start = range.start;
                    while start < range.end {
                        let end = range.end.min(start + UNIT_ROWS);
                        if unit.rows > 0 && unit.rows + (end - start) > UNIT_ROWS {
                            let full = std::mem::replace(&mut unit, SealedUnit::new(rest.reader.clone()));
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
                let meta = if self.by_meta { self.metas.number(bucket.id.meta.clone()) } else { 0 };
                let times = (bucket.first, bucket.last);
                let group = self.shape.group_of(bucket.first, bucket.last);
                unit.push(Piece { meta, kept: None, group, times }, rows);
            }
            units.push(Unit::Open(unit));
        }
        Ok(units)
    }
}

fn times_of(found: &Found) -> (i64, i64) {
    match found.check {
        Some(((from, to), _)) => (found.brief.first.max(from), found.brief.last.min(to)),
        None => (found.brief.first, found.brief.last),
    }
}

/// The numbers of the metas of buckets. Segments of the same metas are frequent: then they need not be looked up.
fn numbers_of(reader: &SegmentReader, found: &[Found], before: Option<&Rest<'_>>, metas: &mut Metas) -> Vec<u32> {
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
    let group = |bucket: &Found| match bucket.check {
        Some(_) => None,
        None => shape.group_of(bucket.brief.first, bucket.brief.last),
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
                Some(group) => table.add_known(meta, group, &bucket.brief, &sources, bucket.ordinal),
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
    let all = rest.found.len() == directory.bucket_count() && rest.found.iter().all(|bucket| bucket.check.is_none());
    let one_meta = !by_meta || directory.meta_count() == 1;
    let live = rest.segment.live();
    if untouched
        && all
        && one_meta
        && !shape.edges
        && let Some(group) = shape.group_of(live.first_min, live.last_max)
        && let Some(bucket) = rest.found.first()
    {
        let brief = crate::segment::Brief { rows: live.rows, ..bucket.brief };
        table.add_known(rest.metas.first().copied().unwrap_or(0), group, &brief, &sources, 0);
        rest.found.clear();
        rest.metas.clear();
    }
}
