//! The archives of a collection: its own, and those of its indexes.

use super::apart::{check_folder, check_places};
use super::index::IndexArchive;
use super::{ArchiveNumber, ArchiveRecord, Intent};
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::state::{CollectionState, State};
use ebbtide_ttl::{COLLECTION_RULE, Code, RuleChange, RuleSpec};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// An archive of a collection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Archive<'a> {
    /// The index whose archive it is; none for that of the collection.
    pub(crate) index: Option<&'a str>,
    pub(crate) url: &'a str,
    pub(crate) keep_seconds: Option<i64>,
    pub(crate) record: &'a ArchiveRecord,
}

static UNKNOWN: ArchiveRecord = ArchiveRecord { owners: Vec::new(), version: None, intent: None };

impl CollectionState {
    /// Its archives, its own first.
    pub(crate) fn archives(&self) -> impl Iterator<Item = Archive<'_>> {
        let keep_seconds = self.options.keep_seconds;
        let own = self.options.expire_into.as_deref();
        let own = own.map(|url| Archive { index: None, url, keep_seconds, record: &self.archive });
        let indexes = &self.index_archives;
        let of_indexes = indexes.of.iter().map(|(index, IndexArchive { url, keep_seconds })| {
            let record = indexes.records.get(url).unwrap_or(&UNKNOWN);
            Archive { index: Some(index), url, keep_seconds: *keep_seconds, record }
        });
        own.into_iter().chain(of_indexes)
    }

    /// Forgets that it owns places that it has left.
    pub(crate) fn leave_places(&self) {
        self.archiving.retain(|url| self.archive_at(url).is_some());
    }

    pub(crate) fn archive_at(&self, url: &str) -> Option<Archive<'_>> {
        self.archives().find(|archive| archive.url == url)
    }

    /// The URL of the archive that what goes by a rule is moved to; none if it is deleted.
    pub(crate) fn archive_of(&self, rule: usize) -> Option<&str> {
        let index = (rule != COLLECTION_RULE).then(|| self.rules.rule(rule)).flatten().and_then(|view| view.name);
        let of_index = index.and_then(|index| self.index_archives.of.get(index)).map(|archive| archive.url.as_str());
        of_index.or(self.options.expire_into.as_deref())
    }

    /// What is being moved to any of its archives.
    pub(super) fn intents(&self) -> impl Iterator<Item = &Intent> {
        self.archives().filter_map(|archive| archive.record.intent.as_ref())
    }

    /// The numbers with which this database owned any of its places.
    pub(super) fn owners(&self) -> Vec<ArchiveNumber> {
        let records = std::iter::once(&*self.archive).chain(self.index_archives.records.values());
        records.flat_map(|record| record.owners.iter().copied()).collect()
    }

    /// The operation that changes what is known of an archive.
    pub(super) fn set_archive(&self, url: &str, archive: ArchiveRecord) -> Op {
        match self.options.expire_into.as_deref() == Some(url) {
            true => Op::SetArchive { collection: self.id, archive },
            false => Op::SetArchiveAt { collection: self.id, url: url.to_owned(), archive },
        }
    }

    /// The operations that give new indexes their archives. Those that were there before must have the same.
    ///
    /// # Errors
    /// [`Code::IndexOptionsConflict`] if an index has another one, [`Code::InvalidOptions`] for a bad one.
    pub(crate) fn archives_of_new(&self, specs: &[RuleSpec]) -> Result<Vec<Op>> {
        let mut archives: BTreeMap<&str, Option<IndexArchive>> = BTreeMap::new();
        for view in self.rules.iter() {
            archives.extend(view.name.map(|name| (name, self.index_archives.of.get(name).cloned())));
        }
        let mut ops = Vec::new();
        for spec in specs {
            let archive = match spec.archive() {
                (None, Some(_)) => return Err(no_archive(spec.name())),
                (url, keep_seconds) => url.map(|url| IndexArchive { url: url.to_owned(), keep_seconds }),
            };
            match archives.get(spec.name()) {
                Some(present) if *present == archive => continue,
                Some(_) => {
                    let what =
                        format!("the index '{}' exists with another archive: change it with collMod", spec.name());
                    return Err(Error::new(Code::IndexOptionsConflict, what));
                }
                None => {}
            }
            if let Some(archive) = &archive {
                archive.check(Some(spec.expire_after_seconds()))?;
                let (collection, index) = (self.id, spec.name().to_owned());
                ops.push(Op::SetIndexArchive { collection, index, archive: Some(archive.clone()) });
            }
            archives.insert(spec.name(), archive);
        }
        Ok(ops)
    }

    /// The operation that changes the archive of an index that is changed, if it changes.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] for a bad one.
    pub(crate) fn changed_archive(&self, (index, e): (&str, i64), change: &RuleChange) -> Result<Option<Op>> {
        let present = self.index_archives.of.get(index);
        let keep = change.keep_seconds;
        let archive = match (&change.expire_into, present) {
            (Some(None), _) => None,
            (Some(Some(url)), _) => Some(url),
            (None, present) => present.map(|present| &present.url),
        };
        let Some(url) = archive else {
            return match (keep.flatten(), present) {
                (Some(_), _) => Err(no_archive(index)),
                (None, None) => Ok(None),
                (None, Some(_)) => Ok(Some(self.set_index_archive(index, None))),
            };
        };
        let keep_seconds = keep.unwrap_or_else(|| present.and_then(|present| present.keep_seconds));
        let archive = IndexArchive { url: url.clone(), keep_seconds };
        archive.check(Some(e))?;
        Ok((present != Some(&archive)).then(|| self.set_index_archive(index, Some(archive))))
    }

    fn set_index_archive(&self, index: &str, archive: Option<IndexArchive>) -> Op {
        Op::SetIndexArchive { collection: self.id, index: index.to_owned(), archive }
    }
}

fn no_archive(index: &str) -> Error {
    let what = format!("keepSeconds of the index '{index}' is about an archive: give the index one with expireInto");
    Error::new(Code::InvalidOptions, what)
}

/// Refuses an edit after which two archives would have one URL, or a new one would be within another place or the folder of the
/// database: each needs a table of its own.
pub(crate) fn check_unshared((state, database): (&State, &Path), name: &str, ops: &[Op]) -> Result<()> {
    let present = state.collections.get(name);
    let mut of_indexes = present.map(|collection| collection.index_archives.of.clone()).unwrap_or_default();
    let mut own = present.and_then(|collection| collection.options.expire_into.clone());
    for op in ops {
        match op {
            Op::SetExpireInto { url, .. } => own.clone_from(url),
            Op::SetIndexArchive { index, archive: Some(archive), .. } => {
                of_indexes.insert(index.clone(), archive.clone());
            }
            Op::SetIndexArchive { index, archive: None, .. } => drop(of_indexes.remove(index)),
            _ => {}
        }
    }
    let mut urls = HashSet::new();
    for url in own.iter().chain(of_indexes.values().map(|archive| &archive.url)) {
        let of_other = |c: &&Arc<CollectionState>| c.name != name && c.archive_at(url).is_some();
        let taken_by = match state.collections.values().find(of_other) {
            Some(other) => format!("collection '{}' has this archive", other.name),
            None if !urls.insert(url) => format!("two archives of collection '{name}' have one URL"),
            None if present.is_some_and(|collection| collection.archive_at(url).is_some()) => continue,
            None => {
                check_folder(database, url)?;
                check_places(state, url)?;
                continue;
            }
        };
        let what = format!("{taken_by}: each needs a place of its own");
        return Err(Error::new(Code::InvalidOptions, what));
    }
    Ok(())
}
