//! Errors of expressions and pipelines.

use crate::RuleError;
use std::fmt;

/// Why an expression or a stage was refused, or could not be evaluated: MongoDB's number for the same mistake, and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionError {
    /// MongoDB's number.
    pub code: i32,
    /// What a person reads.
    pub message: String,
}

impl ExpressionError {
    /// Creates an error.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        ExpressionError { code, message: message.into() }
    }

    /// MongoDB's name for the number.
    #[must_use]
    pub fn name(&self) -> String {
        let known = match self.code {
            2 => "BadValue",
            9 => "FailedToParse",
            14 => "TypeMismatch",
            15 => "Overflow",
            50 => "MaxTimeMSExpired",
            73 => "InvalidNamespace",
            115 => "CommandNotSupported",
            146 => "ExceededMemoryLimit",
            159 => "DurationOverflow",
            168 => "InvalidPipelineOperator",
            241 => "ConversionFailure",
            10334 => "BSONObjectTooLarge",
            other => return format!("Location{other}"),
        };
        known.to_owned()
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExpressionError {}

impl From<RuleError> for ExpressionError {
    fn from(error: RuleError) -> Self {
        ExpressionError { code: error.code.number(), message: error.message }
    }
}
