//! Replies.

use bson::DateTime;
use bson::raw::{CString, RawBson, RawDocument, RawDocumentBuf, cstr};
use bson::spec::ElementType;
use ebbtide_ttl::{Precision, Timestamp};

/// Bytes of the kind and the number of a list's element, about.
const KEY_BYTES: usize = 8;

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

/// A reply with a batch of a cursor, `firstBatch` or `nextBatch`. It may be large, so each document is copied only once.
pub(crate) fn batch<D: AsRef<RawDocument>>(
    id: i64,
    namespace: &str,
    name: &'static str,
    documents: &[D],
) -> RawDocumentBuf {
    let bytes: usize = documents.iter().map(|document| document.as_ref().as_bytes().len() + KEY_BYTES).sum();
    let mut reply = Vec::with_capacity(bytes + namespace.len() + 128);
    let whole = begin(&mut reply);
    element(&mut reply, ElementType::EmbeddedDocument, "cursor");
    let cursor = begin(&mut reply);
    element(&mut reply, ElementType::Array, name);
    let list = begin(&mut reply);
    for (at, document) in documents.iter().enumerate() {
        element(&mut reply, ElementType::EmbeddedDocument, &at.to_string());
        reply.extend(document.as_ref().as_bytes());
    }
    end(&mut reply, list);
    element(&mut reply, ElementType::Int64, "id");
    reply.extend(id.to_le_bytes());
    element(&mut reply, ElementType::String, "ns");
    reply.extend(length(namespace.len() + 1));
    reply.extend(namespace.as_bytes());
    reply.push(0);
    end(&mut reply, cursor);
    element(&mut reply, ElementType::Double, "ok");
    reply.extend(1.0_f64.to_le_bytes());
    end(&mut reply, whole);
    RawDocumentBuf::from_bytes(reply).unwrap_or_else(|e| unreachable!("its length and its end are right: {e}"))
}

/// Begins a document or a list; where.
fn begin(bytes: &mut Vec<u8>) -> usize {
    bytes.extend([0; 4]);
    bytes.len() - 4
}

/// Ends the document or list that began there.
fn end(bytes: &mut Vec<u8>, begin: usize) {
    bytes.push(0);
    let length = length(bytes.len() - begin);
    bytes[begin..begin + 4].copy_from_slice(&length);
}

fn element(bytes: &mut Vec<u8>, kind: ElementType, name: &str) {
    bytes.push(kind as u8);
    bytes.extend(name.as_bytes());
    bytes.push(0);
}

fn length(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes).unwrap_or(i32::MAX).to_le_bytes()
}

/// `{}`.
pub(crate) fn empty() -> &'static RawDocument {
    const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
    RawDocument::from_bytes(EMPTY).unwrap_or_else(|_| unreachable!("five bytes are an empty document"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::raw::RawArrayBuf;
    use bson::rawdoc;

    #[test]
    fn a_batch_is_a_cursor_with_its_documents() {
        for count in [0, 1, 12] {
            let documents: Vec<_> = (0..count).map(|at| rawdoc! { "_id": at, "text": "x" }).collect();
            let list: RawArrayBuf = documents.iter().cloned().collect();
            let cursor = rawdoc! { "nextBatch": list, "id": 7_i64, "ns": "d.c" };
            assert_eq!(batch(7, "d.c", "nextBatch", &documents), rawdoc! { "cursor": cursor, "ok": 1.0 });
        }
    }
}
