//! Filters as Extended JSON: read or refused, and the normal form means the same.

use ebbtide::json;
use ebbtide::ttl::{Filter, Value};

/// The first line is a filter, each further one a document.
pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.lines();
    let parse = |line: &str| serde_json::from_str(line).ok().and_then(|json| json::value_of(&json).ok());
    let Some(given) = lines.next().and_then(parse) else { return };
    let mut documents: Vec<Value> = lines.take(20).filter_map(parse).collect();
    documents.push(given.clone());
    let partial = Filter::parse_partial(&given, Some("m"));
    let _without_meta = Filter::parse_partial(&given, None).map(|f| panic!("no meta field, and yet a filter: {f}"));
    let query = Filter::parse_query(&given);
    if partial.is_ok() {
        assert!(query.is_ok(), "a partial filter is a query: {given:?}");
    }
    for filter in partial.iter().chain(&query) {
        let normal = filter.normalized();
        assert_eq!(&normal, filter);
        let written = Filter::parse_query(&normal.to_value()).expect("the normal form is a filter");
        assert_eq!(&written, filter, "{} {}", filter, normal);
        let shown: serde_json::Value = serde_json::from_str(&filter.to_string()).expect("shown as JSON");
        drop((shown, filter.paths(), filter.fields(), filter.conjuncts(), filter.meta_part("m")));
        for document in &documents {
            assert_eq!(filter.matches_document(document), written.matches_document(document), "{filter} {document:?}");
            let negated = Filter::negate(filter.clone());
            assert_ne!(filter.matches_document(document), negated.matches_document(document), "{filter} {document:?}");
        }
    }
}
