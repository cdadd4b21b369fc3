//! Reading an update's operators.

use super::apply::{Action, Change, Clock};
use super::list::{Condition, Direction, ElementSort, End, Push, element_document};
use super::number::{Arithmetic, is_number};
use super::path::UpdatePath;
use super::tree::damaged;
use crate::order::Number;
use crate::raw::{owned, type_name};
use crate::{Code, Filter, Purpose, Result, RuleError};
use bson::RawDocument;
use bson::raw::{CString, RawBson, RawBsonRef};
use std::cmp::Ordering;

/// The operators, in the order in which an error lists them.
const OPERATORS: [&str; 13] = [
    "$set",
    "$unset",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$rename",
    "$setOnInsert",
    "$currentDate",
    "$push",
    "$addToSet",
    "$pull",
    "$pop",
];

/// Reads `{$set: {...}, $inc: {...}}`: the changes in the order in which they are applied.
pub(super) fn operators(update: &RawDocument) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for member in update {
        let (name, fields) = member.map_err(|error| damaged(&error))?;
        let Some(operator) = OPERATORS.into_iter().find(|operator| *operator == name.as_str()) else {
            return Err(unknown_operator(name.as_str()));
        };
        let RawBsonRef::Document(fields) = fields else {
            let message = format!(
                "{operator}: expected an object of paths, as in {{{operator}: {{path: ...}}}}, got a value of type {}",
                type_name(fields)
            );
            return Err(RuleError::new(Code::FailedToParse, message));
        };
        for member in fields {
            let (path, argument) = member.map_err(|error| damaged(&error))?;
            changes.push(change(operator, path.as_str(), argument)?);
        }
    }
    refuse_conflicts(&changes)?;
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

fn unknown_operator(name: &str) -> RuleError {
    let message = if name.starts_with('$') {
        format!("the update operator '{name}' is not available; available are {}", OPERATORS.join(", "))
    } else {
        format!("'{name}' stands beside update operators; set a field with {{$set: {{{name}: ...}}}}")
    };
    RuleError::new(Code::FailedToParse, message)
}

/// Refuses two changes of one path, and of a path and one within it.
fn refuse_conflicts(changes: &[Change]) -> Result<()> {
    let mut paths: Vec<(&UpdatePath, &Change)> =
        changes.iter().flat_map(|change| change.paths().map(move |path| (path, change))).collect();
    paths.sort_by(|a, b| a.0.cmp(b.0));
    // Paths within a path follow it in this order.
    for pair in paths.windows(2) {
        if let [(path, change), (other, other_change)] = pair
            && path.contains(other)
        {
            let message = format!(
                "{} of '{path}' and {} of '{other}' change the same field; change it with one operator at one path",
                change.operator, other_change.operator
            );
            return Err(RuleError::new(Code::ConflictingUpdateOperators, message));
        }
    }
    Ok(())
}

fn change(operator: &'static str, path: &str, argument: RawBsonRef<'_>) -> Result<Change> {
    let context = Context { operator, path };
    let parsed = UpdatePath::parse(path, operator)?;
    let makes_fields = !matches!(operator, "$unset" | "$pull" | "$pop" | "$rename");
    if makes_fields {
        context.refuse_dollar(&parsed)?;
    }
    if operator == "$rename" {
        let (path, action) = context.rename(parsed, argument)?;
        return Ok(Change { operator, path, action });
    }
    let action = match operator {
        "$set" => Action::Set(owned(argument)),
        "$setOnInsert" => Action::SetOnInsert(owned(argument)),
        "$unset" => Action::Unset,
        "$inc" => Action::Compute(Arithmetic::Add, context.number(argument)?),
        "$mul" => Action::Compute(Arithmetic::Multiply, context.number(argument)?),
        "$min" => Action::Bound(Ordering::Greater, owned(argument)),
        "$max" => Action::Bound(Ordering::Less, owned(argument)),
        "$currentDate" => Action::CurrentDate(context.clock(argument)?),
        "$push" => Action::Push(context.push(argument)?),
        "$addToSet" => Action::AddToSet(context.add_to_set(argument)?),
        "$pull" => Action::Pull(context.condition(argument)?),
        "$pop" => Action::Pop(context.end(argument)?),
        _ => return Err(unknown_operator(operator)),
    };
    Ok(Change { operator, path: parsed, action })
}

/// An operator at a path, for errors.
struct Context<'a> {
    operator: &'static str,
    path: &'a str,
}

impl Context<'_> {
    fn error(&self, code: Code, reason: &str) -> RuleError {
        RuleError::new(code, format!("{} of '{}': {reason}", self.operator, self.path))
    }

    fn refuse_dollar(&self, path: &UpdatePath) -> Result<()> {
        if path.field().starts_with('$') {
            let reason = format!("the name '{}' of a top-level field starts with $; choose another name", path.field());
            return Err(self.error(Code::DollarPrefixedFieldName, &reason));
        }
        Ok(())
    }

    fn number(&self, argument: RawBsonRef<'_>) -> Result<RawBson> {
        if is_number(argument) {
            return Ok(owned(argument));
        }
        let reason = format!("expected a number, got a value of type {}", type_name(argument));
        Err(self.error(Code::TypeMismatch, &reason))
    }

    /// The new path and the action with the old one.
    fn rename(&self, source: UpdatePath, argument: RawBsonRef<'_>) -> Result<(UpdatePath, Action)> {
        let RawBsonRef::String(target) = argument else {
            let reason = format!("expected the new path as a string, got a value of type {}", type_name(argument));
            return Err(self.error(Code::BadValue, &reason));
        };
        let target = UpdatePath::parse(target, self.operator)?;
        self.refuse_dollar(&target)?;
        if source.contains(&target) || target.contains(&source) {
            let reason = format!("'{target}' is the same path or one within the other; rename to a path beside it");
            return Err(self.error(Code::BadValue, &reason));
        }
        Ok((target, Action::RenameFrom(source)))
    }

    fn clock(&self, argument: RawBsonRef<'_>) -> Result<Clock> {
        let expected = "expected true, {$type: 'date'} or {$type: 'timestamp'}";
        match argument {
            RawBsonRef::Boolean(_) => Ok(Clock::Date),
            RawBsonRef::Document(options) => {
                let mut clock = None;
                for member in options {
                    clock = match member.map_err(|error| damaged(&error))? {
                        (name, RawBsonRef::String("date")) if name.as_str() == "$type" => Some(Clock::Date),
                        (name, RawBsonRef::String("timestamp")) if name.as_str() == "$type" => Some(Clock::Timestamp),
                        (name, _) => {
                            let reason = format!("{expected}, got something else in '{name}'");
                            return Err(self.error(Code::BadValue, &reason));
                        }
                    };
                }
                clock.ok_or_else(|| self.error(Code::BadValue, &format!("{expected}, got an empty object")))
            }
            other => {
                let reason = format!("{expected}, got a value of type {}", type_name(other));
                Err(self.error(Code::BadValue, &reason))
            }
        }
    }

    /// A value, or values in `$each` with what else is done.
    fn push(&self, argument: RawBsonRef<'_>) -> Result<Push> {
        let mut push = Push { values: Vec::new(), position: None, sort: None, slice: None };
        let modifiers = match argument {
            RawBsonRef::Document(modifiers) if crate::paths::member(modifiers, "$each").is_some() => modifiers,
            value => {
                push.values.push(owned(value));
                return Ok(push);
            }
        };
        for member in modifiers {
            let (name, value) = member.map_err(|error| damaged(&error))?;
            match name.as_str() {
                "$each" => push.values = self.each(Code::BadValue, value)?,
                "$position" => push.position = Some(self.integer("$position", value)?),
                "$slice" => push.slice = Some(self.integer("$slice", value)?),
                "$sort" => push.sort = Some(self.sort(value)?),
                other => {
                    let reason = format!("'{other}' is not known; beside $each there may be $position, $sort, $slice");
                    return Err(self.error(Code::BadValue, &reason));
                }
            }
        }
        Ok(push)
    }

    fn each(&self, code: Code, value: RawBsonRef<'_>) -> Result<Vec<RawBson>> {
        let RawBsonRef::Array(list) = value else {
            let reason = format!("$each takes a list of values, got a value of type {}", type_name(value));
            return Err(self.error(code, &reason));
        };
        list.into_iter().map(|value| value.map(owned).map_err(|error| damaged(&error))).collect()
    }

    fn integer(&self, name: &str, value: RawBsonRef<'_>) -> Result<i64> {
        Number::of(value).and_then(Number::to_i64).ok_or_else(|| {
            let reason = format!("{name} takes a whole number, got {}", crate::json::relaxed_value_text(value));
            self.error(Code::BadValue, &reason)
        })
    }

    fn sort(&self, value: RawBsonRef<'_>) -> Result<ElementSort> {
        let direction = |value| match Number::of(value).and_then(Number::to_i64) {
            Some(1) => Ok(Direction::Ascending),
            Some(-1) => Ok(Direction::Descending),
            _ => Err(self.error(Code::BadValue, "a direction of $sort must be 1 or -1")),
        };
        let RawBsonRef::Document(keys) = value else {
            if is_number(value) {
                return direction(value).map(ElementSort::Whole);
            }
            let reason = "$sort takes 1 or -1 for the elements as wholes, or an object such as {path: 1}";
            return Err(self.error(Code::BadValue, reason));
        };
        let key = |member: std::result::Result<(&bson::raw::CStr, _), _>| {
            let (path, value) = member.map_err(|error| damaged(&error))?;
            let names: Vec<&str> = path.as_str().split('.').collect();
            if names.iter().any(|name| name.is_empty()) {
                return Err(self.error(Code::BadValue, &format!("'{path}' is not a path for $sort")));
            }
            let names = names.into_iter().filter_map(|name| CString::try_from(name).ok()).collect();
            Ok((names, direction(value)?))
        };
        let keys: Vec<_> = keys.iter().map(key).collect::<Result<_>>()?;
        if keys.is_empty() {
            return Err(self.error(Code::BadValue, "$sort is empty; name a path, as in {path: 1}"));
        }
        Ok(ElementSort::Members(keys))
    }

    /// A value, or values in `$each`.
    fn add_to_set(&self, argument: RawBsonRef<'_>) -> Result<Vec<RawBson>> {
        if let RawBsonRef::Document(object) = argument
            && let Some(Ok((name, each))) = object.iter().next()
            && name.as_str() == "$each"
        {
            if let Some(Ok((other, _))) = object.iter().nth(1) {
                let reason = format!("'{other}' stands beside $each, which takes nothing beside it");
                return Err(self.error(Code::BadValue, &reason));
            }
            return self.each(Code::TypeMismatch, each);
        }
        Ok(vec![owned(argument)])
    }

    fn condition(&self, argument: RawBsonRef<'_>) -> Result<Condition> {
        let named = |error: RuleError| self.error(error.code, &error.message);
        let RawBsonRef::Document(object) = argument else {
            return Ok(match argument {
                RawBsonRef::RegularExpression(_) => {
                    Condition::Element(Filter::parse(&element_document(argument), Purpose::Find).map_err(named)?)
                }
                value => Condition::Equal(owned(value)),
            });
        };
        match object.iter().next() {
            Some(Ok((name, _))) if matches!(name.as_str(), "$ref" | "$id" | "$db") => {
                Ok(Condition::Equal(owned(argument)))
            }
            // Each other operator on a value may be the first.
            Some(Ok((name, _))) if name.as_str() == "$not" => {
                let reason = "$not cannot be the first of the operators; write the opposite ones, such as $ne and $nin";
                Err(self.error(Code::BadValue, reason))
            }
            Some(Ok((name, _))) if name.as_str().starts_with('$') && !is_logical(name.as_str()) => {
                Filter::parse(&element_document(argument), Purpose::Find).map(Condition::Element).map_err(named)
            }
            _ => Filter::parse(object, Purpose::Find).map(Condition::Members).map_err(named),
        }
    }

    fn end(&self, argument: RawBsonRef<'_>) -> Result<End> {
        match Number::of(argument).and_then(Number::to_i64) {
            Some(1) => Ok(End::Last),
            Some(-1) => Ok(End::First),
            _ => Err(self.error(Code::FailedToParse, "expected 1 for the last element or -1 for the first")),
        }
    }
}

/// Operators of whole filters, not of one value.
fn is_logical(operator: &str) -> bool {
    matches!(operator, "$and" | "$or" | "$nor" | "$expr" | "$comment")
}
