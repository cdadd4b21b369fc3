//! Errors of commands, and why a server does not start.

use crate::shell;
use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use ebbtide::ErrorKind;
use ebbtide_documents::ExpressionError;
use ebbtide_ttl::{Code, RuleError};
use std::fmt;

/// Why a server could not be started or stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Failure(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<ebbtide::Error> for Failure {
    fn from(error: ebbtide::Error) -> Self {
        Failure(error.to_string())
    }
}

/// Why a command was refused: MongoDB's number and name, and a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommandError {
    pub(crate) code: i32,
    pub(crate) name: String,
    pub(crate) message: String,
    /// The write that it is about, of a command with many.
    pub(crate) index: Option<usize>,
    /// Whether it is about what was asked, and not about the server's state.
    pub(crate) is_mistake: bool,
    /// The `_id` that another document has.
    key_value: Option<Box<RawDocumentBuf>>,
}

pub(crate) type Result<T> = std::result::Result<T, CommandError>;

/// Codes of the server, beside those of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerCode {
    /// A command without a field that it needs.
    NoSuchKey = 4,
    /// Documents within documents, beyond what is read.
    Overflow = 15,
    /// More writes in one command than are read, or none.
    InvalidLength = 16,
    /// A document that is not BSON.
    InvalidBSON = 22,
    /// A command without the login or the role that it needs.
    Unauthorized = 13,
    /// Messages of a login in a wrong order.
    ProtocolError = 17,
    /// A login that was refused.
    AuthenticationFailed = 18,
    /// No such cursor: it ended, idled out, or never was.
    CursorNotFound = 43,
    /// The command took longer than `maxTimeMS`.
    MaxTimeMSExpired = 50,
    /// A feature that is not here.
    CommandNotSupported = 115,
    /// A way to log in that is not here.
    MechanismUnavailable = 334,
    /// More rows in a second than the account may write.
    IngressRequestRateLimitExceeded = 462,
    /// The cursor serves another getMore.
    CursorInUse = 12051,
    /// A number below 0 where one from 0 is needed.
    Location51024 = 51024,
}

impl CommandError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        ebbtide::Error::new(code, message).into()
    }

    pub(crate) fn of_server(code: ServerCode, message: impl Into<String>) -> Self {
        let name = format!("{code:?}");
        CommandError {
            code: code as i32,
            name,
            message: message.into(),
            index: None,
            is_mistake: true,
            key_value: None,
        }
    }

    /// An error of a write to a namespace: what MongoDB says of an `_id` that is taken, since programs look for its words.
    pub(crate) fn of_write(error: ebbtide::Error, namespace: &str) -> Self {
        let Some(key) = error.taken_id() else { return error.into() };
        let what =
            format!("E11000 duplicate key error collection: {namespace} index: _id_ dup key: {}", shell::object(key));
        let error = ebbtide::Error::new(Code::DuplicateKey, what);
        CommandError { key_value: Some(Box::new(key.to_owned())), ..error.into() }
    }

    /// The reply to a command that was refused.
    pub(crate) fn reply(&self) -> RawDocumentBuf {
        let (message, name) = (self.message.as_str(), self.name.as_str());
        let mut reply = rawdoc! { "ok": 0.0, "errmsg": message, "code": self.code, "codeName": name };
        self.append_key(&mut reply);
        reply
    }

    fn append_key(&self, to: &mut RawDocumentBuf) {
        if let Some(key) = &self.key_value {
            to.append(cstr!("keyPattern"), rawdoc! { "_id": 1 });
            to.append(cstr!("keyValue"), &**key);
        }
    }

    /// The error as one of `writeErrors`.
    fn write_error(&self, index: usize) -> RawDocumentBuf {
        let index = i32::try_from(index).unwrap_or(i32::MAX);
        let mut error = rawdoc! { "index": index, "code": self.code };
        self.append_key(&mut error);
        error.append(cstr!("errmsg"), self.message.as_str());
        error
    }
}

/// Bytes of a message: it may name what the client chose, of any length.
const MESSAGE_BYTES_MAX: usize = 4096;

fn shortened(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        message.push_str("...");
    }
    message
}

/// Beyond this size of a list of `writeErrors`, errors have only their code. A reply holds 16 MiB.
const DETAILED_BYTES_MAX: usize = 4 << 20;

/// The list of `writeErrors`.
pub(crate) fn write_errors<'a>(errors: impl IntoIterator<Item = (usize, &'a CommandError)>) -> RawArrayBuf {
    let mut list = RawArrayBuf::new();
    for (index, error) in errors {
        match list.as_bytes().len() < DETAILED_BYTES_MAX {
            true => list.push(error.write_error(index)),
            false => {
                let index = i32::try_from(index).unwrap_or(i32::MAX);
                list.push(rawdoc! { "index": index, "code": error.code, "errmsg": "" });
            }
        }
    }
    list
}

impl From<ebbtide::Error> for CommandError {
    fn from(error: ebbtide::Error) -> Self {
        CommandError {
            code: error.code().number(),
            name: error.code().name().to_owned(),
            message: shortened(error.to_string()),
            index: error.index(),
            is_mistake: error.kind() == ErrorKind::Invalid,
            key_value: error.taken_id().map(|key| Box::new(key.to_owned())),
        }
    }
}

impl From<RuleError> for CommandError {
    fn from(error: RuleError) -> Self {
        ebbtide::Error::from(error).into()
    }
}

impl From<ExpressionError> for CommandError {
    fn from(error: ExpressionError) -> Self {
        let name = error.name();
        CommandError {
            code: error.code,
            name,
            message: shortened(error.message),
            index: None,
            is_mistake: true,
            key_value: None,
        }
    }
}

#[cfg(test)]
#[test]
fn messages_are_short_whatever_they_name() {
    let long = "ü".repeat(1 << 20);
    let refused = CommandError::from(ExpressionError::new(168, format!("Unrecognized expression '{long}'")));
    assert!(refused.message.len() < 5000 && refused.message.ends_with("ü..."), "{}", refused.message.len());
    let short = CommandError::new(Code::BadValue, "what is short stays as it is");
    assert_eq!(short.message, "what is short stays as it is");
}
