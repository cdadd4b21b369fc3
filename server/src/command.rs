//! A command that a client sent, and its options.
//!
//! 1. Generic arguments, which drivers add to every command, are taken off first. Of the rest nothing is ignored: an unknown
//!    option is an error that names it.
//! 2. Where a command asks for what is not here (a transaction, a collation) it is refused, not run without it.

use crate::accounts::Role;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::{CommandError, Result, ServerCode};
use crate::frame::{Form, Message, Sequence, WRITE_BATCH_MAX};
use crate::operations::Operation;
use crate::shared::Shared;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use ebbtide::Database;
use ebbtide_documents::{Constants, TypeClass};
use ebbtide_ttl::{Clock, Code, Precision};
use std::time::Duration;

/// What drivers add to every command.
const GENERIC: [&str; 15] = [
    "lsid",
    "$db",
    "$clusterTime",
    "$readPreference",
    "$client",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "maxTimeMS",
    "comment",
    "readConcern",
    "writeConcern",
    "txnNumber",
    "autocommit",
    "startTransaction",
];

/// Where MongoDB keeps the buckets of a collection of measurements, as documents.
const BUCKETS: &str = "system.buckets.";

/// Refuses the collection of buckets that `mongodump` asks for.
pub(crate) fn refuse_buckets(name: &str) -> Result<()> {
    let Some(measurements) = name.strip_prefix(BUCKETS) else { return Ok(()) };
    let shown: String = measurements.chars().take(60).collect();
    let shown = shown.escape_debug();
    let what = format!(
        "there is no '{BUCKETS}{shown}' here, since measurements are not kept as documents of buckets: read '{shown}', and \
         make backups with ebbtide dump"
    );
    Err(CommandError::of_server(ServerCode::CommandNotSupported, what))
}

/// What a command needs where there are accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// No login: what a handshake needs.
    Anyone,
    /// The role `read`.
    Read,
    /// The role `write`.
    Write,
    /// The role `admin`.
    Admin,
}

impl Access {
    pub(crate) fn role(self) -> Option<Role> {
        match self {
            Access::Anyone => None,
            Access::Read => Some(Role::Read),
            Access::Write => Some(Role::Write),
            Access::Admin => Some(Role::Admin),
        }
    }
}

/// Who runs a command.
pub(crate) struct Handler {
    pub(crate) name: &'static str,
    pub(crate) access: Access,
    /// Its options; `None` if it checks them itself.
    pub(crate) options: Option<&'static [&'static str]>,
    pub(crate) run: fn(&Command<'_>) -> Result<RawDocumentBuf>,
    /// Whether it neither waits for the disk nor takes long, but within `block_in_place`.
    pub(crate) is_quick: bool,
}

impl Handler {
    pub(crate) const fn new(
        name: &'static str,
        access: Access,
        options: &'static [&'static str],
        run: fn(&Command<'_>) -> Result<RawDocumentBuf>,
    ) -> Handler {
        Handler { name, access, options: Some(options), run, is_quick: false }
    }

    pub(crate) const fn quick(
        name: &'static str,
        access: Access,
        options: &'static [&'static str],
        run: fn(&Command<'_>) -> Result<RawDocumentBuf>,
    ) -> Handler {
        Handler { name, access, options: Some(options), run, is_quick: true }
    }

    /// A greeting: newer drivers add to it what older servers must ignore.
    pub(crate) const fn quick_open(
        name: &'static str,
        access: Access,
        run: fn(&Command<'_>) -> Result<RawDocumentBuf>,
    ) -> Handler {
        Handler { name, access, options: None, run, is_quick: true }
    }

    /// One that checks its options itself.
    pub(crate) const fn open(
        name: &'static str,
        access: Access,
        run: fn(&Command<'_>) -> Result<RawDocumentBuf>,
    ) -> Handler {
        Handler { name, access, options: None, run, is_quick: false }
    }
}

/// A command that is to be run.
pub(crate) struct Command<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) client: &'a Client,
    pub(crate) handler: &'static Handler,
    operation: &'a Operation,
    pub(crate) database: &'a str,
    pub(crate) body: &'a RawDocument,
    sequences: &'a [Sequence<'a>],
    /// Its `maxTimeMS`, and `killOp`.
    pub(crate) deadline: Deadline<'a>,
    /// The instant of `$$NOW`, in milliseconds since 1970: one for all of it.
    pub(crate) now_ms: i64,
}

impl<'a> Command<'a> {
    /// The command of a message, which this handler runs.
    pub(crate) fn of(
        shared: &'a Shared,
        client: &'a Client,
        message: &'a Message<'a>,
        handler: &'static Handler,
        operation: &'a Operation,
    ) -> Result<Command<'a>> {
        let mut command = Command {
            shared,
            client,
            handler,
            operation,
            database: "",
            body: message.body,
            sequences: &message.sequences,
            deadline: Deadline::new(&shared.clock, &operation.killed),
            now_ms: shared.clock.now().to_units_saturating(Precision::Ms),
        };
        command.database = match (message.form, message.database) {
            (Form::Query, Some(database)) => database,
            _ => command.string("$db")?.ok_or_else(|| missing("$db", handler.name))?,
        };
        if command.get("startTransaction").is_some() || command.get("autocommit").is_some() {
            let what = "transactions are not available: each command is atomic by itself";
            return Err(CommandError::new(Code::IllegalOperation, what));
        }
        let given = command.time_max()?;
        if let Some(time) = given.into_iter().chain(shared.settings.statement_max).min() {
            command.deadline = command.deadline.after(time);
        }
        if let Some(options) = handler.options {
            command.check_names(options)?;
        }
        Ok(command)
    }

    /// A command within this one, such as that which `explain` is about.
    pub(crate) fn within(&self, body: &'a RawDocument, options: &[&str]) -> Result<Command<'a>> {
        let command = Command { body, sequences: &[], ..*self };
        command.check_names(options)?;
        Ok(command)
    }

    /// Options but the generic ones and the command's own name.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&'a str, RawBsonRef<'a>)> {
        let members = self.body.iter().skip(1).filter_map(std::result::Result::ok);
        members.map(|(name, value)| (name.as_str(), value)).filter(|(name, _)| !GENERIC.contains(name))
    }

    fn check_names(&self, known: &[&str]) -> Result<()> {
        let lists = self.sequences.iter().map(|sequence| sequence.name);
        let Some(unknown) = self.options().map(|(name, _)| name).chain(lists).find(|name| !known.contains(name)) else {
            return Ok(());
        };
        let shown: String = unknown.chars().take(60).collect();
        let what = format!("unknown option '{}' of {}", shown.escape_debug(), self.handler.name);
        Err(CommandError::new(Code::IDLUnknownField, what))
    }

    /// The value of the command's own key.
    pub(crate) fn subject(&self) -> RawBsonRef<'a> {
        self.body.iter().next().and_then(std::result::Result::ok).map_or(RawBsonRef::Null, |(_, value)| value)
    }

    /// Refuses a command for the database `admin` on any other.
    pub(crate) fn check_admin(&self) -> Result<()> {
        if self.database == "admin" {
            return Ok(());
        }
        let what = format!("{} may only be run against the admin database.", self.handler.name);
        Err(CommandError::of_server(ServerCode::Unauthorized, what))
    }

    /// The collection that it names.
    pub(crate) fn collection(&self) -> Result<&'a str> {
        match self.subject() {
            RawBsonRef::String("") => {
                Err(CommandError::new(Code::InvalidNamespace, "the name of a collection must not be empty"))
            }
            RawBsonRef::String(name) if name.starts_with('.') => {
                let shown: String = name.chars().take(60).collect();
                let what = format!("Collection names cannot start with '.': {}", shown.escape_debug());
                Err(CommandError::new(Code::InvalidNamespace, what))
            }
            RawBsonRef::String(name) => {
                refuse_buckets(name)?;
                Ok(name)
            }
            other => {
                let code = match self.handler.name {
                    "count" | "distinct" | "validate" | "collStats" | "compact" => Code::InvalidNamespace,
                    "aggregate" if TypeClass::of(other) == TypeClass::Number => Code::FailedToParse,
                    "aggregate" => Code::TypeMismatch,
                    _ => Code::BadValue,
                };
                let given = ebbtide_documents::type_name(other);
                let what = format!("{} must be the name of a collection, not {given}", self.handler.name);
                Err(CommandError::new(code, what))
            }
        }
    }

    /// The collection's name behind that of its database.
    pub(crate) fn namespace(&self, collection: &str) -> String {
        format!("{}.{collection}", self.database)
    }

    /// Notes how it finds its documents, if that is to be recorded.
    pub(crate) fn note_plan(&self, plan: impl FnOnce() -> String) {
        if self.operation.is_profiled {
            *self.operation.plan.lock() = Some(plan()).filter(|plan| !plan.is_empty());
        }
    }

    /// The same, unless that is known already.
    pub(crate) fn note_first_plan(&self, plan: impl FnOnce() -> String) {
        if self.operation.plan.lock().is_none() {
            self.note_plan(plan);
        }
    }

    /// The database, if it exists.
    pub(crate) fn existing(&self) -> Result<Option<Database>> {
        self.shared.databases.get(self.database)
    }

    /// An option that is given; null counts as not given.
    pub(crate) fn get(&self, option: &str) -> Option<RawBsonRef<'a>> {
        self.body.get(option).ok().flatten().filter(|value| *value != RawBsonRef::Null)
    }

    pub(crate) fn required(&self, option: &str) -> Result<RawBsonRef<'a>> {
        self.get(option).ok_or_else(|| missing(option, self.handler.name))
    }

    pub(crate) fn string(&self, option: &str) -> Result<Option<&'a str>> {
        match self.get(option) {
            None => Ok(None),
            Some(RawBsonRef::String(text)) => Ok(Some(text)),
            Some(other) => Err(mismatch(option, "a string", other)),
        }
    }

    pub(crate) fn document(&self, option: &str) -> Result<Option<&'a RawDocument>> {
        match self.get(option) {
            None => Ok(None),
            Some(RawBsonRef::Document(document)) => Ok(Some(document)),
            Some(other) => Err(mismatch(option, "an object", other)),
        }
    }

    /// The values of `let`.
    pub(crate) fn constants(&self) -> Result<Constants> {
        match self.document("let")? {
            Some(values) => Ok(Constants::parse_unless(values, self.now_ms, &|| self.deadline.check().is_err())?),
            None => Ok(Constants::default()),
        }
    }

    /// True or false; numbers count as such, as in MongoDB.
    pub(crate) fn flag(&self, option: &str) -> Result<Option<bool>> {
        self.get(option).map(|value| flag(option, value)).transpose()
    }

    /// True or false, and nothing else.
    pub(crate) fn switch(&self, option: &str) -> Result<Option<bool>> {
        self.get(option).map(|value| switch(option, value)).transpose()
    }

    /// A number of 0 or more; a fraction is cut off.
    pub(crate) fn count(&self, option: &str) -> Result<Option<u64>> {
        self.get(option).map(|value| count_of(option, value)).transpose()
    }

    /// The time that the command may take; 0 is as long as it needs.
    fn time_max(&self) -> Result<Option<Duration>> {
        let Some(value) = self.get("maxTimeMS") else { return Ok(None) };
        let millis = ebbtide_documents::whole_number(value).and_then(|millis| u64::try_from(millis).ok());
        match millis {
            Some(0) => Ok(None),
            Some(millis) if millis <= u64::from(i32::MAX.unsigned_abs()) => Ok(Some(Duration::from_millis(millis))),
            _ => {
                let what = format!("maxTimeMS must be a whole number from 0 to {}", i32::MAX);
                Err(CommandError::new(Code::BadValue, what))
            }
        }
    }

    /// A whole number.
    pub(crate) fn whole(&self, option: &str) -> Result<Option<i64>> {
        let Some(value) = self.get(option) else { return Ok(None) };
        match ebbtide_documents::whole_number(value) {
            Some(whole) => Ok(Some(whole)),
            None if TypeClass::of(value) == TypeClass::Number => {
                Err(CommandError::new(Code::BadValue, format!("{option} must be a whole number")))
            }
            None => Err(mismatch(option, "a number", value)),
        }
    }

    /// The documents of a write: beside the command, or in its option.
    pub(crate) fn list(&self, option: &str) -> Result<Vec<&'a RawDocument>> {
        if let Some(sequence) = self.sequences.iter().find(|sequence| sequence.name == option) {
            return Ok(sequence.documents.clone());
        }
        let RawBsonRef::Array(list) = self.required(option)? else {
            return Err(mismatch(option, "a list", self.required(option)?));
        };
        let mut documents = Vec::new();
        for (index, element) in list.into_iter().filter_map(std::result::Result::ok).enumerate() {
            match element {
                RawBsonRef::Document(document) if index < WRITE_BATCH_MAX => documents.push(document),
                RawBsonRef::Document(_) => {
                    let what = format!("more than {WRITE_BATCH_MAX} elements in {option}: send several commands");
                    return Err(CommandError::new(Code::BadValue, what));
                }
                other => return Err(mismatch(&format!("{option} at index {index}"), "an object", other)),
            }
        }
        Ok(documents)
    }

    /// The values of a list.
    pub(crate) fn values(&self, option: &str) -> Result<Vec<RawBsonRef<'a>>> {
        match self.required(option)? {
            RawBsonRef::Array(list) => Ok(list.into_iter().filter_map(std::result::Result::ok).collect()),
            other => Err(mismatch(option, "a list", other)),
        }
    }

    /// Refuses options that are known and not here, unless they ask for nothing.
    pub(crate) fn refuse(&self, options: &[&str]) -> Result<()> {
        let asks = |option: &&&str| match self.get(option) {
            None | Some(RawBsonRef::Boolean(false)) => false,
            Some(RawBsonRef::Document(document)) => !document.is_empty() && !is_simple(document),
            Some(_) => true,
        };
        match options.iter().find(asks) {
            None => Ok(()),
            Some(option) => {
                let what = format!("'{option}' of {} is not available: leave it out", self.handler.name);
                Err(CommandError::of_server(ServerCode::CommandNotSupported, what))
            }
        }
    }
}

/// Whether it is the collation that compares bytes, which is that of all collections.
pub(crate) fn is_simple(collation: &RawDocument) -> bool {
    let mut members = collation.iter();
    let first = members.next().and_then(std::result::Result::ok);
    first.is_some_and(|(name, value)| name.as_str() == "locale" && value == RawBsonRef::String("simple"))
        && members.next().is_none()
}

/// The whole part of a number, which counts in MongoDB.
#[expect(clippy::cast_possible_truncation, reason = "a number beyond 64 bits is the largest or least one")]
pub(crate) fn whole_part(option: &str, value: RawBsonRef<'_>) -> Result<i64> {
    match value {
        RawBsonRef::Double(d) => Ok(d as i64),
        value => ebbtide_documents::whole_number(value).ok_or_else(|| mismatch(option, "a whole number", value)),
    }
}

/// A number of 0 or more; a fraction is cut off.
pub(crate) fn count_of(option: &str, value: RawBsonRef<'_>) -> Result<u64> {
    let whole = whole_part(option, value)?;
    u64::try_from(whole).map_err(|_| {
        CommandError::of_server(ServerCode::Location51024, format!("{option} must be 0 or more, not {whole}"))
    })
}

/// True or false, and nothing else.
pub(crate) fn switch(option: &str, value: RawBsonRef<'_>) -> Result<bool> {
    match value {
        RawBsonRef::Boolean(b) => Ok(b),
        other => Err(mismatch(option, "true or false", other)),
    }
}

/// True or false; numbers count as such, as in MongoDB.
pub(crate) fn flag(option: &str, value: RawBsonRef<'_>) -> Result<bool> {
    match value {
        RawBsonRef::Boolean(b) => Ok(b),
        RawBsonRef::Int32(i) => Ok(i != 0),
        RawBsonRef::Int64(i) => Ok(i != 0),
        RawBsonRef::Double(d) => Ok(d != 0.0),
        other => Err(mismatch(option, "true or false", other)),
    }
}

pub(crate) fn mismatch(what: &str, wanted: &str, given: RawBsonRef<'_>) -> CommandError {
    let given = ebbtide_documents::type_name(given);
    CommandError::new(Code::TypeMismatch, format!("{what} must be {wanted}, not {given}"))
}

pub(crate) fn missing(option: &str, of: &str) -> CommandError {
    CommandError::new(Code::IDLFailedToParse, format!("{of} lacks '{option}', which is required"))
}
