//! Which rows of a segment an index points a query to.
//!
//! The part of an index that is about one segment is made when a query first needs it, in one pass over the segment, and stays in
//! memory as long as the segment: a segment never changes. What is in no segment has an index of its own
//! ([`super::memtable_index`]). Both have the beginning of each key only, so they may point to documents that do
//! not match; a query looks at every document that it returns.

use super::memtable::Memtable;
use super::options::IndexSpec;
use super::segment::DocumentSegment;
use super::segment_index::SegmentIndex;
use super::stored::{Stored, raw};
use crate::error::Result;
use bytes::Bytes;
use ebbtide_documents::{Filter, Interval, Multiplicity, Path, index_keys, value_key};
use roaring::RoaringBitmap;
use std::sync::Arc;

/// The index that serves a query, and where to look in it.
#[derive(Debug)]
pub(crate) struct Chosen<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    path: Path,
    intervals: Vec<Interval>,
}

impl<'a> Chosen<'a> {
    /// The first index whose leading field the filter bounds; single values before ranges. The filter of an index says which
    /// documents expire through it; it knows the others too.
    pub(crate) fn of(indexes: &'a [IndexSpec], filter: &Filter) -> Option<Chosen<'a>> {
        let chosen = |index: &'a IndexSpec| {
            let path = Path::new(&index.key.first()?.0);
            let intervals = filter.intervals(&path, Multiplicity::Many)?;
            Some(Chosen { name: &index.name, path, intervals })
        };
        indexes.iter().filter_map(chosen).min_by_key(|chosen| !chosen.intervals.iter().all(Interval::is_point))
    }

    /// The rows of a segment to look at, and how many documents were read to find that out.
    pub(crate) fn rows(&self, segment: &DocumentSegment) -> Result<(RoaringBitmap, u64)> {
        let mut read = 0;
        let index = match segment.index(self.path.as_str()) {
            Some(index) => index,
            None => {
                let rows = segment.rows(&RoaringBitmap::new())?;
                let documents = rows.map(|row| row.map(|(row, _, stored)| (row, stored)));
                let built = Arc::new(SegmentIndex::build(documents, &self.path)?);
                tracing::debug!(
                    segment = segment.id(),
                    path = self.path.as_str(),
                    bytes = built.bytes(),
                    "made an index"
                );
                segment.keep_index(self.path.as_str(), built.clone());
                read = segment.file.meta.rows;
                built
            }
        };
        Ok((index.rows(&self.intervals), read))
    }

    /// The documents that are in no segment and are to be looked at, in the order of their keys.
    pub(crate) fn in_memory(&self, memtable: &Memtable) -> impl Iterator<Item = (Bytes, Stored)> {
        let may_match = memtable.documents_by_index(&self.path, &self.intervals);
        may_match.into_iter().filter(|(_, stored)| self.includes(stored))
    }

    fn includes(&self, stored: &Stored) -> bool {
        let keys = index_keys(raw(&stored.document), &self.path);
        keys.into_iter().any(|value| {
            let key = value_key(value);
            self.intervals.iter().any(|interval| interval.contains(&key))
        })
    }
}
