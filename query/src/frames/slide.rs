//! A frame that slides over the rows of a partition.

use super::spec::{Function, Kind, Spec, Unit};
use crate::functions::{double_is_wanted, whole_sum_beyond};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::Result;
use std::collections::VecDeque;
use std::sync::Arc;

/// The order of rows whose order is null, when these come last; the negative of it when they come first.
pub(super) const NULL_ORDER: i128 = i128::MAX;

/// Items of a partition's rows from some row on.
#[derive(Debug)]
pub(super) struct Kept<T> {
    base: usize,
    items: Vec<T>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept { base: 0, items: Vec::new() }
    }
}

impl<T: Copy> Kept<T> {
    pub(super) fn push(&mut self, item: T) {
        self.items.push(item);
    }

    fn get(&self, row: usize) -> T {
        self.items[row - self.base]
    }

    /// Lets go of the rows before one.
    pub(super) fn forget(&mut self, before: usize) {
        let gone = before.saturating_sub(self.base).min(self.items.len());
        // Now and then: what stays is moved.
        if gone > 1 << 12 && gone > self.items.len() / 2 {
            self.items.drain(..gone);
            self.base += gone;
        }
    }

    pub(super) fn clear(&mut self) {
        self.base = 0;
        self.items.clear();
    }

    pub(super) fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>()
    }
}

/// The order of a partition's rows.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Rows that are known.
    pub(super) rows: usize,
    /// What they are ordered by, rising.
    pub(super) values: Kept<i128>,
    /// The groups of equal rows that they are in.
    pub(super) peers: Kept<i128>,
}

/// Values of one function's argument.
#[derive(Debug)]
enum Values {
    Whole(Kept<Option<i64>>),
    Double(Kept<Option<f64>>),
    Any(Kept<bool>),
}

/// What is in the frame.
#[derive(Debug)]
enum Inside {
    /// Sum and count.
    Whole(i128, u64),
    Double(DoubleSum, u64),
    Spread(Moments, u64),
    Count(u64),
    /// Those that may become the wanted one, best first.
    WholeExtreme(VecDeque<(usize, i64)>),
    DoubleExtreme(VecDeque<(usize, f64)>),
    /// Nothing is kept: the answer is a row's value, or its number.
    Rows,
}

/// Answers for rows, in order.
#[derive(Debug)]
enum Answers {
    Whole(Vec<Option<i64>>),
    Double(Vec<Option<f64>>),
}

/// One function over one partition after the other.
#[derive(Debug)]
pub(super) struct Slide {
    spec: Spec,
    values: Values,
    inside: Inside,
    /// The frame of the row before `next`.
    start: usize,
    end: usize,
    /// The first row of the partition that has no answer.
    next: usize,
    answers: Answers,
}

impl Slide {
    pub(super) fn new(spec: Spec) -> Self {
        let values = match spec.kind {
            Kind::Whole => Values::Whole(Kept::default()),
            Kind::Double => Values::Double(Kept::default()),
            Kind::Any => Values::Any(Kept::default()),
        };
        let answers =
            if spec.result == DataType::Float64 { Answers::Double(Vec::new()) } else { Answers::Whole(Vec::new()) };
        let inside = empty(&spec);
        Slide { spec, values, inside, start: 0, end: 0, next: 0, answers }
    }

    pub(super) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Adds the values of further rows of the partition.
    pub(super) fn add(&mut self, values: &ArrayRef) -> Result<()> {
        match &mut self.values {
            Values::Whole(kept) => {
                let values = cast(values, &DataType::Int64)?;
                values.as_primitive::<Int64Type>().iter().for_each(|value| kept.push(value));
            }
            Values::Double(kept) => values.as_primitive::<Float64Type>().iter().for_each(|value| kept.push(value)),
            Values::Any(kept) => {
                let nulls = values.logical_nulls();
                let is_valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                (0..values.len()).for_each(|row| kept.push(is_valid(row)));
            }
        }
        Ok(())
    }

    /// Answers for as many rows as can be told; all of them if the partition is `closed`.
    pub(super) fn advance(&mut self, order: &Order, closed: bool) -> Result<()> {
        while self.next < order.rows {
            let Some(end) = self.end_of(order, closed) else { break };
            let start = self.start_of(order);
            for row in self.end.max(start)..end {
                self.enter(row);
            }
            // Rows between the old end and the new start have never been in a frame.
            let entered = self.end;
            self.end = entered.max(end);
            if start >= end {
                self.inside = empty(&self.spec);
            } else {
                for row in self.start..start.min(entered) {
                    self.leave(row);
                }
            }
            self.start = start;
            self.answer(start < end)?;
            self.next += 1;
        }
        let needed = if self.spec.from.is_none() { self.end } else { self.start.min(self.end) };
        match &mut self.values {
            Values::Whole(kept) => kept.forget(needed),
            Values::Double(kept) => kept.forget(needed),
            Values::Any(kept) => kept.forget(needed),
        }
        Ok(())
    }

    /// The first row behind the frame of the next row; `None` if rows that are not known yet may be in it.
    fn end_of(&self, order: &Order, closed: bool) -> Option<usize> {
        let Some(distance) = self.spec.to else { return closed.then_some(order.rows) };
        let keys = match self.spec.unit {
            Unit::Rows => {
                let end = usize::try_from(place(self.next) + distance + 1).unwrap_or(0);
                return (end <= order.rows || closed).then_some(end.min(order.rows));
            }
            Unit::Peers => &order.peers,
            Unit::Order => &order.values,
        };
        let limit = beyond(keys.get(self.next), distance);
        let mut end = self.end;
        while end < order.rows && keys.get(end) <= limit {
            end += 1;
        }
        (end < order.rows || closed).then_some(end)
    }

    fn start_of(&self, order: &Order) -> usize {
        let Some(distance) = self.spec.from else { return 0 };
        let keys = match self.spec.unit {
            Unit::Rows => return usize::try_from(place(self.next) + distance).unwrap_or(0).min(order.rows),
            Unit::Peers => &order.peers,
            Unit::Order => &order.values,
        };
        let limit = beyond(keys.get(self.next), distance);
        let mut start = self.start;
        while start < order.rows && keys.get(start) < limit {
            start += 1;
        }
        start
    }

    fn enter(&mut self, row: usize) {
        let greatest = self.spec.function == Function::Max;
        match (&self.values, &mut self.inside) {
            (Values::Whole(values), Inside::Whole(sum, count)) => {
                if let Some(value) = values.get(row) {
                    *sum += i128::from(value);
                    *count += 1;
                }
            }
            (Values::Double(values), Inside::Double(sum, count)) => {
                if let Some(value) = values.get(row) {
                    sum.add(value);
                    *count += 1;
                }
            }
            (Values::Double(values), Inside::Spread(moments, count)) => {
                if let Some(value) = values.get(row) {
                    moments.add(value);
                    *count += 1;
                }
            }
            (Values::Any(values), Inside::Count(count)) => *count += u64::from(values.get(row)),
            (Values::Whole(values), Inside::WholeExtreme(best)) => {
                if let Some(value) = values.get(row) {
                    while best.back().is_some_and(|(_, old)| if greatest { *old <= value } else { *old >= value }) {
                        best.pop_back();
                    }
                    best.push_back((row, value));
                }
            }
            (Values::Double(values), Inside::DoubleExtreme(best)) => {
                if let Some(value) = values.get(row) {
                    while best.back().is_some_and(|(_, old)| !double_is_wanted(greatest, *old, value)) {
                        best.pop_back();
                    }
                    best.push_back((row, value));
                }
            }
            _ => {}
        }
    }

    fn leave(&mut self, row: usize) {
        match (&self.values, &mut self.inside) {
            (Values::Whole(values), Inside::Whole(sum, count)) => {
                if let Some(value) = values.get(row) {
                    *sum -= i128::from(value);
                    *count -= 1;
                }
            }
            (Values::Double(values), Inside::Double(sum, count)) => {
                if let Some(value) = values.get(row) {
                    sum.take_off(value);
                    *count -= 1;
                }
            }
            (Values::Double(values), Inside::Spread(moments, count)) => {
                if let Some(value) = values.get(row) {
                    moments.take_off(value);
                    *count -= 1;
                }
            }
            (Values::Any(values), Inside::Count(count)) => *count -= u64::from(values.get(row)),
            (_, Inside::WholeExtreme(best)) if best.front().is_some_and(|(at, _)| *at <= row) => {
                best.pop_front();
            }
            (_, Inside::DoubleExtreme(best)) if best.front().is_some_and(|(at, _)| *at <= row) => {
                best.pop_front();
            }
            _ => {}
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_wrap,
        reason = "an average is a double, and rows are few"
    )]
    fn answer(&mut self, some: bool) -> Result<()> {
        let average = self.spec.function == Function::Avg;
        match (&mut self.inside, &mut self.answers) {
            (Inside::Whole(sum, count), Answers::Whole(answers)) => {
                let fitted = i64::try_from(*sum).or_else(|_| whole_sum_beyond(*sum))?;
                answers.push((*count > 0).then_some(fitted));
            }
            (Inside::Whole(sum, count), Answers::Double(answers)) => {
                answers.push((*count > 0).then(|| *sum as f64 / *count as f64));
            }
            (Inside::Double(sum, count), Answers::Double(answers)) => {
                if sum.overflowed() && self.spec.from.is_some() {
                    // What overflowed may have left the frame.
                    *sum = DoubleSum::default();
                    if let Values::Double(values) = &self.values {
                        (self.start..self.end).filter_map(|row| values.get(row)).for_each(|value| sum.add(value));
                    }
                }
                let total = sum.value();
                answers.push((*count > 0).then(|| if average { total / *count as f64 } else { total }));
            }
            (Inside::Spread(moments, count), Answers::Double(answers)) => {
                if moments.overflowed()
                    && self.spec.from.is_some()
                    && let Values::Double(values) = &self.values
                {
                    *moments = Moments::default();
                    (self.start..self.end).filter_map(|row| values.get(row)).for_each(|value| moments.add(value));
                }
                let Function::Spread(spread) = self.spec.function else { return Ok(()) };
                let divisor = *count - u64::from(spread.is_of_sample && *count > 0);
                let variance = match *count {
                    1 => 0.0,
                    count => moments.squared_deviations(count) / divisor as f64,
                };
                answers.push((divisor > 0).then(|| if spread.is_root { variance.sqrt() } else { variance }));
            }
            (Inside::Count(count), Answers::Whole(answers)) => answers.push(Some(*count as i64)),
            (Inside::Rows, Answers::Whole(answers)) => answers.push(match &self.values {
                Values::Whole(values) if some => values.get(self.start),
                Values::Whole(_) | Values::Double(_) => None,
                Values::Any(_) => Some(self.next as i64 + 1),
            }),
            (Inside::Rows, Answers::Double(answers)) => answers.push(match &self.values {
                Values::Double(values) if some => values.get(self.start),
                _ => None,
            }),
            (Inside::WholeExtreme(best), Answers::Whole(answers)) => {
                answers.push(best.front().filter(|_| some).map(|(_, value)| *value));
            }
            (Inside::DoubleExtreme(best), Answers::Double(answers)) => {
                let best = best.front().filter(|_| some).map(|(_, value)| *value);
                answers.push(best.map(|value| if value.is_nan() { f64::NAN } else { value }));
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins with another partition.
    pub(super) fn restart(&mut self) {
        match &mut self.values {
            Values::Whole(kept) => kept.clear(),
            Values::Double(kept) => kept.clear(),
            Values::Any(kept) => kept.clear(),
        }
        self.inside = empty(&self.spec);
        (self.start, self.end, self.next) = (0, 0, 0);
    }

    /// The first row whose order is still looked at.
    pub(super) fn looks_from(&self) -> usize {
        let back = if self.spec.from.is_none() { usize::MAX } else { self.start };
        back.min(self.end).min(self.next)
    }

    /// Answers that nobody has taken.
    pub(super) fn answered(&self) -> usize {
        match &self.answers {
            Answers::Whole(answers) => answers.len(),
            Answers::Double(answers) => answers.len(),
        }
    }

    /// Takes the first answers.
    pub(super) fn take(&mut self, rows: usize) -> Result<ArrayRef> {
        let answers: ArrayRef = match &mut self.answers {
            Answers::Whole(answers) => Arc::new(answers.drain(..rows).collect::<Int64Array>()),
            Answers::Double(answers) => Arc::new(answers.drain(..rows).collect::<Float64Array>()),
        };
        Ok(cast(&answers, &self.spec.result)?)
    }

    pub(super) fn bytes(&self) -> usize {
        let values = match &self.values {
            Values::Whole(kept) => kept.bytes(),
            Values::Double(kept) => kept.bytes(),
            Values::Any(kept) => kept.bytes(),
        };
        let inside = match &self.inside {
            Inside::WholeExtreme(best) => best.capacity() * size_of::<(usize, i64)>(),
            Inside::DoubleExtreme(best) => best.capacity() * size_of::<(usize, f64)>(),
            _ => 0,
        };
        values + inside + self.answered() * size_of::<Option<f64>>()
    }
}

fn empty(spec: &Spec) -> Inside {
    match (spec.function, spec.kind) {
        (Function::Value | Function::Number, _) => Inside::Rows,
        (Function::Spread(_), _) => Inside::Spread(Moments::default(), 0),
        (Function::Count, _) | (_, Kind::Any) => Inside::Count(0),
        (Function::Sum | Function::Avg, Kind::Whole) => Inside::Whole(0, 0),
        (Function::Sum | Function::Avg, Kind::Double) => Inside::Double(DoubleSum::default(), 0),
        (_, Kind::Whole) => Inside::WholeExtreme(VecDeque::new()),
        (_, Kind::Double) => Inside::DoubleExtreme(VecDeque::new()),
    }
}

fn place(row: usize) -> i128 {
    i128::try_from(row).unwrap_or(i128::MAX)
}

/// The key at a distance; those of nulls are at none.
fn beyond(key: i128, distance: i128) -> i128 {
    if key == NULL_ORDER || key == -NULL_ORDER { key } else { key.saturating_add(distance) }
}

/// A sum of doubles, and what its additions rounded off. Values that are not finite are counted apart.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct DoubleSum {
    sum: f64,
    rest: f64,
    nans: u64,
    above: u64,
    below: u64,
}

impl DoubleSum {
    fn add(&mut self, value: f64) {
        if value.is_finite() { self.fold(value) } else { *self.odd(value) += 1 }
    }

    fn take_off(&mut self, value: f64) {
        if value.is_finite() { self.fold(-value) } else { *self.odd(value) -= 1 }
    }

    fn odd(&mut self, value: f64) -> &mut u64 {
        match value {
            value if value.is_nan() => &mut self.nans,
            value if value > 0.0 => &mut self.above,
            _ => &mut self.below,
        }
    }

    /// Adds two doubles, and what that rounds off (Knuth's two-sum).
    fn fold(&mut self, value: f64) {
        let sum = self.sum + value;
        let part = sum - self.sum;
        self.rest += (self.sum - (sum - part)) + (value - part);
        self.sum = sum;
    }

    fn overflowed(&self) -> bool {
        !self.sum.is_finite() || !self.rest.is_finite()
    }

    fn value(&self) -> f64 {
        match (self.nans, self.above, self.below) {
            (0, 0, 0) if self.overflowed() => self.sum,
            (0, 0, 0) => self.sum + self.rest,
            (0, _, 0) => f64::INFINITY,
            (0, 0, _) => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }
}

/// Sums of doubles and of their squares, each with what it rounded off: what is left of a value that was taken off is nothing.
#[derive(Debug, Default, Clone, Copy)]
struct Moments {
    sum: DoubleSum,
    squares: DoubleSum,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.sum.add(value);
        if value.is_finite() {
            let (square, rest) = product(value, value);
            self.squares.fold(square);
            self.squares.fold(rest);
        }
    }

    fn take_off(&mut self, value: f64) {
        self.sum.take_off(value);
        if value.is_finite() {
            let (square, rest) = product(value, value);
            self.squares.fold(-square);
            self.squares.fold(-rest);
        }
    }

    fn overflowed(&self) -> bool {
        self.sum.overflowed() || self.squares.overflowed()
    }

    /// The sum of squared deviations from the mean of `count` values; NaN if a value is not finite or a sum overflows.
    #[expect(clippy::cast_precision_loss, reason = "rows are fewer than 2^53")]
    fn squared_deviations(&self, count: u64) -> f64 {
        if !self.sum.value().is_finite() || self.overflowed() {
            return f64::NAN;
        }
        let (sum, rest, count) = (self.sum.sum, self.sum.rest, count as f64);
        // (sum + rest)^2 / count, in two doubles.
        let (square, square_rest) = product(sum, sum);
        let quotient = square / count;
        let (whole, whole_rest) = product(quotient, count);
        let remainder = (square - whole) - whole_rest + square_rest + 2.0 * sum * rest + rest * rest;
        let deviations = (self.squares.sum - quotient) + (self.squares.rest - remainder / count);
        deviations.max(0.0)
    }
}

/// A product, and what it rounded off (Dekker's product).
fn product(a: f64, b: f64) -> (f64, f64) {
    let split = |value: f64| {
        let scaled = value * 134_217_729.0;
        let high = scaled - (scaled - value);
        (high, value - high)
    };
    let ((a_high, a_low), (b_high, b_low)) = (split(a), split(b));
    let rounded = a * b;
    (rounded, ((a_high * b_high - rounded) + a_high * b_low + a_low * b_high) + a_low * b_low)
}
