//! The arithmetic of expiry and of windows, in a collection's own units of time, and the options that steer it.
//!
//! 1. An instant equal to the cut-off is expired: `t + E <= now` iff `t <= now - E`. [`Cutoff`] owns that comparison.
//! 2. Everything saturates: no time, however distant, wraps around and makes new data look old.

mod bucketing;
mod cutoff;

pub use bucketing::{Bucketing, Granularity, SPAN_SECONDS_MAX};
pub use cutoff::Cutoff;

use crate::code::{Code, RuleError};
use crate::time::{Precision, Timestamp};
use crate::value::Value;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// 2038-01-19T03:14:08Z in seconds since the epoch: the first second that a signed 32-bit count cannot hold.
const RANGE_SECONDS_END: i64 = 1 << 31;

/// The first instant at which a bucket with this upper bound (mode `bucket`: the window's end; mode `exact`: its last
/// measurement) may be dropped: what listings show as `expires_at`. It does not saturate.
#[must_use]
pub fn due_instant(bound: i64, e_seconds: i64, precision: Precision) -> Timestamp {
    Timestamp::from_units(bound, precision).plus_seconds(e_seconds)
}

/// Whether a time lies in 1970-01-01T00:00:00Z (included) to 2038-01-19T03:14:08Z (excluded).
#[must_use]
pub fn in_range(t: i64, precision: Precision) -> bool {
    (0..RANGE_SECONDS_END * precision.per_second()).contains(&t)
}

macro_rules! words {
    ($type:ident, $option:literal, $($variant:ident = $word:literal),+) => {
        impl $type {
            /// The word for it in options.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $word,)+ }
            }

            /// Reads the option's value.
            ///
            /// # Errors
            /// `TypeMismatch` for anything but a string, `BadValue` for another word.
            pub fn from_value(value: &Value) -> Result<Self, RuleError> {
                match value {
                    Value::String(word) => word.parse(),
                    other => Err(RuleError::new(
                        Code::TypeMismatch,
                        format!("{} must be a string, not {}", $option, other.class().name()),
                    )),
                }
            }
        }

        impl FromStr for $type {
            type Err = RuleError;

            fn from_str(word: &str) -> Result<Self, RuleError> {
                match word {
                    $($word => Ok($type::$variant),)+
                    other => Err(RuleError::new(
                        Code::BadValue,
                        format!("'{other}' is not a value of {}; use one of {}", $option, [$($word),+].join(", ")),
                    )),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use words;

/// When an expired measurement stops being visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ExpiryMode {
    /// At the instant at which it expires, whether or not a sweep has run.
    #[default]
    Exact,
    /// When its whole bucket has been dropped.
    Bucket,
}

words!(ExpiryMode, "expiry", Exact = "exact", Bucket = "bucket");

/// What is done about times outside 1970 to 2038.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum OutOfRange {
    /// While such a measurement is stored, nothing in its collection expires.
    #[default]
    Suspend,
    /// Such a measurement is refused.
    Reject,
    /// The rules hold for all times.
    Expire,
}

words!(OutOfRange, "outOfRange", Suspend = "suspend", Reject = "reject", Expire = "expire");

/// What is done about the ObjectId that drivers put into every document as `_id`. Any other `_id` is an ordinary field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum IdPolicy {
    /// It is not stored.
    #[default]
    Drop,
    /// It is stored, as the text of its 24 digits.
    Keep,
}

words!(IdPolicy, "ids", Drop = "drop", Keep = "keep");

#[cfg(test)]
mod tests;
