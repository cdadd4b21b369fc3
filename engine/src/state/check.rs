//! Whether an edit fits the state that it changes.

use super::State;
use crate::documents::state::DocumentsState;
use crate::error::Result;
use crate::ladder::{LadderRecord, RungRecord, rung_of};
use crate::manifest::{Check, Op, only_takes_away, refused};

impl State {
    /// Checks a step of an edit against the state that it changes; what it must be by itself was checked before. `Err` says
    /// what is wrong.
    pub(crate) fn check(&self, op: &Op) -> Check {
        let collection = |id: &u64| self.by_id(*id).ok_or_else(|| format!("unknown collection {id}"));
        let segment =
            |of: &u64, id: &u64| collection(of)?.segments.get(id).ok_or_else(|| format!("unknown segment {id}"));
        let fails = |wrong: bool, what: String| if wrong { Err(what) } else { Ok(()) };
        let renames = matches!(op, Op::RenameCollection { .. });
        if let Some(documents) = op.collection().filter(|_| !renames).and_then(|id| self.documents_by_id(id)) {
            return check_documents(documents, op);
        }
        match op {
            Op::NextIds { .. } | Op::AddLog { .. } | Op::Swept(_) => Ok(()),
            Op::PutCollection(record) => {
                let (by_id, by_name) = (self.by_id(record.id), self.collections.get(&record.name));
                let is_taken = self.views.contains_key(&record.name) || self.documents.contains_key(&record.name);
                let same = by_id.map(|c| c.id) == by_name.map(|c| c.id) && !is_taken;
                fails(!same, name_or_number_is_taken(&record.name))
            }
            Op::PutDocuments(record) => {
                let is_taken = self.names.contains_key(&record.id) || self.kind_of(&record.name).is_some();
                fails(is_taken, name_or_number_is_taken(&record.name))
            }
            Op::AddDocumentSegment { collection: id, .. }
            | Op::SetDeletedDocuments { collection: id, .. }
            | Op::SetDocumentColumns { collection: id, .. } => Err(format!("collection {id} is no ordinary one")),
            Op::DropCollection { id }
            | Op::SetLastBatch { collection: id, .. }
            | Op::SetIds { collection: id, .. }
            | Op::SetGrace { collection: id, .. }
            | Op::SetMaxBytes { collection: id, .. }
            | Op::SetHandOff { collection: id, .. }
            | Op::SetHandedOver { collection: id, .. }
            | Op::SetExpireInto { collection: id, .. }
            | Op::SetArchive { collection: id, .. }
            | Op::SetArchiveAt { collection: id, .. }
            | Op::SetKeep { collection: id, .. }
            | Op::SetPublication { collection: id, .. } => collection(id).map(drop),
            Op::SetIndexArchive { collection: id, index, .. } => {
                let known = collection(id)?.rules.find(Some(index)).is_some();
                fails(!known, format!("an archive of the unknown index '{}' of collection {id}", index.escape_debug()))
            }
            Op::SetLadder { collection: id, ladder } => self.check_ladder(collection(id)?.id, ladder.as_ref()),
            Op::SetSchema { collection: id, schema } => {
                collection(id)?.schema.join(schema).map(drop).map_err(|e| e.to_string())
            }
            Op::SetFileTypes { collection: id, types } => {
                fails(!types.may_follow(&collection(id)?.file_types), format!("file types of collection {id} narrow"))
            }
            Op::AddSegment { collection: id, segment } | Op::AddSegmentInFolder { collection: id, segment, .. } => {
                fails(
                    collection(id)?.segments.contains_key(&segment.id),
                    format!("segment {} is added twice", segment.id),
                )
            }
            Op::SetSegment { collection, segment: id, state } => {
                let old = segment(collection, id)?;
                only_takes_away(&old.file.meta, &old.state, state).map_err(|what| format!("segment {id}: {what}"))
            }
            Op::DropBuckets { collection, segment: id, dropped, live } => {
                let old = segment(collection, id)?;
                let state = old.state.without_buckets(dropped, *live);
                only_takes_away(&old.file.meta, &old.state, &state).map_err(|what| format!("segment {id}: {what}"))
            }
            Op::RemoveSegment { collection, segment: id } => segment(collection, id).map(drop),
            // Rows between the two numbers would be both in segments and replayed from the log.
            Op::Sealed { collection: id, seq } => {
                fails(*seq < collection(id)?.sealed_seq, format!("collection {id} is sealed up to {seq} only"))
            }
            Op::PutView { name, .. } => {
                let is_taken = self.collections.contains_key(name) || self.documents.contains_key(name);
                fails(is_taken, format!("view '{name}' has the name of a collection"))
            }
            Op::DropView { name } => fails(!self.views.contains_key(name), format!("unknown view '{name}'")),
            Op::RenameCollection { id, name } => {
                if !self.names.contains_key(id) {
                    return Err(format!("unknown collection {id}"));
                }
                fails(
                    self.kind_of(name).is_some(),
                    format!("collection {id} is given the name of another collection or a view, '{name}'"),
                )
            }
            Op::ReplaceFields { collection: id, schema, types } => {
                let known = collection(id)?;
                let (old, new) = (&known.schema, schema);
                let same = (&old.time, &old.meta, old.precision) == (&new.time, &new.meta, new.precision);
                let follows = types.generation() > known.file_types.generation() && known.segments.is_empty();
                fails(!same || !follows, format!("the fields of collection {id} change under its segments"))
            }
            // Its segments would no longer be found.
            Op::SetFolder { collection: id, .. } => fails(
                !collection(id)?.segments.is_empty(),
                format!("the folder of collection {id} changes, and it has segments"),
            ),
            // A collection that is gone has no active holds.
            Op::PutHold(hold) if hold.lifted_at.is_some() => Ok(()),
            Op::PutHold(hold) => {
                let is_taken = collection(&hold.collection)?.holds.iter().any(|other| other.name == hold.name);
                fails(is_taken, format!("hold '{}' is made twice", hold.name))
            }
            Op::RemoveLog { first_seq } => fails(!self.logs.contains(first_seq), format!("unknown log {first_seq}")),
        }
    }

    /// Checks that the rungs of a ladder are collections of their own.
    fn check_ladder(&self, parent: u64, ladder: Option<&LadderRecord>) -> Check {
        let is_rung = |rung: &RungRecord| {
            self.by_id(rung.collection).is_some_and(|c| rung_of(&c.name) == Some((parent, rung.rung.step_seconds)))
        };
        match ladder.iter().flat_map(|ladder| &ladder.rungs).find(|rung| !is_rung(rung)) {
            Some(rung) => Err(format!("collection {} is no rung of {parent}", rung.collection)),
            None => Ok(()),
        }
    }

    /// Checks an edit before it is written.
    pub(crate) fn check_edit(&self, edit: &[Op]) -> Result<()> {
        let depends = |op: &Op| match op {
            Op::ReplaceFields { .. } => true,
            // It may take the name of one that the edit drops.
            Op::RenameCollection { .. } => edit.len() > 1,
            Op::PutCollection(record) => edit.len() > 1 && self.by_id(record.id).is_none(),
            // The index may be new.
            Op::SetIndexArchive { .. } => edit.len() > 1,
            _ => false,
        };
        if !edit.iter().any(depends) {
            // No step depends on the ones before it.
            return edit.iter().try_for_each(|op| self.check(op)).map_err(refused);
        }
        let mut trial = State { unlinks: false, ..self.clone() };
        edit.iter().try_for_each(|op| {
            trial.check(op).map_err(refused)?;
            trial.apply(op.clone())
        })
    }
}

fn name_or_number_is_taken(name: &str) -> String {
    format!("collection '{name}' has the number or name of another one, or of a view")
}

/// Checks a step of an edit against the ordinary collection that it changes.
fn check_documents(documents: &DocumentsState, op: &Op) -> Check {
    let id = documents.id;
    let segment = |id: &u64| documents.segments.get(id).ok_or_else(|| format!("unknown segment {id}"));
    match op {
        Op::PutDocuments(record) if record.name == documents.name => Ok(()),
        Op::PutDocuments(record) => Err(name_or_number_is_taken(&record.name)),
        Op::DropCollection { .. } => Ok(()),
        // Its segments would no longer be found.
        Op::SetFolder { .. } if documents.segments.is_empty() => Ok(()),
        Op::SetFolder { .. } => Err(format!("the folder of collection {id} changes, and it has segments")),
        Op::AddDocumentSegment { segment, .. } if documents.segments.contains_key(&segment.id) => {
            Err(format!("segment {} is added twice", segment.id))
        }
        Op::AddDocumentSegment { .. } => Ok(()),
        Op::SetDeletedDocuments { segment: id, deleted, .. } => {
            segment(id)?.check_deleted(deleted).map_err(|what| format!("segment {id}: {what}"))
        }
        Op::SetDocumentColumns { .. } => Ok(()),
        Op::RemoveSegment { segment: id, .. } => segment(id).map(drop),
        Op::Sealed { seq, .. } if *seq >= documents.sealed_seq => Ok(()),
        Op::Sealed { .. } => Err(format!("collection {id} is sealed up to {} only", documents.sealed_seq)),
        _ => Err(format!("an operation of measurements on the ordinary collection {id}")),
    }
}
