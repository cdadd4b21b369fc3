use super::*;
use crate::arbitrary::{any_document, any_value};
use bson::raw::{CString, cstr};
use bson::{Bson, DateTime};
use proptest::prelude::*;
use serde_json::json;

fn refusal(json: Value) -> String {
    let error = document_from_json(&json).unwrap_err();
    assert_eq!(error.code, Code::BadValue);
    let text = document_from_slice(json.to_string().as_bytes()).unwrap_err();
    assert_eq!(text.code, Code::BadValue);
    if !error.message.contains("not a JSON document") {
        assert_eq!(text.message, error.message, "from text and from a value");
    }
    error.message
}

#[test]
fn types_are_those_of_the_contract() {
    let cases = [
        (json!(5), Bson::Int64(5)),
        (json!(-5), Bson::Int64(-5)),
        (json!(5.0), Bson::Double(5.0)),
        (json!(1e3), Bson::Double(1000.0)),
        (json!({"$numberInt": "5"}), Bson::Int32(5)),
        (json!({"$numberLong": "5"}), Bson::Int64(5)),
        (json!({"$numberDouble": "5"}), Bson::Double(5.0)),
        (json!({"$numberDecimal": "5.0"}), Bson::Decimal128("5.0".parse().unwrap())),
        (json!(9223372036854775808u64), Bson::Double(9223372036854775808.0)),
        (json!("x"), Bson::String("x".to_owned())),
        (json!(null), Bson::Null),
        (json!({"$date": "1970-01-01T00:00:01.5Z"}), Bson::DateTime(DateTime::from_millis(1500))),
        (json!({"$date": "1969-12-31T23:59:59.9999Z"}), Bson::DateTime(DateTime::from_millis(-1))),
        (json!({"$date": {"$numberLong": "-5"}}), Bson::DateTime(DateTime::from_millis(-5))),
        (json!({"$date": 7}), Bson::DateTime(DateTime::from_millis(7))),
        (json!({"$minKey": 1}), Bson::MinKey),
        (json!({"$maxKey": 1}), Bson::MaxKey),
        (json!({"$undefined": true}), Bson::Undefined),
        (json!({"$timestamp": {"t": 1, "i": 2}}), Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 })),
        (json!({"$symbol": "s"}), Bson::Symbol("s".to_owned())),
        (json!({"$code": "f()"}), Bson::JavaScriptCode("f()".to_owned())),
        (
            json!({"$scope": {"x": 1}, "$code": "f()"}),
            Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
                code: "f()".to_owned(),
                scope: bson::doc! {"x": 1i64},
            }),
        ),
        (
            json!({"$binary": {"base64": "AQI", "subType": "5"}}),
            Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Md5, bytes: vec![1, 2] }),
        ),
        (
            json!({"$uuid": "00112233-4455-6677-8899-aabbccddeeff"}),
            Bson::Binary(bson::Binary {
                subtype: bson::spec::BinarySubtype::Uuid,
                bytes: (0..16).map(|i| i * 0x11).collect(),
            }),
        ),
        // Operators stay objects.
        (json!({"$gt": 5}), Bson::Document(bson::doc! {"$gt": 5i64})),
        (json!({"$regex": "a", "$options": "i"}), Bson::Document(bson::doc! {"$regex": "a", "$options": "i"})),
        (json!({"$ref": "c", "$id": 1}), Bson::Document(bson::doc! {"$ref": "c", "$id": 1i64})),
    ];
    for (json, expected) in cases {
        assert_eq!(from_json(&json).unwrap(), expected, "{json}");
    }
}

#[test]
fn canonical_form() {
    let same = [
        json!({"$numberInt": "5"}),
        json!({"$numberLong": "-5"}),
        json!({"$numberDouble": "5.0"}),
        json!({"$numberDouble": "-0.0"}),
        json!({"$numberDouble": "NaN"}),
        json!({"$numberDouble": "-Infinity"}),
        json!({"$numberDouble": "5e-324"}),
        json!({"$numberDecimal": "1.50E+10"}),
        json!({"$numberDecimal": "NaN"}),
        json!({"$numberDecimal": "-0E-6176"}),
        json!({"$date": {"$numberLong": "253402300800000"}}),
        json!({"$date": {"$numberLong": "-9223372036854775808"}}),
        json!({"$oid": "0123456789abcdef01234567"}),
        json!({"$binary": {"base64": "AQID", "subType": "02"}}),
        json!({"$binary": {"base64": "", "subType": "80"}}),
        json!({"$regularExpression": {"pattern": "^a", "options": "im"}}),
        json!({"$timestamp": {"t": 4294967295u32, "i": 0}}),
        json!({"$dbPointer": {"$ref": "db.c", "$id": {"$oid": "0123456789abcdef01234567"}}}),
        json!({"$code": "f()", "$scope": {"x": {"$numberInt": "1"}}}),
        json!({"$symbol": "s"}),
        json!({"$undefined": true}),
        json!({"$minKey": 1}),
        json!({"$maxKey": 1}),
        json!([true, null, "x", [], {}]),
    ];
    for json in same {
        let value = value_from_json(&json).unwrap();
        assert_eq!(to_canonical_value(value.as_raw_bson_ref()), json);
    }
}

#[test]
fn relaxed_form() {
    let cases = [
        (json!({"$numberInt": "5"}), "5"),
        (json!(9007199254740993i64), "9007199254740993"),
        (json!(5.0), "5.0"),
        (json!({"$numberDouble": "NaN"}), r#"{"$numberDouble":"NaN"}"#),
        (json!({"$numberDecimal": "5"}), r#"{"$numberDecimal":"5"}"#),
        (json!({"$date": 0}), r#"{"$date":"1970-01-01T00:00:00Z"}"#),
        (json!({"$date": 1501}), r#"{"$date":"1970-01-01T00:00:01.501Z"}"#),
        (json!({"$date": 253402300799999i64}), r#"{"$date":"9999-12-31T23:59:59.999Z"}"#),
        (json!({"$date": 253402300800000i64}), r#"{"$date":{"$numberLong":"253402300800000"}}"#),
        (json!({"$date": -1}), r#"{"$date":{"$numberLong":"-1"}}"#),
    ];
    for (json, text) in cases {
        let value = value_from_json(&json).unwrap();
        assert_eq!(relaxed_value_text(value.as_raw_bson_ref()), text);
    }
}

#[test]
fn refusals_name_the_field_and_the_fault() {
    let cases = [
        (json!({"a": [0, {"b": {"$date": "x"}}]}), "field 'a.1.b': $date: 'x' is not a time"),
        (json!({"a": {"$numberInt": "2147483648"}}), "field 'a': $numberInt '2147483648' is not a whole number of 32"),
        (json!({"a": {"$numberInt": 5}}), "field 'a': $numberInt must hold a text, not 5"),
        (json!({"a": {"$numberLong": "1.5"}}), "$numberLong '1.5'"),
        (json!({"a": {"$numberDouble": "inf"}}), "$numberDouble 'inf'"),
        (json!({"a": {"$numberDecimal": "1e99999"}}), "$numberDecimal '1e99999'"),
        (json!({"a": {"$oid": "1234"}}), "$oid '1234' must be 24 hexadecimal digits"),
        (json!({"a": {"$oid": "000000000000000000000001", "b": 1}}), "found 'b' beside it"),
        (json!({"a": {"b": 1, "$oid": "000000000000000000000001"}}), "$oid must be alone"),
        (json!({"a": {"$binary": {"base64": "=", "subType": "00"}}}), "is not base64"),
        (json!({"a": {"$binary": {"base64": "AA==", "subType": "100"}}}), "$binary must be"),
        (json!({"a": {"$uuid": "0011"}}), "$uuid '0011' must be like"),
        (json!({"a": {"$uuid": "0011223g-4455-6677-8899-aabbccddeeff"}}), "must be like"),
        (json!({"a": {"$timestamp": {"t": -1, "i": 0}}}), "$timestamp must be"),
        (json!({"a": {"$regularExpression": {"pattern": "a\u{0}", "options": ""}}}), "zero byte"),
        (json!({"a": {"$regularExpression": "a"}}), "$regularExpression must be"),
        (json!({"a": {"$minKey": 2}}), "$minKey must hold 1, not 2"),
        (json!({"a": {"$undefined": false}}), "$undefined must hold true"),
        (json!({"a": {"$scope": {}}}), "$scope needs a $code"),
        (json!({"a": {"$code": "f", "x": 1}}), "not with 'x'"),
        (json!({"a": {"$code": "f", "$scope": {"y": {"$oid": ""}}}}), "field 'a.$scope.y'"),
        (json!({"a": {"$dbPointer": {"$ref": "c", "$id": "x"}}}), "$dbPointer must be"),
        (json!({"a": {"$date": true}}), "$date must hold"),
        (json!({"a": {"$date": "+300000000-01-01T00:00:00Z"}}), "outside the milliseconds"),
        (json!({"a": 9223372036854775809u64}), "field 'a': the number 9223372036854775809 does not fit int64"),
        (json!({"a\u{0}b": 1}), "zero byte"),
        (json!([1]), "a document must be an object"),
        (json!("x"), "a document must be an object"),
        (json!({"$oid": "000000000000000000000001"}), "a document is an object of fields"),
    ];
    for (json, message) in cases {
        let found = refusal(json.clone());
        assert!(found.contains(message), "{json}: {found}");
    }
}

#[test]
fn a_text_with_a_whole_number_that_would_be_rounded_is_refused() {
    for number in ["18446744073709551617", "-9223372036854775809", "123456789012345678901234567890"] {
        let error = document_from_slice(format!(r#"{{"a": 1e30, "b": [{number}]}}"#).as_bytes()).unwrap_err();
        assert!(error.message.contains(&format!("the number {number} does not fit int64")), "{}", error.message);
    }
    let exact = document_from_slice(br#"{"a": 18446744073709551616, "b": "18446744073709551617"}"#).unwrap();
    assert_eq!(exact.get_f64("a").unwrap(), 18_446_744_073_709_551_616.0);
}

#[test]
fn text_that_is_not_json_is_refused_with_its_place() {
    for text in ["", "{", "{\"a\": }", "{\"a\": 1} x", "{'a': 1}", "nul"] {
        let error = document_from_slice(text.as_bytes()).unwrap_err();
        assert!(error.message.contains("not a JSON document"), "{text}: {error}");
        assert!(error.message.contains("line 1 column"), "{text}: {error}");
    }
    assert!(document_from_slice(b"{\"a\": \"\xff\"}").is_err());
}

#[test]
fn a_document_has_a_hundred_levels() {
    let nested = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    assert!(document_from_slice(nested(100).as_bytes()).is_ok());
    let error = document_from_slice(nested(101).as_bytes()).unwrap_err();
    assert!(error.message.contains("nested deeper than 100 levels"), "{error}");
    let lists = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(document_from_slice(lists(99).as_bytes()).is_ok());
    assert!(document_from_slice(lists(100).as_bytes()).is_err());
    // Far deeper than the stack.
    assert!(document_from_slice("{\"a\":".repeat(1_000_000).as_bytes()).is_err());
    assert!(document_from_slice("{\"$date\":".repeat(1_000_000).as_bytes()).is_err());
    // A $-value is no level.
    let deep = nested(100).replace('1', "{\"$date\":{\"$numberLong\":\"1\"}}");
    assert!(document_from_slice(deep.as_bytes()).is_ok());
}

#[test]
fn a_name_that_comes_twice_is_kept() {
    let document = document_from_slice(br#"{"a": 1, "a": 2}"#).unwrap();
    let mut expected = RawDocumentBuf::new();
    expected.append(cstr!("a"), 1i64);
    expected.append(cstr!("a"), 2i64);
    assert_eq!(document, expected);
    assert_eq!(relaxed_text(&document), r#"{"a":1,"a":2}"#);
}

/// A document whose NaNs are the one that text gives.
fn with_plain_nan(document: RawDocumentBuf) -> RawDocumentBuf {
    let nan = |value: RawBsonRef<'_>| matches!(value, RawBsonRef::Double(d) if d.is_nan());
    let mut plain = RawDocumentBuf::new();
    for (name, value) in document.iter().map(|member| member.unwrap()) {
        let name = CString::try_from(name.as_str()).unwrap();
        if nan(value) { plain.append(name, f64::NAN) } else { plain.append(name, crate::raw::owned(value)) }
    }
    plain
}

proptest! {
    #[test]
    fn canonical_reads_back_bit_for_bit(document in any_document()) {
        let document = with_plain_nan(document);
        let text = canonical_text(&document);
        // NaNs deep inside may have other bits.
        if !text.contains("NaN") {
            prop_assert_eq!(&document_from_slice(text.as_bytes()).unwrap(), &document);
            prop_assert_eq!(&document_from_json(&to_canonical(&document)).unwrap(), &document);
        }
        prop_assert_eq!(canonical_text(&document_from_slice(text.as_bytes()).unwrap()), text);
    }

    #[test]
    fn the_two_forms_of_output_agree(value in any_value()) {
        let value = value.as_raw_bson_ref();
        let text = relaxed_value_text(value);
        prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), to_relaxed_value(value));
    }

    #[test]
    fn relaxed_keeps_values(document in any_document()) {
        let back = document_from_slice(relaxed_text(&document).as_bytes()).unwrap();
        prop_assert_eq!(crate::compare_objects(&back, &document), std::cmp::Ordering::Equal);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\[\\]{}:,\"$a-z0-9. -]{0,60}") {
        let _ = document_from_slice(text.as_bytes());
    }

    #[test]
    fn no_content_makes_the_reader_panic(
        name in prop::sample::select(WRAPPERS.as_slice()),
        text in ".{0,12}|[0-9eE+.-]{0,50}",
        n in any::<i64>(),
    ) {
        for content in [json!(text), json!(n), json!({ "t": n, "i": n }), json!({"base64": text, "subType": text})] {
            if let Ok(value) = value_from_json(&json!({ name: content })) {
                let written = to_canonical_value(value.as_raw_bson_ref());
                prop_assert_eq!(value_from_json(&written).map(|v| crate::value_key(v.as_raw_bson_ref())).unwrap(),
                    crate::value_key(value.as_raw_bson_ref()));
            }
        }
    }
}
