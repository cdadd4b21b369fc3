use super::*;
use crate::arbitrary::{any_document, doc};
use bson::raw::CString;
use proptest::prelude::*;
use serde_json::json;

fn bytes(body: &[u8]) -> RawDocumentBuf {
    let length = i32::try_from(body.len() + 5).unwrap();
    RawDocumentBuf::from_bytes([&length.to_le_bytes(), body, &[0]].concat()).unwrap()
}

/// A document of nested objects with one member each.
fn nested(name: &str, levels: usize) -> RawDocumentBuf {
    let mut head = Vec::new();
    for inner in (1..levels).rev() {
        let bytes = i32::try_from(5 + inner * (7 + name.len())).unwrap();
        head.extend(bytes.to_le_bytes());
        head.push(3);
        head.extend(name.as_bytes());
        head.push(0);
    }
    head.extend(5i32.to_le_bytes());
    head.resize(head.len() + levels, 0);
    RawDocumentBuf::from_bytes(head).unwrap()
}

/// A document of exactly this many bytes.
fn sized(size: usize) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("a"), "x".repeat(size - 13));
    assert_eq!(document.as_bytes().len(), size);
    document
}

#[track_caller]
fn refused(document: &RawDocument, code: Code, message: &str) {
    let error = check(document).unwrap_err();
    assert_eq!(error.code, code, "{error}");
    assert!(error.message.contains(message), "{error}");
}

#[test]
fn accepts_what_mongodb_accepts() {
    for document in [
        json!({}),
        json!({"_id": null}),
        json!({"_id": {"a": [1]}, "a.b": 1, "": 2, "$price": 3, "x": {"$inc": 1}}),
        json!({"_id": {"$ref": "c", "$id": 1, "$db": "d"}}),
        json!({"a": {"$code": "f", "$scope": {"x": 1}}}),
    ] {
        check(&doc(document)).unwrap();
    }
    let mut twice = doc(json!({"a": 1}));
    twice.append(cstr!("a"), 2);
    check(&twice).unwrap();
}

#[test]
fn refuses_what_cannot_be_an_id() {
    refused(&doc(json!({"_id": [1]})), Code::InvalidIdField, "a list cannot be the _id");
    refused(&doc(json!({"_id": {"a": {"$b": 1}}})), Code::DollarPrefixedFieldName, "'_id.a.$b'");
    refused(&doc(json!({"_id": {"a": 1, "$ref": "c"}})), Code::DollarPrefixedFieldName, "'_id.$ref'");
    let mut twice = doc(json!({"_id": 1}));
    twice.append(cstr!("_id"), 2);
    refused(&twice, Code::BadValue, "'_id': the document has two");
}

#[test]
fn refuses_names_that_a_dump_could_not_keep() {
    for name in WRAPPERS {
        let mut inner = RawDocumentBuf::new();
        inner.append(CString::try_from(name).unwrap(), "x");
        refused(&inner, Code::DollarPrefixedFieldName, name);
        let mut outer = RawDocumentBuf::new();
        outer.append(cstr!("a"), inner);
        refused(&outer, Code::DollarPrefixedFieldName, &format!("'a.{name}'"));
    }
}

#[test]
fn refuses_more_than_a_hundred_levels() {
    check(&nested("a", 100)).unwrap();
    check(&nested("_id", 100)).unwrap();
    for levels in [101, 10_000, 1_000_000] {
        refused(&nested("a", levels), Code::BadValue, "nested deeper than 100 levels");
        refused(&nested("_id", levels), Code::BadValue, "nested deeper than 100 levels");
        assert_eq!(with_id(nested("_id", levels), ObjectId::default).unwrap_err().code, Code::BadValue);
    }
}

#[test]
fn refuses_more_than_sixteen_mebibytes() {
    check(&sized(DOCUMENT_BYTES_MAX)).unwrap();
    refused(&sized(DOCUMENT_BYTES_MAX + 1), Code::BSONObjectTooLarge, "16777217 bytes is too large");
    // The _id that is added counts.
    let full = with_id(sized(DOCUMENT_BYTES_MAX - 17), ObjectId::default).unwrap().0;
    assert_eq!(full.as_bytes().len(), DOCUMENT_BYTES_MAX);
    assert_eq!(with_id(sized(DOCUMENT_BYTES_MAX - 16), ObjectId::default).unwrap_err().code, Code::BSONObjectTooLarge);
}

#[test]
fn refuses_malformed_bytes() {
    let cases: [(&[u8], &str); 9] = [
        (b"\x10a\0\x01", "not a BSON document"),
        (b"\x77a\0", "not a BSON document"),
        (b"\x02a\0\x02\0\0\0\xff\0", "not a BSON document"),
        (b"\x02\xff\0\x01\0\0\0\0", "not a BSON document"),
        (b"\x08a\0\x02", "not a BSON document"),
        (b"\x02a\0\xff\xff\xff\xff\0", "not a BSON document"),
        (b"\x03a\0\x0b\0\0\0\x10b\0\x01\0\0\0", "field 'a'"),
        (b"\x05a\0\x02\0\0\0\x02\0\0", "not a BSON document"),
        (b"\x0fa\0\x05\0\0\0\0", "not a BSON document"),
    ];
    for (body, message) in cases {
        refused(&bytes(body), Code::BadValue, message);
    }
}

#[test]
fn a_missing_id_is_added_at_the_front() {
    let id = ObjectId::from_bytes([7; 12]);
    let (document, key) = with_id(doc(json!({"b": 1, "a": 2})), || id).unwrap();
    assert_eq!(document, doc(json!({"_id": {"$oid": "070707070707070707070707"}, "b": 1, "a": 2})));
    assert_eq!(key, crate::value_key(RawBsonRef::ObjectId(id)));
    // One that is there stays where it is.
    let given = doc(json!({"b": 1, "_id": 5}));
    let (document, key) = with_id(given.clone(), || unreachable!()).unwrap();
    assert_eq!((document, key), (given, crate::value_key(RawBsonRef::Int32(5))));
}

#[test]
fn object_ids_count_up() {
    let ids = ObjectIds::new([1, 2, 3, 4, 5], 0xFF_FFFE);
    let now = Timestamp::from_millis(0x0102_0304 * 1000 + 999);
    let made = [0; 3].map(|_| ids.make(now).to_hex());
    assert_eq!(made, ["010203040102030405fffffe", "010203040102030405ffffff", "010203040102030405000000"]);
    assert_eq!(&ids.make(Timestamp::from_millis(i64::MIN)).to_hex()[..8], "00000000");
    assert_eq!(&ids.make(Timestamp::from_millis(i64::MAX)).to_hex()[..8], "ffffffff");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn damaged_bytes_are_refused_or_readable(document in any_document(), at in any::<prop::sample::Index>(), bits: u8) {
        let mut bytes = document.into_bytes();
        let end = bytes.len();
        if end > 5 {
            bytes[4 + at.index(end - 5)] ^= bits;
        }
        if let Ok(document) = RawDocumentBuf::from_bytes(bytes)
            && check(&document).is_ok()
        {
            let text = crate::json::canonical_text(&document);
            prop_assert!(crate::json::document_from_slice(text.as_bytes()).is_ok());
            let _ = crate::value_key(RawBsonRef::Document(&document));
        }
    }

    #[test]
    fn any_bytes_are_refused_or_readable(body in prop::collection::vec(any::<u8>(), 0..60)) {
        let document = bytes(&body);
        if check(&document).is_ok() {
            prop_assert!(document.iter().all(|member| member.is_ok()));
        }
    }

    #[test]
    fn documents_are_accepted(document in any_document()) {
        prop_assert_eq!(check(&document), Ok(()));
    }
}
