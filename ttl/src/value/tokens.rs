//! The stored form of a value: a flat list of tokens, so that no bytes, however damaged, can overflow the stack.

use super::Value;
use crate::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// No value nests deeper than this in storage.
const DEPTH_MAX: usize = 256;

#[derive(Serialize, Deserialize)]
enum Token {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    String(String),
    Date(Timestamp),
    Binary(Vec<u8>),
    /// A list; this number of values follows.
    Array(u32),
    /// An object; this number of pairs of a name (as a string) and a value follows.
    Object(u32),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tokens = Vec::new();
        flatten(self, &mut tokens).map_err(serde::ser::Error::custom)?;
        tokens.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut tokens = Vec::<Token>::deserialize(deserializer)?.into_iter();
        let value = build(&mut tokens, DEPTH_MAX).map_err(de::Error::custom)?;
        match tokens.next() {
            None => Ok(value),
            Some(_) => Err(de::Error::custom("a stored value has tokens after its end")),
        }
    }
}

fn flatten(value: &Value, tokens: &mut Vec<Token>) -> Result<(), &'static str> {
    let count = |n: usize| u32::try_from(n).map_err(|_| "a value has too many elements to be stored");
    tokens.push(match value {
        Value::Null => Token::Null,
        Value::Bool(b) => Token::Bool(*b),
        Value::Int(i) => Token::Int(*i),
        Value::Double(d) => Token::Double(*d),
        Value::String(s) => Token::String(s.clone()),
        Value::Date(t) => Token::Date(*t),
        Value::Binary(b) => Token::Binary(b.clone()),
        Value::Array(items) => {
            tokens.push(Token::Array(count(items.len())?));
            return items.iter().try_for_each(|item| flatten(item, tokens));
        }
        Value::Object(members) => {
            tokens.push(Token::Object(count(members.len())?));
            return members.iter().try_for_each(|(name, member)| {
                tokens.push(Token::String(name.to_string()));
                flatten(member, tokens)
            });
        }
    });
    Ok(())
}

fn build(tokens: &mut std::vec::IntoIter<Token>, depth: usize) -> Result<Value, &'static str> {
    if depth == 0 {
        return Err("a stored value nests too deeply");
    }
    Ok(match tokens.next().ok_or("a stored value ends early")? {
        Token::Null => Value::Null,
        Token::Bool(b) => Value::Bool(b),
        Token::Int(i) => Value::Int(i),
        Token::Double(d) => Value::Double(d),
        Token::String(s) => Value::String(s),
        Token::Date(t) => Value::Date(t),
        Token::Binary(b) => Value::Binary(b),
        Token::Array(count) => {
            Value::Array((0..count).map(|_| build(tokens, depth - 1)).collect::<Result<Vec<_>, _>>()?)
        }
        Token::Object(count) => {
            let member = |_| match tokens.next() {
                Some(Token::String(name)) => Ok((name.into(), build(tokens, depth - 1)?)),
                _ => Err("a stored object lacks a name"),
            };
            Value::Object((0..count).map(member).collect::<Result<Vec<_>, _>>()?)
        }
    })
}
