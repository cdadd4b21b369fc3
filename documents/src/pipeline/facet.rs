//! $facet: several pipelines over the same documents, whose results become the members of one document.

use super::feed::{InnerRun, Shared};
use super::{Pipeline, Result, Stage, all_hold, split_conditions};
use crate::ExpressionError;
use bson::raw::{CString, RawArrayBuf, RawBson, RawDocumentBuf};

/// Bytes of the results of all facets at most, as in MongoDB.
const BYTES_MAX: usize = 100 << 20;

/// One pipeline of a `$facet`.
#[derive(Debug, Clone)]
pub(super) struct Facet {
    pub(super) name: CString,
    pub(super) pipeline: Pipeline,
}

impl Facet {
    /// The conditions at the beginning, and the stages after them.
    fn split(&self) -> (&[Stage], &[Stage]) {
        split_conditions(&self.pipeline.stages)
    }
}

/// The runs of the stages after the conditions of each pipeline.
#[derive(Debug)]
pub(super) struct Facets(Vec<InnerRun>);

impl Facets {
    pub(super) fn new(facets: &[Facet]) -> Facets {
        Facets(facets.iter().map(|facet| InnerRun::new(facet.split().1)).collect())
    }

    /// Gives a document to every pipeline. Returns whether one of them can use more.
    pub(super) fn take(&mut self, facets: &[Facet], document: &RawDocumentBuf, shared: Shared<'_>) -> Result<bool> {
        let mut more = false;
        for (facet, run) in facets.iter().zip(&mut self.0) {
            if run.is_full() {
                continue;
            }
            let (conditions, stages) = facet.split();
            more |= !all_hold(conditions, document, shared.moment)? || run.take(stages, document.clone(), shared)?;
        }
        Ok(more)
    }

    /// The bytes that are counted for what they keep.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(InnerRun::bytes).sum()
    }

    /// The document of all results. `held` is the memory that is counted for them.
    pub(super) fn finish(self, facets: &[Facet], held: &mut usize, shared: Shared<'_>) -> Result<RawDocumentBuf> {
        let mut document = RawDocumentBuf::new();
        for (facet, mut run) in facets.iter().zip(self.0) {
            run.finish(facet.split().1, shared)?;
            let results = run.results();
            *held += results.bytes;
            if *held > BYTES_MAX {
                let message = format!(
                    "document constructed by $facet is {held} bytes, which exceeds the limit of {BYTES_MAX} bytes"
                );
                return Err(ExpressionError::new(4_031_700, message));
            }
            let list: RawArrayBuf = results.documents.into_iter().map(RawBson::Document).collect();
            document.append(&facet.name, list);
        }
        Ok(document)
    }
}
