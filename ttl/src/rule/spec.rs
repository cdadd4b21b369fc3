//! Descriptions of partial TTL indexes as in `createIndexes`, `collMod` and `dropIndexes`.

use super::PartialRule;
use super::seconds::{ExpireAfterContext, parse_expire_after, parse_keep};
use crate::code::{Code, RuleError};
use crate::filter::Filter;
use crate::value::{Value, exact_int};
use std::fmt;

/// Bytes of an index's name at most.
const RULE_NAME_BYTES_MAX: usize = 255;

/// A partial TTL index to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSpec {
    pub(super) name: String,
    pub(super) key_direction: i32,
    pub(super) expire_after_seconds: i64,
    pub(super) filter: Filter,
    expire_into: Option<String>,
    keep_seconds: Option<i64>,
}

impl RuleSpec {
    /// An ascending index. Its parts are checked when it is made, for the collection that it is made in: the filter may mention
    /// only the meta field, and has the operators of [`Filter::parse_partial`].
    pub fn new(name: impl Into<String>, expire_after_seconds: i64, filter: Filter) -> Self {
        let (expire_into, keep_seconds) = (None, None);
        RuleSpec { name: name.into(), key_direction: 1, expire_after_seconds, filter, expire_into, keep_seconds }
    }

    /// Has what the index expires moved to an archive of its own, at this URL.
    #[must_use]
    pub fn expire_into(mut self, url: impl Into<String>) -> Self {
        self.expire_into = Some(url.into());
        self
    }

    /// Sets for how many seconds after its time a measurement is kept in that archive.
    #[must_use]
    pub fn keep_seconds(mut self, seconds: i64) -> Self {
        self.keep_seconds = Some(seconds);
        self
    }

    /// Checks the filter, for a collection with this meta field.
    ///
    /// # Errors
    /// As for [`Filter::parse_partial`]; `BadValue` for a filter that means something else when it is read again.
    pub fn check_filter(&self, meta_field: Option<&str>) -> Result<(), RuleError> {
        if Filter::parse_partial(self.filter.source(), meta_field)? == self.filter {
            return Ok(());
        }
        let message =
            format!("the filter of index '{}' cannot be stored: write it with the operators of a filter", self.name);
        Err(RuleError::new(Code::BadValue, message))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL of its archive, if it has one, and for how many seconds that keeps a measurement.
    #[must_use]
    pub fn archive(&self) -> (Option<&str>, Option<i64>) {
        (self.expire_into.as_deref(), self.keep_seconds)
    }

    /// Its E in seconds.
    #[must_use]
    pub fn expire_after_seconds(&self) -> i64 {
        self.expire_after_seconds
    }

    /// Reads one element of `createIndexes`' `indexes`, for a collection with these fields.
    ///
    /// # Errors
    /// `IDLUnknownField` for an unknown option; otherwise the code that the contract assigns to the error.
    pub fn parse(spec: &Value, time_field: &str, meta_field: Option<&str>) -> Result<Self, RuleError> {
        let Value::Object(options) = spec else {
            return Err(mismatch("an index", "an object", spec));
        };
        let known = ["key", "name", "expireAfterSeconds", "partialFilterExpression", "expireInto", "keepSeconds"];
        for (option, _) in options {
            if matches!(option.as_str(), "unique" | "sparse" | "collation") {
                let message =
                    format!("a TTL index on a time-series collection cannot have the option '{option}'; leave it out");
                return Err(RuleError::new(Code::InvalidOptions, message));
            }
            if !known.contains(&option.as_str()) {
                let message = format!("unknown option '{option}' of an index; it has {}", known.join(", "));
                return Err(RuleError::new(Code::IDLUnknownField, message));
            }
        }
        let Some(key) = spec.get("key") else {
            let message = format!("an index needs a key: the time field alone, {{{time_field}: 1}}");
            return Err(RuleError::new(Code::IDLFailedToParse, message));
        };
        let is_plain = spec.get("expireAfterSeconds").is_none() && spec.get("partialFilterExpression").is_none();
        let key_direction = read_key(key, time_field, is_plain)?;
        let name = match spec.get("name") {
            None => default_name(time_field, key_direction),
            Some(Value::String(name)) => checked_index_name(name)?,
            Some(other) => return Err(mismatch("the name of an index", "a string", other)),
        };
        let Some(filter) = spec.get("partialFilterExpression") else {
            if is_plain {
                return Err(RuleError::new(Code::InvalidOptions, NO_PLAIN_INDEX));
            }
            let message = "an index on the time field needs a partialFilterExpression; for all data set the \
                           collection's expireAfterSeconds";
            return Err(RuleError::new(Code::InvalidOptions, message));
        };
        let Some(seconds) = spec.get("expireAfterSeconds") else {
            return Err(RuleError::new(Code::InvalidOptions, "a partial TTL index needs expireAfterSeconds"));
        };
        let expire_after_seconds = parse_expire_after(seconds, ExpireAfterContext::CreateIndexes)?;
        let filter = Filter::parse_partial(filter, meta_field)?;
        let expire_into = spec.get("expireInto").map(parse_expire_into).transpose()?.flatten();
        let keep_seconds = spec.get("keepSeconds").map(parse_keep).transpose()?.flatten();
        Ok(RuleSpec { name, key_direction, expire_after_seconds, filter, expire_into, keep_seconds })
    }
}

fn default_name(time_field: &str, key_direction: i32) -> String {
    format!("{time_field}_{key_direction}")
}

/// Checks the name of an index.
///
/// # Errors
/// [`Code::CannotCreateIndex`] for what cannot be the name of an index, and for the names that listings give to rules that are
/// no indexes.
pub fn checked_index_name(name: &str) -> Result<String, RuleError> {
    if name.is_empty() || name == "*" || name.contains('\0') || name.len() > RULE_NAME_BYTES_MAX {
        let shown: String = name.chars().take(40).collect();
        let message = format!(
            "'{}' cannot be the name of an index: 1 to {RULE_NAME_BYTES_MAX} bytes without NUL can, '*' cannot",
            shown.escape_debug()
        );
        return Err(RuleError::new(Code::CannotCreateIndex, message));
    }
    let is_rung = |name: &str| name.strip_prefix("rung ").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    if [super::COLLECTION_RULE_LABEL, "items", "size"].contains(&name) || is_rung(name) {
        let message = format!("'{name}' is what listings call a rule that is no index; give the index another name");
        return Err(RuleError::new(Code::CannotCreateIndex, message));
    }
    Ok(name.to_owned())
}

/// Of an index that nobody meant to expire anything.
const NO_PLAIN_INDEX: &str = "a time-series collection has partial TTL indexes alone: times and metas are found without an index, \
                              so leave this one out";

/// The direction of a key that is one field, the time field.
fn read_key(key: &Value, time_field: &str, is_plain: bool) -> Result<i32, RuleError> {
    let refused = |code, message: String| match is_plain {
        true => RuleError::new(code, NO_PLAIN_INDEX),
        false => RuleError::new(code, message),
    };
    let Value::Object(fields) = key else {
        return Err(mismatch("the key of an index", "an object", key));
    };
    let [(field, direction)] = fields.as_slice() else {
        let message = format!("the key of a TTL index is the time field alone: {{{time_field}: 1}}");
        return Err(refused(Code::CannotCreateIndex, message));
    };
    if field != time_field {
        let message = format!("the key of a partial TTL index must be the time field '{time_field}', not '{field}'");
        return Err(refused(Code::InvalidOptions, message));
    }
    read_direction(direction).ok_or_else(|| {
        RuleError::new(Code::CannotCreateIndex, format!("the value of key field '{field}' must be 1 or -1"))
    })
}

fn read_direction(value: &Value) -> Option<i32> {
    let whole = match value {
        Value::Int(i) => *i,
        Value::Double(d) => exact_int(*d)?,
        _ => return None,
    };
    match whole {
        1 => Some(1),
        -1 => Some(-1),
        _ => None,
    }
}

fn mismatch(what: &str, wanted: &str, value: &Value) -> RuleError {
    RuleError::new(Code::TypeMismatch, format!("{what} must be {wanted}, not {}", value.class().name()))
}

/// Says which partial rule is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleSelector {
    /// The one with this name.
    Name(String),
    /// The one whose key is the time field with this direction; `None` is a key that no rule can have.
    Key(Option<i32>),
}

impl RuleSelector {
    /// Reads the `index` of a `dropIndexes`: a name, or a key pattern.
    ///
    /// # Errors
    /// `TypeMismatch` for anything but a string and an object.
    pub fn parse(index: &Value, time_field: &str) -> Result<Self, RuleError> {
        match index {
            Value::String(name) => Ok(RuleSelector::Name(name.clone())),
            Value::Object(fields) => Ok(RuleSelector::Key(match fields.as_slice() {
                [(field, direction)] if field == time_field => read_direction(direction),
                _ => None,
            })),
            other => Err(mismatch("an index", "a name or a key pattern", other)),
        }
    }

    pub(super) fn selects(&self, rule: &PartialRule) -> bool {
        match self {
            RuleSelector::Name(name) => rule.name == *name,
            RuleSelector::Key(direction) => *direction == Some(rule.key_direction),
        }
    }
}

/// A change of a partial TTL index; `None` leaves a part of it as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleChange {
    /// Which index.
    pub selector: RuleSelector,
    /// The new number of seconds.
    pub expire_after_seconds: Option<i64>,
    /// `Some(Some(url))` has what the index expires moved to an archive of its own; after `Some(None)` it has none.
    pub expire_into: Option<Option<String>>,
    /// `Some(Some(seconds))` limits how long that archive keeps, `Some(None)` keeps for ever.
    pub keep_seconds: Option<Option<i64>>,
}

impl RuleChange {
    /// A change that changes nothing yet.
    #[must_use]
    pub fn new(selector: RuleSelector) -> Self {
        RuleChange { selector, expire_after_seconds: None, expire_into: None, keep_seconds: None }
    }

    /// Sets the new number of seconds.
    #[must_use]
    pub fn expire_after_seconds(mut self, seconds: i64) -> Self {
        self.expire_after_seconds = Some(seconds);
        self
    }

    /// Sets where what the index expires is moved to; `None` for nowhere.
    #[must_use]
    pub fn expire_into(mut self, url: Option<&str>) -> Self {
        self.expire_into = Some(url.map(str::to_owned));
        self
    }

    /// Sets how long the archive keeps; `None` for ever.
    #[must_use]
    pub fn keep_seconds(mut self, seconds: Option<i64>) -> Self {
        self.keep_seconds = Some(seconds);
        self
    }

    /// Reads the `index` of a `collMod`: `{name | keyPattern, expireAfterSeconds, expireInto, keepSeconds}`.
    ///
    /// # Errors
    /// `TypeMismatch`, `IDLUnknownField`, and `InvalidOptions` for a bad value, no change, or not exactly one of name and
    /// keyPattern.
    pub fn parse(index: &Value, time_field: &str) -> Result<Self, RuleError> {
        let Value::Object(options) = index else {
            return Err(mismatch("index", "an object", index));
        };
        let known = ["name", "keyPattern", "expireAfterSeconds", "expireInto", "keepSeconds"];
        if let Some((option, _)) = options.iter().find(|(option, _)| !known.contains(&option.as_str())) {
            let message = format!("unknown option '{option}' of index; it has {}", known.join(", "));
            return Err(RuleError::new(Code::IDLUnknownField, message));
        }
        let selector = match (index.get("name"), index.get("keyPattern")) {
            (Some(name @ Value::String(_)), None) => RuleSelector::parse(name, time_field)?,
            (None, Some(pattern @ Value::Object(_))) => RuleSelector::parse(pattern, time_field)?,
            (Some(_), Some(_)) | (None, None) => {
                let message = "index needs either a name or a keyPattern";
                return Err(RuleError::new(Code::InvalidOptions, message));
            }
            (Some(other), None) => return Err(mismatch("the name of an index", "a string", other)),
            (None, Some(other)) => return Err(mismatch("a keyPattern", "an object", other)),
        };
        let seconds = index.get("expireAfterSeconds");
        let seconds =
            seconds.map(|seconds| parse_expire_after(seconds, ExpireAfterContext::CollModIndex)).transpose()?;
        let expire_into = index.get("expireInto").map(parse_expire_into).transpose()?;
        let keep_seconds = index.get("keepSeconds").map(parse_keep).transpose()?;
        if seconds.is_none() && expire_into.is_none() && keep_seconds.is_none() {
            return Err(RuleError::new(
                Code::InvalidOptions,
                "index needs expireAfterSeconds, expireInto or keepSeconds",
            ));
        }
        Ok(RuleChange { selector, expire_after_seconds: seconds, expire_into, keep_seconds })
    }
}

/// Reads `expireInto`: a URL, which is not checked, or `"off"` for none.
///
/// # Errors
/// `TypeMismatch` for anything but a string.
pub fn parse_expire_into(value: &Value) -> Result<Option<String>, RuleError> {
    match value {
        Value::String(word) if word == "off" => Ok(None),
        Value::String(url) => Ok(Some(url.clone())),
        other => Err(mismatch("expireInto", "a URL or 'off'", other)),
    }
}

impl fmt::Display for RuleSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleSelector::Name(name) => write!(f, "the name '{name}'"),
            RuleSelector::Key(Some(direction)) => write!(f, "the key pattern {{<time field>: {direction}}}"),
            RuleSelector::Key(None) => f.write_str("this key pattern"),
        }
    }
}
