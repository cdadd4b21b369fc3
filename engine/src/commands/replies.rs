//! What commands reply.

use serde_json::{Map, Value as Json, json};

/// A reply without content.
pub(super) fn done() -> Map<String, Json> {
    Map::new()
}

/// A reply of named values.
pub(super) fn reply<const N: usize>(members: [(&str, Json); N]) -> Map<String, Json> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A reply with a list, all of it in the first batch.
pub(super) fn cursor(namespace: &str, batch: Vec<Json>) -> Map<String, Json> {
    reply([("cursor", json!({"id": 0, "ns": namespace, "firstBatch": batch}))])
}
