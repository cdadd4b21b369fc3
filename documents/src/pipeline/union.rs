//! $unionWith: the results of a pipeline over another collection, after the documents of this one.

use super::{Pipeline, Stage, all_of};
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
