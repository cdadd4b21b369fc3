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
    seconds_of("expireAfterSeconds", value, context)
}

/// Reads `graceSeconds`: a whole number of seconds by value, 0..=[`EXPIRE_AFTER_SECONDS_MAX`].
///
/// # Errors
/// `TypeMismatch` for anything but a number, `InvalidOptions` for a wrong one.
pub fn parse_grace(value: &Value) -> Result<i64, RuleError> {
    seconds_of("graceSeconds", value, ExpireAfterContext::Create)
}

/// Reads `keepSeconds`: a whole number of seconds by value, 0..=[`EXPIRE_AFTER_SECONDS_MAX`], or `"off"` for none.
///
/// # Errors
/// As for [`parse_grace`].
pub fn parse_keep(value: &Value) -> Result<Option<i64>, RuleError> {
    match value {
        Value::String(word) if word == "off" => Ok(None),
        value => seconds_of("keepSeconds", value, ExpireAfterContext::Create).map(Some),
    }
}

fn seconds_of(option: &str, value: &Value, context: ExpireAfterContext) -> Result<i64, RuleError> {
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
            let message = format!("{option} must be a number{off}, not {}", described(other));
            return Err(RuleError::new(code, message));
        }
    };
    seconds.filter(|s| (0..=EXPIRE_AFTER_SECONDS_MAX).contains(s)).ok_or_else(|| {
        let code = match context {
            ExpireAfterContext::CreateIndexes => Code::CannotCreateIndex,
            _ => Code::InvalidOptions,
        };
        let message =
            format!("{option} must be a whole number from 0 to {EXPIRE_AFTER_SECONDS_MAX}, not {}", described(value));
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

/// Reads `maxBytes`: a whole number of bytes by value, from 1 on, or `"off"` for no limit if `may_be_off`.
///
/// # Errors
/// `TypeMismatch` for anything but a number, `InvalidOptions` for a wrong one and for a string that is not `off`.
pub fn parse_max_bytes(value: &Value, may_be_off: bool) -> Result<Option<u64>, RuleError> {
    let bytes = match value {
        Value::Int(i) => Some(*i),
        Value::Double(d) => exact_int(*d),
        Value::String(word) if may_be_off && word == "off" => return Ok(None),
        other => {
            let is_word = may_be_off && matches!(other, Value::String(_));
            let code = if is_word { Code::InvalidOptions } else { Code::TypeMismatch };
            let off = if may_be_off { " or 'off'" } else { "" };
            return Err(RuleError::new(code, format!("maxBytes must be a number{off}, not {}", described(other))));
        }
    };
    let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
    bytes.map(Some).ok_or_else(|| {
        let message = format!("maxBytes must be a whole number from 1 to {}, not {}", i64::MAX, described(value));
        RuleError::new(Code::InvalidOptions, message)
    })
}

fn described(value: &Value) -> String {
    match value {
        Value::Int(i) => i.to_string(),
        Value::Double(d) => d.to_string(),
        Value::String(s) => format!("'{s}'"),
        other => other.class().name().to_owned(),
    }
}
