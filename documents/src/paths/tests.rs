use super::*;
use crate::arbitrary::doc;
use crate::json::to_relaxed_value;
use serde_json::{Value, json};

fn reached(document: Value, path: &str, end: EndInList) -> Value {
    let mut all = Vec::new();
    Path::new(path).visit(&doc(document), end, &mut |value| {
        all.push(value.map_or(json!("missing"), to_relaxed_value));
        ControlFlow::Continue(())
    });
    Value::Array(all)
}

#[test]
fn paths_go_through_lists() {
    let cases = [
        (json!({"a": {"b": 1}}), "a.b", json!([1])),
        (json!({"a": {"b": {"c": 1}}}), "a.b", json!([{"c": 1}])),
        (json!({"a": 1}), "a.b", json!(["missing"])),
        (json!({}), "a.b", json!(["missing"])),
        (json!({"a": [1, 2]}), "a", json!([1, 2, [1, 2]])),
        (json!({"a": []}), "a", json!([[]])),
        (json!({"a": [[1], 2]}), "a", json!([[1], 2, [[1], 2]])),
        (json!({"a": []}), "a.b", json!([])),
        (json!({"a": [1, null]}), "a.b", json!([])),
        (json!({"a": [{"b": 1}, {"c": 2}, 3]}), "a.b", json!([1, "missing"])),
        (json!({"a": [{"b": [1, 2]}, {"b": 3}]}), "a.b", json!([1, 2, [1, 2], 3])),
        (json!({"a": [[{"b": 1}]]}), "a.b", json!([])),
        // Numbers are names of members and numbers of elements.
        (json!({"a": {"0": 1}}), "a.0", json!([1])),
        (json!({"a": [5, 6]}), "a.1", json!([6])),
        (json!({"a": [5, 6]}), "a.01", json!([])),
        (json!({"a": [5, 6]}), "a.2", json!([])),
        (json!({"a": [[7, 8]]}), "a.0", json!([[7, 8]])),
        (json!({"a": [5, {"1": 4}]}), "a.1", json!([4, {"1": 4}])),
        (json!({"a": [5, {"b": 4}]}), "a.1.b", json!(["missing", 4])),
        (json!({"a": [5, [{"b": 4}]]}), "a.1.b", json!([4])),
        (json!({"a": [5, [6, 7]]}), "a.1.1", json!([7])),
        (json!({"a": [[5, [6]], 9]}), "a.0.1.0", json!([6])),
        (json!({"": {"": 1}}), ".", json!([1])),
    ];
    for (document, path, expected) in cases {
        assert_eq!(reached(document.clone(), path, EndInList::ElementsAndList), expected, "{path} in {document}");
    }
    assert_eq!(reached(json!({"a": [1, [2]]}), "a", EndInList::List), json!([[1, [2]]]));
}

#[test]
fn an_index_holds_at_least_one_key() {
    let cases = [
        (json!({"a": 1}), "a", json!([1])),
        (json!({}), "a", json!([null])),
        (json!({"a": []}), "a", json!([{"$undefined": true}])),
        (json!({"a": []}), "a.b", json!([null])),
        (json!({"a": [1, [2, 3], 1]}), "a", json!([1, [2, 3], 1])),
        (json!({"a": [{"b": []}, {}]}), "a.b", json!([{"$undefined": true}, null])),
    ];
    for (document, path, expected) in cases {
        let document = doc(document);
        let keys: Vec<_> = index_keys(&document, &Path::new(path)).into_iter().map(to_relaxed_value).collect();
        assert_eq!(Value::Array(keys), expected, "{path}");
    }
}
