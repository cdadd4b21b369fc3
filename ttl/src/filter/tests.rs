mod laws;

use super::*;
use crate::code::Code;
use crate::value::from_json as doc;

fn partial(text: &str) -> Result<Filter, Code> {
    Filter::parse_partial(&doc(text), Some("m")).map_err(|e| e.code)
}

fn query(text: &str) -> Filter {
    Filter::parse_query(&doc(text)).unwrap()
}

/// Which of the metas match, each written as JSON.
fn matching<'a>(filter: &str, metas: &[&'a str]) -> Vec<&'a str> {
    let filter = query(filter);
    metas.iter().copied().filter(|meta| filter.matches_meta(&doc(meta))).collect()
}

#[test]
fn all_allowed_operators_are_read() {
    for text in [
        r#"{"m": "a"}"#,
        r#"{"m": null}"#,
        r#"{"m": {"$eq": null}}"#,
        r#"{"m": {"a": 1}}"#,
        r#"{"m": {}}"#,
        r#"{"m": {"$gt": 1}}"#,
        r#"{"m": {"$gte": 1, "$lt": 5}}"#,
        r#"{"m": {"$lte": "x"}}"#,
        r#"{"m": {"$in": [1, null, {"a": 1}]}}"#,
        r#"{"m": {"$in": []}}"#,
        r#"{"m": {"$exists": true}}"#,
        r#"{"m": {"$exists": 1}}"#,
        r#"{"m": {"$type": "string"}}"#,
        r#"{"m": {"$type": ["number", 2, 9.0]}}"#,
        r#"{"$and": [{"m": 1}, {"m": 2}]}"#,
        r#"{"$or": [{"m.a.b": 1}, {"$and": [{"m": 2}]}]}"#,
    ] {
        partial(text).unwrap_or_else(|code| panic!("{text}: {code}"));
    }
}

#[test]
fn other_operators_are_refused_by_name() {
    for (text, operator) in [
        (r#"{"m": {"$ne": 1}}"#, "$ne"),
        (r#"{"m": {"$nin": [1]}}"#, "$nin"),
        (r#"{"m": {"$not": {"$gt": 1}}}"#, "$not"),
        (r#"{"m": {"$exists": false}}"#, "$exists: false"),
        (r#"{"m": {"$exists": 0}}"#, "$exists: false"),
        (r#"{"m": {"$regex": "a"}}"#, "$regex"),
        (r#"{"m": {"$mod": [2, 0]}}"#, "$mod"),
        (r#"{"m": {"$size": 1}}"#, "$size"),
        (r#"{"m": {"$elemMatch": {"$gt": 1}}}"#, "$elemMatch"),
        (r#"{"$nor": [{"m": 1}]}"#, "$nor"),
        (r#"{"$expr": {}}"#, "$expr"),
        (r#"{"$where": "1"}"#, "$where"),
        (r#"{"$or": [{"m": 1}, {"$and": [{"m": {"$ne": 1}}]}]}"#, "$ne"),
    ] {
        let error = Filter::parse_partial(&doc(text), Some("m")).unwrap_err();
        assert_eq!(error.code, Code::CannotCreateIndex, "{text}");
        assert!(error.message.contains(operator), "{text}: {}", error.message);
    }
}

#[test]
fn wrong_operands_have_their_codes() {
    for text in [
        r#"{"m": {"$in": 5}}"#,
        r#"{"$and": []}"#,
        r#"{"$or": []}"#,
        r#"{"$or": {"m": 1}}"#,
        r#"{"$and": [1]}"#,
        r#"{"m": {"$type": "real"}}"#,
        r#"{"m": {"$type": 77}}"#,
        r#"{"m": {"$type": []}}"#,
        r#"{"m": {"$gt": 1, "x": 2}}"#,
        r#"{"m": {"$exists": "yes"}}"#,
        r#"{"m": {"$in": [{"$gt": 5}]}}"#,
    ] {
        assert_eq!(partial(text), Err(Code::BadValue), "{text}");
    }
    for text in
        [r#"{"m": {"$gt": {}}}"#, r#"{"m": {"$gte": [1]}}"#, r#"{"m": {"$lt": null}}"#, r#"{"m": {"$lte": null}}"#]
    {
        assert_eq!(partial(text), Err(Code::CannotCreateIndex), "{text}");
    }
    for text in ["null", "5", "[]", r#""m""#] {
        assert_eq!(partial(text), Err(Code::TypeMismatch), "{text}");
    }
}

#[test]
fn fields_but_the_meta_and_emptiness_are_refused() {
    for text in [
        "{}",
        r#"{"v": 1}"#,
        r#"{"m": 1, "v": 1}"#,
        r#"{"mm": 1}"#,
        r#"{"v.m": 1}"#,
        r#"{"$or": [{"m": 1}, {"t": 1}]}"#,
        r#"{"$and": [{}]}"#,
        r#"{"$or": [{"m": 1}, {}]}"#,
        r#"{"m.": 1}"#,
        r#"{"": 1}"#,
    ] {
        assert_eq!(partial(text), Err(Code::InvalidOptions), "{text}");
    }
    assert_eq!(Filter::parse_partial(&doc(r#"{"m": 1}"#), None).unwrap_err().code, Code::InvalidOptions);
}

#[test]
fn operators_are_reported_before_operands_and_fields() {
    assert_eq!(partial(r#"{"v": {"$ne": 1}}"#), Err(Code::CannotCreateIndex));
    assert_eq!(partial(r#"{"v": 1, "m": {"$ne": 1}}"#), Err(Code::CannotCreateIndex));
    assert_eq!(partial(r#"{"$and": [{}, {"m": {"$nin": []}}]}"#), Err(Code::CannotCreateIndex));
    assert_eq!(partial(r#"{"m": {"$in": 5}, "$nor": []}"#), Err(Code::CannotCreateIndex));
    assert_eq!(partial(r#"{"v": 1, "m": {"$in": 5}}"#), Err(Code::BadValue));
    let first = Filter::parse_partial(&doc(r#"{"v": 1, "m": {"$ne": 1, "$nin": []}}"#), Some("m")).unwrap_err();
    assert!(first.message.contains("$ne"), "of equally grave faults the first");
    let none = Filter::parse_partial(&doc(r#"{"m": {"$ne": 1}}"#), None).unwrap_err();
    assert_eq!(none.code, Code::CannotCreateIndex);
}

#[test]
fn nesting_is_bounded() {
    let nest = |n: usize| {
        (0..n).fold(doc(r#"{"m": 1}"#), |inner, _| Value::Object(vec![("$and".into(), Value::Array(vec![inner]))]))
    };
    assert!(Filter::parse_partial(&nest(49), Some("m")).is_ok());
    assert_eq!(Filter::parse_partial(&nest(50), Some("m")).unwrap_err().code, Code::BadValue);
    assert_eq!(Filter::parse_query(&nest(5_000)).unwrap_err().code, Code::BadValue);
}

#[test]
fn queries_take_negations_and_name_what_they_do_not_know() {
    let metas = ["1", "2", "null", "[1, 2]", "\"x\""];
    assert_eq!(matching(r#"{"m": {"$ne": 1}}"#, &metas), ["2", "null", "\"x\""]);
    assert_eq!(matching(r#"{"m": {"$nin": [1, null]}}"#, &metas), ["2", "\"x\""]);
    assert_eq!(matching(r#"{"m": {"$not": {"$gt": 1}}}"#, &metas), ["1", "null", "\"x\""]);
    assert_eq!(matching(r#"{"$nor": [{"m": 1}, {"m": "x"}]}"#, &metas), ["2", "null"]);
    assert_eq!(matching(r#"{"m": {"$exists": false}}"#, &metas), ["null"]);
    assert_eq!(matching("{}", &metas), metas);
    assert_eq!(matching(r#"{"$and": [{}]}"#, &metas), metas);
    let error = Filter::parse_query(&doc(r#"{"m": {"$regex": "a"}}"#)).unwrap_err();
    assert_eq!(error.code, Code::BadValue);
    assert!(error.message.contains("$regex"));
    for text in [r#"{"m": {"$not": 5}}"#, r#"{"m": {"$not": {}}}"#, r#"{"m": {"$gt": null}}"#, r#"{"$nor": []}"#] {
        assert_eq!(Filter::parse_query(&doc(text)).unwrap_err().code, Code::BadValue, "{text}");
    }
    assert_eq!(Filter::parse_query(&Value::Null).unwrap_err().code, Code::TypeMismatch);
}

#[test]
fn comparisons_hold_within_a_class() {
    let metas = ["5", "6", "5.5", "\"x\"", "true", "null", "{}", "[4, 9]", r#"{"$date": "2024-01-01T00:00:00Z"}"#];
    assert_eq!(matching(r#"{"m": {"$gt": 5}}"#, &metas), ["6", "5.5", "[4, 9]"]);
    assert_eq!(matching(r#"{"m": {"$gte": 5}}"#, &metas), ["5", "6", "5.5", "[4, 9]"]);
    assert_eq!(matching(r#"{"m": {"$lt": 5}}"#, &metas), ["[4, 9]"]);
    assert_eq!(matching(r#"{"m": {"$lte": 5}}"#, &metas), ["5", "[4, 9]"]);
    assert_eq!(matching(r#"{"m": {"$gt": ""}}"#, &metas), ["\"x\""]);
    assert_eq!(matching(r#"{"m": {"$gt": false}}"#, &metas), ["true"]);
    assert_eq!(
        matching(r#"{"m": {"$gt": {"$date": "2023-12-31T23:59:59.999Z"}}}"#, &metas),
        [r#"{"$date": "2024-01-01T00:00:00Z"}"#]
    );
    assert!(matching(r#"{"m": {"$gt": {"$date": "2024-01-01T00:00:00Z"}}}"#, &metas).is_empty());
}

#[test]
fn null_is_missing_and_exists_is_neither() {
    let metas = ["null", "1", "{}", r#"{"a": null}"#, r#"{"a": 1}"#, "[]", "[null]", r#"[{"a": 1}, {}]"#];
    assert_eq!(matching(r#"{"m": null}"#, &metas), ["null", "[null]"]);
    assert_eq!(matching(r#"{"m": {"$exists": true}}"#, &metas), metas[1..]);
    assert_eq!(
        matching(r#"{"m.a": null}"#, &metas),
        ["null", "1", "{}", r#"{"a": null}"#, "[]", "[null]", r#"[{"a": 1}, {}]"#]
    );
    assert_eq!(matching(r#"{"m.a": {"$exists": true}}"#, &metas), [r#"{"a": 1}"#, r#"[{"a": 1}, {}]"#]);
    assert_eq!(matching(r#"{"m.a": {"$in": [7, null]}}"#, &metas).len(), 7);
}

#[test]
fn lists_match_as_a_whole_or_by_an_element() {
    let metas = ["[1, 5]", "[5, 1]", "[[1, 5]]", "5", "[]"];
    assert_eq!(matching(r#"{"m": [1, 5]}"#, &metas), ["[1, 5]", "[[1, 5]]"]);
    assert_eq!(matching(r#"{"m": 5}"#, &metas), ["[1, 5]", "[5, 1]", "5"]);
    assert_eq!(matching(r#"{"m": {"$in": [[], [5.0, 1]]}}"#, &metas), ["[5, 1]", "[]"]);
    // One element is above 4, another below 2.
    assert_eq!(matching(r#"{"m": {"$gt": 4, "$lt": 2}}"#, &metas), ["[1, 5]", "[5, 1]"]);
    assert_eq!(matching(r#"{"m": {"$type": "array"}}"#, &metas), ["[1, 5]", "[5, 1]", "[[1, 5]]", "[]"]);
    assert_eq!(matching(r#"{"m": {"$type": "number"}}"#, &metas), ["[1, 5]", "[5, 1]", "5"]);
}

#[test]
fn numbers_in_paths_are_elements_of_lists_and_names_of_members() {
    let metas = [
        r#"{"l": [2, 1]}"#,
        r#"{"l": [7]}"#,
        r#"{"l": {"0": 2}}"#,
        r#"{"l": [{"0": 2}]}"#,
        r#"{"l": [[2, 3]]}"#,
        r#"{"l": []}"#,
        r#"{"l": 2}"#,
    ];
    assert_eq!(matching(r#"{"m.l.0": 2}"#, &metas), [metas[0], metas[2], metas[3]]);
    assert_eq!(matching(r#"{"m.l.0": {"$ne": 2}}"#, &metas), [metas[1], metas[4], metas[5], metas[6]]);
    assert_eq!(matching(r#"{"m.l.0": {"$gt": 1}}"#, &metas), metas[..4]);
    assert_eq!(matching(r#"{"m.l.0": {"$exists": false}}"#, &metas), metas[5..]);
    assert_eq!(matching(r#"{"m.l.1": {"$exists": true}}"#, &metas), metas[..1]);
    // An element that is named by its number is one value, also if it is a list.
    assert_eq!(matching(r#"{"m.l.0": [2, 3]}"#, &metas), metas[4..5]);
    assert_eq!(matching(r#"{"m.l.0.1": 3}"#, &metas), metas[4..5]);
    assert_eq!(matching(r#"{"m.l.00": {"$exists": true}}"#, &metas), [""; 0]);
    assert_eq!(matching(r#"{"m.0": {"$gte": 2}}"#, &["[1, 2]", "[2, 1]"]), ["[2, 1]"]);
    let objects = [r#"[{"x": 5}, {"x": 6}]"#, r#"[{"x": 6}, {"x": 5}]"#];
    assert_eq!(matching(r#"{"m.0.x": 5}"#, &objects), objects[..1]);
    assert!(partial(r#"{"m.tags.0": "x"}"#).unwrap().matches_meta(&doc(r#"{"tags": ["x", "y"]}"#)));
    // The place of an element says nothing about where its value is looked for.
    assert!(query(r#"{"m.l.0": 2}"#).candidates("m").is_empty());
}

#[test]
fn types_are_classes() {
    let metas = ["1", "1.5", "\"x\"", "true", "{}", "null", r#"{"$date": "2024-01-01T00:00:00Z"}"#];
    for number in ["\"number\"", "\"int\"", "\"long\"", "\"double\"", "\"decimal\"", "1", "16", "18", "19"] {
        assert_eq!(matching(&format!(r#"{{"m": {{"$type": {number}}}}}"#), &metas), ["1", "1.5"], "{number}");
    }
    assert_eq!(matching(r#"{"m": {"$type": ["bool", 3]}}"#, &metas), ["true", "{}"]);
    assert_eq!(matching(r#"{"m": {"$type": 9}}"#, &metas).len(), 1);
    assert_eq!(matching(r#"{"m": {"$type": "string"}}"#, &metas), ["\"x\""]);
    assert!(Filter::of_type("m", &[TypeClass::Binary]).matches_meta(&Value::Binary(vec![1])));
}

#[test]
fn whole_objects_are_compared_normalised() {
    let metas = [r#"{"a": 1, "b": 2}"#, r#"{"b": 2.0, "a": 1, "c": null}"#, r#"{"a": 1}"#];
    assert_eq!(matching(r#"{"m": {"b": 2, "a": 1}}"#, &metas), metas[..2]);
    assert_eq!(matching(r#"{"m": {"$in": [{"b": 2, "a": 1, "z": null}]}}"#, &metas), metas[..2]);
    assert_eq!(matching(r#"{"m": {"$eq": {"a": 1}}}"#, &metas), metas[2..]);
}

#[test]
fn equal_normal_forms_are_one_identity() {
    let same = [
        (r#"{"m": 5}"#, r#"{"m": {"$eq": 5.0}}"#),
        (r#"{"m": {"a": 1, "b": null}}"#, r#"{"m": {"$eq": {"a": 1.0}}}"#),
        (r#"{"m.a": 1, "m.b": 2}"#, r#"{"$and": [{"m.b": 2}, {"m.a": 1}]}"#),
        (r#"{"m": {"$gt": 1, "$lt": 5}}"#, r#"{"$and": [{"m": {"$lt": 5}}, {"m": {"$gt": 1}}]}"#),
        (r#"{"m": {"$in": [1, 2, 1.0]}}"#, r#"{"m": {"$in": [2, 1]}}"#),
        (r#"{"$or": [{"m": 1}, {"m": 2}, {"m": 1}]}"#, r#"{"$or": [{"m": 2}, {"m": 1}]}"#),
        (r#"{"$or": [{"m": 1}]}"#, r#"{"m": 1}"#),
        (r#"{"$or": [{"m": 1}, {"m": 1}]}"#, r#"{"$and": [{"m": 1}]}"#),
        (r#"{"$and": [{"m": 1}, {"$and": [{"m": 2}, {"m": 3}]}]}"#, r#"{"$and": [{"m": 3}, {"m": 2}, {"m": 1}]}"#),
        (r#"{"$or": [{"m": 1}, {"$or": [{"m": 2}, {"m": 3}]}]}"#, r#"{"$or": [{"m": 3}, {"m": 2}, {"m": 1}]}"#),
        (r#"{"m": {"$type": "int"}}"#, r#"{"m": {"$type": "number"}}"#),
    ];
    for (a, b) in same {
        assert_eq!(partial(a).unwrap(), partial(b).unwrap(), "{a} and {b}");
    }
    let different = [
        (r#"{"m": 5}"#, r#"{"m": "5"}"#),
        (r#"{"m": {"$gt": 5}}"#, r#"{"m": {"$gte": 5}}"#),
        (r#"{"m": [1, 2]}"#, r#"{"m": [2, 1]}"#),
        (r#"{"m.a": 1}"#, r#"{"m": {"a": 1}}"#),
        (r#"{"$and": [{"m": 1}, {"m": 2}]}"#, r#"{"$or": [{"m": 1}, {"m": 2}]}"#),
    ];
    for (a, b) in different {
        assert_ne!(partial(a).unwrap(), partial(b).unwrap(), "{a} and {b}");
    }
}

#[test]
fn the_source_is_kept_and_the_normal_form_is_written() {
    let text = r#"{"$and":[{"m":{"$lt":5.0}},{"m":{"$gt":1}}]}"#;
    let filter = partial(text).unwrap();
    assert_eq!(filter.to_string(), text);
    assert_eq!(filter.source(), &doc(text));
    assert_eq!(filter.normalized().to_string(), r#"{"m":{"$gt":1,"$lt":5}}"#);
    let shown = [
        (r#"{"m":"a\"b"}"#, r#"{"m":"a\"b"}"#),
        (r#"{"m":{"$type":["int","string"]}}"#, r#"{"m":{"$type":["number","string"]}}"#),
        (r#"{"$or":[{"m":2},{"m":1}]}"#, r#"{"$or":[{"m":1},{"m":2}]}"#),
        (r#"{"$and":[{"m":2},{"m":1}]}"#, r#"{"$and":[{"m":1},{"m":2}]}"#),
        (r#"{"m":{"$gt":{"$date":"2024-01-01T00:00:00Z"}}}"#, r#"{"m":{"$gt":{"$date":"2024-01-01T00:00:00Z"}}}"#),
        (r#"{"m":{"$exists":1}}"#, r#"{"m":{"$exists":true}}"#),
    ];
    for (given, normal) in shown {
        assert_eq!(partial(given).unwrap().normalized().to_string(), normal);
    }
    let bytes = Filter::eq("m", Value::Binary(b"light w".to_vec()));
    assert_eq!(bytes.to_string(), r#"{"m":{"$binary":{"base64":"bGlnaHQgdw==","subType":"00"}}}"#);
}

#[test]
fn documents_match_field_by_field() {
    let filter = query(r#"{"m.site": "a", "v": {"$gt": 1}, "t": {"$lt": {"$date": "2024-01-01T00:00:00Z"}}}"#);
    let document = doc(r#"{"m": {"site": "a"}, "v": 2, "t": {"$date": "2023-01-01T00:00:00Z"}}"#);
    assert!(filter.matches_document(&document));
    assert!(filter.matches(&|name| document.get(name).map_or(Cow::Owned(Value::Null), Cow::Borrowed)));
    assert!(!filter.matches_document(&doc(r#"{"m": {"site": "a"}, "v": 2}"#)));
    assert_eq!(filter.fields().into_iter().collect::<Vec<_>>(), ["m", "t", "v"]);
    assert!(filter.paths().contains("m.site"));
    assert!(!filter.is_meta_only("m"));
    assert_eq!(filter.meta_part("m"), query(r#"{"m.site": "a"}"#));
    assert!(filter.meta_part("x").is_everything());
    assert_eq!(filter.conjuncts().len(), 3);
    assert_eq!(filter.candidates("m"), [(vec!["site".to_owned()], vec![Value::from("a")])]);
    let one_of = query(r#"{"m": {"$in": [2, 1, "x"]}, "m.a": {"$in": [1, null]}, "v": {"$gt": 1}}"#);
    assert_eq!(one_of.candidates("m"), [(Vec::new(), vec![Value::Int(1), Value::Int(2), Value::from("x")])]);
    assert!(filter.candidates("v").is_empty() && query(r#"{"$or": [{"m": 1}, {"m": 2}]}"#).candidates("m").is_empty());
    assert!(!filter.is_of_time_and_meta("t", Some("m")));
    let other = query(r#"{"m.site": "a", "t": {"$lt": {"$date": "2024-01-01T00:00:00Z"}}}"#);
    assert!(other.is_of_time_and_meta("t", Some("m")) && !other.is_of_time_and_meta("t", None));
    assert!(Filter::everything().is_of_time_and_meta("t", None));
}

#[test]
fn time_bounds_are_conservative() {
    let at = |ms: i64| Timestamp::from_millis(ms);
    let bounds = |filter: &Filter| filter.time_bounds("t");
    let date = |ms: i64| Value::Date(at(ms));
    let gte = |ms| Filter::compare("t", Comparison::Gte, date(ms));
    let lt = |ms| Filter::compare("t", Comparison::Lt, date(ms));
    assert_eq!(bounds(&gte(5)), (Some(at(5)), None));
    assert_eq!(bounds(&lt(5)), (None, Some(Timestamp::from_nanos(at(5).nanos() - 1))));
    assert_eq!(
        bounds(&Filter::compare("t", Comparison::Gt, date(5))),
        (Some(Timestamp::from_nanos(at(5).nanos() + 1)), None)
    );
    assert_eq!(bounds(&Filter::compare("t", Comparison::Lte, date(5))), (None, Some(at(5))));
    let both = Filter::and(vec![gte(1), gte(3), lt(9), Filter::exists("v")]);
    assert_eq!(bounds(&both), (Some(at(3)), Some(Timestamp::from_nanos(at(9).nanos() - 1))));
    assert_eq!(bounds(&Filter::eq("t", date(7))), (Some(at(7)), Some(at(7))));
    assert_eq!(bounds(&Filter::is_in("t", vec![date(7), date(2)])), (Some(at(2)), Some(at(7))));
    assert_eq!(bounds(&Filter::is_in("t", vec![date(7), Value::Null])), (None, None));
    assert_eq!(bounds(&Filter::or(vec![gte(1), gte(3)])), (Some(at(1)), None));
    assert_eq!(bounds(&Filter::or(vec![gte(1), Filter::exists("v")])), (None, None));
    assert_eq!(bounds(&Filter::negate(gte(1))), (None, None));
    assert_eq!(bounds(&Filter::eq("t.x", date(7))), (None, None));
}
