//! Cases of `distinct`.

use super::Distinct;
use crate::cases::{cases, check, doc, value};
use crate::json::to_canonical_value;

#[test]
fn distinct_does_what_mongodb_does() {
    for case in cases(include_str!("../../tests/distincts.json")) {
        let values = Distinct::new(case["path"].as_str().unwrap()).map(|mut distinct| {
            case["documents"].as_array().unwrap().iter().for_each(|document| distinct.add(&doc(document)));
            let values = distinct.into_values();
            values.iter().map(|value| to_canonical_value(value.as_raw_bson_ref())).collect::<Vec<_>>()
        });
        check(&case, values, |result| {
            result.as_array().unwrap().iter().map(|json| to_canonical_value(value(json).as_raw_bson_ref())).collect()
        });
    }
}

#[test]
fn bytes_grow_with_new_values_only() {
    let mut distinct = Distinct::new("a").unwrap();
    distinct.add(&bson::rawdoc! { "a": "a text of some length" });
    let bytes = distinct.bytes();
    assert!(bytes > 20);
    distinct.add(&bson::rawdoc! { "a": ["a text of some length"] });
    assert_eq!(distinct.bytes(), bytes);
}
