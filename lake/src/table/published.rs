//! The log of a published table: versions are added, and old ones leave the store.
//!
//! The entries before a checkpoint that is older than an hour are removed, so that what has expired is not named for longer. A process
//! that knows the log only up to an entry that was removed since must not continue there: a number that is free again is not the next one.

use super::{Table, UNNAMED_FOR};
use crate::checkpoint;
use crate::file::hex;
use crate::log::{Log, name_of, version_in};
use crate::publish::published_by;
use crate::store::StoreError;
use crate::views::views;
use bytes::Bytes;
use ebbtide::{Publication, SinkError};

impl Table {
    /// Reads versions that are not known yet, up to the newest.
    pub(super) fn refresh_published(&self, log: &mut Log) -> Result<(), SinkError> {
        if log.next > 0 && self.store.get(&name_of(log.next - 1))?.is_none() {
            *log = Log::default();
        }
        self.refresh(log, None)
    }

    /// Makes the next version, if nobody else has; returns whether it was made.
    pub(super) fn put_published(&self, log: &mut Log, content: &str) -> Result<bool, SinkError> {
        let version = log.next;
        if !self.put(log, content)? {
            return Ok(false);
        }
        match self.is_next(version) {
            Ok(true) => {
                let since = log.checkpoints.last().map(|newest| newest.made_at).or(log.first_at);
                let is_old = since.is_some_and(|since| since < self.store.now().saturating_sub(UNNAMED_FOR));
                if is_old || checkpoint::is_due(version) {
                    self.checkpoint(log);
                }
                Ok(true)
            }
            Ok(false) => {
                *log = Log::default();
                self.store.delete(&name_of(version))?;
                Ok(false)
            }
            Err(error) => {
                // It is not known whether what was applied is part of the table.
                *log = Log::default();
                Err(error.into())
            }
        }
    }

    /// Whether a version follows the one before, which is there for as long as the version is part of the table.
    fn is_next(&self, version: u64) -> Result<bool, StoreError> {
        match version.checked_sub(1) {
            Some(before) => Ok(self.store.get(&name_of(before))?.is_some()),
            None => Ok(self.store.get(checkpoint::LAST)?.is_none()),
        }
    }

    /// Removes from the store the entries of the log before the newest checkpoint that is older than an hour.
    pub(super) fn clean_log(&self, log: &mut Log) -> Result<(), SinkError> {
        let oldest = self.store.now().saturating_sub(UNNAMED_FOR);
        let Some(first) = log.checkpoints.iter().rposition(|checkpoint| checkpoint.made_at < oldest) else {
            return Ok(());
        };
        let version = log.checkpoints[first].version;
        if log.begins_at == Some(version) {
            return Ok(());
        }
        let listed = self.store.list(checkpoint::FOLDER)?;
        let mut unneeded: Vec<_> = listed
            .into_iter()
            .filter_map(|object| Some((version_in(&object.name)?, object.name)))
            .filter(|(of, _)| *of < version)
            .collect();
        // Who has read a checkpoint finds the entries after it until all older checkpoints are gone.
        unneeded.sort_by_key(|(of, name)| (!checkpoint::is_name(name), *of));
        for (_, name) in unneeded {
            self.store.delete(&format!("{}/{name}", checkpoint::FOLDER))?;
        }
        log.checkpoints.drain(..first);
        log.begins_at = Some(version);
        Ok(())
    }

    /// Whether the publisher is not the one of the newest version, but may be the next.
    pub(super) fn check_publisher(&self, log: &Log, content: &Publication) -> Result<bool, StoreError> {
        let number = hex(&content.owner);
        match &log.owner {
            None if log.next > 0 => Err(self.error("there is a table that Ebbtide did not make: name another place")),
            None => Ok(true),
            Some(owner) if owner.of != published_by(&content.identity, content.collection) => {
                Err(self.error("the table of another database or collection is there: name another place"))
            }
            Some(owner) if owner.number == number => Ok(false),
            Some(owner) if content.adopts || content.known.iter().any(|known| hex(known) == owner.number) => Ok(true),
            Some(_) => Err(self.error(
                "a copy of this database publishes to this place: PUBLISH it here again to take the table over, or name another place",
            )),
        }
    }

    /// Writes the views of a published table, those that have changed.
    pub(super) fn put_views(&self, content: &Publication) -> Result<(), SinkError> {
        let mut present = self.views.lock();
        for (name, text) in views(&self.url, content) {
            if present.get(name) != Some(&text) {
                self.store.put(name, Bytes::from(text.clone()))?;
                present.insert(name.to_owned(), text);
            }
        }
        Ok(())
    }
}
