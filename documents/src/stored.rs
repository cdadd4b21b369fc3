//! Documents beside their keys: the `_id` is left out where the key tells it, so that it is not stored twice.
//!
//! What is stored is BSON in any case, and its first member says what it is:
//!
//! | first member | what is stored |
//! | --- | --- |
//! | another name than `_id`, or none | the rest of a document that begins with the `_id`, which the key tells |
//! | `_id: undefined`, which no document has | after it the whole document, whose `_id` comes later |
//! | another `_id` | the whole document |
//!
//! A key tells the `_id` if [`id_key`](crate::id_key) made it of a string, an int64, an `ObjectId`, a date, or binary
//! data of up to 253 bytes that is not of subtype 2. Other values with the same key, such as the int32 and the double 1, stay
//! in the document.

use crate::key::id_member;
use std::borrow::Cow;

/// The bytes of a document's length.
const LENGTH: usize = 4;
/// The name of the `_id` as it follows the type of the value.
const NAME: &[u8] = b"_id\0";
/// The member `_id: undefined`.
const MARK: &[u8] = b"\x06_id\0";

/// A checked document as it is stored beside its key.
#[must_use]
pub fn without_id<'a>(document: &'a [u8], key: &[u8]) -> Cow<'a, [u8]> {
    let members = document.get(LENGTH..).unwrap_or_default();
    if members.get(1..).is_none_or(|rest| !rest.starts_with(NAME)) {
        return Cow::Owned(joined(MARK, members));
    }
    match id_member(key).and_then(|id| members.strip_prefix(id.as_slice())) {
        Some(rest) => Cow::Owned(joined(&[], rest)),
        None => Cow::Borrowed(document),
    }
}

/// The document that is stored beside a key; `None` if what is stored is the document.
///
/// # Errors
/// What is wrong, if this was never stored beside this key.
pub fn with_id_of_key(stored: &[u8], key: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let members = stored.get(LENGTH..).unwrap_or_default();
    if let Some(rest) = members.strip_prefix(MARK) {
        return Ok(Some(joined(&[], rest)));
    }
    if members.get(1..).is_some_and(|rest| rest.starts_with(NAME)) {
        return Ok(None);
    }
    let id = id_member(key).ok_or("the document has no _id, and its key tells none")?;
    Ok(Some(joined(&id, members)))
}

/// Builds a document from encoded elements; `rest` ends with the terminating zero.
fn joined(first: &[u8], rest: &[u8]) -> Vec<u8> {
    let length = LENGTH + first.len() + rest.len();
    let mut document = Vec::with_capacity(length);
    document.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    document.extend(first);
    document.extend(rest);
    document
}

#[cfg(test)]
mod tests;
