//! A `$group` over measurements, from the engine's aggregates.

use crate::columns::bson_of;
use crate::deadline::{Deadline, KeptDeadline};
use crate::error::Result;
use crate::measurements::{Query, Selection};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::error::ArrowError;
use bson::raw::{CString, RawBson, RawDocumentBuf};
use ebbtide::buckets::{keys_of_column, time_values, value_at};
use ebbtide::{Aggregate, AggregateGuard, AggregateRequest, CollectionSnapshot, MetaGroups, TimeRange, bins_at_end};
use ebbtide_documents::{Figure, FigureValue, GroupPlan, WindowFigures};
use ebbtide_ttl::Precision;
use std::collections::HashMap;
use std::sync::Arc;

/// Into how many parts of time a request is cut whose groups would take more memory than a command may at once.
const PARTS_MAX: u64 = 8;
/// How much further a search for the first groups looks if it has found too few.
const FURTHER: i64 = 64;

/// What a command may take.
pub(crate) struct Limits<'a> {
    pub(crate) now_ms: i64,
    pub(crate) bytes_max: usize,
    pub(crate) deadline: Deadline<'a>,
}

impl AggregateGuard for Limits<'_> {
    fn may_take(&self, bytes: usize) -> bool {
        bytes <= self.bytes_max
    }

    fn may_go_on(&self) -> bool {
        self.deadline.check().is_ok()
    }
}

/// Metas by what the `_id` takes of them, until the command has to end.
#[derive(Debug)]
struct ByKey(GroupPlan, KeptDeadline);

impl MetaGroups for ByKey {
    fn group(&self, metas: &ArrayRef) -> std::result::Result<Vec<u32>, ArrowError> {
        let mut numbers: HashMap<Vec<u8>, u32> = HashMap::new();
        let number = |at: usize| {
            let is_over = || self.1.get().check().is_err();
            let key = self.0.meta_key(bson_of(&value_at(metas.as_ref(), at)), &is_over);
            let key = key.map_err(|error| ArrowError::ComputeError(error.to_string()))?;
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            Ok(*numbers.entry(key).or_insert(next))
        };
        (0..metas.len()).map(number).collect()
    }
}

/// Metas by the value that names lead to.
#[derive(Debug)]
struct ByMember(Vec<String>);

impl MetaGroups for ByMember {
    fn group(&self, metas: &ArrayRef) -> std::result::Result<Vec<u32>, ArrowError> {
        let member = self.0.iter().try_fold(metas, |column, name| {
            column.as_struct_opt().filter(|object| object.null_count() == 0)?.column_by_name(name)
        });
        Ok(match member {
            Some(member) => keys_of_column(Some(member), metas.len()).1,
            None => (0..).zip(0..metas.len()).map(|(number, _)| number).collect(),
        })
    }

    fn member(&self) -> Option<&[String]> {
        Some(self.0.as_slice()).filter(|names| !names.is_empty())
    }
}

/// Documents with nothing but a meta: for each value that a path into the meta has among what a query finds, at least one. Nothing
/// if the path leads elsewhere, or if measurements must be looked at one by one.
pub(crate) fn metas_by(
    snapshot: &CollectionSnapshot,
    query: &Query,
    path: &str,
    limits: &Limits<'_>,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    let Selection { times, meta, is_exact } = query.selection(snapshot);
    let mut names = path.split('.').map(str::to_owned);
    let field = names.next().filter(|name| is_exact && snapshot.schema().meta.as_ref() == Some(name));
    let field = field.and_then(|name| CString::try_from(name).ok());
    let (Some(field), Some(_)) = (field, &snapshot.schema().meta_type) else { return Ok(None) };
    let Some((from, to)) = times.filter(|(from, to)| from <= to) else { return Ok(Some(Vec::new())) };
    let request = AggregateRequest {
        time: TimeRange::of_units(Some(from), Some(to), snapshot.schema().precision),
        meta,
        by_meta: true,
        meta_groups: Some(Arc::new(ByMember(names.collect()))),
        ..AggregateRequest::default()
    };
    let Ok(found) = snapshot.aggregate_guarded(&request, limits) else {
        limits.deadline.check()?;
        return Ok(None);
    };
    let metas = found.groups.column(0);
    let document = |row: usize| {
        let mut document = RawDocumentBuf::new();
        if let Some(meta) = bson_of(&value_at(metas.as_ref(), row)) {
            document.append(field.as_ref(), meta);
        }
        document
    };
    Ok(Some((0..metas.len()).map(document).collect()))
}

/// The aggregate that a figure is; nothing for a field that no measurement has.
fn aggregate_of(snapshot: &CollectionSnapshot, figure: &Figure) -> Option<Aggregate> {
    let is_known = |field: &String| snapshot.schema().fields.iter().any(|(name, _)| name == field);
    if !figure.field().is_none_or(is_known) {
        return None;
    }
    Some(match figure.clone() {
        Figure::Rows => Aggregate::Rows,
        Figure::Count(field) => Aggregate::Count(field),
        Figure::Sum(field) => Aggregate::Sum(field),
        Figure::Min(field) => Aggregate::Min(field),
        Figure::Max(field) => Aggregate::Max(field),
        Figure::First(field) => Aggregate::First(field),
        Figure::Last(field) => Aggregate::Last(field),
    })
}

/// The groups of a plan; nothing if they must be made document by document.
pub(crate) fn grouped(
    snapshot: &CollectionSnapshot,
    query: &Query,
    plan: &GroupPlan,
    limits: &Limits<'_>,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    let Selection { times, meta, is_exact } = query.selection(snapshot);
    if !is_exact {
        return Ok(None);
    }
    let Some((from, to)) = times.filter(|(from, to)| from <= to) else {
        return folded(plan, &[], limits);
    };
    let precision = snapshot.schema().precision;
    let per_ms = match precision {
        Precision::Ms => 1,
        Precision::Us => 1_000,
        Precision::Ns => 1_000_000,
    };
    let aggregates: Vec<Option<Aggregate>> =
        plan.figures().iter().map(|figure| aggregate_of(snapshot, figure)).collect();
    let request = AggregateRequest {
        aggregates: aggregates.iter().flatten().cloned().collect(),
        time: TimeRange::of_units(Some(from), Some(to), precision),
        meta,
        by_meta: plan.by_meta(),
        meta_groups: plan
            .by_meta()
            .then(|| Arc::new(ByKey(plan.clone(), limits.deadline.kept())) as Arc<dyn MetaGroups>),
        width: plan.width_ms().map(|width| Precision::Ms.duration(width)),
        period: None,
        starts: None,
    };
    let width = request.width.and_then(|width| precision.units_in(width));
    let mut bins = plan.first_groups().and_then(|first| i64::try_from(first.count).ok()?.checked_add(1));
    while let (Some(first), Some(width), Some(count)) = (plan.first_groups(), width, bins) {
        let range = bins_at_end((from, to), width, count, first.descending);
        if range == (from, to) {
            break;
        }
        let Some(parts) = in_parts(snapshot, &request, range, 1, &aggregates, limits, per_ms)? else { break };
        // One more than is wanted: the end of the range may cut through the last one.
        match folded(plan, &parts, limits)? {
            Some(groups) if groups.len() as u64 > first.count => return Ok(Some(groups)),
            Some(_) => bins = count.checked_mul(FURTHER),
            None => break,
        }
    }
    // Groups of windows of time need not be in memory at once.
    let parts: &[u64] = if request.width.is_some() { &[1, PARTS_MAX] } else { &[1] };
    for parts in parts {
        if let Some(windows) = in_parts(snapshot, &request, (from, to), *parts, &aggregates, limits, per_ms)? {
            return folded(plan, &windows, limits);
        }
    }
    Ok(None)
}

/// The documents of the groups; nothing if the figures do not determine them.
fn folded(plan: &GroupPlan, windows: &[Part], limits: &Limits<'_>) -> Result<Option<Vec<RawDocumentBuf>>> {
    let groups = plan.fold(windows, limits.now_ms, &|| limits.deadline.check().is_err());
    groups.map_err(|error| limits.deadline.reason(error.into()))
}

/// The windows of a request, asked for in so many parts of its time; nothing if the engine refuses.
fn in_parts(
    snapshot: &CollectionSnapshot,
    request: &AggregateRequest,
    (from, to): (i64, i64),
    parts: u64,
    aggregates: &[Option<Aggregate>],
    limits: &Limits<'_>,
    per_ms: i64,
) -> Result<Option<Vec<Part>>> {
    let precision = snapshot.schema().precision;
    let width = request.width.and_then(|width| precision.units_in(width)).unwrap_or(1).unsigned_abs().max(1);
    // Whole windows, so that none is in two parts.
    let part = (to.abs_diff(from) / parts / width + 1).saturating_mul(width);
    let mut begin = from.div_euclid(width.cast_signed()).saturating_mul(width.cast_signed());
    let mut found = Vec::new();
    while begin <= to {
        let end = if parts == 1 { to } else { begin.saturating_add_unsigned(part - 1).min(to) };
        let request = AggregateRequest {
            time: TimeRange::of_units(Some(begin.max(from)), Some(end), precision),
            ..request.clone()
        };
        // Fields that are no numbers, sums beyond 64 bits and too many groups are refused; so is damage, which is told when the
        // documents are read.
        let Ok(answer) = snapshot.aggregate_guarded(&request, limits) else {
            limits.deadline.check()?;
            return Ok(None);
        };
        found.push(Part::of(&answer.groups, &request, aggregates, per_ms)?);
        let Some(next) = end.checked_add(1) else { break };
        begin = next;
    }
    Ok(Some(found))
}

/// How many measurements a query finds; nothing if they must be looked at one by one.
pub(crate) fn counted(snapshot: &CollectionSnapshot, query: &Query, limits: &Limits<'_>) -> Result<Option<u64>> {
    let Selection { times, meta, is_exact } = query.selection(snapshot);
    if !is_exact {
        return Ok(None);
    }
    let Some((from, to)) = times.filter(|(from, to)| from <= to) else { return Ok(Some(0)) };
    let aggregates = vec![Aggregate::Rows];
    let time = TimeRange::of_units(Some(from), Some(to), snapshot.schema().precision);
    let request = AggregateRequest { aggregates, time, meta, ..AggregateRequest::default() };
    let Ok(found) = snapshot.aggregate_guarded(&request, limits) else {
        limits.deadline.check()?;
        return Ok(None);
    };
    let rows = found.groups.columns().last().filter(|column| !column.is_empty());
    Ok(match rows.map(|column| Figures::of(column).at(0)) {
        Some(Some(FigureValue::Int(rows))) => u64::try_from(rows).ok(),
        _ => Some(0),
    })
}

/// A result of the engine: rows by meta, and those of one meta by time.
struct Part {
    rows: usize,
    starts_ms: Vec<i64>,
    /// The distinct metas, and which one each row has.
    metas: Vec<Option<RawBson>>,
    meta_numbers: Vec<u32>,
    /// Nothing for a field that no measurement has.
    figures: Vec<Option<Figures>>,
}

impl Part {
    fn of(
        groups: &RecordBatch,
        request: &AggregateRequest,
        aggregates: &[Option<Aggregate>],
        per_ms: i64,
    ) -> Result<Part> {
        let rows = groups.num_rows();
        let mut columns = groups.columns().iter();
        let metas = if request.by_meta { columns.next() } else { None };
        let starts = match request.width {
            Some(_) => columns.next().map(time_values).transpose().map_err(ebbtide::Error::from)?,
            None => None,
        };
        let starts_ms = starts.unwrap_or_default().iter().map(|start| start.div_euclid(per_ms)).collect();
        let (_, meta_numbers) = keys_of_column(metas, rows);
        let mut distinct = Vec::new();
        for (row, number) in meta_numbers.iter().enumerate() {
            // They are numbered in the order in which they come.
            if *number as usize == distinct.len() {
                distinct.push(metas.and_then(|metas| bson_of(&value_at(metas.as_ref(), row))));
            }
        }
        let mut figure = || columns.next().map(Figures::of);
        let figures = aggregates.iter().map(|aggregate| aggregate.as_ref().and_then(|_| figure())).collect();
        Ok(Part { rows, starts_ms, metas: distinct, meta_numbers, figures })
    }
}

impl WindowFigures for Part {
    fn count(&self) -> usize {
        self.rows
    }

    fn start_ms(&self, window: usize) -> i64 {
        self.starts_ms.get(window).copied().unwrap_or(0)
    }

    fn meta(&self, window: usize) -> usize {
        self.meta_numbers[window] as usize
    }

    fn metas(&self) -> &[Option<RawBson>] {
        &self.metas
    }

    fn figure(&self, window: usize, figure: usize) -> Option<FigureValue> {
        self.figures.get(figure)?.as_ref()?.at(window)
    }
}

/// A column of figures.
enum Figures {
    Ints(ScalarBuffer<i64>, Option<NullBuffer>),
    Doubles(ScalarBuffer<f64>, Option<NullBuffer>),
    /// Of another type, which no figure has.
    Others,
}

impl Figures {
    fn of(column: &ArrayRef) -> Figures {
        match column.data_type() {
            DataType::Int64 => {
                Figures::Ints(column.as_primitive::<Int64Type>().values().clone(), column.nulls().cloned())
            }
            DataType::Float64 => {
                Figures::Doubles(column.as_primitive::<Float64Type>().values().clone(), column.nulls().cloned())
            }
            _ => Figures::Others,
        }
    }

    fn at(&self, row: usize) -> Option<FigureValue> {
        let is_known = |nulls: &Option<NullBuffer>| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        match self {
            Figures::Ints(ints, nulls) => is_known(nulls).then(|| FigureValue::Int(ints[row])),
            Figures::Doubles(doubles, nulls) => is_known(nulls).then(|| FigureValue::Double(doubles[row])),
            Figures::Others => None,
        }
    }
}
