//! Access to object storage, which a simulated store replaces in tests.

use bytes::Bytes;
use std::fmt;
use std::ops::Range;

/// How many objects are fetched from a real store at once, and how many parts of each.
pub(crate) const REQUESTS_AT_ONCE: usize = 8;

/// Objects by name. Names have `/` between their parts.
///
/// A call that fails may have had its effect all the same, or have it later.
pub trait Store: fmt::Debug + Send + Sync {
    /// How many objects to get at once, each by a thread of its own. One, unless the store answers several together faster.
    fn gets_at_once(&self) -> usize {
        1
    }

    /// The content of an object, if there is one of this name.
    ///
    /// # Errors
    /// The store cannot be reached, or refuses.
    fn get(&self, name: &str) -> Result<Option<Bytes>, StoreError>;

    /// Whether there is an object of this name.
    ///
    /// # Errors
    /// As for [`Store::get`].
    fn exists(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.get(name)?.is_some())
    }

    /// A part of an object.
    ///
    /// # Errors
    /// As for [`Store::get`]; there is no such object, or it is shorter.
    fn get_range(&self, name: &str, start: u64, bytes: u64) -> Result<Bytes, StoreError>;

    /// Parts of an object, in the order in which they are asked for.
    ///
    /// # Errors
    /// As for [`Store::get_range`].
    fn get_ranges(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        ranges.iter().map(|range| self.get_range(name, range.start, range.end - range.start)).collect()
    }

    /// Stores an object, durably, and replaces one of that name.
    ///
    /// # Errors
    /// As for [`Store::get`].
    fn put(&self, name: &str, content: Bytes) -> Result<(), StoreError>;

    /// Stores an object, durably, if there is none of that name; returns whether there was none. Of several that try, one succeeds.
    ///
    /// # Errors
    /// As for [`Store::get`].
    fn put_if_absent(&self, name: &str, content: Bytes) -> Result<bool, StoreError>;

    /// The objects in a folder, an empty name for the root, not those in folders within it. The newest may be missing, and removed ones
    /// be there.
    ///
    /// # Errors
    /// As for [`Store::get`].
    fn list(&self, folder: &str) -> Result<Vec<Object>, StoreError>;

    /// Removes an object. One that is not there is no error.
    ///
    /// # Errors
    /// As for [`Store::get`].
    fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// How many requests the store has refused so far (429, 503). They were repeated.
    fn refused(&self) -> u64 {
        0
    }

    /// The store's time, in milliseconds since 1970, by which [`Object::modified`] is to be judged.
    fn now(&self) -> i64;
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its name in the folder.
    pub name: String,
    /// When it was stored, in milliseconds since 1970.
    pub modified: i64,
}

/// Why a store did not do what it was asked for. Parameters of URLs, where signatures may be, are not in the text.
#[derive(Debug, Clone)]
pub struct StoreError(String);

impl StoreError {
    /// An error with this text.
    #[must_use]
    pub fn new(text: &str) -> StoreError {
        StoreError(without_parameters(&without_body(text)))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreError {}

/// A text in which the XML that a server has answered is its code and the first line of its message. The rest may have key ids and tokens.
fn without_body(text: &str) -> String {
    let Some((before, body)) = text.find("<?xml").or_else(|| text.find("<Error>")).map(|at| text.split_at(at)) else {
        return text.to_owned();
    };
    let element = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        rest.split(['<', '\n']).next()
    };
    let told: Vec<&str> = ["Code", "Message"].into_iter().filter_map(element).collect();
    format!("{before}{}", told.join(": "))
}

/// A text without what follows a question mark in a word.
fn without_parameters(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.split_once('?') {
        Some((before, after)) if after.contains('=') => format!("{before}?..."),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_the_code_and_the_message_of_a_server_only() {
        let body = "<?xml version='1.0'?>\n<Error><Code>ExpiredToken</Code><Message>It has expired.\nRequestId:7</Message>\
            <Token-0>secret</Token-0><AWSAccessKeyId>AKIA1</AWSAccessKeyId></Error>";
        let error = StoreError::new(&format!("PUT http://h/b failed: 400 Bad Request: {body}"));
        assert_eq!(error.to_string(), "PUT http://h/b failed: 400 Bad Request: ExpiredToken: It has expired.");
    }

    #[test]
    fn an_error_does_not_show_the_signature_of_a_url() {
        let error = StoreError::new("GET https://a.example/c/x?sig=secret&se=1 failed: is it there?");
        assert_eq!(error.to_string(), "GET https://a.example/c/x?... failed: is it there?");
    }
}
