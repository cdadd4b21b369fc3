//! What a former primary had acknowledged and not shipped: it says so in the copy when it finds out that another folder is the primary.

use super::epochs;
use super::load::piece_at;
use super::store::{CopyStore, damaged, unreachable};
use crate::error::{Error, Result};
use ebbtide_ttl::Timestamp;
use serde::{Deserialize, Serialize};

const FOLDER: &str = "unshipped";
/// How many epochs that were taken may have nothing.
const EPOCHS_MAX: usize = 16;

/// What a former primary had acknowledged and not shipped when another folder became the primary of its copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Unshipped {
    /// Everything that it acknowledged before this instant is in the copy.
    pub until: Timestamp,
    /// Measurements and changed documents that it acknowledged later and that are not in the copy; `None` if that is not known, for example
    /// since its log no longer has all of them.
    pub rows: Option<u64>,
    /// When it found out, by its clock.
    pub found_at: Timestamp,
}

impl Unshipped {
    /// Says it in the copy, for the folder with this number.
    pub(super) fn put(&self, store: &dyn CopyStore, writer: &str) -> Result<()> {
        let content = serde_json::to_vec(self).map_err(|e| Error::internal(format!("encode {FOLDER}: {e}")))?;
        store.put(&format!("{FOLDER}/{writer}"), content.into()).map_err(unreachable)
    }
}

/// What former primaries have said, the first that found out first.
pub(super) fn list(store: &dyn CopyStore) -> Result<Vec<Unshipped>> {
    let mut found = Vec::new();
    for name in store.list(FOLDER).map_err(unreachable)? {
        let name = format!("{FOLDER}/{name}");
        if let Some(content) = store.get(&name).map_err(unreachable)? {
            found.push(serde_json::from_slice::<Unshipped>(&content).map_err(|e| damaged(&name, e))?);
        }
    }
    found.sort_by_key(|unshipped| unshipped.found_at);
    Ok(found)
}

/// The instant, and the last record of the log, up to which the primary that followed `writer` has what this one shipped; `None` if that one
/// has not begun yet, or its first piece is not kept any more. `known` is an epoch of this writer, `newest` one of another.
pub(super) fn end_of(store: &dyn CopyStore, writer: &str, known: u64, newest: u64) -> Result<Option<(Timestamp, u64)>> {
    let is_own = |epoch| Ok::<_, Error>(epochs::claim_of(store, epoch)?.is_some_and(|claim| claim.writer == writer));
    let mut own = known;
    while own < newest && is_own(own + 1)? {
        own += 1;
    }
    for next in (own + 1..=newest).take(EPOCHS_MAX) {
        if let Some((_, piece)) = piece_at(store, next, 1)? {
            let follows = match piece.head.parent {
                Some((parent, _)) => is_own(parent)?,
                None => false,
            };
            return Ok(follows.then_some((piece.head.at, piece.head.last_seq)));
        }
    }
    Ok(None)
}
