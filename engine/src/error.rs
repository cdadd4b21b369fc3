//! The error type: a code for programs, a kind that says what to do, and a message for people.

use ebbtide_buckets::{BatchError, SegmentError};
use ebbtide_documents::bson::RawDocument;
use ebbtide_ttl::{Code, RuleError};
use std::fmt;
use std::io;
use std::path::Path;

/// What a caller should do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another process or call holds what is needed: try again later.
    Busy,
    /// The disk is full, or the memory limit of a statement is reached: free space or request less, then try again. Nothing was
    /// stored.
    Full,
    /// The call is wrong: correct it. Nothing was done.
    Invalid,
    /// Something on disk is damaged or missing: restore or repair it.
    Corrupt,
    /// Writes are disabled after a failed write or sync, or the database was closed: reopen it and check its contents.
    Poisoned,
    /// The file system refused an operation.
    Io,
    /// A bug in Ebbtide: report it.
    Internal,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
    index: Option<usize>,
    /// The bytes of a document with the `_id` that is taken.
    taken: Option<Box<[u8]>>,
    /// Whether a file may not grow, although there may be room on the disk.
    is_file_limit: bool,
}

/// The result of an operation of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error { code, message: shortened(message.into()), index: None, taken: None, is_file_limit: false }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::InternalError, message)
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, what: impl fmt::Display) -> Self {
        Self::new(Code::DataCorruptionDetected, format!("{what}: path={} offset={offset}", path.display()))
    }

    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        let code = if crate::fs::is_full(error) { Code::OutOfDiskSpace } else { Code::FileStreamFailed };
        let is_file_limit = error.kind() == io::ErrorKind::FileTooLarge;
        Error { is_file_limit, ..Self::new(code, format!("cannot {action} {}: {error}", path.display())) }
    }

    /// Whether the operation may succeed once other files are removed from the disk.
    pub(crate) fn is_of_full_disk(&self) -> bool {
        self.code == Code::OutOfDiskSpace && !self.is_file_limit
    }

    /// Checks that a function of the caller's has returned one value for each that it was given.
    pub(crate) fn check_count(function: &str, returned: usize, given: usize) -> Result<()> {
        if returned == given {
            return Ok(());
        }
        let what =
            format!("{function} returned {returned} values for {given}: it must return one for each, in their order");
        Err(Self::new(Code::BadValue, what))
    }

    pub(crate) fn no_collection(name: &str) -> Self {
        Self::new(Code::NamespaceNotFound, format!("collection '{name}' does not exist"))
    }

    pub(crate) fn ordinary_collection(name: &str) -> Self {
        let what = format!("'{name}' is an ordinary collection, and this works on time-series collections only");
        Self::new(Code::InvalidOptions, what)
    }

    pub(crate) fn time_series_collection(name: &str) -> Self {
        let what = format!("'{name}' is a time-series collection, and this works on ordinary collections only");
        Self::new(Code::InvalidOptions, what)
    }

    /// The error's code, with MongoDB's number and name where MongoDB has one.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.code {
            Code::InternalError => ErrorKind::Internal,
            Code::OutOfDiskSpace | Code::ExceededMemoryLimit => ErrorKind::Full,
            Code::DataCorruptionDetected | Code::IncompatibleFormat => ErrorKind::Corrupt,
            Code::FileStreamFailed => ErrorKind::Io,
            Code::LockBusy | Code::Interrupted | Code::HostUnreachable => ErrorKind::Busy,
            Code::NotWritable => ErrorKind::Poisoned,
            _ => ErrorKind::Invalid,
        }
    }

    /// Whether the error concerns one file that is damaged or cannot be read, so that work on others can continue.
    pub(crate) fn is_of_one_file(&self) -> bool {
        matches!(self.kind(), ErrorKind::Corrupt | ErrorKind::Io)
    }

    /// The zero-based index of the measurement that the error is about, within its insert.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    /// The `_id` that another document has, alone in a document: of [`Code::DuplicateKey`].
    #[must_use]
    pub fn taken_id(&self) -> Option<&RawDocument> {
        self.taken.as_deref().and_then(|bytes| RawDocument::from_bytes(bytes).ok())
    }

    pub(crate) fn with_taken_id(mut self, id: &RawDocument) -> Self {
        self.taken = Some(id.as_bytes().into());
        self
    }

    pub(crate) fn with_index(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    /// The same error with another index, in the message too.
    #[must_use]
    pub fn renumbered(mut self, index: usize) -> Self {
        let rest = self.index.and_then(|old| self.message.strip_prefix(&format!("index {old}: ")));
        if let Some(rest) = rest {
            self.message = format!("index {index}: {rest}");
        }
        self.with_index(index)
    }
}

/// Approximate maximum length of a message in bytes: names and values in it may be megabytes long.
const MESSAGE_BYTES_MAX: usize = 2 << 10;

/// A long message without its middle: it begins with what is wrong and ends with what to do.
fn shortened(message: String) -> String {
    if message.len() <= MESSAGE_BYTES_MAX {
        return message;
    }
    let (head, tail) = (message.floor_char_boundary(MESSAGE_BYTES_MAX / 2), message.len() - MESSAGE_BYTES_MAX / 4);
    format!("{} ... {}", &message[..head], &message[message.ceil_char_boundary(tail)..])
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<RuleError> for Error {
    fn from(error: RuleError) -> Self {
        Error::new(error.code, error.message)
    }
}

impl From<BatchError> for Error {
    fn from(error: BatchError) -> Self {
        Error::from(error.error).with_index(error.index)
    }
}

impl From<SegmentError> for Error {
    fn from(error: SegmentError) -> Self {
        let code = match error.refused {
            // Of an archive.
            Some(io::ErrorKind::HostUnreachable) => Code::HostUnreachable,
            Some(_) => Code::FileStreamFailed,
            None => Code::DataCorruptionDetected,
        };
        Error::new(code, error.to_string())
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        match error {
            // A filter of the caller's could not be evaluated.
            arrow::error::ArrowError::ExternalError(error) => Error::new(Code::BadValue, error.to_string()),
            error => Error::internal(format!("arrow: {error}")),
        }
    }
}
