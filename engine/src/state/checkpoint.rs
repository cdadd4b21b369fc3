//! The state as an edit.

use super::State;
use crate::archive::ArchiveRecord;
use crate::files::collection_folder;
use crate::hand_off::record::HandedOver;
use crate::manifest::Op;
use ebbtide_buckets::FileTypes;

impl State {
    /// The edit that creates this state from nothing, without the rows that are only in the log.
    ///
    /// The schema is the one in memory. It may be newer than the sealed one, which does no harm: replay would extend it too.
    pub(crate) fn checkpoint(&self) -> Vec<Op> {
        // Log records after `applied_seq` may exist, so the next number is not set above the first needed one.
        let sealed = self.collections.values().map(|c| c.sealed_seq);
        let sealed = sealed.chain(self.documents.values().map(|d| d.sealed_seq));
        let seq = sealed.max().unwrap_or(0) + 1;
        let mut ops = vec![Op::NextIds { collection: self.next_collection, segment: self.next_segment, seq }];
        for collection in self.collections.values() {
            ops.extend(collection.record().put(None));
            let folder = collection.folder.name().filter(|folder| {
                // A collection that was renamed keeps its folder.
                *folder != collection_folder(&collection.name, collection.id)
            });
            ops.extend(folder.map(|folder| Op::SetFolder { collection: collection.id, folder: folder.to_owned() }));
            ops.extend(collection.last_batch.map(|last| Op::SetLastBatch { collection: collection.id, last }));
            if *collection.file_types != FileTypes::default() {
                ops.push(Op::SetFileTypes { collection: collection.id, types: (*collection.file_types).clone() });
            }
            if *collection.handed_over != HandedOver::default() {
                let handed = (*collection.handed_over).clone();
                ops.push(Op::SetHandedOver { collection: collection.id, handed });
            }
            ops.extend(collection.segments.values().map(|s| Op::add_segment(collection.id, s)));
            if *collection.archive != ArchiveRecord::default() {
                ops.push(Op::SetArchive { collection: collection.id, archive: (*collection.archive).clone() });
            }
            for (index, archive) in &collection.index_archives.of {
                let (index, archive) = (index.clone(), Some(archive.clone()));
                ops.push(Op::SetIndexArchive { collection: collection.id, index, archive });
            }
            for (url, archive) in &collection.index_archives.records {
                let (url, archive) = (url.clone(), archive.clone());
                ops.push(Op::SetArchiveAt { collection: collection.id, url, archive });
            }
            if let Some(publication) = &collection.publication {
                let publication = Some((**publication).clone());
                ops.push(Op::SetPublication { collection: collection.id, publication });
            }
        }
        for collection in self.collections.values() {
            let ladder = collection.ladder.as_ref().map(|ladder| (**ladder).clone());
            ops.extend(ladder.map(|ladder| Op::SetLadder { collection: collection.id, ladder: Some(ladder) }));
        }
        for documents in self.documents.values() {
            ops.push(Op::PutDocuments(documents.record()));
            let folder = documents.folder.name().filter(|f| *f != collection_folder(&documents.name, documents.id));
            ops.extend(folder.map(|folder| Op::SetFolder { collection: documents.id, folder: folder.to_owned() }));
            ops.extend(documents.all_columns());
            let added = documents.segments.values().map(|segment| segment.record());
            ops.extend(added.map(|segment| Op::AddDocumentSegment { collection: documents.id, segment }));
        }
        ops.extend(self.views.iter().map(|(name, text)| Op::PutView { name: name.clone(), text: text.clone() }));
        ops.extend(self.holds.iter().cloned().map(Op::PutHold));
        ops.extend(self.logs.iter().map(|first_seq| Op::AddLog { first_seq: *first_seq }));
        ops.extend(self.sweeps.iter().cloned().map(Op::Swept));
        ops
    }
}
