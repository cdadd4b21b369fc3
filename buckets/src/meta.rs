//! Meta values: the keys of series, and conversions between keys, values and columns.

mod codec;
mod keys;

pub(crate) use keys::keys_of_numbered;
pub use keys::{column_of_keys, keys_of_column, value_at};

use ebbtide_ttl::Value;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::sync::Arc;

/// A meta value in canonical bytes: equal iff the values are equal in their normal form (`{a: 1, b: null}` is `{a: 1.0}`,
/// members in any order), and ordered as the values are. A null or missing meta is one key of its own, the least.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetaKey(Arc<[u8]>);

impl MetaKey {
    /// The key of a value.
    #[must_use]
    pub fn of(value: &Value) -> MetaKey {
        let mut bytes = Vec::with_capacity(24);
        match value {
            Value::Array(_) | Value::Object(_) => codec::encode(&value.normalized(), &mut bytes),
            scalar => codec::encode(scalar, &mut bytes),
        }
        MetaKey(bytes.into())
    }

    /// The key of a text, without the detour over a value.
    pub(crate) fn of_str(text: &str) -> MetaKey {
        let mut bytes = Vec::with_capacity(text.len() + 3);
        codec::encode_str(text, &mut bytes);
        MetaKey(bytes.into())
    }

    /// The value in its normal form.
    #[must_use]
    pub fn value(&self) -> Value {
        // Keys are only made from values or from checked bytes.
        codec::decode(&self.0).unwrap_or_default()
    }

    /// The canonical bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A key from bytes that [`MetaKey::as_bytes`] gave.
    pub(crate) fn trusted(bytes: &[u8]) -> MetaKey {
        MetaKey(bytes.into())
    }

    /// Reads a key back from its bytes.
    ///
    /// # Errors
    /// Says at which byte they stop being the bytes of a key.
    pub fn from_bytes(bytes: &[u8]) -> Result<MetaKey, String> {
        let value = codec::decode(bytes)?;
        let key = MetaKey::of(&value);
        if key.as_bytes() == bytes { Ok(key) } else { Err("not in canonical form".to_owned()) }
    }
}

impl fmt::Debug for MetaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetaKey({:?})", self.value())
    }
}

impl Serialize for MetaKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for MetaKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl<'de> de::Visitor<'de> for Bytes {
            type Value = MetaKey;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the bytes of a meta key")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<MetaKey, E> {
                MetaKey::from_bytes(bytes).map_err(E::custom)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<MetaKey, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                self.visit_bytes(&bytes)
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests;
