//! The state of one field in one bin.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;

/// A value that bins can aggregate.
pub(super) trait BinValue: Debug + Clone + Default {
    /// What the sum of values is, if they are numbers.
    type Sum: Sum;

    /// The order by which there is a least and a greatest: of doubles the total one.
    fn order(&self, other: &Self) -> Ordering;
}

/// A sum under construction.
pub(super) trait Sum: Debug + Clone + Copy + Default {
    fn add(&mut self, other: &Self);
    /// As a double, for a mean.
    fn double(&self) -> f64;
}

impl Sum for () {
    fn add(&mut self, (): &()) {}

    fn double(&self) -> f64 {
        0.0
    }
}

impl Sum for i128 {
    fn add(&mut self, other: &i128) {
        // 2^63 values of 64 bits fit.
        *self = self.wrapping_add(*other);
    }

    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
    fn double(&self) -> f64 {
        *self as f64
    }
}

/// A sum of doubles and what rounding has taken from it so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Compensated {
    sum: f64,
    lost: f64,
}

impl Compensated {
    pub(super) fn of(sum: f64) -> Compensated {
        Compensated { sum, lost: 0.0 }
    }

    /// Adds one value (Neumaier's variant of Kahan's sum).
    pub(super) fn push(&mut self, value: f64) {
        let sum = self.sum + value;
        self.lost += match self.sum.abs() >= value.abs() {
            true => (self.sum - sum) + value,
            false => (value - sum) + self.sum,
        };
        self.sum = sum;
    }

    /// The sum. Once it is infinite or not a number, nothing was lost by rounding.
    pub(super) fn value(self) -> f64 {
        if self.sum.is_finite() && self.lost.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

impl Sum for Compensated {
    fn add(&mut self, other: &Compensated) {
        self.push(other.sum);
        self.lost += other.lost;
    }

    fn double(&self) -> f64 {
        self.value()
    }
}

impl BinValue for i64 {
    type Sum = i128;

    fn order(&self, other: &i64) -> Ordering {
        self.cmp(other)
    }
}

impl BinValue for f64 {
    type Sum = Compensated;

    fn order(&self, other: &f64) -> Ordering {
        self.total_cmp(other)
    }
}

impl BinValue for bool {
    type Sum = ();

    fn order(&self, other: &bool) -> Ordering {
        self.cmp(other)
    }
}

impl BinValue for Arc<str> {
    type Sum = ();

    fn order(&self, other: &Arc<str>) -> Ordering {
        self.cmp(other)
    }
}

/// Aggregates of the values that are not null. Where `count` is 0 the rest has no meaning.
#[derive(Debug, Clone, Default)]
pub(super) struct State<V: BinValue> {
    pub(super) count: u64,
    pub(super) sum: V::Sum,
    /// The sum of squared deviations from the mean.
    pub(super) squares: f64,
    pub(super) min: V,
    pub(super) max: V,
    /// The value at the least time, the least of several.
    pub(super) first: (i64, V),
    /// The value at the greatest time, the greatest of several.
    pub(super) last: (i64, V),
}

impl<V: BinValue> State<V> {
    /// The state of one value.
    pub(super) fn of(time: i64, value: &V, sum: V::Sum) -> State<V> {
        let edge = (time, value.clone());
        State { count: 1, sum, squares: 0.0, min: value.clone(), max: value.clone(), first: edge.clone(), last: edge }
    }

    pub(super) fn merge(&mut self, other: &State<V>) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            self.clone_from(other);
            return;
        }
        self.squares = squares(self, other);
        self.count += other.count;
        self.sum.add(&other.sum);
        if other.min.order(&self.min).is_lt() {
            self.min = other.min.clone();
        }
        if other.max.order(&self.max).is_gt() {
            self.max = other.max.clone();
        }
        if edges(&other.first, &self.first).is_lt() {
            self.first = other.first.clone();
        }
        if edges(&other.last, &self.last).is_gt() {
            self.last = other.last.clone();
        }
    }
}

/// Adds a state to that of a slot.
pub(super) fn add<V: BinValue>(states: &mut Vec<State<V>>, slot: usize, state: State<V>) {
    match states.get_mut(slot) {
        Some(to) => to.merge(&state),
        None => {
            states.resize_with(slot, State::default);
            states.push(state);
        }
    }
}

impl State<i64> {
    /// The same values as doubles.
    #[expect(clippy::cast_precision_loss, reason = "the field widened, and what is left of its values does with it")]
    pub(super) fn widened(&self) -> State<f64> {
        let double = |value: i64| value as f64;
        State {
            count: self.count,
            sum: Compensated::of(self.sum.double()),
            squares: self.squares,
            min: double(self.min),
            max: double(self.max),
            first: (self.first.0, double(self.first.1)),
            last: (self.last.0, double(self.last.1)),
        }
    }
}

/// By time, then by value.
fn edges<V: BinValue>(a: &(i64, V), b: &(i64, V)) -> Ordering {
    a.0.cmp(&b.0).then_with(|| a.1.order(&b.1))
}

/// Chan's formula for the sum of squared deviations of both together.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
fn squares<V: BinValue>(a: &State<V>, b: &State<V>) -> f64 {
    let (of_a, of_b) = (a.count as f64, b.count as f64);
    let apart = b.sum.double() / of_b - a.sum.double() / of_a;
    a.squares + b.squares + apart * apart * (of_a * of_b / (of_a + of_b))
}
