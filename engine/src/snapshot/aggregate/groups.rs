//! Groups and their states.

use super::request::{Aggregate, AggregateRequest};
use crate::error::{Error, Result};
use crate::segment::bounds::BucketBounds;
use crate::snapshot::CollectionSnapshot;
use crate::snapshot::meta_numbers::MetaNumbers;
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use ebbtide_buckets::{
    DoubleAccumulator, FieldStats, FieldType, IntAccumulator, Numbers, column_of_keys, to_number, to_usize,
};
use ebbtide_ttl::Code;
use std::collections::HashMap;
use std::sync::Arc;

/// Up to this number of states, every meta and every group in time has one; above it, only those that occur.
const DENSE_STATES_MAX: usize = 1 << 22;

/// The source of a field's part of an answer.
pub(super) enum Source<'a> {
    /// The segment has no such field: nulls.
    Absent,
    Stats(&'a FieldStats),
}

/// A field that is aggregated.
pub(super) struct FieldShape {
    pub(super) name: String,
    /// Whether it holds whole numbers.
    pub(super) int: bool,
}

/// What is aggregated, and in which groups in time.
pub(super) struct Shape {
    pub(super) fields: Vec<FieldShape>,
    pub(super) width: Option<i64>,
    /// Whether first or last values are requested.
    pub(super) edges: bool,
}

impl Shape {
    /// The number of the group that a time is in.
    pub(super) fn group(&self, t: i64) -> i64 {
        self.width.map_or(0, |width| t.div_euclid(width))
    }

    /// The number of the one group that all times of a range are in.
    pub(super) fn group_of(&self, first: i64, last: i64) -> Option<i64> {
        let group = self.group(first);
        (group == self.group(last)).then_some(group)
    }
}

/// The states of one field, one for each group.
pub(super) enum State {
    Int(Vec<IntAccumulator>),
    Double(Vec<DoubleAccumulator>),
}

/// A time and the bits of the value that a row has there.
type At = (i64, Option<u64>);

/// The values of the first and the last row of a group.
#[derive(Clone, Copy, Default)]
pub(super) struct FirstLast {
    first: Option<At>,
    last: Option<At>,
}

impl FirstLast {
    pub(super) fn add(&mut self, first: At, last: At) {
        if self.first.is_none_or(|known| first.0 < known.0) {
            self.first = Some(first);
        }
        if self.last.is_none_or(|known| last.0 >= known.0) {
            self.last = Some(last);
        }
    }
}

/// Groups by number of the meta and number of the group in time.
enum Slots {
    Dense { base: i64, span: usize },
    Sparse { numbers: HashMap<(u32, i64), u32, ahash::RandomState>, keys: Vec<(u32, i64)> },
}

/// All groups.
pub(super) struct Table {
    slots: Slots,
    pub(super) rows: Vec<u64>,
    pub(super) states: Vec<State>,
    /// By field; empty unless they are requested.
    pub(super) edges: Vec<Vec<FirstLast>>,
    wants_edges: bool,
    /// Rows that were skipped because they are expired.
    pub(super) hidden: u64,
}

/// An upper estimate of the memory for the states of these groups, in bytes.
pub(super) fn states_bytes(shape: &Shape, metas: usize, times: (i64, i64), rows: u64) -> usize {
    let (base, end) = (shape.group(times.0), shape.group(times.1));
    let span = usize::try_from(end.saturating_sub(base)).unwrap_or(usize::MAX).saturating_add(1);
    let all = span.saturating_mul(metas);
    let dense = all.saturating_mul(shape.fields.len() + 1) <= DENSE_STATES_MAX;
    match dense {
        true => all.saturating_mul(group_bytes(shape)),
        false => all.min(to_usize(rows)).saturating_mul(sparse_bytes(shape)),
    }
}

/// Bytes of a group in a sparse table: its key is stored twice, and growing collections hold room for as many again.
fn sparse_bytes(shape: &Shape) -> usize {
    2 * (group_bytes(shape) + 2 * size_of::<((u32, i64), u32)>())
}

fn group_bytes(shape: &Shape) -> usize {
    let edges = if shape.edges { size_of::<FirstLast>() } else { 0 };
    let state = size_of::<DoubleAccumulator>().max(size_of::<IntAccumulator>());
    size_of::<u64>() + shape.fields.len() * (state + edges)
}

impl Table {
    /// A table for this number of metas and for times in this range, both ends included.
    pub(super) fn new(shape: &Shape, metas: usize, times: (i64, i64)) -> Self {
        let (base, end) = (shape.group(times.0), shape.group(times.1));
        let span = usize::try_from(end.saturating_sub(base)).unwrap_or(usize::MAX).saturating_add(1);
        let states = span.saturating_mul(metas).saturating_mul(shape.fields.len() + 1);
        match states <= DENSE_STATES_MAX {
            true => Self::with(shape, Slots::Dense { base, span }, span * metas),
            false => Self::sparse(shape),
        }
    }

    /// A table for any metas and times.
    pub(super) fn sparse(shape: &Shape) -> Self {
        Self::with(shape, Slots::Sparse { numbers: HashMap::default(), keys: Vec::new() }, 0)
    }

    fn with(shape: &Shape, slots: Slots, count: usize) -> Self {
        let state = |field: &FieldShape| match field.int {
            true => State::Int(vec![IntAccumulator::default(); count]),
            false => State::Double(vec![DoubleAccumulator::default(); count]),
        };
        Table {
            slots,
            rows: vec![0; count],
            states: shape.fields.iter().map(state).collect(),
            edges: shape
                .fields
                .iter()
                .map(|_| vec![FirstLast::default(); if shape.edges { count } else { 0 }])
                .collect(),
            wants_edges: shape.edges,
            hidden: 0,
        }
    }

    /// The slot of a group.
    pub(super) fn slot(&mut self, meta: u32, group: i64) -> u32 {
        match &mut self.slots {
            Slots::Dense { base, span } => {
                let at = group.checked_sub(*base).and_then(|at| usize::try_from(at).ok()).filter(|at| at < span);
                let at = at.expect("a dense table has a slot for every group between its bounds");
                to_number(meta as usize * *span + at)
            }
            Slots::Sparse { numbers, keys } => {
                let next = to_number(keys.len());
                let number = *numbers.entry((meta, group)).or_insert(next);
                if number == next {
                    keys.push((meta, group));
                    self.rows.push(0);
                    for state in &mut self.states {
                        match state {
                            State::Int(states) => states.push(IntAccumulator::default()),
                            State::Double(states) => states.push(DoubleAccumulator::default()),
                        }
                    }
                    if self.wants_edges {
                        self.edges.iter_mut().for_each(|edges| edges.push(FirstLast::default()));
                    }
                }
                number
            }
        }
    }

    /// The numbers of the meta and of the group in time of a slot.
    fn key(&self, slot: usize) -> (u32, i64) {
        match &self.slots {
            Slots::Dense { base, span } => (to_number(slot / span), *base + i64::from(to_number(slot % span))),
            Slots::Sparse { keys, .. } => keys[slot],
        }
    }

    /// Adds a bucket by its statistics.
    pub(super) fn add_known(
        &mut self,
        meta: u32,
        group: i64,
        bounds: &BucketBounds,
        sources: &[Source<'_>],
        entry: usize,
    ) {
        let slot = self.slot(meta, group) as usize;
        self.rows[slot] += bounds.rows;
        for (at, source) in sources.iter().enumerate() {
            let stats = match source {
                Source::Absent => None,
                Source::Stats(stats) => Some(*stats),
            };
            match (&mut self.states[at], stats) {
                (State::Int(states), Some(stats)) => stats.ints(entry).iter().for_each(|t| states[slot].merge(t)),
                (State::Double(states), Some(stats)) => stats.doubles(entry).iter().for_each(|t| states[slot].merge(t)),
                (_, None) => {}
            }
            if self.wants_edges {
                let int = matches!(self.states[at], State::Int(_));
                let bits = |numbers: &Numbers, valid: &[bool]| match numbers {
                    _ if !valid.get(entry).copied().unwrap_or(false) => None,
                    Numbers::Int(values) if int => values.get(entry).map(|v| v.cast_unsigned()),
                    numbers => numbers.double(entry).map(f64::to_bits),
                };
                let first = stats.and_then(|stats| bits(&stats.first, &stats.first_valid));
                let last = stats.and_then(|stats| bits(&stats.last, &stats.last_valid));
                self.edges[at][slot].add((bounds.first, first), (bounds.last, last));
            }
        }
    }

    /// An estimate of the memory of its states, in bytes.
    pub(super) fn bytes(&self, shape: &Shape) -> usize {
        self.rows.len() * sparse_bytes(shape)
    }

    /// Adds the groups of another table. `numbers` maps its numbers of metas to those of this table; `None` if they are equal.
    pub(super) fn merge(&mut self, part: &Table, metas: Option<&[u32]>) {
        self.hidden += part.hidden;
        for from in (0..part.rows.len()).filter(|slot| part.rows[*slot] > 0) {
            let (meta, group) = part.key(from);
            let meta = metas.map_or(meta, |metas| metas[meta as usize]);
            let into = self.slot(meta, group) as usize;
            self.rows[into] += part.rows[from];
            for (state, other) in self.states.iter_mut().zip(&part.states) {
                match (state, other) {
                    (State::Int(states), State::Int(others)) => states[into].merge(&others[from]),
                    (State::Double(states), State::Double(others)) => states[into].merge(&others[from]),
                    _ => {}
                }
            }
            for (edges, others) in self.edges.iter_mut().zip(&part.edges).filter(|_| self.wants_edges) {
                if let FirstLast { first: Some(first), last: Some(last) } = others[from] {
                    edges[into].add(first, last);
                }
            }
        }
    }

    /// The answer: groups sorted by meta and time.
    pub(super) fn finish(
        mut self,
        snapshot: &CollectionSnapshot,
        request: &AggregateRequest,
        shape: &Shape,
        metas: &MetaNumbers,
    ) -> Result<RecordBatch> {
        if !request.by_meta && shape.width.is_none() {
            self.slot(0, 0); // One row even if nothing was aggregated.
        }
        let mut order: Vec<u32> = (0..metas.keys.len()).filter_map(|meta| u32::try_from(meta).ok()).collect();
        order.sort_unstable_by(|a, b| metas.keys[*a as usize].cmp(&metas.keys[*b as usize]));
        let mut ranks: Vec<u32> = vec![0; metas.keys.len().max(1)];
        (0..).zip(&order).for_each(|(rank, meta)| ranks[*meta as usize] = rank);
        let one = !request.by_meta && shape.width.is_none();
        let occupied = (0..self.rows.len()).filter(|slot| one || self.rows[*slot] > 0);
        let mut groups: Vec<(u32, i64, usize)> = occupied
            .map(|slot| {
                let (meta, group) = self.key(slot);
                (ranks[meta as usize], group, slot)
            })
            .collect();
        groups.sort_unstable();

        let schema = snapshot.schema();
        let mut fields = Vec::new();
        let mut columns: Vec<ArrayRef> = Vec::new();
        if let Some(name) = schema.meta.as_ref().filter(|_| request.by_meta) {
            let column = match &schema.meta_type {
                Some(ty) => {
                    let keys: Vec<_> = groups.iter().map(|(rank, ..)| order[*rank as usize] as usize).collect();
                    meta_column(metas, &keys, ty, schema.precision)?
                }
                None => new_null_array(&DataType::Null, groups.len()),
            };
            fields.push(Field::new(name, column.data_type().clone(), true));
            columns.push(column);
        }
        if let Some(width) = shape.width {
            let starts: Int64Array = groups.iter().map(|(_, group, _)| group.saturating_mul(width)).collect();
            let starts = cast(&starts, &FieldType::Timestamp.arrow(schema.precision))?;
            fields.push(Field::new(&schema.time, starts.data_type().clone(), false));
            columns.push(starts);
        }
        for aggregate in &request.aggregates {
            let column = self.column(shape, aggregate, &groups)?;
            fields.push(Field::new(aggregate.name(), column.data_type().clone(), true));
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(groups.len()));
        Ok(RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), columns, &options)?)
    }

    #[expect(clippy::cast_possible_wrap, clippy::cast_precision_loss, reason = "counts; means are rounded")]
    fn column(&self, shape: &Shape, aggregate: &Aggregate, groups: &[(u32, i64, usize)]) -> Result<ArrayRef> {
        let slots = || groups.iter().map(|(_, _, slot)| *slot);
        let Some(name) = aggregate.field() else {
            return Ok(Arc::new(slots().map(|slot| Some(self.rows[slot] as i64)).collect::<Int64Array>()));
        };
        let at = shape.fields.iter().position(|f| f.name == name);
        let at = at.ok_or_else(|| Error::internal("an aggregate of a field that was not read"))?;
        if let Aggregate::First(_) | Aggregate::Last(_) = aggregate {
            let bits = slots().map(|slot| {
                let edge = self.edges[at][slot];
                if matches!(aggregate, Aggregate::First(_)) { edge.first?.1 } else { edge.last?.1 }
            });
            return Ok(match &self.states[at] {
                State::Int(_) => Arc::new(bits.map(|b| b.map(u64::cast_signed)).collect::<Int64Array>()),
                State::Double(_) => Arc::new(bits.map(|b| b.map(f64::from_bits)).collect::<Float64Array>()),
            });
        }
        Ok(match &self.states[at] {
            State::Int(states) => {
                let some = |of: fn(&IntAccumulator) -> i64| -> ArrayRef {
                    let value = |slot: usize| Some(&states[slot]).filter(|t| t.count > 0).map(of);
                    Arc::new(slots().map(value).collect::<Int64Array>())
                };
                match aggregate {
                    Aggregate::Min(_) => some(|t| t.min),
                    Aggregate::Max(_) => some(|t| t.max),
                    Aggregate::Sum(_) => {
                        let too_large = |t: &IntAccumulator| i64::try_from(t.sum).is_err();
                        if slots().any(|slot| states[slot].count > 0 && too_large(&states[slot])) {
                            let what = format!(
                                "the sum of field '{name}' does not fit into 64 bits: request its average, or smaller groups"
                            );
                            return Err(Error::new(Code::BadValue, what));
                        }
                        some(|t| i64::try_from(t.sum).expect("sums that do not fit are refused above"))
                    }
                    Aggregate::Avg(_) => Arc::new(
                        slots()
                            .map(|slot| {
                                Some(&states[slot]).filter(|t| t.count > 0).map(|t| t.sum as f64 / t.count as f64)
                            })
                            .collect::<Float64Array>(),
                    ),
                    _ => Arc::new(slots().map(|slot| Some(states[slot].count as i64)).collect::<Int64Array>()),
                }
            }
            State::Double(states) => {
                let some = |of: fn(&DoubleAccumulator) -> f64| -> ArrayRef {
                    let value = |slot: usize| Some(&states[slot]).filter(|t| t.count > 0).map(of);
                    Arc::new(slots().map(value).collect::<Float64Array>())
                };
                match aggregate {
                    Aggregate::Min(_) => some(|t| t.min),
                    Aggregate::Max(_) => some(|t| t.max),
                    Aggregate::Sum(_) => some(|t| t.sum),
                    Aggregate::Avg(_) => some(|t| t.sum / t.count as f64),
                    _ => Arc::new(slots().map(|slot| Some(states[slot].count as i64)).collect::<Int64Array>()),
                }
            }
        })
    }
}

/// A column with the metas of groups, which come in runs of one meta.
fn meta_column(
    metas: &MetaNumbers,
    of_groups: &[usize],
    ty: &FieldType,
    precision: ebbtide_ttl::Precision,
) -> Result<ArrayRef> {
    let mut distinct = Vec::new();
    let mut numbers: Vec<u32> = Vec::with_capacity(of_groups.len());
    let mut before = None;
    for meta in of_groups {
        if before != Some(*meta) {
            distinct.push(metas.keys[*meta].clone());
            before = Some(*meta);
        }
        numbers.push(to_number(distinct.len() - 1));
    }
    let column = column_of_keys(&distinct, ty, precision);
    Ok(arrow::compute::take(&column, &arrow::array::UInt32Array::from(numbers), None)?)
}
