//! The size of a document, counted while it is read.

use super::cell::Cell;
use crate::limits::{DOCUMENT_BYTES_MAX, NESTING_MAX, too_large};
use ebbtide_ttl::{RuleError, Value};

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
