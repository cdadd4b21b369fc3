//! Commands on ordinary collections.

pub(super) mod indexes;
pub(super) mod read;
pub(super) mod settings;
pub(super) mod write;

use super::args::Args;
use crate::db::{Database, Documents};
use crate::error::{Error, Result};
use ebbtide_documents::bson::RawDocumentBuf;
use ebbtide_documents::json::document_from_json;
use ebbtide_ttl::Code;
use serde_json::Value as Json;

/// The ordinary collection that a command names, if it names one.
pub(super) fn of(db: &Database, args: &Args<'_>) -> Result<Option<Documents>> {
    let name = args.collection()?;
    let is_ordinary = db.engine.state.read().documents.contains_key(name);
    is_ordinary.then(|| db.documents(name)).transpose()
}

/// A document in a command, of which `what` says where it is.
fn document(json: &Json, what: &str) -> Result<RawDocumentBuf> {
    if !json.is_object() {
        return Err(super::args::mismatch(what, "an object", json));
    }
    document_from_json(json).map_err(|e| Error::new(e.code, format!("{what}: {}", e.message)))
}

/// An option that is true or false in MongoDB's sense: numbers count too.
fn flag(args: &Args<'_>, option: &str) -> Result<bool> {
    Ok(args.bool(option)?.unwrap_or(false))
}

/// The error about an option that ordinary collections do not have.
fn refused(what: &str) -> Error {
    Error::new(Code::InvalidOptions, what)
}
