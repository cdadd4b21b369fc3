//! $unionWith: the results of a pipeline over another collection, after the documents of this one.

use super::memory::{Memory, kept_bytes};
use super::{Pipeline, Result, Stage, all_of};
use bson::raw::RawDocumentBuf;

/// What a `$unionWith` asks for.
#[derive(Debug, Clone)]
pub struct UnionWith {
    /// The other collection.
    pub collection: String,
    /// What its documents go through.
    pub pipeline: Pipeline,
}

impl UnionWith {
    /// The filter that the collection is asked, and the stages after it.
    pub(super) fn split(&self) -> (RawDocumentBuf, &[Stage]) {
        let stages = self.pipeline.stages.as_slice();
        let filters: Vec<_> = stages.iter().map_while(Stage::as_filter).collect();
        let rest = stages.get(filters.len()..).unwrap_or_default();
        (all_of(filters), rest)
    }
}

impl Pipeline {
    /// Cuts it at its first `$unionWith`, so that both collections can be read one after the other: what is left is the part
    /// before it, and the stages after it are returned. `None` if there is none. One that names no collection fails where it is run,
    /// and is passed over.
    #[must_use]
    pub fn cut_at_union(&mut self) -> Option<(UnionWith, Pipeline)> {
        let is_read = |stage: &Stage| matches!(stage, Stage::Union(union) if !union.collection.is_empty());
        let at = self.stages.iter().position(is_read)?;
        let mut after = self.stages.split_off(at);
        match after.remove(0) {
            Stage::Union(union) => Some((*union, Pipeline { stages: after })),
            _ => None,
        }
    }
}

/// The documents of a union are kept if they take at most this fraction of the remaining memory: one eighth.
const KEPT_SHARE: usize = 8;

/// The documents of the other collection, kept for further runs of a pipeline with the stage, such as that of a `$lookup`. The
/// filter by which they were read is the same in all of them.
#[derive(Debug, Default)]
pub(super) struct KeptUnion {
    documents: Vec<RawDocumentBuf>,
    bytes: usize,
    /// Whether all of them are kept.
    is_whole: bool,
    /// Whether they are too large to be kept.
    is_large: bool,
}

impl KeptUnion {
    /// For a stage that runs once: keeps nothing.
    pub(super) fn nothing() -> KeptUnion {
        KeptUnion { is_large: true, ..KeptUnion::default() }
    }

    /// All documents, if they are kept.
    pub(super) fn documents(&self) -> Option<&[RawDocumentBuf]> {
        self.is_whole.then_some(self.documents.as_slice())
    }

    /// The bytes that are counted for what is kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a document that is read, unless they become too large.
    pub(super) fn add(&mut self, document: &RawDocumentBuf, memory: &Memory) -> Result<()> {
        if self.is_large {
            return Ok(());
        }
        let bytes = kept_bytes(document);
        if self.bytes + bytes > (memory.left() + self.bytes) / KEPT_SHARE {
            self.is_large = true;
            self.forget(memory);
            return Ok(());
        }
        memory.take(bytes, "$unionWith")?;
        self.bytes += bytes;
        self.documents.push(document.clone());
        Ok(())
    }

    /// Ends the reading: what was not read to its end is not kept.
    pub(super) fn end(&mut self, is_whole: bool, memory: &Memory) {
        self.is_whole = is_whole && !self.is_large;
        if !self.is_whole {
            self.forget(memory);
        }
    }

    fn forget(&mut self, memory: &Memory) {
        memory.give_back(self.bytes);
        self.bytes = 0;
        self.documents = Vec::new();
    }
}
