//! Writing documents, a member after the other.

use bson::RawDocumentBuf;
use bson::raw::{CStr, RawBsonRef};
use bson::spec::ElementType;

/// A document that members are appended to. [`RawDocumentBuf`] is a whole document after each of them; this is one at its end.
#[derive(Debug)]
pub struct DocumentWriter {
    bytes: Vec<u8>,
}

impl DocumentWriter {
    /// A document that will have about this number of bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> DocumentWriter {
        let mut document = Vec::with_capacity(bytes.max(5));
        document.extend([0; 4]);
        DocumentWriter { bytes: document }
    }

    /// Appends a member.
    #[inline]
    pub fn append<'a>(&mut self, name: &CStr, value: impl Into<RawBsonRef<'a>>) {
        match value.into() {
            RawBsonRef::Double(d) => self.scalar(ElementType::Double, name, &d.to_le_bytes()),
            RawBsonRef::Int32(i) => self.scalar(ElementType::Int32, name, &i.to_le_bytes()),
            RawBsonRef::Int64(i) => self.scalar(ElementType::Int64, name, &i.to_le_bytes()),
            RawBsonRef::DateTime(t) => {
                self.scalar(ElementType::DateTime, name, &t.timestamp_millis().to_le_bytes());
            }
            RawBsonRef::Boolean(b) => self.scalar(ElementType::Boolean, name, &[u8::from(b)]),
            RawBsonRef::Null => self.scalar(ElementType::Null, name, &[]),
            RawBsonRef::Document(document) => self.scalar(ElementType::EmbeddedDocument, name, document.as_bytes()),
            other => {
                let mut one = RawDocumentBuf::new();
                one.append(name, other);
                let bytes = one.as_bytes();
                self.bytes.extend(&bytes[4..bytes.len() - 1]);
            }
        }
    }

    #[inline]
    fn scalar(&mut self, kind: ElementType, name: &CStr, value: &[u8]) {
        let name = name.as_str().as_bytes();
        self.bytes.reserve(name.len() + value.len() + 2);
        self.bytes.push(kind as u8);
        self.bytes.extend(name);
        self.bytes.push(0);
        self.bytes.extend(value);
    }

    /// Whether it has more bytes than BSON can say.
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        i32::try_from(self.bytes.len() + 1).is_err()
    }

    /// The document.
    ///
    /// # Panics
    /// If it is too long.
    #[must_use]
    pub fn finish(mut self) -> RawDocumentBuf {
        self.bytes.push(0);
        let length = i32::try_from(self.bytes.len()).expect("a document has less than 2 GiB");
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        RawDocumentBuf::from_bytes(self.bytes).expect("it begins with its length and ends with zero")
    }
}
