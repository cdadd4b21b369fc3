//! The settings of an ordinary collection: its default time to live and its indexes.

use super::stored::raw;
use crate::error::{Error, Result};
use ebbtide_documents::bson::RawDocument;
use ebbtide_documents::json::relaxed_text;
use ebbtide_documents::{DefaultTtl, Filter, ItemRules, Path, Purpose, TTL_SECONDS_MAX, TtlIndex};
use ebbtide_ttl::{Code, EXPIRE_AFTER_SECONDS_MAX, checked_index_name};
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
    /// Checks the name, the key, E and the filter.
    ///
    /// # Errors
    /// [`Code::CannotCreateIndex`] for a name or a key that no index can have, an E out of range and one with several key fields;
    /// [`Code::InvalidIndexSpecificationOption`] for an E with `_id`; errors of the filter.
    pub(crate) fn check(&self) -> Result<()> {
        let cannot = |what: String| Err(Error::new(Code::CannotCreateIndex, what));
        checked_index_name(&self.name)?;
        if self.key.is_empty() {
            return cannot("the key of an index is empty: name at least one field, such as {expires: 1}".to_owned());
        }
        for (path, direction) in &self.key {
            check_key_path(path)?;
            if !matches!(direction, 1 | -1) {
                return cannot(format!("the value of key field '{path}' must be 1 or -1"));
            }
        }
        if let Some(e) = self.expire_after_seconds {
            check_ttl_key(&self.key)?;
            if !(0..=EXPIRE_AFTER_SECONDS_MAX).contains(&e) {
                return cannot(format!("expireAfterSeconds is {e}: it must be 0 to {EXPIRE_AFTER_SECONDS_MAX}"));
            }
        }
        self.filter.as_deref().map(parse_filter).transpose().map(drop)
    }

    /// Checks that another index of the collection has neither its name nor its key and filter.
    pub(crate) fn check_beside(&self, other: &IndexSpec) -> Result<()> {
        if (&other.key, &other.filter) == (&self.key, &self.filter) {
            let what = format!(
                "index '{}' has this key and filter already, with another name or another expireAfterSeconds: change it with \
                 collMod, or drop it first",
                other.name
            );
            return Err(Error::new(Code::IndexOptionsConflict, what));
        }
        if other.name == self.name {
            let what = format!("an index named '{}' with another key or filter exists: choose another name", self.name);
            return Err(Error::new(Code::IndexKeySpecsConflict, what));
        }
        Ok(())
    }

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

    /// Checks the settings that are not those of `before`, as the commands do: what is stored was checked by the program that
    /// stored it.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] for a default time to live that is out of range, and those of [`IndexSpec::check`].
    pub(crate) fn check(&self, before: &DocumentsOptions) -> Result<()> {
        if let DefaultTtl::Seconds(n) = self.default_ttl
            && !(1..=TTL_SECONDS_MAX).contains(&n)
        {
            let what = format!("defaultTTL is {n}: it must be -1, 1 to {TTL_SECONDS_MAX} seconds, or off");
            return Err(Error::new(Code::InvalidOptions, what));
        }
        for (at, index) in self.indexes.iter().enumerate() {
            if before.indexes.contains(index) && !self.indexes[..at].contains(index) {
                continue;
            }
            index.check()?;
            let others = self.indexes.iter().enumerate().filter(|(other, _)| *other != at);
            others.map(|(_, other)| other).try_for_each(|other| index.check_beside(other))?;
        }
        self.rules().map(drop)
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

/// Checks a path in the key of an index.
pub(crate) fn check_key_path(path: &str) -> Result<()> {
    if path.split('.').any(|part| part.is_empty() || part.starts_with('$')) || path.contains('\0') {
        let what = format!("'{}' is not a path that an index can have", path.escape_debug());
        return Err(Error::new(Code::CannotCreateIndex, what));
    }
    Ok(())
}

/// Checks that an index with this key can expire documents.
pub(crate) fn check_ttl_key(key: &[(String, i32)]) -> Result<()> {
    match key {
        [(path, _)] if path == "_id" => {
            let what = "an index on _id cannot expire documents: choose a field that holds a date";
            Err(Error::new(Code::InvalidIndexSpecificationOption, what))
        }
        [_] => Ok(()),
        _ => {
            let what = "a TTL index has one key field: make a separate index for the others";
            Err(Error::new(Code::CannotCreateIndex, what))
        }
    }
}

fn parse_filter(bytes: &[u8]) -> Result<Filter> {
    let document = RawDocument::from_bytes(bytes)
        .map_err(|e| Error::new(Code::BadValue, format!("a filter of an index is not BSON: {e}")))?;
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
