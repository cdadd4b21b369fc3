use super::*;
use crate::arbitrary::{any_document, any_value, doc, name};
use crate::paths::index_keys;
use crate::{Code, value_key};
use bson::raw::RawBsonRef;
use proptest::prelude::*;
use serde_json::{Value, json};

fn parse(filter: &Value, purpose: Purpose) -> Result<Filter> {
    Filter::parse(&doc(filter.clone()), purpose)
}

fn find(filter: Value) -> Filter {
    parse(&filter, Purpose::Find).unwrap()
}

fn cases(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

/// Checks a case that is refused; false for one that is not.
fn is_refused(case: &Value, purpose: Purpose) -> bool {
    let Some(code) = case.get("error") else { return false };
    let error = parse(&case["filter"], purpose).expect_err(&case["filter"].to_string());
    assert_eq!(error.code.name(), code, "{}: {error}", case["filter"]);
    assert!(error.message.contains(case["contains"].as_str().unwrap()), "{}: {error}", case["filter"]);
    true
}

/// The cases were compared with MongoDB 6.0.5; where `elsewhere` stands, it does something else.
#[test]
fn filters_match_as_in_mongodb() {
    for case in cases(include_str!("../../tests/filters.json")) {
        if is_refused(&case, Purpose::Find) {
            continue;
        }
        let filter = find(case["filter"].clone());
        for (list, expected) in [("matches", true), ("others", false)] {
            for document in case[list].as_array().unwrap() {
                assert_eq!(filter.matches(&doc(document.clone())), expected, "{filter} of {document}");
            }
        }
    }
}

#[test]
fn partial_filters() {
    for case in cases(include_str!("../../tests/partial_filters.json")) {
        if !is_refused(&case, Purpose::Partial) {
            parse(&case["filter"], Purpose::Partial).unwrap();
        }
    }
}

#[test]
fn a_filter_is_kept_as_it_is_written() {
    let written = json!({"b": {"$numberInt": "1"}, "a": {"$in": [2, 1]}});
    let filter = find(written.clone());
    assert_eq!(filter.as_document(), &*doc(written.clone()));
    assert_eq!(filter, find(written));
    assert_ne!(filter, find(json!({"b": 1, "a": {"$in": [2, 1]}})));
    assert_ne!(filter, find(json!({"a": {"$in": [2, 1]}, "b": {"$numberInt": "1"}})));
    assert!(find(json!({})).is_everything() && Filter::everything() == find(json!({})));
    assert!(!find(json!({"a": 1})).is_everything());
}

#[test]
fn a_filter_that_is_too_deep_is_refused() {
    let mut filter = json!({"a": 1});
    for _ in 0..49 {
        filter = json!({ "$and": [filter] });
    }
    assert!(parse(&filter, Purpose::Find).is_ok());
    let deep = doc(filter);
    let mut deeper = RawDocumentBuf::new();
    for _ in 0..2 {
        deeper = RawDocumentBuf::new();
        deeper.append(bson::raw::cstr!("a"), deep.clone());
    }
    let mut bottomless = RawDocumentBuf::new();
    for _ in 0..10_000 {
        let mut outer = RawDocumentBuf::new();
        outer.append(bson::raw::cstr!("a"), bottomless);
        bottomless = outer;
    }
    for filter in [deeper, bottomless] {
        let mut outer = RawDocumentBuf::new();
        outer.append(bson::raw::cstr!("a"), filter);
        let error = Filter::parse(&outer, Purpose::Find).unwrap_err();
        assert_eq!(error.code, Code::BadValue);
        assert!(error.message.contains("100 levels"), "{error}");
    }
}

#[test]
fn ids_that_a_filter_names() {
    let keys = |values: &[Value]| {
        let mut keys: Vec<_> =
            values.iter().map(|v| value_key(crate::arbitrary::value(v.clone()).as_raw_bson_ref())).collect();
        keys.sort();
        Some(keys)
    };
    let cases = [
        (json!({"_id": 5}), keys(&[json!(5)])),
        (json!({"_id": {"$eq": "x"}, "a": 1}), keys(&[json!("x")])),
        (json!({"_id": {"$in": [3, 1, 1.0, "x"]}}), keys(&[json!(1), json!(3), json!("x")])),
        (json!({"$and": [{"a": 1}, {"_id": {"a": 1}}]}), keys(&[json!({"a": 1})])),
        (json!({"$or": [{"_id": 1}, {"_id": 2}]}), keys(&[json!(1), json!(2)])),
        (json!({"_id": {"$in": [1, 2, 3], "$eq": 2}}), keys(&[json!(2)])),
        (json!({"_id": {"$in": [1, 2], "$gt": 1}}), keys(&[json!(1), json!(2)])),
        (json!({"_id": null}), keys(&[json!(null)])),
        (json!({"_id": [1]}), keys(&[])),
        (json!({"_id": {"$in": []}}), keys(&[])),
        (json!({"_id": {"$all": []}}), keys(&[])),
        (json!({"_id": {"$in": [{"$regularExpression": {"pattern": "a", "options": ""}}]}}), None),
        (json!({"_id": {"$gt": 1}}), None),
        (json!({"_id": {"$ne": 1}}), None),
        (json!({"_id.a": 1}), None),
        (json!({"$or": [{"_id": 1}, {"a": 2}]}), None),
        (json!({"$nor": [{"_id": 1}]}), None),
        (json!({}), None),
    ];
    for (filter, expected) in cases {
        assert_eq!(find(filter.clone()).id_keys(), expected, "{filter}");
    }
}

#[test]
fn intervals_of_filters() {
    let wide = |filter: Value, multiplicity| find(filter).intervals(&Path::new("a"), multiplicity);
    let probe = |intervals: &[Interval], value: Value| {
        let key = value_key(crate::arbitrary::value(value).as_raw_bson_ref());
        intervals.iter().any(|interval| interval.contains(&key))
    };
    // The filter, what lies in its intervals, and what does not.
    let cases = [
        (json!({"a": 5}), json!([5]), json!([4, 6, "5", null])),
        (json!({"a": {"$gt": 5}}), json!([6, 1e300]), json!([5, 4, "x", true, {"$numberDouble": "NaN"}])),
        (
            json!({"a": {"$lt": 5}}),
            json!([4, {"$numberDouble": "-Infinity"}]),
            json!([5, {"$numberDouble": "NaN"}, null]),
        ),
        (json!({"a": {"$gte": 5, "$lte": 7}}), json!([5, 6, 7]), json!([4, 8])),
        (json!({"a": {"$gte": "b"}}), json!(["b", "ba", "z"]), json!(["a", 5, {}])),
        (json!({"a": {"$in": [1, "x", null]}}), json!([1, "x", null, {"$undefined": true}]), json!([2, "y"])),
        (json!({"a": [5, 6]}), json!([5, [5, 6]]), json!([6, [5]])),
        (json!({"a": []}), json!([{"$undefined": true}, []]), json!([1, [1]])),
        (json!({"$or": [{"a": 1}, {"a": {"$gt": 5}}]}), json!([1, 6]), json!([2, 5])),
        (json!({"a": {"$regex": "^ab*"}}), json!(["a", "ax"]), json!(["b", 1])),
        (json!({"a": {"$regex": "^ab+"}}), json!(["ab", "abc"]), json!(["a", "ac", "b"])),
        (json!({"a": {"$mod": [2, 0]}}), json!([2, 3]), json!(["x"])),
        (json!({"a": {"$elemMatch": {"$gt": 5, "$lt": 9}}}), json!([6, 8]), json!([5, 9])),
        (json!({"a": {"$gt": null}}), json!([]), json!([null, 1])),
        (json!({"a": {"$gt": {"$numberDouble": "NaN"}}}), json!([]), json!([1])),
        (json!({"a": {"$all": [1, 2]}}), json!([]), json!([3])),
    ];
    for (filter, inside, outside) in cases {
        let intervals = wide(filter.clone(), Multiplicity::One).unwrap();
        assert!(intervals.is_sorted());
        for value in inside.as_array().unwrap() {
            assert!(probe(&intervals, value.clone()), "{filter} has {value}");
        }
        for value in outside.as_array().unwrap() {
            assert!(!probe(&intervals, value.clone()), "{filter} has no {value}");
        }
    }
    let without = [
        json!({}),
        json!({"b": 1}),
        json!({"a.b": 1}),
        json!({"a": {"$ne": 1}}),
        json!({"a": {"$exists": true}}),
        json!({"a": {"$gt": {"$minKey": 1}}}),
        json!({"a": {"$gt": [1]}}),
        json!({"a": {"$regex": "a"}}),
        json!({"a": {"$regex": "^a|b"}}),
        json!({"a": {"$regex": "^a", "$options": "i"}}),
        json!({"$or": [{"a": 1}, {"b": 1}]}),
        json!({"$nor": [{"a": 1}]}),
    ];
    for filter in without {
        assert_eq!(wide(filter.clone(), Multiplicity::One), None, "{filter}");
    }
    // Where lists are, one condition alone narrows; a few values rather than a range.
    let both = wide(json!({"a": {"$gt": 5, "$lt": 3}}), Multiplicity::Many).unwrap();
    assert!(probe(&both, json!(9)) || probe(&both, json!(1)));
    assert_eq!(wide(json!({"a": {"$gt": 5, "$lt": 3}}), Multiplicity::One), Some(Vec::new()));
    let few = wide(json!({"a": {"$gt": 5, "$in": [7, 8]}}), Multiplicity::Many).unwrap();
    assert!(few.len() == 2 && few.iter().all(Interval::is_point));
}

#[test]
fn an_interval_also_holds_what_begins_with_its_keys() {
    let key = value_key(RawBsonRef::Int32(5));
    let point = Interval::point(key.clone());
    let longer = [key.as_slice(), &[0xFF, 0xFF]].concat();
    assert!(point.is_point() && point.contains(&key) && point.contains(&longer));
    assert!(point.overlaps(&key, &longer) && point.overlaps(&longer, &longer));
    let next = value_key(RawBsonRef::Int32(6));
    assert!(!point.contains(&next) && !point.overlaps(&next, &next));
}

/// Conditions that often hold for documents of [`any_document`].
fn condition() -> impl Strategy<Value = Value> {
    let leaf = (any_value(), prop::sample::select(vec!["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]))
        .prop_map(|(value, operator)| json!({ operator: crate::json::to_canonical_value(value.as_raw_bson_ref()) }));
    let values = prop::collection::vec(any_value(), 0..3);
    let list = (values, prop::sample::select(vec!["$in", "$nin", "$all"])).prop_map(|(values, operator)| {
        let values: Vec<_> = values.iter().map(|v| crate::json::to_canonical_value(v.as_raw_bson_ref())).collect();
        json!({ operator: values })
    });
    let other = prop::sample::select(vec![
        json!({"$exists": true}),
        json!({"$exists": false}),
        json!({"$size": 1}),
        json!({"$type": "number"}),
        json!({"$type": ["array", "string"]}),
        json!({"$mod": [2, 0]}),
        json!({"$regex": "^a"}),
        json!({"$gt": {"$minKey": 1}}),
    ]);
    prop_oneof![4 => leaf, 1 => list, 1 => other].prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| json!({ "$not": inner })),
            inner.clone().prop_map(|inner| json!({ "$elemMatch": inner })),
            (name(), inner).prop_map(|(name, inner)| json!({"$elemMatch": { name: inner }})),
        ]
    })
}

fn any_filter() -> impl Strategy<Value = Value> {
    let path = prop::collection::vec(name(), 1..3).prop_map(|names| names.join("."));
    let field = (path, condition()).prop_map(|(path, condition)| json!({ path: condition }));
    field.prop_recursive(2, 6, 3, |inner| {
        (prop::collection::vec(inner, 1..3), prop::sample::select(vec!["$and", "$or", "$nor"]))
            .prop_map(|(clauses, operator)| json!({ operator: clauses }))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// The law that indexes stand on.
    #[test]
    fn a_matching_document_has_a_key_in_the_intervals(
        filter in any_filter(),
        document in any_document(),
        names in prop::collection::vec(name(), 1..3),
    ) {
        if let Ok(filter) = parse(&filter, Purpose::Find)
            && filter.matches(&document)
        {
            let path = Path::new(&names.join("."));
            let keys: Vec<_> = index_keys(&document, &path).into_iter().map(value_key).collect();
            let multiplicity = if keys.len() == 1 { Multiplicity::One } else { Multiplicity::Many };
            if let Some(intervals) = filter.intervals(&path, multiplicity) {
                prop_assert!(keys.iter().any(|key| intervals.iter().any(|interval| interval.contains(key))));
            }
        }
    }

    /// The same, with a document that has the filter's own value somewhere, so that it matches more often.
    #[test]
    fn equality_finds_its_own_value(value in any_value(), document in any_document(), wrap in 0..4) {
        let json = crate::json::to_canonical_value(value.as_raw_bson_ref());
        let mut around = crate::json::to_canonical(&document);
        around["a"] = match wrap {
            0 => json.clone(),
            1 => json!([1, json]),
            2 => json!({ "b": json }),
            _ => json!([{ "b": [json] }, {}]),
        };
        let path = if wrap < 2 { "a" } else { "a.b" };
        let Ok(filter) = parse(&json!({ path: {"$eq": json} }), Purpose::Find) else { return Ok(()) };
        let around = doc(around);
        prop_assert!(filter.matches(&around));
        let keys: Vec<_> = index_keys(&around, &Path::new(path)).into_iter().map(value_key).collect();
        if let Some(intervals) = filter.intervals(&Path::new(path), Multiplicity::Many) {
            prop_assert!(keys.iter().any(|key| intervals.iter().any(|interval| interval.contains(key))));
        }
    }

    #[test]
    fn a_document_with_a_named_id_is_found_by_its_key(id in any_value(), filter in any_filter()) {
        let json = crate::json::to_canonical_value(id.as_raw_bson_ref());
        let Ok(key) = crate::id_key(id.as_raw_bson_ref()) else { return Ok(()) };
        let document = doc(json!({"_id": json.clone(), "a": 1}));
        for filter in [json!({"$or": [filter.clone(), {"_id": json.clone()}]}), json!({"$and": [{"_id": {"$in": [json, 5]}}, filter]})] {
            if let Ok(filter) = parse(&filter, Purpose::Find)
                && filter.matches(&document)
                && let Some(keys) = filter.id_keys()
            {
                prop_assert!(keys.contains(&key));
            }
        }
    }
}
