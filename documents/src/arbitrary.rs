//! Arbitrary values for the laws in the tests.

use crate::json;
use bson::oid::ObjectId;
use bson::raw::{CString, RawArrayBuf, RawBson, RawJavaScriptCodeWithScope};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, Decimal128, RawDocumentBuf, Regex, Timestamp};
use proptest::prelude::*;

/// A document from Extended JSON.
pub(crate) fn doc(json: serde_json::Value) -> RawDocumentBuf {
    json::document_from_json(&json).unwrap()
}

/// A value from Extended JSON.
pub(crate) fn value(json: serde_json::Value) -> RawBson {
    json::value_from_json(&json).unwrap()
}

/// Names that often meet.
pub(crate) fn name() -> impl Strategy<Value = String> {
    prop_oneof![8 => "[abc]", 1 => "[0-2]", 1 => "[a-z]{0,3}", 1 => Just("\u{1}\u{7f}".to_owned())]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,2}", "[a\u{0}\u{1}\u{2}\u{ff}]{0,3}", any::<String>()]
}

fn cstring(pattern: &'static str) -> impl Strategy<Value = CString> {
    pattern.prop_map(|text| CString::try_from(text).unwrap())
}

/// Numbers near the borders between types, and others.
pub(crate) fn number() -> impl Strategy<Value = RawBson> {
    let near = prop_oneof![
        Just(0i64),
        Just(1 << 53),
        Just(i64::MAX),
        Just(i64::MIN),
        Just(i64::from(i32::MIN)),
        Just(127),
        Just(128),
        Just(1 << 62),
    ];
    let int = prop_oneof![
        (near, -3i64..=3).prop_map(|(n, d)| n.saturating_add(d)),
        any::<i64>(),
        -20i64..20,
        any::<i64>().prop_flat_map(|i| (0u32..63).prop_map(move |shift| i >> shift)),
    ];
    let double = prop_oneof![
        any::<f64>(),
        (-100i32..100).prop_map(|i| f64::from(i) / 4.0),
        int.clone().prop_map(|i| i as f64),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(-0.0),
        Just(f64::MAX),
        Just(5e-324),
    ];
    let decimal = prop_oneof![
        double.clone().prop_map(|d| crate::Decimal::from_f64(d).encode()),
        any::<[u8; 16]>().prop_map(Decimal128::from_bytes).prop_map(|d| crate::Decimal::decode(d).encode()),
        (-1000i64..1000, -25i32..25).prop_map(|(c, e)| format!("{c}E{e}").parse().unwrap()),
        // The very value of a double, where it has at most 34 digits.
        double.clone().prop_map(|d| format!("{d:e}").parse().unwrap_or_else(|_| "NaN".parse().unwrap())),
        int.clone().prop_map(|i| crate::Decimal::from_i64(i).encode()),
        Just("1E+400".parse().unwrap()),
        Just("-1E+400".parse().unwrap()),
        Just("-1E-400".parse().unwrap()),
    ];
    prop_oneof![
        int.clone().prop_map(RawBson::Int64),
        (-300i32..300).prop_map(RawBson::Int32),
        any::<i32>().prop_map(RawBson::Int32),
        double.prop_map(RawBson::Double),
        decimal.prop_map(RawBson::Decimal128),
    ]
}

fn scalar() -> impl Strategy<Value = RawBson> {
    let subtype = prop_oneof![Just(0u8), Just(2), Just(4), Just(0x80)];
    let binary = (subtype, prop::collection::vec(any::<u8>(), 0..4))
        .prop_map(|(subtype, bytes)| RawBson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes }));
    let regex = (cstring("[ab.]{0,3}"), cstring("[ims]{0,1}"));
    prop_oneof![
        6 => number(),
        3 => text().prop_map(RawBson::String),
        1 => text().prop_map(RawBson::Symbol),
        1 => binary,
        1 => any::<[u8; 12]>().prop_map(|bytes| RawBson::ObjectId(ObjectId::from_bytes(bytes))),
        1 => any::<bool>().prop_map(RawBson::Boolean),
        1 => any::<i64>().prop_map(|ms| RawBson::DateTime(DateTime::from_millis(ms))),
        1 => (-5i64..5).prop_map(|ms| RawBson::DateTime(DateTime::from_millis(ms))),
        1 => any::<(u32, u32)>().prop_map(|(time, increment)| RawBson::Timestamp(Timestamp { time, increment })),
        1 => regex.prop_map(|(pattern, options)| RawBson::RegularExpression(Regex { pattern, options })),
        1 => text().prop_map(RawBson::JavaScriptCode),
        1 => (text(), any::<[u8; 12]>()).prop_map(|(namespace, id)| db_pointer(&namespace, id)),
        2 => Just(RawBson::Null),
        1 => prop_oneof![Just(RawBson::MinKey), Just(RawBson::MaxKey), Just(RawBson::Undefined)],
    ]
}

fn db_pointer(namespace: &str, id: [u8; 12]) -> RawBson {
    let id = ObjectId::from_bytes(id).to_hex();
    value(serde_json::json!({"$dbPointer": {"$ref": namespace, "$id": {"$oid": id}}}))
}

/// Any value, with lists and objects some levels deep.
pub(crate) fn any_value() -> impl Strategy<Value = RawBson> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        let object = document_of(inner.clone());
        prop_oneof![
            2 => object.clone().prop_map(RawBson::Document),
            2 => prop::collection::vec(inner, 0..4).prop_map(|items| {
                let mut list = RawArrayBuf::new();
                items.into_iter().for_each(|item| list.push(item));
                RawBson::Array(list)
            }),
            1 => ("[ab]{0,2}", object)
                .prop_map(|(code, scope)| RawBson::JavaScriptCodeWithScope(RawJavaScriptCodeWithScope { code, scope })),
        ]
    })
}

fn document_of(value: impl Strategy<Value = RawBson> + Clone) -> impl Strategy<Value = RawDocumentBuf> + Clone {
    let name = name().boxed();
    prop::collection::vec((name, value), 0..4).prop_map(|members| {
        let mut document = RawDocumentBuf::new();
        let mut names = std::collections::BTreeSet::new();
        for (name, value) in members {
            if names.insert(name.clone()) {
                document.append(CString::try_from(name).unwrap(), value);
            }
        }
        document
    })
}

/// Any document without a name twice.
pub(crate) fn any_document() -> impl Strategy<Value = RawDocumentBuf> {
    document_of(any_value().boxed())
}
