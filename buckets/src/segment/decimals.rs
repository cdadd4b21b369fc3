//! Doubles that are short decimals, as integers with a scale.

use arrow::array::{Array, ArrowPrimitiveType, PrimitiveArray};

/// Powers of ten that are exact as doubles.
pub(super) const POWERS: [f64; 19] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];
/// Values with more digits after the point are computed rather than measured.
pub(super) const SCALE_MAX: u8 = 6;
/// Below this, every integer is a double, and dividing it by a power of ten gives the double nearest to the decimal.
const WHOLE_MAX: f64 = 1e15;
/// Maximum number of digits of a decimal; all such numbers are below [`WHOLE_MAX`].
pub(super) const DIGITS_MAX: u8 = 15;
/// Maximum of DECIMAL(9).
const NARROW_MAX: f64 = 999_999_999.0;
/// Its number of digits.
pub(super) const NARROW_DIGITS: u8 = 9;

pub(crate) fn power(scale: u8) -> f64 {
    POWERS.get(usize::from(scale)).copied().unwrap_or(f64::INFINITY)
}

#[expect(clippy::cast_precision_loss, reason = "stored whole numbers are below 10^15")]
pub(crate) fn decimal_to_double(k: i64, scale: u8) -> f64 {
    k as f64 / power(scale)
}

/// Number of digits before the point of numbers up to `greatest`, at most that of the largest power of ten here.
pub(super) fn whole_digits(greatest: f64) -> u8 {
    let digits = POWERS.iter().take_while(|power| greatest >= **power).count();
    u8::try_from(digits).unwrap_or(u8::MAX)
}

/// The ranges of rows that have values.
pub(crate) fn valid_runs<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> Vec<(usize, usize)> {
    match array.nulls() {
        Some(nulls) => nulls.valid_slices().collect(),
        None if array.is_empty() => Vec::new(),
        None => vec![(0, array.len())],
    }
}

/// Doubles as integers of at most nine digits with one scale for all, which grows when finer values are added.
#[derive(Debug, Default)]
pub(crate) struct Narrow {
    pub(crate) ks: Vec<i32>,
    pub(crate) scale: u8,
}

impl Narrow {
    /// Appends values; false if one of them is not such a decimal, or if the earlier ones have too many digits for its scale.
    #[expect(clippy::cast_possible_truncation, reason = "what is kept was checked to have nine digits")]
    pub(crate) fn append(&mut self, values: &[f64]) -> bool {
        for some in values.chunks(64) {
            loop {
                let power = power(self.scale);
                let mut all = true;
                let start = self.ks.len();
                self.ks.extend(some.iter().map(|v| {
                    let k = v * power;
                    // Integers have no negative zero, so the conversion loses the sign, as the stored form does.
                    all &= (k.abs() <= NARROW_MAX) & ((((k + ROUNDER) - ROUNDER) / power).to_bits() == v.to_bits());
                    nearest(k) as i32
                }));
                if all {
                    break;
                }
                self.ks.truncate(start);
                if !self.refine() {
                    return false;
                }
            }
        }
        true
    }

    /// Adds a digit after the point.
    fn refine(&mut self) -> bool {
        const MOST: u32 = 99_999_999;
        if self.scale == SCALE_MAX || self.ks.iter().any(|k| k.unsigned_abs() > MOST) {
            return false;
        }
        self.ks.iter_mut().for_each(|k| *k *= 10);
        self.scale += 1;
        true
    }
}

/// Determines whether doubles are decimals, and their number of digits after the point.
#[derive(Debug, Default)]
pub(crate) struct Decimals {
    scale: u8,
    greatest: f64,
    any: bool,
}

impl Decimals {
    /// Examines more values; false if one of them is not a decimal.
    pub(crate) fn look_at(&mut self, mut values: &[f64]) -> bool {
        self.any |= !values.is_empty();
        self.greatest = values.iter().fold(self.greatest, |greatest, v| greatest.max(v.abs()));
        // A value that fits one scale also fits a finer one, so values before the first misfit need no second look.
        while let Some(at) = first_misfit(values, self.scale) {
            self.scale += 1;
            if self.scale > SCALE_MAX {
                return false;
            }
            values = &values[at..];
        }
        true
    }

    /// Digits after the point.
    pub(super) fn digits(&self) -> u8 {
        self.scale
    }

    /// The greatest absolute value.
    pub(super) fn greatest(&self) -> f64 {
        self.greatest
    }

    /// Digits after the point, if there was a value. A value that fits one scale also fits a finer one, unless it
    /// exceeds the exact range there.
    pub(crate) fn scale(&self) -> Option<u8> {
        (self.any && self.greatest * power(self.scale) <= WHOLE_MAX).then_some(self.scale)
    }
}

/// Compares many values before it branches, which is faster.
fn first_misfit(values: &[f64], scale: u8) -> Option<usize> {
    let mut from = 0;
    for some in values.chunks(64) {
        if !some.iter().fold(true, |all, v| all & fits(*v, scale)) {
            return some.iter().position(|v| !fits(*v, scale)).map(|at| from + at);
        }
        from += some.len();
    }
    None
}

/// Adding it to a double below 2^51 rounds that to an integer, which is in the low bits of the sum.
const ROUNDER: f64 = 6_755_399_441_055_744.0; // 3 * 2^51

/// The integer nearest to `v`, the even one of two; callers check that `v` is below [`WHOLE_MAX`]. Much faster than
/// `f64::round`, since it can be vectorized.
pub(crate) fn nearest(v: f64) -> i64 {
    (v + ROUNDER).to_bits().cast_signed().wrapping_sub(ROUNDER.to_bits().cast_signed())
}

/// Whether `v` is `k / 10^scale` to the bit. Negative zero, NaN and infinities never are.
fn fits(v: f64, scale: u8) -> bool {
    let power = power(scale);
    let k = v * power;
    // Integers have no negative zero, so the conversion loses the sign, as the stored form does.
    (k.abs() <= WHOLE_MAX) & ((((k + ROUNDER) - ROUNDER) / power).to_bits() == v.to_bits())
}
