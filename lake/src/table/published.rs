//! The log of a published table: versions are added, and old ones leave the store.
//!
//! The entries before a checkpoint that is older than an hour are removed, the oldest first, so that what has expired is not named for
//! longer. A process that knows the log only up to an entry that was removed since must not continue there: a number that is free again
//! is not the next one. So what is known of the log counts only while its newest entry is there and no checkpoint is newer. After a version
//! was made, the same is checked of the version before it.

use super::{Table, UNNAMED_FOR};
use crate::checkpoint;
use crate::file::hex;
use crate::log::{Log, name_of, version_in};
use crate::publish::published_by;
use crate::store::StoreError;
use crate::views::views;
use bytes::Bytes;
use ebbtide::{Publication, SinkError};
use std::collections::VecDeque;

/// How many entries of a log are removed with one version at most: the next one is not to wait for long.
const REMOVED_AT_ONCE: usize = 100;

/// Entries of the log that are to be removed.
#[derive(Debug, Default)]
pub(super) struct Unneeded {
    /// Those before this version.
    before: u64,
    /// Their names, in the order in which they go.
    names: VecDeque<String>,
}

impl Table {
    /// Reads versions that are not known yet, up to the newest. What was known before is forgotten if it is not part of the table any more.
    pub(super) fn refresh_newest(&self, log: &mut Log) -> Result<(), SinkError> {
        for _ in 0..2 {
            self.refresh(log, None)?;
            if log.next == 0 || self.is_part(log.next - 1, log.newest)? {
                return Ok(());
            }
            *log = Log::default();
        }
        Err(self.error("entries of its log are missing: it ends before its newest checkpoint").into())
    }

    /// Whether the entry of a version, with this CRC-32, is there, and no checkpoint is newer. Later entries may be unknown to this process,
    /// but no earlier one is.
    fn is_part(&self, version: u64, crc: Option<u32>) -> Result<bool, StoreError> {
        let is_it = |found: Bytes| crc.is_none_or(|crc| crc == crc32fast::hash(&found));
        Ok(self.newest_checkpoint()?.is_none_or(|newest| newest <= version)
            && self.store.get(&name_of(version))?.is_some_and(is_it))
    }

    /// The version of the newest checkpoint, as the store says.
    pub(super) fn newest_checkpoint(&self) -> Result<Option<u64>, StoreError> {
        Ok(self.store.get(checkpoint::LAST)?.and_then(|pointer| checkpoint::version_of(&pointer)))
    }

    /// Makes the next version, if nobody else has; returns whether it was made. An entry that took a number which had become free is not part
    /// of the table. It is removed with the entries before the next checkpoint.
    pub(super) fn put_published(&self, log: &mut Log, content: &str, may_vacuum: bool) -> Result<bool, SinkError> {
        let (version, before) = (log.next, log.newest);
        if !self.put(log, content)? {
            return Ok(false);
        }
        let is_next = match version.checked_sub(1) {
            Some(last) => self.is_part(last, before),
            None => self.newest_checkpoint().map(|newest| newest.is_none()),
        };
        if !matches!(is_next, Ok(true)) {
            *log = Log::default();
            return Ok(is_next?);
        }
        let since = log.checkpoints.last().map(|newest| newest.made_at).or(log.first_at);
        let now = self.store.now();
        let is_old = since.is_some_and(|since| since < now.saturating_sub(UNNAMED_FOR) || since > now);
        if checkpoint::is_due(version) || (is_old && may_vacuum) {
            self.checkpoint(log);
        }
        Ok(true)
    }

    /// Removes entries of the log before the newest checkpoint that is older than an hour: at most [`REMOVED_AT_ONCE`], and the rest with
    /// later versions.
    pub(super) fn clean_log(&self) {
        if let Err(error) = self.try_clean_log() {
            tracing::warn!(url = %self.url, %error, "old entries of the log of a table could not be removed");
        }
    }

    fn try_clean_log(&self) -> Result<(), SinkError> {
        let mut unneeded = self.unneeded.lock();
        if unneeded.names.is_empty() {
            let Some(version) = self.checkpoint_to_begin_at().filter(|version| *version > unneeded.before) else {
                return Ok(());
            };
            if self.read_checkpoint(version)?.is_none() {
                return Ok(());
            }
            let listed = self.store.list(checkpoint::FOLDER)?.into_iter();
            let of_log = listed.filter_map(|object| Some((version_in(&object.name)?, object.name)));
            let mut names: Vec<(u64, String)> = of_log.filter(|(of, _)| *of < version).collect();
            // Checkpoints first: as long as one is there, so are the entries after it.
            names.sort_by_key(|(of, name)| (!checkpoint::is_name(name), *of));
            *unneeded = Unneeded { before: version, names: names.into_iter().map(|(_, name)| name).collect() };
        }
        for _ in 0..REMOVED_AT_ONCE {
            let Some(name) = unneeded.names.front() else { break };
            self.store.delete(&format!("{}/{name}", checkpoint::FOLDER))?;
            unneeded.names.pop_front();
        }
        Ok(())
    }

    /// The version of the newest checkpoint that is older than an hour.
    fn checkpoint_to_begin_at(&self) -> Option<u64> {
        let oldest = self.store.now().saturating_sub(UNNAMED_FOR);
        let mut log = self.log.lock();
        let found = log.checkpoints.iter().rposition(|checkpoint| checkpoint.made_at < oldest)?;
        log.checkpoints.drain(..found);
        log.checkpoints.first().map(|checkpoint| checkpoint.version)
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
