use super::*;
use crate::arbitrary::{any_document, any_value, doc};
use crate::id_key;
use bson::raw::{RawBson, cstr};
use bson::{RawDocument, RawDocumentBuf};
use proptest::prelude::*;
use serde_json::json;

/// The document with an `_id` before its members, or after them.
fn with(id: &RawBson, rest: &RawDocument, is_first: bool) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    if is_first {
        document.append(cstr!("_id"), id.as_raw_bson_ref());
    }
    for (name, value) in rest.iter().flatten().filter(|(name, _)| name.as_str() != "_id") {
        document.append(name, value);
    }
    if !is_first {
        document.append(cstr!("_id"), id.as_raw_bson_ref());
    }
    document
}

fn saved(id: serde_json::Value) -> usize {
    let document = doc(json!({"_id": id, "a": 1}));
    let key = id_key(document.get("_id").unwrap().unwrap()).unwrap();
    let stored = without_id(document.as_bytes(), &key);
    assert_eq!(with_id_of_key(&stored, &key).unwrap().as_deref().unwrap_or(&stored), document.as_bytes());
    document.as_bytes().len() - stored.len()
}

#[test]
fn ids_that_the_key_tells_are_left_out() {
    let uuid = json!({"$uuid": "00112233-4455-6677-8899-aabbccddeeff"});
    let cases = [
        (json!("abc"), 13),
        (json!("a\u{0}\u{1}ü"), 15),
        (json!(0), 13),
        (json!(-1), 13),
        (json!(128), 13),
        (json!(i64::from(i32::MAX) + 1), 13),
        (json!(i64::MAX), 13),
        (json!(i64::MIN), 13),
        (json!({"$oid": "0102030405060708090a0b0c"}), 17),
        (json!({"$date": -5}), 13),
        (uuid, 26),
    ];
    for (id, bytes) in cases {
        assert_eq!(saved(id.clone()), bytes, "{id}");
    }
}

#[test]
fn ids_that_the_key_does_not_tell_stay() {
    let ids = [
        json!({"$numberInt": "1"}),
        json!({"$numberDouble": "1.0"}),
        json!(1.5),
        json!({"$numberDecimal": "1.00"}),
        json!({"$symbol": "abc"}),
        json!({"$binary": {"base64": "AQI=", "subType": "02"}}),
        json!(null),
        json!({"a": 1}),
    ];
    for id in ids {
        assert_eq!(saved(id.clone()), 0, "{id}");
    }
}

#[test]
fn what_was_never_stored_is_an_error() {
    let document = doc(json!({"a": 1}));
    let keys: [&[u8]; 8] =
        [&[], &[43, 1], &[44, 3], &[64, 97], &[64, 255, 0], &[64, 1, 9, 0], &[88, 9, 0, 1], &[96, 1]];
    for key in keys {
        assert!(with_id_of_key(document.as_bytes(), key).is_err(), "{key:?}");
    }
}

proptest! {
    #[test]
    fn documents_come_back(id in any_value(), rest in any_document(), is_first: bool) {
        let document = with(&id, &rest, is_first);
        let Ok(key) = id_key(id.as_raw_bson_ref()) else { return Ok(()) };
        let stored = without_id(document.as_bytes(), &key);
        prop_assert!(RawDocument::from_bytes(&stored).unwrap().iter().all(|member| member.is_ok()));
        let back = with_id_of_key(&stored, &key).unwrap();
        prop_assert_eq!(back.as_deref().unwrap_or(&stored), document.as_bytes());
    }

    #[test]
    fn bytes_of_any_kind_do_no_harm(stored: Vec<u8>, key: Vec<u8>) {
        let _ = with_id_of_key(&stored, &key);
        let _ = without_id(&stored, &key);
    }
}
