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
        (&[json!({"a": 1}), json!({"a": 1.5}), json!({"a": 1})], &["a double"]),
        (&[json!({"a": 1}), json!({"a": i64::MAX}), json!({"a": 1.5})], &["a json"]),
        (&[json!({"a": {"b": 1}}), json!({"a": {"b": 1.5, "c": i64::MAX}})], &["a json"]),
        (&[json!({"a": null}), json!({"a": [1, 2]}), json!({"a": [2.5]})], &["a list of double"]),
        (&[json!({"a": [1, 2.5]}), json!({"b": [i64::MAX, 2.5]})], &["a list of double", "b json"]),
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

#[test]
fn columns_are_the_same_whether_documents_are_observed_or_known_from_the_manifest() {
    let documents = [
        json!({"a": 1, "b": null, "c": {"x": 1}, "d": [1]}),
        json!({"a": 2, "b": 1, "c": {"y": "z"}, "d": []}),
        json!({"a": 2.5, "b": i64::MAX, "c": {"x": 0.5}, "d": [1.5]}),
        json!({"a": 3, "b": 0.5, "c": {"x": 7, "y": null}, "d": [null]}),
        json!({"a": "x", "b": "x", "c": {"x": i64::MAX}, "d": ["x"]}),
    ];
    let mut observed: Arc<DocumentColumns> = Arc::default();
    let mut known = DocumentColumns::default();
    for document in &documents {
        observe(&mut observed, &document_from_json(document).unwrap());
        known.join(observed.records());
        assert_eq!(known, *observed, "after {document}");
        let mut reopened = DocumentColumns::default();
        reopened.join(observed.records());
        assert_eq!(reopened, *observed, "{document}");
    }
}

#[test]
fn whole_numbers_of_columns_from_older_programs_do_not_become_doubles() {
    let mut columns: Arc<DocumentColumns> = Arc::default();
    let known = ColumnRecord { name: "a".to_owned(), kind: KindRecord::Of(FieldType::Int64) };
    Arc::make_mut(&mut columns).join(vec![known]);
    observe(&mut columns, &document_from_json(&json!({"a": 1.5})).unwrap());
    assert_eq!(columns.iter().next().unwrap().kind, ColumnKind::Json);
}
