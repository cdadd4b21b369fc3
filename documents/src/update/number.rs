//! Sums and products of numbers of BSON's four types, as `$inc` and `$mul` need them.

use crate::decimal::Decimal;
use bson::raw::RawBsonRef;

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    /// `$inc`.
    Add,
    /// `$mul`.
    Multiply,
}

/// Whether a value is a number.
pub(super) fn is_number(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_))
}

impl Arithmetic {
    /// The result, in the wider of the two types: int32, int64, double, decimal128. What int32 does not hold becomes an
    /// int64.
    ///
    /// `None` if int64 does not hold it, or if one of the two is no number.
    pub(super) fn compute<'a>(self, a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Option<RawBsonRef<'a>> {
        match (a, b) {
            (RawBsonRef::Decimal128(_), _) | (_, RawBsonRef::Decimal128(_)) => {
                let (a, b) = (decimal_of(a)?, decimal_of(b)?);
                let result = match self {
                    Arithmetic::Add => a.add(b),
                    Arithmetic::Multiply => a.multiply(b),
                };
                Some(RawBsonRef::Decimal128(result.encode()))
            }
            (RawBsonRef::Double(_), _) | (_, RawBsonRef::Double(_)) => {
                let (a, b) = (double_of(a)?, double_of(b)?);
                Some(RawBsonRef::Double(match self {
                    Arithmetic::Add => a + b,
                    Arithmetic::Multiply => a * b,
                }))
            }
            _ => {
                let (x, y) = (integer_of(a)?, integer_of(b)?);
                let result = match self {
                    Arithmetic::Add => x.checked_add(y)?,
                    Arithmetic::Multiply => x.checked_mul(y)?,
                };
                let both_narrow = matches!((a, b), (RawBsonRef::Int32(_), RawBsonRef::Int32(_)));
                Some(match i32::try_from(result) {
                    Ok(narrow) if both_narrow => RawBsonRef::Int32(narrow),
                    _ => RawBsonRef::Int64(result),
                })
            }
        }
    }
}

fn integer_of(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(i) => Some(i.into()),
        RawBsonRef::Int64(i) => Some(i),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "an int64 beside a double becomes the nearest double, as in MongoDB")]
fn double_of(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Double(d) => Some(d),
        _ => integer_of(value).map(|i| i as f64),
    }
}

fn decimal_of(value: RawBsonRef<'_>) -> Option<Decimal> {
    match value {
        RawBsonRef::Decimal128(d) => Some(Decimal::decode(d)),
        RawBsonRef::Double(d) => Some(Decimal::from_f64(d)),
        _ => integer_of(value).map(Decimal::from_i64),
    }
}
