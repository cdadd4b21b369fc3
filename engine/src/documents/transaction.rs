//! One command on an ordinary collection, while the thread that writes the log evaluates it.

use super::changes::Change;
use super::columns::{self, DocumentColumns};
use super::memtable::{Replaced, Row};
use super::options::DocumentsOptions;
use super::pace::{STRIDE, Stop};
use super::read_ahead::{Candidates, Since};
use super::snapshot::{self, DocumentsSnapshot, Hidden, Kept, Match};
use super::state::DocumentsState;
use super::stored::{Stored, raw};
use crate::error::{Error, Result};
use bytes::Bytes;
use ebbtide_documents::bson::raw::RawBsonRef;
use ebbtide_documents::bson::{RawDocument, RawDocumentBuf};
use ebbtide_documents::{Filter, ObjectIds, TTL_FIELD, Update, check_ttl, with_id};
use ebbtide_ttl::{Code, Precision, Timestamp};
use std::sync::Arc;

/// An update, and whether it sets `ttl`: one that does not leaves what is stored as it is, even what would be refused.
#[derive(Debug)]
pub(crate) struct Modification {
    pub(crate) update: Update,
    sets_ttl: bool,
}

impl Modification {
    /// Reads an update; `multi` as for [`Update::parse`].
    ///
    /// # Errors
    /// As for [`Update::parse`].
    pub(crate) fn parse(update: RawBsonRef<'_>, multi: bool) -> Result<Self> {
        let sets_ttl = update.as_document().is_some_and(sets_ttl);
        Ok(Modification { update: Update::parse(update, multi)?, sets_ttl })
    }
}

/// Whether an update names `ttl` in any of its operators, or is a whole document.
fn sets_ttl(update: &RawDocument) -> bool {
    let is_ttl = |path: &str| path.split('.').next() == Some(TTL_FIELD);
    let names_it = |fields: RawBsonRef<'_>| {
        let mut fields = fields.as_document().into_iter().flatten().filter_map(std::result::Result::ok);
        fields.any(|(path, value)| is_ttl(path.as_str()) || value.as_str().is_some_and(is_ttl))
    };
    let mut members = update.iter().filter_map(std::result::Result::ok);
    members.any(|(name, value)| !name.as_str().starts_with('$') || names_it(value))
}

/// What a command sees, and what it has done so far.
pub(crate) struct Transaction<'a> {
    object_ids: &'a ObjectIds,
    state: &'a mut DocumentsState,
    now: Timestamp,
    /// Why the clock is not trusted, if it is not.
    held: Option<String>,
    stop: Stop,
    changes: Vec<Change>,
    /// What to put back if the command fails: the columns as they were, and what each change replaced.
    columns: Arc<DocumentColumns>,
    replaced: Vec<Replaced>,
}

impl<'a> Transaction<'a> {
    /// Begins a command at the instant `now`; `held` says why the clock is not trusted, if it is not.
    pub(crate) fn new(
        state: &'a mut DocumentsState,
        object_ids: &'a ObjectIds,
        now: Timestamp,
        held: Option<String>,
    ) -> Self {
        let columns = state.columns.clone();
        Transaction {
            object_ids,
            state,
            now,
            held,
            stop: Stop::default(),
            changes: Vec::new(),
            columns,
            replaced: Vec::new(),
        }
    }

    /// Sets what may stop the command while it reads and writes.
    pub(crate) fn set_stop(&mut self, stop: Stop) {
        self.stop = stop;
    }

    /// A document with its `_id`, which is made where there is none, and the key of that.
    pub(crate) fn with_id(&self, document: RawDocumentBuf) -> Result<(RawDocumentBuf, Bytes)> {
        let (document, key) = with_id(document, || self.object_ids.make(self.now))?;
        Ok((document, key.into()))
    }

    /// What the command did so far, in order.
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Takes back what the command did.
    pub(crate) fn roll_back(self) {
        self.state.columns = self.columns;
        for (change, replaced) in self.changes.into_iter().zip(self.replaced).rev() {
            self.state.memtable.put_back(change.key, replaced);
        }
    }

    /// The `_ts` of what the command writes.
    pub(crate) fn written(&self) -> i64 {
        self.now.to_units_saturating(Precision::Ms)
    }

    pub(crate) fn options(&self) -> &DocumentsOptions {
        &self.state.options
    }

    /// The visible document with a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Match>> {
        Ok(self.stored(key)?.filter(|found| found.is_visible))
    }

    /// The stored document with a key, expired or not.
    pub(crate) fn stored(&self, key: &[u8]) -> Result<Option<Match>> {
        let found = self.state.get(key)?;
        Ok(found.map(|found| Match::new(self.state, self.now, Bytes::copy_from_slice(key), found)))
    }

    /// Whether the clock guard holds.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Documents that match a filter, in the order of their keys, at most `limit`. `ahead` is what was found with the same filter
    /// and limit before the command was queued.
    pub(crate) fn matching<T: Kept>(
        &self,
        filter: &Filter,
        hidden: Hidden,
        limit: Option<usize>,
        ahead: Option<Candidates<T>>,
    ) -> Result<Vec<Match<T>>> {
        if let Some(candidates) = ahead
            && let Some(found) = candidates.brought_up_to(self.state, self.now, filter)?
        {
            return Ok(found);
        }
        snapshot::matching(self.state, self.now, filter, hidden, limit, &self.stop)
    }

    /// What has changed since a version of the collection that was read with this filter; `None` if everything has to be read again.
    pub(crate) fn since(&self, before: &DocumentsSnapshot, filter: &Filter) -> Option<Since<'_>> {
        Since::of(before, self.state, self.now, filter)
    }

    /// Visits the stored documents that may match a filter.
    pub(crate) fn visit(&self, filter: &Filter, visitor: &mut dyn FnMut(Match) -> Result<bool>) -> Result<()> {
        snapshot::visit_stored(self.state, self.now, filter, &self.stop, visitor)
    }

    /// Writes a document under its key, whatever was there before. An expired document with this key is gone for good.
    pub(crate) fn put(&mut self, key: Bytes, document: Bytes) -> Result<()> {
        self.put_as_of(key, document, self.written())
    }

    /// As [`Transaction::put`], with the `_ts` of an earlier write: for a restore.
    pub(crate) fn put_as_of(&mut self, key: Bytes, document: Bytes, written: i64) -> Result<()> {
        self.step()?;
        if let Some(held) = &self.held
            && self.stored(&key)?.is_some_and(|found| !found.is_visible)
        {
            return Err(replaces_expired(held));
        }
        let old = self.state.row_of(&key)?;
        self.apply(Change { key, stored: Some(Stored { written, document }) }, old);
        Ok(())
    }

    /// Writes a document in the place of one that was found, and that the command has not changed since.
    pub(crate) fn put_over<T>(&mut self, found: &Match<T>, document: Bytes) -> Result<()> {
        self.step()?;
        if let Some(held) = self.held.as_ref().filter(|_| !found.is_visible) {
            return Err(replaces_expired(held));
        }
        let stored = Some(Stored { written: self.written(), document });
        self.apply(Change { key: found.key.clone(), stored }, found.row);
        Ok(())
    }

    /// Applies an update to a document that was found; returns whether it changed anything. `_ts` moves in any case.
    pub(crate) fn update(&mut self, found: &Match, change: &Modification) -> Result<bool> {
        let before = raw(&found.stored.document);
        let changed = change.update.apply(before, self.written())?;
        if change.sets_ttl {
            check_ttl(changed.as_deref().unwrap_or(before), self.state.options.default_ttl)?;
        }
        let document = match &changed {
            Some(document) => Bytes::copy_from_slice(document.as_bytes()),
            None => found.stored.document.clone(),
        };
        self.put_over(found, document)?;
        Ok(changed.is_some())
    }

    /// Removes the document with a key for good, expired or not.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<()> {
        match self.stored(key)? {
            Some(found) => self.remove_found(found),
            None => Ok(()),
        }
    }

    /// Removes a document that was found, and that the command has not changed since, for good.
    pub(crate) fn remove_found<T>(&mut self, found: Match<T>) -> Result<()> {
        self.step()?;
        self.apply(Change { key: found.key, stored: None }, found.row);
        Ok(())
    }

    /// Asks at the first change and every so often whether the command goes on.
    fn step(&self) -> Result<()> {
        if self.changes.len().is_multiple_of(STRIDE as usize) { self.stop.check() } else { Ok(()) }
    }

    fn apply(&mut self, change: Change, old: Option<Row>) {
        let replaced = match &change.stored {
            Some(stored) => {
                columns::observe(&mut self.state.columns, raw(&stored.document));
                self.state.memtable.put(change.key.clone(), stored.clone(), old)
            }
            None => self.state.memtable.remove(&change.key, old),
        };
        self.replaced.push(replaced);
        self.changes.push(change);
    }
}

fn replaces_expired(held: &str) -> Error {
    let what = format!("the new document would replace an expired one for good, and the clock guard holds: {held}");
    Error::new(Code::IllegalOperation, what)
}
