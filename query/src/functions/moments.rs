//! Sums, variances and standard deviations of doubles that come and go.

/// Which measure of spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Spread {
    /// Of a sample, not of the population.
    pub(crate) is_of_sample: bool,
    /// The standard deviation, not the variance.
    pub(crate) is_root: bool,
}

/// A sum of doubles, and what its additions rounded off. Values that are not finite are counted apart.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct DoubleSum {
    sum: f64,
    rest: f64,
    nans: u64,
    above: u64,
    below: u64,
}

impl DoubleSum {
    pub(crate) fn add(&mut self, value: f64) {
        if value.is_finite() { self.fold(value) } else { *self.odd(value) += 1 }
    }

    pub(crate) fn take_off(&mut self, value: f64) {
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

    pub(crate) fn overflowed(&self) -> bool {
        !self.sum.is_finite() || !self.rest.is_finite()
    }

    pub(crate) fn value(&self) -> f64 {
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
pub(crate) struct Moments {
    sum: DoubleSum,
    squares: DoubleSum,
}

impl Moments {
    pub(crate) fn add(&mut self, value: f64) {
        self.sum.add(value);
        if value.is_finite() {
            let (square, rest) = product(value, value);
            self.squares.fold(square);
            self.squares.fold(rest);
        }
    }

    pub(crate) fn take_off(&mut self, value: f64) {
        self.sum.take_off(value);
        if value.is_finite() {
            let (square, rest) = product(value, value);
            self.squares.fold(-square);
            self.squares.fold(-rest);
        }
    }

    pub(crate) fn overflowed(&self) -> bool {
        self.sum.overflowed() || self.squares.overflowed()
    }

    /// The measure of spread of `count` values; nothing where these are too few.
    #[expect(clippy::cast_precision_loss, reason = "rows are fewer than 2^53")]
    pub(crate) fn spread(&self, count: u64, spread: Spread) -> Option<f64> {
        let divisor = count - u64::from(spread.is_of_sample && count > 0);
        let variance = match count {
            1 => 0.0,
            count => self.squared_deviations(count) / divisor as f64,
        };
        (divisor > 0).then(|| if spread.is_root { variance.sqrt() } else { variance })
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
