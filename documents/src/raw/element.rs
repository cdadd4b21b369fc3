//! Members of documents, read in place: without the checks that the crate's iterator does for values that are passed over.

use bson::DateTime;
use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::ElementType;

/// A member of a document, as it is stored.
#[derive(Debug, Clone, Copy)]
pub struct Element<'d> {
    kind: ElementType,
    /// Its name, which should be UTF-8.
    pub name: &'d [u8],
    value: &'d [u8],
}

/// The members of a document.
#[derive(Debug, Clone)]
pub struct Elements<'d>(&'d [u8]);

/// What comes next in a document.
#[derive(Debug, Clone, Copy)]
pub enum NextElement<'d> {
    /// A member.
    Member(Element<'d>),
    /// The end of the document.
    End,
    /// Something that is not read here: an old type, or what is no BSON. The crate's iterator tells.
    Other,
}

impl<'d> Elements<'d> {
    /// The members of a document.
    #[must_use]
    pub fn of(document: &'d RawDocument) -> Elements<'d> {
        Elements(document.as_bytes().get(4..).unwrap_or_default())
    }

    /// The next one.
    #[inline]
    pub fn next_element(&mut self) -> NextElement<'d> {
        match self.0 {
            [0] => NextElement::End,
            rest => match split(rest) {
                Some((element, rest)) => {
                    self.0 = rest;
                    NextElement::Member(element)
                }
                None => NextElement::Other,
            },
        }
    }
}

/// The first member, and what follows it.
#[inline]
fn split(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (kind, named) = bytes.split_first()?;
    let (name, value) = named.split_at_checked(named.iter().position(|byte| *byte == 0)?)?;
    let (kind, value) = (ElementType::from(*kind)?, value.get(1..)?);
    let prefixed = |more: usize| {
        let length = usize::try_from(i32::from_le_bytes(*value.first_chunk()?)).ok()?;
        length.checked_add(more)
    };
    let length = match kind {
        ElementType::Double | ElementType::Int64 | ElementType::DateTime | ElementType::Timestamp => 8,
        ElementType::Int32 => 4,
        ElementType::Boolean => 1,
        ElementType::Null | ElementType::Undefined | ElementType::MinKey | ElementType::MaxKey => 0,
        ElementType::ObjectId => 12,
        ElementType::Decimal128 => 16,
        ElementType::EmbeddedDocument | ElementType::Array => prefixed(0)?,
        ElementType::String | ElementType::JavaScriptCode | ElementType::Symbol => prefixed(4)?,
        ElementType::Binary => prefixed(5)?,
        _ => return None,
    };
    let (value, rest) = value.split_at_checked(length)?;
    Some((Element { kind, name, value }, rest))
}

impl<'d> Element<'d> {
    /// Whether it is an ObjectId.
    #[must_use]
    pub fn is_object_id(&self) -> bool {
        self.kind == ElementType::ObjectId
    }

    /// Its value, if it is a number, a text, a date, a truth value, null or an object; nothing for other types, and for what is no
    /// BSON.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Option<RawBsonRef<'d>> {
        Some(match self.kind {
            ElementType::Double => RawBsonRef::Double(f64::from_le_bytes(*self.value.first_chunk()?)),
            ElementType::Int32 => RawBsonRef::Int32(i32::from_le_bytes(*self.value.first_chunk()?)),
            ElementType::Int64 => RawBsonRef::Int64(i64::from_le_bytes(*self.value.first_chunk()?)),
            ElementType::DateTime => {
                RawBsonRef::DateTime(DateTime::from_millis(i64::from_le_bytes(*self.value.first_chunk()?)))
            }
            ElementType::Null => RawBsonRef::Null,
            ElementType::Boolean => match self.value {
                [0] => RawBsonRef::Boolean(false),
                [1] => RawBsonRef::Boolean(true),
                _ => return None,
            },
            ElementType::String => {
                let (0, text) = self.value.get(4..)?.split_last()? else { return None };
                RawBsonRef::String(std::str::from_utf8(text).ok()?)
            }
            ElementType::EmbeddedDocument => RawBsonRef::Document(RawDocument::from_bytes(self.value).ok()?),
            _ => return None,
        })
    }
}

/// What a document has under a name. Values before it are passed over without an examination of their content.
pub(crate) fn get<'d>(document: &'d RawDocument, name: &str) -> Option<RawBsonRef<'d>> {
    let mut elements = Elements::of(document);
    loop {
        match elements.next_element() {
            NextElement::Member(element) if element.name == name.as_bytes() => match element.value() {
                Some(value) => return Some(value),
                None => break,
            },
            NextElement::Member(_) => {}
            NextElement::End => return None,
            NextElement::Other => break,
        }
    }
    document.get(name).ok().flatten()
}

#[cfg(test)]
mod tests;
