use super::*;

/// Extended JSON as tests write it; panics at anything else.
pub(crate) fn from_json(text: &str) -> Value {
    fn read(json: &serde_json::Value) -> Value {
        match json {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(b) => Value::Bool(*b),
            serde_json::Value::Number(n) => match n.as_i64() {
                Some(i) => Value::Int(i),
                None => Value::Double(n.as_f64().unwrap()),
            },
            serde_json::Value::String(s) => Value::from(s.as_str()),
            serde_json::Value::Array(items) => Value::Array(items.iter().map(read).collect()),
            serde_json::Value::Object(members) => {
                if let Some(date) = members.get("$date") {
                    return Value::Date(Timestamp::parse(date.as_str().unwrap()).unwrap());
                }
                if let Some(number) = members.get("$numberDouble") {
                    return Value::Double(number.as_str().unwrap().parse().unwrap());
                }
                Value::Object(members.iter().map(|(name, member)| (name.into(), read(member))).collect())
            }
        }
    }
    read(&serde_json::from_str(text).unwrap())
}

fn through_storage(value: &Value) -> Value {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

#[test]
fn values_come_back_from_storage() {
    let value = from_json(
        r#"{"z": [1, 2.5, null, "x", {"$date": "1969-12-31T23:59:59.999999999Z"}], "a": {"b": {}, "c": []}, "t": true}"#,
    );
    let Value::Object(members) = through_storage(&value) else { panic!("an object") };
    // The order of members, too: filters are shown as given.
    assert_eq!(members.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["z", "a", "t"]);
    assert_eq!(Value::Object(members), value);
    let bytes = Value::Binary(vec![0, 255]);
    assert_eq!(through_storage(&bytes), bytes);
}

#[test]
fn damaged_storage_is_refused() {
    for text in [
        "[]",
        r#"[{"Array":1}]"#,
        r#"[{"Object":1},"Null"]"#,
        r#"[{"Object":1},{"String":"a"}]"#,
        r#"["Null","Null"]"#,
        r#"[{"Array":4000000000},"Null"]"#,
    ] {
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
    }
    let deep = format!("[{}\"Null\"]", r#"{"Array":1},"#.repeat(100_000));
    assert!(serde_json::from_str::<Value>(&deep).unwrap_err().to_string().contains("too deeply"));
}

#[test]
fn a_rule_set_comes_back_from_storage() {
    use crate::{Filter, RuleSet, RuleSpec};
    let mut rules = RuleSet::new(Some(5));
    let filter =
        Filter::parse_partial(&from_json(r#"{"$or": [{"m": {"$gt": 5.0}}, {"m.a": null}]}"#), Some("m")).unwrap();
    rules.create(vec![RuleSpec::new("r", 7, filter)]).unwrap();
    let again: RuleSet = serde_json::from_str(&serde_json::to_string(&rules).unwrap()).unwrap();
    assert_eq!(again, rules);
    assert_eq!(again.partial()[0].filter.to_string(), r#"{"$or":[{"m":{"$gt":5.0}},{"m.a":null}]}"#);
}

#[test]
fn numbers_compare_exactly_across_types() {
    let big = 9_007_199_254_740_993_i64; // 2^53 + 1, which no double is.
    assert!(Value::Int(big) > Value::Double(9_007_199_254_740_992.0));
    assert_ne!(Value::Int(big), Value::Double(9_007_199_254_740_992.0));
    assert!(Value::Int(i64::MAX) < Value::Double(9_223_372_036_854_775_808.0));
    assert_eq!(Value::Int(0), Value::Double(-0.0));
    assert_eq!(Value::Double(f64::NAN), Value::Double(f64::NAN));
    assert!(Value::Double(f64::NAN) < Value::Double(f64::NEG_INFINITY));
    assert_eq!(Value::Double(f64::NAN).compare_in_class(&Value::Int(1)), None);
    assert_eq!(Value::from("1").compare_in_class(&Value::Int(1)), None);
    assert!(!int_fits_double(big) && int_fits_double(big - 1));
    assert_eq!((exact_int(9.2e18), exact_int(9.3e18), exact_int(0.5)), (Some(9_200_000_000_000_000_000), None, None));
}

#[test]
fn normal_forms_sort_names_and_drop_nulls() {
    let a = from_json(r#"{"b": {"y": 1.0, "x": null}, "a": [null, {"d": 2, "c": 1}], "n": null}"#);
    let b = from_json(r#"{"a": [null, {"c": 1, "d": 2}], "b": {"y": 1}}"#);
    assert_eq!(a.normalized(), b.normalized());
    assert_ne!(from_json("[1, 2]").normalized(), from_json("[2, 1]").normalized());
    assert_eq!(from_json("[[[1]]]").depth(2), 2);
    assert_eq!(from_json(r#"{"a": {}}"#).depth(9), 2);
}

#[test]
fn a_member_of_a_document_holds_its_name_without_padding() {
    assert_eq!((size_of::<Timestamp>(), align_of::<Timestamp>()), (16, 8));
    assert_eq!((size_of::<Name>(), size_of::<Value>(), size_of::<(Name, Value)>()), (24, 32, 56));
}

#[test]
fn whole_numbers_that_a_parser_of_json_rounds_are_found() {
    for (json, found) in [
        ("{\"a\": 18446744073709551616, \"b\": [-1, 0.5, 9223372036854775807]}", None),
        ("[9223372036854775808, 18446744073709551615]", Some("18446744073709551615")),
        ("{\"a\":18446744073709551617}", Some("18446744073709551617")),
        ("{\"a\":-9223372036854775809}", Some("-9223372036854775809")),
        ("[-9223372036854775808, -0]", None),
        ("100000000000000000000", None),
        ("[100000000000000000001.0, 1e30, 123456789012345678901e0]", None),
        (r#"["18446744073709551617", "\" 18446744073709551617", "\\", 7]"#, None),
        (r#"["\\",18446744073709551617]"#, Some("18446744073709551617")),
        (r#"{"\"": "\\\"", "a": 18446744073709551617}"#, Some("18446744073709551617")),
        ("", None),
        ("\"", None),
    ] {
        assert_eq!(inexact_integer(json.as_bytes()), found, "{json}");
        if let Some(number) = found {
            assert!(may_be_rounded(number.parse().unwrap()), "{json}");
        }
    }
}
