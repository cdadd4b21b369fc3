//! An ordinary collection in one version of the state.

use super::changes::Change;
use super::columns::{self, DocumentColumns};
use super::memtable::{Known, Memtable, Row};
use super::options::{DocumentsOptions, DocumentsRecord};
use super::segment::DocumentSegment;
use super::stored::{Stored, raw};
use super::usage::Usage;
use crate::error::Result;
use crate::manifest::Op;
use crate::segment::folder::SegmentFolder;
use ebbtide_buckets::{BlockCache, FoundDocument, StoredDocument};
use ebbtide_documents::ItemRules;
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An ordinary collection in one version. Snapshots share it; a change makes a copy of what it changes.
#[derive(Debug, Clone)]
pub(crate) struct DocumentsState {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) options: Arc<DocumentsOptions>,
    /// When documents expire, made of the options.
    pub(crate) rules: Arc<ItemRules>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) rules_epoch: u64,
    pub(crate) sealed_seq: u64,
    pub(crate) segments: Arc<BTreeMap<u64, Arc<DocumentSegment>>>,
    pub(crate) folder: Arc<SegmentFolder>,
    /// Documents that were found in segments lately.
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) memtable: Memtable,
    /// The columns in SQL, of all documents that were ever stored.
    pub(crate) columns: Arc<DocumentColumns>,
    /// Those that the manifest has.
    pub(crate) sealed_columns: Arc<DocumentColumns>,
}

/// A document that was found, and its row if it is in a segment.
pub(crate) type Found = (Stored, Option<Row>);

impl DocumentsState {
    pub(crate) fn record(&self) -> DocumentsRecord {
        DocumentsRecord {
            id: self.id,
            name: self.name.clone(),
            options: (*self.options).clone(),
            rules_epoch: self.rules_epoch,
            sealed_seq: self.sealed_seq,
        }
    }

    /// The operation that makes the columns durable, if any are new.
    pub(crate) fn new_columns(&self) -> Option<Op> {
        (self.columns != self.sealed_columns)
            .then(|| Op::SetDocumentColumns { collection: self.id, columns: self.columns.records() })
    }

    /// The operation that makes all columns durable, if there are any.
    pub(crate) fn all_columns(&self) -> Option<Op> {
        let columns = self.columns.records();
        (!columns.is_empty()).then_some(Op::SetDocumentColumns { collection: self.id, columns })
    }

    /// The stored document with a key, expired or not.
    ///
    /// A key has at most one row that is not gone, and none if the memtable knows the key. So what the cache holds is the document
    /// if this version has its row, in whatever version it was found, and the memtable need not be asked.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Found>> {
        let is_gone = |segment: &DocumentSegment, row: u32| {
            segment.deleted.contains(row) || self.memtable.is_superseded((segment.id(), row))
        };
        if let Some(FoundDocument { segment: id, row, document }) = self.cache.document(self.id, key)
            && self.segments.get(&id).is_some_and(|segment| !is_gone(segment, row))
        {
            debug_assert_eq!(self.memtable.get(key), Known::Nothing, "a row was not marked as replaced");
            let StoredDocument { written, document } = document;
            return Ok(Some((Stored { written, document }, Some((id, row)))));
        }
        match self.memtable.get(key) {
            Known::Document(stored) => return Ok(Some((stored, None))),
            Known::Removed => return Ok(None),
            Known::Nothing => {}
        }
        // New segments first: what was written lately is what is asked for.
        for segment in self.segments.values().rev() {
            let id = segment.id();
            if let Some((row, stored)) = segment.get(key, |row| is_gone(segment, row))? {
                let document = StoredDocument { written: stored.written, document: stored.document.clone() };
                self.cache.put_document(self.id, key, FoundDocument { segment: id, row, document });
                return Ok(Some((stored, Some((id, row)))));
            }
        }
        Ok(None)
    }

    /// The row of a segment that holds the document with a key: at most one does. `None` if it is in the memtable.
    pub(crate) fn row_of(&self, key: &[u8]) -> Result<Option<Row>> {
        if self.memtable.get(key) != Known::Nothing {
            return Ok(None);
        }
        for segment in self.segments.values().rev() {
            let Some(row) = segment.find(key)? else { continue };
            if !segment.deleted.contains(row) && !self.memtable.is_superseded((segment.id(), row)) {
                return Ok(Some((segment.id(), row)));
            }
        }
        Ok(None)
    }

    /// Applies one change of the log, which is never judged again: neither clock nor rules are asked.
    pub(crate) fn replay(&mut self, change: Change) -> Result<()> {
        let old = self.row_of(&change.key)?;
        match change.stored {
            Some(stored) => {
                columns::observe(&mut self.columns, raw(&stored.document));
                self.memtable.put(change.key, stored, old);
            }
            None => drop(self.memtable.remove(&change.key, old)),
        }
        Ok(())
    }

    /// Stores a document under a key that none has, of which the caller is sure: nothing is read.
    pub(crate) fn put_new(&mut self, change: Change) {
        if let Some(stored) = change.stored {
            columns::observe(&mut self.columns, raw(&stored.document));
            drop(self.memtable.put(change.key, stored, None));
        }
    }

    /// The rows of a segment that are gone in this version.
    pub(crate) fn gone(&self, segment: &DocumentSegment) -> RoaringBitmap {
        &segment.deleted | self.memtable.superseded(segment.id())
    }
}
