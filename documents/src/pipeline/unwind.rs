//! $unwind: a document for each element of a list.

use super::feed::Feed;
use super::{Result, project};
use crate::raw::owned;
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};

/// What an `$unwind` asks for.
#[derive(Debug, Clone)]
pub(super) struct Unwind {
    pub(super) path: Vec<String>,
    pub(super) index: Option<Vec<String>>,
    pub(super) keeps_empty: bool,
}

impl Unwind {
    pub(super) fn give(&self, document: RawDocumentBuf, next: &mut Feed<'_>) -> Result<bool> {
        let mut value = RawBsonRef::Document(&document);
        for name in &self.path {
            let inner = value.as_document().and_then(|object| object.get(name).ok().flatten());
            let Some(inner) = inner else { return self.empty(document.clone(), next) };
            value = inner;
        }
        let list = match value {
            RawBsonRef::Array(list) => list,
            RawBsonRef::Null | RawBsonRef::Undefined => return self.empty(document.clone(), next),
            // A value alone is a list of one, without a number.
            _ => return next.give(self.with_index(document.clone(), RawBson::Null)),
        };
        let elements: Vec<RawBson> = list.into_iter().map_while(std::result::Result::ok).map(owned).collect();
        if elements.is_empty() {
            return if self.keeps_empty {
                let without = project::set(&document, &self.path, None);
                next.give(self.with_index(without, RawBson::Null))
            } else {
                Ok(true)
            };
        }
        // Without the list, which would be copied for each of its elements.
        let rest = project::set(&document, &self.path, Some(RawBson::Null));
        for (at, element) in elements.into_iter().enumerate() {
            next.shared.moment.stop.check()?;
            let unwound = project::set(&rest, &self.path, Some(element));
            let at = RawBson::Int64(i64::try_from(at).unwrap_or(i64::MAX));
            if !next.give(self.with_index(unwound, at))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Of a document without a list.
    fn empty(&self, document: RawDocumentBuf, next: &mut Feed<'_>) -> Result<bool> {
        if self.keeps_empty { next.give(self.with_index(document, RawBson::Null)) } else { Ok(true) }
    }

    fn with_index(&self, document: RawDocumentBuf, at: RawBson) -> RawDocumentBuf {
        match &self.index {
            Some(path) => project::set(&document, path, Some(at)),
            None => document,
        }
    }
}
