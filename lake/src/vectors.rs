//! Deletion vectors: the rows of a file that a version of a table leaves out, in the form that Delta Lake has for those within the log.

use roaring::{RoaringBitmap, RoaringTreemap};
use serde_json::{Value, json};

/// What begins a vector (Delta Lake's protocol, "Deletion Vector Format").
const MAGIC: u32 = 1_681_511_377;

/// The vector of these rows; null if there are none.
pub(crate) fn vector_of(rows: &RoaringBitmap) -> std::io::Result<Value> {
    if rows.is_empty() {
        return Ok(Value::Null);
    }
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    let mut wide = RoaringTreemap::new();
    wide.append(rows.iter().map(u64::from)).map_err(std::io::Error::other)?;
    wide.serialize_into(&mut bytes)?;
    let size = bytes.len();
    Ok(json!({"storageType": "i", "pathOrInlineDv": text_of(bytes), "sizeInBytes": size, "cardinality": rows.len()}))
}

/// A set of rows as text.
pub(crate) fn text_of_rows(rows: &RoaringBitmap) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    rows.serialize_into(&mut bytes)?;
    Ok(text_of(bytes))
}

/// The set of rows of a text.
pub(crate) fn rows_of_text(text: &str) -> Option<RoaringBitmap> {
    RoaringBitmap::deserialize_from(z85::decode(text).ok()?.as_slice()).ok()
}

/// Bytes in Z85, which needs a multiple of four. Readers go by the length that stands beside it, or within.
fn text_of(mut bytes: Vec<u8>) -> String {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    z85::encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_rows_survives_its_text() {
        for rows in [vec![], vec![0], vec![1, 2, 3, 70_000], (0..100_000).collect()] {
            let rows: RoaringBitmap = rows.into_iter().collect();
            assert_eq!(rows_of_text(&text_of_rows(&rows).expect("writes to memory")), Some(rows));
        }
        assert_eq!(rows_of_text("no such thing"), None);
    }

    #[test]
    fn a_vector_has_the_length_of_its_bytes() {
        let vector = vector_of(&(3..10).collect()).expect("writes to memory");
        let bytes = z85::decode(vector["pathOrInlineDv"].as_str().expect("a text")).expect("Z85");
        let size = usize::try_from(vector["sizeInBytes"].as_u64().expect("a number")).expect("it is small");
        assert_eq!(bytes.len(), size.next_multiple_of(4));
        assert_eq!((&bytes[..4], vector["cardinality"].as_u64()), (&MAGIC.to_le_bytes()[..], Some(7)));
        let rows = RoaringTreemap::deserialize_from(&bytes[4..size]).expect("rows");
        assert_eq!(rows.iter().collect::<Vec<_>>(), (3..10).collect::<Vec<_>>());
    }
}
