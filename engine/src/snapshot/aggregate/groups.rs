//! Groups and their states.

use crate::segment::bounds::BucketBounds;
use ebbtide_buckets::{DoubleAccumulator, FieldStats, IntAccumulator, Numbers, to_number, to_usize};
use std::collections::HashMap;
use std::ops::Range;

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

/// Groups in time, which have numbers.
pub(super) enum Bins {
    Width(i64),
    /// Bins of a width, counted from the start of the period, which is a multiple of the width.
    Cycle {
        width: i64,
        period: i64,
    },
    /// Where each begins, in ascending order. There are no times before the first.
    Starts(Vec<i64>),
}

impl Bins {
    fn number(&self, t: i64) -> i64 {
        match self {
            Bins::Width(width) => t.div_euclid(*width),
            Bins::Cycle { width, period } => t.rem_euclid(*period) / *width,
            Bins::Starts(starts) => i64::from(to_number(starts.partition_point(|start| *start <= t))) - 1,
        }
    }

    /// The first time of a group; in a cycle, the first one from 1970 on.
    pub(super) fn start(&self, number: i64) -> i64 {
        match self {
            Bins::Width(width) | Bins::Cycle { width, .. } => number.saturating_mul(*width),
            Bins::Starts(starts) => usize::try_from(number).ok().and_then(|at| starts.get(at)).map_or(i64::MIN, |t| *t),
        }
    }

    /// The last time of the bin that contains a time.
    pub(super) fn last(&self, t: i64) -> i64 {
        match self {
            Bins::Width(width) | Bins::Cycle { width, .. } => {
                let last = (i128::from(t.div_euclid(*width)) + 1) * i128::from(*width) - 1;
                i64::try_from(last).unwrap_or(i64::MAX)
            }
            Bins::Starts(starts) => {
                let next = starts.partition_point(|start| *start <= t);
                starts.get(next).map_or(i64::MAX, |start| start - 1)
            }
        }
    }
}

/// What is aggregated, and in which groups in time.
pub(super) struct Shape {
    pub(super) fields: Vec<FieldShape>,
    /// `None` if all times are in one.
    pub(super) bins: Option<Bins>,
    /// Whether first or last values are requested.
    pub(super) edges: bool,
}

impl Shape {
    /// The number of the group that a time is in.
    pub(super) fn group(&self, t: i64) -> i64 {
        self.bins.as_ref().map_or(0, |bins| bins.number(t))
    }

    /// The first group of a range of times, both ends included, and the number of groups.
    fn range(&self, (first, last): (i64, i64)) -> (i64, usize) {
        if let Some(Bins::Cycle { width, period }) = self.bins {
            return (0, to_usize((period / width).unsigned_abs()));
        }
        let base = self.group(first);
        let span = self.group(last).saturating_sub(base);
        (base, usize::try_from(span).unwrap_or(usize::MAX).saturating_add(1))
    }

    /// The number of the one group that all times of a range are in.
    pub(super) fn group_of(&self, first: i64, last: i64) -> Option<i64> {
        let is_one = self.bins.as_ref().is_none_or(|bins| last <= bins.last(first));
        is_one.then(|| self.group(first))
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
    pub(super) first: Option<At>,
    pub(super) last: Option<At>,
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

/// A slot for each meta and each group in time, ordered by the number of the meta and then in time.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    /// The first group in time.
    base: i64,
    /// Number of groups in time.
    span: usize,
    /// Number of slots.
    pub(super) slots: usize,
}

impl Grid {
    /// The grid for this number of metas and for times in this range, both ends included; `None` if it has too many slots.
    pub(super) fn new(shape: &Shape, metas: usize, times: (i64, i64)) -> Option<Grid> {
        let (base, span) = shape.range(times);
        let slots = span.saturating_mul(metas);
        (slots.saturating_mul(shape.fields.len() + 1) <= DENSE_STATES_MAX).then_some(Grid { base, span, slots })
    }

    pub(super) fn slot(&self, meta: u32, group: i64) -> usize {
        let at = group.checked_sub(self.base).and_then(|at| usize::try_from(at).ok()).filter(|at| *at < self.span);
        meta as usize * self.span + at.expect("a grid has a slot for every group between its bounds")
    }

    fn key(&self, slot: usize) -> (u32, i64) {
        (to_number(slot / self.span), self.base + i64::from(to_number(slot % self.span)))
    }
}

/// Groups by number of the meta and number of the group in time.
enum Slots {
    /// Some slots of a grid, from a first one on.
    Dense {
        grid: Grid,
        first: usize,
    },
    Sparse {
        numbers: HashMap<(u32, i64), u32, ahash::RandomState>,
        keys: Vec<(u32, i64)>,
    },
}

/// Groups and their states.
pub(super) struct Table {
    slots: Slots,
    pub(super) rows: Vec<u64>,
    pub(super) states: Vec<State>,
    /// By field; empty unless they are requested.
    pub(super) edges: Vec<Vec<FirstLast>>,
    wants_edges: bool,
}

/// An upper estimate of the memory for the states of these groups, in bytes.
pub(super) fn states_bytes(shape: &Shape, metas: usize, times: (i64, i64), rows: u64) -> usize {
    match Grid::new(shape, metas, times) {
        Some(grid) => grid.slots.saturating_mul(group_bytes(shape)),
        None => shape.range(times).1.saturating_mul(metas).min(to_usize(rows)).saturating_mul(sparse_bytes(shape)),
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
        match Grid::new(shape, metas, times) {
            Some(grid) => Self::dense(shape, grid, 0..grid.slots),
            None => Self::sparse(shape),
        }
    }

    /// A table for some slots of a grid.
    pub(super) fn dense(shape: &Shape, grid: Grid, slots: Range<usize>) -> Self {
        Self::with(shape, Slots::Dense { grid, first: slots.start }, slots.len())
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
        }
    }

    /// The slot of a group.
    pub(super) fn slot(&mut self, meta: u32, group: i64) -> u32 {
        match &mut self.slots {
            Slots::Dense { grid, first } => to_number(grid.slot(meta, group) - *first),
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
    pub(super) fn key(&self, slot: usize) -> (u32, i64) {
        match &self.slots {
            Slots::Dense { grid, first } => grid.key(first + slot),
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

    /// The values of a group of whole numbers; `None` without values.
    pub(super) fn ints(&self, field: usize, slot: usize) -> Option<&IntAccumulator> {
        match &self.states[field] {
            State::Int(states) => Some(&states[slot]).filter(|t| t.count > 0),
            State::Double(_) => None,
        }
    }

    /// The values of a group of doubles; `None` without values.
    pub(super) fn doubles(&self, field: usize, slot: usize) -> Option<&DoubleAccumulator> {
        match &self.states[field] {
            State::Double(states) => Some(&states[slot]).filter(|t| t.count > 0),
            State::Int(_) => None,
        }
    }

    /// An estimate of the memory of its states, in bytes.
    pub(super) fn bytes(&self, shape: &Shape) -> usize {
        self.rows.len() * sparse_bytes(shape)
    }

    /// Adds a group of another table to the group with this key.
    pub(super) fn merge(&mut self, (meta, group): (u32, i64), part: &Table, from: usize) {
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
