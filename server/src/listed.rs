//! Documents in memory that are read like a collection.

use crate::error::Result;
use bson::raw::{RawDocument, RawDocumentBuf};
use ebbtide_documents::{Filter, Projection, Purpose, Sort};

/// Which of the documents are wanted, in which order, and what of them.
pub(crate) struct Wanted<'a> {
    pub(crate) filter: &'a RawDocument,
    pub(crate) sort: &'a RawDocument,
    pub(crate) projection: &'a RawDocument,
    pub(crate) skip: u64,
    pub(crate) limit: Option<u64>,
}

pub(crate) fn find(documents: Vec<RawDocumentBuf>, wanted: &Wanted<'_>) -> Result<Vec<RawDocumentBuf>> {
    let (sort, projection) = (Sort::parse(wanted.sort)?, Projection::parse(wanted.projection)?);
    let mut found = matching(documents, wanted.filter)?;
    if !sort.is_empty() {
        let with_key = |document: RawDocumentBuf| Ok((sort.key(&document)?, document));
        let mut keyed = found.into_iter().map(with_key).collect::<Result<Vec<_>>>()?;
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
        found = keyed.into_iter().map(|(_, document)| document).collect();
    }
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let found = found.into_iter().skip(count(wanted.skip)).take(wanted.limit.map_or(usize::MAX, count));
    Ok(found.map(|document| if projection.is_whole() { document } else { projection.apply(&document, 0) }).collect())
}

pub(crate) fn matching(mut documents: Vec<RawDocumentBuf>, filter: &RawDocument) -> Result<Vec<RawDocumentBuf>> {
    let filter = Filter::parse(filter, Purpose::Find)?;
    documents.retain(|document| filter.matches(document));
    Ok(documents)
}
