//! Size limits. Anything larger is refused with an error that names the limit, and nothing is stored.

use crate::documents::Cell;
use ebbtide_ttl::{Code, RuleError, Value};

/// How deep values nest at most: a list or object of scalars is one level. The writers and readers of Parquet recurse with
/// large frames (64 levels overflow a thread's 2 MB without optimisation), and those of Arrow IPC and JSON have limits of
/// their own, at 64 and 128 of their levels.
pub const NESTING_MAX: usize = 32;
/// How many fields a collection may have, members of objects included: every one costs memory in every segment.
pub const FIELDS_MAX: usize = 10_000;
/// Bytes of a field's name, or of a member's of an object: the names of all fields are in every segment.
pub const FIELD_NAME_BYTES_MAX: usize = 1 << 10;
/// Bytes of a meta value in its canonical form: 64 KiB. All metas of a segment are held in memory while it is read.
pub const META_BYTES_MAX: usize = 64 << 10;
/// Bytes of one measurement as a document: names, texts and bytes, and eight for any other scalar. 16 MiB, as in MongoDB. One
/// text or binary value of an Arrow batch has the same limit.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Bytes of the columns of one insert: 256 MiB. An insert is atomic, so it is in memory as a whole, and more than once.
pub const BATCH_BYTES_MAX: usize = 256 << 20;

/// Checks the name of a field.
pub(crate) fn check_name(name: &str) -> Result<(), RuleError> {
    let bad = |message: String| Err(RuleError::new(Code::BadValue, message));
    if name.is_empty() {
        return bad("a field has an empty name".to_owned());
    }
    if name.len() > FIELD_NAME_BYTES_MAX {
        let message = "a field has a name of more than";
        return bad(format!("{message} {FIELD_NAME_BYTES_MAX} bytes: it begins with '{}'", begin(name).escape_debug()));
    }
    if name.contains('\0') {
        return bad(format!("field name {name:?} has a NUL in it"));
    }
    Ok(())
}

/// Counts the bytes of a document member by member.
#[derive(Debug)]
pub(crate) struct DocumentRoom(usize);

impl DocumentRoom {
    pub(crate) fn new() -> DocumentRoom {
        DocumentRoom(DOCUMENT_BYTES_MAX - 8)
    }

    pub(crate) fn left(&self) -> usize {
        self.0
    }

    /// Counts `bytes` towards the limit, if they fit.
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Result<(), RuleError> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(too_large_document)?;
        Ok(())
    }

    /// Counts a member, if it fits.
    pub(crate) fn take(&mut self, name: &str, value: &Cell<'_>) -> Result<(), RuleError> {
        let after = |room: usize| match value {
            Cell::String(text) => room.checked_sub(text.len()),
            Cell::Binary(bytes) => room.checked_sub(bytes.len()),
            Cell::Nested(value) => room_left(value, room, NESTING_MAX + 1),
            _ => room.checked_sub(8),
        };
        self.0 = self.0.checked_sub(name.len()).and_then(after).ok_or_else(too_large_document)?;
        Ok(())
    }
}

fn too_large_document() -> RuleError {
    too_large(format!("a measurement of more than {DOCUMENT_BYTES_MAX} bytes"))
}

/// An error for something that is too large.
pub(crate) fn too_large(what: impl Into<String>) -> RuleError {
    RuleError::new(Code::BSONObjectTooLarge, what)
}

/// The bytes left of `room` after a value; `None` if it needs more. Stops at the nesting limit of values.
fn room_left(value: &Value, room: usize, depth: usize) -> Option<usize> {
    match value {
        Value::String(text) => room.checked_sub(text.len()),
        Value::Binary(bytes) => room.checked_sub(bytes.len()),
        Value::Array(items) if depth > 0 => {
            items.iter().try_fold(room.checked_sub(8)?, |room, item| room_left(item, room, depth - 1))
        }
        Value::Object(members) if depth > 0 => members.iter().try_fold(room.checked_sub(8)?, |room, (name, member)| {
            room_left(member, room.checked_sub(name.len())?, depth - 1)
        }),
        _ => room.checked_sub(8),
    }
}

/// The beginning of a text that may be long.
pub(crate) fn begin(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests;
