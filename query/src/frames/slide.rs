//! A frame that slides over the rows of a partition.

use super::keys::{Distance, beyond};
use super::other::OtherFrame;
use super::spec::{Function, Kind, Spec, Unit};
use crate::functions::{DoubleSum, Moments, double_is_wanted, whole_sum_beyond};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

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

impl Order {
    fn keys(&self, unit: Unit) -> &Kept<i128> {
        if unit == Unit::Peers { &self.peers } else { &self.values }
    }
}

/// Values of one function's argument.
#[derive(Debug)]
enum Values {
    Whole(Kept<Option<i64>>),
    Double(Kept<Option<f64>>),
    Any(Kept<bool>),
    Other(OtherFrame),
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
    /// Nothing is kept: the answer is a row's value, its number, or that of [`OtherFrame`].
    Rows,
}

/// Answers for rows, in order.
#[derive(Debug)]
enum Answers {
    Whole(Vec<Option<i64>>),
    Double(Vec<Option<f64>>),
    Other(Vec<ScalarValue>),
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
    /// The first row that a later frame may begin or end at.
    kept: usize,
    /// The first row of the partition that has no answer.
    next: usize,
    /// The keys that frames begin and end at, where the calendar says how far away they are.
    limits: [Kept<i128>; 2],
    answers: Answers,
}

impl Slide {
    pub(super) fn new(spec: Spec) -> Self {
        let values = match (&spec.other, spec.kind) {
            (Some(other), _) => Values::Other(OtherFrame::new(other.clone(), spec.result.clone(), spec.from.is_some())),
            (None, Kind::Whole) => Values::Whole(Kept::default()),
            (None, Kind::Double) => Values::Double(Kept::default()),
            (None, Kind::Any) => Values::Any(Kept::default()),
        };
        let answers = match (&spec.other, &spec.result) {
            (Some(_), _) => Answers::Other(Vec::new()),
            (None, DataType::Float64) => Answers::Double(Vec::new()),
            (None, _) => Answers::Whole(Vec::new()),
        };
        let inside = empty(&spec);
        let limits = [Kept::default(), Kept::default()];
        Slide { spec, values, inside, start: 0, end: 0, kept: 0, next: 0, limits, answers }
    }

    pub(super) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Adds further rows of the partition: the function's arguments and, for frames of values, what rows are ordered by.
    pub(super) fn add(&mut self, args: &[ArrayRef], order: Option<&(ArrayRef, SortOptions)>) -> Result<()> {
        for (limits, distance) in self.limits.iter_mut().zip([self.spec.from, self.spec.to]) {
            if let (Some(Distance::Calendar(shift)), Some((times, by))) = (distance, order) {
                shift.limits(times, *by)?.into_iter().for_each(|limit| limits.push(limit));
            }
        }
        if let Values::Other(frame) = &mut self.values {
            return frame.add(args);
        }
        let Some(values) = args.first() else { return Ok(()) };
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
            Values::Other(_) => {}
        }
        Ok(())
    }

    /// Answers for as many rows as can be told; all of them if the partition is `closed`.
    pub(super) fn advance(&mut self, order: &Order, closed: bool) -> Result<()> {
        while self.next < order.rows {
            let Some(end) = self.end_of(order, closed) else { break };
            let start = self.start_of(order);
            if start < self.start || end < self.end {
                // Months differ in length, so a frame can move back. It is then filled from its first row.
                self.leave_all();
                (self.start, self.end) = (start, start.min(end));
            }
            self.enter_all(self.end.max(start)..end)?;
            // Rows between the old end and the new start have never been in a frame.
            let entered = self.end;
            self.end = entered.max(end);
            if start >= end {
                self.leave_all();
            } else {
                self.leave_front(self.start..start.min(entered))?;
            }
            self.start = start;
            self.answer(start < end)?;
            self.next += 1;
        }
        self.forget(order);
        Ok(())
    }

    /// Lets go of the rows that no later frame holds.
    fn forget(&mut self, order: &Order) {
        let last = self.start.min(self.end);
        self.kept = match (self.spec.from, self.earliest_limit()) {
            (None, None) => self.end,
            (Some(_), None) => last,
            // Frames that move back are filled again from their first row.
            (None, Some(_)) => 0,
            (Some(_), Some(limit)) => {
                (self.kept..last).find(|row| order.values.get(*row) >= limit).unwrap_or(last.max(self.kept))
            }
        };
        self.limits.iter_mut().for_each(|limits| limits.forget(self.next.saturating_sub(1)));
        match &mut self.values {
            Values::Whole(kept) => kept.forget(self.kept),
            Values::Double(kept) => kept.forget(self.kept),
            Values::Any(kept) => kept.forget(self.kept),
            Values::Other(frame) => frame.forget(self.kept),
        }
    }

    /// The key before which no later frame begins or ends, if frames move back.
    fn earliest_limit(&self) -> Option<i128> {
        let ends = [self.spec.from, self.spec.to].into_iter().zip(&self.limits);
        let limits = ends.filter_map(|(distance, limits)| match distance {
            Some(Distance::Calendar(shift)) => {
                // Before the first answer, no row is let go of.
                let row = self.next.checked_sub(1);
                Some(row.map_or(i128::MIN, |row| limits.get(row).saturating_sub(shift.slack)))
            }
            _ => None,
        });
        limits.min()
    }

    /// The first row behind the frame of the next row; `None` if rows that are not known yet may be in it.
    fn end_of(&self, order: &Order, closed: bool) -> Option<usize> {
        let Some(distance) = self.spec.to else { return closed.then_some(order.rows) };
        let end = match (self.spec.unit, distance) {
            (Unit::Rows, Distance::Fixed(distance)) => {
                let end = usize::try_from(place(self.next) + distance + 1).unwrap_or(0);
                return (end <= order.rows || closed).then_some(end.min(order.rows));
            }
            (_, Distance::Fixed(distance)) => {
                let keys = order.keys(self.spec.unit);
                let limit = beyond(keys.get(self.next), distance);
                on(self.end, order.rows, |row| keys.get(row) <= limit)
            }
            (_, Distance::Calendar(_)) => {
                let limit = self.limits[1].get(self.next);
                self.seek(self.end, order, |key| key <= limit)
            }
        };
        (end < order.rows || closed).then_some(end)
    }

    fn start_of(&self, order: &Order) -> usize {
        match (self.spec.unit, self.spec.from) {
            (_, None) => 0,
            (Unit::Rows, Some(Distance::Fixed(distance))) => {
                usize::try_from(place(self.next) + distance).unwrap_or(0).min(order.rows)
            }
            (_, Some(Distance::Fixed(distance))) => {
                let keys = order.keys(self.spec.unit);
                let limit = beyond(keys.get(self.next), distance);
                on(self.start, order.rows, |row| keys.get(row) < limit)
            }
            (_, Some(Distance::Calendar(_))) => {
                let limit = self.limits[0].get(self.next);
                self.seek(self.start, order, |key| key < limit)
            }
        }
    }

    /// The first row that is not before an end of the frame. It may be before `from`, where this end was.
    fn seek(&self, from: usize, order: &Order, is_before: impl Fn(i128) -> bool) -> usize {
        let back = (self.kept..from).rev().take_while(|row| !is_before(order.values.get(*row))).count();
        on(from - back, order.rows, |row| is_before(order.values.get(row)))
    }

    /// Takes rows into the frame.
    fn enter_all(&mut self, rows: Range<usize>) -> Result<()> {
        if let Values::Other(frame) = &mut self.values {
            return frame.enter(&rows);
        }
        rows.for_each(|row| self.enter(row));
        Ok(())
    }

    /// Lets the first rows leave the frame.
    fn leave_front(&mut self, rows: Range<usize>) -> Result<()> {
        if let Values::Other(frame) = &mut self.values {
            return frame.leave(&rows);
        }
        rows.for_each(|row| self.leave(row));
        Ok(())
    }

    fn leave_all(&mut self) {
        self.inside = empty(&self.spec);
        if let Values::Other(frame) = &mut self.values {
            frame.leave_all();
        }
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
                answers.push(moments.spread(*count, spread));
            }
            (Inside::Count(count), Answers::Whole(answers)) => answers.push(Some(*count as i64)),
            (Inside::Rows, Answers::Whole(answers)) => answers.push(match &self.values {
                Values::Whole(values) if some => values.get(self.start),
                Values::Whole(_) | Values::Double(_) | Values::Other(_) => None,
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
            (_, Answers::Other(answers)) => {
                if let Values::Other(frame) = &mut self.values {
                    let end = if some { self.end } else { self.start };
                    answers.push(frame.answer(&(self.start..end))?);
                }
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
            Values::Other(frame) => frame.restart(),
        }
        self.inside = empty(&self.spec);
        self.limits.iter_mut().for_each(Kept::clear);
        (self.start, self.end, self.kept, self.next) = (0, 0, 0, 0);
    }

    /// The first row whose order is still looked at.
    pub(super) fn looks_from(&self) -> usize {
        self.kept.min(self.next)
    }

    /// Answers that nobody has taken.
    pub(super) fn answered(&self) -> usize {
        match &self.answers {
            Answers::Whole(answers) => answers.len(),
            Answers::Double(answers) => answers.len(),
            Answers::Other(answers) => answers.len(),
        }
    }

    /// Takes the first answers.
    pub(super) fn take(&mut self, rows: usize) -> Result<ArrayRef> {
        let answers: ArrayRef = match &mut self.answers {
            Answers::Whole(answers) => Arc::new(answers.drain(..rows).collect::<Int64Array>()),
            Answers::Double(answers) => Arc::new(answers.drain(..rows).collect::<Float64Array>()),
            Answers::Other(answers) => ScalarValue::iter_to_array(answers.drain(..rows))?,
        };
        Ok(cast(&answers, &self.spec.result)?)
    }

    pub(super) fn bytes(&self) -> usize {
        let values = match &self.values {
            Values::Whole(kept) => kept.bytes(),
            Values::Double(kept) => kept.bytes(),
            Values::Any(kept) => kept.bytes(),
            Values::Other(frame) => frame.bytes(),
        };
        let inside = match &self.inside {
            Inside::WholeExtreme(best) => best.capacity() * size_of::<(usize, i64)>(),
            Inside::DoubleExtreme(best) => best.capacity() * size_of::<(usize, f64)>(),
            _ => 0,
        };
        let answer = if self.spec.other.is_some() { size_of::<ScalarValue>() } else { size_of::<Option<f64>>() };
        let limits: usize = self.limits.iter().map(Kept::bytes).sum();
        values + inside + limits + self.answered() * answer
    }
}

fn empty(spec: &Spec) -> Inside {
    match (spec.function, spec.kind) {
        (Function::Value | Function::Number | Function::Other, _) => Inside::Rows,
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

/// The first row from some row on that is not before an end of a frame.
fn on(from: usize, rows: usize, is_before: impl Fn(usize) -> bool) -> usize {
    (from..rows).find(|row| !is_before(*row)).unwrap_or(rows.max(from))
}
