//! Values in listings.

use ebbtide_ttl::Value;

/// A value as text: a string without quotation marks, everything else as JSON.
#[must_use]
pub fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => json(other).to_string(),
    }
}

fn json(value: &Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(i) => Json::from(*i),
        Value::Double(d) => serde_json::Number::from_f64(*d).map_or_else(|| Json::String(d.to_string()), Json::Number),
        Value::String(s) => Json::String(s.clone()),
        Value::Date(t) => serde_json::json!({ "$date": t.to_string() }),
        Value::Binary(bytes) => Json::String(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        Value::Array(items) => Json::Array(items.iter().map(json).collect()),
        Value::Object(members) => Json::Object(members.iter().map(|(k, v)| (k.to_string(), json(v))).collect()),
    }
}
