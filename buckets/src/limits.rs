//! Size limits. Anything larger is refused with an error that names the limit, and nothing is stored.

use ebbtide_ttl::{Code, RuleError};

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

/// An error for something that is too large.
pub(crate) fn too_large(what: impl Into<String>) -> RuleError {
    RuleError::new(Code::BSONObjectTooLarge, what)
}

/// The beginning of a text that may be long.
pub(crate) fn begin(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests;
