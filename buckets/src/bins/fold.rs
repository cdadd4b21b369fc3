//! From rows to bins.

use super::state::{BinValue, Compensated, State};
use super::{Bins, States};
use crate::segment::{decimal_to_double, power};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, Float64Type, Int64Type};
use arrow::error::ArrowError;
use arrow::util::bit_iterator::BitSliceIterator;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// Rows of one bin: its slot, the first row, the row after the last.
type Run = (usize, usize, usize);

impl Bins {
    /// Adds rows. `times` are theirs, and `columns` those of the fields, as they are stored or in their canonical form; a field
    /// that the rows do not have has none. Each piece has a meta, by its number, and rows in the order of time.
    ///
    /// # Errors
    /// If a column has a type that its field cannot have.
    pub fn fold(
        &mut self,
        times: &[i64],
        columns: &[Option<ArrayRef>],
        pieces: &[(u32, Range<usize>)],
    ) -> Result<(), ArrowError> {
        let mut runs: Vec<Run> = Vec::new();
        for (meta, rows) in pieces {
            let mut start = rows.start;
            while start < rows.end {
                let bin = times[start].div_euclid(self.step);
                let last = i64::try_from((i128::from(bin) + 1) * i128::from(self.step) - 1).unwrap_or(i64::MAX);
                let end = start + times[start..rows.end].partition_point(|t| *t <= last).max(1);
                let slot = self.slot(*meta, bin);
                let of_run =
                    super::Rows { measurements: (end - start) as u64, first: times[start], last: times[end - 1] };
                self.rows[slot].merge(&of_run);
                runs.push((slot, start, end));
                start = end;
            }
        }
        let slots = self.len();
        for (field, column) in self.fields.iter_mut().zip(columns) {
            field.states.resize(slots);
            if let Some(column) = column {
                fold_column(&mut field.states, column, times, &runs)?;
            }
        }
        Ok(())
    }
}

fn fold_column(states: &mut States, column: &ArrayRef, times: &[i64], runs: &[Run]) -> Result<(), ArrowError> {
    match (states, column.data_type()) {
        (States::Int(states), DataType::Int64) => {
            let ints = column.as_primitive::<Int64Type>();
            each(states, ints, runs, |range| whole(times, range, ints.values()));
        }
        (States::Double(states), DataType::Int64) => {
            let ints = column.as_primitive::<Int64Type>();
            each(states, ints, runs, |range| whole(times, range, ints.values()).widened());
        }
        (States::Double(states), DataType::Float64) => {
            let doubles = column.as_primitive::<Float64Type>();
            each(states, doubles, runs, |range| {
                let mut sum = Compensated::default();
                doubles.values()[range.clone()].iter().for_each(|v| sum.push(*v));
                let mean = sum.value() / len(&range);
                numbers(times, range, |row| doubles.value(row), sum, |v| v - mean)
            });
        }
        (States::Double(states), DataType::Decimal32(_, scale)) => {
            decimals(states, column.as_primitive::<Decimal32Type>(), *scale, times, runs);
        }
        (States::Double(states), DataType::Decimal64(_, scale)) => {
            decimals(states, column.as_primitive::<Decimal64Type>(), *scale, times, runs);
        }
        (States::Bool(states), DataType::Boolean) => {
            let bools = column.as_boolean();
            one_by_one(states, times, runs, |row| bools.is_valid(row).then(|| bools.value(row)));
        }
        (States::Text(states), DataType::Utf8View) => {
            let texts = column.as_string_view();
            one_by_one(states, times, runs, |row| texts.is_valid(row).then(|| texts.value(row)));
        }
        (states @ States::Text(_), DataType::Utf8 | DataType::LargeUtf8 | DataType::Dictionary(..)) => {
            return fold_column(states, &cast(column, &DataType::Utf8View)?, times, runs);
        }
        (_, ty) if column.null_count() < column.len() => {
            return Err(ArrowError::SchemaError(format!("a column of {ty} has no aggregates of its field's type")));
        }
        _ => {}
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a batch has fewer than 2^53 rows")]
fn len(range: &Range<usize>) -> f64 {
    range.len() as f64
}

/// Merges what each run of rows without nulls comes to into the state of its slot.
fn each<T: ArrowPrimitiveType, V: BinValue>(
    states: &mut [State<V>],
    column: &PrimitiveArray<T>,
    runs: &[Run],
    of: impl Fn(Range<usize>) -> State<V>,
) {
    for (slot, start, end) in runs {
        match column.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => states[*slot].merge(&of(*start..*end)),
            Some(nulls) => {
                for (from, to) in BitSliceIterator::new(nulls.validity(), nulls.offset() + start, end - start) {
                    states[*slot].merge(&of(start + from..start + to));
                }
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "squares of the differences from the mean are rounded anyway")]
fn whole(times: &[i64], rows: Range<usize>, values: &[i64]) -> State<i64> {
    let sum: i128 = values[rows.clone()].iter().map(|v| i128::from(*v)).sum();
    let mean = sum as f64 / len(&rows);
    numbers(times, rows, |row| values[row], sum, |v| *v as f64 - mean)
}

/// Doubles that are stored as whole numbers of a scale: their sum is exact before it is rounded.
#[expect(clippy::cast_precision_loss, reason = "stored whole numbers are below 10^15")]
fn decimals<T: ArrowPrimitiveType<Native: Into<i64>>>(
    states: &mut [State<f64>],
    column: &PrimitiveArray<T>,
    scale: i8,
    times: &[i64],
    runs: &[Run],
) {
    let scale = scale.unsigned_abs();
    let value = |row: usize| -> i64 { column.value(row).into() };
    each(states, column, runs, |rows| {
        let sum: i128 = rows.clone().map(|row| i128::from(value(row))).sum();
        let mean = sum as f64 / len(&rows);
        let of_k: State<i64> = numbers(times, rows, value, sum, |k| *k as f64 - mean);
        let double = |k: i64| decimal_to_double(k, scale);
        State {
            count: of_k.count,
            sum: Compensated::of(sum as f64 / power(scale)),
            squares: of_k.squares / power(scale) / power(scale),
            min: double(of_k.min),
            max: double(of_k.max),
            first: (of_k.first.0, double(of_k.first.1)),
            last: (of_k.last.0, double(of_k.last.1)),
        }
    });
}

/// Values that are not numbers.
trait Plain: BinValue<Sum = ()> {
    type Of<'a>: Copy;
    fn made(of: Self::Of<'_>) -> Self;
    /// How `of` compares with the value.
    fn order_of(&self, of: Self::Of<'_>) -> Ordering;
}

impl Plain for bool {
    type Of<'a> = bool;

    fn made(of: bool) -> bool {
        of
    }

    fn order_of(&self, of: bool) -> Ordering {
        of.cmp(self)
    }
}

impl Plain for Arc<str> {
    type Of<'a> = &'a str;

    fn made(of: &str) -> Arc<str> {
        of.into()
    }

    fn order_of(&self, of: &str) -> Ordering {
        of.cmp(&**self)
    }
}

/// Adds values row by row; one that changes nothing is not copied.
fn one_by_one<'v, V: Plain>(
    states: &mut [State<V>],
    times: &[i64],
    runs: &[Run],
    value: impl Fn(usize) -> Option<V::Of<'v>>,
) {
    for (slot, start, end) in runs {
        let state = &mut states[*slot];
        for (row, &time) in (*start..*end).zip(&times[*start..*end]) {
            let Some(v) = value(row) else { continue };
            if state.count == 0 {
                *state = State::of(time, &V::made(v), ());
                continue;
            }
            state.count += 1;
            if state.min.order_of(v).is_lt() {
                state.min = V::made(v);
            }
            if state.max.order_of(v).is_gt() {
                state.max = V::made(v);
            }
            if time.cmp(&state.first.0).then_with(|| state.first.1.order_of(v)).is_lt() {
                state.first = (time, V::made(v));
            }
            if time.cmp(&state.last.0).then_with(|| state.last.1.order_of(v)).is_gt() {
                state.last = (time, V::made(v));
            }
        }
    }
}

/// The state of rows without nulls, which are in the order of time.
fn numbers<V: BinValue + Copy>(
    times: &[i64],
    rows: Range<usize>,
    value: impl Fn(usize) -> V,
    sum: V::Sum,
    apart: impl Fn(&V) -> f64,
) -> State<V> {
    let (mut min, mut max) = (value(rows.start), value(rows.start));
    let mut squares = 0.0;
    for row in rows.clone() {
        let v = value(row);
        min = if v.order(&min).is_lt() { v } else { min };
        max = if v.order(&max).is_gt() { v } else { max };
        let apart = apart(&v);
        squares += apart * apart;
    }
    let (first, last) = (times[rows.start], times[rows.end - 1]);
    let firsts = rows.clone().take_while(|row| times[*row] == first).map(&value);
    let lasts = rows.clone().rev().take_while(|row| times[*row] == last).map(&value);
    let least = firsts.reduce(|a, b| if b.order(&a).is_lt() { b } else { a });
    let greatest = lasts.reduce(|a, b| if b.order(&a).is_gt() { b } else { a });
    State {
        count: rows.len() as u64,
        sum,
        squares,
        min,
        max,
        first: (first, least.unwrap_or_default()),
        last: (last, greatest.unwrap_or_default()),
    }
}
