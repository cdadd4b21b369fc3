//! A document that is being changed: opened along the paths that change, and kept as the bytes that it was elsewhere.

use super::path::UpdatePath;
use crate::{Code, Result, RuleError};
use bson::RawDocument;
use bson::raw::{CStr, RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};
use std::borrow::Cow;
use std::cell::Cell;

/// The most nulls that one change adds to a list, as in MongoDB.
const PADDING_MAX: usize = 1_500_000;
/// The most nulls that a document holds, at three bytes or more for each; fewer in tests.
const NULLS_MAX: usize = if cfg!(test) { 2_000_000 } else { crate::DOCUMENT_BYTES_MAX / 3 };

/// How many nulls the changes of one document may still add to lists: with more of them it would be larger than a document may be.
#[derive(Debug)]
pub(super) struct Room(Cell<usize>);

impl Room {
    pub(super) fn new() -> Room {
        Room(Cell::new(NULLS_MAX))
    }

    fn take(&self, nulls: usize) -> Result<()> {
        let Some(left) = self.0.get().checked_sub(nulls) else {
            let message = "the update adds more nulls to lists than a document of 16 MiB holds";
            return Err(RuleError::new(Code::BSONObjectTooLarge, message));
        };
        self.0.set(left);
        Ok(())
    }
}

/// A member of an object.
pub(super) type Member<'a> = (Cow<'a, CStr>, Node<'a>);

/// A value of the document.
#[derive(Debug)]
pub(super) enum Node<'a> {
    /// A value as it was, or as the update gives it.
    Value(RawBsonRef<'a>),
    /// An opened object.
    Object(Vec<Member<'a>>),
    /// An opened list.
    List(Vec<Node<'a>>),
}

/// Where a path leads.
pub(super) enum Reached<'n, 'a> {
    /// To a value.
    Value(&'n mut Node<'a>),
    /// To an opened object or list, from which the names from this one on are missing.
    Missing(&'n mut Node<'a>, usize),
    /// To a value in which the name with this number cannot be: no object, and no list with such an element.
    Blocked(&'n Node<'a>, usize),
}

impl<'a> Node<'a> {
    /// The document, opened.
    pub(super) fn document(document: &'a RawDocument) -> Result<Node<'a>> {
        let member = |member: std::result::Result<(&'a CStr, RawBsonRef<'a>), bson::error::Error>| {
            let (name, value) = member.map_err(|error| damaged(&error))?;
            Ok((Cow::Borrowed(name), Node::Value(value)))
        };
        document.iter().map(member).collect::<Result<_>>().map(Node::Object)
    }

    fn list(list: &'a RawArray) -> Result<Node<'a>> {
        let element = |element: std::result::Result<_, _>| element.map(Node::Value).map_err(|error| damaged(&error));
        list.into_iter().map(element).collect::<Result<_>>().map(Node::List)
    }

    /// Takes an object or a list apart.
    pub(super) fn open(&mut self) -> Result<()> {
        match self {
            Node::Value(RawBsonRef::Document(document)) => *self = Node::document(document)?,
            Node::Value(RawBsonRef::Array(list)) => *self = Node::list(list)?,
            _ => {}
        }
        Ok(())
    }

    /// Follows the first `length` names of a path.
    pub(super) fn reach(&mut self, path: &UpdatePath, length: usize) -> Result<Reached<'_, 'a>> {
        let mut node = self;
        for (i, name) in path.names().iter().enumerate().take(length) {
            node.open()?;
            let place = match &*node {
                Node::Object(members) => members.iter().position(|(member, _)| member.as_str() == name.as_str()),
                Node::List(elements) => match list_index(name.as_str()) {
                    Some(index) => Some(index).filter(|index| *index < elements.len()),
                    None => return Ok(Reached::Blocked(node, i)),
                },
                Node::Value(_) => return Ok(Reached::Blocked(node, i)),
            };
            let Some(place) = place else { return Ok(Reached::Missing(node, i)) };
            node = match node {
                Node::Object(members) => &mut members[place].1,
                Node::List(elements) => &mut elements[place],
                Node::Value(_) => return Err(RuleError::new(Code::InternalError, "a value has no members")),
            };
        }
        Ok(Reached::Value(node))
    }

    /// Adds the names of a path from the one with this number on: objects within each other, and the value in the last.
    /// A list grows to the index that the first name says, with nulls.
    pub(super) fn create(&mut self, path: &'a UpdatePath, from: usize, value: Node<'a>, room: &Room) -> Result<()> {
        let names = &path.names()[from..];
        let Some((first, within)) = names.split_first() else { return Ok(()) };
        let wrap = |inner, name: &'a bson::raw::CString| Node::Object(vec![(Cow::Borrowed(name.as_ref()), inner)]);
        let value = within.iter().rev().fold(value, wrap);
        match self {
            Node::Object(members) => members.push((Cow::Borrowed(first.as_ref()), value)),
            Node::List(elements) => {
                let index = list_index(first.as_str()).unwrap_or(usize::MAX);
                let missing = index.saturating_sub(elements.len());
                if missing > PADDING_MAX {
                    let message = format!(
                        "'{path}': {missing} nulls would be added to a list before the element {first}; at most \
                         {PADDING_MAX} can be"
                    );
                    return Err(RuleError::new(Code::CannotBackfillArray, message));
                }
                room.take(missing)?;
                elements.extend((0..missing).map(|_| Node::Value(RawBsonRef::Null)));
                elements.push(value);
            }
            Node::Value(_) => {}
        }
        Ok(())
    }

    /// Takes a value out: a member goes, an element of a list becomes null.
    pub(super) fn take(&mut self, path: &UpdatePath) -> Result<Option<Node<'a>>> {
        let Some((last, parents)) = path.names().split_last() else { return Ok(None) };
        let Reached::Value(parent) = self.reach(path, parents.len())? else { return Ok(None) };
        parent.open()?;
        Ok(match parent {
            Node::Object(members) => {
                members.iter().position(|(name, _)| name.as_str() == last.as_str()).map(|place| members.remove(place).1)
            }
            Node::List(elements) => list_index(last.as_str())
                .and_then(|index| elements.get_mut(index))
                .map(|element| std::mem::replace(element, Node::Value(RawBsonRef::Null))),
            Node::Value(_) => None,
        })
    }

    /// Whether a path leads through a list: which of its names is the list's.
    pub(super) fn list_on(&mut self, path: &UpdatePath) -> Result<Option<usize>> {
        for length in 1..path.names().len() {
            match self.reach(path, length)? {
                Reached::Value(Node::List(_) | Node::Value(RawBsonRef::Array(_))) => return Ok(Some(length - 1)),
                Reached::Value(_) => {}
                Reached::Missing(..) | Reached::Blocked(..) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Calls with the value as bytes.
    pub(super) fn with_value<T>(&self, call: impl FnOnce(RawBsonRef<'_>) -> T) -> T {
        match self {
            Node::Value(value) => call(*value),
            Node::Object(_) | Node::List(_) => call(self.to_raw().as_raw_bson_ref()),
        }
    }

    fn to_raw(&self) -> RawBson {
        match self {
            Node::Value(value) => crate::raw::owned(*value),
            Node::Object(members) => RawBson::Document(object_of(members)),
            Node::List(elements) => RawBson::Array(list_of(elements)),
        }
    }

    /// The document as bytes.
    pub(super) fn into_document(self) -> RawDocumentBuf {
        match self {
            Node::Object(members) => object_of(&members),
            Node::List(_) | Node::Value(_) => RawDocumentBuf::new(),
        }
    }
}

fn object_of(members: &[Member<'_>]) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    for (name, node) in members {
        match node {
            Node::Value(value) => document.append(name, *value),
            Node::Object(members) => document.append(name, object_of(members)),
            Node::List(elements) => document.append(name, list_of(elements)),
        }
    }
    document
}

fn list_of(elements: &[Node<'_>]) -> RawArrayBuf {
    let mut list = RawArrayBuf::new();
    for node in elements {
        match node {
            Node::Value(value) => list.push(*value),
            Node::Object(members) => list.push(object_of(members)),
            Node::List(elements) => list.push(list_of(elements)),
        }
    }
    list
}

/// The element of a list that a name stands for: digits, with zeros before them or not.
fn list_index(name: &str) -> Option<usize> {
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) { name.parse().ok() } else { None }
}

/// What an error about bytes that are no document becomes.
pub(super) fn damaged(error: &bson::error::Error) -> RuleError {
    RuleError::new(Code::DataCorruptionDetected, format!("a document cannot be read: {error}; run verify"))
}
