//! Which edits take back what is being moved, and which are refused.

use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::state::{CollectionState, State};
use ebbtide_ttl::Code;

impl CollectionState {
    /// Whether a segment has rows that are being moved: it is not rewritten.
    pub(crate) fn is_moving(&self, segment: u64) -> bool {
        self.archive.intent.as_ref().is_some_and(|intent| intent.pieces.iter().any(|(id, _)| *id == segment))
    }

    /// Whether it is not known if the place has what an intent names. It is known only of an intent that this process made and did
    /// not commit.
    fn is_in_doubt(&self) -> bool {
        let Some(intent) = &self.archive.intent else { return false };
        let status = self.archiving.status.lock();
        status.owner.is_none() || status.sent == Some(intent.number)
    }

    /// What keeps things from being moved, for people.
    pub(crate) fn archive_failure(&self) -> Option<String> {
        self.archiving.status.lock().failed.clone()
    }
}

/// Adds to an edit what takes back the intents whose rows it changes.
///
/// # Errors
/// [`Code::IllegalOperation`] if the place may have these rows already.
pub(crate) fn gate(state: &State, ops: &mut Vec<Op>) -> Result<()> {
    let mut taken_back = Vec::new();
    for collection in state.collections.values() {
        let Some(intent) = &collection.archive.intent else { continue };
        let id = collection.id;
        let is_own = |op: &Op| matches!(op, Op::SetArchive { collection, .. } if *collection == id);
        let changes = |op: &Op| match op {
            Op::SetSegment { collection, segment, .. }
            | Op::DropBuckets { collection, segment, .. }
            | Op::RemoveSegment { collection, segment } => {
                *collection == id && intent.pieces.iter().any(|(piece, _)| piece == segment)
            }
            Op::PutCollection(record) => record.id == id,
            Op::PutHold(hold) => hold.collection == id && hold.lifted_at.is_none(),
            Op::DropCollection { id: other } => *other == id,
            Op::SetGrace { collection, .. }
            | Op::ReplaceFields { collection, .. }
            | Op::SetExpireInto { collection, .. } => *collection == id,
            _ => false,
        };
        if ops.iter().any(is_own) || !ops.iter().any(changes) {
            continue;
        }
        if collection.is_in_doubt() {
            let what = format!(
                "measurements of '{}' are being moved to its archive, which has not answered yet: try again",
                collection.name
            );
            return Err(Error::new(Code::IllegalOperation, what));
        }
        if !ops.iter().any(|op| matches!(op, Op::DropCollection { id: other } if *other == id)) {
            taken_back.push(Op::SetArchive { collection: id, archive: collection.archive.without_intent() });
        }
    }
    // An intent that is taken back is no longer there when its rows change.
    ops.splice(0..0, taken_back);
    Ok(())
}
