//! Counts, bounds and sums of runs of rows, straight from columns in the form in which they are stored.

use super::decimals::power;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, Float64Type, Int64Type};

/// The aggregate of the non-null values of some rows. If `count` is 0 the rest is meaningless.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Accumulator<T, S> {
    /// Values that are not null.
    pub count: u64,
    /// The least; doubles in total order (NaN above infinity, -0.0 below 0.0).
    pub min: T,
    /// The greatest, in the same order.
    pub max: T,
    /// Their sum.
    pub sum: S,
}

/// Of integers. The sum is exact.
pub type IntAccumulator = Accumulator<i64, i128>;
/// For doubles. The order of additions is unspecified; of rows that are stored as decimals it is exact before it is
/// rounded.
pub type DoubleAccumulator = Accumulator<f64, f64>;

impl IntAccumulator {
    /// Merges the aggregate of other rows.
    pub fn merge(&mut self, other: &IntAccumulator) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }
}

impl DoubleAccumulator {
    /// Merges the aggregate of other rows.
    pub fn merge(&mut self, other: &DoubleAccumulator) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        self.count += other.count;
        self.min = if other.min.total_cmp(&self.min).is_lt() { other.min } else { self.min };
        self.max = if other.max.total_cmp(&self.max).is_gt() { other.max } else { self.max };
        self.sum += other.sum;
    }
}

/// Rows of a column that belong to one of many accumulators: the accumulator's number, the first row, the row after the last.
pub type Run = (u32, u32, u32);

/// Adds runs of rows of an int64 column to accumulators of whole numbers. Columns of other types add nothing.
pub fn accumulate_ints(column: &ArrayRef, runs: &[Run], accumulators: &mut [IntAccumulator]) {
    let Some(ints) = column.as_primitive_opt::<Int64Type>() else { return };
    each(ints.values(), ints.nulls(), runs, accumulators, ints_of, IntAccumulator::merge);
}

/// Adds runs of rows of a numeric column, as it is stored or in its canonical form, to accumulators of doubles. Columns of
/// other types add nothing.
#[expect(clippy::cast_precision_loss, reason = "whole numbers in a field of doubles are ones that a double holds")]
pub fn accumulate_doubles(column: &ArrayRef, runs: &[Run], accumulators: &mut [DoubleAccumulator]) {
    let merge = DoubleAccumulator::merge;
    match column.data_type() {
        DataType::Float64 => {
            let doubles = column.as_primitive::<Float64Type>();
            each(doubles.values(), doubles.nulls(), runs, accumulators, doubles_of, merge);
        }
        DataType::Decimal32(_, scale) => {
            let (decimals, power) = (column.as_primitive::<Decimal32Type>(), power_of(*scale));
            let accumulate = |values: &[i32]| {
                // Sums of 2^32 values of 32 bits fit into 64.
                let (mut min, mut max, mut sum) = (i32::MAX, i32::MIN, 0_i64);
                for k in values {
                    min = min.min(*k);
                    max = max.max(*k);
                    sum += i64::from(*k);
                }
                let count = values.len() as u64;
                Accumulator { count, min: f64::from(min) / power, max: f64::from(max) / power, sum: sum as f64 / power }
            };
            each(decimals.values(), decimals.nulls(), runs, accumulators, accumulate, merge);
        }
        DataType::Decimal64(_, scale) => {
            let (decimals, power) = (column.as_primitive::<Decimal64Type>(), power_of(*scale));
            let accumulate = |values: &[i64]| of_whole(values, power);
            each(decimals.values(), decimals.nulls(), runs, accumulators, accumulate, merge);
        }
        DataType::Int64 => {
            let ints = column.as_primitive::<Int64Type>();
            each(ints.values(), ints.nulls(), runs, accumulators, |values| of_whole(values, 1.0), merge);
        }
        _ => {}
    }
}

/// The value of a numeric column in a row, as a double; `None` if it is null or no number.
#[expect(clippy::cast_precision_loss, reason = "as in accumulate_doubles")]
#[must_use]
pub fn double_at(column: &ArrayRef, row: usize) -> Option<f64> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Float64 => Some(column.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal32(_, s) => Some(f64::from(column.as_primitive::<Decimal32Type>().value(row)) / power_of(*s)),
        DataType::Decimal64(_, s) => Some(column.as_primitive::<Decimal64Type>().value(row) as f64 / power_of(*s)),
        DataType::Int64 => Some(column.as_primitive::<Int64Type>().value(row) as f64),
        _ => None,
    }
}

fn power_of(scale: i8) -> f64 {
    power(scale.unsigned_abs())
}

fn ints_of(values: &[i64]) -> IntAccumulator {
    let (mut min, mut max) = (i64::MAX, i64::MIN);
    for v in values {
        min = min.min(*v);
        max = max.max(*v);
    }
    // The sum of this many values between these bounds fits into 64 bits.
    let bound = u64::MAX >> 1 >> (usize::BITS - values.len().leading_zeros());
    let small = min.unsigned_abs() <= bound && max.unsigned_abs() <= bound;
    let sum = match small {
        true => i128::from(values.iter().sum::<i64>()),
        false => values.iter().map(|v| i128::from(*v)).sum(),
    };
    Accumulator { count: values.len() as u64, min, max, sum }
}

#[expect(clippy::cast_precision_loss, reason = "as in accumulate_doubles")]
fn of_whole(values: &[i64], power: f64) -> DoubleAccumulator {
    let Accumulator { count, min, max, sum } = ints_of(values);
    Accumulator { count, min: min as f64 / power, max: max as f64 / power, sum: sum as f64 / power }
}

fn doubles_of(values: &[f64]) -> DoubleAccumulator {
    // Bits folded so that the integers have the total order of the doubles.
    let fold = |bits: i64| bits ^ (((bits >> 63).cast_unsigned()) >> 1).cast_signed();
    let (mut min, mut max, mut sum) = (i64::MAX, i64::MIN, 0.0);
    for v in values {
        let key = fold(v.to_bits().cast_signed());
        min = min.min(key);
        max = max.max(key);
        sum += v;
    }
    let unfold = |key: i64| f64::from_bits(fold(key).cast_unsigned());
    Accumulator { count: values.len() as u64, min: unfold(min), max: unfold(max), sum }
}

/// Passes each run's ranges of valid values to `accumulate`, and their aggregate to `merge`.
fn each<V, T>(
    values: &[V],
    nulls: Option<&NullBuffer>,
    runs: &[Run],
    accumulators: &mut [T],
    accumulate: impl Fn(&[V]) -> T,
    merge: impl Fn(&mut T, &T),
) {
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    for (number, start, end) in runs {
        let (start, end) = (*start as usize, *end as usize);
        let Some(into) = accumulators.get_mut(*number as usize) else { continue };
        let Some(nulls) = nulls else {
            merge(into, &accumulate(&values[start..end]));
            continue;
        };
        let mut at = start;
        while at < end {
            if nulls.is_null(at) {
                at += 1;
                continue;
            }
            let from = at;
            while at < end && nulls.is_valid(at) {
                at += 1;
            }
            merge(into, &accumulate(&values[from..at]));
        }
    }
}
