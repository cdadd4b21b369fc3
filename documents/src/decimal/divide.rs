//! Quotients, remainders, and rounding to a number of places.

use super::{COEFFICIENT_END, DIGITS_MAX, Decimal, EXPONENT_MIN, digits_of, finish};
use std::cmp::Ordering;

/// In which direction a number is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Down,
    Up,
    /// Towards zero.
    Truncated,
    HalfToEven,
}

impl Decimal {
    /// The quotient, rounded to 34 digits, half to even. A number divided by zero is an infinity; zero by zero and infinity by
    /// infinity are NaN.
    #[must_use]
    pub fn divide(self, other: Decimal) -> Decimal {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Decimal::NaN, _) | (_, Decimal::NaN) | (Decimal::Infinite { .. }, Decimal::Infinite { .. }) => {
                Decimal::NaN
            }
            (Decimal::Infinite { .. }, _) => Decimal::Infinite { negative },
            (_, Decimal::Infinite { .. }) => Decimal::Finite { negative, coefficient: 0, exponent: EXPONENT_MIN },
            (Decimal::Finite { coefficient: 0, .. }, Decimal::Finite { coefficient: 0, .. }) => Decimal::NaN,
            (_, Decimal::Finite { coefficient: 0, .. }) => Decimal::Infinite { negative },
            (
                Decimal::Finite { coefficient: c1, exponent: e1, .. },
                Decimal::Finite { coefficient: c2, exponent: e2, .. },
            ) => {
                let (mut digits, mut rest, mut exponent) = (digits_of(c1 / c2), c1 % c2, e1 - e2);
                while rest != 0 && digits.len() <= DIGITS_MAX {
                    rest *= 10;
                    let digit = u8::try_from(rest / c2).unwrap_or(0);
                    if !(digits.is_empty() && digit == 0) {
                        digits.push(digit);
                    }
                    rest %= c2;
                    exponent -= 1;
                }
                if rest != 0 {
                    // Only that something is left decides how it is rounded.
                    digits.push(1);
                    exponent -= 1;
                }
                finish(negative, &digits, exponent)
            }
        }
    }

    /// The number without its sign.
    pub(crate) fn abs(self) -> Decimal {
        match self {
            Decimal::NaN => Decimal::NaN,
            Decimal::Infinite { .. } => Decimal::Infinite { negative: false },
            Decimal::Finite { coefficient, exponent, .. } => Decimal::Finite { negative: false, coefficient, exponent },
        }
    }

    /// What a division leaves, with the sign of the dividend, exactly.
    #[must_use]
    pub fn remainder(self, other: Decimal) -> Decimal {
        match (self, other) {
            (Decimal::Finite { .. }, Decimal::Infinite { .. }) => self,
            (
                Decimal::Finite { negative, coefficient: c1, exponent: e1 },
                Decimal::Finite { coefficient: c2 @ 1.., exponent: e2, .. },
            ) => {
                let coefficient = if e1 >= e2 {
                    (e2..e1).fold(c1 % c2, |rest, _| rest * 10 % c2)
                } else {
                    let divisor = 10u128.checked_pow(e1.abs_diff(e2)).and_then(|unit| c2.checked_mul(unit));
                    divisor.map_or(c1, |divisor| c1 % divisor)
                };
                Decimal::Finite { negative, coefficient, exponent: e1.min(e2) }
            }
            _ => Decimal::NaN,
        }
    }

    /// The number with just so many places after the point, or zeros before it. If that takes more than 34 digits it
    /// is rounded down or up to NaN, and has as many as there can be otherwise. An infinity becomes NaN in the
    /// first case and stays in the other, as in MongoDB.
    #[must_use]
    pub(crate) fn rounded_to(self, places: i32, rounding: Rounding) -> Decimal {
        let is_whole = matches!(rounding, Rounding::Down | Rounding::Up);
        let Decimal::Finite { negative, coefficient, exponent } = self else {
            return if is_whole { Decimal::NaN } else { self };
        };
        let room = DIGITS_MAX.saturating_sub(digits_of(coefficient).len());
        let possible = i32::try_from(room).unwrap_or(0) - exponent;
        let places = if is_whole || coefficient == 0 { places } else { places.min(possible) };
        let unit = 10u128.checked_pow((exponent + places).unsigned_abs());
        let coefficient = if exponent >= -places {
            let widened = unit.and_then(|unit| coefficient.checked_mul(unit)).filter(|c| *c < COEFFICIENT_END);
            widened.or((coefficient == 0).then_some(0))
        } else {
            let (whole, rest) = unit.map_or((0, coefficient), |unit| (coefficient / unit, coefficient % unit));
            let half = unit.map_or(Ordering::Less, |unit| (rest * 2).cmp(&unit));
            let is_up = match rounding {
                Rounding::Truncated => false,
                Rounding::Down => negative && rest > 0,
                Rounding::Up => !negative && rest > 0,
                Rounding::HalfToEven => half.is_gt() || (half.is_eq() && whole % 2 == 1),
            };
            Some(whole + u128::from(is_up))
        };
        coefficient.map_or(Decimal::NaN, |coefficient| Decimal::Finite { negative, coefficient, exponent: -places })
    }
}

#[cfg(test)]
mod tests;
