//! Reading a projection.

use super::{Mode, Node, Projection, Slice, Tree};
use crate::json::DEPTH_MAX;
use crate::order::Number;
use crate::raw::type_name;
use crate::{Code, Filter, Purpose, Result, RuleError};
use bson::RawDocument;
use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

/// What a projection says of one path.
enum Entry {
    Mode(Mode),
    Slice(Slice),
    FirstMatch(Filter),
}

/// The field that stands for the instant of the last write.
const WRITTEN: &str = "_ts";

/// `given` is the mode; without one the entries say it.
pub(super) fn projection(projection: &RawDocument, given: Option<Mode>) -> Result<Projection> {
    let mut entries = Vec::new();
    flatten("", projection, &mut entries)?;
    let mode = given.map_or_else(|| mode(&entries), Ok)?;
    let is_written = |(path, entry): &(String, Entry)| path == WRITTEN && matches!(entry, Entry::Mode(_));
    let shows_written = mode == Mode::Include && entries.iter().any(is_written);
    let mut result = Projection { mode, tree: Tree::new(), first_matches: Vec::new(), shows_written };
    let names_id = entries.iter().any(|(path, _)| path == "_id" || path.starts_with("_id."));
    if mode == Mode::Include && !names_id {
        result.tree.insert("_id".to_owned(), Node::Whole);
    }
    for (path, entry) in entries {
        let node = match entry {
            // `_id: 0` beside an inclusion, and `_id: 1` beside an exclusion, say what is not in the tree.
            Entry::Mode(entry) if entry != mode => continue,
            Entry::Mode(_) if path == WRITTEN && mode == Mode::Include => continue,
            Entry::Mode(_) => Node::Whole,
            Entry::Slice(slice) => Node::Slice(slice),
            Entry::FirstMatch(filter) => {
                result.first_matches.push(path.clone());
                Node::FirstMatch(filter)
            }
        };
        add(&mut result.tree, &path, &path, node)?;
    }
    if shows_written && result.tree.contains_key(WRITTEN) {
        return Err(collision(Code::Location31250, WRITTEN));
    }
    Ok(result)
}

fn bad(message: String) -> RuleError {
    RuleError::new(Code::BadValue, message)
}

fn collision(code: Code, path: &str) -> RuleError {
    RuleError::new(code, format!("the projection names '{path}' and a part of it, or twice: name one"))
}

/// Reads `{a: {b: 1}}` as `{"a.b": 1}`.
fn flatten(prefix: &str, projection: &RawDocument, entries: &mut Vec<(String, Entry)>) -> Result<()> {
    for member in projection {
        let (name, value) = member.map_err(|error| bad(format!("the projection cannot be read: {error}")))?;
        let path = if prefix.is_empty() { name.as_str().to_owned() } else { format!("{prefix}.{name}") };
        check(&path)?;
        if let RawBsonRef::Document(object) = value {
            match object.iter().next() {
                None => {
                    let what = format!("the projection of '{path}' is empty; it must be 1 or 0");
                    return Err(RuleError::new(Code::Location51270, what));
                }
                Some(Ok((name, argument))) if name.as_str().starts_with('$') => {
                    if object.iter().nth(1).is_some() {
                        return Err(bad(format!(
                            "the projection of '{path}' must be one of $slice and $elemMatch alone"
                        )));
                    }
                    let entry = operator(&path, name.as_str(), argument)?;
                    entries.push((path, entry));
                }
                Some(_) => flatten(&path, object, entries)?,
            }
            continue;
        }
        let included = match (value, Number::of(value)) {
            (RawBsonRef::Boolean(included), _) => included,
            (_, Some(number)) => number.is_nan() || number.compare(Number::Int(0)).is_ne(),
            _ => return Err(bad(format!("the projection of '{path}' must be 1 or 0; expressions are not available"))),
        };
        entries.push((path, Entry::Mode(if included { Mode::Include } else { Mode::Exclude })));
    }
    Ok(())
}

fn check(path: &str) -> Result<()> {
    if path.split('.').any(|name| name == "$") {
        return Err(bad(format!("'{path}': '$' is not available in projections; use $elemMatch")));
    }
    if let Some(code) = crate::paths::wrong_path(path) {
        return Err(RuleError::new(code, format!("'{path}' is not a field's path in a projection")));
    }
    if path.split('.').count() > DEPTH_MAX {
        return Err(bad(format!("a path in a projection has more than {DEPTH_MAX} names")));
    }
    Ok(())
}

fn operator(path: &str, operator: &str, argument: RawBsonRef<'_>) -> Result<Entry> {
    match operator {
        "$slice" => slice(path, argument).map(Entry::Slice),
        "$elemMatch" if path.contains('.') => {
            let what = format!("$elemMatch of '{path}' in a projection: only a top-level field can have it");
            Err(RuleError::new(Code::Location31275, what))
        }
        "$elemMatch" => {
            let RawBsonRef::Document(condition) = argument else {
                let reason = format!("expected an object, got a value of type {}", type_name(argument));
                let what = format!("$elemMatch of '{path}' in a projection: {reason}");
                return Err(RuleError::new(Code::Location31274, what));
            };
            let mut operator = RawDocumentBuf::new();
            operator.append(cstr!("$elemMatch"), condition);
            let mut filter = RawDocumentBuf::new();
            filter.append(cstr!("list"), operator);
            let named = |error: RuleError| {
                RuleError::new(error.code, format!("$elemMatch of '{path}' in a projection: {}", error.message))
            };
            Filter::parse(&filter, Purpose::Find).map(Entry::FirstMatch).map_err(named)
        }
        "$meta" => Err(bad(format!("the projection of '{path}' has $meta, which is not available"))),
        other => Err(RuleError::new(
            Code::Location31325,
            format!(
                "the projection of '{path}' has '{other}', which is not available; available are 1, 0, $slice and $elemMatch"
            ),
        )),
    }
}

fn slice(path: &str, argument: RawBsonRef<'_>) -> Result<Slice> {
    let refused = || {
        let forms = "a whole number, negative for the last elements, or [skip, limit] with a limit above 0";
        bad(format!("$slice of '{path}' in a projection takes {forms}"))
    };
    let integer = |value| Number::of(value).and_then(Number::to_i64).ok_or_else(refused);
    let RawBsonRef::Array(list) = argument else {
        let count = integer(argument)?;
        return Ok(Slice { skip: count.min(0), limit: count.unsigned_abs() });
    };
    let numbers: Vec<i64> =
        list.into_iter().map(|value| integer(value.map_err(|_| refused())?)).collect::<Result<_>>()?;
    match numbers.as_slice() {
        [skip, limit] if *limit > 0 => Ok(Slice { skip: *skip, limit: limit.unsigned_abs() }),
        _ => Err(refused()),
    }
}

/// Whether the projection includes or leaves out. `_id` alone decides only where nothing else does.
fn mode(entries: &[(String, Entry)]) -> Result<Mode> {
    let modes = |wants_id: bool| {
        entries.iter().filter_map(move |(path, entry)| match entry {
            Entry::Mode(mode) if (path == "_id") == wants_id => Some((path, *mode)),
            _ => None,
        })
    };
    if let Some((_, mode)) = modes(false).next() {
        if let Some((path, _)) = modes(false).find(|(_, other)| *other != mode) {
            let code = if mode == Mode::Include { Code::Location31254 } else { Code::Location31253 };
            let what = format!("a projection includes fields or leaves fields out, not both: see '{path}'");
            return Err(RuleError::new(code, what));
        }
        return Ok(mode);
    }
    let has_slice = entries.iter().any(|(_, entry)| matches!(entry, Entry::Slice(_)));
    let has_match = entries.iter().any(|(_, entry)| matches!(entry, Entry::FirstMatch(_)));
    Ok(match modes(true).next() {
        Some((_, Mode::Include)) => Mode::Include,
        Some((_, Mode::Exclude)) if !has_match || has_slice => Mode::Exclude,
        None if !has_match || has_slice => Mode::Exclude,
        _ => Mode::Include,
    })
}

fn add(tree: &mut Tree, rest: &str, path: &str, node: Node) -> Result<()> {
    let (name, rest) = match rest.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (rest, None),
    };
    match (tree.get_mut(name), rest) {
        (None, None) => {
            tree.insert(name.to_owned(), node);
        }
        (None, Some(rest)) => {
            let mut inner = Tree::new();
            add(&mut inner, rest, path, node)?;
            tree.insert(name.to_owned(), Node::Members(inner));
        }
        (Some(Node::Members(inner)), Some(rest)) => add(inner, rest, path, node)?,
        (Some(_), Some(_)) => return Err(collision(Code::Location31249, path)),
        (Some(_), None) => return Err(collision(Code::Location31250, path)),
    }
    Ok(())
}
