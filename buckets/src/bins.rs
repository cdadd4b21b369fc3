//! Bins: mergeable aggregates of measurements by meta and by aligned intervals of time.
//!
//! A bin keeps states, never results: counts, sums, squared deviations, bounds, and first and last values with their times.
//! States of parts of a bin merge into the state of the whole, in any order.

mod fold;
mod join;
mod parts;
mod results;
mod state;
mod stored;

pub use join::results_in_order;
pub use results::{RESULT_SUFFIXES, result_schema};
pub use stored::{StoredField, stored_columns};

use crate::counts::to_number;
use crate::meta::{MetaKey, column_of_keys};
use crate::schema::FieldType;
use crate::window::Window;
use ahash::AHashMap;
use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::error::ArrowError;
use ebbtide_ttl::Precision;
use state::{BinValue, State};
use std::borrow::Cow;
use std::sync::Arc;

/// The states of one field, by slot.
#[derive(Debug, Clone)]
enum States {
    Int(Vec<State<i64>>),
    Double(Vec<State<f64>>),
    Bool(Vec<State<bool>>),
    Text(Vec<State<Arc<str>>>),
}

impl States {
    fn new(ty: &FieldType) -> Option<States> {
        Some(match ty {
            FieldType::Int64 => States::Int(Vec::new()),
            FieldType::Double => States::Double(Vec::new()),
            FieldType::Bool => States::Bool(Vec::new()),
            FieldType::String => States::Text(Vec::new()),
            _ => return None,
        })
    }

    fn reserve(&mut self, bins: usize) {
        match self {
            States::Int(states) => states.reserve(bins),
            States::Double(states) => states.reserve(bins),
            States::Bool(states) => states.reserve(bins),
            States::Text(states) => states.reserve(bins),
        }
    }

    /// Resizes to `slots` states; new ones are empty.
    fn resize(&mut self, slots: usize) {
        match self {
            States::Int(states) => states.resize_with(slots, State::default),
            States::Double(states) => states.resize_with(slots, State::default),
            States::Bool(states) => states.resize_with(slots, State::default),
            States::Text(states) => states.resize_with(slots, State::default),
        }
    }

    /// Merges states of other bins, by their slots, into those of these slots.
    fn merge(&mut self, other: &States, slots: &[(u32, u32)]) {
        fn each<V: BinValue>(to: &mut [State<V>], from: &[State<V>], slots: &[(u32, u32)]) {
            slots.iter().for_each(|(slot, of)| to[*slot as usize].merge(&from[*of as usize]));
        }
        match (self, other) {
            (States::Int(to), States::Int(from)) => each(to, from, slots),
            (States::Double(to), States::Double(from)) => each(to, from, slots),
            (States::Bool(to), States::Bool(from)) => each(to, from, slots),
            (States::Text(to), States::Text(from)) => each(to, from, slots),
            (States::Double(to), States::Int(from)) => {
                slots.iter().for_each(|(slot, of)| to[*slot as usize].merge(&from[*of as usize].widened()));
            }
            _ => {}
        }
    }
}

/// A field of which bins have states.
#[derive(Debug, Clone)]
struct BinField {
    name: String,
    states: States,
}

/// All rows of a bin, whatever their fields.
#[derive(Debug, Clone, Copy)]
struct Rows {
    measurements: u64,
    /// The times of the first and the last.
    first: i64,
    last: i64,
}

impl Rows {
    const NONE: Rows = Rows { measurements: 0, first: i64::MAX, last: i64::MIN };

    fn merge(&mut self, other: &Rows) {
        self.measurements += other.measurements;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}

/// The first and the last bin of a meta, and the slot of the last.
#[derive(Debug, Clone, Copy)]
struct Span {
    first: i64,
    last: i64,
    slot: u32,
}

/// Bins of one width, by meta.
#[derive(Debug, Clone)]
pub struct Bins {
    /// The width in units of the precision.
    step: i64,
    keys: Vec<MetaKey>,
    numbers: AHashMap<MetaKey, u32>,
    /// For each meta, between which bins its own are.
    spans: Vec<Option<Span>>,
    /// The slots of bins, as far as one between others was asked for: those of the first `indexed` slots. Bins mostly come in
    /// order of time, and then the spans are enough.
    slots: AHashMap<(u32, i64), u32>,
    indexed: usize,
    /// For each slot the number of its meta, and the bin: the number of widths from the epoch to its start.
    ids: Vec<(u32, i64)>,
    rows: Vec<Rows>,
    fields: Vec<BinField>,
    /// Whether work on many bins may use all cores.
    all_cores: bool,
}

impl Bins {
    /// No bins so far, of `step` units each. Fields of types that cannot be aggregated are left out.
    #[must_use]
    pub fn new<'a>(step: i64, fields: impl IntoIterator<Item = (&'a str, &'a FieldType)>) -> Bins {
        let field = |(name, ty): (&str, &FieldType)| Some(BinField { name: name.to_owned(), states: States::new(ty)? });
        Bins {
            step: step.max(1),
            keys: Vec::new(),
            numbers: AHashMap::new(),
            spans: Vec::new(),
            slots: AHashMap::new(),
            indexed: 0,
            ids: Vec::new(),
            rows: Vec::new(),
            fields: fields.into_iter().filter_map(field).collect(),
            all_cores: false,
        }
    }

    /// Lets work on many bins use all cores, if `allowed`, not the caller's thread alone.
    #[must_use]
    pub fn on_all_cores(self, allowed: bool) -> Bins {
        Bins { all_cores: allowed, ..self }
    }

    /// Reserves capacity for at least `bins` additional bins.
    pub fn reserve(&mut self, bins: usize) {
        self.ids.reserve(bins);
        self.rows.reserve(bins);
        self.fields.iter_mut().for_each(|field| field.states.reserve(bins));
    }

    /// Whether values of a type can be aggregated.
    #[must_use]
    pub fn takes(ty: &FieldType) -> bool {
        States::new(ty).is_some()
    }

    /// The number of bins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The approximate memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of_field = |field: &BinField| match &field.states {
            States::Int(_) => size_of::<State<i64>>(),
            States::Double(_) => size_of::<State<f64>>(),
            States::Bool(_) => size_of::<State<bool>>(),
            States::Text(_) => size_of::<State<Arc<str>>>() + 32,
        };
        self.len() * (96 + self.fields.iter().map(of_field).sum::<usize>())
    }

    /// The names of the fields, in order.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }

    /// Every bin: its meta, its interval of time, and how many measurements it has.
    pub fn iter(&self) -> impl Iterator<Item = (&MetaKey, Window, u64)> {
        let shown = |((meta, bin), rows): (&(u32, i64), &Rows)| {
            (&self.keys[*meta as usize], self.window(*bin), rows.measurements)
        };
        self.ids.iter().zip(&self.rows).map(shown)
    }

    /// The number of a meta, by which [`Bins::fold`] knows it.
    pub fn meta(&mut self, key: &MetaKey) -> u32 {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let number = to_number(self.keys.len());
        self.keys.push(key.clone());
        self.spans.push(None);
        self.numbers.insert(key.clone(), number);
        number
    }

    /// Adds bins of the same width or of a width that divides this one, as far as `keep` takes their interval and number of
    /// measurements.
    pub fn merge(&mut self, other: &Bins, keep: impl Fn(&MetaKey, Window) -> bool) {
        let metas: Vec<u32> = other.keys.iter().map(|key| self.meta(key)).collect();
        let fields: Vec<Option<usize>> =
            self.fields.iter().map(|field| other.fields.iter().position(|f| f.name == field.name)).collect();
        let ratio = (self.step / other.step).max(1);
        let mut slots: Vec<(u32, u32)> = Vec::with_capacity(other.len());
        for (of, (meta, bin)) in other.ids.iter().enumerate() {
            if !keep(&other.keys[*meta as usize], other.window(*bin)) {
                continue;
            }
            let slot = self.slot(metas[*meta as usize], bin.div_euclid(ratio));
            self.rows[slot].merge(&other.rows[of]);
            slots.push((to_number(slot), to_number(of)));
        }
        self.each_field(slots.len() as u64, |at, field, bins| {
            field.states.resize(bins);
            if let Some(from) = fields[at] {
                field.states.merge(&other.fields[from].states, &slots);
            }
        });
    }

    /// No bins, of the same width and fields.
    #[must_use]
    pub fn empty(&self) -> Bins {
        let types: Vec<_> = self.fields.iter().map(|field| (&field.name, field.states.field_type())).collect();
        Bins::new(self.step, types.iter().map(|(name, ty)| (name.as_str(), ty))).on_all_cores(self.all_cores)
    }

    /// The bins that `keep` takes; nothing is copied if it takes all.
    #[must_use]
    pub fn retained(&self, keep: impl Fn(&MetaKey, Window) -> bool) -> Cow<'_, Bins> {
        if self.iter().all(|(meta, window, _)| keep(meta, window)) {
            return Cow::Borrowed(self);
        }
        let mut kept = self.empty();
        kept.merge(self, keep);
        Cow::Owned(kept)
    }

    /// Removes all bins but those that `keep` takes.
    pub fn retain(&mut self, keep: impl Fn(&MetaKey, Window) -> bool) {
        if let Cow::Owned(kept) = self.retained(keep) {
            *self = kept;
        }
    }

    fn window(&self, bin: i64) -> Window {
        Window { start: bin.saturating_mul(self.step), end: bin.saturating_add(1).saturating_mul(self.step) }
    }

    fn slot(&mut self, meta: u32, bin: i64) -> usize {
        let span = self.spans[meta as usize];
        if let Some(span) = span.filter(|span| bin >= span.first && bin <= span.last) {
            if bin == span.last {
                return span.slot as usize;
            }
            if let Some(slot) = self.find(meta, bin) {
                return slot;
            }
        }
        let slot = self.ids.len();
        let alone = Span { first: bin, last: bin, slot: to_number(slot) };
        self.spans[meta as usize] = Some(match span {
            None => alone,
            Some(span) if bin > span.last => Span { first: span.first, ..alone },
            Some(span) => Span { first: span.first.min(bin), ..span },
        });
        self.ids.push((meta, bin));
        self.rows.push(Rows::NONE);
        slot
    }

    fn find(&mut self, meta: u32, bin: i64) -> Option<usize> {
        let new = self.ids.iter().enumerate().skip(self.indexed);
        self.slots.extend(new.map(|(slot, id)| (*id, to_number(slot))));
        self.indexed = self.ids.len();
        self.slots.get(&(meta, bin)).map(|slot| *slot as usize)
    }

    /// The metas of slots.
    fn meta_column(&self, slots: &[usize], ty: &FieldType, precision: Precision) -> Result<ArrayRef, ArrowError> {
        let numbers = UInt32Array::from_iter_values(slots.iter().map(|slot| self.ids[*slot].0));
        take(&column_of_keys(&self.keys, ty, precision), &numbers, None)
    }

    /// The slots in order of meta and time.
    fn sorted(&self) -> Vec<usize> {
        let mut by_key: Vec<u32> = (0..to_number(self.keys.len())).collect();
        by_key.sort_by(|a, b| self.keys[*a as usize].cmp(&self.keys[*b as usize]));
        let mut place = vec![0_u32; by_key.len()];
        by_key.iter().enumerate().for_each(|(at, meta)| place[*meta as usize] = to_number(at));
        // First by meta, by counting, then those of each meta by time, in which they mostly are already.
        let mut starts = vec![0_usize; self.keys.len() + 1];
        self.ids.iter().for_each(|(meta, _)| starts[place[*meta as usize] as usize + 1] += 1);
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let mut next = starts.clone();
        let mut slots = vec![0_usize; self.ids.len()];
        for (slot, (meta, _)) in self.ids.iter().enumerate() {
            let at = &mut next[place[*meta as usize] as usize];
            slots[*at] = slot;
            *at += 1;
        }
        for of_meta in starts.windows(2) {
            slots[of_meta[0]..of_meta[1]].sort_unstable_by_key(|slot| self.ids[*slot].1);
        }
        slots
    }
}

impl States {
    fn field_type(&self) -> FieldType {
        match self {
            States::Int(_) => FieldType::Int64,
            States::Double(_) => FieldType::Double,
            States::Bool(_) => FieldType::Bool,
            States::Text(_) => FieldType::String,
        }
    }
}

#[cfg(test)]
mod tests;
