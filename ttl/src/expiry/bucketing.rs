//! The width of a collection's windows: its options, and which changes are allowed.

use super::words;
use crate::code::{Code, RuleError};
use crate::value::{Value, exact_int};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The widest custom span: 365 days.
pub const SPAN_SECONDS_MAX: i64 = 31_536_000;

/// A named width of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Granularity {
    /// An hour.
    #[default]
    Seconds,
    /// A day.
    Minutes,
    /// 30 days.
    Hours,
}

words!(Granularity, "granularity", Seconds = "seconds", Minutes = "minutes", Hours = "hours");

impl Granularity {
    /// The window's width in seconds.
    #[must_use]
    pub const fn span_seconds(self) -> i64 {
        match self {
            Granularity::Seconds => 3_600,
            Granularity::Minutes => 86_400,
            Granularity::Hours => 2_592_000,
        }
    }
}

/// The width of a collection's windows: a granularity, or a custom number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Bucketing {
    /// Given, or left out, as `granularity`.
    Preset(Granularity),
    /// Given as `bucketMaxSpanSeconds` and `bucketRoundingSeconds`.
    Custom {
        /// The window's width in seconds, 1..=[`SPAN_SECONDS_MAX`].
        span_seconds: i64,
    },
}

impl Default for Bucketing {
    fn default() -> Self {
        Bucketing::Preset(Granularity::default())
    }
}

impl Bucketing {
    /// The window's width in seconds.
    #[must_use]
    pub const fn span_seconds(self) -> i64 {
        match self {
            Bucketing::Preset(granularity) => granularity.span_seconds(),
            Bucketing::Custom { span_seconds } => span_seconds,
        }
    }

    /// The granularity, if the width was not custom.
    #[must_use]
    pub const fn granularity(self) -> Option<Granularity> {
        match self {
            Bucketing::Preset(granularity) => Some(granularity),
            Bucketing::Custom { .. } => None,
        }
    }

    /// Reads the options of a new collection.
    ///
    /// # Errors
    /// `TypeMismatch` for a wrong type, `BadValue` for an unknown word or a number out of range, `InvalidOptions` for
    /// options that do not go together.
    pub fn parse(
        granularity: Option<&Value>,
        bucket_max_span_seconds: Option<&Value>,
        bucket_rounding_seconds: Option<&Value>,
    ) -> Result<Self, RuleError> {
        let given = read(granularity, bucket_max_span_seconds, bucket_rounding_seconds)?;
        Ok(given.unwrap_or_default())
    }

    /// What a collection has after a change of these options; without any, what it has now.
    ///
    /// # Errors
    /// As for [`Bucketing::parse`], and `InvalidOptions` if the span would shrink.
    pub fn changed(
        self,
        granularity: Option<&Value>,
        bucket_max_span_seconds: Option<&Value>,
        bucket_rounding_seconds: Option<&Value>,
    ) -> Result<Self, RuleError> {
        let Some(new) = read(granularity, bucket_max_span_seconds, bucket_rounding_seconds)? else {
            return Ok(self);
        };
        if new.span_seconds() < self.span_seconds() {
            return Err(invalid(format!(
                "a span may only grow: it is {self} ({} s) and cannot become {new} ({} s)",
                self.span_seconds(),
                new.span_seconds()
            )));
        }
        Ok(new)
    }
}

impl fmt::Display for Bucketing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bucketing::Preset(granularity) => f.write_str(granularity.name()),
            Bucketing::Custom { .. } => f.write_str("custom"),
        }
    }
}

fn read(
    granularity: Option<&Value>,
    max_span: Option<&Value>,
    rounding: Option<&Value>,
) -> Result<Option<Bucketing>, RuleError> {
    let granularity = granularity.map(Granularity::from_value).transpose()?;
    let max_span = max_span.map(|v| seconds("bucketMaxSpanSeconds", v)).transpose()?;
    let rounding = rounding.map(|v| seconds("bucketRoundingSeconds", v)).transpose()?;
    match (granularity, max_span, rounding) {
        (None, None, None) => Ok(None),
        (None, Some(span), Some(rounding)) if span == rounding => Ok(Some(Bucketing::Custom { span_seconds: span })),
        (None, Some(span), Some(rounding)) => {
            Err(invalid(format!("bucketMaxSpanSeconds ({span}) and bucketRoundingSeconds ({rounding}) must be equal")))
        }
        (None, _, _) => Err(invalid("bucketMaxSpanSeconds and bucketRoundingSeconds must be given together")),
        (Some(granularity), _, Some(_)) => {
            Err(invalid(format!("bucketRoundingSeconds cannot be given with granularity '{granularity}'")))
        }
        (Some(granularity), Some(span), None) if span != granularity.span_seconds() => Err(invalid(format!(
            "bucketMaxSpanSeconds of granularity '{granularity}' is {}, not {span}; leave one of the two out",
            granularity.span_seconds()
        ))),
        (Some(granularity), _, None) => Ok(Some(Bucketing::Preset(granularity))),
    }
}

fn seconds(option: &str, value: &Value) -> Result<i64, RuleError> {
    let whole = match value {
        Value::Int(i) => Some(*i),
        Value::Double(d) => exact_int(*d),
        other => {
            let message = format!("{option} must be a number, not {}", other.class().name());
            return Err(RuleError::new(Code::TypeMismatch, message));
        }
    };
    whole.filter(|s| (1..=SPAN_SECONDS_MAX).contains(s)).ok_or_else(|| {
        RuleError::new(Code::BadValue, format!("{option} must be a whole number from 1 to {SPAN_SECONDS_MAX}"))
    })
}

fn invalid(message: impl Into<String>) -> RuleError {
    RuleError::new(Code::InvalidOptions, message)
}
