//! `$bit`.

use super::number::integer_of;
use bson::raw::{RawBson, RawBsonRef};

/// What is done with the bits of two integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bitwise {
    And,
    Or,
    Xor,
}

impl Bitwise {
    pub(super) fn named(name: &str) -> Option<Bitwise> {
        match name {
            "and" => Some(Bitwise::And),
            "or" => Some(Bitwise::Or),
            "xor" => Some(Bitwise::Xor),
            _ => None,
        }
    }

    /// The result, an int32 of two of these and else an int64; `None` if one of the two is no integer.
    fn compute<'a>(self, a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Option<RawBsonRef<'a>> {
        let (x, y) = (integer_of(a)?, integer_of(b)?);
        let result = match self {
            Bitwise::And => x & y,
            Bitwise::Or => x | y,
            Bitwise::Xor => x ^ y,
        };
        let are_narrow = matches!((a, b), (RawBsonRef::Int32(_), RawBsonRef::Int32(_)));
        Some(match i32::try_from(result) {
            Ok(narrow) if are_narrow => RawBsonRef::Int32(narrow),
            _ => RawBsonRef::Int64(result),
        })
    }
}

/// What operations in turn make of a value; `None` if it is no integer.
pub(super) fn combined<'a>(value: RawBsonRef<'_>, operations: &[(Bitwise, RawBson)]) -> Option<RawBsonRef<'a>> {
    let start = match value {
        RawBsonRef::Int32(i) => RawBsonRef::Int32(i),
        RawBsonRef::Int64(i) => RawBsonRef::Int64(i),
        _ => return None,
    };
    operations.iter().try_fold(start, |value, (bitwise, operand)| bitwise.compute(value, operand.as_raw_bson_ref()))
}
