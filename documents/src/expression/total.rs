//! Sums of numbers.

use super::Value;
use super::figure::FigureValue;
use crate::Decimal;
use crate::order::Number;
use bson::raw::{RawBson, RawBsonRef};

/// How doubles are added up.
pub(crate) trait Summation: Clone + Default {
    fn add(&mut self, x: f64);
    fn total(&self) -> f64;
    /// The sum beside decimals.
    fn decimal(&self) -> Decimal;
}

/// A sum of doubles with what rounding lost, as MongoDB keeps it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DoubleSum {
    sum: f64,
    lost: f64,
    /// The plain sum, which tells infinities and NaN.
    plain: f64,
}

impl Summation for DoubleSum {
    fn add(&mut self, x: f64) {
        self.plain += x;
        let sum = x + self.sum;
        let part = sum - x;
        self.lost += (x - (sum - part)) + (self.sum - part);
        self.sum = sum;
    }

    fn total(&self) -> f64 {
        let total = self.sum + self.lost;
        if total.is_finite() { total } else { self.plain }
    }

    fn decimal(&self) -> Decimal {
        match (self.sum + self.lost).is_finite() {
            true => Decimal::of_sum(self.sum).add(Decimal::of_sum(self.lost)),
            false => Decimal::of_sum(self.plain),
        }
    }
}

/// An exact sum of doubles below [`Exact::BOUND`], from which those that were added can be taken away: parts that do not
/// overlap, the least first (Shewchuk 1997). The total is rounded once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exact {
    parts: Vec<f64>,
    nans: u64,
    infinities: u64,
    negative_infinities: u64,
}

impl Exact {
    /// Sums of larger doubles might not be finite.
    pub(crate) const BOUND: f64 = 1e290;

    fn unusual(&mut self, x: f64) -> Option<&mut u64> {
        match x {
            x if x.is_nan() => Some(&mut self.nans),
            f64::INFINITY => Some(&mut self.infinities),
            f64::NEG_INFINITY => Some(&mut self.negative_infinities),
            _ => None,
        }
    }

    /// Takes away a number that was added.
    fn remove(&mut self, x: f64) {
        match self.unusual(x) {
            Some(count) => *count -= 1,
            None => self.add(-x),
        }
    }
}

impl Summation for Exact {
    fn add(&mut self, x: f64) {
        if let Some(count) = self.unusual(x) {
            *count += 1;
            return;
        }
        let (mut carried, mut kept) = (x, 0);
        for at in 0..self.parts.len() {
            let part = self.parts[at];
            let (large, small) = if carried.abs() < part.abs() { (part, carried) } else { (carried, part) };
            carried = large + small;
            let rest = small - (carried - large);
            if rest != 0.0 {
                self.parts[kept] = rest;
                kept += 1;
            }
        }
        self.parts.truncate(kept);
        if carried != 0.0 {
            self.parts.push(carried);
        }
    }

    fn total(&self) -> f64 {
        match (self.nans, self.infinities, self.negative_infinities) {
            (0, 0, 0) => {}
            (0, _, 0) => return f64::INFINITY,
            (0, 0, _) => return f64::NEG_INFINITY,
            _ => return f64::NAN,
        }
        let mut parts = self.parts.iter().rev();
        let (mut total, mut rest) = (0.0_f64, 0.0_f64);
        for part in parts.by_ref() {
            let sum = total + part;
            rest = part - (sum - total);
            total = sum;
            if rest != 0.0 {
                break;
            }
        }
        // Halfway between two doubles the sign of what is left decides.
        let next = parts.next().copied().unwrap_or(0.0);
        if (rest < 0.0 && next < 0.0) || (rest > 0.0 && next > 0.0) {
            let doubled = rest * 2.0;
            let moved = total + doubled;
            if moved - total == doubled {
                total = moved;
            }
        }
        total
    }

    fn decimal(&self) -> Decimal {
        self.parts.iter().fold(Decimal::of_sum(0.0), |sum, part| sum.add(Decimal::of_sum(*part)))
    }
}

/// A sum of numbers of all types.
#[derive(Debug, Clone, Default)]
pub(crate) struct Total<S> {
    ints: i128,
    doubles: S,
    /// Rare, and large.
    decimal: Option<Box<Decimal>>,
    double_count: u64,
    long_count: u64,
    pub(crate) count: u64,
}

#[expect(clippy::cast_precision_loss, reason = "a sum beside doubles becomes the nearest double, as in MongoDB")]
impl<S: Summation> Total<S> {
    pub(crate) fn take(&mut self, value: RawBsonRef<'_>) {
        match (value, Number::of(value)) {
            (RawBsonRef::Decimal128(_), Some(Number::Decimal(d))) => {
                self.decimal = Some(Box::new(self.decimal.as_ref().map_or(d, |total| total.add(d))));
            }
            (_, Some(Number::Int(i))) => {
                self.ints += i128::from(i);
                self.long_count += u64::from(matches!(value, RawBsonRef::Int64(_)));
            }
            (_, Some(Number::Double(d))) => {
                self.doubles.add(d);
                self.double_count += 1;
            }
            _ => return,
        }
        self.count += 1;
    }

    /// Takes a constant this many times; nothing if that cannot be done at once.
    pub(crate) fn take_often(&mut self, value: RawBsonRef<'_>, times: i64) -> Option<()> {
        match Number::of(value)? {
            Number::Int(i) => {
                self.ints += i128::from(i) * i128::from(times);
                self.long_count += u64::from(matches!(value, RawBsonRef::Int64(_)));
            }
            Number::Double(d) => {
                self.doubles.add(d * times as f64);
                self.double_count += 1;
            }
            Number::Decimal(_) => return None,
        }
        self.count += times.unsigned_abs();
        Some(())
    }

    /// Takes the sum of this many values.
    pub(crate) fn take_sum(&mut self, sum: FigureValue, count: u64) -> Option<()> {
        match sum {
            FigureValue::Int(sum) => self.ints += i128::from(sum),
            FigureValue::Double(sum) if sum.is_finite() => {
                self.doubles.add(sum);
                self.double_count += 1;
            }
            FigureValue::Double(_) => return None,
        }
        self.count += count;
        Some(())
    }

    /// Says that an int64 is among the numbers of which the sum was taken.
    pub(crate) fn has_long(&mut self) {
        self.long_count += 1;
    }

    fn double(&self) -> f64 {
        self.numbers().total()
    }

    /// The sum of all that are no decimals.
    fn numbers(&self) -> S {
        let mut total = self.doubles.clone();
        if self.ints == 0 {
            return total;
        }
        // A 64-bit sum does not fit a double: add it as two parts that each do.
        let low = self.ints % (1 << 53);
        total.add((self.ints - low) as f64);
        total.add(low as f64);
        total
    }

    pub(crate) fn sum(&self) -> RawBson {
        if let Some(decimal) = &self.decimal {
            let rest = if self.double_count > 0 { self.numbers().decimal() } else { self.whole_decimal() };
            return RawBson::Decimal128(decimal.add(rest).encode());
        }
        match (self.double_count > 0, i64::try_from(self.ints)) {
            (false, Ok(sum)) => match i32::try_from(sum) {
                Ok(narrow) if self.long_count == 0 => RawBson::Int32(narrow),
                _ => RawBson::Int64(sum),
            },
            _ => RawBson::Double(self.double()),
        }
    }

    fn whole_decimal(&self) -> Decimal {
        i64::try_from(self.ints).map_or_else(|_| Decimal::from_f64(self.ints as f64), Decimal::from_i64)
    }

    pub(crate) fn mean(&self) -> RawBson {
        if self.decimal.is_some()
            && let RawBson::Decimal128(sum) = self.sum()
        {
            let count = Decimal::from_i64(i64::try_from(self.count).unwrap_or(i64::MAX));
            return RawBson::Decimal128(Decimal::decode(sum).divide(count).encode());
        }
        if self.count == 0 { RawBson::Null } else { RawBson::Double(self.double() / self.count as f64) }
    }
}

impl Total<Exact> {
    /// Takes away a number that was taken, unless it is a decimal128.
    pub(crate) fn remove(&mut self, value: RawBsonRef<'_>) {
        match Number::of(value) {
            Some(Number::Int(i)) => {
                self.ints -= i128::from(i);
                self.long_count -= u64::from(matches!(value, RawBsonRef::Int64(_)));
            }
            Some(Number::Double(d)) => {
                self.doubles.remove(d);
                self.double_count -= 1;
            }
            _ => return,
        }
        self.count -= 1;
    }

    /// Whether the sum of these values is exact whatever is taken and removed.
    pub(crate) fn is_exact_for(values: &[Value]) -> bool {
        values.iter().flatten().all(|value| match Number::of(value.as_raw_bson_ref()) {
            Some(Number::Double(d)) => !d.is_finite() || d.abs() < Exact::BOUND,
            Some(Number::Decimal(_)) => false,
            _ => true,
        })
    }
}
