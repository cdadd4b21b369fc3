//! A request as it is stored with what it inserts.

use super::known::RequestKey;
use crate::documents::changes::{self, Change};
use crate::documents::stored::Stored;
use crate::error::{Error, Result};
use bytes::Bytes;
use ebbtide_documents::bson::raw::{RawBinaryRef, RawBsonRef, RawDocumentBuf, cstr};
use ebbtide_documents::bson::spec::BinarySubtype;
use ebbtide_documents::id_key;
use ebbtide_ttl::Code;

/// Bytes of a reply at most: 16 MiB.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// A request with its reply takes less in the log.
pub(crate) const ANSWERED_BYTES: usize = REPLY_BYTES_MAX + 1024;

/// A request as it is stored with what it inserts.
pub(crate) struct StoredRequest {
    pub(crate) collection: u64,
    pub(crate) change: Change,
    /// The change as it is in the log.
    pub(crate) encoded: Vec<u8>,
}

/// A request that is about to be stored.
pub(crate) struct UnansweredRequest {
    pub(super) collection: u64,
    pub(super) document_key: Bytes,
    pub(super) key: RequestKey,
    pub(super) digest: [u8; 32],
    pub(super) written: i64,
}

impl UnansweredRequest {
    /// The request with its reply.
    pub(crate) fn with_reply(self, reply: &[u8]) -> Result<StoredRequest> {
        if reply.len() > REPLY_BYTES_MAX {
            let what = format!("the reply of a request may have {REPLY_BYTES_MAX} bytes, this one has {}", reply.len());
            return Err(Error::new(Code::BSONObjectTooLarge, what));
        }
        let binary = |bytes| RawBinaryRef { subtype: BinarySubtype::Generic, bytes };
        let mut document = RawDocumentBuf::new();
        let members: [(_, &[u8]); 3] =
            [(cstr!("_id"), &self.key), (cstr!("digest"), &self.digest), (cstr!("reply"), reply)];
        for (name, bytes) in members {
            document.append(name, RawBsonRef::Binary(binary(bytes)));
        }
        let stored = Stored { written: self.written, document: document.into_bytes().into() };
        let change = Change { key: self.document_key, stored: Some(stored) };
        let encoded = changes::encode(std::slice::from_ref(&change));
        Ok(StoredRequest { collection: self.collection, change, encoded })
    }
}

pub(super) fn document_key(key: &RequestKey) -> Result<Bytes> {
    let binary = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: key };
    Ok(id_key(RawBsonRef::Binary(binary))?.into())
}
