//! Bins as rows of a segment, which has one column for each state. What is the same for almost every bin is left out where
//! it is: a null means the usual value, and a column that would have only nulls is not there.

use super::state::{BinValue, Compensated, State, add};
use super::{Bins, Rows, States};
use crate::columns::times;
use crate::meta::keys_of_column;
use crate::parallel::parallel;
use crate::schema::{FieldType, Schema};
use crate::segment::{Decimals, nearest, power};
use crate::time_units::timestamps;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::error::ArrowError;
use std::ops::Range;
use std::sync::Arc;

/// Columns of the bin itself: how many measurements, and how far the first and the last of them are from the start. No name of
/// a time or meta field has a dot, and the last part of no name of a state is one of these.
const MEASUREMENTS: &str = ".measurements";
const FROM: &str = ".from";
const TO: &str = ".to";

/// What the names of columns of states end with.
const COUNT: &str = "count";
const SUM: &str = "sum";
const SUM_HIGH: &str = "sum_high";
const SQUARES: &str = "squares";
const MIN: &str = "min";
const MAX: &str = "max";
const FIRST: &str = "first";
const FIRST_TIME: &str = "first_time";
const LAST: &str = "last";
const LAST_TIME: &str = "last_time";
const STATES: [&str; 10] = [COUNT, SUM, SUM_HIGH, SQUARES, MIN, MAX, FIRST, FIRST_TIME, LAST, LAST_TIME];
/// The same as the squares, by the digits after the point that all values have: see [`Excess`].
const EXCESS: [&str; 7] = ["excess", "excess_1", "excess_2", "excess_3", "excess_4", "excess_5", "excess_6"];

/// Under which names the states of a field are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredField {
    /// The field, or what it was called when its states began.
    pub field: String,
    /// Tells states that began anew from those before.
    pub since: u32,
}

impl StoredField {
    /// States that began with the field itself.
    #[must_use]
    pub fn plain(field: &str) -> StoredField {
        StoredField { field: field.to_owned(), since: 0 }
    }

    /// The name of a column of states. States that began anew have columns of their own.
    fn column(&self, state: &str) -> String {
        match (&self.field, self.since) {
            (field, 0) => format!("{field}.{state}"),
            (field, since) => format!("{field}.{state}.{since}"),
        }
    }
}

/// The columns of a segment of bins that have what is known of these fields, its time and meta included.
#[must_use]
pub fn stored_columns(schema: &Schema, fields: impl IntoIterator<Item = StoredField>) -> Vec<String> {
    let mut columns = vec![schema.time.clone()];
    columns.extend(schema.meta.clone().filter(|_| schema.meta_type.is_some()));
    let of_bin = [MEASUREMENTS, FROM, TO].into_iter().map(str::to_owned);
    let names = || STATES.into_iter().chain(EXCESS);
    let states = fields.into_iter().flat_map(|field| names().map(|state| field.column(state)).collect::<Vec<_>>());
    let all: Vec<String> = of_bin.chain(states).collect();
    columns.extend(all.into_iter().filter(|column| schema.fields.iter().any(|(name, _)| name == column)));
    columns
}

impl Bins {
    /// The bins as rows of a segment in order of meta and time, and their schema, in which `of` has the names of the time and
    /// the meta and the type of the meta. `stored` says under which names a field's states go.
    ///
    /// # Errors
    /// None that these columns can meet.
    pub fn to_stored(
        &self,
        of: &Schema,
        stored: impl Fn(&str) -> StoredField,
    ) -> Result<(Schema, RecordBatch), ArrowError> {
        let slots = self.sorted();
        let mut schema = Schema { fields: Vec::new(), ..of.clone() };
        let starts: Vec<i64> = slots.iter().map(|slot| self.window(self.ids[*slot].1).start).collect();
        let mut columns: Vec<ArrayRef> = vec![timestamps(starts.iter().copied().map(Some).collect(), of.precision)];
        if let Some(ty) = &of.meta_type {
            columns.push(self.meta_column(&slots, ty, of.precision)?);
        }
        let of_rows = |pick: fn(&Rows, i64) -> i64| -> ArrayRef {
            let ints = slots.iter().zip(&starts).map(|(slot, start)| Some(pick(&self.rows[*slot], *start)));
            Arc::new(ints.collect::<Int64Array>())
        };
        let mut of_bins = Writer::new(self, &slots, StoredField::plain(""));
        let ty = FieldType::Int64;
        let measurements = of_rows(|rows, _| rows.measurements.cast_signed());
        of_bins.put(MEASUREMENTS.to_owned(), ty.clone(), measurements);
        of_bins.put(FROM.to_owned(), ty.clone(), of_rows(|rows, start| rows.first.wrapping_sub(start)));
        of_bins.put(TO.to_owned(), ty, of_rows(|rows, start| rows.last.wrapping_sub(start)));
        let names: Vec<StoredField> = self.field_names().map(stored).collect();
        let of_fields = parallel(slots.len() as u64, names.len(), &|| self.all_cores, |at| {
            let mut writer = Writer::new(self, &slots, names[at].clone());
            writer.field(&self.fields[at].states);
            Ok::<_, ArrowError>(writer.columns)
        })?;
        for (name, ty, column) in of_bins.columns.into_iter().chain(of_fields.into_iter().flatten()) {
            schema.fields.push((name, ty));
            columns.push(column);
        }
        let batch = RecordBatch::try_new(schema.arrow(), columns)?;
        Ok((schema, batch))
    }

    /// Adds rows that [`Bins::to_stored`] made, of bins of the same width or of one that divides this one. `schema` has the
    /// name of the meta. `stored` says under which names a field's states are.
    ///
    /// # Errors
    /// If a column is not of the type that it must have.
    pub fn add_stored(
        &mut self,
        batch: &RecordBatch,
        schema: &Schema,
        stored: impl Fn(&str) -> StoredField,
    ) -> Result<(), ArrowError> {
        let of_bins = BinColumns::of(batch)?;
        let starts = of_bins.starts;
        let meta = schema.meta.as_ref().and_then(|meta| batch.column_by_name(meta));
        let (keys, places) = keys_of_column(meta, starts.len());
        let metas: Vec<u32> = keys.iter().map(|key| self.meta(key)).collect();
        let mut slots = Vec::with_capacity(starts.len());
        for (row, start) in starts.iter().enumerate() {
            let slot = self.slot(metas[places[row] as usize], start.div_euclid(self.step));
            self.rows[slot].merge(&of_bins.rows(row));
            slots.push(slot);
        }
        let bins = self.len();
        for field in &mut self.fields {
            let source = Source { batch, field: stored(&field.name), of_bins };
            match &mut field.states {
                States::Int(states) => add_all(states, &slots, &source.ints()?),
                States::Double(states) => add_all(states, &slots, &source.doubles()?),
                States::Bool(states) => add_all(states, &slots, &source.bools()?),
                States::Text(states) => add_all(states, &slots, &source.texts()?),
            }
            field.states.resize(bins);
        }
        Ok(())
    }
}

/// A sum is `high * 2^64 + low`.
fn low(sum: i128) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "the low part is what is asked for")]
    let low = sum as i64;
    low
}

fn high(sum: i128) -> i64 {
    i64::try_from((sum - i128::from(low(sum))) >> 64).unwrap_or(0)
}

fn sum_of_parts(low: i64, high: Option<i64>) -> i128 {
    (i128::from(high.unwrap_or(0)) << 64).wrapping_add(i128::from(low))
}

/// One of the values of a state.
type Pick<V> = fn(&State<V>) -> &V;

/// Makes columns of states.
struct Writer<'a> {
    bins: &'a Bins,
    slots: &'a [usize],
    field: StoredField,
    columns: Vec<(String, FieldType, ArrayRef)>,
}

impl<'a> Writer<'a> {
    fn new(bins: &'a Bins, slots: &'a [usize], field: StoredField) -> Writer<'a> {
        Writer { bins, slots, field, columns: Vec::new() }
    }

    fn put(&mut self, name: String, ty: FieldType, column: ArrayRef) {
        if column.null_count() < column.len() {
            self.columns.push((name, ty, column));
        }
    }

    /// All states of the field.
    fn field(&mut self, states: &States) {
        match states {
            States::Int(states) => {
                // A double holds such a sum, if the field widens.
                let small = |sum: i128| {
                    i64::try_from(sum).ok().filter(|sum| sum.unsigned_abs() <= WHOLE_MAX_INT.unsigned_abs())
                };
                self.squares(states, Some(0), |state| small(state.sum));
                self.values(FieldType::Int64, states, &|values| {
                    Arc::new(values.map(|v| v.copied()).collect::<Int64Array>())
                });
                let high = |state: &State<i64>| high(state.sum);
                let low = |state: &State<i64>| low(state.sum);
                self.states(SUM, states, |_, state| Some(low(state)));
                self.states(SUM_HIGH, states, |_, state| Some(high(state)).filter(|high| *high != 0));
            }
            States::Double(states) => {
                let scale = self.scale(states);
                let sum = |state: &State<f64>| sum_to_store(state.sum, scale);
                self.squares(states, scale, |state| whole_sum(sum(state), scale?));
                self.values(FieldType::Double, states, &|values| {
                    Arc::new(values.map(|v| v.copied()).collect::<Float64Array>())
                });
                let known = |slot: &usize| Some(&states[*slot]).filter(|state| state.count > 0).map(sum);
                let sums: Float64Array = self.slots.iter().map(known).collect();
                self.put(self.field.column(SUM), FieldType::Double, Arc::new(sums));
            }
            States::Bool(states) => self.values(FieldType::Bool, states, &|values| {
                Arc::new(values.map(|v| v.copied()).collect::<BooleanArray>())
            }),
            States::Text(states) => self.values(FieldType::String, states, &|values| {
                Arc::new(values.map(|v| v.map(AsRef::<str>::as_ref)).collect::<StringViewArray>())
            }),
        }
    }

    /// A column of whole numbers; null where there is no value, or where it is the usual one.
    fn states<V: BinValue>(&mut self, state: &str, states: &[State<V>], of: impl Fn(usize, &State<V>) -> Option<i64>) {
        let pick =
            |slot: &usize| Some(&states[*slot]).filter(|state| state.count > 0).and_then(|state| of(*slot, state));
        let column: Int64Array = self.slots.iter().map(pick).collect();
        self.put(self.field.column(state), FieldType::Int64, Arc::new(column));
    }

    /// Squared deviations of values with at most `scale` digits after the point; `sum` is that of a state times `10^scale`.
    fn squares<V: BinValue>(&mut self, states: &[State<V>], scale: Option<u8>, sum: impl Fn(&State<V>) -> Option<i64>) {
        let known = |slot: &usize| Some(&states[*slot]).filter(|state| state.count > 0 && state.squares != 0.0);
        let excess: Vec<Option<i64>> = match scale {
            None => vec![None; self.slots.len()],
            Some(scale) => {
                let of = |state: &State<V>| Excess { count: state.count, sum: sum(state)?, scale }.of(state.squares);
                self.slots.iter().map(|slot| known(slot).and_then(of)).collect()
            }
        };
        let others = self.slots.iter().zip(&excess).map(|(slot, excess)| match excess {
            None => known(slot).map(|state| rounded(state.squares)),
            Some(_) => None,
        });
        let others: Float64Array = others.collect();
        self.put(self.field.column(SQUARES), FieldType::Double, Arc::new(others));
        if let Some(name) = scale.and_then(|scale| EXCESS.get(usize::from(scale))) {
            self.put(self.field.column(name), FieldType::Int64, Arc::new(Int64Array::from(excess)));
        }
    }

    fn values<V: BinValue>(
        &mut self,
        ty: FieldType,
        states: &[State<V>],
        column: &dyn Fn(&mut dyn Iterator<Item = Option<&V>>) -> ArrayRef,
    ) {
        let bins = self.bins;
        let rows = &bins.rows;
        self.states(COUNT, states, |slot, state| {
            Some(state.count).filter(|count| *count != rows[slot].measurements).map(u64::cast_signed)
        });
        let picks: [(&str, Pick<V>); 4] =
            [(MIN, |s| &s.min), (MAX, |s| &s.max), (FIRST, |s| &s.first.1), (LAST, |s| &s.last.1)];
        for (state, pick) in picks {
            let mut values = self.slots.iter().map(|slot| Some(&states[*slot]).filter(|s| s.count > 0).map(pick));
            let column = column(&mut values);
            self.put(self.field.column(state), ty.clone(), column);
        }
        let since = |slot: usize, time: i64| time.wrapping_sub(bins.window(bins.ids[slot].1).start);
        self.states(FIRST_TIME, states, |slot, state| {
            (state.first.0 != rows[slot].first).then(|| since(slot, state.first.0))
        });
        self.states(LAST_TIME, states, |slot, state| {
            (state.last.0 != rows[slot].last).then(|| since(slot, state.last.0))
        });
    }

    /// How many digits after the point doubles have, if all that is known of them are short decimals.
    fn scale(&self, states: &[State<f64>]) -> Option<u8> {
        let known = self.slots.iter().map(|slot| &states[*slot]).filter(|state| state.count > 0);
        let mut decimals = Decimals::default();
        let values: Vec<f64> = known.flat_map(|s| [s.min, s.max, s.first.1, s.last.1]).collect();
        decimals.look_at(&values).then(|| decimals.scale()).flatten()
    }
}

/// The sum of doubles. Where all values are short decimals, their sum is the decimal that it is next to: merging rounds, and a
/// decimal takes a third of the space.
fn sum_to_store(sum: Compensated, scale: Option<u8>) -> f64 {
    scale.map_or(sum.value(), |scale| near_decimal(sum.value(), scale))
}

/// A sum times `10^scale`, rounded.
fn whole_sum(sum: f64, scale: u8) -> Option<i64> {
    let scaled = sum * power(scale);
    (scaled.abs() <= WHOLE_MAX).then(|| nearest(scaled))
}

/// Squared deviations as a whole number. Let `n` values be whole numbers (decimals times `10^scale`) with the sum `s` and the sum
/// of squares `q`. Their squared deviations come to `q - s^2 / n`, a fraction without end, and what is stored is `q` minus the
/// whole part of `s^2 / n`: a number of half as many digits.
struct Excess {
    count: u64,
    /// The sum of the whole numbers.
    sum: i64,
    scale: u8,
}

impl Excess {
    /// What of `s^2 / n` is beyond its whole part.
    #[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
    fn fraction(&self) -> f64 {
        let (sum, count) = (self.sum.unsigned_abs(), self.count.max(1));
        let rest = match sum.checked_mul(sum) {
            Some(square) => (square % count) as f64,
            None => (u128::from(sum).pow(2) % u128::from(count)) as f64,
        };
        rest / count as f64
    }

    /// The squared deviations of an excess.
    #[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
    fn squares(&self, excess: i64) -> f64 {
        (excess as f64 - self.fraction()) / power(self.scale) / power(self.scale)
    }

    /// The excess of squared deviations, if these come back of it as precisely as they would be stored otherwise: they do if all
    /// values were such decimals.
    fn of(&self, squares: f64) -> Option<i64> {
        const PRECISION: f64 = 1.0 / (1_u64 << 40) as f64;
        let excess = squares * power(self.scale) * power(self.scale) + self.fraction();
        if !(0.0..=WHOLE_MAX).contains(&excess) {
            return None;
        }
        let excess = nearest(excess);
        ((self.squares(excess) - squares).abs() <= squares * PRECISION).then_some(excess)
    }
}

/// Whole numbers up to it are exact as doubles, and quickly rounded to.
const WHOLE_MAX: f64 = 1e15;
const WHOLE_MAX_INT: i64 = 1_000_000_000_000_000;

/// The decimal with `scale` digits after the point that a sum is, but for rounding; else the sum itself.
#[expect(clippy::cast_precision_loss, reason = "the number is below 2^51")]
fn near_decimal(sum: f64, scale: u8) -> f64 {
    const NEAR: f64 = 1e-14;
    let scaled = sum * power(scale);
    if scaled.abs() > WHOLE_MAX || !scaled.is_finite() {
        return sum;
    }
    let decimal = nearest(scaled) as f64 / power(scale);
    if (decimal - sum).abs() <= sum.abs() * NEAR { decimal } else { sum }
}

/// A sum of squares to 40 binary digits, which is what can be relied on after merging; the rest would be noise to store.
fn rounded(squares: f64) -> f64 {
    const CUT: u64 = 1 << 12;
    if !squares.is_finite() {
        return squares;
    }
    f64::from_bits((squares.to_bits() + CUT / 2) & !(CUT - 1))
}

fn ints<'a>(batch: &'a RecordBatch, name: &str) -> Result<Option<&'a Int64Array>, ArrowError> {
    let Some(column) = batch.column_by_name(name) else { return Ok(None) };
    column.as_primitive_opt::<Int64Type>().map(Some).ok_or_else(|| wrong(name, column.data_type()))
}

fn wrong(name: &str, ty: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("column '{name}' of bins cannot be of type {ty}"))
}

fn value(column: Option<&Int64Array>, row: usize) -> Option<i64> {
    column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
}

/// The columns of stored bins themselves, whatever their fields.
#[derive(Clone, Copy)]
pub(super) struct BinColumns<'a> {
    pub(super) starts: &'a [i64],
    measurements: Option<&'a Int64Array>,
    from: Option<&'a Int64Array>,
    to: Option<&'a Int64Array>,
}

impl<'a> BinColumns<'a> {
    pub(super) fn of(batch: &'a RecordBatch) -> Result<BinColumns<'a>, ArrowError> {
        Ok(BinColumns {
            starts: times(batch)?,
            measurements: ints(batch, MEASUREMENTS)?,
            from: ints(batch, FROM)?,
            to: ints(batch, TO)?,
        })
    }

    pub(super) fn measurements(&self, row: usize) -> u64 {
        value(self.measurements, row).unwrap_or(0).cast_unsigned()
    }

    fn rows(&self, row: usize) -> Rows {
        let after = |of: Option<&Int64Array>| self.starts[row].wrapping_add(value(of, row).unwrap_or(0));
        Rows { measurements: self.measurements(row), first: after(self.from), last: after(self.to) }
    }
}

/// The number of states that are read at a time.
pub(super) const STATES_AT_ONCE: usize = 128;

/// Appends the states of these rows; without values those of no value.
pub(super) type ReadStates<'a, V> = Box<dyn Fn(Range<usize>, &mut Vec<State<V>>) + 'a>;

/// Merges all states that there are into those of their slots.
fn add_all<V: BinValue>(states: &mut Vec<State<V>>, slots: &[usize], read: &ReadStates<'_, V>) {
    let mut some = Vec::with_capacity(STATES_AT_ONCE);
    for (number, slots) in slots.chunks(STATES_AT_ONCE).enumerate() {
        let first = number * STATES_AT_ONCE;
        read(first..first + slots.len(), &mut some);
        slots.iter().zip(some.drain(..)).for_each(|(slot, state)| add(states, *slot, state));
    }
}

/// Stored states of one field.
pub(super) struct Source<'a> {
    pub(super) batch: &'a RecordBatch,
    pub(super) field: StoredField,
    pub(super) of_bins: BinColumns<'a>,
}

/// Numbers as doubles, whatever they are stored as.
#[expect(clippy::cast_precision_loss, reason = "the field widened")]
fn doubles(column: &ArrayRef) -> Float64Array {
    match column.as_primitive_opt::<Int64Type>() {
        Some(ints) => ints.unary(|value| value as f64),
        None => column.as_primitive::<Float64Type>().clone(),
    }
}

impl<'a> Source<'a> {
    fn name(&self, state: &str) -> String {
        self.field.column(state)
    }

    fn column(&self, state: &str) -> Option<&'a ArrayRef> {
        self.batch.column_by_name(&self.name(state))
    }

    /// The columns of values, if they are of a type, and there are any.
    fn four(&self, is: impl Fn(&DataType) -> bool) -> Result<Option<[&'a ArrayRef; 4]>, ArrowError> {
        let mut found = Vec::with_capacity(4);
        for state in [MIN, MAX, FIRST, LAST] {
            let Some(column) = self.column(state) else { return Ok(None) };
            if column.null_count() == column.len() {
                return Ok(None);
            }
            if !is(column.data_type()) {
                return Err(wrong(&self.name(state), column.data_type()));
            }
            found.push(column);
        }
        Ok(found.try_into().ok())
    }

    /// Reads the states of rows from these columns.
    fn states<A: Array + 'a, V: BinValue + 'a>(
        &self,
        columns: [A; 4],
        at: impl Fn(&A, usize) -> V + 'a,
        sum: impl Fn(usize) -> V::Sum + 'a,
        whole: impl Fn(usize, u8) -> Option<i64> + 'a,
    ) -> Result<ReadStates<'a, V>, ArrowError> {
        let int = |state: &str| ints(self.batch, &self.name(state));
        let (count, first, last) = (int(COUNT)?, int(FIRST_TIME)?, int(LAST_TIME)?);
        let squares = self
            .column(SQUARES)
            .map(|column| column.as_primitive_opt::<Float64Type>().ok_or_else(|| wrong(SQUARES, column.data_type())));
        let squares = squares.transpose()?;
        let excess = (0..).zip(EXCESS).filter_map(|(scale, name)| Some((scale, int(name).transpose()?)));
        let excess: Vec<(u8, &Int64Array)> =
            excess.map(|(scale, column)| Ok((scale, column?))).collect::<Result<_, ArrowError>>()?;
        let of_excess = move |row: usize, count: u64| {
            let (scale, excess) =
                excess.iter().find_map(|(scale, column)| Some((*scale, value(Some(column), row)?)))?;
            Some(Excess { count, sum: whole(row, scale)?, scale }.squares(excess))
        };
        let nulls = columns.iter().fold(None, |nulls, column| NullBuffer::union(nulls.as_ref(), column.nulls()));
        let of_bins = self.of_bins;
        let state = move |row: usize| {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                return State::default();
            }
            let [min, max, of_first, of_last] = &columns;
            let since = |of: i64| of_bins.starts[row].wrapping_add(of);
            let rows = of_bins.rows(row);
            let count = value(count, row).map_or(rows.measurements, i64::cast_unsigned);
            let squares = squares.filter(|squares| squares.is_valid(row)).map(|squares| squares.value(row));
            State {
                count,
                sum: sum(row),
                squares: squares.or_else(|| of_excess(row, count)).unwrap_or(0.0),
                min: at(min, row),
                max: at(max, row),
                first: (value(first, row).map_or(rows.first, since), at(of_first, row)),
                last: (value(last, row).map_or(rows.last, since), at(of_last, row)),
            }
        };
        Ok(Box::new(move |rows, states| states.extend(rows.map(&state))))
    }

    pub(super) fn ints(&self) -> Result<ReadStates<'a, i64>, ArrowError> {
        let Some(columns) = self.four(|ty| *ty == DataType::Int64)? else { return Ok(none()) };
        let (low, high) = (ints(self.batch, &self.name(SUM))?, ints(self.batch, &self.name(SUM_HIGH))?);
        let sum = move |row: usize| sum_of_parts(value(low, row).unwrap_or(0), value(high, row));
        let columns = columns.map(|column| column.as_primitive::<Int64Type>());
        self.states(columns, |column, row| column.value(row), sum, move |row, _| value(low, row))
    }

    #[expect(clippy::cast_precision_loss, reason = "the field widened")]
    pub(super) fn doubles(&self) -> Result<ReadStates<'a, f64>, ArrowError> {
        let is_number = |ty: &DataType| matches!(ty, DataType::Int64 | DataType::Float64);
        let Some(columns) = self.four(is_number)? else { return Ok(none()) };
        let low = self.column(SUM).filter(|column| is_number(column.data_type())).map(doubles);
        let sums = low.clone();
        let whole =
            move |row: usize, scale: u8| whole_sum(sums.as_ref().filter(|low| low.is_valid(row))?.value(row), scale);
        let high = ints(self.batch, &self.name(SUM_HIGH))?;
        let sum = move |row: usize| {
            let low = low.as_ref().filter(|low| low.is_valid(row)).map_or(0.0, |low| low.value(row));
            match value(high, row) {
                Some(high) => Compensated::of(high as f64 * 18_446_744_073_709_551_616.0 + low),
                None => Compensated::of(low),
            }
        };
        self.states(columns.map(doubles), Float64Array::value, sum, whole)
    }

    pub(super) fn bools(&self) -> Result<ReadStates<'a, bool>, ArrowError> {
        let Some(columns) = self.four(|ty| *ty == DataType::Boolean)? else { return Ok(none()) };
        let columns = columns.map(|column| column.as_boolean());
        self.states(columns, |column, row| column.value(row), |_| (), |_, _| None)
    }

    pub(super) fn texts(&self) -> Result<ReadStates<'a, Arc<str>>, ArrowError> {
        let Some(columns) = self.four(|ty| *ty == DataType::Utf8View)? else { return Ok(none()) };
        let columns = columns.map(|column| column.as_string_view());
        self.states(columns, |column, row| column.value(row).into(), |_| (), |_, _| None)
    }
}

/// The states of rows without values.
fn none<'a, V: BinValue>() -> ReadStates<'a, V> {
    Box::new(|rows, states| states.extend(rows.map(|_| State::default())))
}
