//! Which fields of a document a find returns.

use super::args::mismatch;
use crate::error::{Error, Result};
use crate::json::DEPTH_MAX;
use ebbtide_ttl::{Code, Name, Value};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Names at one level of a document.
pub(super) type Tree = BTreeMap<String, Node>;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// The field as a whole.
    Whole,
    /// Some of its members.
    Members(Tree),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Projection {
    /// Everything.
    All,
    /// These alone.
    Only(Tree),
    /// Everything but these.
    Without(Tree),
}

impl Projection {
    /// Reads `{a: 1, "b.c": 1}` or `{a: 0, "b.c": 0}`.
    pub(super) fn parse(json: &Json) -> Result<Projection> {
        let members = json.as_object().ok_or_else(|| mismatch("projection of find", "an object", json))?;
        let mut paths = Vec::new();
        for (name, json) in members {
            flatten(name.clone(), json, &mut paths)?;
        }
        // `_id: 0` may go with an inclusion out of habit: an inclusion leaves it out anyway.
        if paths.iter().any(|(_, included)| *included) {
            paths.retain(|(path, included)| *included || path != "_id");
        }
        let Some((_, included)) = paths.first() else { return Ok(Projection::All) };
        let included = *included;
        if let Some((path, _)) = paths.iter().find(|(_, i)| *i != included) {
            return Err(bad(format!("a projection includes fields or leaves fields out, not both: see '{path}'")));
        }
        let mut tree = Tree::new();
        for (path, _) in &paths {
            add(&mut tree, path)?;
        }
        Ok(if included { Projection::Only(tree) } else { Projection::Without(tree) })
    }

    /// The top-level fields that must be read for it; `None` if all may be needed.
    pub(super) fn fields(&self) -> Option<impl Iterator<Item = &str>> {
        match self {
            Projection::Only(tree) => Some(tree.keys().map(String::as_str)),
            Projection::All | Projection::Without(_) => None,
        }
    }

    /// The document with the selected fields.
    pub(super) fn apply(&self, members: Vec<(Name, Value)>) -> Vec<(Name, Value)> {
        match self {
            Projection::All => members,
            Projection::Only(tree) => only(tree, members),
            Projection::Without(tree) => without(tree, members),
        }
    }
}

fn bad(message: String) -> Error {
    Error::new(Code::BadValue, message)
}

fn flatten(path: String, json: &Json, paths: &mut Vec<(String, bool)>) -> Result<()> {
    let included = match json {
        Json::Bool(included) => *included,
        Json::Number(number) => number.as_f64() != Some(0.0),
        Json::Object(members) if !members.is_empty() && !members.keys().any(|name| name.starts_with('$')) => {
            // The depth of a command is bounded by the JSON parser, and a projection is no deeper.
            return members.iter().try_for_each(|(name, json)| flatten(format!("{path}.{name}"), json, paths));
        }
        _ => return Err(bad(format!("the projection of '{path}' must be 1 or 0; expressions are not available"))),
    };
    if path.split('.').count() > DEPTH_MAX {
        return Err(bad(format!("a path in a projection has more than {DEPTH_MAX} names")));
    }
    paths.push((path, included));
    Ok(())
}

fn add(tree: &mut Tree, path: &str) -> Result<()> {
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    if name.is_empty() || name.starts_with('$') {
        return Err(bad(format!("'{path}' is not a field's path in a projection")));
    }
    match (tree.get_mut(name), rest) {
        (None, None) => {
            tree.insert(name.to_owned(), Node::Whole);
        }
        (None, Some(rest)) => {
            let mut inner = Tree::new();
            add(&mut inner, rest)?;
            tree.insert(name.to_owned(), Node::Members(inner));
        }
        (Some(Node::Members(inner)), Some(rest)) => add(inner, rest)?,
        (Some(_), _) => return Err(bad(format!("the projection names '{name}' and something within it: name one"))),
    }
    Ok(())
}

fn only(tree: &Tree, members: Vec<(Name, Value)>) -> Vec<(Name, Value)> {
    let pick = |(name, value): (Name, Value)| match (tree.get(name.as_str())?, value) {
        (Node::Whole, value) => Some((name, value)),
        (Node::Members(inner), Value::Object(members)) => Some((name, Value::Object(only(inner, members)))),
        (Node::Members(_), _) => None,
    };
    members.into_iter().filter_map(pick).collect()
}

fn without(tree: &Tree, members: Vec<(Name, Value)>) -> Vec<(Name, Value)> {
    let keep = |(name, value): (Name, Value)| match (tree.get(name.as_str()), value) {
        (Some(Node::Whole), _) => None,
        (Some(Node::Members(inner)), Value::Object(members)) => Some((name, Value::Object(without(inner, members)))),
        (_, value) => Some((name, value)),
    };
    members.into_iter().filter_map(keep).collect()
}
