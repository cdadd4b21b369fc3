//! What a command will change, read before it is queued: other writes wait only while that is brought up to date, not while a
//! whole collection is read.

use super::memtable::raw;
use super::snapshot::{DocumentsSnapshot, Hidden, Match};
use super::state::DocumentsState;
use crate::error::Result;
use bytes::Bytes;
use ebbtide_documents::Filter;
use ebbtide_ttl::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The differences between a version of a collection that was read and the version that a command changes.
pub(crate) struct Since<'a> {
    state: &'a DocumentsState,
    now: Timestamp,
    keys: BTreeSet<Bytes>,
}

impl<'a> Since<'a> {
    /// `None` if everything has to be read again: segments have changed, or the clock went back, so that what had expired has not.
    pub(super) fn of(before: &DocumentsSnapshot, state: &'a DocumentsState, now: Timestamp) -> Option<Since<'a>> {
        let has_same_segments = Arc::ptr_eq(&before.state.segments, &state.segments);
        if before.state.id != state.id || !has_same_segments || now < before.now {
            return None;
        }
        let keys = state.memtable.changed_since(&before.state.memtable)?;
        Some(Since { state, now, keys })
    }

    /// A document that was read, as it is now; `None` if it was written or removed since.
    pub(crate) fn unchanged(&self, found: Match) -> Option<Match> {
        let Match { key, stored, row, .. } = found;
        let is_superseded = row.is_some_and(|row| self.state.memtable.is_superseded(row));
        (!is_superseded && !self.keys.contains(&key)).then(|| Match::new(self.state, self.now, key, (stored, row)))
    }

    /// The documents that were written since, in the order of their keys.
    pub(crate) fn written(&self) -> Result<Vec<Match>> {
        let mut written = Vec::new();
        for key in &self.keys {
            if let Some(found) = self.state.get(key)? {
                written.push(Match::new(self.state, self.now, key.clone(), found));
            }
        }
        Ok(written)
    }
}

/// The documents that matched a filter before the command was queued.
pub(crate) struct Candidates {
    before: DocumentsSnapshot,
    hidden: Hidden,
    limit: Option<usize>,
    found: Vec<Match>,
}

impl Candidates {
    /// The documents of a snapshot that match a filter, in the order of their keys, at most `limit`.
    pub(crate) fn of(
        before: DocumentsSnapshot,
        filter: &Filter,
        hidden: Hidden,
        limit: Option<usize>,
    ) -> Result<Candidates> {
        let found = before.matching_of(filter, hidden, limit)?;
        Ok(Candidates { before, hidden, limit, found })
    }

    /// What matches in the version that the command changes; `None` if that has to be found again.
    pub(super) fn brought_up_to(
        self,
        state: &DocumentsState,
        now: Timestamp,
        filter: &Filter,
    ) -> Result<Option<Vec<Match>>> {
        let Candidates { before, hidden, limit, found } = self;
        let Some(since) = Since::of(&before, state, now) else { return Ok(None) };
        let is_wanted = |found: &Match| found.is_visible || hidden == Hidden::Included;
        let (limit, count) = (limit.unwrap_or(usize::MAX), found.len());
        let unchanged = found.into_iter().filter_map(|found| since.unchanged(found));
        let mut current: Vec<Match> = unchanged.filter(is_wanted).collect();
        if count >= limit && current.len() < count {
            return Ok(None); // Those that come next were not read.
        }
        let written = since.written()?.into_iter();
        current.extend(written.filter(|found| is_wanted(found) && filter.matches(raw(&found.stored.document))));
        current.sort_by(|a, b| a.key.cmp(&b.key));
        current.truncate(limit);
        Ok(Some(current))
    }
}
