//! Replies.

use bson::raw::{CString, RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, cstr};
use bson::{DateTime, rawdoc};
use ebbtide_ttl::{Precision, Timestamp};

/// `{ok: 1}`.
pub(crate) fn done() -> RawDocumentBuf {
    finished(RawDocumentBuf::new())
}

/// A reply with `ok: 1` at its end.
pub(crate) fn finished(mut reply: RawDocumentBuf) -> RawDocumentBuf {
    reply.append(cstr!("ok"), 1.0);
    reply
}

/// A member under a name that is known at run time only; nothing is appended under a name with a NUL, which no document has.
pub(crate) fn append(document: &mut RawDocumentBuf, name: &str, value: impl Into<RawBson>) {
    if let Ok(name) = CString::try_from(name) {
        document.append(name.as_ref(), value.into());
    }
}

/// A whole number in MongoDB's smallest type for it.
pub(crate) fn number(n: i64) -> RawBson {
    i32::try_from(n).map_or(RawBson::Int64(n), RawBson::Int32)
}

/// The same for a count.
pub(crate) fn count(n: u64) -> RawBson {
    number(i64::try_from(n).unwrap_or(i64::MAX))
}

/// An instant in whole milliseconds.
pub(crate) fn date(instant: Timestamp) -> DateTime {
    DateTime::from_millis(instant.to_units_saturating(Precision::Ms))
}

/// A reply with a batch of a cursor, `firstBatch` or `nextBatch`.
pub(crate) fn batch<D: AsRef<RawDocument>>(id: i64, namespace: &str, name: &str, documents: &[D]) -> RawDocumentBuf {
    let mut list = RawArrayBuf::new();
    documents.iter().for_each(|document| list.push(document.as_ref()));
    let mut cursor = RawDocumentBuf::new();
    append(&mut cursor, name, list);
    cursor.append(cstr!("id"), id);
    cursor.append(cstr!("ns"), namespace);
    finished(rawdoc! { "cursor": cursor })
}

/// `{}`.
pub(crate) fn empty() -> &'static RawDocument {
    const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
    RawDocument::from_bytes(EMPTY).unwrap_or_else(|_| unreachable!("five bytes are an empty document"))
}
