//! The encodings of pages: what is put in comes out, and any bytes decode or fail.

use super::super::delta::{Keys, numbers, put_keys, put_numbers};
use super::super::page::{self, PageEncoding};
use crate::segment::varint::Cursor;
use proptest::prelude::*;

fn through(values: &[i64]) -> Vec<i64> {
    let mut out = Vec::new();
    put_numbers(&mut out, values);
    let mut cursor = Cursor::new(&out);
    let found = numbers(&mut cursor, values.len()).unwrap();
    assert_eq!(cursor.at(), out.len());
    found
}

#[test]
fn numbers_of_every_width_come_back() {
    for bits in 0..64 {
        for len in [1, 2, 31, 32, 33, 34, 128, 129, 130, 512, 1_000] {
            let mut state = 0x9E37_79B9_7F4A_7C15_u64;
            let values: Vec<i64> = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> bits).cast_signed()
                })
                .collect();
            assert_eq!(through(&values), values, "{bits} bits fewer, {len} numbers");
        }
    }
    assert_eq!(
        through(&[i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MIN]),
        [i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MIN]
    );
}

#[test]
fn a_header_is_exactly_what_was_written() {
    let mut bytes = Vec::new();
    page::put_header(&mut bytes, 1_000, 3, 32, PageEncoding::Plain);
    bytes.extend([1, 2, 3]);
    assert_eq!(page::split(&bytes, 32, PageEncoding::Plain), Ok((1_000, &[1, 2, 3][..])));
    assert!(page::split(&bytes, 31, PageEncoding::Plain).unwrap_err().contains("32 rows in encoding 0, expected 31"));
    assert!(page::split(&bytes, 32, PageEncoding::DeltaByteArray).unwrap_err().contains("expected 32 in 7"));
    assert!(page::split(&bytes[..bytes.len() - 1], 32, PageEncoding::Plain).unwrap_err().contains("its header says 3"));
    for len in 0..bytes.len() {
        assert!(page::split(&bytes[..len], 32, PageEncoding::Plain).is_err());
    }
    let mut large = Vec::new();
    page::put_header(&mut large, 1 << 30, 0, 32, PageEncoding::Plain);
    assert!(page::split(&large, 32, PageEncoding::Plain).unwrap_err().contains("at most 65 MiB"));
}

#[test]
fn a_forged_page_does_not_ask_for_memory() {
    let mut forged = Vec::new();
    put_numbers(&mut forged, &[0, 1_000, 1_000]);
    put_numbers(&mut forged, &[1_000, 0, 0]);
    forged.extend([b'a'; 1_000]);
    assert_eq!(Keys::decode(&forged, 3, 3_000).unwrap().bytes.len(), 3_000);
    assert!(Keys::decode(&forged, 3, 2_999).unwrap_err().contains("keys of more than 2999 bytes"));
    let zeros = zstd::bulk::compress(&vec![0; 1 << 20], 3).unwrap();
    assert!(page::decompress(&zeros, 100).is_err());
    assert!(page::decompress(&zeros, 2 << 20).is_err());
    assert_eq!(page::decompress(&zeros, 1 << 20).unwrap().len(), 1 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_numbers_come_back(values in prop::collection::vec(prop_oneof![any::<i64>(), -100..100_i64], 1..300)) {
        prop_assert_eq!(through(&values), values);
    }

    #[test]
    fn any_lives_come_back(values in prop::collection::vec(prop::option::weighted(0.5, any::<i64>()), 1..100)) {
        let mut out = Vec::new();
        page::put_optional(&mut out, &values);
        prop_assert_eq!(page::optional(&out, values.len()), Ok(values));
    }

    #[test]
    fn any_keys_come_back(keys in prop::collection::vec(prop::collection::vec(0_u8..2, 0..9), 1..200)) {
        let ends: Vec<usize> = keys.iter().scan(0, |at, key| { *at += key.len(); Some(*at) }).collect();
        let mut out = Vec::new();
        put_keys(&mut out, &keys.concat(), &ends);
        let found = Keys::decode(&out, keys.len(), 1 << 20).unwrap();
        prop_assert_eq!((found.bytes, found.ends), (keys.concat(), ends));
    }

    #[test]
    fn any_bytes_decode_or_fail(mut bytes in prop::collection::vec(any::<u8>(), 0..200), rows in 1..40_usize, small in any::<bool>(), delta in any::<bool>()) {
        if small {
            bytes.iter_mut().for_each(|b| *b &= 7);
        }
        if delta {
            bytes.splice(..0, [0x80, 1, 4, rows as u8]);
        }
        let _numbers = numbers(&mut Cursor::new(&bytes), rows);
        let _keys = Keys::decode(&bytes, rows, 1_000);
        let _lives = page::optional(&bytes, rows);
        let _strings = page::strings(&bytes, rows);
        let _string = page::string(&bytes, rows);
        let _header = page::split(&bytes, rows, PageEncoding::Plain);
        let _values = page::decompress(&bytes, rows);
    }
}
