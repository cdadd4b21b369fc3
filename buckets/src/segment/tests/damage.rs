//! A damaged segment is an error or the same data, never other data and never a panic.

use super::*;

fn small() -> (Vec<u8>, Schema, Vec<String>) {
    let accepted = accept(&mixed_docs(), &schema());
    let (segment, schema) = seal(&[(accepted.batch, accepted.schema)], 3600);
    let all = read_all(&open(&segment.bytes).unwrap(), &schema).unwrap();
    (segment.bytes, schema, rows(&all))
}

fn try_all(bytes: &[u8], schema: &Schema) -> Result<Vec<String>, SegmentError> {
    Ok(rows(&read_all(&open(bytes)?, schema)?))
}

#[test]
fn a_flipped_byte_is_an_error() {
    let (mut bytes, schema, expected) = small();
    for at in 0..bytes.len() {
        for flip in [1_u8, 0x80] {
            bytes[at] ^= flip;
            match try_all(&bytes, &schema) {
                Err(error) => assert!(error.offset <= bytes.len() as u64 && error.name == "s1", "{error}"),
                Ok(rows) => assert_eq!(rows, expected, "byte {at}"),
            }
            bytes[at] ^= flip;
        }
    }
    assert_eq!(try_all(&bytes, &schema), Ok(expected));
}

#[test]
fn a_damaged_data_block_is_named() {
    let (mut bytes, schema, _) = small();
    bytes[100] ^= 4;
    let error = try_all(&bytes, &schema).unwrap_err();
    assert_eq!(error.offset, 0);
    assert!(error.to_string().starts_with("segment s1: offset 0: data: checksum expected=0x"), "{error}");
    let reader = open(&bytes).unwrap();
    assert_eq!(reader.verify(), Err(error));
}

#[test]
fn a_cut_file_is_an_error() {
    let (bytes, schema, _) = small();
    for len in 0..bytes.len() {
        assert!(try_all(&bytes[..len], &schema).is_err(), "{len}");
    }
    for extra in [&b"x"[..], b"PAR1", &[0; 100]] {
        assert!(try_all(&[&bytes, extra].concat(), &schema).is_err());
    }
    assert!(try_all(&[bytes.as_slice(), &bytes].concat(), &schema).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn directories_of_any_bytes_decode_or_fail(mut raw in prop::collection::vec(any::<u8>(), 0..200), small in any::<bool>()) {
        if small {
            raw.iter_mut().for_each(|b| *b &= 7);
        }
        let mut framed = u32::try_from(raw.len()).unwrap().to_le_bytes().to_vec();
        framed.extend(zstd::bulk::compress(&raw, 1).unwrap());
        if let Ok(directory) = super::super::directory::decode(&framed, 1000) {
            let _stats = directory.stats("x");
            let _posting = directory.posting(&["x"], &Value::Int(1));
        }
    }
}

/// The raw bytes of a directory whose metas claim `buckets_each` buckets each.
fn claiming(metas: u64, buckets_each: u64) -> Vec<u8> {
    let mut raw = Vec::new();
    super::super::varint::put_u64(&mut raw, metas);
    for meta in 0..metas {
        super::super::varint::put_u64(&mut raw, 0);
        super::super::varint::put_bytes(&mut raw, &meta.to_be_bytes());
    }
    (0..metas).for_each(|_| super::super::varint::put_u64(&mut raw, buckets_each));
    // Room for one meta's buckets, so that each claim by itself could be true.
    raw.resize(raw.len() + usize::try_from(buckets_each).unwrap() * super::super::directory::BUCKET_LISTS, 0);
    raw
}

#[test]
fn a_forged_directory_cannot_claim_more_buckets_than_it_has_bytes() {
    let decode = |raw: &[u8]| {
        let mut framed = u32::try_from(raw.len()).unwrap().to_le_bytes().to_vec();
        framed.extend(zstd::bulk::compress(raw, 1).unwrap());
        super::super::directory::decode(&framed, 1000)
    };
    // A thousand metas of a hundred thousand buckets: each takes four bytes of memory before the first is looked at.
    let error = decode(&claiming(1_000, 100_000)).unwrap_err();
    assert!(error.contains("more buckets than there is room for"), "{error}");
    let error = decode(&claiming(1, 100_000)[..500_000]).unwrap_err();
    assert!(error.contains("more buckets than there is room for"), "{error}");
    // What fits by its count alone ends early.
    let error = decode(&claiming(1, 100_000)).unwrap_err();
    assert!(error.contains("ends early"), "{error}");
}
