//! Cases of updates and upserts, and what holds for all of them.

use super::Update;
use crate::arbitrary::{any_document, any_value};
use crate::cases::{NOW_MS, cases, check, doc, value};
use crate::json::canonical_text;
use bson::raw::{RawBson, RawBsonRef};
use bson::{RawDocumentBuf, rawdoc};
use proptest::prelude::*;
use serde_json::{Value, json};

const UPDATES: &str = include_str!("../../tests/updates.json");
const UPSERTS: &str = include_str!("../../tests/upserts.json");

fn parse(update: &Value) -> crate::Result<Update> {
    Update::parse(value(update).as_raw_bson_ref(), false)
}

#[test]
fn updates_do_what_mongodb_does() {
    let cases = cases(UPDATES);
    assert!(cases.len() >= 300);
    for case in cases {
        let document = doc(&case["document"]);
        let multi = case.get("multi").is_some();
        let update = Update::parse(value(&case["update"]).as_raw_bson_ref(), multi);
        let actual = update.and_then(|update| update.apply(&document, NOW_MS));
        let actual = actual.map(|changed| changed.map(|document| canonical_text(&document)));
        check(&case, actual, |result| if result.is_null() { None } else { Some(canonical_text(&doc(result))) });
        assert_eq!(case.get("unchanged").is_some(), case.get("result").is_none() && case.get("error").is_none());
    }
}

#[test]
fn upserts_do_what_mongodb_does() {
    for case in cases(UPSERTS) {
        let actual = parse(&case["update"]).and_then(|update| update.upsert(&doc(&case["query"]), NOW_MS));
        check(&case, actual.map(|document| canonical_text(&document)), |result| canonical_text(&doc(result)));
    }
}

#[test]
fn the_current_date_is_the_given_instant() {
    let update = parse(&json!({"$currentDate": {
        "a": true, "b": false, "c": {"$type": "date"}, "d.e": {"$type": "timestamp"}, "f": true
    }}));
    let document = doc(&json!({"_id": 1, "f": {"$date": {"$numberLong": "1704067200000"}}}));
    let updated = update.unwrap().apply(&document, NOW_MS + 999).unwrap().unwrap();
    let date = bson::DateTime::from_millis(NOW_MS + 999);
    let timestamp = bson::Timestamp { time: 1_704_067_200, increment: 1 };
    let expected = rawdoc! { "_id": 1, "f": date, "a": date, "b": date, "c": date, "d": { "e": timestamp } };
    assert_eq!(updated, expected);
}

#[test]
fn a_timestamp_of_an_instant_that_it_does_not_hold_is_the_nearest() {
    let update = parse(&json!({"$currentDate": {"a": {"$type": "timestamp"}}})).unwrap();
    for (now_ms, time) in [(-1, 0), (i64::MIN, 0), (i64::MAX, u32::MAX), (999, 0), (1000, 1)] {
        let updated = update.apply(&rawdoc! { "_id": 1 }, now_ms).unwrap().unwrap();
        assert_eq!(updated.get_timestamp("a").unwrap(), bson::Timestamp { time, increment: 1 }, "{now_ms}");
    }
}

#[test]
fn messages_name_the_operator_and_the_path_and_say_what_to_do() {
    let document = doc(&json!({"_id": 7, "a": {"b": "x"}, "l": [1]}));
    let messages = [
        (
            json!({"$inc": {"a.b": 1}}),
            "$inc of 'a.b': the field holds a value of type string, no number; $set it to a number first",
        ),
        (
            json!({"$set": {"a.b.c": 1}}),
            "$set of 'a.b.c': 'a.b' holds a value of type string, in which there can be no 'c'; $set 'a.b' first",
        ),
        (json!({"$push": {"l.x": 1}}), "$push of 'l.x': 'l' is a list, whose elements have numbers, not the name 'x'"),
        (
            json!({"$set": {"_id": 8}}),
            "$set of '_id': would change the _id 7, which never changes; delete the document and insert another",
        ),
        (
            json!({"$set": {"a.$.b": 1}}),
            "$set of 'a.$.b': '$' is not available in paths; name the element of the list by its number",
        ),
        (
            json!({"$set": {"a": 1}, "$unset": {"a.b": 1}}),
            "$set of 'a' and $unset of 'a.b' change the same field; change it with one operator at one path",
        ),
        (json!({"$set": {"a": 1}, "b": 1}), "'b' stands beside update operators; set a field with {$set: {b: ...}}"),
    ];
    for (update, expected) in messages {
        let error = parse(&update).and_then(|update| update.apply(&document, NOW_MS)).unwrap_err();
        assert_eq!(error.message, expected);
    }
    let error = parse(&json!({"$bit": {"a": {"and": 1}}})).unwrap_err();
    assert!(error.message.starts_with("the update operator '$bit' is not available; available are $set, $unset,"));
}

#[test]
fn paths_and_results_have_at_most_100_levels() {
    let path = |names: usize| vec!["a"; names].join(".");
    let set = |path: &str| parse(&json!({"$set": {path: 1}})).and_then(|update| update.apply(&rawdoc! { "_id": 1 }, 0));
    assert!(set(&path(99)).unwrap().is_some());
    assert_eq!(set(&path(101)).unwrap_err().code, crate::Code::BadValue);
    let deep = (0..98).fold(json!(1), |inner, _| json!({ "a": inner }));
    let within = |path: &str| parse(&json!({"$set": {path: deep.clone()}})).unwrap().apply(&rawdoc! { "_id": 1 }, 0);
    assert!(within("a").unwrap().is_some());
    assert_eq!(within("a.b.c").unwrap_err().code, crate::Code::BadValue);
}

#[test]
fn results_have_at_most_16_mib() {
    let text = "x".repeat(9 << 20);
    let document = rawdoc! { "_id": 1, "a": text.as_str() };
    let update = rawdoc! { "$set": { "b": text.as_str() } };
    let error = Update::parse(RawBsonRef::Document(&update), false).unwrap().apply(&document, 0).unwrap_err();
    assert_eq!(error.code, crate::Code::BSONObjectTooLarge);
}

#[test]
fn a_name_with_a_zero_byte_is_refused() {
    let error = parse(&json!({"$rename": {"a": "b\u{0}c"}})).unwrap_err();
    assert_eq!(error.code, crate::Code::BadValue);
}

#[test]
fn an_update_without_names_replaces() {
    assert!(parse(&json!({})).unwrap().is_replacement());
    assert!(!parse(&json!({"$set": {}})).unwrap().is_replacement());
}

fn wrapped(operator: &str, path: &str, argument: &RawBson) -> RawDocumentBuf {
    let mut fields = RawDocumentBuf::new();
    fields.append(bson::raw::CString::try_from(path).unwrap(), argument.as_raw_bson_ref());
    let mut update = RawDocumentBuf::new();
    update.append(bson::raw::CString::try_from(operator).unwrap(), fields);
    update
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[abc012]", 1..4).prop_map(|names| names.join("."))
}

fn with_id(document: &bson::RawDocument) -> RawDocumentBuf {
    let mut result = rawdoc! { "_id": 1 };
    for (name, value) in document.iter().map(|member| member.unwrap()).filter(|(name, _)| name.as_str() != "_id") {
        result.append(name, value);
    }
    result
}

proptest! {
    /// A second $set changes nothing; what no operator names is as it was.
    #[test]
    fn set_twice_is_set_once(document in any_document(), argument in any_value(), path in path()) {
        let document = with_id(&document);
        let update = Update::parse(RawBsonRef::Document(&wrapped("$set", &path, &argument)), false).unwrap();
        if let Ok(Some(once)) = update.apply(&document, NOW_MS) {
            prop_assert_eq!(update.apply(&once, NOW_MS).unwrap(), None);
            let field = path.split('.').next().unwrap();
            let others = |document: &bson::RawDocument| -> RawDocumentBuf {
                document.iter().map(|member| member.unwrap()).filter(|(name, _)| name.as_str() != field).collect()
            };
            prop_assert_eq!(others(&once), others(&document));
        }
    }

    /// No operator panics, whatever it meets, and none changes `_id`.
    #[test]
    fn any_operator_meets_any_document(
        document in any_document(),
        argument in any_value(),
        path in path(),
        operator in 0..13usize,
    ) {
        let document = with_id(&document);
        let operators = [
            "$set", "$unset", "$inc", "$mul", "$min", "$max", "$rename", "$setOnInsert", "$currentDate", "$push",
            "$addToSet", "$pull", "$pop",
        ];
        let update = wrapped(operators[operator], &path, &argument);
        if let Ok(update) = Update::parse(RawBsonRef::Document(&update), true) {
            if let Ok(Some(updated)) = update.apply(&document, NOW_MS) {
                prop_assert_ne!(&updated, &document);
                prop_assert_eq!(updated.get_i32("_id").unwrap(), 1);
            }
            let _ = update.upsert(&document, NOW_MS);
        }
    }

    /// An upsert without operators that do anything gives the query's fields back.
    #[test]
    fn an_upsert_starts_from_the_equalities(a in any_value(), b in any_value()) {
        let update = Update::parse(RawBsonRef::Document(&rawdoc! { "$set": {} }), false).unwrap();
        let mut query = rawdoc! { "_id": 1 };
        for (name, value) in [(bson::raw::cstr!("a"), &a), (bson::raw::cstr!("b"), &b)] {
            let mut equal = RawDocumentBuf::new();
            equal.append(bson::raw::cstr!("$eq"), value.as_raw_bson_ref());
            query.append(name, equal);
        }
        let mut expected = rawdoc! { "_id": 1 };
        expected.append(bson::raw::cstr!("a"), a.as_raw_bson_ref());
        expected.append(bson::raw::cstr!("b"), b.as_raw_bson_ref());
        prop_assert_eq!(update.upsert(&query, NOW_MS).unwrap(), expected);
    }
}

#[test]
fn several_lists_get_no_more_nulls_than_a_document_holds() {
    let document = rawdoc! { "_id": 1, "a": [], "b": [] };
    let update = parse(&json!({"$set": {"a.1400000": 1, "b.1400000": 1}})).unwrap();
    let error = update.apply(&document, NOW_MS).unwrap_err();
    assert_eq!(error.code, crate::Code::BSONObjectTooLarge);
    assert!(error.message.contains("nulls"), "{error}");
}
