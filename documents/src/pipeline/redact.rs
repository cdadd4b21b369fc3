//! $redact: which objects within a document are kept, left out or looked into.

use super::Result;
use crate::ExpressionError;
use crate::expression::{Expression, Scope, Value, type_of};
use crate::raw::owned;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

/// What a `$redact` asks of the document and of each object that it looks into: the expression sees that object as `$$CURRENT`.
#[derive(Debug, Clone)]
pub(super) struct Redact(pub(super) Expression);

impl Redact {
    /// What is left of an object; nothing if it is left out.
    pub(super) fn object(&self, object: &RawDocument, scope: &mut Scope<'_>) -> Result<Option<RawDocumentBuf>> {
        let value = self.0.evaluate_for(object, scope)?;
        match &value {
            Some(RawBson::String(text)) if text == "keep" => return Ok(Some(object.to_owned())),
            Some(RawBson::String(text)) if text == "prune" => return Ok(None),
            Some(RawBson::String(text)) if text == "descend" => {}
            other => {
                let message = format!(
                    "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and \
                     $$PRUNE, but returned a value of type {}",
                    type_of(other)
                );
                return Err(ExpressionError::new(17053, message));
            }
        }
        let mut kept = RawDocumentBuf::new();
        for (name, value) in object.iter().map_while(std::result::Result::ok) {
            if let Some(value) = self.value(value, scope)? {
                kept.append(name, value);
            }
        }
        Ok(Some(kept))
    }

    fn value(&self, value: RawBsonRef<'_>, scope: &mut Scope<'_>) -> Result<Value> {
        match value {
            RawBsonRef::Document(object) => Ok(self.object(object, scope)?.map(RawBson::Document)),
            RawBsonRef::Array(list) => {
                let mut kept = RawArrayBuf::new();
                for element in list.into_iter().map_while(std::result::Result::ok) {
                    if let Some(element) = self.value(element, scope)? {
                        kept.push(element);
                    }
                }
                Ok(Some(RawBson::Array(kept)))
            }
            other => Ok(Some(owned(other))),
        }
    }
}
