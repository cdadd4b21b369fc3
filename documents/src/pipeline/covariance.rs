//! $covariancePop and $covarianceSamp, window functions of pairs of numbers.

use super::Result;
use crate::Decimal;
use crate::expression::{Value, real_of};
use crate::order::Number;
use crate::stop::Stop;
use bson::raw::{RawBson, RawBsonRef};

/// The covariance of the pairs so far, after Welford's method. Any decimal among them makes it a decimal.
#[derive(Debug, Clone)]
struct Covariance {
    count: u32,
    means: [Number; 2],
    /// The products of the distances to the means, added up.
    products: Number,
}

/// The covariance of each window; what is no pair of numbers does not count.
pub(super) fn covariances(
    values: &[Value],
    bounds: &[(usize, usize)],
    is_sample: bool,
    stop: Stop<'_>,
) -> Result<Vec<Value>> {
    let mut found = Vec::with_capacity(bounds.len());
    // A window that only grows is added to.
    let (mut state, mut taken) = (Covariance::NONE, (0, 0));
    for (low, high) in bounds.iter().copied() {
        stop.check()?;
        if low != taken.0 || high < taken.1 {
            (state, taken) = (Covariance::NONE, (low, low));
        }
        for (at, value) in values.iter().enumerate().take(high).skip(taken.1) {
            if at.is_multiple_of(1 << 10) {
                stop.check()?;
            }
            if let Some(pair) = pair(value) {
                state.take(pair);
            }
        }
        taken = (low, high);
        found.push(Some(state.result(is_sample)));
    }
    Ok(found)
}

/// The two numbers of a list of two; integers as doubles.
fn pair(value: &Value) -> Option<[Number; 2]> {
    let Some(RawBson::Array(list)) = value else { return None };
    let number = |value: RawBsonRef<'_>| match Number::of(value)? {
        number @ Number::Int(_) => Some(Number::Double(real_of(number))),
        other => Some(other),
    };
    let numbers: Option<Vec<Number>> = list.into_iter().map_while(std::result::Result::ok).map(number).collect();
    numbers?.try_into().ok()
}

fn is_infinite(number: Number) -> bool {
    match number {
        Number::Int(_) => false,
        Number::Double(d) => d.is_infinite(),
        Number::Decimal(d) => matches!(d, Decimal::Infinite { .. }),
    }
}

impl Covariance {
    const NONE: Covariance =
        Covariance { count: 0, means: [Number::Double(0.0), Number::Double(0.0)], products: Number::Double(0.0) };

    fn take(&mut self, [x, y]: [Number; 2]) {
        let is_special = |number: Number| number.is_nan() || is_infinite(number);
        if is_special(x) || is_special(y) {
            self.products = self.products.plus(special([x, y]));
            return;
        }
        self.count += 1;
        let count = Number::Double(self.count.into());
        let distance = x.minus(self.means[0]);
        self.means[0] = self.means[0].plus(distance.over(count));
        self.means[1] = self.means[1].plus(y.minus(self.means[1]).over(count));
        self.products = self.products.plus(distance.times(y.minus(self.means[1])));
    }

    fn result(&self, is_sample: bool) -> RawBson {
        let count = if is_sample { self.count.saturating_sub(1) } else { self.count };
        match self.count {
            1 if !is_sample => RawBson::Double(0.0),
            _ if count == 0 => RawBson::Null,
            _ => self.products.over(Number::Double(count.into())).value(),
        }
    }
}

/// What a pair with a NaN or an infinity counts as: NaN, or with infinities of one sign alone that infinity.
fn special(pair: [Number; 2]) -> Number {
    let is_decimal = pair.iter().any(|number| matches!(number, Number::Decimal(_)));
    let zero = Number::Double(0.0);
    let infinities = || pair.into_iter().filter(|number| is_infinite(*number));
    let is_positive = infinities().any(|number| number.compare(zero).is_gt());
    let is_negative = infinities().any(|number| number.compare(zero).is_lt());
    let is_nan = pair.iter().any(|number| number.is_nan()) || (is_positive && is_negative);
    let value = match (is_nan, is_positive) {
        (true, _) => f64::NAN,
        (_, true) => f64::INFINITY,
        _ => f64::NEG_INFINITY,
    };
    if is_decimal { Number::Decimal(Decimal::from_f64(value)) } else { Number::Double(value) }
}
