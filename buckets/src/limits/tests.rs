use super::*;
use crate::testing::{accept, date, object, schema};
use crate::{batch_from_arrow, batch_from_documents};
use arrow::array::{ArrayRef, BinaryArray, LargeStringArray, RecordBatch, TimestampMillisecondArray};
use ebbtide_ttl::Value;
use std::sync::Arc;

fn refused(documents: &[Value]) -> (usize, Code, String) {
    let error = batch_from_documents(documents, &schema()).expect_err("too large");
    assert!(error.error.message.len() < 400, "{}", error.error.message);
    (error.index, error.error.code, error.error.message)
}

fn with(name: &str, value: Value) -> Value {
    object(&[("t", date(1)), (name, value)])
}

#[test]
fn names_have_a_longest_length_at_every_depth() {
    let (longest, longer) = ("n".repeat(FIELD_NAME_BYTES_MAX), "n".repeat(1 << 20));
    accept(&[with(&longest, Value::Int(1))], &schema());
    for document in [with(&longer, Value::Int(1)), with("x", object(&[(&longer, Value::Null)]))] {
        let (index, code, message) = refused(&[with("y", Value::Int(1)), document]);
        assert_eq!((index, code), (1, Code::BadValue));
        assert!(message.contains("1024 bytes") && message.contains("'nnn"), "{message}");
    }
    // Nobody but the caller may walk a value this deep: a clone of it would be deeper than a thread's stack.
    let deep = (0..10_000).fold(Value::Int(1), |v, _| Value::Array(vec![v]));
    let document = Value::Object(vec![("t".into(), date(1)), (longer.into(), deep)]);
    assert_eq!(refused(&[document]).1, Code::BadValue);
}

#[test]
fn a_document_is_as_large_as_in_mongodb_at_most() {
    let text = |bytes: usize| Value::String("x".repeat(bytes));
    accept(&[with("x", text(DOCUMENT_BYTES_MAX - 100))], &schema());
    let halves = [("a", text(DOCUMENT_BYTES_MAX / 2)), ("b", Value::Binary(vec![0; DOCUMENT_BYTES_MAX / 2]))];
    let many = Value::Array(vec![Value::Null; DOCUMENT_BYTES_MAX / 8]);
    for value in [text(DOCUMENT_BYTES_MAX), object(&halves), many] {
        let (index, code, message) = refused(&[with("y", Value::Int(1)), with("x", value)]);
        assert_eq!((index, code), (1, Code::BSONObjectTooLarge), "{message}");
        assert!(message.starts_with("index 1: ") && message.contains("16777216"), "{message}");
    }
}

#[test]
fn one_value_of_an_arrow_batch_has_the_limit_of_a_document() {
    let long = "x".repeat(DOCUMENT_BYTES_MAX + 1);
    let texts: ArrayRef = Arc::new(LargeStringArray::from(vec!["", long.as_str()]));
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&b""[..], long.as_bytes()]));
    for column in [texts, bytes] {
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("t", times), ("x", column)]).unwrap();
        let error = batch_from_arrow(&batch, &schema()).expect_err("too large");
        assert_eq!((error.index, error.error.code), (1, Code::BSONObjectTooLarge), "{}", error.error.message);
    }
}
