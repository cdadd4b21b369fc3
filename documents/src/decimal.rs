//! Exact arithmetic on decimal128, the decimal floating point of IEEE 754-2008 as BSON stores it.
//!
//! 1. Comparisons are exact, with integers and doubles too: nothing is rounded to be compared.
//! 2. Sums, products and quotients are the exact result rounded once, to 34 digits, half to even.
//! 3. A coefficient beyond 34 digits is not canonical and means 0, as IEEE 754 says.

mod big;
mod divide;
mod text;

use big::Big;
use bson::Decimal128;
pub(crate) use divide::Rounding;
use std::cmp::Ordering;

/// Digits of a coefficient.
const DIGITS_MAX: usize = 34;
/// The largest coefficient is one less.
const COEFFICIENT_END: u128 = 10u128.pow(34);
pub(crate) const EXPONENT_MIN: i32 = -6176;
const EXPONENT_MAX: i32 = 6111;
const EXPONENT_BIAS: i32 = 6176;
/// Digits of a double that is made a decimal, as in MongoDB: fewer than a double may need, so that 0.1 gives 0.1.
const DOUBLE_DIGITS: usize = 15;
/// Beyond this distance of exponents the smaller of two numbers only decides in which direction their sum is rounded.
const ALIGNMENT_MAX: i32 = 75;

/// A decoded decimal128.
///
/// Two are equal if all parts are: `1.0` and `1.00` differ, and NaN equals itself. [`Decimal::compare`] compares values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decimal {
    /// Not a number.
    NaN,
    /// An infinity.
    Infinite {
        /// Whether it is minus infinity.
        negative: bool,
    },
    /// `coefficient * 10^exponent`, with a sign that zero has too.
    Finite {
        /// The sign.
        negative: bool,
        /// Less than 10^34.
        coefficient: u128,
        /// -6176 to 6111.
        exponent: i32,
    },
}

impl Decimal {
    /// Decodes BSON's 16 bytes.
    #[must_use]
    pub fn decode(value: Decimal128) -> Decimal {
        let bits = u128::from_le_bytes(value.bytes());
        let negative = bits >> 127 == 1;
        if (bits >> 122) & 0b1_1111 == 0b1_1111 {
            return Decimal::NaN;
        }
        if (bits >> 122) & 0b1_1111 == 0b1_1110 {
            return Decimal::Infinite { negative };
        }
        // With the other form of the exponent every coefficient has more than 34 digits.
        let is_other_form = (bits >> 125) & 0b11 == 0b11;
        let biased = if is_other_form { bits >> 111 } else { bits >> 113 } & 0x3FFF;
        let coefficient = if is_other_form { COEFFICIENT_END } else { bits & ((1 << 113) - 1) };
        let exponent = i32::try_from(biased).unwrap_or(EXPONENT_BIAS) - EXPONENT_BIAS;
        Decimal::Finite { negative, coefficient: if coefficient < COEFFICIENT_END { coefficient } else { 0 }, exponent }
    }

    /// Encodes to BSON's 16 bytes.
    #[must_use]
    pub fn encode(self) -> Decimal128 {
        let bits = match self {
            Decimal::NaN => 0b1_1111 << 122,
            Decimal::Infinite { negative } => (u128::from(negative) << 127) | (0b1_1110 << 122),
            Decimal::Finite { negative, coefficient, exponent } => {
                let biased = u128::from((exponent + EXPONENT_BIAS).unsigned_abs());
                (u128::from(negative) << 127) | (biased << 113) | coefficient
            }
        };
        Decimal128::from_bytes(bits.to_le_bytes())
    }

    /// The decimal of an integer.
    #[must_use]
    pub fn from_i64(i: i64) -> Decimal {
        Decimal::Finite { negative: i < 0, coefficient: u128::from(i.unsigned_abs()), exponent: 0 }
    }

    /// The decimal of a double, rounded to 15 significant digits, half to even, as MongoDB does: 0.1 gives
    /// `0.100000000000000`.
    #[must_use]
    pub fn from_f64(d: f64) -> Decimal {
        if d.is_nan() {
            return Decimal::NaN;
        }
        if d.is_infinite() {
            return Decimal::Infinite { negative: d.is_sign_negative() };
        }
        if d == 0.0 {
            return Decimal::Finite { negative: d.is_sign_negative(), coefficient: 0, exponent: 0 };
        }
        // No double has more than 767 significant digits, so this text is exact.
        let text = format!("{:.766e}", d.abs());
        let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
        let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).map(|b| b - b'0').collect();
        let power: i32 = power.parse().unwrap_or(0);
        let (coefficient, carry) = without_carry(rounded(&digits, DOUBLE_DIGITS), DOUBLE_DIGITS);
        let exponent = power + 1 - i32::try_from(DOUBLE_DIGITS).unwrap_or(0) + carry;
        Decimal::Finite { negative: d < 0.0, coefficient, exponent }
    }

    /// The decimal of a double, rounded to 34 digits, as MongoDB takes the sums of doubles beside decimals: 0.1 gives
    /// `0.1000000000000000055511151231257827`, and a whole number no fraction.
    pub(crate) fn of_sum(d: f64) -> Decimal {
        if !d.is_finite() || d == 0.0 {
            return Decimal::from_f64(d);
        }
        let text = format!("{:.766e}", d.abs());
        let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
        let mut digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).map(|b| b - b'0').collect();
        let power: i32 = power.parse().unwrap_or(0);
        let significant = digits.iter().rposition(|digit| *digit != 0).map_or(1, |last| last + 1);
        digits.resize(significant.max(usize::try_from(power + 1).unwrap_or(0)), 0);
        finish(d < 0.0, &digits, power + 1 - i32::try_from(digits.len()).unwrap_or(0))
    }

    /// Whether it is 0 or -0.
    #[must_use]
    pub fn is_zero(self) -> bool {
        matches!(self, Decimal::Finite { coefficient: 0, .. })
    }

    /// The integer that it is, whatever its exponent; `None` for fractions, NaN, infinities and what `i64` does not hold.
    #[must_use]
    pub fn to_i64(self) -> Option<i64> {
        let (floor, has_fraction) = self.floor()?;
        if has_fraction { None } else { i64::try_from(floor).ok() }
    }

    /// The integer that is left when the fraction is cut off; `None` for NaN, infinities and what `i64` does not hold.
    #[must_use]
    pub fn truncate_to_i64(self) -> Option<i64> {
        let (floor, has_fraction) = self.floor()?;
        i64::try_from(floor + i128::from(has_fraction && floor < 0)).ok()
    }

    /// The greatest integer that is not above it, and whether something is left over; `None` for NaN, infinities and
    /// magnitudes beyond 10^38.
    pub(crate) fn floor(self) -> Option<(i128, bool)> {
        let Decimal::Finite { negative, coefficient, exponent } = self else { return None };
        let (whole, has_fraction) = match u32::try_from(exponent) {
            _ if coefficient == 0 => (0, false),
            Ok(up) => (coefficient.checked_mul(10u128.checked_pow(up)?)?, false),
            Err(_) => match 10u128.checked_pow(exponent.unsigned_abs()) {
                Some(unit) => (coefficient / unit, !coefficient.is_multiple_of(unit)),
                None => (0, true),
            },
        };
        let whole = i128::try_from(whole).ok()?;
        Some((if negative { -whole - i128::from(has_fraction) } else { whole }, has_fraction))
    }

    /// Compares values, whatever their exponents: NaN is below all numbers and equal to itself, -0 equals 0.
    #[must_use]
    pub fn compare(self, other: Decimal) -> Ordering {
        let sign = self.sign();
        sign.cmp(&other.sign()).then_with(|| match (self, other) {
            (
                Decimal::Finite { negative, coefficient: c1, exponent: e1 },
                Decimal::Finite { coefficient: c2, exponent: e2, .. },
            ) if c1 != 0 => {
                let magnitude = compare_magnitudes((c1, e1), (c2, e2));
                if negative { magnitude.reverse() } else { magnitude }
            }
            _ => Ordering::Equal,
        })
    }

    /// Ranks NaN, minus infinity, negative numbers, zero, positive numbers, infinity.
    fn sign(self) -> i8 {
        match self {
            Decimal::NaN => -3,
            Decimal::Infinite { negative } => {
                if negative {
                    -2
                } else {
                    2
                }
            }
            Decimal::Finite { coefficient: 0, .. } => 0,
            Decimal::Finite { negative, .. } => {
                if negative {
                    -1
                } else {
                    1
                }
            }
        }
    }

    /// Compares with a double exactly. NaN is below all numbers and equal to itself.
    #[must_use]
    pub fn compare_f64(self, d: f64) -> Ordering {
        let double_sign = match d {
            _ if d.is_nan() => -3,
            _ if d.is_infinite() => {
                if d > 0.0 {
                    2
                } else {
                    -2
                }
            }
            _ if d == 0.0 => 0,
            _ => {
                if d > 0.0 {
                    1
                } else {
                    -1
                }
            }
        };
        let Decimal::Finite { negative, coefficient, exponent } = self else { return self.sign().cmp(&double_sign) };
        if self.sign() != double_sign || double_sign == 0 {
            return self.sign().cmp(&double_sign);
        }
        // Rounding keeps the order, so only what rounds to this very double needs long numbers.
        self.nearest_f64().total_cmp(&d).then_with(|| {
            let magnitude = Big::decimal(coefficient, exponent, d).cmp(&Big::double(d, exponent));
            if negative { magnitude.reverse() } else { magnitude }
        })
    }

    /// The nearest double, ties to even; beyond the range of doubles an infinity.
    #[must_use]
    pub fn nearest_f64(self) -> f64 {
        match self {
            Decimal::NaN => f64::NAN,
            Decimal::Infinite { negative } => {
                if negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
            Decimal::Finite { negative, coefficient, exponent } => {
                let sign = if negative { "-" } else { "" };
                format!("{sign}{coefficient}e{exponent}").parse().unwrap_or(f64::NAN)
            }
        }
    }

    /// The greatest double that is not above it, and whether it is equal. Not for NaN.
    pub(crate) fn floor_f64(self) -> (f64, bool) {
        let nearest = self.nearest_f64();
        match self.compare_f64(nearest) {
            Ordering::Less => (nearest.next_down(), false),
            Ordering::Equal => (nearest, true),
            Ordering::Greater => (nearest, false),
        }
    }

    /// The sum, rounded to 34 digits, half to even. Infinities of both signs give NaN; what is too large an infinity.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "an operator would hide that the sum is rounded")]
    pub fn add(self, other: Decimal) -> Decimal {
        match (self, other) {
            (Decimal::NaN, _) | (_, Decimal::NaN) => Decimal::NaN,
            (Decimal::Infinite { negative: a }, Decimal::Infinite { negative: b }) if a != b => Decimal::NaN,
            (Decimal::Infinite { .. }, _) => self,
            (_, Decimal::Infinite { .. }) => other,
            (
                Decimal::Finite { negative: n1, coefficient: c1, exponent: e1 },
                Decimal::Finite { negative: n2, coefficient: c2, exponent: e2 },
            ) => {
                if e1 >= e2 {
                    add_aligned((n1, c1, e1), (n2, c2, e2))
                } else {
                    add_aligned((n2, c2, e2), (n1, c1, e1))
                }
            }
        }
    }

    /// The product, rounded to 34 digits, half to even. Zero times an infinity is NaN; what is too large an infinity.
    #[must_use]
    pub fn multiply(self, other: Decimal) -> Decimal {
        match (self, other) {
            (Decimal::NaN, _) | (_, Decimal::NaN) => Decimal::NaN,
            (Decimal::Infinite { negative: n1 }, _) if !other.is_zero() => {
                Decimal::Infinite { negative: n1 != other.is_negative() }
            }
            (_, Decimal::Infinite { negative: n2 }) if !self.is_zero() => {
                Decimal::Infinite { negative: n2 != self.is_negative() }
            }
            (
                Decimal::Finite { negative: n1, coefficient: c1, exponent: e1 },
                Decimal::Finite { negative: n2, coefficient: c2, exponent: e2 },
            ) => {
                let (left, right) = (digits_of(c1), digits_of(c2));
                let mut product = vec![0u32; left.len() + right.len()];
                for (i, a) in left.iter().enumerate() {
                    for (j, b) in right.iter().enumerate() {
                        product[i + j + 1] += u32::from(*a) * u32::from(*b);
                    }
                }
                finish(n1 != n2, &carried(product), e1 + e2)
            }
            _ => Decimal::NaN,
        }
    }

    fn is_negative(self) -> bool {
        match self {
            Decimal::NaN => false,
            Decimal::Infinite { negative } | Decimal::Finite { negative, .. } => negative,
        }
    }
}

/// Compares two positive numbers.
fn compare_magnitudes((c1, e1): (u128, i32), (c2, e2): (u128, i32)) -> Ordering {
    let places = |c: u128| c.checked_ilog10().unwrap_or(0);
    let leading = |c, e: i32| e + i32::try_from(places(c)).unwrap_or(0);
    let full = |c: u128| c * 10u128.pow(33u32.saturating_sub(places(c)));
    leading(c1, e1).cmp(&leading(c2, e2)).then_with(|| full(c1).cmp(&full(c2)))
}

type Parts = (bool, u128, i32);

/// Adds two numbers of which the first has the greater exponent.
fn add_aligned((n1, c1, e1): Parts, (n2, c2, e2): Parts) -> Decimal {
    if c1 == 0 && c2 == 0 {
        return Decimal::Finite { negative: n1 && n2, coefficient: 0, exponent: e2 };
    }
    if c1 == 0 {
        return Decimal::Finite { negative: n2, coefficient: c2, exponent: e2 };
    }
    let shift = (e1 - e2).min(ALIGNMENT_MAX);
    let is_far = e1 - e2 > ALIGNMENT_MAX;
    let mut left = digits_of(c1);
    left.extend(std::iter::repeat_n(0, usize::try_from(shift).unwrap_or(0)));
    let mut right = digits_of(if is_far { c2.min(1) } else { c2 });
    let length = left.len().max(right.len()) + 1;
    for digits in [&mut left, &mut right] {
        digits.splice(0..0, std::iter::repeat_n(0, length - digits.len()));
    }
    let exponent = e1 - shift;
    if n1 == n2 {
        let sum = left.iter().zip(&right).map(|(a, b)| u32::from(*a) + u32::from(*b)).collect();
        return finish(n1, &carried(sum), exponent);
    }
    let (negative, greater, less) = if left >= right { (n1, &left, &right) } else { (n2, &right, &left) };
    let mut difference = vec![0u8; length];
    let mut borrow = 0;
    for i in (0..length).rev() {
        let taken = less[i] + borrow;
        borrow = u8::from(greater[i] < taken);
        difference[i] = greater[i] + 10 * borrow - taken;
    }
    if difference.iter().all(|d| *d == 0) {
        return Decimal::Finite { negative: false, coefficient: 0, exponent: e2 };
    }
    finish(negative, &difference, exponent)
}

/// The digits, greatest first; none for 0.
fn digits_of(coefficient: u128) -> Vec<u8> {
    if coefficient == 0 { Vec::new() } else { coefficient.to_string().bytes().map(|b| b - b'0').collect() }
}

/// Digits from sums of digits. The first sum leaves no carry.
fn carried(mut sums: Vec<u32>) -> Vec<u8> {
    let mut carry = 0;
    for sum in sums.iter_mut().rev() {
        *sum += carry;
        carry = *sum / 10;
        *sum %= 10;
    }
    debug_assert_eq!(carry, 0, "the first digit has room for the carry");
    sums.into_iter().map(|digit| u8::try_from(digit).unwrap_or(0)).collect()
}

/// The first `kept` digits as a number, rounded half to even by the rest. The number can have a digit more.
fn rounded(digits: &[u8], kept: usize) -> u128 {
    let number = |digits: &[u8]| digits.iter().fold(0u128, |n, d| n * 10 + u128::from(*d));
    let (head, tail) = digits.split_at(kept.min(digits.len()));
    let n = number(head) * 10u128.pow(u32::try_from(kept - head.len()).unwrap_or(0));
    let half = match tail.split_first() {
        None => Ordering::Less,
        Some((first, rest)) if rest.iter().all(|d| *d == 0) => first.cmp(&5),
        Some((first, _)) => first.cmp(&5).then(Ordering::Greater),
    };
    if half.is_gt() || (half.is_eq() && n % 2 == 1) { n + 1 } else { n }
}

/// Drops the last digit, a zero, if the coefficient has one digit more than `digits`; and whether it did.
fn without_carry(coefficient: u128, digits: usize) -> (u128, i32) {
    let has_carried = coefficient == 10u128.pow(u32::try_from(digits).unwrap_or(0));
    if has_carried { (coefficient / 10, 1) } else { (coefficient, 0) }
}

/// The number of these digits, greatest first, times ten to the exponent: rounded, subnormal or infinite as need be.
fn finish(negative: bool, digits: &[u8], exponent: i32) -> Decimal {
    let start = digits.iter().position(|d| *d != 0).unwrap_or(digits.len());
    let digits = &digits[start..];
    if digits.is_empty() {
        return Decimal::Finite { negative, coefficient: 0, exponent: exponent.clamp(EXPONENT_MIN, EXPONENT_MAX) };
    }
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let dropped = (length - 34).max(EXPONENT_MIN - exponent).max(0);
    let (coefficient, exponent) = match usize::try_from(length - dropped) {
        // All digits lie below half of the smallest number.
        Err(_) => (0, EXPONENT_MIN),
        Ok(kept) => {
            // A subnormal number has room for the carry.
            let (coefficient, carry) = without_carry(rounded(digits, kept), DIGITS_MAX);
            (coefficient, exponent + dropped + carry)
        }
    };
    if exponent <= EXPONENT_MAX {
        return Decimal::Finite { negative, coefficient, exponent };
    }
    // A number with few digits may still be written with zeros after them.
    let zeros = u32::try_from(exponent - EXPONENT_MAX).unwrap_or(u32::MAX);
    match 10u128.checked_pow(zeros).and_then(|unit| coefficient.checked_mul(unit)) {
        Some(coefficient) if coefficient < COEFFICIENT_END => {
            Decimal::Finite { negative, coefficient, exponent: EXPONENT_MAX }
        }
        _ => Decimal::Infinite { negative },
    }
}

impl From<Decimal128> for Decimal {
    fn from(value: Decimal128) -> Self {
        Decimal::decode(value)
    }
}

impl From<Decimal> for Decimal128 {
    fn from(value: Decimal) -> Self {
        value.encode()
    }
}

#[cfg(test)]
mod tests;
