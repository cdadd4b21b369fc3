//! Filters written down: the normal form as a filter again, and a value as compact Extended JSON.

use super::node::{Condition, Node, Test};
use crate::value::{Name, TypeClass, Value};
use std::fmt;

/// An object that reads as this node.
pub(super) fn to_value(node: &Node) -> Value {
    match node {
        Node::And(parts) => {
            let parts: Vec<_> = parts.iter().map(to_value).collect();
            match merged(&parts) {
                Some(members) => Value::Object(members),
                None => object("$and", Value::Array(parts)),
            }
        }
        // No list of clauses may be empty; nothing is in an empty list.
        Node::Or(parts) if parts.is_empty() => object("_id", object("$in", Value::Array(Vec::new()))),
        Node::Or(parts) => object("$or", Value::Array(parts.iter().map(to_value).collect())),
        Node::Not(inner) => match &**inner {
            Node::Condition(condition) => negated(condition),
            other => object("$nor", Value::Array(vec![to_value(other)])),
        },
        Node::Condition(Condition { path, test }) => {
            let value = match test {
                Test::Eq(value @ Value::Object(members)) if members.iter().any(|(n, _)| n.starts_with('$')) => {
                    object("$eq", value.clone())
                }
                Test::Eq(value) => value.clone(),
                other => operator(other),
            };
            object(&path.join("."), value)
        }
    }
}

/// The members of several objects in one, if every repeated name has operators only, which can be combined.
fn merged(parts: &[Value]) -> Option<Vec<(Name, Value)>> {
    let mut all: Vec<(Name, Value)> = Vec::new();
    for part in parts {
        let Value::Object(members) = part else { return None };
        for (name, value) in members {
            let Some((_, old)) = all.iter_mut().find(|(n, _)| n == name) else {
                all.push((name.clone(), value.clone()));
                continue;
            };
            match (old, value) {
                (Value::Object(old), Value::Object(new)) if !name.starts_with('$') => {
                    let is_operator = |(n, _): &(Name, Value)| n.starts_with('$');
                    let apart = new.iter().all(|(n, _)| old.iter().all(|(o, _)| o != n));
                    if old.is_empty() || new.is_empty() || !old.iter().chain(new).all(is_operator) || !apart {
                        return None;
                    }
                    old.extend(new.iter().cloned());
                }
                _ => return None,
            }
        }
    }
    Some(all)
}

fn negated(Condition { path, test }: &Condition) -> Value {
    let value = match test {
        Test::Eq(value) => object("$ne", value.clone()),
        Test::In(values) => object("$nin", Value::Array(values.clone())),
        Test::Exists => object("$exists", Value::Bool(false)),
        other => object("$not", operator(other)),
    };
    object(&path.join("."), value)
}

fn operator(test: &Test) -> Value {
    match test {
        Test::Eq(value) => object("$eq", value.clone()),
        Test::In(values) => object("$in", Value::Array(values.clone())),
        Test::Compare(comparison, bound) => object(comparison.operator(), bound.clone()),
        Test::Exists => object("$exists", Value::Bool(true)),
        Test::Type(classes) => {
            let mut names: Vec<_> = classes.iter().map(|class| Value::from(TypeClass::name(*class))).collect();
            match (names.len(), names.pop()) {
                (1, Some(only)) => object("$type", only),
                (_, last) => {
                    names.extend(last);
                    object("$type", Value::Array(names))
                }
            }
        }
    }
}

fn object(name: &str, value: Value) -> Value {
    Value::Object(vec![(name.into(), value)])
}

/// Writes a value as Extended JSON.
pub(super) fn write_json(f: &mut fmt::Formatter<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::Null => f.write_str("null"),
        Value::Bool(b) => write!(f, "{b}"),
        Value::Int(i) => write!(f, "{i}"),
        Value::Double(d) if d.is_finite() => write!(f, "{d:?}"),
        Value::Double(d) if d.is_nan() => f.write_str("{\"$numberDouble\":\"NaN\"}"),
        Value::Double(d) => write!(f, "{{\"$numberDouble\":\"{}Infinity\"}}", if *d < 0.0 { "-" } else { "" }),
        Value::String(s) => write_string(f, s),
        Value::Date(t) => {
            f.write_str("{\"$date\":")?;
            write_string(f, &t.to_string())?;
            f.write_str("}")
        }
        Value::Binary(bytes) => {
            f.write_str("{\"$binary\":{\"base64\":\"")?;
            write_base64(f, bytes)?;
            f.write_str("\",\"subType\":\"00\"}}")
        }
        Value::Array(items) => {
            f.write_str("[")?;
            for (i, item) in items.iter().enumerate() {
                f.write_str(if i > 0 { "," } else { "" })?;
                write_json(f, item)?;
            }
            f.write_str("]")
        }
        Value::Object(members) => {
            f.write_str("{")?;
            for (i, (name, member)) in members.iter().enumerate() {
                f.write_str(if i > 0 { "," } else { "" })?;
                write_string(f, name)?;
                f.write_str(":")?;
                write_json(f, member)?;
            }
            f.write_str("}")
        }
    }
}

fn write_string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str(&serde_json::Value::from(text).to_string())
}

fn write_base64(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            let shown = if i <= group.len() { char::from(digit) } else { '=' };
            write!(f, "{shown}")?;
        }
    }
    Ok(())
}
