//! What the manifest knows of the archives of indexes.

use super::ArchiveRecord;
use crate::error::Result;
use crate::options::check_keep_seconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where what an index expires is moved to, in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexArchive {
    pub(crate) url: String,
    /// For how many seconds after its time a measurement is kept there; none for ever.
    pub(crate) keep_seconds: Option<i64>,
}

/// The archives of the indexes of a collection.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexArchives {
    /// By the index's name.
    pub(crate) of: BTreeMap<String, IndexArchive>,
    /// What is known of each place, by its URL. Places that the indexes and the collection have left are among them.
    pub(crate) records: BTreeMap<String, ArchiveRecord>,
}

impl IndexArchive {
    /// What is wrong with it beside the E of its index, if anything is.
    pub(crate) fn check(&self, e: Option<i64>) -> Result<()> {
        super::check_url("expireInto", &self.url)?;
        self.keep_seconds.map_or(Ok(()), |keep| check_keep_seconds(keep, e))
    }
}

impl IndexArchives {
    /// Gives an index another archive, or none.
    pub(crate) fn set(&mut self, index: String, archive: Option<IndexArchive>) {
        let before = match &archive {
            Some(archive) => self.of.insert(index, archive.clone()),
            None => self.of.remove(&index),
        };
        let left = before.filter(|before| archive.is_none_or(|archive| archive.url != before.url));
        if let Some(record) = left.and_then(|left| self.records.get_mut(&left.url)) {
            *record = record.without_intent();
        }
    }

    /// Keeps what is known of the place that the collection leaves; returns what is known of its new one.
    pub(crate) fn moved(&mut self, left: Option<String>, record: &ArchiveRecord, url: Option<&str>) -> ArchiveRecord {
        // Earlier programs kept the owners without the place.
        let Some(left) = left else {
            return url.and_then(|url| self.records.remove(url)).unwrap_or_else(|| record.without_intent());
        };
        if *record != ArchiveRecord::default() {
            self.records.insert(left, record.without_intent());
        }
        url.and_then(|url| self.records.remove(url)).unwrap_or_default()
    }

    /// Removes those of indexes that are gone.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.of.keys().filter(|index| !is_there(index)).cloned().collect();
        gone.into_iter().for_each(|index| self.set(index, None));
    }
}
