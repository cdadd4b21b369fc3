//! What bins show: results made of states.

use super::join::{Run, runs};
use super::state::{BinValue, State, Sum};
use super::stored::{BinColumns, ReadStates, STATES_AT_ONCE, Source};
use super::{Bins, States, StoredField};
use crate::counts::to_number;
use crate::meta::{MetaKey, column_of_keys};
use crate::schema::{FieldType, Schema};
use crate::time_units::{instants, timestamp_type, timestamps};
use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringViewArray, UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use arrow::error::ArrowError;
use ebbtide_ttl::Precision;
use std::borrow::Borrow;
use std::sync::Arc;

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
        for field in &self.fields {
            match &field.states {
                States::Int(states) => columns.extend(int_columns(Numbers::of_slots(states, &slots), of.precision)?),
                States::Double(states) => {
                    columns.extend(double_columns(Numbers::of_slots(states, &slots), of.precision));
                }
                States::Bool(states) => columns.extend(Shown { states, slots: &slots, of }.bools()),
                States::Text(states) => columns.extend(Shown { states, slots: &slots, of }.texts()),
            }
        }
        self.batch(columns, of)
    }

    /// The results of rows that [`Bins::to_stored`] made of bins of the same width, all of different bins, in order of meta and
    /// time: as after [`Bins::add_stored`] for each of the batches. The bins in `self` do not matter.
    ///
    /// # Errors
    /// As of [`Bins::add_stored`].
    pub fn results_of_stored(
        &self,
        batches: &[RecordBatch],
        schema: &Schema,
        stored: impl Fn(&str) -> StoredField,
        of: &Schema,
    ) -> Result<RecordBatch, ArrowError> {
        let runs = runs(batches, schema)?;
        let of_bins = batches.iter().map(BinColumns::of).collect::<Result<Vec<_>, _>>()?;
        let count = batches.iter().map(RecordBatch::num_rows).sum();
        let (mut starts, mut measurements) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut keys, mut metas): (Vec<MetaKey>, _) = (Vec::new(), Vec::with_capacity(count));
        for run in &runs {
            let bins = &of_bins[run.batch];
            starts.extend_from_slice(&bins.starts[run.rows()]);
            measurements.extend(run.rows().map(|row| bins.measurements(row).cast_signed()));
            if keys.last() != Some(&run.key) {
                keys.push(run.key.clone());
            }
            metas.extend(std::iter::repeat_n(to_number(keys.len() - 1), run.rows().len()));
        }
        let mut columns: Vec<ArrayRef> = vec![instants(Int64Array::from(starts), of.precision)];
        if let (Some(_), Some(ty)) = (&of.meta, &of.meta_type) {
            columns.push(take(&column_of_keys(&keys, ty, of.precision), &UInt32Array::from(metas), None)?);
        }
        columns.push(Arc::new(Int64Array::from(measurements)));
        for field in &self.fields {
            let sources = batches.iter().zip(&of_bins);
            let sources =
                sources.map(|(batch, of_bins)| Source { batch, field: stored(&field.name), of_bins: *of_bins });
            let rows = InOrder { sources: sources.collect(), runs: &runs };
            match &field.states {
                States::Int(_) => {
                    columns.extend(int_columns(Numbers::of_rows(&rows, Source::ints)?, of.precision)?);
                }
                States::Double(_) => {
                    columns.extend(double_columns(Numbers::of_rows(&rows, Source::doubles)?, of.precision));
                }
                States::Bool(_) => {
                    let states = rows.all(Source::bools)?;
                    let slots: Vec<usize> = (0..states.len()).collect();
                    columns.extend(Shown { states: &states, slots: &slots, of }.bools());
                }
                States::Text(_) => {
                    let states = rows.all(Source::texts)?;
                    let slots: Vec<usize> = (0..states.len()).collect();
                    columns.extend(Shown { states: &states, slots: &slots, of }.texts());
                }
            }
        }
        self.batch(columns, of)
    }

    fn batch(&self, columns: Vec<ArrayRef>, of: &Schema) -> Result<RecordBatch, ArrowError> {
        let types: Vec<FieldType> = self.fields.iter().map(|field| field.states.field_type()).collect();
        RecordBatch::try_new(result_schema(of, self.field_names().zip(&types)), columns)
    }
}

/// Stored states of a field, from several batches in one order.
struct InOrder<'a> {
    sources: Vec<Source<'a>>,
    runs: &'a [Run],
}

impl<'a> InOrder<'a> {
    /// Calls `each` with some states at a time.
    fn read<V: BinValue>(
        &self,
        of: impl Fn(&Source<'a>) -> Result<ReadStates<'a, V>, ArrowError>,
        mut each: impl FnMut(&mut Vec<State<V>>),
    ) -> Result<(), ArrowError> {
        let read = self.sources.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        let mut some = Vec::with_capacity(2 * STATES_AT_ONCE);
        for run in self.runs {
            let rows = run.rows();
            for first in rows.clone().step_by(STATES_AT_ONCE) {
                read[run.batch](first..rows.end.min(first + STATES_AT_ONCE), &mut some);
                if some.len() >= STATES_AT_ONCE {
                    each(&mut some);
                    some.clear();
                }
            }
        }
        each(&mut some);
        Ok(())
    }

    fn all<V: BinValue>(
        &self,
        of: impl Fn(&Source<'a>) -> Result<ReadStates<'a, V>, ArrowError>,
    ) -> Result<Vec<State<V>>, ArrowError> {
        let mut all = Vec::new();
        self.read(of, |some| all.append(some))?;
        Ok(all)
    }
}

fn int_columns(mut numbers: Numbers<i64>, precision: Precision) -> Result<[ArrayRef; 10], ArrowError> {
    let ints = |values: Vec<i64>, nulls| Arc::new(Int64Array::new(values.into(), nulls)) as ArrayRef;
    let sums = Decimal128Array::new(std::mem::take(&mut numbers.sums).into(), numbers.nulls.clone());
    let sums = Arc::new(sums.with_precision_and_scale(38, 0)?);
    Ok(numbers.columns(sums, ints, precision))
}

fn double_columns(numbers: Numbers<f64>, precision: Precision) -> [ArrayRef; 10] {
    let doubles = |values: Vec<f64>, nulls| Arc::new(Float64Array::new(values.into(), nulls)) as ArrayRef;
    let sums = numbers.sums.iter().map(|sum| sum.value()).collect();
    let sums = doubles(sums, numbers.nulls.clone());
    numbers.columns(sums, doubles, precision)
}

/// Bins of a field that is no number, as they are shown.
struct Shown<'a, V: BinValue> {
    states: &'a [State<V>],
    slots: &'a [usize],
    of: &'a Schema,
}

/// Values of bins, in order.
type Values<'a, T> = &'a mut dyn Iterator<Item = Option<T>>;

impl Shown<'_, bool> {
    fn bools(&self) -> Vec<ArrayRef> {
        self.columns(&FieldType::Bool, |values| Arc::new(values.map(|v| v.copied()).collect::<BooleanArray>()))
    }
}

impl Shown<'_, Arc<str>> {
    fn texts(&self) -> Vec<ArrayRef> {
        self.columns(&FieldType::String, |values| {
            Arc::new(values.map(|v| v.map(AsRef::<str>::as_ref)).collect::<StringViewArray>())
        })
    }
}

impl<V: BinValue> Shown<'_, V> {
    /// The states of the bins; `None` without a value.
    fn states(&self) -> impl Iterator<Item = Option<&State<V>>> {
        self.slots.iter().map(|slot| Some(&self.states[*slot]).filter(|state| state.count > 0))
    }

    fn columns(&self, ty: &FieldType, values: impl Fn(Values<'_, &V>) -> ArrayRef) -> Vec<ArrayRef> {
        suffixes(ty).map(|suffix| self.column(suffix, &values)).collect()
    }

    fn column(&self, suffix: &str, values: &impl Fn(Values<'_, &V>) -> ArrayRef) -> ArrayRef {
        let all = || self.states();
        let time = |pick: fn(&State<V>) -> i64| timestamps(all().map(|s| s.map(pick)).collect(), self.of.precision);
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
    /// None yet, with capacity for some.
    fn new(bins: usize) -> Self {
        Numbers {
            counts: Vec::with_capacity(bins),
            sums: Vec::with_capacity(bins),
            means: Vec::with_capacity(bins),
            min: Vec::with_capacity(bins),
            max: Vec::with_capacity(bins),
            deviations: Vec::with_capacity(bins),
            first: Vec::with_capacity(bins),
            first_time: Vec::with_capacity(bins),
            last: Vec::with_capacity(bins),
            last_time: Vec::with_capacity(bins),
            nulls: None,
            no_deviation: None,
        }
    }

    fn of_slots(states: &[State<V>], slots: &[usize]) -> Self {
        let mut made = Self::new(slots.len());
        // Where there is no value, all are those of the empty state, and null.
        let none = State::default();
        let mut some = Vec::with_capacity(STATES_AT_ONCE);
        for slots in slots.chunks(STATES_AT_ONCE) {
            some.extend(slots.iter().map(|slot| Some(&states[*slot]).filter(|state| state.count > 0).unwrap_or(&none)));
            made.push(&some);
            some.clear();
        }
        made.with_nulls()
    }

    fn of_rows<'a>(
        rows: &InOrder<'a>,
        of: impl Fn(&Source<'a>) -> Result<ReadStates<'a, V>, ArrowError>,
    ) -> Result<Self, ArrowError> {
        let mut made = Self::new(rows.runs.iter().map(|run| run.rows().len()).sum());
        rows.read(of, |some| made.push(some))?;
        Ok(made.with_nulls())
    }

    /// Adds bins column by column; they stay in the processor's cache meanwhile if they are few.
    fn push<S: Borrow<State<V>>>(&mut self, some: &[S]) {
        let each = || some.iter().map(S::borrow);
        self.counts.extend(each().map(|state| state.count.cast_signed()));
        self.sums.extend(each().map(|state| state.sum));
        self.means.extend(each().map(mean));
        self.min.extend(each().map(|state| state.min));
        self.max.extend(each().map(|state| state.max));
        self.deviations.extend(each().map(deviation));
        self.first.extend(each().map(|state| state.first.1));
        self.first_time.extend(each().map(|state| state.first.0));
        self.last.extend(each().map(|state| state.last.1));
        self.last_time.extend(each().map(|state| state.last.0));
    }

    fn with_nulls(mut self) -> Self {
        let at_least = |least: i64| {
            let nulls = NullBuffer::from_iter(self.counts.iter().map(|count| *count >= least));
            Some(nulls).filter(|nulls| nulls.null_count() > 0)
        };
        (self.nulls, self.no_deviation) = (at_least(1), at_least(2));
        self
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
