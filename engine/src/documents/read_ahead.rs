//! What a command will change, read before it is queued: other writes wait only while that is brought up to date, not while a
//! whole collection is read.

use super::index::Chosen;
use super::snapshot::{DocumentsSnapshot, Hidden, Kept, Match};
use super::state::DocumentsState;
use super::stored::raw;
use crate::error::Result;
use bytes::Bytes;
use ebbtide_documents::Filter;
use ebbtide_ttl::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes of what one command may keep before it is queued. A command that finds more reads them when its turn comes.
pub(crate) const BYTES_MAX: usize = 32 << 20;
/// A command that names at most this number of `_id`s looks them up when its turn comes.
const FEW_KEYS: usize = 100;

/// Whether it is worth reading the documents of this filter before the command is queued.
pub(crate) fn is_worth_it(filter: &Filter) -> bool {
    filter.id_keys().is_none_or(|keys| keys.len() > FEW_KEYS)
}

/// The differences between a version of a collection that was read and the version that a command changes.
pub(crate) struct Since<'a> {
    state: &'a DocumentsState,
    now: Timestamp,
    keys: BTreeSet<Bytes>,
}

impl<'a> Since<'a> {
    /// `None` if everything has to be read again: documents were frozen or sealed, segments or rules have changed, or the clock went
    /// back, so that what had expired has not. If not, the search with this filter is counted as a use of its index.
    pub(super) fn of(
        before: &DocumentsSnapshot,
        state: &'a DocumentsState,
        now: Timestamp,
        filter: &Filter,
    ) -> Option<Since<'a>> {
        let is_same = before.state.id == state.id
            && before.state.rules_epoch == state.rules_epoch
            && Arc::ptr_eq(&before.state.segments, &state.segments);
        if !is_same || now < before.now {
            return None;
        }
        let keys = state.memtable.changed_since(&before.state.memtable)?;
        match filter.id_keys() {
            Some(_) => state.usage.count_id(),
            None => Chosen::of(&state.options.indexes, filter).iter().for_each(|index| state.usage.count(index.name)),
        }
        Some(Since { state, now, keys })
    }

    /// A document that was read, as it is now; `None` if it was written or removed since.
    pub(crate) fn unchanged<T>(&self, found: Match<T>) -> Option<Match<T>> {
        let is_superseded = found.row.is_some_and(|row| self.state.memtable.is_superseded(row));
        (!is_superseded && !self.keys.contains(&found.key)).then(|| found.at(self.now))
    }

    /// Visits the documents that were written since, in the order of their keys, until the visitor returns false.
    pub(crate) fn visit_written(&self, visitor: &mut dyn FnMut(Match) -> Result<bool>) -> Result<()> {
        for key in &self.keys {
            if let Some(found) = self.state.get(key)?
                && !visitor(Match::new(self.state, self.now, key.clone(), found))?
            {
                break;
            }
        }
        Ok(())
    }
}

/// The documents that matched a filter before the command was queued.
pub(crate) struct Candidates<T> {
    before: DocumentsSnapshot,
    hidden: Hidden,
    limit: Option<usize>,
    found: Vec<Match<T>>,
}

impl<T: Kept> Candidates<T> {
    /// The documents of a snapshot that match a filter, in the order of their keys, at most `limit`; `None` if they are too large.
    pub(crate) fn of(
        before: DocumentsSnapshot,
        filter: &Filter,
        hidden: Hidden,
        limit: Option<usize>,
    ) -> Result<Option<Candidates<T>>> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        before.visit(filter, &mut |one| {
            if is_wanted(&one, hidden) && filter.matches(raw(&one.stored.document)) {
                let kept: Match<T> = one.keep();
                bytes += size_of::<Match<T>>() + kept.key.len() + kept.stored.bytes();
                found.push(kept);
            }
            Ok(bytes <= BYTES_MAX && found.len() < limit.unwrap_or(usize::MAX))
        })?;
        Ok((bytes <= BYTES_MAX).then_some(Candidates { before, hidden, limit, found }))
    }

    /// What matches in the version that the command changes; `None` if that has to be found again.
    pub(super) fn brought_up_to(
        self,
        state: &DocumentsState,
        now: Timestamp,
        filter: &Filter,
    ) -> Result<Option<Vec<Match<T>>>> {
        let Candidates { before, hidden, limit, found } = self;
        let Some(since) = Since::of(&before, state, now, filter) else { return Ok(None) };
        let (limit, count) = (limit.unwrap_or(usize::MAX), found.len());
        let unchanged = found.into_iter().filter_map(|found| since.unchanged(found));
        let mut current: Vec<Match<T>> = unchanged.filter(|found| is_wanted(found, hidden)).collect();
        if count >= limit && current.len() < count {
            return Ok(None); // Those that come next were not read.
        }
        since.visit_written(&mut |one| {
            if is_wanted(&one, hidden) && filter.matches(raw(&one.stored.document)) {
                current.push(one.keep());
            }
            Ok(true)
        })?;
        current.sort_by(|a, b| a.key.cmp(&b.key));
        current.truncate(limit);
        Ok(Some(current))
    }
}

fn is_wanted<T>(found: &Match<T>, hidden: Hidden) -> bool {
    found.is_visible || hidden == Hidden::Included
}
