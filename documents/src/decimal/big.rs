//! Whole numbers of any length, only to compare a decimal with a double.

use std::cmp::Ordering;

/// A whole number: words of 64 bits, least first, without zero words at the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Big(Vec<u64>);

impl Big {
    /// `coefficient * 10^exponent`, multiplied by what makes it and [`Big::double`] of the same arguments whole.
    pub(super) fn decimal(coefficient: u128, exponent: i32, d: f64) -> Big {
        let (_, two) = parts(d);
        let mut big = Big::new(coefficient);
        big.multiply_by_ten(exponent);
        big.shift(two.saturating_neg());
        big
    }

    /// The magnitude of `d`, multiplied by what makes it and [`Big::decimal`] of the same arguments whole.
    pub(super) fn double(d: f64, exponent: i32) -> Big {
        let (mantissa, two) = parts(d);
        let mut big = Big::new(u128::from(mantissa));
        big.multiply_by_ten(exponent.saturating_neg());
        big.shift(two);
        big
    }

    #[expect(clippy::cast_possible_truncation, reason = "a number is split into its halves")]
    fn new(n: u128) -> Big {
        let mut big = Big(vec![n as u64, (n >> 64) as u64]);
        big.trim();
        big
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Multiplies by `10^n`; not at all for a negative `n`.
    #[expect(clippy::cast_possible_truncation, reason = "a product is split into its halves")]
    fn multiply_by_ten(&mut self, n: i32) {
        for _ in 0..n {
            let mut carry = 0u128;
            for word in &mut self.0 {
                let product = u128::from(*word) * 10 + carry;
                *word = product as u64;
                carry = product >> 64;
            }
            if carry != 0 {
                self.0.push(carry as u64);
            }
        }
    }

    /// Multiplies by `2^n`; not at all for a negative `n`.
    fn shift(&mut self, n: i32) {
        let Ok(n) = usize::try_from(n) else { return };
        let mut carry = 0;
        for word in &mut self.0 {
            let kept = *word << (n % 64) | carry;
            carry = if n % 64 == 0 { 0 } else { *word >> (64 - n % 64) };
            *word = kept;
        }
        self.0.push(carry);
        self.0.splice(0..0, std::iter::repeat_n(0, n / 64));
        self.trim();
    }
}

impl Ord for Big {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl PartialOrd for Big {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The magnitude of a finite double as `mantissa * 2^exponent`.
fn parts(d: f64) -> (u64, i32) {
    let bits = d.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let biased = i32::try_from((bits >> 52) & 0x7FF).unwrap_or(0);
    if biased == 0 { (fraction, -1074) } else { (fraction | (1 << 52), biased - 1075) }
}
