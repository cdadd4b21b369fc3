use super::*;
use ebbtide_documents::json::document_from_json;
use serde_json::{Value, json};

fn columns_of(documents: &[Value]) -> Vec<String> {
    let mut columns = Arc::default();
    // Observing everything twice changes nothing.
    let twice = documents.iter().chain(documents);
    twice.for_each(|json| observe(&mut columns, &document_from_json(json).unwrap()));
    let name = |kind: &ColumnKind| match kind {
        ColumnKind::Unknown => "unknown".to_owned(),
        ColumnKind::Of(ty) => ty.name(),
        ColumnKind::Json => "json".to_owned(),
    };
    columns.iter().map(|column| format!("{} {}", column.name, name(&column.kind))).collect()
}

#[test]
fn the_first_value_gives_a_column_its_type_and_the_first_that_does_not_fit_makes_it_json() {
    let cases: &[(&[Value], &[&str])] = &[
        (&[json!({"_id": 1, "a": "x", "_ts": 1, "document": 2})], &["_id int64", "a string"]),
        (&[json!({"a": null}), json!({"b": 1, "a": true})], &["a bool", "b int64"]),
        (&[json!({"a": {"$numberInt": "1"}}), json!({"a": 5})], &["a int64"]),
        (&[json!({"a": 1}), json!({"a": 1.5}), json!({"a": 1})], &["a json"]),
        (&[json!({"a": 1.5}), json!({"a": 1})], &["a double"]),
        (&[json!({"a": 1.5}), json!({"a": i64::MAX})], &["a json"]),
        (&[json!({"a": [1, 2]}), json!({"a": []}), json!({"a": [null]})], &["a list of int64"]),
        (&[json!({"a": []}), json!({"a": ["x"]})], &["a list of string"]),
        (&[json!({"a": [1, "x"]})], &["a json"]),
        (&[json!({"a": [[1]]})], &["a json"]),
        (&[json!({"a": {"b": 1}}), json!({"a": {"c": "x", "b": null}})], &["a object"]),
        (&[json!({"a": {"b": 1}}), json!({"a": {"b": "x"}})], &["a json"]),
        (&[json!({"a": {"$oid": "507f1f77bcf86cd799439011"}})], &["a json"]),
        (&[json!({"a": {"$date": "2024-01-01T00:00:00Z"}}), json!({"a": "2024"})], &["a json"]),
        (&[json!({"a": {"$date": "2024-01-01T00:00:00Z"}}), json!({"a": null})], &["a timestamp"]),
    ];
    for (documents, expected) in cases {
        assert_eq!(columns_of(documents), *expected, "{documents:?}");
    }
}

#[test]
fn columns_and_members_are_limited() {
    let many = |count: usize| Value::Object((0..count).map(|i| (format!("f{i}"), json!(i))).collect());
    assert_eq!(columns_of(&[many(1200)]).len(), COLUMNS_MAX);
    assert_eq!(columns_of(&[json!({"a": many(MEMBERS_MAX)})]), ["a object"]);
    assert_eq!(columns_of(&[json!({"a": many(MEMBERS_MAX + 1)})]), ["a json"]);
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
    assert_eq!(columns_of(&[json!({"a": nested(32)})]), ["a object"]);
    assert_eq!(columns_of(&[json!({"a": nested(33)})]), ["a json"]);
}
