//! $lookup: documents of another collection with an equal value.

use super::memory::Memory;
use super::project::set;
use super::{Result, kept_bytes};
use crate::expression::Value;
use crate::paths::{EndInList, Path, index_keys};
use crate::{ExpressionError, Filter, Purpose, value_key};
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::ops::ControlFlow;

/// The other collections of a database, for `$lookup`.
pub trait Foreign: Debug + Send {
    /// All documents of a collection, of `bytes_max` bytes at most; none of one that does not exist. `stop` is asked now and then
    /// whether to give up.
    ///
    /// # Errors
    /// 146 for more than that, errors of reading, and any if it was stopped.
    fn documents(
        &self,
        collection: &str,
        bytes_max: usize,
        stop: &dyn Fn() -> bool,
    ) -> std::result::Result<Vec<RawDocumentBuf>, ExpressionError>;
}

/// No other collections.
impl Foreign for () {
    fn documents(
        &self,
        _: &str,
        _: usize,
        _: &dyn Fn() -> bool,
    ) -> std::result::Result<Vec<RawDocumentBuf>, ExpressionError> {
        Ok(Vec::new())
    }
}

/// What a `$lookup` asks for.
#[derive(Debug, Clone)]
pub(super) struct Lookup {
    pub(super) from: String,
    pub(super) local: Path,
    pub(super) foreign: Path,
    pub(super) into: Vec<String>,
}

/// The other collection, by the values of the field.
#[derive(Debug)]
pub(super) struct Table {
    documents: Vec<RawDocumentBuf>,
    by_value: HashMap<Vec<u8>, Vec<usize>>,
    /// About the memory that it takes.
    pub(super) bytes: usize,
}

impl Lookup {
    pub(super) fn load(&self, foreign: &dyn Foreign, memory: &Memory, stop: &dyn Fn() -> bool) -> Result<Table> {
        let documents = foreign.documents(&self.from, memory.left(), stop)?;
        let mut by_value: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        let mut bytes = 0;
        for (at, document) in documents.iter().enumerate() {
            let before = bytes;
            bytes += kept_bytes(document);
            for key in index_keys(document, &self.foreign) {
                // An empty list has no element; what is looked for then is null or the list.
                let key = if key == RawBsonRef::Undefined { RawBsonRef::Null } else { key };
                let key = value_key(key);
                bytes += key.len() + 64;
                let found = by_value.entry(key).or_default();
                if found.last() != Some(&at) {
                    found.push(at);
                }
            }
            memory.take(bytes - before, "$lookup")?;
        }
        Ok(Table { documents, by_value, bytes })
    }

    /// The document with the list of those that it finds.
    pub(super) fn joined(&self, document: &RawDocument, table: &Table) -> Result<RawDocumentBuf> {
        let mut wanted: Vec<RawBson> = Vec::new();
        self.local.visit(document, EndInList::Elements, &mut |value| {
            wanted.extend(value.filter(|value| *value != RawBsonRef::Undefined).map(crate::raw::owned));
            ControlFlow::Continue(())
        });
        // Null is looked for only where the path reaches nothing at all.
        if wanted.is_empty() {
            wanted.push(RawBson::Null);
        }
        let mut found: BTreeSet<usize> = BTreeSet::new();
        for value in wanted {
            // Lists are equal to lists within documents too, which the table does not know.
            let everything: Vec<usize>;
            let candidates = match &value {
                RawBson::Array(_) => {
                    everything = (0..table.documents.len()).collect();
                    everything.as_slice()
                }
                value => table.by_value.get(&value_key(value.as_raw_bson_ref())).map_or(&[][..], Vec::as_slice),
            };
            let filter = self.filter(value.clone())?;
            found.extend(candidates.iter().filter(|at| filter.matches(&table.documents[**at])));
        }
        let list: RawArrayBuf = found.into_iter().map(|at| RawBson::Document(table.documents[at].clone())).collect();
        let list: Value = Some(RawBson::Array(list));
        Ok(set(document, &self.into, list))
    }

    fn filter(&self, value: RawBson) -> Result<Filter> {
        let mut filter = RawDocumentBuf::new();
        if let Ok(name) = CString::try_from(self.foreign.as_str()) {
            filter.append(name, rawdoc! { "$eq": value });
        }
        Ok(Filter::parse(&filter, Purpose::Find)?)
    }
}
