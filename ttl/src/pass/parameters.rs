//! The sweeper's parameters, by the names that users set them by.

use super::VisitLimit;
use crate::code::{Code, RuleError};
use crate::value::{Value, exact_int};
use std::time::Duration;

/// What steers the sweeper. They can be changed while it runs and start afresh at each open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// `ttlMonitorEnabled`: whether passes are made at all.
    pub monitor_enabled: bool,
    /// `ttlMonitorSleepSecs`: seconds between passes, > 0.
    pub monitor_sleep_secs: i64,
    /// `ttlMonitorSubPassTargetSecs`: seconds after which a sub-pass begins no further round; 0 is one round.
    pub sub_pass_target_secs: i64,
    /// `ttlIndexDeleteTargetDocs`: buckets that one visit to a rule takes; 0 is no limit.
    pub delete_target_docs: i64,
    /// `ttlIndexDeleteTargetTimeMS`: milliseconds that one visit to a rule takes; 0 is no limit.
    pub delete_target_time_ms: i64,
    /// `ttlClockJumpToleranceSecs`: seconds that the wall clock may gain on the monotonic one; 0 is any.
    pub clock_jump_tolerance_secs: i64,
    /// `ttlHandOffTimeoutMS`: milliseconds after which a sink that has not answered counts as failed, > 0.
    pub hand_off_timeout_ms: i64,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            monitor_enabled: true,
            monitor_sleep_secs: 60,
            sub_pass_target_secs: 60,
            delete_target_docs: 50_000,
            delete_target_time_ms: 1_000,
            clock_jump_tolerance_secs: 3_600,
            hand_off_timeout_ms: 30_000,
        }
    }
}

const ENABLED: &str = "ttlMonitorEnabled";

/// Name, least and greatest value of each parameter that is a number. Seconds fit into 32 bits.
const NUMBERS: [(&str, i64, i64); 6] = [
    ("ttlMonitorSleepSecs", 1, i32::MAX as i64),
    ("ttlMonitorSubPassTargetSecs", 0, i32::MAX as i64),
    ("ttlIndexDeleteTargetDocs", 0, i64::MAX),
    ("ttlIndexDeleteTargetTimeMS", 0, i64::MAX),
    ("ttlClockJumpToleranceSecs", 0, i32::MAX as i64),
    ("ttlHandOffTimeoutMS", 1, i32::MAX as i64),
];

impl Parameters {
    /// The names of all parameters.
    pub fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once(ENABLED).chain(NUMBERS.iter().map(|(name, _, _)| *name))
    }

    /// A parameter's value.
    ///
    /// # Errors
    /// `InvalidOptions` for a name that is not known.
    pub fn get(&self, name: &str) -> Result<Value, RuleError> {
        if name == ENABLED {
            return Ok(Value::Bool(self.monitor_enabled));
        }
        let mut copy = self.clone();
        copy.number(name).map(|number| Value::Int(*number)).ok_or_else(|| unknown(name))
    }

    /// Changes a parameter and returns its old value.
    ///
    /// # Errors
    /// `InvalidOptions` for a name that is not known, `TypeMismatch` for a wrong type, `BadValue` for a number out of
    /// range or with a fraction.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<Value, RuleError> {
        let was = self.get(name)?;
        if name == ENABLED {
            let Value::Bool(enabled) = value else { return Err(mismatch(name, "true or false", value)) };
            self.monitor_enabled = *enabled;
            return Ok(was);
        }
        let whole = match value {
            Value::Int(i) => Some(*i),
            Value::Double(d) => exact_int(*d),
            other => return Err(mismatch(name, "a number", other)),
        };
        let (_, min, max) = NUMBERS.into_iter().find(|(known, _, _)| *known == name).ok_or_else(|| unknown(name))?;
        let new = whole.filter(|i| (min..=max).contains(i)).ok_or_else(|| {
            RuleError::new(Code::BadValue, format!("parameter {name} must be a whole number from {min} to {max}"))
        })?;
        *self.number(name).ok_or_else(|| unknown(name))? = new;
        Ok(was)
    }

    fn number(&mut self, name: &str) -> Option<&mut i64> {
        match name {
            "ttlMonitorSleepSecs" => Some(&mut self.monitor_sleep_secs),
            "ttlMonitorSubPassTargetSecs" => Some(&mut self.sub_pass_target_secs),
            "ttlIndexDeleteTargetDocs" => Some(&mut self.delete_target_docs),
            "ttlIndexDeleteTargetTimeMS" => Some(&mut self.delete_target_time_ms),
            "ttlClockJumpToleranceSecs" => Some(&mut self.clock_jump_tolerance_secs),
            "ttlHandOffTimeoutMS" => Some(&mut self.hand_off_timeout_ms),
            _ => None,
        }
    }

    /// The time between passes.
    #[must_use]
    pub fn sleep(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.monitor_sleep_secs).unwrap_or(1))
    }

    /// The time after which a sub-pass begins no further round.
    #[must_use]
    pub fn sub_pass_target(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.sub_pass_target_secs).unwrap_or(0))
    }

    /// How long a sink may take to answer.
    #[must_use]
    pub fn hand_off_timeout(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.hand_off_timeout_ms).unwrap_or(1))
    }

    /// How far one visit to a rule may go.
    #[must_use]
    pub fn visit_limit(&self) -> VisitLimit {
        let limit = |number: i64| u64::try_from(number).ok().filter(|n| *n > 0);
        VisitLimit {
            buckets: limit(self.delete_target_docs),
            time: limit(self.delete_target_time_ms).map(Duration::from_millis),
        }
    }
}

fn unknown(name: &str) -> RuleError {
    let names: Vec<_> = Parameters::names().collect();
    RuleError::new(Code::InvalidOptions, format!("unknown parameter '{name}'; there are {}", names.join(", ")))
}

fn mismatch(name: &str, wanted: &str, value: &Value) -> RuleError {
    RuleError::new(Code::TypeMismatch, format!("parameter {name} must be {wanted}, not {}", value.class().name()))
}
