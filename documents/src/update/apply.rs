//! What each operator does to a document.

use super::list::{Condition, End, Push, add_to_set};
use super::number::{Arithmetic, is_number};
use super::path::UpdatePath;
use super::tree::{Node, Reached, Room};
use crate::json::relaxed_value_text;
use crate::raw::type_name;
use crate::{Code, Result, RuleError};
use bson::raw::{RawBson, RawBsonRef};
use bson::{DateTime, Timestamp};
use std::cell::Cell;
use std::cmp::Ordering;

/// One path of one operator.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// The operator's name.
    pub(super) operator: &'static str,
    /// The path that it changes.
    pub(super) path: UpdatePath,
    /// What it does there.
    pub(super) action: Action,
}

/// What is done at a path.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// `$set`.
    Set(RawBson),
    /// `$setOnInsert`.
    SetOnInsert(RawBson),
    /// `$unset`.
    Unset,
    /// `$inc`, `$mul`.
    Compute(Arithmetic, RawBson),
    /// `$min` replaces greater values, `$max` lesser ones.
    Bound(Ordering, RawBson),
    /// `$rename`, from this path.
    RenameFrom(UpdatePath),
    /// `$currentDate`.
    CurrentDate(Clock),
    /// `$push`.
    Push(Push),
    /// `$addToSet`.
    AddToSet(Vec<RawBson>),
    /// `$pull`.
    Pull(Condition),
    /// `$pop`.
    Pop(End),
}

/// The type in which `$currentDate` writes the instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    Date,
    Timestamp,
}

/// What is known about the update of one document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Occasion<'r> {
    /// Milliseconds since 1970.
    pub(super) now_ms: i64,
    /// Whether the document is made by this update.
    pub(super) is_insert: bool,
    /// For nulls in lists.
    pub(super) room: &'r Room,
    /// Set by what counts as a change even if it leaves the document as it was.
    pub(super) is_change: &'r Cell<bool>,
}

impl Change {
    /// The paths that the operator changes.
    pub(super) fn paths(&self) -> impl Iterator<Item = &UpdatePath> {
        let source = if let Action::RenameFrom(source) = &self.action { Some(source) } else { None };
        std::iter::once(&self.path).chain(source)
    }

    /// Changes the document.
    pub(super) fn apply<'a>(&'a self, document: &mut Node<'a>, occasion: Occasion<'_>) -> Result<()> {
        let room = occasion.room;
        match &self.action {
            Action::Set(value) => self.set(document, Node::Value(value.as_raw_bson_ref()), room),
            Action::SetOnInsert(value) if occasion.is_insert => {
                self.set(document, Node::Value(value.as_raw_bson_ref()), room)
            }
            Action::SetOnInsert(_) => Ok(()),
            Action::Unset => {
                // An element that becomes null counts, also if it was null.
                if document.take(&self.path)?.is_some() {
                    occasion.is_change.set(true);
                }
                Ok(())
            }
            Action::Compute(arithmetic, operand) => {
                self.compute(document, *arithmetic, operand.as_raw_bson_ref(), room)
            }
            Action::Bound(replaced, bound) => self.bound(document, *replaced, bound.as_raw_bson_ref(), room),
            Action::RenameFrom(source) => self.rename(document, source, room),
            Action::CurrentDate(clock) => self.set(document, Node::Value(clock.value(occasion.now_ms)), room),
            Action::Push(push) => {
                let elements = self.list_to_grow(document, Code::BadValue, room)?;
                if push.apply(elements) {
                    occasion.is_change.set(true);
                }
                Ok(())
            }
            Action::AddToSet(values) => {
                add_to_set(self.list_to_grow(document, Code::BadValue, room)?, values);
                Ok(())
            }
            Action::Pull(condition) => {
                if let Some(elements) = self.list_to_shrink(document, Code::BadValue)? {
                    elements.retain(|element| !condition.holds(element));
                }
                Ok(())
            }
            Action::Pop(end) => {
                match self.list_to_shrink(document, Code::TypeMismatch)? {
                    Some(elements) if !elements.is_empty() => {
                        elements.remove(if *end == End::First { 0 } else { elements.len() - 1 });
                    }
                    _ => {}
                }
                Ok(())
            }
        }
    }

    fn set<'a>(&'a self, document: &mut Node<'a>, value: Node<'a>, room: &Room) -> Result<()> {
        match document.reach(&self.path, self.path.names().len())? {
            Reached::Value(node) => *node = value,
            Reached::Missing(parent, from) => parent.create(&self.path, from, value, room)?,
            Reached::Blocked(node, at) => return Err(self.blocked(&self.path, node, at)),
        }
        Ok(())
    }

    fn compute<'a>(
        &'a self,
        document: &mut Node<'a>,
        arithmetic: Arithmetic,
        operand: RawBsonRef<'a>,
        room: &Room,
    ) -> Result<()> {
        match document.reach(&self.path, self.path.names().len())? {
            Reached::Value(Node::Value(value)) if is_number(*value) => {
                let Some(result) = arithmetic.compute(*value, operand) else {
                    let reason = format!(
                        "the result for {} is out of the range of int64; $set the field to a double or a decimal first",
                        relaxed_value_text(*value)
                    );
                    return Err(self.error(Code::BadValue, &reason));
                };
                // The same number in the same type leaves -0, and the zeros after a decimal, as they are.
                if value.element_type() != result.element_type() || crate::compare(*value, result).is_ne() {
                    *value = result;
                }
            }
            Reached::Value(node) => {
                let name = node.with_value(type_name);
                let reason = format!("the field holds a value of type {name}, no number; $set it to a number first");
                return Err(self.error(Code::TypeMismatch, &reason));
            }
            Reached::Missing(parent, from) => {
                let start = match arithmetic {
                    Arithmetic::Add => Some(operand),
                    Arithmetic::Multiply => arithmetic.compute(RawBsonRef::Int32(0), operand),
                };
                parent.create(&self.path, from, Node::Value(start.unwrap_or(operand)), room)?;
            }
            Reached::Blocked(node, at) => return Err(self.blocked(&self.path, node, at)),
        }
        Ok(())
    }

    fn bound<'a>(
        &'a self,
        document: &mut Node<'a>,
        replaced: Ordering,
        bound: RawBsonRef<'a>,
        room: &Room,
    ) -> Result<()> {
        if let Reached::Value(node) = document.reach(&self.path, self.path.names().len())?
            && node.with_value(|value| crate::compare(value, bound)) != replaced
        {
            return Ok(());
        }
        self.set(document, Node::Value(bound), room)
    }

    fn rename<'a>(&'a self, document: &mut Node<'a>, source: &UpdatePath, room: &Room) -> Result<()> {
        match document.reach(source, source.names().len())? {
            Reached::Value(_) => {}
            Reached::Missing(..) => return Ok(()),
            Reached::Blocked(node, at) => return Err(self.blocked(source, node, at)),
        }
        for (path, role) in [(source, "from"), (&self.path, "to")] {
            if let Some(list) = document.list_on(path)? {
                let reason =
                    format!("cannot rename {role} '{path}': '{}' is a list; use $set and $unset", path.up_to(list));
                return Err(self.error(Code::BadValue, &reason));
            }
        }
        let length = self.path.names().len();
        if self.path.field() == "_id" && matches!(document.reach(&self.path, length)?, Reached::Value(_)) {
            let reason = "the document has an _id, which no other field replaces, not even one of the same value";
            return Err(self.error(Code::ImmutableField, reason));
        }
        // The old place is emptied last, so that an error leaves nothing half-done even within the tree.
        let Reached::Value(node) = document.reach(source, source.names().len())? else { return Ok(()) };
        let value = std::mem::replace(node, Node::Value(RawBsonRef::Null));
        self.set(document, value, room)?;
        document.take(source).map(|_| ())
    }

    /// The elements of the list at the path, which is made where there is nothing.
    fn list_to_grow<'n, 'a>(
        &'a self,
        document: &'n mut Node<'a>,
        code: Code,
        room: &Room,
    ) -> Result<&'n mut Vec<Node<'a>>> {
        if !matches!(document.reach(&self.path, self.path.names().len())?, Reached::Value(_)) {
            self.set(document, Node::List(Vec::new()), room)?;
        }
        self.list_to_shrink(document, code)?.ok_or_else(|| self.error(Code::InternalError, "the list was not made"))
    }

    /// The elements of the list at the path, if there is something.
    fn list_to_shrink<'n, 'a>(&self, document: &'n mut Node<'a>, code: Code) -> Result<Option<&'n mut Vec<Node<'a>>>> {
        let node = match document.reach(&self.path, self.path.names().len())? {
            Reached::Value(node) => node,
            Reached::Missing(..) => return Ok(None),
            Reached::Blocked(node, at) => return Err(self.blocked(&self.path, node, at)),
        };
        node.open()?;
        match node {
            Node::List(elements) => Ok(Some(elements)),
            other => {
                let name = other.with_value(type_name);
                Err(self
                    .error(code, &format!("the field holds a value of type {name}, no list; $set it to a list first")))
            }
        }
    }

    fn blocked(&self, path: &UpdatePath, node: &Node<'_>, at: usize) -> RuleError {
        let name = path.names().get(at).map_or("", |name| name.as_str());
        let parent = path.up_to(at.saturating_sub(1));
        let reason = match node {
            Node::List(_) => format!("'{parent}' is a list, whose elements have numbers, not the name '{name}'"),
            _ => {
                let type_name = node.with_value(type_name);
                format!(
                    "'{parent}' holds a value of type {type_name}, in which there can be no '{name}'; $set '{parent}' first"
                )
            }
        };
        self.error(Code::PathNotViable, &reason)
    }

    /// An error of this operator at this path.
    pub(super) fn error(&self, code: Code, reason: &str) -> RuleError {
        RuleError::new(code, format!("{} of '{}': {reason}", self.operator, self.path))
    }
}

impl Clock {
    fn value<'a>(self, now_ms: i64) -> RawBsonRef<'a> {
        match self {
            Clock::Date => RawBsonRef::DateTime(DateTime::from_millis(now_ms)),
            Clock::Timestamp => {
                let seconds = now_ms.div_euclid(1000).clamp(0, u32::MAX.into());
                RawBsonRef::Timestamp(Timestamp { time: u32::try_from(seconds).unwrap_or(u32::MAX), increment: 1 })
            }
        }
    }
}
