//! Ids of inserts, by which a program can tell after a crash which of its inserts are stored.

use serde::{Deserialize, Serialize};

/// The id of an insert: see [`crate::Collection::insert_with_id`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchId {
    /// The source of the insert: a number of the caller's choice, such as a random one for each run of an import.
    pub source: u64,
    /// Which insert of that source it is.
    pub number: u64,
}

/// The last insert with a [`BatchId`] into a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastBatch {
    /// Its id.
    pub id: BatchId,
    /// Whether it is also the collection's last insert, with no insert without an id after it.
    pub is_newest: bool,
}

/// What a run of inserts changes about the last one with an id.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdTrail {
    last: Option<BatchId>,
    /// Whether an insert without an id came after it.
    followed: bool,
}

impl IdTrail {
    /// Adds an insert.
    pub(crate) fn add(&mut self, id: Option<BatchId>) {
        match id {
            Some(id) => *self = IdTrail { last: Some(id), followed: false },
            None => self.followed = true,
        }
    }

    /// Adds a later run.
    pub(crate) fn append(&mut self, later: IdTrail) {
        match later.last {
            Some(_) => *self = later,
            None => self.followed |= later.followed,
        }
    }

    /// What is known after this run, from what was known before it.
    pub(crate) fn after(self, before: Option<LastBatch>) -> Option<LastBatch> {
        match (self.last, before) {
            (Some(id), _) => Some(LastBatch { id, is_newest: !self.followed }),
            (None, Some(before)) => Some(LastBatch { is_newest: before.is_newest && !self.followed, ..before }),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests;
