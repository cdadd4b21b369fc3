//! Decimals in texts.

use super::{Decimal, EXPONENT_MIN, finish};

/// The power of ten of the first digit of the least number that can have 34 digits.
const NORMAL_EXPONENT_MIN: i32 = EXPONENT_MIN + 33;
/// Powers beyond this one are infinite, or lose all digits.
const POWER_MAX: i64 = 1 << 29;

impl Decimal {
    /// Reads a number such as `-1.50E+3`, an infinity or NaN, as MongoDB does: digits beyond 34 are rounded. Nothing for other
    /// texts, for numbers that are too large, and for those so close to 0 that digits are lost.
    pub(crate) fn parse(text: &str) -> Option<Decimal> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let is_one_of = |names: &[&str]| names.iter().any(|name| unsigned.eq_ignore_ascii_case(name));
        if is_one_of(&["inf", "infinity"]) {
            return Some(Decimal::Infinite { negative });
        }
        if is_one_of(&["nan"]) {
            return Some(Decimal::NaN);
        }
        let (mantissa, power) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, power)) => (mantissa, power_of(power)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b.wrapping_sub(b'0')).collect();
        if digits.is_empty() || digits.iter().any(|digit| *digit > 9) {
            return None;
        }
        let exponent = i32::try_from(power - i64::try_from(fraction.len()).ok()?).ok()?;
        match finish(negative, &digits, exponent) {
            Decimal::Infinite { .. } => None,
            _ if loses_digits(&digits, exponent) => None,
            number => Some(number),
        }
    }
}

/// The power of ten after an `e`.
fn power_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let power = digits.parse::<i64>().unwrap_or(POWER_MAX).min(POWER_MAX);
    Some(if text.starts_with('-') { -power } else { power })
}

/// Whether a number is so close to 0 that it has fewer than 34 digits, and loses some of its own.
fn loses_digits(digits: &[u8], exponent: i32) -> bool {
    let Some(start) = digits.iter().position(|digit| *digit != 0) else { return false };
    let length = digits.len() - start;
    let first = exponent.saturating_add(i32::try_from(length).unwrap_or(i32::MAX) - 1);
    let lost = usize::try_from(EXPONENT_MIN.saturating_sub(exponent)).unwrap_or(0).min(length);
    first < NORMAL_EXPONENT_MIN && digits.iter().rev().take(lost).any(|digit| *digit != 0)
}
