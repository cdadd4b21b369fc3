//! What may be stored: well-formed documents of bounded size and depth, each with an `_id`.
//!
//! 1. After [`check`] every read of the document succeeds at every level: nothing that reads stored documents looks at
//!    errors again, or recurses deeper than [`DEPTH_MAX`].
//! 2. A document is stored as it came: nothing is sorted, merged or removed. A missing `_id` is added, at the front.
//! 3. What is stored reads back exactly from a dump, so the names of Extended JSON's types are no names of fields.

use crate::json::{DEPTH_MAX, WRAPPERS};
use crate::key::id_key;
use crate::raw::list_as_object;
use crate::{Code, Result, RuleError};
use bson::RawDocumentBuf;
use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, cstr};
use ebbtide_ttl::{Precision, Timestamp};
use std::sync::atomic::{AtomicU32, Ordering};

/// The most bytes that a document may have: 16 MiB.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Checks a document that is to be stored, to its depth. Names may come twice, contain dots and begin with `$`.
///
/// # Errors
/// - `BSONObjectTooLarge` beyond [`DOCUMENT_BYTES_MAX`];
/// - `BadValue`, with the path, for bytes that are no BSON, text that is not UTF-8, more than 100 levels, and two `_id`s;
/// - `DollarPrefixedFieldName`, with the path, for a name that Extended JSON gives a meaning, such as `$date`, and for a
///   name with `$` within the `_id`, unless it is a `DBRef`;
/// - `InvalidIdField` for an `_id` that is a list, a regular expression or undefined.
pub fn check(document: &RawDocument) -> Result<()> {
    checked(document).map(|_| ())
}

/// Checks a document; the key of its `_id`, if it has one.
fn checked(document: &RawDocument) -> Result<Option<Vec<u8>>> {
    check_size(document)?;
    let mut key = None;
    let mut place = Place::default();
    for member in document {
        let (name, value) = member.map_err(|e| place.malformed(&e))?;
        place.names.push(name.as_str());
        // First the depth: a key is made by recursion.
        check_member(name.as_str(), value, 1, &mut place)?;
        if name.as_str() == "_id" {
            if key.is_some() {
                return Err(place.fault(Code::BadValue, "the document has two of them; leave one"));
            }
            check_id(value, 1, &mut place)?;
            key = Some(id_key(value)?);
        }
        place.names.pop();
    }
    Ok(key)
}

/// The document with an `_id`, and the key of that. Where it is missing, `fresh` makes one, which comes first.
///
/// # Errors
/// As for [`check`], of the document with its `_id`.
pub fn with_id(document: RawDocumentBuf, fresh: impl FnOnce() -> ObjectId) -> Result<(RawDocumentBuf, Vec<u8>)> {
    if let Some(key) = checked(&document)? {
        return Ok((document, key));
    }
    let id = RawBsonRef::ObjectId(fresh());
    let mut head = RawDocumentBuf::new();
    head.append(cstr!("_id"), id);
    let mut bytes = head.into_bytes();
    bytes.pop();
    bytes.extend(&document.as_bytes()[4..]);
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let document = RawDocumentBuf::from_bytes(bytes).map_err(|e| Place::default().malformed(&e))?;
    check_size(&document)?;
    Ok((document, id_key(id)?))
}

fn check_size(document: &RawDocument) -> Result<()> {
    let bytes = document.as_bytes().len();
    if bytes <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    let message = format!("a document of {bytes} bytes is too large; the limit is {DOCUMENT_BYTES_MAX} bytes (16 MiB)");
    Err(RuleError::new(Code::BSONObjectTooLarge, message))
}

/// Makes `_id`s for documents without one: seconds, five bytes of this process, and a number that counts up.
#[derive(Debug)]
pub struct ObjectIds {
    process: [u8; 5],
    next: AtomicU32,
}

impl ObjectIds {
    /// With random bytes for the process and a random first number, `_id`s of different processes differ.
    #[must_use]
    pub fn new(process: [u8; 5], first: u32) -> ObjectIds {
        ObjectIds { process, next: AtomicU32::new(first) }
    }

    /// The next one, made at `now`. No two of one second are equal before 2^24 have been made.
    pub fn make(&self, now: Timestamp) -> ObjectId {
        let seconds = now.to_units_saturating(Precision::Ms).div_euclid(1000);
        let seconds = u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
        let [_, counter @ ..] = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        ObjectId::from_parts(seconds, self.process, counter)
    }
}

/// Where in the document the check is.
#[derive(Default)]
struct Place<'a> {
    names: Vec<&'a str>,
}

impl Place<'_> {
    fn fault(&self, code: Code, message: &str) -> RuleError {
        RuleError::new(code, format!("field '{}': {message}", self.names.join(".")))
    }

    fn malformed(&self, error: &bson::error::Error) -> RuleError {
        let place = if self.names.is_empty() { String::new() } else { format!("field '{}': ", self.names.join(".")) };
        RuleError::new(Code::BadValue, format!("{place}the bytes are not a BSON document: {error}"))
    }
}

/// Checks a member of an object that is `level` levels deep.
fn check_member<'a>(name: &str, value: RawBsonRef<'a>, level: usize, place: &mut Place<'a>) -> Result<()> {
    if name.starts_with('$') && WRAPPERS.contains(&name) {
        let message = "the name means a type in Extended JSON, so a dump of the document would read back as something \
                       else; use another name";
        return Err(place.fault(Code::DollarPrefixedFieldName, message));
    }
    let inner = match value {
        RawBsonRef::Document(object) => Some(object),
        RawBsonRef::Array(list) => list_as_object(list),
        RawBsonRef::JavaScriptCodeWithScope(code) => Some(code.scope),
        _ => None,
    };
    let Some(inner) = inner else { return Ok(()) };
    if level == DEPTH_MAX {
        let message = format!("nested deeper than {DEPTH_MAX} levels; store it flatter, or as text");
        return Err(place.fault(Code::BadValue, &message));
    }
    for member in inner {
        let (name, value) = member.map_err(|e| place.malformed(&e))?;
        place.names.push(name.as_str());
        check_member(name.as_str(), value, level + 1, place)?;
        place.names.pop();
    }
    Ok(())
}

/// Checks the names within an `_id`, whose depth is checked with the rest.
fn check_id<'a>(value: RawBsonRef<'a>, level: usize, place: &mut Place<'a>) -> Result<()> {
    let object = match value {
        RawBsonRef::Document(object) => Some(object),
        RawBsonRef::Array(list) => list_as_object(list),
        _ => None,
    };
    let Some(object) = object.filter(|_| level < DEPTH_MAX) else { return Ok(()) };
    let mut is_reference = false;
    for (i, member) in object.into_iter().enumerate() {
        let (name, value) = member.map_err(|e| place.malformed(&e))?;
        let name = name.as_str();
        place.names.push(name);
        is_reference |= i == 0 && name == "$ref";
        if name.starts_with('$') && !(is_reference && matches!(name, "$ref" | "$id" | "$db")) {
            let message = "a name within an _id cannot begin with $; use another name";
            return Err(place.fault(Code::DollarPrefixedFieldName, message));
        }
        check_id(value, level + 1, place)?;
        place.names.pop();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
