use super::*;
use ebbtide_ttl::Timestamp;
use serde_json::json;
use std::time::{Duration, UNIX_EPOCH};

fn date(text: &str) -> Value {
    Value::Date(Timestamp::parse(text).unwrap())
}

/// Why it is refused, whichever way it is read.
fn code(json: &Json) -> Code {
    let error = value_of(json).unwrap_err();
    let from_text = from_slice(json.to_string().as_bytes()).unwrap_err().to_string();
    assert!(from_text.starts_with(&error.to_string()), "{from_text} / {error}");
    assert!(from_text.contains(" at line 1 column "), "{from_text}");
    error.code()
}

#[test]
fn numbers_are_ints_without_a_fraction_and_doubles_with_one() {
    let read = |text: &str| {
        let value = value_of(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(from_slice(text.as_bytes()).unwrap(), value, "{text}");
        value
    };
    assert!(matches!(read("1"), Value::Int(1)));
    assert!(matches!(read("1.0"), Value::Double(d) if d == 1.0));
    assert!(matches!(read("1e3"), Value::Double(d) if d == 1000.0));
    assert!(matches!(read("-9223372036854775808"), Value::Int(i64::MIN)));
    // Beyond int64 a double is taken that loses nothing.
    assert!(matches!(read("9223372036854775808"), Value::Double(d) if d == 9_223_372_036_854_775_808.0));
    assert_eq!(code(&json!(9_223_372_036_854_775_809_u64)), Code::BadValue);
    assert_eq!(code(&json!(u64::MAX)), Code::BadValue);
    // Beyond 64 bits too, in a text.
    assert!(matches!(read("18446744073709551616"), Value::Double(d) if d == 18_446_744_073_709_551_616.0));
    assert!(matches!(read("18446744073709551617.0"), Value::Double(d) if d == 18_446_744_073_709_551_616.0));
    for number in ["18446744073709551617", "-9223372036854775809", "123456789012345678901234567890"] {
        let text = format!(r#"{{"s": "18446744073709551617", "l": [1e30, {number}]}}"#);
        let error = from_slice(text.as_bytes()).unwrap_err();
        assert!(error.code() == Code::BadValue && error.to_string().contains(&format!("number {number}")), "{error}");
    }
}

#[test]
fn canonical_numbers_are_read() {
    assert!(matches!(value_of(&json!({"$numberInt": "-5"})).unwrap(), Value::Int(-5)));
    assert!(matches!(value_of(&json!({"$numberLong": "9223372036854775807"})).unwrap(), Value::Int(i64::MAX)));
    assert!(matches!(value_of(&json!({"$numberDouble": "1"})).unwrap(), Value::Double(d) if d == 1.0));
    assert!(matches!(value_of(&json!({"$numberDouble": "NaN"})).unwrap(), Value::Double(d) if d.is_nan()));
    assert!(matches!(value_of(&json!({"$numberDouble": "-Infinity"})).unwrap(), Value::Double(f64::NEG_INFINITY)));
    for wrong in [
        json!({"$numberInt": "2147483648"}),
        json!({"$numberInt": 5}),
        json!({"$numberLong": "1.5"}),
        json!({"$numberDouble": "inf"}),
        json!({"$numberDouble": ""}),
        json!({"$numberLong": "1", "x": 1}),
    ] {
        assert_eq!(code(&wrong), Code::BadValue, "{wrong}");
    }
}

#[test]
fn a_decimal_is_taken_only_if_a_double_holds_its_digits() {
    for (text, wanted) in [("1.50", 1.5), ("0.1", 0.1), ("-2.5E+3", -2500.0), ("0.000", 0.0), ("100", 100.0)] {
        let read = value_of(&json!({"$numberDecimal": text})).unwrap();
        assert!(matches!(read, Value::Double(d) if d == wanted), "{text}: {read:?}");
    }
    assert_eq!(code(&json!({"$numberDecimal": "0.12345678901234567890"})), Code::BadValue);
    assert_eq!(code(&json!({"$numberDecimal": "9007199254740993"})), Code::BadValue);
}

#[test]
fn dates_are_read_in_every_form() {
    let epoch = date("1970-01-01T00:00:00Z");
    for form in [
        json!({"$date": "1970-01-01T00:00:00Z"}),
        json!({"$date": "1970-01-01T01:00:00+01:00"}),
        json!({"$date": 0}),
        json!({"$date": 0.0}),
        json!({"$date": {"$numberLong": "0"}}),
    ] {
        assert_eq!(value_of(&form).unwrap(), epoch, "{form}");
    }
    for wrong in [json!({"$date": "soon"}), json!({"$date": 1.5}), json!({"$date": null}), json!({"$date": {}})] {
        assert_eq!(code(&wrong), Code::BadValue, "{wrong}");
    }
}

#[test]
fn dates_are_written_so_that_nothing_is_lost() {
    for (text, wanted) in [
        ("2024-02-29T12:00:00Z", json!({"$date": "2024-02-29T12:00:00Z"})),
        ("2024-02-29T12:00:00.5Z", json!({"$date": "2024-02-29T12:00:00.500Z"})),
        ("2024-02-29T12:00:00.000000001Z", json!({"$date": "2024-02-29T12:00:00.000000001Z"})),
        ("1969-12-31T23:59:59Z", json!({"$date": {"$numberLong": "-1000"}})),
        ("1969-12-31T23:59:59.999999Z", json!({"$date": "1969-12-31T23:59:59.999999Z"})),
    ] {
        assert_eq!(json_of(&date(text)), wanted);
        assert_eq!(value_of(&wanted).unwrap(), date(text));
    }
    let far = Value::Date(Timestamp::from_millis(i64::MAX));
    assert_eq!(json_of(&far), json!({"$date": {"$numberLong": "9223372036854775807"}}));
}

#[test]
fn values_come_back_as_they_were() {
    let value = Value::Object(vec![
        ("n".into(), Value::Null),
        ("d".into(), Value::Double(2.0)),
        ("i".into(), Value::Int(2)),
        ("b".into(), Value::Binary(vec![0, 255, 7, 9])),
        ("inf".into(), Value::Double(f64::INFINITY)),
        ("l".into(), Value::Array(vec![Value::Bool(true), Value::from("x")])),
    ]);
    let json = json_of(&value);
    assert_eq!(value_of(&json).unwrap(), value);
    assert_eq!(from_slice(json.to_string().as_bytes()).unwrap(), value);
    assert_eq!(json.to_string(), json_of(&value_of(&json).unwrap()).to_string());
    assert!(json.to_string().contains(r#""d":2.0,"i":2,"#), "{json}");
}

#[test]
fn binaries_of_every_length_come_back() {
    for length in 0..10_u8 {
        let bytes: Vec<u8> = (0..length).map(|i| i.wrapping_mul(77)).collect();
        assert_eq!(value_of(&json_of(&Value::Binary(bytes.clone()))).unwrap(), Value::Binary(bytes));
    }
    assert_eq!(code(&json!({"$binary": {"base64": "????", "subType": "00"}})), Code::BadValue);
    assert_eq!(code(&json!({"$binary": {"base64": "A", "subType": "00"}})), Code::BadValue);
    assert_eq!(code(&json!({"$binary": "AAAA"})), Code::BadValue);
}

#[test]
fn special_values_are_alone_and_plain_inside() {
    for wrong in [
        json!({"$date": 0, "more": 1}),
        json!({"more": 1, "$date": 0}),
        json!({"$regularExpression": {"pattern": "a", "options": ""}}),
        json!({"a": 1, "$minKey": 1}),
        json!({"$numberLong": {"$oid": "5"}}),
        json!({"$oid": 5}),
        json!({"$binary": {"base64": "AAAA", "subType": "00", "more": 1}}),
    ] {
        assert_eq!(code(&wrong), Code::BadValue, "{wrong}");
    }
}

#[test]
fn text_that_is_not_json_is_refused_with_its_place() {
    for wrong in ["", "{", "{\"a\" 1}", "[1,]", "1 2", "nul", "{\"a\": \u{1}}", &"[".repeat(100_000)] {
        let error = from_slice(wrong.as_bytes()).unwrap_err();
        assert_eq!(error.code(), Code::BadValue);
        assert!(error.to_string().contains(" at line 1 column "), "{error}");
    }
    assert_eq!(from_slice(b"\"\xff\"").unwrap_err().code(), Code::BadValue);
    let twice = from_slice(br#"{"a": 1, "a": 2}"#).unwrap();
    assert_eq!(twice, Value::Object(vec![("a".into(), Value::Int(1)), ("a".into(), Value::Int(2))]));
}

#[test]
fn operators_stay_objects() {
    let filter = value_of(&json!({"v": {"$gt": {"$numberLong": "5"}}})).unwrap();
    let wanted = Value::Object(vec![("v".into(), Value::Object(vec![("$gt".into(), Value::Int(5))]))]);
    assert_eq!(filter, wanted);
}

#[test]
fn nesting_has_a_limit() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    assert!(value_of(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(code(&nested(DEPTH_MAX + 1)), Code::BadValue);
    let dates = |levels: usize| (0..levels).fold(json!(0), |inner, _| json!({"$date": inner}));
    let error = value_of(&dates(DEPTH_MAX)).unwrap_err().to_string();
    assert!(error.contains("the content of a $-value nests deeper than 2 levels"), "{error}");
}

#[test]
fn times_of_serialised_types_are_dates() {
    #[derive(Serialize)]
    struct Reading {
        #[serde(serialize_with = "date::serialize")]
        a: i64,
        #[serde(serialize_with = "date::serialize")]
        b: Option<Timestamp>,
        #[serde(serialize_with = "date::serialize")]
        c: std::time::SystemTime,
        #[serde(serialize_with = "date::text::serialize")]
        d: &'static str,
        e: u64,
    }
    let reading =
        Reading { a: 1, b: None, c: UNIX_EPOCH - Duration::from_millis(1), d: "2024-01-01T00:00:00+01:00", e: 7 };
    let value = to_value(&reading).unwrap();
    assert_eq!(value.get("a"), Some(&date("1970-01-01T00:00:00.001Z")));
    assert_eq!(value.get("b"), Some(&Value::Null));
    assert_eq!(value.get("c"), Some(&date("1969-12-31T23:59:59.999Z")));
    assert_eq!(value.get("d"), Some(&date("2023-12-31T23:00:00Z")));
    assert_eq!(to_value(&Reading { e: u64::MAX, ..reading }).unwrap_err().code(), Code::BadValue);
}

#[test]
fn what_is_serialized_is_as_serde_json_has_it_but_for_numbers_that_json_lacks() {
    use std::collections::BTreeMap;
    #[derive(Serialize)]
    struct Unit;
    #[derive(Serialize)]
    struct Pair(i8, f32);
    #[derive(Serialize)]
    struct New(u16);
    #[derive(Serialize)]
    enum Kind {
        Plain,
        One(f64),
        Two(u8, char),
        Named { a: Option<f64> },
    }
    #[derive(Serialize)]
    struct Inner {
        x: i64,
        y: (),
    }
    #[derive(Serialize)]
    struct All {
        unit: Unit,
        pair: Pair,
        new: New,
        kinds: [Kind; 4],
        numbers: BTreeMap<i32, Vec<u64>>,
        chars: BTreeMap<char, bool>,
        tuple: (i16, i32, u32, &'static str),
        big: (i128, u128),
        #[serde(flatten)]
        inner: Inner,
        address: std::net::Ipv4Addr,
    }
    let all = All {
        unit: Unit,
        pair: Pair(-1, 0.1),
        new: New(7),
        kinds: [Kind::Plain, Kind::One(1.5), Kind::Two(3, 'c'), Kind::Named { a: None }],
        numbers: BTreeMap::from([(-3, vec![1, 2]), (4, vec![])]),
        chars: BTreeMap::from([('c', true)]),
        tuple: (1, 2, 3, "t"),
        big: (-5, 1 << 63),
        inner: Inner { x: 1, y: () },
        address: std::net::Ipv4Addr::LOCALHOST,
    };
    assert_eq!(to_value(&all).unwrap(), value_of(&serde_json::to_value(&all).unwrap()).unwrap());
    assert_eq!(to_value(&(1_u64 << 63)).unwrap(), Value::Double(9_223_372_036_854_775_808.0));
    for refused in [to_value(&u64::MAX), to_value(&i128::MAX), to_value(&BTreeMap::from([((1, 2), 3)]))] {
        assert_eq!(refused.unwrap_err().code(), Code::BadValue);
    }
    let doubles = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
    let Value::Array(kept) = to_value(&doubles).unwrap() else { panic!("a list") };
    for (kept, given) in kept.iter().zip(doubles) {
        assert!(matches!(kept, Value::Double(d) if d.to_bits() == given.to_bits()), "{kept:?}");
    }
    assert!(matches!(to_value(&f32::NAN).unwrap(), Value::Double(d) if d.is_nan()));
}
