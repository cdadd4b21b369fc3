//! Documents as they are stored.

use bytes::Bytes;
use ebbtide_documents::bson::RawDocument;
use imbl::OrdMap;

/// A stored document and the instant of its last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// `_ts`: milliseconds since 1970.
    pub(crate) written: i64,
    /// The document as BSON.
    pub(crate) document: Bytes,
}

/// A stored document. What is not BSON is an empty document: checksums and checks on every way in exclude it.
pub(crate) fn raw(document: &[u8]) -> &RawDocument {
    const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
    RawDocument::from_bytes(document)
        .or_else(|_| RawDocument::from_bytes(EMPTY))
        .unwrap_or_else(|_| unreachable!("five bytes are an empty document"))
}

/// By key: a document, or `None` for a key that was removed although an older part has it.
pub(super) type Entries = OrdMap<Bytes, Option<Stored>>;
