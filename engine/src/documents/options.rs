//! The settings of an ordinary collection: its default time to live and its indexes.

use super::memtable::raw;
use crate::error::{Error, Result};
use ebbtide_documents::bson::RawDocument;
use ebbtide_documents::json::relaxed_text;
use ebbtide_documents::{DefaultTtl, Filter, ItemRules, Path, Purpose, TTL_SECONDS_MAX, TtlIndex};
use ebbtide_ttl::EXPIRE_AFTER_SECONDS_MAX;
use serde::{Deserialize, Serialize};

/// What an ordinary collection is created with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentsOptions {
    /// The time to live of documents without one of their own. Default: none, and then the field `ttl` of a document means
    /// nothing.
    pub default_ttl: DefaultTtl,
    /// The indexes, in the order in which they were created.
    pub indexes: Vec<IndexSpec>,
}

/// An index of an ordinary collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSpec {
    /// Its name, which no other index of the collection has.
    pub name: String,
    /// The paths, each with 1 for ascending or -1 for descending.
    pub key: Vec<(String, i32)>,
    /// Seconds after which a document expires, counted from the earliest date that the path reaches; `None` for an index
    /// that expires nothing.
    pub expire_after_seconds: Option<i64>,
    /// The `partialFilterExpression` as BSON, if there is one: the index is about documents that match it.
    pub filter: Option<Vec<u8>>,
}

impl IndexSpec {
    /// The filter as relaxed Extended JSON; `None` for an index of all documents.
    #[must_use]
    pub fn filter_text(&self) -> Option<String> {
        self.filter.as_deref().map(|filter| relaxed_text(raw(filter)))
    }
}

impl DocumentsOptions {
    /// Whether there is a rule by which documents may expire.
    #[must_use]
    pub fn expires(&self) -> bool {
        self.default_ttl != DefaultTtl::Off || self.indexes.iter().any(|index| index.expire_after_seconds.is_some())
    }

    /// The rules by which documents expire.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub(crate) fn rules(&self) -> Result<ItemRules> {
        let mut indexes = Vec::new();
        for index in &self.indexes {
            let filter = index.filter.as_deref().map(parse_filter).transpose()?;
            let Some(e) = index.expire_after_seconds else { continue };
            let ([(path, _)], 0..=EXPIRE_AFTER_SECONDS_MAX) = (index.key.as_slice(), e) else {
                return Err(Error::internal(format!("index '{}' cannot expire documents", index.name)));
            };
            let (name, path) = (index.name.clone(), path.clone());
            let e = u32::try_from(e).map_err(|e| Error::internal(e.to_string()))?;
            indexes.push(TtlIndex { name, path: Path::new(&path), expire_after_seconds: e, filter });
        }
        if let DefaultTtl::Seconds(n) = self.default_ttl
            && !(1..=TTL_SECONDS_MAX).contains(&n)
        {
            return Err(Error::internal(format!("a default time to live of {n} seconds is not possible")));
        }
        Ok(ItemRules { default_ttl: self.default_ttl, indexes })
    }
}

fn parse_filter(bytes: &[u8]) -> Result<Filter> {
    let document = RawDocument::from_bytes(bytes)
        .map_err(|e| Error::internal(format!("a filter of an index is not BSON: {e}")))?;
    Ok(Filter::parse(document, Purpose::Partial)?)
}

/// An ordinary collection in the manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DocumentsRecord {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) options: DocumentsOptions,
    /// Grows with every change of the rules.
    pub(crate) rules_epoch: u64,
    /// Records up to this sequence number are in segments; the log is replayed from the next one.
    pub(crate) sealed_seq: u64,
}
