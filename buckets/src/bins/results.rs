//! What bins show: results made of states.

use super::state::{BinValue, State, Sum};
use super::{Bins, States};
use crate::schema::{FieldType, Schema};
use crate::time_units::{instants, timestamp_type, timestamps};
use arrow::array::{ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use arrow::error::ArrowError;
use ebbtide_ttl::Precision;
use std::sync::Arc;

/// The number of bins whose states are turned into results at a time.
const BINS_AT_ONCE: usize = 128;
/// The column with the number of measurements.
const MEASUREMENTS: &str = "measurements";
/// The type of sums of whole numbers.
const WIDE: DataType = DataType::Decimal128(38, 0);

/// What is added to the name of a field for each of its columns. Those of texts and bools are the ones without a mean.
pub const RESULT_SUFFIXES: [&str; 10] =
    ["count", "sum", "avg", "min", "max", "stddev", "first", "first_time", "last", "last_time"];

fn suffixes(ty: &FieldType) -> impl Iterator<Item = &'static str> {
    let is_number = matches!(ty, FieldType::Int64 | FieldType::Double);
    RESULT_SUFFIXES.into_iter().filter(move |suffix| is_number || !matches!(*suffix, "sum" | "avg" | "stddev"))
}

fn result_type(ty: &FieldType, suffix: &str, precision: Precision) -> DataType {
    match (suffix, ty) {
        ("count", _) => DataType::Int64,
        ("sum", FieldType::Int64) => WIDE,
        ("sum" | "avg" | "stddev", _) => DataType::Float64,
        ("first_time" | "last_time", _) => timestamp_type(precision),
        (_, ty) => ty.arrow(precision),
    }
}

/// The columns of [`Bins::results`] for these fields, in which `of` has the names of the time and the meta, the type of the
/// meta and the precision.
#[must_use]
pub fn result_schema<'a>(of: &Schema, fields: impl IntoIterator<Item = (&'a str, &'a FieldType)>) -> SchemaRef {
    let mut columns = vec![Field::new(&of.time, timestamp_type(of.precision), false)];
    if let (Some(meta), Some(ty)) = (&of.meta, &of.meta_type) {
        columns.push(Field::new(meta, ty.arrow(of.precision), true));
    }
    columns.push(Field::new(MEASUREMENTS, DataType::Int64, false));
    for (name, ty) in fields.into_iter().filter(|(_, ty)| Bins::takes(ty)) {
        columns.extend(suffixes(ty).map(|suffix| {
            Field::new(format!("{name}_{suffix}"), result_type(ty, suffix, of.precision), suffix != "count")
        }));
    }
    Arc::new(ArrowSchema::new(columns))
}

impl Bins {
    /// The results in order of meta and time, with the columns of [`result_schema`].
    ///
    /// # Errors
    /// None that these columns can meet.
    pub fn results(&self, of: &Schema) -> Result<RecordBatch, ArrowError> {
        let slots = self.sorted();
        let starts = slots.iter().map(|slot| self.window(self.ids[*slot].1).start);
        let mut columns: Vec<ArrayRef> = vec![instants(Int64Array::from_iter_values(starts), of.precision)];
        if let (Some(_), Some(ty)) = (&of.meta, &of.meta_type) {
            columns.push(self.meta_column(&slots, ty, of.precision)?);
        }
        let measurements = slots.iter().map(|slot| self.rows[*slot].measurements.cast_signed());
        columns.push(Arc::new(Int64Array::from_iter_values(measurements)));
        let mut types = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            let ty = field.states.field_type();
            let shown = Shown { slots: &slots, precision: of.precision, ty: &ty };
            match &field.states {
                States::Int(states) => {
                    let mut numbers = Numbers::of(states, &slots);
                    let ints = |values: Vec<i64>, nulls| Arc::new(Int64Array::new(values.into(), nulls)) as ArrayRef;
                    let sums = std::mem::take(&mut numbers.sums);
                    let sums = Decimal128Array::new(sums.into(), numbers.nulls.clone());
                    let sums = Arc::new(sums.with_precision_and_scale(38, 0)?);
                    columns.extend(numbers.columns(sums, ints, of.precision));
                }
                States::Double(states) => {
                    let numbers = Numbers::of(states, &slots);
                    let doubles =
                        |values: Vec<f64>, nulls| Arc::new(Float64Array::new(values.into(), nulls)) as ArrayRef;
                    let sums = numbers.sums.iter().map(|sum| sum.value()).collect();
                    let sums = doubles(sums, numbers.nulls.clone());
                    columns.extend(numbers.columns(sums, doubles, of.precision));
                }
                States::Bool(states) => shown.plain(
                    states,
                    |values| Arc::new(values.map(|v| v.copied()).collect::<BooleanArray>()),
                    &mut columns,
                ),
                States::Text(states) => shown.plain(
                    states,
                    |values| Arc::new(values.map(|v| v.map(AsRef::<str>::as_ref)).collect::<StringViewArray>()),
                    &mut columns,
                ),
            }
            types.push(ty);
        }
        let names = self.field_names().zip(&types);
        RecordBatch::try_new(result_schema(of, names), columns)
    }
}

/// Which bins of a field are shown, and how.
struct Shown<'a> {
    slots: &'a [usize],
    precision: Precision,
    ty: &'a FieldType,
}

/// Values of bins, in order.
type Values<'a, T> = &'a mut dyn Iterator<Item = Option<T>>;

impl Shown<'_> {
    /// The states of the bins; `None` without a value.
    fn states<'s, V: BinValue>(&'s self, states: &'s [State<V>]) -> impl Iterator<Item = Option<&'s State<V>>> {
        self.slots.iter().map(|slot| Some(&states[*slot]).filter(|state| state.count > 0))
    }

    fn plain<V: BinValue>(
        &self,
        states: &[State<V>],
        values: impl Fn(Values<'_, &V>) -> ArrayRef,
        columns: &mut Vec<ArrayRef>,
    ) {
        columns.extend(suffixes(self.ty).map(|suffix| self.column(suffix, states, &values)));
    }

    fn column<V: BinValue>(
        &self,
        suffix: &str,
        states: &[State<V>],
        values: &impl Fn(Values<'_, &V>) -> ArrayRef,
    ) -> ArrayRef {
        let all = || self.states(states);
        let time = |pick: fn(&State<V>) -> i64| timestamps(all().map(|s| s.map(pick)).collect(), self.precision);
        match suffix {
            "count" => {
                let counts = all().map(|state| state.map_or(0, |state| state.count.cast_signed()));
                Arc::new(counts.collect::<Int64Array>())
            }
            "min" => values(&mut all().map(|state| state.map(|state| &state.min))),
            "max" => values(&mut all().map(|state| state.map(|state| &state.max))),
            "first" => values(&mut all().map(|state| state.map(|state| &state.first.1))),
            "last" => values(&mut all().map(|state| state.map(|state| &state.last.1))),
            "first_time" => time(|state| state.first.0),
            _ => time(|state| state.last.0),
        }
    }
}

/// What bins show of a field of numbers, by bin.
struct Numbers<V: BinValue> {
    counts: Vec<i64>,
    sums: Vec<V::Sum>,
    means: Vec<f64>,
    min: Vec<V>,
    max: Vec<V>,
    deviations: Vec<f64>,
    first: Vec<V>,
    first_time: Vec<i64>,
    last: Vec<V>,
    last_time: Vec<i64>,
    /// Bins without a value.
    nulls: Option<NullBuffer>,
    /// Bins without a deviation.
    no_deviation: Option<NullBuffer>,
}

impl<V: BinValue + Copy> Numbers<V> {
    fn of(states: &[State<V>], slots: &[usize]) -> Self {
        let empty = || Vec::with_capacity(slots.len());
        let mut made = Numbers {
            counts: Vec::with_capacity(slots.len()),
            sums: Vec::with_capacity(slots.len()),
            means: empty(),
            min: Vec::with_capacity(slots.len()),
            max: Vec::with_capacity(slots.len()),
            deviations: empty(),
            first: Vec::with_capacity(slots.len()),
            first_time: Vec::with_capacity(slots.len()),
            last: Vec::with_capacity(slots.len()),
            last_time: Vec::with_capacity(slots.len()),
            nulls: None,
            no_deviation: None,
        };
        // Where there is no value, all are those of the empty state, and null.
        let none = State::default();
        // Column by column for some bins at a time, whose states stay in the cache meanwhile.
        let mut some = Vec::with_capacity(BINS_AT_ONCE);
        for slots in slots.chunks(BINS_AT_ONCE) {
            some.clear();
            some.extend(slots.iter().map(|slot| Some(&states[*slot]).filter(|state| state.count > 0).unwrap_or(&none)));
            let each = || some.iter().copied();
            made.counts.extend(each().map(|state| state.count.cast_signed()));
            made.sums.extend(each().map(|state| state.sum));
            made.means.extend(each().map(mean));
            made.min.extend(each().map(|state| state.min));
            made.max.extend(each().map(|state| state.max));
            made.deviations.extend(each().map(deviation));
            made.first.extend(each().map(|state| state.first.1));
            made.first_time.extend(each().map(|state| state.first.0));
            made.last.extend(each().map(|state| state.last.1));
            made.last_time.extend(each().map(|state| state.last.0));
        }
        let at_least = |least: i64| {
            let nulls = NullBuffer::from_iter(made.counts.iter().map(|count| *count >= least));
            Some(nulls).filter(|nulls| nulls.null_count() > 0)
        };
        (made.nulls, made.no_deviation) = (at_least(1), at_least(2));
        made
    }

    /// The columns in the order of their suffixes.
    fn columns(
        self,
        sums: ArrayRef,
        values: impl Fn(Vec<V>, Option<NullBuffer>) -> ArrayRef,
        precision: Precision,
    ) -> [ArrayRef; RESULT_SUFFIXES.len()] {
        let doubles = |values: Vec<f64>, nulls| Arc::new(Float64Array::new(values.into(), nulls));
        let times = |times: Vec<i64>| instants(Int64Array::new(times.into(), self.nulls.clone()), precision);
        let values = |of: Vec<V>| values(of, self.nulls.clone());
        [
            Arc::new(Int64Array::new(self.counts.into(), None)),
            sums,
            doubles(self.means, self.nulls.clone()),
            values(self.min),
            values(self.max),
            doubles(self.deviations, self.no_deviation),
            values(self.first),
            times(self.first_time),
            values(self.last),
            times(self.last_time),
        ]
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
fn mean<V: BinValue>(state: &State<V>) -> f64 {
    state.sum.double() / state.count as f64
}

/// The standard deviation of a sample of two values or more.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
fn deviation<V: BinValue>(state: &State<V>) -> f64 {
    (state.squares / state.count.saturating_sub(1) as f64).sqrt()
}
