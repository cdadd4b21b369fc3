//! Error codes: MongoDB's numbers and names for the same errors, and our own where it has none.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What kind of mistake an error is about, with MongoDB's number and name for it where it has one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// The numeric code, as in the `code` field of a command's reply.
            #[must_use]
            pub const fn number(self) -> i32 {
                match self { $(Code::$name => $number,)* }
            }

            /// The code's name, as in the `codeName` field of a command's reply.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Code::$name => stringify!($name),)* }
            }
        }
    };
}

codes! {
    /// A bug in Ebbtide.
    InternalError = 1,
    /// A value that is of the right type but not allowed.
    BadValue = 2,
    /// A place in object storage, or a folder of another disk, cannot be reached.
    HostUnreachable = 6,
    /// Text that is not of the expected form.
    FailedToParse = 9,
    /// A value of the wrong type.
    TypeMismatch = 14,
    /// The collection does not exist.
    NamespaceNotFound = 26,
    /// The rule does not exist.
    IndexNotFound = 27,
    /// An update's path goes on in a value that is neither an object nor a list, or by name in a list.
    PathNotViable = 28,
    /// An update would fill a list with too many nulls.
    CannotBackfillArray = 34,
    /// The collection exists with other options.
    NamespaceExists = 48,
    /// The command does not exist.
    CommandNotFound = 59,
    /// Two update operators change the same path.
    ConflictingUpdateOperators = 40,
    /// A field's name that starts with `$`.
    DollarPrefixedFieldName = 52,
    /// A value that cannot be an `_id`.
    InvalidIdField = 53,
    /// The query of an upsert gives a field two values.
    NotSingleValueField = 54,
    /// A path with an empty name.
    EmptyFieldName = 56,
    /// A change of a document's `_id`.
    ImmutableField = 66,
    /// The index cannot be made as described.
    CannotCreateIndex = 67,
    /// Options that contradict each other or the contract.
    InvalidOptions = 72,
    /// A collection name that is not allowed.
    InvalidNamespace = 73,
    /// The same index exists with other options.
    IndexOptionsConflict = 85,
    /// Another index has the same name.
    IndexKeySpecsConflict = 86,
    /// The query of an upsert gives a part of an `_id`.
    NotExactValueField = 111,
    /// Several indexes match a key pattern.
    AmbiguousIndexKeyPattern = 181,
    /// An option that this kind of index does not have.
    InvalidIndexSpecificationOption = 197,
    /// A path whose names may not be empty has an empty one.
    Location15998 = 15998,
    /// A direction of a sort that is no number.
    Location15974 = 15974,
    /// A direction of a sort other than 1 and -1.
    Location15975 = 15975,
    /// A name of a path that starts with `$`.
    Location16410 = 16410,
    /// A projection of a path within one that it names.
    Location31249 = 31249,
    /// A projection of a path that it names already.
    Location31250 = 31250,
    /// A field that is included where others are left out.
    Location31253 = 31253,
    /// A field that is left out where others are included.
    Location31254 = 31254,
    /// `$elemMatch` of a projection without an object.
    Location31274 = 31274,
    /// `$elemMatch` of a projection below the top level.
    Location31275 = 31275,
    /// An operator that projections do not have.
    Location31325 = 31325,
    /// An empty path.
    Location40352 = 40352,
    /// A path that ends with a dot.
    Location40353 = 40353,
    /// A regular expression that cannot be used.
    Location51091 = 51091,
    /// An option that regular expressions do not have.
    Location51108 = 51108,
    /// An empty object in a projection.
    Location51270 = 51270,
    /// Another document has this `_id`.
    DuplicateKey = 11000,
    /// An option that is not known.
    IDLUnknownField = 40415,
    /// A required option is missing.
    IDLFailedToParse = 40414,
    /// A measurement, a value or an insert that is too large.
    BSONObjectTooLarge = 10334,
    /// A statement needs more memory than it may use.
    ExceededMemoryLimit = 146,
    /// The disk is full.
    OutOfDiskSpace = 14031,
    /// Something on disk is damaged.
    DataCorruptionDetected = 301,
    /// An operation of the file system failed.
    FileStreamFailed = 39,
    /// The database is open in another process, or busy.
    LockBusy = 46,
    /// The database was opened for reading only.
    IllegalOperation = 20,
    /// The database stopped writing after a failed write or sync, or was closed.
    NotWritable = 24001,
    /// The database was written by another version of the program.
    IncompatibleFormat = 24002,
    /// The operation was interrupted.
    Interrupted = 11601,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error of the pure layers: a code and a message that says what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    /// The kind of mistake.
    pub code: Code,
    /// What a person reads.
    pub message: String,
}

impl RuleError {
    /// Creates an error.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        RuleError { code, message: message.into() }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RuleError {}
