//! Which edits take back what is being moved, and which are refused.

use super::Intent;
use super::of_collection::Archive;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::state::{CollectionState, State};
use ebbtide_ttl::Code;

impl CollectionState {
    /// Whether a segment has rows that are being moved: it is not rewritten.
    pub(crate) fn is_moving(&self, segment: u64) -> bool {
        self.intents().any(|intent| intent.pieces.iter().any(|(id, _)| *id == segment))
    }

    /// Whether it is not known if a place has what an intent names. It is known only of an intent that this process made and did
    /// not commit.
    fn is_in_doubt(&self, url: &str, intent: &Intent) -> bool {
        let status = self.archiving.of(url);
        status.owner.is_none() || status.sent == Some(intent.number)
    }

    /// What keeps things from being moved to an archive, for people.
    pub(crate) fn archive_failure(&self, url: &str) -> Option<String> {
        self.archiving.of(url).failed
    }

    /// Notes what kept things from being moved to an archive when another process tried.
    pub(crate) fn note_archive_failure(&self, url: &str, why: &str) {
        self.archiving.set(url, |status| status.failed = Some(why.to_owned()));
    }
}

/// Adds to an edit what takes back the intents whose rows it changes.
///
/// # Errors
/// [`Code::IllegalOperation`] if the place may have these rows already.
pub(crate) fn gate(state: &State, ops: &mut Vec<Op>) -> Result<()> {
    let mut taken_back = Vec::new();
    for collection in state.collections.values() {
        for archive in collection.archives() {
            let Some(intent) = &archive.record.intent else { continue };
            let is_own = |op: &Op| match op {
                Op::SetArchive { collection: id, .. } => *id == collection.id && archive.index.is_none(),
                Op::SetArchiveAt { collection: id, url, .. } => *id == collection.id && url == archive.url,
                _ => false,
            };
            if ops.iter().any(is_own) || !ops.iter().any(|op| changes(op, collection.id, intent)) {
                continue;
            }
            // Whether a place that refuses this database has the rows does not matter once the archive has left it.
            let is_left = || {
                collection.archiving.of(archive.url).is_refused
                    && ops.iter().any(|op| leaves(op, collection.id, &archive))
            };
            if collection.is_in_doubt(archive.url, intent) && !is_left() {
                let why = match collection.archiving.of(archive.url).is_refused {
                    true => "refuses this database: name a new place",
                    false => "has not answered yet: try again",
                };
                let what = format!(
                    "measurements of '{}' are being moved to its archive {}, which {why}",
                    collection.name, archive.url
                );
                return Err(Error::new(Code::IllegalOperation, what));
            }
            if !ops.iter().any(|op| matches!(op, Op::DropCollection { id } if *id == collection.id)) {
                taken_back.push(collection.set_archive(archive.url, archive.record.without_intent()));
            }
        }
    }
    // An intent that is taken back is no longer there when its rows change.
    ops.splice(0..0, taken_back);
    Ok(())
}

/// The collections whose archives may have other places after an edit.
pub(crate) fn may_leave_places(ops: &[Op]) -> Vec<u64> {
    let may_leave = |op: &Op| match op {
        Op::SetExpireInto { collection, .. } | Op::SetIndexArchive { collection, .. } => Some(*collection),
        Op::PutCollection(record) => Some(record.id),
        _ => None,
    };
    ops.iter().filter_map(may_leave).collect()
}

/// Whether an operation takes an archive of a collection to another place, or ends it.
fn leaves(op: &Op, id: u64, archive: &Archive<'_>) -> bool {
    match op {
        Op::DropCollection { id: dropped } => *dropped == id,
        // Without the index.
        Op::PutCollection(record) => {
            record.id == id && archive.index.is_some_and(|index| record.rules.find(Some(index)).is_none())
        }
        Op::SetExpireInto { collection, url } => {
            *collection == id && archive.index.is_none() && url.as_deref() != Some(archive.url)
        }
        Op::SetIndexArchive { collection, index, archive: other } => {
            let is_same = other.as_ref().is_some_and(|other| other.url == archive.url);
            *collection == id && archive.index == Some(index) && !is_same
        }
        _ => false,
    }
}

/// Whether an operation changes what an intent of a collection names, or whether it is due.
fn changes(op: &Op, id: u64, intent: &Intent) -> bool {
    let names = |segment: &u64| intent.pieces.iter().any(|(piece, _)| piece == segment);
    match op {
        Op::SetSegment { collection, segment, .. } | Op::RemoveSegment { collection, segment } => {
            *collection == id && names(segment)
        }
        // Other buckets of the segment may go to another archive, or nowhere.
        Op::DropBuckets { collection, segment, dropped, .. } => {
            let is_dropped = |(piece, bucket): &(u64, u32)| piece == segment && dropped.contains(*bucket);
            *collection == id && intent.pieces.iter().any(is_dropped)
        }
        Op::PutCollection(record) => record.id == id,
        Op::PutHold(hold) => hold.collection == id && hold.lifted_at.is_none(),
        Op::DropCollection { id: other } => *other == id,
        Op::SetGrace { collection, .. }
        | Op::ReplaceFields { collection, .. }
        | Op::SetExpireInto { collection, .. }
        | Op::SetIndexArchive { collection, .. } => *collection == id,
        _ => false,
    }
}
