//! Reads `expireAfterSeconds`: the same number everywhere, under the error codes of each place.

use crate::code::{Code, RuleError};
use crate::value::{Value, exact_int};

/// The longest `expireAfterSeconds`: 68 years.
pub const EXPIRE_AFTER_SECONDS_MAX: i64 = 2_147_483_647;

/// The command that an `expireAfterSeconds` belongs to, which decides the code of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExpireAfterContext {
    /// In `create`: not a number is `TypeMismatch`, a wrong number `InvalidOptions`.
    Create,
    /// In `collMod`, of the collection: as in `create`, and any string but `off` is `InvalidOptions`.
    CollMod,
    /// In `createIndexes`: every error is `CannotCreateIndex`.
    CreateIndexes,
    /// In `collMod`, of an index: as in `create`.
    CollModIndex,
}

/// Reads a number of seconds: a whole number by value, 0..=[`EXPIRE_AFTER_SECONDS_MAX`].
///
/// # Errors
/// As the context says.
pub fn parse_expire_after(value: &Value, context: ExpireAfterContext) -> Result<i64, RuleError> {
    let seconds = match value {
        Value::Int(i) => Some(*i),
        Value::Double(d) => exact_int(*d),
        other => {
            let code = match (context, other) {
                (ExpireAfterContext::CreateIndexes, _) => Code::CannotCreateIndex,
                (ExpireAfterContext::CollMod, Value::String(_)) => Code::InvalidOptions,
                _ => Code::TypeMismatch,
            };
            let off = if context == ExpireAfterContext::CollMod { " or 'off'" } else { "" };
            let message = format!("expireAfterSeconds must be a number{off}, not {}", described(other));
            return Err(RuleError::new(code, message));
        }
    };
    seconds.filter(|s| (0..=EXPIRE_AFTER_SECONDS_MAX).contains(s)).ok_or_else(|| {
        let code = match context {
            ExpireAfterContext::CreateIndexes => Code::CannotCreateIndex,
            _ => Code::InvalidOptions,
        };
        let message = format!(
            "expireAfterSeconds must be a whole number from 0 to {EXPIRE_AFTER_SECONDS_MAX}, not {}",
            described(value)
        );
        RuleError::new(code, message)
    })
}

/// Reads the `expireAfterSeconds` of a `collMod` on the collection: a number, or `"off"` for none.
///
/// # Errors
/// As for [`parse_expire_after`] in [`ExpireAfterContext::CollMod`].
pub fn parse_expire_after_or_off(value: &Value) -> Result<Option<i64>, RuleError> {
    match value {
        Value::String(word) if word == "off" => Ok(None),
        other => parse_expire_after(other, ExpireAfterContext::CollMod).map(Some),
    }
}

fn described(value: &Value) -> String {
    match value {
        Value::Int(i) => i.to_string(),
        Value::Double(d) => d.to_string(),
        Value::String(s) => format!("'{s}'"),
        other => other.class().name().to_owned(),
    }
}
