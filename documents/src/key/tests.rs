use super::*;
use crate::arbitrary::{any_value, number, value};
use crate::compare;
use proptest::prelude::*;
use serde_json::json;

fn key(json: serde_json::Value) -> Vec<u8> {
    value_key(value(json).as_raw_bson_ref())
}

#[test]
fn keys_are_short() {
    let cases = [
        (json!(0), 1),
        (json!(-1), 2),
        (json!(1), 2),
        (json!(127), 2),
        (json!(128), 3),
        (json!(1_700_000_000), 5),
        (json!(i64::MAX), 9),
        (json!(i64::MIN), 9),
        (json!(0.5), 11),
        (json!(1e300), 10),
        (json!({"$numberDecimal": "0.1"}), 15),
        (json!("abc"), 5),
        (json!({"$oid": "000000000000000000000001"}), 13),
        (json!(true), 2),
        (json!({"$date": 0}), 9),
        (json!({"$uuid": "00112233-4455-6677-8899-aabbccddeeff"}), 19),
        (json!(null), 1),
        (json!({"a": 1}), 7),
    ];
    for (json, length) in cases {
        assert_eq!(key(json.clone()).len(), length, "{json}");
    }
}

/// These bytes are on disk: they never change.
#[test]
fn keys_are_these_bytes() {
    let cases: [(serde_json::Value, &[u8]); 20] = [
        (json!({"$minKey": 1}), &[8]),
        (json!({"$undefined": true}), &[16]),
        (json!(null), &[24]),
        (json!({"$numberDouble": "NaN"}), &[32]),
        (json!({"$numberDouble": "-Infinity"}), &[33, 0, 15, 255, 255, 255, 255, 255, 255, 0]),
        (json!(-2), &[41, 252]),
        (json!(-1), &[41, 254]),
        (json!(0), &[43]),
        (json!(1), &[44, 2]),
        (json!(1.5), &[44, 3, 191, 248, 0, 0, 0, 0, 0, 0, 0]),
        (json!({"$numberDecimal": "0.1"}), &[44, 1, 191, 185, 153, 153, 153, 153, 153, 153, 1, 24, 32, 11, 0]),
        (json!("a\u{0}\u{1}"), &[64, 97, 1, 1, 1, 2, 0]),
        (json!({"a": true}), &[72, 104, 97, 0, 104, 1, 0]),
        (json!([1]), &[80, 44, 2, 0]),
        (json!({"$binary": {"base64": "AQI=", "subType": "00"}}), &[88, 2, 0, 1, 2]),
        (json!({"$oid": "0102030405060708090a0b0c"}), &[96, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        (json!({"$date": 1}), &[112, 128, 0, 0, 0, 0, 0, 0, 1]),
        (json!({"$timestamp": {"t": 1, "i": 2}}), &[120, 0, 0, 0, 1, 0, 0, 0, 2]),
        (json!({"$code": "a"}), &[144, 97, 0]),
        (json!({"$maxKey": 1}), &[160]),
    ];
    for (json, bytes) in cases {
        assert_eq!(key(json.clone()), bytes, "{json}");
    }
}

#[test]
fn what_cannot_be_an_id_is_named() {
    let cases = [
        (json!([1]), "a list"),
        (json!({"$regularExpression": {"pattern": "a", "options": ""}}), "a regular expression"),
        (json!({"$undefined": true}), "undefined"),
    ];
    for (json, what) in cases {
        let error = id_key(value(json).as_raw_bson_ref()).unwrap_err();
        assert_eq!(error.code, Code::InvalidIdField);
        assert!(error.message.contains(what), "{error}");
    }
    for json in [json!(null), json!({"a": [1]}), json!({"$minKey": 1}), json!("x")] {
        assert_eq!(id_key(value(json.clone()).as_raw_bson_ref()).unwrap(), key(json));
    }
}

#[test]
fn long_binary_data_follows_short() {
    let binary = |n: usize| {
        let bytes = vec![0xFF; n];
        let binary = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes };
        value_key(binary.as_raw_binary().into())
    };
    let keys: Vec<_> = [0, 1, 252, 253, 254, 255, 256, 70_000].map(binary).into();
    assert!(keys.is_sorted());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn keys_sort_like_values(a in any_value(), b in any_value()) {
        let (a, b) = (a.as_raw_bson_ref(), b.as_raw_bson_ref());
        prop_assert_eq!(value_key(a).cmp(&value_key(b)), compare(a, b));
    }

    #[test]
    fn keys_of_numbers_sort_like_numbers(a in number(), b in number()) {
        let (a, b) = (a.as_raw_bson_ref(), b.as_raw_bson_ref());
        prop_assert_eq!(value_key(a).cmp(&value_key(b)), compare(a, b));
    }

    #[test]
    fn no_key_begins_another(a in any_value(), b in any_value()) {
        let (x, y) = (value_key(a.as_raw_bson_ref()), value_key(b.as_raw_bson_ref()));
        prop_assert!(x == y || !y.starts_with(&x));
    }

    #[test]
    fn keys_lie_in_the_range_of_their_class(a in any_value(), b in any_value()) {
        let class = TypeClass::of(a.as_raw_bson_ref());
        let (start, end) = class_range(class);
        let key = value_key(b.as_raw_bson_ref());
        prop_assert_eq!(start <= key && key < end, class == TypeClass::of(b.as_raw_bson_ref()));
    }
}
