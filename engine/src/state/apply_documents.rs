//! How an edit changes an ordinary collection.

use super::State;
use super::apply::unknown;
use crate::documents::memtable::Memtable;
use crate::documents::options::DocumentsRecord;
use crate::documents::segment::{DocumentSegment, DocumentSegmentRecord};
use crate::documents::state::DocumentsState;
use crate::documents::usage::Usage;
use crate::error::{Error, Result};
use crate::files::{SegmentName, collection_folder};
use crate::manifest::Op;
use crate::segment::file::SegmentFile;
use crate::segment::folder::SegmentFolder;
use std::sync::Arc;

impl State {
    /// Applies an operation of an edit that is about an ordinary collection.
    pub(super) fn apply_to_documents(&mut self, op: Op) -> Result<()> {
        match op {
            Op::PutDocuments(record) => return self.put_documents(record),
            Op::RenameCollection { id, name } => {
                let old = self.known_documents(id)?.name.clone();
                let mut renamed = self.documents.remove(&old).ok_or_else(|| unknown("collection", id))?;
                Arc::make_mut(&mut renamed).name.clone_from(&name);
                self.documents.insert(name.clone(), renamed);
                self.names.insert(id, name);
            }
            Op::SetFolder { collection, folder } => {
                let folder = SegmentFolder::of_collection(self.fs.clone(), &self.dir, folder);
                self.known_documents(collection)?.folder = Arc::new(folder);
            }
            Op::DropCollection { id } => {
                let gone = self.names.remove(&id).and_then(|name| self.documents.remove(&name));
                let gone = gone.ok_or_else(|| unknown("collection", id))?;
                gone.segments.values().for_each(|segment| self.retire_documents(segment.clone()));
                if self.unlinks {
                    gone.folder.retire();
                    self.retired.documents.push(gone);
                }
            }
            Op::AddDocumentSegment { collection, segment } => {
                self.next_segment = self.next_segment.max(segment.id + 1);
                let (fs, cache) = (self.fs.clone(), self.cache.clone());
                let known = self.known_documents(collection)?;
                let DocumentSegmentRecord { id, meta, deleted } = segment;
                let name = SegmentName { generation: Some(0), id };
                let file = SegmentFile::new(fs, cache, known.folder.clone(), name, meta);
                let entry = Arc::new(DocumentSegment::new(Arc::new(file), deleted));
                Arc::make_mut(&mut known.segments).insert(id, entry);
            }
            Op::SetDeletedDocuments { collection, segment, deleted } => {
                let segments = Arc::make_mut(&mut self.known_documents(collection)?.segments);
                let old = segments.get_mut(&segment).ok_or_else(|| unknown("segment", segment))?;
                *old = Arc::new(old.without(deleted));
            }
            Op::SetDocumentColumns { collection, columns } => {
                let known = self.known_documents(collection)?;
                Arc::make_mut(&mut known.sealed_columns).join(columns.clone());
                Arc::make_mut(&mut known.columns).join(columns);
            }
            Op::RemoveSegment { collection, segment } => {
                let segments = Arc::make_mut(&mut self.known_documents(collection)?.segments);
                let gone = segments.remove(&segment).ok_or_else(|| unknown("segment", segment))?;
                self.retire_documents(gone);
            }
            Op::Sealed { collection, seq } => {
                self.applied_seq = self.applied_seq.max(seq);
                let known = self.known_documents(collection)?;
                known.sealed_seq = seq;
                known.memtable.sealed(seq + 1);
            }
            _ => return Err(Error::internal("an operation of measurements was applied to an ordinary collection")),
        }
        Ok(())
    }

    fn known_documents(&mut self, id: u64) -> Result<&mut DocumentsState> {
        self.documents_by_id_mut(id).ok_or_else(|| unknown("collection", id))
    }

    fn retire_documents(&mut self, gone: Arc<DocumentSegment>) {
        if self.unlinks {
            gone.file.retire();
            self.retired.document_segments.push(gone);
        }
    }

    fn put_documents(&mut self, record: DocumentsRecord) -> Result<()> {
        self.next_collection = self.next_collection.max(record.id + 1);
        let rules = Arc::new(record.options.rules()?);
        if let Some(known) = self.documents_by_id_mut(record.id) {
            known.usage = Arc::new(known.usage.of(&record.options.indexes));
            known.options = Arc::new(record.options);
            known.rules = rules;
            known.rules_epoch = record.rules_epoch;
            return Ok(());
        }
        let folder = collection_folder(&record.name, record.id);
        let state = DocumentsState {
            id: record.id,
            name: record.name.clone(),
            usage: Arc::new(Usage::default().of(&record.options.indexes)),
            options: Arc::new(record.options),
            rules,
            rules_epoch: record.rules_epoch,
            sealed_seq: record.sealed_seq,
            segments: Arc::default(),
            folder: Arc::new(SegmentFolder::of_collection(self.fs.clone(), &self.dir, folder)),
            cache: self.cache.columns().clone(),
            memtable: Memtable::default(),
            columns: Arc::default(),
            sealed_columns: Arc::default(),
        };
        self.names.insert(record.id, record.name.clone());
        self.documents.insert(record.name, Arc::new(state));
        Ok(())
    }
}
