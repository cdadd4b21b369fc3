//! Small helpers around BSON's binary form.

pub(crate) mod element;
pub(crate) mod writer;

use bson::oid::ObjectId;
use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, cstr};
use bson::spec::ElementType;
use bson::{RawDocumentBuf, Regex};

/// Bytes of an `ObjectId`.
const OBJECT_ID_BYTES: usize = 12;

/// The length of a `DBPointer`'s namespace, the namespace and the id, in the order in which they are compared. Nothing for
/// other values.
pub(crate) fn db_pointer(value: RawBsonRef<'_>) -> Option<(usize, String, ObjectId)> {
    if !matches!(value, RawBsonRef::DbPointer(_)) {
        return None;
    }
    // The members are private in the crate that defines the type, so they are read from its binary form: length of the
    // document, type, an empty name, length of the namespace, namespace, zero, id, zero.
    let mut document = RawDocumentBuf::new();
    document.append(cstr!(""), value);
    let bytes = document.into_bytes();
    let (namespace, id) = bytes.get(10..)?.split_at_checked(bytes.len().checked_sub(10 + 1 + OBJECT_ID_BYTES + 1)?)?;
    let id = ObjectId::from_bytes(id.get(1..1 + OBJECT_ID_BYTES)?.try_into().ok()?);
    Some((namespace.len(), std::str::from_utf8(namespace).ok()?.to_owned(), id))
}

/// A list as an object whose names are the numbers of the elements.
pub(crate) fn list_as_object(list: &RawArray) -> Option<&RawDocument> {
    RawDocument::from_bytes(list.as_bytes()).ok()
}

/// Bytes that an object or a list takes at least, beside what is in it.
const LEVEL_BYTES: usize = 7;

/// Whether objects and lists are in each other on more levels than this, with the document itself as one of them.
pub(crate) fn is_deeper(document: &RawDocument, levels: usize) -> bool {
    if document.as_bytes().len() <= LEVEL_BYTES * levels {
        return false;
    }
    let has_members = |kind| matches!(kind, ElementType::EmbeddedDocument | ElementType::Array);
    let members = document.iter_elements().map_while(std::result::Result::ok);
    levels == 0
        || members.filter(|member| has_members(member.element_type())).any(|member| match member.value() {
            Ok(RawBsonRef::Document(inner)) => is_deeper(inner, levels - 1),
            Ok(RawBsonRef::Array(list)) => list_as_object(list).is_some_and(|inner| is_deeper(inner, levels - 1)),
            _ => false,
        })
}

/// A copy, with the options of regular expressions in the order in which they are.
pub(crate) fn owned(value: RawBsonRef<'_>) -> RawBson {
    match value {
        RawBsonRef::RegularExpression(regex) => {
            RawBson::RegularExpression(Regex { pattern: regex.pattern.to_owned(), options: regex.options.to_owned() })
        }
        other => other.into(),
    }
}

/// The name of a value's type, as `$type` takes it.
#[must_use]
pub fn type_name(value: RawBsonRef<'_>) -> &'static str {
    match value {
        RawBsonRef::Double(_) => "double",
        RawBsonRef::String(_) => "string",
        RawBsonRef::Array(_) => "array",
        RawBsonRef::Document(_) => "object",
        RawBsonRef::Boolean(_) => "bool",
        RawBsonRef::Null => "null",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::JavaScriptCode(_) => "javascript",
        RawBsonRef::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        RawBsonRef::Int32(_) => "int",
        RawBsonRef::Int64(_) => "long",
        RawBsonRef::Timestamp(_) => "timestamp",
        RawBsonRef::Binary(_) => "binData",
        RawBsonRef::ObjectId(_) => "objectId",
        RawBsonRef::DateTime(_) => "date",
        RawBsonRef::Symbol(_) => "symbol",
        RawBsonRef::Decimal128(_) => "decimal",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::MaxKey => "maxKey",
        RawBsonRef::MinKey => "minKey",
        RawBsonRef::DbPointer(_) => "dbPointer",
    }
}

/// A document of nothing.
pub(crate) fn empty() -> &'static RawDocument {
    const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
    RawDocument::from_bytes(EMPTY).unwrap_or_else(|_| unreachable!("five bytes are an empty document"))
}
