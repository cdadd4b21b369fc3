//! Cases as data, for the tests. In them a plain whole number is an int32 if it can be, as in MongoDB's shell.

use crate::json;
use crate::{Code, Result};
use bson::RawDocumentBuf;
use bson::raw::RawBson;
use serde_json::{Value, json};

/// The instant of all updates, and of the last write of all documents: 2024-01-01T00:00:00Z.
pub(crate) const NOW_MS: i64 = 1_704_067_200_000;

/// The cases of a file.
pub(crate) fn cases(text: &str) -> Vec<Value> {
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(!cases.is_empty());
    cases
}

/// A document of a case.
pub(crate) fn doc(json: &Value) -> RawDocumentBuf {
    json::document_from_json(&with_int32(json)).unwrap()
}

/// A value of a case.
pub(crate) fn value(json: &Value) -> RawBson {
    json::value_from_json(&with_int32(json)).unwrap()
}

/// What an operation gave, against `error` or `result` of its case.
pub(crate) fn check<T: PartialEq + std::fmt::Debug>(
    case: &Value,
    actual: Result<T>,
    expected: impl FnOnce(&Value) -> T,
) {
    let name = case["name"].as_str().unwrap();
    match (actual, case.get("error")) {
        (Ok(actual), None) => assert_eq!(actual, expected(&case["result"]), "{name}"),
        (Err(error), Some(expected)) => {
            assert_eq!(error.code.name(), expected.as_str().unwrap(), "{name}: {error}");
            assert!(error.message.len() > 10 && !error.message.ends_with('.'), "{name}: {error}");
            assert_ne!(error.code, Code::InternalError, "{name}: {error}");
        }
        (Ok(actual), Some(expected)) => panic!("{name}: {expected} expected, got {actual:?}"),
        (Err(error), None) => panic!("{name}: {}: {error}", error.code),
    }
}

fn with_int32(json: &Value) -> Value {
    match json {
        Value::Number(number) if number.as_i64().is_some_and(|i| i32::try_from(i).is_ok()) => {
            json!({"$numberInt": number.to_string()})
        }
        Value::Array(elements) => elements.iter().map(with_int32).collect(),
        // What stands for a value is left alone; operators of filters and updates are names.
        Value::Object(members) if members.keys().any(|name| json::WRAPPERS.contains(&name.as_str())) => json.clone(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), with_int32(value))).collect(),
        other => other.clone(),
    }
}
