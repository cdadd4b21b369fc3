//! Ladders: which aggregates of measurements are kept, and for how long, once the measurements themselves are dropped.

use crate::code::{Code, RuleError};
use crate::expiry::SPAN_SECONDS_MAX;
use crate::rule::EXPIRE_AFTER_SECONDS_MAX;
use crate::value::{Value, exact_int};
use serde::{Deserialize, Serialize};

/// A rung of a [`Ladder`]: bins of one width, and how long each is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rung {
    /// The width of a bin in seconds, 1..=31536000. Bins are aligned to the epoch.
    pub step_seconds: i64,
    /// Seconds after its end until which a bin is visible; `None` for ever.
    pub expire_after_seconds: Option<i64>,
}

impl Rung {
    /// The label of the rule that drops its bins: `rung 600`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{RUNG_RULE}{}", self.step_seconds)
    }
}

/// What the labels of rungs' rules begin with.
pub const RUNG_RULE: &str = "rung ";

/// Rungs of growing width: each divides the next, and none is kept for less time than the one before it.
///
/// ```
/// use ebbtide_ttl::{Ladder, Rung};
///
/// let ladder = Ladder::new(vec![
///     Rung { step_seconds: 600, expire_after_seconds: Some(90 * 86_400) },
///     Rung { step_seconds: 86_400, expire_after_seconds: None },
/// ]);
/// ladder.validate()?;
/// # Ok::<(), ebbtide_ttl::RuleError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder {
    /// The fields of which bins keep aggregates; `None` for all that are numbers, bools or texts.
    pub fields: Option<Vec<String>>,
    /// The rungs, the finest first.
    pub rungs: Vec<Rung>,
}

impl Ladder {
    /// A ladder for all fields.
    #[must_use]
    pub fn new(rungs: Vec<Rung>) -> Ladder {
        Ladder { fields: None, rungs }
    }

    /// Limits it to these fields, some of which may not exist yet.
    #[must_use]
    pub fn fields<S: Into<String>>(mut self, fields: impl IntoIterator<Item = S>) -> Ladder {
        self.fields = Some(fields.into_iter().map(Into::into).collect());
        self
    }

    /// Whether bins keep aggregates of a field, if it has a type that can be aggregated.
    #[must_use]
    pub fn has_field(&self, name: &str) -> bool {
        self.fields.as_ref().is_none_or(|fields| fields.iter().any(|field| field == name))
    }

    /// Checks it.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`], naming the rung and what is wrong with it, or the field that is named twice.
    pub fn validate(&self) -> Result<(), RuleError> {
        if self.rungs.is_empty() {
            return Err(invalid(
                "a ladder has at least one rung: give a step and how long its bins are kept".to_owned(),
            ));
        }
        let mut before: Option<&Rung> = None;
        for (at, rung) in self.rungs.iter().enumerate() {
            let fails = |wrong: String| Err(invalid(format!("rung {} ({} s): {wrong}", at + 1, rung.step_seconds)));
            let step = rung.step_seconds;
            if !(1..=SPAN_SECONDS_MAX).contains(&step) {
                return fails(format!("a step has 1 to {SPAN_SECONDS_MAX} seconds"));
            }
            let life_max = EXPIRE_AFTER_SECONDS_MAX - step;
            if rung.expire_after_seconds.is_some_and(|life| !(0..=life_max).contains(&life)) {
                return fails(format!("expireAfterSeconds must be 0 to {life_max}, or null for ever"));
            }
            if let Some(before) = before {
                if step <= before.step_seconds || step % before.step_seconds != 0 {
                    return fails(format!(
                        "its step must be a multiple of that of the rung before it, {} s",
                        before.step_seconds
                    ));
                }
                let is_shorter = match (rung.expire_after_seconds, before.expire_after_seconds) {
                    (Some(life), Some(before)) => life < before,
                    (Some(_), None) => true,
                    (None, _) => false,
                };
                if is_shorter {
                    return fails("it must be kept at least as long as the rung before it, which is finer".to_owned());
                }
            }
            before = Some(rung);
        }
        let fields = self.fields.as_deref().unwrap_or_default();
        if self.fields.as_ref().is_some_and(Vec::is_empty) {
            return Err(invalid("fields names no field: leave it out to keep all, or name one".to_owned()));
        }
        match fields.iter().enumerate().find(|(at, field)| fields[..*at].contains(field)) {
            Some((_, twice)) => Err(invalid(format!("fields names '{twice}' twice"))),
            None => Ok(()),
        }
    }

    /// Reads the option `ladder` of a command: `{fields: [...], rungs: [{step, expireAfterSeconds}]}`, or `"off"` for none. In
    /// `fields` may be left out; `expireAfterSeconds` may be left out or null for ever.
    ///
    /// # Errors
    /// [`Code::TypeMismatch`], [`Code::IDLUnknownField`], and as for [`Ladder::validate`].
    pub fn parse_or_off(value: &Value) -> Result<Option<Ladder>, RuleError> {
        if matches!(value, Value::String(word) if word == "off") {
            return Ok(None);
        }
        let members = members(value, "ladder", "an object or 'off'")?;
        let mut ladder = Ladder::default();
        let mut has_rungs = false;
        for (name, value) in members {
            match (name.as_str(), value) {
                ("fields", Value::Null) => {}
                ("fields", fields) => ladder.fields = Some(list(fields, "ladder.fields", field_name)?),
                ("rungs", rungs) => (ladder.rungs, has_rungs) = (list(rungs, "ladder.rungs", rung)?, true),
                (other, _) => return Err(unknown("ladder", other, "fields and rungs")),
            }
        }
        if !has_rungs {
            return Err(invalid("ladder lacks rungs, a list of {step, expireAfterSeconds}".to_owned()));
        }
        ladder.validate()?;
        Ok(Some(ladder))
    }

    /// The form that [`Ladder::parse_or_off`] reads.
    #[must_use]
    pub fn document(&self) -> Value {
        let rung = |rung: &Rung| {
            let life = rung.expire_after_seconds.map_or(Value::Null, Value::Int);
            Value::Object(vec![("step".into(), Value::Int(rung.step_seconds)), ("expireAfterSeconds".into(), life)])
        };
        let mut members = Vec::new();
        if let Some(fields) = &self.fields {
            let fields = fields.iter().map(|field| Value::String(field.clone()));
            members.push(("fields".into(), Value::Array(fields.collect())));
        }
        members.push(("rungs".into(), Value::Array(self.rungs.iter().map(rung).collect())));
        Value::Object(members)
    }
}

fn invalid(message: String) -> RuleError {
    RuleError::new(Code::InvalidOptions, message)
}

fn unknown(of: &str, name: &str, known: &str) -> RuleError {
    RuleError::new(Code::IDLUnknownField, format!("{of} has no option '{name}': it has {known}"))
}

fn mismatch(option: &str, wanted: &str, value: &Value) -> RuleError {
    RuleError::new(Code::TypeMismatch, format!("{option} must be {wanted}, not {}", value.class().name()))
}

type Members = [(crate::value::Name, Value)];

fn members<'a>(value: &'a Value, option: &str, wanted: &str) -> Result<&'a Members, RuleError> {
    match value {
        Value::Object(members) => Ok(members),
        Value::String(word) => Err(invalid(format!("{option} must be {wanted}, not '{word}'"))),
        other => Err(mismatch(option, wanted, other)),
    }
}

fn list<T>(value: &Value, option: &str, item: fn(usize, &Value) -> Result<T, RuleError>) -> Result<Vec<T>, RuleError> {
    let Value::Array(items) = value else { return Err(mismatch(option, "a list", value)) };
    items.iter().enumerate().map(|(at, value)| item(at, value)).collect()
}

fn field_name(_: usize, value: &Value) -> Result<String, RuleError> {
    match value {
        Value::String(name) => Ok(name.clone()),
        other => Err(mismatch("an item of ladder.fields", "the name of a field", other)),
    }
}

fn rung(at: usize, value: &Value) -> Result<Rung, RuleError> {
    let (mut step, mut life) = (None, None);
    for (name, value) in members(value, "a rung", "an object")? {
        match name.as_str() {
            "step" => step = Some(seconds(at, "step", value)?),
            "expireAfterSeconds" if value.is_null() => life = None,
            "expireAfterSeconds" => life = Some(seconds(at, "expireAfterSeconds", value)?),
            other => return Err(unknown(&format!("rung {}", at + 1), other, "step and expireAfterSeconds")),
        }
    }
    let step = step.ok_or_else(|| invalid(format!("rung {} lacks step, the width of its bins in seconds", at + 1)))?;
    Ok(Rung { step_seconds: step, expire_after_seconds: life })
}

fn seconds(at: usize, option: &str, value: &Value) -> Result<i64, RuleError> {
    let number = match value {
        Value::Int(i) => Some(*i),
        Value::Double(d) => exact_int(*d),
        other => return Err(mismatch(&format!("{option} of rung {}", at + 1), "a number of seconds", other)),
    };
    number.ok_or_else(|| invalid(format!("{option} of rung {} must be a whole number of seconds", at + 1)))
}

#[cfg(test)]
mod tests;
