//! Where a copy is kept.

use crate::error::{Error, Result};
use crate::hand_off::sink::SinkError;
use bytes::Bytes;
use ebbtide_ttl::Code;
use std::fmt;

/// Objects by name, in object storage or in a folder. Names have `/` between their parts.
///
/// A call that fails may have had its effect all the same, or have it later.
pub trait CopyStore: fmt::Debug + Send + Sync {
    /// How many objects to get at once, each by a thread of its own. One, unless the store answers several together faster.
    fn gets_at_once(&self) -> usize {
        1
    }

    /// How many requests the store has refused so far (429, 503). They were repeated. Zero if the store does not tell.
    fn refused(&self) -> u64 {
        0
    }

    /// The content of an object, if there is one of this name.
    ///
    /// # Errors
    /// The store cannot be reached, or refuses.
    fn get(&self, name: &str) -> Result<Option<Bytes>, SinkError>;

    /// Whether there is an object of this name.
    ///
    /// # Errors
    /// As for [`CopyStore::get`].
    fn exists(&self, name: &str) -> Result<bool, SinkError> {
        Ok(self.get(name)?.is_some())
    }

    /// Stores an object, durably, and replaces one of that name.
    ///
    /// # Errors
    /// As for [`CopyStore::get`].
    fn put(&self, name: &str, content: Bytes) -> Result<(), SinkError>;

    /// Stores an object, durably, if there is none of that name; returns whether there was none. Of several that try, one succeeds.
    ///
    /// # Errors
    /// As for [`CopyStore::get`].
    fn put_if_absent(&self, name: &str, content: Bytes) -> Result<bool, SinkError>;

    /// The names of the objects in a folder, without the folder. The newest may be missing, and removed ones be there.
    ///
    /// # Errors
    /// As for [`CopyStore::get`].
    fn list(&self, folder: &str) -> Result<Vec<String>, SinkError>;

    /// Removes an object. One that is not there is no error.
    ///
    /// # Errors
    /// As for [`CopyStore::get`].
    fn remove(&self, name: &str) -> Result<(), SinkError>;
}

/// The error for a store that does not answer.
pub(super) fn unreachable(error: SinkError) -> Error {
    Error::new(Code::HostUnreachable, format!("the copy cannot be reached: {error}"))
}

/// The error for an object that is not what it should be.
pub(super) fn damaged(name: &str, what: impl fmt::Display) -> Error {
    Error::new(Code::DataCorruptionDetected, format!("{name} of the copy is damaged: {what}"))
}
