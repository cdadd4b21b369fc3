use super::*;
use crate::arbitrary::{any_value, number, value};
use proptest::prelude::*;
use serde_json::json;

fn ordered(a: serde_json::Value, b: serde_json::Value) -> Ordering {
    compare(value(a).as_raw_bson_ref(), value(b).as_raw_bson_ref())
}

#[test]
fn types_are_in_the_order_of_mongodb() {
    let ascending = [
        json!({"$minKey": 1}),
        json!({"$undefined": true}),
        json!(null),
        json!({"$numberDouble": "NaN"}),
        json!({"$numberDouble": "-Infinity"}),
        json!({"$numberDecimal": "-1E+6000"}),
        json!(-1),
        json!(0),
        json!({"$numberDecimal": "1E-6176"}),
        json!({"$numberDouble": "5e-324"}),
        json!(0.1),
        json!({"$numberDecimal": "0.10000000000000001"}),
        json!({"$numberInt": "7"}),
        json!(9007199254740992i64),
        json!(9007199254740993i64),
        json!(i64::MAX),
        json!(9223372036854775808.0),
        json!({"$numberDecimal": "1E+400"}),
        json!({"$numberDouble": "Infinity"}),
        json!(""),
        json!("\u{0}"),
        json!({"$symbol": "a"}),
        json!("a\u{0}"),
        json!("ab"),
        json!({}),
        json!({"b": 1}),
        json!({"b": 1, "a": 0}),
        json!({"a": "x"}),
        json!([]),
        json!([1]),
        json!([1, 1]),
        json!([2]),
        json!({"$binary": {"base64": "/w==", "subType": "00"}}),
        json!({"$binary": {"base64": "AA==", "subType": "04"}}),
        json!({"$binary": {"base64": "AAA=", "subType": "00"}}),
        json!({"$oid": "000000000000000000000001"}),
        json!({"$oid": "ff0000000000000000000000"}),
        json!(false),
        json!(true),
        json!({"$date": {"$numberLong": "-1"}}),
        json!({"$date": "1970-01-01T00:00:00Z"}),
        json!({"$timestamp": {"t": 1, "i": 2}}),
        json!({"$timestamp": {"t": 4000000000u32, "i": 1}}),
        json!({"$regularExpression": {"pattern": "a", "options": ""}}),
        json!({"$regularExpression": {"pattern": "a", "options": "i"}}),
        json!({"$dbPointer": {"$ref": "b", "$id": {"$oid": "000000000000000000000001"}}}),
        json!({"$dbPointer": {"$ref": "aa", "$id": {"$oid": "000000000000000000000001"}}}),
        json!({"$code": "a"}),
        json!({"$code": "a", "$scope": {}}),
        json!({"$code": "a", "$scope": {"x": 1}}),
        json!({"$maxKey": 1}),
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(ordered(a.clone(), b.clone()), i.cmp(&j), "{a} and {b}");
        }
    }
}

#[test]
fn equal_values_of_different_types() {
    let groups = [
        vec![json!(1), json!(1.0), json!({"$numberInt": "1"}), json!({"$numberDecimal": "1.00"})],
        vec![json!(0), json!(-0.0), json!({"$numberDecimal": "-0E+6111"})],
        vec![json!({"$numberDouble": "NaN"}), json!({"$numberDecimal": "NaN"})],
        vec![json!(0.5), json!({"$numberDecimal": "0.5"})],
        vec![json!("a"), json!({"$symbol": "a"})],
        vec![json!({"a": [1]}), json!({"a": [1.0]})],
    ];
    for group in groups {
        for a in &group {
            for b in &group {
                assert_eq!(ordered(a.clone(), b.clone()), Ordering::Equal, "{a} and {b}");
            }
        }
    }
}

proptest! {
    #[test]
    fn it_is_a_total_order(a in any_value(), b in any_value(), c in any_value()) {
        let (a, b, c) = (a.as_raw_bson_ref(), b.as_raw_bson_ref(), c.as_raw_bson_ref());
        prop_assert_eq!(compare(a, a), Ordering::Equal);
        prop_assert_eq!(compare(a, b), compare(b, a).reverse());
        if compare(a, b).is_le() && compare(b, c).is_le() {
            prop_assert!(compare(a, c).is_le());
        }
    }

    #[test]
    fn numbers_are_in_a_total_order(mut numbers in prop::collection::vec(number(), 3)) {
        numbers.sort_by(|a, b| compare(a.as_raw_bson_ref(), b.as_raw_bson_ref()));
        prop_assert!(compare(numbers[0].as_raw_bson_ref(), numbers[2].as_raw_bson_ref()).is_le());
        prop_assert!(compare(numbers[0].as_raw_bson_ref(), numbers[1].as_raw_bson_ref()).is_le());
    }
}
