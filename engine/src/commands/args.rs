//! The options of a command, checked for names and types.

use crate::error::{Error, Result};
use crate::json::value_of;
use ebbtide_ttl::{Code, Value, exact_int};
use serde_json::{Map, Value as Json};

/// Named options, and what they are the options of.
pub(super) struct Args<'a> {
    what: String,
    members: &'a Map<String, Json>,
}

impl<'a> Args<'a> {
    /// The options of a command whose name is the first key. Every command accepts a `comment`.
    pub(super) fn of_command(name: &'static str, members: &'a Map<String, Json>, known: &[&str]) -> Result<Self> {
        let args = Self::unchecked(name, members);
        args.check_names(|option| option == name || option == "comment" || known.contains(&option), known)?;
        Ok(args)
    }

    /// The options of a command that checks their names itself.
    pub(super) fn unchecked(name: &'static str, members: &'a Map<String, Json>) -> Self {
        Args { what: name.to_owned(), members }
    }

    /// The options in an object within a command.
    pub(super) fn nested(what: String, json: &'a Json, known: &[&str]) -> Result<Self> {
        let members = object(json).ok_or_else(|| mismatch(&what, "an object", json))?;
        let args = Args { what, members };
        args.check_names(|option| known.contains(&option), known)?;
        Ok(args)
    }

    fn check_names(&self, is_known: impl Fn(&str) -> bool, known: &[&str]) -> Result<()> {
        let Some(unknown) = self.members.keys().find(|option| !is_known(option)) else { return Ok(()) };
        let has = if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
        let hint = match crate::suggest::nearest(unknown, known.iter().copied()) {
            Some(near) => format!(" (did you mean '{near}'?)"),
            None => String::new(),
        };
        let shown: String = unknown.chars().take(60).collect();
        let what = format!("unknown option '{}' of {}{hint}; {has}", shown.escape_debug(), self.what);
        Err(Error::new(Code::IDLUnknownField, what))
    }

    /// The name of a collection, which is the value of the command's own key.
    pub(super) fn collection(&self) -> Result<&'a str> {
        let named = self.members.get(&self.what).unwrap_or(&Json::Null);
        named.as_str().ok_or_else(|| mismatch(&self.what, "the name of a collection", named))
    }

    /// Every option but `comment` and the command's own name.
    pub(super) fn others(&self) -> impl Iterator<Item = (&'a str, &'a Json)> {
        let others = self.members.iter().filter(|(name, _)| **name != self.what && *name != "comment");
        others.map(|(name, value)| (name.as_str(), value))
    }

    /// The value of the command's own key.
    pub(super) fn subject(&self) -> &'a Json {
        self.members.get(&self.what).unwrap_or(&Json::Null)
    }

    pub(super) fn get(&self, option: &str) -> Option<&'a Json> {
        self.members.get(option)
    }

    pub(super) fn required(&self, option: &str) -> Result<&'a Json> {
        self.get(option).ok_or_else(|| {
            Error::new(Code::IDLFailedToParse, format!("{} lacks '{option}', which is required", self.what))
        })
    }

    pub(super) fn value(&self, option: &str) -> Result<Option<Value>> {
        self.get(option).map(value_of).transpose()
    }

    pub(super) fn string(&self, option: &str) -> Result<Option<&'a str>> {
        let read = |json: &'a Json| json.as_str().ok_or_else(|| self.mismatch(option, "a string", json));
        self.get(option).map(read).transpose()
    }

    pub(super) fn bool(&self, option: &str) -> Result<Option<bool>> {
        let read = |json: &'a Json| json.as_bool().ok_or_else(|| self.mismatch(option, "true or false", json));
        self.get(option).map(read).transpose()
    }

    pub(super) fn required_array(&self, option: &str) -> Result<&'a [Json]> {
        let json = self.required(option)?;
        json.as_array().map(Vec::as_slice).ok_or_else(|| self.mismatch(option, "a list", json))
    }

    /// A whole number from 0; 0 if it is not given.
    pub(super) fn count(&self, option: &str) -> Result<u64> {
        let Some(value) = self.value(option)? else { return Ok(0) };
        let whole = match &value {
            Value::Int(i) => Some(*i),
            Value::Double(d) => exact_int(*d),
            _ => {
                let json = self.get(option).unwrap_or(&Json::Null);
                return Err(self.mismatch(option, "a number", json));
            }
        };
        whole.and_then(|i| u64::try_from(i).ok()).ok_or_else(|| {
            Error::new(Code::BadValue, format!("{option} of {} must be a whole number, 0 or more", self.what))
        })
    }

    pub(super) fn mismatch(&self, option: &str, wanted: &str, given: &Json) -> Error {
        mismatch(&format!("{option} of {}", self.what), wanted, given)
    }
}

pub(super) fn mismatch(what: &str, wanted: &str, given: &Json) -> Error {
    Error::new(Code::TypeMismatch, format!("{what} must be {wanted}, not {}", kind(given)))
}

/// The members of an object; nothing for one that stands for another value in Extended JSON, such as `{"$numberInt": "1"}`.
pub(super) fn object(json: &Json) -> Option<&Map<String, Json>> {
    let members = json.as_object()?;
    let is_other = || matches!(value_of(json), Ok(value) if !matches!(value, Value::Object(_)));
    let is_wrapper = members.keys().any(|name| name.starts_with('$')) && is_other();
    (!is_wrapper).then_some(members)
}

/// What a JSON value is, for messages.
pub(super) fn kind(json: &Json) -> &'static str {
    match value_of(json) {
        Ok(value) => value.class().name(),
        Err(_) => "a malformed value",
    }
}
